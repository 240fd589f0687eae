//! Variables of scripts: values in the place of `${name}`.

use std::collections::BTreeMap;
use std::ops::Range;

use super::scan::{PieceKind, scan};
use crate::error::{Error, Place, SourceText, Span, code, did_you_mean};

/// Values for `${name}`.
///
/// ```
/// let pairs = [("day".to_owned(), "2024-05-01".to_owned())];
/// let text = tidegate::sql::Variables::new(&pairs).replace("a.sql", "SELECT DATE '${day}'")?;
/// assert_eq!(text, "SELECT DATE '2024-05-01'");
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Takes names and values; the last value of a name counts.
    pub fn new(pairs: &[(String, String)]) -> Self {
        Self(pairs.iter().cloned().collect())
    }

    /// Gives a name a value, in place of one that it has.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// With `DIR`, unless it was given: the folder of the script.
    #[must_use]
    pub fn with_dir(&self, dir: &str) -> Self {
        let mut all = self.clone();
        all.0.entry("DIR".to_owned()).or_insert_with(|| dir.to_owned());
        all
    }

    /// The text of the script `name` with values in the place of `${name}`, inside quotes too, but not inside
    /// comments. `$${` gives `${`.
    ///
    /// # Errors
    /// `U003` for a variable without value, with its place.
    pub fn replace(&self, name: &str, text: &str) -> Result<String, Error> {
        replace(text, self).map_err(|error| {
            error.in_source(&SourceText { name: name.to_owned(), text: text.to_owned() }.into())
        })
    }
}

/// Puts values in the place of `${name}`, inside quotes too, but not inside comments. `$${` gives `${`.
fn replace(text: &str, variables: &Variables) -> Result<String, Error> {
    let mut out = String::with_capacity(text.len());
    let mut start = 0;
    for comment in scan(text).into_iter().filter(|piece| piece.kind == PieceKind::Comment) {
        replace_in(text, start..comment.range.start, variables, &mut out)?;
        start = comment.range.end;
        out.push_str(&text[comment.range]);
    }
    replace_in(text, start..text.len(), variables, &mut out)?;
    Ok(out)
}

/// Replaces in a part of `text` that holds no comment.
fn replace_in(text: &str, part: Range<usize>, variables: &Variables, out: &mut String) -> Result<(), Error> {
    let mut start = part.start;
    while let Some(dollar) = text[start..part.end].find("${").map(|at| start + at) {
        if text[start..dollar].ends_with('$') {
            out.push_str(&text[start..dollar - 1]);
            out.push_str("${");
            start = dollar + 2;
            continue;
        }
        let (name, end) = variable(text, dollar)?;
        let value = variables.0.get(name);
        let value = value.ok_or_else(|| undefined(name, variables).at(span(text, dollar..end)))?;
        out.push_str(&text[start..dollar]);
        out.push_str(value);
        start = end;
    }
    out.push_str(&text[start..part.end]);
    Ok(())
}

/// The name in the `${name}` that starts at `dollar`, and where it ends.
fn variable(text: &str, dollar: usize) -> Result<(&str, usize), Error> {
    let inner = &text[dollar + 2..];
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let length = inner.find(|c| !is_name(c)).unwrap_or(inner.len());
    if length == 0 || !inner[length..].starts_with('}') {
        return Err(Error::usage(code::UNDEFINED_VARIABLE, "\"${\" starts no variable")
            .at(span(text, dollar..dollar + 2))
            .hint("Write ${name}, or $${ for the characters themselves."));
    }
    Ok((&inner[..length], dollar + 2 + length + 1))
}

fn undefined(name: &str, variables: &Variables) -> Error {
    let error = Error::usage(code::UNDEFINED_VARIABLE, format!("variable \"{name}\" has no value"));
    match did_you_mean(name, variables.0.keys().map(String::as_str)) {
        Some(near) => error.hint(format!("Pass -D {name}=…, or use \"{near}\".")),
        None => error.hint(format!("Pass -D {name}=…")),
    }
}

/// The place of a range of bytes.
fn span(text: &str, range: Range<usize>) -> Span {
    let place = |at: usize| {
        let before = &text[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place {
            line: before.matches('\n').count() as u64 + 1,
            column: before[line_start..].chars().count() as u64 + 1,
        }
    };
    Span { start: place(range.start), end: place(range.end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(text: &str) -> Result<String, Error> {
        let pairs = [("day", "2013-01-31"), ("t", "flights")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        Variables::new(&pairs).with_dir(".").replace("a.sql", text)
    }

    #[test]
    fn values_take_the_place_of_variables_also_in_quotes() -> Result<(), Error> {
        assert_eq!(
            replaced("SELECT * FROM ${t} WHERE d = '${day}'")?,
            "SELECT * FROM flights WHERE d = '2013-01-31'"
        );
        assert_eq!(replaced("'${DIR}/x' `${t}` \"${t}${t}\"")?, "'./x' `flights` \"flightsflights\"");
        assert_eq!(replaced("${t}é漢${t}")?, "flightsé漢flights");
        Ok(())
    }

    #[test]
    fn comments_are_left_alone() -> Result<(), Error> {
        for text in ["-- ${none}\n1", "/* ${none} \n ${no} */ 1", "-- '${none}", "/* ${none}"] {
            assert_eq!(replaced(text)?, text);
        }
        // A comment mark in quotes starts no comment, a quote in a comment no text.
        assert_eq!(replaced("'--${t}' -- it's\n${t}")?, "'--flights' -- it's\nflights");
        assert_eq!(replaced("'it''s ${t}' ${t}")?, "'it''s flights' flights");
        Ok(())
    }

    #[test]
    fn a_doubled_dollar_stands_for_itself() -> Result<(), Error> {
        assert_eq!(replaced("$${t} '$${t}' $ $$ '$'")?, "${t} '${t}' $ $$ '$'");
        Ok(())
    }

    #[test]
    fn undefined_variables_are_named_with_their_place() {
        let error = replaced("SELECT 1;\nSELECT 'é ${dya}'").expect_err("undefined");
        assert_eq!((error.code(), error.exit_code()), ("U003", 2));
        let span = error.span().expect("a place");
        assert_eq!((span.start.line, span.start.column, span.end.column), (2, 11, 17));
        assert_eq!(error.hint_text(), Some("Pass -D dya=…, or use \"day\"."));
        assert!(error.render().contains("a.sql:2:11"), "{}", error.render());
        for text in ["${", "${}", "${a b}", "'${'"] {
            assert_eq!(replaced(text).expect_err("no variable").code(), "U003", "{text}");
        }
    }
}
