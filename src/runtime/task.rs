//! A task: it merges its inputs, drives a chain of operators and hands the rows on, one piece of
//! work at a time; [`Task::run`] is the loop of a thread around it. What it keeps, and how it goes on, is in [cut].

mod cut;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) use self::cut::{Inherited, InheritedLink};
use super::channel::{ChannelProbe, Received, Receiver, Sender, Signal};
use super::cut::pause::Pause;
use super::exchange::Outputs;
use super::measure::{Activity, LatencyRecorder, MarkerClock, TaskCells};
use super::memory::{JobMemory, MemoryLimit, Share};
use super::merge::{Inputs, Merge, Merged, Polled};
use super::meter::Meter;
use super::metrics::{OperatorReport, TaskReport};
use super::sink::SinkEnd;
use super::source::SplitMark;
use crate::connector::CancelToken;
use crate::error::Error;
use crate::operator::{Operator, Output, RowCounts};
use crate::plan::NodeId;
use crate::stream::{Clock, LatencyMarker, StreamBatch, StreamElement, Watermark};

/// Longest sleep between two looks at whether the job was cancelled.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// An operator of a chain.
pub(super) struct Link {
    operator: Box<dyn Operator>,
    output: Output,
    report: OperatorReport,
    /// The last watermark that it gave.
    said: Option<Watermark>,
    /// Where its late rows go, if anywhere.
    late: Option<Sender>,
    meter: Meter,
    /// Its part of the memory of all jobs, if somebody limits that.
    share: Option<Share>,
    /// Its input has ended, and it may have more to give.
    ends: bool,
}

/// An operator whose place in a task is not known yet.
pub(super) struct LooseLink {
    node: usize,
    operator: Box<dyn Operator>,
    late: Option<Sender>,
}

impl LooseLink {
    pub(super) fn new(node: usize, operator: Box<dyn Operator>, late: Option<Sender>) -> Self {
        Self { node, operator, late }
    }

    /// The plan's node and the operator's name.
    pub(super) fn facts(&self) -> (usize, &'static str) {
        (self.node, self.operator.name())
    }

    /// The operator at this place of a task.
    pub(super) fn at(self, task: &Arc<TaskCells>, place: usize) -> Link {
        let Self { node, operator, late } = self;
        let report = OperatorReport::new(node, operator.name());
        let meter = Meter::new(task, place);
        Link {
            operator,
            output: Output::default(),
            report,
            said: None,
            late,
            meter,
            share: None,
            ends: false,
        }
    }
}

impl Link {
    /// Tells the operator that the job starts. Whether it wants to be woken some time.
    pub(super) fn open(&mut self, now_us: i64) -> bool {
        self.operator.open(now_us);
        self.operator.next_timer().is_some()
    }

    /// Lets others see what the operator keeps, now and then, and keeps it to the limit.
    fn publish(&mut self) -> Result<(), Error> {
        let size = self.meter.publish(self.operator.as_mut(), false);
        match &mut self.share {
            Some(share) => share.watch(self.operator.as_mut(), size, self.report.rows_in),
            None => Ok(()),
        }
    }
}

/// Has the operators of a job keep to a limit on their memory.
pub(super) fn limit_memory(tasks: &mut [Task], limit: &MemoryLimit) {
    if limit.bytes.is_none() {
        return;
    }
    let memory = JobMemory::new(limit);
    for link in tasks.iter_mut().flat_map(|task| &mut task.chain) {
        link.share = Some(Share::new(&memory, link.report.node));
    }
}

/// Where the chain ends.
pub(super) enum End {
    Outputs(Outputs),
    Sink(SinkEnd, Box<OperatorReport>, Box<Meter>),
}

/// Where a task takes part in checkpoints, and as which one.
pub(super) struct PausePoint {
    pub(super) pause: Arc<Pause>,
    pub(super) task: usize,
}

/// What a piece of work came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worked {
    /// An element was taken and what it gave was handed on.
    Done,
    /// Nothing: those who take the rows don't keep up.
    Full,
    /// Nothing: the inputs have none.
    Waiting,
    /// Nothing, and there will be no more.
    Over,
}

impl End {
    fn has_room(&self) -> bool {
        match self {
            Self::Outputs(outputs) => outputs.have_room(),
            Self::Sink(sink, ..) => sink.has_room(),
        }
    }

    fn is_open(&self) -> bool {
        match self {
            Self::Outputs(outputs) => outputs.are_open(),
            Self::Sink(sink, ..) => sink.is_open(),
        }
    }

    fn accept(&mut self, element: StreamElement) -> Result<(), Error> {
        match self {
            Self::Outputs(outputs) => outputs.send(element),
            Self::Sink(sink, report, meter) => match element {
                StreamElement::Batch(batch) => {
                    let (rows, arrived) = (batch.num_rows() as u64, batch.arrived);
                    report.rows_in += rows;
                    let started = meter.takes(&batch);
                    sink.write(batch)?;
                    report.counts.used += rows;
                    report.rows_out += rows;
                    meter.wrote(started, rows, arrived, &report.counts);
                    Ok(())
                }
                StreamElement::Latency(marker) => {
                    meter.marker(marker);
                    Ok(())
                }
                StreamElement::End => {
                    meter.enter();
                    sink.finish()
                }
                StreamElement::Watermark(watermark) => {
                    meter.hears(watermark);
                    Ok(())
                }
                StreamElement::Status(_) => Ok(()),
            },
        }
    }

    /// Whether something is held back that is to go to others.
    fn holds_back(&self) -> bool {
        match self {
            Self::Outputs(outputs) => outputs.hold_back(),
            Self::Sink(..) => false,
        }
    }

    /// Gives others what is held back.
    fn hand_on(&mut self) -> Result<(), Error> {
        match self {
            Self::Outputs(outputs) => outputs.hand_on(),
            Self::Sink(..) => Ok(()),
        }
    }

    /// When something has been held back for long enough.
    fn due_us(&self) -> Option<i64> {
        match self {
            Self::Outputs(outputs) => outputs.due_us(),
            Self::Sink(..) => None,
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        match self {
            // There is nothing else to do.
            Self::Outputs(outputs) => outputs.hand_on_due(true),
            Self::Sink(sink, _, meter) => {
                meter.enter();
                sink.flush()
            }
        }
    }
}

/// A source's markers: when the next is due, and what they say of where they were made.
pub(super) struct Markers {
    pub(super) clock: MarkerClock,
    pub(super) source: u32,
}

/// Which of the tasks of a plan it is.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    /// The node at which its rows come together.
    pub(super) stage: NodeId,
    /// Which of the tasks there.
    pub(super) subtask: usize,
    /// Of each of its streams, the columns by which rows are spread over these tasks; none: there is one.
    pub(super) keys: Vec<Vec<usize>>,
}

/// See the module.
pub(super) struct Task {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) signal: Arc<Signal>,
    pub(super) input: Merge<Box<dyn Inputs>>,
    pub(super) chain: Vec<Link>,
    pub(super) end: End,
    pub(super) markers: Option<Markers>,
    pub(super) cells: Arc<TaskCells>,
    /// The place of its input in the chain: a source, or before the first operator.
    pub(super) intake: Meter,
    /// The node of the table that it reads.
    pub(super) source: Option<NodeId>,
    /// Its input is a table, not other tasks: its watermarks are those that the rows gave.
    pub(super) reads_table: bool,
    pub(super) flush_interval_us: i64,
    pub(super) progress: TaskProgress,
    /// The time of the operators that want to be woken; `None`: none of them does.
    pub(super) timers: Option<Arc<dyn Clock>>,
    /// Where rows go that the task's source can't read, if anywhere.
    pub(super) rejects: Option<Arc<Sender>>,
    /// The table, if the task writes late rows.
    pub(super) late_table: Option<String>,
}

/// How far a task is.
pub(super) struct TaskProgress {
    /// The last watermark of the merged input before its end.
    watermark: Option<Watermark>,
    /// The last watermark that its operators were given, and the one to which they come yet.
    given: Watermark,
    coming: Option<Watermark>,
    /// By the job's clock.
    flushed_us: i64,
    ended: bool,
    /// Those who take the late rows know that there are no more.
    is_closed: bool,
}

impl TaskProgress {
    /// Of a task that begins now.
    pub(super) fn new(now_us: i64) -> Self {
        let given = Watermark(i64::MIN);
        Self { watermark: None, given, coming: None, flushed_us: now_us, ended: false, is_closed: false }
    }
}

impl Task {
    /// Runs to the end of the input, to the end of interest in the output, or until cancelled.
    pub(super) fn run(
        mut self,
        cancel: &CancelToken,
        pause: Option<&PausePoint>,
    ) -> Result<TaskReport, Error> {
        let ended = self.work(cancel, pause);
        self.end();
        let report = ended.map(|()| self.report())?;
        // Of one that was stopped nobody asks any more, and what its sink has is not to be kept.
        if let Some(point) = pause.filter(|_| !cancel.is_cancelled()) {
            let cut = self.last_cut()?;
            point.pause.leave(point.task, cut, self.take_sink());
        }
        Ok(report)
    }

    fn work(&mut self, cancel: &CancelToken, pause: Option<&PausePoint>) -> Result<(), Error> {
        loop {
            if let Some(point) = pause.filter(|point| point.pause.is_wanted()) {
                self.take_part(point, cancel)?;
            }
            match self.step(cancel)? {
                Worked::Done => {}
                Worked::Full => self.sleep(Activity::BackPressured, LONGEST_SLEEP),
                Worked::Waiting => {
                    self.sleep(Activity::Idle, self.longest_nap());
                    self.keep_to_limit()?;
                }
                Worked::Over => return Ok(()),
            }
        }
    }

    /// Does what a checkpoint wants of it.
    fn take_part(
        &mut self,
        PausePoint { pause, task }: &PausePoint,
        cancel: &CancelToken,
    ) -> Result<(), Error> {
        if pause.is_to_commit(*task) {
            self.commit()?;
            pause.committed(*task);
        }
        if pause.gathers() {
            self.settle(cancel)?;
            let has_worked = pause.exhausts() && self.exhaust(cancel)?;
            if cancel.is_cancelled() {
                return Ok(());
            }
            if self.progress.ended && pause.exhausts() {
                // It leaves, and takes part as one that is over.
                return Ok(());
            }
            self.cells.clock.turn_to(Activity::Idle);
            let mut failure = None;
            let tell = || self.cut().inspect_err(|error| failure = Some(error.clone()));
            pause.take_part(*task, has_worked, tell);
            // Rows that a sink could not make safe are in no later checkpoint either.
            return failure.map_or(Ok(()), Err);
        }
        Ok(())
    }

    /// Has operators put state away for the sake of others.
    fn keep_to_limit(&mut self) -> Result<(), Error> {
        let shares =
            self.chain.iter_mut().filter_map(|link| Some((link.share.as_mut()?, &mut link.operator)));
        for (share, operator) in shares {
            share.watch_idle(operator.as_mut())?;
        }
        Ok(())
    }

    /// From now on the end of the rows only prepares the sink of a table.
    pub(super) fn defer_sink(&mut self) {
        if let End::Sink(sink, ..) = &mut self.end {
            sink.defer();
        }
    }

    /// The sink of a table, if somebody else closes it.
    fn take_sink(&mut self) -> Option<SinkEnd> {
        match &mut self.end {
            End::Sink(sink, ..) if sink.is_deferred() => {
                match std::mem::replace(&mut self.end, End::Outputs(Outputs::none())) {
                    End::Sink(sink, ..) => Some(sink),
                    End::Outputs(_) => None,
                }
            }
            End::Sink(..) | End::Outputs(_) => None,
        }
    }

    /// One piece of work: takes an element, processes it, hands on what it gives. Does not wait.
    pub(super) fn step(&mut self, cancel: &CancelToken) -> Result<Worked, Error> {
        if self.progress.ended || cancel.is_cancelled() || !self.end.is_open() {
            self.close(cancel);
            return Ok(Worked::Over);
        }
        if !self.has_room() {
            // Who waits must not have what others wait for.
            self.end.hand_on()?;
            self.input.pause();
            return Ok(Worked::Full);
        }
        self.cells.clock.turn_to(Activity::Works(0));
        let worked = match !self.is_at_work() && self.fire_timers()? {
            true => Worked::Done,
            false => self.work_on()?,
        };
        if let End::Outputs(outputs) = &mut self.end {
            outputs.hand_on_due(false)?;
        }
        Ok(worked)
    }

    /// Whether something is held back that is to go to other tasks.
    pub(super) fn holds_back(&self) -> bool {
        self.end.holds_back()
    }

    /// Gives other tasks what is held back for them.
    pub(super) fn hand_on(&mut self) -> Result<(), Error> {
        self.end.hand_on()
    }

    /// Whether its first operator, which alone may have two inputs, has more to give of what it took.
    fn is_at_work(&self) -> bool {
        self.chain.first().is_some_and(|link| link.operator.is_at_work())
    }

    /// Takes an element of its input, if it is done with the one before.
    fn work_on(&mut self) -> Result<Worked, Error> {
        if self.is_at_work() {
            go_on(&mut self.chain, &mut self.end)?;
            self.progress.ended = self.stop_if_satisfied()?;
            return Ok(Worked::Done);
        }
        if let Some(watermark) = self.progress.coming.take() {
            self.advance(watermark)?;
            self.progress.ended = self.stop_if_satisfied()?;
            return Ok(Worked::Done);
        }
        match self.input.next()? {
            Merged::Element(element) => self.take(element)?,
            Merged::Second(batch) => {
                self.note_wait(&batch);
                feed_second(&mut self.chain, &mut self.end, batch)?;
                self.progress.ended = self.stop_if_satisfied()?;
            }
            Merged::Pending => {
                self.end.flush()?;
                return Ok(Worked::Waiting);
            }
            Merged::Ended => self.progress.ended = true,
        }
        Ok(Worked::Done)
    }

    fn take(&mut self, element: StreamElement) -> Result<(), Error> {
        if let StreamElement::Watermark(reached) = element {
            if reached < Watermark::MAX {
                self.progress.watermark = Some(reached);
            }
            if self.cells.is_source {
                self.intake.gives(&element);
            }
            self.advance(reached)?;
            self.progress.ended = self.stop_if_satisfied()?;
            return Ok(());
        }
        let arrived = match &element {
            StreamElement::Batch(batch) => {
                self.note_wait(batch);
                Some(batch.arrived)
            }
            _ => None,
        };
        if self.cells.is_source {
            self.intake.gives(&element);
        }
        let is_end = matches!(element, StreamElement::End);
        feed(&mut self.chain, &mut self.end, element)?;
        if is_end {
            // Nothing wakes an operator that has given what was left.
            self.timers = None;
        }
        let Some(arrived) = arrived else {
            self.progress.ended = self.stop_if_satisfied()?;
            return Ok(());
        };
        // When markers and batches go on decides which of several subtasks is heard first: a job whose clock
        // stands still must not depend on how fast this machine is.
        let now_us = self.cells.clock.elapsed_us();
        self.emit_marker(arrived, now_us)?;
        self.progress.ended = self.stop_if_satisfied()?;
        if now_us.saturating_sub(self.progress.flushed_us) >= self.flush_interval_us
            && matches!(self.end, End::Sink(..))
        {
            self.end.flush()?;
            self.progress.flushed_us = now_us;
        }
        Ok(())
    }

    /// Gives the operators a watermark. One that has put state away is given its windows one after another, each as a
    /// piece of work: what comes back for one is gone before the next.
    fn advance(&mut self, watermark: Watermark) -> Result<(), Error> {
        let put_away = self.chain.iter().filter(|link| link.share.is_some() && link.operator.spilled() > 0);
        let next = put_away.filter_map(|link| link.operator.next_piece()).map(Watermark).min();
        let reached = match next.filter(|next| *next < watermark && *next > self.progress.given) {
            Some(next) => {
                self.progress.coming = Some(watermark);
                next
            }
            None => watermark,
        };
        self.progress.given = reached;
        feed(&mut self.chain, &mut self.end, StreamElement::Watermark(reached))
    }

    /// Measures how long rows have waited to be taken.
    fn note_wait(&mut self, batch: &StreamBatch) {
        let since = self.input.waited_since().unwrap_or(batch.arrived);
        self.intake.waited(since, batch.num_rows() as u64);
    }

    fn close(&mut self, cancel: &CancelToken) {
        if !self.progress.is_closed && !cancel.is_cancelled() {
            self.side_outputs().for_each(|sender| sender.send(StreamElement::End));
        }
        self.progress.is_closed = true;
    }

    /// How long there can be nothing to do without an input.
    fn longest_nap(&self) -> Duration {
        let timers = self.timers.iter().flat_map(|_| &self.chain);
        let timer = timers.filter_map(|link| link.operator.next_timer()).min();
        let Some(next) = [timer, self.end.due_us()].into_iter().flatten().min() else { return LONGEST_SLEEP };
        let left = next.saturating_sub(self.cells.clock.elapsed_us()).max(0);
        Duration::from_micros(left.unsigned_abs()).min(LONGEST_SLEEP)
    }

    /// When time alone gives it something to do: timers of its operators, what its input does by itself.
    pub(super) fn next_due_us(&self) -> Option<i64> {
        let timers = self.timers.iter().flat_map(|_| &self.chain);
        let timer = timers.filter_map(|link| link.operator.next_timer()).min();
        [timer, self.input.next_due_us(), self.end.due_us()].into_iter().flatten().min()
    }

    /// How far its watermark lies behind the wall clock, if it reads a table and moves with that.
    pub(super) fn clock_lag_us(&self) -> Option<i64> {
        self.input.clock_lag_us()
    }

    /// Watermarks, each the lowest that makes an operator give something.
    pub(super) fn next_watermarks(&self) -> impl Iterator<Item = i64> {
        self.chain.iter().filter_map(|link| link.operator.next_watermark())
    }

    /// Wakes the operators whose time has come. Whether there was one.
    fn fire_timers(&mut self) -> Result<bool, Error> {
        let Some(clock) = &self.timers else { return Ok(false) };
        let now = clock.elapsed_us();
        let mut fired = false;
        let mut chain = self.chain.as_mut_slice();
        while let Some((link, rest)) = chain.split_first_mut() {
            if link.operator.next_timer().is_some_and(|due| due <= now) {
                let started = link.meter.enter();
                let processed = link.operator.process_timer(now, &mut link.output);
                link.meter.released(started, link.output.rows());
                processed
                    .map_err(|error| error.context(format_args!("operator \"{}\"", link.report.name)))?;
                pass_on(link, rest, &mut self.end)?;
                fired = true;
            }
            chain = rest;
        }
        Ok(fired)
    }

    /// Where rows go that are not used.
    fn side_outputs(&self) -> impl Iterator<Item = &Sender> {
        self.chain.iter().filter_map(|link| link.late.as_ref()).chain(self.rejects.as_deref())
    }

    /// Whether all who take the task's rows keep up.
    pub(super) fn has_room(&self) -> bool {
        self.end.has_room() && self.side_outputs().all(Sender::has_room)
    }

    fn sleep(&mut self, activity: Activity, longest: Duration) {
        self.cells.clock.turn_to(activity);
        self.publish(false);
        self.signal.wait(longest);
    }

    /// It does nothing any more: what was measured is complete.
    pub(super) fn end(&mut self) {
        self.cells.clock.turn_to(Activity::Over);
        self.publish(true);
        self.intake.flush();
        self.chain.iter_mut().for_each(|link| link.meter.flush());
        if let End::Sink(_, _, meter) = &mut self.end {
            meter.flush();
        }
    }

    /// Lets others see what its operators keep.
    pub(super) fn publish(&mut self, is_urgent: bool) {
        for link in &mut self.chain {
            link.meter.publish(link.operator.as_mut(), is_urgent);
        }
    }

    /// Sends a marker behind rows that were read at `arrived`, if one is due. It was made when they
    /// were read, and what they wait for it waits for.
    fn emit_marker(&mut self, arrived: Instant, now_us: i64) -> Result<(), Error> {
        let Some(markers) = &mut self.markers else { return Ok(()) };
        if !markers.clock.is_due(now_us) {
            return Ok(());
        }
        let marker = LatencyMarker { source: markers.source, subtask: 0, made: arrived };
        feed(&mut self.chain, &mut self.end, StreamElement::Latency(marker))
    }

    /// Ends the stream early behind an operator that needs no more rows.
    fn stop_if_satisfied(&mut self) -> Result<bool, Error> {
        let satisfied = self.chain.iter().position(|link| link.operator.is_satisfied());
        let Some(position) = satisfied else { return Ok(false) };
        let rest = &mut self.chain[position + 1..];
        feed(rest, &mut self.end, StreamElement::Watermark(Watermark::MAX))?;
        feed(rest, &mut self.end, StreamElement::End)?;
        Ok(true)
    }

    /// What it has done so far.
    pub(super) fn report(&self) -> TaskReport {
        let of_link = |link: &Link| OperatorReport {
            counts: link.output.counts,
            latency: link.meter.recorders().all_markers(),
            ..link.report.clone()
        };
        let mut operators: Vec<_> = self.chain.iter().map(of_link).collect();
        let (mut arrived, mut late_rows) = (None, None);
        if let End::Sink(_, report, meter) = &self.end {
            let report =
                OperatorReport { latency: meter.recorders().all_markers(), ..report.as_ref().clone() };
            match &self.late_table {
                Some(table) => late_rows = Some((table.clone(), report.rows_in)),
                None => arrived = Some(report.latency.clone()),
            }
            operators.push(report);
        }
        let watermark = self.progress.watermark.filter(|_| self.reads_table);
        let times = self.cells.clock.read();
        let sum = times.all_busy_us() + times.idle_us + times.back_pressured_us;
        debug_assert_eq!(sum, times.total_us, "the times of task \"{}\" do not add up", self.name);
        let times = [times.all_busy_us(), times.idle_us, times.back_pressured_us].map(Duration::from_micros);
        TaskReport { operators, times, watermark, arrived, late_rows }
    }

    /// The channels that it gives to; those of late rows are marked.
    pub(super) fn outputs(&self) -> Vec<(bool, ChannelProbe)> {
        let end = match &self.end {
            End::Outputs(outputs) => outputs.probes(),
            End::Sink(sink, ..) => sink.probe().into_iter().collect(),
        };
        let late = self.side_outputs().map(|sender| (true, sender.probe()));
        end.into_iter().map(|probe| (false, probe)).chain(late).collect()
    }

    /// An operator that does not account for every row that it took, and what it counts.
    pub(super) fn unaccounted(&self) -> Option<(&str, u64, RowCounts)> {
        let links = self.chain.iter().map(|link| (&link.report, link.output.counts));
        let sink = match &self.end {
            End::Sink(_, report, _) => Some((report.as_ref(), report.counts)),
            End::Outputs(_) => None,
        };
        let wrong = links.chain(sink).find(|(report, counts)| !counts.account_for(report.rows_in));
        wrong.map(|(report, counts)| (report.name.as_str(), report.rows_in, counts))
    }

    /// The last watermark of its merged input before the end of it.
    pub(super) fn watermark(&self) -> Option<Watermark> {
        self.progress.watermark
    }

    /// Whether its rows are those of a query or an insert, and not late rows or for other tasks.
    pub(super) fn ends_in_sink(&self) -> bool {
        matches!(self.end, End::Sink(..)) && self.late_table.is_none()
    }
}

/// Gives an element to the first operator of a chain, and what it gives to the next, to the end.
fn feed(chain: &mut [Link], end: &mut End, element: StreamElement) -> Result<(), Error> {
    let Some((link, rest)) = chain.split_first_mut() else { return end.accept(element) };
    let (operator, output, meter) = (&mut link.operator, &mut link.output, &mut link.meter);
    let result = match element {
        StreamElement::Batch(batch) => {
            let rows = batch.num_rows() as u64;
            link.report.rows_in += rows;
            let started = meter.takes(&batch);
            let result = operator.process_batch(batch, output);
            meter.worked(started, rows, output.rows() > 0);
            result
        }
        StreamElement::Watermark(watermark) => {
            let started = meter.hears(watermark);
            let result = operator.process_watermark(watermark, output);
            meter.released(started, output.rows());
            result
        }
        StreamElement::Latency(marker) => {
            meter.marker(marker);
            return feed(rest, end, StreamElement::Latency(marker));
        }
        StreamElement::Status(status) => return feed(rest, end, StreamElement::Status(status)),
        StreamElement::End => {
            let started = meter.enter();
            let finished = operator.finish(output);
            meter.released(started, output.rows());
            finished.map_err(|error| error.context(format_args!("operator \"{}\"", link.report.name)))?;
            link.ends = true;
            pass_on(link, rest, end)?;
            return pass_end(link, rest, end);
        }
    };
    result.map_err(|error| error.context(format_args!("operator \"{}\"", link.report.name)))?;
    pass_on(link, rest, end)
}

/// Gives rows of its second input to the first operator of a chain.
fn feed_second(chain: &mut [Link], end: &mut End, batch: StreamBatch) -> Result<(), Error> {
    let Some((link, rest)) = chain.split_first_mut() else {
        return Err(Error::internal("task", "rows of a second input without an operator of two"));
    };
    let rows = batch.num_rows() as u64;
    link.report.rows_in += rows;
    let started = link.meter.takes(&batch);
    let processed = link.operator.process_second(batch, &mut link.output);
    link.meter.worked(started, rows, link.output.rows() > 0);
    processed.map_err(|error| error.context(format_args!("operator \"{}\"", link.report.name)))?;
    pass_on(link, rest, end)
}

/// Has the first operator of a chain give more of what it took.
fn go_on(chain: &mut [Link], end: &mut End) -> Result<(), Error> {
    let Some((link, rest)) = chain.split_first_mut() else { return Ok(()) };
    let started = link.meter.enter();
    let went = link.operator.go_on(&mut link.output);
    link.meter.released(started, link.output.rows());
    went.map_err(|error| error.context(format_args!("operator \"{}\"", link.report.name)))?;
    pass_on(link, rest, end)?;
    pass_end(link, rest, end)
}

/// Passes the end of the rows on, if it has come and all was given.
fn pass_end(link: &mut Link, rest: &mut [Link], end: &mut End) -> Result<(), Error> {
    if !link.ends || link.operator.is_at_work() {
        return Ok(());
    }
    link.ends = false;
    feed(rest, end, StreamElement::End)
}

fn pass_on(link: &mut Link, rest: &mut [Link], end: &mut End) -> Result<(), Error> {
    link.meter.counts(&link.output.counts);
    link.publish()?;
    for batch in link.output.drain_late() {
        if let Some(late) = &link.late {
            late.send(StreamElement::Batch(batch));
        }
    }
    let mut given: Vec<StreamElement> = link.output.drain().collect();
    for element in given.drain(..) {
        match &element {
            StreamElement::Batch(batch) => link.report.rows_out += batch.num_rows() as u64,
            StreamElement::Watermark(watermark) => link.said = Some(*watermark),
            StreamElement::Status(_) | StreamElement::Latency(_) | StreamElement::End => {}
        }
        link.meter.gives(&element);
        feed(rest, end, element)?;
    }
    Ok(())
}

/// Channels from other tasks as inputs of a merge.
pub(super) struct ChannelInputs {
    receivers: Vec<Receiver>,
    /// Since when the last element had been there.
    since: Option<Instant>,
}

impl ChannelInputs {
    pub(super) fn new(receivers: Vec<Receiver>) -> Self {
        Self { receivers, since: None }
    }
}

impl Inputs for ChannelInputs {
    fn len(&self) -> usize {
        self.receivers.len()
    }

    fn waited_since(&self) -> Option<Instant> {
        self.since
    }

    fn pending(&self, input: usize) -> Vec<StreamElement> {
        self.receivers.get(input).map_or_else(Vec::new, Receiver::waiting)
    }

    fn poll(&mut self, input: usize) -> Result<Polled, Error> {
        let (received, since) = self.receivers[input].receive_since();
        self.since = since;
        // A sender that is gone without `End` has failed or was cancelled, and so is the job.
        Ok(match received {
            Received::Element(element) => Polled::Element(element),
            Received::Empty | Received::Closed => Polled::Pending,
        })
    }
}

impl Inputs for Box<dyn Inputs> {
    fn len(&self) -> usize {
        self.as_ref().len()
    }

    fn poll(&mut self, input: usize) -> Result<Polled, Error> {
        self.as_mut().poll(input)
    }

    fn waited_since(&self) -> Option<Instant> {
        self.as_ref().waited_since()
    }

    fn refresh(&mut self) -> Result<(), Error> {
        self.as_mut().refresh()
    }

    fn pending(&self, input: usize) -> Vec<StreamElement> {
        self.as_ref().pending(input)
    }

    fn marks(&self) -> Vec<SplitMark> {
        self.as_ref().marks()
    }

    fn give_up(&mut self) {
        self.as_mut().give_up();
    }

    fn may_grow(&self) -> bool {
        self.as_ref().may_grow()
    }

    fn pause(&mut self) {
        self.as_mut().pause();
    }

    fn is_deserted(&mut self) -> bool {
        self.as_mut().is_deserted()
    }

    fn next_due_us(&self) -> Option<i64> {
        self.as_ref().next_due_us()
    }

    fn clock_lag_us(&self) -> Option<i64> {
        self.as_ref().clock_lag_us()
    }

    fn advanced(&mut self) -> Option<Watermark> {
        self.as_mut().advanced()
    }
}

/// Markers that came to sinks, of all tasks.
pub(super) fn all_arrived(reports: &[TaskReport]) -> LatencyRecorder {
    let mut all = LatencyRecorder::new();
    for recorder in reports.iter().filter_map(|report| report.arrived.as_ref()) {
        all.add(recorder);
    }
    all
}
