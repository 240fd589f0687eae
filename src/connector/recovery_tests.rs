//! What connectors say of checkpoints is what their readers and sinks do.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};

use super::stream::Streams;
use super::testing::{request, table};
use super::{
    Blackhole, Connector, Datagen, Filesystem, Memory, Nexmark, Position, Print, Socket, Stdin, Stdout,
    StreamTable,
};
use crate::catalog::{ReadRecovery, Table, WriteRecovery};

fn of(options: &[(&str, &str)]) -> Table {
    table(&[("v", DataType::Int32)], options)
}

/// What the readers of its splits say.
fn read(connector: &dyn Connector, table: &Table) -> ReadRecovery {
    let splits = connector.source(table, &request(table)).unwrap().splits().unwrap();
    assert!(!splits.is_empty());
    let is_lost = splits.iter().any(|split| split.position().as_ref().is_some_and(Position::is_lost));
    if is_lost { ReadRecovery::Lost } else { ReadRecovery::Again }
}

/// What its sink says.
fn written(connector: &dyn Connector, table: &Table) -> WriteRecovery {
    let mut sink = connector.sink(table, table.schema()).unwrap();
    let told = match sink.prepare() {
        Ok(Some(_)) => WriteRecovery::TakenBack,
        Ok(None) => WriteRecovery::Repeated,
        Err(error) => {
            assert_eq!(error.code(), "P002", "{error}");
            WriteRecovery::Refused
        }
    };
    sink.abort();
    told
}

fn reads(connector: &dyn Connector, options: &[(&str, &str)], expected: ReadRecovery) {
    let table = of(options);
    assert_eq!(connector.recovery(&table).read, expected, "{options:?}");
    assert_eq!(read(connector, &table), expected, "{options:?}");
}

fn writes(connector: &dyn Connector, options: &[(&str, &str)], expected: WriteRecovery) {
    let table = of(options);
    assert_eq!(connector.recovery(&table).written, expected, "{options:?}");
    assert_eq!(written(connector, &table), expected, "{options:?}");
}

fn shown(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_string_lossy().into_owned()
}

fn pipe(path: &str) -> bool {
    Command::new("mkfifo").arg(path).status().is_ok_and(|status| status.success())
}

#[test]
fn files_are_read_again_and_pipes_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| shown(&folder, name);
    std::fs::create_dir(folder.path().join("in")).unwrap();
    for name in ["a.json", "in/b.json"] {
        std::fs::write(folder.path().join(name), "{\"v\":1}\n").unwrap();
    }
    let followed = ("source.monitor-interval", "1 s");
    for name in ["a.json", "in", "*.json", "in/*.json"] {
        let path = path(name);
        let options = [("path", path.as_str()), ("format", "json")];
        reads(&Filesystem, &options, ReadRecovery::Again);
        reads(&Filesystem, &[options[0], options[1], followed], ReadRecovery::Again);
    }
    reads(&Filesystem, &[("path", &format!("file://{}", path("a.json")))], ReadRecovery::Again);
    let (fifo, many) = (path("p.fifo"), path("*.fifo"));
    if pipe(&fifo) {
        reads(&Filesystem, &[("path", &fifo), ("format", "json")], ReadRecovery::Lost);
        reads(&Filesystem, &[("path", &many), ("format", "json")], ReadRecovery::Lost);
    }
    if Path::new("/dev/null").exists() {
        reads(&Filesystem, &[("path", "/dev/null"), ("format", "json")], ReadRecovery::Lost);
    }
    // What is not there yet will be a file.
    let table = of(&[("path", &path("none.json"))]);
    assert_eq!(Filesystem.recovery(&table).read, ReadRecovery::Again);
}

#[test]
fn what_is_generated_is_generated_again() {
    let datagen = [("connector", "datagen"), ("number-of-rows", "10")];
    reads(&Datagen, &datagen, ReadRecovery::Again);
    reads(&Datagen, &[("connector", "datagen")], ReadRecovery::Again);
    let bids = table(&[("auction", DataType::Int64)], &[("connector", "nexmark"), ("table", "bid")]);
    let mut options: Vec<_> = vec![("connector", "nexmark"), ("table", "bid"), ("events.num", "10")];
    options.push(("number-of-splits", "2"));
    let nexmark = Table { options: options.into_iter().collect(), ..bids };
    assert_eq!(read(&Nexmark, &nexmark), ReadRecovery::Again);
    assert_eq!(Nexmark.recovery(&nexmark).read, ReadRecovery::Again);
}

#[test]
fn what_comes_through_a_wire_is_lost() {
    reads(&Stdin, &[("connector", "stdin"), ("format", "json")], ReadRecovery::Lost);
    reads(
        &Socket,
        &[("connector", "socket"), ("hostname", "127.0.0.1"), ("port", "9"), ("format", "json")],
        ReadRecovery::Lost,
    );
    let streams = Streams::default();
    let _input = streams.add(&StreamTable::new("t", of(&[]).schema())).unwrap();
    reads(&streams, &[("connector", "stream"), ("name", "t")], ReadRecovery::Lost);
}

#[test]
fn folders_and_text_files_take_rows_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| shown(&folder, name);
    for format in ["json", "csv", "parquet", "changelog-json"] {
        let options = [("path", &*path(format)), ("format", format)];
        writes(&Filesystem, &options, WriteRecovery::TakenBack);
        // Once more, where the folder is there.
        writes(&Filesystem, &options, WriteRecovery::TakenBack);
    }
    for name in ["one.json", "one.csv", "one.json.gz"] {
        writes(&Filesystem, &[("path", &path(name))], WriteRecovery::TakenBack);
    }
    std::fs::write(folder.path().join("old.json"), "").unwrap();
    let options = [("path", &*path("old.json")), ("sink.overwrite", "true")];
    writes(&Filesystem, &options, WriteRecovery::TakenBack);
    writes(&Filesystem, &[("path", &path("one.parquet"))], WriteRecovery::Refused);
}

#[test]
fn what_is_out_stays_out() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = shown(&folder, "p.fifo");
    if pipe(&fifo) {
        // Its sink waits for a reader when it is to be prepared.
        let table = of(&[("path", &fifo), ("format", "json")]);
        assert_eq!(Filesystem.recovery(&table).written, WriteRecovery::Repeated);
    }
    if Path::new("/dev/null").exists() {
        writes(&Filesystem, &[("path", "/dev/null"), ("format", "json")], WriteRecovery::Repeated);
    }
    writes(&Stdout, &[("connector", "stdout")], WriteRecovery::Repeated);
    writes(&Print, &[("connector", "print")], WriteRecovery::Repeated);
    // It repeats rows as well, but nobody sees how often.
    let nowhere = of(&[("connector", "blackhole")]);
    assert_eq!(written(&Blackhole, &nowhere), WriteRecovery::Repeated);
    assert_eq!(Blackhole.recovery(&nowhere).written, WriteRecovery::TakenBack);
}

#[test]
fn memory_is_as_good_as_the_process() {
    let (memory, schema) = (Memory::new(), of(&[]).schema());
    let table = of(&[("connector", "memory")]);
    assert_eq!(memory.recovery(&table).read, ReadRecovery::Gone);
    assert_eq!(memory.recovery(&table).written, WriteRecovery::Gone);
    let rows = RecordBatch::new_empty(Arc::clone(&schema));
    memory.put("t", Arc::clone(&schema), vec![rows]);
    reads(&memory, &[("connector", "memory")], ReadRecovery::Again);
    let (_sender, receiver) = channel();
    memory.put_channel("t", Arc::new(Schema::clone(&schema)), receiver);
    reads(&memory, &[("connector", "memory")], ReadRecovery::Lost);
}
