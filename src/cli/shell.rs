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
        } else if sql::is_complete(&text) {
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
