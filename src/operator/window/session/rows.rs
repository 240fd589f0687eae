//! Rows with the session that they are in.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::super::key_filter::{self, KeyNames};
use super::chain::{ALL, Kept};
use super::track::Session;
use super::{Intake, Step};
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::late::LateRows;
use crate::operator::{
    BATCH_ROWS, KeyFilter, OpenWindow, Operator, Output, RowCounts, StateReader, StateSize, StateWriter,
};
use crate::plan::WindowRowsNode;
use crate::stream::{StreamBatch, Watermark};

/// Adds `window_start`, `window_end` and `window_time` to each row when its session is over.
///
/// Wakes on: watermarks. State: the rows of open sessions. Order: by window end, then by arrival.
/// Watermark: forwarded after the rows.
pub(in crate::operator) struct SessionRows {
    pub(super) intake: Intake,
    pub(super) kept: Kept,
    /// Sessions that are over and have not been given.
    pub(super) closed: Vec<Session>,
    schema: SchemaRef,
    pub(super) rows_seen: u64,
    pub(super) arrived: Option<Instant>,
}

impl SessionRows {
    pub(in crate::operator) fn try_new(
        node: &WindowRowsNode,
        schema: &SchemaRef,
        input: &SchemaRef,
        late: Option<LateRows>,
    ) -> Result<Self, Error> {
        let intake = Intake::try_new((node.time, &node.window, &node.partition, 0), input, late)?;
        let (kept, closed) = (Kept::default(), Vec::new());
        Ok(Self { intake, kept, closed, schema: schema.clone(), rows_seen: 0, arrived: None })
    }

    fn fire(&mut self, watermark: i64, out: &mut Output) -> Result<(), Error> {
        self.intake.close(watermark, &mut self.closed);
        let mut closed = std::mem::take(&mut self.closed);
        // Other subtasks, whose sessions these were, may have been ahead.
        if !closed.is_sorted_by_key(|session| session.end) {
            closed.sort_by_key(|session| session.end);
        }
        let Some(arrived) = self.arrived.filter(|_| !closed.is_empty()) else { return Ok(()) };
        let mut rows: Vec<(u32, u32)> = Vec::new();
        let mut own = Vec::new();
        for (index, session) in closed.iter().enumerate() {
            own.clear();
            self.kept.rows(session.rows, &mut own);
            rows.extend(own.iter().map(|row| (index as u32, *row)));
        }
        // Sessions that end together give their rows as they came.
        for together in rows.chunk_by_mut(|one, other| end_of(&closed, one.0) == end_of(&closed, other.0)) {
            together.sort_unstable_by_key(|(_, row)| *row);
        }
        for part in rows.chunks(BATCH_ROWS) {
            self.give(&closed, part, arrived, out)?;
        }
        out.counts.held -= rows.len() as u64;
        out.counts.used += rows.len() as u64;
        self.kept.release(rows.len());
        Ok(())
    }

    fn give(
        &mut self,
        closed: &[Session],
        rows: &[(u32, u32)],
        arrived: Instant,
        out: &mut Output,
    ) -> Result<(), Error> {
        let picks: Vec<u32> = rows.iter().map(|(_, row)| *row).collect();
        let mut columns: Vec<ArrayRef> = self.kept.take(&picks, ALL)?;
        let sessions = rows.iter().map(|(index, _)| &closed[*index as usize]);
        let (bounds, running) = self.intake.bounds(sessions, &self.schema.fields()[columns.len()..])?;
        columns.extend(bounds);
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|error| Error::internal("WindowRows", error))?;
        out.batch(StreamBatch { rows, kinds: None, running: Some(running), arrived });
        Ok(())
    }
}

fn end_of(closed: &[Session], index: u32) -> i64 {
    closed[index as usize].end
}

impl Operator for SessionRows {
    fn name(&self) -> &'static str {
        "WindowRows"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("WindowRows", "the input is no stream of inserts"));
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.arrived = self.arrived.max(Some(batch.arrived));
        let first = self.rows_seen;
        self.rows_seen += batch.num_rows() as u64;
        let (kept, closed) = (&mut self.kept, &mut self.closed);
        self.intake.place(&batch, out, |step| match step {
            Step::Due(due) => {
                closed.extend(due.over());
                Ok(())
            }
            Step::Row { row, session, absorbed, .. } => {
                if let Some(absorbed) = absorbed {
                    kept.join(&mut session.rows, absorbed.rows);
                }
                kept.link(&mut session.rows, first + row as u64)
            }
        })?;
        let used = &self.intake.kept;
        out.counts.held += used.len() as u64;
        if used.len() == batch.num_rows() {
            kept.append(batch.rows.columns().to_vec())?;
        } else {
            let rows = take_record_batch(&batch.rows, &UInt32Array::from(used.clone()))
                .map_err(|error| arrow_failure(&error))?;
            kept.append(rows.columns().to_vec())?;
        }
        if kept.is_mostly_dead() {
            let sessions = self.intake.tracker.sessions().chain(closed);
            kept.retain(sessions.map(|session| &mut session.rows))?;
        }
        Ok(())
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.fire(watermark.0, out)?;
        out.watermark(watermark);
        Ok(())
    }

    fn next_watermark(&self) -> Option<i64> {
        self.intake.tracker.next_watermark()
    }

    fn finish(&mut self, out: &mut Output) -> Result<(), Error> {
        self.fire(i64::MAX, out)
    }

    fn open_windows(&mut self, most: usize, of: Option<&KeyFilter>) -> Result<Vec<OpenWindow>, Error> {
        let place = of.map(|filter| KeyNames::of(&self.schema, 0, self.schema.fields().len()).place(filter));
        let column = match place {
            // The columns of the partition tell whose sessions they are.
            Some(place) => place.filter(|place| self.intake.partition.contains(place)),
            None => None,
        };
        if of.is_some() && column.is_none() {
            return Ok(Vec::new());
        }
        let sessions: Vec<Session> =
            self.intake.tracker.first_to_end(of.map_or(most, |_| usize::MAX)).into_iter().cloned().collect();
        if sessions.is_empty() {
            return Ok(Vec::new());
        }
        let firsts: Vec<u32> = sessions.iter().filter_map(|session| session.rows.first()).collect();
        let columns = self.kept.take(&firsts, ALL)?;
        let keys: Vec<ArrayRef> =
            self.intake.partition.iter().map(|column| Arc::clone(&columns[*column])).collect();
        let is_wanted = match (of, column) {
            (Some(filter), Some(column)) => key_filter::matches(&columns[column], filter)?,
            _ => vec![true; sessions.len()],
        };
        let texts = key_filter::texts(&keys, sessions.len())?;
        let shown = sessions.iter().zip(texts).zip(is_wanted).filter(|(_, is_wanted)| *is_wanted);
        let intake = &mut self.intake;
        Ok(shown.take(most).map(|((session, key), _)| intake.open_window(session, key)).collect())
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        self.write(state)
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        counts.held = self.read(state)? as u64;
        Ok(())
    }

    fn state(&self) -> StateSize {
        StateSize {
            windows: self.intake.tracker.len(),
            rows: self.kept.live(),
            bytes: self.kept.size() + self.intake.size(),
        }
    }
}
