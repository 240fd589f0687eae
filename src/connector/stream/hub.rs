//! What was pushed into a stream and not read by all who read it: one log for each split, bounded in
//! rows, and how far each reader is.
//!
//! A reader that comes first gets all that waits. Others get what is pushed from now on; but the readers
//! of one job begin at the same place, whatever comes between the openings of them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::Thread;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::StreamTable;
use crate::connector::CancelToken;
use crate::error::{Error, code};
use crate::stream::Watermark;

/// What a split hands to its readers.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Rows(RecordBatch),
    Watermark(Watermark),
    Idle,
    Active,
    End,
    Fail(Error),
}

/// What a split has said of itself up to some place of its log.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    watermark: Option<Watermark>,
    idle: bool,
}

impl Told {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Rows(_) | Event::Active => self.idle = false,
            Event::Watermark(watermark) => self.watermark = Some(*watermark),
            Event::Idle => self.idle = true,
            Event::End | Event::Fail(_) => {}
        }
    }

    /// The same as events.
    fn events(self) -> VecDeque<Event> {
        let idle = self.idle.then_some(Event::Idle);
        self.watermark.map(Event::Watermark).into_iter().chain(idle).collect()
    }
}

/// The log of a split.
#[derive(Debug, Default)]
struct Split {
    name: String,
    events: VecDeque<Event>,
    /// The number of the first event that is kept.
    base: u64,
    /// Up to there, and up to now.
    told_at_base: Told,
    told: Told,
    rows: usize,
    /// `End` or `Fail` was given.
    ended: bool,
    /// Handles that may still push.
    handles: usize,
}

impl Split {
    fn end(&self) -> u64 {
        self.base + self.events.len() as u64
    }
}

/// One source that reads the stream.
#[derive(Debug)]
struct Reader {
    id: u64,
    /// Its job.
    cancel: CancelToken,
    /// For each split, the number of the event that comes next.
    next: Vec<u64>,
    /// For each split, what it was told before its place.
    before: Vec<Told>,
    /// It has not read yet.
    is_new: bool,
}

type Pump = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    splits: Vec<Split>,
    readers: Vec<Reader>,
    next_reader: u64,
    /// It was read once: it has all of its splits.
    was_read: bool,
    /// The table is gone.
    dropped: bool,
    /// The session is gone: nobody will read who does not read now.
    detached: bool,
    /// Who waits for room without a thread.
    wakers: Vec<Waker>,
    /// What is to be started with the first reader, and its thread, while it runs.
    pump: Option<Pump>,
    pumping: Option<Thread>,
}

/// A stream.
pub(super) struct Hub {
    table: StreamTable,
    state: Mutex<State>,
    /// For readers.
    given: Condvar,
    /// For those who push.
    taken: Condvar,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("name", &self.table.name).finish_non_exhaustive()
    }
}

/// Whether an event was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    /// There is no room.
    Full,
}

/// What a reader is given.
pub(super) enum Given {
    Event(Event),
    Nothing,
}

impl Hub {
    /// A stream of one split.
    pub(super) fn new(table: StreamTable) -> Self {
        let split = Split { name: table.name.clone(), handles: 1, ..Split::default() };
        let state = State { splits: vec![split], ..State::default() };
        Self { table, state: Mutex::new(state), given: Condvar::new(), taken: Condvar::new() }
    }

    pub(super) fn table(&self) -> &StreamTable {
        &self.table
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.table.schema
    }

    /// No code that holds the lock can leave the state half changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn misuse(&self, what: &str, hint: &str) -> Error {
        Error::run(code::STREAM_MISUSE, format!("stream \"{}\": {what}", self.table.name)).hint(hint)
    }

    /// Adds a split and its first handle.
    pub(super) fn add_split(&self, name: &str) -> Result<usize, Error> {
        let mut state = self.state();
        if state.was_read {
            return Err(self.misuse(
                &format!("the split \"{name}\" comes too late, a query reads the stream"),
                "Add all splits before the first query starts, so that each holds event time back.",
            ));
        }
        if state.splits.iter().any(|split| split.name == name) {
            let what = format!("there is a split \"{name}\" already");
            return Err(self.misuse(&what, "Choose another name, or clone its handle."));
        }
        state.splits.push(Split { name: name.to_owned(), handles: 1, ..Split::default() });
        Ok(state.splits.len() - 1)
    }

    pub(super) fn split_name(&self, split: usize) -> String {
        self.state().splits[split].name.clone()
    }

    pub(super) fn splits(&self) -> usize {
        self.state().splits.len()
    }

    pub(super) fn rows_waiting(&self, split: usize) -> usize {
        self.state().splits[split].rows
    }

    /// Whether nobody can read what is pushed now.
    fn check_open(&self, state: &mut State, split: usize) -> Result<(), Error> {
        self.forget_stopped(state);
        if state.dropped {
            return Err(self.misuse("its table was dropped", "Register it again."));
        }
        if state.splits[split].ended {
            let name = &state.splits[split].name;
            return Err(
                self.misuse(&format!("the split \"{name}\" has ended"), "Push everything before you end it.")
            );
        }
        if state.detached && state.readers.is_empty() {
            return Err(self.misuse("its session is gone, and with it all who read", "Stop pushing."));
        }
        Ok(())
    }

    /// The reader of a job that is over may still wait in a thread of its own: it takes no more rows.
    fn forget_stopped(&self, state: &mut State) {
        let before = state.readers.len();
        state.readers.retain(|reader| !reader.cancel.is_cancelled());
        if state.readers.len() < before && !state.readers.is_empty() {
            for split in 0..state.splits.len() {
                trim(state, split, self.table.capacity_rows);
            }
        }
    }

    /// Puts an event behind the others, if there is room for its rows. `waits`: that it comes from a
    /// pump, for which it is no fault that nobody reads.
    fn try_put(&self, state: &mut State, split: usize, event: &Event, waits: bool) -> Result<Taken, Error> {
        self.check_open(state, split)?;
        let rows = match event {
            Event::Rows(rows) => rows.num_rows(),
            _ => 0,
        };
        let capacity = self.table.capacity_rows;
        if rows > 0 && state.splits[split].rows >= capacity {
            if !state.readers.is_empty() || waits {
                return Ok(Taken::Full);
            }
            let what = format!("no query reads it, and {capacity} rows wait already");
            return Err(self.misuse(&what, "Start the query first, or push again when it runs."));
        }
        let log = &mut state.splits[split];
        if let Event::Watermark(watermark) = event {
            match log.told.watermark {
                Some(before) if *watermark < before => {
                    let what = format!(
                        "the watermark {} is before {}, which was told already",
                        watermark.0, before.0
                    );
                    return Err(self.misuse(&what, "Give watermarks that only grow."));
                }
                Some(before) if *watermark == before => return Ok(Taken::Yes),
                // Who speaks is not idle.
                _ if log.told.idle => push(log, Event::Active),
                _ => {}
            }
        }
        let says_nothing = match event {
            Event::Idle => log.told.idle,
            Event::Active => !log.told.idle,
            _ => false,
        };
        if !says_nothing {
            log.rows += rows;
            push(log, event.clone());
            self.given.notify_all();
        }
        Ok(Taken::Yes)
    }

    /// Puts an event behind the others, or says that there is no room.
    pub(super) fn try_give(&self, split: usize, event: &Event) -> Result<Taken, Error> {
        self.try_put(&mut self.state(), split, event, false)
    }

    /// The same; `waker` is woken when there may be room.
    pub(super) fn poll_give(&self, split: usize, event: &Event, waker: &Waker) -> Result<Taken, Error> {
        let mut state = self.state();
        let taken = self.try_put(&mut state, split, event, false)?;
        if taken == Taken::Full {
            state.wakers.push(waker.clone());
        }
        Ok(taken)
    }

    /// Puts an event behind the others; waits for room.
    pub(super) fn give(&self, split: usize, event: &Event, is_pump: bool) -> Result<(), Error> {
        let mut state = self.state();
        while self.try_put(&mut state, split, event, is_pump)? == Taken::Full {
            state = self.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Ends a split; nothing for one that has ended.
    pub(super) fn end(&self, split: usize, how: Event) {
        let mut state = self.state();
        let log = &mut state.splits[split];
        if !log.ended {
            log.ended = true;
            push(log, how);
        }
        drop(state);
        self.given.notify_all();
        self.wake_all();
    }

    pub(super) fn add_handle(&self, split: usize) {
        self.state().splits[split].handles += 1;
    }

    /// A handle is gone; with the last one the split ends by `how`.
    pub(super) fn drop_handle(&self, split: usize, how: impl FnOnce() -> Event) {
        let mut state = self.state();
        let log = &mut state.splits[split];
        log.handles -= 1;
        let is_last = log.handles == 0;
        drop(state);
        if is_last {
            self.end(split, how());
        }
    }

    /// What is started when the stream is read first.
    pub(super) fn set_pump(&self, pump: Pump) {
        self.state().pump = Some(pump);
    }

    /// Adds a reader, with the places of its splits.
    pub(super) fn open(self: &Arc<Self>, cancel: &CancelToken) -> Result<ReaderHandle, Error> {
        let mut state = self.state();
        self.forget_stopped(&mut state);
        state.was_read = true;
        let sibling = state.readers.iter().find(|reader| reader.is_new && reader.cancel.is_same(cancel));
        let (next, before) = match sibling {
            Some(sibling) => (sibling.next.clone(), sibling.before.clone()),
            None if state.readers.is_empty() => {
                state.splits.iter().map(|split| (split.base, split.told_at_base)).unzip()
            }
            None => state.splits.iter().map(|split| (split.end(), split.told)).unzip(),
        };
        let id = state.next_reader;
        state.next_reader += 1;
        state.readers.push(Reader { id, cancel: cancel.clone(), next, before, is_new: true });
        let pump = state.pump.take();
        drop(state);
        let handle = ReaderHandle { hub: Arc::clone(self), id };
        if let Some(pump) = pump {
            let started = std::thread::Builder::new().name(format!("pump {}", self.table.name)).spawn(pump);
            let thread = started.map_err(|error| Error::internal("stream", error))?.thread().clone();
            self.state().pumping = Some(thread);
        }
        Ok(handle)
    }

    /// The table was dropped: readers come to an end with what they have.
    pub(super) fn drop_table(&self) {
        let pump = {
            let mut state = self.state();
            state.dropped = true;
            state.pump.take()
        };
        // It has handles of its own.
        drop(pump);
        self.given.notify_all();
        self.wake_all();
    }

    /// The session is gone.
    pub(super) fn detach(&self) {
        let pump = {
            let mut state = self.state();
            state.detached = true;
            state.pump.take()
        };
        drop(pump);
        self.wake_all();
    }

    /// Whether nobody reads, and nobody will.
    pub(super) fn is_deserted(&self) -> bool {
        let mut state = self.state();
        self.forget_stopped(&mut state);
        state.dropped || (state.detached && state.readers.is_empty())
    }

    /// There may be room, or no more use in waiting for it.
    fn wake_all(&self) {
        let mut state = self.state();
        let (wakers, pumping) = (std::mem::take(&mut state.wakers), state.pumping.clone());
        drop(state);
        self.taken.notify_all();
        wakers.into_iter().for_each(Waker::wake);
        if let Some(thread) = pumping {
            thread.unpark();
        }
    }
}

/// Appends an event to a log.
fn push(log: &mut Split, event: Event) {
    log.told.take(&event);
    log.events.push_back(event);
}

/// A reader of a stream; it is one until this is dropped.
#[derive(Debug)]
pub(super) struct ReaderHandle {
    hub: Arc<Hub>,
    id: u64,
}

impl ReaderHandle {
    /// What splits have said before the reader came, as events.
    pub(super) fn told(&self, split: usize) -> VecDeque<Event> {
        let state = self.hub.state();
        let reader = state.readers.iter().find(|reader| reader.id == self.id);
        reader.map(|reader| reader.before[split].events()).unwrap_or_default()
    }

    /// The next event of a split; waits so long for one.
    pub(super) fn next(&self, split: usize, wait: Duration) -> Given {
        let mut state = self.hub.state();
        let Some(mut place) = state.readers.iter().position(|reader| reader.id == self.id) else {
            // Its job is over: that is no end of the input.
            return Given::Nothing;
        };
        state.readers[place].is_new = false;
        if state.readers[place].next[split] == state.splits[split].end()
            && !state.splits[split].ended
            && !state.dropped
            && !wait.is_zero()
        {
            let waited = self.hub.given.wait_timeout(state, wait);
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard);
            // Others may have gone meanwhile.
            let found = state.readers.iter().position(|reader| reader.id == self.id);
            let Some(found) = found else { return Given::Nothing };
            place = found;
        }
        if state.readers[place].cancel.is_cancelled() {
            return Given::Nothing;
        }
        let (log, next) = (&state.splits[split], state.readers[place].next[split]);
        let Some(event) = log.events.get(usize::try_from(next - log.base).unwrap_or(usize::MAX)).cloned()
        else {
            let is_over = log.ended || state.dropped;
            return if is_over { Given::Event(Event::End) } else { Given::Nothing };
        };
        state.readers[place].next[split] += 1;
        let made_room = trim(&mut state, split, self.hub.table.capacity_rows);
        drop(state);
        if made_room {
            self.hub.wake_all();
        }
        Given::Event(event)
    }
}

impl Drop for ReaderHandle {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        state.readers.retain(|reader| reader.id != self.id);
        if !state.readers.is_empty() {
            for split in 0..state.splits.len() {
                trim(&mut state, split, self.hub.table.capacity_rows);
            }
        }
        drop(state);
        self.hub.wake_all();
    }
}

/// Forgets what all readers have read; whether there is room now that there was not before.
fn trim(state: &mut State, split: usize, capacity_rows: usize) -> bool {
    let Some(lowest) = state.readers.iter().map(|reader| reader.next[split]).min() else { return false };
    let log = &mut state.splits[split];
    let was_full = log.rows >= capacity_rows;
    while log.base < lowest {
        let Some(event) = log.events.pop_front() else { break };
        log.told_at_base.take(&event);
        if let Event::Rows(rows) = &event {
            log.rows -= rows.num_rows();
        }
        log.base += 1;
    }
    was_full && log.rows < capacity_rows
}
