//! The page of functions lists what `SHOW FUNCTIONS` lists, and its examples give what it says.

use std::collections::BTreeSet;

use tidegate::session::{Outcome, Session};

use crate::markdown::{cells, page};
use crate::shown::value;

/// A line of the page: a function, its other names, examples with their values.
struct Entry {
    line: usize,
    names: Vec<String>,
    example: String,
    value: String,
    /// What examples of its section read.
    from: Option<String>,
    is_form: bool,
}

fn code(text: &str) -> &str {
    text.trim_matches('`')
}

/// The name in `name(…)`.
fn name(signature: &str) -> String {
    signature.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn entries() -> Vec<Entry> {
    let page = page("docs/functions.md");
    let (mut from, mut is_form, mut entries) = (None, false, Vec::new());
    for (line, text) in page.prose() {
        if let Some(heading) = text.strip_prefix("## ") {
            (from, is_form) = (None, heading == "Special forms");
        }
        if let Some((_, rest)) = text.split_once("leave out `FROM ") {
            from = rest.split_once('`').map(|(table, _)| table.to_owned());
        }
        let Some(cells) = cells(text) else { continue };
        if cells.len() != 4 || cells[0] == "Function" || cells[0].starts_with("---") {
            continue;
        }
        let names = cells[0].split('`').skip(1).step_by(2).map(name).collect();
        let (example, value) = (code(&cells[2]).to_owned(), code(&cells[3]).to_owned());
        entries.push(Entry { line, names, example, value, from: from.clone(), is_form });
    }
    entries
}

#[test]
fn the_page_lists_what_show_functions_lists() {
    let mut listed = BTreeSet::new();
    for entry in entries().iter().filter(|entry| !entry.is_form) {
        for name in &entry.names {
            assert!(listed.insert(name.clone()), "line {}: {name} is listed twice", entry.line);
        }
    }
    let known: BTreeSet<_> = Session::new().function_names().into_iter().collect();
    let missing: Vec<_> = known.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&known).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "not on the page: {missing:?}; not known: {unknown:?}");
}

#[test]
fn examples_give_what_the_page_says() {
    let mut session = Session::new();
    session.set("execution.parallelism", "1").unwrap();
    let page = page("docs/functions.md");
    for block in page.blocks().iter().filter(|block| block.language == "sql") {
        for statement in session.parse("functions.md", &block.body).unwrap() {
            if let Ok(Outcome::Query(query)) = session.execute(&statement) {
                query.finish().unwrap();
            }
        }
    }
    let mut faults = Vec::new();
    for entry in entries() {
        let from = match &entry.from {
            Some(table) if !entry.example.contains(" FROM ") => format!(" FROM {table}"),
            _ => String::new(),
        };
        match answer(&mut session, &format!("SELECT {}{from}", entry.example)) {
            Ok(answer) if answer == entry.value => {}
            Ok(answer) => {
                faults
                    .push(format!("line {}: {} is {answer}, not {}", entry.line, entry.example, entry.value));
            }
            Err(error) => faults.push(format!("line {}: {}: {error}", entry.line, entry.example)),
        }
        // Another name of the function gives the same.
        for other in entry.names.iter().skip(1).filter(|_| !entry.is_form) {
            let example = entry.example.replacen(&format!("{}(", entry.names[0]), &format!("{other}("), 1);
            let answer = answer(&mut session, &format!("SELECT {example}{from}"));
            if answer.as_ref() != Ok(&entry.value) {
                faults.push(format!("line {}: {example} is {answer:?}", entry.line));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The values of the first column, apart by commas.
fn answer(session: &mut Session, sql: &str) -> Result<String, tidegate::Error> {
    let mut values = Vec::new();
    for statement in session.parse("functions.md", sql)? {
        if let Outcome::Query(mut query) = session.execute(&statement)? {
            while let Some(batch) = query.next_batch()? {
                let column = batch.rows.column(0);
                values.extend((0..batch.num_rows()).map(|row| value(column.as_ref(), row)));
            }
            query.finish()?;
        }
    }
    Ok(values.join(", "))
}
