//! Folders of checkpoints in unusual places, copies of them, and others than were meant: the right result or an error
//! that says what to do, and never rows that are there twice or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use super::project::{Project, numbers, sorted};
use super::{copy, project_of};

const ROWS: u32 = 200_000;

/// A run that has come to its end, with several checkpoints and parts.
fn done(folder: &str) -> Project {
    let project = project_of(&copy("'path' = 'out', 'format' = 'json'"));
    project.write("in.json", &numbers(0..ROWS));
    project.succeeds(&["--checkpoint-dir", folder]);
    is_right(&project);
    project
}

fn is_right(project: &Project) {
    assert!(project.lines("out") == sorted(&numbers(0..ROWS)), "{} rows", project.lines("out").len());
    assert_eq!(project.hidden("out"), Vec::<PathBuf>::new());
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copied(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("a copy")),
        }
    }
}

fn named(project: &Project, folder: &str, place: usize) -> String {
    let path = &project.files(&format!("{folder}/job-1"))[place];
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    format!("{folder}/job-1/{name}")
}

/// What is written behind a checkpoint, and visible, goes when a run goes on from there, and comes again.
#[test]
fn an_older_one_takes_back_what_is_visible() {
    let project = done("state");
    let parts = project.files("out").len();
    assert!(parts > 3, "{parts} parts");
    for _ in 0..2 {
        project.succeeds(&["--checkpoint-dir", "state", "--from", &named(&project, "state", 0)]);
        is_right(&project);
    }
    // One file can't be taken back once it has its name.
    let one = project_of(&copy("'path' = 'out.json'"));
    one.write("in.json", &numbers(0..ROWS));
    one.succeeds(&["--checkpoint-dir", "state"]);
    let before = fs::read_to_string(one.path("out.json")).expect("a file");
    let text = one.fails(&["--checkpoint-dir", "state", "--from", &named(&one, "state", 0)], "K003", 1);
    assert!(text.contains("out.json"), "{text}");
    assert_eq!(fs::read_to_string(one.path("out.json")).expect("a file"), before);
}

#[test]
fn one_that_is_not_there_is_never_another_one() {
    let project = done("state");
    let gone = "state/job-1/chk-00000001";
    assert!(!project.path(gone).exists());
    for (from, exit) in [
        (gone, 1),
        ("state/job-9/chk-00000001", 1),
        ("nothing", 2),
        ("state", 2),
        ("state/job-1", 2),
        ("other/job-1/chk-00000001", 2),
    ] {
        let text = project.fails(&["--checkpoint-dir", "state", "--from", from], "K001", exit);
        assert!(text.contains(from) && text.contains("hint: Name a folder"), "{text}");
        is_right(&project);
    }
}

#[cfg(unix)]
#[test]
fn links_and_other_names_of_a_folder() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let project = done("real");
    std::os::unix::fs::symlink(project.path("real"), project.path("link")).expect("a link");
    project.succeeds(&["--checkpoint-dir", "link", "--resume"]);
    is_right(&project);
    // Named by either, it is the same one.
    project.succeeds(&["--checkpoint-dir", "link", "--from", &named(&project, "real", 0)]);
    project.succeeds(&["--checkpoint-dir", "real", "--from", &named(&project, "link", 0)]);
    let absolute = project.path(&named(&project, "real", 0)).to_string_lossy().into_owned();
    project.succeeds(&["--checkpoint-dir", "./link/../real", "--from", &absolute]);
    is_right(&project);
    // A name that is no text would become another one.
    let mut command = project.command(&["--checkpoint-dir"]);
    command.arg(OsStr::from_bytes(b"st\xff\xfe"));
    let output = command.output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("error[U001]") && said.contains("is not UTF-8") && said.contains("hint: "),
        "{said}"
    );
    is_right(&project);
}

#[test]
fn a_copy_goes_on_and_its_original_is_told() {
    for from in [false, true] {
        let project = done("state");
        copied(&project.path("state"), &project.path("copy"));
        let resumed = match from {
            false => vec!["--resume".to_owned()],
            true => vec!["--from".to_owned(), named(&project, "copy", 0)],
        };
        let args: Vec<&str> =
            ["--checkpoint-dir", "copy"].into_iter().chain(resumed.iter().map(String::as_str)).collect();
        project.succeeds(&args);
        is_right(&project);
        // The copy is what goes on from now on.
        project.succeeds(&["--checkpoint-dir", "copy", "--resume"]);
        is_right(&project);
        match from {
            // It was over, and so is the copy: nothing was written.
            false => drop(project.succeeds(&["--checkpoint-dir", "state", "--resume"])),
            true => {
                let text = project.fails(&["--checkpoint-dir", "state", "--resume"], "K003", 1);
                assert!(text.contains("another run") && text.contains("hint: Go on with"), "{text}");
                project.succeeds(&["--checkpoint-dir", "copy", "--resume"]);
            }
        }
        is_right(&project);
        let text =
            project.fails(&["--checkpoint-dir", "state", "--from", &named(&project, "copy", 0)], "K001", 2);
        assert!(text.contains("is not a checkpoint in \"state\""), "{text}");
    }
}

/// Root may write everywhere: there it goes on.
#[cfg(unix)]
#[test]
fn a_folder_that_may_only_be_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let project = done("state");
    let allow = |mode| {
        fs::set_permissions(project.path("state/job-1"), fs::Permissions::from_mode(mode))
            .expect("it can be changed");
    };
    allow(0o555);
    let may_write = fs::write(project.path("state/job-1/.probe"), "").is_ok();
    for from in [false, true] {
        let oldest = named(&project, "state", 0);
        let start: &[&str] = if from { &["--from", &oldest] } else { &["--resume"] };
        let args = [&["--checkpoint-dir", "state"][..], start].concat();
        match may_write {
            true => drop(project.succeeds(&args)),
            false => {
                let text = project.fails(&args, "K004", 1);
                assert!(text.contains("Permission denied") && text.contains("hint: "), "{text}");
            }
        }
        is_right(&project);
    }
    allow(0o755);
    // The way out, also where nobody may be asked.
    copied(&project.path("state"), &project.path("copy"));
    project.succeeds(&["--checkpoint-dir", "copy", "--resume"]);
    is_right(&project);
}

/// Checkpoints in the folder of a table would be taken for its rows.
#[test]
fn checkpoints_are_apart_from_tables() {
    let read = "CREATE TABLE t (v INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
                CREATE TABLE r (v INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
                INSERT INTO r SELECT v FROM t;";
    let project = project_of(read);
    fs::create_dir(project.path("in")).expect("a folder");
    project.write("in/a.json", &numbers(0..ROWS));
    for folder in ["out", "out/state", "./out/a/b", "in", "in/state", "out/../in"] {
        let text = project.fails(&["--checkpoint-dir", folder], "K004", 2);
        assert!(text.contains(folder) && text.contains("hint: Name a folder beside it"), "{text}");
        assert!(!project.path("out").exists() && project.files("in").len() == 1, "nothing was done");
    }
    // Readers leave out what has such a name.
    for (folder, more) in [("out/.state", 0), ("in/_state", 1)] {
        project.succeeds(&["--checkpoint-dir", folder]);
        project.succeeds(&["--checkpoint-dir", folder, "--resume"]);
        assert_eq!(project.lines("out").len(), (1 + more) * ROWS as usize);
    }
    project.write("job.sql", &read.replace("INSERT INTO r SELECT v FROM t", "SELECT COUNT(*) AS n FROM r"));
    let output = project.run(&["-f", "csv"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "n\n400000\n");
}

/// Two inserts that write one folder, as jobs of their own and as one job, killed and rewound: neither touches what the
/// other one has written.
#[test]
fn two_jobs_write_one_folder() {
    let tables = "CREATE TABLE t (v INT) WITH ('connector' = 'filesystem', 'path' = 'in.json');
        CREATE TABLE r (v INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
        CREATE TABLE s (v INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');";
    let inserts =
        "INSERT INTO r SELECT v FROM t WHERE v < 100000; INSERT INTO s SELECT v FROM t WHERE v >= 100000;";
    for script in [format!("{tables} {inserts}"), format!("{tables} BEGIN STATEMENT SET; {inserts} END;")] {
        let project = project_of(&script);
        project.write("in.json", &numbers(0..ROWS));
        let mut begun = false;
        for checkpoints in [3, 6, 9] {
            let args = ["--checkpoint-dir", "state", "--resume"];
            let running = project.start(if begun { &args } else { &args[..2] });
            // It may be over before.
            running.goes_on_until("some checkpoints", || project.newest() >= checkpoints);
            running.kill();
            begun = true;
        }
        project.succeeds(&["--checkpoint-dir", "state", "--resume"]);
        is_right(&project);
        project.succeeds(&["--checkpoint-dir", "state", "--from", &named(&project, "state", 0)]);
        is_right(&project);
    }
}
