//! The conformance corpus: small queries with the rows that Apache Flink answered.
//!
//! A test per folder of `tests/conformance`; its README tells what the files are. Each query runs at
//! every batch size and parallelism below, and all must give the same.
//!
//! Where our answer is another by design, the folder says so:
//!
//! * `tidegate.ndjson`: our rows instead of `expected.ndjson`, and `tidegate.md`: why;
//! * `tidegate.json`: `{"phase": …, "error_contains": […]}`: the error that we give.
//!
//! Decimals and timestamps are compared by value, not by the number of digits.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use support::{Answer, Step, folders, run, says, trimmed};
use tidegate::Error;
use tidegate::error::Phase;
use tidegate::session::Session;

const BATCH_ROWS: [usize; 3] = [1, 7, 8192];
const PARALLELISM: [usize; 3] = [1, 2, 4];

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let trials = folders(&root).into_iter().map(|name| {
        let folder = root.join(&name);
        Trial::test(name, move || check(&folder))
    });
    libtest_mimic::run(&args, trials.collect()).exit_code()
}

/// What a case is to give.
enum Expected {
    Rows { rows: Vec<Value>, ordered: bool, columns: Option<Vec<String>> },
    Error { phase: Option<String>, words: Vec<String> },
}

fn check(folder: &Path) -> Result<(), Failed> {
    let expected = expected(folder)?;
    let meta: Value = serde_json::from_str(&read(&folder.join("meta.json"))?)?;
    let is_by_the_clock = has_tag(&meta, "proctime");
    let script = read(&folder.join("query.sql"))?.replace("${DATA}", &folder.display().to_string());
    for batch_rows in BATCH_ROWS {
        for parallelism in PARALLELISM {
            let given = answer(&script, batch_rows, parallelism)?;
            // By the clock, rows of one millisecond are in the order of the subtasks.
            let ordered = parallelism == 1 || !is_by_the_clock;
            compare(&expected, given, ordered)
                .map_err(|why| format!("{batch_rows} rows a batch, parallelism {parallelism}: {why}"))?;
        }
    }
    Ok(())
}

fn answer(script: &str, batch_rows: usize, parallelism: usize) -> Result<Result<Answer, Error>, Failed> {
    let mut session = Session::new();
    session.set("execution.batch-rows", &batch_rows.to_string())?;
    session.set("execution.parallelism", &parallelism.to_string())?;
    // The first step is the query, or the statement that fails.
    match run(&mut session, "query.sql", script).into_iter().next() {
        Some(Step::Query(answer)) => Ok(answer),
        Some(Step::Failed(error)) => Ok(Err(error)),
        Some(Step::Insert(Ok(summary))) => Err(format!("an insert of {} rows", summary.rows_out).into()),
        Some(Step::Insert(Err(error))) => Ok(Err(error)),
        None => Err("the script has no query at its end".into()),
    }
}

fn expected(folder: &Path) -> Result<Expected, Failed> {
    let meta: Value = serde_json::from_str(&read(&folder.join("meta.json"))?)?;
    let own_rows = folder.join("tidegate.ndjson");
    if own_rows.exists() {
        if !folder.join("tidegate.md").exists() {
            return Err("there is a tidegate.ndjson, but no tidegate.md with the reason".into());
        }
        let ordered = meta["ordered"] == true || has_tag(&meta, "sort");
        return Ok(Expected::Rows { rows: rows(&own_rows, true)?, ordered, columns: columns(&meta) });
    }
    let own_error = folder.join("tidegate.json");
    if own_error.exists() {
        let error: Value = serde_json::from_str(&read(&own_error)?)?;
        let words = error["error_contains"].as_array().ok_or("error_contains is a list")?;
        return Ok(Expected::Error {
            phase: error["phase"].as_str().map(str::to_owned),
            words: words.iter().filter_map(|word| Some(word.as_str()?.to_owned())).collect(),
        });
    }
    match meta["result"].as_str() {
        Some("append") => Ok(Expected::Rows {
            rows: rows(&folder.join("expected.ndjson"), true)?,
            ordered: meta["ordered"] == true,
            columns: columns(&meta),
        }),
        Some("changelog") => Ok(Expected::Rows {
            rows: rows(&folder.join("expected_net.ndjson"), false)?,
            ordered: false,
            columns: columns(&meta),
        }),
        Some("error") => Err("say in tidegate.json what our error must name".into()),
        other => Err(format!("unknown result {other:?}").into()),
    }
}

/// `with_order`: whether rows whose order is known must have it.
fn compare(expected: &Expected, given: Result<Answer, Error>, with_order: bool) -> Result<(), String> {
    match (expected, given) {
        (Expected::Rows { rows, ordered, columns }, Ok(answer)) => {
            if let Some(columns) = columns
                && *columns != answer.columns
            {
                return Err(format!("columns {:?}, expected {columns:?}", answer.columns));
            }
            same_rows(&folded(answer.rows)?, rows, *ordered && with_order)
        }
        (Expected::Rows { .. }, Err(error)) => Err(error.to_string()),
        (Expected::Error { phase, words }, Err(error)) => {
            let actual = match error.phase() {
                Phase::Usage | Phase::Parse | Phase::Plan => "plan",
                Phase::Run => "run",
                Phase::Internal | Phase::Interrupted => return Err(error.to_string()),
            };
            if phase.as_deref().is_some_and(|phase| phase != actual) {
                return Err(format!("failed at {actual}, expected at {phase:?}: {error}"));
            }
            says(&error, words)
        }
        (Expected::Error { .. }, Ok(answer)) => {
            Err(format!("gave {} rows, expected an error", answer.rows.len()))
        }
    }
}

fn has_tag(meta: &Value, tag: &str) -> bool {
    meta["tags"].as_array().is_some_and(|tags| tags.iter().any(|other| other == tag))
}

/// The rows that are left of a changelog, in the order of their arrival.
fn folded(changes: Vec<(&'static str, Value)>) -> Result<Vec<Value>, String> {
    let mut rows: Vec<Value> = Vec::new();
    for (kind, row) in changes {
        if matches!(kind, "+I" | "+U") {
            rows.push(row);
            continue;
        }
        match rows.iter().rposition(|held| same(held, &row)) {
            Some(found) => drop(rows.remove(found)),
            None => return Err(format!("{kind} of a row that was never there: {row}")),
        }
    }
    Ok(rows)
}

fn same_rows(got: &[Value], expected: &[Value], ordered: bool) -> Result<(), String> {
    let (extra, missing) = difference(got, expected);
    if !extra.is_empty() || !missing.is_empty() {
        let lines = |rows: Vec<&Value>| rows.iter().map(|row| format!("\n  {row}")).collect::<String>();
        return Err(format!("rows too many:{}\nrows missing:{}", lines(extra), lines(missing)));
    }
    if ordered && let Some(row) = (0..got.len()).find(|&row| !same(&got[row], &expected[row])) {
        return Err(format!("row {row} out of order: {}, expected {}", got[row], expected[row]));
    }
    Ok(())
}

/// Whether two values are the same: numbers to a relative 1e-12.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            if let (Some(one), Some(other)) = (one.as_i64(), other.as_i64()) {
                return one == other;
            }
            let (Some(one), Some(other)) = (one.as_f64(), other.as_f64()) else { return false };
            one == other || (one - other).abs() <= 1e-12 * one.abs().max(other.abs())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        _ => one == other,
    }
}

/// What is in one list of rows and not in the other, by value; both empty if they hold the same.
fn difference<'a>(got: &'a [Value], expected: &'a [Value]) -> (Vec<&'a Value>, Vec<&'a Value>) {
    let mut missing: Vec<&Value> = expected.iter().collect();
    let mut extra = Vec::new();
    for row in got {
        match missing.iter().position(|expected| same(row, expected)) {
            Some(found) => drop(missing.swap_remove(found)),
            None => extra.push(row),
        }
    }
    (extra, missing)
}

fn columns(meta: &Value) -> Option<Vec<String>> {
    let columns = meta["columns"].as_array()?;
    Some(columns.iter().filter_map(|column| Some(column["name"].as_str()?.to_owned())).collect())
}

/// The rows of a file of the corpus, values as the driver writes ours.
fn rows(path: &Path, with_kind: bool) -> Result<Vec<Value>, Failed> {
    let text = read(path)?;
    let meta: Value = serde_json::from_str(&read(&path.with_file_name("meta.json"))?)?;
    let types = types(&meta);
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let mut line: Value = serde_json::from_str(line)?;
        let mut row = if with_kind || line.get("row").is_some() { line["row"].take() } else { line };
        if let Value::Object(cells) = &mut row {
            for (name, value) in cells {
                // Cases in which Flink fails have no types; ours have no times as text there.
                let sql_type = types.get(name).map_or("TIMESTAMP", String::as_str);
                let by_value =
                    ["TIMESTAMP", "TIME(", "DECIMAL"].iter().any(|kind| sql_type.starts_with(kind));
                if let (true, Value::String(text)) = (by_value, &value) {
                    *value = Value::String(match text.strip_suffix('Z') {
                        Some(text) => format!("{}Z", trimmed(text)),
                        None => trimmed(text),
                    });
                }
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

fn types(meta: &Value) -> BTreeMap<String, String> {
    let columns = meta["columns"].as_array().into_iter().flatten();
    columns
        .filter_map(|column| Some((column["name"].as_str()?.to_owned(), column["type"].as_str()?.to_owned())))
        .collect()
}

fn read(path: &Path) -> Result<String, Failed> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()).into())
}
