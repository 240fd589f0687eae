use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use proptest::prelude::*;

use super::*;

/// Inputs whose elements are known, and that have nothing to give at some polls.
struct Scripted {
    elements: Vec<VecDeque<StreamElement>>,
    /// Whether a poll finds nothing, poll by poll; then always something.
    silence: VecDeque<bool>,
    /// More inputs, each of which comes with a refresh.
    more: VecDeque<VecDeque<StreamElement>>,
}

impl Inputs for Scripted {
    fn len(&self) -> usize {
        self.elements.len()
    }

    fn refresh(&mut self) -> Result<(), Error> {
        self.elements.extend(self.more.pop_front());
        Ok(())
    }

    fn may_grow(&self) -> bool {
        !self.more.is_empty()
    }

    fn poll(&mut self, input: usize) -> Result<Polled, Error> {
        if self.silence.pop_front() == Some(true) {
            return Ok(Polled::Pending);
        }
        Ok(self.elements[input].pop_front().map_or(Polled::Pending, Polled::Element))
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]))
}

/// A split as a source gives it: (value, watermark that the row asks for), cut into batches.
fn split(rows: &[(i64, i64)], cuts: &[usize]) -> VecDeque<StreamElement> {
    let mut elements = VecDeque::new();
    let mut watermark = i64::MIN;
    let mut start = 0;
    let mut cuts = cuts.iter().cycle();
    while start < rows.len() {
        let length = (*cuts.next().unwrap()).min(rows.len() - start);
        let part = &rows[start..start + length];
        let mut before = Vec::new();
        for (_, wanted) in part {
            before.push(watermark);
            watermark = watermark.max(*wanted);
        }
        let column = Arc::new(Int64Array::from_iter_values(part.iter().map(|(value, _)| *value)));
        let batch = RecordBatch::try_new(schema(), vec![column]).unwrap();
        elements.push_back(StreamElement::Batch(StreamBatch {
            running: Some(RunningWatermark::new(before)),
            ..StreamBatch::inserts(batch, Instant::now())
        }));
        elements.push_back(StreamElement::Watermark(Watermark(watermark)));
        start += length;
    }
    elements.push_back(StreamElement::End);
    elements
}

/// What must come out: always the row whose split is furthest behind, ties by split.
fn expected(splits: &[Vec<(i64, i64)>]) -> Vec<(i64, i64)> {
    let mut next = vec![0; splits.len()];
    let mut watermark = vec![i64::MIN; splits.len()];
    let mut out = Vec::new();
    loop {
        let open = (0..splits.len()).filter(|split| next[*split] < splits[*split].len());
        let Some(split) = open.min_by_key(|split| (watermark[*split], *split)) else { return out };
        let (value, wanted) = splits[split][next[split]];
        out.push((value, watermark[split]));
        watermark[split] = watermark[split].max(wanted);
        next[split] += 1;
    }
}

/// All rows with the watermark before them, and the watermarks that were given.
fn drain(mut merge: Merge<Scripted>) -> (Vec<(i64, i64)>, Vec<i64>) {
    let (mut rows, mut watermarks) = (Vec::new(), Vec::new());
    loop {
        match merge.next().unwrap() {
            Merged::Element(StreamElement::Batch(batch)) => {
                let values = batch.rows.column(0).as_primitive::<Int64Type>().values();
                let running = batch.running.unwrap();
                rows.extend(values.iter().copied().zip(running.values().iter().copied()));
            }
            Merged::Element(StreamElement::Watermark(watermark)) => {
                let running = rows.last().map_or(i64::MIN, |row| row.1);
                assert!(watermark.0 >= running, "the watermark fell behind a row");
                watermarks.push(watermark.0);
            }
            Merged::Second(_) => panic!("there is one stream"),
            Merged::Element(_) | Merged::Pending => {}
            Merged::Ended => return (rows, watermarks),
        }
    }
}

fn any_split() -> impl Strategy<Value = Vec<(i64, i64)>> {
    prop::collection::vec((0..1_000i64, 0..40i64), 0..30)
}

proptest! {
    #[test]
    fn order_and_watermarks_do_not_depend_on_cuts_or_speed(
        splits in prop::collection::vec(any_split(), 1..4),
        cuts in prop::collection::vec(1..7usize, 1..5),
        silence in prop::collection::vec(any::<bool>(), 0..60),
        batch_rows in 1..12usize,
    ) {
        let elements = splits.iter().map(|rows| split(rows, &cuts)).collect();
        let inputs = Scripted { elements, silence: silence.into(), more: VecDeque::new() };
        let merge = Merge::new(inputs, MergeOrder::Aligned, schema(), batch_rows);
        let (rows, watermarks) = drain(merge);
        prop_assert_eq!(rows, expected(&splits));
        prop_assert!(watermarks.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert_eq!(watermarks.last().copied(), Some(i64::MAX));
    }

    #[test]
    fn as_rows_arrive_no_row_is_ahead_of_the_slowest_input(
        splits in prop::collection::vec(any_split(), 2..4),
        cuts in prop::collection::vec(1..7usize, 1..5),
        silence in prop::collection::vec(any::<bool>(), 0..60),
    ) {
        let total: usize = splits.iter().map(Vec::len).sum();
        let elements = splits.iter().map(|rows| split(rows, &cuts)).collect();
        let inputs = Scripted { elements, silence: silence.into(), more: VecDeque::new() };
        let merge = Merge::new(inputs, MergeOrder::Arrival, schema(), 8);
        let (rows, watermarks) = drain(merge);
        prop_assert_eq!(rows.len(), total);
        prop_assert!(rows.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        prop_assert!(watermarks.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

#[test]
fn without_event_time_inputs_come_one_after_another() {
    let batch = |value: i64| {
        let column = Arc::new(Int64Array::from(vec![value]));
        let rows = RecordBatch::try_new(schema(), vec![column]).unwrap();
        StreamElement::Batch(StreamBatch::inserts(rows, Instant::now()))
    };
    let first = VecDeque::from([batch(1), batch(2), StreamElement::End]);
    let second = VecDeque::from([batch(3), StreamElement::End]);
    // The first input is silent at the first polls; the second must wait all the same.
    let inputs = Scripted {
        elements: vec![first, second],
        silence: VecDeque::from([true, false, true]),
        more: VecDeque::new(),
    };
    let mut merge = Merge::new(inputs, MergeOrder::Aligned, schema(), 1);
    let mut values = Vec::new();
    loop {
        match merge.next().unwrap() {
            Merged::Element(StreamElement::Batch(batch)) => {
                values.extend(batch.rows.column(0).as_primitive::<Int64Type>().values().iter().copied());
            }
            Merged::Second(_) => panic!("there is one stream"),
            Merged::Element(_) | Merged::Pending => {}
            Merged::Ended => break,
        }
    }
    assert_eq!(values, [1, 2, 3]);
}

#[test]
fn no_inputs_end_at_once() {
    let inputs = Scripted { elements: vec![], silence: VecDeque::new(), more: VecDeque::new() };
    let mut merge = Merge::new(inputs, MergeOrder::Aligned, schema(), 1);
    assert!(matches!(merge.next().unwrap(), Merged::Element(StreamElement::Watermark(Watermark::MAX))));
    assert!(matches!(merge.next().unwrap(), Merged::Element(StreamElement::End)));
    assert!(matches!(merge.next().unwrap(), Merged::Ended));
}

fn row(value: i64, before: i64) -> StreamElement {
    let column = Arc::new(Int64Array::from(vec![value]));
    let rows = RecordBatch::try_new(schema(), vec![column]).unwrap();
    let running = Some(RunningWatermark::new(vec![before]));
    StreamElement::Batch(StreamBatch { running, ..StreamBatch::inserts(rows, Instant::now()) })
}

fn watermark(time: i64) -> StreamElement {
    StreamElement::Watermark(Watermark(time))
}

const IDLE: StreamElement = StreamElement::Status(StreamStatus::Idle);
const ACTIVE: StreamElement = StreamElement::Status(StreamStatus::Active);

/// What comes out until there is nothing: `v@w` is row v with the watermark w before it.
fn told(merge: &mut Merge<Scripted>) -> Vec<String> {
    let mut out = Vec::new();
    while let Merged::Element(element) = merge.next().unwrap() {
        out.push(match element {
            StreamElement::Batch(batch) => {
                let value = batch.rows.column(0).as_primitive::<Int64Type>().value(0);
                match batch.running.unwrap().last().unwrap() {
                    Watermark::MIN => format!("{value}@"),
                    Watermark(before) => format!("{value}@{before}"),
                }
            }
            StreamElement::Watermark(Watermark::MAX) => "w max".to_owned(),
            StreamElement::Watermark(Watermark(time)) => format!("w {time}"),
            StreamElement::Status(status) => format!("{status:?}").to_lowercase(),
            StreamElement::Latency(_) => "marker".to_owned(),
            StreamElement::End => "end".to_owned(),
        });
    }
    out
}

fn arrival(elements: Vec<Vec<StreamElement>>) -> Merge<Scripted> {
    let elements = elements.into_iter().map(VecDeque::from).collect();
    let inputs = Scripted { elements, silence: VecDeque::new(), more: VecDeque::new() };
    Merge::new(inputs, MergeOrder::Arrival, schema(), 8)
}

#[test]
fn idle_inputs_are_left_out_and_wake_without_going_back() {
    // In turn: input 0, input 1, input 0, ….
    let first = vec![row(1, i64::MIN), watermark(10), row(2, 10), watermark(20)];
    let second = vec![IDLE];
    let mut merge = arrival(vec![first, second]);
    assert_eq!(told(&mut merge), ["1@", "w 10", "2@10", "w 20"]);
    // It wakes far behind: its row is judged by the time that was reached.
    merge.inputs.elements[1].extend([row(3, i64::MIN), watermark(5)]);
    assert_eq!(told(&mut merge), ["3@20"]);
    // And now it holds the others.
    merge.inputs.elements[0].extend([row(4, 20), watermark(30)]);
    assert_eq!(told(&mut merge), ["4@20"]);
    merge.inputs.elements[1].extend([watermark(25), StreamElement::End]);
    assert_eq!(told(&mut merge), ["w 25", "w 30"]);
    merge.inputs.elements[0].push_back(StreamElement::End);
    assert_eq!(told(&mut merge), ["w max", "end"]);
}

#[test]
fn when_all_are_idle_the_highest_watermark_is_given_once() {
    let first = vec![row(1, i64::MIN), watermark(10), IDLE];
    let second = vec![row(2, i64::MIN), watermark(40), IDLE];
    let mut merge = arrival(vec![first, second]);
    assert_eq!(told(&mut merge), ["1@", "2@", "w 10", "w 40", "idle"]);
    assert!(told(&mut merge).is_empty());
    // A row says by itself that its input counts again; so does the status alone.
    merge.inputs.elements[0].push_back(row(3, 10));
    assert_eq!(told(&mut merge), ["active", "3@40"]);
    merge.inputs.elements[0].push_back(IDLE);
    assert_eq!(told(&mut merge), ["idle"]);
    merge.inputs.elements[1].push_back(ACTIVE);
    assert_eq!(told(&mut merge), ["active"]);
    // An end among idle inputs changes nothing; the last one ends the stream.
    merge.inputs.elements[1].extend([IDLE, StreamElement::End]);
    assert_eq!(told(&mut merge), ["idle"]);
    merge.inputs.elements[0].push_back(StreamElement::End);
    assert_eq!(told(&mut merge), ["w max", "end"]);
}

#[test]
fn subtasks_of_one_stage_wake_together() {
    let first = vec![row(1, i64::MIN), watermark(10), IDLE];
    let second = vec![watermark(10)];
    let mut merge = arrival(vec![first, second]).in_step(true);
    // The second has not said yet that it is idle.
    assert_eq!(told(&mut merge), ["1@", "w 10"]);
    merge.inputs.elements[1].push_back(IDLE);
    assert_eq!(told(&mut merge), ["idle"]);
    // The first is ahead of the second, which has rows for the same time.
    merge.inputs.elements[0].extend([ACTIVE, row(2, 30), watermark(40)]);
    assert_eq!(told(&mut merge), ["active", "2@10"]);
    merge.inputs.elements[1].extend([ACTIVE, row(3, 20), watermark(40)]);
    assert_eq!(told(&mut merge), ["3@20", "w 20", "w 40"]);
    // The end wakes as well: the rows of the second are not behind those of the first.
    merge.inputs.elements[0].extend([IDLE, row(4, 90), watermark(i64::MAX), StreamElement::End]);
    merge.inputs.elements[1].push_back(IDLE);
    assert_eq!(told(&mut merge), ["idle", "active", "4@40"]);
    merge.inputs.elements[1].extend([row(5, 60), StreamElement::End]);
    assert_eq!(told(&mut merge), ["5@60", "w 60", "w max", "end"]);
}

#[test]
fn one_input_alone_is_idle_at_once_and_so_is_one_that_never_spoke() {
    let mut merge = arrival(vec![vec![IDLE, row(1, i64::MIN), watermark(5), IDLE]]);
    assert_eq!(told(&mut merge), ["idle", "active", "1@", "w 5", "idle"]);
}

#[test]
fn inputs_may_come_later() {
    let first = VecDeque::from([row(1, i64::MIN), watermark(10), StreamElement::End]);
    let second = VecDeque::from([row(2, i64::MIN), watermark(7), StreamElement::End]);
    let inputs = Scripted {
        elements: vec![],
        silence: VecDeque::new(),
        more: VecDeque::from([VecDeque::new(), first, second]),
    };
    let mut merge = Merge::new(inputs, MergeOrder::Arrival, schema(), 8);
    let mut all = Vec::new();
    while !merge.ended {
        // The first input never speaks and ends when all have come.
        if merge.inputs.more.is_empty() && merge.inputs.elements.len() == 3 {
            merge.inputs.elements[0].push_back(StreamElement::End);
        }
        all.extend(told(&mut merge));
    }
    let rows: Vec<_> = all.iter().filter(|what| what.contains('@')).collect();
    assert_eq!(rows, ["1@", "2@"]);
    assert_eq!(all[all.len() - 2..], ["w max", "end"]);
}

#[test]
fn an_input_that_ends_does_not_end_the_time_of_idle_ones() {
    let first =
        vec![row(1, i64::MIN), watermark(10), StreamElement::Watermark(Watermark::MAX), StreamElement::End];
    let mut merge = arrival(vec![first, vec![IDLE]]);
    // Nobody who counts is left.
    assert_eq!(told(&mut merge), ["1@", "w 10", "idle"]);
    merge.inputs.elements[1].extend([row(2, i64::MIN), watermark(15), StreamElement::End]);
    assert_eq!(told(&mut merge), ["active", "2@10", "w 15", "w max", "end"]);
}
