//! What the writers write, the readers read, whatever the values and however the text is cut.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::*;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use proptest::prelude::*;

use super::column::TimeRules;
use super::csv_read::CsvOptions;
use super::csv_scan::CsvSyntax;
use super::csv_write::CsvWriter;
use super::json_write::{JsonLines, JsonStyle};
use super::options::TimeStyle;
use super::rows::{OnError, Rows};
use super::text::{Decoder, TextFormat};
use crate::stream::StreamBatch;

#[derive(Debug, Clone)]
struct Row {
    text: Option<String>,
    number: Option<i64>,
    float: Option<f64>,
    decimal: Option<i128>,
    time: Option<i64>,
    instant: Option<i64>,
    day: Option<i32>,
    list: Option<Vec<Option<String>>>,
}

/// From 0001-01-01 to 9999-12-31, milliseconds.
const MILLIS: std::ops::Range<i64> = -62_135_596_800_000..253_402_300_800_000;

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{0,8}", "[\",\\\\\n\r\t#'; N]{0,6}", any::<String>()]
}

fn row() -> impl Strategy<Value = Row> {
    use proptest::option::of;
    (
        of(text()),
        of(any::<i64>()),
        of(any::<f64>().prop_filter("one NaN is like another", |value| !value.is_nan())),
        of(-10_i128.pow(37)..10_i128.pow(37)),
        of(MILLIS.start * 1_000..MILLIS.end * 1_000),
        of(MILLIS),
        of(-719_162..2_932_896_i32),
        of(proptest::collection::vec(of(text()), 0..4)),
    )
        .prop_map(|(text, number, float, decimal, time, instant, day, list)| Row {
            text,
            number,
            float,
            decimal,
            time,
            instant,
            day,
            list,
        })
}

fn batch(rows: &[Row]) -> RecordBatch {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in rows {
        match &row.list {
            None => lists.append_null(),
            Some(items) => lists.append_value(items.iter().map(Option::as_deref)),
        }
    }
    let decimals = rows.iter().map(|row| row.decimal).collect::<Decimal128Array>();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.text.as_deref()).collect::<StringArray>()),
        Arc::new(rows.iter().map(|row| row.number).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.float).collect::<Float64Array>()),
        Arc::new(decimals.with_precision_and_scale(38, 7).unwrap()),
        Arc::new(rows.iter().map(|row| row.time).collect::<TimestampMicrosecondArray>()),
        Arc::new(
            rows.iter().map(|row| row.instant).collect::<TimestampMillisecondArray>().with_timezone("UTC"),
        ),
        Arc::new(rows.iter().map(|row| row.day).collect::<Date32Array>()),
        Arc::new(lists.finish()),
    ];
    RecordBatch::try_new(Arc::new(schema()), columns).unwrap()
}

fn schema() -> Schema {
    let utc = DataType::Timestamp(TimeUnit::Millisecond, Some(Arc::from("UTC")));
    let list = DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)));
    Schema::new(vec![
        Field::new("text, \"é\"", DataType::Utf8, true),
        Field::new("number", DataType::Int64, true),
        Field::new("float", DataType::Float64, true),
        Field::new("decimal", DataType::Decimal128(38, 7), true),
        Field::new("time", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        Field::new("instant", utc, true),
        Field::new("day", DataType::Date32, true),
        Field::new("list", list, true),
    ])
}

/// Reads `text` in pieces of `step` bytes.
fn read(format: &TextFormat, text: &[u8], step: usize, schema: &Schema) -> Vec<ArrayRef> {
    let names: Vec<_> = schema.fields().iter().map(|field| field.name().clone()).collect();
    let mut rows = Rows::new("x", schema, TimeRules::default(), OnError::Fail, usize::MAX).unwrap();
    let mut decoder = Decoder::new(format, "x", &names, schema, &[]);
    let (mut start, mut end) = (0, 0);
    loop {
        end = (end + step).min(text.len());
        start += decoder.feed(&text[start..end], end == text.len(), &mut rows).unwrap();
        if end == text.len() {
            assert_eq!(start, end);
            return rows.take().unwrap().0;
        }
    }
}

fn csv(null_literal: &str, header: Option<bool>, escape: Option<u8>) -> CsvOptions {
    CsvOptions {
        syntax: CsvSyntax { delimiter: b',', quote: Some(b'"'), escape },
        header,
        null_literal: Some(null_literal.to_owned()),
        allow_comments: true,
    }
}

proptest! {
    #[test]
    fn json(rows in proptest::collection::vec(row(), 0..8), step in 1usize..200) {
        let batch = batch(&rows);
        let mut out = Vec::new();
        let mut writer = JsonLines::new(&batch.schema(), JsonStyle::Rows);
        writer.write(&StreamBatch::inserts(batch.clone(), Instant::now()), &mut out).unwrap();
        for line in out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            prop_assert!(serde_json::from_slice::<serde_json::Value>(line).is_ok());
        }
        let back = read(&TextFormat::Json { fail_on_missing: true }, &out, step, &schema());
        prop_assert_eq!(&back[..], batch.columns());
    }

    #[test]
    fn csv_with_a_null_literal(
        rows in proptest::collection::vec(row(), 0..8),
        step in 1usize..200,
        null_literal in prop_oneof![Just(""), Just("\\N"), Just("NULL"), Just("a")],
        header in prop_oneof![Just(None), Just(Some(true)), Just(Some(false))],
        escape in prop_oneof![Just(None), Just(Some(b'\\')), Just(Some(b'!'))],
    ) {
        let batch = batch(&rows);
        let options = csv(null_literal, header, escape);
        // A reader with an escape would take the first character of \N for one.
        prop_assume!(escape != Some(b'\\') || null_literal != "\\N");
        let mut out = Vec::new();
        let mut writer = CsvWriter::with_times(&schema(), CsvWriter::style_of(&options), TimeStyle::Text(b' '));
        writer.write(&StreamBatch::inserts(batch.clone(), Instant::now()), &mut out).unwrap();
        let back = read(&TextFormat::Csv(options), &out, step, &schema());
        prop_assert_eq!(&back[..], batch.columns());
    }

    #[test]
    fn no_text_is_a_panic(text in "[{}\\[\\]\",:a-c0-9\\\\\n\r. eE+-]{0,60}", step in 1usize..20) {
        let names: Vec<_> = schema().fields().iter().map(|field| field.name().clone()).collect();
        let csv = TextFormat::Csv(csv("\\N", None, None));
        for format in [TextFormat::Json { fail_on_missing: false }, csv] {
            let mut rows = Rows::new("x", &schema(), TimeRules::default(), OnError::Side, 3).unwrap();
            let mut decoder = Decoder::new(&format, "x", &names, &schema(), &[]);
            let (mut start, mut end) = (0, 0);
            while start < text.len() {
                end = (end + step).min(text.len());
                start += decoder.feed(&text.as_bytes()[start..end], end == text.len(), &mut rows).unwrap();
                rows.take().unwrap();
            }
        }
    }
}
