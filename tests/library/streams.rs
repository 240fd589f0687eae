//! Tables that the program feeds.

use std::sync::Arc;
use std::task::Poll;

use arrow::array::{ArrayRef, DictionaryArray, RecordBatch, StringViewArray, TimestampSecondArray};
use arrow::datatypes::{Int8Type, Schema};
use futures_core::Stream;
use tidegate::connector::{StreamEvent, StreamTable};
use tidegate::stream::Watermark;
use tidegate::{Error, Session};

use super::{all, batch, block_on, code, failure, lines, rows, schema, session_with, sorted, table};

/// The second row of key `a` comes when its window is over: 8 s less 2 s are past the end of the first.
const ROWS: [(i64, &str, i64); 6] =
    [(1_000, "a", 1), (4_000, "b", 2), (8_000, "a", 3), (3_000, "a", 10), (7_000, "b", 4), (12_000, "a", 5)];
const WINDOWS: &str = "SELECT window_start, k, SUM(v) AS total
    FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND))
    GROUP BY window_start, window_end, k LATE ROWS INTO late";
const RESULT: [&str; 5] = [
    "1970-01-01T00:00:00|a|1",
    "1970-01-01T00:00:00|b|2",
    "1970-01-01T00:00:05|a|3",
    "1970-01-01T00:00:05|b|4",
    "1970-01-01T00:00:10|a|5",
];

#[test]
fn windows_and_late_rows_do_not_depend_on_the_cut() {
    for pushed_rows in 1..=ROWS.len() {
        for (batch_rows, parallelism) in [("1", "1"), ("2", "2"), ("8192", "1")] {
            let (mut session, input) = session_with(&table().capacity_rows(2));
            session.set("execution.batch-rows", batch_rows).unwrap();
            session.set("execution.parallelism", parallelism).unwrap();
            let query = session.query(WINDOWS).unwrap();
            let feeder = std::thread::spawn(move || {
                ROWS.chunks(pushed_rows).for_each(|rows| input.push(&batch(rows)).unwrap());
            });
            let what = format!("{pushed_rows} pushed, {batch_rows} read at once");
            assert_eq!(sorted(all(query).unwrap()), RESULT, "{what}");
            feeder.join().unwrap();
            // The late rows are there as soon as the rows are at their end.
            assert_eq!(rows(&mut session, "SELECT k, v, late_reason FROM late"), ["a|10|late"], "{what}");
        }
    }
}

#[test]
fn rows_that_were_pushed_before_the_query_wait_for_it() {
    let (mut session, input) = session_with(&table());
    input.push(&batch(&ROWS[..2])).unwrap();
    assert_eq!(input.rows_waiting(), 2);
    input.push(&batch(&ROWS[2..])).unwrap();
    input.end();
    assert_eq!(sorted(rows(&mut session, WINDOWS)), RESULT);
    assert_eq!(input.rows_waiting(), 0);
}

#[test]
fn event_time_goes_by_what_the_program_says() {
    let (mut session, input) = session_with(&StreamTable::new("s", schema()).event_time("ts"));
    let mut query = session.query(WINDOWS).unwrap();
    input.push(&batch(&[(1_000, "a", 1), (60_000, "a", 9), (2_000, "a", 2)])).unwrap();
    // A window closes when the watermark is at its end less one unit.
    input.advance(Watermark(4_998_999)).unwrap();
    input.push(&batch(&[(4_000, "a", 3)])).unwrap();
    input.advance(Watermark(4_999_000)).unwrap();
    let first = query.next_batch().unwrap().unwrap();
    assert_eq!(lines(&first.rows), ["1970-01-01T00:00:00|a|6"]);
    // The same again says nothing; a row behind it is late.
    input.advance(Watermark(4_999_000)).unwrap();
    input.push(&batch(&[(4_999, "a", 100), (5_000, "a", 4)])).unwrap();
    drop(input);
    assert_eq!(all(query).unwrap(), ["1970-01-01T00:00:05|a|4", "1970-01-01T00:01:00|a|9"]);
    assert_eq!(rows(&mut session, "SELECT v FROM late"), ["100"]);
}

#[test]
fn time_waits_for_a_split_until_that_is_idle() {
    let (mut session, a) = session_with(&table());
    let b = a.split("b").unwrap();
    let mut query = session.query(WINDOWS).unwrap();
    a.push(&batch(&[(1_000, "a", 1), (8_000, "a", 2)])).unwrap();
    // Of `b` nothing is known yet: its row is in time, though `a` is far ahead.
    b.push(&batch(&[(500, "b", 3)])).unwrap();
    b.idle().unwrap();
    b.idle().unwrap();
    let mut first = Vec::new();
    while first.len() < 2 {
        first.extend(lines(&query.next_batch().unwrap().unwrap().rows));
    }
    assert_eq!(sorted(first), [RESULT[0], "1970-01-01T00:00:00|b|3"]);
    // It comes back behind the others.
    b.push(&batch(&[(4_999, "b", 4), (5_000, "b", 5)])).unwrap();
    b.end();
    a.end();
    assert_eq!(sorted(all(query).unwrap()), ["1970-01-01T00:00:05|a|2", "1970-01-01T00:00:05|b|5"]);
    assert_eq!(rows(&mut session, "SELECT k, v FROM late"), ["b|4"]);
}

#[test]
fn the_pusher_sees_back_pressure() {
    let (mut session, input) = session_with(&StreamTable::new("s", schema()).capacity_rows(1_000));
    let query = session.query("SELECT v FROM s").unwrap();
    let thousand = batch(&vec![(0, "a", 1); 1_000]);
    let mut pushed = 0;
    // Nobody takes the rows of the query: what is between holds some batches, and then no more.
    while input.try_push(&thousand).unwrap() {
        pushed += thousand.num_rows();
        assert!(pushed < 1_000_000, "no bound");
    }
    let feeder = std::thread::spawn(move || (0..100).for_each(|_| input.push(&thousand).unwrap()));
    assert_eq!(all(query).unwrap().len(), pushed + 100_000);
    feeder.join().unwrap();
}

#[test]
fn one_thread_can_push_and_take_without_waiting_for_itself() {
    let (mut session, input) = session_with(&StreamTable::new("s", schema()).capacity_rows(100));
    let mut query = session.query("SELECT v FROM s").unwrap();
    let hundred = batch(&vec![(0, "a", 1); 100]);
    let (mut left, mut taken) = (2_000, 0);
    block_on(async {
        let mut pushing = None;
        let mut input = Some(input);
        std::future::poll_fn(|cx| {
            loop {
                if let Some(open) = input.as_ref().filter(|_| pushing.is_none()) {
                    match left {
                        0 => input = None,
                        _ => pushing = Some(Box::pin(open.push_async(&hundred))),
                    }
                }
                let pushed = pushing.as_mut().map(|push| push.as_mut().poll(cx));
                if let Some(Poll::Ready(done)) = pushed {
                    done.unwrap();
                    left -= 1;
                    pushing = None;
                    continue;
                }
                match std::pin::Pin::new(&mut query).poll_next(cx) {
                    Poll::Ready(Some(batch)) => taken += batch.unwrap().num_rows(),
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    });
    assert_eq!((left, taken), (0, 200_000));
}

#[test]
fn all_queries_that_run_see_all_rows() {
    let (mut session, input) = session_with(&table().capacity_rows(1));
    let (first, second) = (session.query(WINDOWS).unwrap(), session.query("SELECT v FROM s").unwrap());
    let feeder = std::thread::spawn(move || ROWS.iter().for_each(|row| input.push(&batch(&[*row])).unwrap()));
    let values = std::thread::spawn(move || all(second).unwrap());
    assert_eq!(sorted(all(first).unwrap()), RESULT);
    assert_eq!(values.join().unwrap(), ["1", "2", "3", "10", "4", "5"]);
    feeder.join().unwrap();
}

#[test]
fn a_query_that_reads_a_stream_twice_sees_it_whole_twice() {
    for _ in 0..20 {
        let (mut session, input) = session_with(&StreamTable::new("s", schema()).bounded());
        // Rows come before, while and after the query starts.
        let feeder = std::thread::spawn(move || {
            (0..50).for_each(|value| input.push(&batch(&[(0, "a", value)])).unwrap());
        });
        let sql = "SELECT COUNT(*) FROM s AS a JOIN s AS b ON a.v = b.v";
        assert_eq!(rows(&mut session, sql), ["50"]);
        feeder.join().unwrap();
    }
}

#[test]
fn types_that_sql_has_no_name_for_are_converted() {
    let text: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None]));
    let dictionary: ArrayRef = Arc::new(DictionaryArray::<Int8Type>::from_iter(["x", "y"]));
    let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![1, -1]));
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("text", text, true),
        ("word", dictionary, true),
        ("ts", seconds, false),
    ])
    .unwrap();
    let (mut session, input) = session_with(&StreamTable::new("s", batch.schema()));
    input.push(&batch).unwrap();
    input.end();
    let sql = "SELECT text || 'b', UPPER(word), ts + INTERVAL '0.5' SECOND FROM s";
    assert_eq!(rows(&mut session, sql), ["ab|X|1970-01-01T00:00:01.500", "NULL|Y|1969-12-31T23:59:59.500"]);
}

#[test]
fn columns_are_found_by_their_names() {
    let (mut session, input) = session_with(&StreamTable::new("s", schema()));
    let given = batch(&[(1_000, "a", 1)]);
    let order = [2, 1, 0];
    let fields: Vec<_> = order.iter().map(|place| given.schema().field(*place).clone()).collect();
    let columns = order.iter().map(|place| Arc::clone(given.column(*place))).collect();
    input.push(&RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()).unwrap();
    input.push(&given).unwrap();
    input.end();
    let one = "1970-01-01T00:00:01|a|1";
    assert_eq!(rows(&mut session, "SELECT * FROM s"), [one, one]);
}

#[test]
fn a_computed_column_can_be_the_event_time() {
    let table = StreamTable::new("s", schema())
        .computed("at", "ts + INTERVAL '1' HOUR -- an hour\n")
        .watermark("at", "at - INTERVAL '2' SECOND -- two");
    let (mut session, input) = session_with(&table);
    input.push(&batch(&ROWS)).unwrap();
    input.end();
    let windows = WINDOWS.replace("DESCRIPTOR(ts)", "DESCRIPTOR(at)");
    let shifted: Vec<_> = RESULT.iter().map(|row| row.replace("T00:", "T01:")).collect();
    assert_eq!(sorted(rows(&mut session, &windows)), shifted);
}

#[test]
fn an_iterator_is_read_as_fast_as_its_rows_are_taken() {
    let taken = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let endless = std::iter::repeat_with(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok::<_, Error>(batch(&vec![(0, "a", 1); 1_000]))
    });
    let mut session = Session::new();
    session.register_iter(&StreamTable::new("s", schema()).capacity_rows(1_000), endless).unwrap();
    // Nobody reads it yet.
    assert_eq!(taken.load(std::sync::atomic::Ordering::Relaxed), 0);
    assert_eq!(rows(&mut session, "SELECT v FROM s LIMIT 3"), ["1", "1", "1"]);
    assert!(taken.load(std::sync::atomic::Ordering::Relaxed) < 1_000);
}

#[test]
fn an_iterator_can_say_how_far_time_is() {
    let events = [
        StreamEvent::from(batch(&ROWS[..3])),
        StreamEvent::Idle,
        StreamEvent::Active,
        StreamEvent::from(Watermark(9_999_000)),
        StreamEvent::from(batch(&[(9_000, "a", 7), (10_000, "a", 8)])),
    ];
    let mut session = Session::new();
    let table = StreamTable::new("s", schema()).event_time("ts");
    session.register_iter(&table, events.into_iter().map(Ok::<_, Error>)).unwrap();
    let expected = [RESULT[0], RESULT[1], RESULT[2], "1970-01-01T00:00:10|a|8"];
    assert_eq!(sorted(rows(&mut session, WINDOWS)), expected);
}

/// Gives its items one by one, each after it was woken from another thread.
struct Late<T>(std::vec::IntoIter<T>, bool);

impl<T: Unpin> Stream for Late<T> {
    type Item = Result<T, String>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        self.1 = !self.1;
        if self.1 {
            let waker = cx.waker().clone();
            std::thread::spawn(move || waker.wake());
            return Poll::Pending;
        }
        Poll::Ready(self.0.next().map(Ok))
    }
}

#[test]
fn an_asynchronous_stream_is_read_without_a_runtime() {
    let batches: Vec<_> = ROWS.iter().map(|row| batch(&[*row])).collect();
    let mut session = Session::new();
    session.register_async(&table(), Late(batches.into_iter(), false)).unwrap();
    assert_eq!(sorted(rows(&mut session, WINDOWS)), RESULT);
}

#[test]
fn what_feeds_a_table_can_fail() {
    let mut session = Session::new();
    let plain = |name: &str| StreamTable::new(name, schema());
    let items = [Ok(batch(&ROWS)), Err("the line is cut".to_owned())];
    session.register_iter(&plain("broken"), items).unwrap();
    let error = failure(&mut session, "SELECT v FROM broken");
    assert_eq!(code(&error), "R011");
    assert!(error.message().contains("the line is cut"), "{error}");

    let panics = std::iter::repeat_with(|| -> Result<RecordBatch, Error> { panic!("out of paper") });
    session.register_iter(&plain("panics"), panics).unwrap();
    let error = failure(&mut session, "SELECT v FROM panics");
    assert!(error.message().contains("out of paper"), "{error}");
    assert_eq!(code(&error), "R011");

    let other = RecordBatch::try_from_iter([("v", batch(&ROWS).column(2).clone())]).unwrap();
    session.register_iter(&plain("other"), [Ok::<_, Error>(other)]).unwrap();
    assert_eq!(code(&failure(&mut session, "SELECT v FROM other")), "F002");

    let back = [Watermark(2), Watermark(1)].map(Ok::<_, Error>);
    session.register_iter(&plain("back").event_time("ts"), back).unwrap();
    assert_eq!(code(&failure(&mut session, "SELECT v FROM back")), "R011");

    let input = session.register_stream(&plain("pushed")).unwrap();
    input.fail("no more ink");
    let error = failure(&mut session, "SELECT v FROM pushed");
    assert!(error.message().contains("no more ink"), "{error}");
}
