//! How long rows take from the time at which they are due to their way out, at a steady rate.
//!
//! `cargo bench --bench latency [-- SECONDS]`: 10 s each of a filter, a window of a second and an interval
//! join, at 10,000 and 100,000 rows a second. Each runs in a process of its own.
//!
//! The loop is open: a row has the time at which it is due, whether or not the engine keeps up, and its latency
//! counts from there. Rows are pushed each millisecond, so up to 1 ms of it is the benchmark's own. What waits for
//! event time is not counted: a window's latency begins when the first row behind its end is due, a
//! pair's when its later row is due, whose time is a watermark, too.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

mod process;

use std::fmt::Display;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use process::{cpu_seconds, peak_mb};
use tidegate::arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use tidegate::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use tidegate::connector::{StreamInput, StreamTable};
use tidegate::{Error, Session};

const PUSH_EVERY: Duration = Duration::from_millis(1);
const KEYS: u64 = 1_000;
/// Name, inputs, SQL whose last column is the time from which the latency counts.
const QUERIES: [(&str, usize, &str); 3] = [
    ("filter", 1, "SELECT n, ts FROM a WHERE MOD(n, 10) < 9"),
    (
        "tumble 1 s",
        1,
        "SELECT k, COUNT(*) AS c, SUM(n) AS s, window_end
         FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY k, window_start, window_end",
    ),
    (
        "interval join",
        2,
        "SELECT a.n, b.n AS other, b.ts FROM a JOIN b
         ON a.n = b.n AND a.ts BETWEEN b.ts - INTERVAL '1' SECOND AND b.ts",
    ),
];

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [seconds, query, rate] = arguments.as_slice() {
        return measure(number(seconds)?, number(query)? as usize, number(rate)?);
    }
    let seconds = arguments.first().map_or("10", String::as_str);
    number(seconds)?;
    println!("latency in ms from the time at which a row is due, {seconds} s each");
    println!(
        "{:<14} {:>8} {:>9} {:>8} {:>8} {:>8} {:>8} {:>6} {:>8}",
        "query", "rows/s", "rows out", "p50", "p99", "p999", "max", "cores", "peak MB"
    );
    for (query, (name, ..)) in QUERIES.iter().enumerate() {
        for rate in ["10000", "100000"] {
            let program = std::env::current_exe().map_err(failed)?;
            let status = Command::new(program).args([seconds, &query.to_string(), rate]).status();
            if !status.is_ok_and(|status| status.success()) {
                return Err(failed(format!("{name} failed")));
            }
        }
    }
    Ok(())
}

fn number(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| failed(format!("\"{text}\" is no number")))
}

fn failed(why: impl Display) -> Error {
    Error::internal("bench", why)
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, None), false),
        Field::new("n", DataType::Int64, false),
        Field::new("k", DataType::Int64, false),
    ]))
}

/// Pushes `rate` rows a second to the inputs together, each as it is due, and ends them.
fn feed(inputs: &[StreamInput], started: Instant, seconds: u64, rate: u64) -> Result<(), Error> {
    let each = rate / inputs.len() as u64;
    let (mut pushed, total) = (0, seconds * each);
    while pushed < total {
        let due = (started.elapsed().as_micros() as u64 * each / 1_000_000 + 1).min(total);
        if pushed < due {
            let numbers = pushed..due;
            let times = numbers.clone().map(|number| (number * 1_000_000 / each) as i64);
            let columns: Vec<ArrayRef> = vec![
                Arc::new(TimestampMicrosecondArray::from_iter_values(times)),
                Arc::new(Int64Array::from_iter_values(numbers.clone().map(|number| number as i64))),
                Arc::new(Int64Array::from_iter_values(numbers.map(|number| (number % KEYS) as i64))),
            ];
            let rows = RecordBatch::try_new(schema(), columns).map_err(failed)?;
            for input in inputs {
                input.push(&rows)?;
            }
            pushed = due;
        }
        thread::sleep(PUSH_EVERY);
    }
    inputs.iter().for_each(StreamInput::end);
    Ok(())
}

/// One query at one rate, in this process.
fn measure(seconds: u64, query: usize, rate: u64) -> Result<(), Error> {
    let (name, inputs, sql) = QUERIES[query];
    let mut session = Session::new();
    let tables = ["a", "b"].into_iter().take(inputs);
    let tables =
        tables.map(|table| session.register_stream(&StreamTable::new(table, schema()).watermark("ts", "ts")));
    let tables = tables.collect::<Result<Vec<_>, Error>>()?;
    let mut running = session.query(sql)?;
    let (began, before) = (Instant::now(), cpu_seconds());
    let feeder = thread::spawn(move || feed(&tables, began, seconds, rate));
    let mut latencies = Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3).map_err(failed)?;
    // Results of the end of the input did not wait for a row.
    let last_us = ((seconds * 1_000_000).saturating_sub(1_000_000)) as i64;
    let mut rows = 0;
    while let Some(batch) = running.next_batch()? {
        let now_us = began.elapsed().as_micros() as i64;
        rows += batch.num_rows();
        let times = batch.rows.column(batch.rows.num_columns() - 1);
        let times = times.as_any().downcast_ref::<TimestampMicrosecondArray>();
        let times = times.ok_or_else(|| failed("the last column is no time"))?;
        for time in times.values().iter().filter(|time| **time <= last_us) {
            latencies.saturating_record((now_us - time).max(0) as u64);
        }
    }
    let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - before);
    let summary = running.finish()?;
    assert!(summary.reconciles() && summary.late == 0, "rows were lost");
    feeder.join().map_err(|_| failed("the feeder failed"))??;
    let at = |quantile: f64| latencies.value_at_quantile(quantile) as f64 / 1e3;
    println!(
        "{name:<14} {rate:>8} {rows:>9} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>6.2} {:>8}",
        at(0.5),
        at(0.99),
        at(0.999),
        latencies.max() as f64 / 1e3,
        cpu / wall,
        peak_mb(),
    );
    Ok(())
}
