//! Disorder in the world, from outside: no room, folders that go, files in their place, a second run, a clock that is set
//! back. Each time checkpoints that are there stay whole, what is wrong is said, and the result is right once it is over.

#[path = "support/project.rs"]
mod project;

use std::fs;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use project::{PATIENCE, Project, Running, numbers, sorted};
use tidegate::Session;
use tidegate::session::Outcome;
use tidegate::stream::{Clock, SystemClock};

/// Follows a file of numbers, into a folder.
const FOLLOWS: &str = "
CREATE TABLE t (v INT) WITH ('connector' = 'filesystem', 'path' = 'in.json', 'source.monitor-interval' = '10 ms');
CREATE TABLE r (v INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO r SELECT v FROM t;";

/// With a checkpoint whenever there is time for one.
fn project_of(script: &str) -> Project {
    let often = ["--checkpoint-dir", "state", "--set", "execution.checkpoint.interval=20 ms", "-p", "2"];
    Project::new(script).with(&often)
}

/// Starts it, and waits until it has taken some checkpoints: by then it hears signals.
fn start(project: &Project, args: &[&str]) -> Running {
    started(project, project.command(args))
}

fn started(project: &Project, command: Command) -> Running {
    let before = project.newest();
    let running = Running::of(command);
    running.until("checkpoints", || project.newest() >= before + 3);
    running
}

fn ended(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A file stands where the folder of the checkpoints was, which is put back: the job goes on meanwhile, says so, shows
/// nothing that no checkpoint covers, and shows it then.
#[test]
fn a_file_where_the_checkpoints_were() {
    for is_killed in [false, true] {
        let project = project_of(FOLLOWS);
        project.append("in.json", &numbers(0..50));
        let running = start(&project, &[]);
        running.until("the first rows", || project.lines("out").len() == 50);
        let (folder, away) = (project.path("state/job-1"), project.path("state/away"));
        fs::rename(&folder, &away).expect("a folder can be renamed");
        fs::write(&folder, "").expect("a file can be written");
        project.append("in.json", &numbers(50..90));
        running.until_it_says("goes on without checkpoints: can't write checkpoint \"state/job-1");
        assert_eq!(project.lines("out"), sorted(&numbers(0..50)), "no checkpoint covers more");
        let put_back = || {
            fs::remove_file(&folder).expect("a file can be removed");
            fs::rename(&away, &folder).expect("a folder can be renamed");
        };
        let running = match is_killed {
            true => {
                running.kill();
                put_back();
                start(&project, &["--resume"])
            }
            false => {
                put_back();
                running.until_it_says("has checkpoints again");
                running
            }
        };
        running.until("the other rows", || project.lines("out").len() >= 90);
        running.stop();
        assert_eq!(project.lines("out"), sorted(&numbers(0..90)));
    }
}

#[test]
fn a_deleted_folder_of_checkpoints_comes_again() {
    let project = project_of(FOLLOWS);
    project.append("in.json", &numbers(0..50));
    let running = start(&project, &[]);
    running.until("the first rows", || project.lines("out").len() == 50);
    // The run may put something there meanwhile.
    running.until("the folder is gone", || fs::remove_dir_all(project.path("state")).is_ok());
    project.append("in.json", &numbers(50..90));
    running.until("the other rows", || project.lines("out").len() == 90);
    assert!(!project.checkpoints().is_empty());
    running.kill();
    project.append("in.json", &numbers(90..100));
    let running = start(&project, &["--resume"]);
    running.until("the rest", || project.lines("out").len() >= 100);
    running.stop();
    assert_eq!(project.lines("out"), sorted(&numbers(0..100)));
}

/// The state of a window outgrows the disk: checkpoints fail, a stop fails, those before stay, and with room the job goes on
/// from there.
#[test]
fn no_room_for_a_checkpoint() {
    let project = project_of(
        "CREATE TABLE t (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
         WITH ('connector' = 'filesystem', 'path' = 'in.json', 'source.monitor-interval' = '10 ms');
         CREATE TABLE r (d TIMESTAMP(3), keys BIGINT, n BIGINT)
         WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
         INSERT INTO r SELECT window_start, COUNT(DISTINCT k), COUNT(*)
         FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY)) GROUP BY window_start, window_end;",
    );
    let row = |key: u32, day: u32| {
        format!("{{\"k\":\"a long key, {key:08}\",\"ts\":\"2024-05-0{day} 09:00:00\"}}\n")
    };
    project.append("in.json", &row(0, 1));
    let running = started(&project, project.command_without_room(300, &[]));
    project.append("in.json", &(1..30_000).map(|key| row(key, 1)).collect::<String>());
    running.until_it_says("goes on without checkpoints: can't write checkpoint \"state/job-1/chk-");
    assert!(running.said().contains("File too large"), "{}", running.said());
    let said = running.stops_with(1);
    assert!(said.contains("error[K004]") && said.contains("File too large"), "{said}");
    assert!(!project.checkpoints().is_empty(), "those before stay");
    project.append("in.json", &row(0, 2));
    let running = start(&project, &["--resume"]);
    running.until("the window", || !project.lines("out").is_empty());
    running.stop();
    assert_eq!(project.lines("out"), ["{\"d\":\"2024-05-01T00:00:00.000\",\"keys\":30000,\"n\":30000}"]);
}

/// What a sink could not write is in no checkpoint, also where it is found out only when one is taken.
#[test]
fn no_room_for_what_a_sink_writes() {
    for rows in [10_000, 100_000] {
        for options in [
            "'path' = 'out', 'format' = 'json'",
            "'path' = 'out', 'format' = 'csv'",
            "'path' = 'out', 'format' = 'parquet'",
            "'path' = 'out/r.json'",
        ] {
            let insert = format!(
                "CREATE TABLE t (v INT) WITH ('connector' = 'filesystem', 'path' = 'in.json');
                 CREATE TABLE r (v INT) WITH ('connector' = 'filesystem', {options});\n"
            );
            let project = project_of(&(insert.clone() + "INSERT INTO r SELECT v FROM t;"));
            project.append("in.json", &numbers(0..rows));
            let args = ["--set", "execution.checkpoint.interval=1 h"];
            let output = project.command_without_room(20, &args).output().expect("the program runs");
            let (exit, said) = ended(&output);
            assert_eq!(exit, Some(1), "{options}: {said}");
            assert!(said.contains("error[F003]: can't write \"out"), "{options}: {said}");
            assert!(said.contains("File too large"), "{options}: {said}");
            assert_eq!(project.lines("out"), Vec::<String>::new(), "{options}");
            assert!(!project.checkpoints().is_empty(), "the first one stays");
            project.succeeds(&[&args[..], &["--resume"]].concat());
            let count = insert + "SELECT COUNT(*) AS n, SUM(v) AS s FROM r;";
            fs::write(project.path("count.sql"), count).expect("a script");
            let mut counts = Command::new(env!("CARGO_BIN_EXE_tidegate"));
            counts.current_dir(project.path("")).args(["run", "count.sql", "-q", "-f", "json"]);
            let counted = String::from_utf8(counts.output().expect("the program runs").stdout).expect("text");
            let sum = u64::from(rows) * u64::from(rows - 1) / 2;
            assert_eq!(counted, format!("{{\"n\":{rows},\"s\":{sum}}}\n"), "{options}");
        }
    }
}

/// 10,000 rows into a folder, as the field report B083 has them.
fn written(format: &str, expression: &str) -> Project {
    let project = Project::new(&format!(
        "CREATE TABLE t (v INT) WITH ('connector' = 'filesystem', 'path' = 'in.json');
         CREATE TABLE r (x INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = '{format}');
         INSERT INTO r SELECT {expression} FROM t;"
    ));
    project.append("in.json", &numbers(0..10_000));
    project
}

/// The field report B083: what fails half way leaves nothing that looks finished, and the exit code says so.
#[test]
fn a_query_that_fails_half_way() {
    for format in ["json", "csv", "parquet"] {
        for args in [&[][..], &["--checkpoint-dir", "state"]] {
            let project = written(format, "100 / (5000 - v)");
            let said = project.fails(args, "R002", 1);
            assert!(said.contains("division by zero") && !said.contains("panicked"), "{said}");
            assert!(project.files("out").is_empty(), "{format}: {:?}", project.files("out"));
        }
    }
}

/// The field report B083: the system's reason and the path are told.
#[test]
fn output_that_can_not_be_written() {
    for format in ["json", "csv", "parquet"] {
        for args in [&[][..], &["--checkpoint-dir", "state"]] {
            let project = written(format, "v");
            project.write("out", "a file");
            let said = project.fails(args, "F003", 1);
            assert!(
                said.contains("can't write \"out\": not a directory") && said.contains("hint: "),
                "{said}"
            );
            assert_eq!(fs::read_to_string(project.path("out")).expect("a file"), "a file");
            #[cfg(unix)]
            may_not_be_written(format, args);
        }
    }
    // A device that is always full.
    #[cfg(target_os = "linux")]
    for format in ["json", "csv"] {
        let project = written(format, "v");
        let script = fs::read_to_string(project.path("job.sql")).expect("a script");
        project.write("job.sql", &script.replace("'path' = 'out'", "'path' = '/dev/full'"));
        let said = project.fails(&[], "F003", 1);
        assert!(said.contains("can't write \"/dev/full\": No space left on device"), "{said}");
        assert!(said.contains("hint: Make room there"), "{said}");
    }
}

/// A folder that its reader may not write. Root may: then somebody else runs the program.
#[cfg(unix)]
fn may_not_be_written(format: &str, args: &[&str]) {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    let project = written(format, "v");
    let allow = |name: &str, mode: u32| {
        fs::set_permissions(project.path(name), fs::Permissions::from_mode(mode)).expect("it can be changed");
    };
    for name in ["out", "state"] {
        fs::create_dir(project.path(name)).expect("a folder");
        allow(name, 0o777);
    }
    allow("out", 0o555);
    allow("", 0o755);
    let mut command = project.command(args);
    if fs::write(project.path("out/probe"), "").is_ok() {
        fs::remove_file(project.path("out/probe")).expect("it can be removed");
        // Nobody may read the folder in which the program was built, perhaps.
        let binary = project.path("program");
        let built = env!("CARGO_BIN_EXE_tidegate");
        if fs::hard_link(built, &binary).is_err() {
            fs::copy(built, &binary).expect("a copy of the program");
        }
        let mut other = Command::new(binary);
        other.args(command.get_args()).current_dir(project.path("")).uid(65_534).gid(65_534);
        command = other;
    }
    let (exit, said) = ended(&command.output().expect("the program runs"));
    assert_eq!(exit, Some(1), "{said}");
    assert!(said.contains("error[F003]: can't write \"out\": Permission denied"), "{said}");
    assert!(said.contains("hint: Allow this user"), "{said}");
    assert!(project.files("out").is_empty() && project.hidden("out").is_empty());
}

/// A disk of 64 KB, where this user may make one for himself.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full() {
    let may = Command::new("unshare").args(["-rm", "true"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        return;
    }
    for format in ["json", "csv", "parquet"] {
        for checkpoints in ["", "--checkpoint-dir state"] {
            let project = written(format, "v");
            fs::create_dir(project.path("out")).expect("a folder");
            let script = format!(
                "mount -t tmpfs -o size=16k none out && {{ \"$0\" run job.sql {checkpoints}; echo exit $?; ls out; }}"
            );
            let mut shell = Command::new("unshare");
            shell.args(["-rm", "sh", "-c", &script, env!("CARGO_BIN_EXE_tidegate")]);
            let output = shell.current_dir(project.path("")).output().expect("a shell");
            let (_, said) = ended(&output);
            assert!(said.contains("error[F003]: can't write \"out\": No space left on device"), "{said}");
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                "exit 1\n",
                "{format}: nothing looks finished"
            );
        }
    }
}

/// Root may write everywhere; whoever may not is told, and goes on from the last checkpoint when he may.
#[test]
#[cfg(unix)]
fn a_folder_that_may_not_be_written_any_more() {
    use std::os::unix::fs::PermissionsExt as _;
    let project = project_of(FOLLOWS);
    project.append("in.json", &numbers(0..50));
    let running = start(&project, &[]);
    running.until("the first rows", || project.lines("out").len() == 50);
    let allow = |mode: u32| {
        let folder = project.path("state/job-1");
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("it can be changed");
    };
    allow(0o555);
    let may_write = fs::write(project.path("state/job-1/.probe"), "").is_ok();
    project.append("in.json", &numbers(50..90));
    if may_write {
        running.stop();
    } else {
        running.until_it_says("Permission denied");
        running.stops_with(1);
    }
    allow(0o755);
    let running = start(&project, &["--resume"]);
    running.until("the other rows", || project.lines("out").len() >= 90);
    running.stop();
    assert_eq!(project.lines("out"), sorted(&numbers(0..90)));
}

/// The output is deleted while the job runs: it goes on in a new folder, or stops and says why. What was deleted is gone;
/// all that follows is there once.
#[test]
fn a_deleted_output_folder() {
    let project = project_of(FOLLOWS);
    project.append("in.json", &numbers(0..50));
    let running = start(&project, &[]);
    running.until("the first rows", || project.lines("out").len() == 50);
    fs::remove_dir_all(project.path("out")).expect("a folder can be removed");
    project.append("in.json", &numbers(50..90));
    let is_there = || project.lines("out").len() >= 40;
    if running.goes_on_until("the other rows", is_there) {
        running.stop();
    } else {
        let (exit, said) = running.end();
        assert_eq!(exit, Some(1), "{said}");
        assert!(said.contains("error[F003]: can't write \"out\""), "{said}");
        let running = start(&project, &["--resume"]);
        running.until("the other rows", is_there);
        running.stop();
    }
    assert_eq!(project.lines("out"), sorted(&numbers(50..90)));
}

#[test]
fn a_file_where_the_output_was() {
    let project = project_of(FOLLOWS);
    project.append("in.json", &numbers(0..50));
    let running = start(&project, &[]);
    running.until("the first rows", || project.lines("out").len() == 50);
    running.stop();
    fs::rename(project.path("out"), project.path("away")).expect("a folder can be renamed");
    fs::write(project.path("out"), "").expect("a file can be written");
    project.append("in.json", &numbers(50..60));
    let said = project.fails(&["--resume"], "F003", 1);
    assert!(said.contains("error[F003]: can't write \"out\": Not a directory"), "{said}");
    fs::remove_file(project.path("out")).expect("a file can be removed");
    fs::rename(project.path("away"), project.path("out")).expect("a folder can be renamed");
    let running = start(&project, &["--resume"]);
    running.until("the other rows", || project.lines("out").len() >= 60);
    running.stop();
    assert_eq!(project.lines("out"), sorted(&numbers(0..60)));
}

#[test]
fn two_runs_do_not_share_a_folder() {
    let project = project_of(FOLLOWS);
    project.append("in.json", &numbers(0..50));
    let running = start(&project, &[]);
    running.until("the first rows", || project.lines("out").len() == 50);
    for args in [&["--resume"][..], &[]] {
        let said = project.fails(args, "K004", 1);
        assert!(said.contains("another run"), "{said}");
    }
    project.append("in.json", &numbers(50..90));
    running.until("the other rows", || project.lines("out").len() == 90);
    // A folder is free as soon as its run is gone, however it went.
    running.kill();
    let running = start(&project, &["--resume"]);
    running.stop();
    assert_eq!(project.lines("out"), sorted(&numbers(0..90)));
}

/// A clock that somebody sets.
#[derive(Debug, Default)]
struct Settable {
    wall_us: AtomicI64,
    machine: SystemClock,
}

impl Clock for Settable {
    fn wall_us(&self) -> i64 {
        self.wall_us.load(Ordering::Acquire)
    }

    fn elapsed_us(&self) -> i64 {
        self.machine.elapsed_us()
    }
}

/// Checkpoints are taken by a clock that nobody sets; their numbers say which is the newest.
#[test]
fn a_clock_that_is_set_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(Settable::default());
    clock.wall_us.store(1_800_000_000_000_000, Ordering::Release);
    let mut session = Session::new();
    session.set_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    session.set("execution.checkpoint.dir", &folder.path().to_string_lossy()).expect("a setting");
    session.set("execution.checkpoint.interval", "10 ms").expect("a setting");
    let script = "CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000');
        CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole');
        INSERT INTO nowhere SELECT n FROM ticks;";
    let mut started = None;
    for statement in session.parse("clock", script).expect("it is SQL") {
        if let Outcome::Insert(job) = session.execute(&statement).expect("it runs") {
            started = Some(job);
        }
    }
    let job = started.expect("the last statement is an insert");
    let status = || job.checkpoints().expect("it has checkpoints");
    let until = |what: &str, happened: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !happened() {
            assert!(begun.elapsed() < PATIENCE, "waited for {what}: {:?}", status());
            assert!(job.wait_for(Duration::from_millis(2)).is_none(), "it goes on");
        }
    };
    until("three checkpoints", &|| status().completed >= 3);
    // A year back.
    let back_us = 1_800_000_000_000_000 - 31_536_000_000_000;
    clock.wall_us.store(back_us, Ordering::Release);
    let before = status().completed;
    until("five more", &|| status().completed >= before + 5);
    let last = status();
    assert_eq!((last.failed, last.last_taken_us), (0, back_us));
    assert_eq!(last.last, Some(last.completed), "numbers go on");
    job.suspend();
    assert!(job.wait().is_err() && job.is_suspended());
}
