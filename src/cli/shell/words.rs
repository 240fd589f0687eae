//! What can be completed: words of SQL, and the names of a session.

use std::collections::BTreeMap;

use crate::catalog::Relation;
use crate::session::Session;

/// Words that statements are made of.
pub(super) const KEYWORDS: &[&str] = &[
    "ADD",
    "ALL",
    "ALLOW",
    "ALLOW LATENESS",
    "ANALYZE",
    "AND",
    "ANY",
    "ARRAY",
    "AS",
    "ASC",
    "BEGIN",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BY",
    "BYTES",
    "CASE",
    "CAST",
    "CHANGES",
    "CLOSE",
    "COMPLETE",
    "CREATE",
    "CROSS",
    "CUBE",
    "CUMULATE",
    "CURRENT",
    "DATE",
    "DAY",
    "DECIMAL",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DESCRIBE JOB",
    "DESCRIPTOR",
    "DIAGNOSE",
    "DISTINCT",
    "DOUBLE",
    "DRAIN",
    "DROP",
    "EARLY",
    "ELSE",
    "EMIT",
    "EMIT CHANGES",
    "EMIT COMPLETE",
    "EMIT EARLY EVERY",
    "EMIT ON WINDOW CLOSE",
    "END",
    "ENFORCED",
    "EVERY",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "EXTRACT",
    "FALSE",
    "FILTER",
    "FIRST",
    "FLOAT",
    "FOR",
    "FROM",
    "FULL",
    "FUNCTIONS",
    "GROUP",
    "GROUP BY",
    "GROUPING SETS",
    "HAVING",
    "HOP",
    "HOUR",
    "IDLE AFTER",
    "IF",
    "IN",
    "INNER",
    "INSERT",
    "INSERT INTO",
    "INT",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOB",
    "JOBS",
    "JOIN",
    "JSON",
    "KEY",
    "LAST",
    "LATE ROWS INTO",
    "LATENESS",
    "LEFT",
    "LIKE",
    "LIMIT",
    "MAP",
    "MAX AHEAD",
    "METADATA",
    "MINUTE",
    "MONTH",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "ORDER BY",
    "OUTER",
    "OVER",
    "PARTITION BY",
    "PRIMARY KEY",
    "RESET",
    "RIGHT",
    "ROLLUP",
    "ROW",
    "ROWS",
    "SECOND",
    "SELECT",
    "SESSION",
    "SET",
    "SHOW",
    "SHOW CREATE TABLE",
    "SHOW FUNCTIONS",
    "SHOW JOBS",
    "SHOW TABLES",
    "SHOW VIEWS",
    "SIZE",
    "SLIDE",
    "STATEMENT SET",
    "STOP JOB",
    "STRING",
    "TABLE",
    "TABLES",
    "TEMPORARY",
    "THEN",
    "THEN ADVANCE",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP_LTZ",
    "TO",
    "TRUE",
    "TUMBLE",
    "UNION",
    "UNION ALL",
    "USING",
    "VALUES",
    "VARCHAR",
    "VIEW",
    "VIEWS",
    "WATERMARK FOR",
    "WEEK",
    "WHEN",
    "WHERE",
    "WINDOW",
    "WITH",
    "YEAR",
    "ZONE",
];

/// The names that a session knows.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    /// Tables and views, each with its columns as far as they are known.
    pub(super) relations: BTreeMap<String, Vec<String>>,
    pub(super) functions: Vec<String>,
    pub(super) settings: Vec<String>,
    pub(super) options: Vec<String>,
}

impl Names {
    /// What the session knows now. Functions, settings and options stay as they are.
    pub(super) fn refresh(&mut self, session: &Session) {
        let columns = |relation: &Relation| match relation {
            Relation::Table(table) => table.columns.iter().map(|column| column.name.clone()).collect(),
            Relation::View(_) => Vec::new(),
        };
        self.relations = session
            .catalog()
            .relations()
            .map(|relation| (relation.name().to_owned(), columns(relation)))
            .collect();
        if self.functions.is_empty() {
            self.functions = session.function_names();
            self.settings = session.settings().entries().map(|(info, _)| info.key.to_owned()).collect();
            self.options = session.connectors().option_names().into_iter().map(str::to_owned).collect();
        }
    }
}

/// Whether a word is one of SQL.
pub(super) fn is_keyword(word: &str) -> bool {
    let word = word.to_ascii_uppercase();
    KEYWORDS.iter().any(|keyword| keyword.split(' ').any(|part| part == word))
}
