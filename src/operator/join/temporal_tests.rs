//! Temporal joins against an evaluation row by row.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion_expr::Operator as Comparison;
use datafusion_physical_expr::expressions::{BinaryExpr, Column};
use proptest::prelude::*;

use crate::operator::testing::{
    MS, Row, drain, input, plan_node, respread, running, some_rows, stream_batch, three_parts,
};
use crate::operator::{Operator, Output, RowCounts, create};
use crate::plan::{ExprRef, JoinKind, Operation, PlanNode, TemporalJoinNode};
use crate::stream::{TimeUnit, Watermark};

fn columns() -> Vec<Field> {
    input().fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect()
}

/// The condition, where there is one: the value of the row is above that of the version.
fn join(kind: JoinKind, with_condition: bool) -> Box<dyn Operator> {
    create(&node(kind, with_condition), &input()).unwrap()
}

fn node(kind: JoinKind, with_condition: bool) -> PlanNode {
    let pair: SchemaRef = Arc::new(Schema::new([columns(), columns()].concat()));
    let more: ExprRef = Arc::new(BinaryExpr::new(
        Arc::new(Column::new("v", 2)),
        Comparison::Gt,
        Arc::new(Column::new("v", 5)),
    ));
    let node = TemporalJoinNode {
        kind,
        times: [0, 0],
        unit: TimeUnit::Millisecond,
        keys: [vec![1], vec![1]],
        condition: with_condition.then_some(more),
        pair: Arc::clone(&pair),
        first_width: 3,
    };
    plan_node(Operation::TemporalJoin(Box::new(node)), pair)
}

/// Runs rows cut in groups of `cut`; of a group the rows of one input come first, then a watermark.
fn run(
    join: &mut dyn Operator,
    rows: &[(usize, Row)],
    delay: i64,
    cut: usize,
    second_first: bool,
) -> (Vec<String>, RowCounts) {
    let before = running(&rows.iter().map(|row| row.1).collect::<Vec<_>>(), delay);
    let (mut out, mut given, mut last) = (Output::default(), Vec::new(), i64::MIN);
    for from in (0..rows.len()).step_by(cut) {
        let to = rows.len().min(from + cut);
        for input in if second_first { [1, 0] } else { [0, 1] } {
            let own: Vec<usize> = (from..to).filter(|row| rows[*row].0 == input).collect();
            let batch: Vec<Row> = own.iter().map(|row| rows[*row].1).collect();
            let running: Vec<i64> = own.iter().map(|row| before[*row]).collect();
            match input {
                0 => join.process_batch(stream_batch(&batch, &running), &mut out).unwrap(),
                _ => join.process_second(stream_batch(&batch, &running), &mut out).unwrap(),
            }
        }
        if before[to] > last {
            last = before[to];
            join.process_watermark(Watermark(last), &mut out).unwrap();
        }
        drain(&mut out, &mut given);
    }
    join.process_watermark(Watermark::MAX, &mut out).unwrap();
    join.finish(&mut out).unwrap();
    drain(&mut out, &mut given);
    (values(&given), out.counts)
}

/// The values of the rows of a result.
fn values(lines: &[String]) -> Vec<String> {
    let values = |line: &String| {
        let cells: Vec<&str> = line.split(',').collect();
        format!("{},{}", cells[2], cells[5])
    };
    lines.iter().map(values).collect()
}

/// One row or version that was taken.
#[derive(Clone, Copy)]
struct Taken {
    input: usize,
    time: i64,
    key: Option<&'static str>,
    value: i64,
    /// It is valid, or was given.
    is_done: bool,
    /// The version that a row was given with.
    version: Option<i64>,
}

/// What the rules of the manual say, by looking at all rows that were taken each time.
#[derive(Default)]
struct Naive {
    taken: Vec<Taken>,
    given: Vec<String>,
    late: u64,
}

impl Naive {
    /// Gives what the watermark has passed: by time, versions first, as they came.
    fn advance(&mut self, watermark: i64, kind: JoinKind, with_condition: bool) {
        let passed = |taken: &Taken| !taken.is_done && taken.time.saturating_mul(MS) <= watermark;
        let mut due: Vec<usize> = (0..self.taken.len()).filter(|one| passed(&self.taken[*one])).collect();
        due.sort_by_key(|one| (self.taken[*one].time, 1 - self.taken[*one].input, *one));
        for one in due {
            let row = self.taken[one];
            self.taken[one].is_done = true;
            if row.input == 1 {
                continue;
            }
            let versions = self.taken.iter().enumerate().filter(|(_, version)| {
                version.input == 1 && version.is_done && row.key.is_some() && version.key == row.key
            });
            let valid = versions.filter(|(_, version)| version.time <= row.time);
            let version = valid.max_by_key(|(place, version)| (version.time, *place)).map(|(_, v)| v.value);
            self.taken[one].version = version;
            let met = version.filter(|version| !with_condition || row.value > *version);
            match met {
                Some(version) => self.given.push(format!("{},{version}", row.value)),
                None if kind == JoinKind::Left => self.given.push(format!("{},NULL", row.value)),
                None => {}
            }
        }
    }

    /// Takes a row, or finds it late.
    fn take(&mut self, input: usize, (time, key, value): Row, kind: JoinKind) {
        let (time, value) = (time.unwrap(), value.unwrap());
        if key.is_none() && (input == 1 || kind == JoinKind::Inner) {
            return;
        }
        let done = self.taken.iter().filter(|one| one.is_done && key.is_some() && one.key == key);
        let is_late = match input {
            // A row of its key, at its time or later, has got another version already.
            1 => done.clone().any(|row| row.input == 0 && row.time >= time && row.version.is_some()),
            // There was a version before the one that is kept, and it would need that.
            _ => {
                let versions: Vec<i64> = done.filter(|one| one.input == 1).map(|one| one.time).collect();
                versions.len() > 1 && versions.iter().max().is_some_and(|from| time < *from)
            }
        };
        self.late += u64::from(is_late);
        if !is_late {
            self.taken.push(Taken { input, time, key, value, is_done: false, version: None });
        }
    }
}

/// The rows that come out, in order, and the number of late rows.
fn expected(rows: &[(usize, Row)], delay: i64, kind: JoinKind, with_condition: bool) -> (Vec<String>, u64) {
    let before = running(&rows.iter().map(|row| row.1).collect::<Vec<_>>(), delay);
    // Rows with the same watermark before them: those of the first input first.
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|row| (before[*row], rows[*row].0));
    let mut naive = Naive::default();
    for row in order {
        naive.advance(before[row], kind, with_condition);
        naive.take(rows[row].0, rows[row].1, kind);
    }
    naive.advance(i64::MAX, kind, with_condition);
    (naive.given, naive.late)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_307),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_cut_gives_the_versions_of_the_rules(
        jitter in prop::collection::vec((0usize..2, 0i64..12, 0usize..4), 0..40),
        delay in 0i64..6,
        (is_left, with_condition) in any::<(bool, bool)>(),
        (cut, second_first) in (1usize..20, any::<bool>()),
    ) {
        let keys = [Some("a"), Some("b"), Some("c"), None];
        // Values are in no order, so that a condition is sometimes met.
        let rows: Vec<(usize, Row)> = (0i64..)
            .zip(&jitter)
            .map(|(row, (input, jitter, key))| (*input, (Some(row / 2 - jitter), keys[*key], Some(row * 7 % 41))))
            .collect();
        let kind = if is_left { JoinKind::Left } else { JoinKind::Inner };
        let (given, counts) = run(join(kind, with_condition).as_mut(), &rows, delay, cut, second_first);
        let (expected, late) = expected(&rows, delay, kind, with_condition);
        prop_assert_eq!(given, expected);
        prop_assert_eq!((counts.late, counts.held), (late, 0));
    }
}

#[test]
fn other_numbers_of_subtasks_take_up_the_state() {
    let rows = some_rows(240);
    for (kind, with_condition) in [(JoinKind::Left, false), (JoinKind::Inner, false), (JoinKind::Left, true)]
    {
        let parts = three_parts(&rows, 2, 5);
        let mut given = values(&respread(&node(kind, with_condition), &input(), [&[1], &[1]], &parts));
        let mut expected = expected(&rows, 2, kind, with_condition).0;
        given.sort();
        expected.sort();
        assert_eq!(given, expected, "{kind:?}");
    }
}
