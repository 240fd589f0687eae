//! Kept rows that are put away, and how they are read.

use std::cmp::Reverse;
use std::sync::Arc;

use arrow::array::UInt32Array;
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::state::{nullable, shared};
use super::{NOWHERE, RowStore, Stored};
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::state::misfit;
use crate::operator::{BATCH_ROWS, SpillStore, Spilled, SpilledRows};
use crate::stream::{bytes_of, rows_of_width};

/// Rows that were put away together, in their order.
#[derive(Debug, Clone)]
pub(in crate::operator) struct PutAway {
    pub(in crate::operator) count: usize,
    pub(in crate::operator) rows: Arc<dyn Spilled>,
}

impl PutAway {
    /// Puts batches of one schema away, which may name columns otherwise.
    pub(in crate::operator) fn new<'a>(
        schema: &SchemaRef,
        batches: impl Iterator<Item = &'a RecordBatch>,
        store: &dyn SpillStore,
    ) -> Result<Self, Error> {
        let batches = shared(schema, batches)?;
        let count = batches.iter().map(RecordBatch::num_rows).sum();
        // In pieces, so that little memory is needed to write and to read them.
        let mut pieces = batches.iter().flat_map(|rows| {
            let all = rows.num_rows();
            let step = rows_of_width(bytes_of(rows).div_ceil(all.max(1)), BATCH_ROWS);
            (0..all.max(1)).step_by(step).map(move |from| rows.slice(from, step.min(all - from)))
        });
        Ok(Self { count, rows: store.put(&mut pieces)? })
    }

    /// The rows again, in pieces.
    pub(in crate::operator) fn pieces(&self) -> Result<SpilledRows, Error> {
        self.rows.rows()
    }

    /// Those of its rows at some places, in the order of the places.
    fn chosen(&self, schema: &SchemaRef, places: &[u32]) -> Result<RecordBatch, Error> {
        // Of each piece the rows that are asked for, so that no more is in memory at once.
        let mut order: Vec<u32> = (0..places.len() as u32).collect();
        order.sort_unstable_by_key(|asked| places[*asked as usize]);
        let (mut next, mut before, mut parts) = (0, 0, Vec::new());
        for piece in self.pieces()? {
            let piece = piece?;
            let to = before + piece.num_rows();
            let own = order[next..].iter().take_while(|asked| (places[**asked as usize] as usize) < to);
            let rows = UInt32Array::from_iter_values(
                own.map(|asked| (places[*asked as usize] as usize - before) as u32),
            );
            if !rows.is_empty() {
                parts.push(take_record_batch(&piece, &rows).map_err(|error| arrow_failure(&error))?);
            }
            next += rows.len();
            before = to;
            if next == order.len() {
                break;
            }
        }
        if next < order.len() {
            return Err(misfit("rows that were put away are gone"));
        }
        let rows = concat_batches(&nullable(schema), &parts).map_err(|error| arrow_failure(&error))?;
        let mut back = vec![0; order.len()];
        (0..).zip(&order).for_each(|(place, asked)| back[*asked as usize] = place);
        take_record_batch(&rows, &UInt32Array::from(back)).map_err(|error| arrow_failure(&error))
    }
}

/// A batch of a store, or what stands for it: rows of one that was put away, which are read when all are known that
/// are asked for.
pub(super) enum Source<'a> {
    Here(&'a RecordBatch),
    Away(&'a PutAway, Vec<u32>),
}

impl<'a> Source<'a> {
    pub(super) fn new(batch: &'a Batch) -> Self {
        match batch {
            Batch::Here(rows) => Self::Here(rows),
            Batch::Away(away) => Self::Away(away, Vec::new()),
        }
    }

    /// Where a row of the batch will be.
    pub(super) fn place(&mut self, row: u32) -> usize {
        match self {
            Self::Here(_) => row as usize,
            Self::Away(_, rows) => {
                rows.push(row);
                rows.len() - 1
            }
        }
    }
}

/// Reads what is away, one after another.
pub(super) fn read(schema: &SchemaRef, sources: &[Source]) -> Result<Vec<RecordBatch>, Error> {
    let away = sources.iter().filter_map(|source| match source {
        Source::Here(_) => None,
        Source::Away(away, rows) => Some(away.chosen(schema, rows)),
    });
    away.collect()
}

/// The rows of a batch of a store.
pub(super) enum Batch {
    Here(RecordBatch),
    Away(PutAway),
}

impl Batch {
    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Here(rows) => rows.get_array_memory_size(),
            Self::Away(_) => size_of::<Stored>(),
        }
    }
}

impl RowStore {
    /// Puts rows away, those first that were not needed for longest, until that gave up so many bytes; the bytes.
    /// `usize::MAX`: all of them. Where little is in memory it stays there.
    pub(in crate::operator) fn put_away(
        &mut self,
        wanted: usize,
        store: &dyn SpillStore,
    ) -> Result<usize, Error> {
        if self.schema.fields().is_empty() {
            return Ok(0);
        }
        let (mut cold, mut all, mut sparse) = (Vec::new(), 0, vec![]);
        for (number, stored) in (0_u32..).zip(&self.batches) {
            match stored {
                Some(Stored { batch: batch @ Batch::Here(_), used, .. }) => {
                    all += batch.size();
                    cold.push((used.get(), number));
                }
                // Few of its rows are left: they are put away again with others.
                Some(Stored { batch: Batch::Away(away), left, .. }) if 4 * *left < away.count => {
                    sparse.push(number);
                }
                _ => {}
            }
        }
        if cold.is_empty() || (wanted != usize::MAX && all < wanted / SMALLEST_PART) {
            return Ok(0);
        }
        cold.sort_unstable();
        let mut given_up = 0;
        let enough = cold.iter().position(|(_, number)| {
            let before = given_up;
            given_up += self.batches[*number as usize].as_ref().map_or(0, |stored| stored.batch.size());
            before >= wanted
        });
        cold.truncate(enough.unwrap_or(cold.len()));
        let before = self.size();
        // The rows that are left of each, batch by batch.
        let mut parts = vec![NOWHERE; self.batches.len()];
        let chosen = cold.iter().map(|(_, number)| *number).chain(sparse);
        (0..).zip(chosen).for_each(|(part, number)| parts[number as usize] = part);
        let moved = (0_u32..).zip(&self.slots).filter_map(|(slot, place)| {
            let part = *parts.get(place.batch as usize)?;
            (part != NOWHERE).then_some((part, place.row, slot))
        });
        let mut moved: Vec<(u32, u32, u32)> = moved.collect();
        moved.sort_unstable();
        let slots: Vec<u32> = moved.into_iter().map(|(.., slot)| slot).collect();
        self.move_each(&slots, |schema, rows| {
            PutAway::new(schema, std::iter::once(&rows), store).map(Batch::Away)
        })?;
        Ok(before.saturating_sub(self.size()))
    }

    /// Bytes that are put away.
    pub(in crate::operator) fn spilled(&self) -> u64 {
        let away = self.batches.iter().flatten().filter_map(|stored| match &stored.batch {
            Batch::Here(_) => None,
            Batch::Away(away) => Some(away.rows.bytes()),
        });
        away.sum()
    }
}

/// Puts rows of the two inputs of a join away, as [`RowStore::put_away`] does: first of the one that keeps more.
pub(in crate::operator) fn put_away_of_two(
    mut stores: [&mut RowStore; 2],
    wanted: usize,
    store: &dyn SpillStore,
) -> Result<usize, Error> {
    stores.sort_by_key(|store| Reverse(store.size()));
    let mut given_up = 0;
    for rows in stores {
        let left = if wanted == usize::MAX { wanted } else { wanted.saturating_sub(given_up) };
        if left > 0 {
            given_up += rows.put_away(left, store)?;
        }
    }
    Ok(given_up)
}

/// Less than this part of what is wanted is not worth a file: one whose state is small is asked, too, when another's is
/// large.
pub(in crate::operator) const SMALLEST_PART: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::StateReader;
    use crate::operator::StateWriter;
    use crate::operator::checked::Put;
    use crate::operator::testing::{Row, input, lines, record_batch};

    /// Batches of so many rows each, numbered from 0, and their slots: the slot of a row is its number.
    fn store(batches: &[usize]) -> RowStore {
        let mut store = RowStore::new(&input());
        let mut next = 0;
        for count in batches {
            let rows: Vec<Row> =
                (next..next + count).map(|row| (None, Some("k"), Some(row as i64))).collect();
            let slots: Vec<u32> = (next as u32..(next + count) as u32).collect();
            assert_eq!(store.add(record_batch(&rows)).unwrap(), slots);
            next += count;
        }
        store
    }

    fn line(row: &u32) -> String {
        format!("NULL,k,{row}")
    }

    fn is_away(store: &RowStore, slot: u32) -> bool {
        store.row(slot).is_err()
    }

    #[test]
    fn rows_keep_their_slots_where_they_are_put_away() {
        let mut store = store(&[10, BATCH_ROWS + 5, 1, 20]);
        [3, 9, 11].into_iter().for_each(|slot| store.release(slot));
        let (before, bytes) = (store.len(), store.size());
        assert!(store.put_away(usize::MAX, &Put).unwrap() > 0);
        assert!(store.size() < bytes && store.spilled() > 0);
        assert_eq!(store.len(), before);
        // New rows get the slots that are free, last first.
        let slots =
            store.add(record_batch(&[(None, Some("k"), Some(11)), (None, Some("k"), Some(9))])).unwrap();
        assert_eq!(slots, [11, 9]);
        // Of both pieces, of memory, one twice, in any order.
        let asked = [BATCH_ROWS as u32 + 30, 11, 2, BATCH_ROWS as u32 + 14, 9, 0, 2];
        assert_eq!(lines(&store.gather(&asked).unwrap()), asked.iter().map(line).collect::<Vec<_>>());
        assert_eq!(store.put_away(usize::MAX, &Put).map(|bytes| bytes > 0), Ok(true));
        assert_eq!(lines(&store.gather(&asked).unwrap()), asked.iter().map(line).collect::<Vec<_>>());
        let left: Vec<u32> = store.slots().collect();
        left.into_iter().for_each(|slot| store.release(slot));
        assert_eq!((store.len(), store.away, store.stored, store.spilled()), (0, 0, 0, 0));
    }

    #[test]
    fn what_was_needed_lately_stays() {
        let mut store = store(&[1000, 1000, 1000]);
        let one = store.size() / 3;
        store.gather(&[500]).unwrap();
        assert!(store.put_away(one / 2, &Put).unwrap() > 0);
        assert_eq!([0, 1000, 2000].map(|slot| is_away(&store, slot)), [false, true, false]);
        // Nothing is written where little is left for one that wants much.
        assert_eq!(store.put_away(one * 100, &Put), Ok(0));
        assert!(store.put_away(one * 2, &Put).unwrap() > 0);
        assert_eq!([0, 1000, 2000].map(|slot| is_away(&store, slot)), [true; 3]);
    }

    #[test]
    fn few_rows_of_what_is_away_are_put_away_again() {
        let mut store = store(&[1000]);
        store.put_away(usize::MAX, &Put).unwrap();
        let all = store.spilled();
        (0..990).for_each(|slot| store.release(slot));
        assert_eq!(store.spilled(), all);
        let slot = store.add(record_batch(&[(None, Some("k"), Some(7))])).unwrap()[0];
        store.put_away(usize::MAX, &Put).unwrap();
        assert!(store.spilled() < all / 4, "{} of {all} bytes for 11 rows", store.spilled());
        assert_eq!((store.len(), store.away), (11, 11));
        let given = lines(&store.gather(&[slot, 990, 999]).unwrap());
        assert_eq!(given, ["NULL,k,7", "NULL,k,990", "NULL,k,999"]);
    }

    #[test]
    fn rows_in_memory_are_brought_together_beside_those_that_are_away() {
        let mut store = store(&[100]);
        store.put_away(usize::MAX, &Put).unwrap();
        let rows: Vec<Row> = (100..4196).map(|value| (None, Some("k"), Some(value))).collect();
        let mut kept = vec![50];
        for _ in 0..20 {
            let slots = store.add(record_batch(&rows)).unwrap();
            kept.push(slots[1]);
            slots.into_iter().filter(|slot| kept.last() != Some(slot)).for_each(|slot| store.release(slot));
            assert!(store.stored <= 5 * BATCH_ROWS, "{} rows", store.stored);
        }
        let expected: Vec<String> = [50].iter().chain(&[101; 20]).map(line).collect();
        assert_eq!(lines(&store.gather(&kept).unwrap()), expected);
        assert_eq!((store.len(), store.away), (120, 100));
    }

    #[test]
    fn a_state_has_what_was_put_away() {
        let mut store = store(&[10, 300, 10]);
        store.gather(&[0]).unwrap();
        let first = store.put_away(1, &Put).unwrap();
        assert!(first > 0 && is_away(&store, 10) && !is_away(&store, 0));
        [12, 315].into_iter().for_each(|slot| store.release(slot));
        let kept = [319, 10, 309, 0, 9, 11, 13];
        let mut state = StateWriter::default();
        store.snapshot(&mut state, "rows", &[], kept, Vec::new()).unwrap();
        // It is the state's, too: what becomes of the store is nothing to it.
        drop(store);
        let mut again = RowStore::new(&input());
        let taken_up = again.restore(&StateReader::same(state.finish(), 0), "rows").unwrap().unwrap();
        assert_eq!(lines(&taken_up.rows), kept.iter().map(line).collect::<Vec<_>>());
    }
}
