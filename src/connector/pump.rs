//! Reads a pipe on a thread of its own, so that the one who wants its rows need not wait for them.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use super::input::Input;
use super::text_split::{ByteSource, Got, Open};
use crate::error::Error;

/// Bytes that are read at once, and how many such chunks are read ahead.
const CHUNK: usize = 64 << 10;
const AHEAD: usize = 4;
/// Longest wait for bytes.
const WAIT: Duration = Duration::from_millis(50);

/// The bytes of a pipe, as its thread hands them over.
struct Pump {
    chunks: Receiver<Result<Vec<u8>, Error>>,
    chunk: Vec<u8>,
    taken: usize,
    bytes: u64,
}

/// Opens `open` on a thread of its own when the split is first read: the opening of a named pipe
/// waits for its writer, too. The thread ends with the pipe, or with the first bytes that nobody
/// wants any more.
pub(crate) fn pumped(name: &str, open: impl FnOnce() -> Result<Input, Error> + Send + 'static) -> Open {
    let name = format!("pump {name}");
    Box::new(move || {
        let (sender, chunks) = sync_channel(AHEAD);
        std::thread::Builder::new()
            .name(name)
            .spawn(move || pump(open, &sender))
            .map_err(|error| Error::internal("source", error))?;
        Ok(Box::new(Pump { chunks, chunk: Vec::new(), taken: 0, bytes: 0 }) as Box<dyn ByteSource>)
    })
}

fn pump(open: impl FnOnce() -> Result<Input, Error>, sender: &SyncSender<Result<Vec<u8>, Error>>) {
    let mut input = match open() {
        Ok(input) => input,
        Err(error) => {
            // Whoever has gone does not want to know.
            let _ = sender.send(Err(error));
            return;
        }
    };
    let mut buffer = vec![0; CHUNK];
    loop {
        let chunk = match input.read_some(&mut buffer) {
            Ok(0) => return,
            Ok(count) => Ok(buffer[..count].to_vec()),
            Err(error) => Err(error),
        };
        let failed = chunk.is_err();
        if sender.send(chunk).is_err() || failed {
            return;
        }
    }
}

impl ByteSource for Pump {
    fn read(&mut self, buffer: &mut [u8]) -> Result<Got, Error> {
        if self.taken == self.chunk.len() {
            match self.chunks.recv_timeout(WAIT) {
                Ok(chunk) => self.chunk = chunk?,
                Err(RecvTimeoutError::Timeout) => return Ok(Got::Nothing),
                Err(RecvTimeoutError::Disconnected) => return Ok(Got::End),
            }
            self.taken = 0;
        }
        let count = buffer.len().min(self.chunk.len() - self.taken);
        buffer[..count].copy_from_slice(&self.chunk[self.taken..self.taken + count]);
        self.taken += count;
        self.bytes += count as u64;
        Ok(Got::Bytes(count))
    }

    fn bytes_read(&self) -> u64 {
        self.bytes
    }

    fn waits(&self) -> bool {
        true
    }
}
