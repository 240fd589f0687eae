//! Time, end to end: the test files of `tests/stream` (see docs/testing.md), each as it is written and
//! shuffled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use tidegate::testing::{TestFile, TestOptions};

/// Orders of work that each test is run in, beside the one that is written.
const SHUFFLES: u32 = 10;

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stream");
    let texts = files(&root).into_iter().map(|path| {
        let text = fs::read_to_string(&path).expect("a readable file");
        (path, text)
    });
    let trials = texts.chain([manual()]).flat_map(|(path, text)| trials(&path, &text));
    libtest_mimic::run(&args, trials.collect()).exit_code()
}

/// The example of the manual.
fn manual() -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/testing.md");
    let text = fs::read_to_string(&path).expect("the page of the manual");
    let (_, rest) = text.split_once("```test\n").expect("the page has an example");
    let (example, _) = rest.split_once("```").expect("the example ends");
    (path, example.to_owned())
}

fn files(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).expect("the folder of the tests");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "test")).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no test files in {}", root.display());
    paths
}

fn trials(path: &Path, text: &str) -> Vec<Trial> {
    let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
    let file = match TestFile::read(&path.to_string_lossy(), text) {
        Ok(file) => file,
        Err(error) => return vec![Trial::test(stem, move || Err(Failed::from(error.render())))],
    };
    let names = file.tests().iter().enumerate();
    let trial = |(place, name): (usize, String)| {
        let file = file.clone();
        Trial::test(format!("{stem}: {name}"), move || {
            let options = TestOptions { shuffles: SHUFFLES, seed: 1, bless: false };
            match file.run(&file.tests()[place], &options).failure {
                None => Ok(()),
                Some(failure) => Err(format!("line {}: {}", failure.line, failure.message).into()),
            }
        })
    };
    names.map(|(place, test)| (place, test.name().to_owned())).map(trial).collect()
}
