//! Where a sink's file goes, and how it appears there: whole, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::parts::Parts;
use crate::connector::format::Kind;
use crate::error::{Error, code};

/// A file that is being written, or the parts of a folder.
pub(super) struct Placement {
    kind: Target,
    /// What a person knows it by.
    shown: String,
    /// Of a folder: how the parts to come are called, and those that are written and not visible.
    parts: Option<Parts>,
    /// A checkpoint tells of what was written: it is not this process that may remove it.
    is_kept: bool,
}

enum Target {
    /// A pipe or device: what is written is out.
    Stream(PathBuf),
    /// A hidden file that becomes `to`.
    Pending { file: File, temporary: PathBuf, to: PathBuf, overwrite: bool },
    /// The next part has not been begun.
    Unopened,
    /// Finished, or given up. Of a file that an earlier run has finished: what its checkpoint told.
    Closed(Option<Value>),
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// What rows that are written to a path become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Part files of a folder.
    Folder,
    /// One file.
    File,
    /// What is written to a pipe or device is out.
    Stream,
}

impl Place {
    /// # Errors
    /// The system's reason where nobody can look.
    pub(super) fn of(path: &str) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(facts) if facts.is_dir() => Ok(Self::Folder),
            // What stands below /dev is somebody's standard output, also if that is a file.
            Ok(facts) if facts.is_file() && !path.starts_with("/dev/") => Ok(Self::File),
            Ok(_) => Ok(Self::Stream),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let is_folder = path.ends_with('/') || Kind::of_path(path).is_none();
                Ok(if is_folder { Self::Folder } else { Self::File })
            }
            Err(error) => Err(error),
        }
    }
}

impl Placement {
    /// Opens a place for a new file. `extension`: of part files in a folder.
    ///
    /// # Errors
    /// `F003` with the path and the system's reason.
    pub(super) fn open(path: &str, extension: &str, overwrite: bool) -> Result<Self, Error> {
        let failed = |error: io::Error| unwritable(path, &error);
        let target = Path::new(path);
        let is_folder = match Place::of(path).map_err(failed)? {
            Place::Folder => true,
            Place::File if target.exists() => {
                if path.ends_with('/') || Kind::of_path(path).is_none() && !overwrite {
                    let reason = io::Error::from(io::ErrorKind::NotADirectory);
                    return Err(unwritable(path, &reason).hint(
                        "Use the path of a folder, or of a file that ends in .json, .csv or .parquet.",
                    ));
                }
                if !overwrite {
                    return Err(exists(path));
                }
                false
            }
            Place::File => false,
            Place::Stream => {
                let kind = Target::Stream(target.to_path_buf());
                return Ok(Self { kind, shown: path.to_owned(), parts: None, is_kept: false });
            }
        };
        if is_folder {
            let parts = Parts::new(target, extension);
            // Whether a part can be written is found out here; it is begun with the first row.
            let probe = parts.probe();
            let probed = fs::create_dir_all(target).and_then(|()| new_file(&probe));
            probed.and_then(|_| fs::remove_file(&probe)).map_err(failed)?;
            return Ok(Self::of_parts(path, parts));
        }
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let folder = target.parent().unwrap_or(Path::new(""));
        if !folder.as_os_str().is_empty() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!(".{name}.inprogress.{}.{number}", std::process::id()));
        let file = new_file(&temporary).map_err(failed)?;
        let kind = Target::Pending { file, temporary, to: folder.join(name), overwrite };
        Ok(Self { kind, shown: path.to_owned(), parts: None, is_kept: false })
    }

    fn of_parts(path: &str, parts: Parts) -> Self {
        Self { kind: Target::Unopened, shown: path.to_owned(), parts: Some(parts), is_kept: false }
    }

    /// Goes on where another one was prepared: what it had written until then is visible afterwards, or goes on to be
    /// written; what it wrote later is gone.
    ///
    /// # Errors
    /// `F003` with the path and the system's reason; `K003` if what was written is not there any more.
    pub(super) fn resume(
        path: &str,
        extension: &str,
        overwrite: bool,
        prepared: &Value,
    ) -> Result<Self, Error> {
        let failed = |error: io::Error| unwritable(path, &error);
        if let Some(parts) = prepared.get("parts") {
            let mut parts = Parts::resume(Path::new(path), extension, parts).ok_or_else(|| foreign(path))?;
            if let Some(part) = parts.of_another_run().map_err(failed)? {
                return Err(diverged(path, &part));
            }
            parts.remove_later().map_err(failed)?;
            parts.commit().map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => foreign(path),
                _ => failed(error),
            })?;
            let mut placement = Self::of_parts(path, parts);
            placement.is_kept = true;
            return Ok(placement);
        }
        let text = |key: &str| prepared.get(key).and_then(Value::as_str).map(PathBuf::from);
        let (Some(temporary), Some(to), Some(length)) =
            (text("temporary"), text("to"), prepared.get("length").and_then(Value::as_u64))
        else {
            return Err(foreign(path));
        };
        let kind = match OpenOptions::new().write(true).open(&temporary) {
            Ok(mut file) => {
                if file.metadata().map_err(failed)?.len() < length {
                    return Err(foreign(path));
                }
                file.set_len(length).map_err(failed)?;
                file.seek(SeekFrom::End(0)).map_err(failed)?;
                Target::Pending { file, temporary, to, overwrite }
            }
            // It was finished, but nobody was told.
            Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::metadata(&to) {
                Ok(facts) if facts.len() == length => Target::Closed(Some(prepared.clone())),
                _ => return Err(foreign(path)),
            },
            Err(error) => return Err(failed(error)),
        };
        Ok(Self { kind, shown: path.to_owned(), parts: None, is_kept: true })
    }

    /// What a person knows the file by.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Begins the next part of a folder.
    fn begin(&mut self) -> Result<(), Error> {
        if let (Target::Unopened, Some(parts)) = (&self.kind, &mut self.parts) {
            let (temporary, to) = parts.next();
            let begun = fs::create_dir_all(&parts.folder).and_then(|()| new_file(&temporary));
            let file = begun.map_err(|error| unwritable(&self.shown, &error))?;
            self.kind = Target::Pending { file, temporary, to, overwrite: false };
        }
        Ok(())
    }

    /// The file, to write to: the next part, if none is begun. Opening a pipe waits for its reader.
    ///
    /// # Errors
    /// `F003` with the path and the system's reason.
    pub(super) fn file(&mut self) -> Result<File, Error> {
        self.begin()?;
        match &self.kind {
            Target::Stream(path) => OpenOptions::new().append(true).open(path),
            Target::Pending { file, .. } => file.try_clone(),
            Target::Unopened | Target::Closed(_) => Err(io::Error::other("the file is closed")),
        }
        .map_err(|error| unwritable(&self.shown, &error))
    }

    /// Whether what is written is out at once.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.kind, Target::Stream(_))
    }

    /// Whether it is a folder, which gets parts.
    pub(super) fn has_parts(&self) -> bool {
        self.parts.is_some()
    }

    /// Whether a part of a folder is begun, or there is one file.
    pub(super) fn is_begun(&self) -> bool {
        matches!(self.kind, Target::Pending { .. })
    }

    /// Whether an earlier run has finished the file.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.kind, Target::Closed(Some(_)))
    }

    /// Makes what was written so far safe, for a checkpoint, and tells what [`Placement::resume`] needs. `is_empty`: no row
    /// was written since the part was begun. A part with rows is at its end; what follows goes into another one.
    ///
    /// # Errors
    /// `F003` with the path and the system's reason.
    pub(super) fn prepare(&mut self, is_empty: bool) -> Result<Option<Value>, Error> {
        let failed = |error: io::Error| unwritable(&self.shown, &error);
        self.is_kept = true;
        match (&mut self.parts, &self.kind) {
            (_, Target::Stream(_)) => Ok(None),
            (Some(parts), kind) => {
                if let Target::Pending { file, temporary, to, .. } = kind
                    && !is_empty
                {
                    file.sync_all().map_err(failed)?;
                    is_there(temporary, &self.shown)?;
                    parts.sealed.push((temporary.clone(), to.clone()));
                    self.kind = Target::Unopened;
                }
                Ok(Some(json!({ "parts": parts.to_json() })))
            }
            (None, Target::Pending { file, temporary, to, .. }) => {
                file.sync_all().map_err(failed)?;
                is_there(temporary, &self.shown)?;
                let length = file.metadata().map_err(failed)?.len();
                Ok(Some(json!({ "temporary": temporary, "to": to, "length": length })))
            }
            (None, Target::Unopened) => Ok(None),
            (None, Target::Closed(told)) => Ok(told.clone()),
        }
    }

    /// Makes visible the parts that were prepared.
    ///
    /// # Errors
    /// `F003` with the path and the system's reason.
    pub(super) fn commit_parts(&mut self) -> Result<(), Error> {
        let Some(parts) = &mut self.parts else { return Ok(()) };
        parts.commit().map_err(|error| unwritable(&self.shown, &error))
    }

    /// Makes the file appear. `is_empty`: no row was written; then a folder gets no part.
    ///
    /// # Errors
    /// `F003` with the path and the system's reason.
    pub(super) fn commit(&mut self, is_empty: bool) -> Result<(), Error> {
        self.commit_parts()?;
        let Target::Pending { file, temporary, to, overwrite } = &self.kind else { return Ok(()) };
        let failed = |error: io::Error| unwritable(&self.shown, &error);
        if is_empty && self.parts.is_some() {
            fs::remove_file(temporary).map_err(failed)?;
            self.kind = Target::Closed(None);
            return Ok(());
        }
        file.sync_all().map_err(failed)?;
        if *overwrite {
            fs::rename(temporary, to).map_err(failed)?;
        } else if !publish(temporary, to).map_err(failed)? {
            return Err(exists(&self.shown));
        }
        sync_folder_of(to);
        self.kind = Target::Closed(None);
        Ok(())
    }

    /// Leaves nothing behind but what a checkpoint tells of.
    pub(super) fn discard(&mut self) {
        let is_kept = self.is_kept && self.parts.is_none();
        if let Target::Pending { temporary, .. } = std::mem::replace(&mut self.kind, Target::Closed(None))
            && !is_kept
        {
            // Nothing can be done if this fails; the name is hidden and no reader takes it for data.
            let _ = fs::remove_file(temporary);
        }
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        self.discard();
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Gives a file its name, unless that is taken.
pub(super) fn publish(temporary: &Path, to: &Path) -> io::Result<bool> {
    // A link, unlike a rename, never replaces what somebody else put there meanwhile.
    match fs::hard_link(temporary, to) {
        Ok(()) => fs::remove_file(temporary).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(_) => fs::rename(temporary, to).map(|()| true),
    }
}

/// A name survives a power cut only when its folder is on disk, too. Not all systems can.
pub(super) fn sync_folder_of(file: &Path) {
    if let Some(folder) = file.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        if let Ok(folder) = File::open(folder) {
            let _ = folder.sync_all();
        }
    }
}

/// A checkpoint must not tell of rows in a file that somebody has removed while it was written.
fn is_there(temporary: &Path, shown: &str) -> Result<(), Error> {
    match fs::symlink_metadata(temporary) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message =
                format!("can't write \"{shown}\": \"{}\" was removed meanwhile", temporary.display());
            Err(Error::run(code::UNWRITABLE, message)
                .hint("Go on from the last checkpoint with --resume; what is not in it is written again."))
        }
        Err(error) => Err(unwritable(shown, &error)),
        Ok(_) => Ok(()),
    }
}

/// Two runs went on from copies of one checkpoint, into one folder.
fn diverged(path: &str, part: &Path) -> Error {
    let part = part.file_name().unwrap_or_default().to_string_lossy();
    let message =
        format!("\"{part}\" in \"{path}\" is by another run, which went on from an earlier checkpoint");
    Error::run(code::FOREIGN_CHECKPOINT, message).hint(
        "Go on with the checkpoints of that run, or begin anew with other folders for checkpoints and for the result.",
    )
}

fn foreign(path: &str) -> Error {
    let message = format!("what an earlier run had written to \"{path}\" is not there any more");
    Error::run(code::FOREIGN_CHECKPOINT, message)
        .hint("Put it back, or begin anew with another folder for checkpoints and another path.")
}

fn exists(path: &str) -> Error {
    Error::run(code::UNWRITABLE, format!("can't write \"{path}\": the file exists already"))
        .hint("Add 'sink.overwrite' = 'true' to replace it, or use the path of a folder.")
}

/// `F003` with the path and the system's reason; `F004` if a pipe's reader has gone.
pub(in crate::connector) fn unwritable(path: &str, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Error::run(code::CLOSED_PIPE, format!("can't write \"{path}\": the pipe's reader has gone"));
    }
    let unwritten = Error::run(code::UNWRITABLE, format!("can't write \"{path}\": {error}"));
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge | io::ErrorKind::QuotaExceeded => {
            unwritten.hint("Make room there, or write to another path.")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            unwritten.hint("Allow this user to write there, or write to another path.")
        }
        _ => unwritten,
    }
}
