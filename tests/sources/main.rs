//! Sources that go on, through the session: files that grow, pipes, sockets, and idle splits.
//!
//! Tests wait for rows and states, with a deadline that only a fault reaches; none sleeps.

#![allow(clippy::unwrap_used, reason = "a test fails where it can no longer go on")]

mod follow;
mod idle;
mod running;
mod socket;
