//! Plans and planning errors as text cases: `tests/plan/*.txt`.
//!
//! A case is a directive with its name, SQL, `----` and what is expected, up to an empty line:
//!
//! * `setup: name`: statements that stand before every later case of the file; nothing is expected.
//! * `plan: name`: a script whose last statement is explained.
//! * `lint: name`: a script of whose last statement the lints are shown.
//! * `error: name`: a script that fails with the error shown as people read it.
//!
//! `UPDATE_EXPECT=1 cargo test --test plan` rewrites what is expected; not where `CI` is set.

mod corpus;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use corpus::{Case, same};
use libtest_mimic::{Arguments, Failed};
use tidegate::Error;
use tidegate::catalog::{
    Catalog, ConnectorCatalog, FrequentValue, Options, Relation, Table, TableFacts, TableStatistics,
};
use tidegate::error::{SourceText, code};
use tidegate::plan::{Planner, StreamPlan};
use tidegate::sql::{self, SpannedStatement, Statement};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directive {
    Setup,
    Plan,
    Lint,
    Fails,
}

impl corpus::Directive for Directive {
    fn of(word: &str) -> Option<Self> {
        match word {
            "setup" => Some(Self::Setup),
            "plan" => Some(Self::Plan),
            "lint" => Some(Self::Lint),
            "error" => Some(Self::Fails),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Plan => "plan",
            Self::Lint => "lint",
            Self::Fails => "error",
        }
    }
}

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let files = corpus::files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan"));
    corpus::update(&files, |cases: &[Case<Directive>], number| match cases[number].directive {
        Directive::Setup => String::new(),
        shown => match run(setup(cases, number), &cases[number].sql, shown) {
            Ok(text) | Err(text) => text,
        },
    });
    let mut trials = Vec::new();
    for file in &files {
        let cases = corpus::read::<Directive>(file);
        for (number, case) in cases.iter().enumerate() {
            if case.directive == Directive::Setup {
                continue;
            }
            let (setup, case) = (setup(&cases, number).to_owned(), case.clone());
            let name = case.name.clone();
            trials.push(corpus::trial(file, &name, move || check(&setup, &case)));
        }
    }
    libtest_mimic::run(&args, trials).exit_code()
}

/// The statements of the last setup before a case.
fn setup(cases: &[Case<Directive>], number: usize) -> &str {
    let setup = cases[..number].iter().rfind(|case| case.directive == Directive::Setup);
    setup.map_or("", |case| &case.sql)
}

fn check(setup: &str, case: &Case<Directive>) -> Result<(), Failed> {
    let outcome = run(setup, &case.sql, case.directive);
    let text = match (&outcome, case.directive) {
        (Ok(text), Directive::Plan | Directive::Lint) | (Err(text), Directive::Fails) => text,
        (Ok(text), _) => return Err(format!("an error is expected, the plan is\n{text}").into()),
        (Err(text), _) => return Err(format!("a plan is expected, the error is\n{text}").into()),
    };
    same(&case.expected, text.trim_end())
}

/// The plan of the last statement or its lints, or the error of the first that fails.
fn run(setup: &str, script: &str, shown: Directive) -> Result<String, String> {
    let planner = Planner::new(Arc::new(TestConnectors));
    let planner = if shown == Directive::Lint { planner.with_table_lints() } else { planner };
    let mut catalog = Catalog::new();
    execute(&planner, &mut catalog, setup).map_err(|error| format!("setup: {}", error.render()))?;
    let source = Arc::new(SourceText { name: "query.sql".to_owned(), text: script.to_owned() });
    match execute(&planner, &mut catalog, script) {
        Ok(Some(plan)) if shown == Directive::Lint && plan.lints.is_empty() => Ok("nothing".to_owned()),
        Ok(Some(plan)) if shown == Directive::Lint => {
            let rendered: Vec<String> = plan.lints.iter().map(|lint| lint.render(&source)).collect();
            Ok(rendered.join("\n"))
        }
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

/// `file` ends, `stream` does not, the rows of `changes` change, `upserts` takes changes by key, `print` is only written, `metrics` only read; the file
/// `cities.parquet` has columns. Of `stream` with `'splits'` it is known that there are several; where
/// there is a column `hot`, nine of ten rows have 7 in it, and six of ten have no `warm`.
struct TestConnectors;

impl ConnectorCatalog for TestConnectors {
    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let facts = |is_source, is_sink, bounded| TableFacts {
            is_source,
            is_sink,
            bounded,
            takes_changelog: false,
            gives_changelog: false,
            upserts: false,
        };
        match table.connector.as_str() {
            "file" | "filesystem" => Ok(facts(true, true, true)),
            "stream" => Ok(facts(true, true, false)),
            "metrics" => Ok(facts(true, false, false)),
            "changes" => Ok(TableFacts { gives_changelog: true, ..facts(true, false, false) }),
            "upserts" => Ok(TableFacts { takes_changelog: true, upserts: true, ..facts(false, true, false) }),
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

    fn statistics(&self, table: &Table) -> TableStatistics {
        let frequent = |(column, value, share): (&str, &str, f64)| {
            let (column, value) = (column.to_owned(), value.to_owned());
            table.column_index(&column).map(|_| FrequentValue { column, value, share })
        };
        TableStatistics {
            has_several_splits: table.options.get("splits").is_some(),
            frequent: [("hot", "7", 0.9), ("warm", "NULL", 0.6)].into_iter().filter_map(frequent).collect(),
        }
    }
}
