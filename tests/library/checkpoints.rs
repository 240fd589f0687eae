//! Checkpoints of a program: in the memory of its process, as in a store that others can reach.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tidegate::runtime::CheckpointStart;
use tidegate::session::{JobHandle, Outcome};
use tidegate::{Error, Session};

/// Longer than anything here takes; a test that would hang fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

/// Numbers from a file that grows to a folder.
struct Copying {
    folder: tempfile::TempDir,
    url: &'static str,
}

impl Copying {
    fn new(url: &'static str) -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), url }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn append(&self, numbers: std::ops::Range<u32>) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(self.path("in.json")).expect("a file");
        let text: String = numbers.map(|v| format!("{{\"v\":{v}}}\n")).collect();
        file.write_all(text.as_bytes()).expect("it can be written");
    }

    /// The session has to live as long as its job.
    fn start(&self, start: CheckpointStart) -> Result<(Session, JobHandle), Error> {
        let mut session = Session::new();
        session.set("execution.checkpoint.dir", self.url)?;
        session.set("execution.checkpoint.interval", "10 ms")?;
        session.set("execution.checkpoint.retained", "1000")?;
        session.set("execution.parallelism", "2")?;
        session.set_checkpoint_start(start);
        let (input, output) = (self.path("in.json"), self.path("out"));
        let (input, output) = (input.to_string_lossy(), output.to_string_lossy());
        session.run(&format!(
            "CREATE TABLE t (v INT) WITH ('connector' = 'filesystem', 'path' = '{input}', 'source.monitor-interval' = '10 ms');
             CREATE TABLE r (v INT) WITH ('connector' = 'filesystem', 'path' = '{output}', 'format' = 'json');"
        ))?;
        let statements = session.parse("insert", "INSERT INTO r SELECT v FROM t")?;
        match session.execute(&statements[0])? {
            Outcome::Insert(job) => Ok((session, job)),
            _ => panic!("an insert is a job"),
        }
    }

    fn numbers(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir(self.path("out")) else { return Vec::new() };
        let visible =
            |path: &PathBuf| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'));
        let files = entries.flatten().map(|entry| entry.path()).filter(visible);
        let lines: String = files.map(|path| fs::read_to_string(path).expect("a file")).collect();
        let number = |line: &str| line.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number");
        let mut numbers: Vec<u32> = lines.lines().map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Runs until so many numbers are visible, and stops behind a checkpoint.
    fn run_until(&self, start: CheckpointStart, count: usize) -> u64 {
        let (_session, job) = self.start(start).expect("it starts");
        let begun = Instant::now();
        while self.numbers().len() < count {
            assert!(begun.elapsed() < PATIENCE, "{} of {count} numbers", self.numbers().len());
            assert!(job.wait_for(Duration::from_millis(5)).is_none(), "it goes on");
        }
        job.suspend();
        job.wait().expect_err("it was stopped");
        assert!(job.is_suspended());
        job.checkpoints().and_then(|status| status.last).expect("there is one")
    }

    fn refused(&self, start: CheckpointStart) -> Error {
        self.start(start).err().expect("it is refused")
    }
}

#[test]
fn a_job_goes_on_from_a_store() {
    let copying = Copying::new("memory:///a-job-goes-on");
    copying.append(0..50);
    assert_eq!(copying.refused(CheckpointStart::Newest).code(), "K001");
    let first = copying.run_until(CheckpointStart::Anew, 50);
    let error = copying.refused(CheckpointStart::Anew);
    assert_eq!(error.code(), "K003");
    assert!(error.message().contains("memory:///a-job-goes-on/job-1"), "{error}");
    copying.append(50..80);
    let second = copying.run_until(CheckpointStart::Newest, 80);
    assert!(second > first);
    assert_eq!(copying.numbers(), (0..80).collect::<Vec<_>>());
    // What came behind a checkpoint goes, and comes again.
    copying.append(80..90);
    copying.run_until(CheckpointStart::Newest, 90);
    copying.append(90..95);
    let earlier = format!("memory:///a-job-goes-on/job-1/chk-{second:08}/");
    copying.run_until(CheckpointStart::From(earlier.into()), 95);
    assert_eq!(copying.numbers(), (0..95).collect::<Vec<_>>());
    let missing = CheckpointStart::From("memory:///a-job-goes-on/job-1/chk-99999999".into());
    assert_eq!(copying.refused(missing).code(), "K001");
}

#[test]
fn a_store_that_is_not_known_is_an_error_of_the_statement() {
    let copying = Copying::new("ftp://host/state");
    copying.append(0..1);
    let error = copying.refused(CheckpointStart::Anew);
    assert!(error.code() == "K004" && error.message().contains("ftp"), "{error}");
    assert_eq!(copying.numbers(), Vec::<u32>::new());
}
