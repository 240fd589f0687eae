//! A registered scalar function.

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::interval_arithmetic::Interval;
use datafusion_expr::preimage::PreimageResult;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

use super::{check_type, fault, guarded};

/// Calls a function and looks at what it gives.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct GuardedScalar {
    inner: Arc<ScalarUDF>,
}

impl GuardedScalar {
    pub(super) fn new(inner: Arc<ScalarUDF>) -> Self {
        Self { inner }
    }

    fn check(&self, value: &ColumnarValue, args: &Shape) -> Result<()> {
        let name = self.name();
        check_type(name, "values", &value.data_type(), args.data_type())?;
        let ColumnarValue::Array(array) = value else { return Ok(()) };
        // One value where all arguments are constant stands for all rows.
        let is_constant = array.len() == 1 && args.are_constant;
        if array.len() != args.rows && !is_constant {
            let what = format!("gave {} values for {} rows", array.len(), args.rows);
            return Err(fault(name, &what, "Return one value for each row, or a scalar for all of them."));
        }
        if !args.field.is_nullable() && array.null_count() > 0 {
            return Err(fault(name, "gave NULL, which it had ruled out", "Declare its result as nullable."));
        }
        Ok(())
    }
}

/// What is expected of a call.
struct Shape {
    rows: usize,
    are_constant: bool,
    field: FieldRef,
}

impl Shape {
    fn data_type(&self) -> &DataType {
        self.field.data_type()
    }
}

impl ScalarUDFImpl for GuardedScalar {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        guarded(self.name(), || self.inner.return_type(arg_types))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        guarded(self.name(), || self.inner.return_field_from_args(args))
    }

    fn is_strict(&self) -> bool {
        self.inner.is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = |arg: &ColumnarValue| matches!(arg, ColumnarValue::Scalar(_));
        let shape = Shape {
            rows: args.number_rows,
            are_constant: !args.args.is_empty() && args.args.iter().all(is_constant),
            field: Arc::clone(&args.return_field),
        };
        let value = guarded(self.name(), || self.inner.inner().invoke_with_args(args))?;
        self.check(&value, &shape)?;
        Ok(value)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        guarded(self.name(), || self.inner.simplify(args, info))
    }

    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        guarded(self.name(), || self.inner.preimage(args, literal, info))
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        guarded(self.name(), || self.inner.evaluate_bounds(inputs))
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        inputs: &[&Interval],
    ) -> Result<Option<Vec<Interval>>> {
        guarded(self.name(), || self.inner.propagate_constraints(interval, inputs))
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        guarded(self.name(), || self.inner.output_ordering(inputs))
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        guarded(self.name(), || self.inner.preserves_lex_ordering(inputs))
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        guarded(self.name(), || self.inner.strictly_order_preserving(inputs))
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        guarded(self.name(), || self.inner.coerce_types(arg_types))
    }

    fn struct_field_mapping(
        &self,
        literal_args: &[Option<ScalarValue>],
    ) -> Option<datafusion_expr::StructFieldMapping> {
        self.inner.struct_field_mapping(literal_args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.placement(args)
    }
}
