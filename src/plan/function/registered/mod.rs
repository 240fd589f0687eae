//! Functions that a program brings along, made safe to call: a panic, a column of the wrong length or
//! type and a faulty state are errors that name the function, and never take the process with them.

mod aggregate;
mod scalar;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::{AggregateUDF, ScalarUDF};

use self::aggregate::GuardedAggregate;
use self::scalar::GuardedScalar;
use super::FunctionRegistry;
use crate::error::{self, Error, code};
use crate::plan::sql_type_name;

/// A function that a program has registered.
#[derive(Debug, Clone)]
pub(in crate::plan) enum Registered {
    Scalar(Arc<ScalarUDF>),
    Aggregate(Arc<AggregateUDF>),
}

impl Registered {
    /// Guards a scalar function.
    ///
    /// # Errors
    /// `P002` for an asynchronous one.
    pub(in crate::plan) fn scalar(function: ScalarUDF) -> std::result::Result<Self, Error> {
        if function.as_async().is_some() {
            let message = format!("the function \"{}\" is asynchronous", function.name());
            return Err(Error::plan(code::NOT_SUPPORTED, message)
                .hint("Register a function that computes its values when it is called."));
        }
        let guarded = GuardedScalar::new(Arc::new(function));
        Ok(Self::Scalar(Arc::new(ScalarUDF::new_from_impl(guarded))))
    }

    /// Guards an aggregate function.
    pub(in crate::plan) fn aggregate(function: AggregateUDF) -> Self {
        Self::Aggregate(Arc::new(AggregateUDF::new_from_impl(GuardedAggregate::new(Arc::new(function)))))
    }

    /// Its names, in lower case.
    fn names(&self) -> Vec<String> {
        let (name, aliases) = match self {
            Self::Scalar(function) => (function.name(), function.aliases()),
            Self::Aggregate(function) => (function.name(), function.aliases()),
        };
        let names = std::iter::once(name).chain(aliases.iter().map(String::as_str));
        names.map(str::to_lowercase).collect()
    }
}

/// Words that mean something else where a function may stand.
const RESERVED: [&str; 6] = ["tumble", "hop", "cumulate", "session", "proctime", "unnest"];

impl FunctionRegistry {
    /// Adds a function under all of its names.
    ///
    /// # Errors
    /// `C005` if one of them is taken, `P003` if one can't be called.
    pub(in crate::plan) fn add(&mut self, function: &Registered) -> std::result::Result<(), Error> {
        let names = function.names();
        names.iter().try_for_each(|name| self.check_name(name))?;
        for name in names {
            match function {
                Registered::Scalar(scalar) => drop(self.scalars.insert(name, Arc::clone(scalar))),
                Registered::Aggregate(aggregate) => drop(self.aggregates.insert(name, Arc::clone(aggregate))),
            }
        }
        Ok(())
    }

    fn check_name(&self, name: &str) -> std::result::Result<(), Error> {
        let is_of_window = RESERVED[..4].iter().any(|window| {
            let rest = name.strip_prefix(window);
            rest.is_some_and(|rest| matches!(rest, "_start" | "_end" | "_rowtime" | "_proctime"))
        });
        if is_of_window
            || RESERVED.contains(&name)
            || self.scalars.contains_key(name)
            || self.aggregates.contains_key(name)
            || self.windows.contains_key(name)
        {
            return Err(Error::plan(code::ALREADY_EXISTS, format!("there is a function \"{name}\" already"))
                .hint("Choose another name: functions can't be replaced."));
        }
        if name.is_empty() || name.starts_with("__") {
            return Err(Error::plan(code::INVALID_QUERY, format!("\"{name}\" is no name for a function"))
                .hint("Choose a name that starts with a letter."));
        }
        Ok(())
    }
}

/// Whether an aggregate was registered by a program.
pub(crate) fn is_registered(function: &AggregateUDF) -> bool {
    function.inner().is::<GuardedAggregate>()
}

/// Calls code of a program; a panic in it becomes an error.
fn guarded<T>(name: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = error::panic_text(panic.as_ref());
        let hint = "Return an error from the function where it can't compute a value.";
        Err(fault(name, &format!("panicked: {text}"), hint))
    })
}

/// What a function did wrong.
fn fault(name: &str, what: &str, hint: &str) -> DataFusionError {
    let error = Error::run(code::EVALUATION, format!("the function \"{name}\" {what}")).hint(hint);
    DataFusionError::External(Box::new(error))
}

/// An error unless a function gave what it had said that it would.
fn check_type(name: &str, what: &str, given: &DataType, promised: &DataType) -> Result<()> {
    if given == promised {
        return Ok(());
    }
    let (given, promised) = (sql_type_name(given), sql_type_name(promised));
    let hint = "Return what its return type or state fields say.";
    Err(fault(name, &format!("gave {what} of type {given} instead of {promised}"), hint))
}
