//! What makes the result of an aggregate depend on more than its rows.

use datafusion_common::DFSchema;
use datafusion_expr::{Expr, ExprSchemable};

/// What an aggregate's result depends on beyond its set of rows.
pub(super) struct Dependence {
    /// On the order in which rows arrive.
    pub(super) order_sensitive: bool,
    /// On how rows were split into partial states.
    pub(super) inexact: bool,
}

/// The dependence of an aggregate call over the columns of `schema`; an unknown function depends on
/// the order.
pub(super) fn dependence(expr: &Expr, schema: &DFSchema) -> Dependence {
    let Expr::AggregateFunction(call) = without_alias(expr) else {
        return Dependence { order_sensitive: true, inexact: true };
    };
    let exact = [
        "count",
        "sum",
        "min",
        "max",
        "avg",
        "bool_and",
        "bool_or",
        "bit_and",
        "bit_or",
        "bit_xor",
        "grouping",
        "approx_distinct",
        "median",
        "percentile_cont",
        "single_value",
    ];
    let statistics = [
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "var",
        "var_pop",
        "var_samp",
        "var_population",
        "var_sample",
        "corr",
        "covar_pop",
        "covar_samp",
        "approx_median",
        "approx_percentile_cont",
        "approx_percentile_cont_with_weight",
    ];
    let name = call.func.name().to_lowercase();
    let statistic = statistics.contains(&name.as_str()) || name.starts_with("regr_");
    let adds_up = matches!(name.as_str(), "sum" | "avg");
    let floats = call.params.args.iter().any(|arg| arg.get_type(schema).is_ok_and(|kind| kind.is_floating()));
    Dependence {
        order_sensitive: !statistic && !exact.contains(&name.as_str()),
        inexact: statistic || (adds_up && floats),
    }
}

fn without_alias(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => without_alias(&alias.expr),
        other => other,
    }
}
