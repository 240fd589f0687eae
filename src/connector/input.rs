//! Bytes to read: files and pipes, plain or compressed.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use flate2::read::MultiGzDecoder;

use crate::connector::options::OptionReader;
use crate::connector::text_split::{ByteSource, Got};
use crate::error::{Error, code};

/// Files up to this size are read at once, so that many of them don't hold many descriptors.
const SMALL_FILE: u64 = 512 << 10;

/// `'compression'`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Compression {
    /// Look at the first bytes (reading) or the extension (writing).
    #[default]
    Auto,
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// Reads the option.
    pub(crate) fn read(reader: OptionReader<'_>) -> Result<Self, Error> {
        Ok(match reader.choice("compression", &["auto", "none", "gzip", "zstd"])? {
            Some(1) => Self::None,
            Some(2) => Self::Gzip,
            Some(3) => Self::Zstd,
            _ => Self::Auto,
        })
    }

    /// What a file of this name is written with.
    pub(crate) fn for_writing(self, path: &str) -> Self {
        let lower = path.to_ascii_lowercase();
        match self {
            Self::Auto if lower.ends_with(".gz") => Self::Gzip,
            Self::Auto if lower.ends_with(".zst") => Self::Zstd,
            Self::Auto => Self::None,
            chosen => chosen,
        }
    }
}

/// An open input.
pub(crate) struct Input {
    name: String,
    reader: Box<dyn Read + Send>,
    /// More bytes may come later: what is there must be given on at once.
    pub(crate) is_stream: bool,
    is_plain: bool,
    read: Arc<AtomicU64>,
}

/// Counts the bytes that were read of a file.
struct Counting<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// A regular file that gives its descriptor back between reads when many files are open.
struct Parked {
    path: PathBuf,
    offset: u64,
    held: Option<Held>,
}

/// An open file that is counted.
pub(crate) struct Held(pub(crate) File);

/// Open files of this process that are read.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// Files above this number are opened anew for each read.
const MAX_HELD: usize = 128;

/// Whether so many files are open that one that is not needed at once should be closed.
pub(crate) fn are_too_many_held() -> bool {
    HELD.load(Ordering::Relaxed) > MAX_HELD
}

impl Held {
    pub(crate) fn new(file: File) -> Self {
        HELD.fetch_add(1, Ordering::Relaxed);
        Self(file)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Parked {
    fn new(path: &Path, file: File) -> Self {
        Self { path: path.to_owned(), offset: 0, held: Some(Held::new(file)) }
    }
}

impl Read for Parked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut held = match self.held.take() {
            Some(held) => held,
            None => {
                let mut file = File::open(&self.path)?;
                file.seek(SeekFrom::Start(self.offset))?;
                Held::new(file)
            }
        };
        let count = held.0.read(buffer)?;
        self.offset += count as u64;
        if !are_too_many_held() {
            self.held = Some(held);
        }
        Ok(count)
    }
}

impl Input {
    /// Opens a file or pipe. Opening a pipe waits for its writer.
    ///
    /// # Errors
    /// `F001` with the path and the system's reason.
    pub(crate) fn open(path: &Path, name: &str, compression: Compression) -> Result<Self, Error> {
        let failed = |error: io::Error| unreadable(name, &error);
        let mut file = File::open(path).map_err(failed)?;
        let facts = file.metadata().map_err(failed)?;
        if facts.is_dir() {
            return Err(Error::run(code::UNREADABLE, format!("can't read \"{name}\": it is a folder")));
        }
        if !facts.is_file() {
            return Self::new(name, file, true, compression);
        }
        if facts.len() <= SMALL_FILE {
            let mut content = Vec::with_capacity(facts.len() as usize);
            file.read_to_end(&mut content).map_err(failed)?;
            return Self::new(name, Cursor::new(content), false, compression);
        }
        Self::new(name, Parked::new(path, file), false, compression)
    }

    /// Reads from what is open already.
    ///
    /// # Errors
    /// `F001` if its first bytes can't be read.
    pub(crate) fn new(
        name: &str,
        source: impl Read + Send + 'static,
        is_stream: bool,
        compression: Compression,
    ) -> Result<Self, Error> {
        let read = Arc::new(AtomicU64::new(0));
        let mut source = Counting { inner: source, read: Arc::clone(&read) };
        let (compression, head) = match compression {
            Compression::Auto => look(&mut source).map_err(|error| unreadable(name, &error))?,
            chosen => (chosen, Vec::new()),
        };
        let source = Cursor::new(head).chain(source);
        let reader: Box<dyn Read + Send> = match compression {
            Compression::Gzip => Box::new(EmptyOr::new(source, MultiGzDecoder::new)),
            Compression::Zstd => {
                Box::new(zstd::stream::read::Decoder::new(source).map_err(|error| unreadable(name, &error))?)
            }
            Compression::None | Compression::Auto => Box::new(source),
        };
        let is_plain = matches!(compression, Compression::None | Compression::Auto);
        Ok(Self { name: name.to_owned(), reader, is_stream, is_plain, read })
    }

    /// Reads some bytes; 0 at the end.
    ///
    /// # Errors
    /// `F001` with the path and the reason; a cut-off compressed file is one.
    pub(crate) fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        loop {
            match self.reader.read(buffer) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(&self.name, &error)),
            }
        }
    }
}

impl ByteSource for Input {
    fn read(&mut self, buffer: &mut [u8]) -> Result<Got, Error> {
        Ok(match self.read_some(buffer)? {
            0 => Got::End,
            count => Got::Bytes(count),
        })
    }

    fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    fn waits(&self) -> bool {
        self.is_stream
    }

    fn is_plain_file(&self) -> bool {
        self.is_plain && !self.is_stream
    }
}

/// A decoder that takes an input without any byte for one without any row.
enum EmptyOr<R, D> {
    Unopened(Option<R>, fn(io::Chain<Cursor<Vec<u8>>, R>) -> D),
    Opened(D),
    Empty,
}

impl<R: Read, D: Read> EmptyOr<R, D> {
    fn new(source: R, open: fn(io::Chain<Cursor<Vec<u8>>, R>) -> D) -> Self {
        Self::Unopened(Some(source), open)
    }
}

impl<R: Read, D: Read> Read for EmptyOr<R, D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Self::Unopened(source, open) = self {
            let mut first = [0];
            let source_ref = source.as_mut().ok_or_else(|| io::Error::other("the input is gone"))?;
            if source_ref.read(&mut first)? == 0 {
                *self = Self::Empty;
            } else if let Some(source) = source.take() {
                let open = *open;
                *self = Self::Opened(open(Cursor::new(first.to_vec()).chain(source)));
            }
        }
        match self {
            Self::Opened(decoder) => decoder.read(buffer),
            _ => Ok(0),
        }
    }
}

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The compression that the first bytes tell, and those bytes. Reads no further than it must.
pub(crate) fn look(source: &mut impl Read) -> io::Result<(Compression, Vec<u8>)> {
    let mut head = Vec::with_capacity(4);
    while GZIP.starts_with(&head) || ZSTD.starts_with(&head) {
        if head == GZIP {
            return Ok((Compression::Gzip, head));
        }
        if head == ZSTD {
            return Ok((Compression::Zstd, head));
        }
        let mut byte = [0];
        match source.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => head.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((Compression::None, head))
}

/// `F001` with the path and the system's reason.
pub(crate) fn unreadable(name: &str, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Error::run(
            code::UNREADABLE,
            format!("can't read \"{name}\": it is cut off, the compressed data ends in the middle"),
        )
        .hint("Copy or download the file again.");
    }
    Error::run(code::UNREADABLE, format!("can't read \"{name}\": {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_large_files_hold_few_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        let content: Vec<u8> = (0..SMALL_FILE as usize + 10_000).map(|index| (index % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let open = || Input::open(&path, "large", Compression::None).unwrap();
        let mut inputs: Vec<_> = (0..MAX_HELD + 50).map(|_| (open(), Vec::new())).collect();
        let mut buffer = vec![0; 200_000];
        for _ in 0..4 {
            for (input, read) in &mut inputs {
                let count = input.read_some(&mut buffer).unwrap();
                read.extend_from_slice(&buffer[..count]);
            }
            assert!(HELD.load(Ordering::Relaxed) <= MAX_HELD + 20);
        }
        for (input, read) in &inputs {
            assert_eq!(input.bytes_read(), content.len() as u64);
            assert!(*read == content);
        }
    }
}
