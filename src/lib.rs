//! Tidegate: streaming SQL by event time.
//!
//! The modules, in the order data flows:
//!
//! * [`error`]: what every layer fails with: a code, a place in the SQL, a way out.
//! * [`stream`]: what travels between operators: batches, watermarks, markers.
//! * [`catalog`]: tables, views and their options.
//! * [`sql`]: text to statements.
//! * [`plan`]: statements to a [`plan::StreamPlan`], the planner as a library.
//! * `operator`: synchronous state machines over Arrow batches (feature `runtime`).
//! * `connector`: the ways in and out (feature `runtime`).
//! * `runtime`: tasks, channels, metrics (feature `runtime`).
//! * `session`: catalog, settings and jobs behind one door (feature `runtime`).
//! * `testing`: test files, streaming SQL on a virtual clock (feature `runtime`).

pub mod catalog;
pub mod error;
pub mod plan;
pub mod sql;
pub mod stream;

#[cfg(feature = "runtime")]
pub mod connector;
#[cfg(feature = "runtime")]
pub mod operator;
#[cfg(feature = "runtime")]
pub mod runtime;
#[cfg(feature = "runtime")]
pub mod session;
#[cfg(feature = "runtime")]
pub mod testing;

#[cfg(feature = "cli")]
pub mod cli;

pub use error::Error;
pub use plan::Planner;
#[cfg(feature = "runtime")]
pub use session::Session;
