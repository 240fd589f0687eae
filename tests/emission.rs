//! EMIT and ALLOW LATENESS from SQL to changes, at several batch sizes and parallelisms.

#![allow(clippy::unwrap_used, reason = "a test fails where it can no longer go on")]

#[allow(dead_code, reason = "the drivers of the corpora use more of it")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, StringArray, TimestampMillisecondArray};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::Value;
use support::{Step, run};
use tidegate::catalog::{Catalog, Relation};
use tidegate::connector::{Connectors, Memory};
use tidegate::plan::Planner;
use tidegate::runtime::{JobClock, JobOptions, Schedule, Stepped};
use tidegate::session::Session;
use tidegate::sql::Statement;
use tidegate::stream::VirtualClock;

const SETTINGS: [(usize, usize); 6] = [(1, 1), (3, 1), (8192, 1), (2, 2), (1, 4), (8192, 4)];

/// The changes that a script's queries give, each as `+I cells`, a list a query.
fn answers(script: &str, batch_rows: usize, parallelism: usize) -> Vec<Vec<String>> {
    let mut session = Session::new();
    session.set("execution.batch-rows", &batch_rows.to_string()).unwrap();
    session.set("execution.parallelism", &parallelism.to_string()).unwrap();
    let steps = run(&mut session, "query.sql", script);
    let changes = |step| match step {
        Step::Query(answer) => {
            let rows = answer.unwrap().rows;
            Some(rows.iter().map(|(kind, row)| format!("{kind} {}", cells(row))).collect())
        }
        Step::Insert(summary) => {
            summary.unwrap();
            None
        }
        Step::Failed(error) => panic!("{error}"),
    };
    steps.into_iter().filter_map(changes).collect()
}

/// The cells of a row, times without their day.
fn cells(row: &Value) -> String {
    let cell = |value: &Value| match value {
        Value::String(text) => text.replace("2024-05-01 ", ""),
        other => other.to_string(),
    };
    row.as_object().unwrap().values().map(cell).collect::<Vec<_>>().join(",")
}

/// The changes of `query` over a file of `lines`. All of them are the same at every batch size without
/// parallelism; with it, those of each key are, which the first `key` cells make.
fn changes(watermark: &str, lines: &str, key: usize, query: &str) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("in.json"), lines).unwrap();
    let script = format!("{}{query}", table(place.path(), watermark));
    let first = answers(&script, 1, 1).remove(0);
    for (batch_rows, parallelism) in SETTINGS {
        let given = answers(&script, batch_rows, parallelism).remove(0);
        let context = format!("{batch_rows} rows a batch, parallelism {parallelism}");
        if parallelism == 1 {
            assert_eq!(given, first, "{context}");
        } else {
            assert_eq!(by_key(&given, key), by_key(&first, key), "{context}");
        }
    }
    first
}

fn table(place: &Path, watermark: &str) -> String {
    format!(
        "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS {watermark})
         WITH ('connector'='filesystem', 'path'='{}/in.json', 'format'='json');",
        place.display()
    )
}

fn by_key(changes: &[String], key: usize) -> BTreeMap<String, Vec<String>> {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for change in changes {
        let of = change[3..].split(',').take(key).collect::<Vec<_>>().join(",");
        keys.entry(of).or_default().push(change.clone());
    }
    keys
}

/// The rows that changes leave, sorted.
fn folded(changes: &[String]) -> Vec<String> {
    let mut rows: Vec<&str> = Vec::new();
    for change in changes {
        if matches!(&change[..2], "+I" | "+U") {
            rows.push(&change[3..]);
        } else {
            let place =
                rows.iter().rposition(|row| *row == &change[3..]).expect("it takes away what is there");
            rows.remove(place);
        }
    }
    let mut rows: Vec<String> = rows.into_iter().map(str::to_owned).collect();
    rows.sort();
    rows
}

/// The watermark after each row is its time less 5 s; the window from 09:00 closes at 09:00:09.999.
const LINES: &str = r#"{"k":"a", "v":1, "ts":"2024-05-01 09:00:01"}
{"k":"b", "v":2, "ts":"2024-05-01 09:00:04"}
{"k":"a", "v":3, "ts":"2024-05-01 09:00:09.999"}
{"k":"a", "v":4, "ts":"2024-05-01 09:00:15"}
{"k":"b", "v":5, "ts":"2024-05-01 09:00:08"}
{"k":"c", "v":6, "ts":"2024-05-01 09:00:07"}
{"k":"a", "v":0, "ts":"2024-05-01 09:00:16"}
{"k":"a", "v":7, "ts":"2024-05-01 09:00:24.999"}
{"k":"c", "v":8, "ts":"2024-05-01 09:00:02"}
"#;
const DELAYED: &str = "ts - INTERVAL '5' SECOND";
const SUMS: &str = "SELECT window_start AS w, k, SUM(v) AS x \
    FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, k";

#[test]
fn final_results_are_as_ever() {
    // At 09:00:15 the watermark is 09:00:10: the rows of b and c after it are late.
    let given = changes(DELAYED, LINES, 2, &format!("{SUMS} EMIT ON WINDOW CLOSE;"));
    let expected = ["+I 09:00:00,a,4", "+I 09:00:00,b,2", "+I 09:00:10,a,4", "+I 09:00:20,a,7"];
    assert_eq!(given, expected);
}

#[test]
fn each_change() {
    let given = changes(DELAYED, LINES, 2, &format!("{SUMS} EMIT CHANGES;"));
    let expected = [
        "+I 09:00:00,a,1",
        "+I 09:00:00,b,2",
        "-U 09:00:00,a,1",
        "+U 09:00:00,a,4",
        "+I 09:00:10,a,4",
        "+I 09:00:20,a,7",
    ];
    assert_eq!(given, expected, "the row of 0 changes nothing");
}

#[test]
fn late_rows_within_the_lateness_change_what_was_final() {
    // With 10 s: b at 09:00:08 and c at 09:00:07 are in time while the watermark is below
    // 09:00:19.999, which it is at from the row at 09:00:24.999 on. The last row is late.
    let given = changes(DELAYED, LINES, 2, &format!("{SUMS} ALLOW LATENESS INTERVAL '10' SECOND;"));
    let expected = [
        "+I 09:00:00,a,4",
        "+I 09:00:00,b,2",
        "-U 09:00:00,b,2",
        "+U 09:00:00,b,7",
        "+I 09:00:00,c,6",
        "+I 09:00:10,a,4",
        "+I 09:00:20,a,7",
    ];
    assert_eq!(given, expected);
    // One ms more, and the last row is in time, too.
    let given = changes(DELAYED, LINES, 2, &format!("{SUMS} ALLOW LATENESS INTERVAL '10.001' SECOND;"));
    assert!(given.ends_with(&[
        "-U 09:00:00,c,6".into(),
        "+U 09:00:00,c,14".into(),
        "+I 09:00:20,a,7".into()
    ]));
    let both = format!("{SUMS} EMIT CHANGES ALLOW LATENESS INTERVAL '10.001' SECOND;");
    assert_eq!(folded(&changes(DELAYED, LINES, 2, &both)), folded(&given));
}

#[test]
fn late_rows_go_to_their_table_when_the_lateness_is_over() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("in.json"), LINES).unwrap();
    let script = format!(
        "{}{SUMS} ALLOW LATENESS INTERVAL '10' SECOND LATE ROWS INTO side;
         SELECT k, v, late_window_end AS w, late_by AS x FROM side;",
        table(place.path(), DELAYED)
    );
    for (batch_rows, parallelism) in SETTINGS {
        let late = answers(&script, batch_rows, parallelism).remove(1);
        // The watermark of 09:00:19.999 is 9.999 s behind the window's end.
        assert_eq!(late, ["+I c,8,09:00:10,9.999000000 secs"], "{batch_rows}, {parallelism}");
    }
}

#[test]
fn having_makes_deletes_and_inserts_of_half_updates() {
    let query =
        "SELECT k, COUNT(*) AS c, SUM(v) AS s FROM t GROUP BY k HAVING SUM(v) BETWEEN 2 AND 8 EMIT CHANGES;";
    // a: 1, 4, 8, 8, 15. b: 2, 7. c: 6, 14.
    let lines = changes(DELAYED, LINES, 1, query);
    let expected = [
        "+I b,1,2", "+I a,2,4", "-U a,2,4", "+U a,3,8", "-U b,1,2", "+U b,2,7", "+I c,1,6", "-U a,3,8",
        "+U a,4,8", "-D a,4,8", "-D c,1,6",
    ];
    assert_eq!(lines, expected);
}

/// The watermark is the row's time less 5 s, sessions have a gap of 10 s.
const VISITS: &str = r#"{"k":"a", "v":1, "ts":"2024-05-01 09:00:00"}
{"k":"b", "v":2, "ts":"2024-05-01 09:00:03"}
{"k":"a", "v":4, "ts":"2024-05-01 09:00:14"}
{"k":"a", "v":8, "ts":"2024-05-01 09:00:09"}
{"k":"b", "v":16, "ts":"2024-05-01 09:00:30"}
{"k":"a", "v":32, "ts":"2024-05-01 09:00:20"}
{"k":"b", "v":64, "ts":"2024-05-01 09:00:08"}
{"k":"c", "v":128, "ts":"2024-05-01 09:00:50"}
"#;
const SESSIONS: &str = "SELECT k, window_start AS s, window_end AS e, SUM(v) AS x \
    FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND)) \
    GROUP BY window_start, window_end, k";

#[test]
fn sessions_change_with_each_row() {
    // At 09:00:14 the watermark is 09:00:09: both sessions of a are open, and the row at :09 joins them. At
    // :30 it is :25, which closes [:03, :13) of b and [:00, :24) of a; so the row of a at :20 begins [:20, :30),
    // and the row of b at :08 is late.
    let given = changes(DELAYED, VISITS, 1, &format!("{SESSIONS} EMIT CHANGES;"));
    let expected = [
        "+I a,09:00:00,09:00:10,1",
        "+I b,09:00:03,09:00:13,2",
        "+I a,09:00:14,09:00:24,4",
        "-D a,09:00:14,09:00:24,4",
        "-D a,09:00:00,09:00:10,1",
        "+I a,09:00:00,09:00:24,13",
        "+I b,09:00:30,09:00:40,16",
        "+I a,09:00:20,09:00:30,32",
        "+I c,09:00:50,09:01:00,128",
    ];
    assert_eq!(given, expected);
    let finals = changes(DELAYED, VISITS, 1, &format!("{SESSIONS};"));
    let kept = ["+I a,09:00:00,09:00:24,13", "+I a,09:00:20,09:00:30,32", "+I b,09:00:03,09:00:13,2"];
    assert_eq!(folded(&finals)[..3], kept.map(|line| line[3..].to_owned()));
    assert_eq!(folded(&given), folded(&finals));
}

#[test]
fn sessions_that_are_over_grow_within_the_lateness() {
    // With 15 s the row of a at :20 finds [:00, :24), which it makes [:00, :30): open again, so what was
    // given stands until that closes, before the row at :50. The row of b at :08 makes [:03, :13) a session
    // that ends at :18, which has closed: it changes at once.
    let clause = "ALLOW LATENESS INTERVAL '15' SECOND";
    let given = changes(DELAYED, VISITS, 1, &format!("{SESSIONS} {clause};"));
    let expected = [
        "+I b,09:00:03,09:00:13,2",
        "+I a,09:00:00,09:00:24,13",
        "-D b,09:00:03,09:00:13,2",
        "+I b,09:00:03,09:00:18,66",
        "-D a,09:00:00,09:00:24,13",
        "+I a,09:00:00,09:00:30,45",
        "+I b,09:00:30,09:00:40,16",
        "+I c,09:00:50,09:01:00,128",
    ];
    assert_eq!(given, expected);
    let every = "INTERVAL '1' HOUR";
    for emit in [
        "CHANGES".into(),
        "COMPLETE".into(),
        format!("EARLY EVERY {every}"),
        format!("CHANGES EVERY {every}"),
    ] {
        let other = changes(DELAYED, VISITS, 1, &format!("{SESSIONS} EMIT {emit} {clause};"));
        assert_eq!(folded(&other), folded(&given), "{emit}");
    }
}

/// What a real Flink answered without clause; `GROUP BY` without a window gives changes there.
#[test]
fn the_changelog_of_flink() {
    for name in ["group_by_updating", "select_distinct"] {
        let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(name);
        let query = fs::read_to_string(case.join("query.sql")).unwrap();
        let query = query.replace("${DATA}", &case.display().to_string());
        let query = format!("{} EMIT CHANGES;", query.trim().trim_end_matches(';'));
        let expected = fs::read_to_string(case.join("expected.ndjson")).unwrap();
        let change = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            format!("{} {}", line["op"].as_str().unwrap(), cells(&line["row"]))
        };
        let expected: Vec<String> = expected.lines().map(change).collect();
        for (batch_rows, parallelism) in SETTINGS {
            let given = answers(&query, batch_rows, parallelism).remove(0);
            assert_eq!(by_key(&given, 1), by_key(&expected, 1), "{name}: {batch_rows}, {parallelism}");
            if parallelism == 1 {
                assert_eq!(given, expected, "{name}: {batch_rows}");
            }
        }
    }
}

#[test]
fn the_whole_result_at_each_close() {
    let given = changes(DELAYED, LINES, 9, &format!("{SUMS} EMIT COMPLETE;"));
    // The first window closes before the row of 0, which is the first one behind 09:00:15 that is
    // used; the second at the row at 09:00:24.999 closes none. The others close at the end.
    let first = ["+I 09:00:00,a,4", "+I 09:00:00,b,2", "+I 09:00:10,a,4"];
    assert_eq!(given[..3], first);
    assert_eq!(given[3..6], first.map(|line| line.replace("+I", "-D")));
    let last: Vec<&str> = given[6..].iter().map(String::as_str).collect();
    assert_eq!(last, ["+I 09:00:00,a,4", "+I 09:00:00,b,2", "+I 09:00:10,a,4", "+I 09:00:20,a,7"]);
}

#[test]
fn a_table_that_was_written_with_changes_reads_as_what_is_left() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("in.json"), LINES).unwrap();
    let script = format!(
        "{}CREATE TABLE m (w TIMESTAMP(3), k STRING, x BIGINT) WITH ('connector' = 'memory');
         INSERT INTO m {SUMS} EMIT CHANGES;
         SELECT w, k, x FROM m;",
        table(place.path(), DELAYED)
    );
    let left = answers(&script, 2, 1).remove(0);
    // An updated row goes to the end.
    assert_eq!(left, ["+I 09:00:00,b,2", "+I 09:00:00,a,4", "+I 09:00:10,a,4", "+I 09:00:20,a,7"]);
}

#[test]
fn changes_in_a_file() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("in.json"), LINES).unwrap();
    let script = format!(
        "{}CREATE TABLE out (w TIMESTAMP(3), k STRING, x BIGINT)
         WITH ('connector' = 'filesystem', 'path' = '{}/out.json', 'format' = 'changelog-json');
         INSERT INTO out {SUMS} EMIT CHANGES;",
        table(place.path(), DELAYED),
        place.path().display()
    );
    assert!(answers(&script, 2, 1).is_empty());
    let written = fs::read_to_string(place.path().join("out.json")).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!(lines.len(), 6);
    assert_eq!(lines[3], r#"{"op":"+U","row":{"w":"2024-05-01T09:00:00.000","k":"a","x":4}}"#);
    let script = script.split("INSERT").next().unwrap().to_owned() + "SELECT * FROM out;";
    let mut session = Session::new();
    let Some(Step::Failed(error)) = run(&mut session, "q", &script).pop() else { panic!("it was read") };
    assert!(error.message().contains("out"), "{error}");
}

/// Rows in disorder, from a fixed seed.
fn random_lines(seed: u64, rows: u64) -> String {
    let mut state = seed;
    let mut next = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    // Across the night in which Berlin's clocks go back.
    let start = 1_729_980_000_000_i64;
    let line = |row: u64| {
        let ms =
            start + row as i64 * 90_000 + next(600_000) as i64 - if next(9) == 0 { 2_400_000 } else { 0 };
        let time = chrono::DateTime::from_timestamp_millis(ms).unwrap().format("%Y-%m-%dT%H:%M:%S%.3fZ");
        let key = ["\"a\"", "\"b\"", "\"c\"", "null"][next(4) as usize];
        format!("{{\"k\":{key}, \"v\":{}, \"ts\":\"{time}\"}}\n", next(9))
    };
    (0..rows).map(line).collect()
}

#[test]
fn whatever_comes_before_the_end_is_the_same() {
    let windows = [
        "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)",
        "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '20' MINUTE, INTERVAL '1' HOUR)",
        "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '15' MINUTE, INTERVAL '1' HOUR)",
        "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' HOUR, ZONE => 'Europe/Berlin')",
    ];
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("in.json"), random_lines(7, 300)).unwrap();
    let create = table(place.path(), "ts - INTERVAL '10' MINUTE").replace("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)");
    for window in windows {
        let query = format!(
            "SELECT window_start AS a, window_end AS b, k AS c, COUNT(*) AS d, SUM(v) AS e, AVG(v) AS f, \
                    MIN(ts) AS g, COUNT(DISTINCT v) AS h, MAX(k) FILTER (WHERE v > 4) AS i \
             FROM TABLE({window}) GROUP BY window_start, window_end, GROUPING SETS ((k), ())"
        );
        let answer = |emit: &str, batch_rows, parallelism| {
            folded(&answers(&format!("{create}{query}{emit};"), batch_rows, parallelism).remove(0))
        };
        let finals = answer("", 8192, 1);
        assert!(finals.len() >= 20, "{window}: {finals:#?}");
        let lateness = " ALLOW LATENESS INTERVAL '30' MINUTE";
        let with_lateness = answer(lateness, 8192, 1);
        assert_ne!(finals, with_lateness, "there are late rows");
        for (batch_rows, parallelism) in [(1, 1), (17, 2), (64, 4)] {
            for emit in ["EMIT CHANGES", "EMIT COMPLETE", "EMIT EARLY EVERY INTERVAL '0.002' SECOND"] {
                assert_eq!(answer(&format!(" {emit}"), batch_rows, parallelism), finals, "{emit}: {window}");
                let given = answer(&format!("{lateness} {emit}"), batch_rows, parallelism);
                assert_eq!(given, with_lateness, "{emit} with lateness: {window}");
            }
            assert_eq!(answer(lateness, batch_rows, parallelism), with_lateness, "{window}");
        }
    }
}

/// Each aggregate is read after each row, and in the end gives what it gives if it is read once.
#[test]
fn any_aggregate_can_be_read_while_it_takes_rows() {
    let aggregates = [
        "COUNT(*)",
        "COUNT(d)",
        "COUNT(k, v)",
        "COUNT(DISTINCT k)",
        "COUNT(DISTINCT f)",
        "SUM(v)",
        "SUM(DISTINCT v)",
        "SUM(f)",
        "SUM(d)",
        "SUM(CAST(v AS DECIMAL(38, 0)))",
        "AVG(v)",
        "AVG(f)",
        "AVG(d)",
        "AVG(DISTINCT d)",
        "MIN(v)",
        "MAX(f)",
        "MIN(f)",
        "MIN(d)",
        "MAX(k)",
        "MIN(ts)",
        "MAX(CAST(ts AS DATE))",
        "MAX(CAST(v AS SMALLINT))",
        "MAX(CAST(f AS FLOAT))",
        "MIN(b)",
        "MAX(CAST(ts AS TIME))",
        "BOOL_AND(b)",
        "BOOL_OR(b)",
        "BIT_AND(v)",
        "BIT_OR(v)",
        "BIT_XOR(v)",
        "STDDEV_POP(v)",
        "STDDEV_SAMP(f)",
        "VAR_POP(v)",
        "VAR_SAMP(v)",
        "CORR(v, f)",
        "COVAR_POP(v, f)",
        "COVAR_SAMP(v, f)",
        "REGR_SLOPE(v, f)",
        "MEDIAN(v)",
        "PERCENTILE_CONT(0.3) WITHIN GROUP (ORDER BY v)",
        "FIRST_VALUE(v)",
        "LAST_VALUE(k)",
        "FIRST_VALUE(v ORDER BY f)",
        "NTH_VALUE(v, 2)",
        "ARRAY_AGG(v)",
        "ARRAY_AGG(v ORDER BY k DESC, v)",
        "ARRAY_AGG(DISTINCT v ORDER BY v)",
        "STRING_AGG(k, '+')",
        "LISTAGG(k)",
        "APPROX_DISTINCT(v)",
        "SUM(v) FILTER (WHERE v > 3)",
        "ARRAY_AGG(10 / v) FILTER (WHERE v <> 0)",
    ];
    let place = tempfile::tempdir().unwrap();
    let mut state = 3_u64;
    let mut next = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let floats = ["0.1", "-0.0", "0", "\"NaN\"", "1e300", "-1e-300", "\"Infinity\"", "null"];
    let lines: String = (0..80)
        .map(|row| {
            let key = ["\"a\"", "\"b\"", "null"][next(3) as usize];
            let value = if next(8) == 0 { "null".to_owned() } else { (next(11) as i64 - 3).to_string() };
            let float = floats[next(if row < 60 { 6 } else { 8 }) as usize];
            let (digits, flag) = (next(10_000), ["true", "false", "null"][next(3) as usize]);
            format!(
                "{{\"k\":{key}, \"v\":{value}, \"f\":{float}, \"d\":{}.{:02}, \"b\":{flag}, \
                 \"ts\":\"2024-05-01 09:00:{:02}\"}}\n",
                digits / 100,
                digits % 100,
                row / 2
            )
        })
        .collect();
    fs::write(place.path().join("in.json"), lines).unwrap();
    let create = format!(
        "CREATE TABLE t (k STRING, v INT, f DOUBLE, d DECIMAL(30, 2), b BOOLEAN, ts TIMESTAMP(3), \
                         WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
         WITH ('connector'='filesystem', 'path'='{}/in.json', 'format'='json');",
        place.path().display()
    );
    let mut differ = Vec::new();
    for aggregate in aggregates {
        let query = format!(
            "{create}SELECT window_start AS a, k AS b, {aggregate} AS c \
             FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, k"
        );
        let finals = folded(&answers(&format!("{query};"), 8192, 1).remove(0));
        assert_eq!(finals.len(), 12, "{aggregate}");
        for emit in ["EMIT CHANGES", "ALLOW LATENESS INTERVAL '1' SECOND", "EMIT COMPLETE"] {
            let given = folded(&answers(&format!("{query} {emit};"), 7, 1).remove(0));
            if given != finals {
                differ.push(format!("{aggregate} {emit}: {given:?}, not {finals:?}"));
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// A query over rows that a test sends, on a clock that it moves.
struct Moved {
    job: Stepped,
    clock: Arc<VirtualClock>,
    rows: Sender<RecordBatch>,
}

impl Moved {
    fn start(query: &str, parallelism: usize) -> Self {
        let memory = Memory::new();
        let (sender, receiver) = channel();
        memory.put_channel("t", batch(&[]).schema(), receiver);
        Self::over(memory, sender, query, JobOptions { parallelism, ..JobOptions::default() })
    }

    /// Over these rows, then the end; channels hold one row.
    fn over_all(rows: &[(&str, i64, i64)], query: &str, parallelism: usize) -> Self {
        let memory = Memory::new();
        memory.put("t", batch(&[]).schema(), vec![batch(rows)]);
        let options =
            JobOptions { parallelism, batch_rows: 2, channel_rows: Some(1), ..JobOptions::default() };
        Self::over(memory, channel().0, query, options)
    }

    fn over(memory: Memory, rows: Sender<RecordBatch>, query: &str, options: JobOptions) -> Self {
        let mut connectors = Connectors::standard();
        connectors.add(Arc::new(memory));
        let planner = Planner::new(Arc::new(connectors.clone()));
        let create = "CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) \
                      WITH ('connector' = 'memory')";
        let mut catalog = Catalog::new();
        let Statement::CreateTable(statement) = &tidegate::sql::parse(create).unwrap()[0].statement else {
            panic!("no table");
        };
        let table = planner.create_table(statement, &catalog).unwrap();
        catalog.add(Relation::Table(table.into()), false).unwrap();
        let plan = planner.plan(query, &catalog).unwrap();
        let clock = Arc::new(VirtualClock::new(0));
        let options = JobOptions { clock: JobClock(clock.clone()), ..options };
        let job = Stepped::start(&plan, &connectors, &options, Schedule::new(0)).unwrap();
        Self { job, clock, rows }
    }

    /// The changes that these rows make now.
    fn send(&mut self, rows: &[(&str, i64, i64)]) -> Vec<String> {
        self.rows.send(batch(rows)).unwrap();
        self.settle()
    }

    /// The changes that come when time has passed.
    fn wait(&mut self, ms: u64) -> Vec<String> {
        self.clock.advance(Duration::from_millis(ms));
        self.settle()
    }

    fn end(mut self) -> Vec<String> {
        drop(std::mem::replace(&mut self.rows, channel().0));
        let given = self.settle();
        assert!(self.job.is_over());
        given
    }

    fn settle(&mut self) -> Vec<String> {
        self.job.settle().unwrap();
        let options = FormatOptions::new().with_null("NULL");
        let mut changes = Vec::new();
        for batch in self.job.take_rows() {
            let columns: Vec<ArrayFormatter<'_>> =
                batch.rows.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
            for row in 0..batch.num_rows() {
                let kind = batch.kinds.as_ref().map_or("+I", |kinds| kinds.values()[row].symbol());
                let cells: Vec<String> = columns.iter().map(|column| column.value(row).to_string()).collect();
                changes.push(format!("{kind} {}", cells.join(",")));
            }
        }
        changes
    }
}

/// Rows of key, value, time in seconds.
fn batch(rows: &[(&str, i64, i64)]) -> RecordBatch {
    let columns: [(&str, ArrayRef); 3] = [
        ("k", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.0)))),
        ("v", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1)))),
        ("ts", Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.2 * 1_000)))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

const KEYED: &str = "SELECT k, SUM(v) AS s FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) \
                     GROUP BY window_start, window_end, k";
const NOTHING: [&str; 0] = [];

#[test]
fn changes_come_every_so_often() {
    for parallelism in [1, 4] {
        let mut query = Moved::start(&format!("{KEYED} EMIT CHANGES EVERY INTERVAL '5' SECOND"), parallelism);
        assert_eq!(query.send(&[("a", 1, 1), ("a", 2, 2)]), NOTHING);
        assert_eq!(query.wait(4_999), NOTHING);
        assert_eq!(query.wait(1), ["+I a,3"]);
        assert_eq!(query.wait(5_000), NOTHING, "nothing has changed");
        assert_eq!(query.send(&[("a", 3, 3)]), NOTHING);
        assert_eq!(query.send(&[("a", 4, 3)]), NOTHING);
        assert_eq!(query.wait(5_000), ["-U a,3", "+U a,10"]);
        // A window that closes does not wait for the next round.
        assert_eq!(query.send(&[("a", 5, 4), ("a", 1, 10)]), ["-U a,10", "+U a,15"]);
        // Neither does the end.
        assert_eq!(query.end(), ["+I a,1"]);
    }
}

#[test]
fn early_results_come_every_so_often_and_late_ones_at_once() {
    let query = format!("{KEYED} EMIT EARLY EVERY INTERVAL '5' SECOND ALLOW LATENESS INTERVAL '10' SECOND");
    let mut query = Moved::start(&query, 1);
    assert_eq!(query.send(&[("a", 1, 1)]), NOTHING);
    assert_eq!(query.wait(5_000), ["+I a,1"]);
    assert_eq!(query.send(&[("a", 2, 2), ("b", 1, 3)]), NOTHING);
    assert_eq!(query.send(&[("c", 1, 15)]), ["-U a,1", "+U a,3", "+I b,1"]);
    assert_eq!(query.send(&[("b", 1, 4)]), ["-U b,1", "+U b,2"], "at once");
    assert_eq!(query.wait(60_000), ["+I c,1"]);
    assert_eq!(query.end(), NOTHING, "the final result is that of the last round");
}

#[test]
fn the_whole_result_every_so_often() {
    let mut query =
        Moved::start("SELECT k, SUM(v) AS s FROM t GROUP BY k EMIT COMPLETE EVERY INTERVAL '5' SECOND", 4);
    assert_eq!(query.send(&[("b", 1, 1), ("a", 2, 2)]), NOTHING);
    assert_eq!(query.wait(5_000), ["+I b,1", "+I a,2"]);
    assert_eq!(query.wait(5_000), NOTHING);
    assert_eq!(query.send(&[("a", 2, 2)]), NOTHING);
    assert_eq!(query.wait(5_000), ["-D b,1", "-D a,2", "+I b,1", "+I a,4"]);
    assert_eq!(query.send(&[("b", 0, 2)]), NOTHING);
    assert_eq!(query.end(), NOTHING, "the result is the same");
}

#[test]
fn without_a_window_and_without_an_end_changes_come_at_once() {
    let mut query = Moved::start("SELECT k, SUM(v) AS s FROM t GROUP BY k EMIT CHANGES", 2);
    assert_eq!(query.send(&[("a", 1, 1), ("a", 2, 0)]), ["+I a,1", "-U a,1", "+U a,3"]);
    assert_eq!(query.send(&[("a", 4, 0)]), ["-U a,3", "+U a,7"]);
    assert_eq!(query.end(), NOTHING);
}

#[test]
fn a_key_without_changes_holds_nobody_up() {
    // All changes are of one key: the subtasks of the others have nothing to say for long.
    let mut rows = vec![("b", 1, 1), ("c", 1, 1), ("d", 1, 1)];
    rows.extend((0..500).map(|_| ("a", 1, 1)));
    let queries = [
        "SELECT k, SUM(v) AS s FROM t GROUP BY k EMIT CHANGES".to_owned(),
        format!("{KEYED} EMIT CHANGES"),
        "SELECT k, s + 1 AS more FROM (SELECT k, SUM(v) AS s FROM t WHERE v > 0 GROUP BY k \
         UNION ALL SELECT k, COUNT(*) AS s FROM t WHERE v < 0 GROUP BY k) WHERE s < 400 EMIT CHANGES"
            .to_owned(),
    ];
    for query in queries {
        let one = by_key(&Moved::over_all(&rows, &query, 1).end(), 1);
        assert!(one["a"].len() > 700, "{query}");
        assert_eq!(by_key(&Moved::over_all(&rows, &query, 4).end(), 1), one, "{query}");
    }
}
