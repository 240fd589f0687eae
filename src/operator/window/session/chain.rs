//! Rows that are kept, each in the chain of its session.

use std::ops::Range;

use arrow::array::{Array, ArrayRef};
use arrow::compute::{concat, interleave};

use crate::error::Error;
use crate::operator::evaluate::arrow_failure;

/// All columns.
pub(super) const ALL: Range<usize> = 0..usize::MAX;
/// The end of a chain.
const END: u32 = u32::MAX;
/// Rows that are kept before it is worth looking for those that nobody needs.
const FEW_ROWS: usize = 8_192;

/// Rows of a [`Kept`], as a list through its links. Joining two costs nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chain {
    first: u32,
    last: u32,
    len: u32,
}

impl Chain {
    /// Number of rows.
    pub(super) fn len(self) -> usize {
        self.len as usize
    }

    /// Its first row.
    pub(super) fn first(self) -> Option<u32> {
        (self.len > 0).then_some(self.first)
    }
}

impl Default for Chain {
    fn default() -> Self {
        Self { first: END, last: END, len: 0 }
    }
}

/// Columns of rows that wait for their session to close.
#[derive(Default)]
pub(super) struct Kept {
    chunks: Vec<Chunk>,
    /// When each row arrived, as a number that grows.
    arrivals: Vec<u64>,
    /// The next row of the same session.
    links: Vec<u32>,
    /// Rows of chains that were taken.
    dead: usize,
}

struct Chunk {
    first: usize,
    len: usize,
    columns: Vec<ArrayRef>,
}

impl Kept {
    /// Number of rows, with those that nobody needs any more.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Number of rows that a chain has.
    pub(super) fn live(&self) -> usize {
        self.links.len() - self.dead
    }

    /// Whether most rows are of no use any more, so that it is time to [`Kept::retain`].
    pub(super) fn is_mostly_dead(&self) -> bool {
        self.dead > FEW_ROWS && self.dead * 2 > self.len()
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let columns = self.chunks.iter().flat_map(|chunk| &chunk.columns);
        columns.map(|column| column.get_array_memory_size()).sum::<usize>() + self.len() * 12
    }

    /// Puts the next row at the end of a chain; its columns come with [`Kept::append`].
    ///
    /// # Errors
    /// An internal error beyond 4 billion rows.
    pub(super) fn link(&mut self, chain: &mut Chain, arrival: u64) -> Result<(), Error> {
        let row = self.links.len() as u32;
        if row == END {
            return Err(Error::internal("session", "more rows wait than can be numbered"));
        }
        self.links.push(END);
        self.arrivals.push(arrival);
        if chain.len == 0 {
            chain.first = row;
        } else {
            self.links[chain.last as usize] = row;
        }
        chain.last = row;
        chain.len += 1;
        Ok(())
    }

    /// Puts `other` at the end of `chain`.
    pub(super) fn join(&mut self, chain: &mut Chain, other: Chain) {
        if other.len == 0 {
            return;
        }
        if chain.len == 0 {
            *chain = other;
            return;
        }
        self.links[chain.last as usize] = other.first;
        chain.last = other.last;
        chain.len += other.len;
    }

    /// The columns of the rows that were linked since the last call.
    pub(super) fn append(&mut self, columns: Vec<ArrayRef>) -> Result<(), Error> {
        let len = self.links.len() - self.next_row();
        self.expect(columns, len)
    }

    /// The row that comes after those with columns.
    fn next_row(&self) -> usize {
        self.chunks.last().map_or(0, |chunk| chunk.first + chunk.len)
    }

    /// The columns of so many rows that will be linked next: they can be read as soon as they are.
    pub(super) fn expect(&mut self, columns: Vec<ArrayRef>, len: usize) -> Result<(), Error> {
        if len == 0 {
            return Ok(());
        }
        let first = self.next_row();
        self.chunks.push(Chunk { first, len, columns });
        // Small batches are copied together, each row a few times.
        while let [.., before, last] = self.chunks.as_slice()
            && before.len <= 2 * last.len
            && before.len + last.len <= FEW_ROWS
        {
            let columns = before
                .columns
                .iter()
                .zip(&last.columns)
                .map(|(before, last)| concat(&[before.as_ref(), last.as_ref()]))
                .collect::<Result<_, _>>()
                .map_err(|error| arrow_failure(&error))?;
            let joined = Chunk { first: before.first, len: before.len + last.len, columns };
            self.chunks.truncate(self.chunks.len() - 2);
            self.chunks.push(joined);
        }
        Ok(())
    }

    /// Adds the rows of a chain to `rows`, in the order of their arrival.
    pub(super) fn rows(&self, chain: Chain, rows: &mut Vec<u32>) {
        let from = rows.len();
        let mut row = chain.first;
        for _ in 0..chain.len {
            rows.push(row);
            row = self.links[row as usize];
        }
        // Sessions that were joined have had their rows at the same time.
        if !rows[from..].is_sorted() {
            rows[from..].sort_unstable();
        }
    }

    /// Says that nobody needs `count` rows any more.
    pub(super) fn release(&mut self, count: usize) {
        self.dead += count;
        if self.dead == self.links.len() {
            *self = Self::default();
        }
    }

    /// When each of `rows` arrived.
    pub(super) fn arrivals(&self, rows: &[u32]) -> Vec<u64> {
        rows.iter().map(|row| self.arrivals[*row as usize]).collect()
    }

    /// These columns of `rows`, as far as there are so many.
    pub(super) fn take(&self, rows: &[u32], columns: Range<usize>) -> Result<Vec<ArrayRef>, Error> {
        let Some(first) = self.chunks.first() else { return Ok(Vec::new()) };
        let mut places = Vec::with_capacity(rows.len());
        let mut current = 0;
        for row in rows.iter().map(|row| *row as usize) {
            let chunk = &self.chunks[current];
            if row < chunk.first || row >= chunk.first + chunk.len {
                current = self.chunks.partition_point(|chunk| chunk.first + chunk.len <= row);
            }
            places.push((current, row - self.chunks[current].first));
        }
        let columns = columns.start..columns.end.min(first.columns.len());
        columns
            .map(|column| {
                let pieces: Vec<&dyn Array> =
                    self.chunks.iter().map(|chunk| chunk.columns[column].as_ref()).collect();
                interleave(&pieces, &places).map_err(|error| arrow_failure(&error))
            })
            .collect()
    }

    /// Forgets all rows that no chain has.
    pub(super) fn retain<'a>(&mut self, chains: impl Iterator<Item = &'a mut Chain>) -> Result<(), Error> {
        let chains: Vec<&mut Chain> = chains.collect();
        let mut rows = Vec::with_capacity(self.live());
        for chain in &chains {
            self.rows(**chain, &mut rows);
        }
        let mut in_order = rows.clone();
        in_order.sort_unstable();
        let columns = self.take(&in_order, ALL)?;
        let arrivals = self.arrivals(&in_order);
        let mut moved = vec![END; self.len()];
        for (to, from) in in_order.iter().enumerate() {
            moved[*from as usize] = to as u32;
        }
        let mut links = vec![END; in_order.len()];
        let mut of_chain = rows.as_slice();
        for chain in chains {
            let (own, rest) = of_chain.split_at(chain.len as usize);
            of_chain = rest;
            for pair in own.windows(2) {
                links[moved[pair[0] as usize] as usize] = moved[pair[1] as usize];
            }
            if let (Some(first), Some(last)) = (own.first(), own.last()) {
                chain.first = moved[*first as usize];
                chain.last = moved[*last as usize];
            }
        }
        let chunks = vec![Chunk { first: 0, len: in_order.len(), columns }];
        *self = Self { chunks, arrivals, links, dead: 0 };
        Ok(())
    }
}
