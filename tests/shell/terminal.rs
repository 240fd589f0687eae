//! A terminal with the shell in it: a pseudo terminal, and a screen that is drawn from what comes.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// Long enough for the slowest machine; a screen that is right is never waited for that long.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    bytes: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// All that came.
    raw: Vec<u8>,
}

impl Terminal {
    /// Starts the shell in a folder, on a screen of 100 columns and 40 lines.
    pub(crate) fn start(folder: &Path, term: &str) -> Self {
        let size = PtySize { rows: 40, cols: 100, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a pseudo terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["-p", "1"]);
        command.cwd(folder);
        command.env("TERM", term);
        command.env("HOME", folder);
        command.env_remove("XDG_STATE_HOME");
        command.env_remove("NO_COLOR");
        let child = pair.slave.spawn_command(command).expect("the shell starts");
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().expect("a reader");
        let (sender, bytes) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read) = reader.read(&mut buffer) {
                if read == 0 || sender.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keys = pair.master.take_writer().expect("a writer");
        let screen = vt100::Parser::new(40, 100, 2_000);
        let mut terminal = Self { child, master: pair.master, keys, bytes, screen, raw: Vec::new() };
        terminal.wait_for("the prompt", |screen| last_line(screen) == "tidegate>");
        terminal
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.press_bytes(keys.as_bytes());
    }

    pub(crate) fn press_bytes(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).and_then(|()| self.keys.flush()).expect("the terminal takes keys");
    }

    /// Types a line, waits for its end and the next prompt.
    pub(crate) fn run(&mut self, line: &str, shown: &str) -> String {
        self.press(line);
        self.press("\r");
        self.wait_for(shown, |screen| screen.contains(shown) && last_line(screen) == "tidegate>")
    }

    /// Waits until the screen is as it should be; gives what is on it.
    pub(crate) fn wait_for(&mut self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let shown = self.shown();
            if is_there(&shown) {
                return shown;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.bytes.recv_timeout(left) {
                Ok(bytes) => self.take(&bytes),
                Err(RecvTimeoutError::Timeout) => panic!("no {what:?} on the screen:\n{shown}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the shell ended before {what:?}:\n{shown}"),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        self.raw.extend_from_slice(bytes);
    }

    pub(crate) fn shown(&self) -> String {
        self.screen.screen().contents()
    }

    /// All bytes that came.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }

    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        self.master.resize(size).expect("resizes");
        self.screen.screen_mut().set_size(rows, columns);
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let process = self.child.process_id().expect("the shell runs").to_string();
        let sent = Command::new("kill").args(["-TERM", &process]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Waits for the end of the shell; gives its exit code.
    pub(crate) fn ended(mut self) -> u32 {
        loop {
            match self.bytes.recv_timeout(PATIENCE) {
                Ok(bytes) => self.take(&bytes),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the shell does not end:\n{}", self.shown()),
            }
        }
        self.child.wait().expect("the shell ends").exit_code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

/// The last line that is not empty.
pub(crate) fn last_line(screen: &str) -> &str {
    screen.lines().map(str::trim_end).rfind(|line| !line.is_empty()).unwrap_or_default()
}
