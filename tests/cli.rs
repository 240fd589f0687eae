//! The command line from outside: what a person types, what comes back, and the exit code.

#[path = "cli/headless.rs"]
mod headless;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// Longer than anything here takes; a test that would hang fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

fn tidegate(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.current_dir(folder).args(args).env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

/// What a run gave, as text.
#[derive(Debug)]
struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        let run = Self {
            code: output.status.code().expect("ended by itself"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        assert!(!run.stdout.contains('\x1b') && !run.stderr.contains('\x1b'), "colours in a pipe: {run:?}");
        assert!(!run.stderr.contains("panicked"), "{run:?}");
        run
    }
}

fn run(folder: &Path, args: &[&str]) -> Run {
    tidegate(folder, args).output().expect("starts").into()
}

fn run_with_input(folder: &Path, args: &[&str], input: &str) -> Run {
    let mut child = tidegate(folder, args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    child.stdin.take().expect("is piped").write_all(input.as_bytes()).expect("is read");
    child.wait_with_output().expect("ends").into()
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("is written");
    }
    folder
}

fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Lines of JSON in one spelling, sorted.
fn sorted_rows(text: &str) -> Vec<String> {
    let spelling =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("each line is JSON").to_string();
    let mut rows: Vec<_> = text.lines().map(spelling).collect();
    rows.sort_unstable();
    rows
}

/// Parallelism and rows of a batch: ways to cut rows that results must not depend on. Batches of one row take
/// most of the time of these tests.
const CUTS: [(&str, &str); 5] = [("1", "1"), ("1", "8192"), ("2", "7"), ("4", "1"), ("4", "8192")];

/// A script of `queries/` gives its expected rows, however it is cut; the summary says this.
fn query_gives(script: &str, summary: &[&str]) {
    let expected = project().join("queries").join(script.replace(".sql", ".expected.ndjson"));
    let expected = fs::read_to_string(expected).expect("expected rows");
    let expected = sorted_rows(&expected);
    let script = format!("queries/{script}");
    for (parallelism, batch_rows) in CUTS {
        let setting = format!("execution.batch-rows={batch_rows}");
        let run = run(project(), &["run", &script, "-p", parallelism, "--set", &setting]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(sorted_rows(&run.stdout) == expected, "-p {parallelism} batch {batch_rows}: other rows");
        for part in summary {
            assert!(run.stderr.contains(part), "no \"{part}\" in: {}", run.stderr);
        }
    }
}

#[test]
fn flights_by_hour() {
    query_gives(
        "flights/hourly.sql",
        &["26,353 rows in, 1,631 rows out", "1,027 late, 0 partly late", "all rows accounted for"],
    );
}

/// The late rows stand in a file, each with the window that it missed and the watermark before it.
#[test]
fn flights_that_are_late() {
    let expected = |name: &str| {
        let path = project().join("queries/flights").join(name);
        sorted_rows(&fs::read_to_string(path).expect("expected rows"))
    };
    let (hourly, late) = (expected("hourly.expected.ndjson"), expected("late.expected.ndjson"));
    assert_eq!(late.len(), 1_027);
    for (parallelism, batch_rows) in [("1", "8192"), ("1", "7"), ("2", "8192"), ("4", "7"), ("4", "1")] {
        let out = folder(&[]);
        let variable = format!("OUT={}", out.path().display());
        let setting = format!("execution.batch-rows={batch_rows}");
        let args = ["run", "queries/flights/late.sql", "-D", &variable, "-p", parallelism, "--set", &setting];
        let run = run(project(), &args);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(sorted_rows(&run.stdout) == hourly, "-p {parallelism} batch {batch_rows}: other rows");
        let written = fs::read_to_string(out.path().join("late_flights.ndjson")).expect("late rows");
        assert!(sorted_rows(&written) == late, "-p {parallelism} batch {batch_rows}: other late rows");
        for part in ["26,353 rows in, 1,631 rows out", "1,027 late, ", "late rows → late_flights: 1,027 rows"]
        {
            assert!(run.stderr.contains(part), "no \"{part}\" in: {}", run.stderr);
        }
    }
}

#[test]
fn flights_hopping() {
    query_gives(
        "flights/hop.sql",
        &["26,353 rows in, 12,131 rows out", "413 late, 2,198 partly late", "all rows accounted for"],
    );
}

#[test]
fn earthquakes_by_network() {
    query_gives(
        "earthquakes/by_network.sql",
        &[
            "1,707 rows in, 216 rows out",
            "462 late, 0 partly late",
            "28 filtered",
            "warning: 27.1 % of the rows were late",
        ],
    );
}

#[test]
fn weather_by_day() {
    query_gives("weather/by_day.sql", &["2,211 rows in", "0 late, 0 partly late", "all rows accounted for"]);
}

#[test]
fn a_script_can_come_from_anywhere() {
    let elsewhere = folder(&[]);
    let script = project().join("queries/flights/hourly.sql");
    let run = run(elsewhere.path(), &["run", "-q", script.to_str().expect("is text")]);
    assert_eq!((run.code, run.stdout.lines().count(), run.stderr.as_str()), (0, 1_631, ""));
}

#[test]
fn standard_input_is_a_script() {
    let here = folder(&[]);
    for args in [&[][..], &["run", "-"]] {
        let run = run_with_input(here.path(), args, "SELECT 1 AS one, 'a' AS b;");
        assert_eq!((run.code, run.stdout.as_str()), (0, "{\"one\":1,\"b\":\"a\"}\n"), "{}", run.stderr);
    }
    for input in ["", "\n", "-- nothing\n", ";"] {
        let run = run_with_input(here.path(), &[], input);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""), "{input:?}");
    }
}

#[test]
fn formats() {
    let here = folder(&[]);
    let sql = "SELECT 1 AS n, 'a,b' AS s, CAST(NULL AS STRING) AS z";
    for (format, expected) in [
        ("json", "{\"n\":1,\"s\":\"a,b\",\"z\":null}\n"),
        ("csv", "n,s,z\n1,\"a,b\",\n"),
        ("changelog-json", "{\"op\":\"+I\",\"row\":{\"n\":1,\"s\":\"a,b\",\"z\":null}}\n"),
        (
            "table",
            "+---+-----+------+\n| n | s   | z    |\n+---+-----+------+\n| 1 | a,b | NULL |\n+---+-----+------+\n",
        ),
    ] {
        let run = run(here.path(), &["-q", "-f", format, "-c", sql]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, expected, ""), "{format}");
    }
    let empty = run(here.path(), &["-f", "csv", "-c", "SELECT 1 AS n, 2 AS m WHERE FALSE"]);
    assert_eq!((empty.code, empty.stdout.as_str()), (0, "n,m\n"), "{}", empty.stderr);
}

#[test]
fn variables() {
    let here = folder(&[("a.sql", "-- ${not_used}\nSELECT '${name}' AS s, ${n} + 1 AS n, '$${x}' AS d;")]);
    let args = ["run", "-q", "a.sql", "-D", "name=it''s", "-D", "n=41"];
    let good = run(here.path(), &args);
    assert_eq!(
        (good.code, good.stdout.as_str()),
        (0, "{\"s\":\"it's\",\"n\":42,\"d\":\"${x}\"}\n"),
        "{}",
        good.stderr
    );
    let bad = run(here.path(), &args[..5]);
    assert_eq!((bad.code, bad.stdout.as_str()), (2, ""));
    assert!(bad.stderr.contains("error[U003]: variable \"n\" has no value"), "{}", bad.stderr);
    assert!(bad.stderr.contains(" --> a.sql:2:24"), "{}", bad.stderr);
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let here = folder(&[("latin.sql", ""), ("a.sql", "SELECT 1 AS one;")]);
    fs::write(here.path().join("latin.sql"), b"SELECT '\xe9'").expect("is written");
    for (args, part) in [
        (&["run", "none.sql"][..], "can't read \"none.sql\": No such file"),
        (&["run", "."], "\".\" is a folder, not a script"),
        (&["run", "latin.sql"], "is no UTF-8 text"),
        (&["run"], "required arguments were not provided"),
        (&["run", "a.sql", "-p", "0"], "\"execution.parallelism\" can't be \"0\""),
        (&["run", "a.sql", "-p", "-1"], "can't be \"-1\""),
        (&["run", "a.sql", "-p", "many"], "Use a whole number from 1 to 1024"),
        (&["run", "a.sql", "-f", "xml"], "invalid value 'xml'"),
        (&["run", "a.sql", "--set", "execution.batchrows=1"], "Use \"execution.batch-rows\""),
        (&["run", "a.sql", "--set", "nonsense"], "expected NAME=VALUE"),
        (&["run", "a.sql", "-D", "=1"], "expected NAME=VALUE"),
        (&["walk", "a.sql"], "unrecognized subcommand 'walk'"),
        (&["a.sql"], "hint: Use tidegate run a.sql"),
        (&["-c", "SET 'execution.paralelism' = '2'"], "Use \"execution.parallelism\""),
    ] {
        let run = run(here.path(), args);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(part), "{args:?}: no \"{part}\" in: {}", run.stderr);
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    let here = folder(&[]);
    let version = concat!("tidegate ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(run(here.path(), &["-V"]).stdout, version);
    let long = run(here.path(), &["--version"]).stdout;
    assert!(long.starts_with(version), "{long}");
    for fact in ["commit: ", "target: ", "built with: rustc "] {
        assert!(long.contains(fact), "{long}");
    }
    for args in [&["--help"][..], &["run", "--help"], &["explain", "--help"]] {
        let help = run(here.path(), args);
        assert_eq!((help.code, help.stderr.as_str()), (0, ""));
        assert!(help.stdout.contains("Examples:"), "{args:?}");
    }
}

const TABLE: &str = "CREATE TABLE t (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv', 'csv.header' = 'false');\n";
const WINDOWS: &str = "SELECT window_start, COUNT(*) AS c, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;\n";

/// Windows of a minute over these lines.
fn windows_of(csv: &str) -> Run {
    let here = folder(&[("in.csv", csv), ("q.sql", &format!("{TABLE}{WINDOWS}"))]);
    run(here.path(), &["run", "q.sql"])
}

#[test]
fn times_near_the_ends_of_the_calendar() {
    let run = windows_of(
        "1,0001-01-01 00:00:59.999\n2,1969-12-31 23:59:59.999\n4,1970-01-01 00:00:00\n8,9999-12-31 23:59:59.999\n",
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(
        run.stdout,
        "{\"window_start\":\"0001-01-01T00:00:00.000\",\"c\":1,\"s\":1}\n\
         {\"window_start\":\"1969-12-31T23:59:00.000\",\"c\":1,\"s\":2}\n\
         {\"window_start\":\"1970-01-01T00:00:00.000\",\"c\":1,\"s\":4}\n\
         {\"window_start\":\"9999-12-31T23:59:00.000\",\"c\":1,\"s\":8}\n"
    );
}

#[test]
fn rows_without_time_are_counted() {
    let run = windows_of("1,2024-05-01 09:00:01\n2,\n4,2024-05-01 09:00:02\n");
    assert_eq!(
        run.stdout, "{\"window_start\":\"2024-05-01T09:00:00.000\",\"c\":2,\"s\":5}\n",
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("0 late, 0 partly late, 1 without time"), "{}", run.stderr);
    assert!(run.stderr.contains("3 in = 2 used + 1 without time"), "{}", run.stderr);
}

#[test]
fn one_row_from_the_future_is_visible() {
    let run = windows_of(
        "1,2024-05-01 09:00:01\n2,2038-01-19 03:14:07\n4,2024-05-01 09:00:20\n8,2024-05-01 09:01:05\n",
    );
    assert_eq!(run.stdout.lines().count(), 2, "{}", run.stdout);
    assert!(run.stderr.contains("2 late, 0 partly late"), "{}", run.stderr);
    assert!(run.stderr.contains("warning: 50.0 % of the rows were late"), "{}", run.stderr);
    assert!(run.stderr.contains("to 2038-01-19 03:14:02.000"), "{}", run.stderr);
}

#[test]
fn a_row_that_does_not_fit_is_named() {
    let run = windows_of("1,2024-05-01 09:00:01\n2\n");
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{}", run.stderr);
    assert!(run.stderr.contains("error[F002]") && run.stderr.contains("in.csv"), "{}", run.stderr);
    assert!(run.stderr.contains("line 2") || run.stderr.contains("in.csv:2"), "{}", run.stderr);
}

#[test]
fn nothing_to_read_is_an_empty_result() {
    let run = windows_of("");
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{}", run.stderr);
    assert!(run.stderr.contains("0 rows in, 0 rows out"), "{}", run.stderr);
}

#[test]
fn data_that_is_not_there_or_broken_is_an_error() {
    let here = folder(&[]);
    let script = |path: &str| format!("{}{WINDOWS}", TABLE.replace("in.csv", path));
    // A gzip file whose last bytes are missing.
    let whole: &[u8] = &[
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 0xff, 0x33, 0xd4, 0x31, 0x32, 0x30, 0x32, 0xd1, 0x35, 0x30, 0xd5,
        0x35,
    ];
    fs::write(here.path().join("cut.csv.gz"), whole).expect("is written");
    for (path, part) in [("none.csv", "none.csv"), ("none/*.csv", "none/*.csv"), ("cut.csv.gz", "cut.csv.gz")]
    {
        fs::write(here.path().join("q.sql"), script(path)).expect("is written");
        let run = run(here.path(), &["run", "q.sql"]);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{path}: {}", run.stderr);
        assert!(run.stderr.contains("error[F001]") && run.stderr.contains(part), "{path}: {}", run.stderr);
    }
}

#[test]
fn what_does_not_exist_is_shown_with_its_place() {
    for (sql, place, part) in [
        ("SELECT w FROM t;", "q.sql:4:8", "\"w\""),
        ("SELECT v\nFROM tt;", "q.sql:5:6", "\"tt\""),
        ("SELECT sqroot(v) FROM t;", "q.sql:4:8", "\"sqroot\""),
        (
            "CREATE TABLE u (v INT) WITH ('connector' = 'filesystem', 'pth' = 'x', 'format' = 'csv');",
            "q.sql:4:58",
            "\"pth\"",
        ),
        ("SELECT v FROM;", "q.sql:4:14", ""),
        ("DESCRIBE x;", "q.sql:4:10", "\"x\""),
        ("DROP VIEW t;", "q.sql:4:11", "is a table"),
    ] {
        let here = folder(&[("in.csv", ""), ("q.sql", &format!("{TABLE}\n{sql}\n"))]);
        let run = run(here.path(), &["run", "q.sql"]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{sql}: {}", run.stderr);
        assert!(run.stderr.contains(&format!(" --> {place}\n")), "{sql}: {}", run.stderr);
        assert!(run.stderr.contains(part), "{sql}: {}", run.stderr);
        assert!(run.stderr.contains('^'), "{sql}: {}", run.stderr);
    }
}

#[test]
fn what_was_declared_can_be_shown() {
    let here = folder(&[("in.csv", "1,2024-05-01 09:00:01\n")]);
    let run_all = |sql: &str| run(here.path(), &["-q", "-f", "json", "-c", &format!("{TABLE}{sql}")]);
    let shown = run_all("CREATE VIEW w AS SELECT v + 1 AS v1 FROM t; SHOW TABLES; SHOW VIEWS; DESCRIBE t;");
    assert_eq!(
        shown.stdout,
        "{\"table\":\"t\"}\n{\"view\":\"w\"}\n\
         {\"name\":\"v\",\"type\":\"INT\",\"null\":true,\"key\":null,\"extras\":null,\"watermark\":null}\n\
         {\"name\":\"ts\",\"type\":\"TIMESTAMP(3)\",\"null\":true,\"key\":null,\"extras\":null,\
         \"watermark\":\"ts - INTERVAL '5' SECOND\"}\n",
        "{}",
        shown.stderr
    );
    // SHOW CREATE gives SQL that creates the same table.
    let created = run_all("SHOW CREATE TABLE t;");
    let again =
        run(here.path(), &["-q", "-c", &format!("{} SHOW CREATE TABLE t; SELECT v FROM t;", created.stdout)]);
    assert_eq!(again.stdout, format!("{}{{\"v\":1}}\n", created.stdout), "{}", again.stderr);
}

#[test]
fn explain_runs_nothing() {
    let run_one = |args: &[&str]| run(project(), args);
    let plan = run_one(&["explain", "queries/flights/hourly.sql"]);
    assert_eq!((plan.code, plan.stderr.as_str()), (0, ""));
    assert!(plan.stdout.contains("TUMBLE") || plan.stdout.contains("Tumble"), "{}", plan.stdout);
    let json = run_one(&["explain", "--json", "queries/flights/hourly.sql"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).expect("one JSON document");
    assert!(json.is_object() || json.is_array());
}

#[test]
fn explain_lint_shows_what_may_not_be_meant() {
    let minute =
        "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY window_start, window_end;";
    let late = format!("{TABLE}SELECT window_start, COUNT(*) AS c\n{minute}\n");
    let here = folder(&[("late.sql", &late), ("good.sql", &format!("{TABLE}{WINDOWS}"))]);
    let found = run(here.path(), &["explain", "--lint", "late.sql"]);
    assert_eq!((found.code, found.stderr.as_str()), (1, ""));
    let first: Vec<&str> = found.stdout.lines().take(2).collect();
    let expected = [
        "lint[L002]: the watermark of \"t\" is 5 s behind its rows, longer than the window of 1 s",
        " --> late.sql:4:12",
    ];
    assert_eq!(first, expected, "{}", found.stdout);
    let plan = run(here.path(), &["explain", "late.sql"]);
    assert_eq!(plan.code, 0);
    assert!(plan.stdout.contains("\nlint[L002] at 4:12: the watermark of \"t\""), "{}", plan.stdout);
    let json = run(here.path(), &["explain", "--lint", "--json", "late.sql"]);
    let found: serde_json::Value = serde_json::from_str(&json.stdout).expect("one JSON document");
    assert_eq!((json.code, found.as_array().map(Vec::len)), (1, Some(1)));
    assert_eq!(
        (&found[0]["code"], &found[0]["file"], &found[0]["line"]),
        (&"L002".into(), &"late.sql".into(), &4.into())
    );
    let view = format!("{TABLE}CREATE VIEW whole AS SELECT v, CAST(ts AS TIMESTAMP(0)) AS ts FROM t;\n");
    fs::write(here.path().join("view.sql"), view).expect("the folder can be written");
    let found = run(here.path(), &["explain", "--lint", "view.sql"]);
    assert_eq!(found.code, 1);
    assert!(
        found.stdout.starts_with("lint[L001]: \"ts\" of the result is no time attribute"),
        "{}",
        found.stdout
    );
    let clean = run(here.path(), &["explain", "--lint", "good.sql"]);
    assert_eq!((clean.code, clean.stdout.as_str(), clean.stderr.as_str()), (0, "", ""));
}

#[test]
fn an_insert_writes_all_rows_and_leaves_no_other_file() {
    let here = folder(&[("in.csv", "1,2024-05-01 09:00:01\n2,2024-05-01 09:00:02\n")]);
    let sql = format!(
        "{TABLE} CREATE TABLE o (v INT) WITH ('connector' = 'filesystem', 'path' = 'out.json', 'format' = 'json');
        INSERT INTO o SELECT v FROM t;"
    );
    let run = run(here.path(), &["-c", &sql]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{}", run.stderr);
    assert!(run.stderr.contains("2 rows in, 2 rows out"), "{}", run.stderr);
    let written = fs::read_to_string(here.path().join("out.json")).expect("the output");
    assert_eq!(sorted_lines(&written), ["{\"v\":1}", "{\"v\":2}"]);
    assert_eq!(fs::read_dir(here.path()).expect("a folder").count(), 2);
}

/// The first line of a child's output, or a failure if it does not come.
fn first_line(child: &mut Child) -> (String, BufReader<std::process::ChildStdout>) {
    let mut stdout = BufReader::new(child.stdout.take().expect("is piped"));
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        let mut line = String::new();
        let read = stdout.read_line(&mut line).map(|_| (line, stdout));
        let _ = sender.send(read);
    });
    receiver.recv_timeout(PATIENCE).expect("a line comes in time").expect("is readable")
}

#[test]
fn a_closed_pipe_is_a_normal_end() {
    let rows: String = (0..200_000).map(|v| format!("{v},2024-05-01 09:00:00\n")).collect();
    let here = folder(&[("in.csv", &rows), ("q.sql", &format!("{TABLE}SELECT v, ts FROM t;"))]);
    for format in ["json", "csv", "table", "changelog-json"] {
        let mut child = tidegate(here.path(), &["run", "q.sql", "-f", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        drop(first_line(&mut child));
        let run = Run::from(child.wait_with_output().expect("ends"));
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{format}");
    }
}

#[test]
fn a_closed_standard_error_changes_nothing() {
    let here = folder(&[]);
    for (sql, code) in [("SELECT 1 AS one", 0), ("SELECT x", 2)] {
        let mut child = tidegate(here.path(), &["-c", sql])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        drop(child.stderr.take());
        assert_eq!(child.wait().expect("ends").code(), Some(code), "{sql}");
    }
}

/// A query over standard input that has given its row for the first line.
fn waiting_query(here: &Path, into: &str) -> Child {
    let sql = format!(
        "CREATE TABLE t (v INT) WITH ('connector' = 'stdin', 'format' = 'json');
        CREATE TABLE o (v INT) WITH ('connector' = 'filesystem', 'path' = 'out.json', 'format' = 'json');
        {into} SELECT v FROM t;"
    );
    let mut child = tidegate(here, &["-q", "-c", &sql])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    child.stdin.as_mut().expect("is piped").write_all(b"{\"v\":7}\n").expect("is read");
    child
}

#[test]
fn a_row_of_a_slow_stream_is_shown_at_once() {
    let here = folder(&[]);
    let mut child = waiting_query(here.path(), "");
    let (line, stdout) = first_line(&mut child);
    assert_eq!(line, "{\"v\":7}\n");
    // Only now the input ends.
    drop(child.stdin.take());
    drop(stdout);
    assert!(child.wait().expect("ends").success());
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_a_query() {
    let here = folder(&[]);
    let mut child = waiting_query(here.path(), "");
    let (line, _stdout) = first_line(&mut child);
    assert_eq!(line, "{\"v\":7}\n");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
    let input = child.stdin.take();
    let run = Run::from(child.wait_with_output().expect("ends"));
    drop(input);
    assert_eq!(run.code, 130, "{}", run.stderr);
    assert!(run.stderr.contains("interrupted"), "{}", run.stderr);
}

#[test]
fn a_table_that_listens_says_where() {
    let here = folder(&[]);
    let script = "CREATE TABLE t (v INT) WITH ('connector' = 'socket', 'mode' = 'listen', 'port' = '0', \
                    'format' = 'json'); SELECT v FROM t LIMIT 1;";
    let mut child = tidegate(here.path(), &["-f", "csv", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut notes = BufReader::new(child.stderr.take().expect("is piped"));
    let mut note = String::new();
    notes.read_line(&mut note).expect("a note");
    let address = note.trim_end().strip_prefix("Source(t) listens on ").expect("says where");
    let mut stream = std::net::TcpStream::connect(address).expect("listens");
    stream.write_all(b"{\"v\":7}\n").expect("is read");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "v\n7\n");
}

/// A table of three rows, and what counts them.
const COUNTED: &str = "CREATE TABLE t (k STRING, v INT) WITH \
    ('connector' = 'filesystem', 'path' = 'in.csv', 'format' = 'csv', 'csv.header' = 'true'); \
    SELECT k, SUM(v) AS s FROM t GROUP BY k";
const COUNTED_ROWS: &str = "k,v\na,1\nb,2\na,3\n";

#[test]
fn results_that_change_are_shown_when_they_are_final() {
    let here = folder(&[("in.csv", COUNTED_ROWS)]);
    // a is updated last, so it stands last.
    let shown = [
        ("json", "{\"k\":\"b\",\"s\":2}\n{\"k\":\"a\",\"s\":4}\n"),
        ("csv", "k,s\nb,2\na,4\n"),
        ("table", "+---+---+\n| k | s |\n+---+---+\n| b | 2 |\n| a | 4 |\n+---+---+\n"),
    ];
    for (format, expected) in shown {
        let run = run(here.path(), &["-c", &format!("{COUNTED} EMIT CHANGES"), "-p", "1", "-f", format]);
        assert_eq!((run.code, run.stdout.as_str()), (0, expected), "{format}: {}", run.stderr);
    }
    let changes =
        run(here.path(), &["-c", &format!("{COUNTED} EMIT CHANGES"), "-p", "1", "-f", "changelog-json"]);
    let expected = [
        r#"{"op":"+I","row":{"k":"a","s":1}}"#,
        r#"{"op":"+I","row":{"k":"b","s":2}}"#,
        r#"{"op":"-U","row":{"k":"a","s":1}}"#,
        r#"{"op":"+U","row":{"k":"a","s":4}}"#,
    ];
    assert_eq!(changes.stdout.lines().collect::<Vec<_>>(), expected);
    let complete = run(here.path(), &["-c", &format!("{COUNTED} EMIT COMPLETE"), "-f", "csv"]);
    assert_eq!(complete.stdout, "k,s\na,4\nb,2\n", "as the keys were first seen");
}

#[test]
fn results_that_never_are_final_want_a_format_for_changes() {
    let here = folder(&[]);
    let script = "CREATE TABLE t (k STRING) WITH ('connector' = 'stdin', 'format' = 'csv', 'bounded' = 'false'); \
                  SELECT k, COUNT(*) AS c FROM t GROUP BY k EMIT CHANGES";
    for format in ["json", "csv", "table"] {
        let run = run(here.path(), &["-c", script, "-f", format]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""));
        assert!(
            run.stderr.contains("error[U004]") && run.stderr.contains("-f changelog-json"),
            "{}",
            run.stderr
        );
    }
    let run = run_with_input(here.path(), &["-c", script, "-f", "changelog-json"], "a\na\n");
    assert_eq!(run.stdout.lines().count(), 3, "{}", run.stdout);
    assert!(run.stderr.contains("keeps a group for each key"), "{}", run.stderr);
}

const TESTS: &str = "CREATE TABLE t (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);

test \"sums\"
SELECT SUM(v) AS s FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
push t
{\"v\": 1, \"ts\": \"2024-05-01 09:00:10\"}
{\"v\": 2, \"ts\": \"2024-05-01 09:01:00\"}
expect
{\"s\": 7}

test \"a < b\"
SELECT v FROM t;
expect
(no rows)
";

#[test]
fn a_test_that_fails_shows_the_difference() {
    let folder = folder(&[("a.test", TESTS)]);
    let failed = run(folder.path(), &["test", "a.test", "--shuffle", "2", "--junit", "report.xml"]);
    assert_eq!((failed.code, failed.stdout.as_str()), (1, ""));
    for part in [
        "FAILED  a.test: sums\n  a.test:8: the rows are others:",
        "- {\"s\":7}",
        "+ {\"s\":1}",
        "ok      a.test: a < b\n",
        "2 tests, 1 passed, 1 failed",
    ] {
        assert!(failed.stderr.contains(part), "no {part:?} in {}", failed.stderr);
    }
    let report = fs::read_to_string(folder.path().join("report.xml")).expect("a report");
    assert!(
        report.contains("<testsuites tests=\"2\" failures=\"1\">") && report.contains("a &lt; b"),
        "{report}"
    );
    let chosen = run(folder.path(), &["test", "a.test", "--filter", "a <"]);
    assert_eq!(chosen.code, 0, "{}", chosen.stderr);
    assert!(chosen.stderr.ends_with("1 test, 1 passed, 0 failed\n"), "{}", chosen.stderr);
}

#[test]
fn bless_rewrites_what_is_expected_but_not_in_ci() {
    let folder = folder(&[("a.test", TESTS)]);
    let in_ci = tidegate(folder.path(), &["test", "a.test", "--bless"]).env("CI", "true").output();
    let in_ci = Run::from(in_ci.expect("starts"));
    assert_eq!(in_ci.code, 2);
    assert!(in_ci.stderr.contains("CI is set"), "{}", in_ci.stderr);
    let blessed = tidegate(folder.path(), &["test", "a.test", "--bless"]).env_remove("CI").output();
    assert_eq!(Run::from(blessed.expect("starts")).code, 0);
    let text = fs::read_to_string(folder.path().join("a.test")).expect("the file");
    assert_eq!(text, TESTS.replace("{\"s\": 7}", "{\"s\":1}"));
    assert_eq!(run(folder.path(), &["test", "a.test", "--shuffle", "3"]).code, 0);
}

#[test]
fn a_test_file_that_can_t_be_read_is_exit_code_2_with_its_place() {
    let folder = folder(&[("a.test", "test a\nexpekt\n"), ("b.test", "test a\n")]);
    let wrong = run(folder.path(), &["test", "a.test"]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.stderr.contains("a.test:2:1") && wrong.stderr.contains("hint: Use expect."),
        "{}",
        wrong.stderr
    );
    for args in [["b.test", "--filter", "x"].as_slice(), &["none.test"], &["b.test", "--seed", "1"], &[]] {
        assert_eq!(run(folder.path(), &[&["test"], args].concat()).code, 2, "{args:?}");
    }
}
