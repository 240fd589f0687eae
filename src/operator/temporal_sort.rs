//! Rows in event-time order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array};
use arrow::compute::{interleave_record_batch, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::evaluate::arrow_failure;
use super::late::{LateRows, Missed, Rejected};
use super::sort::{Ties, sort_indices};
use super::store::{hand_on, take_up};
use super::{BATCH_ROWS, Operator, Output, RowCounts, StateReader, StateSize, StateWriter};
use crate::error::Error;
use crate::plan::{SortKey, TemporalSortNode};
use crate::stream::{RunningWatermark, StreamBatch, TimeUnit, Watermark, event_times};

/// Gives rows in event-time order as the watermark passes them; equal times by the further keys,
/// then in arrival order.
///
/// Wakes on: watermarks. State: the rows that the watermark has not passed. A row is late if a row
/// at or after its time has gone out before it: no sooner, so a row behind the watermark that can
/// still take its place in the order does. It then goes out with the next advance of the
/// watermark. What has gone out is told from the running watermarks alone, not from when a
/// `Watermark` came, so batch cuts don't matter.
///
/// Source: Flink's sort by rowtime.
pub(super) struct TemporalSort {
    time: usize,
    unit: TimeUnit,
    rest: Vec<SortKey>,
    schema: SchemaRef,
    /// By time, then arrival.
    held: BTreeMap<(i64, u64), Held>,
    batches: HashMap<u64, Stored>,
    next_row: u64,
    next_batch: u64,
    /// Rows that went out by the running watermark of the last row: the greatest time of them.
    released: Option<i64>,
    /// The running watermark of the last row.
    running: i64,
    /// Accepted rows that have not gone out by the running watermark: times, lowest first.
    ahead: BTreeSet<i64>,
    arrived: Option<Instant>,
    /// The second output, if somebody wants it.
    late: Option<LateRows>,
}

struct Held {
    batch: u64,
    row: usize,
    /// It goes out with the first watermark ≥ this.
    from: i64,
    /// The running watermark of the row in the output.
    running: i64,
}

struct Stored {
    rows: RecordBatch,
    left: usize,
}

impl TemporalSort {
    pub(super) fn new(node: &TemporalSortNode, schema: &SchemaRef, late: Option<LateRows>) -> Self {
        Self {
            time: node.time,
            unit: node.unit,
            rest: node.rest.clone(),
            schema: Arc::clone(schema),
            held: BTreeMap::new(),
            batches: HashMap::new(),
            next_row: 0,
            next_batch: 0,
            released: None,
            running: i64::MIN,
            ahead: BTreeSet::new(),
            arrived: None,
            late,
        }
    }

    /// The running watermark has come to `running`: what it has passed counts as gone out.
    fn advance(&mut self, running: i64) {
        if running <= self.running {
            return;
        }
        self.running = running;
        while let Some(time) = self.ahead.first().copied().filter(|time| *time <= running) {
            self.ahead.pop_first();
            self.released = self.released.max(Some(time));
        }
    }

    fn release(&mut self, watermark: i64, out: &mut Output) -> Result<(), Error> {
        let mut due = Vec::new();
        let mut waiting = Vec::new();
        while let Some(first) = self.held.first_entry() {
            if first.key().0 > watermark && watermark != i64::MAX {
                break;
            }
            let (key, row) = first.remove_entry();
            if row.from <= watermark { due.push((key.0, row)) } else { waiting.push((key, row)) }
        }
        self.held.extend(waiting);
        let chunk_rows = if self.rest.is_empty() { BATCH_ROWS } else { due.len().max(1) };
        for chunk in due.chunks(chunk_rows) {
            self.give(chunk, out)?;
        }
        Ok(())
    }

    fn give(&mut self, due: &[(i64, Held)], out: &mut Output) -> Result<(), Error> {
        let mut slots: HashMap<u64, usize> = HashMap::new();
        let mut sources: Vec<RecordBatch> = Vec::new();
        let mut picks = Vec::with_capacity(due.len());
        for (_, row) in due {
            let stored = self
                .batches
                .get_mut(&row.batch)
                .ok_or_else(|| Error::internal("TemporalSort", "a held row without its batch"))?;
            let slot = *slots.entry(row.batch).or_insert_with(|| {
                sources.push(stored.rows.clone());
                sources.len() - 1
            });
            picks.push((slot, row.row));
            stored.left -= 1;
            if stored.left == 0 {
                self.batches.remove(&row.batch);
            }
        }
        let sources: Vec<&RecordBatch> = sources.iter().collect();
        let mut rows = interleave_record_batch(&sources, &picks).map_err(|error| arrow_failure(&error))?;
        if !self.rest.is_empty() {
            let times: ArrayRef = Arc::new(Int64Array::from_iter_values(due.iter().map(|(time, _)| *time)));
            let order = sort_indices(&self.rest, &rows, &[times], Ties::EarliestFirst, None)?;
            rows = take_record_batch(&rows, &order).map_err(|error| arrow_failure(&error))?;
        }
        let running: Vec<i64> = due.iter().map(|(_, row)| row.running).collect();
        let Some(arrived) = self.arrived else { return Ok(()) };
        out.counts.held -= due.len() as u64;
        out.counts.used += due.len() as u64;
        let batch = StreamBatch { rows, kinds: None, running: Some(RunningWatermark::new(running)), arrived };
        for start in (0..due.len()).step_by(BATCH_ROWS) {
            out.batch(batch.slice(start, BATCH_ROWS.min(due.len() - start)));
        }
        Ok(())
    }
}

impl Operator for TemporalSort {
    fn name(&self) -> &'static str {
        "TemporalSort"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("TemporalSort", "the input is no stream of inserts"));
        }
        let (times, nulls) = event_times(batch.rows.column(self.time))?;
        let mut kept = 0;
        let mut rejected = Vec::new();
        for (row, time) in times.iter().copied().enumerate() {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                out.counts.null_time += 1;
                if self.late.is_some() {
                    let before = batch.running.as_ref().map_or(i64::MIN, |running| running.values()[row]);
                    rejected.push(Rejected::without_time(row, before.max(self.running)));
                }
                continue;
            }
            if let Some(running) = &batch.running {
                self.advance(running.values()[row]);
            }
            if self.released.is_some_and(|released| time <= released) {
                out.counts.late += 1;
                if self.late.is_some() {
                    let late = Missed { window: None, by_us: self.running.saturating_sub(time) };
                    rejected.push(Rejected { row: row as u32, watermark: self.running, late: Some(late) });
                }
                continue;
            }
            let behind = time <= self.running;
            let held = Held {
                batch: self.next_batch,
                row,
                from: if behind { self.running.saturating_add(1) } else { time },
                running: if behind { self.running } else { time.saturating_sub(self.unit.us()) },
            };
            self.held.insert((time, self.next_row), held);
            self.ahead.insert(time);
            self.next_row += 1;
            kept += 1;
        }
        if let Some(late) = &self.late {
            late.give(&batch, &rejected, out)?;
        }
        if kept > 0 {
            self.arrived = self.arrived.max(Some(batch.arrived));
            self.batches.insert(self.next_batch, Stored { rows: batch.rows, left: kept });
            self.next_batch += 1;
            out.counts.held += kept as u64;
        }
        Ok(())
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.advance(watermark.0);
        self.release(watermark.0, out)?;
        out.watermark(watermark);
        Ok(())
    }

    fn next_watermark(&self) -> Option<i64> {
        self.held.first_key_value().map(|((time, _), _)| *time)
    }

    fn finish(&mut self, out: &mut Output) -> Result<(), Error> {
        self.release(i64::MAX, out)
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("running", self.running);
        state.optional("released", self.released);
        // In order; what is ahead is among them.
        let mut batches: Vec<(u64, &RecordBatch)> =
            self.batches.iter().map(|(batch, stored)| (*batch, &stored.rows)).collect();
        batches.sort_unstable_by_key(|(batch, _)| *batch);
        let numbers: HashMap<u64, usize> = batches.iter().map(|(batch, _)| *batch).zip(0..).collect();
        let rows = self.held.values().map(|held| (numbers[&held.batch], held.row));
        let from = Int64Array::from_iter_values(self.held.values().map(|held| held.from));
        let running = Int64Array::from_iter_values(self.held.values().map(|held| held.running));
        let more: Vec<ArrayRef> = vec![Arc::new(from), Arc::new(running)];
        let batches = batches.iter().map(|(_, rows)| *rows);
        hand_on(state, "rows", (&self.schema, &[]), batches, [].iter(), rows, more)
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        self.running = state.lowest("running").unwrap_or(i64::MIN);
        self.released = state.highest("released");
        counts.held = 0;
        let taken_up = take_up(state, "rows", &self.schema)?;
        let Some(taken_up) = taken_up.filter(|taken_up| taken_up.rows.num_rows() > 0) else {
            return Ok(());
        };
        let [from, running] = taken_up.numbers()?;
        let (times, _) = event_times(taken_up.rows.column(self.time))?;
        for (row, time) in times.iter().copied().enumerate() {
            let held = Held { batch: 0, row, from: from[row], running: running[row] };
            self.held.insert((time, row as u64), held);
            // The running watermark has not passed it.
            if from[row] > self.running {
                self.ahead.insert(time);
            }
        }
        let left = times.len();
        (self.next_row, self.next_batch) = (left as u64, 1);
        self.batches.insert(0, Stored { rows: taken_up.rows, left });
        self.arrived = Some(state.arrived());
        counts.held = left as u64;
        Ok(())
    }

    fn state(&self) -> StateSize {
        let bytes = self.batches.values().map(|stored| stored.rows.get_array_memory_size()).sum();
        StateSize { windows: 0, rows: self.held.len(), bytes }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::operator::create;
    use crate::operator::testing::{MS, Row, column, input, plan_node, run, running, stream_batch};
    use crate::plan::Operation;
    use crate::stream::StreamElement;

    fn sort(rest: Vec<SortKey>) -> Box<dyn Operator> {
        let node = TemporalSortNode { time: 0, unit: TimeUnit::Millisecond, rest };
        create(&plan_node(Operation::TemporalSort(node), input()), &input()).unwrap()
    }

    fn values(lines: &[String]) -> Vec<i64> {
        lines.iter().map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect()
    }

    fn rows(times: &[(i64, i64)]) -> Vec<Row> {
        times.iter().map(|(time, value)| (Some(*time), None, Some(*value))).collect()
    }

    /// conformance/sort_event_time, in ms.
    const FLINK: [(i64, i64); 11] = [
        (5_000, 1),
        (3_000, 2),
        (4_000, 3),
        (9_000, 4),
        (7_000, 5),
        (7_000, 6),
        (5_999, 7),
        (6_000, 8),
        (4_500, 10),
        (5_000, 11),
        (20_000, 9),
    ];

    #[test]
    fn a_row_is_late_when_its_place_has_gone_out() {
        for cut in 1..=FLINK.len() {
            let (given, counts) = run(sort(vec![]).as_mut(), &rows(&FLINK), 3_000, cut);
            assert_eq!(values(&given), [2, 3, 1, 7, 8, 5, 6, 4, 9], "batches of {cut}");
            assert_eq!((counts.used, counts.late, counts.held), (9, 2, 0));
        }
    }

    #[test]
    fn late_rows_and_rows_without_time_are_given() {
        let mut node = plan_node(
            Operation::TemporalSort(TemporalSortNode { time: 0, unit: TimeUnit::Millisecond, rest: vec![] }),
            input(),
        );
        let time = input().field(0).data_type().clone();
        let mut fields = vec![Arc::clone(&input().fields()[2])];
        fields.extend(crate::plan::late_fields(&time, &time)[..6].iter().cloned().map(Arc::new));
        node.late = Some(Arc::new(crate::plan::LateOutput {
            table: "side".into(),
            operator: "TemporalSort".into(),
            columns: vec![2],
            source: None,
            split: None,
            schema: Arc::new(arrow::datatypes::Schema::new(fields)),
            second: None,
        }));
        // At watermark 6 the rows up to 6 have gone out: 4.5 and 5 are late by 1.5 s and 1 s.
        let mut all = rows(&FLINK);
        all.insert(10, (None, None, Some(99)));
        let before = running(&all, 3_000);
        for cut in 1..=all.len() {
            let (mut sort, mut out) = (create(&node, &input()).unwrap(), Output::default());
            let mut given = Vec::new();
            for from in (0..all.len()).step_by(cut) {
                let to = all.len().min(from + cut);
                sort.process_batch(stream_batch(&all[from..to], &before[from..to]), &mut out).unwrap();
                for batch in out.drain_late() {
                    given.extend(crate::operator::testing::lines(&batch.rows));
                }
            }
            let watermark = crate::operator::testing::stamp(6_000);
            let line = |value: i64, reason: &str, by: &str| {
                format!("{value},{reason},TemporalSort,NULL,NULL,{watermark},{by}")
            };
            let expected = [
                line(10, "late", "1.500000000 secs"),
                line(11, "late", "1.000000000 secs"),
                line(99, "null_time", "NULL"),
            ];
            given.sort();
            assert_eq!(given, expected, "batches of {cut}");
        }
    }

    #[test]
    fn equal_times_go_by_the_further_keys_then_by_arrival() {
        let rest = || vec![SortKey { expr: column(2), descending: true, nulls_first: false }];
        let rows: Vec<Row> = vec![
            (Some(1), Some("a"), Some(1)),
            (Some(1), Some("b"), Some(2)),
            (Some(0), Some("c"), Some(0)),
            (Some(1), Some("d"), Some(2)),
            (None, Some("e"), Some(9)),
        ];
        for cut in [1, 2, 5] {
            let (given, counts) = run(sort(rest()).as_mut(), &rows, 5, cut);
            let keys: Vec<&str> = given.iter().map(|line| line.split(',').nth(1).unwrap()).collect();
            assert_eq!(keys, ["c", "b", "d", "a"]);
            assert_eq!((counts.used, counts.null_time), (4, 1));
        }
    }

    #[test]
    fn released_rows_carry_a_watermark_before_their_time() {
        let all = rows(&FLINK);
        let before = running(&all, 3_000);
        for cut in 1..=all.len() {
            let (mut sort, mut out) = (sort(vec![]), Output::default());
            let (mut given, mut last) = (Vec::new(), i64::MIN);
            for from in (0..all.len()).step_by(cut) {
                let to = all.len().min(from + cut);
                sort.process_batch(stream_batch(&all[from..to], &before[from..to]), &mut out).unwrap();
                if before[to] > last {
                    last = before[to];
                    sort.process_watermark(Watermark(last), &mut out).unwrap();
                }
            }
            sort.process_watermark(Watermark::MAX, &mut out).unwrap();
            assert_eq!(sort.state().rows, 0);
            for element in out.drain() {
                if let StreamElement::Batch(batch) = element {
                    given.extend(batch.running.unwrap().values().iter().map(|running| running / MS));
                }
            }
            // 5.999 and 6 came when the watermark was 6 already.
            assert_eq!(given, [2_999, 3_999, 4_999, 6_000, 6_000, 6_999, 6_999, 8_999, 19_999]);
        }
    }

    /// Row by row: what the watermark passes goes out before the next row is looked at.
    fn expected(rows: &[Row], delay: i64) -> (Vec<i64>, u64) {
        let (mut held, mut given) = (Vec::<(i64, i64)>::new(), Vec::new());
        let (mut watermark, mut released, mut late) = (i64::MIN, i64::MIN, 0);
        for ((time, _, value), running) in rows.iter().zip(running(rows, delay)) {
            let (time, value) = (time.unwrap() * MS, value.unwrap());
            if running > watermark {
                watermark = running;
                held.sort_by_key(|row| row.0);
                for (time, value) in held.extract_if(.., |row| row.0 <= running) {
                    released = time;
                    given.push(value);
                }
            }
            if time <= released { late += 1 } else { held.push((time, value)) }
        }
        held.sort_by_key(|row| row.0);
        given.extend(held.iter().map(|row| row.1));
        (given, late)
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 100,
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_306),
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_cut_gives_what_row_by_row_gives(
            jitter in prop::collection::vec(0i64..12, 0..50), delay in 0i64..8, cut in 1usize..30,
        ) {
            let times = jitter.iter().zip(0i64..).map(|(jitter, row)| (row / 2 - jitter, row));
            let rows = rows(&times.collect::<Vec<_>>());
            let (given, counts) = run(sort(vec![]).as_mut(), &rows, delay, cut);
            let (expected, late) = expected(&rows, delay);
            prop_assert_eq!(values(&given), expected);
            prop_assert_eq!(counts.late, late);
        }
    }
}
