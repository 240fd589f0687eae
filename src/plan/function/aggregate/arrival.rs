//! `first_value` and `last_value` by arrival. NULLs are ignored, as in Flink, unless the query
//! says `RESPECT NULLS`; with `ORDER BY` DataFusion's answer.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array, new_null_array};
use arrow::compute::{interleave, take};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, ScalarValue, not_impl_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};
use datafusion_functions_aggregate::first_last::{first_value_udaf, last_value_udaf};

/// The name that `first_value(x) RESPECT NULLS` is called by inside.
pub(in crate::plan::function) const FIRST_RESPECTING_NULLS: &str = "first_value_respecting_nulls";
/// The name that `last_value(x) RESPECT NULLS` is called by inside.
pub(in crate::plan::function) const LAST_RESPECTING_NULLS: &str = "last_value_respecting_nulls";

/// FIRST_VALUE or LAST_VALUE.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Arrival {
    is_first: bool,
    ignore_nulls: bool,
    signature: Signature,
    default: Arc<AggregateUDF>,
}

impl Arrival {
    /// FIRST_VALUE.
    pub(super) fn first(ignore_nulls: bool) -> Self {
        Self { is_first: true, ignore_nulls, signature: signature(), default: first_value_udaf() }
    }

    /// LAST_VALUE.
    pub(super) fn last(ignore_nulls: bool) -> Self {
        Self { is_first: false, ignore_nulls, signature: signature(), default: last_value_udaf() }
    }

    fn ordered<'a>(&self, args: AccumulatorArgs<'a>) -> AccumulatorArgs<'a> {
        AccumulatorArgs { ignore_nulls: self.ignore_nulls, ..args }
    }
}

fn signature() -> Signature {
    Signature::any(1, Volatility::Immutable)
}

impl AggregateUDFImpl for Arrival {
    fn name(&self) -> &str {
        match (self.is_first, self.ignore_nulls) {
            (true, true) => "first_value",
            (false, true) => "last_value",
            (true, false) => FIRST_RESPECTING_NULLS,
            (false, false) => LAST_RESPECTING_NULLS,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types[0].clone())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if !args.ordering_fields.is_empty() {
            return self.default.state_fields(args);
        }
        Ok(vec![
            Arc::new(Field::new(format!("{}[value]", args.name), args.return_type().clone(), true)),
            Arc::new(Field::new(format!("{}[is_set]", args.name), DataType::Boolean, true)),
        ])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if !args.order_bys.is_empty() {
            return self.default.accumulator(self.ordered(args));
        }
        Ok(Box::new(ArrivalAccumulator {
            is_first: self.is_first,
            ignore_nulls: self.ignore_nulls,
            value: ScalarValue::try_from(args.return_field.data_type())?,
            is_set: false,
        }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        args.order_bys.is_empty() || self.default.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if !args.order_bys.is_empty() {
            return self.default.create_groups_accumulator(self.ordered(args));
        }
        Ok(Box::new(ArrivalGroups::new(
            self.is_first,
            self.ignore_nulls,
            args.return_field.data_type().clone(),
        )))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        not_impl_err!("{} over a frame that moves", args.name)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Beneficial
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }

    fn supports_null_handling_clause(&self) -> bool {
        false
    }
}

/// Where a group's value is: chunk, row. Chunk 0 holds one NULL and stands for "none yet".
type Location = (u32, u32);
const UNSET: Location = (0, 0);

/// The first or last value per group. Values stay in Arrow arrays: each batch adds one chunk with
/// the rows that won in it, and chunks are joined when most of what they hold was beaten.
struct ArrivalGroups {
    is_first: bool,
    ignore_nulls: bool,
    data_type: DataType,
    locations: Vec<Location>,
    chunks: Vec<ArrayRef>,
    /// Rows of all chunks.
    held_rows: usize,
    /// Rows of a batch that won, kept for its memory only.
    picks: Vec<u32>,
}

impl ArrivalGroups {
    fn new(is_first: bool, ignore_nulls: bool, data_type: DataType) -> Self {
        let none = new_null_array(&data_type, 1);
        Self {
            is_first,
            ignore_nulls,
            data_type,
            locations: Vec::new(),
            chunks: vec![none],
            held_rows: 0,
            picks: Vec::new(),
        }
    }

    /// `takes_part` says of each row whether it counts.
    fn pick(
        &mut self,
        values: &ArrayRef,
        group_indices: &[usize],
        groups: usize,
        takes_part: impl Fn(usize) -> bool,
    ) -> Result<()> {
        self.locations.resize(groups, UNSET);
        let chunk = self.chunks.len() as u32;
        self.picks.clear();
        for (row, group) in group_indices.iter().enumerate() {
            if !takes_part(row) {
                continue;
            }
            let location = &mut self.locations[*group];
            if location.0 == chunk {
                if !self.is_first {
                    self.picks[location.1 as usize] = row as u32;
                }
            } else if !self.is_first || *location == UNSET {
                *location = (chunk, self.picks.len() as u32);
                self.picks.push(row as u32);
            }
        }
        if self.picks.is_empty() {
            return Ok(());
        }
        let rows = UInt32Array::from(self.picks.clone());
        self.chunks.push(take(values, &rows, None)?);
        self.held_rows += rows.len();
        if self.held_rows > 8192 + 2 * self.locations.len() || self.chunks.len() > 1024 {
            self.compact()?;
        }
        Ok(())
    }

    fn compact(&mut self) -> Result<()> {
        let set: Vec<usize> = (0..self.locations.len()).filter(|i| self.locations[*i] != UNSET).collect();
        let locations: Vec<Location> = set.iter().map(|i| self.locations[*i]).collect();
        let joined = self.gather(&locations)?;
        for (row, group) in set.iter().enumerate() {
            self.locations[*group] = (1, row as u32);
        }
        self.chunks.truncate(1);
        self.held_rows = joined.len();
        self.chunks.push(joined);
        Ok(())
    }

    fn gather(&self, locations: &[Location]) -> Result<ArrayRef> {
        if locations.is_empty() {
            return Ok(arrow::array::new_empty_array(&self.data_type));
        }
        let chunks: Vec<&dyn Array> = self.chunks.iter().map(AsRef::as_ref).collect();
        let indices: Vec<(usize, usize)> =
            locations.iter().map(|(chunk, row)| (*chunk as usize, *row as usize)).collect();
        Ok(interleave(&chunks, &indices)?)
    }

    fn emit(&mut self, emit_to: EmitTo) -> Result<(ArrayRef, Vec<Location>)> {
        let locations = emit_to.take_needed(&mut self.locations);
        let values = self.gather(&locations)?;
        if self.locations.is_empty() {
            self.chunks.truncate(1);
            self.held_rows = 0;
        } else {
            self.compact()?;
        }
        Ok((values, locations))
    }
}

/// Whether a filter lets a row through; NULL does not.
fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

impl GroupsAccumulator for ArrivalGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let nulls = if self.ignore_nulls { values[0].logical_nulls() } else { None };
        match (nulls, opt_filter) {
            (None, None) => self.pick(&values[0], group_indices, total_num_groups, |_| true),
            (nulls, filter) => self.pick(&values[0], group_indices, total_num_groups, |row| {
                passes(filter, row) && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
            }),
        }
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.emit(emit_to)?.0)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (values, locations) = self.emit(emit_to)?;
        let is_set: Vec<bool> = locations.iter().map(|location| *location != UNSET).collect();
        Ok(vec![values, Arc::new(BooleanArray::from(is_set))])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        let is_set = values[1].as_boolean();
        self.pick(&values[0], group_indices, total_num_groups, |row| passes(Some(is_set), row))
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let nulls = if self.ignore_nulls { values[0].logical_nulls() } else { None };
        let is_set: Vec<bool> = (0..values[0].len())
            .map(|row| passes(opt_filter, row) && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)))
            .collect();
        Ok(vec![Arc::clone(&values[0]), Arc::new(BooleanArray::from(is_set))])
    }

    fn size(&self) -> usize {
        self.locations.capacity() * size_of::<Location>()
            + self.picks.capacity() * size_of::<u32>()
            + self.chunks.iter().map(|chunk| chunk.get_array_memory_size()).sum::<usize>()
    }
}

/// The first or last value of one group.
#[derive(Debug)]
struct ArrivalAccumulator {
    is_first: bool,
    ignore_nulls: bool,
    value: ScalarValue,
    is_set: bool,
}

impl ArrivalAccumulator {
    fn pick(&mut self, values: &ArrayRef, takes_part: impl Fn(usize) -> bool) -> Result<()> {
        if self.is_first && self.is_set {
            return Ok(());
        }
        let mut rows = 0..values.len();
        let row = if self.is_first {
            rows.find(|row| takes_part(*row))
        } else {
            rows.rfind(|row| takes_part(*row))
        };
        if let Some(row) = row {
            self.value = ScalarValue::try_from_array(values, row)?;
            self.value.compact();
            self.is_set = true;
        }
        Ok(())
    }
}

impl Accumulator for ArrivalAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let nulls = if self.ignore_nulls { values[0].logical_nulls() } else { None };
        self.pick(&values[0], |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), ScalarValue::Boolean(Some(self.is_set))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let is_set = states[1].as_boolean();
        self.pick(&states[0], |row| passes(Some(is_set), row))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.value.size()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};

    use super::*;

    fn int(values: Vec<Option<i64>>) -> ArrayRef {
        Arc::new(Int64Array::from(values))
    }

    #[test]
    fn nulls_are_ignored_and_arrival_decides() {
        for (is_first, expected) in
            [(true, vec![Some(1), Some(7), None]), (false, vec![Some(3), Some(7), None])]
        {
            let mut groups = ArrivalGroups::new(is_first, true, DataType::Int64);
            groups.update_batch(&[int(vec![None, Some(1), Some(2), None])], &[0, 0, 0, 2], None, 3).unwrap();
            groups.update_batch(&[int(vec![Some(3), Some(7), None])], &[0, 1, 0], None, 3).unwrap();
            assert_eq!(&groups.evaluate(EmitTo::All).unwrap(), &int(expected));
        }
    }

    #[test]
    fn respect_nulls_tells_a_null_from_nothing() {
        let mut groups = ArrivalGroups::new(true, false, DataType::Int64);
        groups.update_batch(&[int(vec![None])], &[0], None, 2).unwrap();
        let filter = BooleanArray::from(vec![true, false]);
        groups.update_batch(&[int(vec![Some(5), Some(6)])], &[0, 1], Some(&filter), 2).unwrap();
        let state = groups.state(EmitTo::All).unwrap();
        assert_eq!(state[1].as_boolean(), &BooleanArray::from(vec![true, false]));
        let mut merged = ArrivalGroups::new(true, false, DataType::Int64);
        merged.merge_batch(&state, &[0, 1], 2).unwrap();
        merged.update_batch(&[int(vec![Some(8), Some(9)])], &[0, 1], None, 2).unwrap();
        assert_eq!(&merged.evaluate(EmitTo::All).unwrap(), &int(vec![None, Some(9)]));
    }

    #[test]
    fn many_batches_are_joined_and_part_of_the_groups_can_be_emitted() {
        let mut groups = ArrivalGroups::new(false, true, DataType::Utf8);
        for round in 0..3000 {
            let values: ArrayRef =
                Arc::new(StringArray::from_iter_values((0..7).map(|group| format!("{group}-{round}"))));
            groups.update_batch(&[values], &[0, 1, 2, 3, 4, 5, 6], None, 7).unwrap();
        }
        assert!(groups.chunks.len() <= 1026, "{} chunks", groups.chunks.len());
        let first = groups.evaluate(EmitTo::First(2)).unwrap();
        assert_eq!(first.as_string::<i32>(), &StringArray::from(vec!["0-2999", "1-2999"]));
        let rest = groups.evaluate(EmitTo::All).unwrap();
        assert_eq!(
            rest.as_string::<i32>(),
            &StringArray::from(vec!["2-2999", "3-2999", "4-2999", "5-2999", "6-2999"])
        );
    }
}
