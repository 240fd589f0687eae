//! What DataFusion's SQL planner asks: tables, functions, types.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{Result as DfResult, TableReference};
use datafusion_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion_expr::{AggregateUDF, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF};

use super::labels::CastArguments;
use super::pseudo::stamped;
use super::relation::StreamRelations;
use super::types::SqlTypes;
use super::{Session, unknown_relation};
use crate::catalog::{Relation, Table};
use crate::plan::diagnose::carry;
use crate::sql::BlockClauses;

/// Answers for one query and the clauses of its blocks.
pub(super) struct Provider {
    session: Arc<Session>,
    relations: Vec<Arc<dyn RelationPlanner>>,
    types: Arc<dyn TypePlanner>,
    expressions: Vec<Arc<dyn ExprPlanner>>,
    config: ConfigOptions,
    /// The query names `_ingested_at` or `_latency`.
    stamps_rows: bool,
}

impl Provider {
    pub(super) fn new(session: &Arc<Session>, blocks: &[BlockClauses], stamps_rows: bool) -> Self {
        let mut expressions: Vec<Arc<dyn ExprPlanner>> = vec![Arc::new(CastArguments)];
        expressions.extend(session.functions.expr_planners.iter().map(Arc::clone));
        let mut config = session.config.clone();
        // A block with clauses stands in a subquery of ours; its ORDER BY is that of the query.
        config.sql_parser.enable_subquery_sort_elimination = blocks.is_empty();
        Self {
            session: Arc::clone(session),
            stamps_rows,
            config,
            expressions,
            relations: vec![Arc::new(StreamRelations::new(session, blocks))],
            types: Arc::new(SqlTypes { zone: session.zone.clone() }),
        }
    }
}

/// A table of the catalog, as DataFusion sees it.
pub(in crate::plan) struct StreamTable {
    pub(in crate::plan) table: Arc<Table>,
    schema: SchemaRef,
}

impl StreamTable {
    pub(in crate::plan) fn new(table: Arc<Table>) -> Self {
        let schema = table.schema();
        Self { table, schema }
    }
}

impl TableSource for StreamTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A view, whose plan stands in for it.
struct BoundView {
    plan: Arc<LogicalPlan>,
    schema: SchemaRef,
}

impl TableSource for BoundView {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        Some(Cow::Borrowed(&self.plan))
    }
}

impl ContextProvider for Provider {
    fn get_table_source(&self, name: TableReference) -> DfResult<Arc<dyn TableSource>> {
        // Tables `system.…` have one name here: what has two is none of them.
        let known = match name.schema() {
            Some(schema) if schema.eq_ignore_ascii_case("system") => None,
            _ => self.session.catalog.get(name.table()),
        };
        match known {
            Some(Relation::Table(table)) if self.stamps_rows => {
                Ok(Arc::new(StreamTable::new(stamped(table, &self.session.zone))))
            }
            Some(Relation::Table(table)) => Ok(Arc::new(StreamTable::new(Arc::clone(table)))),
            Some(Relation::View(view)) => {
                let plan = self.session.bind_view(view).map_err(carry)?;
                let schema = Arc::clone(plan.schema().inner());
                Ok(Arc::new(BoundView { plan, schema }))
            }
            None => {
                let shown = match name.schema() {
                    Some(schema) => format!("{}.{}", schema.to_lowercase(), name.table()),
                    None => name.table().to_owned(),
                };
                Err(carry(unknown_relation(&self.session, &shown, None)))
            }
        }
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.expressions
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relations
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::clone(&self.types))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.session.functions.scalars.get(&name.to_lowercase()).cloned()
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.session.functions.aggregates.get(&name.to_lowercase()).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.session.functions.windows.get(&name.to_lowercase()).cloned()
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.config
    }

    fn udf_names(&self) -> Vec<String> {
        self.session.functions.scalars.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.session.functions.aggregates.keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.session.functions.windows.keys().cloned().collect()
    }
}
