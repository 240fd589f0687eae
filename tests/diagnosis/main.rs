//! Jobs with one fault each, on a clock that stands still: the diagnosis names the culprit.

#![allow(clippy::unwrap_used, reason = "a test fails where it can no longer go on")]

mod windows;
mod world;

use std::time::Duration;

use tidegate::runtime::{BottleneckKind, FindingKind, Pressure, SplitState};
use world::{NINE, World, operator};

const TABLE: &str = "CREATE TABLE t (k BIGINT, v BIGINT, ts TIMESTAMP(3), \
                     WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'world');
                     CREATE TABLE out (a BIGINT, b BIGINT) WITH ('connector' = 'world');";
const WINDOW: &str = "SELECT window_end, k, SUM(CAST(v AS DOUBLE)) AS s
                      FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
                      GROUP BY window_start, window_end, k;";

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// `count` batches of one row a second of event time, of key `k`.
fn rows(world: &World, split: usize, k: i64, count: i64) {
    for second in 0..count {
        world.give(split, vec![(k, second, NINE + second * 1_000)]);
    }
}

fn insert(select: &str) -> String {
    format!("{TABLE} INSERT INTO out {select}")
}

#[test]
fn a_slow_sink_is_the_culprit_and_not_the_source_that_waits_for_it() {
    let world = World { write_time: ms(200), ..World::new(1) };
    rows(&world, 0, 1, 15);
    let mut run = world.start(&insert("SELECT k + 1, v FROM t"), 1, |_| {});
    run.settle();
    let diagnosis = run.diagnose(None);
    let found = diagnosis.bottleneck.as_ref().expect("a bottleneck");
    assert_eq!((found.kind, found.operator.as_str()), (BottleneckKind::SlowSink, "Sink(out)"));
    assert_eq!(diagnosis.findings[0].kind, FindingKind::Bottleneck(BottleneckKind::SlowSink));
    assert!(diagnosis.verdict.contains("the sink Sink(out)"), "{}", diagnosis.verdict);
    // 15 rows of 200 ms, within the three seconds.
    let snapshot = run.snapshot();
    assert_eq!(snapshot.elapsed_us, 3_000_000);
    assert_eq!(operator(&snapshot, "Sink(out)").busy_us, 3_000_000);
    let source = diagnosis.operators.iter().find(|load| load.operator == "Source(t)").unwrap();
    assert_eq!(source.pressure, Pressure::High);
    assert!(source.back_pressured > 0.99, "{source:?}");
}

#[test]
fn a_slow_expression_is_the_culprit() {
    let world = World::new(1);
    rows(&world, 0, 1, 15);
    let mut run =
        world.start(&insert("SELECT k + 1, v FROM t"), 1, |plan| world.slow_projection(plan, ms(200)));
    run.settle();
    let diagnosis = run.diagnose(None);
    let found = diagnosis.bottleneck.as_ref().expect("a bottleneck");
    assert_eq!((found.kind, found.operator.as_str()), (BottleneckKind::SlowCompute, "Calc"));
    assert!(diagnosis.findings[0].cure.contains("execution.parallelism"));
}

#[test]
fn a_skewed_key_is_the_culprit() {
    let world = World::new(1);
    for second in 0..40 {
        // One row of nine other keys among ten of the frequent one.
        let k = if second % 10 == 9 { second } else { 7 };
        world.give(0, vec![(k, 1, NINE + second * 1_000)]);
    }
    let script = format!("{TABLE} {WINDOW}");
    let mut run = world.start(&script, 4, |plan| world.slow_key(plan, ms(100)));
    run.settle();
    let diagnosis = run.diagnose(None);
    let found = diagnosis.bottleneck.as_ref().expect("a bottleneck");
    assert_eq!((found.kind, found.operator.as_str()), (BottleneckKind::SkewedKey, "WindowAggregate"));
    let snapshot = run.snapshot();
    let hot = snapshot.operators().filter(|one| one.name == "WindowAggregate").max_by_key(|one| one.rows_in);
    assert_eq!(found.subtask, hot.unwrap().subtask);
    assert!(found.evidence.contains("times the rows of the mean of 4 subtasks"), "{}", found.evidence);
    assert!(diagnosis.findings[0].sentence.contains("\"k\""), "{}", diagnosis.findings[0].sentence);
}

#[test]
fn an_idle_split_is_the_culprit() {
    let world = World::new(3);
    rows(&world, 0, 1, 90);
    world.give(1, vec![(1, 1, NINE + 10_000)]);
    rows(&world, 2, 1, 90);
    let mut run = world.start(&format!("{TABLE} {WINDOW}"), 1, |_| {});
    run.settle();
    world.pass(ms(3_000));
    run.settle();
    let diagnosis = run.diagnose(None);
    let finding = &diagnosis.findings[0];
    assert_eq!(finding.kind, FindingKind::IdleSplit);
    assert!(finding.sentence.contains("Source(t)") && finding.sentence.contains("\"split 1\""));
    assert_eq!(finding.cure, "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND IDLE AFTER INTERVAL '30' SECOND");
    // The window waits for the end less a millisecond; the split is at 09:00:10 less a second.
    let window = &diagnosis.windows[0];
    assert_eq!(window.end, (NINE + 60_000) * 1_000);
    assert_eq!(window.fires_at.0, (NINE + 59_999) * 1_000);
    assert_eq!(window.watermark.unwrap().0, (NINE + 9_000) * 1_000);
    assert_eq!(window.short_us, Some(50_999_000));
    let holder = window.holder.as_ref().unwrap();
    assert_eq!((holder.split.as_str(), holder.state), ("split 1", SplitState::Empty));
    assert_eq!(holder.since_us, 3_000_000);
    assert_eq!(holder.last_time, Some((NINE + 10_000) * 1_000));
    let at = diagnosis.watermarks.iter().find(|at| at.operator == "WindowAggregate").unwrap();
    assert_eq!(at.age_us, Some(3_000_000));
    assert_eq!(
        at.text(),
        "WindowAggregate[0]: 2024-05-01 09:00:09.000 for 3.00 s, held by Source(t) › split 1 › \
         2024-05-01 09:00:10.000 (empty for 3.00 s)"
    );
}

#[test]
fn a_split_that_never_spoke_is_the_culprit() {
    let world = World::new(2);
    rows(&world, 0, 1, 90);
    let mut run = world.start(&format!("{TABLE} {WINDOW}"), 1, |_| {});
    run.settle();
    world.pass(ms(3_000));
    run.settle();
    let diagnosis = run.diagnose(None);
    assert_eq!(diagnosis.findings[0].kind, FindingKind::IdleSplit);
    assert!(diagnosis.findings[0].sentence.contains("\"split 1\" is never_spoke"));
    assert_eq!(diagnosis.windows[0].watermark, None);
}

#[test]
fn a_row_from_the_future_is_the_culprit() {
    let world = World::new(1);
    rows(&world, 0, 1, 10);
    world.give(0, vec![(1, 1, NINE + 86_400_000)]);
    rows(&world, 0, 1, 40);
    let mut run = world.start(&format!("{TABLE} {WINDOW}"), 1, |_| {});
    run.settle();
    let diagnosis = run.diagnose(None);
    let finding = &diagnosis.findings[0];
    assert_eq!(finding.kind, FindingKind::FutureRow);
    assert!(finding.sentence.contains("2024-05-02 09:00:00.000"), "{}", finding.sentence);
    assert!(finding.evidence.contains("40 of 51 rows were late"), "{}", finding.evidence);
    assert!(finding.cure.ends_with("MAX AHEAD INTERVAL '5' MINUTE"), "{}", finding.cure);
}

#[test]
fn a_starved_source_is_the_culprit() {
    let world = World::new(1);
    rows(&world, 0, 1, 5);
    let mut run = world.start(&insert("SELECT k + 1, v FROM t"), 1, |_| {});
    run.settle();
    let before = run.snapshot();
    world.pass(ms(3_000));
    run.settle();
    let diagnosis = run.diagnose(Some(&before));
    let found = diagnosis.bottleneck.as_ref().expect("a bottleneck");
    assert_eq!((found.kind, found.operator.as_str()), (BottleneckKind::StarvedSource, "Source(t)"));
    assert_eq!(diagnosis.over_us, 3_000_000);
    assert!(diagnosis.operators.iter().all(|load| load.idle > 0.99 && load.pressure == Pressure::Ok));
}

#[test]
fn a_slow_source_is_the_culprit() {
    let world = World { read_time: ms(200), ..World::new(1) };
    rows(&world, 0, 1, 15);
    let mut run = world.start(&insert("SELECT k + 1, v FROM t"), 1, |_| {});
    // The readers have rows for as long as we look.
    let mut seen = None;
    run.settle();
    let snapshot = run.snapshot();
    let mut reading = snapshot.clone();
    reading.sources[0].splits[0].state = SplitState::Active;
    seen.replace(tidegate::runtime::diagnose(&run.plan, None, &reading));
    let found = seen.unwrap().bottleneck.expect("a bottleneck");
    assert_eq!((found.kind, found.operator.as_str()), (BottleneckKind::SlowSource, "Source(t)"));
    assert!(found.evidence.contains("100 %"), "{}", found.evidence);
}

#[test]
fn who_does_not_take_the_rows_of_a_query_is_the_culprit() {
    let world = World::new(1);
    rows(&world, 0, 1, 10);
    let mut run = world.start(&format!("{TABLE} SELECT k + 1 AS k, v FROM t"), 1, |_| {});
    run.job.hold(true);
    run.settle();
    // Back-pressure counts while it lasts, in every second of it, and never more than all of it.
    let mut before = run.snapshot();
    for _ in 0..30 {
        world.pass(ms(1_000));
        run.settle();
        let diagnosis = run.diagnose(Some(&before));
        let source = diagnosis.operators.iter().find(|load| load.operator == "Source(t)").unwrap();
        assert!(source.back_pressured >= 0.95 && source.back_pressured <= 1.0, "{source:?}");
        let found = diagnosis.bottleneck.as_ref().expect("a bottleneck");
        assert_eq!((found.kind, found.operator.as_str()), (BottleneckKind::SlowSink, "Sink(result)"));
        before = run.snapshot();
    }
}

#[test]
fn late_rows_get_the_delay_that_would_have_kept_them() {
    let world = World::new(1);
    for minute in 0..20 {
        let at = NINE + minute * 60_000;
        // Each minute ends, and then a row comes that is 5 s older.
        world.give(0, vec![(1, 1, at), (1, 1, at + 1_000), (1, 1, at - 4_000)]);
    }
    let mut run = world.start(&format!("{TABLE} {WINDOW}"), 1, |_| {});
    run.settle();
    let diagnosis = run.diagnose(None);
    let finding = diagnosis.findings.iter().find(|one| one.kind == FindingKind::LateRows).expect("late rows");
    assert_eq!(finding.sentence, "20 of 60 rows of Source(t) were late");
    let cure = "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND (adds 5 s of latency)";
    assert!(finding.cure.starts_with(cure), "{}", finding.cure);
}

#[test]
fn a_job_without_fault_has_no_finding() {
    let world = World::new(1);
    rows(&world, 0, 1, 60);
    let mut run = world.start(&insert("SELECT k + 1, v FROM t"), 1, |_| {});
    run.settle();
    let diagnosis = run.diagnose(None);
    assert_eq!(diagnosis.findings, []);
    assert_eq!(diagnosis.verdict, "nothing holds the job up");
}

#[test]
fn counts_follow_the_rows_from_the_source_to_the_sink() {
    let world = World::new(1);
    rows(&world, 0, 1, 130);
    let script = insert(
        "SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
         GROUP BY window_start, window_end, k",
    );
    let mut run = world.start(&script, 2, |_| {});
    run.settle();
    let snapshot = run.snapshot();
    let source = operator(&snapshot, "Source(t)");
    assert_eq!((source.rows_in, source.rows_out, source.batches_out), (130, 130, 130));
    assert_eq!(source.watermark_out.unwrap().0, (NINE + 128_000) * 1_000);
    let sink = operator(&snapshot, "Sink(out)");
    // Two of the three minutes are over.
    assert_eq!((sink.rows_in, sink.counts.used), (2, 2));
    let open: Vec<_> = snapshot.operators().flat_map(|one| &one.windows).map(|window| window.end).collect();
    assert_eq!(open, [(NINE + 180_000) * 1_000]);
    assert!(sink.times.total.is_some_and(|total| total.markers == 2));
    let json = snapshot.to_json();
    assert_eq!(json["sources"][0]["rows_read"], 130);
    assert_eq!(json["tasks"][0]["operators"][0]["numRecordsOut"], 130);
}
