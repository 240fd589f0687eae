//! The tables `system.…`: what is measured of jobs, in SQL.

#![allow(clippy::unwrap_used, reason = "a test fails where it can no longer go on")]

#[allow(dead_code, reason = "the drivers of the corpora use more of it")]
mod support;

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use serde_json::{Value, json};
use support::{Step, run};
use tidegate::connector::{Connectors, Memory};
use tidegate::session::{Outcome, QueryHandle, Session};
use tidegate::stream::VirtualClock;

const TABLES: [&str; 9] = [
    "channels",
    "checkpoints",
    "jobs",
    "latency",
    "operators",
    "reconciliation",
    "splits",
    "watermarks",
    "windows",
];

/// A session with a job of 130 rows in three windows of two keys, of which one row is late.
fn session() -> Session {
    let dir = tempfile::tempdir().unwrap();
    let mut rows: String = (0..129)
        .map(|s| format!("{{\"v\":{s}, \"ts\":\"2024-05-01 09:{:02}:{:02}\"}}\n", s / 60, s % 60))
        .collect();
    rows += "{\"v\":-1, \"ts\":\"2024-05-01 09:00:30\"}\n";
    fs::write(dir.path().join("in.json"), rows).unwrap();
    let script = format!(
        "SET 'execution.parallelism' = '2';
         CREATE TABLE t (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
         WITH ('connector' = 'filesystem', 'path' = '{}/in.json', 'format' = 'json');
         CREATE TABLE out (a TIMESTAMP(3), c BIGINT) WITH ('connector' = 'blackhole');
         INSERT INTO out SELECT window_start, COUNT(*) FROM
         TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, v % 2;",
        dir.path().display()
    );
    let mut session = Session::new();
    for step in run(&mut session, "test", &script) {
        match step {
            Step::Insert(summary) => assert_eq!(summary.unwrap().late, 1),
            Step::Query(_) => panic!("there is no query"),
            Step::Failed(error) => panic!("{}", error.render()),
        }
    }
    session
}

fn rows(session: &mut Session, sql: &str) -> Vec<Value> {
    match run(session, "test", sql).pop() {
        Some(Step::Query(Ok(answer))) => answer.rows.into_iter().map(|(_, row)| row).collect(),
        Some(Step::Query(Err(error)) | Step::Failed(error)) => panic!("{sql}: {}", error.render()),
        _ => panic!("{sql} is no query"),
    }
}

fn failure(session: &mut Session, sql: &str) -> String {
    match run(session, "test", sql).pop() {
        Some(Step::Query(Err(error)) | Step::Insert(Err(error)) | Step::Failed(error)) => error.render(),
        _ => panic!("{sql} does not fail"),
    }
}

#[test]
fn each_table_has_its_moment_first() {
    let mut session = session();
    for table in TABLES {
        let found = rows(&mut session, &format!("SELECT * FROM system.{table};"));
        // No window is open when the input has ended, and the job takes no checkpoints.
        assert_eq!(found.is_empty(), ["checkpoints", "windows"].contains(&table), "{table}");
        for row in found {
            let row = row.as_object().unwrap();
            assert_eq!(row.keys().next().unwrap(), "as_of", "{table}");
            assert_eq!(row["job"], 1, "{table}");
        }
    }
}

#[test]
fn rows_and_time_are_accounted_for() {
    let mut session = session();
    assert_eq!(
        rows(&mut session, "SELECT name, state, rows_in, rows_out, late FROM system.jobs;"),
        [json!({ "name": "out", "state": "finished", "rows_in": 130, "rows_out": 6, "late": 1 })]
    );
    let lost = "SELECT COUNT(*) AS n FROM system.reconciliation WHERE difference <> 0;";
    assert_eq!(rows(&mut session, lost), [json!({ "n": 0 })]);
    let late = "SELECT rows_in, used, late FROM system.reconciliation WHERE late > 0;";
    assert_eq!(rows(&mut session, late), [json!({ "rows_in": 130, "used": 129, "late": 1 })]);
    let read = "SELECT source, state, rows, watermark FROM system.splits;";
    assert_eq!(
        rows(&mut session, read),
        [json!({
            "source": "Source(t)", "state": "finished", "rows": 130, "watermark": "2024-05-01 09:02:08"
        })]
    );
    let times = "SELECT busyTimeMsPerSecond + idleTimeMsPerSecond + backPressuredTimeMsPerSecond AS ms
                 FROM system.operators;";
    let times = rows(&mut session, times);
    assert!(times.len() >= 3);
    for row in times {
        assert!((row["ms"].as_f64().unwrap() - 1_000.0).abs() <= 10.0, "{row}");
    }
    let latency = "SELECT kind, SUM(`count`) AS n FROM system.latency WHERE operator = 'Sink(out)' \
                   AND kind = 'total' GROUP BY kind;";
    assert_eq!(rows(&mut session, latency), [json!({ "kind": "total", "n": 6 })]);
    let watermark = "SELECT DISTINCT currentOutputWatermark AS w FROM system.watermarks
                     WHERE operator = 'Source(t)';";
    assert_eq!(rows(&mut session, watermark), [json!({ "w": "2024-05-01 09:02:08" })]);
}

#[test]
fn they_are_tables_like_others() {
    let mut session = session();
    for (sql, n) in [
        // Names have any case, and an alias or their own name before them.
        (
            "SELECT COUNT(*) AS n FROM SYSTEM.Operators AS o WHERE o.NUMRECORDSIN = 6 AND o.OPERATOR = 'Sink(out)';",
            1,
        ),
        (
            "SELECT COUNT(operators.node) AS n FROM system.operators WHERE operators.operator = 'Sink(out)';",
            1,
        ),
        (
            "SELECT COUNT(*) AS n FROM (SELECT operator FROM system.operators UNION ALL
          SELECT operator FROM system.watermarks) WHERE operator = 'Sink(out)';",
            2,
        ),
        (
            "SELECT COUNT(*) AS n FROM TABLE(TUMBLE(TABLE system.jobs, DESCRIPTOR(as_of), INTERVAL '1' DAY))
          GROUP BY window_start, window_end;",
            1,
        ),
    ] {
        assert_eq!(rows(&mut session, sql), [json!({ "n": n })], "{sql}");
    }
    let view = "CREATE VIEW busy AS SELECT operator FROM system.operators WHERE operator = 'Source(t)';
                SELECT COUNT(*) AS n FROM busy;";
    assert_eq!(rows(&mut session, view), [json!({ "n": 1 })]);
}

#[test]
fn they_are_always_there_and_only_read() {
    let mut session = session();
    let wrong = [
        ("DROP TABLE system.jobs;", "\"system.jobs\" is always there"),
        ("INSERT INTO system.jobs SELECT * FROM system.jobs;", "has several parts"),
        ("SELECT * FROM system.job;", "Use \"system.jobs\"."),
        ("SELECT * FROM jobs;", "no table or view \"jobs\""),
        ("CREATE TABLE x (a INT) WITH ('connector' = 'system');", "Select from system.jobs"),
    ];
    for (sql, text) in wrong {
        let error = failure(&mut session, sql);
        assert!(error.contains(text), "{sql}: {error}");
    }
    for (sql, column, first) in [("SHOW TABLES", 0, "out"), ("DESCRIBE system.jobs", 0, "as_of")] {
        let statements = session.parse("test", sql).unwrap();
        let Outcome::Rows(rows) = session.execute(&statements[0]).unwrap() else { panic!("no rows") };
        assert_eq!(rows.column(column).as_string::<i32>().value(0), first);
    }
}

#[test]
fn who_asks_about_jobs_is_no_job() {
    let mut session = session();
    for _ in 0..3 {
        assert_eq!(rows(&mut session, "SELECT COUNT(*) AS n FROM system.jobs;"), [json!({ "n": 1 })]);
    }
    let statements = session.parse("test", "DIAGNOSE").unwrap();
    let Outcome::Text(text) = session.execute(&statements[0]).unwrap() else { panic!("no text") };
    assert!(text.contains("Sink(out)"), "{text}");
}

/// A stream of a table reads it each time that its length of time has passed.
#[test]
fn as_a_stream_a_table_is_read_again_and_again() {
    let memory = Memory::new();
    let mut connectors = Connectors::empty();
    connectors.add(Arc::new(memory.clone()));
    let batch = |v: i64| {
        let columns: [(&str, ArrayRef); 2] = [
            ("v", Arc::new(Int64Array::from(vec![v; 10]))),
            ("ts", Arc::new(TimestampMillisecondArray::from(vec![v * 1_000; 10]))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let (sender, receiver) = sync_channel(1);
    memory.put_channel("t", batch(0).schema(), receiver);
    let clock = Arc::new(VirtualClock::new(1_714_554_000_000_000));
    let mut session = Session::with_connectors(connectors);
    session.set_clock(Arc::clone(&clock) as Arc<_>);
    let mut start = |sql: &str| -> Box<QueryHandle> {
        let statements = session.parse("test", sql).unwrap();
        let mut outcomes = statements.iter().map(|one| match session.execute(one) {
            Ok(outcome) => outcome,
            Err(error) => panic!("{}", error.render()),
        });
        match outcomes.by_ref().last() {
            Some(Outcome::Query(query)) => query,
            _ => panic!("no query"),
        }
    };
    let mut job =
        start("CREATE TABLE t (v BIGINT, ts TIMESTAMP(3)) WITH ('connector' = 'memory'); SELECT v FROM t;");
    let mut looks = start("SELECT as_of, rows_in FROM system.jobs EMIT CHANGES EVERY INTERVAL '1' SECOND;");
    // The clock stands: it moves only here.
    let next = |looks: &mut QueryHandle| {
        let batch = looks.next_batch().unwrap().unwrap();
        assert_eq!(batch.num_rows(), 1);
        let (as_of, rows_in) = (batch.rows.column(0), batch.rows.column(1));
        let as_of = as_of.as_primitive::<TimestampMillisecondType>().value(0);
        (as_of - 1_714_554_000_000, rows_in.as_primitive::<Int64Type>().value(0))
    };
    assert_eq!(next(&mut looks), (0, 0));
    for second in 1..=3 {
        sender.send(batch(second)).unwrap();
        assert_eq!(job.next_batch().unwrap().unwrap().num_rows(), 10);
        clock.advance(Duration::from_secs(1));
        assert_eq!(next(&mut looks), (second * 1_000, second * 10));
    }
    // Rounds that nobody could give are not made up for.
    clock.advance(Duration::from_secs(5));
    assert_eq!(next(&mut looks), (8_000, 30));
    clock.advance(Duration::from_millis(999));
    clock.advance(Duration::from_millis(1));
    assert_eq!(next(&mut looks), (9_000, 30));
    drop(sender);
}
