//! What happens beside: inserts of a shell that are over. It is told above the prompt, or before the next one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustyline::ExternalPrinter;

use super::super::background::called;
use super::super::{notes, summary};
use crate::error::{Error, Phase};
use crate::session::JobHandle;

/// Tells a shell's user. A clone tells the same one.
#[derive(Clone)]
pub(in super::super) struct Notices(Arc<Mutex<Board>>);

struct Board {
    /// Writes above the prompt.
    printer: Option<Box<dyn ExternalPrinter + Send>>,
    is_at_prompt: bool,
    /// What is told before the next prompt.
    waiting: Vec<String>,
}

impl Notices {
    pub(super) fn new(printer: Option<Box<dyn ExternalPrinter + Send>>) -> Self {
        Self(Arc::new(Mutex::new(Board { printer, is_at_prompt: false, waiting: Vec::new() })))
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a line while notices are written above it.
    pub(super) fn at_prompt<T>(&self, read: impl FnOnce() -> T) -> T {
        {
            let mut board = self.board();
            board.waiting.drain(..).for_each(|text| notes::line(&text));
            board.is_at_prompt = true;
        }
        let line = read();
        self.board().is_at_prompt = false;
        line
    }

    fn tell(&self, text: String) {
        let mut board = self.board();
        let is_at_prompt = board.is_at_prompt;
        let told = match &mut board.printer {
            Some(printer) if is_at_prompt => printer.print(format!("{text}\n")).is_ok(),
            _ => false,
        };
        if !told {
            board.waiting.push(text);
        }
    }

    /// Tells when this job is over; not if its user has ended it.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(in super::super) fn watch(&self, job: JobHandle) -> Result<(), Error> {
        let notices = self.clone();
        let wait = move || {
            let text = match job.wait() {
                Ok(_) if job.is_drained() => return,
                Err(error) if error.phase() == Phase::Interrupted => return,
                Ok(summary) => {
                    format!("{} has finished: {}", called(&job), summary::lines(&summary).join("\n"))
                }
                Err(error) => format!("{} has failed: {}", called(&job), error.render()),
            };
            notices.tell(text);
        };
        let started = thread::Builder::new().name("notices".to_owned()).spawn(wait);
        started.map(|_| ()).map_err(|error| Error::internal("shell", error))
    }
}
