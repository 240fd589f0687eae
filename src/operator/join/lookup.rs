//! Rows joined with a table that was read once.

use std::sync::Arc;

use arrow::array::{Array, BooleanArray, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use crate::error::Error;
use crate::operator::evaluate::{arrow_failure, evaluate_condition};
use crate::operator::keys::{KeyFormat, KeyNumbers};
use crate::operator::window::give_changes;
use crate::operator::{Operator, Output, RowCounts, StateReader, StateWriter};
use crate::plan::{ExprRef, JoinKind, LookupJoinNode};
use crate::stream::{RowKind, RowKinds, RunningWatermark, StreamBatch};

/// The rows of a table, found by key.
pub(crate) struct LookupTable {
    rows: RecordBatch,
    numbers: KeyNumbers,
    /// Of each key the places of its rows, in the order of the table.
    places: Vec<Vec<u32>>,
}

impl LookupTable {
    /// The table of these rows, of this schema.
    ///
    /// # Errors
    /// `P002` for keys of types that can't be compared.
    pub(crate) fn try_new(
        node: &LookupJoinNode,
        schema: &SchemaRef,
        rows: &[RecordBatch],
    ) -> Result<Self, Error> {
        let rows = concat_batches(schema, rows).map_err(|error| arrow_failure(&error))?;
        let keys = KeyFormat::try_new(&node.keys[1], schema)?.rows(&rows)?;
        let (mut numbers, mut places) = (KeyNumbers::default(), Vec::new());
        for row in 0..rows.num_rows() {
            let number = numbers.number(&keys, row) as usize;
            if places.len() <= number {
                places.resize_with(number + 1, Vec::new);
            }
            places[number].push(row as u32);
        }
        Ok(Self { rows, numbers, places })
    }
}

/// Joins each row with the rows of a table that have its key.
///
/// Wakes on: batches. State: none of its own; all subtasks have one table. Order: kept; the rows of a key in the
/// order of the table. Watermark: forwarded unchanged; a pair has the running watermark of its row.
///
/// Source: Flink's lookup join.
pub(in crate::operator) struct LookupJoin {
    table: Arc<LookupTable>,
    keys: KeyFormat,
    key_columns: Vec<usize>,
    is_outer: bool,
    condition: Option<ExprRef>,
    pair: SchemaRef,
    schema: SchemaRef,
}

impl LookupJoin {
    pub(in crate::operator) fn try_new(
        node: &LookupJoinNode,
        schema: &SchemaRef,
        input: &SchemaRef,
        table: Arc<LookupTable>,
    ) -> Result<Self, Error> {
        Ok(Self {
            table,
            keys: KeyFormat::try_new(&node.keys[0], input)?,
            key_columns: node.keys[0].clone(),
            is_outer: node.kind == JoinKind::Left,
            condition: node.condition.clone(),
            pair: Arc::clone(&node.pair),
            schema: Arc::clone(schema),
        })
    }

    /// The columns of pairs; a place of the table may be missing.
    fn pairs(
        &self,
        schema: &SchemaRef,
        batch: &RecordBatch,
        own: &UInt32Array,
        other: &UInt32Array,
    ) -> Result<RecordBatch, Error> {
        let picked = |rows: &RecordBatch, places: &UInt32Array| {
            let columns = rows.columns().iter().map(|column| take(column, places, None));
            columns.collect::<Result<Vec<_>, _>>().map_err(|error| arrow_failure(&error))
        };
        let mut columns = picked(batch, own)?;
        columns.extend(picked(&self.table.rows, other)?);
        let options = RecordBatchOptions::new().with_row_count(Some(own.len()));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
            .map_err(|error| Error::internal("LookupJoin", error))
    }
}

impl Operator for LookupJoin {
    fn name(&self) -> &'static str {
        "LookupJoin"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        let keys = self.keys.rows(&batch.rows)?;
        let nulls: Vec<_> =
            self.key_columns.iter().filter_map(|key| batch.rows.column(*key).logical_nulls()).collect();
        let (mut own, mut other) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            // A NULL is equal to nothing.
            if nulls.iter().any(|nulls| nulls.is_null(row)) {
                continue;
            }
            if let Some(number) = self.table.numbers.find(&keys, row) {
                let places = &self.table.places[number as usize];
                own.extend(std::iter::repeat_n(row as u32, places.len()));
                other.extend_from_slice(places);
            }
        }
        let met = match &self.condition {
            Some(condition) => {
                let (own, other) = (UInt32Array::from(own.clone()), UInt32Array::from(other.clone()));
                evaluate_condition(condition, &self.pairs(&self.pair, &batch.rows, &own, &other)?)?
            }
            None => BooleanArray::from(vec![true; own.len()]),
        };
        let mut pairs = own.iter().zip(&other).zip(met.values()).filter(|(_, met)| *met).peekable();
        let (mut rows, mut places): (Vec<u32>, Vec<Option<u32>>) = (Vec::new(), Vec::new());
        let mut is_one_each = true;
        for row in 0..batch.num_rows() as u32 {
            let before = rows.len();
            while let Some(((_, place), _)) = pairs.next_if(|((own, _), _)| **own == row) {
                rows.push(row);
                places.push(Some(*place));
            }
            if rows.len() == before && self.is_outer {
                rows.push(row);
                places.push(None);
            }
            match rows.len() == before {
                true => out.counts.filtered += 1,
                false => out.counts.used += 1,
            }
            is_one_each &= rows.len() == before + 1;
        }
        let kinds = batch.kinds.as_ref().map(|kinds| {
            let kind = |row: &u32| match (kinds.values()[*row as usize], is_one_each) {
                (kind, true) => kind,
                // Both forms of an update need not stand side by side any more.
                (RowKind::Insert | RowKind::UpdateAfter, false) => RowKind::Insert,
                (RowKind::UpdateBefore | RowKind::Delete, false) => RowKind::Delete,
            };
            RowKinds::new(rows.iter().map(kind).collect::<Vec<_>>())
        });
        let running = batch.running.as_ref().map(|running| {
            RunningWatermark::new(rows.iter().map(|row| running.values()[*row as usize]).collect::<Vec<_>>())
        });
        let joined =
            self.pairs(&self.schema, &batch.rows, &UInt32Array::from(rows), &UInt32Array::from(places))?;
        give_changes(&StreamBatch { rows: joined, kinds, running, arrived: batch.arrived }, out);
        Ok(())
    }

    /// It keeps nothing.
    fn snapshot(&mut self, _state: &mut StateWriter) -> Result<(), Error> {
        Ok(())
    }

    fn restore(&mut self, _state: &mut StateReader, _counts: &mut RowCounts) -> Result<(), Error> {
        Ok(())
    }
}
