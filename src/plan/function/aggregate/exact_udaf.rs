//! `sum` and `avg`.

use arrow::datatypes::{DataType, Decimal128Type, FieldRef, Int64Type, UInt64Type};
use datafusion_common::types::{
    NativeType, logical_float64, logical_int8, logical_int16, logical_int32, logical_int64, logical_uint8,
    logical_uint16, logical_uint32, logical_uint64,
};
use datafusion_common::{Result, internal_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Coercion, GroupsAccumulator, ReversedUDAF, Signature,
    TypeSignature, TypeSignatureClass, Volatility,
};
use std::sync::Arc;

use super::exact_groups::{ExactAccumulator, ExactDistinct, ExactGroups, state_fields};
use super::exact_sum::Finish;

/// SUM or AVG: ours for integers and decimals, DataFusion's for all else.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ExactUdaf {
    is_avg: bool,
    signature: Signature,
    default: Arc<AggregateUDF>,
}

impl ExactUdaf {
    /// SUM: integers give BIGINT, `DECIMAL(p, s)` gives `DECIMAL(38, s)`.
    pub(super) fn sum() -> Self {
        let mut types = number_types();
        types.push(TypeSignature::Coercible(vec![Coercion::new_exact(TypeSignatureClass::Interval)]));
        let signature = Signature::one_of(types, Volatility::Immutable);
        Self { is_avg: false, signature, default: datafusion_functions_aggregate::sum::sum_udaf() }
    }

    /// AVG: integers give DOUBLE, `DECIMAL(p, s)` gives `DECIMAL(p + 4, s + 4)`.
    pub(super) fn avg() -> Self {
        let signature = Signature::one_of(number_types(), Volatility::Immutable);
        Self { is_avg: true, signature, default: datafusion_functions_aggregate::average::avg_udaf() }
    }
}

/// Decimals and durations as they are, integers to 64 bits, floats to DOUBLE.
fn number_types() -> Vec<TypeSignature> {
    let one = |coercion| TypeSignature::Coercible(vec![coercion]);
    let native = TypeSignatureClass::Native;
    vec![
        one(Coercion::new_exact(TypeSignatureClass::Decimal)),
        one(Coercion::new_implicit(
            native(logical_uint64()),
            vec![native(logical_uint8()), native(logical_uint16()), native(logical_uint32())],
            NativeType::UInt64,
        )),
        one(Coercion::new_implicit(
            native(logical_int64()),
            vec![native(logical_int8()), native(logical_int16()), native(logical_int32())],
            NativeType::Int64,
        )),
        one(Coercion::new_implicit(
            native(logical_float64()),
            vec![TypeSignatureClass::Float],
            NativeType::Float64,
        )),
        one(Coercion::new_exact(TypeSignatureClass::Duration)),
    ]
}

impl AggregateUDFImpl for ExactUdaf {
    fn name(&self) -> &str {
        self.default.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match Finish::of(self.is_avg, &arg_types[0]) {
            Some(finish) => Ok(finish.data_type()),
            None => self.default.return_type(arg_types),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let input = args.expr_fields[0].data_type();
        match Finish::of(self.is_avg, input) {
            Some(finish) if args.is_distinct => Ok(Box::new(ExactDistinct::new(finish, input.clone()))),
            Some(finish) => Ok(Box::new(ExactAccumulator::new(finish))),
            None => self.default.accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let input = args.input_fields[0].data_type();
        match Finish::of(self.is_avg, input) {
            Some(_) if args.is_distinct => Ok(vec![ExactDistinct::state_field(args.name, input)]),
            Some(finish) => Ok(state_fields(args.name, finish)),
            None => self.default.state_fields(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        match Finish::of(self.is_avg, args.expr_fields[0].data_type()) {
            Some(_) => !args.is_distinct,
            None => self.default.groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let input = args.expr_fields[0].data_type();
        match (Finish::of(self.is_avg, input), input) {
            (Some(finish), DataType::Int64) => Ok(Box::new(ExactGroups::<Int64Type>::new(finish))),
            (Some(finish), DataType::UInt64) => Ok(Box::new(ExactGroups::<UInt64Type>::new(finish))),
            (Some(finish), DataType::Decimal128(_, _)) => {
                Ok(Box::new(ExactGroups::<Decimal128Type>::new(finish)))
            }
            (Some(finish), other) => internal_err!("{finish:?} of {other}"),
            (None, _) => self.default.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match Finish::of(self.is_avg, args.expr_fields[0].data_type()) {
            Some(_) => self.accumulator(args),
            None => self.default.create_sliding_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}
