//! DataFusion's errors in our words: code, names in double quotes, place, way out.

use std::borrow::Cow;

use datafusion_common::{DataFusionError, SchemaError};

use crate::error::{Error, Place, Span, code, did_you_mean};

/// A plan error for `error`. Errors of ours that travelled through DataFusion come out as they were.
pub(super) fn from_datafusion(error: DataFusionError) -> Error {
    let span = error.diagnostic().and_then(|diagnostic| diagnostic.span).map(from_datafusion_span);
    match root(&error) {
        Root::Ours(ours) => ours.clone().at(span),
        Root::Schema(schema) => from_schema(schema).at(span),
        Root::Text(kind, text) => from_text(kind, &text).at(span),
    }
}

enum Root<'a> {
    Ours(&'a Error),
    Schema(&'a SchemaError),
    Text(Kind, Cow<'a, str>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plan,
    NotImplemented,
    Internal,
}

fn root(error: &DataFusionError) -> Root<'_> {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => root(inner),
        DataFusionError::Shared(inner) => root(inner),
        DataFusionError::Collection(errors) => match errors.first() {
            Some(first) => root(first),
            None => Root::Text(Kind::Internal, error.message()),
        },
        DataFusionError::External(inner) => match inner.downcast_ref::<Error>() {
            Some(ours) => Root::Ours(ours),
            None => match inner.downcast_ref::<DataFusionError>() {
                Some(inner) => root(inner),
                None => Root::Text(Kind::Plan, error.message()),
            },
        },
        DataFusionError::SchemaError(schema, _) => Root::Schema(schema),
        DataFusionError::NotImplemented(_) => Root::Text(Kind::NotImplemented, error.message()),
        DataFusionError::Internal(_) => Root::Text(Kind::Internal, error.message()),
        _ => Root::Text(Kind::Plan, error.message()),
    }
}

fn from_schema(error: &SchemaError) -> Error {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let mut names: Vec<&str> = valid_fields.iter().map(|column| column.name()).collect();
            names.dedup();
            let place = match &field.relation {
                Some(relation) if !is_internal(relation.table()) => format!(" in \"{relation}\""),
                _ => String::new(),
            };
            let error = Error::plan(code::UNKNOWN_COLUMN, format!("no column \"{}\"{place}", field.name()));
            with_names(error, field.name(), &names)
        }
        SchemaError::AmbiguousReference { field } => ambiguous(field.name()),
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            Error::plan(code::AMBIGUOUS_COLUMN, format!("the column \"{name}\" appears twice"))
                .hint("Give one of them another name with AS.")
        }
    }
}

fn ambiguous(name: &str) -> Error {
    Error::plan(code::AMBIGUOUS_COLUMN, format!("\"{name}\" could mean several columns"))
        .hint("Put the table's name or alias before it, such as a.\"name\".".replace("\"name\"", name))
}

/// Adds the nearest of `names`, or all of them if they are few.
pub(super) fn with_names(error: Error, word: &str, names: &[&str]) -> Error {
    if let Some(near) = near(word, names.iter().copied()) {
        return error.hint(format!("Use \"{near}\"."));
    }
    let names: Vec<_> =
        names.iter().filter(|name| !is_internal(name)).map(|name| format!("\"{name}\"")).collect();
    if names.is_empty() || names.len() > 20 {
        return error;
    }
    error.hint(format!("Use one of {}.", names.join(", ")))
}

/// The nearest of `known`, if `word` is long enough to be near anything but by chance.
pub(super) fn near<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut known = known;
    if word.chars().count() < 3 {
        return known.find(|name| name.eq_ignore_ascii_case(word));
    }
    did_you_mean(word, known.filter(|name| name.chars().count() >= 3))
}

/// Names that the planner made; a person never wrote them.
pub(super) fn is_internal(name: &str) -> bool {
    name.starts_with("__")
}

fn from_text(kind: Kind, text: &str) -> Error {
    let text = plain(text);
    if let Some(rest) = text.strip_prefix("Invalid function '") {
        let name = rest.split('\'').next().unwrap_or(rest);
        return Error::plan(code::UNKNOWN_NAME, format!("no function \"{name}\""))
            .hint("Use SHOW FUNCTIONS to see all of them.");
    }
    if text.contains("must appear in the GROUP BY clause") {
        let name = between(&text, "column \"", "\"").or_else(|| between(&text, "references: ", " must"));
        let what = name.map_or_else(|| "a column".to_owned(), |name| format!("\"{}\"", unqualified(name)));
        return Error::plan(
            code::NOT_GROUPED,
            format!("{what} is neither grouped by nor inside an aggregate"),
        )
        .hint("Add it to GROUP BY, or use an aggregate such as MAX or FIRST_VALUE.");
    }
    if text.starts_with("Ambiguous reference") || text.contains("is ambiguous") {
        let name = text.rsplit(' ').next().unwrap_or_default().trim_matches(['"', '\'', '.']);
        return ambiguous(name.rsplit('.').next().unwrap_or(name));
    }
    if text.contains("unique expression names") {
        let name = between(&text, "expression \"", "\"").map_or("?", unqualified);
        return Error::plan(code::AMBIGUOUS_COLUMN, format!("the result has two columns \"{name}\""))
            .hint(format!("Give one of them another name, such as {name} AS {name}2."));
    }
    if let Some(call) = between(&text, "given name and argument types '", "'") {
        let call = with_sql_types(call);
        let (name, arguments) = call.split_once('(').unwrap_or((&call, ")"));
        return Error::plan(code::TYPE_MISMATCH, format!("no function \"{name}\" takes ({arguments}"))
            .hint("Convert the arguments with CAST(… AS …).");
    }
    let text = with_sql_types(&text);
    let is_type =
        ["Cannot coerce", "Cannot infer common", "No function matches", "coercion", "Unsupported CAST"]
            .iter()
            .any(|part| text.contains(part));
    let message = lower_first(text.trim_end_matches('.'));
    match kind {
        Kind::NotImplemented => Error::plan(code::NOT_SUPPORTED, message),
        Kind::Internal => Error::internal("the planner", message),
        Kind::Plan if is_type => Error::plan(code::TYPE_MISMATCH, message),
        Kind::Plan => Error::plan(code::INVALID_QUERY, message),
    }
}

/// The text without the names of layers and rules before it, and on one line.
fn plain(text: &str) -> String {
    let text = text.split(DataFusionError::BACK_TRACE_SEP).next().unwrap_or(text);
    let mut text = text.rsplit("caused by\n").next().unwrap_or(text);
    loop {
        let before = text;
        for prefix in [
            "Error during planning: ",
            "Execution error: ",
            "Arrow error: ",
            "Schema error: ",
            "type_coercion: ",
            "This feature is not implemented: ",
            "External error: ",
        ] {
            text = text.strip_prefix(prefix).unwrap_or(text);
        }
        if text == before {
            break;
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        // A name in capitals stays as it is.
        (Some(first), Some(second)) if second.is_uppercase() => format!("{first}{}", chars.as_str()),
        (Some(first), _) => first.to_lowercase().chain(chars).collect(),
        (None, _) => String::new(),
    }
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = &text[text.find(start)? + start.len()..];
    rest.find(end).map(|length| &rest[..length])
}

/// The text with SQL's names of types in place of Arrow's.
fn with_sql_types(text: &str) -> String {
    const NAMES: [(&str, &str); 15] = [
        ("Utf8", "STRING"),
        ("Utf8View", "STRING"),
        ("LargeUtf8", "STRING"),
        ("Int8", "TINYINT"),
        ("Int16", "SMALLINT"),
        ("Int32", "INT"),
        ("Int64", "BIGINT"),
        ("Float32", "FLOAT"),
        ("Float64", "DOUBLE"),
        ("Boolean", "BOOLEAN"),
        ("Decimal128", "DECIMAL"),
        ("Date32", "DATE"),
        ("Binary", "BYTES"),
        ("List", "ARRAY"),
        ("Struct", "ROW"),
    ];
    let text = text
        .replace("Timestamp(ms)", "TIMESTAMP(3)")
        .replace("Timestamp(µs)", "TIMESTAMP(6)")
        .replace("Timestamp(ns)", "TIMESTAMP(9)");
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    for c in text.chars().chain([' ']) {
        if c.is_alphanumeric() {
            word.push(c);
            continue;
        }
        let name = NAMES.iter().find(|(arrow, _)| *arrow == word).map_or(word.as_str(), |(_, sql)| sql);
        out.push_str(name);
        word.clear();
        out.push(c);
    }
    out.truncate(out.trim_end().len());
    out
}

fn unqualified(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The place of DataFusion's span.
pub(super) fn from_datafusion_span(span: datafusion_common::Span) -> Span {
    Span {
        start: Place { line: span.start.line, column: span.start.column },
        end: Place { line: span.end.line, column: span.end.column },
    }
}

/// The place of sqlparser's span; `None` for nodes that no text stands for.
pub(super) fn from_sql_span(span: sqlparser::tokenizer::Span) -> Option<Span> {
    if span.start.line == 0 {
        return None;
    }
    Some(Span {
        start: Place { line: span.start.line, column: span.start.column },
        end: Place { line: span.end.line, column: span.end.column },
    })
}

/// An error of ours on its way through DataFusion.
pub(super) fn carry(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Where a name stands.
pub(super) fn span_of_name(name: &sqlparser::ast::ObjectName) -> Option<Span> {
    use sqlparser::ast::Spanned;
    from_sql_span(name.span())
}
