//! The connector `datagen`: rows made up by rule, the same for the same seed.
//!
//! A value depends on the seed, the column and the number of its row only: not on the platform, the
//! batch size or the projection. Options of the table: `number-of-rows` (without it the table never
//! ends), `rows-per-second` (10,000 if the table never ends, else as fast as it goes), `seed`,
//! `number-of-splits` (rows are dealt to them in turn), `pause-every` so many rows for a `pause`.
//!
//! Options of a column, `fields.<name>.…`:
//! * numbers: `kind` = `random` (with `min`, `max` and `skew`, the exponent of Zipf's law: low numbers
//!   come more often) or `sequence` (with `start`, `end`; the table ends with the shortest sequence);
//! * STRING: `length`, or a `prefix` before a number made as above; BYTES: `length`;
//! * times: `start` (`2024-01-01 00:00:00`, or `now`), `step` (by default what `rows-per-second` says,
//!   or 1 ms), `max-disorder`: how far a row may lie behind its time;
//! * DATE: `min`, `max`; BOOLEAN: `true-rate`; all: `null-rate`.
//!
//! Source: Flink's datagen connector; `skew`, `step`, `max-disorder` and `prefix` are ours.

mod field;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arrow::datatypes::{DataType, SchemaRef};

use self::field::{Generated, PROPERTIES};
use super::assembly::{Assembly, SplitFacts, source_metadata};
use super::batch_rows::BatchRows;
use super::options::OptionReader;
use super::stdio::{no_columns, no_sink};
use super::{CancelToken, Connector, Lines, Read, ReadRequest, Sink, Source, SplitBatch, SplitReader};
use crate::catalog::{ColumnKind, Options, Table, TableFacts, TableStatistics};
use crate::error::Error;

/// Generated rows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Datagen;

struct Settings {
    rows: Option<u64>,
    pace: Option<Pace>,
    splits: u64,
    columns: Vec<(String, Generated)>,
}

const KEYS: &[&str] =
    &["rows-per-second", "number-of-rows", "seed", "number-of-splits", "pause", "pause-every"];

impl Settings {
    fn read(table: &Table) -> Result<Self, Error> {
        let physical = table
            .columns
            .iter()
            .filter(|column| matches!(column.kind, ColumnKind::Physical))
            .collect::<Vec<_>>();
        let keys: Vec<String> = physical
            .iter()
            .flat_map(|column| PROPERTIES.map(|property| format!("fields.{}.{property}", column.name)))
            .collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let reader = OptionReader::new("connector \"datagen\"", &table.options, &[KEYS, &keys])?;
        let mut rows = reader.integer("number-of-rows", 0..=i64::MAX)?.map(i64::unsigned_abs);
        let rate = reader.integer("rows-per-second", 1..=1_000_000_000)?.map(i64::unsigned_abs);
        let seed = reader.integer("seed", i64::MIN..=i64::MAX)?.unwrap_or(0) as u64;
        let step_ns = rate.map_or(1_000_000, |rate| (1_000_000_000 / rate) as i64);
        let mut columns = Vec::new();
        for (number, column) in physical.iter().enumerate() {
            let generated =
                Generated::new(reader, &column.name, number as u64, &column.data_type, seed, step_ns)?;
            rows = rows.into_iter().chain(generated.rows).min();
            columns.push((column.name.clone(), generated));
        }
        let rows_per_second = rate.or(if rows.is_none() { Some(10_000) } else { None });
        let pause = pause(reader)?;
        let pace = (rows_per_second.is_some() || pause.is_some()).then_some(Pace { rows_per_second, pause });
        let splits = reader.integer("number-of-splits", 1..=64)?.unwrap_or(1).unsigned_abs();
        Ok(Self { rows, pace, splits, columns })
    }
}

fn pause(reader: OptionReader<'_>) -> Result<Option<Pause>, Error> {
    let every_rows = reader.integer("pause-every", 1..=i64::MAX)?;
    let length_us = reader.duration_us("pause")?;
    match (every_rows, length_us) {
        (None, None) => Ok(None),
        (Some(every_rows), Some(length_us)) => Ok(Some(Pause {
            every_rows: every_rows.unsigned_abs(),
            length: Duration::from_micros(length_us.unsigned_abs()),
        })),
        (Some(_), None) => Err(reader
            .invalid("pause-every", "has no effect without 'pause'")
            .hint("Add 'pause' = '5 s', or another length.")),
        (None, Some(_)) => Err(reader
            .invalid("pause", "has no effect without 'pause-every'")
            .hint("Add 'pause-every' = '1000', or another number of rows.")),
    }
}

impl Connector for Datagen {
    fn name(&self) -> &'static str {
        "datagen"
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let bounded = Settings::read(table)?.rows.is_some();
        Ok(TableFacts {
            is_source: true,
            is_sink: false,
            bounded,
            takes_changelog: false,
            gives_changelog: false,
            upserts: false,
        })
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Err(no_columns("datagen"))
    }

    fn options(&self) -> Vec<&'static str> {
        KEYS.to_vec()
    }

    fn metadata(&self) -> Vec<(&'static str, DataType)> {
        source_metadata()
    }

    fn statistics(&self, table: &Table) -> TableStatistics {
        let has_several_splits = Settings::read(table).is_ok_and(|settings| settings.splits > 1);
        TableStatistics { has_several_splits, ..TableStatistics::default() }
    }

    fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        let settings = Settings::read(table)?;
        Ok(Box::new(DatagenSource { settings: Some(settings), request: request.clone() }))
    }

    fn sink(&self, table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        Err(no_sink(&table.name, "datagen"))
    }
}

struct DatagenSource {
    settings: Option<Settings>,
    request: ReadRequest,
}

impl Source for DatagenSource {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let Some(settings) = self.settings.take() else { return Ok(Vec::new()) };
        let assembly = Assembly::new(&self.request);
        let wanted = assembly.physical().fields().iter().map(|field| {
            let found = settings.columns.iter().find(|(name, _)| name == field.name());
            found
                .map(|(_, generated)| generated.clone())
                .ok_or_else(|| Error::internal("datagen", format!("no column \"{}\"", field.name())))
        });
        let columns = wanted.collect::<Result<Vec<_>, _>>()?;
        let started = Arc::new(OnceLock::new());
        let split = |number: u64| {
            let path = match settings.splits {
                1 => "datagen".to_owned(),
                _ => format!("datagen[{number}]"),
            };
            Box::new(DatagenSplit {
                facts: SplitFacts { path, ..SplitFacts::default() },
                columns: columns.clone(),
                assembly: assembly.clone(),
                rows: settings.rows,
                pace: settings.pace,
                started: Arc::clone(&started),
                batch_rows: BatchRows::new(self.request.batch_rows),
                cancel: self.request.cancel.clone(),
                next: number,
                step: settings.splits,
                given: 0,
            }) as Box<dyn SplitReader>
        };
        Ok((0..settings.splits).map(split).collect())
    }
}

struct DatagenSplit {
    facts: SplitFacts,
    columns: Vec<Generated>,
    assembly: Assembly,
    rows: Option<u64>,
    pace: Option<Pace>,
    started: Arc<OnceLock<Instant>>,
    batch_rows: BatchRows,
    cancel: CancelToken,
    /// The table's row that comes next, and the distance to the one after it in this split.
    next: u64,
    step: u64,
    /// Rows of this split so far.
    given: u64,
}

/// Rows by the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// `None`: as fast as it goes, between pauses.
    rows_per_second: Option<u64>,
    pause: Option<Pause>,
}

/// A pause after every so many rows.
#[derive(Debug, Clone, Copy)]
struct Pause {
    every_rows: u64,
    length: Duration,
}

impl Pace {
    /// So many rows a second, without pauses.
    pub(super) fn by_rate(rows_per_second: u64) -> Self {
        Self { rows_per_second: Some(rows_per_second), pause: None }
    }

    /// Rows of the table that are due when so much time has passed. The first is due at once.
    pub(super) fn due(&self, passed: Duration) -> u64 {
        let passed = passed.as_nanos();
        let by_rate = |passed: u128| match self.rows_per_second {
            Some(rate) => (passed * u128::from(rate) / 1_000_000_000 + 1).min(u128::from(u64::MAX)) as u64,
            None => u64::MAX,
        };
        let Some(Pause { every_rows, length }) = self.pause else { return by_rate(passed) };
        let busy =
            self.rows_per_second.map_or(0, |rate| u128::from(every_rows) * 1_000_000_000 / u128::from(rate));
        let round = (busy + length.as_nanos()).max(1);
        let rounds = u64::try_from(passed / round).unwrap_or(u64::MAX);
        rounds.saturating_mul(every_rows).saturating_add(by_rate(passed % round).min(every_rows))
    }
}

impl SplitReader for DatagenSplit {
    fn name(&self) -> &str {
        &self.facts.path
    }

    fn next(&mut self) -> Result<Read, Error> {
        if self.cancel.is_cancelled() {
            return Err(Error::interrupted());
        }
        // Rows of this split before row `end` of the table.
        let before = |end: u64| end.saturating_sub(self.next).div_ceil(self.step);
        let left = self.rows.map_or(u64::MAX, before);
        if left == 0 {
            return Ok(Read::End);
        }
        let due = match &self.pace {
            None => u64::MAX,
            Some(pace) => before(pace.due(self.started.get_or_init(Instant::now).elapsed())),
        };
        let count = left.min(due).min(self.batch_rows.next());
        if count == 0 {
            return Ok(Read::Empty);
        }
        let columns = self.columns.iter().map(|column| column.column(self.next, self.step, count as usize));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let lines = Lines::From(self.given + 1);
        self.next = self.next.saturating_add(count.saturating_mul(self.step));
        self.given += count;
        let rows = self.assembly.batch(columns, count as usize, &lines, &self.facts)?;
        self.batch_rows.follow(&rows);
        Ok(Read::Rows(SplitBatch { rows, lines, rejected: Vec::new(), kinds: None }))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{Int64Type, TimeUnit, TimestampMillisecondType};

    use super::*;
    use crate::connector::testing::{Everything, request, table};

    const TS3: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

    fn generate(table: &Table, batch_rows: usize) -> Everything {
        let request = ReadRequest { batch_rows, ..request(table) };
        let mut all = Everything::default();
        for mut split in Datagen.source(table, &request).unwrap().splits().unwrap() {
            while let Some(batch) = split.next().unwrap().rows() {
                all.batches.push(batch.rows);
            }
        }
        all
    }

    #[test]
    fn the_same_seed_gives_the_same_rows_whatever_the_batch_size() {
        let columns = [
            ("b", DataType::Boolean),
            ("t", DataType::Int8),
            ("i", DataType::Int32),
            ("l", DataType::Int64),
            ("d", DataType::Decimal128(6, 2)),
            ("f", DataType::Float64),
            ("s", DataType::Utf8),
            ("x", DataType::Binary),
            ("day", DataType::Date32),
            ("ts", TS3),
        ];
        let options = [("number-of-rows", "50"), ("seed", "7"), ("fields.s.null-rate", "0.3")];
        let t = table(&columns, &options);
        let rows = generate(&t, 8192).rows();
        assert_eq!(rows.len(), 50);
        for batch_rows in [1, 7] {
            assert_eq!(generate(&t, batch_rows).rows(), rows);
        }
        let nulls = rows.iter().filter(|row| row.contains("NULL")).count();
        assert!((5..30).contains(&nulls), "{nulls}");
        let other = table(&columns, &[("number-of-rows", "50"), ("seed", "8")]);
        assert_ne!(generate(&other, 8192).rows(), rows);
        // A projection does not change the values.
        let one = table(&[("l", DataType::Int64)], &[]);
        let request = ReadRequest { schema: one.schema(), ..request(&one) };
        let mut splits = Datagen.source(&t, &request).unwrap().splits().unwrap();
        let alone = splits[0].next().unwrap().rows().unwrap().rows;
        let values = alone.column(0).as_primitive::<Int64Type>();
        let first = rows[0].split(", ").nth(3).unwrap();
        assert_eq!(values.value(0).to_string(), first);
    }

    #[test]
    fn values_are_known_for_good() {
        // Worked out by another implementation of splitmix64; must never change.
        let t = table(
            &[("v", DataType::Int64)],
            &[("number-of-rows", "3"), ("fields.v.min", "0"), ("fields.v.max", "999")],
        );
        assert_eq!(generate(&t, 10).rows(), EXPECTED_V);
    }

    #[test]
    fn sequences_end_the_table() {
        let t = table(
            &[("v", DataType::Int32), ("k", DataType::Utf8)],
            &[
                ("fields.v.kind", "sequence"),
                ("fields.v.start", "5"),
                ("fields.v.end", "7"),
                ("fields.k.kind", "sequence"),
                ("fields.k.prefix", "user-"),
            ],
        );
        assert!(Datagen.check(&t).unwrap().bounded);
        assert_eq!(generate(&t, 2).rows(), ["5, user-0", "6, user-1", "7, user-2"]);
        let t = table(&[("v", DataType::Int8)], &[("number-of-rows", "200"), ("fields.v.kind", "sequence")]);
        let mut splits = Datagen.source(&t, &request(&t)).unwrap().splits().unwrap();
        assert_eq!(splits[0].next().unwrap_err().code(), "F002");
    }

    #[test]
    fn times_go_up_but_for_the_disorder() {
        let t = table(
            &[("ts", TS3)],
            &[
                ("number-of-rows", "1000"),
                ("fields.ts.start", "2024-05-01 00:00:00"),
                ("fields.ts.step", "1 s"),
                ("fields.ts.max-disorder", "5 s"),
            ],
        );
        let all = generate(&t, 8192);
        let values = all.batches[0].column(0).as_primitive::<TimestampMillisecondType>();
        let start = 1_714_521_600_000;
        let mut late = 0;
        for row in 0..values.values().len() {
            let behind = start + row as i64 * 1_000 - values.value(row);
            assert!((0..=5_000).contains(&behind), "{behind}");
            late += usize::from(behind > 2_500);
        }
        assert!((400..600).contains(&late), "{late}");
    }

    #[test]
    fn keys_can_be_skewed() {
        let t = table(
            &[("k", DataType::Int64)],
            &[
                ("number-of-rows", "10000"),
                ("fields.k.min", "1"),
                ("fields.k.max", "100"),
                ("fields.k.skew", "1.2"),
            ],
        );
        let all = generate(&t, 8192);
        let counts = all
            .batches
            .iter()
            .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
        let mut seen = vec![0; 101];
        counts.for_each(|key| seen[key as usize] += 1);
        assert!(seen[0] == 0 && seen[1] > 2_000 && seen[1] > 10 * seen[50], "{seen:?}");
    }

    #[test]
    fn options_are_checked() {
        let columns = [("v", DataType::Int32), ("ts", TS3)];
        let check = |options: &[(&str, &str)]| Datagen.check(&table(&columns, options)).unwrap_err();
        let error = check(&[("fields.v.mn", "1")]);
        assert_eq!(error.code(), "C001");
        assert!(error.hint_text().unwrap().contains("fields.v.min"), "{error}");
        assert_eq!(check(&[("fields.w.min", "1")]).code(), "C001");
        assert_eq!(check(&[("fields.v.min", "9"), ("fields.v.max", "1")]).code(), "C002");
        assert_eq!(check(&[("fields.v.max", "9999999999")]).code(), "C002");
        assert_eq!(check(&[("fields.v.length", "1")]).code(), "C002");
        assert_eq!(check(&[("fields.v.null-rate", "1.5")]).code(), "C002");
        assert_eq!(check(&[("fields.v.skew", "1")]).code(), "C002");
        assert_eq!(check(&[("rows-per-second", "0")]).code(), "C002");
        assert_eq!(check(&[("pause", "1 s")]).code(), "C002");
        assert_eq!(check(&[("pause-every", "1")]).code(), "C002");
        assert_eq!(check(&[("number-of-splits", "0")]).code(), "C002");
        assert!(!Datagen.check(&table(&columns, &[])).unwrap().bounded);
    }

    #[test]
    fn the_pace_counts_from_the_first_row() {
        let ms = Duration::from_millis;
        let pace = Pace { rows_per_second: Some(1_000), pause: None };
        assert_eq!([ms(0), ms(1), ms(999), ms(1_000)].map(|passed| pace.due(passed)), [1, 2, 1_000, 1_001]);
        // Ten rows take 10 ms, then nothing comes for 90 ms.
        let pause = Some(Pause { every_rows: 10, length: ms(90) });
        let pace = Pace { pause, ..pace };
        let due = [ms(0), ms(9), ms(10), ms(99), ms(100), ms(101), ms(250)].map(|passed| pace.due(passed));
        assert_eq!(due, [1, 10, 10, 10, 11, 12, 30]);
        let pace = Pace { rows_per_second: None, pause };
        assert_eq!([ms(0), ms(89), ms(90), ms(180)].map(|passed| pace.due(passed)), [10, 10, 20, 30]);
    }

    #[test]
    fn rows_are_dealt_to_splits_in_turn() {
        let columns = [("v", DataType::Int32)];
        let options = [("number-of-rows", "8"), ("fields.v.kind", "sequence"), ("number-of-splits", "3")];
        let t = table(&columns, &options);
        for batch_rows in [1, 2, 100] {
            assert_eq!(generate(&t, batch_rows).rows(), ["0", "3", "6", "1", "4", "7", "2", "5"]);
        }
        // A split without rows is at its end at once.
        let t = table(&columns, &[("number-of-rows", "2"), ("number-of-splits", "3")]);
        assert_eq!(generate(&t, 100).rows().len(), 2);
    }

    #[test]
    fn what_is_not_due_is_not_there() {
        let t = table(
            &[("v", DataType::Int32)],
            &[("number-of-rows", "10"), ("pause-every", "4"), ("pause", "1000 d")],
        );
        let mut splits = Datagen.source(&t, &request(&t)).unwrap().splits().unwrap();
        assert_eq!(splits[0].next().unwrap().rows().unwrap().rows.num_rows(), 4);
        assert!(matches!(splits[0].next().unwrap(), Read::Empty));
    }

    const EXPECTED_V: [&str; 3] = ["444", "255", "88"];
}
