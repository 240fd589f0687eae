//! The aggregates of groups together: what several of them read is looked up once.

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::datatypes::SchemaRef;

use super::super::recipe::{Recipe, Rows};
use super::accumulator::{Accumulators, Input, Use, accumulators, is_of_firsts};
use crate::error::Error;
use crate::operator::value_sets::ValueSets;

/// The states of all aggregates, by the number of the group.
pub(in crate::operator::window) struct Aggregates {
    each: Vec<Box<dyn Accumulators>>,
    distinct: Vec<Distinct>,
    /// Of each aggregate the one of `distinct` that it counts the values of, and its bit there.
    firsts: Vec<Option<(usize, u32)>>,
}

/// The values of a column that aggregates count once, each those that its FILTER keeps: one look-up a row.
struct Distinct {
    /// At most 64; each has a bit, in their order.
    aggregates: Vec<usize>,
    /// Of each value the bits of those that have counted it.
    values: ValueSets<u64>,
    /// For each row of the last batch the bits of those that have not counted its value before.
    firsts: Vec<u64>,
}

impl Aggregates {
    pub(in crate::operator::window) fn try_new(recipe: &Recipe, input: &SchemaRef) -> Result<Self, Error> {
        let each = recipe.calls.iter().map(|call| accumulators(call, input)).collect::<Result<_, _>>()?;
        let (mut distinct, mut firsts): (Vec<Distinct>, Vec<_>) = (Vec::new(), Vec::new());
        for (index, call) in recipe.calls.iter().enumerate() {
            let types = call.arg_types(input)?;
            let [arg] = types.as_slice() else {
                firsts.push(None);
                continue;
            };
            if !is_of_firsts(call, arg) {
                firsts.push(None);
                continue;
            }
            let shares = |known: &Distinct| {
                known.aggregates.len() < 64 && recipe.calls[known.aggregates[0]].reads_the_column_of(call)
            };
            let place = match distinct.iter().position(shares) {
                Some(place) => place,
                None => {
                    let values = ValueSets::try_new(arg)?;
                    distinct.push(Distinct { aggregates: Vec::new(), values, firsts: Vec::new() });
                    distinct.len() - 1
                }
            };
            firsts.push(Some((place, distinct[place].aggregates.len() as u32)));
            distinct[place].aggregates.push(index);
        }
        Ok(Self { each, distinct, firsts })
    }

    /// Makes room for so many groups.
    pub(in crate::operator::window) fn grow(&mut self, groups: usize) -> Result<(), Error> {
        self.distinct.iter_mut().for_each(|distinct| distinct.values.grow(groups));
        self.each.iter_mut().try_for_each(|accumulators| accumulators.grow(groups))
    }

    /// Adds rows.
    pub(in crate::operator::window) fn update(&mut self, uses: &[Use], rows: &Rows) -> Result<(), Error> {
        self.distinct.iter_mut().try_for_each(|distinct| distinct.update(uses, rows))?;
        for (index, accumulators) in self.each.iter_mut().enumerate() {
            accumulators.update(uses, input(rows, index, &self.distinct, &self.firsts))?;
        }
        Ok(())
    }

    /// Adds rows; gives the values of each row's group before and after it, a column an aggregate.
    pub(in crate::operator::window) fn update_each(
        &mut self,
        uses: &[Use],
        rows: &Rows,
    ) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>), Error> {
        self.distinct.iter_mut().try_for_each(|distinct| distinct.update(uses, rows))?;
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (index, accumulators) in self.each.iter_mut().enumerate() {
            let input = input(rows, index, &self.distinct, &self.firsts);
            let (old, new) = accumulators.update_each(uses, input)?;
            before.push(old);
            after.push(new);
        }
        Ok((before, after))
    }

    /// Whether the states of two groups make the one of all their rows, exactly and in any order.
    pub(in crate::operator::window) fn join(&self) -> bool {
        self.distinct.is_empty() && self.each.iter().all(|accumulators| accumulators.joins())
    }

    /// Adds what `from` has to `into`, where states [join](Self::join).
    pub(in crate::operator::window) fn join_groups(&mut self, into: u32, from: u32) {
        self.each.iter_mut().for_each(|accumulators| accumulators.join(into, from));
    }

    /// Makes a group what it was without rows.
    ///
    /// # Errors
    /// `R002` if an aggregate has no such state.
    pub(in crate::operator::window) fn clear(&mut self, group: u32) -> Result<(), Error> {
        self.distinct.iter_mut().for_each(|distinct| distinct.values.clear(group, |_| ()));
        self.each.iter_mut().try_for_each(|accumulators| accumulators.clear(group))
    }

    /// The present values of some groups, a column an aggregate.
    pub(in crate::operator::window) fn values(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        self.each.iter_mut().map(|accumulators| accumulators.values(groups)).collect()
    }

    /// The different values that aggregates count.
    pub(super) fn value_sets(&mut self) -> impl Iterator<Item = &mut ValueSets<u64>> {
        self.distinct.iter_mut().map(|distinct| &mut distinct.values)
    }

    /// The states of each aggregate.
    pub(super) fn each(&mut self) -> &mut [Box<dyn Accumulators>] {
        &mut self.each
    }

    /// Memory in bytes, estimated.
    pub(in crate::operator::window) fn size(&self) -> usize {
        let distinct: usize = self.distinct.iter().map(|distinct| distinct.values.size()).sum();
        distinct + self.each.iter().map(|accumulators| accumulators.size()).sum::<usize>()
    }
}

impl Distinct {
    /// Takes the values of rows.
    fn update(&mut self, uses: &[Use], rows: &Rows) -> Result<(), Error> {
        self.firsts.clear();
        let arg = rows.args[self.aggregates[0]].first();
        let arg = arg.ok_or_else(|| Error::internal("aggregate", "an argument lacks"))?;
        let values = self.values.values(arg)?;
        // Those without a FILTER read every row.
        let (mut all, mut filters): (u64, Vec<(u32, &BooleanArray)>) = (0, Vec::new());
        for (bit, aggregate) in (0..).zip(&self.aggregates) {
            match &rows.filters[*aggregate] {
                None => all |= 1 << bit,
                Some(filter) => filters.push((bit, filter)),
            }
        }
        self.firsts.reserve(uses.len());
        for one in uses {
            let row = one.row as usize;
            let kept = |filter: &BooleanArray| u64::from(filter.is_valid(row) && filter.value(row));
            let bits = filters.iter().fold(all, |bits, (bit, filter)| bits | kept(filter) << bit);
            let known = if bits == 0 { None } else { self.values.add(one.group, &values, row) };
            self.firsts.push(known.map_or(0, |known| {
                let firsts = bits & !*known;
                *known |= bits;
                firsts
            }));
        }
        Ok(())
    }
}

/// What an aggregate reads of evaluated rows.
fn input<'a>(
    rows: &'a Rows,
    aggregate: usize,
    distinct: &'a [Distinct],
    firsts: &[Option<(usize, u32)>],
) -> Input<'a> {
    Input {
        args: &rows.args[aggregate],
        filter: rows.filters[aggregate].as_ref(),
        firsts: firsts[aggregate].map(|(place, bit)| (distinct[place].firsts.as_slice(), bit)),
    }
}
