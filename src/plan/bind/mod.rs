//! Names to objects: statements to DataFusion's logical plans over our tables.
//!
//! Invariant: nothing is optimised or lowered here, and no connector is opened.

mod emission;
mod expression;
mod insert;
mod labels;
mod names;
mod options;
mod provider;
mod pseudo;
mod relation;
mod system;
mod table;
mod types;
mod versions;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion_common::config::ConfigOptions;
use datafusion_expr::LogicalPlan;
use datafusion_sql::planner::{NullOrdering, ParserOptions, SqlToRel};
use sqlparser::ast::{Ident, Statement, VisitMut};

use self::names::{Collector, Names, Resolver};
use self::provider::Provider;
use self::versions::Versions;
use super::diagnose::{from_datafusion, from_sql_span, near, with_names};
use super::function::FunctionRegistry;
use super::{emit, late, window};
use crate::catalog::{Catalog, ConnectorCatalog, Relation, View};
use crate::error::{Code, Error, Span, code};
use crate::sql;
use crate::sql::{TreeRewriter, Walk, rewrite};

pub(super) use expression::bind_expression;
pub(super) use insert::{bind_insert, is_assignable, is_writable};
pub(super) use names::table_argument;
pub(super) use options::TimeOptions;
pub(super) use provider::StreamTable;
pub(super) use table::create_table;
pub use types::sql_type_name;

/// Views in views, deeper than any that a person wrote.
const MOST_NESTED_VIEWS: usize = 64;

/// What one call of the planner works with.
pub(super) struct Session {
    pub(super) catalog: Catalog,
    pub(super) connectors: Arc<dyn ConnectorCatalog>,
    /// The session's time zone.
    pub(super) zone: String,
    pub(super) functions: Arc<FunctionRegistry>,
    pub(super) config: ConfigOptions,
    /// Rows that a side table of this plan may hold.
    pub(super) side_table_rows: usize,
    /// Connectors are asked what they know of tables, for lints.
    pub(super) lints_tables: bool,
    /// How long state of keys without a window is kept, microseconds; `None`: always.
    pub(super) state_ttl_us: Option<i64>,
    /// Views bound so far, and those being bound.
    views: Mutex<HashMap<String, Arc<LogicalPlan>>>,
    open_views: Mutex<Vec<String>>,
    next_window: AtomicUsize,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("zone", &self.zone).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(
        catalog: &Catalog,
        connectors: &Arc<dyn ConnectorCatalog>,
        zone: &str,
        functions: &Arc<FunctionRegistry>,
        side_table_rows: usize,
        lints_tables: bool,
        state_ttl_us: Option<i64>,
    ) -> Arc<Self> {
        let mut config = ConfigOptions::default();
        config.execution.time_zone = Some(zone.to_owned());
        config.sql_parser.enable_ident_normalization = false;
        config.sql_parser.map_string_types_to_utf8view = false;
        config.sql_parser.collect_spans = true;
        // No operator computes a subquery: all become joins.
        config.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
        Arc::new(Self {
            catalog: catalog.clone(),
            connectors: Arc::clone(connectors),
            zone: zone.to_owned(),
            functions: Arc::clone(functions),
            config,
            side_table_rows,
            lints_tables,
            state_ttl_us,
            views: Mutex::default(),
            open_views: Mutex::default(),
            next_window: AtomicUsize::new(0),
        })
    }

    /// A number that no other window of this plan has.
    pub(super) fn next_window(&self) -> usize {
        self.next_window.fetch_add(1, Ordering::Relaxed)
    }

    /// The plan of a view. An error inside it names the view; its place is in another text.
    pub(super) fn bind_view(self: &Arc<Self>, view: &View) -> Result<Arc<LogicalPlan>, Error> {
        if let Some(plan) = lock(&self.views).get(&view.name) {
            return Ok(Arc::clone(plan));
        }
        {
            let mut open = lock(&self.open_views);
            if open.contains(&view.name) || open.len() >= MOST_NESTED_VIEWS {
                let message = format!("the view \"{}\" is defined by itself", view.name);
                return Err(Error::plan(code::INVALID_QUERY, message)
                    .hint("Drop one of the views and create it over tables."));
            }
            open.push(view.name.clone());
        }
        let bound = self.bind_view_text(view).map_err(|error| inside_view(&view.name, &error));
        lock(&self.open_views).pop();
        let plan = Arc::new(bound?);
        lock(&self.views).insert(view.name.clone(), Arc::clone(&plan));
        Ok(plan)
    }

    fn bind_view_text(self: &Arc<Self>, view: &View) -> Result<LogicalPlan, Error> {
        let query = sql::parse_query(&view.sql)?;
        let plan = late::without_places(bind_query(self, &query)?)
            .and_then(emit::without_places)
            .map_err(from_datafusion)?;
        rename_columns(plan, &view.columns)
    }
}

/// The plan with other column names; none: as it is.
pub(super) fn rename_columns(plan: LogicalPlan, columns: &[String]) -> Result<LogicalPlan, Error> {
    use datafusion_expr::{Expr, LogicalPlanBuilder};
    if columns.is_empty() {
        return Ok(plan);
    }
    let given = plan.schema().columns();
    if given.len() != columns.len() {
        return Err(Error::plan(
            code::INVALID_QUERY,
            format!("the column list has {} name(s), the query {} column(s)", columns.len(), given.len()),
        ));
    }
    let projection: Vec<_> =
        given.into_iter().zip(columns).map(|(column, name)| Expr::Column(column).alias(name)).collect();
    LogicalPlanBuilder::from(plan)
        .project(projection)
        .and_then(LogicalPlanBuilder::build)
        .map_err(from_datafusion)
}

fn inside_view(name: &str, error: &Error) -> Error {
    let message = format!("in the view \"{name}\": {}", error.message());
    let outside = Error::plan(Code(error.code()), message);
    match error.hint_text() {
        Some(hint) => outside.hint(hint),
        None => outside,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The plan of a query, names resolved, types not yet coerced.
pub(super) fn bind_query(session: &Arc<Session>, query: &sql::Query) -> Result<LogicalPlan, Error> {
    let mut tree = query.query.clone();
    let stamps_rows = pseudo::resolve(session, tree.as_mut());
    resolve_names(session, tree.as_mut())?;
    if let ControlFlow::Break(error) = rewrite(&mut tree, &mut Versions(session)) {
        return Err(error);
    }
    window::rewrite_group_windows(tree.as_mut())?;
    let provider = Provider::new(session, &query.blocks, stamps_rows);
    let planner = SqlToRel::new_with_options(&provider, parser_options());
    planner
        .sql_statement_to_plan(Statement::Query(tree))
        .map_err(|error| with_function_names(session, from_datafusion(error)))
}

/// How DataFusion is to read the tree. The same switches stand in [`Session::config`].
fn parser_options() -> ParserOptions {
    ParserOptions::new()
        .with_collect_spans(true)
        .with_default_null_ordering(NullOrdering::NullsMin)
        .with_enable_ident_normalization(false)
        .with_map_string_types_to_utf8view(false)
}

/// Replaces every unquoted name in `tree` by the declared one it means, and Flink's special forms
/// by functions.
fn resolve_names<T: VisitMut>(session: &Arc<Session>, tree: &mut T) -> Result<(), Error> {
    let _ = rewrite(tree, &mut system::SystemNames(&session.catalog));
    let mut collector = Collector::default();
    let _ = rewrite(tree, &mut collector);
    let Collector { relations: mentioned, given: mut columns, ctes: mut relations } = collector;
    for relation in session.catalog.relations() {
        relations.add(relation.name());
    }
    for name in ["window_start", "window_end", "window_time"] {
        columns.add(name);
    }
    for ident in mentioned {
        let Some(relation) = find_relation(session, &ident) else { continue };
        columns.add(relation.name());
        match relation {
            Relation::Table(table) => {
                for column in &table.columns {
                    columns.add(&column.name);
                    add_fields(&mut columns, &column.data_type);
                }
            }
            Relation::View(view) => {
                let plan = session.bind_view(view).map_err(|error| error.at(from_sql_span(ident.span)))?;
                for field in plan.schema().fields() {
                    columns.add(field.name());
                    add_fields(&mut columns, field.data_type());
                }
            }
        }
    }
    let _ = rewrite(tree, &mut Resolver { columns: &columns, relations: &relations });
    let _ = rewrite(tree, &mut labels::UniqueItems);
    let _ = rewrite(tree, &mut SpecialForms);
    Ok(())
}

/// Flink's special forms to plain functions.
struct SpecialForms;

impl TreeRewriter for SpecialForms {
    fn post_visit_expr(&mut self, expr: &mut sqlparser::ast::Expr) -> Walk {
        super::function::rewrite_expr(expr);
        std::ops::ControlFlow::Continue(())
    }
}

fn add_fields(names: &mut Names, data_type: &arrow::datatypes::DataType) {
    use arrow::datatypes::DataType;
    match data_type {
        DataType::Struct(fields) => {
            for field in fields {
                names.add(field.name());
                add_fields(names, field.data_type());
            }
        }
        DataType::List(item) => add_fields(names, item.data_type()),
        DataType::Map(entries, _) => add_fields(names, entries.data_type()),
        _ => {}
    }
}

/// The relation that a name means: itself, or, unquoted, the only one that differs in case.
pub(super) fn find_relation<'a>(session: &'a Session, ident: &Ident) -> Option<&'a Relation> {
    if let Some(relation) = session.catalog.get(&ident.value) {
        return Some(relation);
    }
    if ident.quote_style.is_some() {
        return None;
    }
    let mut names = Names::default();
    session.catalog.relations().for_each(|relation| names.add(relation.name()));
    session.catalog.get(names.spelling(&ident.value)?)
}

/// The single name of a table or view.
///
/// # Errors
/// `P002` for a name of several parts.
pub(super) fn single_name(name: &sqlparser::ast::ObjectName) -> Result<&Ident, Error> {
    match name.0.as_slice() {
        [sqlparser::ast::ObjectNamePart::Identifier(ident)] => Ok(ident),
        _ => {
            use sqlparser::ast::Spanned;
            Err(Error::plan(code::NOT_SUPPORTED, format!("\"{name}\" has several parts"))
                .at(from_sql_span(name.span()))
                .hint("Use the table's name alone: there are no databases or schemas."))
        }
    }
}

/// The name that a statement gives to a table or view: lower case unless quoted.
pub(super) fn declared_name(name: &sqlparser::ast::ObjectName) -> Result<String, Error> {
    let ident = single_name(name)?;
    Ok(if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() })
}

/// An error for a table or view that does not exist.
pub(super) fn unknown_relation(session: &Session, name: &str, span: Option<Span>) -> Error {
    let mut names: Vec<&str> = session.catalog.relations().map(Relation::name).collect();
    if name.starts_with("system.") {
        names = session.catalog.system_names().collect();
    }
    let error = Error::plan(code::UNKNOWN_NAME, format!("no table or view \"{name}\"")).at(span);
    if names.is_empty() {
        return error.hint("Create it first with CREATE TABLE.");
    }
    with_names(error, name, &names)
}

/// Replaces the hint of an unknown function by the nearest of our names.
fn with_function_names(session: &Session, error: Error) -> Error {
    let Some(name) = error.message().strip_prefix("no function \"").and_then(|rest| rest.strip_suffix('"'))
    else {
        return error;
    };
    let functions = &session.functions;
    let known = functions.scalars.keys().chain(functions.aggregates.keys()).map(String::as_str);
    match near(name, known.filter(|known| !known.starts_with("__"))) {
        Some(near) => {
            let hint = format!("Use \"{near}\".");
            error.hint(hint)
        }
        None => error,
    }
}
