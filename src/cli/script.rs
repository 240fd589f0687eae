//! Scripts: reading them.

use std::io::Read;
use std::path::Path;

use crate::error::{Error, code};
use crate::sql::Variables;

/// A script, ready to be parsed.
pub(super) struct Script {
    /// What errors call it.
    pub(super) name: String,
    /// Its text, variables replaced.
    pub(super) text: String,
}

/// Reads a script; `-` is standard input.
///
/// # Errors
/// `U002` if it can't be read or is no text; the errors of [`Script::from_text`].
pub(super) fn read(file: &str, variables: &Variables) -> Result<Script, Error> {
    if file == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(|error| unreadable("<stdin>", &error))?;
        return Script::from_text("<stdin>", &text("<stdin>", bytes)?, variables);
    }
    let path = Path::new(file);
    if path.is_dir() {
        return Err(Error::usage(code::UNREADABLE_SCRIPT, format!("\"{file}\" is a folder, not a script"))
            .hint("Name the .sql file."));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(file, &error))?;
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_string_lossy(),
        _ => ".".into(),
    };
    Script::from_text(file, &text(file, bytes)?, &variables.with_dir(&dir))
}

fn unreadable(name: &str, error: &std::io::Error) -> Error {
    Error::usage(code::UNREADABLE_SCRIPT, format!("can't read \"{name}\": {error}"))
        .hint("Check the path; it is relative to the current folder.")
}

fn text(name: &str, bytes: Vec<u8>) -> Result<String, Error> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::usage(code::UNREADABLE_SCRIPT, format!("\"{name}\" is no UTF-8 text: see byte {at}"))
            .hint("Save the script as UTF-8.")
    })?;
    // Some editors put a byte order mark first.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

impl Script {
    /// Replaces the variables of a text. `DIR` is the current folder unless it is given.
    ///
    /// # Errors
    /// `U003` for a variable without value, with its place.
    pub(super) fn from_text(name: &str, text: &str, variables: &Variables) -> Result<Self, Error> {
        let text = variables.with_dir(".").replace(name, text)?;
        Ok(Self { name: name.to_owned(), text })
    }
}
