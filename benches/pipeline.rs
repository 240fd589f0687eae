//! What a job costs around its operators: watermarks, the exchange between subtasks, elements of one row.
//!
//! `cargo bench --bench pipeline`; `cargo bench --bench pipeline -- watermarks` for a part. Rows come from memory and are
//! counted as they come out.

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tidegate::arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use tidegate::connector::StreamTable;
use tidegate::{Error, Session};

const BATCH_ROWS: i64 = 8_192;

/// Columns: time, key, value; every second row is `disorder_ms` behind.
fn batches(rows: i64, disorder_ms: i64) -> Vec<RecordBatch> {
    let batches = (0..rows).step_by(BATCH_ROWS as usize).map(|from| {
        let rows = from..(from + BATCH_ROWS).min(rows);
        let time = |row: i64| 1_000_000 + row / 10 - (row % 2) * disorder_ms;
        let columns: [(&str, ArrayRef); 3] = [
            ("ts", Arc::new(TimestampMillisecondArray::from_iter_values(rows.clone().map(time)))),
            ("k", Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row * 31 % 1_000)))),
            ("v", Arc::new(Int64Array::from_iter_values(rows))),
        ];
        RecordBatch::try_from_iter(columns).expect("columns of one length")
    });
    batches.collect()
}

/// Runs a query over a table of these rows; how many come out.
fn run(batches: &[RecordBatch], watermark: Option<&str>, settings: &[(&str, &str)], sql: &str) -> usize {
    let mut session = Session::new();
    for (key, value) in settings {
        session.set(key, value).expect("a setting");
    }
    let mut table = StreamTable::new("t", batches[0].schema()).bounded();
    if let Some(watermark) = watermark {
        table = table.watermark("ts", watermark);
    }
    let rows: Vec<_> = batches.iter().cloned().map(Ok::<_, Error>).collect();
    session.register_iter(&table, rows).expect("a table");
    let query = session.query(sql).expect("a query");
    query.into_iter().map(|batch| batch.expect("a batch").num_rows()).sum()
}

/// Rows without event time, in order, and each second one behind the watermark of the one before.
fn watermarks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("watermarks");
    group.sample_size(10).throughput(Throughput::Elements(2_000_000));
    for (name, watermark, disorder_ms) in [
        ("none", None, 0),
        ("in_order", Some("ts - INTERVAL '1' SECOND"), 0),
        ("disordered", Some("ts - INTERVAL '1' SECOND"), 900),
        ("late", Some("ts"), 5_000),
    ] {
        let batches = batches(2_000_000, disorder_ms);
        group.bench_function(name, |bencher| {
            bencher.iter(|| run(&batches, watermark, &[], "SELECT k, v FROM t WHERE v >= 0"));
        });
    }
    group.finish();
}

/// The same windows by one subtask and by several.
fn exchange(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("exchange");
    group.sample_size(10).throughput(Throughput::Elements(2_000_000));
    let batches = batches(2_000_000, 0);
    let sql = "SELECT window_start, k, COUNT(*) AS c, SUM(v) AS s
               FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))
               GROUP BY window_start, window_end, k";
    for parallelism in ["1", "2", "4"] {
        let settings = [("execution.parallelism", parallelism)];
        group.bench_function(BenchmarkId::new("tumble", parallelism), |bencher| {
            bencher.iter(|| run(&batches, Some("ts - INTERVAL '1' SECOND"), &settings, sql));
        });
    }
    group.finish();
}

/// Batches of one row: what is done for each element, whatever it holds.
fn elements(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("elements_of_one_row");
    group.sample_size(10).throughput(Throughput::Elements(20_000));
    let rows = batches(20_000, 0);
    let single: Vec<_> =
        rows.iter().flat_map(|rows| (0..rows.num_rows()).map(|row| rows.slice(row, 1))).collect();
    for (name, sql) in [
        ("filter", "SELECT k, v FROM t WHERE v >= 0"),
        (
            "tumble",
            "SELECT window_start, k, COUNT(*) AS c
             FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, k",
        ),
    ] {
        let settings = [("execution.batch-rows", "1")];
        group.bench_function(name, |bencher| {
            bencher.iter(|| run(&single, Some("ts - INTERVAL '1' SECOND"), &settings, sql));
        });
    }
    group.finish();
}

criterion_group!(benches, watermarks, exchange, elements);
criterion_main!(benches);
