//! The plan that runs: operators over Arrow schemas, exchanges, sinks, and what each stream promises.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use chrono_tz::Tz;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;

use super::{
    Guarantee, IntervalJoinNode, Lint, LookupJoinNode, MatchRecognizeNode, OverNode, RegularJoinNode,
    TemporalJoinNode, TopNNode,
};
use crate::catalog::{NullTime, Table};
use crate::stream::TimeUnit;

/// An expression over the columns of a node's input.
pub type ExprRef = Arc<dyn PhysicalExpr>;

/// Index of a node in [`StreamPlan::nodes`].
pub type NodeId = usize;

/// A plan that the runtime can start. Inputs stand before the nodes that read them.
#[derive(Debug, Clone, Default)]
pub struct StreamPlan {
    /// All nodes; a node's inputs have smaller ids.
    pub nodes: Vec<PlanNode>,
    /// The sinks, one a query or insert; each is a [`Operation::Sink`].
    pub sinks: Vec<NodeId>,
    /// The sinks of late rows, one a table that `LATE ROWS INTO` names.
    pub late_sinks: Vec<NodeId>,
    /// Side tables that the plan makes: tables of the catalog once it runs.
    pub side_tables: Vec<Arc<Table>>,
    /// What a person should know though the plan runs: growing state, options without effect.
    pub warnings: Vec<String>,
    /// What may not be meant: about event time and, where the planner was told to look, about
    /// what is known of the tables.
    pub lints: Vec<Lint>,
    /// How often rows count when a run goes on from a checkpoint: of an insert, where the planner was told to look.
    pub guarantee: Option<Guarantee>,
}

/// An operation with its inputs and what its output stream promises.
#[derive(Debug, Clone)]
pub struct PlanNode {
    /// What it does.
    pub operation: Operation,
    /// Where its rows come from.
    pub inputs: Vec<NodeId>,
    /// The columns of its output.
    pub schema: SchemaRef,
    /// What its output promises.
    pub properties: StreamProperties,
    /// Where rows go that it can't use: `LATE ROWS INTO`. `None`: they are only counted.
    pub late: Option<Arc<LateOutput>>,
}

/// The second output of a node: its late rows, rows without event time, rows that can't be read.
///
/// Rows have the chosen columns of the node's *input*, then those of the columns `late_…` that the
/// node knows.
#[derive(Debug, Clone)]
pub struct LateOutput {
    /// The table that they go to.
    pub table: String,
    /// The value of `late_operator`.
    pub operator: String,
    /// Columns of the node's input, in the order of `schema`; of a source none.
    pub columns: Vec<usize>,
    /// The input's column with the name of the row's table, if it has one.
    pub source: Option<usize>,
    /// The input's column with the name of the row's split, if it has one.
    pub split: Option<usize>,
    /// The columns of the rows.
    pub schema: SchemaRef,
    /// Of a node of two inputs: where the second one's rows go. Columns that only those have stand
    /// behind the ones of the first.
    pub second: Option<SecondLate>,
}

/// The columns of late rows of a second input.
#[derive(Debug, Clone)]
pub struct SecondLate {
    /// For each column of the late rows that is not one of `late_…`, the input's column.
    pub columns: Vec<Option<usize>>,
    /// As of the first input.
    pub source: Option<usize>,
    /// As of the first input.
    pub split: Option<usize>,
}

impl LateOutput {
    /// How many columns stand before those of `late_…`.
    pub fn width(&self) -> usize {
        self.second.as_ref().map_or(self.columns.len(), |second| second.columns.len())
    }
}

/// What a stream promises. EXPLAIN prints it for every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamProperties {
    /// The stream ends by itself.
    pub bounded: bool,
    /// Rows of other kinds than insert may come.
    pub updating: bool,
    /// Watermarks are sent.
    pub watermark: bool,
    /// Columns that are still time attributes.
    pub time_attributes: Vec<usize>,
    /// Columns that identify a row, if any are known.
    pub key: Option<Vec<usize>>,
}

/// What a node does. Closed on purpose: match it without a wildcard.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Reads a table. No inputs.
    Source(SourceNode),
    /// Rows that stand in the query. No inputs.
    Values(RecordBatch),
    /// Filter, then projection.
    Calc(CalcNode),
    /// Adds `window_start`, `window_end`, `window_time` to each row, once for each of its windows;
    /// where they are sessions, when the session is over.
    WindowRows(WindowRowsNode),
    /// Makes of a changelog of a table with a PRIMARY KEY one that takes away what is there.
    Normalize(NormalizeNode),
    /// Aggregates per window and key.
    WindowAggregate(Box<WindowAggregateNode>),
    /// Gives rows once for each grouping set.
    Expand(Box<ExpandNode>),
    /// Aggregates the rows of a changelog per window and key.
    WindowChanges(Box<WindowChangesNode>),
    /// Aggregates the rows of a changelog per key.
    GroupChanges(Box<GroupChangesNode>),
    /// Joins rows of the same window, or all rows of bounded inputs. Two inputs.
    WindowJoin(Box<WindowJoinNode>),
    /// Joins rows with the version that was valid at their time. Two inputs.
    TemporalJoin(Box<TemporalJoinNode>),
    /// Joins rows with a table that is read once. Two inputs.
    LookupJoin(Box<LookupJoinNode>),
    /// Joins all rows, whenever they come. Two inputs.
    RegularJoin(Box<RegularJoinNode>),
    /// Joins rows whose times are not far apart. Two inputs.
    IntervalJoin(Box<IntervalJoinNode>),
    /// Values of each row over the rows around it.
    Over(Box<OverNode>),
    /// The first rows of each partition, as they change.
    TopN(Box<TopNNode>),
    /// A row for each match of a pattern over rows that follow each other.
    MatchRecognize(Box<MatchRecognizeNode>),
    /// The items of an array as rows.
    Unnest(UnnestNode),
    /// All rows of all inputs; the schemas are equal but for names.
    Union,
    /// Moves rows to other subtasks.
    Exchange(Distribution),
    /// Gives rows in event-time order as the watermark passes them.
    TemporalSort(TemporalSortNode),
    /// The first rows.
    Limit(LimitNode),
    /// All rows of a bounded input, sorted.
    Sort(SortNode),
    /// The second output of another node. No inputs.
    LateRows(LateRowsNode),
    /// Writes to a table or to the caller. A sink of late rows may have several inputs.
    Sink(SinkNode),
}

/// Reads a table, makes its watermark.
///
/// Rows that the connector delivers have `read_schema`; the node's schema is that of `output`.
#[derive(Debug, Clone)]
pub struct SourceNode {
    /// What to read.
    pub table: Arc<Table>,
    /// Columns of the table to read (physical or metadata), as indexes into `table.columns`.
    /// The columns that `output` and `watermark` need, in table order; the rest is never decoded.
    pub read: Vec<usize>,
    /// The schema of those columns.
    pub read_schema: SchemaRef,
    /// Output columns over `read_schema`.
    pub output: Vec<ExprRef>,
    /// Event time. Evaluated before anything else sees the rows.
    pub watermark: Option<SourceWatermark>,
    /// Behind `output` stand two more columns: the names of the table and of the split.
    pub with_origin: bool,
    /// The table's rows change or go.
    pub changelog: bool,
    /// Of such a table: the PRIMARY KEY, whose columns are read.
    pub key: Vec<String>,
}

/// How a source makes its watermark, per split.
#[derive(Debug, Clone)]
pub struct SourceWatermark {
    /// The event time of a row, over `read_schema`.
    pub time: ExprRef,
    /// The name of the time column, for errors.
    pub column: String,
    /// The watermark that a row asks for, over `read_schema`, of the type of `time`. NULL: none.
    pub watermark: ExprRef,
    /// The time attribute's step.
    pub unit: TimeUnit,
    /// What becomes of rows without event time.
    pub null_time: NullTime,
    /// `IDLE AFTER`.
    pub idle_after_us: Option<i64>,
    /// `THEN ADVANCE`.
    pub then_advance: bool,
    /// `MAX AHEAD`.
    pub max_ahead_us: Option<i64>,
    /// `'scan.watermark.emit.strategy' = 'on-periodic'`.
    pub periodic: bool,
    /// Who waits for whom.
    pub alignment: Option<Alignment>,
    /// The time column is `PROCTIME()`: rows have the time of the source's clock when they are read, and
    /// the watermark is a millisecond behind it, also while there are none.
    pub processing: bool,
}

/// Tables of a group that do not run ahead of each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alignment {
    /// `'scan.watermark.alignment.group'`.
    pub group: String,
    /// `'scan.watermark.alignment.max-drift'`: how far a split's watermark may be ahead of the lowest of
    /// the group when it is read on, microseconds, > 0.
    pub max_drift_us: i64,
    /// `'scan.watermark.alignment.update-interval'`: how often a split that waits is looked at,
    /// microseconds, > 0.
    pub update_interval_us: i64,
}

/// Keeps the rows for which `filter` is true, and computes `project` of them.
#[derive(Debug, Clone)]
pub struct CalcNode {
    /// NULL counts as false.
    pub filter: Option<ExprRef>,
    /// Output columns over the input.
    pub project: Vec<ExprRef>,
}

/// Kind and sizes of windows, microseconds. Sizes are > 0, `|offset| < size`, `size % slide == 0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowKind {
    /// Each row in one window.
    Tumble {
        /// Length.
        size_us: i64,
    },
    /// Each row in `size / slide` windows.
    Hop {
        /// Distance of starts.
        slide_us: i64,
        /// Length.
        size_us: i64,
    },
    /// Windows that grow by `step` up to `size`, then start again.
    Cumulate {
        /// Growth.
        step_us: i64,
        /// Length of the longest.
        size_us: i64,
    },
    /// Windows that end after a gap without rows.
    Session {
        /// The gap.
        gap_us: i64,
    },
    /// One window over the whole of a bounded input; it fires at the end.
    Global,
}

/// Windows as a query asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSpec {
    /// Kind and sizes.
    pub kind: WindowKind,
    /// Moves the grid, microseconds.
    pub offset_us: i64,
    /// Cut by the wall clock of this zone instead of UTC.
    pub zone: Option<Tz>,
    /// The time attribute's step.
    pub unit: TimeUnit,
}

/// See [`Operation::WindowRows`]. Output: the input's columns, then start, end, time.
#[derive(Debug, Clone)]
pub struct WindowRowsNode {
    /// The time attribute's column in the input.
    pub time: usize,
    /// The windows.
    pub window: WindowSpec,
    /// Columns whose values have sessions of their own; none where windows are no sessions.
    pub partition: Vec<usize>,
}

/// Where a window aggregation finds a row's windows.
#[derive(Debug, Clone)]
pub enum WindowSource {
    /// From the time attribute in this column.
    Assign {
        /// The time attribute's column in the input.
        time: usize,
        /// The windows.
        window: WindowSpec,
    },
    /// Sessions, by the time attribute in this column. All groups of a row are of its partition.
    Session {
        /// The time attribute's column in the input.
        time: usize,
        /// The gap.
        window: WindowSpec,
        /// Columns whose values have sessions of their own; none: all rows are one track.
        partition: Vec<usize>,
    },
    /// The rows carry their window: they come from `WindowRows` or an aggregation over windows.
    Attached {
        /// Column of `window_start`.
        start: usize,
        /// Column of `window_end`.
        end: usize,
        /// The time attribute's step.
        unit: TimeUnit,
        /// The zone whose wall clock the windows were cut by; their bounds are on that clock.
        zone: Option<Tz>,
        /// A row stands there once for each of its windows, which are these of the time in that column:
        /// it is a late row where it is late for the last of them. `None`: it stands there once.
        copies: Option<(usize, WindowSpec)>,
    },
}

/// Aggregates per window and key.
///
/// Output columns: `window_start`, `window_end`, `window_time` (not for `Global` windows), then the
/// keys, then `__grouping_id` if there are grouping sets, then the aggregates.
#[derive(Debug, Clone)]
pub struct WindowAggregateNode {
    /// The row's windows.
    pub window: WindowSource,
    /// Group keys over the input; may be empty.
    pub keys: Vec<ExprRef>,
    /// For each grouping set, which keys are NULL in it. `None`: the plain grouping.
    /// `__grouping_id` has the type that the node's schema gives it; with `n` keys, bit `n - 1 - i`
    /// is set where key `i` is NULL in the set.
    pub grouping_sets: Option<Vec<Vec<bool>>>,
    /// What to compute.
    pub aggregates: Vec<AggregateCall>,
    /// How long a fired window takes more rows, microseconds. 0: not at all.
    pub allowed_lateness_us: i64,
    /// When results come.
    pub emit: EmitMode,
    /// This node's part of a two-phase aggregation.
    pub phase: AggregatePhase,
}

/// One aggregate of a window aggregation.
#[derive(Debug, Clone)]
pub struct AggregateCall {
    /// The function and its arguments over the input.
    pub function: Arc<AggregateFunctionExpr>,
    /// `FILTER (WHERE …)` over the input.
    pub filter: Option<ExprRef>,
    /// The result depends on the order in which rows arrive (`first_value`, `array_agg`, …): no
    /// pre-aggregation before an exchange, no state that merges rows out of their order.
    pub order_sensitive: bool,
    /// The result depends, in its last digits or estimates, on how rows were split into partial
    /// states (sums of floats, sketches): no pre-aggregation whose cuts follow batches or subtasks.
    /// Slices of event time may be shared: their cuts are the same in every run.
    pub inexact: bool,
}

/// When a window aggregation gives results. All modes but the first make a changelog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmitMode {
    /// Once, when the window closes.
    OnWindowClose,
    /// What changes in the result.
    Changes {
        /// Changes of so many microseconds of processing time together; `None`: each at its row.
        every_us: Option<i64>,
    },
    /// The whole result in place of the one before.
    Complete {
        /// Each so many microseconds of processing time; `None`: whenever a window closes.
        every_us: Option<i64>,
    },
    /// What open windows have so far, then, when they close, the final results.
    Early {
        /// Each so many microseconds of processing time.
        every_us: i64,
    },
}

impl EmitMode {
    /// The time between two rounds, microseconds of processing time.
    pub fn every_us(self) -> Option<i64> {
        match self {
            Self::OnWindowClose => None,
            Self::Changes { every_us } | Self::Complete { every_us } => every_us,
            Self::Early { every_us } => Some(every_us),
        }
    }
}

impl WindowAggregateNode {
    /// Whether it changes results that it has given.
    pub fn is_updating(&self) -> bool {
        self.emit != EmitMode::OnWindowClose || self.allowed_lateness_us > 0
    }

    /// Whether pre-aggregated parts give the same result as all rows at once, to the last digit.
    pub fn has_exact_parts(&self) -> bool {
        let is_assigned = matches!(self.window, WindowSource::Assign { .. });
        let all_exact = self.aggregates.iter().all(|call| !call.order_sensitive && !call.inexact);
        is_assigned && all_exact && !self.is_updating()
    }
}

/// How long state of a key is kept that no row changes: `SET 'state.ttl'`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateTtl {
    /// Microseconds, > 0.
    pub us: i64,
    /// What tells how long it is.
    pub by: TtlClock,
}

/// What a time to live goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TtlClock {
    /// Event time: state is kept until the watermark has passed the time of the last row.
    EventTime {
        /// The time attribute's column in the input; where it has none, a row's time is the watermark just
        /// before it.
        time: Option<usize>,
    },
    /// The job's clock.
    Clock,
}

/// Part of a two-phase aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggregatePhase {
    /// Rows in, results out.
    Single,
    /// Rows in, per batch the accumulators' states of each slice out, before the exchange.
    /// Output columns: those of `plan::local_schema`.
    Local,
    /// States in (the output of `Local`), results out. `keys`, filters and arguments of this node
    /// are those of the local one and are not evaluated again.
    Final,
}

/// See [`Operation::Expand`]. Output columns: those of the input, the keys with NULLs, the number of the set.
#[derive(Debug, Clone)]
pub struct ExpandNode {
    /// The keys of all sets.
    pub keys: Vec<usize>,
    /// For each set, which of the keys are NULL in it.
    pub sets: Vec<Vec<bool>>,
}

/// See [`Operation::GroupChanges`]. Output columns: the keys, then the aggregates.
#[derive(Debug, Clone)]
pub struct GroupChangesNode {
    /// Group keys; none: all rows are one group.
    pub keys: Vec<usize>,
    /// Values of the last key whose group is of all rows, and there without any.
    pub whole: Vec<u64>,
    /// What to compute.
    pub aggregates: Vec<AggregateCall>,
    /// How long groups are kept that no row changes.
    pub ttl: Option<StateTtl>,
}

/// Aggregates the rows of a changelog per window and key; what is true when a window closes is final.
///
/// Output columns: `window_start`, `window_end`, `window_time`, the keys, then the aggregates.
#[derive(Debug, Clone)]
pub struct WindowChangesNode {
    /// The rows' windows.
    pub bounds: WindowBounds,
    /// The time attribute's step.
    pub unit: TimeUnit,
    /// The zone whose wall clock the windows were cut by.
    pub zone: Option<Tz>,
    /// Group keys; may be none.
    pub keys: Vec<usize>,
    /// What to compute.
    pub aggregates: Vec<AggregateCall>,
}

/// Joins the rows of two inputs that are in the same window, when it closes; without windows all rows of
/// bounded inputs, at their end.
///
/// Output columns: those of the first input, then, but for `Semi` and `Anti`, those of the second.
#[derive(Debug, Clone)]
pub struct WindowJoinNode {
    /// Which rows come out.
    pub kind: JoinKind,
    /// Each input's columns of `window_start` and `window_end`.
    pub windows: Option<[WindowBounds; 2]>,
    /// The time attributes' step.
    pub unit: TimeUnit,
    /// The zone whose wall clock the windows were cut by.
    pub zone: Option<Tz>,
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
}

/// The columns of a window's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowBounds {
    /// Column of `window_start`.
    pub start: usize,
    /// Column of `window_end`.
    pub end: usize,
}

/// Which rows a join gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs.
    Inner,
    /// Pairs, and rows of the first input without one.
    Left,
    /// Pairs, and rows of the second input without one.
    Right,
    /// Pairs, and rows of both inputs without one.
    Full,
    /// Rows of the first input that have a pair.
    Semi,
    /// Rows of the first input that have none.
    Anti,
}

impl JoinKind {
    /// Whether rows of the first input are in the result though they have no pair.
    pub fn keeps_first(self) -> bool {
        matches!(self, Self::Left | Self::Full | Self::Anti)
    }

    /// Whether rows of the second input are in the result though they have no pair.
    pub fn keeps_second(self) -> bool {
        matches!(self, Self::Right | Self::Full)
    }

    /// Whether pairs come out, and not rows of the first input alone.
    pub fn gives_pairs(self) -> bool {
        !matches!(self, Self::Semi | Self::Anti)
    }
}

/// See [`Operation::Normalize`].
#[derive(Debug, Clone)]
pub struct NormalizeNode {
    /// The columns of the PRIMARY KEY.
    pub key: Vec<usize>,
}

/// See [`Operation::Unnest`]. Output: the input's columns, then the item.
#[derive(Debug, Clone, Copy)]
pub struct UnnestNode {
    /// The column of the array.
    pub column: usize,
    /// A row whose array has no items comes once, with NULL.
    pub keeps_empty: bool,
}

/// How rows are spread over the subtasks of the next node.
#[derive(Debug, Clone)]
pub enum Distribution {
    /// By the hash of these columns of the input.
    Hash(Vec<usize>),
    /// All to one subtask.
    Single,
}

/// See [`Operation::TemporalSort`]. Ties keep arrival order, then `rest` decides.
#[derive(Debug, Clone)]
pub struct TemporalSortNode {
    /// The time attribute's column.
    pub time: usize,
    /// The time attribute's step.
    pub unit: TimeUnit,
    /// Further columns of ORDER BY, after the time.
    pub rest: Vec<SortKey>,
}

/// A column of ORDER BY.
#[derive(Debug, Clone)]
pub struct SortKey {
    /// Over the input.
    pub expr: ExprRef,
    /// `DESC`.
    pub descending: bool,
    /// `NULLS FIRST`.
    pub nulls_first: bool,
}

/// See [`Operation::Sort`].
#[derive(Debug, Clone)]
pub struct SortNode {
    /// ORDER BY.
    pub keys: Vec<SortKey>,
    /// `LIMIT`, if it stands right above.
    pub fetch: Option<usize>,
}

/// See [`Operation::Limit`].
#[derive(Debug, Clone, Copy)]
pub struct LimitNode {
    /// `OFFSET`.
    pub skip: usize,
    /// `LIMIT`.
    pub fetch: Option<usize>,
}

/// See [`Operation::LateRows`].
#[derive(Debug, Clone)]
pub struct LateRowsNode {
    /// The node whose late rows these are.
    pub of: NodeId,
    /// What the late rows call it.
    pub operator: String,
}

/// See [`Operation::Sink`]. The input's columns are those of the target, in its order.
#[derive(Debug, Clone)]
pub struct SinkNode {
    /// Where the rows go.
    pub target: SinkTarget,
    /// The old form of a row that changes is left out: the table finds it by its PRIMARY KEY.
    pub upsert: bool,
}

/// Where a sink's rows go.
#[derive(Debug, Clone)]
pub enum SinkTarget {
    /// To the caller: a SELECT.
    Result,
    /// To a table: an INSERT INTO. Written columns are the table's physical ones and its
    /// metadata columns that are not virtual.
    Table(Arc<Table>),
}
