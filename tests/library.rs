//! The library as a program uses it that embeds it: rows in and out, functions, connectors, handles.

#[path = "library/checkpoints.rs"]
mod checkpoints;
#[path = "library/connectors.rs"]
mod connectors;
#[path = "library/functions.rs"]
mod functions;
#[path = "library/guarantee.rs"]
mod guarantee;
#[path = "library/misuse.rs"]
mod misuse;
#[path = "library/rows.rs"]
mod rows;
#[path = "library/streams.rs"]
mod streams;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use arrow::array::{Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidegate::connector::{StreamInput, StreamTable};
use tidegate::session::QueryHandle;
use tidegate::{Error, Session};

/// Time, key, value.
pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        Field::new("k", DataType::Utf8, false),
        Field::new("v", DataType::Int64, true),
    ]))
}

/// Rows of [`schema`]: milliseconds, key, value.
pub(crate) fn batch(rows: &[(i64, &str, i64)]) -> RecordBatch {
    let times = TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.0));
    let keys = StringArray::from_iter_values(rows.iter().map(|row| row.1));
    let values = Int64Array::from_iter_values(rows.iter().map(|row| row.2));
    RecordBatch::try_new(schema(), vec![Arc::new(times), Arc::new(keys), Arc::new(values)])
        .expect("three columns")
}

/// The table `s`, whose watermark is two seconds behind its rows.
pub(crate) fn table() -> StreamTable {
    StreamTable::new("s", schema()).watermark("ts", "ts - INTERVAL '2' SECOND")
}

/// A session with a table, and the handle to it.
pub(crate) fn session_with(table: &StreamTable) -> (Session, StreamInput) {
    let mut session = Session::new();
    let input = session.register_stream(table).unwrap_or_else(|error| panic!("{}", error.render()));
    (session, input)
}

/// Rows as text, their values with `|` between them.
pub(crate) fn lines(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).expect("a type with text"))
        .collect();
    let line = |row: usize| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>();
    (0..batch.num_rows()).map(|row| line(row).join("|")).collect()
}

/// All rows of a query.
pub(crate) fn all(query: QueryHandle) -> Result<Vec<String>, Error> {
    let mut rows = Vec::new();
    for batch in query {
        rows.extend(lines(&batch?));
    }
    Ok(rows)
}

/// All rows of a query that works.
pub(crate) fn rows(session: &mut Session, sql: &str) -> Vec<String> {
    let query = session.query(sql).unwrap_or_else(|error| panic!("{}", error.render()));
    all(query).unwrap_or_else(|error| panic!("{}", error.render()))
}

/// Rows of several subtasks come in no order.
pub(crate) fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

/// What a query fails with, before it runs or while it does.
pub(crate) fn failure(session: &mut Session, sql: &str) -> Error {
    session.query(sql).and_then(all).expect_err("it works")
}

/// The code of an error that a program can act on: it has a way out.
pub(crate) fn code(error: &Error) -> &'static str {
    let hint = error.hint_text().unwrap_or_else(|| panic!("no hint: {error}"));
    assert!(hint.starts_with(char::is_uppercase) && hint.ends_with('.'), "{hint}");
    assert_ne!(error.code(), "X001", "{error}");
    error.code()
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future in this thread: an executor without anything.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
