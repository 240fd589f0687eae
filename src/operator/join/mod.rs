//! Joins: operators of two inputs.
//!
//! Invariant: which rows meet is told by their values and their running watermarks, never by which
//! of the inputs was read first.

mod interval;
#[cfg(test)]
mod interval_tests;
mod matching;
mod window;

pub(super) use interval::IntervalJoin;
pub(super) use window::WindowJoin;
