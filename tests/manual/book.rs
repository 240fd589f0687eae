//! The book: every page is in its table of contents, every link leads somewhere.

use std::collections::BTreeSet;
use std::fs;

use tidegate::connector::Connectors;
use tidegate::session::Settings;

use crate::markdown::{cells, files, page, pages, root};

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let summary = page("docs/SUMMARY.md");
    let linked: Vec<_> = summary.links().into_iter().map(|(_, target)| format!("docs/{target}")).collect();
    for page in pages().iter().filter(|page| page.name.starts_with("docs/") && page.name != summary.name) {
        let times = linked.iter().filter(|target| **target == page.name).count();
        assert_eq!(times, 1, "{} stands {times} times in docs/SUMMARY.md", page.name);
    }
    for target in &linked {
        assert!(root().join(target).is_file(), "docs/SUMMARY.md names {target}, which does not exist");
    }
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let mut links = 0;
    for page in &pages {
        let folder = root().join(&page.name).parent().expect("a folder").to_owned();
        for (line, target) in page.links() {
            if target.starts_with("https://") {
                continue;
            }
            links += 1;
            let place = format!("{}:{line}: {target}", page.name);
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { root().join(&page.name) } else { folder.join(file) };
            let path = path.canonicalize().unwrap_or_else(|_| panic!("{place} does not exist"));
            // The book has only what is in docs/.
            let in_book = page.name.starts_with("docs/");
            assert!(!in_book || path.starts_with(root().join("docs")), "{place} is not in the book");
            if !anchor.is_empty() {
                let name = path.strip_prefix(root()).expect("in the project").to_string_lossy();
                let other = pages.iter().find(|page| page.name == name).unwrap_or_else(|| panic!("{place}"));
                assert!(other.anchors().contains(&anchor.to_owned()), "{place}: no such heading");
            }
        }
    }
    assert!(links > 50, "only {links} links were found");
}

#[test]
fn the_book_is_described() {
    let book = fs::read_to_string(root().join("docs/book.toml")).expect("a readable file");
    let value = |key: &str| {
        let line = book.lines().find(|line| line.split('=').next().is_some_and(|name| name.trim() == key));
        line.unwrap_or_else(|| panic!("no {key} in docs/book.toml"))
            .split_once('=')
            .expect("a value")
            .1
            .trim()
    };
    assert_eq!((value("title"), value("src"), value("language")), ("\"Tidegate\"", "\".\"", "\"en\""));
}

/// Pictures are read on light and dark pages, and aloud.
#[test]
fn pictures_are_for_all_readers() {
    let pictures: Vec<_> = files(&root().join("docs"))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "svg"))
        .collect();
    assert!(pictures.len() >= 4, "only {} pictures", pictures.len());
    let texts: Vec<_> = pages().into_iter().map(|page| page.text).collect();
    for path in pictures {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let svg = fs::read_to_string(&path).expect("a readable picture");
        for part in ["<svg xmlns=", "viewBox=", "<title>", "prefers-color-scheme: dark", "</svg>"] {
            assert!(svg.contains(part), "{name} has no {part}");
        }
        assert!(texts.iter().any(|text| text.contains(&format!("images/{name})"))), "{name} is in no page");
    }
}

/// The names in the first cells of the table below a heading.
fn listed(page_name: &str, heading: &str) -> BTreeSet<String> {
    let text = page(page_name).text;
    let section = match heading {
        "" => text.as_str(),
        heading => text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}")).1,
    };
    let rows = section.lines().filter_map(cells).skip(2);
    rows.map(|row| row[0].trim_matches('`').to_owned()).take_while(|name| name != "Option").collect()
}

#[test]
fn all_options_of_tables_are_listed() {
    let known: BTreeSet<_> = Connectors::standard().option_names().into_iter().map(str::to_owned).collect();
    let listed = listed("docs/connectors.md", "## All options");
    let differing: Vec<_> = listed.symmetric_difference(&known).collect();
    assert!(differing.is_empty(), "listed and unknown, or known and not listed: {differing:?}");
}

#[test]
fn all_settings_are_listed_with_their_defaults() {
    let known: BTreeSet<_> = Settings::all().iter().map(|setting| setting.key.to_owned()).collect();
    assert_eq!(listed("docs/settings.md", ""), known);
    let page = page("docs/settings.md");
    for setting in Settings::all() {
        let row = page.text.lines().filter_map(cells).find(|row| row[0].trim_matches('`') == setting.key);
        let said = &row.expect("it is listed")[1];
        let is_right = said.trim_matches('`') == setting.default || !said.starts_with('`');
        assert!(is_right, "{}: the page says {said}, it is {}", setting.key, setting.default);
    }
}
