//! Expressions without columns to their values.

use std::sync::Arc;

use arrow::array::RecordBatchOptions;
use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{ColumnarValue, Expr, Volatility};
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};

use super::diagnose::from_datafusion;
use crate::error::Error;

/// The value of an expression; `None` if it depends on rows or on when it runs.
///
/// # Errors
/// What the expression itself fails with.
pub(super) fn fold(expr: &Expr) -> Result<Option<ScalarValue>, Error> {
    if !expr.column_refs().is_empty() || expr.contains_outer() || !is_deterministic(expr) {
        return Ok(None);
    }
    let schema = DFSchema::empty();
    let physical =
        create_physical_expr(expr, &schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())
            .map_err(from_datafusion)?;
    evaluate(&physical).map(Some)
}

/// The value of a physical expression without columns.
///
/// # Errors
/// What the expression fails with.
pub(super) fn evaluate(expr: &Arc<dyn PhysicalExpr>) -> Result<ScalarValue, Error> {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)
        .map_err(|error| Error::internal("the planner", error))?;
    match expr.evaluate(&batch).map_err(from_datafusion)? {
        ColumnarValue::Scalar(value) => Ok(value),
        ColumnarValue::Array(array) => ScalarValue::try_from_array(&array, 0).map_err(from_datafusion),
    }
}

/// Whether the same row always gives the same value.
pub(super) fn is_deterministic(expr: &Expr) -> bool {
    let mut deterministic = true;
    let _ = expr.apply(|part| {
        if let Expr::ScalarFunction(call) = part
            && call.func.signature().volatility != Volatility::Immutable
        {
            deterministic = false;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    deterministic
}
