//! How the values of a generated column are made.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, StringArray, Time32MillisecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};

use crate::connector::format::sql_type_name;
use crate::connector::format::time_text::{parse_date, parse_timestamp, ticks};
use crate::connector::options::OptionReader;
use crate::connector::random::{Stream, Zipf, in_range, unit};
use crate::error::{Error, code};

/// The options of a column, after `fields.<name>.`.
pub(super) const PROPERTIES: [&str; 12] = [
    "kind",
    "min",
    "max",
    "start",
    "end",
    "step",
    "length",
    "prefix",
    "skew",
    "null-rate",
    "max-disorder",
    "true-rate",
];

/// Most keys with a skew.
const MAX_RANKS: i64 = 10_000_000;

/// A column that is generated.
#[derive(Debug, Clone)]
pub(super) struct Generated {
    name: String,
    data_type: DataType,
    values: Stream,
    nulls: Stream,
    null_rate: f64,
    recipe: Recipe,
    /// Rows after which a sequence is at its end.
    pub(super) rows: Option<u64>,
}

#[derive(Debug, Clone)]
enum Recipe {
    Boolean {
        true_rate: f64,
    },
    Integer(Integers),
    Double {
        min: f64,
        max: f64,
    },
    /// Letters and digits.
    Text {
        length: usize,
    },
    /// A prefix and a number.
    Named {
        prefix: String,
        numbers: Integers,
    },
    Bytes {
        length: usize,
    },
    /// Microseconds of event time: `start + row * step`, then back by up to `disorder`.
    Time {
        start_us: i64,
        step_ns: i64,
        disorder_us: i64,
    },
}

/// Whole numbers: of INT and DECIMAL columns, days, microseconds, parts of names.
#[derive(Debug, Clone)]
enum Integers {
    Random {
        min: i64,
        max: i64,
    },
    /// Low numbers more often.
    Skewed {
        min: i64,
        zipf: Arc<Zipf>,
    },
    Sequence {
        start: i64,
    },
}

impl Integers {
    fn at(&self, random: u64, row: u64) -> Option<i64> {
        match self {
            Self::Random { min, max } => Some(in_range(random, *min, *max)),
            Self::Skewed { min, zipf } => min.checked_add(zipf.rank(random) as i64),
            Self::Sequence { start } => start.checked_add_unsigned(row),
        }
    }
}

impl Generated {
    /// Reads the options of a column. `number`: its place in the table. `step_ns`: time between rows.
    ///
    /// # Errors
    /// `C002` for a value that can't be used, `C006` for a type that can't be generated.
    pub(super) fn new(
        reader: OptionReader<'_>,
        name: &str,
        number: u64,
        data_type: &DataType,
        seed: u64,
        step_ns: i64,
    ) -> Result<Self, Error> {
        let key = |property: &str| format!("fields.{name}.{property}");
        let is_sequence = reader.choice(&key("kind"), &["random", "sequence"])?;
        let mut used = vec!["kind", "null-rate"];
        let mut rows = None;
        let mut integers = |min: i64, max: i64, used: &mut Vec<&str>| -> Result<Integers, Error> {
            if is_sequence == Some(1) {
                used.extend(["start", "end"]);
                let start = reader.integer(&key("start"), min..=max)?.unwrap_or(0.clamp(min, max));
                if let Some(end) = reader.integer(&key("end"), start..=max)? {
                    rows = Some(end.abs_diff(start).saturating_add(1));
                }
                return Ok(Integers::Sequence { start });
            }
            used.extend(["min", "max", "skew"]);
            let low = reader.integer(&key("min"), min..=max)?;
            let high = reader.integer(&key("max"), low.unwrap_or(min)..=max)?;
            let low = low.unwrap_or(high.unwrap_or(0).min(0).max(min));
            let high = high.unwrap_or(max);
            let Some(skew) = reader.number(&key("skew"), 0.0..=10.0)? else {
                return Ok(Integers::Random { min: low, max: high });
            };
            match high.checked_sub(low) {
                Some(span) if span < MAX_RANKS => {
                    let zipf = Arc::new(Zipf::new(span as usize + 1, skew));
                    Ok(Integers::Skewed { min: low, zipf })
                }
                _ => Err(reader
                    .invalid(&key("skew"), format_args!("needs a range of at most {MAX_RANKS} numbers"))
                    .hint(format!("Set '{}' and '{}'.", key("min"), key("max")))),
            }
        };
        let recipe = match data_type {
            DataType::Boolean => {
                used.push("true-rate");
                Recipe::Boolean { true_rate: reader.number(&key("true-rate"), 0.0..=1.0)?.unwrap_or(0.5) }
            }
            DataType::Int8 => Recipe::Integer(integers(i8::MIN.into(), i8::MAX.into(), &mut used)?),
            DataType::Int16 => Recipe::Integer(integers(i16::MIN.into(), i16::MAX.into(), &mut used)?),
            DataType::Int32 => Recipe::Integer(integers(i32::MIN.into(), i32::MAX.into(), &mut used)?),
            DataType::Int64 => Recipe::Integer(integers(i64::MIN, i64::MAX, &mut used)?),
            DataType::Decimal128(precision, scale) => {
                // Whole numbers within the digits before the point, as far as an i64 goes.
                let digits = (i32::from(*precision) - i32::from(*scale)).clamp(0, 18) as u32;
                let limit = 10_i64.pow(digits) - 1;
                Recipe::Integer(integers(-limit, limit, &mut used)?)
            }
            DataType::Float32 | DataType::Float64 => {
                used.extend(["min", "max"]);
                let min = reader.number(&key("min"), f64::MIN..=f64::MAX)?.unwrap_or(0.0);
                let max = reader.number(&key("max"), min..=f64::MAX)?.unwrap_or(min + 1.0);
                Recipe::Double { min, max }
            }
            DataType::Utf8 => {
                let numbered = ["prefix", "min", "max", "start", "end"].iter();
                let mut numbered = numbered.map(|property| key(property));
                if is_sequence == Some(1) || numbered.any(|key| reader.text(&key).is_some()) {
                    used.push("prefix");
                    let prefix = reader.text(&key("prefix")).unwrap_or("").to_owned();
                    Recipe::Named { prefix, numbers: integers(0, i64::MAX, &mut used)? }
                } else {
                    used.push("length");
                    Recipe::Text {
                        length: reader.integer(&key("length"), 0..=1_000_000)?.unwrap_or(10) as usize,
                    }
                }
            }
            DataType::Binary => {
                used.push("length");
                Recipe::Bytes {
                    length: reader.integer(&key("length"), 0..=1_000_000)?.unwrap_or(10) as usize,
                }
            }
            DataType::Date32 => {
                used.extend(["min", "max"]);
                let date = |property: &str, default| match reader.text(&key(property)) {
                    None => Ok(default),
                    Some(text) => parse_date(text.as_bytes())
                        .map(i64::from)
                        .ok_or_else(|| reader.invalid(&key(property), "is not a DATE")),
                };
                // 2020-01-01 to 2029-12-31.
                let (min, max) = (date("min", 18_262)?, date("max", 21_914)?);
                if min > max {
                    return Err(reader.invalid(&key("max"), "is before the lowest date"));
                }
                Recipe::Integer(Integers::Random { min, max })
            }
            DataType::Time32(TimeUnit::Millisecond) => {
                Recipe::Integer(Integers::Random { min: 0, max: 86_399_999 })
            }
            DataType::Timestamp(..) => {
                used.extend(["start", "step", "max-disorder"]);
                if is_sequence == Some(0) {
                    return Err(reader
                        .invalid(&key("kind"), "is not known for times")
                        .hint("Leave it out: times go up from row to row, 'max-disorder' shuffles them."));
                }
                let start = reader.text(&key("start")).unwrap_or("2024-01-01 00:00:00");
                let start_us = match start {
                    "now" => {
                        crate::connector::assembly::millis(std::time::SystemTime::now()).map(|ms| ms * 1_000)
                    }
                    text => parse_timestamp(text.as_bytes())
                        .filter(|reading| reading.offset.is_none_or(|offset| offset == 0))
                        .and_then(|reading| reading.in_unit(TimeUnit::Microsecond)),
                };
                let start_us = start_us
                    .ok_or_else(|| reader.invalid(&key("start"), "is neither a TIMESTAMP nor now"))?;
                let step_ns = match reader.duration_us(&key("step"))? {
                    None => step_ns,
                    Some(step) => {
                        step.checked_mul(1_000).ok_or_else(|| reader.invalid(&key("step"), "is too long"))?
                    }
                };
                let disorder_us = reader.duration_us(&key("max-disorder"))?.unwrap_or(0);
                Recipe::Time { start_us, step_ns, disorder_us }
            }
            other => {
                return Err(Error::plan(
                    code::INVALID_TABLE,
                    format!("column \"{name}\": {} can't be generated", sql_type_name(other)),
                )
                .hint("Compute the column from others: name AS expression."));
            }
        };
        for property in PROPERTIES {
            if !used.contains(&property) && reader.text(&key(property)).is_some() {
                return Err(reader
                    .at_value(
                        &key(property),
                        code::INVALID_OPTION,
                        format!("option \"{}\" has no use for this column", key(property)),
                    )
                    .hint(format!(
                        "Remove it; a {} column has {}.",
                        sql_type_name(data_type),
                        used.join(", ")
                    )));
            }
        }
        let null_rate = reader.number(&key("null-rate"), 0.0..=1.0)?.unwrap_or(0.0);
        Ok(Self {
            name: name.to_owned(),
            data_type: data_type.clone(),
            values: Stream::new(seed, 2 * number),
            nulls: Stream::new(seed, 2 * number + 1),
            null_rate,
            recipe,
            rows,
        })
    }

    fn is_null(&self, row: u64) -> bool {
        self.null_rate > 0.0 && unit(self.nulls.at(row)) < self.null_rate
    }

    /// The values of `count` rows from `first`.
    ///
    /// # Errors
    /// `F002` if a sequence has left its type.
    pub(super) fn column(&self, first: u64, step: u64, count: usize) -> Result<ArrayRef, Error> {
        let rows = (0..count as u64).map(|index| first + index * step);
        let beyond = || {
            Error::run(
                code::MALFORMED,
                format!("column \"{}\": the sequence has left {}", self.name, sql_type_name(&self.data_type)),
            )
            .hint("Set 'number-of-rows', or the 'end' of the sequence.")
        };
        Ok(match &self.recipe {
            Recipe::Boolean { true_rate } => {
                let value = |row| (!self.is_null(row)).then(|| unit(self.values.at(row)) < *true_rate);
                Arc::new(rows.map(value).collect::<BooleanArray>())
            }
            Recipe::Double { min, max } => {
                let value = |row| {
                    (!self.is_null(row)).then(|| {
                        let share = unit(self.values.at(row));
                        min * (1.0 - share) + max * share
                    })
                };
                if self.data_type == DataType::Float32 {
                    Arc::new(rows.map(|row| value(row).map(|value| value as f32)).collect::<Float32Array>())
                } else {
                    Arc::new(rows.map(value).collect::<Float64Array>())
                }
            }
            Recipe::Text { length } => {
                const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
                let value = |row| {
                    (!self.is_null(row)).then(|| {
                        let letters = self.letters(row, *length);
                        letters.map(|letter| LETTERS[usize::from(letter & 31)] as char).collect::<String>()
                    })
                };
                Arc::new(rows.map(value).collect::<StringArray>())
            }
            Recipe::Bytes { length } => {
                let value =
                    |row| (!self.is_null(row)).then(|| self.letters(row, *length).collect::<Vec<_>>());
                Arc::new(rows.map(value).collect::<BinaryArray>())
            }
            Recipe::Named { prefix, numbers } => {
                let value = |row| {
                    if self.is_null(row) {
                        return Ok(None);
                    }
                    let number = numbers.at(self.values.at(row), row).ok_or_else(beyond)?;
                    Ok(Some(format!("{prefix}{number}")))
                };
                Arc::new(rows.map(value).collect::<Result<StringArray, Error>>()?)
            }
            Recipe::Integer(integers) => {
                let value = |row| {
                    if self.is_null(row) {
                        return Ok(None);
                    }
                    integers.at(self.values.at(row), row).map(Some).ok_or_else(beyond)
                };
                let values = rows.map(value).collect::<Result<Int64Array, Error>>()?;
                self.narrow(&values).ok_or_else(beyond)?
            }
            Recipe::Time { start_us, step_ns, disorder_us } => {
                let value = |row: u64| {
                    if self.is_null(row) {
                        return Ok(None);
                    }
                    let passed = i128::from(row) * i128::from(*step_ns) / 1_000;
                    let back = in_range(self.values.at(row), 0, *disorder_us);
                    let time = i128::from(*start_us) + passed - i128::from(back);
                    i64::try_from(time).map(Some).map_err(|_| beyond())
                };
                let values = rows.map(value).collect::<Result<Int64Array, Error>>()?;
                self.timestamps(&values).ok_or_else(beyond)?
            }
        })
    }

    /// `length` bytes that look random.
    fn letters(&self, row: u64, length: usize) -> impl Iterator<Item = u8> {
        let stream = Stream::new(self.values.at(row), 0);
        (0..length).map(move |index| stream.at(index as u64 / 8).to_le_bytes()[index % 8])
    }

    /// Whole numbers in the column's type; `None` if one does not fit.
    fn narrow(&self, values: &Int64Array) -> Option<ArrayRef> {
        fn each<T: TryFrom<i64>>(values: &Int64Array) -> impl Iterator<Item = Option<Option<T>>> {
            values.iter().map(|value| value.map(T::try_from).transpose().ok())
        }
        Some(match &self.data_type {
            DataType::Int8 => Arc::new(each::<i8>(values).collect::<Option<Int8Array>>()?),
            DataType::Int16 => Arc::new(each::<i16>(values).collect::<Option<Int16Array>>()?),
            DataType::Int32 => Arc::new(each::<i32>(values).collect::<Option<Int32Array>>()?),
            DataType::Date32 => Arc::new(each::<i32>(values).collect::<Option<Date32Array>>()?),
            DataType::Time32(_) => Arc::new(each::<i32>(values).collect::<Option<Time32MillisecondArray>>()?),
            DataType::Decimal128(precision, scale) => {
                let factor = 10_i128.checked_pow(u32::try_from(*scale).ok()?)?;
                let limit = 10_i128.checked_pow(u32::from(*precision))?;
                let scaled = values.iter().map(|value| match value {
                    None => Some(None),
                    Some(value) => {
                        let value = i128::from(value).checked_mul(factor)?;
                        (value.abs() < limit).then_some(Some(value))
                    }
                });
                let array = scaled.collect::<Option<Decimal128Array>>()?;
                Arc::new(array.with_precision_and_scale(*precision, *scale).ok()?)
            }
            _ => Arc::new(values.clone()),
        })
    }

    /// Microseconds as the column's type.
    fn timestamps(&self, values: &Int64Array) -> Option<ArrayRef> {
        let DataType::Timestamp(unit, _) = &self.data_type else { return None };
        let per_second = ticks(*unit);
        let scaled: Int64Array = if per_second <= 1_000_000 {
            values.unary(|value: i64| value.div_euclid(1_000_000 / per_second))
        } else {
            values.try_unary(|value: i64| value.checked_mul(per_second / 1_000_000).ok_or(())).ok()?
        };
        cast(&scaled, &self.data_type).ok()
    }
}
