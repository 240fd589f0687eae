//! Which subtask a key belongs to: the same for rows on their way and for state that is kept of them.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion_common::hash_utils::{RandomState, create_hashes};

use crate::error::Error;

/// Fixed, so that a key always goes to the same subtask, in another process, too.
const HASHER: RandomState = RandomState::with_seed(0x7469_6465_6761_7465);

/// Writes the hash of each row's keys to `hashes`, in place of what it held.
///
/// # Errors
/// An internal error for types without a hash: planning has refused them.
pub(crate) fn hash_keys(keys: &[ArrayRef], rows: usize, hashes: &mut Vec<u64>) -> Result<(), Error> {
    let keys: Vec<_> = keys.iter().map(normalised).collect();
    hashes.clear();
    hashes.resize(rows, 0);
    create_hashes(&keys, &HASHER, hashes).map_err(|error| Error::internal("exchange", error))?;
    Ok(())
}

/// The subtask, of so many, that has the keys with this hash.
pub(crate) fn subtask_of(hash: u64, subtasks: usize) -> usize {
    // The upper half: the tables behind the exchange use the lower bits.
    ((hash >> 32) as u32 % subtasks as u32) as usize
}

/// Values that are one group must have one hash: −0.0 is 0.0 and every NaN is the same.
fn normalised(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float64 => {
            let one = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
            let array: Float64Array = column.as_primitive::<Float64Type>().unary(one);
            Arc::new(array)
        }
        DataType::Float32 => {
            let one = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
            let array: Float32Array = column.as_primitive::<Float32Type>().unary(one);
            Arc::new(array)
        }
        _ => Arc::clone(column),
    }
}
