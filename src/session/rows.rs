//! The rows of a query as an iterator that waits, and as a stream that is polled.

use std::pin::Pin;
use std::task::{Context, Poll};

use arrow::record_batch::RecordBatch;
use futures_core::Stream;

use super::{Outcome, QueryHandle, Session};
use crate::error::{Error, code};
use crate::sql::Statement;
use crate::stream::StreamBatch;

impl Session {
    /// Starts a query. Its rows are taken as a blocking iterator, as a [`Stream`] in
    /// any executor, or
    /// with [`QueryHandle::next_batch`], which also tells what each row does to the result. Dropping the
    /// handle stops the query.
    ///
    /// ```
    /// use tidegate::Session;
    ///
    /// let mut session = Session::new();
    /// let mut rows = 0;
    /// for batch in session.query("SELECT a, a * a AS square FROM (VALUES (1), (2)) AS t (a)")? {
    ///     rows += batch?.num_rows();
    /// }
    /// assert_eq!(rows, 2);
    ///
    /// let error = session.query("SELECT * FROM bid").err().expect("there is no such table");
    /// assert_eq!((error.code(), error.message()), ("P001", "no table or view \"bid\""));
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// `S…` if the text is no SQL, `P003` if it is not one query; whatever planning or opening the tables
    /// finds.
    pub fn query(&mut self, sql: &str) -> Result<QueryHandle, Error> {
        let statements = self.parse("<query>", sql)?;
        let wrong = |what: String| Error::plan(code::INVALID_QUERY, what);
        let [only] = statements.as_slice() else {
            let message = format!("one query is expected here, not {} statements", statements.len());
            let place = statements.get(1).map(|second| second.span);
            return Err(
                self.in_source(wrong(message).at(place).hint("Run the others first, with Session::run."))
            );
        };
        if !matches!(only.statement, Statement::Query(_)) {
            let error = wrong("this is no query".to_owned()).at(only.span);
            return Err(self.in_source(error.hint("Use Session::run for all other statements.")));
        }
        match self.execute(only)? {
            Outcome::Query(query) => Ok(*query),
            _ => Err(Error::internal("session", "a query gave something else")),
        }
    }

    /// Runs a script: its statements one after another. Queries and inserts are started and given back
    /// while they run; whoever needs what an insert writes waits for its job.
    ///
    /// The first statement that fails ends it; what the others have done stays.
    ///
    /// ```
    /// use tidegate::{Outcome, Session};
    ///
    /// let mut session = Session::new();
    /// let script = "
    ///     CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'memory');
    ///     INSERT INTO numbers VALUES (1), (2), (3);";
    /// for outcome in session.run(script)? {
    ///     if let Outcome::Insert(job) = outcome {
    ///         assert_eq!(job.wait()?.rows_out, 3);
    ///     }
    /// }
    /// for batch in session.query("SELECT COUNT(*) FROM numbers")? {
    ///     assert_eq!(batch?.num_rows(), 1);
    /// }
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// `S…` if the text is no SQL, and then nothing of it runs; whatever planning or opening the tables
    /// finds.
    pub fn run(&mut self, script: &str) -> Result<Vec<Outcome>, Error> {
        let statements = self.parse("<script>", script)?;
        statements.iter().map(|statement| self.execute(statement)).collect()
    }
}

impl QueryHandle {
    /// The rows of a batch of a query that never changes what it gave.
    fn plain(&self, batch: StreamBatch) -> Result<RecordBatch, Error> {
        if !self.is_updating() {
            return Ok(batch.rows);
        }
        Err(Error::run(code::SINK_CHANGELOG, "the rows of this query change rows that it gave before").hint(
            "Take them with QueryHandle::next_batch, which tells what each of them does, or end the query \
             with EMIT ON WINDOW CLOSE.",
        ))
    }
}

/// The batches of a query; waits for each of them.
///
/// At the end the query is over with all that it writes beside its rows, such as late rows. An error is
/// the last item; so it is `P008` for a query whose rows change others
/// ([`QueryHandle::is_updating`]), whose rows [`QueryHandle::next_batch`] gives.
pub struct QueryRows(QueryHandle);

impl IntoIterator for QueryHandle {
    type Item = Result<RecordBatch, Error>;
    type IntoIter = QueryRows;

    fn into_iter(self) -> QueryRows {
        QueryRows(self)
    }
}

impl Iterator for QueryRows {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let query = &mut self.0;
        if query.is_exhausted {
            return None;
        }
        let next = match query.next_batch() {
            Ok(Some(batch)) => query.plain(batch).map(Some),
            Ok(None) => query.end().map(|_| None),
            Err(error) => Err(error),
        };
        query.is_exhausted = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

/// The batches of a query, as [`QueryRows`] has them, for an executor.
impl Stream for QueryHandle {
    type Item = Result<RecordBatch, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let query = self.get_mut();
        if query.is_exhausted {
            return Poll::Ready(None);
        }
        let next = match query.poll_batch(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(Some(batch))) => query.plain(batch).map(Some),
            Poll::Ready(Ok(None)) => match query.poll_over(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => query.end().map(|_| None),
            },
            Poll::Ready(Err(error)) => Err(error),
        };
        query.is_exhausted = !matches!(next, Ok(Some(_)));
        Poll::Ready(next.transpose())
    }
}
