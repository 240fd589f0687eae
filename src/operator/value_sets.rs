//! The different values that groups have of one column, with something kept of each.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StringArray};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows, SortField};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::evaluate::arrow_failure;
use super::group_keys::{bits, fixed_column, fixed_width};
use crate::error::{Error, code};

/// Of each group its different values, which are not NULL, and of each value a `P`. Values of at most eight bytes
/// are kept as they are, others as bytes. Floats are as the caller gives them: it has made one zero and one NaN of
/// all.
pub(super) struct ValueSets<P> {
    data_type: DataType,
    form: Form,
    sets: Sets<P>,
    hasher: FixedState,
    /// Of values that are kept as bytes.
    bytes: usize,
}

/// How values are told apart.
enum Form {
    Fixed { width: usize },
    Text,
    Binary,
    Rows(RowConverter),
}

impl Form {
    /// Values that are kept as bytes.
    fn column(&self, keys: &[&[u8]]) -> Result<ArrayRef, Error> {
        Ok(match self {
            Self::Rows(converter) => {
                let parser = converter.parser();
                let rows = keys.iter().map(|key| parser.parse(key));
                let columns = converter.convert_rows(rows).map_err(|error| arrow_failure(&error))?;
                let only = columns.into_iter().next();
                only.ok_or_else(|| Error::internal("aggregate", "values without a column"))?
            }
            Self::Text => {
                let texts = StringArray::try_from_binary(BinaryArray::from_iter_values(keys));
                Arc::new(texts.map_err(|error| arrow_failure(&error))?)
            }
            Self::Fixed { .. } | Self::Binary => Arc::new(BinaryArray::from_iter_values(keys)),
        })
    }
}

enum Sets<P> {
    Fixed(Vec<HashTable<(u64, P)>>),
    Bytes(Vec<HashTable<Value<P>>>),
}

struct Value<P> {
    hash: u64,
    bytes: Box<[u8]>,
    kept: P,
}

/// The values of the rows of a batch.
pub(super) struct Values<'a> {
    column: Column<'a>,
    nulls: Option<NullBuffer>,
}

enum Column<'a> {
    Fixed(ScalarBuffer<u64>),
    Text(&'a StringArray),
    Binary(&'a BinaryArray),
    Rows(Rows),
}

impl<P: Default> ValueSets<P> {
    /// # Errors
    /// `P002` for values of a type that can't be compared.
    pub(super) fn try_new(data_type: &DataType) -> Result<Self, Error> {
        let form = match (fixed_width(data_type), data_type) {
            (Some(width @ 1..=8), _) => Form::Fixed { width },
            (_, DataType::Utf8) => Form::Text,
            (_, DataType::Binary) => Form::Binary,
            _ => {
                let field = SortField::new(data_type.clone());
                Form::Rows(RowConverter::new(vec![field]).map_err(|error| {
                    Error::plan(
                        code::NOT_SUPPORTED,
                        format!("DISTINCT can't tell such values apart: {error}"),
                    )
                })?)
            }
        };
        let sets = match form {
            Form::Fixed { .. } => Sets::Fixed(Vec::new()),
            Form::Text | Form::Binary | Form::Rows(_) => Sets::Bytes(Vec::new()),
        };
        Ok(Self { data_type: data_type.clone(), form, sets, hasher: FixedState::default(), bytes: 0 })
    }

    /// Makes room for so many groups.
    pub(super) fn grow(&mut self, groups: usize) {
        match &mut self.sets {
            Sets::Fixed(sets) => sets.resize_with(groups.max(sets.len()), HashTable::new),
            Sets::Bytes(sets) => sets.resize_with(groups.max(sets.len()), HashTable::new),
        }
    }

    /// The values of a column of the type.
    pub(super) fn values<'a>(&self, column: &'a ArrayRef) -> Result<Values<'a>, Error> {
        let nulls = column.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let column = match &self.form {
            Form::Fixed { width } => Column::Fixed(bits(column, *width)),
            Form::Text => Column::Text(column.as_string()),
            Form::Binary => Column::Binary(column.as_binary()),
            Form::Rows(converter) => {
                let columns = [ArrayRef::clone(column)];
                Column::Rows(converter.convert_columns(&columns).map_err(|error| arrow_failure(&error))?)
            }
        };
        Ok(Values { column, nulls })
    }

    /// What is kept of a row's value in a group, where it is not NULL; the value is added if it is new.
    #[inline]
    pub(super) fn add(&mut self, group: u32, values: &Values<'_>, row: usize) -> Option<&mut P> {
        if values.is_null(row) {
            return None;
        }
        let (hasher, group) = (&self.hasher, group as usize);
        Some(match (&mut self.sets, values.key(row)) {
            (Sets::Fixed(sets), Key::Fixed(key)) => {
                let (is_it, hash) = (|one: &(u64, P)| one.0 == key, |one: &(u64, P)| hasher.hash_one(one.0));
                match sets[group].entry(hasher.hash_one(key), is_it, hash) {
                    Entry::Occupied(entry) => &mut entry.into_mut().1,
                    Entry::Vacant(entry) => &mut entry.insert((key, P::default())).into_mut().1,
                }
            }
            (Sets::Bytes(sets), Key::Bytes(key)) => {
                let hash = hasher.hash_one(key);
                let is_it = |one: &Value<P>| one.hash == hash && *one.bytes == *key;
                match sets[group].entry(hash, is_it, |one| one.hash) {
                    Entry::Occupied(entry) => &mut entry.into_mut().kept,
                    Entry::Vacant(entry) => {
                        self.bytes += key.len();
                        let value = Value { hash, bytes: key.into(), kept: P::default() };
                        &mut entry.insert(value).into_mut().kept
                    }
                }
            }
            // The form of the values is that of the sets.
            (Sets::Fixed(_), Key::Bytes(_)) | (Sets::Bytes(_), Key::Fixed(_)) => return None,
        })
    }

    /// Takes a row's value out of a group if `goes` says so of what is kept of it; whether it did. `None`: the value
    /// is NULL.
    ///
    /// # Errors
    /// An internal error for a value that is not there.
    pub(super) fn remove(
        &mut self,
        group: u32,
        values: &Values<'_>,
        row: usize,
        goes: impl FnOnce(&mut P) -> bool,
    ) -> Result<Option<bool>, Error> {
        if values.is_null(row) {
            return Ok(None);
        }
        let (hasher, group) = (&self.hasher, group as usize);
        let gone = match (&mut self.sets, values.key(row)) {
            (Sets::Fixed(sets), Key::Fixed(key)) => {
                let entry = sets[group].find_entry(hasher.hash_one(key), |one| one.0 == key);
                entry.ok().map(|mut entry| {
                    let goes = goes(&mut entry.get_mut().1);
                    if goes {
                        entry.remove();
                    }
                    goes
                })
            }
            (Sets::Bytes(sets), Key::Bytes(key)) => {
                let hash = hasher.hash_one(key);
                let entry = sets[group].find_entry(hash, |one| one.hash == hash && *one.bytes == *key);
                entry.ok().map(|mut entry| {
                    let goes = goes(&mut entry.get_mut().kept);
                    if goes {
                        entry.remove();
                        self.bytes -= key.len();
                    }
                    goes
                })
            }
            (Sets::Fixed(_), Key::Bytes(_)) | (Sets::Bytes(_), Key::Fixed(_)) => None,
        };
        gone.map(Some).ok_or_else(|| Error::internal("aggregate", "a row goes that never came"))
    }

    /// Forgets the values of a group; gives what was kept of each.
    pub(super) fn clear(&mut self, group: u32, mut gone: impl FnMut(P)) {
        match &mut self.sets {
            Sets::Fixed(sets) => {
                std::mem::take(&mut sets[group as usize]).into_iter().for_each(|(_, kept)| gone(kept));
            }
            Sets::Bytes(sets) => {
                for value in std::mem::take(&mut sets[group as usize]) {
                    self.bytes -= value.bytes.len();
                    gone(value.kept);
                }
            }
        }
    }

    /// All values of some groups, and what is kept of each; with each the place of its group among those.
    ///
    /// # Errors
    /// An internal error for values that are none of the type.
    pub(super) fn columns(&self, groups: &[u32]) -> Result<(Vec<u32>, ArrayRef, Vec<&P>), Error> {
        let (mut places, mut all) = (Vec::new(), Vec::new());
        let values: ArrayRef = match &self.sets {
            Sets::Fixed(sets) => {
                let mut keys = Vec::new();
                for (place, group) in groups.iter().enumerate() {
                    for (key, kept) in &sets[*group as usize] {
                        places.push(place as u32);
                        keys.push(u128::from(*key));
                        all.push(kept);
                    }
                }
                let width = fixed_width(&self.data_type).unwrap_or_default();
                fixed_column(&self.data_type, width, keys.into_iter(), None)?
            }
            Sets::Bytes(sets) => {
                let mut keys: Vec<&[u8]> = Vec::new();
                for (place, group) in groups.iter().enumerate() {
                    for value in &sets[*group as usize] {
                        places.push(place as u32);
                        keys.push(&value.bytes);
                        all.push(&value.kept);
                    }
                }
                self.form.column(&keys)?
            }
        };
        Ok((places, values, all))
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        match &self.sets {
            Sets::Fixed(sets) => size_of_sets(sets),
            Sets::Bytes(sets) => size_of_sets(sets) + self.bytes,
        }
    }
}

fn size_of_sets<V>(sets: &Vec<HashTable<V>>) -> usize {
    let values: usize = sets.iter().map(HashTable::capacity).sum();
    sets.capacity() * size_of::<HashTable<V>>() + values * (size_of::<V>() + 1)
}

enum Key<'a> {
    Fixed(u64),
    Bytes(&'a [u8]),
}

impl Values<'_> {
    #[inline]
    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    #[inline]
    fn key(&self, row: usize) -> Key<'_> {
        match &self.column {
            Column::Fixed(values) => Key::Fixed(values[row]),
            Column::Text(values) => Key::Bytes(values.value(row).as_bytes()),
            Column::Binary(values) => Key::Bytes(values.value(row)),
            Column::Rows(rows) => Key::Bytes(rows.row(row).data()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow::array::{
        BooleanArray, Date32Array, Decimal128Array, Float64Array, Int8Array, Int64Array, StringViewArray,
    };
    use proptest::prelude::*;

    use super::*;

    /// NULL and three values of each form, by number.
    fn columns(numbers: &[usize]) -> Vec<ArrayRef> {
        fn pick<V: Clone>(numbers: &[usize], values: [V; 3]) -> Vec<Option<V>> {
            numbers.iter().map(|number| values.get(*number).cloned()).collect()
        }
        let texts = pick(numbers, ["", "a", "a\u{0}"]);
        let bytes: Vec<Option<&[u8]>> = texts.iter().map(|text| text.map(str::as_bytes)).collect();
        vec![
            Arc::new(Int64Array::from(pick(numbers, [i64::MIN, -1, i64::MAX]))),
            Arc::new(Int8Array::from(pick(numbers, [-128, 0, 127]))),
            Arc::new(Date32Array::from(pick(numbers, [-1, 0, 1]))),
            Arc::new(Float64Array::from(pick(numbers, [-0.5, 0.0, f64::NAN]))),
            Arc::new(Decimal128Array::from(pick(numbers, [-1, 0, 1 << 100]))),
            Arc::new(StringArray::from(texts.clone())),
            Arc::new(BinaryArray::from(bytes)),
            Arc::new(StringViewArray::from(texts)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 100,
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_308),
            ..ProptestConfig::default()
        })]

        /// Each form against a map of counts.
        #[test]
        fn values_come_and_go(
            steps in prop::collection::vec((0usize..4, 0u32..3, 0u8..8), 0..80),
            offset in 0usize..3,
        ) {
            // A slice begins anywhere in its buffers.
            let numbers: Vec<usize> =
                std::iter::repeat_n(0, offset).chain(steps.iter().map(|step| step.0)).collect();
            for column in columns(&numbers) {
                let column = column.slice(offset, steps.len());
                let mut sets: ValueSets<u64> = ValueSets::try_new(column.data_type()).unwrap();
                sets.grow(3);
                let values = sets.values(&column).unwrap();
                let mut known: BTreeMap<(u32, usize), u64> = BTreeMap::new();
                for (row, (number, group, does)) in steps.iter().enumerate() {
                    let key = (*group, *number);
                    match does {
                        0 => {
                            sets.clear(*group, |_| ());
                            known.retain(|known, _| known.0 != *group);
                        }
                        1..=3 => {
                            let gone = sets.remove(*group, &values, row, |count| {
                                *count -= 1;
                                *count == 0
                            });
                            match known.get_mut(&key) {
                                _ if *number == 3 => prop_assert_eq!(gone.unwrap(), None),
                                None => prop_assert!(gone.is_err()),
                                Some(count) => {
                                    *count -= 1;
                                    prop_assert_eq!(gone.unwrap(), Some(*count == 0));
                                }
                            }
                            known.retain(|_, count| *count > 0);
                        }
                        _ if *number == 3 => prop_assert!(sets.add(*group, &values, row).is_none()),
                        _ => {
                            let count = sets.add(*group, &values, row).unwrap();
                            *count += 1;
                            let expected = known.entry(key).or_default();
                            *expected += 1;
                            prop_assert_eq!(*count, *expected);
                        }
                    }
                }
                (0..3).for_each(|group| sets.clear(group, |_| ()));
                prop_assert_eq!(sets.bytes, 0);
            }
        }
    }

    #[test]
    fn truth_values_are_two() {
        let column: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]));
        let mut sets: ValueSets<u64> = ValueSets::try_new(&DataType::Boolean).unwrap();
        sets.grow(1);
        let values = sets.values(&column).unwrap();
        let counts: Vec<Option<u64>> = (0..4)
            .map(|row| {
                sets.add(0, &values, row).map(|count| {
                    *count += 1;
                    *count
                })
            })
            .collect();
        assert_eq!(counts, [Some(1), Some(1), None, Some(2)]);
    }
}
