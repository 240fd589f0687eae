//! Functions of OVER windows that number rows: `BIGINT`, as in Flink, where DataFusion's are unsigned.
//!
//! They are planned here and computed by an operator, which knows them by their names.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result as DfResult, internal_err};
use datafusion_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::{PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};

/// A number for each row of a partition.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Number {
    name: &'static str,
    signature: Signature,
}

/// All of them, by name.
pub(super) fn all() -> Vec<(&'static str, Arc<WindowUDF>)> {
    let number = |name, signature| (name, Arc::new(WindowUDF::from(Number { name, signature })));
    let nullary = || Signature::nullary(Volatility::Immutable);
    vec![
        number("row_number", nullary()),
        number("rank", nullary()),
        number("dense_rank", nullary()),
        number("ntile", Signature::any(1, Volatility::Immutable)),
    ]
}

impl WindowUDFImpl for Number {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(&self, _args: PartitionEvaluatorArgs) -> DfResult<Box<dyn PartitionEvaluator>> {
        internal_err!("{} is computed by an operator", self.name)
    }

    fn field(&self, args: WindowUDFFieldArgs) -> DfResult<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Int64, false)))
    }
}
