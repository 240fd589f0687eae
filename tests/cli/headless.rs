//! Runs that nobody watches: what goes on beside, signals, limits, checks, and what to start from.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::{PATIENCE, Run, TABLE, WINDOWS, first_line, folder, run, tidegate};

const LIVE: &str = "CREATE TABLE ticks (n BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH (\
        'connector' = 'datagen', 'rows-per-second' = '1000', 'fields.n.kind' = 'sequence', \
        'fields.ts.start' = '2024-01-01 00:00:00', 'fields.ts.step' = '1 ms'); \
    CREATE TABLE out (c BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out.csv', 'format' = 'csv'); \
    INSERT INTO out SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' DAY)) \
        GROUP BY window_start, window_end;";

fn start(here: &Path, args: &[&str]) -> Child {
    let mut command = tidegate(here, args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
}

#[cfg(unix)]
fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
}

#[cfg(unix)]
#[test]
fn sigterm_drains_what_runs_and_what_runs_beside() {
    let here = folder(&[]);
    let mut child = start(here.path(), &["-c", &format!("{LIVE} SELECT n FROM ticks;")]);
    let (line, mut rows) = first_line(&mut child);
    assert!(line.starts_with("{\"n\":"), "{line}");
    signal(&child, "-TERM");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut rows, &mut rest).expect("the rows end");
    let run = Run::from(child.wait_with_output().expect("ends"));
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stderr.matches("all rows accounted for").count(), 2, "{}", run.stderr);
    // The day is not over: its window was open.
    let written = fs::read_to_string(here.path().join("out.csv")).expect("the sink was finished");
    let count: u64 = written.lines().last().and_then(|line| line.parse().ok()).expect("a count");
    assert!(count >= 1 && run.stderr.contains(" 1 row out"), "{written}: {}", run.stderr);
}

#[cfg(unix)]
#[test]
fn what_follows_a_drained_query_is_not_run() {
    let here = folder(&[]);
    let mut child =
        start(here.path(), &["-c", &format!("{LIVE} SELECT n FROM ticks; SELECT 'next' AS word;")]);
    let (_, mut rows) = first_line(&mut child);
    signal(&child, "-TERM");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut rows, &mut rest).expect("the rows end");
    let run = Run::from(child.wait_with_output().expect("ends"));
    assert_eq!(run.code, 130, "{}", run.stderr);
    assert!(run.stderr.contains("what follows from line 1 on was not run"), "{}", run.stderr);
    assert!(!rest.contains("next"), "{rest}");
    assert!(here.path().join("out.csv").exists(), "what ran beside was drained");
}

#[cfg(unix)]
#[test]
fn a_second_sigterm_stops_at_once() {
    let here = folder(&[]);
    let wide = "CREATE TABLE t (n INT) WITH ('connector' = 'datagen', 'number-of-rows' = '100'); \
                SELECT REPEAT('x', 100000) AS x FROM t;";
    let mut child = start(here.path(), &["-q", "-c", wide]);
    // Nobody reads on: rows that no pipe holds can't go all the way.
    let (_, _rows) = first_line(&mut child);
    // Signals that come together may be one.
    let until = Instant::now() + PATIENCE;
    let ended = loop {
        signal(&child, "-TERM");
        if let Some(ended) = child.try_wait().expect("can be asked") {
            break ended;
        }
        assert!(Instant::now() < until, "it goes on");
    };
    assert_eq!(ended.code(), Some(130));
}

#[test]
fn a_run_that_takes_too_long_fails() {
    let here = folder(&[]);
    for sql in [format!("{LIVE} SELECT n FROM ticks;"), LIVE.to_owned()] {
        let run = run(here.path(), &["--timeout", "300ms", "-c", &sql]);
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert!(run.stderr.contains("error[R009]"), "{}", run.stderr);
        assert!(!here.path().join("out.csv").exists());
    }
    let run = run(here.path(), &["--timeout", "soon", "-c", "SELECT 1"]);
    assert_eq!(run.code, 2, "{}", run.stderr);
}

#[test]
fn a_script_goes_on_beside_an_insert_that_does_not_end() {
    let here = folder(&[]);
    let sql = format!(
        "{LIVE} SHOW JOBS; STOP JOB out WITH DRAIN; SHOW JOBS; DESCRIBE JOB 1; \
         CREATE TABLE written (c BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out.csv', 'format' = 'csv'); \
         SELECT COUNT(*) AS days FROM written;"
    );
    let run = run(here.path(), &["-f", "json", "-c", &sql]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(lines[0].contains("\"name\":\"out\",\"state\":\"running\""), "{}", run.stdout);
    assert!(lines[1].contains("\"name\":\"out\",\"state\":\"finished\""), "{}", run.stdout);
    assert!(run.stdout.contains("{\"property\":\"state\",\"value\":\"finished\"}"), "{}", run.stdout);
    assert!(lines.last().is_some_and(|line| line.starts_with("{\"days\":")), "{}", run.stdout);
    let unknown = super::run(here.path(), &["-c", "SELECT 1 AS one; STOP JOB nowhere"]);
    assert_eq!(unknown.code, 2, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("no job \"nowhere\"") && unknown.stderr.contains("SHOW JOBS"));
}

#[test]
fn an_insert_that_fails_beside_ends_the_run() {
    let here = folder(&[("in.json", "{\"v\":1}\n{\"v\":\"x\"}\n")]);
    let sql = "CREATE TABLE f (v INT) WITH ('connector' = 'filesystem', 'path' = 'in.json', 'format' = 'json', \
                   'source.monitor-interval' = '1 s'); \
               CREATE TABLE nowhere (v BIGINT) WITH ('connector' = 'blackhole'); \
               CREATE TABLE ticks (v BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100'); \
               INSERT INTO nowhere SELECT v FROM f; SELECT v FROM ticks;";
    let run = run(here.path(), &["-c", sql]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("error[F002]") && run.stderr.contains("in.json"), "{}", run.stderr);
}

#[test]
fn a_check_plans_everything_and_runs_nothing() {
    let sql = "CREATE TABLE o (v INT) WITH ('connector' = 'filesystem', 'path' = 'out.csv', 'format' = 'csv');\n\
               INSERT INTO o SELECT v FROM t;\nSELECT v FROM t;\n";
    let script = format!("{TABLE}{sql}");
    let here = folder(&[("q.sql", &script), ("wrong.sql", &format!("{TABLE}{sql}SELECT w FROM t;\n"))]);
    let run = run(here.path(), &["run", "--check", "q.sql"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{}", run.stderr);
    assert!(run.stderr.contains("4 statements checked, no lints"), "{}", run.stderr);
    let wrong = super::run(here.path(), &["run", "--check", "wrong.sql"]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("wrong.sql:6:8"), "{}", wrong.stderr);
    assert!(!here.path().join("out.csv").exists());
    let quiet = super::run(here.path(), &["run", "--check", "-q", "q.sql"]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (0, ""));
}

/// Two rows, the second one a minute too late.
const LATE: &str = "1,2024-05-01 09:02:05\n2,2024-05-01 09:00:30\n";

#[test]
fn late_rows_can_be_a_failure() {
    let here = folder(&[("in.csv", LATE), ("q.sql", &format!("{TABLE}{WINDOWS}"))]);
    let run = |most| run(here.path(), &["run", "q.sql", "--fail-on-late", most]);
    let (none, one) = (run("0"), run("1"));
    assert_eq!(none.code, 1, "{}", none.stderr);
    assert!(none.stderr.contains("error[R008]: 1 row was late"), "{}", none.stderr);
    // What the query gave is there all the same.
    assert_eq!((one.code, &one.stdout), (0, &none.stdout));
}

#[test]
fn summaries_can_be_read_by_programs() {
    let here = folder(&[("in.csv", LATE), ("q.sql", &format!("{TABLE}{WINDOWS}"))]);
    let run = run(here.path(), &["run", "q.sql", "--summary", "json"]);
    let summary: serde_json::Value = serde_json::from_str(&run.stderr).expect("one object");
    for (key, value) in [("job", 1), ("rows_in", 2), ("rows_out", 1), ("late", 1), ("malformed", 0)] {
        assert_eq!(summary[key], value, "{key}: {summary}");
    }
    assert_eq!(summary["watermark"], "2024-05-01 09:02:00.000");
    assert_eq!(summary["reconciles"], true);
}

#[test]
fn a_new_project_runs_and_its_test_passes() {
    let here = folder(&[]);
    let made = run(here.path(), &["new", "clicks"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let project = here.path().join("clicks");
    let ran = run(&project, &["run", "hourly.sql", "-f", "csv"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // Counted by hand in data/clicks.csv: the click of 09:40 comes when the hour has been given.
    for row in ["2024-05-01 09:00:00.000,/home,4,2", "2024-05-01 09:00:00.000,/docs,1,1"] {
        assert!(ran.stdout.lines().any(|line| line == row), "no {row} in {}", ran.stdout);
    }
    assert!(ran.stderr.contains("12 rows in") && ran.stderr.contains("1 late"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
    let tested = run(&project, &["test", "hourly.test", "--shuffle", "3"]);
    assert_eq!(tested.code, 0, "{}", tested.stderr);
    let again = run(here.path(), &["new", "clicks"]);
    assert_eq!(again.code, 2, "{}", again.stderr);
    assert!(again.stderr.contains("is not empty"), "{}", again.stderr);
}

#[test]
fn completions_and_the_manual_page_know_the_commands() {
    let here = folder(&[]);
    for (args, part) in [
        (&["completions", "bash"][..], "complete -F _tidegate"),
        (&["completions", "zsh"], "#compdef tidegate"),
        (&["completions", "fish"], "complete -c tidegate"),
        (&["man"], ".TH tidegate 1"),
    ] {
        let run = run(here.path(), args);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{args:?}");
        assert!(run.stdout.contains(part), "{args:?}");
        assert!(run.stdout.contains("fail-on-late") || run.stdout.contains("fail\\-on\\-late"), "{args:?}");
    }
}
