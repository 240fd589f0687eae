//! Inserts that run beside the statements that follow: what is seen of them, and how they end.

#![allow(clippy::unwrap_used, reason = "a test fails where it can no longer go on")]

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::Int64Type;
use tidegate::connector::{Blackhole, Connectors, Datagen, Filesystem, Memory};
use tidegate::session::{JobHandle, JobState, Outcome, Session};

/// Longer than anything takes that works.
const DEADLINE: Duration = Duration::from_secs(60);

/// A session with `t (v BIGINT, ts TIMESTAMP(3))`, fed by the sender, and `out (n BIGINT)` in memory.
struct World {
    session: Session,
    memory: Memory,
    rows: SyncSender<RecordBatch>,
}

/// Rows of `t`: each value with its second.
fn rows(values: &[(i64, i64)]) -> RecordBatch {
    let columns: [(&str, ArrayRef); 2] = [
        ("v", Arc::new(Int64Array::from_iter_values(values.iter().map(|(value, _)| *value)))),
        ("ts", Arc::new(TimestampMillisecondArray::from_iter_values(values.iter().map(|(_, s)| s * 1_000)))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

const COUNTS: &str = "INSERT INTO out SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) \
                      GROUP BY window_start, window_end";

impl World {
    fn new() -> Self {
        let memory = Memory::new();
        let (sender, receiver) = sync_channel(10);
        memory.put_channel("t", rows(&[]).schema(), receiver);
        let mut connectors = Connectors::empty();
        connectors.add(Arc::new(memory.clone()));
        connectors.add(Arc::new(Blackhole));
        connectors.add(Arc::new(Datagen));
        connectors.add(Arc::new(Filesystem));
        let mut world = Self { session: Session::with_connectors(connectors), memory, rows: sender };
        world.run(
            "CREATE TABLE t (v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'memory');
             CREATE TABLE out (n BIGINT) WITH ('connector' = 'memory');
             CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000');
             CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole');",
        );
        world
    }

    /// Runs statements that start no query; the job of the last insert among them.
    fn run(&mut self, script: &str) -> Option<JobHandle> {
        let mut job = None;
        for statement in self.session.parse("test", script).unwrap() {
            match self.session.execute(&statement).unwrap_or_else(|error| panic!("{}", error.render())) {
                Outcome::Insert(started) => job = Some(started),
                Outcome::Done(_) | Outcome::Rows(_) | Outcome::Text(_) => {}
                Outcome::Query(_) => panic!("the query would not be read"),
            }
        }
        job
    }

    fn insert(&mut self, script: &str) -> JobHandle {
        self.run(script).unwrap()
    }

    /// The numbers in `out`.
    fn out(&self) -> Vec<i64> {
        let batches = self.memory.take("out");
        batches
            .iter()
            .flat_map(|batch| batch.rows.column(0).as_primitive::<Int64Type>().values().to_vec())
            .collect()
    }
}

/// Waits until the job has read so many rows.
fn wait_for_rows(job: &JobHandle, rows: u64) {
    let until = Instant::now() + DEADLINE;
    while job.monitor().progress().rows_in < rows {
        assert!(Instant::now() < until && !job.state().is_over(), "{job:?}: {:?}", job.metrics().sources);
        std::thread::yield_now();
    }
}

#[test]
fn a_drained_job_fires_its_windows_and_a_stopped_one_leaves_nothing() {
    for is_drained in [true, false] {
        let mut world = World::new();
        let job = world.insert(COUNTS);
        assert_eq!((job.number(), job.name(), job.state()), (1, "out", JobState::Running));
        assert!(!job.is_bounded());
        assert_eq!(job.statement(), COUNTS);
        // One window is over at the row of second 12, the other one is open.
        world.rows.send(rows(&[(1, 1), (2, 2), (3, 12)])).unwrap();
        wait_for_rows(&job, 3);
        if is_drained {
            job.drain();
            let summary = job.wait().unwrap();
            assert!(summary.reconciles(), "{summary:?}");
            assert_eq!((summary.rows_in, summary.rows_out, job.state()), (3, 2, JobState::Finished));
            assert_eq!(world.out(), [2, 1]);
        } else {
            job.stop();
            assert_eq!(job.wait().unwrap_err().exit_code(), 130);
            assert_eq!((job.state(), world.out()), (JobState::Stopped, vec![]));
        }
        // What is told to a job that is over changes nothing.
        let state = job.state();
        job.stop();
        job.drain();
        assert_eq!(job.state(), state);
        assert_eq!(job.wait_for(Duration::ZERO).unwrap().is_ok(), is_drained);
    }
}

#[test]
fn a_job_goes_on_without_its_handle_until_the_session_is_gone() {
    let mut world = World::new();
    let number = world.insert("INSERT INTO nowhere SELECT n FROM ticks").number();
    let job = world.session.jobs().handles().pop().unwrap();
    assert_eq!(job.number(), number);
    wait_for_rows(&job, 10);
    assert!(job.wait_for(Duration::ZERO).is_none());
    drop(world);
    assert_eq!(job.wait().unwrap_err().exit_code(), 130);
    assert_eq!(job.state(), JobState::Stopped);
}

#[test]
fn a_failed_job_tells_where_its_statement_stands() {
    let mut world = World::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.csv");
    std::fs::write(&file, "1\nx\n").unwrap();
    let job = world.insert(&format!(
        "CREATE TABLE f (n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');\n\
         INSERT INTO out SELECT n FROM f;",
        file.display()
    ));
    let error = job.wait().unwrap_err();
    assert_eq!((error.code(), job.state()), ("F002", JobState::Failed));
    assert!(error.render().contains("test:2:1"), "{}", error.render());
    // The same error again, whoever asks.
    assert_eq!(job.wait().unwrap_err().render(), error.render());
}

#[test]
fn a_job_has_the_name_that_the_session_gives() {
    let mut world = World::new();
    let named =
        world.insert("SET 'pipeline.name' = 'hourly counts'; INSERT INTO nowhere SELECT n FROM ticks");
    let other = world.insert(
        "RESET 'pipeline.name';
         BEGIN STATEMENT SET; INSERT INTO out SELECT n FROM ticks; INSERT INTO nowhere SELECT n FROM ticks; END",
    );
    assert_eq!((named.name(), other.name()), ("hourly counts", "out, nowhere"));
    assert_eq!(other.tables(), ["out", "nowhere"]);
}

#[test]
fn a_name_is_that_of_the_job_that_runs() {
    let mut world = World::new();
    let named = world.insert("SET 'pipeline.name' = 'counts'; INSERT INTO nowhere SELECT n FROM ticks");
    // The name is that of later statements, too.
    let statements = world.session.parse("test", "SELECT 1 AS one").unwrap();
    let Outcome::Query(mut query) = world.session.execute(&statements[0]).unwrap() else { panic!() };
    while query.next_batch().unwrap().is_some() {}
    let later = query.job().clone();
    query.finish().unwrap();
    assert_eq!((later.name(), later.state()), ("counts", JobState::Finished));
    assert_eq!(world.session.jobs().get("counts").unwrap().number(), named.number());
    let stops = world.session.parse("test", "STOP JOB counts").unwrap();
    world.session.execute(&stops[0]).unwrap();
    assert_eq!(named.state(), JobState::Stopped);
    // None of the name runs: the last one.
    assert_eq!(world.session.jobs().get("counts").unwrap().number(), later.number());
}

#[test]
fn a_job_with_checkpoints_is_stopped_behind_one() {
    let folder = tempfile::tempdir().unwrap();
    let script = |start: &str| {
        format!(
            "SET 'execution.checkpoint.dir' = '{0}/state'; SET 'execution.parallelism' = '2';
             CREATE TABLE numbers (n BIGINT)
             WITH ('connector' = 'datagen', 'rows-per-second' = '1000', 'fields.n.kind' = 'sequence');
             CREATE TABLE copies (n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{0}/copies', 'format' = 'json');
             {start}",
            folder.path().display()
        )
    };
    let mut world = World::new();
    let job = world.insert(&script("INSERT INTO copies SELECT n FROM numbers"));
    wait_for_rows(&job, 3);
    let stop = world.session.parse("test", "STOP JOB copies").unwrap();
    let Outcome::Done(said) = world.session.execute(&stop[0]).unwrap() else { panic!() };
    assert!(said.contains("behind its checkpoint"), "{said}");
    assert!(job.is_suspended() && job.state() == JobState::Stopped);
    // And so is one whose session ends.
    let mut world = World::new();
    world.session.set_checkpoint_start(tidegate::runtime::CheckpointStart::Newest);
    let job = world.insert(&script("INSERT INTO copies SELECT n FROM numbers"));
    drop(world);
    assert!(job.is_suspended());
    let rows: Vec<String> = std::fs::read_dir(folder.path().join("copies"))
        .unwrap()
        .flat_map(|file| {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let mut different = rows.clone();
    different.sort();
    different.dedup();
    assert!(!rows.is_empty() && rows.len() == different.len(), "each row once");
}

#[test]
fn a_query_has_a_job_that_others_can_end() {
    let mut world = World::new();
    let statements = world.session.parse("test", "SELECT n FROM ticks").unwrap();
    for is_drained in [true, false] {
        let Outcome::Query(mut query) = world.session.execute(&statements[0]).unwrap() else { panic!() };
        let job = query.job().clone();
        assert_eq!((job.name(), job.tables().len()), ("query", 0));
        assert!(query.next_batch().unwrap().is_some());
        if is_drained {
            job.drain();
            while query.next_batch().unwrap().is_some() {}
            let summary = query.finish().unwrap();
            assert_eq!((summary.rows_in, job.state()), (summary.rows_out, JobState::Finished));
        } else {
            drop(query);
            assert_eq!(job.wait().unwrap_err().exit_code(), 130);
            assert_eq!(job.state(), JobState::Stopped);
        }
    }
}
