//! Keys of fixed width: one column in 64 bits, several in 128.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, BooleanArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::GroupKeys;
use super::chunks::Chunks;
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;

/// Bytes of a value of this type, if all have as many; a truth value is given one.
pub(in crate::operator) fn width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Boolean => Some(1),
        _ => data_type.primitive_width().filter(|width| *width <= 16),
    }
}

/// One column of at most eight bytes.
pub(super) struct One {
    data_type: DataType,
    width: usize,
    /// Beside its number each key itself: a look-up reads one place of memory.
    table: HashTable<(u64, u32)>,
    keys: Chunks,
    /// The group of NULL.
    null: Option<u32>,
    hasher: FixedState,
}

impl One {
    pub(super) fn new(data_type: DataType, width: usize) -> Self {
        Self {
            data_type,
            width,
            table: HashTable::new(),
            keys: Chunks::default(),
            null: None,
            hasher: FixedState::default(),
        }
    }

    fn add<T: Copy + Into<u64>>(&mut self, values: &[T], nulls: Option<&NullBuffer>, ids: &mut Vec<usize>) {
        let Some(nulls) = nulls else {
            ids.extend(values.iter().map(|value| self.number((*value).into())));
            return;
        };
        for (value, valid) in values.iter().zip(nulls) {
            ids.push(if valid { self.number((*value).into()) } else { self.number_of_null() });
        }
    }

    #[inline]
    fn number(&mut self, key: u64) -> usize {
        let hasher = &self.hasher;
        let entry =
            self.table.entry(hasher.hash_one(key), |other| other.0 == key, |other| hasher.hash_one(other.0));
        match entry {
            Entry::Occupied(entry) => entry.get().1 as usize,
            Entry::Vacant(entry) => {
                let number = self.keys.len();
                entry.insert((key, number as u32));
                self.keys.push(key);
                number
            }
        }
    }

    fn number_of_null(&mut self) -> usize {
        let keys = &mut self.keys;
        let number = *self.null.get_or_insert_with(|| {
            keys.push(0);
            keys.len() as u32 - 1
        });
        number as usize
    }

    /// The keys of the groups from `first` on.
    fn column(&self, first: usize, keys: ScalarBuffer<u64>) -> Result<ArrayRef, Error> {
        let null =
            self.null.map(|null| null as usize).filter(|null| (first..first + keys.len()).contains(null));
        let valid = null.map(|null| (first..first + keys.len()).map(|group| group != null).collect());
        match self.width {
            8 => array(&self.data_type, keys.len(), keys.into_inner(), valid.map(NullBuffer::new)),
            width => column(&self.data_type, width, keys.iter().map(|key| u128::from(*key)), valid),
        }
    }
}

impl GroupKeys for One {
    fn intern(&mut self, columns: &[ArrayRef], ids: &mut Vec<usize>) -> Result<(), Error> {
        ids.clear();
        let column = &columns[0];
        let nulls = column.logical_nulls();
        let nulls = nulls.as_ref().filter(|nulls| nulls.null_count() > 0);
        match self.width {
            1 => self.add(&values::<u8>(column), nulls, ids),
            2 => self.add(&values::<u16>(column), nulls, ids),
            4 => self.add(&values::<u32>(column), nulls, ids),
            _ => self.add(&values::<u64>(column), nulls, ids),
        }
        Ok(())
    }

    fn expect(&mut self, groups: usize) {
        self.table.reserve(groups, |other| self.hasher.hash_one(other.0));
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn size(&self) -> usize {
        self.table.capacity() * size_of::<(u64, u32)>() + self.keys.size()
    }

    fn columns(&self) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![self.column(0, self.keys.to_vec().into())?])
    }

    fn pieces(&self) -> Result<Vec<Vec<ArrayRef>>, Error> {
        let pieces = self.keys.pieces().into_iter();
        pieces.map(|(first, keys)| Ok(vec![self.column(first, keys)?])).collect()
    }

    fn into_columns(self: Box<Self>) -> Result<Vec<ArrayRef>, Error> {
        self.columns()
    }
}

/// How the values of columns that have at most 16 bytes together lie in one key.
pub(in crate::operator) struct Packing {
    columns: Vec<Part>,
}

struct Part {
    data_type: DataType,
    width: usize,
    shift: u32,
}

/// The bits of the columns, and a bit for each that is NULL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(in crate::operator) struct PackedKey {
    high: u64,
    low: u64,
    nulls: u32,
}

impl PackedKey {
    fn bits(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

impl Packing {
    /// `None` if they do not fit.
    pub(in crate::operator) fn for_columns(types: &[&DataType]) -> Option<Self> {
        let (mut columns, mut bytes) = (Vec::with_capacity(types.len()), 0);
        for data_type in types {
            let width = width(data_type)?;
            columns.push(Part { data_type: (*data_type).clone(), width, shift: bytes as u32 * 8 });
            bytes += width;
        }
        (bytes <= 16).then_some(Self { columns })
    }

    /// Writes the keys of rows to `keys`, in place of what it held.
    pub(in crate::operator) fn pack(&self, columns: &[ArrayRef], keys: &mut Vec<PackedKey>) {
        keys.clear();
        keys.resize(columns.first().map_or(0, |column| column.len()), PackedKey::default());
        for (place, column) in columns.iter().enumerate() {
            let nulls = column.logical_nulls();
            let nulls = nulls.as_ref().filter(|nulls| nulls.null_count() > 0);
            match self.columns[place].width {
                1 => self.pack_column(place, &values::<u8>(column), nulls, keys),
                2 => self.pack_column(place, &values::<u16>(column), nulls, keys),
                4 => self.pack_column(place, &values::<u32>(column), nulls, keys),
                8 => self.pack_column(place, &values::<u64>(column), nulls, keys),
                _ => self.pack_column(place, &wide_values(column), nulls, keys),
            }
        }
    }

    fn pack_column<T: Copy + Into<u128>>(
        &self,
        place: usize,
        values: &[T],
        nulls: Option<&NullBuffer>,
        keys: &mut [PackedKey],
    ) {
        let shift = self.columns[place].shift;
        for (row, (key, value)) in keys.iter_mut().zip(values).enumerate() {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                key.nulls |= 1 << place;
                continue;
            }
            let bits = (*value).into() << shift;
            key.low |= bits as u64;
            key.high |= (bits >> 64) as u64;
        }
    }

    /// The columns of keys.
    pub(in crate::operator) fn columns(
        &self,
        keys: impl ExactSizeIterator<Item = PackedKey> + Clone,
    ) -> Result<Vec<ArrayRef>, Error> {
        let each = self.columns.iter().enumerate().map(|(place, part)| {
            let bit = 1 << place;
            let nulls = keys.clone().any(|key| key.nulls & bit != 0);
            let nulls = nulls.then(|| keys.clone().map(|key| key.nulls & bit == 0).collect());
            column(&part.data_type, part.width, keys.clone().map(|key| key.bits() >> part.shift), nulls)
        });
        each.collect()
    }
}

/// Columns that have at most 16 bytes together.
pub(super) struct Packed {
    packing: Packing,
    table: HashTable<(PackedKey, u32)>,
    keys: Vec<PackedKey>,
    hasher: FixedState,
    /// Scratch space: the keys of a batch.
    batch: Vec<PackedKey>,
}

impl Packed {
    /// `None` if they do not fit.
    pub(super) fn for_columns(types: &[&DataType]) -> Option<Self> {
        Some(Self {
            packing: Packing::for_columns(types)?,
            table: HashTable::new(),
            keys: Vec::new(),
            hasher: FixedState::default(),
            batch: Vec::new(),
        })
    }
}

impl GroupKeys for Packed {
    fn intern(&mut self, columns: &[ArrayRef], ids: &mut Vec<usize>) -> Result<(), Error> {
        ids.clear();
        self.packing.pack(columns, &mut self.batch);
        let (hasher, keys) = (&self.hasher, &mut self.keys);
        for key in &self.batch {
            let entry = self.table.entry(
                hasher.hash_one(key),
                |other| other.0 == *key,
                |other| hasher.hash_one(other.0),
            );
            ids.push(match entry {
                Entry::Occupied(entry) => entry.get().1 as usize,
                Entry::Vacant(entry) => {
                    let number = keys.len();
                    entry.insert((*key, number as u32));
                    keys.push(*key);
                    number
                }
            });
        }
        Ok(())
    }

    fn expect(&mut self, groups: usize) {
        self.table.reserve(groups, |other| self.hasher.hash_one(other.0));
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn size(&self) -> usize {
        self.table.capacity() * size_of::<(PackedKey, u32)>() + self.keys.capacity() * size_of::<PackedKey>()
    }

    fn columns(&self) -> Result<Vec<ArrayRef>, Error> {
        self.packing.columns(self.keys.iter().copied())
    }

    fn into_columns(self: Box<Self>) -> Result<Vec<ArrayRef>, Error> {
        self.columns()
    }
}

/// The values of a column of at most eight bytes each as plain numbers.
pub(in crate::operator) fn bits(column: &ArrayRef, width: usize) -> ScalarBuffer<u64> {
    fn widened<T: ArrowNativeType + From<bool> + Into<u64>>(column: &ArrayRef) -> ScalarBuffer<u64> {
        values::<T>(column).iter().map(|value| (*value).into()).collect()
    }
    match width {
        1 => widened::<u8>(column),
        2 => widened::<u16>(column),
        4 => widened::<u32>(column),
        _ => values::<u64>(column),
    }
}

/// The values of a column as plain numbers of their width.
fn values<T: ArrowNativeType + From<bool>>(column: &ArrayRef) -> ScalarBuffer<T> {
    if let Some(truths) = column.as_boolean_opt() {
        return truths.values().iter().map(T::from).collect();
    }
    let data = column.to_data();
    ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
}

fn wide_values(column: &ArrayRef) -> Vec<u128> {
    let data = column.to_data();
    let halves: ScalarBuffer<u64> =
        ScalarBuffer::new(data.buffers()[0].clone(), data.offset() * 2, data.len() * 2);
    let wide = |pair: &[u64]| u128::from(pair[1]) << 64 | u128::from(pair[0]);
    halves.chunks_exact(2).map(wide).collect()
}

/// A column from the lower bits of each key. `valid`: false where it is NULL.
pub(in crate::operator) fn column(
    data_type: &DataType,
    width: usize,
    keys: impl ExactSizeIterator<Item = u128>,
    valid: Option<BooleanBuffer>,
) -> Result<ArrayRef, Error> {
    let (len, nulls) = (keys.len(), valid.map(NullBuffer::new));
    if *data_type == DataType::Boolean {
        let truths = keys.map(|key| key & 1 == 1).collect();
        return Ok(Arc::new(BooleanArray::new(truths, nulls)));
    }
    let buffer = match width {
        1 => Buffer::from_iter(keys.map(|key| key as u8)),
        2 => Buffer::from_iter(keys.map(|key| key as u16)),
        4 => Buffer::from_iter(keys.map(|key| key as u32)),
        8 => Buffer::from_iter(keys.map(|key| key as u64)),
        _ => Buffer::from_iter(keys.map(|key| key as i128)),
    };
    array(data_type, len, buffer, nulls)
}

/// A column of `len` values that lie in a buffer.
fn array(
    data_type: &DataType,
    len: usize,
    buffer: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, Error> {
    let data = ArrayData::builder(data_type.clone()).len(len).add_buffer(buffer).nulls(nulls).build();
    Ok(make_array(data.map_err(|error| arrow_failure(&error))?))
}
