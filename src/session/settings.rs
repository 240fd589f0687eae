//! The settings of a session: names, types, defaults, aliases.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use chrono_tz::Tz;

use crate::error::{Error, code, did_you_mean};
use crate::runtime::{LatencyGranularity, machine_memory};

/// What a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A whole number in this range.
    Count { least: usize, most: usize },
    /// A length of time such as `100 ms`, at least this long.
    Duration { least: Duration },
    /// An amount of memory such as `512 MB`, or a share of the machine's such as `70 %`.
    Memory,
    /// The name of a time zone.
    Zone,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any text.
    Text,
}

/// A setting as `SET` and the manual show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingInfo {
    /// Its name.
    pub key: &'static str,
    /// Other names for it; Flink's.
    pub aliases: &'static [&'static str],
    /// The value without `SET`; empty: see `about`.
    pub default: &'static str,
    /// What it does, one sentence.
    pub about: &'static str,
    kind: Kind,
}

const PARALLELISM: &str = "execution.parallelism";
const BATCH_ROWS: &str = "execution.batch-rows";
const BUFFER_TIMEOUT: &str = "execution.buffer-timeout";
const TIME_ZONE: &str = "session.time-zone";
const LATE_MAX_ROWS: &str = "late-rows.max-rows";
const WATERMARK_INTERVAL: &str = "pipeline.auto-watermark-interval";
const PIPELINE_NAME: &str = "pipeline.name";
const LATENCY_INTERVAL: &str = "metrics.latency.interval";
const STATE_TTL: &str = "state.ttl";
const STATE_MEMORY_LIMIT: &str = "state.memory-limit";
const STATE_SPILL_DIR: &str = "state.spill-dir";
const CHECKPOINT_DIR: &str = "execution.checkpoint.dir";
const CHECKPOINT_INTERVAL: &str = "execution.checkpoint.interval";
const CHECKPOINTS_RETAINED: &str = "execution.checkpoint.retained";
const LATENCY_GRANULARITY: &str = "metrics.latency.granularity";

/// All settings, by name.
const ALL: &[SettingInfo] = &[
    SettingInfo {
        key: BATCH_ROWS,
        aliases: &[],
        default: "8192",
        about: "Most rows of a batch; results do not depend on it.",
        kind: Kind::Count { least: 1, most: 1 << 20 },
    },
    SettingInfo {
        key: BUFFER_TIMEOUT,
        aliases: &["execution.buffer-timeout.interval"],
        default: "100 ms",
        about: "How long rows wait at most to go on together.",
        kind: Kind::Duration { least: Duration::ZERO },
    },
    SettingInfo {
        key: CHECKPOINT_DIR,
        aliases: &["execution.checkpointing.dir", "state.checkpoints.dir"],
        default: "",
        about: "The folder for checkpoints, from which a run that was stopped goes on; empty: none are taken.",
        kind: Kind::Text,
    },
    SettingInfo {
        key: CHECKPOINT_INTERVAL,
        aliases: &["execution.checkpointing.interval"],
        default: "10 s",
        about: "Time from one checkpoint to the next.",
        kind: Kind::Duration { least: Duration::from_millis(10) },
    },
    SettingInfo {
        key: CHECKPOINTS_RETAINED,
        aliases: &["execution.checkpointing.num-retained", "state.checkpoints.num-retained"],
        default: "3",
        about: "How many checkpoints of a job are kept.",
        kind: Kind::Count { least: 1, most: 1_000 },
    },
    SettingInfo {
        key: PARALLELISM,
        aliases: &["parallelism.default", "table.exec.resource.default-parallelism"],
        default: "",
        about: "Subtasks of each operator; by default the number of cores. Results do not depend on it.",
        kind: Kind::Count { least: 1, most: 1024 },
    },
    SettingInfo {
        key: "execution.runtime-mode",
        aliases: &[],
        default: "streaming",
        about: "Always streaming: bounded inputs end by themselves.",
        kind: Kind::Word(&["streaming"]),
    },
    SettingInfo {
        key: LATE_MAX_ROWS,
        aliases: &[],
        default: "1000000",
        about: "Most rows that a side table made by LATE ROWS INTO holds in memory; one more is an error.",
        kind: Kind::Count { least: 1, most: 1 << 40 },
    },
    SettingInfo {
        key: LATENCY_GRANULARITY,
        aliases: &[],
        default: "operator",
        about: "What latency markers are told apart by: nothing, their source, or its subtask.",
        kind: Kind::Word(&["single", "operator", "subtask"]),
    },
    SettingInfo {
        key: LATENCY_INTERVAL,
        aliases: &[],
        default: "200 ms",
        about: "How often a source sends a latency marker; 0 sends none.",
        kind: Kind::Duration { least: Duration::ZERO },
    },
    SettingInfo {
        key: WATERMARK_INTERVAL,
        aliases: &[],
        default: "200 ms",
        about: "How often watermarks of 'scan.watermark.emit.strategy' = 'on-periodic' move.",
        kind: Kind::Duration { least: Duration::from_millis(1) },
    },
    SettingInfo {
        key: PIPELINE_NAME,
        aliases: &[],
        default: "",
        about: "The name of the jobs that are started from now on; by default the tables that they write.",
        kind: Kind::Text,
    },
    SettingInfo {
        key: TIME_ZONE,
        aliases: &["table.local-time-zone"],
        default: "UTC",
        about: "The zone in which TIMESTAMP_LTZ values become text, days and hours.",
        kind: Kind::Zone,
    },
    SettingInfo {
        key: STATE_MEMORY_LIMIT,
        aliases: &[],
        default: "70 %",
        about: "Memory that the state of all jobs may take; beyond it state goes to disk, or the job fails.",
        kind: Kind::Memory,
    },
    SettingInfo {
        key: STATE_SPILL_DIR,
        aliases: &["io.tmp.dirs"],
        default: "",
        about: "The folder for state that does not fit into memory; empty: the system's for temporary files.",
        kind: Kind::Text,
    },
    SettingInfo {
        key: STATE_TTL,
        aliases: &["table.exec.state.ttl"],
        default: "0 ms",
        about: "How long keys of a query without a window are kept after their last change; 0 keeps them.",
        kind: Kind::Duration { least: Duration::ZERO },
    },
];

/// The values of a session's settings.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tidegate::Error> {
/// use tidegate::session::Settings;
///
/// let mut settings = Settings::default();
/// settings.set("parallelism.default", "2")?;
/// assert_eq!(settings.parallelism(), 2);
/// assert!(settings.set("execution.paralelism", "2").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Only what was set; values are checked.
    values: BTreeMap<&'static str, String>,
}

impl Settings {
    /// All settings there are, by name.
    pub fn all() -> &'static [SettingInfo] {
        ALL
    }

    /// Sets one by its name or alias.
    ///
    /// # Errors
    /// `U001` for an unknown name, with the nearest one, and for a value that does not fit.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let info = find(key)?;
        check(info, value.trim())?;
        self.values.insert(info.key, value.trim().to_owned());
        Ok(())
    }

    /// Gives one its default back, by its name or alias.
    ///
    /// # Errors
    /// `U001` for an unknown name.
    pub fn reset(&mut self, key: &str) -> Result<(), Error> {
        self.values.remove(find(key)?.key);
        Ok(())
    }

    /// Gives all of them their defaults back.
    pub fn reset_all(&mut self) {
        self.values.clear();
    }

    /// The value of a setting as text, by its name or alias.
    ///
    /// # Errors
    /// `U001` for an unknown name.
    pub fn get(&self, key: &str) -> Result<String, Error> {
        Ok(self.text(find(key)?))
    }

    /// All names and values, by name.
    pub fn entries(&self) -> impl Iterator<Item = (&'static SettingInfo, String)> + '_ {
        ALL.iter().map(|info| (info, self.text(info)))
    }

    /// Subtasks of each operator, ≥ 1.
    pub fn parallelism(&self) -> usize {
        self.count(PARALLELISM)
    }

    /// Most rows of a batch, ≥ 1.
    pub fn batch_rows(&self) -> usize {
        self.count(BATCH_ROWS)
    }

    /// How long a source keeps a batch that is not full.
    pub fn buffer_timeout(&self) -> Duration {
        self.duration(BUFFER_TIMEOUT)
    }

    /// How often a source sends a latency marker; zero: never.
    pub fn latency_interval(&self) -> Duration {
        self.duration(LATENCY_INTERVAL)
    }

    /// How often a watermark moves that moves periodically.
    pub fn watermark_interval(&self) -> Duration {
        self.duration(WATERMARK_INTERVAL)
    }

    /// What latency markers are told apart by.
    pub fn latency_granularity(&self) -> LatencyGranularity {
        LatencyGranularity::of(&self.text_of(LATENCY_GRANULARITY)).unwrap_or_default()
    }

    /// How long state of keys without a window is kept; zero: always.
    pub fn state_ttl(&self) -> Duration {
        self.duration(STATE_TTL)
    }

    /// Bytes that the state of all jobs may take; `None`: no limit.
    pub fn state_memory_limit(&self) -> Option<u64> {
        match parse_memory(&self.text_of(STATE_MEMORY_LIMIT))? {
            Memory::Bytes(bytes) => Some(bytes),
            Memory::Percent(share) => machine_memory().map(|bytes| bytes / 100 * share),
            Memory::Unlimited => None,
        }
    }

    /// The folder for state that does not fit into memory; `None`: the system's for temporary files.
    pub fn state_spill_dir(&self) -> Option<PathBuf> {
        Some(self.text_of(STATE_SPILL_DIR)).filter(|dir| !dir.is_empty()).map(PathBuf::from)
    }

    /// The folder for checkpoints; `None`: none are taken.
    pub fn checkpoint_dir(&self) -> Option<PathBuf> {
        Some(self.text_of(CHECKPOINT_DIR)).filter(|dir| !dir.is_empty()).map(PathBuf::from)
    }

    /// Time from one checkpoint to the next.
    pub fn checkpoint_interval(&self) -> Duration {
        self.duration(CHECKPOINT_INTERVAL)
    }

    /// How many checkpoints of a job are kept, ≥ 1.
    pub fn checkpoints_retained(&self) -> usize {
        self.count(CHECKPOINTS_RETAINED)
    }

    /// Most rows of a side table that `LATE ROWS INTO` makes.
    pub fn side_table_rows(&self) -> usize {
        self.count(LATE_MAX_ROWS)
    }

    /// The name of the jobs to come, if they have one.
    pub fn pipeline_name(&self) -> Option<&str> {
        self.values.get(PIPELINE_NAME).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// The session's time zone.
    pub fn time_zone(&self) -> Tz {
        zone_of(&self.text_of(TIME_ZONE)).unwrap_or(Tz::UTC)
    }

    fn text(&self, info: &SettingInfo) -> String {
        match self.values.get(info.key) {
            Some(value) => value.clone(),
            None if info.key == PARALLELISM => cores().to_string(),
            None => info.default.to_owned(),
        }
    }

    fn text_of(&self, key: &'static str) -> String {
        find(key).map(|info| self.text(info)).unwrap_or_default()
    }

    // Values were checked when they were set, and a test checks the defaults.
    fn count(&self, key: &'static str) -> usize {
        self.text_of(key).parse().unwrap_or(1)
    }

    fn duration(&self, key: &'static str) -> Duration {
        parse_duration(&self.text_of(key)).unwrap_or_default()
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn find(key: &str) -> Result<&'static SettingInfo, Error> {
    let names = |info: &'static SettingInfo| std::iter::once(info.key).chain(info.aliases.iter().copied());
    if let Some(info) = ALL.iter().find(|info| names(info).any(|name| name == key)) {
        return Ok(info);
    }
    let error = Error::usage(code::INVALID_SETTING, format!("unknown setting \"{key}\""));
    Err(match did_you_mean(key, ALL.iter().flat_map(names)) {
        Some(near) => error.hint(format!("Use \"{near}\".")),
        None => error.hint("Run SET without anything to see all settings."),
    })
}

fn check(info: &SettingInfo, value: &str) -> Result<(), Error> {
    let invalid = |range: String| {
        Error::usage(code::INVALID_SETTING, format!("\"{}\" can't be \"{value}\"", info.key))
            .hint(format!("Use {range}."))
    };
    match info.kind {
        Kind::Count { least, most } => match value.parse::<usize>() {
            Ok(count) if (least..=most).contains(&count) => Ok(()),
            _ => Err(invalid(format!("a whole number from {least} to {most}"))),
        },
        Kind::Duration { least } => match parse_duration(value) {
            Some(duration) if duration >= least => Ok(()),
            _ => Err(invalid("a length of time such as '100 ms', '10 s' or '5 min'".to_owned())),
        },
        Kind::Memory => match parse_memory(value) {
            Some(_) => Ok(()),
            None => Err(invalid(
                "an amount of memory such as '512 MB' or '2 GB', a share of the machine's such as '70 %', or \
                 'unlimited'"
                    .to_owned(),
            )),
        },
        Kind::Zone => match zone_of(value) {
            Some(_) => Ok(()),
            None => {
                let names = chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
                Err(invalid(match did_you_mean(value, names) {
                    Some(near) => format!("'{near}'"),
                    None => {
                        "a name of the tz database such as 'UTC', 'Europe/Berlin' or 'Etc/GMT-8'".to_owned()
                    }
                }))
            }
        },
        Kind::Text => Ok(()),
        Kind::Word(words) if words.contains(&value) => Ok(()),
        Kind::Word(words) => Err(invalid(format!("'{}'", words.join("' or '")))),
    }
}

fn zone_of(name: &str) -> Option<Tz> {
    name.parse().ok()
}

/// A length of time as Flink writes it: `100 ms`, `10s`, `5 min`, `1 h`; a bare number is
/// milliseconds. `None` if it is something else or does not fit.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let nanos = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "ns" | "nano" | "nanos" | "nanosecond" | "nanoseconds" => 1,
        "us" | "µs" | "micro" | "micros" | "microsecond" | "microseconds" => 1_000,
        "" | "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * 1_000_000_000,
        "h" | "hour" | "hours" => 3_600 * 1_000_000_000,
        "d" | "day" | "days" => 86_400 * 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(nanos).map(Duration::from_nanos)
}

/// A limit on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    Bytes(u64),
    /// Of what the machine, or the process's control group, has.
    Percent(u64),
    Unlimited,
}

/// An amount of memory as Flink writes it, `512 mb`, by 1,024s, a bare number is bytes; a share of the machine's, `70 %`;
/// `unlimited` or 0. `None` if it is something else or does not fit.
fn parse_memory(text: &str) -> Option<Memory> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("unlimited") {
        return Some(Memory::Unlimited);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "%" => return (1..=100).contains(&number).then_some(Memory::Percent(number)),
        "" | "b" | "bytes" => 1,
        "k" | "kb" | "kib" | "kibibytes" => 1 << 10,
        "m" | "mb" | "mib" | "mebibytes" => 1 << 20,
        "g" | "gb" | "gib" | "gibibytes" => 1 << 30,
        "t" | "tb" | "tib" | "tebibytes" => 1 << 40,
        _ => return None,
    };
    match number.checked_mul(unit)? {
        0 => Some(Memory::Unlimited),
        bytes => Some(Memory::Bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_values_that_could_be_set() {
        for (info, value) in Settings::default().entries() {
            assert_eq!(check(info, &value), Ok(()), "{}", info.key);
        }
        let settings = Settings::default();
        assert_eq!(settings.batch_rows(), 8192);
        assert_eq!(settings.buffer_timeout(), Duration::from_millis(100));
        assert_eq!(settings.time_zone(), Tz::UTC);
        assert!(settings.parallelism() >= 1);
    }

    #[test]
    fn aliases_name_the_same_setting() -> Result<(), Error> {
        let mut settings = Settings::default();
        settings.set("table.local-time-zone", "Asia/Kolkata")?;
        assert_eq!(settings.get("session.time-zone")?, "Asia/Kolkata");
        settings.reset("session.time-zone")?;
        assert_eq!(settings.get("table.local-time-zone")?, "UTC");
        Ok(())
    }

    #[test]
    fn memory_is_an_amount_or_a_share() {
        let parsed = ["1 GB", "512mb", "64 kb", "1000", "5 %", "unlimited", "0"].map(parse_memory);
        let bytes = [1 << 30, 512 << 20, 64 << 10, 1000].map(|bytes| Some(Memory::Bytes(bytes)));
        assert_eq!(parsed[..4], bytes);
        let rest = [Memory::Percent(5), Memory::Unlimited, Memory::Unlimited].map(Some);
        assert_eq!(parsed[4..], rest);
        let mut settings = Settings::default();
        assert_eq!(settings.state_memory_limit().is_some(), cfg!(target_os = "linux"));
        settings.set("state.memory-limit", "3 KB").expect("an amount");
        assert_eq!(settings.state_memory_limit(), Some(3 << 10));
    }

    #[test]
    fn unknown_names_get_the_nearest_one() {
        let error = Settings::default().set("execution.paralelism", "2").expect_err("unknown");
        assert_eq!(error.code(), "U001");
        assert_eq!(error.hint_text(), Some("Use \"execution.parallelism\"."));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (key, value) in [
            ("execution.parallelism", "0"),
            ("execution.parallelism", "-1"),
            ("execution.parallelism", "two"),
            ("execution.batch-rows", "0"),
            ("execution.batch-rows", "1048577"),
            ("execution.buffer-timeout", "soon"),
            ("state.memory-limit", "much"),
            ("state.memory-limit", "101 %"),
            ("state.memory-limit", "0 %"),
            ("state.memory-limit", "99999999 TB"),
            ("execution.runtime-mode", "batch"),
            ("session.time-zone", "Europe/Atlantis"),
        ] {
            let error = Settings::default().set(key, value).expect_err("out of range");
            assert_eq!(error.exit_code(), 2, "{key} = {value}");
            assert!(error.message().contains(key) && error.message().contains(value), "{error}");
        }
    }

    #[test]
    fn durations_have_units() {
        let ms = Duration::from_millis;
        assert_eq!(parse_duration("100 ms"), Some(ms(100)));
        assert_eq!(parse_duration("100"), Some(ms(100)));
        assert_eq!(parse_duration("10s"), Some(ms(10_000)));
        assert_eq!(parse_duration("2 MIN"), Some(ms(120_000)));
        assert_eq!(parse_duration("1 d"), Some(ms(86_400_000)));
        assert_eq!(parse_duration("1.5 s"), None);
        assert_eq!(parse_duration("-1 s"), None);
        assert_eq!(parse_duration("s"), None);
        assert_eq!(parse_duration("99999999999 d"), None);
    }
}
