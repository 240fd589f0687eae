//! The rows of queries: waiting for them, being woken for them, and what they do to the result.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use tidegate::connector::StreamTable;
use tidegate::session::{JobState, QueryHandle};
use tidegate::stream::RowKind;
use tidegate::{Error, Session};

use super::{all, batch, block_on, code, failure, lines, schema, session_with, table};

/// The next batch of a stream.
async fn next(query: &mut QueryHandle) -> Option<Result<Vec<String>, Error>> {
    let next = std::future::poll_fn(|cx| Pin::new(&mut *query).poll_next(cx)).await;
    next.map(|batch| batch.map(|batch| lines(&batch)))
}

#[test]
fn a_query_is_a_stream_for_any_executor() {
    let (mut session, input) = session_with(&table());
    let mut query = session.query("SELECT v FROM s").unwrap();
    let mut nobody = Context::from_waker(Waker::noop());
    assert!(matches!(Pin::new(&mut query).poll_next(&mut nobody), Poll::Pending));
    let feeder = std::thread::spawn(move || {
        for value in 0..1_000 {
            input.push(&batch(&[(0, "a", value)])).unwrap();
        }
    });
    let mut rows = Vec::new();
    block_on(async {
        while let Some(batch) = next(&mut query).await {
            rows.extend(batch.unwrap());
        }
        assert!(next(&mut query).await.is_none());
    });
    assert_eq!(rows, (0..1_000).map(|value| value.to_string()).collect::<Vec<_>>());
    feeder.join().unwrap();
}

#[test]
fn a_stream_ends_with_its_failure() {
    let mut session = Session::new();
    let sql = "SELECT 1 / v FROM (VALUES (1), (0)) AS t (v)";
    let mut query = session.query(sql).unwrap();
    let error = block_on(async {
        loop {
            match next(&mut query).await {
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    assert!(next(&mut query).await.is_none());
                    return error;
                }
                None => panic!("it has not failed"),
            }
        }
    });
    assert_eq!(error.code(), "R002");
    assert!(error.message().ends_with("division by zero"), "{error}");
    let mut rows = session.query(sql).unwrap().into_iter().skip_while(Result::is_ok);
    assert_eq!(rows.next().unwrap().unwrap_err().code(), "R002");
    assert!(rows.next().is_none());
}

#[test]
fn changes_are_not_taken_for_rows() {
    let (mut session, input) = session_with(&StreamTable::new("s", schema()));
    let sql = "SELECT k, SUM(v) AS total FROM s GROUP BY k EMIT CHANGES";
    input.push(&batch(&[(0, "a", 1), (0, "b", 5), (0, "a", 2)])).unwrap();
    input.end();
    let mut query = session.query(sql).unwrap();
    assert!(query.is_updating());
    let mut changes = Vec::new();
    while let Some(batch) = query.next_batch().unwrap() {
        let kinds = batch.kinds.as_ref().map(|kinds| kinds.values().to_vec());
        let kinds = kinds.unwrap_or_else(|| vec![RowKind::Insert; batch.num_rows()]);
        changes.extend(kinds.iter().map(|kind| kind.symbol()).zip(lines(&batch.rows)));
    }
    let of_key = |key: &str| {
        let is_of_key = |change: &&(&str, String)| change.1.starts_with(key);
        changes.iter().filter(is_of_key).map(|(kind, row)| format!("{kind}{row}")).collect::<Vec<_>>()
    };
    assert_eq!(of_key("a"), ["+Ia|1", "-Ua|1", "+Ua|3"]);
    assert_eq!(of_key("b"), ["+Ib|5"]);

    // Without the kinds they would be three rows of "a".
    let (mut session, input) = session_with(&StreamTable::new("s", schema()));
    input.push(&batch(&[(0, "a", 1)])).unwrap();
    input.end();
    let error = failure(&mut session, sql);
    assert_eq!(code(&error), "P008");
    let mut query = session.query(sql).unwrap();
    drop(input);
    assert!(block_on(query.next_batch_async()).unwrap().is_none());
}

#[test]
fn a_handle_that_is_dropped_stops_its_query() {
    let (mut session, input) = session_with(&table());
    let query = session.query("SELECT v FROM s").unwrap();
    let job = query.job().clone();
    input.push(&batch(&[(0, "a", 1)])).unwrap();
    assert!(!job.state().is_over());
    let mut rows = query.into_iter();
    assert_eq!(lines(&rows.next().unwrap().unwrap()), ["1"]);
    drop(rows);
    assert_eq!(job.state(), JobState::Stopped);
    assert_eq!(job.wait().unwrap_err().code(), "R000");
    // The stream is there for the next one, with what comes then.
    input.push(&batch(&[(0, "a", 2)])).unwrap();
    input.end();
    assert_eq!(all(session.query("SELECT v FROM s").unwrap()).unwrap(), ["2"]);
}

#[test]
fn handles_can_go_to_other_threads() {
    fn is_send<T: Send>() {}
    is_send::<QueryHandle>();
    is_send::<tidegate::session::QueryRows>();
    is_send::<Session>();
    is_send::<tidegate::connector::StreamInput>();
    fn is_sync<T: Sync>() {}
    is_sync::<tidegate::connector::StreamInput>();
}
