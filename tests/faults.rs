//! Disorder in the world, from outside: no room, folders that go, files in their place, a second run, a clock that is set
//! back. Each time checkpoints that are there stay whole, what is wrong is said, and the result is right once it is over.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate::Session;
use tidegate::session::Outcome;
use tidegate::stream::{Clock, SystemClock};

/// Longer than anything here takes; a test that would hang fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

/// Follows a file of numbers, into a folder.
const FOLLOWS: &str = "
CREATE TABLE t (v INT) WITH ('connector' = 'filesystem', 'path' = 'in.json', 'source.monitor-interval' = '10 ms');
CREATE TABLE r (v INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO r SELECT v FROM t;";

/// A folder with a script.
struct Project(TempDir);

impl Project {
    fn new(script: &str) -> Self {
        let project = Self(tempfile::tempdir().expect("a folder"));
        fs::write(project.path("job.sql"), script).expect("a script");
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn append(&self, name: &str, text: &str) {
        let file = fs::OpenOptions::new().create(true).append(true).open(self.path(name));
        file.expect("a file can be opened").write_all(text.as_bytes()).expect("it can be written");
    }

    /// `room`: most blocks of a file, as where the disk is full.
    fn command(&self, room: Option<u32>, args: &[&str]) -> Command {
        let binary = env!("CARGO_BIN_EXE_tidegate");
        let mut command = match room {
            None => Command::new(binary),
            Some(blocks) => {
                let mut shell = Command::new("sh");
                let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
                shell.args(["-c", &script, binary]);
                shell
            }
        };
        command.current_dir(self.0.path()).args(["run", "job.sql", "--checkpoint-dir", "state"]);
        command.args(["--set", "execution.checkpoint.interval=20 ms", "-p", "2"]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, room: Option<u32>, args: &[&str]) -> (Option<i32>, String) {
        let output: Output = self.command(room, args).output().expect("the program runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn succeeds(&self, args: &[&str]) {
        let (exit, said) = self.run(None, args);
        assert_eq!(exit, Some(0), "{said}");
    }

    /// Starts it, and waits until it has taken some checkpoints: by then it hears signals.
    fn start(&self, room: Option<u32>, args: &[&str]) -> Running {
        let before = self.checkpoints().last().copied().unwrap_or(0);
        let mut child = self.command(room, args).spawn().expect("the program runs");
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
        let running = Running { child, said, ended };
        running.until("checkpoints", || self.checkpoints().last() >= Some(&(before + 3)));
        running
    }

    /// The lines of all visible files of a folder, sorted.
    fn lines(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else { return Vec::new() };
        let paths = entries.flatten().map(|entry| entry.path()).filter(|path| !is_hidden(path));
        let text: String = paths.map(|path| fs::read_to_string(path).unwrap_or_default()).collect();
        sorted(&text)
    }

    /// The numbers of the checkpoints of the first job.
    fn checkpoints(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir(self.path("state/job-1")) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut numbers: Vec<u32> =
            names.filter_map(|name| name.strip_prefix("chk-")?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }
}

/// A run that goes on.
struct Running {
    child: Child,
    said: Arc<Mutex<String>>,
    ended: Receiver<()>,
}

impl Running {
    fn said(&self) -> String {
        self.said.lock().expect("a text").clone()
    }

    /// Waits for something that happens while it runs.
    fn until(&self, what: &str, happened: impl Fn() -> bool) {
        assert!(self.goes_on_until(what, happened), "it ended before {what}: {}", self.said());
    }

    /// Waits for something, or the end. Whether it still runs.
    fn goes_on_until(&self, what: &str, happened: impl Fn() -> bool) -> bool {
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

    fn until_it_says(&self, text: &str) {
        self.until(text, || self.said().contains(text));
    }

    fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Asks it to stop behind a checkpoint. Its exit code and what it said.
    fn stop(self) -> (Option<i32>, String) {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(status.expect("there is a command to send signals").success());
        self.end()
    }

    fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().expect("it ends");
        let _ = self.ended.recv_timeout(PATIENCE);
        (status.code(), self.said())
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

fn numbers(range: std::ops::Range<u32>) -> String {
    range.map(|v| format!("{{\"v\":{v}}}\n")).collect()
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// A file stands where the folder of the checkpoints was, which is put back: the job goes on meanwhile, says so, shows
/// nothing that no checkpoint covers, and shows it then.
#[test]
fn a_file_where_the_checkpoints_were() {
    for is_killed in [false, true] {
        let project = Project::new(FOLLOWS);
        project.append("in.json", &numbers(0..50));
        let running = project.start(None, &[]);
        running.until("the first rows", || project.lines("out").len() == 50);
        let (folder, away) = (project.path("state/job-1"), project.path("state/away"));
        fs::rename(&folder, &away).expect("a folder can be renamed");
        fs::write(&folder, "").expect("a file can be written");
        project.append("in.json", &numbers(50..90));
        running.until_it_says("goes on without checkpoints: can't write checkpoint \"state/job-1");
        assert_eq!(project.lines("out"), sorted(&numbers(0..50)), "no checkpoint covers more");
        let put_back = || {
            fs::remove_file(&folder).expect("a file can be removed");
            fs::rename(&away, &folder).expect("a folder can be renamed");
        };
        let running = match is_killed {
            true => {
                running.kill();
                put_back();
                project.start(None, &["--resume"])
            }
            false => {
                put_back();
                running.until_it_says("has checkpoints again");
                running
            }
        };
        running.until("the other rows", || project.lines("out").len() >= 90);
        let (exit, said) = running.stop();
        assert_eq!(exit, Some(0), "{said}");
        assert_eq!(project.lines("out"), sorted(&numbers(0..90)));
    }
}

#[test]
fn a_deleted_folder_of_checkpoints_comes_again() {
    let project = Project::new(FOLLOWS);
    project.append("in.json", &numbers(0..50));
    let running = project.start(None, &[]);
    running.until("the first rows", || project.lines("out").len() == 50);
    // The run may put something there meanwhile.
    running.until("the folder is gone", || fs::remove_dir_all(project.path("state")).is_ok());
    project.append("in.json", &numbers(50..90));
    running.until("the other rows", || project.lines("out").len() == 90);
    assert!(!project.checkpoints().is_empty());
    running.kill();
    project.append("in.json", &numbers(90..100));
    let running = project.start(None, &["--resume"]);
    running.until("the rest", || project.lines("out").len() >= 100);
    let (exit, said) = running.stop();
    assert_eq!(exit, Some(0), "{said}");
    assert_eq!(project.lines("out"), sorted(&numbers(0..100)));
}

/// The state of a window outgrows the disk: checkpoints fail, a stop fails, those before stay, and with room the job goes on
/// from there.
#[test]
fn no_room_for_a_checkpoint() {
    let project = Project::new(
        "CREATE TABLE t (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
         WITH ('connector' = 'filesystem', 'path' = 'in.json', 'source.monitor-interval' = '10 ms');
         CREATE TABLE r (d TIMESTAMP(3), keys BIGINT, n BIGINT)
         WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
         INSERT INTO r SELECT window_start, COUNT(DISTINCT k), COUNT(*)
         FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY)) GROUP BY window_start, window_end;",
    );
    let row = |key: u32, day: u32| {
        format!("{{\"k\":\"a long key, {key:08}\",\"ts\":\"2024-05-0{day} 09:00:00\"}}\n")
    };
    project.append("in.json", &row(0, 1));
    let running = project.start(Some(300), &[]);
    project.append("in.json", &(1..30_000).map(|key| row(key, 1)).collect::<String>());
    running.until_it_says("goes on without checkpoints: can't write checkpoint \"state/job-1/chk-");
    assert!(running.said().contains("File too large"), "{}", running.said());
    let (exit, said) = running.stop();
    assert_eq!(exit, Some(1), "{said}");
    assert!(said.contains("error[K004]") && said.contains("File too large"), "{said}");
    assert!(!project.checkpoints().is_empty(), "those before stay");
    project.append("in.json", &row(0, 2));
    let running = project.start(None, &["--resume"]);
    running.until("the window", || !project.lines("out").is_empty());
    let (exit, said) = running.stop();
    assert_eq!(exit, Some(0), "{said}");
    assert_eq!(project.lines("out"), ["{\"d\":\"2024-05-01T00:00:00.000\",\"keys\":30000,\"n\":30000}"]);
}

/// What a sink could not write is in no checkpoint, also where it is found out only when one is taken.
#[test]
fn no_room_for_what_a_sink_writes() {
    for rows in [10_000, 100_000] {
        for options in [
            "'path' = 'out', 'format' = 'json'",
            "'path' = 'out', 'format' = 'csv'",
            "'path' = 'out', 'format' = 'parquet'",
            "'path' = 'out/r.json'",
        ] {
            let insert = format!(
                "CREATE TABLE t (v INT) WITH ('connector' = 'filesystem', 'path' = 'in.json');
                 CREATE TABLE r (v INT) WITH ('connector' = 'filesystem', {options});\n"
            );
            let project = Project::new(&(insert.clone() + "INSERT INTO r SELECT v FROM t;"));
            project.append("in.json", &numbers(0..rows));
            let args = ["--set", "execution.checkpoint.interval=1 h"];
            let (exit, said) = project.run(Some(20), &args);
            assert_eq!(exit, Some(1), "{options}: {said}");
            assert!(said.contains("error[F003]: can't write \"out"), "{options}: {said}");
            assert!(said.contains("File too large"), "{options}: {said}");
            assert_eq!(project.lines("out"), Vec::<String>::new(), "{options}");
            assert!(!project.checkpoints().is_empty(), "the first one stays");
            project.succeeds(&[&args[..], &["--resume"]].concat());
            let count = insert + "SELECT COUNT(*) AS n, SUM(v) AS s FROM r;";
            fs::write(project.path("count.sql"), count).expect("a script");
            let mut counts = Command::new(env!("CARGO_BIN_EXE_tidegate"));
            counts.current_dir(project.0.path()).args(["run", "count.sql", "-q", "-f", "json"]);
            let counted = String::from_utf8(counts.output().expect("the program runs").stdout).expect("text");
            let sum = u64::from(rows) * u64::from(rows - 1) / 2;
            assert_eq!(counted, format!("{{\"n\":{rows},\"s\":{sum}}}\n"), "{options}");
        }
    }
}

/// Root may write everywhere; whoever may not is told, and goes on from the last checkpoint when he may.
#[test]
#[cfg(unix)]
fn a_folder_that_may_not_be_written_any_more() {
    use std::os::unix::fs::PermissionsExt as _;
    let project = Project::new(FOLLOWS);
    project.append("in.json", &numbers(0..50));
    let running = project.start(None, &[]);
    running.until("the first rows", || project.lines("out").len() == 50);
    let allow = |mode: u32| {
        let folder = project.path("state/job-1");
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("it can be changed");
    };
    allow(0o555);
    let may_write = fs::write(project.path("state/job-1/.probe"), "").is_ok();
    project.append("in.json", &numbers(50..90));
    let (exit, said) = match may_write {
        true => running.stop(),
        false => {
            running.until_it_says("Permission denied");
            running.stop()
        }
    };
    assert_eq!(exit, Some(if may_write { 0 } else { 1 }), "{said}");
    allow(0o755);
    let running = project.start(None, &["--resume"]);
    running.until("the other rows", || project.lines("out").len() >= 90);
    assert_eq!(running.stop().0, Some(0));
    assert_eq!(project.lines("out"), sorted(&numbers(0..90)));
}

/// The output is deleted while the job runs: it goes on in a new folder, or stops and says why. What was deleted is gone;
/// all that follows is there once.
#[test]
fn a_deleted_output_folder() {
    let project = Project::new(FOLLOWS);
    project.append("in.json", &numbers(0..50));
    let running = project.start(None, &[]);
    running.until("the first rows", || project.lines("out").len() == 50);
    fs::remove_dir_all(project.path("out")).expect("a folder can be removed");
    project.append("in.json", &numbers(50..90));
    let is_there = || project.lines("out").len() >= 40;
    if running.goes_on_until("the other rows", is_there) {
        assert_eq!(running.stop().0, Some(0));
    } else {
        let (exit, said) = running.end();
        assert_eq!(exit, Some(1), "{said}");
        assert!(said.contains("error[F003]: can't write \"out\""), "{said}");
        let running = project.start(None, &["--resume"]);
        running.until("the other rows", is_there);
        assert_eq!(running.stop().0, Some(0));
    }
    assert_eq!(project.lines("out"), sorted(&numbers(50..90)));
}

#[test]
fn a_file_where_the_output_was() {
    let project = Project::new(FOLLOWS);
    project.append("in.json", &numbers(0..50));
    let running = project.start(None, &[]);
    running.until("the first rows", || project.lines("out").len() == 50);
    assert_eq!(running.stop().0, Some(0));
    fs::rename(project.path("out"), project.path("away")).expect("a folder can be renamed");
    fs::write(project.path("out"), "").expect("a file can be written");
    project.append("in.json", &numbers(50..60));
    let (exit, said) = project.run(None, &["--resume"]);
    assert_eq!(exit, Some(1), "{said}");
    assert!(said.contains("error[F003]: can't write \"out\": Not a directory"), "{said}");
    fs::remove_file(project.path("out")).expect("a file can be removed");
    fs::rename(project.path("away"), project.path("out")).expect("a folder can be renamed");
    let running = project.start(None, &["--resume"]);
    running.until("the other rows", || project.lines("out").len() >= 60);
    assert_eq!(running.stop().0, Some(0));
    assert_eq!(project.lines("out"), sorted(&numbers(0..60)));
}

#[test]
fn two_runs_do_not_share_a_folder() {
    let project = Project::new(FOLLOWS);
    project.append("in.json", &numbers(0..50));
    let running = project.start(None, &[]);
    running.until("the first rows", || project.lines("out").len() == 50);
    for args in [&["--resume"][..], &[]] {
        let (exit, said) = project.run(None, args);
        assert_eq!(exit, Some(1), "{said}");
        assert!(said.contains("error[K004]") && said.contains("another run"), "{said}");
    }
    project.append("in.json", &numbers(50..90));
    running.until("the other rows", || project.lines("out").len() == 90);
    // A folder is free as soon as its run is gone, however it went.
    running.kill();
    let running = project.start(None, &["--resume"]);
    assert_eq!(running.stop().0, Some(0));
    assert_eq!(project.lines("out"), sorted(&numbers(0..90)));
}

/// A clock that somebody sets.
#[derive(Debug, Default)]
struct Settable {
    wall_us: AtomicI64,
    machine: SystemClock,
}

impl Clock for Settable {
    fn wall_us(&self) -> i64 {
        self.wall_us.load(Ordering::Acquire)
    }

    fn elapsed_us(&self) -> i64 {
        self.machine.elapsed_us()
    }
}

/// Checkpoints are taken by a clock that nobody sets; their numbers say which is the newest.
#[test]
fn a_clock_that_is_set_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(Settable::default());
    clock.wall_us.store(1_800_000_000_000_000, Ordering::Release);
    let mut session = Session::new();
    session.set_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    session.set("execution.checkpoint.dir", &folder.path().to_string_lossy()).expect("a setting");
    session.set("execution.checkpoint.interval", "10 ms").expect("a setting");
    let script = "CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000');
        CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole');
        INSERT INTO nowhere SELECT n FROM ticks;";
    let mut started = None;
    for statement in session.parse("clock", script).expect("it is SQL") {
        if let Outcome::Insert(job) = session.execute(&statement).expect("it runs") {
            started = Some(job);
        }
    }
    let job = started.expect("the last statement is an insert");
    let status = || job.checkpoints().expect("it has checkpoints");
    let until = |what: &str, happened: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !happened() {
            assert!(begun.elapsed() < PATIENCE, "waited for {what}: {:?}", status());
            assert!(job.wait_for(Duration::from_millis(2)).is_none(), "it goes on");
        }
    };
    until("three checkpoints", &|| status().completed >= 3);
    // A year back.
    let back_us = 1_800_000_000_000_000 - 31_536_000_000_000;
    clock.wall_us.store(back_us, Ordering::Release);
    let before = status().completed;
    until("five more", &|| status().completed >= before + 5);
    let last = status();
    assert_eq!((last.failed, last.last_taken_us), (0, back_us));
    assert_eq!(last.last, Some(last.completed), "numbers go on");
    job.suspend();
    assert!(job.wait().is_err() && job.is_suspended());
}
