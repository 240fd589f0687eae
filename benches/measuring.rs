//! What it costs that everything is measured: CPU seconds of whole processes that run the query of `bids`,
//! with and without counters, times, latency and disorder.
//!
//! `cargo bench --bench measuring [-- ROWS ROUNDS PAIRS PARALLELISM]`: runs in turn, each in a process of its
//! own that runs the query ROUNDS times; by default 10,000,000 rows, 3 rounds, 9 pairs, parallelism 2. The
//! last line has the median of the pairs. The kernel counts CPU time in steps of 10 ms.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

mod generator;
mod process;

use std::process::Command;
use std::sync::Arc;

use generator::{Bids, TUMBLE, script};
use process::cpu_seconds;
use tidegate::Error;
use tidegate::catalog::{Catalog, Relation};
use tidegate::connector::Connectors;
use tidegate::plan::Planner;
use tidegate::runtime::{Job, JobOptions};
use tidegate::sql::{self, Statement};

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let number = |place: usize, default: u64| -> u64 {
        arguments.get(place).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (rows, rounds) = (number(0, 10_000_000), number(1, 3));
    let (pairs, parallelism) = (number(2, 9).max(1), number(3, 2));
    if let Some(measures) = arguments.get(4) {
        return measure(rows, rounds, parallelism as usize, measures == "on");
    }
    let of_process = |measures: &str| -> Result<f64, Error> {
        let numbers = [rows, rounds, pairs, parallelism].map(|number| number.to_string());
        let program = std::env::current_exe().map_err(|error| Error::internal("bench", error))?;
        let output = Command::new(program).args(numbers).arg(measures).output();
        let output = output.map_err(|error| Error::internal("bench", error))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        text.parse().map_err(|_| Error::internal("bench", String::from_utf8_lossy(&output.stderr)))
    };
    // The first processes read the program from the disk.
    of_process("on")?;
    of_process("off")?;
    let (mut shares, mut sums) = (Vec::new(), [0.0, 0.0]);
    for pair in 1..=pairs {
        // Each is the first one in turn, so that what warms up favours neither.
        let (on, off) = match pair % 2 {
            0 => {
                let on = of_process("on")?;
                (on, of_process("off")?)
            }
            _ => {
                let off = of_process("off")?;
                (of_process("on")?, off)
            }
        };
        shares.push((on / off - 1.0) * 100.0);
        sums = [sums[0] + on, sums[1] + off];
        println!("{pair}: {on:.2} s CPU with, {off:.2} s without, {:+.2} %", (on / off - 1.0) * 100.0);
    }
    shares.sort_by(f64::total_cmp);
    let middle = (shares[(shares.len() - 1) / 2] + shares[shares.len() / 2]) / 2.0;
    println!(
        "measuring costs {middle:+.2} % (median of {pairs} pairs, {:+.2} % of their sums)",
        (sums[0] / sums[1] - 1.0) * 100.0
    );
    Ok(())
}

/// Runs the query and prints the CPU seconds of this process.
fn measure(rows: u64, rounds: u64, parallelism: usize, measures: bool) -> Result<(), Error> {
    let mut connectors = Connectors::empty();
    connectors.add(Arc::new(Bids { rows, auctions: 1_000 }));
    let planner = Planner::new(Arc::new(connectors.clone()));
    let mut catalog = Catalog::new();
    for statement in sql::parse(&script(TUMBLE))? {
        match &statement.statement {
            Statement::CreateTable(create) => {
                let table = planner.create_table(create, &catalog)?;
                catalog.add(Relation::Table(Arc::new(table)), false)?;
            }
            Statement::Query(query) => {
                let plan = planner.plan_query(query, &catalog)?;
                for _ in 0..rounds {
                    let options = JobOptions { parallelism, measures, ..JobOptions::default() };
                    let mut job = Job::start(&plan, &connectors, &options)?;
                    while job.next_batch()?.is_some() {}
                    assert_eq!(job.finish()?.rows_in, rows, "rows were lost");
                }
            }
            _ => return Err(Error::internal("bench", "a statement that is not expected")),
        }
    }
    println!("{:.2}", cpu_seconds());
    Ok(())
}
