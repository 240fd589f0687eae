//! Names of columns that a query does not name: unique in a SELECT, and telling casts apart.

use crate::sql::{TreeRewriter, Walk};
use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion_common::Result as DfResult;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::Expr as LogicalExpr;
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawAggregateExpr};
use sqlparser::ast::{Expr, Ident, Select, SelectItem, Spanned};

/// Gives a name to the second of two select items that would have the same: `k`, `k0`.
///
/// Source: Flink numbers them so.
pub(super) struct UniqueItems;

impl TreeRewriter for UniqueItems {
    fn pre_visit_select(&mut self, select: &mut Select) -> Walk {
        let mut taken: HashSet<String> = HashSet::new();
        for item in &mut select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => {
                    taken.insert(alias.value.clone());
                }
                SelectItem::UnnamedExpr(expr) => {
                    let label = label(expr);
                    let name = free_name(&label, &taken);
                    taken.insert(name.clone());
                    // DataFusion calls a cast what it calls the value inside.
                    if name != label || matches!(expr, Expr::Cast { .. }) {
                        let alias = Ident::with_quote_and_span('`', expr.span(), name);
                        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                    }
                }
                SelectItem::ExprWithAliases { .. }
                | SelectItem::QualifiedWildcard(..)
                | SelectItem::Wildcard(_) => {}
            }
        }
        ControlFlow::Continue(())
    }
}

/// The name that an item has without an alias.
fn label(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(ident) => ident.value.clone(),
        Expr::CompoundIdentifier(parts) => parts.last().map(|ident| ident.value.clone()).unwrap_or_default(),
        Expr::Cast { expr, .. } | Expr::Nested(expr) => label(expr),
        other => other.to_string(),
    }
}

fn free_name(label: &str, taken: &HashSet<String>) -> String {
    if !taken.contains(label) {
        return label.to_owned();
    }
    let mut number = 0;
    loop {
        let name = format!("{label}{number}");
        if !taken.contains(&name) {
            return name;
        }
        number += 1;
    }
}

/// Tells `AVG(v)` and `AVG(CAST(v AS DOUBLE))` apart, which DataFusion calls the same.
#[derive(Debug)]
pub(super) struct CastArguments;

impl ExprPlanner for CastArguments {
    fn plan_aggregate(&self, mut call: RawAggregateExpr) -> DfResult<PlannerResult<RawAggregateExpr>> {
        for arg in &mut call.args {
            if has_cast(arg) && !matches!(arg, LogicalExpr::Alias(_)) {
                let name = arg.to_string();
                *arg = std::mem::take(arg).alias(name);
            }
        }
        Ok(PlannerResult::Original(call))
    }
}

fn has_cast(expr: &LogicalExpr) -> bool {
    let mut found = false;
    let _ = expr.apply(|part| {
        found = matches!(part, LogicalExpr::Cast(_) | LogicalExpr::TryCast(_));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}
