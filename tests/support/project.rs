//! A folder with a script that the built program runs: what a person types, what is visible then, kills and other
//! signals.

#![allow(dead_code, reason = "each test uses some of it")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longer than anything here takes; a test that would hang fails instead.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with `job.sql`.
pub(crate) struct Project {
    folder: TempDir,
    /// Arguments of every run, before its own.
    args: Vec<String>,
}

/// A run that goes on.
pub(crate) struct Running {
    child: Child,
    said: Arc<Mutex<String>>,
    ended: Receiver<()>,
}

impl Project {
    pub(crate) fn new(script: &str) -> Self {
        let project = Self { folder: tempfile::tempdir().expect("a folder"), args: Vec::new() };
        project.write("job.sql", script);
        project
    }

    /// With arguments of every run.
    pub(crate) fn with(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file can be written");
    }

    pub(crate) fn append(&self, name: &str, text: &str) {
        let file = fs::OpenOptions::new().create(true).append(true).open(self.path(name));
        file.expect("a file can be opened").write_all(text.as_bytes()).expect("it can be written");
    }

    fn of(&self, mut command: Command, args: &[&str]) -> Command {
        command.current_dir(self.folder.path()).args(["run", "job.sql"]).args(&self.args).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.of(Command::new(env!("CARGO_BIN_EXE_tidegate")), args)
    }

    /// The same where no file may have more than these blocks, as where the disk is full.
    pub(crate) fn command_without_room(&self, blocks: u32, args: &[&str]) -> Command {
        let mut shell = Command::new("sh");
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_tidegate")]);
        self.of(shell, args)
    }

    /// Runs to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program runs")
    }

    /// What it says.
    pub(crate) fn succeeds(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{text}");
        text
    }

    /// What it says, with an error of this code.
    pub(crate) fn fails(&self, args: &[&str], code: &str, exit: i32) -> String {
        let output = self.run(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{text}");
        assert!(text.contains(&format!("error[{code}]")), "{text}");
        text
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::of(self.command(args))
    }

    /// The visible files of a folder by name.
    pub(crate) fn files(&self, folder: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else { return Vec::new() };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|path| !is_hidden(path));
        files.sort();
        files
    }

    /// The lines of all visible files of a folder, sorted.
    pub(crate) fn lines(&self, folder: &str) -> Vec<String> {
        let text = |path: &PathBuf| fs::read_to_string(path).unwrap_or_default();
        let files = self.files(folder);
        let mut lines: Vec<String> =
            files.iter().flat_map(|path| text(path).lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        lines.sort();
        lines
    }

    /// What is left in progress in a folder.
    pub(crate) fn hidden(&self, folder: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else { return Vec::new() };
        entries.flatten().map(|entry| entry.path()).filter(|path| is_hidden(path)).collect()
    }

    /// The checkpoints of the first job in the folder `state`, the oldest first.
    pub(crate) fn checkpoints(&self) -> Vec<PathBuf> {
        self.files("state/job-1")
    }

    /// The number of the newest one; 0: there is none.
    pub(crate) fn newest(&self) -> u32 {
        let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let newest = self.checkpoints().last().and_then(name);
        newest.and_then(|name| name.strip_prefix("chk-")?.parse().ok()).unwrap_or(0)
    }
}

impl Running {
    /// Starts a command whose outputs are pipes.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the program runs");
        let mut rows = child.stdout.take().expect("its output is a pipe");
        std::thread::spawn(move || std::io::copy(&mut rows, &mut std::io::sink()));
        let mut output = child.stderr.take().expect("its output is a pipe");
        let said = Arc::new(Mutex::new(String::new()));
        let (told, ended) = channel();
        let text = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                text.lock().expect("a text").push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
            let _ = told.send(());
        });
        Self { child, said, ended }
    }

    /// What it has said until now.
    pub(crate) fn said(&self) -> String {
        self.said.lock().expect("a text").clone()
    }

    /// Waits for something that happens while it runs.
    pub(crate) fn until(&self, what: &str, happened: impl Fn() -> bool) {
        assert!(self.goes_on_until(what, happened), "it ended before {what}: {}", self.said());
    }

    /// Waits for something, or the end. Whether it still runs.
    pub(crate) fn goes_on_until(&self, what: &str, happened: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        while !happened() {
            assert!(begun.elapsed() < PATIENCE, "waited for {what}: {}", self.said());
            match self.ended.recv_timeout(Duration::from_millis(5)) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return false,
            }
        }
        true
    }

    /// The sum of a metric of an operator, of a run with `--metrics :0`; nothing before it tells where they are.
    pub(crate) fn metric(&self, name: &str, operator: &str) -> Option<f64> {
        let said = self.said();
        let address = said.split("http://").nth(1)?.split_once("/metrics")?.0.to_owned();
        let mut client = TcpStream::connect(address).ok()?;
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
        let mut text = String::new();
        client.read_to_string(&mut text).ok()?;
        let (name, operator) = (format!("{name}{{"), format!("operator=\"{operator}\""));
        let lines = text.lines().filter(|line| line.starts_with(&name) && line.contains(&operator));
        let numbers: Vec<f64> = lines.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        (!numbers.is_empty()).then(|| numbers.iter().sum())
    }

    /// Its memory in KB, as Linux tells it.
    pub(crate) fn resident_kb(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    /// What is written to its standard input, if that is a pipe; without it the input ends.
    pub(crate) fn input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    pub(crate) fn until_it_says(&self, text: &str) {
        self.until(text, || self.said().contains(text));
    }

    /// Whether it ends within this time.
    pub(crate) fn ends_within(&self, longest: Duration) -> bool {
        !matches!(self.ended.recv_timeout(longest), Err(RecvTimeoutError::Timeout))
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Sends a signal: `-INT`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(status.expect("there is a command to send signals").success());
    }

    /// Stops it behind a checkpoint. What it says.
    pub(crate) fn stop(self) -> String {
        self.stops_with(0)
    }

    /// The same where it ends with another code.
    pub(crate) fn stops_with(self, exit: i32) -> String {
        self.signal("-TERM");
        let (code, said) = self.end();
        assert_eq!(code, Some(exit), "{said}");
        said
    }

    /// Its exit code and what it said.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().expect("it ends");
        let _ = self.ended.recv_timeout(PATIENCE);
        (status.code(), self.said())
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// Lines of JSON with these numbers as `v`.
pub(crate) fn numbers(range: std::ops::Range<u32>) -> String {
    range.map(|v| format!("{{\"v\":{v}}}\n")).collect()
}

pub(crate) fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}
