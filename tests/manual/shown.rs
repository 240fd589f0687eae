//! What statements give, as the command line shows it, and whether it is what a page says.

use arrow::array::Array;
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidegate::Error;
use tidegate::connector::format::{JsonLines, JsonStyle};
use tidegate::session::{Outcome, Session};
use tidegate::stream::{Fold, StreamBatch};

/// What errors call the blocks of the manual.
pub(crate) const NAME: &str = "manual.sql";

/// How rows are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A frame with the final rows.
    Table,
    /// Lines of JSON with the final rows.
    Json,
    /// Lines of JSON with each change.
    Changes,
}

impl Form {
    /// The form in which a page shows its rows.
    pub(crate) fn of(text: &str) -> Self {
        match text.trim_start() {
            text if text.starts_with("{\"op\"") => Self::Changes,
            text if text.starts_with('{') => Self::Json,
            _ => Self::Table,
        }
    }
}

/// Runs a script; gives what it shows, a text for each result. Queries are stopped after `most_rows`.
///
/// # Errors
/// The first error, as people read it.
pub(crate) fn run(
    session: &mut Session,
    script: &str,
    form: Form,
    most_rows: Option<usize>,
) -> Result<Vec<String>, Error> {
    let mut shown = Vec::new();
    for statement in session.parse(NAME, script)? {
        match session.execute(&statement)? {
            Outcome::Done(_) => {}
            Outcome::Rows(rows) => shown.push(table(&rows.schema(), &[rows])),
            Outcome::Text(text) => shown.push(text),
            Outcome::Insert(insert) => {
                let summary = insert.wait()?;
                assert!(summary.reconciles(), "rows lost without a trace: {summary:?}");
            }
            Outcome::Query(mut query) => {
                let schema = SchemaRef::clone(query.schema());
                let is_updating = query.is_updating();
                let mut batches = Vec::new();
                let mut room = most_rows.unwrap_or(usize::MAX);
                while let Some(batch) = query.next_batch()? {
                    room = room.saturating_sub(batch.num_rows());
                    batches.push(batch);
                    if room == 0 {
                        query.job().stop();
                    }
                }
                let summary = query.finish()?;
                assert!(summary.reconciles(), "rows lost without a trace: {summary:?}");
                shown.push(rows(&schema, batches, is_updating, form)?);
            }
        }
    }
    Ok(shown)
}

fn rows(
    schema: &SchemaRef,
    batches: Vec<StreamBatch>,
    is_updating: bool,
    form: Form,
) -> Result<String, Error> {
    if form == Form::Changes {
        return json(schema, &batches, JsonStyle::Changelog);
    }
    let batches = match is_updating {
        false => batches,
        true => {
            let mut fold = Fold::try_new(schema)?;
            batches.iter().try_for_each(|batch| fold.apply(batch))?;
            let now = std::time::Instant::now();
            fold.batches(8_192)?.into_iter().map(|rows| StreamBatch::inserts(rows, now)).collect()
        }
    };
    match form {
        Form::Table => Ok(table(schema, &batches.into_iter().map(|batch| batch.rows).collect::<Vec<_>>())),
        _ => json(schema, &batches, JsonStyle::Rows),
    }
}

fn json(schema: &SchemaRef, batches: &[StreamBatch], style: JsonStyle) -> Result<String, Error> {
    let mut lines = JsonLines::new(schema, style);
    let mut bytes = Vec::new();
    for batch in batches {
        lines.write(batch, &mut bytes)?;
    }
    Ok(String::from_utf8(bytes).expect("JSON is text"))
}

/// A frame as the command line draws it; the console blocks of the manual see to it that they agree.
fn table(schema: &SchemaRef, batches: &[RecordBatch]) -> String {
    let mut lines = vec![schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>()];
    for batch in batches {
        lines.extend(
            (0..batch.num_rows())
                .map(|row| batch.columns().iter().map(|column| value(column.as_ref(), row)).collect()),
        );
    }
    let columns = schema.fields().len();
    let width = |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let rule: String =
        widths.iter().map(|width| format!("+{:-<1$}", "", width + 2)).collect::<String>() + "+\n";
    let mut text = rule.clone();
    for (index, cells) in lines.iter().enumerate() {
        for ((cell, width), field) in cells.iter().zip(&widths).zip(schema.fields()) {
            text += &match field.data_type().is_numeric() {
                true => format!("| {cell:>width$} "),
                false => format!("| {cell:width$} "),
            };
        }
        text += "|\n";
        if index == 0 {
            text += &rule;
        }
    }
    text + &rule
}

/// A value as a cell of a table.
pub(crate) fn value(column: &dyn Array, row: usize) -> String {
    let (plain, zoned) = match column.data_type() {
        DataType::Timestamp(TimeUnit::Millisecond, _) => ("%Y-%m-%d %H:%M:%S%.3f", "%Y-%m-%d %H:%M:%S%.3fZ"),
        DataType::Timestamp(TimeUnit::Microsecond, _) => ("%Y-%m-%d %H:%M:%S%.6f", "%Y-%m-%d %H:%M:%S%.6fZ"),
        _ => ("%Y-%m-%d %H:%M:%S%.9f", "%Y-%m-%d %H:%M:%S%.9fZ"),
    };
    let options = FormatOptions::new()
        .with_null("NULL")
        .with_timestamp_format(Some(plain))
        .with_timestamp_tz_format(Some(zoned))
        .with_time_format(Some("%H:%M:%S%.f"));
    if column.logical_nulls().is_some_and(|nulls| nulls.is_null(row)) {
        return "NULL".to_owned();
    }
    ArrayFormatter::try_new(column, &options).expect("can be shown").value(row).to_string()
}

/// Whether a text is as a page says: line by line; `…` stands for anything in a line, and a line of it alone
/// for any number of lines.
pub(crate) fn is_as_said(said: &str, shown: &str) -> bool {
    let lines = |text: &str| -> Vec<String> {
        text.trim_matches('\n').lines().map(|line| line.trim_end().to_owned()).collect()
    };
    lines_match(&lines(said), &lines(shown))
}

fn lines_match(said: &[String], shown: &[String]) -> bool {
    match said.split_first() {
        None => shown.is_empty(),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=shown.len()).any(|skipped| lines_match(rest, &shown[skipped..]))
        }
        Some((first, rest)) => match shown.split_first() {
            Some((line, others)) => line_matches(first, line) && lines_match(rest, others),
            None => false,
        },
    }
}

fn line_matches(said: &str, shown: &str) -> bool {
    let mut parts = said.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = shown.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(place) => rest = &rest[place + part.len()..],
            None => return false,
        }
    }
    true
}

#[test]
fn an_ellipsis_stands_for_anything() {
    assert!(is_as_said("a\n…\nd\n", "a\nb\nc\nd\n") && is_as_said("a\n…\n", "a\n"));
    assert!(is_as_said("1 row in … ms", "1 row in 84 ms") && is_as_said("…", ""));
    assert!(!is_as_said("a\n…\nd\n", "a\nb\n") && !is_as_said("a … b … c", "a x b"));
    assert!(!is_as_said("a", "a b") && !is_as_said("a", "a\nb"));
}
