//! Catalog, settings and jobs behind one door: [`Session`].
//!
//! Invariant: nothing here prints or knows a terminal; what a statement gives is an [`Outcome`].

mod analyze;
mod checkpoints;
mod describe;
mod job;
mod jobs;
#[cfg(test)]
mod late_tests;
mod names;
mod open_metrics;
mod register;
mod rows;
mod settings;
mod stepped;
mod system;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use sqlparser::ast::ObjectName;

use crate::catalog::{Catalog, Relation};
use crate::connector::Connectors;
use crate::connector::stream::Streams;
use crate::error::{Error, Place, SourceText, Span, code};
use crate::plan::{Lint, Planner, StreamPlan, guarantee};
use crate::runtime::{CheckpointStart, Job, JobClock, JobOptions, MemoryLimit, RunningJob, StateMemory};
use crate::sql::{self, CreateTable, CreateView, Drop, Explain, Show, SpannedStatement, Statement};
use crate::stream::{Clock, micros};

pub use job::{JobHandle, JobState, QueryHandle};
use jobs::OwnJobs;
pub use jobs::{JobStatus, Jobs};
pub use open_metrics::OPEN_METRICS;
use register::Functions;
pub use rows::QueryRows;
#[cfg(feature = "cli")]
pub(crate) use settings::parse_duration;
pub use settings::{SettingInfo, Settings};
#[doc(hidden)]
pub use stepped::SteppedHandle;
use system::SystemTables;

/// What a statement gave.
pub enum Outcome {
    /// It is done; the text says what was done.
    Done(String),
    /// Rows that are at hand: `SHOW`, `DESCRIBE`, `SET`.
    Rows(RecordBatch),
    /// Text: `EXPLAIN`, `SHOW CREATE`.
    Text(String),
    /// A query runs; its rows are to be taken.
    Query(Box<QueryHandle>),
    /// Inserts run, on threads of their own; whoever needs what they write waits for them.
    Insert(JobHandle),
}

/// Tables, views and settings, and the statements that work on them.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tidegate::Error> {
/// use tidegate::session::{Outcome, Session};
///
/// let mut session = Session::new();
/// for statement in session.parse("example", "SET 'execution.parallelism' = '1'; SELECT 1 + 2 AS three;")? {
///     match session.execute(&statement)? {
///         Outcome::Query(mut query) => {
///             let rows = query.next_batch()?.expect("one batch");
///             assert_eq!(rows.num_rows(), 1);
///             assert!(query.next_batch()?.is_none());
///             assert_eq!(query.finish()?.rows_out, 1);
///         }
///         outcome => assert!(matches!(outcome, Outcome::Done(_))),
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Session {
    catalog: Catalog,
    settings: Settings,
    connectors: Connectors,
    /// Made when a statement needs it, and again when a setting of it changes.
    planner: OnceLock<Planner>,
    /// The text that was parsed last.
    source: Option<Arc<SourceText>>,
    clock: JobClock,
    jobs: OwnJobs,
    system: SystemTables,
    /// The tables that the program feeds.
    streams: Streams,
    /// The functions that it has brought along.
    functions: Functions,
    /// From where jobs begin that have checkpoints.
    checkpoint_start: CheckpointStart,
    /// Jobs go on without what was kept for what they do not do any more.
    drops_state: bool,
    /// What the state of its jobs takes.
    memory: Arc<StateMemory>,
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl Session {
    /// An empty session with the connectors that come with Tidegate.
    pub fn new() -> Self {
        Self::with_connectors(Connectors::standard())
    }

    /// An empty session with these connectors.
    pub fn with_connectors(connectors: Connectors) -> Self {
        let (clock, jobs) = (JobClock::default(), OwnJobs::default());
        let system = SystemTables::new(jobs.0.clone(), clock.clone());
        let mut connectors = connectors;
        connectors.add(Arc::new(system.clone()));
        let streams = Streams::default();
        connectors.add(Arc::new(streams.clone()));
        let mut session = Self {
            catalog: Catalog::new(),
            settings: Settings::default(),
            connectors,
            planner: OnceLock::new(),
            source: None,
            clock,
            jobs,
            system,
            streams,
            functions: Functions::default(),
            checkpoint_start: CheckpointStart::Anew,
            drops_state: false,
            memory: Arc::default(),
        };
        session.settings_changed();
        session
    }

    /// What depends on settings is made anew.
    fn settings_changed(&mut self) {
        self.planner = OnceLock::new();
        self.catalog.set_system(system::tables(self.settings.time_zone().name()));
    }

    /// Gives the jobs to come another clock than the machine's: sources take from it when a split is
    /// idle and how far rows are ahead of their arrival.
    pub fn set_clock(&mut self, clock: Arc<dyn Clock>) {
        self.clock = JobClock(clock);
        self.system.set_clock(&self.clock);
    }

    /// Its tables and views.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Its jobs, running or done.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs.0
    }

    /// The names of all functions that queries can use.
    pub fn function_names(&self) -> Vec<String> {
        self.planner().function_names()
    }

    /// Its connectors.
    pub fn connectors(&self) -> &Connectors {
        &self.connectors
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets a setting by its name or alias.
    ///
    /// # Errors
    /// `U001` for an unknown name, with the nearest one, and for a value that does not fit.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        self.settings.set(key, value)?;
        self.settings_changed();
        Ok(())
    }

    /// Gives a setting its default back; `None`: all of them.
    ///
    /// # Errors
    /// `U001` for an unknown name.
    pub fn reset(&mut self, key: Option<&str>) -> Result<(), Error> {
        match key {
            Some(key) => self.settings.reset(key)?,
            None => self.settings.reset_all(),
        }
        self.settings_changed();
        Ok(())
    }

    /// Cuts a text into statements. `name` is what errors call it: a file name.
    ///
    /// Errors of the statements, here and in [`Session::execute`], show their line of the text.
    ///
    /// # Errors
    /// `S001` where the text is no SQL.
    pub fn parse(&mut self, name: &str, text: &str) -> Result<Vec<SpannedStatement>, Error> {
        let source = Arc::new(SourceText { name: name.to_owned(), text: text.to_owned() });
        self.source = Some(Arc::clone(&source));
        sql::parse(text).map_err(|error| error.in_source(&source))
    }

    /// Runs a statement. Queries and inserts are started and given back while they run.
    ///
    /// # Errors
    /// Whatever planning or opening the tables finds.
    pub fn execute(&mut self, statement: &SpannedStatement) -> Result<Outcome, Error> {
        let place = Origin::of(statement, self.source.as_ref());
        self.dispatch(statement, &place).map_err(|error| place.mark(error))
    }

    /// The error with the text that was parsed last.
    fn in_source(&self, error: Error) -> Error {
        match &self.source {
            Some(source) => error.in_source(source),
            None => error,
        }
    }

    /// What `EXPLAIN` says about a query, an insert or a statement set; `None` for other statements.
    ///
    /// # Errors
    /// Whatever planning finds.
    pub fn explain(&self, statement: &SpannedStatement, json: bool) -> Result<Option<String>, Error> {
        let place = Origin::of(statement, self.source.as_ref());
        let planned = self.plan_by(&self.linter(), &statement.statement);
        let plan = planned.map_err(|error| place.mark(error))?;
        Ok(plan.map(|plan| explained(&plan, json)))
    }

    /// What may not be meant in a query, an insert, a statement set or the query of a view; none for
    /// other statements.
    ///
    /// # Errors
    /// Whatever planning finds.
    pub fn lint(&self, statement: &SpannedStatement) -> Result<Vec<Lint>, Error> {
        let linter = self.linter();
        let planned = match &statement.statement {
            Statement::CreateView(view) => linter.plan_query(&view.query, &self.catalog).map(Some),
            other => self.plan_by(&linter, other),
        };
        let place = Origin::of(statement, self.source.as_ref());
        Ok(planned.map_err(|error| place.mark(error))?.map(|plan| plan.lints).unwrap_or_default())
    }

    /// A lint as people read it, with the line of the statement that it is about.
    pub fn render_lint(&self, statement: &SpannedStatement, lint: &Lint) -> String {
        let place = Origin::of(statement, self.source.as_ref());
        place.mark(lint.as_error()).render_as("lint")
    }

    /// The planner of plans that are shown.
    fn linter(&self) -> Planner {
        self.planner().clone().with_table_lints()
    }

    fn dispatch(&mut self, spanned: &SpannedStatement, place: &Origin) -> Result<Outcome, Error> {
        match &spanned.statement {
            Statement::CreateTable(create) => self.create_table(create),
            Statement::CreateView(create) => self.create_view(create),
            Statement::Drop(drop) => self.drop(drop),
            Statement::Query(query) => {
                let plan = self.planner().plan_query(query, &self.catalog)?;
                let (running, job) = self.start(plan, &spanned.text)?;
                Ok(Outcome::Query(Box::new(QueryHandle::new(running, job, place)?)))
            }
            Statement::Insert(insert) => {
                let plan = self.planner().plan_inserts(&[insert.as_ref()], &self.catalog)?;
                self.insert(plan, &spanned.text, place)
            }
            Statement::StatementSet(inserts) => {
                let inserts: Vec<_> = inserts.iter().map(|spanned| &spanned.insert).collect();
                let plan = self.planner().plan_inserts(&inserts, &self.catalog)?;
                self.insert(plan, &spanned.text, place)
            }
            Statement::Explain(explain) => self.explain_statement(explain),
            Statement::Diagnose(asked) => {
                let over = asked.over.as_ref().map(|over| self.length(over)).transpose()?;
                self.jobs.0.answer(asked, over).map(Outcome::Text)
            }
            Statement::Set(setting) => {
                let known = self.settings.get(&setting.key.name).is_ok();
                let place = if known { setting.value_span } else { setting.key.span };
                self.set(&setting.key.name, &setting.value).map_err(|error| error.at(place))?;
                Ok(Outcome::Done(format!("set {}", setting.key.name)))
            }
            Statement::Reset(Some(key)) => {
                self.reset(Some(&key.name)).map_err(|error| error.at(key.span))?;
                Ok(Outcome::Done(format!("reset {}", key.name)))
            }
            Statement::Reset(None) => {
                self.reset(None)?;
                Ok(Outcome::Done("reset all settings".to_owned()))
            }
            Statement::ShowSettings => Ok(Outcome::Rows(describe::settings(&self.settings)?)),
            Statement::Show(show) => self.show(show),
            Statement::Describe(name) => {
                Ok(Outcome::Rows(describe::columns(self.relation(name)?, self.planner(), &self.catalog)?))
            }
            Statement::DescribeJob(job) => {
                let (handle, status) = self.jobs.0.describe(job)?;
                Ok(Outcome::Rows(describe::job(&handle, &status)?))
            }
            Statement::StopJob(stop) => self.jobs.0.stop(&stop.job, stop.drain).map(Outcome::Done),
        }
    }

    fn planner(&self) -> &Planner {
        self.planner.get_or_init(|| {
            self.functions
                .add_to(Planner::new(Arc::new(self.connectors.clone())))
                .with_time_zone(self.settings.time_zone().name())
                .expect("the setting takes names of the tz database only")
                .with_side_table_rows(self.settings.side_table_rows())
                .with_state_ttl_us(micros(self.settings.state_ttl()))
        })
    }

    fn job_options(&self) -> JobOptions {
        JobOptions {
            parallelism: self.settings.parallelism(),
            batch_rows: self.settings.batch_rows(),
            buffer_timeout: self.settings.buffer_timeout(),
            watermark_interval: self.settings.watermark_interval(),
            latency_interval: self.settings.latency_interval(),
            latency_granularity: self.settings.latency_granularity(),
            clock: self.clock.clone(),
            memory: MemoryLimit {
                memory: Arc::clone(&self.memory),
                bytes: self.settings.state_memory_limit(),
                folder: self.settings.state_spill_dir(),
            },
            ..JobOptions::default()
        }
    }

    fn relation(&self, name: &ObjectName) -> Result<&Relation, Error> {
        names::find(name, &self.catalog)?.ok_or_else(|| names::unknown(name, &self.catalog))
    }

    /// The plan of a statement that has one.
    fn plan(&self, statement: &Statement) -> Result<Option<StreamPlan>, Error> {
        self.plan_by(self.planner(), statement)
    }

    fn plan_by(&self, planner: &Planner, statement: &Statement) -> Result<Option<StreamPlan>, Error> {
        match statement {
            Statement::Query(query) => planner.plan_query(query, &self.catalog).map(Some),
            Statement::Insert(insert) => planner.plan_inserts(&[insert.as_ref()], &self.catalog).map(Some),
            Statement::StatementSet(inserts) => {
                let inserts: Vec<_> = inserts.iter().map(|spanned| &spanned.insert).collect();
                planner.plan_inserts(&inserts, &self.catalog).map(Some)
            }
            Statement::Explain(explain) => self.plan_by(planner, &explain.statement.statement),
            Statement::CreateTable(_)
            | Statement::CreateView(_)
            | Statement::Drop(_)
            | Statement::Set(_)
            | Statement::Reset(_)
            | Statement::ShowSettings
            | Statement::Show(_)
            | Statement::Diagnose(_)
            | Statement::DescribeJob(_)
            | Statement::StopJob(_)
            | Statement::Describe(_) => Ok(None),
        }
    }

    fn explain_statement(&mut self, explain: &Explain) -> Result<Outcome, Error> {
        if explain.analyze {
            return self.explain_analyze(explain);
        }
        match self.plan_by(&self.linter(), &explain.statement.statement)? {
            Some(plan) => Ok(Outcome::Text(explained(&plan, explain.json))),
            None => Err(Error::plan(code::INVALID_QUERY, "this statement has no plan")
                .at(explain.statement.span)
                .hint("Explain a query, an INSERT or a statement set.")),
        }
    }

    /// A length of time that a person gives.
    fn length(&self, interval: &sqlparser::ast::Expr) -> Result<Duration, Error> {
        let us = self.planner().interval_us(interval, "FOR")?;
        match u64::try_from(us) {
            Ok(us) if us > 0 => Ok(Duration::from_micros(us)),
            _ => Err(Error::plan(code::INVALID_QUERY, "FOR must be longer than zero")
                .hint("Write it as FOR INTERVAL '5' SECOND.")),
        }
    }

    /// Runs the statement to its end, or for some time. The rows of a query are dropped, those of inserts
    /// are written.
    fn explain_analyze(&mut self, explain: &Explain) -> Result<Outcome, Error> {
        let statement = &explain.statement;
        let Some(plan) = self.plan(&statement.statement)? else {
            return Err(Error::internal("session", "a statement without plan is analyzed"));
        };
        let over = explain.over.as_ref().map(|over| self.length(over)).transpose()?;
        let ends = plan.sinks.iter().all(|sink| plan.nodes[*sink].properties.bounded);
        if !ends && over.is_none() {
            return Err(Error::plan(code::INVALID_QUERY, "this statement does not end by itself")
                .at(statement.span)
                .hint("Say how long to look: EXPLAIN ANALYZE FOR INTERVAL '5' SECOND …, or add a LIMIT."));
        }
        let place = Origin::of(statement, self.source.as_ref());
        let done = analyze::run(self.dispatch(statement, &place)?, over)?;
        Ok(Outcome::Text(match explain.json {
            true => format!("{:#}\n", analyze::to_json(&plan, None, &done)),
            false => analyze::text(&plan, None, &done),
        }))
    }

    fn insert(&mut self, plan: StreamPlan, text: &str, place: &Origin) -> Result<Outcome, Error> {
        let (running, job) = self.start(plan, text)?;
        job.run(running, place)?;
        Ok(Outcome::Insert(job))
    }

    /// Starts a plan as a job of the session.
    fn start(&mut self, plan: StreamPlan, text: &str) -> Result<(RunningJob, JobHandle), Error> {
        let options = JobOptions { checkpoints: self.checkpoints(&plan, text)?, ..self.job_options() };
        let asked = options.checkpoints.as_ref();
        let guarantee = asked.and_then(|_| guarantee(&plan, &self.connectors));
        let running = Job::start(&plan, &self.connectors, &options)?;
        self.add_side_tables(&plan)?;
        let job = self.jobs.0.add(&running, plan, text, self.settings.pipeline_name(), guarantee);
        Ok((running, job))
    }

    /// The side tables of a plan that runs are tables like others from now on.
    fn add_side_tables(&mut self, plan: &StreamPlan) -> Result<(), Error> {
        for table in &plan.side_tables {
            self.catalog.add(Relation::Table(Arc::clone(table)), false)?;
        }
        Ok(())
    }

    fn create_table(&mut self, create: &CreateTable) -> Result<Outcome, Error> {
        let name = names::declared(&create.name)?;
        if create.if_not_exists && self.catalog.get(&name).is_some() {
            return Ok(Outcome::Done(format!("\"{name}\" exists already")));
        }
        let table = self.planner().create_table(create, &self.catalog)?;
        self.add(Relation::Table(Arc::new(table)), &create.name, create.if_not_exists)
    }

    fn create_view(&mut self, create: &CreateView) -> Result<Outcome, Error> {
        let name = names::declared(&create.name)?;
        if create.if_not_exists && self.catalog.get(&name).is_some() {
            return Ok(Outcome::Done(format!("\"{name}\" exists already")));
        }
        let view = self.planner().create_view(create, &self.catalog)?;
        self.add(Relation::View(Arc::new(view)), &create.name, create.if_not_exists)
    }

    fn add(&mut self, relation: Relation, name: &ObjectName, if_not_exists: bool) -> Result<Outcome, Error> {
        let done = format!("created {} \"{}\"", names::kind(&relation), relation.name());
        self.catalog.add(relation, if_not_exists).map_err(|error| error.at(names::span(name)))?;
        Ok(Outcome::Done(done))
    }

    fn drop(&mut self, drop: &Drop) -> Result<Outcome, Error> {
        let Some(relation) = names::find(&drop.name, &self.catalog)? else {
            if drop.if_exists {
                return Ok(Outcome::Done(format!("\"{}\" does not exist", names::declared(&drop.name)?)));
            }
            return Err(names::unknown(&drop.name, &self.catalog));
        };
        let (kind, key) = (names::kind(relation), relation.name().to_owned());
        if drop.is_view != matches!(relation, Relation::View(_)) {
            return Err(Error::plan(code::INVALID_QUERY, format!("\"{key}\" is a {kind}"))
                .at(names::span(&drop.name))
                .hint(format!("Use DROP {}.", kind.to_uppercase())));
        }
        match self.catalog.remove(&key) {
            Some(Relation::Table(table)) => self.connectors.get(&table.connector)?.dropped(&table),
            Some(Relation::View(_)) => {}
            None => {
                return Err(Error::plan(code::INVALID_QUERY, format!("\"{key}\" is always there"))
                    .at(names::span(&drop.name))
                    .hint("Drop tables of your own."));
            }
        }
        Ok(Outcome::Done(format!("dropped {kind} \"{key}\"")))
    }

    fn show(&self, show: &Show) -> Result<Outcome, Error> {
        let relations = |views: bool| {
            let of_kind = move |relation: &&Relation| matches!(relation, Relation::View(_)) == views;
            self.catalog.relations().filter(of_kind).map(|relation| relation.name().to_owned()).collect()
        };
        match show {
            Show::Tables => Ok(Outcome::Rows(describe::texts(&[("table", relations(false))])?)),
            Show::Views => Ok(Outcome::Rows(describe::texts(&[("view", relations(true))])?)),
            Show::Functions => {
                Ok(Outcome::Rows(describe::texts(&[("function", self.planner().function_names())])?))
            }
            Show::Jobs => Ok(Outcome::Rows(describe::jobs(&self.jobs.0)?)),
            Show::Create(name) => Ok(Outcome::Text(describe::create_statement(self.relation(name)?))),
        }
    }
}

fn explained(plan: &StreamPlan, json: bool) -> String {
    match json {
        true => format!("{:#}", plan.to_json()),
        false => plan.explain(),
    }
}

/// Where a statement comes from, for errors that name no better place.
#[derive(Debug, Clone, Default)]
struct Origin {
    span: Option<Span>,
    source: Option<Arc<SourceText>>,
}

impl Origin {
    /// The statement's first word, if the statement stands in `source`.
    fn of(statement: &SpannedStatement, source: Option<&Arc<SourceText>>) -> Self {
        let Place { line, column } = statement.span.start;
        let stands_in = |source: &&Arc<SourceText>| {
            let rest = source.text.lines().nth(line.saturating_sub(1) as usize);
            let rest = rest.map(|text| text.chars().skip(column.saturating_sub(1) as usize));
            let first = statement.text.lines().next().unwrap_or_default();
            rest.is_some_and(|rest| rest.take(first.chars().count()).eq(first.chars()))
        };
        let Some(source) = source.filter(stands_in) else {
            return Self::default();
        };
        let word = statement.text.chars().take_while(|c| c.is_alphanumeric()).count().max(1) as u64;
        let end = Place { line, column: column + word };
        Self { span: Some(Span { start: statement.span.start, end }), source: Some(Arc::clone(source)) }
    }

    fn mark(&self, error: Error) -> Error {
        match &self.source {
            Some(source) => error.at(self.span).in_source(source),
            None => error,
        }
    }
}
