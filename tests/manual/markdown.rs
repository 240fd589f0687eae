//! The pages of the manual as far as tests read them: fences, headings, links, tables.

use std::fs;
use std::path::{Path, PathBuf};

/// A page of the manual.
pub(crate) struct Page {
    /// Its path below the project, such as `docs/sql.md`.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A block between fences.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// The line of its fence, from 1.
    pub(crate) line: usize,
    pub(crate) language: String,
    /// What stands behind the language: `fails=W004`, `file=clicks.json`, …
    pub(crate) marks: Vec<String>,
    pub(crate) body: String,
    /// Whether only blank lines are between the block before and this one.
    pub(crate) follows: bool,
}

impl Block {
    /// The value of a mark `name=value`.
    pub(crate) fn mark(&self, name: &str) -> Option<&str> {
        self.marks.iter().find_map(|mark| mark.strip_prefix(name)?.strip_prefix('='))
    }

    pub(crate) fn has(&self, mark: &str) -> bool {
        self.marks.iter().any(|has| has == mark)
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README.md and the pages of `docs/`, by name.
pub(crate) fn pages() -> Vec<Page> {
    let mut paths = vec![root().join("README.md")];
    paths.extend(
        files(&root().join("docs"))
            .into_iter()
            .filter(|path| path.extension().is_some_and(|end| end == "md")),
    );
    let page = |path: PathBuf| Page {
        name: path.strip_prefix(root()).expect("in the project").to_string_lossy().into_owned(),
        text: fs::read_to_string(&path).expect("a readable page"),
    };
    paths.into_iter().map(page).collect()
}

/// The page of this name.
pub(crate) fn page(name: &str) -> Page {
    pages().into_iter().find(|page| page.name == name).unwrap_or_else(|| panic!("no page {name}"))
}

/// All files below a folder, sorted.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

impl Page {
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        let mut only_blank_lines = false;
        for (index, line) in self.text.lines().enumerate() {
            match (&mut open, line.trim_end().strip_prefix("```")) {
                (None, Some(info)) => {
                    let mut words = info.split(',').map(|word| word.trim().to_owned());
                    open = Some(Block {
                        line: index + 1,
                        language: words.next().unwrap_or_default(),
                        marks: words.collect(),
                        body: String::new(),
                        follows: only_blank_lines && !blocks.is_empty(),
                    });
                }
                (None, None) => only_blank_lines &= line.trim().is_empty(),
                (Some(_), Some("")) => {
                    blocks.extend(open.take());
                    only_blank_lines = true;
                }
                (Some(block), _) => {
                    block.body += line;
                    block.body.push('\n');
                }
            }
        }
        assert!(open.is_none(), "{}: a fence is not closed", self.name);
        blocks
    }

    /// The lines outside of fences, with their numbers.
    pub(crate) fn prose(&self) -> Vec<(usize, &str)> {
        let mut is_open = false;
        let mut lines = Vec::new();
        for (index, line) in self.text.lines().enumerate() {
            if line.starts_with("```") {
                is_open = !is_open;
            } else if !is_open {
                lines.push((index + 1, line));
            }
        }
        lines
    }

    /// The anchors of its headings, as mdbook and GitHub make them.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for (_, line) in self.prose() {
            let heading = line.trim_start_matches('#');
            if heading.len() == line.len() || !heading.starts_with(' ') {
                continue;
            }
            let base = slug(heading.trim());
            let same = anchors.iter().filter(|anchor| **anchor == base).count();
            anchors.push(if same == 0 { base } else { format!("{base}-{same}") });
        }
        anchors
    }

    /// The targets of its links and pictures, with their lines.
    pub(crate) fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (number, line) in self.prose() {
            let mut rest = line;
            while let Some((_, behind)) = rest.split_once("](") {
                let (target, after) = behind.split_once(')').unwrap_or((behind, ""));
                links.push((number, target.to_owned()));
                rest = after;
            }
        }
        links
    }
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The cells of a line of a table, without the code marks around them.
pub(crate) fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let mut cells = vec![String::new()];
    let mut last = ' ';
    for c in inner.chars() {
        match c {
            // A bar in a cell is written with a backslash.
            '|' if last == '\\' => {
                let cell = cells.last_mut().expect("one cell");
                cell.pop();
                cell.push('|');
            }
            '|' => cells.push(String::new()),
            c => cells.last_mut().expect("one cell").push(c),
        }
        last = c;
    }
    Some(cells.iter().map(|cell| cell.trim().to_owned()).collect())
}
