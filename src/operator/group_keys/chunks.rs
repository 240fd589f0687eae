//! A list of numbers that only grows, most of it shared with whoever was given it.

use std::mem;

use arrow::buffer::ScalarBuffer;

/// Numbers of a chunk.
pub(in crate::operator) const CHUNK: usize = 1 << 16;

/// Whole chunks do not change any more, so they are handed on as they are; nothing is copied when the list grows beyond
/// one.
#[derive(Default)]
pub(super) struct Chunks {
    whole: Vec<ScalarBuffer<u64>>,
    /// Fewer than a chunk.
    rest: Vec<u64>,
}

impl Chunks {
    pub(super) fn len(&self) -> usize {
        self.whole.len() * CHUNK + self.rest.len()
    }

    #[inline]
    pub(super) fn push(&mut self, number: u64) {
        self.rest.push(number);
        if self.rest.len() == CHUNK {
            self.whole.push(mem::take(&mut self.rest).into());
        }
    }

    /// All numbers, one after another.
    pub(super) fn to_vec(&self) -> Vec<u64> {
        let mut all = Vec::with_capacity(self.len());
        self.whole.iter().for_each(|chunk| all.extend_from_slice(chunk));
        all.extend_from_slice(&self.rest);
        all
    }

    /// The numbers in pieces, one at least, each with the place of its first.
    pub(super) fn pieces(&self) -> Vec<(usize, ScalarBuffer<u64>)> {
        let mut pieces: Vec<_> = self.whole.iter().cloned().enumerate().collect();
        pieces.iter_mut().for_each(|(place, _)| *place *= CHUNK);
        if !self.rest.is_empty() || pieces.is_empty() {
            pieces.push((self.whole.len() * CHUNK, self.rest.clone().into()));
        }
        pieces
    }

    /// Memory in bytes.
    pub(super) fn size(&self) -> usize {
        (self.whole.len() * CHUNK + self.rest.capacity()) * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_list_and_share_its_whole_chunks() {
        let mut chunks = Chunks::default();
        assert_eq!(chunks.pieces().len(), 1);
        for length in [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            (chunks.len()..length).for_each(|number| chunks.push(number as u64 * 3));
            let expected: Vec<u64> = (0..length as u64).map(|number| number * 3).collect();
            assert_eq!((chunks.len(), chunks.to_vec()), (length, expected.clone()));
            let pieces = chunks.pieces();
            let mut together = Vec::new();
            for (place, piece) in &pieces {
                assert_eq!(*place, together.len());
                together.extend_from_slice(piece);
            }
            assert_eq!(together, expected);
            for ((_, piece), whole) in pieces.iter().zip(&chunks.whole) {
                assert_eq!(piece.inner().as_ptr(), whole.inner().as_ptr());
            }
        }
    }
}
