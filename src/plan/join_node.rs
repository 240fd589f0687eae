//! Joins of two streams as the plan that runs has them.

use arrow::datatypes::SchemaRef;

use super::{ExprRef, JoinKind, StateTtl};
use crate::stream::TimeUnit;

/// Joins all rows of two inputs, whenever they come; results change as rows come and go.
///
/// Output columns: those of the first input, then, but for `Semi` and `Anti`, those of the second.
#[derive(Debug, Clone)]
pub struct RegularJoinNode {
    /// Which rows come out.
    pub kind: JoinKind,
    /// Each input's columns that must be equal, of the same types and in the same order.
    pub keys: [Vec<usize>; 2],
    /// Whether a NULL is equal to another one.
    pub null_is_equal: bool,
    /// What else must be true of a pair, over `pair`.
    pub condition: Option<ExprRef>,
    /// The columns of the first input, then those of the second.
    pub pair: SchemaRef,
    /// How many columns the first input has.
    pub first_width: usize,
    /// Whether rows of each input change or go.
    pub updating: [bool; 2],
    /// How long rows of each input are kept.
    pub ttl: Option<[StateTtl; 2]>,
    /// When rows of each input need not be kept any more; `None`: always.
    pub horizons: [Option<Horizon>; 2],
}

/// When no row to come of the other input can join a row of one: as soon as the watermark is at or past the row's
/// time and so much more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    /// The row's time: a column of the input, which need not be its time attribute. A row whose time is NULL
    /// joins nothing.
    pub time: usize,
    /// Microseconds.
    pub behind_us: i64,
}

/// Joins each row of the first input with the version of the second one's key that was valid at its time.
///
/// Output columns: those of the first input, then those of the second.
#[derive(Debug, Clone)]
pub struct TemporalJoinNode {
    /// `Inner` or `Left`.
    pub kind: JoinKind,
    /// Each input's time attribute; that of the second is when a version becomes valid.
    pub times: [usize; 2],
    /// The first time attribute's step.
    pub unit: TimeUnit,
    /// Each input's columns that must be equal, of the same types and in the same order.
    pub keys: [Vec<usize>; 2],
    /// What else must be true of a pair, over `pair`.
    pub condition: Option<ExprRef>,
    /// The columns of the first input, then those of the second.
    pub pair: SchemaRef,
    /// How many columns the first input has.
    pub first_width: usize,
}

/// Joins each row of the first input with the rows of a table of its key. The table, the second input, is read
/// once, before the first row.
///
/// Output columns: those of the first input, then those of the second.
#[derive(Debug, Clone)]
pub struct LookupJoinNode {
    /// `Inner` or `Left`.
    pub kind: JoinKind,
    /// Each input's columns that must be equal, of the same types and in the same order.
    pub keys: [Vec<usize>; 2],
    /// What else must be true of a pair, over `pair`.
    pub condition: Option<ExprRef>,
    /// The columns of the first input, then those of the second.
    pub pair: SchemaRef,
    /// How many columns the first input has.
    pub first_width: usize,
}

/// Joins rows of two inputs whose times are at most so far apart.
///
/// Output columns: those of the first input, then, but for `Semi` and `Anti`, those of the second.
#[derive(Debug, Clone)]
pub struct IntervalJoinNode {
    /// Which rows come out.
    pub kind: JoinKind,
    /// Each input's time attribute.
    pub times: [usize; 2],
    /// How far the second row's time is behind the first row's at least, microseconds; below zero: it
    /// is before it. `None`: there is no such bound.
    pub lower_us: Option<i64>,
    /// How far at most.
    pub upper_us: Option<i64>,
    /// Each input's columns that must be equal, of the same types and in the same order.
    pub keys: [Vec<usize>; 2],
    /// Whether a NULL is equal to another one.
    pub null_is_equal: bool,
    /// What else must be true of a pair, over `pair`.
    pub condition: Option<ExprRef>,
    /// The columns of the first input, then those of the second.
    pub pair: SchemaRef,
    /// How many columns the first input has.
    pub first_width: usize,
    /// How far the watermark of the output is behind that of the inputs, so that no time attribute of
    /// a pair is behind it; microseconds.
    pub delay_us: i64,
}
