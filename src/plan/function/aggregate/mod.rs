//! Aggregate functions that DataFusion lacks, or answers in a way that we can't stand by.
//!
//! * `sum`, `avg`: exact; an overflow is an error, never another number (`exact_*`).
//! * `min`, `max` of floats: one total order, NaN above everything (`float_extreme`).
//! * `first_value`, `last_value`: by arrival, NULLs ignored, as in Flink (`arrival`).
//! * `var`, `stddev` and their kin: a state that is taken up is the same (`variance`).
//! * `single_value`: what a subquery in an expression gives (`single`).
//! * `string_agg`, `listagg`, `approx_distinct`: DataFusion's with the types of our SQL (`retyped`).
//!
//! Invariant: the state of every accumulator merges in order, and merging loses nothing.

mod arrival;
mod exact_groups;
mod exact_sum;
mod exact_udaf;
mod float_extreme;
mod retyped;
mod single;
#[cfg(test)]
mod tests;
mod variance;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_expr::AggregateUDF;
use datafusion_functions_aggregate as default;

use arrival::Arrival;
use exact_udaf::ExactUdaf;
use float_extreme::FloatExtreme;
use retyped::Retyped;
use variance::Variance;

/// Those of all names that DataFusion has for them.
pub(super) fn of_more_names() -> impl Iterator<Item = (String, Arc<AggregateUDF>)> {
    Variance::all().into_iter().flat_map(Variance::names)
}

/// Our aggregates and the further names of DataFusion's, by lower-case name.
pub(super) fn all() -> Vec<(&'static str, Arc<AggregateUDF>)> {
    let avg = Arc::new(AggregateUDF::from(ExactUdaf::avg()));
    let text =
        Arc::new(AggregateUDF::from(Retyped::new(default::string_agg::string_agg_udaf(), DataType::Utf8)));
    let approx_distinct = Arc::new(AggregateUDF::from(Retyped::new(
        default::approx_distinct::approx_distinct_udaf(),
        DataType::Int64,
    )));
    vec![
        ("sum", Arc::new(AggregateUDF::from(ExactUdaf::sum()))),
        ("avg", Arc::clone(&avg)),
        ("mean", avg),
        ("min", Arc::new(AggregateUDF::from(FloatExtreme::min()))),
        ("max", Arc::new(AggregateUDF::from(FloatExtreme::max()))),
        ("first_value", Arc::new(AggregateUDF::from(Arrival::first(true)))),
        ("last_value", Arc::new(AggregateUDF::from(Arrival::last(true)))),
        (arrival::FIRST_RESPECTING_NULLS, Arc::new(AggregateUDF::from(Arrival::first(false)))),
        (arrival::LAST_RESPECTING_NULLS, Arc::new(AggregateUDF::from(Arrival::last(false)))),
        ("string_agg", Arc::clone(&text)),
        ("listagg", text),
        ("approx_distinct", Arc::clone(&approx_distinct)),
        ("approx_count_distinct", approx_distinct),
        ("percentile", default::percentile_cont::percentile_cont_udaf()),
    ]
}

#[cfg(feature = "runtime")]
pub(crate) use exact_groups::finished_sums;
#[cfg(feature = "runtime")]
pub(crate) use exact_sum::{ExactSum, Finish, Finished};

pub(super) use arrival::{FIRST_RESPECTING_NULLS, LAST_RESPECTING_NULLS};
pub(in crate::plan) use single::single_value;
