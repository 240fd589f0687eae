//! `EMIT` and `ALLOW LATENESS` of a query block.

use std::sync::Arc;

use datafusion_common::DFSchema;
use sqlparser::ast::{Expr, Spanned};

use super::Session;
use super::expression::bind_expression;
use crate::error::{Error, Span, code};
use crate::plan::EmitMode;
use crate::plan::diagnose::from_sql_span;
use crate::plan::emit::Emission;
use crate::plan::window::interval_us;
use crate::sql::{BlockClauses, Emit};

/// The shortest time between two rounds.
const SHORTEST_EVERY_US: i64 = 1_000;

/// The clauses of a block, if it has some.
///
/// # Errors
/// `W004`, `W008` for what is no interval of fixed length, `P003` for one that is too short.
pub(super) fn bind_emission(session: &Arc<Session>, block: &BlockClauses) -> Result<Option<Emission>, Error> {
    let every = |interval: Option<&Expr>, span: Span| -> Result<Option<i64>, Error> {
        let Some(interval) = interval else { return Ok(None) };
        let us = bind_interval(session, interval, "EVERY", span)?;
        if us >= SHORTEST_EVERY_US {
            return Ok(Some(us));
        }
        Err(Error::plan(code::INVALID_QUERY, format!("EVERY is {us} µs, it must be 1 ms or longer"))
            .at(from_sql_span(interval.span()).or(Some(span)))
            .hint("Write it as EVERY INTERVAL '5' SECOND."))
    };
    let emit = match &block.emit {
        None => None,
        Some((emit, span)) => {
            let mode = match emit {
                Emit::OnWindowClose => EmitMode::OnWindowClose,
                Emit::Changes(interval) => EmitMode::Changes { every_us: every(interval.as_ref(), *span)? },
                Emit::Complete(interval) => EmitMode::Complete { every_us: every(interval.as_ref(), *span)? },
                Emit::Early(interval) => EmitMode::Early {
                    every_us: every(Some(interval), *span)?
                        .ok_or_else(|| Error::internal("the planner", "EMIT EARLY without EVERY"))?,
                },
            };
            Some((mode, Some(*span)))
        }
    };
    let lateness = match &block.allow_lateness {
        None => None,
        Some((interval, span)) => {
            let us = bind_interval(session, interval, "ALLOW LATENESS", *span)?;
            if us < 0 {
                return Err(Error::plan(code::INVALID_QUERY, "ALLOW LATENESS must not be negative")
                    .at(*span)
                    .hint("Write it as ALLOW LATENESS INTERVAL '1' MINUTE."));
            }
            Some((us, Some(*span)))
        }
    };
    Ok((emit.is_some() || lateness.is_some()).then_some(Emission { emit, lateness, is_implied: false }))
}

fn bind_interval(session: &Arc<Session>, expr: &Expr, what: &str, clause: Span) -> Result<i64, Error> {
    let span = from_sql_span(expr.span()).unwrap_or(clause);
    interval_us(expr, what, |expr| bind_expression(session, &expr, &DFSchema::empty()))
        .map_err(|error| error.at(span))
}
