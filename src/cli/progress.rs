//! How far a job is: one line on a terminal, nothing elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::runtime::Monitor;

/// A job that is over sooner than this shows nothing.
const PATIENCE: Duration = Duration::from_millis(300);

/// Time over which the rate of an endless job is told.
const RATE_EVERY: Duration = Duration::from_millis(500);

/// The line.
pub(super) struct Progress {
    monitor: Monitor,
    is_bounded: bool,
    started: Instant,
    /// When an endless job was last looked at, and its rows then.
    seen: Option<(Instant, u64)>,
    /// Made when the job has taken some time.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// For a job that was just started.
    pub(super) fn new(monitor: Monitor, is_bounded: bool) -> Self {
        Self { monitor, is_bounded, started: Instant::now(), seen: None, bar: None }
    }

    /// Shows how far the job is now.
    pub(super) fn tick(&mut self) {
        if self.started.elapsed() < PATIENCE {
            return;
        }
        if !self.is_bounded {
            return self.tick_endless();
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

    /// Shows what an endless job does.
    fn tick_endless(&mut self) {
        let rows = self.monitor.progress().rows_in;
        let (since, before) = self.seen.unwrap_or((self.started, 0));
        let elapsed = since.elapsed();
        if self.seen.is_some() && elapsed < RATE_EVERY {
            return;
        }
        self.seen = Some((Instant::now(), rows));
        let rate = rows.saturating_sub(before) as f64 / elapsed.as_secs_f64();
        let grouped = super::summary::grouped;
        let bar = self.bar.get_or_insert_with(line);
        bar.set_message(format!("{} rows in, {} rows/s; any key stops", grouped(rows), grouped(rate as u64)));
        bar.tick();
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
    let style = ProgressStyle::with_template("{wide_bar} {percent:>3} % {bytes}/{total_bytes} {msg} {eta}");
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
