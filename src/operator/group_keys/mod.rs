//! Numbers for the keys of groups: what `GROUP BY` of a window looks up once per row.
//!
//! A group's number is its place in the order in which the groups were first seen, whatever the
//! batches. Three forms, by the types of the key columns: one fixed-width column, several that fit
//! into 128 bits together, one column of text or bytes; everything else is compared as encoded rows.
//! Keys are as the caller gives them: it has made one zero and one NaN of all (`one_nan_and_zero`).
//!
//! Nothing here knows windows or aggregates, and no key is ever forgotten: a table is thrown away whole. Keys that
//! come and go have [`super::keys`].

mod bytes;
mod chunks;
mod encoded;
mod fixed;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Schema};

use crate::error::Error;

pub(super) use chunks::CHUNK;
pub(super) use fixed::{PackedKey, Packing, bits, column as fixed_column, width as fixed_width};

/// The keys of groups, numbered from 0 as they are first seen.
pub(super) trait GroupKeys: Send {
    /// Writes the number of each row's group to `ids`, in place of what it held.
    ///
    /// # Errors
    /// An internal error if the columns can't be encoded.
    fn intern(&mut self, columns: &[ArrayRef], ids: &mut Vec<usize>) -> Result<(), Error>;

    /// Makes room for so many groups, which are expected.
    fn expect(&mut self, groups: usize);

    /// Number of groups.
    fn len(&self) -> usize;

    /// Memory in bytes, estimated.
    fn size(&self) -> usize;

    /// The keys, a row for each group.
    ///
    /// # Errors
    /// An internal error if the keys can't be decoded.
    fn columns(&self) -> Result<Vec<ArrayRef>, Error>;

    /// As `columns`, in pieces of a chunk of groups each or all in one, one piece at least. What does not change any more is shared, not
    /// copied.
    ///
    /// # Errors
    /// An internal error if the keys can't be decoded.
    fn pieces(&self) -> Result<Vec<Vec<ArrayRef>>, Error> {
        Ok(vec![self.columns()?])
    }

    /// As `columns`; buffers are moved where that can be.
    ///
    /// # Errors
    /// An internal error if the keys can't be decoded.
    fn into_columns(self: Box<Self>) -> Result<Vec<ArrayRef>, Error>;
}

/// The form for keys of these columns, of which there is one at least.
///
/// # Errors
/// An internal error for a type that can't be a key: planning has refused it.
pub(super) fn group_keys(schema: &Schema) -> Result<Box<dyn GroupKeys>, Error> {
    let types: Vec<&DataType> = schema.fields().iter().map(|field| field.data_type()).collect();
    if let [only] = types.as_slice() {
        if let Some(width @ 1..=8) = fixed::width(only) {
            return Ok(Box::new(fixed::One::new((*only).clone(), width)));
        }
        match only {
            DataType::Utf8 => return Ok(Box::new(bytes::Bytes::new(bytes::Kind::Text))),
            DataType::Binary => return Ok(Box::new(bytes::Bytes::new(bytes::Kind::Binary))),
            _ => {}
        }
    }
    match fixed::Packed::for_columns(&types) {
        Some(packed) => Ok(Box::new(packed)),
        None => Ok(Box::new(encoded::Encoded::try_new(schema)?)),
    }
}

#[cfg(test)]
mod tests;
