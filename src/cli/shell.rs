//! A plain shell: statements from the keyboard, one after another.

use std::io::{self, BufRead};

use super::output::Stop;
use super::run::Runner;
use super::script::Script;
use super::{interrupt, notes};
use crate::sql;

/// Reads statements until the end of the input. An error ends a statement, not the shell.
pub(super) fn run(runner: &mut Runner) -> Result<(), Stop> {
    notes::line(concat!(
        "tidegate ",
        env!("CARGO_PKG_VERSION"),
        ". Statements end with a semicolon; Ctrl-C stops a query, Ctrl-D leaves."
    ));
    let mut text = String::new();
    loop {
        notes::prompt(if text.is_empty() { "tidegate> " } else { "      ... " });
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        if !matches!(read, Ok(length) if length > 0) {
            notes::line("");
            return Ok(());
        }
        if text.is_empty() && matches!(line.trim().trim_end_matches(';'), "quit" | "exit" | "\\q") {
            return Ok(());
        }
        text.push_str(&line);
        if text.trim().is_empty() {
            text.clear();
        } else if is_complete(&text) {
            let script = Script { name: "<input>".to_owned(), text: std::mem::take(&mut text) };
            match runner.script(&script) {
                Ok(()) => {}
                Err(Stop::Failed(error)) => notes::error(&error),
                Err(Stop::Closed) => return Ok(()),
            }
            interrupt::clear();
        }
    }
}

/// Whether the text is to be run. A statement set has semicolons inside; it ends with END.
fn is_complete(text: &str) -> bool {
    let words: Vec<_> = text.split_whitespace().map(str::to_uppercase).collect();
    let is_set = words.iter().skip(1).take(2).map(String::as_str).eq(["STATEMENT", "SET"])
        || words.iter().skip(1).take(2).map(String::as_str).eq(["STATEMENT", "SET;"]);
    let ends = words.last().is_some_and(|last| matches!(last.as_str(), "END;" | ";"))
        && words.iter().rev().take(2).any(|word| word.trim_end_matches(';') == "END");
    sql::is_complete(text) && (!is_set || ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_set_ends_with_end() {
        for (text, complete) in [
            ("SELECT 1", false),
            ("SELECT 1;", true),
            ("SELECT ';'", false),
            ("SELECT 1; -- more", true),
            ("BEGIN STATEMENT SET;", false),
            ("begin statement set; INSERT INTO a SELECT 1;", false),
            ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;", true),
            ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END ;", true),
        ] {
            assert_eq!(is_complete(text), complete, "{text}");
        }
    }
}
