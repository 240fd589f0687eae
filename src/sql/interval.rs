//! Interval literals: read, checked against their unit, brought into a form that DataFusion plans.

use std::fmt::Write;

use sqlparser::ast::{DateTimeField, Expr, Interval, Value, ValueWithSpan};
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::errors;
use crate::error::{Error, Span, code};

const MAX_FRACTION_DIGITS: usize = 9;
const MAX_SIGNS: usize = 8;

/// A token that can follow INTERVAL in a literal.
pub(super) fn is_literal(token: &Token) -> bool {
    matches!(token, Token::SingleQuotedString(_) | Token::Number(..) | Token::Minus | Token::Plus)
}

/// Next come minus signs and an interval literal.
pub(super) fn is_negated(parser: &Parser) -> bool {
    let mut signs = 0;
    while signs < MAX_SIGNS && parser.peek_nth_token_ref(signs).token == Token::Minus {
        signs += 1;
    }
    is_keyword(&parser.peek_nth_token_ref(signs).token, Keyword::INTERVAL)
        && is_literal(&parser.peek_nth_token_ref(signs + 1).token)
}

fn is_keyword(token: &Token, keyword: Keyword) -> bool {
    matches!(token, Token::Word(word) if word.keyword == keyword && word.quote_style.is_none())
}

/// Reads `- INTERVAL …`: DataFusion would put the sign before the first component only.
pub(super) fn parse_negated(parser: &mut Parser) -> Result<Expr, Error> {
    let mut negative = false;
    while parser.peek_token_ref().token == Token::Minus {
        parser.advance_token();
        negative = !negative;
    }
    read(parser, negative)
}

/// Reads `INTERVAL …`.
pub(super) fn parse(parser: &mut Parser) -> Result<Expr, Error> {
    read(parser, false)
}

fn read(parser: &mut Parser, mut negative: bool) -> Result<Expr, Error> {
    parser.advance_token();
    while matches!(parser.peek_token_ref().token, Token::Minus | Token::Plus) {
        negative ^= parser.peek_token_ref().token == Token::Minus;
        parser.advance_token();
    }
    let token = parser.peek_token();
    let text = match &token.token {
        Token::SingleQuotedString(text) | Token::Number(text, _) => text.trim().to_owned(),
        _ => {
            return Err(errors::expected_next("the interval's value in quotes", parser)
                .hint("Write an interval such as INTERVAL '10' SECOND."));
        }
    };
    parser.advance_token();
    let literal = Literal { text, span: errors::span(token.span), negative };
    let fields = fields(parser)?;
    let (value, leading_field) = match fields {
        None => (literal.with_units()?, None),
        Some((unit, None)) => literal.of_unit(unit)?,
        Some((first, Some(last))) => (literal.of_fields(first, last)?, None),
    };
    let value = Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(value), span: token.span });
    Ok(Expr::Interval(Interval {
        value: Box::new(value),
        leading_field,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    }))
}

/// A unit of intervals, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Century,
    Decade,
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

impl Unit {
    /// The unit that a word names, singular, plural or in short.
    fn of_word(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "century" | "centuries" => Self::Century,
            "decade" | "decades" => Self::Decade,
            "y" | "yr" | "yrs" | "year" | "years" => Self::Year,
            "quarter" | "quarters" => Self::Quarter,
            "mon" | "mons" | "month" | "months" => Self::Month,
            "w" | "week" | "weeks" => Self::Week,
            "d" | "day" | "days" => Self::Day,
            "h" | "hr" | "hrs" | "hour" | "hours" => Self::Hour,
            "m" | "min" | "mins" | "minute" | "minutes" => Self::Minute,
            "s" | "sec" | "secs" | "second" | "seconds" => Self::Second,
            "ms" | "millisecond" | "milliseconds" => Self::Millisecond,
            "us" | "microsecond" | "microseconds" => Self::Microsecond,
            "nanosecond" | "nanoseconds" => Self::Nanosecond,
            _ => return None,
        })
    }

    fn field(self) -> DateTimeField {
        match self {
            Self::Century => DateTimeField::Century,
            Self::Decade => DateTimeField::Decade,
            Self::Year => DateTimeField::Year,
            Self::Quarter | Self::Month => DateTimeField::Month,
            Self::Week => DateTimeField::Week(None),
            Self::Day => DateTimeField::Day,
            Self::Hour => DateTimeField::Hour,
            Self::Minute => DateTimeField::Minute,
            Self::Second => DateTimeField::Second,
            Self::Millisecond => DateTimeField::Millisecond,
            Self::Microsecond => DateTimeField::Microsecond,
            Self::Nanosecond => DateTimeField::Nanosecond,
        }
    }

    /// Months, days and nanoseconds in one; exactly one of them is not zero.
    fn size(self) -> (i128, i128, i128) {
        match self {
            Self::Century => (1_200, 0, 0),
            Self::Decade => (120, 0, 0),
            Self::Year => (12, 0, 0),
            Self::Quarter => (3, 0, 0),
            Self::Month => (1, 0, 0),
            Self::Week => (0, 7, 0),
            Self::Day => (0, 1, 0),
            Self::Hour => (0, 0, 3_600_000_000_000),
            Self::Minute => (0, 0, 60_000_000_000),
            Self::Second => (0, 0, 1_000_000_000),
            Self::Millisecond => (0, 0, 1_000_000),
            Self::Microsecond => (0, 0, 1_000),
            Self::Nanosecond => (0, 0, 1),
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Century => "centuries",
            Self::Decade => "decades",
            Self::Year => "years",
            Self::Quarter => "quarters",
            Self::Month => "months",
            Self::Week => "weeks",
            Self::Day => "days",
            Self::Hour => "hours",
            Self::Minute => "minutes",
            Self::Second => "seconds",
            Self::Millisecond => "milliseconds",
            Self::Microsecond => "microseconds",
            Self::Nanosecond => "nanoseconds",
        }
    }

    fn keyword(self) -> String {
        match self {
            Self::Quarter => "QUARTER".to_owned(),
            other => other.field().to_string(),
        }
    }

    /// The next smaller field of a compound interval, and how many of it make one of this.
    fn smaller(self) -> Option<(Self, u64)> {
        match self {
            Self::Year => Some((Self::Month, 12)),
            Self::Day => Some((Self::Hour, 24)),
            Self::Hour => Some((Self::Minute, 60)),
            Self::Minute => Some((Self::Second, 60)),
            _ => None,
        }
    }
}

/// Reads `SECOND`, `DAY(3)`, `DAY TO SECOND(6)` or nothing.
fn fields(parser: &mut Parser) -> Result<Option<(Unit, Option<Unit>)>, Error> {
    let Some(first) = unit(parser) else { return Ok(None) };
    if !parser.parse_keyword(Keyword::TO) {
        return Ok(Some((first, None)));
    }
    let token = parser.peek_token();
    let Some(last) = unit(parser) else {
        return Err(errors::expected_next("a unit of time", parser)
            .hint("Write an interval such as INTERVAL '1:30' HOUR TO MINUTE."));
    };
    let mut field = first;
    while field != last {
        match field.smaller() {
            Some((smaller, _)) => field = smaller,
            None => {
                return Err(Error::parse(
                    code::INVALID_LITERAL,
                    format!("no interval goes from {} to {}", first.keyword(), last.keyword()),
                )
                .at(errors::span(token.span))
                .hint("Use YEAR TO MONTH, or a larger to a smaller one of DAY, HOUR, MINUTE and SECOND."));
            }
        }
    }
    Ok(Some((first, if first == last { None } else { Some(last) })))
}

/// Reads a unit and its precision, which says nothing that the value does not.
fn unit(parser: &mut Parser) -> Option<Unit> {
    let unit = match &parser.peek_token_ref().token {
        // Short forms such as `s` are names in SQL.
        Token::Word(word) if word.quote_style.is_none() && word.value.len() > 2 && word.value != "min" => {
            Unit::of_word(&word.value)?
        }
        _ => return None,
    };
    parser.advance_token();
    let is_precision = parser.peek_token_ref().token == Token::LParen
        && matches!(parser.peek_nth_token_ref(1).token, Token::Number(..));
    if is_precision {
        while parser.next_token().token != Token::RParen {
            if parser.peek_token_ref().token == Token::EOF {
                break;
            }
        }
    }
    Some(unit)
}

struct Literal {
    text: String,
    span: Span,
    negative: bool,
}

impl Literal {
    fn error(&self, message: impl Into<String>) -> Error {
        Error::parse(code::INVALID_LITERAL, message).at(self.span)
    }

    /// `'5' SECOND`.
    fn of_unit(&self, unit: Unit) -> Result<(String, Option<DateTimeField>), Error> {
        let amount = Amount::parse(&self.text, unit).ok_or_else(|| {
            let fraction = self.text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
            let hint = if fraction > MAX_FRACTION_DIGITS {
                format!("Write at most {MAX_FRACTION_DIGITS} digits after the point.")
            } else if self.text.contains(':') {
                "Say from which unit to which, such as INTERVAL '1:30' HOUR TO MINUTE.".to_owned()
            } else if unit.size().0 != 0 {
                format!("Write a whole number, such as INTERVAL '2' {}.", unit.keyword())
            } else {
                format!("Write a number, such as INTERVAL '10' {}.", unit.keyword())
            };
            self.error(format!("'{}' is not a number of {}", self.text, unit.plural())).hint(hint)
        })?;
        let mut total = Total::default();
        total.add(&amount, unit);
        self.check_range(&total)?;
        let amount = Amount { negative: amount.negative ^ self.negative, ..amount };
        if unit == Unit::Quarter {
            let months = amount.whole.saturating_mul(3);
            let amount = Amount { whole: months, ..amount };
            return Ok((amount.to_string(), Some(unit.field())));
        }
        Ok((amount.to_string(), Some(unit.field())))
    }

    /// `'1 02:03:04' DAY TO SECOND`.
    fn of_fields(&self, first: Unit, last: Unit) -> Result<String, Error> {
        let (negative, mut rest) = split_sign(&self.text);
        let mut parts = Vec::new();
        let mut unit = first;
        loop {
            let separator = match unit {
                Unit::Year => '-',
                Unit::Day => ' ',
                _ => ':',
            };
            let (part, tail) = if unit == last {
                (rest, "")
            } else {
                rest.split_once(separator).ok_or_else(|| self.misfit(first, last))?
            };
            let mut amount = Amount::parse(part.trim(), unit)
                .filter(|amount| {
                    !part.trim().starts_with(['-', '+'])
                        && (unit == Unit::Second || amount.fraction.is_empty())
                })
                .ok_or_else(|| self.misfit(first, last))?;
            let limit = if unit == first { None } else { larger_limit(unit) };
            if limit.is_some_and(|limit| amount.whole >= limit) {
                return Err(self.error(format!(
                    "'{}' has {} {}, allowed are 0 to {}",
                    self.text,
                    amount.whole,
                    unit.plural(),
                    limit.unwrap_or(1) - 1
                )));
            }
            amount.negative = negative ^ self.negative;
            parts.push((amount, unit));
            rest = tail;
            match unit.smaller() {
                Some((smaller, _)) if unit != last => unit = smaller,
                _ => break,
            }
        }
        self.print(&parts)
    }

    fn misfit(&self, first: Unit, last: Unit) -> Error {
        let example = match (first, last) {
            (Unit::Year, _) => "1-6",
            (Unit::Day, Unit::Hour) => "1 02",
            (Unit::Day, Unit::Minute) => "1 02:03",
            (Unit::Day, _) => "1 02:03:04",
            (_, Unit::Minute) => "1:30",
            (Unit::Hour, _) => "1:02:03",
            _ => "1:30",
        };
        let (first, last) = (first.keyword(), last.keyword());
        self.error(format!("'{}' is not an interval from {first} to {last}", self.text))
            .hint(format!("Write it such as INTERVAL '{example}' {first} TO {last}."))
    }

    /// `'1 day 2 hours'`, `'1 day 02:03:04'`.
    fn with_units(&self) -> Result<String, Error> {
        let bad = || {
            self.error(format!("'{}' is not an interval", self.text))
                .hint("Write an interval such as INTERVAL '10' SECOND or INTERVAL '1 day 2 hours'.")
        };
        if Amount::parse(&self.text, Unit::Second).is_some() {
            return Err(self
                .error("interval has no unit")
                .hint(format!("Write the unit, such as INTERVAL '{}' SECOND.", self.text)));
        }
        let mut parts: Vec<(Amount, Unit)> = Vec::new();
        let mut words = self.text.split_whitespace();
        while let Some(word) = words.next() {
            if word.contains(':') {
                parts.extend(clock(word).ok_or_else(bad)?);
                continue;
            }
            let digits = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
            let (amount, attached) = word.split_at(digits);
            let name = if attached.is_empty() { words.next().ok_or_else(bad)? } else { attached };
            let unit = Unit::of_word(name).ok_or_else(|| {
                self.error(format!("\"{name}\" is not a unit of time"))
                    .hint("Use years, months, weeks, days, hours, minutes, seconds or milliseconds.")
            })?;
            parts.push((Amount::parse(amount, unit).ok_or_else(bad)?, unit));
        }
        if parts.is_empty() {
            return Err(bad());
        }
        for (index, (_, unit)) in parts.iter().enumerate() {
            if parts[..index].iter().any(|(_, other)| other == unit) {
                return Err(self.error(format!("'{}' gives its {} twice", self.text, unit.plural())));
            }
        }
        for (amount, _) in &mut parts {
            amount.negative ^= self.negative;
        }
        self.print(&parts)
    }

    fn print(&self, parts: &[(Amount, Unit)]) -> Result<String, Error> {
        let mut total = Total::default();
        let mut text = String::new();
        for (amount, unit) in parts {
            total.add(amount, *unit);
            if amount.is_zero() {
                continue;
            }
            let separator = if text.is_empty() { "" } else { " " };
            let (factor, name) =
                if *unit == Unit::Quarter { (3, Unit::Month.plural()) } else { (1, unit.plural()) };
            let amount = Amount { whole: amount.whole.saturating_mul(factor), ..amount.clone() };
            let _ = write!(text, "{separator}{amount} {name}");
        }
        self.check_range(&total)?;
        if text.is_empty() {
            text.push_str("0 seconds");
        }
        Ok(text)
    }

    fn check_range(&self, total: &Total) -> Result<(), Error> {
        let months = i32::try_from(total.months).is_ok();
        let days = i32::try_from(total.days).is_ok();
        let nanos = i64::try_from(total.nanos).is_ok();
        if months && days && nanos {
            return Ok(());
        }
        let allowed = match (months, days) {
            (false, _) => "2147483647 months",
            (_, false) => "2147483647 days",
            _ => "106751 days in hours, minutes and seconds",
        };
        Err(self.error(format!("interval '{}' is out of range, allowed are at most {allowed}", self.text)))
    }
}

fn larger_limit(unit: Unit) -> Option<u64> {
    match unit {
        Unit::Month => Some(12),
        Unit::Hour => Some(24),
        Unit::Minute | Unit::Second => Some(60),
        _ => None,
    }
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text.strip_prefix('+').unwrap_or(text).trim_start()),
    }
}

/// `[-]H:MM[:SS[.f]]`.
fn clock(word: &str) -> Option<Vec<(Amount, Unit)>> {
    let (negative, rest) = split_sign(word);
    let units = [Unit::Hour, Unit::Minute, Unit::Second];
    let texts: Vec<&str> = rest.split(':').collect();
    if texts.len() > units.len() {
        return None;
    }
    let mut parts = Vec::new();
    for (text, unit) in texts.into_iter().zip(units) {
        let amount = Amount::parse(text, unit).filter(|_| !text.starts_with(['-', '+']))?;
        let too_many = unit != Unit::Hour && amount.whole >= 60;
        if too_many || (unit != Unit::Second && !amount.fraction.is_empty()) {
            return None;
        }
        parts.push((Amount { negative, ..amount }, unit));
    }
    Some(parts)
}

#[derive(Debug, Clone, Default)]
struct Amount {
    negative: bool,
    whole: u64,
    /// Digits after the point, without zeros at the end.
    fraction: String,
}

impl Amount {
    /// A number that may have a sign and, for days and less, a fraction down to a nanosecond.
    fn parse(text: &str, unit: Unit) -> Option<Self> {
        let (negative, rest) = split_sign(text);
        let (whole, fraction) = rest.split_once('.').unwrap_or((rest, ""));
        let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if rest.is_empty() || rest == "." || !is_digits(whole) || !is_digits(fraction) {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        let has_fraction = !fraction.is_empty();
        if has_fraction
            && (unit.size().0 != 0 || fraction.len() > MAX_FRACTION_DIGITS || unit == Unit::Nanosecond)
        {
            return None;
        }
        let whole = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        Some(Self { negative, whole, fraction: fraction.to_owned() })
    }

    fn is_zero(&self) -> bool {
        self.whole == 0 && self.fraction.is_empty()
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.negative && !self.is_zero() {
            f.write_str("-")?;
        }
        write!(f, "{}", self.whole)?;
        if !self.fraction.is_empty() {
            write!(f, ".{}", self.fraction)?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Total {
    months: i128,
    days: i128,
    nanos: i128,
}

impl Total {
    /// Adds an amount; a fraction only makes it one larger, which is enough for the range.
    fn add(&mut self, amount: &Amount, unit: Unit) {
        let whole = i128::from(amount.whole) + i128::from(!amount.fraction.is_empty());
        let (months, days, nanos) = unit.size();
        self.months += whole * months;
        self.days += whole * days;
        self.nanos += whole * nanos;
    }
}

#[cfg(test)]
mod tests {
    use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;

    use super::super::parse_expr;
    use super::*;

    fn canonical(sql: &str) -> String {
        match parse_expr(sql) {
            Ok(expr) => expr.to_string(),
            Err(error) => error.message().to_owned(),
        }
    }

    #[test]
    fn simple_intervals_keep_their_unit() {
        assert_eq!(canonical("INTERVAL '5' SECOND"), "INTERVAL '5' SECOND");
        assert_eq!(canonical("interval 5 minutes"), "INTERVAL '5' MINUTE");
        assert_eq!(canonical("INTERVAL '0.001' SECOND(3)"), "INTERVAL '0.001' SECOND");
        assert_eq!(canonical("INTERVAL '2' QUARTER"), "INTERVAL '6' MONTH");
        assert_eq!(canonical("INTERVAL '+7' DAY(3)"), "INTERVAL '7' DAY");
    }

    #[test]
    fn compound_intervals_become_components() {
        assert_eq!(
            canonical("INTERVAL '1 02:03:04.5' DAY TO SECOND"),
            "INTERVAL '1 days 2 hours 3 minutes 4.5 seconds'"
        );
        assert_eq!(canonical("INTERVAL '1:30' HOUR TO MINUTE"), "INTERVAL '1 hours 30 minutes'");
        assert_eq!(canonical("INTERVAL '90:00' MINUTE TO SECOND"), "INTERVAL '90 minutes'");
        assert_eq!(canonical("INTERVAL '1-6' YEAR TO MONTH"), "INTERVAL '1 years 6 months'");
        assert_eq!(canonical("INTERVAL '0:00' HOUR TO MINUTE"), "INTERVAL '0 seconds'");
        assert_eq!(canonical("INTERVAL '1 day 02:03'"), "INTERVAL '1 days 2 hours 3 minutes'");
    }

    #[test]
    fn a_sign_goes_to_every_component() {
        assert_eq!(canonical("- INTERVAL '5' SECOND"), "INTERVAL '-5' SECOND");
        assert_eq!(canonical("- - INTERVAL '-5' SECOND"), "INTERVAL '-5' SECOND");
        assert_eq!(canonical("INTERVAL -'5' SECOND"), "INTERVAL '-5' SECOND");
        assert_eq!(canonical("INTERVAL '-1 02:00' DAY TO MINUTE"), "INTERVAL '-1 days -2 hours'");
        assert_eq!(canonical("- INTERVAL '1 day 2 hours'"), "INTERVAL '-1 days -2 hours'");
        assert_eq!(canonical("- INTERVAL '1 day -2 hours'"), "INTERVAL '-1 days 2 hours'");
    }

    /// What DataFusion makes of the literal: months, days, nanoseconds.
    fn planned(sql: &str) -> (i32, i32, i64) {
        let Ok(Expr::Interval(interval)) = parse_expr(sql) else { panic!("{sql} is no interval") };
        let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(value), .. }) = *interval.value
        else {
            panic!("the value is no string")
        };
        let text = interval.leading_field.map_or(value.clone(), |field| format!("{value} {field}"));
        let planned = parse_interval_month_day_nano(&text).expect("DataFusion reads it");
        (planned.months, planned.days, planned.nanoseconds)
    }

    #[test]
    fn datafusion_reads_what_comes_out() {
        const SECOND: i64 = 1_000_000_000;
        assert_eq!(planned("INTERVAL '5' SECOND"), (0, 0, 5 * SECOND));
        assert_eq!(planned("INTERVAL '0.001' SECOND"), (0, 0, SECOND / 1_000));
        assert_eq!(planned("INTERVAL '-0.5' SECOND"), (0, 0, -SECOND / 2));
        assert_eq!(planned("INTERVAL '2' QUARTER"), (6, 0, 0));
        assert_eq!(planned("INTERVAL '3' WEEK"), (0, 21, 0));
        assert_eq!(planned("INTERVAL '1 02:03:04' DAY TO SECOND"), (0, 1, 7_384 * SECOND));
        assert_eq!(planned("- INTERVAL '1 02:03:04' DAY TO SECOND"), (0, -1, -7_384 * SECOND));
        assert_eq!(planned("INTERVAL '-1:30' HOUR TO MINUTE"), (0, 0, -5_400 * SECOND));
        assert_eq!(planned("INTERVAL '1-6' YEAR TO MONTH"), (18, 0, 0));
        assert_eq!(planned("INTERVAL '0:00' HOUR TO MINUTE"), (0, 0, 0));
        assert_eq!(planned("INTERVAL '1 day -2 hours 3 ms'"), (0, 1, -7_200 * SECOND + SECOND * 3 / 1_000));
        assert_eq!(planned("INTERVAL '1 century 2 decades 1 quarter'"), (1_443, 0, 0));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(canonical("INTERVAL 'abc' SECOND"), "'abc' is not a number of seconds");
        assert_eq!(canonical("INTERVAL '1:30' SECOND"), "'1:30' is not a number of seconds");
        assert_eq!(canonical("INTERVAL '' SECOND"), "'' is not a number of seconds");
        assert_eq!(canonical("INTERVAL '1.5' MONTH"), "'1.5' is not a number of months");
        assert_eq!(canonical("INTERVAL '1:60' HOUR TO MINUTE"), "'1:60' has 60 minutes, allowed are 0 to 59");
        assert_eq!(canonical("INTERVAL '1' MINUTE TO HOUR"), "no interval goes from MINUTE to HOUR");
        assert_eq!(canonical("INTERVAL '5'"), "interval has no unit");
        assert_eq!(canonical("INTERVAL '5 fortnights'"), "\"fortnights\" is not a unit of time");
        assert_eq!(
            canonical("INTERVAL '3000000' HOUR"),
            "interval '3000000' is out of range, allowed are at most 106751 days in hours, minutes and seconds"
        );
        assert_eq!(canonical("INTERVAL '2562047' HOUR"), "INTERVAL '2562047' HOUR");
    }
}
