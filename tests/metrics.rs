//! What a session tells of its jobs: in SQL, as OpenMetrics, on the command line.

#![allow(clippy::unwrap_used, reason = "a test fails where it can no longer go on")]

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMillisecondArray};
use tidegate::connector::{Connectors, Memory};
use tidegate::session::{Outcome, QueryHandle, Session};

const TABLE: &str = "CREATE TABLE t (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) \
                     WITH ('connector' = 'filesystem', 'path' = '{dir}/in.json', 'format' = 'json');";
const WINDOW: &str = "SELECT window_start, window_end, COUNT(*) AS c, SUM(v) AS s
                      FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
                      GROUP BY window_start, window_end;";

fn folder(rows: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("in.json"), rows).unwrap();
    dir
}

/// Runs a script; the texts that its statements give. Queries are read to their end.
fn run(session: &mut Session, dir: &Path, script: &str) -> Vec<String> {
    let script = script.replace("{dir}", &dir.display().to_string());
    let mut texts = Vec::new();
    for statement in session.parse("test", &script).unwrap() {
        match session.execute(&statement).unwrap_or_else(|error| panic!("{}", error.render())) {
            Outcome::Text(text) => texts.push(text),
            Outcome::Query(mut query) => {
                while query.next_batch().unwrap().is_some() {}
                assert!(query.finish().unwrap().reconciles());
            }
            Outcome::Insert(insert) => drop(insert.wait().unwrap()),
            Outcome::Done(_) | Outcome::Rows(_) => {}
        }
    }
    texts
}

/// Reads OpenMetrics as a scraper does.
fn parsed(text: &str) -> Vec<String> {
    let families = openmetrics_parser::openmetrics::parse_openmetrics(text)
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    families.families.keys().cloned().collect()
}

/// The number of the first sample of a metric that has all of these labels.
fn sample(text: &str, name: &str, labels: &[&str]) -> f64 {
    let is_it = |line: &&str| {
        line.starts_with(&format!("{name}{{")) && labels.iter().all(|label| line.contains(label))
    };
    let line = text.lines().find(is_it).unwrap_or_else(|| panic!("no {name}{labels:?} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// B093: no metric stops the query, whatever the distance between event time and the clock.
#[test]
fn twenty_five_years_of_lag_are_a_number() {
    let dir =
        folder("{\"v\":1, \"ts\":\"1999-01-01 00:00:00\"}\n{\"v\":2, \"ts\":\"1999-01-01 00:02:00\"}\n");
    let mut session = Session::new();
    run(&mut session, dir.path(), &format!("{TABLE} {WINDOW}"));
    let status = session.jobs().status();
    let source = &status[0].snapshot.sources[0];
    // Read after 2024, and before 2500.
    let years = source.fetch_event_time_lag_us.unwrap() / (365 * 86_400 * 1_000_000);
    assert!((25..500).contains(&years), "{years} years");
    let text = session.jobs().to_open_metrics();
    parsed(&text);
    let lag = sample(&text, "tidegate_fetch_event_time_lag_seconds", &["job=\"1\"", "Source(t)"]);
    assert!(lag > 25.0 * 365.0 * 86_400.0, "{lag}");
}

/// B095: rows are stamped when they are read, each batch anew; markers carry that stamp.
#[test]
fn each_batch_has_an_arrival_of_its_own() {
    let memory = Memory::new();
    let mut connectors = Connectors::empty();
    connectors.add(Arc::new(memory.clone()));
    let (sender, receiver) = sync_channel(1);
    let batch = |v: i64| {
        let columns: [(&str, ArrayRef); 2] = [
            ("v", Arc::new(Int64Array::from(vec![v]))),
            ("ts", Arc::new(TimestampMillisecondArray::from(vec![v * 1_000]))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    memory.put_channel("t", batch(0).schema(), receiver);
    let mut session = Session::with_connectors(connectors);
    let script = "CREATE TABLE t (v BIGINT, ts TIMESTAMP(3)) WITH ('connector' = 'memory');
                  SET 'metrics.latency.interval' = '1 ns'; SELECT v FROM t;";
    let mut query: Option<Box<QueryHandle>> = None;
    for statement in session.parse("test", script).unwrap() {
        if let Outcome::Query(running) = session.execute(&statement).unwrap() {
            query = Some(running);
        }
    }
    let mut query = query.unwrap();
    for v in 0..50 {
        let sent = Instant::now();
        sender.send(batch(v)).unwrap();
        let given = query.next_batch().unwrap().unwrap();
        assert_eq!(given.rows.column(0).as_primitive::<arrow::datatypes::Int64Type>().value(0), v);
        assert!(given.arrived >= sent, "the stamp of batch {v} is older than the batch");
    }
    drop(sender);
    assert!(query.next_batch().unwrap().is_none());
    let summary = query.finish().unwrap();
    // One marker behind each batch; the true latency is that of the rows, from read to written.
    let markers = summary.latency.expect("markers");
    assert_eq!(markers.markers, 50);
    let status = session.jobs().status();
    let sink = status[0].snapshot.operators().find(|one| one.name == "Sink(result)").unwrap();
    let rows = sink.times.total.expect("rows were written");
    assert_eq!(rows.markers, 50);
    assert!(markers.p50_us >= rows.p50_us, "a marker can't be faster than its rows");
}

#[test]
fn explain_analyze_runs_the_statement_and_tells_what_was_measured() {
    let rows: String = (0..130)
        .map(|s| format!("{{\"v\":{s}, \"ts\":\"2024-05-01 09:{:02}:{:02}\"}}\n", s / 60, s % 60))
        .collect();
    let dir = folder(&rows);
    let mut session = Session::new();
    let texts = run(&mut session, dir.path(), &format!("{TABLE} EXPLAIN ANALYZE {WINDOW}"));
    let text = &texts[0];
    for part in [
        "~ Source(t): 130 rows in, 130 out",
        "~ WindowAggregate: 130 rows in, 3 out",
        "~ Sink(result): 3 rows in, 3 out",
        "watermark 2024-05-01 09:02:09.000",
        "read to written p50",
        "verdict: ",
    ] {
        assert!(text.contains(part), "no \"{part}\" in\n{text}");
    }
    let texts = run(&mut session, dir.path(), &format!("EXPLAIN ANALYZE JSON {WINDOW}"));
    let json: serde_json::Value = serde_json::from_str(&texts[0]).unwrap();
    assert_eq!(json["measured"]["sources"][0]["rows_read"], 130);
    assert_eq!(json["measured"]["is_over"], true);
    // With subtasks the two phases of the aggregation are told apart, and so is their skew.
    let texts = run(
        &mut session,
        dir.path(),
        "SET 'execution.parallelism' = '2'; EXPLAIN ANALYZE SELECT v, COUNT(*) AS n FROM \
         TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, v;",
    );
    assert!(texts[0].contains("over 2 subtasks"), "{}", texts[0]);
}

#[test]
fn a_stream_without_end_is_not_analyzed() {
    let mut session = Session::new();
    let script = "CREATE TABLE d (v INT) WITH ('connector' = 'datagen'); EXPLAIN ANALYZE SELECT v FROM d;";
    let statements = session.parse("test", script).unwrap();
    session.execute(&statements[0]).unwrap();
    let error = session.execute(&statements[1]).err().expect("it has no end");
    assert_eq!(error.message(), "this statement does not end by itself");
}

#[test]
fn a_stream_without_end_is_analyzed_for_some_time() {
    let mut session = Session::new();
    let script = "CREATE TABLE d (v INT) WITH ('connector' = 'datagen');
                  CREATE TABLE out (v INT) WITH ('connector' = 'blackhole');
                  EXPLAIN ANALYZE FOR INTERVAL '0.1' SECOND SELECT v FROM d;
                  EXPLAIN ANALYZE FOR INTERVAL '0.1' SECOND INSERT INTO out SELECT v FROM d;
                  EXPLAIN ANALYZE JSON FOR INTERVAL '1' MINUTE SELECT 1 AS one;";
    let texts = run(&mut session, Path::new("."), script);
    for text in &texts[..2] {
        assert!(text.contains("~ Source(d): ") && text.contains("verdict: "), "{text}");
    }
    // What ends before is not waited for.
    let json: serde_json::Value = serde_json::from_str(&texts[2]).unwrap();
    assert_eq!(json["measured"]["is_over"], true);
    let statements =
        session.parse("test", "EXPLAIN ANALYZE FOR INTERVAL '0' SECOND SELECT v FROM d").unwrap();
    let error = session.execute(&statements[0]).err().expect("no time");
    assert_eq!(error.message(), "FOR must be longer than zero");
}

/// A job that runs is asked what it does from now on, and which windows have a key.
#[test]
fn a_running_job_is_analyzed_and_asked_for_windows() {
    let memory = Memory::new();
    let mut connectors = Connectors::empty();
    connectors.add(Arc::new(memory.clone()));
    let (sender, receiver) = sync_channel(1);
    let columns: [(&str, ArrayRef); 2] = [
        ("k", Arc::new(Int64Array::from(vec![1, 1, 2]))),
        ("ts", Arc::new(TimestampMillisecondArray::from(vec![0, 59_000, 61_000]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    memory.put_channel("t", batch.schema(), receiver);
    let mut session = Session::with_connectors(connectors);
    let script = "CREATE TABLE t (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)
                  WITH ('connector' = 'memory');
                  SELECT k, COUNT(*) AS c FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
                  GROUP BY window_start, window_end, k EMIT CHANGES;";
    let mut query = None;
    for statement in session.parse("test", script).unwrap() {
        if let Outcome::Query(running) = session.execute(&statement).unwrap() {
            query = Some(running);
        }
    }
    let mut query = query.unwrap();
    sender.send(batch).unwrap();
    // Changes come of each row, so the windows have them: +I, -U, +U of key 1, +I of key 2.
    let mut changes = 0;
    while changes < 4 {
        changes += query.next_batch().unwrap().unwrap().num_rows();
    }
    let mut ask = |sql: &str| {
        let statements = session.parse("test", sql).unwrap();
        match session.execute(&statements[0]) {
            Ok(Outcome::Text(text)) => text,
            Ok(_) => panic!("{sql} gives no text"),
            Err(error) => error.message().to_owned(),
        }
    };
    let text = ask("EXPLAIN ANALYZE JOB FOR INTERVAL '0.05' SECOND");
    assert!(text.contains("~ Source(t): 0 rows in, 0 out"), "since it was asked nothing came: {text}");
    let one = ask("EXPLAIN WINDOW WHERE k = 1");
    assert!(
        one.contains("window [1970-01-01 00:00:00.000, 1970-01-01 00:01:00.000) with 1 group fires"),
        "{one}"
    );
    assert_eq!(one.lines().count(), 1, "{one}");
    let two: serde_json::Value = serde_json::from_str(&ask("EXPLAIN WINDOW JSON 1 WHERE K = 2")).unwrap();
    assert_eq!(two["windows"][0]["start"], 60_000_000);
    assert_eq!((two["windows"].as_array().unwrap().len(), &two["unanswered"]), (1, &serde_json::json!([])));
    assert_eq!(ask("EXPLAIN WINDOW WHERE k = 3"), "no window is open\n");
    assert_eq!(ask("EXPLAIN WINDOW WHERE q = 3"), "no windows of the job are grouped by \"q\"");
    drop(sender);
    while query.next_batch().unwrap().is_some() {}
    assert!(query.finish().unwrap().reconciles());
    assert_eq!(ask("EXPLAIN WINDOW WHERE k = 1"), "no window is open\n");
}

#[test]
fn jobs_are_asked_by_number_by_table_or_the_last_one() {
    let dir =
        folder("{\"v\":1, \"ts\":\"2024-05-01 09:00:00\"}\n{\"v\":2, \"ts\":\"2024-05-01 08:59:30\"}\n");
    let mut session = Session::new();
    let script = format!(
        "{TABLE} CREATE TABLE out (v INT) WITH ('connector' = 'blackhole');
         INSERT INTO out SELECT v FROM t; {WINDOW} DIAGNOSE; DIAGNOSE out; EXPLAIN WATERMARK 1;
         EXPLAIN WINDOW; EXPLAIN LATENESS out; DIAGNOSE JSON 2;"
    );
    let texts = run(&mut session, dir.path(), &script);
    // The second row is 30 s behind the first: late for its window, and one of two.
    assert!(texts[0].contains("late_rows: 1 of 2 rows of Source(t) were late"), "{}", texts[0]);
    assert!(texts[1].contains("Sink(out)[0]: busy"), "{}", texts[1]);
    assert!(texts[2].contains("Source(t)[0]: 2024-05-01 09:00:00.000"), "{}", texts[2]);
    assert_eq!(texts[3], "no window is open\n");
    assert!(texts[4].starts_with("Source(t): 1 of 2 rows that were looked at are out of order\n"));
    assert!(texts[4].contains("  delay 0 s: 50.0000 % of the rows late at most"), "{}", texts[4]);
    let enough = "delay 30 s: 0.0000 % of the rows late at most, results 30 s later: \
                  WATERMARK FOR ts AS ts - INTERVAL '30' SECOND";
    assert!(texts[4].contains(enough), "{}", texts[4]);
    let json: serde_json::Value = serde_json::from_str(&texts[5]).unwrap();
    let kinds = json["findings"].as_array().unwrap();
    assert!(kinds.iter().any(|finding| finding["kind"] == "late_rows"), "{kinds:?}");
    let statements = session.parse("test", "SHOW JOBS; DIAGNOSE nowhere").unwrap();
    let Outcome::Rows(rows) = session.execute(&statements[0]).unwrap() else { panic!("no rows") };
    let column = |index: usize| rows.column(index).as_string::<i32>().iter().flatten().collect::<Vec<_>>();
    assert_eq!((column(0), column(1), column(3)), (vec!["1", "2"], vec!["out", "query"], vec!["2", "2"]));
    let error = session.execute(&statements[1]).err().expect("no such job");
    assert_eq!(error.message(), "no job \"nowhere\"");
}

#[test]
fn open_metrics_are_read_by_a_scraper() {
    let dir = folder("{\"v\":1, \"ts\":\"2024-05-01 09:00:00\"}\n");
    let mut session = Session::new();
    assert_eq!(session.jobs().to_open_metrics(), "# EOF\n");
    run(&mut session, dir.path(), &format!("{TABLE} {WINDOW}"));
    let text = session.jobs().to_open_metrics();
    let names = parsed(&text);
    assert!(names.len() > 20);
    assert!(names.iter().all(|name| name.starts_with("tidegate_")), "{names:?}");
    assert_eq!(
        sample(&text, "tidegate_records_in_total", &["job=\"1\"", "operator=\"WindowAggregate\""]),
        1.0
    );
}

const CHECKPOINTED: &str = "CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000');
    CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO nowhere SELECT n FROM ticks;";

/// What is known of checkpoints stands there number by number, also of those that fail.
#[test]
fn checkpoints_are_measured() {
    let dir = folder("{\"v\":1, \"ts\":\"2024-05-01 09:00:00\"}\n");
    let mut session = Session::new();
    run(&mut session, dir.path(), &format!("{TABLE} {WINDOW}"));
    assert!(!session.jobs().to_open_metrics().contains("checkpoint"), "a job that takes none has none");
    assert_eq!(session.jobs().to_json()["jobs"][0].get("checkpoints"), None);
    session.set("execution.checkpoint.dir", &dir.path().join("state").display().to_string()).unwrap();
    session.set("execution.checkpoint.interval", "10 ms").unwrap();
    let mut started = None;
    for statement in session.parse("test", CHECKPOINTED).unwrap() {
        if let Outcome::Insert(job) = session.execute(&statement).unwrap() {
            started = Some(job);
        }
    }
    let job = started.unwrap();
    let status = || job.checkpoints().unwrap();
    let until = |what: &str, happened: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !happened() {
            assert!(begun.elapsed() < Duration::from_secs(60), "waited for {what}: {:?}", status());
            assert!(job.wait_for(Duration::from_millis(2)).is_none(), "it goes on");
        }
    };
    until("some checkpoints", &|| status().completed >= 3);
    // Where the next one would be there is a file.
    let (folder, tries) = (dir.path().join("state/job-2"), Cell::new(0));
    until("a file in its place", &|| {
        tries.set(tries.get() + 1);
        let away = dir.path().join(format!("away{}", tries.get()));
        // The run may make the folder again in between.
        fs::rename(&folder, away).is_ok() && fs::write(&folder, "").is_ok()
    });
    until("failures", &|| status().failed >= 2 && status().failure.is_some());
    let before = status();
    let text = session.jobs().to_open_metrics();
    parsed(&text);
    let of_job = |name: &str| sample(&text, &format!("tidegate_{name}"), &["{job=\"2\"}"]);
    let seconds = |us: u64| us as f64 / 1e6;
    for (name, expected) in [
        ("checkpoints_completed_total", before.completed as f64),
        ("last_checkpoint_id", before.completed as f64),
        ("last_checkpoint_duration_seconds", seconds(before.last_duration_us)),
        ("last_checkpoint_size_bytes", before.last_bytes as f64),
        ("last_checkpoint_gather_seconds", seconds(before.last_gather_us)),
        ("longest_checkpoint_gather_seconds", seconds(before.longest_gather_us)),
        ("last_checkpoint_tell_seconds", seconds(before.last_tell_us)),
        ("longest_checkpoint_tell_seconds", seconds(before.longest_tell_us)),
    ] {
        assert_eq!(of_job(name), expected, "{name}");
    }
    assert!(before.last_bytes > 0 && before.last_duration_us > 0, "{before:?}");
    assert!(of_job("checkpoints_failed_total") >= before.failed as f64);
    // It gets older while none is written.
    let age = |text: &str| sample(text, "tidegate_last_checkpoint_age_seconds", &["{job=\"2\"}"]);
    until("an older one", &|| age(&session.jobs().to_open_metrics()) > age(&text));
    let told = session.jobs().to_json()["jobs"][1]["checkpoints"].clone();
    assert_eq!((&told["completed"], &told["last"]), (&before.completed.into(), &before.completed.into()));
    assert!(told["failure"].as_str().unwrap().contains("can't write checkpoint"), "{told}");
    assert!(told["last_age_ms"].as_f64().unwrap() >= age(&text) * 1e3 - 1.0, "{told}");
    // A last one that can't be written counts, too.
    let failed = status().failed;
    job.suspend();
    assert_eq!(job.wait().unwrap_err().code(), "K004");
    assert!(status().failed > failed && !job.is_suspended());
}

/// Starts the program with a script on a pipe that stays open; reads the address of its metrics.
#[test]
fn the_command_line_serves_metrics_and_writes_stats() {
    let dir = folder("");
    let stats = dir.path().join("stats.json");
    let script = dir.path().join("q.sql");
    let text =
        "CREATE TABLE t (v INT) WITH ('connector' = 'stdin', 'format' = 'json'); SELECT v + 1 AS v FROM t;";
    fs::write(&script, text).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", "--metrics", ":0", "-f", "csv", "--stats"])
        .args([&stats, &script])
        .arg("--checkpoint-dir")
        .arg(dir.path().join("state"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    let mut errors = BufReader::new(program.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("metrics are at http://").unwrap_or_else(|| panic!("{line}"));
    let address = address.strip_suffix("/metrics").unwrap().to_owned();
    assert!(address.starts_with("127.0.0.1:"));
    input.write_all(b"{\"v\":41}\n").unwrap();
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut row = String::new();
    while row != "42\n" {
        row.clear();
        assert!(output.read_line(&mut row).unwrap() > 0, "the row did not come");
    }
    let fetch = |path: &str| {
        let mut client = TcpStream::connect(&address).unwrap();
        write!(client, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    };
    let (head, body) = fetch("/metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text;"), "{head}");
    parsed(&body);
    assert_eq!(sample(&body, "tidegate_records_out_total", &["operator=\"Calc\""]), 1.0);
    assert_eq!(sample(&body, "tidegate_checkpoints_failed_total", &["{job=\"1\"}"]), 0.0);
    assert!(fetch("/").0.starts_with("HTTP/1.1 404 "));
    drop(input);
    assert!(program.wait().unwrap().success());
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(&stats).unwrap()).unwrap();
    assert_eq!(json["jobs"][0]["snapshot"]["sources"][0]["rows_read"], 1);
    assert_eq!(json["jobs"][0]["snapshot"]["is_over"], true);
    // One before the first row, one at the end.
    let checkpoints = &json["jobs"][0]["checkpoints"];
    assert!(
        checkpoints["completed"].as_u64().unwrap() >= 2 && checkpoints["last_bytes"] != 0,
        "{checkpoints}"
    );
}
