//! Window aggregation: nodes and runs that its tests share.

mod edges;
mod functions;
mod late;
pub(super) mod live;
pub(super) mod property;
pub(super) mod state;
mod zones;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit as ArrowUnit};
use datafusion_expr::AggregateUDF;
use datafusion_functions_aggregate::array_agg::array_agg_udaf;
use datafusion_functions_aggregate::average::avg_udaf;
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_aggregate::first_last::first_value_udaf;
use datafusion_functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion_functions_aggregate::sum::sum_udaf;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, lit};

use crate::operator::testing::{Row, column, drain, input, plan_node, run, running, stream_batch};
use crate::operator::{Operator, Output, RowCounts, create};
use crate::plan::*;
use crate::stream::{StreamElement, TimeUnit, Watermark};

fn call_over(
    schema: &SchemaRef,
    function: Arc<AggregateUDF>,
    arg: ExprRef,
    name: &str,
) -> AggregateExprBuilder {
    AggregateExprBuilder::new(function, vec![arg]).schema(schema.clone()).alias(name)
}

pub(super) fn call(function: Arc<AggregateUDF>, name: &str) -> AggregateCall {
    let built = call_over(&input(), function, column(2), name).build().unwrap();
    AggregateCall { function: Arc::new(built), filter: None, order_sensitive: false, inexact: false }
}

pub(super) fn filtered(call: AggregateCall) -> AggregateCall {
    let condition = BinaryExpr::new(column(2), datafusion_expr::Operator::Gt, lit(2i64));
    AggregateCall { filter: Some(Arc::new(condition)), ..call }
}

fn average() -> AggregateCall {
    let float: ExprRef = Arc::new(CastExpr::new(column(2), DataType::Float64, None));
    let built = call_over(&input(), avg_udaf(), float, "a").build().unwrap();
    AggregateCall { function: Arc::new(built), filter: None, order_sensitive: false, inexact: false }
}

pub(super) fn distinct_count() -> AggregateCall {
    let built = call_over(&input(), count_udaf(), column(2), "d").distinct().build().unwrap();
    AggregateCall { function: Arc::new(built), filter: None, order_sensitive: false, inexact: false }
}

fn greatest_text() -> AggregateCall {
    let text: ExprRef = Arc::new(CastExpr::new(column(2), DataType::Utf8, None));
    let built = call_over(&input(), max_udaf(), text, "mt").build().unwrap();
    AggregateCall { function: Arc::new(built), filter: None, order_sensitive: false, inexact: false }
}

/// count, sum, min, max, avg, count distinct, count filtered, count distinct filtered, max as text.
pub(super) fn plain_calls() -> Vec<AggregateCall> {
    vec![
        call(count_udaf(), "c"),
        call(sum_udaf(), "s"),
        call(min_udaf(), "mi"),
        call(max_udaf(), "ma"),
        average(),
        distinct_count(),
        filtered(call(count_udaf(), "f")),
        filtered(distinct_count()),
        greatest_text(),
    ]
}

/// Aggregates whose value tells the order in which rows were added.
pub(super) fn inexact_calls() -> Vec<AggregateCall> {
    let float: ExprRef = Arc::new(CastExpr::new(column(2), DataType::Float64, None));
    let tenth: ExprRef = Arc::new(BinaryExpr::new(float, datafusion_expr::Operator::Multiply, lit(0.1)));
    let over = |function, name| {
        let built = call_over(&input(), function, Arc::clone(&tenth), name).build().unwrap();
        AggregateCall { function: Arc::new(built), filter: None, order_sensitive: false, inexact: true }
    };
    vec![over(sum_udaf(), "s"), over(avg_udaf(), "a"), over(max_udaf(), "m")]
}

pub(super) fn ordered_calls() -> Vec<AggregateCall> {
    let mut calls = vec![call(first_value_udaf(), "fi"), call(array_agg_udaf(), "aa")];
    calls.iter_mut().for_each(|call| call.order_sensitive = true);
    calls
}

pub(super) fn assign(kind: WindowKind, offset_us: i64) -> WindowSource {
    let window = WindowSpec { kind, offset_us, zone: None, unit: TimeUnit::Millisecond };
    WindowSource::Assign { time: 0, window }
}

pub(super) fn node(
    window: WindowSource,
    keys: Vec<ExprRef>,
    aggregates: Vec<AggregateCall>,
) -> WindowAggregateNode {
    WindowAggregateNode {
        window,
        keys,
        grouping_sets: None,
        aggregates,
        allowed_lateness_us: 0,
        emit: EmitMode::OnWindowClose,
        phase: AggregatePhase::Single,
    }
}

pub(super) fn output(node: &WindowAggregateNode, input: &SchemaRef) -> SchemaRef {
    let mut fields = Vec::new();
    let is_global = matches!(&node.window,
        WindowSource::Assign { window, .. } if window.kind == WindowKind::Global);
    if !is_global {
        for name in ["window_start", "window_end"] {
            fields.push(Field::new(name, DataType::Timestamp(ArrowUnit::Millisecond, None), false));
        }
        let time = match &node.window {
            WindowSource::Assign { time, .. } | WindowSource::Session { time, .. } => {
                input.field(*time).data_type().clone()
            }
            WindowSource::Attached { .. } => DataType::Timestamp(ArrowUnit::Millisecond, None),
        };
        fields.push(Field::new("window_time", time, false));
    }
    for (index, key) in node.keys.iter().enumerate() {
        fields.push(Field::new(format!("k{index}"), key.data_type(input).unwrap(), true));
    }
    if let Some(sets) = &node.grouping_sets {
        fields.push(Field::new("__grouping_id", grouping_id_type(node.keys.len(), sets), false));
    }
    for call in &node.aggregates {
        fields.push(call.function.field().as_ref().clone().with_nullable(true));
    }
    Arc::new(Schema::new(fields))
}

fn operator(node: &WindowAggregateNode) -> Box<dyn Operator> {
    let schema = output(node, &input());
    create(&plan_node(Operation::WindowAggregate(Box::new(node.clone())), schema), &input()).unwrap()
}

pub(super) fn run_node(
    node: &WindowAggregateNode,
    rows: &[Row],
    delay: i64,
    cut: usize,
) -> (Vec<String>, RowCounts) {
    run(operator(node).as_mut(), rows, delay, cut)
}

/// Runs `locals` local phases, each on its share of the rows, and a final one.
fn run_two_phase(
    node: &WindowAggregateNode,
    rows: &[Row],
    delay: i64,
    cut: usize,
    locals: usize,
) -> (Vec<String>, RowCounts) {
    let local = WindowAggregateNode { phase: AggregatePhase::Local, ..node.clone() };
    let schema = local_schema(&local, &input()).unwrap();
    let local = plan_node(Operation::WindowAggregate(Box::new(local)), schema.clone());
    let mut locals: Vec<_> =
        (0..locals).map(|_| (create(&local, &input()).unwrap(), Output::default())).collect();
    let last = WindowAggregateNode { phase: AggregatePhase::Final, ..node.clone() };
    let last = plan_node(Operation::WindowAggregate(Box::new(last)), output(node, &input()));
    let mut last = create(&last, &schema).unwrap();
    let (mut out, mut given) = (Output::default(), Vec::new());

    let running = running(rows, delay);
    let mut watermark = i64::MIN;
    for from in (0..rows.len()).step_by(cut) {
        let to = rows.len().min(from + cut);
        let count = locals.len();
        for (index, (local, local_out)) in locals.iter_mut().enumerate() {
            let mine: Vec<usize> = (from..to).filter(|row| row % count == index).collect();
            let own: Vec<Row> = mine.iter().map(|row| rows[*row]).collect();
            let own_running: Vec<i64> = mine.iter().map(|row| running[*row]).collect();
            local.process_batch(stream_batch(&own, &own_running), local_out).unwrap();
            for element in local_out.drain() {
                if let StreamElement::Batch(batch) = element {
                    last.process_batch(batch, &mut out).unwrap();
                }
            }
        }
        if running[to] > watermark {
            watermark = running[to];
            for (local, local_out) in &mut locals {
                local.process_watermark(Watermark(watermark), local_out).unwrap();
                local_out.drain();
            }
            last.process_watermark(Watermark(watermark), &mut out).unwrap();
        }
        drain(&mut out, &mut given);
    }
    last.process_watermark(Watermark::MAX, &mut out).unwrap();
    last.finish(&mut out).unwrap();
    drain(&mut out, &mut given);
    let mut counts = RowCounts::default();
    for (_, local_out) in &locals {
        counts.used += local_out.counts.used;
        counts.late += local_out.counts.late;
        counts.null_time += local_out.counts.null_time;
        counts.partly_late += local_out.counts.partly_late;
    }
    (given, counts)
}
