//! The manual: every block of SQL and every command in it runs and gives what the page says; pages, links,
//! functions and codes of errors are complete.
#![allow(clippy::unwrap_used)]

mod book;
mod errors;
mod functions;
mod markdown;
mod run;
mod shown;
#[cfg(unix)]
#[path = "../shell/terminal.rs"]
#[allow(dead_code)]
mod terminal;

/// A test for each page with blocks that run.
macro_rules! pages {
    ($($test:ident: $page:literal, $least:literal;)*) => {
        /// The pages that run.
        const PAGES: &[&str] = &[$($page),*];

        $(#[test]
        fn $test() {
            let ran: usize = run::run_page($page).values().sum();
            assert!(ran >= $least, "{}: only {ran} blocks ran", $page);
        })*
    };
}

pages! {
    readme: "README.md", 2;

    checkpoints: "docs/checkpoints.md", 3;
    concepts: "docs/concepts.md", 5;
    connectors: "docs/connectors.md", 4;
    errors_by_code: "docs/errors.md", 40;
    from_others: "docs/coming-from.md", 10;
    functions_by_group: "docs/functions.md", 1;
    limits: "docs/limits.md", 3;
    memory: "docs/memory.md", 1;
    metrics: "docs/metrics.md", 3;
    quick_start: "docs/quick-start.md", 5;

    sql: "docs/sql.md", 12;

}

/// No page with blocks is left out.
#[test]
fn every_page_with_blocks_runs() {
    for page in markdown::pages() {
        let runs = |block: &markdown::Block| matches!(block.language.as_str(), "sql" | "console" | "shell");
        if page.blocks().iter().any(runs) {
            assert!(PAGES.contains(&page.name.as_str()), "{} has no test in tests/manual/main.rs", page.name);
        }
    }
}
