//! `EXPLAIN ANALYZE`: a plan with what was measured while it ran.

use serde_json::{Value, json};

use crate::plan::StreamPlan;
use crate::runtime::{JobSnapshot, LatencySummary, OperatorSnapshot, Pressure, diagnose, length_text};

/// The plan as text, under each node what its operators did, at last the verdict.
pub(super) fn text(plan: &StreamPlan, done: &JobSnapshot) -> String {
    let diagnosis = diagnose(plan, None, done);
    let tree = plan.explain_with(&|node| notes(done, node));
    let loads = &diagnosis.operators;
    let busiest = loads.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
    let most = busiest
        .map(|load| format!("; most of the work: {} ({:.0} % busy)", load.operator, load.busy * 100.0))
        .unwrap_or_default();
    format!("{tree}verdict: {}{most}\n", diagnosis.verdict)
}

/// The same for programs.
pub(super) fn to_json(plan: &StreamPlan, done: &JobSnapshot) -> Value {
    json!({
        "plan": plan.to_json(),
        "measured": done.to_json(),
        "diagnosis": diagnose(plan, None, done).to_json(),
    })
}

/// One line for each operator of a node, its subtasks together.
fn notes(done: &JobSnapshot, node: usize) -> Vec<String> {
    let of_node: Vec<&OperatorSnapshot> = done.operators().filter(|operator| operator.node == node).collect();
    let mut names: Vec<&str> = of_node.iter().map(|operator| operator.name.as_str()).collect();
    names.dedup();
    names.sort_unstable();
    names.dedup();
    let same = |name: &str| of_node.iter().copied().filter(|one| one.name == name).collect::<Vec<_>>();
    names.iter().map(|name| line(name, &same(name))).collect()
}

fn line(name: &str, subtasks: &[&OperatorSnapshot]) -> String {
    let sum = |read: fn(&OperatorSnapshot) -> u64| subtasks.iter().map(|one| read(one)).sum::<u64>();
    let total = sum(|one| one.busy_us + one.idle_us + one.back_pressured_us).max(1) as f64;
    let share = |part: u64| part as f64 / total;
    let waits = share(sum(|one| one.back_pressured_us));
    let rows: Vec<u64> = subtasks.iter().map(|one| one.rows_in).collect();
    let most = rows.iter().max().copied().unwrap_or_default() as f64;
    let mean = rows.iter().sum::<u64>() as f64 / rows.len().max(1) as f64;
    let mut parts = vec![
        format!("{} rows in, {} out", sum(|one| one.rows_in), sum(|one| one.rows_out)),
        format!("busy {:.1} %", share(sum(|one| one.busy_us)) * 100.0),
        format!("back-pressured {:.1} % {}", waits * 100.0, Pressure::of_share(waits).name()),
    ];
    let late = sum(|one| one.counts.late);
    if late > 0 {
        parts.push(format!("{late} late"));
    }
    let (state, bytes) = (sum(|one| one.state.rows as u64), sum(|one| one.state.bytes as u64));
    if state > 0 {
        parts.push(format!("state {state} rows {bytes} bytes"));
    }
    let watermark = subtasks.iter().filter_map(|one| one.watermark_in.or(one.watermark_out)).min();
    if let Some(watermark) = watermark {
        parts.push(format!("watermark {}", crate::runtime::moment_text(watermark.0)));
    }
    // Histograms of subtasks are not added: the slowest is told.
    let slowest = |read: fn(&OperatorSnapshot) -> Option<LatencySummary>| {
        subtasks.iter().filter_map(|one| read(one)).max_by_key(|one| one.p99_us)
    };
    for (what, summary) in [
        ("latency", slowest(|one| one.latency)),
        ("waited", slowest(|one| one.times.wait)),
        ("work", slowest(|one| one.times.compute)),
        ("held", slowest(|one| one.times.held)),
        ("read to written", slowest(|one| one.times.total)),
    ] {
        if let Some(one) = summary {
            parts.push(format!(
                "{what} p50 {} p95 {} p99 {}",
                length_text(one.p50_us),
                length_text(one.p95_us),
                length_text(one.p99_us)
            ));
        }
    }
    if subtasks.len() > 1 {
        parts.push(format!(
            "skew {:.2} over {} subtasks",
            if mean > 0.0 { most / mean } else { 1.0 },
            subtasks.len()
        ));
    }
    format!("~ {name}: {}", parts.join("; "))
}
