//! What the metadata of Parquet files tells of their values, without reading them.

use std::collections::HashMap;
use std::fs::File;

use parquet::basic::LogicalType;
use parquet::data_type::ByteArray;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

use super::listing::FoundFile;
use super::parquet_split::load;
use crate::catalog::FrequentValue;

/// Files whose metadata is looked at; a table of more is not known.
const MOST_FILES: usize = 256;
/// A share that is worth to be told.
const LEAST_SHARE: f64 = 0.1;

/// What is known of the rows of one column.
#[derive(Default)]
struct Seen {
    nulls: u64,
    /// Rows of row groups of one value, by that value as SQL writes it.
    values: HashMap<String, u64>,
}

/// For each column the value that most rows are known to have: NULL, or one that fills row groups.
/// Nothing if there are too many files, or one can't be read.
pub(super) fn frequent_values(files: &[FoundFile]) -> Vec<FrequentValue> {
    if files.len() > MOST_FILES {
        return Vec::new();
    }
    let mut rows = 0;
    let mut columns: Vec<(String, Seen)> = Vec::new();
    for file in files.iter().filter(|file| file.facts.size != Some(0)) {
        let Some(known) = File::open(&file.path).ok().and_then(|open| load(&open, &file.facts.path).ok())
        else {
            return Vec::new();
        };
        for group in known.metadata().row_groups() {
            rows += group.num_rows().max(0).unsigned_abs();
            look(group, &mut columns);
        }
    }
    let most = |(column, seen): (String, Seen)| {
        let nulls = ("NULL".to_owned(), seen.nulls);
        // Among equals the first in order, so that it is always the same one.
        let (value, count) = seen
            .values
            .into_iter()
            .chain([nulls])
            .max_by_key(|(value, count)| (*count, std::cmp::Reverse(value.clone())))?;
        let share = count as f64 / rows.max(1) as f64;
        (share >= LEAST_SHARE).then_some(FrequentValue { column, value, share })
    };
    columns.into_iter().filter_map(most).collect()
}

fn look(group: &RowGroupMetaData, columns: &mut Vec<(String, Seen)>) {
    for chunk in group.columns() {
        let descriptor = chunk.column_descr();
        // A leaf of a list or struct is no column.
        let [name] = descriptor.path().parts() else { continue };
        let Some(statistics) = chunk.statistics().filter(|_| descriptor.max_rep_level() == 0) else {
            continue;
        };
        let Some(nulls) = statistics.null_count_opt() else { continue };
        let place = columns.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            columns.push((name.clone(), Seen::default()));
            columns.len() - 1
        });
        let seen = &mut columns[place].1;
        seen.nulls += nulls;
        let is_plain = matches!(
            descriptor.logical_type_ref(),
            None | Some(LogicalType::String | LogicalType::Integer { .. })
        );
        if let Some(value) = only_value(statistics).filter(|_| is_plain) {
            *seen.values.entry(value).or_default() += group.num_rows().max(0).unsigned_abs() - nulls;
        }
    }
}

/// The value of all rows that have one, if it is a number or text.
fn only_value(statistics: &Statistics) -> Option<String> {
    fn same<T: PartialEq>(least: Option<T>, most: Option<T>) -> Option<T> {
        least.filter(|least| Some(least) == most.as_ref())
    }
    if !statistics.min_is_exact() || !statistics.max_is_exact() {
        return None;
    }
    match statistics {
        Statistics::Int32(known) => Some(same(known.min_opt(), known.max_opt())?.to_string()),
        Statistics::Int64(known) => Some(same(known.min_opt(), known.max_opt())?.to_string()),
        Statistics::Boolean(known) => Some(same(known.min_opt(), known.max_opt())?.to_string()),
        Statistics::ByteArray(known) => text(same(known.min_opt(), known.max_opt())?),
        Statistics::Int96(_)
        | Statistics::Float(_)
        | Statistics::Double(_)
        | Statistics::FixedLenByteArray(_) => None,
    }
}

fn text(value: &ByteArray) -> Option<String> {
    let text = std::str::from_utf8(value.data()).ok()?;
    Some(format!("'{}'", text.replace('\'', "''")))
}
