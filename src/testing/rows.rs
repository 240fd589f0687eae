//! Rows as lines of a test file: one object of JSON a row, compared by value.

use std::collections::BTreeMap;
use std::fmt;

use arrow::datatypes::{DataType, Schema};
use serde_json::{Deserializer, Value};

use super::time::show;
use crate::connector::format::options::TimeStyle;
use crate::connector::format::time_text::parse_timestamp;
use crate::connector::format::{JsonLines, JsonStyle};
use crate::error::Error;
use crate::stream::{RowKind, StreamBatch};

/// A row in the form that is compared: its kind, and its columns in order, each value in one form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    /// `+I`, `-U`, `+U` or `-D`.
    kind: &'static str,
    json: String,
}

impl fmt::Display for Row {
    /// Without the kind where nothing else is to be expected.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            "+I" => f.write_str(&self.json),
            kind => write!(f, "{kind} {}", self.json),
        }
    }
}

impl Row {
    /// The row with its kind, for the rows of a query that changes them.
    pub(super) fn with_kind(&self) -> String {
        format!("{} {}", self.kind, self.json)
    }
}

const KINDS: [RowKind; 4] = [RowKind::Insert, RowKind::UpdateBefore, RowKind::UpdateAfter, RowKind::Delete];

/// Whether a line of a test file is a row.
pub(super) fn is_row(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with('{') || KINDS.iter().any(|kind| line.starts_with(kind.symbol()))
}

/// The rows of a batch.
pub(super) fn rows_of(batch: &StreamBatch) -> Result<Vec<Row>, Error> {
    let schema = batch.rows.schema();
    let mut text = Vec::new();
    let mut writer = JsonLines::with_times(&schema, JsonStyle::Rows, TimeStyle::Text(b' '));
    writer.write(batch, &mut text)?;
    let fault = |why: String| Error::internal("testing", why);
    let text = String::from_utf8(text).map_err(|error| fault(error.to_string()))?;
    let kinds = batch.kinds.as_ref().map(|kinds| kinds.values());
    let row = |(index, line): (usize, &str)| {
        let kind = kinds.map_or(RowKind::Insert, |kinds| kinds[index]);
        Ok(Row { kind: kind.symbol(), json: one_form(line, &schema).map_err(fault)? })
    };
    text.lines().enumerate().map(row).collect()
}

/// A row that a test file expects. The reason if it can't be one.
pub(super) fn expected_row(line: &str, schema: &Schema) -> Result<Row, String> {
    let line = line.trim();
    let kind = KINDS.iter().find(|kind| line.starts_with(kind.symbol())).map(|kind| kind.symbol());
    let json = kind.map_or(line, |kind| &line[kind.len()..]);
    Ok(Row { kind: kind.unwrap_or("+I"), json: one_form(json.trim(), schema)? })
}

/// An object with exactly the columns of the schema, in their order, each value in its one form.
fn one_form(json: &str, schema: &Schema) -> Result<String, String> {
    let values = members(json)?;
    if let Some(name) = values.keys().find(|name| schema.index_of(name).is_err()) {
        return Err(format!("there is no column \"{name}\""));
    }
    let mut out = String::from("{");
    for field in schema.fields() {
        let name = field.name();
        let value = values.get(name).ok_or_else(|| format!("the row has no column \"{name}\""))?;
        if out.len() > 1 {
            out.push(',');
        }
        let value = value_form(value, field.data_type())?;
        out.push_str(&format!("{}:{value}", Value::from(name.as_str())));
    }
    out.push('}');
    Ok(out)
}

/// The members of an object as they are written: a number with all its digits.
fn members(json: &str) -> Result<BTreeMap<String, &str>, String> {
    let fault = |why: &str| format!("this is no row: {why}");
    let mut rest = json.strip_prefix('{').ok_or_else(|| fault("it begins with no \"{\""))?.trim_start();
    let mut members = BTreeMap::new();
    while rest.strip_prefix('}').is_none() {
        let (name, after) = first_value(rest).map_err(|why| fault(&why))?;
        let name: String = serde_json::from_str(name).map_err(|error| fault(&error.to_string()))?;
        let after = after.strip_prefix(':').ok_or_else(|| fault("a name is followed by no \":\""))?;
        let (value, after) = first_value(after.trim_start()).map_err(|why| fault(&why))?;
        if members.insert(name.clone(), value).is_some() {
            return Err(fault(&format!("it has two \"{name}\"")));
        }
        rest = match after.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if after.starts_with('}') => after,
            None => return Err(fault("a value is followed by no \",\" and no \"}\"")),
        };
    }
    match rest {
        "}" => Ok(members),
        _ => Err(fault("something follows it")),
    }
}

/// The text of the first value, and what follows it.
fn first_value(text: &str) -> Result<(&str, &str), String> {
    let mut values = Deserializer::from_str(text).into_iter::<Value>();
    match values.next() {
        Some(Ok(_)) => {
            let (value, rest) = text.split_at(values.byte_offset());
            Ok((value.trim_end(), rest.trim_start()))
        }
        Some(Err(error)) => Err(error.to_string()),
        None => Err("it is not closed".to_owned()),
    }
}

fn value_form(raw: &str, data_type: &DataType) -> Result<String, String> {
    if raw.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        return Ok(number_form(raw).to_owned());
    }
    let value: Value = serde_json::from_str(raw).map_err(|error| error.to_string())?;
    if let (Value::String(text), DataType::Timestamp(_, zone)) = (&value, data_type)
        && let Some(reading) = parse_timestamp(text.as_bytes())
    {
        let seconds = reading.seconds - i64::from(reading.offset.unwrap_or(0));
        let end = if zone.is_some() && reading.offset.is_some() { "Z" } else { "" };
        return Ok(format!("\"{}{end}\"", show(seconds, reading.nanos)));
    }
    Ok(value.to_string())
}

/// A number without zeros at the end of its fraction.
fn number_form(raw: &str) -> &str {
    if raw.contains(['e', 'E']) || !raw.contains('.') {
        return raw;
    }
    raw.trim_end_matches('0').trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, TimeUnit};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
            Field::new("z", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), true),
            Field::new("n", DataType::Decimal128(20, 2), true),
            Field::new("s", DataType::Utf8, true),
        ])
    }

    fn shown(line: &str) -> Result<String, String> {
        expected_row(line, &schema()).map(|row| row.to_string())
    }

    #[test]
    fn values_have_one_form() {
        let one = r#"{"t":"2024-05-01 09:00:00","z":"2024-05-01 09:00:00.5Z","n":1.5,"s":"2024-05-01T09:00:00.000"}"#;
        assert_eq!(shown(one).as_deref(), Ok(one));
        let other = r#" { "s": "2024-05-01T09:00:00.000", "n":1.50, "t": "2024-05-01T09:00:00.000",
            "z":"2024-05-01T11:00:00.500+02:00"}"#;
        assert_eq!(shown(&other.replace('\n', " ")).as_deref(), Ok(one));
    }

    #[test]
    fn large_numbers_keep_their_digits() {
        let row = r#"{"t":null,"z":null,"n":123456789012345678.25,"s":"\u00e9"}"#;
        assert_eq!(shown(row).unwrap(), r#"{"t":null,"z":null,"n":123456789012345678.25,"s":"é"}"#);
    }

    #[test]
    fn what_is_no_row_of_the_query_says_why() {
        for (line, why) in [
            (r#"{"t":null,"z":null,"n":1}"#, "no column \"s\""),
            (r#"{"t":null,"z":null,"n":1,"s":"","x":1}"#, "no column \"x\""),
            ("{1}", "no row"),
            (r#"{"t":null,"t":1}"#, "two \"t\""),
            (r#"{"t":null"#, "no row"),
            (r#"{"t":null} x"#, "follows"),
            (r#"{"t":nul}"#, "no row"),
        ] {
            assert!(shown(line).unwrap_err().contains(why), "{line}");
        }
    }

    #[test]
    fn kinds_stand_before_the_row() {
        let row = expected_row(r#"-U {"t":null,"z":null,"n":1,"s":""}"#, &schema()).unwrap();
        assert_eq!(row.to_string(), r#"-U {"t":null,"z":null,"n":1,"s":""}"#);
        assert!(is_row("-U {}") && is_row("{}") && !is_row("push t") && !is_row("SELECT"));
    }
}
