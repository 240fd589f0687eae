//! Whether the cost of an event and the memory stay what they are as the work grows.
//!
//! `cargo bench --bench scale [-- MILLIONS]`: windows of ten seconds and hops of a minute over 1, 10 and, without
//! MILLIONS, 100 million events; 100, 10,000 and 10 million keys in a window of an hour; parallelism 1, 8 and 64. Each runs
//! in a process of its own.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

mod generator;
mod process;

use std::fmt::Display;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use generator::{Bids, TUMBLE, script};
use process::{cpu_seconds, peak_mb};
use tidegate::connector::Connectors;
use tidegate::session::{Outcome, Session};
use tidegate::{Error, arrow::array::AsArray, arrow::datatypes::Int64Type};

const HOP: &str = "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE)";
const HOUR: &str = "TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' HOUR)";
/// Windows that an event is in.
const WINDOWS: [(&str, i64); 3] = [(TUMBLE, 1), (HOP, 6), (HOUR, 1)];

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [window, millions, auctions, parallelism] = arguments.as_slice() {
        return measure(number(window)? as usize, number(millions)?, number(auctions)?, parallelism);
    }
    let most = arguments.first().map_or(Ok(100), |most| number(most))?;
    println!(
        "{:<12} {:>8} {:>10} {:>11} {:>11} {:>8} {:>8} {:>12} {:>8}",
        "window", "M events", "keys", "parallelism", "rows out", "wall s", "CPU s", "ns CPU/event", "peak MB"
    );
    for window in [0, 1] {
        for millions in [1, 10, 100].into_iter().filter(|millions| *millions <= most) {
            run(window, millions, 1_000, 1)?;
        }
    }
    for keys in [100, 10_000, 10_000_000] {
        run(2, most.min(20), keys, 1)?;
    }
    for parallelism in [1, 8, 64] {
        run(0, most.min(10), 1_000, parallelism)?;
    }
    Ok(())
}

fn number(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| failed(format!("\"{text}\" is no number")))
}

fn failed(why: impl Display) -> Error {
    Error::internal("bench", why)
}

fn run(window: usize, millions: u64, keys: u64, parallelism: u64) -> Result<(), Error> {
    let program = std::env::current_exe().map_err(failed)?;
    let arguments = [window as u64, millions, keys, parallelism].map(|argument| argument.to_string());
    let status = Command::new(program).args(arguments).status();
    if status.is_ok_and(|status| status.success()) {
        Ok(())
    } else {
        Err(failed("the measured process failed"))
    }
}

/// One query in this process.
fn measure(window: usize, millions: u64, auctions: u64, parallelism: &str) -> Result<(), Error> {
    let rows = millions * 1_000_000;
    let (function, windows) = WINDOWS[window];
    let mut connectors = Connectors::empty();
    connectors.add(Arc::new(Bids { rows, auctions }));
    let mut session = Session::with_connectors(connectors);
    session.set("execution.parallelism", parallelism)?;
    let started = Instant::now();
    let (mut results, mut counted) = (0, 0);
    for statement in session.parse("bids", &script(function))? {
        if let Outcome::Query(mut query) = session.execute(&statement)? {
            while let Some(batch) = query.next_batch()? {
                results += batch.num_rows();
                counted += batch.rows.column(2).as_primitive::<Int64Type>().values().iter().sum::<i64>();
            }
            let summary = query.finish()?;
            assert!(summary.reconciles() && summary.late == 0, "rows were lost");
        }
    }
    assert_eq!(counted, rows as i64 * windows, "the counts do not add up");
    let (wall, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds());
    println!(
        "{:<12} {millions:>8} {auctions:>10} {parallelism:>11} {results:>11} {wall:>8.2} {cpu:>8.2} {:>12.0} {:>8}",
        ["tumble 10 s", "hop 1 min", "tumble 1 h"][window],
        cpu * 1e9 / rows as f64,
        peak_mb(),
    );
    Ok(())
}
