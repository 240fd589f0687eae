//! What our scalar functions have in common: a table entry instead of a type each.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

/// Computes a function: its arguments, and how many rows the result has.
pub(super) type Body = fn(&Arguments<'_>) -> Result<ArrayRef>;

/// Settles a result's type from those of the arguments.
pub(super) type ReturnType = fn(&[DataType]) -> Result<DataType>;

/// Settles what the arguments are cast to.
pub(super) type Coerce = fn(&[DataType]) -> Result<Vec<DataType>>;

/// A scalar function.
pub(super) struct Function {
    name: &'static str,
    signature: Signature,
    return_type: ReturnType,
    coerce: Option<Coerce>,
    zone: Arc<str>,
    body: Body,
}

impl Function {
    /// With fixed argument types, one list an arity.
    pub(super) fn new(
        name: &'static str,
        arguments: &[&[DataType]],
        return_type: ReturnType,
        body: Body,
    ) -> Self {
        let signatures = arguments.iter().map(|types| TypeSignature::Exact(types.to_vec())).collect();
        let signature = Signature::one_of(signatures, Volatility::Immutable);
        Self { name, signature, return_type, coerce: None, zone: "UTC".into(), body }
    }

    /// With argument types that the function settles itself.
    pub(super) fn coercing(name: &'static str, coerce: Coerce, return_type: ReturnType, body: Body) -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { name, signature, return_type, coerce: Some(coerce), zone: "UTC".into(), body }
    }

    /// Gives a new answer at each call: never folded into a constant.
    pub(super) fn volatile(mut self) -> Self {
        self.signature.volatility = Volatility::Volatile;
        self
    }

    /// The session's time zone, for functions that read or make local times.
    pub(super) fn in_zone(mut self, zone: &str) -> Self {
        self.zone = zone.into();
        self
    }

    /// As DataFusion wants it.
    pub(super) fn udf(self) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::from(self))
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("name", &self.name).field("zone", &self.zone).finish()
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.zone == other.zone
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.zone.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        match self.coerce {
            Some(coerce) => coerce(arg_types),
            None => internal_err!("{} has fixed argument types", self.name),
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        // Zones of results are filled in here, because a plain function pointer can't know them.
        Ok(match (self.return_type)(arg_types)? {
            DataType::Timestamp(unit, Some(zone)) if zone.as_ref() == SESSION_ZONE => {
                DataType::Timestamp(unit, Some(Arc::clone(&self.zone)))
            }
            other => other,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let arguments = Arguments {
            values: &args.args,
            rows,
            return_type: args.return_field.data_type(),
            zone: &self.zone,
        };
        let result = (self.body)(&arguments)?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

/// Stands for the session's zone in the type that a [`ReturnType`] gives.
pub(super) const SESSION_ZONE: &str = "<session>";

/// The arguments of a call.
pub(super) struct Arguments<'a> {
    values: &'a [ColumnarValue],
    /// Rows of the result.
    pub(super) rows: usize,
    /// Type of the result.
    pub(super) return_type: &'a DataType,
    /// The session's time zone.
    pub(super) zone: &'a str,
}

impl<'a> Arguments<'a> {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// An argument as it came.
    pub(super) fn value(&self, index: usize) -> &'a ColumnarValue {
        &self.values[index]
    }

    /// An argument with a value a row.
    pub(super) fn array(&self, index: usize) -> Result<ArrayRef> {
        self.values[index].to_array(self.rows)
    }

    /// A text argument.
    pub(super) fn text(&self, index: usize) -> Result<Text<'a>> {
        match &self.values[index] {
            ColumnarValue::Scalar(ScalarValue::Utf8(value)) => Ok(Text::Constant(value.as_deref())),
            ColumnarValue::Array(array) if array.data_type() == &DataType::Utf8 => {
                Ok(Text::Column(array.as_string::<i32>()))
            }
            other => internal_err!("expected text, got {}", other.data_type()),
        }
    }

    /// A BIGINT argument.
    pub(super) fn integer(&self, index: usize) -> Result<Integer<'a>> {
        match &self.values[index] {
            ColumnarValue::Scalar(ScalarValue::Int64(value)) => Ok(Integer::Constant(*value)),
            ColumnarValue::Array(array) if array.data_type() == &DataType::Int64 => {
                Ok(Integer::Column(array.as_primitive::<Int64Type>()))
            }
            other => internal_err!("expected BIGINT, got {}", other.data_type()),
        }
    }

    /// An argument that must be the same text in all rows, such as a unit.
    pub(super) fn constant_text(&self, index: usize) -> Option<&'a str> {
        match &self.values[index] {
            ColumnarValue::Scalar(ScalarValue::Utf8(value)) => value.as_deref(),
            _ => None,
        }
    }
}

/// A text argument: one for all rows, or one a row.
#[derive(Clone, Copy)]
pub(super) enum Text<'a> {
    /// The same in all rows.
    Constant(Option<&'a str>),
    /// One a row.
    Column(&'a StringArray),
}

impl<'a> Text<'a> {
    /// The row's text; `None` is NULL.
    pub(super) fn get(&self, row: usize) -> Option<&'a str> {
        match self {
            Self::Constant(value) => *value,
            Self::Column(array) => array.is_valid(row).then(|| array.value(row)),
        }
    }
}

/// A BIGINT argument: one for all rows, or one a row.
#[derive(Clone, Copy)]
pub(super) enum Integer<'a> {
    /// The same in all rows.
    Constant(Option<i64>),
    /// One a row.
    Column(&'a Int64Array),
}

impl Integer<'_> {
    /// The row's number; `None` is NULL.
    pub(super) fn get(&self, row: usize) -> Option<i64> {
        match self {
            Self::Constant(value) => *value,
            Self::Column(array) => array.is_valid(row).then(|| array.value(row)),
        }
    }
}

/// Something made from a text argument, such as a pattern: made once while the text stays the same.
pub(super) struct Cached<'a, T> {
    text: Option<&'a str>,
    made: Option<T>,
}

impl<'a, T> Cached<'a, T> {
    /// Nothing made yet.
    pub(super) fn new() -> Self {
        Self { text: None, made: None }
    }

    /// What `make` makes of `text`.
    pub(super) fn get(&mut self, text: &'a str, make: impl FnOnce(&str) -> Result<T>) -> Result<&T> {
        if self.text != Some(text) {
            self.made = None;
        }
        self.text = Some(text);
        match &mut self.made {
            Some(made) => Ok(made),
            empty => Ok(empty.insert(make(text)?)),
        }
    }
}

/// Result type BIGINT.
pub(super) fn bigint(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Int64)
}

/// Result type INT.
pub(super) fn int(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Int32)
}

/// Result type STRING.
pub(super) fn string(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Utf8)
}

/// Result type BOOLEAN.
pub(super) fn boolean(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Boolean)
}
