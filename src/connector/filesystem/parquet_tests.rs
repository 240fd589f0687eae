//! Parquet files: units, far dates, types that are cast and types that are not.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType, Field, Int32Type, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::data_type::{Int96, Int96Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::connector::testing::{Everything, read, read_by, table};
use crate::connector::{Connector, Filesystem};
use crate::error::Error;

const TS3: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

/// Milliseconds: 1969-12-31 23:59:59.999, 2024-05-01 09:00:00, 9999-12-31 23:59:59.
const TIMES: [i64; 3] = [-1, 1_714_554_000_000, 253_402_300_799_000];
const SHOWN: [&str; 3] = ["1969-12-31T23:59:59.999", "2024-05-01T09:00:00.000", "9999-12-31T23:59:59.000"];

fn store(path: &Path, name: &str, array: ArrayRef, rows_of_a_group: usize) {
    let schema = Arc::new(Schema::new(vec![
        Field::new("other", DataType::Boolean, true),
        Field::new(name, array.data_type().clone(), true),
    ]));
    let other: ArrayRef = Arc::new(BooleanArray::from(vec![true; array.len()]));
    let batch = RecordBatch::try_new(schema.clone(), vec![other, array]).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(rows_of_a_group)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), schema, Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn read_as(path: &Path, data_type: &DataType) -> Result<Everything, Error> {
    let path = path.to_string_lossy().into_owned();
    let t = table(&[("v", data_type.clone())], &[("path", &path), ("format", "parquet")]);
    let all = read(&t, 8192)?;
    for batch_rows in [1, 2] {
        assert_eq!(read(&t, batch_rows)?.rows(), all.rows());
    }
    Ok(all)
}

/// What the array reads as, for a column of another type.
fn convert(array: ArrayRef, data_type: &DataType) -> Result<Vec<String>, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    store(&path, "v", array, 8192);
    read_as(&path, data_type)
        .map(|all| all.rows())
        .map_err(|error| error.message().replace(&path.to_string_lossy().into_owned(), "a.parquet"))
}

#[test]
fn units_and_far_dates() {
    // B062
    let ms: ArrayRef = Arc::new(TimestampMillisecondArray::from(TIMES.to_vec()));
    let us: ArrayRef = Arc::new(TimestampMicrosecondArray::from(TIMES.map(|ms| ms * 1_000).to_vec()));
    let ns: ArrayRef =
        Arc::new(TimestampNanosecondArray::from(vec![TIMES[0] * 1_000_000 + 1, TIMES[1] * 1_000_000]));
    assert_eq!(convert(ms, &TS3).unwrap(), SHOWN);
    assert_eq!(convert(us.clone(), &TS3).unwrap(), SHOWN);
    assert_eq!(convert(ns, &TS3).unwrap(), SHOWN[..2]);
    // Cut downwards, also before 1970.
    let fine: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![-1, -1_000, -1_001, 999]));
    let expected = [
        "1969-12-31T23:59:59.999",
        "1969-12-31T23:59:59.999",
        "1969-12-31T23:59:59.998",
        "1970-01-01T00:00:00.000",
    ];
    assert_eq!(convert(fine, &TS3).unwrap(), expected);
    assert_eq!(
        convert(us, &DataType::Timestamp(TimeUnit::Nanosecond, None)).unwrap_err(),
        "a.parquet, column \"v\" holds a time that is out of range for TIMESTAMP(9)"
    );
}

#[test]
fn int96_reaches_year_9999() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("int96.parquet");
    let schema = Arc::new(parse_message_type("message m { OPTIONAL INT96 v; }").unwrap());
    let mut writer = SerializedFileWriter::new(
        File::create(&path).unwrap(),
        schema,
        Arc::new(WriterProperties::default()),
    )
    .unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values = TIMES.map(|ms| {
        // The day number counts from 4714-11-24 BC; 1970-01-01 is 2,440,588.
        let day = ms.div_euclid(86_400_000) + 2_440_588;
        let nanos = ms.rem_euclid(86_400_000) as u64 * 1_000_000;
        let mut value = Int96::new();
        value.set_data(nanos as u32, (nanos >> 32) as u32, day as u32);
        value
    });
    column.typed::<Int96Type>().write_batch(&values, Some(&[1, 1, 1]), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    assert_eq!(read_as(&path, &TS3).unwrap().rows(), SHOWN);
    let options = [("path", path.to_string_lossy().into_owned())].into_iter().collect();
    let schema = Filesystem.infer_schema(&options).unwrap();
    assert_eq!(schema.field(0).data_type(), &DataType::Timestamp(TimeUnit::Microsecond, None));
}

#[test]
fn row_groups_and_empty_files() {
    let dir = tempfile::tempdir().unwrap();
    for (name, values, rows_of_a_group) in
        [("three", vec![1, 2, 3], 1), ("one", vec![1, 2, 3], 100), ("none", vec![], 100)]
    {
        let path = dir.path().join(name);
        store(&path, "v", Arc::new(Int32Array::from(values.clone())), rows_of_a_group);
        let all = read_as(&path, &DataType::Int32).unwrap();
        assert_eq!(all.rows(), values.iter().map(i32::to_string).collect::<Vec<_>>());
        assert_eq!(all.lines, (1..=values.len() as u64).collect::<Vec<_>>());
    }
    std::fs::write(dir.path().join("nothing"), "").unwrap();
    assert!(read_as(&dir.path().join("nothing"), &DataType::Int32).unwrap().rows().is_empty());
    std::fs::write(dir.path().join("text"), "v\n1\n").unwrap();
    assert_eq!(read_as(&dir.path().join("text"), &DataType::Int32).unwrap_err().code(), "F001");
}

#[test]
fn columns_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    store(&path, "V", Arc::new(Int32Array::from(vec![1])), 100);
    assert_eq!(read_as(&path, &DataType::Int32).unwrap().rows(), ["1"]);
    let shown = path.to_string_lossy().into_owned();
    let t = table(&[("othr", DataType::Boolean)], &[("path", &shown)]);
    let error = read(&t, 1).unwrap_err();
    assert_eq!(error.message(), format!("{shown} has no column \"othr\""));
    assert_eq!(error.hint_text(), Some("Use \"other\"."));
    // In the order of the request, not of the file; the same one twice is fine.
    let t = table(&[("v", DataType::Int64), ("other", DataType::Boolean)], &[("path", &shown)]);
    assert_eq!(read(&t, 1).unwrap().rows(), ["1, true"]);
}

#[test]
fn exact_casts_only() {
    let ints = || -> ArrayRef { Arc::new(Int32Array::from(vec![Some(1), None, Some(-300)])) };
    let three = |texts: [&str; 3]| Ok(texts.map(str::to_owned).to_vec());
    assert_eq!(convert(ints(), &DataType::Int64), three(["1", "NULL", "-300"]));
    assert_eq!(convert(ints(), &DataType::Float64), three(["1.0", "NULL", "-300.0"]));
    assert_eq!(convert(ints(), &DataType::Decimal128(10, 2)), three(["1.00", "NULL", "-300.00"]));
    assert!(convert(ints(), &DataType::Int8).unwrap_err().contains("out of range for TINYINT"));
    assert!(
        convert(ints(), &DataType::Utf8)
            .unwrap_err()
            .contains("is INT in the file, which can't be read as STRING")
    );
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.5]));
    assert!(convert(floats, &DataType::Int32).is_err());
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    assert!(convert(texts, &DataType::Int32).is_err());
    let words: ArrayRef = Arc::new(vec!["x", "y", "x"].into_iter().collect::<DictionaryArray<Int32Type>>());
    assert_eq!(convert(words, &DataType::Utf8), three(["x", "y", "x"]));
    let views: ArrayRef =
        Arc::new(StringViewArray::from(vec!["x", "a text that is longer than twelve bytes"]));
    assert_eq!(convert(views, &DataType::Utf8).unwrap()[1], "a text that is longer than twelve bytes");
    let large: ArrayRef = Arc::new(LargeStringArray::from(vec!["x"]));
    assert_eq!(convert(large, &DataType::Utf8).unwrap(), ["x"]);
    let decimals = || -> ArrayRef {
        Arc::new(Decimal128Array::from(vec![12_345]).with_precision_and_scale(10, 2).unwrap())
    };
    assert_eq!(convert(decimals(), &DataType::Decimal128(20, 4)).unwrap(), ["123.4500"]);
    assert!(convert(decimals(), &DataType::Decimal128(20, 1)).is_err());
    assert!(convert(decimals(), &DataType::Decimal128(4, 2)).is_err());
    let days: ArrayRef = Arc::new(Date32Array::from(vec![-1]));
    assert_eq!(convert(days, &TS3).unwrap(), ["1969-12-31T00:00:00.000"]);
    let unsigned: ArrayRef = Arc::new(UInt32Array::from(vec![u32::MAX]));
    assert_eq!(convert(unsigned.clone(), &DataType::Int64).unwrap(), ["4294967295"]);
    assert!(convert(unsigned, &DataType::Int32).is_err());
}

#[test]
fn instants_and_wall_clocks() {
    let berlin: Arc<str> = Arc::from("Europe/Berlin");
    let instant: ArrayRef = Arc::new(
        TimestampMicrosecondArray::from(vec![1_714_554_000_000_000]).with_timezone(Arc::clone(&berlin)),
    );
    assert_eq!(convert(instant.clone(), &TS3).unwrap(), ["2024-05-01T09:00:00.000"]);
    let ltz = DataType::Timestamp(TimeUnit::Millisecond, Some(berlin));
    assert_eq!(convert(instant, &ltz).unwrap(), ["2024-05-01T09:00:00.000Z"]);
    let naive: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1_714_554_000_000]));
    assert_eq!(convert(naive, &ltz).unwrap(), ["2024-05-01T09:00:00.000Z"]);
}

/// What the metadata tells of a column, in hundredths.
fn frequent(array: ArrayRef, rows_of_a_group: usize) -> Vec<(String, String, i64)> {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.parquet", "b.parquet"] {
        store(&dir.path().join(name), "v", Arc::clone(&array), rows_of_a_group);
    }
    let path = dir.path().to_string_lossy().into_owned();
    let t = table(&[("v", array.data_type().clone())], &[("path", &path), ("format", "parquet")]);
    let known = Filesystem.statistics(&t);
    assert!(known.has_several_splits);
    let of_column = known.frequent.into_iter().filter(|one| one.column == "v");
    of_column.map(|one| (one.column, one.value, (one.share * 100.0).round() as i64)).collect()
}

#[test]
fn metadata_tells_of_frequent_values() {
    let known = |value: &str, share: i64| vec![("v".to_owned(), value.to_owned(), share)];
    // Groups of two rows: 7 7 | 7 7 | 7 1 | 2 3. The third group has two values: nobody counts its 7.
    let numbers = || Arc::new(Int64Array::from(vec![7, 7, 7, 7, 7, 1, 2, 3]));
    assert_eq!(frequent(numbers(), 2), known("7", 50));
    // One group has more than one value.
    assert_eq!(frequent(numbers(), 8), []);
    let texts = StringArray::from(vec![Some("it's"), Some("it's"), None, Some("x")]);
    assert_eq!(frequent(Arc::new(texts), 2), known("'it''s'", 50));
    // NULL and a value in one group: three of four rows are NULL.
    let nulls = Int32Array::from(vec![None, None, None, Some(5)]);
    assert_eq!(frequent(Arc::new(nulls), 4), known("NULL", 75));
}

#[test]
fn several_threads_read_what_one_does() {
    let rows = 130_000;
    let numbers: ArrayRef = Arc::new((0..rows).map(Some).collect::<Int64Array>());
    let texts = (0..rows).map(|row| (row % 7 != 3).then(|| "é".repeat(row as usize % 50)));
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let lists = (0..rows).map(|row| Some((0..row as i32 % 4).map(Some)));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists));
    let fields = [("n", &numbers), ("s", &texts), ("xs", &lists)]
        .map(|(name, array)| Field::new(name, array.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let batch = RecordBatch::try_new(schema.clone(), vec![numbers, texts, lists.clone()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(50_000)).build();
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), schema, Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let path = path.to_string_lossy().into_owned();
    // Not in the order of the file.
    let columns = [("xs", lists.data_type().clone()), ("n", DataType::Int64), ("s", DataType::Utf8)];
    let t = table(&columns, &[("path", &path), ("format", "parquet")]);
    let expected = read(&t, 8192).unwrap();
    assert_eq!(expected.lines.len(), rows as usize);
    assert_eq!(expected.rows()[129_999], format!("[0,1,2], 129999, {}", "é".repeat(49)));
    for (batch_rows, threads) in [(8192, 2), (1000, 3), (8192, 8)] {
        let found = read_by(&t, batch_rows, threads).unwrap();
        assert!(found.lines == expected.lines && found.rows() == expected.rows(), "{threads} threads");
    }
}
