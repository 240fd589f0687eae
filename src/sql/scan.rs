//! A text in pieces, whatever it holds: for shells that colour and complete half a statement, and for
//! scripts before their variables are replaced.
//!
//! Invariant: nothing fails, and the pieces together are the text.

use std::ops::Range;

/// What a piece of a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceKind {
    /// Spaces and line ends.
    Space,
    /// `-- …` without its line end, or `/* … */`.
    Comment,
    /// A keyword or a name without quotes.
    Word,
    /// A name in `"…"` or `` `…` ``.
    QuotedName,
    /// A text in `'…'`.
    Text,
    /// A number.
    Number,
    /// One character of anything else.
    Symbol,
}

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// What it is.
    pub kind: PieceKind,
    /// Its bytes in the text.
    pub range: Range<usize>,
    /// It lacks its end: a closing quote, or `*/`.
    pub is_open: bool,
}

/// Cuts a text into pieces.
///
/// # Examples
/// ```
/// use tidegate::sql::{PieceKind, scan};
///
/// let kinds: Vec<PieceKind> = scan("SELECT 'a").iter().map(|piece| piece.kind).collect();
/// assert_eq!(kinds, [PieceKind::Word, PieceKind::Space, PieceKind::Text]);
/// assert!(scan("SELECT 'a")[2].is_open);
/// ```
pub fn scan(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let (kind, length) = match first {
            _ if first.is_whitespace() => (PieceKind::Space, end_of(rest, char::is_whitespace)),
            '\'' => (PieceKind::Text, quoted(rest, '\'')),
            '"' | '`' => (PieceKind::QuotedName, quoted(rest, first)),
            '-' if rest.starts_with("--") => {
                (PieceKind::Comment, Some(rest.find('\n').unwrap_or(rest.len())))
            }
            '/' if rest.starts_with("/*") => (PieceKind::Comment, rest[2..].find("*/").map(|end| end + 4)),
            _ if first.is_alphabetic() || first == '_' => {
                (PieceKind::Word, end_of(rest, |c| c.is_alphanumeric() || c == '_' || c == '$'))
            }
            _ if first.is_ascii_digit() => {
                (PieceKind::Number, end_of(rest, |c| c.is_ascii_alphanumeric() || c == '.' || c == '_'))
            }
            _ => (PieceKind::Symbol, Some(first.len_utf8())),
        };
        let end = at + length.unwrap_or(rest.len());
        pieces.push(Piece { kind, range: at..end, is_open: length.is_none() });
        at = end;
    }
    pieces
}

fn end_of(text: &str, belongs: impl Fn(char) -> bool) -> Option<usize> {
    Some(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// The length of a quoted piece; a doubled quote stands for itself. `None`: its end is not there.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let mut at = 1;
    loop {
        at += text[at..].find(quote)? + 1;
        if !text[at..].starts_with(quote) {
            return Some(at);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::PieceKind::{Comment, Number, QuotedName, Space, Symbol, Text, Word};
    use super::*;

    fn pieces(text: &str) -> Vec<(PieceKind, &str)> {
        let pieces = scan(text);
        let joined: String = pieces.iter().map(|piece| &text[piece.range.clone()]).collect();
        assert_eq!(joined, text);
        let shown = pieces.into_iter().filter(|piece| piece.kind != Space);
        shown.map(|piece| (piece.kind, &text[piece.range])).collect()
    }

    #[test]
    fn quotes_and_comments_hide_each_other() {
        assert_eq!(pieces("'it''s -- no' -- it's"), [(Text, "'it''s -- no'"), (Comment, "-- it's")]);
        assert_eq!(
            pieces("a /* 'x */ \"b\"\"c\" `d`"),
            [(Word, "a"), (Comment, "/* 'x */"), (QuotedName, "\"b\"\"c\""), (QuotedName, "`d`")]
        );
        assert_eq!(
            pieces("été_1 = 1.5e3;"),
            [(Word, "été_1"), (Symbol, "="), (Number, "1.5e3"), (Symbol, ";")]
        );
    }

    #[test]
    fn what_lacks_its_end_is_open() {
        for (text, is_open) in
            [("'a", true), ("'a''", true), ("''", false), ("/* a", true), ("/*/", true), ("-- a", false)]
        {
            assert_eq!(scan(text).last().map(|piece| piece.is_open), Some(is_open), "{text}");
        }
        assert!(scan("").is_empty());
    }
}
