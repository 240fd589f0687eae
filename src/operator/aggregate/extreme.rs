//! MIN and MAX.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use std::marker::PhantomData;
use std::sync::Arc;

use super::kept::{count_column, counts, keep, kept, numbers};
use super::{Reversible, Step};
use crate::error::Error;
use crate::operator::{StateReader, StateWriter};

/// A value as a number of the same order.
trait Ranked: Copy + Send {
    fn rank(self) -> i128;
    fn of_rank(rank: i128) -> Self;
}

macro_rules! ranked {
    ($($native:ty),*) => {$(
        impl Ranked for $native {
            fn rank(self) -> i128 {
                i128::from(self)
            }

            fn of_rank(rank: i128) -> Self {
                rank as Self
            }
        }
    )*};
}

ranked!(i8, i16, i32, i64, u8, u16, u32, u64, i128);

macro_rules! ranked_float {
    ($($native:ty, $signed:ty, $unsigned:ty);*) => {$(
        /// The total order: NaN is above all numbers.
        impl Ranked for $native {
            fn rank(self) -> i128 {
                let value = if self.is_nan() { <$native>::NAN } else { self };
                let bits = value.to_bits() as $signed;
                i128::from(bits ^ (((bits >> (<$signed>::BITS - 1)) as $unsigned) >> 1) as $signed)
            }

            fn of_rank(rank: i128) -> Self {
                let bits = rank as $signed;
                let bits = bits ^ (((bits >> (<$signed>::BITS - 1)) as $unsigned) >> 1) as $signed;
                <$native>::from_bits(bits as $unsigned)
            }
        }
    )*};
}

ranked_float!(f32, i32, u32; f64, i64, u64);

/// MIN or MAX of a type.
pub(super) struct Extremes<T> {
    is_max: bool,
    data_type: DataType,
    groups: Groups,
    of: PhantomData<fn() -> T>,
}

enum Groups {
    /// Rows only come: the best value.
    Best(Vec<Option<i128>>),
    /// Rows may go: how often each value is there.
    All(Vec<BTreeMap<i128, u64>>),
}

impl Extremes<()> {
    /// `None` for types that have no states of their own.
    pub(super) fn of(is_max: bool, arg: &DataType, removes: bool) -> Option<Box<dyn Reversible>> {
        fn of<T: ArrowPrimitiveType>(
            is_max: bool,
            arg: &DataType,
            removes: bool,
        ) -> Option<Box<dyn Reversible>>
        where
            T::Native: Ranked,
        {
            let groups = if removes { Groups::All(Vec::new()) } else { Groups::Best(Vec::new()) };
            Some(Box::new(Extremes::<T> { is_max, data_type: arg.clone(), groups, of: PhantomData }))
        }
        match arg {
            DataType::Int8 => of::<Int8Type>(is_max, arg, removes),
            DataType::Int16 => of::<Int16Type>(is_max, arg, removes),
            DataType::Int32 => of::<Int32Type>(is_max, arg, removes),
            DataType::Int64 => of::<Int64Type>(is_max, arg, removes),
            DataType::UInt8 => of::<UInt8Type>(is_max, arg, removes),
            DataType::UInt16 => of::<UInt16Type>(is_max, arg, removes),
            DataType::UInt32 => of::<UInt32Type>(is_max, arg, removes),
            DataType::UInt64 => of::<UInt64Type>(is_max, arg, removes),
            DataType::Float32 => of::<Float32Type>(is_max, arg, removes),
            DataType::Float64 => of::<Float64Type>(is_max, arg, removes),
            DataType::Decimal128(..) => of::<Decimal128Type>(is_max, arg, removes),
            DataType::Date32 => of::<Date32Type>(is_max, arg, removes),
            DataType::Timestamp(TimeUnit::Second, _) => of::<TimestampSecondType>(is_max, arg, removes),
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                of::<TimestampMillisecondType>(is_max, arg, removes)
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                of::<TimestampMicrosecondType>(is_max, arg, removes)
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                of::<TimestampNanosecondType>(is_max, arg, removes)
            }
            _ => None,
        }
    }
}

impl<T: ArrowPrimitiveType> Reversible for Extremes<T>
where
    T::Native: Ranked,
{
    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        match &mut self.groups {
            Groups::Best(all) => all.resize(groups.max(all.len()), None),
            Groups::All(all) => all.resize_with(groups.max(all.len()), BTreeMap::new),
        }
        Ok(())
    }

    fn run(&mut self, steps: &[Step], args: &[ArrayRef]) -> Result<ArrayRef, Error> {
        let column = args.first().and_then(|arg| arg.as_primitive_opt::<T>());
        let column = column.ok_or_else(|| Error::internal("aggregate", "an argument has another type"))?;
        let mut values: Vec<Option<T::Native>> = Vec::new();
        let is_max = self.is_max;
        for step in steps {
            match (*step, &mut self.groups) {
                (Step::Add { row, .. } | Step::Remove { row, .. }, _) if column.is_null(row as usize) => {}
                (Step::Add { group, row }, Groups::Best(all)) => {
                    let (rank, best) = (column.value(row as usize).rank(), &mut all[group as usize]);
                    let is_better = best.is_none_or(|best| if is_max { best < rank } else { rank < best });
                    if is_better {
                        *best = Some(rank);
                    }
                }
                (Step::Add { group, row }, Groups::All(all)) => {
                    *all[group as usize].entry(column.value(row as usize).rank()).or_default() += 1;
                }
                (Step::Remove { .. }, Groups::Best(_)) => {
                    return Err(Error::internal("aggregate", "a row goes that was to stay"));
                }
                (Step::Remove { group, row }, Groups::All(all)) => {
                    let (rank, all) = (column.value(row as usize).rank(), &mut all[group as usize]);
                    match all.get_mut(&rank) {
                        Some(count) if *count > 1 => *count -= 1,
                        Some(_) => drop(all.remove(&rank)),
                        None => return Err(Error::internal("aggregate", "a row goes that never came")),
                    }
                }
                (Step::Give { group }, groups) => {
                    let best = match groups {
                        Groups::Best(all) => all[group as usize],
                        Groups::All(all) if is_max => all[group as usize].keys().next_back().copied(),
                        Groups::All(all) => all[group as usize].keys().next().copied(),
                    };
                    values.push(best.map(T::Native::of_rank));
                }
                (Step::Clear { group }, Groups::Best(all)) => all[group as usize] = None,
                (Step::Clear { group }, Groups::All(all)) => all[group as usize].clear(),
            }
        }
        Ok(Arc::new(PrimitiveArray::<T>::from_iter(values).with_data_type(self.data_type.clone())))
    }

    fn snapshot(&mut self, groups: &[u32], state: &mut StateWriter) -> Result<(), Error> {
        let (mut places, mut values, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for (place, group) in groups.iter().enumerate() {
            let mut push = |rank: i128, count: u64| {
                places.push(place as u32);
                values.push(T::Native::of_rank(rank));
                counts.push(count);
            };
            match &self.groups {
                Groups::Best(all) => all[*group as usize].into_iter().for_each(|rank| push(rank, 1)),
                Groups::All(all) => {
                    all[*group as usize].iter().for_each(|(rank, count)| push(*rank, *count));
                }
            }
        }
        let values = PrimitiveArray::<T>::from_iter_values(values).with_data_type(self.data_type.clone());
        keep(state, "values", places, vec![Arc::new(values), count_column(counts)])
    }

    fn restore(&mut self, groups: &[u32], state: &mut StateReader) -> Result<(), Error> {
        let (groups, columns) = kept(state, "values", groups)?;
        let (values, counts) = (numbers::<T>(&columns, 0)?.values(), counts(&columns, 1)?);
        for ((group, value), count) in groups.into_iter().zip(values).zip(counts) {
            match &mut self.groups {
                Groups::Best(all) => all[group as usize] = Some(value.rank()),
                Groups::All(all) => {
                    all[group as usize].insert(value.rank(), *count);
                }
            }
        }
        Ok(())
    }

    fn size(&self) -> usize {
        match &self.groups {
            Groups::Best(all) => all.capacity() * size_of::<Option<i128>>(),
            Groups::All(all) => {
                let entry = size_of::<i128>() + size_of::<u64>();
                all.iter().map(|one| size_of::<BTreeMap<i128, u64>>() + one.len() * 2 * entry).sum()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_of_floats_is_their_total_order() {
        let ascending =
            [f64::NEG_INFINITY, -1.5, -f64::MIN_POSITIVE, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        assert!(ascending.windows(2).all(|pair| pair[0].rank() < pair[1].rank()));
        for value in ascending {
            assert_eq!(f64::of_rank(value.rank()).to_bits(), value.to_bits());
        }
        assert!((-1.0f32).rank() < 1.0f32.rank());
        assert_eq!(f32::of_rank((-2.5f32).rank()), -2.5);
    }

    #[test]
    fn the_next_best_stands_when_the_best_goes() {
        let column: ArrayRef =
            Arc::new(arrow::array::Int64Array::from(vec![Some(3), Some(7), None, Some(7)]));
        let mut max = Extremes::of(true, &DataType::Int64, true).unwrap();
        max.grow(1).unwrap();
        let (add, remove) = (|row| Step::Add { group: 0, row }, |row| Step::Remove { group: 0, row });
        let give = Step::Give { group: 0 };
        let steps = [
            give,
            add(0),
            add(1),
            add(2),
            add(3),
            remove(1),
            give,
            remove(3),
            give,
            remove(2),
            remove(0),
            give,
        ];
        let given = max.run(&steps, &[column]).unwrap();
        let given: Vec<Option<i64>> = given.as_primitive::<Int64Type>().iter().collect();
        assert_eq!(given, [None, Some(7), Some(3), None]);
    }
}
