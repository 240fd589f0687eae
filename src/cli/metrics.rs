//! `--metrics` and `--stats`: what is measured, for other programs.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::error::{Error, code};
use crate::session::{Jobs, OPEN_METRICS};

/// How long a client may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request that is read.
const MOST_BYTES: usize = 8 << 10;

/// Serves `GET /metrics` on this address until the process ends. Gives the address. A port alone, or
/// one with a colon before it, is one of this machine that others don't reach.
///
/// # Errors
/// `U001` for what is no address, `F001` if it can't be listened on.
pub(super) fn serve(address: &str, jobs: Jobs) -> Result<SocketAddr, Error> {
    let port = address.strip_prefix(':').unwrap_or(address).parse::<u16>().ok();
    let address = match port {
        Some(port) => SocketAddr::from(([127, 0, 0, 1], port)),
        None => address.parse().map_err(|_| {
            Error::usage(code::INVALID_SETTING, format!("--metrics: \"{address}\" is no address"))
                .hint("Use an address and a port, such as 127.0.0.1:9464.")
        })?,
    };
    let refused = |error: io::Error| {
        Error::run(code::UNREADABLE, format!("can't listen on {address}: {error}"))
            .hint("Use another port, or 0 for one that is free.")
    };
    let listener = TcpListener::bind(address).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let serving = thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        // A client that goes away is its own business.
        listener.incoming().flatten().for_each(|client| drop(answer(client, &jobs)));
    });
    serving.map(|_| address).map_err(|error| Error::internal("command line", error))
}

fn answer(mut client: TcpStream, jobs: &Jobs) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut part = [0; 1_024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MOST_BYTES {
        match client.read(&mut part)? {
            0 => break,
            read => request.extend_from_slice(&part[..read]),
        }
    }
    let is_wanted = request.starts_with(b"GET /metrics ") || request.starts_with(b"GET /metrics?");
    let (status, kind, body) = match is_wanted {
        true => ("200 OK", OPEN_METRICS, jobs.to_open_metrics()),
        false => ("404 Not Found", "text/plain; charset=utf-8", "the metrics are at /metrics\n".to_owned()),
    };
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    client.flush()
}

/// Writes what was measured of all jobs to a file.
///
/// # Errors
/// `F003` if it can't be written.
pub(super) fn write_stats(path: &Path, jobs: &Jobs) -> Result<(), Error> {
    std::fs::write(path, format!("{:#}\n", jobs.to_json()))
        .map_err(|error| Error::run(code::UNWRITABLE, format!("can't write {}: {error}", path.display())))
}
