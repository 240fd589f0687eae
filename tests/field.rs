//! Faults that people met in other systems, each as a small script: `tests/field/B…`.
//!
//! A folder holds `main.sql`, its inputs and `expect`: a block for each query, insert or statement
//! that fails, in order, separated by empty lines.
//!
//! * `query late=1 null_time=0 …`, then the rows in any order, cells separated by commas; the counts
//!   are those of the summary, and one that is not named is not checked;
//! * `insert`: an insert that works;
//! * `error word; other words`: an error that says all of these.
//!
//! Each script runs at small and big batches, alone and in parallel, in a folder of its own. Inputs
//! that are too long to keep are made by `generated`.

mod support;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use support::{Answer, Step, folders, run, says, trimmed};
use tidegate::session::Session;

const SETTINGS: [(usize, usize); 4] = [(1, 1), (8192, 1), (7, 2), (8192, 4)];

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/field");
    let mut trials: Vec<Trial> = folders(&root)
        .into_iter()
        .map(|name| {
            let folder = root.join(&name);
            Trial::test(name.clone(), move || check(&name, &folder))
        })
        .collect();
    trials.push(Trial::test("B066", deep_and_long_expressions));
    libtest_mimic::run(&args, trials).exit_code()
}

/// Inputs that are made here.
fn generated(case: &str) -> Vec<(&'static str, String)> {
    let mut text = String::new();
    match case {
        "B005" => {
            for row in 0..20_000 {
                let (second, centi) = (row / 100, row % 100);
                let time = format!("{:02}:{:02}.{centi:02}0", second / 60, second % 60);
                line_of(&mut text, &format!("{{\"v\":1,\"ts\":\"2024-05-01 09:{time}\"}}"));
            }
            vec![("a.json", text.clone()), ("b.json", text)]
        }
        // Windows of keys that never come again.
        "B073" => {
            for window in 0..200 {
                for key in 0..250 {
                    let second = key / 5;
                    let time = format!("{:02}:{:02}:{second:02}", 9 + window / 60, window % 60);
                    let key = window * 250 + key;
                    line_of(&mut text, &format!("{{\"k\":{key},\"v\":1,\"ts\":\"2024-05-01 {time}\"}}"));
                }
            }
            vec![("in.json", text)]
        }
        // Several times what is on its way to four subtasks at once: the limit is looked at piece by piece.
        "B075" => {
            for key in 0..160_000 {
                line_of(&mut text, &format!("{{\"k\":{key},\"v\":1,\"ts\":\"2024-05-01 09:00:00\"}}"));
            }
            vec![("in.json", text)]
        }
        // One bad line among 10,000, just after the first 8,192.
        "B055" => {
            for line in 1..=10_000 {
                let value = if line == 8_193 { "\"12a\"" } else { "1" };
                line_of(&mut text, &format!("{{\"v\":{value},\"ts\":\"2024-05-01 09:00:00\"}}"));
            }
            vec![("in.json", text)]
        }
        // Fields of 1 to 300 characters of two and three bytes, and line ends inside them.
        "B057" => {
            for length in 1..=300 {
                let field: String = "é漢\r\n".chars().cycle().take(length).collect();
                line_of(&mut text, &format!("{length},\"{field}\",2024-05-01 09:00:00"));
            }
            vec![("in.csv", text)]
        }
        "B083" => {
            for value in 0..10_000 {
                line_of(&mut text, &format!("{{\"v\":{value},\"ts\":\"2024-05-01 09:00:00\"}}"));
            }
            vec![("in.json", text)]
        }
        _ => Vec::new(),
    }
}

fn line_of(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a string takes any text");
}

/// What a step is to come to.
#[derive(Debug)]
enum Expected {
    Query { counts: Vec<(String, u64)>, rows: Vec<String> },
    Insert,
    Error(Vec<String>),
}

fn check(case: &str, folder: &Path) -> Result<(), Failed> {
    let script = fs::read_to_string(folder.join("main.sql"))?;
    let expected = expectations(&fs::read_to_string(folder.join("expect"))?)?;
    for (batch_rows, parallelism) in SETTINGS {
        let place = tempfile::tempdir()?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            fs::copy(entry.path(), place.path().join(entry.file_name()))?;
        }
        for (name, text) in generated(case) {
            fs::write(place.path().join(name), text)?;
        }
        let script = script.replace("'path'='", &format!("'path'='{}/", place.path().display()));
        let mut session = session(batch_rows, parallelism)?;
        let steps = run(&mut session, "main.sql", &script);
        compare(&expected, &steps)
            .map_err(|why| format!("{batch_rows} rows a batch, parallelism {parallelism}: {why}"))?;
        if case == "B083"
            && fs::read_dir(place.path().join("out")).is_ok_and(|mut files| files.next().is_some())
        {
            return Err("an insert that failed left a finished file".into());
        }
    }
    Ok(())
}

fn session(batch_rows: usize, parallelism: usize) -> Result<Session, Failed> {
    let mut session = Session::new();
    session.set("execution.batch-rows", &batch_rows.to_string())?;
    session.set("execution.parallelism", &parallelism.to_string())?;
    Ok(session)
}

fn expectations(text: &str) -> Result<Vec<Expected>, Failed> {
    let block = |block: &str| {
        let mut lines = block.lines();
        let first = lines.next().unwrap_or_default();
        let (kind, rest) = first.split_once(' ').unwrap_or((first, ""));
        match kind {
            "query" => {
                let count = |word: &str| {
                    let (name, count) = word.split_once('=').ok_or(format!("\"{word}\" is no count"))?;
                    Ok((name.to_owned(), count.parse().map_err(|error| format!("{word}: {error}"))?))
                };
                let counts = rest.split_whitespace().map(count).collect::<Result<_, String>>()?;
                Ok(Expected::Query { counts, rows: lines.map(row).collect() })
            }
            "insert" => Ok(Expected::Insert),
            "error" => Ok(Expected::Error(rest.split(';').map(|words| words.trim().to_owned()).collect())),
            other => {
                Err(Failed::from(format!("a block starts with query, insert or error, not \"{other}\"")))
            }
        }
    };
    text.trim_end().split("\n\n").map(block).collect()
}

/// A row with its values in one form: numbers and times without zeros at the end.
fn row(line: &str) -> String {
    let cell = |cell: &str| {
        let is_value = cell.starts_with(|first: char| first.is_ascii_digit() || first == '-');
        if is_value { trimmed(cell) } else { cell.to_owned() }
    };
    line.split(',').map(cell).collect::<Vec<_>>().join(",")
}

fn compare(expected: &[Expected], steps: &[Step]) -> Result<(), String> {
    for (index, expected) in expected.iter().enumerate() {
        let at = |why: String| format!("block {}: {why}", index + 1);
        let Some(step) = steps.get(index) else {
            return Err(at(format!("nothing ran, expected {expected:?}")));
        };
        match (expected, step) {
            (Expected::Query { counts, rows }, Step::Query(Ok(answer))) => {
                same(counts, rows, answer).map_err(at)?
            }
            (Expected::Insert, Step::Insert(Ok(summary))) if summary.reconciles() => {}
            (
                Expected::Error(words),
                Step::Query(Err(error)) | Step::Insert(Err(error)) | Step::Failed(error),
            ) => {
                if error.code().starts_with('X') {
                    return Err(at(error.to_string()));
                }
                says(error, words).map_err(at)?;
            }
            (_, Step::Query(Err(error)) | Step::Insert(Err(error)) | Step::Failed(error)) => {
                return Err(at(error.to_string()));
            }
            (_, Step::Query(Ok(answer))) => {
                return Err(at(format!("{:?}, expected {expected:?}", answer.rows)));
            }
            (_, Step::Insert(Ok(_))) => return Err(at(format!("an insert, expected {expected:?}"))),
        }
    }
    match steps.len() > expected.len() {
        true => Err(format!("{} steps, but {} blocks", steps.len(), expected.len())),
        false => Ok(()),
    }
}

fn same(counts: &[(String, u64)], expected: &[String], answer: &Answer) -> Result<(), String> {
    let summary = &answer.summary;
    for (name, count) in counts {
        let actual = match name.as_str() {
            "late" => summary.late,
            "partly_late" => summary.partly_late,
            "null_time" => summary.null_time,
            "malformed" => summary.malformed,
            "rows_in" => summary.rows_in,
            other => return Err(format!("no count is called \"{other}\"")),
        };
        if actual != *count {
            return Err(format!("{name} is {actual}, expected {count}"));
        }
    }
    let mut rows: Vec<String> = answer.rows.iter().map(|(_, row)| shown(row)).collect();
    let mut expected = expected.to_vec();
    rows.sort();
    expected.sort();
    if rows != expected {
        let (rows, expected) = (rows.join("\n  "), expected.join("\n  "));
        return Err(format!("rows of {:?}\n  {rows}\nexpected\n  {expected}", answer.columns));
    }
    Ok(())
}

fn shown(row: &Value) -> String {
    let cell = |value: &Value| match value {
        Value::Null => "NULL".to_owned(),
        // Years of five digits have a sign.
        Value::String(text) => text.strip_prefix('+').unwrap_or(text).to_owned(),
        Value::Number(number) => trimmed(&number.to_string()),
        other => other.to_string(),
    };
    row.as_object().into_iter().flatten().map(|(_, value)| cell(value)).collect::<Vec<_>>().join(",")
}

/// Expressions of thousands of terms and hundreds of brackets: an answer or an error, and the
/// session lives on.
fn deep_and_long_expressions() -> Result<(), Failed> {
    let sum = vec!["1"; 3_000].join("+");
    let brackets = format!("{}1{}", "(".repeat(400), ")".repeat(400));
    let any = (0..2_000).map(|n| format!("v = {n}")).collect::<Vec<_>>().join(" OR ");
    let scripts = [
        (format!("SELECT {sum} AS x;"), "3000"),
        (format!("SELECT {brackets} AS x;"), "1"),
        (format!("SELECT v FROM (VALUES (1), (2000)) AS t(v) WHERE {any};"), "1"),
        (format!("SELECT {}", "(".repeat(100_000)), ""),
    ];
    let mut session = session(8192, 1)?;
    for (script, expected) in &scripts {
        for (text, expected) in [(script.as_str(), *expected), ("SELECT 1 AS x;", "1")] {
            let steps = run(&mut session, "main.sql", text);
            let given = match steps.as_slice() {
                [Step::Query(Ok(answer))] => {
                    answer.rows.iter().map(|(_, row)| shown(row)).collect::<String>()
                }
                [Step::Query(Err(error)) | Step::Failed(error)] if !error.code().starts_with('X') => continue,
                _ => {
                    return Err(
                        format!("{}… gave neither rows nor an error", &text[..20.min(text.len())]).into()
                    );
                }
            };
            if given != expected {
                return Err(format!("{}… gave {given}", &text[..20.min(text.len())]).into());
            }
        }
    }
    Ok(())
}
