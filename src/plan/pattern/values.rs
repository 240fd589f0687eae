//! What conditions and measures read of a match: taken out of their trees, a column in its place.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion_common::{DFSchema, TableReference};
use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart, Spanned,
    Value as Literal,
};

use super::node::{ValueKind, value_column};
use super::shape::{Shape, is_same, place, unsupported};
use crate::error::{Error, Span, code};
use crate::plan::diagnose::from_sql_span;
use crate::sql::{TreeRewriter, Walk, rewrite};

/// A value as it is written.
#[derive(Debug)]
pub(super) struct WrittenValue {
    pub(super) variable: Option<usize>,
    pub(super) kind: ValueKind,
    /// Over the input, without the names of variables.
    pub(super) expr: Expr,
    pub(super) is_rowtime: bool,
}

/// Takes values out of a condition or of measures.
pub(super) struct Extractor<'a> {
    pub(super) shapes: &'a [Shape],
    /// The variable whose condition it is; `None`: a measure.
    pub(super) own: Option<usize>,
    /// The time column's name.
    pub(super) time: &'a Expr,
    pub(super) is_aggregate: &'a dyn Fn(&str) -> bool,
    /// Of the rows.
    pub(super) schema: &'a DFSchema,
    pub(super) values: Vec<WrittenValue>,
}

impl Extractor<'_> {
    /// The expression with a column for each value.
    pub(super) fn extract(&mut self, expr: &mut Expr) -> Result<(), Error> {
        match rewrite(expr, self) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    fn value(&mut self, variable: Option<usize>, kind: ValueKind, expr: Expr) -> Expr {
        self.add(WrittenValue { variable, kind, expr, is_rowtime: false })
    }

    fn add(&mut self, value: WrittenValue) -> Expr {
        let known = self.values.iter().position(|known| {
            known.variable == value.variable
                && known.kind == value.kind
                && known.is_rowtime == value.is_rowtime
                && known.expr == value.expr
        });
        let index = known.unwrap_or_else(|| {
            self.values.push(value);
            self.values.len() - 1
        });
        Expr::Identifier(Ident::new(value_column(index)))
    }

    /// The value of one row. In a condition the last row of its own variable, and of all, is the row itself.
    fn row(&mut self, variable: Option<usize>, from_last: bool, offset: u32, expr: Expr) -> Expr {
        let is_current = self.own.is_some() && (variable.is_none() || variable == self.own);
        if is_current && from_last && offset == 0 {
            return Expr::Nested(Box::new(expr));
        }
        self.value(variable, ValueKind::Row { from_last, offset }, expr)
    }

    fn call(&mut self, call: &Function, span: Option<Span>) -> Result<Option<Expr>, Error> {
        let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else { return Ok(None) };
        let upper = name.value.to_ascii_uppercase();
        let refuse =
            |hint: &str| Err(unsupported(&format!("{upper} in MATCH_RECOGNIZE")).at(span).hint(hint));
        match upper.as_str() {
            "FIRST" | "LAST" => self.navigation(call, &upper, span).map(Some),
            "PREV" | "NEXT" => refuse(
                "Use LAST(x, 1): the value of the row before this one, among the rows of the match; of a variable's \
                 rows LAST(A.x, 1).",
            ),
            "MATCH_ROWTIME" if self.own.is_none() => {
                if !arguments(call).is_empty() {
                    return Err(invalid("MATCH_ROWTIME takes no argument here", span)
                        .hint("Write it as MATCH_ROWTIME()."));
                }
                let kind = ValueKind::Row { from_last: true, offset: 0 };
                let expr = self.time.clone();
                Ok(Some(self.add(WrittenValue { variable: None, kind, expr, is_rowtime: true })))
            }
            "MATCH_ROWTIME" => refuse("Use the time column itself in a condition."),
            "MATCH_PROCTIME" => refuse("Use MATCH_ROWTIME(), or compute the time in an outer query."),
            "CLASSIFIER" | "MATCH_NUMBER" => refuse(
                "Leave it out: a match has one row, and COUNT(A.x) tells how many rows a variable took.",
            ),
            _ if call.over.is_some() => {
                refuse("Use a subquery that computes it for each row before the match.")
            }
            _ if (self.is_aggregate)(&name.value) => self.aggregate(call, span).map(Some),
            _ => Ok(None),
        }
    }

    /// `FIRST(A.x [, n])`, `LAST(A.x [, n])`.
    fn navigation(&mut self, call: &Function, name: &str, span: Option<Span>) -> Result<Expr, Error> {
        let form = || format!("Write it as {name}(A.x) or {name}(A.x, 1).");
        let (value, offset) = match arguments(call) {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] => (value, 0),
            [
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)),
                FunctionArg::Unnamed(FunctionArgExpr::Expr(offset)),
            ] => match number(offset) {
                Some(offset) => (value, offset),
                None => {
                    let message =
                        format!("the second argument of {name} must be a number of rows, not {offset}");
                    return Err(invalid(&message, span).hint(form()));
                }
            },
            _ => {
                return Err(invalid(&format!("{name} takes a value and a number of rows"), span).hint(form()));
            }
        };
        let mut value = value.clone();
        let variable = self.strip(&mut value, name, span)?;
        Ok(self.row(variable, name == "LAST", offset, value))
    }

    fn aggregate(&mut self, call: &Function, span: Option<Span>) -> Result<Expr, Error> {
        let mut call = call.clone();
        let mut variable = None;
        if let FunctionArguments::List(list) = &mut call.args {
            for arg in &mut list.args {
                let FunctionArg::Unnamed(value) = arg else { continue };
                if let FunctionArgExpr::QualifiedWildcard(name) = value
                    && let [ObjectNamePart::Identifier(name)] = name.0.as_slice()
                {
                    variable = self.variable(name);
                    *value = FunctionArgExpr::Wildcard;
                }
            }
        }
        let name = call.name.to_string();
        let mut expr = Expr::Function(call);
        variable = variable.or(self.strip(&mut expr, &name, span)?);
        Ok(self.value(variable, ValueKind::Aggregate, expr))
    }

    /// Takes the variable's name off the columns of an argument.
    fn strip(&self, expr: &mut Expr, function: &str, span: Option<Span>) -> Result<Option<usize>, Error> {
        let is_call = matches!(expr, Expr::Function(_));
        let mut stripper = Stripper { of: self, function, found: None, calls: usize::from(is_call), span };
        match rewrite(expr, &mut stripper) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(stripper.found.flatten()),
        }
    }

    fn variable(&self, name: &Ident) -> Option<usize> {
        self.shapes.iter().position(|shape| is_same(&shape.name, name))
    }

    /// The variable that stands before a point; `None`: a column with fields, or the table's name.
    fn owner(&self, name: &Ident) -> Result<Option<usize>, Error> {
        let variable = self.variable(name);
        let is_known = |(table, field): (Option<&TableReference>, &Arc<Field>)| {
            *field.name() == name.value || table.is_some_and(|table| table.table() == name.value)
        };
        if variable.is_some() || self.schema.iter().any(is_known) {
            return Ok(variable);
        }
        let message = format!("no variable \"{}\" in PATTERN", name.value);
        let names: Vec<&str> = self.shapes.iter().map(|shape| shape.name.value.as_str()).collect();
        Err(Error::plan(code::UNKNOWN_COLUMN, message)
            .at(place(name))
            .hint(format!("Use one of {}, or the column alone.", names.join(", "))))
    }
}

impl TreeRewriter for Extractor<'_> {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Walk {
        let span = from_sql_span(expr.span());
        let replaced = match expr {
            Expr::Function(call) => match self.call(call, span.or_else(|| from_sql_span(call.name.span()))) {
                Ok(replaced) => replaced,
                Err(error) => return ControlFlow::Break(error),
            },
            Expr::CompoundIdentifier(parts) => match self.owner(&parts[0]) {
                Ok(Some(variable)) => {
                    let column = without_first(parts);
                    Some(self.row(Some(variable), true, 0, column))
                }
                Ok(None) if self.own.is_none() => Some(self.row(None, true, 0, expr.clone())),
                Ok(None) => None,
                Err(error) => return ControlFlow::Break(error),
            },
            Expr::Identifier(ident) if self.own.is_none() && !is_value(ident) => {
                Some(self.row(None, true, 0, expr.clone()))
            }
            Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => {
                return ControlFlow::Break(
                    unsupported("a subquery in MATCH_RECOGNIZE")
                        .at(span)
                        .hint("Join the table before, in a subquery that the rows come from."),
                );
            }
            _ => None,
        };
        if let Some(replaced) = replaced {
            *expr = replaced;
        }
        ControlFlow::Continue(())
    }
}

/// Takes names of variables off, and finds out which one it is.
struct Stripper<'a> {
    of: &'a Extractor<'a>,
    function: &'a str,
    found: Option<Option<usize>>,
    /// Calls of the function itself that are still to be seen.
    calls: usize,
    span: Option<Span>,
}

impl Stripper<'_> {
    fn note(&mut self, variable: Option<usize>, at: Option<Span>) -> Walk {
        match self.found {
            Some(found) if found != variable => {
                let message = format!("{} reads rows of several variables", self.function);
                ControlFlow::Break(
                    invalid(&message, at.or(self.span))
                        .hint("Use one variable inside of each function, such as LAST(A.x) - LAST(B.x)."),
                )
            }
            _ => {
                self.found = Some(variable);
                ControlFlow::Continue(())
            }
        }
    }
}

impl TreeRewriter for Stripper<'_> {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Walk {
        match expr {
            Expr::Function(call) => {
                if self.calls > 0 {
                    self.calls -= 1;
                    return ControlFlow::Continue(());
                }
                let name = call.name.to_string();
                let is_of_match = ["FIRST", "LAST", "PREV", "NEXT", "MATCH_ROWTIME"]
                    .iter()
                    .any(|known| known.eq_ignore_ascii_case(&name));
                if is_of_match || (self.of.is_aggregate)(&name) {
                    let message = format!("{name} stands inside of {}", self.function);
                    return ControlFlow::Break(
                        invalid(&message, from_sql_span(call.name.span()).or(self.span))
                            .hint("Use the functions beside each other, such as SUM(A.x) - LAST(A.x)."),
                    );
                }
                ControlFlow::Continue(())
            }
            Expr::CompoundIdentifier(parts) => {
                let at = place(&parts[0]);
                match self.of.owner(&parts[0]) {
                    Ok(Some(variable)) => {
                        *expr = without_first(parts);
                        self.note(Some(variable), at)
                    }
                    Ok(None) => self.note(None, at),
                    Err(error) => ControlFlow::Break(error),
                }
            }
            // A column without its variable, which it may also be after that was taken off.
            Expr::Identifier(_) if self.found.is_some_and(|found| found.is_some()) => {
                ControlFlow::Continue(())
            }
            Expr::Identifier(ident) => {
                let at = place(ident);
                self.note(None, at)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn without_first(parts: &[Ident]) -> Expr {
    match &parts[1..] {
        [only] => Expr::Identifier(only.clone()),
        rest => Expr::CompoundIdentifier(rest.to_vec()),
    }
}

fn is_value(ident: &Ident) -> bool {
    ident.value.starts_with("__value_")
}

fn arguments(call: &Function) -> &[FunctionArg] {
    match &call.args {
        FunctionArguments::List(list) => &list.args,
        FunctionArguments::None | FunctionArguments::Subquery(_) => &[],
    }
}

fn number(expr: &Expr) -> Option<u32> {
    match expr {
        Expr::Value(value) => match &value.value {
            Literal::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn invalid(message: &str, span: Option<Span>) -> Error {
    Error::plan(code::INVALID_QUERY, message).at(span)
}
