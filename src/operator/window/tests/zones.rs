//! Windows on the wall clock of a zone.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::TimestampMillisecondArray;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit as ArrowUnit};
use arrow::record_batch::RecordBatch;
use chrono::DateTime;
use chrono::offset::{Offset, TimeZone};
use chrono_tz::Tz;
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_physical_expr::expressions::lit;

use super::super::assigner::Assigner;
use super::{call_over, node, output};
use crate::operator::testing::{MS, drain, plan_node};
use crate::operator::{Output, create};
use crate::plan::*;
use crate::stream::{RunningWatermark, StreamBatch, TimeUnit, Watermark};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// `start,end,count` of the windows over instants, ms, with a delay of 2 s, at batches of `cut`.
fn counts(zone: Tz, kind: WindowKind, instants: &[i64], cut: usize) -> Vec<String> {
    let time = DataType::Timestamp(ArrowUnit::Millisecond, Some(zone.name().into()));
    let schema = Arc::new(Schema::new(vec![Field::new("ts", time, true)]));
    let window = WindowSpec { kind, offset_us: 0, zone: Some(zone), unit: TimeUnit::Millisecond };
    let count = call_over(&schema, count_udaf(), lit(1i64), "c").build().unwrap();
    let count =
        AggregateCall { function: Arc::new(count), filter: None, order_sensitive: false, inexact: false };
    let node = node(WindowSource::Assign { time: 0, window }, vec![], vec![count]);
    let plan = plan_node(Operation::WindowAggregate(Box::new(node.clone())), output(&node, &schema));
    let mut operator = create(&plan, &schema).unwrap();
    let (mut out, mut given, mut watermark) = (Output::default(), Vec::new(), i64::MIN);
    for chunk in instants.chunks(cut) {
        let mut running = Vec::new();
        let before = watermark;
        for instant in chunk {
            running.push(watermark);
            watermark = watermark.max((instant - 2_000) * MS);
        }
        let times = TimestampMillisecondArray::from(chunk.to_vec()).with_timezone(zone.name());
        let rows = RecordBatch::try_new(schema.clone(), vec![Arc::new(times)]).unwrap();
        let running = Some(RunningWatermark::new(running));
        let batch = StreamBatch { running, ..StreamBatch::inserts(rows, Instant::now()) };
        operator.process_batch(batch, &mut out).unwrap();
        if watermark > before {
            operator.process_watermark(Watermark(watermark), &mut out).unwrap();
        }
    }
    operator.process_watermark(Watermark::MAX, &mut out).unwrap();
    assert_eq!(out.counts.late, 0);
    drain(&mut out, &mut given);
    let short = |line: &String| {
        let columns: Vec<&str> = line.split(',').collect();
        format!("{},{},{}", &columns[0][5..16], &columns[1][5..16], columns[3])
    };
    given.iter().map(short).collect()
}

fn tumble(ms: i64) -> WindowKind {
    WindowKind::Tumble { size_us: ms * MS }
}

#[test]
fn a_day_of_23_hours() {
    // conformance/ltz_day_spring_forward
    let instants = [
        1_710_046_799_999,
        1_710_046_800_000,
        1_710_054_000_000,
        1_710_129_599_999,
        1_710_129_600_000,
        1_710_216_000_000,
    ];
    for cut in [1, 6] {
        assert_eq!(
            counts(chrono_tz::America::New_York, tumble(DAY), &instants, cut),
            [
                "03-09T00:00,03-10T00:00,1",
                "03-10T00:00,03-11T00:00,3",
                "03-11T00:00,03-12T00:00,1",
                "03-12T00:00,03-13T00:00,1",
            ]
        );
    }
}

#[test]
fn hours_of_a_half_hour_zone() {
    // conformance/ltz_half_hour_zone
    let instants =
        [1_709_596_800_000, 1_709_598_599_999, 1_709_598_600_000, 1_709_602_199_999, 1_709_602_200_000];
    for cut in [1, 5] {
        assert_eq!(
            counts(chrono_tz::Asia::Kolkata, tumble(HOUR), &instants, cut),
            ["03-05T05:00,03-05T06:00,2", "03-05T06:00,03-05T07:00,2", "03-05T07:00,03-05T08:00,1",]
        );
    }
}

#[test]
fn the_repeated_hour_is_one_window() {
    // conformance/ltz_hour_fall_back
    let instants = [
        1_730_608_200_000,
        1_730_610_600_000,
        1_730_613_000_000,
        1_730_614_200_000,
        1_730_616_600_000,
        1_730_617_800_000,
        1_730_624_400_000,
    ];
    for cut in [1, 7] {
        assert_eq!(
            counts(chrono_tz::America::New_York, tumble(HOUR), &instants, cut),
            [
                "11-03T00:00,11-03T01:00,1",
                "11-03T01:00,11-03T02:00,4",
                "11-03T02:00,11-03T03:00,1",
                "11-03T04:00,11-03T05:00,1",
            ]
        );
    }
}

#[test]
fn the_missing_hour_has_no_window() {
    // Field report B015.
    let instants = [1_710_052_200_000, 1_710_055_799_000, 1_710_055_800_000, 1_710_059_400_000];
    for cut in [1, 4] {
        assert_eq!(
            counts(chrono_tz::America::New_York, tumble(HOUR), &instants, cut),
            ["03-10T01:00,03-10T02:00,1", "03-10T03:00,03-10T04:00,2", "03-10T04:00,03-10T05:00,1",]
        );
    }
}

#[test]
fn local_days_east_and_west_of_greenwich() {
    // Field report B017; in Los Angeles (-7 h) the instants are at 08:59:58, 09:00, 17:00 of 1 June,
    // 08:59:58 and 09:00:01 of 2 June.
    let instants =
        [1_717_257_598_000, 1_717_257_600_000, 1_717_286_400_000, 1_717_343_998_000, 1_717_344_001_000];
    for cut in [1, 5] {
        assert_eq!(
            counts(chrono_tz::Asia::Shanghai, tumble(DAY), &instants, cut),
            ["06-01T00:00,06-02T00:00,1", "06-02T00:00,06-03T00:00,3", "06-03T00:00,06-04T00:00,1",]
        );
        assert_eq!(
            counts(chrono_tz::America::Los_Angeles, tumble(DAY), &instants, cut),
            ["06-01T00:00,06-02T00:00,3", "06-02T00:00,06-03T00:00,2",]
        );
        let hop = WindowKind::Hop { slide_us: DAY / 2 * MS, size_us: DAY * MS };
        assert_eq!(
            counts(chrono_tz::Asia::Shanghai, hop, &instants, cut),
            [
                "06-01T00:00,06-02T00:00,1",
                "06-01T12:00,06-02T12:00,3",
                "06-02T00:00,06-03T00:00,3",
                "06-02T12:00,06-03T12:00,2",
                "06-03T00:00,06-04T00:00,1",
            ]
        );
    }
}

#[test]
fn every_instant_is_in_one_open_window_of_every_zone() {
    // From 1995 to 2025 by 131,003 minutes, so that all times of day come; and every 40 minutes of the
    // days around the transitions of 2024 in Europe and America.
    let steps = |from: i64, to: i64, step: i64| (from..to).step_by(step as usize);
    let mut instants: Vec<i64> = steps(788_918_400_000, 1_735_689_600_000, 131_003 * 60_000).collect();
    for day in [1_710_028_800_000, 1_711_843_200_000, 1_729_987_200_000, 1_730_592_000_000] {
        instants.extend(steps(day - DAY, day + 2 * DAY, 40 * 60_000));
    }
    for zone in chrono_tz::TZ_VARIANTS {
        for size in [HOUR / 2, HOUR, DAY] {
            let kind = tumble(size);
            let spec = WindowSpec { kind, offset_us: 0, zone: Some(zone), unit: TimeUnit::Millisecond };
            let mut assigner = Assigner::try_new(&spec).unwrap();
            for instant in &instants {
                let local = assigner.local(instant * MS);
                let start = assigner.slice_start(local);
                let ends = assigner.ends(start);
                assert!(start <= local && local < ends.first && ends.first == ends.last);
                assert!(assigner.close(ends.last) >= instant * MS, "{zone}: {instant} is lost");
                assert!(assigner.close(start) <= assigner.close(ends.last), "{zone}: {instant}");
            }
        }
    }
}

#[test]
fn days_tile_around_each_change_of_each_zone() {
    // The days of 2000 to 2040 at whose ends the zone has another offset, and their neighbours, every
    // 15 minutes. `cargo bench --bench zones` does so for all days.
    const FROM: i64 = 946_684_800_000;
    const TO: i64 = 2_208_988_800_000;
    let zones = chrono_tz::TZ_VARIANTS;
    let changes: usize = std::thread::scope(|scope| {
        let halves: Vec<_> = zones
            .chunks(zones.len().div_ceil(2))
            .map(|zones| {
                scope.spawn(move || zones.iter().map(|zone| changes(*zone, FROM, TO)).sum::<usize>())
            })
            .collect();
        halves.into_iter().map(|half| half.join().unwrap()).sum()
    });
    // Berlin alone has two a year.
    assert!(changes > 80, "{changes}");
}

/// Checks the days around changes of the zone's offset; how many there are.
fn changes(zone: Tz, from: i64, to: i64) -> usize {
    let offset = |instant: i64| {
        let utc = DateTime::from_timestamp_millis(instant).unwrap().naive_utc();
        i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc()) * 1_000
    };
    let spec = WindowSpec { kind: tumble(DAY), offset_us: 0, zone: Some(zone), unit: TimeUnit::Millisecond };
    let mut assigner = Assigner::try_new(&spec).unwrap();
    let mut found = 0;
    for day in (from..to).step_by(DAY as usize).filter(|day| offset(*day) != offset(day + DAY)) {
        found += 1;
        let mut window = None;
        for instant in (day - DAY..day + 2 * DAY).step_by(15 * 60_000) {
            let local = instant + offset(instant);
            let start = assigner.local(instant * MS);
            let start = assigner.slice_start(start);
            assert_eq!(start, local.div_euclid(DAY) * DAY * MS, "{zone}: {instant}");
            let ends = assigner.ends(start);
            assert_eq!((ends.first, ends.last), (start + DAY * MS, start + DAY * MS), "{zone}: {instant}");
            assert!(assigner.close(ends.last) >= instant * MS, "{zone}: {instant} is lost");
            match window {
                // Put back over midnight, a day goes on; and a day may be left out as a whole.
                Some(known) if known != start && start > known => {
                    let skipped = offset(instant) - offset(instant - 15 * 60_000) >= DAY;
                    assert_eq!(start - known, if skipped { 2 } else { 1 } * DAY * MS, "{zone}: {instant}");
                    // The window closes with the last instant of its day, not a millisecond later.
                    let close = assigner.close(known + DAY * MS) / MS;
                    let day_of = |instant: i64| (instant + offset(instant)).div_euclid(DAY) * DAY * MS;
                    assert!(day_of(close) <= known && known < day_of(close + 1), "{zone}: {close}");
                }
                _ => {}
            }
            window = window.max(Some(start));
        }
    }
    found
}
