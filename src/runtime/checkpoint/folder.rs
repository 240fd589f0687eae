//! Checkpoints in a folder: each a folder of its own that appears by its name, when all of it is on the disk.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::place::{Draft, Entry, Place, State, Summed, Unwritten};
use super::store::{MANIFEST, STATE, unwritten};
use crate::error::Error;

/// See the module.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// A folder, which is made if it is not there.
    ///
    /// # Errors
    /// `K004` if it can't be.
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|error| unwritten(folder, &error))?;
        Ok(Self::at(folder))
    }

    pub(super) fn at(folder: &Path) -> Self {
        Self(folder.to_path_buf())
    }
}

impl Place for Folder {
    fn list(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            if let Some(name) = entry?.file_name().to_str() {
                entries.push(Entry { name: name.to_owned(), is_rest: false });
            }
        }
        Ok(entries)
    }

    fn put(&self, name: &str, draft: &Draft<'_>) -> Result<u64, Unwritten> {
        let (whole, begun) = (self.0.join(name), self.0.join(format!(".{name}.inprogress")));
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
            sync_folder(&self.0);
            Ok(bytes)
        };
        write().inspect_err(|_| {
            // What can't be removed either is hidden and taken for nothing.
            let _ = fs::remove_dir_all(&begun);
        })
    }

    fn manifest(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.0.join(name).join(MANIFEST))
    }

    fn state(&self, name: &str, _crc32: u32) -> io::Result<State> {
        Ok(State::File(self.0.join(name).join(STATE)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_dir_all(self.0.join(name))
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
