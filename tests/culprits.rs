//! Jobs on threads that stand still or are slow, asked while they are: the culprit is named in every
//! second of it. Time is that of a clock that the tests move, but for latency, which is the machine's.

#![allow(clippy::unwrap_used, reason = "a test fails where it can no longer go on")]

use std::fs;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{Int64Type, SchemaRef};
use tidegate::Error;
use tidegate::catalog::{Options, Table, TableFacts};
use tidegate::connector::{Connector, Connectors, Filesystem, Memory, ReadRequest, Sink, Source};
use tidegate::runtime::{JobSnapshot, LatencySummary, OperatorSnapshot};
use tidegate::session::{JobHandle, JobStatus, Outcome, Session};
use tidegate::stream::{StreamBatch, VirtualClock};

/// Longer than anything takes that works.
const DEADLINE: Duration = Duration::from_secs(60);
/// 2024-05-01 09:00:00 UTC, milliseconds.
const NINE: i64 = 1_714_554_000_000;

/// What a sink does with a batch.
type Write = dyn FnMut(&StreamBatch) + Send;

/// A sink that does something with each batch.
#[derive(Clone)]
struct Slow(Arc<Mutex<Write>>);

impl Connector for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn check(&self, _table: &Table) -> Result<TableFacts, Error> {
        Ok(TableFacts {
            is_source: false,
            is_sink: true,
            bounded: true,
            takes_changelog: true,
            gives_changelog: false,
            upserts: false,
        })
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Err(Error::internal("test", "the table has columns"))
    }

    fn source(&self, _table: &Table, _request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        Err(Error::internal("test", "the table is written"))
    }

    fn sink(&self, _table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl Sink for Slow {
    fn write(&mut self, batch: &StreamBatch) -> Result<(), Error> {
        (self.0.lock().unwrap())(batch);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn abort(&mut self) {}
}

/// A session with the table `t (v BIGINT, ts TIMESTAMP(3))` fed by the sender, `out (v BIGINT)` that is
/// written by `write`, and a clock.
struct World {
    session: Session,
    clock: Arc<VirtualClock>,
    rows: SyncSender<RecordBatch>,
}

fn batch(v: i64, rows: usize) -> RecordBatch {
    let columns: [(&str, ArrayRef); 2] = [
        ("v", Arc::new(Int64Array::from(vec![v; rows]))),
        ("ts", Arc::new(TimestampMillisecondArray::from(vec![NINE + v * 1_000; rows]))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

impl World {
    fn new(waiting: usize, write: impl FnMut(&StreamBatch) + Send + 'static) -> Self {
        let memory = Memory::new();
        let (rows, receiver) = sync_channel(waiting);
        memory.put_channel("t", batch(0, 1).schema(), receiver);
        let mut connectors = Connectors::empty();
        connectors.add(Arc::new(memory));
        connectors.add(Arc::new(Filesystem));
        connectors.add(Arc::new(Slow(Arc::new(Mutex::new(write)))));
        let mut session = Session::with_connectors(connectors);
        let clock = Arc::new(VirtualClock::new(NINE * 1_000));
        session.set_clock(Arc::clone(&clock) as Arc<_>);
        let mut world = Self { session, clock, rows };
        world.run(
            "SET 'execution.parallelism' = '2';
             CREATE TABLE t (v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'memory');
             CREATE TABLE out (v BIGINT) WITH ('connector' = 'slow');",
        );
        world
    }

    /// Runs a script; the last insert that it starts, and the last text that it gives.
    fn run(&mut self, script: &str) -> (Option<JobHandle>, Option<String>) {
        let (mut insert, mut text) = (None, None);
        for statement in self.session.parse("test", script).unwrap() {
            match self.session.execute(&statement).unwrap_or_else(|error| panic!("{}", error.render())) {
                Outcome::Insert(running) => insert = Some(running),
                Outcome::Text(given) => text = Some(given),
                Outcome::Done(_) | Outcome::Rows(_) => {}
                Outcome::Query(_) => panic!("the query would not be read"),
            }
        }
        (insert, text)
    }

    fn insert(&mut self, sql: &str) -> JobHandle {
        self.run(sql).0.unwrap()
    }

    fn diagnose(&mut self) -> String {
        self.run("DIAGNOSE").1.unwrap()
    }

    fn status(&self) -> JobStatus {
        self.session.jobs().status().pop().unwrap()
    }

    /// Waits until what is known of the job is as wanted. Time stands.
    fn wait(&self, what: &str, is_so: impl Fn(&JobSnapshot) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let snapshot = self.status().snapshot;
            if is_so(&snapshot) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {snapshot:?}");
            std::thread::yield_now();
        }
    }
}

fn operator<'a>(snapshot: &'a JobSnapshot, name: &str) -> &'a OperatorSnapshot {
    snapshot.operators().find(|one| one.name == name).unwrap_or_else(|| panic!("no {name}"))
}

/// B097: while nobody reads what a sink writes, each second shows it, and the sink is named, not the
/// source that suffers.
#[test]
fn a_sink_that_stands_is_named_in_every_second_of_it() {
    let (release, released) = sync_channel::<()>(0);
    let released = Mutex::new(released);
    let (entered, sees) = sync_channel(1);
    let mut world = World::new(64, move |_| {
        let _ = entered.try_send(());
        // The writer stands until the test lets go of the other end.
        let _ = released.lock().unwrap().recv();
    });
    // Two tasks: the one that writes takes from a channel, which fills.
    let insert = world.insert(
        "SET 'execution.batch-rows' = '1024';
         INSERT INTO out SELECT v FROM t UNION ALL SELECT v FROM (VALUES (CAST(-1 AS BIGINT))) AS one (v);",
    );
    for v in 0..32 {
        world.rows.send(batch(v, 1_024)).unwrap();
    }
    sees.recv_timeout(DEADLINE).unwrap();
    let is_full = |snapshot: &JobSnapshot| snapshot.channels.iter().any(|channel| channel.usage() >= 1.0);
    world.wait("the channel is full", is_full);
    for second in 1..=30 {
        world.clock.advance(Duration::from_secs(1));
        let status = world.status();
        for load in &status.diagnosis.operators {
            let shares = [load.busy, load.idle, load.back_pressured];
            assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{load:?}");
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 0.01, "{load:?}");
        }
        if second < 3 {
            continue;
        }
        let load = |name: &str| status.diagnosis.operators.iter().find(|load| load.operator == name).unwrap();
        assert!(load("Sink(out)").busy >= 0.95, "{:?}", load("Sink(out)"));
        assert!(load("Sink(out)").idle <= 0.05);
        let found = status.diagnosis.bottleneck.as_ref().expect("a bottleneck");
        assert_eq!(
            (found.kind.name(), found.operator.as_str()),
            ("slow_sink", "Sink(out)"),
            "second {second}"
        );
        let source = status.diagnosis.operators.iter().filter(|load| load.operator == "Source(t)");
        let waits = source.map(|load| load.back_pressured).fold(0.0, f64::max);
        assert!(waits >= 0.95, "second {second}: {waits}");
    }
    assert!(world.diagnose().starts_with("the sink Sink(out) takes rows more slowly than they come"));
    drop(release);
    drop(world.rows);
    assert!(insert.wait().unwrap().reconciles());
}

/// A split that gives nothing any more is named three seconds later.
#[test]
fn a_quiet_file_is_named_within_three_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let lines = |seconds: std::ops::Range<i64>| -> String {
        seconds
            .map(|s| format!("{{\"v\":{s},\"ts\":\"2024-05-01 09:{:02}:{:02}\"}}\n", s / 60, s % 60))
            .collect()
    };
    fs::write(dir.path().join("a.json"), lines(0..120)).unwrap();
    fs::write(dir.path().join("b.json"), lines(0..10)).unwrap();
    let mut world = World::new(1, |_| {});
    let insert = world.insert(&format!(
        "CREATE TABLE f (v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem',
         'path' = '{}', 'format' = 'json', 'source.monitor-interval' = '10 ms');
         INSERT INTO out SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE f, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
         GROUP BY window_start, window_end;",
        dir.path().display()
    ));
    world.wait("all rows are taken", |snapshot| {
        let source = &snapshot.sources[0];
        let are_quiet = source.splits.iter().all(|split| split.state.name() == "empty");
        let held = operator(snapshot, "WindowAggregate")
            .watermark_in
            .is_some_and(|at| at.0 == (NINE + 9_000) * 1_000);
        source.rows_read == 130 && source.splits.len() == 2 && are_quiet && held
    });
    world.clock.advance(Duration::from_secs(3));
    let text = world.diagnose();
    assert!(text.starts_with("event time of Source(f) stands still: its split"), "{text}");
    assert!(text.contains("b.json\" is empty and holds it"), "{text}");
    let window = world.run("EXPLAIN WINDOW").1.unwrap();
    assert!(
        window.contains("fires at watermark ≥ 2024-05-01 09:00:59.999, now 2024-05-01 09:00:09.000"),
        "{window}"
    );
    assert!(window.contains("short by 50.99") || window.contains("short by 51.00 s"), "{window}");
    insert.stop();
    assert!(insert.wait().is_err());
}

/// Uses the processor for this long.
fn work(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// How long the sink works on a batch.
const BATCH: Duration = Duration::from_millis(2);

/// What a sink sees of the ages of rows.
#[derive(Default)]
struct Ages {
    /// Of each batch, when it had been written.
    written: Vec<Duration>,
    /// Of each batch, when the one behind it came.
    behind: Vec<Duration>,
    last: Option<Instant>,
}

/// Sends batches to a sink that works [`BATCH`] on each. `together`: how many are sent before the first of
/// them is written. How old their rows were, and the summaries of markers and rows at the sink.
fn latencies(batches: usize, together: usize) -> (Ages, LatencySummary, LatencySummary) {
    let ages = Arc::new(Mutex::new(Ages::default()));
    let (written, sees): (SyncSender<i64>, Receiver<i64>) = sync_channel(batches);
    let told = Arc::clone(&ages);
    let mut world = World::new(together, move |batch| {
        let mut ages = told.lock().unwrap();
        if let Some(last) = ages.last.replace(batch.arrived) {
            ages.behind.push(last.elapsed());
        }
        work(BATCH);
        ages.written.push(batch.arrived.elapsed());
        written.send(batch.rows.column(0).as_primitive::<Int64Type>().value(0)).unwrap();
    });
    let insert =
        world.insert("SET 'metrics.latency.interval' = '1 ns'; INSERT INTO out SELECT v + 1 AS v FROM t;");
    for first in (0..batches).step_by(together) {
        for v in first..first + together {
            world.rows.send(batch(v as i64, 1)).unwrap();
        }
        for _ in 0..together {
            sees.recv_timeout(DEADLINE).unwrap();
        }
    }
    drop(world.rows);
    let markers = insert.wait().unwrap().latency.expect("markers");
    let snapshot = world.session.jobs().status().pop().unwrap().snapshot;
    let total = operator(&snapshot, "Sink(out)").times.total.expect("rows");
    let mut ages = std::mem::take(&mut *ages.lock().unwrap());
    ages.behind.extend(ages.last.map(|last| last.elapsed()));
    (ages, markers, total)
}

fn quantile(ages: &[Duration], share: f64) -> Duration {
    let mut ages = ages.to_vec();
    ages.sort_unstable();
    ages[((ages.len() as f64 * share).ceil() as usize).clamp(1, ages.len()) - 1]
}

/// A marker behind each batch comes after the rows that it follows and before those behind them; so do
/// their quantiles, whatever the machine does meanwhile.
#[test]
fn markers_are_as_late_as_the_rows_that_they_follow() {
    let (ages, markers, total) = latencies(60, 10);
    assert_eq!((ages.written.len(), ages.behind.len()), (60, 60));
    assert_eq!((markers.markers, total.markers), (60, 60));
    for (share, marker, rows) in [(0.50, markers.p50_us, total.p50_us), (0.99, markers.p99_us, total.p99_us)]
    {
        let (least, most) = (quantile(&ages.written, share), quantile(&ages.behind, share));
        for measured in [marker, rows].map(Duration::from_micros) {
            // Three digits are kept, of whole microseconds.
            let kept = most / 500 + Duration::from_micros(1);
            assert!(
                measured + kept >= least && measured <= most + kept,
                "at {share}: {measured:?} of {least:?}..{most:?}"
            );
        }
    }
}

/// B095: where nothing queues, latency is that of the sink at the end as at the beginning; where rows
/// queue, it rises with the queue.
#[test]
fn latency_rises_with_the_queue_and_with_nothing_else() {
    let (ages, markers, _) = latencies(100, 1);
    assert!(Duration::from_micros(markers.p50_us) >= BATCH, "markers wait for the sink: {markers:?}");
    let (first, last) = ages.written.split_at(50);
    let difference = quantile(first, 0.5).abs_diff(quantile(last, 0.5));
    assert!(difference < Duration::from_millis(50), "{difference:?} between the beginning and the end");

    let (ages, queued, _) = latencies(40, 40);
    // The last of forty waits for those before it that were read when it was.
    assert!(queued.max_us > markers.p50_us, "{queued:?}, without a queue {markers:?}");
    assert!(ages.written.iter().all(|age| *age >= BATCH), "{:?}", ages.written);
}

/// A source without rows is named.
#[test]
fn a_source_without_rows_is_named() {
    let mut world = World::new(1, |_| {});
    let insert = world.insert("INSERT INTO out SELECT v FROM t;");
    world.rows.send(batch(1, 1)).unwrap();
    world.wait("the row is written and none is left", |snapshot| {
        let split = &snapshot.sources[0].splits[0];
        operator(snapshot, "Sink(out)").rows_in == 1 && split.state.name() == "empty"
    });
    // A look to compare the next one with.
    world.clock.advance(Duration::from_secs(1));
    world.diagnose();
    world.clock.advance(Duration::from_secs(3));
    let text = world.diagnose();
    assert!(text.starts_with("Source(t) has nothing to read: the job waits for rows"), "{text}");
    drop(world.rows);
    assert!(insert.wait().unwrap().reconciles());
}
