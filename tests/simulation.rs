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

fn run(seeds: Range<u64>) {
    let is_alone = seeds.clone().count() == 1;
    for seed in seeds {
        let case = Case::new(seed);
        let expected = answer(&case);
        // One seed in four is run with stops, too.
        for restarts in [false, true].into_iter().filter(|restarts| !restarts || is_alone || seed % 4 == 0) {
            let given = engine(&case, restarts);
            let given =
                given.unwrap_or_else(|error| panic!("seed {seed}, restarts {restarts}: {}", error.render()));
            assert!(
                given == expected,
                "seed {seed} gives another answer (restarts: {restarts}); run it alone with \
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

/// The answer of the engine. `restarts`: now and then, also in the middle of the work, it is stopped, and another
/// one goes on from its checkpoint, also with another parallelism.
fn engine(case: &Case, restarts: bool) -> Result<Answer, Error> {
    let mut dice = Dice::new(case.seed ^ 0x0072_6573_7461_7274);
    let feed = Feed::new();
    let mut connectors = Connectors::empty();
    connectors.add(Arc::new(feed.clone()));
    connectors.add(Arc::new(Memory::new()));
    let mut session = Session::with_connectors(connectors);
    let clock = Arc::new(VirtualClock::new(0));
    session.set_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    session.set("execution.batch-rows", &case.batch_rows.to_string())?;
    session.set("execution.parallelism", &case.parallelism.to_string())?;
    let split_name = |split: usize| format!("split {split}");
    for table in &case.tables {
        if case.bounded {
            feed.bound(table.name);
        }
        (0..table.splits).for_each(|split| feed.add_split(table.name, &split_name(split)));
    }
    let mut query = start(&mut session, &(case.tables_sql() + &case.query_sql()), case.seed)?;
    let is_key = case.outer_s.is_none() && case.parallelism == 1 && !restarts && !case.is_updating();
    let mut order = Order { is_key, last: i64::MIN };
    let mut given = Answer::default();
    query.settle()?;
    for event in &case.events {
        match event {
            Event::Rows { table, split, rows } => {
                let lines: Vec<_> = rows.iter().map(|row| case.json(row)).collect();
                feed.give(case.tables[*table].name, &split_name(*split), FeedEvent::Lines(lines.join("\n")));
            }
            Event::Advance(seconds) => clock.advance(Duration::from_secs(seconds.unsigned_abs())),
            Event::EndSplit { table, split } => {
                feed.give(case.tables[*table].name, &split_name(*split), FeedEvent::End);
            }
        }
        // Rows of tables that go on arrive in the order of the events; those of tables that end are all
        // there when somebody reads.
        if restarts && dice.below(3) == 0 {
            let turns = dice.below(4);
            restart(&mut query, turns, &mut dice)?;
        }
        if !case.bounded {
            query.settle()?;
            order.take(&mut query, &mut given.rows);
            query.check_counts()?;
        }
    }
    case.tables.iter().for_each(|table| feed.end(table.name));
    // To the end with a stop after each turn or some.
    while restarts && !query.is_over() {
        let turns = 1 + dice.below(3);
        if !restart(&mut query, turns, &mut dice)? {
            break;
        }
    }
    query.settle()?;
    order.take(&mut query, &mut given.rows);
    assert!(query.is_over(), "seed {}: the query has not ended", case.seed);
    let summary = query.summary();
    assert!(summary.reconciles(), "seed {}: rows are not accounted for", case.seed);
    (given.late, given.partly_late) = (summary.late, summary.partly_late);
    (given.null_time, given.filtered) = (summary.null_time, summary.filtered);
    given.late_rows = match case.keeps_late() {
        true => late_rows(&mut session, case.seed)?,
        false => answer(case).late_rows,
    };
    given.rows.sort();
    Ok(given)
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
