//! The answer to a case, row by row over the whole input, from docs/sql.md and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Days, NaiveTime, TimeZone};

use super::case::{Aggregate, Case, Event, Filter, Row, TableCase, Window};

/// Before the first watermark.
const NONE: i64 = i64::MIN;

/// What a case must give.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Sorted.
    pub(crate) rows: Vec<String>,
    /// (row, reason), sorted.
    pub(crate) late_rows: Vec<(i64, &'static str)>,
    pub(crate) late: u64,
    pub(crate) partly_late: u64,
    pub(crate) null_time: u64,
    pub(crate) filtered: u64,
}

pub(crate) fn answer(case: &Case) -> Answer {
    let rows = if case.bounded { aligned(case) } else { arrived(case) };
    let mut answer = Answer::default();
    let arrival = rows.iter().enumerate().map(|(place, (row, _))| (row.id, place)).collect();
    let mut windows = Windows { case, arrival, groups: BTreeMap::new(), sessions: BTreeMap::new() };
    for (row, watermark) in rows {
        if !passes(case.filter, row) {
            answer.filtered += 1;
            continue;
        }
        let Some(time) = row.time else {
            answer.null_time += 1;
            answer.late_rows.push((row.id, "null_time"));
            continue;
        };
        match windows.put(row, time, watermark) {
            (0, _) => {
                answer.late += 1;
                answer.late_rows.push((row.id, "late"));
            }
            (open, all) => answer.partly_late += u64::from(open < all),
        }
    }
    answer.rows = windows.result();
    answer.rows.sort();
    answer.late_rows.sort();
    answer
}

fn passes(filter: Filter, row: &Row) -> bool {
    match filter {
        Filter::None => true,
        Filter::ValueAtLeast(least) => row.value.is_some_and(|value| value >= least),
        Filter::KeyIsNot(key) => row.key.is_some_and(|known| known != key),
    }
}

/// What a row asks the watermark to be.
fn wanted(table: &TableCase, row: &Row) -> i64 {
    row.time.map_or(NONE, |time| time - table.delay_s * 1_000)
}

/// Rows of tables that end: next always the one whose input is furthest behind, and of equals that of
/// the first input. First the splits of each table, then the tables.
fn aligned(case: &Case) -> Vec<(&Row, i64)> {
    let tables = case.tables.iter().enumerate().map(|(number, table)| {
        let splits = (0..table.splits).map(|place| {
            let rows = case.events.iter().filter_map(|event| match event {
                Event::Rows { table, split, rows } if (*table, *split) == (number, place) => Some(rows),
                _ => None,
            });
            let mut watermark = NONE;
            let with_watermark = rows.flatten().map(|row| {
                let before = watermark;
                watermark = watermark.max(wanted(table, row));
                (row, before)
            });
            with_watermark.collect()
        });
        lowest_first(splits.collect())
    });
    lowest_first(tables.collect())
}

fn lowest_first(inputs: Vec<Vec<(&Row, i64)>>) -> Vec<(&Row, i64)> {
    let mut next = vec![0; inputs.len()];
    let mut merged = Vec::new();
    loop {
        let heads =
            inputs.iter().enumerate().filter_map(|(input, rows)| Some((rows.get(next[input])?.1, input)));
        let Some((_, input)) = heads.min() else { return merged };
        merged.push(inputs[input][next[input]]);
        next[input] += 1;
    }
}

/// Something with inputs: its watermark is the lowest of those that count, and never goes back.
struct Merged {
    watermarks: Vec<i64>,
    idle: Vec<bool>,
    ended: Vec<bool>,
    watermark: i64,
}

impl Merged {
    fn of(inputs: usize) -> Self {
        Self {
            watermarks: vec![NONE; inputs],
            idle: vec![false; inputs],
            ended: vec![false; inputs],
            watermark: NONE,
        }
    }

    /// Whether all inputs that have not ended are idle.
    fn is_idle(&self) -> bool {
        self.idle.iter().zip(&self.ended).all(|(idle, ended)| *idle || *ended)
    }

    fn move_on(&mut self) -> i64 {
        let live = (0..self.watermarks.len()).filter(|input| !self.ended[*input]);
        let active =
            live.clone().filter(|input| !self.idle[*input]).map(|input| self.watermarks[input]).min();
        let reached = active.or_else(|| live.map(|input| self.watermarks[input]).max());
        self.watermark = self.watermark.max(reached.unwrap_or(NONE));
        self.watermark
    }
}

/// Rows of tables that go on, as they arrive, with the watermark that held just before each.
fn arrived(case: &Case) -> Vec<(&Row, i64)> {
    let mut tables: Vec<Merged> = case.tables.iter().map(|table| Merged::of(table.splits)).collect();
    let mut all = Merged::of(tables.len());
    let mut quiet_since: Vec<Vec<i64>> = case.tables.iter().map(|table| vec![0; table.splits]).collect();
    let mut now = 0;
    let mut merged = Vec::new();
    for event in &case.events {
        match event {
            Event::Rows { table, split, rows } => {
                let (place, split) = (*table, *split);
                quiet_since[place][split] = now;
                for row in rows {
                    let table = &mut tables[place];
                    table.idle[split] = false;
                    all.idle[place] = false;
                    all.watermarks[place] = table.move_on();
                    merged.push((row, all.move_on()));
                    let reached = table.watermarks[split].max(wanted(&case.tables[place], row));
                    table.watermarks[split] = reached;
                    all.watermarks[place] = table.move_on();
                    all.move_on();
                }
            }
            Event::Advance(seconds) => {
                now += seconds;
                for (place, table) in tables.iter_mut().enumerate() {
                    let Some(timeout) = case.tables[place].idle_s else { continue };
                    for (idle, since) in table.idle.iter_mut().zip(&quiet_since[place]) {
                        *idle |= now - since > timeout;
                    }
                    all.watermarks[place] = table.move_on();
                    all.idle[place] = table.is_idle();
                }
                all.move_on();
            }
            Event::EndSplit { table, split } => {
                tables[*table].ended[*split] = true;
                all.watermarks[*table] = tables[*table].move_on();
                all.idle[*table] = tables[*table].is_idle();
                all.move_on();
            }
        }
    }
    merged
}

/// A window: its bounds as they are shown, and the first instant behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Bounds {
    end: i64,
    start: i64,
    closes: i64,
}

type Key = Option<&'static str>;

struct Windows<'a> {
    case: &'a Case,
    /// The place of a row, by its id, among all as they arrive.
    arrival: BTreeMap<i64, usize>,
    groups: BTreeMap<(Bounds, Key), Vec<&'a Row>>,
    /// For each partition its sessions, also those that are over.
    sessions: BTreeMap<Key, Vec<Session<'a>>>,
}

struct Session<'a> {
    start: i64,
    end: i64,
    rows: Vec<&'a Row>,
}

impl<'a> Windows<'a> {
    /// In how many windows the row is used, and how many it has.
    fn put(&mut self, row: &'a Row, time: i64, watermark: i64) -> (usize, usize) {
        let behind = watermark.saturating_sub(self.case.lateness_s * 1_000);
        if let Window::Session { gap, by_key } = self.case.window {
            let partition = if by_key { row.key } else { None };
            let sessions = self.sessions.entry(partition).or_default();
            return (usize::from(put_in_session(sessions, row, time, gap * 1_000, behind)), 1);
        }
        let all = bounds_of(self.case, time);
        let key = if self.case.by_key { row.key } else { None };
        let mut open = 0;
        for bounds in all.iter().filter(|bounds| behind < bounds.closes - 1) {
            self.groups.entry((*bounds, key)).or_default().push(row);
            open += 1;
        }
        (open, all.len())
    }

    fn result(mut self) -> Vec<String> {
        for Session { start, end, rows } in std::mem::take(&mut self.sessions).into_values().flatten() {
            for row in rows {
                let key = if self.case.by_key { row.key } else { None };
                self.groups.entry((Bounds { end, start, closes: end }, key)).or_default().push(row);
            }
        }
        match self.case.outer_s {
            Some(outer_s) => self.windows_of_windows(outer_s * 1_000),
            None => self.groups.iter().map(|((bounds, key), rows)| self.line(bounds, *key, rows)).collect(),
        }
    }

    fn line(&self, bounds: &Bounds, key: Key, rows: &[&Row]) -> String {
        let mut line = format!("{}|{}", bounds.start, bounds.end);
        if self.case.by_key {
            line += &format!("|{}", key.unwrap_or(""));
        }
        // Sessions that became one keep the order of arrival.
        let mut rows = rows.to_vec();
        rows.sort_by_key(|row| self.arrival[&row.id]);
        let values = || rows.iter().filter_map(|row| row.value);
        let text = |value: Option<i64>| value.map(|value| value.to_string()).unwrap_or_default();
        for aggregate in &self.case.aggregates {
            let value = match aggregate {
                Aggregate::Count => rows.len().to_string(),
                Aggregate::CountValue => values().count().to_string(),
                Aggregate::Sum => text(values().reduce(|sum, value| sum + value)),
                Aggregate::Min => text(values().min()),
                Aggregate::Max => text(values().max()),
                Aggregate::CountDistinct => values().collect::<BTreeSet<_>>().len().to_string(),
                Aggregate::First => text(rows.first().map(|row| row.id)),
                Aggregate::Last => text(rows.last().map(|row| row.id)),
                Aggregate::SumOfKey(key) => {
                    let of_key = rows.iter().filter(|row| row.key == Some(*key)).filter_map(|row| row.value);
                    text(of_key.reduce(|sum, value| sum + value))
                }
            };
            line += &format!("|{value}");
        }
        line
    }

    /// An inner window falls into the outer one of its last millisecond.
    fn windows_of_windows(&self, outer: i64) -> Vec<String> {
        let mut counts: BTreeMap<i64, (usize, usize)> = BTreeMap::new();
        for ((bounds, _), rows) in &self.groups {
            let start = (bounds.end - 1).div_euclid(outer) * outer;
            let (windows, n) = counts.entry(start).or_default();
            *windows += 1;
            *n += rows.len();
        }
        let line = |(start, (windows, n)): (&i64, &(usize, usize))| {
            format!("{start}|{}|{windows}|{n}", start + outer)
        };
        counts.iter().map(line).collect()
    }
}

/// Puts a row to the sessions that it touches, which become one. False: it is late.
fn put_in_session<'a>(
    sessions: &mut Vec<Session<'a>>,
    row: &'a Row,
    time: i64,
    gap: i64,
    watermark: i64,
) -> bool {
    let is_over = |end: i64| watermark >= end - 1;
    let (mut start, mut end, mut rows) = (time, time + gap, vec![row]);
    let touched =
        |session: &Session<'_>| !is_over(session.end) && session.start <= time + gap && time <= session.end;
    for session in sessions.iter().filter(|session| touched(session)) {
        (start, end) = (start.min(session.start), end.max(session.end));
        rows.extend(&session.rows);
    }
    if is_over(end) {
        return false;
    }
    sessions.retain(|session| !touched(session));
    sessions.push(Session { start, end, rows });
    true
}

/// All windows of a time.
fn bounds_of(case: &Case, time: i64) -> Vec<Bounds> {
    let plain = |start: i64, end: i64| Bounds { start, end, closes: end };
    let floor = |length: i64, offset: i64| (time - offset).div_euclid(length) * length + offset;
    match case.window {
        Window::Tumble { size, offset } => {
            let (size, offset) = (size * 1_000, offset * 1_000);
            vec![plain(floor(size, offset), floor(size, offset) + size)]
        }
        Window::Hop { slide, size, offset } => {
            let (slide, size, offset) = (slide * 1_000, size * 1_000, offset * 1_000);
            let last = floor(slide, offset);
            let starts = (0..size / slide).map(|back| last - back * slide);
            starts.map(|start| plain(start, start + size)).filter(|bounds| time < bounds.end).collect()
        }
        Window::Cumulate { step, size, offset } => {
            let (step, size, offset) = (step * 1_000, size * 1_000, offset * 1_000);
            let start = floor(size, offset);
            let ends = (1..=size / step).map(|steps| start + steps * step);
            ends.map(|end| plain(start, end)).filter(|bounds| time < bounds.end).collect()
        }
        Window::Day => {
            let zone = case.zone.expect("days are those of a zone");
            let day = zone.timestamp_millis_opt(time).single().expect("an instant").date_naive();
            let next = day.checked_add_days(Days::new(1)).expect("a day follows");
            let shown = |day: chrono::NaiveDate| day.and_time(NaiveTime::MIN).and_utc().timestamp_millis();
            let midnight: DateTime<_> =
                zone.from_local_datetime(&next.and_time(NaiveTime::MIN)).single().expect("one midnight");
            vec![Bounds { start: shown(day), end: shown(next), closes: midnight.timestamp_millis() }]
        }
        Window::Session { .. } => unreachable!("sessions depend on other rows"),
    }
}
