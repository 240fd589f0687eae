//! The limit on the memory of state: what can be put away is, with the same result; what can't fails with the names
//! of things.

#[allow(dead_code, reason = "the drivers of the corpora use more of it")]
mod support;

#[path = "support/project.rs"]
mod project;

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

use project::{Project, Running};
use support::{Step, run};
use tidegate::session::Session;

/// 700 keys that come again and again over ten minutes.
const BIDS: &str = "
CREATE TABLE bids (k BIGINT, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'datagen', 'number-of-rows' = '60000', 'fields.k.kind' = 'random', 'fields.k.min' = '0',
      'fields.k.max' = '699', 'fields.v.max' = '1000', 'fields.ts.start' = '2024-05-01 09:00:00',
      'fields.ts.step' = '10 ms');";
const HOP: &str = "
SELECT window_start, k, COUNT(*), SUM(v), MAX(v), AVG(CAST(v AS DOUBLE))
FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '3' MINUTE))
GROUP BY window_start, window_end, k";
const CUMULATE: &str = "
SELECT window_start, window_end, k, COUNT(*), SUM(v)
FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '5' MINUTE))
GROUP BY window_start, window_end, k";

fn session(settings: &[(&str, &str)]) -> Session {
    let mut session = Session::new();
    for (key, value) in settings {
        session.set(key, value).expect("a setting");
    }
    session
}

/// What each query of a script gives: its rows as lines in order, or how it failed.
fn answers(session: &mut Session, script: &str) -> Vec<Result<Vec<String>, tidegate::Error>> {
    let answer = |step: Step| match step {
        Step::Query(answer) => {
            answer.map(|answer| {
                // What was taken away again counts for nothing.
                let mut counts: BTreeMap<String, i64> = BTreeMap::new();
                for (kind, row) in &answer.rows {
                    let by = if kind.starts_with('+') { 1 } else { -1 };
                    *counts.entry(row.to_string()).or_default() += by;
                }
                counts.into_iter().flat_map(|(row, count)| vec![row; count as usize]).collect()
            })
        }
        Step::Failed(error) => Err(error),
        Step::Insert(_) => panic!("no query"),
    };
    run(session, "memory.sql", script).into_iter().map(answer).collect()
}

fn rows(session: &mut Session, query: &str) -> Vec<String> {
    let mut answers = answers(session, &format!("{BIDS} {query};"));
    assert_eq!(answers.len(), 1);
    answers.remove(0).unwrap_or_else(|error| panic!("{}", error.render()))
}

#[test]
fn a_query_beyond_the_limit_gives_the_same_rows() {
    for (query, limit) in [(HOP, "300 KB"), (CUMULATE, "130 KB")] {
        let all =
            rows(&mut session(&[("state.memory-limit", "unlimited"), ("execution.parallelism", "1")]), query);
        assert!(all.len() > 10_000, "{} rows", all.len());
        for parallelism in ["1", "2"] {
            let place = tempfile::tempdir().expect("a folder");
            let folder = place.path().display().to_string();
            let mut small = session(&[
                ("state.memory-limit", limit),
                ("state.spill-dir", &folder),
                ("execution.parallelism", parallelism),
                ("execution.batch-rows", "500"),
            ]);
            assert!(rows(&mut small, query) == all, "other rows with {limit} at parallelism {parallelism}");
            drop(small);
            assert_eq!(fs::read_dir(place.path()).expect("a folder").count(), 0, "it is tidied up");
            // It did put something away: where it can't, it says so.
            let missing = place.path().join("missing").display().to_string();
            let mut nowhere = session(&[
                ("state.memory-limit", limit),
                ("state.spill-dir", &missing),
                ("execution.parallelism", parallelism),
                ("execution.batch-rows", "500"),
            ]);
            let error = answers(&mut nowhere, &format!("{BIDS} {query};")).remove(0).expect_err("no room");
            assert_eq!(error.code(), "F003", "{error}");
            assert!(error.message().contains("missing"), "{error}");
        }
    }
}

/// Two tables of rows that come 10 ms apart, numbered from 0, and wide.
const ROWS: i64 = 9_000;
const NUMBERED: &str = "
CREATE TABLE a (n BIGINT, pad STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'datagen', 'number-of-rows' = '9000', 'fields.n.kind' = 'sequence', 'fields.pad.length' = '800',
      'fields.ts.start' = '2024-05-01 09:00:00', 'fields.ts.step' = '10 ms');
CREATE TABLE b (n BIGINT, pad STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'datagen', 'number-of-rows' = '9000', 'fields.n.kind' = 'sequence', 'fields.pad.length' = '800',
      'fields.ts.start' = '2024-05-01 09:00:00', 'fields.ts.step' = '10 ms');";
/// The partner of a row came 20 seconds before; the first 2,000 rows have none.
const INTERVAL: &str = "
SELECT a.n AS n, b.n AS m, MD5(a.pad) AS p, MD5(b.pad) AS q
FROM a LEFT JOIN b ON a.n = b.n + 2000 AND a.ts BETWEEN b.ts - INTERVAL '25' SECOND AND b.ts + INTERVAL '25' SECOND";
/// Six windows are open at a time; pairs are those of rows 5 seconds apart that are in one window.
const WINDOWS: &str = "
SELECT a.n AS n, b.n AS m, MD5(a.pad) AS p, MD5(b.pad) AS q
FROM (SELECT * FROM TABLE(HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '30' SECOND))) a
FULL JOIN (SELECT * FROM TABLE(HOP(TABLE b, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '30' SECOND))) b
ON a.n = b.n + 500 AND a.window_start = b.window_start AND a.window_end = b.window_end";
/// At the end of both tables; the last 2,000 rows of the second one have no partner, either.
const AT_THE_END: &str = "
SELECT a.n AS n, b.n AS m, MD5(a.pad) AS p, MD5(b.pad) AS q FROM a FULL JOIN b ON a.n = b.n + 2000";
/// Rows of a result without their texts, `n` and `m`, in order: what they are is worked out here.
fn numbers(lines: &[String]) -> Vec<(Option<i64>, Option<i64>)> {
    let number = |line: &str, name: &str| {
        let rest =
            line.split(&format!("\"{name}\":")).nth(1).unwrap_or_else(|| panic!("no {name} in {line}"));
        rest.split([',', '}']).next().and_then(|number| number.parse().ok())
    };
    let mut numbers: Vec<_> = lines.iter().map(|line| (number(line, "n"), number(line, "m"))).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn joins_beyond_the_limit_give_the_same_rows() {
    let by_number = (0..ROWS).map(|n| (Some(n), (n >= 2_000).then_some(n - 2_000))).collect::<Vec<_>>();
    let alone = (ROWS - 2_000..ROWS).map(|m| (None, Some(m)));
    let mut at_the_end: Vec<_> = by_number.iter().copied().chain(alone).collect();
    at_the_end.sort_unstable();
    let mut by_window = Vec::new();
    for start in (-2_500..ROWS).step_by(500) {
        let window = start.max(0)..ROWS.min(start + 3_000);
        for n in window.clone() {
            by_window.push((Some(n), Some(n - 500).filter(|m| window.contains(m))));
            by_window.extend((!window.contains(&(n + 500))).then_some((None, Some(n))));
        }
    }
    by_window.sort_unstable();
    for (query, expected, limit) in
        [(INTERVAL, &by_number, "3 MB"), (WINDOWS, &by_window, "9 MB"), (AT_THE_END, &at_the_end, "3 MB")]
    {
        let script = format!("{NUMBERED} {query};");
        let answer = |settings: &[(&str, &str)]| answers(&mut session(settings), &script).remove(0);
        let all = answer(&[("state.memory-limit", "unlimited"), ("execution.parallelism", "1")]);
        let all = all.unwrap_or_else(|error| panic!("{}", error.render()));
        assert!(numbers(&all) == *expected, "other pairs without a limit: {query}");
        for parallelism in ["1", "2"] {
            let place = tempfile::tempdir().expect("a folder");
            let small = |folder: &str| {
                answer(&[
                    ("state.memory-limit", limit),
                    ("state.spill-dir", folder),
                    ("execution.parallelism", parallelism),
                    ("execution.batch-rows", "500"),
                ])
            };
            let rows = small(&place.path().display().to_string());
            let rows = rows.unwrap_or_else(|error| panic!("{}", error.render()));
            assert!(rows == all, "other rows with {limit} at parallelism {parallelism}: {query}");
            assert_eq!(fs::read_dir(place.path()).expect("a folder").count(), 0, "it is tidied up");
            // It did put something away: where it can't, it says so.
            let error = small(&place.path().join("missing").display().to_string()).expect_err("no room");
            assert_eq!(error.code(), "F003", "{error}");
        }
    }
}

/// One query fails, and what comes behind it is answered.
#[test]
fn a_query_that_can_put_nothing_away_fails_and_names_what_grows() {
    for (query, operator) in [
        ("SELECT k, COUNT(*) FROM numbers GROUP BY k", "WindowAggregate"),
        ("SELECT k, COUNT(*) FROM numbers GROUP BY k EMIT CHANGES", "WindowAggregate"),
        (
            "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS r FROM numbers) WHERE r <= 2",
            "Over",
        ),
    ] {
        for parallelism in ["1", "2"] {
            let mut session =
                session(&[("state.memory-limit", "4 MB"), ("execution.parallelism", parallelism)]);
            let script = format!(
                "CREATE TABLE numbers (k BIGINT, v BIGINT) WITH ('connector' = 'datagen',
                     'number-of-rows' = '400000', 'fields.k.kind' = 'sequence', 'fields.k.start' = '1',
                     'fields.v.max' = '3');
                 {query};
                 SELECT COUNT(*) AS n FROM numbers;"
            );
            let mut answers = answers(&mut session, &script);
            assert_eq!(answers.len(), 2);
            assert_eq!(answers.pop().and_then(Result::ok), Some(vec![r#"{"n":400000}"#.to_owned()]));
            let error = answers.remove(0).expect_err("too many keys");
            assert_eq!(error.code(), "R012", "{error}");
            let message = error.message();
            for part in [operator, "limit of 4 MB", "rows or keys", "added"] {
                assert!(message.contains(part), "no \"{part}\" in: {message}");
            }
            assert!(error.hint_text().is_some_and(|hint| hint.contains("state.memory-limit")), "{error}");
        }
    }
}

/// What a process that was killed has put away is removed by the next one that puts something away beside it; what a
/// living one has is not.
#[cfg(unix)]
#[test]
fn what_a_killed_process_has_put_away_goes() {
    let endless = BIDS.replace("'number-of-rows' = '60000'", "'rows-per-second' = '100000'");
    let insert = format!(
        "CREATE TABLE r (s TIMESTAMP(3), k BIGINT, n BIGINT, v BIGINT, m BIGINT, a DOUBLE) WITH ('connector' = 'blackhole');
         INSERT INTO r {HOP};"
    );
    let project = Project::new(&format!("{endless} {insert}")).with(&[
        "--set",
        "execution.batch-rows=500",
        "--set",
        "state.memory-limit=300 KB",
        "--set",
        "state.spill-dir=spill",
        "-p",
        "1",
    ]);
    fs::create_dir(project.path("spill")).expect("a folder");
    let spills = |count: usize| {
        let running = project.start(&[]);
        running.until("state on disk", || project.files("spill").len() == count);
        running
    };
    let living = spills(1);
    let own = project.files("spill");
    // It looks when it makes its own folder.
    spills(2).kill();
    let left = project.files("spill");
    assert_eq!(left.len(), 2, "a kill leaves it");
    project.write("job.sql", &format!("{BIDS} {insert}"));
    project.succeeds(&[]);
    assert_eq!(project.files("spill"), own, "of {left:?} that of the living one stays");
    living.kill();
    project.succeeds(&[]);
    assert!(project.files("spill").is_empty());
}

/// The field report B073, `KEYS=10000` in full: 200 windows of keys that never come again. A window that is closed owns
/// nothing, so what is kept is never more than two of them, and memory does not grow.
#[test]
fn the_state_of_closed_windows_goes() {
    let keys: u64 = std::env::var("KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(1_000);
    let rows = 200 * keys;
    let project = Project::new(&format!(
        "CREATE TABLE t (k BIGINT, v AS 1,
           ts AS TO_TIMESTAMP_LTZ((k / {keys}) * 60000 + (k % {keys}) * 50000 / {keys}, 3),
           WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
         WITH ('connector' = 'datagen', 'number-of-rows' = '{rows}', 'fields.k.kind' = 'sequence');
         CREATE TABLE r (s TIMESTAMP(3), k BIGINT, c BIGINT, m INT)
         WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
         CREATE TABLE waits (v INT) WITH ('connector' = 'stdin', 'format' = 'json');
         INSERT INTO r SELECT window_start, k, COUNT(*) AS c, MAX(v) FILTER (WHERE v > 5) AS m
         FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
         GROUP BY window_start, window_end, k HAVING COUNT(*) > 1;
         SELECT v FROM waits;"
    ));
    // As many batches to a window as 10,000 keys make.
    let batch_rows = format!("execution.batch-rows={}", 8_192 * keys / 10_000);
    let mut command = project.command(&["--metrics", ":0", "-p", "1", "--set", &batch_rows]);
    // The second query waits for its input, so that the process can be looked at behind the first one.
    command.stdin(Stdio::piped());
    let mut running = Running::of(command);
    let count = |name: &str| running.metric(name, "WindowAggregate");
    let come = || {
        if let Some(kept) = count("tidegate_state_rows") {
            assert!(kept <= 2.0 * keys as f64, "{kept} keys are kept");
        }
        count("tidegate_records_in_total").unwrap_or(0.0) as u64
    };
    running.until("ten windows", || come() >= 10 * keys);
    let early = running.resident_kb();
    running.until("all windows", || come() == rows && running.said().contains("rows in"));
    assert_eq!(count("tidegate_state_rows"), Some(0.0));
    if let (Some(early), Some(late)) = (early, running.resident_kb()) {
        assert!(late <= early + early / 2, "{early} KB behind ten windows, {late} KB behind all");
    }
    drop(running.input());
    let (exit, said) = running.end();
    assert_eq!(exit, Some(0), "{said}");
    assert!(project.files("out").is_empty(), "no window has a key twice");
    assert!(said.contains("0 late"), "{said}");
}
