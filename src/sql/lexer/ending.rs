//! How a text ends: inside a quote or comment, with a semicolon, or in the middle of a statement.

use crate::error::Place;

/// How a text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sql) enum Ending {
    /// With a semicolon, maybe followed by spaces and comments.
    Complete,
    /// Otherwise.
    Incomplete,
    /// Inside a quoted string or name.
    OpenQuote {
        /// The quote.
        quote: char,
        /// Where it opens.
        at: Place,
    },
    /// Inside a comment.
    OpenComment {
        /// Where it opens.
        at: Place,
    },
}

/// How `text` ends; a text of spaces and comments only is incomplete.
pub(in crate::sql) fn ending(text: &str) -> Ending {
    let mut reader = Reader { rest: text.chars(), place: Place { line: 1, column: 1 } };
    let mut last = Ending::Incomplete;
    let mut before = ' ';
    loop {
        let at = reader.place;
        let Some(c) = reader.next() else { return last };
        match c {
            '-' if reader.peek() == Some('-') => while reader.next().is_some_and(|c| c != '\n') {},
            '/' if reader.peek() == Some('*') => {
                reader.next();
                if !reader.skip_comment() {
                    return Ending::OpenComment { at };
                }
            }
            '\'' | '"' | '`' => {
                let escapes = c == '\'' && matches!(before, 'e' | 'E');
                if !reader.skip_quoted(c, escapes) {
                    return Ending::OpenQuote { quote: c, at };
                }
                last = Ending::Incomplete;
            }
            ';' => last = Ending::Complete,
            c if c.is_whitespace() => {}
            _ => last = Ending::Incomplete,
        }
        // `E'…'` is a string with escapes, the end of a longer word before a quote is not.
        before = if before.is_alphanumeric() || before == '_' { '_' } else { c };
        if !(c.is_alphanumeric() || c == '_') {
            before = c;
        }
    }
}

struct Reader<'a> {
    rest: std::str::Chars<'a>,
    place: Place,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.place = Place { line: self.place.line + 1, column: 1 };
        } else {
            self.place.column += 1;
        }
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    /// Goes behind `*/`; false if there is none.
    fn skip_comment(&mut self) -> bool {
        let mut star = false;
        while let Some(c) = self.next() {
            if star && c == '/' {
                return true;
            }
            star = c == '*';
        }
        false
    }

    /// Goes behind the closing quote, where a doubled one does not close; false if there is none.
    fn skip_quoted(&mut self, quote: char, escapes: bool) -> bool {
        while let Some(c) = self.next() {
            if escapes && c == '\\' {
                self.next();
            } else if c == quote {
                if self.peek() != Some(quote) {
                    return true;
                }
                self.next();
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_count_outside_of_quotes_and_comments_only() {
        for text in
            ["SELECT 1;", "SELECT 1; -- done", "SELECT ';';\n/* ; */ ", "SELECT 'it''s';", "SELECT E'\\'';"]
        {
            assert_eq!(ending(text), Ending::Complete, "{text}");
        }
        for text in
            ["", "-- ;", "SELECT 1", "SELECT 1 -- ;", "SELECT 1; SELECT 2", "SELECT ';'", "SELECT `;`"]
        {
            assert_eq!(ending(text), Ending::Incomplete, "{text}");
        }
    }

    #[test]
    fn what_is_open_is_found_where_it_opens() {
        let at = |line, column| Place { line, column };
        assert_eq!(ending("SELECT\n  'a;"), Ending::OpenQuote { quote: '\'', at: at(2, 3) });
        assert_eq!(ending("SELECT 'it''s;"), Ending::OpenQuote { quote: '\'', at: at(1, 8) });
        assert_eq!(ending("SELECT 'a' \"b;"), Ending::OpenQuote { quote: '"', at: at(1, 12) });
        assert_eq!(ending("a /* b;"), Ending::OpenComment { at: at(1, 3) });
        // The name ends in e; its string has no escapes.
        assert_eq!(ending("SELECT type'\\';"), Ending::Complete);
    }
}
