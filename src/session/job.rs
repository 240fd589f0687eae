//! Handles of running statements.

use std::task::{Context, Poll};

use arrow::datatypes::SchemaRef;

use super::Origin;
use crate::connector::Connectors;
use crate::error::Error;
use crate::plan::{Operation, SinkTarget, StreamPlan};
use crate::runtime::{Canceller, Job, JobHandle, JobOptions, JobSummary, Monitor};
use crate::stream::StreamBatch;

/// A query that runs.
///
/// Take its rows with [`QueryHandle::next_batch`] until there are none, then call
/// [`QueryHandle::finish`]. A handle that is dropped cancels its query.
pub struct QueryHandle {
    job: JobHandle,
    schema: SchemaRef,
    bounded: bool,
    updating: bool,
    warnings: Vec<String>,
    origin: Origin,
    /// As an iterator or stream of batches it has come to its end.
    pub(super) is_exhausted: bool,
}

impl QueryHandle {
    pub(super) fn start(
        plan: &StreamPlan,
        connectors: &Connectors,
        options: &JobOptions,
    ) -> Result<Self, Error> {
        let sink = plan.sinks.first().and_then(|&id| plan.nodes.get(id));
        let Some(node) = sink else {
            return Err(Error::internal("session", "a query's plan has no sink"));
        };
        let (schema, properties) = (node.schema.clone(), node.properties.clone());
        let warnings = plan.warnings.clone();
        Ok(Self {
            job: Job::start(plan, connectors, options)?,
            schema,
            bounded: properties.bounded,
            updating: properties.updating,
            warnings,
            origin: Origin::default(),
            is_exhausted: false,
        })
    }

    /// The columns of its rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether it ends by itself.
    pub fn is_bounded(&self) -> bool {
        self.bounded
    }

    /// Whether its rows may be changes of rows that it gave before.
    pub fn is_updating(&self) -> bool {
        self.updating
    }

    /// What a person should know though the query runs.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The next rows; waits for them. `None` at the end, also after it was cancelled.
    ///
    /// # Errors
    /// What made the query fail.
    pub fn next_batch(&mut self) -> Result<Option<StreamBatch>, Error> {
        self.job.next_batch().map_err(|error| self.origin.mark(error))
    }

    /// The next rows, for an executor that is not to wait for them.
    ///
    /// # Errors
    /// What made the query fail.
    pub async fn next_batch_async(&mut self) -> Result<Option<StreamBatch>, Error> {
        std::future::poll_fn(|cx| self.poll_batch(cx)).await
    }

    pub(super) fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<StreamBatch>, Error>> {
        self.job.poll_batch(cx).map_err(|error| self.origin.mark(error))
    }

    pub(super) fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.job.poll_over(cx)
    }

    /// Waits until it is at its end, with everything that it writes beside its rows.
    pub(super) fn wait(&mut self) -> Result<(), Error> {
        self.job.wait().map_err(|error| self.origin.mark(error))
    }

    /// Stops it from elsewhere.
    pub fn canceller(&self) -> Canceller {
        self.job.canceller()
    }

    /// Tells from elsewhere how far it is.
    pub fn monitor(&self) -> Monitor {
        self.job.monitor()
    }

    /// Waits for its end and sums up. Rows that were not taken are lost.
    ///
    /// # Errors
    /// What made the query fail, or that it was cancelled.
    pub fn finish(self) -> Result<JobSummary, Error> {
        let origin = self.origin;
        self.job.finish().map_err(|error| origin.mark(error))
    }

    pub(super) fn set_origin(&mut self, origin: Origin) {
        self.origin = origin;
    }
}

/// One `INSERT`, or the inserts of a statement set, that run as one job.
pub struct InsertHandle {
    job: JobHandle,
    tables: Vec<String>,
    warnings: Vec<String>,
    origin: Origin,
}

impl InsertHandle {
    pub(super) fn start(
        plan: &StreamPlan,
        connectors: &Connectors,
        options: &JobOptions,
    ) -> Result<Self, Error> {
        let tables = inserted_tables(plan);
        let warnings = plan.warnings.clone();
        let job = Job::start(plan, connectors, options)?;
        Ok(Self { job, tables, warnings, origin: Origin::default() })
    }

    /// The tables that it writes, in the order of the inserts.
    pub fn tables(&self) -> &[String] {
        &self.tables
    }

    /// What a person should know though the inserts run.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Stops it from elsewhere.
    pub fn canceller(&self) -> Canceller {
        self.job.canceller()
    }

    /// Tells from elsewhere how far it is.
    pub fn monitor(&self) -> Monitor {
        self.job.monitor()
    }

    /// Waits for its end and sums up. What was written is visible then.
    ///
    /// # Errors
    /// What made an insert fail, or that it was cancelled.
    pub fn finish(self) -> Result<JobSummary, Error> {
        let origin = self.origin;
        self.job.finish().map_err(|error| origin.mark(error))
    }

    pub(super) fn set_origin(&mut self, origin: Origin) {
        self.origin = origin;
    }
}

/// The tables that a plan writes, in the order of the inserts; none of a query.
pub(super) fn inserted_tables(plan: &StreamPlan) -> Vec<String> {
    let target = |&id: &usize| match &plan.nodes.get(id)?.operation {
        Operation::Sink(sink) => match &sink.target {
            SinkTarget::Table(table) => Some(table.name.clone()),
            SinkTarget::Result => None,
        },
        _ => None,
    };
    plan.sinks.iter().filter_map(target).collect()
}
