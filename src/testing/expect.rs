//! What is expected and what is: the same, or the difference for people.

use std::collections::BTreeMap;

use super::rows::Row;

/// Longest lists that are compared line by line.
const MOST_LINES: usize = 2_000;

/// `None` if the rows are the same; otherwise the difference, a line a row.
pub(super) fn difference(
    expected: &[Row],
    actual: &[Row],
    ordered: bool,
    with_kinds: bool,
) -> Option<String> {
    let is_same = match ordered {
        true => expected == actual,
        false => counted(expected) == counted(actual),
    };
    if is_same {
        return None;
    }
    let show = |row: &Row| if with_kinds { row.with_kind() } else { row.to_string() };
    let lines = match ordered && expected.len().max(actual.len()) <= MOST_LINES {
        true => in_order(expected, actual),
        false => by_count(expected, actual),
    };
    let mut text = String::from("    - expected and not there, + there and not expected");
    for (mark, row) in lines {
        text.push_str(&format!("\n    {mark} {}", show(row)));
    }
    Some(text)
}

fn counted(rows: &[Row]) -> BTreeMap<&Row, usize> {
    let mut counts = BTreeMap::new();
    rows.iter().for_each(|row| *counts.entry(row).or_default() += 1);
    counts
}

/// The longest common rows, and what stands between them.
fn in_order<'a>(expected: &'a [Row], actual: &'a [Row]) -> Vec<(char, &'a Row)> {
    let width = actual.len() + 1;
    // The length of the longest common part of what follows.
    let mut common = vec![0_u32; (expected.len() + 1) * width];
    for (e, row) in expected.iter().enumerate().rev() {
        for (a, other) in actual.iter().enumerate().rev() {
            common[e * width + a] = match row == other {
                true => common[(e + 1) * width + a + 1] + 1,
                false => common[(e + 1) * width + a].max(common[e * width + a + 1]),
            };
        }
    }
    let (mut e, mut a) = (0, 0);
    let mut lines = Vec::new();
    while e < expected.len() || a < actual.len() {
        if e < expected.len() && a < actual.len() && expected[e] == actual[a] {
            lines.push((' ', &expected[e]));
            (e, a) = (e + 1, a + 1);
        } else if a == actual.len()
            || (e < expected.len() && common[(e + 1) * width + a] >= common[e * width + a + 1])
        {
            lines.push(('-', &expected[e]));
            e += 1;
        } else {
            lines.push(('+', &actual[a]));
            a += 1;
        }
    }
    lines
}

fn by_count<'a>(expected: &'a [Row], actual: &'a [Row]) -> Vec<(char, &'a Row)> {
    let mut left = counted(actual);
    let mut lines = Vec::new();
    for row in expected {
        match left.get_mut(row).filter(|count| **count > 0) {
            Some(count) => {
                *count -= 1;
                lines.push((' ', row));
            }
            None => lines.push(('-', row)),
        }
    }
    for (row, count) in left {
        lines.extend(std::iter::repeat_n(('+', row), count));
    }
    lines
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};

    use super::super::rows::expected_row;
    use super::*;

    fn rows(values: &[i64]) -> Vec<Row> {
        let schema = Schema::new(vec![Field::new("v", DataType::Int64, true)]);
        values.iter().map(|value| expected_row(&format!("{{\"v\":{value}}}"), &schema).unwrap()).collect()
    }

    fn marks(expected: &[i64], actual: &[i64], ordered: bool) -> Option<Vec<String>> {
        let text = difference(&rows(expected), &rows(actual), ordered, false)?;
        Some(
            text.lines()
                .skip(1)
                .map(|line| line.replace("{\"v\":", "").replace('}', "").trim().to_owned())
                .collect(),
        )
    }

    #[test]
    fn order_counts_if_it_is_asked_for() {
        assert_eq!(marks(&[1, 2], &[2, 1], false), None);
        assert_eq!(marks(&[1, 2], &[2, 1], true).unwrap(), ["- 1", "2", "+ 1"]);
        assert_eq!(marks(&[1, 2], &[1, 2], true), None);
    }

    #[test]
    fn a_row_too_few_or_too_many_is_seen() {
        assert_eq!(marks(&[1, 1], &[1], false).unwrap(), ["1", "- 1"]);
        assert_eq!(marks(&[1], &[1, 1], false).unwrap(), ["1", "+ 1"]);
        assert_eq!(marks(&[], &[3], true).unwrap(), ["+ 3"]);
        assert_eq!(marks(&[1, 2, 3], &[1, 9, 3], true).unwrap(), ["1", "- 2", "+ 9", "3"]);
    }
}
