//! `t CROSS JOIN UNNEST(t.xs)`: the array's items beside the columns of their row.
//!
//! DataFusion binds it to a join with a subquery that refers to `t`. What the subquery computes is put
//! on top of `t` instead, so that no join is left.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{JoinType, NullHandling, Result as DfResult, ScalarValue, UnnestOptions};
use datafusion_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};

/// The plan without such joins.
pub(super) fn flatten(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let flat = plan.transform_up(|node| {
        let LogicalPlan::Join(join) = &node else { return Ok(Transformed::no(node)) };
        Ok(match flattened(join)? {
            Some(flat) => Transformed::yes(flat),
            None => Transformed::no(node),
        })
    })?;
    Ok(flat.data)
}

fn flattened(join: &Join) -> DfResult<Option<LogicalPlan>> {
    let null_handling = match join.join_type {
        JoinType::Inner => NullHandling::Drop,
        JoinType::Left => NullHandling::PreserveAndExpandEmpty,
        _ => return Ok(None),
    };
    let is_true = |expr: &Expr| matches!(expr, Expr::Literal(ScalarValue::Boolean(Some(true)), _));
    if !join.on.is_empty() || !join.filter.as_ref().is_none_or(is_true) || !has_unnest(&join.right)? {
        return Ok(None);
    }
    onto(&join.right, &join.left, null_handling)
}

fn has_unnest(plan: &LogicalPlan) -> DfResult<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Unnest(_))))
}

/// `plan` with `base` in place of its one empty row: its columns stand behind those of `base`. `None`:
/// it does more than compute columns of that row.
fn onto(
    plan: &LogicalPlan,
    base: &Arc<LogicalPlan>,
    null_handling: NullHandling,
) -> DfResult<Option<LogicalPlan>> {
    let own = || base.schema().columns().into_iter().map(Expr::Column);
    match plan {
        LogicalPlan::EmptyRelation(empty) if empty.produce_one_row => Ok(Some(base.as_ref().clone())),
        LogicalPlan::Subquery(subquery) => onto(&subquery.subquery, base, null_handling),
        LogicalPlan::Projection(projection) => {
            let Some(input) = onto(&projection.input, base, null_handling)? else { return Ok(None) };
            let mut exprs: Vec<Expr> = own().collect();
            for expr in &projection.expr {
                exprs.push(inner(expr.clone())?);
            }
            LogicalPlanBuilder::from(input).project(exprs)?.build().map(Some)
        }
        LogicalPlan::Unnest(unnest) => {
            let Some(input) = onto(&unnest.input, base, null_handling)? else { return Ok(None) };
            let options = UnnestOptions { null_handling, ..unnest.options.clone() };
            LogicalPlanBuilder::from(input)
                .unnest_columns_with_options(unnest.exec_columns.clone(), options)?
                .build()
                .map(Some)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Some(input) = onto(&alias.input, base, null_handling)? else { return Ok(None) };
            let mut exprs: Vec<Expr> = own().collect();
            for column in alias.input.schema().columns() {
                let name = column.name.clone();
                exprs.push(Expr::Column(column).alias_qualified(Some(alias.alias.clone()), name));
            }
            LogicalPlanBuilder::from(input).project(exprs)?.build().map(Some)
        }
        _ => Ok(None),
    }
}

/// The expression with columns of the outer query as columns.
fn inner(expr: Expr) -> DfResult<Expr> {
    let replaced = expr.transform(|part| {
        Ok(match part {
            Expr::OuterReferenceColumn(_, column) => Transformed::yes(Expr::Column(column)),
            part => Transformed::no(part),
        })
    })?;
    Ok(replaced.data)
}
