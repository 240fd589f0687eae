//! Checkpoints in an object store. A checkpoint is an object with its state and one with its manifest, which is written
//! last and only where there is none: that is the moment at which the checkpoint is there.
//!
//! States are named by their checksums, so that no attempt writes over the state of another one.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{
    ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, WriteMultipart, path::PathPart,
};
use tokio::runtime::Runtime;
use url::Url;

use super::place::{Draft, Entry, Place, State, Summed, Unwritten};
use super::store::{MANIFEST, STATE};
use crate::error::{Error, code};
use crate::runtime::channel::lock;

/// States that are larger are sent in parts of this size.
const PART_BYTES: usize = 32 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Key,
    part_bytes: usize,
    /// The manifest that was sent last, if nobody knows whether it arrived.
    doubtful: Mutex<Option<(String, Vec<u8>)>>,
}

/// The store of a URL.
///
/// # Errors
/// `K004` if no such store is known.
pub(super) fn open(url: &str) -> Result<Arc<dyn Place>, Error> {
    let parsed = Url::parse(url).map_err(|error| unknown(url, &error.to_string()))?;
    let (store, path) = match parsed.scheme() {
        "memory" => (memory(), format!("{}{}", parsed.host_str().unwrap_or_default(), parsed.path())),
        "s3" | "s3a" | "gs" | "az" | "adl" | "azure" | "abfs" | "abfss" => {
            (remote(&parsed)?, parsed.path().to_owned())
        }
        other => return Err(unknown(url, &format!("no store is known by \"{other}\""))),
    };
    let prefix = Key::from_url_path(path).map_err(|error| unknown(url, &error.to_string()))?;
    Ok(Arc::new(Objects::new(store, prefix, PART_BYTES)))
}

/// The memory of this process.
fn memory() -> Arc<dyn ObjectStore> {
    static MEMORY: OnceLock<Arc<InMemory>> = OnceLock::new();
    let memory: &Arc<InMemory> = MEMORY.get_or_init(Arc::default);
    Arc::clone(memory) as Arc<dyn ObjectStore>
}

/// A store that is reached by HTTP. Its credentials and its address are in the environment.
#[cfg(feature = "object-stores")]
fn remote(url: &Url) -> Result<Arc<dyn ObjectStore>, Error> {
    use object_store::aws::AmazonS3Builder;
    use object_store::azure::MicrosoftAzureBuilder;
    use object_store::gcp::GoogleCloudStorageBuilder;
    let retry = object_store::RetryConfig {
        max_retries: 4,
        retry_timeout: std::time::Duration::from_secs(30),
        ..object_store::RetryConfig::default()
    };
    let text = url.as_str();
    let built = match url.scheme() {
        "s3" | "s3a" => {
            let built = AmazonS3Builder::from_env().with_url(text).with_retry(retry).build();
            built.map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
        "gs" => {
            let built = GoogleCloudStorageBuilder::from_env().with_url(text).with_retry(retry).build();
            built.map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
        _ => {
            let built = MicrosoftAzureBuilder::from_env().with_url(text).with_retry(retry).build();
            built.map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
    };
    built.map_err(|error| unknown(text, &error.to_string()))
}

#[cfg(not(feature = "object-stores"))]
fn remote(url: &Url) -> Result<Arc<dyn ObjectStore>, Error> {
    let message = format!("can't use \"{url}\" for checkpoints: this build has no object stores");
    Err(Error::usage(code::UNWRITTEN_CHECKPOINT, message)
        .hint("Build it with --features object-stores, or use a folder."))
}

fn unknown(url: &str, why: &str) -> Error {
    Error::usage(code::UNWRITTEN_CHECKPOINT, format!("can't use \"{url}\" for checkpoints: {why}"))
        .hint("Use a folder, or a URL of file://, memory://, s3://, gs:// or az://.")
}

impl Objects {
    pub(super) fn new(store: Arc<dyn ObjectStore>, prefix: Key, part_bytes: usize) -> Self {
        Self { store, prefix, part_bytes, doubtful: Mutex::default() }
    }

    fn key(&self, name: &str, part: &str) -> Key {
        self.prefix.clone().join(PathPart::from(name)).join(PathPart::from(part))
    }

    /// What stands below a key.
    pub(super) fn keys(&self, below: &Key) -> io::Result<Vec<Key>> {
        wait(async {
            let mut found = self.store.list(Some(below));
            let mut keys = Vec::new();
            while let Some(object) = std::future::poll_fn(|cx| found.as_mut().poll_next(cx)).await {
                keys.push(object?.location);
            }
            Ok(keys)
        })
    }

    fn get(&self, key: &Key) -> io::Result<Vec<u8>> {
        wait(async { Ok(self.store.get(key).await?.bytes().await?.into()) })
    }

    fn put_state(&self, key: &Key, state: Vec<u8>) -> io::Result<()> {
        wait(async {
            if state.len() <= self.part_bytes {
                self.store.put(key, PutPayload::from(state)).await?;
                return Ok(());
            }
            let upload = self.store.put_multipart(key).await?;
            let mut upload = WriteMultipart::new_with_chunk_size(upload, self.part_bytes);
            for part in state.chunks(self.part_bytes) {
                if let Err(error) = upload.wait_for_capacity(2).await {
                    // What can't be given up either is never seen; stores remove it one day.
                    let _ = upload.abort().await;
                    return Err(error.into());
                }
                upload.write(part);
            }
            upload.finish().await?;
            Ok(())
        })
    }

    /// Writes the manifest, unless another run has written one.
    fn put_manifest(&self, name: &str, manifest: &[u8]) -> io::Result<()> {
        let key = self.key(name, MANIFEST);
        let put = |mode: PutMode| {
            let options = PutOptions { mode, ..PutOptions::default() };
            let payload = PutPayload::from(manifest.to_vec());
            wait(async { Ok(self.store.put_opts(&key, payload, options).await.map(drop)?) })
        };
        let mut doubtful = lock(&self.doubtful);
        let earlier = doubtful.replace((name.to_owned(), manifest.to_vec()));
        match put(PutMode::Create) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let there = match self.get(&key) {
                    Ok(there) => there,
                    Err(error) => {
                        *doubtful = earlier;
                        return Err(error);
                    }
                };
                let is_earlier = earlier.is_some_and(|earlier| earlier == (name.to_owned(), there.clone()));
                // A request may be sent twice though the first one has arrived.
                if is_earlier {
                    put(PutMode::Overwrite)?;
                } else if there != manifest {
                    *doubtful = None;
                    let message = "another run has written it meanwhile";
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
                }
            }
            Err(error) => return Err(error),
        }
        *doubtful = None;
        Ok(())
    }
}

impl Place for Objects {
    fn list(&self) -> io::Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        for key in self.keys(&self.prefix)? {
            let parts: Option<Vec<_>> = key.prefix_match(&self.prefix).map(Iterator::collect);
            let Some([name, part]) = parts.as_deref() else { continue };
            let is_rest = part.as_ref() != MANIFEST;
            match entries.iter_mut().find(|entry| entry.name == name.as_ref()) {
                Some(entry) => entry.is_rest &= is_rest,
                None => entries.push(Entry { name: name.as_ref().to_owned(), is_rest }),
            }
        }
        Ok(entries)
    }

    fn put(&self, name: &str, draft: &Draft<'_>) -> Result<u64, Unwritten> {
        let (content, bytes, crc32) = Summed::new(Vec::new()).take(draft)?;
        let state = self.key(name, &state_name(crc32));
        let manifest = (draft.manifest)(bytes, crc32);
        let put = self.put_state(&state, content).and_then(|()| self.put_manifest(name, &manifest));
        let put = put.inspect_err(|_| {
            // A manifest that may have arrived needs its state; else what stays here is taken for nothing.
            if lock(&self.doubtful).is_none() {
                let _ = wait(async { Ok(self.store.delete(&state).await?) });
            }
        });
        Ok(put.map(|()| bytes)?)
    }

    fn manifest(&self, name: &str) -> io::Result<Vec<u8>> {
        self.get(&self.key(name, MANIFEST))
    }

    fn state(&self, name: &str, crc32: u32) -> io::Result<State> {
        self.get(&self.key(name, &state_name(crc32))).map(State::Here)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let folder = self.prefix.clone().join(PathPart::from(name));
        let manifest = self.key(name, MANIFEST);
        let mut keys = self.keys(&folder)?;
        // The manifest first: a checkpoint without state would be a torn one.
        keys.sort_by_key(|key| *key != manifest);
        wait(async {
            for key in &keys {
                match self.store.delete(key).await {
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })
    }
}

fn state_name(crc32: u32) -> String {
    format!("{STATE}-{crc32:08x}")
}

/// What a store says, as if it were a file system.
struct Failure(io::Error);

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error::{AlreadyExists, NotFound, PermissionDenied, Unauthenticated};
        let kind = match &error {
            NotFound { .. } => io::ErrorKind::NotFound,
            AlreadyExists { .. } => io::ErrorKind::AlreadyExists,
            PermissionDenied { .. } | Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Other,
        };
        Self(io::Error::new(kind, error.to_string()))
    }
}

/// Waits for a store, on a thread of its own: whoever calls may be a task of another executor.
fn wait<T: Send>(asked: impl Future<Output = Result<T, Failure>> + Send) -> io::Result<T> {
    // One for all: connections that are kept open belong to it.
    static EXECUTOR: Mutex<Option<Arc<Runtime>>> = Mutex::new(None);
    let mut executor = lock(&EXECUTOR);
    let runtime = match &*executor {
        Some(runtime) => Arc::clone(runtime),
        None => {
            let runtime = Arc::new(tokio::runtime::Builder::new_current_thread().enable_all().build()?);
            Arc::clone(executor.insert(runtime))
        }
    };
    drop(executor);
    std::thread::scope(|scope| {
        let waiting = std::thread::Builder::new().name("object store".to_owned());
        let waiting = waiting.spawn_scoped(scope, || runtime.block_on(asked).map_err(|failure| failure.0))?;
        waiting.join().map_err(|_| io::Error::other("the client of the store failed"))?
    })
}

/// Changes a part of a checkpoint in the memory of this process; `None`: removes it.
#[cfg(test)]
pub(super) fn change(checkpoint: &str, part: &str, change: &dyn Fn(Vec<u8>) -> Option<Vec<u8>>) {
    let prefix = Key::from(Url::parse(checkpoint).unwrap().path());
    let objects = Objects::new(memory(), prefix.clone(), PART_BYTES);
    for key in objects.keys(&prefix).unwrap() {
        if key.filename().is_some_and(|name| name.starts_with(part)) {
            let changed = change(objects.get(&key).unwrap());
            wait(async {
                match changed {
                    Some(bytes) => objects.store.put(&key, PutPayload::from(bytes)).await.map(drop)?,
                    None => objects.store.delete(&key).await?,
                }
                Ok(())
            })
            .unwrap();
        }
    }
}
