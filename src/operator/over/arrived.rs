//! Rows as they came, in batches that are never brought together: their columns may be wide.

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::{concat, interleave, interleave_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use crate::error::Error;
use crate::operator::BATCH_ROWS;
use crate::operator::evaluate::{arrow_failure, evaluate};
use crate::operator::sort::{Ties, sort_columns};
use crate::plan::SortKey;
use crate::stream::{bytes_of, rows_of_width};

/// Rows, each with the number of its partition. A row's place is its number in the order of arrival.
#[derive(Default)]
pub(super) struct Arrived {
    batches: Vec<(RecordBatch, UInt32Array)>,
    rows: usize,
    /// About.
    bytes: usize,
}

impl Arrived {
    pub(super) fn push(&mut self, rows: RecordBatch, partitions: UInt32Array) {
        self.rows += rows.num_rows();
        self.bytes += bytes_of(&rows);
        self.batches.push((rows, partitions));
    }

    pub(super) fn len(&self) -> usize {
        self.rows
    }

    pub(super) fn batches(&self) -> impl Iterator<Item = &RecordBatch> {
        self.batches.iter().map(|(rows, _)| rows)
    }

    /// The partition of each row, and the places by partition and ORDER BY.
    pub(super) fn ordered(&self, order: &[SortKey], ties: Ties) -> Result<(UInt32Array, UInt32Array), Error> {
        let partitions = self.partitions()?;
        let value = |key: &SortKey| -> Result<ArrayRef, Error> {
            let values =
                self.batches().map(|rows| evaluate(&key.expr, rows)).collect::<Result<Vec<_>, _>>()?;
            let values: Vec<&dyn Array> = values.iter().map(|values| values.as_ref()).collect();
            concat(&values).map_err(|error| arrow_failure(&error))
        };
        let values = order.iter().map(value).collect::<Result<Vec<_>, _>>()?;
        let before: ArrayRef = std::sync::Arc::new(partitions.clone());
        let order = sort_columns(order, values, &[before], ties, None, self.rows)?;
        Ok((partitions, order))
    }

    fn partitions(&self) -> Result<UInt32Array, Error> {
        let pieces: Vec<&dyn Array> = self.batches.iter().map(|(_, numbers)| numbers as &dyn Array).collect();
        match pieces.is_empty() {
            true => Ok(UInt32Array::from(Vec::<u32>::new())),
            false => Ok(concat(&pieces).map_err(|error| arrow_failure(&error))?.as_primitive().clone()),
        }
    }

    /// How many of the rows make a batch.
    pub(super) fn batch_rows(&self) -> usize {
        rows_of_width(self.bytes.div_ceil(self.rows.max(1)), BATCH_ROWS)
    }

    /// Where each batch begins, and where the last one ends.
    fn starts(&self) -> Vec<usize> {
        let ends = self.batches().scan(0, |end, rows| {
            *end += rows.num_rows();
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    /// The rows at some places, in this order.
    pub(super) fn chosen(&self, schema: &SchemaRef, places: &[u32]) -> Result<RecordBatch, Error> {
        if places.is_empty() {
            return Ok(RecordBatch::new_empty(schema.clone()));
        }
        let starts = self.starts();
        let picks: Vec<(usize, usize)> = places.iter().map(|place| pick(&starts, *place)).collect();
        let batches: Vec<&RecordBatch> = self.batches().collect();
        interleave_record_batch(&batches, &picks).map_err(|error| arrow_failure(&error))
    }

    /// Keeps the rows at these places, which are ascending. Of the others each batch is let go when its rows were copied.
    pub(super) fn retain(&mut self, places: &[u32]) -> Result<(), Error> {
        let (batch_rows, starts) = (self.batch_rows(), self.starts());
        let mut old: Vec<Option<(RecordBatch, UInt32Array)>> =
            std::mem::take(&mut self.batches).into_iter().map(Some).collect();
        (self.rows, self.bytes) = (0, 0);
        for places in places.chunks(batch_rows) {
            let (first, last) = (pick(&starts, places[0]).0, pick(&starts, places[places.len() - 1]).0);
            old[..first].fill(None);
            let sources: Vec<&(RecordBatch, UInt32Array)> = old[first..=last].iter().flatten().collect();
            let picks: Vec<(usize, usize)> = places
                .iter()
                .map(|place| pick(&starts, *place))
                .map(|(batch, row)| (batch - first, row))
                .collect();
            let rows: Vec<&RecordBatch> = sources.iter().map(|(rows, _)| rows).collect();
            let rows = interleave_record_batch(&rows, &picks).map_err(|error| arrow_failure(&error))?;
            let numbers: Vec<&dyn Array> = sources.iter().map(|(_, numbers)| numbers as &dyn Array).collect();
            let numbers = interleave(&numbers, &picks).map_err(|error| arrow_failure(&error))?;
            self.push(rows, numbers.as_primitive().clone());
        }
        Ok(())
    }
}

/// The batch of a place, and the row in it.
fn pick(starts: &[usize], place: u32) -> (usize, usize) {
    let place = place as usize;
    let batch = starts.partition_point(|start| *start <= place) - 1;
    (batch, place - starts[batch])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::testing::{Row, column, input, lines, record_batch};

    fn arrived(batches: &[&[i64]]) -> Arrived {
        let mut arrived = Arrived::default();
        for values in batches {
            let rows: Vec<Row> = values.iter().map(|value| (None, Some("k"), Some(*value))).collect();
            let partitions = values.iter().map(|value| (value % 2) as u32);
            arrived.push(record_batch(&rows), UInt32Array::from_iter_values(partitions));
        }
        arrived
    }

    fn values(rows: &RecordBatch) -> Vec<String> {
        lines(rows).iter().map(|line| line.trim_start_matches("NULL,k,").to_owned()).collect()
    }

    #[test]
    fn rows_are_found_by_their_place_whatever_the_batches() {
        let arrived = arrived(&[&[5, 2], &[], &[8], &[1, 4, 3]]);
        assert_eq!((arrived.len(), arrived.batch_rows()), (6, BATCH_ROWS));
        assert_eq!(values(&arrived.chosen(&input(), &[5, 0, 2, 2]).unwrap()), ["3", "5", "8", "8"]);
        assert_eq!(arrived.chosen(&input(), &[]).unwrap().num_rows(), 0);
        let order = [SortKey { expr: column(2), descending: true, nulls_first: false }];
        let (partitions, order) = arrived.ordered(&order, Ties::EarliestFirst).unwrap();
        assert_eq!(partitions.values(), &[1, 0, 0, 1, 0, 1]);
        assert_eq!(
            values(&arrived.chosen(&input(), order.values()).unwrap()),
            ["8", "4", "2", "5", "3", "1"]
        );
    }

    #[test]
    fn what_is_kept_stays_in_order_and_comes_together() {
        let mut arrived = arrived(&[&[5, 2], &[], &[8], &[1, 4, 3]]);
        arrived.retain(&[1, 2, 5]).unwrap();
        assert_eq!((arrived.len(), arrived.batches().count()), (3, 1));
        assert_eq!(values(&arrived.chosen(&input(), &[0, 1, 2]).unwrap()), ["2", "8", "3"]);
        assert_eq!(arrived.partitions().unwrap().values(), &[0, 0, 1]);
        arrived.retain(&[]).unwrap();
        assert_eq!((arrived.len(), arrived.batches().count()), (0, 0));
        assert_eq!(arrived.partitions().unwrap().len(), 0);
    }
}
