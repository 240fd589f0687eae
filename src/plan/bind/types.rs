//! SQL types to Arrow types and back to the names that people know.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use datafusion_common::{DataFusionError, Result as DfResult};
use datafusion_expr::planner::TypePlanner;
use sqlparser::ast;

use crate::error::{Error, code};
use crate::sql::SqlType;

/// The Arrow type of an SQL type. `zone` is the session's time zone, the one that instants carry.
///
/// # Errors
/// `C006` for a precision that does not exist.
pub(crate) fn arrow_type(sql_type: &SqlType, zone: &str) -> Result<DataType, Error> {
    Ok(match sql_type {
        SqlType::Boolean => DataType::Boolean,
        SqlType::TinyInt => DataType::Int8,
        SqlType::SmallInt => DataType::Int16,
        SqlType::Int => DataType::Int32,
        SqlType::BigInt => DataType::Int64,
        SqlType::Float => DataType::Float32,
        SqlType::Double => DataType::Float64,
        SqlType::Decimal(precision, scale) => decimal(*precision, *scale)?,
        SqlType::String | SqlType::Char(_) | SqlType::Varchar(_) => DataType::Utf8,
        SqlType::Bytes => DataType::Binary,
        SqlType::Date => DataType::Date32,
        SqlType::Time(precision) => time(*precision)?,
        SqlType::Timestamp(precision) => DataType::Timestamp(unit("TIMESTAMP", *precision)?, None),
        SqlType::TimestampLtz(precision) => {
            DataType::Timestamp(unit("TIMESTAMP_LTZ", *precision)?, Some(zone.into()))
        }
        SqlType::Array(element) => {
            DataType::List(Arc::new(Field::new("item", arrow_type(element, zone)?, true)))
        }
        SqlType::Map(key, value) => map(arrow_type(key, zone)?, arrow_type(value, zone)?),
        SqlType::Row(fields) => DataType::Struct(
            fields
                .iter()
                .map(|(name, kind)| Ok(Field::new(name, arrow_type(kind, zone)?, true)))
                .collect::<Result<Fields, Error>>()?,
        ),
    })
}

fn map(key: DataType, value: DataType) -> DataType {
    let entries = Fields::from(vec![Field::new("key", key, false), Field::new("value", value, true)]);
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false)
}

fn decimal(precision: u8, scale: i8) -> Result<DataType, Error> {
    let fits = u8::try_from(scale).is_ok_and(|scale| scale <= precision);
    if !(1..=38).contains(&precision) || !fits {
        return Err(Error::plan(
            code::INVALID_TABLE,
            format!("DECIMAL({precision}, {scale}): precision must be 1 to 38 and scale 0 to the precision"),
        ));
    }
    Ok(DataType::Decimal128(precision, scale))
}

fn time(precision: u8) -> Result<DataType, Error> {
    Ok(match unit("TIME", precision)? {
        unit @ TimeUnit::Millisecond => DataType::Time32(unit),
        unit => DataType::Time64(unit),
    })
}

/// The Arrow unit that holds `precision` digits of a second.
fn unit(name: &str, precision: u8) -> Result<TimeUnit, Error> {
    match precision {
        0..=3 => Ok(TimeUnit::Millisecond),
        4..=6 => Ok(TimeUnit::Microsecond),
        7..=9 => Ok(TimeUnit::Nanosecond),
        _ => Err(Error::plan(
            code::INVALID_TABLE,
            format!("{name}({precision}): the precision must be 0 to 9 digits"),
        )),
    }
}

/// The SQL name of a type: what DESCRIBE and error messages show.
///
/// ```
/// use arrow::datatypes::{DataType, TimeUnit};
/// use tidegate::plan::sql_type_name;
///
/// assert_eq!(sql_type_name(&DataType::Int64), "BIGINT");
/// assert_eq!(sql_type_name(&DataType::Timestamp(TimeUnit::Millisecond, None)), "TIMESTAMP(3)");
/// assert_eq!(
///     sql_type_name(&DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
///     "TIMESTAMP_LTZ(6)"
/// );
/// ```
///
/// Types that SQL has no name for (unsigned integers of a Parquet file) are named as Arrow names them.
///
/// Source: Flink SQL's type names.
pub fn sql_type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "NULL".to_owned(),
        DataType::Boolean => "BOOLEAN".to_owned(),
        DataType::Int8 => "TINYINT".to_owned(),
        DataType::Int16 => "SMALLINT".to_owned(),
        DataType::Int32 => "INT".to_owned(),
        DataType::Int64 => "BIGINT".to_owned(),
        DataType::Float32 => "FLOAT".to_owned(),
        DataType::Float64 => "DOUBLE".to_owned(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "STRING".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "BYTES".to_owned()
        }
        DataType::Date32 | DataType::Date64 => "DATE".to_owned(),
        DataType::Time32(unit) | DataType::Time64(unit) => format!("TIME({})", digits(*unit)),
        DataType::Timestamp(unit, None) => format!("TIMESTAMP({})", digits(*unit)),
        DataType::Timestamp(unit, Some(_)) => format!("TIMESTAMP_LTZ({})", digits(*unit)),
        DataType::Interval(IntervalUnit::YearMonth) => "INTERVAL YEAR TO MONTH".to_owned(),
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL".to_owned(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("ARRAY<{}>", sql_type_name(item.data_type()))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                let name = |field: &FieldRef| sql_type_name(field.data_type());
                format!("MAP<{}, {}>", name(&fields[0]), name(&fields[1]))
            }
            other => format!("MAP<{other}>"),
        },
        DataType::Struct(fields) => {
            let field = |field: &FieldRef| format!("{} {}", field.name(), sql_type_name(field.data_type()));
            format!("ROW<{}>", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn digits(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// Types inside expressions (`CAST(x AS TIMESTAMP(3))`), the same as in a column list.
#[derive(Debug)]
pub(super) struct SqlTypes {
    pub(super) zone: String,
}

impl TypePlanner for SqlTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> DfResult<Option<FieldRef>> {
        let Some(known) = sql_type_of(sql_type) else { return Ok(None) };
        let data_type =
            arrow_type(&known, &self.zone).map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}

/// Our type for sqlparser's; `None`: leave it to DataFusion.
fn sql_type_of(data_type: &ast::DataType) -> Option<SqlType> {
    use ast::DataType as Sql;
    Some(match data_type {
        Sql::Boolean | Sql::Bool => SqlType::Boolean,
        Sql::TinyInt(_) => SqlType::TinyInt,
        Sql::SmallInt(_) | Sql::Int2(_) => SqlType::SmallInt,
        Sql::Int(_) | Sql::Integer(_) | Sql::Int4(_) => SqlType::Int,
        Sql::BigInt(_) | Sql::Int8(_) => SqlType::BigInt,
        Sql::Float(_) | Sql::Real | Sql::Float4 => SqlType::Float,
        Sql::Double(_) | Sql::DoublePrecision | Sql::Float8 | Sql::Float64 => SqlType::Double,
        Sql::Decimal(info) | Sql::Numeric(info) | Sql::Dec(info) => match info {
            ast::ExactNumberInfo::None => SqlType::Decimal(10, 0),
            ast::ExactNumberInfo::Precision(precision) => {
                SqlType::Decimal(u8::try_from(*precision).unwrap_or(u8::MAX), 0)
            }
            ast::ExactNumberInfo::PrecisionAndScale(precision, scale) => SqlType::Decimal(
                u8::try_from(*precision).unwrap_or(u8::MAX),
                i8::try_from(*scale).unwrap_or(i8::MAX),
            ),
        },
        Sql::String(_)
        | Sql::Text
        | Sql::Varchar(_)
        | Sql::Char(_)
        | Sql::Character(_)
        | Sql::CharacterVarying(_)
        | Sql::CharVarying(_)
        | Sql::Nvarchar(_) => SqlType::String,
        Sql::Bytes(_) | Sql::Bytea | Sql::Binary(_) | Sql::Varbinary(_) | Sql::Blob(_) => SqlType::Bytes,
        Sql::Date => SqlType::Date,
        Sql::Time(precision, _) => SqlType::Time(digits_of(*precision, 0)),
        Sql::Timestamp(precision, ast::TimezoneInfo::None | ast::TimezoneInfo::WithoutTimeZone)
        | Sql::TimestampNtz(precision) => SqlType::Timestamp(digits_of(*precision, 6)),
        Sql::Timestamp(precision, ast::TimezoneInfo::WithTimeZone | ast::TimezoneInfo::Tz) => {
            SqlType::TimestampLtz(digits_of(*precision, 6))
        }
        Sql::Datetime(precision) => SqlType::Timestamp(digits_of(*precision, 6)),
        Sql::Custom(name, arguments) => {
            let name = name.to_string();
            let precision = arguments.first().and_then(|text| text.parse().ok());
            match name.to_ascii_uppercase().as_str() {
                "TIMESTAMP_LTZ" => SqlType::TimestampLtz(digits_of(precision, 6)),
                "STRING" => SqlType::String,
                "BYTES" => SqlType::Bytes,
                _ => return None,
            }
        }
        Sql::Array(
            ast::ArrayElemTypeDef::AngleBracket(element) | ast::ArrayElemTypeDef::Parenthesis(element),
        ) => SqlType::Array(Box::new(sql_type_of(element)?)),
        Sql::Array(ast::ArrayElemTypeDef::SquareBracket(element, None)) => {
            SqlType::Array(Box::new(sql_type_of(element)?))
        }
        Sql::Map(key, value) => SqlType::Map(Box::new(sql_type_of(key)?), Box::new(sql_type_of(value)?)),
        Sql::Struct(fields, _) => SqlType::Row(
            fields
                .iter()
                .map(|field| {
                    Some((field.field_name.as_ref()?.value.clone(), sql_type_of(&field.field_type)?))
                })
                .collect::<Option<_>>()?,
        ),
        _ => return None,
    })
}

fn digits_of(precision: Option<u64>, default: u8) -> u8 {
    precision.map_or(default, |digits| u8::try_from(digits).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for (sql_type, name) in [
            (SqlType::TinyInt, "TINYINT"),
            (SqlType::Decimal(10, 2), "DECIMAL(10, 2)"),
            (SqlType::Varchar(5), "STRING"),
            (SqlType::Time(0), "TIME(3)"),
            (SqlType::Timestamp(3), "TIMESTAMP(3)"),
            (SqlType::TimestampLtz(6), "TIMESTAMP_LTZ(6)"),
            (SqlType::Array(Box::new(SqlType::Int)), "ARRAY<INT>"),
            (SqlType::Map(Box::new(SqlType::String), Box::new(SqlType::BigInt)), "MAP<STRING, BIGINT>"),
            (SqlType::Row(vec![("a".to_owned(), SqlType::Boolean)]), "ROW<a BOOLEAN>"),
        ] {
            assert_eq!(sql_type_name(&arrow_type(&sql_type, "UTC").expect("it exists")), name);
        }
    }

    #[test]
    fn instants_carry_the_session_zone() {
        let data_type = arrow_type(&SqlType::TimestampLtz(3), "Europe/Berlin").expect("it exists");
        assert_eq!(data_type, DataType::Timestamp(TimeUnit::Millisecond, Some("Europe/Berlin".into())));
    }

    #[test]
    fn precisions_are_checked() {
        assert!(arrow_type(&SqlType::Timestamp(9), "UTC").is_ok());
        assert_eq!(arrow_type(&SqlType::Timestamp(10), "UTC").expect_err("too fine").code(), "C006");
        assert!(arrow_type(&SqlType::Decimal(38, 38), "UTC").is_ok());
        assert!(arrow_type(&SqlType::Decimal(39, 0), "UTC").is_err());
        assert!(arrow_type(&SqlType::Decimal(5, 6), "UTC").is_err());
    }
}
