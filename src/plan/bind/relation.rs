//! What may stand in FROM beyond tables and subqueries: window functions, files, query blocks with
//! clauses; and what may not.

use std::sync::Arc;

use datafusion_common::{Result as DfResult, TableReference};
use datafusion_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion_expr::{LogicalPlan, LogicalPlanBuilder};
use sqlparser::ast::{Expr, FunctionArguments, ObjectName, Spanned, TableFactor};

use super::emission::bind_emission;
use super::provider::StreamTable;
use super::system::followed;
use super::{Session, declared_name, find_relation, single_name, table};
use crate::catalog::Relation;
use crate::error::{Error, Span, code};
use crate::plan::diagnose::{carry, from_datafusion, from_sql_span};
use crate::plan::emit;
use crate::plan::late::{self, LateTarget};
use crate::plan::pattern::{Clause, bind_pattern};
use crate::plan::window::{WindowFunction, bind_window};
use crate::sql::{BlockClauses, block_of_alias};

/// Asked first for everything in FROM.
#[derive(Debug)]
pub(super) struct StreamRelations {
    session: Arc<Session>,
    blocks: Vec<BlockClauses>,
}

impl StreamRelations {
    pub(super) fn new(session: &Arc<Session>, blocks: &[BlockClauses]) -> Self {
        Self { session: Arc::clone(session), blocks: blocks.to_vec() }
    }
}

impl RelationPlanner for StreamRelations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> DfResult<RelationPlanning> {
        let span = from_sql_span(relation.span());
        match relation {
            TableFactor::Table { name, alias, args: Some(args), .. } => {
                let plan = self.call(&name, args.args, span, context)?;
                planned(plan, alias)
            }
            TableFactor::Function { name, args, alias, .. } => {
                let plan = self.call(&name, args, span, context)?;
                planned(plan, alias)
            }
            TableFactor::TableFunction { expr, alias } => match expr {
                Expr::Function(function) => {
                    let args = match function.args {
                        FunctionArguments::List(list) => list.args,
                        FunctionArguments::None | FunctionArguments::Subquery(_) => Vec::new(),
                    };
                    let span = from_sql_span(function.name.span()).or(span);
                    let plan = self.call(&function.name, args, span, context)?;
                    planned(plan, alias)
                }
                other => Err(carry(
                    Error::plan(code::INVALID_QUERY, format!("TABLE({other}) calls no table function"))
                        .at(from_sql_span(other.span()).or(span)),
                )),
            },
            TableFactor::Derived { lateral: true, .. } => Err(unsupported("LATERAL", span)),
            TableFactor::Derived { ref subquery, ref alias, .. } => {
                let block = alias.as_ref().and_then(|alias| block_of_alias(&alias.name.value));
                let Some(block) = block.and_then(|index| self.blocks.get(index)) else {
                    return Ok(RelationPlanning::Original(Box::new(relation)));
                };
                let emission = bind_emission(&self.session, block).map_err(carry)?;
                let inner = TableFactor::Derived {
                    lateral: false,
                    subquery: subquery.clone(),
                    alias: None,
                    sample: None,
                };
                let plan = context.plan(inner)?;
                let followed = emission.as_ref().map(|emission| followed(&plan, emission)).transpose()?;
                let (plan, emission) = followed.flatten().unwrap_or((plan, emission));
                let plan = match &block.late_rows_into {
                    Some((name, span)) => {
                        let target = self.late_target(name, *span).map_err(carry)?;
                        late::keep_late_rows(plan, target)?
                    }
                    None => plan,
                };
                let plan = match emission {
                    Some(emission) => emit::emit(plan, emission),
                    None => plan,
                };
                planned(plan, alias.clone())
            }
            TableFactor::Table { version: Some(_), .. } => Err(unsupported("FOR SYSTEM_TIME AS OF", span)),
            TableFactor::Table { sample: Some(_), .. } => Err(unsupported("TABLESAMPLE", span)),
            TableFactor::Table { with_ordinality: true, .. } => Err(unsupported("WITH ORDINALITY", span)),
            TableFactor::Table { ref name, ref alias, .. } => match file_name(name) {
                Some(path) => {
                    let plan = self.file(&path).map_err(|error| carry(error.at(span)))?;
                    planned(plan, alias.clone())
                }
                None => Ok(RelationPlanning::Original(Box::new(relation))),
            },
            TableFactor::MatchRecognize {
                table,
                partition_by,
                order_by,
                measures,
                rows_per_match,
                after_match_skip,
                pattern,
                symbols,
                alias,
            } => {
                let span = from_sql_span(table.span()).or(span);
                let input = context.plan(*table)?;
                let clause = Clause {
                    partition_by,
                    order_by,
                    measures,
                    rows_per_match,
                    after_match_skip,
                    pattern,
                    symbols,
                    span,
                };
                let aggregates = &self.session.functions.aggregates;
                let is_aggregate = |name: &str| aggregates.contains_key(&name.to_lowercase());
                let id = self.session.next_window();
                planned(bind_pattern(clause, input, id, &is_aggregate, context).map_err(carry)?, alias)
            }
            TableFactor::UNNEST { with_offset: false, with_ordinality: false, .. } => {
                Ok(RelationPlanning::Original(Box::new(relation)))
            }
            TableFactor::UNNEST { .. } => Err(unsupported("UNNEST with ordinality", span)),
            TableFactor::Pivot { .. } => Err(unsupported("PIVOT", span)),
            TableFactor::Unpivot { .. } => Err(unsupported("UNPIVOT", span)),
            TableFactor::NestedJoin { .. } => Ok(RelationPlanning::Original(Box::new(relation))),
            other => Err(unsupported(&other.to_string(), span)),
        }
    }
}

fn planned(plan: LogicalPlan, alias: Option<sqlparser::ast::TableAlias>) -> DfResult<RelationPlanning> {
    Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
}

fn unsupported(what: &str, span: Option<Span>) -> datafusion_common::DataFusionError {
    carry(Error::plan(code::NOT_SUPPORTED, format!("{what} can't run yet")).at(span))
}

impl StreamRelations {
    fn call(
        &self,
        name: &ObjectName,
        args: Vec<sqlparser::ast::FunctionArg>,
        span: Option<Span>,
        context: &mut dyn RelationPlannerContext,
    ) -> DfResult<LogicalPlan> {
        let span = from_sql_span(name.span()).or(span);
        let Some(function) = WindowFunction::of_name(name) else {
            let error = Error::plan(code::UNKNOWN_NAME, format!("no table function \"{name}\"")).at(span);
            return Err(carry(error.hint("Use TUMBLE, HOP, CUMULATE or SESSION.")));
        };
        bind_window(function, args, span, self.session.next_window(), context).map_err(carry)
    }

    /// The table that `LATE ROWS INTO` names: a sink that exists, or the name of a side table.
    fn late_target(&self, name: &ObjectName, span: Span) -> Result<LateTarget, Error> {
        let ident = single_name(name)?;
        let at = from_sql_span(ident.span).or(Some(span));
        let table = match find_relation(&self.session, ident) {
            None => return Ok(LateTarget { name: declared_name(name)?, table: None, span: Some(span) }),
            Some(Relation::Table(table)) => table,
            Some(Relation::View(view)) => {
                let message = format!("\"{}\" is a view; it takes no late rows", view.name);
                return Err(Error::plan(code::INVALID_QUERY, message)
                    .at(at)
                    .hint("Name a table that can be written, or a name that does not exist yet."));
            }
        };
        if !self.session.connectors.check(table)?.is_sink {
            let message = format!(
                "\"{}\" can't be written: the connector \"{}\" only reads",
                table.name, table.connector
            );
            return Err(Error::plan(code::SINK_MISMATCH, message).at(at));
        }
        Ok(LateTarget { name: table.name.clone(), table: Some(Arc::clone(table)), span: Some(span) })
    }

    /// A table that exists only in this query, its columns read from the file.
    fn file(&self, path: &str) -> Result<LogicalPlan, Error> {
        let table = table::of_file(&self.session, path)?;
        let source = Arc::new(StreamTable::new(Arc::new(table)));
        LogicalPlanBuilder::scan(TableReference::bare(path), source, None)
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)
    }
}

/// The path in `FROM 'x.parquet'`.
fn file_name(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [sqlparser::ast::ObjectNamePart::Identifier(ident)] if ident.quote_style == Some('\'') => {
            Some(ident.value.clone())
        }
        _ => None,
    }
}
