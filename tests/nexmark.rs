//! The queries of Nexmark, each against what DuckDB answers over the same rows: `tests/nexmark/README.md`.
//!
//! Each query runs over tables that end, and over the same tables as a stream that goes on, where its result is a
//! changelog; by small and big batches, alone and in parallel. All must come to the same rows, no change may take
//! away a row that is not there, and every operator must account for every row.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, Int32Type, Int64Type, TimeUnit, TimestampMillisecondType,
    UInt64Type,
};
use arrow::record_batch::RecordBatch;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use tidegate::session::{Outcome, Session};

/// Events, rows of a batch, parallelism; over tables that end, and over a stream.
const OF_TABLES: [(&str, &str, &str); 4] =
    [("5000", "1", "1"), ("5000", "1", "4"), ("100000", "8192", "1"), ("100000", "8192", "4")];
const OF_STREAMS: [(&str, &str, &str); 4] =
    [("5000", "1", "1"), ("5000", "1", "4"), ("5000", "8192", "1"), ("5000", "8192", "4")];

/// What is refused over a stream that goes on, and the code of the error. One that starts to work fails here.
const NOT_YET: &[(&str, &str)] = &[];

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let mut trials = vec![Trial::test("every query has its expectation", every_query_is_expected)];
    for query in ["q2", "q3", "q8", "q11"] {
        trials.push(Trial::test(format!("{query} flink"), move || as_flink_defines(query)));
    }
    for query in 0..=22 {
        for bounded in [true, false] {
            let name = format!("q{query}");
            let kind = if bounded { "tables" } else { "stream" };
            trials.push(Trial::test(format!("{name} {kind}"), move || check(&name, bounded)));
        }
    }
    libtest_mimic::run(&args, trials).exit_code()
}

fn read(path: &str) -> Result<String, Failed> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()).into())
}

fn expected(events: &str) -> Result<BTreeMap<String, Value>, Failed> {
    Ok(serde_json::from_str(&read(&format!("tests/nexmark/expected/{events}.json"))?)?)
}

fn every_query_is_expected() -> Result<(), Failed> {
    for events in ["5000", "100000"] {
        let expected = expected(events)?;
        if expected.len() != 23 || !(0..=22).all(|query| expected.contains_key(&format!("q{query}"))) {
            return Err(format!("{events} events: {:?}", expected.keys()).into());
        }
        // A query that gives nothing proves nothing.
        if let Some((query, _)) = expected.iter().find(|(_, result)| result["rows"] == 0) {
            return Err(format!("{events} events: {query} has no rows").into());
        }
    }
    Ok(())
}

fn check(query: &str, bounded: bool) -> Result<(), Failed> {
    let refused = NOT_YET.iter().find(|(name, _)| !bounded && *name == query);
    let settings = if bounded { OF_TABLES.as_slice() } else { &OF_STREAMS };
    for (events, batch_rows, parallelism) in settings.iter().copied() {
        let context = format!("{events} events, {batch_rows} rows a batch, parallelism {parallelism}");
        let result = run(query, events, bounded, batch_rows, parallelism);
        match (refused, result) {
            (None, Ok(rows)) => {
                let expected = &expected(events)?[query];
                rows.compare(expected).map_err(|why| format!("{context}: {why}"))?;
            }
            (None, Err(error)) => return Err(format!("{context}: {error}").into()),
            (Some((_, code)), Err(error)) if error.starts_with(code) => {}
            (Some((_, code)), Err(error)) => return Err(format!("not {code}: {error}").into()),
            (Some(_), Ok(_)) => return Err("it works now: take it out of NOT_YET".into()),
        }
    }
    Ok(())
}

/// One table of all events and views over it, as in Flink's Nexmark: the same events, so the same rows.
fn as_flink_defines(query: &str) -> Result<(), Failed> {
    let tables = "
        CREATE TABLE datagen (
          event_type int,
          person ROW<id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR,
            state VARCHAR, `dateTime` TIMESTAMP(3), extra VARCHAR>,
          auction ROW<id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT,
            `dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra VARCHAR>,
          bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
            `dateTime` TIMESTAMP(3), extra VARCHAR>,
          `dateTime` AS CASE WHEN event_type = 0 THEN person.`dateTime`
            WHEN event_type = 1 THEN auction.`dateTime` ELSE bid.`dateTime` END,
          WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
        ) WITH (
          'connector' = 'nexmark', 'first-event.rate' = '1000', 'next-event.rate' = '1000', 'events.num' = '5000',
          'person.proportion' = '1', 'auction.proportion' = '3', 'bid.proportion' = '46', 'max-disorder' = '500 ms'
        );
        CREATE VIEW person AS
        SELECT person.id, person.name, person.emailAddress, person.creditCard, person.city, person.state,
          `dateTime`, person.extra
        FROM datagen WHERE event_type = 0;
        CREATE VIEW auction AS
        SELECT auction.id, auction.itemName, auction.description, auction.initialBid, auction.reserve,
          `dateTime`, auction.expires, auction.seller, auction.category, auction.extra
        FROM datagen WHERE event_type = 1;
        CREATE VIEW bid AS
        SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, `dateTime`, bid.extra
        FROM datagen WHERE event_type = 2;";
    let expected = &expected("5000")?[query];
    for (batch_rows, parallelism) in [("8192", "1"), ("7", "4")] {
        let rows = run_over(tables, query, batch_rows, parallelism, true)?;
        rows.compare(expected).map_err(|why| format!("{batch_rows}, {parallelism}: {why}"))?;
    }
    Ok(())
}

/// The rows that a query comes to.
fn run(query: &str, events: &str, bounded: bool, batch_rows: &str, parallelism: &str) -> Result<Net, String> {
    let tables = read("queries/nexmark/tables.sql").map_err(|error| format!("{error:?}"))?;
    let mut tables = tables.replace("= '100000'", &format!("= '{events}'"));
    if !bounded {
        tables = tables.replace("'connector' =", "'bounded' = 'false', 'connector' =");
    }
    run_over(&tables, query, batch_rows, parallelism, bounded)
}

fn run_over(
    tables: &str,
    query: &str,
    batch_rows: &str,
    parallelism: &str,
    bounded: bool,
) -> Result<Net, String> {
    let fail = |error: tidegate::Error| format!("{} {error}", error.code());
    let text = read(&format!("queries/nexmark/{query}.sql")).map_err(|error| format!("{error:?}"))?;
    let mut session = Session::new();
    session.set("execution.batch-rows", batch_rows).map_err(fail)?;
    session.set("execution.parallelism", parallelism).map_err(fail)?;
    let mut net = None;
    for (name, text) in [("tables", tables), (query, text.as_str())] {
        for statement in session.parse(name, text).map_err(fail)? {
            let Outcome::Query(mut running) = session.execute(&statement).map_err(fail)? else { continue };
            let mut rows = Net::default();
            while let Some(batch) = running.next_batch().map_err(fail)? {
                let kinds = batch.kinds.as_ref().map(|kinds| kinds.values().iter().map(|kind| kind.symbol()));
                match kinds {
                    None => rows.take(query, &batch.rows, std::iter::repeat("+I"))?,
                    Some(_) if bounded => return Err("a changelog of tables that end".to_owned()),
                    Some(kinds) => rows.take(query, &batch.rows, kinds)?,
                }
            }
            let summary = running.finish().map_err(fail)?;
            if !summary.reconciles() || summary.late != 0 {
                return Err(format!("rows are lost or late: {summary:?}"));
            }
            net = Some(rows);
        }
    }
    let net = net.ok_or("the script has no query")?;
    Ok(if query == "q12" { net.summed() } else { net })
}

/// A result: its lines by their hashes, with how often they are there.
#[derive(Default)]
struct Net {
    rows: i64,
    digest: u64,
    counts: HashMap<u64, i64>,
    /// The first line of each hash, as far as a few are wanted to be shown.
    lines: HashMap<u64, String>,
    /// Of query 12: bids of each person.
    bids: BTreeMap<i64, i64>,
}

/// Lines that are kept to be compared one by one.
const KEPT_LINES: usize = 1_000;

impl Net {
    fn take<'a>(
        &mut self,
        query: &str,
        batch: &RecordBatch,
        kinds: impl Iterator<Item = &'a str>,
    ) -> Result<(), String> {
        if query == "q12" {
            let column = |place: usize| batch.column(place).as_primitive::<Int64Type>().values();
            for (bidder, count) in column(0).iter().zip(column(1)) {
                *self.bids.entry(*bidder).or_default() += count;
            }
            return Ok(());
        }
        let cells: Vec<_> = batch.columns().iter().map(Cells::new).collect::<Result<_, _>>()?;
        let mut line = String::new();
        for (row, kind) in (0..batch.num_rows()).zip(kinds) {
            line.clear();
            for (place, cells) in cells.iter().enumerate() {
                if place > 0 {
                    line.push('|');
                }
                cells.push(row, &mut line);
            }
            self.change(kind, &line)?;
        }
        Ok(())
    }

    fn change(&mut self, kind: &str, line: &str) -> Result<(), String> {
        let hash = fnv1a(line);
        let count = self.counts.entry(hash).or_default();
        match kind {
            "+I" | "+U" => {
                *count += 1;
                self.rows += 1;
                self.digest = self.digest.wrapping_add(hash);
                if self.lines.len() < KEPT_LINES {
                    self.lines.entry(hash).or_insert_with(|| line.to_owned());
                }
            }
            _ => {
                if *count == 0 {
                    return Err(format!("{kind} of a row that is not there: {line}"));
                }
                *count -= 1;
                self.rows -= 1;
                self.digest = self.digest.wrapping_sub(hash);
                if *count == 0 {
                    self.counts.remove(&hash);
                    self.lines.remove(&hash);
                }
            }
        }
        Ok(())
    }

    fn summed(self) -> Self {
        let mut net = Self::default();
        for (bidder, count) in &self.bids {
            net.change("+I", &format!("{bidder}|{count}")).expect("nothing is taken away");
        }
        net
    }

    fn compare(&self, expected: &Value) -> Result<(), String> {
        let digest = format!("{:016x}", self.digest);
        if expected["rows"] == self.rows && expected["digest"] == digest.as_str() {
            return Ok(());
        }
        let lines = expected["lines"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let missing: Vec<_> = lines.filter(|line| !self.counts.contains_key(&fnv1a(line))).take(5).collect();
        let mut given: Vec<_> = self.lines.values().collect();
        given.sort_unstable();
        given.truncate(10);
        Err(format!(
            "{} rows for {}, digest {digest} for {}; missing, among others: {missing:#?}; given: {given:#?}",
            self.rows, expected["rows"], expected["digest"]
        ))
    }
}

fn fnv1a(line: &str) -> u64 {
    line.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A column whose values are written as the expectations have them.
enum Cells<'a> {
    Text(&'a arrow::array::StringArray),
    Integer(arrow::array::Int64Array),
    Time(&'a arrow::array::TimestampMillisecondArray),
    Float(&'a arrow::array::Float64Array),
    Decimal(&'a arrow::array::Decimal128Array, u32),
}

impl<'a> Cells<'a> {
    fn new(column: &'a ArrayRef) -> Result<Self, String> {
        Ok(match column.data_type() {
            DataType::Utf8 => Self::Text(column.as_string()),
            DataType::Int64 => Self::Integer(column.as_primitive::<Int64Type>().clone()),
            DataType::Int32 => Self::Integer(column.as_primitive::<Int32Type>().unary(i64::from)),
            DataType::UInt64 => {
                Self::Integer(column.as_primitive::<UInt64Type>().unary(|value| value as i64))
            }
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                Self::Time(column.as_primitive::<TimestampMillisecondType>())
            }
            DataType::Float64 => Self::Float(column.as_primitive::<Float64Type>()),
            DataType::Decimal128(_, scale) => {
                Self::Decimal(column.as_primitive::<Decimal128Type>(), u32::try_from(*scale).unwrap_or(0))
            }
            other => return Err(format!("a column of type {other} is not expected")),
        })
    }

    fn push(&self, row: usize, line: &mut String) {
        let array: &dyn Array = match self {
            Self::Text(array) => array,
            Self::Integer(array) => array,
            Self::Time(array) => array,
            Self::Float(array) => array,
            Self::Decimal(array, _) => array,
        };
        if array.is_null(row) {
            line.push_str("NULL");
            return;
        }
        let written = match self {
            Self::Text(array) => line.write_str(array.value(row)),
            Self::Integer(array) => write!(line, "{}", array.value(row)),
            Self::Time(array) => write!(line, "{}", array.value(row)),
            Self::Float(array) => write!(line, "{:.6}", array.value(row)),
            Self::Decimal(array, scale) => {
                let one = 10_i128.pow(*scale);
                let (whole, rest) = (array.value(row) / one, array.value(row) % one);
                let rest = format!("{rest:0width$}", width = *scale as usize);
                match rest.trim_end_matches('0') {
                    "" => write!(line, "{whole}"),
                    rest => write!(line, "{whole}.{rest}"),
                }
            }
        };
        written.expect("a string takes any text");
    }
}
