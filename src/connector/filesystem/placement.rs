//! Where a sink's file goes, and how it appears there: whole, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::connector::assembly::millis;
use crate::connector::format::Kind;
use crate::error::{Error, code};

/// A file that is being written.
pub(super) struct Placement {
    kind: Target,
    /// What a person knows it by.
    shown: String,
}

enum Target {
    /// A pipe or device: what is written is out.
    Stream(PathBuf),
    /// A hidden file that becomes `to`.
    Pending { file: File, temporary: PathBuf, to: PathBuf, overwrite: bool, is_part: bool },
    /// Finished, or given up.
    Closed,
}

static PARTS: AtomicU64 = AtomicU64::new(0);

impl Placement {
    /// Opens a place for a new file. `extension`: of part files in a folder.
    ///
    /// # Errors
    /// `F003` with the path and the system's reason.
    pub(super) fn open(path: &str, extension: &str, overwrite: bool) -> Result<Self, Error> {
        let failed = |error: io::Error| unwritable(path, &error);
        let target = Path::new(path);
        let is_folder = match fs::metadata(target) {
            Ok(facts) if facts.is_dir() => true,
            // What stands below /dev is somebody's standard output, also if that is a file.
            Ok(facts) if facts.is_file() && !path.starts_with("/dev/") => {
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
            Ok(_) => {
                return Ok(Self { kind: Target::Stream(target.to_path_buf()), shown: path.to_owned() });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                path.ends_with('/') || Kind::of_path(path).is_none()
            }
            Err(error) => return Err(failed(error)),
        };
        let (folder, name) = if is_folder {
            (target.to_path_buf(), part_name(extension))
        } else {
            let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (target.parent().unwrap_or(Path::new("")).to_path_buf(), name)
        };
        if !folder.as_os_str().is_empty() {
            fs::create_dir_all(&folder).map_err(failed)?;
        }
        let number = PARTS.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!(".{name}.inprogress.{}.{number}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary).map_err(failed)?;
        let to = folder.join(name);
        let kind = Target::Pending { file, temporary, to, overwrite, is_part: is_folder };
        Ok(Self { kind, shown: path.to_owned() })
    }

    /// What a person knows the file by.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// The file, to write to. Opening a pipe waits for its reader.
    ///
    /// # Errors
    /// `F003` with the path and the system's reason.
    pub(super) fn file(&self) -> Result<File, Error> {
        match &self.kind {
            Target::Stream(path) => OpenOptions::new().append(true).open(path),
            Target::Pending { file, .. } => file.try_clone(),
            Target::Closed => Err(io::Error::other("the file is closed")),
        }
        .map_err(|error| unwritable(&self.shown, &error))
    }

    /// Whether what is written is out at once.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.kind, Target::Stream(_))
    }

    /// Makes the file appear. `is_empty`: no row was written; then a folder gets no part.
    ///
    /// # Errors
    /// `F003` with the path and the system's reason.
    pub(super) fn commit(&mut self, is_empty: bool) -> Result<(), Error> {
        let Target::Pending { file, temporary, to, overwrite, is_part } = &self.kind else { return Ok(()) };
        let failed = |error: io::Error| unwritable(&self.shown, &error);
        if is_empty && *is_part {
            fs::remove_file(temporary).map_err(failed)?;
            self.kind = Target::Closed;
            return Ok(());
        }
        file.sync_all().map_err(failed)?;
        if *overwrite {
            fs::rename(temporary, to).map_err(failed)?;
        } else {
            // A link, unlike a rename, never replaces what somebody else put there meanwhile.
            match fs::hard_link(temporary, to) {
                Ok(()) => fs::remove_file(temporary).map_err(failed)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(exists(&self.shown));
                }
                Err(_) => fs::rename(temporary, to).map_err(failed)?,
            }
        }
        // The name survives a power cut only when the folder is on disk, too. Not all systems can.
        if let Some(folder) = to.parent() {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            if let Ok(folder) = File::open(folder) {
                let _ = folder.sync_all();
            }
        }
        self.kind = Target::Closed;
        Ok(())
    }

    /// Leaves nothing behind.
    pub(super) fn discard(&mut self) {
        if let Target::Pending { temporary, .. } = std::mem::replace(&mut self.kind, Target::Closed) {
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

/// `part-<milliseconds>-<process>-<number>`: parts sort in the order in which they were begun.
fn part_name(extension: &str) -> String {
    let now = millis(SystemTime::now()).unwrap_or(0);
    let number = PARTS.fetch_add(1, Ordering::Relaxed);
    format!("part-{now:013}-{}-{number:06}.{extension}", std::process::id())
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
    Error::run(code::UNWRITABLE, format!("can't write \"{path}\": {error}"))
}
