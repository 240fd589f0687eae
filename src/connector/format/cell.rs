//! Values of Arrow arrays as text: typed once a batch, then written row by row.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Decimal128Array, ListArray, MapArray, StringArray,
    StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::record_batch::RecordBatch;

use super::base64;
use super::number::{push_decimal, push_double, push_float, push_integer};
use super::options::TimeStyle;
use super::time_text::{push_date, push_time, push_timestamp};
use crate::error::Error;

/// The rows of a batch as text, columns separated by `, `.
pub(crate) struct RowText<'a>(Vec<Cells<'a>>);

impl<'a> RowText<'a> {
    /// Looks at the columns' types.
    ///
    /// # Errors
    /// An internal error for a type that has no text.
    pub(crate) fn new(rows: &'a RecordBatch) -> Result<Self, Error> {
        let style = TimeStyle::Text(b'T');
        rows.columns()
            .iter()
            .map(|column| Cells::new(column.as_ref(), style))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Appends a row; NULL is `NULL`.
    pub(crate) fn push_row(&self, row: usize, out: &mut Vec<u8>) {
        for (index, cells) in self.0.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(b", ");
            }
            if cells.is_null(row) { out.extend_from_slice(b"NULL") } else { cells.push_text(row, out) }
        }
    }
}

/// An array of which values are written.
pub(super) struct Cells<'a> {
    nulls: Option<&'a NullBuffer>,
    values: Values<'a>,
    style: TimeStyle,
}

enum Values<'a> {
    Null,
    Boolean(&'a BooleanArray),
    Int8(&'a [i8]),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    Unsigned(Vec<u64>),
    Float32(&'a [f32]),
    Float64(&'a [f64]),
    Decimal(&'a Decimal128Array, i8),
    Text(&'a StringArray),
    Bytes(&'a BinaryArray),
    Date(&'a [i32]),
    Time32(&'a [i32], TimeUnit),
    Time64(&'a [i64], TimeUnit),
    Timestamp {
        values: &'a [i64],
        unit: TimeUnit,
        is_instant: bool,
    },
    List(&'a ListArray, Box<Cells<'a>>),
    Map(&'a MapArray, Box<Cells<'a>>, Box<Cells<'a>>),
    /// Fields, each with its name as a JSON key: `"name":`.
    Row(Vec<(Vec<u8>, Cells<'a>)>),
    /// Converted to a type that is here.
    Other(Converted),
}

/// An array of a type that tables don't have, such as a dictionary: written by Arrow's own display.
struct Converted(ArrayRef);

impl<'a> Cells<'a> {
    /// Looks at an array's type.
    ///
    /// # Errors
    /// An internal error for a type that has no text.
    pub(super) fn new(array: &'a dyn Array, style: TimeStyle) -> Result<Self, Error> {
        let values = match array.data_type() {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Boolean(array.as_boolean()),
            DataType::Int8 => Values::Int8(array.as_primitive::<Int8Type>().values()),
            DataType::Int16 => Values::Int16(array.as_primitive::<Int16Type>().values()),
            DataType::Int32 => Values::Int32(array.as_primitive::<Int32Type>().values()),
            DataType::Int64 => Values::Int64(array.as_primitive::<Int64Type>().values()),
            DataType::UInt8 => Values::Unsigned(
                array.as_primitive::<UInt8Type>().values().iter().map(|v| u64::from(*v)).collect(),
            ),
            DataType::UInt16 => Values::Unsigned(
                array.as_primitive::<UInt16Type>().values().iter().map(|v| u64::from(*v)).collect(),
            ),
            DataType::UInt32 => Values::Unsigned(
                array.as_primitive::<UInt32Type>().values().iter().map(|v| u64::from(*v)).collect(),
            ),
            DataType::UInt64 => Values::Unsigned(array.as_primitive::<UInt64Type>().values().to_vec()),
            DataType::Float32 => Values::Float32(array.as_primitive::<Float32Type>().values()),
            DataType::Float64 => Values::Float64(array.as_primitive::<Float64Type>().values()),
            DataType::Decimal128(_, scale) => Values::Decimal(array.as_primitive::<Decimal128Type>(), *scale),
            DataType::Utf8 => Values::Text(array.as_string()),
            DataType::Binary => Values::Bytes(array.as_binary()),
            DataType::Date32 => Values::Date(array.as_primitive::<Date32Type>().values()),
            DataType::Time32(TimeUnit::Second) => {
                Values::Time32(array.as_primitive::<Time32SecondType>().values(), TimeUnit::Second)
            }
            DataType::Time32(unit) => {
                Values::Time32(array.as_primitive::<Time32MillisecondType>().values(), *unit)
            }
            DataType::Time64(TimeUnit::Nanosecond) => {
                Values::Time64(array.as_primitive::<Time64NanosecondType>().values(), TimeUnit::Nanosecond)
            }
            DataType::Time64(unit) => {
                Values::Time64(array.as_primitive::<Time64MicrosecondType>().values(), *unit)
            }
            DataType::Timestamp(unit, zone) => {
                let values: &[i64] = match unit {
                    TimeUnit::Second => array.as_primitive::<TimestampSecondType>().values(),
                    TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().values(),
                    TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().values(),
                    TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().values(),
                };
                Values::Timestamp { values, unit: *unit, is_instant: zone.is_some() }
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                Values::List(list, Box::new(Self::new(list.values().as_ref(), style)?))
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let keys = Self::new(map.keys().as_ref(), style)?;
                Values::Map(map, Box::new(keys), Box::new(Self::new(map.values().as_ref(), style)?))
            }
            DataType::Struct(_) => {
                let row: &StructArray = array.as_struct();
                let fields = row.fields().iter().zip(row.columns());
                let fields = fields
                    .map(|(field, column)| Ok((json_key(field.name()), Self::new(column.as_ref(), style)?)));
                Values::Row(fields.collect::<Result<_, Error>>()?)
            }
            other => {
                let text = arrow::compute::cast(array, &DataType::Utf8).map_err(|error| {
                    Error::internal("text writer", format!("{other} has no text: {error}"))
                })?;
                Values::Other(Converted(text))
            }
        };
        Ok(Self { nulls: array.nulls(), values, style })
    }

    /// Whether the value is NULL.
    #[inline]
    pub(super) fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(row)) || matches!(self.values, Values::Null)
    }

    /// Appends the value as JSON; NULL as `null`.
    #[inline]
    pub(super) fn push_json(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_null(row) {
            out.extend_from_slice(b"null");
            return;
        }
        match &self.values {
            Values::Text(values) => push_json_string(out, values.value(row).as_bytes()),
            Values::Other(Converted(values)) => {
                push_json_string(out, values.as_string::<i32>().value(row).as_bytes())
            }
            Values::Float32(values) if !values[row].is_finite() => {
                quoted(out, |out| self.push_text(row, out))
            }
            Values::Float64(values) if !values[row].is_finite() => {
                quoted(out, |out| self.push_text(row, out))
            }
            Values::Timestamp { .. } if matches!(self.style, TimeStyle::Text(_)) => {
                quoted(out, |out| self.push_text(row, out));
            }
            Values::Bytes(_) | Values::Date(_) | Values::Time32(..) | Values::Time64(..) => {
                quoted(out, |out| self.push_text(row, out));
            }
            _ => self.push_text(row, out),
        }
    }

    /// Appends the value without quotes; nested values as JSON. Not for NULL.
    #[inline]
    pub(super) fn push_text(&self, row: usize, out: &mut Vec<u8>) {
        match &self.values {
            Values::Null => {}
            Values::Boolean(values) => {
                out.extend_from_slice(if values.value(row) { b"true" } else { b"false" })
            }
            Values::Int8(values) => push_integer(out, values[row].into()),
            Values::Int16(values) => push_integer(out, values[row].into()),
            Values::Int32(values) => push_integer(out, values[row].into()),
            Values::Int64(values) => push_integer(out, values[row]),
            Values::Unsigned(values) => push_decimal(out, values[row].into(), 0),
            Values::Float32(values) => match special(f64::from(values[row])) {
                Some(word) => out.extend_from_slice(word),
                None => push_float(out, values[row]),
            },
            Values::Float64(values) => match special(values[row]) {
                Some(word) => out.extend_from_slice(word),
                None => push_double(out, values[row]),
            },
            Values::Decimal(values, scale) => push_decimal(out, values.value(row), *scale),
            Values::Text(values) => out.extend_from_slice(values.value(row).as_bytes()),
            Values::Other(Converted(values)) => {
                out.extend_from_slice(values.as_string::<i32>().value(row).as_bytes());
            }
            Values::Bytes(values) => base64::encode(out, values.value(row)),
            Values::Date(values) => push_date(out, values[row].into()),
            Values::Time32(values, unit) => push_time(out, values[row].into(), *unit),
            Values::Time64(values, unit) => push_time(out, values[row], *unit),
            Values::Timestamp { values, unit, is_instant } => match self.style {
                TimeStyle::Text(separator) => {
                    push_timestamp(out, values[row], *unit, separator);
                    if *is_instant {
                        out.push(b'Z');
                    }
                }
                TimeStyle::Epoch(counted) => push_epoch(out, values[row], *unit, counted),
            },
            Values::List(list, items) => {
                let offsets = list.value_offsets();
                out.push(b'[');
                for index in offsets[row]..offsets[row + 1] {
                    if index > offsets[row] {
                        out.push(b',');
                    }
                    items.push_json(index as usize, out);
                }
                out.push(b']');
            }
            Values::Map(map, keys, values) => {
                let offsets = map.value_offsets();
                out.push(b'{');
                for index in offsets[row]..offsets[row + 1] {
                    if index > offsets[row] {
                        out.push(b',');
                    }
                    keys.push_json_key(index as usize, out);
                    out.push(b':');
                    values.push_json(index as usize, out);
                }
                out.push(b'}');
            }
            Values::Row(fields) => {
                out.push(b'{');
                for (index, (key, cells)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(key);
                    cells.push_json(row, out);
                }
                out.push(b'}');
            }
        }
    }

    /// Appends a map's key: always a string.
    fn push_json_key(&self, row: usize, out: &mut Vec<u8>) {
        match &self.values {
            Values::Text(values) => push_json_string(out, values.value(row).as_bytes()),
            Values::List(..) | Values::Map(..) | Values::Row(_) => {
                let mut text = Vec::new();
                self.push_text(row, &mut text);
                push_json_string(out, &text);
            }
            _ => quoted(out, |out| self.push_text(row, out)),
        }
    }
}

fn special(value: f64) -> Option<&'static [u8]> {
    if value.is_nan() {
        Some(b"NaN")
    } else if value.is_infinite() {
        Some(if value > 0.0 { b"Infinity" } else { b"-Infinity" })
    } else {
        None
    }
}

fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

/// A timestamp as a number, with a fraction where the column is finer than what is counted.
fn push_epoch(out: &mut Vec<u8>, value: i64, unit: TimeUnit, counted: TimeUnit) {
    let (have, want) = (super::time_text::ticks(unit), super::time_text::ticks(counted));
    if have <= want {
        push_decimal(out, i128::from(value) * i128::from(want / have), 0);
        return;
    }
    let per = have / want;
    if value % per == 0 {
        push_integer(out, value / per);
    } else {
        push_decimal(out, value.into(), per.ilog10() as i8);
    }
}

/// A JSON key with its colon.
pub(super) fn json_key(name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 3);
    push_json_string(&mut key, name.as_bytes());
    key.push(b':');
    key
}

/// Appends a JSON string. `text` is UTF-8; only what must be escaped is.
pub(super) fn push_json_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    let mut start = 0;
    for (at, byte) in text.iter().enumerate() {
        if *byte >= 0x20 && *byte != b'"' && *byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text[start..at]);
        start = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(control >> 4)], HEX[usize::from(control & 15)]]);
            }
        }
    }
    out.extend_from_slice(&text[start..]);
    out.push(b'"');
}
