//! The end of a stream: a table's sink, or the caller who asked.

use super::channel::{ChannelProbe, Sender};
use crate::connector::Sink;
use crate::error::Error;
use crate::stream::{StreamBatch, StreamElement};

/// Takes the rows of a query.
pub(super) enum SinkEnd {
    /// A table.
    Table {
        sink: Box<dyn Sink>,
        /// Rows have been written and not flushed.
        is_dirty: bool,
        /// `finish` or `abort` has been called.
        is_closed: bool,
    },
    /// The caller.
    Result(Sender),
}

impl SinkEnd {
    pub(super) fn table(sink: Box<dyn Sink>) -> Self {
        Self::Table { sink, is_dirty: false, is_closed: false }
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
            Self::Table { sink, is_dirty, .. } => {
                *is_dirty = true;
                sink.write(&batch)
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

    /// The end of the rows.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        match self {
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

impl Drop for SinkEnd {
    fn drop(&mut self) {
        if let Self::Table { sink, is_closed: false, .. } = self {
            sink.abort();
        }
    }
}
