//! Any cut into batches gives what a plain evaluation row by row gives.

use proptest::prelude::*;

use super::super::super::tests::property::{describe_ordered, describe_plain};
use super::super::super::tests::{ordered_calls, output, plain_calls};
use super::super::SessionAggregate;
use super::{run_cut, session_rows, sessions, spec};
use crate::operator::RowCounts;
use crate::operator::testing::{MS, Row, column, input, running, stamp};

/// A session that a plain evaluation keeps: its partition, its bounds in ms, its rows.
struct Session {
    partition: Option<&'static str>,
    start: i64,
    end: i64,
    rows: Vec<usize>,
}

/// A group of a session: its first row, its key, its values.
type Group = (usize, Option<&'static str>, Vec<Option<i64>>);

/// All sessions in the order of their ends, and what became of the rows.
fn evaluate(rows: &[Row], gap: i64, delay: i64, by_key: bool) -> (Vec<Session>, RowCounts) {
    let (mut open, mut over): (Vec<Session>, Vec<Session>) = (Vec::new(), Vec::new());
    let mut counts = RowCounts::default();
    for (index, ((time, key, _), running)) in rows.iter().zip(running(rows, delay)).enumerate() {
        over.extend(open.extract_if(.., |session| (session.end - 1) * MS <= running));
        let Some(time) = time else {
            counts.null_time += 1;
            continue;
        };
        let partition = if by_key { *key } else { None };
        let (mut start, mut end, mut members) = (*time, time + gap, vec![index]);
        let touches = |session: &mut Session| {
            session.partition == partition && session.start <= time + gap && *time <= session.end
        };
        let touched: Vec<Session> = open.extract_if(.., touches).collect();
        for session in touched {
            start = start.min(session.start);
            end = end.max(session.end);
            members.extend(session.rows);
        }
        if (end - 1) * MS <= running {
            assert_eq!(members.len(), 1, "what touches an open session is not late");
            counts.late += 1;
            continue;
        }
        members.sort_unstable();
        counts.used += 1;
        open.push(Session { partition, start, end, rows: members });
    }
    over.extend(open);
    over.sort_by_key(|session| session.end);
    (over, counts)
}

/// The lines of an aggregation by `key` of the row.
fn aggregated(
    sessions: &[Session],
    rows: &[Row],
    describe: impl Fn(&[Option<i64>]) -> String,
) -> Vec<String> {
    let mut lines = Vec::new();
    for session in sessions {
        let mut groups: Vec<Group> = Vec::new();
        for row in &session.rows {
            let (_, key, value) = rows[*row];
            match groups.iter_mut().find(|(_, known, _)| *known == key) {
                Some((.., values)) => values.push(value),
                None => groups.push((*row, key, vec![value])),
            }
        }
        for (first, key, values) in groups {
            let bounds =
                format!("{},{},{}", stamp(session.start), stamp(session.end), stamp(session.end - 1));
            let line = format!("{bounds},{},{}", key.unwrap_or("NULL"), describe(&values));
            lines.push((session.end, first, line));
        }
    }
    lines.sort();
    lines.into_iter().map(|(.., line)| line).collect()
}

fn passed_through(sessions: &[Session], rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for session in sessions {
        for row in &session.rows {
            let (time, key, value) = rows[*row];
            let value = value.map_or("NULL".to_owned(), |value| value.to_string());
            let line = format!(
                "{},{},{value},{},{},{}",
                stamp(time.unwrap()),
                key.unwrap_or("NULL"),
                stamp(session.start),
                stamp(session.end),
                stamp(session.end - 1)
            );
            lines.push((session.end, *row, line));
        }
    }
    lines.sort();
    lines.into_iter().map(|(.., line)| line).collect()
}

pub(super) fn rows() -> impl Strategy<Value = Vec<Row>> {
    let key = prop::sample::select(vec![None, Some("a"), Some("b"), Some("c")]);
    let row = (prop::option::weighted(0.95, 0i64..30), key, prop::option::weighted(0.8, 0i64..5));
    (prop::collection::vec(row, 0..80), 0i64..4).prop_map(|(rows, speed)| {
        // Time goes on by some ms a row, from before 1970, with disorder and a jump.
        let moved = |(index, (time, key, value)): (usize, (Option<i64>, _, _))| {
            let jump = if index > 50 { 100 } else { 0 };
            (time.map(|time| time + speed * index as i64 - 60 + jump), key, value)
        };
        rows.into_iter().enumerate().map(moved).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_305),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_cut_gives_what_row_by_row_gives(
        rows in rows(),
        gap in 1i64..12,
        delay in 0i64..40,
        by_key: bool,
        cuts in prop::collection::vec(1usize..30, 1..6),
        fold_rows in 1usize..60,
    ) {
        let (expected, counts) = evaluate(&rows, gap, delay, by_key);
        let partition = if by_key { vec![1] } else { vec![] };

        for (calls, lines) in [
            (plain_calls(), aggregated(&expected, &rows, describe_plain)),
            (ordered_calls(), aggregated(&expected, &rows, describe_ordered)),
        ] {
            let node = sessions(gap, partition.clone(), vec![column(1)], calls);
            let schema = output(&node, &input());
            let window = (0, &spec(gap), partition.as_slice());
            let aggregate = SessionAggregate::try_new(&node, window, &schema, &input(), None).unwrap();
            let (given, counted) = run_cut(&mut aggregate.folding_at(fold_rows), &rows, delay, &cuts);
            prop_assert_eq!(&given, &lines);
            prop_assert_eq!(counted, counts);
        }

        let (given, counted) = run_cut(session_rows(gap, partition).as_mut(), &rows, delay, &cuts);
        prop_assert_eq!(given, passed_through(&expected, &rows));
        prop_assert_eq!(counted, counts);
    }
}
