//! A file that grows by 100,000 rows a second is followed: nothing lost, how late, how much memory.
//!
//! `cargo bench --bench follow [-- SECONDS [ROWS_PER_SECOND]]`: by default 5 s. Prints rows, the
//! latency from the write of a row to its way out of the query, and memory after a fifth of the time and
//! at the end.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use arrow::array::Int64Array;
use tidegate::Error;
use tidegate::session::{Outcome, Session};

/// Time between two writes to the file.
const WRITE_EVERY: Duration = Duration::from_millis(5);

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let number = |place: usize| arguments.get(place).and_then(|text| text.parse::<u64>().ok());
    let (seconds, rate) = (number(0).unwrap_or(5), number(1).unwrap_or(100_000));
    let fault = |error: std::io::Error| Error::internal("bench", error);
    let folder = std::env::temp_dir().join(format!("tidegate-follow-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(fault)?;
    let result = follow(&folder, seconds * rate, rate);
    std::fs::remove_dir_all(&folder).map_err(fault)?;
    result
}

fn follow(folder: &Path, total: u64, rate: u64) -> Result<(), Error> {
    let path = folder.join("rows.json");
    let mut session = Session::new();
    let script = format!(
        "CREATE TABLE t (n BIGINT, us BIGINT, ts AS TO_TIMESTAMP_LTZ(us / 1000, 3), WATERMARK FOR ts AS ts) \
         WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'json', \
           'source.monitor-interval' = '100 ms'); \
         SELECT n, us FROM t;",
        folder.display()
    );
    let started = Instant::now();
    let mut running = None;
    for statement in session.parse("follow", &script)? {
        if let Outcome::Query(query) = session.execute(&statement)? {
            running = Some(query);
        }
    }
    let mut query = running.ok_or_else(|| Error::internal("bench", "no query"))?;
    let writer = std::thread::spawn(move || write(&path, started, total, rate));
    let (mut rows, mut latencies, mut early_mb) = (0u64, Vec::new(), 0);
    while rows < total {
        let Some(batch) = query.next_batch()? else { break };
        let now_us = started.elapsed().as_micros() as i64;
        let column = |index: usize| batch.rows.column(index).as_any().downcast_ref::<Int64Array>();
        let (Some(numbers), Some(times)) = (column(0), column(1)) else { break };
        for (number, time) in numbers.values().iter().zip(times.values()) {
            assert_eq!(*number as u64, rows, "a row is lost or came twice");
            rows += 1;
            latencies.push((now_us - time).max(0) as u32);
        }
        if early_mb == 0 && rows * 5 >= total {
            early_mb = resident_mb();
        }
    }
    let wall = started.elapsed().as_secs_f64();
    let end_mb = resident_mb();
    query.job().stop();
    writer
        .join()
        .map_err(|_| Error::internal("bench", "the writer failed"))?
        .map_err(|error| Error::internal("bench", error))?;
    latencies.sort_unstable();
    let at = |share: f64| {
        let place = ((latencies.len() as f64 * share) as usize).min(latencies.len().saturating_sub(1));
        latencies.get(place).copied().unwrap_or(0) as f64 / 1e3
    };
    println!(
        "{rows} of {total} rows in {wall:.2} s, latency p50 {:.1} ms p99 {:.1} ms max {:.1} ms, \
         {early_mb} MB after a fifth, {end_mb} MB at the end ({} MB of them the measurements)",
        at(0.5),
        at(0.99),
        at(1.0),
        latencies.len() * 4 / 1_000_000,
    );
    Ok(())
}

/// Appends rows as they are due; the time of a row is that of its write.
fn write(path: &Path, started: Instant, total: u64, rate: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let begun = Instant::now();
    let (mut written, mut text) = (0, String::new());
    while written < total {
        let due = (begun.elapsed().as_secs_f64() * rate as f64) as u64;
        text.clear();
        let us = started.elapsed().as_micros();
        for number in written..due.min(total) {
            let _ = writeln!(text, "{{\"n\":{number},\"us\":{us}}}");
        }
        written = written.max(due.min(total));
        file.write_all(text.as_bytes())?;
        std::thread::sleep(WRITE_EVERY);
    }
    Ok(())
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kb| kb.parse::<u64>().ok());
    kb.unwrap_or(0) / 1_000
}
