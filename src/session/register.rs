//! What a program brings along: tables that it feeds, functions, connectors.

use std::fmt::Display;
use std::sync::Arc;

use datafusion_expr::{AggregateUDF, ScalarUDF};
use futures_core::Stream;

use super::{Outcome, Session};
use crate::connector::stream::Streams;
use crate::connector::{Connector, Format, StreamEvent, StreamInput, StreamTable};
use crate::error::{Error, SourceText, code};
use crate::plan::Planner;
use crate::sql::{self, Statement};

/// Functions that were registered, in their order.
#[derive(Default)]
pub(super) struct Functions {
    scalars: Vec<ScalarUDF>,
    aggregates: Vec<AggregateUDF>,
}

impl Functions {
    /// The planner with all of them.
    pub(super) fn add_to(&self, planner: Planner) -> Planner {
        let registered = "each was tried when it was registered";
        let scalar =
            |planner: Planner, function: &ScalarUDF| planner.with_udf(function.clone()).expect(registered);
        let aggregate = |planner: Planner, function: &AggregateUDF| {
            planner.with_udaf(function.clone()).expect(registered)
        };
        let planner = self.scalars.iter().fold(planner, scalar);
        self.aggregates.iter().fold(planner, aggregate)
    }
}

impl Session {
    /// Adds a table that the program feeds, and gives the handle to feed it with.
    ///
    /// Every query over it sees all rows that are pushed while it runs; the first one also those that
    /// wait already.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow::array::{Int64Array, RecordBatch};
    /// use arrow::datatypes::{DataType, Field, Schema};
    /// use tidegate::Session;
    /// use tidegate::connector::StreamTable;
    ///
    /// let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, false)]));
    /// let mut session = Session::new();
    /// let input = session.register_stream(&StreamTable::new("numbers", schema.clone()))?;
    /// let rows = session.query("SELECT v + 1 AS next FROM numbers")?;
    /// let batch = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![1, 2]))]);
    /// input.push(&batch.expect("one column"))?;
    /// input.end();
    /// assert_eq!(rows.into_iter().map(|batch| batch.map(|batch| batch.num_rows())).sum::<Result<usize, _>>()?, 2);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// `C005` if the name is taken; `P004`, `W009` and others for the event time and computed columns.
    pub fn register_stream(&mut self, table: &StreamTable) -> Result<StreamInput, Error> {
        let input = self.streams.add(table)?;
        match self.create_stream(table) {
            Ok(_) => Ok(input),
            Err(error) => {
                self.streams.remove(table.name());
                Err(error)
            }
        }
    }

    /// Adds a table whose rows come out of an iterator of batches (or of [`StreamEvent`]s), such as a
    /// channel's or that of a Parquet reader. It is pulled on a thread of its own, from the first query
    /// on and only as fast as rows are read; an error of it fails the queries.
    ///
    /// ```
    /// use std::sync::{Arc, mpsc};
    /// use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    /// use tidegate::Session;
    /// use tidegate::connector::StreamTable;
    ///
    /// let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    /// let batch = RecordBatch::try_from_iter([("v", numbers)]).expect("one column");
    /// let (sender, receiver) = mpsc::sync_channel(4);
    /// let mut session = Session::new();
    /// let table = StreamTable::new("numbers", batch.schema()).bounded();
    /// session.register_iter(&table, receiver.into_iter().map(Ok::<_, tidegate::Error>))?;
    /// sender.send(batch).expect("it is received");
    /// drop(sender);
    /// for batch in session.query("SELECT SUM(v) FROM numbers")? {
    ///     assert_eq!(batch?.num_rows(), 1);
    /// }
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::register_stream`].
    pub fn register_iter<I, T, E>(&mut self, table: &StreamTable, rows: I) -> Result<(), Error>
    where
        I: IntoIterator<Item = Result<T, E>, IntoIter: Send + 'static>,
        T: Into<StreamEvent>,
        E: Display,
    {
        Streams::pull_iter(self.register_stream(table)?, rows.into_iter());
        Ok(())
    }

    /// The same for an asynchronous stream. It is polled on a thread of its own, without a runtime: what
    /// it waits for must be able to wake it from there.
    ///
    /// # Errors
    /// As [`Session::register_stream`].
    pub fn register_async<S, T, E>(&mut self, table: &StreamTable, rows: S) -> Result<(), Error>
    where
        S: Stream<Item = Result<T, E>> + Send + 'static,
        T: Into<StreamEvent>,
        E: Display,
    {
        Streams::pull_stream(self.register_stream(table)?, rows);
        Ok(())
    }

    fn create_stream(&mut self, table: &StreamTable) -> Result<Outcome, Error> {
        let text = table.statement()?;
        let source = SourceText { name: format!("<stream {}>", table.name()), text };
        let source = Arc::new(source);
        let created = sql::parse(&source.text).and_then(|statements| match statements.as_slice() {
            [only] => match &only.statement {
                Statement::CreateTable(create) => self.create_table(create),
                _ => Err(Error::internal("session", "a stream's statement is no CREATE TABLE")),
            },
            _ => Err(Error::plan(code::INVALID_TABLE, "an expression of the stream ends its statement")
                .hint("Give one expression, without semicolon.")),
        });
        created.map_err(|error| error.in_source(&source))
    }

    /// Adds a function, row in and value out, for all statements to come; see [`Planner::with_udf`].
    ///
    /// # Errors
    /// `C005` if there is a function of that name, `P002` for an asynchronous one.
    pub fn register_udf(&mut self, function: ScalarUDF) -> Result<(), Error> {
        let planner = self.planner().clone().with_udf(function.clone())?;
        self.functions.scalars.push(function);
        self.planner = planner.into();
        Ok(())
    }

    /// Adds an aggregate function for all statements to come; see [`Planner::with_udaf`].
    ///
    /// # Errors
    /// `C005` if there is a function of that name.
    pub fn register_udaf(&mut self, function: AggregateUDF) -> Result<(), Error> {
        let planner = self.planner().clone().with_udaf(function.clone())?;
        self.functions.aggregates.push(function);
        self.planner = planner.into();
        Ok(())
    }

    /// Adds a connector: tables can be created with its name as `'connector'`.
    ///
    /// # Errors
    /// `C005` if there is a connector of that name.
    pub fn register_connector(&mut self, connector: Arc<dyn Connector>) -> Result<(), Error> {
        let name = connector.name();
        if self.connectors.names().contains(&name) {
            let message = format!("there is a connector \"{name}\" already");
            return Err(Error::plan(code::ALREADY_EXISTS, message).hint("Give yours another name."));
        }
        self.connectors.add(connector);
        self.settings_changed();
        Ok(())
    }

    /// Adds a format: tables of every connector that reads or writes lines can have its name as
    /// `'format'`.
    ///
    /// # Errors
    /// `C005` if there is a format of that name, `C002` for an option that does not begin with it.
    pub fn register_format(&mut self, format: Arc<dyn Format>) -> Result<(), Error> {
        self.connectors.add_format(format)?;
        self.settings_changed();
        Ok(())
    }
}
