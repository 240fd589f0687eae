//! Kept rows as tables of a state: their batches, and which of their rows are kept.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::{Field, Int64Type, Schema, SchemaRef, UInt32Type};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::away::PutAway;
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::state::{misfit, with_schema};
use crate::operator::{BATCH_ROWS, StateReader, StateWriter};

/// Rows that were taken up from a state: those of the slots from 0 on, in the order in which they were handed on.
pub(in crate::operator) struct TakenUp {
    pub(in crate::operator) rows: RecordBatch,
    /// The columns that were handed on beside them.
    pub(in crate::operator) more: Vec<ArrayRef>,
}

impl TakenUp {
    /// The columns beside the rows, all of them boolean.
    pub(in crate::operator) fn flags<const N: usize>(&self) -> Result<[&BooleanArray; N], Error> {
        let flags = self.more.iter().filter_map(|column| column.as_boolean_opt()).collect::<Vec<_>>();
        flags.try_into().map_err(|_| misfit("rows without their columns"))
    }

    /// The columns beside the rows, all of them numbers.
    pub(in crate::operator) fn numbers<const N: usize>(&self) -> Result<[&[i64]; N], Error> {
        let numbers = self.more.iter().filter_map(|column| column.as_primitive_opt::<Int64Type>());
        let numbers = numbers.map(|numbers| numbers.values().as_ref()).collect::<Vec<_>>();
        numbers.try_into().map_err(|_| misfit("rows without their columns"))
    }
}

/// The table of what is told of the rows of a table.
fn kept(name: &str) -> String {
    format!("{name}.kept")
}

/// Batches of fewer rows are written together: each costs as much as some rows.
const FEW_ROWS: usize = 256;

/// Hands on batches as they are, shared but for small ones, and behind them what was put `away`, as a table of state with these keys,
/// see [`StateWriter::table`]; and of another table, in its order, which of their rows are kept, by batch and place there, and `more` of each: columns.
pub(in crate::operator) fn hand_on<'a>(
    state: &mut StateWriter,
    name: &str,
    (schema, keys): (&SchemaRef, &[usize]),
    batches: impl Iterator<Item = &'a RecordBatch>,
    away: impl Iterator<Item = &'a PutAway>,
    kept_rows: impl Iterator<Item = (usize, usize)>,
    more: Vec<ArrayRef>,
) -> Result<(), Error> {
    let (mut before, mut count) = (Vec::new(), 0);
    let counted = batches.inspect(|batch| {
        before.push(count);
        count += batch.num_rows();
    });
    let rows = shared(schema, counted)?;
    let mut spilled = Vec::new();
    for away in away {
        before.push(count);
        count += away.count;
        spilled.push(Arc::clone(&away.rows));
    }
    if u32::try_from(count).is_err() {
        return Err(Error::internal("rows", "more than 4,294,967,295 rows in a state"));
    }
    state.table_and_spilled(name, rows, spilled, keys);
    let places = UInt32Array::from_iter_values(kept_rows.map(|(batch, row)| (before[batch] + row) as u32));
    let mut columns: Vec<ArrayRef> = vec![Arc::new(places)];
    columns.extend(more);
    state.columns_of(name, &kept(name), columns)
}

/// Batches as they are, but for small ones, as a table of state: one batch at least.
pub(in crate::operator) fn shared<'a>(
    schema: &SchemaRef,
    batches: impl Iterator<Item = &'a RecordBatch>,
) -> Result<Vec<RecordBatch>, Error> {
    let schema = nullable(schema);
    let (mut rows, mut small, mut small_rows) = (Vec::new(), Vec::new(), 0);
    for batch in batches {
        let batch = with_schema(&schema, batch.clone())?;
        if batch.num_rows() < FEW_ROWS && small_rows < BATCH_ROWS {
            small_rows += batch.num_rows();
            small.push(batch);
            continue;
        }
        rows.extend(together(&schema, &mut small)?);
        rows.push(batch);
        small_rows = 0;
    }
    rows.extend(together(&schema, &mut small)?);
    if rows.is_empty() {
        rows.push(RecordBatch::new_empty(schema));
    }
    Ok(rows)
}

/// Whatever batches say of names and NULLs.
pub(in crate::operator) fn nullable(schema: &SchemaRef) -> SchemaRef {
    let field = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

/// Small batches as one.
fn together(schema: &SchemaRef, small: &mut Vec<RecordBatch>) -> Result<Option<RecordBatch>, Error> {
    let small = std::mem::take(small);
    match small.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only.clone())),
        several => concat_batches(schema, several).map(Some).map_err(|error| arrow_failure(&error)),
    }
}

/// Takes up the rows that were handed on; `None`: nothing was.
pub(in crate::operator) fn take_up(
    state: &StateReader,
    name: &str,
    schema: &SchemaRef,
) -> Result<Option<TakenUp>, Error> {
    let (Some(all), Some(kept)) = (state.table(name)?, state.columns(&kept(name))?) else {
        return Ok(None);
    };
    let places = kept.first().and_then(|places| places.as_primitive_opt::<UInt32Type>());
    let places = places.ok_or_else(|| misfit("rows without places"))?;
    let taken = all.columns().iter().map(|column| take(column, places, None));
    let taken = taken.collect::<Result<Vec<_>, _>>().map_err(misfit)?;
    let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
    let rows = RecordBatch::try_new_with_options(schema.clone(), taken, &options).map_err(misfit)?;
    Ok(Some(TakenUp { rows, more: kept[1..].to_vec() }))
}
