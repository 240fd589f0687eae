//! `JOIN t FOR SYSTEM_TIME AS OF l.ts`: the version of a table at the time of a row.
//!
//! DataFusion knows no such join. It becomes an ordinary one whose condition holds a mark with both
//! times, which keeps them in the plan; lowering finds the mark.

use std::ops::ControlFlow;
use std::sync::Arc;

use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    Ident, Join, JoinConstraint, JoinOperator, ObjectName, Select, Spanned, TableFactor, TableVersion, Value,
};

use super::{Session, find_relation, single_name};
use crate::catalog::{Relation, Table};
use crate::error::{Error, Span, code};
use crate::plan::as_of::AS_OF;
use crate::plan::diagnose::from_sql_span;
use crate::plan::latest::latest;
use crate::sql::{TreeRewriter, Walk};

/// Marks the joins with versions.
pub(super) struct Versions<'a>(pub(super) &'a Arc<Session>);

impl TreeRewriter for Versions<'_> {
    fn pre_visit_select(&mut self, select: &mut Select) -> Walk {
        for from in &mut select.from {
            for join in &mut from.joins {
                if let Err(error) = self.mark(join) {
                    return ControlFlow::Break(error);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Versions<'_> {
    fn mark(&self, join: &mut Join) -> Result<(), Error> {
        let span = from_sql_span(join.relation.span());
        let TableFactor::Table { name, alias, version, args, .. } = &mut join.relation else {
            return Ok(());
        };
        if args.is_some() {
            return Ok(());
        }
        let Some(TableVersion::ForSystemTimeAsOf(time)) = version.take() else { return Ok(()) };
        if !matches!(time, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
            let message = "FOR SYSTEM_TIME AS OF needs a time attribute of the rows before it";
            return Err(Error::plan(code::NOT_A_TIME_COLUMN, message).at(from_sql_span(time.span()).or(span)).hint(
                "Name one, such as o.ts; or compute it there: FROM (SELECT *, PROCTIME() AS p FROM o) AS o JOIN … AS OF o.p.",
            ));
        }
        let ident = single_name(name)?;
        let (name, from) = match find_relation(self.0, ident) {
            Some(Relation::Table(table)) => (table.name.clone(), valid_from(table, span)?),
            Some(Relation::View(view)) => {
                let plan = self.0.bind_view(view)?;
                // Which rows may be looked up, and which are versions, lowering knows.
                let time = latest(&plan).and_then(|latest| latest.time()).unwrap_or(0);
                (view.name.clone(), plan.schema().fields().get(time).map(|field| field.name().clone()))
            }
            None => {
                let message =
                    format!("FOR SYSTEM_TIME AS OF needs a table or a view, and \"{}\" is none", ident.value);
                return Err(Error::plan(code::INVALID_QUERY, message)
                    .at(span)
                    .hint("Create a table or, of a query, a view first."));
            }
        };
        let Some(from) = from else { return Ok(()) };
        let relation = alias.as_ref().map_or_else(|| ident.clone(), |alias| alias.name.clone());
        let valid_from = Expr::CompoundIdentifier(vec![relation, Ident::with_quote('"', from)]);
        let mark = call(vec![time, valid_from, Expr::value(Value::SingleQuotedString(name))]);
        match &mut join.join_operator {
            JoinOperator::Join(JoinConstraint::On(on))
            | JoinOperator::Inner(JoinConstraint::On(on))
            | JoinOperator::Left(JoinConstraint::On(on))
            | JoinOperator::LeftOuter(JoinConstraint::On(on)) => {
                let condition = Expr::Nested(Box::new(std::mem::replace(on, mark.clone())));
                *on = Expr::BinaryOp {
                    left: Box::new(condition),
                    op: BinaryOperator::And,
                    right: Box::new(mark),
                };
                Ok(())
            }
            _ => Err(Error::plan(code::NOT_SUPPORTED, "this kind of join can't have FOR SYSTEM_TIME AS OF")
                .at(span)
                .hint("Use JOIN … ON or LEFT JOIN … ON.")),
        }
    }
}

/// The column with the time from which a row of a table is a version; by the clock any column, a table that ends is
/// looked up as it is: lowering knows which it is.
fn valid_from(table: &Table, span: Option<Span>) -> Result<Option<String>, Error> {
    let needs = |what: &str, hint: &str| {
        let message = format!("FOR SYSTEM_TIME AS OF needs {what}, which \"{}\" lacks", table.name);
        Err(Error::plan(code::INVALID_QUERY, message).at(span).hint(hint))
    };
    if table.primary_key.is_empty() && !table.bounded {
        return needs(
            "a PRIMARY KEY",
            "Add PRIMARY KEY (…) NOT ENFORCED to its columns: rows of one key are versions.",
        );
    }
    if table.watermark.is_none() && !table.bounded {
        return needs(
            "a WATERMARK",
            "Declare a WATERMARK for the column with the time from which a row is valid.",
        );
    }
    let first = table.columns.first().map(|column| &column.name);
    Ok(table.watermark.as_ref().map(|watermark| &watermark.column).or(first).cloned())
}

fn call(args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(AS_OF)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
