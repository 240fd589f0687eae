//! The options of a table that the planner itself reads.

use crate::catalog::{NullTime, OptionEntry, Options};
use crate::error::{Error, code, did_you_mean};
use crate::plan::Alignment;

const PREFIX: &str = "scan.watermark.";
const IDLE_TIMEOUT: &str = "scan.watermark.idle-timeout";
const NULL_TIME: &str = "scan.watermark.null-time";
const EMIT_STRATEGY: &str = "scan.watermark.emit.strategy";
const ALIGNMENT_GROUP: &str = "scan.watermark.alignment.group";
const MAX_DRIFT: &str = "scan.watermark.alignment.max-drift";
const UPDATE_INTERVAL: &str = "scan.watermark.alignment.update-interval";

/// How often a source that waits for others of its group looks again.
const DEFAULT_UPDATE_INTERVAL_US: i64 = 20_000;

/// What the options say about event time.
#[derive(Debug, Default)]
pub(in crate::plan) struct TimeOptions {
    /// `'scan.watermark.idle-timeout'`, microseconds, > 0.
    pub(in crate::plan) idle_after_us: Option<i64>,
    /// `'scan.watermark.null-time'`.
    pub(in crate::plan) null_time: NullTime,
    /// `'scan.watermark.emit.strategy' = 'on-periodic'`.
    pub(in crate::plan) periodic: bool,
    /// `'scan.watermark.alignment.…'`.
    pub(in crate::plan) alignment: Option<Alignment>,
}

impl TimeOptions {
    /// Reads them; `has_watermark`: whether the table declares one.
    ///
    /// # Errors
    /// `C001` for an unknown key, `C002` for a value that can't be used, `C006` without a watermark.
    pub(in crate::plan) fn read(options: &Options, has_watermark: bool) -> Result<Self, Error> {
        let mut read = Self::default();
        let (mut group, mut max_drift, mut update_interval) = (None, None, None);
        for entry in options.entries().iter().filter(|entry| entry.key.starts_with(PREFIX)) {
            match entry.key.as_str() {
                IDLE_TIMEOUT => read.idle_after_us = Some(positive_duration(entry)?),
                NULL_TIME => read.null_time = null_time(entry)?,
                EMIT_STRATEGY => read.periodic = is_periodic(entry)?,
                ALIGNMENT_GROUP => group = Some(entry),
                MAX_DRIFT => max_drift = Some((entry, positive_duration(entry)?)),
                UPDATE_INTERVAL => update_interval = Some((entry, positive_duration(entry)?)),
                key => {
                    let error = Error::plan(code::UNKNOWN_OPTION, format!("unknown option \"{key}\""))
                        .at(entry.key_span);
                    let known =
                        [IDLE_TIMEOUT, NULL_TIME, EMIT_STRATEGY, ALIGNMENT_GROUP, MAX_DRIFT, UPDATE_INTERVAL];
                    return Err(match did_you_mean(key, known) {
                        Some(near) => error.hint(format!("Use '{near}'.")),
                        None => error.hint(format!("Use one of {}.", known.join(", "))),
                    });
                }
            }
            if !has_watermark {
                let message = format!("the option \"{}\" has no effect without a WATERMARK", entry.key);
                return Err(Error::plan(code::INVALID_TABLE, message)
                    .at(entry.key_span)
                    .hint("Declare one: WATERMARK FOR ts AS ts - INTERVAL '5' SECOND."));
            }
        }
        read.alignment = alignment(group, max_drift, update_interval)?;
        Ok(read)
    }
}

/// The group and how far its tables may drift apart go together.
fn alignment(
    group: Option<&OptionEntry>,
    max_drift: Option<(&OptionEntry, i64)>,
    update_interval: Option<(&OptionEntry, i64)>,
) -> Result<Option<Alignment>, Error> {
    let lacks = |entry: &OptionEntry, other: &str, example: &str| {
        Err(Error::plan(code::MISSING_OPTION, format!("the option \"{}\" needs \"{other}\"", entry.key))
            .at(entry.key_span)
            .hint(format!("Add '{other}' = '{example}'.")))
    };
    match (group, max_drift) {
        (Some(group), Some(_)) if group.value.trim().is_empty() => Err(wrong(group, "the name of a group")),
        (Some(group), Some((_, max_drift_us))) => Ok(Some(Alignment {
            group: group.value.clone(),
            max_drift_us,
            update_interval_us: update_interval.map_or(DEFAULT_UPDATE_INTERVAL_US, |(_, us)| us),
        })),
        (Some(group), None) => lacks(group, MAX_DRIFT, "1 min"),
        (None, Some((entry, _))) => lacks(entry, ALIGNMENT_GROUP, "one"),
        (None, None) => match update_interval {
            Some((entry, _)) => lacks(entry, ALIGNMENT_GROUP, "one"),
            None => Ok(None),
        },
    }
}

fn null_time(entry: &OptionEntry) -> Result<NullTime, Error> {
    match entry.value.to_ascii_lowercase().as_str() {
        "fail" => Ok(NullTime::Fail),
        "side" => Ok(NullTime::Side),
        "skip" => Ok(NullTime::Skip),
        _ => Err(wrong(entry, "fail, side or skip")),
    }
}

fn is_periodic(entry: &OptionEntry) -> Result<bool, Error> {
    match entry.value.to_ascii_lowercase().as_str() {
        "on-event" => Ok(false),
        "on-periodic" => Ok(true),
        _ => Err(wrong(entry, "on-event or on-periodic")),
    }
}

fn wrong(entry: &OptionEntry, allowed: &str) -> Error {
    let message = format!("the option \"{}\" must be {allowed}, not \"{}\"", entry.key, entry.value);
    Error::plan(code::INVALID_OPTION, message).at(entry.value_span)
}

fn positive_duration(entry: &OptionEntry) -> Result<i64, Error> {
    duration_us(&entry.value)
        .filter(|us| *us > 0)
        .ok_or_else(|| wrong(entry, "a duration longer than zero, such as '30 s' or '1 min'"))
}

/// A duration such as `30 s`, `1 min`, `500ms`, in microseconds. A bare number is milliseconds, as in
/// Flink.
pub(super) fn duration_us(text: &str) -> Option<i64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: i64 = number.parse().ok()?;
    let unit_us = match unit.trim().to_ascii_lowercase().as_str() {
        "us" | "micro" | "micros" | "microsecond" | "microseconds" => 1,
        "" | "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1_000,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000_000,
        "h" | "hour" | "hours" => 3_600_000_000,
        "d" | "day" | "days" => 86_400_000_000,
        _ => return None,
    };
    number.checked_mul(unit_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration_us("30 s"), Some(30_000_000));
        assert_eq!(duration_us("1min"), Some(60_000_000));
        assert_eq!(duration_us(" 500 ms "), Some(500_000));
        assert_eq!(duration_us("250"), Some(250_000));
        assert_eq!(duration_us("2 weeks"), None);
        assert_eq!(duration_us("-1 s"), None);
        assert_eq!(duration_us("s"), None);
        assert_eq!(duration_us("9223372036854775807 d"), None);
    }

    #[test]
    fn values_are_checked() {
        let options: Options = [(NULL_TIME, "drop")].into_iter().collect();
        let error = TimeOptions::read(&options, true).expect_err("no such policy");
        assert_eq!(error.code(), "C002");
        let options: Options = [("scan.watermark.idle-timeot", "1 s")].into_iter().collect();
        let error = TimeOptions::read(&options, true).expect_err("no such option");
        assert_eq!(error.hint_text(), Some("Use 'scan.watermark.idle-timeout'."));
        let options: Options = [(IDLE_TIMEOUT, "0 s")].into_iter().collect();
        assert_eq!(TimeOptions::read(&options, true).expect_err("zero").code(), "C002");
        let options: Options = [(ALIGNMENT_GROUP, "g")].into_iter().collect();
        let error = TimeOptions::read(&options, true).expect_err("how far apart?");
        assert_eq!(
            (error.code(), error.hint_text()),
            ("C003", Some("Add 'scan.watermark.alignment.max-drift' = '1 min'."))
        );
        let options: Options = [(ALIGNMENT_GROUP, "g"), (MAX_DRIFT, "1 min")].into_iter().collect();
        let alignment = TimeOptions::read(&options, true).expect("valid").alignment.expect("a group");
        assert_eq!((alignment.max_drift_us, alignment.update_interval_us), (60_000_000, 20_000));
        let options: Options = [(IDLE_TIMEOUT, "1 s")].into_iter().collect();
        assert_eq!(TimeOptions::read(&options, false).expect_err("no watermark").code(), "C006");
        assert_eq!(TimeOptions::read(&options, true).expect("valid").idle_after_us, Some(1_000_000));
    }
}
