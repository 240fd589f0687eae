//! Reading a table: a reader thread per split or a few for many, event time made right behind the
//! reader, splits merged in event-time order.

mod alignment;
mod board;
mod idle;
mod pipeline;
mod readers;
mod rejects;
mod stamp;
mod watermark;

use std::sync::Arc;

use arrow::array::RecordBatchOptions;
use arrow::record_batch::RecordBatch;

use super::merge::{Inputs, Polled};
use crate::connector::{CancelToken, Position, Read, SplitReader};
use crate::error::{Error, code};
use crate::stream::{StreamBatch, StreamElement, Watermark};

pub(super) use alignment::{Aligned, AlignmentGroup};
pub(super) use board::SplitBoard;
pub use board::{SplitState, SplitStatus};
pub(super) use idle::TimerMark;
pub(super) use pipeline::{SourceShape, SplitCounts, SplitMark, SplitPipeline};
pub(super) use readers::{Reading, SplitInputs, SplitReaders};

/// All rows of a split that ends.
///
/// # Errors
/// What the split can't read; `F001` if it waits for rows.
pub(super) fn read_whole(
    mut pipeline: SplitPipeline,
    cancel: &CancelToken,
) -> Result<Vec<StreamBatch>, Error> {
    let mut batches = Vec::new();
    loop {
        if cancel.is_cancelled() {
            return Err(Error::interrupted());
        }
        // A pipe whose writer is slow has nothing now and then.
        let pipeline::Step::Read(read) = pipeline.next()? else { continue };
        for element in read.elements {
            match element {
                StreamElement::Batch(batch) => batches.push(batch),
                StreamElement::End => return Ok(batches),
                StreamElement::Watermark(_) | StreamElement::Status(_) | StreamElement::Latency(_) => {}
            }
        }
    }
}

/// A split that an earlier run has read to its end.
struct Gone(String);

impl SplitReader for Gone {
    fn name(&self) -> &str {
        &self.0
    }

    fn next(&mut self) -> Result<Read, Error> {
        Ok(Read::End)
    }
}

/// The splits of a source, as an earlier run left them, with those that it did not know behind.
///
/// `shift_us`: how much later the job's clock shows a moment now.
///
/// # Errors
/// `K003` if one is missing that was not read to its end; those of [`SplitReader::seek`].
pub(super) fn resumed(
    found: Vec<Box<dyn SplitReader>>,
    left: &[LeftSplit<'_>],
    shift_us: i64,
    shape: &Arc<SourceShape>,
) -> Result<Vec<SplitPipeline>, Error> {
    let mut found: Vec<Option<Box<dyn SplitReader>>> = found.into_iter().map(Some).collect();
    let mut pipelines = Vec::with_capacity(found.len());
    for LeftSplit { mark, is_over } in left {
        let is_same = |reader: &&mut Option<Box<dyn SplitReader>>| {
            reader.as_ref().is_some_and(|reader| reader.name() == mark.split)
        };
        let reader = found.iter_mut().find(is_same).and_then(Option::take);
        // A connection of the earlier run, say.
        let is_lost = mark.position.as_ref().is_some_and(Position::is_lost) && reader.is_none();
        let pipeline = match (reader, *is_over || is_lost) {
            (_, true) => {
                SplitPipeline::new(Box::new(Gone(mark.split.clone())), Arc::clone(shape)).that_is_over(mark)
            }
            (Some(reader), false) => SplitPipeline::new(reader, Arc::clone(shape)).left_at(mark, shift_us)?,
            (None, false) => {
                let message = format!("{} is gone, which was not read to its end", mark.split);
                return Err(Error::run(code::FOREIGN_CHECKPOINT, message)
                    .hint("Put it back, or begin anew with another folder for checkpoints."));
            }
        };
        pipelines.push(pipeline);
    }
    let new = found.into_iter().flatten();
    pipelines.extend(new.map(|reader| SplitPipeline::new(reader, Arc::clone(shape))));
    Ok(pipelines)
}

/// A split as an earlier run left it.
pub(super) struct LeftSplit<'a> {
    pub(super) mark: &'a SplitMark,
    /// It was read to its end.
    pub(super) is_over: bool,
}

/// Rows that stand in the query, as an input.
pub(super) struct ListedRows(std::vec::IntoIter<StreamElement>);

impl ListedRows {
    pub(super) fn new(rows: &RecordBatch, batch_rows: usize) -> Self {
        let now = std::time::Instant::now();
        let starts = (0..rows.num_rows()).step_by(batch_rows.max(1));
        let batches = starts.map(|start| {
            let length = batch_rows.min(rows.num_rows() - start);
            StreamElement::Batch(StreamBatch::inserts(rows.slice(start, length), now))
        });
        let elements: Vec<_> = batches.chain([StreamElement::End]).collect();
        Self(elements.into_iter())
    }
}

impl Inputs for ListedRows {
    fn len(&self) -> usize {
        1
    }

    fn pending(&self, _input: usize) -> Vec<StreamElement> {
        self.0.as_slice().to_vec()
    }

    fn give_up(&mut self) {
        self.0 = Vec::new().into_iter();
    }

    fn poll(&mut self, _input: usize) -> Result<Polled, Error> {
        Ok(self.0.next().map_or(Polled::Pending, Polled::Element))
    }
}

/// Splits that are not read.
pub(super) struct Muted {
    count: usize,
    marks: Vec<SplitMark>,
}

impl Muted {
    /// So many, left like this.
    pub(super) fn new(count: usize, marks: Vec<SplitMark>) -> Self {
        Self { count, marks }
    }
}

impl Inputs for Muted {
    fn len(&self) -> usize {
        self.count
    }

    fn marks(&self) -> Vec<SplitMark> {
        self.marks.clone()
    }

    fn may_grow(&self) -> bool {
        true
    }

    fn advanced(&mut self) -> Option<Watermark> {
        // Whether the source is idle, or goes on with the clock, is for those to find who read it.
        Some(Watermark::MIN)
    }

    fn poll(&mut self, _input: usize) -> Result<Polled, Error> {
        Ok(Polled::Pending)
    }
}

/// A batch of these columns, also when there are none.
fn batch_of(
    schema: &arrow::datatypes::SchemaRef,
    columns: Vec<arrow::array::ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, Error> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| Error::internal("source", error))
}
