//! Rows of two inputs that are in the same window.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::UInt32Array;
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::SIDES;
use super::matching::{Matcher, Matching, beside, chosen};
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::late::{LateRows, Missed, Rejected};
use crate::operator::store::{hand_on, take_up};
use crate::operator::window::WindowAssigner;
use crate::operator::{BATCH_ROWS, Operator, Output, RowCounts, StateReader, StateSize, StateWriter};
use crate::plan::{JoinKind, WindowBounds, WindowJoinNode};
use crate::stream::{StreamBatch, Watermark, event_times};

/// Joins the rows of each window when it closes; without windows all rows at the end.
///
/// Wakes on: watermarks, the end. State: the rows of open windows; a window's are dropped together. Order: by
/// window; in it pairs as the rows of the first input came, then what has no pair. A row is late if
/// the running watermark had closed its window; late rows are nobody's partner and never padded.
///
/// Source: Flink's window join.
pub(in crate::operator) struct WindowJoin {
    kind: JoinKind,
    windows: Option<[WindowBounds; 2]>,
    keys: [Vec<usize>; 2],
    matcher: Matcher,
    assigner: WindowAssigner,
    inputs: [SchemaRef; 2],
    schema: SchemaRef,
    /// By end, then start.
    open: BTreeMap<(i64, i64), OpenWindow>,
    watermark: i64,
    /// Up to where windows are closed now.
    reached: Option<Reached>,
    closing: Option<Closing>,
    late: Option<[LateRows; 2]>,
}

/// How far the input has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reached {
    Watermark(Watermark),
    /// To its end: there may be rows behind the last watermark, of what gives rows at the end.
    End,
}

/// A window whose pairs are given piece by piece.
struct Closing {
    matching: Matching,
    arrived: Instant,
}

#[derive(Default)]
struct OpenWindow {
    rows: [Vec<RecordBatch>; 2],
    arrived: Option<Instant>,
}

/// The window of all rows where there are none.
const WITHOUT: (i64, i64) = (i64::MAX, 0);

impl OpenWindow {
    fn num_rows(&self) -> usize {
        self.rows.iter().flatten().map(RecordBatch::num_rows).sum()
    }
}

impl WindowJoin {
    pub(in crate::operator) fn try_new(
        node: &WindowJoinNode,
        schema: &SchemaRef,
        late: Option<[LateRows; 2]>,
    ) -> Result<Self, Error> {
        let (first, second) = node.pair.fields().split_at(node.first_width);
        Ok(Self {
            kind: node.kind,
            windows: node.windows,
            keys: node.keys.clone(),
            matcher: Matcher::try_new(&node.keys, node.null_is_equal, node.condition.as_ref(), &node.pair)?,
            assigner: WindowAssigner::attached(node.unit.us(), node.zone),
            inputs: [first, second].map(|fields| Arc::new(Schema::new(fields.to_vec()))),
            schema: Arc::clone(schema),
            open: BTreeMap::new(),
            watermark: i64::MIN,
            reached: None,
            closing: None,
            late,
        })
    }

    fn take(&mut self, input: usize, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("WindowJoin", "the input is no stream of inserts"));
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let Some(windows) = self.windows else {
            let rows = (0..batch.num_rows() as u32).collect();
            return self.keep(input, &batch, vec![(WITHOUT, rows)], out);
        };
        let WindowBounds { start, end } = windows[input];
        let (starts, no_start) = event_times(batch.rows.column(start))?;
        let (ends, no_end) = event_times(batch.rows.column(end))?;
        // The rows of each window; a batch has few, and rows of one mostly follow each other.
        let mut parts: Vec<((i64, i64), Vec<u32>)> = Vec::new();
        let mut rejected = Vec::new();
        for row in 0..batch.num_rows() {
            let running = batch.running.as_ref().map_or(i64::MIN, |running| running.values()[row]);
            let watermark = running.max(self.watermark);
            let is_null = |nulls: &Option<arrow::buffer::NullBuffer>| {
                nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
            };
            if is_null(&no_start) || is_null(&no_end) {
                out.counts.null_time += 1;
                rejected.push(Rejected::without_time(row, watermark));
                continue;
            }
            let close = self.assigner.close(ends[row]);
            if watermark >= close {
                out.counts.late += 1;
                let window = Some((starts[row], ends[row]));
                let late = Missed { window, by_us: self.assigner.past_end(watermark, close) };
                rejected.push(Rejected { row: row as u32, watermark, late: Some(late) });
                continue;
            }
            let window = (ends[row], starts[row]);
            let place = parts.iter().rposition(|(known, _)| *known == window);
            let place = place.unwrap_or_else(|| {
                parts.push((window, Vec::new()));
                parts.len() - 1
            });
            parts[place].1.push(row as u32);
        }
        if let Some(late) = &self.late {
            late[input].give(&batch, &rejected, out)?;
        }
        self.keep(input, &batch, parts, out)
    }

    /// Keeps the rows of each window.
    fn keep(
        &mut self,
        input: usize,
        batch: &StreamBatch,
        parts: Vec<((i64, i64), Vec<u32>)>,
        out: &mut Output,
    ) -> Result<(), Error> {
        for (window, rows) in parts {
            out.counts.held += rows.len() as u64;
            self.keep_in(window, input, &batch.rows, rows, batch.arrived)?;
        }
        Ok(())
    }

    /// Keeps rows of a batch in a window.
    fn keep_in(
        &mut self,
        window: (i64, i64),
        input: usize,
        batch: &RecordBatch,
        rows: Vec<u32>,
        arrived: Instant,
    ) -> Result<(), Error> {
        let rows = match rows.len() == batch.num_rows() {
            true => batch.clone(),
            false => {
                take_record_batch(batch, &UInt32Array::from(rows)).map_err(|error| arrow_failure(&error))?
            }
        };
        let open = self.open.entry(window).or_default();
        open.arrived = open.arrived.max(Some(arrived));
        open.rows[input].push(rows);
        Ok(())
    }

    /// The windows of rows that were in time, each with its rows in order.
    fn windows_of(&self, input: usize, rows: &RecordBatch) -> Result<BTreeMap<(i64, i64), Vec<u32>>, Error> {
        let all = 0..rows.num_rows() as u32;
        let mut windows: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        match self.windows {
            None if rows.num_rows() > 0 => {
                windows.insert(WITHOUT, all.collect());
            }
            None => {}
            Some(bounds) => {
                let WindowBounds { start, end } = bounds[input];
                let (starts, ends) = (event_times(rows.column(start))?.0, event_times(rows.column(end))?.0);
                for row in all {
                    let window = (ends[row as usize], starts[row as usize]);
                    windows.entry(window).or_default().push(row);
                }
            }
        }
        Ok(windows)
    }

    /// Whether a window is over.
    fn is_due(&self, (end, _): (i64, i64), reached: Reached) -> bool {
        match reached {
            Reached::Watermark(reached) => self.windows.is_some() && self.assigner.close(end) <= reached.0,
            Reached::End => true,
        }
    }

    /// Gives windows that are over, until there are some rows or pairs to look at, or all of them and then the watermark.
    fn close_some(&mut self, out: &mut Output) -> Result<(), Error> {
        let Some(reached) = self.reached else { return Ok(()) };
        let mut looked_at = 0;
        while looked_at < 4 * BATCH_ROWS {
            let Some(closing) = &mut self.closing else {
                match self.open.first_key_value().filter(|(window, _)| self.is_due(**window, reached)) {
                    Some(_) => {
                        let (_, window) = self.open.pop_first().unwrap_or_default();
                        self.closing = self.begin(&window)?;
                        continue;
                    }
                    None => {
                        self.reached = None;
                        if let Reached::Watermark(reached) = reached {
                            self.watermark = reached.0;
                            out.watermark(reached);
                        }
                        return Ok(());
                    }
                }
            };
            let pairs = self.matcher.next(&mut closing.matching)?;
            looked_at += pairs.as_ref().map_or(1, |pairs| pairs.looked_at);
            match pairs {
                Some(pairs) if self.kind.gives_pairs() && !pairs.first.is_empty() => {
                    let Matching { first, second, .. } = &closing.matching;
                    let (rows, others) = (UInt32Array::from(pairs.first), UInt32Array::from(pairs.second));
                    let rows = beside(first, &rows, second, &others, &self.schema)?;
                    out.batch(StreamBatch::inserts(rows, closing.arrived));
                }
                Some(_) => {}
                None => self.end_window(out)?,
            }
        }
        Ok(())
    }

    /// The rows of a window that is over; `None`: it has none.
    fn begin(&self, window: &OpenWindow) -> Result<Option<Closing>, Error> {
        let Some(arrived) = window.arrived else { return Ok(None) };
        let together = |input: usize| {
            concat_batches(&self.inputs[input], &window.rows[input]).map_err(|error| arrow_failure(&error))
        };
        Ok(Some(Closing { matching: self.matcher.begin(together(0)?, together(1)?)?, arrived }))
    }

    /// All pairs of a window were given: now what has none.
    fn end_window(&mut self, out: &mut Output) -> Result<(), Error> {
        let Some(Closing { matching, arrived }) = self.closing.take() else { return Ok(()) };
        self.count(&matching, out);
        let Matching { first, second, first_met, second_met, .. } = &matching;
        let those = |met: &[bool], wanted: bool| -> Vec<u32> {
            met.iter().enumerate().filter(|(_, met)| **met == wanted).map(|(row, _)| row as u32).collect()
        };
        let mut give = |rows: RecordBatch| out.batch(StreamBatch::inserts(rows, arrived));
        if !self.kind.gives_pairs() {
            for rows in those(first_met, self.kind == JoinKind::Semi).chunks(BATCH_ROWS) {
                give(chosen(first, &UInt32Array::from(rows.to_vec()), &self.schema)?);
            }
            return Ok(());
        }
        if self.kind.keeps_first() {
            for rows in those(first_met, false).chunks(BATCH_ROWS) {
                let (rows, none) = (UInt32Array::from(rows.to_vec()), UInt32Array::new_null(rows.len()));
                give(beside(first, &rows, second, &none, &self.schema)?);
            }
        }
        if self.kind.keeps_second() {
            for rows in those(second_met, false).chunks(BATCH_ROWS) {
                let (rows, none) = (UInt32Array::from(rows.to_vec()), UInt32Array::new_null(rows.len()));
                give(beside(first, &none, second, &rows, &self.schema)?);
            }
        }
        Ok(())
    }

    /// A row is used if it is in the result or decided what is: otherwise the join has removed it.
    fn count(&self, matching: &Matching, out: &mut Output) {
        let met = |met: &[bool]| met.iter().filter(|met| **met).count() as u64;
        let (first, second) = (matching.first_met.len() as u64, matching.second_met.len() as u64);
        let first_used = match self.kind {
            JoinKind::Left | JoinKind::Full => first,
            JoinKind::Inner | JoinKind::Right | JoinKind::Semi => met(&matching.first_met),
            JoinKind::Anti => first - met(&matching.first_met),
        };
        let second_used = if self.kind.keeps_second() { second } else { met(&matching.second_met) };
        let all = first + second;
        out.counts.held -= all;
        out.counts.used += first_used + second_used;
        out.counts.filtered += all - first_used - second_used;
    }
}

impl Operator for WindowJoin {
    fn name(&self) -> &'static str {
        "WindowJoin"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.take(0, batch, out)
    }

    fn process_second(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.take(1, batch, out)
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.reached = Some(Reached::Watermark(watermark));
        self.close_some(out)
    }

    fn finish(&mut self, out: &mut Output) -> Result<(), Error> {
        self.reached = Some(Reached::End);
        self.close_some(out)
    }

    fn is_at_work(&self) -> bool {
        self.reached.is_some()
    }

    fn go_on(&mut self, out: &mut Output) -> Result<(), Error> {
        self.close_some(out)
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("watermark", self.watermark);
        for (input, name) in SIDES.into_iter().enumerate() {
            // By window, in the order of arrival.
            let batches = self.open.values().flat_map(|window| &window.rows[input]);
            let rows = batches.clone().enumerate();
            let rows = rows.flat_map(|(batch, rows)| (0..rows.num_rows()).map(move |row| (batch, row)));
            let table = (&self.inputs[input], self.keys[input].as_slice());
            hand_on(state, name, table, batches, rows, Vec::new())?;
        }
        Ok(())
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        self.watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        counts.held = 0;
        let arrived = state.arrived();
        for (input, name) in SIDES.into_iter().enumerate() {
            let Some(taken_up) = take_up(state, name, &self.inputs[input])? else { continue };
            counts.held += taken_up.rows.num_rows() as u64;
            for (window, rows) in self.windows_of(input, &taken_up.rows)? {
                self.keep_in(window, input, &taken_up.rows, rows, arrived)?;
            }
        }
        Ok(())
    }

    fn state(&self) -> StateSize {
        let rows = self.open.values().map(OpenWindow::num_rows).sum();
        let batches = self.open.values().flat_map(|window| window.rows.iter().flatten());
        StateSize {
            windows: self.open.len(),
            rows,
            bytes: batches.map(RecordBatch::get_array_memory_size).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, TimestampMillisecondArray};
    use arrow::datatypes::{DataType, Field, TimeUnit as ArrowUnit};

    use super::*;
    use crate::operator::testing::{Step, drain, pieces, plan_node, respread};
    use crate::operator::{RowCounts, create};
    use crate::plan::{Operation, PlanNode};
    use crate::stream::{RunningWatermark, TimeUnit};

    /// Input, running watermark (ms), window's end (ms), key, value; windows are 10 ms long.
    type Row = (usize, i64, i64, Option<i64>, i64);

    fn side(nullable: bool) -> Vec<Field> {
        let bound = DataType::Timestamp(ArrowUnit::Millisecond, None);
        vec![
            Field::new("window_start", bound.clone(), nullable),
            Field::new("window_end", bound, nullable),
            Field::new("k", DataType::Int64, true),
            Field::new("v", DataType::Int64, nullable),
        ]
    }

    fn batch(rows: &[&Row]) -> StreamBatch {
        let times = |of: fn(&Row) -> i64| -> ArrayRef {
            Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| of(row))))
        };
        let columns: Vec<ArrayRef> = vec![
            times(|row| row.2 - 10),
            times(|row| row.2),
            Arc::new(rows.iter().map(|row| row.3).collect::<Int64Array>()),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.4))),
        ];
        let running = rows.iter().map(|row| row.1 * 1_000).collect::<Vec<_>>();
        StreamBatch {
            rows: RecordBatch::try_new(Arc::new(Schema::new(side(false))), columns).unwrap(),
            kinds: None,
            running: Some(RunningWatermark::new(running)),
            arrived: Instant::now(),
        }
    }

    fn node(kind: JoinKind, has_windows: bool) -> PlanNode {
        let fields = |nullable: bool| Arc::new(Schema::new([side(nullable), side(nullable)].concat()));
        let node = WindowJoinNode {
            kind,
            windows: has_windows.then_some([WindowBounds { start: 0, end: 1 }; 2]),
            unit: TimeUnit::Millisecond,
            zone: None,
            keys: [vec![2], vec![2]],
            null_is_equal: false,
            condition: None,
            pair: fields(false),
            first_width: 4,
        };
        let schema = if kind.gives_pairs() { fields(true) } else { Arc::new(Schema::new(side(false))) };
        plan_node(Operation::WindowJoin(Box::new(node)), schema)
    }

    /// The result as `v,v` lines; `second_first`: which input is read first between watermarks.
    fn run(kind: JoinKind, rows: &[Row], cut: usize, second_first: bool) -> (Vec<String>, RowCounts) {
        let mut join = create(&node(kind, true), &Arc::new(Schema::new(side(false)))).unwrap();
        let (mut out, mut given) = (Output::default(), Vec::new());
        let mut watermark = i64::MIN;
        for (number, group) in rows.chunks(cut).enumerate() {
            for input in if second_first { [1, 0] } else { [0, 1] } {
                let own: Vec<&Row> = group.iter().filter(|row| row.0 == input).collect();
                match input {
                    0 => join.process_batch(batch(&own), &mut out).unwrap(),
                    _ => join.process_second(batch(&own), &mut out).unwrap(),
                }
            }
            let next = rows.get((number + 1) * cut).map_or(i64::MAX, |row| row.1 * 1_000);
            if next > watermark {
                watermark = next;
                join.process_watermark(Watermark(next), &mut out).unwrap();
            }
            drain(&mut out, &mut given);
        }
        assert_eq!(join.state(), StateSize::default());
        (values(&given), out.counts)
    }

    fn values(lines: &[String]) -> Vec<String> {
        let value = |line: &String| {
            let cells: Vec<&str> = line.split(',').collect();
            cells.chunks(4).map(|side| side[3]).collect::<Vec<_>>().join(",")
        };
        lines.iter().map(value).collect()
    }

    /// In the first window key 1 has two pairs, 2 and 3 have none and NULL is equal to nothing. The
    /// rows 5 and 15 come when it has closed: at 9 ms, not sooner.
    const ROWS: [Row; 10] = [
        (0, 0, 10, Some(1), 1),
        (1, 0, 10, Some(1), 11),
        (0, 1, 10, Some(2), 2),
        (1, 2, 10, Some(3), 12),
        (1, 3, 10, None, 13),
        (0, 3, 10, None, 3),
        (1, 8, 10, Some(1), 14),
        (0, 9, 10, Some(3), 5),
        (1, 9, 10, Some(2), 15),
        (0, 9, 20, Some(1), 6),
    ];

    #[test]
    fn each_kind_gives_its_rows_whatever_the_cut_and_the_order_of_reading() {
        let cases: [(JoinKind, &[&str], u64); 6] = [
            (JoinKind::Inner, &["1,11", "1,14"], 3),
            (JoinKind::Left, &["1,11", "1,14", "2,NULL", "3,NULL", "6,NULL"], 6),
            (JoinKind::Right, &["1,11", "1,14", "NULL,12", "NULL,13"], 5),
            (JoinKind::Full, &["1,11", "1,14", "2,NULL", "3,NULL", "NULL,12", "NULL,13", "6,NULL"], 8),
            (JoinKind::Semi, &["1"], 3),
            (JoinKind::Anti, &["2", "3", "6"], 5),
        ];
        for (kind, expected, used) in cases {
            for cut in 1..=ROWS.len() {
                for second_first in [false, true] {
                    let (given, counts) = run(kind, &ROWS, cut, second_first);
                    assert_eq!(given, expected, "{kind:?}, batches of {cut}");
                    assert_eq!((counts.used, counts.late, counts.held), (used, 2, 0), "{kind:?}");
                }
            }
        }
    }

    #[test]
    fn other_numbers_of_subtasks_take_up_the_state() {
        // 30 windows of 10 ms, keys 0 to 6, a watermark behind each eight rows; none is late.
        let rows: Vec<Row> = (0..600)
            .map(|row| (row as usize % 2, row / 2 - 12, row / 20 * 10 + 10, Some(row * 5 % 7), row))
            .collect();
        let meets = |first: &&Row, second: &&Row, has_windows: bool| {
            first.3 == second.3 && (!has_windows || first.2 == second.2)
        };
        for has_windows in [true, false] {
            let mut parts = [Vec::new(), Vec::new(), Vec::new()];
            for (number, group) in rows.chunks(8).enumerate() {
                let part = &mut parts[number / 25];
                let own = |input: usize| group.iter().filter(|row| row.0 == input).collect::<Vec<_>>();
                part.push(Step::First(batch(&own(0))));
                part.push(Step::Second(batch(&own(1))));
                part.push(Step::Watermark(group[7].1 * 1_000));
            }
            let sides = [0, 1].map(|input| rows.iter().filter(move |row| row.0 == input).collect::<Vec<_>>());
            let mut expected = Vec::new();
            for first in &sides[0] {
                let partners = sides[1].iter().filter(|second| meets(first, second, has_windows));
                expected.extend(partners.map(|second| format!("{},{}", first.4, second.4)));
            }
            let input = Arc::new(Schema::new(side(false)));
            let given = respread(&node(JoinKind::Inner, has_windows), &input, [&[2], &[2]], &parts);
            let mut given = values(&given);
            given.sort();
            expected.sort();
            assert_eq!(given, expected);
        }
    }

    /// 300 rows of a key with 300 others: no more than some batches of pairs are there at once, the watermark comes last.
    #[test]
    fn many_pairs_come_piece_by_piece() {
        for (kind, has_windows, rows) in [
            (JoinKind::Inner, true, 90_000),
            (JoinKind::Inner, false, 90_000),
            (JoinKind::Full, true, 90_002),
            (JoinKind::Semi, true, 300),
            (JoinKind::Anti, false, 1),
        ] {
            let mut join = create(&node(kind, has_windows), &Arc::new(Schema::new(side(false)))).unwrap();
            let mut out = Output::default();
            let own = |input: usize| -> Vec<Row> {
                let alone = (input, 0, 10, Some(1 + input as i64), 0);
                (0..300).map(|v| (input, 0, 10, Some(0), v)).chain([alone]).collect()
            };
            join.process_batch(batch(&own(0).iter().collect::<Vec<_>>()), &mut out).unwrap();
            join.process_second(batch(&own(1).iter().collect::<Vec<_>>()), &mut out).unwrap();
            join.process_watermark(Watermark::MAX, &mut out).unwrap();
            let at_watermark = pieces(join.as_mut(), &mut out, 5 * BATCH_ROWS);
            join.finish(&mut out).unwrap();
            let at_end = pieces(join.as_mut(), &mut out, 5 * BATCH_ROWS);
            let (all, nothing) = ((90_000 / (4 * BATCH_ROWS) + 1, rows), (1, 0));
            let expected = if has_windows { (all, nothing) } else { (nothing, all) };
            assert_eq!((at_watermark, at_end), expected, "{kind:?}");
            assert_eq!(join.state(), StateSize::default());
            assert_eq!(out.counts.used + out.counts.filtered, 602);
        }
    }
}
