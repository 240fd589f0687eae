//! Rows of two batches that have the same key.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use arrow::row::{RowConverter, Rows, SortField};
use hashbrown::HashTable;

use crate::error::Error;
use crate::operator::BATCH_ROWS;
use crate::operator::evaluate::{arrow_failure, evaluate_condition, one_nan_and_zero};
use crate::plan::ExprRef;

/// What makes a pair of two rows.
pub(super) struct Matcher {
    keys: [Vec<usize>; 2],
    converter: Option<RowConverter>,
    null_is_equal: bool,
    condition: Option<ExprRef>,
    /// The columns of a pair.
    pair: SchemaRef,
    hasher: foldhash::fast::FixedState,
}

/// The pairs of two batches.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pub(super) first: Vec<u32>,
    pub(super) second: Vec<u32>,
    /// For each row of the first whether it is in a pair.
    pub(super) first_met: Vec<bool>,
}

/// Rows of the second input that those of the first are looked up in.
pub(super) struct Built {
    rows: RecordBatch,
    /// For each row whether it is in a pair.
    pub(super) met: Vec<bool>,
    /// Their keys, and which rows have which; `None`: there are no keys.
    keys: Option<BuiltKeys>,
}

/// Rows of one key are a chain: the table has its head, each row the one after it.
struct BuiltKeys {
    keys: Rows,
    heads: HashTable<u32>,
    next: Vec<u32>,
}

impl Built {
    pub(super) fn rows(&self) -> &RecordBatch {
        &self.rows
    }
}

/// No row of a chain follows.
const END: u32 = u32::MAX;

impl Matcher {
    pub(super) fn try_new(
        keys: &[Vec<usize>; 2],
        null_is_equal: bool,
        condition: Option<&ExprRef>,
        pair: &SchemaRef,
    ) -> Result<Self, Error> {
        let types = keys[0].iter().map(|key| SortField::new(pair.field(*key).data_type().clone()));
        let converter = match keys[0].is_empty() {
            true => None,
            false => Some(RowConverter::new(types.collect()).map_err(|error| arrow_failure(&error))?),
        };
        Ok(Self {
            keys: keys.clone(),
            converter,
            null_is_equal,
            condition: condition.cloned(),
            pair: Arc::clone(pair),
            hasher: foldhash::fast::FixedState::with_seed(0),
        })
    }

    /// Makes rows of the second input ready.
    pub(super) fn build(&self, rows: RecordBatch) -> Result<Built, Error> {
        let met = vec![false; rows.num_rows()];
        let Some(converter) = &self.converter else { return Ok(Built { rows, met, keys: None }) };
        let (keys, nulls) = self.key_rows(converter, &rows, 1)?;
        let mut heads: HashTable<u32> = HashTable::with_capacity(keys.num_rows());
        let mut next = vec![END; keys.num_rows()];
        for row in (0..keys.num_rows() as u32).rev() {
            if nulls[row as usize] {
                continue;
            }
            let key = keys.row(row as usize);
            let entry = heads.entry(
                self.hash(&keys, row),
                |other| keys.row(*other as usize) == key,
                |other| self.hash(&keys, *other),
            );
            match entry {
                hashbrown::hash_table::Entry::Occupied(mut head) => {
                    next[row as usize] = *head.get();
                    *head.get_mut() = row;
                }
                hashbrown::hash_table::Entry::Vacant(place) => {
                    place.insert(row);
                }
            }
        }
        Ok(Built { rows, met, keys: Some(BuiltKeys { keys, heads, next }) })
    }

    /// The pairs of rows of the first input, in their order, then of those of the second.
    pub(super) fn pairs(&self, first: &RecordBatch, second: &mut Built) -> Result<Pairs, Error> {
        let mut pairs = Pairs { first_met: vec![false; first.num_rows()], ..Pairs::default() };
        let mut found = Found { first: Vec::new(), second: Vec::new() };
        let Built { rows: others, met, keys } = second;
        let mut add = |row: u32, other: u32, found: &mut Found| {
            found.add(row, other);
            match found.first.len() >= BATCH_ROWS {
                true => self.keep(found, first, others, met, &mut pairs),
                false => Ok(()),
            }
        };
        match (&self.converter, keys) {
            (Some(converter), Some(built)) => {
                let (probes, nulls) = self.key_rows(converter, first, 0)?;
                for row in 0..probes.num_rows() as u32 {
                    if nulls[row as usize] {
                        continue;
                    }
                    let key = probes.row(row as usize);
                    let hash = self.hash(&probes, row);
                    let head = built.heads.find(hash, |other| built.keys.row(*other as usize) == key);
                    let mut other = head.copied().unwrap_or(END);
                    while other != END {
                        add(row, other, &mut found)?;
                        other = built.next[other as usize];
                    }
                }
            }
            _ => {
                for row in 0..first.num_rows() as u32 {
                    for other in 0..others.num_rows() as u32 {
                        add(row, other, &mut found)?;
                    }
                }
            }
        }
        self.keep(&mut found, first, others, met, &mut pairs)?;
        Ok(pairs)
    }

    fn hash(&self, keys: &Rows, row: u32) -> u64 {
        use std::hash::BuildHasher;
        self.hasher.hash_one(keys.row(row as usize).data())
    }

    /// The keys of an input's rows, and which of them are equal to none.
    fn key_rows(
        &self,
        converter: &RowConverter,
        rows: &RecordBatch,
        input: usize,
    ) -> Result<(Rows, Vec<bool>), Error> {
        let columns: Vec<ArrayRef> =
            self.keys[input].iter().map(|key| one_nan_and_zero(Arc::clone(rows.column(*key)))).collect();
        let mut nulls = vec![false; rows.num_rows()];
        if !self.null_is_equal {
            for column in &columns {
                let Some(valid) = column.logical_nulls() else { continue };
                nulls.iter_mut().zip(valid.iter()).for_each(|(null, valid)| *null |= !valid);
            }
        }
        let keys = converter.convert_columns(&columns).map_err(|error| arrow_failure(&error))?;
        Ok((keys, nulls))
    }

    /// Keeps those of the found pairs that meet the condition.
    fn keep(
        &self,
        found: &mut Found,
        first: &RecordBatch,
        second: &RecordBatch,
        second_met: &mut [bool],
        pairs: &mut Pairs,
    ) -> Result<(), Error> {
        let (rows, others) = (std::mem::take(&mut found.first), std::mem::take(&mut found.second));
        let met = match &self.condition {
            Some(condition) if !rows.is_empty() => {
                let (rows, others) = (UInt32Array::from(rows.clone()), UInt32Array::from(others.clone()));
                Some(evaluate_condition(condition, &beside(first, &rows, second, &others, &self.pair)?)?)
            }
            _ => None,
        };
        for (place, (row, other)) in rows.into_iter().zip(others).enumerate() {
            if met.as_ref().is_none_or(|met| met.value(place)) {
                pairs.first_met[row as usize] = true;
                second_met[other as usize] = true;
                pairs.first.push(row);
                pairs.second.push(other);
            }
        }
        Ok(())
    }
}

/// Pairs of equal keys whose condition is not looked at yet.
struct Found {
    first: Vec<u32>,
    second: Vec<u32>,
}

impl Found {
    fn add(&mut self, row: u32, other: u32) {
        self.first.push(row);
        self.second.push(other);
    }
}

/// Rows of two batches side by side; where an index is NULL there is no row.
pub(super) fn beside(
    first: &RecordBatch,
    rows: &UInt32Array,
    second: &RecordBatch,
    others: &UInt32Array,
    schema: &SchemaRef,
) -> Result<RecordBatch, Error> {
    let take = |batch: &RecordBatch, rows: &UInt32Array| -> Result<Vec<ArrayRef>, Error> {
        let of = |column: &ArrayRef| {
            arrow::compute::take(column, rows, None).map_err(|error| arrow_failure(&error))
        };
        batch.columns().iter().map(of).collect()
    };
    let mut columns = take(first, rows)?;
    columns.extend(take(second, others)?);
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| Error::internal("join", error))
}

/// Rows of a batch under a schema of the same types.
pub(super) fn chosen(
    batch: &RecordBatch,
    rows: &UInt32Array,
    schema: &SchemaRef,
) -> Result<RecordBatch, Error> {
    let taken = take_record_batch(batch, rows).map_err(|error| arrow_failure(&error))?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), taken.columns().to_vec(), &options)
        .map_err(|error| Error::internal("join", error))
}
