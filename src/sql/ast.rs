//! The statements of a script.
//!
//! Expressions and queries are sqlparser's; statements that sqlparser does not know are ours.

use sqlparser::ast::{Expr, Ident, ObjectName};

use crate::error::Span;

/// A statement and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct SpannedStatement {
    /// What to do.
    pub statement: Statement,
    /// From the first to the last token, without the semicolon.
    pub span: Span,
    /// The statement's text as written.
    pub text: String,
}

/// What a statement asks for. Closed on purpose: match it without a wildcard.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `CREATE [TEMPORARY] TABLE`.
    CreateTable(Box<CreateTable>),
    /// `CREATE [TEMPORARY] VIEW`.
    CreateView(Box<CreateView>),
    /// `DROP TABLE` or `DROP VIEW`.
    Drop(Drop),
    /// `INSERT INTO`.
    Insert(Box<Insert>),
    /// `BEGIN STATEMENT SET; …; END` or `EXECUTE STATEMENT SET BEGIN … END`.
    StatementSet(Vec<SpannedInsert>),
    /// A query.
    Query(Box<Query>),
    /// `EXPLAIN [PLAN FOR | JSON | ANALYZE]`; only queries, inserts and statement sets can be explained.
    Explain(Box<Explain>),
    /// `DIAGNOSE`, `EXPLAIN WATERMARK`, `WINDOW`, `LATENESS` or `ANALYZE JOB` of a job.
    Diagnose(Box<Diagnose>),
    /// `SET 'key' = 'value'`.
    Set(Setting),
    /// `RESET ['key']`.
    Reset(Option<Key>),
    /// `SET` without anything: show the settings.
    ShowSettings,
    /// `SHOW …`.
    Show(Show),
    /// `DESCRIBE name` or `DESC name`.
    Describe(ObjectName),
    /// `DESCRIBE JOB job`.
    DescribeJob(Key),
    /// `STOP JOB job [WITH DRAIN]`.
    StopJob(StopJob),
}

/// `STOP JOB job [WITH DRAIN]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopJob {
    /// The job: its number, its name, or a table that it writes.
    pub job: Key,
    /// `WITH DRAIN`: it ends as if its input had ended where its sources are.
    pub drain: bool,
}

/// An `INSERT INTO` of a statement set and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct SpannedInsert {
    /// The insert.
    pub insert: Insert,
    /// Where it stands.
    pub span: Span,
}

/// A quoted or bare dotted key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its text, without quotes.
    pub name: String,
    /// Where it stands.
    pub span: Span,
}

/// `SET key = value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The key.
    pub key: Key,
    /// The value's text, without quotes.
    pub value: String,
    /// Where the value stands.
    pub value_span: Span,
}

/// `CREATE [TEMPORARY] TABLE [IF NOT EXISTS] name (…) [COMMENT '…'] WITH (…)`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateTable {
    /// The table's name.
    pub name: ObjectName,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// `TEMPORARY`.
    pub temporary: bool,
    /// Columns in order; empty: to be read from the data.
    pub columns: Vec<ColumnDef>,
    /// `WATERMARK FOR …`.
    pub watermark: Option<WatermarkDef>,
    /// `PRIMARY KEY (…) NOT ENFORCED`; may be empty.
    pub primary_key: Vec<Ident>,
    /// `COMMENT '…'`.
    pub comment: Option<String>,
    /// `WITH (…)`, in order.
    pub options: Vec<TableOption>,
}

/// A column of `CREATE TABLE`.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnDef {
    /// Its name.
    pub name: Ident,
    /// Where its values come from.
    pub kind: ColumnDefKind,
    /// `COMMENT '…'`.
    pub comment: Option<String>,
    /// The whole definition.
    pub span: Span,
}

/// Where the values of a column come from.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a table has few columns, and each is read once")]
pub enum ColumnDefKind {
    /// `name type [NOT NULL]`.
    Physical {
        /// The type.
        sql_type: SqlType,
        /// `NOT NULL`.
        not_null: bool,
    },
    /// `name AS expr`.
    Computed {
        /// The expression.
        expr: Expr,
        /// The expression's text as written.
        text: String,
    },
    /// `name type METADATA [FROM 'key'] [VIRTUAL]`.
    Metadata {
        /// The type.
        sql_type: SqlType,
        /// `NOT NULL`.
        not_null: bool,
        /// The connector's name for it; by default the column's name.
        from: Option<String>,
        /// `VIRTUAL`.
        is_virtual: bool,
    },
}

/// A type in Flink's spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqlType {
    /// `BOOLEAN`.
    Boolean,
    /// `TINYINT`.
    TinyInt,
    /// `SMALLINT`.
    SmallInt,
    /// `INT`, `INTEGER`.
    Int,
    /// `BIGINT`.
    BigInt,
    /// `FLOAT`, `REAL`.
    Float,
    /// `DOUBLE`, `DOUBLE PRECISION`.
    Double,
    /// `DECIMAL(p, s)`; Flink's default is (10, 0).
    Decimal(u8, i8),
    /// `STRING`, `TEXT`.
    String,
    /// `CHAR(n)`.
    Char(u64),
    /// `VARCHAR(n)`; without n as long as it gets.
    Varchar(u64),
    /// `BYTES`, `BINARY(n)`, `VARBINARY(n)`.
    Bytes,
    /// `DATE`.
    Date,
    /// `TIME(p)`.
    Time(u8),
    /// `TIMESTAMP(p)` [`WITHOUT TIME ZONE`]; p = 6 if not given.
    Timestamp(u8),
    /// `TIMESTAMP_LTZ(p)`, `TIMESTAMP(p) WITH [LOCAL] TIME ZONE`; p = 6 if not given.
    TimestampLtz(u8),
    /// `ARRAY<t>`, `t ARRAY`.
    Array(Box<SqlType>),
    /// `MAP<k, v>`.
    Map(Box<SqlType>, Box<SqlType>),
    /// `ROW<a t, …>`, `ROW(a t, …)`, `STRUCT<a t, …>`.
    Row(Vec<(String, SqlType)>),
}

/// `WATERMARK FOR column AS expr [IDLE AFTER interval [THEN ADVANCE]] [MAX AHEAD interval]`.
#[derive(Debug, Clone, PartialEq)]
pub struct WatermarkDef {
    /// The time column.
    pub column: Ident,
    /// The watermark's expression.
    pub expr: Expr,
    /// The expression's text as written.
    pub text: String,
    /// `IDLE AFTER`.
    pub idle_after: Option<Expr>,
    /// `THEN ADVANCE`.
    pub then_advance: bool,
    /// `MAX AHEAD`.
    pub max_ahead: Option<Expr>,
    /// The whole clause.
    pub span: Span,
}

/// One `'key' = 'value'` of `WITH (…)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableOption {
    /// The key.
    pub key: Key,
    /// The value's text, without quotes.
    pub value: String,
    /// Where the value stands.
    pub value_span: Span,
}

/// `CREATE [TEMPORARY] VIEW [IF NOT EXISTS] name [(columns)] [COMMENT '…'] AS query`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateView {
    /// The view's name.
    pub name: ObjectName,
    /// Column names; empty: those of the query.
    pub columns: Vec<Ident>,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// `TEMPORARY`.
    pub temporary: bool,
    /// `COMMENT '…'`.
    pub comment: Option<String>,
    /// The query.
    pub query: Query,
    /// The query's text as written, with its clauses.
    pub query_text: String,
}

/// `DROP [TEMPORARY] TABLE | VIEW [IF EXISTS] name`.
#[derive(Debug, Clone, PartialEq)]
pub struct Drop {
    /// `VIEW` instead of `TABLE`.
    pub is_view: bool,
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// What to drop.
    pub name: ObjectName,
}

/// `INSERT INTO name [(columns)] query`.
#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    /// The sink.
    pub table: ObjectName,
    /// Columns that the query fills, in its order; empty: all.
    pub columns: Vec<Ident>,
    /// The rows.
    pub query: Query,
}

/// A query with the clauses that sqlparser does not know.
///
/// A query block with such clauses, at any depth, appears in `query` as
/// `SELECT * FROM (<block>) AS "__block_N"`, where `N` is the index in `blocks`.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// The query.
    pub query: Box<sqlparser::ast::Query>,
    /// The clauses of its blocks.
    pub blocks: Vec<BlockClauses>,
}

/// The alias that marks block `index` in a [`Query`]: `__block_N`.
#[doc(hidden)]
pub fn block_alias(index: usize) -> String {
    format!("__block_{index}")
}

/// The index of the block that an alias marks, if it is such an alias.
#[doc(hidden)]
pub fn block_of_alias(alias: &str) -> Option<usize> {
    alias.strip_prefix("__block_")?.parse().ok()
}

/// `ALLOW LATENESS …`, `LATE ROWS INTO …`, `EMIT …` at the end of a query block, in any order.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockClauses {
    /// `EMIT …`.
    pub emit: Option<(Emit, Span)>,
    /// `ALLOW LATENESS interval`.
    pub allow_lateness: Option<(Expr, Span)>,
    /// `LATE ROWS INTO name`.
    pub late_rows_into: Option<(ObjectName, Span)>,
}

/// How a block gives its results.
#[derive(Debug, Clone, PartialEq)]
pub enum Emit {
    /// `EMIT ON WINDOW CLOSE`.
    OnWindowClose,
    /// `EMIT CHANGES [EVERY interval]`.
    Changes(Option<Expr>),
    /// `EMIT COMPLETE [EVERY interval]`.
    Complete(Option<Expr>),
    /// `EMIT EARLY EVERY interval`.
    Early(Expr),
}

/// `DIAGNOSE [JSON] [job]`, `EXPLAIN WATERMARK | LATENESS [JSON] [job]`, `EXPLAIN WINDOW [JSON] [job]
/// [WHERE key = value]`, `EXPLAIN ANALYZE JOB [JSON] [job] [FOR interval]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnose {
    /// What is asked.
    pub question: Question,
    /// As JSON instead of text.
    pub json: bool,
    /// The job: its number, its name, or a table that it writes; `None`: the last one.
    pub job: Option<Key>,
    /// `WHERE key = value`: only windows that have groups with this key.
    pub of_key: Option<KeyCondition>,
    /// `FOR interval`: how long to look.
    pub over: Option<Expr>,
}

/// `WHERE key = value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyCondition {
    /// The key of the aggregation.
    pub key: Ident,
    /// Its value as text, without quotes.
    pub value: String,
}

/// What a person asks about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// `DIAGNOSE`: what is wrong.
    Findings,
    /// `EXPLAIN WATERMARK`: how far event time is, and who holds it.
    Watermark,
    /// `EXPLAIN WINDOW`: why windows do not fire.
    Window,
    /// `EXPLAIN LATENESS`: what a delay costs and buys.
    Lateness,
    /// `EXPLAIN ANALYZE JOB`: what its operators do from now on.
    Analyze,
}

impl Question {
    /// The words that ask it.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Findings => &["DIAGNOSE"],
            Self::Watermark => &["EXPLAIN", "WATERMARK"],
            Self::Window => &["EXPLAIN", "WINDOW"],
            Self::Lateness => &["EXPLAIN", "LATENESS"],
            Self::Analyze => &["EXPLAIN", "ANALYZE", "JOB"],
        }
    }
}

/// `EXPLAIN [PLAN FOR | JSON | ANALYZE [JSON] [FOR interval]] statement`.
#[derive(Debug, Clone, PartialEq)]
pub struct Explain {
    /// As JSON instead of a tree.
    pub json: bool,
    /// `ANALYZE`: run it, and tell what was measured.
    pub analyze: bool,
    /// `FOR interval`: stop it after this time.
    pub over: Option<Expr>,
    /// What to explain.
    pub statement: SpannedStatement,
}

/// `SHOW …`.
#[derive(Debug, Clone, PartialEq)]
pub enum Show {
    /// `SHOW TABLES`.
    Tables,
    /// `SHOW VIEWS`.
    Views,
    /// `SHOW FUNCTIONS`.
    Functions,
    /// `SHOW JOBS`.
    Jobs,
    /// `SHOW CREATE TABLE name` or `SHOW CREATE VIEW name`.
    Create(ObjectName),
}
