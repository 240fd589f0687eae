//! `SHOW`, `DESCRIBE` and `SHOW CREATE`: relations as rows and as SQL.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::Jobs;
use super::settings::Settings;
use crate::catalog::{Catalog, Column, ColumnKind, Relation, Table, View, WatermarkSpec};
use crate::error::Error;
use crate::plan::{Planner, sql_type_name};
use crate::sql::{self, SpannedStatement, Statement};

/// Columns of text that is never NULL.
pub(super) fn texts(columns: &[(&str, Vec<String>)]) -> Result<RecordBatch, Error> {
    let column = |(name, values): &(&str, Vec<String>)| {
        let values: ArrayRef = Arc::new(StringArray::from_iter_values(values));
        (Field::new(*name, DataType::Utf8, false), values)
    };
    rows(columns.iter().map(column).collect())
}

fn rows(columns: Vec<(Field, ArrayRef)>) -> Result<RecordBatch, Error> {
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .map_err(|error| Error::internal("session", error))
}

/// `SET` without anything: key, value, about.
pub(super) fn settings(settings: &Settings) -> Result<RecordBatch, Error> {
    let (mut keys, mut values, mut about) = (Vec::new(), Vec::new(), Vec::new());
    for (info, value) in settings.entries() {
        keys.push(info.key.to_owned());
        values.push(value);
        about.push(info.about.to_owned());
    }
    texts(&[("key", keys), ("value", values), ("about", about)])
}

/// `SHOW JOBS`: job, name, state, rows_in, verdict; the oldest first.
pub(super) fn jobs(jobs: &Jobs) -> Result<RecordBatch, Error> {
    let jobs = jobs.status();
    let column = |read: &dyn Fn(&super::JobStatus) -> String| jobs.iter().map(read).collect::<Vec<_>>();
    let rows =
        |job: &super::JobStatus| job.snapshot.sources.iter().map(|source| source.rows_read).sum::<u64>();
    texts(&[
        ("job", column(&|job| job.number.to_string())),
        ("name", column(&|job| job.name.clone())),
        ("state", column(&|job| job.state.name().to_owned())),
        ("rows_in", column(&|job| rows(job).to_string())),
        ("verdict", column(&|job| job.diagnosis.verdict.clone())),
    ])
}

/// `DESCRIBE`: name, type, null, key, extras, watermark; one row a column.
pub(super) fn columns(
    relation: &Relation,
    planner: &Planner,
    catalog: &Catalog,
) -> Result<RecordBatch, Error> {
    let (mut names, mut types, mut nullable) = (Vec::new(), Vec::new(), Vec::new());
    let (mut keys, mut extras, mut watermarks) = (Vec::new(), Vec::new(), Vec::new());
    match relation {
        Relation::Table(table) => {
            for column in &table.columns {
                names.push(column.name.clone());
                types.push(sql_type_name(&column.data_type));
                nullable.push(column.nullable);
                keys.push(primary_key(table, column));
                extras.push(extra(column));
                let watermark = table.watermark.as_ref().filter(|watermark| watermark.column == column.name);
                watermarks.push(watermark.map(watermark_clause));
            }
        }
        Relation::View(view) => {
            for field in view_schema(view, planner, catalog)?.fields() {
                names.push(field.name().clone());
                types.push(sql_type_name(field.data_type()));
                nullable.push(field.is_nullable());
                keys.push(None);
                extras.push(None);
                watermarks.push(None);
            }
        }
    }
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    rows(vec![
        (text("name"), Arc::new(StringArray::from(names)) as ArrayRef),
        (text("type"), Arc::new(StringArray::from(types))),
        (Field::new("null", DataType::Boolean, true), Arc::new(BooleanArray::from(nullable))),
        (text("key"), Arc::new(StringArray::from(keys))),
        (text("extras"), Arc::new(StringArray::from(extras))),
        (text("watermark"), Arc::new(StringArray::from(watermarks))),
    ])
}

/// The columns of a view: those of a query that reads all of it.
fn view_schema(view: &View, planner: &Planner, catalog: &Catalog) -> Result<SchemaRef, Error> {
    let statements = sql::parse(&format!("SELECT * FROM {}", quoted(&view.name)))?;
    let [SpannedStatement { statement: Statement::Query(query), .. }] = statements.as_slice() else {
        return Err(Error::internal("session", "a query over a view is no query"));
    };
    let plan = planner.plan_query(query, catalog)?;
    match plan.sinks.first().and_then(|&id| plan.nodes.get(id)) {
        Some(sink) => Ok(Arc::clone(&sink.schema)),
        None => Err(Error::internal("session", "a query's plan has no sink")),
    }
}

fn primary_key(table: &Table, column: &Column) -> Option<String> {
    table.primary_key.contains(&column.name).then(|| format!("PRI({})", table.primary_key.join(", ")))
}

fn extra(column: &Column) -> Option<String> {
    match &column.kind {
        ColumnKind::Physical => None,
        ColumnKind::Computed { sql, .. } => Some(format!("AS {sql}")),
        ColumnKind::ProcessingTime => Some("AS PROCTIME()".to_owned()),
        ColumnKind::Metadata { key, is_virtual } => Some(metadata_clause(key, *is_virtual)),
    }
}

fn metadata_clause(key: &str, is_virtual: bool) -> String {
    format!("METADATA FROM {}{}", literal(key), if is_virtual { " VIRTUAL" } else { "" })
}

/// What follows `WATERMARK FOR column AS`.
fn watermark_clause(watermark: &WatermarkSpec) -> String {
    let mut clause = watermark.sql.clone();
    if let Some(idle_us) = watermark.idle_after_us {
        let _ = write!(clause, " IDLE AFTER {}", interval(idle_us));
        if watermark.then_advance {
            clause.push_str(" THEN ADVANCE");
        }
    }
    if let Some(ahead_us) = watermark.max_ahead_us {
        let _ = write!(clause, " MAX AHEAD {}", interval(ahead_us));
    }
    clause
}

/// SQL that creates the relation again.
pub(super) fn create_statement(relation: &Relation) -> String {
    match relation {
        Relation::Table(table) => create_table(table),
        Relation::View(view) => create_view(view),
    }
}

fn create_table(table: &Table) -> String {
    let mut items: Vec<String> = table.columns.iter().map(column_definition).collect();
    if let Some(watermark) = &table.watermark {
        items.push(format!("WATERMARK FOR {} AS {}", quoted(&watermark.column), watermark_clause(watermark)));
    }
    if !table.primary_key.is_empty() {
        let key: Vec<_> = table.primary_key.iter().map(|name| quoted(name)).collect();
        items.push(format!("PRIMARY KEY ({}) NOT ENFORCED", key.join(", ")));
    }
    let option = |key: &str, value: &str| format!("{} = {}", literal(key), literal(value));
    // A table whose columns were read from its data may have no connector of its own.
    let connector = table.options.get("connector").is_none().then(|| option("connector", &table.connector));
    let options: Vec<_> = connector
        .into_iter()
        .chain(table.options.entries().iter().map(|entry| option(&entry.key, &entry.value)))
        .collect();
    let temporary = if table.temporary { "TEMPORARY " } else { "" };
    format!(
        "CREATE {temporary}TABLE {} (\n  {}\n) WITH (\n  {}\n);",
        quoted(&table.name),
        items.join(",\n  "),
        options.join(",\n  ")
    )
}

fn column_definition(column: &Column) -> String {
    let name = quoted(&column.name);
    let sql_type = sql_type_name(&column.data_type);
    let not_null = if column.nullable { "" } else { " NOT NULL" };
    match &column.kind {
        ColumnKind::Physical => format!("{name} {sql_type}{not_null}"),
        ColumnKind::Computed { sql, .. } => format!("{name} AS {sql}"),
        ColumnKind::ProcessingTime => format!("{name} AS PROCTIME()"),
        ColumnKind::Metadata { key, is_virtual } => {
            format!("{name} {sql_type}{not_null} {}", metadata_clause(key, *is_virtual))
        }
    }
}

fn create_view(view: &View) -> String {
    let temporary = if view.temporary { "TEMPORARY " } else { "" };
    let columns: Vec<_> = view.columns.iter().map(|name| quoted(name)).collect();
    let columns = if columns.is_empty() { String::new() } else { format!(" ({})", columns.join(", ")) };
    format!("CREATE {temporary}VIEW {}{columns} AS\n{};", quoted(&view.name), view.sql)
}

/// An identifier in quotes.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A text in quotes.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// An interval of seconds, exact to the microsecond.
fn interval(us: i64) -> String {
    let (seconds, fraction) = (us / 1_000_000, us % 1_000_000);
    match fraction {
        0 => format!("INTERVAL '{seconds}' SECOND"),
        _ => {
            let digits = format!("{fraction:06}");
            format!("INTERVAL '{seconds}.{}' SECOND", digits.trim_end_matches('0'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_exact() {
        assert_eq!(interval(30_000_000), "INTERVAL '30' SECOND");
        assert_eq!(interval(1_000), "INTERVAL '0.001' SECOND");
        assert_eq!(interval(90_500_000), "INTERVAL '90.5' SECOND");
    }

    #[test]
    fn quotes_are_doubled() {
        assert_eq!(quoted("a`b"), "`a``b`");
        assert_eq!(literal("it's"), "'it''s'");
    }
}
