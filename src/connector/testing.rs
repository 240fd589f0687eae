//! Tables and requests for the tests of connectors.

use std::path::Path;
use std::time::Instant;

use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::{CancelToken, Connector, Filesystem, ReadRequest, RejectedRow};
use crate::catalog::{Column, ColumnKind, Options, Table};
use crate::error::Error;
use crate::stream::StreamBatch;

/// A table `t` of nullable physical columns.
pub(super) fn table(columns: &[(&str, DataType)], options: &[(&str, &str)]) -> Table {
    let columns = columns.iter().map(|(name, data_type)| Column {
        name: (*name).to_owned(),
        data_type: data_type.clone(),
        nullable: true,
        kind: ColumnKind::Physical,
    });
    let options: Options = options.iter().copied().collect();
    Table {
        name: "t".to_owned(),
        columns: columns.collect(),
        watermark: None,
        primary_key: Vec::new(),
        connector: options.get("connector").unwrap_or("filesystem").to_owned(),
        options,
        bounded: true,
        temporary: false,
    }
}

/// A request for all columns of a table.
pub(super) fn request(table: &Table) -> ReadRequest {
    ReadRequest {
        key: Vec::new(),
        schema: table.schema(),
        metadata: table
            .columns
            .iter()
            .map(|column| match &column.kind {
                ColumnKind::Metadata { key, .. } => Some(key.clone()),
                _ => None,
            })
            .collect(),
        batch_rows: 8192,
        threads: 1,
        in_turn: false,
        cancel: CancelToken::default(),
    }
}

/// All that a source gives.
#[derive(Debug, Default)]
pub(super) struct Everything {
    pub(super) batches: Vec<RecordBatch>,
    pub(super) lines: Vec<u64>,
    pub(super) rejected: Vec<RejectedRow>,
}

impl Everything {
    /// Rows as `a, b` lines, as `print` shows them.
    pub(super) fn rows(&self) -> Vec<String> {
        let mut out = Vec::new();
        for batch in &self.batches {
            let text = super::format::RowText::new(batch).unwrap();
            for row in 0..batch.num_rows() {
                let mut line = Vec::new();
                text.push_row(row, &mut line);
                out.push(String::from_utf8(line).unwrap());
            }
        }
        out
    }
}

/// Reads a table of files to its end.
pub(super) fn read(table: &Table, batch_rows: usize) -> Result<Everything, Error> {
    read_by(table, batch_rows, 1)
}

/// The same by several threads.
pub(super) fn read_by(table: &Table, batch_rows: usize, threads: usize) -> Result<Everything, Error> {
    Filesystem.check(table)?;
    let request = ReadRequest { batch_rows, threads, ..request(table) };
    let mut out = Everything::default();
    for mut split in Filesystem.source(table, &request)?.splits()? {
        while let Some(batch) = split.next()?.rows() {
            assert!(batch.rows.num_rows() <= batch_rows);
            out.lines.extend((0..batch.rows.num_rows()).map(|row| batch.lines.of(row)));
            out.batches.push(batch.rows);
            out.rejected.extend(batch.rejected);
        }
    }
    Ok(out)
}

/// Reads one file with this content at several batch sizes; all must agree.
pub(super) fn read_text(
    name: &str,
    content: &[u8],
    columns: &[(&str, DataType)],
    options: &[(&str, &str)],
) -> Result<Everything, Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    let path = path.to_string_lossy().into_owned();
    let mut all = vec![("path", path.as_str())];
    all.extend_from_slice(options);
    let table = table(columns, &all);
    let whole = read(&table, 8192);
    for batch_rows in [1, 7] {
        let other = read(&table, batch_rows);
        match (&whole, &other) {
            (Ok(whole), Ok(other)) => {
                assert_eq!(whole.rows(), other.rows());
                assert_eq!(whole.lines, other.lines);
                assert_eq!(whole.rejected, other.rejected);
            }
            (Err(whole), Err(other)) => assert_eq!(whole, other),
            _ => panic!("batch size {batch_rows} makes a difference: {whole:?}, {other:?}"),
        }
    }
    // The folder's name differs from run to run.
    whole.map_err(|error| {
        let prefix = format!("{}/", dir.path().to_string_lossy());
        let cut = Error::run(crate::error::Code(error.code()), error.message().replace(&prefix, ""));
        match error.hint_text() {
            Some(hint) => cut.hint(hint),
            None => cut,
        }
    })
}

/// Writes batches into a table of files.
pub(super) fn write(table: &Table, schema: SchemaRef, batches: &[RecordBatch]) -> Result<(), Error> {
    Filesystem.check(table)?;
    let mut sink = Filesystem.sink(table, schema)?;
    for batch in batches {
        sink.write(&StreamBatch::inserts(batch.clone(), Instant::now()))?;
    }
    sink.finish()
}

/// The names in a folder, sorted, hidden ones too.
pub(super) fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
