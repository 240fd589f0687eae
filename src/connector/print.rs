//! The connectors `print` and `blackhole`.

use arrow::datatypes::SchemaRef;

use super::format::RowText;
use super::options::OptionReader;
use super::stdio::{no_columns, no_source, write_stdout};
use super::{Connector, ReadRequest, Sink, Source};
use crate::catalog::{Options, Table, TableFacts, TableRecovery, WriteRecovery};
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

const SINK: TableFacts = TableFacts {
    is_source: false,
    is_sink: true,
    bounded: true,
    takes_changelog: true,
    gives_changelog: false,
    upserts: false,
};

impl Connector for Print {
    fn name(&self) -> &'static str {
        "print"
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        OptionReader::new("connector \"print\"", &table.options, &[KEYS])?;
        Ok(SINK)
    }

    fn options(&self) -> Vec<&'static str> {
        KEYS.to_vec()
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

/// The options of `print`.
const KEYS: &[&str] = &["print-identifier"];

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

    /// Nobody can tell how often a row came.
    fn recovery(&self, _table: &Table) -> TableRecovery {
        TableRecovery { written: WriteRecovery::TakenBack, ..TableRecovery::default() }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use arrow::array::{ArrayRef, Int32Array, StringArray, TimestampMillisecondArray};
    use arrow::record_batch::RecordBatch;

    use super::*;
    use crate::connector::testing::table;
    use crate::stream::RowKinds;

    #[test]
    fn lines_with_row_kinds() {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("v", Arc::new(Int32Array::from(vec![Some(1), None]))),
            ("s", Arc::new(StringArray::from(vec!["a", "b"]))),
            ("ts", Arc::new(TimestampMillisecondArray::from(vec![0, 10_500]))),
        ];
        let mut batch = StreamBatch::inserts(RecordBatch::try_from_iter(columns).unwrap(), Instant::now());
        let write = |prefix: &str, batch: &StreamBatch| {
            let mut out = Vec::new();
            PrintLines { prefix: prefix.to_owned() }.write(batch, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            write("", &batch),
            "+I[1, a, 1970-01-01T00:00:00.000]\n+I[NULL, b, 1970-01-01T00:00:10.500]\n"
        );
        batch.kinds = Some(RowKinds::new(vec![RowKind::UpdateBefore, RowKind::Delete]));
        assert_eq!(
            write("x> ", &batch),
            "x> -U[1, a, 1970-01-01T00:00:00.000]\nx> -D[NULL, b, 1970-01-01T00:00:10.500]\n"
        );
    }

    #[test]
    fn options_and_directions() {
        let t = table(&[], &[("print-identifier", "x")]);
        assert!(Print.check(&t).unwrap().takes_changelog);
        assert_eq!(Blackhole.check(&t).unwrap_err().code(), "C001");
        let t = table(&[], &[]);
        assert!(Blackhole.check(&t).unwrap().takes_changelog);
        let request = crate::connector::testing::request(&t);
        assert_eq!(Print.source(&t, &request).err().unwrap().code(), "P003");
    }
}
