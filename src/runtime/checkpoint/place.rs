//! Where the checkpoints of a job are: a folder, or the URL of an object store.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::folder::Folder;
use super::objects;
use crate::connector::local_path;
use crate::error::Error;

/// Keeps checkpoints by name, each of which is there as a whole or not at all.
pub(super) trait Place: Debug + Send + Sync {
    /// What is there, in any order.
    fn list(&self) -> io::Result<Vec<Entry>>;

    /// Adds a checkpoint; the bytes of its state. When it fails nothing of it is there.
    fn put(&self, name: &str, draft: &Draft<'_>) -> Result<u64, Unwritten>;

    /// The manifest of a checkpoint; an error of the kind `NotFound` if there is none.
    fn manifest(&self, name: &str) -> io::Result<Vec<u8>>;

    /// The state that a manifest is about, by its checksum.
    fn state(&self, name: &str, crc32: u32) -> io::Result<State>;

    /// Removes a checkpoint, or what is left of one.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A checkpoint that is to be written.
pub(super) struct Draft<'a> {
    /// Writes the state.
    pub(super) state: &'a dyn Fn(&mut dyn Write) -> Result<(), Error>,
    /// The manifest of a state of so many bytes with this checksum.
    pub(super) manifest: &'a dyn Fn(u64, u32) -> Vec<u8>,
}

/// Why a checkpoint is not there.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// The system, or the store, did not take it.
    System(io::Error),
    /// Its state can't be told.
    State(Error),
}

impl From<io::Error> for Unwritten {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// A state that was found.
pub(super) enum State {
    Here(Vec<u8>),
    File(PathBuf),
}

impl State {
    /// Its bytes, from the start.
    pub(super) fn open(&self) -> io::Result<Box<dyn Read + '_>> {
        Ok(match self {
            Self::Here(bytes) => Box::new(bytes.as_slice()),
            Self::File(path) => Box::new(BufReader::with_capacity(1 << 20, File::open(path)?)),
        })
    }

    /// How many they are, and their checksum.
    pub(super) fn sum(&self) -> io::Result<(u64, u32)> {
        let mut summed = Summed::new(io::sink());
        io::copy(&mut self.open()?, &mut summed)?;
        Ok(summed.sum())
    }
}

/// Counts bytes that are written, with their checksum, and keeps the reason why one was not.
pub(super) struct Summed<W> {
    into: W,
    crc32: crc32fast::Hasher,
    bytes: u64,
    failure: Option<io::Error>,
}

impl<W: Write> Summed<W> {
    pub(super) fn new(into: W) -> Self {
        Self { into, crc32: crc32fast::Hasher::new(), bytes: 0, failure: None }
    }

    fn sum(&self) -> (u64, u32) {
        (self.bytes, self.crc32.clone().finalize())
    }

    /// Writes a state; where it went, how many bytes it has, and its checksum.
    pub(super) fn take(mut self, draft: &Draft<'_>) -> Result<(W, u64, u32), Unwritten> {
        let written = (draft.state)(&mut self).map_err(Unwritten::State);
        if let Some(failure) = self.failure.take() {
            return Err(failure.into());
        }
        written?;
        self.into.flush()?;
        let (bytes, crc32) = self.sum();
        Ok((self.into, bytes, crc32))
    }
}

impl<W> Summed<W> {
    /// Keeps the first failure; what it says.
    fn noted(&mut self, error: io::Error) -> io::Error {
        let told = io::Error::new(error.kind(), error.to_string());
        self.failure.get_or_insert(error);
        told
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.into.write(bytes).map_err(|error| self.noted(error))?;
        self.crc32.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.into.flush().map_err(|error| self.noted(error))
    }
}

/// Something that stands in a place.
pub(super) struct Entry {
    pub(super) name: String,
    /// It is known that it has no manifest: what an attempt has left.
    pub(super) is_rest: bool,
}

/// Opens a place; a folder is made if it is not there.
///
/// # Errors
/// `K004` if that can't be.
pub(super) fn open(place: &Path) -> Result<Arc<dyn Place>, Error> {
    Ok(match url_of(place) {
        Some(url) => objects::open(url)?,
        None => Arc::new(Folder::open(local(place))?),
    })
}

/// The same, where nothing is made.
///
/// # Errors
/// `K004` for a URL of no store that is known.
pub(super) fn look(place: &Path) -> Result<Arc<dyn Place>, Error> {
    Ok(match url_of(place) {
        Some(url) => objects::open(url)?,
        None => Arc::new(Folder::at(local(place))),
    })
}

/// What is named so in a place.
pub(crate) fn below(place: &Path, name: &str) -> PathBuf {
    match url_of(place) {
        Some(url) => PathBuf::from(format!("{}/{name}", url.trim_end_matches('/'))),
        None => place.join(name),
    }
}

/// The place of something, and how it is named there.
pub(super) fn split(path: &Path) -> (PathBuf, String) {
    if let Some((place, name)) = url_of(path).and_then(|url| url.trim_end_matches('/').rsplit_once('/')) {
        return (PathBuf::from(place), name.to_owned());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    (path.parent().unwrap_or(path).to_path_buf(), name)
}

/// Whether a checkpoint is one of those in a place.
pub(crate) fn is_in(path: &Path, place: &Path) -> bool {
    whole(&split(path).0) == whole(place)
}

/// Whether what is named so is a checkpoint of one of the jobs in a place: `job-1/chk-00000007`.
pub(crate) fn is_of_a_job(path: &Path, place: &Path) -> bool {
    let (job, _) = split(path);
    let (parent, name) = split(&job);
    name.strip_prefix("job-").is_some_and(|number| number.parse::<u64>().is_ok())
        && (whole(&parent) == whole(place) || whole(&job) == whole(&below(place, &name)))
}

/// Whether there is a checkpoint.
///
/// # Errors
/// `K004` for a URL of no store that is known.
pub(crate) fn is_there(path: &Path) -> Result<bool, Error> {
    let (place, name) = split(path);
    // What can't be looked at is told when it is read.
    Ok(look(&place)?.manifest(&name).map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true))
}

/// A folder that is in another one, or is it, so that who reads that takes what is here for data; names that begin with
/// `.` or `_` are not read.
pub(crate) fn is_seen_in(place: &Path, folder: &Path) -> bool {
    if is_remote(place) || is_remote(folder) {
        return false;
    }
    let (place, folder) = (whole(place), whole(folder));
    place.strip_prefix(&folder).is_ok_and(|rest| {
        let is_hidden =
            |name: std::path::Component<'_>| name.as_os_str().to_string_lossy().starts_with(['.', '_']);
        !rest.components().any(is_hidden)
    })
}

/// A place by one name, also where links lead there; what is not there yet is below what is.
fn whole(path: &Path) -> PathBuf {
    if let Some(url) = url_of(path) {
        return PathBuf::from(url.trim_end_matches('/'));
    }
    let path = std::path::absolute(local(path)).unwrap_or_else(|_| path.to_path_buf());
    let found = path.ancestors().find_map(|known| Some((known, known.canonicalize().ok()?)));
    match found.and_then(|(known, real)| Some((path.strip_prefix(known).ok()?, real))) {
        Some((rest, real)) if rest.as_os_str().is_empty() => real,
        Some((rest, real)) => rest.components().fold(real, |path, name| match name {
            std::path::Component::ParentDir => path.parent().unwrap_or(&path).to_path_buf(),
            name => path.join(name),
        }),
        None => path,
    }
}

/// Whether a job has begun to use a place.
///
/// # Errors
/// `K002` if nobody can look, `K004` for a URL of no store that is known.
pub(crate) fn is_used(place: &Path) -> Result<bool, Error> {
    match url_of(place) {
        Some(_) => Ok(!super::store::Store::look(place)?.list()?.is_empty()),
        None => Ok(local(place).exists()),
    }
}

/// A URL that is not about files of this machine.
fn url_of(place: &Path) -> Option<&str> {
    let text = place.to_str()?;
    (text.contains("://") && local_path(text) == text).then_some(text)
}

/// Whether it is in an object store.
pub(super) fn is_remote(place: &Path) -> bool {
    url_of(place).is_some()
}

fn local(place: &Path) -> &Path {
    place.to_str().map_or(place, |text| Path::new(local_path(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_folders_and_urls() {
        let job = |place: &str| below(Path::new(place), "job-1").to_string_lossy().into_owned();
        assert_eq!(job("state"), "state/job-1");
        assert_eq!(job("memory:///state"), "memory:///state/job-1");
        assert_eq!(job("s3://bucket/"), "s3://bucket/job-1");
        assert_eq!(job("file:///tmp/state"), "file:///tmp/state/job-1");
        let is_in = |path: &str, place: &str| is_in(Path::new(path), Path::new(place));
        assert!(is_in("state/job-1/chk-1", "./state/job-1"));
        assert!(is_in("/a/job-1/chk-1", "file:///a/job-1"));
        assert!(is_in("file:///a/job-1/chk-1/", "/a/job-1"));
        assert!(is_in("memory:///a/job-1/chk-1/", "memory:///a/job-1"));
        assert!(!is_in("memory:///a/job-1/chk-1", "memory:///a/job-2"));
        assert!(!is_in("state/job-1/chk-1", "memory:///state/job-1"));
        assert!(!is_in("state/job-11/chk-1", "state/job-1"));
        let is_of_a_job = |path: &str, place: &str| is_of_a_job(Path::new(path), Path::new(place));
        assert!(is_of_a_job("state/job-11/chk-1", "./state/"));
        assert!(is_of_a_job("memory:///a/job-1/chk-1/", "memory:///a"));
        assert!(!is_of_a_job("state/job-1", "state") && !is_of_a_job("state/chk-1", "state"));
        assert!(!is_of_a_job("copy/job-1/chk-1", "state") && !is_of_a_job("state/job-x/chk-1", "state"));
        let is_seen_in = |place: &str, folder: &str| is_seen_in(Path::new(place), Path::new(folder));
        assert!(is_seen_in("out", "out") && is_seen_in("./out/state", "file:out/"));
        assert!(!is_seen_in("out/.state", "out") && !is_seen_in("out/_a/state", "out"));
        assert!(
            !is_seen_in("out2", "out")
                && !is_seen_in("state", "state/out")
                && !is_seen_in("memory:///a", "/a")
        );
        assert_eq!(split(Path::new("s3://b/job-1/chk-7/")), ("s3://b/job-1".into(), "chk-7".to_owned()));
    }
}
