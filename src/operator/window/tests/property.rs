//! Any cut into batches gives what an evaluation row by row gives.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{assign, node, ordered_calls, plain_calls, run_node, run_two_phase};
use crate::operator::RowCounts;
use crate::operator::testing::{MS, Row, column, running, stamp};
use crate::plan::WindowKind;

/// The windows of a time, ms, by plain enumeration.
pub(super) fn windows_of(kind: WindowKind, offset: i64, time: i64) -> Vec<(i64, i64)> {
    let floor = |length: i64| (time - offset).div_euclid(length) * length + offset;
    match kind {
        WindowKind::Tumble { size_us } => vec![(floor(size_us / MS), floor(size_us / MS) + size_us / MS)],
        WindowKind::Hop { slide_us, size_us } => {
            let (slide, size) = (slide_us / MS, size_us / MS);
            let last = floor(slide);
            let starts = (0..size / slide).rev().map(|step| last - step * slide);
            starts
                .map(|start| (start, start + size))
                .filter(|(start, end)| *start <= time && time < *end)
                .collect()
        }
        WindowKind::Cumulate { step_us, size_us } => {
            let (step, size) = (step_us / MS, size_us / MS);
            let start = floor(size);
            (1..=size / step).map(|n| (start, start + n * step)).filter(|(_, end)| time < *end).collect()
        }
        WindowKind::Session { .. } | WindowKind::Global => unreachable!("not enumerated here"),
    }
}

struct Expected {
    lines: Vec<String>,
    counts: RowCounts,
}

type Group = (Option<&'static str>, Vec<Option<i64>>);

/// What comes out, computed row by row. `sets`: for each grouping set whether the key is NULL.
fn expected(
    kind: WindowKind,
    offset: i64,
    rows: &[Row],
    delay: i64,
    describe: impl Fn(&[Option<i64>]) -> String,
) -> Expected {
    let running = running(rows, delay);
    let mut windows: BTreeMap<(i64, i64), Vec<Group>> = BTreeMap::new();
    let mut counts = RowCounts::default();
    for ((time, key, value), running) in rows.iter().zip(&running) {
        let Some(time) = time else {
            counts.null_time += 1;
            continue;
        };
        let all = windows_of(kind, offset, *time);
        let open: Vec<_> = all.iter().filter(|(_, end)| *running < (end - 1) * MS).collect();
        match open.len() {
            0 => counts.late += 1,
            some => {
                counts.used += 1;
                counts.partly_late += u64::from(some < all.len());
            }
        }
        for (start, end) in open {
            let groups = windows.entry((*end, *start)).or_default();
            match groups.iter_mut().find(|(known, _)| known == key) {
                Some((_, values)) => values.push(*value),
                None => groups.push((*key, vec![*value])),
            }
        }
    }
    let mut lines = Vec::new();
    for ((end, start), groups) in windows {
        for (key, values) in groups {
            let bounds = format!("{},{},{}", stamp(start), stamp(end), stamp(end - 1));
            lines.push(format!("{bounds},{},{}", key.unwrap_or("NULL"), describe(&values)));
        }
    }
    Expected { lines, counts }
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or("NULL".into(), |value| value.to_string())
}

pub(in super::super) fn describe_plain(values: &[Option<i64>]) -> String {
    let known: Vec<i64> = values.iter().copied().flatten().collect();
    let sum = (!known.is_empty()).then(|| known.iter().sum::<i64>());
    let average = sum.map(|sum| format!("{:?}", sum as f64 / known.len() as f64));
    format!(
        "{},{},{},{},{},{},{},{},{}",
        known.len(),
        text(sum),
        text(known.iter().min()),
        text(known.iter().max()),
        text(average),
        known.iter().collect::<BTreeSet<_>>().len(),
        known.iter().filter(|value| **value > 2).count(),
        known.iter().filter(|value| **value > 2).collect::<BTreeSet<_>>().len(),
        text(known.iter().map(i64::to_string).max()),
    )
}

pub(in super::super) fn describe_ordered(values: &[Option<i64>]) -> String {
    let all: Vec<String> = values.iter().map(|value| text(*value)).collect();
    format!("{},[{}]", text(values[0]), all.join(", "))
}

pub(super) fn kinds() -> impl Strategy<Value = (WindowKind, i64)> {
    let size = 1i64..8;
    prop_oneof![
        size.clone().prop_map(|size| (WindowKind::Tumble { size_us: size * MS }, size)),
        (size.clone(), 1i64..9).prop_map(|(slide, n)| {
            (WindowKind::Hop { slide_us: slide * MS, size_us: n * slide * MS }, n * slide)
        }),
        (size, 1i64..9).prop_map(|(step, n)| {
            (WindowKind::Cumulate { step_us: step * MS, size_us: n * step * MS }, n * step)
        }),
    ]
    .prop_flat_map(|(kind, size)| (Just(kind), (1 - size)..size))
}

pub(super) fn rows() -> impl Strategy<Value = Vec<Row>> {
    let key = prop::sample::select(vec![None, Some("a"), Some("b"), Some("c")]);
    let row = (prop::option::weighted(0.95, 0i64..12), key, prop::option::weighted(0.8, 0i64..5));
    prop::collection::vec(row, 0..60).prop_map(|rows| {
        // Time goes on by about one ms a row, from before 1970, with disorder and a jump.
        let moved = |(index, (time, key, value)): (usize, (Option<i64>, _, _))| {
            let jump = if index > 40 { 100 } else { 0 };
            (time.map(|time| time + index as i64 - 30 + jump), key, value)
        };
        rows.into_iter().enumerate().map(moved).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_305),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_cut_gives_what_row_by_row_gives(
        (kind, offset) in kinds(), rows in rows(), delay in 0i64..6, cut in 1usize..40,
    ) {
        let expected = expected(kind, offset, &rows, delay, describe_plain);
        let node = node(assign(kind, offset * MS), vec![column(1)], plain_calls());
        let (given, counts) = run_node(&node, &rows, delay, cut);
        prop_assert_eq!(&given, &expected.lines);
        prop_assert_eq!(counts, expected.counts);

        let (given, counts) = run_two_phase(&node, &rows, delay, cut, 1);
        prop_assert_eq!(&given, &expected.lines);
        prop_assert_eq!(counts, expected.counts);

        let (mut given, counts) = run_two_phase(&node, &rows, delay, cut, 3);
        given.sort();
        let mut lines = expected.lines;
        lines.sort();
        prop_assert_eq!(given, lines);
        prop_assert_eq!(counts, expected.counts);
    }

    #[test]
    fn ordered_aggregates_see_rows_as_they_arrive(
        (kind, offset) in kinds(), rows in rows(), delay in 0i64..6, cut in 1usize..40,
    ) {
        let expected = expected(kind, offset, &rows, delay, describe_ordered);
        let node = node(assign(kind, offset * MS), vec![column(1)], ordered_calls());
        let (given, counts) = run_node(&node, &rows, delay, cut);
        prop_assert_eq!(&given, &expected.lines);
        prop_assert_eq!(counts, expected.counts);
    }
}
