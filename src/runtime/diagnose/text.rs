//! A diagnosis as text.

use std::fmt::Write;

use chrono::DateTime;

use super::{Diagnosis, Holder, WatermarkAt, WindowAt};
use crate::stream::Watermark;

/// A moment: `2013-02-01 03:59:00.000`, UTC.
pub(crate) fn moment(us: i64) -> String {
    match DateTime::from_timestamp_micros(us) {
        Some(time) => time.format("%Y-%m-%d %H:%M:%S%.3f").to_string(),
        None => format!("{us} µs"),
    }
}

/// A length of time: `950 µs`, `1.2 ms`, `84 ms`, `2.50 s`, `5 min`, `3.0 h`, `2.0 d`.
pub(crate) fn length(us: u64) -> String {
    let us_f = us as f64;
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..10_000 => format!("{:.1} ms", us_f / 1e3),
        10_000..1_000_000 => format!("{} ms", us / 1_000),
        1_000_000..120_000_000 => format!("{:.2} s", us_f / 1e6),
        120_000_000..7_200_000_000 => format!("{:.1} min", us_f / 60e6),
        7_200_000_000..172_800_000_000 => format!("{:.1} h", us_f / 3_600e6),
        _ => format!("{:.1} d", us_f / 86_400e6),
    }
}

/// A delay as SQL: `INTERVAL '6' HOUR`.
pub(crate) fn interval(us: u64) -> String {
    let (count, unit) = in_units(us);
    let unit = ["SECOND", "MINUTE", "HOUR", "DAY"][unit];
    format!("INTERVAL '{count}' {unit}")
}

/// The same in few characters: `6 h`.
pub(crate) fn delay(us: u64) -> String {
    let (count, unit) = in_units(us);
    let unit = ["s", "min", "h", "d"][unit];
    format!("{count} {unit}")
}

/// A count of the largest unit of which there are whole ones: seconds, minutes, hours, days.
fn in_units(us: u64) -> (String, usize) {
    let ms = us.div_ceil(1_000);
    let (whole, rest) = (ms / 1_000, ms % 1_000);
    if rest > 0 {
        return (format!("{whole}.{rest:03}").trim_end_matches('0').to_owned(), 0);
    }
    let units = [(3, 86_400), (2, 3_600), (1, 60)];
    match units.into_iter().find(|(_, seconds)| whole > 0 && whole % seconds == 0) {
        Some((unit, seconds)) => ((whole / seconds).to_string(), unit),
        None => (whole.to_string(), 0),
    }
}

fn plural(count: u64, one: &str) -> String {
    if count == 1 { one.to_owned() } else { format!("{one}s") }
}

pub(super) fn watermark(watermark: Option<Watermark>) -> String {
    match watermark {
        None => "none yet".to_owned(),
        Some(Watermark::MAX) => "end of input".to_owned(),
        Some(Watermark(us)) => moment(us),
    }
}

impl Holder {
    /// `Source(t) › b.csv › 2024-05-01 09:00:00.000 (empty for 12.00 s)`.
    pub fn text(&self) -> String {
        let last = self.last_time.map_or_else(|| "no row yet".to_owned(), moment);
        format!(
            "{} › {} › {last} ({} for {})",
            self.source,
            self.split,
            self.state.name(),
            length(self.since_us)
        )
    }
}

impl WatermarkAt {
    /// One line: operator, watermark, since when, who holds it.
    pub fn text(&self) -> String {
        let mut line = format!("{}[{}]: {}", self.operator, self.subtask, watermark(self.watermark));
        if let Some(age) = self.age_us {
            let _ = write!(line, " for {}", length(age));
        }
        match &self.holder {
            Some(holder) => line + &format!(", held by {}", holder.text()),
            None => line + ", held by nobody",
        }
    }
}

impl WindowAt {
    /// One line: the window, what it waits for, who holds that back.
    pub fn text(&self) -> String {
        let kind = self.key.as_ref().map_or("window".to_owned(), |key| format!("session of {key}"));
        let rows = self.rows.map(|rows| format!(" of {rows} {}", plural(rows, "row"))).unwrap_or_default();
        let does = if self.is_fired { "has fired and takes late rows up to" } else { "fires at" };
        let mut line = format!(
            "{}[{}]: {kind} [{}, {}) with {} {}{rows} {does} watermark ≥ {}, now {}",
            self.operator,
            self.subtask,
            moment(self.start),
            moment(self.end),
            self.groups,
            plural(self.groups as u64, "group"),
            moment(self.fires_at.0),
            watermark(self.watermark)
        );
        if let Some(short) = self.short_us {
            let _ = write!(line, ", short by {}", length(short));
        }
        if let Some(holder) = &self.holder {
            let _ = write!(line, ", held by {}", holder.text());
        }
        match self.expected_in_us {
            Some(left) => line + &format!(", expected in {}", length(left)),
            None => line + ", event time stands still",
        }
    }
}

impl Diagnosis {
    /// The findings, each with what was measured and what to do; most important first.
    pub fn text(&self) -> String {
        let mut out = format!("{} (looked at {})\n", self.verdict, length(self.over_us));
        for (number, finding) in self.findings.iter().enumerate() {
            let _ = writeln!(out, "{}. {}: {}", number + 1, finding.kind.name(), finding.sentence);
            let _ = writeln!(out, "   seen: {}", finding.evidence);
            let _ = writeln!(out, "   cure: {}", finding.cure);
        }
        out
    }

    /// The load of each operator, one a line.
    pub fn loads_text(&self) -> String {
        let mut out = String::new();
        for load in &self.operators {
            let pool =
                |usage: Option<f64>| usage.map_or_else(|| "–".to_owned(), |u| format!("{:.0} %", u * 100.0));
            let _ = writeln!(
                out,
                "{}[{}]: busy {:.1} %, idle {:.1} %, back-pressured {:.1} % ({}), in {}, out {}: {}",
                load.operator,
                load.subtask,
                load.busy * 100.0,
                load.idle * 100.0,
                load.back_pressured * 100.0,
                load.pressure.name(),
                pool(load.in_pool),
                pool(load.out_pool),
                load.pool.name()
            );
        }
        out
    }

    /// How far event time is at each operator and who holds it, one a line.
    pub fn watermarks_text(&self) -> String {
        self.watermarks.iter().map(|at| at.text() + "\n").collect()
    }

    /// The open windows, one a line.
    pub fn windows_text(&self) -> String {
        match self.windows.as_slice() {
            [] => "no window is open\n".to_owned(),
            windows => windows.iter().map(|window| window.text() + "\n").collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_have_the_largest_whole_unit() {
        let second = 1_000_000;
        for (us, few, sql) in [
            (0, "0 s", "INTERVAL '0' SECOND"),
            (200_000, "0.2 s", "INTERVAL '0.2' SECOND"),
            (1, "0.001 s", "INTERVAL '0.001' SECOND"),
            (90 * second, "90 s", "INTERVAL '90' SECOND"),
            (15 * 60 * second, "15 min", "INTERVAL '15' MINUTE"),
            (6 * 3_600 * second, "6 h", "INTERVAL '6' HOUR"),
            (7 * 86_400 * second, "7 d", "INTERVAL '7' DAY"),
        ] {
            assert_eq!((delay(us).as_str(), interval(us).as_str()), (few, sql));
        }
    }
}
