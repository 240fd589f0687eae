//! Results that change: each change, by hand and against an evaluation row by row.

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;
use proptest::prelude::*;

use super::property::{describe_ordered, describe_plain, kinds, rows, windows_of};
use super::{assign, column, node, operator, ordered_calls, output, plain_calls, run_node};
use crate::operator::testing::{MS, Row, input, lines, plan_node, running, stamp, stream_batch};
use crate::operator::{Operator, Output, RowCounts, create};
use crate::plan::*;
use crate::stream::{StreamElement, Watermark};

/// Takes what was given: `+I` and so on before each row.
pub(in super::super) fn drain(out: &mut Output, into: &mut Vec<String>) {
    for element in out.drain() {
        if let StreamElement::Batch(batch) = element {
            let kinds = batch.kinds.as_ref().map(|kinds| kinds.values().to_vec());
            for (row, line) in lines(&batch.rows).into_iter().enumerate() {
                let kind = kinds.as_ref().map_or("+I", |kinds| kinds[row].symbol());
                into.push(format!("{kind} {line}"));
            }
        }
    }
}

/// Runs rows in batches that end after each of `cuts` rows, a watermark after each batch, and a round
/// of EVERY after the rows in `ticks`.
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
    assert_eq!(operator.state().rows, 0, "a closed window keeps nothing");
    (given, out.counts)
}

/// The rows that a changelog leaves.
pub(in super::super) fn folded(changes: &[String]) -> Vec<String> {
    let mut rows: Vec<&str> = Vec::new();
    for change in changes {
        let (kind, row) = change.split_at(3);
        if matches!(kind, "+I " | "+U ") {
            rows.push(row);
        } else {
            let place = rows.iter().rposition(|held| *held == row).expect("it takes away what is there");
            rows.remove(place);
        }
    }
    let mut rows: Vec<String> = rows.into_iter().map(str::to_owned).collect();
    rows.sort();
    rows
}

type Describe = fn(&[Option<i64>]) -> String;

/// A window of the evaluation row by row.
#[derive(Default)]
struct Open {
    groups: Vec<(Option<&'static str>, Vec<Option<i64>>)>,
    /// What was given of each group.
    given: Vec<Option<String>>,
    is_closed: bool,
}

/// The evaluation row by row.
struct Naive {
    mode: EmitMode,
    lateness: i64,
    describe: Describe,
    windows: BTreeMap<(i64, i64), Open>,
    changes: Vec<String>,
}

impl Naive {
    fn line(&self, (end, start): (i64, i64), group: usize) -> String {
        let (key, values) = &self.windows[&(end, start)].groups[group];
        let bounds = format!("{},{},{}", stamp(start), stamp(end), stamp(end - 1));
        format!("{bounds},{},{}", key.unwrap_or("NULL"), (self.describe)(values))
    }

    fn give(&mut self, window: (i64, i64), group: usize) {
        let line = self.line(window, group);
        let given = &mut self.windows.get_mut(&window).unwrap().given[group];
        match given.replace(line.clone()) {
            None => self.changes.push(format!("+I {line}")),
            Some(before) if before == line => {}
            Some(before) => {
                self.changes.push(format!("-U {before}"));
                self.changes.push(format!("+U {line}"));
            }
        }
    }

    fn give_all(&mut self, window: (i64, i64)) {
        for group in 0..self.windows[&window].groups.len() {
            self.give(window, group);
        }
    }

    fn advance(&mut self, watermark: i64) {
        let due = |(window, open): (&(i64, i64), &Open)| {
            (!open.is_closed && watermark >= (window.0 - 1) * MS).then_some(*window)
        };
        let closing: Vec<_> = self.windows.iter().filter_map(due).collect();
        for window in closing {
            self.windows.get_mut(&window).unwrap().is_closed = true;
            self.give_all(window);
        }
    }

    /// A row in one of its windows.
    fn take(&mut self, window: (i64, i64), key: Option<&'static str>, value: Option<i64>, watermark: i64) {
        let open = self.windows.entry(window).or_default();
        open.is_closed |= watermark >= (window.0 - 1) * MS;
        let group = match open.groups.iter().position(|(known, _)| *known == key) {
            Some(group) => group,
            None => {
                open.groups.push((key, Vec::new()));
                open.given.push(None);
                open.groups.len() - 1
            }
        };
        open.groups[group].1.push(value);
        let gives = match self.mode {
            EmitMode::Changes { every_us } => every_us.is_none(),
            EmitMode::OnWindowClose | EmitMode::Early { .. } => open.is_closed,
            EmitMode::Complete { .. } => false,
        };
        if gives {
            self.give(window, group);
        }
    }

    fn run(
        mut self,
        (kind, offset): (WindowKind, i64),
        rows: &[Row],
        delay: i64,
        ticks: &[usize],
    ) -> (Vec<String>, RowCounts) {
        let running = running(rows, delay);
        let mut counts = RowCounts::default();
        for (index, (time, key, value)) in rows.iter().enumerate() {
            let watermark = running[index];
            self.advance(watermark);
            match time {
                None => counts.null_time += 1,
                Some(time) => {
                    let all = windows_of(kind, offset, *time);
                    let is_open = |(_, end): &&(i64, i64)| watermark < (end - 1 + self.lateness) * MS;
                    let mut open: Vec<_> =
                        all.iter().filter(is_open).map(|(start, end)| (*end, *start)).collect();
                    open.sort_unstable();
                    counts.late += u64::from(open.is_empty());
                    counts.used += u64::from(!open.is_empty());
                    counts.partly_late += u64::from(!open.is_empty() && open.len() < all.len());
                    for window in open {
                        self.take(window, *key, *value, watermark);
                    }
                }
            }
            if ticks.contains(&(index + 1)) {
                self.advance(running[index + 1]);
                let windows: Vec<_> = self.windows.keys().copied().collect();
                let early = matches!(self.mode, EmitMode::Early { .. });
                for window in windows {
                    if !early || !self.windows[&window].is_closed {
                        self.give_all(window);
                    }
                }
            }
        }
        self.advance(i64::MAX);
        let windows: Vec<_> = self.windows.keys().copied().collect();
        // Lateness ends window by window: the changes of EVERY come then.
        windows.into_iter().for_each(|window| self.give_all(window));
        (self.changes, counts)
    }
}

fn emitting(node: WindowAggregateNode, emit: EmitMode, lateness_ms: i64) -> WindowAggregateNode {
    WindowAggregateNode { emit, allowed_lateness_us: lateness_ms * MS, ..node }
}

const EACH: EmitMode = EmitMode::Changes { every_us: None };
const EVERY: EmitMode = EmitMode::Changes { every_us: Some(1_000) };
const EARLY: EmitMode = EmitMode::Early { every_us: 1_000 };
const COMPLETE: EmitMode = EmitMode::Complete { every_us: None };
const COMPLETE_EVERY: EmitMode = EmitMode::Complete { every_us: Some(1_000) };

fn row(time: i64, key: &'static str, value: i64) -> Row {
    (Some(time), Some(key), Some(value))
}

/// `+I 0-10 a 1`: kind, bounds in ms, key, sum.
fn sums(
    emit: EmitMode,
    lateness: i64,
    rows: &[Row],
    cut: usize,
    ticks: &[usize],
) -> (Vec<String>, RowCounts) {
    let tumble = WindowKind::Tumble { size_us: 10 * MS };
    let sum = plain_calls().swap_remove(1);
    let node = emitting(node(assign(tumble, 0), vec![column(1)], vec![sum]), emit, lateness);
    let (given, counts) = run(operator(&node).as_mut(), rows, 0, cut, ticks);
    let short = |line: &String| {
        let (kind, row) = line.split_at(3);
        let cells: Vec<&str> = row.split(',').collect();
        let start = (0..10).map(|n| n * 10).find(|start| stamp(*start) == cells[0]).expect("a window");
        format!("{kind}{start} {} {}", cells[3], cells[4])
    };
    (given.iter().map(short).collect(), counts)
}

#[test]
fn each_row_that_changes_a_result_gives_the_change() {
    // The last row of a adds 0: nothing changes.
    let rows = [row(1, "a", 1), row(2, "b", 2), row(3, "a", 3), row(11, "a", 4), row(12, "a", 0)];
    for cut in [1, 2, 5] {
        let (given, counts) = sums(EACH, 0, &rows, cut, &[]);
        assert_eq!(given, ["+I 0 a 1", "+I 0 b 2", "-U 0 a 1", "+U 0 a 4", "+I 10 a 4"], "cut {cut}");
        assert_eq!(counts.used, 5);
    }
}

#[test]
fn a_closed_window_changes_until_its_lateness_is_over() {
    // [0, 10) closes at 9 and is forgotten at 9 + 5 = 14.
    let in_time = [row(1, "a", 1), row(9, "a", 1), row(2, "a", 2), row(3, "b", 3)];
    let early = ["+I 0 a 2", "-U 0 a 2", "+U 0 a 4", "+I 0 b 3"];
    for cut in [1, 2, 4] {
        assert_eq!(sums(EmitMode::OnWindowClose, 5, &in_time, cut, &[]).0, early, "cut {cut}");
    }
    // At 13 a row is in time, at 14 it is late; at 13 without lateness, too.
    for (reached, lateness, late) in [(13, 5, 0), (14, 5, 1), (13, 0, 1), (8, 0, 0)] {
        let rows = [row(1, "a", 1), row(reached, "c", 1), row(2, "a", 2)];
        for cut in [1, 3] {
            let (_, counts) = sums(EmitMode::OnWindowClose, lateness, &rows, cut, &[]);
            assert_eq!(counts.late, late, "watermark {reached}, lateness {lateness}, cut {cut}");
        }
    }
}

#[test]
fn a_late_row_opens_a_window_that_nothing_was_in() {
    // The watermark is at 12 when the first row of [0, 10) comes: its result is given at once.
    let rows = [row(12, "a", 1), row(3, "b", 2), row(4, "b", 1), row(30, "a", 5)];
    for cut in [1, 2, 4] {
        let (given, _) = sums(EmitMode::OnWindowClose, 5, &rows, cut, &[]);
        assert_eq!(given, ["+I 0 b 2", "-U 0 b 2", "+U 0 b 3", "+I 10 a 1", "+I 30 a 5"], "cut {cut}");
    }
}

#[test]
fn every_gives_what_has_changed_since() {
    let rows = [row(1, "a", 1), row(2, "a", 2), row(3, "b", 4), row(4, "a", 0), row(5, "a", 3)];
    // Rounds after the 2nd, the 4th and the last row. The 4th row adds 0 to a, so only b is new.
    let (given, _) = sums(EVERY, 0, &rows, 9, &[2, 4, 5]);
    assert_eq!(given, ["+I 0 a 3", "+I 0 b 4", "-U 0 a 3", "+U 0 a 6"]);
    // A value that comes back to what was given is no change: 3, 5, 3.
    let rows = [row(1, "a", 3), row(2, "a", 2), row(3, "a", -2), row(4, "b", 1)];
    let (given, _) = sums(EVERY, 0, &rows, 9, &[1, 4]);
    assert_eq!(given, ["+I 0 a 3", "+I 0 b 1"]);
    // What no round gave comes when the window closes.
    let (given, _) = sums(EVERY, 0, &[row(1, "a", 1), row(2, "a", 1), row(25, "a", 9)], 9, &[1]);
    assert_eq!(given, ["+I 0 a 1", "-U 0 a 1", "+U 0 a 2", "+I 20 a 9"]);
}

#[test]
fn early_results_then_the_final_ones() {
    let rows = [row(1, "a", 1), row(2, "b", 1), row(3, "a", 1), row(12, "a", 5), row(4, "b", 7)];
    // One round after the first row: b is first given when its window closes. The last row is in time
    // for a lateness of 5 and gives its change at once.
    for cut in [1, 3, 5] {
        let (given, _) = sums(EARLY, 5, &rows, cut, &[1]);
        let expected = ["+I 0 a 1", "-U 0 a 1", "+U 0 a 2", "+I 0 b 1", "-U 0 b 1", "+U 0 b 8", "+I 10 a 5"];
        assert_eq!(given, expected, "cut {cut}");
    }
}

#[test]
fn complete_gives_the_whole_result_in_place_of_the_one_before() {
    let rows = [row(1, "a", 1), row(2, "b", 2), row(11, "a", 4), row(21, "c", 1)];
    let node = |emit| {
        let tumble = WindowKind::Tumble { size_us: 10 * MS };
        let sum = plain_calls().swap_remove(1);
        emitting(node(assign(tumble, 0), vec![column(1)], vec![sum]), emit, 0)
    };
    let given = |emit, cut, ticks: &[usize]| {
        let mut operator = operator(&node(emit));
        let running = running(&rows, 0);
        let (mut out, mut given) = (Output::default(), Vec::new());
        operator.open(0);
        for from in (0..rows.len()).step_by(cut) {
            let to = rows.len().min(from + cut);
            operator.process_batch(stream_batch(&rows[from..to], &running[from..to]), &mut out).unwrap();
            if ticks.contains(&to) {
                operator.process_timer(1_000 * to as i64, &mut out).unwrap();
            }
        }
        operator.process_watermark(Watermark::MAX, &mut out).unwrap();
        operator.finish(&mut out).unwrap();
        drain(&mut out, &mut given);
        given
            .iter()
            .map(|line| {
                let cells: Vec<&str> = line.split(',').collect();
                format!("{} {} {}", &line[..2], cells[3], cells[4])
            })
            .collect::<Vec<_>>()
    };
    // [0, 10) closes before the row at 21 (the watermark is 11 then, and a of [10, 20) is there), the
    // other two at the end, one after the other: the second of these rounds would be the same.
    let first = ["+I a 1", "+I b 2", "+I a 4"];
    let last = ["-D a 1", "-D b 2", "-D a 4", "+I a 1", "+I b 2", "+I a 4", "+I c 1"];
    for cut in [1, 2, 4] {
        assert_eq!(given(COMPLETE, cut, &[]), [&first[..], &last[..]].concat(), "cut {cut}");
    }
    let two_rounds = ["+I a 1", "+I b 2", "-D a 1", "-D b 2", "+I a 1", "+I b 2", "+I a 4", "+I c 1"];
    assert_eq!(given(COMPLETE_EVERY, 2, &[2]), two_rounds);
}

#[test]
fn timers_keep_their_grid() {
    let tumble = WindowKind::Tumble { size_us: 10 * MS };
    let mut operator = operator(&emitting(node(assign(tumble, 0), vec![], plain_calls()), EVERY, 0));
    assert_eq!(operator.next_timer(), None);
    operator.open(500);
    assert_eq!(operator.next_timer(), Some(1_500));
    let mut out = Output::default();
    operator.process_timer(1_500, &mut out).unwrap();
    assert_eq!(operator.next_timer(), Some(2_500));
    // Rounds that were missed are not made up for.
    operator.process_timer(7_600, &mut out).unwrap();
    assert_eq!(operator.next_timer(), Some(8_500));
    assert_eq!(out.drain().count(), 0, "nothing has changed");
}

fn global(keys: Vec<ExprRef>, sets: Option<Vec<Vec<bool>>>) -> WindowAggregateNode {
    let sum = plain_calls().swap_remove(1);
    WindowAggregateNode { grouping_sets: sets, ..node(assign(WindowKind::Global, 0), keys, vec![sum]) }
}

#[test]
fn without_a_window_results_change_to_the_end() {
    let rows = [row(1, "a", 1), row(2, "b", 2), row(3, "a", 3)];
    let given = |node: WindowAggregateNode, rows: &[Row]| {
        let mut operator = operator(&node);
        let (mut out, mut given) = (Output::default(), Vec::new());
        if !rows.is_empty() {
            operator.process_batch(stream_batch(rows, &vec![0; rows.len()]), &mut out).unwrap();
        }
        operator.process_watermark(Watermark::MAX, &mut out).unwrap();
        operator.finish(&mut out).unwrap();
        drain(&mut out, &mut given);
        given
    };
    let keyed = || emitting(global(vec![column(1)], None), EACH, 0);
    assert_eq!(given(keyed(), &rows), ["+I a,1", "+I b,2", "-U a,1", "+U a,4"]);
    assert_eq!(given(keyed(), &[]), [] as [&str; 0]);
    let whole = |emit| emitting(global(vec![], None), emit, 0);
    assert_eq!(given(whole(EACH), &rows), ["+I 1", "-U 1", "+U 3", "-U 3", "+U 6"]);
    assert_eq!(given(whole(COMPLETE), &rows), ["+I 6"]);
    // What SQL says of no rows.
    for emit in [EACH, EVERY, COMPLETE] {
        assert_eq!(given(whole(emit), &[]), ["+I NULL"]);
    }
    // By key, then all: each row is in both.
    let sets = emitting(global(vec![column(1)], Some(vec![vec![false], vec![true]])), EACH, 0);
    let expected = ["+I a,0,1", "+I NULL,1,1", "+I b,0,2", "-U NULL,1,1", "+U NULL,1,3"];
    assert_eq!(given(sets, &rows[..2]), expected);
}

#[test]
fn windows_that_rows_carry_change_too() {
    use arrow::array::{ArrayRef, Int64Array, TimestampMillisecondArray};
    use arrow::record_batch::RecordBatch;
    use std::sync::Arc;

    let time = input().field(0).data_type().clone();
    let schema: SchemaRef = Arc::new(arrow::datatypes::Schema::new(vec![
        arrow::datatypes::Field::new("s", time.clone(), true),
        arrow::datatypes::Field::new("e", time, true),
        arrow::datatypes::Field::new("v", arrow::datatypes::DataType::Int64, true),
    ]));
    let window = WindowSource::Attached {
        start: 0,
        end: 1,
        unit: crate::stream::TimeUnit::Millisecond,
        zone: None,
        copies: None,
    };
    let sum = plain_calls().swap_remove(1);
    let node = emitting(node(window, vec![], vec![sum]), EACH, 0);
    let plan = plan_node(Operation::WindowAggregate(Box::new(node.clone())), output(&node, &schema));
    let mut operator = create(&plan, &schema).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from(vec![Some(0), Some(5), Some(0), None, Some(0)])),
        Arc::new(TimestampMillisecondArray::from(vec![10, 15, 10, 10, 10])),
        Arc::new(Int64Array::from(vec![1, 2, 3, 4, 5])),
    ];
    let rows = RecordBatch::try_new(schema, columns).unwrap();
    let mut batch = stream_batch(&[], &[]);
    batch.rows = rows;
    batch.running = Some(crate::stream::RunningWatermark::new(vec![0, 0, 0, 0, 9 * MS]));
    let (mut out, mut given) = (Output::default(), Vec::new());
    operator.process_batch(batch, &mut out).unwrap();
    drain(&mut out, &mut given);
    let kinds: Vec<String> =
        given.iter().map(|line| format!("{} {}", &line[..2], line.rsplit(',').next().unwrap())).collect();
    assert_eq!(kinds, ["+I 1", "+I 2", "-U 1", "+U 4"]);
    assert_eq!((out.counts.null_time, out.counts.late, out.counts.used), (1, 1, 3));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 120,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_311),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_cut_gives_the_changes_of_row_by_row(
        (kind, offset) in kinds(), rows in rows(), delay in 0i64..6, cut in 1usize..40,
        lateness in 0i64..12, ordered in any::<bool>(),
    ) {
        let (calls, describe) = if ordered {
            (ordered_calls(), describe_ordered as Describe)
        } else {
            (plain_calls(), describe_plain as Describe)
        };
        for mode in [EACH, EmitMode::OnWindowClose] {
            let naive = Naive { mode, lateness, describe, windows: BTreeMap::new(), changes: vec![] };
            let (expected, counts) = naive.run((kind, offset), &rows, delay, &[]);
            let node = node(assign(kind, offset * MS), vec![column(1)], calls.clone());
            let node = emitting(node, mode, lateness);
            let (given, given_counts) = run(operator(&node).as_mut(), &rows, delay, cut, &[]);
            prop_assert_eq!(&given, &expected);
            prop_assert_eq!(given_counts, counts);
        }
    }

    #[test]
    fn rounds_give_what_has_changed_in_between(
        (kind, offset) in kinds(), rows in rows(), delay in 0i64..6, cut in 1usize..40,
        lateness in 0i64..12, ticks in prop::collection::vec(1usize..60, 0..6),
    ) {
        let node = |emit| {
            let node = node(assign(kind, offset * MS), vec![column(1)], plain_calls());
            emitting(node, emit, lateness)
        };
        let naive = Naive {
            mode: EARLY, lateness, describe: describe_plain, windows: BTreeMap::new(), changes: vec![],
        };
        let (expected, _) = naive.run((kind, offset), &rows, delay, &ticks);
        let (given, _) = run(operator(&node(EARLY)).as_mut(), &rows, delay, cut, &ticks);
        prop_assert_eq!(&given, &expected);
    }

    /// Whatever comes before, in the end it is the same.
    #[test]
    fn the_folded_changelog_is_the_result(
        (kind, offset) in kinds(), rows in rows(), delay in 0i64..6, cut in 1usize..40,
        lateness in 0i64..12, ticks in prop::collection::vec(1usize..60, 0..6),
    ) {
        let node = |emit, lateness| {
            let node = node(assign(kind, offset * MS), vec![column(1)], plain_calls());
            emitting(node, emit, lateness)
        };
        let (mut finals, counts) = run_node(&node(EmitMode::OnWindowClose, 0), &rows, delay, cut);
        finals.sort();
        for emit in [EACH, EVERY, EARLY] {
            let (given, given_counts) = run(operator(&node(emit, 0)).as_mut(), &rows, delay, cut, &ticks);
            prop_assert_eq!(folded(&given), finals.clone());
            prop_assert_eq!(given_counts, counts);
        }
        let with_lateness = folded(&run(
            operator(&node(EACH, lateness)).as_mut(), &rows, delay, cut, &ticks,
        ).0);
        for emit in [EVERY, EARLY, EmitMode::OnWindowClose] {
            let (given, _) = run(operator(&node(emit, lateness)).as_mut(), &rows, delay, cut, &ticks);
            prop_assert_eq!(folded(&given), with_lateness.clone());
        }
    }

    #[test]
    fn the_last_round_of_complete_is_the_result(
        (kind, offset) in kinds(), rows in rows(), delay in 0i64..6, cut in 1usize..40,
        ticks in prop::collection::vec(1usize..60, 0..6),
    ) {
        let node = |emit| emitting(node(assign(kind, offset * MS), vec![column(1)], plain_calls()), emit, 0);
        let (finals, _) = run_node(&node(EmitMode::OnWindowClose), &rows, delay, cut);
        for emit in [COMPLETE, COMPLETE_EVERY] {
            let mut operator = operator(&node(emit));
            let running = running(&rows, delay);
            let (mut out, mut given, mut now) = (Output::default(), Vec::new(), 0);
            operator.open(now);
            for from in (0..rows.len()).step_by(cut) {
                let to = rows.len().min(from + cut);
                operator.process_batch(stream_batch(&rows[from..to], &running[from..to]), &mut out).unwrap();
                if ticks.iter().any(|tick| (from..to).contains(tick)) {
                    now += 1_000;
                    operator.process_timer(now, &mut out).unwrap();
                }
            }
            operator.process_watermark(Watermark::MAX, &mut out).unwrap();
            operator.finish(&mut out).unwrap();
            drain(&mut out, &mut given);
            // The whole result stands behind the last row that was deleted, in its order.
            let last = given.iter().rposition(|line| line.starts_with("-D")).map_or(0, |place| place + 1);
            let last: Vec<&str> = given[last..].iter().map(|line| &line[3..]).collect();
            prop_assert_eq!(last, finals.clone());
            let mut sorted = finals.clone();
            sorted.sort();
            prop_assert_eq!(folded(&given), sorted);
        }
    }
}
