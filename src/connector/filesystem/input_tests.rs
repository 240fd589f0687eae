//! Where rows come from: compressed files, folders, pipes, and how their bytes are cut.

use std::io::{Read, Write};

use arrow::datatypes::DataType;

use super::physical_columns;
use crate::connector::assembly::SplitFacts;
use crate::connector::format::FormatOptions;
use crate::connector::format::options::kind_of;
use crate::connector::input::{Compression, Input};
use crate::connector::options::OptionReader;
use crate::connector::testing::{read, read_text, request, table};
use crate::connector::text_split::{ByteSource, TextSplit};
use crate::connector::{Connector, Filesystem, ReadRequest, SplitReader};
use crate::error::Error;

const INT: DataType = DataType::Int32;
const STRING: DataType = DataType::Utf8;
const BIGINT: DataType = DataType::Int64;

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Gives its bytes a few at a time, as a slow pipe does.
struct Drops {
    bytes: Vec<u8>,
    at: usize,
    step: usize,
}

impl Read for Drops {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.step.min(buffer.len()).min(self.bytes.len() - self.at);
        buffer[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// A split over bytes that come `step` at a time.
fn split(content: &[u8], step: usize, format: &str, columns: &[(&str, DataType)]) -> TextSplit {
    let table = table(columns, &[("format", format)]);
    let (kind, _) = kind_of(&table.options, None).unwrap();
    let reader = OptionReader::new("test", &table.options, &[&["format"]]).unwrap();
    let options = FormatOptions::read(reader, kind, false).unwrap();
    let source = Drops { bytes: content.to_vec(), at: 0, step };
    let open = move || {
        let input = Input::new("pipe", source, true, Compression::Auto)?;
        Ok(Box::new(input) as Box<dyn ByteSource>)
    };
    let facts = SplitFacts { path: "pipe".to_owned(), ..SplitFacts::default() };
    let text = options.text.clone().unwrap();
    TextSplit::new(facts, Box::new(open), &text, &options, &physical_columns(&table), &request(&table))
        .unwrap()
}

fn drain(mut split: TextSplit) -> Vec<String> {
    let mut all = crate::connector::testing::Everything::default();
    while let Some(batch) = split.next().unwrap().rows() {
        all.batches.push(batch.rows);
    }
    all.rows()
}

#[test]
fn compressed_files() {
    let columns = [("v", INT)];
    let content = b"{\"v\":1}\n{\"v\":2}\n";
    let zstd = zstd::stream::encode_all(&content[..], 0).unwrap();
    for (name, bytes) in [
        ("a.json.gz", gzip(content)),
        ("a.json.zst", zstd.clone()),
        // By the first bytes, whatever the name says.
        ("a.json", gzip(content)),
        ("a.json.gz", content.to_vec()),
        ("b.json.gz", [gzip(&content[..8]), gzip(&content[8..])].concat()),
        (
            "b.json.zst",
            [
                zstd::stream::encode_all(&content[..8], 0).unwrap(),
                zstd::stream::encode_all(&content[8..], 0).unwrap(),
            ]
            .concat(),
        ),
    ] {
        assert_eq!(read_text(name, &bytes, &columns, &[]).unwrap().rows(), ["1", "2"], "{name}");
    }
    for name in ["e.json.gz", "e.json.zst"] {
        assert!(read_text(name, b"", &columns, &[]).unwrap().rows().is_empty());
    }
    assert!(read_text("e.json", b"", &columns, &[("compression", "gzip")]).unwrap().rows().is_empty());
    assert!(read_text("e.json.gz", &gzip(b""), &columns, &[]).unwrap().rows().is_empty());
    assert!(read_text("e.json", content, &columns, &[("compression", "gzip")]).is_err());
}

#[test]
fn a_cut_off_file_is_an_error_and_not_its_end() {
    let columns = [("v", INT)];
    let content: String = (0..2_000).map(|n| format!("{{\"v\":{n}}}\n")).collect();
    let whole = gzip(content.as_bytes());
    let whole_zstd = zstd::stream::encode_all(content.as_bytes(), 0).unwrap();
    for (name, bytes) in [("a.json.gz", &whole), ("a.json.zst", &whole_zstd)] {
        for cut in [bytes.len() - 1, bytes.len() / 2, 6] {
            let error = read_text(name, &bytes[..cut], &columns, &[]).unwrap_err();
            assert_eq!(error.code(), "F001");
            assert_eq!(
                error.message(),
                format!("can't read \"{name}\": it is cut off, the compressed data ends in the middle")
            );
        }
    }
}

#[test]
fn files_of_a_folder_in_the_order_of_their_names() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in
        [("b.csv", "v,s\n3,x\n"), ("a.csv", "1,x\n2,y\n"), ("c.csv.gz", ""), (".d.csv", "broken")]
    {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    let path = dir.path().to_string_lossy().into_owned();
    let t = table(&[("v", INT), ("s", STRING)], &[("path", &path), ("format", "csv")]);
    assert_eq!(read(&t, 10).unwrap().rows(), ["1, x", "2, y", "3, x"]);
}

#[test]
fn metadata_columns() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    std::fs::write(&path, "{\"v\":1}\n\n{\"v\":2}\n").unwrap();
    let path = path.to_string_lossy().into_owned();
    let mut t =
        table(&[("name", STRING), ("line", BIGINT), ("v", INT), ("size", BIGINT)], &[("path", &path)]);
    for (index, key) in [(0, "file.name"), (1, "file.line"), (3, "file.size")] {
        t.columns[index].kind =
            crate::catalog::ColumnKind::Metadata { key: key.to_owned(), is_virtual: true };
    }
    assert_eq!(read(&t, 10).unwrap().rows(), ["a.json, 1, 1, 17", "a.json, 3, 2, 17"]);
    // Without any column the rows still count.
    let request = ReadRequest {
        key: Vec::new(),
        schema: std::sync::Arc::new(arrow::datatypes::Schema::empty()),
        metadata: Vec::new(),
        ..request(&t)
    };
    let mut splits = Filesystem.source(&t, &request).unwrap().splits().unwrap();
    assert_eq!(splits[0].next().unwrap().rows().unwrap().rows.num_rows(), 2);
}

#[test]
fn boundaries_of_buffers_are_invisible() {
    // B057: characters of two, three and four bytes and CRLF inside quotes, cut anywhere.
    let text = |n: usize| "é漢\r\n😀".chars().cycle().take(n).collect::<String>();
    let mut csv = String::new();
    let mut json = String::new();
    let mut expected = Vec::new();
    for n in (1..=60).chain([70_000]) {
        csv += &format!("{n},\"{}\"\r\n", text(n));
        json += &format!("{{\"n\":{n},\"s\":{}}}\r\n", serde_json::to_string(&text(n)).unwrap());
        expected.push(format!("{n}, {}", text(n)));
    }
    let columns = [("n", INT), ("s", STRING)];
    for step in [1, 3, 8_192, usize::MAX] {
        assert_eq!(drain(split(csv.as_bytes(), step, "csv", &columns)), expected, "csv {step}");
        assert_eq!(drain(split(json.as_bytes(), step, "json", &columns)), expected, "json {step}");
    }
    assert_eq!(read_text("in.csv", csv.as_bytes(), &columns, &[]).unwrap().rows(), expected);
}

#[test]
fn a_pipe_gives_rows_as_they_come() {
    let content = b"{\"v\":1}\n{\"v\":2}\n{\"v\":3}\n";
    // The fourth read brings the end of the first line, the sixth that of the second.
    let mut split = split(content, 3, "json", &[("v", INT)]);
    let first = split.next().unwrap().rows().unwrap();
    assert_eq!(first.rows.num_rows(), 1);
    assert_eq!(drain(split), ["2", "3"]);
}

#[test]
fn raw_lines() {
    let all = read_text("in.log", b"a\r\n\n\xe2\x82\xac", &[("line", STRING)], &[("format", "raw")]).unwrap();
    assert_eq!(all.rows(), ["a", "", "€"]);
}

#[test]
fn options_are_checked() {
    // B067
    let check =
        |options: &[(&str, &str)]| -> Error { Filesystem.check(&table(&[("v", INT)], options)).unwrap_err() };
    let good = [("path", "in.json"), ("format", "json")];
    let with = |option| check(&[good[0], good[1], option]);
    let error = with(("json.ingore-parse-errors", "true"));
    assert_eq!(error.code(), "C001");
    assert!(error.hint_text().unwrap().contains("'json.ignore-parse-errors'"));
    let error = check(&[("format", "json")]);
    assert_eq!((error.code(), error.message()), ("C003", "option \"path\" is missing"));
    let error = with(("json.ignore-parse-errors", "yes please"));
    assert_eq!(error.code(), "C002");
    assert!(error.message().contains("is not a boolean"));
    assert_eq!(with(("csv.header", "true")).code(), "C001");
    assert_eq!(check(&[("path", "x"), ("format", "jsno")]).code(), "C004");
    assert_eq!(check(&[("path", "x")]).code(), "C003");
    assert_eq!(check(&[("path", "x.parquet"), ("compression", "gzip")]).code(), "C002");
    assert!(Filesystem.check(&table(&[("v", INT)], &[("path", "x.ndjson.gz")])).is_ok());
    let both = [good[0], ("json.ignore-parse-errors", "true"), ("errors", "skip")];
    assert_eq!(check(&both).code(), "C002");
}

#[test]
fn columns_are_found_in_the_data() {
    let infer = |name: &str, content: &[u8]| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        let options = [("path", path.to_string_lossy().into_owned())].into_iter().collect();
        Filesystem.infer_schema(&options).map(|schema| {
            let fields = schema.fields().iter();
            fields
                .map(|field| {
                    let name = crate::connector::format::sql_type_name(field.data_type());
                    format!("{} {name}", field.name())
                })
                .collect::<Vec<_>>()
        })
    };
    let content = b"id,zip,x,ok,d,ts,none\n1,007,1.5,true,2024-05-01,2024-05-01 09:00:01,\n-2,08,2,false,2024-05-02,2024-05-01T09:00:01.5,\n";
    assert_eq!(
        infer("a.csv", content).unwrap(),
        ["id BIGINT", "zip STRING", "x DOUBLE", "ok BOOLEAN", "d DATE", "ts TIMESTAMP(3)", "none STRING"]
    );
    assert_eq!(infer("a.csv", b"1,x\n2,y\n").unwrap(), ["column_1 BIGINT", "column_2 STRING"]);
    assert_eq!(infer("a.csv.gz", &gzip(b"k,v\nx,y\n")).unwrap(), ["k STRING", "v STRING"]);
    let content = br#"{"id":"a","t":1517365101235,"mag":2,"g":{"lat":1.5,"n":null},"xs":[1,2.5]}
{"id":"b","mag":2.3,"g":{"lat":1,"n":"x"},"xs":[],"late":true}"#;
    assert_eq!(
        infer("a.json", content).unwrap(),
        [
            "id STRING",
            "t BIGINT",
            "mag DOUBLE",
            "g ROW<lat DOUBLE, n STRING>",
            "xs ARRAY<DOUBLE>",
            "late BOOLEAN"
        ]
    );
    for (name, content) in [("a.csv", &b""[..]), ("a.json", b"[1]\n"), ("a.json", b"")] {
        assert_eq!(infer(name, content).unwrap_err().code(), "C006");
    }
    let missing = [("path", "no/such/file.json")].into_iter().collect();
    let error = Filesystem.infer_schema(&missing).unwrap_err();
    assert_eq!((error.code(), error.exit_code()), ("F001", 2));
}

#[test]
fn null_in_a_not_null_column_is_a_bad_row() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in [("a.json", "{\"v\":1}\n{\"v\":null}\n{}\n"), ("a.csv", "1,x\n,y\n,x\n")] {
        let path = dir.path().join(name).to_string_lossy().into_owned();
        std::fs::write(&path, content).unwrap();
        let options = [("path", path.as_str()), ("errors", "skip")];
        let mut t = table(&[("v", INT), ("s", STRING)], &options);
        t.columns[0].nullable = false;
        let all = read(&t, 10).unwrap();
        assert_eq!((all.lines.as_slice(), all.rejected.len()), (&[1][..], 2), "{name}");
        assert_eq!(all.rejected[0].reason, "column \"v\": NULL in a NOT NULL column");
    }
}

#[test]
fn all_connectors_are_there() {
    use crate::catalog::ConnectorCatalog;
    use crate::connector::Connectors;
    let connectors = Connectors::standard();
    for name in ["filesystem", "stdin", "stdout", "print", "blackhole", "memory", "datagen"] {
        assert_eq!(connectors.get(name).unwrap().name(), name);
    }
    let wrong = table(&[("v", INT)], &[("connector", "filesytem"), ("path", "x.json")]);
    let error = connectors.check(&wrong).unwrap_err();
    assert_eq!((error.code(), error.hint_text()), ("C004", Some("Use 'filesystem'.")));
    assert_eq!(connectors.metadata_type("filesystem", "file.line"), Some(BIGINT));
}
