//! What the drivers of the corpora share: running a script, and rows as JSON values.

use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int64Type, SchemaRef, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType,
};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use chrono::DateTime;
use serde_json::{Map, Value, json};
use tidegate::Error;
use tidegate::runtime::JobSummary;
use tidegate::session::{Outcome, Session};

/// What a query gave.
pub(crate) struct Answer {
    /// Names of its columns.
    pub(crate) columns: Vec<String>,
    /// Its rows in order: row kind, then the row as an object.
    pub(crate) rows: Vec<(&'static str, Value)>,
    /// The summary at its end.
    pub(crate) summary: JobSummary,
}

/// What a statement came to that gives or writes rows.
pub(crate) enum Step {
    /// A query.
    Query(Result<Answer, Error>),
    /// An insert.
    Insert(Result<JobSummary, Error>),
    /// A statement that failed before anything ran.
    Failed(Error),
}

/// Runs a script statement by statement; an error does not end it.
pub(crate) fn run(session: &mut Session, name: &str, script: &str) -> Vec<Step> {
    let statements = match session.parse(name, script) {
        Ok(statements) => statements,
        Err(error) => return vec![Step::Failed(error)],
    };
    let mut steps = Vec::new();
    for statement in &statements {
        match session.execute(statement) {
            Ok(Outcome::Query(mut query)) => {
                let schema = query.schema().clone();
                let mut rows = Vec::new();
                let answer = loop {
                    match query.next_batch() {
                        Ok(Some(batch)) => {
                            let objects = objects(&batch.rows);
                            match &batch.kinds {
                                Some(kinds) => {
                                    let symbols = kinds.values().iter().map(|kind| kind.symbol());
                                    rows.extend(symbols.zip(objects));
                                }
                                None => rows.extend(objects.into_iter().map(|row| ("+I", row))),
                            }
                        }
                        Ok(None) => {
                            break query.finish().map(|summary| Answer {
                                columns: names(&schema),
                                rows,
                                summary,
                            });
                        }
                        Err(error) => break Err(error),
                    }
                };
                if let Ok(answer) = &answer {
                    assert!(answer.summary.reconciles(), "rows lost without a trace: {:?}", answer.summary);
                }
                steps.push(Step::Query(answer));
            }
            Ok(Outcome::Insert(insert)) => steps.push(Step::Insert(insert.wait())),
            Ok(Outcome::Done(_) | Outcome::Rows(_) | Outcome::Text(_)) => {}
            Err(error) => steps.push(Step::Failed(error)),
        }
    }
    steps
}

fn names(schema: &SchemaRef) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

fn objects(batch: &RecordBatch) -> Vec<Value> {
    let schema = batch.schema();
    let object = |row| {
        let cells = schema.fields().iter().zip(batch.columns());
        Value::Object(cells.map(|(field, column)| (field.name().clone(), cell(column, row))).collect())
    };
    (0..batch.num_rows()).map(object).collect()
}

/// A value as the conformance corpus writes it, so that equal values are equal JSON: fractions of
/// seconds without trailing zeros, decimals too.
fn cell(column: &ArrayRef, row: usize) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    match column.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => json!(column.as_boolean().value(row)),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            let wide = arrow::compute::cast(&column.slice(row, 1), &DataType::Int64).expect("an integer");
            json!(wide.as_primitive::<Int64Type>().value(0))
        }
        DataType::Float32 => float(f64::from(column.as_primitive::<Float32Type>().value(row))),
        DataType::Float64 => float(column.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => json!(column.as_string::<i32>().value(row)),
        DataType::Timestamp(unit, zone) => json!(timestamp(column, row, *unit, zone.is_some())),
        DataType::List(_) => {
            let items = column.as_list::<i32>().value(row);
            Value::Array((0..items.len()).map(|item| cell(&items, item)).collect())
        }
        DataType::Map(_, _) => {
            let entries = column.as_map().value(row);
            let (keys, values) = (entries.column(0), entries.column(1));
            let key = |entry| match cell(keys, entry) {
                Value::String(key) => key,
                other => other.to_string(),
            };
            Value::Object((0..entries.len()).map(|entry| (key(entry), cell(values, entry))).collect())
        }
        DataType::Struct(fields) => {
            let parts = fields.iter().zip(column.as_struct().columns());
            Value::Object(
                parts.map(|(field, part)| (field.name().clone(), cell(part, row))).collect::<Map<_, _>>(),
            )
        }
        DataType::Decimal128(_, _) => json!(trimmed(&shown(column, row))),
        _ => json!(trimmed_time(&shown(column, row))),
    }
}

fn shown(column: &ArrayRef, row: usize) -> String {
    let options = FormatOptions::default();
    ArrayFormatter::try_new(column, &options).expect("can be shown").value(row).to_string()
}

fn float(value: f64) -> Value {
    if value.is_nan() {
        json!("NaN")
    } else if value.is_infinite() {
        json!(if value > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        json!(value)
    }
}

fn timestamp(column: &ArrayRef, row: usize, unit: TimeUnit, zoned: bool) -> String {
    let time = match unit {
        TimeUnit::Second => panic!("TIMESTAMP columns are milliseconds at least"),
        TimeUnit::Millisecond => {
            DateTime::from_timestamp_millis(column.as_primitive::<TimestampMillisecondType>().value(row))
        }
        TimeUnit::Microsecond => {
            DateTime::from_timestamp_micros(column.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        TimeUnit::Nanosecond => {
            Some(DateTime::from_timestamp_nanos(column.as_primitive::<TimestampNanosecondType>().value(row)))
        }
    };
    let time = time.expect("within the calendar").format("%Y-%m-%d %H:%M:%S%.9f").to_string();
    format!("{}{}", trimmed(&time), if zoned { "Z" } else { "" })
}

/// Without zeros at the end of a fraction.
pub(crate) fn trimmed(number: &str) -> String {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        number.to_owned()
    }
}

fn trimmed_time(text: &str) -> String {
    if text.len() > 8 && text.as_bytes()[2] == b':' { trimmed(text) } else { text.to_owned() }
}

/// Whether an error says all of these words, in its message or its hint.
pub(crate) fn says(error: &Error, words: &[String]) -> Result<(), String> {
    let text = format!("{} {}", error.message(), error.hint_text().unwrap_or_default()).to_lowercase();
    match words.iter().find(|word| !text.contains(&word.to_lowercase())) {
        None => Ok(()),
        Some(word) => Err(format!("the error does not say \"{word}\": {error}")),
    }
}

/// The subfolders, by name.
pub(crate) fn folders(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read"))
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().expect("names of cases are text"))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no cases in {}", folder.display());
    names
}
