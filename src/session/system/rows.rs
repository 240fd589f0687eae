//! The tables: their columns, and the rows of a job at one moment.

use super::AS_OF;
use super::cells::Cell;
use super::cells::Kind::{self, Count, Flag, Instant, Share, Small, Text, Time};
use crate::runtime::{Holder, LatencySummary, OperatorLoad, OperatorSnapshot};
use crate::session::JobStatus;
use crate::stream::Watermark;

type Row = Vec<Cell>;

/// A table.
pub(super) struct Definition {
    /// Behind `system.`.
    pub(super) name: &'static str,
    /// Names and types.
    pub(super) columns: &'static [(&'static str, Kind)],
    /// Adds the rows of a job, with a cell for each column.
    pub(super) rows: fn(&JobStatus, &mut Vec<Row>),
}

/// All tables, by name.
pub(super) const ALL: &[Definition] = &[
    Definition {
        name: "channels",
        columns: &[
            (AS_OF, Instant),
            ("job", Count),
            ("from_task", Text),
            ("to_task", Text),
            ("late_rows", Flag),
            ("rows", Count),
            ("capacity_rows", Count),
            ("usage", Share),
            ("watermark", Time),
            ("idle", Flag),
            ("ended", Flag),
        ],
        rows: channels,
    },
    Definition {
        name: "checkpoints",
        columns: &[
            (AS_OF, Instant),
            ("job", Count),
            ("completed", Count),
            ("failed", Count),
            ("restored", Count),
            ("last", Count),
            ("last_at", Instant),
            ("last_age_ms", Count),
            ("last_bytes", Count),
            ("last_pause_us", Count),
            ("last_gather_us", Count),
            ("longest_gather_us", Count),
            ("last_tell_us", Count),
            ("longest_tell_us", Count),
            ("last_duration_us", Count),
            ("failure", Text),
        ],
        rows: checkpoints,
    },
    Definition {
        name: "jobs",
        columns: &[
            (AS_OF, Instant),
            ("job", Count),
            ("name", Text),
            ("state", Text),
            ("runtime_ms", Count),
            ("rows_in", Count),
            ("rows_out", Count),
            ("late", Count),
            ("verdict", Text),
        ],
        rows: jobs,
    },
    Definition {
        name: "latency",
        columns: &[
            (AS_OF, Instant),
            ("job", Count),
            ("node", Small),
            ("operator", Text),
            ("subtask", Small),
            ("kind", Text),
            ("source_node", Small),
            ("source_subtask", Small),
            ("count", Count),
            ("p50_us", Count),
            ("p95_us", Count),
            ("p99_us", Count),
            ("max_us", Count),
            ("saturated", Count),
        ],
        rows: latency,
    },
    Definition {
        name: "operators",
        columns: &[
            (AS_OF, Instant),
            ("job", Count),
            ("node", Small),
            ("operator", Text),
            ("subtask", Small),
            ("task", Text),
            ("numRecordsIn", Count),
            ("numRecordsOut", Count),
            ("numRecordsInPerSecond", Share),
            ("numRecordsOutPerSecond", Share),
            ("numBytesIn", Count),
            ("numBytesOut", Count),
            ("numBytesInPerSecond", Share),
            ("numBuffersIn", Count),
            ("numBuffersOut", Count),
            ("busyTimeMsPerSecond", Share),
            ("idleTimeMsPerSecond", Share),
            ("backPressuredTimeMsPerSecond", Share),
            ("back_pressure", Text),
            ("inPoolUsage", Share),
            ("outPoolUsage", Share),
            ("pool", Text),
            ("skew", Share),
            ("numLateRecordsDropped", Count),
            ("state_rows", Count),
            ("state_bytes", Count),
            ("spilled_bytes", Count),
            ("windows_open", Count),
        ],
        rows: operators,
    },
    Definition {
        name: "reconciliation",
        columns: &[
            (AS_OF, Instant),
            ("job", Count),
            ("node", Small),
            ("operator", Text),
            ("subtask", Small),
            ("rows_in", Count),
            ("used", Count),
            ("late", Count),
            ("null_time", Count),
            ("future", Count),
            ("filtered", Count),
            ("held", Count),
            ("partly_late", Count),
            ("difference", Count),
        ],
        rows: reconciliation,
    },
    Definition {
        name: "splits",
        columns: &[
            (AS_OF, Instant),
            ("job", Count),
            ("node", Small),
            ("source", Text),
            ("split", Text),
            ("state", Text),
            ("idle", Flag),
            ("since_ms", Count),
            ("rows", Count),
            ("watermark", Time),
            ("last_time", Time),
            ("latest_time", Time),
            ("fetchEventTimeLagMs", Count),
        ],
        rows: splits,
    },
    Definition {
        name: "watermarks",
        columns: &[
            (AS_OF, Instant),
            ("job", Count),
            ("node", Small),
            ("operator", Text),
            ("subtask", Small),
            ("currentInputWatermark", Time),
            ("currentOutputWatermark", Time),
            ("age_ms", Count),
            ("watermarkLagMs", Count),
            ("held_by_source", Text),
            ("held_by_split", Text),
            ("held_state", Text),
            ("held_since_ms", Count),
            ("held_last_time", Time),
        ],
        rows: watermarks,
    },
    Definition {
        name: "windows",
        columns: &[
            (AS_OF, Instant),
            ("job", Count),
            ("node", Small),
            ("operator", Text),
            ("subtask", Small),
            ("window_start", Time),
            ("window_end", Time),
            ("groups", Count),
            ("rows", Count),
            ("fired", Flag),
            ("session_key", Text),
            ("fires_at", Time),
            ("watermark", Time),
            ("short_by_ms", Count),
            ("held_by_source", Text),
            ("held_by_split", Text),
            ("expected_in_ms", Count),
        ],
        rows: windows,
    },
];

/// The first cells of a row.
fn start(job: &JobStatus) -> Row {
    vec![job.snapshot.as_of_us.into(), job.number.into()]
}

/// The first cells of a row about an operator.
fn of_operator(job: &JobStatus, node: usize, name: &str, subtask: usize) -> Row {
    let mut row = start(job);
    row.extend([node.into(), name.into(), subtask.into()]);
    row
}

fn millis(us: u64) -> Cell {
    (us / 1_000).into()
}

fn holder(holder: Option<&Holder>) -> [Cell; 2] {
    match holder {
        Some(holder) => [holder.source.as_str().into(), holder.split.as_str().into()],
        None => [Cell::Null, Cell::Null],
    }
}

/// Of a job that takes none there is no row.
fn checkpoints(job: &JobStatus, rows: &mut Vec<Row>) {
    let Some(status) = &job.checkpoints else { return };
    let taken_us = status.last.map(|_| status.last_taken_us);
    let mut row = start(job);
    row.extend([
        status.completed.into(),
        status.failed.into(),
        status.restored.into(),
        status.last.into(),
        taken_us.into(),
        job.checkpoint_age_us().map(|age_us| age_us / 1_000).into(),
        status.last_bytes.into(),
        status.last_pause_us.into(),
        status.last_gather_us.into(),
        status.longest_gather_us.into(),
        status.last_tell_us.into(),
        status.longest_tell_us.into(),
        status.last_duration_us.into(),
        status.failure.clone().into(),
    ]);
    rows.push(row);
}

fn jobs(job: &JobStatus, rows: &mut Vec<Row>) {
    let snapshot = &job.snapshot;
    let read = snapshot.sources.iter().map(|source| source.rows_read).sum::<u64>();
    let sinks = snapshot.tasks.iter().filter(|task| !task.is_late).filter_map(|task| task.operators.last());
    let written = sinks.filter(|last| last.is_sink()).map(|sink| sink.rows_in).sum::<u64>();
    let late = snapshot.operators().map(|one| one.counts.late).sum::<u64>();
    let mut row = start(job);
    row.extend([
        job.name.as_str().into(),
        job.state.name().into(),
        millis(snapshot.elapsed_us),
        read.into(),
        written.into(),
        late.into(),
        job.diagnosis.verdict.as_str().into(),
    ]);
    rows.push(row);
}

fn operators(job: &JobStatus, rows: &mut Vec<Row>) {
    let mut loads = job.diagnosis.operators.iter();
    for task in &job.snapshot.tasks {
        for one in &task.operators {
            // In the order of the tasks, too.
            let Some(load) = loads.next() else { return };
            rows.push(operator(job, &task.name, one, load));
        }
    }
}

fn operator(job: &JobStatus, task: &str, one: &OperatorSnapshot, load: &OperatorLoad) -> Row {
    let mut row = of_operator(job, one.node, &one.name, one.subtask);
    row.extend([
        task.into(),
        one.rows_in.into(),
        one.rows_out.into(),
        load.rows_in_per_second.into(),
        load.rows_out_per_second.into(),
        one.bytes_in.into(),
        one.bytes_out.into(),
        load.bytes_in_per_second.into(),
        one.batches_in.into(),
        one.batches_out.into(),
        (load.busy * 1e3).into(),
        (load.idle * 1e3).into(),
        (load.back_pressured * 1e3).into(),
        load.pressure.name().into(),
        load.in_pool.into(),
        load.out_pool.into(),
        load.pool.name().into(),
        load.skew.into(),
        one.counts.late.into(),
        one.state.rows.into(),
        one.state.bytes.into(),
        one.spilled_bytes.into(),
        one.state.windows.into(),
    ]);
    row
}

fn channels(job: &JobStatus, rows: &mut Vec<Row>) {
    let tasks = &job.snapshot.tasks;
    let name = |task: usize| tasks.get(task).map(|task| task.name.as_str());
    for channel in &job.snapshot.channels {
        let mut row = start(job);
        row.extend([
            name(channel.from).into(),
            channel.to.and_then(name).into(),
            channel.is_late.into(),
            channel.rows.into(),
            channel.capacity_rows.into(),
            channel.usage().into(),
            channel.watermark.into(),
            channel.is_idle.into(),
            channel.is_ended.into(),
        ]);
        rows.push(row);
    }
}

fn watermarks(job: &JobStatus, rows: &mut Vec<Row>) {
    let as_of_us = job.snapshot.as_of_us;
    for at in &job.diagnosis.watermarks {
        let own = job
            .snapshot
            .operators()
            .find(|one| (one.node, &one.name, one.subtask) == (at.node, &at.operator, at.subtask));
        let output: Option<Watermark> = own.and_then(|one| one.watermark_out);
        let lag = at.watermark.map(|reached| as_of_us.saturating_sub(reached.0).div_euclid(1_000));
        let mut row = of_operator(job, at.node, &at.operator, at.subtask);
        row.extend([
            at.watermark.into(),
            output.into(),
            at.age_us.map(millis).unwrap_or(Cell::Null),
            lag.into(),
        ]);
        row.extend(holder(at.holder.as_ref()));
        match &at.holder {
            Some(holder) => {
                row.extend([holder.state.name().into(), millis(holder.since_us), holder.last_time.into()]);
            }
            None => row.extend([Cell::Null, Cell::Null, Cell::Null]),
        }
        rows.push(row);
    }
}

fn splits(job: &JobStatus, rows: &mut Vec<Row>) {
    for source in &job.snapshot.sources {
        for split in &source.splits {
            let mut row = start(job);
            row.extend([
                source.node.into(),
                source.name.as_str().into(),
                split.split.as_str().into(),
                split.state.name().into(),
                split.idle.into(),
                millis(split.since_us),
                split.rows.into(),
                split.watermark.into(),
                split.last_time.into(),
                split.latest_time.into(),
                split.lag_us.map(|lag| lag.div_euclid(1_000)).into(),
            ]);
            rows.push(row);
        }
    }
}

fn latency(job: &JobStatus, rows: &mut Vec<Row>) {
    for one in job.snapshot.operators() {
        let mut add = |kind: &str, origin: Option<(u32, u32)>, summary: &LatencySummary| {
            let mut row = of_operator(job, one.node, &one.name, one.subtask);
            let origin = origin.map(|(node, subtask)| (u64::from(node), u64::from(subtask)));
            row.extend([
                kind.into(),
                origin.map(|(node, _)| node).into(),
                origin.map(|(_, subtask)| subtask).into(),
                summary.markers.into(),
                summary.p50_us.into(),
                summary.p95_us.into(),
                summary.p99_us.into(),
                summary.max_us.into(),
                summary.saturated.into(),
            ]);
            rows.push(row);
        };
        for (origin, summary) in &one.latency_by_source {
            add("marker", *origin, summary);
        }
        let times = [
            ("wait", &one.times.wait),
            ("compute", &one.times.compute),
            ("held", &one.times.held),
            ("total", &one.times.total),
        ];
        for (kind, summary) in times {
            if let Some(summary) = summary {
                add(kind, None, summary);
            }
        }
    }
}

fn windows(job: &JobStatus, rows: &mut Vec<Row>) {
    for at in &job.diagnosis.windows {
        let mut row = of_operator(job, at.node, &at.operator, at.subtask);
        row.extend([
            at.start.into(),
            at.end.into(),
            at.groups.into(),
            at.rows.into(),
            at.is_fired.into(),
            at.key.clone().into(),
            at.fires_at.into(),
            at.watermark.into(),
            at.short_us.map(millis).unwrap_or(Cell::Null),
        ]);
        row.extend(holder(at.holder.as_ref()));
        row.push(at.expected_in_us.map(millis).unwrap_or(Cell::Null));
        rows.push(row);
    }
}

fn reconciliation(job: &JobStatus, rows: &mut Vec<Row>) {
    for one in job.snapshot.operators() {
        let counts = &one.counts;
        let known =
            counts.used + counts.late + counts.null_time + counts.future + counts.filtered + counts.held;
        let difference = i128::from(one.rows_in) - i128::from(known);
        let mut row = of_operator(job, one.node, &one.name, one.subtask);
        row.extend([
            one.rows_in.into(),
            counts.used.into(),
            counts.late.into(),
            counts.null_time.into(),
            counts.future.into(),
            counts.filtered.into(),
            counts.held.into(),
            counts.partly_late.into(),
            i64::try_from(difference).unwrap_or(i64::MAX).into(),
        ]);
        rows.push(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_different_names_and_as_of_first() {
        assert!(ALL.is_sorted_by(|a, b| a.name < b.name));
        for definition in ALL {
            assert_eq!(definition.columns[0], (AS_OF, Instant), "{}", definition.name);
            let mut names: Vec<_> = definition.columns.iter().map(|(name, _)| name.to_lowercase()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), definition.columns.len(), "{}", definition.name);
        }
    }
}
