//! Queries whose results change, over the same rows at several batch sizes and parallelisms: no change takes
//! away what is not there, and what is left is what another query says whose results are final.

#![allow(clippy::unwrap_used, reason = "a test fails where it can no longer go on")]

#[allow(dead_code, reason = "the drivers of the corpora use more of it")]
mod support;

use std::fs;
use std::path::Path;

use support::{Step, run};
use tidegate::session::Session;

const SETTINGS: [(usize, usize); 6] = [(1, 1), (7, 1), (8192, 1), (7, 2), (1, 4), (8192, 4)];

/// The rows that a query leaves, sorted, and whether rows changed on the way.
fn left(script: &str, batch_rows: usize, parallelism: usize) -> (Vec<String>, bool) {
    let mut session = Session::new();
    session.set("execution.batch-rows", &batch_rows.to_string()).unwrap();
    session.set("execution.parallelism", &parallelism.to_string()).unwrap();
    let mut rows: Vec<String> = Vec::new();
    let mut has_changed = false;
    for step in run(&mut session, "query.sql", script) {
        let answer = match step {
            Step::Query(answer) => answer.unwrap_or_else(|error| panic!("{error}\n{script}")),
            Step::Insert(Err(error)) | Step::Failed(error) => panic!("{error}\n{script}"),
            Step::Insert(Ok(_)) => continue,
        };
        for (kind, row) in answer.rows {
            let line = row.to_string();
            if matches!(kind, "+I" | "+U") {
                rows.push(line);
                continue;
            }
            has_changed = true;
            let place = rows.iter().rposition(|known| *known == line);
            rows.remove(
                place.unwrap_or_else(|| panic!("{kind} of a row that is not there: {line}\n{script}")),
            );
        }
    }
    rows.sort();
    (rows, has_changed)
}

/// `changing` leaves what `last` gives, at all settings, and changes rows on the way.
fn agrees(tables: &str, changing: &str, last: &str) {
    let (expected, _) = left(&format!("{tables}{last};"), 8192, 1);
    assert!(!expected.is_empty(), "{last} gives no rows");
    for (batch_rows, parallelism) in SETTINGS {
        let (given, has_changed) = left(&format!("{tables}{changing};"), batch_rows, parallelism);
        assert_eq!(given, expected, "{batch_rows} rows a batch, parallelism {parallelism}\n{changing}");
        assert!(has_changed, "nothing changes\n{changing}");
    }
}

/// 400 rows of 5 keys and 30 values, out of order by up to 20 s.
fn rows(place: &Path) -> String {
    let mut state = 20_240_501u64;
    let mut next = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let mut lines = String::new();
    for number in 0..400u64 {
        let (key, value, time) = (next(5), next(30), number * 2 + next(20));
        let (minute, second) = (time / 60, time % 60);
        lines.push_str(&format!(
            "{{\"n\": {number}, \"k\": \"k{key}\", \"v\": {value}, \"ts\": \"2024-05-01 09:{minute:02}:{second:02}\"}}\n"
        ));
    }
    fs::write(place.join("in.json"), lines).unwrap();
    format!(
        "CREATE TABLE t (n BIGINT, k STRING, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '20' SECOND)
         WITH ('connector'='filesystem', 'path'='{}/in.json', 'format'='json');",
        place.display()
    )
}

#[test]
fn first_rows_of_new_rows() {
    let place = tempfile::tempdir().unwrap();
    let tables = rows(place.path());
    for (over, limit, columns) in [
        ("ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, n)", "r <= 3", "n, k, v, r"),
        ("ROW_NUMBER() OVER (PARTITION BY k ORDER BY v, n)", "r < 3", "n, k, v"),
        ("ROW_NUMBER() OVER (ORDER BY v DESC, n)", "r <= 10", "n, v, r"),
        ("RANK() OVER (PARTITION BY k ORDER BY v DESC)", "r <= 3", "n, k, v, r"),
        ("DENSE_RANK() OVER (PARTITION BY k ORDER BY v DESC)", "r <= 2", "n, k, v"),
        ("ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC)", "r = 1", "n, k, ts"),
        ("ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC)", "r <= 5 AND r > 2", "n, k, r"),
    ] {
        let last = format!("SELECT {columns} FROM (SELECT *, {over} AS r FROM t) WHERE {limit}");
        agrees(&tables, &format!("{last} EMIT CHANGES"), &last);
    }
}

#[test]
fn first_rows_of_changing_rows() {
    let place = tempfile::tempdir().unwrap();
    let tables = rows(place.path());
    let sums = |emit: &str| {
        format!("(SELECT k, v % 7 AS m, SUM(v) AS s, COUNT(*) AS c FROM t GROUP BY k, v % 7 {emit})")
    };
    for (over, limit, columns) in [
        ("ROW_NUMBER() OVER (PARTITION BY k ORDER BY s DESC, m)", "r <= 2", "k, m, s, r"),
        ("ROW_NUMBER() OVER (PARTITION BY k ORDER BY s DESC, m)", "r <= 2", "k, m, s"),
        ("ROW_NUMBER() OVER (ORDER BY s, k, m)", "r <= 4", "k, m, s, r"),
        ("RANK() OVER (PARTITION BY k ORDER BY c DESC)", "r <= 2", "k, m, r"),
        ("DENSE_RANK() OVER (ORDER BY c)", "r = 1", "k, m"),
        ("ROW_NUMBER() OVER (PARTITION BY m ORDER BY s DESC, k)", "r = 1", "m, k, s"),
    ] {
        let query = |emit: &str| {
            format!("SELECT {columns} FROM (SELECT *, {over} AS r FROM {}) WHERE {limit}", sums(emit))
        };
        agrees(&tables, &query("EMIT CHANGES"), &query(""));
    }
    // First rows of first rows, and an aggregation of them.
    let best = |emit: &str| {
        format!(
            "(SELECT k, v, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY v ORDER BY n DESC) AS r FROM t) WHERE r = 1 {emit})"
        )
    };
    let query = |emit: &str| {
        format!("SELECT k, COUNT(*) AS c, SUM(n) AS s, MAX(v) AS m FROM {} GROUP BY k", best(emit))
    };
    agrees(&tables, &query("EMIT CHANGES"), &query(""));
}

/// How a change is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// With the whole row before it.
    Full,
    /// In a payload beside its schema, and with a tombstone behind each deletion.
    Wrapped,
    /// Without the row before it: a deletion has only its key.
    KeyOnly,
}

/// Changes of a table `id, k, v, ts` as Debezium writes them, and the rows that they leave.
fn captured(place: &Path, style: Style, with_key: bool) -> String {
    let mut state = 20_240_502u64;
    let mut next = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let mut rows: std::collections::BTreeMap<u64, String> = std::collections::BTreeMap::new();
    let (mut lines, mut left) = (String::new(), String::new());
    for number in 0..300u64 {
        let (id, key, value, minute) = (next(40), next(4), next(20), next(30));
        let row = format!(
            "{{\"id\": {id}, \"k\": \"k{key}\", \"v\": {value}, \"ts\": \"2024-05-01 09:{minute:02}:00\"}}"
        );
        let before = rows.get(&id).cloned();
        let shown = |before: &str| match style {
            Style::KeyOnly => "null".to_owned(),
            _ => before.to_owned(),
        };
        let change = match (before, next(3)) {
            (None, _) => {
                rows.insert(id, row.clone());
                let op = if number < 20 { "r" } else { "c" };
                format!("{{\"before\": null, \"after\": {row}, \"op\": \"{op}\"}}")
            }
            (Some(before), 0) => {
                rows.remove(&id);
                let before = if style == Style::KeyOnly { format!("{{\"id\": {id}}}") } else { before };
                format!("{{\"before\": {before}, \"after\": null, \"op\": \"d\"}}")
            }
            (Some(before), _) => {
                rows.insert(id, row.clone());
                format!("{{\"before\": {}, \"after\": {row}, \"op\": \"u\"}}", shown(&before))
            }
        };
        match style {
            Style::Wrapped => {
                lines.push_str(&format!("{{\"schema\": {{\"type\": \"struct\"}}, \"payload\": {change}}}\n"));
                if change.contains("\"d\"") {
                    lines.push_str("null\n");
                }
            }
            Style::Full | Style::KeyOnly => lines.push_str(&format!("{change}\n")),
        }
    }
    rows.values().for_each(|row| left.push_str(&format!("{row}\n")));
    fs::write(place.join("changes.json"), lines).unwrap();
    fs::write(place.join("left.json"), left).unwrap();
    let columns = "k STRING NOT NULL, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' DAY";
    let key = if with_key { "id BIGINT, PRIMARY KEY (id) NOT ENFORCED" } else { "id BIGINT" };
    let path = place.display();
    format!(
        "CREATE TABLE t ({columns}, {key}) WITH ('connector'='filesystem', 'path'='{path}/changes.json', 'format'='debezium-json');
         CREATE TABLE l ({columns}, id BIGINT) WITH ('connector'='filesystem', 'path'='{path}/left.json', 'format'='json');"
    )
}

#[test]
fn captured_changes_of_a_table() {
    for (style, with_key) in [
        (Style::Full, false),
        (Style::Full, true),
        (Style::Wrapped, false),
        (Style::Wrapped, true),
        (Style::KeyOnly, true),
    ] {
        let place = tempfile::tempdir().unwrap();
        let tables = captured(place.path(), style, with_key);
        for query in [
            "SELECT * FROM @",
            "SELECT k, COUNT(*) AS c, SUM(v) AS s, MIN(v) AS least, COUNT(DISTINCT v) AS d FROM @ GROUP BY k",
            "SELECT COUNT(*) AS c, MAX(ts) AS last FROM @",
            "SELECT id, v FROM @ WHERE v > 10",
            "SELECT k, id, r FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS r FROM @) WHERE r <= 2",
            "SELECT a.id, b.id AS other FROM @ a JOIN @ b ON a.k = b.k AND a.v = b.v",
        ] {
            agrees(&tables, &query.replace('@', "t"), &query.replace('@', "l"));
        }
        // Windows close at the end: what is given is final.
        for query in [
            "SELECT window_start, COUNT(*) AS c, SUM(v) AS s FROM TABLE(TUMBLE(TABLE @, DESCRIPTOR(ts), INTERVAL '5' MINUTE)) GROUP BY window_start, window_end",
            "SELECT window_start, window_end, k, MAX(v) AS m FROM TABLE(HOP(TABLE @, DESCRIPTOR(ts), INTERVAL '5' MINUTE, INTERVAL '15' MINUTE)) GROUP BY window_start, window_end, k",
            "SELECT window_end, COUNT(*) AS c FROM TABLE(CUMULATE(TABLE @, DESCRIPTOR(ts), INTERVAL '5' MINUTE, INTERVAL '15' MINUTE)) GROUP BY window_start, window_end",
        ] {
            let (expected, _) = left(&format!("{tables}{};", query.replace('@', "l")), 8192, 1);
            assert!(expected.len() > 2);
            for (batch_rows, parallelism) in SETTINGS {
                let (given, has_changed) =
                    left(&format!("{tables}{};", query.replace('@', "t")), batch_rows, parallelism);
                assert_eq!(given, expected, "{batch_rows} rows a batch, parallelism {parallelism}\n{query}");
                assert!(!has_changed, "{query}");
            }
        }
    }
}

#[test]
fn rows_are_looked_up_in_a_table_that_ends() {
    let place = tempfile::tempdir().unwrap();
    let tables = rows(place.path());
    let names = "{\"k\": \"k0\", \"name\": \"zero\", \"least\": 3}\n{\"k\": \"k1\", \"name\": \"one\", \"least\": 20}\n\
                 {\"k\": \"k1\", \"name\": \"uno\", \"least\": 0}\n{\"k\": null, \"name\": \"none\", \"least\": 0}\n";
    fs::write(place.path().join("names.json"), names).unwrap();
    let tables = format!(
        "{}CREATE TABLE names (k STRING, name STRING, least BIGINT)
           WITH ('connector'='filesystem', 'path'='{}/names.json', 'format'='json');",
        tables.replace("k STRING,", "k STRING, p AS PROCTIME(),"),
        place.path().display()
    );
    for (looked_up, joined) in [
        ("SELECT n, name FROM t JOIN @ ON t.k = x.k", "SELECT n, name FROM t JOIN names x ON t.k = x.k"),
        (
            "SELECT n, ts, name FROM t LEFT JOIN @ ON t.k = x.k AND t.v > x.least WHERE n < 300",
            "SELECT n, ts, name FROM t LEFT JOIN names x ON t.k = x.k AND t.v > x.least WHERE n < 300",
        ),
        (
            "SELECT n, name FROM t JOIN @ ON t.k = x.k WHERE x.least = 0",
            "SELECT n, name FROM t JOIN names x ON t.k = x.k WHERE x.least = 0",
        ),
    ] {
        let (expected, _) = left(&format!("{tables}{joined};"), 8192, 1);
        assert!(expected.len() > 10);
        for (batch_rows, parallelism) in SETTINGS {
            let query = looked_up.replace('@', "names FOR SYSTEM_TIME AS OF t.p AS x");
            let (given, has_changed) = left(&format!("{tables}{query};"), batch_rows, parallelism);
            assert_eq!(given, expected, "{batch_rows} rows a batch, parallelism {parallelism}\n{query}");
            assert!(!has_changed);
        }
    }
    // Windows over rows with what was looked up: time stays.
    let windows = |from: &str| {
        format!(
            "SELECT window_start, name, COUNT(*) AS c FROM TABLE(TUMBLE((SELECT t.ts, name FROM t {from} ON t.k = x.k),
             DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, name"
        )
    };
    let (given, _) =
        left(&format!("{tables}{};", windows("JOIN names FOR SYSTEM_TIME AS OF t.p AS x")), 7, 2);
    assert!(given.len() > 10, "{given:?}");
}

#[test]
fn by_key_the_old_forms_are_left_out() {
    let place = tempfile::tempdir().unwrap();
    let tables = rows(place.path());
    let (expected, _) =
        left(&format!("{tables}SELECT k, SUM(v) AS s FROM t WHERE v < 20 GROUP BY k;"), 8192, 1);
    for (batch_rows, parallelism) in SETTINGS {
        let out = place.path().join(format!("out-{batch_rows}-{parallelism}.json"));
        let script = format!(
            "{tables}CREATE TABLE sums (k STRING, s BIGINT, PRIMARY KEY (k) NOT ENFORCED)
               WITH ('connector'='filesystem', 'path'='{}', 'format'='changelog-json');
             INSERT INTO sums SELECT k, SUM(v) AS s FROM t WHERE v < 20 GROUP BY k EMIT CHANGES;",
            out.display()
        );
        left(&script, batch_rows, parallelism);
        let mut last: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
        let written = fs::read_to_string(&out).unwrap();
        assert!(written.contains("+U") && !written.contains("-U"), "{written}");
        for line in written.lines() {
            let change: serde_json::Value = serde_json::from_str(line).unwrap();
            let key = change["row"]["k"].to_string();
            match change["op"].as_str().unwrap() {
                "-D" => drop(last.remove(&key)),
                _ => drop(last.insert(key, change["row"].to_string())),
            }
        }
        let given: Vec<String> = last.into_values().collect();
        assert_eq!(given, expected, "{batch_rows} rows a batch, parallelism {parallelism}");
    }
}
