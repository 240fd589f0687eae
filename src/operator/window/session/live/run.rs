//! Rows and results that are done together.

use std::collections::HashMap;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;

use super::super::super::live::accumulator::Use;
use super::super::super::live::changes::{Change, Changes, Place, changed};
use super::super::super::live::groups::KeyFormat;
use super::super::super::recipe::Rows;
use super::super::Intake;
use super::sessions::{Owed, Sessions};
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;

/// What has been collected: first come the rows that give their change each, then the other rows, then the
/// results of sessions. A session whose results are to be given takes no row before that.
#[derive(Default)]
pub(super) struct Run {
    /// Rows that change the results of their groups alone, and what they do.
    pub(super) each: Vec<Use>,
    pub(super) taken: Vec<Taken>,
    /// The other rows.
    pub(super) together: Vec<Use>,
    /// Sessions whose results are to be given then.
    pub(super) gives: Vec<Give>,
    /// Sessions that take no more rows.
    pub(super) ends: Vec<u64>,
    /// The groups of the present row.
    pub(super) touched: Vec<u32>,
}

/// What a row does to one of its groups.
pub(super) struct Taken {
    /// The grouping set of the group.
    pub(super) set: usize,
    /// The bounds that its result was given with; `None`: it is new.
    pub(super) before: Option<(i64, i64)>,
    /// The bounds of the session with the row.
    pub(super) after: (i64, i64),
    pub(super) order: u32,
    pub(super) running: i64,
}

/// A session gives its results.
pub(super) struct Give {
    pub(super) number: u64,
    /// The event time of that, where results of one time come together.
    pub(super) at: Option<i64>,
    pub(super) order: u32,
    pub(super) running: i64,
}

impl Run {
    /// Whether the results of a session are to be given.
    pub(super) fn gives_of(&self, sessions: &Sessions, number: u64) -> bool {
        !self.gives.is_empty() && sessions.get(number).is_some_and(|live| live.gives)
    }

    /// Adds the rows to their groups. `rows`: of the batch, and for each grouping set its key columns.
    pub(super) fn rows(
        &mut self,
        rows: Option<(&Rows, &[Vec<ArrayRef>])>,
        sessions: &mut Sessions,
        keys: &KeyFormat,
        intake: &mut Intake,
        changes: &mut Changes,
    ) -> Result<(), Error> {
        let Some((rows, key_columns)) = rows else { return Ok(()) };
        if !self.each.is_empty() {
            let (before, after) = sessions.groups.update_each(&self.each, rows)?;
            let has_changed = changed(&before, &after, self.each.len())?;
            let (before, after) = (changes.add_values(before), changes.add_values(after));
            let key_columns: Vec<u32> =
                key_columns.iter().map(|columns| changes.add_keys(columns.clone())).collect();
            let taken = self.each.drain(..).zip(self.taken.drain(..)).zip(has_changed);
            for (row, ((one, taken), has_changed)) in (0u32..).zip(taken) {
                let place = |columns| Some(Place { columns, row });
                let change = Change {
                    order: taken.order,
                    bounds: intake.shown(taken.after.0, taken.after.1),
                    keys: Place { columns: key_columns[taken.set], row: one.row },
                    before: None,
                    after: place(after),
                    running: taken.running,
                };
                match taken.before {
                    None => changes.push(change),
                    Some(bounds) if bounds == taken.after => {
                        if has_changed {
                            changes.push(Change { before: place(before), ..change });
                        }
                    }
                    Some((start, end)) => {
                        let bounds = intake.shown(start, end);
                        changes.push(Change { bounds, before: place(before), after: None, ..change });
                        changes.push(change);
                    }
                }
            }
        }
        sessions.keep_noted(keys)?;
        if !self.together.is_empty() {
            sessions.groups.update(&self.together, rows)?;
            self.together.clear();
        }
        Ok(())
    }

    /// Gives the results of sessions in place of what was given of them.
    pub(super) fn results(
        &mut self,
        sessions: &mut Sessions,
        keys: &KeyFormat,
        intake: &mut Intake,
        changes: &mut Changes,
    ) -> Result<(), Error> {
        if self.gives.is_empty() {
            return Ok(());
        }
        let mut gives = std::mem::take(&mut self.gives);
        // What is given at one time stands together.
        let mut order = 0;
        for index in 0..gives.len() {
            let is_one_time =
                index > 0 && gives[index].at.is_some() && gives[index].at == gives[index - 1].at;
            if !is_one_time {
                order = gives[index].order;
            }
            gives[index].order = order;
        }
        let mut taken = Vec::new();
        let (mut owed_rows, mut owed_of) = (Vec::new(), Vec::new());
        for (index, give) in (0u32..).zip(&gives) {
            sessions.owed_rows(give.number, &mut owed_rows);
            owed_of.resize(owed_rows.len(), index);
            let Some(live) = sessions.get_mut(give.number) else { continue };
            (live.gives, live.is_waiting) = (false, false);
            let groups = live.groups.clone();
            for group in groups {
                let known = sessions.groups.of_mut(group);
                if !std::mem::replace(&mut known.is_given, true) {
                    taken.push((give.order, known.first, group, index));
                }
            }
        }
        taken.sort_unstable();
        let groups: Vec<u32> = taken.iter().map(|(_, _, group, _)| *group).collect();
        let group_keys = sessions.groups.keys(keys, &groups)?;
        let values = sessions.groups.values(&groups)?;
        let owed = sessions.take_owed(&owed_rows, group_keys.len())?;

        // Results that were given in the same bounds, by the place of what they are now.
        let same = pairs(&owed, &groups, |row| {
            let live = sessions.get(gives[owed_of[row] as usize].number)?;
            Some((live.start, live.end))
        });
        let has_changed = changed_pairs(&same, &owed.values, &values)?;
        let mut before: HashMap<u32, (u32, bool)> = HashMap::new();
        let mut is_same = vec![false; owed_rows.len()];
        for ((row, place), has_changed) in same.into_iter().zip(has_changed) {
            is_same[row as usize] = true;
            before.insert(place, (row, has_changed));
        }
        let (new_keys, new) = (changes.add_keys(group_keys), changes.add_values(values));
        let (old_keys, old) = match owed_rows.is_empty() {
            true => (new_keys, new),
            false => (changes.add_keys(owed.keys), changes.add_values(owed.values)),
        };
        for row in (0..owed_rows.len()).filter(|row| !is_same[*row]) {
            let (give, (start, end)) = (&gives[owed_of[row] as usize], owed.bounds[row]);
            let place = |columns| Place { columns, row: row as u32 };
            changes.push(Change {
                order: give.order,
                bounds: intake.shown(start, end),
                keys: place(old_keys),
                before: Some(place(old)),
                after: None,
                running: give.running,
            });
        }
        for (row, (order, _, _, index)) in (0u32..).zip(taken) {
            let give = &gives[index as usize];
            let Some(live) = sessions.get(give.number) else { continue };
            let before = before.get(&row).copied();
            if before.is_some_and(|(_, has_changed)| !has_changed) {
                continue;
            }
            changes.push(Change {
                order,
                bounds: intake.shown(live.start, live.end),
                keys: Place { columns: new_keys, row },
                before: before.map(|(row, _)| Place { columns: old, row }),
                after: Some(Place { columns: new, row }),
                running: give.running,
            });
        }
        gives.clear();
        self.gives = gives;
        Ok(())
    }
}

/// For each owed row whose group has the same bounds now its place among `groups`. `now`: the bounds of the
/// session of a row.
fn pairs(owed: &Owed, groups: &[u32], now: impl Fn(usize) -> Option<(i64, i64)>) -> Vec<(u32, u32)> {
    let is_same = |row: &usize| now(*row) == Some(owed.bounds[*row]);
    let same: Vec<usize> = (0..owed.groups.len()).filter(is_same).collect();
    if same.is_empty() {
        return Vec::new();
    }
    let places: HashMap<u32, u32> = groups.iter().copied().zip(0..).collect();
    same.into_iter().filter_map(|row| Some((row as u32, *places.get(&owed.groups[row])?))).collect()
}

/// Which of these pairs of rows are not the same.
fn changed_pairs(pairs: &[(u32, u32)], before: &[ArrayRef], after: &[ArrayRef]) -> Result<Vec<bool>, Error> {
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let pick = |columns: &[ArrayRef], rows: UInt32Array| {
        columns
            .iter()
            .map(|column| take(column, &rows, None).map_err(|error| arrow_failure(&error)))
            .collect::<Result<Vec<_>, _>>()
    };
    let before = pick(before, pairs.iter().map(|(row, _)| *row).collect())?;
    let after = pick(after, pairs.iter().map(|(_, place)| *place).collect())?;
    changed(&before, &after, pairs.len())
}
