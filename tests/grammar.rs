//! The surface of the language as text cases: `grammar-tests/*.txt`.
//!
//! A case is a directive with its name, the SQL, `----` and what is expected, up to an empty line:
//!
//! * `accept: name`: the statements as they print, each of which parses to the same tree again.
//! * `reject: name`: the error as people read it.
//!
//! `UPDATE_EXPECT=1 cargo test --test grammar` rewrites what is expected; not where `CI` is set.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use tidegate::error::SourceText;
use tidegate::sql::{self, ColumnDefKind, SpannedStatement, Statement};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directive {
    Accept,
    Reject,
}

#[derive(Debug, Clone)]
struct Case {
    directive: Directive,
    name: String,
    sql: String,
    expected: String,
}

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("grammar-tests");
    let files = corpus(&folder);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        assert!(std::env::var_os("CI").is_none(), "expectations are not rewritten in CI");
        for file in &files {
            rewrite(file);
        }
    }
    let mut trials = Vec::new();
    for file in &files {
        let topic = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for case in read(file) {
            let name = format!("{topic}::{}", case.name);
            trials.push(Trial::test(name, move || check(&case)));
        }
    }
    libtest_mimic::run(&args, trials).exit_code()
}

fn corpus(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no cases in {}", folder.display());
    files
}

fn directive(line: &str) -> Option<(Directive, &str)> {
    match line.split_once(": ")? {
        ("accept", name) => Some((Directive::Accept, name.trim())),
        ("reject", name) => Some((Directive::Reject, name.trim())),
        _ => None,
    }
}

fn read(file: &Path) -> Vec<Case> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut cases: Vec<Case> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (directive, name) =
            directive(line).unwrap_or_else(|| panic!("{}: no directive: {line}", file.display()));
        assert!(cases.iter().all(|case| case.name != name), "{}: {name} twice", file.display());
        let sql: Vec<&str> = lines.by_ref().take_while(|line| *line != "----").collect();
        let expected: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        cases.push(Case {
            directive,
            name: name.to_owned(),
            sql: sql.join("\n"),
            expected: expected.join("\n"),
        });
    }
    cases
}

/// Writes the file again, with what comes out now; comments stay.
fn rewrite(file: &Path) {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let header: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
    let mut out = header.join("\n");
    for case in read(file) {
        let actual = match case.directive {
            Directive::Accept => accepted(&case.sql).unwrap_or_else(|error| format!("NOT ACCEPTED\n{error}")),
            Directive::Reject => rejected(&case.sql).unwrap_or_else(|| "NOT REJECTED".to_owned()),
        };
        let directive = if case.directive == Directive::Accept { "accept" } else { "reject" };
        let separator = if out.is_empty() { "" } else { "\n\n" };
        let _ = write!(out, "{separator}{directive}: {}\n{}\n----\n{actual}", case.name, case.sql);
    }
    out.push('\n');
    fs::write(file, out).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

fn check(case: &Case) -> Result<(), Failed> {
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

fn same(expected: &str, actual: &str) -> Result<(), Failed> {
    if expected == actual {
        return Ok(());
    }
    Err(format!("expected:\n{expected}\nactual:\n{actual}").into())
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
        | Statement::Describe(_) => {}
    }
}
