//! SUM and AVG of integers and decimals, for groups and for one group.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Field, FieldRef, Float64Type, Int64Type, UInt64Type,
};
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::{Accumulator, EmitTo, GroupsAccumulator};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::NullState;
use hashbrown::HashSet;

use super::exact_sum::{ExactSum, Finish, Finished, add};

/// The state's columns: the low 128 bits; the carry, for decimals; the number of rows, for AVG.
pub(super) fn state_fields(name: &str, finish: Finish) -> Vec<FieldRef> {
    let mut fields = vec![Arc::new(Field::new(format!("{name}[sum]"), low_type(), true))];
    if finish.is_wide() {
        fields.push(Arc::new(Field::new(format!("{name}[carry]"), DataType::Int64, true)));
    }
    if finish.is_avg() {
        fields.push(Arc::new(Field::new(format!("{name}[count]"), DataType::Int64, true)));
    }
    fields
}

/// The low bits travel as a decimal without scale; it may hold more than 38 digits.
fn low_type() -> DataType {
    DataType::Decimal128(38, 0)
}

/// SUM or AVG per group.
pub(super) struct ExactGroups<T: ArrowPrimitiveType> {
    finish: Finish,
    low: Vec<i128>,
    /// Empty unless the sums are wide.
    carry: Vec<i64>,
    /// Empty unless it is AVG.
    counts: Vec<i64>,
    seen: NullState,
    input: std::marker::PhantomData<fn() -> T>,
}

impl<T: ArrowPrimitiveType> ExactGroups<T> {
    /// Without any group.
    pub(super) fn new(finish: Finish) -> Self {
        Self {
            finish,
            low: Vec::new(),
            carry: Vec::new(),
            counts: Vec::new(),
            seen: NullState::new(),
            input: std::marker::PhantomData,
        }
    }

    fn grow(&mut self, groups: usize) {
        self.low.resize(groups, 0);
        if self.finish.is_wide() {
            self.carry.resize(groups, 0);
        }
        if self.finish.is_avg() {
            self.counts.resize(groups, 0);
        }
    }
}

impl<T> GroupsAccumulator for ExactGroups<T>
where
    T: ArrowPrimitiveType + Send,
    T::Native: Into<i128>,
{
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let values = values[0].as_primitive::<T>();
        let low = &mut self.low;
        let carry = &mut self.carry;
        let counts = &mut self.counts;
        let seen = &mut self.seen;
        match (self.finish.is_wide(), self.finish.is_avg()) {
            (false, false) => {
                seen.accumulate(group_indices, values, opt_filter, total_num_groups, |group, value| {
                    low[group] += value.into();
                });
            }
            (false, true) => {
                seen.accumulate(group_indices, values, opt_filter, total_num_groups, |group, value| {
                    low[group] += value.into();
                    counts[group] += 1;
                });
            }
            (true, false) => {
                seen.accumulate(group_indices, values, opt_filter, total_num_groups, |group, value| {
                    add(&mut low[group], &mut carry[group], value.into());
                });
            }
            (true, true) => {
                seen.accumulate(group_indices, values, opt_filter, total_num_groups, |group, value| {
                    add(&mut low[group], &mut carry[group], value.into());
                    counts[group] += 1;
                });
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let low = emit_to.take_needed(&mut self.low);
        let carry = take_used(emit_to, &mut self.carry);
        let counts = take_used(emit_to, &mut self.counts);
        let nulls = self.seen.build(emit_to);
        finished_sums(self.finish, &low, &carry, &counts, nulls)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let low = emit_to.take_needed(&mut self.low);
        let carry = take_used(emit_to, &mut self.carry);
        let counts = take_used(emit_to, &mut self.counts);
        let nulls = self.seen.build(emit_to);
        let low = PrimitiveArray::<Decimal128Type>::new(low.into(), nulls.clone()).with_data_type(low_type());
        let mut state: Vec<ArrayRef> = vec![Arc::new(low)];
        if self.finish.is_wide() {
            state.push(Arc::new(Int64Array::new(carry.into(), nulls.clone())));
        }
        if self.finish.is_avg() {
            state.push(Arc::new(Int64Array::new(counts.into(), nulls)));
        }
        Ok(state)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let columns = state_columns(self.finish, values)?;
        let wide = self.finish.is_wide();
        let avg = self.finish.is_avg();
        let mut row = 0;
        // The closure sees only rows that are not NULL; walk along to find the other columns' values.
        let valid: Vec<usize> = match columns.low.nulls() {
            Some(nulls) => nulls.valid_indices().collect(),
            None => (0..columns.low.len()).collect(),
        };
        let (low, carry, counts) = (&mut self.low, &mut self.carry, &mut self.counts);
        self.seen.accumulate(group_indices, columns.low, None, total_num_groups, |group, value| {
            let at = valid[row];
            row += 1;
            if wide {
                add(&mut low[group], &mut carry[group], value);
                carry[group] += columns.carry.map_or(0, |carry| carry.value(at));
            } else {
                low[group] += value;
            }
            if avg {
                counts[group] += columns.counts.map_or(0, |counts| counts.value(at));
            }
        });
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<T>();
        let filter = opt_filter.map(|filter| {
            let mask = match filter.nulls() {
                Some(nulls) => filter.values() & nulls.inner(),
                None => filter.values().clone(),
            };
            NullBuffer::new(mask)
        });
        let nulls = NullBuffer::union(values.nulls(), filter.as_ref());
        let low: Vec<i128> = values.values().iter().map(|value| (*value).into()).collect();
        let rows = low.len();
        let low = PrimitiveArray::<Decimal128Type>::new(low.into(), nulls.clone()).with_data_type(low_type());
        let mut state: Vec<ArrayRef> = vec![Arc::new(low)];
        if self.finish.is_wide() {
            state.push(Arc::new(Int64Array::new(vec![0; rows].into(), nulls.clone())));
        }
        if self.finish.is_avg() {
            state.push(Arc::new(Int64Array::new(vec![1; rows].into(), nulls)));
        }
        Ok(state)
    }

    fn size(&self) -> usize {
        self.low.capacity() * size_of::<i128>()
            + (self.carry.capacity() + self.counts.capacity()) * size_of::<i64>()
            + self.seen.size()
    }
}

/// Takes the emitted groups' values out of a column that is empty where it is not used.
fn take_used(emit_to: EmitTo, column: &mut Vec<i64>) -> Vec<i64> {
    if column.is_empty() { Vec::new() } else { emit_to.take_needed(column) }
}

struct StateColumns<'a> {
    low: &'a Decimal128Array,
    carry: Option<&'a Int64Array>,
    counts: Option<&'a Int64Array>,
}

fn state_columns(finish: Finish, values: &[ArrayRef]) -> Result<StateColumns<'_>> {
    let expected = 1 + usize::from(finish.is_wide()) + usize::from(finish.is_avg());
    if values.len() != expected {
        return internal_err!("state of {finish:?} has {} columns, not {expected}", values.len());
    }
    let counts_at = 1 + usize::from(finish.is_wide());
    Ok(StateColumns {
        low: values[0].as_primitive::<Decimal128Type>(),
        carry: finish.is_wide().then(|| values[1].as_primitive::<Int64Type>()),
        counts: finish.is_avg().then(|| values[counts_at].as_primitive::<Int64Type>()),
    })
}

/// The results of sums, by group. `carry`: empty unless they are wide; `counts`: unless it is AVG; `nulls`: groups
/// without a value.
///
/// # Errors
/// If a result does not fit its type.
pub(crate) fn finished_sums(
    finish: Finish,
    low: &[i128],
    carry: &[i64],
    counts: &[i64],
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let finished = (0..low.len()).map(|group| {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(group)) {
            return Ok(None);
        }
        let sum = ExactSum { low: low[group], carry: carry.get(group).copied().unwrap_or(0) };
        finish.finish(sum, counts.get(group).copied().unwrap_or(1)).map(Some)
    });
    array(finish, finished, nulls.clone(), low.len())
}

/// The results as an array of the result's type.
fn array(
    finish: Finish,
    values: impl Iterator<Item = Result<Option<Finished>>>,
    nulls: Option<NullBuffer>,
    rows: usize,
) -> Result<ArrayRef> {
    macro_rules! collect {
        ($kind:path, $zero:expr) => {{
            let mut numbers = Vec::with_capacity(rows);
            for value in values {
                numbers.push(match value? {
                    Some($kind(number)) => number,
                    Some(other) => return internal_err!("{finish:?} gave {other:?}"),
                    None => $zero,
                });
            }
            numbers
        }};
    }
    Ok(match finish {
        Finish::SumSigned => {
            let numbers = collect!(Finished::Signed, 0);
            Arc::new(PrimitiveArray::<Int64Type>::new(numbers.into(), nulls))
        }
        Finish::SumUnsigned => {
            let numbers = collect!(Finished::Unsigned, 0);
            Arc::new(PrimitiveArray::<UInt64Type>::new(numbers.into(), nulls))
        }
        Finish::AvgInteger => {
            let numbers = collect!(Finished::Double, 0.0);
            Arc::new(PrimitiveArray::<Float64Type>::new(numbers.into(), nulls))
        }
        Finish::SumDecimal { .. } | Finish::AvgDecimal { .. } => {
            let numbers = collect!(Finished::Decimal, 0);
            Arc::new(
                PrimitiveArray::<Decimal128Type>::new(numbers.into(), nulls)
                    .with_data_type(finish.data_type()),
            )
        }
    })
}

/// SUM or AVG of one group; takes rows away again, for OVER windows.
#[derive(Debug)]
pub(super) struct ExactAccumulator {
    finish: Finish,
    sum: ExactSum,
    count: i64,
}

impl ExactAccumulator {
    /// Over nothing yet.
    pub(super) fn new(finish: Finish) -> Self {
        Self { finish, sum: ExactSum::default(), count: 0 }
    }
}

impl Accumulator for ExactAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each(&values[0], |value| {
            self.sum.add(value);
            self.count += 1;
        })
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each(&values[0], |value| {
            self.sum.subtract(value);
            self.count -= 1;
        })
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.count == 0 {
            return self.finish.scalar(None);
        }
        self.finish.scalar(Some(self.finish.finish(self.sum, self.count)?))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let set = self.count > 0;
        let mut state = vec![ScalarValue::Decimal128(set.then_some(self.sum.low), 38, 0)];
        if self.finish.is_wide() {
            state.push(ScalarValue::Int64(set.then_some(self.sum.carry)));
        }
        if self.finish.is_avg() {
            state.push(ScalarValue::Int64(set.then_some(self.count)));
        }
        Ok(state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let columns = state_columns(self.finish, states)?;
        for row in (0..columns.low.len()).filter(|row| columns.low.is_valid(*row)) {
            let carry = columns.carry.map_or(0, |carry| carry.value(row));
            self.sum.merge(ExactSum { low: columns.low.value(row), carry });
            self.count += columns.counts.map_or(1, |counts| counts.value(row));
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

/// SUM or AVG of the distinct values of one group.
#[derive(Debug)]
pub(super) struct ExactDistinct {
    finish: Finish,
    input: DataType,
    values: HashSet<i128, foldhash::fast::FixedState>,
}

impl ExactDistinct {
    /// Over nothing yet.
    pub(super) fn new(finish: Finish, input: DataType) -> Self {
        Self { finish, input, values: HashSet::default() }
    }

    /// The state's column: the distinct values.
    pub(super) fn state_field(name: &str, input: &DataType) -> FieldRef {
        Arc::new(Field::new_list(
            format!("{name}[distinct]"),
            Field::new_list_field(input.clone(), true),
            true,
        ))
    }
}

impl Accumulator for ExactDistinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each(&values[0], |value| {
            self.values.insert(value);
        })
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.values.is_empty() {
            return self.finish.scalar(None);
        }
        let mut sum = ExactSum::default();
        self.values.iter().for_each(|value| sum.add(*value));
        self.finish.scalar(Some(self.finish.finish(sum, self.values.len() as i64)?))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut values: Vec<i128> = self.values.iter().copied().collect();
        values.sort_unstable();
        let values = values.into_iter().map(|value| match &self.input {
            DataType::Int64 => Ok(ScalarValue::Int64(i64::try_from(value).ok())),
            DataType::UInt64 => Ok(ScalarValue::UInt64(u64::try_from(value).ok())),
            DataType::Decimal128(precision, scale) => {
                Ok(ScalarValue::Decimal128(Some(value), *precision, *scale))
            }
            other => internal_err!("distinct sum of {other}"),
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &self.input))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists = states[0].as_list::<i32>();
        for list in lists.iter().flatten() {
            self.update_batch(&[list])?;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.values.capacity() * (size_of::<i128>() + 1)
    }
}

fn for_each(values: &ArrayRef, mut each: impl FnMut(i128)) -> Result<()> {
    match values.data_type() {
        DataType::Int64 => {
            values.as_primitive::<Int64Type>().iter().flatten().for_each(|value| each(value.into()));
        }
        DataType::UInt64 => {
            values.as_primitive::<UInt64Type>().iter().flatten().for_each(|value| each(value.into()));
        }
        DataType::Decimal128(_, _) => {
            values.as_primitive::<Decimal128Type>().iter().flatten().for_each(each);
        }
        _ => {
            let values = cast(values, &DataType::Int64)?;
            values.as_primitive::<Int64Type>().iter().flatten().for_each(|value| each(value.into()));
        }
    }
    Ok(())
}
