//! DataFusion's aggregates whose result has a type that our SQL does not have.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};

/// An aggregate of DataFusion, its result cast to another type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Retyped {
    default: Arc<AggregateUDF>,
    data_type: DataType,
}

impl Retyped {
    /// `default` with results of type `data_type`.
    pub(super) fn new(default: Arc<AggregateUDF>, data_type: DataType) -> Self {
        Self { default, data_type }
    }

    /// The result's field as the default knows it.
    fn default_field(&self, args: &AccumulatorArgs) -> Result<FieldRef> {
        let inputs: Vec<DataType> = args.expr_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Arc::new(Field::new(args.return_field.name(), self.default.return_type(&inputs)?, true)))
    }
}

impl AggregateUDFImpl for Retyped {
    fn name(&self) -> &str {
        self.default.name()
    }

    fn signature(&self) -> &Signature {
        self.default.signature()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.default.coerce_types(arg_types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.default.return_type(arg_types)?;
        Ok(self.data_type.clone())
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.default.default_value(data_type)
    }

    fn is_nullable(&self) -> bool {
        self.default.is_nullable()
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let inputs: Vec<DataType> = args.input_fields.iter().map(|field| field.data_type().clone()).collect();
        let return_field =
            Arc::new(Field::new(args.return_field.name(), self.default.return_type(&inputs)?, true));
        self.default.state_fields(StateFieldsArgs { return_field, ..args })
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let return_field = self.default_field(&args)?;
        let inner = self.default.accumulator(AccumulatorArgs { return_field, ..args })?;
        Ok(Box::new(RetypedAccumulator { inner, data_type: self.data_type.clone() }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.default.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let return_field = self.default_field(&args)?;
        let inner = self.default.create_groups_accumulator(AccumulatorArgs { return_field, ..args })?;
        Ok(Box::new(RetypedGroups { inner, data_type: self.data_type.clone() }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.default.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }
}

struct RetypedGroups {
    inner: Box<dyn GroupsAccumulator>,
    data_type: DataType,
}

impl GroupsAccumulator for RetypedGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.inner.update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate(emit_to)?, &self.data_type)?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.inner.merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, opt_filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

#[derive(Debug)]
struct RetypedAccumulator {
    inner: Box<dyn Accumulator>,
    data_type: DataType,
}

impl Accumulator for RetypedAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.inner.evaluate()?.cast_to(&self.data_type)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
