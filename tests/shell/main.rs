//! The shell, driven in a real terminal.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod terminal;

use std::fs;

use tempfile::TempDir;
use terminal::{Terminal, last_line};

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const UP: &str = "\x1b[A";
const ENDLESS: &str = "CREATE TABLE ticks (n BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', \
    'rows-per-second' = '2000', 'fields.n.kind' = 'sequence', 'fields.ts.start' = '2024-01-01 00:00:00', 'fields.ts.step' = '1 ms');";

fn shell() -> (TempDir, Terminal) {
    let folder = tempfile::tempdir().unwrap();
    let terminal = Terminal::start(folder.path(), "xterm-256color");
    (folder, terminal)
}

#[test]
fn statements_take_several_lines_and_errors_end_only_themselves() {
    let (_folder, mut terminal) = shell();
    let shown = terminal.run("SELECT 1 AS one,\r  'a;b' AS text;", "| a;b");
    assert!(shown.contains("| one | text |") && shown.contains("|   1 | a;b  |"), "{shown}");
    let shown = terminal.run("SELECT nope FROM (SELECT 1 AS n);", "P004");
    assert!(shown.contains("error[P004]") && shown.contains('^'), "{shown}");
    terminal.run("SELECT 40 + 2 AS n;", "| 42 |");
    terminal.press("quit\r");
    assert_eq!(terminal.ended(), 0);
}

#[test]
fn tab_completes_and_up_recalls() {
    let (folder, mut terminal) = shell();
    fs::write(folder.path().join("strange_name.csv"), "a,b\n1,x\n").unwrap();
    terminal.press("SELECT * FROM 'stra\t");
    terminal.wait_for("the path", |screen| screen.contains("'strange_name.csv"));
    terminal.press("';\r");
    terminal.wait_for("the row", |screen| screen.contains("| 1 | x |") && last_line(screen) == "tidegate>");
    terminal.press("\\timi\t\r");
    terminal.wait_for("timing", |screen| screen.contains("timing is on"));
    terminal.run("CREATE TEMPORARY VIEW recalled AS SELECT 1 AS a;", "created view");
    terminal.press(UP);
    terminal.press("\r");
    terminal.wait_for("the error of a second creation", |screen| screen.contains("exists already"));
    terminal.press(CTRL_D);
    assert_eq!(terminal.ended(), 0);
    let history = fs::read_to_string(folder.path().join(".local/state/tidegate/history")).unwrap();
    assert!(history.contains("CREATE TEMPORARY VIEW recalled"), "{history}");
}

#[test]
fn what_is_typed_ahead_waits_for_its_turn() {
    let (_folder, mut terminal) = shell();
    terminal.press(
        "CREATE TEMPORARY VIEW v AS SELECT 40 AS n;\rSELECT n + 1 AS a FROM v;\rSELECT n + 2 AS b FROM v;\r",
    );
    let shown = terminal
        .wait_for("the last row", |screen| screen.contains("| 42 |") && last_line(screen) == "tidegate>");
    assert!(shown.contains("created view") && shown.contains("| 41 |"), "{shown}");
    terminal.press("SELECT n + 3 AS c FROM v;\r\x04");
    assert_eq!(terminal.ended(), 0);
}

#[test]
fn two_hundred_lines_are_pasted_at_once() {
    let (_folder, mut terminal) = shell();
    let mut script = String::new();
    for number in 0..199 {
        script += &format!("CREATE TEMPORARY VIEW v{number} AS SELECT {number} AS n;\n");
    }
    script += "SELECT SUM(n) AS total FROM (SELECT n FROM v0 UNION ALL SELECT n FROM v198);";
    terminal.press(&format!("\x1b[200~{script}\x1b[201~\r"));
    let shown = terminal
        .wait_for("the sum", |screen| screen.contains("|   198 |") && last_line(screen) == "tidegate>");
    assert!(shown.contains("created view \"v198\""), "{shown}");
    assert!(!shown.contains("error"), "{shown}");
}

#[test]
fn ctrl_c_and_any_key_stop_the_query_and_not_the_shell() {
    let (_folder, mut terminal) = shell();
    terminal.run(ENDLESS, "created table");
    for stop in [CTRL_C, "x"] {
        terminal.press("SELECT n FROM ticks;\r");
        terminal.wait_for("rows", |screen| screen.contains("any key stops") && screen.contains(" |"));
        terminal.press(stop);
        terminal.wait_for("the end", |screen| {
            screen.contains("stopped after") && last_line(screen) == "tidegate>"
        });
        terminal.run("\\dt", "| ticks |");
        // What was on the screen is not there for the next turn.
        terminal.press("\x0c");
        terminal.wait_for("an empty screen", |screen| !screen.contains("stopped after"));
    }
    terminal.press("SELECT half a line");
    terminal.wait_for("what was typed", |screen| last_line(screen).ends_with("half a line"));
    // As with every terminal, Ctrl-C drops what was typed ahead, so the next line comes after the prompt.
    terminal.press(CTRL_C);
    terminal.wait_for("a new prompt", |screen| last_line(screen) == "tidegate>");
    terminal.run("SELECT 'still' || ' here' AS a;", "| still here |");
    terminal.press(CTRL_D);
    assert_eq!(terminal.ended(), 0);
}

/// The field report B088: a query that is busy for hours without a row, one that shows rows without end, an empty
/// prompt. What was made before is still there.
#[test]
fn ctrl_c_stops_whatever_goes_on() {
    let (folder, mut terminal) = shell();
    let rows: String = (0..200_000).map(|v| format!("{{\"v\":{v}}}\n")).collect();
    fs::write(folder.path().join("in.json"), rows).unwrap();
    let table = "CREATE TABLE t (v INT) WITH ('connector' = 'filesystem', 'path' = 'in.json');";
    terminal.run(table, "created table");
    terminal.run("CREATE TEMPORARY VIEW w AS SELECT v + 1 AS next FROM t;", "created view");
    terminal.press("SELECT COUNT(*) AS c FROM t a JOIN t b ON a.v <> b.v;\r");
    // All of both is read: what follows are pairs, 4 * 10^10 of them.
    terminal.wait_for("all rows", |screen| screen.contains("400,000 rows"));
    terminal.press(CTRL_C);
    terminal.wait_for("the end", |screen| screen.contains("interrupted") && last_line(screen) == "tidegate>");
    terminal.run("SHOW JOBS;", "| stopped |");
    terminal.press("\x0c");
    terminal.wait_for("an empty screen", |screen| !screen.contains("interrupted"));
    let endless = "SELECT a.v FROM t a JOIN t b ON a.v <> b.v;\r";
    terminal.press(endless);
    terminal.wait_for("rows", |screen| screen.matches(" |").count() > 20);
    terminal.press(CTRL_C);
    terminal.wait_for("the end", |screen| screen.contains("interrupted") && last_line(screen) == "tidegate>");
    terminal.press("\x0c");
    terminal.wait_for("an empty screen", |screen| !screen.contains("interrupted"));
    terminal.press(CTRL_C);
    terminal.wait_for("a new prompt", |screen| screen.matches("tidegate>").count() == 2);
    terminal.run("SELECT MAX(next) AS last FROM w;", "| 200000 |");
    terminal.press(CTRL_D);
    assert_eq!(terminal.ended(), 0);
}

const NOWHERE: &str = "CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole');";

#[test]
fn an_insert_that_does_not_end_runs_beside_the_prompt() {
    let (_folder, mut terminal) = shell();
    terminal.run(ENDLESS, "created table");
    terminal.run(NOWHERE, "created table \"nowhere\"");
    terminal.run("INSERT INTO nowhere SELECT n FROM ticks;", "job 1 (nowhere) runs in the background");
    terminal.run("SHOW JOBS;", "| running |");
    terminal.run("DESCRIBE JOB nowhere;", "| Source(ticks)");
    terminal.run("EXPLAIN WATERMARK nowhere;", "Sink(nowhere)");
    let shown = terminal.run("SELECT name AS who, state AS now FROM system.jobs;", "| who     | now     |");
    assert!(shown.contains("| nowhere | running |"), "{shown}");
    terminal.press("\x0c");
    terminal.wait_for("an empty screen", |screen| !screen.contains("running"));
    terminal.run("STOP JOB nowhere WITH DRAIN;", "drained job 1 (nowhere): ");
    terminal.run("SHOW JOBS;", "| finished |");
    terminal.run("STOP JOB 1;", "job 1 (nowhere) is finished already");
    // Nothing runs any more: the shell is left at once.
    terminal.press(CTRL_D);
    assert_eq!(terminal.ended(), 0);
}

#[test]
fn a_shell_that_is_terminated_drains_its_jobs() {
    let (folder, mut terminal) = shell();
    terminal.run(ENDLESS, "created table");
    let sink = "CREATE TABLE out (n BIGINT) WITH ('path' = 'out.json', 'format' = 'json');";
    terminal.run(sink, "created table \"out\"");
    terminal.run("INSERT INTO out SELECT n FROM ticks;", "job 1 (out) runs in the background");
    terminal.terminate();
    assert_eq!(terminal.ended(), 0);
    // The file is whole: it has its name, and nothing is left beside it.
    let names =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = names.filter(|name| name.contains("out")).collect();
    assert_eq!(left, ["out.json"]);
}

#[test]
fn a_job_that_fails_is_told_above_what_is_typed() {
    let (folder, mut terminal) = shell();
    let file = folder.path().join("in.json");
    fs::write(&file, "{\"n\":1}\n").unwrap();
    terminal.run(NOWHERE, "created table \"nowhere\"");
    terminal.run(
        "CREATE TABLE f (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in.json', 'format' = 'json', \
         'source.monitor-interval' = '10 ms');",
        "created table \"f\"",
    );
    terminal.run("INSERT INTO nowhere SELECT n FROM f;", "job 1 (nowhere) runs in the background");
    terminal.press("SELECT 4");
    terminal.wait_for("what was typed", |screen| last_line(screen).ends_with("SELECT 4"));
    fs::write(&file, "{\"n\":1}\n{\"n\":\"x\"}\n").unwrap();
    let shown = terminal.wait_for("the notice", |screen| {
        screen.contains("job 1 (nowhere) has failed") && last_line(screen).ends_with("tidegate> SELECT 4")
    });
    assert!(shown.contains("error[F002]"), "{shown}");
    terminal.press("2 AS n;\r");
    terminal.wait_for("the row", |screen| screen.contains("| 42 |") && last_line(screen) == "tidegate>");
}

#[test]
fn leaving_with_jobs_that_run_is_asked_twice() {
    let (_folder, mut terminal) = shell();
    terminal.run(ENDLESS, "created table");
    terminal.run(NOWHERE, "created table \"nowhere\"");
    terminal.run("INSERT INTO nowhere SELECT n FROM ticks;", "job 1 (nowhere) runs in the background");
    terminal.press(CTRL_D);
    terminal.wait_for("the question", |screen| {
        screen.contains("job 1 (nowhere) still runs; leave once more") && last_line(screen) == "tidegate>"
    });
    // What is done in between counts: the question is asked again.
    terminal.run("SELECT 6 * 7 AS n;", "| 42 |");
    terminal.press("\x0c");
    terminal.wait_for("an empty screen", |screen| !screen.contains("leave once more"));
    terminal.press("quit\r");
    terminal.wait_for("the question again", |screen| {
        screen.contains("still runs; leave once more") && last_line(screen) == "tidegate>"
    });
    terminal.press("quit\r");
    terminal.wait_for("what was done", |screen| screen.contains("stopped job 1 (nowhere)"));
    assert_eq!(terminal.ended(), 0);
}

#[test]
fn changing_results_are_drawn_in_their_place() {
    let (_folder, mut terminal) = shell();
    terminal.run(ENDLESS, "created table");
    terminal.press(
        "SELECT n % 2 AS k, COUNT(*) AS c FROM ticks GROUP BY n % 2 EMIT CHANGES EVERY INTERVAL '0.2' SECOND;\r",
    );
    terminal.wait_for("the table", |screen| screen.contains("| k |"));
    // It is drawn again, more than once: the cursor goes up.
    terminal.wait_for("more rows", |screen| screen.contains("rows/s"));
    terminal.press(" ");
    let shown = terminal
        .wait_for("the end", |screen| screen.contains("stopped after") && last_line(screen) == "tidegate>");
    assert_eq!(shown.matches("| k |").count(), 1, "{shown}");
}

#[test]
fn tables_fit_the_screen_also_after_it_changed() {
    let (_folder, mut terminal) = shell();
    let wide = "SELECT REPEAT('数', 60) AS wide, REPEAT('b', 60) AS more;";
    let shown = terminal.run(wide, "…");
    assert!(
        shown.lines().any(|line| line.contains("数数") && line.contains("bb") && line.ends_with('|')),
        "{shown}"
    );
    terminal.resize(30, 50);
    terminal.press("\x0c");
    terminal.wait_for("an empty screen", |screen| !screen.contains("数"));
    let shown = terminal.run("SELECT REPEAT('c', 90) AS c, 1 AS n;", "…");
    let row = shown.lines().find(|line| line.starts_with("| ccc")).unwrap_or_default();
    assert!(row.ends_with("| 1 |") && row.chars().count() <= 50, "{shown}");
    terminal.run("\\x", "rows as blocks: on");
    let shown = terminal.run("SELECT 1 AS a, 'x' AS long_name;", "-[ row 1 ]");
    assert!(shown.contains("long_name | x"), "{shown}");
}

#[test]
fn bytes_that_are_no_text_do_no_harm() {
    let (_folder, mut terminal) = shell();
    terminal.press_bytes(b"SELECT '\xff");
    terminal
        .wait_for("the error", |screen| screen.contains("no UTF-8 text") && last_line(screen) == "tidegate>");
    terminal.run("SELECT 'fine' AS a;", "| fine |");
}

#[test]
fn a_dumb_terminal_gets_no_escapes() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(folder.path(), "dumb");
    terminal.run("SELECT 1 AS a, NULL AS b;", "| 1 | NULL |");
    terminal.run("SELECT nope;", "error[");
    assert!(!terminal.raw().contains('\x1b'), "{:?}", terminal.raw());
    terminal.press(CTRL_D);
    assert_eq!(terminal.ended(), 0);
}

#[test]
fn a_result_is_drawn_on_the_screen_and_into_a_file() {
    let (folder, mut terminal) = shell();
    let query = "SELECT 'b' AS k, 2 AS n UNION ALL SELECT 'a', 1 | PLOT;";
    let shown = terminal.run(query, "n by k");
    assert!(shown.contains("b  2 ███") && shown.contains("a  1 ███"), "{shown}");
    terminal.run("\\plot chart.svg", "the chart is in chart.svg");
    assert!(fs::read_to_string(folder.path().join("chart.svg")).unwrap().starts_with("<svg"));
    terminal.run("\\plot chart.png", "no .svg file");
    terminal.run("\\o rows.csv", "rows are written to rows.csv");
    terminal.run("\\f csv", "rows are shown as csv");
    terminal.run("SELECT 'x,y' AS a;", "1 row out");
    terminal.run("\\o", "written to the terminal");
    assert_eq!(fs::read_to_string(folder.path().join("rows.csv")).unwrap(), "a\n\"x,y\"\n");
    fs::write(folder.path().join("more.sql"), "SELECT 'included' AS a;").unwrap();
    terminal.run("\\i more.sql", "included");
    terminal.run("help tumble", "DESCRIPTOR(ts)");
    terminal.run("\\wach", "\\watch");
}
