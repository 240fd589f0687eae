//! How far a bounded input is: one line on a terminal, nothing elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::runtime::Monitor;

/// A job that is over sooner than this shows nothing.
const PATIENCE: Duration = Duration::from_millis(300);

/// The line.
pub(super) struct Progress {
    monitor: Monitor,
    started: Instant,
    /// Made when the job has taken some time.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// For a job that was just started.
    pub(super) fn new(monitor: Monitor) -> Self {
        Self { monitor, started: Instant::now(), bar: None }
    }

    /// Shows how far the job is now.
    pub(super) fn tick(&mut self) {
        if self.started.elapsed() < PATIENCE {
            return;
        }
        let progress = self.monitor.progress();
        let Some(bytes_total) = progress.bytes_total.filter(|total| *total > 0) else {
            return;
        };
        let bar = self.bar.get_or_insert_with(bar);
        bar.set_length(bytes_total);
        bar.set_position(progress.bytes_read.min(bytes_total));
        bar.set_message(format!("{} rows", super::summary::grouped(progress.rows_in)));
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

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {percent:>3} % {bytes}/{total_bytes} {msg} {eta}");
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
