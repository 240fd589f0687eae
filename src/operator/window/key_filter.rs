//! Groups that a person asks about by the value of one of their keys.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::error::Error;
use crate::operator::KeyFilter;
use crate::operator::evaluate::arrow_failure;

/// The names of an aggregation's keys, which stand behind the window's columns in its output.
#[derive(Debug, Clone)]
pub(super) struct KeyNames(Vec<String>);

impl KeyNames {
    /// `bounds`: the number of columns of the window; `keys`: that of the keys.
    pub(super) fn of(schema: &SchemaRef, bounds: usize, keys: usize) -> Self {
        Self(schema.fields().iter().skip(bounds).take(keys).map(|field| field.name().clone()).collect())
    }

    /// Which of the keys the filter is about.
    pub(super) fn place(&self, filter: &KeyFilter) -> Option<usize> {
        let exact = self.0.iter().position(|name| *name == filter.column);
        exact.or_else(|| self.0.iter().position(|name| name.eq_ignore_ascii_case(&filter.column)))
    }
}

/// Which groups have the value in their key. `keys`: the key's column, a row a group.
pub(super) fn matches(keys: &ArrayRef, filter: &KeyFilter) -> Result<Vec<bool>, Error> {
    let options = FormatOptions::default();
    let shown = ArrayFormatter::try_new(keys, &options).map_err(|error| arrow_failure(&error))?;
    // A time may be written as SQL does.
    let is_same = |text: &str| text == filter.value || text.replace('T', " ") == filter.value;
    Ok((0..keys.len()).map(|row| !keys.is_null(row) && is_same(&shown.value(row).to_string())).collect())
}

/// How many groups have the value in their key.
pub(super) fn count(keys: &ArrayRef, filter: &KeyFilter) -> Result<usize, Error> {
    Ok(matches(keys, filter)?.into_iter().filter(|is_it| *is_it).count())
}

/// The keys of `rows` groups as people read them; `None` where there are no keys.
pub(super) fn texts(keys: &[ArrayRef], rows: usize) -> Result<Vec<Option<String>>, Error> {
    let options = FormatOptions::default().with_null("NULL");
    let shown = keys.iter().map(|column| ArrayFormatter::try_new(column, &options));
    let shown = shown.collect::<Result<Vec<_>, _>>().map_err(|error| arrow_failure(&error))?;
    let text = |row: usize| {
        let parts: Vec<String> = shown.iter().map(|column| column.value(row).to_string()).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    };
    Ok((0..rows).map(text).collect())
}
