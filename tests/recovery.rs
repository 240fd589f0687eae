//! Killed at any moment and resumed, also with another parallelism, a run gives what an undisturbed one gives: files in,
//! files out.
//!
//! `KILLS=200 cargo test --test recovery` kills each query as often; without it some times only.
//! `KILLS=20 ROWS=600000 cargo test --test recovery at_any_moment` is the field report B078 in full.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Rows of two files: times go up by some ms, one in ten is up to 20 s behind.
const ROWS: u64 = 12_000;

fn input(dir: &Path, name: &str, seed: u64) {
    let mut dice = Dice(seed);
    let mut text = String::new();
    for row in 0..ROWS {
        let behind = if dice.below(10) == 0 { dice.below(20_000) } else { 0 };
        let ms = (row * 25).saturating_sub(behind);
        let ts = format!("2024-03-05 00:{:02}:{:02}.{:03}", ms / 60_000, ms / 1_000 % 60, ms % 1_000);
        let (key, value) = (dice.below(7), dice.below(1_000));
        writeln!(text, r#"{{"id":{row},"k":"k{key}","v":{value},"ts":"{ts}"}}"#).expect("a text takes text");
    }
    fs::write(dir.join(name), text).expect("the input is written");
}

/// The script of a query. `columns`: of the table that it writes.
fn script(dir: &Path, columns: &str, format: &str, query: &str) -> String {
    let dir = dir.display();
    let source = |name: &str| {
        format!(
            "CREATE TABLE {name} (id BIGINT, k STRING, v INT, ts TIMESTAMP(3),
             WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
             WITH ('connector' = 'filesystem', 'path' = '{dir}/{name}.json');\n"
        )
    };
    format!(
        "{}{}CREATE TABLE late (id BIGINT, k STRING, v INT, ts TIMESTAMP(3), late_reason STRING)
         WITH ('connector' = 'filesystem', 'path' = '{dir}/late', 'format' = 'json');
         CREATE TABLE out ({columns})
         WITH ('connector' = 'filesystem', 'path' = '{dir}/out', 'format' = '{format}');
         INSERT INTO out {query};\n",
        source("a"),
        source("b")
    )
}

fn command(dir: &Path, checkpoints: Option<bool>, parallelism: u64) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("run").arg(dir.join("job.sql")).args(["--summary", "json", "-p", &parallelism.to_string()]);
    command.args(["--set", "execution.checkpoint.interval=20 ms", "--set", "execution.batch-rows=64"]);
    if let Some(resumes) = checkpoints {
        command.arg("--checkpoint-dir").arg(dir.join("state"));
        if resumes {
            command.arg("--resume");
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The rows of all visible files in a folder, sorted.
fn rows(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut rows = Vec::new();
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(!name.starts_with('.'), "{name} was left behind");
        rows.extend(fs::read_to_string(&path).expect("a readable file").lines().map(str::to_owned));
    }
    rows.sort();
    rows
}

/// The counts of the summary.
fn counts(output: &Output) -> BTreeMap<String, u64> {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let line =
        text.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no summary: {text}"));
    let summary: serde_json::Value = serde_json::from_str(line).expect("the summary is JSON");
    let names = ["rows_in", "rows_out", "late", "partly_late", "filtered", "null_time"];
    names.iter().filter_map(|name| Some(((*name).to_owned(), summary.get(name)?.as_u64()?))).collect()
}

/// Waits for the end of a process, which closes its output then, but no longer than this. Whether it came.
fn ends_within(child: &mut Child, longest: Duration) -> bool {
    let mut output = child.stdout.take().expect("its output is a pipe");
    let (told, hears) = channel();
    let reader = move || {
        let mut text = Vec::new();
        let _ = output.read_to_end(&mut text);
        let _ = told.send(());
    };
    std::thread::spawn(reader);
    hears.recv_timeout(longest).is_ok()
}

fn has_checkpoint(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir.join("state/job-1")) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("chk-"))
}

fn fresh(dir: &Path, script: &str) -> PathBuf {
    fs::create_dir_all(dir).expect("a folder");
    input(dir, "a.json", 1);
    input(dir, "b.json", 2);
    fs::write(dir.join("job.sql"), script).expect("a script");
    dir.to_path_buf()
}

fn of_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(otherwise)
}

/// The field report B078: windows of 6,000 rows each, whose counts are arithmetic, killed and resumed.
#[test]
fn at_any_moment() {
    let (kills, rows) = (of_environment("KILLS", 4), of_environment("ROWS", 60_000) / 6_000 * 6_000);
    let root = tempfile::tempdir().expect("a folder");
    let input = root.path().join("in.json");
    let mut text = String::new();
    for row in 0..rows {
        let (key, ms) = (row % 7, row * 10);
        let (hour, minute, second) = (9 + ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
        let ts = format!("2024-05-01 {hour:02}:{minute:02}:{second:02}.{:03}", ms % 1_000);
        writeln!(text, r#"{{"k":{key},"v":1,"ts":"{ts}"}}"#).expect("a text takes text");
    }
    fs::write(&input, text).expect("the input is written");
    // As many checkpoints as 200 ms are for all 600,000 rows.
    let interval = format!("execution.checkpoint.interval={} ms", (200 * rows / 600_000).max(10));
    let run = |dir: &Path, resumes: bool| {
        let mut command = command(dir, Some(resumes), 1);
        command.args(["--set", &interval, "--set", "execution.batch-rows=8192"]);
        command
    };
    let (mut dice, mut killed, mut round, mut whole) = (Dice(78 + kills), 0, 0, 0);
    while killed < kills {
        round += 1;
        let dir = root.path().join(format!("round-{round}"));
        fs::create_dir(&dir).expect("a folder");
        let script = format!(
            "CREATE TABLE t (k INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
             WITH ('connector'='filesystem', 'path'='{}', 'format'='json');
             CREATE TABLE r (s TIMESTAMP(3), e TIMESTAMP(3), c BIGINT, v BIGINT)
             WITH ('connector'='filesystem', 'path'='{}', 'format'='json');
             INSERT INTO r SELECT window_start, window_end, COUNT(*) AS c, SUM(v) AS s
             FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;",
            input.display(),
            dir.join("out").display()
        );
        fs::write(dir.join("job.sql"), script).expect("a script");
        let begun = Instant::now();
        // The first round is not disturbed: it says how long one takes.
        let longest = |dice: &mut Dice| (round > 1).then(|| Duration::from_micros(dice.below(whole / 2)));
        let (output, kills_here) =
            disturbed(&dir, kills - killed, || longest(&mut dice), |resumes| run(&dir, resumes));
        whole = if round == 1 { begun.elapsed().as_micros() as u64 } else { whole };
        killed += kills_here;
        let counts = counts(&output);
        assert_eq!(
            (counts["rows_in"], counts["rows_out"], counts["late"]),
            (rows, rows / 6_000, 0),
            "round {round}"
        );
        let window = |number: u64| {
            let at = |number: u64| format!("2024-05-01T{:02}:{:02}:00.000", 9 + number / 60, number % 60);
            format!(r#"{{"s":"{}","e":"{}","c":6000,"v":6000}}"#, at(number), at(number + 1))
        };
        let expected: Vec<String> = (0..rows / 6_000).map(window).collect();
        assert_eq!(self::rows(&dir.join("out")), expected, "round {round}, {kills_here} kills");
    }
}

/// Runs to the end, killed now and then, and resumed. `longest`: when it is killed, if at all. How often it was.
fn disturbed(
    dir: &Path,
    most: u64,
    mut longest: impl FnMut() -> Option<Duration>,
    command: impl Fn(bool) -> Command,
) -> (Output, u64) {
    let (mut killed, mut runs) = (0, 0);
    loop {
        let resumes = has_checkpoint(dir);
        if !resumes && runs > 0 {
            fs::remove_dir_all(dir.join("state")).ok();
        }
        runs += 1;
        let mut child = command(resumes).spawn().expect("the program runs");
        let longest = longest().filter(|_| killed < most);
        if longest.is_none_or(|longest| ends_within(&mut child, longest)) {
            return (child.wait_with_output().expect("the program ends"), killed);
        }
        child.kill().expect("the program can be killed");
        let output = child.wait_with_output().expect("the program ends");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!text.contains("error"), "{}, run {runs}: {text}", dir.display());
        killed += 1;
    }
}

fn survives(name: &str, columns: &str, format: &str, query: &str) {
    let kills = of_environment("KILLS", 4);
    let root = tempfile::tempdir().expect("a folder");
    let plain = root.path().join("plain");
    fresh(&plain, &script(&plain, columns, format, query));
    let begun = Instant::now();
    let output = command(&plain, None, 2).output().expect("the program runs");
    let whole = begun.elapsed().as_micros() as u64;
    let expected = (rows(&plain.join("out")), rows(&plain.join("late")), counts(&output));
    assert!(expected.0.len() > 20, "{name}: only {} rows to compare", expected.0.len());
    let (mut dice, mut killed, mut round) = (Dice(kills), 0, 0);
    while killed < kills {
        round += 1;
        let dir = root.path().join(format!("round {round}").replace(' ', "-"));
        fresh(&dir, &script(&dir, columns, format, query));
        // Half of the runs with as many subtasks as the first, others with more or fewer. Never killed so seldom that no run
        // comes to an end.
        let subtasks = RefCell::new(Dice(dice.below(u64::MAX)));
        let (output, kills_here) = disturbed(
            &dir,
            kills - killed,
            || Some(Duration::from_micros(dice.below(whole * 3 / 2))),
            |resumes| command(&dir, Some(resumes), [2, 2, 1, 4][subtasks.borrow_mut().below(4) as usize]),
        );
        killed += kills_here;
        let given = (rows(&dir.join("out")), rows(&dir.join("late")), counts(&output));
        assert_eq!(given.2, expected.2, "{name}, round {round}: counts after {kills_here} kills");
        assert!(given.1 == expected.1, "{name}, round {round}: other late rows after {kills_here} kills");
        if given.0 != expected.0 {
            let lost = expected.0.iter().filter(|row| !given.0.contains(row)).count();
            let (all, wanted) = (given.0.len(), expected.0.len());
            panic!(
                "{name}, round {round}, {kills_here} kills: {all} rows, not {wanted}, of which {lost} are lost"
            );
        }
    }
}

#[test]
fn tumble() {
    survives(
        "tumble",
        "k STRING, s TIMESTAMP(3), n BIGINT, total BIGINT",
        "json",
        "SELECT k, window_start, COUNT(*), SUM(v)
         FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND))
         GROUP BY k, window_start, window_end LATE ROWS INTO late",
    );
}

#[test]
fn hop() {
    survives(
        "hop",
        "k STRING, s TIMESTAMP(3), n BIGINT, high INT",
        "json",
        "SELECT k, window_start, COUNT(*), MAX(v)
         FROM TABLE(HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND))
         GROUP BY k, window_start, window_end LATE ROWS INTO late",
    );
}

#[test]
fn session() {
    survives(
        "session",
        "k STRING, s TIMESTAMP(3), e TIMESTAMP(3), n BIGINT",
        "json",
        "SELECT k, window_start, window_end, COUNT(*)
         FROM TABLE(SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '300' MILLISECOND))
         GROUP BY k, window_start, window_end LATE ROWS INTO late",
    );
}

#[test]
fn interval_join() {
    survives(
        "interval join",
        "one BIGINT, other BIGINT, k STRING",
        "json",
        "SELECT a.id, b.id, a.k FROM a JOIN b ON a.k = b.k AND a.v = b.v
         AND b.ts BETWEEN a.ts - INTERVAL '20' SECOND AND a.ts + INTERVAL '10' SECOND",
    );
}

#[test]
fn top_n() {
    survives(
        "Top-N",
        "s TIMESTAMP(3), k STRING, v INT, id BIGINT, place BIGINT",
        "json",
        "SELECT window_start, k, v, id, place FROM (
           SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY v DESC, id) AS place
           FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND))) WHERE place <= 2",
    );
}

#[test]
fn deduplication() {
    survives(
        "deduplication",
        "id BIGINT, k STRING, v INT",
        "changelog-json",
        "SELECT id, k, v FROM (
           SELECT *, ROW_NUMBER() OVER (PARTITION BY k, v ORDER BY ts DESC) AS place FROM a) WHERE place = 1",
    );
}

#[test]
fn changelog_group_by() {
    survives(
        "changelog group by",
        "k STRING, n BIGINT, total BIGINT, high INT",
        "changelog-json",
        "SELECT k, COUNT(*), SUM(v), MAX(v) FROM a GROUP BY k EMIT CHANGES",
    );
}
