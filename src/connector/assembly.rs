//! Puts the columns of a format and the metadata of a file together as a query wants them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, Int64Array, RecordBatchOptions, StringArray, TimestampMillisecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;

use super::{Lines, ReadRequest};
use crate::error::Error;

/// What is known of a split beside its rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct SplitFacts {
    /// What a person knows it by: a path.
    pub(crate) path: String,
    pub(crate) size: Option<u64>,
    pub(crate) modified_ms: Option<i64>,
}

/// Metadata of every source.
pub(crate) fn source_metadata() -> Vec<(&'static str, DataType)> {
    vec![(INGESTION_TIME, instant())]
}

/// Metadata of files.
pub(crate) fn file_metadata() -> Vec<(&'static str, DataType)> {
    let mut keys = source_metadata();
    keys.extend([
        ("file.path", DataType::Utf8),
        ("file.name", DataType::Utf8),
        ("file.line", DataType::Int64),
        ("file.size", DataType::Int64),
        ("file.modification-time", instant()),
    ]);
    keys
}

fn instant() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some(Arc::from("UTC")))
}

/// How the requested columns are made of decoded ones and metadata.
#[derive(Debug, Clone)]
pub(crate) struct Assembly {
    schema: SchemaRef,
    metadata: Vec<Option<String>>,
    physical: SchemaRef,
}

impl Assembly {
    pub(crate) fn new(request: &ReadRequest) -> Self {
        let is_physical = |index: &usize| request.metadata.get(*index).is_none_or(Option::is_none);
        let fields: Vec<Arc<Field>> = (0..request.schema.fields().len())
            .filter(is_physical)
            .map(|index| Arc::clone(&request.schema.fields()[index]))
            .collect();
        Self {
            schema: Arc::clone(&request.schema),
            metadata: request.metadata.clone(),
            physical: Arc::new(Schema::new(fields)),
        }
    }

    /// The columns that a format must decode, in order.
    pub(crate) fn physical(&self) -> &SchemaRef {
        &self.physical
    }

    /// The batch as requested.
    ///
    /// # Errors
    /// An internal error if the columns are not as promised.
    pub(crate) fn batch(
        &self,
        decoded: Vec<ArrayRef>,
        rows: usize,
        lines: &Lines,
        facts: &SplitFacts,
    ) -> Result<RecordBatch, Error> {
        let mut decoded = decoded.into_iter();
        let columns = self.schema.fields().iter().enumerate().map(|(index, field)| {
            match self.metadata.get(index).and_then(Option::as_deref) {
                Some(key) => {
                    let column = metadata_column(key, rows, lines, facts)?;
                    cast(&column, field.data_type()).map_err(|error| Error::internal("source", error))
                }
                None => decoded.next().ok_or_else(|| Error::internal("source", "a column is missing")),
            }
        });
        let columns = columns.collect::<Result<Vec<_>, Error>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|error| Error::internal("source", error))
    }
}

/// The metadata that the source stamps with its clock.
pub const INGESTION_TIME: &str = "ingestion-time";

fn metadata_column(key: &str, rows: usize, lines: &Lines, facts: &SplitFacts) -> Result<ArrayRef, Error> {
    let text = |text: &str| Arc::new(StringArray::from(vec![text; rows])) as ArrayRef;
    let time = |time: Option<i64>| {
        Arc::new(TimestampMillisecondArray::from(vec![time; rows]).with_timezone("UTC")) as ArrayRef
    };
    Ok(match key {
        "file.path" => text(&facts.path),
        "file.name" => text(facts.path.rsplit('/').next().unwrap_or(&facts.path)),
        "file.line" => {
            Arc::new((0..rows).map(|row| Some(lines.of(row) as i64)).collect::<Int64Array>()) as ArrayRef
        }
        "file.size" => Arc::new(Int64Array::from(vec![facts.size.map(|size| size as i64); rows])),
        "file.modification-time" => time(facts.modified_ms),
        // The source stamps it, with its own clock.
        INGESTION_TIME => time(Some(0)),
        other => return Err(Error::internal("source", format!("unknown metadata column \"{other}\""))),
    })
}

/// Milliseconds since 1970.
pub(crate) fn millis(time: SystemTime) -> Option<i64> {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).ok(),
        Err(before) => i64::try_from(before.duration().as_millis()).ok().map(|ms| -ms),
    }
}
