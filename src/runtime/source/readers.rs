//! Reading splits ahead of the source's task, and looking for more of them: one read at a time, and
//! the threads that do it again and again.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::channel::{Sender, Signal, lock};
use super::super::control::Stops;
use super::super::job::panic_text;
use super::super::merge::{Inputs, Polled};
use super::alignment::Aligned;
use super::board::{SplitCell, SplitState};
use super::idle::IdleTimer;
use super::pipeline::{SourceShape, SplitMark, SplitPipeline, SplitRead, Step};
use crate::connector::{Source, SplitReader};
use crate::error::Error;
use crate::stream::{Clock, StreamElement, StreamStatus, Watermark};

/// Batches of a split that are read ahead.
const AHEAD: usize = 2;
/// First and longest rest of a quiet split before it is asked again.
const FIRST_NAP: Duration = Duration::from_millis(1);
const LONGEST_NAP: Duration = Duration::from_millis(32);
/// With more quiet splits than this, each is asked less often.
const QUIET_SPLITS: usize = 256;
/// A reader that took this long to say that there is nothing has waited for rows by itself.
const WAITED: Duration = Duration::from_millis(5);
/// Longest sleep between two looks at whether the job was cancelled.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// Time between two looks at where the clock has brought a quiet source, microseconds.
const PROBE_US: i64 = 10_000;

/// The splits of a source as inputs of a merge.
pub(in super::super) struct SplitInputs {
    shared: Arc<Shared>,
    splits: Vec<Split>,
    /// Without event time the splits are read one after another.
    in_turn: bool,
    /// Where rows go that can't be read, if anywhere.
    rejects: Option<Arc<Sender>>,
    idleness: Option<Idleness>,
    clock: Arc<dyn Clock>,
    /// Where the clock has brought the watermark of the quiet source, and when that was found.
    advanced: Option<Watermark>,
    probed_us: i64,
    /// While no split is open and more may come.
    deserted: Option<IdleTimer>,
}

/// `IDLE AFTER`.
#[derive(Debug, Clone, Copy)]
struct Idleness {
    timeout_us: i64,
    /// `THEN ADVANCE`: how far behind the wall clock the watermark of a quiet source is.
    advance_delay_us: Option<i64>,
}

/// What the merging task knows of a split.
struct Split {
    at_hand: VecDeque<StreamElement>,
    timer: Option<IdleTimer>,
    /// What the timer was last told, microseconds.
    probed_us: i64,
    cell: Arc<SplitCell>,
    /// How it was left by the last read that was taken.
    mark: Option<Box<SplitMark>>,
    /// It goes on where an earlier run left it, and its reader has not said anything yet.
    is_resumed: bool,
}

/// How the splits of a source are read.
pub(in super::super) struct Reading {
    /// Reader threads.
    pub(in super::super) threads: usize,
    /// A split is begun when the one before has ended.
    pub(in super::super) in_turn: bool,
    /// The table does not end: splits are told idle.
    pub(in super::super) goes_on: bool,
    /// What wakes the task that merges the splits.
    pub(in super::super) task: Arc<Signal>,
    pub(in super::super) stops: Stops,
    /// The table.
    pub(in super::super) name: String,
    /// Where rows go that can't be read, if anywhere.
    pub(in super::super) rejects: Option<Arc<Sender>>,
    /// The other sources that it keeps together with.
    pub(in super::super) aligned: Option<Aligned>,
}

struct Shared {
    work: Mutex<Work>,
    work_added: Condvar,
    closing: Condvar,
    /// Number of splits so far.
    count: AtomicUsize,
    /// No more splits can be found; `Work::failure` says why.
    failed: AtomicBool,
    /// The task that merges the splits.
    task: Arc<Signal>,
    stops: Stops,
    shape: Arc<SourceShape>,
    aligned: Option<Aligned>,
    /// Files that an earlier run has read: they are found once more, and are no new ones.
    finished: Mutex<Vec<(String, u64)>>,
}

#[derive(Default)]
struct Work {
    /// Splits to read on in, first come first served.
    queue: VecDeque<(usize, SplitPipeline)>,
    /// Splits that have nothing to read, by when to ask them again.
    quiet: BTreeMap<(Instant, usize), SplitPipeline>,
    slots: Vec<Slot>,
    /// More splits may come.
    grows: bool,
    closed: bool,
    /// Why no more splits can be found.
    failure: Option<Error>,
}

struct Slot {
    read: VecDeque<Result<SplitRead, Error>>,
    /// The split, while it has enough read ahead.
    resting: Option<SplitPipeline>,
    /// When the reader found nothing, if that is what it said last.
    found_empty_us: Option<i64>,
    /// The reader has said something.
    was_asked: bool,
    nap: Duration,
    cell: Arc<SplitCell>,
    /// How the split is found.
    first_mark: Option<Box<SplitMark>>,
}

impl Work {
    fn add(&mut self, pipeline: SplitPipeline, rests: bool) {
        let split = self.slots.len();
        let mut slot = Slot {
            read: VecDeque::new(),
            resting: None,
            found_empty_us: None,
            was_asked: false,
            nap: FIRST_NAP,
            cell: Arc::clone(pipeline.cell()),
            first_mark: pipeline.first_mark(),
        };
        if rests {
            slot.resting = Some(pipeline);
        } else {
            self.queue.push_back((split, pipeline));
        }
        self.slots.push(slot);
    }

    /// Puts a split that has nothing to read to the quiet ones.
    fn rest(&mut self, split: usize, pipeline: SplitPipeline) {
        let crowd = u32::try_from(self.quiet.len() / QUIET_SPLITS).unwrap_or(u32::MAX).saturating_add(1);
        let slot = &mut self.slots[split];
        let due = Instant::now() + slot.nap.saturating_mul(crowd);
        slot.nap = (slot.nap * 2).min(LONGEST_NAP);
        self.quiet.insert((due, split), pipeline);
    }
}

impl SplitInputs {
    /// The splits, and what reads them. Nothing is read before that is told to.
    pub(in super::super) fn new(
        source: Box<dyn Source>,
        pipelines: Vec<SplitPipeline>,
        shape: &Arc<SourceShape>,
        reading: Reading,
    ) -> Result<(Self, SplitReaders), Error> {
        let interval = source.discovers_every().filter(|_| reading.goes_on);
        let splits = pipelines.len();
        let mut work = Work { grows: interval.is_some(), ..Work::default() };
        let finished = pipelines.iter().filter_map(SplitPipeline::finished_file).collect();
        let first = pipelines.iter().position(|pipeline| !pipeline.is_over()).unwrap_or(0);
        for (number, pipeline) in pipelines.into_iter().enumerate() {
            work.add(pipeline, reading.in_turn && number > first);
        }
        let shared = Arc::new(Shared {
            work: Mutex::new(work),
            work_added: Condvar::new(),
            closing: Condvar::new(),
            count: AtomicUsize::new(splits),
            failed: AtomicBool::new(false),
            task: reading.task,
            stops: reading.stops,
            shape: Arc::clone(shape),
            aligned: reading.aligned,
            finished: Mutex::new(finished),
        });
        let readers = SplitReaders {
            shared: Arc::clone(&shared),
            name: reading.name,
            threads: if interval.is_some() { reading.threads } else { reading.threads.min(splits) },
            source: interval.map(|interval| (source, interval)),
        };
        let idleness = reading.goes_on.then(|| shape.idle_after_us()).flatten();
        let idleness =
            idleness.map(|timeout_us| Idleness { timeout_us, advance_delay_us: shape.advance_delay_us() });
        let mut inputs = Self {
            shared,
            splits: Vec::new(),
            in_turn: reading.in_turn,
            rejects: reading.rejects,
            idleness,
            clock: Arc::clone(shape.clock()),
            advanced: None,
            probed_us: i64::MIN,
            deserted: None,
        };
        inputs.refresh()?;
        Ok((inputs, readers))
    }

    /// Lets the readers go on with a split that rests.
    fn wake(&self, work: &mut Work, split: usize) {
        if let Some(pipeline) = work.slots.get_mut(split).and_then(|slot| slot.resting.take()) {
            work.queue.push_back((split, pipeline));
            self.shared.work_added.notify_one();
        }
    }

    /// Whether the split becomes idle by this look at it. `found_empty_us`: when a reader last found
    /// nothing there, if nothing waits to be taken.
    fn becomes_idle(&mut self, input: usize, found_empty_us: Option<i64>, was_asked: bool) -> bool {
        let split = &mut self.splits[input];
        let Some(timer) = &mut split.timer else { return false };
        if timer.is_idle() {
            return false;
        }
        // That an earlier run had found nothing counts until somebody looks again.
        if split.is_resumed && !was_asked {
            return false;
        }
        split.is_resumed = false;
        if let Some(found_empty_us) = found_empty_us {
            // What the reader said before tells nothing new.
            if found_empty_us <= split.probed_us {
                return false;
            }
            split.probed_us = found_empty_us;
        }
        let idle = timer.probe(self.clock.elapsed_us(), found_empty_us);
        if idle {
            split.cell.set_idle(true);
        }
        idle
    }
}

impl Split {
    /// Its time as a quiet split begins anew.
    fn reset_timer(&mut self, reset: fn(&mut IdleTimer)) {
        self.timer.iter_mut().for_each(reset);
        self.probed_us = i64::MIN;
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let started = std::thread::Builder::new().name(name).spawn(run);
    started.map(|_| ()).map_err(|error| Error::internal("runtime", error))
}

impl Inputs for SplitInputs {
    fn len(&self) -> usize {
        self.splits.len()
    }

    fn refresh(&mut self) -> Result<(), Error> {
        if self.shared.failed.load(Ordering::Acquire)
            && let Some(error) = lock(&self.shared.work).failure.take()
        {
            return Err(error);
        }
        let count = self.shared.count.load(Ordering::Acquire);
        if count == self.splits.len() {
            return Ok(());
        }
        let mut work = lock(&self.shared.work);
        for slot in &mut work.slots[self.splits.len()..count] {
            self.splits.push(Split {
                at_hand: VecDeque::new(),
                timer: self.idleness.map(|Idleness { timeout_us, .. }| {
                    match slot.first_mark.as_ref().and_then(|mark| mark.timer) {
                        Some(left) => IdleTimer::left_at(timeout_us, left),
                        None => IdleTimer::new(timeout_us),
                    }
                }),
                probed_us: i64::MIN,
                cell: Arc::clone(&slot.cell),
                is_resumed: slot.first_mark.as_ref().is_some_and(|mark| mark.timer.is_some()),
                mark: slot.first_mark.take(),
            });
        }
        self.deserted = None;
        Ok(())
    }

    fn may_grow(&self) -> bool {
        lock(&self.shared.work).grows
    }

    fn pause(&mut self) {
        for split in &mut self.splits {
            split.reset_timer(IdleTimer::pause);
        }
        if let Some(timer) = &mut self.deserted {
            timer.pause();
        }
    }

    fn is_deserted(&mut self) -> bool {
        if self.shared.shape.processing_watermark().is_some() {
            return true;
        }
        let Some(idleness) = self.idleness else { return false };
        // The first look starts the timer; a new split ends the desertion.
        let now_us = self.clock.elapsed_us();
        let timer = self.deserted.get_or_insert_with(|| IdleTimer::new(idleness.timeout_us));
        timer.probe(now_us, Some(now_us));
        timer.is_idle()
    }

    fn advanced(&mut self) -> Option<Watermark> {
        if let Some(watermark) = self.shared.shape.processing_watermark() {
            return Some(watermark);
        }
        let delay_us = self.idleness?.advance_delay_us?;
        let now_us = self.clock.elapsed_us();
        if self.advanced.is_none() || now_us >= self.probed_us.saturating_add(PROBE_US) {
            self.probed_us = now_us;
            let arrival = self.shared.shape.last_arrival()?;
            let since_us = now_us.saturating_sub(arrival.elapsed_us);
            let watermark = arrival.wall_us.saturating_add(since_us).saturating_sub(delay_us);
            self.advanced = Some(Watermark(watermark));
        }
        self.advanced
    }

    fn next_due_us(&self) -> Option<i64> {
        let timers = self.splits.iter().filter_map(|split| split.timer.as_ref()).chain(&self.deserted);
        let idle = timers.filter_map(IdleTimer::due_us).min();
        let work = lock(&self.shared.work);
        let waiting = work.queue.iter().map(|(_, pipeline)| pipeline).chain(work.quiet.values());
        let resting = work.slots.iter().filter_map(|slot| slot.resting.as_ref());
        let ticks = waiting.chain(resting).filter_map(SplitPipeline::due_us).min();
        [idle, ticks].into_iter().flatten().min()
    }

    fn clock_lag_us(&self) -> Option<i64> {
        self.shared.shape.clock_lag_us()
    }

    fn pending(&self, input: usize) -> Vec<StreamElement> {
        self.splits.get(input).map_or_else(Vec::new, |split| split.at_hand.iter().cloned().collect())
    }

    fn marks(&self) -> Vec<SplitMark> {
        let mark = |split: &Split| {
            let timer = split.timer.as_ref().map(IdleTimer::mark);
            let is_idle = split.cell.is_idle();
            split.mark.as_deref().map(|mark| SplitMark { timer, is_idle, ..mark.clone() })
        };
        self.splits.iter().filter_map(mark).collect()
    }

    fn poll(&mut self, input: usize) -> Result<Polled, Error> {
        if let Some(element) = self.splits[input].at_hand.pop_front() {
            return Ok(Polled::Element(element));
        }
        let (read, found_empty_us, was_asked) = {
            let mut work = lock(&self.shared.work);
            let slot = &mut work.slots[input];
            let (read, found_empty_us) = (slot.read.pop_front(), slot.found_empty_us);
            let was_asked = slot.was_asked;
            if read.is_some() && slot.read.len() < AHEAD {
                self.wake(&mut work, input);
            }
            (read, found_empty_us, was_asked)
        };
        let Some(read) = read else {
            return Ok(match self.becomes_idle(input, found_empty_us, was_asked) {
                true => Polled::Element(StreamElement::Status(StreamStatus::Idle)),
                false => Polled::Pending,
            });
        };
        let read = read?;
        if let Some(rejects) = &self.rejects {
            read.rejected.into_iter().for_each(|batch| rejects.send(StreamElement::Batch(batch)));
        }
        let mark = read.mark;
        let read = read.elements;
        if self.in_turn && read.iter().any(|element| matches!(element, StreamElement::End)) {
            let mut work = lock(&self.shared.work);
            self.wake(&mut work, input + 1);
        }
        let split = &mut self.splits[input];
        if let Some(mark) = mark {
            split.mark = Some(mark);
        }
        match read.first() {
            Some(StreamElement::Status(StreamStatus::Idle)) => {
                split.cell.set_idle(true);
                split.timer.iter_mut().for_each(IdleTimer::told);
            }
            _ => {
                split.is_resumed = false;
                split.reset_timer(IdleTimer::wake);
                split.cell.set_idle(false);
            }
        }
        split.at_hand.extend(read);
        Ok(split.at_hand.pop_front().map_or(Polled::Pending, Polled::Element))
    }
}

impl Drop for SplitInputs {
    fn drop(&mut self) {
        let mut work = lock(&self.shared.work);
        work.closed = true;
        work.queue.clear();
        work.quiet.clear();
        for slot in &mut work.slots {
            slot.resting = None;
        }
        self.shared.work_added.notify_all();
        self.shared.closing.notify_all();
    }
}

/// Reads the splits of a source.
pub(in super::super) struct SplitReaders {
    shared: Arc<Shared>,
    /// The table.
    name: String,
    threads: usize,
    /// What finds more splits, and how often to ask it.
    source: Option<(Box<dyn Source>, Duration)>,
}

impl SplitReaders {
    /// Starts the threads: those that read, and one that looks for more splits if there may be any.
    pub(in super::super) fn start(self) -> Result<(), Error> {
        for number in 0..self.threads {
            let shared = Arc::clone(&self.shared);
            spawn(format!("read {} {number}", self.name), move || {
                while let Some((split, pipeline)) = next_split(&shared) {
                    if !read(&shared, split, pipeline) {
                        shared.task.notify();
                    }
                }
            })?;
        }
        if let Some((source, interval)) = self.source {
            let shared = Arc::clone(&self.shared);
            spawn(format!("find {}", self.name), move || keep_looking(&shared, source, interval))?;
        }
        Ok(())
    }

    /// Looks once for more splits, and lets quiet ones be asked again at once. Whether splits came.
    pub(in super::super) fn look(&mut self) -> bool {
        let is_closed = {
            let mut work = lock(&self.shared.work);
            // By their number: when they said that they are quiet is a matter of the clock.
            let mut quiet: Vec<_> = std::mem::take(&mut work.quiet).into_iter().collect();
            quiet.sort_by_key(|((_, split), _)| *split);
            work.queue.extend(quiet.into_iter().map(|((_, split), pipeline)| (split, pipeline)));
            work.closed
        };
        if self.shared.stops.drain.is_set() {
            self.source = None;
            return std::mem::take(&mut lock(&self.shared.work).grows);
        }
        let Some((source, _)) = self.source.as_mut().filter(|_| !is_closed) else { return false };
        let found = discover(&self.shared, source.as_mut());
        if found != Found::Nothing {
            self.source = self.source.take().filter(|_| found == Found::Splits);
        }
        found != Found::Nothing
    }

    /// Reads one batch of each split that can be read now, in the order that `draw` picks: a place
    /// below the number that it is given. Whether there was any.
    pub(in super::super) fn read(&mut self, mut draw: impl FnMut(usize) -> usize) -> bool {
        let mut waiting = std::mem::take(&mut lock(&self.shared.work).queue);
        let mut any = false;
        while let Some((split, pipeline)) = waiting.remove(draw(waiting.len())) {
            any |= !read(&self.shared, split, pipeline);
        }
        any
    }
}

/// Reads one batch of a split and puts it where the task takes it, or the split to the quiet ones:
/// whether it did that.
fn read(shared: &Shared, split: usize, mut pipeline: SplitPipeline) -> bool {
    let is_drained = shared.stops.drain.is_set();
    let is_ahead = |aligned: &&Aligned| !is_drained && aligned.is_ahead(pipeline.reached());
    if let Some(aligned) = shared.aligned.as_ref().filter(is_ahead) {
        // Its watermark may move with the clock all the same.
        let ticked = pipeline.tick();
        let mut work = lock(&shared.work);
        let slot = &mut work.slots[split];
        slot.cell.set(SplitState::Aligned);
        (slot.found_empty_us, slot.was_asked) = (None, true);
        let moved = ticked.is_some();
        slot.read.extend(ticked.map(Ok));
        work.quiet.insert((Instant::now() + aligned.interval, split), pipeline);
        return !moved;
    }
    let begun = Instant::now();
    let read = match is_drained {
        true => Ok(Step::Read(SplitRead::of(StreamElement::End))),
        false => catch_unwind(AssertUnwindSafe(|| pipeline.next()))
            .unwrap_or_else(|panic| Err(Error::internal("source", panic_text(panic.as_ref())))),
    };
    let mut work = lock(&shared.work);
    if work.closed {
        return true;
    }
    let slot = &mut work.slots[split];
    let read = match read {
        Ok(Step::Quiet(state)) => {
            slot.cell.set(state);
            slot.was_asked = true;
            slot.found_empty_us = match state {
                SplitState::Disconnected => None,
                _ => Some(shared.shape.clock().elapsed_us()),
            };
            if begun.elapsed() >= WAITED {
                work.queue.push_back((split, pipeline));
            } else {
                work.rest(split, pipeline);
            }
            return true;
        }
        Ok(Step::Read(read)) => Ok(read),
        Err(error) => Err(error),
    };
    if let Ok(given) = &read
        && given.is_quiet()
    {
        // Time goes on, and there is nothing to read.
        work.rest(split, pipeline);
        let waiting = &mut work.slots[split].read;
        if matches!(waiting.back(), Some(Ok(before)) if before.is_quiet()) {
            waiting.pop_back();
        }
        waiting.push_back(read);
        return false;
    }
    slot.found_empty_us = None;
    slot.nap = FIRST_NAP;
    let goes_on = matches!(&read, Ok(given) if !matches!(given.elements.last(), Some(StreamElement::End)));
    slot.read.push_back(read);
    if goes_on && slot.read.len() < AHEAD {
        slot.cell.set(SplitState::Active);
        work.queue.push_back((split, pipeline));
    } else if goes_on {
        slot.cell.set(SplitState::Paused);
        slot.resting = Some(pipeline);
    } else {
        shared.shape.counters.splits.finish(&slot.cell);
    }
    false
}

/// Waits for a split to read. `None` when nobody wants rows any more.
fn next_split(shared: &Shared) -> Option<(usize, SplitPipeline)> {
    let mut work = lock(&shared.work);
    loop {
        if work.closed || shared.stops.cancel.is_cancelled() {
            return None;
        }
        let now = Instant::now();
        let is_due = |due: Instant| due <= now || shared.stops.drain.is_set();
        while let Some(entry) = work.quiet.first_entry().filter(|entry| is_due(entry.key().0)) {
            let ((_, split), pipeline) = entry.remove_entry();
            work.queue.push_back((split, pipeline));
        }
        if let Some(next) = work.queue.pop_front() {
            return Some(next);
        }
        let due = work.quiet.first_key_value().map(|((due, _), _)| due.saturating_duration_since(now));
        work = match due {
            Some(due) => wait(&shared.work_added, work, due.min(LONGEST_SLEEP)),
            None => shared.work_added.wait(work).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

fn wait<'a, T>(
    condition: &Condvar,
    guard: std::sync::MutexGuard<'a, T>,
    longest: Duration,
) -> std::sync::MutexGuard<'a, T> {
    condition.wait_timeout(guard, longest).map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard)
}

/// Looks for more splits from time to time.
fn keep_looking(shared: &Shared, mut source: Box<dyn Source>, interval: Duration) {
    let mut due = Instant::now() + interval;
    loop {
        {
            let mut work = lock(&shared.work);
            loop {
                if work.closed || shared.stops.cancel.is_cancelled() {
                    return;
                }
                if shared.stops.drain.is_set() {
                    work.grows = false;
                    shared.task.notify();
                    return;
                }
                let left = due.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                work = wait(&shared.closing, work, left.min(LONGEST_SLEEP));
            }
        }
        if discover(shared, source.as_mut()) == Found::Last {
            return;
        }
        due = Instant::now() + interval;
    }
}

/// What a look for more splits came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Splits,
    /// There will be no more splits.
    Last,
}

/// Whether no earlier run has read this file.
fn is_new(shared: &Shared, reader: &dyn SplitReader) -> bool {
    let Some(size) = reader.progress().1 else { return true };
    let mut finished = lock(&shared.finished);
    let known = finished.iter().position(|(name, known)| name == reader.name() && *known == size);
    known.map(|place| finished.swap_remove(place)).is_none()
}

fn discover(shared: &Shared, source: &mut dyn Source) -> Found {
    let found = catch_unwind(AssertUnwindSafe(|| source.discover()))
        .unwrap_or_else(|panic| Err(Error::internal("source", panic_text(panic.as_ref()))));
    let is_last = source.discovers_every().is_none();
    let outcome = match found {
        Ok(found) if found.is_empty() && !is_last => return Found::Nothing,
        Ok(found) => {
            let mut work = lock(&shared.work);
            for reader in found.into_iter().filter(|reader| is_new(shared, reader.as_ref())) {
                work.add(SplitPipeline::new(reader, Arc::clone(&shared.shape)), false);
            }
            shared.count.store(work.slots.len(), Ordering::Release);
            work.grows = !is_last;
            shared.work_added.notify_all();
            if is_last { Found::Last } else { Found::Splits }
        }
        Err(error) => {
            lock(&shared.work).failure = Some(error);
            shared.failed.store(true, Ordering::Release);
            Found::Last
        }
    };
    shared.task.notify();
    outcome
}
