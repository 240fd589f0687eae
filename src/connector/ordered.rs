//! Work that a few threads do ahead, and whose results come in the order in which it was given.
//!
//! Invariant: nothing here knows what the work is; a result never depends on which thread did it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Error;

/// Threads, the work that was given to them, and its results. They end when it is dropped.
pub(super) struct Ordered<J, R> {
    shared: Arc<Shared<J, R>>,
    in_flight: usize,
}

struct Shared<J, R> {
    queue: Mutex<Queue<J, R>>,
    given: Condvar,
    done: Condvar,
}

struct Queue<J, R> {
    /// What nobody has begun.
    jobs: VecDeque<(u64, J)>,
    /// A place for the result of each job that is in flight, the oldest first.
    results: VecDeque<Option<Result<R, Error>>>,
    /// The number of the oldest.
    oldest: u64,
    closed: bool,
}

impl<J, R> Shared<J, R> {
    fn queue(&self) -> MutexGuard<'_, Queue<J, R>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J: Send + 'static, R: Send + 'static> Ordered<J, R> {
    /// Starts a thread for each of the workers.
    ///
    /// # Errors
    /// An internal error if a thread can't be started.
    pub(super) fn start<W>(name: &str, workers: impl IntoIterator<Item = W>) -> Result<Self, Error>
    where
        W: FnMut(J) -> Result<R, Error> + Send + 'static,
    {
        let queue = Queue { jobs: VecDeque::new(), results: VecDeque::new(), oldest: 0, closed: false };
        let shared =
            Arc::new(Shared { queue: Mutex::new(queue), given: Condvar::new(), done: Condvar::new() });
        let ordered = Self { shared, in_flight: 0 };
        for (number, worker) in workers.into_iter().enumerate() {
            let shared = Arc::clone(&ordered.shared);
            std::thread::Builder::new()
                .name(format!("{name} {number}"))
                .spawn(move || work(&shared, worker))
                .map_err(|error| Error::internal("source", error))?;
        }
        Ok(ordered)
    }

    /// Jobs whose results were not taken.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Gives work, the result of which comes after those of all that was given before.
    pub(super) fn give(&mut self, job: J) {
        let mut queue = self.shared.queue();
        let number = queue.oldest + self.in_flight as u64;
        queue.jobs.push_back((number, job));
        queue.results.push_back(None);
        self.in_flight += 1;
        self.shared.given.notify_one();
    }

    /// Waits for the oldest result that was not taken; `None` if there is no work.
    ///
    /// # Errors
    /// What the work failed with; an internal error if it panicked.
    pub(super) fn take(&mut self) -> Option<Result<R, Error>> {
        let mut queue = self.shared.queue();
        loop {
            if let Some(result) = queue.results.front_mut()?.take() {
                queue.results.pop_front();
                queue.oldest += 1;
                self.in_flight -= 1;
                return Some(result);
            }
            queue = self.shared.done.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<J, R> Drop for Ordered<J, R> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.closed = true;
        queue.jobs.clear();
        self.shared.given.notify_all();
    }
}

fn work<J, R>(shared: &Shared<J, R>, mut worker: impl FnMut(J) -> Result<R, Error>) {
    let mut queue = shared.queue();
    while !queue.closed {
        let Some((number, job)) = queue.jobs.pop_front() else {
            queue = shared.given.wait(queue).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(queue);
        let result = catch_unwind(AssertUnwindSafe(|| worker(job)))
            .unwrap_or_else(|_| Err(Error::internal("source", "a thread that reads ahead panicked")));
        queue = shared.queue();
        let place = (number - queue.oldest) as usize;
        if let Some(place) = queue.results.get_mut(place) {
            *place = Some(result);
        }
        shared.done.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_work() {
        // The first job ends after the second has: one worker waits for the other.
        let (sender, receiver) = channel();
        let receiver = Mutex::new(Some(receiver));
        let worker = Arc::new(move |job: u32| match job {
            0 => {
                let receiver = receiver.lock().unwrap().take().unwrap();
                Ok(receiver.recv().unwrap())
            }
            1 => {
                sender.send(7).unwrap();
                Ok(1)
            }
            2 => Err(Error::internal("test", "two")),
            _ => panic!("three"),
        });
        let workers = (0..2).map(|_| {
            let worker = Arc::clone(&worker);
            move |job| worker(job)
        });
        let mut ordered = Ordered::start("test", workers).unwrap();
        assert!(ordered.take().is_none());
        (0..4).for_each(|job| ordered.give(job));
        assert_eq!(ordered.in_flight(), 4);
        assert_eq!(ordered.take(), Some(Ok(7)));
        assert_eq!(ordered.take(), Some(Ok(1)));
        assert!(ordered.take().unwrap().unwrap_err().message().contains("two"));
        assert!(ordered.take().unwrap().unwrap_err().message().contains("panicked"));
        assert!(ordered.take().is_none());
    }
}
