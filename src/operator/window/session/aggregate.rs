//! Aggregates per session and key.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, new_empty_array};
use arrow::compute::{cast, interleave, take, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef, UInt32Type};
use arrow::record_batch::RecordBatch;
use datafusion_expr::Aggregate;
use datafusion_physical_expr::expressions::Column;

use super::super::key_filter::{self, KeyNames};
use super::super::recipe::{Arrival, Recipe, Rows};
use super::super::table::{Sealed, Table};
use super::chain::Kept;
use super::track::Session;
use super::{Intake, Step};
use crate::error::{Error, code};
use crate::operator::evaluate::arrow_failure;
use crate::operator::late::LateRows;
use crate::operator::{
    BATCH_ROWS, KeyFilter, OpenWindow, Operator, Output, RowCounts, StateReader, StateSize, StateWriter,
};
use crate::plan::{ExprRef, WindowAggregateNode, WindowSpec};
use crate::stream::{StreamBatch, Watermark};

/// Rows that wait before they are folded into states.
const FOLD_ROWS: usize = 32_768;

/// Aggregates per session and key; each session's results come once, when it is over.
///
/// Wakes on: watermarks. State: the evaluated rows of open sessions; where results do not depend on
/// the order of rows or on how they are put together, they are folded into a state for each session
/// and key from time to time. What a closed session kept is forgotten. Order: by window end, then by
/// when the key was first seen in the session. Watermark: forwarded after the results.
pub(in super::super) struct SessionAggregate {
    pub(super) intake: Intake,
    /// Sessions that are over and have not been given.
    pub(super) closed: Vec<Session>,
    /// What is evaluated of a row.
    recipe: Recipe,
    /// The same with the session as the first key; the only one where it tells the others.
    by_session: Recipe,
    /// All keys are columns of PARTITION BY: a session is one group.
    is_one_group: bool,
    pub(super) rows: Kept,
    pub(super) states: Kept,
    /// Whether rows may be folded into states.
    folds: bool,
    fold_rows: usize,
    schema: SchemaRef,
    pub(super) rows_seen: u64,
    pub(super) arrived: Option<Instant>,
    ids: Vec<usize>,
}

impl SessionAggregate {
    /// `time`, `window` and `partition`: the node's window.
    pub(in super::super) fn try_new(
        node: &WindowAggregateNode,
        (time, window, partition): (usize, &WindowSpec, &[usize]),
        schema: &SchemaRef,
        input: &SchemaRef,
        late: Option<LateRows>,
    ) -> Result<Self, Error> {
        let recipe = Recipe::try_new(node, input)?;
        let is_of_partition = |key: &ExprRef| {
            key.downcast_ref::<Column>().is_some_and(|column| partition.contains(&column.index()))
        };
        let is_one_group = node.grouping_sets.is_none() && node.keys.iter().all(is_of_partition);
        let more_keys = if is_one_group { &[][..] } else { node.keys.as_slice() };
        let mut types = vec![DataType::UInt32];
        for key in more_keys {
            types.push(key.data_type(input).map_err(|error| Error::internal("session", error))?);
        }
        let session: ExprRef = Arc::new(Column::new("__session", 0));
        let sets = node.grouping_sets.as_ref();
        let with_session = WindowAggregateNode {
            keys: [session].into_iter().chain(more_keys.iter().cloned()).collect(),
            grouping_sets: sets.map(|sets| {
                sets.iter().map(|set| [false].into_iter().chain(set.iter().copied()).collect()).collect()
            }),
            ..node.clone()
        };
        let by_session = Recipe::with_key_types(&with_session, types, input)?;
        if let Err(error) = Table::try_new(&by_session, false) {
            return Err(Error::plan(code::NOT_SUPPORTED, error.message().to_owned())
                .hint("Group by a column of another type, or by a part of it."));
        }
        Ok(Self {
            intake: Intake::try_new((time, window, partition, 0), input, late)?,
            closed: Vec::new(),
            recipe,
            by_session,
            is_one_group,
            rows: Kept::default(),
            states: Kept::default(),
            folds: !node.aggregates.iter().any(|call| call.order_sensitive || call.inexact),
            fold_rows: FOLD_ROWS,
            schema: schema.clone(),
            rows_seen: 0,
            arrived: None,
            ids: Vec::new(),
        })
    }

    /// Folds rows into states as soon as there are so many.
    #[cfg(test)]
    pub(super) fn folding_at(mut self, rows: usize) -> Self {
        self.fold_rows = rows;
        self
    }

    /// Rows that are kept, with the session of each as its first key.
    fn evaluated(&self, rows: &[u32], session: ArrayRef) -> Result<Rows, Error> {
        let keys = self.recipe.key_count();
        let (skip, keys) = if self.is_one_group { (keys, 0) } else { (0, keys) };
        let columns = self.rows.take(rows, skip..usize::MAX)?;
        let arrival = Arrival::Each(self.rows.arrivals(rows).into());
        let mut evaluated = self.recipe.rows_of(columns, keys, arrival, rows.len());
        evaluated.keys.insert(0, session);
        Ok(evaluated)
    }

    /// States that are kept, with the session of each as its first key.
    fn sealed(&self, states: &[u32], session: ArrayRef) -> Result<Sealed, Error> {
        let skip = if self.is_one_group { self.recipe.key_count() } else { 0 };
        let mut columns = self.states.take(states, skip..usize::MAX)?.into_iter();
        let keys = self.by_session.group_schema.fields().len() - 1;
        let keys = [session].into_iter().chain(columns.by_ref().take(keys)).collect();
        let calls = self.recipe.calls.iter();
        let own = calls.map(|call| columns.by_ref().take(call.state_columns).collect()).collect();
        Ok(Sealed {
            groups: states.len(),
            keys,
            first_rows: self.states.arrivals(states).into(),
            states: own,
        })
    }

    /// The keys of sessions that are one group each, for the session that each of `of` is.
    fn keys_of<'a>(
        &self,
        sessions: impl Iterator<Item = &'a Session>,
        of: &[u32],
    ) -> Result<Vec<ArrayRef>, Error> {
        let (mut in_states, mut in_rows) = (Vec::new(), Vec::new());
        let places: Vec<(usize, usize)> = sessions
            .map(|session| match session.states.first() {
                Some(state) => {
                    in_states.push(state);
                    (0, in_states.len() - 1)
                }
                None => {
                    in_rows.extend(session.rows.first());
                    (1, in_rows.len().saturating_sub(1))
                }
            })
            .collect();
        let places: Vec<(usize, usize)> = of.iter().map(|index| places[*index as usize]).collect();
        let keys = 0..self.recipe.key_count();
        let in_states = self.states.take(&in_states, keys.clone())?;
        let in_rows = self.rows.take(&in_rows, keys.clone())?;
        keys.map(|key| match (in_states.get(key), in_rows.get(key)) {
            (Some(states), Some(rows)) => interleave(&[states.as_ref(), rows.as_ref()], &places),
            (Some(only), None) | (None, Some(only)) => {
                take(only, &UInt32Array::from_iter_values(places.iter().map(|(_, row)| *row as u32)), None)
            }
            (None, None) => Ok(new_empty_array(self.recipe.group_schema.field(key).data_type())),
        })
        .map(|keys| keys.map_err(|error| arrow_failure(&error)))
        .collect()
    }

    /// The groups of sessions, by their index, with all that they have; and how many states and rows
    /// that is.
    fn table<'a>(
        &mut self,
        sessions: impl Iterator<Item = &'a Session>,
    ) -> Result<(Table, usize, usize), Error> {
        let (mut states, mut states_of) = (Vec::new(), Vec::new());
        let (mut rows, mut rows_of) = (Vec::new(), Vec::new());
        for (index, session) in (0u32..).zip(sessions) {
            self.states.rows(session.states, &mut states);
            states_of.resize(states.len(), index);
            self.rows.rows(session.rows, &mut rows);
            rows_of.resize(rows.len(), index);
        }
        let mut table = Table::try_new(&self.by_session, true)?;
        let mut ids = std::mem::take(&mut self.ids);
        if !states.is_empty() {
            let sealed = self.sealed(&states, Arc::new(UInt32Array::from(states_of)))?;
            table.merge(&sealed, &mut ids)?;
        }
        if !rows.is_empty() {
            let evaluated = self.evaluated(&rows, Arc::new(UInt32Array::from(rows_of)))?;
            table.update(&self.by_session, &evaluated, &mut ids)?;
        }
        self.ids = ids;
        Ok((table, states.len(), rows.len()))
    }

    /// Puts all rows into the states of their sessions.
    fn fold(&mut self) -> Result<(), Error> {
        let sessions: Vec<Session> =
            self.intake.tracker.sessions().chain(&mut self.closed).map(|session| session.clone()).collect();
        let (table, ..) = self.table(sessions.iter())?;
        let sealed = table.seal()?;
        let mut keys = sealed.keys.into_iter();
        let of = keys.next().ok_or_else(|| Error::internal("session", "states without a session"))?;
        let of = of.as_primitive::<UInt32Type>().values();
        let mut keys: Vec<ArrayRef> = keys.collect();
        if self.is_one_group {
            keys = self.keys_of(sessions.iter(), of)?;
        }
        self.rows = Kept::default();
        self.states = Kept::default();
        let mut sessions: Vec<&mut Session> =
            self.intake.tracker.sessions().chain(&mut self.closed).collect();
        for session in &mut sessions {
            (session.rows, session.states) = Default::default();
        }
        for (index, first_row) in of.iter().zip(sealed.first_rows.iter()) {
            self.states.link(&mut sessions[*index as usize].states, *first_row)?;
        }
        self.states.append(keys.into_iter().chain(sealed.states.into_iter().flatten()).collect())
    }

    /// Keeps memory at what open sessions need.
    fn tidy(&mut self) -> Result<(), Error> {
        if self.rows.is_mostly_dead() {
            let sessions = self.intake.tracker.sessions().chain(&mut self.closed);
            self.rows.retain(sessions.map(|session| &mut session.rows))?;
        }
        if self.states.is_mostly_dead() {
            let sessions = self.intake.tracker.sessions().chain(&mut self.closed);
            self.states.retain(sessions.map(|session| &mut session.states))?;
        }
        if self.folds && self.rows.live() >= self.fold_rows.max(self.states.len()) {
            self.fold()?;
        }
        Ok(())
    }

    fn fire(&mut self, watermark: i64, out: &mut Output) -> Result<(), Error> {
        self.intake.close(watermark, &mut self.closed);
        let closed = std::mem::take(&mut self.closed);
        let Some(arrived) = self.arrived.filter(|_| !closed.is_empty()) else { return Ok(()) };
        let (table, states, rows) = self.table(closed.iter())?;
        let (groups, columns) = table.results()?;
        let mut columns = columns.into_iter();
        let of = columns.next().ok_or_else(|| Error::internal("session", "results without a session"))?;
        let mut of = of.as_primitive::<UInt32Type>().values().to_vec();
        let mut columns: Vec<ArrayRef> = columns.collect();
        // The groups come as they were first seen; their sessions stand by their end.
        let end_of = |index: u32| closed[index as usize].end;
        if !of.is_sorted_by_key(|index| end_of(*index)) {
            let mut order: Vec<u32> = (0..groups as u32).collect();
            order.sort_by_key(|group| end_of(of[*group as usize]));
            of = order.iter().map(|group| of[*group as usize]).collect();
            let order = UInt32Array::from(order);
            for column in &mut columns {
                *column = take(column, &order, None).map_err(|error| arrow_failure(&error))?;
            }
        }
        if self.is_one_group {
            columns.splice(..0, self.keys_of(closed.iter(), &of)?);
        }
        self.states.release(states);
        self.rows.release(rows);
        self.give(&closed, &of, columns, arrived, out)
    }

    /// Gives results. `of`: the session of each.
    fn give(
        &mut self,
        closed: &[Session],
        of: &[u32],
        results: Vec<ArrayRef>,
        arrived: Instant,
        out: &mut Output,
    ) -> Result<(), Error> {
        let sessions = of.iter().map(|index| &closed[*index as usize]);
        let (mut columns, running) = self.intake.bounds(sessions, &self.schema.fields()[..3])?;
        for column in results {
            let field = self.schema.field(columns.len());
            let is_id = field.name() == Aggregate::INTERNAL_GROUPING_ID;
            columns.push(if is_id && column.data_type() != field.data_type() {
                cast(&column, field.data_type()).map_err(|error| arrow_failure(&error))?
            } else {
                column
            });
        }
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|error| Error::internal("WindowAggregate", error))?;
        let batch = StreamBatch { rows, kinds: None, running: Some(running), arrived };
        for from in (0..of.len()).step_by(BATCH_ROWS) {
            out.batch(batch.slice(from, BATCH_ROWS.min(of.len() - from)));
        }
        Ok(())
    }
}

impl Operator for SessionAggregate {
    fn name(&self) -> &'static str {
        "WindowAggregate"
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
        let (rows, states, closed) = (&mut self.rows, &mut self.states, &mut self.closed);
        self.intake.place(&batch, out, |step| match step {
            Step::Due(due) => {
                closed.extend(due.over());
                Ok(())
            }
            Step::Row { row, session, absorbed, .. } => {
                if let Some(absorbed) = absorbed {
                    rows.join(&mut session.rows, absorbed.rows);
                    states.join(&mut session.states, absorbed.states);
                }
                rows.link(&mut session.rows, first + row as u64)
            }
        })?;
        let used = &self.intake.kept;
        out.counts.used += used.len() as u64;
        if used.is_empty() {
            return Ok(());
        }
        // When rows arrived is kept beside them; these numbers are not read.
        let arrival = Arrival::From(0);
        let evaluated = if used.len() == batch.num_rows() {
            self.recipe.evaluate(&batch.rows, arrival)?
        } else {
            let used = UInt32Array::from(used.clone());
            let rows = take_record_batch(&batch.rows, &used).map_err(|error| arrow_failure(&error))?;
            self.recipe.evaluate(&rows, arrival)?
        };
        self.rows.append(evaluated.into_columns())?;
        self.tidy()
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
        let place = of.map(|filter| KeyNames::of(&self.schema, 3, self.recipe.key_count()).place(filter));
        if place == Some(None) || (of.is_some() && !self.is_one_group) {
            // Keys beyond PARTITION BY are known when a session is over.
            return Ok(Vec::new());
        }
        let sessions: Vec<Session> =
            self.intake.tracker.first_to_end(of.map_or(most, |_| usize::MAX)).into_iter().cloned().collect();
        if sessions.is_empty() {
            return Ok(Vec::new());
        }
        let numbers: Vec<u32> = (0..sessions.len() as u32).collect();
        let keys = match self.is_one_group {
            true => self.keys_of(sessions.iter(), &numbers)?,
            false => Vec::new(),
        };
        let is_wanted = match (of, place.flatten().and_then(|place| keys.get(place))) {
            (Some(filter), Some(keys)) => key_filter::matches(keys, filter)?,
            (Some(_), None) => vec![false; sessions.len()],
            (None, _) => vec![true; sessions.len()],
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
        counts.held = 0;
        self.read(state)
    }

    fn state(&self) -> StateSize {
        StateSize {
            windows: self.intake.tracker.len(),
            rows: self.rows.live() + self.states.live(),
            bytes: self.rows.size() + self.states.size() + self.intake.size(),
        }
    }
}
