//! Rules about the source that no compiler checks: who may use whom, who may print, who may read a
//! clock. ARCHITECTURE.md has the reasons.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// For each module, the modules that it may name. Data flows one way.
const EDGES: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("stream", &["error"]),
    ("catalog", &["error", "stream"]),
    ("sql", &["error"]),
    ("plan", &["error", "stream", "catalog", "sql"]),
    ("operator", &["error", "stream", "plan"]),
    ("connector", &["error", "stream", "catalog"]),
    ("runtime", &["error", "stream", "catalog", "plan", "operator", "connector"]),
    ("session", &["error", "stream", "catalog", "sql", "plan", "operator", "connector", "runtime"]),
    ("testing", &["error", "stream", "catalog", "sql", "connector", "runtime", "session"]),
    (
        "cli",
        &[
            "error",
            "stream",
            "catalog",
            "sql",
            "plan",
            "operator",
            "connector",
            "runtime",
            "session",
            "testing",
        ],
    ),
];

/// A file of `src/`, its text without comments and without the tests at its end.
struct Source {
    path: PathBuf,
    module: String,
    lines: Vec<(usize, String)>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.expect("a readable folder").path()) {
        match path.is_dir() {
            true => files_below(&path, into),
            false => into.push(path),
        }
    }
}

fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    files_below(&root().join("src"), &mut paths);
    paths.sort();
    assert!(paths.len() > 30, "only {} files found", paths.len());
    paths.into_iter().map(source).collect()
}

fn source(path: PathBuf) -> Source {
    let text = fs::read_to_string(&path).expect("a readable source file");
    let relative = path.strip_prefix(root().join("src")).expect("below src").to_path_buf();
    let first = relative.components().next().expect("a name").as_os_str().to_string_lossy().into_owned();
    let is_of_tests = |name: &str| name == "tests" || name == "testing.rs" || name.ends_with("tests.rs");
    let is_test_file = relative.iter().any(|part| part.to_str().is_some_and(is_of_tests));
    let lines = text
        .lines()
        .enumerate()
        .take_while(|(_, line)| !is_test_file && line.trim() != "#[cfg(test)]")
        .map(|(index, line)| (index + 1, line.split("//").next().unwrap_or_default().to_owned()))
        .collect();
    Source { path: relative, module: first.trim_end_matches(".rs").to_owned(), lines }
}

/// Fails with one line for each place where `is_fault` is true.
fn forbid(what: &str, is_fault: impl Fn(&Source, &str) -> bool) {
    let mut faults = Vec::new();
    for source in sources() {
        for (number, line) in &source.lines {
            if is_fault(&source, line) {
                faults.push(format!("src/{}:{number}: {}", source.path.display(), line.trim()));
            }
        }
    }
    assert!(faults.is_empty(), "{what}:\n{}", faults.join("\n"));
}

/// The modules that a line names as `crate::x`.
fn named(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("crate::").map(|(at, found)| {
        let rest = &line[at + found.len()..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

#[test]
fn modules_use_only_those_below_them() {
    let edges: BTreeMap<_, _> = EDGES.iter().copied().collect();
    forbid("a module names one that it must not know", |source, line| {
        let Some(allowed) = edges.get(source.module.as_str()) else { return false };
        named(line)
            .any(|module| edges.contains_key(module) && module != source.module && !allowed.contains(&module))
    });
}

#[test]
fn every_module_has_its_rule() {
    for source in sources().iter().filter(|source| !matches!(source.module.as_str(), "lib" | "main")) {
        assert!(EDGES.iter().any(|(name, _)| *name == source.module), "{}", source.path.display());
    }
}

#[test]
fn only_the_command_line_prints() {
    let printers = ["println!(", "print!(", "eprintln!(", "eprint!(", "dbg!("];
    forbid("printed outside cli", |source, line| {
        source.module != "cli" && printers.iter().any(|printer| line.contains(printer))
    });
}

#[test]
fn only_the_shell_around_the_core_reads_a_clock() {
    let clocks = ["Instant::now(", "SystemTime::now(", "Utc::now(", "Local::now("];
    // CURRENT_TIMESTAMP and PROCTIME() are the clock, when a batch is evaluated.
    let now = Path::new("plan/function/time/now.rs");
    // The clock that everybody else is given.
    let given = Path::new("stream/clock.rs");
    forbid("a clock is read outside runtime, connector and cli", |source, line| {
        !matches!(source.module.as_str(), "runtime" | "connector" | "cli")
            && source.path != now
            && source.path != given
            && clocks.iter().any(|clock| line.contains(clock))
    });
}

/// What a task does next is the same in every run on a virtual clock.
#[test]
fn tasks_go_by_the_clock_of_their_job() {
    forbid("a task reads a clock of its own", |source, line| {
        source.path == Path::new("runtime/task.rs")
            && ["Instant::now(", ".elapsed()"].iter().any(|clock| line.contains(clock))
    });
}

#[test]
fn every_queue_has_a_bound() {
    forbid("an unbounded channel", |_, line| {
        line.contains("mpsc::channel")
            || line.contains("unbounded_channel(")
            || line
                .split_once("mpsc::{")
                .is_some_and(|(_, names)| names.split([',', '}']).any(|name| name.trim() == "channel"))
    });
}

#[test]
fn every_folder_says_what_is_absent_from_it() {
    for (module, _) in EDGES {
        let text = fs::read_to_string(root().join("src").join(module).join("mod.rs")).expect("a mod.rs");
        let doc: String = text.lines().take_while(|line| line.starts_with("//!")).collect();
        assert!(*module == "error" || doc.contains("Invariant:"), "src/{module}/mod.rs has no invariant");
    }
}

#[test]
fn no_file_names_a_path_of_somebodys_machine() {
    let mut paths = Vec::new();
    for folder in
        ["src", "tests", "docs", "queries", "benches", "examples", "grammar-tests", ".ci", ".config"]
    {
        files_below(&root().join(folder), &mut paths);
    }
    for file in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "Cargo.toml"] {
        paths.push(root().join(file));
    }
    // Put together here, so that this file does not name them.
    let homes = ["work", "home", "root", "Users"].map(|home| format!("/{home}/"));
    let is_text = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, None | Some("rs" | "md" | "sql" | "toml" | "json" | "txt" | "sh"))
    };
    for path in paths.iter().filter(|path| is_text(path)) {
        let text = fs::read_to_string(path).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            let home = homes.iter().find(|home| line.contains(home.as_str()));
            assert!(home.is_none(), "{}:{}: {line}", path.display(), number + 1);
        }
    }
}
