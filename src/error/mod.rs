//! What every layer fails with: a stable code, a message, a place in the SQL, a way out.
//!
//! Invariant: nothing here knows SQL syntax, plans or files; a place is a line and a column.

pub mod code;
mod page;
mod render;

use std::fmt;
use std::sync::Arc;

pub use code::Code;
pub use page::{codes, page};

/// A place in a script. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
}

/// A piece of a script, from its first character to the one after its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The first character.
    pub start: Place,
    /// The place just after the last character.
    pub end: Place,
}

/// The text that spans point into, with the name a person knows it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceText {
    /// A file name, or `<command line>`.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// When an error happened; it decides the exit code of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The command line or a setting is wrong.
    Usage,
    /// The text is not SQL as we know it.
    Parse,
    /// The statement can't be planned.
    Plan,
    /// A running query failed.
    Run,
    /// A fault of Tidegate itself.
    Internal,
    /// The user stopped it.
    Interrupted,
}

/// The error of every public function.
///
/// Built with a phase constructor, then narrowed: `Error::plan(code, "…").at(span).hint("…")`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Diagnostic>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Diagnostic {
    phase: Phase,
    code: Code,
    message: String,
    span: Option<Span>,
    hint: Option<String>,
    source: Option<Arc<SourceText>>,
}

impl Error {
    fn new(phase: Phase, code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Diagnostic {
            phase,
            code,
            message: message.into(),
            span: None,
            hint: None,
            source: None,
        }))
    }

    /// The command line or a setting is wrong.
    pub fn usage(code: Code, message: impl Into<String>) -> Self {
        Self::new(Phase::Usage, code, message)
    }

    /// The text can't be parsed.
    pub fn parse(code: Code, message: impl Into<String>) -> Self {
        Self::new(Phase::Parse, code, message)
    }

    /// The statement can't be planned.
    pub fn plan(code: Code, message: impl Into<String>) -> Self {
        Self::new(Phase::Plan, code, message)
    }

    /// A running query failed.
    pub fn run(code: Code, message: impl Into<String>) -> Self {
        Self::new(Phase::Run, code, message)
    }

    /// A fault of Tidegate itself; `whose` is the operator or module.
    pub fn internal(whose: &str, message: impl fmt::Display) -> Self {
        Self::new(Phase::Internal, code::INTERNAL, format!("internal error in {whose}: {message}"))
            .hint("This is a fault of Tidegate, not of the query; please report it with the script.")
    }

    /// The user stopped the query.
    pub fn interrupted() -> Self {
        Self::new(Phase::Interrupted, code::INTERRUPTED, "interrupted")
    }

    /// Sets the place in the SQL, unless one is set already: the innermost place is the best one.
    #[must_use]
    pub fn at(mut self, span: impl Into<Option<Span>>) -> Self {
        if self.0.span.is_none() {
            self.0.span = span.into();
        }
        self
    }

    /// Sets the way out: a full sentence that starts with a verb.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Sets the text that the span points into, for rendering.
    #[must_use]
    pub fn in_source(mut self, source: &Arc<SourceText>) -> Self {
        if self.0.source.is_none() {
            self.0.source = Some(Arc::clone(source));
        }
        self
    }

    /// Puts more context before the message: `operator "x": …`.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// When it happened.
    pub fn phase(&self) -> Phase {
        self.0.phase
    }

    /// The stable code, such as `W004`.
    pub fn code(&self) -> &'static str {
        self.0.code.0
    }

    /// The message, without code and place.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The place in the SQL.
    pub fn span(&self) -> Option<Span> {
        self.0.span
    }

    /// The way out.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The exit code of the command line: 1 while running, 2 before, 130 interrupted.
    pub fn exit_code(&self) -> u8 {
        match self.0.phase {
            Phase::Usage | Phase::Parse | Phase::Plan => 2,
            Phase::Run | Phase::Internal => 1,
            Phase::Interrupted => 130,
        }
    }

    /// The error as people read it: code, message, the line of SQL with a caret, the hint.
    pub fn render(&self) -> String {
        render::render(self, "error")
    }

    /// The same for what is no error: with `word` in its place.
    pub(crate) fn render_as(&self, word: &str) -> String {
        render::render(self, word)
    }

    pub(crate) fn source_text(&self) -> Option<&SourceText> {
        self.0.source.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.0.code.0, self.0.message)?;
        if let Some(span) = self.0.span {
            write!(f, " at line {}, column {}", span.start.line, span.start.column)?;
        }
        if let Some(hint) = &self.0.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// The nearest of `known` to `word`, if one is near enough to be a typing error.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&word, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= 1 + name.chars().count() / 5)
        .min()
        .map(|(_, name)| name)
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}
