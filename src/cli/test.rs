//! `tidegate test`: runs test files and says what is not as expected.

use std::fs;

use super::args::TestArgs;
use super::notes;
use super::output::Stop;
use crate::error::{Error, code};
use crate::testing::{TestFile, TestOptions, Verdict, junit};

/// Runs the tests of some files. Whether all are as expected.
pub(super) fn run(args: &TestArgs) -> Result<bool, Stop> {
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    if args.bless && is_ci {
        return Err(Error::usage(code::INVALID_SETTING, "--bless rewrites files and CI is set")
            .hint("Run it where you read the difference, and commit that.")
            .into());
    }
    let options = TestOptions { shuffles: args.shuffle.unwrap_or(0), seed: args.seed, bless: args.bless };
    // All files are read before the first test runs: a fault in one is found at once.
    let files = args.files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    let mut results = Vec::new();
    for file in &files {
        results.push((file.name().to_owned(), run_file(file, args, &options)?));
    }
    let (mut run, mut failed) = (0, 0);
    for (_, tests) in &results {
        run += tests.len();
        failed += tests.iter().filter(|(_, verdict)| verdict.failure.is_some()).count();
    }
    if run == 0 {
        let message = format!("no test has \"{}\" in its name", args.filter.as_deref().unwrap_or_default());
        return Err(Error::usage(code::INVALID_SETTING, message).hint("Choose other words.").into());
    }
    if let Some(path) = &args.junit {
        write(path, &junit(&results))?;
    }
    let tests = if run == 1 { "test" } else { "tests" };
    notes::line(&format!("{run} {tests}, {} passed, {failed} failed", run - failed));
    Ok(failed == 0)
}

fn run_file(file: &TestFile, args: &TestArgs, options: &TestOptions) -> Result<Vec<(String, Verdict)>, Stop> {
    let mut results = Vec::new();
    let mut edits = Vec::new();
    let is_chosen = |name: &str| args.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
    for test in file.tests().iter().filter(|test| is_chosen(test.name())) {
        let verdict = file.run(test, options);
        match &verdict.failure {
            None => notes::line(&format!("ok      {}: {}", file.name(), test.name())),
            Some(failure) => {
                notes::line(&format!("FAILED  {}: {}", file.name(), test.name()));
                let message = failure.message.replace('\n', "\n  ");
                notes::line(&format!("  {}:{}: {message}", file.name(), failure.line));
            }
        }
        edits.extend(verdict.edits.iter().cloned());
        results.push((test.name().to_owned(), verdict));
    }
    if !edits.is_empty() {
        write(file.name(), &file.edited(&edits))?;
        let places = if edits.len() == 1 { "place" } else { "places" };
        notes::line(&format!("rewrote {} in {} {places}", file.name(), edits.len()));
    }
    Ok(results)
}

fn read(file: &str) -> Result<TestFile, Error> {
    let text = fs::read_to_string(file).map_err(|error| {
        Error::usage(code::UNREADABLE_SCRIPT, format!("can't read \"{file}\": {error}"))
            .hint("Check the path; it is relative to the current folder.")
    })?;
    TestFile::read(file, &text)
}

fn write(path: &str, text: &str) -> Result<(), Error> {
    fs::write(path, text)
        .map_err(|error| Error::run(code::UNWRITABLE, format!("can't write \"{path}\": {error}")))
}
