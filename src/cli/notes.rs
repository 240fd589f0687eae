//! What goes to standard error: errors, warnings, summaries. A closed one is no reason to fail.

use std::env;
use std::io::{self, IsTerminal, Write};

use crate::error::Error;

/// Writes a line.
pub(super) fn line(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes an error.
pub(super) fn error(error: &Error) {
    line(&painted(&error.render(), has_colours()));
}

/// Writes a warning.
pub(super) fn warning(text: &str) {
    let (on, off) = if has_colours() { ("\x1b[1;33m", "\x1b[0m") } else { ("", "") };
    line(&format!("{on}warning:{off} {text}"));
}

/// Whether standard error is a terminal that wants colours.
pub(super) fn has_colours() -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !is_set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The kind of the error red, its hint green.
fn painted(rendered: &str, has_colours: bool) -> String {
    let Some((kind, rest)) = rendered.split_once(": ").filter(|_| has_colours) else {
        return rendered.to_owned();
    };
    let rest = rest.replacen("\nhint:", "\n\x1b[1;32mhint:\x1b[0m", 1);
    format!("\x1b[1;31m{kind}:\x1b[0m {rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_only() {
        let rendered = "error[P001]: unknown table: \"x\"\nhint: Use \"y\".";
        assert_eq!(painted(rendered, false), rendered);
        assert_eq!(
            painted(rendered, true),
            "\x1b[1;31merror[P001]:\x1b[0m unknown table: \"x\"\n\x1b[1;32mhint:\x1b[0m Use \"y\"."
        );
    }
}
