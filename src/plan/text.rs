//! Expressions as SQL, for EXPLAIN and errors: `v > 3`, `k = 'a'`, `ts - INTERVAL '5' SECOND`.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, ScalarValue};
use datafusion_expr::Expr;
use datafusion_physical_expr::expressions::{Column as PhysicalColumn, Literal};

use super::window_text::duration;
use super::{ExprRef, sql_type_name};

/// Longer expressions are cut: plans and errors are for people to read.
const LONGEST_CHARS: usize = 200;

/// A logical expression.
pub(super) fn logical(expr: &Expr) -> String {
    let shown = expr.clone().transform(|part| match part {
        Expr::Alias(alias) => Ok(Transformed::yes(*alias.expr)),
        Expr::Literal(value, _) => Ok(Transformed::yes(named(literal(&value)))),
        Expr::Column(column) if column.relation.is_some() => Ok(Transformed::yes(named(column.name))),
        other => Ok(Transformed::no(other)),
    });
    cut(shown.map_or_else(|_| expr.to_string(), |shown| shown.data.human_display().to_string()))
}

fn named(text: String) -> Expr {
    Expr::Column(Column::new_unqualified(text))
}

/// A physical expression.
pub(super) fn physical(expr: &ExprRef) -> String {
    let shown = Arc::clone(expr).transform(|part| match part.downcast_ref::<Literal>() {
        Some(value) => {
            let text = literal(value.value());
            Ok(Transformed::yes(Arc::new(PhysicalColumn::new(&text, 0)) as ExprRef))
        }
        None => Ok(Transformed::no(part)),
    });
    let text = match shown {
        Ok(shown) => Sql(&shown.data).to_string(),
        Err(_) => Sql(expr).to_string(),
    };
    cut(with_sql_casts(&text))
}

/// `CAST(v AS BIGINT)`, which DataFusion shows with Arrow's name of the type.
fn with_sql_casts(text: &str) -> String {
    let mut text = text.to_owned();
    for data_type in [
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Utf8,
        DataType::Boolean,
        DataType::Date32,
        DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Timestamp(TimeUnit::Microsecond, None),
    ] {
        for shown in [format!(" AS {data_type})"), format!(" AS {data_type:?})")] {
            text = text.replace(&shown, &format!(" AS {})", sql_type_name(&data_type)));
        }
    }
    text
}

struct Sql<'a>(&'a ExprRef);

impl fmt::Display for Sql<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_sql(f)
    }
}

fn cut(text: String) -> String {
    if text.chars().count() <= LONGEST_CHARS {
        return text;
    }
    let start: String = text.chars().take(LONGEST_CHARS).collect();
    format!("{start}…")
}

/// A value as it would be written in SQL.
pub(super) fn literal(value: &ScalarValue) -> String {
    if value.is_null() {
        return "NULL".to_owned();
    }
    match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        ScalarValue::IntervalMonthDayNano(Some(interval))
            if interval.months == 0 && interval.nanoseconds % 1_000 == 0 =>
        {
            let days = i64::from(interval.days).saturating_mul(86_400_000_000);
            format!("INTERVAL '{}'", duration(days.saturating_add(interval.nanoseconds / 1_000)))
        }
        ScalarValue::Date32(_) => format!("DATE '{}'", formatted(value)),
        ScalarValue::TimestampSecond(..)
        | ScalarValue::TimestampMillisecond(..)
        | ScalarValue::TimestampMicrosecond(..)
        | ScalarValue::TimestampNanosecond(..) => format!("TIMESTAMP '{}'", formatted(value)),
        other => formatted(other),
    }
}

fn formatted(value: &ScalarValue) -> String {
    let options = FormatOptions::default().with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"));
    let text = value.to_array().ok().and_then(|array| {
        let formatter = ArrayFormatter::try_new(array.as_ref(), &options).ok()?;
        formatter.value(0).try_to_string().ok()
    });
    text.unwrap_or_else(|| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_sql() {
        assert_eq!(literal(&ScalarValue::from("it's")), "'it''s'");
        assert_eq!(literal(&ScalarValue::from(3_i64)), "3");
        assert_eq!(literal(&ScalarValue::Int64(None)), "NULL");
        assert_eq!(literal(&ScalarValue::new_interval_mdn(0, 0, 5_000_000_000)), "INTERVAL '5 s'");
        assert_eq!(
            literal(&ScalarValue::TimestampMillisecond(Some(1_704_067_200_000), None)),
            "TIMESTAMP '2024-01-01 00:00:00'"
        );
    }

    #[test]
    fn logical_expressions_have_no_qualifiers() {
        let column = Expr::Column(Column::new(Some("t"), "v"));
        let expr = datafusion_expr::and(
            column.clone().gt(datafusion_expr::lit(1_i64)),
            column.eq(datafusion_expr::lit("a")),
        );
        assert_eq!(logical(&expr), "v > 1 AND v = 'a'");
    }
}
