//! Digests as hexadecimal text, as Flink gives them; DataFusion gives bytes.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};

/// The functions with their names.
pub(super) fn all() -> Vec<(&'static str, Arc<ScalarUDF>)> {
    use datafusion_functions::crypto;
    let hex = |default| Arc::new(ScalarUDF::from(Hex { default }));
    vec![
        ("md5", hex(crypto::md5())),
        ("sha224", hex(crypto::sha224())),
        ("sha256", hex(crypto::sha256())),
        ("sha384", hex(crypto::sha384())),
        ("sha512", hex(crypto::sha512())),
    ]
}

/// A digest as lower-case hexadecimal text.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Hex {
    default: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Hex {
    fn name(&self) -> &str {
        self.default.name()
    }

    fn signature(&self) -> &Signature {
        self.default.signature()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.default.inner().coerce_types(arg_types)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let inputs: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let return_type = self.default.inner().return_type(&inputs)?;
        let return_field = Arc::new(Field::new(self.name(), return_type, true));
        let digest =
            self.default.invoke_with_args(ScalarFunctionArgs { return_field, ..args })?.into_array(rows)?;
        let shown = if matches!(
            digest.data_type(),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView
        ) {
            shown(&digest)?
        } else {
            cast(&digest, &DataType::Utf8)?
        };
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&shown, 0)?));
        }
        Ok(ColumnarValue::Array(shown))
    }
}

fn shown(digest: &ArrayRef) -> Result<ArrayRef> {
    let digest = cast(digest, &DataType::Binary)?;
    let mut out = StringBuilder::with_capacity(digest.len(), digest.len() * 64);
    for bytes in digest.as_binary::<i32>() {
        match bytes {
            Some(bytes) => {
                for byte in bytes {
                    write!(out, "{byte:02x}").expect("a string builder takes any text");
                }
                out.append_value("");
            }
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{null, one, text};

    // The expectations are answers of Flink 2.3.
    #[test]
    fn digests_are_hexadecimal_text() {
        assert_eq!(one("md5", &[text("a")]), text("0cc175b9c0f1b6a831c399e269772661"));
        assert_eq!(
            one("sha256", &[text("a")]),
            text("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb")
        );
        assert_eq!(one("sha256", &[null()]), null());
    }
}
