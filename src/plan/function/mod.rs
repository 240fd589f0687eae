//! SQL functions: DataFusion's, with Flink's where Flink has the name and means something else.
//!
//! Invariant: nothing is planned here; functions are vectorised over Arrow arrays and know no
//! table. The wall clock is read in `now.rs` only, when a batch is evaluated, never at planning.

mod aggregate;
mod digest;
mod math;
mod nested;
mod null;
mod regex;
mod registered;
mod rewrite;
mod scalar;
mod string;
#[cfg(test)]
mod tests;
mod time;
mod window;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_expr::planner::ExprPlanner;
use datafusion_expr::{AggregateUDF, Expr, ScalarUDF, WindowUDF, cast};

pub(in crate::plan) use aggregate::single_value;
#[cfg(feature = "runtime")]
pub(crate) use aggregate::{ExactSum, Finish, Finished, finished_sums};
pub(in crate::plan) use registered::Registered;
pub(crate) use registered::is_registered;
pub(crate) use rewrite::rewrite_expr;
pub(crate) use time::LATENCY;

/// Every function that a query can call, by lower-case name.
pub(crate) struct FunctionRegistry {
    /// Row in, value out.
    pub(crate) scalars: HashMap<String, Arc<ScalarUDF>>,
    /// Rows of a group in, value out.
    pub(crate) aggregates: HashMap<String, Arc<AggregateUDF>>,
    /// Functions of OVER windows that are no aggregates.
    pub(crate) windows: HashMap<String, Arc<WindowUDF>>,
    /// What plans operators, literals and special forms into functions.
    pub(crate) expr_planners: Vec<Arc<dyn ExprPlanner>>,
}

impl FunctionRegistry {
    /// `expr` as a value of type `to`, by the rules of CAST: timestamps are rounded down, also
    /// before 1970, where Arrow's own cast rounds towards zero.
    pub(crate) fn cast(&self, expr: Expr, from: &DataType, to: &DataType) -> Expr {
        let (DataType::Timestamp(..), DataType::Timestamp(unit, zone)) = (from, to) else {
            return cast(expr, to.clone());
        };
        let names = if zone.is_some() { time::CAST_TIMESTAMP_LTZ } else { time::CAST_TIMESTAMP };
        let name = match unit {
            TimeUnit::Second | TimeUnit::Millisecond => names[0],
            TimeUnit::Microsecond => names[1],
            TimeUnit::Nanosecond => names[2],
        };
        let rounded = match self.scalars.get(name) {
            Some(function) => function.call(vec![expr]),
            None => expr,
        };
        // Nothing is left to do but for the name of another zone.
        cast(rounded, to.clone())
    }
}

/// All functions; `zone` is the session's time zone, for functions that make `TIMESTAMP_LTZ` values.
pub(crate) fn registry(zone: &str) -> FunctionRegistry {
    let mut scalars = HashMap::new();
    let mut add = |function: Arc<ScalarUDF>| {
        for alias in function.aliases() {
            scalars.insert(alias.to_lowercase(), Arc::clone(&function));
        }
        scalars.insert(function.name().to_lowercase(), function);
    };
    datafusion_functions::all_default_functions().into_iter().for_each(&mut add);
    datafusion_functions_nested::all_default_nested_functions().into_iter().for_each(&mut add);
    for functions in
        [string::all(), regex::all(), null::all(), math::all(), nested::all(), digest::all(), time::all(zone)]
    {
        scalars.extend(functions.into_iter().map(|(name, function)| (name.to_owned(), function)));
    }

    scalars.insert(super::as_of::AS_OF.to_owned(), super::as_of::function());
    // Of a type that no table can have, and of files that are read by DataFusion.
    for name in ["union_extract", "union_tag", "input_file_name", "file_row_index"] {
        scalars.remove(name);
    }

    let mut aggregates = HashMap::new();
    let mut add = |function: Arc<AggregateUDF>| {
        for alias in function.aliases() {
            aggregates.insert(alias.to_lowercase(), Arc::clone(&function));
        }
        aggregates.insert(function.name().to_lowercase(), function);
    };
    datafusion_functions_aggregate::all_default_aggregate_functions().into_iter().for_each(&mut add);
    aggregates.extend(aggregate::of_more_names());
    aggregates.extend(aggregate::all().into_iter().map(|(name, function)| (name.to_owned(), function)));

    let mut windows = HashMap::new();
    for function in datafusion_functions_window::all_default_window_functions() {
        for alias in function.aliases() {
            windows.insert(alias.to_lowercase(), Arc::clone(&function));
        }
        windows.insert(function.name().to_lowercase(), function);
    }
    windows.extend(window::all().into_iter().map(|(name, function)| (name.to_owned(), function)));
    FunctionRegistry { scalars, aggregates, windows, expr_planners: expr_planners() }
}

fn expr_planners() -> Vec<Arc<dyn ExprPlanner>> {
    vec![
        Arc::new(datafusion_functions::core::planner::CoreFunctionPlanner::default()),
        Arc::new(datafusion_functions_nested::planner::NestedFunctionPlanner),
        Arc::new(datafusion_functions_nested::planner::FieldAccessPlanner),
        Arc::new(datafusion_functions::datetime::planner::DatetimeFunctionPlanner),
        Arc::new(datafusion_functions::unicode::planner::UnicodeFunctionPlanner),
        Arc::new(datafusion_functions_aggregate::planner::AggregateFunctionPlanner),
        Arc::new(datafusion_functions_window::planner::WindowFunctionPlanner),
    ]
}
