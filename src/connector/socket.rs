//! The connector `socket`: lines of text over TCP.
//!
//! `'mode' = 'connect'` (default): reads from `hostname:port`, one split; when the other side hangs up
//! or can't be reached it tries again, less and less often. `'mode' = 'listen'`: each connection that
//! comes in is a split, which ends when its sender hangs up.
//!
//! Lines end with a newline. What a connection leaves behind its last one is malformed, unless it
//! is a whole JSON object: nobody can tell a short line from one that was cut off.

use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use arrow::datatypes::{DataType, SchemaRef};

use super::assembly::{SplitFacts, source_metadata};
use super::filesystem::physical_columns;
use super::format::options::kind_of;
use super::format::{FormatOptions, Kind};
use super::input::unreadable;
use super::options::OptionReader;
use super::stdio::{no_changelog, no_columns, no_sink};
use super::text_split::{ByteSource, Got, TextSplit};
use super::{Connector, ReadRequest, Sink, Source, SplitReader};
use crate::catalog::{Options, ReadRecovery, Table, TableFacts, TableRecovery, TableStatistics};
use crate::error::{Error, code};

const KEYS: &[&str] = &["hostname", "port", "mode", "format", "max-line-length", "reconnect-delay"];
/// Longest wait for bytes, and for a connection.
const WAIT: Duration = Duration::from_millis(50);
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// Time between two looks for new connections.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(10);
/// Longest time between two attempts to connect.
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// Lines over TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct Socket;

#[derive(Clone)]
struct Settings {
    hostname: String,
    port: u16,
    listens: bool,
    format: FormatOptions,
    max_line: usize,
    reconnect_delay: Duration,
}

impl Settings {
    fn read(options: &Options) -> Result<Self, Error> {
        let (kind, _) = kind_of(options, None)?;
        let [text, own] = kind.keys();
        let reader = OptionReader::new("connector \"socket\"", options, &[KEYS, text, own])?;
        if kind == Kind::Parquet {
            return Err(reader.invalid("format", "can't go through a socket").hint("Use 'json' or 'csv'."));
        }
        no_changelog(reader, kind)?;
        let listens = reader.choice("mode", &["connect", "listen"])? == Some(1);
        let hostname = match listens {
            true if reader.text("hostname").is_none() => "127.0.0.1",
            _ => reader.required("hostname", "'localhost'")?,
        };
        reader.required("port", "'9999'")?;
        let lowest = if listens { 0 } else { 1 };
        let port = reader.integer("port", lowest..=i64::from(u16::MAX))?.unwrap_or(0);
        let max_line = reader.integer("max-line-length", 16..=1 << 30)?.unwrap_or(1 << 20);
        let delay_us = reader.duration_us("reconnect-delay")?;
        if delay_us.is_some() && listens {
            return Err(reader
                .invalid("reconnect-delay", "has no effect on a socket that listens")
                .hint("Remove the option."));
        }
        if delay_us.is_some_and(|us| us < 1_000) {
            return Err(reader.invalid("reconnect-delay", "is shorter than 1 ms").hint("Use '100 ms'."));
        }
        Ok(Self {
            hostname: hostname.to_owned(),
            port: u16::try_from(port).unwrap_or(0),
            listens,
            format: FormatOptions::read(reader, kind, false)?,
            max_line: usize::try_from(max_line).unwrap_or(1 << 20),
            reconnect_delay: Duration::from_micros(delay_us.unwrap_or(100_000).unsigned_abs()),
        })
    }

    fn address(&self) -> String {
        match self.hostname.contains(':') {
            true => format!("[{}]:{}", self.hostname, self.port),
            false => format!("{}:{}", self.hostname, self.port),
        }
    }

    fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        let addresses: Vec<_> = (self.hostname.as_str(), self.port).to_socket_addrs()?.collect();
        if addresses.is_empty() {
            return Err(std::io::Error::new(ErrorKind::NotFound, "the name has no address"));
        }
        Ok(addresses)
    }
}

impl Connector for Socket {
    fn name(&self) -> &'static str {
        "socket"
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let format = Settings::read(&table.options)?.format;
        format.check_columns(table)?;
        let gives_changelog = format.gives_changelog();
        Ok(TableFacts {
            is_source: true,
            is_sink: false,
            bounded: false,
            takes_changelog: false,
            gives_changelog,
            upserts: false,
        })
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Err(no_columns("socket"))
    }

    fn options(&self) -> Vec<&'static str> {
        KEYS.to_vec()
    }

    fn metadata(&self) -> Vec<(&'static str, DataType)> {
        let mut keys = source_metadata();
        keys.push(("file.line", DataType::Int64));
        keys
    }

    fn statistics(&self, table: &Table) -> TableStatistics {
        let has_several_splits = Settings::read(&table.options).is_ok_and(|settings| settings.listens);
        TableStatistics { has_several_splits, ..TableStatistics::default() }
    }

    /// Nobody can give again what was read.
    fn recovery(&self, _table: &Table) -> TableRecovery {
        TableRecovery { read: ReadRecovery::Lost, ..TableRecovery::default() }
    }

    fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        let settings = Settings::read(&table.options)?;
        let columns = physical_columns(table);
        let listener = None;
        Ok(Box::new(SocketSource { settings, columns, request: request.clone(), listener }))
    }

    fn sink(&self, table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        Err(no_sink(&table.name, "socket"))
    }
}

struct SocketSource {
    settings: Settings,
    columns: Vec<String>,
    request: ReadRequest,
    listener: Option<TcpListener>,
}

impl SocketSource {
    fn split(&self, name: String, bytes: impl ByteSource + 'static) -> Result<Box<dyn SplitReader>, Error> {
        let format = &self.settings.format;
        let Some(text) = &format.text else {
            return Err(Error::internal("socket", "a format that is no text"));
        };
        let facts = SplitFacts { path: name, ..SplitFacts::default() };
        let open = Box::new(move || Ok(Box::new(bytes) as Box<dyn ByteSource>));
        let split = TextSplit::new(facts, open, text, format, &self.columns, &self.request)?;
        Ok(Box::new(split.with_longest_line(self.settings.max_line)))
    }

    fn listen(&mut self) -> std::io::Result<()> {
        let listener = TcpListener::bind(self.settings.resolve()?.as_slice())?;
        listener.set_nonblocking(true)?;
        self.listener = Some(listener);
        Ok(())
    }
}

impl Source for SocketSource {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let address = self.settings.address();
        if self.settings.listens {
            self.listen().map_err(|error| {
                Error::run(code::UNREADABLE, format!("can't listen on \"{address}\": {error}"))
                    .hint("Choose another 'port'; 0 takes one that is free.")
            })?;
            return Ok(Vec::new());
        }
        // A name that nobody knows is a typing error; a host that does not answer may come back.
        self.settings.resolve().map_err(|error| unreadable(&address, &error))?;
        let settings = self.settings.clone();
        let delay = settings.reconnect_delay;
        let caller = Caller { settings, stream: None, delay, retry_at: None, bytes: 0 };
        Ok(vec![self.split(address, caller)?])
    }

    fn discovers_every(&self) -> Option<Duration> {
        self.settings.listens.then_some(ACCEPT_INTERVAL)
    }

    fn discover(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let mut found = Vec::new();
        while let Some(listener) = &self.listener {
            // What fails here is this connection, or there are too many files open: look again later.
            let Ok((stream, peer)) = listener.accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
                found.push(self.split(peer.to_string(), Connection { stream, bytes: 0 })?);
            }
        }
        Ok(found)
    }

    fn listens_on(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|listener| listener.local_addr().ok())
    }
}

/// A connection that came in.
struct Connection {
    stream: TcpStream,
    bytes: u64,
}

impl ByteSource for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> Result<Got, Error> {
        Ok(match self.stream.read(buffer) {
            Ok(0) => Got::Hangup,
            Ok(count) => {
                self.bytes += count as u64;
                Got::Bytes(count)
            }
            Err(error) if is_wait(&error) => Got::Nothing,
            Err(_) => Got::Hangup,
        })
    }

    fn bytes_read(&self) -> u64 {
        self.bytes
    }

    fn waits(&self) -> bool {
        false
    }
}

fn is_wait(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Connects, and again when the other side is gone.
struct Caller {
    settings: Settings,
    stream: Option<TcpStream>,
    delay: Duration,
    retry_at: Option<Instant>,
    bytes: u64,
}

impl Caller {
    fn connect(&self) -> std::io::Result<TcpStream> {
        let mut failure = std::io::Error::from(ErrorKind::NotFound);
        for address in self.settings.resolve()? {
            match TcpStream::connect_timeout(&address, CONNECT_WAIT) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(WAIT))?;
                    return Ok(stream);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn hang_up(&mut self) -> Got {
        self.stream = None;
        self.retry_at = Some(Instant::now() + self.delay);
        self.delay = (self.delay * 2).min(LONGEST_DELAY.max(self.settings.reconnect_delay));
        Got::Disconnected
    }
}

impl ByteSource for Caller {
    fn read(&mut self, buffer: &mut [u8]) -> Result<Got, Error> {
        let Some(stream) = &mut self.stream else {
            let left =
                self.retry_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            if !left.is_zero() {
                std::thread::sleep(left.min(WAIT));
                return Ok(Got::Disconnected);
            }
            return Ok(match self.connect() {
                Ok(stream) => {
                    self.stream = Some(stream);
                    Got::Nothing
                }
                Err(_) => self.hang_up(),
            });
        };
        match stream.read(buffer) {
            Ok(0) => Ok(self.hang_up()),
            Ok(count) => {
                self.delay = self.settings.reconnect_delay;
                self.bytes += count as u64;
                Ok(Got::Bytes(count))
            }
            Err(error) if is_wait(&error) => Ok(Got::Nothing),
            Err(_) => Ok(self.hang_up()),
        }
    }

    fn bytes_read(&self) -> u64 {
        self.bytes
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::testing::table;

    #[test]
    fn options_are_checked() {
        let columns = [("v", DataType::Int32)];
        let check = |options: &[(&str, &str)]| {
            let mut all = vec![("format", "json")];
            all.extend_from_slice(options);
            Socket.check(&table(&columns, &all))
        };
        let facts = check(&[("hostname", "localhost"), ("port", "1")]).unwrap();
        assert!(facts.is_source && !facts.is_sink && !facts.bounded);
        assert_eq!(check(&[("hostname", "localhost")]).unwrap_err().code(), "C003");
        assert_eq!(check(&[("port", "1")]).unwrap_err().code(), "C003");
        assert_eq!(check(&[("hostname", "localhost"), ("port", "0")]).unwrap_err().code(), "C002");
        assert_eq!(check(&[("hostname", "localhost"), ("port", "65536")]).unwrap_err().code(), "C002");
        assert!(check(&[("mode", "listen"), ("port", "0")]).is_ok());
        let error = check(&[("mode", "listen"), ("port", "0"), ("reconnect-delay", "1 s")]).unwrap_err();
        assert_eq!(error.code(), "C002");
        assert_eq!(check(&[("mode", "lissten"), ("port", "0")]).unwrap_err().code(), "C002");
        assert_eq!(check(&[("mode", "listen"), ("port", "0"), ("prot", "1")]).unwrap_err().code(), "C001");
    }
}
