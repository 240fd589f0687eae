//! Plans a query and shows what each operator's stream promises. No thread, no file and no clock is touched:
//! `cargo run --example plan --no-default-features` builds the planner alone.

#![allow(clippy::print_stdout)]

use tidegate::catalog::Catalog;
use tidegate::plan::Operation;
use tidegate::{Error, Planner};

const TABLES: &str = "
    CREATE TABLE bids (
        item STRING, price INT, ts TIMESTAMP(3),
        WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
    ) WITH ('connector' = 'kafka', 'topic' = 'bids');";

fn main() -> Result<(), Error> {
    let planner = Planner::default();
    let mut catalog = Catalog::new();
    planner.define(TABLES, &mut catalog)?;
    let plan = planner.plan(
        "SELECT window_start, item, MAX(price) AS highest
         FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTE))
         GROUP BY window_start, window_end, item",
        &catalog,
    )?;
    println!("{}", plan.explain());
    let windows = plan.nodes.iter().filter(|node| matches!(node.operation, Operation::WindowAggregate(_)));
    println!("{} operators, {} of them aggregate windows", plan.nodes.len(), windows.count());

    let wrong = planner.plan("SELECT item, COUNT(*) FROM bid GROUP BY item", &catalog);
    if let Err(error) = wrong {
        println!("\n{}", error.render());
    }
    Ok(())
}
