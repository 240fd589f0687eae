//! OVER as the plan that runs has it.

use chrono_tz::Tz;
use datafusion_common::ScalarValue;

use super::{AggregateCall, ExprRef, SortKey, StateTtl, WindowBounds};
use crate::stream::TimeUnit;

/// Computes values of each row over the rows around it. Output: the input's columns, then one for
/// each call.
#[derive(Debug, Clone)]
pub struct OverNode {
    /// When a row's values are known.
    pub trigger: OverTrigger,
    /// PARTITION BY, but for the bounds of a window.
    pub partition: Vec<usize>,
    /// ORDER BY; of event time without the time itself. Ties are in the order of arrival.
    pub order: Vec<SortKey>,
    /// Of rows that are equal in ORDER BY the one that came last is the first.
    pub latest_first: bool,
    /// What to compute.
    pub calls: Vec<OverCall>,
    /// Which rows come out; `None`: all.
    pub limit: Option<RankLimit>,
}

/// When the values of a row are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverTrigger {
    /// When the watermark has passed the row: rows are in event-time order.
    EventTime {
        /// The time attribute's column.
        time: usize,
        /// The time attribute's step.
        unit: TimeUnit,
    },
    /// When the row's window closes; a window is a partition.
    WindowClose {
        /// Its columns.
        bounds: WindowBounds,
        /// The time attribute's step.
        unit: TimeUnit,
        /// The zone whose wall clock the windows were cut by.
        zone: Option<Tz>,
    },
    /// At the end of a bounded input.
    End,
}

/// A call of a function OVER a frame.
#[derive(Debug, Clone)]
pub struct OverCall {
    /// The function.
    pub function: OverFunction,
    /// The rows that an aggregate is over.
    pub frame: OverFrame,
    /// What EXPLAIN calls it.
    pub text: String,
}

/// What is computed of a row.
#[derive(Debug, Clone)]
pub enum OverFunction {
    /// `ROW_NUMBER()`.
    RowNumber,
    /// `RANK()`.
    Rank,
    /// `DENSE_RANK()`.
    DenseRank,
    /// `PERCENT_RANK()`; needs all rows of the partition.
    PercentRank,
    /// `CUME_DIST()`; needs all rows of the partition.
    CumeDist,
    /// `NTILE(buckets)`; needs all rows of the partition.
    Ntile {
        /// How many, at least one.
        buckets: u64,
    },
    /// The value of another row of the partition: `LAG`, `LEAD`.
    Shift {
        /// Over the input.
        value: ExprRef,
        /// How many rows before this one; below zero: behind it.
        by: i64,
        /// Where there is no such row.
        default: ScalarValue,
        /// Rows whose value is NULL do not count.
        ignores_nulls: bool,
    },
    /// The first or last value of the frame: `FIRST_VALUE`, `LAST_VALUE`.
    End {
        /// Over the input.
        value: ExprRef,
        /// The last one.
        is_last: bool,
        /// NULLs do not count.
        ignores_nulls: bool,
    },
    /// The n-th value of the frame: `NTH_VALUE`.
    Nth {
        /// Over the input.
        value: ExprRef,
        /// From 1.
        n: usize,
        /// NULLs do not count.
        ignores_nulls: bool,
    },
    /// An aggregate of the frame.
    Aggregate(AggregateCall),
}

/// The rows that a value is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverFrame {
    /// What offsets count.
    pub unit: FrameUnit,
    /// Where it starts.
    pub start: FrameBound,
    /// Where it ends; that row is in it.
    pub end: FrameBound,
}

/// What the offsets of a frame count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameUnit {
    /// `ROWS`.
    Rows,
    /// `RANGE`: microseconds of the one column of ORDER BY, which is a time; rows that are equal in
    /// ORDER BY are in the same frames.
    Range,
}

/// An end of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameBound {
    /// That of the partition.
    Unbounded,
    /// So far behind the current row; below zero: before it.
    Offset(i64),
}

/// Rows whose rank is no greater than this come out, no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankLimit {
    /// Which of the calls gives the rank.
    pub call: usize,
    /// The greatest rank.
    pub most: i64,
}

/// Keeps the first rows of each partition, and changes them as rows come and go.
///
/// Output columns: those of the input, then the rank where somebody reads it.
#[derive(Debug, Clone)]
pub struct TopNNode {
    /// PARTITION BY.
    pub partition: Vec<usize>,
    /// ORDER BY; ties are in the order of arrival. None: rows are in the order of arrival.
    pub order: Vec<SortKey>,
    /// Of rows that are equal in ORDER BY the one that came last is the first.
    pub latest_first: bool,
    /// The time attribute that rows are ordered by: those without a time are not used.
    pub time: Option<usize>,
    /// What counts rows.
    pub rank: RankKind,
    /// The greatest rank that comes out.
    pub most: u64,
    /// The rank is the last column.
    pub gives_rank: bool,
    /// Rows of the input change or go.
    pub updating: bool,
    /// Columns of the input that tell rows apart; `None`: all of them do.
    pub identity: Option<Vec<usize>>,
    /// How long partitions are kept.
    pub ttl: Option<StateTtl>,
}

impl TopNNode {
    /// Whether rows that were given may change or go.
    pub fn changes(&self) -> bool {
        self.updating || self.latest_first || !self.order.is_empty()
    }

    /// Whether it gives one row of each key: deduplication.
    pub fn is_deduplication(&self) -> bool {
        self.most == 1 && self.rank == RankKind::RowNumber
    }
}

/// What counts rows in their order, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankKind {
    /// Each row has a number of its own.
    RowNumber,
    /// One more than there are rows before the first of equal ones.
    Rank,
    /// Equal rows count once.
    DenseRank,
}
