//! The jobs of a session, running or done, and what is asked about them.

use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::error::{Error, code};
use crate::plan::StreamPlan;
use crate::runtime::{Diagnosis, JobSnapshot, Monitor, diagnose};
use crate::sql::{Diagnose, Key, Question};

/// Jobs that are remembered; the oldest go.
const MOST: usize = 64;
/// A snapshot that is older is not what loads are compared with.
const WINDOW_US: u64 = 10_000_000;
/// Over less than this no load is told.
const SHORTEST_US: u64 = 500_000;

/// The jobs of a session. A clone is the same set of jobs.
#[derive(Clone, Default)]
pub struct Jobs(Arc<Mutex<Content>>);

#[derive(Default)]
struct Content {
    jobs: Vec<Job>,
    started: u64,
}

/// A job as the session knows it.
#[derive(Clone)]
struct Job {
    number: u64,
    /// The tables that it writes; none: a query.
    tables: Vec<String>,
    plan: Arc<StreamPlan>,
    monitor: Monitor,
    /// What was seen of it before, the oldest first: two snapshots some seconds apart.
    seen: Vec<JobSnapshot>,
}

impl Job {
    fn name(&self) -> String {
        match self.tables.as_slice() {
            [] => "query".to_owned(),
            tables => tables.join(", "),
        }
    }

    /// What is known now, and a snapshot to compare it with.
    fn look(&mut self) -> (Option<JobSnapshot>, JobSnapshot) {
        let now = self.monitor.snapshot();
        let age = |seen: &JobSnapshot| now.elapsed_us.saturating_sub(seen.elapsed_us);
        let before = self.seen.iter().find(|seen| (SHORTEST_US..=WINDOW_US).contains(&age(seen)));
        let before = before.filter(|_| !now.is_over).cloned();
        if self.seen.last().is_none_or(|last| age(last) >= SHORTEST_US) {
            self.seen.retain(|seen| age(seen) <= WINDOW_US);
            self.seen.push(now.clone());
        }
        (before, now)
    }
}

/// A job at one moment.
#[derive(Debug, Clone)]
pub struct JobStatus {
    /// Its number in the session, from 1.
    pub number: u64,
    /// The tables that it writes, or `query`.
    pub name: String,
    /// What was measured.
    pub snapshot: JobSnapshot,
    /// What was found out.
    pub diagnosis: Diagnosis,
}

impl Jobs {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, plan: StreamPlan, tables: Vec<String>, monitor: Monitor) {
        let mut content = self.content();
        content.started += 1;
        let number = content.started;
        content.jobs.push(Job { number, tables, plan: Arc::new(plan), monitor, seen: Vec::new() });
        let more = content.jobs.len().saturating_sub(MOST);
        content.jobs.drain(..more);
    }

    /// All jobs now, the oldest first. No task waits for it.
    pub fn status(&self) -> Vec<JobStatus> {
        self.content().jobs.iter_mut().map(status).collect()
    }

    /// All jobs now, for programs.
    pub fn to_json(&self) -> Value {
        let job = |status: JobStatus| {
            json!({
                "job": status.number,
                "name": status.name,
                "snapshot": status.snapshot.to_json(),
                "diagnosis": status.diagnosis.to_json(),
            })
        };
        json!({ "jobs": self.status().into_iter().map(job).collect::<Vec<_>>() })
    }

    /// The job of that number, or the last one that writes that table; without a key the last one.
    fn find(&self, key: Option<&Key>) -> Result<JobStatus, Error> {
        let mut content = self.content();
        let matches = |job: &&mut Job| match key {
            None => true,
            Some(key) => job.number.to_string() == key.name || job.tables.contains(&key.name),
        };
        let found = content.jobs.iter_mut().rev().find(matches).map(status);
        found.ok_or_else(|| {
            let message = match key {
                None => "no job was started".to_owned(),
                Some(key) => format!("no job \"{}\"", key.name),
            };
            Error::plan(code::UNKNOWN_NAME, message)
                .at(key.map(|key| key.span))
                .hint("Use SHOW JOBS to see all of them.")
        })
    }

    /// What a statement asks about a job.
    pub(super) fn answer(&self, asked: &Diagnose) -> Result<String, Error> {
        let status = self.find(asked.job.as_ref())?;
        let diagnosis = &status.diagnosis;
        if asked.json {
            let all = diagnosis.to_json();
            let part = match asked.question {
                Question::Findings => all,
                Question::Watermark => all["watermarks"].clone(),
                Question::Window => all["windows"].clone(),
                Question::Lateness => status.snapshot.to_json()["sources"].clone(),
            };
            return Ok(format!("{part:#}\n"));
        }
        Ok(match asked.question {
            Question::Findings => diagnosis.text() + &diagnosis.loads_text(),
            Question::Watermark => diagnosis.watermarks_text(),
            Question::Window => diagnosis.windows_text(),
            Question::Lateness => lateness(&status.snapshot),
        })
    }
}

fn status(job: &mut Job) -> JobStatus {
    let (before, snapshot) = job.look();
    let diagnosis = diagnose(&job.plan, before.as_ref(), &snapshot);
    JobStatus { number: job.number, name: job.name(), snapshot, diagnosis }
}

/// The curve of each source: what a delay costs and buys.
fn lateness(snapshot: &JobSnapshot) -> String {
    let mut out = String::new();
    for source in &snapshot.sources {
        let disorder = &source.disorder;
        let _ = writeln!(
            out,
            "{}: {} of {} rows that were looked at are out of order",
            source.name, disorder.out_of_order, disorder.rows
        );
        for step in &disorder.steps {
            let seconds = step.delay_us.div_ceil(1_000) as f64 / 1e3;
            let _ = writeln!(
                out,
                "  delay {seconds} s: {:.4} % of the rows late at most; ts - INTERVAL '{seconds}' SECOND",
                step.late_share * 100.0
            );
        }
    }
    if out.is_empty() { "the job reads no table\n".to_owned() } else { out }
}
