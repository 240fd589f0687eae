//! Aggregates per session and key whose results change after they were given: EMIT CHANGES, COMPLETE and
//! EARLY, ALLOW LATENESS.
//!
//! [`Sessions`](sessions) keeps the [groups](groups) of each session, with states that can be read without
//! being emptied, and the results that were given and are not true any more. Where a session grows or joins
//! another one, its results stand in other bounds: what was given is deleted, and what it is now comes as new.
//! [`Run`](run) collects rows as long as nobody has to know results in between.
//!
//! Invariant: final results are those of [`SessionAggregate`](super::SessionAggregate). What is given of a
//! session replaces all that was given of it and of those that it is made of.

mod complete;
mod groups;
mod run;
mod sessions;
mod state;

use std::time::Instant;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;

use super::super::key_filter::{self, KeyNames};
use super::super::live::accumulator::Use;
use super::super::live::changes::Changes;
use super::super::live::groups::{KeyFormat, KeyRows};
use super::super::live::rounds::Rounds;
use super::super::recipe::{Arrival, Recipe, Rows};
use super::track::{Due, Session};
use super::{Intake, Step};
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::late::LateRows;
use crate::operator::{
    KeyFilter, OpenWindow, Operator, Output, RowCounts, StateReader, StateSize, StateWriter,
};
use crate::plan::{EmitMode, WindowAggregateNode, WindowSpec};
use crate::stream::{StreamBatch, Watermark};
use complete::Complete;
use run::{Give, Run, Taken};
use sessions::{Sessions, Way};

/// Sessions that may wait before it is looked for those that are over.
const MANY_WAITING: usize = 1_024;

/// Aggregates per session and key; results change as rows come.
///
/// Wakes on: batches, watermarks, timers. State: the groups of each session until it is over and so is its
/// lateness; their rows where states of two sessions can't be joined; EMIT COMPLETE keeps all results.
/// Order: changes as their rows come; results of sessions that close together by when the key was first
/// seen. Watermark: forwarded after the results.
pub(in super::super) struct LiveSessions {
    intake: Intake,
    recipe: Recipe,
    /// One for the columns of each grouping set; one where there are none.
    keys: KeyFormat,
    key_names: KeyNames,
    mode: EmitMode,
    sessions: Sessions,
    run: Run,
    changes: Changes,
    complete: Option<Complete>,
    /// Sessions that have changed since the last round of EVERY, among others.
    waiting: Vec<u64>,
    rounds: Rounds,
    /// How far event time has come.
    watermark: i64,
    /// Steps since changes were given.
    order: u32,
    rows_seen: u64,
    arrived: Option<Instant>,
}

/// What happens to sessions, one after another.
#[derive(Debug, Clone, Copy)]
enum Event {
    Row(RowEvent),
    /// Time goes on: the session closes.
    Closed {
        number: u64,
        end: i64,
    },
    /// The session takes no more rows.
    Over {
        number: u64,
        end: i64,
        was_closed: bool,
    },
}

/// The next row that is used is in a session.
#[derive(Debug, Clone, Copy)]
struct RowEvent {
    number: u64,
    /// The bounds of the session with the row.
    bounds: (i64, i64),
    is_closed: bool,
    /// The session that became part of it.
    absorbed: Option<u64>,
    /// The watermark before the row.
    watermark: i64,
}

/// The rows of a batch that are used, as groups take them.
struct Batch {
    rows: Rows,
    /// For each grouping set its key columns.
    keys: Vec<Vec<ArrayRef>>,
    key_rows: KeyRows,
    /// When the first of them arrived.
    first: u64,
}

impl From<Due> for Event {
    fn from(due: Due) -> Self {
        match due {
            Due::Closed { number, end } => Self::Closed { number, end },
            Due::Over(session) => {
                Self::Over { number: session.number, end: session.end, was_closed: session.is_closed }
            }
        }
    }
}

impl LiveSessions {
    /// `time`, `window` and `partition`: the node's window.
    pub(in super::super) fn try_new(
        node: &WindowAggregateNode,
        (time, window, partition): (usize, &WindowSpec, &[usize]),
        schema: &SchemaRef,
        input: &SchemaRef,
        late: Option<LateRows>,
    ) -> Result<Self, Error> {
        let recipe = Recipe::try_new(node, input)?;
        let unit_us = window.unit.us();
        let is_complete = matches!(node.emit, EmitMode::Complete { .. });
        let lateness_us = node.allowed_lateness_us;
        Ok(Self {
            intake: Intake::try_new((time, window, partition, lateness_us), input, late)?,
            keys: KeyFormat::try_new(&recipe)?,
            key_names: KeyNames::of(schema, 3, node.keys.len()),
            sessions: Sessions::new(&recipe, input)?,
            recipe,
            mode: node.emit,
            run: Run::default(),
            changes: Changes::new(schema, true, unit_us),
            complete: is_complete.then(|| Complete::new(schema, unit_us)),
            waiting: Vec::new(),
            rounds: Rounds::new(node.emit),
            watermark: i64::MIN,
            order: 0,
            rows_seen: 0,
            arrived: None,
        })
    }

    fn arrived(&self) -> Instant {
        // Without a row there is no arrival to measure latency from; now is one.
        self.arrived.unwrap_or_else(Instant::now)
    }

    /// Follows what happens to sessions; `batch`: the rows among it.
    fn follow(&mut self, events: &[Event], batch: Option<&Batch>, out: &mut Output) -> Result<(), Error> {
        let mut row = 0;
        for event in events {
            self.order += 1;
            match *event {
                Event::Row(event) => {
                    let batch =
                        batch.ok_or_else(|| Error::internal("WindowAggregate", "rows without a batch"))?;
                    self.watermark = self.watermark.max(event.watermark);
                    self.take(&event, row, batch, out)?;
                    row += 1;
                }
                Event::Closed { number, end } => self.close(number, end, batch, out)?,
                Event::Over { number, end, was_closed } => {
                    if !was_closed {
                        self.close(number, end, batch, out)?;
                    }
                    self.end(number, end);
                }
            }
        }
        self.run(batch, out)?;
        self.flush(out)
    }

    /// Adds a row to its session.
    fn take(&mut self, event: &RowEvent, row: u32, batch: &Batch, out: &mut Output) -> Result<(), Error> {
        let number = event.number;
        if event.absorbed.is_some() || self.run.gives_of(&self.sessions, number) {
            self.run(Some(batch), out)?;
        }
        if let Some(absorbed) = event.absorbed {
            self.sessions.absorb(number, absorbed, &self.recipe, &self.keys)?;
        }
        let gives = match self.mode {
            EmitMode::OnWindowClose | EmitMode::Early { .. } => event.is_closed,
            EmitMode::Changes { every_us } => every_us.is_none(),
            EmitMode::Complete { .. } => false,
        };
        let mut touched = std::mem::take(&mut self.run.touched);
        let (order, running) = (self.order, self.watermark);
        match self.sessions.take(event, (batch, row), gives, &mut touched)? {
            Way::Each { before } => {
                for (set, group) in touched.iter().enumerate() {
                    let is_given = std::mem::replace(&mut self.sessions.groups.of_mut(*group).is_given, true);
                    let before = is_given.then_some(before);
                    self.run.each.push(Use { group: *group, row });
                    self.run.taken.push(Taken { set, before, after: event.bounds, order, running });
                }
            }
            Way::Together { waits } => {
                self.run.together.extend(touched.iter().map(|group| Use { group: *group, row }));
                if gives {
                    self.run.gives.push(Give { number, at: None, order, running });
                }
                if waits && self.rounds.next_us.is_some() {
                    self.waiting.push(number);
                }
            }
        }
        self.run.touched = touched;
        if let Some(complete) = &mut self.complete {
            complete.is_dirty = true;
        }
        Ok(())
    }

    /// A session closes.
    fn close(&mut self, number: u64, end: i64, batch: Option<&Batch>, out: &mut Output) -> Result<(), Error> {
        let at = self.intake.tracker.close(end);
        // Just before, time had not come to it.
        self.watermark = self.watermark.max(self.intake.tracker.close(at));
        let is_due = self.complete.as_ref().is_some_and(|complete| complete.is_dirty);
        if self.complete.is_none() {
            self.gives(number, at);
        } else if is_due && self.mode.every_us().is_none() {
            self.run(batch, out)?;
            self.round(out)?;
        }
        Ok(())
    }

    /// A session takes no more rows.
    fn end(&mut self, number: u64, end: i64) {
        if self.complete.is_none() {
            let at = self.intake.tracker.over(end);
            self.watermark = self.watermark.max(self.intake.tracker.close(at));
            self.gives(number, at);
        }
        self.run.ends.push(number);
    }

    /// A session is to give its results.
    fn gives(&mut self, number: u64, at: i64) {
        if let Some(live) = self.sessions.get_mut(number) {
            live.gives = true;
            let (order, running) = (self.order, self.watermark);
            self.run.gives.push(Give { number, at: Some(at), order, running });
        }
    }

    /// Does what was collected.
    fn run(&mut self, batch: Option<&Batch>, out: &mut Output) -> Result<(), Error> {
        let rows = batch.map(|batch| (&batch.rows, batch.keys.as_slice()));
        let (sessions, keys, intake) = (&mut self.sessions, &self.keys, &mut self.intake);
        self.run.rows(rows, sessions, keys, intake, &mut self.changes)?;
        self.run.results(sessions, keys, intake, &mut self.changes)?;
        for number in self.run.ends.drain(..) {
            if let Some(complete) = &mut self.complete {
                complete.keep(number, sessions, keys, intake)?;
            }
            sessions.forget(number)?;
        }
        if self.changes.is_full() {
            self.flush(out)?;
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut Output) -> Result<(), Error> {
        let arrived = self.arrived();
        self.order = 0;
        self.changes.flush(arrived, out)
    }

    /// Gives what has changed since the last round; nothing waits to be [run](Self::run).
    fn round(&mut self, out: &mut Output) -> Result<(), Error> {
        let arrived = self.arrived();
        if let Some(complete) = &mut self.complete {
            if complete.is_dirty {
                let (sessions, keys, intake) = (&mut self.sessions, &self.keys, &mut self.intake);
                complete.round(sessions, keys, intake, self.watermark, arrived, out)?;
            }
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        let mut waiting: Vec<(i64, u64)> = waiting
            .into_iter()
            .filter_map(|number| {
                let live = self.sessions.get(number).filter(|live| live.is_waiting)?;
                Some((self.intake.tracker.close(live.end), number))
            })
            .collect();
        waiting.sort_unstable();
        waiting.dedup();
        for (at, number) in waiting {
            self.order += 1;
            self.gives(number, at);
        }
        self.run(None, out)?;
        self.flush(out)
    }

    /// Brings event time to `watermark`.
    fn advance(&mut self, watermark: i64, out: &mut Output) -> Result<(), Error> {
        let events: Vec<Event> = self.intake.reach(watermark).map(Event::from).collect();
        self.follow(&events, None, out)?;
        self.watermark = self.watermark.max(watermark);
        self.tidy()
    }

    /// Between two batches: keeps memory at what is needed.
    fn tidy(&mut self) -> Result<(), Error> {
        if self.waiting.len() > MANY_WAITING.max(self.sessions.len() * 2) {
            self.waiting.retain(|number| self.sessions.get(*number).is_some_and(|live| live.is_waiting));
            self.waiting.sort_unstable();
            self.waiting.dedup();
        }
        self.sessions.tidy()
    }
}

impl Operator for LiveSessions {
    fn name(&self) -> &'static str {
        "WindowAggregate"
    }

    fn open(&mut self, now_us: i64) {
        self.rounds.open(now_us);
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("WindowAggregate", "the input is no stream of inserts"));
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.arrived = self.arrived.max(Some(batch.arrived));
        let first = self.rows_seen;
        self.rows_seen += batch.num_rows() as u64;
        let mut events = Vec::with_capacity(batch.num_rows());
        self.intake.place(&batch, out, |step| {
            events.push(match step {
                Step::Due(due) => due.into(),
                Step::Row { watermark, session, absorbed, .. } => Event::Row(RowEvent {
                    number: session.number,
                    bounds: (session.start, session.end),
                    is_closed: session.is_closed,
                    absorbed: absorbed.map(|absorbed| absorbed.number),
                    watermark,
                }),
            });
            Ok(())
        })?;
        let used = &self.intake.kept;
        out.counts.used += used.len() as u64;
        // Rows are numbered among those that are used: these numbers grow, too.
        let arrival = Arrival::From(first);
        let rows = if used.len() == batch.num_rows() {
            self.recipe.evaluate(&batch.rows, arrival)?
        } else {
            let used = UInt32Array::from(used.clone());
            let rows = take_record_batch(&batch.rows, &used).map_err(|error| arrow_failure(&error))?;
            self.recipe.evaluate(&rows, arrival)?
        };
        self.sessions.expect(&rows)?;
        let keys = self.recipe.keys_of_sets(&rows)?;
        let key_rows = self.keys.rows(&keys)?;
        self.follow(&events, Some(&Batch { rows, keys, key_rows, first }), out)?;
        self.tidy()
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.advance(watermark.0, out)?;
        out.watermark(watermark);
        Ok(())
    }

    fn next_timer(&self) -> Option<i64> {
        self.rounds.next_us
    }

    fn process_timer(&mut self, now_us: i64, out: &mut Output) -> Result<(), Error> {
        if self.rounds.is_due(now_us) { self.round(out) } else { Ok(()) }
    }

    fn next_watermark(&self) -> Option<i64> {
        self.intake.tracker.next_watermark()
    }

    fn finish(&mut self, out: &mut Output) -> Result<(), Error> {
        self.advance(i64::MAX, out)?;
        self.round(out)
    }

    fn open_windows(&mut self, most: usize, of: Option<&KeyFilter>) -> Result<Vec<OpenWindow>, Error> {
        let place = of.map(|filter| self.key_names.place(filter));
        let found = self.intake.tracker.first_to_end(of.map_or(most, |_| usize::MAX));
        let found: Vec<Session> = found.into_iter().cloned().collect();
        let mut windows = Vec::new();
        for session in &found {
            let groups = self.sessions.get(session.number).map_or(&[][..], |known| known.groups.as_slice());
            let groups = match (of, place.flatten()) {
                (Some(filter), Some(place)) => {
                    let keys = self.sessions.groups.keys(&self.keys, groups)?;
                    keys.get(place).map_or(Ok(0), |keys| key_filter::count(keys, filter))?
                }
                (Some(_), None) => 0,
                // One at least, where what came was not counted yet.
                (None, _) => groups.len().max(1),
            };
            if groups > 0 && windows.len() < most {
                windows.push(OpenWindow { groups, ..self.intake.open_window(session, None) });
            }
        }
        Ok(windows)
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        self.write(state)
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        counts.held = 0;
        self.read(state)
    }

    fn state(&self) -> StateSize {
        let (rows, bytes) = self.complete.as_ref().map_or((0, 0), Complete::size);
        StateSize {
            windows: self.sessions.len(),
            rows: rows + self.sessions.kept(),
            bytes: bytes + self.sessions.size() + self.intake.size(),
        }
    }
}
