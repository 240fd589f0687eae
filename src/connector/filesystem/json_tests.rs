//! Tables of JSON lines: what is read, what is refused, and what the message says.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};

use crate::connector::testing::{Everything, read_text};
use crate::error::Error;

const INT: DataType = DataType::Int32;
const BIGINT: DataType = DataType::Int64;
const DOUBLE: DataType = DataType::Float64;
const STRING: DataType = DataType::Utf8;
const TS3: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

fn ltz3(zone: &str) -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some(Arc::from(zone)))
}

fn json(content: &str, columns: &[(&str, DataType)], options: &[(&str, &str)]) -> Result<Everything, Error> {
    read_text("in.json", content.as_bytes(), columns, options)
}

fn rows(content: &str, columns: &[(&str, DataType)]) -> Vec<String> {
    json(content, columns, &[]).unwrap().rows()
}

fn message(content: &str, columns: &[(&str, DataType)]) -> String {
    let error = json(content, columns, &[]).unwrap_err();
    assert_eq!(error.code(), "F002");
    error.message().to_owned()
}

#[test]
fn values_of_every_type() {
    let columns = [
        ("id", INT),
        ("s", STRING),
        ("i", BIGINT),
        ("d", DOUBLE),
        ("b", DataType::Boolean),
        ("p", DataType::Decimal128(6, 2)),
        ("dt", DataType::Date32),
        ("tm", DataType::Time32(TimeUnit::Millisecond)),
        ("ts", TS3),
    ];
    let content = r#"{"id":1}
{"id":"2","s":12,"i":"34","d":"1.5","b":"true","p":"12.345","dt":"2024-02-29","tm":"10:11:12","ts":"2024-02-29 10:11:12.123","extra":{"x":1}}
{"id":3,"s":{"a": 1},"i":5.0,"d":7,"b":true,"p":1e2,"ts":"2024-02-29 10:11:12"}
{"id":4,"s":true,"ts":"2024-02-29 10:11:12.1239"}
"#;
    assert_eq!(
        rows(content, &columns),
        [
            "1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
            "2, 12, 34, 1.5, true, 12.35, 2024-02-29, 10:11:12, 2024-02-29T10:11:12.123",
            "3, {\"a\":1}, 5, 7.0, true, 100.00, NULL, NULL, 2024-02-29T10:11:12.000",
            "4, true, NULL, NULL, NULL, NULL, NULL, NULL, 2024-02-29T10:11:12.123",
        ]
    );
}

#[test]
fn nested_values() {
    let c = Field::new("c", STRING, true);
    let b = Field::new("b", DataType::Struct(vec![c].into()), true);
    let r = DataType::Struct(vec![Field::new("a", BIGINT, true), b].into());
    let entries =
        DataType::Struct(vec![Field::new("key", STRING, false), Field::new("value", BIGINT, true)].into());
    let m = DataType::Map(Arc::new(Field::new("entries", entries, false)), false);
    let xs = DataType::List(Arc::new(Field::new("item", STRING, true)));
    let columns = [("id", INT), ("r", r), ("m", m), ("xs", xs)];
    let content = r#"{"id":1,"r":{"a":1,"b":{"c":"x"}},"m":{"k":5,"z":6},"xs":["p","q"]}
{"id":2,"r":null,"m":{},"xs":[]}
{"id":3,"r":{"b":{"c":null,"d":[{}]},"a":null},"m":null,"xs":[null, 1, {"a":[ ]}]}
{"m":{"k":1,"z":2,"k":3},"r":{},"id":4}
"#;
    assert_eq!(
        rows(content, &columns),
        [
            r#"1, {"a":1,"b":{"c":"x"}}, {"k":5,"z":6}, ["p","q"]"#,
            "2, NULL, {}, []",
            r#"3, {"a":null,"b":{"c":null}}, NULL, [null,"1","{\"a\":[]}"]"#,
            r#"4, {"a":null,"b":null}, {"z":2,"k":3}, NULL"#,
        ]
    );
    assert_eq!(
        message(r#"{"r":{"a":"x","b":null}}"#, &columns),
        "in.json line 1, column \"r.a\": \"x\" is not a BIGINT"
    );
    assert_eq!(message(r#"{"m":{"k":[]}}"#, &columns), "in.json line 1, column \"m\": [] is not a BIGINT");
}

#[test]
fn keys_in_any_order_and_twice() {
    let columns = [("a", INT), ("b", STRING)];
    let content = concat!(
        r#"{"a":1,"b":"x"}"#,
        "\n",
        r#"{"b":"y","a":2}"#,
        "\n",
        r#"{"z":0,"a":3,"y":[1,{"a":9}],"b":"q"}"#,
        "\n",
        r#"{"a":1,"a":4}"#,
        "\n",
        r#"{"\u0061":5,"b":"\ud83d\ude00\n\"é漢"}"#,
        "\n",
        " {  } \r\n",
    );
    let expected = ["1, x", "2, y", "3, q", "4, NULL", "5, 😀\n\"é漢", "NULL, NULL"];
    assert_eq!(rows(content, &columns), expected);
}

#[test]
fn a_key_matches_without_regard_to_case_only_when_none_matches_exactly() {
    let columns = [("magtype", STRING), ("X", STRING)];
    let content = concat!(
        r#"{"magType":"folded","x":"1"}"#,
        "\n",
        r#"{"magtype":"exact","magType":"folded"}"#,
        "\n",
        r#"{"magType":"folded","magtype":"exact","X":"2","x":"1"}"#,
    );
    assert_eq!(rows(content, &columns), ["folded, 1", "exact, NULL", "exact, 2"]);
}

#[test]
fn strict_mode_names_file_line_column_and_value() {
    // B055
    for bad in [1, 8192, 8193, 10_000] {
        let line = |number| {
            let value = if number == bad { "\"12a\"" } else { "1" };
            format!("{{\"v\":{value},\"ts\":\"2024-05-01 09:00:00\"}}\n")
        };
        let content: String = (1..=10_000).map(line).collect();
        let expected = format!("in.json line {bad}, column \"v\": \"12a\" is not an INT");
        assert_eq!(message(&content, &[("v", INT), ("ts", TS3)]), expected);
    }
}

#[test]
fn values_that_do_not_fit() {
    let tiny = DataType::Int8;
    for (value, data_type, expected) in [
        ("1.5", INT, "1.5 is not an INT"),
        ("2147483648", INT, "2147483648 is out of range for INT"),
        ("128", tiny, "128 is out of range for TINYINT"),
        ("9223372036854775808", BIGINT, "9223372036854775808 is out of range for BIGINT"),
        ("true", INT, "true is not an INT"),
        ("\"\"", INT, "\"\" is not an INT"),
        ("1", DataType::Boolean, "1 is not a BOOLEAN"),
        ("1e999", DOUBLE, "1e999 is out of range for DOUBLE"),
        ("99999.995", DataType::Decimal128(7, 2), "99999.995 is out of range for DECIMAL(7, 2)"),
        ("12", DataType::Binary, "12 is not a BYTES"),
        ("{}", INT, "{} is not an INT"),
    ] {
        let content = format!("{{\"v\":{value}}}");
        let expected = format!("in.json line 1, column \"v\": {expected}");
        assert_eq!(message(&content, &[("v", data_type)]), expected);
    }
}

#[test]
fn decimals_keep_all_digits() {
    let content = r#"{"v":12345678901234567890123456789012345.678}
{"v":"-0.001"}
{"v":0.1}"#;
    let expected = ["12345678901234567890123456789012345.678", "-0.001", "0.100"];
    assert_eq!(rows(content, &[("v", DataType::Decimal128(38, 3))]), expected);
}

#[test]
fn ignored_errors_are_null_and_broken_lines_are_counted() {
    // B054; no line end at the end of the file.
    let content = r#"{"v":1,"ts":"2024-05-01 09:00:01"}
{"v":2,"ts":"2024-05-01 09:00:02"

{"v":"x","ts":"2024-05-01 09:00:03"}
{"v":16,"ts":"2024-05-01 09:00:05","extra":[1,2]}
{"ts":"2024-05-01 09:00:06"}
{"v":64,"ts":"2024-05-01 09:01:07"}"#;
    let columns = [("v", INT), ("ts", TS3)];
    let all = json(content, &columns, &[("json.ignore-parse-errors", "true")]).unwrap();
    assert_eq!(
        all.rows(),
        [
            "1, 2024-05-01T09:00:01.000",
            "NULL, 2024-05-01T09:00:03.000",
            "16, 2024-05-01T09:00:05.000",
            "NULL, 2024-05-01T09:00:06.000",
            "64, 2024-05-01T09:01:07.000",
        ]
    );
    assert_eq!(all.lines, [1, 4, 5, 6, 7]);
    assert_eq!(all.rejected.len(), 1);
    assert_eq!((all.rejected[0].line, all.rejected[0].keep), (2, false));

    let all = json(content, &columns, &[("errors", "side")]).unwrap();
    assert_eq!(all.lines, [1, 5, 6, 7]);
    assert_eq!(all.rejected.iter().map(|row| row.line).collect::<Vec<_>>(), [2, 4]);
    let kept = &all.rejected[1];
    assert_eq!(kept.text, r#"{"v":"x","ts":"2024-05-01 09:00:03"}"#);
    assert_eq!((kept.reason.as_str(), kept.keep), ("column \"v\": \"x\" is not an INT", true));

    let all = json(content, &columns, &[("errors", "skip")]).unwrap();
    assert_eq!((all.lines.len(), all.rejected.len(), all.rejected[0].keep), (4, 2, false));
}

#[test]
fn a_bad_row_leaves_nothing_behind() {
    let xs = DataType::List(Arc::new(Field::new("item", INT, true)));
    let columns = [("s", STRING), ("xs", xs), ("v", INT)];
    let content = r#"{"s":"a","xs":[1],"v":1}
{"s":"long text","xs":[2,3,4],"v":"bad"}
{"s":"b","xs":[5,"x"],"v":2}
{"s":"c","xs":[6],"v":3}"#;
    let all = json(content, &columns, &[("errors", "skip")]).unwrap();
    assert_eq!(all.rows(), ["a, [1], 1", "c, [6], 3"]);
    let all = json(content, &columns, &[("json.ignore-parse-errors", "true")]).unwrap();
    assert_eq!(all.rows(), ["a, [1], 1", "long text, [2,3,4], NULL", "b, NULL, 2", "c, [6], 3"]);
}

#[test]
fn what_is_no_json() {
    let columns = [("v", INT)];
    for (content, expected) in [
        (
            "{\"v\":1",
            "column 7 of the text: not JSON: expected a comma or the end of the object, the line ends",
        ),
        ("{\"v\":1} x", "column 9 of the text: not JSON: expected the end of the line, found x"),
        ("[1]", "column 1 of the text: not JSON: expected a JSON object, found [1]"),
        ("{\"v\":1,\"w\":[1,}", "column 15 of the text: not JSON: expected a JSON value, found }"),
        (
            "{\"w\":\"a\tb\"}",
            "column 8 of the text: not JSON: expected no control character inside a string, found \u{fffd}b\"}",
        ),
    ] {
        assert_eq!(message(content, &columns), format!("in.json line 1, {expected}"));
    }
    let error = read_text("in.json", b"{\"v\":1}\n{\"w\":\"\xff\"}", &columns, &[]).unwrap_err();
    assert_eq!(error.message(), "in.json line 2, byte 7: not UTF-8");
}

#[test]
fn missing_fields_can_be_errors() {
    let columns = [("a", INT), ("b", INT)];
    let error = json(r#"{"a":1}"#, &columns, &[("json.fail-on-missing-field", "true")]).unwrap_err();
    assert_eq!(error.message(), "in.json line 1, column \"b\": the field is missing");
}

#[test]
fn ways_to_write_a_time() {
    // B060
    let one = |text: &str, data_type: &DataType, options: &[(&str, &str)]| {
        let content = format!("{{\"v\":1,\"ts\":{text}}}");
        json(&content, &[("ts", data_type.clone())], options)
            .map(|all| all.rows()[0].clone())
            .map_err(|error| error.message().replace("in.json line 1, column \"ts\": ", ""))
    };
    let utc = ltz3("UTC");
    let berlin = ltz3("Europe/Berlin");
    for (text, data_type, expected) in [
        (r#""2024-05-01 09:00:01""#, &TS3, "2024-05-01T09:00:01.000"),
        (r#""2024-05-01 09:00:01.123456789""#, &TS3, "2024-05-01T09:00:01.123"),
        (r#""2024-05-01T09:00:01""#, &TS3, "2024-05-01T09:00:01.000"),
        (r#""2024-05-01 09:00""#, &TS3, "2024-05-01T09:00:00.000"),
        (r#""2024-05-01""#, &TS3, "2024-05-01T00:00:00.000"),
        (r#""2024-05-01T09:00:01Z""#, &utc, "2024-05-01T09:00:01.000Z"),
        (r#""2024-05-01T11:00:01+02:00""#, &utc, "2024-05-01T09:00:01.000Z"),
        (r#""2024-05-01 11:00:01""#, &berlin, "2024-05-01T09:00:01.000Z"),
        // The clocks show 02:30 twice on that night: the earlier one.
        (r#""2024-10-27 02:30:00""#, &berlin, "2024-10-27T00:30:00.000Z"),
    ] {
        assert_eq!(one(text, data_type, &[]).as_deref(), Ok(expected), "{text}");
    }
    for (text, data_type, expected) in [
        (
            r#""2024-05-01T09:00:01Z""#,
            &TS3,
            r#""2024-05-01T09:00:01Z" has an offset from UTC and is not a TIMESTAMP(3)"#,
        ),
        (r#""2019-02-30 00:00:00""#, &TS3, r#""2019-02-30 00:00:00" is not a TIMESTAMP(3)"#),
        (r#""2024-05-01 24:00:00""#, &TS3, r#""2024-05-01 24:00:00" is not a TIMESTAMP(3)"#),
        (r#""2016-12-31 23:59:60""#, &TS3, r#""2016-12-31 23:59:60" is not a TIMESTAMP(3)"#),
        ("1714554001000", &TS3, "1714554001000 is a number and not a TIMESTAMP(3)"),
        (
            r#""2024-03-31 02:30:00""#,
            &berlin,
            r#""2024-03-31 02:30:00" does not exist: the clocks of the session's zone skip it"#,
        ),
    ] {
        assert_eq!(one(text, data_type, &[]), Err(expected.to_owned()), "{text}");
    }
    let second = "2024-05-01T09:00:01.000";
    for (text, format, expected) in [
        ("1714554001", "epoch-seconds", second),
        ("1714554001.1239", "epoch-seconds", "2024-05-01T09:00:01.123"),
        ("1714554001000", "epoch-millis", second),
        ("\"1714554001000\"", "epoch-millis", second),
        ("1714554001000999", "epoch-micros", second),
        ("-1", "epoch-micros", "1969-12-31T23:59:59.999"),
        ("-0.5", "epoch-seconds", "1969-12-31T23:59:59.500"),
        ("\"2024-05-01 09:00:01\"", "epoch-millis", second),
    ] {
        assert_eq!(
            one(text, &TS3, &[("timestamp-format", format)]).as_deref(),
            Ok(expected),
            "{text} {format}"
        );
        assert_eq!(one(text, &TS3, &[("json.timestamp-format", format)]).as_deref(), Ok(expected));
    }
    let standard = |text, standard| one(text, &TS3, &[("json.timestamp-format.standard", standard)]);
    assert!(standard(r#""2024-05-01T09:00:01""#, "SQL").is_err());
    assert!(standard(r#""2024-05-01 09:00:01""#, "ISO-8601").is_err());
    assert!(standard(r#""2024-05-01T09:00:01""#, "ISO-8601").is_ok());
}

#[test]
fn far_times() {
    let content = r#"{"ts":"0001-01-01 00:00:00"}
{"ts":"9999-12-31 23:59:59.999"}
{"ts":"1969-12-31 23:59:59.9999"}"#;
    let expected = ["0001-01-01T00:00:00.000", "9999-12-31T23:59:59.999", "1969-12-31T23:59:59.999"];
    assert_eq!(rows(content, &[("ts", TS3)]), expected);
    let ns = DataType::Timestamp(TimeUnit::Nanosecond, None);
    assert_eq!(
        message(content, &[("ts", ns)]),
        "in.json line 1, column \"ts\": \"0001-01-01 00:00:00\" is out of range for TIMESTAMP(9)"
    );
}

#[test]
fn nothing_to_read() {
    // B071
    for content in ["", "\n", "\n\r\n  \n", "\u{feff}"] {
        assert!(rows(content, &[("v", INT)]).is_empty());
    }
    assert_eq!(rows("\u{feff}{\"v\":1}", &[("v", INT)]), ["1"]);
}

#[test]
fn floats_that_are_no_numbers() {
    let content = r#"{"v":"NaN"}
{"v":"-Infinity"}
{"v":-0.0}"#;
    assert_eq!(rows(content, &[("v", DOUBLE)]), ["NaN", "-Infinity", "-0.0"]);
}

#[test]
fn many_keys_of_a_map_where_some_come_twice() {
    let entries =
        DataType::Struct(vec![Field::new("key", STRING, false), Field::new("value", INT, true)].into());
    let m = DataType::Map(Arc::new(Field::new("entries", entries, false)), false);
    let pairs: Vec<_> = (0..40).map(|n| format!("\"k{}\":{n}", n % 30)).collect();
    let expected: Vec<_> = (10..40).map(|n| format!("\"k{}\":{n}", n % 30)).collect();
    let content = format!("{{\"m\":{{{}}}}}", pairs.join(","));
    assert_eq!(rows(&content, &[("m", m)]), [format!("{{{}}}", expected.join(","))]);
}
