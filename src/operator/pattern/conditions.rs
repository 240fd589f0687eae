//! Whether a row may be the next of a match: what reads the row alone is known for whole batches,
//! what reads the match is computed when it is asked for.

use std::collections::HashMap;

use arrow::array::{ArrayRef, BooleanArray, new_null_array};
use arrow::record_batch::RecordBatch;
use datafusion_common::ScalarValue;
use datafusion_physical_expr::expressions::Column;

use super::Kept;
use crate::error::Error;
use crate::operator::aggregate::{Aggregate, Step};
use crate::operator::evaluate::{evaluate, evaluate_condition, failure};
use crate::operator::store::RowStore;
use crate::plan::{ExprRef, MatchCondition, MatchValue, MatchValueKind, PatternVariable};
use arrow::datatypes::SchemaRef;

/// What is known of a row: a bit for each variable.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Truth {
    known: u64,
    holds: u64,
}

/// The conditions of a pattern's variables.
pub(super) struct Conditions {
    of_row: Vec<Option<ExprRef>>,
    of_match: Vec<Option<OfMatch>>,
}

struct OfMatch {
    condition: MatchCondition,
    values: Vec<ValueReader>,
}

impl Conditions {
    pub(super) fn try_new(variables: &[PatternVariable], input: &SchemaRef) -> Result<Self, Error> {
        let of_match = |variable: &PatternVariable| -> Result<Option<OfMatch>, Error> {
            let Some(condition) = variable.match_condition.clone() else { return Ok(None) };
            let reader = |value: &MatchValue| ValueReader::try_new(value, input);
            let values = condition.values.iter().map(reader).collect::<Result<_, _>>()?;
            Ok(Some(OfMatch { condition, values }))
        };
        Ok(Self {
            of_row: variables.iter().map(|variable| variable.row_condition.clone()).collect(),
            of_match: variables.iter().map(of_match).collect::<Result<_, _>>()?,
        })
    }

    /// What is known of rows by themselves. Where a condition fails on a row it is asked again for the
    /// rows that it matters for: perhaps not for that one.
    pub(super) fn of_rows(&self, rows: &RecordBatch) -> Vec<Truth> {
        let mut truths = vec![Truth::default(); rows.num_rows()];
        for (variable, condition) in self.of_row.iter().enumerate() {
            let bit = 1_u64 << variable;
            let mask = match condition {
                None => BooleanArray::from(vec![true; rows.num_rows()]),
                Some(condition) => match evaluate_condition(condition, rows) {
                    Ok(mask) => mask,
                    Err(_) => continue,
                },
            };
            for (row, truth) in truths.iter_mut().enumerate() {
                truth.known |= bit;
                truth.holds |= if mask.value(row) { bit } else { 0 };
            }
        }
        truths
    }

    /// Whether the last row that `counts` tells of may be the variable's.
    pub(super) fn is_met(
        &mut self,
        variable: usize,
        truth: Truth,
        rows: &Rows<'_>,
        counts: &[u32],
    ) -> Result<bool, Error> {
        let bit = 1_u64 << variable;
        let row = counts.iter().map(|count| *count as usize).sum::<usize>() - 1;
        let holds = match &self.of_row[variable] {
            Some(condition) if truth.known & bit == 0 => {
                evaluate_condition(condition, &rows.one(row)?)?.value(0)
            }
            _ => truth.holds & bit != 0,
        };
        match &mut self.of_match[variable] {
            Some(of_match) if holds => of_match.is_met(rows, row, counts),
            _ => Ok(holds),
        }
    }

    /// Forgets what belongs to a key.
    pub(super) fn forget(&mut self, key: u32) {
        for value in self.of_match.iter_mut().flatten().flat_map(|of_match| &mut of_match.values) {
            value.forget(key);
        }
    }

    pub(super) fn size(&self) -> usize {
        let values = self.of_match.iter().flatten().flat_map(|of_match| &of_match.values);
        values.map(ValueReader::size).sum()
    }
}

impl OfMatch {
    fn is_met(&mut self, rows: &Rows<'_>, row: usize, counts: &[u32]) -> Result<bool, Error> {
        let (batch, at) = rows.store.row(rows.kept(row)?.slot)?;
        let mut columns: Vec<ArrayRef> =
            self.condition.columns.iter().map(|column| batch.column(*column).slice(at, 1)).collect();
        for value in &mut self.values {
            columns.push(value.read(rows, counts)?);
        }
        let widened = RecordBatch::try_new(self.condition.schema.clone(), columns)
            .map_err(|error| Error::internal("MatchRecognize", error))?;
        Ok(evaluate_condition(&self.condition.condition, &widened)?.value(0))
    }
}

/// The rows of a key, from the first of the attempt on.
pub(super) struct Rows<'a> {
    pub(super) key: u32,
    pub(super) store: &'a RowStore,
    pub(super) rows: &'a std::collections::VecDeque<Kept>,
}

impl Rows<'_> {
    fn kept(&self, row: usize) -> Result<&Kept, Error> {
        self.rows.get(row).ok_or_else(|| Error::internal("MatchRecognize", "a row of a match is gone"))
    }

    fn one(&self, row: usize) -> Result<RecordBatch, Error> {
        let (batch, at) = self.store.row(self.kept(row)?.slot)?;
        Ok(batch.slice(at, 1))
    }
}

/// Reads a value of a match.
pub(super) struct ValueReader {
    variable: Option<usize>,
    kind: Kind,
    /// For each key the rows that its aggregate has: the number of the first, and how many.
    known: HashMap<u32, (u64, usize)>,
}

enum Kind {
    Row { from_last: bool, offset: u32, value: ExprRef, none: ArrayRef },
    Aggregate(Aggregate),
}

impl ValueReader {
    pub(super) fn try_new(value: &MatchValue, input: &SchemaRef) -> Result<Self, Error> {
        let kind = match &value.kind {
            MatchValueKind::Row { from_last, offset, value } => {
                let data_type =
                    value.data_type(input).map_err(|error| Error::internal("MatchRecognize", error))?;
                let none = new_null_array(&data_type, 1);
                Kind::Row { from_last: *from_last, offset: *offset, value: value.clone(), none }
            }
            MatchValueKind::Aggregate(call) => Kind::Aggregate(Aggregate::try_new(call, input, false)?),
        };
        Ok(Self { variable: value.variable, kind, known: HashMap::new() })
    }

    /// The value, as a column of one row.
    pub(super) fn read(&mut self, rows: &Rows<'_>, counts: &[u32]) -> Result<ArrayRef, Error> {
        let total = |counts: &[u32]| counts.iter().map(|count| *count as usize).sum::<usize>();
        let (start, length) = match self.variable {
            None => (0, total(counts)),
            Some(variable) => (total(&counts[..variable]), counts[variable] as usize),
        };
        match &mut self.kind {
            Kind::Row { from_last, offset, value, none } => {
                let offset = *offset as usize;
                if offset >= length {
                    return Ok(none.clone());
                }
                let row = start + if *from_last { length - 1 - offset } else { offset };
                match value.downcast_ref::<Column>() {
                    Some(column) => {
                        let (batch, at) = rows.store.row(rows.kept(row)?.slot)?;
                        Ok(batch.column(column.index()).slice(at, 1))
                    }
                    None => evaluate(value, &rows.one(row)?),
                }
            }
            Kind::Aggregate(aggregate) => {
                // Of rows that come one by one only the new ones are added.
                let group = rows.key;
                let first = rows.kept(start).map_or(u64::MAX, |kept| kept.number);
                let known = self.known.get(&group).filter(|(of, had)| *of == first && *had <= length);
                let had = known.map(|(_, had)| *had);
                let mut steps = Vec::new();
                if had.is_none() {
                    steps.push(Step::Clear { group });
                }
                let had = had.unwrap_or(0);
                let new = (had..length).map(|row| rows.kept(start + row).map(|kept| kept.slot));
                let slots = new.collect::<Result<Vec<u32>, _>>()?;
                steps.extend((0..slots.len()).map(|row| Step::Add { group, row: row as u32 }));
                steps.push(Step::Give { group });
                let batch = match slots.as_slice() {
                    [one] => {
                        let (batch, at) = rows.store.row(*one)?;
                        batch.slice(at, 1)
                    }
                    slots => rows.store.gather(slots)?,
                };
                self.known.insert(group, (first, length));
                aggregate.run(&steps, &batch, group as usize + 1)
            }
        }
    }

    /// Forgets what belongs to a key.
    pub(super) fn forget(&mut self, key: u32) {
        self.known.remove(&key);
    }

    /// The value on its own.
    pub(super) fn scalar(&mut self, rows: &Rows<'_>, counts: &[u32]) -> Result<ScalarValue, Error> {
        ScalarValue::try_from_array(&self.read(rows, counts)?, 0).map_err(failure)
    }

    fn size(&self) -> usize {
        let states = match &self.kind {
            Kind::Row { .. } => 0,
            Kind::Aggregate(aggregate) => aggregate.size(),
        };
        states + self.known.capacity() * size_of::<(u32, (u64, usize))>()
    }
}
