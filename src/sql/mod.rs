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
//! | `PATTERN (…) WITHIN e DEFINE …` | the same, with the first symbol `__within` defined as `e` |
//! | `FROM 'x.parquet'` | `TableFactor::Table` whose name is one `Ident` with `quote_style` `'` |
//!
//! **Block clauses** (`EMIT …`, `ALLOW LATENESS …`, `LATE ROWS INTO …`): a block that has some is
//! wrapped as `SELECT * FROM (<block>) AS "__block_N"`, see [`Query`]. No name in a script may
//! start with `__block_`, `__table`, `__subquery`, `__value_` or `__within`.
//!
//! **Intervals** come out in a form that DataFusion plans: `leading_precision`, `last_field` and
//! `fractional_seconds_precision` are never set. `INTERVAL '5' SECOND` stays as it is;
//! `INTERVAL '1 02:03:04' DAY TO SECOND` becomes `INTERVAL '1 days 2 hours 3 minutes 4 seconds'`
//! without a field, every component with the sign. The value is always a single-quoted string.
//! `- INTERVAL '1:30' HOUR TO MINUTE` is `INTERVAL '-1 hours -30 minutes'` and `- INTERVAL '5' SECOND`
//! is `INTERVAL '-5' SECOND`: the sign before a literal goes into it.
//!
//! **Types** in `CAST` are sqlparser's: `TIMESTAMP_LTZ(3)` is `DataType::Custom`, `ROW<a INT>` is
//! `DataType::Struct`, `MAP<k, v>` is `DataType::Map`, `ARRAY<t>` is `DataType::Array`.
//!
//! **Long chains** of `AND`, of `OR`, of `UNION ALL` and of `+` between integers come out as
//! balanced trees. Other
//! trees have at most 400 levels, which is what a thread with a small stack can clone and drop; a
//! deeper one is an error before it is built.
//!
//! Invariant: no name is resolved here and no type is checked; spans survive.

mod ast;
mod create_table;
mod dialect;
mod display;
mod errors;
mod interval;
mod lexer;
mod query;
mod scan;
mod script;
mod statement;
mod types;
mod unread;
mod variables;
mod walk;

use sqlparser::ast::{Expr, FunctionArguments, Ident, ObjectName, WindowType};

pub use ast::*;
pub(crate) use display::plain_table;
#[doc(hidden)]
pub use scan::{Piece, PieceKind, scan};
pub use variables::Variables;
pub(crate) use walk::{TreeRewriter, Walk, rewrite};

use crate::error::Error;

/// The prefix that marks a table argument.
pub(crate) const TABLE: &str = "__table";
/// The name that carries a subquery argument with `PARTITION BY`.
pub(crate) const SUBQUERY: &str = "__subquery";
/// The definition that carries `WITHIN` of MATCH_RECOGNIZE.
pub(crate) const WITHIN: &str = "__within";
/// How deep sqlparser may go; brackets alone end earlier, see [`lexer::MAX_DEPTH`].
const MAX_RECURSION: usize = 3_000;

/// The statements of a script, in order; none for a script of comments.
///
/// Shape: spans are places in `text`; the last semicolon may be missing; empty statements are left
/// out.
///
/// # Errors
/// The first fault in the text, with its place. Not a name or a type is looked up.
///
/// ```
/// let statements = tidegate::sql::parse("CREATE VIEW v AS SELECT 1; -- one\nSELECT * FROM v EMIT CHANGES").unwrap();
/// assert_eq!(statements.len(), 2);
/// assert_eq!(statements[1].span.start.line, 2);
/// assert_eq!(statements[1].statement.to_string(), "SELECT * FROM v EMIT CHANGES");
/// ```
pub fn parse(text: &str) -> Result<Vec<SpannedStatement>, Error> {
    script::parse_script(text)
}

/// The one query that `text` is, such as the stored text of a view.
///
/// # Errors
/// As [`parse`], and for anything else than a single query.
pub fn parse_query(text: &str) -> Result<Query, Error> {
    parse_one(text, "a query", |parser| parser.query())
}

/// The one expression that `text` is, such as the stored text of a computed column.
///
/// # Errors
/// As [`parse`], and for anything else than a single expression.
pub fn parse_expr(text: &str) -> Result<Expr, Error> {
    parse_one(text, "an expression", |parser| {
        parser.read(|parser| parser.parse_expr()).map(query::finish_expr)
    })
}

fn parse_one<T>(
    text: &str,
    what: &str,
    read: impl FnOnce(&mut statement::StatementParser) -> Result<T, Error>,
) -> Result<T, Error> {
    let lexed = lexer::Lexed::new(text)?;
    let statements = lexed.statements();
    match statements.as_slice() {
        [only] => statement::with_statement_parser(text, &lexed, &lexed.tokens[only.clone()], read),
        [] => Err(errors::expected(what, &[], 0)),
        [_, second, ..] => Err(errors::expected(errors::END, &lexed.tokens, second.start)),
    }
}

/// The text ends with a semicolon outside of quotes, comments and statement sets: a shell need not
/// read on.
///
/// ```
/// use tidegate::sql::is_complete;
/// assert!(is_complete("SELECT ';'; -- done"));
/// assert!(!is_complete("SELECT ';"));
/// assert!(!is_complete("BEGIN STATEMENT SET; INSERT INTO a SELECT 1;"));
/// assert!(is_complete("BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;"));
/// ```
pub fn is_complete(text: &str) -> bool {
    lexer::ending(text) == lexer::Ending::Complete && !script::has_open_set(text)
}

/// A table argument of a function: `TABLE t`, a subquery, each with or without `PARTITION BY`.
#[derive(Debug, Clone, PartialEq)]
#[doc(hidden)]
pub struct TableArgument<'a> {
    /// The rows.
    pub input: TableInput<'a>,
    /// `PARTITION BY`; may be empty.
    pub partition_by: &'a [Expr],
}

/// Where the rows of a table argument come from.
#[derive(Debug, Clone, PartialEq)]
#[doc(hidden)]
pub enum TableInput<'a> {
    /// `TABLE t`, or `t` alone: the parts of its name.
    Name(Vec<&'a Ident>),
    /// `(SELECT …)`.
    Query(&'a sqlparser::ast::Query),
}

/// The table argument that an argument's expression is, if it can be one; a bare column can.
#[doc(hidden)]
pub fn table_argument(expr: &Expr) -> Option<TableArgument<'_>> {
    let input = |input| Some(TableArgument { input, partition_by: &[] });
    match expr {
        Expr::Identifier(ident) => input(TableInput::Name(vec![ident])),
        Expr::CompoundIdentifier(idents) => input(TableInput::Name(idents.iter().collect())),
        Expr::Subquery(query) => input(TableInput::Query(query)),
        Expr::Prefixed { prefix, value } if prefix.value == TABLE => match value.as_ref() {
            Expr::Function(function) => {
                let partition_by = match &function.over {
                    Some(WindowType::WindowSpec(spec)) => spec.partition_by.as_slice(),
                    _ => &[],
                };
                let input = match &function.args {
                    FunctionArguments::Subquery(query) => TableInput::Query(query),
                    FunctionArguments::None | FunctionArguments::List(_) => {
                        TableInput::Name(parts(&function.name))
                    }
                };
                Some(TableArgument { input, partition_by })
            }
            name => table_argument(name),
        },
        _ => None,
    }
}

fn parts(name: &ObjectName) -> Vec<&Ident> {
    name.0.iter().filter_map(|part| part.as_ident()).collect()
}

#[cfg(test)]
mod tests;
