//! `var`, `stddev` and their kin: DataFusion's, but a state that is merged into nothing is the same state.
//!
//! DataFusion weighs the mean of the state by its share of the rows then, which is all of them, and may round: so the
//! last digits of a result would tell when a checkpoint was taken.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, UInt64Array};
use arrow::datatypes::{DataType, FieldRef, Float64Type, UInt64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};
use datafusion_functions_aggregate::{stddev, variance};

/// A variance or a standard deviation.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Variance {
    finish: Finish,
    default: Arc<AggregateUDF>,
}

/// What a result is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Finish {
    is_sample: bool,
    is_root: bool,
}

impl Variance {
    /// All of them.
    pub(super) fn all() -> [Self; 4] {
        let of = |default, is_sample, is_root| Self { finish: Finish { is_sample, is_root }, default };
        [
            of(variance::var_samp_udaf(), true, false),
            of(variance::var_pop_udaf(), false, false),
            of(stddev::stddev_udaf(), true, true),
            of(stddev::stddev_pop_udaf(), false, true),
        ]
    }

    /// The names that it is called by.
    pub(super) fn names(self) -> Vec<(String, Arc<AggregateUDF>)> {
        let mut names = self.default.aliases().to_vec();
        names.push(self.default.name().to_owned());
        let function = Arc::new(AggregateUDF::from(self));
        names.into_iter().map(|name| (name, Arc::clone(&function))).collect()
    }
}

impl AggregateUDFImpl for Variance {
    fn name(&self) -> &str {
        self.default.name()
    }

    fn aliases(&self) -> &[String] {
        self.default.aliases()
    }

    fn signature(&self) -> &Signature {
        self.default.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.default.return_type(arg_types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.default.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return self.default.accumulator(args);
        }
        Ok(Box::new(VarianceAccumulator { finish: self.finish, moments: Moments::default() }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.default.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if args.is_distinct {
            return self.default.create_groups_accumulator(args);
        }
        Ok(Box::new(VarianceGroups { finish: self.finish, groups: Vec::new() }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.default.create_sliding_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.default.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }
}

/// The number of values, their mean, and the sum of the squares of their distances from it.
///
/// Source: Welford (1962), and for two of them Chan, Golub and LeVeque (1979).
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    fn merge(&mut self, other: Self) {
        if self.count == 0 {
            *self = other;
        } else if other.count > 0 {
            let (own, more) = (self.count as f64, other.count as f64);
            let count = self.count + other.count;
            let all = count as f64;
            let delta = self.mean - other.mean;
            self.mean = self.mean * own / all + other.mean * more / all;
            self.squares = self.squares + other.squares + delta * delta * own * more / all;
            self.count = count;
        }
    }

    fn finish(self, finish: Finish) -> Option<f64> {
        let count = self.count.saturating_sub(u64::from(finish.is_sample));
        let variance = (count > 0).then(|| self.squares / count as f64)?;
        Some(if finish.is_root { variance.sqrt() } else { variance })
    }
}

/// The states of a column's rows.
fn moments(states: &[ArrayRef]) -> impl Iterator<Item = Moments> {
    let counts = states[0].as_primitive::<UInt64Type>().values();
    let means = states[1].as_primitive::<Float64Type>().values();
    let squares = states[2].as_primitive::<Float64Type>().values();
    let all = counts.iter().zip(means).zip(squares);
    all.map(|((count, mean), squares)| Moments { count: *count, mean: *mean, squares: *squares })
}

fn columns(groups: &[Moments]) -> Vec<ArrayRef> {
    vec![
        Arc::new(UInt64Array::from_iter_values(groups.iter().map(|moments| moments.count))),
        Arc::new(Float64Array::from_iter_values(groups.iter().map(|moments| moments.mean))),
        Arc::new(Float64Array::from_iter_values(groups.iter().map(|moments| moments.squares))),
    ]
}

/// Of each group.
struct VarianceGroups {
    finish: Finish,
    groups: Vec<Moments>,
}

impl GroupsAccumulator for VarianceGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups.resize(total_num_groups, Moments::default());
        let values = values[0].as_primitive::<Float64Type>();
        if opt_filter.is_none() && values.null_count() == 0 {
            for (group, value) in group_indices.iter().zip(values.values()) {
                self.groups[*group].add(*value);
            }
            return Ok(());
        }
        for (row, group) in group_indices.iter().enumerate() {
            if counts(values, opt_filter, row) {
                self.groups[*group].add(values.value(row));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = emit_to.take_needed(&mut self.groups);
        let values = groups.into_iter().map(|moments| moments.finish(self.finish));
        Ok(Arc::new(values.collect::<Float64Array>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(columns(&emit_to.take_needed(&mut self.groups)))
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups.resize(total_num_groups, Moments::default());
        for (group, other) in group_indices.iter().zip(moments(values)) {
            self.groups[*group].merge(other);
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<Float64Type>();
        let of_row = |row: usize| match counts(values, opt_filter, row) {
            true => Moments { count: 1, mean: values.value(row), squares: 0.0 },
            false => Moments::default(),
        };
        Ok(columns(&(0..values.len()).map(of_row).collect::<Vec<_>>()))
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Moments>()
    }
}

fn counts(values: &Float64Array, filter: Option<&BooleanArray>, row: usize) -> bool {
    values.is_valid(row) && filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

/// Of one group.
#[derive(Debug)]
struct VarianceAccumulator {
    finish: Finish,
    moments: Moments,
}

impl Accumulator for VarianceAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values[0].as_primitive::<Float64Type>().iter().flatten().for_each(|value| self.moments.add(value));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.moments.finish(self.finish)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let Moments { count, mean, squares } = self.moments;
        Ok(vec![ScalarValue::from(count), ScalarValue::from(mean), ScalarValue::from(squares)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        moments(states).for_each(|other| self.moments.merge(other));
        Ok(())
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Moments {
        let mut moments = Moments::default();
        values.iter().for_each(|value| moments.add(*value));
        moments
    }

    #[test]
    fn a_state_that_is_taken_up_is_the_same() {
        // 0.1 · 3 / 3 is not 0.1: what DataFusion does.
        assert_ne!(0.1 * 3.0 / 3.0, 0.1_f64);
        let finish = Finish { is_sample: true, is_root: false };
        let mut groups = VarianceGroups { finish, groups: Vec::new() };
        let values: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.1), Some(0.1), None, Some(0.1)]));
        groups.update_batch(&[values], &[0, 0, 0, 0], None, 1).unwrap();
        let state = groups.state(EmitTo::All).unwrap();
        let mut again = VarianceGroups { finish, groups: Vec::new() };
        again.merge_batch(&state, &[0], 1).unwrap();
        assert_eq!(again.groups[0].mean, of(&[0.1; 3]).mean);
        let mut one = VarianceAccumulator { finish, moments: Moments::default() };
        one.merge_batch(&state).unwrap();
        assert_eq!(one.moments.mean, of(&[0.1; 3]).mean);
    }

    #[test]
    fn results_by_hand() {
        // Around the mean 2.5: 2.25 + 0.25 + 0.25 + 2.25 = 5.
        let mut all = of(&[1.0, 2.0]);
        all.merge(of(&[3.0, 4.0]));
        let finish = |is_sample, is_root| all.finish(Finish { is_sample, is_root });
        assert_eq!([finish(true, false), finish(false, false)], [Some(5.0 / 3.0), Some(1.25)]);
        assert_eq!(
            [finish(true, true), finish(false, true)],
            [Some((5.0_f64 / 3.0).sqrt()), Some(1.25_f64.sqrt())]
        );
        let one = of(&[7.0]);
        assert_eq!(one.finish(Finish { is_sample: true, is_root: false }), None);
        assert_eq!(one.finish(Finish { is_sample: false, is_root: false }), Some(0.0));
        assert_eq!(of(&[]).finish(Finish { is_sample: false, is_root: true }), None);
    }
}
