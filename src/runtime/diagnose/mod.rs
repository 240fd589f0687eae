//! Why a job is slow, why its time stands still, why a window does not fire: a function of its plan and
//! of what was measured at two moments.
//!
//! [`diagnose`] gives a [`Diagnosis`]: how busy each operator was between the moments, who holds the
//! job up, who holds event time back at each place, which windows wait for it, and what a person
//! should do, most important first.
//!
//! Invariant: no clock, no task: what is found depends on what was measured and on nothing else.

mod findings;
mod holder;
mod json;
mod load;
mod text;

use crate::plan::StreamPlan;
use crate::stream::Watermark;

use super::{JobSnapshot, SplitState};

pub use findings::{Finding, FindingKind};
pub use load::{Bottleneck, BottleneckKind, OperatorLoad, Pool, Pressure};
use text::length;
pub(crate) use text::{delay as delay_text, interval as interval_sql};
pub(crate) use text::{length as length_text, moment as moment_text};

/// What was found out about a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// When, microseconds since 1970-01-01T00:00:00Z.
    pub as_of_us: i64,
    /// Over how long loads and rates were looked at, microseconds.
    pub over_us: u64,
    /// In one sentence.
    pub verdict: String,
    /// How busy each operator was, in the order of the tasks.
    pub operators: Vec<OperatorLoad>,
    /// Who holds the job up.
    pub bottleneck: Option<Bottleneck>,
    /// How far event time is at the input of each operator, and who holds it there.
    pub watermarks: Vec<WatermarkAt>,
    /// The open windows, those that close first.
    pub windows: Vec<WindowAt>,
    /// What a person should know, most important first; ten at most.
    pub findings: Vec<Finding>,
}

/// How far event time is at a place, and why no further.
#[derive(Debug, Clone, PartialEq)]
pub struct WatermarkAt {
    /// Index of the node in the plan.
    pub node: usize,
    /// The operator.
    pub operator: String,
    /// Which of its subtasks.
    pub subtask: usize,
    /// The watermark of its input; `None` before the first.
    pub watermark: Option<Watermark>,
    /// For how long it is what it is, microseconds.
    pub age_us: Option<u64>,
    /// Who holds it; `None` where nobody does: all inputs have ended or are idle.
    pub holder: Option<Holder>,
}

/// A split that holds event time back: none of those that count is behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The source, as the plan names it: `Source(t)`.
    pub source: String,
    /// The split; empty for rows that stand in the query.
    pub split: String,
    /// What it does.
    pub state: SplitState,
    /// For how long, microseconds.
    pub since_us: u64,
    /// How far its event time has come.
    pub watermark: Option<Watermark>,
    /// The event time of its last row.
    pub last_time: Option<i64>,
}

/// An open window, and what it waits for.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowAt {
    /// Index of the node in the plan.
    pub node: usize,
    /// The operator that holds it.
    pub operator: String,
    /// Which of its subtasks.
    pub subtask: usize,
    /// Its start, microseconds on the clock that cuts windows.
    pub start: i64,
    /// Its end, microseconds on the clock that cuts windows.
    pub end: i64,
    /// Groups that it has.
    pub groups: usize,
    /// Rows of them, where they are known.
    pub rows: Option<u64>,
    /// It has fired, and takes late rows until the watermark `fires_at`.
    pub is_fired: bool,
    /// Of a session, whose it is.
    pub key: Option<String>,
    /// It fires at this watermark, UTC.
    pub fires_at: Watermark,
    /// The watermark now.
    pub watermark: Option<Watermark>,
    /// How much is missing, microseconds.
    pub short_us: Option<u64>,
    /// Who holds the watermark.
    pub holder: Option<Holder>,
    /// When it fires if event time goes on as it did, microseconds from now; `None`: it stands still.
    pub expected_in_us: Option<u64>,
}

/// In a shorter time somebody is always the last.
const SHORTEST_US: u64 = 500_000;

/// Finds out what is wrong with a job between two moments. `before`: an earlier snapshot; without one,
/// the job's start.
pub fn diagnose(plan: &StreamPlan, before: Option<&JobSnapshot>, now: &JobSnapshot) -> Diagnosis {
    let operators = load::loads(before, now);
    let over_us = now.elapsed_us.saturating_sub(before.map_or(0, |before| before.elapsed_us));
    let bottleneck = load::bottleneck(before, now, &operators).filter(|_| over_us >= SHORTEST_US);
    let watermarks = holder::watermarks(now);
    let windows = holder::windows(before, now, over_us);
    let findings = findings::find(plan, before, now, bottleneck.as_ref(), &windows);
    let verdict = match findings.first() {
        Some(finding) => finding.sentence.clone(),
        None if now.is_over => "the job is done; nothing held it up".to_owned(),
        None => "nothing holds the job up".to_owned(),
    };
    Diagnosis {
        as_of_us: now.as_of_us,
        over_us,
        verdict,
        operators,
        bottleneck,
        watermarks,
        windows,
        findings,
    }
}
