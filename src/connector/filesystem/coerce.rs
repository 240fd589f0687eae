//! Arrow arrays of a file's types as arrays of the table's types, exactly or not at all.
//!
//! Times keep their instant and are cut to the column's precision (downwards, also before 1970); a
//! file's instant read as a TIMESTAMP is its wall clock in UTC. Whole numbers must fit. Nothing is
//! parsed, nothing is rounded.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, MapArray, StructArray, new_null_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, Int64Type, TimeUnit};
use arrow::error::ArrowError;

use crate::connector::format::sql_type_name;
use crate::connector::format::time_text::ticks;

/// The array as `target`.
///
/// # Errors
/// Why it can't be, as the end of a sentence.
pub(super) fn coerce(array: &ArrayRef, target: &DataType) -> Result<ArrayRef, String> {
    let source = array.data_type();
    if source == target {
        return Ok(Arc::clone(array));
    }
    let exactly = || {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(array, target, &options).map_err(|error| reason(error, target))
    };
    match (source, target) {
        (DataType::Null, _) => Ok(new_null_array(target, array.len())),
        (DataType::Dictionary(_, values), _) => {
            let plain = cast(array, values).map_err(|error| error.to_string())?;
            coerce(&plain, target)
        }
        (DataType::Timestamp(from, _), DataType::Timestamp(to, zone)) => {
            let values = cast(array, &DataType::Int64).map_err(|error| error.to_string())?;
            let values = rescale(values.as_primitive::<Int64Type>(), *from, *to)
                .ok_or_else(|| format!("holds a time that is out of range for {}", sql_type_name(target)))?;
            let naive = cast(&values, &DataType::Timestamp(*to, None)).map_err(|error| error.to_string())?;
            match zone {
                None => Ok(naive),
                // The numbers are instants already: the zone is only put on.
                Some(zone) => Ok(with_zone(&naive, *to, zone)),
            }
        }
        (DataType::Time32(from) | DataType::Time64(from), DataType::Time32(to) | DataType::Time64(to)) => {
            let wide = if matches!(source, DataType::Time32(_)) { DataType::Int32 } else { DataType::Int64 };
            let values = cast(array, &wide)
                .and_then(|values| cast(&values, &DataType::Int64))
                .map_err(|error| error.to_string())?;
            let values = rescale(values.as_primitive::<Int64Type>(), *from, *to)
                .ok_or_else(|| format!("holds a time that is out of range for {}", sql_type_name(target)))?;
            let narrow =
                if matches!(target, DataType::Time32(_)) { DataType::Int32 } else { DataType::Int64 };
            cast(&values, &narrow).and_then(|values| cast(&values, target)).map_err(|error| error.to_string())
        }
        (DataType::Decimal128(_, from) | DataType::Decimal256(_, from), DataType::Decimal128(_, to))
            if from <= to =>
        {
            exactly()
        }
        (DataType::List(_), DataType::List(field)) => list(array.as_list::<i32>(), field),
        (DataType::LargeList(_) | DataType::FixedSizeList(..), DataType::List(_)) => {
            let item = match source {
                DataType::LargeList(item) | DataType::FixedSizeList(item, _) => Arc::clone(item),
                _ => return refuse(source, target),
            };
            let plain = cast(array, &DataType::List(item)).map_err(|error| error.to_string())?;
            coerce(&plain, target)
        }
        (DataType::Struct(_), DataType::Struct(fields)) => row(array.as_struct(), fields),
        (DataType::Map(..), DataType::Map(entries, sorted)) => {
            let map: &MapArray = array.as_map();
            let DataType::Struct(fields) = entries.data_type() else { return refuse(source, target) };
            let parts = vec![
                coerce(map.keys(), fields[0].data_type())?,
                coerce(map.values(), fields[1].data_type())?,
            ];
            let structs =
                StructArray::try_new(fields.clone(), parts, None).map_err(|error| error.to_string())?;
            MapArray::try_new(
                Arc::clone(entries),
                map.offsets().clone(),
                structs,
                map.nulls().cloned(),
                *sorted,
            )
            .map(|map| Arc::new(map) as ArrayRef)
            .map_err(|error| error.to_string())
        }
        _ if is_exact(source, target) => exactly(),
        _ => refuse(source, target),
    }
}

/// Whether Arrow's cast between these plain types keeps every value that fits.
fn is_exact(source: &DataType, target: &DataType) -> bool {
    let is_text =
        |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let is_bytes = matches!(
        source,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_)
    );
    match target {
        _ if target.is_integer() => source.is_integer(),
        DataType::Decimal128(_, scale) => source.is_integer() && *scale >= 0,
        DataType::Float64 => {
            matches!(source, DataType::Float32 | DataType::Float16)
                || (source.is_integer() && source.primitive_width().is_some_and(|width| width <= 4))
        }
        DataType::Float32 => {
            matches!(source, DataType::Float16)
                || (source.is_integer() && source.primitive_width().is_some_and(|width| width <= 2))
        }
        DataType::Utf8 => is_text(source),
        DataType::Binary => is_bytes || is_text(source),
        DataType::Date32 => matches!(source, DataType::Date64),
        DataType::Timestamp(_, None) => matches!(source, DataType::Date32 | DataType::Date64),
        _ => false,
    }
}

fn refuse(source: &DataType, target: &DataType) -> Result<ArrayRef, String> {
    Err(format!("is {} in the file, which can't be read as {}", sql_type_name(source), sql_type_name(target)))
}

fn reason(error: ArrowError, target: &DataType) -> String {
    match error {
        ArrowError::CastError(_) | ArrowError::InvalidArgumentError(_) | ArrowError::ComputeError(_) => {
            format!("holds a value that is out of range for {} ({error})", sql_type_name(target))
        }
        other => other.to_string(),
    }
}

/// Values in another unit, downwards; `None` if one does not fit.
fn rescale(values: &Int64Array, from: TimeUnit, to: TimeUnit) -> Option<Int64Array> {
    let (from, to) = (ticks(from), ticks(to));
    if from >= to {
        let divisor = from / to;
        return Some(values.unary(|value| value.div_euclid(divisor)));
    }
    let factor = to / from;
    values.try_unary(|value| value.checked_mul(factor).ok_or(())).ok()
}

fn with_zone(naive: &ArrayRef, unit: TimeUnit, zone: &Arc<str>) -> ArrayRef {
    use arrow::datatypes::{
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    };
    let zone = Arc::clone(zone);
    match unit {
        TimeUnit::Second => {
            Arc::new(naive.as_primitive::<TimestampSecondType>().clone().with_timezone(zone)) as ArrayRef
        }
        TimeUnit::Millisecond => {
            Arc::new(naive.as_primitive::<TimestampMillisecondType>().clone().with_timezone(zone))
        }
        TimeUnit::Microsecond => {
            Arc::new(naive.as_primitive::<TimestampMicrosecondType>().clone().with_timezone(zone))
        }
        TimeUnit::Nanosecond => {
            Arc::new(naive.as_primitive::<TimestampNanosecondType>().clone().with_timezone(zone))
        }
    }
}

fn list(list: &ListArray, field: &Arc<Field>) -> Result<ArrayRef, String> {
    let items = coerce(list.values(), field.data_type())?;
    let offsets: OffsetBuffer<i32> = list.offsets().clone();
    ListArray::try_new(Arc::clone(field), offsets, items, list.nulls().cloned())
        .map(|list| Arc::new(list) as ArrayRef)
        .map_err(|error| error.to_string())
}

/// Fields by name; one that the file lacks is an error.
fn row(row: &StructArray, fields: &arrow::datatypes::Fields) -> Result<ArrayRef, String> {
    let columns = fields.iter().map(|field| {
        let column = row.column_by_name(field.name()).or_else(|| {
            let place =
                row.fields().iter().position(|other| other.name().eq_ignore_ascii_case(field.name()))?;
            Some(row.column(place))
        });
        let column = column.ok_or_else(|| format!("has no field \"{}\" in the file", field.name()))?;
        coerce(column, field.data_type())
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    StructArray::try_new(fields.clone(), columns, row.nulls().cloned())
        .map(|row| Arc::new(row) as ArrayRef)
        .map_err(|error| error.to_string())
}

/// The type of SQL that holds a file's type; `None` if there is none.
pub(super) fn sql_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        DataType::Dictionary(_, values) => return sql_type(values),
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) => DataType::Time32(TimeUnit::Millisecond),
        DataType::Timestamp(TimeUnit::Second, zone) => {
            DataType::Timestamp(TimeUnit::Millisecond, zone.as_ref().map(|_| Arc::from("UTC")))
        }
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some(Arc::from("UTC"))),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            DataType::List(Arc::new(Field::new("item", sql_type(item.data_type())?, true)))
        }
        DataType::Struct(fields) => DataType::Struct(
            fields
                .iter()
                .map(|field| Some(Field::new(field.name(), sql_type(field.data_type())?, true)))
                .collect::<Option<_>>()?,
        ),
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else { return None };
            let key = Field::new("key", sql_type(fields[0].data_type())?, false);
            let value = Field::new("value", sql_type(fields[1].data_type())?, true);
            let entries = Field::new("entries", DataType::Struct(vec![key, value].into()), false);
            DataType::Map(Arc::new(entries), false)
        }
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(..)
        | DataType::Date32
        | DataType::Time64(_)
        | DataType::Timestamp(_, None) => data_type.clone(),
        _ => return None,
    })
}
