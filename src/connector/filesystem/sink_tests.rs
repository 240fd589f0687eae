//! What is written: it reads back, it appears whole or not at all, and errors say why not.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::catalog::Table;
use crate::connector::testing::{names_in, read, table, write};
use crate::connector::{Connector, Filesystem, Sink};
use crate::stream::StreamBatch;

fn schema_of(columns: &[(&str, DataType)]) -> SchemaRef {
    let fields = columns.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn two_columns() -> (Vec<(&'static str, DataType)>, RecordBatch) {
    let columns = vec![("k", DataType::Utf8), ("v", DataType::Int32)];
    let k: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("")]));
    let v: ArrayRef = Arc::new(Int32Array::from(vec![None, Some(2), Some(3)]));
    let batch = RecordBatch::try_new(schema_of(&columns), vec![k, v]).unwrap();
    (columns, batch)
}

#[test]
fn null_and_empty_come_back() {
    // B059
    let (columns, batch) = two_columns();
    let dir = tempfile::tempdir().unwrap();
    for (format, option) in [
        ("json", None),
        ("csv", Some(("csv.null-literal", "\\N"))),
        ("csv", Some(("csv.null-literal", ""))),
        ("parquet", None),
    ] {
        let path =
            dir.path().join(format!("{format}{option:?}").replace('\\', "")).to_string_lossy().into_owned();
        let mut options = vec![("path", path.as_str()), ("format", format)];
        options.extend(option);
        let t = table(&columns, &options);
        write(&t, batch.schema(), std::slice::from_ref(&batch)).unwrap();
        assert_eq!(read(&t, 10).unwrap().rows(), ["a, NULL", "NULL, 2", ", 3"], "{format} {option:?}");
    }
    // Without a null literal NULL reads as the empty text, and nothing fails.
    let path = dir.path().join("plain").to_string_lossy().into_owned();
    let t = table(&columns, &[("path", &path), ("format", "csv")]);
    write(&t, batch.schema(), &[batch]).unwrap();
    assert_eq!(read(&t, 10).unwrap().rows(), ["a, NULL", ", 2", ", 3"]);
}

#[test]
fn the_text_of_each_format() {
    let (columns, batch) = two_columns();
    let dir = tempfile::tempdir().unwrap();
    let text = |name: &str, options: &[(&str, &str)]| {
        let path = dir.path().join(name);
        let shown = path.to_string_lossy().into_owned();
        let mut all = vec![("path", shown.as_str())];
        all.extend_from_slice(options);
        write(&table(&columns, &all), batch.schema(), std::slice::from_ref(&batch)).unwrap();
        std::fs::read_to_string(path).unwrap()
    };
    assert_eq!(text("a.json", &[]), "{\"k\":\"a\",\"v\":null}\n{\"k\":null,\"v\":2}\n{\"k\":\"\",\"v\":3}\n");
    assert_eq!(text("a.csv", &[]), "a,\n,2\n,3\n");
    assert_eq!(text("b.csv", &[("csv.header", "true")]), "k,v\na,\n,2\n,3\n");
    assert_eq!(text("c.tsv", &[("csv.null-literal", "")]), "a\t\n\t2\n\"\"\t3\n");
}

#[test]
fn a_folder_gets_one_more_part_each_time() {
    let (columns, batch) = two_columns();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out").to_string_lossy().into_owned();
    let t = table(&columns, &[("path", &path), ("format", "csv"), ("compression", "gzip")]);
    for _ in 0..2 {
        write(&t, batch.schema(), &[batch.slice(1, 1)]).unwrap();
    }
    let names = names_in(&dir.path().join("out"));
    assert_eq!(names.len(), 2);
    assert!(names.iter().all(|name| name.starts_with("part-") && name.ends_with(".csv.gz")), "{names:?}");
    assert_eq!(read(&t, 10).unwrap().rows(), [", 2", ", 2"]);
    // Nothing written, nothing there; the folder is, so it can be read.
    let path = dir.path().join("none").to_string_lossy().into_owned();
    let t = table(&columns, &[("path", &path), ("format", "parquet")]);
    write(&t, batch.schema(), &[]).unwrap();
    assert!(names_in(&dir.path().join("none")).is_empty());
    assert!(read(&t, 10).unwrap().rows().is_empty());
}

#[test]
fn a_file_appears_when_it_is_finished_or_not_at_all() {
    let (columns, batch) = two_columns();
    for name in ["out.json", "out.csv.zst", "out.parquet"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name).to_string_lossy().into_owned();
        let t = table(&columns, &[("path", &path)]);
        let begin = || {
            let mut sink = Filesystem.sink(&t, batch.schema()).unwrap();
            sink.write(&StreamBatch::inserts(batch.clone(), Instant::now())).unwrap();
            sink
        };
        let mut sink = begin();
        assert!(names_in(dir.path()).iter().all(|name| name.starts_with('.')));
        sink.abort();
        assert!(names_in(dir.path()).is_empty());
        drop(begin());
        assert!(names_in(dir.path()).is_empty());
        begin().finish().unwrap();
        assert_eq!(names_in(dir.path()), [name]);
        assert_eq!(read(&t, 10).unwrap().rows().len(), 3);
    }
}

#[test]
fn a_file_that_exists_is_replaced_only_on_demand() {
    let (columns, batch) = two_columns();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.json").to_string_lossy().into_owned();
    let t = table(&columns, &[("path", &path)]);
    write(&t, batch.schema(), std::slice::from_ref(&batch)).unwrap();
    let error = write(&t, batch.schema(), std::slice::from_ref(&batch)).unwrap_err();
    assert_eq!(error.code(), "F003");
    assert!(error.message().contains(&path) && error.message().contains("exists"));
    let t = table(&columns, &[("path", &path), ("sink.overwrite", "true")]);
    write(&t, batch.schema(), &[batch.slice(0, 1)]).unwrap();
    assert_eq!(read(&t, 10).unwrap().rows(), ["a, NULL"]);
    // Another one finished first: its file stays.
    let other = dir.path().join("race.json").to_string_lossy().into_owned();
    let t = table(&columns, &[("path", &other)]);
    let mut first = Filesystem.sink(&t, batch.schema()).unwrap();
    let mut second = Filesystem.sink(&t, batch.schema()).unwrap();
    second.write(&StreamBatch::inserts(batch.clone(), Instant::now())).unwrap();
    second.finish().unwrap();
    assert_eq!(first.finish().unwrap_err().code(), "F003");
    drop(first);
    assert_eq!(names_in(dir.path()), ["out.json", "race.json"]);
    assert_eq!(read(&t, 10).unwrap().rows().len(), 3);
}

#[test]
fn errors_name_the_path_and_the_reason() {
    // B083
    let (columns, batch) = two_columns();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("out"), "a file").unwrap();
    for (name, reason) in
        [("out", "not a directory"), ("out/x.json", "not a directory"), ("out/", "not a directory")]
    {
        let path = format!("{}/{name}", dir.path().to_string_lossy());
        let t = table(&columns, &[("path", &path), ("format", "json")]);
        let error = Filesystem.sink(&t, batch.schema()).err().unwrap();
        assert_eq!(error.code(), "F003");
        assert!(error.message().contains(&path), "{error}");
        assert!(error.message().to_lowercase().contains(reason), "{error}");
    }
    let full = std::path::Path::new("/dev/full");
    if full.exists() {
        let t = table(&columns, &[("path", "/dev/full"), ("format", "json")]);
        let error = write(&t, batch.schema(), &[batch]).unwrap_err();
        assert!(
            error.message().contains("/dev/full") && error.message().contains("No space left"),
            "{error}"
        );
    }
}

#[test]
fn every_type_comes_back_from_every_format() {
    use arrow::array::*;
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Int32Type;

    let utc: Arc<str> = Arc::from("UTC");
    let items = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
        Some(vec![Some(-7)]),
    ]);
    let inner = StructArray::from(vec![
        (
            Arc::new(Field::new("x", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec![Some("a\"b"), None, Some("é漢😀"), Some("")])) as ArrayRef,
        ),
        (
            Arc::new(Field::new("y", DataType::Float64, true)),
            Arc::new(Float64Array::from(vec![Some(0.1), None, Some(f64::NAN), Some(1e300)])) as ArrayRef,
        ),
    ]);
    let keys = StringArray::from(vec!["k", "l", "k"]);
    let values = Int64Array::from(vec![Some(1), None, Some(i64::MIN)]);
    let fields: arrow::datatypes::Fields =
        vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Int64, true)].into();
    let entries = StructArray::new(fields.clone(), vec![Arc::new(keys), Arc::new(values)], None);
    let map = MapArray::new(
        Arc::new(Field::new("entries", DataType::Struct(fields), false)),
        OffsetBuffer::new(vec![0, 2, 2, 2, 3].into()),
        entries,
        Some(vec![true, false, true, true].into()),
        false,
    );
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)])),
        Arc::new(Int8Array::from(vec![Some(i8::MIN), None, Some(0), Some(i8::MAX)])),
        Arc::new(Int16Array::from(vec![Some(i16::MIN), None, Some(0), Some(i16::MAX)])),
        Arc::new(Int32Array::from(vec![Some(i32::MIN), None, Some(0), Some(i32::MAX)])),
        Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(0), Some(i64::MAX)])),
        Arc::new(Float32Array::from(vec![Some(f32::MIN_POSITIVE), None, Some(f32::INFINITY), Some(-0.0)])),
        Arc::new(Float64Array::from(vec![Some(f64::MAX), None, Some(f64::NEG_INFINITY), Some(5e-324)])),
        Arc::new(
            Decimal128Array::from(vec![Some(10_i128.pow(38) - 1), None, Some(-1), Some(0)])
                .with_precision_and_scale(38, 10)
                .unwrap(),
        ),
        Arc::new(StringArray::from(vec![Some(" a,\"b\"\r\n"), None, Some("\\N#\u{1}"), Some("#x")])),
        Arc::new(BinaryArray::from(vec![Some(&b"\x00\xff"[..]), None, Some(b""), Some(b"abc")])),
        Arc::new(Date32Array::from(vec![Some(-719_162), None, Some(0), Some(2_932_896)])),
        Arc::new(Time32MillisecondArray::from(vec![Some(0), None, Some(1), Some(86_399_999)])),
        Arc::new(Time64MicrosecondArray::from(vec![Some(0), None, Some(1), Some(86_399_999_999)])),
        Arc::new(Time64NanosecondArray::from(vec![Some(0), None, Some(1), Some(86_399_999_999_999)])),
        Arc::new(TimestampMillisecondArray::from(vec![
            Some(-62_135_596_800_000),
            None,
            Some(-1),
            Some(253_402_300_799_999),
        ])),
        Arc::new(TimestampMicrosecondArray::from(vec![
            Some(-1),
            None,
            Some(1),
            Some(253_402_300_799_999_999),
        ])),
        Arc::new(TimestampNanosecondArray::from(vec![Some(i64::MIN), None, Some(1), Some(i64::MAX)])),
        Arc::new(
            TimestampMillisecondArray::from(vec![Some(-1), None, Some(0), Some(1_714_554_001_123)])
                .with_timezone(Arc::clone(&utc)),
        ),
        Arc::new(items),
        Arc::new(inner),
        Arc::new(map),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (index, array) in arrays.iter().enumerate() {
        for format in ["json", "csv", "parquet"] {
            let columns = [("v", array.data_type().clone()), ("w", DataType::Utf8)];
            let w: ArrayRef = Arc::new(StringArray::from(vec!["1", "2", "3", "4"]));
            let batch = RecordBatch::try_new(schema_of(&columns), vec![Arc::clone(array), w]).unwrap();
            let path = dir.path().join(format!("{index}.{format}")).to_string_lossy().into_owned();
            let mut options = vec![("path", path.as_str())];
            if format == "csv" {
                options.push(("csv.null-literal", "\\N"));
            }
            let t = table(&columns, &options);
            write(&t, batch.schema(), std::slice::from_ref(&batch)).unwrap();
            let back = read(&t, 10).unwrap();
            let is_empty_bytes_in_csv = format == "csv" && *array.data_type() == DataType::Binary;
            if is_empty_bytes_in_csv {
                // The only value that CSV can't tell from NULL: BYTES without a byte.
                assert_eq!(back.rows()[0], "AP8=, 1");
                continue;
            }
            assert_eq!(
                back.batches[0].column(0).to_data(),
                array.to_data(),
                "{format} {:?}",
                array.data_type()
            );
        }
    }
}

#[test]
fn epoch_times_come_back() {
    let ts = DataType::Timestamp(TimeUnit::Millisecond, None);
    let columns = [("ts", ts)];
    let values = vec![Some(-1), Some(1_714_554_001_123), None, Some(0)];
    let array: ArrayRef = Arc::new(arrow::array::TimestampMillisecondArray::from(values));
    let batch = RecordBatch::try_new(schema_of(&columns), vec![array]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for format in ["json", "csv"] {
        for style in ["epoch-seconds", "epoch-millis", "epoch-micros", "SQL", "ISO-8601"] {
            let path = dir.path().join(format!("{style}.{format}")).to_string_lossy().into_owned();
            let t = table(&columns, &[("path", &path), ("timestamp-format", style)]);
            write(&t, batch.schema(), std::slice::from_ref(&batch)).unwrap();
            let back = read(&t, 10).unwrap();
            assert_eq!(back.batches[0], batch, "{style} {format}");
        }
    }
}

/// A part that is prepared, and the sink that would go on.
fn prepared(dir: &std::path::Path, format: &str) -> (Table, RecordBatch, Box<dyn Sink>) {
    let path = dir.join("out").to_string_lossy().into_owned();
    let columns = [("v", DataType::Int64)];
    let values: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![1, 2]));
    let batch = RecordBatch::try_new(schema_of(&columns), vec![values]).unwrap();
    let t = table(&columns, &[("path", &path), ("format", format)]);
    let mut sink = Filesystem.sink(&t, batch.schema()).unwrap();
    sink.write(&StreamBatch::inserts(batch.clone(), Instant::now())).unwrap();
    (t, batch, sink)
}

#[test]
fn a_checkpoint_tells_of_no_part_that_is_gone() {
    for format in ["json", "csv", "parquet"] {
        let dir = tempfile::tempdir().unwrap();
        let (t, batch, mut sink) = prepared(dir.path(), format);
        let first = sink.prepare().unwrap().unwrap();
        sink.write(&StreamBatch::inserts(batch.clone(), Instant::now())).unwrap();
        std::fs::remove_dir_all(dir.path().join("out")).unwrap();
        std::fs::create_dir(dir.path().join("out")).unwrap();
        let told = sink.prepare();
        let committed = sink.commit();
        let error = told.map(drop).and(committed).expect_err("what was written is gone");
        assert_eq!(error.code(), "F003", "{format}");
        assert!(error.message().starts_with("can't write"), "{format}: {}", error.message());
        drop(sink);
        // Nor does anybody go on from the checkpoint that has it.
        let error = Filesystem.resume_sink(&t, batch.schema(), &first).err().unwrap();
        assert_eq!(error.code(), "K003", "{format}");
    }
}

#[test]
fn a_part_replaces_no_foreign_file() {
    let dir = tempfile::tempdir().unwrap();
    let (t, batch, mut sink) = prepared(dir.path(), "json");
    let told = sink.prepare().unwrap().unwrap();
    let out = dir.path().join("out");
    let to = out.join(told["parts"]["sealed"][0][1].as_str().unwrap());
    std::fs::write(&to, "somebody else's").unwrap();
    assert_eq!(sink.commit().unwrap_err().code(), "F003");
    sink.abort();
    drop(sink);
    assert_eq!(std::fs::read_to_string(&to).unwrap(), "somebody else's");
    assert_eq!(names_in(&out).len(), 2, "what was prepared is kept");
    std::fs::remove_file(&to).unwrap();
    std::fs::write(out.join("notes.txt"), "stays").unwrap();
    let mut sink = Filesystem.resume_sink(&t, batch.schema(), &told).unwrap();
    sink.finish().unwrap();
    assert_eq!(std::fs::read_to_string(&to).unwrap(), "{\"v\":1}\n{\"v\":2}\n");
    assert_eq!(names_in(&out).len(), 2, "foreign files stay");
}
