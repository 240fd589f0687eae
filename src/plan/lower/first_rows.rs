//! `ROW_NUMBER() OVER (…) <= N`: the condition becomes a limit of OVER, so that rows that can't be
//! among the first ones need not be kept.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::logical_plan::Window as LogicalWindow;
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{BinaryExpr, Expr, Filter, LogicalPlan, Operator};

use super::expression::plain_column;
use super::{Above, Lowered, Lowering};
use crate::error::Error;
use crate::plan::RankLimit;

impl Lowering<'_> {
    /// The rows of a filter that bounds a rank; `None`: it does not.
    pub(super) fn first_rows(&mut self, filter: &Filter, above: Above) -> Result<Option<Lowered>, Error> {
        let terms = split_conjunction(&filter.predicate);
        let found = terms.iter().enumerate().find_map(|(place, term)| {
            let (column, most, is_all) = upper_bound(term)?;
            let column = plain_column(column, filter.input.schema())?;
            let (window, call) = ranked(&filter.input, column)?;
            counts_rows(window.window_expr.get(call)?).then_some((
                place,
                RankLimit { call, most },
                is_all,
                column,
            ))
        });
        let Some((place, limit, is_all, rank)) = found else { return Ok(None) };
        let rest: Vec<_> =
            terms.into_iter().enumerate().filter(|(other, _)| !is_all || *other != place).collect();
        let is_rank = |expr: &Expr| plain_column(expr, filter.input.schema()) == Some(rank);
        let reads_rank = rest.iter().any(|(_, term)| reads(term, &is_rank));
        let drops_rank = above.drops_rank && !reads_rank;
        let input = self.lower(&filter.input, Above { ranks: Some(limit), drops_rank, ..above })?;
        let rest = rest.into_iter();
        match conjunction(rest.map(|(_, term)| term.clone())) {
            None => Ok(Some(input)),
            Some(predicate) => {
                let filter = Filter::try_new(predicate, std::sync::Arc::clone(&filter.input))
                    .map_err(crate::plan::diagnose::from_datafusion)?;
                self.filtered(&filter, input).map(Some)
            }
        }
    }
}

/// Whether an expression reads a column.
fn reads(expr: &Expr, is_column: &dyn Fn(&Expr) -> bool) -> bool {
    let mut reads = false;
    let _ = expr.apply(|part| {
        reads |= is_column(part);
        Ok(if reads { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    reads
}

/// Whether the rank that a filter bounds is not among what is read of the filter's rows.
pub(super) fn drops_rank(input: &LogicalPlan, read: &[Expr]) -> bool {
    let mut below = input;
    while let LogicalPlan::SubqueryAlias(alias) = below {
        below = &alias.input;
    }
    let LogicalPlan::Filter(filter) = below else { return false };
    let terms = split_conjunction(&filter.predicate);
    terms.into_iter().filter_map(upper_bound).any(|(column, ..)| {
        let Some(rank) = plain_column(column, filter.input.schema()) else { return false };
        let is_rank = |part: &Expr| plain_column(part, input.schema()) == Some(rank);
        ranked(&filter.input, rank).is_some() && !read.iter().any(|expr| reads(expr, &is_rank))
    })
}

/// The greatest value that a term lets a column have, and whether it says no more than that.
pub(in crate::plan) fn upper_bound(term: &Expr) -> Option<(&Expr, i64, bool)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = term else { return None };
    let (column, op, limit) = match (left.as_ref(), right.as_ref()) {
        (column @ Expr::Column(_), Expr::Literal(limit, _)) => (column, *op, limit),
        (Expr::Literal(limit, _), column @ Expr::Column(_)) => (column, op.swap()?, limit),
        _ => return None,
    };
    let limit = match limit.cast_to(&arrow::datatypes::DataType::Int64).ok()? {
        datafusion_common::ScalarValue::Int64(limit) => limit?,
        _ => return None,
    };
    match op {
        Operator::LtEq => Some((column, limit, true)),
        Operator::Lt => Some((column, limit.checked_sub(1)?, true)),
        Operator::Eq => Some((column, limit, limit == 1)),
        _ => None,
    }
}

/// The call OVER that a column is the value of, where nothing but names stands between.
pub(in crate::plan) fn ranked(plan: &LogicalPlan, column: usize) -> Option<(&LogicalWindow, usize)> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => ranked(&alias.input, column),
        LogicalPlan::Projection(projection) => {
            ranked(&projection.input, plain_column(projection.expr.get(column)?, projection.input.schema())?)
        }
        LogicalPlan::Window(window) => {
            Some((window, column.checked_sub(window.input.schema().fields().len())?))
        }
        _ => None,
    }
}

/// Whether values of a call grow by row, from 1.
pub(in crate::plan) fn counts_rows(call: &Expr) -> bool {
    match call {
        Expr::Alias(alias) => counts_rows(&alias.expr),
        Expr::WindowFunction(call) => {
            ["row_number", "rank", "dense_rank"].contains(&call.fun.name().to_lowercase().as_str())
        }
        _ => false,
    }
}
