//! The examples do what they say. `cargo test` builds them; alone: `cargo build --examples && cargo test --test examples`.

use std::env;
use std::process::Command;

/// What an example prints.
fn output(name: &str) -> String {
    // This test stands in `deps`, the examples in `examples` beside it.
    let here = env::current_exe().expect("a path");
    let folder = here.parent().and_then(|deps| deps.parent()).expect("a target folder");
    let path = folder.join("examples").join(format!("{name}{}", env::consts::EXE_SUFFIX));
    assert!(path.exists(), "build it first: cargo build --examples");
    let output = Command::new(&path).output().expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && err.is_empty(), "{out}{err}");
    out.into_owned()
}

#[test]
fn plan() {
    let text = output("plan");
    assert!(text.contains("WindowAggregate") && text.contains("1 of them aggregate windows"), "{text}");
    assert!(
        text.contains("error[P001]: no table or view \"bid\"") && text.contains("Use \"bids\"."),
        "{text}"
    );
}

#[test]
fn channel() {
    let expected = "\
+---------------------+-------+---------+
| window_start        | item  | highest |
+---------------------+-------+---------+
| 1970-01-01T00:00:00 | lamp  | 12      |
| 1970-01-01T00:02:00 | chair | 7       |
| 1970-01-01T00:02:00 | lamp  | 9       |
+---------------------+-------+---------+
+------+-------+-------------+
| item | price | late_reason |
+------+-------+-------------+
| lamp | 50    | late        |
+------+-------+-------------+
";
    assert_eq!(output("channel"), expected);
}

#[test]
fn source() {
    let text = output("source");
    // 1 + 4 + 9 + 16.
    assert!(text.contains("| 30    | 4    |"), "{text}");
    assert!(text.contains("error[C001]: unknown option \"cuont\"") && text.contains("'count'"), "{text}");
}

#[test]
fn metrics() {
    let text = output("metrics");
    let first = "job 1 writes [\"per_second\"], ends by itself: false\n";
    assert!(text.starts_with(first), "{text}");
    assert!(
        text.contains(" rows read; ") && text.ends_with("finished: every row is accounted for: true\n"),
        "{text}"
    );
}
