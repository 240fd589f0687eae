//! PATTERN: variables with quantifiers, one behind the other.

use sqlparser::ast::{
    Ident, MatchRecognizePattern as Pattern, MatchRecognizeSymbol as Symbol,
    RepetitionQuantifier as Quantifier,
};

use crate::error::{Error, Span, code};
use crate::plan::diagnose::from_sql_span;

/// Conditions of a row are kept as bits of a word.
const MOST_VARIABLES: usize = 64;

/// A variable with its quantifier.
#[derive(Debug, Clone)]
pub(in crate::plan) struct Shape {
    pub(in crate::plan) name: Ident,
    pub(in crate::plan) min: u32,
    pub(in crate::plan) max: Option<u32>,
    pub(in crate::plan) is_greedy: bool,
}

/// The variables of a pattern. `span`: the place of the clause.
///
/// # Errors
/// `P002` for what patterns can't have, `P003` for patterns that mean nothing.
pub(super) fn shapes(pattern: &Pattern, span: Option<Span>) -> Result<Vec<Shape>, Error> {
    let mut shapes = Vec::new();
    collect(pattern, span, &mut shapes)?;
    for (index, shape) in shapes.iter().enumerate() {
        if shapes[..index].iter().any(|other| is_same(&other.name, &shape.name)) {
            return Err(unsupported(&format!("the variable {} twice in PATTERN", shape.name))
                .at(place(&shape.name).or(span))
                .hint("Give the second one another name, with the same condition."));
        }
    }
    if shapes.len() > MOST_VARIABLES {
        let what = format!("a pattern of {} variables, more than {MOST_VARIABLES},", shapes.len());
        return Err(unsupported(&what).at(span).hint("Use quantifiers, such as A{3} for A1 A2 A3."));
    }
    if shapes.iter().all(|shape| shape.min == 0) {
        return Err(Error::plan(
            code::INVALID_QUERY,
            "the pattern is met by no row at all: all of it is optional",
        )
        .at(span)
        .hint("Have a variable that must take a row, such as A+ instead of A*."));
    }
    if let Some(last) = shapes.last().filter(|last| last.is_greedy && last.max != Some(last.min)) {
        let name = &last.name;
        return Err(unsupported("a greedy quantifier at the end of a pattern")
            .at(place(name).or(span))
            .hint(format!(
                "Make it reluctant, such as {name}+?, or put a variable behind it that ends the match."
            )));
    }
    Ok(shapes)
}

/// Whether two names are of one variable.
pub(super) fn is_same(one: &Ident, other: &Ident) -> bool {
    match (one.quote_style, other.quote_style) {
        (None, None) => one.value.eq_ignore_ascii_case(&other.value),
        _ => one.value == other.value,
    }
}

pub(super) fn place(name: &Ident) -> Option<Span> {
    from_sql_span(name.span)
}

pub(super) fn unsupported(what: &str) -> Error {
    Error::plan(code::NOT_SUPPORTED, format!("{what} can't run yet"))
}

fn collect(pattern: &Pattern, span: Option<Span>, shapes: &mut Vec<Shape>) -> Result<(), Error> {
    let at = first_name(pattern).and_then(place).or(span);
    let refuse = |what: &str, hint: &str| Err(unsupported(&format!("{what} in PATTERN")).at(at).hint(hint));
    match pattern {
        Pattern::Concat(parts) => parts.iter().try_for_each(|part| collect(part, span, shapes)),
        Pattern::Group(inner) => collect(inner, span, shapes),
        Pattern::Symbol(Symbol::Named(name)) => {
            shapes.push(Shape { name: name.clone(), min: 1, max: Some(1), is_greedy: true });
            Ok(())
        }
        Pattern::Repetition(inner, quantifier) => {
            // `A+?` is read as `(A+)?`.
            let (inner, quantifier, is_greedy) = match (inner.as_ref(), quantifier) {
                (Pattern::Repetition(inner, quantifier), Quantifier::AtMostOne) => (inner, quantifier, false),
                _ => (inner, quantifier, true),
            };
            let Some(name) = single(inner) else {
                let hint = "Write the variables out, each under its own name: A B1 C1 B2 C2 for A (B C){2}.";
                return refuse("a quantifier on a group", hint);
            };
            let (min, max) = bounds(quantifier);
            if max.is_some_and(|max| max < min.max(1)) {
                let message = format!("{name}{quantifier} can take no number of rows");
                return Err(Error::plan(code::INVALID_QUERY, message)
                    .at(at)
                    .hint("Give the smaller number first, and at least 1 as the greater."));
            }
            shapes.push(Shape { name: name.clone(), min, max, is_greedy });
            Ok(())
        }
        Pattern::Alternation(_) => refuse(
            "an alternative",
            "Use one variable with OR in its condition, or UNION ALL of a MATCH_RECOGNIZE for each alternative.",
        ),
        Pattern::Permute(_) => {
            refuse("PERMUTE", "Use UNION ALL of a MATCH_RECOGNIZE for each order of the variables.")
        }
        Pattern::Exclude(_) => {
            refuse("an exclusion", "Leave the braces out: MEASURES says what is given of a match.")
        }
        Pattern::Symbol(Symbol::Start | Symbol::End) => {
            refuse("an anchor", "Leave ^ and $ out: a stream of rows has no ends to hold a match to.")
        }
    }
}

fn single(pattern: &Pattern) -> Option<&Ident> {
    match pattern {
        Pattern::Symbol(Symbol::Named(name)) => Some(name),
        Pattern::Group(inner) => single(inner),
        _ => None,
    }
}

fn first_name(pattern: &Pattern) -> Option<&Ident> {
    match pattern {
        Pattern::Symbol(Symbol::Named(name)) | Pattern::Exclude(Symbol::Named(name)) => Some(name),
        Pattern::Symbol(_) | Pattern::Exclude(_) => None,
        Pattern::Permute(symbols) => symbols.iter().find_map(|symbol| match symbol {
            Symbol::Named(name) => Some(name),
            Symbol::Start | Symbol::End => None,
        }),
        Pattern::Concat(parts) | Pattern::Alternation(parts) => parts.iter().find_map(first_name),
        Pattern::Group(inner) | Pattern::Repetition(inner, _) => first_name(inner),
    }
}

fn bounds(quantifier: &Quantifier) -> (u32, Option<u32>) {
    match quantifier {
        Quantifier::ZeroOrMore => (0, None),
        Quantifier::OneOrMore => (1, None),
        Quantifier::AtMostOne => (0, Some(1)),
        Quantifier::Exactly(count) => (*count, Some(*count)),
        Quantifier::AtLeast(least) => (*least, None),
        Quantifier::AtMost(most) => (0, Some(*most)),
        Quantifier::Range(least, most) => (*least, Some(*most)),
    }
}
