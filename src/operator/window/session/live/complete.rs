//! EMIT COMPLETE: the whole result in place of the one before.

use std::time::Instant;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;

use super::super::super::live::changes::{Change, Changes, Place};
use super::super::super::live::complete::Given;
use super::super::super::live::groups::KeyFormat;
use super::super::super::results::Bounds;
use super::super::Intake;
use super::super::chain::{ALL, Chain, Kept};
use super::sessions::Sessions;
use crate::error::Error;
use crate::operator::Output;

/// The results of sessions that are over, and what was given last.
pub(super) struct Complete {
    /// Makes rows of results.
    pub(super) rows: Changes,
    /// Keys and values, the place of each result its number in `gone`.
    pub(super) columns: Kept,
    pub(super) chain: Chain,
    pub(super) gone: Vec<Line>,
    pub(super) given: Given,
    /// Rows have come since.
    pub(super) is_dirty: bool,
}

/// A result and its place among the others: by the end of its session, then by its first row.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) end: i64,
    pub(super) first: u64,
    pub(super) bounds: Bounds,
}

impl Complete {
    pub(super) fn new(schema: &SchemaRef, unit_us: i64) -> Self {
        Self {
            rows: Changes::new(schema, true, unit_us),
            columns: Kept::default(),
            chain: Chain::default(),
            gone: Vec::new(),
            given: Given::default(),
            is_dirty: false,
        }
    }

    /// Keeps the results of a session that takes no more rows.
    pub(super) fn keep(
        &mut self,
        number: u64,
        sessions: &mut Sessions,
        keys: &KeyFormat,
        intake: &mut Intake,
    ) -> Result<(), Error> {
        let Some(live) = sessions.get(number) else { return Ok(()) };
        let (bounds, groups) = (intake.shown(live.start, live.end), live.groups.clone());
        for group in &groups {
            self.columns.link(&mut self.chain, 0)?;
            self.gone.push(Line { end: live.end, first: sessions.groups.of(*group).first, bounds });
        }
        self.columns.append(columns(sessions, keys, &groups)?.0)
    }

    /// Deletes what was given and gives the whole result, by window end, then as keys were first seen.
    /// The same result is not given again.
    pub(super) fn round(
        &mut self,
        sessions: &mut Sessions,
        keys: &KeyFormat,
        intake: &mut Intake,
        running: i64,
        arrived: Instant,
        out: &mut Output,
    ) -> Result<(), Error> {
        self.is_dirty = false;
        let mut lines = self.gone.clone();
        let mut groups = Vec::new();
        for live in sessions.iter() {
            let bounds = intake.shown(live.start, live.end);
            let line = |group: &u32| Line { end: live.end, first: sessions.groups.of(*group).first, bounds };
            lines.extend(live.groups.iter().map(line));
            groups.extend_from_slice(&live.groups);
        }
        let (open, key_count) = columns(sessions, keys, &groups)?;
        let open = self.add(open, key_count);
        let gone = match self.gone.len() as u32 {
            0 => open,
            len => {
                let gone: Vec<u32> = (0..len).collect();
                let gone = self.columns.take(&gone, ALL)?;
                self.add(gone, key_count)
            }
        };
        let mut order: Vec<u32> = (0..lines.len() as u32).collect();
        order.sort_unstable_by_key(|line| {
            let line = lines[*line as usize];
            (line.end, line.first)
        });
        for (order, line) in (0u32..).zip(order) {
            let (which, row) = match (line as usize).checked_sub(self.gone.len()) {
                None => (gone, line),
                Some(row) => (open, row as u32),
            };
            let [keys, values] = which.map(|columns| Place { columns, row });
            let bounds = lines[line as usize].bounds;
            self.rows.push(Change { order, bounds, keys, before: None, after: Some(values), running });
        }
        let mut result = Output::default();
        self.rows.flush(arrived, &mut result)?;
        self.given.replace(result, Some(running), arrived, out);
        Ok(())
    }

    /// Adds columns of results; gives the numbers of their keys and values.
    fn add(&mut self, mut columns: Vec<ArrayRef>, key_count: usize) -> [u32; 2] {
        let values = columns.split_off(key_count);
        [self.rows.add_keys(columns), self.rows.add_values(values)]
    }

    /// Rows and bytes that it keeps.
    pub(super) fn size(&self) -> (usize, usize) {
        let lines = self.gone.capacity() * size_of::<Line>();
        (self.gone.len(), lines + self.columns.size() + self.given.size())
    }
}

/// The keys, then the present values of groups; and how many keys there are.
fn columns(
    sessions: &mut Sessions,
    keys: &KeyFormat,
    groups: &[u32],
) -> Result<(Vec<ArrayRef>, usize), Error> {
    let mut columns = sessions.groups.keys(keys, groups)?;
    let key_count = columns.len();
    columns.extend(sessions.groups.values(groups)?);
    Ok((columns, key_count))
}
