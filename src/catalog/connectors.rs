//! What the planner asks about connectors, so that it never has to know one.

use arrow::datatypes::{DataType, SchemaRef};

use super::options::Options;
use super::table::Table;
use crate::error::Error;

/// What a connector says about a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableFacts {
    /// `SELECT … FROM` works.
    pub is_source: bool,
    /// `INSERT INTO` works.
    pub is_sink: bool,
    /// Reading ends by itself.
    pub bounded: bool,
    /// As a sink it takes `-U`, `+U` and `-D` rows.
    pub takes_changelog: bool,
    /// As a source it gives `-U`, `+U` and `-D` rows.
    pub gives_changelog: bool,
    /// As a sink with a PRIMARY KEY it does without `-U` rows.
    pub upserts: bool,
}

impl TableFacts {
    /// Of a table that can be read only.
    pub fn source(bounded: bool) -> Self {
        Self {
            is_source: true,
            is_sink: false,
            bounded,
            takes_changelog: false,
            gives_changelog: false,
            upserts: false,
        }
    }

    /// Of a table that can be written only.
    pub fn sink(takes_changelog: bool) -> Self {
        Self {
            is_source: false,
            is_sink: true,
            bounded: true,
            takes_changelog,
            gives_changelog: false,
            upserts: false,
        }
    }
}

/// What is known of a table without reading its rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableStatistics {
    /// It has more than one split, or may get more.
    pub has_several_splits: bool,
    /// Values that many rows have in common, at most one a column.
    pub frequent: Vec<FrequentValue>,
}

/// A value that many rows of a table have.
#[derive(Debug, Clone, PartialEq)]
pub struct FrequentValue {
    /// The column.
    pub column: String,
    /// The value as SQL writes it, about.
    pub value: String,
    /// The share of the rows that have it, at least.
    pub share: f64,
}

/// What becomes of a table's rows when a run goes on from a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableRecovery {
    /// The rows that were read behind the checkpoint.
    pub read: ReadRecovery,
    /// The rows that were written behind it.
    pub written: WriteRecovery,
}

/// What becomes of rows that were read behind a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadRecovery {
    /// They are read again.
    Again,
    /// Nobody can give them again.
    Lost,
    /// They were in memory, as was all else that the table had.
    Gone,
}

/// What becomes of rows that were written behind a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteRecovery {
    /// They are taken back, and come again.
    TakenBack,
    /// They stay, and come again.
    Repeated,
    /// They were in memory, as was all else that the table had.
    Gone,
    /// There are no checkpoints with such a table: it is one file that is whole at its end only.
    Refused,
}

impl Default for TableRecovery {
    /// Rows are read again, and what was written stays.
    fn default() -> Self {
        Self { read: ReadRecovery::Again, written: WriteRecovery::Repeated }
    }
}

/// Connectors and formats as the planner sees them.
pub trait ConnectorCatalog: Send + Sync {
    /// Checks a table's options and columns, and says what the table can do. Opens nothing.
    ///
    /// # Errors
    /// `C001`–`C004` with the place of the option: unknown, missing or wrong option or connector.
    fn check(&self, table: &Table) -> Result<TableFacts, Error>;

    /// Reads enough of a table without column list to tell its columns.
    ///
    /// # Errors
    /// `C006` if the connector or format can't tell, `F001` if the data can't be read.
    fn infer_schema(&self, options: &Options) -> Result<SchemaRef, Error>;

    /// The type of a metadata column; `None` if the connector has none of that name.
    fn metadata_type(&self, connector: &str, key: &str) -> Option<DataType>;

    /// What is known of a table's rows; asked only to explain a plan. Nothing where nothing is known.
    fn statistics(&self, _table: &Table) -> TableStatistics {
        TableStatistics::default()
    }

    /// What becomes of a table's rows when a run goes on from a checkpoint; asked only to explain a plan, and for runs
    /// that have checkpoints. `None`: that is not known.
    fn recovery(&self, _table: &Table) -> Option<TableRecovery> {
        None
    }
}

/// Accepts every connector and option: for planning without the feature `runtime`.
#[derive(Debug, Clone, Copy, Default)]
pub struct UncheckedConnectors;

impl ConnectorCatalog for UncheckedConnectors {
    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let gives_changelog = table.options.get("format") == Some("debezium-json");
        Ok(TableFacts {
            is_source: true,
            is_sink: true,
            bounded: false,
            takes_changelog: true,
            gives_changelog,
            upserts: false,
        })
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Err(Error::plan(crate::error::code::INVALID_TABLE, "a column list is needed here")
            .hint("List the columns: without connectors no schema can be read from the data."))
    }

    fn metadata_type(&self, _connector: &str, _key: &str) -> Option<DataType> {
        None
    }
}
