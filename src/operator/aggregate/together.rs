//! The aggregates of a group together: what several of them read is computed once.

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::distinct::DistinctValues;
use super::{Reversible, Step, bound, needs_firsts, one_nan_and_zero_if_float, reads, states};
use crate::error::Error;
use crate::operator::evaluate::{evaluate, evaluate_condition};
use crate::operator::{StateReader, StateWriter};
use crate::plan::{AggregateCall, ExprRef};

/// Aggregates over the same rows, which may be taken away again.
pub(in crate::operator) struct Aggregates {
    /// Arguments and filters, each once.
    args: Vec<ExprRef>,
    filters: Vec<ExprRef>,
    members: Vec<Member>,
    /// Of different values those that read one column, by the argument.
    distinct: Vec<(usize, DistinctValues)>,
}

struct Member {
    args: Vec<usize>,
    filter: Option<usize>,
    states: Box<dyn Reversible>,
    /// Of different values: the one of `distinct`, and its place there.
    distinct: Option<(usize, usize)>,
}

/// The place of an expression in a list; it is added if it is not there.
fn place(exprs: &mut Vec<ExprRef>, expr: &ExprRef) -> usize {
    exprs.iter().position(|known| known == expr).unwrap_or_else(|| {
        exprs.push(ExprRef::clone(expr));
        exprs.len() - 1
    })
}

impl Aggregates {
    pub(in crate::operator) fn try_new(calls: &[AggregateCall], input: &SchemaRef) -> Result<Self, Error> {
        let (mut args, mut filters) = (Vec::new(), Vec::new());
        let (mut members, mut distinct): (Vec<Member>, Vec<(usize, DistinctValues)>) =
            (Vec::with_capacity(calls.len()), Vec::new());
        for call in calls {
            let (exprs, types) = reads(call, input)?;
            let own: Vec<usize> = exprs.iter().map(|expr| place(&mut args, expr)).collect();
            let states = states(call, &types, true);
            let of_firsts = match (needs_firsts(call, &states), own.first()) {
                (true, Some(arg)) => {
                    let known = distinct.iter().position(|(known, _)| known == arg);
                    let known = match known {
                        Some(known) => known,
                        None => {
                            distinct.push((*arg, DistinctValues::try_new(&types[0])?));
                            distinct.len() - 1
                        }
                    };
                    Some((known, distinct[known].1.join()))
                }
                _ => None,
            };
            members.push(Member {
                args: own,
                filter: call.filter.as_ref().map(|filter| place(&mut filters, filter)),
                states: states.0,
                distinct: of_firsts,
            });
        }
        Ok(Self { args, filters, members, distinct })
    }

    /// Does the steps over the rows of a batch: for each aggregate a value for each [`Step::Give`]. Rows that a
    /// FILTER removes are not added.
    ///
    /// # Errors
    /// `R002` if an aggregate fails on a row, or a value does not fit its type.
    pub(in crate::operator) fn run(
        &mut self,
        steps: &[Step],
        rows: &RecordBatch,
        groups: usize,
    ) -> Result<Vec<ArrayRef>, Error> {
        let args = self.args.iter().map(|arg| evaluate(arg, rows).map(one_nan_and_zero_if_float));
        let args = args.collect::<Result<Vec<_>, _>>()?;
        let kept = self.filters.iter().map(|filter| evaluate_condition(filter, rows));
        let kept = kept.collect::<Result<Vec<BooleanArray>, _>>()?;
        let filtered: Vec<Vec<Step>> = kept.iter().map(|kept| filtered(steps, kept)).collect();
        let mut passed = Vec::with_capacity(self.distinct.len());
        for (place, (arg, values)) in self.distinct.iter_mut().enumerate() {
            let own = self.members.iter().filter(|member| member.distinct.is_some_and(|of| of.0 == place));
            let kept: Vec<_> = own.map(|member| member.filter.map(|filter| &kept[filter])).collect();
            values.grow(groups);
            passed.push(values.pass(steps, &args[*arg], &kept)?);
        }
        let run = |member: &mut Member| {
            member.states.grow(groups)?;
            let own: Vec<ArrayRef> = member.args.iter().map(|arg| ArrayRef::clone(&args[*arg])).collect();
            let steps = match (member.distinct, member.filter) {
                (Some((place, member)), _) => passed[place][member].as_slice(),
                (None, Some(filter)) => filtered[filter].as_slice(),
                (None, None) => steps,
            };
            member.states.run(steps, &own)
        };
        self.members.iter_mut().map(run).collect()
    }

    /// Hands on the states of these groups, which are the rows of the table [`GROUPS`](super::GROUPS) in their order.
    ///
    /// # Errors
    /// `P002` for an aggregate whose state can't be written.
    pub(in crate::operator) fn snapshot(
        &mut self,
        groups: &[u32],
        state: &mut StateWriter,
    ) -> Result<(), Error> {
        self.grow(bound(groups))?;
        for (place, (_, values)) in self.distinct.iter().enumerate() {
            state.scoped(&format!("distinct{place}"), |state| values.snapshot(groups, state))?;
        }
        for (place, member) in self.members.iter_mut().enumerate() {
            state.scoped(&format!("aggregate{place}"), |state| member.states.snapshot(groups, state))?;
        }
        Ok(())
    }

    /// Takes up states that [`Aggregates::snapshot`] handed on. `groups`: the numbers of the rows of
    /// [`GROUPS`](super::GROUPS).
    ///
    /// # Errors
    /// `K002` if they are of other aggregates.
    pub(in crate::operator) fn restore(
        &mut self,
        groups: &[u32],
        state: &mut StateReader,
    ) -> Result<(), Error> {
        self.grow(bound(groups))?;
        for (place, (_, values)) in self.distinct.iter_mut().enumerate() {
            state.scoped(&format!("distinct{place}"), |state| values.restore(groups, state))?;
        }
        for (place, member) in self.members.iter_mut().enumerate() {
            state.scoped(&format!("aggregate{place}"), |state| member.states.restore(groups, state))?;
        }
        Ok(())
    }

    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        self.distinct.iter_mut().for_each(|(_, values)| values.grow(groups));
        self.members.iter_mut().try_for_each(|member| member.states.grow(groups))
    }

    /// Memory in bytes, estimated.
    pub(in crate::operator) fn size(&self) -> usize {
        let distinct: usize = self.distinct.iter().map(|(_, values)| values.size()).sum();
        distinct + self.members.iter().map(|member| member.states.size()).sum::<usize>()
    }
}

/// The steps without rows that a FILTER removes.
pub(super) fn filtered(steps: &[Step], kept: &BooleanArray) -> Vec<Step> {
    let keeps = |step: &&Step| match step {
        Step::Add { row, .. } | Step::Remove { row, .. } => kept.value(*row as usize),
        Step::Give { .. } | Step::Clear { .. } => true,
    };
    steps.iter().filter(keeps).copied().collect()
}
