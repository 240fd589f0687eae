//! What an interval join keeps: as much as its bound holds, however many rows have gone through.
//!
//! `cargo bench --bench interval_state [-- MILLIONS…]`: bids are joined with auctions opened at most ten minutes
//! before, over 1, 5 and 10 million events of Nexmark, 500 of them in a second of event time; then the largest
//! number again with bounds of half and twice as long. Each in a process of its own. Prints the most rows and bytes
//! that the join said it kept, the rows of ten minutes, and the peak memory of the process.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

mod process;

use std::fmt::Display;
use std::process::Command;
use std::time::Instant;

use process::{cpu_seconds, peak_mb};
use tidegate::Error;
use tidegate::runtime::JobSnapshot;
use tidegate::session::{Outcome, Session};

const EVENTS_PER_SECOND: u64 = 500;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let number = |text: &String| text.parse::<u64>().map_err(|_| failed(format!("\"{text}\" is no number")));
    if let [events, minutes, word] = arguments.as_slice()
        && word == "measure"
    {
        return measure(number(events)?, number(minutes)?);
    }
    let mut millions = arguments.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    if millions.is_empty() {
        millions = vec![1, 5, 10];
    }
    let most = millions.iter().copied().max().unwrap_or(1);
    let runs = millions.iter().map(|millions| (*millions, 10)).chain([(most, 5), (most, 20)]);
    println!(
        "{:>10} {:>6} {:>13} {:>10} {:>11} {:>9} {:>8} {:>8} {:>8}",
        "events", "bound", "rows in bound", "rows kept", "bytes kept", "pairs", "wall s", "CPU s", "peak MB"
    );
    for (millions, minutes) in runs {
        let program = std::env::current_exe().map_err(failed)?;
        let arguments = [(millions * 1_000_000).to_string(), minutes.to_string(), "measure".to_owned()];
        if !Command::new(program).args(arguments).status().is_ok_and(|status| status.success()) {
            return Err(failed("the measured process failed"));
        }
    }
    Ok(())
}

fn failed(why: impl Display) -> Error {
    Error::internal("bench", why)
}

/// The tables and the join.
fn script(events: u64, minutes: u64) -> String {
    let table = |name: &str, columns: &str| {
        format!(
            "CREATE TABLE {name} ({columns}, `dateTime` TIMESTAMP(3), \
             WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND) WITH ('connector' = 'nexmark', \
             'table' = '{name}', 'events.num' = '{events}', 'first-event.rate' = '{EVENTS_PER_SECOND}', \
             'max-disorder' = '500 ms');\n"
        )
    };
    format!(
        "{}{}SELECT A.id, A.seller, B.bidder, B.price FROM auction A JOIN bid B ON A.id = B.auction \
         AND B.`dateTime` BETWEEN A.`dateTime` AND A.`dateTime` + INTERVAL '{minutes}' MINUTE;",
        table("auction", "id BIGINT, seller BIGINT"),
        table("bid", "auction BIGINT, bidder BIGINT, price BIGINT"),
    )
}

/// Runs the join in this process and looks at what it keeps.
fn measure(events: u64, minutes: u64) -> Result<(), Error> {
    let mut session = Session::new();
    session.set("execution.parallelism", "1")?;
    let started = Instant::now();
    for statement in session.parse("interval_state", &script(events, minutes))? {
        let Outcome::Query(mut query) = session.execute(&statement)? else { continue };
        let job = query.job().clone();
        let (mut pairs, mut kept, mut looks) = (0, (0, 0), 0_u64);
        while let Some(batch) = query.next_batch()? {
            pairs += batch.num_rows();
            looks += 1;
            if looks.is_multiple_of(16) {
                let (rows, bytes) = state(&job.metrics());
                kept = (kept.0.max(rows), kept.1.max(bytes));
            }
        }
        let summary = query.finish()?;
        assert!(summary.reconciles() && summary.late == 0, "rows were lost");
        println!(
            "{events:>10} {:>6} {:>13} {:>10} {:>11} {pairs:>9} {:>8.2} {:>8.2} {:>8}",
            format!("{minutes} min"),
            EVENTS_PER_SECOND * 60 * minutes,
            kept.0,
            kept.1,
            started.elapsed().as_secs_f64(),
            cpu_seconds(),
            peak_mb(),
        );
    }
    Ok(())
}

/// Rows and bytes that the join keeps.
fn state(snapshot: &JobSnapshot) -> (usize, usize) {
    let operators = snapshot.tasks.iter().flat_map(|task| &task.operators);
    let joins = operators.filter(|operator| operator.name == "IntervalJoin");
    joins.fold((0, 0), |sum, join| (sum.0 + join.state.rows, sum.1 + join.state.bytes))
}
