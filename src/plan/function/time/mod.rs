//! Date and time functions. Instants (`TIMESTAMP_LTZ`) are read by the zone of their Arrow type.
//!
//! Invariant: years 0001 to 9999 and times before 1970 are ordinary values; division is floored.

mod add;
mod convert;
mod now;
mod part;
mod pattern;
mod round;
mod text;
mod wall_clock;

use std::sync::Arc;

use datafusion_expr::ScalarUDF;

pub(super) use add::{TIMESTAMP_ADD, TIMESTAMP_DIFF};
pub(super) use convert::{CAST_TEXT, CAST_TIMESTAMP, CAST_TIMESTAMP_LTZ};
pub(crate) use now::LATENCY;
pub(super) use round::{CEIL_TO, FLOOR_TO};

/// The functions with their names; `zone` is the session's time zone.
pub(super) fn all(zone: &str) -> Vec<(&'static str, Arc<ScalarUDF>)> {
    let mut functions = part::all();
    functions.extend(round::all());
    functions.extend(add::all());
    functions.extend(now::all(zone));
    functions.extend(text::all(zone));
    functions.extend(convert::all(zone));
    functions
}
