//! Ten million generated bids, TUMBLE 10 s, count/sum/avg by auction: the engine without I/O.
//!
//! `cargo bench --bench bids [-- ROWS]` runs the query at parallelism 1 and 2, each in a process of
//! its own, and prints rows per second, CPU seconds and peak memory.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::SchemaRef;
use tidegate::Error;
use tidegate::catalog::{Options, Table, TableFacts};
use tidegate::connector::{Connector, Connectors, Lines, ReadRequest, Sink, Source, SplitBatch, SplitReader};
use tidegate::error::code;
use tidegate::session::{Outcome, Session};

const SCRIPT: &str = "
CREATE TABLE bids (auction BIGINT, price BIGINT, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'bids');
SELECT window_start, auction, COUNT(*) AS bids, SUM(price) AS total, AVG(price) AS mean
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, auction;";

/// 10,000 bids per second of event time, 1,000 auctions at a time, up to half a second of disorder.
const BIDS_PER_MS: u64 = 10;
const AUCTIONS: u64 = 1_000;
const DISORDER_MS: u64 = 500;

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
    connectors.add(Arc::new(Bids { rows }));
    let mut session = Session::with_connectors(connectors);
    session.set("execution.parallelism", parallelism)?;
    let started = Instant::now();
    let (mut results, mut counted, mut first) = (0, 0i64, None);
    for statement in session.parse("bids", SCRIPT)? {
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

/// User and system time of this process, from the kernel's clock ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).and_then(|f| f.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (ticks(11) + ticks(12)) / 100.0
}

fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kb = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kb| kb.parse::<u64>().ok());
    kb.unwrap_or(0) / 1_000
}

struct Bids {
    rows: u64,
}

impl Connector for Bids {
    fn name(&self) -> &'static str {
        "bids"
    }

    fn check(&self, _table: &Table) -> Result<TableFacts, Error> {
        Ok(TableFacts { is_source: true, is_sink: false, bounded: true, takes_changelog: false })
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Err(Error::plan(code::INVALID_TABLE, "the generator has the columns of its table"))
    }

    fn source(&self, _table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Generator { request: request.clone(), rows: self.rows, next: 0 }))
    }

    fn sink(&self, _table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        Err(Error::plan(code::INVALID_QUERY, "the generator takes no rows"))
    }
}

#[derive(Clone)]
struct Generator {
    request: ReadRequest,
    rows: u64,
    next: u64,
}

impl Source for Generator {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        Ok(vec![Box::new(self.clone())])
    }
}

impl SplitReader for Generator {
    fn name(&self) -> &str {
        "generator"
    }

    fn next(&mut self) -> Result<Option<SplitBatch>, Error> {
        let end = (self.next + self.request.batch_rows as u64).min(self.rows);
        if self.next == end {
            return Ok(None);
        }
        let rows = self.next..end;
        self.next = end;
        let mut columns: Vec<arrow::array::ArrayRef> = Vec::new();
        for field in self.request.schema.fields() {
            let rows = rows.clone();
            columns.push(match field.name().as_str() {
                "auction" => Arc::new(Int64Array::from_iter_values(
                    rows.map(|row| (row / 1_000_000 * 100 + mix(row) % AUCTIONS) as i64),
                )),
                "price" => Arc::new(Int64Array::from_iter_values(
                    rows.map(|row| (mix(row ^ 0x5bd1_e995) % 10_000) as i64),
                )),
                _ => Arc::new(TimestampMillisecondArray::from_iter_values(
                    rows.map(|row| (1_709_596_800_000 + row / BIDS_PER_MS + mix(!row) % DISORDER_MS) as i64),
                )),
            });
        }
        let first = end - self.request.batch_rows.min(end as usize) as u64;
        let rows = RecordBatch::try_new(Arc::clone(&self.request.schema), columns)
            .map_err(|error| Error::internal("bench", error))?;
        Ok(Some(SplitBatch { rows, lines: Lines::From(first + 1), rejected: Vec::new() }))
    }
}

/// SplitMix64: a number that looks random, of each row.
fn mix(row: u64) -> u64 {
    let mut z = row.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
