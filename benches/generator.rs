//! What the benchmarks of generated bids share: the rows and the query.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::SchemaRef;
use tidegate::Error;
use tidegate::catalog::{Options, Table, TableFacts};
use tidegate::connector::{Connector, Lines, Read, ReadRequest, Sink, Source, SplitBatch, SplitReader};
use tidegate::error::code;

/// Ten seconds.
pub(crate) const TUMBLE: &str = "TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)";

/// Counts, sums and means of each auction in the windows of a function.
pub(crate) fn script(function: &str) -> String {
    format!(
        "CREATE TABLE bids (auction BIGINT, price BIGINT, ts TIMESTAMP(3),
           WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'bids');
         SELECT window_start, auction, COUNT(*) AS bids, SUM(price) AS total, AVG(price) AS mean
         FROM TABLE({function})
         GROUP BY window_start, window_end, auction;"
    )
}

/// 10,000 bids per second of event time, up to half a second of disorder.
const BIDS_PER_MS: u64 = 10;
const DISORDER_MS: u64 = 500;

/// The table `bids`.
pub(crate) struct Bids {
    pub(crate) rows: u64,
    /// Auctions at a time.
    pub(crate) auctions: u64,
}

impl Connector for Bids {
    fn name(&self) -> &'static str {
        "bids"
    }

    fn check(&self, _table: &Table) -> Result<TableFacts, Error> {
        Ok(TableFacts {
            is_source: true,
            is_sink: false,
            bounded: true,
            takes_changelog: false,
            ..TableFacts::default()
        })
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Err(Error::plan(code::INVALID_TABLE, "the generator has the columns of its table"))
    }

    fn source(&self, _table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Generator {
            request: request.clone(),
            rows: self.rows,
            auctions: self.auctions,
            next: 0,
        }))
    }

    fn sink(&self, _table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        Err(Error::plan(code::INVALID_QUERY, "the generator takes no rows"))
    }
}

#[derive(Clone)]
struct Generator {
    request: ReadRequest,
    rows: u64,
    auctions: u64,
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

    fn next(&mut self) -> Result<Read, Error> {
        let end = (self.next + self.request.batch_rows as u64).min(self.rows);
        if self.next == end {
            return Ok(Read::End);
        }
        let rows = self.next..end;
        self.next = end;
        let mut columns: Vec<arrow::array::ArrayRef> = Vec::new();
        for field in self.request.schema.fields() {
            let rows = rows.clone();
            columns.push(match field.name().as_str() {
                "auction" => Arc::new(Int64Array::from_iter_values(
                    rows.map(|row| (row / 1_000_000 * 100 + mix(row) % self.auctions) as i64),
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
        Ok(Read::Rows(SplitBatch { rows, lines: Lines::From(first + 1), rejected: Vec::new(), kinds: None }))
    }
}

/// SplitMix64: a number that looks random, of each row.
fn mix(row: u64) -> u64 {
    let mut z = row.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
