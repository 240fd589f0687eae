//! Checkpoints in a folder: each a folder of its own that appears by its name, when all of it is on the disk.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::place::{Draft, Entry, Place, State, Summed, Unwritten};
use super::store::{MANIFEST, STATE, unwritten};
use crate::error::{Error, code};
use crate::runtime::channel::lock;

/// Locked by the run whose checkpoints are in a folder.
const LOCK: &str = ".lock";

/// See the module.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// While it is open no other run takes the folder; `None`: nothing is written there, or this system locks no files
    /// there.
    lock: Mutex<Option<File>>,
}

impl Folder {
    /// A folder, which is made if it is not there, for this run alone.
    ///
    /// # Errors
    /// `K004` if it can't be, or another run has it.
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        let locked = make_and_lock(folder)?;
        Ok(Self { path: folder.to_path_buf(), lock: Mutex::new(locked) })
    }

    /// A folder that is only looked into.
    pub(super) fn at(folder: &Path) -> Self {
        Self { path: folder.to_path_buf(), lock: Mutex::default() }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // To close it is not enough: a process that was just forked from this one has it open, too, for a moment.
        if let Some(file) = lock(&self.lock).take() {
            let _ = file.unlock();
        }
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

impl Place for Folder {
    fn list(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            if let Some(name) = entry?.file_name().to_str() {
                entries.push(Entry { name: name.to_owned(), is_rest: false });
            }
        }
        Ok(entries)
    }

    fn put(&self, name: &str, draft: &Draft<'_>) -> Result<u64, Unwritten> {
        if !self.path.exists() {
            // Somebody has removed it with all that was in it: from this one on there is something to go on from again.
            *lock(&self.lock) = make_and_lock(&self.path).map_err(Unwritten::State)?;
        }
        let (whole, begun) = (self.path.join(name), self.path.join(format!(".{name}.inprogress")));
        let write = || -> Result<u64, Unwritten> {
            match fs::remove_dir_all(&begun) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
            fs::create_dir(&begun)?;
            // Piece by piece: a state may be as large as half of the memory.
            let state = BufWriter::with_capacity(1 << 20, File::create_new(begun.join(STATE))?);
            let (state, bytes, crc32) = Summed::new(state).take(draft)?;
            state.get_ref().sync_all()?;
            write_file(&begun.join(MANIFEST), &(draft.manifest)(bytes, crc32))?;
            sync_folder(&begun);
            fs::rename(&begun, &whole)?;
            sync_folder(&self.path);
            Ok(bytes)
        };
        write().inspect_err(|_| {
            // What can't be removed either is hidden and taken for nothing.
            let _ = fs::remove_dir_all(&begun);
        })
    }

    fn manifest(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name).join(MANIFEST))
    }

    fn state(&self, name: &str, _crc32: u32) -> io::Result<State> {
        Ok(State::File(self.path.join(name).join(STATE)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_dir_all(self.path.join(name))
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
