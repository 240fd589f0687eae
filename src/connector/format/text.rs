//! Text formats behind one door: bytes in, in pieces of any size, rows out.

use arrow::datatypes::{DataType, Schema};
use serde_json::{Value, json};

use super::csv_read::{CsvOptions, CsvReader};
use super::debezium::DebeziumReader;
use super::json_read::JsonReader;
use super::raw;
use super::rows::Rows;
use crate::connector::position::Position;
use crate::error::Error;

/// A format that is read as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TextFormat {
    Json {
        fail_on_missing: bool,
    },
    /// `is_wrapped`: whether changes stand in a `payload` beside their `schema`; `None`: either.
    Debezium {
        is_wrapped: Option<bool>,
    },
    Csv(CsvOptions),
    Raw,
}

/// Decodes the text of one split. Knows the number of the line it is in.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    format: Reader,
    split: String,
    line: u64,
    started: bool,
    /// Bytes of an unfinished line that are known to have no line end.
    searched: usize,
    checked: Checked,
}

/// The first bytes of what is to be decoded, which were looked at.
#[derive(Debug, Clone, Copy, Default)]
struct Checked {
    bytes: usize,
    /// They are whole lines of valid UTF-8.
    is_text: bool,
}

#[derive(Debug, Clone)]
enum Reader {
    Json(JsonReader),
    Debezium(DebeziumReader),
    Csv(CsvReader),
    Raw { is_text: bool },
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Decoder {
    /// The number of the line that comes next.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// What a person knows the split by.
    pub(crate) fn split(&self) -> &str {
        &self.split
    }

    /// Goes on with other records of the same text, the first of them at this line.
    pub(crate) fn go_on_at(&mut self, line: u64) {
        self.line = line;
        (self.searched, self.checked) = (0, Checked::default());
        if let Reader::Csv(reader) = &mut self.format {
            reader.go_on();
        }
    }

    /// What another decoder of the same text needs to know to go on at this line.
    pub(crate) fn position(&self, line: u64) -> Value {
        match &self.format {
            Reader::Csv(reader) => match reader.header() {
                Some((places, fields)) => json!({ "line": line, "places": places, "fields": fields }),
                None => json!({ "line": line }),
            },
            Reader::Json(_) | Reader::Debezium(_) | Reader::Raw { .. } => json!({ "line": line }),
        }
    }

    /// Goes on at such a position.
    ///
    /// # Errors
    /// `K002` if it is none.
    pub(crate) fn resume(&mut self, position: &Position) -> Result<(), Error> {
        self.line = position.number("line")?;
        self.started = self.line > 1;
        if let (Reader::Csv(reader), Some(places)) = (&mut self.format, position.0.get("places")) {
            let places = places.as_array().into_iter().flatten().filter_map(Value::as_u64);
            let places: Vec<usize> = places.map(|place| place as usize).collect();
            reader.resume(places, position.number("fields")? as usize);
        }
        Ok(())
    }

    /// Where the last whole record of `data` ends, which begins with one; 0 if none does.
    pub(crate) fn end_of_records(&self, data: &[u8]) -> usize {
        match &self.format {
            Reader::Csv(reader) => reader.end_of_records(data),
            Reader::Json(_) | Reader::Debezium(_) | Reader::Raw { .. } => {
                memchr::memrchr(b'\n', data).map_or(0, |end| end + 1)
            }
        }
    }

    /// Whether a record without a line end can be told to be whole.
    pub(crate) fn knows_whole_records(&self) -> bool {
        matches!(self.format, Reader::Json(_) | Reader::Debezium(_))
    }

    /// A decoder of `wanted`, columns of a table whose physical columns are `table`. `key`: of a changelog,
    /// what tells rows apart.
    pub(crate) fn new(
        format: &TextFormat,
        split: &str,
        table: &[String],
        wanted: &Schema,
        key: &[String],
    ) -> Self {
        let names = || wanted.fields().iter().map(|field| field.name().as_str());
        let format = match format {
            TextFormat::Json { fail_on_missing } => Reader::Json(JsonReader::new(names(), *fail_on_missing)),
            TextFormat::Debezium { is_wrapped } => {
                Reader::Debezium(DebeziumReader::new(names(), *is_wrapped, key))
            }
            TextFormat::Csv(options) => {
                let place = |name| table.iter().position(|column| column == name).unwrap_or(0);
                Reader::Csv(CsvReader::new(options.clone(), table.to_vec(), names().map(place).collect()))
            }
            TextFormat::Raw => {
                let is_text = wanted.fields().iter().any(|field| *field.data_type() == DataType::Utf8);
                Reader::Raw { is_text }
            }
        };
        Self {
            format,
            split: split.to_owned(),
            line: 1,
            started: false,
            searched: 0,
            checked: Checked::default(),
        }
    }

    /// Decodes complete records until the batch is full; the number of bytes used.
    ///
    /// `data` must begin with what was given before and not used. `is_last`: nothing follows it.
    ///
    /// # Errors
    /// `F002` under the policy `fail`.
    pub(crate) fn feed(&mut self, data: &[u8], is_last: bool, rows: &mut Rows) -> Result<usize, Error> {
        let mut mark = 0;
        if !self.started {
            if data.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(data) && !is_last {
                return Ok(0);
            }
            self.started = true;
            if data.starts_with(BYTE_ORDER_MARK) {
                mark = BYTE_ORDER_MARK.len();
            }
        }
        let data = &data[mark..];
        let used = match &mut self.format {
            Reader::Csv(reader) => reader.feed(data, is_last, &mut self.line, rows, &self.split)?,
            Reader::Json(_) => self.feed_json(data, is_last, rows)?,
            _ => self.feed_lines(data, is_last, rows)?,
        };
        Ok(mark + used)
    }

    /// Lines of JSON: what has a line end is checked to be UTF-8 at once, and lines end where their values do.
    fn feed_json(&mut self, data: &[u8], is_last: bool, rows: &mut Rows) -> Result<usize, Error> {
        let Reader::Json(reader) = &mut self.format else { return Ok(0) };
        let whole = match memchr::memrchr(b'\n', &data[self.searched..]) {
            Some(end) => self.searched + end + 1,
            None => {
                self.searched = data.len();
                0
            }
        };
        let mut used = 0;
        while used < whole && !rows.is_full() {
            if used == self.checked.bytes {
                let is_text = std::str::from_utf8(&data[used..whole]).is_ok();
                self.checked = Checked { bytes: whole, is_text };
            }
            let until = self.checked.bytes;
            let length = reader.next_line(&data[used..until], self.checked.is_text, self.line, rows)?;
            self.line += 1;
            used += length;
        }
        if used > 0 {
            self.searched = 0;
        }
        self.checked.bytes -= used;
        if is_last && used == whole && used < data.len() && !rows.is_full() {
            reader.line(&data[used..], self.line, rows)?;
            self.line += 1;
            (self.searched, used) = (0, data.len());
        }
        Ok(used)
    }

    fn feed_lines(&mut self, data: &[u8], is_last: bool, rows: &mut Rows) -> Result<usize, Error> {
        let mut used = 0;
        while used < data.len() && !rows.is_full() {
            let rest = &data[used..];
            let (line, next) = match memchr::memchr(b'\n', &rest[self.searched..]) {
                Some(end) => (&rest[..self.searched + end], used + self.searched + end + 1),
                None if is_last => (rest, data.len()),
                None => {
                    self.searched = rest.len();
                    break;
                }
            };
            self.searched = 0;
            let number = self.line;
            self.line += 1;
            used = next;
            match &mut self.format {
                Reader::Debezium(reader) => reader.line(line, number, rows)?,
                Reader::Raw { is_text } => {
                    raw::read_line(line.strip_suffix(b"\r").unwrap_or(line), number, *is_text, rows)?;
                }
                Reader::Json(_) | Reader::Csv(_) => {}
            }
        }
        Ok(used)
    }
}
