//! Joins of two streams as the plan that runs has them.

use arrow::datatypes::SchemaRef;

use super::{ExprRef, JoinKind};

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
