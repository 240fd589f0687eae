//! Ctrl-C: the first one stops the running job, the second one the process.

use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use crate::runtime::Canceller;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static JOB: Mutex<Option<Canceller>> = Mutex::new(None);

/// While it lives, Ctrl-C stops this job first.
pub(super) struct Watch(());

/// Makes Ctrl-C stop this job.
pub(super) fn watch(job: Canceller) -> Watch {
    static INSTALL: Once = Once::new();
    // Without a handler the system's own way remains: Ctrl-C ends the process.
    INSTALL.call_once(|| drop(ctrlc::set_handler(on_interrupt)));
    *running() = Some(job);
    Watch(())
}

/// Whether Ctrl-C was pressed.
pub(super) fn is_interrupted() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Forgets that Ctrl-C was pressed: a shell goes on.
pub(super) fn clear() {
    COUNT.store(0, Ordering::Release);
}

fn running() -> MutexGuard<'static, Option<Canceller>> {
    JOB.lock().unwrap_or_else(PoisonError::into_inner)
}

fn on_interrupt() {
    let is_first = COUNT.fetch_add(1, Ordering::AcqRel) == 0;
    match running().as_ref() {
        Some(job) if is_first => job.cancel(),
        _ => process::exit(130),
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *running() = None;
    }
}
