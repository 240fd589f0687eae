//! What EXPLAIN says of checkpoints: how often a row counts, and which tables set it.

use std::process::Command;

use serde_json::Value;
use tidegate::connector::StreamTable;
use tidegate::session::{Outcome, Session};
use tidegate::sql::Statement;

use super::schema;

/// Tables to read from and to write to; `DIR` is a folder.
const TABLES: &str = "
CREATE TABLE files (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = 'DIR/in', 'format' = 'json');
CREATE TABLE numbers (v INT) WITH ('connector' = 'datagen', 'number-of-rows' = '5');
CREATE TABLE ticks (k STRING) WITH ('connector' = 'datagen');
CREATE TABLE bids (auction BIGINT) WITH ('connector' = 'nexmark', 'table' = 'bid', 'events.num' = '5');
CREATE TABLE piped (k STRING, v INT) WITH ('connector' = 'stdin', 'format' = 'json');
CREATE TABLE sent (k STRING, v INT)
WITH ('connector' = 'socket', 'hostname' = '127.0.0.1', 'port' = '9', 'format' = 'json');
CREATE TABLE timed (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'DIR/in', 'format' = 'json');
CREATE TABLE folder (v INT) WITH ('connector' = 'filesystem', 'path' = 'DIR/out', 'format' = 'json');
CREATE TABLE one_text (v INT) WITH ('connector' = 'filesystem', 'path' = 'DIR/one.csv');
CREATE TABLE one_parquet (v INT) WITH ('connector' = 'filesystem', 'path' = 'DIR/one.parquet');
CREATE TABLE device (v INT) WITH ('connector' = 'filesystem', 'path' = '/dev/stderr', 'format' = 'json');
CREATE TABLE shown (v INT) WITH ('connector' = 'print');
CREATE TABLE out_lines (v INT) WITH ('connector' = 'stdout');
CREATE TABLE kept (v INT) WITH ('connector' = 'memory');
CREATE TABLE nowhere (v INT) WITH ('connector' = 'blackhole');
CREATE TABLE totals (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'stdout', 'format' = 'changelog-json');
CREATE TABLE total_files (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'filesystem', 'path' = 'DIR/totals', 'format' = 'changelog-json');
";

const EXACTLY: &str = "exactly once";
const LOST: &str = "at most once behind a restart: table \"NAME\" (KIND) can't be read again";
const REPEATED: &str = "at least once: table \"NAME\" (KIND) can't take rows back";

fn named(text: &str, name: &str, kind: &str) -> String {
    text.replace("NAME", name).replace("KIND", kind)
}

fn session(folder: &tempfile::TempDir) -> Session {
    std::fs::create_dir(folder.path().join("in")).expect("a folder can be made");
    let mut session = Session::new();
    session.run(&TABLES.replace("DIR", &folder.path().to_string_lossy())).expect("the tables are right");
    session
}

fn explain(session: &mut Session, sql: &str) -> String {
    let statements = session.parse("test", sql).expect("it is SQL");
    match session.execute(&statements[0]).expect("it can be explained") {
        Outcome::Text(text) => text,
        _ => panic!("EXPLAIN gives text"),
    }
}

/// The sentence of EXPLAIN, and what its JSON has.
fn guarantee(session: &mut Session, insert: &str) -> (String, Value) {
    let text = explain(session, &format!("EXPLAIN {insert}"));
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("guarantee: ")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    let json = explain(session, &format!("EXPLAIN JSON {insert}"));
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json["guarantee"]["text"], lines[0]);
    (lines[0].to_owned(), json["guarantee"].clone())
}

fn says(session: &mut Session, insert: &str, expected: &str) {
    assert_eq!(guarantee(session, insert).0, expected, "{insert}");
}

#[test]
fn sources_that_can_be_read_again_into_sinks_that_take_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = session(&folder);
    for source in ["files", "numbers", "(VALUES (1)) AS t (v)"] {
        for sink in ["folder", "one_text", "nowhere"] {
            says(&mut session, &format!("INSERT INTO {sink} SELECT v FROM {source}"), EXACTLY);
        }
    }
    says(&mut session, "INSERT INTO folder SELECT CAST(auction AS INT) FROM bids", EXACTLY);
    says(&mut session, "INSERT INTO total_files SELECT k, COUNT(*) FROM ticks GROUP BY k", EXACTLY);
    let (_, json) = guarantee(&mut session, "INSERT INTO folder SELECT v FROM files");
    assert_eq!(json, serde_json::json!({ "level": "exactly-once", "text": EXACTLY, "tables": [] }));
}

#[test]
fn sources_that_can_not_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = session(&folder);
    session.register_stream(&StreamTable::new("fed", schema())).unwrap();
    for (source, kind) in [("piped", "stdin"), ("sent", "socket")] {
        let sql = format!("INSERT INTO folder SELECT v FROM {source}");
        says(&mut session, &sql, &named(LOST, source, kind));
    }
    let (text, json) = guarantee(&mut session, "INSERT INTO folder SELECT CAST(v AS INT) FROM fed");
    assert_eq!(text, named(LOST, "fed", "stream"));
    assert_eq!((&json["level"], &json["tables"][0]), (&"at-most-once".into(), &"fed".into()));
    let sql = "INSERT INTO folder SELECT CAST(completed AS INT) FROM system.checkpoints";
    assert!(guarantee(&mut session, sql).0.ends_with("can't be read again"));
    // The other input of a join counts as much, also one that is read once.
    let sql = "INSERT INTO folder SELECT f.v FROM files AS f JOIN piped AS p ON f.k = p.k";
    says(&mut session, sql, &named(LOST, "piped", "stdin"));
    says(
        &mut session,
        "INSERT INTO folder SELECT v FROM kept",
        "at most once behind a restart: table \"kept\" (memory) is gone with the process",
    );
}

#[test]
fn a_path_is_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = session(&folder);
    let path = folder.path().join("p.fifo");
    if !Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success()) {
        return;
    }
    let shown = path.to_string_lossy();
    let table = format!(
        "CREATE TABLE pipe (v INT) WITH ('connector' = 'filesystem', 'path' = '{shown}', 'format' = 'json')"
    );
    session.run(&table).unwrap();
    says(&mut session, "INSERT INTO folder SELECT v FROM pipe", &named(LOST, "pipe", "filesystem"));
    says(&mut session, "INSERT INTO pipe SELECT v FROM files", &named(REPEATED, "pipe", "filesystem"));
    std::fs::remove_file(path).unwrap();
    says(&mut session, "INSERT INTO folder SELECT v FROM pipe", EXACTLY);
}

#[test]
fn sinks_that_can_not_take_rows_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = session(&folder);
    for (sink, kind) in [("shown", "print"), ("out_lines", "stdout"), ("device", "filesystem")] {
        let sql = format!("INSERT INTO {sink} SELECT v FROM files");
        says(&mut session, &sql, &named(REPEATED, sink, kind));
    }
    says(
        &mut session,
        "INSERT INTO totals SELECT k, COUNT(*) FROM ticks GROUP BY k",
        "at least once: table \"totals\" (stdout) can't take rows back, though its key tells those that come again",
    );
    says(
        &mut session,
        "INSERT INTO kept SELECT v FROM files",
        "at most once behind a restart: table \"kept\" (memory) is gone with the process",
    );
    let (text, json) = guarantee(&mut session, "INSERT INTO one_parquet SELECT v FROM piped");
    assert_eq!(
        text,
        "no checkpoints: table \"one_parquet\" (filesystem) is one file, which is whole only at its end"
    );
    assert_eq!(json["level"], "refused");
    let (text, json) = guarantee(&mut session, "INSERT INTO shown SELECT v FROM piped");
    assert_eq!(
        text,
        "rows may be missing or come twice behind a restart: table \"piped\" (stdin) can't be read again, \
         table \"shown\" (print) can't take rows back"
    );
    assert_eq!(json["level"], "unknown");
}

#[test]
fn the_worst_of_a_statement_set_and_its_late_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = session(&folder);
    let set = "STATEMENT SET BEGIN
        INSERT INTO folder SELECT v FROM files; INSERT INTO shown SELECT v FROM files; END";
    let (text, json) = guarantee(&mut session, set);
    assert_eq!(text, named(REPEATED, "shown", "print"));
    assert_eq!(json["tables"], serde_json::json!(["shown"]));
    let insert = |late: &str| {
        format!(
            "INSERT INTO folder SELECT CAST(COUNT(*) AS INT) FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
             GROUP BY window_start, window_end LATE ROWS INTO {late}"
        )
    };
    let (text, json) = guarantee(&mut session, &insert("made"));
    assert_eq!(
        text,
        "exactly once; late rows at most once behind a restart: table \"made\" (memory) is gone with the process"
    );
    assert_eq!(json["level"], "exactly-once");
    let declared = "CREATE TABLE late (v INT, ts TIMESTAMP(3), late_reason STRING)
        WITH ('connector' = 'filesystem', 'path' = 'DIR/late', 'format' = 'json')";
    session.run(&declared.replace("DIR", &folder.path().to_string_lossy())).unwrap();
    says(&mut session, &insert("late"), EXACTLY);
}

#[test]
fn queries_and_planners_without_connectors_say_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = session(&folder);
    let text = explain(&mut session, "EXPLAIN SELECT v FROM piped");
    assert!(!text.contains("guarantee"), "{text}");
    let json: Value =
        serde_json::from_str(&explain(&mut session, "EXPLAIN JSON SELECT v FROM piped")).unwrap();
    assert!(json["guarantee"].is_null());
    let planner = tidegate::plan::Planner::default().with_table_lints();
    let mut catalog = tidegate::catalog::Catalog::new();
    for spanned in tidegate::sql::parse("CREATE TABLE t (v INT) WITH ('connector' = 'any')").unwrap() {
        let Statement::CreateTable(create) = &spanned.statement else { panic!("a table") };
        let table = planner.create_table(create, &catalog).unwrap();
        catalog.add(tidegate::catalog::Relation::Table(table.into()), false).unwrap();
    }
    let plan = planner.plan("INSERT INTO t SELECT v FROM t", &catalog).unwrap();
    assert_eq!(plan.guarantee, None);
    assert!(!plan.explain().contains("guarantee"));
}
