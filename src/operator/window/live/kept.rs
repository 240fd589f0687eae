//! States of groups in a checkpoint: columns beside their groups, and tables of different values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, UInt64Array};
use arrow::compute::{concat, take};
use arrow::datatypes::{UInt32Type, UInt64Type};

use super::aggregates::Aggregates;
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::state::misfit;
use crate::operator::value_sets::ValueSets;
use crate::operator::{StateReader, StateWriter};

/// The different values of groups, a table for each column that aggregates count the values of.
#[derive(Default)]
pub(in crate::operator::window) struct Distincts(Vec<Values>);

#[derive(Default)]
struct Values {
    /// The place of each value's group in the table of groups.
    of: Vec<u32>,
    values: Vec<ArrayRef>,
    bits: Vec<u64>,
}

/// What was kept of groups, to be read.
pub(in crate::operator::window) struct KeptStates {
    columns: Vec<ArrayRef>,
    distinct: Vec<(UInt32Array, ArrayRef, UInt64Array)>,
}

impl Distincts {
    /// Hands on the values, behind the groups: the rows of the table `parent`.
    pub(in crate::operator::window) fn write(
        self,
        parent: &str,
        state: &mut StateWriter,
    ) -> Result<(), Error> {
        for (index, table) in self.0.into_iter().enumerate() {
            let pieces: Vec<&dyn Array> = table.values.iter().map(AsRef::as_ref).collect();
            let values = concat(&pieces).map_err(|error| arrow_failure(&error))?;
            let (of, bits) = (UInt32Array::from(table.of), UInt64Array::from(table.bits));
            state.columns_of(parent, &name(index), vec![Arc::new(of), values, Arc::new(bits)])?;
        }
        Ok(())
    }

    /// Adds the values of groups, the first of which is row `first` of their table.
    pub(super) fn add(
        &mut self,
        place: usize,
        first: u32,
        groups: &[u32],
        sets: &ValueSets<u64>,
    ) -> Result<(), Error> {
        self.0.resize_with(self.0.len().max(place + 1), Values::default);
        let (of, values, bits) = sets.columns(groups)?;
        let table = &mut self.0[place];
        table.of.extend(of.into_iter().map(|group| first + group));
        table.values.push(values);
        table.bits.extend(bits);
        Ok(())
    }
}

impl KeptStates {
    /// `columns`: those beside the groups.
    pub(in crate::operator::window) fn read(
        columns: Vec<ArrayRef>,
        state: &StateReader,
    ) -> Result<Self, Error> {
        let mut distinct = Vec::new();
        while let Some(table) = state.columns(&name(distinct.len()))? {
            let wrong = || misfit("different values have other columns");
            let [of, values, bits] = table.as_slice() else { return Err(wrong()) };
            let of = of.as_primitive_opt::<UInt32Type>().ok_or_else(wrong)?;
            let bits = bits.as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?;
            distinct.push((of.clone(), Arc::clone(values), bits.clone()));
        }
        Ok(Self { columns, distinct })
    }

    /// Puts the values that rows of the table of groups have into these groups.
    pub(super) fn values(
        &self,
        place: usize,
        rows: &[u32],
        groups: &[u32],
        sets: &mut ValueSets<u64>,
    ) -> Result<(), Error> {
        let (of, values, bits) =
            self.distinct.get(place).ok_or_else(|| misfit("different values are missing"))?;
        // The values of a group stand together, by the order of groups.
        let (mut places, mut into) = (Vec::new(), Vec::new());
        for (row, group) in rows.iter().zip(groups) {
            let from = of.values().partition_point(|of| of < row);
            let own = of.values()[from..].iter().take_while(|of| *of == row).count();
            places.extend(from as u32..(from + own) as u32);
            into.resize(places.len(), *group);
        }
        let taken = take(values, &UInt32Array::from(places.clone()), None);
        let taken = taken.map_err(|error| arrow_failure(&error))?;
        let values = sets.values(&taken)?;
        for (row, (group, place)) in into.into_iter().zip(places).enumerate() {
            if let Some(known) = sets.add(group, &values, row) {
                *known = bits.value(place as usize);
            }
        }
        Ok(())
    }
}

impl Aggregates {
    /// The states of groups as columns; their different values come into `distincts`. `first`: the row of the first
    /// of them in the table of groups.
    pub(in crate::operator::window) fn write(
        &mut self,
        groups: &[u32],
        first: u32,
        distincts: &mut Distincts,
    ) -> Result<Vec<ArrayRef>, Error> {
        for (place, sets) in self.value_sets().enumerate() {
            distincts.add(place, first, groups, sets)?;
        }
        let mut columns = Vec::new();
        for accumulators in self.each() {
            columns.extend(accumulators.write(groups)?);
        }
        Ok(columns)
    }

    /// Takes up the states of these rows of the table of groups, each into the group beside it.
    pub(in crate::operator::window) fn read(
        &mut self,
        rows: &[u32],
        groups: &[u32],
        states: &KeptStates,
    ) -> Result<(), Error> {
        for (place, sets) in self.value_sets().enumerate() {
            states.values(place, rows, groups, sets)?;
        }
        let mut columns = states.columns.iter();
        self.each().iter_mut().try_for_each(|accumulators| accumulators.read(&mut columns, rows, groups))
    }
}

fn name(place: usize) -> String {
    format!("distinct_{place}")
}

/// The next column of states.
pub(super) fn next<'a>(columns: &mut std::slice::Iter<'a, ArrayRef>) -> Result<&'a ArrayRef, Error> {
    columns.next().ok_or_else(|| misfit("a state is missing"))
}
