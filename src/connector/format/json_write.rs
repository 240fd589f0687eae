//! Writes JSON, one object a line.

use arrow::datatypes::{Schema, SchemaRef};

use super::cell::{Cells, json_key};
use super::options::TimeStyle;
use crate::error::Error;
use crate::stream::{RowKind, StreamBatch};

/// What a line holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonStyle {
    /// `{"a":1,"b":"x"}`: the row.
    Rows,
    /// `{"op":"+I","row":{"a":1,"b":"x"}}`: what happens to the result, and the row.
    Changelog,
}

/// Writes rows as JSON, one object a line.
///
/// Columns keep their order; NULL is `null`. Timestamps are ISO 8601 (`2024-03-05T00:00:10.000`,
/// with `Z` for instants), decimals are numbers with all their digits, NaN and infinities and dates
/// are strings, BYTES are base64, MAP and ROW are objects.
#[derive(Debug, Clone)]
pub struct JsonLines {
    /// What stands before each value: `{"a":`, then `,"b":`, ….
    leads: Vec<Vec<u8>>,
    style: JsonStyle,
    time: TimeStyle,
}

impl JsonLines {
    /// A writer of rows of this schema.
    pub fn new(schema: &SchemaRef, style: JsonStyle) -> Self {
        Self::with_times(schema, style, TimeStyle::Text(b'T'))
    }

    pub(crate) fn with_times(schema: &Schema, style: JsonStyle, time: TimeStyle) -> Self {
        let leads = schema.fields().iter().enumerate().map(|(index, field)| {
            let mut lead = vec![if index == 0 { b'{' } else { b',' }];
            lead.extend(json_key(field.name()));
            lead
        });
        Self { leads: leads.collect(), style, time }
    }

    /// Appends the rows of a batch, each with a line end.
    ///
    /// # Errors
    /// An internal error for a column type that has no JSON form.
    pub fn write(&mut self, batch: &StreamBatch, out: &mut Vec<u8>) -> Result<(), Error> {
        let cells = batch.rows.columns().iter().map(|column| Cells::new(column.as_ref(), self.time));
        let cells = cells.collect::<Result<Vec<_>, _>>()?;
        let kinds = batch.kinds.as_ref().map(|kinds| kinds.values());
        for row in 0..batch.num_rows() {
            if self.style == JsonStyle::Changelog {
                let kind = kinds.map_or(RowKind::Insert, |kinds| kinds[row]);
                out.extend_from_slice(b"{\"op\":\"");
                out.extend_from_slice(kind.symbol().as_bytes());
                out.extend_from_slice(b"\",\"row\":");
            }
            if cells.is_empty() {
                out.push(b'{');
            }
            for (lead, cells) in self.leads.iter().zip(&cells) {
                out.extend_from_slice(lead);
                cells.push_json(row, out);
            }
            out.extend_from_slice(if self.style == JsonStyle::Changelog { b"}}\n" } else { b"}\n" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use arrow::array::{
        ArrayRef, BinaryArray, Date32Array, Decimal128Array, Float64Array, RecordBatch, StringArray,
        TimestampMillisecondArray,
    };

    use super::*;
    use crate::stream::RowKinds;

    fn lines(columns: Vec<(&str, ArrayRef)>, style: JsonStyle, kinds: Option<Vec<RowKind>>) -> String {
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let mut writer = JsonLines::new(&rows.schema(), style);
        let mut batch = StreamBatch::inserts(rows, Instant::now());
        batch.kinds = kinds.map(RowKinds::new);
        let mut out = Vec::new();
        writer.write(&batch, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_contract_of_the_command_line() {
        let decimals = Decimal128Array::from(vec![100]).with_precision_and_scale(6, 2).unwrap();
        let instant = TimestampMillisecondArray::from(vec![1_709_596_810_000]).with_timezone("Europe/Berlin");
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("z", Arc::new(TimestampMillisecondArray::from(vec![1_709_596_810_000]))),
            ("a\"", Arc::new(instant)),
            ("p", Arc::new(decimals)),
            ("n", Arc::new(StringArray::from(vec![None::<&str>]))),
            ("s", Arc::new(StringArray::from(vec!["\"\\\n\u{1}é😀/"]))),
            ("f", Arc::new(Float64Array::from(vec![f64::NAN]))),
            ("g", Arc::new(Float64Array::from(vec![1.0]))),
            ("d", Arc::new(Date32Array::from(vec![-1]))),
            ("b", Arc::new(BinaryArray::from(vec![&b"foo"[..]]))),
        ];
        assert_eq!(
            lines(columns, JsonStyle::Rows, None),
            concat!(
                r#"{"z":"2024-03-05T00:00:10.000","a\"":"2024-03-05T00:00:10.000Z","p":1.00,"n":null,"#,
                r#""s":"\"\\\n\u0001é😀/","f":"NaN","g":1.0,"d":"1969-12-31","b":"Zm9v"}"#,
                "\n"
            )
        );
    }

    #[test]
    fn changelogs() {
        let columns =
            || -> Vec<(&str, ArrayRef)> { vec![("k", Arc::new(StringArray::from(vec!["a", "b"])))] };
        assert_eq!(
            lines(columns(), JsonStyle::Changelog, Some(vec![RowKind::UpdateAfter, RowKind::Delete])),
            "{\"op\":\"+U\",\"row\":{\"k\":\"a\"}}\n{\"op\":\"-D\",\"row\":{\"k\":\"b\"}}\n"
        );
        assert!(lines(columns(), JsonStyle::Changelog, None).starts_with("{\"op\":\"+I\""));
    }
}
