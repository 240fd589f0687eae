//! Threads that read splits ahead of the source's task.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};

use super::super::channel::{Sender, Signal, lock};
use super::super::job::panic_text;
use super::super::merge::{Inputs, Polled};
use super::pipeline::{SplitPipeline, SplitRead};
use crate::connector::CancelToken;
use crate::error::Error;
use crate::stream::StreamElement;

/// Batches of a split that are read ahead.
const AHEAD: usize = 2;

/// The splits of a source as inputs of a merge.
pub(in super::super) struct SplitInputs {
    shared: Arc<Shared>,
    at_hand: Vec<VecDeque<StreamElement>>,
    /// Without event time the splits are read one after another.
    in_turn: bool,
    /// Where rows go that can't be read, if anywhere.
    rejects: Option<Arc<Sender>>,
}

struct Shared {
    work: Mutex<Work>,
    work_added: Condvar,
    /// The task that merges the splits.
    task: Arc<Signal>,
    cancel: CancelToken,
}

#[derive(Default)]
struct Work {
    /// Splits to read on in, first come first served.
    queue: VecDeque<(usize, SplitPipeline)>,
    slots: Vec<Slot>,
    closed: bool,
}

#[derive(Default)]
struct Slot {
    read: VecDeque<Result<SplitRead, Error>>,
    /// The split, while it has enough read ahead.
    resting: Option<SplitPipeline>,
}

impl SplitInputs {
    /// Starts `threads` readers. With `in_turn` a split is begun when the one before has ended.
    pub(in super::super) fn start(
        pipelines: Vec<SplitPipeline>,
        threads: usize,
        in_turn: bool,
        task: &Arc<Signal>,
        cancel: &CancelToken,
        name: &str,
        rejects: Option<Arc<Sender>>,
    ) -> Result<Self, Error> {
        let splits = pipelines.len();
        let mut work = Work::default();
        for (number, pipeline) in pipelines.into_iter().enumerate() {
            let mut slot = Slot::default();
            if in_turn && number > 0 {
                slot.resting = Some(pipeline);
            } else {
                work.queue.push_back((number, pipeline));
            }
            work.slots.push(slot);
        }
        let shared = Arc::new(Shared {
            work: Mutex::new(work),
            work_added: Condvar::new(),
            task: Arc::clone(task),
            cancel: cancel.clone(),
        });
        for number in 0..threads.min(splits) {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("read {name} {number}"))
                .spawn(move || read(&shared))
                .map_err(|error| Error::internal("runtime", error))?;
        }
        let at_hand = (0..splits).map(|_| VecDeque::new()).collect();
        Ok(Self { shared, at_hand, in_turn, rejects })
    }

    /// Lets the readers go on with a split that rests.
    fn wake(&self, work: &mut Work, split: usize) {
        if let Some(pipeline) = work.slots.get_mut(split).and_then(|slot| slot.resting.take()) {
            work.queue.push_back((split, pipeline));
            self.shared.work_added.notify_one();
        }
    }
}

impl Inputs for SplitInputs {
    fn len(&self) -> usize {
        self.at_hand.len()
    }

    fn poll(&mut self, input: usize) -> Result<Polled, Error> {
        if let Some(element) = self.at_hand[input].pop_front() {
            return Ok(Polled::Element(element));
        }
        let read = {
            let mut work = lock(&self.shared.work);
            let Some(read) = work.slots[input].read.pop_front() else { return Ok(Polled::Pending) };
            if work.slots[input].read.len() < AHEAD {
                self.wake(&mut work, input);
            }
            read?
        };
        if let (Some(rejects), Some(batch)) = (&self.rejects, read.rejected) {
            rejects.send(StreamElement::Batch(batch));
        }
        let read = read.elements;
        if self.in_turn && read.iter().any(|element| matches!(element, StreamElement::End)) {
            let mut work = lock(&self.shared.work);
            self.wake(&mut work, input + 1);
        }
        self.at_hand[input].extend(read);
        Ok(self.at_hand[input].pop_front().map_or(Polled::Pending, Polled::Element))
    }
}

impl Drop for SplitInputs {
    fn drop(&mut self) {
        let mut work = lock(&self.shared.work);
        work.closed = true;
        work.queue.clear();
        for slot in &mut work.slots {
            slot.resting = None;
        }
        self.shared.work_added.notify_all();
    }
}

/// The life of a reader thread: takes the split that waits longest, reads one batch of it.
fn read(shared: &Shared) {
    loop {
        let (split, mut pipeline) = {
            let mut work = lock(&shared.work);
            loop {
                if work.closed || shared.cancel.is_cancelled() {
                    return;
                }
                if let Some(next) = work.queue.pop_front() {
                    break next;
                }
                work = shared.work_added.wait(work).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        };
        let read = catch_unwind(AssertUnwindSafe(|| pipeline.next()))
            .unwrap_or_else(|panic| Err(Error::internal("source", panic_text(panic.as_ref()))));
        let goes_on = matches!(&read, Ok(read) if !matches!(read.elements.last(), Some(StreamElement::End)));
        {
            let mut work = lock(&shared.work);
            if work.closed {
                return;
            }
            work.slots[split].read.push_back(read);
            if goes_on && work.slots[split].read.len() < AHEAD {
                work.queue.push_back((split, pipeline));
            } else if goes_on {
                work.slots[split].resting = Some(pipeline);
            }
        }
        shared.task.notify();
    }
}
