//! What comes out of an exchange is what went in, in order, whenever it goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};

use super::super::channel::{Received, Receiver, Signal, channel};
use super::super::stepped::Schedule;
use super::*;
use crate::stream::{Clock, LatencyMarker, StreamStatus, VirtualClock, Watermark};

const TIMEOUT: Duration = Duration::from_millis(100);

/// Keys and numbers; the running watermark is the number of the first row.
fn batch(first: i64, rows: i64, kinds: Option<Vec<RowKind>>) -> StreamBatch {
    let schema = Schema::new(vec![
        Field::new("key", DataType::Int64, true),
        Field::new("number", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
    ]);
    let numbers = first..first + rows;
    let text = |number: i64| (number % 5 != 0).then(|| "x".repeat(number as usize % 20));
    let columns = RecordBatch::try_new(
        Arc::new(schema),
        vec![
            Arc::new(Int64Array::from_iter_values(numbers.clone().map(|number| number / 2 % 13))),
            Arc::new(Int64Array::from_iter_values(numbers.clone())),
            Arc::new(StringArray::from_iter(numbers.clone().map(text))),
        ],
    )
    .unwrap();
    StreamBatch {
        rows: columns,
        kinds: kinds.map(RowKinds::new),
        running: Some(RunningWatermark::new(numbers.collect::<Vec<_>>())),
        arrived: Instant::now(),
    }
}

struct Exchange {
    outputs: Outputs,
    receivers: Vec<Receiver>,
    clock: Arc<VirtualClock>,
}

impl Exchange {
    /// One task gives to `targets`; `full`: rows that are enough.
    fn new(targets: usize, full: usize, is_patient: bool) -> Self {
        let signal = Arc::new(Signal::default());
        let (senders, receivers) = (0..targets).map(|_| channel(1_000_000, &signal, &signal)).unzip();
        // Four full batches are enough, however few receivers there are.
        let (batch_rows, clock) = (full.div_ceil(4), Arc::new(VirtualClock::new(0)));
        let pace =
            Pace::new((1, targets), batch_rows, TIMEOUT, Arc::clone(&clock) as Arc<dyn Clock>, is_patient);
        Self { outputs: Outputs::hash(senders, vec![0], pace, 7), receivers, clock }
    }

    fn rows(&mut self, first: i64, rows: i64) {
        self.outputs.send(StreamElement::Batch(batch(first, rows, None))).unwrap();
    }

    fn watermark(&mut self, watermark: i64) {
        self.outputs.send(StreamElement::Watermark(Watermark(watermark))).unwrap();
    }

    /// All that the receivers have, as text.
    fn taken(&self) -> Vec<Vec<String>> {
        let all = |receiver: &Receiver| {
            std::iter::from_fn(|| match receiver.receive() {
                Received::Element(element) => Some(element),
                Received::Empty | Received::Closed => None,
            })
            .map(|element| match element {
                StreamElement::Batch(batch) => {
                    let numbers = batch.rows.column(1).as_primitive::<Int64Type>().values();
                    numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")
                }
                StreamElement::Watermark(Watermark::MAX) => "MAX".to_owned(),
                StreamElement::Watermark(watermark) => format!("w{}", watermark.0),
                StreamElement::Status(status) => format!("{status:?}"),
                StreamElement::Latency(marker) => format!("m{}", marker.source),
                StreamElement::End => "end".to_owned(),
            })
            .collect()
        };
        self.receivers.iter().map(all).collect()
    }
}

/// What one target is given, row by row.
#[derive(Debug, Clone, PartialEq)]
enum Given {
    Row(i64, RowKind, i64, Option<String>),
    Watermark(i64),
    Marker(u32),
}

fn rows_of(batch: &StreamBatch) -> Vec<Given> {
    let numbers = batch.rows.column(1).as_primitive::<Int64Type>().values();
    let texts = batch.rows.column(2).as_string::<i32>();
    let row = |(row, number): (usize, &i64)| {
        let kind = batch.kinds.as_ref().map_or(RowKind::Insert, |kinds| kinds.values()[row]);
        let text = texts.iter().nth(row).flatten().map(str::to_owned);
        Given::Row(*number, kind, batch.running.as_ref().unwrap().values()[row], text)
    };
    numbers.iter().enumerate().map(row).collect()
}

fn given(receiver: &Receiver) -> Vec<Given> {
    let mut given = Vec::new();
    while let Received::Element(element) = receiver.receive() {
        match element {
            StreamElement::Batch(batch) => given.extend(rows_of(&batch)),
            StreamElement::Watermark(watermark) => given.push(Given::Watermark(watermark.0)),
            StreamElement::Latency(marker) => given.push(Given::Marker(marker.source)),
            StreamElement::Status(_) | StreamElement::End => {}
        }
    }
    given
}

/// Kinds of so many rows: pairs of updates, inserts and deletes.
fn some_kinds(dice: &mut Schedule, rows: i64) -> Option<Vec<RowKind>> {
    if dice.draw(2, 0) == 0 {
        return None;
    }
    let mut kinds = Vec::new();
    while kinds.len() < rows as usize {
        match dice.draw(3, 0) {
            0 => kinds.push(RowKind::Insert),
            1 => kinds.push(RowKind::Delete),
            _ => kinds.extend([RowKind::UpdateBefore, RowKind::UpdateAfter]),
        }
    }
    // The last pair may not fit.
    kinds.truncate(rows as usize);
    if kinds.last() == Some(&RowKind::UpdateBefore) {
        kinds.pop();
        kinds.push(RowKind::Delete);
    }
    Some(kinds)
}

/// Each target gets its rows, kinds, running watermarks and markers in the order of the input, and each watermark of it
/// behind the rows that came before it, whenever it goes on. The reference cuts each batch by itself.
#[test]
fn whenever_it_goes_on_each_target_is_given_the_same() {
    for seed in 1..200 {
        let dice = &mut Schedule::new(seed);
        let targets = 2 + dice.draw(4, 0);
        let mut exchange = Exchange::new(targets, 1 + dice.draw(40, 0), dice.draw(2, 0) == 0);
        // The same seed picks the same channels for markers.
        let mut apart = Exchange::new(targets, 1, false);
        let (mut next, mut last) = (0, i64::MIN);
        for number in 0..40 {
            let element = match dice.draw(8, 0) {
                0 => {
                    StreamElement::Latency(LatencyMarker { source: number, subtask: 0, made: Instant::now() })
                }
                1 | 2 => {
                    last = next;
                    StreamElement::Watermark(Watermark(next))
                }
                _ => {
                    let rows = dice.draw(12, 0) as i64;
                    next += rows;
                    StreamElement::Batch(batch(next - rows, rows, some_kinds(dice, rows)))
                }
            };
            exchange.outputs.send(element.clone()).unwrap();
            apart.outputs.send(element).unwrap();
            apart.outputs.hand_on().unwrap();
            if dice.draw(6, 0) == 0 {
                exchange.outputs.hand_on().unwrap();
            }
            assert!(!apart.outputs.hold_back());
        }
        exchange.outputs.hand_on().unwrap();
        for (one, other) in exchange.receivers.iter().zip(&apart.receivers) {
            let (one, other) = (given(one), given(other));
            let is_no_watermark = |given: &&Given| !matches!(given, Given::Watermark(_));
            let (mine, theirs): (Vec<_>, Vec<_>) = (
                one.iter().filter(is_no_watermark).collect(),
                other.iter().filter(is_no_watermark).collect(),
            );
            assert_eq!(mine, theirs, "seed {seed}");
            for (place, watermark) in one.iter().enumerate() {
                let Given::Watermark(watermark) = watermark else { continue };
                let is_later = |given: &Given| matches!(given, Given::Row(number, ..) if number < watermark);
                assert!(!one[place..].iter().any(is_later), "seed {seed}: w{watermark} is ahead of its rows");
            }
            let told: Vec<i64> = one.iter().filter_map(watermark_of).collect();
            assert!(told.is_sorted_by(|one, other| one <= other), "seed {seed}: {told:?}");
            assert_eq!(told.last().copied().unwrap_or(i64::MIN), last, "seed {seed}");
        }
    }
}

fn watermark_of(given: &Given) -> Option<i64> {
    match given {
        Given::Watermark(watermark) => Some(*watermark),
        Given::Row(..) | Given::Marker(_) => None,
    }
}

#[test]
fn rows_wait_until_they_are_enough_and_take_the_last_watermark_along() {
    let mut exchange = Exchange::new(2, 8, true);
    exchange.rows(0, 4);
    exchange.watermark(1);
    exchange.rows(4, 3);
    exchange.watermark(2);
    assert_eq!(exchange.taken(), [[""; 0]; 2]);
    exchange.rows(7, 1);
    // It is enough; the watermark behind these rows is about to come.
    assert!(exchange.outputs.hold_back());
    exchange.watermark(3);
    assert!(!exchange.outputs.hold_back());
    let taken = exchange.taken();
    let mut rows = Vec::new();
    for taken in &taken {
        let (last, before) = taken.split_last().unwrap();
        assert_eq!(last, "w3");
        rows.extend(before.iter().flat_map(|rows| rows.split(' ')));
    }
    rows.sort_unstable();
    assert_eq!(rows, ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

#[test]
fn rows_without_event_time_go_on_at_once_where_they_are_enough() {
    let mut exchange = Exchange::new(2, 8, true);
    let rows = StreamBatch { running: None, ..batch(0, 8, None) };
    exchange.outputs.send(StreamElement::Batch(rows)).unwrap();
    assert!(!exchange.outputs.hold_back());
    assert_eq!(exchange.taken().concat().len(), 2);
}

#[test]
fn watermarks_without_rows_become_one() {
    let mut exchange = Exchange::new(8, 8, true);
    for watermark in 1..=5 {
        exchange.watermark(watermark);
        assert!(exchange.outputs.hold_back());
    }
    // Four, and one for each four targets.
    exchange.watermark(6);
    assert_eq!(exchange.taken(), [["w6"]; 8]);
}

#[test]
fn an_input_that_ends_waits_for_the_timeout_and_one_that_does_not_for_nothing() {
    for is_patient in [true, false] {
        let mut exchange = Exchange::new(2, 8, is_patient);
        exchange.clock.advance(Duration::from_secs(1));
        exchange.rows(0, 1);
        exchange.watermark(1);
        assert_eq!(exchange.outputs.due_us(), Some(1_100_000));
        exchange.clock.advance(Duration::from_millis(99));
        exchange.outputs.hand_on_due(false).unwrap();
        assert!(exchange.outputs.hold_back());
        exchange.outputs.hand_on_due(true).unwrap();
        assert_eq!(exchange.outputs.hold_back(), is_patient);
        exchange.clock.advance(Duration::from_millis(1));
        exchange.outputs.hand_on_due(false).unwrap();
        assert!(!exchange.outputs.hold_back() && exchange.outputs.due_us().is_none());
    }
}

#[test]
fn what_is_enough_does_not_wait_for_a_watermark_that_does_not_come() {
    let mut exchange = Exchange::new(2, 8, true);
    exchange.rows(0, 8);
    assert!(exchange.outputs.hold_back());
    exchange.outputs.hand_on_due(true).unwrap();
    assert!(!exchange.outputs.hold_back());
    exchange.rows(8, 8);
    exchange.rows(16, 1);
    let rows: usize = exchange.taken().concat().iter().map(|rows| rows.split(' ').count()).sum();
    assert_eq!(rows, 16);
}

/// As those of grouping sets do.
#[test]
fn rows_that_come_again_stand_in_a_batch_of_their_own() {
    let mut exchange = Exchange::new(2, 1_600, true);
    for _ in 0..3 {
        exchange.rows(0, 10);
        exchange.rows(10, 10);
    }
    exchange.outputs.hand_on().unwrap();
    for taken in exchange.taken() {
        assert!(taken.len() == 3 && taken.iter().all(|rows| *rows == taken[0]), "{taken:?}");
    }
}

/// One target is given the batches as they are.
#[test]
fn batches_for_one_are_not_brought_together() {
    let signal = Arc::new(Signal::default());
    let (sender, receiver) = channel(1_000_000, &signal, &signal);
    let clock = Arc::new(VirtualClock::new(0));
    let pace = Pace::new((8, 1), 100, TIMEOUT, Arc::clone(&clock) as Arc<dyn Clock>, true);
    let mut exchange = Exchange { outputs: Outputs::one_of(sender, pace), receivers: vec![receiver], clock };
    exchange.rows(0, 2);
    exchange.watermark(1);
    exchange.rows(2, 2);
    exchange.watermark(2);
    assert_eq!(exchange.taken(), [[""; 0]]);
    exchange.outputs.hand_on().unwrap();
    assert_eq!(exchange.taken(), [["0 1", "2 3", "w2"]]);
}

/// Where the pieces of each batch are large, only wake-ups are spared.
#[test]
fn large_batches_are_cut_one_by_one() {
    let mut exchange = Exchange::new(2, 400, true);
    for first in [0, 100, 200] {
        exchange.rows(first, 100);
    }
    exchange.watermark(1);
    assert!(exchange.outputs.hold_back());
    exchange.outputs.hand_on().unwrap();
    for taken in exchange.taken() {
        assert!(taken.len() == 4 && taken[3] == "w1", "{taken:?}");
    }
}

#[test]
fn a_status_and_the_end_come_behind_all_that_was_before_them() {
    let mut exchange = Exchange::new(2, 100, true);
    exchange.watermark(1);
    exchange.outputs.send(StreamElement::Status(StreamStatus::Idle)).unwrap();
    exchange.outputs.send(StreamElement::Status(StreamStatus::Active)).unwrap();
    exchange.watermark(2);
    exchange.watermark(i64::MAX);
    exchange.outputs.send(StreamElement::End).unwrap();
    assert_eq!(exchange.taken(), [["w1", "Idle", "Active", "MAX", "end"]; 2]);
}

/// Rows that waited here have waited to be taken.
#[test]
fn receivers_see_since_when_the_first_rows_wait() {
    let mut exchange = Exchange::new(2, 100, true);
    let before = Instant::now();
    exchange.rows(0, 30);
    let after = Instant::now();
    exchange.rows(30, 30);
    exchange.outputs.hand_on().unwrap();
    for receiver in &exchange.receivers {
        let (_, since) = receiver.receive_since();
        assert!(since.is_some_and(|since| (before..=after).contains(&since)));
    }
}

#[test]
fn rows_of_several_batches_have_the_oldest_stamp_of_them() {
    let mut exchange = Exchange::new(2, 1_600, true);
    let older = batch(30, 30, None);
    let newer = StreamBatch { arrived: older.arrived + Duration::from_secs(1), ..batch(0, 30, None) };
    let oldest = older.arrived;
    exchange.outputs.send(StreamElement::Batch(newer)).unwrap();
    exchange.outputs.send(StreamElement::Batch(older)).unwrap();
    exchange.outputs.hand_on().unwrap();
    for receiver in &exchange.receivers {
        let Received::Element(StreamElement::Batch(batch)) = receiver.receive() else { panic!("no rows") };
        assert_eq!(batch.arrived, oldest);
    }
}

#[test]
fn halves_of_an_update_that_part_delete_and_insert() {
    use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};
    let kinds = [Insert, UpdateBefore, UpdateAfter, UpdateBefore, UpdateAfter, Delete];
    let kinds_of = |rows: &[usize]| kinds_of(rows, |row| kinds[row], |row| row + 1);
    assert_eq!(kinds_of(&[0, 1, 2, 3, 5]), [Insert, UpdateBefore, UpdateAfter, Delete, Delete]);
    assert_eq!(kinds_of(&[4]), [Insert]);
    assert_eq!(kinds_of(&[2, 3, 4]), [Insert, UpdateBefore, UpdateAfter]);
}
