//! Idle splits: what they hold back, what they don't, and how they wake.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tidegate::runtime::SplitState;
use tidegate::stream::VirtualClock;

use crate::running::Running;

const WINDOWS: &str = "SELECT window_start, COUNT(*) AS c, SUM(v) AS s \
    FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;";

fn pipe(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

fn open(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

fn send(pipe: &mut File, rows: &[(i32, &str)]) {
    let line = |(value, time): &(i32, &str)| format!("{{\"v\":{value},\"ts\":\"2024-05-01 {time}\"}}\n");
    pipe.write_all(rows.iter().map(line).collect::<String>().as_bytes()).unwrap();
}

fn table(name: &str, watermark: &str, options: &str) -> String {
    format!(
        "CREATE TABLE {name} (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS {watermark}) \
         WITH ('connector' = 'filesystem', 'path' = '{{dir}}/{name}.fifo', 'format' = 'json'{options});"
    )
}

/// The union of two pipes, of which `b` may be idle.
fn union() -> String {
    table("a", "ts", "")
        + &table("b", "ts", ", 'scan.watermark.idle-timeout' = '200 ms'")
        + "CREATE TEMPORARY VIEW t AS SELECT v, ts FROM a UNION ALL SELECT v, ts FROM b;"
        + WINDOWS
}

#[test]
fn b003_one_silent_input_does_not_stop_the_query() {
    for parallelism in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (pipe(dir.path(), "a.fifo"), pipe(dir.path(), "b.fifo"));
        let query = Running::with_settings(dir.path(), &union(), None, parallelism, 8_192);
        let (mut a, mut b) = (open(&a), open(&b));
        send(&mut b, &[(8, "09:00:30")]);
        // Not before it has been read, or the first rows of `a` may be alone.
        query.wait_for_state("b.fifo", SplitState::Empty);
        send(&mut a, &[(1, "09:00:01"), (2, "09:01:01"), (4, "09:02:01")]);
        assert_eq!(query.rows(2), ["2024-05-01T09:00:00,2,9", "2024-05-01T09:01:00,1,2"]);
        let idle = query.wait_for("b is idle", |splits| splits.iter().any(|split| split.idle));
        assert!(idle.iter().all(|split| split.idle == split.split.ends_with("b.fifo")), "{idle:?}");
        // It wakes with an old row, which is late: time does not go back.
        send(&mut b, &[(16, "09:00:45")]);
        query.wait_for("b is awake", |splits| splits.iter().all(|split| !split.idle));
        drop((a, b));
        let (rows, summary) = query.end();
        assert_eq!(rows, ["2024-05-01T09:02:00,1,4"]);
        assert_eq!((summary.late, summary.rows_in), (1, 5));
    }
}

#[test]
fn b006_an_input_that_never_spoke_is_idle_too() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (pipe(dir.path(), "a.fifo"), pipe(dir.path(), "b.fifo"));
    let query = Running::start(dir.path(), &union());
    let (mut a, b) = (open(&a), open(&b));
    query.wait_for_state("b.fifo", SplitState::NeverSpoke);
    send(&mut a, &[(1, "09:00:05"), (2, "09:01:02"), (8, "09:02:30")]);
    assert_eq!(query.rows(2), ["2024-05-01T09:00:00,1,1", "2024-05-01T09:01:00,1,2"]);
    drop((a, b));
    let (rows, summary) = query.end();
    assert_eq!(rows, ["2024-05-01T09:02:00,1,8"]);
    assert_eq!(summary.late, 0);
}

#[test]
fn b010_a_quiet_input_that_goes_on_does_not_close_its_last_window() {
    let dir = tempfile::tempdir().unwrap();
    let path = pipe(dir.path(), "t.fifo");
    let script = table("t", "ts - INTERVAL '5' SECOND", "") + WINDOWS;
    let query = Running::start(dir.path(), &script);
    let mut pipe = open(&path);
    send(&mut pipe, &[(1, "09:00:10"), (2, "09:00:20"), (4, "09:00:30")]);
    query.wait_for_state("t.fifo", SplitState::Empty);
    // 09:00:25, and the window ends at 09:01:00.
    let splits = query.splits();
    assert_eq!(splits[0].watermark.unwrap().0, 1_714_554_025_000_000);
    assert!(query.rows_at_hand().is_empty());
    drop(pipe);
    assert_eq!(query.end().0, ["2024-05-01T09:00:00,3,7"]);
}

#[test]
fn b092_a_row_is_out_while_the_pipe_is_still_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = pipe(dir.path(), "t.fifo");
    let query = Running::start(dir.path(), &(table("t", "ts", "") + "SELECT v, ts FROM t;"));
    let mut pipe = open(&path);
    send(&mut pipe, &[(1, "09:00:01")]);
    assert_eq!(query.row(), "1,2024-05-01T09:00:01");
    drop(pipe);
    query.end();
}

#[test]
fn all_idle_inputs_pass_on_their_highest_watermark() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (pipe(dir.path(), "a.fifo"), pipe(dir.path(), "b.fifo"));
    let idle = ", 'scan.watermark.idle-timeout' = '100 ms'";
    let script = table("a", "ts", idle)
        + &table("b", "ts", idle)
        + "CREATE TEMPORARY VIEW t AS SELECT v, ts FROM a UNION ALL SELECT v, ts FROM b;"
        + WINDOWS;
    let clock = Arc::new(VirtualClock::new(0));
    let query = Running::with_settings(dir.path(), &script, Some(clock.clone()), 1, 8_192);
    let (mut a, mut b) = (open(&a), open(&b));
    send(&mut a, &[(1, "09:00:01")]);
    send(&mut b, &[(2, "09:00:02"), (4, "09:02:00")]);
    query.wait_for("all is read", |splits| splits.iter().all(|split| split.state == SplitState::Empty));
    assert!(query.rows_at_hand().is_empty());
    query.wait_for("both are idle", |splits| {
        clock.advance(Duration::from_millis(50));
        splits.iter().all(|split| split.idle)
    });
    // `a` alone would hold the window 09:00; both idle, 09:02:00 counts.
    assert_eq!(query.row(), "2024-05-01T09:00:00,2,3");
    // Both go on, and the clock stands still; the window of `b` is still open.
    send(&mut a, &[(8, "09:02:01")]);
    query.wait_for_rows_in("Window", 4);
    send(&mut b, &[(32, "09:03:10")]);
    query.wait_for_rows_in("Window", 5);
    send(&mut a, &[(16, "09:03:30")]);
    assert_eq!(query.row(), "2024-05-01T09:02:00,2,12");
    drop((a, b));
    let (rows, summary) = query.end();
    assert_eq!((rows, summary.late), (vec!["2024-05-01T09:03:00,2,48".to_owned()], 0));
}

#[test]
fn b005_back_pressure_is_no_idleness() {
    // Two followed files with more rows than fit anywhere; nobody takes results for longer than the
    // timeout, by a clock that runs while we look away.
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for row in 0..60_000 {
        let (minute, rest) = (row / 600, row % 600);
        let (hour, minute) = (9 + minute / 60, minute % 60);
        let (second, tenth) = (rest / 10, rest % 10);
        text += &format!("{{\"v\":1,\"ts\":\"2024-05-01 {hour:02}:{minute:02}:{second:02}.{tenth}00\"}}\n");
    }
    for name in ["a", "b"] {
        std::fs::write(dir.path().join(format!("{name}.fifo")), &text).unwrap();
    }
    let clock = Arc::new(VirtualClock::new(0));
    let options = ", 'source.monitor-interval' = '1 s', 'scan.watermark.idle-timeout' = '500 ms'";
    let script = table("a", "ts", options)
        + &table("b", "ts", options)
        + "CREATE TEMPORARY VIEW t AS SELECT v, ts FROM a UNION ALL SELECT v, ts FROM b; SELECT v, ts FROM t;";
    let mut session = tidegate::session::Session::new();
    session.set_clock(Arc::<VirtualClock>::clone(&clock));
    session.set("execution.batch-rows", "512").unwrap();
    let mut query = crate::running::query(&mut session, dir.path(), &script).unwrap();
    let monitor = query.job().monitor().clone();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    let mut held_up = 0;
    let mut rows = 0;
    while held_up < 20 {
        // All that can be read ahead is read: both splits are paused.
        let splits = monitor.splits();
        assert!(splits.iter().all(|split| !split.idle), "{splits:?}");
        clock.advance(Duration::from_millis(300));
        if splits.len() == 2 && splits.iter().all(|split| split.state == SplitState::Paused) {
            held_up += 1;
            rows += query.next_batch().unwrap().unwrap().num_rows();
        }
        assert!(std::time::Instant::now() < deadline, "{splits:?}");
        std::thread::yield_now();
    }
    while rows < 120_000 {
        rows += query.next_batch().unwrap().unwrap().num_rows();
    }
    assert_eq!(rows, 120_000);
}

#[test]
fn then_advance_fires_the_last_window_of_a_quiet_stream() {
    let dir = tempfile::tempdir().unwrap();
    let path = pipe(dir.path(), "t.fifo");
    // The wall clock shows 2024-05-01 09:00:20 when the row comes.
    let clock = Arc::new(VirtualClock::new(1_714_554_020_000_000));
    let script = "CREATE TABLE t (v INT, ts TIMESTAMP(3), \
           WATERMARK FOR ts AS ts - INTERVAL '5' SECOND IDLE AFTER INTERVAL '2' SECOND THEN ADVANCE) \
         WITH ('connector' = 'filesystem', 'path' = '{dir}/t.fifo', 'format' = 'json');"
        .to_owned()
        + WINDOWS;
    let query = Running::with_settings(dir.path(), &script, Some(clock.clone()), 1, 8_192);
    let mut pipe = open(&path);
    send(&mut pipe, &[(1, "09:00:10"), (2, "09:00:19")]);
    query.wait_for("the rows are read", |splits| {
        splits[0].state == SplitState::Empty && splits[0].watermark.is_some()
    });
    // Time passes, in steps that are shorter than the timeout.
    query.wait_for("idle", |splits| {
        clock.advance(Duration::from_millis(500));
        splits[0].idle
    });
    // 09:00:20 + 45 s − 5 s = 09:01:00 and more.
    clock.advance(Duration::from_secs(45));
    assert_eq!(query.row(), "2024-05-01T09:00:00,2,3");
    send(&mut pipe, &[(4, "09:00:59")]);
    drop(pipe);
    let (rows, summary) = query.end();
    assert_eq!((rows.len(), summary.late), (0, 1));
}

#[test]
fn rows_too_far_ahead_move_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = pipe(dir.path(), "t.fifo");
    let clock = Arc::new(VirtualClock::new(1_714_554_000_000_000)); // 2024-05-01 09:00:00
    let script = "CREATE TABLE t (v INT, ts TIMESTAMP(3), \
           WATERMARK FOR ts AS ts MAX AHEAD INTERVAL '5' MINUTE) \
         WITH ('connector' = 'filesystem', 'path' = '{dir}/t.fifo', 'format' = 'json');"
        .to_owned()
        + WINDOWS;
    let query = Running::with_settings(dir.path(), &script, Some(clock), 1, 8_192);
    let mut pipe = open(&path);
    // Exactly five minutes ahead is not too far; a millisecond more is.
    send(
        &mut pipe,
        &[(1, "09:00:10"), (2, "10:00:00"), (4, "09:05:00.001"), (8, "09:00:20"), (16, "09:05:00")],
    );
    assert_eq!(query.row(), "2024-05-01T09:00:00,2,9");
    drop(pipe);
    let (rows, summary) = query.end();
    assert_eq!(rows, ["2024-05-01T09:05:00,1,16"]);
    assert_eq!((summary.future, summary.late, summary.rows_in), (2, 0, 5));
}

#[test]
fn a_folder_without_files_is_idle_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = pipe(dir.path(), "a.fifo");
    std::fs::create_dir(dir.path().join("b.fifo")).unwrap();
    let options = ", 'source.monitor-interval' = '5 ms', 'scan.watermark.idle-timeout' = '100 ms'";
    let script = table("a", "ts", "")
        + &table("b", "ts", options)
        + "CREATE TEMPORARY VIEW t AS SELECT v, ts FROM a UNION ALL SELECT v, ts FROM b;"
        + WINDOWS;
    let query = Running::start(dir.path(), &script);
    let mut a = open(&path);
    send(&mut a, &[(1, "09:00:01"), (2, "09:01:01")]);
    assert_eq!(query.row(), "2024-05-01T09:00:00,1,1");
    // A file that comes takes part. It goes on where `a` ends.
    let text = "{\"v\":8,\"ts\":\"2024-05-01 09:01:30\"}\n{\"v\":4,\"ts\":\"2024-05-01 09:02:30\"}\n";
    std::fs::write(dir.path().join("b.fifo/.new"), text).unwrap();
    std::fs::rename(dir.path().join("b.fifo/.new"), dir.path().join("b.fifo/new.json")).unwrap();
    drop(a);
    assert_eq!(query.row(), "2024-05-01T09:01:00,2,10");
    query.stop();
}

#[test]
fn a_split_that_never_spoke_holds_the_others_unless_it_may_be_idle() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (pipe(dir.path(), "a.fifo"), pipe(dir.path(), "b.fifo"));
    let script = table("a", "ts", "")
        + &table("b", "ts", "")
        + "CREATE TEMPORARY VIEW t AS SELECT v, ts FROM a UNION ALL SELECT v, ts FROM b;"
        + WINDOWS;
    let query = Running::start(dir.path(), &script);
    let (mut a, b) = (open(&a), open(&b));
    send(&mut a, &[(1, "09:00:05"), (2, "09:05:00")]);
    query.wait_for_state("a.fifo", SplitState::Empty);
    query.wait_for_state("b.fifo", SplitState::NeverSpoke);
    assert!(query.rows_at_hand().is_empty());
    // It ends without a row: it neither blocks nor floods.
    drop(b);
    assert_eq!(query.row(), "2024-05-01T09:00:00,1,1");
    drop(a);
    assert_eq!(query.end().0, ["2024-05-01T09:05:00,1,2"]);
}

#[test]
fn what_has_no_meaning_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let start = |watermark: &str, options: &str| {
        let script = format!(
            "CREATE TABLE t (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS {watermark}) \
             WITH ('connector' = 'datagen'{options}); SELECT v FROM t LIMIT 1;"
        );
        crate::running::query(&mut tidegate::session::Session::new(), dir.path(), &script)
    };
    let marker = "CASE WHEN v > 0 THEN ts END";
    let error = start(&format!("{marker} IDLE AFTER INTERVAL '1' SECOND THEN ADVANCE"), "").err().unwrap();
    assert!(error.code().starts_with('W') && error.message().contains("THEN ADVANCE"), "{error}");
    assert!(start(&format!("{marker} IDLE AFTER INTERVAL '1' SECOND"), "").is_ok());
    // On a table that ends.
    let bounded = ", 'number-of-rows' = '1'";
    let error = start("ts MAX AHEAD INTERVAL '1' SECOND", bounded).err().unwrap();
    assert!(error.code() == "P002" && error.message().contains("MAX AHEAD"), "{error}");
    let query = start("ts IDLE AFTER INTERVAL '1' SECOND", bounded).unwrap();
    assert!(query.warnings()[0].contains("IDLE AFTER"), "{:?}", query.warnings());
    assert!(start("ts", bounded).unwrap().warnings().is_empty());
}
