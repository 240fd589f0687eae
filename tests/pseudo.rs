//! `_ingested_at` and `_latency`: when a row was read, and how long ago that is.

#![allow(clippy::unwrap_used, reason = "a test fails where it can no longer go on")]

#[allow(dead_code, reason = "the drivers of the corpora use more of it")]
mod support;

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use support::{Answer, Step, run};
use tidegate::session::Session;

/// Runs a query over `t (v INT, ts TIMESTAMP(3))` with the values 1 and 2.
fn answer(sql: &str) -> Result<Answer, String> {
    let dir = tempfile::tempdir().unwrap();
    let rows = "{\"v\":1, \"ts\":\"2024-05-01 09:00:00\", \"_latency\":7}\n{\"v\":2, \"ts\":\"2024-05-01 09:00:01\", \"_latency\":8}\n";
    fs::write(dir.path().join("in.json"), rows).unwrap();
    let with = format!(
        "WITH ('connector' = 'filesystem', 'path' = '{}/in.json', 'format' = 'json')",
        dir.path().display()
    );
    let script = format!(
        "CREATE TABLE t (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) {with};
         CREATE TABLE own (v INT, _latency INT) {with};
         CREATE VIEW w AS SELECT v FROM t;
         {sql}"
    );
    match run(&mut Session::new(), "test", &script).pop() {
        Some(Step::Query(answer)) => answer.map_err(|error| error.render()),
        Some(Step::Failed(error)) => Err(error.render()),
        _ => panic!("{sql} is no query"),
    }
}

fn rows(sql: &str) -> Vec<Value> {
    let answer = answer(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    answer.rows.into_iter().map(|(_, row)| row).collect()
}

#[test]
fn a_row_tells_when_it_was_read() {
    let wall_us = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
    let before = wall_us();
    let found = rows("SELECT v, CAST(_ingested_at AS STRING) AS at, _latency FROM t;");
    let after = wall_us();
    assert_eq!(found.len(), 2);
    for row in found {
        let at = row["at"].as_str().unwrap();
        let at = chrono::NaiveDateTime::parse_from_str(at.trim_end_matches('Z'), "%Y-%m-%d %H:%M:%S%.f")
            .unwrap_or_else(|error| panic!("{at}: {error}"));
        assert!((before..=after).contains(&at.and_utc().timestamp_micros()), "{row}");
        let latency = row["_latency"].as_i64().unwrap();
        assert!((0..=after - before).contains(&latency), "{row}");
    }
}

#[test]
fn who_selects_all_columns_does_not_mean_them() {
    for (sql, columns) in [
        ("SELECT * FROM t WHERE _latency < 3600000000;", vec!["v", "ts"]),
        ("SELECT *, _latency FROM t;", vec!["v", "ts", "_latency"]),
        ("SELECT t.*, t._ingested_at AS at FROM t;", vec!["v", "ts", "at"]),
        ("SELECT * FROM (SELECT v, _Latency FROM t);", vec!["v", "_latency"]),
        ("SELECT * FROM w;", vec!["v"]),
    ] {
        assert_eq!(
            answer(sql).map(|answer| answer.columns),
            Ok(columns.iter().map(|c| (*c).to_owned()).collect()),
            "{sql}"
        );
    }
}

#[test]
fn they_can_be_computed_with() {
    let is_short = |expr: &str| format!("SELECT {expr} BETWEEN 0 AND 3600000000 AS ok FROM");
    for sql in [
        format!("{} t LIMIT 1;", is_short("_latency")),
        format!("{} t;", is_short("MAX(_latency)")),
        format!("{} (SELECT _latency AS l FROM t);", is_short("MIN(l)")),
        format!(
            "{} TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;",
            is_short("AVG(t._latency)").replace("t.", "")
        ),
        "SELECT COUNT(DISTINCT _ingested_at) = 1 AS ok FROM t;".to_owned(),
    ] {
        assert_eq!(rows(&sql), [json!({ "ok": true })], "{sql}");
    }
}

#[test]
fn a_column_of_that_name_is_that_column() {
    assert_eq!(
        rows("SELECT v, _latency FROM own;"),
        [json!({ "v": 1, "_latency": 7 }), json!({ "v": 2, "_latency": 8 })]
    );
}

#[test]
fn only_rows_of_tables_have_them() {
    for sql in ["SELECT _latency FROM (SELECT v FROM t);", "SELECT _ingested_at FROM w;"] {
        let error = answer(sql).err().expect("no such column");
        assert!(error.contains("no column \"_"), "{error}");
    }
}
