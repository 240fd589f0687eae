//! The ends of a stream that a program holds: a handle to push into, and pumps for what can be pulled.

use std::fmt::Display;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use arrow::record_batch::RecordBatch;
use futures_core::Stream;

use super::hub::{Event, Hub, Taken};
use super::{StreamEvent, type_fault};
use crate::error::{Error, panic_text};
use crate::stream::Watermark;

/// Feeds a table of a program: rows, watermarks, silence, the end.
///
/// A clone pushes into the same split. When the last one is dropped the split ends, as
/// [`StreamInput::end`] ends it; or, if that happens because its thread panics, the queries that read
/// it fail.
///
/// Rows wait until a query reads them, [`capacity_rows`](super::StreamTable::capacity_rows) of them at
/// most: then [`push`](StreamInput::push) waits. Push from another thread than the one that takes the
/// rows of the query, or use [`try_push`](StreamInput::try_push).
#[derive(Debug)]
pub struct StreamInput {
    hub: Arc<Hub>,
    split: usize,
}

impl StreamInput {
    /// The handle of a split that is there.
    pub(super) fn new(hub: &Arc<Hub>, split: usize) -> Self {
        Self { hub: Arc::clone(hub), split }
    }

    /// Another split of the same stream, with a watermark and an idleness of its own. To be added
    /// before the first query reads the stream.
    ///
    /// # Errors
    /// `R011` if a query has read the stream, or the name is taken.
    pub fn split(&self, name: &str) -> Result<Self, Error> {
        Ok(Self::new(&self.hub, self.hub.add_split(name)?))
    }

    /// Gives rows. Waits while as many rows as the stream holds wait to be read.
    ///
    /// # Errors
    /// `F002` if the columns are not those of the table, or one that is NOT NULL has a NULL; `R011`
    /// after the end, and if the stream is full and no query reads it.
    pub fn push(&self, rows: &RecordBatch) -> Result<(), Error> {
        self.hub.give(self.split, &self.rows(rows)?, false)
    }

    /// Gives rows if there is room for them, without waiting. `false`: there is none.
    ///
    /// # Errors
    /// As [`StreamInput::push`].
    pub fn try_push(&self, rows: &RecordBatch) -> Result<bool, Error> {
        Ok(self.hub.try_give(self.split, &self.rows(rows)?)? == Taken::Yes)
    }

    /// Gives rows; waits for room without holding a thread, in any executor.
    ///
    /// # Errors
    /// As [`StreamInput::push`].
    pub fn push_async(&self, rows: &RecordBatch) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (hub, split, event) = (Arc::clone(&self.hub), self.split, self.rows(rows));
        std::future::poll_fn(move |cx| {
            let taken = event.clone().and_then(|event| hub.poll_give(split, &event, cx.waker()));
            match taken {
                Ok(Taken::Yes) => Poll::Ready(Ok(())),
                Ok(Taken::Full) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            }
        })
    }

    /// Says that no row up to this event time will come; one that comes all the same is late. A split
    /// that was idle is active again.
    ///
    /// # Errors
    /// `R011` if it is before one that was told, after the end, and for a table without event time.
    pub fn advance(&self, watermark: Watermark) -> Result<(), Error> {
        if self.hub.table().time.is_none() {
            return Err(self.hub.misuse(
                "it has no event time that a watermark could be of",
                "Name its time column with StreamTable::event_time or StreamTable::watermark.",
            ));
        }
        self.hub.give(self.split, &Event::Watermark(watermark), false)
    }

    /// Says that the split has nothing to say: event time does not wait for it until its next row,
    /// watermark, or [`StreamInput::active`].
    ///
    /// # Errors
    /// `R011` after the end.
    pub fn idle(&self) -> Result<(), Error> {
        self.hub.give(self.split, &Event::Idle, false)
    }

    /// Says that the split counts again, though it has no rows yet.
    ///
    /// # Errors
    /// `R011` after the end.
    pub fn active(&self) -> Result<(), Error> {
        self.hub.give(self.split, &Event::Active, false)
    }

    /// Ends the split: nothing will come any more. With its last split the table ends, and the queries
    /// over it.
    pub fn end(&self) {
        self.hub.end(self.split, Event::End);
    }

    /// Ends the split because rows are missing: the queries that read it fail with this reason.
    pub fn fail(&self, reason: impl Display) {
        self.hub.end(self.split, self.failure(&reason));
    }

    /// Rows that wait until all queries have read them.
    pub fn rows_waiting(&self) -> usize {
        self.hub.rows_waiting(self.split)
    }

    fn failure(&self, reason: &dyn Display) -> Event {
        let what = format!("its split \"{}\" failed: {reason}", self.hub.split_name(self.split));
        Event::Fail(self.hub.misuse(&what, "Mend what feeds it, and run the query again."))
    }

    fn rows(&self, rows: &RecordBatch) -> Result<Event, Error> {
        match type_fault(self.hub.table(), rows) {
            None => Ok(Event::Rows(rows.clone())),
            Some(fault) => Err(fault),
        }
    }

    /// Takes what a pump has got.
    fn pump_event(&self, event: StreamEvent) -> Result<(), Error> {
        let event = match event {
            StreamEvent::Rows(rows) => self.rows(&rows)?,
            StreamEvent::Watermark(watermark) if self.hub.table().time.is_none() => {
                return self.advance(watermark);
            }
            StreamEvent::Watermark(watermark) => Event::Watermark(watermark),
            StreamEvent::Idle => Event::Idle,
            StreamEvent::Active => Event::Active,
        };
        self.hub.give(self.split, &event, true)
    }

    /// Pushes what comes out of an iterator, once somebody reads.
    pub(super) fn pull_iter<T, E>(self, rows: impl Iterator<Item = Result<T, E>> + Send + 'static)
    where
        T: Into<StreamEvent>,
        E: Display,
    {
        let hub = Arc::clone(&self.hub);
        hub.set_pump(Box::new(move || {
            self.guarded(|| {
                for item in rows {
                    let given = item.map_err(|error| error.to_string());
                    if !self.take(given) {
                        return;
                    }
                }
            });
        }));
    }

    /// Pushes what comes out of an asynchronous stream, once somebody reads.
    pub(super) fn pull_stream<T, E>(self, rows: impl Stream<Item = Result<T, E>> + Send + 'static)
    where
        T: Into<StreamEvent>,
        E: Display,
    {
        let hub = Arc::clone(&self.hub);
        hub.set_pump(Box::new(move || {
            self.guarded(|| {
                let mut rows = pin!(rows);
                let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
                let mut cx = Context::from_waker(&waker);
                loop {
                    match rows.as_mut().poll_next(&mut cx) {
                        Poll::Ready(Some(item)) => {
                            if !self.take(item.map_err(|error| error.to_string())) {
                                return;
                            }
                        }
                        Poll::Ready(None) => return,
                        // A wake that came before makes it return at once.
                        Poll::Pending if self.hub.is_deserted() => return,
                        Poll::Pending => std::thread::park(),
                    }
                }
            });
        }));
    }

    /// One item of a pump; whether it goes on.
    fn take<T: Into<StreamEvent>>(&self, item: Result<T, String>) -> bool {
        match item {
            Ok(event) => match self.pump_event(event.into()) {
                Ok(()) => true,
                Err(error) => {
                    self.hub.end(self.split, Event::Fail(error));
                    false
                }
            },
            Err(reason) => {
                self.fail(reason);
                false
            }
        }
    }

    fn guarded(&self, pump: impl FnOnce()) {
        match catch_unwind(AssertUnwindSafe(pump)) {
            Ok(()) => self.end(),
            Err(panic) => self.fail(format_args!("it panicked: {}", panic_text(panic.as_ref()))),
        }
    }
}

impl Clone for StreamInput {
    fn clone(&self) -> Self {
        self.hub.add_handle(self.split);
        Self::new(&self.hub, self.split)
    }
}

impl Drop for StreamInput {
    fn drop(&mut self) {
        let is_panicking = std::thread::panicking();
        self.hub.drop_handle(self.split, || match is_panicking {
            true => {
                // The name is not asked for: the handle may be dropped by whoever holds the lock.
                let what = "the thread that feeds it panicked";
                Event::Fail(self.hub.misuse(what, "Mend what feeds it, and run the query again."))
            }
            false => Event::End,
        });
    }
}

/// Wakes the thread of a pump.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
