//! What checkpoints cost: CPU seconds of whole processes that run the query of `bids`, without checkpoints and with one
//! each so many milliseconds.
//!
//! `cargo bench --bench checkpoints [-- ROWS INTERVAL_MS ROUNDS PARALLELISM]`: runs in turn, each in a process of its
//! own; by default 20,000,000 rows, 10,000 ms, 7 rounds, parallelism 1. The last line has the medians. The kernel counts
//! CPU time in steps of 10 ms.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

mod generator;
mod process;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use generator::{Bids, TUMBLE, script};
use process::cpu_seconds;
use tidegate::Error;
use tidegate::connector::Connectors;
use tidegate::session::{Outcome, Session};

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let number = |place: usize, default: u64| -> u64 {
        arguments.get(place).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let numbers = [number(0, 20_000_000), number(1, 10_000), number(2, 7).max(1), number(3, 1)];
    let [rows, interval_ms, rounds, parallelism] = numbers;
    if let Some(folder) = arguments.get(4) {
        let folder = Some(folder.as_str()).filter(|folder| *folder != "off");
        return measure(rows, interval_ms, parallelism, folder);
    }
    let of_process = |folder: &str| -> Result<Measured, Error> {
        let program = std::env::current_exe().map_err(|error| Error::internal("bench", error))?;
        let output =
            Command::new(program).args(numbers.map(|number| number.to_string())).arg(folder).output();
        let output = output.map_err(|error| Error::internal("bench", error))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut parts = text.split_whitespace();
        let mut part = || parts.next().and_then(|part| part.parse().ok());
        let measured = part().zip(part()).zip(part());
        let measured = measured.map(|((cpu_s, taken), pause_us)| Measured { cpu_s, taken, pause_us });
        measured.ok_or_else(|| Error::internal("bench", String::from_utf8_lossy(&output.stderr)))
    };
    let folder = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
    let with = |round: u64| -> Result<Measured, Error> {
        let measured = of_process(&folder.join(round.to_string()).to_string_lossy());
        // What can't be removed is in the system's folder for such things.
        let _ = std::fs::remove_dir_all(&folder);
        measured
    };
    // The first processes read the program from the disk.
    of_process("off")?;
    with(0)?;
    let (mut off_s, mut on_s, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        // Each is the first one in turn, so that what warms up favours neither.
        let (off, on) = match round % 2 {
            0 => {
                let on = with(round)?;
                (of_process("off")?, on)
            }
            _ => {
                let off = of_process("off")?;
                (off, with(round)?)
            }
        };
        let share = (on.cpu_s / off.cpu_s - 1.0) * 100.0;
        println!(
            "{round}: {:.2} s CPU without, {:.2} s with {} checkpoints ({share:+.2} %), longest pause {:.1} ms",
            off.cpu_s,
            on.cpu_s,
            on.taken,
            on.pause_us / 1e3
        );
        off_s.push(off.cpu_s);
        on_s.push(on.cpu_s);
        shares.push(share);
    }
    println!(
        "a checkpoint each {interval_ms} ms costs {:+.2} % (medians of {rounds} rounds: {:.2} s CPU without, {:.2} s with)",
        median(shares),
        median(off_s),
        median(on_s)
    );
    Ok(())
}

/// What a process has told.
struct Measured {
    cpu_s: f64,
    /// Checkpoints that it took.
    taken: f64,
    /// The longest pause.
    pause_us: f64,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// Runs the query and prints the CPU seconds of this process, how many checkpoints there were and their longest pause.
fn measure(rows: u64, interval_ms: u64, parallelism: u64, folder: Option<&str>) -> Result<(), Error> {
    let mut connectors = Connectors::empty();
    connectors.add(Arc::new(Bids { rows, auctions: 1_000 }));
    let mut session = Session::with_connectors(connectors);
    session.set("execution.parallelism", &parallelism.to_string())?;
    if let Some(folder) = folder.map(PathBuf::from) {
        session.set("execution.checkpoint.dir", &folder.to_string_lossy())?;
        session.set("execution.checkpoint.interval", &format!("{interval_ms} ms"))?;
    }
    let (mut taken, mut pause_us) = (0, 0);
    for statement in session.parse("bids", &script(TUMBLE))? {
        if let Outcome::Query(mut query) = session.execute(&statement)? {
            let job = query.job().clone();
            while query.next_batch()?.is_some() {}
            assert_eq!(query.finish()?.rows_in, rows, "rows were lost");
            if let Some(status) = job.checkpoints() {
                (taken, pause_us) = (status.completed, status.longest_pause_us);
            }
        }
    }
    println!("{:.2} {taken} {pause_us}", cpu_seconds());
    Ok(())
}
