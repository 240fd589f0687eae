//! Channels between tasks: bounded by rows, of which wide ones count as several, with one thread at each end.
//!
//! The bound is soft on purpose: a task looks for room in all of its outputs before it takes the
//! next input element, and then hands on everything that this element gives. So whatever a blocked
//! task has taken in, all of its consumers have been told of, and tasks that wait for each other's
//! watermarks can't wait in a circle.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::stream::{StreamElement, StreamStatus, Watermark};

/// Locks, also when another thread panicked while it held the lock: what is guarded here is whole
/// between any two statements, and the panic itself ends the job.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a task sleeps on. One a task; everybody who changes something for it notifies it.
#[derive(Debug, Default)]
pub(super) struct Signal {
    raised: Mutex<Raised>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Raised {
    is_raised: bool,
    /// Somebody sleeps. To wake nobody costs a call of the system, too.
    is_waited_for: bool,
    /// Of one who waits without a thread.
    waker: Option<Waker>,
}

impl Signal {
    /// Wakes the task, or keeps it from its next sleep.
    pub(super) fn notify(&self) {
        let (waker, sleeps) = {
            let mut raised = lock(&self.raised);
            let is_first = !std::mem::replace(&mut raised.is_raised, true);
            (raised.waker.take(), is_first && raised.is_waited_for)
        };
        if sleeps {
            self.changed.notify_one();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Has `waker` woken by the next notification, or at once if there was one since the last look.
    pub(super) fn wake_by(&self, waker: &Waker) {
        let mut raised = lock(&self.raised);
        match std::mem::take(&mut raised.is_raised) {
            true => waker.wake_by_ref(),
            false => raised.waker = Some(waker.clone()),
        }
    }

    /// Sleeps until notified, or for `timeout`.
    pub(super) fn wait(&self, timeout: Duration) {
        let mut raised = lock(&self.raised);
        if !raised.is_raised {
            raised.is_waited_for = true;
            raised = self
                .changed
                .wait_timeout(raised, timeout)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard);
            raised.is_waited_for = false;
        }
        raised.is_raised = false;
    }
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    rows: AtomicUsize,
    /// Their room, see [`StreamBatch::load`].
    load: AtomicUsize,
    capacity_rows: usize,
    /// What the receiver has taken: the last watermark before the end, whether it is idle, the end.
    watermark: AtomicI64,
    is_idle: AtomicBool,
    is_ended: AtomicBool,
    sender: Arc<Signal>,
    receiver: Arc<Signal>,
}

#[derive(Debug, Default)]
struct Queue {
    elements: VecDeque<Waiting>,
    receiver_gone: bool,
    sender_gone: bool,
}

#[derive(Debug)]
struct Waiting {
    element: StreamElement,
    /// Its rows, and their room.
    rows: usize,
    load: usize,
    /// When it was given.
    since: Instant,
}

/// The end that gives.
#[derive(Debug)]
pub(super) struct Sender(Arc<Shared>);

/// The end that takes.
#[derive(Debug)]
pub(super) struct Receiver(Arc<Shared>);

/// What there is to take.
#[derive(Debug)]
pub(super) enum Received {
    Element(StreamElement),
    /// Nothing now.
    Empty,
    /// The sender is gone and everything has been taken.
    Closed,
}

/// A channel that has room while it holds rows of less room than `capacity_rows`, see [`StreamBatch::load`].
pub(super) fn channel(
    capacity_rows: usize,
    sender: &Arc<Signal>,
    receiver: &Arc<Signal>,
) -> (Sender, Receiver) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(Queue::default()),
        rows: AtomicUsize::new(0),
        load: AtomicUsize::new(0),
        capacity_rows,
        watermark: AtomicI64::new(Watermark::MIN.0),
        is_idle: AtomicBool::new(false),
        is_ended: AtomicBool::new(false),
        sender: Arc::clone(sender),
        receiver: Arc::clone(receiver),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

/// The rows of an element, and their room.
fn size_of(element: &StreamElement) -> (usize, usize) {
    match element {
        StreamElement::Batch(batch) => (batch.num_rows(), batch.load()),
        StreamElement::Watermark(_)
        | StreamElement::Status(_)
        | StreamElement::Latency(_)
        | StreamElement::End => (0, 0),
    }
}

impl Sender {
    /// Whether the receiver keeps up.
    pub(super) fn has_room(&self) -> bool {
        self.0.load.load(Ordering::Acquire) < self.0.capacity_rows
    }

    /// Whether somebody still listens.
    pub(super) fn is_open(&self) -> bool {
        !lock(&self.0.queue).receiver_gone
    }

    /// Hands on an element; never waits. What nobody listens to is dropped.
    pub(super) fn send(&self, element: StreamElement) {
        self.send_all([element], Instant::now());
    }

    /// Hands on elements at once, the first of which could have come at `since`; never waits.
    pub(super) fn send_all(&self, elements: impl IntoIterator<Item = StreamElement>, since: Instant) {
        {
            let mut queue = lock(&self.0.queue);
            if queue.receiver_gone {
                return;
            }
            for element in elements {
                let (rows, load) = size_of(&element);
                self.0.rows.fetch_add(rows, Ordering::AcqRel);
                self.0.load.fetch_add(load, Ordering::AcqRel);
                queue.elements.push_back(Waiting { element, rows, load, since });
            }
        }
        self.0.receiver.notify();
    }
}

/// Looks at a channel from outside.
#[derive(Debug, Clone)]
pub(super) struct ChannelProbe(Arc<Shared>);

impl Shared {
    fn waiting(&self) -> Vec<StreamElement> {
        lock(&self.queue).elements.iter().map(|waiting| waiting.element.clone()).collect()
    }
}

impl Sender {
    /// What waits to be taken.
    pub(super) fn waiting(&self) -> Vec<StreamElement> {
        self.0.waiting()
    }

    pub(super) fn probe(&self) -> ChannelProbe {
        ChannelProbe(Arc::clone(&self.0))
    }
}

impl ChannelProbe {
    /// Whether its receiver sleeps on this signal.
    pub(super) fn leads_to(&self, signal: &Arc<Signal>) -> bool {
        Arc::ptr_eq(&self.0.receiver, signal)
    }

    /// Rows that wait, and how many may.
    pub(super) fn rows(&self) -> (usize, usize) {
        (self.0.rows.load(Ordering::Relaxed), self.0.capacity_rows)
    }

    /// The last watermark that was taken.
    pub(super) fn watermark(&self) -> Option<Watermark> {
        Some(Watermark(self.0.watermark.load(Ordering::Relaxed))).filter(|known| *known > Watermark::MIN)
    }

    /// Whether it does not count for the watermark of its receiver.
    pub(super) fn is_idle(&self) -> bool {
        self.0.is_idle.load(Ordering::Relaxed)
    }

    /// Whether its end was taken.
    pub(super) fn is_ended(&self) -> bool {
        self.0.is_ended.load(Ordering::Relaxed)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        lock(&self.0.queue).sender_gone = true;
        self.0.receiver.notify();
    }
}

impl Receiver {
    /// What waits to be taken.
    pub(super) fn waiting(&self) -> Vec<StreamElement> {
        self.0.waiting()
    }

    /// Takes the next element, if there is one.
    pub(super) fn receive(&self) -> Received {
        self.receive_since().0
    }

    /// Takes the next element, if there is one, and tells when it was given.
    pub(super) fn receive_since(&self) -> (Received, Option<Instant>) {
        let Waiting { element, rows, load, since } = {
            let mut queue = lock(&self.0.queue);
            match queue.elements.pop_front() {
                Some(waiting) => waiting,
                None if queue.sender_gone => return (Received::Closed, None),
                None => return (Received::Empty, None),
            }
        };
        self.note(&element);
        self.0.rows.fetch_sub(rows, Ordering::AcqRel);
        let before = self.0.load.fetch_sub(load, Ordering::AcqRel);
        if before >= self.0.capacity_rows && before - load < self.0.capacity_rows {
            self.0.sender.notify();
        }
        (Received::Element(element), Some(since))
    }

    /// Lets others see how far the receiver is.
    fn note(&self, element: &StreamElement) {
        match element {
            StreamElement::Watermark(watermark) if *watermark < Watermark::MAX => {
                self.0.watermark.store(watermark.0, Ordering::Relaxed);
            }
            StreamElement::Status(status) => {
                self.0.is_idle.store(*status == StreamStatus::Idle, Ordering::Relaxed);
            }
            StreamElement::End => self.0.is_ended.store(true, Ordering::Relaxed),
            StreamElement::Watermark(_) | StreamElement::Batch(_) | StreamElement::Latency(_) => {}
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        {
            let mut queue = lock(&self.0.queue);
            queue.receiver_gone = true;
            queue.elements.clear();
        }
        self.0.rows.store(0, Ordering::Release);
        self.0.load.store(0, Ordering::Release);
        self.0.sender.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{StreamBatch, Watermark};
    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use std::time::Instant;

    fn batch(rows: i64) -> StreamElement {
        let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
        let column = Arc::new(Int64Array::from_iter_values(0..rows));
        let rows = RecordBatch::try_new(schema, vec![column]).unwrap();
        StreamElement::Batch(StreamBatch::inserts(rows, Instant::now()))
    }

    #[test]
    fn room_is_counted_in_rows_and_watermarks_need_none() {
        let (near, far) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
        let (sender, receiver) = channel(10, &near, &far);
        sender.send(batch(9));
        sender.send(StreamElement::Watermark(Watermark(1)));
        assert!(sender.has_room());
        sender.send(batch(5));
        assert!(!sender.has_room());
        assert!(matches!(receiver.receive(), Received::Element(StreamElement::Batch(_))));
        assert!(sender.has_room());
    }

    #[test]
    fn a_few_wide_rows_take_the_room_of_many() {
        let (near, far) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
        let (sender, receiver) = channel(100, &near, &far);
        let texts = Arc::new(StringArray::from_iter_values((0..10).map(|_| "x".repeat(10_000))));
        let rows = RecordBatch::try_from_iter([("v", texts as ArrayRef)]).unwrap();
        sender.send(StreamElement::Batch(StreamBatch::inserts(rows, Instant::now())));
        assert!(!sender.has_room());
        assert_eq!(sender.probe().rows(), (10, 100));
        assert!(matches!(receiver.receive(), Received::Element(StreamElement::Batch(_))));
        assert!(sender.has_room());
    }

    #[test]
    fn each_end_learns_that_the_other_is_gone() {
        let signal = Arc::new(Signal::default());
        let (sender, receiver) = channel(10, &signal, &signal);
        sender.send(batch(1));
        drop(sender);
        assert!(matches!(receiver.receive(), Received::Element(_)));
        assert!(matches!(receiver.receive(), Received::Closed));

        let (sender, receiver) = channel(10, &signal, &signal);
        sender.send(batch(20));
        drop(receiver);
        assert!(!sender.is_open() && sender.has_room());
    }
}
