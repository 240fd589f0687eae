//! Ctrl-C: the first one stops the running job, the second one the process.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use super::keys;
use crate::session::JobHandle;

/// How long a stopped job may clean up, also when nobody reads its output any more.
const GRACE: Duration = Duration::from_secs(3);

static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Tells one job from the next.
static JOBS: AtomicUsize = AtomicUsize::new(0);
static IS_SHELL: AtomicBool = AtomicBool::new(false);
static JOB: Mutex<Option<JobHandle>> = Mutex::new(None);

/// While it lives, Ctrl-C stops this job first.
pub(super) struct Watch(());

/// Makes Ctrl-C stop this job.
pub(super) fn watch(job: JobHandle) -> Watch {
    install();
    JOBS.fetch_add(1, Ordering::AcqRel);
    *running() = Some(job);
    Watch(())
}

/// From now on Ctrl-C without a running job ends nothing: a shell looks at it.
pub(super) fn stay() {
    install();
    IS_SHELL.store(true, Ordering::Release);
}

fn install() {
    static INSTALL: Once = Once::new();
    // Without a handler the system's own way remains: Ctrl-C ends the process.
    INSTALL.call_once(|| drop(ctrlc::set_handler(on_interrupt)));
}

/// Whether Ctrl-C was pressed.
pub(super) fn is_interrupted() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Forgets that Ctrl-C was pressed: a shell goes on.
pub(super) fn clear() {
    COUNT.store(0, Ordering::Release);
}

fn running() -> MutexGuard<'static, Option<JobHandle>> {
    JOB.lock().unwrap_or_else(PoisonError::into_inner)
}

fn on_interrupt() {
    let is_first = COUNT.fetch_add(1, Ordering::AcqRel) == 0;
    match running().as_ref() {
        Some(job) if is_first => {
            job.stop();
            let stopped = JOBS.load(Ordering::Acquire);
            thread::spawn(move || end_after_grace(stopped));
        }
        None if is_first && IS_SHELL.load(Ordering::Acquire) => {}
        _ => end(),
    }
}

/// Ends the process if the stopped job is still there: its output may be blocked.
fn end_after_grace(stopped: usize) {
    thread::sleep(GRACE);
    if JOBS.load(Ordering::Acquire) == stopped && running().is_some() {
        end();
    }
}

fn end() -> ! {
    keys::restore();
    process::exit(130)
}

impl Drop for Watch {
    fn drop(&mut self) {
        *running() = None;
    }
}
