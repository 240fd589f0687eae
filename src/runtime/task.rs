//! A task: it merges its inputs, drives a chain of operators and hands the rows on, one piece of
//! work at a time; [`Task::run`] is the loop of a thread around it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::{Received, Receiver, Sender, Signal};
use super::exchange::Outputs;
use super::latency::{LatencyRecorder, MarkerClock};
use super::merge::{Inputs, Merge, Merged, Polled};
use super::metrics::{OperatorReport, TaskReport, TaskTimes};
use super::sink::SinkEnd;
use crate::connector::CancelToken;
use crate::error::Error;
use crate::operator::{Operator, Output, RowCounts};
use crate::stream::{Clock, LatencyMarker, StreamElement, Watermark};

/// Longest sleep between two looks at whether the job was cancelled.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// An operator of a chain.
pub(super) struct Link {
    operator: Box<dyn Operator>,
    output: Output,
    report: OperatorReport,
    /// Where its late rows go, if anywhere.
    late: Option<Sender>,
}

impl Link {
    pub(super) fn new(node: usize, operator: Box<dyn Operator>, late: Option<Sender>) -> Self {
        let report = OperatorReport::new(node, operator.name());
        Self { operator, output: Output::default(), report, late }
    }

    /// Tells the operator that the job starts. Whether it wants to be woken some time.
    pub(super) fn open(&mut self, now_us: i64) -> bool {
        self.operator.open(now_us);
        self.operator.next_timer().is_some()
    }
}

/// Where the chain ends.
pub(super) enum End {
    Outputs(Outputs),
    Sink(SinkEnd, OperatorReport),
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
            Self::Sink(sink, _) => sink.has_room(),
        }
    }

    fn is_open(&self) -> bool {
        match self {
            Self::Outputs(outputs) => outputs.are_open(),
            Self::Sink(sink, _) => sink.is_open(),
        }
    }

    fn accept(&mut self, element: StreamElement) -> Result<(), Error> {
        match self {
            Self::Outputs(outputs) => outputs.send(element),
            Self::Sink(sink, report) => match element {
                StreamElement::Batch(batch) => {
                    let rows = batch.num_rows() as u64;
                    report.rows_in += rows;
                    sink.write(batch)?;
                    report.counts.used += rows;
                    report.rows_out += rows;
                    Ok(())
                }
                StreamElement::Latency(marker) => {
                    report.latency.record(marker);
                    Ok(())
                }
                StreamElement::End => sink.finish(),
                StreamElement::Watermark(_) | StreamElement::Status(_) => Ok(()),
            },
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        match self {
            Self::Outputs(_) => Ok(()),
            Self::Sink(sink, _) => sink.flush(),
        }
    }
}

/// A source's markers: when the next is due, and what they say of where they were made.
pub(super) struct Markers {
    pub(super) clock: MarkerClock,
    pub(super) source: u32,
}

/// See the module.
pub(super) struct Task {
    pub(super) name: String,
    pub(super) signal: Arc<Signal>,
    pub(super) input: Merge<Box<dyn Inputs>>,
    pub(super) chain: Vec<Link>,
    pub(super) end: End,
    pub(super) markers: Option<Markers>,
    /// Its input is a table, not other tasks: its watermarks are those that the rows gave.
    pub(super) reads_table: bool,
    pub(super) flush_interval: Duration,
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
    flushed: Instant,
    ended: bool,
    /// Those who take the late rows know that there are no more.
    is_closed: bool,
}

impl Default for TaskProgress {
    fn default() -> Self {
        Self { watermark: None, flushed: Instant::now(), ended: false, is_closed: false }
    }
}

impl Task {
    /// Runs to the end of the input, to the end of interest in the output, or until cancelled.
    pub(super) fn run(mut self, cancel: &CancelToken) -> Result<TaskReport, Error> {
        let started = Instant::now();
        let mut times = TaskTimes::default();
        loop {
            match self.step(cancel)? {
                Worked::Done => {}
                Worked::Full => times.back_pressured += self.sleep(LONGEST_SLEEP),
                Worked::Waiting => times.idle += self.sleep(self.longest_nap()),
                Worked::Over => break,
            }
        }
        let waited = times.idle + times.back_pressured;
        times.busy = started.elapsed().saturating_sub(waited);
        Ok(TaskReport { times, ..self.report() })
    }

    /// One piece of work: takes an element, processes it, hands on what it gives. Does not wait.
    pub(super) fn step(&mut self, cancel: &CancelToken) -> Result<Worked, Error> {
        if self.progress.ended || cancel.is_cancelled() || !self.end.is_open() {
            self.close(cancel);
            return Ok(Worked::Over);
        }
        if !self.has_room() {
            self.input.pause();
            return Ok(Worked::Full);
        }
        self.emit_marker()?;
        if self.fire_timers()? {
            return Ok(Worked::Done);
        }
        match self.input.next()? {
            Merged::Element(element) => self.take(element)?,
            Merged::Pending => {
                self.end.flush()?;
                return Ok(Worked::Waiting);
            }
            Merged::Ended => self.progress.ended = true,
        }
        Ok(Worked::Done)
    }

    fn take(&mut self, element: StreamElement) -> Result<(), Error> {
        if let StreamElement::Watermark(reached) = element
            && reached < Watermark::MAX
        {
            self.progress.watermark = Some(reached);
        }
        let is_batch = matches!(element, StreamElement::Batch(_));
        feed(&mut self.chain, &mut self.end, element)?;
        self.progress.ended = self.stop_if_satisfied()?;
        if is_batch && self.progress.flushed.elapsed() >= self.flush_interval {
            self.end.flush()?;
            self.progress.flushed = Instant::now();
        }
        Ok(())
    }

    fn close(&mut self, cancel: &CancelToken) {
        if !self.progress.is_closed && !cancel.is_cancelled() {
            self.side_outputs().for_each(|sender| sender.send(StreamElement::End));
        }
        self.progress.is_closed = true;
    }

    /// How long there can be nothing to do without an input.
    fn longest_nap(&self) -> Duration {
        let until_marker = self.markers.as_ref().map(|m| m.clock.until_due(Instant::now()));
        let until_timer = self.timers.as_ref().and_then(|clock| {
            let next = self.chain.iter().filter_map(|link| link.operator.next_timer()).min()?;
            let left = next.saturating_sub(clock.elapsed_us()).max(0);
            Some(Duration::from_micros(left.unsigned_abs()))
        });
        let due = [until_marker, until_timer].into_iter().flatten().min();
        due.unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP)
    }

    /// When time alone gives it something to do: timers of its operators, what its input does by itself.
    pub(super) fn next_due_us(&self) -> Option<i64> {
        let timers = self.timers.iter().flat_map(|_| &self.chain);
        let timer = timers.filter_map(|link| link.operator.next_timer()).min();
        [timer, self.input.next_due_us()].into_iter().flatten().min()
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
                let processed = link.operator.process_timer(now, &mut link.output);
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
    fn has_room(&self) -> bool {
        self.end.has_room() && self.side_outputs().all(Sender::has_room)
    }

    fn sleep(&self, longest: Duration) -> Duration {
        let before = Instant::now();
        self.signal.wait(longest);
        before.elapsed()
    }

    fn emit_marker(&mut self) -> Result<(), Error> {
        let Some(markers) = &mut self.markers else { return Ok(()) };
        let now = Instant::now();
        if !markers.clock.is_due(now) {
            return Ok(());
        }
        let marker = LatencyMarker { source: markers.source, subtask: 0, made: now };
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

    /// What it has done so far, but for where its time went.
    pub(super) fn report(&self) -> TaskReport {
        let of_link = |link: &Link| OperatorReport { counts: link.output.counts, ..link.report.clone() };
        let mut operators: Vec<_> = self.chain.iter().map(of_link).collect();
        let (mut arrived, mut late_rows) = (None, None);
        if let End::Sink(_, report) = &self.end {
            match &self.late_table {
                Some(table) => late_rows = Some((table.clone(), report.rows_in)),
                None => arrived = Some(report.latency.clone()),
            }
            operators.push(report.clone());
        }
        let watermark = self.progress.watermark.filter(|_| self.reads_table);
        TaskReport { operators, times: TaskTimes::default(), watermark, arrived, late_rows }
    }

    /// An operator that does not account for every row that it took, and what it counts.
    pub(super) fn unaccounted(&self) -> Option<(&str, u64, RowCounts)> {
        let links = self.chain.iter().map(|link| (&link.report, link.output.counts));
        let sink = match &self.end {
            End::Sink(_, report) => Some((report, report.counts)),
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
    let (operator, output) = (&mut link.operator, &mut link.output);
    let result = match element {
        StreamElement::Batch(batch) => {
            link.report.rows_in += batch.num_rows() as u64;
            operator.process_batch(batch, output)
        }
        StreamElement::Watermark(watermark) => operator.process_watermark(watermark, output),
        StreamElement::Latency(marker) => {
            link.report.latency.record(marker);
            return feed(rest, end, StreamElement::Latency(marker));
        }
        StreamElement::Status(status) => return feed(rest, end, StreamElement::Status(status)),
        StreamElement::End => {
            let finished = operator.finish(output);
            finished.map_err(|error| error.context(format_args!("operator \"{}\"", link.report.name)))?;
            pass_on(link, rest, end)?;
            return feed(rest, end, StreamElement::End);
        }
    };
    result.map_err(|error| error.context(format_args!("operator \"{}\"", link.report.name)))?;
    pass_on(link, rest, end)
}

fn pass_on(link: &mut Link, rest: &mut [Link], end: &mut End) -> Result<(), Error> {
    for batch in link.output.drain_late() {
        if let Some(late) = &link.late {
            late.send(StreamElement::Batch(batch));
        }
    }
    let mut given: Vec<StreamElement> = link.output.drain().collect();
    for element in given.drain(..) {
        if let StreamElement::Batch(batch) = &element {
            link.report.rows_out += batch.num_rows() as u64;
        }
        feed(rest, end, element)?;
    }
    Ok(())
}

/// Channels from other tasks as inputs of a merge.
pub(super) struct ChannelInputs(pub(super) Vec<Receiver>);

impl Inputs for ChannelInputs {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn poll(&mut self, input: usize) -> Result<Polled, Error> {
        // A sender that is gone without `End` has failed or was cancelled, and so is the job.
        Ok(match self.0[input].receive() {
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

    fn refresh(&mut self) -> Result<(), Error> {
        self.as_mut().refresh()
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
