//! Another query that goes on with the state of one that was stopped.

use super::project::{Project, Running};
use super::project_of;

const TABLES: &str = "
CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in.json', 'source.monitor-interval' = '10 ms');
CREATE TABLE r (k STRING, s TIMESTAMP(3), c BIGINT, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
CREATE TABLE other (k STRING, c BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'other', 'format' = 'json');
";

const COUNT: &str = "INSERT INTO r SELECT k, window_start, COUNT(*), SUM(v)
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end;";

const RESUMES: [&str; 3] = ["--checkpoint-dir", "state", "--resume"];

fn line(k: &str, v: i32, time: &str) -> String {
    format!("{{\"k\":\"{k}\", \"v\":{v}, \"ts\":\"2024-05-01 {time}\"}}\n")
}

fn row(k: &str, minute: u32, c: i32, v: i32) -> String {
    format!("{{\"k\":\"{k}\",\"s\":\"2024-05-01T09:0{minute}:00.000\",\"c\":{c},\"v\":{v}}}")
}

/// A run that has given the first minute and holds two rows of the second.
fn begun(project: &Project) -> Running {
    project.write(
        "in.json",
        &(line("a", 1, "09:00:10") + &line("a", 2, "09:01:10") + &line("b", -3, "09:01:20")),
    );
    let running = project.start(&["--checkpoint-dir", "state"]);
    running.until("the first window", || project.lines("out") == [row("a", 0, 1, 1)]);
    running
}

#[test]
fn a_query_that_keeps_the_same_goes_on() {
    let project = project_of(&format!("{TABLES}{COUNT}"));
    begun(&project).stop();
    // A condition, another order of clauses, and other subtasks: what is counted is counted as before.
    let script = COUNT.replace("GROUP BY", "WHERE v <> 100 GROUP BY");
    project.write("job.sql", &format!("{TABLES}{script}"));
    project.append("in.json", &(line("a", 100, "09:01:30") + &line("a", 4, "09:01:40")));
    let running = project.start(&[&RESUMES[..], &["-p", "3"]].concat());
    project.append("in.json", &line("a", 5, "09:02:00"));
    running.until("the second window", || project.lines("out").len() >= 3);
    running.stop();
    assert_eq!(project.lines("out"), [row("a", 0, 1, 1), row("a", 1, 2, 6), row("b", 1, 1, -3)]);
    // And the first query again, with what the second one kept.
    project.write("job.sql", &format!("{TABLES}{COUNT}"));
    project.append("in.json", &(line("a", 100, "09:02:30") + &line("a", 0, "09:03:00")));
    let running = project.start(&RESUMES);
    running.until("the third window", || project.lines("out").len() >= 4);
    running.stop();
    assert_eq!(project.lines("out")[2], row("a", 2, 2, 105));
}

#[test]
fn state_is_dropped_when_that_is_said() {
    let project = project_of(&format!("{TABLES}{COUNT}"));
    begun(&project).stop();
    let script = COUNT.replace("SUM(v)", "SUM(ABS(v))");
    project.write("job.sql", &format!("{TABLES}{script}"));
    let text = project.fails(&RESUMES, "K003", 1);
    assert!(text.contains("WindowAggregate") && text.contains("--allow-dropped-state"), "{text}");
    let running = project.start(&[&RESUMES[..], &["--allow-dropped-state"]].concat());
    // The rows that the open window had are gone; no row is read twice.
    project.append("in.json", &(line("b", -7, "09:01:30") + &line("a", 5, "09:02:00")));
    running.until("the second window", || project.lines("out").len() >= 2);
    running.stop();
    assert_eq!(project.lines("out"), [row("a", 0, 1, 1), row("b", 1, 1, 7)]);
}

#[test]
fn an_insert_that_is_new_is_told() {
    let project = project_of(&format!("{TABLES}{COUNT}"));
    begun(&project).stop();
    let second = "INSERT INTO other SELECT k, COUNT(*)
        FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end;";
    project.write("job.sql", &format!("{TABLES}BEGIN STATEMENT SET; {COUNT} {second} END;"));
    let text = project.fails(&RESUMES, "K003", 1);
    assert!(text.contains("is new"), "{text}");
    let running = project.start(&[&RESUMES[..], &["--allow-dropped-state"]].concat());
    project.append("in.json", &line("a", 5, "09:02:00"));
    running.until("the second window", || project.lines("out").len() >= 3);
    // Its own read of the table begins at the start.
    running.until("the windows of the new one", || project.lines("other").len() >= 3);
    running.stop();
    assert_eq!(project.lines("out"), [row("a", 0, 1, 1), row("a", 1, 1, 2), row("b", 1, 1, -3)]);
    let all = ["{\"k\":\"a\",\"c\":1}", "{\"k\":\"a\",\"c\":1}", "{\"k\":\"b\",\"c\":1}"];
    assert_eq!(project.lines("other"), all);
}

#[test]
fn behind_a_kill_another_query_is_refused() {
    let project = project_of(&format!("{TABLES}{COUNT}"));
    begun(&project).kill();
    project.write("job.sql", &format!("{TABLES}{}", COUNT.replace("GROUP BY", "WHERE v <> 100 GROUP BY")));
    let text = project.fails(&RESUMES, "K003", 1);
    assert!(text.contains("Ctrl-C"), "{text}");
    // What the hint says works.
    project.write("job.sql", &format!("{TABLES}{COUNT}"));
    let before = project.newest();
    let running = project.start(&RESUMES);
    running.until("a checkpoint", || project.newest() > before);
    running.stop();
    project.write("job.sql", &format!("{TABLES}{}", COUNT.replace("GROUP BY", "WHERE v <> 100 GROUP BY")));
    let running = project.start(&RESUMES);
    project.append("in.json", &line("a", 5, "09:02:00"));
    running.until("the second window", || project.lines("out").len() >= 3);
    running.stop();
    assert_eq!(project.lines("out"), [row("a", 0, 1, 1), row("a", 1, 1, 2), row("b", 1, 1, -3)]);
}

#[test]
fn other_columns_of_a_table_are_refused() {
    let project = project_of(&format!("{TABLES}{COUNT}"));
    begun(&project).stop();
    let tables = TABLES.replace("c BIGINT, v BIGINT)", "c BIGINT, v BIGINT, w BIGINT)");
    project.write("job.sql", &format!("{tables}{}", COUNT.replace("SUM(v)\n", "SUM(v), SUM(v)\n")));
    let text = project.fails(&[&RESUMES[..], &["--allow-dropped-state"]].concat(), "K003", 1);
    assert!(text.contains("\"r\""), "{text}");
}
