//! A table: columns, event time, key, options.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_expr::Expr;

use super::options::Options;
use crate::stream::TimeUnit;

/// A table that a query can read, write, or both.
#[derive(Debug, Clone)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Columns in declared order.
    pub columns: Vec<Column>,
    /// Event time, if declared.
    pub watermark: Option<WatermarkSpec>,
    /// Columns of `PRIMARY KEY (…) NOT ENFORCED`; may be empty.
    pub primary_key: Vec<String>,
    /// `WITH (…)`, all of it, also what the planner has used.
    pub options: Options,
    /// The value of `'connector'`.
    pub connector: String,
    /// Whether reading it ends.
    pub bounded: bool,
    /// Gone with the session; `TEMPORARY`.
    pub temporary: bool,
}

/// A column of a table.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its Arrow type.
    pub data_type: DataType,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// Where its values come from.
    pub kind: ColumnKind,
}

/// Where the values of a column come from.
#[derive(Debug, Clone)]
pub enum ColumnKind {
    /// From the connector's format.
    Physical,
    /// From other columns of the row: `c AS expr`.
    Computed {
        /// Over the table's physical and metadata columns, types coerced.
        expr: Box<Expr>,
        /// As written.
        sql: String,
    },
    /// From the connector: `c TYPE METADATA [FROM 'key'] [VIRTUAL]`.
    Metadata {
        /// The connector's name for it.
        key: String,
        /// Not written when the table is a sink.
        is_virtual: bool,
    },
    /// From the clock, when the row is read: `c AS PROCTIME()`.
    ProcessingTime,
}

impl ColumnKind {
    /// Whether it is `PROCTIME()`.
    pub fn is_processing_time(&self) -> bool {
        matches!(self, Self::ProcessingTime)
    }
}

/// `WATERMARK FOR column AS expr …`.
#[derive(Debug, Clone)]
pub struct WatermarkSpec {
    /// The time attribute's name.
    pub column: String,
    /// Its step.
    pub unit: TimeUnit,
    /// Over the table's columns, types coerced, of the time attribute's type.
    pub expr: Box<Expr>,
    /// As written.
    pub sql: String,
    /// `IDLE AFTER`, microseconds, > 0.
    pub idle_after_us: Option<i64>,
    /// `IDLE AFTER … THEN ADVANCE`.
    pub then_advance: bool,
    /// `MAX AHEAD`, microseconds, ≥ 0.
    pub max_ahead_us: Option<i64>,
    /// What becomes of rows whose event time is NULL.
    pub null_time: NullTime,
}

/// `'scan.watermark.null-time'`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NullTime {
    /// The query fails.
    Fail,
    /// The row moves no watermark; the first time operator puts it to the late rows. Default.
    #[default]
    Side,
    /// The source drops and counts it.
    Skip,
}

impl Table {
    /// All columns as an Arrow schema.
    pub fn schema(&self) -> SchemaRef {
        let field = |column: &Column| Field::new(&column.name, column.data_type.clone(), column.nullable);
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }

    /// The column whose time is that of the clock, if time goes by it: `PROCTIME()`, without WATERMARK.
    pub fn processing_time(&self) -> Option<&Column> {
        let is_stamped = |column: &&Column| matches!(column.kind, ColumnKind::ProcessingTime);
        self.columns.iter().find(is_stamped).filter(|_| self.watermark.is_none())
    }

    /// Position of a column.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

/// A named query.
#[derive(Debug, Clone)]
pub struct View {
    /// Its name.
    pub name: String,
    /// The query's SQL, as written; it is parsed and bound again where it is used.
    pub sql: String,
    /// Column names given in the statement; empty: those of the query.
    pub columns: Vec<String>,
    /// Gone with the session; `TEMPORARY`.
    pub temporary: bool,
}
