//! Lines from a terminal: editing, history, colours, completion.

use std::borrow::Cow;
use std::path::PathBuf;
use std::{env, fs};

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, ExternalPrinter, Helper};

use super::highlight::highlight;
use super::words::Names;
use super::{help, notes};
use crate::error::Error;
use crate::session::Session;
use crate::sql;

const PROMPT: &str = "tidegate> ";
/// Statements that are remembered.
const HISTORY: usize = 10_000;

/// What was read.
pub(super) enum Line {
    Text(String),
    /// Ctrl-C: what was typed is dropped.
    Dropped,
    /// The bytes are no text.
    NoText,
    End,
}

/// Reads statements and commands.
pub(super) struct Lines {
    editor: Editor<ShellHelper, FileHistory>,
    history: Option<PathBuf>,
    /// Standard input has gone.
    is_gone: bool,
}

impl Lines {
    pub(super) fn try_new() -> Result<Self, Error> {
        let fault = |error: ReadlineError| Error::internal("shell", error);
        let config = Config::builder()
            .max_history_size(HISTORY)
            .map_err(fault)?
            .history_ignore_dups(true)
            .map_err(fault)?
            .completion_type(CompletionType::List)
            .completion_prompt_limit(100)
            .bracketed_paste(true)
            .build();
        let history = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).map_err(fault)?;
        let has_colours = notes::has_colours();
        editor.set_helper(Some(ShellHelper {
            names: Names::default(),
            files: FilenameCompleter::new(),
            has_colours,
        }));
        let history = history_file();
        if let Some(file) = &history {
            // There is none before the first statement.
            let _ = editor.load_history(file);
        }
        Ok(Self { editor, history, is_gone: false })
    }

    /// Writes lines above the prompt while something is typed, if the terminal can.
    pub(super) fn printer(&mut self) -> Option<Box<dyn ExternalPrinter + Send>> {
        let printer = self.editor.create_external_printer().ok()?;
        Some(Box::new(printer))
    }

    /// Whether nothing can be read any more.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Reads the next statement or command.
    pub(super) fn next(&mut self, session: &Session) -> Result<Line, Error> {
        if let Some(helper) = self.editor.helper_mut() {
            helper.names.refresh(session);
        }
        match self.editor.readline(PROMPT) {
            Ok(text) => {
                self.remember(&text);
                Ok(Line::Text(text))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Dropped),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                Ok(Line::NoText)
            }
            // Standard input has gone.
            Err(_) => {
                self.is_gone = true;
                Ok(Line::End)
            }
        }
    }

    fn remember(&mut self, text: &str) {
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        // A history that can't be written is no reason to stop anybody.
        if let (Ok(true), Some(file)) = (self.editor.add_history_entry(text), &self.history) {
            let _ = self.editor.append_history(file);
        }
    }
}

/// `$XDG_STATE_HOME/tidegate/history`, or the same in `~/.local/state`.
fn history_file() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    let folder = state.join("tidegate");
    fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}

/// What the editor asks about a line.
struct ShellHelper {
    names: Names,
    files: FilenameCompleter,
    has_colours: bool,
}

impl Helper for ShellHelper {}

impl Hinter for ShellHelper {
    type Hint = String;
}

impl Validator for ShellHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match is_whole(context.input()) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

/// Whether Enter runs the input.
pub(super) fn is_whole(input: &str) -> bool {
    let first = input.trim();
    let is_line = !first.contains('\n');
    first.is_empty()
        || (is_line && (first.starts_with('\\') || help::asked(first).is_some() || super::leaves(first)))
        || sql::is_complete(input)
}

impl Completer for ShellHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        Ok(super::complete::complete(&line[..cursor], &self.names, &self.files))
    }
}

impl Highlighter for ShellHelper {
    fn highlight<'l>(&self, line: &'l str, cursor: usize) -> Cow<'l, str> {
        match self.has_colours {
            true => Cow::Owned(highlight(line, cursor)),
            false => Cow::Borrowed(line),
        }
    }

    fn highlight_char(&self, _line: &str, _cursor: usize, _kind: CmdKind) -> bool {
        self.has_colours
    }
}

#[cfg(test)]
mod tests {
    use super::is_whole;

    #[test]
    fn enter_runs_statements_and_commands() {
        for (input, whole) in [
            ("", true),
            ("  \n", true),
            ("SELECT 1", false),
            ("SELECT 1;", true),
            ("SELECT ';'", false),
            ("SELECT\n1;", true),
            ("\\d flights", true),
            ("SELECT\n\\d", false),
            ("help tumble", true),
            ("quit", true),
            ("exit;", true),
            ("SELECT 1;\nSELECT 2", false),
            ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1;", false),
        ] {
            assert_eq!(is_whole(input), whole, "{input}");
        }
    }
}
