//! Cuts CSV into records and fields, without copying and without starting over when more bytes come.
//!
//! Records end with LF or CRLF, or at the end of the input. A quote opens a quoted field only as its
//! first character; inside, two quotes are one. The scanner tells quoted and plain fields apart,
//! because `""` and nothing are different values.
//!
//! Source: RFC 4180.

use memchr::{memchr, memchr2, memchr3};

/// The characters that mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CsvSyntax {
    pub(crate) delimiter: u8,
    pub(crate) quote: Option<u8>,
    pub(crate) escape: Option<u8>,
}

/// A field as a range of its record, without its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) quoted: bool,
    /// Doubled quotes or escapes stand in it.
    pub(crate) coded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    FieldStart,
    Plain,
    Quoted,
    /// Behind the closing quote.
    Closed,
}

/// Scans one record after another.
#[derive(Debug, Clone)]
pub(crate) struct CsvScanner {
    syntax: CsvSyntax,
    state: State,
    /// Fields of the record so far.
    fields: Vec<Field>,
    field: Field,
    at: usize,
    fault: Option<&'static str>,
}

const EMPTY: Field = Field { start: 0, end: 0, quoted: false, coded: false };

impl CsvScanner {
    pub(crate) fn new(syntax: CsvSyntax) -> Self {
        Self { syntax, state: State::FieldStart, fields: Vec::new(), field: EMPTY, at: 0, fault: None }
    }

    /// Whether it stands at the start of a record.
    pub(crate) fn is_at_start(&self) -> bool {
        self.at == 0
    }

    /// The fields of the record that was just completed.
    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// What was wrong with the record that was just completed.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        self.fault
    }

    /// Goes on with a record that starts at `data[0]`; its length with its end when it is complete.
    ///
    /// `data` must begin with what was given before. Call [`Self::reset`] after each record.
    pub(crate) fn record(&mut self, data: &[u8], is_last: bool) -> Option<usize> {
        loop {
            match self.state {
                State::FieldStart => {
                    self.field = Field { start: self.at, ..EMPTY };
                    match data.get(self.at) {
                        None if !is_last => return None,
                        None => return Some(self.end_record(data, self.at)),
                        Some(byte) if Some(*byte) == self.syntax.quote => {
                            self.at += 1;
                            self.field.start = self.at;
                            self.field.quoted = true;
                            self.state = State::Quoted;
                        }
                        Some(_) => self.state = State::Plain,
                    }
                }
                State::Plain => {
                    let rest = &data[self.at..];
                    let found = match self.syntax.escape {
                        None => memchr2(self.syntax.delimiter, b'\n', rest),
                        Some(escape) => memchr3(self.syntax.delimiter, b'\n', escape, rest),
                    };
                    let Some(found) = found else {
                        self.at = data.len();
                        return is_last.then(|| self.end_record(data, data.len()));
                    };
                    self.at += found;
                    match data[self.at] {
                        byte if byte == self.syntax.delimiter => self.end_field(self.at),
                        b'\n' => return Some(self.end_record(data, self.at)),
                        _ => self.take_escape(data, is_last)?,
                    }
                }
                State::Quoted => {
                    let quote = self.syntax.quote.unwrap_or(b'"');
                    let rest = &data[self.at..];
                    let found = match self.syntax.escape {
                        None => memchr(quote, rest),
                        Some(escape) => memchr2(quote, escape, rest),
                    };
                    let Some(found) = found else {
                        self.at = data.len();
                        if !is_last {
                            return None;
                        }
                        self.fault = Some("a quoted field is not closed");
                        return Some(self.end_record(data, data.len()));
                    };
                    self.at += found;
                    if data[self.at] != quote {
                        self.take_escape(data, is_last)?;
                        continue;
                    }
                    match data.get(self.at + 1) {
                        None if !is_last => return None,
                        Some(next) if *next == quote => {
                            self.field.coded = true;
                            self.at += 2;
                        }
                        _ => {
                            self.field.end = self.at;
                            self.at += 1;
                            self.state = State::Closed;
                        }
                    }
                }
                State::Closed => match (data.get(self.at), data.get(self.at + 1)) {
                    (None, _) | (Some(b'\r'), None) if !is_last => return None,
                    (None, _) | (Some(b'\r'), None | Some(b'\n')) | (Some(b'\n'), _) => {
                        let end = self.at + usize::from(data.get(self.at) == Some(&b'\r'));
                        self.fields.push(self.field);
                        return Some((end + 1).min(data.len()));
                    }
                    (Some(byte), _) if *byte == self.syntax.delimiter => {
                        self.fields.push(self.field);
                        self.at += 1;
                        self.state = State::FieldStart;
                    }
                    _ => {
                        self.fault = Some("text follows the closing quote of a field");
                        self.state = State::Plain;
                    }
                },
            }
        }
    }

    /// Makes ready for the next record.
    pub(crate) fn reset(&mut self) {
        self.state = State::FieldStart;
        self.fields.clear();
        self.at = 0;
        self.fault = None;
    }

    /// Steps over an escape and what it escapes; `None` if that has not come yet.
    fn take_escape(&mut self, data: &[u8], is_last: bool) -> Option<()> {
        if self.at + 1 >= data.len() && !is_last {
            return None;
        }
        self.field.coded = true;
        self.at = (self.at + 2).min(data.len());
        Some(())
    }

    fn end_field(&mut self, end: usize) {
        self.fields.push(Field { end, ..self.field });
        self.at = end + 1;
        self.state = State::FieldStart;
    }

    /// Ends the last field before the line's end at `end`; the length of the record.
    fn end_record(&mut self, data: &[u8], end: usize) -> usize {
        let is_plain = !matches!(self.state, State::Quoted);
        let trimmed =
            if is_plain && end > self.field.start && data[end - 1] == b'\r' { end - 1 } else { end };
        self.fields.push(Field { end: trimmed, ..self.field });
        (end + 1).min(data.len())
    }
}

/// Where the field that begins at `at` ends, in lines without quotes and escapes; the end of `data` if nothing
/// ends it.
#[inline]
pub(super) fn plain_field_end(data: &[u8], mut at: usize, delimiter: u8) -> usize {
    const LOW_BITS: u64 = 0x0101_0101_0101_0101;
    // The lowest mark is right; above it a byte may be marked wrongly.
    let zeros = |word: u64| word.wrapping_sub(LOW_BITS) & !word & 0x8080_8080_8080_8080;
    let (ends, delimiters) = (LOW_BITS * u64::from(b'\n'), LOW_BITS * u64::from(delimiter));
    let marks = |word: u64| zeros(word ^ ends) | zeros(word ^ delimiters);
    while let Some(chunk) = data.get(at..at + 32) {
        let (words, _) = chunk.as_chunks::<8>();
        if words.iter().fold(0, |found, word| found | marks(u64::from_le_bytes(*word))) != 0 {
            break;
        }
        at += 32;
    }
    while let Some(chunk) = data.get(at..at + 8) {
        let found = marks(u64::from_le_bytes(chunk.try_into().expect("the slice has 8 bytes")));
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let rest = &data[at.min(data.len())..];
    at + memchr2(delimiter, b'\n', rest).unwrap_or(rest.len())
}

/// Appends a field's value with doubled quotes and escapes resolved.
pub(crate) fn decode_field(out: &mut Vec<u8>, raw: &[u8], quoted: bool, syntax: CsvSyntax) {
    let mut bytes = raw.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let is_escape = Some(byte) == syntax.escape;
        let is_doubled = quoted && Some(byte) == syntax.quote && bytes.peek() == Some(&byte);
        match bytes.peek() {
            Some(next) if is_escape || is_doubled => {
                out.push(*next);
                bytes.next();
            }
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: CsvSyntax = CsvSyntax { delimiter: b',', quote: Some(b'"'), escape: None };

    /// All records, where the input comes in pieces of `step` bytes.
    fn records(text: &[u8], step: usize, syntax: CsvSyntax) -> Vec<Vec<String>> {
        let mut scanner = CsvScanner::new(syntax);
        let (mut start, mut end, mut out) = (0, 0, Vec::new());
        loop {
            end = (end + step).min(text.len());
            while start < end || end == text.len() {
                let data = &text[start..end];
                if data.is_empty() {
                    break;
                }
                let Some(length) = scanner.record(data, end == text.len()) else { break };
                let mut record = Vec::new();
                for field in scanner.fields() {
                    let mut value = Vec::new();
                    decode_field(&mut value, &data[field.start..field.end], field.quoted, syntax);
                    record.push(String::from_utf8(value).unwrap());
                }
                out.push(record);
                scanner.reset();
                start += length;
            }
            if end == text.len() {
                return out;
            }
        }
    }

    #[test]
    fn records_and_fields() {
        let text = b"a,b\r\n\"x, \"\"y\"\"\",\r\n,\"two\nlines\"\n\"\"\nlast,\"q\"";
        let expected: Vec<Vec<&str>> =
            vec![vec!["a", "b"], vec!["x, \"y\"", ""], vec!["", "two\nlines"], vec![""], vec!["last", "q"]];
        for step in 1..=text.len() {
            assert_eq!(records(text, step, PLAIN), expected, "step {step}");
        }
    }

    #[test]
    fn ends_of_input() {
        assert!(records(b"", 1, PLAIN).is_empty());
        assert_eq!(records(b"a,", 1, PLAIN), [["a", ""]]);
        assert_eq!(records(b"a\r", 1, PLAIN), [["a"]]);
        assert_eq!(records(b"\"a\"\r", 1, PLAIN), [["a"]]);
        assert_eq!(records(b"\"a", 1, PLAIN), [["a"]]);
    }

    #[test]
    fn escapes() {
        let syntax = CsvSyntax { escape: Some(b'\\'), ..PLAIN };
        let text = br#"a\,b,"c\"d""#;
        for step in 1..=text.len() {
            assert_eq!(records(text, step, syntax), [["a,b", "c\"d"]], "step {step}");
        }
    }

    #[test]
    fn faults() {
        let fault = |text: &[u8]| {
            let mut scanner = CsvScanner::new(PLAIN);
            scanner.record(text, true);
            scanner.fault()
        };
        assert_eq!(fault(b"a,\"b"), Some("a quoted field is not closed"));
        assert_eq!(fault(b"\"a\"b,c"), Some("text follows the closing quote of a field"));
        assert_eq!(fault(b"a\"b,c"), None);
    }

    proptest! {
        #[test]
        fn agrees_with_csv_core_however_it_is_cut(
            rows in proptest::collection::vec(proptest::collection::vec("[a\",\r\né]{0,4}", 1..4), 0..6),
            step in 1usize..20,
        ) {
            let mut text = Vec::new();
            for row in &rows {
                for (index, field) in row.iter().enumerate() {
                    if index > 0 {
                        text.push(b',');
                    }
                    text.extend_from_slice(format!("\"{}\"", field.replace('"', "\"\"")).as_bytes());
                }
                text.extend_from_slice(b"\r\n");
            }
            prop_assert_eq!(&records(&text, step, PLAIN), &rows);
            let mut reader = csv_core::ReaderBuilder::new().build();
            let (mut theirs, mut input) = (Vec::new(), &text[..]);
            loop {
                let (mut output, mut ends) = ([0; 256], [0; 16]);
                let (result, used, _, count) = reader.read_record(input, &mut output, &mut ends);
                input = &input[used..];
                match result {
                    csv_core::ReadRecordResult::Record => {
                        let mut start = 0;
                        theirs.push(ends[..count].iter().map(|end| {
                            let field = String::from_utf8(output[start..*end].to_vec()).unwrap();
                            start = *end;
                            field
                        }).collect::<Vec<_>>());
                    }
                    csv_core::ReadRecordResult::End => break,
                    _ => {}
                }
            }
            prop_assert_eq!(theirs, rows);
        }
    }
}
