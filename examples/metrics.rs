//! A job that does not end by itself: it is looked at while it runs, drained, and summed up.

#![allow(clippy::print_stdout)]

use std::thread;
use std::time::Duration;

use tidegate::{Outcome, Session};

const SCRIPT: &str = "
    CREATE TABLE readings (
        sensor INT, ts AS PROCTIME()
    ) WITH (
        'connector' = 'datagen', 'rows-per-second' = '20000',
        'fields.sensor.min' = '0', 'fields.sensor.max' = '9'
    );
    CREATE TABLE per_second (sensor INT, n BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO per_second
        SELECT sensor, COUNT(*) AS n
        FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '0.1' SECOND))
        GROUP BY sensor, window_start, window_end;";

fn main() -> Result<(), tidegate::Error> {
    let mut session = Session::new();
    for outcome in session.run(SCRIPT)? {
        let Outcome::Insert(job) = outcome else { continue };
        println!("job {} writes {:?}, ends by itself: {}", job.number(), job.tables(), job.is_bounded());
        // Taking a snapshot makes no task wait.
        let mut seen = 0;
        while seen < 5_000 {
            thread::sleep(Duration::from_millis(20));
            let now = job.metrics();
            seen = now.sources.iter().map(|source| source.rows_read).sum();
            for task in &now.tasks {
                let name = &task.name;
                println!("{seen} rows read; {name} is busy for {} of {} µs", task.busy_us, task.total_us);
            }
        }
        job.drain();
        let summary = job.wait()?;
        println!("{}: every row is accounted for: {}", job.state().name(), summary.reconciles());
    }
    Ok(())
}
