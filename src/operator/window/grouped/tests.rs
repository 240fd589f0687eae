//! All states against values that are counted one by one.

use arrow::array::{AsArray, Decimal128Array, Float64Array, Int64Array};
use arrow::datatypes::{Float64Type, Int64Type};

use super::*;
use crate::operator::testing::input;
use crate::operator::window::recipe::{Call, Recipe};
use crate::operator::window::tests::{assign, node, plain_calls};
use crate::plan::WindowKind;

/// What a group has had.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Model {
    count: i64,
    sum: i64,
    max: Option<i64>,
    min: Option<i64>,
}

impl Model {
    fn add(&mut self, value: i64) {
        self.count += 1;
        self.sum += value;
        self.max = self.max.max(Some(value));
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
    }
}

/// The states of COUNT, SUM, AVG, MAX and MIN of a BIGINT.
struct States(Vec<Box<dyn GroupStates>>);

impl States {
    fn new() -> Self {
        let extreme = |is_max| extremes::states(is_max, &DataType::Int64).unwrap();
        Self(vec![
            Box::new(Counts::default()),
            Box::new(Sums::new(Finish::SumSigned)),
            Box::new(Sums::new(Finish::AvgInteger)),
            extreme(true),
            extreme(false),
        ])
    }

    fn update(&mut self, values: &ArrayRef, ids: &[usize], filter: Option<&BooleanArray>, groups: usize) {
        for states in &mut self.0 {
            states.update(&[Arc::clone(values)], ids, filter, groups).unwrap();
        }
    }

    fn merge(&mut self, others: &[Vec<ArrayRef>], ids: &[usize], groups: usize) {
        for (states, other) in self.0.iter_mut().zip(others) {
            states.merge(other, ids, groups).unwrap();
        }
    }

    fn take(&mut self) -> Vec<Vec<ArrayRef>> {
        self.0.iter_mut().map(|states| states.take().unwrap()).collect()
    }

    /// The states of all chunks.
    fn share(&mut self, call: &Call, groups: usize) -> Vec<Vec<Vec<ArrayRef>>> {
        let shared: Vec<Shared> =
            self.0.iter_mut().map(|states| states.share(call, groups).unwrap()).collect();
        let firsts = (0..groups.max(1)).step_by(CHUNK);
        let piece = |first: usize| {
            let groups = CHUNK.min(groups - first);
            shared.iter().map(|shared| shared.piece(first, groups)).collect()
        };
        firsts.map(piece).collect()
    }

    fn results(&mut self) -> Vec<ArrayRef> {
        self.0.iter_mut().map(|states| states.results().unwrap()).collect()
    }
}

fn expected(models: &[Model]) -> Vec<ArrayRef> {
    let has = |model: &Model| model.count > 0;
    let average = |model: &Model| has(model).then(|| model.sum as f64 / model.count as f64);
    vec![
        Arc::new(models.iter().map(|model| Some(model.count)).collect::<Int64Array>()),
        Arc::new(models.iter().map(|model| has(model).then_some(model.sum)).collect::<Int64Array>()),
        Arc::new(models.iter().map(average).collect::<Float64Array>()),
        Arc::new(models.iter().map(|model| model.max).collect::<Int64Array>()),
        Arc::new(models.iter().map(|model| model.min).collect::<Int64Array>()),
    ]
}

/// Values, so that those of a group without one don't count.
fn same(given: &[ArrayRef], expected: &[ArrayRef]) -> bool {
    let integers = |column: &ArrayRef| column.as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
    let floats = |column: &ArrayRef| column.as_primitive::<Float64Type>().iter().collect::<Vec<_>>();
    given.len() == expected.len()
        && given.iter().zip(expected).all(|(one, other)| match one.data_type() {
            DataType::Float64 => floats(one) == floats(other),
            _ => integers(one) == integers(other),
        })
}

/// The results of states that were handed on, taken up again chunk by chunk.
fn of_pieces(pieces: &[Vec<Vec<ArrayRef>>]) -> Vec<ArrayRef> {
    let (mut states, mut first) = (States::new(), 0);
    for piece in pieces {
        let groups = first + piece[0][0].len();
        states.merge(piece, &(first..groups).collect::<Vec<_>>(), groups);
        first = groups;
    }
    states.results()
}

/// A number below `most`, from a sequence that a seed begins.
fn random(state: &mut u64, most: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) as usize) % most
}

#[test]
fn states_are_those_of_all_rows() {
    // Whose states they are is only asked by DataFusion's.
    let kind = WindowKind::Tumble { size_us: 1_000 };
    let node = node(assign(kind, 0), Vec::new(), plain_calls());
    let recipe = Recipe::try_new(&node, &input()).unwrap();
    let call = &recipe.calls[0];
    for (seed, most_groups, null_share, has_filters) in
        [(1, 50, 0, false), (2, 50, 3, true), (3, 2 * CHUNK + 500, 0, false), (4, 2 * CHUNK + 500, 3, true)]
    {
        let mut state = seed;
        let (mut states, mut models) = (States::new(), Vec::new());
        let mut handed_on = Vec::new();
        for batch in 0..60 {
            // The first batches have neither NULLs nor filters.
            let (null_share, has_filters) =
                if batch < 10 { (0, false) } else { (null_share, has_filters && batch % 3 != 0) };
            let (mut ids, mut values, mut kept) = (Vec::new(), Vec::new(), Vec::new());
            let mut own = Vec::new();
            for _ in 0..6_000 {
                let is_new = models.is_empty() || (models.len() < most_groups && random(&mut state, 4) > 0);
                let group = if is_new { models.len() } else { random(&mut state, models.len()) };
                if is_new {
                    models.push(Model::default());
                }
                let value = random(&mut state, 1_000) as i64 - 500;
                let is_null = null_share > 0 && random(&mut state, null_share) == 0;
                let is_kept = !has_filters || random(&mut state, 2) == 0;
                ids.push(group);
                values.push((!is_null).then_some(value));
                kept.push(is_kept);
                if !is_null && is_kept {
                    own.push((group, value));
                }
            }
            let values: ArrayRef = Arc::new(Int64Array::from(values));
            let filter = has_filters.then(|| BooleanArray::from(kept));
            if batch % 5 == 4 {
                // By way of the states of another table, whose groups are numbered by their first row.
                let mut other = States::new();
                let mut known: Vec<usize> = Vec::new();
                let mut place = std::collections::HashMap::new();
                let others: Vec<usize> = ids
                    .iter()
                    .map(|id| {
                        *place.entry(*id).or_insert_with(|| {
                            known.push(*id);
                            known.len() - 1
                        })
                    })
                    .collect();
                other.update(&values, &others, filter.as_ref(), known.len());
                states.merge(&other.take(), &known, models.len());
            } else {
                states.update(&values, &ids, filter.as_ref(), models.len());
            }
            own.iter().for_each(|(group, value)| models[*group].add(*value));
            if batch % 7 == 6 {
                handed_on.push((states.share(call, models.len()), models.clone()));
            }
        }
        assert!(handed_on.len() > 5 && models.len() == most_groups);
        for (pieces, models) in &handed_on {
            assert_eq!(pieces.len(), models.len().div_ceil(CHUNK));
            assert!(same(&of_pieces(pieces), &expected(models)), "seed {seed}: what was handed on");
        }
        assert!(same(&states.results(), &expected(&models)), "seed {seed}");
    }
}

#[test]
fn what_stands_where_a_state_is_null_does_not_count() {
    let null = |values: Vec<i64>| -> ArrayRef {
        Arc::new(Int64Array::new(values.into(), Some(vec![true, false].into())))
    };
    let low = Decimal128Array::new(vec![4, 77].into(), Some(vec![true, false].into()));
    let low: ArrayRef = Arc::new(low.with_data_type(DataType::Decimal128(38, 0)));
    let mut states = States::new();
    let counts: ArrayRef = Arc::new(Int64Array::from(vec![2, 0]));
    let of_one = vec![
        vec![counts],
        vec![Arc::clone(&low)],
        vec![low, null(vec![2, 9])],
        vec![null(vec![3, 99])],
        vec![null(vec![1, -99])],
    ];
    states.merge(&of_one, &[0, 1], 2);
    states.merge(&of_one, &[1, 0], 2);
    let model = Model { count: 2, sum: 4, max: Some(3), min: Some(1) };
    assert!(same(&states.results(), &expected(&[model, model])));
}
