//! `CREATE TABLE` to a table of the catalog.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit as ArrowUnit};
use datafusion_common::DFSchema;
use datafusion_expr::{Expr, ExprSchemable, cast};
use sqlparser::ast::Ident;

use super::options::TimeOptions;
use super::types::arrow_type;
use super::{Session, bind_expression, declared_name};
use crate::catalog::{Column, ColumnKind, OptionEntry, Options, Table, WatermarkSpec};
use crate::error::{Error, Span, code};
use crate::plan::constant::is_deterministic;
use crate::plan::diagnose::{from_datafusion, from_sql_span, with_names};
use crate::plan::sql_type_name;
use crate::plan::window::interval_us;
use crate::sql::{ColumnDefKind, CreateTable, SqlType, TableOption, WatermarkDef};
use crate::stream::TimeUnit;

/// Binds a table definition and lets its connector check it.
pub(in crate::plan) fn create_table(session: &Arc<Session>, statement: &CreateTable) -> Result<Table, Error> {
    let name = declared_name(&statement.name)?;
    let options = options(&statement.options)?;
    let connector = connector(&name, &options)?;
    let mut columns = base_columns(session, statement, &connector, &options)?;
    add_computed(session, statement, &mut columns)?;
    check_duplicates(statement, &columns)?;
    let time = TimeOptions::read(&options, statement.watermark.is_some())?;
    let watermark =
        statement.watermark.as_ref().map(|clause| watermark(session, clause, &columns, &time)).transpose()?;
    let primary_key =
        statement.primary_key.iter().map(|ident| key_column(ident, &columns)).collect::<Result<_, _>>()?;
    checked(
        session,
        Table {
            name,
            columns,
            watermark,
            primary_key,
            options,
            connector,
            bounded: false,
            temporary: statement.temporary,
        },
    )
}

/// The table that `FROM 'path'` reads.
pub(super) fn of_file(session: &Arc<Session>, path: &str) -> Result<Table, Error> {
    let options: Options = [("connector", "filesystem"), ("path", path)].into_iter().collect();
    let columns = inferred(session, &options)?;
    checked(
        session,
        Table {
            name: path.to_owned(),
            columns,
            watermark: None,
            primary_key: Vec::new(),
            options,
            connector: "filesystem".to_owned(),
            bounded: false,
            temporary: true,
        },
    )
}

fn checked(session: &Session, mut table: Table) -> Result<Table, Error> {
    table.bounded = session.connectors.check(&table)?.bounded;
    Ok(table)
}

fn options(given: &[TableOption]) -> Result<Options, Error> {
    let mut seen = HashSet::new();
    for option in given {
        if !seen.insert(option.key.name.as_str()) {
            let message = format!("the option \"{}\" is given twice", option.key.name);
            return Err(Error::plan(code::INVALID_OPTION, message).at(option.key.span));
        }
    }
    let entry = |option: &TableOption| OptionEntry {
        key: option.key.name.clone(),
        value: option.value.clone(),
        key_span: Some(option.key.span),
        value_span: Some(option.value_span),
    };
    Ok(Options::new(given.iter().map(entry).collect()))
}

fn connector(name: &str, options: &Options) -> Result<String, Error> {
    match (options.get("connector"), options.get("path")) {
        (Some(connector), _) => Ok(connector.to_owned()),
        (None, Some(_)) => Ok("filesystem".to_owned()),
        (None, None) => Err(Error::plan(
            code::MISSING_OPTION,
            format!("the table \"{name}\" has no option \"connector\""),
        )
        .hint("Say where its rows are, such as WITH ('connector' = 'filesystem', 'path' = 'rows.csv').")),
    }
}

/// Physical and metadata columns, in declared order, with computed ones left out; read from the data
/// if no physical column is declared.
fn base_columns(
    session: &Session,
    statement: &CreateTable,
    connector: &str,
    options: &Options,
) -> Result<Vec<Column>, Error> {
    let declares = |def: &crate::sql::ColumnDef| matches!(def.kind, ColumnDefKind::Physical { .. });
    let mut columns = Vec::new();
    if !statement.columns.iter().any(declares) {
        columns = inferred(session, options)?;
    }
    for def in &statement.columns {
        let name = def.name.value.clone();
        match &def.kind {
            ColumnDefKind::Physical { sql_type, not_null } => columns.push(Column {
                name,
                data_type: column_type(session, sql_type, def.span)?,
                nullable: !not_null,
                kind: ColumnKind::Physical,
            }),
            ColumnDefKind::Metadata { sql_type, not_null, from, is_virtual } => {
                let data_type = column_type(session, sql_type, def.span)?;
                let key = from.clone().unwrap_or_else(|| name.clone());
                check_metadata(session, connector, &key, &data_type).map_err(|error| error.at(def.span))?;
                columns.push(Column {
                    name,
                    data_type,
                    nullable: !not_null,
                    kind: ColumnKind::Metadata { key, is_virtual: *is_virtual },
                });
            }
            ColumnDefKind::Computed { .. } => {}
        }
    }
    Ok(columns)
}

fn column_type(session: &Session, sql_type: &SqlType, span: Span) -> Result<DataType, Error> {
    arrow_type(sql_type, &session.zone).map_err(|error| error.at(span))
}

fn check_metadata(session: &Session, connector: &str, key: &str, declared: &DataType) -> Result<(), Error> {
    let Some(given) = session.connectors.metadata_type(connector, key) else {
        let message = format!("the connector \"{connector}\" has no metadata \"{key}\"");
        return Err(Error::plan(code::INVALID_TABLE, message)
            .hint("Name one that it has with METADATA FROM '…', or leave METADATA out."));
    };
    let (given, declared) = (sql_type_name(&given), sql_type_name(declared));
    if given == declared {
        return Ok(());
    }
    Err(Error::plan(code::INVALID_TABLE, format!("the metadata \"{key}\" is {given}, not {declared}"))
        .hint(format!("Declare the column as {given}.")))
}

fn inferred(session: &Session, options: &Options) -> Result<Vec<Column>, Error> {
    let schema = session.connectors.infer_schema(options)?;
    let column = |field: &Arc<Field>| Column {
        name: field.name().clone(),
        data_type: plain_type(field.data_type(), &session.zone),
        nullable: field.is_nullable(),
        kind: ColumnKind::Physical,
    };
    Ok(schema.fields().iter().map(column).collect())
}

/// The type of ours that holds what a file's type holds.
fn plain_type(data_type: &DataType, zone: &str) -> DataType {
    match data_type {
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Date64 => DataType::Date32,
        DataType::Timestamp(unit, given) => {
            let unit = if *unit == ArrowUnit::Second { ArrowUnit::Millisecond } else { *unit };
            DataType::Timestamp(unit, given.as_ref().map(|_| zone.into()))
        }
        DataType::Dictionary(_, value) => plain_type(value, zone),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            DataType::List(Arc::new(Field::new("item", plain_type(item.data_type(), zone), true)))
        }
        DataType::Struct(fields) => DataType::Struct(
            fields
                .iter()
                .map(|field| {
                    Field::new(field.name(), plain_type(field.data_type(), zone), field.is_nullable())
                })
                .collect(),
        ),
        other => other.clone(),
    }
}

/// Puts the computed columns where they were declared.
fn add_computed(
    session: &Arc<Session>,
    statement: &CreateTable,
    columns: &mut Vec<Column>,
) -> Result<(), Error> {
    let base = schema_of(columns)?;
    let inferred = columns.len() - statement.columns.iter().filter(|def| !is_computed(&def.kind)).count();
    for (position, def) in statement.columns.iter().enumerate() {
        let ColumnDefKind::Computed { expr, text } = &def.kind else { continue };
        if is_proctime(expr) {
            let data_type = DataType::Timestamp(ArrowUnit::Millisecond, Some(session.zone.as_str().into()));
            let (name, kind) = (def.name.value.clone(), ColumnKind::ProcessingTime);
            columns.insert(inferred + position, Column { name, data_type, nullable: false, kind });
            continue;
        }
        let bound = bind_expression(session, expr, &base).map_err(|error| error.at(def.span))?;
        let data_type = bound.get_type(&base).map_err(from_datafusion)?;
        let nullable = bound.nullable(&base).map_err(from_datafusion)?;
        columns.insert(
            inferred + position,
            Column {
                name: def.name.value.clone(),
                data_type,
                nullable,
                kind: ColumnKind::Computed { expr: Box::new(bound), sql: text.clone() },
            },
        );
    }
    Ok(())
}

/// `PROCTIME()` and nothing else.
fn is_proctime(expr: &sqlparser::ast::Expr) -> bool {
    expr.to_string().eq_ignore_ascii_case("proctime()")
}

fn is_computed(kind: &ColumnDefKind) -> bool {
    matches!(kind, ColumnDefKind::Computed { .. })
}

/// The columns under their bare names.
fn schema_of(columns: &[Column]) -> Result<DFSchema, Error> {
    let fields: Vec<_> = columns
        .iter()
        .map(|column| Field::new(&column.name, column.data_type.clone(), column.nullable))
        .collect();
    DFSchema::try_from(Schema::new(fields)).map_err(from_datafusion)
}

fn check_duplicates(statement: &CreateTable, columns: &[Column]) -> Result<(), Error> {
    let mut seen = HashSet::new();
    for column in columns {
        if !seen.insert(column.name.as_str()) {
            let span =
                statement.columns.iter().rev().find(|def| def.name.value == column.name).map(|def| def.span);
            let message = format!("the column \"{}\" is declared twice", column.name);
            return Err(Error::plan(code::INVALID_TABLE, message).at(span));
        }
    }
    Ok(())
}

/// The column that an identifier of a clause means.
fn find_column<'a>(ident: &Ident, columns: &'a [Column]) -> Result<&'a Column, Error> {
    if let Some(column) = columns.iter().find(|column| column.name == ident.value) {
        return Ok(column);
    }
    if ident.quote_style.is_none() {
        let mut similar = columns.iter().filter(|column| column.name.eq_ignore_ascii_case(&ident.value));
        if let (Some(column), None) = (similar.next(), similar.next()) {
            return Ok(column);
        }
    }
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let error = Error::plan(code::UNKNOWN_COLUMN, format!("no column \"{}\"", ident.value));
    Err(with_names(error, &ident.value, &names).at(from_sql_span(ident.span)))
}

fn key_column(ident: &Ident, columns: &[Column]) -> Result<String, Error> {
    let column = find_column(ident, columns)?;
    if matches!(column.kind, ColumnKind::Physical) {
        return Ok(column.name.clone());
    }
    Err(Error::plan(code::INVALID_TABLE, format!("the key column \"{}\" is not stored", column.name))
        .at(from_sql_span(ident.span))
        .hint("Use columns that are neither computed nor metadata."))
}

fn watermark(
    session: &Arc<Session>,
    clause: &WatermarkDef,
    columns: &[Column],
    options: &TimeOptions,
) -> Result<WatermarkSpec, Error> {
    let column = find_column(&clause.column, columns)?;
    let unit = event_time_unit(column).map_err(|error| error.at(from_sql_span(clause.column.span)))?;
    let schema = schema_of(columns)?;
    let bound = bind_expression(session, &clause.expr, &schema).map_err(|error| error.at(clause.span))?;
    let expr = watermark_expr(bound, column, &schema).map_err(|error| error.at(clause.span))?;
    let idle_clause = interval(session, clause.idle_after.as_ref(), "IDLE AFTER", clause.span)?;
    if idle_clause.is_some() && options.idle_after_us.is_some() {
        let message = "IDLE AFTER and the option \"scan.watermark.idle-timeout\" say the same";
        return Err(Error::plan(code::INVALID_WATERMARK, message).at(clause.span).hint("Keep one of them."));
    }
    Ok(WatermarkSpec {
        column: column.name.clone(),
        unit,
        expr: Box::new(expr),
        sql: clause.text.clone(),
        idle_after_us: idle_clause.or(options.idle_after_us),
        then_advance: clause.then_advance,
        max_ahead_us: interval(session, clause.max_ahead.as_ref(), "MAX AHEAD", clause.span)?,
        null_time: options.null_time,
    })
}

fn event_time_unit(column: &Column) -> Result<TimeUnit, Error> {
    if let Some(unit) = TimeUnit::of(&column.data_type) {
        return Ok(unit);
    }
    let (name, kind) = (&column.name, sql_type_name(&column.data_type));
    let message =
        format!("\"{name}\" is {kind}, an event time must be TIMESTAMP or TIMESTAMP_LTZ of up to 6 digits");
    let digits = if matches!(column.data_type, DataType::Timestamp(..)) { 6 } else { 3 };
    Err(Error::plan(code::INVALID_WATERMARK, message).hint(format!(
        "Add a column such as event_time AS CAST({name} AS TIMESTAMP({digits})) and declare the WATERMARK for it."
    )))
}

/// The expression, of the time column's type.
fn watermark_expr(bound: Expr, column: &Column, schema: &DFSchema) -> Result<Expr, Error> {
    let data_type = bound.get_type(schema).map_err(from_datafusion)?;
    let is_time = matches!(data_type, DataType::Timestamp(..) | DataType::Null);
    if !is_time {
        let message = format!(
            "the watermark of \"{}\" must be a timestamp, not {}",
            column.name,
            sql_type_name(&data_type)
        );
        return Err(Error::plan(code::INVALID_WATERMARK, message)
            .hint(format!("Write it as WATERMARK FOR {0} AS {0} - INTERVAL '5' SECOND.", column.name)));
    }
    if !is_deterministic(&bound) {
        let message = format!("the watermark of \"{}\" does not depend on the row alone", column.name);
        return Err(Error::plan(code::INVALID_WATERMARK, message)
            .hint("Use only the columns of the row: results must not depend on when the query runs."));
    }
    Ok(if data_type == column.data_type { bound } else { cast(bound, column.data_type.clone()) })
}

fn interval(
    session: &Arc<Session>,
    expr: Option<&sqlparser::ast::Expr>,
    what: &str,
    clause: Span,
) -> Result<Option<i64>, Error> {
    let Some(expr) = expr else { return Ok(None) };
    use sqlparser::ast::Spanned;
    let span = from_sql_span(expr.span()).unwrap_or(clause);
    let us = interval_us(expr, what, |expr| bind_expression(session, &expr, &DFSchema::empty()))
        .map_err(|error| error.at(span))?;
    if us > 0 {
        return Ok(Some(us));
    }
    Err(Error::plan(code::INVALID_WATERMARK, format!("{what} must be longer than zero"))
        .at(span)
        .hint(format!("Write it as {what} INTERVAL '30' SECOND.")))
}
