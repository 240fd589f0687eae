//! The summary of a query or insert, in one to three lines.

use std::cmp::Reverse;
use std::time::Duration;

use chrono::DateTime;

use crate::operator::RowCounts;
use crate::runtime::JobSummary;
use crate::stream::Watermark;

/// Where more rows than one in this many are late, something is wrong with the times.
const MANY_LATE: u64 = 10;

/// The summary's lines.
pub(super) fn lines(summary: &JobSummary) -> Vec<String> {
    let mut lines = vec![totals(summary), rows(summary)];
    lines.extend(
        summary.late_rows.iter().map(|(table, rows)| format!("late rows → {table}: {}", counted(*rows))),
    );
    lines.extend(malformed(summary));
    lines
}

/// What a person should look at.
pub(super) fn warnings(summary: &JobSummary) -> Vec<String> {
    let mut warnings = Vec::new();
    if summary.late > 0 && summary.late.saturating_mul(MANY_LATE) >= summary.rows_in {
        let share = 100.0 * summary.late as f64 / summary.rows_in.max(1) as f64;
        warnings.push(format!(
            "{share:.1} % of the rows were late: the watermark had jumped ahead of them, to {}. \
             Look for rows with a time from the future, or allow more disorder in WATERMARK FOR.",
            summary.watermark.map_or_else(|| "an unknown time".to_owned(), time)
        ));
    }
    if summary.truncations > 0 {
        warnings.push(format!(
            "files were cut short {} while they were read, and read again from their start: \
             what was written to them just before may be missing",
            if summary.truncations == 1 {
                "once".to_owned()
            } else {
                format!("{} times", summary.truncations)
            }
        ));
    }
    for operator in summary.operators.iter().filter(|operator| !operator.reconciles()) {
        warnings.push(format!(
            "the rows of operator \"{}\" do not add up: {} in, but {:?}; please report it",
            operator.name, operator.rows_in, operator.counts
        ));
    }
    warnings
}

/// `26,353 rows in, 1,631 rows out, 0.214 s (123,145 rows/s), watermark …, latency p50 1.2 ms p99 3.4 ms max 5 ms`
fn totals(summary: &JobSummary) -> String {
    let mut line = format!(
        "{} in, {} out in {}",
        counted(summary.rows_in),
        counted(summary.rows_out),
        duration(summary.wall)
    );
    let seconds = summary.wall.as_secs_f64();
    if summary.rows_in > 0 && seconds > 0.0 {
        line += &format!(" ({} rows/s)", grouped((summary.rows_in as f64 / seconds) as u64));
    }
    if let Some(watermark) = summary.watermark {
        line += &format!(", watermark {}", time(watermark));
    }
    if let Some(latency) = summary.latency {
        let [p50, p99, max] =
            [latency.p50_us, latency.p99_us, latency.max_us].map(|us| duration(Duration::from_micros(us)));
        let least = if latency.saturated > 0 { "≥ " } else { "" };
        line += &format!(", latency p50 {p50} p99 {p99} max {least}{max}");
    }
    line
}

/// `1,027 late, 0 partly late, …; every row accounted for: used + late + no time + future + filtered + held = in`
fn rows(summary: &JobSummary) -> String {
    let mut line = format!("{} late, {} partly late", grouped(summary.late), grouped(summary.partly_late));
    for (count, name) in [
        (summary.null_time, "without time"),
        (summary.future, "too far ahead"),
        (summary.malformed, "malformed"),
        (summary.filtered, "filtered"),
    ] {
        if count > 0 {
            line += &format!(", {} {name}", grouped(count));
        }
    }
    line + &match summary.reconciles() {
        true => format!("; {}", identity(summary)),
        false => "; rows are NOT all accounted for".to_owned(),
    }
}

/// The operator that judges lateness shows the sum best; without one, the first that there is.
fn identity(summary: &JobSummary) -> String {
    let judged = |count: &RowCounts| count.late + count.null_time + count.future;
    let most = summary.operators.iter().enumerate().max_by_key(|(index, operator)| {
        (judged(&operator.counts), operator.counts.partly_late, operator.counts.filtered, Reverse(*index))
    });
    let Some((_, operator)) = most else {
        return "all rows accounted for".to_owned();
    };
    let counts = operator.counts;
    let terms: Vec<_> = [
        (counts.used, "used"),
        (counts.late, "late"),
        (counts.null_time, "without time"),
        (counts.future, "too far ahead"),
        (counts.filtered, "filtered"),
        (counts.held, "held"),
    ]
    .into_iter()
    .filter(|(count, name)| *count > 0 || *name == "used")
    .map(|(count, name)| format!("{} {name}", grouped(count)))
    .collect();
    format!(
        "all rows accounted for ({}: {} in = {})",
        operator.name,
        grouped(operator.rows_in),
        terms.join(" + ")
    )
}

/// The first rows that could not be read.
fn malformed(summary: &JobSummary) -> Option<String> {
    let sample = summary.rejected_samples.first()?;
    let text: String = sample.row.text.chars().take(60).flat_map(char::escape_debug).collect();
    Some(format!("first malformed row: {}:{}: {}: {text}", sample.split, sample.row.line, sample.row.reason))
}

fn counted(rows: u64) -> String {
    format!("{} {}", grouped(rows), if rows == 1 { "row" } else { "rows" })
}

/// A number with its thousands apart: `26,353`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub(super) fn duration(duration: Duration) -> String {
    let us = duration.as_micros();
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

pub(super) fn time(watermark: Watermark) -> String {
    match watermark {
        Watermark::MIN => "none yet".to_owned(),
        Watermark::MAX => "end of input".to_owned(),
        Watermark(us) => match DateTime::from_timestamp_micros(us) {
            Some(time) => time.format("%Y-%m-%d %H:%M:%S%.3f").to_string(),
            None => format!("{us} µs"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{LatencySummary, OperatorSummary};

    fn summary() -> JobSummary {
        JobSummary {
            rows_in: 26_353,
            rows_out: 1_631,
            late: 1_027,
            partly_late: 0,
            null_time: 0,
            future: 0,
            truncations: 0,
            malformed: 0,
            filtered: 0,
            watermark: Some(Watermark(1_359_687_600_000_000)),
            wall: Duration::from_millis(250),
            latency: Some(LatencySummary {
                markers: 3,
                p50_us: 950,
                p95_us: 1_100,
                p99_us: 1_250,
                max_us: 20_000,
                saturated: 0,
            }),
            rejected_samples: Vec::new(),
            operators: vec![OperatorSummary {
                node: 1,
                name: "WindowAggregate".to_owned(),
                subtasks: 2,
                rows_in: 26_353,
                rows_out: 1_631,
                counts: RowCounts { used: 25_326, late: 1_027, ..RowCounts::default() },
                latency: None,
            }],
            late_rows: Vec::new(),
            tasks: Vec::new(),
        }
    }

    #[test]
    fn a_summary_is_two_lines() {
        assert_eq!(
            lines(&summary()),
            [
                "26,353 rows in, 1,631 rows out in 250 ms (105,412 rows/s), watermark 2013-02-01 03:00:00.000, \
                 latency p50 950 µs p99 1.2 ms max 20 ms",
                "1,027 late, 0 partly late; all rows accounted for \
                 (WindowAggregate: 26,353 in = 25,326 used + 1,027 late)",
            ]
        );
        assert!(warnings(&summary()).is_empty());
    }

    #[test]
    fn rows_that_do_not_add_up_are_not_hidden() {
        let mut summary = summary();
        summary.operators[0].counts.used -= 1;
        assert!(lines(&summary)[1].contains("NOT all accounted for"));
        assert_eq!(warnings(&summary).len(), 1);
    }

    #[test]
    fn tables_of_late_rows_are_named() {
        let summary = JobSummary { late_rows: vec![("late_flights".to_owned(), 1_027)], ..summary() };
        assert_eq!(lines(&summary)[2], "late rows → late_flights: 1,027 rows");
    }

    #[test]
    fn many_late_rows_are_a_warning() {
        let summary = JobSummary { rows_in: 4, late: 2, ..summary() };
        assert!(warnings(&summary)[0].starts_with("50.0 % of the rows were late"));
        assert!(warnings(&JobSummary { rows_in: 21, late: 2, ..summary }).is_empty());
    }

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(number), text);
        }
    }
}
