//! State that is put away: what operators ask of whoever has room for it.
//!
//! Invariant: nothing here knows where the room is.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;

use crate::error::Error;

/// Keeps rows outside of memory.
pub trait SpillStore: Debug + Send + Sync {
    /// Puts rows away, all of one schema: one batch at least.
    ///
    /// # Errors
    /// `F003` if there is no room for them.
    fn put(&self, rows: &mut dyn Iterator<Item = RecordBatch>) -> Result<Arc<dyn Spilled>, Error>;

    /// How much of what one operator has put away may be in memory again at once, bytes.
    fn share(&self) -> usize;
}

/// Rows that were put away. They are gone when the last one lets go of them.
pub trait Spilled: Debug + Send + Sync {
    /// What they take where they are, bytes.
    fn bytes(&self) -> u64;

    /// The rows again, in pieces.
    ///
    /// # Errors
    /// `F001` if they can't be read any more.
    fn rows(&self) -> Result<SpilledRows, Error>;
}

/// Rows that come back.
pub type SpilledRows = Box<dyn Iterator<Item = Result<RecordBatch, Error>> + Send>;
