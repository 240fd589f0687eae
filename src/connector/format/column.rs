//! A column that is being decoded: Arrow buffers that can be cut back to the start of a row.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, Date32Array, Decimal128Array, Float32Array,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, ListArray, MapArray, NullBufferBuilder,
    StringArray, StructArray, Time32MillisecondArray, Time32SecondArray, Time64MicrosecondArray,
    Time64NanosecondArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, FieldRef, Fields, TimeUnit};
use arrow::error::ArrowError;
use chrono::{LocalResult, Offset, TimeZone};

use super::base64;
use super::number::{NumberFault, parse_decimal, parse_double, parse_float, parse_integer};
use super::time_text::{LastDay, parse_date, parse_time, parse_timestamp_after, ticks};

/// Why a value does not fit its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is no value of the type.
    NotOfType,
    /// It is a number, or time, beyond what the type can hold.
    OutOfRange,
    /// It has an offset, and the column is a wall clock time without zone.
    HasOffset,
    /// It is a local time that the clocks of the session's zone skipped.
    SkippedLocalTime,
    /// It is a number, and nobody said what the number counts.
    BareNumber,
    /// It is NULL in a NOT NULL column.
    Null,
}

impl From<NumberFault> for Fault {
    fn from(fault: NumberFault) -> Self {
        match fault {
            NumberFault::NotANumber => Self::NotOfType,
            NumberFault::OutOfRange => Self::OutOfRange,
        }
    }
}

/// How texts and numbers are read as timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TimeRules {
    /// What must stand between date and time; `None`: a space or a `T`.
    pub(crate) separator: Option<u8>,
    /// What a number counts; `None`: numbers are no timestamps.
    pub(crate) epoch: Option<TimeUnit>,
}

/// The zone of a TIMESTAMP_LTZ column, for texts without offset.
#[derive(Debug, Clone, Copy)]
enum Zone {
    /// The column is a TIMESTAMP.
    None,
    Utc,
    Named(chrono_tz::Tz),
}

/// One column.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) field: FieldRef,
    pub(crate) values: Values,
    nulls: NullBufferBuilder,
    len: usize,
    rules: TimeRules,
}

/// The buffers of a column by type. Closed on purpose: match it without a wildcard.
#[derive(Debug)]
pub(crate) enum Values {
    Boolean(BooleanBufferBuilder),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal { values: Vec<i128>, precision: u8, scale: i8 },
    Text(Bytes),
    Bytes(Bytes),
    Date(Vec<i32>),
    Time32(Vec<i32>, TimeUnit),
    Time64(Vec<i64>, TimeUnit),
    Timestamp { values: Vec<i64>, unit: TimeUnit, zone: ZoneOf, last_day: LastDay },
    List { offsets: Vec<i32>, item: Box<Column> },
    Map { offsets: Vec<i32>, key: Box<Column>, value: Box<Column> },
    Row(Vec<Column>),
}

/// See [`Zone`]; kept opaque.
#[derive(Debug)]
pub(crate) struct ZoneOf(Zone);

/// Values of any length, one after another.
#[derive(Debug)]
pub(crate) struct Bytes {
    offsets: Vec<i32>,
    data: Vec<u8>,
}

impl Bytes {
    fn new() -> Self {
        Self { offsets: vec![0], data: Vec::new() }
    }

    /// Ends a value whose bytes are in `data` already.
    #[inline]
    fn close(&mut self) -> Result<(), Fault> {
        match i32::try_from(self.data.len()) {
            Ok(end) => {
                self.offsets.push(end);
                Ok(())
            }
            Err(_) => {
                self.data.truncate(self.offsets[self.offsets.len() - 1] as usize);
                Err(Fault::OutOfRange)
            }
        }
    }

    /// Appends a value.
    #[inline]
    pub(crate) fn push(&mut self, value: &[u8]) -> Result<(), Fault> {
        self.data.extend_from_slice(value);
        self.close()
    }

    fn truncate(&mut self, len: usize) {
        self.offsets.truncate(len + 1);
        self.data.truncate(self.offsets[len] as usize);
    }

    /// The value at `index`.
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        &self.data[self.offsets[index] as usize..self.offsets[index + 1] as usize]
    }

    fn take(&mut self) -> (OffsetBuffer<i32>, Vec<u8>) {
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        let data = std::mem::take(&mut self.data);
        self.offsets.reserve(offsets.len());
        self.data.reserve(data.len());
        (OffsetBuffer::new(offsets.into()), data)
    }
}

impl Column {
    /// An empty column; `None` if no format can hold the type.
    pub(crate) fn new(field: FieldRef, rules: TimeRules) -> Option<Self> {
        let values = match field.data_type() {
            DataType::Boolean => Values::Boolean(BooleanBufferBuilder::new(0)),
            DataType::Int8 => Values::Int8(Vec::new()),
            DataType::Int16 => Values::Int16(Vec::new()),
            DataType::Int32 => Values::Int32(Vec::new()),
            DataType::Int64 => Values::Int64(Vec::new()),
            DataType::Float32 => Values::Float32(Vec::new()),
            DataType::Float64 => Values::Float64(Vec::new()),
            DataType::Decimal128(precision, scale) => {
                Values::Decimal { values: Vec::new(), precision: *precision, scale: *scale }
            }
            DataType::Utf8 => Values::Text(Bytes::new()),
            DataType::Binary => Values::Bytes(Bytes::new()),
            DataType::Date32 => Values::Date(Vec::new()),
            DataType::Time32(unit) => Values::Time32(Vec::new(), *unit),
            DataType::Time64(unit) => Values::Time64(Vec::new(), *unit),
            DataType::Timestamp(unit, zone) => {
                let zone = match zone.as_deref() {
                    None => Zone::None,
                    Some("UTC" | "+00:00" | "Z") => Zone::Utc,
                    Some(name) => Zone::Named(name.parse().ok()?),
                };
                let (values, last_day) = (Vec::new(), LastDay::default());
                Values::Timestamp { values, unit: *unit, zone: ZoneOf(zone), last_day }
            }
            DataType::List(item) => {
                Values::List { offsets: vec![0], item: Box::new(Self::new(Arc::clone(item), rules)?) }
            }
            DataType::Map(entries, _) => {
                let DataType::Struct(fields) = entries.data_type() else { return None };
                let [key, value] = &fields[..] else { return None };
                Values::Map {
                    offsets: vec![0],
                    key: Box::new(Self::new(Arc::clone(key), rules)?),
                    value: Box::new(Self::new(Arc::clone(value), rules)?),
                }
            }
            DataType::Struct(fields) => Values::Row(
                fields.iter().map(|field| Self::new(Arc::clone(field), rules)).collect::<Option<_>>()?,
            ),
            _ => return None,
        };
        Some(Self { field, values, nulls: NullBufferBuilder::new(0), len: 0, rules })
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Forgets the values from `len` on, and the parts of a value that was not finished.
    pub(crate) fn truncate(&mut self, len: usize) {
        if self.len < len {
            return;
        }
        if self.len > len {
            self.len = len;
            self.nulls.truncate(len);
        }
        match &mut self.values {
            Values::Boolean(values) => values.truncate(len),
            Values::Int8(values) => values.truncate(len),
            Values::Int16(values) => values.truncate(len),
            Values::Int32(values) | Values::Date(values) | Values::Time32(values, _) => values.truncate(len),
            Values::Int64(values) | Values::Time64(values, _) | Values::Timestamp { values, .. } => {
                values.truncate(len);
            }
            Values::Float32(values) => values.truncate(len),
            Values::Float64(values) => values.truncate(len),
            Values::Decimal { values, .. } => values.truncate(len),
            Values::Text(bytes) | Values::Bytes(bytes) => bytes.truncate(len),
            Values::List { offsets, item } => {
                offsets.truncate(len + 1);
                item.truncate(offsets[len] as usize);
            }
            Values::Map { offsets, key, value } => {
                offsets.truncate(len + 1);
                key.truncate(offsets[len] as usize);
                value.truncate(offsets[len] as usize);
            }
            Values::Row(fields) => fields.iter_mut().for_each(|field| field.truncate(len)),
        }
    }

    /// Appends NULL.
    ///
    /// # Errors
    /// [`Fault::Null`] if the column is NOT NULL.
    pub(crate) fn append_null(&mut self) -> Result<(), Fault> {
        if !self.field.is_nullable() {
            return Err(Fault::Null);
        }
        self.push_null();
        Ok(())
    }

    /// Appends an empty value, 0 or false: NULL where the column may be that.
    pub(crate) fn append_empty(&mut self) {
        let is_valid = !self.field.is_nullable();
        self.push_empty(is_valid);
    }

    /// NULL, also below a NOT NULL field: a placeholder under a NULL row.
    fn push_null(&mut self) {
        self.push_empty(false);
    }

    fn push_empty(&mut self, is_valid: bool) {
        match &mut self.values {
            Values::Boolean(values) => values.append(false),
            Values::Int8(values) => values.push(0),
            Values::Int16(values) => values.push(0),
            Values::Int32(values) | Values::Date(values) | Values::Time32(values, _) => values.push(0),
            Values::Int64(values) | Values::Time64(values, _) | Values::Timestamp { values, .. } => {
                values.push(0);
            }
            Values::Float32(values) => values.push(0.0),
            Values::Float64(values) => values.push(0.0),
            Values::Decimal { values, .. } => values.push(0),
            Values::Text(bytes) | Values::Bytes(bytes) => {
                let end = bytes.offsets[bytes.offsets.len() - 1];
                bytes.offsets.push(end);
            }
            Values::List { offsets, .. } | Values::Map { offsets, .. } => {
                let end = offsets[offsets.len() - 1];
                offsets.push(end);
            }
            Values::Row(fields) => fields.iter_mut().for_each(|field| field.push_empty(is_valid)),
        }
        if is_valid {
            self.nulls.append_non_null();
        } else {
            self.nulls.append_null();
        }
        self.len += 1;
    }

    /// Ends a value whose parts were appended to `values` already.
    #[inline]
    pub(crate) fn close_value(&mut self) {
        self.nulls.append_non_null();
        self.len += 1;
    }

    /// Appends a BIGINT; any other column is left alone.
    #[inline]
    pub(crate) fn append_integer(&mut self, value: i64) {
        if let Values::Int64(values) = &mut self.values {
            values.push(value);
            self.close_value();
        }
    }

    /// Appends a value from its text, by the column's type. A STRING takes the text as it is.
    ///
    /// `text` is valid UTF-8. On an error nothing was appended.
    #[inline]
    pub(crate) fn append_text(&mut self, text: &[u8]) -> Result<(), Fault> {
        match &mut self.values {
            Values::Text(bytes) => bytes.push(text)?,
            Values::Int64(values) => values.push(parse_integer(text.trim_ascii())?),
            Values::Int32(values) => values.push(narrow(text)?),
            Values::Float64(values) => values.push(parse_double(text.trim_ascii())?),
            Values::Timestamp { values, unit, zone, last_day } => {
                values.push(timestamp(text, *unit, zone.0, self.rules, last_day)?);
            }
            _ => self.append_rare_text(text)?,
        }
        self.close_value();
        Ok(())
    }

    fn append_rare_text(&mut self, text: &[u8]) -> Result<(), Fault> {
        match &mut self.values {
            Values::Boolean(values) => match text.trim_ascii() {
                word if word.eq_ignore_ascii_case(b"true") => values.append(true),
                word if word.eq_ignore_ascii_case(b"false") => values.append(false),
                _ => return Err(Fault::NotOfType),
            },
            Values::Int8(values) => values.push(narrow(text)?),
            Values::Int16(values) => values.push(narrow(text)?),
            Values::Float32(values) => values.push(parse_float(text.trim_ascii())?),
            Values::Decimal { values, precision, scale } => {
                let (value, _) = parse_decimal(text.trim_ascii(), *scale)?;
                let limit = 10_u128.checked_pow(u32::from(*precision)).unwrap_or(u128::MAX);
                if value.unsigned_abs() >= limit {
                    return Err(Fault::OutOfRange);
                }
                values.push(value);
            }
            Values::Bytes(bytes) => {
                base64::decode(&mut bytes.data, text).ok_or(Fault::NotOfType)?;
                bytes.close()?;
            }
            Values::Date(values) => values.push(parse_date(text).ok_or(Fault::NotOfType)?),
            Values::Time32(values, unit) => {
                let nanos = parse_time(text).ok_or(Fault::NotOfType)?;
                values.push((nanos / (1_000_000_000 / ticks(*unit))) as i32);
            }
            Values::Time64(values, unit) => {
                let nanos = parse_time(text).ok_or(Fault::NotOfType)?;
                values.push(nanos / (1_000_000_000 / ticks(*unit)));
            }
            Values::Int32(_)
            | Values::Int64(_)
            | Values::Float64(_)
            | Values::Text(_)
            | Values::Timestamp { .. }
            | Values::List { .. }
            | Values::Map { .. }
            | Values::Row(_) => return Err(Fault::NotOfType),
        }
        Ok(())
    }

    /// Appends a STRING or BYTES value as it is.
    pub(crate) fn append_bytes(&mut self, value: &[u8]) -> Result<(), Fault> {
        let (Values::Text(bytes) | Values::Bytes(bytes)) = &mut self.values else {
            return Err(Fault::NotOfType);
        };
        bytes.push(value)?;
        self.close_value();
        Ok(())
    }

    /// The finished array; the column is empty afterwards.
    ///
    /// # Errors
    /// Arrow's, if the parts don't fit together: an internal fault.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let nulls = self.nulls.finish();
        let len = std::mem::take(&mut self.len);
        Ok(match &mut self.values {
            Values::Boolean(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Values::Int8(values) => Arc::new(Int8Array::new(take(values), nulls)),
            Values::Int16(values) => Arc::new(Int16Array::new(take(values), nulls)),
            Values::Int32(values) => Arc::new(Int32Array::new(take(values), nulls)),
            Values::Int64(values) => Arc::new(Int64Array::new(take(values), nulls)),
            Values::Float32(values) => Arc::new(Float32Array::new(take(values), nulls)),
            Values::Float64(values) => Arc::new(Float64Array::new(take(values), nulls)),
            Values::Decimal { values, precision, scale } => Arc::new(
                Decimal128Array::new(take(values), nulls).with_precision_and_scale(*precision, *scale)?,
            ),
            Values::Text(bytes) => {
                let (offsets, data) = bytes.take();
                Arc::new(StringArray::try_new(offsets, data.into(), nulls)?)
            }
            Values::Bytes(bytes) => {
                let (offsets, data) = bytes.take();
                Arc::new(BinaryArray::try_new(offsets, data.into(), nulls)?)
            }
            Values::Date(values) => Arc::new(Date32Array::new(take(values), nulls)),
            Values::Time32(values, TimeUnit::Second) => Arc::new(Time32SecondArray::new(take(values), nulls)),
            Values::Time32(values, _) => Arc::new(Time32MillisecondArray::new(take(values), nulls)),
            Values::Time64(values, TimeUnit::Nanosecond) => {
                Arc::new(Time64NanosecondArray::new(take(values), nulls))
            }
            Values::Time64(values, _) => Arc::new(Time64MicrosecondArray::new(take(values), nulls)),
            Values::Timestamp { values, unit, .. } => {
                let DataType::Timestamp(_, zone) = self.field.data_type() else {
                    return Err(ArrowError::SchemaError("no timestamp".into()));
                };
                timestamps(take(values), nulls, *unit, zone.clone())
            }
            Values::List { offsets, item } => {
                let offsets = take_offsets(offsets);
                let DataType::List(field) = self.field.data_type() else {
                    return Err(ArrowError::SchemaError("no list".into()));
                };
                Arc::new(ListArray::try_new(Arc::clone(field), offsets, item.finish()?, nulls)?)
            }
            Values::Map { offsets, key, value } => {
                let offsets = take_offsets(offsets);
                let DataType::Map(entries, sorted) = self.field.data_type() else {
                    return Err(ArrowError::SchemaError("no map".into()));
                };
                let DataType::Struct(fields) = entries.data_type() else {
                    return Err(ArrowError::SchemaError("no map".into()));
                };
                let parts = vec![key.finish()?, value.finish()?];
                let structs = StructArray::try_new(fields.clone(), parts, None)?;
                Arc::new(MapArray::try_new(Arc::clone(entries), offsets, structs, nulls, *sorted)?)
            }
            Values::Row(columns) => {
                let DataType::Struct(fields) = self.field.data_type() else {
                    return Err(ArrowError::SchemaError("no row".into()));
                };
                let arrays = columns.iter_mut().map(Self::finish).collect::<Result<Vec<_>, _>>()?;
                if fields.is_empty() {
                    Arc::new(StructArray::new_empty_fields(len, nulls))
                } else {
                    Arc::new(StructArray::try_new(Fields::clone(fields), arrays, nulls)?)
                }
            }
        })
    }
}

fn take<T>(values: &mut Vec<T>) -> ScalarBuffer<T>
where
    T: arrow::datatypes::ArrowNativeType,
{
    let full = std::mem::take(values);
    values.reserve(full.len());
    full.into()
}

fn take_offsets(offsets: &mut Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(std::mem::replace(offsets, vec![0]).into())
}

fn narrow<T: TryFrom<i64>>(text: &[u8]) -> Result<T, Fault> {
    T::try_from(parse_integer(text.trim_ascii())?).map_err(|_| Fault::OutOfRange)
}

fn timestamps(
    values: ScalarBuffer<i64>,
    nulls: Option<NullBuffer>,
    unit: TimeUnit,
    zone: Option<Arc<str>>,
) -> ArrayRef {
    match unit {
        TimeUnit::Second => Arc::new(TimestampSecondArray::new(values, nulls).with_timezone_opt(zone)),
        TimeUnit::Millisecond => {
            Arc::new(TimestampMillisecondArray::new(values, nulls).with_timezone_opt(zone))
        }
        TimeUnit::Microsecond => {
            Arc::new(TimestampMicrosecondArray::new(values, nulls).with_timezone_opt(zone))
        }
        TimeUnit::Nanosecond => {
            Arc::new(TimestampNanosecondArray::new(values, nulls).with_timezone_opt(zone))
        }
    }
}

#[inline]
fn timestamp(
    text: &[u8],
    unit: TimeUnit,
    zone: Zone,
    rules: TimeRules,
    last_day: &mut LastDay,
) -> Result<i64, Fault> {
    let Some(mut reading) = parse_timestamp_after(text, last_day) else { return epoch(text, unit, rules) };
    if rules.separator.is_some_and(|separator| reading.separator != separator) {
        return Err(Fault::NotOfType);
    }
    let offset = match (reading.offset, zone) {
        (None, Zone::None | Zone::Utc) => 0,
        (Some(_), Zone::None) => return Err(Fault::HasOffset),
        (Some(offset), _) => i64::from(offset),
        (None, Zone::Named(zone)) => local_offset(reading.seconds, zone)?,
    };
    reading.seconds -= offset;
    reading.in_unit(unit).ok_or(Fault::OutOfRange)
}

/// The offset of a zone at a local time; the earlier instant where the clocks show it twice.
fn local_offset(seconds: i64, zone: chrono_tz::Tz) -> Result<i64, Fault> {
    let local = chrono::DateTime::from_timestamp(seconds, 0).ok_or(Fault::OutOfRange)?.naive_utc();
    match zone.offset_from_local_datetime(&local) {
        LocalResult::Single(offset) | LocalResult::Ambiguous(offset, _) => {
            Ok(i64::from(offset.fix().local_minus_utc()))
        }
        LocalResult::None => Err(Fault::SkippedLocalTime),
    }
}

/// A number as a timestamp: what it counts must have been said.
fn epoch(text: &[u8], unit: TimeUnit, rules: TimeRules) -> Result<i64, Fault> {
    let text = text.trim_ascii();
    let Some(counted) = rules.epoch else {
        let is_number = parse_decimal(text, 9) != Err(NumberFault::NotANumber);
        return Err(if is_number { Fault::BareNumber } else { Fault::NotOfType });
    };
    // Exact at the finest unit, then down: a fraction is cut, never rounded.
    let digits = match counted {
        TimeUnit::Second => 9,
        TimeUnit::Millisecond => 6,
        TimeUnit::Microsecond => 3,
        TimeUnit::Nanosecond => 0,
    };
    if let (Ok(number), true) = (parse_integer(text), counted == unit) {
        return Ok(number);
    }
    let (mut nanos, exact) = parse_decimal(text, digits)?;
    if !exact && nanos > 0 {
        // Rounding may have gone up; a tenth of a nanosecond makes no difference downwards.
        let (finer, _) = parse_decimal(text, digits + 3)?;
        nanos = finer.div_euclid(1_000);
    }
    let value = nanos.div_euclid(i128::from(1_000_000_000 / ticks(unit)));
    i64::try_from(value).map_err(|_| Fault::OutOfRange)
}
