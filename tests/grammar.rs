//! The surface of the language as text cases: `grammar-tests/*.txt`.
//!
//! A case is a directive with its name, the SQL, `----` and what is expected, up to an empty line:
//!
//! * `accept: name`: the statements as they print, each of which parses to the same tree again.
//! * `reject: name`: the error as people read it.
//!
//! `UPDATE_EXPECT=1 cargo test --test grammar` rewrites what is expected; not where `CI` is set.

mod corpus;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use corpus::{Case, same};
use libtest_mimic::{Arguments, Failed};
use tidegate::error::SourceText;
use tidegate::sql::{self, ColumnDefKind, SpannedStatement, Statement};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directive {
    Accept,
    Reject,
}

impl corpus::Directive for Directive {
    fn of(word: &str) -> Option<Self> {
        match word {
            "accept" => Some(Self::Accept),
            "reject" => Some(Self::Reject),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Reject => "reject",
        }
    }
}

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let files = corpus::files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("grammar-tests"));
    corpus::update(&files, |cases: &[Case<Directive>], number| {
        let case = &cases[number];
        match case.directive {
            Directive::Accept => accepted(&case.sql).unwrap_or_else(|error| format!("NOT ACCEPTED\n{error}")),
            Directive::Reject => rejected(&case.sql).unwrap_or_else(|| "NOT REJECTED".to_owned()),
        }
    });
    let mut trials = Vec::new();
    for file in &files {
        for case in corpus::read::<Directive>(file) {
            let name = case.name.clone();
            trials.push(corpus::trial(file, &name, move || check(&case)));
        }
    }
    libtest_mimic::run(&args, trials).exit_code()
}

fn check(case: &Case<Directive>) -> Result<(), Failed> {
    match case.directive {
        Directive::Accept => {
            let printed = accepted(&case.sql)?;
            same(&case.expected, &printed)?;
            let first = sql::parse(&case.sql).map_err(|error| error.to_string())?;
            let again = sql::parse(&printed).map_err(|error| format!("printed SQL: {error}\n{printed}"))?;
            same(&tree(first), &tree(again))?;
            same(&printed, &accepted(&printed)?)
        }
        Directive::Reject => {
            let actual = rejected(&case.sql).ok_or("accepted, but is to be rejected")?;
            same(&case.expected, &actual)
        }
    }
}

fn accepted(sql: &str) -> Result<String, String> {
    let source = source(sql);
    let statements = sql::parse(sql).map_err(|error| error.in_source(&source).render())?;
    Ok(statements.iter().map(|s| s.statement.to_string()).collect::<Vec<_>>().join(";\n"))
}

fn rejected(sql: &str) -> Option<String> {
    sql::parse(sql).err().map(|error| error.in_source(&source(sql)).render())
}

fn source(sql: &str) -> Arc<SourceText> {
    Arc::new(SourceText { name: "case.sql".to_owned(), text: sql.to_owned() })
}

/// The tree without places and without the text as written.
fn tree(mut statements: Vec<SpannedStatement>) -> String {
    statements.iter_mut().for_each(forget_text);
    let mut rest = format!("{statements:?}");
    for (start, end) in [("_token: TokenWithSpan {", "Span("), ("Place {", "}"), ("Location(", ")")] {
        let mut kept = String::new();
        while let Some((before, after)) = rest.split_once(start) {
            kept.push_str(before);
            rest = after.split_once(end).map_or_else(String::new, |(_, after)| after.to_owned());
        }
        kept.push_str(&rest);
        rest = kept;
    }
    rest
}

fn forget_text(statement: &mut SpannedStatement) {
    statement.text.clear();
    match &mut statement.statement {
        Statement::CreateTable(table) => {
            for column in &mut table.columns {
                if let ColumnDefKind::Computed { text, .. } = &mut column.kind {
                    text.clear();
                }
            }
            if let Some(watermark) = &mut table.watermark {
                watermark.text.clear();
            }
        }
        Statement::CreateView(view) => view.query_text.clear(),
        Statement::Explain(explain) => forget_text(&mut explain.statement),
        Statement::Drop(_)
        | Statement::Insert(_)
        | Statement::StatementSet(_)
        | Statement::Query(_)
        | Statement::Set(_)
        | Statement::Reset(_)
        | Statement::ShowSettings
        | Statement::Show(_)
        | Statement::Diagnose(_)
        | Statement::Describe(_)
        | Statement::DescribeJob(_)
        | Statement::StopJob(_) => {}
    }
}
