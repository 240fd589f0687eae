//! State on disk: a file of Arrow IPC for each piece that is put away.

use std::fs::{self, DirEntry, File, Metadata};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;

use super::super::channel::lock;
use crate::error::{Error, code};
use crate::operator::{SpillStore, Spilled, SpilledRows};

/// The folders that this process has made.
static FOLDERS: AtomicU64 = AtomicU64::new(0);
/// A file in each of them that is locked as long as its process lives.
const LOCK: &str = ".lock";
/// What stands in it once it is locked: a folder without it is not touched.
const MARKER: &[u8] = b"state that tidegate has put away\n";

/// A folder of files of a job's state. It is made with the first file and removed with the last, at the latest when
/// the job is over; one whose process was killed goes when another one is made beside it.
#[derive(Debug)]
pub(super) struct SpillFolder {
    /// Where it is made.
    parent: PathBuf,
    made: Mutex<Option<Made>>,
    files: AtomicU64,
}

/// A folder that is there.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    /// While it is open nobody takes the folder for one that was left behind; `None`: this system locks no files there,
    /// and nobody does.
    _lock: Option<File>,
}

impl SpillFolder {
    /// Below `parent`; `None`: where the system keeps temporary files.
    pub(super) fn new(parent: Option<PathBuf>) -> Arc<Self> {
        let parent = parent.unwrap_or_else(std::env::temp_dir);
        Arc::new(Self { parent, made: Mutex::default(), files: AtomicU64::new(0) })
    }

    fn made(&self) -> Result<PathBuf, Error> {
        let mut made = lock(&self.made);
        if let Some(made) = &*made {
            return Ok(made.path.clone());
        }
        let now = make(&self.parent).map_err(|(path, error)| unwritable(&path, &error))?;
        remove_left_behind(&self.parent, &now.path);
        let path = now.path.clone();
        *made = Some(now);
        Ok(path)
    }
}

impl Drop for SpillFolder {
    fn drop(&mut self) {
        if let Some(made) = lock(&self.made).take() {
            // What can't be removed is in the way of nobody.
            let _ = fs::remove_dir_all(&made.path);
        }
    }
}

/// A folder that nobody else has: after a kill there may be one of a process that had the same number.
fn make(parent: &Path) -> Result<Made, (PathBuf, io::Error)> {
    loop {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        match create(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err((path, error)),
        }
        return match claim(&path.join(LOCK)) {
            Ok(lock) => Ok(Made { path, _lock: lock }),
            Err(error) => Err((path, error)),
        };
    }
}

const PREFIX: &str = "tidegate-";

/// State is nobody else's business.
fn create(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Locks a folder's file, and only then says what the folder is.
fn claim(path: &Path) -> io::Result<Option<File>> {
    let mut file = File::create_new(path)?;
    match file.try_lock() {
        Ok(()) => {
            file.write_all(MARKER)?;
            Ok(Some(file))
        }
        Err(_) => Ok(None),
    }
}

/// Removes the folders beside this one whose processes are gone. Whatever can't be done is left to the next one.
fn remove_left_behind(parent: &Path, own: &Path) {
    let (Ok(entries), Ok(own_facts)) = (fs::read_dir(parent), fs::symlink_metadata(own)) else { return };
    for entry in entries.flatten().filter(|entry| entry.path() != own) {
        if let Some(_lock) = left_behind(&entry, &own_facts) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The lock of a folder that is one of this user's, and that no process has.
fn left_behind(entry: &DirEntry, own: &Metadata) -> Option<File> {
    let name = entry.file_name();
    let (process, number) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    process.parse::<u32>().ok()?;
    number.parse::<u64>().ok()?;
    // Links are not followed.
    let folder = fs::symlink_metadata(entry.path()).ok()?;
    let path = entry.path().join(LOCK);
    if !folder.is_dir() || !is_alike(&folder, own) || !fs::symlink_metadata(&path).ok()?.is_file() {
        return None;
    }
    let file = File::options().read(true).write(true).open(&path).ok()?;
    let mut marker = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(&file, MARKER.len() as u64 + 1), &mut marker).ok()?;
    file.try_lock().ok().filter(|()| marker == MARKER)?;
    Some(file)
}

/// Whether a folder is the same user's, who alone may write there.
#[cfg(unix)]
fn is_alike(folder: &Metadata, own: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    folder.uid() == own.uid() && folder.mode() & 0o077 == 0
}

#[cfg(not(unix))]
fn is_alike(_folder: &Metadata, _own: &Metadata) -> bool {
    true
}

/// Where an operator puts its state away.
#[derive(Debug)]
pub(super) struct FileStore {
    pub(super) folder: Arc<SpillFolder>,
    /// See [`SpillStore::share`].
    pub(super) share: usize,
}

impl SpillStore for FileStore {
    fn put(&self, rows: &mut dyn Iterator<Item = RecordBatch>) -> Result<Arc<dyn Spilled>, Error> {
        let number = self.folder.files.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.made()?.join(format!("{number}.arrow"));
        let fault = |error: &dyn std::fmt::Display| unwritable(&path, error);
        // Removed also if it can't be written to its end.
        let mut spilled = SpilledFile { path: path.clone(), bytes: 0, _folder: Arc::clone(&self.folder) };
        let Some(first) = rows.next() else {
            return Err(Error::internal("spill", "no rows, and so no columns"));
        };
        let file = File::create(&path).map_err(|error| fault(&error))?;
        let writer = StreamWriter::try_new(BufWriter::new(file), &first.schema());
        let mut writer = writer.map_err(|error| fault(&error))?;
        writer.write(&first).map_err(|error| fault(&error))?;
        for rows in rows {
            writer.write(&rows).map_err(|error| fault(&error))?;
        }
        let mut file = writer.into_inner().map_err(|error| fault(&error))?;
        file.flush().map_err(|error| fault(&error))?;
        spilled.bytes = file.get_ref().metadata().map_err(|error| fault(&error))?.len();
        Ok(Arc::new(spilled))
    }

    fn share(&self) -> usize {
        self.share
    }
}

/// A file that is gone with its last user.
#[derive(Debug)]
struct SpilledFile {
    path: PathBuf,
    bytes: u64,
    _folder: Arc<SpillFolder>,
}

impl Drop for SpilledFile {
    fn drop(&mut self) {
        // Its folder goes, too.
        let _ = fs::remove_file(&self.path);
    }
}

impl Spilled for SpilledFile {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn rows(&self) -> Result<SpilledRows, Error> {
        let path = self.path.clone();
        let fault = move |error: &dyn std::fmt::Display| {
            Error::run(
                code::UNREADABLE,
                format!("can't read state back from \"{}\": {error}", path.display()),
            )
            .hint("Leave the folder alone while the job runs.")
        };
        let file = File::open(&self.path).map_err(|error| fault(&error))?;
        let reader = StreamReader::try_new(BufReader::new(file), None).map_err(|error| fault(&error))?;
        Ok(Box::new(reader.map(move |rows| rows.map_err(|error| fault(&error)))))
    }
}

fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::run(code::UNWRITABLE, format!("can't put state away in \"{}\": {error}", path.display())).hint(
        "Make room there, name another folder with SET 'state.spill-dir', or allow more memory with \
         SET 'state.memory-limit'.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array};

    fn rows(values: std::ops::Range<i64>) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        RecordBatch::try_from_iter([("a", column)]).unwrap()
    }

    #[test]
    fn rows_come_back_and_leave_nothing_behind() {
        let place = tempfile::tempdir().unwrap();
        let entries = || fs::read_dir(place.path()).unwrap().count();
        let store =
            FileStore { folder: SpillFolder::new(Some(place.path().to_path_buf())), share: usize::MAX };
        assert_eq!(entries(), 0);
        let spilled = store.put(&mut [rows(0..5), rows(5..7)].into_iter()).unwrap();
        let other = store.put(&mut [rows(9..10)].into_iter()).unwrap();
        for _ in 0..2 {
            let back: Vec<RecordBatch> = spilled.rows().unwrap().map(Result::unwrap).collect();
            assert_eq!(back, [rows(0..5), rows(5..7)]);
        }
        assert!(spilled.bytes() > 0);
        let folder = store.folder.made().unwrap();
        let files =
            || fs::read_dir(&folder).unwrap().flatten().filter(|file| file.file_name() != LOCK).count();
        assert_eq!(files(), 2);
        drop(other);
        assert_eq!(files(), 1);
        drop(store);
        assert_eq!((entries(), spilled.rows().is_ok()), (1, true));
        drop(spilled);
        assert_eq!(entries(), 0);
    }

    #[test]
    fn a_place_that_takes_nothing_is_named() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("missing");
        let store = FileStore { folder: SpillFolder::new(Some(missing)), share: usize::MAX };
        let error = store.put(&mut [rows(0..5)].into_iter()).unwrap_err();
        assert_eq!(error.code(), "F003");
        assert!(error.message().contains("missing"), "{error}");
    }

    #[test]
    fn a_file_that_somebody_removed_is_named() {
        let place = tempfile::tempdir().unwrap();
        let store =
            FileStore { folder: SpillFolder::new(Some(place.path().to_path_buf())), share: usize::MAX };
        let spilled = store.put(&mut [rows(0..5)].into_iter()).unwrap();
        fs::remove_dir_all(store.folder.made().unwrap()).unwrap();
        assert_eq!(spilled.rows().err().map(|error| error.code().to_owned()).as_deref(), Some("F001"));
    }

    /// What a process that was killed has left: the lock went with it.
    #[cfg(unix)]
    fn leave(folder: &Path, marker: &[u8]) {
        create(folder).unwrap();
        fs::write(folder.join(LOCK), marker).unwrap();
        fs::write(folder.join("0.arrow"), "rows").unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn folders_of_processes_that_are_gone_are_removed() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let parent = || Some(place.path().to_path_buf());
        // One that lives, of this process; a lock is not shared within one either.
        let living = FileStore { folder: SpillFolder::new(parent()), share: usize::MAX };
        let rows_of_living = living.put(&mut [rows(0..5)].into_iter()).unwrap();
        leave(&at("tidegate-4000000000-0"), MARKER);
        leave(&at("tidegate-1-17"), MARKER);
        // Nobody's business: other names, other marks, what others may write to, and links.
        for name in ["tidegate-1", "tidegate-1-x", "tidegate--1-1", "other-1-1"] {
            leave(&at(name), MARKER);
        }
        leave(&at("tidegate-2-0"), b"");
        leave(&at("tidegate-2-1"), b"state that tidegate has put away\nand more");
        fs::create_dir(at("tidegate-2-2")).unwrap();
        leave(&at("tidegate-2-3"), MARKER);
        fs::set_permissions(at("tidegate-2-3"), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(at("tidegate-2-4"), "a file").unwrap();
        leave(&at("elsewhere"), MARKER);
        symlink(at("elsewhere"), at("tidegate-3-0")).unwrap();
        create(&at("tidegate-3-1")).unwrap();
        symlink(at("elsewhere").join(LOCK), at("tidegate-3-1").join(LOCK)).unwrap();
        // A link in one that goes is not followed.
        symlink(at("elsewhere"), at("tidegate-1-17").join("1.arrow")).unwrap();
        let names = || -> std::collections::BTreeSet<String> {
            let entries = fs::read_dir(place.path()).unwrap().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        let before = names();
        let store = FileStore { folder: SpillFolder::new(parent()), share: usize::MAX };
        assert_eq!(names(), before, "nothing is done before there is something to put away");
        drop(store.put(&mut [rows(0..5)].into_iter()).unwrap());
        let own = store.folder.made().unwrap();
        let mut expected = before;
        expected.remove("tidegate-4000000000-0");
        expected.remove("tidegate-1-17");
        expected.insert(own.file_name().unwrap().to_string_lossy().into_owned());
        assert_eq!(names(), expected);
        assert!(at("elsewhere").join("0.arrow").exists());
        assert_eq!(rows_of_living.rows().unwrap().map(Result::unwrap).collect::<Vec<_>>(), [rows(0..5)]);
    }

    /// In a container each process may have the same number.
    #[test]
    fn a_folder_of_the_same_name_is_in_the_way_of_nobody() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..1_000 {
            let name = format!("{PREFIX}{}-{}", std::process::id(), FOLDERS.load(Ordering::Relaxed) + number);
            fs::create_dir(place.path().join(name)).unwrap();
        }
        let store =
            FileStore { folder: SpillFolder::new(Some(place.path().to_path_buf())), share: usize::MAX };
        assert!(store.put(&mut [rows(0..5)].into_iter()).is_ok());
    }
}
