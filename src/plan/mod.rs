//! Statements to a [`StreamPlan`]: the planner as a library.
//!
//! [`Planner`] is the door. On the way: `bind` (names to objects, over datafusion-sql), `rewrite`
//! (types, constants, filters), `lower` (operators, exchanges, stream properties). `window` holds
//! the window table functions, `function` the scalar and aggregate ones.
//!
//! Names: an unquoted name is found whatever its case where that is unambiguous, a name that matches
//! exactly wins, and output columns keep the declared spelling. Names of new tables and views are
//! lower case unless quoted.
//!
//! Invariant: a pure function of (statement, catalog, settings). No file, no clock, no task.

mod as_of;
mod bind;
mod constant;
mod definition;
mod delay;
mod diagnose;
mod emit;
mod explain;
mod function;
mod function_names;
mod guarantee;
mod join_node;
mod json;
mod late;
mod latest;
mod lint;
mod local_schema;
mod lower;
#[cfg(feature = "runtime")]
mod outline;
mod over_node;
mod pattern;
mod pattern_node;
mod places;
mod registration;
mod rewrite;
mod stream_plan;
mod subquery;
#[cfg(test)]
mod tests;
mod text;
mod unnest;
mod window;
mod window_text;

use std::sync::Arc;

use datafusion_expr::LogicalPlan;

use self::bind::Session;
use self::function::{FunctionRegistry, Registered};
use self::lower::Target;
use self::places::Places;
use crate::catalog::{Catalog, ConnectorCatalog, Table, UncheckedConnectors, View};
use crate::error::{Error, SourceText, code};
use crate::sql::{self, Statement};

pub use bind::sql_type_name;
#[cfg(feature = "runtime")]
pub(crate) use function::{ExactSum, Finish, Finished, finished_sums, is_registered};
#[cfg(feature = "runtime")]
pub(crate) use guarantee::guarantee;
pub use guarantee::{Guarantee, GuaranteeLevel};
pub use join_node::{Horizon, IntervalJoinNode, LookupJoinNode, RegularJoinNode, TemporalJoinNode};
pub use late::LATE_COLUMNS;
#[cfg(all(test, feature = "runtime"))]
pub(crate) use late::late_columns as late_fields;
pub use lint::Lint;
#[doc(hidden)]
pub use local_schema::{grouping_id, grouping_id_type, local_schema};
#[cfg(feature = "runtime")]
pub(crate) use outline::{PlanPart, Role};
pub use over_node::{
    FrameBound, FrameUnit, OverCall, OverFrame, OverFunction, OverNode, OverTrigger, RankKind, RankLimit,
    TopNNode,
};
pub use pattern_node::{
    AfterMatch, MatchCondition, MatchRecognizeNode, MatchValue, MatchValueKind, PatternVariable,
};
pub use stream_plan::*;

/// Stack for one call: expressions of thousands of terms are walked by recursion.
const STACK_BYTES: usize = 64 << 20;

/// Rows that a side table made by `LATE ROWS INTO` holds at most.
const SIDE_TABLE_ROWS: usize = 1_000_000;

/// Plans statements over a catalog.
///
/// ```
/// use tidegate::catalog::{Catalog, Relation};
/// use tidegate::plan::Planner;
/// use tidegate::sql::{self, Statement};
///
/// let planner = Planner::default();
/// let mut catalog = Catalog::new();
/// let script = "CREATE TABLE bids (
///     item STRING, price INT, ts TIMESTAMP(3),
///     WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
/// ) WITH ('connector' = 'filesystem', 'path' = 'bids.csv', 'format' = 'csv')";
/// for spanned in sql::parse(script)? {
///     if let Statement::CreateTable(statement) = &spanned.statement {
///         let table = planner.create_table(statement, &catalog)?;
///         catalog.add(Relation::Table(table.into()), false)?;
///     }
/// }
/// let plan = planner.plan(
///     "SELECT window_start, item, MAX(price) AS highest
///      FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTE))
///      GROUP BY window_start, window_end, item",
///     &catalog,
/// )?;
/// assert!(plan.explain().contains("WindowAggregate"));
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone)]
pub struct Planner {
    connectors: Arc<dyn ConnectorCatalog>,
    time_zone: String,
    functions: Arc<FunctionRegistry>,
    /// Those of them that came later.
    registered: Vec<Registered>,
    side_table_rows: usize,
    lints_tables: bool,
    state_ttl_us: Option<i64>,
}

impl std::fmt::Debug for Planner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Planner").field("time_zone", &self.time_zone).finish_non_exhaustive()
    }
}

impl Default for Planner {
    /// Accepts every connector and option; the session's time zone is UTC.
    fn default() -> Self {
        Self::new(Arc::new(UncheckedConnectors))
    }
}

impl Planner {
    /// Plans over tables of these connectors; the session's time zone is UTC.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::catalog::{Catalog, UncheckedConnectors};
    /// use tidegate::plan::Planner;
    ///
    /// let planner = Planner::new(Arc::new(UncheckedConnectors));
    /// let plan = planner.plan("SELECT 1 + 1 AS two", &Catalog::new())?;
    /// assert_eq!(plan.sinks.len(), 1);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn new(connectors: Arc<dyn ConnectorCatalog>) -> Self {
        let time_zone = "UTC".to_owned();
        let functions = Arc::new(function::registry(&time_zone));
        let side_table_rows = SIDE_TABLE_ROWS;
        Self {
            connectors,
            time_zone,
            functions,
            registered: Vec::new(),
            side_table_rows,
            lints_tables: false,
            state_ttl_us: None,
        }
    }

    /// The planner with another bound on the rows of the side tables that `LATE ROWS INTO` makes.
    ///
    /// ```
    /// use tidegate::plan::Planner;
    ///
    /// let planner = Planner::default().with_side_table_rows(10_000);
    /// ```
    #[must_use]
    pub fn with_side_table_rows(self, rows: usize) -> Self {
        Self { side_table_rows: rows, ..self }
    }

    /// The planner of queries that forget keys which no row has changed for so many microseconds:
    /// aggregations and joins without time, first rows, deduplication. 0: nothing is forgotten.
    ///
    /// ```
    /// use tidegate::plan::Planner;
    ///
    /// let planner = Planner::default().with_state_ttl_us(3_600_000_000);
    /// ```
    #[must_use]
    pub fn with_state_ttl_us(self, us: i64) -> Self {
        Self { state_ttl_us: (us > 0).then_some(us), ..self }
    }

    /// The planner that also asks connectors what they know of the tables of a query, for the lints that
    /// depend on it and for the guarantee. A file's metadata may be read for that.
    ///
    /// ```
    /// use tidegate::catalog::Catalog;
    /// use tidegate::plan::Planner;
    ///
    /// let plan = Planner::default().with_table_lints().plan("SELECT 1 AS one", &Catalog::new())?;
    /// assert!(plan.lints.is_empty());
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    #[must_use]
    pub fn with_table_lints(self) -> Self {
        Self { lints_tables: true, ..self }
    }

    /// The planner with another `session.time-zone`: `TIMESTAMP_LTZ` values are shown and taken apart
    /// in it.
    ///
    /// ```
    /// use tidegate::plan::Planner;
    ///
    /// let planner = Planner::default().with_time_zone("Europe/Berlin")?;
    /// assert!(planner.with_time_zone("Europe/Berln").is_err());
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// `U001` for a name that is neither in the tz database nor an offset such as `+02:00`.
    pub fn with_time_zone(self, zone: &str) -> Result<Self, Error> {
        if zone.parse::<arrow::array::timezone::Tz>().is_err() {
            let message = format!("there is no time zone \"{zone}\"");
            return Err(Error::usage(code::INVALID_SETTING, message)
                .hint("Use a name such as Europe/Berlin or UTC, or an offset such as +02:00."));
        }
        let mut functions = function::registry(zone);
        self.registered.iter().try_for_each(|function| functions.add(function))?;
        Ok(Self { time_zone: zone.to_owned(), functions: Arc::new(functions), ..self })
    }

    /// Plans one query, insert or statement set, given as text.
    ///
    /// ```
    /// use tidegate::catalog::Catalog;
    /// use tidegate::plan::Planner;
    ///
    /// let plan = Planner::default().plan("VALUES (1, 'a'), (2, 'b')", &Catalog::new())?;
    /// assert!(plan.nodes[plan.sinks[0]].properties.bounded);
    ///
    /// let error = Planner::default().plan("SELECT * FROM nope", &Catalog::new()).unwrap_err();
    /// assert_eq!(error.message(), "no table or view \"nope\"");
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// `S…` if the text can't be parsed, otherwise as [`Planner::plan_query`] and
    /// [`Planner::plan_inserts`]; with the text, so that [`Error::render`] shows the place.
    pub fn plan(&self, sql: &str, catalog: &Catalog) -> Result<StreamPlan, Error> {
        let source = Arc::new(SourceText { name: "<sql>".to_owned(), text: sql.to_owned() });
        self.plan_text(sql, catalog).map_err(|error| error.in_source(&source))
    }

    fn plan_text(&self, sql: &str, catalog: &Catalog) -> Result<StreamPlan, Error> {
        let statements = sql::parse(sql)?;
        let [only] = statements.as_slice() else {
            let message = format!("one statement is expected here, not {}", statements.len());
            return Err(
                Error::plan(code::INVALID_QUERY, message).at(statements.get(1).map(|second| second.span))
            );
        };
        match &only.statement {
            Statement::Query(query) => self.plan_query(query, catalog),
            Statement::Insert(insert) => self.plan_inserts(&[insert], catalog),
            Statement::StatementSet(inserts) => {
                let inserts: Vec<&sql::Insert> = inserts.iter().map(|spanned| &spanned.insert).collect();
                self.plan_inserts(&inserts, catalog)
            }
            _ => Err(Error::plan(code::INVALID_QUERY, "only queries and inserts have a plan").at(only.span)),
        }
    }

    /// Plans a query; its rows go to the caller.
    ///
    /// ```
    /// use tidegate::catalog::Catalog;
    /// use tidegate::plan::Planner;
    /// use tidegate::sql;
    ///
    /// let query = sql::parse_query("SELECT 'a' || 'b' AS ab")?;
    /// let plan = Planner::default().plan_query(&query, &Catalog::new())?;
    /// assert_eq!(plan.nodes[plan.sinks[0]].schema.field(0).name(), "ab");
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// `P…` for names, types and what can't run on a stream, `W…` for windows and time.
    pub fn plan_query(&self, query: &sql::Query, catalog: &Catalog) -> Result<StreamPlan, Error> {
        let session = self.session(catalog);
        on_large_stack(|| {
            let places = Places::of(&query.query);
            let bound = bind::bind_query(&session, query).and_then(|plan| optimize(&session, plan));
            let plan = bound.map_err(|error| places.locate(error))?;
            lower::lower(&session, vec![(plan, Target::Result, places)])
        })
    }

    /// Plans one insert, or all of a statement set: one plan with a sink for each.
    ///
    /// ```
    /// use tidegate::catalog::{Catalog, Relation};
    /// use tidegate::plan::Planner;
    /// use tidegate::sql::{self, Statement};
    ///
    /// let planner = Planner::default();
    /// let mut catalog = Catalog::new();
    /// for spanned in sql::parse(
    ///     "CREATE TABLE out (n BIGINT, s STRING) WITH ('connector' = 'print');
    ///      INSERT INTO out VALUES (1, 'a');",
    /// )? {
    ///     match &spanned.statement {
    ///         Statement::CreateTable(statement) => {
    ///             let table = planner.create_table(statement, &catalog)?;
    ///             catalog.add(Relation::Table(table.into()), false)?;
    ///         }
    ///         Statement::Insert(insert) => {
    ///             let plan = planner.plan_inserts(&[insert], &catalog)?;
    ///             assert_eq!(plan.sinks.len(), 1);
    ///         }
    ///         _ => unreachable!("the script has no other statement"),
    ///     }
    /// }
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Planner::plan_query`]; `P007` if the rows do not fit the table.
    pub fn plan_inserts(&self, inserts: &[&sql::Insert], catalog: &Catalog) -> Result<StreamPlan, Error> {
        let session = self.session(catalog);
        on_large_stack(|| {
            let mut queries = Vec::with_capacity(inserts.len());
            for insert in inserts {
                let places = Places::of(&insert.query.query);
                let bound = bind::bind_insert(&session, insert)
                    .and_then(|(plan, table)| Ok((optimize(&session, plan)?, table)));
                let (plan, table) = bound.map_err(|error| places.locate(error))?;
                queries.push((plan, Target::Table(table, diagnose::span_of_name(&insert.table)), places));
            }
            lower::lower(&session, queries)
        })
    }

    /// Binds a table definition: columns, event time, key, options.
    ///
    /// ```
    /// use tidegate::catalog::Catalog;
    /// use tidegate::plan::Planner;
    /// use tidegate::sql::{self, Statement};
    ///
    /// let statements = sql::parse("CREATE TABLE t (a INT, b AS a * 2) WITH ('connector' = 'datagen')")?;
    /// let Statement::CreateTable(statement) = &statements[0].statement else { unreachable!() };
    /// let table = Planner::default().create_table(statement, &Catalog::new())?;
    /// assert_eq!(table.columns[1].name, "b");
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// `C…` for options and columns, `W009` for the watermark, `P…` for expressions.
    pub fn create_table(&self, statement: &sql::CreateTable, catalog: &Catalog) -> Result<Table, Error> {
        let session = self.session(catalog);
        on_large_stack(|| bind::create_table(&session, statement))
    }

    /// Binds a view definition, after checking that its query plans.
    ///
    /// ```
    /// use tidegate::catalog::Catalog;
    /// use tidegate::plan::Planner;
    /// use tidegate::sql::{self, Statement};
    ///
    /// let statements = sql::parse("CREATE VIEW v (x) AS SELECT 1")?;
    /// let Statement::CreateView(statement) = &statements[0].statement else { unreachable!() };
    /// let view = Planner::default().create_view(statement, &Catalog::new())?;
    /// assert_eq!((view.name.as_str(), view.sql.as_str()), ("v", "SELECT 1"));
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Planner::plan_query`].
    pub fn create_view(&self, statement: &sql::CreateView, catalog: &Catalog) -> Result<View, Error> {
        let session = self.session(catalog);
        on_large_stack(|| {
            let name = bind::declared_name(&statement.name)?;
            let columns: Vec<String> = statement.columns.iter().map(|ident| ident.value.clone()).collect();
            let places = Places::of(&statement.query.query);
            let bound = bind::bind_query(&session, &statement.query)
                .and_then(|plan| bind::rename_columns(plan, &columns))
                .and_then(|plan| optimize(&session, plan));
            let plan = bound.map_err(|error| places.locate(error))?;
            lower::lower(&session, vec![(plan, Target::Result, places)])?;
            Ok(View { name, sql: statement.query_text.clone(), columns, temporary: statement.temporary })
        })
    }

    /// The length of a constant interval, microseconds. `what`: what errors call it.
    ///
    /// ```
    /// use tidegate::plan::Planner;
    /// use tidegate::sql::{self, Statement};
    ///
    /// let statements = sql::parse("EXPLAIN ANALYZE JOB FOR INTERVAL '5' SECOND")?;
    /// let Statement::Diagnose(asked) = &statements[0].statement else { unreachable!() };
    /// let over = asked.over.as_ref().expect("FOR");
    /// assert_eq!(Planner::default().interval_us(over, "FOR")?, 5_000_000);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// `W004` if it is no interval of fixed length, `W008` for months and years.
    pub fn interval_us(&self, interval: &sqlparser::ast::Expr, what: &str) -> Result<i64, Error> {
        use sqlparser::ast::Spanned;
        let session = self.session(&Catalog::new());
        let empty = datafusion_common::DFSchema::empty();
        window::interval_us(interval, what, |expr| bind::bind_expression(&session, &expr, &empty))
            .map_err(|error| error.at(diagnose::from_sql_span(interval.span())))
    }

    fn session(&self, catalog: &Catalog) -> Arc<Session> {
        Session::new(
            catalog,
            &self.connectors,
            &self.time_zone,
            &self.functions,
            self.side_table_rows,
            self.lints_tables,
            self.state_ttl_us,
        )
    }
}

fn optimize(session: &Session, plan: LogicalPlan) -> Result<LogicalPlan, Error> {
    rewrite::optimize(session, rewrite::analyze(session, plan)?)
}

/// Runs `plan` where deep recursion does not end the process.
fn on_large_stack<T>(plan: impl FnOnce() -> T) -> T {
    stacker::grow(STACK_BYTES, plan)
}
