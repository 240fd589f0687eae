//! Expressions of table definitions: over the columns declared so far, types coerced.

use std::sync::Arc;

use datafusion_common::DFSchema;
use datafusion_common::tree_node::TreeNode;
use datafusion_expr::{Expr, ExprSchemable};
use datafusion_optimizer::analyzer::type_coercion::TypeCoercionRewriter;
use datafusion_sql::planner::{PlannerContext, SqlToRel};
use sqlparser::ast;

use super::names::{Names, Resolver};
use super::provider::Provider;
use super::{Session, SpecialForms, add_fields, parser_options, with_function_names};
use crate::error::Error;
use crate::plan::diagnose::from_datafusion;
use crate::sql::rewrite;

/// Binds `expr` over the columns of `schema`. Its type is that of the expression itself.
///
/// # Errors
/// Unknown columns and functions, types that do not go together.
pub(in crate::plan) fn bind_expression(
    session: &Arc<Session>,
    expr: &ast::Expr,
    schema: &DFSchema,
) -> Result<Expr, Error> {
    let mut tree = expr.clone();
    let mut names = Names::default();
    for field in schema.fields() {
        names.add(field.name());
        add_fields(&mut names, field.data_type());
    }
    let _ = rewrite(&mut tree, &mut Resolver { columns: &names, relations: &Names::default() });
    let _ = rewrite(&mut tree, &mut SpecialForms);
    let provider = Provider::new(session, &[], false);
    let planner = SqlToRel::new_with_options(&provider, parser_options());
    let bound = planner
        .sql_to_expr(tree, schema, &mut PlannerContext::new())
        .map_err(|error| with_function_names(session, from_datafusion(error)))?;
    let coerced = bound.rewrite(&mut TypeCoercionRewriter::new(schema)).map_err(from_datafusion)?.data;
    coerced.get_type(schema).map_err(from_datafusion)?;
    Ok(coerced)
}
