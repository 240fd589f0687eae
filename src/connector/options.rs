//! The options of `WITH (…)` as typed values, each error with its place.

use crate::catalog::Options;
use crate::error::{Code, Error, code, did_you_mean};

/// Options that the planner judges, for hints. All that start with [`PLANNER_PREFIX`] are its own.
pub(super) const PLANNER: [&str; 7] = [
    "connector",
    "scan.watermark.emit.strategy",
    "scan.watermark.idle-timeout",
    "scan.watermark.null-time",
    "scan.watermark.alignment.group",
    "scan.watermark.alignment.max-drift",
    "scan.watermark.alignment.update-interval",
];
const PLANNER_PREFIX: &str = "scan.watermark.";

/// Reads the options of one table; each error has the place of the option and a way out.
///
/// ```
/// use tidegate::catalog::Options;
/// use tidegate::connector::OptionReader;
///
/// let options: Options = [("connector", "tail"), ("lines", "ten")].into_iter().collect();
/// let reader = OptionReader::new("connector \"tail\"", &options, &[&["lines", "from"]])?;
/// assert_eq!(reader.text("from"), None);
/// let error = reader.integer("lines", 1..=1_000).unwrap_err();
/// assert_eq!(error.message(), "option \"lines\": \"ten\" is not a whole number from 1 to 1000");
/// let error = OptionReader::new("connector \"tail\"", &options, &[&["line"]]).err().expect("unknown");
/// assert_eq!((error.code(), error.hint_text()), ("C001", Some("Did you mean 'line'? Use that, or remove the option.")));
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct OptionReader<'a> {
    options: &'a Options,
}

impl<'a> OptionReader<'a> {
    /// Takes the options; every key must be in one of `known` or the planner's. `whose`: what errors call
    /// the one that knows them, such as `connector "tail"`.
    ///
    /// # Errors
    /// `C001` with the nearest known key.
    pub fn new(whose: &str, options: &'a Options, known: &[&[&str]]) -> Result<Self, Error> {
        for entry in options.entries() {
            let key = entry.key.as_str();
            let is_known = PLANNER.contains(&key)
                || key.starts_with(PLANNER_PREFIX)
                || known.iter().any(|keys| keys.contains(&key));
            if is_known {
                continue;
            }
            let error = Error::plan(code::UNKNOWN_OPTION, format!("unknown option \"{key}\" of {whose}"))
                .at(entry.key_span);
            let candidates = known.iter().flat_map(|keys| keys.iter().copied()).chain(PLANNER);
            return Err(match did_you_mean(key, candidates) {
                Some(near) => error.hint(format!("Did you mean '{near}'? Use that, or remove the option.")),
                None => {
                    let all: Vec<_> = known.iter().flat_map(|keys| keys.iter().copied()).collect();
                    error.hint(if all.is_empty() {
                        "Remove it: this connector has no options of its own.".to_owned()
                    } else {
                        format!("Use one of {}.", all.join(", "))
                    })
                }
            });
        }
        Ok(Self { options })
    }

    /// Takes options that were checked before.
    pub(super) fn of(options: &'a Options) -> Self {
        Self { options }
    }

    /// The value of a key.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.options.get(key)
    }

    /// The value of a key that must be there and not empty. `example`: a value as SQL writes it, for the hint.
    ///
    /// # Errors
    /// `C003` if it is missing, `C002` if it is empty.
    pub fn required(&self, key: &str, example: &str) -> Result<&'a str, Error> {
        match self.options.get(key) {
            Some(value) if !value.is_empty() => Ok(value),
            Some(_) => Err(self.invalid(key, "is empty").hint(format!("Give a value such as {example}."))),
            None => Err(Error::plan(code::MISSING_OPTION, format!("option \"{key}\" is missing"))
                .at(self.options.entry("connector").and_then(|entry| entry.key_span))
                .hint(format!("Add '{key}' = {example}."))),
        }
    }

    /// `true` or `false`, in any case.
    ///
    /// # Errors
    /// `C002` for another word.
    pub fn boolean(&self, key: &str) -> Result<Option<bool>, Error> {
        match self.options.get(key).map(str::to_ascii_lowercase).as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(self.invalid(key, "is not a boolean").hint("Use 'true' or 'false'.")),
        }
    }

    /// One of a few words, in any case; the answer is its index.
    ///
    /// # Errors
    /// `C002` for another word.
    pub fn choice(&self, key: &str, words: &[&str]) -> Result<Option<usize>, Error> {
        let Some(value) = self.options.get(key) else { return Ok(None) };
        let found = words.iter().position(|word| word.eq_ignore_ascii_case(value));
        found.map(Some).ok_or_else(|| {
            let list: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
            self.invalid(key, "is not known").hint(format!("Use one of {}.", list.join(", ")))
        })
    }

    /// A whole number in a range; `1_000` is one.
    ///
    /// # Errors
    /// `C002` for anything else.
    pub fn integer(&self, key: &str, range: std::ops::RangeInclusive<i64>) -> Result<Option<i64>, Error> {
        let Some(value) = self.options.get(key) else { return Ok(None) };
        match value.trim().replace('_', "").parse::<i64>() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(self.invalid(
                key,
                format_args!("is not a whole number from {} to {}", range.start(), range.end()),
            )),
        }
    }

    /// A finite number in a range.
    ///
    /// # Errors
    /// `C002` for anything else.
    pub fn number(&self, key: &str, range: std::ops::RangeInclusive<f64>) -> Result<Option<f64>, Error> {
        let Some(value) = self.options.get(key) else { return Ok(None) };
        match value.trim().parse::<f64>() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                Err(self
                    .invalid(key, format_args!("is not a number from {} to {}", range.start(), range.end())))
            }
        }
    }

    /// One ASCII character; `\t` and the like are understood.
    ///
    /// # Errors
    /// `C002` for anything else.
    pub fn character(&self, key: &str) -> Result<Option<u8>, Error> {
        let Some(value) = self.options.get(key) else { return Ok(None) };
        let byte = match value {
            "\\t" => b'\t',
            "\\\\" => b'\\',
            _ => match value.as_bytes() {
                [byte] if byte.is_ascii() && *byte != b'\n' && *byte != b'\r' => *byte,
                _ => {
                    return Err(self
                        .invalid(key, "is not one ASCII character")
                        .hint("Use one character, such as ';' or '\\t'."));
                }
            },
        };
        Ok(Some(byte))
    }

    /// A length of time with a unit, in microseconds: `5 s`, `100 ms`, `2 min`.
    ///
    /// # Errors
    /// `C002` for anything else.
    pub fn duration_us(&self, key: &str) -> Result<Option<i64>, Error> {
        let Some(value) = self.options.get(key) else { return Ok(None) };
        parse_duration_us(value).map(Some).ok_or_else(|| {
            self.invalid(key, "is not a duration").hint("Use a number and a unit, such as '5 s' or '100 ms'.")
        })
    }

    /// `C002` at the value of `key`.
    pub fn invalid(&self, key: &str, what: impl std::fmt::Display) -> Error {
        self.at_value(
            key,
            code::INVALID_OPTION,
            format!("option \"{key}\": \"{}\" {what}", self.text(key).unwrap_or("")),
        )
    }

    /// An error at the value of `key`.
    pub fn at_value(&self, key: &str, code: Code, message: String) -> Error {
        Error::plan(code, message).at(self.options.entry(key).and_then(|entry| entry.value_span))
    }
}

/// A number and a unit, in microseconds. `None` if it is no duration or does not fit.
fn parse_duration_us(text: &str) -> Option<i64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: i64 = text[..end].parse().ok()?;
    let unit = match text[end..].trim() {
        "us" | "micro" | "micros" | "microsecond" | "microseconds" => 1,
        "" | "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1_000,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000,
        "m" | "min" | "minute" | "minutes" => 60_000_000,
        "h" | "hour" | "hours" => 3_600_000_000,
        "d" | "day" | "days" => 86_400_000_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(options: &'a Options, known: &[&'static str]) -> Result<OptionReader<'a>, Error> {
        OptionReader::new("connector \"c\"", options, &[known])
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let options: Options = [("json.ingore-parse-errors", "true")].into_iter().collect();
        let error = read(&options, &["json.ignore-parse-errors"]).err().unwrap();
        assert_eq!(error.code(), "C001");
        assert!(error.message().contains("json.ingore-parse-errors"));
        assert!(error.hint_text().unwrap().contains("'json.ignore-parse-errors'"));
    }

    #[test]
    fn planner_keys_are_known_everywhere() {
        let options: Options =
            [("connector", "c"), ("scan.watermark.idle-timeout", "5 s")].into_iter().collect();
        assert!(read(&options, &[]).is_ok());
    }

    #[test]
    fn values_are_typed() {
        let options: Options =
            [("b", "yes please"), ("n", "11"), ("c", "ab"), ("t", "\\t"), ("d", "2 min"), ("e", "2 moons")]
                .into_iter()
                .collect();
        let reader = read(&options, &["b", "n", "c", "t", "d", "e"]).unwrap();
        let error = reader.boolean("b").unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            ("C002", "option \"b\": \"yes please\" is not a boolean")
        );
        assert!(reader.integer("n", 0..=10).is_err());
        assert_eq!(reader.integer("n", 0..=11).unwrap(), Some(11));
        assert!(reader.character("c").is_err());
        assert_eq!(reader.character("t").unwrap(), Some(b'\t'));
        assert_eq!(reader.duration_us("d").unwrap(), Some(120_000_000));
        assert!(reader.duration_us("e").is_err());
        assert_eq!(reader.required("x", "'y'").unwrap_err().code(), "C003");
    }
}
