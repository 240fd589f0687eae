//! Event time that is lost, too late, or on the wrong clock; results that nobody can take early.

use arrow::datatypes::{DataType, Schema};
use datafusion_common::DFSchema;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::{Expr, ExprSchemable};
use datafusion_physical_expr::ScalarFunctionExpr;
use datafusion_physical_expr::expressions::{CastExpr, Column};

use super::{Lint, Query};
use crate::catalog::ColumnKind;
use crate::error::{Span, code};
use crate::plan::places::Places;
use crate::plan::window_text::duration;
use crate::plan::{
    ExprRef, NodeId, Operation, SinkNode, SinkTarget, SourceNode, StreamPlan, WindowKind, WindowSource,
    WindowSpec,
};

/// Looks at the query that ends in `sink`. `lost`: how a column of a node lost event time, if it had it;
/// `changes`: the clause that makes results change, with its place.
pub(in crate::plan) fn of_time(
    plan: &StreamPlan,
    sink: NodeId,
    places: &Places,
    lost: &dyn Fn(NodeId, usize) -> Option<String>,
    changes: Option<(&str, Option<Span>)>,
) -> Vec<Lint> {
    let query = Query::of(plan, sink, places);
    let mut lints = Vec::new();
    lints.extend(lost_by_grouping(&query, lost).or_else(|| lost_in_result(&query, sink, lost)));
    lints.extend(long_delays(&query));
    for (_, source) in query.sources() {
        lints.extend(wall_clock_column(&query, source).or_else(|| compared_with_clock(&query, source)));
    }
    lints.extend(meant_as_instant(&query));
    lints.extend(untaken_changes(&query, sink, changes));
    lints
}

/// No column of a query's result is a time attribute any more, and one of them was.
fn lost_in_result(
    query: &Query<'_>,
    sink: NodeId,
    lost: &dyn Fn(NodeId, usize) -> Option<String>,
) -> Option<Lint> {
    let node = &query.plan.nodes[sink];
    let Operation::Sink(SinkNode { target: SinkTarget::Result, .. }) = &node.operation else { return None };
    if !node.properties.time_attributes.is_empty() {
        return None;
    }
    let fields = node.schema.fields().iter().enumerate();
    let mut times = fields.filter(|(_, field)| matches!(field.data_type(), DataType::Timestamp(..)));
    let (name, how) = times.find_map(|(index, field)| Some((field.name(), lost(sink, index)?)))?;
    Some(Lint::new(
        code::LINT_LOST_TIME,
        format!("\"{name}\" of the result is no time attribute any more: {how}"),
        query.places.of_item(name),
        "Select the time column as it comes from the table, too: no window over this result could close."
            .to_owned(),
    ))
}

/// Rows are grouped by something made of their event time, and not by a window.
fn lost_by_grouping(query: &Query<'_>, lost: &dyn Fn(NodeId, usize) -> Option<String>) -> Option<Lint> {
    let grouped = query.nodes.iter().find_map(|id| {
        let node = &query.plan.nodes[*id];
        let Operation::WindowAggregate(aggregate) = &node.operation else { return None };
        let is_global = matches!(
            &aggregate.window,
            WindowSource::Assign { window: WindowSpec { kind: WindowKind::Global, .. }, .. }
        );
        let time = |index: usize| {
            let field = node.schema.field(index);
            let is_time = matches!(field.data_type(), DataType::Timestamp(..) | DataType::Date32);
            lost(*id, index).filter(|_| is_time).map(|_| field.name().clone())
        };
        (0..aggregate.keys.len()).filter(|_| is_global).find_map(time)
    })?;
    Some(Lint::new(
        code::LINT_LOST_TIME,
        format!("event time is lost in GROUP BY {grouped}: all groups are kept to the end of the input"),
        query.places.aggregate,
        "Group by window_start and window_end of TUMBLE, whose results come as event time passes.".to_owned(),
    ))
}

/// A watermark is further behind its rows than a window is long.
fn long_delays(query: &Query<'_>) -> Vec<Lint> {
    let mut lints = Vec::new();
    for id in &query.nodes {
        let (name, length_us) = match &query.plan.nodes[*id].operation {
            Operation::WindowAggregate(aggregate) => match &aggregate.window {
                WindowSource::Assign { window, .. } | WindowSource::Session { window, .. } => length(window),
                WindowSource::Attached { .. } => continue,
            },
            Operation::WindowRows(rows) => length(&rows.window),
            _ => continue,
        };
        let Some(length_us) = length_us else { continue };
        for (source, delay_us) in delays_below(query.plan, *id) {
            if delay_us <= length_us {
                continue;
            }
            let (table, what) = (&source.table.name, if name == "SESSION" { "gap" } else { "window" });
            lints.push(Lint::new(
                code::LINT_LONG_DELAY,
                format!(
                    "the watermark of \"{table}\" is {} behind its rows, longer than the {what} of {}",
                    duration(delay_us),
                    duration(length_us)
                ),
                query.places.of_name(name).or_else(|| query.place_of(source)),
                format!(
                    "Shorten the delay of WATERMARK FOR {}: each result waits for it. EXPLAIN LATENESS tells what \
                     it must be, LATE ROWS INTO keeps what is later.",
                    source.table.watermark.as_ref().map_or("", |spec| spec.column.as_str())
                ),
            ));
        }
    }
    lints
}

/// The name of a window function and how long its shortest window or gap is.
fn length(window: &WindowSpec) -> (&'static str, Option<i64>) {
    match window.kind {
        WindowKind::Tumble { size_us } => ("TUMBLE", Some(size_us)),
        WindowKind::Hop { size_us, .. } => ("HOP", Some(size_us)),
        WindowKind::Cumulate { step_us, .. } => ("CUMULATE", Some(step_us)),
        WindowKind::Session { gap_us } => ("SESSION", Some(gap_us)),
        WindowKind::Global => ("", None),
    }
}

/// The tables below a node whose watermark is a constant time behind their rows.
fn delays_below(plan: &StreamPlan, node: NodeId) -> Vec<(&SourceNode, i64)> {
    let (mut found, mut open) = (Vec::new(), plan.nodes[node].inputs.clone());
    while let Some(node) = open.pop() {
        let node = &plan.nodes[node];
        open.extend(&node.inputs);
        let Operation::Source(source) = &node.operation else { continue };
        let Some(watermark) = source.watermark.as_ref().filter(|watermark| !watermark.processing) else {
            continue;
        };
        let time_type = watermark.time.data_type(&source.read_schema).ok();
        if let Some(delay_us) = time_type.and_then(|time_type| watermark.constant_delay_us(&time_type)) {
            found.push((source, delay_us));
        }
    }
    found
}

fn is_wall_clock(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, None))
}

fn is_instant(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, Some(_)))
}

/// The time column is TIMESTAMP, and what it is computed from is an instant.
fn wall_clock_column(query: &Query<'_>, source: &SourceNode) -> Option<Lint> {
    let table = &source.table;
    let spec = table.watermark.as_ref()?;
    let column = &table.columns[table.column_index(&spec.column)?];
    let ColumnKind::Computed { expr, sql } = &column.kind else { return None };
    if !is_wall_clock(&column.data_type) {
        return None;
    }
    let schema = DFSchema::try_from(table.schema().as_ref().clone()).ok()?;
    let mut is_meant = false;
    let _ = expr.apply(|part| {
        is_meant |= match part {
            Expr::ScalarFunction(call) if call.name() == "from_unixtime" => true,
            other => other.get_type(&schema).is_ok_and(|data_type| is_instant(&data_type)),
        };
        Ok(if is_meant { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    is_meant.then(|| {
        Lint::new(
            code::LINT_WALL_CLOCK,
            format!(
                "\"{}\" of \"{}\" is TIMESTAMP, a wall clock, and {sql} makes it from an instant",
                spec.column, table.name
            ),
            query.place_of(source),
            format!(
                "Keep the instant: compute \"{}\" as TIMESTAMP_LTZ(3), such as TO_TIMESTAMP_LTZ(…, 3). A wall clock \
                 shows an hour twice when it is set back, and its rows are late then.",
                spec.column
            ),
        )
    })
}

/// The time column is TIMESTAMP, and it is compared with the clock.
fn compared_with_clock(query: &Query<'_>, source: &SourceNode) -> Option<Lint> {
    let watermark = source.watermark.as_ref().filter(|watermark| !watermark.processing)?;
    let clause = match (watermark.max_ahead_us, watermark.then_advance) {
        (Some(_), _) => "MAX AHEAD",
        (None, true) => "THEN ADVANCE",
        (None, false) => return None,
    };
    let data_type = watermark.time.data_type(&source.read_schema).ok()?;
    is_wall_clock(&data_type).then(|| {
        Lint::new(
            code::LINT_WALL_CLOCK,
            format!(
                "{clause} compares \"{}\" of \"{}\" with the clock, and it is TIMESTAMP, without a zone: it is taken \
                 for UTC",
                watermark.column, source.table.name
            ),
            query.place_of(source),
            format!("Declare \"{}\" as TIMESTAMP_LTZ(3), or make sure that it is UTC.", watermark.column),
        )
    })
}

/// A time attribute that is TIMESTAMP is compared or computed with instants.
fn meant_as_instant(query: &Query<'_>) -> Option<Lint> {
    let column = query.nodes.iter().find_map(|id| {
        let node = &query.plan.nodes[*id];
        let Operation::Calc(calc) = &node.operation else { return None };
        let input = &query.plan.nodes[*node.inputs.first()?];
        let times = &input.properties.time_attributes;
        let exprs = calc.filter.iter().chain(&calc.project);
        exprs.into_iter().find_map(|expr| made_instant(expr, &input.schema, times))
    })?;
    Some(Lint::new(
        code::LINT_WALL_CLOCK,
        format!("\"{column}\" is TIMESTAMP, a wall clock, and is used here as an instant"),
        query.places.of_column(&column),
        format!(
            "Declare \"{column}\" as TIMESTAMP_LTZ(3) in its table if its values are instants: what a wall clock \
             means depends on 'session.time-zone'."
        ),
    ))
}

/// The first time attribute that an expression turns from a wall clock into an instant.
fn made_instant(expr: &ExprRef, schema: &Schema, times: &[usize]) -> Option<String> {
    let is_cast = expr.downcast_ref::<CastExpr>().is_some()
        || expr
            .downcast_ref::<ScalarFunctionExpr>()
            .is_some_and(|call| call.name().contains("cast_timestamp"));
    if is_cast && expr.data_type(schema).is_ok_and(|data_type| is_instant(&data_type)) {
        let inner = expr.children().first().and_then(|inner| inner.downcast_ref::<Column>());
        if let Some(column) = inner.filter(|column| times.contains(&column.index()))
            && is_wall_clock(schema.field(column.index()).data_type())
        {
            return Some(column.name().to_owned());
        }
    }
    expr.children().into_iter().find_map(|inner| made_instant(inner, schema, times))
}

/// Rows change, the input does not end, and the rows go to whoever asked.
fn untaken_changes(query: &Query<'_>, sink: NodeId, changes: Option<(&str, Option<Span>)>) -> Option<Lint> {
    let node = &query.plan.nodes[sink];
    let Operation::Sink(SinkNode { target: SinkTarget::Result, .. }) = &node.operation else { return None };
    let (clause, span) = changes.filter(|_| node.properties.updating && !node.properties.bounded)?;
    Some(Lint::new(
        code::LINT_UNTAKEN_CHANGES,
        format!("{clause} gives rows that change, and they never end: tables, json and csv can't show them"),
        span,
        "Write changes with -f changelog-json, or INSERT INTO a table that takes them, such as one of 'format' = \
         'changelog-json'."
            .to_owned(),
    ))
}
