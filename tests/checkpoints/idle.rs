//! The field report B077 with an input that has nothing to say: that it is idle is kept like the watermark.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tidegate::Session;
use tidegate::runtime::CheckpointStart;
use tidegate::session::{JobHandle, Outcome};
use tidegate::stream::Clock;

use super::project::PATIENCE;

/// A clock that stands still unless it is moved.
#[derive(Debug, Default)]
struct Moved(AtomicI64);

impl Clock for Moved {
    fn wall_us(&self) -> i64 {
        1_714_550_400_000_000 + self.elapsed_us()
    }

    fn elapsed_us(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }
}

const SCRIPT: &str = "
CREATE TABLE t (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts IDLE AFTER INTERVAL '1' HOUR)
WITH ('connector' = 'filesystem', 'path' = '{dir}/in', 'format' = 'json', 'source.monitor-interval' = '10 ms');
CREATE TABLE late (v INT) WITH ('connector' = 'filesystem', 'path' = '{dir}/late', 'format' = 'json');
CREATE TABLE r (s TIMESTAMP(3), c BIGINT, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = '{dir}/out', 'format' = 'json');
INSERT INTO r SELECT window_start, COUNT(*) AS c, SUM(v) AS v
FROM TABLE({window}) GROUP BY window_start, window_end LATE ROWS INTO late;";

fn start(dir: &Path, window: &str, clock: &Arc<Moved>, from: CheckpointStart) -> (Session, JobHandle) {
    let mut session = Session::new();
    session.set_clock(Arc::clone(clock) as Arc<dyn Clock>);
    session.set("execution.checkpoint.dir", &dir.join("state").to_string_lossy()).expect("a setting");
    session.set("execution.checkpoint.interval", "10 ms").expect("a setting");
    session.set_checkpoint_start(from);
    let script = SCRIPT.replace("{dir}", &dir.to_string_lossy()).replace("{window}", window);
    let mut started = None;
    for statement in session.parse("idle", &script).expect("it is SQL") {
        if let Outcome::Insert(job) = session.execute(&statement).unwrap_or_else(|error| panic!("{error}")) {
            started = Some(job);
        }
    }
    (session, started.expect("the last statement is an insert"))
}

fn lines(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let visible = entries.flatten().filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let texts = visible.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default());
    let mut lines: Vec<String> =
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.sort();
    lines
}

fn until(job: &JobHandle, what: &str, happened: impl Fn() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < PATIENCE, "waited for {what}");
        assert!(job.wait_for(Duration::from_millis(2)).is_none(), "it goes on");
    }
}

#[test]
fn an_input_that_was_idle_holds_nothing_back_behind_a_restart() {
    for window in [
        "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
        "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' MINUTE)",
        "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' MINUTE)",
        "SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND)",
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let line = |v: i32, time: &str| format!("{{\"v\":{v}, \"ts\":\"2024-05-01 {time}\"}}\n");
        fs::create_dir(dir.path().join("in")).expect("a folder");
        let first = line(1, "09:00:10") + &line(2, "09:01:10") + &line(4, "09:02:10");
        fs::write(dir.path().join("in/a.json"), first).expect("a file");
        fs::write(dir.path().join("in/b.json"), line(32, "09:00:12")).expect("a file");
        let clock = Arc::new(Moved::default());
        let (session, job) = start(dir.path(), window, &clock, CheckpointStart::Anew);
        let out = dir.path().join("out");
        // The second file has one row, and then nothing for hours.
        until(&job, "two windows", || {
            clock.0.fetch_add(60_000_000, Ordering::AcqRel);
            lines(&out).len() == 2
        });
        // Killed: no checkpoint is taken for it.
        job.stop();
        assert!(job.wait().is_err() && !job.is_suspended());
        drop(session);
        let more = line(8, "09:00:20") + &line(16, "09:03:10");
        let file = fs::OpenOptions::new().append(true).open(dir.path().join("in/a.json"));
        file.expect("a file").write_all(more.as_bytes()).expect("it can be written");
        // Not a second passes on this clock: were it not idle any more, it would hold the third window for ever.
        let clock = Arc::new(Moved::default());
        let (_session, job) = start(dir.path(), window, &clock, CheckpointStart::Newest);
        until(&job, "the third window and the late row", || {
            lines(&out).len() >= 3 && !lines(&dir.path().join("late")).is_empty()
        });
        job.suspend();
        assert!(job.wait().is_err() && job.is_suspended());
        let at = |minute: u32| match window.starts_with("SESSION") {
            true => format!("2024-05-01T09:0{minute}:10.000"),
            false => format!("2024-05-01T09:0{minute}:00.000"),
        };
        let row = |minute: u32, c: i32, v: i32| format!("{{\"s\":\"{}\",\"c\":{c},\"v\":{v}}}", at(minute));
        assert_eq!(lines(&out), [row(0, 2, 33), row(1, 1, 2), row(2, 1, 4)], "{window}");
        assert_eq!(lines(&dir.path().join("late")), ["{\"v\":8}"], "{window}");
    }
}
