//! What is told of jobs that are over, and how many late rows are allowed.

use std::collections::BTreeMap;

use serde_json::json;

use super::args::{RunArgs, SummaryFormat};
use super::background::called;
use super::{notes, summary};
use crate::error::{Error, code};
use crate::runtime::JobSummary;
use crate::session::JobHandle;

/// Tells of jobs on standard error.
pub(super) struct Report {
    /// Errors only.
    is_quiet: bool,
    format: SummaryFormat,
    /// `--fail-on-late`.
    most_late: Option<u64>,
    /// Late rows of the jobs that are over.
    late: u64,
    has_suspended: bool,
    /// Jobs whose last checkpoint could not be written, and why, as far as it was told.
    failing: BTreeMap<u64, String>,
}

impl Report {
    pub(super) fn new(args: &RunArgs) -> Self {
        Self {
            is_quiet: args.quiet,
            format: args.summary,
            most_late: args.fail_on_late,
            late: 0,
            has_suspended: false,
            failing: BTreeMap::new(),
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// A note that is no error.
    pub(super) fn note(&self, text: &str) {
        if !self.is_quiet {
            notes::line(text);
        }
    }

    pub(super) fn warn(&self, warnings: &[String]) {
        if !self.is_quiet {
            warnings.iter().for_each(|warning| notes::warning(warning));
        }
    }

    /// An insert has begun: what a person should know of it, and what checkpoints can't promise.
    pub(super) fn begun(&self, job: &JobHandle) {
        self.warn(job.warnings());
        if let Some(guarantee) = job.guarantee().filter(|guarantee| !guarantee.tables.is_empty()) {
            self.note(&format!("guarantee of {}: {}", called(job), guarantee.text));
        }
    }

    /// Tells when the checkpoints of a job that runs can't be written any more, and when they can again.
    pub(super) fn look_at_checkpoints(&mut self, job: &JobHandle) {
        let Some(status) = job.checkpoints() else { return };
        let before = self.failing.get(&job.number());
        match status.failure {
            Some(why) if before != Some(&why) => {
                let stands = status.last.map(|last| format!("; checkpoint {last} stays")).unwrap_or_default();
                self.warn(&[format!("{} goes on without checkpoints: {why}{stands}", called(job))]);
                self.failing.insert(job.number(), why);
            }
            None if before.is_some() => {
                self.failing.remove(&job.number());
                self.note(&format!("{} has checkpoints again", called(job)));
            }
            Some(_) | None => {}
        }
    }

    /// What is to be known of the checkpoints of a job that is over.
    fn sum_up_checkpoints(&self, job: &JobHandle) {
        if let Some(checkpoints) = job.checkpoints().filter(|status| status.failed > 0) {
            let why = checkpoints.failure.map(|why| format!(", the last one: {why}")).unwrap_or_default();
            self.warn(&[format!("{} checkpoints could not be written{why}", checkpoints.failed)]);
        }
    }

    /// A job was stopped behind a checkpoint.
    pub(super) fn suspended(&mut self, job: &JobHandle) {
        self.has_suspended = true;
        self.sum_up_checkpoints(job);
        let number = job.checkpoints().and_then(|status| status.last).unwrap_or_default();
        self.note(&format!(
            "{} was stopped behind its checkpoint {number}; the same command with --resume goes on from there",
            called(job)
        ));
    }

    /// Whether a job was stopped behind a checkpoint: what follows it is for the run that goes on.
    pub(super) fn has_suspended(&self) -> bool {
        self.has_suspended
    }

    /// Sums a job up.
    ///
    /// # Errors
    /// `R008` if more rows were late than are allowed.
    pub(super) fn summarize(&mut self, job: &JobHandle, summary: &JobSummary) -> Result<(), Error> {
        if !self.is_quiet {
            match self.format {
                SummaryFormat::Text => {
                    summary::lines(summary).iter().for_each(|line| notes::line(line));
                    self.warn(&summary::warnings(summary));
                }
                SummaryFormat::Json => {
                    let mut all = json!({ "job": job.number(), "name": job.name() });
                    if let Some(status) = job.checkpoints() {
                        all["checkpoints"] = status.to_json();
                    }
                    if let (Some(all), serde_json::Value::Object(more)) =
                        (all.as_object_mut(), summary.to_json())
                    {
                        all.extend(more);
                        all.insert("warnings".to_owned(), summary::warnings(summary).into());
                    }
                    notes::line(&all.to_string());
                }
            }
        }
        self.sum_up_checkpoints(job);
        self.late += summary.late;
        self.check_late(0)
    }

    /// Whether late rows are counted while jobs run.
    pub(super) fn counts_late(&self) -> bool {
        self.most_late.is_some()
    }

    /// `running`: late rows of jobs that still run.
    ///
    /// # Errors
    /// `R008` if more rows were late than are allowed.
    pub(super) fn check_late(&self, running: u64) -> Result<(), Error> {
        let late = self.late + running;
        match self.most_late {
            Some(most) if late > most => {
                let rows = if late == 1 { "row was" } else { "rows were" };
                let message =
                    format!("{} {rows} late, and --fail-on-late allows {most}", summary::grouped(late));
                Err(Error::run(code::TOO_MANY_LATE, message)
                    .hint("Keep them with LATE ROWS INTO, or ask EXPLAIN LATENESS which delay they need."))
            }
            _ => Ok(()),
        }
    }
}
