//! Rows of two inputs that have the same key, found piece by piece: there may be any number of pairs.

use std::hash::BuildHasher;
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
use crate::stream::{bytes_of, rows_of_width};

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

/// Rows of the first input whose pairs are found one after another, in their order, then in that of the second.
pub(super) struct Probing {
    pub(super) rows: RecordBatch,
    /// For each row whether it has been in a pair.
    pub(super) met: Vec<bool>,
    /// Their keys, and which are equal to none; `None`: each row goes with each of the others.
    keys: Option<(Rows, Vec<bool>)>,
    /// So many pairs are looked at at once: fewer of wide rows.
    most: usize,
    /// The row that is looked at.
    row: u32,
    /// The row of the second that is looked at next with it; `None`: the row was not looked for yet.
    other: Option<u32>,
}

/// Rows of the second input that those of the first are looked up in.
pub(super) struct Built {
    pub(super) rows: RecordBatch,
    /// For each row whether it has been in a pair.
    pub(super) met: Vec<bool>,
    keys: Option<BuiltKeys>,
}

/// Pairs, and how many were looked at to find them: of wide rows, each counts as several.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pub(super) first: Vec<u32>,
    pub(super) second: Vec<u32>,
    pub(super) looked_at: usize,
}

/// Rows of one key are a chain: the table has its head, each row the one after it.
struct BuiltKeys {
    keys: Rows,
    heads: HashTable<u32>,
    next: Vec<u32>,
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

    /// Rows of the second input, none of which has been in a pair yet.
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
                hashbrown::hash_table::Entry::Vacant(entry) => {
                    entry.insert(row);
                }
            }
        }
        Ok(Built { rows, met, keys: Some(BuiltKeys { keys, heads, next }) })
    }

    /// Rows of the first input, none of which has been looked at yet.
    pub(super) fn probe(&self, rows: RecordBatch, built: &Built) -> Result<Probing, Error> {
        let keys = self.converter.as_ref().map(|converter| self.key_rows(converter, &rows, 0)).transpose()?;
        let width = |rows: &RecordBatch| bytes_of(rows).div_ceil(rows.num_rows().max(1));
        let most = rows_of_width(width(&rows) + width(&built.rows), BATCH_ROWS);
        Ok(Probing { met: vec![false; rows.num_rows()], keys, rows, most, row: 0, other: None })
    }

    fn hash(&self, rows: &Rows, row: u32) -> u64 {
        self.hasher.hash_one(rows.row(row as usize).data())
    }

    /// The next pairs, of at most a batch that are looked at. `None`: there are no more.
    pub(super) fn next(&self, probing: &mut Probing, built: &mut Built) -> Result<Option<Pairs>, Error> {
        let (rows, others) = self.candidates(probing, built);
        if rows.is_empty() {
            return Ok(None);
        }
        let mut pairs = Pairs { looked_at: rows.len() * BATCH_ROWS / probing.most, ..Pairs::default() };
        let met = match &self.condition {
            Some(condition) => {
                let (rows, others) = (UInt32Array::from(rows.clone()), UInt32Array::from(others.clone()));
                let side_by_side = beside(&probing.rows, &rows, &built.rows, &others, &self.pair)?;
                Some(evaluate_condition(condition, &side_by_side)?)
            }
            None => None,
        };
        for (place, (row, other)) in rows.into_iter().zip(others).enumerate() {
            if met.as_ref().is_none_or(|met| met.value(place)) {
                probing.met[row as usize] = true;
                built.met[other as usize] = true;
                pairs.first.push(row);
                pairs.second.push(other);
            }
        }
        Ok(Some(pairs))
    }

    /// Pairs of equal keys whose condition is not looked at yet; none: there are no more.
    fn candidates(&self, probing: &mut Probing, built: &Built) -> (Vec<u32>, Vec<u32>) {
        let (mut rows, mut others) = (Vec::new(), Vec::new());
        let (all, all_others) = (probing.rows.num_rows() as u32, built.rows.num_rows() as u32);
        while probing.row < all {
            let row = probing.row;
            let mut other = probing.other.take().unwrap_or_else(|| match (&probing.keys, &built.keys) {
                (Some((_, nulls)), _) if nulls[row as usize] => END,
                (Some((keys, _)), Some(built)) => {
                    let key = keys.row(row as usize);
                    let is_equal = |other: &u32| built.keys.row(*other as usize) == key;
                    built.heads.find(self.hash(keys, row), is_equal).copied().unwrap_or(END)
                }
                _ => 0,
            });
            while other < all_others {
                if rows.len() == probing.most {
                    probing.other = Some(other);
                    return (rows, others);
                }
                rows.push(row);
                others.push(other);
                other = built.keys.as_ref().map_or(other + 1, |built| built.next[other as usize]);
            }
            probing.row += 1;
        }
        (rows, others)
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
