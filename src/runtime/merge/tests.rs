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
}

impl Inputs for Scripted {
    fn len(&self) -> usize {
        self.elements.len()
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
        let inputs = Scripted { elements, silence: silence.into() };
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
        let inputs = Scripted { elements, silence: silence.into() };
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
    let inputs = Scripted { elements: vec![first, second], silence: VecDeque::from([true, false, true]) };
    let mut merge = Merge::new(inputs, MergeOrder::Aligned, schema(), 1);
    let mut values = Vec::new();
    loop {
        match merge.next().unwrap() {
            Merged::Element(StreamElement::Batch(batch)) => {
                values.extend(batch.rows.column(0).as_primitive::<Int64Type>().values().iter().copied());
            }
            Merged::Element(_) | Merged::Pending => {}
            Merged::Ended => break,
        }
    }
    assert_eq!(values, [1, 2, 3]);
}

#[test]
fn no_inputs_end_at_once() {
    let inputs = Scripted { elements: vec![], silence: VecDeque::new() };
    let mut merge = Merge::new(inputs, MergeOrder::Aligned, schema(), 1);
    assert!(matches!(merge.next().unwrap(), Merged::Element(StreamElement::Watermark(Watermark::MAX))));
    assert!(matches!(merge.next().unwrap(), Merged::Element(StreamElement::End)));
    assert!(matches!(merge.next().unwrap(), Merged::Ended));
}
