//! The part files that one INSERT gives a folder: their names, and those that wait for a checkpoint.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use serde_json::{Value, json};

use super::placement::{publish, sync_folder_of};
use crate::connector::assembly::millis;

/// The parts of one INSERT.
pub(super) struct Parts {
    pub(super) folder: PathBuf,
    /// `part-<milliseconds>-<process>-<insert>`; with the number of the part behind it, and the run where it is not the
    /// first one, parts sort in the order in which they were begun.
    name: String,
    extension: String,
    /// The number of the next one.
    next: u64,
    /// Runs that went on with it: the number of the first part of each, and what stands behind the numbers of its parts. Those
    /// before the first of them have nothing there.
    runs: Vec<(u64, String)>,
    /// Written, safe and not visible: the hidden name, and the name to be.
    pub(super) sealed: Vec<(PathBuf, PathBuf)>,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Parts {
    pub(super) fn new(folder: &Path, extension: &str) -> Self {
        let now = millis(SystemTime::now()).unwrap_or(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Self {
            folder: folder.to_path_buf(),
            name: format!("part-{now:013}-{}-{number:06}", std::process::id()),
            extension: extension.to_owned(),
            next: 0,
            runs: Vec::new(),
            sealed: Vec::new(),
        }
    }

    /// Those that [`Parts::to_json`] told of, for a run that goes on; `None`: it did not.
    pub(super) fn resume(folder: &Path, extension: &str, told: &Value) -> Option<Self> {
        let run = |run: &Value| Some((run.get(0)?.as_u64()?, run.get(1)?.as_str()?.to_owned()));
        let runs = told.get("runs").and_then(Value::as_array);
        let next = told.get("next")?.as_u64()?;
        let mut runs: Vec<_> = runs.into_iter().flatten().map(run).collect::<Option<_>>()?;
        // One that has given nothing is not told of.
        runs.retain(|(first, _)| *first < next);
        let now = millis(SystemTime::now()).unwrap_or(0);
        runs.push((next, format!("{now:x}{:x}", std::process::id())));
        let name = |value: &Value| value.as_str().map(|name| folder.join(name));
        let pair = |pair: &Value| Some((name(pair.get(0)?)?, name(pair.get(1)?)?));
        Some(Self {
            folder: folder.to_path_buf(),
            name: told.get("name")?.as_str()?.to_owned(),
            extension: extension.to_owned(),
            next,
            runs,
            sealed: told.get("sealed")?.as_array()?.iter().map(pair).collect::<Option<_>>()?,
        })
    }

    pub(super) fn to_json(&self) -> Value {
        let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let sealed: Vec<_> = self.sealed.iter().map(|(from, to)| json!([name(from), name(to)])).collect();
        json!({ "name": self.name, "next": self.next, "runs": self.runs, "sealed": sealed })
    }

    /// A hidden name that no part has.
    pub(super) fn probe(&self) -> PathBuf {
        self.folder.join(format!(".{}.inprogress", self.name))
    }

    /// The hidden name of the next part, and its name to be.
    pub(super) fn next(&mut self) -> (PathBuf, PathBuf) {
        let run = self.runs.last().map(|(_, run)| format!("-{run}")).unwrap_or_default();
        let name = format!("{}-{:06}{run}.{}", self.name, self.next, self.extension);
        self.next += 1;
        (self.folder.join(format!(".{name}.inprogress")), self.folder.join(name))
    }

    /// Makes visible what is sealed. May be done again.
    pub(super) fn commit(&mut self) -> io::Result<()> {
        while let Some((temporary, to)) = self.sealed.first() {
            match publish(temporary, to) {
                // A link may have been made before without the hidden name having been removed.
                Ok(false) if fs::metadata(temporary)?.len() == fs::metadata(to)?.len() => {
                    fs::remove_file(temporary)?;
                }
                // Somebody else's file.
                Ok(false) => return Err(io::ErrorKind::AlreadyExists.into()),
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound && to.exists() => {}
                Err(error) => return Err(error),
            }
            sync_folder_of(to);
            self.sealed.remove(0);
        }
        Ok(())
    }

    /// Removes the parts of this INSERT, hidden or not, that were written after it told of them.
    pub(super) fn remove_later(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let is_sealed = self.sealed.iter().any(|(temporary, to)| [temporary, to].contains(&&path));
            let is_later = match name.strip_prefix('.') {
                Some(hidden) => self.part(hidden).is_some(),
                None => self.part(name).is_some_and(|(number, _)| number >= self.next),
            };
            if is_later && !is_sealed {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// A visible part that should be by one run and is by another: that one went on from an earlier checkpoint, in a copy
    /// of their folder. Parts may be gone, because somebody has taken them.
    pub(super) fn of_another_run(&self) -> io::Result<Option<PathBuf>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name();
            let part = name.to_str().and_then(|name| self.part(name));
            let Some((number, run)) = part.filter(|(number, _)| *number < self.next) else { continue };
            let known = self.runs.iter().rfind(|(first, _)| *first <= number);
            if known.map_or("", |(_, run)| run.as_str()) != run {
                return Ok(Some(self.folder.join(name)));
            }
        }
        Ok(None)
    }

    /// The number of a part of this INSERT, and its run.
    fn part<'a>(&self, name: &'a str) -> Option<(u64, &'a str)> {
        let rest = name.strip_prefix(self.name.as_str())?.strip_prefix('-')?;
        let rest = rest.split('.').next()?;
        let (number, run) = rest.split_once('-').unwrap_or((rest, ""));
        Some((number.parse().ok()?, run))
    }
}
