//! A window call to its node.

use std::sync::Arc;

use arrow::datatypes::DataType;
use chrono_tz::Tz;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, ExprSchema};
use datafusion_expr::planner::RelationPlannerContext;
use datafusion_expr::{Expr, Extension, LogicalPlan};
use sqlparser::ast::{
    self, FunctionArg, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, TableFactor, WindowType,
};

use super::arguments::{Arguments, Interval, argument, of_function, span_of};
use super::{WINDOW_COLUMNS, WindowCall, WindowFunction, WindowNode};
use crate::error::{Error, Span, code};
use crate::plan::bind::StreamTable;
use crate::plan::diagnose::{from_datafusion, with_names};
use crate::plan::window_text::duration;
use crate::plan::{WindowKind, WindowSpec, sql_type_name};
use crate::sql::plain_table;
use crate::stream::TimeUnit;

/// The node for a call of `function`. `span` is the call's place, `id` the window's number.
///
/// # Errors
/// `W001`–`W005` and `W008` with the place of the argument; whatever the input fails with.
pub(in crate::plan) fn bind_window(
    function: WindowFunction,
    args: Vec<FunctionArg>,
    span: Option<Span>,
    id: usize,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan, Error> {
    let mut args = Arguments::read(function, args, span)?;
    let data = args.data.take().ok_or_else(|| {
        Error::plan(code::WINDOW_ARGUMENT, format!("{} has no table", function.name()))
            .at(span)
            .hint(format!("Write it as {}(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND).", function.name()))
    })?;
    let data_span = span_of(&data);
    let (factor, partition_by) = data_factor(function, data)?;
    if let (false, Some(key)) = (function == WindowFunction::Session, partition_by.first()) {
        let message = format!("{} takes no PARTITION BY", function.name());
        return Err(Error::plan(code::WINDOW_ARGUMENT, message)
            .at(span_of(key))
            .hint("Put the columns into GROUP BY; only sessions differ by key."));
    }
    let input = context.plan(factor).map_err(|error| from_datafusion(error).at(data_span))?;
    check_names(function, input.schema(), data_span.or(span))?;
    let (time, time_text, time_span) = time_column(function, args.time.take(), &input, span, context)?;
    let data_type = input.schema().field_from_column(&time).map_err(from_datafusion)?.data_type().clone();
    let unit = time_unit(function, &time_text, &data_type).map_err(|error| error.at(time_span))?;
    let (kind, offset_us) = window_kind(function, &mut args, unit, span, context)?;
    let partition = partition_by
        .into_iter()
        .map(|key| partition_key(key, &input, context))
        .collect::<Result<Vec<_>, Error>>()?;
    let zone = match args.zone.take() {
        Some(zone) => Some(zone_argument(function, &zone, &data_type)?),
        None => session_zone(&data_type),
    };
    let spec = WindowSpec { kind, offset_us, zone, unit };
    let call = WindowCall { function, time: time_text, time_span };
    let node = WindowNode::try_new(id, Arc::new(input), time, partition, spec, Arc::new(call))
        .map_err(from_datafusion)?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

/// The input of the window as something that can stand in FROM, and its PARTITION BY.
fn data_factor(function: WindowFunction, data: ast::Expr) -> Result<(TableFactor, Vec<ast::Expr>), Error> {
    let span = span_of(&data);
    match data {
        ast::Expr::Prefixed { value, .. } => match *value {
            ast::Expr::Function(call) => {
                let keys = match call.over {
                    Some(WindowType::WindowSpec(spec)) => spec.partition_by,
                    _ => Vec::new(),
                };
                match call.args {
                    FunctionArguments::Subquery(query) => Ok((derived(query), keys)),
                    _ => Ok((plain_table(call.name), keys)),
                }
            }
            ast::Expr::Subquery(query) => Ok((derived(query), Vec::new())),
            other => data_factor(function, other),
        },
        ast::Expr::Subquery(query) => Ok((derived(query), Vec::new())),
        ast::Expr::Identifier(ident) => Ok((plain_table(object_name(vec![ident])), Vec::new())),
        ast::Expr::CompoundIdentifier(parts) => Ok((plain_table(object_name(parts)), Vec::new())),
        other => {
            let message =
                format!("the first argument of {} must be a table or a query, not {other}", function.name());
            Err(Error::plan(code::WINDOW_ARGUMENT, message).at(span).hint("Write it as TABLE t."))
        }
    }
}

fn object_name(parts: Vec<Ident>) -> ObjectName {
    ObjectName(parts.into_iter().map(ObjectNamePart::Identifier).collect())
}

fn derived(subquery: Box<Query>) -> TableFactor {
    TableFactor::Derived { lateral: false, subquery, alias: None, sample: None }
}

/// The columns of a window must be its own.
fn check_names(function: WindowFunction, schema: &DFSchema, span: Option<Span>) -> Result<(), Error> {
    let Some(taken) = schema.fields().iter().find(|field| WINDOW_COLUMNS.contains(&field.name().as_str()))
    else {
        return Ok(());
    };
    let message = format!("the input of {} has a column \"{}\" already", function.name(), taken.name());
    Err(Error::plan(code::AMBIGUOUS_COLUMN, message)
        .at(span)
        .hint(format!("Give it another name in the input, such as {0} AS inner_{0}.", taken.name())))
}

fn time_column(
    function: WindowFunction,
    given: Option<ast::Expr>,
    input: &LogicalPlan,
    call: Option<Span>,
    context: &mut dyn RelationPlannerContext,
) -> Result<(Column, String, Option<Span>), Error> {
    let Some(given) = given else {
        let column = only_time_column(input).ok_or_else(|| {
            Error::plan(
                code::WINDOW_ARGUMENT,
                format!("{} does not say which column is its time", function.name()),
            )
            .at(call)
            .hint("Name the column, such as DESCRIPTOR(ts).")
        })?;
        let text = column.name.clone();
        return Ok((column, text, call));
    };
    let given = match given {
        ast::Expr::Function(descriptor) if descriptor.name.to_string().eq_ignore_ascii_case("descriptor") => {
            let span = super::arguments::span_of(&ast::Expr::Function(descriptor.clone()));
            let columns = of_function(descriptor.args);
            match <[FunctionArg; 1]>::try_from(columns) {
                Ok([FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(column))]) => column,
                _ => {
                    return Err(Error::plan(
                        code::WINDOW_ARGUMENT,
                        "DESCRIPTOR names exactly one column here",
                    )
                    .at(span)
                    .hint("Write it as DESCRIPTOR(ts)."));
                }
            }
        }
        other => other,
    };
    let span = span_of(&given);
    let is_name = matches!(given, ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_));
    let text = match &given {
        ast::Expr::Identifier(ident) => ident.value.clone(),
        ast::Expr::CompoundIdentifier(parts) => {
            parts.last().map(|ident| ident.value.clone()).unwrap_or_default()
        }
        other => other.to_string(),
    };
    let no_column = || {
        Error::plan(
            code::WINDOW_ARGUMENT,
            format!("the time of {} must be a column, not {text}", function.name()),
        )
        .at(span)
        .hint("Write it as DESCRIPTOR(ts).")
    };
    if !is_name {
        return Err(no_column());
    }
    match context.sql_to_expr(given, input.schema()) {
        Ok(Expr::Column(column)) if input.schema().has_column(&column) => Ok((column, text, span)),
        Ok(Expr::Column(_)) => {
            let error = Error::plan(code::UNKNOWN_COLUMN, format!("no column \"{text}\"")).at(span);
            let names: Vec<&str> =
                input.schema().fields().iter().map(|field| field.name().as_str()).collect();
            Err(with_names(error, &text, &names))
        }
        Ok(_) => Err(no_column()),
        Err(error) => Err(from_datafusion(error).at(span)),
    }
}

/// An expression of PARTITION BY over the input.
fn partition_key(
    key: ast::Expr,
    input: &LogicalPlan,
    context: &mut dyn RelationPlannerContext,
) -> Result<Expr, Error> {
    let span = span_of(&key);
    let text = key.to_string();
    let bound = context.sql_to_expr(key, input.schema()).map_err(|error| from_datafusion(error).at(span))?;
    let unknown = bound.column_refs().into_iter().find(|column| !input.schema().has_column(column)).cloned();
    if let Some(column) = unknown {
        let error = Error::plan(code::UNKNOWN_COLUMN, format!("no column \"{}\"", column.name)).at(span);
        let names: Vec<&str> = input.schema().fields().iter().map(|field| field.name().as_str()).collect();
        return Err(with_names(error, &column.name, &names));
    }
    let is_of_row = |expr: &Expr| {
        !matches!(
            expr,
            Expr::AggregateFunction(_) | Expr::WindowFunction(_) | Expr::ScalarSubquery(_) | Expr::Exists(_)
        )
    };
    let depends_on_row = !bound.column_refs().is_empty() && !bound.is_volatile();
    if !depends_on_row || bound.exists(|expr| Ok(!is_of_row(expr))).unwrap_or(true) {
        let message = format!("PARTITION BY takes columns and expressions over them, not {text}");
        return Err(Error::plan(code::WINDOW_ARGUMENT, message)
            .at(span)
            .hint("Leave PARTITION BY out for sessions of all rows together."));
    }
    Ok(bound)
}

/// The time column of the only table with event time below `plan`, if it is still there.
fn only_time_column(plan: &LogicalPlan) -> Option<Column> {
    let mut names = Vec::new();
    let _ = plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = scan.source.downcast_ref::<StreamTable>()
        {
            let event = table.table.watermark.as_ref().map(|watermark| watermark.column.clone());
            names.push(event.or_else(|| Some(table.table.processing_time()?.name.clone())));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    let [Some(name)] = names.as_slice() else { return None };
    let mut columns = plan.schema().columns().into_iter().filter(|column| column.name == *name);
    match (columns.next(), columns.next()) {
        (Some(column), None) => Some(column),
        _ => None,
    }
}

fn time_unit(function: WindowFunction, name: &str, data_type: &DataType) -> Result<TimeUnit, Error> {
    if let Some(unit) = TimeUnit::of(data_type) {
        return Ok(unit);
    }
    let kind = sql_type_name(data_type);
    let error = Error::plan(
        code::NOT_A_TIME_COLUMN,
        format!(
            "\"{name}\" is {kind}, the time of {} must be TIMESTAMP or TIMESTAMP_LTZ of up to 6 digits",
            function.name()
        ),
    );
    Err(match data_type {
        DataType::Timestamp(..) => error.hint(format!(
            "Declare a column such as {name}6 AS CAST({name} AS TIMESTAMP(6)) with a WATERMARK."
        )),
        _ => error.hint("Name the column that the table's WATERMARK is declared for."),
    })
}

fn window_kind(
    function: WindowFunction,
    args: &mut Arguments,
    unit: TimeUnit,
    call: Option<Span>,
    context: &mut dyn RelationPlannerContext,
) -> Result<(WindowKind, i64), Error> {
    let mut length = |name: &'static str| -> Result<Interval, Error> {
        args.interval(function, name, context)?
            .ok_or_else(|| {
                Error::plan(code::WINDOW_ARGUMENT, format!("{} is missing", argument(function, name)))
                    .at(call)
                    .hint(format!(
                        "Write {}(TABLE t, DESCRIPTOR(ts), {}).",
                        function.name(),
                        required(function).join(", ")
                    ))
            })?
            .positive(function, name)?
            .whole(function, name, unit.us())
    };
    let (kind, size) = match function {
        WindowFunction::Tumble => {
            let size = length("SIZE")?;
            (WindowKind::Tumble { size_us: size.us }, size)
        }
        WindowFunction::Hop => {
            let slide = length("SLIDE")?;
            let size = length("SIZE")?;
            multiple(function, "slide", &slide, &size)?;
            (WindowKind::Hop { slide_us: slide.us, size_us: size.us }, size)
        }
        WindowFunction::Cumulate => {
            let step = length("STEP")?;
            let size = length("SIZE")?;
            multiple(function, "step", &step, &size)?;
            (WindowKind::Cumulate { step_us: step.us, size_us: size.us }, size)
        }
        WindowFunction::Session => {
            let gap = length("GAP")?;
            return Ok((WindowKind::Session { gap_us: gap.us }, 0));
        }
    };
    let Some(offset) = args.interval(function, "OFFSET", context)? else { return Ok((kind, 0)) };
    let offset = offset.whole(function, "OFFSET", unit.us())?;
    if offset.us.unsigned_abs() >= size.us.unsigned_abs() {
        let message = format!(
            "the offset of {} is {}, which is not smaller than its size {}",
            function.name(),
            duration(offset.us),
            duration(size.us)
        );
        return Err(Error::plan(code::WINDOW_OFFSET, message)
            .at(offset.span)
            .hint(format!("Use an offset between -{0} and {0}, both excluded.", duration(size.us))));
    }
    Ok((kind, offset.us))
}

fn required(function: WindowFunction) -> Vec<&'static str> {
    function.intervals().iter().copied().filter(|name| *name != "OFFSET").collect()
}

fn multiple(
    function: WindowFunction,
    step_name: &str,
    step: &Interval,
    size: &Interval,
) -> Result<(), Error> {
    if size.us % step.us == 0 {
        return Ok(());
    }
    let (step_text, size_text) = (duration(step.us), duration(size.us));
    let message = format!(
        "the size {size_text} of {} is not a multiple of its {step_name} {step_text}",
        function.name()
    );
    let hint = if step.us > size.us {
        format!("Give the {step_name} first, then the size: the {step_name} can't be longer than the size.")
    } else {
        format!("Use a {step_name} that divides {size_text}.")
    };
    Err(Error::plan(code::WINDOW_NOT_MULTIPLE, message).at(step.span).hint(hint))
}

/// The zone whose wall clock cuts windows of instants where the query names none: the session's,
/// which the type carries. Windows of a TIMESTAMP are cut by the clock that it shows.
fn session_zone(data_type: &DataType) -> Option<Tz> {
    match data_type {
        DataType::Timestamp(_, Some(zone)) => Some(zone.parse().unwrap_or(Tz::UTC)),
        _ => None,
    }
}

fn zone_argument(function: WindowFunction, zone: &ast::Expr, data_type: &DataType) -> Result<Tz, Error> {
    let span = span_of(zone);
    let text = match zone {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    };
    let wrong = |message: String| {
        Error::plan(code::WINDOW_ARGUMENT, message).at(span).hint("Write it as ZONE => 'Europe/Berlin'.")
    };
    let text =
        text.ok_or_else(|| wrong(format!("{} must be the name of a time zone", argument(function, "ZONE"))))?;
    let zone: Tz = text.parse().map_err(|_| wrong(format!("there is no time zone \"{text}\"")))?;
    if matches!(data_type, DataType::Timestamp(_, Some(_))) {
        return Ok(zone);
    }
    Err(Error::plan(code::WINDOW_ARGUMENT, "a TIMESTAMP has no time zone to cut windows by")
        .at(span)
        .hint("Use a time column of the type TIMESTAMP_LTZ, or leave ZONE out."))
}
