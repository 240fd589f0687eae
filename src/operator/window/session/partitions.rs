//! PARTITION BY keys as numbers.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use arrow::row::{RowConverter, SortField};
use foldhash::fast::RandomState;

use super::track::Tracker;
use crate::error::{Error, code};
use crate::operator::evaluate::{arrow_failure, one_nan_and_zero};

/// Partitions without a session that are kept before their keys are looked for.
const FEW_IDLE: usize = 1_024;

/// Gives each partition key the number of its partition in a [`Tracker`]. Numbers of partitions
/// without open sessions are given again.
pub(super) struct Partitions {
    keys: Keys,
    /// The partition of the key NULL of a single column.
    null: Option<u32>,
    /// Of the columns of PARTITION BY.
    types: Vec<DataType>,
    numbers: Vec<u32>,
}

enum Keys {
    /// No PARTITION BY: all rows are one partition.
    None,
    /// One column of whole numbers.
    Integer(HashMap<i64, u32, RandomState>),
    /// One column of text.
    Text(HashMap<Box<[u8]>, u32, RandomState>),
    /// Anything else, as comparable bytes.
    Rows(RowConverter, HashMap<Box<[u8]>, u32, RandomState>),
}

impl Partitions {
    /// # Errors
    /// `P002` for a type that can't be compared.
    pub(super) fn try_new(types: &[DataType]) -> Result<Self, Error> {
        let keys = match types {
            [] => Keys::None,
            [DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64] => {
                Keys::Integer(HashMap::default())
            }
            [DataType::Utf8] => Keys::Text(HashMap::default()),
            types => {
                let fields: Vec<SortField> =
                    types.iter().map(|data_type| SortField::new(data_type.clone())).collect();
                let converter = RowConverter::new(fields).map_err(|error| {
                    let message = format!("these columns can't be keys of PARTITION BY: {error}");
                    Error::plan(code::NOT_SUPPORTED, message)
                        .hint("Partition by columns of other types, or by parts of them.")
                })?;
                Keys::Rows(converter, HashMap::default())
            }
        };
        Ok(Self { keys, null: None, types: types.to_vec(), numbers: Vec::new() })
    }

    /// The partition of each row.
    pub(super) fn number(
        &mut self,
        columns: &[ArrayRef],
        rows: usize,
        tracker: &mut Tracker,
    ) -> Result<&[u32], Error> {
        self.forget_idle(tracker);
        let Self { keys, null, numbers, .. } = self;
        numbers.clear();
        match keys {
            Keys::None => {
                let only = *null.get_or_insert_with(|| tracker.add_partition());
                numbers.resize(rows, only);
            }
            Keys::Integer(known) => {
                let values = cast(&columns[0], &DataType::Int64).map_err(|error| arrow_failure(&error))?;
                let values = values.as_primitive::<Int64Type>();
                let mut last = None;
                for row in 0..rows {
                    if values.is_null(row) {
                        numbers.push(*null.get_or_insert_with(|| tracker.add_partition()));
                        continue;
                    }
                    let value = values.value(row);
                    let number = match last {
                        Some((key, number)) if key == value => number,
                        _ => *known.entry(value).or_insert_with(|| tracker.add_partition()),
                    };
                    last = Some((value, number));
                    numbers.push(number);
                }
            }
            Keys::Text(known) => {
                let values = columns[0].as_string::<i32>();
                for row in 0..rows {
                    numbers.push(if values.is_null(row) {
                        *null.get_or_insert_with(|| tracker.add_partition())
                    } else {
                        number_of(known, values.value(row).as_bytes(), tracker)
                    });
                }
            }
            Keys::Rows(converter, known) => {
                let columns: Vec<ArrayRef> = columns.iter().cloned().map(one_nan_and_zero).collect();
                let keys = converter.convert_columns(&columns).map_err(|error| arrow_failure(&error))?;
                numbers.extend(keys.iter().map(|key| number_of(known, key.as_ref(), tracker)));
            }
        }
        Ok(&self.numbers)
    }

    /// The columns of the keys of partitions.
    pub(super) fn columns(&self, numbers: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let lost = || Error::internal("session", "a partition without a key");
        match &self.keys {
            Keys::None => Ok(Vec::new()),
            Keys::Integer(known) => {
                let keys: HashMap<u32, i64, RandomState> =
                    known.iter().map(|(key, number)| (*number, *key)).collect();
                let column: Int64Array = numbers.iter().map(|number| keys.get(number).copied()).collect();
                Ok(vec![cast(&column, &self.types[0]).map_err(|error| arrow_failure(&error))?])
            }
            Keys::Text(known) => {
                let keys = keys_of(known);
                let text = |number: &u32| keys.get(number).map(|key| std::str::from_utf8(key)).transpose();
                let column = numbers.iter().map(text).collect::<Result<StringArray, _>>();
                Ok(vec![Arc::new(column.map_err(|error| Error::internal("session", error))?)])
            }
            Keys::Rows(converter, known) => {
                let (keys, parser) = (keys_of(known), converter.parser());
                let keys = numbers.iter().map(|number| keys.get(number).copied().ok_or_else(lost));
                let keys = keys.collect::<Result<Vec<_>, _>>()?;
                let rows = keys.into_iter().map(|key| parser.parse(key));
                converter.convert_rows(rows).map_err(|error| arrow_failure(&error))
            }
        }
    }

    /// Drops the keys of partitions without open sessions, once they are most of all.
    fn forget_idle(&mut self, tracker: &mut Tracker) {
        if tracker.idle_partitions() < FEW_IDLE || tracker.idle_partitions() * 2 < tracker.partitions() {
            return;
        }
        match &mut self.keys {
            Keys::None => return,
            Keys::Integer(known) => known.retain(|_, number| !tracker.drop_if_idle(*number)),
            Keys::Text(known) | Keys::Rows(_, known) => {
                known.retain(|_, number| !tracker.drop_if_idle(*number));
            }
        }
        self.null = self.null.filter(|number| !tracker.drop_if_idle(*number));
    }

    /// Number of keys.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        usize::from(self.null.is_some())
            + match &self.keys {
                Keys::None => 0,
                Keys::Integer(known) => known.len(),
                Keys::Text(known) | Keys::Rows(_, known) => known.len(),
            }
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        match &self.keys {
            Keys::None => 0,
            Keys::Integer(known) => known.capacity() * 17,
            Keys::Text(known) | Keys::Rows(_, known) => known.capacity() * 41,
        }
    }
}

/// Keys by the number of their partition.
fn keys_of(known: &HashMap<Box<[u8]>, u32, RandomState>) -> HashMap<u32, &[u8], RandomState> {
    known.iter().map(|(key, number)| (*number, &**key)).collect()
}

/// The number of a key; only a new one is copied.
fn number_of(known: &mut HashMap<Box<[u8]>, u32, RandomState>, key: &[u8], tracker: &mut Tracker) -> u32 {
    if let Some(number) = known.get(key) {
        return *number;
    }
    let number = tracker.add_partition();
    known.insert(key.into(), number);
    number
}
