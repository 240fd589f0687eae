//! Views that keep the last row of each key: their rows are versions.

use datafusion_expr::logical_plan::Window;
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{Expr, LogicalPlan};

use super::lower::{counts_rows, plain_column, ranked, upper_bound};

/// `ROW_NUMBER() OVER (PARTITION BY key ORDER BY time DESC) = 1`, with projections and further conditions above.
pub(super) struct Latest<'a> {
    window: &'a Window,
    /// For each column of the plan the one of the window's input that it is.
    columns: Vec<Option<usize>>,
}

impl Latest<'_> {
    /// The plan's column with the time from which a row is the last one.
    pub(super) fn time(&self) -> Option<usize> {
        let [order] = self.params()?.order_by.as_slice() else { return None };
        let time = plain_column(&order.expr, self.window.input.schema()).filter(|_| !order.asc)?;
        self.columns.iter().position(|column| *column == Some(time))
    }

    /// Whether these columns of the plan are the key.
    pub(super) fn is_key(&self, columns: &[Option<usize>]) -> bool {
        let Some(params) = self.params() else { return false };
        let mut given: Vec<_> = columns.iter().map(|column| column.and_then(|at| self.columns[at])).collect();
        let schema = self.window.input.schema();
        let mut key: Vec<_> = params.partition_by.iter().map(|expr| plain_column(expr, schema)).collect();
        given.sort_unstable();
        given.dedup();
        key.sort_unstable();
        key.dedup();
        !key.contains(&None) && given == key
    }

    fn params(&self) -> Option<&datafusion_expr::expr::WindowFunctionParams> {
        match self.window.window_expr.as_slice() {
            [Expr::WindowFunction(call)] => Some(&call.params),
            [Expr::Alias(alias)] => match alias.expr.as_ref() {
                Expr::WindowFunction(call) => Some(&call.params),
                _ => None,
            },
            _ => None,
        }
    }
}

/// How a plan keeps the last row of each key; `None`: it does something else.
pub(super) fn latest(plan: &LogicalPlan) -> Option<Latest<'_>> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => latest(&alias.input),
        LogicalPlan::Projection(projection) => {
            let below = latest(&projection.input)?;
            let origin = |expr| below.columns[plain_column(expr, projection.input.schema())?];
            let columns = projection.expr.iter().map(origin).collect();
            Some(Latest { window: below.window, columns })
        }
        LogicalPlan::Filter(filter) => {
            let is_first = |term: &Expr| {
                let (column, most, is_all) = upper_bound(term)?;
                let column = plain_column(column, filter.input.schema())?;
                let (window, call) = ranked(&filter.input, column)?;
                let call = window.window_expr.get(call)?;
                Some(most == 1 && is_all && counts_rows(call) && is_row_number(call))
            };
            match split_conjunction(&filter.predicate).into_iter().any(|term| is_first(term) == Some(true)) {
                true => origins(&filter.input),
                false => latest(&filter.input),
            }
        }
        _ => None,
    }
}

fn is_row_number(call: &Expr) -> bool {
    match call {
        Expr::Alias(alias) => is_row_number(&alias.expr),
        Expr::WindowFunction(call) => call.fun.name().eq_ignore_ascii_case("row_number"),
        _ => false,
    }
}

/// Where columns are from, if nothing but names stands above an OVER.
fn origins(plan: &LogicalPlan) -> Option<Latest<'_>> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => origins(&alias.input),
        LogicalPlan::Projection(projection) => {
            let below = origins(&projection.input)?;
            let origin = |expr| below.columns[plain_column(expr, projection.input.schema())?];
            let columns = projection.expr.iter().map(origin).collect();
            Some(Latest { window: below.window, columns })
        }
        LogicalPlan::Window(window) => {
            let width = window.input.schema().fields().len();
            let all = window.schema.fields().len();
            let columns = (0..all).map(|column| (column < width).then_some(column)).collect();
            Some(Latest { window, columns })
        }
        _ => None,
    }
}
