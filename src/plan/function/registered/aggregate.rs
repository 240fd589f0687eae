//! A registered aggregate function.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::expr::{AggregateFunctionParams, WindowFunctionParams};
use datafusion_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, ReversedUDAF, SetMonotonicity, Signature,
};

use super::{check_type, fault, guarded};

/// Calls an aggregate and looks at what it gives.
///
/// Its `GroupsAccumulator` is not used: what that gives may depend on how rows were cut into batches.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct GuardedAggregate {
    inner: Arc<AggregateUDF>,
}

impl GuardedAggregate {
    pub(super) fn new(inner: Arc<AggregateUDF>) -> Self {
        Self { inner }
    }
}

impl AggregateUDFImpl for GuardedAggregate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        guarded(self.name(), || self.inner.return_type(arg_types))
    }

    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        guarded(self.name(), || self.inner.return_field(arg_fields))
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let name = self.name();
        let states = guarded(name, || {
            self.inner.state_fields(StateFieldsArgs {
                name: args.name,
                input_fields: args.expr_fields,
                return_field: Arc::clone(&args.return_field),
                ordering_fields: &[],
                is_distinct: args.is_distinct,
            })
        })?;
        let result = Arc::clone(&args.return_field);
        let inner = guarded(name, || self.inner.accumulator(args))?;
        let name = name.to_owned();
        Ok(Box::new(GuardedAccumulator { name, inner, result, states }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        guarded(self.name(), || self.inner.state_fields(args))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner.simplify()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        guarded(self.name(), || self.inner.coerce_types(arg_types))
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        guarded(self.name(), || self.inner.default_value(data_type))
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }
}

#[derive(Debug)]
struct GuardedAccumulator {
    name: String,
    inner: Box<dyn Accumulator>,
    result: FieldRef,
    states: Vec<FieldRef>,
}

impl Accumulator for GuardedAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        guarded(&self.name, || self.inner.update_batch(values))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = guarded(&self.name, || self.inner.evaluate())?;
        check_type(&self.name, "a result", &value.data_type(), self.result.data_type())?;
        Ok(value)
    }

    fn size(&self) -> usize {
        guarded(&self.name, || Ok(self.inner.size())).unwrap_or_default()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let state = guarded(&self.name, || self.inner.state())?;
        if state.len() != self.states.len() {
            let what = format!("gave a state of {} values instead of {}", state.len(), self.states.len());
            return Err(fault(&self.name, &what, "Return one value for each of its state fields."));
        }
        for (value, field) in state.iter().zip(&self.states) {
            check_type(&self.name, "a state", &value.data_type(), field.data_type())?;
        }
        Ok(state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        guarded(&self.name, || self.inner.merge_batch(states))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        guarded(&self.name, || self.inner.retract_batch(values))
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}
