//! Clauses of queries that sqlparser reads and nothing after it would: each is an error, never ignored.

use sqlparser::ast::{Query, Select, SetExpr, TableFactor};

use super::errors;
use crate::error::{Error, Span, code};

/// A clause that is not supported.
pub(super) fn clause(what: &str, span: Option<Span>) -> Error {
    Error::parse(code::NOT_SUPPORTED, format!("{what} is not supported in a query"))
        .at(span)
        .hint("Leave it out.")
}

/// The first such clause of a query, outside of its SELECTs.
pub(super) fn in_query(query: &Query) -> Option<Error> {
    let refuse = |what| Some(clause(what, None));
    let body = in_body(&query.body);
    if body.is_some() {
        return body;
    }
    if !query.locks.is_empty() || query.for_clause.is_some() {
        return refuse("FOR UPDATE");
    }
    if query.fetch.is_some() {
        return refuse("this form of FETCH")
            .map(|error| error.hint("Use LIMIT, or FETCH FIRST n ROWS ONLY."));
    }
    None
}

fn in_body(body: &SetExpr) -> Option<Error> {
    match body {
        SetExpr::Select(_) | SetExpr::Query(_) | SetExpr::Values(_) => None,
        SetExpr::SetOperation { left, right, .. } => in_body(left).or_else(|| in_body(right)),
        SetExpr::Table(_) => Some(clause("TABLE", None).hint("Use SELECT * FROM the table.")),
        SetExpr::Insert(_) => {
            Some(clause("INSERT", None).hint("Put WITH after INSERT INTO and the table's name."))
        }
        SetExpr::Update(_) => Some(clause("UPDATE", None)),
        SetExpr::Delete(_) => Some(clause("DELETE", None)),
        SetExpr::Merge(_) => Some(clause("MERGE", None)),
    }
}

/// The first such clause of a SELECT.
pub(super) fn in_select(select: &Select) -> Option<Error> {
    let span = Some(errors::span(select.select_token.0.span));
    let refuse = |what| Some(clause(what, span));
    if select.into.is_some() {
        return refuse("INTO").map(|error| error.hint("Use INSERT INTO the table, then SELECT."));
    }
    if select.top.is_some() {
        return refuse("TOP").map(|error| error.hint("Use LIMIT."));
    }
    if !select.lateral_views.is_empty() {
        return refuse("LATERAL VIEW").map(|error| error.hint("Use CROSS JOIN UNNEST(…)."));
    }
    if !select.cluster_by.is_empty() {
        return refuse("CLUSTER BY");
    }
    if !select.distribute_by.is_empty() {
        return refuse("DISTRIBUTE BY");
    }
    if !select.sort_by.is_empty() {
        return refuse("SORT BY").map(|error| error.hint("Use ORDER BY."));
    }
    None
}

/// The first such clause of a table in FROM.
pub(super) fn in_table(factor: &TableFactor) -> Option<Error> {
    match factor {
        TableFactor::Table { name, with_hints, partitions, sample, index_hints, with_ordinality, .. } => {
            let ident = name.0.first().and_then(|part| part.as_ident());
            let span = ident.map(|ident| errors::span(ident.span));
            let refuse = |what| Some(clause(what, span));
            if !with_hints.is_empty() || !index_hints.is_empty() {
                return refuse("a hint behind a table");
            }
            if !partitions.is_empty() {
                return refuse("PARTITION behind a table").map(|error| error.hint("Use WHERE."));
            }
            if sample.is_some() {
                return refuse("TABLESAMPLE").map(|error| error.hint("Use WHERE, such as MOD(id, 100) = 0."));
            }
            if *with_ordinality {
                return refuse("WITH ORDINALITY");
            }
            None
        }
        TableFactor::Derived { sample: Some(_), .. } => Some(clause("TABLESAMPLE", None)),
        _ => None,
    }
}
