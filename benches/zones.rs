//! Every 15 minutes of 2000 to 2040 in 1-day windows of every zone of the tz database: each instant
//! is in exactly one window, the one of its local day, and windows tile without gap.
//!
//! `cargo bench --bench zones [-- ZONE …]` prints what it has checked; it fails at the first zone
//! that is wrong. The days are counted here from the zone's offsets, not from windows.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{AsArray, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit, TimestampMillisecondType};
use chrono::offset::{Offset, TimeZone};
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use tidegate::Error;
use tidegate::connector::{Connectors, Memory};
use tidegate::session::{Outcome, Session};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
const STEP_MS: i64 = 15 * 60 * 1_000;
/// 2000-01-01T00:00:00Z and 2040-01-01T00:00:00Z.
const FROM_MS: i64 = 946_684_800_000;
const TO_MS: i64 = 2_208_988_800_000;

fn main() -> Result<(), Error> {
    let names: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let zones: Vec<Tz> = match names.is_empty() {
        true => chrono_tz::TZ_VARIANTS.to_vec(),
        false => names.iter().map(|name| name.parse().map_err(wrong)).collect::<Result<_, _>>()?,
    };
    let started = Instant::now();
    let (memory, instants) = instants()?;
    let mut windows = 0;
    for zone in &zones {
        windows += check(*zone, &memory).map_err(|error| error.context(zone))?;
    }
    println!(
        "{} zones, {instants} instants each, {windows} windows: each instant in one window, no gap; {:.1} s",
        zones.len(),
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

fn wrong(what: impl std::fmt::Display) -> Error {
    Error::internal("zones", what)
}

/// The instants, as the table "instants" in memory.
fn instants() -> Result<(Memory, usize), Error> {
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    let schema = Arc::new(Schema::new(vec![Field::new("ts", time, true)]));
    let times = TimestampMillisecondArray::from_iter_values((FROM_MS..TO_MS).step_by(STEP_MS as usize));
    let rows = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(times.with_timezone("UTC"))]);
    let rows = rows.map_err(wrong)?;
    let count = rows.num_rows();
    let memory = Memory::new();
    memory.put_splits("instants", schema, vec![vec![rows]]);
    Ok((memory, count))
}

/// How many instants each local day has: its first millisecond, as if it were UTC, and the number.
fn days(zone: Tz) -> BTreeMap<i64, i64> {
    let mut days = BTreeMap::new();
    for instant in (FROM_MS..TO_MS).step_by(STEP_MS as usize) {
        let utc = DateTime::<Utc>::from_timestamp_millis(instant).unwrap_or_default().naive_utc();
        let offset = i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc()) * 1_000;
        *days.entry((instant + offset).div_euclid(DAY_MS) * DAY_MS).or_insert(0) += 1;
    }
    days
}

/// Windows that the query gave, if they are right.
fn check(zone: Tz, memory: &Memory) -> Result<usize, Error> {
    let mut connectors = Connectors::empty();
    connectors.add(Arc::new(memory.clone()));
    let mut session = Session::with_connectors(connectors);
    let script = format!(
        "CREATE TABLE instants (ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'memory');
         SELECT window_start, window_end, COUNT(*) FROM TABLE(
           TUMBLE(TABLE instants, DESCRIPTOR(ts), INTERVAL '1' DAY, ZONE => '{zone}'))
         GROUP BY window_start, window_end;"
    );
    let mut given = BTreeMap::new();
    for statement in session.parse("zones", &script)? {
        let Outcome::Query(mut query) = session.execute(&statement)? else { continue };
        while let Some(batch) = query.next_batch()? {
            let time = |column: usize| batch.rows.column(column).as_primitive::<TimestampMillisecondType>();
            let counts = batch.rows.column(2).as_primitive::<Int64Type>();
            for row in 0..batch.num_rows() {
                let (start, end) = (time(0).value(row), time(1).value(row));
                if end - start != DAY_MS || given.insert(start, counts.value(row)).is_some() {
                    return Err(wrong(format!("the window from {start} to {end}")));
                }
            }
        }
        let summary = query.finish()?;
        if summary.late > 0 || !summary.reconciles() {
            return Err(wrong(format!("{} instants are late", summary.late)));
        }
    }
    let expected = days(zone);
    if given != expected {
        let differs = given.iter().zip(&expected).find(|(one, other)| one != other);
        return Err(wrong(format!("windows and days differ at {differs:?}")));
    }
    let gaps = given.keys().zip(given.keys().skip(1)).filter(|(one, next)| *next - *one != DAY_MS);
    for (one, next) in gaps {
        // A day that the zone itself left out; any other gap would have been found above.
        println!("{zone}: no day between {} and {}", date(*one), date(*next));
    }
    Ok(given.len())
}

fn date(day_ms: i64) -> String {
    DateTime::<Utc>::from_timestamp_millis(day_ms).unwrap_or_default().date_naive().to_string()
}
