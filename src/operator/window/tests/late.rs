//! The second output: exactly the rows that an evaluation row by row calls late.

use std::sync::Arc;

use proptest::prelude::*;

use super::property::{kinds, rows, windows_of};
use super::{assign, column, node, output, plain_calls};
use crate::operator::testing::{MS, Row, input, lines, plan_node, running, stamp, stream_batch};
use crate::operator::{Operator, Output, create};
use crate::plan::*;
use crate::stream::Watermark;

fn late_output() -> Arc<LateOutput> {
    let time = input().field(0).data_type().clone();
    let mut fields = input().fields().to_vec();
    let known = crate::plan::late_fields(&time, &time);
    fields.extend(known.into_iter().filter(|field| field.name() != "late_text").map(Arc::new));
    Arc::new(LateOutput {
        table: "side".to_owned(),
        operator: "WindowAggregate".to_owned(),
        columns: vec![0, 1, 2],
        source: None,
        split: None,
        schema: Arc::new(arrow::datatypes::Schema::new(fields)),
        second: None,
    })
}

fn operator(kind: WindowKind, offset: i64, phase: AggregatePhase) -> Box<dyn Operator> {
    let node =
        WindowAggregateNode { phase, ..node(assign(kind, offset * MS), vec![column(1)], plain_calls()) };
    let schema = match phase {
        AggregatePhase::Local => local_schema(&node, &input()).unwrap(),
        AggregatePhase::Single | AggregatePhase::Final => output(&node, &input()),
    };
    let mut plan_node = plan_node(Operation::WindowAggregate(Box::new(node)), schema);
    plan_node.late = Some(late_output());
    create(&plan_node, &input()).unwrap()
}

/// The second output of a run in batches of `cut`.
fn given(operator: &mut dyn Operator, rows: &[Row], delay: i64, cut: usize) -> Vec<String> {
    let running = running(rows, delay);
    let (mut out, mut given, mut last) = (Output::default(), Vec::new(), i64::MIN);
    for from in (0..rows.len()).step_by(cut) {
        let to = rows.len().min(from + cut);
        operator.process_batch(stream_batch(&rows[from..to], &running[from..to]), &mut out).unwrap();
        if running[to] > last {
            last = running[to];
            operator.process_watermark(Watermark(last), &mut out).unwrap();
        }
        for batch in out.drain_late() {
            given.extend(lines(&batch.rows));
        }
    }
    assert_eq!(out.counts.late + out.counts.null_time, given.len() as u64, "each counted row is given");
    given
}

/// Row by row: late for all of its windows, or without time.
fn expected(kind: WindowKind, offset: i64, rows: &[Row], delay: i64) -> Vec<String> {
    let text = |value: Option<i64>| value.map_or("NULL".to_owned(), |value| value.to_string());
    let mut lines = Vec::new();
    for ((time, key, value), running) in rows.iter().zip(running(rows, delay)) {
        let watermark = if running == i64::MIN { "NULL".to_owned() } else { stamp(running / MS) };
        let user =
            format!("{},{},{}", time.map_or("NULL".to_owned(), stamp), key.unwrap_or("NULL"), text(*value));
        let Some(time) = time else {
            lines.push(format!("{user},null_time,WindowAggregate,NULL,NULL,{watermark},NULL,NULL,NULL"));
            continue;
        };
        let windows = windows_of(kind, offset, *time);
        if !windows.iter().all(|(_, end)| running >= (end - 1) * MS) {
            continue;
        }
        let (start, end) = windows.iter().max_by_key(|(_, end)| *end).unwrap();
        let by = (running / MS - end).max(0);
        // Arrow's text of an interval.
        let by = format!("{}.{:03}000000 secs", by / 1_000, by % 1_000).replace("0.000000000 secs", "0 secs");
        let bounds = format!("{},{}", stamp(*start), stamp(*end));
        lines.push(format!("{user},late,WindowAggregate,{bounds},{watermark},{by},NULL,NULL"));
    }
    lines
}

#[test]
fn the_last_window_that_a_hop_row_missed() {
    // Windows of 60 that start every 30. At watermark 120, 20 is late for [-30, 30) and [0, 60);
    // at 119 it would be too, and 70 is late for [30, 90) and [60, 120) only from 119 on.
    let kind = WindowKind::Hop { slide_us: 30 * MS, size_us: 60 * MS };
    let rows: Vec<Row> = [120, 20, 70, 61, 95].map(|time| (Some(time), Some("a"), Some(1))).into();
    for cut in [1, 2, 5] {
        let given = given(operator(kind, 0, AggregatePhase::Single).as_mut(), &rows, 0, cut);
        let times: Vec<&str> = given.iter().map(|line| line.split(',').nth(6).unwrap()).collect();
        assert_eq!(times, [stamp(60), stamp(120), stamp(120)]);
        assert_eq!(given, expected(kind, 0, &rows, 0));
    }
    // One ms less: the row of 70 is late for its first window only, and used.
    let rows: Vec<Row> = [118, 20, 70].map(|time| (Some(time), Some("a"), Some(1))).into();
    assert_eq!(given(operator(kind, 0, AggregatePhase::Single).as_mut(), &rows, 0, 2).len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_307),
        ..ProptestConfig::default()
    })]

    #[test]
    fn exactly_the_late_rows_are_given(
        (kind, offset) in kinds(), rows in rows(), delay in 0i64..6, cut in 1usize..40,
    ) {
        let expected = expected(kind, offset, &rows, delay);
        for phase in [AggregatePhase::Single, AggregatePhase::Local] {
            let given = given(operator(kind, offset, phase).as_mut(), &rows, delay, cut);
            prop_assert_eq!(&given, &expected);
        }
    }
}
