//! Who holds event time back.

use super::super::{JobSnapshot, OperatorSnapshot, SourceSnapshot, SplitState};
use super::{Holder, WatermarkAt, WindowAt};
use crate::stream::Watermark;

/// The lowest split of a source that counts; the first of equals.
pub(super) fn of_source(source: &SourceSnapshot) -> Option<Holder> {
    let counts = source.splits.iter().filter(|split| split.state != SplitState::Finished && !split.idle);
    let lowest = counts.min_by_key(|split| split.watermark.unwrap_or(Watermark::MIN))?;
    Some(Holder {
        source: source.name.clone(),
        split: lowest.split.clone(),
        state: lowest.state,
        since_us: lowest.since_us,
        watermark: lowest.watermark,
        last_time: lowest.last_time,
    })
}

/// Who holds the input of a task: the way back along the lowest inputs that count, to a split.
pub(super) fn of_task(now: &JobSnapshot, task: usize) -> Option<Holder> {
    let mut task = task;
    // A way without circles is no longer than there are tasks.
    for _ in 0..=now.tasks.len() {
        let head = now.tasks.get(task)?.operators.first()?;
        if let Some(source) = now.sources.iter().find(|source| source.node == head.node) {
            return of_source(source);
        }
        let inputs = now.channels.iter().filter(|channel| {
            channel.to == Some(task) && !channel.is_late && !channel.is_ended && !channel.is_idle
        });
        task = inputs.min_by_key(|channel| channel.watermark.unwrap_or(Watermark::MIN))?.from;
    }
    None
}

/// The watermark at the input of each operator; of a source, the one that it gives.
pub(super) fn watermarks(now: &JobSnapshot) -> Vec<WatermarkAt> {
    let mut found = Vec::new();
    for (number, task) in now.tasks.iter().enumerate().filter(|(_, task)| !task.is_late) {
        let holder = (!task.is_over).then(|| of_task(now, number)).flatten();
        for operator in &task.operators {
            found.push(WatermarkAt {
                node: operator.node,
                operator: operator.name.clone(),
                subtask: operator.subtask,
                watermark: operator.watermark_in.or(operator.watermark_out),
                age_us: operator.watermark_age_us,
                holder: holder.clone(),
            });
        }
    }
    found
}

/// The open windows of all operators.
pub(super) fn windows(before: Option<&JobSnapshot>, now: &JobSnapshot, over_us: u64) -> Vec<WindowAt> {
    let mut found = Vec::new();
    for (number, task) in now.tasks.iter().enumerate() {
        for operator in task.operators.iter().filter(|operator| !operator.windows.is_empty()) {
            let holder = of_task(now, number);
            let earlier = before.and_then(|before| same(before, operator)?.watermark_in);
            for window in &operator.windows {
                let fires_at = Watermark(window.fires_at);
                let short_us = operator
                    .watermark_in
                    .map(|reached| fires_at.0.saturating_sub(reached.0).max(0).unsigned_abs());
                let moved = operator.watermark_in.zip(earlier).map(|(to, from)| to.0.saturating_sub(from.0));
                let expected_in_us = match (short_us, moved.filter(|moved| *moved > 0)) {
                    (Some(short), Some(moved)) => Some((short as f64 / moved as f64 * over_us as f64) as u64),
                    _ => None,
                };
                found.push(WindowAt {
                    node: operator.node,
                    operator: operator.name.clone(),
                    subtask: operator.subtask,
                    start: window.start,
                    end: window.end,
                    groups: window.groups,
                    rows: window.rows,
                    is_fired: window.is_fired,
                    key: window.key.clone(),
                    fires_at,
                    watermark: operator.watermark_in,
                    short_us,
                    holder: holder.clone(),
                    expected_in_us,
                });
            }
        }
    }
    found.sort_by_key(|window| (window.fires_at, window.node, window.subtask));
    found
}

/// The same operator in another snapshot of the job.
pub(super) fn same<'a>(
    snapshot: &'a JobSnapshot,
    operator: &OperatorSnapshot,
) -> Option<&'a OperatorSnapshot> {
    snapshot.operators().find(|other| {
        (other.node, &other.name, other.subtask) == (operator.node, &operator.name, operator.subtask)
    })
}
