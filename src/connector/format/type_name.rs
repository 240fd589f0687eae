//! Arrow types in SQL's words, for messages.

use arrow::datatypes::{DataType, TimeUnit};

/// The SQL name of a column type: `BIGINT`, `TIMESTAMP(3)`, `ARRAY<STRING>`.
pub(crate) fn sql_type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::Float32 => "FLOAT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "STRING".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTES".into(),
        DataType::Date32 | DataType::Date64 => "DATE".into(),
        DataType::Time32(unit) | DataType::Time64(unit) => format!("TIME({})", precision(*unit)),
        DataType::Timestamp(unit, None) => format!("TIMESTAMP({})", precision(*unit)),
        DataType::Timestamp(unit, Some(_)) => format!("TIMESTAMP_LTZ({})", precision(*unit)),
        DataType::List(item) | DataType::LargeList(item) => {
            format!("ARRAY<{}>", sql_type_name(item.data_type()))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => format!(
                "MAP<{}, {}>",
                sql_type_name(fields[0].data_type()),
                sql_type_name(fields[1].data_type())
            ),
            _ => "MAP".into(),
        },
        DataType::Struct(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|field| format!("{} {}", field.name(), sql_type_name(field.data_type())))
                .collect();
            format!("ROW<{}>", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// `a` or `an`, then the name.
pub(crate) fn with_article(data_type: &DataType) -> String {
    let name = sql_type_name(data_type);
    let article = if name.starts_with(['A', 'I']) { "an" } else { "a" };
    format!("{article} {name}")
}

fn precision(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}
