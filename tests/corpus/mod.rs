//! What the golden drivers share: text files of cases, and how they are rewritten.
//!
//! A case is a directive with its name, SQL, `----` and what is expected, up to an empty line. Lines
//! before the first case that begin with `#` are comments and stay when a file is rewritten.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

/// A case of a file.
#[derive(Debug, Clone)]
pub(crate) struct Case<D> {
    pub(crate) directive: D,
    pub(crate) name: String,
    pub(crate) sql: String,
    pub(crate) expected: String,
}

/// What stands before the `: name` of a case.
pub(crate) trait Directive: Copy + Send + 'static {
    /// The directive of a word.
    fn of(word: &str) -> Option<Self>;
    /// Its word.
    fn word(self) -> &'static str;
}

/// The text files of a folder, by name.
///
/// # Panics
/// If there is none.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no cases in {}", folder.display());
    files
}

/// The cases of a file, in order.
pub(crate) fn read<D: Directive>(file: &Path) -> Vec<Case<D>> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut cases: Vec<Case<D>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let case = line.split_once(": ").and_then(|(word, name)| Some((D::of(word)?, name.trim())));
        let (directive, name) = case.unwrap_or_else(|| panic!("{}: no directive: {line}", file.display()));
        assert!(cases.iter().all(|case| case.name != name), "{}: {name} twice", file.display());
        let sql: Vec<&str> = lines.by_ref().take_while(|line| *line != "----").collect();
        let expected: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let (sql, expected) = (sql.join("\n"), expected.join("\n"));
        cases.push(Case { directive, name: name.to_owned(), sql, expected });
    }
    cases
}

/// Rewrites the files with what `actual` gives for their cases in order, if `UPDATE_EXPECT` is set.
///
/// # Panics
/// If `CI` is set, too.
pub(crate) fn update<D: Directive>(files: &[PathBuf], actual: impl Fn(&[Case<D>], usize) -> String) {
    if std::env::var_os("UPDATE_EXPECT").is_none() {
        return;
    }
    assert!(std::env::var_os("CI").is_none(), "expectations are not rewritten in CI");
    for file in files {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let header: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        let mut out = header.join("\n");
        if !out.is_empty() {
            out.push('\n');
        }
        let cases = read::<D>(file);
        for (number, case) in cases.iter().enumerate() {
            let separator = if out.is_empty() { "" } else { "\n" };
            let (word, name, sql) = (case.directive.word(), &case.name, &case.sql);
            let _ = write!(out, "{separator}{word}: {name}\n{sql}\n----\n");
            let actual = actual(&cases, number);
            if !actual.is_empty() {
                let _ = writeln!(out, "{}", actual.trim_end());
            }
        }
        fs::write(file, out).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}

/// A test named after its file and case.
pub(crate) fn trial(
    file: &Path,
    name: &str,
    check: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let topic = file.file_stem().unwrap_or_default().to_string_lossy();
    Trial::test(format!("{topic}::{name}"), check)
}

/// Fails unless both are the same.
pub(crate) fn same(expected: &str, actual: &str) -> Result<(), Failed> {
    if expected == actual {
        return Ok(());
    }
    Err(format!("expected:\n{expected}\nactual:\n{actual}").into())
}
