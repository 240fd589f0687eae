//! Joins: operators of two inputs.
//!
//! Invariant: which rows meet is told by their values and their running watermarks, never by which
//! of the inputs was read first.

mod interval;
#[cfg(test)]
mod interval_tests;
mod lookup;
mod matching;
mod padding;
mod regular;
#[cfg(test)]
mod regular_tests;
mod slots;
mod temporal;
#[cfg(test)]
mod temporal_tests;
mod waiting;
mod window;

pub(super) use interval::IntervalJoin;
pub(super) use lookup::LookupJoin;
pub(crate) use lookup::LookupTable;
pub(super) use regular::RegularJoin;
pub(super) use temporal::TemporalJoin;
pub(super) use window::WindowJoin;

/// What a state calls the rows of the inputs.
const SIDES: [&str; 2] = ["first", "second"];
