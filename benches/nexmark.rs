//! The queries of Nexmark over generated events, without I/O.
//!
//! `cargo bench --bench nexmark [-- EVENTS [QUERIES [PARALLELISM]]]`: 2,000,000 events, all queries and
//! parallelism 1 without arguments; QUERIES as in `q0,q5,q7`. Each query runs in a process of its own as over a
//! stream that goes on, where results that change are changelogs; one that is refused there runs over tables that
//! end. Prints events per second and per CPU second, and peak memory. Making the events is part of the work:
//! `bid` alone is the table of bids, read to its end with all columns and without a query behind it.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

mod process;

use std::fmt::Display;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use process::{cpu_seconds, peak_mb};
use tidegate::Error;
use tidegate::session::{Outcome, QueryHandle, Session};

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [events, query, parallelism, _] = arguments.as_slice() {
        return measure(number(events)?, query, parallelism);
    }
    let argument =
        |place: usize, default: &str| arguments.get(place).map_or(default, String::as_str).to_owned();
    let all = (0..=22).map(|query| format!("q{query}")).collect::<Vec<_>>().join(",");
    let events = argument(0, "2000000").replace('_', "");
    let parallelism = argument(2, "1");
    number(&events)?;
    println!("{events} events, parallelism {parallelism}");
    println!(
        "{:<5} {:<7} {:>10} {:>8} {:>8} {:>9} {:>13} {:>8}",
        "query", "input", "rows out", "wall s", "CPU s", "k ev/s", "k ev/CPU s", "peak MB"
    );
    for query in argument(1, &format!("bid,{all}")).split(',') {
        let program = std::env::current_exe().map_err(failed)?;
        let status = Command::new(program).args([&events, query, &parallelism, "measure"]).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(failed(format!("{query} failed")));
        }
    }
    Ok(())
}

fn number(text: &str) -> Result<u64, Error> {
    text.replace('_', "").parse().map_err(|_| failed(format!("\"{text}\" is no number of events")))
}

fn failed(why: impl Display) -> Error {
    Error::internal("bench", why)
}

/// Runs one query in this process.
fn measure(events: u64, query: &str, parallelism: &str) -> Result<(), Error> {
    let mut session = Session::new();
    session.set("execution.parallelism", parallelism)?;
    let started = Instant::now();
    let (running, input) = match start(&mut session, events, query, false) {
        Ok(running) => (running, "stream"),
        Err(_) => {
            session = Session::new();
            session.set("execution.parallelism", parallelism)?;
            (start(&mut session, events, query, true)?, "tables")
        }
    };
    let (mut running, mut rows) = (running, 0);
    while let Some(batch) = running.next_batch()? {
        rows += batch.num_rows();
    }
    let summary = running.finish()?;
    assert!(summary.reconciles() && summary.late == 0, "rows were lost");
    let (wall, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds());
    println!(
        "{query:<5} {input:<7} {rows:>10} {wall:>8.2} {cpu:>8.2} {:>9.0} {:>13.0} {:>8}",
        events as f64 / wall / 1e3,
        events as f64 / cpu / 1e3,
        peak_mb(),
    );
    Ok(())
}

/// Creates the tables and starts the query.
fn start(session: &mut Session, events: u64, query: &str, bounded: bool) -> Result<QueryHandle, Error> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("queries/nexmark");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).map_err(failed);
    let tables = read("tables.sql")?
        .replace("'events.num' = '100000'", &format!("'events.num' = '{events}', 'bounded' = '{bounded}'"))
        .replace("'first-event.rate' = '1000'", "'first-event.rate' = '10000'");
    let text = match query {
        "bid" => "SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM bid;".to_owned(),
        _ => read(&format!("{query}.sql"))?,
    };
    for (name, text) in [("tables", tables), (query, text)] {
        for statement in session.parse(name, &text)? {
            if let Outcome::Query(running) = session.execute(&statement)? {
                return Ok(*running);
            }
        }
    }
    Err(failed(format!("{query} is no query")))
}
