//! `LATE ROWS INTO` from the text of a script to the rows of a table.

use std::fs;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use arrow::array::{Int64Array, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tempfile::TempDir;

use super::*;
use crate::connector::Memory;
use crate::runtime::JobSummary;

const INPUT: &str = "{\"k\":\"a\",\"v\":1,\"ts\":\"2024-05-01 09:00:10\"}
{\"k\":\"b\",\"v\":2,\"ts\":\"2024-05-01 09:02:00\"}
{\"k\":\"a\",\"v\":4,\"ts\":\"2024-05-01 09:00:20\"}
{\"k\":\"a\",\"v\":
{\"k\":\"a\",\"v\":8,\"ts\":null}
{\"k\":\"b\",\"v\":16,\"ts\":\"2024-05-01 09:01:10\"}
";

const TUMBLE: &str = "SELECT window_start, COUNT(*) AS c
    FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end";

/// A folder with the input, and a session with the table `t` over it.
fn session(batch_rows: usize, parallelism: usize) -> (Session, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.json"), INPUT).unwrap();
    let mut session = Session::new();
    session.set("execution.batch-rows", &batch_rows.to_string()).unwrap();
    session.set("execution.parallelism", &parallelism.to_string()).unwrap();
    let create = format!(
        "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), twice AS v * 2, WATERMARK FOR ts AS ts)
         WITH ('connector' = 'filesystem', 'path' = '{}/in.json', 'format' = 'json', 'errors' = 'side')",
        folder.path().display()
    );
    rows(&mut session, &create).unwrap();
    (session, folder)
}

/// Runs a script; the rows of its last query, sorted, cells separated by commas.
fn rows(session: &mut Session, text: &str) -> Result<Vec<String>, Error> {
    run(session, text).map(|(rows, _)| rows)
}

fn run(session: &mut Session, text: &str) -> Result<(Vec<String>, Option<JobSummary>), Error> {
    let (mut lines, mut last) = (Vec::new(), None);
    for statement in session.parse("test.sql", text)? {
        lines.clear();
        match session.execute(&statement)? {
            Outcome::Query(mut query) => {
                while let Some(batch) = query.next_batch()? {
                    lines.extend(shown(&batch.rows));
                }
                last = Some(query.finish()?);
            }
            Outcome::Insert(insert) => last = Some(insert.wait()?),
            Outcome::Rows(rows) => lines.extend(shown(&rows)),
            Outcome::Text(text) => lines.extend(text.lines().map(str::to_owned)),
            Outcome::Done(done) => lines.push(done),
        }
        if let Some(summary) = &last {
            assert!(summary.reconciles(), "{summary:?}");
        }
    }
    lines.sort();
    Ok((lines, last))
}

fn shown(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("-").with_timestamp_format(Some("%H:%M:%S%.f"));
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
        .collect();
    let line = |row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join(",");
    (0..batch.num_rows()).map(line).collect()
}

fn failed(session: &mut Session, text: &str) -> Error {
    match rows(session, text) {
        Ok(rows) => panic!("{text} works: {rows:?}"),
        Err(error) => error,
    }
}

#[test]
fn a_side_table_has_all_columns_and_says_why() {
    for (batch_rows, parallelism) in [(1, 1), (2, 1), (8192, 1), (7, 2), (1, 4), (8192, 4)] {
        let (mut session, folder) = session(batch_rows, parallelism);
        let split = folder.path().join("in.json").display().to_string();
        let (given, summary) = run(&mut session, &format!("{TUMBLE} LATE ROWS INTO Late_T;")).unwrap();
        assert_eq!(given, ["09:00:00,1", "09:02:00,1"]);
        let summary = summary.unwrap();
        assert_eq!((summary.rows_in, summary.rows_out, summary.late, summary.null_time), (6, 2, 2, 1));
        assert_eq!(summary.late_rows, [("late_t".to_owned(), 4)]);
        let operator = "WindowAggregate";
        let expected = [
            format!("-,-,-,-,malformed,Source,-,-,-,-,t,{split},{{\"k\":\"a\",\"v\":"),
            format!("a,4,09:00:20,8,late,{operator},09:00:00,09:01:00,09:02:00,1 mins,t,{split},-"),
            format!("a,8,-,16,null_time,{operator},-,-,09:02:00,-,t,{split},-"),
            format!("b,16,09:01:10,32,late,{operator},09:01:00,09:02:00,09:02:00,0 secs,t,{split},-"),
        ];
        assert_eq!(rows(&mut session, "SELECT * FROM late_t").unwrap(), expected);
    }
}

#[test]
fn a_side_table_is_a_table() {
    let (mut session, _folder) = session(8192, 2);
    let late = format!("{TUMBLE} LATE ROWS INTO side;");
    // EXPLAIN makes none.
    let plan = rows(&mut session, &format!("EXPLAIN {late}")).unwrap().join("\n");
    assert!(plan.contains("late rows → side") && plan.contains("Sink: side (memory)"), "{plan}");
    assert_eq!(failed(&mut session, "SELECT * FROM side").code(), "P001");
    rows(&mut session, &late).unwrap();
    assert_eq!(rows(&mut session, "SHOW TABLES").unwrap(), ["side", "t"]);
    let columns = rows(&mut session, "DESCRIBE side").unwrap();
    assert_eq!(columns.len(), 13);
    assert!(columns.iter().any(|column| column.starts_with("late_by,INTERVAL")), "{columns:?}");
    let counts = "SELECT late_reason, COUNT(*) AS c FROM side GROUP BY late_reason";
    assert_eq!(rows(&mut session, counts).unwrap(), ["late,2", "malformed,1", "null_time,1"]);
    // The same name again: it exists now, and takes more rows.
    rows(&mut session, &late).unwrap();
    assert_eq!(rows(&mut session, counts).unwrap(), ["late,4", "malformed,2", "null_time,2"]);
    let copy = "CREATE TABLE copy (v BIGINT, late_by STRING) WITH ('connector' = 'memory');
        INSERT INTO copy SELECT v, late_by FROM side WHERE v = 4;
        SELECT * FROM copy;";
    assert_eq!(rows(&mut session, copy).unwrap(), ["4,1 mins", "4,1 mins"]);
    // Windows need a watermark; another declaration over the same rows can have one.
    let error = failed(
        &mut session,
        "SELECT COUNT(*) AS c FROM TABLE(TUMBLE(TABLE side, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end",
    );
    assert_eq!(error.code(), "W006");
    let again = "CREATE TABLE again (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' HOUR)
            WITH ('connector' = 'memory', 'name' = 'side');
        SELECT window_start, COUNT(*) AS c FROM TABLE(TUMBLE(TABLE again, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
        GROUP BY window_start, window_end";
    assert_eq!(rows(&mut session, again).unwrap(), ["09:00:00,2", "09:01:00,2"]);
    rows(&mut session, "DROP TABLE side").unwrap();
    assert_eq!(failed(&mut session, "SELECT * FROM side").code(), "P001");
    rows(&mut session, &late).unwrap();
    assert_eq!(rows(&mut session, counts).unwrap(), ["late,2", "malformed,1", "null_time,1"]);
}

#[test]
fn without_late_rows_a_side_table_is_empty() {
    let (mut session, _folder) = session(8192, 1);
    let sql = "SELECT COUNT(*) AS c FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY))
        WHERE v < 4 GROUP BY window_start, window_end LATE ROWS INTO none;
        SELECT * FROM none WHERE late_reason <> 'malformed';";
    assert_eq!(rows(&mut session, sql).unwrap(), [""; 0]);
}

#[test]
fn a_table_that_exists_takes_what_it_names() {
    for parallelism in [1, 3] {
        let (mut session, folder) = session(8192, parallelism);
        let path = folder.path().join("late.csv");
        let create = format!(
            "CREATE TABLE late_csv (late_by STRING, V BIGINT, late_reason STRING)
             WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv')",
            path.display()
        );
        rows(&mut session, &create).unwrap();
        rows(&mut session, &format!("{TUMBLE} LATE ROWS INTO late_csv")).unwrap();
        let written = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = written.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, [",,malformed", ",8,null_time", "0 secs,16,late", "1 mins,4,late"]);
    }
}

#[test]
fn tables_that_can_not_take_late_rows() {
    let (mut session, _folder) = session(8192, 1);
    let setup = "CREATE TABLE wide (v INT, nope INT, late_reason STRING, neither INT) WITH ('connector' = 'blackhole');
        CREATE TABLE wrong (v BOOLEAN) WITH ('connector' = 'blackhole');
        CREATE TABLE gen (v INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
        CREATE VIEW seen AS SELECT 1 AS one;";
    rows(&mut session, setup).unwrap();
    let mut error = |target: &str| failed(&mut session, &format!("{TUMBLE} LATE ROWS INTO {target}"));
    let missing = error("wide");
    assert_eq!(
        (missing.code(), missing.message()),
        ("P007", "the late rows lack \"nope\", \"neither\" of \"wide\"")
    );
    assert!(missing.span().is_some());
    assert!(missing.hint_text().unwrap().contains("k, v, ts, twice, late_reason"), "{missing:?}");
    assert!(error("wrong").message().contains("is INT, the column of \"wrong\" is BOOLEAN"));
    assert!(error("gen").message().contains("only reads"));
    assert!(error("seen").message().contains("is a view"));
    let insert = format!(
        "CREATE TABLE o (w TIMESTAMP(3), c BIGINT) WITH ('connector' = 'blackhole');
        INSERT INTO o {TUMBLE} LATE ROWS INTO o"
    );
    assert!(failed(&mut session, &insert).message().contains("takes the rows of the INSERT already"));
}

#[test]
fn blocks_in_which_nothing_is_late() {
    let (mut session, _folder) = session(8192, 1);
    for sql in [
        "SELECT v FROM t LATE ROWS INTO side",
        "SELECT COUNT(*) AS c FROM t LATE ROWS INTO side",
        "SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) LATE ROWS INTO side",
        "SELECT c FROM (SELECT v AS c FROM t LATE ROWS INTO side)",
    ] {
        let error = failed(&mut session, sql);
        assert_eq!(error.code(), "P003", "{}", error.render());
        assert!(error.render().contains("^^^^") && error.message().contains("LATE ROWS INTO"), "{sql}");
    }
    // Rows are taken out of some of their windows.
    let hop = "SELECT COUNT(*) AS c FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '1' MINUTE))
        WHERE window_end > ts + INTERVAL '30' SECOND GROUP BY window_start, window_end LATE ROWS INTO side";
    assert_eq!(failed(&mut session, hop).code(), "P002");
}

#[test]
fn windows_whose_bounds_are_read_give_their_late_rows() {
    let windows = ["TUMBLE(TABLE t, DESCRIPTOR(ts)", "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND"];
    for (window, batch_rows, parallelism) in
        windows.into_iter().flat_map(|window| [(window, 1, 1), (window, 8192, 3)])
    {
        let (mut session, _folder) = session(batch_rows, parallelism);
        let sql = &format!(
            "SELECT k, MAX(window_end) AS m FROM TABLE({window}, INTERVAL '1' MINUTE))
            GROUP BY window_start, window_end, k LATE ROWS INTO side;
            SELECT v, twice, late_reason, late_operator, late_window_end, late_source FROM side WHERE v > 0"
        );
        let expected = [
            "16,32,late,WindowAggregate,09:02:00,t",
            "4,8,late,WindowAggregate,09:01:00,t",
            "8,16,null_time,WindowRows,-,t",
        ];
        assert_eq!(rows(&mut session, sql).unwrap(), expected);
    }
}

#[test]
fn computed_keys_and_conditions_keep_the_columns() {
    let (mut session, _folder) = session(8192, 2);
    let sql = "SELECT window_start, v % 3 AS r, SUM(v + 1) AS s
        FROM TABLE(TUMBLE((SELECT v, ts, UPPER(k) AS u FROM t), DESCRIPTOR(ts), INTERVAL '1' MINUTE))
        WHERE v <> 16 GROUP BY window_start, window_end, v % 3 LATE ROWS INTO side;
        SELECT v, ts, u, late_reason, late_source FROM side WHERE late_reason <> 'malformed'";
    assert_eq!(rows(&mut session, sql).unwrap(), ["4,09:00:20,A,late,t", "8,-,A,null_time,t"]);
    assert_eq!(rows(&mut session, "DESCRIBE side").unwrap().len(), 3 + 9);
}

#[test]
fn sorted_rows_that_came_too_late() {
    for batch_rows in [1, 8192] {
        let (mut session, _folder) = session(batch_rows, 2);
        let sql = "SELECT v, ts FROM t ORDER BY ts LATE ROWS INTO side;";
        assert_eq!(rows(&mut session, sql).unwrap(), ["1,09:00:10", "2,09:02:00"]);
        let expected = [
            "-,-,malformed,Source,-,-,-",
            "16,09:01:10,late,TemporalSort,-,09:02:00,50.000000000 secs",
            "4,09:00:20,late,TemporalSort,-,09:02:00,1 mins 40.000000000 secs",
            "8,-,null_time,TemporalSort,-,09:02:00,-",
        ];
        let sql =
            "SELECT v, ts, late_reason, late_operator, late_window_end, late_watermark, late_by FROM side";
        assert_eq!(rows(&mut session, sql).unwrap(), expected);
    }
}

#[test]
fn a_clause_is_that_of_its_block_wherever_it_stands() {
    let (mut session, _folder) = session(8192, 2);
    let count = "SELECT late_reason, COUNT(*) AS c FROM side GROUP BY late_reason; ";
    let expected = ["late,2", "malformed,1", "null_time,1"];
    for sql in [
        format!("SELECT * FROM ({TUMBLE} LATE ROWS INTO side) WHERE c > 100; {count}"),
        format!("WITH w AS ({TUMBLE} LATE ROWS INTO side) SELECT * FROM w; {count}"),
        format!("WITH w AS ({TUMBLE}) SELECT * FROM w LATE ROWS INTO side; {count}"),
        format!("CREATE VIEW w AS {TUMBLE} LATE ROWS INTO side; SELECT * FROM w; {count}"),
    ] {
        assert_eq!(rows(&mut session, &sql).unwrap(), expected, "{sql}");
        rows(&mut session, "DROP TABLE side; DROP VIEW IF EXISTS w").unwrap();
    }
    // Two operators, one table: numbers tell them apart. Two blocks, two tables.
    let union = format!("{TUMBLE} UNION ALL {TUMBLE} LATE ROWS INTO side;
        SELECT late_operator, COUNT(*) AS c FROM side WHERE late_reason <> 'malformed' GROUP BY late_operator");
    let both = rows(&mut session, &union).unwrap();
    assert_eq!(both, ["WindowAggregate 1,3", "WindowAggregate 2,3"]);
    let apart = format!(
        "SELECT * FROM ({TUMBLE} LATE ROWS INTO one) UNION ALL SELECT * FROM ({TUMBLE} LATE ROWS INTO two);
        SELECT COUNT(*) AS c FROM one UNION ALL SELECT COUNT(*) AS c FROM two"
    );
    assert_eq!(rows(&mut session, &apart).unwrap(), ["4", "4"]);
}

#[test]
fn rows_of_several_tables_and_files_say_where_they_are_from() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display();
    let mut session = Session::new();
    for name in ["a", "b"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        for file in ["1", "2"] {
            let text = format!(
                "{{\"v\":{file},\"ts\":\"2024-05-01 09:05:00\"}}\n{{\"v\":{file},\"ts\":\"2024-05-01 09:00:00\"}}\n"
            );
            fs::write(folder.path().join(name).join(format!("{file}.json")), text).unwrap();
        }
        let sql = format!(
            "CREATE TABLE {name} (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
            WITH ('connector' = 'filesystem', 'path' = '{place}/{name}', 'format' = 'json')"
        );
        rows(&mut session, &sql).unwrap();
    }
    let sql = "SELECT COUNT(*) AS c FROM TABLE(TUMBLE((SELECT * FROM a UNION ALL SELECT * FROM b), DESCRIPTOR(ts), INTERVAL '1' MINUTE))
        GROUP BY window_start, window_end LATE ROWS INTO side;
        SELECT v, late_source, late_split FROM side";
    let line = |v: &str, table: &str| format!("{v},{table},{place}/{table}/{v}.json");
    for (batch_rows, parallelism) in [("1", "1"), ("8192", "2")] {
        session.set("execution.batch-rows", batch_rows).unwrap();
        session.set("execution.parallelism", parallelism).unwrap();
        let given = rows(&mut session, sql).unwrap();
        // The watermark is the lowest of all files: the first rows of all come before the second ones.
        assert_eq!(given, [line("1", "a"), line("1", "b"), line("2", "a"), line("2", "b")]);
        rows(&mut session, "DROP TABLE side").unwrap();
    }
}

#[test]
fn a_side_table_that_is_full_stops_the_query_and_stays_empty() {
    let (mut session, _folder) = session(1, 1);
    session.set("late-rows.max-rows", "3").unwrap();
    let error = failed(&mut session, &format!("{TUMBLE} LATE ROWS INTO side"));
    assert_eq!(error.code(), "R007", "{}", error.render());
    assert_eq!(rows(&mut session, "SELECT * FROM side").unwrap(), [""; 0]);
    session.set("late-rows.max-rows", "4").unwrap();
    rows(&mut session, &format!("DROP TABLE side; {TUMBLE} LATE ROWS INTO side")).unwrap();
    assert_eq!(rows(&mut session, "SELECT v FROM side").unwrap().len(), 4);
}

#[test]
fn a_limit_ends_the_late_rows_too() {
    let (mut session, _folder) = session(1, 2);
    let sql = format!(
        "{TUMBLE} LIMIT 1 LATE ROWS INTO side; SELECT v FROM side WHERE v <> 4 AND v <> 8 AND v <> 16"
    );
    assert_eq!(rows(&mut session, &sql).unwrap(), [""; 0]);
}

#[test]
fn bounds_of_a_zone_are_what_its_clock_shows() {
    let (mut session, folder) = session(8192, 2);
    let create = format!(
        "CREATE TABLE z (v INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem',
         'path' = '{}/z.json', 'format' = 'json')",
        folder.path().display()
    );
    // Berlin goes forward on 31 March 2024: its day has 23 hours, from 23:00 to 22:00 UTC.
    let input = "{\"v\":1,\"ts\":\"2024-03-31T22:30:00Z\"}\n{\"v\":2,\"ts\":\"2024-03-31T21:59:00Z\"}\n";
    fs::write(folder.path().join("z.json"), input).unwrap();
    let sql = "SELECT COUNT(*) AS c
        FROM TABLE(TUMBLE(TABLE z, DESCRIPTOR(ts), INTERVAL '1' DAY, ZONE => 'Europe/Berlin'))
        GROUP BY window_start, window_end LATE ROWS INTO side;
        SELECT v, CAST(late_window_start AS STRING) AS s, CAST(late_window_end AS STRING) AS e, late_by FROM side";
    rows(&mut session, &create).unwrap();
    let expected = ["2,2024-03-31 00:00:00.000,2024-04-01 00:00:00.000,30 mins"];
    assert_eq!(rows(&mut session, sql).unwrap(), expected);
    let columns = rows(&mut session, "DESCRIBE side").unwrap();
    for (name, kind) in [("late_window_end", "TIMESTAMP(3)"), ("late_watermark", "TIMESTAMP_LTZ(3)")] {
        assert!(columns.iter().any(|column| column.starts_with(&format!("{name},{kind},"))), "{columns:?}");
    }
}

#[test]
fn a_query_without_the_clause_carries_nothing() {
    let (mut session, _folder) = session(8192, 2);
    let plan = rows(&mut session, &format!("EXPLAIN {TUMBLE}")).unwrap().join("\n");
    assert!(!plan.contains("late") && plan.contains("read [ts]"), "{plan}");
}

#[test]
fn a_side_table_can_be_read_while_it_is_written() {
    let memory = Memory::new();
    let mut connectors = Connectors::standard();
    connectors.add(Arc::new(memory.clone()));
    let mut session = Session::with_connectors(connectors);
    session.set("execution.batch-rows", "1").unwrap();
    let schema = Arc::new(Schema::new(vec![
        Field::new("v", DataType::Int64, true),
        Field::new("ts", DataType::Timestamp(TimeUnit::Millisecond, None), true),
    ]));
    let (sender, receiver) = sync_channel(16);
    memory.put_channel("t", Arc::clone(&schema), receiver);
    let batch = |values: &[i64], times: &[i64]| {
        let times = TimestampMillisecondArray::from(times.to_vec());
        RecordBatch::try_new(
            schema.clone(),
            vec![Arc::new(Int64Array::from(values.to_vec())), Arc::new(times)],
        )
        .unwrap()
    };
    let create =
        "CREATE TABLE t (v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'memory')";
    rows(&mut session, create).unwrap();
    let sql = format!("{TUMBLE} LATE ROWS INTO side");
    let statement = session.parse("test.sql", &sql).unwrap().remove(0);
    let Outcome::Query(mut query) = session.execute(&statement).unwrap() else { panic!("no query") };
    sender.send(batch(&[1, 2, 3], &[0, 120_000, 5])).unwrap();
    // The first window is out: its row and the late one are on their way.
    assert_eq!(shown(&query.next_batch().unwrap().unwrap().rows), ["00:00:00,1"]);
    let until = Instant::now() + Duration::from_secs(60);
    let mut seen = Vec::new();
    while seen.is_empty() && Instant::now() < until {
        seen = rows(&mut session, "SELECT v, late_reason FROM side").unwrap();
    }
    assert_eq!(seen, ["3,late"]);
    // Other statements work on it: windows over its rows, an insert of them.
    let again = "CREATE TABLE again (v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
        WITH ('connector' = 'memory', 'name' = 'side');
        SELECT window_start, SUM(v) AS s FROM TABLE(TUMBLE(TABLE again, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
        GROUP BY window_start, window_end;";
    assert_eq!(rows(&mut session, again).unwrap(), ["00:00:00,3"]);
    let kept =
        "CREATE TABLE kept (v BIGINT) WITH ('connector' = 'memory'); INSERT INTO kept SELECT v FROM side;
        SELECT v FROM kept;";
    assert_eq!(rows(&mut session, kept).unwrap(), ["3"]);
    drop(sender);
    while query.next_batch().unwrap().is_some() {}
    assert_eq!(query.finish().unwrap().late_rows, [("side".to_owned(), 1)]);
    assert_eq!(rows(&mut session, "SELECT v FROM side").unwrap(), ["3"]);
}
