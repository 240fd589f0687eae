//! Reads columns of a Parquet file, by several threads where that is worth it: each has some of the columns.
//!
//! Row groups can be large, so the rows of a file are not divided: what the threads read at any time are the
//! same few batches.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};

use arrow::array::ArrayRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;

use crate::connector::input::unreadable;
use crate::error::{Error, code};
use crate::stream::rows_of_width;

/// Files of fewer rows are read by one thread.
const WORTH_ROWS: i64 = 100_000;
/// Batches that a thread is ahead of the others.
const AHEAD: usize = 2;

/// The wanted columns of a file, batch by batch.
pub(super) struct ParquetColumns {
    /// What this thread reads.
    own: ParquetRecordBatchReader,
    others: Vec<Receiver<Result<RecordBatch, ArrowError>>>,
    /// For each wanted column the thread that reads it, 0 for this one, and its place there.
    places: Vec<(usize, usize)>,
}

impl ParquetColumns {
    /// Opens the columns at `wanted`, which may come in any order and twice. `name`: what a person knows the file
    /// by.
    ///
    /// # Errors
    /// `F001` if the file can't be read.
    pub(super) fn open(
        path: &Path,
        name: &str,
        file: File,
        metadata: &ArrowReaderMetadata,
        wanted: &[usize],
        batch_rows: usize,
        threads: usize,
    ) -> Result<Self, Error> {
        let mut sorted = wanted.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let rows = metadata.metadata().file_metadata().num_rows();
        let threads = if rows < WORTH_ROWS { 1 } else { threads };
        let batch_rows = rows_of_width(width(metadata, &sorted), batch_rows);
        let parts = divided(metadata, &sorted, threads);
        let place = |column: &usize| {
            let found = parts.iter().enumerate().find_map(|(part, columns)| {
                columns.iter().position(|other| other == column).map(|place| (part, place))
            });
            found.ok_or_else(|| Error::internal("parquet", "a column that nobody reads"))
        };
        let places = wanted.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let reader = |file: File, columns: &[usize]| {
            let mask = ProjectionMask::roots(metadata.parquet_schema(), columns.iter().copied());
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone())
                .with_projection(mask)
                .with_batch_size(batch_rows)
                .build()
                .map_err(|error| super::parquet_split::damaged(name, error))
        };
        let mut others = Vec::new();
        for (number, columns) in parts.iter().enumerate().skip(1) {
            // A place of its own in the file, which copies of one handle share.
            let again = File::open(path).map_err(|error| unreadable(name, &error))?;
            if !is_same(&file, &again) {
                let message = format!("can't read \"{name}\": it changed while it was opened");
                return Err(Error::run(code::UNREADABLE, message).hint("Run the query again."));
            }
            let reader = reader(again, columns)?;
            let (sender, receiver) = sync_channel(AHEAD);
            std::thread::Builder::new()
                .name(format!("columns {number} {name}"))
                .spawn(move || {
                    for batch in reader {
                        // Whoever has gone wants no more.
                        if sender.send(batch).is_err() {
                            return;
                        }
                    }
                })
                .map_err(|error| Error::internal("parquet", error))?;
            others.push(receiver);
        }
        let own = reader(file, parts.first().map_or(&[], Vec::as_slice))?;
        Ok(Self { own, others, places })
    }

    /// The wanted columns of the next rows, and how many rows they are; `None` at the end.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub(super) fn next(&mut self) -> Option<Result<(Vec<ArrayRef>, usize), ParquetError>> {
        let own = self.own.next()?;
        let others = self.others.iter().map(|other| {
            let ended = |_| ArrowError::ParquetError("a column ends before the others".to_owned());
            other.recv().map_err(ended).flatten()
        });
        let parts = std::iter::once(own).chain(others).collect::<Result<Vec<_>, _>>();
        let parts = match parts {
            Ok(parts) => parts,
            Err(error) => return Some(Err(error.into())),
        };
        let rows = parts[0].num_rows();
        if parts.iter().any(|part| part.num_rows() != rows) {
            return Some(Err(ParquetError::General("columns of unequal length".to_owned())));
        }
        let columns = self.places.iter().map(|(part, place)| parts[*part].column(*place).clone());
        Some(Ok((columns.collect(), rows)))
    }
}

/// Whether both are the same file as it was.
fn is_same(one: &File, other: &File) -> bool {
    let facts = |file: &File| {
        let facts = file.metadata().ok()?;
        Some((facts.len(), facts.modified().ok()))
    };
    facts(one) == facts(other)
}

/// Bytes of these columns of a row, about.
fn width(metadata: &ArrowReaderMetadata, columns: &[usize]) -> usize {
    let rows = usize::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
    let bytes: i64 = columns.iter().map(|column| bytes(metadata, *column)).sum();
    usize::try_from(bytes).unwrap_or(0).div_ceil(rows.max(1))
}

/// Bytes of all values of a column; of texts of which the file has each once, as many as it says there are.
fn bytes(metadata: &ArrowReaderMetadata, column: usize) -> i64 {
    let schema = metadata.parquet_schema();
    let groups = metadata.metadata().row_groups().iter();
    let leaves = groups.flat_map(|group| group.columns().iter().enumerate());
    let own = leaves.filter(|(leaf, _)| schema.get_column_root_idx(*leaf) == column);
    let values = |chunk: &ColumnChunkMetaData| {
        chunk.uncompressed_size().max(chunk.unencoded_byte_array_data_bytes().unwrap_or(0)).max(1)
    };
    own.map(|(_, chunk)| values(chunk)).sum()
}

/// The columns in as many parts as there are threads, each about as much work; those of a part in their order.
fn divided(metadata: &ArrowReaderMetadata, columns: &[usize], threads: usize) -> Vec<Vec<usize>> {
    let count = threads.min(columns.len()).max(1);
    let mut parts = vec![(0_i64, Vec::new()); count];
    let mut weighed: Vec<_> = columns.iter().map(|column| (bytes(metadata, *column), *column)).collect();
    // The heaviest first, to the one who has least.
    weighed.sort_by_key(|(bytes, column)| (std::cmp::Reverse(*bytes), *column));
    for (bytes, column) in weighed {
        if let Some((load, part)) = parts.iter_mut().min_by_key(|(load, _)| *load) {
            *load += bytes;
            part.push(column);
        }
    }
    for (_, part) in &mut parts {
        part.sort_unstable();
    }
    parts.into_iter().map(|(_, part)| part).collect()
}
