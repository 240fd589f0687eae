//! Aggregates whose result depends on how rows were cut into batches, made steady.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, new_empty_array};
use arrow::compute::concat;
use arrow::datatypes::DataType;
use datafusion_common::utils::SingleRowListArrayBuilder;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{Accumulator, AggregateUDF};
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;

use crate::plan::is_registered;

/// Rows that the accumulator gets at a time.
const CHUNK_ROWS: usize = 1_024;
/// The same where a state is small.
const FEW_ROWS: usize = 64;
/// Pieces of batches that are held before they are copied into one.
const MOST_PIECES: usize = 16;

/// Whether an aggregate needs a [`Steady`]: a t-digest merges its centroids once for each batch that it
/// is given, and what one does that a program has registered nobody knows.
pub(in crate::operator) fn is_unsteady(function: &AggregateUDF) -> bool {
    let name = function.name();
    is_registered(function)
        || name.starts_with("approx_percentile")
        || name == "approx_median"
        || is_of_pairs(name)
}

/// Sums of products around means, which a state that is taken up has otherwise in the last digits.
fn is_of_pairs(name: &str) -> bool {
    name.starts_with("covar_") || name.starts_with("regr_")
}

/// Gives the rows of a group to an accumulator by 1,024s or 64s, however they come. In between there is its state: an
/// accumulator that took up a state may go on otherwise than the one that gave it, so all do.
#[derive(Debug)]
pub(super) struct Steady {
    function: Arc<AggregateFunctionExpr>,
    arg_types: Arc<[DataType]>,
    /// Of all rows that are not held; `None`: there are none.
    state: Option<Vec<ScalarValue>>,
    /// For each piece of a batch its columns.
    held: Vec<Vec<ArrayRef>>,
    rows: usize,
    chunk_rows: usize,
}

impl Steady {
    pub(super) fn new(function: &Arc<AggregateFunctionExpr>, arg_types: &Arc<[DataType]>) -> Self {
        let chunk_rows = if is_of_pairs(function.fun().name()) { FEW_ROWS } else { CHUNK_ROWS };
        let (function, arg_types) = (Arc::clone(function), Arc::clone(arg_types));
        Self { function, arg_types, state: None, held: Vec::new(), rows: 0, chunk_rows }
    }

    /// Columns of the state: whether there is one of the accumulator, it, and the held rows as lists.
    pub(super) fn state_columns(function: &AggregateFunctionExpr, args: usize) -> Result<usize> {
        Ok(1 + function.state_fields()?.len() + args)
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

    /// An accumulator that has what is not held.
    fn without_held(&self) -> Result<Box<dyn Accumulator>> {
        let mut accumulator = self.function.create_accumulator()?;
        if let Some(state) = &self.state {
            let state = state.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>>>()?;
            accumulator.merge_batch(&state)?;
        }
        Ok(accumulator)
    }

    /// An accumulator that has all rows.
    fn whole(&mut self) -> Result<Box<dyn Accumulator>> {
        self.compact()?;
        let mut accumulator = self.without_held()?;
        if let Some(values) = self.held.first() {
            accumulator.update_batch(values)?;
        }
        Ok(accumulator)
    }

    fn flush(&mut self) -> Result<()> {
        self.state = Some(self.whole()?.state()?);
        self.held.clear();
        self.rows = 0;
        Ok(())
    }
}

impl Accumulator for Steady {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = values.first().map_or(0, |column| column.len());
        let mut from = 0;
        while from < rows {
            let taken = (rows - from).min(self.chunk_rows - self.rows);
            self.held.push(values.iter().map(|column| column.slice(from, taken)).collect());
            self.rows += taken;
            from += taken;
            if self.rows == self.chunk_rows {
                self.flush()?;
            } else if self.held.len() > MOST_PIECES {
                self.compact()?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.whole()?.evaluate()
    }

    fn size(&self) -> usize {
        let held = self.held.iter().flatten().map(|column| column.get_array_memory_size());
        let state = self.state.iter().flatten().map(ScalarValue::size);
        size_of_val(self) + state.sum::<usize>() + held.sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.compact()?;
        let mut all = vec![ScalarValue::from(self.state.is_some())];
        match &self.state {
            Some(state) => all.extend(state.iter().cloned()),
            None => {
                for field in self.function.state_fields()? {
                    all.push(ScalarValue::try_from(field.data_type())?);
                }
            }
        }
        for (column, data_type) in self.arg_types.iter().enumerate() {
            let held = match self.held.first() {
                Some(columns) => Arc::clone(&columns[column]),
                None => new_empty_array(data_type),
            };
            all.push(SingleRowListArrayBuilder::new(held).build_list_scalar());
        }
        Ok(all)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some((is_there, columns)) = states.split_first() else { return Ok(()) };
        let is_there = is_there.as_boolean();
        let (inner, held) = columns.split_at(columns.len() - self.arg_types.len());
        for row in 0..is_there.len() {
            if is_there.value(row) {
                self.state = Some(match self.state {
                    None => inner.iter().map(|column| owned(column, row)).collect::<Result<Vec<_>>>()?,
                    Some(_) => {
                        let mut accumulator = self.without_held()?;
                        let other: Vec<ArrayRef> = inner.iter().map(|column| column.slice(row, 1)).collect();
                        accumulator.merge_batch(&other)?;
                        accumulator.state()?
                    }
                });
            }
            let held: Vec<ArrayRef> = held.iter().map(|lists| lists.as_list::<i32>().value(row)).collect();
            self.update_batch(&held)?;
        }
        Ok(())
    }
}

fn owned(column: &ArrayRef, row: usize) -> Result<ScalarValue> {
    let mut value = ScalarValue::try_from_array(column, row)?;
    value.compact();
    Ok(value)
}
