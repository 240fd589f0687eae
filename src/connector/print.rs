//! The connectors `print` and `blackhole`.

use arrow::datatypes::SchemaRef;

use super::format::RowText;
use super::options::OptionReader;
use super::stdio::{no_columns, no_source, write_stdout};
use super::{Connector, ReadRequest, Sink, Source};
use crate::catalog::{Options, Table, TableFacts};
use crate::error::Error;
use crate::stream::{RowKind, StreamBatch};

/// `+I[1, a]` lines on standard output, with `'print-identifier'` and `> ` before them if given.
///
/// Source: Flink's print connector.
#[derive(Debug, Clone, Copy, Default)]
pub struct Print;

/// Takes rows and forgets them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Blackhole;

const SINK: TableFacts = TableFacts { is_source: false, is_sink: true, bounded: true, takes_changelog: true };

impl Connector for Print {
    fn name(&self) -> &'static str {
        "print"
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        OptionReader::new("connector \"print\"", &table.options, &[&["print-identifier"]])?;
        Ok(SINK)
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Err(no_columns("print"))
    }

    fn source(&self, table: &Table, _request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        Err(no_source(&table.name, "print"))
    }

    fn sink(&self, table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        let prefix =
            table.options.get("print-identifier").map(|name| format!("{name}> ")).unwrap_or_default();
        Ok(Box::new(PrintSink { lines: PrintLines { prefix }, buffer: Vec::new() }))
    }
}

/// Writes the lines of `print`.
#[derive(Debug)]
struct PrintLines {
    prefix: String,
}

impl PrintLines {
    fn write(&self, batch: &StreamBatch, out: &mut Vec<u8>) -> Result<(), Error> {
        let text = RowText::new(&batch.rows)?;
        let kinds = batch.kinds.as_ref().map(|kinds| kinds.values());
        for row in 0..batch.num_rows() {
            let kind = kinds.map_or(RowKind::Insert, |kinds| kinds[row]);
            out.extend_from_slice(self.prefix.as_bytes());
            out.extend_from_slice(kind.symbol().as_bytes());
            out.push(b'[');
            text.push_row(row, out);
            out.extend_from_slice(b"]\n");
        }
        Ok(())
    }
}

struct PrintSink {
    lines: PrintLines,
    buffer: Vec<u8>,
}

impl Sink for PrintSink {
    fn write(&mut self, batch: &StreamBatch) -> Result<(), Error> {
        self.lines.write(batch, &mut self.buffer)?;
        write_stdout(&mut self.buffer)
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn abort(&mut self) {}
}

impl Connector for Blackhole {
    fn name(&self) -> &'static str {
        "blackhole"
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        OptionReader::new("connector \"blackhole\"", &table.options, &[])?;
        Ok(SINK)
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Err(no_columns("blackhole"))
    }

    fn source(&self, table: &Table, _request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        Err(no_source(&table.name, "blackhole"))
    }

    fn sink(&self, _table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Forget))
    }
}

struct Forget;

impl Sink for Forget {
    fn write(&mut self, _batch: &StreamBatch) -> Result<(), Error> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn abort(&mut self) {}
}
