//! Ten million generated bids, TUMBLE 10 s, count/sum/avg by auction: the engine without I/O.
//!
//! `cargo bench --bench bids [-- ROWS]` runs the query at parallelism 1 and 2, each in a process of
//! its own, and prints rows per second, CPU seconds and peak memory.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

mod generator;
mod process;

use std::sync::Arc;
use std::time::Instant;

use arrow::array::Int64Array;
use generator::{Bids, TUMBLE, script};
use process::{cpu_seconds, peak_mb};
use tidegate::Error;
use tidegate::connector::Connectors;
use tidegate::session::{Outcome, Session};

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let rows: u64 = arguments.first().and_then(|rows| rows.parse().ok()).unwrap_or(10_000_000);
    if let Some(parallelism) = arguments.get(1) {
        return measure(rows, parallelism);
    }
    for parallelism in ["1", "2"] {
        let program = std::env::current_exe().map_err(|e| Error::internal("bench", e))?;
        let status = std::process::Command::new(program).arg(rows.to_string()).arg(parallelism).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(Error::internal("bench", "the measured process failed"));
        }
    }
    Ok(())
}

fn measure(rows: u64, parallelism: &str) -> Result<(), Error> {
    let mut connectors = Connectors::empty();
    connectors.add(Arc::new(Bids { rows, auctions: 1_000 }));
    let mut session = Session::with_connectors(connectors);
    session.set("execution.parallelism", parallelism)?;
    let started = Instant::now();
    let (mut results, mut counted, mut first) = (0, 0i64, None);
    for statement in session.parse("bids", &script(TUMBLE))? {
        if let Outcome::Query(mut query) = session.execute(&statement)? {
            while let Some(batch) = query.next_batch()? {
                first.get_or_insert_with(|| started.elapsed());
                results += batch.num_rows();
                let counts = batch.rows.column(2).as_any().downcast_ref::<Int64Array>();
                counted += counts.map_or(0, |counts| counts.iter().flatten().sum());
            }
            let summary = query.finish()?;
            assert!(summary.reconciles() && summary.late == 0, "rows were lost");
        }
    }
    assert_eq!(counted, i64::try_from(rows).unwrap_or(i64::MAX), "the counts do not add up");
    let wall = started.elapsed().as_secs_f64();
    let cpu = cpu_seconds();
    println!(
        "-p {parallelism}: {rows} rows, {results} results, {wall:.2} s wall, {cpu:.2} s CPU, {:.2} M rows/s, \
         {:.2} M rows per CPU second, {} MB peak, first row after {:.0} ms",
        rows as f64 / wall / 1e6,
        rows as f64 / cpu / 1e6,
        peak_mb(),
        first.unwrap_or_default().as_secs_f64() * 1e3,
    );
    Ok(())
}
