//! Running the blocks of a page, in their order, in a folder that has the data that the page names.
//!
//! | fence | what is done |
//! |---|---|
//! | `sql` | runs in the page's session |
//! | `sql,new` | runs in a new session, which the rest of the page has too |
//! | `sql,plan` | what does not end: queries and inserts are planned, other statements run |
//! | `sql,rows=5` | queries are stopped after five rows or more |
//! | `sql,fails=W004` | fails with this code |
//! | `sql,lint=L001` | is planned, and has this lint and no other |
//! | `sql,syntax` | a synopsis: must be no SQL |
//! | `console` | lines behind `$ ` are given to `sh`; the rest is what they show |
//! | `shell,fails=U006` | lines are typed in the shell, the last fails with this code |
//! | `text` right behind one of these | what it gives; `…` stands for anything |
//!
//! `file=NAME` with any language puts the block into a file of that name.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use tidegate::Error;
use tidegate::session::{Outcome, Session};
use tidegate::sql::Statement;

use crate::markdown::{Block, files, page, root};
use crate::shown::{self, Form, is_as_said};

/// Languages of blocks that are looked at by nobody here, and why.
const OTHERS: &[(&str, &str)] = &[
    ("csv", "a data file"),
    ("json", "a data file"),
    ("promql", "for Prometheus"),
    ("rust", "compiled as an example of the library"),
    ("sh", "commands for installing"),
    ("test", "run by tests/stream.rs"),
    ("text", "a picture, a file or what the block before gives"),
    ("toml", "a file of another program"),
    ("yaml", "a file of another program"),
];

/// Paths are relative to the folder of the process, which all pages share.
static FOLDER: Mutex<()> = Mutex::new(());

/// Runs a page; gives how many blocks ran, by language.
pub(crate) fn run_page(name: &str) -> BTreeMap<String, usize> {
    let page = page(name);
    let _alone = FOLDER.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a temporary folder");
    put_data(&page.text, folder.path());
    env::set_current_dir(folder.path()).expect("the folder is there");

    let blocks = page.blocks();
    let mut session = new_session();
    let (mut ran, mut faults, mut fills) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (index, block) in blocks.iter().enumerate() {
        if let Some(file) = block.mark("file") {
            fs::write(file, &block.body).expect("the folder can be written");
        }
        let said = blocks.get(index + 1).filter(|next| next.language == "text" && next.follows);
        let said_text = said.map(|said| said.body.as_str());
        if block.has("new") {
            session = new_session();
        }
        let done = match block.language.as_str() {
            "sql" => sql(&mut session, block, said_text),
            "console" => console(block, folder.path()),
            "shell" => typed(block, folder.path()),
            other if OTHERS.iter().any(|(known, _)| *known == other) => continue,
            other => Err(format!("no test knows what to do with a block of \"{other}\"")),
        };
        *ran.entry(block.language.clone()).or_default() += 1;
        match done {
            Err(fault) => faults.push(format!("{name}:{}: {fault}", block.line)),
            Ok(shown) => {
                let (place, said) = match block.language.as_str() {
                    "console" => (block, Some(block.body.as_str())),
                    _ => (said.unwrap_or(block), said_text),
                };
                if let Some(said) = said.filter(|said| !is_as_said(said, &shown)) {
                    faults.push(format!("{name}:{}: says\n{said}but it is\n{shown}", place.line));
                    fills.push((place.clone(), shown));
                }
            }
        }
    }
    env::set_current_dir(root()).expect("the project is there");
    if env::var_os("UPDATE_EXPECT").is_some() && env::var_os("CI").is_none() {
        fill(name, &page.text, &fills);
    }
    let faults: Vec<_> = faults.iter().flat_map(|fault| fault.lines()).map(cut).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    ran
}

/// As much of a line as can be read.
fn cut(line: &str) -> String {
    line.chars().take(300).collect()
}

/// Results are shown as `-p 1` gives them.
fn new_session() -> Session {
    let mut session = Session::new();
    session.set("execution.parallelism", "1").expect("a setting");
    session
}

/// Copies the files of `queries/` that a text names: with their path where it names that, else just so.
fn put_data(text: &str, folder: &Path) {
    for path in files(&root().join("queries")) {
        let below = path.strip_prefix(root()).expect("in the project");
        let name = path.file_name().expect("a name").to_string_lossy();
        if text.contains(&*below.to_string_lossy()) {
            fs::create_dir_all(folder.join(below).parent().expect("a folder")).expect("is made");
            fs::copy(&path, folder.join(below)).expect("is copied");
        }
        let has_bare = text.match_indices(&*name).any(|(at, _)| !text[..at].ends_with('/'));
        if has_bare {
            fs::copy(&path, folder.join(&*name)).expect("is copied");
        }
    }
}

fn sql(session: &mut Session, block: &Block, said: Option<&str>) -> Result<String, String> {
    if block.has("syntax") {
        return match session.parse(shown::NAME, &block.body) {
            Err(_) => Ok(String::new()),
            Ok(_) => Err("is SQL that could run, and is marked as a synopsis".to_owned()),
        };
    }
    let result = if block.has("plan") {
        plan(session, &block.body)
    } else if let Some(code) = block.mark("lint") {
        return lint(session, &block.body, code);
    } else {
        let most_rows = block.mark("rows").map(|rows| rows.parse().expect("a number"));
        let shown = shown::run(session, &block.body, Form::of(said.unwrap_or_default()), most_rows);
        shown.map(|shown| shown.iter().map(|text| text.trim_end()).collect::<Vec<_>>().join("\n\n"))
    };
    match (result, block.mark("fails")) {
        (Ok(shown), None) => Ok(shown),
        (Err(error), Some(code)) if error.code() == code => Ok(error.render()),
        (Err(error), Some(code)) => Err(format!("fails not with {code} but with:\n{}", error.render())),
        (Err(error), None) => Err(error.render()),
        (Ok(_), Some(code)) => Err(format!("does not fail with {code}")),
    }
}

/// Does what comes before queries; plans those.
fn plan(session: &mut Session, script: &str) -> Result<String, Error> {
    let mut plans = Vec::new();
    for statement in session.parse(shown::NAME, script)? {
        match session.explain(&statement, false)? {
            Some(plan) => plans.push(plan),
            None => match session.execute(&statement)? {
                Outcome::Text(text) => plans.push(text),
                Outcome::Done(_) | Outcome::Rows(_) => {}
                Outcome::Query(_) | Outcome::Insert(_) => panic!("what is explained does not run"),
            },
        }
    }
    Ok(plans.join("\n"))
}

fn lint(session: &mut Session, script: &str, code: &str) -> Result<String, String> {
    let mut rendered = String::new();
    for statement in session.parse(shown::NAME, script).map_err(|error| error.render())? {
        for lint in session.lint(&statement).map_err(|error| error.render())? {
            if lint.code.0 != code {
                return Err(format!("has another lint: {}", lint.text()));
            }
            rendered += &session.render_lint(&statement, &lint);
        }
        let is_shown = matches!(statement.statement, Statement::Query(_) | Statement::Insert(_));
        if !is_shown {
            session.execute(&statement).map_err(|error| error.render())?;
        }
    }
    if rendered.is_empty() { Err(format!("has no lint {code}")) } else { Ok(rendered) }
}

/// The folder of the binary comes first in the path.
fn path() -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().expect("a folder");
    format!("{}:{}", folder.display(), env::var("PATH").unwrap_or_default())
}

/// Runs the commands of a block; gives the block as it should be.
fn console(block: &Block, folder: &Path) -> Result<String, String> {
    let mut shown = String::new();
    let mut commands = 0;
    let mut lines = block.body.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ ") else { continue };
        let mut command = command.to_owned();
        // A command goes on where its line ends with a backslash, or with `> ` before the next.
        while let Some(more) = lines.peek().and_then(|next| next.strip_prefix("> ")) {
            command += "\n";
            command += more;
            lines.next();
        }
        commands += 1;
        let output = Command::new("sh")
            .args(["-c", &format!("{{ {command}\n}} 2>&1")])
            .current_dir(folder)
            .env("PATH", path())
            .env_remove("NO_COLOR")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        shown += &format!("$ {}\n", command.replace('\n', "\n> "));
        shown += &String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
    }
    if commands == 0 { Err("has no command behind \"$ \"".to_owned()) } else { Ok(shown) }
}

/// Types lines in the shell; the last fails with the code of the fence.
#[cfg(unix)]
fn typed(block: &Block, folder: &Path) -> Result<String, String> {
    use crate::terminal::{Terminal, last_line};
    let code = block.mark("fails").ok_or("says not how it fails")?;
    let mut terminal = Terminal::start(folder, "xterm-256color");
    for line in block.body.lines() {
        terminal.press(line);
        terminal.press("\r");
        terminal.wait_for(line, |screen| screen.contains(line) && last_line(screen) == "tidegate>");
    }
    let shown = terminal.wait_for(code, |screen| screen.contains(&format!("error[{code}]")));
    terminal.press("\\q\r");
    terminal.ended();
    Ok(shown)
}

#[cfg(not(unix))]
fn typed(_: &Block, _: &Path) -> Result<String, String> {
    Ok(String::new())
}

/// Writes what is into a page, but for what has gaps.
fn fill(name: &str, text: &str, fills: &[(Block, String)]) {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (block, shown) in fills.iter().rev().filter(|(block, _)| !block.body.contains('…')) {
        let length = block.body.lines().count();
        let shown = shown.trim_end().lines().map(|line| line.trim_end().to_owned());
        lines.splice(block.line..block.line + length, shown);
    }
    fs::write(root().join(name), lines.join("\n") + "\n").expect("the page can be written");
}
