//! The tables of the connector, as a query reads them.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;

use super::*;
use crate::connector::testing::{Everything, request, table};

const TEXT: DataType = DataType::Utf8;
const BIGINT: DataType = DataType::Int64;

fn ts3() -> DataType {
    DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None)
}

fn read(table: &Table, batch_rows: usize) -> Vec<Everything> {
    Nexmark.check(table).unwrap();
    let request = ReadRequest { batch_rows, ..request(table) };
    let splits = Nexmark.source(table, &request).unwrap().splits().unwrap();
    let all = splits.into_iter().map(|mut split| {
        let mut rows = Everything::default();
        while let Some(batch) = split.next().unwrap().rows() {
            rows.lines.extend((0..batch.rows.num_rows()).map(|row| batch.lines.of(row)));
            rows.batches.push(batch.rows);
        }
        rows
    });
    all.collect()
}

/// The rows of all splits, one after another.
fn rows(table: &Table, batch_rows: usize) -> Vec<String> {
    read(table, batch_rows).iter().flat_map(Everything::rows).collect()
}

/// A table of all columns of a kind, and the number of the event.
fn whole(kind: &str, options: &[(&str, &str)]) -> Table {
    let all: Vec<_> = [("table", kind), ("events.num", "10000")].iter().chain(options).copied().collect();
    let schema = Nexmark.infer_schema(&all.iter().copied().collect()).unwrap();
    let fields = schema.fields().iter().map(|field| (field.name().as_str(), field.data_type().clone()));
    let columns: Vec<_> = fields.chain([("event_number", BIGINT)]).collect();
    table(&columns, &all)
}

/// Worked out by another implementation of the same rules; must never change.
#[test]
fn values_are_known_for_good() {
    let number = ("event_number", BIGINT);
    let columns = |columns: &[(&'static str, DataType)]| [columns, std::slice::from_ref(&number)].concat();
    let of = |kind: &str, all: &[(&str, DataType)], wanted: &[&str]| {
        let table = table(all, &[("table", kind), ("events.num", "7400")]);
        let rows = rows(&table, 8192);
        for wanted in wanted {
            let number = wanted.rsplit(", ").next();
            let found = rows.iter().find(|row| row.rsplit(", ").next() == number);
            assert_eq!(found.map(String::as_str), Some(*wanted));
        }
    };
    let person = [
        ("id", BIGINT),
        ("name", TEXT),
        ("creditCard", TEXT),
        ("city", TEXT),
        ("state", TEXT),
        ("dateTime", ts3()),
    ];
    of(
        "person",
        &columns(&person),
        &[
            "1000, Julie Walton, 5732 1028 1560 8970, Boise, WA, 2024-01-01T00:00:00.000, 0",
            "1001, Luke Jones, 6703 1987 5381 4994, Boise, WA, 2024-01-01T00:00:00.005, 50",
            "1147, Kate Shultz, 4328 3307 6164 1117, San Francisco, WY, 2024-01-01T00:00:00.735, 7350",
        ],
    );
    let auction = [
        ("id", BIGINT),
        ("initialBid", BIGINT),
        ("reserve", BIGINT),
        ("dateTime", ts3()),
        ("expires", ts3()),
        ("seller", BIGINT),
        ("category", BIGINT),
    ];
    of(
        "auction",
        &columns(&auction),
        &[
            "1000, 161, 611975, 2024-01-01T00:00:00.000, 2024-01-01T00:00:00.235, 1000, 13, 1",
            "1002, 376, 41563, 2024-01-01T00:00:00.000, 2024-01-01T00:00:00.286, 1000, 10, 3",
            "1442, 76288, 78069, 2024-01-01T00:00:00.735, 2024-01-01T00:00:00.789, 1144, 10, 7352",
        ],
    );
    let bid =
        [("auction", BIGINT), ("bidder", BIGINT), ("price", BIGINT), ("channel", TEXT), ("dateTime", ts3())];
    of(
        "bid",
        &columns(&bid),
        &[
            "1010, 1001, 2357, Apple, 2024-01-01T00:00:00.000, 4",
            "1000, 1001, 1449, Facebook, 2024-01-01T00:00:00.000, 5",
            "1000, 1007, 1704, Apple, 2024-01-01T00:00:00.004, 49",
            "1400, 1101, 382882, channel-8029, 2024-01-01T00:00:00.739, 7399",
        ],
    );
}

#[test]
fn an_event_is_the_same_in_every_batch_split_and_table() {
    let options = [("max-disorder", "20 ms"), ("seed", "-7")];
    let number = |row: &str| row.rsplit(", ").next().unwrap().parse::<u64>().unwrap();
    let mut by_number = BTreeMap::new();
    for (kind, count) in [("person", 200), ("auction", 600), ("bid", 9_200)] {
        let one = rows(&whole(kind, &options), 8192);
        assert_eq!(one.len(), count);
        assert!(one.is_sorted_by_key(|row| number(row)));
        assert_eq!(rows(&whole(kind, &options), 7), one);
        // Three splits have the rows in turn, each with line numbers of its own.
        let all = [&options[..], &[("number-of-splits", "3")]].concat();
        let splits = read(&whole(kind, &all), 100);
        for (split, rows) in splits.iter().enumerate() {
            let wanted: Vec<_> = one.iter().skip(split).step_by(3).cloned().collect();
            assert_eq!(rows.rows(), wanted);
            assert!(rows.lines.iter().copied().eq(1..=wanted.len() as u64));
        }
        by_number.extend(one.into_iter().map(|row| (number(&row), row)));
    }
    assert_eq!(by_number.len(), 10_000);

    // The table of all events has each in the row of its kind, and nothing in the others.
    let events = whole("events", &options);
    let mut seen = 0;
    for batch in read(&events, 1_000).iter().flat_map(|split| &split.batches) {
        let types = batch.column(0).as_primitive::<arrow::datatypes::Int32Type>();
        let numbers = batch.column(5).as_primitive::<Int64Type>();
        let shown: Vec<_> = (1..4).map(|place| batch.column(place).as_struct()).collect();
        let texts = shown.iter().map(|rows| {
            let columns = rows.columns().iter().cloned().chain([batch.column(5).clone()]);
            let fields = rows.fields().iter().cloned().chain([batch.schema().field(5).clone().into()]);
            let schema = arrow::datatypes::Schema::new(fields.collect::<Vec<_>>());
            let batch =
                arrow::record_batch::RecordBatch::try_new(Arc::new(schema), columns.collect()).unwrap();
            Everything { batches: vec![batch], ..Everything::default() }.rows()
        });
        let texts: Vec<_> = texts.collect();
        for row in 0..batch.num_rows() {
            let kind = types.value(row) as usize;
            for (place, rows) in shown.iter().enumerate() {
                assert_eq!(rows.is_valid(row), place == kind, "{row}");
            }
            assert_eq!(texts[kind][row], by_number[&(numbers.value(row) as u64)]);
            seen += 1;
        }
    }
    assert_eq!(seen, 10_000);
    // Another seed, other values.
    assert_ne!(rows(&whole("bid", &[("seed", "1")]), 8192), rows(&whole("bid", &[]), 8192));
}

#[test]
fn a_projection_does_not_change_values() {
    let all = rows(&whole("bid", &[]), 8192);
    let urls = rows(&table(&[("URL", TEXT)], &[("table", "bid"), ("events.num", "10000")]), 8192);
    assert_eq!(urls.len(), all.len());
    assert!(all.iter().zip(&urls).all(|(row, url)| row.split(", ").nth(4) == Some(url)));
    // Without columns there are rows still, and of a ROW those parts that are declared.
    assert_eq!(
        read(&table(&[], &[("table", "bid"), ("events.num", "50")]), 8192)[0].batches[0].num_rows(),
        46
    );
    let price = arrow::datatypes::Field::new("price", BIGINT, true);
    let part = table(&[("bid", DataType::Struct(vec![price].into()))], &[("events.num", "5")]);
    let batch = &read(&part, 8192)[0].batches[0];
    let prices = batch.column(0).as_struct().column(0).as_primitive::<Int64Type>();
    assert!((0..4).all(|row| prices.is_null(row)));
    assert_eq!(prices.value(4), 2_357);
}

#[test]
fn texts_are_as_long_as_they_are_meant() {
    for (kind, least, most) in [("person", 110, 165), ("auction", 312, 467), ("bid", 54, 81)] {
        let extra = rows(&table(&[("extra", TEXT)], &[("table", kind), ("events.num", "20000")]), 8192);
        assert!(extra.iter().all(|text| (least..=most).contains(&text.len())), "{kind}");
        let mean = extra.iter().map(String::len).sum::<usize>() / extra.len();
        assert!(mean.abs_diff((least + most) / 2) <= 4, "{kind}: {mean}");
    }
    let email =
        rows(&table(&[("emailAddress", TEXT)], &[("table", "person"), ("events.num", "20000")]), 8192);
    for address in email {
        let (name, host) = address.strip_suffix(".com").and_then(|text| text.split_once('@')).unwrap();
        assert!((3..=6).contains(&name.len()) && (3..=4).contains(&host.len()), "{address}");
    }
}

#[test]
fn options_are_checked() {
    let facts = |options: &[(&str, &str)]| Nexmark.check(&table(&[], options));
    assert!(!facts(&[]).unwrap().bounded);
    assert!(!facts(&[("events.num", "0")]).unwrap().bounded);
    assert!(facts(&[("events.num", "1")]).unwrap().bounded);
    assert!(!facts(&[("events.num", "1"), ("bounded", "false")]).unwrap().bounded);
    assert!(facts(&[("first-event.rate", "7"), ("next-event.rate", "7")]).is_ok());
    for (options, code) in [
        (&[("event.num", "1")][..], "C001"),
        (&[("table", "bids")], "C002"),
        (&[("events.num", "-1")], "C002"),
        (&[("bounded", "true")], "C002"),
        (&[("first-event.rate", "0")], "C002"),
        (&[("next-event.rate", "5")], "C002"),
        (&[("first-event.time", "noon")], "C002"),
        (&[("max-disorder", "much")], "C002"),
        (&[("events-per-second", "-1")], "C002"),
        (&[("number-of-splits", "0")], "C002"),
        (&[("number-of-splits", "65")], "C002"),
        (&[("bid.proportion", "0")], "C002"),
        (&[("bid.hot-ratio.auctions", "0")], "C002"),
        (&[("first-event.rate", "1"), ("events.num", "1000000000000")], "C002"),
    ] {
        assert_eq!(facts(options).unwrap_err().code(), code, "{options:?}");
    }
    // The last second of the year 9999, and one after it.
    let last = [("first-event.rate", "1"), ("first-event.time", "9999-12-31 23:59:59")];
    assert!(facts(&[&last[..], &[("events.num", "1")]].concat()).is_ok());
    assert_eq!(facts(&[&last[..], &[("events.num", "2")]].concat()).unwrap_err().code(), "C002");
}

#[test]
fn columns_are_checked() {
    let check = |kind: &str, name: &str, data_type: DataType| {
        Nexmark.check(&table(&[(name, data_type)], &[("table", kind)])).map(|_| ())
    };
    let error = check("bid", "prise", BIGINT).unwrap_err();
    assert_eq!(error.code(), "C006");
    assert!(error.hint_text().unwrap().contains("price"), "{error}");
    let error = check("events", "price", BIGINT).unwrap_err();
    assert!(error.hint_text().unwrap().contains("'table'"), "{error}");
    assert_eq!(check("bid", "price", TEXT).unwrap_err().code(), "C006");
    assert_eq!(check("events", "bid", TEXT).unwrap_err().code(), "C006");
    assert_eq!(check("person", "price", BIGINT).unwrap_err().code(), "C006");
    let nanos = DataType::Timestamp(arrow::datatypes::TimeUnit::Nanosecond, None);
    assert_eq!(check("bid", "dateTime", nanos).unwrap_err().code(), "C006");
    let micros = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, Some("UTC".into()));
    assert!(check("bid", "DATETIME", micros).is_ok());
}

#[test]
fn what_is_not_due_is_not_there() {
    // The first event is due at once, and the next one in a second; of the bids none is.
    let options = [("events-per-second", "1"), ("table", "person")];
    let t = table(&[("id", BIGINT)], &options);
    let mut splits = Nexmark.source(&t, &request(&t)).unwrap().splits().unwrap();
    assert_eq!(splits[0].next().unwrap().rows().unwrap().rows.num_rows(), 1);
    assert!(matches!(splits[0].next().unwrap(), Read::Empty));
    let t = table(&[("price", BIGINT)], &[("events-per-second", "1"), ("table", "bid")]);
    let mut splits = Nexmark.source(&t, &request(&t)).unwrap().splits().unwrap();
    assert!(matches!(splits[0].next().unwrap(), Read::Empty));
}

#[test]
fn times_are_cut_to_the_precision_of_the_column() {
    // 3 events a second: 0.333333 s.
    let micros = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
    let options =
        [("first-event.rate", "3"), ("first-event.time", "1969-12-31 23:59:59"), ("events.num", "2")];
    let all = |data_type| rows(&table(&[("dateTime", data_type)], &options), 8192);
    assert_eq!(all(micros), ["1969-12-31T23:59:59.000000", "1969-12-31T23:59:59.333333"]);
    assert_eq!(all(ts3()), ["1969-12-31T23:59:59.000", "1969-12-31T23:59:59.333"]);
}
