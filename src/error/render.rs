//! Errors as people read them: rustc's shape, plain text.

use std::fmt::Write;

use super::{Error, Place, SourceText, Span};

/// The header line with `word` before the code, the place with a caret under it, and the hint.
pub(super) fn render(error: &Error, word: &str) -> String {
    let mut out = format!("{word}[{}]: {}", error.code(), error.message());
    if let (Some(span), Some(source)) = (error.span(), error.source_text()) {
        snippet(&mut out, span, source);
    }
    if let Some(hint) = error.hint_text() {
        let _ = write!(out, "\nhint: {hint}");
    }
    out
}

fn snippet(out: &mut String, span: Span, source: &SourceText) {
    let Place { line, column } = span.start;
    let _ = write!(out, "\n --> {}:{line}:{column}", source.name);
    let Some(text) = usize::try_from(line).ok().and_then(|n| source.text.lines().nth(n.checked_sub(1)?))
    else {
        return;
    };
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    // Tabs are shown as one space, so that the caret stands under its character.
    let shown: String = text.chars().map(|c| if c == '\t' { ' ' } else { c }).collect();
    let length = shown.chars().count() as u64;
    let end = if span.end.line == line { span.end.column } else { length + 1 };
    let width = end.saturating_sub(column).clamp(1, (length + 1).saturating_sub(column).max(1));
    let indent = " ".repeat(column.saturating_sub(1) as usize);
    let _ =
        write!(out, "\n{margin} |\n{number} | {shown}\n{margin} | {indent}{}", "^".repeat(width as usize));
}
