//! Sessions: windows that a partition's own rows make.
//!
//! [`Tracker`](track) says which session a row belongs to and when one is over; [`Kept`](chain) holds
//! rows, each in the chain of its session; [`SessionAggregate`](aggregate) folds them into states and
//! gives results, [`SessionRows`](rows) gives them with their session's bounds. Where results change after
//! they were given, [`LiveSessions`](live) keeps groups that can be read.
//!
//! Invariant: a session is over at the row whose running watermark has passed it, not when the
//! operator is told of that watermark.

mod aggregate;
mod chain;
mod live;
mod partitions;
mod rows;
mod state;
#[cfg(test)]
mod tests;
mod track;

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, SchemaRef};

use super::placement::{Running, check_time};
use super::results::{Bounds, timestamps};
use super::zone::ZoneClock;
use crate::error::Error;
use crate::operator::late::{LateRows, Missed, Rejected};
use crate::operator::{OpenWindow, Output};
use crate::plan::{WindowKind, WindowSpec};
use crate::stream::{RunningWatermark, StreamBatch, event_times};
use partitions::Partitions;
use track::{Due, Session, Tracker};

pub(super) use aggregate::SessionAggregate;
pub(super) use live::LiveSessions;
pub(in crate::operator) use rows::SessionRows;

/// Takes rows and finds their sessions.
struct Intake {
    /// The time attribute's column.
    time: usize,
    /// The columns of PARTITION BY.
    partition: Vec<usize>,
    partitions: Partitions,
    tracker: Tracker,
    /// The clock that shows the bounds of sessions; `None`: UTC, or the time column's own.
    clock: Option<ZoneClock>,
    /// The last watermark that the operator was given.
    floor: i64,
    /// The rows of the batch that are used.
    kept: Vec<u32>,
    /// The second output, if somebody wants it.
    late: Option<LateRows>,
}

/// What happens to sessions, one after another.
enum Step<'a> {
    /// Time goes on.
    Due(Due),
    /// A row of the batch is in a session, which another one may have become part of.
    Row { row: usize, watermark: i64, session: &'a mut Session, absorbed: Option<Session> },
}

/// What became of a batch's rows that have no session.
#[derive(Debug, Default)]
struct Refused {
    late: u64,
    null_time: u64,
    /// Each of them, if somebody wants them.
    rows: Vec<Rejected>,
}

impl Intake {
    /// `time`, `window`, `partition` and `lateness_us`: the node's window.
    fn try_new(
        (time, window, partition, lateness_us): (usize, &WindowSpec, &[usize], i64),
        input: &SchemaRef,
        late: Option<LateRows>,
    ) -> Result<Self, Error> {
        let WindowKind::Session { gap_us } = window.kind else {
            return Err(Error::internal("session", "the window is no session"));
        };
        let types = partition
            .iter()
            .map(|column| input.fields().get(*column).map(|field| field.data_type().clone()))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Error::internal("session", "a column of PARTITION BY is not there"))?;
        Ok(Self {
            time,
            partition: partition.to_vec(),
            partitions: Partitions::try_new(&types)?,
            tracker: Tracker::new(gap_us, window.unit.us(), lateness_us),
            clock: window.zone.and_then(ZoneClock::unless_utc),
            floor: i64::MIN,
            kept: Vec::new(),
            late,
        })
    }

    /// Finds the session of each row; `keep` is told of each row that has one and of what is due before
    /// it, in their order. `kept` are then these rows; the others are counted and given to the second
    /// output.
    fn place(
        &mut self,
        batch: &StreamBatch,
        out: &mut Output,
        mut keep: impl FnMut(Step<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (times, nulls) = event_times(batch.rows.column(self.time))?;
        let columns: Vec<ArrayRef> =
            self.partition.iter().map(|column| batch.rows.column(*column).clone()).collect();
        let partitions = self.partitions.number(&columns, times.len(), &mut self.tracker)?;
        let running = Running { values: batch.running.as_ref(), floor: self.floor };
        let mut refused = Refused::default();
        self.kept.clear();
        for (row, time) in times.iter().copied().enumerate() {
            let watermark = running.of(row);
            while let Some(due) = self.tracker.next_due(watermark) {
                keep(Step::Due(due))?;
            }
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                refused.null_time += 1;
                if self.late.is_some() {
                    refused.rows.push(Rejected::without_time(row, watermark));
                }
                continue;
            }
            check_time(time)?;
            let Some(placed) = self.tracker.place(partitions[row], time) else {
                refused.late += 1;
                if self.late.is_some() {
                    refused.rows.push(missed(&self.tracker, &mut self.clock, (row, time), watermark));
                }
                continue;
            };
            let session = self.tracker.session(placed.session);
            let session = session.ok_or_else(|| Error::internal("session", "a row's session is gone"))?;
            session.rows_total += 1;
            keep(Step::Row { row, watermark, session, absorbed: placed.absorbed })?;
            self.kept.push(row as u32);
        }
        out.counts.late += refused.late;
        out.counts.null_time += refused.null_time;
        match &self.late {
            Some(late) => late.give(batch, &refused.rows, out),
            None => Ok(()),
        }
    }

    /// Adds the sessions that are over at `watermark`, by their end, where no lateness is allowed.
    fn close(&mut self, watermark: i64, closed: &mut Vec<Session>) {
        closed.extend(self.reach(watermark).filter_map(Due::over));
    }

    /// What is due at `watermark`, in the order of event time.
    fn reach(&mut self, watermark: i64) -> impl Iterator<Item = Due> {
        self.floor = self.floor.max(watermark);
        std::iter::from_fn(move || self.tracker.next_due(watermark))
    }

    /// The bounds of a session as they are shown.
    fn shown(&mut self, start: i64, end: i64) -> Bounds {
        let close = self.tracker.close(end);
        match &mut self.clock {
            Some(clock) => Bounds { start: clock.local(start), end: clock.local(end), close },
            None => Bounds { start, end, close },
        }
    }

    /// `window_start`, `window_end` and `window_time` of sessions, and the watermark that held just
    /// before their results. `fields`: those of the three columns.
    fn bounds<'s>(
        &mut self,
        sessions: impl Iterator<Item = &'s Session> + Clone,
        fields: &[Arc<Field>],
    ) -> Result<(Vec<ArrayRef>, RunningWatermark), Error> {
        let [start, end, time] = fields else {
            return Err(Error::internal("session", "the plan lacks the columns of the window"));
        };
        let close = |session: &Session| self.tracker.close(session.end);
        let closes: Vec<i64> = sessions.clone().map(close).collect();
        // Before a session's results, time had not come to its end.
        let running: Vec<i64> = closes.iter().map(|close| self.tracker.close(*close)).collect();
        let (mut starts, mut ends) = (Vec::with_capacity(closes.len()), Vec::with_capacity(closes.len()));
        for session in sessions {
            starts.push(session.start);
            ends.push(session.end);
        }
        if let Some(clock) = &mut self.clock {
            starts.iter_mut().chain(&mut ends).for_each(|bound| *bound = clock.local(*bound));
        }
        let columns = vec![
            timestamps(starts, start.data_type())?,
            timestamps(ends, end.data_type())?,
            timestamps(closes, time.data_type())?,
        ];
        Ok((columns, RunningWatermark::new(running)))
    }

    /// A session as others see it; `key`: whose it is.
    fn open_window(&mut self, session: &Session, key: Option<String>) -> OpenWindow {
        let (mut start, mut end) = (session.start, session.end);
        if let Some(clock) = &mut self.clock {
            (start, end) = (clock.local(start), clock.local(end));
        }
        OpenWindow {
            start,
            end,
            fires_at: match session.is_closed {
                true => self.tracker.over(session.end),
                false => self.tracker.close(session.end),
            },
            groups: 1,
            rows: Some(session.rows_total),
            is_fired: session.is_closed,
            key,
        }
    }

    /// Memory in bytes, estimated.
    fn size(&self) -> usize {
        self.tracker.size() + self.partitions.size()
    }
}

/// A row, with its time, whose own session would be over: it touches none that is open.
fn missed(
    tracker: &Tracker,
    clock: &mut Option<ZoneClock>,
    (row, time): (usize, i64),
    watermark: i64,
) -> Rejected {
    let end = tracker.end_of(time);
    let by_us = watermark.saturating_sub(end).max(0);
    let window = match clock {
        Some(clock) => (clock.local(time), clock.local(end)),
        None => (time, end),
    };
    Rejected { row: row as u32, watermark, late: Some(Missed { window: Some(window), by_us }) }
}
