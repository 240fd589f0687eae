//! DataFusion's functions that skip NULL arguments, made to answer NULL instead, as Flink does:
//! `concat`, `greatest`, `least`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::NullBuffer;
use arrow::compute::nullif;
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};

/// The functions with their names.
pub(super) fn all() -> Vec<(&'static str, Arc<ScalarUDF>)> {
    let strict = |default| Arc::new(ScalarUDF::from(Strict { default }));
    vec![
        ("concat", strict(datafusion_functions::string::concat())),
        ("greatest", strict(datafusion_functions::core::greatest())),
        ("least", strict(datafusion_functions::core::least())),
    ]
}

/// A function that gives NULL as soon as an argument is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Strict {
    default: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Strict {
    fn name(&self) -> &str {
        self.default.name()
    }

    fn signature(&self) -> &Signature {
        self.default.signature()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.default.inner().coerce_types(arg_types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.default.inner().return_type(arg_types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut nulls: Option<NullBuffer> = None;
        for arg in &args.args {
            match arg {
                ColumnarValue::Scalar(value) if value.is_null() => {
                    let none = datafusion_common::ScalarValue::try_from(args.return_field.data_type())?;
                    return Ok(ColumnarValue::Scalar(none));
                }
                ColumnarValue::Scalar(_) => {}
                ColumnarValue::Array(array) => {
                    nulls = NullBuffer::union(nulls.as_ref(), array.logical_nulls().as_ref());
                }
            }
        }
        let result = self.default.invoke_with_args(args)?;
        match (result, nulls) {
            (ColumnarValue::Array(array), Some(nulls)) => Ok(ColumnarValue::Array(mask(&array, &nulls)?)),
            (result, _) => Ok(result),
        }
    }
}

/// The array with the rows that are NULL in `nulls` made NULL.
fn mask(array: &ArrayRef, nulls: &NullBuffer) -> Result<ArrayRef> {
    Ok(nullif(array, &BooleanArray::new(!nulls.inner(), None))?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, ArrayRef, Int64Array, StringArray};
    use datafusion_common::ScalarValue;
    use datafusion_expr::ColumnarValue;

    use super::super::tests::{call, null, one, text};

    #[test]
    fn one_null_makes_the_result_null() {
        assert_eq!(one("concat", &[text("a"), null(), text("x")]), null());
        assert_eq!(one("concat", &[text("a"), text("x")]), text("ax"));
        assert_eq!(one("greatest", &[1.into(), ScalarValue::Int64(None)]), ScalarValue::Int64(None));
        assert_eq!(one("least", &[1_i64.into(), 2_i64.into()]), 1_i64.into());
    }

    #[test]
    fn and_so_in_columns() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), Some(-7), None]));
        let result =
            call("greatest", vec![ColumnarValue::Array(numbers), ColumnarValue::Scalar(3.into())], 3);
        assert_eq!(result.as_ref(), &Int64Array::from(vec![Some(7), Some(3), None]) as &dyn Array);
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let result = call("concat", vec![ColumnarValue::Array(texts), ColumnarValue::Scalar(text("!"))], 2);
        assert_eq!(result.as_ref(), &StringArray::from(vec![Some("a!"), None]) as &dyn Array);
    }
}
