//! The end of a stream: a table's sink, or the caller who asked.

use arrow::array::BooleanArray;
use arrow::compute::filter_record_batch;
use serde_json::Value;

use super::channel::{ChannelProbe, Sender};
use super::cut::SinkCut;
use crate::connector::Sink;
use crate::error::Error;
use crate::stream::{RowKind, RowKinds, StreamBatch, StreamElement};

/// Takes the rows of a query.
pub(super) enum SinkEnd {
    /// A table.
    Table {
        sink: Box<dyn Sink>,
        /// It does without the old forms of rows that change.
        upsert: bool,
        /// Rows have been written and not flushed.
        is_dirty: bool,
        /// `finish` or `abort` has been called.
        is_closed: bool,
        /// It is finished when the last checkpoint is there.
        is_deferred: bool,
    },
    /// The caller.
    Result(Sender),
}

impl SinkEnd {
    pub(super) fn table(sink: Box<dyn Sink>, upsert: bool) -> Self {
        Self::Table { sink, upsert, is_dirty: false, is_closed: false, is_deferred: false }
    }

    pub(super) fn has_room(&self) -> bool {
        match self {
            Self::Table { .. } => true,
            Self::Result(sender) => sender.has_room(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Table { .. } => true,
            Self::Result(sender) => sender.is_open(),
        }
    }

    /// The way to the caller.
    pub(super) fn probe(&self) -> Option<ChannelProbe> {
        match self {
            Self::Table { .. } => None,
            Self::Result(sender) => Some(sender.probe()),
        }
    }

    pub(super) fn write(&mut self, batch: StreamBatch) -> Result<(), Error> {
        match self {
            Self::Table { sink, upsert, is_dirty, .. } => {
                *is_dirty = true;
                match (*upsert, &batch.kinds) {
                    (true, Some(kinds)) => sink.write(&without_old_forms(&batch, kinds)?),
                    _ => sink.write(&batch),
                }
            }
            Self::Result(sender) => {
                sender.send(StreamElement::Batch(batch));
                Ok(())
            }
        }
    }

    /// Gives what was written to a reader that waits.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        match self {
            Self::Table { sink, is_dirty, .. } if *is_dirty => {
                *is_dirty = false;
                sink.flush()
            }
            Self::Table { .. } | Self::Result(_) => Ok(()),
        }
    }

    /// Makes all rows so far safe, for a checkpoint.
    pub(super) fn prepare(&mut self) -> Result<Option<Value>, Error> {
        match self {
            Self::Table { is_closed: true, .. } | Self::Result(_) => Ok(None),
            Self::Table { sink, .. } => sink.prepare(),
        }
    }

    /// Makes visible what was prepared.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        match self {
            Self::Table { is_closed: true, .. } | Self::Result(_) => Ok(()),
            Self::Table { sink, .. } => sink.commit(),
        }
    }

    /// Rows of a query that its caller has not taken.
    pub(super) fn waiting(&self) -> Vec<StreamElement> {
        match self {
            Self::Table { .. } => Vec::new(),
            Self::Result(sender) => sender.waiting(),
        }
    }

    /// Goes on where another one was cut; a table was opened so.
    pub(super) fn restore(&mut self, cut: &SinkCut) {
        match self {
            Self::Table { .. } => {}
            Self::Result(sender) => cut.pending.iter().for_each(|element| sender.send(element.clone())),
        }
    }

    /// From now on the end of the rows only prepares it: somebody else closes it.
    pub(super) fn defer(&mut self) {
        if let Self::Table { is_deferred, .. } = self {
            *is_deferred = true;
        }
    }

    /// Whether it is a table that somebody else closes.
    pub(super) fn is_deferred(&self) -> bool {
        matches!(self, Self::Table { is_deferred: true, .. })
    }

    /// Nothing follows, and all is covered by a checkpoint.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        if let Self::Table { is_deferred, .. } = self {
            *is_deferred = false;
        }
        self.finish()
    }

    /// The end of the rows.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        match self {
            Self::Table { is_deferred: true, .. } => Ok(()),
            Self::Table { sink, is_closed, .. } => {
                sink.finish()?;
                *is_closed = true;
                Ok(())
            }
            Self::Result(sender) => {
                sender.send(StreamElement::End);
                Ok(())
            }
        }
    }
}

/// The rows of a batch but for `-U`.
fn without_old_forms(batch: &StreamBatch, kinds: &RowKinds) -> Result<StreamBatch, Error> {
    let is_new = |kind: &RowKind| *kind != RowKind::UpdateBefore;
    let mask: BooleanArray = kinds.values().iter().map(|kind| Some(is_new(kind))).collect();
    let rows = filter_record_batch(&batch.rows, &mask).map_err(|error| Error::internal("sink", error))?;
    let kinds = RowKinds::new(kinds.values().iter().copied().filter(is_new).collect::<Vec<_>>());
    Ok(StreamBatch { rows, kinds: Some(kinds), running: None, arrived: batch.arrived })
}

impl Drop for SinkEnd {
    fn drop(&mut self) {
        if let Self::Table { sink, is_closed: false, .. } = self {
            sink.abort();
        }
    }
}
