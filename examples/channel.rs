//! A query over rows that another thread sends: batches go in, windows come out, the late row is kept.

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::thread;

use tidegate::Session;
use tidegate::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use tidegate::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use tidegate::arrow::error::ArrowError;
use tidegate::arrow::util::pretty::pretty_format_batches;
use tidegate::connector::StreamTable;

/// Bids: second, item, price. The last but one comes when its minute is over.
const BIDS: [(i64, &str, i64); 5] =
    [(3, "lamp", 10), (42, "lamp", 12), (130, "chair", 7), (59, "lamp", 50), (131, "lamp", 9)];

fn batch(bids: &[(i64, &str, i64)]) -> Result<RecordBatch, ArrowError> {
    let times = TimestampMillisecondArray::from_iter_values(bids.iter().map(|bid| bid.0 * 1_000));
    let items = StringArray::from_iter_values(bids.iter().map(|bid| bid.1));
    let prices = Int64Array::from_iter_values(bids.iter().map(|bid| bid.2));
    let columns: [(&str, ArrayRef); 3] =
        [("ts", Arc::new(times)), ("item", Arc::new(items)), ("price", Arc::new(prices))];
    RecordBatch::try_from_iter(columns)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Timestamp(TimeUnit::Millisecond, None), false),
        Field::new("item", DataType::Utf8, false),
        Field::new("price", DataType::Int64, false),
    ]));
    let mut session = Session::new();
    session.set("execution.parallelism", "1")?;
    let bids = StreamTable::new("bids", schema).watermark("ts", "ts - INTERVAL '10' SECOND");
    let input = session.register_stream(&bids)?;
    let windows = session.query(
        "SELECT window_start, item, MAX(price) AS highest
         FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
         GROUP BY window_start, window_end, item LATE ROWS INTO late",
    )?;

    // The input ends when its handle is dropped; `push` waits while the query is behind.
    let sender = thread::spawn(move || -> Result<(), tidegate::Error> {
        BIDS.chunks(2).try_for_each(|bids| input.push(&batch(bids).expect("columns of one length")))
    });
    let windows = windows.into_iter().collect::<Result<Vec<_>, _>>()?;
    println!("{}", pretty_format_batches(&windows)?);
    sender.join().expect("the sender does not panic")?;

    let late = session.query("SELECT item, price, late_reason FROM late")?;
    let late = late.into_iter().collect::<Result<Vec<_>, _>>()?;
    println!("{}", pretty_format_batches(&late)?);
    Ok(())
}
