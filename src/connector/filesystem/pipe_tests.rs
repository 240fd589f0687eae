//! Named pipes as sources and sinks.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};

use super::unwritable;
use crate::connector::testing::{request, table};
use crate::connector::{Connector, Filesystem, Read};
use crate::stream::StreamBatch;

/// A named pipe in a folder of its own; `None` where there is no `mkfifo`.
fn pipe() -> Option<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.fifo");
    let made = Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success());
    made.then_some((dir, path))
}

fn batch(value: i32) -> StreamBatch {
    let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int32, true)]));
    let rows = RecordBatch::try_new(schema, vec![Arc::new(Int32Array::from(vec![value]))]).unwrap();
    StreamBatch::inserts(rows, Instant::now())
}

#[test]
fn a_row_is_there_while_the_pipe_is_still_open() {
    // B092
    let Some((_dir, path)) = pipe() else { return };
    let shown = path.to_string_lossy().into_owned();
    let t = table(&[("v", DataType::Int32)], &[("path", &shown), ("format", "json")]);
    // Neither opening nor listing the splits waits for the writer.
    let mut splits = Filesystem.source(&t, &request(&t)).unwrap().splits().unwrap();
    let (done, first_was_read) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        let mut pipe = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        pipe.write_all(b"{\"v\":1}\n{\"v\":").unwrap();
        first_was_read.recv().unwrap();
        pipe.write_all(b"2}\n").unwrap();
    });
    let first = splits[0].next().unwrap().rows().unwrap();
    assert_eq!(first.rows.num_rows(), 1);
    done.send(()).unwrap();
    assert_eq!(splits[0].next().unwrap().rows().unwrap().rows.num_rows(), 1);
    assert!(matches!(splits[0].next().unwrap(), Read::End));
    writer.join().unwrap();
}

#[test]
fn a_pipe_is_written_as_rows_come() {
    let Some((_dir, path)) = pipe() else { return };
    let shown = path.to_string_lossy().into_owned();
    let t = table(&[("v", DataType::Int32)], &[("path", &shown), ("format", "json")]);
    let (sender, lines) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut reader = BufReader::new(std::fs::File::open(path).unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        sender.send(line).unwrap();
    });
    let mut sink = Filesystem.sink(&t, batch(0).rows.schema()).unwrap();
    sink.write(&batch(1)).unwrap();
    // The line is here although the sink is not finished.
    assert_eq!(lines.recv().unwrap(), "{\"v\":1}\n");
    reader.join().unwrap();
    // The reader has gone.
    assert_eq!(sink.write(&batch(2)).unwrap_err().code(), "F004");
}

#[test]
fn a_pipe_without_rows_still_ends() {
    let Some((_dir, path)) = pipe() else { return };
    let shown = path.to_string_lossy().into_owned();
    let t = table(&[("v", DataType::Int32)], &[("path", &shown), ("format", "csv"), ("csv.header", "true")]);
    // Opening the sink does not wait for the reader.
    let mut sink = Filesystem.sink(&t, batch(0).rows.schema()).unwrap();
    let reader = std::thread::spawn(move || std::fs::read_to_string(path).unwrap());
    sink.finish().unwrap();
    drop(sink);
    assert_eq!(reader.join().unwrap(), "v\n");
}

#[test]
fn a_closed_pipe_has_a_code_of_its_own() {
    let error = unwritable("standard output", &ErrorKind::BrokenPipe.into());
    assert_eq!((error.code(), error.exit_code()), ("F004", 1));
    let error = unwritable("x", &ErrorKind::PermissionDenied.into());
    assert_eq!((error.code(), error.message()), ("F003", "can't write \"x\": permission denied"));
}
