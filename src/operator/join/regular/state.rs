//! What a join without time keeps, for a checkpoint.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};

use super::{ALONE, Arrival, Kept, RegularJoin, Side};
use crate::error::Error;
use crate::operator::join::SIDES;
use crate::operator::{StateReader, StateWriter};
use crate::plan::TtlClock;

const ROWS: &str = "rows";
const OF_ROWS: &str = "rows.kept";

impl RegularJoin {
    /// Hands on the rows of both inputs, those of a key in their order, with the number of their partners.
    pub(super) fn write(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        let groups = &self.groups;
        for (input, (side, scope)) in self.sides.iter_mut().zip(SIDES).enumerate() {
            let mut slots: Vec<u32> = Vec::with_capacity(side.store.len());
            groups.iter().for_each(|group| slots.extend(group[input].as_slice()));
            slots.extend(side.later.iter().flat_map(|later| later.slots()));
            slots.extend(side.store.slots().filter(|slot| side.rows[*slot as usize].group == ALONE));
            state.scoped(scope, |state| side.write(&slots, state))?;
        }
        Ok(())
    }

    /// Takes up what was handed on.
    pub(super) fn read(&mut self, state: &mut StateReader) -> Result<(), Error> {
        for (input, scope) in SIDES.into_iter().enumerate() {
            state.scoped(scope, |state| self.read_side(input, state))?;
        }
        Ok(())
    }

    fn read_side(&mut self, input: usize, state: &StateReader) -> Result<(), Error> {
        let side = &mut self.sides[input];
        let Some(taken_up) = side.store.restore(state, ROWS)? else { return Ok(()) };
        let [partners, equals] = taken_up.numbers()?;
        let slots: Vec<u32> = (0..partners.len() as u32).collect();
        side.rows.resize(slots.len(), Kept::default());
        if let Some(expiry) = &mut side.expiry {
            expiry.restore(&slots, state)?;
        }
        if let Some(identities) = &side.identities {
            let whole = identities.format.rows(&taken_up.rows)?;
            let mut in_order: Vec<usize> = (0..slots.len()).collect();
            in_order.sort_by_key(|row| equals[*row]);
            for row in in_order {
                side.identify(Some(&whole), row, Some(row as u32));
            }
        }
        let keys = side.keys.rows(&taken_up.rows)?;
        let is_alone = side.alone(&taken_up.rows, self.null_is_equal);
        let by_event_time = self.ttl.filter(|[ttl, _]| ttl.by != TtlClock::Clock).is_some();
        let mut arrivals = Vec::with_capacity(slots.len());
        for (row, slot) in slots.into_iter().enumerate() {
            let group = if is_alone(row) { ALONE } else { self.numbers.number(&keys, row) };
            let kept = &mut side.rows[row];
            kept.group = group;
            let written = side.expiry.as_ref().filter(|_| by_event_time).map(|expiry| expiry.written(slot));
            kept.written = written.unwrap_or(i64::MIN);
            arrivals.push(Arrival { row, comes: true, slot, group, running: i64::MIN, is_over: false });
        }
        self.groups.resize_with(self.numbers.bound().max(self.groups.len()), Default::default);
        for (arrival, partners) in arrivals.iter().zip(partners) {
            self.sides[input].rows[arrival.row].partners = *partners as u32;
            self.settle(input, arrival, *partners as u32);
        }
        self.note_horizon(input, &taken_up.rows, &arrivals)
    }
}

impl Side {
    fn write(&mut self, slots: &[u32], state: &mut StateWriter) -> Result<(), Error> {
        let partners = slots.iter().map(|slot| i64::from(self.rows[*slot as usize].partners));
        let partners = Int64Array::from_iter_values(partners);
        // The place of a row among those that are equal to it.
        let mut equals = vec![0; if self.identities.is_some() { self.store.bound() } else { 0 }];
        for slots in self.identities.iter().flat_map(|identities| &identities.slots) {
            slots.iter().zip(0..).for_each(|(slot, place)| equals[*slot as usize] = place);
        }
        let equal = |slot: &u32| equals.get(*slot as usize).copied().unwrap_or(0);
        let equals = Int64Array::from_iter_values(slots.iter().map(equal));
        let more: Vec<ArrayRef> = vec![Arc::new(partners), Arc::new(equals)];
        self.store.snapshot(state, ROWS, &self.key_columns, slots.iter().copied(), more)?;
        match &mut self.expiry {
            Some(expiry) => expiry.snapshot(OF_ROWS, slots, state),
            None => Ok(()),
        }
    }
}
