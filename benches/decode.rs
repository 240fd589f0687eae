//! Files to Arrow: Nexmark's bids as JSON lines, CSV and Parquet, all columns and two of the seven, and its events
//! with nested objects; each beside the reader of arrow-rs.
//!
//! `cargo bench --bench decode [-- EVENTS [ROUNDS [CASES]]]`: 1,000,000 events, 5 rounds, all cases without arguments;
//! CASES as in `json,csv.two`. The files are written by Tidegate. The two readers run in turn, and the medians are
//! printed, in CPU seconds of the process and from the page cache. The release profile builds arrow-json and
//! arrow-csv for size, because the program does not use them; a fair comparison is
//!
//! ```text
//! cargo bench --bench decode \
//!   --config 'profile.release.package.arrow-json.opt-level=3' \
//!   --config 'profile.release.package.arrow-csv.opt-level=3' \
//!   --config 'profile.release.package.arrow-cast.opt-level=3'
//! ```

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

mod process;

use std::fmt::Display;
use std::fs::File;
use std::hint::black_box;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use process::cpu_seconds;
use tidegate::Error;
use tidegate::catalog::{Catalog, Table};
use tidegate::connector::{CancelToken, Connector, Connectors, Filesystem, Read, ReadRequest};
use tidegate::plan::Planner;
use tidegate::session::{Outcome, Session};
use tidegate::sql::{self, Statement};

const BATCH_ROWS: usize = 8_192;

/// What is read: a file, and the columns that are wanted of it.
struct Case {
    name: &'static str,
    table: &'static str,
    format: &'static str,
    columns: &'static [&'static str],
}

const ALL: &[&str] = &[];
const TWO: &[&str] = &["auction", "price"];

const CASES: &[Case] = &[
    Case { name: "json", table: "bid", format: "json", columns: ALL },
    Case { name: "json.two", table: "bid", format: "json", columns: TWO },
    Case { name: "json.nested", table: "events", format: "json", columns: ALL },
    Case { name: "csv", table: "bid", format: "csv", columns: ALL },
    Case { name: "csv.two", table: "bid", format: "csv", columns: TWO },
    Case { name: "parquet", table: "bid", format: "parquet", columns: ALL },
    Case { name: "parquet.two", table: "bid", format: "parquet", columns: TWO },
];

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let number = |place: usize, default: u64| -> u64 {
        arguments.get(place).and_then(|text| text.replace('_', "").parse().ok()).unwrap_or(default)
    };
    let (events, rounds) = (number(0, 1_000_000), number(1, 5).max(1));
    let is_wanted =
        |case: &&Case| arguments.get(2).is_none_or(|names| names.split(',').any(|name| name == case.name));
    let folder = std::env::temp_dir().join(format!("tidegate-decode-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    println!("{events} events, of which bids are 46 in 50; median of {rounds} rounds");
    println!(
        "{:<12} {:<6} {:>8} {:>12} {:>8} {:>7}",
        "case", "reader", "CPU s", "M rows/CPU s", "MB/CPU s", "ratio"
    );
    let result = CASES.iter().filter(is_wanted).try_for_each(|case| measure(case, &folder, events, rounds));
    std::fs::remove_dir_all(&folder).map_err(failed)?;
    result
}

fn failed(why: impl Display) -> Error {
    Error::internal("bench", why)
}

/// Reads the file of a case with both readers in turn, and prints what that takes.
fn measure(case: &Case, folder: &Path, events: u64, rounds: u64) -> Result<(), Error> {
    let path = folder.join(format!("{}.{}", case.table, case.format));
    let table = written(case, &path, events)?;
    let schema = wanted_columns(&table.schema(), case.columns)?;
    let rows = read(&table, &schema)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let timed = |read: &dyn Fn() -> Result<u64, Error>| -> Result<f64, Error> {
            let begun = cpu_seconds();
            assert_eq!(read()?, rows, "{}: rows were lost", case.name);
            Ok(cpu_seconds() - begun)
        };
        let of_ours = timed(&|| read(&table, &schema))?;
        let of_theirs = timed(&|| read_with_arrow(case, &path, &table.schema(), &schema))?;
        // The first round warms up.
        if round > 0 {
            ours.push(of_ours);
            theirs.push(of_theirs);
        }
    }
    let bytes = std::fs::metadata(&path).map_err(failed)?.len();
    let (ours, theirs) = (median(ours), median(theirs));
    for (reader, cpu) in [("ours", ours), ("arrow", theirs)] {
        println!(
            "{:<12} {reader:<6} {cpu:>8.2} {:>12.2} {:>8.0} {:>7.2}",
            case.name,
            rows as f64 / cpu / 1e6,
            bytes as f64 / cpu / 1e6,
            cpu / ours,
        );
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// Writes the file of a case if it is not there; it as a table.
fn written(case: &Case, path: &Path, events: u64) -> Result<Table, Error> {
    let columns = if case.table == "bid" { BID.to_owned() } else { events_columns() };
    let path_text = path.to_str().ok_or_else(|| failed("a path that is no text"))?;
    let file = format!(
        "CREATE TABLE kept ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path_text}', \
         'format' = '{}')",
        case.format
    );
    if !path.exists() {
        let script = format!(
            "CREATE TABLE made ({columns}) WITH ('connector' = 'nexmark', 'table' = '{}', \
             'events.num' = '{events}'); {file}; INSERT INTO kept SELECT * FROM made",
            case.table
        );
        let mut session = Session::new();
        for statement in session.parse("write", &script)? {
            if let Outcome::Insert(insert) = session.execute(&statement)? {
                insert.wait()?;
            }
        }
    }
    let planner = Planner::new(Arc::new(Connectors::standard()));
    match sql::parse(&file)?.first().map(|parsed| &parsed.statement) {
        Some(Statement::CreateTable(create)) => planner.create_table(create, &Catalog::new()),
        _ => Err(failed("no table")),
    }
}

const BID: &str = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, \
                   `dateTime` TIMESTAMP(3), extra STRING";
const AUCTION: &str = "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, \
                       `dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING";
const PERSON: &str = "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, \
                      state STRING, `dateTime` TIMESTAMP(3), extra STRING";

fn events_columns() -> String {
    format!(
        "event_type INT, person ROW<{PERSON}>, auction ROW<{AUCTION}>, bid ROW<{BID}>, `dateTime` TIMESTAMP(3)"
    )
}

fn wanted_columns(schema: &SchemaRef, columns: &[&str]) -> Result<SchemaRef, Error> {
    if columns.is_empty() {
        return Ok(Arc::clone(schema));
    }
    let places = columns.iter().map(|name| schema.index_of(name)).collect::<Result<Vec<_>, _>>();
    places.and_then(|places| schema.project(&places)).map(Arc::new).map_err(failed)
}

/// Reads a table of one file; the number of its rows.
fn read(table: &Table, schema: &SchemaRef) -> Result<u64, Error> {
    let request = ReadRequest {
        schema: Arc::clone(schema),
        metadata: vec![None; schema.fields().len()],
        key: Vec::new(),
        batch_rows: BATCH_ROWS,
        threads: 1,
        in_turn: false,
        cancel: CancelToken::default(),
    };
    let mut rows = 0;
    for mut split in Filesystem.source(table, &request)?.splits()? {
        loop {
            match split.next()? {
                Read::Rows(batch) => rows += black_box(batch).rows.num_rows() as u64,
                Read::End => break,
                _ => return Err(failed("a file has rows and an end")),
            }
        }
    }
    Ok(rows)
}

/// The same with the readers of arrow-rs.
fn read_with_arrow(case: &Case, path: &Path, all: &SchemaRef, wanted: &SchemaRef) -> Result<u64, Error> {
    let file = File::open(path).map_err(failed)?;
    let buffered = |file| BufReader::with_capacity(256 << 10, file);
    let places = wanted.fields().iter().map(|field| all.index_of(field.name()));
    let places = places.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let mut rows = 0;
    let mut count = |batch: Result<arrow::record_batch::RecordBatch, arrow::error::ArrowError>| {
        rows += black_box(batch.map_err(failed)?).num_rows() as u64;
        Ok::<_, Error>(())
    };
    match case.format {
        "json" => {
            let builder = arrow::json::ReaderBuilder::new(Arc::clone(wanted)).with_batch_size(BATCH_ROWS);
            builder.build(buffered(file)).map_err(failed)?.try_for_each(&mut count)?;
        }
        "csv" => {
            let builder = arrow::csv::ReaderBuilder::new(Arc::clone(all)).with_header(false);
            let builder = builder.with_batch_size(BATCH_ROWS);
            let reader = builder.with_projection(places).build_buffered(buffered(file));
            reader.map_err(failed)?.try_for_each(&mut count)?;
        }
        _ => {
            let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(failed)?;
            let mask = ProjectionMask::roots(builder.parquet_schema(), places);
            let reader = builder.with_projection(mask).with_batch_size(BATCH_ROWS).build();
            reader.map_err(failed)?.try_for_each(&mut count)?;
        }
    }
    Ok(rows)
}
