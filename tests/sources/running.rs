//! A query that runs beside its test.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidegate::Error;
use tidegate::runtime::{JobSummary, SplitState, SplitStatus};
use tidegate::session::{JobHandle, Outcome, QueryHandle, Session};
use tidegate::stream::{Clock, StreamBatch};

/// Longer than anything takes that works.
const DEADLINE: Duration = Duration::from_secs(60);

/// A query, its rows as text, `a,b`.
pub(crate) struct Running {
    rows: Receiver<String>,
    job: JobHandle,
    thread: JoinHandle<Result<JobSummary, Error>>,
}

impl Running {
    /// Runs a script whose last statement is a query. `{dir}` stands for the folder.
    pub(crate) fn start(dir: &Path, script: &str) -> Self {
        Self::with_settings(dir, script, None, 1, 8_192)
    }

    /// The same with a clock, a parallelism and a batch size.
    pub(crate) fn with_settings(
        dir: &Path,
        script: &str,
        clock: Option<Arc<dyn Clock>>,
        parallelism: usize,
        batch_rows: usize,
    ) -> Self {
        let mut session = Session::new();
        if let Some(clock) = clock {
            session.set_clock(clock);
        }
        session.set("execution.parallelism", &parallelism.to_string()).unwrap();
        session.set("execution.batch-rows", &batch_rows.to_string()).unwrap();
        let query = query(&mut session, dir, script).unwrap_or_else(|error| panic!("{error}"));
        let job = query.job().clone();
        let (sender, rows) = sync_channel(100_000);
        let thread = std::thread::spawn(move || {
            let mut query = query;
            while let Some(batch) = query.next_batch()? {
                for row in lines(&batch) {
                    // The test may have seen enough.
                    let _ = sender.send(row);
                }
            }
            query.finish()
        });
        Self { rows, job, thread }
    }

    /// The next row.
    pub(crate) fn row(&self) -> String {
        match self.rows.recv_timeout(DEADLINE) {
            Ok(row) => row,
            Err(RecvTimeoutError::Timeout) => panic!("no row came; splits: {:?}", self.splits()),
            Err(RecvTimeoutError::Disconnected) => panic!("the query has ended"),
        }
    }

    /// The next `count` rows.
    pub(crate) fn rows(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.row()).collect()
    }

    /// Rows that are here already.
    pub(crate) fn rows_at_hand(&self) -> Vec<String> {
        self.rows.try_iter().collect()
    }

    /// Where the only listening source waits for connections.
    pub(crate) fn address(&self) -> SocketAddr {
        self.job.monitor().listening()[0].1
    }

    pub(crate) fn splits(&self) -> Vec<SplitStatus> {
        self.job.monitor().splits()
    }

    /// Waits until the splits are as wanted.
    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn(&[SplitStatus]) -> bool) -> Vec<SplitStatus> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let splits = self.splits();
            if is_so(&splits) {
                return splits;
            }
            assert!(Instant::now() < deadline, "{what}: {splits:?}");
            assert!(!self.thread.is_finished(), "the query has ended: {splits:?}");
            std::thread::yield_now();
        }
    }

    /// Waits until a split whose name ends like this is in that state.
    pub(crate) fn wait_for_state(&self, split: &str, state: SplitState) {
        self.wait_for(&format!("{split} {state:?}"), |splits| {
            splits.iter().any(|status| status.split.ends_with(split) && status.state == state)
        });
    }

    /// Waits until an operator whose name starts like this has seen that many rows.
    pub(crate) fn wait_for_rows_in(&self, operator: &str, rows: u64) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let snapshot = self.job.monitor().snapshot();
            let operators = snapshot.tasks.iter().flat_map(|task| &task.operators);
            let seen: Vec<_> = operators.map(|operator| (&operator.name, operator.rows_in)).collect();
            if seen.iter().any(|(name, seen)| name.starts_with(operator) && *seen >= rows) {
                return;
            }
            assert!(Instant::now() < deadline, "{operator} has not seen {rows} rows: {seen:?}");
            assert!(!self.thread.is_finished(), "the query has ended: {seen:?}");
            std::thread::yield_now();
        }
    }

    /// Waits for the end, and gives the rows that are left.
    pub(crate) fn end(self) -> (Vec<String>, JobSummary) {
        let rows = self.rows.iter().collect();
        let summary = self.thread.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
        assert!(summary.reconciles(), "{summary:?}");
        (rows, summary)
    }

    /// Stops it, and gives the rows that are left.
    pub(crate) fn stop(self) -> Vec<String> {
        self.job.stop();
        let rows = self.rows.iter().collect();
        let error = self.thread.join().unwrap().map(|_| ()).unwrap_err();
        assert_eq!(error.exit_code(), 130, "{error}");
        rows
    }
}

/// Runs a script up to its last statement, a query that is started.
pub(crate) fn query(session: &mut Session, dir: &Path, script: &str) -> Result<QueryHandle, Error> {
    let script = script.replace("{dir}", &dir.to_string_lossy());
    let mut last = None;
    for statement in session.parse("test", &script)? {
        last = Some(session.execute(&statement)?);
    }
    match last {
        Some(Outcome::Query(query)) => Ok(*query),
        _ => panic!("the script does not end in a query"),
    }
}

fn lines(batch: &StreamBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let cells: Vec<_> = batch
        .rows
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
        .collect();
    let line = |row| cells.iter().map(|cell| cell.value(row).to_string()).collect::<Vec<_>>().join(",");
    (0..batch.num_rows()).map(line).collect()
}
