//! What is kept of sessions whose results can be read while they take rows.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, UInt32Array};
use arrow::datatypes::{Int64Type, SchemaRef, UInt32Type};
use foldhash::fast::RandomState;

use super::super::super::live::accumulator::Use;
use super::super::super::live::groups::KeyFormat;
use super::super::super::recipe::{Arrival, Recipe, Rows};
use super::super::chain::{ALL, Chain, Kept};
use super::groups::Groups;
use super::{Batch, RowEvent};
use crate::error::Error;
use crate::operator::StateReader;
use crate::operator::state::misfit;

/// Columns of [`Sessions::owed`] before the keys: the bounds, the number of the group.
pub(super) const OWED_COLUMNS: usize = 3;

/// A session.
pub(super) struct Live {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) groups: Vec<u32>,
    /// Rows that were given and are not true any more.
    owed: Chain,
    /// Its rows, where they are kept.
    rows: Chain,
    /// It waits for the next round.
    pub(super) is_waiting: bool,
    /// It is about to give its results.
    pub(super) gives: bool,
}

impl Live {
    fn new((start, end): (i64, i64)) -> Self {
        let (owed, rows) = (Chain::default(), Chain::default());
        Self { start, end, groups: Vec::new(), owed, rows, is_waiting: false, gives: false }
    }

    /// Its rows, where they are kept.
    pub(super) fn rows(&self) -> Chain {
        self.rows
    }

    /// What was given and is not true any more.
    pub(super) fn owed(&self) -> Chain {
        self.owed
    }

    fn owes(&self) -> bool {
        self.owed.first().is_some()
    }
}

/// A result that was given and is not true any more from now on.
struct Noted {
    group: u32,
    start: i64,
    end: i64,
}

/// How a row changes results.
pub(super) enum Way {
    /// Those of its groups, which nothing else changes: `before` are the bounds of the session before it.
    Each { before: (i64, i64) },
    /// Others, too, or nobody wants to know yet. `waits`: the session did not wait before.
    Together { waits: bool },
}

/// All sessions by their number.
pub(super) struct Sessions {
    by_number: HashMap<u64, Live, RandomState>,
    pub(super) groups: Groups,
    /// Rows are kept, since states can't be joined.
    keeps_rows: bool,
    pub(super) rows: Kept,
    /// Rows of closed sessions.
    released: usize,
    /// Results that were given and are not true any more: bounds, number of the group, keys, values.
    pub(super) owed: Kept,
    noted: Vec<Noted>,
}

/// Results that were given and are taken back.
pub(super) struct Owed {
    pub(super) bounds: Vec<(i64, i64)>,
    pub(super) groups: Vec<u32>,
    pub(super) keys: Vec<ArrayRef>,
    pub(super) values: Vec<ArrayRef>,
}

impl Sessions {
    pub(super) fn new(recipe: &Recipe, input: &SchemaRef) -> Result<Self, Error> {
        let groups = Groups::new(recipe, input)?;
        Ok(Self {
            by_number: HashMap::default(),
            keeps_rows: !groups.join(),
            groups,
            rows: Kept::default(),
            released: 0,
            owed: Kept::default(),
            noted: Vec::new(),
        })
    }

    pub(super) fn get(&self, number: u64) -> Option<&Live> {
        self.by_number.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Live> {
        self.by_number.get_mut(&number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Live> {
        self.by_number.values()
    }

    /// Sessions that were kept, without groups.
    pub(super) fn add(&mut self, known: &[(u64, (i64, i64))]) {
        self.by_number.extend(known.iter().map(|(number, bounds)| (*number, Live::new(*bounds))));
    }

    /// Takes up the rows of sessions. `number_of`: the number of the session at a place.
    pub(super) fn read_rows(
        &mut self,
        state: &StateReader,
        number_of: impl Fn(usize) -> Result<u64, Error>,
    ) -> Result<(), Error> {
        let lives = &mut self.by_number;
        self.rows.read("rows", state, |kept, place, arrival| match lives.get_mut(&number_of(place)?) {
            Some(live) => kept.link(&mut live.rows, arrival),
            None => Err(misfit("rows without a session")),
        })
    }

    /// Takes up what sessions owe.
    pub(super) fn take_up_owed(
        &mut self,
        columns: Vec<ArrayRef>,
        number_of: impl Fn(usize) -> Result<u64, Error>,
    ) -> Result<(), Error> {
        let lives = &mut self.by_number;
        self.owed.take_up(columns, |kept, place, arrival| match lives.get_mut(&number_of(place)?) {
            Some(live) => kept.link(&mut live.owed, arrival),
            None => Err(misfit("rows without a session")),
        })
    }

    /// The rows of a batch, each of which [`Sessions::take`] will be told of.
    pub(super) fn expect(&mut self, rows: &Rows) -> Result<(), Error> {
        if self.keeps_rows { self.rows.expect(rows.clone().into_columns(), rows.len) } else { Ok(()) }
    }

    /// Adds a row to its session, for `touched`, the groups of it. `gives`: the session's results are given
    /// with each row. What was given and is not true any more with it is noted.
    pub(super) fn take(
        &mut self,
        event: &RowEvent,
        (batch, row): (&Batch, u32),
        gives: bool,
        touched: &mut Vec<u32>,
    ) -> Result<Way, Error> {
        let number = event.number;
        let live = self.by_number.entry(number).or_insert_with(|| Live::new(event.bounds));
        let arrival = batch.first + u64::from(row);
        if self.keeps_rows {
            self.rows.link(&mut live.rows, arrival)?;
        }
        touched.clear();
        for set in 0..batch.keys.len() {
            let (group, is_new) = self.groups.group(number, &batch.key_rows, (set, row), arrival);
            touched.push(group);
            if is_new {
                live.groups.push(group);
            }
        }
        let before = (live.start, live.end);
        let has_moved = before != event.bounds;
        let is_all = live.groups.len() == touched.len();
        if gives && !live.owes() && (is_all || !has_moved) {
            (live.start, live.end) = event.bounds;
            return Ok(Way::Each { before });
        }
        let changed = if has_moved { &live.groups } else { &*touched };
        note(&mut self.groups, &mut self.owed, &mut self.noted, (&mut live.owed, before), changed)?;
        (live.start, live.end) = event.bounds;
        live.gives = gives;
        let waits = !gives && !std::mem::replace(&mut live.is_waiting, true);
        Ok(Way::Together { waits })
    }

    /// Keeps what was noted, before the groups take more rows.
    pub(super) fn keep_noted(&mut self, keys: &KeyFormat) -> Result<(), Error> {
        if self.noted.is_empty() {
            return Ok(());
        }
        let noted = std::mem::take(&mut self.noted);
        let groups: Vec<u32> = noted.iter().map(|noted| noted.group).collect();
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(noted.iter().map(|noted| noted.start))),
            Arc::new(Int64Array::from_iter_values(noted.iter().map(|noted| noted.end))),
            Arc::new(UInt32Array::from(groups.clone())),
        ];
        columns.extend(self.groups.keys(keys, &groups)?);
        columns.extend(self.groups.values(&groups)?);
        self.owed.append(columns)
    }

    /// Adds the numbers of the rows that a session owes, which are to be taken then.
    pub(super) fn owed_rows(&mut self, number: u64, rows: &mut Vec<u32>) {
        if let Some(live) = self.by_number.get_mut(&number) {
            self.owed.rows(std::mem::take(&mut live.owed), rows);
        }
    }

    /// Takes owed rows. `keys`: how many columns of keys there are.
    pub(super) fn take_owed(&mut self, rows: &[u32], keys: usize) -> Result<Owed, Error> {
        let mut columns = self.owed.take(rows, ALL)?;
        self.owed.release(rows.len());
        if rows.is_empty() {
            let (bounds, groups) = (Vec::new(), Vec::new());
            return Ok(Owed { bounds, groups, keys: Vec::new(), values: Vec::new() });
        }
        let (starts, ends) = (columns[0].as_primitive::<Int64Type>(), columns[1].as_primitive::<Int64Type>());
        let bounds = starts.values().iter().copied().zip(ends.values().iter().copied()).collect();
        let groups = columns[2].as_primitive::<UInt32Type>().values().to_vec();
        let values = columns.split_off(OWED_COLUMNS + keys);
        Ok(Owed { bounds, groups, keys: columns.split_off(OWED_COLUMNS), values })
    }

    /// `gone` becomes part of `into`. What was given of both is not true any more.
    pub(super) fn absorb(
        &mut self,
        into: u64,
        gone: u64,
        recipe: &Recipe,
        keys: &KeyFormat,
    ) -> Result<(), Error> {
        for number in [into, gone] {
            let Some(live) = self.by_number.get_mut(&number) else { continue };
            let owed = (&mut live.owed, (live.start, live.end));
            note(&mut self.groups, &mut self.owed, &mut self.noted, owed, &live.groups)?;
        }
        self.keep_noted(keys)?;
        let (Some(gone), Some(live)) = (self.by_number.remove(&gone), self.by_number.get_mut(&into)) else {
            return Err(Error::internal("WindowAggregate", "a session that was joined is not there"));
        };
        live.start = live.start.min(gone.start);
        live.end = live.end.max(gone.end);
        self.owed.join(&mut live.owed, gone.owed);
        self.rows.join(&mut live.rows, gone.rows);
        if self.keeps_rows {
            let all: Vec<u32> = live.groups.drain(..).chain(gone.groups).collect();
            all.into_iter().try_for_each(|group| self.groups.forget(group))?;
            return self.rebuild(into, recipe, keys);
        }
        for group in gone.groups {
            live.groups.extend(self.groups.join_to(into, group, keys)?);
        }
        Ok(())
    }

    /// Makes the groups of a session from its rows, as they arrived.
    fn rebuild(&mut self, number: u64, recipe: &Recipe, keys: &KeyFormat) -> Result<(), Error> {
        let Some(live) = self.by_number.get_mut(&number) else { return Ok(()) };
        let mut kept = Vec::new();
        self.rows.rows(live.rows, &mut kept);
        let arrivals = self.rows.arrivals(&kept);
        let columns = self.rows.take(&kept, ALL)?;
        let arrival = Arrival::Each(arrivals.clone().into());
        let rows = recipe.rows_of(columns, recipe.key_count(), arrival, kept.len());
        let sets = recipe.keys_of_sets(&rows)?;
        let key_rows = keys.rows(&sets)?;
        let mut uses = Vec::with_capacity(kept.len() * sets.len());
        for (row, arrival) in (0u32..).zip(arrivals) {
            for set in 0..sets.len() {
                let (group, is_new) = self.groups.group(number, &key_rows, (set, row), arrival);
                if is_new {
                    live.groups.push(group);
                }
                uses.push(Use { group, row });
            }
        }
        self.groups.update(&uses, &rows)
    }

    /// Forgets a session.
    pub(super) fn forget(&mut self, number: u64) -> Result<(), Error> {
        let Some(live) = self.by_number.remove(&number) else { return Ok(()) };
        self.released += live.rows.len();
        live.groups.into_iter().try_for_each(|group| self.groups.forget(group))
    }

    /// Between two batches: keeps memory at what is needed.
    pub(super) fn tidy(&mut self) -> Result<(), Error> {
        self.rows.release(std::mem::take(&mut self.released));
        if self.rows.is_mostly_dead() {
            self.rows.retain(self.by_number.values_mut().map(|live| &mut live.rows))?;
        }
        if self.owed.is_mostly_dead() {
            self.owed.retain(self.by_number.values_mut().map(|live| &mut live.owed))?;
        }
        Ok(())
    }

    /// Number of sessions.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Number of groups and rows that are kept.
    pub(super) fn kept(&self) -> usize {
        self.groups.len() + self.rows.live() + self.owed.live()
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let sessions = self.by_number.capacity() * (size_of::<Live>() + size_of::<u64>());
        sessions + self.len() * size_of::<u32>() + self.groups.size() + self.rows.size() + self.owed.size()
    }
}

/// What was given of these groups of a session is not true any more. `chain`: what the session owes, and the
/// bounds that were given.
fn note(
    groups: &mut Groups,
    owed: &mut Kept,
    noted: &mut Vec<Noted>,
    (chain, (start, end)): (&mut Chain, (i64, i64)),
    changed: &[u32],
) -> Result<(), Error> {
    for group in changed {
        if std::mem::take(&mut groups.of_mut(*group).is_given) {
            owed.link(chain, 0)?;
            noted.push(Noted { group: *group, start, end });
        }
    }
    Ok(())
}
