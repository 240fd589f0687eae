//! What a job without end does now, in one line.

use crate::runtime::JobSnapshot;
use crate::stream::Watermark;

use super::summary::{duration, grouped, time};
use std::time::Duration;

/// A share of time above this is worth a word: the limits of back-pressure.
const LOW: f64 = 0.10;
const HIGH: f64 = 0.50;

/// `12,345 rows/s in, 17 out, watermark … (3.00 s behind), 5 late, p99 1.2 ms, back-pressure LOW`
///
/// Rates and back-pressure are those between two looks.
pub(super) fn line(before: &JobSnapshot, now: &JobSnapshot) -> String {
    let seconds = now.elapsed_us.saturating_sub(before.elapsed_us).max(1) as f64 / 1e6;
    let rate = |count: fn(&JobSnapshot) -> u64| {
        grouped((count(now).saturating_sub(count(before)) as f64 / seconds) as u64)
    };
    let mut line = format!("{} rows/s in, {} out", rate(rows_in), rate(rows_out));
    if let Some(watermark) = watermark(now) {
        line += &format!(", watermark {}", time(watermark));
        let behind = now.as_of_us.saturating_sub(watermark.0);
        if behind > 0 {
            line += &format!(" ({} behind)", lag(behind.unsigned_abs()));
        }
    }
    line += &format!(", {} late", grouped(late(now)));
    if let Some(latency) = sinks(now).filter_map(|sink| sink.latency).max_by_key(|latency| latency.p99_us) {
        line += &format!(", p99 {}", duration(Duration::from_micros(latency.p99_us)));
    }
    let pressure = pressure(before, now);
    let word = if pressure > HIGH {
        "HIGH"
    } else if pressure > LOW {
        "LOW"
    } else {
        "OK"
    };
    line + &format!(", back-pressure {word}")
}

fn rows_in(job: &JobSnapshot) -> u64 {
    job.sources.iter().map(|source| source.rows_read).sum()
}

fn rows_out(job: &JobSnapshot) -> u64 {
    sinks(job).map(|sink| sink.rows_in).sum()
}

/// The last operators of the tasks that nobody reads from.
fn sinks(job: &JobSnapshot) -> impl Iterator<Item = &crate::runtime::OperatorSnapshot> {
    let gives = |task: usize| {
        job.channels.iter().any(|channel| channel.from == task && channel.to.is_some() && !channel.is_late)
    };
    let tasks = job.tasks.iter().enumerate().filter(move |(index, task)| !task.is_late && !gives(*index));
    tasks.filter_map(|(_, task)| task.operators.last())
}

/// How far event time has come at the sinks.
fn watermark(job: &JobSnapshot) -> Option<Watermark> {
    sinks(job).filter_map(|sink| sink.watermark_in.or(sink.watermark_out)).min()
}

fn late(job: &JobSnapshot) -> u64 {
    job.tasks.iter().flat_map(|task| &task.operators).map(|operator| operator.counts.late).sum()
}

/// The largest share of its time that a task could not give its rows.
fn pressure(before: &JobSnapshot, now: &JobSnapshot) -> f64 {
    let share = |(index, task): (usize, &crate::runtime::TaskSnapshot)| {
        let was = before.tasks.get(index).map_or((0, 0), |task| (task.back_pressured_us, task.total_us));
        let total = task.total_us.saturating_sub(was.1).max(1);
        task.back_pressured_us.saturating_sub(was.0) as f64 / total as f64
    };
    now.tasks.iter().enumerate().map(share).fold(0.0, f64::max)
}

/// A time in few characters: `3.20 s`, `4 min`, `2 h`, `11 years`.
fn lag(us: u64) -> String {
    let seconds = us / 1_000_000;
    match seconds {
        0..120 => duration(Duration::from_micros(us)),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        172_800..63_072_000 => format!("{} days", seconds / 86_400),
        _ => format!("{} years", seconds / 31_536_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Outcome, Session};

    #[test]
    fn times_are_short() {
        let second = 1_000_000;
        for (us, text) in [
            (900, "900 µs"),
            (3 * second + 200_000, "3.20 s"),
            (150 * second, "2 min"),
            (3 * 3_600 * second, "3 h"),
            (3 * 86_400 * second, "3 days"),
            (4 * 31_536_000 * second, "4 years"),
        ] {
            assert_eq!(lag(us), text);
        }
    }

    #[test]
    fn a_job_in_a_line() {
        let script =
            "CREATE TABLE ticks (ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen',
            'number-of-rows' = '3000', 'fields.ts.start' = '2024-01-01 00:00:00', 'fields.ts.step' = '1 s');
            SELECT ts FROM ticks;";
        let mut session = Session::new();
        session.set("execution.parallelism", "1").expect("a setting");
        for statement in session.parse("test", script).expect("parses") {
            let Outcome::Query(mut query) = session.execute(&statement).expect("runs") else { continue };
            let job = query.job().clone();
            while query.next_batch().expect("runs").is_some() {}
            query.finish().expect("ends");
            let now = JobSnapshot { elapsed_us: 1_000_000, ..job.metrics() };
            let before = JobSnapshot { elapsed_us: 0, sources: Vec::new(), ..now.clone() };
            let line = line(&before, &now);
            assert!(
                line.starts_with("3,000 rows/s in, 0 out, watermark 2024-01-01 00:49:59.000 ("),
                "{line}"
            );
            assert!(line.contains(", 0 late, p99 ") && line.contains("back-pressure "), "{line}");
        }
    }
}
