//! What tests of operators share: rows of (time, key, value), batches, runs.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, StringArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit as ArrowUnit};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_physical_expr::expressions::Column;

use super::{Operator, Output, RowCounts};
use crate::plan::{ExprRef, Operation, PlanNode, StreamProperties};
use crate::stream::{RunningWatermark, StreamBatch, StreamElement, Watermark};

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
