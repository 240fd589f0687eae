//! Reads the changes of a database's table as Debezium writes them: `before`, `after` and `op`.
//!
//! `c` (create) and `r` (read, of a snapshot) are new rows, `u` is `-U` and `+U`, `d` is `-D`. The change may
//! stand alone or in `payload` beside its `schema`; which one is seen by its keys. A line `null` is a
//! tombstone and no change.
//!
//! A database may leave out how a row was before (PostgreSQL without REPLICA IDENTITY FULL). Where columns
//! tell rows apart, an update without `before` is its new row alone, and of `before` only these columns need
//! be there; otherwise such a change is malformed.
//!
//! Source: Debezium's event format, and Flink's format `debezium-json`.

use super::json_read::JsonReader;
use super::json_scan::{Cursor, SyntaxFault};
use super::rows::{RowFault, Rows};
use crate::error::Error;
use crate::stream::RowKind;

/// Decodes lines of changes.
#[derive(Debug, Clone)]
pub(crate) struct DebeziumReader {
    json: JsonReader,
    is_wrapped: Option<bool>,
    /// Of each column whether `before` may lack it; `None`: nothing tells rows apart.
    may_lack: Option<Vec<bool>>,
}

/// The parts of a change, as their text; `None`: not there, or null.
#[derive(Debug, Default)]
struct Change<'a> {
    before: Option<&'a [u8]>,
    after: Option<&'a [u8]>,
    op: Option<&'a [u8]>,
    payload: Option<&'a [u8]>,
    has_payload: bool,
}

const FULL: &str = "Declare a PRIMARY KEY (…) NOT ENFORCED, so that rows are kept by key; or let the database send \
                    whole rows (PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL).";

impl DebeziumReader {
    /// A reader for the columns of these names. `key`: those that tell rows apart.
    pub(crate) fn new<'a>(
        names: impl Iterator<Item = &'a str> + Clone,
        is_wrapped: Option<bool>,
        key: &[String],
    ) -> Self {
        let may_lack = (!key.is_empty())
            .then(|| names.clone().map(|name| !key.iter().any(|column| column == name)).collect());
        Self { json: JsonReader::new(names, false), is_wrapped, may_lack }
    }

    /// Decodes a line, without its end. Blank lines and tombstones are no rows.
    ///
    /// # Errors
    /// `F002` under the policy `fail`.
    pub(crate) fn line(&mut self, line: &[u8], number: u64, rows: &mut Rows) -> Result<(), Error> {
        match self.change(line, rows) {
            Ok(kinds) => {
                rows.end_change(number, line.len(), kinds);
                Ok(())
            }
            Err(fault) => rows.reject(number, line, fault),
        }
    }

    fn change(&mut self, line: &[u8], rows: &mut Rows) -> Result<&'static [RowKind], RowFault> {
        if let Err(error) = std::str::from_utf8(line) {
            return Err(RowFault::broken(format!("byte {}: not UTF-8", error.valid_up_to() + 1)));
        }
        let text = line.trim_ascii();
        if text.is_empty() || text == b"null" {
            return Ok(&[]);
        }
        let mut change = Change::of(text)?;
        match (self.is_wrapped, change.has_payload && change.op.is_none()) {
            (Some(true) | None, true) => match change.payload {
                // A tombstone in its wrapping.
                None => return Ok(&[]),
                Some(payload) => change = Change::of(payload)?,
            },
            (Some(true), false) => {
                return Err(RowFault::broken("the change has no \"payload\"")
                    .hint("Leave out 'debezium-json.schema-include': both ways are understood."));
            }
            (Some(false), true) => {
                return Err(RowFault::broken("the change stands in a \"payload\"")
                    .hint("Leave out 'debezium-json.schema-include': both ways are understood."));
            }
            (Some(false) | None, false) => {}
        }
        let lacks = |what: &str| Err(RowFault::broken(format!("the change lacks \"{what}\"")));
        let row = rows.len();
        match (change.op, change.before, change.after) {
            (Some(b"c" | b"r"), _, Some(after)) => {
                self.json.object(after, row, None, rows)?;
                Ok(&[RowKind::Insert])
            }
            (Some(b"u"), Some(before), Some(after)) => {
                self.json.object(before, row, self.may_lack.as_deref(), rows)?;
                self.json.object(after, row + 1, None, rows)?;
                Ok(&[RowKind::UpdateBefore, RowKind::UpdateAfter])
            }
            (Some(b"u"), None, Some(after)) if self.may_lack.is_some() => {
                self.json.object(after, row, None, rows)?;
                Ok(&[RowKind::Insert])
            }
            (Some(b"u"), None, Some(_)) => {
                Err(RowFault::broken("an update lacks \"before\": what it changes is not known").hint(FULL))
            }
            (Some(b"d"), Some(before), _) => {
                self.json.object(before, row, self.may_lack.as_deref(), rows)?;
                Ok(&[RowKind::Delete])
            }
            (Some(b"d"), None, _) => {
                Err(RowFault::broken("a deletion lacks \"before\": what is gone is not known").hint(FULL))
            }
            (Some(b"c" | b"r" | b"u"), _, None) => lacks("after"),
            (None, ..) => lacks("op"),
            (Some(op), ..) => Err(RowFault::broken(format!(
                "\"op\" is \"{}\", which changes no row that is known",
                String::from_utf8_lossy(op)
            ))
            .hint("Set 'errors' = 'skip' or 'side' to go on without such changes.")),
        }
    }
}

/// The inside of a text.
fn unquoted(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text)
}

impl<'a> Change<'a> {
    /// The parts of an object. Of equal keys the last one counts.
    fn of(text: &'a [u8]) -> Result<Self, RowFault> {
        let syntax = |fault: SyntaxFault| super::json_read::broken(text, fault);
        let (mut change, mut cursor) = (Self::default(), Cursor::new(text));
        cursor.skip_whitespace();
        cursor.expect(b'{', "a JSON object").map_err(syntax)?;
        cursor.skip_whitespace();
        if cursor.peek() == b'}' {
            cursor.at += 1;
        } else {
            loop {
                let key = cursor.key().map_err(syntax)?;
                let value = cursor.skip_value().map_err(syntax)?;
                let part = Some(value).filter(|value| *value != b"null");
                match key.raw {
                    b"before" => change.before = part,
                    b"after" => change.after = part,
                    b"op" => change.op = part.map(unquoted),
                    b"payload" => (change.payload, change.has_payload) = (part, true),
                    _ => {}
                }
                cursor.skip_whitespace();
                match cursor.peek() {
                    b',' => {
                        cursor.at += 1;
                        cursor.skip_whitespace();
                    }
                    b'}' => {
                        cursor.at += 1;
                        break;
                    }
                    _ => {
                        let expected = "a comma or the end of the object";
                        return Err(syntax(SyntaxFault { at: cursor.at, expected }));
                    }
                }
            }
        }
        cursor.skip_whitespace();
        if cursor.at != text.len() {
            return Err(syntax(SyntaxFault { at: cursor.at, expected: "the end of the line" }));
        }
        Ok(change)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;
    use crate::connector::format::column::TimeRules;
    use crate::connector::format::rows::OnError;
    use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};

    /// What lines give: rows as `id,name`, what they do, and why lines were rejected.
    fn read(
        lines: &[&str],
        is_wrapped: Option<bool>,
        key: &[&str],
    ) -> (Vec<String>, Vec<RowKind>, Vec<String>) {
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("name", DataType::Utf8, false),
        ]);
        let mut rows = Rows::new("x", &schema, TimeRules::default(), OnError::Skip, 100).unwrap();
        let key: Vec<String> = key.iter().map(|column| (*column).to_owned()).collect();
        let mut reader = DebeziumReader::new(["id", "name"].into_iter(), is_wrapped, &key);
        for (number, line) in lines.iter().enumerate() {
            reader.line(line.as_bytes(), number as u64 + 1, &mut rows).unwrap();
        }
        let count = rows.len();
        let kinds = rows.take_kinds().map(|kinds| kinds.values().to_vec());
        let (columns, _, rejected) = rows.take().unwrap();
        let (ids, names) = (columns[0].as_primitive::<Int64Type>(), columns[1].as_string::<i32>());
        assert_eq!((ids.null_count(), names.null_count()), (0, 0));
        let texts = (0..count).map(|row| format!("{},{}", ids.value(row), names.value(row))).collect();
        let reasons = rejected.into_iter().map(|row| format!("{}: {}", row.line, row.reason)).collect();
        (texts, kinds.unwrap_or_else(|| vec![Insert; count]), reasons)
    }

    const ALL: [&str; 4] = [
        r#"{"before":null,"after":{"id":1,"name":"a"},"op":"c","ts_ms":5}"#,
        r#"{"op":"r","after":{"id":2,"name":"b"},"source":{"op":"x","after":7}}"#,
        r#"{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"c"},"op":"u"}"#,
        r#"{"before":{"id":2,"name":"b"},"after":null,"op":"d"}"#,
    ];

    #[test]
    fn each_operation_alone_and_in_a_payload() {
        let rows = ["1,a", "2,b", "1,a", "1,c", "2,b"];
        let kinds = [Insert, Insert, UpdateBefore, UpdateAfter, Delete];
        let wrapped: Vec<String> = ALL
            .iter()
            .map(|line| format!("{{\"schema\":{{\"type\":\"struct\"}},\"payload\":{line}}}"))
            .collect();
        let wrapped: Vec<&str> = wrapped.iter().map(String::as_str).collect();
        for (lines, is_wrapped) in [
            (ALL.as_slice(), None),
            (ALL.as_slice(), Some(false)),
            (wrapped.as_slice(), None),
            (wrapped.as_slice(), Some(true)),
        ] {
            let (given, does, rejected) = read(lines, is_wrapped, &[]);
            assert_eq!(
                (given.as_slice(), does.as_slice()),
                (rows.map(str::to_owned).as_slice(), kinds.as_slice())
            );
            assert_eq!(rejected, Vec::<String>::new());
        }
        assert_eq!(read(&ALL[..1], Some(true), &[]).2, ["1: the change has no \"payload\""]);
        assert_eq!(read(&wrapped[..1], Some(false), &[]).2, ["1: the change stands in a \"payload\""]);
    }

    #[test]
    fn tombstones_and_blank_lines_are_no_changes() {
        let lines = ["null", "", "  ", r#"{"schema":null,"payload":null}"#];
        let (rows, _, rejected) = read(&lines, None, &[]);
        assert_eq!((rows.len(), rejected.len()), (0, 0));
    }

    #[test]
    fn without_before_only_a_key_helps() {
        let update = r#"{"before":null,"after":{"id":1,"name":"a"},"op":"u"}"#;
        let delete = r#"{"before":{"id":1},"after":null,"op":"d"}"#;
        let moved = r#"{"before":{"id":1,"name":null},"after":{"id":2,"name":"a"},"op":"u"}"#;
        let (rows, kinds, rejected) = read(&[update, moved, delete], None, &["id"]);
        assert_eq!(rows, ["1,a", "1,", "2,a", "1,"]);
        assert_eq!(kinds, [Insert, UpdateBefore, UpdateAfter, Delete]);
        assert_eq!(rejected, Vec::<String>::new());
        let (rows, _, rejected) = read(&[update, moved, delete], None, &[]);
        assert_eq!(rows, Vec::<String>::new());
        assert_eq!(
            rejected,
            [
                "1: an update lacks \"before\": what it changes is not known",
                "2: column \"name\": NULL in a NOT NULL column",
                "3: column \"name\": NULL in a NOT NULL column",
            ]
        );
        let keyless = r#"{"before":{"name":"a"},"op":"d"}"#;
        assert_eq!(read(&[keyless], None, &["id"]).2, ["1: column \"id\": NULL in a NOT NULL column"]);
    }

    #[test]
    fn what_is_no_change_is_rejected_and_leaves_nothing() {
        let lines = [
            r#"{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"#,
            r#"{"before":{"id":1,"name":"a"},"after":{"id":"x","name":"c"},"op":"u"}"#,
            r#"{"after":{"id":1,"name":"a"}}"#,
            r#"{"op":"t"}"#,
            r#"{"op":"c"}"#,
            r#"{"op":"d"}"#,
            "[1]",
            ALL[0],
        ];
        let (rows, kinds, rejected) = read(&lines, None, &[]);
        assert_eq!((rows, kinds), (vec!["1,a".to_owned()], vec![Insert]));
        assert_eq!(rejected.len(), 7);
        assert!(rejected[1].contains("\"x\""), "{}", rejected[1]);
        assert_eq!(rejected[2], "3: the change lacks \"op\"");
        assert_eq!(rejected[3], "4: \"op\" is \"t\", which changes no row that is known");
        assert_eq!(rejected[4], "5: the change lacks \"after\"");
        assert_eq!(rejected[5], "6: a deletion lacks \"before\": what is gone is not known");
    }
}
