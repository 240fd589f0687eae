//! How far a job is: one line on a terminal, nothing elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::status;
use crate::runtime::{JobSnapshot, Monitor};

/// A job that is over sooner than this shows nothing.
const PATIENCE: Duration = Duration::from_millis(300);

/// Time over which the rate of an endless job is told.
const RATE_EVERY: Duration = Duration::from_millis(500);

/// What is shown of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// How much of its input it has read.
    Bounded,
    /// What it does now; a key stops it.
    UntilKey,
    /// What it does now; Ctrl-C stops it.
    Endless,
}

/// The line.
pub(super) struct Progress {
    monitor: Monitor,
    shown: Shown,
    started: Instant,
    /// When an endless job was last looked at, and what it had done then.
    seen: Option<(Instant, JobSnapshot)>,
    /// Made when the job has taken some time.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// For a job that was just started.
    pub(super) fn new(monitor: Monitor, shown: Shown) -> Self {
        Self { monitor, shown, started: Instant::now(), seen: None, bar: None }
    }

    /// Shows how far the job is now.
    pub(super) fn tick(&mut self) {
        if self.started.elapsed() < PATIENCE {
            return;
        }
        let how = match self.shown {
            Shown::Bounded => None,
            Shown::UntilKey => Some("any key stops"),
            Shown::Endless => Some("Ctrl-C stops"),
        };
        if let Some(how) = how {
            return self.tick_endless(how);
        }
        let progress = self.monitor.progress();
        let Some(bytes_total) = progress.bytes_total.filter(|total| *total > 0) else {
            return;
        };
        let bar = self.bar.get_or_insert_with(bar);
        bar.set_length(bytes_total);
        bar.set_position(progress.bytes_read.min(bytes_total));
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = super::summary::grouped((progress.rows_in as f64 / seconds) as u64);
        bar.set_message(format!("{} rows, {rate} rows/s", super::summary::grouped(progress.rows_in)));
    }

    /// Shows what an endless job does.
    fn tick_endless(&mut self, how: &str) {
        if self.seen.as_ref().is_some_and(|(since, _)| since.elapsed() < RATE_EVERY) {
            return;
        }
        let now = self.monitor.snapshot();
        if let Some((_, before)) = &self.seen {
            let bar = self.bar.get_or_insert_with(line);
            bar.set_message(format!("{how}; {}", status::line(before, &now)));
            bar.tick();
        }
        self.seen = Some((Instant::now(), now));
    }

    /// Takes the line away while something else is written.
    pub(super) fn hidden<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A line of text.
fn line() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    match ProgressStyle::with_template("{wide_msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn bar() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{wide_bar} {percent:>3} % {bytes}/{total_bytes}, {msg}, {eta} left");
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
