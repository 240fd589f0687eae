//! What live sessions keep, as tables of a checkpoint.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, UInt32Array, UInt64Array};
use arrow::datatypes::{Int64Type, UInt32Type, UInt64Type};
use foldhash::fast::RandomState;

use super::super::super::live::groups::KeyFormat;
use super::super::super::live::kept::{Distincts, KeptStates};
use super::super::super::recipe::Recipe;
use super::super::super::results::Bounds;
use super::super::chain::{ALL, Chain};
use super::super::state::{SESSIONS, numbers};
use super::super::track::Session;
use super::LiveSessions;
use super::complete::{Complete, Line};
use super::sessions::{Live, OWED_COLUMNS, Sessions};
use crate::error::Error;
use crate::operator::state::misfit;
use crate::operator::{StateReader, StateWriter};

/// The table of groups. Behind the place of the session stand [`GROUP_COLUMNS`], the keys and states.
const GROUPS: &str = "groups";
/// The number that the group had, when its first row arrived, and whether what was given of it is what it is.
const GROUP_COLUMNS: usize = 3;
/// Columns of results before their keys: the place among others, the bounds.
const LINE_COLUMNS: usize = 5;

impl LiveSessions {
    pub(super) fn write(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("rows_seen", self.rows_seen as i64);
        state.number("live_watermark", self.watermark);
        state.optional("next_round", self.rounds.next_us);
        let sessions = self.intake.write(state)?;
        self.sessions.write(&sessions, &self.keys, state)?;
        match &self.complete {
            Some(complete) => state.scoped("complete", |state| complete.write(state)),
            None => Ok(()),
        }
    }

    pub(super) fn read(&mut self, state: &mut StateReader) -> Result<(), Error> {
        self.rows_seen = state.highest("rows_seen").unwrap_or(0) as u64;
        self.watermark = state.lowest("live_watermark").unwrap_or(i64::MIN);
        self.rounds.next_us = state.moment("next_round").or(self.rounds.next_us);
        let mut known = Vec::new();
        for id in self.intake.read(state)? {
            let session = self.intake.tracker.session(id).ok_or_else(lost)?;
            known.push((session.number, (session.start, session.end)));
        }
        let waiting = self.sessions.read(&known, &self.keys, &self.recipe, state)?;
        if self.rounds.next_us.is_some() {
            self.waiting = waiting;
        }
        if let Some(complete) = &mut self.complete {
            state.scoped("complete", |state| complete.read(state))?;
        }
        self.arrived = Some(state.arrived());
        Ok(())
    }
}

fn lost() -> Error {
    misfit("what belongs to a session has none")
}

impl Sessions {
    fn write(
        &mut self,
        sessions: &[Session],
        keys: &KeyFormat,
        state: &mut StateWriter,
    ) -> Result<(), Error> {
        let lives: Vec<Option<&Live>> = sessions.iter().map(|session| self.get(session.number)).collect();
        let (mut waiting, mut of, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        for (place, live) in (0u32..).zip(&lives) {
            let Some(live) = live else { continue };
            waiting.extend(live.is_waiting.then_some(place));
            groups.extend_from_slice(&live.groups);
            of.resize(groups.len(), place);
        }
        let chains = |chain: fn(&Live) -> Chain| {
            let chains = lives.iter().map(|live| live.map_or_else(Chain::default, chain));
            chains.collect::<Vec<_>>()
        };
        let (rows, owed) = (chains(Live::rows), chains(Live::owed));
        state.columns_of(SESSIONS, "waiting", vec![Arc::new(UInt32Array::from(waiting))])?;
        self.rows.write(SESSIONS, "rows", rows.into_iter(), state)?;
        self.owed.write(SESSIONS, "owed", owed.into_iter(), state)?;
        if groups.is_empty() {
            return Ok(());
        }
        let firsts = groups.iter().map(|group| self.groups.of(*group).first);
        let is_given = groups.iter().map(|group| Some(self.groups.of(*group).is_given));
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from(of)),
            Arc::new(UInt32Array::from(groups.clone())),
            Arc::new(UInt64Array::from_iter_values(firsts)),
            Arc::new(is_given.collect::<BooleanArray>()),
        ];
        columns.extend(self.groups.keys(keys, &groups)?);
        let mut distincts = Distincts::default();
        columns.extend(self.groups.states()?.write(&groups, 0, &mut distincts)?);
        state.columns_of(SESSIONS, GROUPS, columns)?;
        distincts.write(GROUPS, state)
    }

    /// `known`: the numbers and bounds of the sessions, in the order of their table. Gives the numbers of those that
    /// wait for a round.
    fn read(
        &mut self,
        known: &[(u64, (i64, i64))],
        keys: &KeyFormat,
        recipe: &Recipe,
        state: &StateReader,
    ) -> Result<Vec<u64>, Error> {
        self.add(known);
        let number_of = |place: usize| known.get(place).map(|(number, _)| *number).ok_or_else(lost);
        let columns = state.columns(GROUPS)?.unwrap_or_default();
        // The group that had a number in the session at a place.
        let mut group_of: HashMap<(u32, u32), u32, RandomState> = HashMap::default();
        let key_count = recipe.group_schema.fields().len();
        if columns.len() > GROUP_COLUMNS + key_count {
            let (of, old) = (numbers::<UInt32Type>(&columns, 0)?, numbers::<UInt32Type>(&columns, 1)?);
            let firsts = numbers::<UInt64Type>(&columns, 2)?;
            let is_given = columns[GROUP_COLUMNS].as_boolean_opt().ok_or_else(lost)?;
            let (group_keys, states) = columns[GROUP_COLUMNS + 1..].split_at(key_count);
            let key_rows = keys.rows(&[group_keys.to_vec()])?;
            let mut groups = Vec::with_capacity(of.len());
            for row in 0..of.len() {
                let number = number_of(of.value(row) as usize)?;
                let (first, is_given) = (firsts.value(row), is_given.value(row));
                let group = self.groups.restore(number, &key_rows, row as u32, first, is_given);
                self.get_mut(number).ok_or_else(lost)?.groups.push(group);
                group_of.insert((of.value(row), old.value(row)), group);
                groups.push(group);
            }
            let rows: Vec<u32> = (0..groups.len() as u32).collect();
            let kept = KeptStates::read(states.to_vec(), state)?;
            self.groups.states()?.read(&rows, &groups, &kept)?;
        }
        self.read_rows(state, number_of)?;
        if let Some(mut columns) = state.columns("owed")? {
            // Behind the session's place and the arrival.
            let number = 2 + OWED_COLUMNS - 1;
            let of = numbers::<UInt32Type>(&columns, 0)?.values();
            let old = numbers::<UInt32Type>(&columns, number)?.values();
            // A group that is not there any more has the number of none.
            let new = of.iter().zip(old).map(|key| group_of.get(&(*key.0, *key.1)).copied());
            let new = UInt32Array::from_iter_values(new.map(|group| group.unwrap_or(u32::MAX)));
            columns[number] = Arc::new(new);
            self.take_up_owed(columns, number_of)?;
        }
        let waiting = state.columns("waiting")?.unwrap_or_default();
        let mut numbers_of_waiting = Vec::new();
        if !waiting.is_empty() {
            for place in numbers::<UInt32Type>(&waiting, 0)?.values() {
                let number = number_of(*place as usize)?;
                self.get_mut(number).ok_or_else(lost)?.is_waiting = true;
                numbers_of_waiting.push(number);
            }
        }
        Ok(numbers_of_waiting)
    }
}

impl Complete {
    /// Hands on what it keeps; there is one subtask.
    fn write(&self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("is_dirty", self.is_dirty.into());
        self.given.write(state)?;
        if self.gone.is_empty() {
            return Ok(());
        }
        let long = |value: fn(&Line) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(self.gone.iter().map(value)))
        };
        let mut columns = vec![
            long(|line| line.end),
            Arc::new(UInt64Array::from_iter_values(self.gone.iter().map(|line| line.first))),
            long(|line| line.bounds.start),
            long(|line| line.bounds.end),
            long(|line| line.bounds.close),
        ];
        let all: Vec<u32> = (0..self.gone.len() as u32).collect();
        columns.extend(self.columns.take(&all, ALL)?);
        state.columns("gone", columns, &[])
    }

    fn read(&mut self, state: &StateReader) -> Result<(), Error> {
        self.is_dirty = state.highest("is_dirty") == Some(1);
        self.given.read(self.rows.schema(), state)?;
        let Some(mut columns) = state.columns("gone")? else { return Ok(()) };
        let results = columns.split_off(LINE_COLUMNS.min(columns.len()));
        let [end, start, shown_end, close] = [0, 2, 3, 4].map(|place| numbers::<Int64Type>(&columns, place));
        let (end, start, shown_end, close) = (end?, start?, shown_end?, close?);
        let firsts = numbers::<UInt64Type>(&columns, 1)?;
        for row in 0..end.len() {
            let bounds =
                Bounds { start: start.value(row), end: shown_end.value(row), close: close.value(row) };
            self.columns.link(&mut self.chain, 0)?;
            self.gone.push(Line { end: end.value(row), first: firsts.value(row), bounds });
        }
        self.columns.append(results)
    }
}
