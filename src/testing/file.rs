//! Test files: reading them, and rewriting what they expect.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directive::{Directive, parse};
use super::rows::is_row;
use super::run::Edit;
use crate::error::{Error, Place, SourceText, Span, code};
use crate::sql;

/// A file of tests.
#[derive(Debug, Clone)]
pub struct TestFile {
    pub(super) source: Arc<SourceText>,
    /// Where the paths in it begin.
    pub(super) folder: PathBuf,
    /// What every test begins with.
    pub(super) prelude: Vec<Step>,
    pub(super) tests: Vec<TestCase>,
}

/// A test: statements and directives in their order.
#[derive(Debug, Clone)]
pub struct TestCase {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) steps: Vec<Step>,
}

/// One thing that a test does.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// From 1.
    pub(super) line: usize,
    pub(super) action: Action,
}

#[derive(Debug, Clone)]
pub(super) enum Action {
    /// A statement with its semicolon.
    Sql(String),
    /// A directive, and the rows below it.
    Do(Directive, Block),
}

/// The rows below a directive.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    /// With the number of its line.
    pub(super) rows: Vec<(usize, String)>,
    /// The lines that it takes, from 0.
    pub(super) lines: Range<usize>,
    /// It says that there are no rows.
    pub(super) says_none: bool,
}

/// What stands for no rows.
pub(super) const NO_ROWS: &str = "(no rows)";

impl TestCase {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The line where it begins, from 1.
    pub fn line(&self) -> usize {
        self.line
    }
}

impl TestFile {
    /// Reads a file. `name`: its path; what it includes is looked for beside it.
    ///
    /// # Errors
    /// `U005` with the place of what can't be read.
    pub fn read(name: &str, text: &str) -> Result<Self, Error> {
        let source = Arc::new(SourceText { name: name.to_owned(), text: text.to_owned() });
        let mut reader = Reader { lines: text.lines().collect(), at: 0, source: &source };
        let mut file = Self {
            folder: Path::new(name).parent().map(Path::to_path_buf).unwrap_or_default(),
            prelude: Vec::new(),
            tests: Vec::new(),
            source: Arc::clone(&source),
        };
        while let Some(step) = reader.step()? {
            if let Action::Do(Directive::Test(name), _) = &step.action {
                if file.tests.iter().any(|test| test.name == *name) {
                    let message = format!("there is a test \"{name}\" above");
                    return Err(reader.fault(step.line, 1, message, "Give each test a name of its own."));
                }
                file.tests.push(TestCase { name: name.clone(), line: step.line, steps: Vec::new() });
                continue;
            }
            match file.tests.last_mut() {
                Some(test) => test.steps.push(step),
                None if step.expects() => {
                    let message = "nothing can be expected before the first test".to_owned();
                    return Err(reader.fault(step.line, 1, message, "Write test \"name\" above it."));
                }
                None => file.prelude.push(step),
            }
        }
        if file.tests.is_empty() {
            let hint = "Write test \"name\", then statements and directives.";
            return Err(reader.fault(1, 1, "there is no test in the file".to_owned(), hint));
        }
        Ok(file)
    }

    /// Its path.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// Its tests in their order.
    pub fn tests(&self) -> &[TestCase] {
        &self.tests
    }

    /// The text with other expectations.
    pub fn edited(&self, edits: &[Edit]) -> String {
        let mut lines: Vec<String> = self.source.text.lines().map(str::to_owned).collect();
        let mut edits: Vec<_> = edits.iter().collect();
        edits.sort_by_key(|edit| edit.lines.start);
        for edit in edits.into_iter().rev() {
            lines.splice(edit.lines.clone(), edit.with.iter().cloned());
        }
        lines.join("\n") + "\n"
    }
}

impl Step {
    pub(super) fn expects(&self) -> bool {
        matches!(
            &self.action,
            Action::Do(
                Directive::ExpectRows { .. }
                    | Directive::ExpectError { .. }
                    | Directive::ExpectWatermark { .. }
                    | Directive::ExpectSplits { .. }
                    | Directive::ExpectCounts { .. },
                _
            )
        )
    }
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    /// The next line, from 0.
    at: usize,
    source: &'a Arc<SourceText>,
}

impl Reader<'_> {
    fn fault(&self, line: usize, column: usize, message: String, hint: &str) -> Error {
        let start = Place { line: line as u64, column: column as u64 };
        let end = Place { column: start.column + 1, ..start };
        Error::usage(code::TEST_FILE, message).at(Span { start, end }).hint(hint).in_source(self.source)
    }

    /// The next statement or directive.
    fn step(&mut self) -> Result<Option<Step>, Error> {
        while self.lines.get(self.at).is_some_and(|line| is_blank(line)) {
            self.at += 1;
        }
        let Some(text) = self.lines.get(self.at).copied() else { return Ok(None) };
        let line = self.at + 1;
        let directive =
            parse(text).map_err(|fault| self.fault(line, fault.column, fault.message, &fault.hint))?;
        let Some(directive) = directive else { return self.statement().map(Some) };
        self.at += 1;
        let block = match &directive {
            Directive::Push(_) => self.block(true),
            Directive::ExpectRows { .. } => self.block(false),
            _ => Block::default(),
        };
        if matches!(directive, Directive::Push(_)) && block.rows.is_empty() {
            let hint = "Write one object of JSON a line below it, such as {\"v\": 1}.";
            return Err(self.fault(
                line,
                text.chars().count() + 1,
                "there are no rows to push".to_owned(),
                hint,
            ));
        }
        Ok(Some(Step { line, action: Action::Do(directive, block) }))
    }

    /// A statement of SQL, to its semicolon.
    fn statement(&mut self) -> Result<Step, Error> {
        let first = self.at;
        let mut text = String::new();
        while let Some(line) = self.lines.get(self.at) {
            text.push_str(line);
            text.push('\n');
            self.at += 1;
            if sql::is_complete(&text) {
                return Ok(Step { line: first + 1, action: Action::Sql(text) });
            }
        }
        let hint = "End statements with a semicolon.";
        Err(self.fault(first + 1, 1, "the statement does not end".to_owned(), hint))
    }

    /// Whether rows follow the remarks at this place.
    fn rows_follow(&self) -> bool {
        let next = self.lines[self.at..].iter().find(|line| !line.trim_start().starts_with('#'));
        next.is_some_and(|line| is_row(line))
    }

    /// The rows at this place. `raw`: also lines that are given as they are, behind `> `.
    fn block(&mut self, raw: bool) -> Block {
        let mut block = Block { lines: self.at..self.at, ..Block::default() };
        while let Some(line) = self.lines.get(self.at) {
            let row = match line.trim_start().strip_prefix("> ").filter(|_| raw) {
                Some(row) => row.to_owned(),
                None if is_row(line) => line.trim().to_owned(),
                None if line.trim() == NO_ROWS && !raw => {
                    block.says_none = true;
                    self.at += 1;
                    break;
                }
                // A remark between rows.
                None if line.trim_start().starts_with('#') && raw && self.rows_follow() => {
                    self.at += 1;
                    continue;
                }
                None => break,
            };
            self.at += 1;
            block.rows.push((self.at, row));
        }
        block.lines.end = self.at;
        block
    }
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#') || line.starts_with("--")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# What it is about.\nCREATE TABLE t (\n  v INT -- ;\n);\n\ntest \"one\"\nSELECT v\nFROM t;\n\
        push t\n{\"v\": 1}\n> nonsense\nexpect\n{\"v\": 1}\n\ntest two\nexpect\n(no rows)\n";

    #[test]
    fn a_file_is_cut_into_tests_and_steps() {
        let file = TestFile::read("a.test", TEXT).unwrap();
        assert_eq!(file.prelude.len(), 1);
        let names: Vec<_> =
            file.tests().iter().map(|test| (test.name(), test.line(), test.steps.len())).collect();
        assert_eq!(names, [("one", 6, 3), ("two", 15, 1)]);
        let Action::Do(Directive::Push(_), block) = &file.tests[0].steps[1].action else { panic!() };
        assert_eq!(block.rows, [(10, "{\"v\": 1}".to_owned()), (11, "nonsense".to_owned())]);
    }

    #[test]
    fn expectations_are_replaced_in_their_place() {
        let file = TestFile::read("a.test", TEXT).unwrap();
        let Action::Do(_, block) = &file.tests[0].steps[2].action else { panic!() };
        let more = Edit { lines: block.lines.clone(), with: vec!["{\"v\":1}".into(), "{\"v\":2}".into()] };
        let Action::Do(_, block) = &file.tests[1].steps[0].action else { panic!() };
        let other = Edit { lines: block.lines.clone(), with: vec!["{\"v\":3}".into()] };
        let expected = TEXT
            .replace("expect\n{\"v\": 1}", "expect\n{\"v\":1}\n{\"v\":2}")
            .replace("(no rows)", "{\"v\":3}");
        assert_eq!(file.edited(&[other, more]), expected);
    }

    #[test]
    fn what_can_t_be_read_has_a_place() {
        for (text, place) in [
            ("", "1:1"),
            ("test a\nexpekt\n", "2:1"),
            ("test a\n\ntest a\n", "3:1"),
            ("test a\nSELECT 1\n", "2:1"),
            ("expect\n(no rows)\ntest a\n", "1:1"),
            ("test a\npush t\nsettle\n", "2:7"),
        ] {
            let error = TestFile::read("x.test", text).expect_err(text);
            assert_eq!((error.code(), error.exit_code()), ("U005", 2));
            assert!(error.render().contains(&format!("x.test:{place}")), "{}", error.render());
        }
    }
}
