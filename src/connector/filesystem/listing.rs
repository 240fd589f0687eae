//! Finds the files of a table.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::connector::assembly::{SplitFacts, millis};
use crate::connector::input::unreadable;
use crate::error::{Error, code};

/// A file to read.
#[derive(Debug, Clone)]
pub(super) struct FoundFile {
    pub(super) path: PathBuf,
    pub(super) facts: SplitFacts,
}

/// The path of a table's `'path'`: `file://` and `file:` are understood.
pub(crate) fn local_path(path: &str) -> &str {
    path.strip_prefix("file://").or_else(|| path.strip_prefix("file:")).unwrap_or(path)
}

/// Whether the path is a pattern.
pub(super) fn is_glob(path: &str) -> bool {
    path.contains(['*', '?', '[']) && !Path::new(path).exists()
}

/// The files of a path, sorted by path.
///
/// A file, pipe or device is itself. A folder is all files in it, at any depth. A pattern is all
/// files that match it; folders that match are read like folders. Names that start with `.` or `_`
/// and files in progress are skipped, unless they are named outright.
///
/// # Errors
/// `F001` if there is no such path, or nothing matches the pattern.
pub(super) fn find_files(path: &str) -> Result<Vec<FoundFile>, Error> {
    let path = local_path(path);
    let mut found = Vec::new();
    if is_glob(path) {
        for path in matches(path)? {
            let Some(facts) = facts_of(&path)? else { continue };
            if facts.is_dir() {
                walk(&path, &mut found)?;
            } else {
                found.push(file(path, &facts));
            }
        }
    } else {
        let facts = fs::metadata(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::run(
                code::UNREADABLE,
                format!("can't read \"{path}\": there is no such file or folder"),
            ),
            _ => unreadable(path, &error),
        })?;
        if facts.is_dir() {
            walk(Path::new(path), &mut found)?;
        } else {
            found.push(file(PathBuf::from(path), &facts));
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.dedup_by(|a, b| a.path == b.path);
    Ok(found)
}

fn matches(pattern: &str) -> Result<Vec<PathBuf>, Error> {
    let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
    let paths = glob::glob_with(pattern, options).map_err(|error| {
        Error::run(code::UNREADABLE, format!("can't read \"{pattern}\": the pattern is wrong: {error}"))
    })?;
    let mut found = Vec::new();
    for path in paths {
        let path = path.map_err(|error| unreadable(&shown(error.path()), error.error()))?;
        if !is_hidden(&path) {
            found.push(path);
        }
    }
    if found.is_empty() {
        return Err(Error::run(code::UNREADABLE, format!("can't read \"{pattern}\": no file matches"))
            .hint("Check the pattern; relative paths start at the working directory."));
    }
    Ok(found)
}

/// Adds the files below a folder. Links to folders are not followed: they may lead in a circle.
fn walk(folder: &Path, found: &mut Vec<FoundFile>) -> Result<(), Error> {
    let failed = |error: io::Error| unreadable(&shown(folder), &error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if is_hidden(&path) {
            continue;
        }
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            walk(&path, found)?;
            continue;
        }
        let Some(facts) = facts_of(&path)? else { continue };
        if facts.is_file() {
            found.push(file(path, &facts));
        }
    }
    Ok(())
}

/// What is known of a path; `None` if it is gone since it was listed.
fn facts_of(path: &Path) -> Result<Option<fs::Metadata>, Error> {
    match fs::metadata(path) {
        Ok(facts) => Ok(Some(facts)),
        // A link to nowhere is still an error.
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
            Ok(None)
        }
        Err(error) => Err(unreadable(&shown(path), &error)),
    }
}

fn file(path: PathBuf, facts: &fs::Metadata) -> FoundFile {
    let facts = SplitFacts {
        path: shown(&path),
        size: facts.is_file().then_some(facts.len()),
        modified_ms: facts.modified().ok().and_then(millis),
    };
    FoundFile { path, facts }
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    name.starts_with(['.', '_']) || name.ends_with(".tmp") || name.contains(".inprogress")
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &Path) -> Vec<String> {
        let files = find_files(&path.to_string_lossy()).unwrap();
        files.iter().map(|file| file.path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn folders_and_patterns() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.json", "a.json", "c.csv", ".hidden", "_SUCCESS", "x.json.tmp", "p.inprogress.1"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        fs::create_dir(dir.path().join("deep")).unwrap();
        fs::write(dir.path().join("deep/d.json"), "").unwrap();
        assert_eq!(names(dir.path()), ["a.json", "b.json", "c.csv", "d.json"]);
        assert_eq!(names(&dir.path().join("*.json")), ["a.json", "b.json"]);
        assert_eq!(names(&dir.path().join("**/*.json")), ["a.json", "b.json", "d.json"]);
        assert_eq!(names(&dir.path().join(".hidden")), [".hidden"]);
        let error = find_files(&dir.path().join("*.parquet").to_string_lossy()).unwrap_err();
        assert_eq!(error.code(), "F001");
        let missing = dir.path().join("none").to_string_lossy().into_owned();
        let error = find_files(&missing).unwrap_err();
        assert!(error.code() == "F001" && error.message().contains(&missing), "{error}");
    }

    #[test]
    fn a_folder_without_files_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        assert!(names(dir.path()).is_empty());
    }
}
