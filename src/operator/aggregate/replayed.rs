//! Accumulators that would go on from their state otherwise than from the rows themselves.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, new_empty_array};
use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;
use datafusion_expr::{Accumulator, AggregateUDF};
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;

use super::kept::{keep, kept, value_column};
use super::{Reversible, Step, scalar};
use crate::error::{Error, code};
use crate::operator::evaluate::failure;
use crate::operator::state::misfit;
use crate::operator::window::is_unsteady;
use crate::operator::{StateReader, StateWriter};

/// Rows after which an accumulator goes on from its state.
const MOST_ROWS: usize = 64;

/// Whether an aggregate needs [`Replayed`] states. The accumulator of a correlation rounds when it takes up a state,
/// though that of many groups does not.
pub(super) fn needs_rows(function: &AggregateUDF) -> bool {
    is_unsteady(function) || function.name() == "corr"
}

/// Accumulators of rows that only come. So that no value depends on when checkpoints are taken, each is replaced
/// after 64 rows by one that takes up its state; a checkpoint has that state, and the rows since.
pub(super) struct Replayed {
    function: Arc<AggregateFunctionExpr>,
    /// Of its arguments.
    types: Vec<DataType>,
    groups: Vec<Group>,
    /// There is no state to go on from: why.
    stateless: Option<Error>,
}

struct Group {
    accumulator: Box<dyn Accumulator>,
    /// Of all rows but the last ones; `None`: there are no others.
    state: Option<Vec<ScalarValue>>,
    rows: Vec<Vec<ScalarValue>>,
}

impl Replayed {
    pub(super) fn new(function: Arc<AggregateFunctionExpr>, types: &[DataType]) -> Self {
        Self { function, types: types.to_vec(), groups: Vec::new(), stateless: None }
    }

    fn group(&self) -> Result<Group, Error> {
        let accumulator = self.function.create_accumulator().map_err(failure)?;
        Ok(Group { accumulator, state: None, rows: Vec::new() })
    }

    fn add(&mut self, group: u32, row: &[ArrayRef]) -> Result<(), Error> {
        let own = &mut self.groups[group as usize];
        own.accumulator.update_batch(row).map_err(failure)?;
        if self.stateless.is_some() {
            return Ok(());
        }
        let values = row.iter().map(|value| {
            let mut value = scalar(value, 0)?;
            value.compact();
            Ok(value)
        });
        own.rows.push(values.collect::<Result<_, Error>>()?);
        if own.rows.len() < MOST_ROWS {
            return Ok(());
        }
        match own.accumulator.state() {
            Ok(state) => {
                let mut again = self.group()?;
                again.take_up(state)?;
                self.groups[group as usize] = again;
            }
            // Only checkpoints need one.
            Err(error) => {
                self.stateless = Some(failure(error));
                self.groups.iter_mut().for_each(|group| group.rows.clear());
            }
        }
        Ok(())
    }

    /// # Errors
    /// `P002` if there is no state to hand on.
    fn check(&self) -> Result<(), Error> {
        let fails = || self.group().ok()?.accumulator.state().err().map(failure);
        let Some(error) = self.stateless.clone().or_else(fails) else { return Ok(()) };
        let name = self.function.fun().name();
        let message = format!("aggregate \"{name}\" can't be part of a checkpoint: {}", error.message());
        Err(Error::plan(code::NOT_SUPPORTED, message)
            .hint("Let its accumulator give its state, and merge it."))
    }
}

impl Group {
    fn take_up(&mut self, state: Vec<ScalarValue>) -> Result<(), Error> {
        let columns = state.iter().map(|value| value.to_array().map_err(failure));
        self.accumulator.merge_batch(&columns.collect::<Result<Vec<_>, _>>()?).map_err(failure)?;
        self.state = Some(state);
        Ok(())
    }
}

impl Reversible for Replayed {
    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        while self.groups.len() < groups {
            let group = self.group()?;
            self.groups.push(group);
        }
        Ok(())
    }

    fn run(&mut self, steps: &[Step], args: &[ArrayRef]) -> Result<ArrayRef, Error> {
        let mut values = Vec::new();
        for step in steps {
            match *step {
                Step::Add { group, row } => {
                    let row: Vec<ArrayRef> = args.iter().map(|arg| arg.slice(row as usize, 1)).collect();
                    self.add(group, &row)?;
                }
                Step::Remove { .. } => {
                    return Err(Error::internal("aggregate", "a row goes that was to stay"));
                }
                Step::Give { group } => {
                    values.push(self.groups[group as usize].accumulator.evaluate().map_err(failure)?);
                }
                Step::Clear { group } => self.groups[group as usize] = self.group()?,
            }
        }
        match values.is_empty() {
            true => Ok(new_empty_array(self.function.field().data_type())),
            false => ScalarValue::iter_to_array(values).map_err(failure),
        }
    }

    fn snapshot(&mut self, groups: &[u32], state: &mut StateWriter) -> Result<(), Error> {
        self.check()?;
        let fields = self.function.state_fields().map_err(failure)?;
        let (mut places, mut columns) = (Vec::new(), vec![Vec::new(); self.types.len()]);
        let mut states = vec![Vec::new(); fields.len()];
        for (place, group) in groups.iter().enumerate() {
            let group = &self.groups[*group as usize];
            for row in &group.rows {
                places.push(place as u32);
                columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value.clone()));
            }
            for (index, (column, field)) in states.iter_mut().zip(&fields).enumerate() {
                let known = group.state.as_ref().and_then(|state| state.get(index).cloned());
                let none = || ScalarValue::try_from(field.data_type()).map_err(failure);
                column.push(known.map_or_else(none, Ok)?);
            }
        }
        let columns = columns.into_iter().zip(&self.types).map(|(values, of)| value_column(values, of));
        keep(state, "rows", places, columns.collect::<Result<_, _>>()?)?;
        let is_there = groups.iter().map(|group| Some(self.groups[*group as usize].state.is_some()));
        let mut columns: Vec<ArrayRef> = vec![Arc::new(is_there.collect::<BooleanArray>())];
        for (values, field) in states.into_iter().zip(&fields) {
            columns.push(value_column(values, field.data_type())?);
        }
        keep(state, "states", 0..groups.len() as u32, columns)
    }

    fn restore(&mut self, groups: &[u32], state: &mut StateReader) -> Result<(), Error> {
        let (own, columns) = kept(state, "states", groups)?;
        let (is_there, columns) = columns.split_first().ok_or_else(|| misfit("no states"))?;
        let is_there = is_there.as_boolean_opt().ok_or_else(|| misfit("states of another type"))?;
        for (row, group) in own.into_iter().enumerate().filter(|(row, _)| is_there.value(*row)) {
            let values = columns.iter().map(|column| scalar(column, row as u32));
            self.groups[group as usize].take_up(values.collect::<Result<_, _>>()?)?;
        }
        let (own, columns) = kept(state, "rows", groups)?;
        for (row, group) in own.into_iter().enumerate() {
            let row: Vec<ArrayRef> = columns.iter().map(|column| column.slice(row, 1)).collect();
            self.add(group, &row)?;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        let values = |values: &Vec<ScalarValue>| values.iter().map(ScalarValue::size).sum::<usize>();
        let group = |group: &Group| {
            let rows = group.rows.iter().map(values).sum::<usize>();
            group.accumulator.size() + rows + group.state.as_ref().map_or(0, values)
        };
        self.groups.iter().map(group).sum()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use datafusion_common::not_impl_err;
    use datafusion_expr::{Volatility, create_udaf};

    use super::*;
    use crate::catalog::Catalog;
    use crate::operator::aggregate::GROUPS;
    use crate::plan::{Operation, Planner};

    /// Counts rows, by 1,000s, and how often it took up a state; gives its own if it is told so.
    #[derive(Debug)]
    struct Counting {
        count: i64,
        has_state: bool,
    }

    impl Accumulator for Counting {
        fn update_batch(&mut self, values: &[ArrayRef]) -> datafusion_common::Result<()> {
            self.count += 1_000 * values[0].len() as i64;
            Ok(())
        }

        fn evaluate(&mut self) -> datafusion_common::Result<ScalarValue> {
            Ok(ScalarValue::from(self.count))
        }

        fn size(&self) -> usize {
            size_of_val(self)
        }

        fn state(&mut self) -> datafusion_common::Result<Vec<ScalarValue>> {
            match self.has_state {
                // It is given up.
                true => Ok(vec![ScalarValue::from(std::mem::take(&mut self.count))]),
                false => not_impl_err!("no state"),
            }
        }

        fn merge_batch(&mut self, states: &[ArrayRef]) -> datafusion_common::Result<()> {
            let counts = states[0].as_primitive::<Int64Type>().values();
            self.count += counts.iter().map(|count| count + 1).sum::<i64>();
            Ok(())
        }
    }

    /// The states of an aggregate of a program's own.
    fn registered(has_state: bool) -> Replayed {
        let function = create_udaf(
            "counting",
            vec![DataType::Int64],
            Arc::new(DataType::Int64),
            Volatility::Immutable,
            Arc::new(move |_| Ok(Box::new(Counting { count: 0, has_state }))),
            Arc::new(vec![DataType::Int64]),
        );
        let planner = Planner::default().with_udaf(function).unwrap();
        let plan = planner.plan("SELECT counting(v) FROM (VALUES (1)) AS t(v)", &Catalog::new()).unwrap();
        let function = plan.nodes.iter().find_map(|node| match &node.operation {
            Operation::WindowAggregate(node) => Some(Arc::clone(&node.aggregates[0].function)),
            _ => None,
        });
        let mut states = Replayed::new(function.unwrap(), &[DataType::Int64]);
        states.grow(2).unwrap();
        states
    }

    /// The values of a group as rows come.
    fn values(states: &mut Replayed, group: u32, rows: usize) -> Vec<i64> {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let steps = [Step::Add { group, row: 0 }, Step::Give { group }].repeat(rows);
        states.run(&steps, &[column]).unwrap().as_primitive::<Int64Type>().values().to_vec()
    }

    fn kept_groups() -> StateWriter {
        let mut state = StateWriter::default();
        state.columns(GROUPS, vec![Arc::new(Int64Array::from(vec![5, 6]))], &[]).unwrap();
        state
    }

    #[test]
    fn values_do_not_depend_on_when_states_are_taken() {
        // A state is taken up after 64 rows, and after 128.
        let expected: Vec<i64> = (1..=150).map(|rows| rows * 1_000 + rows / 64).collect();
        assert_eq!(values(&mut registered(true), 1, 150), expected);
        for cut in [1, 7, 64, 65] {
            let mut states = registered(true);
            let (mut given, mut group) = (Vec::new(), 1);
            while given.len() < 150 {
                let rows = cut.min(150 - given.len());
                given.extend(values(&mut states, group, rows));
                let mut state = kept_groups();
                states.snapshot(&[group, 1 - group], &mut state).unwrap();
                let mut state = StateReader::same(state.finish(), 0);
                states = registered(true);
                group = 1 - group;
                states.restore(&[group, 1 - group], &mut state).unwrap();
            }
            assert_eq!(given, expected, "after each {cut} rows");
            assert_eq!(values(&mut states, 1 - group, 1), [1_000]);
        }
    }

    #[test]
    fn an_aggregate_without_a_state_is_named() {
        let mut counting = registered(false);
        for rows in [1, 100] {
            values(&mut counting, 0, rows);
            let error = counting.snapshot(&[0, 1], &mut kept_groups()).unwrap_err();
            assert_eq!(error.code(), "P002");
            let message = "aggregate \"counting\" can't be part of a checkpoint";
            assert!(error.message().starts_with(message), "{error}");
        }
        assert_eq!(values(&mut counting, 0, 1), [102_000], "it goes on");
    }
}
