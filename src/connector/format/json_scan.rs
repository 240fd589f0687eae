//! JSON syntax: a cursor over one value's text that checks all of it and copies nothing.
//!
//! Source: RFC 8259, without byte order marks; depth is limited to 1,024.

/// What is wrong with a text, and where: bytes from the start of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyntaxFault {
    pub(crate) at: usize,
    pub(crate) expected: &'static str,
}

/// A place in a line of JSON. The line is valid UTF-8.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) at: usize,
}

/// The inside of a string, between its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawString<'a> {
    pub(crate) raw: &'a [u8],
    pub(crate) has_escapes: bool,
}

const MAX_DEPTH: usize = 1_024;
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// The high bit of each byte of `word` that is `"`, `\` or a control character.
///
/// A byte above the first such byte may be marked wrongly; only the lowest mark is used.
#[inline]
fn specials(word: u64) -> u64 {
    let zero = |word: u64| word.wrapping_sub(LOW_BITS) & !word & HIGH_BITS;
    let quote = zero(word ^ (LOW_BITS * 0x22));
    let backslash = zero(word ^ (LOW_BITS * 0x5c));
    let control = word.wrapping_sub(LOW_BITS * 0x20) & !word & HIGH_BITS;
    quote | backslash | control
}

/// Where the next quote, backslash or control character stands, from `at` on; the end if there is none.
#[inline]
fn special_at(text: &[u8], mut at: usize) -> usize {
    // Four words at once as long as there is none.
    while let Some(chunk) = text.get(at..at + 32) {
        let (words, _) = chunk.as_chunks::<8>();
        if words.iter().fold(0, |marks, word| marks | specials(u64::from_le_bytes(*word))) != 0 {
            break;
        }
        at += 32;
    }
    while let Some(chunk) = text.get(at..at + 8) {
        let word = u64::from_le_bytes(chunk.try_into().expect("the slice has 8 bytes"));
        let marks = specials(word);
        if marks != 0 {
            return at + (marks.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\') || *byte < 0x20;
    let rest = &text[at.min(text.len())..];
    at + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// The place of the closing quote of a string without escapes whose inside begins at `at`.
#[inline]
pub(super) fn plain_end(text: &[u8], at: usize) -> Option<usize> {
    let end = special_at(text, at);
    (text.get(end) == Some(&b'"')).then_some(end)
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The next byte, or 0 at the end.
    #[inline]
    pub(crate) fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    pub(crate) fn fault<T>(&self, expected: &'static str) -> Result<T, SyntaxFault> {
        Err(SyntaxFault { at: self.at, expected })
    }

    #[inline]
    pub(crate) fn skip_whitespace(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
        }
    }

    /// Takes `byte`.
    #[inline]
    pub(crate) fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), SyntaxFault> {
        if self.peek() == byte {
            self.at += 1;
            return Ok(());
        }
        self.fault(expected)
    }

    /// Takes a string; the cursor stands on its quote.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<RawString<'a>, SyntaxFault> {
        self.expect(b'"', "a string")?;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            self.skip_plain();
            match self.text.get(self.at) {
                Some(b'"') => {
                    let raw = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(RawString { raw, has_escapes });
                }
                Some(b'\\') => {
                    has_escapes = true;
                    self.escape()?;
                }
                Some(_) => return self.fault("no control character inside a string"),
                None => return self.fault("the closing quote of a string"),
            }
        }
    }

    /// Goes to the next quote, backslash, control character, or the end.
    #[inline]
    fn skip_plain(&mut self) {
        self.at = special_at(self.text, self.at);
    }

    /// Checks an escape; the cursor stands on its backslash.
    fn escape(&mut self) -> Result<(), SyntaxFault> {
        match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => match unicode_escape(&self.text[self.at..]) {
                Some((_, length)) => {
                    self.at += length;
                    Ok(())
                }
                None => self.fault("four hexadecimal digits after \\u, surrogates in pairs"),
            },
            _ => self.fault("one of the escapes of JSON"),
        }
    }

    /// Takes a number.
    #[inline]
    pub(crate) fn number(&mut self) -> Result<&'a [u8], SyntaxFault> {
        let start = self.at;
        if self.peek() == b'-' {
            self.at += 1;
        }
        match self.peek() {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            _ => return self.fault("a digit"),
        }
        if self.peek() == b'.' {
            self.at += 1;
            self.some_digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(&self.text[start..self.at])
    }

    #[inline]
    fn digits(&mut self) {
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Result<(), SyntaxFault> {
        if !self.peek().is_ascii_digit() {
            return self.fault("a digit");
        }
        self.digits();
        Ok(())
    }

    /// Takes `true`, `false` or `null`.
    pub(crate) fn word(&mut self, word: &'static [u8]) -> Result<&'a [u8], SyntaxFault> {
        let end = self.at + word.len();
        if self.text.get(self.at..end) != Some(word) {
            return self.fault("a JSON value");
        }
        let taken = &self.text[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// Takes a number, `true`, `false` or `null`.
    #[inline]
    pub(crate) fn scalar(&mut self) -> Result<&'a [u8], SyntaxFault> {
        match self.peek() {
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.fault("a JSON value"),
        }
    }

    /// Takes any value and gives its text.
    #[inline]
    pub(crate) fn skip_value(&mut self) -> Result<&'a [u8], SyntaxFault> {
        let start = self.at;
        match self.peek() {
            b'"' => {
                self.string()?;
            }
            b'{' | b'[' => self.skip_nested()?,
            _ => {
                self.scalar()?;
            }
        }
        Ok(&self.text[start..self.at])
    }

    /// Takes an object or array, without recursion.
    fn skip_nested(&mut self) -> Result<(), SyntaxFault> {
        // One bit a level: whether it is an object.
        let mut levels = [0_u64; MAX_DEPTH / 64];
        let mut depth = 0;
        loop {
            // Here stands a value.
            match self.peek() {
                open @ (b'{' | b'[') => {
                    if depth == MAX_DEPTH {
                        return self.fault("no more than 1,024 levels of nesting");
                    }
                    self.at += 1;
                    let is_object = open == b'{';
                    let bit = 1 << (depth % 64);
                    if is_object {
                        levels[depth / 64] |= bit
                    } else {
                        levels[depth / 64] &= !bit
                    }
                    depth += 1;
                    self.skip_whitespace();
                    let close = if is_object { b'}' } else { b']' };
                    if self.peek() != close {
                        if is_object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                b'"' => {
                    self.string()?;
                }
                _ => {
                    self.scalar()?;
                }
            }
            // Here stands what follows a value, or closes an empty one.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                self.skip_whitespace();
                let is_object = levels[(depth - 1) / 64] & (1 << ((depth - 1) % 64)) != 0;
                match (self.peek(), is_object) {
                    (b'}', true) | (b']', false) => {
                        self.at += 1;
                        depth -= 1;
                    }
                    (b',', _) => {
                        self.at += 1;
                        self.skip_whitespace();
                        if is_object {
                            self.key()?;
                        }
                        break;
                    }
                    (_, true) => return self.fault("a comma or the end of the object"),
                    (_, false) => return self.fault("a comma or the end of the array"),
                }
            }
        }
    }

    /// Takes a key, its colon, and the blanks around.
    #[inline]
    pub(crate) fn key(&mut self) -> Result<RawString<'a>, SyntaxFault> {
        if self.peek() != b'"' {
            return self.fault("a key in double quotes");
        }
        let key = self.string()?;
        self.skip_whitespace();
        self.expect(b':', "a colon after the key")?;
        self.skip_whitespace();
        Ok(key)
    }
}

/// A `\uXXXX` or a pair of them at the start of `text`, and its length.
fn unicode_escape(text: &[u8]) -> Option<(char, usize)> {
    let unit = |text: &[u8]| -> Option<u32> {
        let [b'\\', b'u', digits @ ..] = text else { return None };
        digits.get(..4)?.iter().try_fold(0, |value, digit| Some(value << 4 | (*digit as char).to_digit(16)?))
    };
    let first = unit(text)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, 6));
    }
    let second = unit(text.get(6..)?)?;
    if !(0xd800..0xdc00).contains(&first) || !(0xdc00..0xe000).contains(&second) {
        return None;
    }
    let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    Some((char::from_u32(code)?, 12))
}

/// Appends the inside of a string with its escapes resolved. The string was checked by a cursor.
pub(crate) fn unescape(out: &mut Vec<u8>, mut raw: &[u8]) {
    while let Some(backslash) = memchr::memchr(b'\\', raw) {
        out.extend_from_slice(&raw[..backslash]);
        raw = &raw[backslash..];
        let (byte, length) = match raw.get(1) {
            Some(b'n') => (b'\n', 2),
            Some(b't') => (b'\t', 2),
            Some(b'r') => (b'\r', 2),
            Some(b'b') => (8, 2),
            Some(b'f') => (12, 2),
            Some(b'u') => {
                let (character, length) = unicode_escape(raw).unwrap_or(('\u{fffd}', raw.len().min(6)));
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                raw = &raw[length..];
                continue;
            }
            Some(other) => (*other, 2),
            None => return,
        };
        out.push(byte);
        raw = &raw[length..];
    }
    out.extend_from_slice(raw);
}

/// Appends the text of a checked value without the blanks between its tokens.
pub(crate) fn compact(out: &mut Vec<u8>, text: &[u8]) {
    let mut in_string = false;
    let mut escaped = false;
    for byte in text {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
        } else if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            continue;
        } else {
            in_string = *byte == b'"';
        }
        out.push(*byte);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn accepts(text: &str) -> bool {
        let mut cursor = Cursor::new(text.as_bytes());
        cursor.skip_whitespace();
        let done = cursor.skip_value().is_ok();
        cursor.skip_whitespace();
        done && cursor.at == text.len()
    }

    #[test]
    fn what_is_json() {
        for good in [
            "{}",
            "[]",
            "[ ]",
            "{ }",
            "0",
            "-0",
            "1.5e-7",
            "1E+2",
            "\"\"",
            "\"é漢😀\"",
            "[[],{},[{}]]",
            "null",
            r#"{"a":[1,{"b":null}],"c":"\u00e9\ud83d\ude00\n\/"}"#,
            " [1 , 2] ",
        ] {
            assert!(accepts(good), "{good}");
        }
        for bad in [
            "",
            "{",
            "[",
            "]",
            "{]",
            "[}",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\"}",
            "{a:1}",
            "{1:2}",
            "01",
            "+1",
            ".5",
            "1.",
            "1e",
            "NaN",
            "Infinity",
            "tru",
            "truex",
            "'a'",
            "\"a",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\udc00\"",
            "\"a\nb\"",
            "[1 2]",
            "{\"a\" 1}",
            "nul",
            "1 2",
            "-",
        ] {
            assert!(!accepts(bad), "{bad}");
        }
    }

    #[test]
    fn depth_has_a_limit_and_no_stack() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(accepts(&nested(1_024)));
        assert!(!accepts(&nested(1_025)));
        assert!(!accepts(&"[".repeat(1_000_000)));
    }

    #[test]
    fn specials_at_every_place_of_a_word() {
        for special in ["\"", "\\", "\u{1}", "\u{1f}"] {
            for place in 0..20 {
                let text = format!(
                    "{}{special}{}",
                    "é漢x".repeat(4)[..].chars().take(place).collect::<String>(),
                    "!#[]".repeat(5)
                );
                let mut cursor = Cursor::new(text.as_bytes());
                cursor.skip_plain();
                assert_eq!(Some(cursor.at), text.find(special), "{text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_serde(text in r#"[\[\]{}",:0-9a-eE.tnul\\ -]{0,24}"#) {
            // serde_json also refuses numbers beyond an f64.
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            let is_range = theirs.as_ref().is_err_and(|error| error.to_string().contains("out of range"));
            prop_assert!(is_range || accepts(&text) == theirs.is_ok(), "{}", text);
        }

        #[test]
        fn strings_round_trip(text in any::<String>()) {
            let coded = serde_json::to_string(&text).unwrap();
            let mut cursor = Cursor::new(coded.as_bytes());
            let string = cursor.string().unwrap();
            let mut out = Vec::new();
            unescape(&mut out, string.raw);
            prop_assert_eq!(out, text.as_bytes());
            prop_assert_eq!(cursor.at, coded.len());
        }
    }
}
