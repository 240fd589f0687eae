//! The metrics of all jobs as OpenMetrics text.

use std::fmt::Write;

use super::Jobs;
use super::jobs::JobStatus;
use crate::runtime::{CheckpointStatus, LatencySummary, OperatorLoad, OperatorSnapshot};

/// The media type of the text.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;

/// A metric and its samples.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: Vec<(&'static str, Labels, f64)>,
}

impl Jobs {
    /// What is measured of all jobs, as OpenMetrics 1.0 text; the names start with `tidegate_`, the
    /// labels are `job`, `operator`, `node` and `subtask`; of checkpoints `job` alone.
    ///
    /// Source: OpenMetrics, version 1.0.
    pub fn to_open_metrics(&self) -> String {
        let jobs = self.status();
        let mut out = String::new();
        let families = operators(&jobs).into_iter().chain(sources(&jobs)).chain(checkpoints(&jobs));
        for family in families.filter(|family| !family.samples.is_empty()) {
            let _ = writeln!(out, "# TYPE {} {}", family.name, family.kind);
            let _ = writeln!(out, "# HELP {} {}", family.name, family.help);
            for (suffix, labels, value) in &family.samples {
                let labels: Vec<_> =
                    labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
                let _ = writeln!(out, "{}{suffix}{{{}}} {value}", family.name, labels.join(","));
            }
        }
        out + "# EOF\n"
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn labels(job: &JobStatus, operator: &OperatorSnapshot) -> Labels {
    vec![
        ("job", job.number.to_string()),
        ("operator", operator.name.clone()),
        ("node", operator.node.to_string()),
        ("subtask", operator.subtask.to_string()),
    ]
}

type Read = fn(&OperatorSnapshot) -> Option<f64>;

/// Counters: name, help, value.
const COUNTERS: &[(&str, &str, Read)] = &[
    ("tidegate_records_in", "Rows that came in (numRecordsIn).", |one| Some(one.rows_in as f64)),
    ("tidegate_records_out", "Rows that went out (numRecordsOut).", |one| Some(one.rows_out as f64)),
    ("tidegate_buffers_in", "Batches that came in (numBuffersIn).", |one| Some(one.batches_in as f64)),
    ("tidegate_buffers_out", "Batches that went out (numBuffersOut).", |one| Some(one.batches_out as f64)),
    ("tidegate_bytes_in", "Bytes that came in, about (numBytesIn).", |one| Some(one.bytes_in as f64)),
    ("tidegate_bytes_out", "Bytes that went out, about (numBytesOut).", |one| Some(one.bytes_out as f64)),
    ("tidegate_late_records_dropped", "Rows late for all of their windows (numLateRecordsDropped).", |one| {
        Some(one.counts.late as f64)
    }),
    ("tidegate_null_time_records", "Rows without event time.", |one| Some(one.counts.null_time as f64)),
    ("tidegate_future_records", "Rows too far ahead of their arrival.", |one| Some(one.counts.future as f64)),
    ("tidegate_filtered_records", "Rows removed by conditions and limits.", |one| {
        Some(one.counts.filtered as f64)
    }),
    ("tidegate_busy_seconds", "Time in which the operator worked.", |one| Some(one.busy_us as f64 / 1e6)),
    ("tidegate_idle_seconds", "Time without rows.", |one| Some(one.idle_us as f64 / 1e6)),
    ("tidegate_back_pressured_seconds", "Time in which rows could not be given on.", |one| {
        Some(one.back_pressured_us as f64 / 1e6)
    }),
];

/// Gauges: name, help, value.
const GAUGES: &[(&str, &str, Read)] = &[
    ("tidegate_input_watermark_seconds", "Event time of the input (currentInputWatermark).", |one| {
        one.watermark_in.map(|watermark| watermark.0 as f64 / 1e6)
    }),
    ("tidegate_output_watermark_seconds", "Event time of the output (currentOutputWatermark).", |one| {
        one.watermark_out.map(|watermark| watermark.0 as f64 / 1e6)
    }),
    ("tidegate_state_rows", "Groups or rows that are kept.", |one| Some(one.state.rows as f64)),
    ("tidegate_state_bytes", "Memory that is kept, about.", |one| Some(one.state.bytes as f64)),
    ("tidegate_spilled_bytes", "State that is on disk.", |one| Some(one.spilled_bytes as f64)),
    ("tidegate_windows_open", "Open windows, slices or sessions.", |one| Some(one.state.windows as f64)),
];

/// What the load of an operator says of one metric.
type ReadLoad = fn(&OperatorLoad) -> Option<f64>;

/// Gauges of the load: name, help, value.
const LOADS: &[(&str, &str, ReadLoad)] = &[
    ("tidegate_busy_ratio", "Share of the time in which it worked, of late.", |load| Some(load.busy)),
    ("tidegate_idle_ratio", "Share of the time without rows, of late.", |load| Some(load.idle)),
    (
        "tidegate_back_pressured_ratio",
        "Share of the time in which rows could not be given on, of late.",
        |load| Some(load.back_pressured),
    ),
    ("tidegate_records_in_per_second", "Rows a second that come in, of late.", |load| {
        Some(load.rows_in_per_second)
    }),
    ("tidegate_records_out_per_second", "Rows a second that go out, of late.", |load| {
        Some(load.rows_out_per_second)
    }),
    ("tidegate_in_pool_usage", "Rows that wait before it, of those that may (inPoolUsage).", |load| {
        load.in_pool
    }),
    ("tidegate_out_pool_usage", "Rows that wait behind it, of those that may (outPoolUsage).", |load| {
        load.out_pool
    }),
    ("tidegate_skew", "Rows of the largest subtask, of the mean.", |load| Some(load.skew)),
];

fn operators(jobs: &[JobStatus]) -> Vec<Family> {
    let each = |read: Read, suffix: &'static str| {
        let mut samples = Vec::new();
        for job in jobs {
            for operator in job.snapshot.operators() {
                samples.extend(read(operator).map(|value| (suffix, labels(job, operator), value)));
            }
        }
        samples
    };
    let mut families = Vec::new();
    for (name, help, read) in COUNTERS {
        families.push(Family { name, kind: "counter", help, samples: each(*read, "_total") });
    }
    for (name, help, read) in GAUGES {
        families.push(Family { name, kind: "gauge", help, samples: each(*read, "") });
    }
    for (name, help, read) in LOADS {
        let mut samples = Vec::new();
        for job in jobs {
            for (operator, load) in job.snapshot.operators().zip(&job.diagnosis.operators) {
                samples.extend(read(load).map(|value| ("", labels(job, operator), value)));
            }
        }
        families.push(Family { name, kind: "gauge", help, samples });
    }
    families.push(latency(jobs));
    families
}

fn latency(jobs: &[JobStatus]) -> Family {
    let mut samples = Vec::new();
    for job in jobs {
        for operator in job.snapshot.operators() {
            let Some(summary) = operator.latency else { continue };
            let LatencySummary { markers, p50_us, p95_us, p99_us, .. } = summary;
            for (quantile, us) in [("0.5", p50_us), ("0.95", p95_us), ("0.99", p99_us)] {
                let mut labels = labels(job, operator);
                labels.push(("quantile", quantile.to_owned()));
                samples.push(("", labels, us as f64 / 1e6));
            }
            samples.push(("_count", labels(job, operator), markers as f64));
        }
    }
    Family {
        name: "tidegate_latency_seconds",
        kind: "summary",
        help: "From the read of rows to the operator, by latency markers.",
        samples,
    }
}

fn sources(jobs: &[JobStatus]) -> Vec<Family> {
    let mut lags = Vec::new();
    let mut watermark_lags = Vec::new();
    let mut splits = Vec::new();
    for job in jobs {
        for source in &job.snapshot.sources {
            let labels = |split: Option<&str>| {
                let mut labels = vec![("job", job.number.to_string()), ("operator", source.name.clone())];
                labels.extend(split.map(|split| ("split", split.to_owned())));
                labels
            };
            lags.extend(source.fetch_event_time_lag_us.map(|lag| ("", labels(None), lag as f64 / 1e6)));
            for split in &source.splits {
                splits.push(("", labels(Some(&split.split)), split.rows as f64));
                watermark_lags.extend(split.watermark.map(|watermark| {
                    let lag = job.snapshot.as_of_us.saturating_sub(watermark.0);
                    ("", labels(Some(&split.split)), lag as f64 / 1e6)
                }));
            }
        }
    }
    vec![
        Family {
            name: "tidegate_fetch_event_time_lag_seconds",
            kind: "gauge",
            help: "How far behind the clock rows are when they are read (currentFetchEventTimeLag).",
            samples: lags,
        },
        Family {
            name: "tidegate_watermark_lag_seconds",
            kind: "gauge",
            help: "How far behind the clock the watermark of a split is (watermarkLag).",
            samples: watermark_lags,
        },
        Family {
            name: "tidegate_split_records",
            kind: "gauge",
            help: "Rows that were read of a split.",
            samples: splits,
        },
    ]
}

/// What is known of the checkpoints of a job says of one metric.
type ReadCheckpoints = fn(&JobStatus, &CheckpointStatus) -> Option<f64>;

/// Name, suffix of its samples, help, value. One that was never whole has no age and no size.
const CHECKPOINTS: &[(&str, &str, &str, ReadCheckpoints)] = &[
    (
        "tidegate_checkpoints_completed",
        "_total",
        "Checkpoints of this run that were written (numberOfCompletedCheckpoints).",
        |_, all| Some(all.completed as f64),
    ),
    (
        "tidegate_checkpoints_failed",
        "_total",
        "Checkpoints of this run that could not be written (numberOfFailedCheckpoints).",
        |_, all| Some(all.failed as f64),
    ),
    ("tidegate_last_checkpoint_id", "", "Number of the last one (lastCompletedCheckpointId).", |_, all| {
        all.last.map(|number| number as f64)
    }),
    ("tidegate_last_checkpoint_age_seconds", "", "How long ago the last one was taken.", |job, _| {
        job.checkpoint_age_us().map(|us| us as f64 / 1e6)
    }),
    (
        "tidegate_last_checkpoint_duration_seconds",
        "",
        "From the cut until all of the last one was written (lastCheckpointDuration).",
        |_, all| of_last(all, all.last_duration_us),
    ),
    ("tidegate_last_checkpoint_size_bytes", "", "Size of the last one (lastCheckpointSize).", |_, all| {
        all.last.map(|_| all.last_bytes as f64)
    }),
    (
        "tidegate_last_checkpoint_gather_seconds",
        "",
        "Until the last task stood still for the last one (checkpointAlignmentTime).",
        |_, all| of_last(all, all.last_gather_us),
    ),
    ("tidegate_longest_checkpoint_gather_seconds", "", "The longest of these times.", |_, all| {
        of_last(all, all.longest_gather_us)
    }),
    (
        "tidegate_last_checkpoint_tell_seconds",
        "",
        "From then on, until tasks had told what they keep for the last one.",
        |_, all| of_last(all, all.last_tell_us),
    ),
    ("tidegate_longest_checkpoint_tell_seconds", "", "The longest of these times.", |_, all| {
        of_last(all, all.longest_tell_us)
    }),
];

fn of_last(status: &CheckpointStatus, us: u64) -> Option<f64> {
    status.last.map(|_| us as f64 / 1e6)
}

/// Of jobs that take none there are no samples.
fn checkpoints(jobs: &[JobStatus]) -> Vec<Family> {
    let each = |read: ReadCheckpoints, suffix: &'static str| {
        let sample = |job: &JobStatus| {
            let value = read(job, job.checkpoints.as_ref()?)?;
            Some((suffix, vec![("job", job.number.to_string())], value))
        };
        jobs.iter().filter_map(sample).collect()
    };
    let family =
        |(name, suffix, help, read): &(&'static str, &'static str, &'static str, ReadCheckpoints)| {
            let kind = if suffix.is_empty() { "gauge" } else { "counter" };
            Family { name, kind, help, samples: each(*read, suffix) }
        };
    CHECKPOINTS.iter().map(family).collect()
}
