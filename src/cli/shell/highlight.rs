//! Colours for a statement that is being typed.

use std::fmt::Write;

use super::words::is_keyword;
use crate::sql::{Piece, PieceKind, scan};

const KEYWORD: &str = "\x1b[1;34m";
const TEXT: &str = "\x1b[32m";
const NUMBER: &str = "\x1b[36m";
const COMMENT: &str = "\x1b[90m";
const COMMAND: &str = "\x1b[35m";
const BRACKET: &str = "\x1b[1;4m";
const OFF: &str = "\x1b[0m";

/// The line with colours. `cursor`: its byte, whose bracket is shown with its partner.
pub(super) fn highlight(line: &str, cursor: usize) -> String {
    if line.trim_start().starts_with('\\') {
        return format!("{COMMAND}{line}{OFF}");
    }
    let pieces = scan(line);
    let pair = brackets(line, &pieces, cursor);
    let mut out = String::with_capacity(line.len() * 2);
    for (index, piece) in pieces.iter().enumerate() {
        let text = &line[piece.range.clone()];
        let colour = match piece.kind {
            PieceKind::Word if is_keyword(text) => KEYWORD,
            PieceKind::Text => TEXT,
            PieceKind::Number => NUMBER,
            PieceKind::Comment => COMMENT,
            PieceKind::Symbol if pair.is_some_and(|(a, b)| a == index || b == index) => BRACKET,
            _ => {
                out.push_str(text);
                continue;
            }
        };
        let _ = write!(out, "{colour}{text}{OFF}");
    }
    out
}

/// The bracket under or just before the cursor and its partner, as indices of pieces.
fn brackets(line: &str, pieces: &[Piece], cursor: usize) -> Option<(usize, usize)> {
    let is_bracket = |piece: &Piece| {
        piece.kind == PieceKind::Symbol && matches!(&line[piece.range.clone()], "(" | ")" | "[" | "]")
    };
    let at = |byte: usize| pieces.iter().position(|piece| piece.range.start == byte && is_bracket(piece));
    let from = at(cursor).or_else(|| at(cursor.checked_sub(1)?))?;
    let text = |index: usize| &line[pieces[index].range.clone()];
    let (own, other) = match text(from) {
        "(" => ("(", ")"),
        ")" => (")", "("),
        "[" => ("[", "]"),
        _ => ("]", "["),
    };
    let opens = matches!(own, "(" | "[");
    let mut depth = 0_usize;
    let mut indices: Box<dyn Iterator<Item = usize>> =
        if opens { Box::new(from..pieces.len()) } else { Box::new((0..=from).rev()) };
    indices
        .find(|index| {
            let piece = &pieces[*index];
            if piece.kind != PieceKind::Symbol {
                return false;
            }
            if text(*index) == own {
                depth += 1;
            } else if text(*index) == other {
                depth -= 1;
            }
            depth == 0
        })
        .map(|to| (from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_get_their_colour() {
        assert_eq!(
            highlight("SELECT 'x', 1 -- y", 0),
            "\x1b[1;34mSELECT\x1b[0m \x1b[32m'x'\x1b[0m, \x1b[36m1\x1b[0m \x1b[90m-- y\x1b[0m"
        );
        assert_eq!(highlight("\\d x", 0), "\x1b[35m\\d x\x1b[0m");
        assert_eq!(highlight("origin", 0), "origin");
    }

    #[test]
    fn a_bracket_shows_its_partner() {
        let marked = |line: &str, cursor| highlight(line, cursor).matches(BRACKET).count();
        assert_eq!(marked("f((a) + ')'", 1), 0);
        assert_eq!(marked("f((a) + ')')", 1), 2);
        assert_eq!(marked("f(a)", 4), 2);
        assert_eq!(marked("f[(a)]", 1), 2);
        assert_eq!(marked("f(a)", 3), 2);
        assert_eq!(marked("f a", 1), 0);
    }
}
