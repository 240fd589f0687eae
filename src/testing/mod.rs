//! Test files: streaming SQL on a virtual clock.
//!
//! A file holds tests, a test holds statements and directives: push these rows, let this time pass,
//! expect those rows. [`TestFile::read`] reads a file, [`TestFile::run`] runs one of its tests in a
//! session of its own, step by step in the caller's thread. `docs/testing.md` has the language.
//!
//! Invariant: nothing here waits or reads a clock, so the same file gives the same answer always;
//! nothing here knows operators: what a test sees, every program can see.

mod directive;
mod expect;
mod file;
mod junit;
mod rows;
mod run;
mod time;
mod world;

pub use file::{TestCase, TestFile};
pub use junit::junit;
pub use run::{Edit, Failure, TestOptions, Verdict};
