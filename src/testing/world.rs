//! What a test works on: a session, its tables, a clock, and the jobs that run.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{Schema, SchemaRef};

use super::directive::{Directive, Target};
use super::file::{Action, Step};
use super::rows::{Row, rows_of};
use super::run::Stop;
use super::time::show_time;
use crate::catalog::{Relation, Table};
use crate::connector::format::options::{JSON_KEYS, TEXT_KEYS};
use crate::connector::{Connectors, Feed, FeedEvent, INGESTION_TIME, Memory};
use crate::error::{Error, Span, code, did_you_mean};
use crate::runtime::Schedule;
use crate::session::{Outcome, Session, SteppedHandle};
use crate::sql::{CreateTable, Key, SpannedStatement, Statement, TableOption, Variables};
use crate::stream::{Clock, VirtualClock, Watermark};

/// The options of a table that a test keeps; all others are those of its connector or format.
const KEPT_PREFIX: &str = "scan.watermark.";
/// Options of other formats that mean the same for JSON.
const RENAMED: [(&str, &str); 2] = [
    ("csv.ignore-parse-errors", "json.ignore-parse-errors"),
    ("csv.timestamp-format", "json.timestamp-format"),
];

/// See the module.
pub(super) struct World {
    session: Session,
    feed: Feed,
    clock: Arc<VirtualClock>,
    jobs: Vec<Job>,
    /// Zero: all in turn.
    seed: u64,
    /// Tables that end, and splits that are there from the start, as the test calls the tables.
    bounded: Vec<String>,
    splits: Vec<(String, String)>,
    variables: Variables,
    /// Tables and splits that are at an end.
    ended: BTreeSet<(String, Option<String>)>,
    /// When jobs are stopped, and go on from a checkpoint; `None`: never.
    restarts: Option<Schedule>,
}

/// A query or inserts that run.
struct Job {
    name: Option<String>,
    handle: SteppedHandle,
    /// What the query has given and no test has seen.
    rows: Vec<Row>,
    failed: bool,
}

impl World {
    /// A new session. `steps`: all of the test, to know its clock and its tables' splits beforehand.
    pub(super) fn new<'a>(steps: impl Iterator<Item = &'a Step>, seed: u64, dice: &mut Schedule) -> Self {
        let (mut start_us, mut bounded) = (0, Vec::new());
        let (mut used, mut late) = (Vec::new(), Vec::new());
        for step in steps {
            let Action::Do(directive, _) = &step.action else { continue };
            match directive {
                Directive::Clock(us) => start_us = *us,
                Directive::Bounded(table) => bounded.push(table.clone()),
                Directive::Split(target) => late.extend(named(target)),
                Directive::Push(target)
                | Directive::Watermark(target, _)
                | Directive::Idle(target)
                | Directive::Wake(target)
                | Directive::Disconnect(target)
                | Directive::Connect(target)
                | Directive::End(Some(target)) => used.extend(named(target)),
                _ => {}
            }
        }
        used.retain(|split| !late.contains(split));
        let feed = Feed::new();
        let mut connectors = Connectors::empty();
        connectors.add(Arc::new(feed.clone()));
        connectors.add(Arc::new(Memory::new()));
        let mut session = Session::with_connectors(connectors);
        let clock = Arc::new(VirtualClock::new(start_us));
        session.set_clock(Arc::clone(&clock) as Arc<dyn Clock>);
        let batch_rows = [8_192, 1, 2, 3, 7][dice.draw(5, 0)];
        let parallelism = [1, 2, 3][dice.draw(3, 0)];
        let settings = [("execution.batch-rows", batch_rows), ("execution.parallelism", parallelism)];
        for (key, value) in settings {
            session.set(key, &value.to_string()).expect("the settings are there and take these values");
        }
        let (jobs, variables, ended) = (Vec::new(), Variables::default(), BTreeSet::new());
        let restarts = (seed % 2 == 1).then(|| Schedule::new(seed));
        Self { session, feed, clock, jobs, seed, bounded, splits: used, variables, ended, restarts }
    }

    /// Does statements that begin at `line` of a file.
    pub(super) fn sql(
        &mut self,
        file: &str,
        line: usize,
        text: &str,
        name: Option<String>,
        tables_only: bool,
    ) -> Result<(), Stop> {
        let text = "\n".repeat(line - 1) + text;
        let mut name = name;
        for statement in self.session.parse(file, &text)? {
            let runs = matches!(
                statement.statement,
                Statement::Query(_) | Statement::Insert(_) | Statement::StatementSet(_)
            );
            if !(runs && tables_only) {
                self.statement(statement, &mut name)?;
            }
        }
        self.settle()?;
        match name {
            None => Ok(()),
            Some(name) => Err(Stop::Failed(format!("no statement runs as query {name}"))),
        }
    }

    pub(super) fn include(
        &mut self,
        folder: &Path,
        path: &str,
        name: Option<String>,
        tables_only: bool,
    ) -> Result<(), Stop> {
        let path = folder.join(path);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Stop::Failed(format!("can't read \"{}\": {error}", path.display())))?;
        let (file, dir) = (path.display().to_string(), path.parent().unwrap_or(Path::new(".")));
        let text = self.variables.with_dir(&dir.to_string_lossy()).replace(&file, &text).map_err(
            |error| match error.hint_text().is_some_and(|hint| hint.starts_with("Pass -D")) {
                true => error.hint("Write variable NAME \"value\" above the include."),
                false => error,
            },
        )?;
        self.sql(&file, 1, &text, name, tables_only)
    }

    /// A value for `${name}` in the scripts that are included from here on.
    pub(super) fn set_variable(&mut self, name: &str, value: &str) {
        self.variables.set(name, value);
    }

    fn statement(&mut self, statement: SpannedStatement, name: &mut Option<String>) -> Result<(), Stop> {
        let mut statement = statement;
        if let Statement::CreateTable(create) = &mut statement.statement {
            self.prepare(create, statement.span);
        }
        let schedule = Schedule::new(self.seed);
        if let Some(handle) = self.session.start_stepped(&statement, schedule)? {
            self.jobs.push(Job { name: name.take(), handle, rows: Vec::new(), failed: false });
            return Ok(());
        }
        match self.session.execute(&statement)? {
            Outcome::Done(_) => Ok(()),
            Outcome::Rows(_) | Outcome::Text(_) | Outcome::Query(_) | Outcome::Insert(_) => {
                Err("what this statement shows can't be expected: leave it out".to_owned().into())
            }
        }
    }

    /// The table is the test's own, whatever connector it has elsewhere.
    fn prepare(&mut self, create: &mut CreateTable, span: Span) {
        create.options.retain_mut(|option| {
            let key = option.key.name.as_str();
            let renamed = RENAMED.iter().find(|(name, _)| *name == key).map(|(_, renamed)| *renamed);
            let is_kept =
                key.starts_with(KEPT_PREFIX) || TEXT_KEYS.contains(&key) || JSON_KEYS.contains(&key);
            if let Some(renamed) = renamed {
                option.key.name = renamed.to_owned();
            }
            is_kept || renamed.is_some()
        });
        let key = Key { name: "connector".to_owned(), span };
        create.options.push(TableOption { key, value: "feed".to_owned(), value_span: span });
        let Some(name) =
            create.name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.clone())
        else {
            return;
        };
        if self.bounded.iter().any(|table| table.eq_ignore_ascii_case(&name)) {
            self.feed.bound(&name);
        }
        for (_, split) in self.splits.iter().filter(|(table, _)| table.eq_ignore_ascii_case(&name)) {
            self.feed.add_split(&name, split);
        }
    }

    /// Lets all jobs work until there is nothing more to do.
    pub(super) fn settle(&mut self) -> Result<(), Stop> {
        loop {
            let mut worked = false;
            for job in self.jobs.iter_mut().filter(|job| !job.failed) {
                let settled = match &mut self.restarts {
                    Some(dice) => resumed(&mut job.handle, dice).and_then(|()| job.handle.settle()),
                    None => job.handle.settle(),
                };
                for batch in job.handle.take_rows() {
                    job.rows.extend(rows_of(&batch)?);
                }
                job.failed = settled.is_err();
                worked |= settled?;
            }
            if !worked {
                break;
            }
        }
        self.check_counts()
    }

    /// Every row is accounted for, at all times.
    fn check_counts(&self) -> Result<(), Stop> {
        for job in self.jobs.iter().filter(|job| !job.failed) {
            job.handle.check_counts()?;
        }
        Ok(())
    }

    /// The query or the inserts of that name; the last ones without a name.
    pub(super) fn job(&self, name: Option<&str>) -> Result<&SteppedHandle, Stop> {
        Ok(&self.jobs[self.place(name, |_| true)?].handle)
    }

    fn place(&self, name: Option<&str>, fits: impl Fn(&Job) -> bool) -> Result<usize, Stop> {
        let found = match name {
            Some(name) => self.jobs.iter().position(|job| job.name.as_deref() == Some(name)),
            None => self.jobs.iter().rposition(fits),
        };
        found.ok_or_else(|| match name {
            Some(name) => format!("there is no query {name}").into(),
            None => "no query runs".to_owned().into(),
        })
    }

    pub(super) fn check_free(&self, name: &str) -> Result<(), Stop> {
        match self.jobs.iter().any(|job| job.name.as_deref() == Some(name)) {
            true => Err(Stop::Failed(format!("there is a query {name} already"))),
            false => Ok(()),
        }
    }

    /// The rows of a query that no test has seen yet, their columns, and whether they have kinds.
    pub(super) fn take_rows(&mut self, name: Option<&str>) -> Result<(Vec<Row>, SchemaRef, bool), Stop> {
        let place = self.place(name, |job| job.handle.schema().is_some())?;
        let job = &mut self.jobs[place];
        match job.handle.schema() {
            Some(schema) => Ok((std::mem::take(&mut job.rows), Arc::clone(schema), job.handle.is_updating())),
            None => Err("it inserts: write expect table NAME".to_owned().into()),
        }
    }

    /// The same of a table that is written.
    pub(super) fn take_inserted(&mut self, table: &str) -> Result<(Vec<Row>, SchemaRef, bool), Stop> {
        let table = self.table(table)?;
        let batches = self.feed.take_inserted(&table.name);
        let schema = batches.first().map_or_else(|| written(&table), |batch| batch.rows.schema());
        let has_kinds = batches.iter().any(|batch| batch.kinds.is_some());
        let rows = batches.iter().map(rows_of).collect::<Result<Vec<_>, _>>()?;
        Ok((rows.into_iter().flatten().collect(), schema, has_kinds))
    }

    fn table(&self, name: &str) -> Result<Arc<Table>, Stop> {
        let relations = || self.session.catalog().relations();
        let found = relations().find(|relation| relation.name() == name);
        let found = found.or_else(|| relations().find(|relation| relation.name().eq_ignore_ascii_case(name)));
        match found {
            Some(Relation::Table(table)) if table.connector == "feed" => Ok(Arc::clone(table)),
            Some(Relation::Table(_)) => {
                Err(Stop::Failed(format!("\"{name}\" is a side table: read it with SELECT * FROM {name};")))
            }
            Some(Relation::View(_)) => Err(Stop::Failed(format!("\"{name}\" is a view"))),
            None => {
                let near = did_you_mean(name, relations().map(Relation::name));
                let near = near.map(|near| format!(", but a \"{near}\"")).unwrap_or_default();
                Err(Stop::Failed(format!("there is no table \"{name}\"{near}")))
            }
        }
    }

    /// The table and the split that are meant.
    fn split(&self, target: &Target) -> Result<(Arc<Table>, String), Stop> {
        let table = self.table(&target.table)?;
        if let Some(split) = &target.split {
            return Ok((table, split.clone()));
        }
        let has_splits = self.splits.iter().any(|(name, _)| name.eq_ignore_ascii_case(&table.name));
        if has_splits {
            return Err(Stop::Failed(format!("\"{}\" has several splits: write split NAME", table.name)));
        }
        let name = table.name.clone();
        Ok((table, name))
    }

    /// Lets something come out of a split, and the jobs work on it.
    pub(super) fn give(&mut self, target: &Target, event: FeedEvent) -> Result<(), Stop> {
        self.lay(target, event)?;
        self.settle()
    }

    /// The same without work.
    pub(super) fn lay(&mut self, target: &Target, event: FeedEvent) -> Result<(), Stop> {
        let (table, split) = self.split(target)?;
        if self.ended.contains(&(table.name.clone(), None))
            || self.ended.contains(&(table.name.clone(), Some(split.clone())))
        {
            return Err(Stop::Failed(format!("\"{split}\" is at its end")));
        }
        self.feed.give(&table.name, &split, event);
        Ok(())
    }

    pub(super) fn add_split(&mut self, target: &Target) -> Result<(), Stop> {
        let (table, split) = self.split(target)?;
        self.feed.add_split(&table.name, &split);
        self.splits.push((table.name.clone(), split));
        self.settle()
    }

    pub(super) fn disconnect(&mut self, target: &Target, disconnected: bool) -> Result<(), Stop> {
        let (table, split) = self.split(target)?;
        self.feed.disconnect(&table.name, &split, disconnected);
        self.settle()
    }

    pub(super) fn end(&mut self, target: Option<&Target>) -> Result<(), Stop> {
        match target {
            Some(target) if target.split.is_some() => {
                let (table, split) = self.split(target)?;
                self.lay(target, FeedEvent::End)?;
                self.ended.insert((table.name.clone(), Some(split)));
            }
            Some(target) => {
                let table = self.table(&target.table)?;
                if !self.ended.insert((table.name.clone(), None)) {
                    return Err(Stop::Failed(format!("\"{}\" is at its end", table.name)));
                }
                self.feed.end(&table.name);
            }
            None => {
                let fed = |relation: &Relation| match relation {
                    Relation::Table(table) if table.connector == "feed" => Some(table.name.clone()),
                    Relation::Table(_) | Relation::View(_) => None,
                };
                let tables: Vec<String> = self.session.catalog().relations().filter_map(fed).collect();
                for table in tables {
                    if self.ended.insert((table.clone(), None)) {
                        self.feed.end(&table);
                    }
                }
            }
        }
        self.settle()
    }

    pub(super) fn hold(&mut self, name: Option<&str>, hold: bool) -> Result<(), Stop> {
        let place = self.place(name, |job| job.handle.schema().is_some())?;
        self.jobs[place].handle.hold(hold);
        self.settle()
    }

    pub(super) fn advance(&mut self, us: i64) -> Result<(), Stop> {
        let end_us = self.clock.elapsed_us().saturating_add(us);
        let moved = self.stop_at_deadlines(end_us);
        // The clock comes to its end also where something has failed on the way.
        self.move_clock(end_us);
        moved.and_then(|()| self.settle())
    }

    /// Lets time pass from one moment to the next at which it changes something, in their order.
    fn stop_at_deadlines(&mut self, end_us: i64) -> Result<(), Stop> {
        let due = |job: &Job| job.handle.next_due_us();
        while let Some(due_us) = self.jobs.iter().filter(|job| !job.failed).filter_map(due).min()
            && due_us < end_us
        {
            self.move_clock(due_us);
            self.settle()?;
        }
        Ok(())
    }

    fn move_clock(&self, to_us: i64) {
        let left_us = to_us.saturating_sub(self.clock.elapsed_us()).max(0);
        self.clock.advance(Duration::from_micros(left_us.unsigned_abs()));
    }

    pub(super) fn advance_to(&mut self, us: i64) -> Result<(), Stop> {
        let now_us = self.clock.wall_us();
        match us.checked_sub(now_us).filter(|left| *left >= 0) {
            Some(left) => self.advance(left),
            None => Err(Stop::Failed(format!("the clock shows {} already", show_time(now_us)))),
        }
    }

    pub(super) fn check_clock(&self) -> Result<(), Stop> {
        match self.jobs.is_empty() {
            true => Ok(()),
            false => {
                Err("the clock must be set before the first query: write advance to TIME".to_owned().into())
            }
        }
    }

    pub(super) fn check_bounded(&self, table: &str) -> Result<(), Stop> {
        match self.table(table) {
            Ok(_) => Err(Stop::Failed(format!("bounded {table} must stand before the table is created"))),
            Err(_) => Ok(()),
        }
    }

    pub(super) fn check_unbounded(&self, target: &Target) -> Result<(), Stop> {
        match self.table(&target.table)?.bounded {
            false => Ok(()),
            true => Err("a table that ends is never idle".to_owned().into()),
        }
    }

    pub(super) fn check_watermark(&self, target: &Target) -> Result<(), Stop> {
        let table = self.table(&target.table)?;
        match table.watermark {
            Some(_) => Ok(()),
            None => Err(Stop::Failed(format!("\"{}\" declares no WATERMARK", table.name))),
        }
    }

    /// The watermark of a table or a split, as the last job reads it that reads it.
    pub(super) fn watermark(&self, target: &Target) -> Result<Option<Watermark>, Stop> {
        let table = self.table(&target.table)?;
        let mut handles = self.jobs.iter().rev().map(|job| &job.handle);
        let unread = || Stop::Failed(format!("no query reads \"{}\"", table.name));
        match &target.split {
            None => handles.find_map(|handle| handle.table_watermark(&table.name)).ok_or_else(unread),
            Some(split) => {
                let source = format!("Source({})", table.name);
                let mut splits = handles.flat_map(SteppedHandle::splits);
                let found = splits.find(|status| status.source == source && status.split == *split);
                found.map(|status| status.watermark).ok_or_else(unread)
            }
        }
    }

    /// The splits of a table and their states.
    pub(super) fn splits(&self, table: &str) -> Result<Vec<(String, String)>, Stop> {
        let table = self.table(table)?;
        let source = format!("Source({})", table.name);
        for job in self.jobs.iter().rev() {
            let splits = job.handle.splits().into_iter().filter(|status| status.source == source);
            let show = |idle: bool| if idle { ",idle" } else { "" };
            let states: Vec<_> = splits
                .map(|status| (status.split.clone(), format!("{}{}", status.state.name(), show(status.idle))))
                .collect();
            if !states.is_empty() {
                return Ok(states);
            }
        }
        Err(Stop::Failed(format!("no query reads \"{}\"", table.name)))
    }

    /// What a test has not looked at.
    pub(super) fn left_over(&self) -> Option<String> {
        let job = self.jobs.iter().find(|job| !job.rows.is_empty());
        if let Some(job) = job {
            let name = job.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
            let rows: Vec<String> = job.rows.iter().map(|row| format!("\n    {row}")).collect();
            return Some(format!("nothing expects these rows of the query{name}:{}", rows.concat()));
        }
        let table = self.feed.untaken().into_iter().next();
        table.map(|table| format!("nothing expects the rows that are inserted into \"{table}\""))
    }
}

/// Stops a job now and then, also in the middle of its work, and lets it go on from a checkpoint, also with
/// other subtasks.
fn resumed(job: &mut SteppedHandle, dice: &mut Schedule) -> Result<(), Error> {
    if dice.draw(2, 0) == 1 {
        return Ok(());
    }
    let turns = dice.draw(4, 0);
    let parallelism = [None, None, Some(1), Some(2), Some(3)][dice.draw(5, 0)];
    match job.restart(turns, parallelism) {
        // It has something that can't be part of a checkpoint.
        Err(error) if error.code() == code::NOT_SUPPORTED.0 => Ok(()),
        restarted => restarted,
    }
}

fn named(target: &Target) -> Option<(String, String)> {
    Some((target.table.clone(), target.split.clone()?))
}

/// The columns of a table that are written.
fn written(table: &Table) -> SchemaRef {
    let kinds = table.columns.iter().map(|column| &column.kind);
    let schema = table.schema();
    let fields = schema.fields().iter().zip(kinds).filter(|(_, kind)| match kind {
        crate::catalog::ColumnKind::Physical => true,
        crate::catalog::ColumnKind::Computed { .. } | crate::catalog::ColumnKind::ProcessingTime => false,
        crate::catalog::ColumnKind::Metadata { is_virtual, key } => !is_virtual && key != INGESTION_TIME,
    });
    Arc::new(Schema::new(fields.map(|(field, _)| Arc::clone(field)).collect::<Vec<_>>()))
}
