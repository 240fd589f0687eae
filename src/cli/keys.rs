//! Keys while a query runs: any one of them stops a query that does not end.

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

/// Remembers how the terminal is, before a line editor changes it.
pub(super) fn remember() {
    #[cfg(unix)]
    if let Ok(modes) = tcgetattr(io::stdin()) {
        let _ = AT_START.set(modes);
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
