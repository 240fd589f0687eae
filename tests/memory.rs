//! The limit on the memory of state: what can be put away is, with the same result; what can't fails with the names
//! of things.

#[allow(dead_code, reason = "the drivers of the corpora use more of it")]
mod support;

use std::fs;

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
            let lines =
                |answer: support::Answer| answer.rows.iter().map(|(_, row)| row.to_string()).collect();
            answer.map(lines).map(|mut lines: Vec<String>| {
                lines.sort();
                lines
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

/// One query fails, and what comes behind it is answered.
#[test]
fn a_query_that_can_put_nothing_away_fails_and_names_what_grows() {
    for (query, operator) in [
        ("SELECT k, COUNT(*) FROM numbers GROUP BY k", "WindowAggregate"),
        ("SELECT k, COUNT(*) FROM numbers GROUP BY k EMIT CHANGES", "WindowAggregate"),
        ("SELECT DISTINCT a.k FROM numbers a JOIN numbers b ON a.k = b.v", "Join"),
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
