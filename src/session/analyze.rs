//! `EXPLAIN ANALYZE`: a plan with what was measured while it ran.

use std::time::Duration;

use serde_json::{Value, json};

use super::Outcome;
use crate::error::{Error, Phase};
use crate::plan::StreamPlan;
use crate::runtime::{
    Diagnosis, JobSnapshot, LatencySummary, OperatorSnapshot, Pressure, diagnose, length_text,
};

/// Lets a job run to its end, or for some time; then it is stopped. What was measured of it.
///
/// # Errors
/// What made it fail.
pub(super) fn run(started: Outcome, over: Option<Duration>) -> Result<JobSnapshot, Error> {
    let job = match &started {
        Outcome::Query(query) => query.job().clone(),
        Outcome::Insert(job) => job.clone(),
        Outcome::Done(_) | Outcome::Rows(_) | Outcome::Text(_) => {
            return Err(Error::internal("session", "a plan started no job"));
        }
    };
    let observed = job.clone();
    let observer = over.map(|over| {
        std::thread::spawn(move || {
            let (_, seen) = observed.monitor().observe(over);
            observed.stop();
            seen
        })
    });
    let ended = match started {
        Outcome::Query(mut query) => loop {
            match query.next_batch() {
                Ok(Some(_)) => {}
                Ok(None) => break query.finish().map(|_| ()),
                Err(error) => break Err(error),
            }
        },
        Outcome::Insert(job) => job.wait().map(|_| ()),
        Outcome::Done(_) | Outcome::Rows(_) | Outcome::Text(_) => Ok(()),
    };
    let seen = observer.map(|observer| observer.join());
    match (ended, seen) {
        // We have stopped it.
        (Err(error), Some(Ok(seen))) if error.phase() == Phase::Interrupted => Ok(seen),
        (Err(error), _) => Err(error),
        (Ok(()), _) => Ok(job.metrics()),
    }
}

/// The plan as text, under each node what its operators did since `before`, at last the verdict.
pub(super) fn text(plan: &StreamPlan, before: Option<&JobSnapshot>, done: &JobSnapshot) -> String {
    let diagnosis = diagnose(plan, before, done);
    let tree = plan.explain_with(&|node| notes(before, done, &diagnosis, node));
    let loads = &diagnosis.operators;
    let busiest = loads.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
    let most = busiest
        .map(|load| format!("; most of the work: {} ({:.0} % busy)", load.operator, load.busy * 100.0))
        .unwrap_or_default();
    format!("{tree}verdict: {}{most}\n", diagnosis.verdict)
}

/// The same for programs.
pub(super) fn to_json(plan: &StreamPlan, before: Option<&JobSnapshot>, done: &JobSnapshot) -> Value {
    json!({
        "plan": plan.to_json(),
        "measured": done.to_json(),
        "diagnosis": diagnose(plan, before, done).to_json(),
    })
}

/// One line for each operator of a node, its subtasks together.
fn notes(
    before: Option<&JobSnapshot>,
    done: &JobSnapshot,
    diagnosis: &Diagnosis,
    node: usize,
) -> Vec<String> {
    let of_node: Vec<&OperatorSnapshot> = done.operators().filter(|operator| operator.node == node).collect();
    let mut names: Vec<&str> = of_node.iter().map(|operator| operator.name.as_str()).collect();
    names.dedup();
    names.sort_unstable();
    names.dedup();
    let same = |name: &str| of_node.iter().copied().filter(|one| one.name == name).collect::<Vec<_>>();
    names.iter().map(|name| line(name, &same(name), before, diagnosis)).collect()
}

fn line(
    name: &str,
    subtasks: &[&OperatorSnapshot],
    before: Option<&JobSnapshot>,
    diagnosis: &Diagnosis,
) -> String {
    let is_it = |one: &OperatorSnapshot, other: &OperatorSnapshot| {
        (one.node, &one.name, one.subtask) == (other.node, &other.name, other.subtask)
    };
    let earlier = |one: &OperatorSnapshot, read: fn(&OperatorSnapshot) -> u64| {
        let found = before.and_then(|before| before.operators().find(|other| is_it(one, other)));
        found.map_or(0, read)
    };
    let level = |read: fn(&OperatorSnapshot) -> u64| subtasks.iter().map(|one| read(one)).sum::<u64>();
    // Since the earlier look.
    let sum = |read: fn(&OperatorSnapshot) -> u64| {
        subtasks.iter().map(|one| read(one).saturating_sub(earlier(one, read))).sum::<u64>()
    };
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
    let loads = diagnosis.operators.iter().filter(|load| {
        subtasks.iter().any(|one| (load.node, load.subtask) == (one.node, one.subtask))
            && load.operator == name
    });
    let queued = loads
        .filter_map(|load| load.in_pool)
        .fold(None, |most: Option<f64>, usage| Some(most.map_or(usage, |most| most.max(usage))));
    if let Some(queued) = queued.filter(|queued| *queued > 0.0) {
        parts.push(format!("queue {:.0} % full", queued * 100.0));
    }
    let late = sum(|one| one.counts.late);
    if late > 0 {
        parts.push(format!("{late} late"));
    }
    let (state, bytes) = (level(|one| one.state.rows as u64), level(|one| one.state.bytes as u64));
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
