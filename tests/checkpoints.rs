//! Checkpoints from outside: what a person types, what is visible then, and what is refused.

#[path = "checkpoints/changed.rs"]
mod changed;
#[path = "checkpoints/doors.rs"]
mod doors;
#[path = "checkpoints/idle.rs"]
mod idle;
#[path = "checkpoints/interrupted.rs"]
mod interrupted;

#[path = "support/project.rs"]
mod project;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use project::{Project, numbers, sorted};

/// Runs in pieces of a few rows, with a checkpoint whenever there is time for one.
const SMALL: [&str; 6] = [
    "--set",
    "execution.checkpoint.interval=20 ms",
    "--set",
    "execution.batch-rows=16",
    "--set",
    "execution.parallelism=2",
];

fn project_of(script: &str) -> Project {
    Project::new(script).with(&SMALL)
}

/// Copies numbers from a file to a table with these options.
fn copy(options: &str) -> String {
    format!(
        "CREATE TABLE t (v INT) WITH ('connector' = 'filesystem', 'path' = 'in.json');
         CREATE TABLE r (v INT) WITH ('connector' = 'filesystem', {options});
         INSERT INTO r SELECT v FROM t;"
    )
}

/// The field report B081, and the same of single files.
#[test]
fn the_end_of_the_input_is_a_commit() {
    for format in ["json", "csv", "parquet"] {
        for interval in ["1 h", "100 ms"] {
            let project = project_of(&copy(&format!("'path' = 'out', 'format' = '{format}'")));
            project.write("in.json", &numbers(0..10));
            let set = format!("execution.checkpoint.interval={interval}");
            project.succeeds(&["--checkpoint-dir", "state", "--set", &set]);
            assert_eq!(project.hidden("out"), Vec::<PathBuf>::new(), "{format}, {interval}");
            let read = format!(
                "CREATE TABLE r (v INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = '{format}');
                 SELECT v FROM r ORDER BY v;"
            );
            project.write("job.sql", &read);
            let output = project.run(&["-f", "json"]);
            let rows = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(rows, numbers(0..10), "{format}, {interval}");
        }
    }
}

#[test]
fn one_file_is_what_it_is_without_checkpoints() {
    for name in ["out.json", "out.csv", "out.json.gz", "out.csv.zst"] {
        let header = if name.contains("csv") { ", 'csv.header' = 'true'" } else { "" };
        let project = project_of(&copy(&format!("'path' = '{name}'{header}")));
        project.write("in.json", &numbers(0..30_000));
        project.succeeds(&["--checkpoint-dir", "state"]);
        assert_eq!(project.hidden("."), Vec::<PathBuf>::new(), "{name}");
        project.write(
            "job.sql",
            &format!("SELECT COUNT(*) AS n, SUM(v) AS s, MIN(v) AS a, MAX(v) AS z FROM '{name}';"),
        );
        let output = project.run(&["-f", "csv"]);
        let rows = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(rows.trim_end(), "n,s,a,z\n30000,449985000,0,29999", "{name}");
    }
}

#[test]
fn one_file_goes_on_behind_a_kill() {
    let project = project_of(&copy("'path' = 'out.csv', 'csv.header' = 'true'"));
    project.write("in.json", &numbers(0..400_000));
    let running = project.start(&["--checkpoint-dir", "state"]);
    running.until("a third checkpoint", || project.newest() >= 3);
    running.kill();
    assert!(!project.path("out.csv").exists(), "it appears at the end");
    project.succeeds(&["--checkpoint-dir", "state", "--resume"]);
    let text = fs::read_to_string(project.path("out.csv")).expect("the file is there");
    let expected: String = (0..400_000).map(|v| format!("{v}\n")).collect();
    assert!(text == format!("v\n{expected}"), "{} bytes", text.len());
    assert_eq!(project.hidden("."), Vec::<PathBuf>::new());
    // What is over stays so.
    project.succeeds(&["--checkpoint-dir", "state", "--resume"]);
    assert_eq!(fs::read_to_string(project.path("out.csv")).expect("the file is there"), text);
}

#[test]
fn one_parquet_file_is_refused_before_a_row_is_read() {
    let project = project_of(&copy("'path' = 'out.parquet'"));
    project.write("in.json", &numbers(0..10));
    let text = project.fails(&["--checkpoint-dir", "state"], "P002", 2);
    assert!(text.contains("folder"), "{text}");
    assert!(!project.path("out.parquet").exists());
}

#[test]
fn what_a_restart_may_cost_is_said_when_a_run_begins() {
    let shown = |options: &str| {
        let project = project_of(
            &copy("'path' = 'out', 'format' = 'json'")
                .replace("'filesystem', 'path' = 'out', 'format' = 'json'", options),
        );
        project.write("in.json", &numbers(0..10));
        (project.succeeds(&["--checkpoint-dir", "state"]), project.succeeds(&[]))
    };
    let (with, without) = shown("'print'");
    let note = "guarantee of job 1 (r): at least once: table \"r\" (print) can't take rows back";
    assert_eq!(with.lines().filter(|line| *line == note).count(), 1, "{with}");
    assert!(!without.contains("guarantee"), "{without}");
    let (exact, _) = shown("'blackhole'");
    assert!(!exact.contains("guarantee"), "{exact}");
}

#[test]
fn no_run_begins_anew_by_mistake() {
    let project = project_of(&copy("'path' = 'out', 'format' = 'json'"));
    project.write("in.json", &numbers(0..100));
    let text = project.fails(&["--checkpoint-dir", "state", "--resume"], "K001", 1);
    assert!(text.contains("state/job-1"), "{text}");
    project.succeeds(&["--checkpoint-dir", "state"]);
    project.fails(&["--checkpoint-dir", "state"], "K003", 1);
    project.succeeds(&["--checkpoint-dir", "state", "--resume"]);
    assert_eq!(project.lines("out"), sorted(&numbers(0..100)));
    project.succeeds(&["--checkpoint-dir", "state", "--resume", "--set", "execution.parallelism=1"]);
    assert_eq!(project.lines("out"), sorted(&numbers(0..100)));
    let script = copy("'path' = 'out', 'format' = 'json'").replace("SELECT v", "SELECT v + 1");
    project.write("job.sql", &script);
    let text = project.fails(&["--checkpoint-dir", "state", "--resume"], "K003", 1);
    assert!(text.contains("Calc"), "the difference is told: {text}");
    assert_eq!(project.lines("out"), sorted(&numbers(0..100)));
    project.fails(&["--checkpoint-dir", "state", "--from", "state/job-1/chk-99999999"], "K001", 1);
    let output = project.run(&["--resume"]);
    assert_eq!(output.status.code(), Some(2), "--resume alone");
}

#[test]
fn what_is_torn_is_not_used() {
    let project = project_of(&copy("'path' = 'out', 'format' = 'json'"));
    project.write("in.json", &numbers(0..200_000));
    project.succeeds(&["--checkpoint-dir", "state"]);
    let checkpoints = project.checkpoints();
    assert_eq!(checkpoints.len(), 3, "the newest three are kept");
    let tear = |path: &PathBuf| {
        let state = fs::read(path.join("state")).expect("it has a state");
        fs::write(path.join("state"), &state[..state.len() - 1]).expect("it can be torn");
    };
    tear(&checkpoints[2]);
    // From an older one: what was visible behind it goes, and comes again.
    project.succeeds(&["--checkpoint-dir", "state", "--resume"]);
    assert_eq!(project.lines("out"), sorted(&numbers(0..200_000)));
    assert_eq!(project.hidden("out"), Vec::<PathBuf>::new());
    project.checkpoints().iter().for_each(tear);
    let text = project.fails(&["--checkpoint-dir", "state", "--resume"], "K002", 1);
    assert!(text.contains("not whole"), "{text}");
    let manifest = project.checkpoints()[0].join("manifest.json");
    let text = fs::read_to_string(&manifest).expect("it has a manifest");
    fs::write(&manifest, text.replace("\"format\": 1", "\"format\": 7")).expect("it can be changed");
    let folder = manifest.parent().expect("it is in a folder").to_string_lossy().into_owned();
    let text = project.fails(&["--checkpoint-dir", "state", "--from", &folder], "K002", 1);
    assert!(text.contains("format 7"), "{text}");
}

#[test]
fn an_older_checkpoint_can_be_named() {
    let project = project_of(&copy("'path' = 'out', 'format' = 'json'"));
    project.write("in.json", &numbers(0..200_000));
    project.succeeds(&["--checkpoint-dir", "state"]);
    let oldest = project.checkpoints()[0].to_string_lossy().into_owned();
    project.succeeds(&["--checkpoint-dir", "state", "--from", &oldest]);
    assert_eq!(project.lines("out"), sorted(&numbers(0..200_000)));
}

#[test]
fn urls_of_files_are_folders() {
    let project = project_of(&copy("'path' = 'out', 'format' = 'json'"));
    project.write("in.json", &numbers(0..200_000));
    let url = format!("file://{}", project.path("state").to_string_lossy());
    project.succeeds(&["--checkpoint-dir", &url]);
    let oldest = project.checkpoints()[0].clone();
    let from = format!("{url}/job-1/{}", oldest.file_name().expect("a name").to_string_lossy());
    project.succeeds(&["--checkpoint-dir", &url, "--from", &from]);
    assert_eq!(project.lines("out"), sorted(&numbers(0..200_000)));
    // One may be named by its path, the other one by its URL.
    let oldest = project.checkpoints()[0].to_string_lossy().into_owned();
    project.succeeds(&["--checkpoint-dir", &url, "--from", &oldest]);
    project.succeeds(&["--checkpoint-dir", "state", "--resume"]);
    let text = project.fails(&["--checkpoint-dir", &url], "K003", 1);
    assert!(text.contains("file://"), "{text}");
    assert_eq!(project.lines("out"), sorted(&numbers(0..200_000)));
}

#[test]
fn stores_that_this_build_can_not_reach_are_told() {
    let project = project_of(&copy("'path' = 'out', 'format' = 'json'"));
    project.write("in.json", &numbers(0..10));
    #[cfg(not(feature = "object-stores"))]
    {
        let text = project.fails(&["--checkpoint-dir", "s3://bucket/state"], "K004", 2);
        assert!(text.contains("--features object-stores"), "{text}");
    }
    let text = project.fails(&["--checkpoint-dir", "ftp://host/state"], "K004", 2);
    assert!(text.contains("ftp"), "{text}");
    // Nobody else can reach the memory of a process.
    project.succeeds(&["--checkpoint-dir", "memory:///state"]);
    project.fails(&["--checkpoint-dir", "memory:///state", "--resume"], "K001", 1);
    assert_eq!(project.lines("out"), sorted(&numbers(0..10)));
}

#[test]
fn a_folder_that_can_not_be_written_is_told() {
    let project = project_of(&copy("'path' = 'out', 'format' = 'json'"));
    project.write("in.json", &numbers(0..10));
    project.write("state", "a file");
    let text = project.fails(&["--checkpoint-dir", "state"], "K004", 1);
    assert!(text.contains("state/job-1"), "{text}");
    assert_eq!(project.lines("out"), Vec::<String>::new());
}

#[test]
fn each_part_of_a_folder_is_a_file_of_its_own() {
    for (format, header) in [("csv", "v\n"), ("json", "")] {
        let project = project_of(&copy(&format!("'path' = 'out', 'format' = '{format}'")));
        let script = fs::read_to_string(project.path("job.sql")).expect("a script");
        let with_header = "'format' = 'csv', 'csv.header' = 'true'";
        project.write("job.sql", &script.replace("'format' = 'csv'", with_header));
        project.write("in.json", &numbers(0..200_000));
        project.succeeds(&["--checkpoint-dir", "state"]);
        let parts = project.files("out");
        assert!(parts.len() > 1, "{} parts", parts.len());
        let (mut next, is_csv) = (0, format == "csv");
        for part in parts {
            let text = fs::read_to_string(&part).expect("a part can be read");
            let rows = text.strip_prefix(header).expect("it begins with the header");
            for line in rows.lines() {
                assert_eq!(line, if is_csv { next.to_string() } else { format!("{{\"v\":{next}}}") });
                next += 1;
            }
        }
        assert_eq!(next, 200_000, "{format}: parts are read in the order in which they were written");
    }
}

/// Follows a file, and counts by minute.
const FOLLOWS: &str = "
CREATE TABLE t (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in.json', 'source.monitor-interval' = '10 ms');
CREATE TABLE late (v INT, ts TIMESTAMP(3), late_reason STRING)
WITH ('connector' = 'filesystem', 'path' = 'late', 'format' = 'json');
CREATE TABLE r (s TIMESTAMP(3), c BIGINT, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO r SELECT window_start, COUNT(*) AS c, SUM(v) AS v
FROM TABLE(WINDOW)
GROUP BY window_start, window_end LATE ROWS INTO late;";

/// The field report B077: killed behind the third line.
#[test]
fn the_watermark_survives() {
    for window in [
        "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
        "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' MINUTE)",
        "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' MINUTE)",
        "SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND)",
    ] {
        let project = project_of(&FOLLOWS.replace("WINDOW", window));
        let line = |v: i32, time: &str| format!("{{\"v\":{v}, \"ts\":\"2024-05-01 {time}\"}}\n");
        project.write("in.json", &(line(1, "09:00:10") + &line(2, "09:01:10") + &line(4, "09:02:10")));
        let running = project.start(&["--checkpoint-dir", "state"]);
        running.until("two windows", || project.lines("out").len() == 2);
        running.kill();
        project.append("in.json", &(line(8, "09:00:20") + &line(16, "09:03:10")));
        let running = project.start(&["--checkpoint-dir", "state", "--resume"]);
        running.until("the third window and the late row", || {
            project.lines("out").len() >= 3 && !project.lines("late").is_empty()
        });
        let said = running.stop();
        assert!(said.contains("--resume"), "{said}");
        let at = |minute: u32| match window.starts_with("SESSION") {
            true => format!("2024-05-01T09:0{minute}:10.000"),
            false => format!("2024-05-01T09:0{minute}:00.000"),
        };
        let row = |minute: u32, v: i32| format!("{{\"s\":\"{}\",\"c\":1,\"v\":{v}}}", at(minute));
        assert_eq!(project.lines("out"), [row(0, 1), row(1, 2), row(2, 4)], "{window}");
        let late = "{\"v\":8,\"ts\":\"2024-05-01T09:00:20.000\",\"late_reason\":\"late\"}";
        assert_eq!(project.lines("late"), [late], "{window}");
        assert_eq!(project.hidden("out"), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_file_that_was_rotated_meanwhile_is_read_to_its_end() {
    let script = "CREATE TABLE t (v INT)
        WITH ('connector' = 'filesystem', 'path' = 'log.json', 'source.monitor-interval' = '10 ms');
        CREATE TABLE r (v INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
        INSERT INTO r SELECT v FROM t;";
    let project = project_of(script);
    project.write("log.json", &numbers(0..50));
    let running = project.start(&["--checkpoint-dir", "state"]);
    running.until("all rows", || project.lines("out").len() == 50);
    running.stop();
    project.append("log.json", &numbers(50..60));
    fs::rename(project.path("log.json"), project.path("log.json.1")).expect("it can be renamed");
    project.write("log.json", &numbers(60..70));
    let running = project.start(&["--checkpoint-dir", "state", "--resume"]);
    running.until("the rows of both files", || project.lines("out").len() >= 70);
    running.stop();
    assert_eq!(project.lines("out"), sorted(&numbers(0..70)));
    // Once more, within the second file.
    project.append("log.json", &numbers(70..80));
    let running = project.start(&["--checkpoint-dir", "state", "--resume"]);
    running.until("the rest", || project.lines("out").len() >= 80);
    running.kill();
    assert_eq!(project.lines("out"), sorted(&numbers(0..80)));
}

#[test]
fn files_of_a_followed_folder_that_were_read_are_not_read_again() {
    let script = "CREATE TABLE t (v INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json',
        'source.monitor-interval' = '10 ms');
        CREATE TABLE r (v INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
        INSERT INTO r SELECT v FROM t;";
    let project = project_of(script);
    fs::create_dir(project.path("in")).expect("a folder");
    // Compressed files are read whole, once; others as they grow.
    let compressed = |name: &str, rows: std::ops::Range<u32>| {
        project.write("job2.sql", &copy(&format!("'path' = '{name}'")).replace("in.json", "plain.json"));
        project.write("plain.json", &numbers(rows));
        let mut alone = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        alone.current_dir(project.path("")).args(["run", "job2.sql", "-q"]);
        assert!(alone.status().expect("the program runs").success());
    };
    compressed("in/a.json.gz", 0..50);
    project.write("in/b.json", &numbers(50..60));
    for (run, all) in [(1, 60), (2, 80), (3, 80)] {
        let args: &[&str] = if run == 1 {
            &["--checkpoint-dir", "state"]
        } else {
            &["--checkpoint-dir", "state", "--resume"]
        };
        if run == 2 {
            compressed("in/c.json.gz", 60..70);
            project.append("in/b.json", &numbers(70..80));
        }
        let running = project.start(args);
        running.until("all rows", || project.lines("out").len() >= all);
        // Long enough to find each file twice more: a marker goes through behind all of them.
        let marker = 1_000 + run;
        project.write(&format!("in/marker{run}.json"), &numbers(marker..marker + 1));
        let marked = format!("{{\"v\":{marker}}}");
        running.until("the marker", || project.lines("out").contains(&marked));
        running.stop();
    }
    let expected = sorted(&(numbers(0..80) + &numbers(1_001..1_004)));
    assert_eq!(project.lines("out"), expected);
}

#[test]
fn a_run_that_takes_too_long_stops_behind_a_checkpoint_and_fails() {
    let project =
        project_of(&FOLLOWS.replace("WINDOW", "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"));
    project.write(
        "in.json",
        "{\"v\":1, \"ts\":\"2024-05-01 09:00:10\"}\n{\"v\":2, \"ts\":\"2024-05-01 09:01:10\"}\n",
    );
    let text = project.fails(&["--checkpoint-dir", "state", "--timeout", "1s"], "R009", 1);
    assert!(text.contains("stopped behind its checkpoint"), "{text}");
    assert_eq!(project.lines("out"), ["{\"s\":\"2024-05-01T09:00:00.000\",\"c\":1,\"v\":1}"]);
}

#[test]
fn a_script_of_several_jobs_goes_on_in_the_one_that_was_stopped() {
    let script = "CREATE TABLE t (v INT) WITH ('connector' = 'filesystem', 'path' = 'in.json');
        CREATE TABLE u (v INT)
        WITH ('connector' = 'filesystem', 'path' = 'log.json', 'source.monitor-interval' = '10 ms');
        CREATE TABLE r (v INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
        CREATE TABLE s (v INT) WITH ('connector' = 'filesystem', 'path' = 'more', 'format' = 'json');
        INSERT INTO r SELECT v FROM t;
        INSERT INTO s SELECT v FROM u;";
    let project = project_of(script);
    project.write("in.json", &numbers(0..50));
    project.write("log.json", &numbers(0..5));
    let running = project.start(&["--checkpoint-dir", "state"]);
    running.until("the rows of the second job", || project.lines("more").len() == 5);
    running.kill();
    project.append("log.json", &numbers(5..9));
    let running = project.start(&["--checkpoint-dir", "state", "--resume"]);
    running.until("its other rows", || project.lines("more").len() >= 9);
    running.stop();
    assert_eq!(project.lines("out"), sorted(&numbers(0..50)));
    assert_eq!(project.lines("more"), sorted(&numbers(0..9)));
}

#[test]
fn what_is_known_of_them_is_told() {
    let project = project_of(&copy("'path' = 'out', 'format' = 'json'"));
    project.write("in.json", &numbers(0..100));
    let told = |args: &[&str]| -> serde_json::Value {
        let text = project.succeeds(args);
        let line = text.lines().find(|line| line.starts_with('{')).expect("a summary");
        serde_json::from_str::<serde_json::Value>(line).expect("it is JSON")["checkpoints"].clone()
    };
    let first = told(&["--checkpoint-dir", "state", "--summary", "json"]);
    let completed = first["completed"].as_u64().expect("a number");
    assert!(completed >= 2, "one before the first row, one at the end: {first}");
    assert_eq!((&first["restored"], first["failed"].as_u64()), (&serde_json::Value::Null, Some(0)));
    assert_eq!(first["last"].as_u64(), Some(completed));
    // The pause is two times: until the last task stands still, and in which tasks tell what they keep.
    let us = |key: &str| first[key].as_u64().expect("a number");
    assert!(us("last_gather_us") <= us("longest_gather_us") && us("last_tell_us") <= us("longest_tell_us"));
    let (gather, tell, pause) = (us("longest_gather_us"), us("longest_tell_us"), us("longest_pause_us"));
    assert!(gather.max(tell) <= pause && pause <= gather + tell, "{first}");
    let second = told(&["--checkpoint-dir", "state", "--summary", "json", "--resume"]);
    assert_eq!(second["restored"].as_u64(), Some(completed));
    // One at the end, and before it as many as there was time for.
    let more = second["completed"].as_u64().filter(|more| *more >= 1).expect("some more");
    assert_eq!(second["last"].as_u64(), Some(completed + more));
    assert_eq!(
        told(&["--checkpoint-dir", "other", "--summary", "json"])["restored"],
        serde_json::Value::Null
    );
    assert_eq!(project.lines("out").len(), 200, "another folder is another run");

    // The same as a table, for the jobs of a session.
    let mut session = tidegate::Session::new();
    let folder = project.path("third").to_string_lossy().into_owned();
    session.set("execution.checkpoint.dir", &folder).expect("there is such a setting");
    let out = project.path("copied").to_string_lossy().into_owned();
    let input = project.path("in.json").to_string_lossy().into_owned();
    let script = copy(&format!("'path' = '{out}', 'format' = 'json'")).replace("in.json", &input);
    session.run(&script).expect("it runs");
    for job in session.jobs().handles() {
        job.wait().expect("it comes to its end");
    }
    session.reset(Some("execution.checkpoint.dir")).expect("there is such a setting");
    let again = tidegate::Session::new();
    adds_up(again, &folder, &script);
    let sql =
        "SELECT completed >= 2 AND failed = 0 AND last = completed AND restored IS NULL AND last_bytes > 0
               AND last_age_ms >= 0 AND last_pause_us = last_gather_us + last_tell_us
               AND longest_gather_us >= last_gather_us AND longest_tell_us >= last_tell_us AND failure IS NULL AS is_well FROM system.checkpoints";
    let rows: Vec<_> =
        session.query(sql).expect("a query").into_iter().map(|batch| batch.expect("rows")).collect();
    assert_eq!(rows.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);
    let shown = format!("{:?}", rows[0].column(0));
    assert!(shown.contains("true"), "{shown}");
}

/// A job that goes on counts on: of each operator the rows that came are those of which is known what became of them.
fn adds_up(mut session: tidegate::Session, folder: &str, script: &str) {
    session.set("execution.checkpoint.dir", folder).expect("there is such a setting");
    session.set_checkpoint_start(tidegate::runtime::CheckpointStart::Newest);
    session.run(script).expect("it runs");
    for job in session.jobs().handles() {
        job.wait().expect("it comes to its end");
    }
    session.set_checkpoint_start(tidegate::runtime::CheckpointStart::Anew);
    session.reset(Some("execution.checkpoint.dir")).expect("there is such a setting");
    let sql = "SELECT MIN(rows_in) AS least, SUM(ABS(difference)) AS lost FROM system.reconciliation
               WHERE operator LIKE 'Sink%'";
    let rows: Vec<_> =
        session.query(sql).expect("a query").into_iter().map(|rows| rows.expect("rows")).collect();
    let shown: Vec<_> = rows[0].columns().iter().map(|column| format!("{column:?}")).collect();
    assert!(shown[0].contains("100") && shown[1].contains(" 0,"), "{shown:?}");
}
