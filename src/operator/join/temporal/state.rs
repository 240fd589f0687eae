//! What a temporal join keeps, for a checkpoint.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};

use super::{ALONE, Came, Key, Phase, TemporalJoin, Waiting};
use crate::error::Error;
use crate::operator::join::SIDES;
use crate::operator::state::misfit;
use crate::operator::{RowCounts, StateReader, StateWriter};
use crate::stream::{StreamBatch, event_times};

/// What a row is.
const CAME: i64 = 0;
const WAITING: i64 = 1;
const VERSION: i64 = 2;

/// Rows to be handed on: of each the slot and four numbers.
#[derive(Default)]
struct Handed {
    slots: Vec<u32>,
    numbers: [Vec<i64>; 4],
}

impl Handed {
    fn push(&mut self, slot: u32, numbers: [i64; 4]) {
        self.slots.push(slot);
        self.numbers.iter_mut().zip(numbers).for_each(|(all, number)| all.push(number));
    }
}

impl TemporalJoin {
    /// Hands on the rows of both inputs, in their order, with what they are and the watermark before them; of
    /// versions instead whether there were others before, and the last time that was given with one.
    pub(super) fn write(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("watermark", self.watermark);
        let mut handed = [Handed::default(), Handed::default()];
        for known in &self.keys {
            let Some(slot) = known.version else { continue };
            let given = known.given.unwrap_or(i64::MIN);
            handed[1].push(slot, [VERSION, i64::MIN, i64::from(known.has_history), given]);
        }
        for ((_, phase, _), waiting) in &self.waiting {
            handed[phase.input()].push(waiting.slot, [WAITING, waiting.running, 0, i64::MIN]);
        }
        for came in &self.came {
            handed[came.input].push(came.slot, [CAME, came.running, 0, i64::MIN]);
        }
        for ((side, name), handed) in self.sides.iter().zip(SIDES).zip(handed) {
            let Handed { slots, numbers } = handed;
            let more = numbers.map(|numbers| Arc::new(Int64Array::from(numbers)) as ArrayRef);
            side.store.snapshot(state, name, &side.key_columns, slots, more.to_vec())?;
        }
        Ok(())
    }

    /// Takes up what was handed on.
    pub(super) fn read(&mut self, state: &StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        self.watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        for (input, name) in SIDES.into_iter().enumerate() {
            self.read_side(input, state, name)?;
        }
        counts.held = (self.waiting.len() + self.came.len()) as u64;
        if counts.held > 0 {
            self.arrived = Some(state.arrived());
        }
        Ok(())
    }

    fn read_side(&mut self, input: usize, state: &StateReader, name: &str) -> Result<(), Error> {
        let side = &mut self.sides[input];
        let Some(taken_up) = side.store.restore(state, name)? else { return Ok(()) };
        let [what, running, has_history, given] = taken_up.numbers()?;
        let (times, _) = event_times(taken_up.rows.column(side.time))?;
        let keys = side.keys.rows(&taken_up.rows)?;
        let nulls: Vec<_> =
            side.key_columns.iter().filter_map(|key| taken_up.rows.column(*key).logical_nulls()).collect();
        let (batch, phase) = (self.batches.len(), Phase::of(input));
        for (row, time) in times.iter().copied().enumerate() {
            let is_alone = nulls.iter().any(|nulls| nulls.is_null(row));
            let key = if is_alone { ALONE } else { self.numbers.number(&keys, row) };
            self.keys.resize(self.numbers.bound(), Key::default());
            let (slot, running) = (row as u32, running[row]);
            let known = self.keys.get_mut(key as usize);
            match (what[row], known) {
                (VERSION, Some(known)) => {
                    (known.version, known.valid_from) = (Some(slot), Some(time));
                    known.has_history = has_history[row] != 0;
                    known.given = Some(given[row]).filter(|given| *given > i64::MIN);
                    continue;
                }
                (VERSION, None) => return Err(misfit("a version of no key")),
                (_, known) => known.into_iter().for_each(|known| known.waiting += 1),
            }
            if what[row] == WAITING {
                self.waiting.insert((time, phase, self.next_row), Waiting { slot, key, running });
                self.next_row += 1;
            } else {
                self.came.push(Came { running, input, batch, row: slot, time, key, slot });
            }
        }
        self.batches.push(StreamBatch::inserts(taken_up.rows, state.arrived()));
        Ok(())
    }
}
