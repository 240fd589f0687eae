//! The field report B088 without a terminal: Ctrl-C once stops a run behind a checkpoint or cleans up, twice ends it.

use std::fs;

use super::project::{Project, numbers, sorted};
use super::{FOLLOWS, project_of};

/// Counts the pairs of all rows with all rows: a great many for so few.
fn cross_join(rows: u64, table: &str) -> String {
    let side = |name: &str| {
        format!(
            "CREATE TABLE {name} (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '{rows}',
             'fields.n.kind' = 'sequence');\n"
        )
    };
    let query = match table.contains("COUNT") {
        true => "SELECT COUNT(*) FROM a JOIN b ON a.n <> b.n + 1000000000",
        false => "SELECT a.n FROM a JOIN b ON a.n <> b.n + 1000000000",
    };
    let path = table.trim_start_matches("COUNT ");
    format!(
        "{}{}CREATE TABLE r (c BIGINT) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv');
         INSERT INTO r {query};",
        side("a"),
        side("b")
    )
}

/// What an insert that was stopped has left beside the script.
fn left(project: &Project) -> Vec<String> {
    let entries = fs::read_dir(project.path("")).expect("a folder").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name != "job.sql").collect();
    names.sort();
    names
}

#[test]
fn a_query_that_is_busy_for_hours_is_stopped_and_leaves_nothing() {
    // Rows that are counted in the task of the join, and rows that are given.
    for table in ["COUNT out.csv", "COUNT out", "out.csv", "out"] {
        let project = Project::new(&cross_join(200_000, table)).with(&["--metrics", ":0", "-p", "1"]);
        let running = project.start(&[]);
        // All of both tables is there: nothing is left to do but pairs, 4 * 10^10 of them.
        running.until("all rows", || {
            running.metric("tidegate_records_in_total", "WindowJoin") == Some(400_000.0)
        });
        running.signal("-INT");
        let (exit, said) = running.end();
        assert_eq!(exit, Some(130), "{table}: {said}");
        assert!(said.contains("interrupted"), "{table}: {said}");
        let folder: &[&str] = if table.ends_with("out") { &["out"] } else { &[] };
        assert_eq!(left(&project), folder, "{table}");
        assert!(project.files("out").is_empty() && project.hidden("out").is_empty(), "{table}");
    }
}

#[test]
fn with_checkpoints_it_stops_behind_one_and_goes_on() {
    let project = project_of(
        "CREATE TABLE t (v INT)
         WITH ('connector' = 'filesystem', 'path' = 'in.json', 'source.monitor-interval' = '10 ms');
         CREATE TABLE r (v INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
         INSERT INTO r SELECT v FROM t;",
    );
    project.write("in.json", &numbers(0..50));
    let running = project.start(&["--checkpoint-dir", "state"]);
    running.until("the rows", || project.lines("out").len() == 50);
    running.signal("-INT");
    let (exit, said) = running.end();
    assert_eq!(exit, Some(0), "{said}");
    assert!(said.contains("--resume"), "{said}");
    assert!(project.hidden("out").is_empty());
    project.append("in.json", &numbers(50..90));
    let running = project.start(&["--checkpoint-dir", "state", "--resume"]);
    running.until("the other rows", || project.lines("out").len() >= 90);
    running.signal("-INT");
    assert_eq!(running.end().0, Some(0));
    assert_eq!(project.lines("out"), sorted(&numbers(0..90)));
    // Without checkpoints nothing is visible of a folder of a stopped insert.
    let alone =
        project_of(&FOLLOWS.replace("WINDOW", "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"))
            .with(&["--metrics", ":0"]);
    alone.write(
        "in.json",
        "{\"v\":1, \"ts\":\"2024-05-01 09:00:10\"}\n{\"v\":2, \"ts\":\"2024-05-01 09:01:10\"}\n",
    );
    let running = alone.start(&[]);
    running.until("a row", || running.metric("tidegate_records_in_total", "Sink(r)") == Some(1.0));
    running.signal("-INT");
    assert_eq!(running.end().0, Some(130));
    assert!(alone.files("out").is_empty() && alone.hidden("out").is_empty());
}

/// A checkpoint may take longer than a run without checkpoints has to clean up.
#[test]
fn a_checkpoint_takes_the_time_that_it_takes() {
    let project = Project::new(&cross_join(6_000, "COUNT out.csv")).with(&["--metrics", ":0", "-p", "1"]);
    let running = project.start(&["--checkpoint-dir", "state"]);
    running.until("all rows", || running.metric("tidegate_records_in_total", "WindowJoin") == Some(12_000.0));
    running.signal("-INT");
    let (exit, said) = running.end();
    assert_eq!(exit, Some(0), "{said}");
    if !project.path("out.csv").exists() {
        assert!(said.contains("was stopped behind its checkpoint"), "{said}");
        project.succeeds(&["--checkpoint-dir", "state", "--resume"]);
    }
    assert_eq!(fs::read_to_string(project.path("out.csv")).expect("the result"), "36000000\n");
    assert!(project.hidden(".").is_empty());
}

#[test]
fn the_second_time_ends_it() {
    let project = Project::new(&cross_join(200_000, "COUNT out.csv")).with(&["--metrics", ":0", "-p", "1"]);
    let running = project.start(&["--checkpoint-dir", "state"]);
    running
        .until("all rows", || running.metric("tidegate_records_in_total", "WindowJoin") == Some(400_000.0));
    running.signal("-INT");
    running.until_it_says("Ctrl-C once more ends the run");
    running.signal("-INT");
    let (exit, said) = running.end();
    assert_eq!(exit, Some(130), "{said}");
    // What a checkpoint tells of is there for the run that goes on.
    assert!(!project.path("out.csv").exists() && project.newest() > 0);
}
