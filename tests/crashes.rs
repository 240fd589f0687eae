//! A crash at every possible step: small plans are cut at each step of their work and crash at later ones; from the cut
//! on all is done again, and the result is that of the undisturbed run, with late rows and counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate::connector::{Connectors, Feed, FeedEvent, Filesystem, Memory};
use tidegate::runtime::{JobSummary, Schedule};
use tidegate::session::{Session, SteppedHandle};
use tidegate::stream::{Clock, RowKind, StreamBatch, VirtualClock};

/// Lines of two tables that end, by split; some are late, one has no time.
const T: [&str; 2] = [
    r#"{"id":1,"k":"a","v":3,"ts":"2024-05-01 09:00:01"}
{"id":2,"k":"b","v":1,"ts":"2024-05-01 09:00:04"}
{"id":3,"k":"a","v":7,"ts":"2024-05-01 09:00:12"}
{"id":4,"k":"a","v":5,"ts":"2024-05-01 09:00:03"}
{"id":5,"k":"b","v":2,"ts":"2024-05-01 09:00:25"}"#,
    r#"{"id":6,"k":"a","v":4,"ts":"2024-05-01 09:00:02"}
{"id":7,"k":"b","v":9,"ts":null}
{"id":8,"k":"a","v":6,"ts":"2024-05-01 09:00:27"}
{"id":9,"k":"b","v":8,"ts":"2024-05-01 09:00:26"}"#,
];
const U: &str = r#"{"id":11,"k":"a","v":1,"ts":"2024-05-01 09:00:03"}
{"id":12,"k":"b","v":2,"ts":"2024-05-01 09:00:20"}
{"id":13,"k":"a","v":3,"ts":"2024-05-01 09:00:31"}"#;

/// What a run has to give: the rows of the table, the late rows, and the counts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Given {
    rows: Vec<String>,
    late: Vec<String>,
    counts: [u64; 6],
}

struct World {
    memory: Memory,
    query: SteppedHandle,
    has_late: bool,
    /// Where its tables are files; `None`: they are in memory.
    folder: Option<PathBuf>,
    /// Subtasks side by side: which gives its rows first may be another one after a crash.
    is_spread: bool,
}

fn start(sql: &str, parallelism: usize) -> World {
    let (feed, memory) = (Feed::new(), Memory::new());
    let mut connectors = Connectors::empty();
    connectors.add(Arc::new(feed.clone()));
    connectors.add(Arc::new(memory.clone()));
    connectors.add(Arc::new(Filesystem));
    let mut session = Session::with_connectors(connectors);
    session.set_clock(Arc::new(VirtualClock::new(0)) as Arc<dyn Clock>);
    session.set("execution.batch-rows", "2").expect("a setting");
    session.set("execution.parallelism", &parallelism.to_string()).expect("a setting");
    for (table, splits) in [("t", T.as_slice()), ("u", &[U])] {
        feed.bound(table);
        for (split, lines) in splits.iter().enumerate() {
            let split = format!("split {split}");
            feed.give(table, &split, FeedEvent::Lines((*lines).to_owned()));
            feed.give(table, &split, FeedEvent::End);
        }
    }
    let table = |name: &str| {
        format!(
            "CREATE TABLE {name} (id BIGINT, k STRING, v INT, ts TIMESTAMP(3),
             WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) WITH ('connector' = 'feed');"
        )
    };
    let script = table("t") + &table("u") + sql;
    let mut query = None;
    for statement in session.parse("crashes", &script).expect("the script is SQL") {
        query = session.start_stepped(&statement, Schedule::new(0)).expect("it can be planned");
        if query.is_none() {
            session.execute(&statement).expect("a statement");
        }
    }
    let query = query.expect("the last statement is an insert");
    World { memory, query, has_late: sql.contains("LATE ROWS"), folder: None, is_spread: parallelism > 1 }
}

fn lines(batches: &[StreamBatch]) -> Vec<String> {
    let mut lines = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let kind = batch.kinds.as_ref().map_or(RowKind::Insert, |kinds| kinds.values()[row]);
            let mut line = format!("{kind:?}");
            for column in batch.rows.columns() {
                let value = arrow::util::display::array_value_to_string(column, row);
                line += &format!("|{}", value.expect("a value has a text"));
            }
            lines.push(line);
        }
    }
    lines
}

impl World {
    /// So many steps, or fewer where it comes to its end. How many there were.
    fn steps(&mut self, most: usize) -> usize {
        let mut done = 0;
        while done < most && self.query.step().expect("a step succeeds") {
            done += 1;
        }
        done
    }

    /// What it has given, once it is over.
    fn given(&self) -> Given {
        assert!(self.query.is_over());
        let summary: JobSummary = self.query.summary();
        assert!(summary.reconciles(), "rows are not accounted for: {summary:?}");
        let written = |name: &str| {
            let mut lines = match &self.folder {
                Some(folder) => lines_of(&folder.join(name)),
                None => lines(&self.memory.peek(name)),
            };
            if self.is_spread {
                lines.sort();
            }
            lines
        };
        let late = if self.has_late { written("late") } else { Vec::new() };
        let counts = [
            summary.rows_in,
            summary.rows_out,
            summary.late,
            summary.partly_late,
            summary.null_time,
            summary.filtered,
        ];
        Given { rows: written("out"), late, counts }
    }
}

/// The lines of the part files in a folder, in the order of their names. None is left in progress.
fn lines_of(folder: &Path) -> Vec<String> {
    let mut parts: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    parts.sort();
    let text = |part: PathBuf| {
        let name = part.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(!name.starts_with('.'), "{name} was left behind");
        fs::read_to_string(part).expect("a part can be read")
    };
    parts.into_iter().map(text).collect::<String>().lines().map(str::to_owned).collect()
}

/// `columns`: of the table that the query writes. `rows`: how many it has to give, at least.
fn survives(columns: &str, query: &str, rows: usize) {
    for parallelism in [1, 2] {
        let sql =
            format!("CREATE TABLE out ({columns}) WITH ('connector' = 'memory'); INSERT INTO out {query};");
        let mut world = start(&sql, parallelism);
        let begin = world.query.cut().expect("it can be cut before its first step");
        let all = world.steps(usize::MAX);
        let expected = world.given();
        assert!(expected.rows.len() >= rows, "{expected:#?}");
        assert!(all > 12, "only {all} steps");
        for cut_at in (0..=all).step_by(parallelism) {
            world.query.crash(&begin).expect("it goes on from its beginning");
            world.steps(cut_at);
            let cut = world.query.cut().expect("it can be cut");
            let left = world.steps(usize::MAX);
            assert_eq!(world.given(), expected, "-p {parallelism}, cut at {cut_at}");
            for later in later_steps(parallelism, cut_at, left) {
                for steps in [later, 0] {
                    world.query.crash(&cut).expect("it goes on from the cut");
                    world.steps(steps);
                }
                world.steps(usize::MAX);
                assert_eq!(world.given(), expected, "-p {parallelism}, cut at {cut_at}, crash {later} later");
            }
        }
    }
}

/// Of so many steps behind a cut those at which it crashes: the nearest, and fewer and fewer of the others. Where subtasks
/// stand side by side there are more steps; then one of them.
fn later_steps(parallelism: usize, cut_at: usize, left: usize) -> Vec<usize> {
    match parallelism {
        1 => (0..).map(|power| 1 << power).take_while(|later| *later <= left).collect(),
        _ => vec![(cut_at * 7) % (left + 1)],
    }
}

#[test]
fn tumble() {
    survives(
        "s TIMESTAMP(3), k STRING, n BIGINT, total BIGINT",
        "SELECT window_start, k, COUNT(*), SUM(v) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))
         GROUP BY window_start, window_end, k LATE ROWS INTO late",
        4,
    );
}

#[test]
fn hop() {
    survives(
        "s TIMESTAMP(3), k STRING, n BIGINT, high INT",
        "SELECT window_start, k, COUNT(*), MAX(v)
         FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
         GROUP BY window_start, window_end, k LATE ROWS INTO late",
        8,
    );
}

#[test]
fn session() {
    survives(
        "s TIMESTAMP(3), e TIMESTAMP(3), k STRING, n BIGINT",
        "SELECT window_start, window_end, k, COUNT(*)
         FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3' SECOND))
         GROUP BY window_start, window_end, k LATE ROWS INTO late",
        4,
    );
}

#[test]
fn interval_join() {
    survives(
        "one BIGINT, other BIGINT",
        "SELECT t.id, u.id FROM t JOIN u ON t.k = u.k
         AND u.ts BETWEEN t.ts - INTERVAL '5' SECOND AND t.ts + INTERVAL '20' SECOND",
        4,
    );
}

#[test]
fn top_n() {
    survives(
        "s TIMESTAMP(3), k STRING, v INT, place BIGINT",
        "SELECT window_start, k, v, place FROM (
           SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v DESC) AS place
           FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))) WHERE place <= 2",
        4,
    );
}

#[test]
fn deduplication() {
    survives(
        "id BIGINT, k STRING, v INT",
        "SELECT id, k, v FROM (
           SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS place FROM t) WHERE place = 1 EMIT CHANGES",
        4,
    );
}

#[test]
fn changelog_group_by() {
    survives(
        "k STRING, n BIGINT, total BIGINT",
        "SELECT k, COUNT(*), SUM(v) FROM t GROUP BY k EMIT CHANGES",
        4,
    );
}

/// Parts of folders appear with the checkpoint that covers them; what no checkpoint covers goes.
#[test]
fn files() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = |name: &str, columns: &str| {
        let path = folder.path().join(name);
        format!(
            "CREATE TABLE {name} ({columns})
             WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'json');",
            path.display()
        )
    };
    let sql = table("out", "s TIMESTAMP(3), k STRING, n BIGINT")
        + &table("late", "id BIGINT, late_reason STRING")
        + "INSERT INTO out SELECT window_start, k, COUNT(*)
           FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND))
           GROUP BY window_start, window_end, k LATE ROWS INTO late";
    let mut world = start(&sql, 1);
    world.folder = Some(folder.path().to_path_buf());
    let begin = world.query.cut().expect("it can be cut before its first step");
    let all = world.steps(usize::MAX);
    let expected = world.given();
    assert!(expected.rows.len() >= 5 && expected.late.len() == 2, "{expected:#?}");
    for cut_at in 0..=all {
        world.query.crash(&begin).expect("it goes on from its beginning");
        // One checkpoint before it, whose parts are visible.
        world.steps(cut_at / 2);
        world.query.cut().expect("it can be cut");
        world.query.commit().expect("what was prepared becomes visible");
        world.steps(cut_at - cut_at / 2);
        let cut = world.query.cut().expect("it can be cut");
        // The crash is before or behind the moment at which the parts of the checkpoint become visible.
        if cut_at % 2 == 0 {
            world.query.commit().expect("what was prepared becomes visible");
        }
        for later in [all / 5, all / 2] {
            world.steps(later);
            world.query.crash(&cut).expect("it goes on from the cut");
        }
        world.steps(usize::MAX);
        assert_eq!(world.given(), expected, "cut at {cut_at}");
    }
}
