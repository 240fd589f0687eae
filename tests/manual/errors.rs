//! Every code has its page, with an example that gives it. (The examples run with the page.)

use std::fs;
use std::process::Command;

use crate::markdown::{page, root};

/// Codes whose examples can't be shown, and why.
const WITHOUT_EXAMPLE: &[(&str, &str)] = &[
    ("F004", "a normal end of the command line, which shows nothing"),
    ("K002", "a file that was harmed: see tests/checkpoints.rs"),
    ("R011", "a fault of a program that embeds: see tests/library/misuse.rs"),
    ("X001", "a fault of ours: an example would be mended"),
];

/// All codes of src/error/code.rs.
fn codes() -> Vec<String> {
    let text = fs::read_to_string(root().join("src/error/code.rs")).expect("the list of codes");
    let codes: Vec<String> =
        text.split("Code(\"").skip(1).map(|rest| rest.chars().take_while(|c| *c != '"').collect()).collect();
    assert!(codes.len() > 50, "only {} codes were found", codes.len());
    codes
}

/// The parts of the page, each from its heading `### W004: …`.
fn sections() -> Vec<(String, String)> {
    let text = page("docs/errors.md").text;
    let parts = text.split("\n### ").skip(1);
    parts.map(|part| (part.chars().take(4).collect(), part.to_owned())).collect()
}

#[test]
fn every_code_has_a_page_with_an_example() {
    let sections = sections();
    let mut listed: Vec<_> = sections.iter().map(|(code, _)| code.clone()).collect();
    listed.sort();
    let mut codes = codes();
    codes.sort();
    assert_eq!(listed, codes, "the pages are not the codes");
    for (code, text) in &sections {
        let has_example = [format!("fails={code}"), format!("lint={code}"), format!("error[{code}]")]
            .iter()
            .any(|mark| text.contains(mark));
        let is_without = WITHOUT_EXAMPLE.iter().any(|(without, _)| without == code);
        assert!(has_example != is_without, "{code}: example {has_example}, without one {is_without}");
        assert!(text.contains("**Way out.**"), "{code} tells no way out");
    }
}

fn help(topic: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("help").args(topic).output().expect("starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("ends"), text(output.stdout), text(output.stderr))
}

#[test]
fn help_prints_the_page_of_a_code() {
    for (code, text) in sections() {
        let (exit, shown, _) = help(&[&code]);
        assert_eq!(exit, 0, "{code}");
        let heading = text.lines().next().expect("a heading");
        assert_eq!(shown.lines().next(), Some(heading), "{code}");
        assert!(!shown.contains("```") && shown.contains("Way out."), "{shown}");
    }
    let (exit, shown, _) = help(&["w002"]);
    assert_eq!((exit, shown.starts_with("W002: ")), (0, true), "{shown}");
}

#[test]
fn help_of_topics_and_commands() {
    let (exit, shown, _) = help(&["tumble"]);
    assert!(exit == 0 && shown.contains("TUMBLE(TABLE t, DESCRIPTOR(ts), size)"), "{shown}");
    let (exit, shown, _) = help(&[]);
    assert!(exit == 0 && shown.contains("Usage: tidegate") && shown.contains("Commands:"), "{shown}");
    let (exit, shown, _) = help(&["run"]);
    assert!(exit == 0 && shown.contains("Usage: tidegate run"), "{shown}");
    let (exit, shown, told) = help(&["W999"]);
    assert!(exit == 2 && shown.is_empty() && told.contains("error[U001]") && told.contains("W999"), "{told}");
}
