//! A folder with the checkpoints of a job: each a folder of its own that appears whole, or not at all.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::error::{Error, code};
use crate::runtime::channel::lock;
use crate::runtime::cut::{JobCut, bytes};

/// What is written here; another number is read by another version.
const FORMAT: u64 = 1;
const MANIFEST: &str = "manifest.json";
const STATE: &str = "state";
const PREFIX: &str = "chk-";

/// Locked by the run whose checkpoints are in a folder.
const LOCK: &str = ".lock";

/// See the module.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
    /// While it is open no other run takes the folder; `None`: this system locks no files there.
    lock: Mutex<Option<File>>,
}

/// What a checkpoint is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct About {
    /// The statement as written.
    pub(super) statement: String,
    /// What EXPLAIN says of it.
    pub(super) plan: String,
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
    /// The checkpoints in a folder, which is made if it is not there, for this run alone.
    ///
    /// # Errors
    /// `K004` if it can't be, or another run has it.
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        let locked = make_and_lock(folder)?;
        Ok(Self { folder: folder.to_path_buf(), lock: Mutex::new(locked) })
    }

    /// The folders of whole checkpoints by their numbers, the oldest first.
    ///
    /// # Errors
    /// `K002` if the folder can't be read.
    pub(super) fn list(&self) -> Result<Vec<(u64, PathBuf)>, Error> {
        let unread = |error: io::Error| unreadable(&self.folder, &error);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(unread)? {
            let path = entry.map_err(unread)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(number) = name.and_then(|name| name.strip_prefix(PREFIX)?.parse().ok()) {
                found.push((number, path));
            }
        }
        found.sort();
        Ok(found)
    }

    /// The newest checkpoint that is whole, and what was wrong with newer ones.
    ///
    /// # Errors
    /// `K001` if there is none, `K002` if none is whole.
    pub(super) fn newest(&self) -> Result<(Stored, Vec<Error>), Error> {
        let mut wrong = Vec::new();
        for (_, path) in self.list()?.into_iter().rev() {
            match Self::load(&path) {
                Ok(stored) => return Ok((stored, wrong)),
                Err(error) => wrong.push(error),
            }
        }
        let missing = || {
            Error::run(
                code::NO_CHECKPOINT,
                format!("there is no checkpoint in \"{}\"", self.folder.display()),
            )
            .hint("Leave out --resume to begin anew, or name the folder that the job was run with.")
        };
        Err(wrong.into_iter().next().unwrap_or_else(missing))
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    /// `K001` if there is none, `K002` if it is not whole or of another version.
    pub(super) fn load(path: &Path) -> Result<Stored, Error> {
        let manifest = match fs::read(path.join(MANIFEST)) {
            Ok(manifest) => manifest,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let message = format!("there is no checkpoint \"{}\"", path.display());
                return Err(Error::run(code::NO_CHECKPOINT, message)
                    .hint("Name a folder chk-… below that of --checkpoint-dir."));
            }
            Err(error) => return Err(unreadable(path, &error)),
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
            parallelism: number("parallelism").ok_or_else(missing)?,
            taken_us: manifest.get("taken_us").and_then(Value::as_i64).ok_or_else(missing)?,
            is_over: manifest.get("over").and_then(Value::as_bool).ok_or_else(missing)?,
        };
        let state = fs::read(path.join(STATE)).map_err(|error| unreadable(path, &error))?;
        if number("bytes") != Some(state.len() as u64) {
            return Err(torn("its state has another length"));
        }
        if number("crc32") != Some(u64::from(crc32fast::hash(&state))) {
            return Err(torn("its state was changed"));
        }
        let cut = bytes::read(&state)?;
        let number = number("number").ok_or_else(missing)?;
        Ok(Stored { path: path.to_path_buf(), number, about, cut })
    }

    /// Writes a checkpoint. Gives its bytes.
    ///
    /// # Errors
    /// `K004` with the path and the system's reason; then nothing of it stays.
    pub(super) fn write(&self, number: u64, about: &About, cut: &JobCut) -> Result<u64, Error> {
        let state = bytes::write(cut)?;
        let manifest = json!({
            "format": FORMAT,
            "version": env!("CARGO_PKG_VERSION"),
            "number": number,
            "statement": about.statement,
            "plan": about.plan,
            "parallelism": about.parallelism,
            "taken_us": about.taken_us,
            "over": about.is_over,
            "bytes": state.len(),
            "crc32": crc32fast::hash(&state),
        });
        if !self.folder.exists() {
            // Somebody has removed it with all that was in it: from this one on there is something to go on from again.
            *lock(&self.lock) = make_and_lock(&self.folder)?;
        }
        let whole = self.folder.join(format!("{PREFIX}{number:08}"));
        let begun = self.folder.join(format!(".{PREFIX}{number:08}.inprogress"));
        let write = || -> io::Result<()> {
            match fs::remove_dir_all(&begun) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::create_dir(&begun)?;
            write_file(&begun.join(STATE), &state)?;
            write_file(&begun.join(MANIFEST), format!("{manifest:#}\n").as_bytes())?;
            sync_folder(&begun);
            fs::rename(&begun, &whole)?;
            sync_folder(&self.folder);
            Ok(())
        };
        write().map_err(|error| {
            // What can't be removed either is hidden and taken for nothing.
            let _ = fs::remove_dir_all(&begun);
            unwritten(&whole, &error)
        })?;
        Ok(state.len() as u64)
    }

    /// Removes the checkpoints behind this one, whole or not.
    ///
    /// # Errors
    /// `K004` if one can't be removed.
    pub(super) fn forget_behind(&self, number: u64) -> Result<(), Error> {
        let mut behind = self.list()?.into_iter().filter(|(other, _)| *other > number);
        behind.try_for_each(|(_, path)| fs::remove_dir_all(&path).map_err(|error| unwritten(&path, &error)))
    }

    /// Keeps the newest ones only.
    pub(super) fn prune(&self, retained: usize) -> Result<(), Error> {
        let all = self.list()?;
        let surplus = all.len().saturating_sub(retained.max(1));
        for (_, path) in all.into_iter().take(surplus) {
            fs::remove_dir_all(&path).map_err(|error| unwritten(&path, &error))?;
        }
        Ok(())
    }
}

fn make_and_lock(folder: &Path) -> Result<Option<File>, Error> {
    let failed = |error: io::Error| unwritten(folder, &error);
    fs::create_dir_all(folder).map_err(failed)?;
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).open(folder.join(LOCK)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            let message = format!("can't write checkpoints into \"{}\": another run does", folder.display());
            Err(Error::run(code::UNWRITTEN_CHECKPOINT, message)
                .hint("Wait until that one has ended, stop it, or name another folder."))
        }
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// A name survives a power cut only when its folder is on disk, too. Not all systems can.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::run(code::BAD_CHECKPOINT, format!("can't read checkpoint \"{}\": {error}", path.display()))
        .hint("Check that the folder is there and may be read.")
}

fn unwritten(path: &Path, error: &io::Error) -> Error {
    Error::run(code::UNWRITTEN_CHECKPOINT, format!("can't write checkpoint \"{}\": {error}", path.display()))
        .hint("Check that there is room on the disk, and that the folder may be written.")
}
