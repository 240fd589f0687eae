//! Tables of CSV: what is read, what is refused, and what the message says.

use arrow::datatypes::{DataType, Field, TimeUnit};

use crate::connector::testing::{Everything, read_text};
use crate::error::Error;

const INT: DataType = DataType::Int32;
const BIGINT: DataType = DataType::Int64;
const STRING: DataType = DataType::Utf8;
const TS3: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

fn csv(content: &str, columns: &[(&str, DataType)], options: &[(&str, &str)]) -> Result<Everything, Error> {
    read_text("in.csv", content.as_bytes(), columns, options)
}

fn rows(content: &str, columns: &[(&str, DataType)], options: &[(&str, &str)]) -> Vec<String> {
    csv(content, columns, options).unwrap().rows()
}

fn message(content: &str, columns: &[(&str, DataType)], options: &[(&str, &str)]) -> String {
    let error = csv(content, columns, options).unwrap_err();
    assert_eq!(error.code(), "F002");
    error.message().to_owned()
}

#[test]
fn quotes_empty_fields_and_the_null_literal() {
    let columns = [("ts", TS3), ("k", STRING), ("v", BIGINT), ("n", STRING)];
    let content = "2024-03-05 00:00:01,a,1,x\n\
                   2024-03-05 00:00:02,\"a\",2,\"x, \"\"y\"\"\"\r\n\
                   2024-03-05 00:00:03,\"b c\",3,NA\n\
                   \n\
                   2024-03-05 00:00:04,,4,\n\
                   2024-03-05 00:00:12,a,NA,\"NA\"";
    let all = csv(content, &columns, &[("csv.null-literal", "NA")]).unwrap();
    assert_eq!(
        all.rows(),
        [
            "2024-03-05T00:00:01.000, a, 1, x",
            "2024-03-05T00:00:02.000, a, 2, x, \"y\"",
            "2024-03-05T00:00:03.000, b c, 3, NULL",
            "2024-03-05T00:00:04.000, , 4, ",
            "2024-03-05T00:00:12.000, a, NULL, NA",
        ]
    );
    assert_eq!(all.lines, [1, 2, 3, 5, 6]);
}

#[test]
fn empty_fields_without_a_null_literal() {
    let columns = [("s", STRING), ("v", INT)];
    assert_eq!(rows(",\n\"\",\"\"\nx,1\n", &columns, &[]), [", NULL", ", NULL", "x, 1"]);
    let null_is_empty = [("csv.null-literal", "")];
    assert_eq!(rows(",\n\"\",\"\"\nx,1\n", &columns, &null_is_empty), ["NULL, NULL", ", NULL", "x, 1"]);
}

#[test]
fn headers() {
    let columns = [("a", INT), ("b", STRING)];
    // Found when all names are there, in any order, with further columns beside them.
    assert_eq!(rows("b,x,a\nq,9,1\n", &columns, &[]), ["1, q"]);
    assert_eq!(rows("B,A\nq,1\n", &columns, &[]), ["1, q"]);
    assert_eq!(rows("1,q\n", &columns, &[]), ["1, q"]);
    assert_eq!(rows("a,b\n", &columns, &[]), Vec::<String>::new());
    let yes = [("csv.header", "true")];
    assert_eq!(rows("a,b\n1,q\n", &columns, &yes), ["1, q"]);
    let strings = [("a", STRING), ("b", STRING)];
    assert_eq!(rows("a,b\n1,q\n", &strings, &[("csv.header", "false")]), ["a, b", "1, q"]);
    let error = csv("aa,b\n1,q\n", &columns, &yes).unwrap_err();
    assert_eq!(error.message(), "in.csv line 1, the header has no column \"a\"");
    assert_eq!(error.hint_text(), Some("Use \"aa\", or change the header."));
}

#[test]
fn the_wrong_number_of_fields() {
    let columns = [("a", INT), ("b", STRING)];
    assert_eq!(message("1,x\n2\n", &columns, &[]), "in.csv line 2, 1 field where 2 are expected");
    assert_eq!(message("1,x\n2,y,z\n", &columns, &[]), "in.csv line 2, 3 fields where 2 are expected");
    let all = csv("1,x\n2\n3,y\n", &columns, &[("csv.ignore-parse-errors", "true")]).unwrap();
    assert_eq!((all.rows(), all.rejected.len()), (vec!["1, x".to_owned(), "3, y".to_owned()], 1));
}

#[test]
fn lines_are_counted_where_fields_hold_line_ends() {
    let columns = [("s", STRING), ("v", INT)];
    let content = "\"two\nlines\",1\r\n\"\r\n\n\",2\nx,12a\n";
    assert_eq!(message(content, &columns, &[]), "in.csv line 6, column \"v\": \"12a\" is not an INT");
    let all = csv(content, &columns, &[("errors", "side")]).unwrap();
    assert_eq!(all.lines, [1, 3]);
    assert_eq!((all.rejected[0].line, all.rejected[0].text.as_str()), (6, "x,12a"));
    let all = csv(content, &columns, &[("csv.ignore-parse-errors", "true")]).unwrap();
    assert_eq!(all.rows().last().unwrap(), "x, NULL");
}

#[test]
fn broken_quotes() {
    let columns = [("s", STRING)];
    assert_eq!(message("a\n\"b\nc\n", &columns, &[]), "in.csv line 2, a quoted field is not closed");
    assert_eq!(
        message("\"b\"c\n", &columns, &[]),
        "in.csv line 1, text follows the closing quote of a field"
    );
}

#[test]
fn other_characters() {
    let columns = [("a", INT), ("b", STRING)];
    let options =
        [("csv.field-delimiter", ";"), ("csv.quote-character", "'"), ("csv.escape-character", "\\\\")];
    assert_eq!(rows("1;'it\\'s; x'\n2;a\\;b\n", &columns, &options), ["1, it's; x", "2, a;b"]);
    assert_eq!(rows("#c\n1,x\n#d\n", &columns, &[("csv.allow-comments", "true")]), ["1, x"]);
    let none = [("csv.disable-quote-character", "true")];
    assert_eq!(rows("1,\"x\n", &columns, &none), ["1, \"x"]);
    let all = read_text("in.tsv", b"1\tx,y\n", &columns, &[]).unwrap();
    assert_eq!(all.rows(), ["1, x,y"]);
}

#[test]
fn marks_blanks_and_nested_values() {
    let xs = DataType::List(std::sync::Arc::new(Field::new("item", INT, true)));
    let columns = [("a", INT), ("xs", xs)];
    assert_eq!(rows("\u{feff} 1 ,\"[1, 2]\"\n \n2,\n", &columns, &[]), ["1, [1,2]", "2, NULL"]);
    assert_eq!(message("1,[1\n", &columns, &[]), "in.csv line 1, column \"xs\": \"[1\" is not an ARRAY<INT>");
}

#[test]
fn invalid_utf8_is_the_fault_of_its_line() {
    let columns = [("a", STRING)];
    let all = read_text("in.csv", b"x\n\xff\ny\n", &columns, &[("errors", "skip")]).unwrap();
    assert_eq!((all.rows(), all.rejected[0].line), (vec!["x".to_owned(), "y".to_owned()], 2));
}
