//! Sources that go on, through the session: files that grow, pipes, sockets, and idle splits.
//!
//! Tests wait for rows and states, with a deadline that only a fault reaches; none sleeps.

mod follow;
mod idle;
mod running;
mod socket;
