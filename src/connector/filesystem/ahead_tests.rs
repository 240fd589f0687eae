//! Large files that several threads read: what comes is what one thread gives.

use std::fmt::Write as _;

use arrow::datatypes::DataType;

use crate::connector::testing::{read_by, table};
use crate::error::Error;

const COLUMNS: [(&str, DataType); 2] = [("n", DataType::Int64), ("s", DataType::Utf8)];

/// Rows, their lines, and the lines of rejected rows with the reasons.
type Found = (Vec<String>, Vec<u64>, Vec<(u64, String, String)>);

/// Reads a file by one thread and by three; all must agree.
fn read_all(name: &str, content: &str, options: &[(&str, &str)]) -> Result<Found, Error> {
    assert!(content.len() > 3 << 20, "too short to be read ahead");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    let path = path.to_string_lossy().into_owned();
    let mut all = vec![("path", path.as_str())];
    all.extend_from_slice(options);
    let table = table(&COLUMNS, &all);
    let read = |batch_rows, threads| {
        let found = read_by(&table, batch_rows, threads)?;
        let rejected = found.rejected.iter().map(|row| (row.line, row.text.clone(), row.reason.clone()));
        Ok((found.rows(), found.lines.clone(), rejected.collect()))
    };
    let expected: Result<Found, Error> = read(8192, 1);
    for (batch_rows, threads) in [(8192, 2), (100, 3)] {
        let found = read(batch_rows, threads);
        // Not assert_eq: what it would print is large.
        assert!(found == expected, "{threads} threads and batches of {batch_rows} make a difference");
    }
    expected
}

#[test]
fn lines_of_json() {
    let mut content = String::from("\u{feff}");
    for number in 0..60_000 {
        let text = "é漢".repeat(number % 13);
        match number % 9_973 {
            5_000 => content.push_str("\n{\"n\":\"x\"}\n{\"n\":1,\n\u{1}\n"),
            5_001 => writeln!(content, "{{\"s\":\"{}\",\"n\":{number}}}\r", "long ".repeat(30_000)).unwrap(),
            _ => writeln!(content, "{{\"n\":{number},\"s\":\"{text}\",\"z\":[1,{{}}]}}").unwrap(),
        }
    }
    content.push_str("{\"n\":-1}");
    let (rows, lines, rejected) = read_all("in.json", &content, &[("errors", "side")]).unwrap();
    // Of each of the six bad places: one row less, one blank line and three bad ones more.
    assert_eq!((rows.len(), lines.len(), rejected.len()), (59_995, 59_995, 18));
    assert_eq!(rows.last().unwrap(), "-1, NULL");
    assert_eq!(*lines.last().unwrap(), 60_001 + 6 * 3);
    assert_eq!(rejected[3].0, 5_001 + 3 + 9_973 + 1);
    let error = read_all("in.json", &content, &[]).unwrap_err();
    assert!(error.message().ends_with("line 5002, column \"n\": \"x\" is not a BIGINT"), "{error:?}");
}

#[test]
fn csv_with_and_without_quotes() {
    for (quoted, options) in [
        ("", &[][..]),
        ("\"a, \"\"b\"\"\n, c\"", &[("csv.allow-comments", "true")][..]),
        ("a\\\nb\\,c", &[("csv.escape-character", "\\")][..]),
    ] {
        let mut content = String::from("s,n\n");
        let mut line_ends = 1;
        for number in 0..70_000 {
            let text = "wort ".repeat(number % 17);
            match number % 7_000 {
                6_999 => {
                    line_ends += 3 + quoted.matches('\n').count() as u64;
                    write!(content, "{quoted},{number}\nx,y,z\nx,y\n").unwrap();
                }
                1_000 if options == [("csv.allow-comments", "true")] => {
                    line_ends += 2;
                    write!(content, "# a \"comment\n{text},{number}\r\n").unwrap();
                }
                _ => {
                    line_ends += 1;
                    writeln!(content, "{text},{number}").unwrap();
                }
            }
        }
        let options = [options, &[("errors", "side")]].concat();
        let (rows, lines, rejected) = read_all("in.csv", &content, &options).unwrap();
        assert_eq!((rows.len(), rejected.len()), (70_000, 20), "{options:?}");
        assert_eq!(rejected.last().unwrap().0, line_ends, "{options:?}");
        assert_eq!(rejected.last().unwrap().1, "x,y");
        let before_bad_ones = line_ends - 2 - quoted.matches('\n').count() as u64;
        assert_eq!(*lines.last().unwrap(), before_bad_ones, "{options:?}");
    }
}
