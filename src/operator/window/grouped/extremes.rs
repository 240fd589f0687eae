//! MIN and MAX of integers, decimals, dates and times.

use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowNativeTypeOp, AsArray, BooleanArray, PrimitiveArray};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use super::super::recipe::Call;
use super::seen::Seen;
use super::{Column, GroupStates, Shared, misfit, taken};
use crate::error::Error;

/// Whether a type has states of its own here.
pub(super) fn has(data_type: &DataType) -> bool {
    states(true, data_type).is_ok()
}

/// MIN or MAX of a type.
///
/// # Errors
/// An internal error for a type that has none here.
pub(super) fn states(is_max: bool, data_type: &DataType) -> Result<Box<dyn GroupStates>, Error> {
    macro_rules! of {
        ($kind:ty) => {
            Box::new(Extremes::<$kind>::new(is_max, data_type))
        };
    }
    Ok(match data_type {
        DataType::Int8 => of!(Int8Type),
        DataType::Int16 => of!(Int16Type),
        DataType::Int32 => of!(Int32Type),
        DataType::Int64 => of!(Int64Type),
        DataType::UInt8 => of!(UInt8Type),
        DataType::UInt16 => of!(UInt16Type),
        DataType::UInt32 => of!(UInt32Type),
        DataType::UInt64 => of!(UInt64Type),
        DataType::Decimal128(..) => of!(Decimal128Type),
        DataType::Date32 => of!(Date32Type),
        DataType::Timestamp(TimeUnit::Second, _) => of!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => of!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => of!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => of!(TimestampNanosecondType),
        _ => return Err(misfit()),
    })
}

/// The best value of each group.
#[derive(Debug)]
struct Extremes<T: ArrowPrimitiveType> {
    is_max: bool,
    data_type: DataType,
    best: Column<T::Native>,
    seen: Seen,
}

impl<T: ArrowPrimitiveType> Extremes<T> {
    fn new(is_max: bool, data_type: &DataType) -> Self {
        Self { is_max, data_type: data_type.clone(), best: Column::default(), seen: Seen::default() }
    }

    fn array(&self, best: ScalarBuffer<T::Native>, seen: Option<NullBuffer>) -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::new(best, seen).with_data_type(self.data_type.clone()))
    }

    fn add(&mut self, ids: &[usize], values: &[T::Native], taken: Option<&BooleanBuffer>) {
        match self.is_max {
            true => self.best.update(ids, values, taken, |best, value| {
                if value.is_gt(*best) {
                    *best = value;
                }
            }),
            false => self.best.update(ids, values, taken, |best, value| {
                if value.is_lt(*best) {
                    *best = value;
                }
            }),
        }
    }
}

impl<T: ArrowPrimitiveType> GroupStates for Extremes<T> {
    fn update(
        &mut self,
        args: &[ArrayRef],
        ids: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<(), Error> {
        let values = args.first().ok_or_else(misfit)?;
        let (taken, before) = (taken(values, filter), self.best.len());
        let values = values.as_primitive_opt::<T>().ok_or_else(misfit)?.values();
        let worst = if self.is_max { T::Native::MIN_TOTAL_ORDER } else { T::Native::MAX_TOTAL_ORDER };
        self.best.grow(groups, worst);
        self.seen.note(ids, taken.as_ref(), before, groups);
        self.add(ids, values, taken.as_ref());
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], ids: &[usize], groups: usize) -> Result<(), Error> {
        self.update(states, ids, None, groups)
    }

    fn take(&mut self) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![self.results()?])
    }

    fn share(&mut self, _: &Call, _: usize) -> Result<Shared, Error> {
        let best = self.best.share();
        let seen = self.seen.share(best.len());
        let chunks = best.into_iter().zip(seen);
        Ok(Shared::Chunks(chunks.map(|(best, seen)| vec![self.array(best, seen)]).collect()))
    }

    fn results(&mut self) -> Result<ArrayRef, Error> {
        let (best, seen) = (self.best.take(), self.seen.take());
        Ok(self.array(best, seen))
    }

    fn size(&self) -> usize {
        self.best.size() + self.seen.size()
    }
}
