//! Sessions whose results change: each change, by hand and against an evaluation row by row.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::super::tests::live::{drain, folded};
use super::super::super::tests::property::{describe_ordered, describe_plain};
use super::super::super::tests::{inexact_calls, ordered_calls, output, plain_calls};
use super::super::LiveSessions;
use super::property::rows;
use super::{aggregate, run_cut, sessions, spec};
use crate::operator::testing::{MS, Row, column, input, running, stamp, stream_batch};
use crate::operator::{Operator, Output, RowCounts};
use crate::plan::{AggregateCall, EmitMode, WindowAggregateNode};
use crate::stream::Watermark;

const EACH: EmitMode = EmitMode::Changes { every_us: None };
const EVERY: EmitMode = EmitMode::Changes { every_us: Some(1_000) };
const EARLY: EmitMode = EmitMode::Early { every_us: 1_000 };
const CLOSE: EmitMode = EmitMode::OnWindowClose;
const COMPLETE: EmitMode = EmitMode::Complete { every_us: None };
const COMPLETE_EVERY: EmitMode = EmitMode::Complete { every_us: Some(1_000) };

type Describe = fn(&[Option<i64>]) -> String;

/// Aggregates whose states can be joined: those of [`plain_calls`] but AVG and COUNT(DISTINCT).
fn joining_calls() -> Vec<AggregateCall> {
    let calls = plain_calls().into_iter().enumerate();
    calls.filter(|(index, _)| !matches!(index, 4 | 5 | 7)).map(|(_, call)| call).collect()
}

fn describe_joining(values: &[Option<i64>]) -> String {
    let all = describe_plain(values);
    let cells = all.split(',').enumerate().filter(|(index, _)| !matches!(index, 4 | 5 | 7));
    cells.map(|(_, cell)| cell).collect::<Vec<_>>().join(",")
}

/// What is run, and how.
#[derive(Clone)]
struct Query {
    gap: i64,
    lateness: i64,
    by_key: bool,
    mode: EmitMode,
    calls: Vec<AggregateCall>,
    describe: Describe,
}

impl Query {
    fn node(&self) -> WindowAggregateNode {
        let partition = if self.by_key { vec![1] } else { vec![] };
        let node = sessions(self.gap, partition, vec![column(1)], self.calls.clone());
        WindowAggregateNode { emit: self.mode, allowed_lateness_us: self.lateness * MS, ..node }
    }

    /// Runs rows in batches of `cut`, a watermark after each, and a round of EVERY after the rows in
    /// `ticks`.
    fn run(&self, rows: &[Row], delay: i64, cut: usize, ticks: &[usize]) -> (Vec<String>, RowCounts) {
        let mut operator = aggregate(&self.node());
        let given = run(operator.as_mut(), rows, delay, cut, ticks);
        if !matches!(self.mode, EmitMode::Complete { .. }) {
            assert_eq!(operator.state().rows, 0, "a session that is over keeps nothing");
        }
        given
    }
}

fn run(
    operator: &mut dyn Operator,
    rows: &[Row],
    delay: i64,
    cut: usize,
    ticks: &[usize],
) -> (Vec<String>, RowCounts) {
    let running = running(rows, delay);
    let (mut out, mut given, mut last, mut now) = (Output::default(), Vec::new(), i64::MIN, 0);
    operator.open(now);
    let mut from = 0;
    while from < rows.len() {
        let next_tick = ticks.iter().copied().filter(|tick| *tick > from).min();
        let to = rows.len().min(from + cut).min(next_tick.unwrap_or(usize::MAX));
        operator.process_batch(stream_batch(&rows[from..to], &running[from..to]), &mut out).unwrap();
        if running[to] > last {
            last = running[to];
            operator.process_watermark(Watermark(last), &mut out).unwrap();
        }
        if ticks.contains(&to) {
            now += 1_000;
            operator.process_timer(now, &mut out).unwrap();
        }
        drain(&mut out, &mut given);
        from = to;
    }
    operator.process_watermark(Watermark::MAX, &mut out).unwrap();
    operator.finish(&mut out).unwrap();
    drain(&mut out, &mut given);
    (given, out.counts)
}

/// A session of the evaluation row by row.
struct Held {
    partition: Option<&'static str>,
    start: i64,
    end: i64,
    members: Vec<usize>,
    /// What was given of it and of those that it is made of: each with the bounds and the key.
    given: Vec<((i64, i64), Option<&'static str>, String)>,
    is_closed: bool,
}

/// The evaluation row by row: all that it knows of a session are its rows.
struct Naive<'a> {
    query: &'a Query,
    rows: &'a [Row],
    held: Vec<Held>,
    changes: Vec<String>,
}

impl Naive<'_> {
    /// The results of a session: key and line, by first row.
    fn results(&self, held: &Held) -> Vec<(Option<&'static str>, String)> {
        let mut groups: Vec<(Option<&'static str>, Vec<Option<i64>>)> = Vec::new();
        for row in &held.members {
            let (_, key, value) = self.rows[*row];
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) => values.push(value),
                None => groups.push((key, vec![value])),
            }
        }
        let bounds = format!("{},{},{}", stamp(held.start), stamp(held.end), stamp(held.end - 1));
        let line = |key: &Option<&'static str>, values: &[Option<i64>]| {
            format!("{bounds},{},{}", key.unwrap_or("NULL"), (self.query.describe)(values))
        };
        groups.iter().map(|(key, values)| (*key, line(key, values))).collect()
    }

    /// Gives what sessions are now in place of what was given; those of one time together.
    fn give(&mut self, sessions: &[usize]) {
        let mut now: Vec<(usize, usize, Option<&'static str>, String)> = Vec::new();
        for index in sessions {
            let held = &self.held[*index];
            for (key, line) in self.results(held) {
                let first = held.members.iter().find(|row| self.rows[**row].1 == key);
                now.push((*first.unwrap(), *index, key, line));
            }
        }
        now.sort();
        let mut before = BTreeMap::new();
        for index in sessions {
            let bounds = (self.held[*index].start, self.held[*index].end);
            for (given_in, key, line) in std::mem::take(&mut self.held[*index].given) {
                match given_in == bounds {
                    true => assert!(before.insert((*index, key), line).is_none()),
                    false => self.changes.push(format!("-D {line}")),
                }
            }
        }
        for (_, index, key, line) in now {
            match before.remove(&(index, key)) {
                None => self.changes.push(format!("+I {line}")),
                Some(before) if before == line => {}
                Some(before) => {
                    self.changes.push(format!("-U {before}"));
                    self.changes.push(format!("+U {line}"));
                }
            }
            let held = &mut self.held[index];
            held.given.push(((held.start, held.end), key, line));
        }
        assert!(before.is_empty(), "a session loses no key");
    }

    fn close(&self, end: i64) -> i64 {
        (end - 1) * MS
    }

    /// Closes sessions, those that close at one time together, and forgets those that are over.
    fn advance(&mut self, watermark: i64) {
        loop {
            let over = |held: &Held| self.close(held.end) + self.query.lateness * MS;
            let closing = self.held.iter().filter(|held| !held.is_closed).map(|held| self.close(held.end));
            let ending = self.held.iter().map(over);
            let Some(next) = closing.chain(ending).filter(|time| *time <= watermark).min() else { return };
            let due = |held: &Held| (!held.is_closed && self.close(held.end) == next) || over(held) == next;
            let due: Vec<usize> = (0..self.held.len()).filter(|index| due(&self.held[*index])).collect();
            self.give(&due);
            due.iter().for_each(|index| self.held[*index].is_closed = true);
            let (lateness, unit) = (self.query.lateness * MS, MS);
            self.held.retain(|held| held.end * MS - unit + lateness > next);
        }
    }

    fn take(&mut self, row: usize, watermark: i64, counts: &mut RowCounts) {
        let (time, key, _) = self.rows[row];
        let Some(time) = time else {
            counts.null_time += 1;
            return;
        };
        let (gap, lateness) = (self.query.gap, self.query.lateness * MS);
        let partition = if self.query.by_key { key } else { None };
        let mut new = Held {
            partition,
            start: time,
            end: time + gap,
            members: vec![row],
            given: Vec::new(),
            is_closed: false,
        };
        let touches =
            |held: &mut Held| held.partition == partition && held.start <= time + gap && time <= held.end;
        let touched: Vec<Held> = self.held.extract_if(.., touches).collect();
        for held in touched {
            new.start = new.start.min(held.start);
            new.end = new.end.max(held.end);
            new.members.extend(held.members);
            new.given.extend(held.given);
        }
        if self.close(new.end) + lateness <= watermark {
            assert_eq!(new.members.len(), 1, "what touches a session that is there is not late");
            counts.late += 1;
            return;
        }
        counts.used += 1;
        new.members.sort_unstable();
        // What was given of a session that was given longer ago is taken back first.
        new.given.sort_by_key(|(bounds, ..)| *bounds);
        new.is_closed = self.close(new.end) <= watermark;
        let gives = match self.query.mode {
            EmitMode::Changes { every_us } => every_us.is_none(),
            EmitMode::OnWindowClose | EmitMode::Early { .. } => new.is_closed,
            EmitMode::Complete { .. } => false,
        };
        self.held.push(new);
        if gives {
            self.give(&[self.held.len() - 1]);
        }
    }

    fn run(mut self, delay: i64) -> (Vec<String>, RowCounts) {
        let running = running(self.rows, delay);
        let mut counts = RowCounts::default();
        for (row, watermark) in (0..self.rows.len()).zip(running) {
            self.advance(watermark);
            self.take(row, watermark, &mut counts);
        }
        self.advance(i64::MAX);
        (self.changes, counts)
    }
}

fn naive(query: &Query, rows: &[Row], delay: i64) -> (Vec<String>, RowCounts) {
    Naive { query, rows, held: Vec::new(), changes: Vec::new() }.run(delay)
}

/// The changes, those that take something away at one time in order.
fn settled(changes: &[String]) -> Vec<String> {
    let mut changes = changes.to_vec();
    let is_deleted = |change: &String| change.starts_with("-D");
    for run in changes.chunk_by_mut(|one, other| is_deleted(one) && is_deleted(other)) {
        run.sort();
    }
    changes
}

fn row(time: i64, key: &'static str, value: i64) -> Row {
    (Some(time), Some(key), Some(value))
}

/// Sums of sessions of 10 ms by key, as `+I 0-15 a 3`.
fn sums(mode: EmitMode, lateness: i64, rows: &[Row], cut: usize, ticks: &[usize]) -> Vec<String> {
    let calls = vec![plain_calls().swap_remove(1)];
    let query = Query { gap: 10, lateness, by_key: true, mode, calls, describe: describe_plain };
    let (given, counts) = query.run(rows, 0, cut, ticks);
    assert_eq!(counts.used, rows.len() as u64);
    let short = |line: &String| {
        let cells: Vec<&str> = line[3..].split(',').collect();
        let ms = |cell: &str| (0..1_000).find(|ms| stamp(*ms) == cell).expect("a time");
        format!("{} {}-{} {} {}", &line[..2], ms(cells[0]), ms(cells[1]), cells[3], cells[4])
    };
    given.iter().map(short).collect()
}

#[test]
fn a_row_that_moves_a_session_takes_back_its_result() {
    // The third row of a stands inside its session: the bounds stay. The last one begins another session.
    let rows = [row(0, "a", 1), row(5, "a", 2), row(3, "a", 4), row(4, "b", 8), row(40, "a", 16)];
    for cut in [1, 2, 5] {
        let expected = [
            "+I 0-10 a 1",
            "-D 0-10 a 1",
            "+I 0-15 a 3",
            "-U 0-15 a 3",
            "+U 0-15 a 7",
            "+I 4-14 b 8",
            "+I 40-50 a 16",
        ];
        assert_eq!(sums(EACH, 0, &rows, cut, &[]), expected, "cut {cut}");
    }
}

#[test]
fn a_row_that_joins_two_sessions_takes_back_both() {
    // No session is over as long as the watermark is below 9: the rows come from behind.
    let rows = [row(8, "a", 1), row(-12, "a", 2), row(-2, "a", 4)];
    let query = |mode| Query {
        gap: 10,
        lateness: 0,
        by_key: true,
        mode,
        calls: vec![plain_calls().swap_remove(1)],
        describe: describe_plain,
    };
    let line = |kind: &str, start, end, sum| {
        format!("{kind} {},{},{},a,{sum}", stamp(start), stamp(end), stamp(end - 1))
    };
    for cut in [1, 2, 3] {
        let (given, _) = query(EACH).run(&rows, 20, cut, &[]);
        let expected = [
            line("+I", 8, 18, 1),
            line("+I", -12, -2, 2),
            line("-D", 8, 18, 1),
            line("-D", -12, -2, 2),
            line("+I", -12, 18, 7),
        ];
        assert_eq!(settled(&given), settled(&expected), "cut {cut}");
        // A round after the second row has given both; the next one gives what they are now.
        let (given, _) = query(EVERY).run(&rows, 20, cut, &[2, 3]);
        let expected = [
            line("+I", -12, -2, 2),
            line("+I", 8, 18, 1),
            line("-D", -12, -2, 2),
            line("-D", 8, 18, 1),
            line("+I", -12, 18, 7),
        ];
        assert_eq!(settled(&given), settled(&expected), "cut {cut}");
    }
}

#[test]
fn a_closed_session_grows_until_its_lateness_is_over() {
    // [0, 10) closes at 9 and is over at 9 + 5. At 13 a row at 0 is in time; it changes the sum only.
    let rows = [row(0, "a", 1), row(13, "z", 2), row(0, "a", 4)];
    let expected = ["+I 0-10 a 1", "-U 0-10 a 1", "+U 0-10 a 5", "+I 13-23 z 2"];
    for cut in [1, 2, 3] {
        assert_eq!(sums(CLOSE, 5, &rows, cut, &[]), expected, "cut {cut}");
    }
    // One at 2 makes it [0, 12), which has closed, too: at once in other bounds.
    let rows = [row(0, "a", 1), row(13, "z", 2), row(2, "a", 4)];
    let expected = ["+I 0-10 a 1", "-D 0-10 a 1", "+I 0-12 a 5", "+I 13-23 z 2"];
    for cut in [1, 2, 3] {
        assert_eq!(sums(CLOSE, 5, &rows, cut, &[]), expected, "cut {cut}");
    }
    // One at 8 makes it [0, 18), which is open again: what was given stands until that closes.
    let rows = [row(0, "a", 1), row(13, "z", 2), row(8, "a", 4), row(16, "z", 8), row(30, "z", 16)];
    let expected = ["+I 0-10 a 1", "-D 0-10 a 1", "+I 0-18 a 5", "+I 13-26 z 10", "+I 30-40 z 16"];
    for cut in [1, 2, 5] {
        assert_eq!(sums(CLOSE, 5, &rows, cut, &[]), expected, "cut {cut}");
    }
}

#[test]
fn lateness_is_told_to_the_unit() {
    // [0, 10) is over at 9 + lateness, and so would be the row's own session.
    for (reached, lateness, late) in [(13, 5, 0), (14, 5, 1), (13, 0, 1), (8, 0, 0)] {
        let rows = [row(0, "a", 1), row(reached, "z", 1), row(0, "a", 2)];
        let calls = plain_calls();
        let query = Query { gap: 10, lateness, by_key: true, mode: CLOSE, calls, describe: describe_plain };
        for cut in [1, 3] {
            let (_, counts) = query.run(&rows, 0, cut, &[]);
            assert_eq!(counts.late, late, "watermark {reached}, lateness {lateness}, cut {cut}");
        }
    }
}

#[test]
fn a_session_that_was_closed_when_it_began_is_given_at_once() {
    // At 12 a row at 0 is in time for a lateness of 5, and [0, 10) has closed.
    let rows = [row(12, "z", 1), row(0, "a", 2), row(1, "a", 4)];
    for cut in [1, 2, 3] {
        let expected = ["+I 0-10 a 2", "-D 0-10 a 2", "+I 0-11 a 6", "+I 12-22 z 1"];
        assert_eq!(sums(CLOSE, 5, &rows, cut, &[]), expected, "cut {cut}");
    }
}

#[test]
fn early_results_then_the_final_ones() {
    let rows = [row(0, "a", 1), row(1, "b", 1), row(5, "a", 2), row(30, "z", 4)];
    // One round after the second row; a and b close before the row at 30.
    for cut in [1, 3, 4] {
        let given = sums(EARLY, 0, &rows, cut, &[2]);
        let expected = ["+I 0-10 a 1", "+I 1-11 b 1", "-D 0-10 a 1", "+I 0-15 a 3", "+I 30-40 z 4"];
        assert_eq!(given, expected, "cut {cut}");
    }
    // A round without a change gives nothing.
    assert_eq!(sums(EARLY, 0, &rows[..1], 1, &[1]), ["+I 0-10 a 1"]);
}

#[test]
fn complete_gives_all_sessions_each_time_one_closes() {
    let rows = [row(0, "a", 1), row(1, "b", 2), row(10, "b", 4), row(25, "a", 8), row(26, "b", 16)];
    // [0, 10) of a closes before the row at 25 (the watermark is 10), then [1, 20) of b at 19 before the
    // row at 26: the row of a at 25 has come since. At the end one of the two others closes first.
    let first = ["+I 0-10 a 1", "+I 1-20 b 6"];
    let second = ["-D 0-10 a 1", "-D 1-20 b 6", "+I 0-10 a 1", "+I 1-20 b 6", "+I 25-35 a 8"];
    let last = [
        "-D 0-10 a 1",
        "-D 1-20 b 6",
        "-D 25-35 a 8",
        "+I 0-10 a 1",
        "+I 1-20 b 6",
        "+I 25-35 a 8",
        "+I 26-36 b 16",
    ];
    for cut in [1, 2, 5] {
        let given = sums(COMPLETE, 0, &rows, cut, &[]);
        assert_eq!(given, [&first[..], &second[..], &last[..]].concat(), "cut {cut}");
    }
    let given = sums(COMPLETE_EVERY, 0, &rows, 2, &[2]);
    let early = ["+I 0-10 a 1", "+I 1-11 b 2", "-D 0-10 a 1", "-D 1-11 b 2"];
    assert_eq!(given, [&early[..], &last[3..]].concat());
}

#[test]
fn grouping_sets_change_together() {
    let mut node = sessions(10, vec![], vec![column(1)], vec![plain_calls().swap_remove(1)]);
    node.grouping_sets = Some(vec![vec![false], vec![true]]);
    node.emit = EACH;
    let rows = [row(0, "a", 1), row(0, "b", 2)];
    let line = |key: &str, id, sum| format!("{},{},{},{key},{id},{sum}", stamp(0), stamp(10), stamp(9));
    for cut in [1, 2] {
        let (given, _) = run(aggregate(&node).as_mut(), &rows, 0, cut, &[]);
        let expected = [
            format!("+I {}", line("a", 0, 1)),
            format!("+I {}", line("NULL", 1, 1)),
            format!("+I {}", line("b", 0, 2)),
            format!("-U {}", line("NULL", 1, 1)),
            format!("+U {}", line("NULL", 1, 3)),
        ];
        assert_eq!(given, expected, "cut {cut}");
    }
}

#[test]
fn what_sessions_kept_goes() {
    // Each row a key and a session of its own; rows are kept for the second kind of calls.
    for calls in [joining_calls(), ordered_calls()] {
        for (mode, lateness) in [(EACH, 0), (EVERY, 3), (CLOSE, 3)] {
            let node = sessions(5, vec![2], vec![column(2)], calls.clone());
            let node = WindowAggregateNode { emit: mode, allowed_lateness_us: lateness * MS, ..node };
            // The operator alone: one that has just taken up state has less room to spare.
            let (schema, window) = (output(&node, &input()), spec(5));
            let window = (0, &window, [2].as_slice());
            let mut operator = LiveSessions::try_new(&node, window, &schema, &input(), None).unwrap();
            let (mut out, mut most) = (Output::default(), [0, 0]);
            operator.open(0);
            for batch in 0..30 {
                let rows: Vec<Row> =
                    (0..500).map(|row| (Some(batch), Some("a"), Some(batch * 500 + row))).collect();
                operator.process_batch(stream_batch(&rows, &[(batch - 1) * MS; 500]), &mut out).unwrap();
                operator.process_watermark(Watermark(batch * MS), &mut out).unwrap();
                out.drain();
                let state = operator.state();
                let half = usize::from(batch >= 15);
                most[half] = most[half].max(state.bytes);
                assert!(state.windows <= 4_500, "{mode:?}: {state:?}");
            }
            assert!(most[1] <= most[0] * 3 / 2, "{mode:?}: {most:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_319),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_cut_gives_the_changes_of_row_by_row(
        rows in rows(), gap in 1i64..12, delay in 0i64..40, lateness in 0i64..20, by_key: bool,
        cut in 1usize..40, which in 0usize..3,
    ) {
        let (calls, describe) = match which {
            0 => (ordered_calls(), describe_ordered as Describe),
            1 => (plain_calls(), describe_plain as Describe),
            _ => (joining_calls(), describe_joining as Describe),
        };
        for (mode, lateness) in [(EACH, lateness), (CLOSE, lateness.max(1))] {
            let query = Query { gap, lateness, by_key, mode, calls: calls.clone(), describe };
            let (expected, counts) = naive(&query, &rows, delay);
            let (given, given_counts) = query.run(&rows, delay, cut, &[]);
            prop_assert_eq!(settled(&given), settled(&expected));
            prop_assert_eq!(given_counts, counts);
            prop_assert_eq!(given, query.run(&rows, delay, rows.len().max(1), &[]).0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_320),
        ..ProptestConfig::default()
    })]

    /// Whatever comes before, in the end it is what is given without a clause, to the last digit.
    #[test]
    fn the_folded_changelog_is_the_result(
        rows in rows(), gap in 1i64..12, delay in 0i64..40, lateness in 0i64..20, by_key: bool,
        cut in 1usize..40, which in 0usize..4, ticks in prop::collection::vec(1usize..60, 0..6),
    ) {
        let calls = [plain_calls, joining_calls, ordered_calls, inexact_calls][which]();
        let query = |mode, lateness| {
            Query { gap, lateness, by_key, mode, calls: calls.clone(), describe: describe_plain }
        };
        let finals = query(CLOSE, 0).node();
        let (finals, counts) = run_cut(aggregate(&finals).as_mut(), &rows, delay, &[cut]);
        let mut sorted = finals.clone();
        sorted.sort();
        for mode in [EACH, EVERY, EARLY, COMPLETE, COMPLETE_EVERY] {
            let (given, given_counts) = query(mode, 0).run(&rows, delay, cut, &ticks);
            prop_assert_eq!(folded(&given), sorted.clone());
            prop_assert_eq!(given_counts, counts);
            if matches!(mode, EmitMode::Complete { .. }) {
                // The whole result stands behind the last row that was deleted, in its order.
                let last = given.iter().rposition(|line| line.starts_with("-D")).map_or(0, |at| at + 1);
                let last: Vec<&str> = given[last..].iter().map(|line| &line[3..]).collect();
                prop_assert_eq!(last, finals.clone());
            }
        }
        let with_lateness = folded(&query(EACH, lateness).run(&rows, delay, cut, &ticks).0);
        for mode in [EVERY, EARLY, CLOSE, COMPLETE, COMPLETE_EVERY] {
            let (given, _) = query(mode, lateness).run(&rows, delay, cut, &ticks);
            prop_assert_eq!(folded(&given), with_lateness.clone());
        }
    }
}
