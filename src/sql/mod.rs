//! Text to statements.
//!
//! [`parse`] reads a script: several statements, comments, a last semicolon that may be missing.
//! Statements that sqlparser does not know are read here and have types of ours ([`Statement`]);
//! queries and expressions are sqlparser's trees with spans of the script's own text.
//!
//! # Which tree each form of ours becomes
//!
//! **Table arguments**, wherever they stand among the arguments of a function:
//!
//! | text | node |
//! |---|---|
//! | `TABLE t`, `TABLE a.t` | `Expr::Prefixed { prefix: "__table", value }` with `value` = `Expr::Identifier` or `Expr::CompoundIdentifier` |
//! | `TABLE t PARTITION BY k, j` | the same, `value` = `Expr::Function { name: t, args: FunctionArguments::None, over: Some(WindowType::WindowSpec(spec)) }`, the keys in `spec.partition_by` |
//! | `(SELECT …)`, `TABLE (SELECT …)` | `Expr::Subquery(query)` |
//! | `(SELECT …) PARTITION BY k`, `TABLE (SELECT …) PARTITION BY k` | `Expr::Prefixed { prefix: "__table", value: Expr::Function { name: "__subquery", args: FunctionArguments::Subquery(query), over } }`, keys as above |
//! | `t` | `Expr::Identifier` |
//!
//! [`table_argument`] takes all of them apart. `PARTITION BY` takes one key or several, with or
//! without parentheses; several without them only before `DESCRIPTOR(…)` or a named argument.
//!
//! **Window table functions**:
//!
//! | text | node |
//! |---|---|
//! | `TABLE(TUMBLE(…)) AS w` | `TableFactor::TableFunction { expr: Expr::Function, alias }` |
//! | `TUMBLE(…) AS w` | `TableFactor::Table { name, args: Some(_), alias, .. }` |
//! | `LATERAL TUMBLE(…)` | `TableFactor::Function { lateral: true, name, args, alias, .. }` |
//! | positional argument | `FunctionArg::Unnamed(FunctionArgExpr::Expr(_))` |
//! | `SIZE => …`, `"OFFSET" => …` | `FunctionArg::Named { name, operator: FunctionArgOperator::RightArrow, arg }`; compare names without case |
//! | `DESCRIPTOR(ts)` | `Expr::Function` named `DESCRIPTOR` with one positional argument |
//! | `GROUP BY TUMBLE(ts, …)`, `TUMBLE_START(ts, …)` | ordinary `Expr::Function`s |
//! | `t FOR SYSTEM_TIME AS OF e AS r` | `TableFactor::Table { version: Some(TableVersion::ForSystemTimeAsOf(e)), .. }` |
//! | `t MATCH_RECOGNIZE (…)` | `TableFactor::MatchRecognize` |
//! | `FROM 'x.parquet'` | `TableFactor::Table` whose name is one `Ident` with `quote_style` `'` |
//!
//! **Block clauses** (`EMIT …`, `ALLOW LATENESS …`, `LATE ROWS INTO …`): a block that has some is
//! wrapped as `SELECT * FROM (<block>) AS "__block_N"`, see [`Query`]. No name in a script may
//! start with `__block_`, `__table` or `__subquery`.
//!
//! **Intervals** come out in a form that DataFusion plans: `leading_precision`, `last_field` and
//! `fractional_seconds_precision` are never set. `INTERVAL '5' SECOND` stays as it is;
//! `INTERVAL '1 02:03:04' DAY TO SECOND` becomes `INTERVAL '1 days 2 hours 3 minutes 4 seconds'`
//! without a field, every component with the sign. The value is always a single-quoted string.
//! `- INTERVAL '1:30' HOUR TO MINUTE` is `INTERVAL '-1 hours -30 minutes'`, not a unary minus.
//!
//! **Types** in `CAST` are sqlparser's: `TIMESTAMP_LTZ(3)` is `DataType::Custom`, `ROW<a INT>` is
//! `DataType::Struct`, `MAP<k, v>` is `DataType::Map`, `ARRAY<t>` is `DataType::Array`.
//!
//! **Long chains** of `AND` or of `OR` come out as balanced trees, so that their depth is small.
//!
//! Invariant: no name is resolved here and no type is checked; spans survive.

mod ast;

pub use ast::*;
