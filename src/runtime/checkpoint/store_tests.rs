//! Checkpoints in a folder and in an object store, and stores that fail.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_core::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as Answer,
};

use super::objects::Objects;
use super::place::{self, Draft, Place, Unwritten};
use super::store::{About, Store};
use crate::runtime::cut::{JobCut, TaskCut};

/// A folder and a part of the memory of this process, each for itself.
fn places() -> Vec<(PathBuf, Option<tempfile::TempDir>)> {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    let folder = tempfile::tempdir().unwrap();
    let url = format!("memory:///store-test-{}/job-1", NUMBERS.fetch_add(1, Ordering::Relaxed));
    vec![(folder.path().join("job-1"), Some(folder)), (PathBuf::from(url), None)]
}

fn about() -> About {
    About {
        statement: "SELECT 1".to_owned(),
        plan: "Sink".to_owned(),
        parts: Vec::new(),
        parallelism: 2,
        taken_us: 5,
        is_over: false,
    }
}

fn cut(elapsed_us: i64) -> JobCut {
    let tasks = vec![TaskCut { name: "source".to_owned(), ..TaskCut::default() }];
    JobCut { elapsed_us, tasks, ..JobCut::default() }
}

fn write(store: &Store, number: u64) {
    let bytes = store.write(number, &about(), &cut(number as i64)).unwrap();
    assert!(bytes > 0);
}

fn numbers(store: &Store) -> Vec<u64> {
    store.list().unwrap().into_iter().map(|(number, _)| number).collect()
}

fn code(error: &crate::Error) -> &'static str {
    error.code()
}

/// Writes over a part of a checkpoint, in a folder or in the memory of this process; `None`: removes it.
fn tear(place: &Path, name: &str, part: &str, change: impl Fn(Vec<u8>) -> Option<Vec<u8>>) {
    let folder = place::below(place, name);
    if !place.to_string_lossy().contains("://") {
        let file = folder.join(part);
        return match change(std::fs::read(&file).unwrap()) {
            Some(bytes) => std::fs::write(file, bytes).unwrap(),
            None => std::fs::remove_file(file).unwrap(),
        };
    }
    super::objects::change(folder.to_str().unwrap(), part, &change);
}

#[test]
fn what_was_written_is_read() {
    for (path, _folder) in places() {
        let store = Store::open(&path).unwrap();
        assert_eq!(code(&store.newest().err().unwrap()), "K001");
        (1..=3).for_each(|number| write(&store, number));
        assert_eq!(numbers(&store), [1, 2, 3]);
        let (newest, wrong) = Store::look(&path).unwrap().newest().unwrap();
        assert_eq!((newest.number, newest.cut.elapsed_us, wrong.len()), (3, 3, 0));
        assert_eq!(newest.about, about());
        let second = Store::load(&place::below(&path, "chk-00000002")).unwrap();
        assert_eq!((second.number, second.cut.tasks[0].name.as_str()), (2, "source"));
        let missing = Store::load(&place::below(&path, "chk-00000009")).err().unwrap();
        assert_eq!(code(&missing), "K001");
        assert!(missing.message().contains("chk-00000009"), "{missing}");
    }
}

#[test]
fn the_newest_are_kept_and_later_ones_forgotten() {
    for (path, _folder) in places() {
        let store = Store::open(&path).unwrap();
        (1..=5).for_each(|number| write(&store, number));
        store.prune(3).unwrap();
        assert_eq!(numbers(&store), [3, 4, 5]);
        store.forget_behind(3).unwrap();
        assert_eq!(numbers(&store), [3]);
        write(&store, 4);
        assert_eq!(store.newest().unwrap().0.number, 4);
    }
}

#[test]
fn torn_and_foreign_ones_are_told() {
    for (path, _folder) in places() {
        let store = Store::open(&path).unwrap();
        (1..=3).for_each(|number| write(&store, number));
        tear(&path, "chk-00000003", "state", |mut state| {
            state.pop();
            Some(state)
        });
        let (newest, wrong) = store.newest().unwrap();
        assert_eq!((newest.number, wrong.len(), code(&wrong[0])), (2, 1, "K002"));
        assert!(wrong[0].message().contains("another length"), "{}", wrong[0]);
        tear(&path, "chk-00000002", "state", |mut state| {
            *state.last_mut()? ^= 1;
            Some(state)
        });
        let (newest, wrong) = store.newest().unwrap();
        assert_eq!((newest.number, wrong.len()), (1, 2));
        assert!(wrong[1].message().contains("was changed"), "{}", wrong[1]);
        tear(&path, "chk-00000001", "manifest.json", |text| {
            Some(String::from_utf8(text).ok()?.replace("\"format\": 1", "\"format\": 99").into_bytes())
        });
        // None is whole: the newest is told of.
        assert!(store.newest().err().unwrap().message().contains("chk-00000003"));
        let later = Store::load(&place::below(&path, "chk-00000001")).err().unwrap();
        assert!(code(&later) == "K002" && later.message().contains("format 99"), "{later}");
        tear(&path, "chk-00000001", "manifest.json", |_| Some(b"{".to_vec()));
        let later = Store::load(&place::below(&path, "chk-00000001")).err().unwrap();
        assert!(later.message().contains("no JSON"), "{later}");
        tear(&path, "chk-00000002", "state", |_| None);
        let gone = Store::load(&place::below(&path, "chk-00000002")).err().unwrap();
        assert!(code(&gone) == "K002" && gone.message().contains("can't read"), "{gone}");
    }
}

#[test]
fn urls_of_no_store() {
    for (url, says) in [("ftp://host/x", "\"ftp\""), ("memory://[/x", "can't use")] {
        let error = Store::open(Path::new(url)).err().unwrap();
        assert!(code(&error) == "K004" && error.message().contains(says), "{error}");
    }
    #[cfg(not(feature = "object-stores"))]
    for url in ["s3://bucket/x", "gs://bucket/x", "az://container/x"] {
        let error = Store::open(Path::new(url)).err().unwrap();
        assert!(code(&error) == "K004" && error.message().contains(url), "{error}");
        assert!(error.hint_text().unwrap().contains("--features object-stores"), "{error}");
    }
    #[cfg(feature = "object-stores")]
    Store::open(Path::new("s3://bucket/x")).unwrap();
}

/// What goes wrong with the next manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It does not arrive.
    Lost,
    /// It arrives, and nobody is told.
    Unanswered,
}

/// A store whose requests fail when they are told to.
#[derive(Debug, Default)]
struct Faulty {
    inner: InMemory,
    fault: Mutex<Option<Fault>>,
    denies: Mutex<bool>,
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

fn unreachable() -> object_store::Error {
    object_store::Error::Generic { store: "faulty", source: "the connection was lost".into() }
}

fn denied(key: &Key) -> object_store::Error {
    object_store::Error::PermissionDenied { path: key.to_string(), source: "not yours".into() }
}

type Future<'f, T> = Pin<Box<dyn std::future::Future<Output = Answer<T>> + Send + 'f>>;

impl ObjectStore for Faulty {
    fn put_opts<'a, 'k, 'f>(
        &'a self,
        key: &'k Key,
        payload: PutPayload,
        how: PutOptions,
    ) -> Future<'f, PutResult>
    where
        'a: 'f,
        'k: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            if *self.denies.lock().unwrap() {
                return Err(denied(key));
            }
            let is_manifest = key.filename() == Some("manifest.json");
            let fault = is_manifest.then(|| self.fault.lock().unwrap().take()).flatten();
            if fault == Some(Fault::Lost) {
                return Err(unreachable());
            }
            let put = self.inner.put_opts(key, payload, how).await;
            if fault == Some(Fault::Unanswered) { Err(unreachable()) } else { put }
        })
    }

    fn put_multipart_opts<'a, 'k, 'f>(
        &'a self,
        key: &'k Key,
        how: PutMultipartOptions,
    ) -> Future<'f, Box<dyn MultipartUpload>>
    where
        'a: 'f,
        'k: 'f,
        Self: 'f,
    {
        self.inner.put_multipart_opts(key, how)
    }

    fn get_opts<'a, 'k, 'f>(&'a self, key: &'k Key, how: GetOptions) -> Future<'f, GetResult>
    where
        'a: 'f,
        'k: 'f,
        Self: 'f,
    {
        self.inner.get_opts(key, how)
    }

    fn delete_stream(&self, keys: BoxStream<'static, Answer<Key>>) -> BoxStream<'static, Answer<Key>> {
        self.inner.delete_stream(keys)
    }

    fn list(&self, below: Option<&Key>) -> BoxStream<'static, Answer<ObjectMeta>> {
        self.inner.list(below)
    }

    fn list_with_delimiter<'a, 'k, 'f>(&'a self, below: Option<&'k Key>) -> Future<'f, ListResult>
    where
        'a: 'f,
        'k: 'f,
        Self: 'f,
    {
        self.inner.list_with_delimiter(below)
    }

    fn copy_opts<'a, 'k, 'l, 'f>(&'a self, from: &'k Key, to: &'l Key, how: CopyOptions) -> Future<'f, ()>
    where
        'a: 'f,
        'k: 'f,
        'l: 'f,
        Self: 'f,
    {
        self.inner.copy_opts(from, to, how)
    }
}

fn faulty(store: &Arc<Faulty>) -> Objects {
    Objects::new(Arc::clone(store) as Arc<dyn ObjectStore>, Key::from("x"), 1 << 20)
}

fn put(objects: &Objects, name: &str, state: &str, manifest: &str) -> std::io::Result<u64> {
    let draft = Draft {
        state: &|into| {
            into.write_all(state.as_bytes()).unwrap();
            Ok(())
        },
        manifest: &|bytes, crc32| {
            assert_eq!((bytes, crc32), (state.len() as u64, crc32fast::hash(state.as_bytes())));
            manifest.as_bytes().to_vec()
        },
    };
    objects.put(name, &draft).map_err(|failure| match failure {
        Unwritten::System(error) => error,
        Unwritten::State(error) => panic!("{error}"),
    })
}

/// The state with this content.
fn state(objects: &Objects, name: &str, content: &str) -> Vec<u8> {
    let mut read = Vec::new();
    let found = objects.state(name, crc32fast::hash(content.as_bytes())).unwrap();
    found.open().unwrap().read_to_end(&mut read).unwrap();
    read
}

fn names(objects: &Objects) -> Vec<(String, bool)> {
    let mut names: Vec<_> =
        objects.list().unwrap().into_iter().map(|entry| (entry.name, entry.is_rest)).collect();
    names.sort();
    names
}

#[test]
fn a_manifest_that_does_not_arrive_leaves_no_checkpoint() {
    let store = Arc::new(Faulty::default());
    let objects = faulty(&store);
    *store.fault.lock().unwrap() = Some(Fault::Lost);
    let error = put(&objects, "chk-1", "one", "first").err().unwrap();
    assert!(error.to_string().contains("connection was lost"), "{error}");
    assert_eq!(names(&objects), [("chk-1".to_owned(), true)]);
    assert_eq!(objects.manifest("chk-1").err().unwrap().kind(), std::io::ErrorKind::NotFound);
    put(&objects, "chk-1", "two", "second").unwrap();
    assert_eq!(names(&objects), [("chk-1".to_owned(), false)]);
    assert_eq!(objects.manifest("chk-1").unwrap(), b"second");
    assert_eq!(state(&objects, "chk-1", "two"), b"two");
    objects.remove("chk-1").unwrap();
    assert_eq!(names(&objects), []);
    assert_eq!(store.inner_keys(), Vec::<String>::new(), "nothing is left");
}

#[test]
fn a_manifest_that_arrived_untold_is_replaced_with_its_state() {
    let store = Arc::new(Faulty::default());
    let objects = faulty(&store);
    *store.fault.lock().unwrap() = Some(Fault::Unanswered);
    put(&objects, "chk-1", "one", "first").err().unwrap();
    // It is there, and whole.
    assert_eq!(objects.manifest("chk-1").unwrap(), b"first");
    assert_eq!(state(&objects, "chk-1", "one"), b"one");
    put(&objects, "chk-1", "two", "second").unwrap();
    assert_eq!(objects.manifest("chk-1").unwrap(), b"second");
    assert_eq!(state(&objects, "chk-1", "two"), b"two");
    // A request that is sent twice finds its own.
    put(&objects, "chk-1", "two", "second").unwrap();
}

#[test]
fn two_runs_do_not_write_over_each_other() {
    let store = Arc::new(Faulty::default());
    let (first, second) = (faulty(&store), faulty(&store));
    put(&first, "chk-1", "one", "first").unwrap();
    let error = put(&second, "chk-1", "two", "second").err().unwrap();
    assert!(error.to_string().contains("another run"), "{error}");
    assert_eq!(first.manifest("chk-1").unwrap(), b"first");
    assert_eq!(state(&first, "chk-1", "one"), b"one");
    assert_eq!(store.inner_keys().len(), 2, "what the second one sent is removed");
    // Again, with the number that the other one has.
    put(&second, "chk-1", "two", "second").err().unwrap();
    put(&second, "chk-2", "two", "second").unwrap();
}

#[test]
fn a_permission_that_is_missing_is_told() {
    let store = Arc::new(Faulty::default());
    let objects = faulty(&store);
    *store.denies.lock().unwrap() = true;
    let error = put(&objects, "chk-1", "one", "first").err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    assert_eq!(names(&objects), []);
}

#[test]
fn large_states_are_sent_in_parts() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let objects = Objects::new(store, Key::from("x"), 10);
    for length in [9, 10, 11, 40, 41] {
        let state: String = (0..length).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
        let name = format!("chk-{length}");
        put(&objects, &name, &state, "m").unwrap();
        assert_eq!(self::state(&objects, &name, &state), state.as_bytes());
    }
}

impl Faulty {
    fn inner_keys(self: &Arc<Self>) -> Vec<String> {
        let objects = faulty(self);
        objects.keys(&Key::default()).unwrap().iter().map(ToString::to_string).collect()
    }
}
