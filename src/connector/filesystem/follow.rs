//! Files that are written to while they are read, as `tail -F` follows them, and folders that get more.
//!
//! A split is a path. Rows are its complete lines. When the path becomes another file (a log that is
//! rotated: renamed, and begun anew), the old one is read to its end first, but not before something
//! was written to the new one: until then the writer may still hold the old one. A file that got
//! shorter is read from its start. A path that is gone ends its split; if it comes back it is a new
//! one.
//!
//! Compressed and Parquet files are no text that grows: they are read whole, once, as soon as their
//! size has not changed from one look at the folder to the next.

use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::listing::{FoundFile, find_files, local_path};
use super::{FileSource, Kind};
use crate::connector::input::{Compression, Held, are_too_many_held, look, unreadable};
use crate::connector::text_split::{ByteSource, Got, shorter};
use crate::connector::{Source, SplitReader};
use crate::error::{Error, code};

/// How often at most the path of a quiet file is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long a path may be gone before its split ends; a writer may begin the next file later.
const GONE: Duration = Duration::from_secs(10);

/// What tells a file from another one, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileId {
    device: u64,
    number: u64,
    /// Numbers of deleted files are given to new ones.
    created: Option<SystemTime>,
}

impl FileId {
    #[cfg(unix)]
    fn of(facts: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { device: facts.dev(), number: facts.ino(), created: facts.created().ok() }
    }

    #[cfg(not(unix))]
    fn of(facts: &Metadata) -> Self {
        Self { device: 0, number: 0, created: facts.created().ok() }
    }
}

/// What is read already, of all splits of a source.
#[derive(Debug, Default)]
struct Known {
    /// Files that are read or were, and in how many looks at the folder each was missing since it
    /// was last seen: one that is renamed may be missed by a look.
    files: HashMap<FileId, u32>,
    /// Those that are read as they grow.
    tails: HashSet<FileId>,
    /// Paths that have a split.
    paths: HashSet<PathBuf>,
}

/// Looks in which a file must be missing before it is forgotten.
const MISSED_LOOKS: u32 = 100;

impl Known {
    /// Forgets files that have long been gone.
    fn forget(&mut self, present: &HashSet<FileId>) {
        let tails = &self.tails;
        self.files.retain(|id, missed| {
            *missed = if present.contains(id) || tails.contains(id) { 0 } else { *missed + 1 };
            *missed < MISSED_LOOKS
        });
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A table of files that goes on.
pub(super) struct FollowedFiles {
    files: FileSource,
    interval: Duration,
    known: Arc<Mutex<Known>>,
    /// Files that are read whole, when they were seen for the first time: size and last change.
    fresh: HashMap<FileId, (u64, Option<SystemTime>)>,
}

impl FollowedFiles {
    pub(super) fn new(files: FileSource, interval: Duration) -> Self {
        Self { files, interval, known: Arc::default(), fresh: HashMap::new() }
    }

    /// Files that are there now and are not read yet.
    fn look(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let mut found = Vec::new();
        let mut present = HashSet::new();
        for file in existing_files(&self.files.settings.path)? {
            // A file that is gone again is none of ours.
            let Ok(facts) = std::fs::metadata(&file.path) else { continue };
            let id = FileId::of(&facts);
            present.insert(id);
            {
                let known = lock(&self.known);
                if known.paths.contains(&file.path) || known.files.contains_key(&id) {
                    continue;
                }
            }
            if self.is_whole(&file.path, &facts) {
                let state = (facts.len(), facts.modified().ok());
                if self.fresh.insert(id, state) != Some(state) {
                    continue;
                }
                self.fresh.remove(&id);
                lock(&self.known).files.insert(id, 0);
                found.push(self.files.split(file, 1)?);
            } else {
                let mut known = lock(&self.known);
                known.files.insert(id, 0);
                known.paths.insert(file.path.clone());
                drop(known);
                found.push(self.tail(file, id)?);
            }
        }
        lock(&self.known).forget(&present);
        self.fresh.retain(|id, _| present.contains(id));
        Ok(found)
    }

    fn is_whole(&self, path: &Path, facts: &Metadata) -> bool {
        let settings = &self.files.settings;
        match settings.compression {
            _ if settings.format.kind == Kind::Parquet => true,
            Compression::Gzip | Compression::Zstd => true,
            Compression::None => false,
            Compression::Auto => {
                let name = path.to_string_lossy().to_ascii_lowercase();
                let head = || File::open(path).ok().and_then(|mut file| look(&mut file).ok());
                name.ends_with(".gz")
                    || name.ends_with(".zst")
                    || (facts.len() > 0 && head().is_some_and(|(found, _)| found != Compression::None))
            }
        }
    }

    fn tail(&self, file: FoundFile, expected: FileId) -> Result<Box<dyn SplitReader>, Error> {
        let tail = Tail {
            path: file.path,
            name: file.facts.path.clone(),
            known: Arc::clone(&self.known),
            expected: Some(expected),
            current: None,
            offset: 0,
            bytes: 0,
            looked: Instant::now(),
            gone: None,
            next: None,
        };
        let open = move || Ok(Box::new(tail) as Box<dyn ByteSource>);
        let split = self.files.text_split(file.facts, Box::new(open))?;
        Ok(Box::new(split.that_grows()))
    }
}

impl Source for FollowedFiles {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        check_place(&self.files.settings.path)?;
        self.look()
    }

    fn discovers_every(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn discover(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        self.look()
    }
}

/// The file may come later; its folder must be there, or nobody would ever notice a typing error.
fn check_place(path: &str) -> Result<(), Error> {
    let path = local_path(path);
    let plain = path.split(['*', '?', '[']).next().unwrap_or(path);
    let is_pattern = plain.len() < path.len();
    let folder = match plain.rfind('/') {
        _ if !is_pattern && Path::new(path).exists() => return Ok(()),
        Some(0) => "/",
        Some(end) => &plain[..end],
        None => ".",
    };
    if Path::new(folder).is_dir() {
        return Ok(());
    }
    Err(Error::run(code::UNREADABLE, format!("can't read \"{path}\": there is no folder \"{folder}\""))
        .hint("Make the folder first; files may come to it later."))
}

/// The files of a path; none if there are none yet.
fn existing_files(path: &str) -> Result<Vec<FoundFile>, Error> {
    let local = Path::new(local_path(path));
    match find_files(path) {
        Ok(files) => Ok(files.into_iter().filter(|file| file.facts.size.is_some()).collect()),
        // Nothing matches, or what was there a moment ago is gone.
        Err(_) if !local.exists() && glob::Pattern::new(local_path(path)).is_ok() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// A file that is read as it grows.
struct Tail {
    path: PathBuf,
    name: String,
    known: Arc<Mutex<Known>>,
    /// The file that was found at the path, until it is opened.
    expected: Option<FileId>,
    /// The file that is read. `None` within: too many files are open and this one is quiet.
    current: Option<(FileId, Option<Held>)>,
    offset: u64,
    bytes: u64,
    looked: Instant,
    gone: Option<Instant>,
    /// The path is another file, which has got something: once the old one is at its end, it is next.
    next: Option<FileId>,
}

impl Tail {
    fn failed(&self, error: &std::io::Error) -> Error {
        unreadable(&self.name, error)
    }

    /// Opens the file of the path. `None` if there is none.
    fn open(&mut self) -> Result<Option<()>, Error> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.release(None);
                return Ok(None);
            }
            Err(error) => return Err(self.failed(&error)),
        };
        let facts = file.metadata().map_err(|error| self.failed(&error))?;
        let id = FileId::of(&facts);
        {
            let mut known = lock(&self.known);
            if let Some((old, _)) = &self.current {
                known.tails.remove(old);
            }
            known.files.insert(id, 0);
            known.tails.insert(id);
        }
        self.release(Some(id));
        self.current = Some((id, Some(Held::new(file))));
        (self.offset, self.next, self.gone) = (0, None, None);
        Ok(Some(()))
    }

    /// What was found at the path and is not what was opened has another name now: whoever looks at
    /// the folder next is to find it.
    fn release(&mut self, opened: Option<FileId>) {
        if let Some(expected) = self.expected.take().filter(|expected| opened != Some(*expected)) {
            lock(&self.known).files.remove(&expected);
        }
    }

    /// Reads on where it stands; 0 if there is nothing.
    fn read_on(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let Some((id, held)) = &mut self.current else { return Ok(0) };
        if held.is_none() {
            let Ok(mut file) = File::open(&self.path) else { return Ok(0) };
            let facts = file.metadata().map_err(|error| unreadable(&self.name, &error))?;
            if FileId::of(&facts) != *id || facts.len() <= self.offset {
                return Ok(0);
            }
            file.seek(SeekFrom::Start(self.offset)).map_err(|error| unreadable(&self.name, &error))?;
            *held = Some(Held::new(file));
        }
        let Some(Held(file)) = held else { return Ok(0) };
        loop {
            match file.read(buffer) {
                Ok(count) => {
                    self.offset += count as u64;
                    self.bytes += count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(&self.name, &error)),
            }
        }
    }

    /// What became of the file, now that it has nothing more.
    fn look(&mut self) -> Result<Got, Error> {
        if self.next.take().is_some() {
            // The old file was at its end after something was written to the new one.
            return Ok(match self.open()? {
                Some(()) => Got::NextText,
                None => Got::Nothing,
            });
        }
        let Some((id, held)) = &self.current else { return Ok(Got::Nothing) };
        let id = *id;
        let length = match held {
            Some(Held(file)) => Some(file.metadata().map_err(|error| self.failed(&error))?.len()),
            None => None,
        };
        if length.is_some_and(|length| length < self.offset) {
            return self.start_again();
        }
        if self.looked.elapsed() < LOOK {
            return Ok(Got::Nothing);
        }
        self.looked = Instant::now();
        match std::fs::metadata(&self.path) {
            Ok(facts) if FileId::of(&facts) == id => {
                self.gone = None;
                if length.is_none() && facts.len() < self.offset {
                    return self.start_again();
                }
                if are_too_many_held() {
                    self.current = Some((id, None));
                }
                Ok(Got::Nothing)
            }
            Ok(facts) if facts.len() > 0 => {
                self.next = Some(FileId::of(&facts));
                // Once more, for what was written to the old one in the meantime.
                Ok(Got::Bytes(0))
            }
            Ok(_) => Ok(Got::Nothing),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let gone = *self.gone.get_or_insert_with(Instant::now);
                Ok(if gone.elapsed() >= GONE { Got::End } else { Got::Nothing })
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn start_again(&mut self) -> Result<Got, Error> {
        self.offset = 0;
        if let Some((_, Some(Held(file)))) = &mut self.current {
            file.seek(SeekFrom::Start(0)).map_err(|error| unreadable(&self.name, &error))?;
        }
        Ok(Got::Truncated)
    }
}

impl Tail {
    /// The file with this number, under whatever name it is in its folder now.
    fn find(&self, device: u64, number: u64) -> Option<(File, FileId)> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let others = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok();
        let others = others.into_iter().flatten().flatten().map(|entry| entry.path());
        std::iter::once(self.path.clone()).chain(others).find_map(|path| {
            let id = FileId::of(&std::fs::metadata(&path).ok()?);
            ((id.device, id.number) == (device, number)).then(|| Some((File::open(&path).ok()?, id)))?
        })
    }
}

impl ByteSource for Tail {
    fn identity(&self) -> Option<Value> {
        let (id, _) = self.current.as_ref()?;
        Some(json!([id.device, id.number]))
    }

    /// The file may have another name by now: then that one is read to its end first.
    fn skip(&mut self, name: &str, bytes: u64, identity: Option<&Value>) -> Result<(), Error> {
        let number = |place: usize| identity.and_then(|of| of.get(place)?.as_u64());
        let (Some(device), Some(file_number)) = (number(0), number(1)) else { return Ok(()) };
        let Some((mut file, id)) = self.find(device, file_number) else {
            let message = format!("{name}: the file that was read before is not in its folder any more");
            return Err(Error::run(code::FOREIGN_CHECKPOINT, message).hint(
                "Put it back, also under another name, or begin anew with another folder for checkpoints.",
            ));
        };
        if file.metadata().map_err(|error| self.failed(&error))?.len() < bytes {
            return Err(shorter(name, bytes));
        }
        file.seek(SeekFrom::Start(bytes)).map_err(|error| self.failed(&error))?;
        {
            let mut known = lock(&self.known);
            known.files.insert(id, 0);
            known.tails.insert(id);
        }
        self.release(Some(id));
        self.current = Some((id, Some(Held::new(file))));
        (self.offset, self.bytes) = (bytes, bytes);
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<Got, Error> {
        if self.current.is_none() && self.open()?.is_none() {
            // It went away between the look at the folder and now.
            return Ok(Got::End);
        }
        loop {
            let count = self.read_on(buffer)?;
            if count > 0 {
                return Ok(Got::Bytes(count));
            }
            match self.look()? {
                Got::Bytes(_) => {}
                got => return Ok(got),
            }
        }
    }

    fn bytes_read(&self) -> u64 {
        self.bytes
    }

    fn waits(&self) -> bool {
        false
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let mut known = lock(&self.known);
        known.paths.remove(&self.path);
        if let Some((id, _)) = &self.current {
            known.tails.remove(id);
        }
    }
}
