//! State on disk: a file of Arrow IPC for each piece that is put away.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
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

/// A folder of files of a job's state. It is made with the first file and removed with the last, at the latest when
/// the job is over.
#[derive(Debug)]
pub(super) struct SpillFolder {
    /// Where it is made.
    parent: PathBuf,
    made: Mutex<Option<PathBuf>>,
    files: AtomicU64,
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
            return Ok(made.clone());
        }
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = self.parent.join(format!("tidegate-{}-{number}", std::process::id()));
        create(&folder).map_err(|error| unwritable(&folder, &error))?;
        *made = Some(folder.clone());
        Ok(folder)
    }
}

impl Drop for SpillFolder {
    fn drop(&mut self) {
        if let Some(made) = lock(&self.made).take() {
            // What can't be removed is in the way of nobody.
            let _ = fs::remove_dir_all(made);
        }
    }
}

/// State is nobody else's business.
fn create(folder: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Where an operator puts its state away.
#[derive(Debug)]
pub(super) struct FileStore(pub(super) Arc<SpillFolder>);

impl SpillStore for FileStore {
    fn put(&self, rows: &mut dyn Iterator<Item = RecordBatch>) -> Result<Arc<dyn Spilled>, Error> {
        let number = self.0.files.fetch_add(1, Ordering::Relaxed);
        let path = self.0.made()?.join(format!("{number}.arrow"));
        let fault = |error: &dyn std::fmt::Display| unwritable(&path, error);
        // Removed also if it can't be written to its end.
        let mut spilled = SpilledFile { path: path.clone(), bytes: 0, _folder: Arc::clone(&self.0) };
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
        let store = FileStore(SpillFolder::new(Some(place.path().to_path_buf())));
        assert_eq!(entries(), 0);
        let spilled = store.put(&mut [rows(0..5), rows(5..7)].into_iter()).unwrap();
        let other = store.put(&mut [rows(9..10)].into_iter()).unwrap();
        for _ in 0..2 {
            let back: Vec<RecordBatch> = spilled.rows().unwrap().map(Result::unwrap).collect();
            assert_eq!(back, [rows(0..5), rows(5..7)]);
        }
        assert!(spilled.bytes() > 0);
        let folder = store.0.made().unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        drop(other);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        drop(store);
        assert_eq!((entries(), spilled.rows().is_ok()), (1, true));
        drop(spilled);
        assert_eq!(entries(), 0);
    }

    #[test]
    fn a_place_that_takes_nothing_is_named() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("missing");
        let store = FileStore(SpillFolder::new(Some(missing)));
        let error = store.put(&mut [rows(0..5)].into_iter()).unwrap_err();
        assert_eq!(error.code(), "F003");
        assert!(error.message().contains("missing"), "{error}");
    }

    #[test]
    fn a_file_that_somebody_removed_is_named() {
        let place = tempfile::tempdir().unwrap();
        let store = FileStore(SpillFolder::new(Some(place.path().to_path_buf())));
        let spilled = store.put(&mut [rows(0..5)].into_iter()).unwrap();
        fs::remove_dir_all(store.0.made().unwrap()).unwrap();
        assert_eq!(spilled.rows().err().map(|error| error.code().to_owned()).as_deref(), Some("F001"));
    }
}
