//! EMIT COMPLETE: the whole result in place of the one before.

use std::collections::BTreeMap;
use std::time::Instant;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::super::placement::PartKey;
use super::super::results::{Bounds, ResultBatches};
use super::changes::give;
use super::groups::KeyFormat;
use super::window::Window;
use crate::error::Error;
use crate::operator::Output;
use crate::stream::{RowKind, RowKinds, RunningWatermark, StreamBatch, StreamElement, Watermark};

/// The results of windows that are gone, and what was given last.
pub(super) struct Complete {
    batches: ResultBatches,
    has_bounds: bool,
    gone: BTreeMap<PartKey, (Bounds, usize, Vec<ArrayRef>)>,
    given: Given,
    /// Rows have come since.
    pub(super) is_dirty: bool,
}

impl Complete {
    pub(super) fn new(schema: &SchemaRef, has_bounds: bool, unit_us: i64) -> Self {
        let batches = ResultBatches::new(schema, has_bounds, unit_us);
        Self { batches, has_bounds, gone: BTreeMap::new(), given: Given::default(), is_dirty: false }
    }

    /// Keeps the results of a window that takes no more rows.
    pub(super) fn keep(&mut self, key: PartKey, window: &mut Window, keys: &KeyFormat) -> Result<(), Error> {
        let (groups, columns) = window.results(keys)?;
        self.gone.insert(key, (window.bounds, groups, columns));
        Ok(())
    }

    /// Deletes what was given and gives the whole result, by window end, then as keys were first seen.
    /// The same result is not given again.
    pub(super) fn round(
        &mut self,
        windows: &mut BTreeMap<PartKey, Window>,
        keys: &KeyFormat,
        running: i64,
        arrived: Instant,
        out: &mut Output,
    ) -> Result<(), Error> {
        self.is_dirty = false;
        let mut result = Output::default();
        let mut gone = self.gone.iter().peekable();
        for (key, window) in windows.iter_mut() {
            while let Some((_, (bounds, groups, columns))) = gone.next_if(|(other, _)| *other < key) {
                self.batches.add(*bounds, (*groups, columns.clone()), arrived, &mut result)?;
            }
            self.batches.add(window.bounds, window.results(keys)?, arrived, &mut result)?;
        }
        for (_, (bounds, groups, columns)) in gone {
            self.batches.add(*bounds, (*groups, columns.clone()), arrived, &mut result)?;
        }
        self.batches.flush(arrived, &mut result)?;
        let stamp = self.has_bounds.then_some(running);
        self.given.replace(result, stamp, arrived, out);
        Ok(())
    }

    /// Windows, rows and bytes that it keeps.
    pub(super) fn size(&self) -> (usize, usize, usize) {
        let rows = self.gone.values().map(|(_, groups, _)| groups).sum();
        let columns = self.gone.values().flat_map(|(_, _, columns)| columns);
        let gone: usize = columns.map(|column| column.get_array_memory_size()).sum();
        (self.gone.len(), rows, gone + self.given.size())
    }
}

/// The whole result that was given last.
#[derive(Default)]
pub(in crate::operator::window) struct Given(Vec<RecordBatch>);

impl Given {
    /// Deletes what was given and gives `result`, if it is not the same. `running`: the watermark just
    /// before, for a result with windows.
    pub(in crate::operator::window) fn replace(
        &mut self,
        mut result: Output,
        running: Option<i64>,
        arrived: Instant,
        out: &mut Output,
    ) {
        let batches: Vec<RecordBatch> = result
            .drain()
            .filter_map(|element| match element {
                StreamElement::Batch(batch) => Some(batch.rows),
                _ => None,
            })
            .collect();
        if batches == self.0 {
            return;
        }
        let stamped = |rows: RecordBatch, kinds: Option<RowKinds>| StreamBatch {
            running: running.map(|running| RunningWatermark::constant(Watermark(running), rows.num_rows())),
            kinds,
            rows,
            arrived,
        };
        for rows in self.0.drain(..) {
            let kinds = RowKinds::new(vec![RowKind::Delete; rows.num_rows()]);
            give(&stamped(rows, Some(kinds)), out);
        }
        for rows in &batches {
            give(&stamped(rows.clone(), None), out);
        }
        self.0 = batches;
    }

    /// Memory in bytes.
    pub(in crate::operator::window) fn size(&self) -> usize {
        self.0.iter().map(RecordBatch::get_array_memory_size).sum()
    }
}
