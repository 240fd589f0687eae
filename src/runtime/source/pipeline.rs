//! One split: read, compute columns, make event time. Runs on a reader thread.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, BooleanArray, StringViewArray};
use arrow::buffer::NullBuffer;
use arrow::compute::{filter_record_batch, not};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::super::channel::lock;
use super::super::measure::DisorderProbe;
use super::super::metrics::SourceCounters;
use super::batch_of;
use super::board::{SplitCell, SplitState};
use super::idle::TimerMark;
use super::rejects::Rejects;
use super::stamp::{STEP_US, Stamps};
use super::watermark::{Progress, WatermarkRule};
use crate::catalog::NullTime;
use crate::connector::{Lines, Position, Read, SplitBatch, SplitReader};
use crate::error::{Error, code};
use crate::operator::evaluate::evaluate;
use crate::plan::{ExprRef, LateOutput, PlanNode, SourceNode, SourceWatermark};
use crate::stream::{
    Clock, RowKind, RowKinds, RunningWatermark, StreamBatch, StreamElement, StreamStatus, Watermark,
    event_times, micros,
};

/// What all splits of a source have in common.
pub(in super::super) struct SourceShape {
    table: String,
    output: Vec<ExprRef>,
    schema: SchemaRef,
    time: Option<(SourceWatermark, WatermarkRule)>,
    /// `MAX AHEAD`, where it counts.
    max_ahead_us: Option<i64>,
    /// Time between two moves of the watermark, if it does not move with each row.
    tick_us: Option<i64>,
    clock: Arc<dyn Clock>,
    stamps: Stamps,
    last_arrival: Mutex<Option<Arrival>>,
    /// Two more columns tell the table and the split of a row.
    with_origin: bool,
    /// The second output: rows that can't be read, and those from the future.
    late: Option<Arc<LateOutput>>,
    /// How far rows are out of order is looked at.
    is_measured: bool,
    /// Reads tell where they leave their split.
    with_marks: bool,
    pub(in super::super) counters: Arc<SourceCounters>,
}

/// When a source's last row came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) wall_us: i64,
    pub(super) elapsed_us: i64,
}

impl SourceShape {
    /// `plan_node` is the node of the source.
    pub(in super::super) fn try_new(
        node: &SourceNode,
        plan_node: &PlanNode,
        clock: Arc<dyn Clock>,
        watermark_interval: Duration,
    ) -> Result<Self, Error> {
        let time = match &node.watermark {
            None => None,
            Some(spec) => {
                let time_type = spec
                    .time
                    .data_type(&node.read_schema)
                    .map_err(|error| Error::internal("source", error))?;
                Some((spec.clone(), WatermarkRule::of(spec, &time_type)))
            }
        };
        Ok(Self {
            table: node.table.name.clone(),
            output: node.output.clone(),
            schema: Arc::clone(&plan_node.schema),
            tick_us: node
                .watermark
                .as_ref()
                .filter(|spec| spec.periodic)
                .map(|_| micros(watermark_interval).max(1)),
            max_ahead_us: node.watermark.as_ref().and_then(|spec| spec.max_ahead_us),
            time,
            clock,
            stamps: Stamps::of(node),
            last_arrival: Mutex::new(None),
            with_origin: node.with_origin,
            late: plan_node.late.clone(),
            is_measured: true,
            with_marks: false,
            counters: Arc::default(),
        })
    }

    /// The same, and whether it looks how far rows are out of order.
    pub(in super::super) fn measured(self, is_measured: bool) -> Self {
        Self { is_measured, ..self }
    }

    /// The same, and whether reads tell where they leave their split.
    pub(in super::super) fn with_marks(self, with_marks: bool) -> Self {
        Self { with_marks, ..self }
    }

    /// Whether the source makes watermarks.
    pub(in super::super) fn has_time(&self) -> bool {
        self.time.is_some()
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The watermark of a source without rows, if time goes by the clock.
    pub(super) fn processing_watermark(&self) -> Option<Watermark> {
        let (spec, _) = self.time.as_ref()?;
        spec.processing.then(|| Watermark(self.stamps.processing_us(self.clock.wall_us()) - STEP_US))
    }

    /// How far the watermark lies behind the clock where it moves with it, microseconds.
    pub(super) fn clock_lag_us(&self) -> Option<i64> {
        let (spec, _) = self.time.as_ref()?;
        if spec.processing {
            return Some(STEP_US);
        }
        let (delay_us, arrival) = (self.advance_delay_us()?, self.last_arrival()?);
        // A clock that was set since is not followed.
        let shown_us = arrival.wall_us.saturating_add(self.clock.elapsed_us() - arrival.elapsed_us);
        Some(self.clock.wall_us().saturating_sub(shown_us).saturating_add(delay_us))
    }

    /// `IDLE AFTER`, microseconds.
    pub(super) fn idle_after_us(&self) -> Option<i64> {
        self.time.as_ref().and_then(|(spec, _)| spec.idle_after_us)
    }

    /// For `THEN ADVANCE`: how far the watermark lies behind the times of rows.
    pub(super) fn advance_delay_us(&self) -> Option<i64> {
        match &self.time {
            Some((spec, WatermarkRule::Delay(delay_us))) if spec.then_advance => Some(*delay_us),
            _ => None,
        }
    }

    /// The last row of any split came at this time, by the wall clock, in an earlier run.
    fn restore_arrival(&self, wall_us: i64) {
        // The machine's clock may have been set back meanwhile.
        let since_us = self.clock.wall_us().saturating_sub(wall_us).max(0);
        let arrival = Arrival { wall_us, elapsed_us: self.clock.elapsed_us().saturating_sub(since_us) };
        lock(&self.last_arrival).get_or_insert(arrival);
    }

    /// When the last row of any split came.
    pub(super) fn last_arrival(&self) -> Option<Arrival> {
        *lock(&self.last_arrival)
    }
}

/// What was read of a split at once.
pub(super) struct SplitRead {
    /// Rows, then the watermark after them; at last `End`.
    pub(super) elements: Vec<StreamElement>,
    /// Rows that are not passed on, in the columns of the source's second output.
    pub(super) rejected: Vec<StreamBatch>,
    /// How the split is left, where that is asked for.
    pub(super) mark: Option<Box<SplitMark>>,
}

impl SplitRead {
    /// Only time goes on.
    pub(super) fn is_quiet(&self) -> bool {
        self.rejected.is_empty() && matches!(self.elements.as_slice(), [StreamElement::Watermark(_)])
    }

    pub(super) fn of(element: StreamElement) -> Self {
        Self { elements: vec![element], rejected: Vec::new(), mark: None }
    }
}

/// How a split is left: what a checkpoint has of it.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct SplitMark {
    pub(in super::super) split: String,
    /// `None`: at its start.
    pub(in super::super) position: Option<Position>,
    /// Behind the position rows up to this line were used, and are to be dropped.
    pub(in super::super) used_to: Option<u64>,
    pub(in super::super) last_line: u64,
    /// How far its rows have come in event time, and what was said of that.
    pub(in super::super) reached: i64,
    pub(in super::super) said: i64,
    pub(in super::super) has_spoken: bool,
    pub(in super::super) counts: SplitCounts,
    /// Its time as a quiet split, where that is told.
    pub(in super::super) timer: Option<TimerMark>,
    /// When its watermark moves next, where that goes by ticks.
    pub(in super::super) next_tick_us: Option<i64>,
    /// It was told idle.
    pub(in super::super) is_idle: bool,
    /// Its bytes in all, where they are known from its start: a file that is read once.
    pub(in super::super) size: Option<u64>,
    /// When the last row of the whole source came, by the wall clock.
    pub(in super::super) arrival_us: Option<i64>,
}

/// What was read of a split.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct SplitCounts {
    pub(in super::super) rows: u64,
    pub(in super::super) malformed: u64,
    pub(in super::super) null_time: u64,
    pub(in super::super) future: u64,
}

impl SplitCounts {
    fn add_to(self, counters: &SourceCounters) {
        counters.rows_read.fetch_add(self.rows, Ordering::Relaxed);
        counters.malformed.fetch_add(self.malformed, Ordering::Relaxed);
        counters.null_time.fetch_add(self.null_time, Ordering::Relaxed);
        counters.future.fetch_add(self.future, Ordering::Relaxed);
    }
}

/// A split, and how far its event time has come.
pub(in super::super) struct SplitPipeline {
    reader: Box<dyn SplitReader>,
    shape: Arc<SourceShape>,
    watermark: Progress,
    bytes_seen: u64,
    truncations_seen: u64,
    /// It gave a row.
    has_spoken: bool,
    cell: Arc<SplitCell>,
    disorder: DisorderProbe,
    /// What it has read, in all.
    counts: SplitCounts,
    last_line: u64,
    /// Rows up to this line were used before a restart, and are dropped.
    used_to: Option<u64>,
    /// An earlier run has read all of it.
    is_over: bool,
    /// Its time as a quiet split when an earlier run left it.
    timer: Option<TimerMark>,
    /// See [`SplitMark::size`].
    size: Option<u64>,
}

impl Drop for SplitPipeline {
    /// Nobody waits for a split that is not read any more.
    fn drop(&mut self) {
        self.cell.set(SplitState::Finished);
    }
}

/// What a read of a split came to.
pub(super) enum Step {
    /// Rows or the end.
    Read(SplitRead),
    /// Nothing: this is why.
    Quiet(SplitState),
}

impl SplitPipeline {
    pub(in super::super) fn new(reader: Box<dyn SplitReader>, shape: Arc<SourceShape>) -> Self {
        let cell = shape.counters.splits.add(reader.name(), &shape.clock);
        let watermark = Progress::new(shape.tick_us, shape.clock.elapsed_us());
        let size = reader.progress().1;
        Self {
            reader,
            shape,
            watermark,
            bytes_seen: 0,
            truncations_seen: 0,
            has_spoken: false,
            cell,
            disorder: DisorderProbe::default(),
            counts: SplitCounts::default(),
            last_line: 0,
            used_to: None,
            is_over: false,
            timer: None,
            size,
        }
    }

    /// The same, where a split was left by an earlier run.
    ///
    /// # Errors
    /// Those of [`SplitReader::seek`].
    pub(super) fn left_at(mut self, mark: &SplitMark, shift_us: i64) -> Result<Self, Error> {
        if let Some(position) = &mark.position {
            self.reader.seek(position)?;
        }
        self.used_to = mark.used_to;
        let next_tick_us = mark.next_tick_us.map(|due_us| due_us.saturating_add(shift_us));
        self.watermark.restore(mark.reached, mark.said, next_tick_us);
        self.cell.set_watermark(mark.said);
        self.cell.set_idle(mark.is_idle);
        self.has_spoken = mark.has_spoken;
        self.last_line = mark.last_line;
        self.counts = mark.counts;
        self.bytes_seen = self.reader.progress().0;
        self.timer = mark.timer.map(|timer| timer.later_by(shift_us));
        if let Some(wall_us) = mark.arrival_us {
            self.shape.restore_arrival(wall_us);
        }
        mark.counts.add_to(&self.shape.counters);
        Ok(self)
    }

    /// The same, where an earlier run has read all of it.
    pub(super) fn that_is_over(mut self, mark: &SplitMark) -> Self {
        self.watermark.restore(mark.reached, mark.said, None);
        self.cell.set_watermark(mark.said);
        self.shape.counters.splits.finish(&self.cell);
        (self.has_spoken, self.last_line, self.counts) = (mark.has_spoken, mark.last_line, mark.counts);
        mark.counts.add_to(&self.shape.counters);
        (self.is_over, self.size) = (true, mark.size);
        self
    }

    /// Whether an earlier run has read all of it.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The name and the size of a file that an earlier run has read, to know it again.
    pub(super) fn finished_file(&self) -> Option<(String, u64)> {
        Some((self.reader.name().to_owned(), self.size.filter(|_| self.is_over)?))
    }

    /// How it is left now.
    fn mark(&self) -> SplitMark {
        let position = self.reader.position();
        let is_exact = position.as_ref().is_some_and(Position::is_exact);
        let used_to = self.used_to.or((!is_exact && self.last_line > 0).then_some(self.last_line));
        SplitMark {
            split: self.reader.name().to_owned(),
            position,
            used_to,
            last_line: self.last_line,
            reached: self.watermark.reached(),
            said: self.watermark.said(),
            has_spoken: self.has_spoken,
            counts: self.counts,
            timer: self.timer,
            next_tick_us: self.watermark.next_tick_us(),
            is_idle: self.cell.is_idle(),
            size: self.size,
            arrival_us: self.shape.last_arrival().map(|arrival| arrival.wall_us),
        }
    }

    /// How it is left before anything was read.
    pub(super) fn first_mark(&self) -> Option<Box<SplitMark>> {
        self.shape.with_marks.then(|| Box::new(self.mark()))
    }

    /// What the reader has to give behind the rows that were used before a restart.
    fn read(&mut self) -> Result<Read, Error> {
        loop {
            let read = self.reader.next()?;
            let Some(last) = self.used_to else { return Ok(read) };
            match read {
                Read::Rows(batch) => {
                    let is_last = batch.last_line() >= last;
                    let rest = batch.behind(last);
                    if is_last {
                        self.used_to = None;
                    }
                    if let Some(rest) = rest {
                        return Ok(Read::Rows(rest));
                    }
                }
                // They were heard.
                Read::Watermark(_) | Read::Idle | Read::Active => {}
                Read::End => {
                    let name = self.reader.name();
                    let message =
                        format!("{name}: it ends before line {last}, up to which it was read before");
                    return Err(Error::run(code::FOREIGN_CHECKPOINT, message)
                        .hint("Restore what was there, or begin anew with another folder for checkpoints."));
                }
                Read::Empty | Read::Disconnected => return Ok(read),
            }
        }
    }

    pub(super) fn cell(&self) -> &Arc<SplitCell> {
        &self.cell
    }

    /// How far its rows have come in event time.
    pub(super) fn reached(&self) -> i64 {
        self.watermark.reached()
    }

    /// When its watermark moves by itself.
    pub(super) fn due_us(&self) -> Option<i64> {
        self.watermark.due_us()
    }

    /// The watermark, if it moves with the clock and has moved now.
    pub(super) fn tick(&mut self) -> Option<SplitRead> {
        self.time_goes_on().then(|| self.moved_watermark())
    }

    /// Bytes of the split in all, where known.
    pub(in super::super) fn bytes_total(&self) -> Option<u64> {
        self.reader.progress().1
    }

    /// Reads on.
    pub(super) fn next(&mut self) -> Result<Step, Error> {
        let mut step = self.step()?;
        if let Step::Read(read) = &mut step {
            read.mark = self.first_mark();
        }
        Ok(step)
    }

    fn step(&mut self) -> Result<Step, Error> {
        let begun_us = self.shape.clock.elapsed_us();
        let read = self.read()?;
        let arrived = Instant::now();
        let bytes = self.reader.progress().0;
        let counters = &self.shape.counters;
        counters.bytes_read.fetch_add(bytes.saturating_sub(self.bytes_seen), Ordering::Relaxed);
        self.bytes_seen = bytes;
        let truncations = self.reader.truncations();
        counters.truncations.fetch_add(truncations - self.truncations_seen, Ordering::Relaxed);
        self.truncations_seen = truncations;
        let SplitBatch { rows, lines, rejected, kinds } = match read {
            Read::Rows(batch) => {
                self.last_line = self.last_line.max(batch.last_line());
                batch
            }
            Read::Empty | Read::Disconnected if self.time_goes_on() => {
                return Ok(Step::Read(self.moved_watermark()));
            }
            Read::Empty if self.has_spoken => return Ok(Step::Quiet(SplitState::Empty)),
            Read::Empty => return Ok(Step::Quiet(SplitState::NeverSpoke)),
            Read::Disconnected => return Ok(Step::Quiet(SplitState::Disconnected)),
            Read::Watermark(watermark) => return Ok(Step::Read(self.told_watermark(watermark))),
            Read::Idle => return Ok(Step::Read(SplitRead::of(StreamElement::Status(StreamStatus::Idle)))),
            Read::Active => {
                return Ok(Step::Read(SplitRead::of(StreamElement::Status(StreamStatus::Active))));
            }
            Read::End => return Ok(Step::Read(SplitRead::of(StreamElement::End))),
        };
        self.has_spoken = true;
        let total = (rows.num_rows() + rejected.len()) as u64;
        counters.rows_read.fetch_add(total, Ordering::Relaxed);
        self.counts.rows += total;
        self.counts.malformed += rejected.len() as u64;
        let read_us = self.shape.clock.elapsed_us().saturating_sub(begun_us).max(0);
        counters.read_us.fetch_add(read_us.unsigned_abs(), Ordering::Relaxed);
        let mut kept = Vec::new();
        if let Some(rejects) = self.rejects()
            && rejected.iter().any(|row| row.keep)
        {
            kept.push(StreamBatch::inserts(rejects.malformed(&rejected)?, arrived));
        }
        if !rejected.is_empty() {
            counters.reject(self.reader.name(), rejected);
        }
        let wall_us = self.shape.clock.wall_us();
        self.cell.rows_read(total, wall_us);
        if self.shape.advance_delay_us().is_some() {
            let arrival = Arrival { wall_us, elapsed_us: self.shape.clock.elapsed_us() };
            *lock(&self.shape.last_arrival) = Some(arrival);
        }
        let rows = self.shape.stamps.put(rows, wall_us)?;
        let elements = self.prepare(rows, kinds, &lines, arrived, wall_us, &mut kept)?;
        self.cell.set_watermark(self.watermark.said());
        Ok(Step::Read(SplitRead { elements, rejected: kept, mark: None }))
    }

    /// The split says by itself how far its time has come. Without event time that means nothing.
    fn told_watermark(&mut self, watermark: Watermark) -> SplitRead {
        if !self.shape.has_time() || !self.watermark.told(watermark.0) {
            return SplitRead { elements: Vec::new(), rejected: Vec::new(), mark: None };
        }
        self.moved_watermark()
    }

    /// Whether the clock has moved the watermark of a split that has nothing to give.
    fn time_goes_on(&mut self) -> bool {
        match self.shape.processing_watermark() {
            Some(watermark) => self.watermark.told(watermark.0),
            None => self.watermark.tick(self.shape.clock.elapsed_us()),
        }
    }

    fn moved_watermark(&self) -> SplitRead {
        self.cell.set_watermark(self.watermark.said());
        SplitRead::of(StreamElement::Watermark(Watermark(self.watermark.said())))
    }

    /// The second output, where somebody wants it.
    fn rejects(&self) -> Option<Rejects<'_>> {
        let late = self.shape.late.as_ref()?;
        Some(Rejects { late, table: &self.shape.table, split: self.reader.name() })
    }

    fn prepare(
        &mut self,
        rows: RecordBatch,
        kinds: Option<RowKinds>,
        lines: &Lines,
        arrived: Instant,
        wall_us: i64,
        rejected: &mut Vec<StreamBatch>,
    ) -> Result<Vec<StreamElement>, Error> {
        let shape = Arc::clone(&self.shape);
        let Some((spec, rule)) = &shape.time else {
            let rows = self.output(&rows)?;
            return Ok(vec![StreamElement::Batch(StreamBatch {
                kinds,
                ..StreamBatch::inserts(rows, arrived)
            })]);
        };
        let mut rows = rows;
        let time = evaluate(&spec.time, &rows).map_err(|error| self.place(error))?;
        let (mut times, mut nulls) = event_times(time.as_ref())?;
        if let Some(missing) = nulls.as_ref().filter(|nulls| nulls.null_count() > 0) {
            match spec.null_time {
                NullTime::Side => {}
                NullTime::Fail => {
                    let come = kinds.as_ref().map(come);
                    let missed = |row: &usize| {
                        missing.is_null(*row) && come.as_ref().is_none_or(|come| come.is_valid(*row))
                    };
                    if let Some(first) = (0..missing.len()).find(missed) {
                        return Err(self.null_time_error(spec, first, lines));
                    }
                }
                NullTime::Skip => {
                    let dropped = missing.null_count() as u64;
                    self.shape.counters.null_time.fetch_add(dropped, Ordering::Relaxed);
                    self.counts.null_time += dropped;
                    let keep = BooleanArray::new(missing.inner().clone(), None);
                    rows = filter_record_batch(&rows, &keep).map_err(|e| Error::internal("source", e))?;
                    let time = evaluate(&spec.time, &rows)?;
                    (times, nulls) = event_times(time.as_ref())?;
                }
            }
        }
        // Rows from the future, and for each how many rows are passed on before it.
        let mut future = None;
        if let Some(max_ahead_us) = shape.max_ahead_us {
            let latest = wall_us.saturating_add(max_ahead_us);
            let is_future =
                |row: usize| times[row] > latest && nulls.as_ref().is_none_or(|n| n.is_valid(row));
            let keep: BooleanArray = (0..times.len()).map(|row| Some(!is_future(row))).collect();
            let dropped = keep.false_count() as u64;
            if dropped > 0 {
                shape.counters.future.fetch_add(dropped, Ordering::Relaxed);
                self.counts.future += dropped;
                if shape.late.is_some() {
                    let ahead = not(&keep).and_then(|ahead| filter_record_batch(&rows, &ahead));
                    let ahead = self.output(&ahead.map_err(|e| Error::internal("source", e))?)?;
                    let places = keep.values().iter().scan(0, |passed, keep| {
                        *passed += usize::from(keep);
                        Some((!keep).then_some(*passed))
                    });
                    future = Some((ahead, places.flatten().collect::<Vec<usize>>()));
                }
                rows = filter_record_batch(&rows, &keep).map_err(|e| Error::internal("source", e))?;
                let time = evaluate(&spec.time, &rows)?;
                (times, nulls) = event_times(time.as_ref())?;
            }
        }
        let (wanted, wanted_nulls) =
            rule.wanted(&rows, &times, nulls.as_ref()).map_err(|error| self.place(error))?;
        // What a row was before says nothing about time.
        let wanted_nulls = match &kinds {
            None => wanted_nulls,
            Some(kinds) => NullBuffer::union(wanted_nulls.as_ref(), Some(&come(kinds))),
        };
        let ticked = self.watermark.tick(shape.clock.elapsed_us());
        let before = self.watermark.said();
        let delay_us = self.delay_of_rows(rule, nulls.as_ref());
        let (running, moved) = self.watermark.take(&wanted, wanted_nulls.as_ref());
        if let (Some(rejects), Some((ahead, places))) = (self.rejects(), future) {
            let before = |place: &usize| running.get(*place).copied().unwrap_or(self.watermark.said());
            let before: Vec<i64> = places.iter().map(before).collect();
            rejected.push(StreamBatch::inserts(rejects.future(&ahead, &before)?, arrived));
        }
        let seen = &shape.counters.disorder;
        match delay_us {
            _ if !shape.is_measured => {}
            Some(delay_us) => {
                let latest = self.watermark.reached().saturating_add(delay_us);
                self.disorder.look_at(&times, &running, delay_us, latest, seen);
            }
            None => self.disorder.look(&times, nulls.as_ref(), seen),
        }
        if let Some(last) = times.last() {
            self.cell.set_times(*last, self.disorder.latest());
        }
        let batch = StreamBatch {
            rows: self.output(&rows)?,
            kinds,
            running: Some(RunningWatermark::new(running)),
            arrived,
        };
        let mut elements = Vec::with_capacity(2);
        if ticked {
            elements.push(StreamElement::Watermark(Watermark(before)));
        }
        elements.push(StreamElement::Batch(batch));
        if moved {
            elements.push(StreamElement::Watermark(Watermark(self.watermark.said())));
        }
        Ok(elements)
    }

    /// How far the watermark before each row is behind the highest time, if it is made by the rows alone,
    /// moves with each of them, and all of them have a time.
    fn delay_of_rows(&self, rule: &WatermarkRule, nulls: Option<&NullBuffer>) -> Option<i64> {
        let WatermarkRule::Delay(delay_us) = rule else { return None };
        let is_of_rows = self.disorder.latest().saturating_sub(*delay_us) == self.watermark.reached();
        let have_times = nulls.is_none_or(|nulls| nulls.null_count() == 0);
        (is_of_rows && have_times && self.shape.tick_us.is_none()).then_some(*delay_us)
    }

    fn output(&self, rows: &RecordBatch) -> Result<RecordBatch, Error> {
        let columns = self.shape.output.iter().map(|expr| evaluate(expr, rows));
        let mut columns: Vec<ArrayRef> =
            columns.collect::<Result<_, _>>().map_err(|error| self.place(error))?;
        if self.shape.with_origin {
            for name in [self.shape.table.as_str(), self.reader.name()] {
                let names = std::iter::repeat_n(name, rows.num_rows());
                columns.push(Arc::new(StringViewArray::from_iter_values(names)));
            }
        }
        batch_of(&self.shape.schema, columns, rows.num_rows())
    }

    fn place(&self, error: Error) -> Error {
        error.context(format_args!("table \"{}\", {}", self.shape.table, self.reader.name()))
    }

    fn null_time_error(&self, spec: &SourceWatermark, first: usize, lines: &Lines) -> Error {
        Error::run(
            code::NULL_TIME,
            format!(
                "table \"{}\", {} line {}: the event-time column \"{}\" is NULL",
                self.shape.table,
                self.reader.name(),
                lines.of(first),
                spec.column
            ),
        )
        .hint("Set 'scan.watermark.null-time' to 'side' to put such rows to the late rows, or to 'skip'.")
    }
}

/// Valid for each row that comes, not for those that go.
fn come(kinds: &RowKinds) -> NullBuffer {
    let come = |kind: &RowKind| matches!(kind, RowKind::Insert | RowKind::UpdateAfter);
    NullBuffer::from(kinds.values().iter().map(come).collect::<Vec<bool>>())
}
