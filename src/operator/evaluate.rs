//! Expressions over batches, and their failures in the user's words.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::{Float32Type, Float64Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use datafusion_common::DataFusionError;

use crate::error::{Error, code};
use crate::plan::ExprRef;

/// The values of `expr`, one for each row of `batch`.
///
/// # Errors
/// `R002` if the expression fails on a row.
pub(crate) fn evaluate(expr: &ExprRef, batch: &RecordBatch) -> Result<ArrayRef, Error> {
    expr.evaluate(batch).and_then(|value| value.into_array(batch.num_rows())).map_err(failure)
}

/// Which rows of `batch` meet `condition`; NULL counts as false, so the result has no NULL.
///
/// # Errors
/// `R002` if the expression fails on a row.
pub(crate) fn evaluate_condition(condition: &ExprRef, batch: &RecordBatch) -> Result<BooleanArray, Error> {
    let values = evaluate(condition, batch)?;
    let Some(mask) = values.as_boolean_opt() else {
        return Err(Error::internal("condition", format!("{} is no BOOLEAN", values.data_type())));
    };
    Ok(if mask.null_count() == 0 { mask.clone() } else { prep_null_mask_filter(mask) })
}

/// All NaN of a column of floats as one value, and zero without a sign: GROUP BY, DISTINCT and
/// ORDER BY agree on what is equal. Other columns are not touched.
pub(crate) fn one_nan_and_zero(values: ArrayRef) -> ArrayRef {
    if let Some(floats) = values.as_primitive_opt::<Float64Type>() {
        Arc::new(floats.unary::<_, Float64Type>(|value| if value.is_nan() { f64::NAN } else { value + 0.0 }))
    } else if let Some(floats) = values.as_primitive_opt::<Float32Type>() {
        Arc::new(floats.unary::<_, Float32Type>(|value| if value.is_nan() { f32::NAN } else { value + 0.0 }))
    } else {
        values
    }
}

/// The failure of an expression or accumulator as an error of the run.
pub(crate) fn failure(error: DataFusionError) -> Error {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => failure(*inner),
        DataFusionError::Collection(errors) => match errors.into_iter().next() {
            Some(first) => failure(first),
            None => Error::internal("expression", "an empty list of errors"),
        },
        DataFusionError::Shared(shared) => match shared.as_ref() {
            DataFusionError::External(inner) if inner.is::<Error>() => own(inner.as_ref()),
            DataFusionError::ArrowError(inner, _) => arrow_failure(inner),
            other => Error::run(code::EVALUATION, plain(&other.strip_backtrace())),
        },
        DataFusionError::External(inner) => own(inner.as_ref()),
        DataFusionError::ArrowError(inner, _) => arrow_failure(&inner),
        DataFusionError::Execution(message) => Error::run(code::EVALUATION, plain(&message)),
        DataFusionError::Internal(message) => Error::internal("expression", message),
        other => Error::run(code::EVALUATION, plain(&other.strip_backtrace())),
    }
}

/// The failure of an Arrow kernel as an error of the run.
pub(crate) fn arrow_failure(error: &ArrowError) -> Error {
    match error {
        ArrowError::DivideByZero => Error::run(code::EVALUATION, "division by zero"),
        ArrowError::ArithmeticOverflow(message) => {
            let what = message.strip_prefix("Overflow happened on: ").unwrap_or(message);
            Error::run(code::EVALUATION, format!("arithmetic overflow: {what}"))
        }
        ArrowError::ExternalError(inner) => own(inner.as_ref()),
        ArrowError::CastError(message)
        | ArrowError::ComputeError(message)
        | ArrowError::ParseError(message)
        | ArrowError::InvalidArgumentError(message) => Error::run(code::EVALUATION, plain(message)),
        other => Error::run(code::EVALUATION, plain(&other.to_string())),
    }
}

/// An error that went through DataFusion in a box: ours keeps its code and hint.
fn own(inner: &(dyn std::error::Error + Send + Sync + 'static)) -> Error {
    match inner.downcast_ref::<Error>() {
        Some(error) => error.clone(),
        None => Error::run(code::EVALUATION, plain(&inner.to_string())),
    }
}

/// The text without the names of layers that mean nothing to a user, in lower case at the start.
fn plain(message: &str) -> String {
    const LAYERS: [&str; 8] = [
        "Execution error: ",
        "Arrow error: ",
        "External error: ",
        "Compute error: ",
        "Cast error: ",
        "Parser error: ",
        "Invalid argument error: ",
        "This feature is not implemented: ",
    ];
    let mut text = message.trim();
    while let Some(rest) = LAYERS.iter().find_map(|layer| text.strip_prefix(layer)) {
        text = rest.trim_start();
    }
    let text = text.trim_end_matches('.');
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), second) if first.is_uppercase() && !second.is_some_and(char::is_uppercase) => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_the_message_are_dropped() {
        let nested = DataFusionError::Execution("Arrow error: Cast error: Cannot cast string 'x'.".into());
        let error = failure(nested);
        assert_eq!(error.code(), "R002");
        assert_eq!(error.message(), "cannot cast string 'x'");
        let zero = DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None);
        assert_eq!(failure(zero).message(), "division by zero");
        assert_eq!(plain("SUM of BIGINT overflows"), "SUM of BIGINT overflows");
    }

    #[test]
    fn an_error_of_ours_keeps_its_code() {
        let ours = Error::run(code::NULL_TIME, "no event time").hint("Set it.");
        let boxed = DataFusionError::External(Box::new(ours.clone()));
        assert_eq!(failure(DataFusionError::Context("while".into(), Box::new(boxed))), ours);
    }
}
