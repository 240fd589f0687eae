//! Simulation: a seed draws tables, a query, rows in disorder over several splits, idleness, cuts into
//! batches, a parallelism and an order of work. What comes out must be what an evaluation row by row
//! over the whole input gives, which shares no code with the engine.
//!
//! A failure names its seed. To run it alone:
//! `SIMULATION_SEED=123 cargo test --test simulation the_seed`

#[path = "simulation/case.rs"]
mod case;
#[path = "simulation/dice.rs"]
mod dice;
#[path = "simulation/evaluate.rs"]
mod evaluate;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use arrow::util::display::array_value_to_string;
use case::{Case, Event};
use dice::Dice;
use evaluate::{Answer, answer};
use tidegate::Error;
use tidegate::connector::{Connectors, Feed, FeedEvent, Memory};
use tidegate::runtime::Schedule;
use tidegate::session::{Session, SteppedHandle};
use tidegate::stream::{Clock, RowKind, VirtualClock};

#[test]
fn seeds_0_to_249() {
    run(0..250);
}

#[test]
fn seeds_250_to_499() {
    run(250..500);
}

#[test]
fn seeds_500_to_749() {
    run(500..750);
}

#[test]
fn seeds_750_to_999() {
    run(750..1_000);
}

/// The seed of the environment; 0 without.
#[test]
fn the_seed() {
    let seed = std::env::var("SIMULATION_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed = seed.unwrap_or(0);
    run(seed..seed + 1);
}

/// What is drawn is not all of one kind.
#[test]
fn the_cases_are_rich() {
    let answers: Vec<(Case, Answer)> =
        (0..200).map(Case::new).map(|case| (case.clone(), answer(&case))).collect();
    let count = |is: &dyn Fn(&Case, &Answer) -> bool| {
        answers.iter().filter(|(case, answer)| is(case, answer)).count()
    };
    assert!(count(&|_, answer| answer.late > 0) > 50);
    assert!(count(&|_, answer| answer.partly_late > 0) > 15);
    assert!(count(&|_, answer| answer.null_time > 0) > 50);
    assert!(count(&|_, answer| answer.rows.len() > 3) > 100);
    assert!(count(&|case, _| case.tables.len() == 2) > 30);
    assert!(count(&|case, _| case.outer_s.is_some()) > 20);
    assert!(count(&|case, _| case.zone.is_some()) > 10);
    assert!(count(&|case, _| case.bounded) > 40);
    assert!(count(&|case, _| case.parallelism > 1) > 50);
    assert!(count(&|case, _| case.changes) > 20);
    assert!(count(&|case, _| case.lateness_s > 0) > 12);
    let is_session = |case: &Case| matches!(case.window, case::Window::Session { .. });
    assert!(count(&|case, _| case.is_updating() && is_session(case)) > 10);
}

/// How a case is disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disorder {
    None,
    /// Now and then, also in the middle of the work, it is stopped, and another one goes on from its checkpoint, also
    /// with another parallelism.
    Stops,
    /// It crashes: another one goes on from a checkpoint that was taken some time before.
    Crashes,
}

fn run(seeds: Range<u64>) {
    let is_alone = seeds.clone().count() == 1;
    for seed in seeds {
        let case = Case::new(seed);
        let expected = answer(&case);
        let mut disorders = vec![Disorder::None];
        if is_alone || seed % 4 == 0 {
            disorders.push(Disorder::Stops);
        }
        if is_alone || seed % 4 == 2 {
            disorders.push(Disorder::Crashes);
        }
        for disorder in disorders {
            let given = engine(&case, disorder);
            let given = given.unwrap_or_else(|error| panic!("seed {seed}, {disorder:?}: {}", error.render()));
            assert!(
                given == expected,
                "seed {seed} gives another answer (disorder: {disorder:?}); run it alone with \
                 SIMULATION_SEED={seed} cargo test --test simulation the_seed\n{}{}\n{}\n{}",
                case.tables_sql(),
                case.query_sql(),
                if is_alone { format!("{case:#?}") } else { String::new() },
                difference(&expected, &given)
            );
        }
    }
}

fn difference(expected: &Answer, given: &Answer) -> String {
    let mut text = String::new();
    for row in expected.rows.iter().filter(|row| !given.rows.contains(row)) {
        text += &format!("- {row}\n");
    }
    for row in given.rows.iter().filter(|row| !expected.rows.contains(row)) {
        text += &format!("+ {row}\n");
    }
    let others = |answer: &Answer| {
        format!(
            "late {} partly_late {} null_time {} filtered {} late rows {:?}",
            answer.late, answer.partly_late, answer.null_time, answer.filtered, answer.late_rows
        )
    };
    text + &format!("expected {}\ngiven    {}", others(expected), others(given))
}

/// A case that runs.
struct Run<'a> {
    case: &'a Case,
    feed: Feed,
    clock: Arc<VirtualClock>,
    query: SteppedHandle,
    order: Order,
    rows: Vec<String>,
    dice: Dice,
    /// The checkpoint that a crash goes back to.
    saved: Option<Saved>,
}

/// A checkpoint, and what the query had given until then.
struct Saved {
    cut: Vec<u8>,
    order: Order,
    rows: Vec<String>,
    /// The events that had happened.
    events: usize,
    /// How often the job may still crash behind it.
    crashes: i64,
}

/// The answer of the engine.
fn engine(case: &Case, disorder: Disorder) -> Result<Answer, Error> {
    let feed = Feed::new();
    let mut connectors = Connectors::empty();
    connectors.add(Arc::new(feed.clone()));
    connectors.add(Arc::new(Memory::new()));
    let mut session = Session::with_connectors(connectors);
    let clock = Arc::new(VirtualClock::new(0));
    session.set_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    session.set("execution.batch-rows", &case.batch_rows.to_string())?;
    session.set("execution.parallelism", &case.parallelism.to_string())?;
    for table in &case.tables {
        if case.bounded {
            feed.bound(table.name);
        }
        (0..table.splits).for_each(|split| feed.add_split(table.name, &split_name(split)));
    }
    let query = start(&mut session, &(case.tables_sql() + &case.query_sql()), case.seed)?;
    let is_key =
        case.outer_s.is_none() && case.parallelism == 1 && disorder != Disorder::Stops && !case.is_updating();
    let order = Order { is_key, last: i64::MIN };
    let dice = Dice::new(case.seed ^ 0x0072_6573_7461_7274);
    let mut run = Run { case, feed, clock, query, order, rows: Vec::new(), dice, saved: None };
    run.query.settle()?;
    run.events(disorder)?;
    case.tables.iter().for_each(|table| run.feed.end(table.name));
    // To the end with a stop after each turn or some.
    while disorder == Disorder::Stops && !run.query.is_over() {
        let turns = 1 + run.dice.below(3);
        if !restart(&mut run.query, turns, &mut run.dice)? {
            break;
        }
    }
    while disorder == Disorder::Crashes && run.steps()? {
        run.checkpoint(case.events.len())?;
        run.steps()?;
        run.crash()?;
    }
    run.query.settle()?;
    run.take();
    if disorder == Disorder::Crashes && run.crash()? {
        run.query.settle()?;
        run.take();
    }
    let Run { query, rows, .. } = run;
    assert!(query.is_over(), "seed {}: the query has not ended", case.seed);
    let summary = query.summary();
    assert!(summary.reconciles(), "seed {}: rows are not accounted for", case.seed);
    let mut given = Answer { rows, late: summary.late, ..Answer::default() };
    given.partly_late = summary.partly_late;
    (given.null_time, given.filtered) = (summary.null_time, summary.filtered);
    given.late_rows = match case.keeps_late() {
        true => late_rows(&mut session, case.seed)?,
        false => answer(case).late_rows,
    };
    given.rows.sort();
    Ok(given)
}

fn split_name(split: usize) -> String {
    format!("split {split}")
}

impl Run<'_> {
    fn events(&mut self, disorder: Disorder) -> Result<(), Error> {
        let case = self.case;
        let mut next = 0;
        while let Some(event) = case.events.get(next) {
            self.give(event);
            next += 1;
            // Rows of tables that go on arrive in the order of the events; those of tables that end are all
            // there when somebody reads.
            if disorder == Disorder::Stops && self.dice.below(3) == 0 {
                let turns = self.dice.below(4);
                restart(&mut self.query, turns, &mut self.dice)?;
            }
            if disorder == Disorder::Crashes {
                if self.dice.one_in(3) {
                    self.steps()?;
                    self.checkpoint(next)?;
                } else if matches!(event, Event::Advance(_)) {
                    // Who was silent before the crash is not silent for as long again behind it.
                    self.saved = None;
                }
            }
            if !case.bounded {
                self.query.settle()?;
                self.take();
                self.query.check_counts()?;
            }
            if disorder == Disorder::Crashes && self.dice.one_in(4) {
                next = self.crash_between(next)?;
            }
        }
        Ok(())
    }

    /// Some pieces of work. Whether there was any.
    fn steps(&mut self) -> Result<bool, Error> {
        let mut worked = false;
        for _ in 0..1 + self.dice.below(20) {
            worked |= self.query.step()?;
        }
        Ok(worked)
    }

    fn give(&self, event: &Event) {
        let name = |table: usize| self.case.tables[table].name;
        match event {
            Event::Rows { table, split, rows } => {
                let lines: Vec<_> = rows.iter().map(|row| self.case.json(row)).collect();
                self.feed.give(name(*table), &split_name(*split), FeedEvent::Lines(lines.join("\n")));
            }
            Event::Advance(seconds) => self.clock.advance(Duration::from_secs(seconds.unsigned_abs())),
            Event::EndSplit { table, split } => {
                self.feed.give(name(*table), &split_name(*split), FeedEvent::End);
            }
        }
    }

    fn take(&mut self) {
        self.order.take(&mut self.query, &mut self.rows);
    }

    /// Keeps a checkpoint, if the query can be cut.
    fn checkpoint(&mut self, events: usize) -> Result<(), Error> {
        self.take();
        self.saved = match self.query.cut() {
            Err(error) if error.code() == "P002" => None,
            cut => Some(Saved {
                cut: cut?,
                order: self.order.clone(),
                rows: self.rows.clone(),
                events,
                crashes: 1 + self.dice.below(2),
            }),
        };
        Ok(())
    }

    /// Goes back to the last checkpoint. Whether there is one.
    fn crash(&mut self) -> Result<bool, Error> {
        let Some(saved) = &mut self.saved else { return Ok(false) };
        self.query.crash(&saved.cut)?;
        (self.order, self.rows) = (saved.order.clone(), saved.rows.clone());
        saved.crashes -= 1;
        if saved.crashes == 0 {
            self.saved = None;
        }
        Ok(true)
    }

    /// The same before the event `next` happens. The event that happens next then.
    ///
    /// In what order the splits of tables that go on are read is a function of when their rows come. So where there are
    /// several the events since the checkpoint happen again; otherwise all of their rows are there at once.
    fn crash_between(&mut self, next: usize) -> Result<usize, Error> {
        let Some(events) = self.saved.as_ref().map(|saved| saved.events) else { return Ok(next) };
        self.crash()?;
        let splits: usize = self.case.tables.iter().map(|table| table.splits).sum();
        if self.case.bounded || splits == 1 {
            return Ok(next);
        }
        for event in &self.case.events[events..next] {
            match event {
                Event::Rows { table, split, .. } | Event::EndSplit { table, split } => {
                    self.feed.take_back(self.case.tables[*table].name, &split_name(*split));
                }
                Event::Advance(_) => {}
            }
        }
        self.query.settle()?;
        Ok(events)
    }
}

/// Whether it could be.
fn restart(query: &mut SteppedHandle, turns: i64, dice: &mut Dice) -> Result<bool, Error> {
    let parallelism = [None, None, Some(1), Some(2), Some(4)][dice.below(5) as usize];
    match query.restart(turns as usize, parallelism) {
        Err(error) if error.code() == "P002" => Ok(false),
        restarted => restarted.map(|()| true),
    }
}

/// Windows come out in the order of their ends.
#[derive(Clone)]
struct Order {
    is_key: bool,
    last: i64,
}

impl Order {
    fn take(&mut self, query: &mut SteppedHandle, into: &mut Vec<String>) {
        for batch in query.take_rows() {
            let rows = &batch.rows;
            for row in 0..rows.num_rows() {
                let end = milliseconds(rows, 1, row);
                assert!(
                    !self.is_key || end >= self.last,
                    "a window of {end} comes after one of {}",
                    self.last
                );
                self.last = end;
                let mut line = format!("{}|{end}", milliseconds(rows, 0, row));
                for column in &rows.columns()[2..] {
                    let value = match column.is_null(row) {
                        true => String::new(),
                        false => array_value_to_string(column, row).expect("a value has a text"),
                    };
                    line += &format!("|{value}");
                }
                match batch.kinds.as_ref().map_or(RowKind::Insert, |kinds| kinds.values()[row]) {
                    RowKind::Insert | RowKind::UpdateAfter => into.push(line),
                    RowKind::UpdateBefore | RowKind::Delete => {
                        let place = into.iter().rposition(|held| *held == line);
                        into.remove(place.expect("what is taken away was given"));
                    }
                }
            }
        }
    }
}

fn milliseconds(rows: &RecordBatch, column: usize, row: usize) -> i64 {
    let column = cast(rows.column(column), &DataType::Int64).expect("times are numbers");
    column.as_primitive::<Int64Type>().value(row)
}

fn late_rows(session: &mut Session, seed: u64) -> Result<Vec<(i64, &'static str)>, Error> {
    let mut query = start(session, "SELECT id, late_reason FROM late;", seed)?;
    query.settle()?;
    let mut late = Vec::new();
    for batch in query.take_rows() {
        let ids = batch.rows.column(0).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let reason = array_value_to_string(batch.rows.column(1), row).expect("a reason is a text");
            let reason = ["late", "null_time"].into_iter().find(|known| *known == reason);
            late.push((ids.value(row), reason.expect("a known reason")));
        }
    }
    late.sort();
    Ok(late)
}

/// Does the statements of a script; the last is the query.
fn start(session: &mut Session, sql: &str, seed: u64) -> Result<SteppedHandle, Error> {
    let mut query = None;
    for statement in session.parse("simulation", sql)? {
        query = session.start_stepped(&statement, Schedule::new(seed))?;
        if query.is_none() {
            session.execute(&statement)?;
        }
    }
    Ok(query.expect("the last statement is a query"))
}
