//! The interactive shell: statements and commands from a terminal, one after another.
//!
//! [`Lines`](editor) reads them; statements go to the [`Runner`] as those of scripts do, commands are
//! done here. An error ends a statement, not the shell.

mod commands;
mod complete;
mod editor;
pub(super) mod help;
mod highlight;
mod notices;
mod words;

use std::time::{Duration, Instant};

use self::commands::Command;
use self::editor::{Line, Lines};
pub(super) use self::notices::Notices;
use super::args::Format;
use super::keys::{Ahead, Keys};
use super::output::Stop;
use super::plot::{self, Chart};
use super::run::Runner;
use super::script::{self, Script};
use super::{background, interrupt, notes};
use crate::error::{Error, code};
use crate::sql::{PieceKind, Variables, scan};
use clap::ValueEnum;

/// Rows of a result that ends that are shown unless more are asked for.
const SHOWN_ROWS: usize = 1_000;
/// Columns of a terminal that does not tell its width.
const WIDTH: usize = 80;
/// How often a wait looks whether it is over.
const TICK: Duration = Duration::from_millis(50);

/// Reads statements and commands until the end of the input.
pub(super) fn run(runner: &mut Runner, variables: &[(String, String)]) -> Result<(), Stop> {
    notes::line(concat!(
        "tidegate ",
        env!("CARGO_PKG_VERSION"),
        ". Statements end with a semicolon; help explains, \\? lists commands, Ctrl-D leaves."
    ));
    interrupt::stay();
    let _ahead = Ahead::keep();
    runner.output.set_most_rows(Some(SHOWN_ROWS));
    let mut lines = Lines::try_new()?;
    let notices = Notices::new(lines.printer());
    runner.tell(notices.clone());
    let mut warned = false;
    let mut shell =
        Shell { runner, variables: Variables::new(variables), is_timed: false, last_query: String::new() };
    loop {
        let text = match notices.at_prompt(|| lines.next(&shell.runner.session))? {
            Line::Text(text) => text,
            Line::Dropped => {
                warned = false;
                continue;
            }
            Line::NoText => {
                notes::error(
                    &Error::usage(code::UNREADABLE_SCRIPT, "the input is no UTF-8 text")
                        .hint("Set the terminal to UTF-8."),
                );
                continue;
            }
            Line::End => {
                if lines.is_gone() || shell.leaves(&mut warned) {
                    return shell.end();
                }
                continue;
            }
        };
        match shell.input(&text) {
            Ok(Next::Goes) => warned = false,
            Ok(Next::Leaves) if shell.leaves(&mut warned) => return shell.end(),
            Ok(Next::Leaves) => {}
            Err(Stop::Closed) => return shell.end(),
            Err(Stop::Failed(error)) => notes::error(&error),
        }
        interrupt::clear();
    }
}

/// Whether a line leaves the shell.
fn leaves(line: &str) -> bool {
    matches!(line.trim().trim_end_matches(';').trim_end().to_ascii_lowercase().as_str(), "quit" | "exit")
}

enum Next {
    Goes,
    Leaves,
}

struct Shell<'a> {
    runner: &'a mut Runner,
    variables: Variables,
    is_timed: bool,
    /// What `\watch` runs again.
    last_query: String,
}

impl Shell<'_> {
    /// Whether a person who wants to leave may: who has jobs that run is told so first.
    fn leaves(&self, warned: &mut bool) -> bool {
        let running = background::running(self.runner.session.jobs());
        if running.is_empty() || std::mem::replace(warned, true) {
            return true;
        }
        let all: Vec<String> = running.iter().map(background::called).collect();
        let verb = if all.len() == 1 { "still runs" } else { "still run" };
        notes::line(&format!(
            "{} {verb}; leave once more to stop, or end with STOP JOB n WITH DRAIN first",
            all.join(", ")
        ));
        false
    }

    /// Stops what still runs.
    fn end(&self) -> Result<(), Stop> {
        background::stop_all(&background::running(self.runner.session.jobs()));
        Ok(())
    }

    fn input(&mut self, text: &str) -> Result<Next, Stop> {
        let line = text.trim();
        if line.is_empty() {
            return Ok(Next::Goes);
        }
        if leaves(line) {
            return Ok(Next::Leaves);
        }
        if let Some(topic) = help::asked(line) {
            self.runner.output.text(&help::text(topic))?;
            return Ok(Next::Goes);
        }
        if line.starts_with('\\') && !line.contains('\n') {
            return self.command(commands::parse(line)?);
        }
        self.statements(text)?;
        Ok(Next::Goes)
    }

    fn statements(&mut self, text: &str) -> Result<(), Stop> {
        let started = Instant::now();
        let (text, is_plotted) = without_plot(text);
        let script = Script::from_text("<input>", text, &self.variables)?;
        let done = self.runner.script(&script);
        self.last_query = text.to_owned();
        if self.is_timed {
            notes::line(&format!("time: {:.3} s", started.elapsed().as_secs_f64()));
        }
        done?;
        if is_plotted { self.plot(None) } else { Ok(()) }
    }

    fn command(&mut self, command: Command) -> Result<Next, Stop> {
        let runner = &mut *self.runner;
        match command {
            Command::Quit => return Ok(Next::Leaves),
            Command::Help => runner.output.text(&commands::overview())?,
            Command::Explain(topic) => runner.output.text(&help::text(&topic.unwrap_or_default()))?,
            Command::Describe(None) => self.run_each(&["SHOW TABLES;", "SHOW VIEWS;"])?,
            Command::Describe(Some(name)) => self.run_each(&[&format!("DESCRIBE {name};")])?,
            Command::Tables => self.run_each(&["SHOW TABLES;"])?,
            Command::Views => self.run_each(&["SHOW VIEWS;"])?,
            Command::Functions => self.run_each(&["SHOW FUNCTIONS;"])?,
            Command::Include(file) => {
                let script = script::read(&file, &self.variables)?;
                self.runner.script(&script)?;
            }
            Command::Format(name) => {
                let format = Format::from_str(&name, true).map_err(|_| {
                    Error::usage(code::SHELL_COMMAND, format!("there is no format \"{name}\""))
                        .hint("Use table, json, csv or changelog-json.")
                })?;
                runner.output.set_format(format);
                notes::line(&format!("rows are shown as {name}"));
            }
            Command::OutputTo(file) => {
                runner.output.redirect(file.as_deref())?;
                match file {
                    Some(file) => notes::line(&format!("rows are written to {file}")),
                    None => notes::line("rows are written to the terminal"),
                }
            }
            Command::Rows(rows) => {
                runner.output.set_most_rows((rows > 0).then_some(rows));
                match rows {
                    0 => notes::line("all rows are shown"),
                    _ => notes::line(&format!("{rows} rows of a result are shown")),
                }
            }
            Command::Timing(is_on) => {
                self.is_timed = is_on.unwrap_or(!self.is_timed);
                notes::line(&format!("timing is {}", on_off(self.is_timed)));
            }
            Command::Expanded(is_on) => {
                let is_on = is_on.unwrap_or(!runner.output.is_expanded());
                runner.output.set_expanded(is_on);
                notes::line(&format!("rows as blocks: {}", on_off(is_on)));
            }
            Command::Plot(file) => self.plot(file.as_deref())?,
            Command::Watch(seconds) => self.watch(Duration::from_secs(seconds))?,
        }
        Ok(Next::Goes)
    }

    fn run_each(&mut self, statements: &[&str]) -> Result<(), Stop> {
        statements.iter().try_for_each(|text| {
            self.runner.script(&Script { name: "<command>".to_owned(), text: (*text).to_owned() })
        })
    }

    fn plot(&mut self, file: Option<&str>) -> Result<(), Stop> {
        let Some((schema, batches)) = self.runner.last_result() else {
            return Err(Error::usage(code::NO_CHART, "there is no result to draw")
                .hint("Run a query first, and then \\plot.")
                .into());
        };
        let chart = Chart::of(schema, batches)?;
        match file {
            None => {
                let width = self.runner.output.line_width().unwrap_or(WIDTH);
                self.runner.output.text(&plot::text::draw(&chart, width, notes::has_colours()))
            }
            Some(file) if file.to_lowercase().ends_with(".svg") => {
                std::fs::write(file, plot::svg::draw(&chart)).map_err(|error| {
                    Error::run(code::UNWRITABLE, format!("can't write \"{file}\": {error}"))
                })?;
                notes::line(&format!("the chart is in {file}"));
                Ok(())
            }
            Some(file) => Err(Error::usage(code::SHELL_COMMAND, format!("\"{file}\" is no .svg file"))
                .hint("Give the picture a name that ends with .svg.")
                .into()),
        }
    }

    /// Runs the last query again and again.
    fn watch(&mut self, pause: Duration) -> Result<(), Stop> {
        if self.last_query.trim().is_empty() {
            return Err(Error::usage(code::SHELL_COMMAND, "there is no query to run again")
                .hint("Run a query first, and then \\watch.")
                .into());
        }
        let text = self.last_query.clone();
        loop {
            self.statements(&text)?;
            let keys = Keys::watch();
            let started = Instant::now();
            while started.elapsed() < pause {
                if interrupt::is_interrupted() || keys.as_ref().is_some_and(Keys::is_pressed) {
                    return Ok(());
                }
                std::thread::sleep(TICK.min(pause));
            }
        }
    }
}

fn on_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// The text without `| PLOT` at its end, and whether it was there.
fn without_plot(text: &str) -> (&str, bool) {
    let pieces = scan(text);
    let mut words = pieces.iter().rev().filter(|piece| {
        let is_end = piece.kind == PieceKind::Symbol && &text[piece.range.clone()] == ";";
        !matches!(piece.kind, PieceKind::Space | PieceKind::Comment) && !is_end
    });
    match (words.next(), words.next()) {
        (Some(word), Some(bar))
            if text[word.range.clone()].eq_ignore_ascii_case("plot")
                && bar.kind == PieceKind::Symbol
                && &text[bar.range.clone()] == "|" =>
        {
            (&text[..bar.range.start], true)
        }
        _ => (text, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_at_the_end_is_no_sql() {
        assert_eq!(without_plot("SELECT 1 AS a | PLOT;"), ("SELECT 1 AS a ", true));
        assert_eq!(without_plot("SELECT 1 |plot ; -- now"), ("SELECT 1 ", true));
        for text in ["SELECT 1 | 2;", "SELECT '| plot';", "SELECT plot;", "|"] {
            assert_eq!(without_plot(text), (text, false));
        }
    }

    #[test]
    fn words_that_leave() {
        assert!(leaves("quit") && leaves(" EXIT ;") && !leaves("exit now"));
    }
}
