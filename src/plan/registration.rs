//! Functions that a program brings along.

use std::sync::Arc;

use datafusion_expr::{AggregateUDF, Expr, ScalarUDF};

use super::Planner;
use super::function::{Registered, is_registered, registry};
use crate::error::{Error, code};

impl Planner {
    /// The planner with another function: row in, value out. It is found whatever the case of its name.
    ///
    /// An error, a panic or a column of the wrong length or type ends the query with `R002` and the
    /// function's name. One that is [`Immutable`](datafusion_expr::Volatility) may be called while a
    /// statement is planned.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow::datatypes::DataType;
    /// use datafusion_expr::{ColumnarValue, Volatility, create_udf};
    /// use tidegate::{Planner, catalog::Catalog};
    ///
    /// let same = create_udf(
    ///     "same",
    ///     vec![DataType::Int64],
    ///     DataType::Int64,
    ///     Volatility::Immutable,
    ///     Arc::new(|args: &[ColumnarValue]| Ok(args[0].clone())),
    /// );
    /// let planner = Planner::default().with_udf(same.clone())?;
    /// planner.plan("SELECT same(1 + 1)", &Catalog::new())?;
    /// assert_eq!(planner.with_udf(same).unwrap_err().code(), "C005");
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// `C005` if there is a function of that name, `P002` for an asynchronous one.
    pub fn with_udf(self, function: ScalarUDF) -> Result<Self, Error> {
        self.with_registered(Registered::scalar(function)?)
    }

    /// The planner with another aggregate: rows in, value out, in every kind of window and in OVER.
    ///
    /// It gets the rows of a group in the order of their arrival, and the same rows at a time however
    /// the input was cut into batches; so its own `GroupsAccumulator` is not used. `DISTINCT` and
    /// `ORDER BY` among its arguments are refused.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use arrow::array::{ArrayRef, AsArray};
    /// # use arrow::datatypes::{DataType, Int64Type};
    /// # use datafusion_common::{Result, ScalarValue};
    /// use datafusion_expr::{Accumulator, Volatility, create_udaf};
    /// use tidegate::{Planner, catalog::Catalog};
    ///
    /// # #[derive(Debug, Default)]
    /// # struct Rows(i64);
    /// # impl Accumulator for Rows {
    /// #     fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
    /// #         self.0 += values[0].len() as i64;
    /// #         Ok(())
    /// #     }
    /// #     fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
    /// #         self.0 += states[0].as_primitive::<Int64Type>().values().iter().sum::<i64>();
    /// #         Ok(())
    /// #     }
    /// #     fn state(&mut self) -> Result<Vec<ScalarValue>> { Ok(vec![self.evaluate()?]) }
    /// #     fn evaluate(&mut self) -> Result<ScalarValue> { Ok(ScalarValue::from(self.0)) }
    /// #     fn size(&self) -> usize { size_of_val(self) }
    /// # }
    /// let rows = create_udaf(
    ///     "rows",
    ///     vec![DataType::Int64],
    ///     Arc::new(DataType::Int64),
    ///     Volatility::Immutable,
    ///     Arc::new(|_| Ok(Box::<Rows>::default())),
    ///     Arc::new(vec![DataType::Int64]),
    /// );
    /// let planner = Planner::default().with_udaf(rows)?;
    /// planner.plan("SELECT rows(v) FROM (VALUES (1), (2)) AS t (v)", &Catalog::new())?;
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// `C005` if there is a function of that name.
    pub fn with_udaf(self, function: AggregateUDF) -> Result<Self, Error> {
        self.with_registered(Registered::aggregate(function))
    }

    fn with_registered(mut self, function: Registered) -> Result<Self, Error> {
        self.registered.push(function);
        let mut functions = registry(&self.time_zone);
        self.registered.iter().try_for_each(|function| functions.add(function))?;
        self.functions = Arc::new(functions);
        Ok(self)
    }
}

/// Refuses what an aggregate of a program would not hear of.
pub(super) fn check_call(expr: &Expr) -> Result<(), Error> {
    let Expr::AggregateFunction(call) = expr.clone().unalias() else { return Ok(()) };
    if !is_registered(&call.func) {
        return Ok(());
    }
    let what = match (call.params.distinct, call.params.order_by.is_empty()) {
        (true, _) => "DISTINCT",
        (false, false) => "ORDER BY",
        (false, true) => return Ok(()),
    };
    let message =
        format!("{what} in the call of \"{}\", which this program has registered", call.func.name());
    Err(Error::plan(code::NOT_SUPPORTED, message)
        .hint(format!("Leave {what} out; it sees each row, in the order of arrival.")))
}
