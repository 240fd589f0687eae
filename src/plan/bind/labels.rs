//! Names of columns that a query does not name: unique in a SELECT, and telling casts apart.

use crate::sql::{TreeRewriter, Walk};
use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion_common::Result as DfResult;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::Expr as LogicalExpr;
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawAggregateExpr};
use sqlparser::ast::{Expr, Ident, ObjectNamePart, Select, SelectItem, Spanned, TableFactor};

/// Gives a name to the second of two select items that would have the same: `k`, `k0`; and to fields of a `ROW`,
/// which have their own: `bid.price` is `price`.
///
/// Source: Flink numbers them so.
pub(super) struct UniqueItems;

impl TreeRewriter for UniqueItems {
    fn pre_visit_select(&mut self, select: &mut Select) -> Walk {
        let mut taken: HashSet<String> = HashSet::new();
        let mut relations = Vec::new();
        for from in &select.from {
            for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation))
            {
                relation_names(factor, &mut relations);
            }
        }
        for item in &mut select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => {
                    taken.insert(alias.value.clone());
                }
                SelectItem::UnnamedExpr(expr) => {
                    let label = label(expr);
                    let name = free_name(&label, &taken);
                    taken.insert(name.clone());
                    // DataFusion calls a cast what it calls the value inside, and a field what is written.
                    if name != label || matches!(expr, Expr::Cast { .. }) || is_field(expr, &relations) {
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

/// Whether the expression is `column.field`, or `table.column.field`.
fn is_field(expr: &Expr, relations: &[String]) -> bool {
    match expr {
        Expr::Nested(expr) => is_field(expr, relations),
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [first, _] => !relations.iter().any(|name| name.eq_ignore_ascii_case(&first.value)),
            parts => parts.len() > 2,
        },
        _ => false,
    }
}

/// What the columns of a relation can be qualified with.
fn relation_names(factor: &TableFactor, names: &mut Vec<String>) {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::TableFunction { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => names.push(alias.name.value.clone()),
        TableFactor::Table { name, .. } => {
            let parts = name.0.iter().filter_map(ObjectNamePart::as_ident);
            names.extend(parts.map(|ident| ident.value.clone()));
        }
        TableFactor::NestedJoin { table_with_joins, .. } => {
            relation_names(&table_with_joins.relation, names);
            for join in &table_with_joins.joins {
                relation_names(&join.relation, names);
            }
        }
        _ => {}
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
