//! A case drawn from a seed: tables, a query over them, and what happens to its splits.

use chrono::DateTime;
use chrono_tz::Tz;

use super::dice::Dice;

/// Everything that is drawn. Times are milliseconds since 1970, UTC.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) tables: Vec<TableCase>,
    /// The tables end: they are read aligned by event time. Otherwise as their rows arrive.
    pub(crate) bounded: bool,
    /// The time column is an instant.
    pub(crate) instants: bool,
    pub(crate) window: Window,
    pub(crate) zone: Option<Tz>,
    pub(crate) by_key: bool,
    pub(crate) filter: Filter,
    pub(crate) aggregates: Vec<Aggregate>,
    /// Seconds: the query counts the windows of this size over the windows of the first query.
    pub(crate) outer_s: Option<i64>,
    /// Each change is given.
    pub(crate) changes: bool,
    /// Seconds of ALLOW LATENESS; 0: none.
    pub(crate) lateness_s: i64,
    pub(crate) events: Vec<Event>,
    pub(crate) batch_rows: i64,
    pub(crate) parallelism: i64,
}

#[derive(Debug, Clone)]
pub(crate) struct TableCase {
    pub(crate) name: &'static str,
    pub(crate) delay_s: i64,
    pub(crate) idle_s: Option<i64>,
    pub(crate) splits: usize,
}

/// Lengths are seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Window {
    Tumble {
        size: i64,
        offset: i64,
    },
    Hop {
        slide: i64,
        size: i64,
        offset: i64,
    },
    Cumulate {
        step: i64,
        size: i64,
        offset: i64,
    },
    Session {
        gap: i64,
        by_key: bool,
    },
    /// A day of the zone's clocks.
    Day,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Filter {
    None,
    ValueAtLeast(i64),
    KeyIsNot(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Aggregate {
    Count,
    CountValue,
    Sum,
    Min,
    Max,
    CountDistinct,
    First,
    Last,
    SumOfKey(&'static str),
}

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Rows {
        table: usize,
        split: usize,
        rows: Vec<Row>,
    },
    /// Seconds pass.
    Advance(i64),
    EndSplit {
        table: usize,
        split: usize,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) id: i64,
    pub(crate) key: Option<&'static str>,
    pub(crate) value: Option<i64>,
    pub(crate) time: Option<i64>,
}

const KEYS: [Option<&str>; 4] = [Some("a"), Some("b"), Some("c"), None];
const ALL: [Aggregate; 9] = [
    Aggregate::Count,
    Aggregate::CountValue,
    Aggregate::Sum,
    Aggregate::Min,
    Aggregate::Max,
    Aggregate::CountDistinct,
    Aggregate::First,
    Aggregate::Last,
    Aggregate::SumOfKey("a"),
];

/// Zones, and a moment shortly before one of their clock changes.
const CHANGES: [(Tz, i64); 5] = [
    (Tz::Europe__Berlin, 1_711_749_600_000),
    (Tz::Europe__Berlin, 1_729_893_600_000),
    (Tz::Australia__Lord_Howe, 1_712_361_600_000),
    (Tz::Australia__Lord_Howe, 1_728_043_200_000),
    (Tz::Asia__Kolkata, 1_711_749_600_000),
];

impl Case {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let dice = &mut dice;
        let bounded = dice.one_in(3);
        let tables = ["t", "u"][..1 + usize::from(dice.one_in(3))].iter().map(|name| TableCase {
            name,
            delay_s: dice.pick(&[0, 1, 5, 20]),
            idle_s: if bounded || dice.one_in(2) { None } else { Some(dice.pick(&[5, 30])) },
            splits: dice.pick(&[1, 1, 2, 3]),
        });
        let tables: Vec<_> = tables.collect();
        let by_key = !dice.one_in(3);
        let (zone, start) = if dice.one_in(8) {
            let (zone, start) = dice.pick(&CHANGES);
            (Some(zone), start)
        } else {
            (None, dice.pick(&[0, 1_714_554_000_000, -86_400_000, 253_370_764_800_000]))
        };
        let window = if zone.is_some() { Window::Day } else { window(dice, by_key) };
        let may_cascade = zone.is_none();
        let outer_s = (may_cascade && dice.one_in(4)).then(|| dice.pick(&[10, 60]));
        let mut case = Self {
            seed,
            bounded,
            instants: zone.is_some() || dice.one_in(4),
            window,
            zone,
            by_key,
            filter: dice.pick(&[Filter::None, Filter::None, Filter::ValueAtLeast(3), Filter::KeyIsNot("c")]),
            aggregates: (0..1 + dice.below(4)).map(|_| dice.pick(&ALL)).collect(),
            outer_s,
            changes: false,
            lateness_s: 0,
            events: Vec::new(),
            batch_rows: dice.pick(&[1, 2, 3, 7, 8_192]),
            parallelism: dice.pick(&[1, 1, 2, 3]),
            tables,
        };
        case.events(dice, start);
        let mixes = matches!(case.window, Window::Session { by_key: true, .. }) && !case.by_key;
        if case.outer_s.is_none() && !mixes {
            case.changes = dice.one_in(4);
            case.lateness_s = if dice.one_in(6) { dice.pick(&[1, 5, 40]) } else { 0 };
        }
        case
    }

    fn events(&mut self, dice: &mut Dice, start: i64) {
        // Steps of half a second make equal times and times at the edges of windows frequent.
        let (step, steps) = if self.zone.is_some() { (3_600_000, 6) } else { (500, dice.pick(&[2, 6, 20])) };
        let disorder = dice.pick(&[1, 8, 40]);
        let mut now: Vec<Vec<i64>> = self.tables.iter().map(|table| vec![start; table.splits]).collect();
        let mut live: Vec<Vec<usize>> = self.tables.iter().map(|table| (0..table.splits).collect()).collect();
        let mut id = 0;
        for _ in 0..5 + dice.below(30) {
            let table = dice.below(self.tables.len() as i64) as usize;
            let split = dice.pick(&live[table]);
            if !self.bounded && dice.one_in(5) {
                self.events.push(Event::Advance(dice.pick(&[1, 5, 6, 30, 31, 100])));
                continue;
            }
            if !self.bounded && live[table].len() > 1 && dice.one_in(25) {
                live[table].retain(|other| *other != split);
                self.events.push(Event::EndSplit { table, split });
                continue;
            }
            let row = |dice: &mut Dice| {
                id += 1;
                now[table][split] += dice.below(steps) * step;
                let time = now[table][split] - dice.below(disorder) * step;
                Row {
                    id,
                    key: dice.pick(&KEYS),
                    value: if dice.one_in(6) { None } else { Some(dice.below(9)) },
                    time: if dice.one_in(20) { None } else { Some(time) },
                }
            };
            let mut row = row;
            let rows = (0..1 + dice.below(6)).map(|_| row(dice)).collect();
            self.events.push(Event::Rows { table, split, rows });
        }
    }

    /// Whether the query gives a changelog.
    pub(crate) fn is_updating(&self) -> bool {
        self.changes || self.lateness_s > 0
    }

    /// Whether the query keeps its late rows; not all can.
    pub(crate) fn keeps_late(&self) -> bool {
        self.outer_s.is_none() && !matches!(self.window, Window::Session { .. })
    }

    /// The statements that make the tables and views.
    pub(crate) fn tables_sql(&self) -> String {
        let mut sql = String::new();
        let time_type = if self.instants { "TIMESTAMP_LTZ(3)" } else { "TIMESTAMP(3)" };
        for table in &self.tables {
            let idle = table.idle_s.map(|s| format!(" IDLE AFTER INTERVAL '{s}' SECOND")).unwrap_or_default();
            sql += &format!(
                "CREATE TABLE {} (id BIGINT, k STRING, v INT, ts {time_type}, \
                 WATERMARK FOR ts AS ts - INTERVAL '{}' SECOND{idle}) WITH ('connector' = 'feed');\n",
                table.name, table.delay_s
            );
        }
        let filter = match self.filter {
            Filter::None => String::new(),
            Filter::ValueAtLeast(least) => format!(" WHERE v >= {least}"),
            Filter::KeyIsNot(key) => format!(" WHERE k <> '{key}'"),
        };
        let parts =
            self.tables.iter().map(|table| format!("SELECT id, k, v, ts FROM {}{filter}", table.name));
        sql + &format!("CREATE VIEW rows_of AS {};\n", parts.collect::<Vec<_>>().join(" UNION ALL "))
    }

    /// The query.
    pub(crate) fn query_sql(&self) -> String {
        let zone = self.zone.map(|zone| format!(", ZONE => '{zone}'")).unwrap_or_default();
        let call = |name: &str, partition: &str, lengths: &[i64], offset: i64| {
            let mut lengths: Vec<String> =
                lengths.iter().map(|length| format!("INTERVAL '{length}' SECOND")).collect();
            if offset != 0 {
                lengths.push(format!("INTERVAL '{offset}' SECOND"));
            }
            format!("TABLE({name}(TABLE rows_of{partition}, DESCRIPTOR(ts), {}))", lengths.join(", "))
        };
        let from = match self.window {
            Window::Tumble { size, offset } => call("TUMBLE", "", &[size], offset),
            Window::Hop { slide, size, offset } => call("HOP", "", &[slide, size], offset),
            Window::Cumulate { step, size, offset } => call("CUMULATE", "", &[step, size], offset),
            Window::Session { gap, by_key } => {
                call("SESSION", if by_key { " PARTITION BY k" } else { "" }, &[gap], 0)
            }
            Window::Day => format!("TABLE(TUMBLE(TABLE rows_of, DESCRIPTOR(ts), INTERVAL '1' DAY{zone}))"),
        };
        let key = if self.by_key { ", k" } else { "" };
        if let Some(outer_s) = self.outer_s {
            return format!(
                "SELECT window_start, window_end, COUNT(*) AS windows, SUM(n) AS n FROM TABLE(TUMBLE((SELECT \
                 window_time AS wt, n FROM (SELECT window_start, window_end, window_time{key}, COUNT(*) AS n FROM {from} \
                 GROUP BY window_start, window_end, window_time{key})), DESCRIPTOR(wt), INTERVAL '{outer_s}' SECOND)) \
                 GROUP BY window_start, window_end;"
            );
        }
        let aggregates = self.aggregates.iter().enumerate().map(|(number, aggregate)| {
            let call = match aggregate {
                Aggregate::Count => "COUNT(*)".to_owned(),
                Aggregate::CountValue => "COUNT(v)".to_owned(),
                Aggregate::Sum => "SUM(v)".to_owned(),
                Aggregate::Min => "MIN(v)".to_owned(),
                Aggregate::Max => "MAX(v)".to_owned(),
                Aggregate::CountDistinct => "COUNT(DISTINCT v)".to_owned(),
                Aggregate::First => "FIRST_VALUE(id)".to_owned(),
                Aggregate::Last => "LAST_VALUE(id)".to_owned(),
                Aggregate::SumOfKey(key) => format!("SUM(v) FILTER (WHERE k = '{key}')"),
            };
            format!(", {call} AS a{number}")
        });
        let late = if self.keeps_late() { " LATE ROWS INTO late" } else { "" };
        let changes = if self.changes { " EMIT CHANGES" } else { "" };
        let lateness = match self.lateness_s {
            0 => String::new(),
            seconds => format!(" ALLOW LATENESS INTERVAL '{seconds}' SECOND"),
        };
        format!(
            "SELECT window_start, window_end{key}{} FROM {from} \
             GROUP BY window_start, window_end{key}{changes}{lateness}{late};",
            aggregates.collect::<String>()
        )
    }

    /// A row as a line of JSON.
    pub(crate) fn json(&self, row: &Row) -> String {
        let text =
            |text: Option<String>| text.map_or_else(|| "null".to_owned(), |text| format!("\"{text}\""));
        let end = if self.instants { "Z" } else { "" };
        let time = row.time.map(|time| {
            let time = DateTime::from_timestamp_millis(time).expect("a time that chrono knows");
            format!("{}{end}", time.format("%Y-%m-%d %H:%M:%S%.3f"))
        });
        let value = row.value.map_or_else(|| "null".to_owned(), |value| value.to_string());
        let key = text(row.key.map(str::to_owned));
        format!("{{\"id\":{},\"k\":{key},\"v\":{value},\"ts\":{}}}", row.id, text(time))
    }
}

fn window(dice: &mut Dice, by_key: bool) -> Window {
    let unit = dice.pick(&[1, 2, 5]);
    let times = 1 + dice.below(4);
    let size = unit * times;
    let offset = if dice.one_in(3) { dice.below(2 * size - 1) - (size - 1) } else { 0 };
    match dice.below(4) {
        0 => Window::Tumble { size, offset },
        1 => Window::Hop { slide: unit, size, offset },
        2 => Window::Cumulate { step: unit, size, offset },
        _ => Window::Session { gap: size, by_key: if by_key { !dice.one_in(4) } else { dice.one_in(3) } },
    }
}
