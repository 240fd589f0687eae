//! Regular expressions: `regexp`, `regexp_extract`, `regexp_replace`, `SIMILAR TO`.
//!
//! The dialect is that of the `regex` crate, which knows all that Java's patterns know except
//! look-around and back references; those are an error.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, StringArray};
use arrow::datatypes::DataType;
use datafusion_common::{Result, exec_err};
use datafusion_expr::ScalarUDF;
use regex::Regex;

use super::scalar::{Arguments, Cached, Function, boolean, string};

/// The name that `SIMILAR TO` is called by inside.
pub(super) const SIMILAR_TO: &str = "similar_to";

/// The functions with their names.
pub(super) fn all() -> Vec<(&'static str, Arc<ScalarUDF>)> {
    const UTF8: DataType = DataType::Utf8;
    let extract: &[&[DataType]] = &[&[UTF8, UTF8], &[UTF8, UTF8, DataType::Int64]];
    vec![
        ("regexp", Function::new("regexp", &[&[UTF8, UTF8]], boolean, matches).udf()),
        ("regexp_extract", Function::new("regexp_extract", extract, string, extract_group).udf()),
        ("regexp_replace", Function::new("regexp_replace", &[&[UTF8, UTF8, UTF8]], string, replace).udf()),
        (
            SIMILAR_TO,
            Function::new(SIMILAR_TO, &[&[UTF8, UTF8], &[UTF8, UTF8, UTF8]], boolean, similar).udf(),
        ),
    ]
}

fn compile(pattern: &str) -> Result<Regex> {
    match Regex::new(pattern) {
        Ok(regex) => Ok(regex),
        Err(error) => exec_err!("\"{pattern}\" is no regular expression: {error}"),
    }
}

/// Whether the pattern is found anywhere in the text.
fn matches(args: &Arguments<'_>) -> Result<ArrayRef> {
    let (text, pattern) = (args.text(0)?, args.text(1)?);
    let mut regex = Cached::new();
    let mut out = Vec::with_capacity(args.rows);
    for row in 0..args.rows {
        out.push(match (text.get(row), pattern.get(row)) {
            (Some(text), Some(pattern)) => Some(regex.get(pattern, compile)?.is_match(text)),
            _ => None,
        });
    }
    Ok(Arc::new(BooleanArray::from(out)))
}

/// A group of the first match; group 0, the default, is the whole. NULL if there is none.
fn extract_group(args: &Arguments<'_>) -> Result<ArrayRef> {
    let (text, pattern) = (args.text(0)?, args.text(1)?);
    let group = if args.len() > 2 { Some(args.integer(2)?) } else { None };
    let mut regex = Cached::new();
    let mut out = Vec::with_capacity(args.rows);
    for row in 0..args.rows {
        let group = match &group {
            Some(group) => group.get(row).and_then(|group| usize::try_from(group).ok()),
            None => Some(0),
        };
        out.push(match (text.get(row), pattern.get(row), group) {
            (Some(text), Some(pattern), Some(group)) => regex
                .get(pattern, compile)?
                .captures(text)
                .and_then(|captures| captures.get(group))
                .map(|found| found.as_str()),
            _ => None,
        });
    }
    Ok(Arc::new(StringArray::from(out)))
}

/// All matches replaced; the replacement is taken as it stands, `$1` too, as in Flink.
fn replace(args: &Arguments<'_>) -> Result<ArrayRef> {
    let (text, pattern, replacement) = (args.text(0)?, args.text(1)?, args.text(2)?);
    let mut regex = Cached::new();
    let mut out = Vec::with_capacity(args.rows);
    for row in 0..args.rows {
        out.push(match (text.get(row), pattern.get(row), replacement.get(row)) {
            (Some(text), Some(pattern), Some(replacement)) => {
                Some(regex.get(pattern, compile)?.replace_all(text, regex::NoExpand(replacement)))
            }
            _ => None,
        });
    }
    Ok(Arc::new(out.into_iter().collect::<StringArray>()))
}

/// Whether the whole text fits an SQL pattern.
fn similar(args: &Arguments<'_>) -> Result<ArrayRef> {
    let (text, pattern) = (args.text(0)?, args.text(1)?);
    let escape = if args.len() > 2 { args.text(2)?.get(0) } else { None };
    let escape = match escape.map(|escape| (escape.chars().next(), escape.chars().count())) {
        None | Some((None, _)) => None,
        Some((character, 1)) => character,
        Some((_, length)) => return exec_err!("the ESCAPE of SIMILAR TO has {length} characters, not 1"),
    };
    let mut regex = Cached::new();
    let mut out = Vec::with_capacity(args.rows);
    for row in 0..args.rows {
        out.push(match (text.get(row), pattern.get(row)) {
            (Some(text), Some(pattern)) => {
                Some(regex.get(pattern, |pattern| compile(&sql_pattern(pattern, escape)))?.is_match(text))
            }
            _ => None,
        });
    }
    Ok(Arc::new(BooleanArray::from(out)))
}

/// An SQL pattern as a regular expression. As in Flink a dot is any character.
fn sql_pattern(pattern: &str, escape: Option<char>) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    out.push_str("^(?:");
    let mut characters = pattern.chars();
    let mut in_class = false;
    while let Some(character) = characters.next() {
        match character {
            _ if Some(character) == escape => {
                if let Some(next) = characters.next() {
                    out.push_str(&regex::escape(next.encode_utf8(&mut [0; 4])));
                }
            }
            '[' | ']' => {
                in_class = character == '[';
                out.push(character);
            }
            _ if in_class => out.push(character),
            '_' => out.push_str("(?s:.)"),
            '%' => out.push_str("(?s:.*)"),
            '\\' => out.push_str("\\\\"),
            '$' => out.push_str("\\$"),
            _ => out.push(character),
        }
    }
    out.push_str(")$");
    out
}

#[cfg(test)]
mod tests {
    use datafusion_common::ScalarValue;

    use super::super::tests::{null, one, text, try_one};

    // The expectations are answers of Flink 2.3.
    #[test]
    fn patterns_are_found_extracted_and_replaced() {
        let yes = ScalarValue::Boolean(Some(true));
        assert_eq!(one("regexp", &[text("hello"), text("l+")]), yes);
        let pattern = text("foo(.*?)(bar)");
        assert_eq!(one("regexp_extract", &[text("foothebar"), pattern.clone(), 2.into()]), text("bar"));
        assert_eq!(one("regexp_extract", &[text("foothebar"), pattern]), text("foothebar"));
        assert_eq!(one("regexp_extract", &[text("abc"), text("x(.)")]), null());
        assert_eq!(one("regexp_extract", &[text("abc"), text("a(.)"), 3.into()]), null());
        assert_eq!(one("regexp_replace", &[text("foobar"), text("oo|ar"), text("-")]), text("f-b-"));
        assert_eq!(one("regexp_replace", &[text("foobar"), text("(o+)"), text("<$1>")]), text("f<$1>bar"));
        assert!(try_one("regexp", &[text("a"), text("(")]).is_err());
    }

    #[test]
    fn similar_to_fits_the_whole_text() {
        let fits = |value: &str, pattern: &str| one("similar_to", &[text(value), text(pattern)]);
        let (yes, no) = (ScalarValue::Boolean(Some(true)), ScalarValue::Boolean(Some(false)));
        assert_eq!(fits("a", "a|b"), yes);
        assert_eq!(fits("axb", "a.b"), yes);
        assert_eq!(fits("ab", "a"), no);
        assert_eq!(fits("a\nb", "a_b"), yes);
        assert_eq!(fits("Grüße 日本 😀", "(H|G).*"), yes);
        assert_eq!(fits("a$", "a$"), yes);
        assert_eq!(fits("a\\b", "a\\b"), yes);
        assert_eq!(one("similar_to", &[text("a%b"), text("a\\%b"), text("\\")]), yes);
        assert_eq!(one("similar_to", &[text("axb"), text("a\\%b"), text("\\")]), no);
    }
}
