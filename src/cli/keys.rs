//! Keys while a query runs: any one of them stops a query that does not end.

#[cfg(unix)]
use std::env;
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

#[cfg(unix)]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
#[cfg(unix)]
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// How the terminal was before keys were watched.
#[cfg(unix)]
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
/// How it was when the shell began.
#[cfg(unix)]
static AT_START: OnceLock<Termios> = OnceLock::new();

/// While it lives, keys are not shown and do not wait for Enter. Ctrl-C stays Ctrl-C.
pub(super) struct Keys(());

#[cfg(unix)]
impl Keys {
    /// `None` where standard input is no terminal.
    pub(super) fn watch() -> Option<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin).ok()?;
        let mut modes = before.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        tcsetattr(&stdin, OptionalActions::Now, &modes).ok()?;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        Some(Self(()))
    }

    /// Whether one was pressed since the last call; it is dropped.
    pub(super) fn is_pressed(&self) -> bool {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_ready = matches!(poll(&mut fds, Some(&now)), Ok(ready) if ready > 0);
        // An escape sequence is one key. At the end of the input nobody pressed one.
        let mut bytes = [0; 64];
        is_ready && matches!(rustix::io::read(&stdin, &mut bytes), Ok(read) if read > 0)
    }
}

#[cfg(not(unix))]
impl Keys {
    pub(super) fn watch() -> Option<Self> {
        None
    }

    pub(super) fn is_pressed(&self) -> bool {
        false
    }
}

/// Gives the terminal back as it was.
pub(super) fn restore() {
    #[cfg(unix)]
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// While it lives, what is typed ahead of a prompt is neither shown nor looked at before it is read: the end of input
/// (Ctrl-D) stays a key. Ctrl-C stays Ctrl-C.
pub(super) struct Ahead(());

impl Ahead {
    pub(super) fn keep() -> Self {
        #[cfg(unix)]
        if let Ok(modes) = tcgetattr(io::stdin())
            && !edits_by_itself()
        {
            let mut quiet = modes.clone();
            quiet.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            let _ = AT_START.set(modes);
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &quiet);
        }
        Self(())
    }
}

/// Whether the terminal is one of those that the line editor leaves to the system: lines are edited and shown there.
#[cfg(unix)]
fn edits_by_itself() -> bool {
    let term = env::var("TERM").unwrap_or_default();
    ["dumb", "cons25", "emacs"].iter().any(|one| one.eq_ignore_ascii_case(&term))
}

impl Drop for Ahead {
    fn drop(&mut self) {
        leave();
    }
}

/// Gives the terminal back as it was at the start: the process ends.
pub(super) fn leave() {
    restore();
    #[cfg(unix)]
    if let Some(modes) = AT_START.get() {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, modes);
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        restore();
    }
}
