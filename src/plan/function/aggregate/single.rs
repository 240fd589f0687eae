//! The value of the one row that a subquery gives.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use crate::error::{Error, code};

/// The function; no query can call it.
///
/// Source: Flink's and Calcite's `SINGLE_VALUE`.
pub(in crate::plan) fn single_value() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(SingleValue { signature: Signature::any(1, Volatility::Immutable) }))
}

/// The value of the only row; NULL without rows; an error with several.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl AggregateUDFImpl for SingleValue {
    fn name(&self) -> &str {
        "single_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types[0].clone())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![
            Arc::new(Field::new(format!("{}[value]", args.name), args.return_type().clone(), true)),
            Arc::new(Field::new(format!("{}[rows]", args.name), DataType::Int64, false)),
        ])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Single { value: ScalarValue::try_from(args.return_field.data_type())?, rows: 0 }))
    }
}

#[derive(Debug)]
struct Single {
    value: ScalarValue,
    rows: i64,
}

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if self.rows == 0 && !values[0].is_empty() {
            self.value = ScalarValue::try_from_array(&values[0], 0)?;
            self.value.compact();
        }
        self.rows += values[0].len() as i64;
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.rows > 1 {
            let error =
                Error::run(code::EVALUATION, "a subquery gives several rows where one value is needed")
                    .hint("Add an aggregate such as MAX, or a condition that leaves one row.");
            return Err(DataFusionError::External(Box::new(error)));
        }
        Ok(self.value.clone())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), ScalarValue::Int64(Some(self.rows))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for (state, rows) in states[1].as_primitive::<Int64Type>().values().iter().enumerate() {
            if self.rows == 0 && *rows > 0 {
                self.value = ScalarValue::try_from_array(&states[0], state)?;
            }
            self.rows += rows;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.value.size()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;

    fn single(batches: &[&[Option<i64>]]) -> Result<ScalarValue> {
        let mut merged = Single { value: ScalarValue::Int64(None), rows: 0 };
        for batch in batches {
            let mut part = Single { value: ScalarValue::Int64(None), rows: 0 };
            part.update_batch(&[Arc::new(Int64Array::from(batch.to_vec()))])?;
            let states: Vec<ArrayRef> =
                part.state()?.iter().map(ScalarValue::to_array).collect::<Result<_>>()?;
            merged.merge_batch(&states)?;
        }
        merged.evaluate()
    }

    #[test]
    fn one_row_or_none() {
        assert_eq!(single(&[]).unwrap(), ScalarValue::Int64(None));
        assert_eq!(single(&[&[], &[Some(7)], &[]]).unwrap(), ScalarValue::Int64(Some(7)));
        assert_eq!(single(&[&[None]]).unwrap(), ScalarValue::Int64(None));
        // Equal rows are several rows, and NULL is one.
        assert!(single(&[&[Some(7), Some(7)]]).is_err());
        assert!(single(&[&[None], &[Some(7)]]).is_err());
    }
}
