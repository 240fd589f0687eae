//! Logical expressions to physical ones over a node's columns.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, DataFusionError, Result as DfResult};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{Expr, Operator};
use datafusion_physical_expr::aggregate::{LoweredAggregate, LoweredAggregateBuilder};
use datafusion_physical_expr::create_physical_expr;
use datafusion_physical_expr::expressions::BinaryExpr;

use super::{Lowered, Lowering, Slot, unsupported};
use crate::error::{Error, code};
use crate::plan::diagnose::from_datafusion;
use crate::plan::registration::check_call;
use crate::plan::subquery::unanswered;
use crate::plan::{ExprRef, NodeId};

/// Deeper expressions could overflow the stack of the task that evaluates them.
const DEEPEST: usize = 512;

fn depth(expr: &ExprRef) -> usize {
    1 + expr.children().into_iter().map(depth).max().unwrap_or(0)
}

/// A node's columns under names that differ from each other, for DataFusion to find them by.
pub(super) struct Scope {
    schema: DFSchema,
}

impl Scope {
    pub(super) fn of(schema: &Schema) -> Result<Self, Error> {
        let mut taken = HashSet::with_capacity(schema.fields().len());
        let mut fields: Vec<Field> = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let mut name = field.name().clone();
            let mut number = 1;
            while !taken.insert(name.clone()) {
                number += 1;
                name = format!("{}#{number}", field.name());
            }
            fields.push(field.as_ref().clone().with_name(name));
        }
        let schema = DFSchema::try_from(Schema::new(fields)).map_err(from_datafusion)?;
        Ok(Self { schema })
    }

    pub(super) fn column(&self, index: usize) -> Expr {
        Expr::Column(Column::new_unqualified(self.schema.field(index).name()))
    }

    /// The physical expression; `expr` is over this scope's names.
    pub(super) fn physical(&self, expr: &Expr) -> DfResult<ExprRef> {
        let physical = create_physical_expr(
            expr,
            &self.schema,
            &ExecutionProps::new(),
            &PhysicalPlanningContext::default(),
        )?;
        checked_arithmetic(physical)
    }
}

/// The expression with integer and decimal arithmetic that fails where it would wrap.
pub(in crate::plan) fn checked_arithmetic(expr: ExprRef) -> DfResult<ExprRef> {
    let checked = expr.transform_up(|part| match part.downcast_ref::<BinaryExpr>() {
        Some(binary) if matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply) => {
            let checked = binary.clone().with_fail_on_overflow(true);
            Ok(Transformed::yes(Arc::new(checked) as ExprRef))
        }
        _ => Ok(Transformed::no(part)),
    })?;
    Ok(checked.data)
}

impl Lowering<'_> {
    /// `expr` over the columns of a logical plan as an expression over its node.
    pub(super) fn physical(
        &self,
        expr: &Expr,
        schema: &DFSchema,
        lowered: &Lowered,
    ) -> Result<ExprRef, Error> {
        self.check_expression(expr)?;
        let scope = Scope::of(self.schema(lowered.node))?;
        let physical =
            scope.physical(&substitute(expr, schema, lowered, &scope)?).map_err(from_datafusion)?;
        if depth(&physical) > DEEPEST {
            let message = format!("an expression is nested more than {DEEPEST} levels deep");
            return Err(Error::plan(code::TOO_DEEP, message)
                .hint("Compute parts of it in a subquery, or use fewer terms."));
        }
        Ok(physical)
    }

    /// An aggregate call over the columns of a logical plan, over its node.
    pub(super) fn physical_aggregate(
        &self,
        expr: &Expr,
        schema: &DFSchema,
        lowered: &Lowered,
    ) -> Result<LoweredAggregate, Error> {
        self.check_expression(expr)?;
        check_call(expr).map_err(|error| error.at(self.places.aggregate))?;
        let scope = Scope::of(self.schema(lowered.node))?;
        let substituted = substitute(expr, schema, lowered, &scope)?;
        LoweredAggregateBuilder::new(
            &substituted,
            &scope.schema,
            scope.schema.as_arrow(),
            &ExecutionProps::new(),
            &PhysicalPlanningContext::default(),
        )
        .with_name(expr.schema_name().to_string())
        .with_human_display(crate::plan::text::logical(expr).replace("count(1)", "count(*)"))
        .build()
        .map_err(from_datafusion)
    }

    /// What no operator can compute.
    pub(super) fn check_expression(&self, expr: &Expr) -> Result<(), Error> {
        let mut found = None;
        let _ = expr.apply(|part| {
            found = match part {
                Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_) => {
                    Some(unanswered().at(self.places.subquery))
                }
                Expr::WindowFunction(_) => Some(unsupported("OVER").at(self.places.over)),
                Expr::Unnest(_) => Some(unsupported("UNNEST").at(self.places.unnest)),
                _ => return Ok(TreeNodeRecursion::Continue),
            };
            Ok(TreeNodeRecursion::Stop)
        });
        found.map_or(Ok(()), Err)
    }

    /// A column of a node.
    pub(super) fn column(&self, node: NodeId, index: usize) -> ExprRef {
        let name = self.schema(node).field(index).name();
        Arc::new(datafusion_physical_expr::expressions::Column::new(name, index))
    }
}

/// `expr` with its columns replaced by those of the scope.
pub(super) fn substitute(
    expr: &Expr,
    schema: &DFSchema,
    lowered: &Lowered,
    scope: &Scope,
) -> Result<Expr, Error> {
    let replaced = expr.clone().transform(|part| {
        let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
        match lowered.slots[schema.index_of_column(column)?] {
            Slot::Column(index) => Ok(Transformed::yes(scope.column(index))),
            Slot::Pending(_) => Err(DataFusionError::Internal(format!("{column} is not computed"))),
        }
    });
    Ok(replaced.map_err(from_datafusion)?.data)
}

/// The logical columns that an expression reads.
pub(super) fn columns_of<'a>(
    exprs: impl IntoIterator<Item = &'a Expr>,
    schema: &DFSchema,
) -> Result<Vec<usize>, Error> {
    let mut indexes = Vec::new();
    for expr in exprs {
        for column in expr.column_refs() {
            let index = schema.index_of_column(column).map_err(from_datafusion)?;
            if !indexes.contains(&index) {
                indexes.push(index);
            }
        }
    }
    Ok(indexes)
}

/// The logical column that an expression merely names.
pub(in crate::plan) fn plain_column(expr: &Expr, schema: &DFSchema) -> Option<usize> {
    match expr {
        Expr::Column(column) => schema.index_of_column(column).ok(),
        Expr::Alias(alias) => plain_column(&alias.expr, schema),
        _ => None,
    }
}
