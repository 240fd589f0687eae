//! Open windows of each kind, and those of one key.

use std::time::Duration;

use arrow::util::pretty::pretty_format_batches;
use tidegate::operator::KeyFilter;
use tidegate::runtime::{WindowAt, diagnose};

use crate::TABLE;
use crate::world::{NINE, Run, World};

const TUMBLE: &str = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)";
const TEN: &str = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)";
const HOP: &str = "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '1' MINUTE)";
const CUMULATE: &str = "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '1' MINUTE)";
const SESSION: &str = "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND)";

/// Key 1 at 5 and 15 s, key 2 at 25 s: event time is at 24 s.
const ROWS: [(i64, i64); 3] = [(1, 5), (1, 15), (2, 25)];

fn script(window: &str, clause: &str) -> String {
    format!(
        "{TABLE} SELECT window_start, window_end, k, COUNT(*) AS c, SUM(v) AS s FROM TABLE({window})
         GROUP BY window_start, window_end, k {clause};"
    )
}

fn start(window: &str, clause: &str, parallelism: usize) -> (World, Run) {
    let world = World::new(1);
    let run = world.start(&script(window, clause), parallelism, |_| {});
    (world, run)
}

fn give(world: &World, run: &mut Run, (k, second): (i64, i64)) {
    world.give(0, vec![(k, second, NINE + second * 1_000)]);
    run.settle();
}

/// Seconds after nine: start and end, then groups, rows, whether it has fired, whose it is, and when it fires.
type Shown = (i64, i64, usize, Option<u64>, bool, Option<String>, i64);

fn shown(window: &WindowAt) -> Shown {
    let seconds = |us: i64| (us / 1_000 - NINE) / 1_000;
    let fires_ms = window.fires_at.0 / 1_000 - NINE;
    let WindowAt { start, end, groups, rows, is_fired, .. } = *window;
    (seconds(start), seconds(end), groups, rows, is_fired, window.key.clone(), fires_ms)
}

fn open(run: &mut Run) -> Vec<Shown> {
    run.diagnose(None).windows.iter().map(shown).collect()
}

/// Bounds and groups of the windows that have this key.
fn of_key(run: &mut Run, value: &str) -> Vec<(i64, i64, usize)> {
    let filter = KeyFilter { column: "K".to_owned(), value: value.to_owned() };
    let snapshot = run.job.snapshot_of_key(&filter);
    let windows = diagnose(&run.plan, None, &snapshot).windows;
    windows.iter().map(shown).map(|(start, end, groups, ..)| (start, end, groups)).collect()
}

#[test]
fn windows_of_each_kind_say_what_they_hold_and_wait_for() {
    let plain = |start, end, groups, rows| (start, end, groups, Some(rows), false, None, end * 1_000 - 1);
    let session =
        |start, end, rows, k: &str| (start, end, 1, Some(rows), false, Some(k.to_owned()), end * 1_000 - 1);
    let fired = |start, end, rows| (start, end, 1, Some(rows), true, None, end * 1_000 + 59_999);
    for (window, clause, expected) in [
        (TUMBLE, "", vec![plain(0, 60, 2, 3)]),
        // The window that begins at 0 has what it shares with this one.
        (HOP, "", vec![plain(-30, 30, 2, 3)]),
        (CUMULATE, "", vec![plain(0, 30, 2, 3)]),
        (SESSION, "", vec![session(5, 25, 2, "1"), session(25, 35, 1, "2")]),
        (TUMBLE, "EMIT CHANGES", vec![plain(0, 60, 2, 3)]),
        (SESSION, "EMIT CHANGES", vec![plain(5, 25, 1, 2), plain(25, 35, 1, 1)]),
        (TUMBLE, "EMIT EARLY EVERY INTERVAL '1' SECOND", vec![plain(0, 60, 2, 3)]),
        (TEN, "EMIT COMPLETE EVERY INTERVAL '1' SECOND", vec![plain(20, 30, 1, 1)]),
        // Two have fired and take late rows for a minute.
        (
            TEN,
            "ALLOW LATENESS INTERVAL '1' MINUTE",
            vec![plain(20, 30, 1, 1), fired(0, 10, 1), fired(10, 20, 1)],
        ),
    ] {
        let (world, mut run) = start(window, clause, 1);
        ROWS.into_iter().for_each(|row| give(&world, &mut run, row));
        assert_eq!(open(&mut run), expected, "{window} {clause}");
    }
}

#[test]
fn windows_of_one_key_are_found() {
    for (window, clause, one, two) in [
        (TUMBLE, "", vec![(0, 60, 1)], vec![(0, 60, 1)]),
        // A row counts in two windows.
        (HOP, "", vec![(-30, 30, 1), (0, 60, 1)], vec![(-30, 30, 1), (0, 60, 1)]),
        (CUMULATE, "", vec![(0, 30, 1), (0, 60, 1)], vec![(0, 30, 1), (0, 60, 1)]),
        (SESSION, "", vec![(5, 25, 1)], vec![(25, 35, 1)]),
        (SESSION, "EMIT CHANGES", vec![(5, 25, 1)], vec![(25, 35, 1)]),
        (TEN, "", vec![], vec![(20, 30, 1)]),
        (TEN, "ALLOW LATENESS INTERVAL '1' MINUTE", vec![(0, 10, 1), (10, 20, 1)], vec![(20, 30, 1)]),
    ] {
        for parallelism in [1, 3] {
            let (world, mut run) = start(window, clause, parallelism);
            ROWS.into_iter().for_each(|row| give(&world, &mut run, row));
            assert_eq!(of_key(&mut run, "1"), one, "{window} {clause} at {parallelism}");
            assert_eq!(of_key(&mut run, "2"), two, "{window} {clause} at {parallelism}");
            assert_eq!(of_key(&mut run, "3"), [], "{window} {clause} at {parallelism}");
        }
    }
}

/// A key that slices before the present one have, too: HOP and CUMULATE have merged them.
#[test]
fn a_key_in_sealed_slices_is_found() {
    for (window, expected) in [(HOP, vec![(0, 60, 1)]), (CUMULATE, vec![(0, 60, 1)])] {
        let (world, mut run) = start(window, "", 1);
        for row in [(1, 5), (2, 40)] {
            give(&world, &mut run, row);
        }
        // Event time is at 39 s: the windows that end at 30 s have fired.
        assert_eq!(of_key(&mut run, "1"), expected, "{window}");
    }
}

#[test]
fn asking_changes_nothing() {
    let rows: Vec<(i64, i64)> = (0..120).map(|row| (row * 7 % 5, row)).collect();
    for (window, clause) in [
        (TUMBLE, ""),
        (HOP, ""),
        (CUMULATE, ""),
        (SESSION, ""),
        (SESSION, "EMIT CHANGES"),
        (TEN, "EMIT CHANGES"),
        (TEN, "ALLOW LATENESS INTERVAL '1' MINUTE"),
    ] {
        let result = |asks: bool| {
            let (world, mut run) = start(window, clause, 2);
            for row in &rows {
                give(&world, &mut run, *row);
                if asks {
                    of_key(&mut run, "3");
                    run.snapshot();
                }
            }
            give(&world, &mut run, (9, 10_000));
            let batches: Vec<_> = run.job.take_rows().into_iter().map(|batch| batch.rows).collect();
            pretty_format_batches(&batches).unwrap().to_string()
        };
        let plain = result(false);
        assert!(plain.lines().count() > 7, "{window}: {plain}");
        assert_eq!(result(true), plain, "{window} {clause}");
    }
}

#[test]
fn a_window_that_has_fired_waits_for_nobody() {
    let (world, mut run) = start(TEN, "ALLOW LATENESS INTERVAL '1' MINUTE", 1);
    give(&world, &mut run, (1, 5));
    give(&world, &mut run, (1, 19));
    world.pass(Duration::from_secs(3));
    run.settle();
    let diagnosis = run.diagnose(None);
    let quiet = diagnosis.findings.iter().find(|one| one.kind.name() == "quiet_source").unwrap();
    assert!(quiet.sentence.contains("09:00:20.000"), "{}", quiet.sentence);
    let text = diagnosis.windows[1].text();
    assert!(
        text.contains(
            "with 1 group of 1 row has fired and takes late rows up to watermark ≥ 2024-05-01 09:01:09.999"
        ),
        "{text}"
    );
}
