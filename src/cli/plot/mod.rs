//! A result as a chart: bars for each window, lines for each key.
//!
//! [`Chart::of`] picks what is drawn: time along the axis, the first column of numbers up, the first
//! column of text as the key. [`text`] draws it on a terminal, [`svg`] as a picture.

pub(super) mod svg;
pub(super) mod text;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::error::{Error, code};

/// More keys than this can't be told apart.
const MOST_SERIES: usize = 12;
/// More bars than this are drawn as a line.
const MOST_BARS: usize = 60;

/// What is drawn.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Chart {
    /// `clicks by window_start`.
    pub(super) title: String,
    pub(super) series: Vec<Series>,
    /// Bars; otherwise lines along time.
    pub(super) is_bars: bool,
    /// Keys that are not drawn.
    pub(super) left_out: usize,
}

/// The points of a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    /// The key; empty without one.
    pub(super) name: String,
    pub(super) points: Vec<Point>,
}

/// A value at a time, or of a category.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point {
    /// Seconds, or the number of the category.
    pub(super) x: f64,
    pub(super) label: String,
    pub(super) y: f64,
}

/// The columns that are drawn.
struct Columns {
    time: Option<usize>,
    key: Option<usize>,
    value: usize,
}

impl Chart {
    /// The chart of a result.
    ///
    /// # Errors
    /// `U007` if there is nothing to draw, or no column fits.
    pub(super) fn of(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Self, Error> {
        let columns = Columns::of(schema)?;
        let name = |column: usize| schema.field(column).name();
        let mut series: Vec<Series> = Vec::new();
        for batch in batches {
            columns.add(batch, &mut series)?;
        }
        series.retain(|series| !series.points.is_empty());
        if series.is_empty() {
            return Err(Error::usage(code::NO_CHART, "the result has no value that could be drawn")
                .hint("Run a query that gives rows with numbers, and then \\plot."));
        }
        let left_out = series.len().saturating_sub(MOST_SERIES);
        if left_out > 0 {
            // The largest are kept, in the order in which they came.
            let total = |series: &Series| series.points.iter().map(|point| point.y.abs()).sum::<f64>();
            let mut totals: Vec<f64> = series.iter().map(total).collect();
            totals.sort_by(|a, b| b.total_cmp(a));
            let least = totals[MOST_SERIES - 1];
            series.retain(|series| total(series) >= least);
            series.truncate(MOST_SERIES);
        }
        for series in &mut series {
            series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        let is_bars = columns.time.is_none() || (series.len() == 1 && series[0].points.len() <= MOST_BARS);
        let along = columns.time.or(columns.key).map(|column| format!(" by {}", name(column)));
        let title = format!("{}{}", name(columns.value), along.unwrap_or_default());
        Ok(Self { title, series, is_bars, left_out })
    }

    /// The least and the largest value that the axis shows: bars stand on zero.
    pub(super) fn range(&self) -> (f64, f64) {
        let values = || self.series.iter().flat_map(|series| &series.points).map(|point| point.y);
        let (low, high) = values().fold((0.0_f64, 0.0_f64), |(low, high), y| (low.min(y), high.max(y)));
        if low == high { (low, low + 1.0) } else { (low, high) }
    }

    /// The first and the last point along the axis.
    pub(super) fn ends(&self) -> Option<(&Point, &Point)> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let first = points().min_by(|a, b| a.x.total_cmp(&b.x))?;
        let last = points().max_by(|a, b| a.x.total_cmp(&b.x))?;
        Some((first, last))
    }
}

impl Columns {
    fn of(schema: &SchemaRef) -> Result<Self, Error> {
        let fields = schema.fields();
        let is_time = |data_type: &DataType| {
            matches!(data_type, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64)
        };
        let is_text = |data_type: &DataType| {
            matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Boolean)
        };
        let first =
            |fits: &dyn Fn(&DataType) -> bool| fields.iter().position(|field| fits(field.data_type()));
        let time =
            fields.iter().position(|field| field.name() == "window_start" && is_time(field.data_type()));
        let time = time.or_else(|| first(&is_time));
        let numbers: Vec<usize> =
            (0..fields.len()).filter(|column| fields[*column].data_type().is_numeric()).collect();
        let mut key = first(&is_text);
        let value = match numbers.as_slice() {
            [] => {
                return Err(Error::usage(code::NO_CHART, "the result has no column of numbers to draw")
                    .hint("Select a count, a sum or another number."));
            }
            // A first number is the key where nothing else is, and more numbers follow.
            [first, second, ..] if time.is_none() && key.is_none() => {
                key = Some(*first);
                *second
            }
            [first, ..] => *first,
        };
        Ok(Self { time, key, value })
    }

    fn add(&self, batch: &RecordBatch, series: &mut Vec<Series>) -> Result<(), Error> {
        let fault = |error| Error::internal("chart", error);
        let values = cast(batch.column(self.value), &DataType::Float64).map_err(fault)?;
        let values = values.as_primitive::<Float64Type>();
        let micros = self.time.map(|column| micros(batch.column(column))).transpose()?;
        let options = FormatOptions::new().with_null("NULL").with_timestamp_format(Some("%Y-%m-%d %H:%M:%S"));
        let formatter =
            |column: usize| ArrayFormatter::try_new(batch.column(column).as_ref(), &options).map_err(fault);
        let keys = self.key.map(formatter).transpose()?;
        let times = self.time.map(formatter).transpose()?;
        for row in 0..batch.num_rows() {
            let y = values.value(row);
            if values.is_null(row) || !y.is_finite() {
                continue;
            }
            let key = keys.as_ref().map(|keys| keys.value(row).to_string()).unwrap_or_default();
            let (name, label, x) = match (&micros, &times) {
                (Some(micros), Some(times)) => {
                    let micros = micros.as_primitive::<Int64Type>();
                    if micros.is_null(row) {
                        continue;
                    }
                    (key, times.value(row).to_string(), micros.value(row) as f64 / 1e6)
                }
                _ => {
                    let number = series.first().map_or(0, |series| series.points.len());
                    (String::new(), key, number as f64)
                }
            };
            let point = Point { x, label, y };
            match series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => series.push(Series { name, points: vec![point] }),
            }
        }
        Ok(())
    }
}

/// Times as microseconds.
fn micros(times: &ArrayRef) -> Result<ArrayRef, Error> {
    let fault = |error| Error::internal("chart", error);
    let times = cast(times, &DataType::Timestamp(TimeUnit::Microsecond, None)).map_err(fault)?;
    cast(&times, &DataType::Int64).map_err(fault)
}

/// A number in few characters.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    if size >= 1e15 || (size > 0.0 && size < 1e-3) {
        return format!("{value:.2e}");
    }
    let text =
        if size >= 1000.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray, TimestampMillisecondArray};

    use super::*;

    pub(in super::super) fn chart(rows: &[(i64, &str, i64)], with_key: bool) -> Result<Chart, Error> {
        let times = rows.iter().map(|row| row.0 * 60_000);
        let mut columns: Vec<(&str, ArrayRef)> = vec![
            ("window_end", Arc::new(TimestampMillisecondArray::from_iter_values(times.clone()))),
            ("window_start", Arc::new(TimestampMillisecondArray::from_iter_values(times))),
        ];
        if with_key {
            columns.push(("k", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1)))));
        }
        columns.push(("n", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.2)))));
        let batch = RecordBatch::try_from_iter(columns).expect("equal lengths");
        Chart::of(&batch.schema(), &[batch])
    }

    #[test]
    fn windows_are_bars_and_keys_are_lines() -> Result<(), Error> {
        let bars = chart(&[(1, "", 5), (0, "", 3)], false)?;
        assert_eq!((bars.title.as_str(), bars.is_bars), ("n by window_start", true));
        let points: Vec<_> =
            bars.series[0].points.iter().map(|point| (point.x, point.label.as_str(), point.y)).collect();
        assert_eq!(points, [(0.0, "1970-01-01 00:00:00", 3.0), (60.0, "1970-01-01 00:01:00", 5.0)]);
        assert_eq!(bars.range(), (0.0, 5.0));
        let lines = chart(&[(0, "a", 1), (0, "b", 2), (1, "a", -3)], true)?;
        assert!(!lines.is_bars);
        assert_eq!(lines.series.iter().map(|series| series.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(lines.range(), (-3.0, 2.0));
        Ok(())
    }

    #[test]
    fn of_many_keys_the_largest_are_drawn() -> Result<(), Error> {
        let names: Vec<String> = (0..20).map(|key| format!("k{key:02}")).collect();
        let rows: Vec<_> = names.iter().enumerate().map(|(at, name)| (0, name.as_str(), at as i64)).collect();
        let chart = chart(&rows, true)?;
        assert_eq!((chart.series.len(), chart.left_out), (12, 8));
        assert_eq!(chart.series[0].name, "k08");
        Ok(())
    }

    #[test]
    fn what_can_not_be_drawn_is_told() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        let batch = RecordBatch::try_from_iter([("s", texts)]).expect("one column");
        let error = Chart::of(&batch.schema(), &[batch]).expect_err("no numbers");
        assert_eq!(error.code(), "U007");
        assert_eq!(chart(&[], true).expect_err("no rows").code(), "U007");
    }

    #[test]
    fn categories_are_bars() -> Result<(), Error> {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["b", "a"]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(4), None]));
        let batch = RecordBatch::try_from_iter([("s", texts), ("n", numbers)]).expect("two columns");
        let chart = Chart::of(&batch.schema(), &[batch])?;
        assert_eq!((chart.is_bars, chart.title.as_str()), (true, "n by s"));
        assert_eq!(chart.series[0].points, [Point { x: 0.0, label: "b".to_owned(), y: 4.0 }]);
        Ok(())
    }

    #[test]
    fn short_numbers() {
        for (value, text) in
            [(0.0, "0"), (1500.4, "1500"), (0.25, "0.25"), (-3.0, "-3"), (1e20, "1.00e20"), (1e-9, "1.00e-9")]
        {
            assert_eq!(short(value), text);
        }
    }
}
