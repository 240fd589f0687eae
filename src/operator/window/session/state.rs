//! Sessions and what is kept of them, as tables of a checkpoint.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use arrow::array::{Int64Array, UInt32Array, UInt64Array};
use arrow::datatypes::{Int64Type, UInt32Type, UInt64Type};

use super::Intake;
use super::aggregate::SessionAggregate;
use super::chain::{ALL, Chain, Kept};
use super::rows::SessionRows;
use super::track::{Session, Totals};
use crate::error::Error;
use crate::operator::state::misfit;
use crate::operator::{StateReader, StateWriter};

/// The table of open sessions.
pub(super) const SESSIONS: &str = "sessions";
/// The table of those that are over and have not been given. Whoever has them gives them.
const CLOSED: &str = "closed";
/// Columns of sessions behind the keys of PARTITION BY.
const SESSION_COLUMNS: usize = 6;

impl Intake {
    /// Hands on the open sessions, and gives them in the order of their table.
    pub(super) fn write(&mut self, state: &mut StateWriter) -> Result<Vec<Session>, Error> {
        let totals = self.tracker.totals();
        state.number("floor", self.floor);
        state.number("watermark", totals.watermark);
        state.number("sessions_total", totals.sessions_total as i64);
        let sessions = self.tracker.kept();
        let partitions: Vec<u32> = sessions.iter().map(Session::partition).collect();
        let mut columns = self.partitions.columns(&partitions)?;
        let keys: Vec<usize> = (0..columns.len()).collect();
        columns.extend(columns_of(&sessions));
        state.columns(SESSIONS, columns, &keys)?;
        Ok(sessions)
    }

    /// Takes up the open sessions; gives their places in the tracker in the order of their table.
    pub(super) fn read(&mut self, state: &StateReader) -> Result<Vec<u32>, Error> {
        self.floor = state.lowest("floor").unwrap_or(i64::MIN);
        let keys = self.partition.len();
        let Some(mut columns) = state.columns(SESSIONS)? else { return Ok(Vec::new()) };
        if columns.len() != keys + SESSION_COLUMNS {
            return Err(misfit("sessions have other columns"));
        }
        let others = columns.split_off(keys);
        let rows = others.first().map_or(0, |column| column.len());
        let partitions = self.partitions.number(&columns, rows, &mut self.tracker)?.to_vec();
        let sessions = sessions_of(&others, partitions)?;
        let mut sessions_total = state.highest("sessions_total").unwrap_or(0) as u64;
        // Several subtasks may have given the same numbers.
        let is_ascending = sessions.is_sorted_by(|one, other| one.number < other.number);
        let mut ids = Vec::with_capacity(sessions.len());
        for (place, session) in (0..).zip(sessions) {
            let number = if is_ascending { session.number } else { place };
            sessions_total = sessions_total.max(number + 1);
            ids.push(self.tracker.restore(session.numbered(number)));
        }
        let watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        self.tracker.set_totals(Totals { watermark, sessions_total });
        Ok(ids)
    }
}

/// The columns of sessions without keys.
fn columns_of(sessions: &[Session]) -> Vec<ArrayRef> {
    let long = |value: fn(&Session) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(sessions.iter().map(value)))
    };
    let number = |value: fn(&Session) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(sessions.iter().map(value)))
    };
    let is_closed: BooleanArray = sessions.iter().map(|session| Some(session.is_closed)).collect();
    vec![
        long(|session| session.start),
        long(|session| session.end),
        long(Session::due),
        number(|session| session.rows_total),
        number(|session| session.number),
        Arc::new(is_closed),
    ]
}

/// Sessions from their columns without keys.
fn sessions_of(columns: &[ArrayRef], partitions: Vec<u32>) -> Result<Vec<Session>, Error> {
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    let [start, end, due] = [0, 1, 2].map(|place| numbers::<Int64Type>(columns, place));
    let (start, end, due) = (start?.values(), end?.values(), due?.values());
    let (rows_total, number) = (numbers::<UInt64Type>(columns, 3)?, numbers::<UInt64Type>(columns, 4)?);
    let is_closed = columns.get(SESSION_COLUMNS - 1).and_then(|column| column.as_boolean_opt());
    let is_closed = is_closed.ok_or_else(|| misfit("sessions have other columns"))?;
    let session = |(row, partition): (usize, u32)| {
        let numbers = (rows_total.value(row), number.value(row));
        Session::kept(partition, (start[row], end[row]), numbers, (is_closed.value(row), due[row]))
    };
    Ok(partitions.into_iter().enumerate().map(session).collect())
}

/// A column of numbers.
pub(super) fn numbers<T: ArrowPrimitiveType>(
    columns: &[ArrayRef],
    place: usize,
) -> Result<&PrimitiveArray<T>, Error> {
    let column = columns.get(place).and_then(|column| column.as_primitive_opt::<T>());
    column.ok_or_else(|| misfit("sessions have other columns"))
}

impl Kept {
    /// Hands on the rows of chains, as they arrived; each belongs to the row of `parent` that its chain has the place
    /// of.
    pub(super) fn write(
        &self,
        parent: &str,
        name: &str,
        chains: impl Iterator<Item = Chain>,
        state: &mut StateWriter,
    ) -> Result<(), Error> {
        let (mut rows, mut of) = (Vec::new(), Vec::new());
        for (place, chain) in (0u32..).zip(chains) {
            self.rows(chain, &mut rows);
            of.resize(rows.len(), place);
        }
        if rows.is_empty() {
            return Ok(());
        }
        let mut all: Vec<(u32, u32)> = rows.into_iter().zip(of).collect();
        all.sort_unstable();
        let (rows, of): (Vec<u32>, Vec<u32>) = all.into_iter().unzip();
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(UInt32Array::from(of)), Arc::new(UInt64Array::from(self.arrivals(&rows)))];
        columns.extend(self.take(&rows, ALL)?);
        state.columns_of(parent, name, columns)
    }

    /// Takes up the rows of chains that [`Kept::write`] handed on. `link`: puts a row into the chain of this place.
    pub(super) fn read(
        &mut self,
        name: &str,
        state: &StateReader,
        link: impl FnMut(&mut Self, usize, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        state.columns(name)?.map_or(Ok(()), |columns| self.take_up(columns, link))
    }

    /// Takes up rows from the columns of their table.
    pub(super) fn take_up(
        &mut self,
        mut columns: Vec<ArrayRef>,
        mut link: impl FnMut(&mut Self, usize, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let of = numbers::<UInt32Type>(&columns, 0)?.values().clone();
        let arrivals = numbers::<UInt64Type>(&columns, 1)?.values().clone();
        for (of, arrival) in of.iter().zip(&arrivals) {
            link(self, *of as usize, *arrival)?;
        }
        self.append(columns.split_off(2))
    }
}

/// The chain of a session that was read.
fn chain_of<'a>(intake: &'a mut Intake, ids: &[u32], place: usize) -> Result<&'a mut Session, Error> {
    let id = ids.get(place).ok_or_else(|| misfit("rows without a session"))?;
    intake.tracker.session(*id).ok_or_else(|| misfit("rows without a session"))
}

impl SessionRows {
    pub(super) fn write(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("rows_seen", self.rows_seen as i64);
        let sessions = self.intake.write(state)?;
        self.kept.write(SESSIONS, "rows", sessions.iter().map(|session| session.rows), state)?;
        state.columns(CLOSED, columns_of(&self.closed), &[])?;
        self.kept.write(CLOSED, "closed_rows", self.closed.iter().map(|session| session.rows), state)
    }

    /// Gives the number of rows that it holds.
    pub(super) fn read(&mut self, state: &StateReader) -> Result<usize, Error> {
        self.rows_seen = state.highest("rows_seen").unwrap_or(0) as u64;
        let ids = self.intake.read(state)?;
        self.closed = closed(state)?;
        let (intake, closed) = (&mut self.intake, &mut self.closed);
        self.kept.read("closed_rows", state, |kept, place, arrival| {
            let session = closed.get_mut(place).ok_or_else(|| misfit("rows without a session"))?;
            kept.link(&mut session.rows, arrival)
        })?;
        self.kept.read("rows", state, |kept, place, arrival| {
            kept.link(&mut chain_of(intake, &ids, place)?.rows, arrival)
        })?;
        self.arrived = Some(state.arrived());
        Ok(self.kept.live())
    }
}

impl SessionAggregate {
    pub(super) fn write(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("rows_seen", self.rows_seen as i64);
        let sessions = self.intake.write(state)?;
        self.rows.write(SESSIONS, "rows", sessions.iter().map(|session| session.rows), state)?;
        self.states.write(SESSIONS, "states", sessions.iter().map(|session| session.states), state)?;
        let closed = &self.closed;
        state.columns(CLOSED, columns_of(closed), &[])?;
        self.rows.write(CLOSED, "closed_rows", closed.iter().map(|session| session.rows), state)?;
        self.states.write(CLOSED, "closed_states", closed.iter().map(|session| session.states), state)
    }

    pub(super) fn read(&mut self, state: &StateReader) -> Result<(), Error> {
        self.rows_seen = state.highest("rows_seen").unwrap_or(0) as u64;
        let ids = self.intake.read(state)?;
        self.closed = closed(state)?;
        let lost = || misfit("rows without a session");
        let (intake, closed) = (&mut self.intake, &mut self.closed);
        self.rows.read("closed_rows", state, |kept, place, arrival| {
            kept.link(&mut closed.get_mut(place).ok_or_else(lost)?.rows, arrival)
        })?;
        self.states.read("closed_states", state, |kept, place, arrival| {
            kept.link(&mut closed.get_mut(place).ok_or_else(lost)?.states, arrival)
        })?;
        self.rows.read("rows", state, |kept, place, arrival| {
            kept.link(&mut chain_of(intake, &ids, place)?.rows, arrival)
        })?;
        self.states.read("states", state, |kept, place, arrival| {
            kept.link(&mut chain_of(intake, &ids, place)?.states, arrival)
        })?;
        self.arrived = Some(state.arrived());
        Ok(())
    }
}

/// The sessions that are over, without their rows.
fn closed(state: &StateReader) -> Result<Vec<Session>, Error> {
    let columns = state.columns(CLOSED)?.unwrap_or_default();
    // Nobody asks for the partition of a session that is over.
    let partitions = vec![0; columns.first().map_or(0, |column| column.len())];
    sessions_of(&columns, partitions)
}
