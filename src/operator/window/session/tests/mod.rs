//! Sessions: what their tests share.

mod edges;
mod live;
mod property;
mod state;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit as ArrowUnit};

use super::super::tests::{node, output};
use crate::operator::testing::{MS, Row, drain, input, plan_node, running, stream_batch};
use crate::operator::{Operator, Output, RowCounts, create};
use crate::plan::{
    AggregateCall, ExprRef, Operation, WindowAggregateNode, WindowKind, WindowRowsNode, WindowSource,
    WindowSpec,
};
use crate::stream::{TimeUnit, Watermark};

/// Sessions of `gap` ms.
fn spec(gap: i64) -> WindowSpec {
    let kind = WindowKind::Session { gap_us: gap * MS };
    WindowSpec { kind, offset_us: 0, zone: None, unit: TimeUnit::Millisecond }
}

fn sessions(
    gap: i64,
    partition: Vec<usize>,
    keys: Vec<ExprRef>,
    calls: Vec<AggregateCall>,
) -> WindowAggregateNode {
    node(WindowSource::Session { time: 0, window: spec(gap), partition }, keys, calls)
}

/// The input's columns, then those of the window.
fn with_bounds() -> SchemaRef {
    let mut fields: Vec<Field> = input().fields().iter().map(|field| field.as_ref().clone()).collect();
    for name in ["window_start", "window_end", "window_time"] {
        fields.push(Field::new(name, DataType::Timestamp(ArrowUnit::Millisecond, None), false));
    }
    Arc::new(Schema::new(fields))
}

/// The operator that gives rows with their session.
fn session_rows(gap: i64, partition: Vec<usize>) -> Box<dyn Operator> {
    let node = WindowRowsNode { time: 0, window: spec(gap), partition };
    create(&plan_node(Operation::WindowRows(node), with_bounds()), &input()).unwrap()
}

fn aggregate(node: &WindowAggregateNode) -> Box<dyn Operator> {
    let schema = output(node, &input());
    create(&plan_node(Operation::WindowAggregate(Box::new(node.clone())), schema), &input()).unwrap()
}

/// Runs rows cut into batches of these lengths, over and over, with a watermark after each batch.
fn run_cut(
    operator: &mut dyn Operator,
    rows: &[Row],
    delay: i64,
    cuts: &[usize],
) -> (Vec<String>, RowCounts) {
    let running = running(rows, delay);
    let (mut out, mut given, mut last) = (Output::default(), Vec::new(), i64::MIN);
    let (mut from, mut cuts) = (0, cuts.iter().cycle());
    while from < rows.len() {
        let to = rows.len().min(from + cuts.next().unwrap());
        operator.process_batch(stream_batch(&rows[from..to], &running[from..to]), &mut out).unwrap();
        if running[to] > last {
            last = running[to];
            operator.process_watermark(Watermark(last), &mut out).unwrap();
        }
        drain(&mut out, &mut given);
        from = to;
    }
    operator.process_watermark(Watermark::MAX, &mut out).unwrap();
    operator.finish(&mut out).unwrap();
    drain(&mut out, &mut given);
    (given, out.counts)
}
