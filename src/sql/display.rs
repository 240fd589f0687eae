//! Statements as SQL that parses to the same tree.

use std::fmt::{self, Display, Formatter, Write};
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, FunctionArguments, Ident, MatchRecognizePattern, MatchRecognizeSymbol, ObjectName, TableFactor,
    UnaryOperator, Value, ValueWithSpan, WindowType,
};

use super::ast::{
    BlockClauses, ColumnDef, ColumnDefKind, CreateTable, CreateView, Diagnose, Drop, Emit, Explain, Insert,
    Key, KeyCondition, Query, Setting, Show, SqlType, Statement, TableOption, WatermarkDef,
};
use super::walk::{TreeRewriter, Walk, rewrite};
use super::{TABLE, WITHIN, query};

/// Stands around the index of a block while a query is printed; no SQL text has it.
const MARK: char = '\u{F8FE}';

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateTable(table) => table.fmt(f),
            Self::CreateView(view) => view.fmt(f),
            Self::Drop(drop) => drop.fmt(f),
            Self::Insert(insert) => insert.fmt(f),
            Self::StatementSet(inserts) => {
                f.write_str("BEGIN STATEMENT SET;\n")?;
                for insert in inserts {
                    writeln!(f, "{};", insert.insert)?;
                }
                f.write_str("END")
            }
            Self::Query(query) => query.fmt(f),
            Self::Explain(explain) => explain.fmt(f),
            Self::Diagnose(diagnose) => diagnose.fmt(f),
            Self::Set(setting) => setting.fmt(f),
            Self::Reset(None) => f.write_str("RESET"),
            Self::Reset(Some(key)) => write!(f, "RESET {key}"),
            Self::ShowSettings => f.write_str("SET"),
            Self::Show(show) => show.fmt(f),
            Self::Describe(name) => write!(f, "DESCRIBE {name}"),
            Self::DescribeJob(job) => write!(f, "DESCRIBE JOB {job}"),
            Self::StopJob(stop) => {
                write!(f, "STOP JOB {}{}", stop.job, if stop.drain { " WITH DRAIN" } else { "" })
            }
        }
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Quoted(&self.name).fmt(f)
    }
}

impl Display for Setting {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "SET {} = {}", self.key, Quoted(&self.value))
    }
}

impl Display for Explain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let analyze = if self.analyze { " ANALYZE" } else { "" };
        let json = if self.json { " JSON" } else { "" };
        write!(f, "EXPLAIN{analyze}{json} ")?;
        if let Some(over) = &self.over {
            write!(f, "FOR {} ", shown(over))?;
        }
        self.statement.statement.fmt(f)
    }
}

impl Display for Diagnose {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.question.words().join(" "))?;
        if self.json {
            f.write_str(" JSON")?;
        }
        if let Some(job) = &self.job {
            write!(f, " {job}")?;
        }
        if let Some(KeyCondition { key, value }) = &self.of_key {
            write!(f, " WHERE {key} = {}", Quoted(value))?;
        }
        match &self.over {
            Some(over) => write!(f, " FOR {}", shown(over)),
            None => Ok(()),
        }
    }
}

impl Display for Show {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tables => f.write_str("SHOW TABLES"),
            Self::Views => f.write_str("SHOW VIEWS"),
            Self::Functions => f.write_str("SHOW FUNCTIONS"),
            Self::Jobs => f.write_str("SHOW JOBS"),
            Self::Create(name) => write!(f, "SHOW CREATE TABLE {name}"),
        }
    }
}

impl Display for Drop {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = if self.is_view { "VIEW" } else { "TABLE" };
        let if_exists = if self.if_exists { " IF EXISTS" } else { "" };
        write!(f, "DROP {kind}{if_exists} {}", self.name)
    }
}

impl Display for Insert {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "INSERT INTO {}", self.table)?;
        columns(f, &self.columns)?;
        write!(f, " {}", self.query)
    }
}

impl Display for CreateView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let if_not_exists = if self.if_not_exists { " IF NOT EXISTS" } else { "" };
        write!(f, "CREATE{} VIEW{if_not_exists} {}", temporary(self.temporary), self.name)?;
        columns(f, &self.columns)?;
        comment(f, self.comment.as_deref())?;
        write!(f, " AS {}", self.query)
    }
}

impl Display for CreateTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let if_not_exists = if self.if_not_exists { " IF NOT EXISTS" } else { "" };
        write!(f, "CREATE{} TABLE{if_not_exists} {}", temporary(self.temporary), self.name)?;
        let mut elements: Vec<String> = self.columns.iter().map(ToString::to_string).collect();
        elements.extend(self.watermark.as_ref().map(ToString::to_string));
        if !self.primary_key.is_empty() {
            elements.push(format!("PRIMARY KEY ({}) NOT ENFORCED", list(&self.primary_key)));
        }
        if !elements.is_empty() {
            write!(f, " (\n  {}\n)", elements.join(",\n  "))?;
        }
        comment(f, self.comment.as_deref())?;
        if !self.options.is_empty() {
            write!(f, " WITH ({})", list(&self.options))?;
        }
        Ok(())
    }
}

impl Display for ColumnDef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let not_null = |not_null: &bool| if *not_null { " NOT NULL" } else { "" };
        match &self.kind {
            ColumnDefKind::Physical { sql_type, not_null: is_not_null } => {
                write!(f, "{} {sql_type}{}", self.name, not_null(is_not_null))?;
            }
            ColumnDefKind::Computed { expr, .. } => write!(f, "{} AS {}", self.name, shown(expr))?,
            ColumnDefKind::Metadata { sql_type, not_null: is_not_null, from, is_virtual } => {
                write!(f, "{} {sql_type}{} METADATA", self.name, not_null(is_not_null))?;
                if let Some(from) = from {
                    write!(f, " FROM {}", Quoted(from))?;
                }
                if *is_virtual {
                    f.write_str(" VIRTUAL")?;
                }
            }
        }
        comment(f, self.comment.as_deref())
    }
}

impl Display for WatermarkDef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "WATERMARK FOR {} AS {}", self.column, shown(&self.expr))?;
        if let Some(interval) = &self.idle_after {
            let then = if self.then_advance { " THEN ADVANCE" } else { "" };
            write!(f, " IDLE AFTER {interval}{then}")?;
        }
        if let Some(interval) = &self.max_ahead {
            write!(f, " MAX AHEAD {interval}")?;
        }
        Ok(())
    }
}

impl Display for TableOption {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key, Quoted(&self.value))
    }
}

impl Display for SqlType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("BOOLEAN"),
            Self::TinyInt => f.write_str("TINYINT"),
            Self::SmallInt => f.write_str("SMALLINT"),
            Self::Int => f.write_str("INT"),
            Self::BigInt => f.write_str("BIGINT"),
            Self::Float => f.write_str("FLOAT"),
            Self::Double => f.write_str("DOUBLE"),
            Self::Decimal(precision, scale) => write!(f, "DECIMAL({precision}, {scale})"),
            Self::String => f.write_str("STRING"),
            Self::Char(length) => write!(f, "CHAR({length})"),
            Self::Varchar(length) => write!(f, "VARCHAR({length})"),
            Self::Bytes => f.write_str("BYTES"),
            Self::Date => f.write_str("DATE"),
            Self::Time(precision) => write!(f, "TIME({precision})"),
            Self::Timestamp(precision) => write!(f, "TIMESTAMP({precision})"),
            Self::TimestampLtz(precision) => write!(f, "TIMESTAMP_LTZ({precision})"),
            Self::Array(element) => write!(f, "ARRAY<{element}>"),
            Self::Map(key, value) => write!(f, "MAP<{key}, {value}>"),
            Self::Row(fields) => {
                f.write_str("ROW<")?;
                for (index, (name, field_type)) in fields.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}{} {field_type}", Ident::with_quote('`', name))?;
                }
                f.write_char('>')
            }
        }
    }
}

impl Display for BlockClauses {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut clauses = Vec::new();
        clauses
            .extend(self.allow_lateness.as_ref().map(|(interval, _)| format!("ALLOW LATENESS {interval}")));
        clauses.extend(self.late_rows_into.as_ref().map(|(name, _)| format!("LATE ROWS INTO {name}")));
        clauses.extend(self.emit.as_ref().map(|(emit, _)| emit.to_string()));
        f.write_str(&clauses.join(" "))
    }
}

impl Display for Emit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnWindowClose => f.write_str("EMIT ON WINDOW CLOSE"),
            Self::Changes(None) => f.write_str("EMIT CHANGES"),
            Self::Changes(Some(interval)) => write!(f, "EMIT CHANGES EVERY {interval}"),
            Self::Complete(None) => f.write_str("EMIT COMPLETE"),
            Self::Complete(Some(interval)) => write!(f, "EMIT COMPLETE EVERY {interval}"),
            Self::Early(interval) => write!(f, "EMIT EARLY EVERY {interval}"),
        }
    }
}

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut query = self.query.clone();
        query::unwrap_blocks(&mut query, |index| format!("{MARK}{index}{MARK}"));
        let _ = rewrite(&mut query, &mut AsWritten);
        let printed = query.to_string();
        // `FORMAT <mark>index<mark>` stands where the clauses of a block stood.
        let mut rest = printed.as_str();
        let start = format!("FORMAT {MARK}");
        while let Some((before, after)) = rest.split_once(&start) {
            f.write_str(before)?;
            let (index, after) = after.split_once(MARK).ok_or(fmt::Error)?;
            let clauses =
                index.parse().ok().and_then(|index: usize| self.blocks.get(index)).ok_or(fmt::Error)?;
            clauses.fmt(f)?;
            rest = after;
        }
        f.write_str(rest)
    }
}

/// An expression as people write it.
fn shown(expr: &Expr) -> Expr {
    let mut expr = expr.clone();
    let _ = rewrite(&mut expr, &mut AsWritten);
    expr
}

/// Gives table arguments and strings a form that prints as people write them.
struct AsWritten;

impl TreeRewriter for AsWritten {
    /// sqlparser takes two quotes in a value for one that is escaped already.
    fn post_visit_value(&mut self, value: &mut ValueWithSpan) -> Walk {
        if let Value::SingleQuotedString(text) = &mut value.value {
            *text = text.replace('\'', "''");
        }
        ControlFlow::Continue(())
    }

    /// sqlparser prints `FOR SYSTEM_TIME AS OF` behind the alias, and reads it before.
    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> Walk {
        if let TableFactor::Table { name, version, .. } = factor
            && let Some(version) = version.take()
        {
            *name = ObjectName::from(vec![Ident::new(format!("{name} {version}"))]);
        }
        if let Some(text) = with_within(factor) {
            *factor = plain_table(ObjectName::from(vec![Ident::new(text)]));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Walk {
        // sqlparser prints two minus signs without a space, which is a comment.
        if let Expr::UnaryOp { op: UnaryOperator::Minus, expr: operand } = expr
            && matches!(operand.as_ref(), Expr::UnaryOp { op: UnaryOperator::Minus, .. })
        {
            let inner = std::mem::replace(operand.as_mut(), Expr::value(Value::Null));
            **operand = Expr::Prefixed { prefix: Ident::new(""), value: Box::new(inner) };
        }
        if let Expr::Prefixed { prefix, value } = expr
            && prefix.value == TABLE
        {
            match value.as_ref() {
                Expr::Function(function) => {
                    let keys = match &function.over {
                        Some(WindowType::WindowSpec(spec)) => list(&spec.partition_by),
                        _ => String::new(),
                    };
                    let input = match &function.args {
                        FunctionArguments::Subquery(query) => format!("({query})"),
                        _ => format!("TABLE {}", function.name),
                    };
                    *expr = Expr::Identifier(Ident::new(format!("{input} PARTITION BY ({keys})")));
                }
                _ => prefix.value = "TABLE".to_owned(),
            }
        }
        ControlFlow::Continue(())
    }
}

/// The text of MATCH_RECOGNIZE with its WITHIN where it was written; `None`: it has none.
fn with_within(factor: &mut TableFactor) -> Option<String> {
    let TableFactor::MatchRecognize { pattern, symbols, .. } = factor else { return None };
    if symbols.first()?.symbol.value != WITHIN {
        return None;
    }
    let within = symbols.remove(0).definition;
    let mark = MatchRecognizePattern::Symbol(MatchRecognizeSymbol::Named(Ident::new(MARK)));
    let pattern = std::mem::replace(pattern, mark);
    let written = format!("({pattern}) WITHIN {within} DEFINE");
    Some(factor.to_string().replacen(&format!("({MARK}) DEFINE"), &written, 1))
}

/// A table without anything but its name.
pub(crate) fn plain_table(name: ObjectName) -> TableFactor {
    TableFactor::Table {
        name,
        alias: None,
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// Text as a string literal.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.0.replace('\'', "''"))
    }
}

fn temporary(temporary: bool) -> &'static str {
    if temporary { " TEMPORARY" } else { "" }
}

fn columns(f: &mut Formatter<'_>, columns: &[Ident]) -> fmt::Result {
    if columns.is_empty() { Ok(()) } else { write!(f, " ({})", list(columns)) }
}

fn comment(f: &mut Formatter<'_>, comment: Option<&str>) -> fmt::Result {
    match comment {
        Some(comment) => write!(f, " COMMENT {}", Quoted(comment)),
        None => Ok(()),
    }
}

fn list<T: Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
