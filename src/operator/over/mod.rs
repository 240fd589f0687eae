//! OVER: values of each row over the rows around it, and the first rows of each partition.
//!
//! [`Computer`](compute) computes the calls of rows that are in order; it is told of [frames](frame)
//! in steps, and keeps what the next rows need. When rows are in order is what the two operators
//! know: by [event time](event_time) as the watermark passes, [at the close](at_close) of a window
//! or of the input, or never, so that values [change](changes) with each row.
//!
//! Invariant: a row's values are a function of the rows that are not late, never of when watermarks
//! came.

mod arrived;
mod at_close;
mod changes;
mod compute;
mod event_time;
mod frame;
mod over_nulls;
#[cfg(test)]
mod tests;

use arrow::datatypes::SchemaRef;

use self::at_close::OverAtClose;
use self::changes::OverChanges;
use self::event_time::OverEventTime;
use super::Operator;
use super::late::LateRows;
use crate::error::Error;
use crate::plan::{OverNode, OverTrigger};

/// The operator of a node.
pub(super) fn create(
    node: &OverNode,
    schema: &SchemaRef,
    input: &SchemaRef,
    late: Option<LateRows>,
) -> Result<Box<dyn Operator>, Error> {
    Ok(match node.trigger {
        OverTrigger::EventTime { time, unit } => {
            Box::new(OverEventTime::try_new(node, (time, unit), schema, input, late)?)
        }
        OverTrigger::WindowClose { .. } | OverTrigger::End => {
            Box::new(OverAtClose::try_new(node, schema, input, late)?)
        }
        OverTrigger::Change => Box::new(OverChanges::try_new(node, schema, input)?),
    })
}
