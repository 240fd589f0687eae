//! Running a test: as it is written, and shuffled.

use std::ops::Range;

use super::directive::{COUNTS, Directive, RowsOf, Target, WatermarkOf, show};
use super::expect::difference;
use super::file::{Action, Block, NO_ROWS, Step, TestCase, TestFile};
use super::rows::{Row, expected_row};
use super::time::show_watermark;
use super::world::World;
use crate::connector::FeedEvent;
use crate::error::Error;
use crate::runtime::{JobSummary, Schedule};
use crate::stream::Watermark;

/// How tests are run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TestOptions {
    /// How often a test is run again in another order of work.
    pub shuffles: u32,
    /// What the first of these orders is drawn from; the next one from the number after it.
    pub seed: u64,
    /// Take what is for what is expected; see [`Verdict::edits`].
    pub bless: bool,
}

/// What came of a test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// What its file should say, where it says another thing, if that was asked for.
    pub edits: Vec<Edit>,
}

/// Why a test failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The line of the test file, from 1.
    pub line: usize,
    /// One line or more.
    pub message: String,
}

/// Lines of a file, from 0, and what should be in their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub(super) lines: Range<usize>,
    pub(super) with: Vec<String>,
}

/// Why a step was not done.
pub(super) enum Stop {
    /// The test is at fault, or something is not as expected.
    Failed(String),
    /// The engine refused; perhaps the test expects it.
    Refused(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<String> for Stop {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl TestFile {
    /// Runs a test of this file in a session of its own: once as it is written, then as often as
    /// asked with other cuts into batches, other interleavings of splits, another parallelism and
    /// another order of work. All must give what is expected.
    pub fn run(&self, test: &TestCase, options: &TestOptions) -> Verdict {
        let mut plain = Run::new(self, test, 0, options.bless);
        let failure = plain.all().err();
        let mut verdict = Verdict { failure, edits: plain.edits };
        if options.bless || verdict.failure.is_some() {
            return verdict;
        }
        for number in 0..u64::from(options.shuffles) {
            let seed = options.seed.wrapping_add(number).max(1);
            if let Err(failure) = Run::new(self, test, seed, false).all() {
                let message = format!(
                    "shuffled with --shuffle 1 --seed {seed}, and not as it is written: {}",
                    failure.message
                );
                verdict.failure = Some(Failure { message, ..failure });
                break;
            }
        }
        verdict
    }
}

/// One run of one test.
struct Run<'a> {
    file: &'a TestFile,
    test: &'a TestCase,
    world: World,
    /// Zero: as it is written.
    seed: u64,
    dice: Schedule,
    bless: bool,
    edits: Vec<Edit>,
    /// What the engine refused, and where, until it is expected.
    refused: Option<(usize, Error)>,
    /// The name of the query that comes.
    name: Option<String>,
}

impl<'a> Run<'a> {
    fn new(file: &'a TestFile, test: &'a TestCase, seed: u64, bless: bool) -> Self {
        let mut dice = Schedule::new(seed);
        let world = World::new(steps(file, test), seed, &mut dice);
        Self { file, test, world, seed, dice, bless, edits: Vec::new(), refused: None, name: None }
    }

    fn all(&mut self) -> Result<(), Failure> {
        let steps: Vec<&'a Step> = steps(self.file, self.test).collect();
        let mut at = 0;
        while let Some(step) = steps.get(at) {
            let expects_error = matches!(&step.action, Action::Do(Directive::ExpectError { .. }, _));
            if let Some((line, error)) = self.refused.take_if(|_| !expects_error) {
                return Err(Failure { line, message: error.render() });
            }
            let pushes = match self.seed {
                0 => 0,
                _ => steps[at..].iter().take_while(|step| is_push(step)).count(),
            };
            let done = match pushes {
                0 => self.step(step),
                _ => self.push_together(&steps[at..at + pushes]),
            };
            at += pushes.max(1);
            match done {
                Ok(()) => {}
                Err(Stop::Failed(message)) => return Err(Failure { line: step.line, message }),
                Err(Stop::Refused(error)) => self.refused = Some((step.line, error)),
            }
        }
        if let Some((line, error)) = self.refused.take() {
            return Err(Failure { line, message: error.render() });
        }
        let left = self.name.take().map(|name| format!("no query follows query {name}"));
        let left = left.or_else(|| self.world.left_over());
        left.map_or(Ok(()), |message| Err(Failure { line: self.test.line, message }))
    }

    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match &step.action {
            Action::Sql(text) => {
                let name = self.name.take();
                self.world.sql(&self.file.source.name, step.line, text, name, false)
            }
            Action::Do(directive, block) => self.directive(directive, block, step.line),
        }
    }

    fn directive(&mut self, directive: &Directive, block: &Block, line: usize) -> Result<(), Stop> {
        let world = &mut self.world;
        match directive {
            // The reader has taken them.
            Directive::Test(_) => Ok(()),
            Directive::Query(name) => {
                world.check_free(name)?;
                self.name = Some(name.clone());
                Ok(())
            }
            Directive::Variable { name, value } => {
                world.set_variable(name, value);
                Ok(())
            }
            Directive::Include { path, tables_only } => {
                let name = self.name.take();
                world.include(&self.file.folder, path, name, *tables_only)
            }
            Directive::Clock(_) => world.check_clock(),
            Directive::Advance(us) => world.advance(*us),
            Directive::AdvanceTo(us) => world.advance_to(*us),
            Directive::Bounded(table) => world.check_bounded(table),
            Directive::Split(target) => world.add_split(target),
            Directive::Push(target) => {
                let lines: Vec<&str> = block.rows.iter().map(|(_, row)| row.as_str()).collect();
                world.give(target, FeedEvent::Lines(lines.join("\n")))
            }
            Directive::Watermark(target, us) => {
                world.check_watermark(target)?;
                world.give(target, FeedEvent::Watermark(Watermark(*us)))
            }
            Directive::Idle(target) => {
                world.check_unbounded(target)?;
                world.give(target, FeedEvent::Idle)
            }
            Directive::Wake(target) => world.give(target, FeedEvent::Active),
            Directive::Disconnect(target) => world.disconnect(target, true),
            Directive::Connect(target) => world.disconnect(target, false),
            Directive::End(target) => world.end(target.as_ref()),
            Directive::Hold(name) => world.hold(name.as_deref(), true),
            Directive::Release(name) => world.hold(name.as_deref(), false),
            Directive::Settle => world.settle(),
            Directive::ExpectError { code, words } => self.expect_error(code, words, line),
            Directive::ExpectRows { of, ordered } => self.expect_rows(of, *ordered, block),
            Directive::ExpectWatermark { of, is } => {
                let actual = match of {
                    WatermarkOf::Query(name) => world.job(name.as_deref())?.watermark(),
                    WatermarkOf::Table(target) => world.watermark(target)?,
                };
                let right = Directive::ExpectWatermark { of: of.clone(), is: actual };
                self.expect_line(*is == actual, &right, line, || {
                    format!("the watermark is {}, not {}", show_watermark(actual), show_watermark(*is))
                })
            }
            Directive::ExpectSplits { table, are } => {
                let actual = world.splits(table)?;
                let sorted = |splits: &[(String, String)]| {
                    let mut splits = splits.to_vec();
                    splits.sort();
                    splits
                };
                let right = Directive::ExpectSplits { table: table.clone(), are: actual.clone() };
                self.expect_line(sorted(are) == sorted(&actual), &right, line, || {
                    let actual: Vec<_> =
                        actual.iter().map(|(split, state)| format!("{split}={state}")).collect();
                    format!("the splits are {}", actual.join(" "))
                })
            }
            Directive::ExpectCounts { query, are } => {
                let summary = world.job(query.as_deref())?.summary();
                let actual: Vec<_> =
                    are.iter().map(|(name, _)| (name.clone(), count(&summary, name))).collect();
                let right = Directive::ExpectCounts { query: query.clone(), are: actual.clone() };
                self.expect_line(*are == actual, &right, line, || {
                    let wrong = are.iter().zip(&actual).filter(|(one, other)| one != other);
                    let wrong: Vec<_> = wrong
                        .map(|((name, is), (_, actual))| format!("{name} is {actual}, not {is}"))
                        .collect();
                    wrong.join(", ")
                })
            }
        }
    }

    /// Rows that come one push after another, with nothing between the pushes, come in any order that
    /// keeps the order of each split.
    fn push_together(&mut self, steps: &[&Step]) -> Result<(), Stop> {
        let mut queues: Vec<(&Target, Vec<&str>)> = Vec::new();
        for step in steps {
            let Action::Do(Directive::Push(target), block) = &step.action else { continue };
            let rows = block.rows.iter().map(|(_, row)| row.as_str());
            match queues.iter_mut().find(|(other, _)| *other == target) {
                Some((_, queue)) => queue.extend(rows),
                None => queues.push((target, rows.collect())),
            }
        }
        for (_, queue) in &mut queues {
            queue.reverse();
        }
        while !queues.is_empty() {
            let place = self.dice.draw(queues.len(), 0);
            let (target, queue) = &mut queues[place];
            let count = (1 + self.dice.draw(4, 0)).min(queue.len());
            let rows: Vec<&str> = queue.split_off(queue.len() - count).into_iter().rev().collect();
            let event = FeedEvent::Lines(rows.join("\n"));
            let is_done = queue.is_empty();
            match self.dice.draw(2, 0) {
                0 => self.world.lay(target, event)?,
                _ => self.world.give(target, event)?,
            }
            if is_done {
                queues.remove(place);
            }
        }
        self.world.settle()
    }

    fn expect_error(&mut self, code: &str, words: &[String], line: usize) -> Result<(), Stop> {
        let Some((_, error)) = self.refused.take() else {
            return Err(Stop::Failed(format!("there is no error {code}")));
        };
        let text = error.render();
        let is_so = error.code() == code && words.iter().all(|words| text.contains(words.as_str()));
        let right = Directive::ExpectError {
            code: error.code().to_owned(),
            words: words.iter().filter(|words| text.contains(words.as_str())).cloned().collect(),
        };
        self.expect_line(is_so, &right, line, || format!("the error is another one:\n{text}"))
    }

    fn expect_rows(&mut self, of: &RowsOf, ordered: bool, block: &Block) -> Result<(), Stop> {
        let (actual, schema, with_kinds) = match of {
            RowsOf::Query(name) => self.world.take_rows(name.as_deref())?,
            RowsOf::Table(table) => self.world.take_inserted(table)?,
        };
        let parsed: Result<Vec<Row>, String> = block
            .rows
            .iter()
            .map(|(line, row)| {
                expected_row(row, &schema).map_err(|why| format!("line {line} can't be a row of it: {why}"))
            })
            .collect();
        let ordered = ordered && self.seed == 0;
        let difference = match parsed {
            Ok(expected) => difference(&expected, &actual, ordered, with_kinds)
                .map(|difference| format!("the rows are others:\n{difference}")),
            Err(why) => Some(why),
        };
        let says_nothing = block.rows.is_empty() && !block.says_none;
        if self.bless {
            if difference.is_some() || says_nothing {
                let show = |row: &Row| if with_kinds { row.with_kind() } else { row.to_string() };
                let mut with: Vec<String> = actual.iter().map(show).collect();
                if with.is_empty() {
                    with.push(NO_ROWS.to_owned());
                }
                self.edits.push(Edit { lines: block.lines.clone(), with });
            }
            return Ok(());
        }
        match difference {
            Some(difference) => Err(Stop::Failed(difference)),
            None if says_nothing => {
                Err(Stop::Failed(format!("it does not say what is expected: {NO_ROWS}?")))
            }
            None => Ok(()),
        }
    }

    /// An expectation that is one line.
    fn expect_line(
        &mut self,
        is_so: bool,
        right: &Directive,
        line: usize,
        why: impl FnOnce() -> String,
    ) -> Result<(), Stop> {
        match (is_so, show(right)) {
            (true, _) => Ok(()),
            (false, Some(right)) if self.bless => {
                self.edits.push(Edit { lines: line - 1..line, with: vec![right] });
                Ok(())
            }
            (false, _) => Err(Stop::Failed(why())),
        }
    }
}

fn steps<'a>(file: &'a TestFile, test: &'a TestCase) -> impl Iterator<Item = &'a Step> {
    file.prelude.iter().chain(&test.steps)
}

fn is_push(step: &Step) -> bool {
    matches!(&step.action, Action::Do(Directive::Push(_), _))
}

fn count(summary: &JobSummary, name: &str) -> u64 {
    let counts = [
        summary.rows_in,
        summary.rows_out,
        summary.late,
        summary.partly_late,
        summary.null_time,
        summary.future,
        summary.malformed,
        summary.filtered,
    ];
    COUNTS.iter().zip(counts).find(|(known, _)| **known == name).map_or(0, |(_, count)| count)
}
