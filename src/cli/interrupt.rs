//! Signals: Ctrl-C stops the running jobs, SIGTERM drains them and ends a shell; one more ends them at once, a
//! third one the process.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use super::{keys, notes};
use crate::error::{Error, code};
use crate::session::JobHandle;

/// How long a stopped job may clean up, also when nobody reads its output any more.
const GRACE: Duration = Duration::from_secs(3);

/// How often it was asked to stop at once.
static STOPS: AtomicUsize = AtomicUsize::new(0);
/// It was asked to drain.
static IS_DRAINED: AtomicBool = AtomicBool::new(false);
/// Tells one set of jobs from the next.
static TURN: AtomicUsize = AtomicUsize::new(0);
static IS_SHELL: AtomicBool = AtomicBool::new(false);
/// The jobs that signals are about.
static JOBS: Mutex<Vec<(usize, JobHandle)>> = Mutex::new(Vec::new());
/// Those that a shell has in the background: Ctrl-C is not about them.
static BACKGROUND: Mutex<Vec<JobHandle>> = Mutex::new(Vec::new());
/// The run took longer than it may.
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// While it lives, signals are about this job, too.
pub(super) struct Watch(usize);

/// Makes signals end this job.
pub(super) fn watch(job: JobHandle) -> Watch {
    install();
    let turn = TURN.fetch_add(1, Ordering::AcqRel);
    jobs().push((turn, job.clone()));
    // The signal may have come just before.
    if is_interrupted() {
        job.stop();
    } else if is_drained() {
        job.drain();
    }
    Watch(turn)
}

/// Makes the end of a shell wait for this job.
pub(super) fn keep(job: JobHandle) {
    let mut kept = BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner);
    kept.retain(|job| job.wait_for(Duration::ZERO).is_none());
    kept.push(job);
}

/// From now on Ctrl-C without a running job ends nothing: a shell looks at it.
pub(super) fn stay() {
    install();
    IS_SHELL.store(true, Ordering::Release);
}

fn install() {
    static INSTALL: Once = Once::new();
    // Without a handler the system's own way remains: the signal ends the process.
    INSTALL.call_once(|| drop(listen()));
}

#[cfg(unix)]
fn listen() -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let take = move || {
        for signal in signals.forever() {
            if signal == SIGTERM { on_terminate() } else { on_interrupt() }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(take).map(|_| ())
}

#[cfg(not(unix))]
fn listen() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(on_interrupt)
}

/// Whether everything is to stop at once.
pub(super) fn is_interrupted() -> bool {
    STOPS.load(Ordering::Acquire) > 0
}

/// Whether everything is to end as if its input had ended.
pub(super) fn is_drained() -> bool {
    IS_DRAINED.load(Ordering::Acquire)
}

/// Ends the run when it has taken this long.
///
/// # Errors
/// There is no thread for it.
pub(super) fn end_after(longest: Duration) -> std::io::Result<()> {
    install();
    let wait = move || {
        thread::sleep(longest);
        IS_LATE.store(true, Ordering::Release);
        if jobs().is_empty() {
            notes::error(&reason());
            end();
        }
        on_interrupt();
    };
    thread::Builder::new().name("timeout".to_owned()).spawn(wait).map(|_| ())
}

/// Whether the run took longer than it may.
pub(super) fn is_late() -> bool {
    IS_LATE.load(Ordering::Acquire)
}

/// Why everything is to stop at once.
pub(super) fn reason() -> Error {
    match is_late() {
        true => Error::run(code::TIMED_OUT, "the run took longer than --timeout allows")
            .hint("Allow more time; SIGTERM ends a run as if its input had ended."),
        false => Error::interrupted(),
    }
}

/// Forgets that Ctrl-C was pressed: a shell goes on.
pub(super) fn clear() {
    STOPS.store(0, Ordering::Release);
}

fn jobs() -> MutexGuard<'static, Vec<(usize, JobHandle)>> {
    JOBS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn on_interrupt() {
    let is_first = STOPS.fetch_add(1, Ordering::AcqRel) == 0;
    let is_shell = IS_SHELL.load(Ordering::Acquire);
    let jobs = jobs();
    match jobs.is_empty() {
        false if is_first => {
            jobs.iter().for_each(|(_, job)| job.suspend());
            // A checkpoint takes the time that it takes; who does not want to wait asks once more.
            let waits = jobs.iter().any(|(_, job)| job.checkpoints().is_some());
            let turn = TURN.load(Ordering::Acquire);
            thread::spawn(move || if waits { tell_after_grace(turn) } else { end_after_grace(turn) });
        }
        true if is_first && is_shell => {}
        _ => end(),
    }
}

#[cfg(unix)]
fn on_terminate() {
    let mut running: Vec<JobHandle> = jobs().iter().map(|(_, job)| job.clone()).collect();
    running.extend(BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
    // Nobody drains what does not run.
    if running.is_empty() {
        end();
    }
    if IS_DRAINED.swap(true, Ordering::AcqRel) {
        return on_interrupt();
    }
    for job in &running {
        match job.checkpoints() {
            Some(_) => job.suspend(),
            None => job.drain(),
        }
    }
    if IS_SHELL.load(Ordering::Acquire) {
        // A shell waits for keys that nobody will press.
        thread::spawn(move || {
            running.retain(|job| job.wait().is_err());
            keys::leave();
            process::exit(i32::from(!running.is_empty()));
        });
    }
}

/// Ends the process if the stopped jobs are still there: their output may be blocked.
fn end_after_grace(turn: usize) {
    thread::sleep(GRACE);
    if TURN.load(Ordering::Acquire) == turn && !jobs().is_empty() {
        end();
    }
}

/// Says what is waited for, if that takes long.
fn tell_after_grace(turn: usize) {
    thread::sleep(GRACE);
    if TURN.load(Ordering::Acquire) == turn && !jobs().is_empty() {
        notes::line("the last checkpoint is on its way; Ctrl-C once more ends the run without it");
    }
}

fn end() -> ! {
    keys::leave();
    process::exit(i32::from(reason().exit_code()))
}

impl Drop for Watch {
    fn drop(&mut self) {
        jobs().retain(|(turn, _)| *turn != self.0);
    }
}
