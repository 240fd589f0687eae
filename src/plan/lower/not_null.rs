//! The check of NOT NULL columns before rows go into a table.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, Schema};
use arrow::record_batch::RecordBatch;
use datafusion_common::{DataFusionError, Result as DfResult};
use datafusion_expr::ColumnarValue;
use datafusion_physical_expr::PhysicalExpr;

use crate::plan::ExprRef;

/// The value of `input`; fails on a row where it is NULL.
#[derive(Debug, Clone, Eq)]
pub(super) struct NotNull {
    input: ExprRef,
    column: String,
    table: String,
}

impl NotNull {
    pub(super) fn new(input: ExprRef, column: &str, table: &str) -> Self {
        Self { input, column: column.to_owned(), table: table.to_owned() }
    }
}

impl PartialEq for NotNull {
    fn eq(&self, other: &Self) -> bool {
        self.input.eq(&other.input) && self.column == other.column && self.table == other.table
    }
}

impl Hash for NotNull {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
        self.column.hash(state);
        self.table.hash(state);
    }
}

impl fmt::Display for NotNull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not_null({})", self.input)
    }
}

impl PhysicalExpr for NotNull {
    fn data_type(&self, schema: &Schema) -> DfResult<DataType> {
        self.input.data_type(schema)
    }

    fn nullable(&self, _schema: &Schema) -> DfResult<bool> {
        Ok(false)
    }

    fn evaluate(&self, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        let value = self.input.evaluate(batch)?;
        let has_null = match &value {
            ColumnarValue::Array(array) => array.logical_null_count() > 0,
            ColumnarValue::Scalar(scalar) => batch.num_rows() > 0 && scalar.is_null(),
        };
        if has_null {
            return Err(DataFusionError::Execution(format!(
                "the column \"{}\" of \"{}\" is NOT NULL and got NULL",
                self.column, self.table
            )));
        }
        Ok(value)
    }

    fn children(&self) -> Vec<&ExprRef> {
        vec![&self.input]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<ExprRef>) -> DfResult<ExprRef> {
        let [input] = <[ExprRef; 1]>::try_from(children)
            .map_err(|_| DataFusionError::Internal("NOT NULL has one input".to_owned()))?;
        Ok(Arc::new(Self { input, column: self.column.clone(), table: self.table.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NOT_NULL(")?;
        self.input.fmt_sql(f)?;
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::Field;
    use datafusion_physical_expr::expressions::Column;

    use super::*;

    fn check(values: Vec<Option<i64>>) -> DfResult<ColumnarValue> {
        let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
        let batch = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(values))])?;
        NotNull::new(Arc::new(Column::new("v", 0)), "n", "out").evaluate(&batch)
    }

    #[test]
    fn nulls_are_refused_with_the_names() {
        assert!(check(vec![Some(1), Some(2)]).is_ok());
        assert!(check(vec![]).is_ok());
        let error = check(vec![Some(1), None]).expect_err("a NULL");
        assert!(
            error.to_string().contains("the column \"n\" of \"out\" is NOT NULL and got NULL"),
            "{error}"
        );
    }
}
