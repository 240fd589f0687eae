//! What is kept, and when it goes.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};
use datafusion_functions_aggregate::sum::sum_udaf;

use super::super::super::tests::state::parts;
use super::super::super::tests::{call, inexact_calls, ordered_calls, output, plain_calls};
use super::super::SessionAggregate;
use super::super::chain::{ALL, Chain, Kept};
use super::super::partitions::Partitions;
use super::super::track::Tracker;
use super::{session_rows, sessions, spec, with_bounds};
use crate::operator::testing::{MS, Row, column, input, plan_node, respread, stream_batch};
use crate::operator::{Operator, Output, StateSize};
use crate::plan::{EmitMode, Operation, WindowAggregateNode, WindowRowsNode};
use crate::stream::Watermark;

/// `batches` batches of 1,000 rows, each row a key and a session of its own.
fn short_sessions(operator: &mut dyn Operator, batches: i64) -> StateSize {
    let mut out = Output::default();
    let mut largest = StateSize::default();
    for batch in 0..batches {
        let rows: Vec<Row> =
            (0..1_000).map(|row| (Some(batch), Some("a"), Some(batch * 1_000 + row))).collect();
        let running = vec![(batch - 1) * MS; rows.len()];
        operator.process_batch(stream_batch(&rows, &running), &mut out).unwrap();
        operator.process_watermark(Watermark(batch * MS), &mut out).unwrap();
        out.drain();
        let state = operator.state();
        largest.windows = largest.windows.max(state.windows);
        largest.rows = largest.rows.max(state.rows);
        largest.bytes = largest.bytes.max(state.bytes);
    }
    operator.process_watermark(Watermark::MAX, &mut out).unwrap();
    operator.finish(&mut out).unwrap();
    assert_eq!(out.counts.used, 1_000 * batches as u64);
    assert_eq!((operator.state().windows, operator.state().rows), (0, 0));
    largest
}

#[test]
fn what_closed_sessions_kept_goes() {
    // A session of 5 ms: six batches are open at most.
    for calls in [vec![call(sum_udaf(), "s")], ordered_calls()] {
        let node = sessions(5, vec![2], vec![column(2)], calls);
        let schema = output(&node, &input());
        let mut operator =
            SessionAggregate::try_new(&node, (0, &spec(5), &[2]), &schema, &input(), None).unwrap();
        let few = short_sessions(&mut operator, 40);
        let mut operator =
            SessionAggregate::try_new(&node, (0, &spec(5), &[2]), &schema, &input(), None).unwrap();
        let many = short_sessions(&mut operator, 200);
        assert!(many.windows <= 6_000, "{many:?}");
        assert_eq!((few.windows, few.rows), (many.windows, many.rows));
        assert!(many.bytes <= few.bytes * 2, "{few:?}, then {many:?}");
    }
    let few = short_sessions(session_rows(5, vec![2]).as_mut(), 40);
    let many = short_sessions(session_rows(5, vec![2]).as_mut(), 200);
    assert!(many.bytes <= few.bytes * 2, "{few:?}, then {many:?}");
}

#[test]
fn a_long_session_is_one_state() {
    let node = sessions(10, vec![1], vec![column(1)], vec![call(sum_udaf(), "s")]);
    let schema = output(&node, &input());
    let operator = SessionAggregate::try_new(&node, (0, &spec(10), &[1]), &schema, &input(), None).unwrap();
    let mut operator = operator.folding_at(100);
    let mut out = Output::default();
    for time in 0..1_000 {
        let rows: [Row; 10] = [(Some(time), Some("a"), Some(1)); 10];
        operator.process_batch(stream_batch(&rows, &[(time - 1) * MS; 10]), &mut out).unwrap();
        operator.process_watermark(Watermark(time * MS), &mut out).unwrap();
        assert!(operator.state().rows <= 101, "{:?}", operator.state());
    }
    assert_eq!(operator.state().windows, 1);
}

#[test]
fn numbers_of_idle_partitions_are_given_again() {
    let mut tracker = Tracker::new(10, 1, 0);
    let mut partitions = Partitions::try_new(&[DataType::Int64]).unwrap();
    for round in 0..50 {
        let keys: ArrayRef =
            Arc::new(Int64Array::from_iter_values((0..1_000).map(|key| round * 1_000 + key)));
        let numbers = partitions.number(&[keys], 1_000, &mut tracker).unwrap().to_vec();
        while tracker.next_due(round * 100 - 1).is_some() {}
        for number in numbers {
            tracker.place(number, round * 100).unwrap();
        }
    }
    assert!(partitions.len() <= 3_000, "{}", partitions.len());
    assert_eq!(partitions.len(), tracker.partitions());
    assert_eq!(tracker.len(), 1_000);
}

#[test]
fn rows_of_other_chains_are_forgotten_and_the_rest_stays() {
    let mut kept = Kept::default();
    let mut chains = [Chain::default(); 3];
    // Rows 0 to 8 in batches of three, in turn for the three chains.
    for batch in 0..3u64 {
        for row in batch * 3..batch * 3 + 3 {
            kept.link(&mut chains[row as usize % 3], 100 + row).unwrap();
        }
        let values: Vec<i64> = (batch * 3..batch * 3 + 3).map(|row| row as i64).collect();
        kept.append(vec![Arc::new(Int64Array::from(values))]).unwrap();
    }
    let values = |kept: &Kept, chain: Chain| {
        let mut rows = Vec::new();
        kept.rows(chain, &mut rows);
        let columns = kept.take(&rows, ALL).unwrap();
        (columns[0].as_primitive::<Int64Type>().values().to_vec(), kept.arrivals(&rows))
    };
    assert_eq!(values(&kept, chains[1]), (vec![1, 4, 7], vec![101, 104, 107]));
    let [first, gone, last] = &mut chains;
    kept.release(3);
    kept.retain([&mut *first, &mut *last].into_iter()).unwrap();
    assert_eq!((kept.len(), kept.live()), (6, 6));
    assert_eq!(values(&kept, *first), (vec![0, 3, 6], vec![100, 103, 106]));
    // A chain takes rows after that, and another chain.
    kept.link(first, 109).unwrap();
    kept.append(vec![Arc::new(Int64Array::from(vec![9]))]).unwrap();
    kept.join(first, *last);
    *gone = Chain::default();
    kept.join(first, *gone);
    let all = (vec![0, 2, 3, 5, 6, 8, 9], vec![100, 102, 103, 105, 106, 108, 109]);
    assert_eq!(values(&kept, *first), all);
    kept.release(7);
    assert_eq!((kept.len(), kept.live()), (0, 0));
}

fn check_spread(operation: Operation, schema: arrow::datatypes::SchemaRef) {
    let given = respread(&plan_node(operation, schema), &input(), [&[1], &[]], &parts());
    assert!(given.len() > 100, "{} rows", given.len());
}

#[test]
fn sessions_are_spread_over_other_subtasks() {
    let window = WindowRowsNode { time: 0, window: spec(300), partition: vec![1] };
    check_spread(Operation::WindowRows(window), with_bounds());
    for keys in [vec![column(1)], vec![column(1), column(2)]] {
        for calls in [plain_calls(), ordered_calls(), inexact_calls()] {
            let node = sessions(300, vec![1], keys.clone(), calls);
            let schema = output(&node, &input());
            check_spread(Operation::WindowAggregate(Box::new(node)), schema);
        }
    }
}

#[test]
fn sessions_whose_results_change_are_spread_over_other_subtasks() {
    for emit in [
        EmitMode::OnWindowClose,
        EmitMode::Changes { every_us: None },
        EmitMode::Changes { every_us: Some(3_500_000) },
        EmitMode::Early { every_us: 3_500_000 },
    ] {
        for calls in [vec![call(sum_udaf(), "s")], plain_calls(), ordered_calls()] {
            let node = sessions(300, vec![1], vec![column(1), column(2)], calls);
            let node = WindowAggregateNode { emit, allowed_lateness_us: 2_000 * MS, ..node };
            let schema = output(&node, &input());
            check_spread(Operation::WindowAggregate(Box::new(node)), schema);
        }
    }
}
