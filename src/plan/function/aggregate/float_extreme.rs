//! `min` and `max`: DataFusion's, but floats by one total order.
//!
//! The order of floats: −∞ < … < −0.0 < 0.0 < … < ∞ < NaN, all NaN being one value. So the result
//! does not depend on the order of the rows.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature,
};
use datafusion_functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::NullState;

/// The place of a float in the order: greater number, greater value.
fn rank(value: f64) -> i64 {
    if value.is_nan() {
        return i64::MAX;
    }
    let bits = value.to_bits() as i64;
    // Negative numbers have their order turned round by flipping all bits but the sign.
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// The float at a place in the order.
fn float_at(rank: i64) -> f64 {
    if rank == i64::MAX {
        return f64::NAN;
    }
    f64::from_bits((rank ^ (((rank >> 63) as u64) >> 1) as i64) as u64)
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float16 | DataType::Float32 | DataType::Float64)
}

/// MIN or MAX.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FloatExtreme {
    is_max: bool,
    default: Arc<AggregateUDF>,
}

impl FloatExtreme {
    /// MIN.
    pub(super) fn min() -> Self {
        Self { is_max: false, default: min_udaf() }
    }

    /// MAX.
    pub(super) fn max() -> Self {
        Self { is_max: true, default: max_udaf() }
    }
}

impl AggregateUDFImpl for FloatExtreme {
    fn name(&self) -> &str {
        self.default.name()
    }

    fn signature(&self) -> &Signature {
        self.default.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.default.return_type(arg_types)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.default.coerce_types(arg_types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.default.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if is_float(args.return_field.data_type()) {
            let data_type = args.return_field.data_type().clone();
            return Ok(Box::new(FloatAccumulator { is_max: self.is_max, best: None, data_type }));
        }
        self.default.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.default.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if is_float(args.return_field.data_type()) {
            return Ok(Box::new(FloatGroups {
                is_max: self.is_max,
                ranks: Vec::new(),
                seen: NullState::new(),
                data_type: args.return_field.data_type().clone(),
            }));
        }
        self.default.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.default.create_sliding_accumulator(args)
    }

    fn is_descending(&self) -> Option<bool> {
        Some(self.is_max)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.default.inner().set_monotonicity(data_type)
    }
}

/// The best float per group.
struct FloatGroups {
    is_max: bool,
    ranks: Vec<i64>,
    seen: NullState,
    data_type: DataType,
}

impl FloatGroups {
    /// What every value of a group beats, or equals.
    fn worst(&self) -> i64 {
        if self.is_max { i64::MIN } else { i64::MAX }
    }

    fn array(&self, ranks: &[i64], nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let values: Vec<f64> = ranks.iter().map(|rank| float_at(*rank)).collect();
        Ok(cast(&Float64Array::new(values.into(), nulls), &self.data_type)?)
    }
}

impl GroupsAccumulator for FloatGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let worst = self.worst();
        self.ranks.resize(total_num_groups, worst);
        let ranks = &mut self.ranks;
        let widened;
        let values = if values[0].data_type() == &DataType::Float64 {
            values[0].as_primitive::<Float64Type>()
        } else {
            widened = cast(&values[0], &DataType::Float64)?;
            widened.as_primitive::<Float64Type>()
        };
        if self.is_max {
            self.seen.accumulate(group_indices, values, opt_filter, total_num_groups, |group, value| {
                ranks[group] = ranks[group].max(rank(value));
            });
        } else {
            self.seen.accumulate(group_indices, values, opt_filter, total_num_groups, |group, value| {
                ranks[group] = ranks[group].min(rank(value));
            });
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let ranks = emit_to.take_needed(&mut self.ranks);
        let nulls = self.seen.build(emit_to);
        self.array(&ranks, nulls)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.update_batch(values, group_indices, None, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        Ok(match opt_filter {
            None => vec![Arc::clone(&values[0])],
            Some(filter) => {
                // Rows that the filter does not let through become NULL.
                let out = arrow::compute::not(&arrow::compute::prep_null_mask_filter(filter))?;
                vec![arrow::compute::nullif(&values[0], &out)?]
            }
        })
    }

    fn size(&self) -> usize {
        self.ranks.capacity() * size_of::<i64>() + self.seen.size()
    }
}

/// The best float of one group.
#[derive(Debug)]
struct FloatAccumulator {
    is_max: bool,
    best: Option<i64>,
    data_type: DataType,
}

impl Accumulator for FloatAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = cast(&values[0], &DataType::Float64)?;
        let ranks = values.as_primitive::<Float64Type>().iter().flatten().map(rank);
        let best = if self.is_max { ranks.chain(self.best).max() } else { ranks.chain(self.best).min() };
        self.best = best;
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::Float64(self.best.map(float_at)).cast_to(&self.data_type)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_order_and_come_back() {
        let ordered =
            [f64::NEG_INFINITY, f64::MIN, -1.0, -0.0, 0.0, f64::MIN_POSITIVE, 1.0, f64::MAX, f64::INFINITY];
        for pair in ordered.windows(2) {
            assert!(rank(pair[0]) < rank(pair[1]), "{} < {}", pair[0], pair[1]);
        }
        for value in ordered {
            assert_eq!(float_at(rank(value)).to_bits(), value.to_bits());
        }
        assert!(rank(f64::INFINITY) < rank(f64::NAN));
        assert_eq!(rank(f64::NAN), rank(-f64::NAN));
        assert!(float_at(rank(f64::NAN)).is_nan());
    }

    fn both(values: &[f64]) -> (f64, f64) {
        let array: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
        let groups = vec![0; values.len()];
        let mut results = Vec::new();
        for is_max in [false, true] {
            let data_type = DataType::Float64;
            let mut grouped = FloatGroups {
                is_max,
                ranks: Vec::new(),
                seen: NullState::new(),
                data_type: data_type.clone(),
            };
            grouped.update_batch(&[Arc::clone(&array)], &groups, None, 1).unwrap();
            let grouped = grouped.evaluate(EmitTo::All).unwrap().as_primitive::<Float64Type>().value(0);
            let mut single = FloatAccumulator { is_max, best: None, data_type };
            single.update_batch(&[Arc::clone(&array)]).unwrap();
            let ScalarValue::Float64(Some(single)) = single.evaluate().unwrap() else { panic!("NULL") };
            assert_eq!(grouped.to_bits(), single.to_bits());
            results.push(grouped);
        }
        (results[0], results[1])
    }

    #[test]
    fn nan_is_the_greatest_in_any_order() {
        for values in [[f64::NAN, 1.0], [1.0, f64::NAN], [-f64::NAN, 1.0]] {
            let (min, max) = both(&values);
            assert_eq!(min, 1.0);
            assert!(max.is_nan());
        }
        let (min, max) = both(&[f64::NAN, f64::NAN]);
        assert!(min.is_nan() && max.is_nan());
        let (min, max) = both(&[0.0, -0.0]);
        assert!(min.is_sign_negative() && max.is_sign_positive());
        assert_eq!((min, max), (0.0, 0.0));
    }
}
