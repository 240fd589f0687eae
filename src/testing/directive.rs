//! One line of a test file that is no SQL.

use super::time::{parse_duration, parse_time, show_watermark};
use crate::error::did_you_mean;
use crate::stream::Watermark;

/// What a line tells the test to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Directive {
    Test(String),
    /// The name of the query that follows.
    Query(String),
    /// A value for `${name}` in scripts.
    Variable {
        name: String,
        value: String,
    },
    Include {
        path: String,
        tables_only: bool,
    },
    Clock(i64),
    Advance(i64),
    AdvanceTo(i64),
    Bounded(String),
    /// A split comes.
    Split(Target),
    Push(Target),
    Watermark(Target, i64),
    Idle(Target),
    Wake(Target),
    Disconnect(Target),
    Connect(Target),
    End(Option<Target>),
    /// Nobody takes the rows of the query.
    Hold(Option<String>),
    Release(Option<String>),
    Settle,
    ExpectRows {
        of: RowsOf,
        ordered: bool,
    },
    ExpectError {
        code: String,
        words: Vec<String>,
    },
    ExpectWatermark {
        of: WatermarkOf,
        is: Option<Watermark>,
    },
    ExpectSplits {
        table: String,
        are: Vec<(String, String)>,
    },
    ExpectCounts {
        query: Option<String>,
        are: Vec<(String, u64)>,
    },
}

/// A table, or one of its splits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) table: String,
    pub(super) split: Option<String>,
}

/// Whose rows are expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RowsOf {
    /// The query of that name; the last one without.
    Query(Option<String>),
    /// A table that is written.
    Table(String),
}

/// Whose watermark is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WatermarkOf {
    Query(Option<String>),
    Table(Target),
}

/// Why a line is no directive: the column, the message, the way out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) column: usize,
    pub(super) message: String,
    pub(super) hint: String,
}

const WORDS: [&str; 19] = [
    "test",
    "query",
    "include",
    "variable",
    "clock",
    "advance",
    "bounded",
    "split",
    "push",
    "watermark",
    "idle",
    "wake",
    "disconnect",
    "connect",
    "end",
    "hold",
    "release",
    "settle",
    "expect",
];

/// What a statement of SQL can begin with.
const STATEMENTS: [&str; 15] = [
    "BEGIN",
    "CREATE",
    "DESC",
    "DESCRIBE",
    "DROP",
    "EXECUTE",
    "EXPLAIN",
    "INSERT",
    "RESET",
    "SELECT",
    "SET",
    "SHOW",
    "STATEMENT",
    "VALUES",
    "WITH",
];

/// What [`super::run`] counts.
pub(super) const COUNTS: [&str; 8] =
    ["rows_in", "rows_out", "late", "partly_late", "null_time", "future", "malformed", "filtered"];

/// A word, and the column where it begins, from 1.
struct Word {
    text: String,
    column: usize,
    quoted: bool,
}

struct Words {
    words: std::iter::Peekable<std::vec::IntoIter<Word>>,
    /// The column behind the line.
    end: usize,
}

/// Reads a line. `None`: it is SQL.
pub(super) fn parse(line: &str) -> Result<Option<Directive>, Fault> {
    let first: String = line.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if !WORDS.contains(&first.as_str()) {
        if STATEMENTS.iter().any(|word| word.eq_ignore_ascii_case(&first))
            || line.trim_start().starts_with('(')
        {
            return Ok(None);
        }
        let near = did_you_mean(&first, WORDS.into_iter().chain(STATEMENTS));
        return Err(Fault {
            column: 1 + line.chars().take_while(|c| c.is_whitespace()).count(),
            message: format!(
                "\"{}\" begins no directive and no statement",
                line.split_whitespace().next().unwrap_or("")
            ),
            hint: near.map_or_else(
                || format!("Begin with one of {}, or with a statement of SQL.", WORDS.join(", ")),
                |near| format!("Use {near}."),
            ),
        });
    }
    let mut words = Words::of(line)?;
    words.next();
    let directive = words.directive(&first)?;
    match words.next() {
        None => Ok(Some(directive)),
        Some(word) => Err(Fault {
            column: word.column,
            message: format!("\"{}\" is more than \"{first}\" takes", word.text),
            hint: usage(&first).to_owned(),
        }),
    }
}

fn usage(first: &str) -> &'static str {
    match first {
        "test" => "Write test \"what it shows\".",
        "query" => "Write query NAME before the query.",
        "variable" => "Write variable NAME \"value\" above the include.",
        "include" => "Write include \"file.sql\", or include tables \"file.sql\".",
        "clock" => "Write clock 2024-05-01 09:00:00.",
        "advance" => "Write advance 30 seconds, or advance to 2024-05-01 09:00:00.",
        "bounded" => "Write bounded TABLE before the table is created.",
        "split" => "Write split TABLE NAME.",
        "watermark" => "Write watermark TABLE [split NAME] 2024-05-01 09:00:00.",
        "end" => "Write end, end TABLE, or end TABLE split NAME.",
        "hold" | "release" => "Write the name of a query, or nothing for the last one.",
        "settle" => "Write settle alone.",
        "expect" => {
            "Write expect [QUERY] [unordered], expect table NAME, expect error CODE [\"words\"], expect \
             watermark [TABLE [split NAME]] TIME, expect splits TABLE a=active, or expect counts late=1."
        }
        _ => "Write the table, and split NAME if it is one of several.",
    }
}

impl Words {
    fn of(line: &str) -> Result<Self, Fault> {
        let characters: Vec<char> = line.chars().collect();
        let mut words = Vec::new();
        let mut at = 0;
        while at < characters.len() {
            let first = characters[at];
            if first.is_whitespace() {
                at += 1;
                continue;
            }
            let column = at + 1;
            let quoted = first == '"' || first == '\'';
            let start = if quoted { at + 1 } else { at };
            let is_end = |c: &char| if quoted { *c == first } else { c.is_whitespace() };
            let length = characters[start..].iter().position(is_end);
            if quoted && length.is_none() {
                return Err(Fault {
                    column,
                    message: "the quote is not closed".to_owned(),
                    hint: "End it on the same line.".to_owned(),
                });
            }
            let end = length.map_or(characters.len(), |length| start + length);
            words.push(Word { text: characters[start..end].iter().collect(), column, quoted });
            at = if quoted { end + 1 } else { end };
        }
        Ok(Self { words: words.into_iter().peekable(), end: characters.len() + 1 })
    }

    fn next(&mut self) -> Option<Word> {
        self.words.next()
    }

    /// Takes the next word if it is this one, without quotes.
    fn accept(&mut self, text: &str) -> bool {
        self.words.next_if(|word| !word.quoted && word.text == text).is_some()
    }

    fn column(&mut self) -> usize {
        let end = self.end;
        self.words.peek().map_or(end, |word| word.column)
    }

    fn missing(&mut self, what: &str, first: &str) -> Fault {
        Fault { column: self.column(), message: format!("{what} is missing"), hint: usage(first).to_owned() }
    }

    fn name(&mut self, what: &str, first: &str) -> Result<String, Fault> {
        match self.next() {
            Some(word) => Ok(word.text),
            None => Err(self.missing(what, first)),
        }
    }

    fn optional(&mut self) -> Option<String> {
        self.next().map(|word| word.text)
    }

    /// `TABLE [split NAME]`.
    fn target(&mut self, first: &str) -> Result<Target, Fault> {
        let table = self.name("the table", first)?;
        let split = match self.accept("split") {
            true => Some(self.name("the name of the split", first)?),
            false => None,
        };
        Ok(Target { table, split })
    }

    fn rest(&mut self) -> String {
        let words: Vec<String> = self.words.by_ref().map(|word| word.text).collect();
        words.join(" ")
    }

    fn time(&mut self, first: &str) -> Result<i64, Fault> {
        let column = self.column();
        let text = self.rest();
        parse_time(&text).ok_or_else(|| Fault {
            column,
            message: format!("\"{text}\" is no time"),
            hint: usage(first).to_owned(),
        })
    }

    fn directive(&mut self, first: &str) -> Result<Directive, Fault> {
        Ok(match first {
            "test" => Directive::Test(self.name("the name of the test", first)?),
            "query" => Directive::Query(self.name("the name of the query", first)?),
            "variable" => Directive::Variable {
                name: self.name("the name of a variable", first)?,
                value: self.name("its value", first)?,
            },
            "include" => {
                let tables_only = self.accept("tables");
                Directive::Include { path: self.name("the path of the script", first)?, tables_only }
            }
            "clock" => Directive::Clock(self.time(first)?),
            "advance" if self.accept("to") => Directive::AdvanceTo(self.time(first)?),
            "advance" => {
                let column = self.column();
                let text = self.rest();
                let us = parse_duration(text.split_whitespace());
                Directive::Advance(us.ok_or_else(|| Fault {
                    column,
                    message: format!("\"{text}\" is no length of time"),
                    hint: usage(first).to_owned(),
                })?)
            }
            "bounded" => Directive::Bounded(self.name("the table", first)?),
            "split" => {
                let table = self.name("the table", first)?;
                Directive::Split(Target { table, split: Some(self.name("the name of the split", first)?) })
            }
            "push" => Directive::Push(self.target(first)?),
            "watermark" => Directive::Watermark(self.target(first)?, self.time(first)?),
            "idle" => Directive::Idle(self.target(first)?),
            "wake" => Directive::Wake(self.target(first)?),
            "disconnect" => Directive::Disconnect(self.target(first)?),
            "connect" => Directive::Connect(self.target(first)?),
            "end" if self.words.peek().is_none() => Directive::End(None),
            "end" => Directive::End(Some(self.target(first)?)),
            "hold" => Directive::Hold(self.optional()),
            "release" => Directive::Release(self.optional()),
            "settle" => Directive::Settle,
            _ => self.expect()?,
        })
    }

    fn expect(&mut self) -> Result<Directive, Fault> {
        if self.accept("error") {
            let code = self.name("the code of the error", "expect")?;
            return Ok(Directive::ExpectError {
                code,
                words: self.words.by_ref().map(|word| word.text).collect(),
            });
        }
        if self.accept("watermark") {
            return self.expect_watermark();
        }
        if self.accept("splits") {
            let table = self.name("the table", "expect")?;
            let are = self.pairs(|text| Some(text.to_owned()), "a split and its state, such as a=active")?;
            return Ok(Directive::ExpectSplits { table, are });
        }
        if self.accept("counts") {
            let query = self.words.next_if(|word| !word.text.contains('=')).map(|word| word.text);
            let column = self.column();
            let are = self.pairs(|text| text.parse().ok(), "a count and its number, such as late=1")?;
            if let Some((name, _)) = are.iter().find(|(name, _)| !COUNTS.contains(&name.as_str())) {
                let hint = match did_you_mean(name, COUNTS) {
                    Some(near) => format!("Use {near}."),
                    None => format!("Use one of {}.", COUNTS.join(", ")),
                };
                return Err(Fault { column, message: format!("nothing is counted as \"{name}\""), hint });
            }
            return Ok(Directive::ExpectCounts { query, are });
        }
        let of = match self.accept("table") {
            true => RowsOf::Table(self.name("the table", "expect")?),
            false => {
                let is_name = |word: &Word| word.quoted || word.text != "unordered";
                RowsOf::Query(self.words.next_if(is_name).map(|word| word.text))
            }
        };
        Ok(Directive::ExpectRows { of, ordered: !self.accept("unordered") })
    }

    fn expect_watermark(&mut self) -> Result<Directive, Fault> {
        let is_value =
            |word: &Word| word.text == "none" || word.text.starts_with(|c: char| c.is_ascii_digit());
        let of = if self.accept("query") {
            WatermarkOf::Query(Some(self.name("the name of the query", "expect")?))
        } else if self.words.peek().is_none_or(is_value) {
            WatermarkOf::Query(None)
        } else {
            WatermarkOf::Table(self.target("expect")?)
        };
        if self.accept("none") {
            return Ok(Directive::ExpectWatermark { of, is: None });
        }
        let us = self.time("expect")?;
        Ok(Directive::ExpectWatermark { of, is: Some(Watermark(us)) })
    }

    /// `name=value` to the end of the line.
    fn pairs<T>(&mut self, read: impl Fn(&str) -> Option<T>, what: &str) -> Result<Vec<(String, T)>, Fault> {
        let mut pairs = Vec::new();
        while let Some(word) = self.next() {
            let pair =
                word.text.rsplit_once('=').and_then(|(name, value)| Some((name.to_owned(), read(value)?)));
            pairs.push(pair.ok_or_else(|| Fault {
                column: word.column,
                message: format!("\"{}\" is not {what}", word.text),
                hint: usage("expect").to_owned(),
            })?);
        }
        Ok(pairs)
    }
}

/// A word of a directive, in quotes where it needs them.
fn quoted(word: &str) -> String {
    if word.is_empty() || word.contains(char::is_whitespace) {
        format!("\"{word}\"")
    } else {
        word.to_owned()
    }
}

impl Target {
    fn show(&self) -> String {
        let split = self.split.as_ref().map(|split| format!(" split {}", quoted(split)));
        quoted(&self.table) + &split.unwrap_or_default()
    }
}

/// An `expect` line of one line as it should be, if it is one.
pub(super) fn show(directive: &Directive) -> Option<String> {
    Some(match directive {
        Directive::ExpectError { code, words } => {
            let quote = |words: &String| if words.contains('"') { '\'' } else { '"' };
            let words: String = words.iter().map(|words| format!(" {0}{words}{0}", quote(words))).collect();
            format!("expect error {code}{words}")
        }
        Directive::ExpectWatermark { of, is } => {
            let of = match of {
                WatermarkOf::Query(None) => String::new(),
                WatermarkOf::Query(Some(name)) => format!("query {} ", quoted(name)),
                WatermarkOf::Table(target) => target.show() + " ",
            };
            format!("expect watermark {of}{}", show_watermark(*is))
        }
        Directive::ExpectSplits { table, are } => {
            let are: String = are.iter().map(|(split, state)| format!(" {split}={state}")).collect();
            format!("expect splits {}{are}", quoted(table))
        }
        Directive::ExpectCounts { query, are } => {
            let query = query.as_ref().map(|name| format!(" {}", quoted(name))).unwrap_or_default();
            let are: String = are.iter().map(|(name, count)| format!(" {name}={count}")).collect();
            format!("expect counts{query}{are}")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(table: &str, split: Option<&str>) -> Target {
        Target { table: table.to_owned(), split: split.map(str::to_owned) }
    }

    #[test]
    fn directives_and_sql_are_told_apart() {
        assert_eq!(parse("push t split \"a b\""), Ok(Some(Directive::Push(target("t", Some("a b"))))));
        assert_eq!(
            parse("watermark t 1970-01-01 00:00:01"),
            Ok(Some(Directive::Watermark(target("t", None), 1_000_000)))
        );
        assert_eq!(parse("  select 1;"), Ok(None));
        assert_eq!(parse("(SELECT 1)"), Ok(None));
        assert_eq!(parse("end"), Ok(Some(Directive::End(None))));
        assert_eq!(
            parse("expect unordered"),
            Ok(Some(Directive::ExpectRows { of: RowsOf::Query(None), ordered: false }))
        );
        let counts = Directive::ExpectCounts { query: None, are: vec![("late".into(), 1)] };
        assert_eq!(parse("expect counts late=1"), Ok(Some(counts)));
    }

    #[test]
    fn what_is_wrong_has_a_place_and_a_way_out() {
        for (line, column, hint) in [
            ("puhs t", 1, "Use push."),
            ("push", 5, "Write the table"),
            ("push t \"a", 8, "End it"),
            ("push t a", 8, "Write the table"),
            ("advance 3 fortnights", 9, "Write advance"),
            ("watermark t then", 13, "Write watermark"),
            ("expect counts lat=1", 15, "Use late."),
            ("expect counts late=x", 15, "Write expect"),
            ("test", 5, "Write test"),
            ("  what is this", 3, "Begin with"),
        ] {
            let fault = parse(line).expect_err(line);
            assert_eq!(fault.column, column, "{line}: {}", fault.message);
            assert!(fault.hint.contains(hint), "{line}: {}", fault.hint);
        }
    }

    #[test]
    fn expectations_are_written_as_they_are_read() {
        for line in [
            "expect watermark none",
            "expect watermark t split a 2024-05-01 09:00:00.5",
            "expect watermark query q 2024-05-01 09:00:00",
            "expect splits t a=active b=empty,idle",
            "expect counts q late=1 future=0",
            "expect error P003 \"some words\" 'and \"others\"'",
        ] {
            let directive = parse(line).unwrap().unwrap();
            assert_eq!(show(&directive).as_deref(), Some(line));
        }
    }
}
