//! Plan to plan: types coerced, constants folded, filters and projections moved.
//!
//! Only rules that are safe for streams. Subqueries become joins, which are lowered or refused like those that a
//! query writes. Left out on purpose: whatever splits `COUNT(DISTINCT)` into two aggregations (the window columns
//! would no longer be found), or replaces a stream by nothing (its watermark would be gone).

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, Result as DfResult};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion_optimizer::analyzer::Analyzer;
use datafusion_optimizer::common_subexpr_eliminate::CommonSubexprEliminate;
use datafusion_optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion_optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion_optimizer::eliminate_duplicated_expr::EliminateDuplicatedExpr;
use datafusion_optimizer::eliminate_outer_join::EliminateOuterJoin;
use datafusion_optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion_optimizer::optimize_projections::OptimizeProjections;
use datafusion_optimizer::push_down_filter::PushDownFilter;
use datafusion_optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion_optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion_optimizer::simplify_expressions::SimplifyExpressions;
use datafusion_optimizer::{Optimizer, OptimizerContext, OptimizerRule};
use datafusion_physical_expr::create_physical_expr;

use super::bind::Session;
use super::constant;
use super::diagnose::{carry, from_datafusion};
use super::lower::checked_arithmetic;
use super::{subquery, text};
use crate::error::{Error, code};

/// Puts UNNEST on the rows that it is of, brings subqueries into forms that become joins, resolves grouping
/// functions and coerces types.
///
/// # Errors
/// Types that do not go together, subqueries that no join answers.
pub(super) fn analyze(session: &Session, plan: LogicalPlan) -> Result<LogicalPlan, Error> {
    let plan = super::unnest::flatten(plan)
        .and_then(|plan| subquery::expand(&session.functions, plan))
        .map_err(from_datafusion)?;
    Analyzer::new().execute_and_check(plan, &session.config, |_, _| {}).map_err(from_datafusion)
}

/// Applies the rules that are safe for streams.
///
/// # Errors
/// `P003` for constants that overflow.
pub(super) fn optimize(session: &Session, plan: LogicalPlan) -> Result<LogicalPlan, Error> {
    let plan = fold_arithmetic(plan).map_err(from_datafusion)?;
    let plan = match subquery::is_in(&plan) {
        true => join_subqueries(session, plan)?,
        false => plan,
    };
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(SimplifyExpressions::new()),
        Arc::new(ReplaceDistinctWithAggregate::new()),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateDuplicatedExpr::new()),
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(EliminateOuterJoin::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(CommonSubexprEliminate::new()),
        Arc::new(OptimizeProjections::new()),
    ];
    apply(session, rules, plan)
}

/// Joins in place of all subqueries.
///
/// # Errors
/// `P002` for what is no join; later rules would not expect it.
fn join_subqueries(session: &Session, plan: LogicalPlan) -> Result<LogicalPlan, Error> {
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(SimplifyExpressions::new()),
        Arc::new(ReplaceDistinctWithAggregate::new()),
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(ScalarSubqueryToJoin::new()),
    ];
    let plan = apply(session, rules, plan)?;
    if subquery::is_in(&plan) { Err(subquery::unanswered()) } else { Ok(plan) }
}

fn apply(
    session: &Session,
    rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
    plan: LogicalPlan,
) -> Result<LogicalPlan, Error> {
    let context = OptimizerContext::new_with_config_options(Arc::new(session.config.clone()))
        .without_query_execution_start_time();
    Optimizer::with_rules(rules).optimize(plan, &context, |_, _| {}).map_err(from_datafusion)
}

/// Computes constant arithmetic with overflow checks, before a rule does it without.
fn fold_arithmetic(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let names = NamePreserver::new(&plan);
    plan.transform_up(|node| {
        node.map_expressions(|expr| {
            let saved = names.save(&expr);
            let folded = expr.transform_down(fold_one)?;
            Ok(folded.update_data(|expr| saved.restore(expr)))
        })
    })
    .map(|done| done.data)
}

fn fold_one(expr: Expr) -> DfResult<Transformed<Expr>> {
    let Expr::BinaryExpr(binary) = &expr else { return Ok(Transformed::no(expr)) };
    let arithmetic = matches!(binary.op, Operator::Plus | Operator::Minus | Operator::Multiply);
    let schema = DFSchema::empty();
    if !arithmetic || !is_constant(&expr) || !expr.get_type(&schema).is_ok_and(|kind| kind.is_integer()) {
        return Ok(Transformed::no(expr));
    }
    let physical =
        create_physical_expr(&expr, &schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())?;
    let value = match constant::evaluate(&checked_arithmetic(physical)?) {
        Ok(value) => value,
        // Without the check it would wrap: the query asks for a number that does not exist.
        Err(_) if constant::fold(&expr).is_ok() => {
            let error =
                Error::plan(code::INVALID_QUERY, format!("{} does not fit its type", text::logical(&expr)));
            return Err(carry(
                error.hint("Use CAST(… AS DECIMAL(38, 0)) or DOUBLE for numbers of that size."),
            ));
        }
        // Other faults, such as a division by zero, may stand where no row comes.
        Err(_) => return Ok(Transformed::no(expr)),
    };
    Ok(Transformed::new(Expr::Literal(value, None), true, TreeNodeRecursion::Jump))
}

fn is_constant(expr: &Expr) -> bool {
    let mut constant = true;
    let _ = expr.apply(|part| {
        if matches!(part, Expr::Literal(..) | Expr::BinaryExpr(_) | Expr::Negative(_) | Expr::Cast(_)) {
            return Ok(TreeNodeRecursion::Continue);
        }
        constant = false;
        Ok(TreeNodeRecursion::Stop)
    });
    constant
}
