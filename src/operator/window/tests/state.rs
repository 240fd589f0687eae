//! State that other numbers of subtasks take up.

use super::*;
use crate::operator::testing::{MS, Step, respread};

/// Rows of 40 keys, some of them late, in three parts of batches.
pub(in crate::operator::window) fn parts() -> [Vec<Step>; 3] {
    const KEYS: [&str; 8] = ["a", "b", "c", "dd", "eee", "f", "", "h"];
    let mut number = 7_u64;
    let mut next = move |below: u64| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (number >> 33) % below
    };
    [0, 1, 2].map(|part| {
        let mut steps = Vec::new();
        for batch in 0..12_i64 {
            let now = part * 12 + batch;
            let mut row = || {
                let time = (now * 1_000 + next(6_000) as i64 - 2_000).max(0);
                let key = (next(9) < 8).then(|| KEYS[next(8) as usize]);
                ((next(30) > 0).then_some(time), key, (next(10) > 0).then(|| next(6) as i64))
            };
            let rows: Vec<Row> = (0..40).map(|_| row()).collect();
            let watermark = (now * 1_000 - 1_500) * MS;
            steps.push(Step::First(stream_batch(&rows, &vec![watermark; rows.len()])));
            if batch % 3 == 1 {
                steps.push(Step::Watermark(watermark));
            }
            steps.push(Step::Timer(now * 1_000_000));
        }
        steps
    })
}

fn check(node: WindowAggregateNode) {
    let schema = output(&node, &input());
    let plan = plan_node(Operation::WindowAggregate(Box::new(node)), schema);
    let given = respread(&plan, &input(), [&[1], &[]], &parts());
    assert!(given.len() > 70, "{} rows", given.len());
}

#[test]
fn windows_are_spread_over_other_subtasks() {
    for kind in [
        WindowKind::Tumble { size_us: 5_000 * MS },
        WindowKind::Hop { slide_us: 2_000 * MS, size_us: 8_000 * MS },
        WindowKind::Cumulate { step_us: 2_000 * MS, size_us: 8_000 * MS },
    ] {
        for calls in [plain_calls(), ordered_calls(), inexact_calls()] {
            check(node(assign(kind, 0), vec![column(1)], calls));
        }
        // Rows are spread by the key that all sets have.
        let sets = Some(vec![vec![false, false], vec![false, true]]);
        let grouped = node(assign(kind, 0), vec![column(1), column(2)], ordered_calls());
        check(WindowAggregateNode { grouping_sets: sets, ..grouped });
    }
}

#[test]
fn windows_whose_results_change_are_spread_over_other_subtasks() {
    let tumble = assign(WindowKind::Tumble { size_us: 5_000 * MS }, 0);
    let hop = assign(WindowKind::Hop { slide_us: 2_000 * MS, size_us: 8_000 * MS }, 0);
    let global = assign(WindowKind::Global, 0);
    let every_us = 3_500_000;
    for emit in [
        EmitMode::OnWindowClose,
        EmitMode::Changes { every_us: None },
        EmitMode::Changes { every_us: Some(every_us) },
        EmitMode::Early { every_us },
    ] {
        for window in [&tumble, &hop, &global] {
            let is_global = std::ptr::eq(window, &global);
            if is_global && !matches!(emit, EmitMode::Changes { .. }) {
                continue;
            }
            let mut calls = plain_calls();
            calls.extend(inexact_calls());
            let allowed_lateness_us = if is_global { 0 } else { 2_000 * MS };
            let grouped = node(window.clone(), vec![column(1)], calls);
            check(WindowAggregateNode { emit, allowed_lateness_us, ..grouped });
        }
    }
}

#[test]
fn the_state_of_windows_goes_with_them() {
    let tumble = node(assign(WindowKind::Tumble { size_us: 60_000 * MS }, 0), vec![column(2)], plain_calls());
    let schema = output(&tumble, &input());
    let plan = plan_node(Operation::WindowAggregate(Box::new(tumble)), schema);
    let (mut operator, mut out) = (create(&plan, &input()).unwrap(), Output::default());
    let (mut early, mut given) = (0, 0);
    for window in 0..200_i64 {
        let row = |key: i64| (Some(window * 60_000 + key * 100), None, Some(window * 500 + key));
        let rows: Vec<Row> = (0..500).map(row).collect();
        operator.process_batch(stream_batch(&rows, &vec![i64::MIN; rows.len()]), &mut out).unwrap();
        operator.process_watermark(Watermark((window * 60_000 + 50_000) * MS), &mut out).unwrap();
        let state = operator.state();
        assert_eq!((state.windows, state.rows), (1, 500), "only the window that is open");
        if window < 10 {
            early = early.max(state.bytes);
        }
        assert!(
            state.bytes * 2 <= early * 3,
            "{} bytes in window {window}, {early} in the first",
            state.bytes
        );
        given += out.rows();
        out.drain().for_each(drop);
    }
    assert_eq!(given, 199 * 500);
}
