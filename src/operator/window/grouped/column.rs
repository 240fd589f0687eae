//! A number for each group, most of them shared with whoever was given them.

use std::mem;

use arrow::buffer::{BooleanBuffer, ScalarBuffer};
use arrow::datatypes::ArrowNativeType;

use crate::operator::group_keys::CHUNK;

/// Numbers of groups, in chunks: nothing is copied when it grows beyond one. A chunk that was handed on is copied when one
/// of its numbers changes, unless whoever was given it has let go of it.
#[derive(Debug)]
pub(in super::super) struct Column<T: ArrowNativeType> {
    /// All but the last one are full.
    chunks: Vec<Chunk<T>>,
    len: usize,
    /// Some chunks were handed on.
    may_be_shared: bool,
}

#[derive(Debug, Default)]
struct Chunk<T: ArrowNativeType> {
    /// Empty while they are shared.
    own: Vec<T>,
    shared: Option<ScalarBuffer<T>>,
}

impl<T: ArrowNativeType> Default for Column<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0, may_be_shared: false }
    }
}

impl<T: ArrowNativeType> Column<T> {
    pub(in super::super) fn len(&self) -> usize {
        self.len
    }

    /// Makes room for so many groups; those that are new have `value`.
    pub(in super::super) fn grow(&mut self, groups: usize, value: T) {
        while self.len < groups {
            let chunk = self.len / CHUNK;
            if chunk == self.chunks.len() {
                // The first one may stay small.
                let room = if chunk == 0 { 0 } else { CHUNK };
                self.chunks.push(Chunk { own: Vec::with_capacity(room), shared: None });
            }
            let end = groups.min((chunk + 1) * CHUNK);
            self.chunks[chunk].make_own();
            self.chunks[chunk].own.resize(end - chunk * CHUNK, value);
            self.len = end;
        }
    }

    /// Adds a group.
    pub(in super::super) fn push(&mut self, value: T) {
        self.grow(self.len + 1, value);
    }

    /// Changes the numbers of the groups of rows, which it has. `taken`: which rows; `None`: all.
    pub(in super::super) fn update<V: Copy>(
        &mut self,
        ids: &[usize],
        values: &[V],
        taken: Option<&BooleanBuffer>,
        change: impl Fn(&mut T, V),
    ) {
        match taken {
            None => self.change(ids, ids.iter().copied().zip(values.iter().copied()), change),
            Some(taken) => self.change(ids, taken.set_indices().map(|row| (ids[row], values[row])), change),
        }
    }

    /// The same of rows without a value.
    pub(in super::super) fn visit(
        &mut self,
        ids: &[usize],
        taken: Option<&BooleanBuffer>,
        change: impl Fn(&mut T),
    ) {
        match taken {
            None => self.change(ids, ids.iter().map(|id| (*id, ())), |number, ()| change(number)),
            Some(taken) => {
                let uses = taken.set_indices().map(|row| (ids[row], ()));
                self.change(ids, uses, |number, ()| change(number));
            }
        }
    }

    #[inline]
    fn change<V>(
        &mut self,
        ids: &[usize],
        uses: impl Iterator<Item = (usize, V)>,
        change: impl Fn(&mut T, V),
    ) {
        if let [only] = self.chunks.as_mut_slice() {
            only.make_own();
            let numbers = only.own.as_mut_slice();
            return uses.for_each(|(group, value)| change(&mut numbers[group], value));
        }
        if self.may_be_shared {
            ids.iter().for_each(|group| self.chunks[group / CHUNK].make_own());
            self.may_be_shared = self.chunks.iter().any(|chunk| chunk.shared.is_some());
        }
        // Those that are shared have nothing here, and no row.
        let mut chunks: Vec<&mut [T]> =
            self.chunks.iter_mut().map(|chunk| chunk.own.as_mut_slice()).collect();
        let chunks = chunks.as_mut_slice();
        uses.for_each(|(group, value)| change(&mut chunks[group / CHUNK][group % CHUNK], value));
    }

    /// All numbers, in pieces of a chunk, one at least. They stay here, too.
    pub(in super::super) fn share(&mut self) -> Vec<ScalarBuffer<T>> {
        if self.chunks.is_empty() {
            return vec![ScalarBuffer::default()];
        }
        self.may_be_shared = true;
        self.chunks.iter_mut().map(Chunk::share).collect()
    }

    /// Takes all numbers, which are moved where there is one chunk.
    pub(in super::super) fn take(&mut self) -> ScalarBuffer<T> {
        let len = mem::take(&mut self.len);
        let mut chunks = mem::take(&mut self.chunks).into_iter();
        if chunks.len() <= 1 {
            return chunks.next().map(Chunk::into_buffer).unwrap_or_default();
        }
        let mut all = Vec::with_capacity(len);
        // Each chunk is let go of when it is copied.
        chunks.for_each(|chunk| all.extend_from_slice(&chunk.into_buffer()));
        all.into()
    }

    /// Memory in bytes.
    pub(in super::super) fn size(&self) -> usize {
        let size =
            |chunk: &Chunk<T>| chunk.shared.as_ref().map_or(chunk.own.capacity(), |shared| shared.len());
        self.chunks.iter().map(size).sum::<usize>() * size_of::<T>()
    }
}

impl<T: ArrowNativeType> Chunk<T> {
    #[inline]
    fn make_own(&mut self) {
        if self.shared.is_some() {
            self.take_back();
        }
    }

    /// The numbers are copied only if somebody else has them.
    #[cold]
    fn take_back(&mut self) {
        let Some(numbers) = self.shared.take() else { return };
        let len = numbers.len();
        self.own = match numbers.into_inner().into_vec() {
            Ok(numbers) => numbers,
            Err(buffer) => ScalarBuffer::new(buffer, 0, len).to_vec(),
        };
    }

    fn share(&mut self) -> ScalarBuffer<T> {
        let own = &mut self.own;
        self.shared.get_or_insert_with(|| mem::take(own).into()).clone()
    }

    fn into_buffer(self) -> ScalarBuffer<T> {
        self.shared.unwrap_or_else(|| self.own.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn squares(groups: usize) -> Vec<u64> {
        (0..groups as u64).map(|group| group * group).collect()
    }

    fn column(groups: usize) -> Column<u64> {
        let mut column = Column::default();
        // In steps that end inside of chunks, on their ends and behind them.
        for end in [groups / 3, CHUNK.min(groups), groups] {
            let from = column.len();
            column.grow(end, 0);
            let (ids, values): (Vec<usize>, Vec<u64>) =
                (from..end).map(|group| (group, group as u64)).unzip();
            column.update(&ids, &values, None, |number, value| *number = value * value);
        }
        column
    }

    #[test]
    fn pieces_are_chunks_of_the_whole() {
        for groups in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7] {
            let mut column = column(groups);
            let pieces = column.share();
            assert_eq!(pieces.len(), groups.div_ceil(CHUNK).max(1));
            assert!(pieces.iter().rev().skip(1).all(|piece| piece.len() == CHUNK));
            let together: Vec<u64> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
            assert_eq!(together, squares(groups));
            assert_eq!((column.len(), column.take().to_vec()), (groups, squares(groups)));
            assert_eq!((column.len(), column.take().len()), (0, 0));
        }
    }

    #[test]
    fn what_was_handed_on_stays_as_it_was() {
        let groups = 2 * CHUNK + 10;
        let mut column = column(groups);
        let shared = column.share();
        column.update(&[3, CHUNK + 1, groups - 1], &[7, 8, 9], None, |number, value| *number = value);
        column.push(5);
        let mut changed = squares(groups);
        (changed[3], changed[CHUNK + 1], changed[groups - 1]) = (7, 8, 9);
        changed.push(5);
        let before: Vec<u64> = shared.iter().flat_map(|piece| piece.iter().copied()).collect();
        assert_eq!(before, squares(groups));
        assert_eq!(column.take().to_vec(), changed);
    }

    #[test]
    fn a_chunk_is_copied_only_while_somebody_has_it() {
        let mut column = column(CHUNK + 1);
        let place = |column: &mut Column<u64>| column.share()[0].inner().as_ptr();
        let first = place(&mut column);
        column.update(&[0], &[1], None, |number, value| *number = value);
        assert_eq!(place(&mut column), first, "nobody had it");
        let held = column.share();
        column.update(&[0], &[2], None, |number, value| *number = value);
        assert_ne!(place(&mut column), first);
        assert_eq!((held[0][0], column.take()[0]), (1, 2));
    }
}
