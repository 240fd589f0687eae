//! Tidegate: streaming SQL by event time. Rows go in, windows come out, late rows are kept.
//!
#![cfg_attr(feature = "runtime", doc = "```")]
#![cfg_attr(not(feature = "runtime"), doc = "```ignore")]
//! use std::sync::Arc;
//! use tidegate::arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
//! use tidegate::{Session, connector::StreamTable};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1_000, 90_000, 62_000]));
//!     let prices: ArrayRef = Arc::new(Int64Array::from(vec![5, 7, 6]));
//!     let bids = RecordBatch::try_from_iter([("ts", times), ("price", prices)])?;
//!     let mut session = Session::new();
//!     let table = StreamTable::new("bids", bids.schema()).watermark("ts", "ts - INTERVAL '5' SECOND");
//!     let input = session.register_stream(&table)?;
//!     let windows = session.query(
//!         "SELECT window_start, SUM(price) AS total
//!          FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
//!          GROUP BY window_start, window_end")?;
//!     input.push(&bids)?;
//!     drop(input); // the end of the stream
//!     let rows = windows.into_iter().map(|batch| batch.map(|batch| batch.num_rows()));
//!     assert_eq!(rows.sum::<Result<usize, _>>()?, 2);
//!     Ok(())
//! }
//! ```
//!
//! # Where to begin
//!
//! * `Session` (feature `runtime`): tables, settings and jobs behind one door. `query` gives rows as a
//!   blocking iterator and as a stream for any executor, `run` takes scripts, `register_stream` tables that
//!   the program feeds, `register_udf` and `register_udaf` functions, `register_connector` and
//!   `register_format` ways in and out of its own. `JobHandle` has metrics, `stop` and `drain`.
//! * [`Planner`]: SQL in, plans out, without threads, files or clocks. All that is there without features.
//! * [`Error`]: what everything fails with: a stable code, a message, a place in the SQL, a way out.
//!
//! # The modules, in the order data flows
//!
//! * [`error`]: what every layer fails with.
//! * [`stream`]: what travels between operators: batches, row kinds, watermarks.
//! * [`catalog`]: tables, views and their options.
//! * [`sql`]: text to statements.
//! * [`plan`]: statements to a [`plan::StreamPlan`].
//! * `connector`: the ways in and out, and the traits for further ones (feature `runtime`).
//! * `runtime`: what is known of jobs: metrics, diagnoses, summaries (feature `runtime`).
//! * `session`: catalog, settings and jobs (feature `runtime`).
//! * `testing`: test files, streaming SQL on a virtual clock (feature `runtime`).
//!
//! Types of Arrow and DataFusion appear in the API; they are re-exported in the versions that fit.

pub mod catalog;
pub mod error;
pub mod plan;
pub mod sql;
pub mod stream;

#[cfg(feature = "runtime")]
pub mod connector;
#[cfg(feature = "runtime")]
#[doc(hidden)]
pub mod operator;
#[cfg(feature = "runtime")]
pub mod runtime;
#[cfg(feature = "runtime")]
pub mod session;
#[cfg(feature = "runtime")]
pub mod testing;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;

pub use error::Error;
pub use plan::Planner;
#[cfg(feature = "runtime")]
pub use session::{JobHandle, Outcome, QueryHandle, Session};

pub use arrow;
pub use datafusion_common;
pub use datafusion_expr;
pub use sqlparser;

/// The programs of the page on embedding run as tests.
#[cfg(all(doctest, feature = "runtime"))]
#[doc = include_str!("../docs/embed.md")]
mod embed {}
