//! The mark of a join with versions: `__as_of(time of the row, time of the version, 'table')`.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::{Result as DfResult, internal_err};
use datafusion_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Its name.
pub(super) const AS_OF: &str = "__as_of";

/// The function that stands for the mark. It is never called.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(AsOf { signature: Signature::any(3, Volatility::Immutable) }))
}

/// The arguments of a mark.
pub(super) fn arguments(expr: &Expr) -> Option<&[Expr; 3]> {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == AS_OF => call.args.as_slice().try_into().ok(),
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AsOf {
    signature: Signature,
}

impl ScalarUDFImpl for AsOf {
    fn name(&self) -> &str {
        AS_OF
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        internal_err!("a join with versions is no function")
    }
}
