//! Statements whose jobs move only when they are told to.

use arrow::datatypes::SchemaRef;

use super::job::inserted_tables;
use super::{Origin, Session};
use crate::connector::Connectors;
use crate::error::Error;
use crate::plan::StreamPlan;
use crate::runtime::{JobOptions, JobSummary, Schedule, SplitStatus, Stepped};
use crate::sql::{SpannedStatement, Statement};
use crate::stream::{StreamBatch, Watermark};

/// A query or inserts in the caller's thread; see [`Stepped`].
pub struct SteppedHandle {
    job: Stepped,
    schema: Option<SchemaRef>,
    updating: bool,
    tables: Vec<String>,
    warnings: Vec<String>,
    origin: Origin,
    /// What it is started with again.
    again: (StreamPlan, Connectors, JobOptions),
}

impl Session {
    /// Starts a query or inserts as a job of the caller's thread, in the order of `schedule`. `None`
    /// for other statements: [`Session::execute`] does them.
    ///
    /// # Errors
    /// Those of [`Session::execute`].
    #[doc(hidden)]
    pub fn start_stepped(
        &mut self,
        statement: &SpannedStatement,
        schedule: Schedule,
    ) -> Result<Option<SteppedHandle>, Error> {
        let is_explain = matches!(statement.statement, Statement::Explain(_));
        let origin = Origin::of(statement, self.source.as_ref());
        let mark = |error| origin.mark(error);
        let plan = match is_explain {
            true => None,
            false => self.plan(&statement.statement).map_err(mark)?,
        };
        let Some(plan) = plan else { return Ok(None) };
        let handle = self.stepped(&plan, schedule, &origin).map_err(mark)?;
        self.add_side_tables(&plan).map_err(mark)?;
        Ok(Some(handle))
    }

    fn stepped(
        &self,
        plan: &StreamPlan,
        schedule: Schedule,
        origin: &Origin,
    ) -> Result<SteppedHandle, Error> {
        // Channels are full as soon as they can be, and nothing depends on how long work takes.
        let options = JobOptions {
            channel_rows: Some(1),
            latency_interval: std::time::Duration::ZERO,
            takes_cuts: true,
            ..self.job_options()
        };
        let tables = inserted_tables(plan);
        let sink = plan.sinks.first().and_then(|&id| plan.nodes.get(id));
        let query = sink.filter(|_| tables.is_empty());
        Ok(SteppedHandle {
            job: Stepped::start(plan, &self.connectors, &options, schedule)?,
            schema: query.map(|node| SchemaRef::clone(&node.schema)),
            updating: query.is_some_and(|node| node.properties.updating),
            tables,
            warnings: plan.warnings.clone(),
            origin: origin.clone(),
            again: (plan.clone(), self.connectors.clone(), options),
        })
    }
}

impl SteppedHandle {
    /// The columns of a query's rows; `None` for inserts.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Whether the rows of the query may be changes of rows that it gave before.
    pub fn is_updating(&self) -> bool {
        self.updating
    }

    /// The tables that it writes, in the order of the inserts; none for a query.
    pub fn tables(&self) -> &[String] {
        &self.tables
    }

    /// What a person should know though it runs.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// See [`Stepped::settle`].
    ///
    /// # Errors
    /// What made it fail.
    pub fn settle(&mut self) -> Result<bool, Error> {
        self.job.settle().map_err(|error| self.origin.mark(error))
    }

    /// Some turns of work, then everything anew in the place where that came to, as after a stop, with as many
    /// subtasks; `None`: as many as before. See [`Stepped::restart`].
    ///
    /// # Errors
    /// What made it fail, or that it can't be cut.
    pub fn restart(&mut self, turns: usize, parallelism: Option<usize>) -> Result<(), Error> {
        let (plan, connectors, options) = &mut self.again;
        options.parallelism = parallelism.unwrap_or(options.parallelism);
        let mut restart = || {
            for _ in 0..turns {
                self.job.turn()?;
            }
            self.job.restart(plan, connectors, options)
        };
        restart().map_err(|error| self.origin.mark(error))
    }

    /// See [`Stepped::cut`].
    ///
    /// # Errors
    /// What made it fail, or that it can't be cut.
    pub fn cut(&mut self) -> Result<Vec<u8>, Error> {
        self.job.cut().map_err(|error| self.origin.mark(error))
    }

    /// See [`Stepped::commit`].
    ///
    /// # Errors
    /// What a sink says that can't.
    pub fn commit(&mut self) -> Result<(), Error> {
        self.job.commit().map_err(|error| self.origin.mark(error))
    }

    /// Loses all work since a cut of it, and goes on from there; see [`Stepped::crash`].
    ///
    /// # Errors
    /// What made it fail.
    pub fn crash(&mut self, cut: &[u8]) -> Result<(), Error> {
        let (plan, connectors, options) = &self.again;
        self.job.crash(plan, connectors, options, cut).map_err(|error| self.origin.mark(error))
    }

    /// See [`Stepped::turn`].
    ///
    /// # Errors
    /// What made it fail.
    pub fn turn(&mut self) -> Result<bool, Error> {
        self.job.turn().map_err(|error| self.origin.mark(error))
    }

    /// See [`Stepped::step`].
    ///
    /// # Errors
    /// What made it fail.
    pub fn step(&mut self) -> Result<bool, Error> {
        self.job.step().map_err(|error| self.origin.mark(error))
    }

    /// See [`Stepped::next_due_us`].
    pub fn next_due_us(&self) -> Option<i64> {
        self.job.next_due_us()
    }

    /// See [`Stepped::take_rows`].
    pub fn take_rows(&mut self) -> Vec<StreamBatch> {
        self.job.take_rows()
    }

    /// See [`Stepped::hold`].
    pub fn hold(&mut self, hold: bool) {
        self.job.hold(hold);
    }

    /// See [`Stepped::is_over`].
    pub fn is_over(&self) -> bool {
        self.job.is_over()
    }

    /// See [`Stepped::check_counts`].
    ///
    /// # Errors
    /// An internal error that names the operator whose counts are wrong.
    pub fn check_counts(&self) -> Result<(), Error> {
        self.job.check_counts()
    }

    /// See [`Stepped::summary`].
    pub fn summary(&self) -> JobSummary {
        self.job.summary()
    }

    /// See [`Stepped::splits`].
    pub fn splits(&self) -> Vec<SplitStatus> {
        self.job.splits()
    }

    /// See [`Stepped::watermark`].
    pub fn watermark(&self) -> Option<Watermark> {
        self.job.watermark()
    }

    /// See [`Stepped::table_watermark`].
    pub fn table_watermark(&self, table: &str) -> Option<Option<Watermark>> {
        self.job.table_watermark(table)
    }
}
