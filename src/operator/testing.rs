//! What tests of operators share: rows of (time, key, value), batches, runs.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, StringArray, TimestampMillisecondArray, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit as ArrowUnit};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_physical_expr::expressions::Column;

use super::calc::take_rows;
use super::spread::{hash_keys, subtask_of};
use super::{Operator, Output, RowCounts, StateReader, StateWriter};
use crate::plan::{ExprRef, Operation, PlanNode, StreamProperties};
use crate::stream::{RowKind, RunningWatermark, StreamBatch, StreamElement, Watermark};

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

pub(super) fn stamp(ms: i64) -> String {
    let text = chrono::DateTime::from_timestamp_millis(ms).unwrap();
    let text = text.format("%Y-%m-%dT%H:%M:%S%.3f").to_string();
    text.strip_suffix(".000").map_or(text.clone(), str::to_owned)
}

/// What an operator of several subtasks is given: rows of its first or second input, which are spread by keys, and
/// watermarks.
#[derive(Clone)]
pub(super) enum Given {
    First(StreamBatch),
    Second(StreamBatch),
    Watermark(i64),
}

/// Runs a node on one subtask, hands its state to four, theirs to two, and ends the input: all rows that were given, sorted,
/// with their kinds. Each of the three gets its own part of the input, whose rows are spread by `keys`, those of each input.
///
/// Fails unless these are the rows that one operator gives, and all rows are counted.
pub(super) fn respread(
    node: &PlanNode,
    input: &SchemaRef,
    keys: [&[usize]; 2],
    parts: [Vec<Given>; 3],
) -> Vec<String> {
    let operators = |count: usize| -> Vec<_> {
        (0..count).map(|_| (super::plain(node, input).unwrap(), Output::default())).collect()
    };
    let mut whole = operators(1);
    let (mut expected, mut given) = (Vec::new(), Vec::new());
    let mut spread = operators(1);
    for (part, subtasks) in parts.into_iter().zip([1, 4, 2]) {
        if spread.len() != subtasks {
            let states = spread.iter_mut().map(|(operator, _)| {
                let mut state = StateWriter::default();
                operator.snapshot(&mut state).unwrap();
                state.finish()
            });
            let states: Vec<_> = states.collect();
            let held: u64 = spread.iter().map(|(_, out)| out.counts.held).sum();
            spread = operators(subtasks);
            for (subtask, (operator, out)) in spread.iter_mut().enumerate() {
                operator.open(0);
                let mut state = StateReader::spread(states.clone(), subtask, subtasks, 0);
                operator.restore(&mut state, &mut out.counts).unwrap();
            }
            assert_eq!(spread.iter().map(|(_, out)| out.counts.held).sum::<u64>(), held);
        }
        for one in part {
            feed(&mut whole, &one, keys, &mut expected);
            feed(&mut spread, &one, keys, &mut given);
        }
    }
    for (operators, into) in [(&mut whole, &mut expected), (&mut spread, &mut given)] {
        feed(operators, &Given::Watermark(i64::MAX), keys, into);
        for (operator, out) in operators.iter_mut() {
            operator.finish(out).unwrap();
            changes(out, into);
        }
        into.sort();
        assert_eq!(operators.iter().map(|(_, out)| out.counts.held).sum::<u64>(), 0);
    }
    assert_eq!(given, expected);
    given
}

fn feed(
    operators: &mut [(Box<dyn Operator>, Output)],
    one: &Given,
    keys: [&[usize]; 2],
    into: &mut Vec<String>,
) {
    let subtasks = operators.len();
    let own = |batch: &StreamBatch, keys: &[usize], subtask: usize| {
        let columns: Vec<ArrayRef> = keys.iter().map(|key| Arc::clone(batch.rows.column(*key))).collect();
        let mut hashes = Vec::new();
        hash_keys(&columns, batch.num_rows(), &mut hashes).unwrap();
        let rows = hashes.iter().enumerate().filter(|(_, hash)| subtask_of(**hash, subtasks) == subtask);
        take_rows(batch, &UInt32Array::from_iter_values(rows.map(|(row, _)| row as u32))).unwrap()
    };
    for (subtask, (operator, out)) in operators.iter_mut().enumerate() {
        match one {
            Given::First(batch) => operator.process_batch(own(batch, keys[0], subtask), out).unwrap(),
            Given::Second(batch) => operator.process_second(own(batch, keys[1], subtask), out).unwrap(),
            Given::Watermark(time) => operator.process_watermark(Watermark(*time), out).unwrap(),
        }
        changes(out, into);
    }
}

/// Takes the rows that were given, with their kinds.
fn changes(out: &mut Output, into: &mut Vec<String>) {
    for element in out.drain() {
        let StreamElement::Batch(batch) = element else { continue };
        let kind = |row: usize| batch.kinds.as_ref().map_or(RowKind::Insert, |kinds| kinds.values()[row]);
        let lines = lines(&batch.rows).into_iter().enumerate();
        into.extend(lines.map(|(row, line)| format!("{:?} {line}", kind(row))));
    }
}
