//! Plans and planning errors as text cases: `tests/plan/*.txt`.
//!
//! A case is a directive with its name, SQL, `----` and what is expected, up to an empty line:
//!
//! * `setup: name`: statements that stand before every later case of the file; nothing is expected.
//! * `plan: name`: a script whose last statement is explained.
//! * `error: name`: a script that fails with the error shown as people read it.
//!
//! `UPDATE_EXPECT=1 cargo test --test plan` rewrites what is expected; not where `CI` is set.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use libtest_mimic::{Arguments, Failed, Trial};
use tidegate::Error;
use tidegate::catalog::{Catalog, ConnectorCatalog, Options, Relation, Table, TableFacts};
use tidegate::error::{SourceText, code};
use tidegate::plan::{Planner, StreamPlan};
use tidegate::sql::{self, SpannedStatement, Statement};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directive {
    Setup,
    Plan,
    Fails,
}

impl Directive {
    fn of(word: &str) -> Option<Self> {
        match word {
            "setup" => Some(Self::Setup),
            "plan" => Some(Self::Plan),
            "error" => Some(Self::Fails),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Plan => "plan",
            Self::Fails => "error",
        }
    }
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan");
    let files = corpus(&folder);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        assert!(std::env::var_os("CI").is_none(), "expectations are not rewritten in CI");
        files.iter().for_each(|file| rewrite(file));
    }
    let mut trials = Vec::new();
    for file in &files {
        let topic = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut setup = String::new();
        for case in read(file) {
            if case.directive == Directive::Setup {
                setup = case.sql;
                continue;
            }
            let setup = setup.clone();
            trials.push(Trial::test(format!("{topic}::{}", case.name), move || check(&setup, &case)));
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
    files
}

fn read(file: &Path) -> Vec<Case> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut cases = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let case = line.split_once(": ").and_then(|(word, name)| Some((Directive::of(word)?, name)));
        let (directive, name) = case.unwrap_or_else(|| panic!("{}: no directive: {line}", file.display()));
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

fn rewrite(file: &Path) {
    let mut setup = String::new();
    let mut out = String::new();
    let text = fs::read_to_string(file).unwrap_or_default();
    for comment in text.lines().take_while(|line| line.starts_with('#')) {
        let _ = writeln!(out, "{comment}");
    }
    for case in read(file) {
        let expected = match case.directive {
            Directive::Setup => {
                setup.clone_from(&case.sql);
                String::new()
            }
            Directive::Plan | Directive::Fails => match run(&setup, &case.sql) {
                Ok(text) | Err(text) => text,
            },
        };
        let expected = if expected.is_empty() { expected } else { format!("{}\n", expected.trim_end()) };
        let separator = if out.is_empty() { "" } else { "\n" };
        let _ = write!(
            out,
            "{separator}{}: {}\n{}\n----\n{expected}",
            case.directive.word(),
            case.name,
            case.sql
        );
    }
    fs::write(file, out).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

fn check(setup: &str, case: &Case) -> Result<(), Failed> {
    let outcome = run(setup, &case.sql);
    let text = match (&outcome, case.directive) {
        (Ok(text), Directive::Plan) | (Err(text), Directive::Fails) => text,
        (Ok(text), _) => return Err(format!("an error is expected, the plan is\n{text}").into()),
        (Err(text), _) => return Err(format!("a plan is expected, the error is\n{text}").into()),
    };
    if text.trim_end() == case.expected {
        return Ok(());
    }
    Err(format!("expected\n{}\ngot\n{text}", case.expected).into())
}

/// The plan of the last statement, or the error of the first that fails.
fn run(setup: &str, script: &str) -> Result<String, String> {
    let planner = Planner::new(Arc::new(TestConnectors));
    let mut catalog = Catalog::new();
    execute(&planner, &mut catalog, setup).map_err(|error| format!("setup: {}", error.render()))?;
    let source = Arc::new(SourceText { name: "query.sql".to_owned(), text: script.to_owned() });
    match execute(&planner, &mut catalog, script) {
        Ok(Some(plan)) => Ok(plan.explain()),
        Ok(None) => Ok("nothing to explain".to_owned()),
        Err(error) => Err(error.in_source(&source).render()),
    }
}

fn execute(planner: &Planner, catalog: &mut Catalog, script: &str) -> Result<Option<StreamPlan>, Error> {
    let mut last = None;
    for spanned in sql::parse(script)? {
        last = statement(planner, catalog, &spanned)?;
    }
    Ok(last)
}

fn statement(
    planner: &Planner,
    catalog: &mut Catalog,
    spanned: &SpannedStatement,
) -> Result<Option<StreamPlan>, Error> {
    match &spanned.statement {
        Statement::CreateTable(statement) => {
            let table = planner.create_table(statement, catalog)?;
            catalog.add(Relation::Table(Arc::new(table)), statement.if_not_exists)?;
            Ok(None)
        }
        Statement::CreateView(statement) => {
            let view = planner.create_view(statement, catalog)?;
            catalog.add(Relation::View(Arc::new(view)), statement.if_not_exists)?;
            Ok(None)
        }
        Statement::Drop(statement) => {
            catalog.remove(&statement.name.to_string());
            Ok(None)
        }
        Statement::Query(query) => planner.plan_query(query, catalog).map(Some),
        Statement::Insert(insert) => planner.plan_inserts(&[insert], catalog).map(Some),
        Statement::StatementSet(inserts) => {
            let inserts: Vec<&sql::Insert> = inserts.iter().map(|spanned| &spanned.insert).collect();
            planner.plan_inserts(&inserts, catalog).map(Some)
        }
        other => panic!("no statement for a plan test: {other:?}"),
    }
}

/// `file` ends, `stream` does not, `print` is only written, `metrics` only read; the file
/// `cities.parquet` has columns.
struct TestConnectors;

impl ConnectorCatalog for TestConnectors {
    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let facts =
            |is_source, is_sink, bounded| TableFacts { is_source, is_sink, bounded, takes_changelog: false };
        match table.connector.as_str() {
            "file" | "filesystem" => Ok(facts(true, true, true)),
            "stream" => Ok(facts(true, true, false)),
            "metrics" => Ok(facts(true, false, false)),
            "print" => Ok(TableFacts { takes_changelog: true, ..facts(false, true, false) }),
            other => {
                let place = table.options.entry("connector").and_then(|entry| entry.value_span);
                Err(Error::plan(code::UNKNOWN_CONNECTOR, format!("unknown connector \"{other}\"")).at(place))
            }
        }
    }

    fn infer_schema(&self, options: &Options) -> Result<SchemaRef, Error> {
        match options.get("path") {
            Some("cities.parquet") => Ok(Arc::new(Schema::new(vec![
                Field::new("city", DataType::LargeUtf8, true),
                Field::new("founded", DataType::Timestamp(TimeUnit::Microsecond, None), true),
            ]))),
            path => Err(Error::plan(code::INVALID_TABLE, format!("no columns in {path:?}"))),
        }
    }

    fn metadata_type(&self, _connector: &str, key: &str) -> Option<DataType> {
        (key == "ingestion-time").then(|| DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())))
    }
}
