//! Aggregates whose result depends on how rows were cut into batches, made steady.

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{Accumulator, AggregateUDF};

use crate::plan::is_registered;

/// Rows that the accumulator gets at a time.
const CHUNK_ROWS: usize = 1_024;
/// Pieces of batches that are held before they are copied into one.
const MOST_PIECES: usize = 16;

/// Whether an aggregate needs a [`Steady`]: a t-digest merges its centroids once for each batch that it
/// is given, and what one does that a program has registered nobody knows.
pub(super) fn is_unsteady(function: &AggregateUDF) -> bool {
    let name = function.name();
    is_registered(function) || name.starts_with("approx_percentile") || name == "approx_median"
}

/// Gives the rows of a group to an accumulator by 1,024s, however they come.
#[derive(Debug)]
pub(super) struct Steady {
    inner: Box<dyn Accumulator>,
    /// For each piece of a batch its columns.
    held: Vec<Vec<ArrayRef>>,
    rows: usize,
}

impl Steady {
    pub(super) fn new(inner: Box<dyn Accumulator>) -> Self {
        Self { inner, held: Vec::new(), rows: 0 }
    }

    /// Copies the held pieces into one, so that the batches they are from can go.
    fn compact(&mut self) -> Result<()> {
        if self.held.len() > 1 {
            let columns = self.held[0].len();
            let whole = (0..columns)
                .map(|column| {
                    let pieces: Vec<&dyn Array> =
                        self.held.iter().map(|piece| piece[column].as_ref()).collect();
                    concat(&pieces)
                })
                .collect::<std::result::Result<Vec<_>, _>>()?;
            self.held = vec![whole];
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.compact()?;
        self.rows = 0;
        match self.held.pop() {
            Some(values) => self.inner.update_batch(&values),
            None => Ok(()),
        }
    }
}

impl Accumulator for Steady {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = values.first().map_or(0, |column| column.len());
        let mut from = 0;
        while from < rows {
            let taken = (rows - from).min(CHUNK_ROWS - self.rows);
            self.held.push(values.iter().map(|column| column.slice(from, taken)).collect());
            self.rows += taken;
            from += taken;
            if self.rows == CHUNK_ROWS {
                self.flush()?;
            } else if self.held.len() > MOST_PIECES {
                self.compact()?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.flush()?;
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        let held = self.held.iter().flatten().map(|column| column.get_array_memory_size());
        size_of_val(self) + self.inner.size() + held.sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.flush()?;
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.flush()?;
        self.inner.merge_batch(states)
    }
}
