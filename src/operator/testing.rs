//! What tests of operators share: rows of (time, key, value), batches, runs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, StringArray, TimestampMillisecondArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit as ArrowUnit};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_physical_expr::expressions::Column;

use super::spread::{hash_keys, subtask_of};
use super::{Operator, OperatorState, Output, RowCounts, StateReader, StateWriter, create};
use crate::plan::{ExprRef, Operation, PlanNode, StreamProperties};
use crate::stream::{RowKind, RowKinds, RunningWatermark, StreamBatch, StreamElement, Watermark};

pub(super) const MS: i64 = 1_000;

/// A row: time in ms, key, value.
pub(super) type Row = (Option<i64>, Option<&'static str>, Option<i64>);

pub(super) fn input() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Timestamp(ArrowUnit::Millisecond, None), true),
        Field::new("k", DataType::Utf8, true),
        Field::new("v", DataType::Int64, true),
    ]))
}

pub(super) fn column(index: usize) -> ExprRef {
    Arc::new(Column::new(input().field(index).name(), index))
}

pub(super) fn plan_node(operation: Operation, schema: SchemaRef) -> PlanNode {
    let properties = StreamProperties {
        bounded: true,
        updating: false,
        watermark: true,
        time_attributes: vec![],
        key: None,
    };
    PlanNode { operation, inputs: vec![0], schema, properties, late: None }
}

/// For each row the watermark before it, ms, and the one after the last: the greatest time so far
/// minus `delay`.
pub(super) fn running(rows: &[Row], delay: i64) -> Vec<i64> {
    let mut watermark = i64::MIN;
    let mut all = vec![watermark];
    for (time, ..) in rows {
        if let Some(time) = time {
            watermark = watermark.max((time - delay) * MS);
        }
        all.push(watermark);
    }
    all
}

pub(super) fn record_batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from(rows.iter().map(|row| row.0).collect::<Vec<_>>())),
        Arc::new(StringArray::from(rows.iter().map(|row| row.1).collect::<Vec<_>>())),
        Arc::new(Int64Array::from(rows.iter().map(|row| row.2).collect::<Vec<_>>())),
    ];
    RecordBatch::try_new(input(), columns).unwrap()
}

pub(super) fn stream_batch(rows: &[Row], running: &[i64]) -> StreamBatch {
    StreamBatch {
        rows: record_batch(rows),
        kinds: None,
        running: Some(RunningWatermark::new(running.to_vec())),
        arrived: Instant::now(),
    }
}

pub(super) fn lines(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("NULL");
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
        .collect();
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join(","))
        .collect()
}

/// Takes the rows that were given; checks that each comes before the watermark that closes it.
pub(super) fn drain(out: &mut Output, into: &mut Vec<String>) {
    for element in out.drain() {
        if let StreamElement::Batch(batch) = element {
            into.extend(lines(&batch.rows));
        }
    }
}

/// Runs rows cut in batches of `cut`, with a watermark after each batch.
pub(super) fn run(
    operator: &mut dyn Operator,
    rows: &[Row],
    delay: i64,
    cut: usize,
) -> (Vec<String>, RowCounts) {
    let running = running(rows, delay);
    let (mut out, mut given, mut last) = (Output::default(), Vec::new(), i64::MIN);
    for from in (0..rows.len()).step_by(cut) {
        let to = rows.len().min(from + cut);
        operator.process_batch(stream_batch(&rows[from..to], &running[from..to]), &mut out).unwrap();
        if running[to] > last {
            last = running[to];
            operator.process_watermark(Watermark(last), &mut out).unwrap();
        }
        drain(&mut out, &mut given);
    }
    operator.process_watermark(Watermark::MAX, &mut out).unwrap();
    operator.finish(&mut out).unwrap();
    drain(&mut out, &mut given);
    (given, out.counts)
}

/// Takes all that an operator gives for its last call, of which no piece has more rows than that: how many pieces there are,
/// and rows. Watermarks come behind all of them.
pub(super) fn pieces(operator: &mut dyn Operator, out: &mut Output, most: usize) -> (usize, u64) {
    let (mut pieces, mut rows) = (0, 0);
    loop {
        assert!(out.rows() <= most as u64, "{} rows in a piece", out.rows());
        (pieces, rows) = (pieces + 1, rows + out.rows());
        let has_watermark = out.drain().any(|element| matches!(element, StreamElement::Watermark(_)));
        if !operator.is_at_work() {
            return (pieces, rows);
        }
        assert!(!has_watermark, "a watermark before the rows that it releases");
        operator.go_on(out).unwrap();
    }
}

/// What happens to an operator.
pub(super) enum Step {
    First(StreamBatch),
    Second(StreamBatch),
    Watermark(i64),
    Timer(i64),
}

/// Runs three parts of a stream on one operator and once more on 1, 4 and 2, which take up each other's state: the rows
/// and counts are the same. `keys`: by which the inputs are spread. Gives the rows, sorted.
pub(super) fn respread(
    node: &PlanNode,
    input: &SchemaRef,
    keys: [&[usize]; 2],
    parts: &[Vec<Step>; 3],
) -> Vec<String> {
    let uninterrupted = run_spread(node, input, keys, parts, [1, 1, 1]);
    assert_eq!(run_spread(node, input, keys, parts, [1, 4, 2]), uninterrupted);
    uninterrupted.0
}

fn run_spread(
    node: &PlanNode,
    input: &SchemaRef,
    keys: [&[usize]; 2],
    parts: &[Vec<Step>; 3],
    subtasks: [usize; 3],
) -> (Vec<String>, RowCounts) {
    let (mut given, mut counts) = (Vec::new(), RowCounts::default());
    let mut operators: Vec<(Box<dyn Operator>, Output)> = Vec::new();
    let mut add = |out: &Output, held: u64| {
        counts.used += out.counts.used;
        counts.late += out.counts.late;
        counts.null_time += out.counts.null_time;
        counts.future += out.counts.future;
        counts.filtered += out.counts.filtered;
        counts.partly_late += out.counts.partly_late;
        counts.held += held;
    };
    for (part, subtasks) in parts.iter().zip(subtasks) {
        if operators.len() != subtasks {
            let states = operators.iter_mut().map(|(operator, out)| {
                add(out, 0);
                let mut state = StateWriter::default();
                operator.snapshot(&mut state).unwrap();
                state.finish()
            });
            let states: Vec<OperatorState> = states.collect();
            let again = |subtask| {
                let (mut operator, mut out) = (create(node, input).unwrap(), Output::default());
                operator.open(0);
                if !states.is_empty() {
                    let mut state = StateReader::spread(states.clone(), subtask, subtasks, 0);
                    operator.restore(&mut state, &mut out.counts).unwrap();
                }
                (operator, out)
            };
            operators = (0..subtasks).map(again).collect();
        }
        for step in part {
            for (subtask, (operator, out)) in operators.iter_mut().enumerate() {
                let own = |batch: &StreamBatch, keys: &[usize]| own_rows(batch, keys, subtask, subtasks);
                match step {
                    Step::First(batch) => operator.process_batch(own(batch, keys[0]), out),
                    Step::Second(batch) => operator.process_second(own(batch, keys[1]), out),
                    Step::Watermark(time) => operator.process_watermark(Watermark(*time), out),
                    Step::Timer(now_us) => match operator.next_timer() {
                        Some(due) if due <= *now_us => operator.process_timer(*now_us, out),
                        _ => Ok(()),
                    },
                }
                .unwrap();
                drain_changes(out, &mut given);
            }
        }
    }
    for (operator, out) in &mut operators {
        operator.process_watermark(Watermark::MAX, out).unwrap();
        operator.finish(out).unwrap();
        drain_changes(out, &mut given);
        add(out, out.counts.held);
    }
    given.sort();
    (given, counts)
}

/// The rows of a batch that go to a subtask.
fn own_rows(batch: &StreamBatch, keys: &[usize], subtask: usize, subtasks: usize) -> StreamBatch {
    let columns: Vec<ArrayRef> = keys.iter().map(|key| batch.rows.column(*key).clone()).collect();
    let mut hashes = Vec::new();
    hash_keys(&columns, batch.num_rows(), &mut hashes).unwrap();
    let own = |row: &usize| subtask_of(hashes[*row], subtasks) == subtask;
    let own: Vec<usize> = (0..batch.num_rows()).filter(own).collect();
    let places = UInt32Array::from_iter_values(own.iter().map(|row| *row as u32));
    let kinds = batch.kinds.as_ref().map(|kinds| kinds.values());
    let running = batch.running.as_ref().map(|running| running.values());
    StreamBatch {
        rows: take_record_batch(&batch.rows, &places).unwrap(),
        kinds: kinds.map(|kinds| RowKinds::new(own.iter().map(|row| kinds[*row]).collect::<Vec<_>>())),
        running: running
            .map(|running| RunningWatermark::new(own.iter().map(|row| running[*row]).collect::<Vec<_>>())),
        arrived: batch.arrived,
    }
}

/// Takes the rows that were given, each behind the symbol of its kind.
pub(super) fn drain_changes(out: &mut Output, into: &mut Vec<String>) {
    for element in out.drain() {
        let StreamElement::Batch(batch) = element else { continue };
        let kind = |row: usize| batch.kinds.as_ref().map_or(RowKind::Insert, |kinds| kinds.values()[row]);
        let lines = lines(&batch.rows).into_iter().enumerate();
        into.extend(lines.map(|(row, line)| format!("{} {line}", kind(row).symbol())));
    }
}

pub(super) fn stamp(ms: i64) -> String {
    let text = chrono::DateTime::from_timestamp_millis(ms).unwrap();
    let text = text.format("%Y-%m-%dT%H:%M:%S%.3f").to_string();
    text.strip_suffix(".000").map_or(text.clone(), str::to_owned)
}

/// Rows of two inputs, of some keys, that come nearly in the order of their times, with their own number as value.
pub(super) fn some_rows(count: u64) -> Vec<(usize, Row)> {
    const KEYS: [Option<&str>; 8] =
        [Some("a"), Some("b"), Some("c"), Some("d"), Some("e"), Some("f"), Some("g"), None];
    let row = |row: u64| {
        let noise = (row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let time = (row / 2) as i64 - (noise >> 8 & 7) as i64;
        ((noise & 1) as usize, (Some(time), KEYS[(noise >> 1 & 7) as usize], Some(row as i64)))
    };
    (0..count).map(row).collect()
}

/// Rows in three parts, in batches of up to `cut` rows of an input, now and then a watermark behind them: `delay` ms behind the
/// greatest time.
pub(super) fn three_parts(rows: &[(usize, Row)], delay: i64, cut: usize) -> [Vec<Step>; 3] {
    let before = running(&rows.iter().map(|row| row.1).collect::<Vec<_>>(), delay);
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    let (mut from, mut last) = (0, i64::MIN);
    while from < rows.len() {
        let same = rows[from..].iter().take(cut).take_while(|row| row.0 == rows[from].0).count();
        let to = from + same;
        let batch =
            stream_batch(&rows[from..to].iter().map(|row| row.1).collect::<Vec<_>>(), &before[from..to]);
        let part = &mut parts[from * 3 / rows.len()];
        part.push(if rows[from].0 == 0 { Step::First(batch) } else { Step::Second(batch) });
        if before[to] > last && to % 3 == 0 {
            last = before[to];
            part.push(Step::Watermark(last));
        }
        from = to;
    }
    parts
}

/// Of rows that only come, those of some batches before go again.
pub(super) fn with_deletes(parts: &mut [Vec<Step>; 3]) {
    let mut before = VecDeque::new();
    for part in parts {
        for one in std::mem::take(part) {
            let (Step::First(batch) | Step::Second(batch)) = &one else {
                part.push(one);
                continue;
            };
            let mut gone = batch.slice(0, batch.num_rows().min(3));
            gone.kinds = Some(RowKinds::new(vec![RowKind::Delete; gone.num_rows()]));
            before.push_back(if matches!(one, Step::First(_)) {
                Step::First(gone)
            } else {
                Step::Second(gone)
            });
            part.push(one);
            if before.len() > 8 {
                part.extend(before.pop_front());
            }
        }
    }
}
