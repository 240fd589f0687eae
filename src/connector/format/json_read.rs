//! Reads JSON, one object a line, straight into Arrow buffers.
//!
//! Only the requested columns are decoded; what lies between is checked and skipped. Keys are
//! matched by their place in the line before, then by name: exactly, or else without regard to the
//! case of ASCII letters (SQL folds names that are not quoted). Of equal keys the last one counts.
//! A line that looks like the ones before is read by their [`Template`], as far as it does.
//!
//! Leniency, as Flink has it: a text that holds a number fits a number; a number, boolean, object or
//! array fits a STRING as its JSON text. Not as Flink: nothing is cut to fit an integer type.

use arrow::datatypes::DataType;

use super::column::{Column, Fault, Values};
use super::json_scan::{Cursor, SyntaxFault, compact, unescape};
use super::json_template::{SeenValue, Template, Walk};
use super::rows::{RowFault, Rows, shorten};
use crate::error::Error;

/// Decodes lines of JSON.
#[derive(Debug, Clone)]
pub(crate) struct JsonReader {
    names: Vec<Vec<u8>>,
    order: Vec<KeyGuess>,
    filled: Vec<Filled>,
    scratch: Scratch,
    fail_on_missing: bool,
    template: Option<Template>,
    /// Lines in a row that were not as the template has them.
    strays: u32,
    /// The values of the line that is read, for a template.
    seen: Vec<SeenValue>,
}

/// Where the reading of a line begins.
#[derive(Debug, Clone, Copy, Default)]
struct Begin {
    /// Bytes that were read already, whole values.
    at: usize,
    /// These values.
    values: usize,
    /// The line is to become the template.
    learns: bool,
}

/// The key that stood at some place of the line before, and the column it meant.
#[derive(Debug, Clone, Default)]
struct KeyGuess {
    raw: Vec<u8>,
    target: Option<(usize, Filled)>,
}

/// How a column got its value in this row. A better match is never replaced by a worse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Filled {
    No,
    ByFoldedName,
    ByName,
}

/// Memory for texts that don't stand in the line as they are.
#[derive(Debug, Clone, Default)]
pub(super) struct Scratch {
    text: Vec<u8>,
}

/// Why a value could not be decoded.
pub(super) enum ValueFault {
    Syntax(SyntaxFault),
    /// The value in this range of the line does not fit; `path` leads to it inside the column.
    Misfit {
        fault: Fault,
        start: usize,
        end: usize,
        path: String,
        data_type: DataType,
    },
}

impl From<SyntaxFault> for ValueFault {
    fn from(fault: SyntaxFault) -> Self {
        Self::Syntax(fault)
    }
}

/// Places of keys remembered per line; lines with more keys look the rest up by name.
const MAX_GUESSES: usize = 1_024;
/// So many lines in a row that are not as the template has them make a new one.
const MAX_STRAYS: u32 = 2;

impl JsonReader {
    /// A reader for the columns of these names.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>, fail_on_missing: bool) -> Self {
        let names: Vec<_> = names.map(|name| name.as_bytes().to_vec()).collect();
        let filled = vec![Filled::No; names.len()];
        Self {
            names,
            order: Vec::new(),
            filled,
            scratch: Scratch::default(),
            fail_on_missing,
            template: None,
            strays: MAX_STRAYS,
            seen: Vec::new(),
        }
    }

    /// Decodes the line at the start of `data`; its length with its end. `data` ends with a line end.
    /// `is_text`: it is known to be valid UTF-8.
    ///
    /// # Errors
    /// `F002` under the policy `fail`.
    #[inline]
    pub(crate) fn next_line(
        &mut self,
        data: &[u8],
        is_text: bool,
        number: u64,
        rows: &mut Rows,
    ) -> Result<usize, Error> {
        let mut begin = Begin::default();
        if is_text && let Some(template) = &self.template {
            let row = rows.len();
            match template.walk(data, row, rows.columns(), &mut self.scratch) {
                Walk::Whole(length) => {
                    self.strays = 0;
                    rows.end_row(number, length - 1);
                    return Ok(length);
                }
                Walk::Until { at, values } => (begin.at, begin.values) = (at, values),
            }
        }
        let end = memchr::memchr(b'\n', data).unwrap_or(data.len());
        self.stray_line(&data[..end], begin, is_text, number, rows)?;
        Ok(end + 1)
    }

    /// Decodes a line that is not as the template has it.
    fn stray_line(
        &mut self,
        line: &[u8],
        begin: Begin,
        is_text: bool,
        number: u64,
        rows: &mut Rows,
    ) -> Result<(), Error> {
        if !is_text || line.iter().all(u8::is_ascii_whitespace) {
            return self.line(line, number, rows);
        }
        self.strays = self.strays.saturating_add(1);
        let learns = self.strays > MAX_STRAYS;
        let begin = match learns {
            // What the template took is taken again, to be seen in full.
            true => {
                let row = rows.len();
                rows.columns().iter_mut().for_each(|column| column.truncate(row));
                Begin { learns, ..Begin::default() }
            }
            false => begin,
        };
        match self.fields(line, begin, rows.len(), None, rows) {
            Ok(()) => {
                rows.end_row(number, line.len());
                if learns {
                    self.learn(line);
                }
                Ok(())
            }
            Err(fault) => rows.reject(number, line, fault),
        }
    }

    /// Makes a line that was read in full the template, if each column has one value at most.
    fn learn(&mut self, line: &[u8]) {
        self.strays = 0;
        let targets = || self.seen.iter().filter_map(|value| value.target.map(|(column, _)| column));
        let mut is_filled = vec![false; self.names.len()];
        let is_plain = targets().all(|column| !std::mem::replace(&mut is_filled[column], true));
        let lacking = is_filled.iter().enumerate().filter(|(_, is_filled)| !**is_filled);
        let lacking = lacking.map(|(column, _)| column).collect();
        let is_useful = is_plain && self.seen.len() <= MAX_GUESSES;
        self.template = is_useful.then(|| Template::of(line, &self.seen, lacking)).flatten();
    }

    /// Decodes a line, without its end. Blank lines are no rows.
    ///
    /// # Errors
    /// `F002` under the policy `fail`.
    pub(crate) fn line(&mut self, line: &[u8], number: u64, rows: &mut Rows) -> Result<(), Error> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        match self.object(line, rows.len(), None, rows) {
            Ok(()) => {
                rows.end_row(number, line.len());
                Ok(())
            }
            Err(fault) => rows.reject(number, line, fault),
        }
    }

    /// Appends the fields of an object, those of row `row` of the batch. `may_lack`: of each column whether
    /// it may have an empty value for want of one.
    pub(super) fn object(
        &mut self,
        line: &[u8],
        row: usize,
        may_lack: Option<&[bool]>,
        rows: &mut Rows,
    ) -> Result<(), RowFault> {
        if let Err(error) = std::str::from_utf8(line) {
            return Err(RowFault::broken(format!("byte {}: not UTF-8", error.valid_up_to() + 1)));
        }
        self.fields(line, Begin::default(), row, may_lack, rows)
    }

    /// Appends the fields of an object from `begin` on. `line` is valid UTF-8.
    fn fields(
        &mut self,
        line: &[u8],
        begin: Begin,
        row: usize,
        may_lack: Option<&[bool]>,
        rows: &mut Rows,
    ) -> Result<(), RowFault> {
        let nulls_misfits = rows.nulls_misfits();
        let columns = rows.columns();
        self.filled.fill(Filled::No);
        self.seen.clear();
        let mut cursor = Cursor { text: line, at: begin.at };
        let syntax = |fault: SyntaxFault| broken(line, fault);
        let mut place = begin.values;
        let mut is_open = true;
        if place == 0 {
            cursor.skip_whitespace();
            cursor.expect(b'{', "a JSON object").map_err(syntax)?;
            cursor.skip_whitespace();
            if cursor.peek() == b'}' {
                cursor.at += 1;
                is_open = false;
            }
        } else {
            for (column, how) in self.template.iter().flat_map(|template| template.targets(place)) {
                self.filled[column] = how;
            }
            is_open = next_field(&mut cursor).map_err(syntax)?;
        }
        if is_open {
            loop {
                let key = cursor.key().map_err(syntax)?;
                let target = self.target(place, key.raw, key.has_escapes);
                place += 1;
                let start = cursor.at;
                match target {
                    Some((index, how)) if how >= self.filled[index] => {
                        let column = &mut columns[index];
                        if self.filled[index] != Filled::No {
                            column.truncate(row);
                        }
                        self.filled[index] = how;
                        match decode(column, &mut cursor, &mut self.scratch) {
                            Ok(()) => {}
                            Err(ValueFault::Syntax(fault)) => return Err(syntax(fault)),
                            Err(misfit) => {
                                // The rest of the value must still be JSON for this to be its fault.
                                cursor.at = start;
                                cursor.skip_value().map_err(syntax)?;
                                column.truncate(row);
                                let in_nulls = nulls_misfits && column.append_null().is_ok();
                                let is_null =
                                    matches!(&misfit, ValueFault::Misfit { fault: Fault::Null, .. });
                                let may_lack = is_null && may_lack.is_some_and(|may| may[index]);
                                if may_lack && !in_nulls {
                                    column.append_empty();
                                } else if !in_nulls {
                                    return Err(described(&self.names[index], line, misfit));
                                }
                            }
                        }
                    }
                    _ => {
                        cursor.skip_value().map_err(syntax)?;
                    }
                }
                if begin.learns {
                    self.seen.push(SeenValue { start, end: cursor.at, target });
                }
                if !next_field(&mut cursor).map_err(syntax)? {
                    break;
                }
            }
        }
        cursor.skip_whitespace();
        if cursor.at != line.len() {
            return Err(syntax(SyntaxFault { at: cursor.at, expected: "the end of the line" }));
        }
        for (index, column) in columns.iter_mut().enumerate() {
            if self.filled[index] != Filled::No {
                continue;
            }
            if may_lack.is_some_and(|may| may[index]) {
                column.append_empty();
                continue;
            }
            let name = || String::from_utf8_lossy(&self.names[index]);
            if self.fail_on_missing {
                return Err(RowFault::broken(format!("column \"{}\": the field is missing", name())));
            }
            column
                .append_null()
                .map_err(|fault| RowFault::value(&name(), column.field.data_type(), "", fault))?;
        }
        Ok(())
    }

    /// The column that a key means, by its place first.
    #[inline]
    fn target(&mut self, place: usize, raw: &[u8], has_escapes: bool) -> Option<(usize, Filled)> {
        if let Some(guess) = self.order.get(place)
            && guess.raw == raw
        {
            return guess.target;
        }
        self.look_up(place, raw, has_escapes)
    }

    fn look_up(&mut self, place: usize, raw: &[u8], has_escapes: bool) -> Option<(usize, Filled)> {
        let mut unescaped = Vec::new();
        let key = if has_escapes {
            unescape(&mut unescaped, raw);
            &unescaped[..]
        } else {
            raw
        };
        let target = match_name(key, self.names.iter().map(Vec::as_slice));
        if place < MAX_GUESSES {
            if self.order.len() <= place {
                self.order.resize_with(place + 1, KeyGuess::default);
            }
            let guess = &mut self.order[place];
            guess.raw.clear();
            guess.raw.extend_from_slice(raw);
            guess.target = target;
        }
        target
    }
}

/// Goes from the end of a field's value to its next key, or past the end of the object: whether there is one.
#[inline]
fn next_field(cursor: &mut Cursor<'_>) -> Result<bool, SyntaxFault> {
    cursor.skip_whitespace();
    match cursor.peek() {
        b',' => {
            cursor.at += 1;
            cursor.skip_whitespace();
            Ok(true)
        }
        b'}' => {
            cursor.at += 1;
            Ok(false)
        }
        _ => cursor.fault("a comma or the end of the object"),
    }
}

/// Appends a value from a text that holds JSON: nested values in formats that are flat.
pub(super) fn append_json(column: &mut Column, text: &[u8]) -> Result<(), Fault> {
    let mut cursor = Cursor::new(text.trim_ascii());
    match decode(column, &mut cursor, &mut Scratch::default()) {
        Ok(()) if cursor.at == cursor.text.len() => Ok(()),
        Ok(()) | Err(_) => Err(Fault::NotOfType),
    }
}

/// The position of the name that a key means: equal, or equal but for the case of ASCII letters.
fn match_name<'a>(key: &[u8], names: impl Iterator<Item = &'a [u8]> + Clone) -> Option<(usize, Filled)> {
    if let Some(index) = names.clone().position(|name| name == key) {
        return Some((index, Filled::ByName));
    }
    let index = names.clone().position(|name| name.eq_ignore_ascii_case(key))?;
    Some((index, Filled::ByFoldedName))
}

/// Decodes the value at the cursor into the column. On an error the column may hold parts of it.
#[inline]
pub(super) fn decode(
    column: &mut Column,
    cursor: &mut Cursor<'_>,
    scratch: &mut Scratch,
) -> Result<(), ValueFault> {
    let start = cursor.at;
    let result = match cursor.peek() {
        b'n' => {
            cursor.word(b"null")?;
            column.append_null()
        }
        b'"' => {
            let string = cursor.string()?;
            if string.has_escapes {
                scratch.text.clear();
                unescape(&mut scratch.text, string.raw);
                column.append_text(&scratch.text)
            } else {
                column.append_text(string.raw)
            }
        }
        open @ (b'{' | b'[') => return decode_nested(open, column, cursor, scratch),
        _ => {
            let text = cursor.scalar()?;
            match column.values {
                // A bare word or number is no base64.
                Values::Bytes(_) => Err(Fault::NotOfType),
                _ => column.append_text(text),
            }
        }
    };
    result.map_err(|fault| misfit(column, fault, start, cursor.at))
}

fn misfit(column: &Column, fault: Fault, start: usize, end: usize) -> ValueFault {
    ValueFault::Misfit { fault, start, end, path: String::new(), data_type: column.field.data_type().clone() }
}

fn decode_nested(
    open: u8,
    column: &mut Column,
    cursor: &mut Cursor<'_>,
    scratch: &mut Scratch,
) -> Result<(), ValueFault> {
    let start = cursor.at;
    match (&mut column.values, open) {
        (Values::Text(_), _) => {
            let text = cursor.skip_value()?;
            scratch.text.clear();
            compact(&mut scratch.text, text);
            column.append_bytes(&scratch.text).map_err(|fault| misfit(column, fault, start, cursor.at))
        }
        (Values::List { offsets, item }, b'[') => {
            array(item, cursor, scratch)?;
            offsets.push(item.len() as i32);
            column.close_value();
            Ok(())
        }
        (Values::Map { offsets, key, value }, b'{') => {
            map(key, value, cursor, scratch)?;
            offsets.push(key.len() as i32);
            column.close_value();
            Ok(())
        }
        (Values::Row(fields), b'{') => {
            let row = column_rows(fields);
            record(fields, row, cursor, scratch)?;
            column.close_value();
            Ok(())
        }
        _ => {
            cursor.skip_value()?;
            Err(misfit(column, Fault::NotOfType, start, cursor.at))
        }
    }
}

/// Values in a ROW column before this one. All fields have as many.
fn column_rows(fields: &[Column]) -> usize {
    fields.first().map_or(0, Column::len)
}

/// Calls `element` at each element of the array or object at the cursor.
fn elements<'a>(
    cursor: &mut Cursor<'a>,
    close: u8,
    mut element: impl FnMut(&mut Cursor<'a>) -> Result<(), ValueFault>,
) -> Result<(), ValueFault> {
    cursor.at += 1;
    cursor.skip_whitespace();
    if cursor.peek() == close {
        cursor.at += 1;
        return Ok(());
    }
    loop {
        element(cursor)?;
        cursor.skip_whitespace();
        match cursor.peek() {
            b',' => {
                cursor.at += 1;
                cursor.skip_whitespace();
            }
            byte if byte == close => {
                cursor.at += 1;
                return Ok(());
            }
            _ if close == b']' => return Ok(cursor.fault("a comma or the end of the array")?),
            _ => return Ok(cursor.fault("a comma or the end of the object")?),
        }
    }
}

fn array(item: &mut Column, cursor: &mut Cursor<'_>, scratch: &mut Scratch) -> Result<(), ValueFault> {
    let mut index = 0;
    elements(cursor, b']', |cursor| {
        index += 1;
        decode(item, cursor, scratch).map_err(|fault| within(fault, format_args!("[{index}]")))
    })
}

fn map(
    key: &mut Column,
    value: &mut Column,
    cursor: &mut Cursor<'_>,
    scratch: &mut Scratch,
) -> Result<(), ValueFault> {
    let first = key.len();
    let start = cursor.at;
    let mut repeated = false;
    elements(cursor, b'}', |cursor| {
        map_key(key, cursor, scratch)?;
        repeated |= is_repeated(key, first);
        decode(value, cursor, scratch)
    })?;
    if !repeated {
        return Ok(());
    }
    // The last of equal keys counts: decode once more, without those that come again.
    let skipped = overridden(key, first);
    key.truncate(first);
    value.truncate(first);
    cursor.at = start;
    let mut index = 0;
    elements(cursor, b'}', |cursor| {
        index += 1;
        if skipped[index - 1] {
            cursor.key()?;
            cursor.skip_value()?;
            return Ok(());
        }
        map_key(key, cursor, scratch)?;
        decode(value, cursor, scratch)
    })
}

fn map_key(key: &mut Column, cursor: &mut Cursor<'_>, scratch: &mut Scratch) -> Result<(), ValueFault> {
    let start = cursor.at;
    let string = cursor.key()?;
    scratch.text.clear();
    unescape(&mut scratch.text, string.raw);
    key.append_text(&scratch.text).map_err(|fault| misfit(key, fault, start, start + string.raw.len() + 2))
}

/// Whether the last key stands before in the same map. Large maps say yes without looking.
fn is_repeated(key: &Column, first: usize) -> bool {
    let last = key.len() - 1;
    match &key.values {
        Values::Text(_) if last - first > 16 => true,
        Values::Text(keys) => (first..last).any(|index| keys.get(index) == keys.get(last)),
        Values::Int32(keys) => keys[first..last].contains(&keys[last]),
        Values::Int64(keys) => keys[first..last].contains(&keys[last]),
        _ => false,
    }
}

/// For each key of the last map whether an equal one follows.
fn overridden(key: &Column, first: usize) -> Vec<bool> {
    let mut seen = hashbrown::HashSet::new();
    let mut skipped: Vec<bool> = (first..key.len())
        .rev()
        .map(|index| {
            let text = match &key.values {
                Values::Text(keys) => keys.get(index).to_vec(),
                Values::Int32(keys) => keys[index].to_le_bytes().to_vec(),
                Values::Int64(keys) => keys[index].to_le_bytes().to_vec(),
                _ => index.to_le_bytes().to_vec(),
            };
            !seen.insert(text)
        })
        .collect();
    skipped.reverse();
    skipped
}

fn record(
    fields: &mut [Column],
    row: usize,
    cursor: &mut Cursor<'_>,
    scratch: &mut Scratch,
) -> Result<(), ValueFault> {
    let start = cursor.at;
    // Fields are few; the next one is most often the one after the last.
    let mut guess = 0;
    elements(cursor, b'}', |cursor| {
        let key = cursor.key()?;
        let name = if key.has_escapes {
            scratch.text.clear();
            unescape(&mut scratch.text, key.raw);
            &scratch.text[..]
        } else {
            key.raw
        };
        let index = match fields.get(guess) {
            Some(field) if field.field.name().as_bytes() == name => guess,
            _ => {
                let found = match_name(name, fields.iter().map(|field| field.field.name().as_bytes()));
                let Some((index, how)) = found else {
                    cursor.skip_value()?;
                    return Ok(());
                };
                if how == Filled::ByFoldedName && fields[index].len() > row {
                    cursor.skip_value()?;
                    return Ok(());
                }
                index
            }
        };
        guess = index + 1;
        let field = &mut fields[index];
        if field.len() > row {
            field.truncate(row);
        }
        decode(field, cursor, scratch).map_err(|fault| within(fault, format_args!(".{}", field.field.name())))
    })?;
    for field in fields {
        if field.len() == row {
            field.append_null().map_err(|fault| {
                within(misfit(field, fault, start, cursor.at), format_args!(".{}", field.field.name()))
            })?;
        }
    }
    Ok(())
}

/// Puts a step before the path of a misfit.
fn within(fault: ValueFault, step: std::fmt::Arguments<'_>) -> ValueFault {
    match fault {
        ValueFault::Misfit { fault, start, end, path, data_type } => {
            ValueFault::Misfit { fault, start, end, path: format!("{step}{path}"), data_type }
        }
        syntax @ ValueFault::Syntax(_) => syntax,
    }
}

pub(super) fn broken(line: &[u8], fault: SyntaxFault) -> RowFault {
    let rest = String::from_utf8_lossy(&line[fault.at.min(line.len())..]);
    let found = match rest.chars().next() {
        None => "the line ends".to_owned(),
        Some(_) => format!("found {}", shorten(&rest.chars().take(20).collect::<String>())),
    };
    RowFault::broken(format!(
        "column {} of the text: not JSON: expected {}, {found}",
        fault.at + 1,
        fault.expected
    ))
}

fn described(name: &[u8], line: &[u8], fault: ValueFault) -> RowFault {
    match fault {
        ValueFault::Syntax(fault) => broken(line, fault),
        ValueFault::Misfit { fault, start, end, path, data_type } => {
            let shown = String::from_utf8_lossy(&line[start..end]);
            let name = format!("{}{path}", String::from_utf8_lossy(name));
            RowFault::value(&name, &data_type, &shown, fault)
        }
    }
}
