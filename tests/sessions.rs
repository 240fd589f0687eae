//! Session windows from SQL to rows: which rows make a session, and which queries say the same.

#[allow(dead_code, reason = "the drivers of the corpora use more of it")]
mod support;

use std::fs;

use serde_json::Value;
use support::{Step, run};
use tidegate::session::Session;

const SETTINGS: [(usize, usize); 5] = [(1, 1), (8192, 1), (2, 2), (1, 4), (8192, 4)];

/// Rows of `query` over the lines of a file, each as text, in order of the text; the same at every
/// batch size and parallelism. `settings`: statements that stand first.
fn rows(settings: &str, time_type: &str, lines: &str, query: &str) -> Vec<String> {
    let place = tempfile::tempdir().expect("a folder");
    fs::write(place.path().join("in.json"), lines).expect("a file");
    let script = format!(
        "{settings}
         CREATE TABLE t (k STRING, v INT, f DOUBLE, ts {time_type}, WATERMARK FOR ts AS ts - INTERVAL '20' SECOND)
         WITH ('connector'='filesystem', 'path'='{}/in.json', 'format'='json');
         {query}",
        place.path().display()
    );
    let mut first: Option<Vec<String>> = None;
    for (batch_rows, parallelism) in SETTINGS {
        let mut session = Session::new();
        session.set("execution.batch-rows", &batch_rows.to_string()).expect("a setting");
        session.set("execution.parallelism", &parallelism.to_string()).expect("a setting");
        let mut given: Vec<String> = match run(&mut session, "query.sql", &script).into_iter().next() {
            Some(Step::Query(Ok(answer))) => answer.rows.iter().map(|(_, row)| line(row)).collect(),
            Some(Step::Query(Err(error)) | Step::Failed(error)) => panic!("{error}"),
            Some(Step::Insert(_)) | None => panic!("no query"),
        };
        given.sort();
        match &first {
            Some(first) => assert_eq!(&given, first, "{batch_rows} rows a batch, parallelism {parallelism}"),
            None => first = Some(given),
        }
    }
    first.unwrap_or_default()
}

/// The cells of a row, times without their day.
fn line(row: &Value) -> String {
    let cell = |value: &Value| match value {
        Value::String(text) => text.replace("2024-05-01 ", ""),
        other => other.to_string(),
    };
    row.as_object().into_iter().flatten().map(|(_, value)| cell(value)).collect::<Vec<_>>().join(",")
}

const LINES: &str = r#"{"k":"a", "v":1, "f":0.1, "ts":"2024-05-01 09:00:00"}
{"k":"b", "v":2, "f":0.2, "ts":"2024-05-01 09:00:02"}
{"k":"a", "v":-1, "f":0.3, "ts":"2024-05-01 09:00:09"}
{"k":"a", "v":4, "f":0.4, "ts":"2024-05-01 09:00:18"}
{"k":"b", "v":8, "f":0.5, "ts":"2024-05-01 09:00:12"}
{"k":"a", "v":16, "f":0.6, "ts":"2024-05-01 09:00:40"}
{"k":null, "v":32, "f":0.7, "ts":"2024-05-01 09:00:41"}
"#;

fn over_t(query: &str) -> Vec<String> {
    rows("", "TIMESTAMP(3)", LINES, query)
}

/// Columns are given names that sort as they stand: the rows are compared as objects.
const BY_KEY: &str = "SELECT k, window_start AS w1, window_end AS w2, COUNT(*) AS x, SUM(v) AS y
    FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND))";

#[test]
fn by_key() {
    let expected = [
        "a,09:00:00,09:00:28,3,4",
        "a,09:00:40,09:00:50,1,16",
        "b,09:00:02,09:00:22,2,10",
        "null,09:00:41,09:00:51,1,32",
    ];
    assert_eq!(over_t(&format!("{BY_KEY} GROUP BY k, window_start, window_end;")), expected);
}

#[test]
fn a_condition_above_the_function_does_not_make_other_sessions() {
    // Without v = -1 at 09:00:09 the rows of "a" at 0 and 18 would be two sessions.
    let expected = [
        "a,09:00:00,09:00:28,2,5",
        "a,09:00:40,09:00:50,1,16",
        "b,09:00:02,09:00:22,2,10",
        "null,09:00:41,09:00:51,1,32",
    ];
    assert_eq!(over_t(&format!("{BY_KEY} WHERE v > 0 GROUP BY k, window_start, window_end;")), expected);
    let of_a = over_t(&format!("{BY_KEY} WHERE k = 'a' GROUP BY k, window_start, window_end;"));
    assert_eq!(of_a, ["a,09:00:00,09:00:28,3,4", "a,09:00:40,09:00:50,1,16"]);
    let late = "window_start > TIMESTAMP '2024-05-01 09:00:30'";
    let of_late = over_t(&format!("{BY_KEY} WHERE {late} GROUP BY k, window_start, window_end;"));
    assert_eq!(of_late, ["a,09:00:40,09:00:50,1,16", "null,09:00:41,09:00:51,1,32"]);
    let having = over_t(&format!("{BY_KEY} GROUP BY k, window_start, window_end HAVING SUM(v) > 10;"));
    assert_eq!(having, ["a,09:00:40,09:00:50,1,16", "null,09:00:41,09:00:51,1,32"]);
}

#[test]
fn a_condition_below_the_function_does() {
    let expected = [
        "a,09:00:00,09:00:10,1,1",
        "a,09:00:18,09:00:28,1,4",
        "a,09:00:40,09:00:50,1,16",
        "b,09:00:02,09:00:22,2,10",
        "null,09:00:41,09:00:51,1,32",
    ];
    let below = BY_KEY.replace("TABLE t PARTITION", "(SELECT * FROM t WHERE v > 0) PARTITION");
    assert_eq!(over_t(&format!("{below} GROUP BY k, window_start, window_end;")), expected);
    // WHERE of the old form stands before GROUP BY, and its sessions are by the other keys.
    let old = "SELECT k, SESSION_START(ts, INTERVAL '10' SECOND) AS w1,
        SESSION_END(ts, INTERVAL '10' SECOND) AS w2, COUNT(*) AS x, SUM(v) AS y FROM t WHERE v > 0";
    assert_eq!(over_t(&format!("{old} GROUP BY SESSION(ts, INTERVAL '10' SECOND), k;")), expected);
    assert_eq!(over_t(&format!("{old} GROUP BY 1, SESSION(ts, INTERVAL '10' SECOND);")), expected);
}

#[test]
fn the_old_form_by_an_expression_and_without_a_key() {
    let by_expression = over_t(
        "SELECT COALESCE(k, 'b') AS k, SESSION_START(ts, INTERVAL '10' SECOND) AS w1,
           SESSION_ROWTIME(ts, INTERVAL '10' SECOND) AS w2, SUM(v) AS y
         FROM t GROUP BY SESSION(ts, INTERVAL '10' SECOND), COALESCE(k, 'b');",
    );
    let expected = [
        "a,09:00:00,09:00:27.999,4",
        "a,09:00:40,09:00:49.999,16",
        "b,09:00:02,09:00:21.999,10",
        "b,09:00:41,09:00:50.999,32",
    ];
    assert_eq!(by_expression, expected);
    let of_all = over_t(
        "SELECT SESSION_START(ts, INTERVAL '10' SECOND) AS w1, SUM(v) AS y
         FROM t GROUP BY SESSION(ts, INTERVAL '10' SECOND);",
    );
    assert_eq!(of_all, ["09:00:00,14", "09:00:40,48"]);
}

#[test]
fn partitions_that_share_a_session_are_one_group_without_their_key() {
    let lines = r#"{"k":"a", "v":1, "ts":"2024-05-01 09:00:00"}
{"k":"b", "v":2, "ts":"2024-05-01 09:00:00"}
{"k":"b", "v":4, "ts":"2024-05-01 09:01:00"}
"#;
    let query = "SELECT window_start AS w1, window_end AS w2, SUM(v) AS y
        FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end;";
    assert_eq!(rows("", "TIMESTAMP(3)", lines, query), ["09:00:00,09:00:10,3", "09:01:00,09:01:10,4"]);
    let sets = "SELECT k, window_start AS w1, SUM(v) AS y
        FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end, GROUPING SETS ((k), ());";
    assert_eq!(
        rows("", "TIMESTAMP(3)", lines, sets),
        ["a,09:00:00,1", "b,09:00:00,2", "b,09:01:00,4", "null,09:00:00,3", "null,09:01:00,4"]
    );
}

#[test]
fn rows_with_their_session() {
    let query = "SELECT k, v, window_start AS w1, window_end AS w2, window_time AS w3
        FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND));";
    let expected = [
        "a,-1,09:00:00,09:00:28,09:00:27.999",
        "a,1,09:00:00,09:00:28,09:00:27.999",
        "a,16,09:00:40,09:00:50,09:00:49.999",
        "a,4,09:00:00,09:00:28,09:00:27.999",
        "b,2,09:00:02,09:00:22,09:00:21.999",
        "b,8,09:00:02,09:00:22,09:00:21.999",
        "null,32,09:00:41,09:00:51,09:00:50.999",
    ];
    assert_eq!(over_t(query), expected);
}

#[test]
fn aggregates_that_see_an_order_or_round() {
    let query = "SELECT k, window_start AS w1, FIRST_VALUE(v) AS x1, LAST_VALUE(v) AS x2, SUM(f) AS y1,
          COUNT(DISTINCT v) FILTER (WHERE v > 1) AS y2
        FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY k, window_start, window_end;";
    let expected = [
        "a,09:00:00,1,4,0.8,1",
        "a,09:00:40,16,16,0.6,1",
        "b,09:00:02,2,8,0.7,2",
        "null,09:00:41,32,32,0.7,1",
    ];
    assert_eq!(over_t(query), expected);
}

#[test]
fn windows_over_sessions() {
    let query = "SELECT window_start AS w1, COUNT(*) AS x, SUM(c) AS y
        FROM TABLE(TUMBLE((
          SELECT k, window_time AS closed, COUNT(*) AS c
          FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND))
          GROUP BY window_start, window_end, window_time, k), DESCRIPTOR(closed), INTERVAL '30' SECOND))
        GROUP BY window_start, window_end;";
    // Sessions end at 28, 22 and at 50, 51.
    assert_eq!(over_t(query), ["09:00:00,2,5", "09:00:30,2,2"]);
}

#[test]
fn instants_are_shown_by_the_clock_of_the_zone_and_gaps_are_elapsed_time() {
    let berlin = "SET 'session.time-zone' = 'Europe/Berlin';";
    let query = "SELECT window_start AS w1, window_end AS w2, COUNT(*) AS x
        FROM TABLE(SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '40' MINUTE))
        GROUP BY window_start, window_end;";
    // 00:30 UTC is 02:30, 01:10 UTC is 02:10 on the clock that was put back: 40 minutes on.
    let lines = "{\"ts\":\"2024-10-27T00:30:00Z\"}\n{\"ts\":\"2024-10-27T01:10:00Z\"}\n";
    assert_eq!(rows(berlin, "TIMESTAMP_LTZ(3)", lines, query), ["2024-10-27 02:30:00,2024-10-27 02:50:00,2"]);
    // 00:50 UTC is 01:50, 01:29 UTC is 03:29 on the clock that was put forward: 39 minutes on.
    let lines = "{\"ts\":\"2024-03-31T00:50:00Z\"}\n{\"ts\":\"2024-03-31T01:29:00Z\"}\n";
    assert_eq!(rows(berlin, "TIMESTAMP_LTZ(3)", lines, query), ["2024-03-31 01:50:00,2024-03-31 04:09:00,2"]);
}
