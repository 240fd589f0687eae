//! Arrays, maps and JSON text: `cardinality`, `element`, `json_value`, `json_exists`; digests as
//! hexadecimal text.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, StringArray, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use datafusion_common::{Result, exec_err, plan_err};
use datafusion_expr::ScalarUDF;
use serde_json::Value;

use super::scalar::{Arguments, Cached, Function, boolean, int, string};

/// The functions with their names.
pub(super) fn all() -> Vec<(&'static str, Arc<ScalarUDF>)> {
    const UTF8: DataType = DataType::Utf8;
    let json: &[&[DataType]] = &[&[UTF8, UTF8]];
    let starts_with = datafusion_functions::string::starts_with();
    let ends_with = datafusion_functions::string::ends_with();
    vec![
        ("cardinality", Function::coercing("cardinality", list_or_map, int, cardinality).udf()),
        ("element", Function::coercing("element", list, item_type, element).udf()),
        ("json_value", Function::new("json_value", json, string, json_value).udf()),
        ("json_exists", Function::new("json_exists", json, boolean, json_exists).udf()),
        ("startswith", starts_with),
        ("endswith", ends_with),
        ("rand", datafusion_functions::math::random()),
    ]
}

fn list_or_map(types: &[DataType]) -> Result<Vec<DataType>> {
    match types {
        [DataType::List(_) | DataType::Map(_, _) | DataType::Null] => Ok(types.to_vec()),
        [DataType::LargeList(item) | DataType::FixedSizeList(item, _)] => {
            Ok(vec![DataType::List(Arc::clone(item))])
        }
        [other] => plan_err!("cardinality needs an array or a map, not {other}"),
        other => plan_err!("cardinality takes one argument, not {}", other.len()),
    }
}

/// How many items an array or a map has.
fn cardinality(args: &Arguments<'_>) -> Result<ArrayRef> {
    let values = args.array(0)?;
    let (offsets, nulls) = match values.data_type() {
        DataType::List(_) => (values.as_list::<i32>().offsets().clone(), values.nulls().cloned()),
        DataType::Map(_, _) => (values.as_map().offsets().clone(), values.nulls().cloned()),
        _ => return Ok(Arc::new(Int32Array::new_null(values.len()))),
    };
    let lengths: Vec<i32> = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    Ok(Arc::new(Int32Array::new(lengths.into(), nulls)))
}

fn list(types: &[DataType]) -> Result<Vec<DataType>> {
    match types {
        [DataType::List(_)] => Ok(types.to_vec()),
        [DataType::LargeList(item) | DataType::FixedSizeList(item, _)] => {
            Ok(vec![DataType::List(Arc::clone(item))])
        }
        [other] => plan_err!("element needs an array, not {other}"),
        other => plan_err!("element takes one argument, not {}", other.len()),
    }
}

fn item_type(types: &[DataType]) -> Result<DataType> {
    match &types[0] {
        DataType::List(item) => Ok(item.data_type().clone()),
        other => plan_err!("element needs an array, not {other}"),
    }
}

/// The only item of an array; NULL if it is empty.
fn element(args: &Arguments<'_>) -> Result<ArrayRef> {
    let values = args.array(0)?;
    let lists = values.as_list::<i32>();
    let mut rows = Vec::with_capacity(lists.len());
    for (row, pair) in lists.offsets().windows(2).enumerate() {
        rows.push(match pair[1] - pair[0] {
            _ if lists.is_null(row) => None,
            0 => None,
            1 => Some(pair[0] as u64),
            more => return exec_err!("element needs an array with one item, not {more}"),
        });
    }
    Ok(take(lists.values(), &UInt64Array::from(rows), None)?)
}

/// A path such as `$.a.b[0]['c d']`.
struct Path(Vec<Step>);

enum Step {
    Key(String),
    Index(usize),
}

impl Path {
    fn new(text: &str) -> Result<Self> {
        let path = text.trim();
        let path = path.strip_prefix("lax ").or_else(|| path.strip_prefix("strict ")).unwrap_or(path);
        match path.trim_start().strip_prefix('$').and_then(steps) {
            Some(steps) => Ok(Self(steps)),
            None => exec_err!("\"{text}\" is no JSON path that can be used here, such as $.a.b[0]"),
        }
    }

    fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(value, |value, step| match step {
            Step::Key(key) => value.get(key.as_str()),
            Step::Index(index) => value.get(index),
        })
    }
}

fn steps(mut rest: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let key = after[..end].trim();
            if key.is_empty() || key == "*" {
                return None;
            }
            steps.push(Step::Key(key.trim_matches('"').to_owned()));
            rest = &after[end..];
        } else {
            let (inside, after) = rest.strip_prefix('[')?.split_once(']')?;
            let inside = inside.trim();
            let quoted = |quote| inside.strip_prefix(quote)?.strip_suffix(quote);
            steps.push(match quoted('\'').or_else(|| quoted('"')) {
                Some(key) => Step::Key(key.to_owned()),
                None => Step::Index(inside.parse().ok()?),
            });
            rest = after;
        }
    }
    Some(steps)
}

fn each_json<T>(args: &Arguments<'_>, of: impl Fn(Option<&Value>) -> Option<T>) -> Result<Vec<Option<T>>> {
    let (texts, paths) = (args.text(0)?, args.text(1)?);
    let mut path = Cached::new();
    let mut out = Vec::with_capacity(args.rows);
    for row in 0..args.rows {
        out.push(match (texts.get(row), paths.get(row)) {
            (Some(json), Some(text)) => {
                let path = path.get(text, Path::new)?;
                let value = serde_json::from_str::<Value>(json).ok();
                of(value.as_ref().and_then(|value| path.find(value)))
            }
            _ => None,
        });
    }
    Ok(out)
}

/// The number, text or boolean at a path as text; NULL where there is none, or the text is no JSON.
fn json_value(args: &Arguments<'_>) -> Result<ArrayRef> {
    let found = each_json(args, |value| match value? {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    })?;
    Ok(Arc::new(StringArray::from(found)))
}

/// Whether there is anything at a path.
fn json_exists(args: &Arguments<'_>) -> Result<ArrayRef> {
    Ok(Arc::new(BooleanArray::from(each_json(args, |value| Some(value.is_some()))?)))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Int64Type;
    use datafusion_common::ScalarValue;
    use datafusion_expr::ColumnarValue;

    use super::super::tests::{call, null, one, text, try_one};
    use super::*;

    // The expectations are answers of Flink 2.3.
    #[test]
    fn json_by_path() {
        let json = || text(r#"{"a":{"b":[1,"x",true,null]},"c d":2}"#);
        let value = |path: &str| one("json_value", &[json(), text(path)]);
        assert_eq!(value("$.a.b[1]"), text("x"));
        assert_eq!(value("$.a.b[0]"), text("1"));
        assert_eq!(value("$.a.b[2]"), text("true"));
        assert_eq!(value("$.a.b[3]"), null());
        assert_eq!(value("$.a.b"), null());
        assert_eq!(value("$['c d']"), text("2"));
        assert_eq!(value("$.none"), null());
        assert_eq!(one("json_value", &[text("not"), text("$.a")]), null());
        assert_eq!(one("json_exists", &[json(), text("$.a")]), ScalarValue::Boolean(Some(true)));
        assert_eq!(one("json_exists", &[json(), text("$.x")]), ScalarValue::Boolean(Some(false)));
        assert!(try_one("json_value", &[json(), text("a.b")]).is_err());
        assert!(try_one("json_value", &[json(), text("$.a[x]")]).is_err());
    }

    #[test]
    fn sizes_of_arrays() {
        let lists = arrow::array::ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(5)]),
            Some(vec![]),
            None,
        ]);
        let column = || vec![ColumnarValue::Array(Arc::new(lists.clone()))];
        let sizes = call("cardinality", column(), 3);
        assert_eq!(sizes.as_ref(), &Int32Array::from(vec![Some(1), Some(0), None]) as &dyn Array);
        let items = call("element", column(), 3);
        assert_eq!(items.as_ref(), &arrow::array::Int64Array::from(vec![Some(5), None, None]) as &dyn Array);
        let two =
            arrow::array::ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), Some(2)])]);
        assert!(try_one("element", &[ScalarValue::List(Arc::new(two))]).is_err());
    }
}
