//! Subqueries in expressions, in forms that the optimizer turns into joins.
//!
//! `EXISTS` and `IN` that a condition demands stay what they are: they become semi and anti joins. In any other
//! place, and where NULL must be told from FALSE, they are read from aggregates that have no value without rows:
//! `MAX(1)` says whether there is a row, [`Subqueries::kind_of_rows`] whether one of them is NULL. A subquery whose
//! value is read gives one row at most, or the query fails.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, ExprSchema, Result as DfResult, ScalarValue, Spans};
use datafusion_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::logical_plan::{Filter, Subquery};
use datafusion_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion_expr::{
    AggregateUDF, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, lit, when,
};

use super::bind::StreamTable;
use super::diagnose::carry;
use super::function::{FunctionRegistry, single_value};
use crate::error::{Error, code};

/// The plan with its subqueries in such forms.
///
/// # Errors
/// `P002` where no join answers a subquery.
pub(super) fn expand(functions: &FunctionRegistry, plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let Some(max) = functions.aggregates.get("max") else { return Ok(plan) };
    let subqueries = Subqueries { max: Arc::clone(max), single: single_value() };
    plan.transform_up_with_subqueries(|node| subqueries.expand(node)).map(|done| done.data)
}

/// Whether an expression of the plan has a subquery.
pub(super) fn is_in(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let _ = plan.apply(|node| {
        node.apply_expressions(|expr| {
            found |= has_subquery(expr);
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

/// The error for a subquery that did not become a join.
pub(super) fn unanswered() -> Error {
    let what = "a subquery that depends on the outer query by more than equal columns can't run yet";
    Error::plan(code::NOT_SUPPORTED, what).hint(
        "Set columns of both equal in its WHERE and aggregate (SELECT MAX(x) FROM … WHERE inner.k = outer.k), without \
         ORDER BY and LIMIT; or write it as a join.",
    )
}

struct Subqueries {
    max: Arc<AggregateUDF>,
    single: Arc<AggregateUDF>,
}

/// The rows that a condition is of.
#[derive(Clone, Copy)]
struct Outer<'a> {
    schema: &'a DFSchema,
    is_bounded: bool,
}

/// What [`Subqueries::kind_of_rows`] gives where no row is NULL; where one is; NULL: there is no row.
const NO_NULL: i64 = 1;
const A_NULL: i64 = 2;

impl Subqueries {
    fn expand(&self, node: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
        let mut found = false;
        node.apply_expressions(|expr| {
            found |= has_subquery(expr);
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !found {
            return Ok(Transformed::no(node));
        }
        check_levels(&node)?;
        match node {
            LogicalPlan::Filter(filter) => {
                let schema = Arc::clone(filter.input.schema());
                let outer = Outer { schema: &schema, is_bounded: is_bounded(&filter.input) };
                let mut terms = Vec::new();
                for term in split_conjunction_owned(filter.predicate) {
                    self.demanded(term, outer, &mut terms)?;
                }
                let predicate = conjunction(terms).unwrap_or_else(|| lit(true));
                Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
            }
            LogicalPlan::Projection(_) => {
                let names = NamePreserver::new(&node);
                let schema = merge_schema(&node.inputs());
                node.map_expressions(|expr| {
                    let saved = names.save(&expr);
                    Ok(self.read(expr, &schema)?.update_data(|expr| saved.restore(expr)))
                })
            }
            LogicalPlan::Join(_) => Err(refused(
                "a subquery in the condition of a join",
                "Put it into WHERE, or into a subquery in FROM that computes it for each row.",
            )),
            LogicalPlan::Aggregate(_) => Err(refused(
                "a subquery in an aggregate or in GROUP BY",
                "Compute it for each row in a subquery in FROM, and aggregate over that.",
            )),
            _ => Err(refused(
                "a subquery in this place",
                "Compute it for each row in a subquery in FROM, and use its column here.",
            )),
        }
    }

    /// A condition that must be true: adds what must be true in its place.
    fn demanded(&self, term: Expr, outer: Outer<'_>, terms: &mut Vec<Expr>) -> DfResult<()> {
        match positive(term) {
            Expr::Exists(exists) if !always_gives_a_row(&exists.subquery.subquery) => {
                if exists.subquery.outer_ref_columns.is_empty() {
                    terms.push(self.exists(exists)?);
                } else {
                    check_groups(&exists.subquery)?;
                    terms.push(Expr::Exists(exists));
                }
            }
            Expr::InSubquery(within) if !always_gives_a_row(&within.subquery.subquery) => {
                check_in(&within)?;
                let keeps_up = outer.is_bounded && is_bounded(&within.subquery.subquery);
                match within.negated.then(|| self.none_is_null(&within, outer.schema)).transpose()?.flatten()
                {
                    Some(_) if !keeps_up => terms.push(is_certainly_not_in(within, outer.schema)?),
                    certain => {
                        terms.extend(certain);
                        terms.push(Expr::InSubquery(within));
                    }
                }
            }
            other => terms.push(self.read(other, outer.schema)?.data),
        }
        Ok(())
    }

    /// What else must be true for `x NOT IN (…)`, beyond that no row is equal to `x`: there is no row at all, or
    /// neither `x` nor a row is NULL.
    fn none_is_null(&self, within: &InSubquery, schema: &DFSchema) -> DfResult<Option<Expr>> {
        let column = first_column(&within.subquery.subquery);
        let kind = || self.kind_of_rows(&within.subquery);
        let rows_may_be_null = column.nullable(within.subquery.subquery.schema())?;
        Ok(match (rows_may_be_null, within.expr.nullable(schema)?) {
            (false, false) => None,
            (false, true) => Some(within.expr.as_ref().clone().is_not_null().or(kind()?.is_null())),
            (true, false) => Some(kind()?.is_null().or(kind()?.eq(lit(NO_NULL)))),
            (true, true) => {
                let is_known = within.expr.as_ref().clone().is_not_null();
                Some(kind()?.is_null().or(kind()?.eq(lit(NO_NULL)).and(is_known)))
            }
        })
    }

    /// The expression with the values of its subqueries.
    fn read(&self, expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        let done = |expr| Ok(Transformed::new(expr, true, TreeNodeRecursion::Jump));
        expr.transform_down(|part| match positive(part) {
            Expr::Exists(exists) => done(self.exists(exists)?),
            Expr::InSubquery(within) => done(self.within(within, schema)?),
            Expr::ScalarSubquery(subquery) => done(self.one(subquery)?),
            Expr::SetComparison(_) => Err(refused(
                "ANY or ALL of a subquery in this comparison",
                "Compare with the MIN or MAX that the subquery gives; or use IN for = ANY, NOT IN for <> ALL.",
            )),
            part => Ok(Transformed::no(part)),
        })
    }

    /// Whether there is a row.
    fn exists(&self, exists: Exists) -> DfResult<Expr> {
        if always_gives_a_row(&exists.subquery.subquery) {
            return Ok(lit(!exists.negated));
        }
        check_groups(&exists.subquery)?;
        let row = self.highest(LogicalPlanBuilder::from(exists.subquery.subquery), lit(1_i64))?;
        Ok(if exists.negated { row.is_null() } else { row.is_not_null() })
    }

    /// Whether a row has the value; NULL where that depends on what a NULL stands for.
    fn within(&self, within: InSubquery, schema: &DFSchema) -> DfResult<Expr> {
        check_in(&within)?;
        if always_gives_a_row(&within.subquery.subquery) {
            let operator = if within.negated { Operator::NotEq } else { Operator::Eq };
            let value = Expr::ScalarSubquery(within.subquery);
            return Ok(datafusion_expr::binary_expr(*within.expr, operator, value));
        }
        let column = first_column(&within.subquery.subquery);
        let rows = within.subquery.subquery.as_ref().clone();
        let is_equal = column.clone().eq(outer(within.expr.as_ref().clone(), schema)?);
        let equal = self.highest(LogicalPlanBuilder::from(rows).filter(is_equal)?, lit(1_i64))?.is_not_null();
        let kind = || self.kind_of_rows(&within.subquery);
        let null = || lit(ScalarValue::Boolean(None));
        let rows_may_be_null = column.nullable(within.subquery.subquery.schema())?;
        let is_null = within.expr.as_ref().clone().is_null();
        let is_in = match (rows_may_be_null, within.expr.nullable(schema)?) {
            (false, false) => equal,
            (false, true) => when(equal, lit(true))
                .when(is_null.and(kind()?.is_not_null()), null())
                .otherwise(lit(false))?,
            (true, false) => {
                when(equal, lit(true)).when(kind()?.eq(lit(A_NULL)), null()).otherwise(lit(false))?
            }
            (true, true) => {
                let is_unknown = kind()?.eq(lit(A_NULL)).or(is_null.and(kind()?.is_not_null()));
                when(equal, lit(true)).when(is_unknown, null()).otherwise(lit(false))?
            }
        };
        Ok(if within.negated { Expr::Not(Box::new(is_in)) } else { is_in })
    }

    /// Of a subquery's rows whether one is NULL.
    fn kind_of_rows(&self, subquery: &Subquery) -> DfResult<Expr> {
        let rows = subquery.subquery.as_ref().clone();
        let kind = when(first_column(&rows).is_null(), lit(A_NULL)).otherwise(lit(NO_NULL))?;
        self.highest(LogicalPlanBuilder::from(rows), kind)
    }

    /// The value of a subquery.
    fn one(&self, subquery: Subquery) -> DfResult<Expr> {
        if subquery.subquery.max_rows().is_some_and(|rows| rows <= 1) {
            return Ok(Expr::ScalarSubquery(subquery));
        }
        check_groups(&subquery)?;
        let column = first_column(&subquery.subquery);
        let rows = LogicalPlanBuilder::from(subquery.subquery);
        scalar(rows.aggregate(Vec::<Expr>::new(), vec![self.single.call(vec![column])])?.build()?)
    }

    /// The highest value of the rows; NULL without any.
    fn highest(&self, rows: LogicalPlanBuilder, value: Expr) -> DfResult<Expr> {
        scalar(rows.aggregate(Vec::<Expr>::new(), vec![self.max.call(vec![value])])?.build()?)
    }
}

fn scalar(plan: LogicalPlan) -> DfResult<Expr> {
    let outer_ref_columns = plan.all_out_ref_exprs();
    Ok(Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Spans::new() }))
}

fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|part| {
        Ok(matches!(
            part,
            Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)
        ))
    })
    .unwrap_or(false)
}

/// `NOT EXISTS` and `NOT IN` as one expression, `= ANY` as `IN`, `<> ALL` as `NOT IN`.
fn positive(expr: Expr) -> Expr {
    match expr {
        Expr::Not(inner) => match positive(*inner) {
            Expr::Exists(Exists { subquery, negated }) => {
                Expr::Exists(Exists { subquery, negated: !negated })
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                Expr::InSubquery(InSubquery { expr, subquery, negated: !negated })
            }
            other => Expr::Not(Box::new(other)),
        },
        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => match (op, quantifier) {
            (Operator::Eq, SetQuantifier::Any) => {
                Expr::InSubquery(InSubquery { expr, subquery, negated: false })
            }
            (Operator::NotEq, SetQuantifier::All) => {
                Expr::InSubquery(InSubquery { expr, subquery, negated: true })
            }
            (op, quantifier) => Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }),
        },
        other => other,
    }
}

fn first_column(plan: &LogicalPlan) -> Expr {
    Expr::Column(Column::from(plan.schema().qualified_field(0)))
}

/// The expression as a subquery sees it.
fn outer(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    let replaced = expr.transform_up(|part| match part {
        Expr::Column(column) => {
            let field = Arc::clone(schema.field_from_column(&column)?);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        part => Ok(Transformed::no(part)),
    });
    replaced.map(|done| done.data)
}

/// `x NOT IN (…)` as one join, which has no passing states: no row is equal to `x`, or may be.
fn is_certainly_not_in(within: InSubquery, schema: &DFSchema) -> DfResult<Expr> {
    let is_equal = first_column(&within.subquery.subquery).eq(outer(*within.expr, schema)?);
    let may_be_equal = Expr::IsNotFalse(Box::new(is_equal));
    let rows = LogicalPlanBuilder::from(within.subquery.subquery).filter(may_be_equal)?.build()?;
    let outer_ref_columns = rows.all_out_ref_exprs();
    let subquery = Subquery { subquery: Arc::new(rows), outer_ref_columns, spans: Spans::new() };
    Ok(Expr::Exists(Exists { subquery, negated: true }))
}

/// Whether all tables of a plan end.
fn is_bounded(plan: &LogicalPlan) -> bool {
    let is_endless = |node: &LogicalPlan| match node {
        LogicalPlan::TableScan(scan) => {
            scan.source.downcast_ref::<StreamTable>().is_some_and(|source| !source.table.bounded)
        }
        _ => false,
    };
    !plan.exists(|node| Ok(is_endless(node))).unwrap_or(false)
}

/// A subquery knows the query that it stands in, not the one around that.
fn check_levels(node: &LogicalPlan) -> DfResult<()> {
    let schema = merge_schema(&node.inputs());
    let is_known = |expr: &Expr| match expr {
        Expr::OuterReferenceColumn(_, column) => schema.has_column(column),
        _ => true,
    };
    node.apply_expressions(|expr| {
        expr.apply(|part| {
            let (Expr::Exists(Exists { subquery, .. })
            | Expr::InSubquery(InSubquery { subquery, .. })
            | Expr::SetComparison(SetComparison { subquery, .. })
            | Expr::ScalarSubquery(subquery)) = part
            else {
                return Ok(TreeNodeRecursion::Continue);
            };
            if subquery.outer_ref_columns.iter().all(is_known) {
                return Ok(TreeNodeRecursion::Continue);
            }
            Err(refused(
                "a subquery in a subquery that reads columns of the outermost query",
                "Join the tables of both in one subquery.",
            ))
        })
    })?;
    Ok(())
}

/// Whether a plan has exactly one row, whatever its input: an aggregation without GROUP BY.
fn always_gives_a_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => always_gives_a_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => always_gives_a_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}

fn check_in(within: &InSubquery) -> DfResult<()> {
    if within.expr.contains_outer() {
        return Err(refused(
            "IN of a column of the outer query in a subquery",
            "Compare with = in the WHERE of the subquery.",
        ));
    }
    if has_subquery(&within.expr) {
        return Err(refused(
            "IN with a subquery on both sides",
            "Compute the left one for each row in a subquery in FROM.",
        ));
    }
    if always_gives_a_row(&within.subquery.subquery) { Ok(()) } else { check_groups(&within.subquery) }
}

/// An aggregation without GROUP BY has a row where the outer row has none to aggregate; a join has not.
fn check_groups(subquery: &Subquery) -> DfResult<()> {
    let gives_one = |plan: &LogicalPlan| match plan {
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.is_empty() && !aggregate.input.all_out_ref_exprs().is_empty()
        }
        _ => false,
    };
    if subquery.subquery.exists(|plan| Ok(gives_one(plan)))? {
        return Err(refused(
            "HAVING without GROUP BY, or an aggregate below others, in a subquery that depends on the outer query",
            "Compare the aggregate itself: (SELECT COUNT(*) FROM … WHERE inner.k = outer.k) > 0.",
        ));
    }
    Ok(())
}

fn refused(what: &str, hint: &str) -> datafusion_common::DataFusionError {
    carry(Error::plan(code::NOT_SUPPORTED, format!("{what} can't run yet")).hint(hint))
}
