//! The log of a stream and its readers.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array};
use arrow::record_batch::RecordBatch;

use super::hub::{Event, Given, Hub, ReaderHandle, Taken};
use super::*;

fn batch(values: &[i64]) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    RecordBatch::try_from_iter([("v", column)]).unwrap()
}

fn hub(capacity_rows: usize) -> Arc<Hub> {
    let table = StreamTable::new("s", batch(&[]).schema()).event_time("v").capacity_rows(capacity_rows);
    Arc::new(Hub::new(table))
}

fn give(hub: &Hub, values: &[i64]) -> Taken {
    hub.try_give(0, &Event::Rows(batch(values))).unwrap()
}

/// What a reader is given now, in short.
fn taken(reader: &ReaderHandle) -> Vec<String> {
    let mut seen = Vec::new();
    for event in reader.told(0) {
        seen.push(format!("told {}", word(&event)));
    }
    while let Given::Event(event) = reader.next(0, Duration::ZERO) {
        seen.push(word(&event));
        if matches!(event, Event::End) {
            break;
        }
    }
    seen
}

fn word(event: &Event) -> String {
    match event {
        Event::Rows(rows) => format!("{} rows", rows.num_rows()),
        Event::Watermark(watermark) => format!("watermark {}", watermark.0),
        Event::Idle => "idle".to_owned(),
        Event::Active => "active".to_owned(),
        Event::End => "end".to_owned(),
        Event::Fail(_) => "failure".to_owned(),
    }
}

#[test]
fn the_first_reader_gets_what_waits_and_others_what_comes() {
    let hub = hub(100);
    give(&hub, &[1]);
    hub.try_give(0, &Event::Watermark(Watermark(7))).unwrap();
    let first = hub.open(&CancelToken::default()).unwrap();
    let second = hub.open(&CancelToken::default()).unwrap();
    give(&hub, &[2, 3]);
    assert_eq!(taken(&first), ["1 rows", "watermark 7", "2 rows"]);
    // What was said of time is true for everybody.
    assert_eq!(taken(&second), ["told watermark 7", "2 rows"]);
    hub.try_give(0, &Event::Idle).unwrap();
    assert_eq!(taken(&first), ["idle"]);
    let third = hub.open(&CancelToken::default()).unwrap();
    hub.end(0, Event::End);
    assert_eq!(taken(&third), ["told watermark 7", "told idle", "end"]);
}

#[test]
fn readers_of_one_job_begin_at_one_place() {
    let hub = hub(100);
    let (job, other) = (CancelToken::default(), CancelToken::default());
    let elsewhere = hub.open(&other).unwrap();
    give(&hub, &[1]);
    let first = hub.open(&job).unwrap();
    give(&hub, &[2, 3]);
    let second = hub.open(&job).unwrap();
    give(&hub, &[4]);
    assert_eq!(taken(&second), ["2 rows", "1 rows"]);
    assert_eq!(taken(&first), ["2 rows", "1 rows"]);
    assert_eq!(taken(&elsewhere), ["1 rows", "2 rows", "1 rows"]);
}

#[test]
fn the_slowest_reader_makes_room() {
    let hub = hub(2);
    let slow = hub.open(&CancelToken::default()).unwrap();
    let fast = hub.open(&CancelToken::default()).unwrap();
    // A batch may go beyond the bound, the next one may not.
    assert_eq!(give(&hub, &[1]), Taken::Yes);
    assert_eq!(give(&hub, &[2, 3]), Taken::Yes);
    assert_eq!(give(&hub, &[4]), Taken::Full);
    assert_eq!(taken(&fast), ["1 rows", "2 rows"]);
    assert_eq!(give(&hub, &[4]), Taken::Full);
    drop(slow);
    assert_eq!((give(&hub, &[4]), hub.rows_waiting(0)), (Taken::Yes, 1));
}

#[test]
fn the_reader_of_a_job_that_is_over_takes_nothing() {
    let hub = hub(2);
    let job = CancelToken::default();
    let stopped = hub.open(&job).unwrap();
    job.cancel();
    give(&hub, &[1]);
    assert!(taken(&stopped).is_empty());
    // It does not hold up anybody either, and is no reader for whom to keep rows.
    let next = hub.open(&CancelToken::default()).unwrap();
    assert_eq!(taken(&next), ["1 rows"]);
    assert_eq!((give(&hub, &[2, 3]), hub.rows_waiting(0)), (Taken::Yes, 2));
}

#[test]
fn what_says_nothing_new_is_not_kept() {
    let hub = hub(2);
    let reader = hub.open(&CancelToken::default()).unwrap();
    for event in [
        Event::Active,
        Event::Idle,
        Event::Idle,
        Event::Watermark(Watermark(1)),
        Event::Watermark(Watermark(1)),
        Event::Active,
    ] {
        hub.try_give(0, &event).unwrap();
    }
    // Who speaks of time is not idle.
    assert_eq!(taken(&reader), ["idle", "active", "watermark 1"]);
    hub.try_give(0, &Event::Idle).unwrap();
    give(&hub, &[1]);
    hub.try_give(0, &Event::Idle).unwrap();
    assert_eq!(taken(&reader), ["idle", "1 rows", "idle"]);
}
