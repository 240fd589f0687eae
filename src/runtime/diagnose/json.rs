//! Diagnoses and snapshots as JSON, for programs. Times are microseconds.

use serde_json::{Value, json};

use super::super::{JobSnapshot, LatencySummary, OperatorSnapshot, SourceSnapshot, TaskSnapshot};
use super::{Diagnosis, Holder};
use crate::stream::Watermark;

fn watermark(watermark: Option<Watermark>) -> Value {
    json!(watermark.map(|watermark| watermark.0))
}

fn latency(summary: Option<LatencySummary>) -> Value {
    match summary {
        None => Value::Null,
        Some(one) => json!({
            "count": one.markers,
            "p50_us": one.p50_us,
            "p95_us": one.p95_us,
            "p99_us": one.p99_us,
            "max_us": one.max_us,
            "saturated": one.saturated,
        }),
    }
}

fn holder(holder: Option<&Holder>) -> Value {
    match holder {
        None => Value::Null,
        Some(one) => json!({
            "source": one.source,
            "split": one.split,
            "state": one.state.name(),
            "since_us": one.since_us,
            "watermark": watermark(one.watermark),
            "last_time": one.last_time,
        }),
    }
}

impl Diagnosis {
    /// All of it.
    pub fn to_json(&self) -> Value {
        let operators = self.operators.iter().map(|load| {
            json!({
                "node": load.node,
                "operator": load.operator,
                "subtask": load.subtask,
                "busy": load.busy,
                "idle": load.idle,
                "back_pressured": load.back_pressured,
                "pressure": load.pressure.name(),
                "in_pool": load.in_pool,
                "out_pool": load.out_pool,
                "pool": load.pool.name(),
                "rows_in_per_second": load.rows_in_per_second,
                "rows_out_per_second": load.rows_out_per_second,
                "bytes_in_per_second": load.bytes_in_per_second,
                "skew": load.skew,
            })
        });
        let operators: Vec<Value> = operators.collect();
        let watermarks: Vec<Value> = self
            .watermarks
            .iter()
            .map(|at| {
                json!({
                    "node": at.node,
                    "operator": at.operator,
                    "subtask": at.subtask,
                    "watermark": watermark(at.watermark),
                    "age_us": at.age_us,
                    "holder": holder(at.holder.as_ref()),
                })
            })
            .collect();
        let windows: Vec<Value> = self
            .windows
            .iter()
            .map(|at| {
                json!({
                    "node": at.node,
                    "operator": at.operator,
                    "subtask": at.subtask,
                    "start": at.start,
                    "end": at.end,
                    "groups": at.groups,
                    "rows": at.rows,
                    "is_fired": at.is_fired,
                    "key": at.key,
                    "fires_at": at.fires_at.0,
                    "watermark": watermark(at.watermark),
                    "short_us": at.short_us,
                    "holder": holder(at.holder.as_ref()),
                    "expected_in_us": at.expected_in_us,
                })
            })
            .collect();
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "kind": finding.kind.name(),
                    "sentence": finding.sentence,
                    "evidence": finding.evidence,
                    "cure": finding.cure,
                })
            })
            .collect();
        let bottleneck = self.bottleneck.as_ref().map(|found| {
            json!({
                "kind": found.kind.name(),
                "node": found.node,
                "operator": found.operator,
                "subtask": found.subtask,
                "evidence": found.evidence,
            })
        });
        json!({
            "as_of_us": self.as_of_us,
            "over_us": self.over_us,
            "verdict": self.verdict,
            "bottleneck": bottleneck,
            "operators": operators,
            "watermarks": watermarks,
            "windows": windows,
            "findings": findings,
        })
    }
}

impl JobSnapshot {
    /// All of it; times in microseconds.
    pub fn to_json(&self) -> Value {
        let channels: Vec<Value> = self
            .channels
            .iter()
            .map(|channel| {
                json!({
                    "from": channel.from,
                    "to": channel.to,
                    "late_rows": channel.is_late,
                    "rows": channel.rows,
                    "capacity_rows": channel.capacity_rows,
                    "watermark": watermark(channel.watermark),
                    "idle": channel.is_idle,
                    "ended": channel.is_ended,
                })
            })
            .collect();
        json!({
            "as_of_us": self.as_of_us,
            "elapsed_us": self.elapsed_us,
            "is_over": self.is_over,
            "tasks": self.tasks.iter().map(task).collect::<Vec<_>>(),
            "channels": channels,
            "sources": self.sources.iter().map(source).collect::<Vec<_>>(),
        })
    }
}

fn task(task: &TaskSnapshot) -> Value {
    json!({
        "name": task.name,
        "busy_us": task.busy_us,
        "idle_us": task.idle_us,
        "back_pressured_us": task.back_pressured_us,
        "total_us": task.total_us,
        "is_over": task.is_over,
        "operators": task.operators.iter().map(operator).collect::<Vec<_>>(),
    })
}

fn operator(one: &OperatorSnapshot) -> Value {
    json!({
        "node": one.node,
        "operator": one.name,
        "subtask": one.subtask,
        "numRecordsIn": one.rows_in,
        "numRecordsOut": one.rows_out,
        "numBuffersIn": one.batches_in,
        "numBuffersOut": one.batches_out,
        "numBytesIn": one.bytes_in,
        "numBytesOut": one.bytes_out,
        "busy_us": one.busy_us,
        "idle_us": one.idle_us,
        "back_pressured_us": one.back_pressured_us,
        "used": one.counts.used,
        "numLateRecordsDropped": one.counts.late,
        "partly_late": one.counts.partly_late,
        "null_time": one.counts.null_time,
        "future": one.counts.future,
        "filtered": one.counts.filtered,
        "held": one.counts.held,
        "currentInputWatermark": watermark(one.watermark_in),
        "currentOutputWatermark": watermark(one.watermark_out),
        "state_rows": one.state.rows,
        "state_bytes": one.state.bytes,
        "spilled_bytes": one.spilled_bytes,
        "windows_open": one.state.windows,
        "latency": latency(one.latency),
        "wait": latency(one.times.wait),
        "compute": latency(one.times.compute),
        "held_for_watermark": latency(one.times.held),
        "total": latency(one.times.total),
    })
}

fn source(source: &SourceSnapshot) -> Value {
    let splits: Vec<Value> = source
        .splits
        .iter()
        .map(|split| {
            json!({
                "split": split.split,
                "state": split.state.name(),
                "since_us": split.since_us,
                "idle": split.idle,
                "watermark": watermark(split.watermark),
                "rows": split.rows,
                "last_time": split.last_time,
            })
        })
        .collect();
    let steps: Vec<Value> = source
        .disorder
        .steps
        .iter()
        .map(|step| json!({ "delay_us": step.delay_us, "late_share": step.late_share }))
        .collect();
    json!({
        "node": source.node,
        "source": source.name,
        "rows_read": source.rows_read,
        "bytes_read": source.bytes_read,
        "malformed": source.dropped.malformed,
        "null_time": source.dropped.null_time,
        "future": source.dropped.future,
        "read_us": source.read_us,
        "currentFetchEventTimeLag": source.fetch_event_time_lag_us,
        "splits": splits,
        "disorder": { "rows": source.disorder.rows, "out_of_order": source.disorder.out_of_order, "steps": steps },
    })
}
