//! What an aggregation computes: keys, grouping sets, accumulators, over evaluated columns.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array, UInt64Array, new_null_array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion_expr::GroupsAccumulator;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::GroupsAccumulatorAdapter;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;
use datafusion_physical_expr::expressions::{Column, Literal};

use super::grouped::Form;
use super::steady::{Steady, is_unsteady};
use crate::error::Error;
use crate::operator::BATCH_ROWS;
use crate::operator::evaluate::{arrow_failure, evaluate, evaluate_condition, failure, one_nan_and_zero};
use crate::plan::{ExprRef, WindowAggregateNode, grouping_id, grouping_id_type};

/// What to compute of a group of rows, fixed for the life of an operator.
pub(super) struct Recipe {
    keys: Vec<ExprRef>,
    /// For each grouping set: which keys are NULL, and its id. Empty: the plain grouping.
    pub(super) sets: Vec<GroupingSet>,
    pub(super) id_type: DataType,
    pub(super) calls: Vec<Call>,
    /// The group columns by which the input is spread over subtasks.
    pub(super) spread_keys: Vec<usize>,
    /// Types of the keys, and of the grouping id if there is one; empty: one group without a key.
    pub(super) group_schema: SchemaRef,
}

pub(super) struct GroupingSet {
    pub(super) is_null: Vec<bool>,
    pub(super) id: u64,
}

/// One aggregate.
pub(super) struct Call {
    pub(super) function: Arc<AggregateFunctionExpr>,
    args: Vec<ExprRef>,
    filter: Option<ExprRef>,
    /// Of its arguments, where rows are given by so many at a time.
    steady: Option<Arc<[DataType]>>,
    is_native: bool,
    pub(super) form: Form,
    pub(super) state_columns: usize,
}

impl Call {
    /// The types of its arguments.
    pub(super) fn arg_types(&self, input: &SchemaRef) -> Result<Vec<DataType>, Error> {
        let types = self.args.iter().map(|arg| arg.data_type(input));
        types.collect::<Result<_, _>>().map_err(|error| Error::internal("WindowAggregate", error))
    }

    /// Whether both have the same argument, whose value does not depend on their filters.
    pub(super) fn reads_the_column_of(&self, other: &Self) -> bool {
        self.args == other.args && self.args.iter().all(is_safe)
    }

    /// Accumulators for the groups of one table.
    pub(super) fn accumulator(&self) -> Result<Box<dyn GroupsAccumulator>, Error> {
        if self.is_native {
            return self.function.create_groups_accumulator().map_err(failure);
        }
        let function = Arc::clone(&self.function);
        if let Some(types) = &self.steady {
            let types = Arc::clone(types);
            let steady = move || Ok(Box::new(Steady::new(&function, &types)) as Box<_>);
            return Ok(Box::new(GroupsAccumulatorAdapter::new(steady)));
        }
        Ok(Box::new(GroupsAccumulatorAdapter::new(move || function.create_accumulator())))
    }
}

impl Call {
    /// Accumulators with these states, group by group.
    pub(super) fn accumulator_of(
        &self,
        state: &[ArrayRef],
        groups: usize,
    ) -> Result<Box<dyn GroupsAccumulator>, Error> {
        let mut accumulator = self.accumulator()?;
        // In pieces, so that the numbers of groups take little memory; but others go through all groups each time.
        let piece = if self.is_native { BATCH_ROWS } else { groups.max(1) };
        let mut ids: Vec<usize> = (0..groups.min(piece)).collect();
        for from in (0..groups).step_by(piece) {
            if from > 0 {
                ids.iter_mut().for_each(|id| *id += piece);
            }
            let many = piece.min(groups - from);
            ids.truncate(many);
            let state: Vec<ArrayRef> = state.iter().map(|column| column.slice(from, many)).collect();
            // It takes a group that was not among those of a piece for one that had a value in it.
            accumulator.merge_batch(&state, &ids, from + many).map_err(failure)?;
        }
        Ok(accumulator)
    }
}

/// The columns that an aggregation needs of some rows, in arrival order.
#[derive(Clone)]
pub(super) struct Rows {
    pub(super) len: usize,
    pub(super) keys: Vec<ArrayRef>,
    /// For each aggregate its arguments.
    pub(super) args: Vec<Vec<ArrayRef>>,
    pub(super) filters: Vec<Option<BooleanArray>>,
    /// When each row arrived, as a number that grows.
    pub(super) arrival: Arrival,
}

/// When rows arrived, as numbers that grow.
#[derive(Clone)]
pub(super) enum Arrival {
    /// One after another.
    From(u64),
    /// One number a row.
    Each(ScalarBuffer<u64>),
}

impl Arrival {
    pub(super) fn of(&self, row: usize) -> u64 {
        match self {
            Self::From(first) => first + row as u64,
            Self::Each(numbers) => numbers[row],
        }
    }
}

impl Recipe {
    pub(super) fn try_new(node: &WindowAggregateNode, input: &SchemaRef) -> Result<Self, Error> {
        let wrong = |error| Error::internal("WindowAggregate", error);
        let mut key_types = Vec::with_capacity(node.keys.len());
        for key in &node.keys {
            key_types.push(key.data_type(input).map_err(wrong)?);
        }
        Self::with_key_types(node, key_types, input)
    }

    /// For keys that are columns and not expressions. `input`: what the aggregates' arguments are of; the final phase
    /// has none.
    pub(super) fn with_key_types(
        node: &WindowAggregateNode,
        key_types: Vec<DataType>,
        input: &SchemaRef,
    ) -> Result<Self, Error> {
        let mut fields: Vec<Field> = key_types
            .into_iter()
            .enumerate()
            .map(|(index, data_type)| Field::new(format!("key_{index}"), data_type, true))
            .collect();
        let sets = node.grouping_sets.as_deref().unwrap_or_default();
        let id_type = grouping_id_type(node.keys.len(), sets);
        if node.grouping_sets.is_some() {
            fields.push(Field::new("id", id_type.clone(), false));
        }
        // Where states are sent, they are spread by all group columns; rows by those that all sets have.
        let is_in_all_sets = |key: &usize| !sets.iter().any(|set| set.get(*key) == Some(&true));
        let spread_keys = match node.has_exact_parts() {
            true => (0..fields.len()).collect(),
            false => (0..node.keys.len()).filter(is_in_all_sets).collect(),
        };
        let calls = node
            .aggregates
            .iter()
            .map(|call| {
                let function = Arc::clone(&call.function);
                let all = function.all_expressions();
                let args: Vec<ExprRef> = all.args.into_iter().chain(all.order_by_exprs).collect();
                let is_native = function.groups_accumulator_supported();
                let mut state_columns = function.state_fields().map_err(failure)?.len();
                let filter = call.filter.clone();
                let form = Form::of(&function)?;
                let mut call = Call { function, args, filter, steady: None, is_native, form, state_columns };
                if !is_native && is_unsteady(call.function.fun()) {
                    call.steady = Some(call.arg_types(input)?.into());
                    state_columns =
                        Steady::state_columns(&call.function, call.args.len()).map_err(failure)?;
                }
                Ok(Call { state_columns, ..call })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(Self {
            keys: node.keys.clone(),
            sets: sets
                .iter()
                .enumerate()
                .map(|(index, is_null)| GroupingSet {
                    is_null: is_null.clone(),
                    id: grouping_id(sets, index),
                })
                .collect(),
            id_type,
            calls,
            spread_keys,
            group_schema: Arc::new(Schema::new(fields)),
        })
    }

    /// Number of keys, without the grouping id.
    pub(super) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Groups that a row goes to.
    pub(super) fn groups_of_a_row(&self) -> u64 {
        self.sets.len().max(1) as u64
    }

    /// Evaluates keys, arguments and filters of rows that are all to be used.
    ///
    /// # Errors
    /// `R002` if an expression fails on a row.
    pub(super) fn evaluate(&self, rows: &RecordBatch, arrival: Arrival) -> Result<Rows, Error> {
        let keys = self
            .keys
            .iter()
            .map(|key| evaluate(key, rows).map(one_nan_and_zero))
            .collect::<Result<Vec<_>, _>>()?;
        let mut args = Vec::with_capacity(self.calls.len());
        let mut filters = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            let filter = call.filter.as_ref().map(|filter| evaluate_condition(filter, rows)).transpose()?;
            let values = call
                .args
                .iter()
                .map(|arg| match &filter {
                    Some(filter) if !is_safe(arg) => evaluate_where(arg, rows, filter),
                    _ => evaluate(arg, rows),
                })
                .map(|values| match values {
                    Ok(values) if call.function.is_distinct() => Ok(one_nan_and_zero(values)),
                    values => values,
                })
                .collect::<Result<Vec<_>, _>>()?;
            args.push(values);
            filters.push(filter);
        }
        Ok(Rows { len: rows.num_rows(), keys, args, filters, arrival })
    }

    /// The inverse of [`Rows::into_columns`]. `keys`: how many of them there are among the columns.
    pub(super) fn rows_of(&self, columns: Vec<ArrayRef>, keys: usize, arrival: Arrival, len: usize) -> Rows {
        let mut columns = columns.into_iter();
        let keys = columns.by_ref().take(keys).collect();
        let args = self.calls.iter().map(|call| columns.by_ref().take(call.args.len()).collect()).collect();
        let mut filters = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            let condition = call.filter.as_ref().and_then(|_| columns.next());
            filters.push(condition.and_then(|condition| condition.as_boolean_opt().cloned()));
        }
        Rows { len, keys, args, filters, arrival }
    }

    /// The group columns of rows, for each grouping set.
    pub(super) fn keys_of_sets(&self, rows: &Rows) -> Result<Vec<Vec<ArrayRef>>, Error> {
        if self.sets.is_empty() {
            return Ok(vec![rows.keys.clone()]);
        }
        self.sets.iter().map(|set| self.masked(&rows.keys, rows.len, set)).collect()
    }

    /// The group columns of `keys` for one grouping set: NULL where the set says so, then its id.
    pub(super) fn masked(
        &self,
        keys: &[ArrayRef],
        len: usize,
        set: &GroupingSet,
    ) -> Result<Vec<ArrayRef>, Error> {
        let mut columns: Vec<ArrayRef> = keys
            .iter()
            .zip(&set.is_null)
            .map(
                |(key, is_null)| {
                    if *is_null { new_null_array(key.data_type(), len) } else { Arc::clone(key) }
                },
            )
            .collect();
        let ids = UInt64Array::from_value(set.id, len);
        columns.push(cast(&ids, &self.id_type).map_err(|error| arrow_failure(&error))?);
        Ok(columns)
    }
}

/// An expression that can't fail on a row that a filter has removed.
fn is_safe(expr: &ExprRef) -> bool {
    expr.downcast_ref::<Column>().is_some() || expr.downcast_ref::<Literal>().is_some()
}

/// The values of `expr` for the rows that `filter` keeps, NULL for the others: what is filtered
/// away can't fail.
fn evaluate_where(expr: &ExprRef, rows: &RecordBatch, filter: &BooleanArray) -> Result<ArrayRef, Error> {
    let kept = arrow::compute::filter_record_batch(rows, filter).map_err(|error| arrow_failure(&error))?;
    let values = evaluate(expr, &kept)?;
    let mut next = 0;
    let positions: UInt32Array = filter
        .values()
        .iter()
        .map(|is_kept| {
            is_kept.then(|| {
                next += 1;
                next - 1
            })
        })
        .collect();
    take(&values, &positions, None).map_err(|error| arrow_failure(&error))
}

impl Rows {
    /// The columns, one after another: keys, arguments, conditions.
    pub(super) fn into_columns(self) -> Vec<ArrayRef> {
        let conditions = self.filters.into_iter().flatten();
        let conditions = conditions.map(|condition| Arc::new(condition) as ArrayRef);
        self.keys.into_iter().chain(self.args.into_iter().flatten()).chain(conditions).collect()
    }

    /// The rows at `indices`, in that order.
    pub(super) fn take(&self, indices: &UInt32Array) -> Result<Self, Error> {
        let pick = |column: &ArrayRef| take(column, indices, None).map_err(|error| arrow_failure(&error));
        let mut filters = Vec::with_capacity(self.filters.len());
        for filter in &self.filters {
            filters.push(match filter {
                None => None,
                Some(filter) => {
                    let taken = take(filter, indices, None).map_err(|error| arrow_failure(&error))?;
                    Some(taken.as_boolean().clone())
                }
            });
        }
        Ok(Self {
            len: indices.len(),
            keys: self.keys.iter().map(pick).collect::<Result<_, _>>()?,
            args: self
                .args
                .iter()
                .map(|args| args.iter().map(pick).collect::<Result<_, _>>())
                .collect::<Result<_, _>>()?,
            filters,
            arrival: Arrival::Each(
                indices.values().iter().map(|row| self.arrival.of(*row as usize)).collect::<Vec<_>>().into(),
            ),
        })
    }

    /// `len` rows from `offset`, without a copy.
    pub(super) fn slice(&self, offset: usize, len: usize) -> Self {
        Self {
            len,
            keys: self.keys.iter().map(|key| key.slice(offset, len)).collect(),
            args: self
                .args
                .iter()
                .map(|args| args.iter().map(|arg| arg.slice(offset, len)).collect())
                .collect(),
            filters: self
                .filters
                .iter()
                .map(|filter| filter.as_ref().map(|filter| filter.slice(offset, len)))
                .collect(),
            arrival: match &self.arrival {
                Arrival::From(first) => Arrival::From(first + offset as u64),
                Arrival::Each(numbers) => Arrival::Each(numbers.slice(offset, len)),
            },
        }
    }
}
