//! A connector of one's own: a table whose rows are computed. Its option is checked like those of the
//! connectors that come along.

#![allow(clippy::print_stdout)]

use std::sync::Arc;

use tidegate::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use tidegate::arrow::util::pretty::pretty_format_batches;
use tidegate::catalog::{Table, TableFacts};
use tidegate::connector::{Connector, Lines, OptionReader, Read, ReadRequest, Source, SplitReader};
use tidegate::{Error, Session};

/// `'connector' = 'squares'`: the numbers from 1 to `'count'`, and their squares.
struct Squares;

fn count(table: &Table) -> Result<i64, Error> {
    let options = OptionReader::new("connector \"squares\"", &table.options, &[&["count"]])?;
    Ok(options.integer("count", 1..=1_000_000)?.unwrap_or(10))
}

impl Connector for Squares {
    fn name(&self) -> &'static str {
        "squares"
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        count(table)?;
        Ok(TableFacts::source(true))
    }

    fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Numbers { next: 1, last: count(table)?, request: request.clone() }))
    }
}

/// A source of one split, which it is itself.
#[derive(Clone)]
struct Numbers {
    next: i64,
    last: i64,
    request: ReadRequest,
}

impl Source for Numbers {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        Ok(vec![Box::new(self.clone())])
    }
}

impl SplitReader for Numbers {
    fn name(&self) -> &str {
        "numbers"
    }

    fn next(&mut self) -> Result<Read, Error> {
        if self.next > self.last {
            return Ok(Read::End);
        }
        let first = self.next;
        let behind = self.last.min(first + self.request.batch_rows as i64 - 1) + 1;
        self.next = behind;
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(first..behind));
        let squares: ArrayRef = Arc::new(Int64Array::from_iter_values((first..behind).map(|n| n * n)));
        let rows = RecordBatch::try_from_iter([("n", numbers), ("square", squares)]);
        let rows = rows.map_err(|error| Error::internal("squares", error))?;
        // The query may want some of the columns only.
        Ok(Read::Rows(self.request.select(&rows, Lines::From(first as u64))?))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut session = Session::new();
    session.register_connector(Arc::new(Squares))?;
    let table =
        "CREATE TABLE squares (n BIGINT, square BIGINT) WITH ('connector' = 'squares', 'count' = '4')";
    session.run(table)?;
    let rows = session.query("SELECT SUM(square) AS total, MAX(n) AS last FROM squares")?;
    println!("{}", pretty_format_batches(&rows.into_iter().collect::<Result<Vec<_>, _>>()?)?);

    let wrong = "CREATE TABLE t (n BIGINT) WITH ('connector' = 'squares', 'cuont' = '4')";
    if let Err(error) = session.run(wrong) {
        println!("{}", error.render());
    }
    Ok(())
}
