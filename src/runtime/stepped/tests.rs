//! What a job gives and leaves when its caller does all the work.

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;

use super::super::channel::lock;
use super::super::tests::{Step, Test, node, plan, rows, source, table};
use super::*;
use crate::error::Phase;
use crate::plan::{Operation, SinkTarget};

const SEEDS: std::ops::Range<u64> = 0..50;

fn start(test: &Test, target: SinkTarget, seed: u64) -> Stepped {
    let options = JobOptions { channel_rows: Some(1), batch_rows: 2, ..JobOptions::default() };
    Stepped::start(&plan(source(), target), &test.connectors(), &options, Schedule::new(seed)).unwrap()
}

fn taken(job: &mut Stepped) -> Vec<i64> {
    let batches = job.take_rows();
    batches
        .iter()
        .flat_map(|batch| batch.rows.column(0).as_primitive::<Int64Type>().values().to_vec())
        .collect()
}

#[test]
fn whatever_the_order_of_work_the_rows_are_the_same() {
    for seed in SEEDS {
        let first = vec![Step::Rows(vec![1, 2]), Step::Rows(vec![3])];
        let test = Test { splits: vec![first, vec![], vec![Step::Rows(vec![4])]], ..Test::default() };
        let mut job = start(&test, SinkTarget::Result, seed);
        assert!(job.settle().unwrap());
        assert_eq!(taken(&mut job), [1, 2, 3, 4], "seed {seed}");
        assert!(job.is_over() && !job.settle().unwrap());
        let summary = job.summary();
        assert_eq!((summary.rows_in, summary.rows_out), (4, 4));
        assert!(summary.reconciles());
    }
}

#[test]
fn the_end_of_the_input_commits_the_sink() {
    for seed in SEEDS {
        let test = Test { splits: vec![vec![Step::Rows(vec![7])]], ..Test::default() };
        start(&test, SinkTarget::Table(table()), seed).settle().unwrap();
        assert_eq!(*lock(&test.told), ["[7]", "finish"]);
    }
}

#[test]
fn a_drained_job_ends_as_if_its_input_had() {
    for seed in SEEDS {
        let splits = vec![vec![Step::Forever], vec![Step::Rows(vec![7]); 100]];
        let test = Test { splits, ..Test::default() };
        let mut job = start(&test, SinkTarget::Result, seed);
        job.hold(true);
        job.settle().unwrap();
        let read = job.summary().rows_in;
        job.drain();
        job.hold(false);
        job.settle().unwrap();
        let summary = job.summary();
        assert!(job.is_over() && summary.reconciles(), "seed {seed}");
        assert_eq!((summary.rows_in, summary.rows_out), (read, read), "seed {seed}");
        assert_eq!(taken(&mut job).len() as u64, read, "seed {seed}");
    }
}

#[test]
fn a_drained_job_commits_its_sink() {
    for seed in SEEDS {
        let test = Test { splits: vec![vec![Step::Forever]], ..Test::default() };
        let mut job = start(&test, SinkTarget::Table(table()), seed);
        job.drain();
        job.settle().unwrap();
        assert!(job.is_over(), "seed {seed}");
        assert_eq!(*lock(&test.told), ["finish"], "seed {seed}");
    }
}

#[test]
fn a_failure_aborts_the_sink_and_is_told_again() {
    for (seed, step) in SEEDS.zip([Step::Fail, Step::Panic].into_iter().cycle()) {
        let is_panic = matches!(step, Step::Panic);
        let test = Test { splits: vec![vec![Step::Rows(vec![7]), step]], ..Test::default() };
        let mut job = start(&test, SinkTarget::Table(table()), seed);
        let error = job.settle().unwrap_err();
        assert_eq!(error.phase() == Phase::Internal, is_panic);
        assert_eq!(job.settle().unwrap_err().message(), error.message());
        assert!(!job.is_over());
        assert_eq!(lock(&test.told).last().map(String::as_str), Some("abort"));
    }
}

#[test]
fn a_dropped_job_aborts_its_sink() {
    let test = Test { splits: vec![vec![Step::Rows(vec![7])]], ..Test::default() };
    drop(start(&test, SinkTarget::Table(table()), 0));
    assert_eq!(*lock(&test.told), ["abort"]);
}

#[test]
fn rows_that_nobody_takes_hold_the_readers_up() {
    for seed in SEEDS {
        let test = Test { splits: vec![vec![Step::Forever]], ..Test::default() };
        let mut job = start(&test, SinkTarget::Result, seed);
        job.hold(true);
        job.settle().unwrap();
        // One in the channel, which then is full, and two that were read ahead.
        assert_eq!(job.summary().rows_in, 3, "seed {seed}");
        assert_eq!(job.splits()[0].state, super::super::SplitState::Paused);
        assert!(taken(&mut job).is_empty());
    }
}

#[test]
fn listed_rows_need_no_reader() {
    let plan = plan(node(Operation::Values(rows(0..5)), vec![]), SinkTarget::Result);
    let options = JobOptions { batch_rows: 2, ..JobOptions::default() };
    let mut job = Stepped::start(&plan, &Connectors::empty(), &options, Schedule::new(3)).unwrap();
    job.settle().unwrap();
    assert_eq!(taken(&mut job), [0, 1, 2, 3, 4]);
}

#[test]
fn seed_zero_is_one_piece_of_work_each_and_others_differ() {
    let stints = |seed| {
        let mut schedule = Schedule::new(seed);
        (0..64).map(|_| schedule.stint()).collect::<Vec<_>>()
    };
    assert!(stints(0).iter().all(|work| *work == 1));
    assert_eq!(stints(5), stints(5));
    assert!(stints(5) != stints(6) && stints(5).iter().any(|work| *work > 8));
}
