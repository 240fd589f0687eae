//! `INSERT INTO`: the query's columns to those of the sink.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use sqlparser::ast::Ident;

use super::{Session, bind_query, find_relation, single_name, unknown_relation};
use crate::catalog::{Column, ColumnKind, Relation, Table};
use crate::error::{Error, Span, code};
use crate::plan::diagnose::{from_datafusion, from_sql_span, with_names};
use crate::plan::function::FunctionRegistry;
use crate::plan::rewrite::analyze;
use crate::plan::sql_type_name;
use crate::sql::Insert;

/// The query with its rows in the sink's columns and types, and the sink.
pub(in crate::plan) fn bind_insert(
    session: &Arc<Session>,
    insert: &Insert,
) -> Result<(LogicalPlan, Arc<Table>), Error> {
    let ident = single_name(&insert.table)?;
    let span = from_sql_span(ident.span);
    let table = match find_relation(session, ident) {
        Some(Relation::Table(table)) => Arc::clone(table),
        Some(Relation::View(_)) => {
            return Err(Error::plan(
                code::INVALID_QUERY,
                format!("\"{}\" is a view; it takes no rows", ident.value),
            )
            .at(span)
            .hint("Insert into the table below the view."));
        }
        None => return Err(unknown_relation(session, &ident.value, span)),
    };
    if !session.connectors.check(&table)?.is_sink {
        let message =
            format!("\"{}\" can't be written: the connector \"{}\" only reads", table.name, table.connector);
        return Err(Error::plan(code::SINK_MISMATCH, message).at(span));
    }
    let writable: Vec<&Column> = table.columns.iter().filter(|column| is_writable(&column.kind)).collect();
    let targets = targets(insert, &writable, &table)?;
    let plan = analyze(session, bind_query(session, &insert.query)?)?;
    let plan = project(plan, &targets, &writable, &table, span, &session.functions)?;
    Ok((plan, table))
}

/// Whether an INSERT writes the column.
pub(in crate::plan) fn is_writable(kind: &ColumnKind) -> bool {
    match kind {
        ColumnKind::Physical => true,
        ColumnKind::Metadata { is_virtual, .. } => !is_virtual,
        ColumnKind::Computed { .. } | ColumnKind::ProcessingTime => false,
    }
}

/// For each column of the query, the column of the sink.
fn targets(insert: &Insert, writable: &[&Column], table: &Table) -> Result<Vec<usize>, Error> {
    if insert.columns.is_empty() {
        return Ok((0..writable.len()).collect());
    }
    let mut targets = Vec::new();
    for ident in &insert.columns {
        let target = target(ident, writable, table)?;
        if targets.contains(&target) {
            return Err(Error::plan(
                code::SINK_MISMATCH,
                format!("the column \"{}\" is listed twice", ident.value),
            )
            .at(from_sql_span(ident.span)));
        }
        targets.push(target);
    }
    Ok(targets)
}

fn target(ident: &Ident, writable: &[&Column], table: &Table) -> Result<usize, Error> {
    let exact = writable.iter().position(|column| column.name == ident.value);
    let similar = || {
        let same = |column: &&Column| column.name.eq_ignore_ascii_case(&ident.value);
        (ident.quote_style.is_none() && writable.iter().filter(|column| same(column)).count() == 1)
            .then(|| writable.iter().position(same))
            .flatten()
    };
    if let Some(found) = exact.or_else(similar) {
        return Ok(found);
    }
    let names: Vec<&str> = writable.iter().map(|column| column.name.as_str()).collect();
    let message = format!("\"{}\" has no column \"{}\" that can be written", table.name, ident.value);
    Err(with_names(Error::plan(code::UNKNOWN_COLUMN, message), &ident.value, &names)
        .at(from_sql_span(ident.span)))
}

fn project(
    plan: LogicalPlan,
    targets: &[usize],
    writable: &[&Column],
    table: &Table,
    span: Option<Span>,
    functions: &FunctionRegistry,
) -> Result<LogicalPlan, Error> {
    let given = plan.schema().columns();
    if given.len() != targets.len() {
        let text =
            |names: Vec<&str>| names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let message = format!(
            "the query gives {} columns ({}), \"{}\" takes {} ({})",
            given.len(),
            text(given.iter().map(|column| column.name.as_str()).collect()),
            table.name,
            targets.len(),
            text(targets.iter().map(|target| writable[*target].name.as_str()).collect()),
        );
        return Err(Error::plan(code::SINK_MISMATCH, message).at(span));
    }
    let mut projection = Vec::with_capacity(writable.len());
    for (position, column) in writable.iter().enumerate() {
        let expr = match targets.iter().position(|target| *target == position) {
            Some(source) => {
                let (_, field) = plan.schema().qualified_field(source);
                let expr = Expr::Column(given[source].clone());
                coerce(expr, field.name(), field.data_type(), column, table, functions)
                    .map_err(|error| error.at(span))?
            }
            None if !column.nullable => {
                let message =
                    format!("\"{}\" of \"{}\" is NOT NULL and gets no value", column.name, table.name);
                return Err(Error::plan(code::SINK_MISMATCH, message)
                    .at(span)
                    .hint("Add it to the column list and to the query."));
            }
            None => lit(ScalarValue::try_from(&column.data_type).map_err(from_datafusion)?),
        };
        projection.push(expr.alias(&column.name));
    }
    LogicalPlanBuilder::from(plan)
        .project(projection)
        .and_then(LogicalPlanBuilder::build)
        .map_err(from_datafusion)
}

fn coerce(
    expr: Expr,
    name: &str,
    from: &DataType,
    column: &Column,
    table: &Table,
    functions: &FunctionRegistry,
) -> Result<Expr, Error> {
    if *from == column.data_type {
        return Ok(expr);
    }
    if is_assignable(from, &column.data_type) {
        return Ok(functions.cast(expr, from, &column.data_type));
    }
    let (from, to) = (sql_type_name(from), sql_type_name(&column.data_type));
    let message =
        format!("\"{name}\" is {from}, the column \"{}\" of \"{}\" is {to}", column.name, table.name);
    Err(Error::plan(code::SINK_MISMATCH, message).hint(format!("Convert it with CAST({name} AS {to}).")))
}

/// Whether values go in without a CAST: within a family of types. A value that does not fit fails
/// when it comes.
pub(in crate::plan) fn is_assignable(from: &DataType, to: &DataType) -> bool {
    use DataType::{Binary, Date32, List, Map, Null, Struct, Time32, Time64, Timestamp, Utf8};
    match (from, to) {
        (Null, _) => true,
        (from, to) if from.is_numeric() && to.is_numeric() => true,
        // No column of a table can be declared as an INTERVAL.
        (Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Interval(_), Utf8) => true,
        (DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_), Binary) => true,
        (Timestamp(_, from), Timestamp(_, to)) => from.is_some() == to.is_some(),
        (Date32, Timestamp(_, None)) => true,
        (Time32(_) | Time64(_), Time32(_) | Time64(_)) => true,
        (List(from), List(to)) => {
            from.data_type() == to.data_type() || is_assignable(from.data_type(), to.data_type())
        }
        (Struct(from), Struct(to)) => {
            from.len() == to.len()
                && from.iter().zip(to).all(|(from, to)| {
                    from.data_type() == to.data_type() || is_assignable(from.data_type(), to.data_type())
                })
        }
        (Map(from, _), Map(to, _)) => {
            from.data_type() == to.data_type() || is_assignable(from.data_type(), to.data_type())
        }
        _ => false,
    }
}
