//! Groups that wait for a window to close: in memory, or put away.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, UInt32Array, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::UInt64Type;
use arrow::record_batch::RecordBatch;

use super::key_filter;
use super::recipe::Recipe;
use super::table::{Results, Sealed, Table};
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::state::{batch_of, misfit};
use crate::operator::{BATCH_ROWS, KeyFilter, SpillStore, Spilled};

/// Groups with their states, in memory or put away.
pub(super) enum Kept {
    Here(Sealed),
    Away(Away),
}

/// Groups that were put away.
#[derive(Clone)]
pub(super) struct Away {
    pub(super) groups: usize,
    /// The keys of the first of them.
    pub(super) first: Vec<ArrayRef>,
    pub(super) rows: Arc<dyn Spilled>,
}

impl Kept {
    pub(super) fn groups(&self) -> usize {
        match self {
            Self::Here(sealed) => sealed.groups,
            Self::Away(away) => away.groups,
        }
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Here(sealed) => sealed.size(),
            Self::Away(_) => size_of::<Self>(),
        }
    }

    /// Bytes that were put away.
    pub(super) fn spilled(&self) -> u64 {
        match self {
            Self::Here(_) => 0,
            Self::Away(away) => away.rows.bytes(),
        }
    }

    /// Gives each piece of the groups to `take`.
    pub(super) fn each(
        &self,
        recipe: &Recipe,
        mut take: impl FnMut(&Sealed) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::Here(sealed) => take(sealed),
            Self::Away(away) => away.each(recipe, take),
        }
    }

    /// The results of the groups, which stay as they are.
    pub(super) fn results(&self, recipe: &Recipe, ids: &mut Vec<usize>) -> Result<Results, Error> {
        match self {
            Self::Here(sealed) => sealed.results(recipe),
            Self::Away(_) => merge(recipe, [self], ids)?.results(),
        }
    }

    /// Groups with a value in the key at `place`.
    pub(super) fn count_matching(
        &self,
        recipe: &Recipe,
        place: usize,
        filter: &KeyFilter,
    ) -> Result<usize, Error> {
        match self {
            Self::Here(sealed) => sealed.count_matching(place, filter),
            Self::Away(away) => away.count_matching(recipe, place, filter),
        }
    }
}

impl Away {
    /// Gives each piece of the groups to `take`.
    fn each(&self, recipe: &Recipe, mut take: impl FnMut(&Sealed) -> Result<(), Error>) -> Result<(), Error> {
        self.rows.rows()?.try_for_each(|rows| take(&sealed_of(&rows?, recipe)?))
    }

    /// Groups with a value in the key at `place`.
    pub(super) fn count_matching(
        &self,
        recipe: &Recipe,
        place: usize,
        filter: &KeyFilter,
    ) -> Result<usize, Error> {
        let mut count = 0;
        self.each(recipe, |sealed| {
            count += sealed.count_matching(place, filter)?;
            Ok(())
        })?;
        Ok(count)
    }

    /// The groups in a table of their own again, numbered as they were.
    pub(super) fn table(&self, recipe: &Recipe, ranked: bool, ids: &mut Vec<usize>) -> Result<Table, Error> {
        let mut table = Table::try_new(recipe, ranked)?;
        table.expect(self.groups);
        self.each(recipe, |sealed| table.merge(sealed, ids))?;
        Ok(table)
    }
}

impl Sealed {
    /// Groups with a value in the key at `place`.
    fn count_matching(&self, place: usize, filter: &KeyFilter) -> Result<usize, Error> {
        self.keys.get(place).map_or(Ok(0), |keys| key_filter::count(keys, filter))
    }

    /// Puts the groups away.
    pub(super) fn put_away(&self, store: &dyn SpillStore) -> Result<Away, Error> {
        let row = UInt32Array::from_iter_values((self.groups > 0).then_some(0));
        let first = |keys: &ArrayRef| take(keys, &row, None).map_err(|error| arrow_failure(&error));
        let first = self.keys.iter().map(first).collect::<Result<_, _>>()?;
        let rows = rows_of(self)?;
        // In pieces, so that little memory is needed to write and to read them.
        let count = rows.num_rows();
        let pieces = (0..count.max(1)).step_by(BATCH_ROWS);
        let mut pieces = pieces.map(|from| rows.slice(from, BATCH_ROWS.min(count - from)));
        Ok(Away { groups: self.groups, first, rows: store.put(&mut pieces)? })
    }
}

/// The groups of all of `parts`, merged.
pub(super) fn merge<'a>(
    recipe: &Recipe,
    parts: impl IntoIterator<Item = &'a Kept>,
    ids: &mut Vec<usize>,
) -> Result<Table, Error> {
    let mut table = Table::try_new(recipe, true)?;
    for part in parts {
        // At least as many as the largest of them.
        table.expect(part.groups().saturating_sub(table.len()));
        part.each(recipe, |sealed| table.merge(sealed, ids))?;
    }
    Ok(table)
}

/// Groups as rows: keys, when each was first seen if that is known, states.
pub(super) fn rows_of(sealed: &Sealed) -> Result<RecordBatch, Error> {
    let mut columns = sealed.keys.clone();
    if !sealed.first_rows.is_empty() {
        columns.push(Arc::new(UInt64Array::new(sealed.first_rows.clone(), None)));
    }
    columns.extend(sealed.states.iter().flatten().cloned());
    batch_of(columns, sealed.groups)
}

/// The groups of such rows.
pub(super) fn sealed_of(rows: &RecordBatch, recipe: &Recipe) -> Result<Sealed, Error> {
    let columns = rows.columns();
    let keys = recipe.group_schema.fields().len();
    let states: usize = recipe.calls.iter().map(|call| call.state_columns).sum();
    let wrong = || misfit("groups have other columns");
    let first_rows = match columns.len().checked_sub(keys + states) {
        Some(0) => Default::default(),
        Some(1) => columns[keys].as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?.values().clone(),
        _ => return Err(wrong()),
    };
    let mut own = columns[columns.len() - states..].iter().cloned();
    Ok(Sealed {
        groups: rows.num_rows(),
        keys: columns[..keys].to_vec(),
        first_rows,
        states: recipe.calls.iter().map(|call| own.by_ref().take(call.state_columns).collect()).collect(),
    })
}
