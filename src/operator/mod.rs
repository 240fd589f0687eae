//! Operators: synchronous state machines over Arrow batches, one a file.
//!
//! Invariant: no await, no clock, no lock, no channel; what an operator does is a function of what
//! it was given, row by row, never of how the rows were cut into batches.

mod aggregate;
mod calc;
#[cfg(any(test, debug_assertions))]
mod checked;
pub(crate) mod evaluate;
mod expand;
mod expiry;
mod group_changes;
mod group_keys;
mod in_time;
mod join;
mod keys;
pub(crate) mod late;
mod limit;
mod normalize;
mod over;
mod pattern;
mod sort;
mod spill;
pub(crate) mod spread;
mod state;
mod store;
mod temporal_sort;
#[cfg(test)]
mod testing;
mod top_n;
mod unnest;
mod value_sets;
mod window;
mod window_changes;
mod window_rows;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::error::Error;
use crate::plan::{Operation, PlanNode, WindowKind};
use crate::stream::{StreamBatch, StreamElement, Watermark};

pub(crate) use join::LookupTable;
pub use spill::{SpillStore, Spilled, SpilledRows};
pub use state::{OperatorState, StateReader, StateWriter};
pub(crate) use state::{read_table, write_table};

/// Rows of a result batch at most.
const BATCH_ROWS: usize = 8192;

/// The operator of a plan node. `input` is the schema of its input.
///
/// In debug builds the operator watches itself: schema, watermarks, nothing after the end, and that
/// no row is lost without a trace.
///
/// # Errors
/// `P002` if this version can't run it; an internal error for sources, exchanges and sinks, which
/// are the runtime's.
pub fn create(node: &PlanNode, input: &SchemaRef) -> Result<Box<dyn Operator>, Error> {
    let operator = plain(node, input)?;
    #[cfg(any(test, debug_assertions))]
    let operator: Box<dyn Operator> = {
        let (node, input) = (node.clone(), Arc::clone(input));
        let schema = Arc::clone(&node.schema);
        Box::new(checked::Checked::new(operator, &schema, move || plain(&node, &input)))
    };
    Ok(operator)
}

fn plain(node: &PlanNode, input: &SchemaRef) -> Result<Box<dyn Operator>, Error> {
    let schema = &node.schema;
    let late = node.late.as_ref().map(late::LateRows::new);
    let late_of_two = || node.late.as_ref().map(late::LateRows::of_two);
    let operator: Box<dyn Operator> = match &node.operation {
        Operation::Calc(calc) => Box::new(calc::Calc::new(calc, schema)),
        Operation::WindowRows(rows) if matches!(rows.window.kind, WindowKind::Session { .. }) => {
            Box::new(window::SessionRows::try_new(rows, schema, input, late)?)
        }
        Operation::WindowRows(rows) => Box::new(window_rows::WindowRows::try_new(rows, schema, late)?),
        Operation::WindowAggregate(aggregate) => window::create(aggregate, schema, input, late)?,
        Operation::WindowJoin(join) => Box::new(join::WindowJoin::try_new(join, schema, late_of_two())?),
        Operation::IntervalJoin(join) => Box::new(join::IntervalJoin::try_new(join, schema, late_of_two())?),
        Operation::TemporalJoin(join) => Box::new(join::TemporalJoin::try_new(join, schema, late_of_two())?),
        Operation::RegularJoin(join) => Box::new(join::RegularJoin::try_new(join, schema)?),
        Operation::Expand(expand) => Box::new(expand::Expand::try_new(expand, schema)?),
        Operation::GroupChanges(group) => {
            Box::new(group_changes::GroupChanges::try_new(group, schema, input)?)
        }
        Operation::WindowChanges(group) => {
            Box::new(window_changes::WindowChanges::try_new(group, schema, input, late)?)
        }
        Operation::Normalize(normalize) => Box::new(normalize::Normalize::try_new(normalize, schema)?),
        Operation::Over(over) => over::create(over, schema, input, late)?,
        Operation::TopN(top) => Box::new(top_n::TopN::try_new(top, schema, input, late)?),
        Operation::MatchRecognize(pattern) => {
            Box::new(pattern::MatchRecognize::try_new(pattern, schema, input, late)?)
        }
        Operation::Unnest(unnest) => Box::new(unnest::Unnest::new(unnest, schema)),
        Operation::TemporalSort(sort) => Box::new(temporal_sort::TemporalSort::new(sort, schema, late)),
        Operation::Sort(sort) => Box::new(sort::Sort::new(sort, schema)),
        Operation::Limit(limit) => Box::new(limit::Limit::new(limit)),
        Operation::Source(_)
        | Operation::Values(_)
        | Operation::Union
        | Operation::LookupJoin(_)
        | Operation::Exchange(_)
        | Operation::LateRows(_)
        | Operation::Sink(_) => {
            return Err(Error::internal("operator", "a node of the runtime is no operator"));
        }
    };
    Ok(operator)
}

/// The operator of a lookup join, whose table was read.
///
/// # Errors
/// `P002` for keys of types that can't be compared.
pub(crate) fn create_lookup(
    node: &PlanNode,
    input: &SchemaRef,
    table: Arc<LookupTable>,
) -> Result<Box<dyn Operator>, Error> {
    let Operation::LookupJoin(join) = &node.operation else {
        return Err(Error::internal("operator", "a table for a node that looks nothing up"));
    };
    let operator: Box<dyn Operator> =
        Box::new(join::LookupJoin::try_new(join, &node.schema, input, Arc::clone(&table))?);
    #[cfg(any(test, debug_assertions))]
    let operator: Box<dyn Operator> = {
        let (join, schema, input) = (join.clone(), Arc::clone(&node.schema), Arc::clone(input));
        let again = move || -> Result<Box<dyn Operator>, Error> {
            Ok(Box::new(join::LookupJoin::try_new(&join, &schema, &input, Arc::clone(&table))?))
        };
        Box::new(checked::Checked::new(operator, &node.schema, again))
    };
    Ok(operator)
}

/// A state machine between streams.
pub trait Operator: Send {
    /// What EXPLAIN and errors call it.
    fn name(&self) -> &'static str;

    /// Takes rows. `batch.running` tells the watermark before each row.
    ///
    /// # Errors
    /// `R002` if an expression fails on a row.
    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error>;

    /// Takes rows of the second input, where there are two. Between two watermarks the inputs' rows
    /// come in any order: only their running watermarks tell which was first.
    ///
    /// # Errors
    /// `R002` if an expression fails on a row.
    fn process_second(&mut self, _batch: StreamBatch, _out: &mut Output) -> Result<(), Error> {
        Err(Error::internal(self.name(), "it has no second input"))
    }

    /// Event time has come to `watermark`. Forwards it after what it releases.
    ///
    /// # Errors
    /// `R002` if an expression fails on a row that is released.
    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        out.watermark(watermark);
        Ok(())
    }

    /// The stream starts at `now_us`: processing time, microseconds of the job's clock.
    fn open(&mut self, _now_us: i64) {}

    /// When it is to be woken next, processing time in microseconds; `None`: never.
    fn next_timer(&self) -> Option<i64> {
        None
    }

    /// Processing time has come to `now_us`, at or after what [`Operator::next_timer`] said. Afterwards
    /// the next timer is later than that.
    ///
    /// # Errors
    /// `R002` if an expression fails on a row that is released.
    fn process_timer(&mut self, _now_us: i64, _out: &mut Output) -> Result<(), Error> {
        Ok(())
    }

    /// The lowest watermark that makes it give something, of those that have not come; `None`: none, as it
    /// is now.
    fn next_watermark(&self) -> Option<i64> {
        None
    }

    /// A watermark that lets it give no more at once than it has to, if it has put state away; `None`: any.
    fn next_piece(&self) -> Option<i64> {
        self.next_watermark()
    }

    /// The input has ended; `Watermark::MAX` came before. Releases what is left.
    ///
    /// # Errors
    /// `R002` if an expression fails on a row that is released.
    fn finish(&mut self, _out: &mut Output) -> Result<(), Error> {
        Ok(())
    }

    /// Whether it has more to give for the last call, that of the end, too: one that gives many rows for a few gives them piece by piece, so that
    /// not all of them are in memory at once, and it can be stopped. Nothing but [`Operator::go_on`] is called then.
    fn is_at_work(&self) -> bool {
        false
    }

    /// Gives the next piece.
    ///
    /// # Errors
    /// `R002` if an expression fails on a row.
    fn go_on(&mut self, _out: &mut Output) -> Result<(), Error> {
        Ok(())
    }

    /// Whether it will not use another row (a LIMIT that is full): the job may stop its inputs.
    fn is_satisfied(&self) -> bool {
        false
    }

    /// The windows that are open now, those that close first; `most` of them. With a filter those of
    /// groups with that key; it may have to look at all keys. What it gives afterwards is the same.
    ///
    /// # Errors
    /// An internal error if keys can't be shown.
    fn open_windows(&mut self, _most: usize, _of: Option<&KeyFilter>) -> Result<Vec<OpenWindow>, Error> {
        Ok(Vec::new())
    }

    /// Hands on all that it keeps of the rows so far, between two calls. It goes on afterwards as if it had not been
    /// asked.
    ///
    /// # Errors
    /// `P002` if it keeps what can't be written: an aggregate of the program's own.
    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error>;

    /// Takes up what it, or subtasks that it replaces, kept: called once, after [`Operator::open`] and before all else. What it does
    /// then is what they would have done with its keys. `counts` are those that it had; it sets how many rows it
    /// holds.
    ///
    /// # Errors
    /// `K002` if the state does not fit together.
    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error>;

    /// Puts what it will not need soon away, until that gave up `wanted` bytes of memory or there is no more of it; the
    /// bytes. `usize::MAX`: all that it can, needed soon or not. What it gives afterwards is the same.
    ///
    /// # Errors
    /// `F003` if there is no room for it.
    fn spill(&mut self, _wanted: usize, _store: &dyn SpillStore) -> Result<usize, Error> {
        Ok(0)
    }

    /// Bytes that it has put away now.
    fn spilled(&self) -> u64 {
        0
    }

    /// Rows, keys and bytes that it keeps now.
    fn state(&self) -> StateSize {
        StateSize::default()
    }
}

/// What an operator keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateSize {
    /// Open windows, slices or sessions.
    pub windows: usize,
    /// Groups or buffered rows.
    pub rows: usize,
    /// Memory in bytes, estimated.
    pub bytes: usize,
}

/// What is asked of open windows: which have groups with this key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFilter {
    /// The key, as the output of the aggregation names it.
    pub column: String,
    /// Its value as text.
    pub value: String,
}

/// A window that has rows and waits for event time to pass its end. Microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenWindow {
    /// Its start, on the clock that cuts windows.
    pub start: i64,
    /// Its end, on the clock that cuts windows.
    pub end: i64,
    /// The watermark that releases it, UTC.
    pub fires_at: i64,
    /// Groups that it has now, those apart that it shares with windows before it.
    pub groups: usize,
    /// Rows of these groups, where they are known: not behind an exchange of states.
    pub rows: Option<u64>,
    /// It has given its results, and takes late rows until `fires_at`: `ALLOW LATENESS`.
    pub is_fired: bool,
    /// Whose session it is: the values of PARTITION BY.
    pub key: Option<String>,
}

/// What became of the rows that an operator took. `rows in = used + late + null_time + future +
/// filtered + held` at all times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Went into the result.
    pub used: u64,
    /// Late for all of their windows.
    pub late: u64,
    /// Without event time.
    pub null_time: u64,
    /// Too far ahead.
    pub future: u64,
    /// Removed by a condition or a limit.
    pub filtered: u64,
    /// Waiting.
    pub held: u64,
    /// Of those used: late for some of their windows. No term of the sum.
    pub partly_late: u64,
}

impl RowCounts {
    /// Whether they say what became of each of so many rows.
    pub fn account_for(&self, rows_in: u64) -> bool {
        self.used + self.late + self.null_time + self.future + self.filtered + self.held == rows_in
    }

    /// Adds those of another subtask.
    pub fn add(&mut self, more: &Self) {
        self.used += more.used;
        self.late += more.late;
        self.null_time += more.null_time;
        self.future += more.future;
        self.filtered += more.filtered;
        self.held += more.held;
        self.partly_late += more.partly_late;
    }
}

/// Collects what an operator gives.
#[derive(Debug, Default)]
pub struct Output {
    elements: Vec<StreamElement>,
    late: Vec<StreamBatch>,
    /// What became of the rows; the operator adds, the runtime reads. `held` is a level, the
    /// others only grow.
    pub counts: RowCounts,
}

impl Output {
    /// Gives rows; an empty batch is dropped.
    pub fn batch(&mut self, batch: StreamBatch) {
        if batch.num_rows() > 0 {
            self.elements.push(StreamElement::Batch(batch));
        }
    }

    /// Gives a watermark.
    pub fn watermark(&mut self, watermark: Watermark) {
        self.elements.push(StreamElement::Watermark(watermark));
    }

    /// Gives rows of the second output: those that the operator can't use, see
    /// [`LateOutput`](crate::plan::LateOutput).
    pub fn late(&mut self, batch: StreamBatch) {
        self.late.push(batch);
    }

    /// Rows that were given since they were last taken.
    pub(crate) fn rows(&self) -> u64 {
        let rows = |element: &StreamElement| match element {
            StreamElement::Batch(batch) => batch.num_rows() as u64,
            StreamElement::Watermark(_)
            | StreamElement::Status(_)
            | StreamElement::Latency(_)
            | StreamElement::End => 0,
        };
        self.elements.iter().map(rows).sum()
    }

    /// Takes the rows of the second output that were given since the last call, in order.
    pub fn drain_late(&mut self) -> std::vec::Drain<'_, StreamBatch> {
        self.late.drain(..)
    }

    /// Takes what was given since the last call, in order.
    pub fn drain(&mut self) -> std::vec::Drain<'_, StreamElement> {
        self.elements.drain(..)
    }
}
