//! What a program does wrong, at the door: each has a code and a way out, and nothing hangs.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use tidegate::Session;
use tidegate::connector::StreamTable;
use tidegate::stream::Watermark;

use super::{all, batch, code, failure, rows, schema, session_with, table};

fn of(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns.iter().map(|(name, column)| (*name, Arc::clone(column), true)),
    )
    .expect("columns of one length")
}

#[test]
fn rows_must_have_the_columns_of_the_table() {
    let fields = vec![Field::new("n", DataType::Int64, false), Field::new("t", DataType::Utf8, true)];
    let (_session, input) = session_with(&StreamTable::new("s", Arc::new(Schema::new(fields))));
    let numbers = |values: Vec<Option<i64>>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let texts = || Arc::new(StringArray::from(vec!["x"])) as ArrayRef;
    let cases = [
        (of(&[("n", numbers(vec![Some(1)]))]), "no column \"t\""),
        (of(&[("n", Arc::new(Int32Array::from(vec![1]))), ("t", texts())]), "Int32 and not Int64"),
        (of(&[("n", numbers(vec![None])), ("t", texts())]), "NULL in column \"n\""),
        (of(&[("n", numbers(vec![Some(1)])), ("t", texts()), ("u", texts())]), "a column \"u\""),
        (of(&[("N", numbers(vec![Some(1)])), ("t", texts())]), "no column \"n\""),
    ];
    for (rows, what) in cases {
        for error in [input.push(&rows).unwrap_err(), input.try_push(&rows).unwrap_err()] {
            assert_eq!(code(&error), "F002");
            assert!(error.message().contains(what), "{error}");
        }
        let error = super::block_on(input.push_async(&rows)).unwrap_err();
        assert_eq!(code(&error), "F002");
    }
    // None of them was taken; without NULL the nullable column fits.
    assert_eq!(input.rows_waiting(), 0);
    input.push(&of(&[("n", numbers(vec![Some(1)])), ("t", texts())])).unwrap();
}

#[test]
fn time_does_not_go_back() {
    let (mut session, input) = session_with(&table());
    input.advance(Watermark(10_000_000)).unwrap();
    let error = input.advance(Watermark(9_999_999)).unwrap_err();
    assert_eq!(code(&error), "R011");
    // The stream goes on as if nothing had been said.
    input.push(&batch(&[(10_000, "a", 1), (10_001, "a", 2)])).unwrap();
    input.end();
    let sql = "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND))
        GROUP BY window_start, window_end";
    assert_eq!(rows(&mut session, sql), ["2"]);

    let (_session, timeless) = session_with(&StreamTable::new("s", schema()));
    assert_eq!(code(&timeless.advance(Watermark(0)).unwrap_err()), "R011");
}

#[test]
fn nothing_comes_after_the_end() {
    let (mut session, input) = session_with(&table());
    let other = input.clone();
    input.end();
    input.end();
    for error in [
        other.push(&batch(&[])).unwrap_err(),
        other.try_push(&batch(&[])).unwrap_err(),
        other.advance(Watermark(0)).unwrap_err(),
        other.idle().unwrap_err(),
        other.active().unwrap_err(),
        super::block_on(other.push_async(&batch(&[]))).unwrap_err(),
    ] {
        assert_eq!(code(&error), "R011");
        assert!(error.message().contains("has ended"), "{error}");
    }
    assert_eq!(rows(&mut session, "SELECT v FROM s"), [""; 0]);
    // It has ended for whoever comes later, too.
    assert_eq!(rows(&mut session, "SELECT v FROM s"), [""; 0]);
}

#[test]
fn a_full_stream_that_nobody_reads_is_an_error_and_no_hang() {
    let (mut session, input) = session_with(&table().capacity_rows(2));
    input.push(&batch(&[(0, "a", 1), (0, "a", 2)])).unwrap();
    let error = input.push(&batch(&[(0, "a", 3)])).unwrap_err();
    assert_eq!(code(&error), "R011");
    assert!(error.message().contains("no query reads it"), "{error}");
    // Words that need no room are taken, and the rows are still there.
    input.advance(Watermark(0)).unwrap();
    input.push(&batch(&[])).unwrap();
    input.end();
    assert_eq!(rows(&mut session, "SELECT v FROM s"), ["1", "2"]);
}

#[test]
fn a_pusher_that_waits_learns_that_its_query_is_gone() {
    let (mut session, input) = session_with(&StreamTable::new("s", schema()).capacity_rows(10));
    let query = session.query("SELECT v FROM s").unwrap();
    let feeder = std::thread::spawn(move || {
        let rows = batch(&[(0, "a", 1); 1_000]);
        loop {
            if let Err(error) = input.push(&rows) {
                return error;
            }
        }
    });
    drop(query);
    assert_eq!(code(&feeder.join().unwrap()), "R011");
}

#[test]
fn names_are_taken_once() {
    let (mut session, _input) = session_with(&table());
    assert_eq!(code(&session.register_stream(&table()).unwrap_err()), "C005");
    session.register_stream(&StreamTable::new("S", schema())).unwrap();
    session.run("CREATE VIEW v AS SELECT 1 AS one").unwrap();
    let view = StreamTable::new("v", schema());
    assert_eq!(code(&session.register_stream(&view).unwrap_err()), "C005");
    // What could not be registered is not half there.
    session.run("DROP VIEW v").unwrap();
    session.register_stream(&view).unwrap();
}

#[test]
fn a_table_must_make_sense() {
    let mut session = Session::new();
    let plain = || StreamTable::new("s", schema());
    let cases = [
        (plain().event_time("time"), "P004"),
        (plain().event_time("k"), "W009"),
        (plain().watermark("ts", "v"), "W009"),
        (plain().watermark("ts", "ts - "), "S001"),
        (plain().watermark("ts", "ts) WITH ('connector' = 'blackhole'); SELECT (1"), "S001"),
        (plain().watermark("ts", "nope"), "P004"),
        (plain().event_time("ts").idle_after(Duration::ZERO), "W009"),
        (plain().idle_after(Duration::from_secs(1)), "W009"),
        (plain().computed("v", "1"), "C006"),
        (plain().computed("x", "1 +"), "S001"),
    ];
    for (table, expected) in cases {
        let error = session.register_stream(&table).unwrap_err();
        assert_eq!(error.code(), expected, "{}", error.render());
    }
    // None of them has left anything behind.
    session.register_stream(&plain()).unwrap();
}

#[test]
fn splits_are_there_before_the_first_query() {
    let (mut session, input) = session_with(&table());
    let other = input.split("other").unwrap();
    assert_eq!(code(&input.split("other").unwrap_err()), "R011");
    assert_eq!(code(&input.split("s").unwrap_err()), "R011");
    let query = session.query("SELECT v FROM s").unwrap();
    assert_eq!(code(&input.split("third").unwrap_err()), "R011");
    drop((input, other));
    assert_eq!(all(query).unwrap(), [""; 0]);
}

#[test]
fn statements_must_be_one_query() {
    let mut session = Session::new();
    for (sql, expected) in [
        ("", "P003"),
        ("SELECT 1; SELECT 2", "P003"),
        ("CREATE VIEW v AS SELECT 1 AS one", "P003"),
        ("SELECT * FROM nope", "P001"),
        ("SELEC 1", "S001"),
    ] {
        let error = failure(&mut session, sql);
        assert_eq!(error.code(), expected, "{sql}");
        assert!(error.hint_text().is_some(), "{sql}: {error}");
    }
    assert!(failure(&mut session, "SELECT\n nope").render().contains("2 |  nope"));
}

#[test]
fn a_dropped_table_ends_its_queries_and_refuses_rows() {
    let (mut session, input) = session_with(&table());
    let query = session.query("SELECT v FROM s").unwrap();
    input.push(&batch(&[(0, "a", 1)])).unwrap();
    session.run("DROP TABLE s").unwrap();
    assert_eq!(code(&input.push(&batch(&[(0, "a", 2)])).unwrap_err()), "R011");
    assert_eq!(all(query).unwrap(), ["1"]);
    // The name is free again; the old handle is of the old table.
    let again = session.register_stream(&table()).unwrap();
    drop(input);
    again.push(&batch(&[(0, "a", 3)])).unwrap();
    again.end();
    assert_eq!(rows(&mut session, "SELECT v FROM s"), ["3"]);
}

#[test]
fn handles_are_dropped_in_any_order() {
    // 0: the session, 1: the query, 2: the input.
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for is_fed in [false, true] {
            let (mut session, input) = session_with(&table());
            let query = session.query("SELECT v FROM s").unwrap();
            if is_fed {
                input.push(&batch(&[(0, "a", 1)])).unwrap();
            }
            let (mut session, mut query, mut input) = (Some(session), Some(query), Some(input));
            for step in order {
                match step {
                    0 => drop(session.take()),
                    1 => drop(query.take()),
                    _ => drop(input.take()),
                }
                if let (Some(input), None, None) = (&input, &session, &query) {
                    let error = input.push(&batch(&[(0, "a", 1)])).unwrap_err();
                    assert_eq!(code(&error), "R011");
                }
            }
        }
    }
}

#[test]
fn a_query_outlives_its_session() {
    let (mut session, input) = session_with(&table());
    let query = session.query("SELECT v FROM s").unwrap();
    drop(session);
    input.push(&batch(&[(0, "a", 1)])).unwrap();
    drop(input);
    assert_eq!(all(query).unwrap(), ["1"]);
}

#[test]
fn a_thread_that_panics_does_not_look_like_the_end() {
    let (mut session, input) = session_with(&table());
    let query = session.query("SELECT v FROM s").unwrap();
    let feeder = std::thread::spawn(move || {
        input.push(&batch(&[(0, "a", 1)])).unwrap();
        panic!("out of luck");
    });
    assert!(feeder.join().is_err());
    let error = all(query).unwrap_err();
    assert_eq!(code(&error), "R011");
    assert!(error.message().contains("panicked"), "{error}");
}
