//! Inserts that run beside the statements that follow them.

use std::time::{Duration, Instant};

use super::interrupt::{self, Watch};
use super::report::Report;
use super::{notes, status};
use crate::error::{Error, Phase};
use crate::session::{JobHandle, JobState};

/// The inserts of scripts whose input does not end. Signals are about them, too.
#[derive(Default)]
pub(super) struct Background {
    jobs: Vec<(JobHandle, Watch)>,
    /// When they were last looked at.
    looked_at: Option<Instant>,
}

/// Time between two looks while another job runs.
const PAUSE: Duration = Duration::from_millis(250);

impl Background {
    pub(super) fn add(&mut self, job: JobHandle) {
        let watch = interrupt::watch(job.clone());
        self.jobs.push((job, watch));
    }

    /// One that still runs.
    pub(super) fn first(&self) -> Option<&JobHandle> {
        self.jobs.first().map(|(job, _)| job)
    }

    /// Looks at them now and then, while `job` runs in the foreground.
    ///
    /// # Errors
    /// Those of [`Background::look`].
    pub(super) fn glance(&mut self, report: &mut Report, job: &JobHandle) -> Result<(), Error> {
        if self.looked_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return Ok(());
        }
        self.look(report, Some(job))
    }

    /// Sums up those that are over.
    ///
    /// # Errors
    /// What made one of them fail; too many late rows, also of those that run.
    pub(super) fn look(&mut self, report: &mut Report, job: Option<&JobHandle>) -> Result<(), Error> {
        self.looked_at = Some(Instant::now());
        let is_over = |(job, _): &(JobHandle, Watch)| job.wait_for(Duration::ZERO).is_some();
        let (over, running): (Vec<_>, Vec<_>) = self.jobs.drain(..).partition(is_over);
        self.jobs = running;
        for (job, _) in over {
            match job.wait() {
                Ok(summary) => report.summarize(&job, &summary)?,
                Err(_) if job.is_suspended() => report.suspended(&job),
                // STOP JOB has said so.
                Err(error) if error.phase() == Phase::Interrupted && !interrupt::is_interrupted() => {}
                Err(error) if error.phase() == Phase::Interrupted => return Err(interrupt::reason()),
                Err(error) => return Err(error),
            }
        }
        if report.counts_late() {
            let running = self.jobs.iter().map(|(job, _)| job).chain(job);
            report.check_late(running.map(|job| status::late(&job.metrics())).sum())?;
        }
        Ok(())
    }
}

/// How a job is called: `job 1 (out)`.
pub(super) fn called(job: &JobHandle) -> String {
    format!("job {} ({})", job.number(), job.name())
}

/// Stops jobs and says so.
pub(super) fn stop_all(jobs: &[JobHandle]) {
    jobs.iter().for_each(JobHandle::stop);
    for job in jobs {
        match job.wait_for(super::GRACE) {
            Some(Ok(_)) => notes::line(&format!("{} has finished", called(job))),
            Some(Err(error)) if error.phase() == Phase::Interrupted => {
                notes::line(&format!("stopped {}", called(job)));
            }
            Some(Err(error)) => notes::error(&error),
            None => notes::line(&format!("{} still cleans up and is left alone", called(job))),
        }
    }
}

/// The inserts of a session that run.
pub(super) fn running(jobs: &crate::session::Jobs) -> Vec<JobHandle> {
    let runs = |job: &JobHandle| {
        !job.tables().is_empty() && matches!(job.state(), JobState::Running | JobState::Draining)
    };
    jobs.handles().into_iter().filter(runs).collect()
}
