//! The checkpoints of a job: by number, each with a manifest that says what it is of and what its state has to be.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::compare;
use super::place::{self, Draft, Entry, Place, Unwritten};
use crate::error::{Error, code};
use crate::plan::PlanPart;
use crate::runtime::cut::{JobCut, bytes};

/// What is written here; another number is read by another version.
const FORMAT: u64 = 1;
pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const STATE: &str = "state";
const PREFIX: &str = "chk-";

/// See the module.
#[derive(Debug)]
pub(super) struct Store {
    place: Arc<dyn Place>,
    /// As a person wrote it.
    path: PathBuf,
}

/// What a checkpoint is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct About {
    /// The statement as written.
    pub(super) statement: String,
    /// What EXPLAIN says of it.
    pub(super) plan: String,
    /// What it is made of.
    pub(super) parts: Vec<PlanPart>,
    pub(super) parallelism: u64,
    /// When it was taken, microseconds since the epoch.
    pub(super) taken_us: i64,
    /// The job has come to its end.
    pub(super) is_over: bool,
}

/// A checkpoint that was read.
pub(super) struct Stored {
    pub(super) path: PathBuf,
    pub(super) number: u64,
    pub(super) about: About,
    pub(super) cut: JobCut,
}

impl Store {
    /// The checkpoints in a place; a folder is made if it is not there.
    ///
    /// # Errors
    /// `K004` if it can't be, or for a URL of no store that is known.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self { place: place::open(path)?, path: path.to_path_buf() })
    }

    /// The same, where nothing is made.
    ///
    /// # Errors
    /// `K004` for a URL of no store that is known.
    pub(super) fn look(path: &Path) -> Result<Self, Error> {
        Ok(Self { place: place::look(path)?, path: path.to_path_buf() })
    }

    /// The names of whole checkpoints by their numbers, the oldest first.
    ///
    /// # Errors
    /// `K002` if nobody can look.
    pub(super) fn list(&self) -> Result<Vec<(u64, String)>, Error> {
        Ok(self.entries()?.into_iter().filter(|(_, entry)| !entry.is_rest).map(named).collect())
    }

    /// The same with what attempts have left.
    fn entries(&self) -> Result<Vec<(u64, Entry)>, Error> {
        let entries = self.place.list().map_err(|error| unreadable(&self.path, &error))?;
        let number = |entry: &Entry| entry.name.strip_prefix(PREFIX)?.parse().ok();
        let mut found: Vec<_> =
            entries.into_iter().filter_map(|entry| Some((number(&entry)?, entry))).collect();
        found.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
        Ok(found)
    }

    /// The newest checkpoint that is whole, and what was wrong with newer ones.
    ///
    /// # Errors
    /// `K001` if there is none, `K002` if none is whole.
    pub(super) fn newest(&self) -> Result<(Stored, Vec<Error>), Error> {
        let mut wrong = Vec::new();
        for (_, name) in self.list()?.into_iter().rev() {
            match self.read(&name) {
                Ok(stored) => return Ok((stored, wrong)),
                Err(error) => wrong.push(error),
            }
        }
        let missing = || {
            Error::run(code::NO_CHECKPOINT, format!("there is no checkpoint in \"{}\"", self.path.display()))
                .hint("Leave out --resume to begin anew, or name the folder that the job was run with.")
        };
        Err(wrong.into_iter().next().unwrap_or_else(missing))
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    /// `K001` if there is none, `K002` if it is not whole or of another version.
    pub(super) fn load(path: &Path) -> Result<Stored, Error> {
        let (place, name) = place::split(path);
        Self::look(&place)?.read(&name)
    }

    fn read(&self, name: &str) -> Result<Stored, Error> {
        let path = place::below(&self.path, name);
        let manifest = match self.place.manifest(name) {
            Ok(manifest) => manifest,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let message = format!("there is no checkpoint \"{}\"", path.display());
                return Err(Error::run(code::NO_CHECKPOINT, message)
                    .hint("Name a folder chk-… below that of --checkpoint-dir."));
            }
            Err(error) => return Err(unreadable(&path, &error)),
        };
        let torn = |what: &str| {
            Error::run(
                code::BAD_CHECKPOINT,
                format!("checkpoint \"{}\" is not whole: {what}", path.display()),
            )
            .hint("Use an earlier one with --from.")
        };
        let manifest: Value =
            serde_json::from_slice(&manifest).map_err(|_| torn("its manifest is no JSON"))?;
        let number = |key: &str| manifest.get(key).and_then(Value::as_u64);
        match number("format") {
            Some(FORMAT) => {}
            Some(other) => {
                let version = manifest.get("version").and_then(Value::as_str).unwrap_or("unknown");
                let message = format!(
                    "checkpoint \"{}\" has format {other}, written by Tidegate {version}; this version reads \
                     format {FORMAT}",
                    path.display()
                );
                return Err(Error::run(code::BAD_CHECKPOINT, message).hint("Run the version that wrote it."));
            }
            None => return Err(torn("its manifest has no format")),
        }
        let missing = || torn("its manifest lacks an entry");
        let text =
            |key: &str| manifest.get(key).and_then(Value::as_str).map(str::to_owned).ok_or_else(missing);
        let about = About {
            statement: text("statement")?,
            plan: text("plan")?,
            parts: manifest.get("parts").and_then(compare::from_json).ok_or_else(missing)?,
            parallelism: number("parallelism").ok_or_else(missing)?,
            taken_us: manifest.get("taken_us").and_then(Value::as_i64).ok_or_else(missing)?,
            is_over: manifest.get("over").and_then(Value::as_bool).ok_or_else(missing)?,
        };
        let crc32 = number("crc32").and_then(|crc32| u32::try_from(crc32).ok()).ok_or_else(missing)?;
        let unread = |error: io::Error| unreadable(&path, &error);
        let state = self.place.state(name, crc32).map_err(unread)?;
        // All of it before anything is taken from it.
        let (bytes, sum) = state.sum().map_err(unread)?;
        if number("bytes") != Some(bytes) {
            return Err(torn("its state has another length"));
        }
        if crc32 != sum {
            return Err(torn("its state was changed"));
        }
        let cut = bytes::read(&mut state.open().map_err(unread)?)?;
        let number = number("number").ok_or_else(missing)?;
        Ok(Stored { path, number, about, cut })
    }

    /// Writes a checkpoint. Gives its bytes.
    ///
    /// # Errors
    /// `K004` with the path and the system's reason; then nothing of it stays.
    pub(super) fn write(&self, number: u64, about: &About, cut: &JobCut) -> Result<u64, Error> {
        let manifest = |bytes: u64, crc32: u32| {
            let manifest = json!({
                "format": FORMAT,
                "version": env!("CARGO_PKG_VERSION"),
                "number": number,
                "statement": about.statement,
                "plan": about.plan,
                "parts": compare::to_json(&about.parts),
                "parallelism": about.parallelism,
                "taken_us": about.taken_us,
                "over": about.is_over,
                "bytes": bytes,
                "crc32": crc32,
            });
            format!("{manifest:#}\n").into_bytes()
        };
        let name = format!("{PREFIX}{number:08}");
        let draft = Draft { state: &|into| bytes::write(cut, into), manifest: &manifest };
        self.place.put(&name, &draft).map_err(|failure| match failure {
            Unwritten::System(error) => unwritten(&place::below(&self.path, &name), &error),
            Unwritten::State(error) => error,
        })
    }

    /// Removes the checkpoints behind this one, whole or not.
    ///
    /// # Errors
    /// `K004` if one can't be removed.
    pub(super) fn forget_behind(&self, number: u64) -> Result<(), Error> {
        let mut behind = self.entries()?.into_iter().filter(|(other, _)| *other > number).map(named);
        behind.try_for_each(|(_, name)| self.remove(&name))
    }

    /// Keeps the newest ones only.
    pub(super) fn prune(&self, retained: usize) -> Result<(), Error> {
        let all = self.list()?;
        let surplus = all.len().saturating_sub(retained.max(1));
        all.iter().take(surplus).try_for_each(|(_, name)| self.remove(name))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.place.remove(name).map_err(|error| unwritten(&place::below(&self.path, name), &error))
    }
}

fn named((number, entry): (u64, Entry)) -> (u64, String) {
    (number, entry.name)
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::run(code::BAD_CHECKPOINT, format!("can't read checkpoint \"{}\": {error}", path.display())).hint(
        match place::is_remote(path) {
            true => "Check the URL, and that the credentials in the environment may read there.",
            false => "Check that the folder is there and may be read.",
        },
    )
}

pub(super) fn unwritten(path: &Path, error: &io::Error) -> Error {
    Error::run(code::UNWRITTEN_CHECKPOINT, format!("can't write checkpoint \"{}\": {error}", path.display()))
        .hint(match place::is_remote(path) {
            true => "Check the URL, and that the credentials in the environment may write there.",
            false => "Check that there is room on the disk, and that the folder may be written.",
        })
}
