//! The local phase: states of each batch before the exchange.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, UInt64Array};
use arrow::compute::{concat, take};
use arrow::datatypes::{Int64Type, SchemaRef, UInt64Type};
use arrow::record_batch::RecordBatch;

use super::placed_rows;
use super::placement::{PartKey, Placer};
use super::recipe::{Recipe, Rows};
use super::results::constant;
use super::table::{Sealed, Table};
use crate::error::Error;
use crate::operator::evaluate::{arrow_failure, failure};
use crate::operator::late::LateRows;
use crate::operator::{Operator, Output, RowCounts, StateReader, StateWriter};
use crate::plan::WindowAggregateNode;
use crate::stream::{RunningWatermark, StreamBatch, Watermark};

/// After this many rows it looks whether aggregating before the exchange is worth it.
const TRIAL_ROWS: u64 = 32_768;

/// Gives the states of the groups of each batch. Judges what is late.
///
/// Wakes on: batches. State: none. Watermark: forwarded unchanged. If the first 32,768 rows gave
/// states for more than 80 of 100, it gives one state a row from then on; the results are the same.
pub(super) struct LocalAggregate {
    recipe: Recipe,
    placer: Placer,
    /// The second output, if somebody wants it.
    late: Option<LateRows>,
    schema: SchemaRef,
    watermark: i64,
    rows_seen: u64,
    states_given: u64,
    /// Whether there are fewer states than rows; unknown before the trial is over.
    pays: Option<bool>,
    /// Groups of the last table.
    groups: usize,
    ids: Vec<usize>,
}

impl LocalAggregate {
    pub(super) fn try_new(
        node: &WindowAggregateNode,
        schema: &SchemaRef,
        input: &SchemaRef,
        late: Option<LateRows>,
    ) -> Result<Self, Error> {
        Ok(Self {
            recipe: Recipe::try_new(node, input)?,
            placer: Placer::try_new(node, late.is_some())?,
            late,
            schema: schema.clone(),
            watermark: i64::MIN,
            rows_seen: 0,
            states_given: 0,
            pays: None,
            groups: 0,
            ids: Vec::new(),
        })
    }

    /// The columns that go out for a part.
    fn columns(key: PartKey, sealed: Sealed) -> Vec<ArrayRef> {
        let mut columns = vec![constant(key.start, sealed.groups)];
        columns.extend(sealed.keys);
        columns.push(Arc::new(UInt64Array::new(sealed.first_rows, None)));
        columns.push(constant(key.end, sealed.groups));
        columns.extend(sealed.states.into_iter().flatten());
        columns
    }

    /// One state a row and grouping set.
    fn row_states(&self, rows: &Rows) -> Result<Vec<Sealed>, Error> {
        let mut states = Vec::with_capacity(self.recipe.calls.len());
        for ((call, args), filter) in self.recipe.calls.iter().zip(&rows.args).zip(&rows.filters) {
            states.push(call.accumulator()?.convert_to_state(args, filter.as_ref()).map_err(failure)?);
        }
        let per_row = self.recipe.groups_of_a_row();
        let sealed = |keys, set: u64| Sealed {
            groups: rows.len,
            keys,
            first_rows: (0..rows.len).map(|row| rows.arrival.of(row) * per_row + set).collect(),
            states: states.clone(),
        };
        if self.recipe.sets.is_empty() {
            return Ok(vec![sealed(rows.keys.clone(), 0)]);
        }
        let sets = self.recipe.sets.iter().zip(0..);
        sets.map(|(set, index)| Ok(sealed(self.recipe.masked(&rows.keys, rows.len, set)?, index))).collect()
    }
}

impl Operator for LocalAggregate {
    fn name(&self) -> &'static str {
        "LocalWindowAggregate"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal(self.name(), "the input is no stream of inserts"));
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let first = self.rows_seen;
        self.rows_seen += batch.num_rows() as u64;
        let placement = self.placer.place(&batch, self.watermark)?;
        let kept = placement.kept.as_ref().map_or(batch.num_rows(), |kept| kept.len());
        out.counts.late += placement.late;
        out.counts.partly_late += placement.partly_late;
        out.counts.null_time += placement.null_time;
        out.counts.used += kept as u64;
        if let Some(late) = &self.late {
            late.give(&batch, &placement.rejected, out)?;
        }
        if kept == 0 {
            return Ok(());
        }
        let mut parts = Vec::new();
        let mut ids = std::mem::take(&mut self.ids);
        for (key, rows) in placed_rows(&self.recipe, &batch.rows, first, &placement)? {
            if self.pays == Some(false) {
                match self.row_states(&rows) {
                    Ok(states) => {
                        parts.extend(states.into_iter().map(|states| (key, states)));
                        continue;
                    }
                    // An accumulator that has no state of a single row. If it is the row that
                    // fails, aggregating says so too.
                    Err(_) => self.pays = Some(true),
                }
            }
            let mut table = Table::try_new(&self.recipe, true)?;
            table.expect(self.groups);
            table.update(&self.recipe, &rows, &mut ids)?;
            self.groups = table.len();
            parts.push((key, table.seal()?));
        }
        self.ids = ids;
        let rows = parts.iter().map(|(_, sealed)| sealed.groups).sum::<usize>();
        self.states_given += rows as u64;
        if self.pays.is_none() && self.rows_seen >= TRIAL_ROWS {
            self.pays = Some(self.states_given / 4 <= self.rows_seen / 5);
        }
        let mut parts: Vec<Vec<ArrayRef>> =
            parts.into_iter().map(|(key, sealed)| Self::columns(key, sealed)).collect();
        let columns = if parts.len() == 1 {
            parts.swap_remove(0)
        } else {
            (0..self.schema.fields().len())
                .map(|column| {
                    let pieces: Vec<&dyn Array> = parts.iter().map(|part| part[column].as_ref()).collect();
                    concat(&pieces).map_err(|error| arrow_failure(&error))
                })
                .collect::<Result<_, _>>()?
        };
        let rows_out = RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|error| Error::internal(self.name(), error))?;
        let running = batch.running.as_ref().and_then(|running| running.values().first().copied());
        out.batch(StreamBatch {
            rows: rows_out,
            kinds: None,
            running: running.map(|running| RunningWatermark::constant(Watermark(running), rows)),
            arrived: batch.arrived,
        });
        Ok(())
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.watermark = watermark.0;
        out.watermark(watermark);
        Ok(())
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        // The first two as in the state of one phase, which may be read here where two take its place.
        state.number("watermark", self.watermark);
        state.number("rows_seen", self.rows_seen as i64);
        state.number("states_given", self.states_given as i64);
        state.optional("pays", self.pays.map(i64::from));
        Ok(())
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        self.watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        self.rows_seen = state.highest("rows_seen").unwrap_or(0) as u64;
        self.states_given = state.highest("states_given").unwrap_or(0) as u64;
        self.pays = state.lowest("pays").map(|pays| pays == 1);
        counts.held = 0;
        Ok(())
    }
}

/// The states in a batch of a local phase, by part, in the order of the batch.
pub(super) fn parts(recipe: &Recipe, batch: &RecordBatch) -> Result<Vec<(PartKey, Sealed)>, Error> {
    let wrong = || Error::internal("WindowAggregate", "the input is not that of a local phase");
    let groups = recipe.group_schema.fields().len();
    let columns = batch.columns();
    let states: usize = recipe.calls.iter().map(|call| call.state_columns).sum();
    if columns.len() != 3 + groups + states {
        return Err(wrong());
    }
    let starts = columns[0].as_primitive_opt::<Int64Type>().ok_or_else(wrong)?.values();
    columns[1 + groups].as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?;
    let ends = columns[2 + groups].as_primitive_opt::<Int64Type>().ok_or_else(wrong)?.values();
    let key = |row: usize| PartKey { end: ends[row], start: starts[row] };

    let mut order: Vec<u32> = (0..batch.num_rows() as u32).collect();
    let mut columns: Vec<ArrayRef> = columns.to_vec();
    if !order.is_sorted_by_key(|row| key(*row as usize)) {
        order.sort_by_key(|row| key(*row as usize));
        let order = UInt32Array::from(order.clone());
        for column in &mut columns {
            *column = take(column, &order, None).map_err(|error| arrow_failure(&error))?;
        }
    }
    let mut parts = Vec::new();
    let mut from = 0;
    for run in order.chunk_by(|one, other| key(*one as usize) == key(*other as usize)) {
        let slice = |column: &ArrayRef| column.slice(from, run.len());
        let first_rows = columns[1 + groups].as_primitive::<UInt64Type>().values();
        let mut states = columns[3 + groups..].iter().map(slice);
        let sealed = Sealed {
            groups: run.len(),
            keys: columns[1..=groups].iter().map(slice).collect(),
            first_rows: first_rows.slice(from, run.len()),
            states: recipe
                .calls
                .iter()
                .map(|call| states.by_ref().take(call.state_columns).collect())
                .collect(),
        };
        parts.push((key(run[0] as usize), sealed));
        from += run.len();
    }
    Ok(parts)
}
