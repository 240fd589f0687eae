//! The values of rows over the rows around them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array, UInt32Array};
use arrow::compute::{interleave, take};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion_common::ScalarValue;

use super::frame::{self, Span};
use super::over_nulls::ShiftOverNulls;
use crate::error::Error;
use crate::operator::aggregate::{Aggregate, Place, Step, count_column, counts, keep, kept};
use crate::operator::evaluate::{arrow_failure, evaluate, failure};
use crate::operator::{StateReader, StateWriter};
use crate::plan::{ExprRef, FrameBound, FrameUnit, OverCall, OverFrame, OverFunction};

/// The rows of one group in a [`Work`]: first those that are known already, then the new ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) group: u32,
    pub(super) from: usize,
    pub(super) new: usize,
    pub(super) to: usize,
}

/// Rows by group, in the order of ORDER BY.
pub(super) struct Work<'a> {
    pub(super) rows: &'a RecordBatch,
    pub(super) parts: &'a [Part],
    /// The times that RANGE counts in, if it does.
    times: Option<&'a [i64]>,
    /// For each row the first of its peers, and the one behind the last.
    peers: Vec<(u32, u32)>,
}

impl<'a> Work<'a> {
    /// `starts`: whether a row differs in ORDER BY from the one before it; asked for the second and
    /// further rows of a part.
    pub(super) fn new(
        rows: &'a RecordBatch,
        parts: &'a [Part],
        times: Option<&'a [i64]>,
        starts: impl Fn(usize) -> bool,
    ) -> Self {
        let mut peers = vec![(0, 0); rows.num_rows()];
        for part in parts {
            let mut first = part.from;
            for row in part.from..part.to {
                if row > part.from && starts(row) {
                    peers[first..row].iter_mut().for_each(|peers| peers.1 = row as u32);
                    first = row;
                }
                peers[row].0 = first as u32;
            }
            peers[first..part.to].iter_mut().for_each(|peers| peers.1 = part.to as u32);
        }
        Self { rows, parts, times, peers }
    }

    pub(super) fn peer_start(&self, row: usize) -> usize {
        self.peers[row].0 as usize
    }

    pub(super) fn peer_end(&self, row: usize) -> usize {
        self.peers[row].1 as usize
    }

    pub(super) fn time(&self, row: usize) -> i64 {
        self.times.map_or(0, |times| times[row])
    }

    fn new_rows(&self) -> impl Iterator<Item = (&Part, usize)> {
        self.parts.iter().flat_map(|part| (part.new..part.to).map(move |row| (part, row)))
    }
}

/// How far a group is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    /// Rows that have their values.
    pub(super) rows: u64,
    /// How many different values of ORDER BY they have.
    peers: u64,
    /// How many of the last of them come again with the new ones.
    pub(super) retained: u64,
}

/// Computes the calls of one OVER.
pub(super) struct Computer {
    calls: Vec<Call>,
    progress: Vec<Progress>,
    /// Groups that are to be emptied before anything else.
    cleared: Vec<u32>,
}

enum Call {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile(u64),
    Shift { value: ExprRef, by: i64, default: ScalarValue },
    ShiftOverNulls(ShiftOverNulls),
    Aggregate { aggregate: Box<Aggregate>, frame: OverFrame, spans: Vec<Span> },
}

impl Computer {
    pub(super) fn try_new(calls: &[OverCall], input: &SchemaRef) -> Result<Self, Error> {
        let call = |call: &OverCall| -> Result<Call, Error> {
            let over = |aggregate: Aggregate| Call::Aggregate {
                aggregate: Box::new(aggregate),
                frame: call.frame,
                spans: Vec::new(),
            };
            let removes = frame::removes(&call.frame);
            Ok(match &call.function {
                OverFunction::RowNumber => Call::RowNumber,
                OverFunction::Rank => Call::Rank,
                OverFunction::DenseRank => Call::DenseRank,
                OverFunction::PercentRank => Call::PercentRank,
                OverFunction::CumeDist => Call::CumeDist,
                OverFunction::Ntile { buckets } => Call::Ntile(*buckets),
                OverFunction::Shift { value, by, default, ignores_nulls: false } => {
                    Call::Shift { value: Arc::clone(value), by: *by, default: default.clone() }
                }
                OverFunction::Shift { value, by, default, ignores_nulls: true } => {
                    Call::ShiftOverNulls(ShiftOverNulls::new(value, *by, default))
                }
                OverFunction::End { value, is_last, ignores_nulls } => {
                    let place = if *is_last { Place::Last } else { Place::FromFirst(0) };
                    over(Aggregate::value_of_frame(value, input, place, *ignores_nulls, removes)?)
                }
                OverFunction::Nth { value, n, ignores_nulls } => {
                    let place = Place::FromFirst(n.saturating_sub(1));
                    over(Aggregate::value_of_frame(value, input, place, *ignores_nulls, removes)?)
                }
                OverFunction::Aggregate(aggregate) => over(Aggregate::try_new(aggregate, input, removes)?),
            })
        };
        let calls = calls.iter().map(call).collect::<Result<_, _>>()?;
        Ok(Self { calls, progress: Vec::new(), cleared: Vec::new() })
    }

    /// Makes room for so many groups.
    pub(super) fn grow(&mut self, groups: usize) {
        let groups = groups.max(self.progress.len());
        self.progress.resize(groups, Progress::default());
        for call in &mut self.calls {
            match call {
                Call::Aggregate { spans, .. } => spans.resize(groups, Span::default()),
                Call::ShiftOverNulls(shift) => shift.grow(groups),
                _ => {}
            }
        }
    }

    /// Whether a call is the number of the row.
    pub(super) fn is_row_number(&self, call: usize) -> bool {
        matches!(self.calls.get(call), Some(Call::RowNumber))
    }

    /// How far a group is.
    pub(super) fn progress(&self, group: u32) -> Progress {
        self.progress[group as usize]
    }

    /// The values of the new rows, a column a call.
    pub(super) fn run(&mut self, work: &Work<'_>) -> Result<Vec<ArrayRef>, Error> {
        let (progress, cleared) = (&self.progress, std::mem::take(&mut self.cleared));
        let base = |part: &Part| {
            let progress = progress[part.group as usize];
            progress.rows - progress.retained
        };
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.calls.len());
        for call in &mut self.calls {
            columns.push(match call {
                Call::RowNumber => {
                    let number =
                        |(part, row): (&Part, usize)| base(part) as i64 + (row - part.from) as i64 + 1;
                    Arc::new(Int64Array::from_iter_values(work.new_rows().map(number)))
                }
                Call::Rank => {
                    let rank = |(part, row): (&Part, usize)| {
                        base(part) as i64 + (work.peer_start(row) - part.from) as i64 + 1
                    };
                    Arc::new(Int64Array::from_iter_values(work.new_rows().map(rank)))
                }
                Call::DenseRank => {
                    let mut ranks = Vec::new();
                    for part in work.parts {
                        let mut rank = progress[part.group as usize].peers as i64;
                        for row in part.new..part.to {
                            rank += i64::from(work.peer_start(row) == row);
                            ranks.push(rank);
                        }
                    }
                    Arc::new(Int64Array::from(ranks))
                }
                Call::PercentRank => {
                    let rank = |(part, row): (&Part, usize)| {
                        let before = work.peer_start(row) - part.from;
                        if before == 0 { 0.0 } else { before as f64 / (part.to - part.from - 1) as f64 }
                    };
                    Arc::new(Float64Array::from_iter_values(work.new_rows().map(rank)))
                }
                Call::CumeDist => {
                    let share = |(part, row): (&Part, usize)| {
                        (work.peer_end(row) - part.from) as f64 / (part.to - part.from) as f64
                    };
                    Arc::new(Float64Array::from_iter_values(work.new_rows().map(share)))
                }
                Call::Ntile(buckets) => {
                    let bucket = |(part, row): (&Part, usize)| {
                        bucket((row - part.from) as u64, (part.to - part.from) as u64, *buckets)
                    };
                    Arc::new(Int64Array::from_iter_values(work.new_rows().map(bucket)))
                }
                Call::Shift { value, by, default } => shifted(work, value, *by, default)?,
                Call::ShiftOverNulls(shift) => shift.run(work)?,
                Call::Aggregate { aggregate, frame, spans } => {
                    let mut steps: Vec<Step> =
                        cleared.iter().map(|group| Step::Clear { group: *group }).collect();
                    for part in work.parts {
                        let span = &mut spans[part.group as usize];
                        frame::steps(frame, work, part, base(part), span, &mut steps);
                    }
                    aggregate.run(&steps, work.rows, progress.len())?
                }
            });
        }
        for part in work.parts {
            let progress = &mut self.progress[part.group as usize];
            progress.rows += (part.to - part.new) as u64;
            progress.peers += (part.new..part.to).filter(|row| work.peer_start(*row) == *row).count() as u64;
            progress.retained = progress.rows;
        }
        Ok(columns)
    }

    /// How many of a group's last rows its further rows look at; they come again with those.
    pub(super) fn retain(&mut self, group: u32) -> u64 {
        let rows = self.progress[group as usize].rows;
        let first = self.calls.iter().map(|call| match call {
            Call::RowNumber
            | Call::Rank
            | Call::DenseRank
            | Call::PercentRank
            | Call::CumeDist
            | Call::Ntile(_)
            | Call::ShiftOverNulls(_) => rows,
            Call::Shift { by, .. } => rows.saturating_sub(by.unsigned_abs()),
            Call::Aggregate { frame, spans, .. } => match frame.start {
                FrameBound::Unbounded => spans[group as usize].end,
                FrameBound::Offset(_) => spans[group as usize].start,
            },
        });
        let retained = rows - first.min().unwrap_or(rows).min(rows);
        self.progress[group as usize].retained = retained;
        retained
    }

    /// Forgets a group; its number may be another one's then.
    pub(super) fn clear(&mut self, group: u32) {
        self.progress[group as usize] = Progress::default();
        for call in &mut self.calls {
            match call {
                Call::Aggregate { spans, .. } => spans[group as usize] = Span::default(),
                Call::ShiftOverNulls(shift) => shift.clear(group),
                _ => {}
            }
        }
        self.cleared.push(group);
    }

    /// Hands on how far these groups are, which are the rows of the operator's table of groups in their order, and what is known
    /// of their rows.
    ///
    /// # Errors
    /// `P002` for an aggregate whose state can't be written.
    pub(super) fn snapshot(
        &mut self,
        groups: &[u32],
        input: &SchemaRef,
        state: &mut StateWriter,
    ) -> Result<(), Error> {
        let cleared = std::mem::take(&mut self.cleared).into_iter();
        let clear: Vec<Step> = cleared.map(|group| Step::Clear { group }).collect();
        let nothing = RecordBatch::new_empty(Arc::clone(input));
        let places = || 0..groups.len() as u32;
        let progress = |part: fn(&Progress) -> u64| {
            count_column(groups.iter().map(|group| part(&self.progress[*group as usize])).collect())
        };
        let progress = [progress(|of| of.rows), progress(|of| of.peers), progress(|of| of.retained)];
        keep(state, "progress", places(), progress.to_vec())?;
        for (place, call) in self.calls.iter_mut().enumerate() {
            state.scoped(&format!("call{place}"), |state| match call {
                Call::Aggregate { aggregate, spans, .. } => {
                    let bound = |bound: fn(&Span) -> u64| {
                        count_column(groups.iter().map(|group| bound(&spans[*group as usize])).collect())
                    };
                    let bounds = vec![bound(|span| span.start), bound(|span| span.end)];
                    keep(state, "spans", places(), bounds)?;
                    if !clear.is_empty() {
                        aggregate.run(&clear, &nothing, spans.len())?;
                    }
                    aggregate.snapshot(groups, state)
                }
                Call::ShiftOverNulls(shift) => shift.snapshot(groups, input, state),
                Call::RowNumber
                | Call::Rank
                | Call::DenseRank
                | Call::PercentRank
                | Call::CumeDist
                | Call::Ntile(_)
                | Call::Shift { .. } => Ok(()),
            })?;
        }
        Ok(())
    }

    /// Takes up what [`Computer::snapshot`] handed on; there is room for the groups. `groups`: the numbers of the rows of that
    /// table.
    ///
    /// # Errors
    /// `K002` if it is of other calls.
    pub(super) fn restore(&mut self, groups: &[u32], state: &mut StateReader) -> Result<(), Error> {
        let (own, columns) = kept(state, "progress", groups)?;
        let (rows, peers) = (counts(&columns, 0)?, counts(&columns, 1)?);
        let retained = counts(&columns, 2)?;
        for (row, group) in own.into_iter().enumerate() {
            self.progress[group as usize] =
                Progress { rows: rows[row], peers: peers[row], retained: retained[row] };
        }
        for (place, call) in self.calls.iter_mut().enumerate() {
            state.scoped(&format!("call{place}"), |state| match call {
                Call::Aggregate { aggregate, spans, .. } => {
                    let (own, columns) = kept(state, "spans", groups)?;
                    let bounds = counts(&columns, 0)?.iter().zip(counts(&columns, 1)?);
                    for (group, (start, end)) in own.into_iter().zip(bounds) {
                        spans[group as usize] = Span { start: *start, end: *end };
                    }
                    aggregate.restore(groups, state)
                }
                Call::ShiftOverNulls(shift) => shift.restore(groups, state),
                Call::RowNumber
                | Call::Rank
                | Call::DenseRank
                | Call::PercentRank
                | Call::CumeDist
                | Call::Ntile(_)
                | Call::Shift { .. } => Ok(()),
            })?;
        }
        Ok(())
    }

    /// How far back frames reach in time where they do no further; `None`: something needs rows
    /// or a count for ever.
    pub(super) fn reach_us(&self) -> Option<i64> {
        let reach = |call: &Call| match call {
            Call::Aggregate {
                frame: OverFrame { unit: FrameUnit::Range, start: FrameBound::Offset(by), .. },
                ..
            } => Some(by.saturating_neg().max(0)),
            _ => None,
        };
        self.calls.iter().map(reach).try_fold(0, |longest, reach| Some(reach?.max(longest)))
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let call = |call: &Call| match call {
            Call::Aggregate { aggregate, spans, .. } => {
                aggregate.size() + spans.capacity() * size_of::<Span>()
            }
            Call::ShiftOverNulls(shift) => shift.size(),
            _ => 0,
        };
        self.calls.iter().map(call).sum::<usize>() + self.progress.capacity() * size_of::<Progress>()
    }
}

/// The bucket of a row, from 1: rows are dealt evenly, the first buckets get one more.
fn bucket(row: u64, rows: u64, buckets: u64) -> i64 {
    let (each, more) = (rows / buckets, rows % buckets);
    let of_larger = more * (each + 1);
    let bucket = if row < of_larger { row / (each + 1) } else { more + (row - of_larger) / each.max(1) };
    i64::try_from(bucket + 1).unwrap_or(i64::MAX)
}

/// The value of the row that stands `by` rows before each.
fn shifted(work: &Work<'_>, value: &ExprRef, by: i64, default: &ScalarValue) -> Result<ArrayRef, Error> {
    let values = evaluate(value, work.rows)?;
    let other = |(part, row): (&Part, usize)| {
        let other = i128::from(row as u64) - i128::from(by);
        usize::try_from(other).ok().filter(|other| (part.from..part.to).contains(other))
    };
    if default.is_null() {
        let places: UInt32Array = work.new_rows().map(other).map(|row| row.map(|row| row as u32)).collect();
        return take(&values, &places, None).map_err(|error| arrow_failure(&error));
    }
    let default = default.to_array().map_err(failure)?;
    let picks: Vec<(usize, usize)> =
        work.new_rows().map(other).map(|row| row.map_or((1, 0), |row| (0, row))).collect();
    let pieces: [&dyn Array; 2] = [values.as_ref(), default.as_ref()];
    interleave(&pieces, &picks).map_err(|error| arrow_failure(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_even_and_the_first_ones_larger() {
        let dealt = |rows, buckets| (0..rows).map(|row| bucket(row, rows, buckets)).collect::<Vec<_>>();
        assert_eq!(dealt(6, 4), [1, 1, 2, 2, 3, 4]);
        assert_eq!(dealt(4, 2), [1, 1, 2, 2]);
        assert_eq!(dealt(2, 5), [1, 2]);
        assert_eq!(dealt(3, 1), [1, 1, 1]);
    }
}
