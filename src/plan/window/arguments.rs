//! The arguments of a window call: by place, by name, checked.

use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::planner::RelationPlannerContext;
use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Spanned};

use super::WindowFunction;
use crate::error::{Error, Span, code, did_you_mean};
use crate::plan::diagnose::{from_datafusion, from_sql_span};
use crate::plan::window_text::duration;

/// The arguments of a call, each at most once.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) data: Option<Expr>,
    pub(super) time: Option<Expr>,
    pub(super) zone: Option<Expr>,
    intervals: Vec<(&'static str, Expr)>,
}

impl Arguments {
    /// Gives each argument its name.
    pub(super) fn read(
        function: WindowFunction,
        args: Vec<FunctionArg>,
        call: Option<Span>,
    ) -> Result<Self, Error> {
        let mut read = Self::default();
        let places: Vec<&'static str> =
            ["DATA", "TIMECOL"].into_iter().chain(function.intervals().iter().copied()).collect();
        for (index, arg) in args.into_iter().enumerate() {
            let (name, value) = match arg {
                FunctionArg::Unnamed(value) => {
                    let value = expression(function, value, call)?;
                    let Some(name) = places.get(index) else {
                        let message = format!("{} takes at most {} arguments", function.name(), places.len());
                        return Err(Error::plan(code::WINDOW_ARGUMENT, message).at(span_of(&value)).at(call));
                    };
                    (*name, value)
                }
                FunctionArg::Named { name, arg, .. } => {
                    let known = named(function, &name.value, from_sql_span(name.span))?;
                    (known, expression(function, arg, call)?)
                }
                FunctionArg::ExprNamed { name, arg, .. } => {
                    let known = named(function, &name.to_string(), span_of(&name))?;
                    (known, expression(function, arg, call)?)
                }
            };
            read.set(function, name, value)?;
        }
        Ok(read)
    }

    fn set(&mut self, function: WindowFunction, name: &'static str, value: Expr) -> Result<(), Error> {
        let taken = match name {
            "DATA" => self.data.is_some(),
            "TIMECOL" => self.time.is_some(),
            "ZONE" => self.zone.is_some(),
            _ => self.intervals.iter().any(|(other, _)| *other == name),
        };
        if taken {
            let message = format!("{} is given the argument {name} twice", function.name());
            return Err(Error::plan(code::WINDOW_ARGUMENT, message).at(span_of(&value)));
        }
        match name {
            "DATA" => self.data = Some(value),
            "TIMECOL" => self.time = Some(value),
            "ZONE" => self.zone = Some(value),
            _ => self.intervals.push((name, value)),
        }
        Ok(())
    }

    /// Takes an interval argument; `None` if it was not given.
    pub(super) fn interval(
        &mut self,
        function: WindowFunction,
        name: &'static str,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Option<Interval>, Error> {
        let Some(position) = self.intervals.iter().position(|(other, _)| *other == name) else {
            return Ok(None);
        };
        let (_, expr) = self.intervals.swap_remove(position);
        Interval::read(function, name, &expr, context).map(Some)
    }
}

fn named(function: WindowFunction, name: &str, span: Option<Span>) -> Result<&'static str, Error> {
    let zone = (function != WindowFunction::Session).then_some("ZONE");
    let known: Vec<&'static str> =
        ["DATA", "TIMECOL"].into_iter().chain(function.intervals().iter().copied()).chain(zone).collect();
    known.iter().copied().find(|other| other.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let message = format!("{} has no argument \"{name}\"", function.name());
        let error = Error::plan(code::WINDOW_ARGUMENT, message).at(span);
        match did_you_mean(name, known.iter().copied()) {
            Some(near) => error.hint(format!("Use {near}.")),
            None => error.hint(format!("Use {}.", known.join(", "))),
        }
    })
}

fn expression(function: WindowFunction, arg: FunctionArgExpr, call: Option<Span>) -> Result<Expr, Error> {
    match arg {
        FunctionArgExpr::Expr(expr) => Ok(expr),
        FunctionArgExpr::Wildcard
        | FunctionArgExpr::WildcardWithOptions(_)
        | FunctionArgExpr::QualifiedWildcard(_) => {
            let message = format!("{} takes a table, a time column and intervals, no \"*\"", function.name());
            Err(Error::plan(code::WINDOW_ARGUMENT, message).at(call))
        }
    }
}

/// Where an expression stands.
pub(super) fn span_of(expr: &Expr) -> Option<Span> {
    from_sql_span(expr.span())
}

/// An interval argument of fixed length.
#[derive(Debug, Clone)]
pub(super) struct Interval {
    /// Microseconds.
    pub(super) us: i64,
    /// Where it stands.
    pub(super) span: Option<Span>,
}

impl Interval {
    fn read(
        function: WindowFunction,
        name: &'static str,
        expr: &Expr,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Self, Error> {
        let span = span_of(expr);
        let us = interval_us(expr, &argument(function, name), |expr| {
            context.sql_to_expr(expr, &DFSchema::empty()).map_err(from_datafusion)
        })
        .map_err(|error| error.at(span))?;
        Ok(Self { us, span })
    }

    /// The interval, which must be positive.
    pub(super) fn positive(self, function: WindowFunction, name: &'static str) -> Result<Self, Error> {
        if self.us > 0 {
            return Ok(self);
        }
        let message = format!("{} must be positive, not {}", argument(function, name), duration(self.us));
        Err(Error::plan(code::WINDOW_NOT_POSITIVE, message)
            .at(self.span)
            .hint("Give an interval longer than zero, such as INTERVAL '10' SECOND."))
    }

    /// The interval, which must be a whole number of the time column's steps.
    pub(super) fn whole(
        self,
        function: WindowFunction,
        name: &'static str,
        unit_us: i64,
    ) -> Result<Self, Error> {
        if self.us % unit_us == 0 {
            return Ok(self);
        }
        let message = format!(
            "{} is {}, the time column has steps of {}",
            argument(function, name),
            duration(self.us),
            duration(unit_us)
        );
        Err(Error::plan(code::WINDOW_ARGUMENT, message)
            .at(self.span)
            .hint("Declare the time column as TIMESTAMP(6), or use a multiple of the step."))
    }
}

/// `the size of TUMBLE`.
pub(super) fn argument(function: WindowFunction, name: &str) -> String {
    format!("the {} of {}", name.to_lowercase(), function.name())
}

/// The length of an interval in microseconds. `bind` turns the tree into a logical expression.
///
/// # Errors
/// `W004` if it is no interval or no constant, `W008` for months and years.
pub(in crate::plan) fn interval_us(
    expr: &Expr,
    what: &str,
    bind: impl FnOnce(Expr) -> Result<datafusion_expr::Expr, Error>,
) -> Result<i64, Error> {
    let no_interval = |given: &str| {
        Error::plan(code::WINDOW_ARGUMENT, format!("{what} must be an interval, not {given}"))
            .hint("Write it as INTERVAL '10' SECOND.")
    };
    let bound = match bind(expr.clone()) {
        Ok(bound) => bound,
        Err(error) if matches!(expr, Expr::Interval(_)) => {
            return Err(Error::plan(
                code::WINDOW_ARGUMENT,
                format!("{what} is no interval: {}", error.message()),
            )
            .hint("Write it as INTERVAL '10' SECOND."));
        }
        Err(error) => return Err(error),
    };
    let value = crate::plan::constant::fold(&bound)?;
    match value {
        Some(ScalarValue::IntervalMonthDayNano(Some(interval))) => {
            if interval.months != 0 {
                return Err(months(what, i64::from(interval.months)));
            }
            let day = i64::from(interval.days).checked_mul(86_400_000_000);
            if interval.nanoseconds % 1_000 != 0 {
                return Err(Error::plan(
                    code::WINDOW_ARGUMENT,
                    format!("{what} has parts below a microsecond"),
                ));
            }
            day.and_then(|day| day.checked_add(interval.nanoseconds / 1_000))
                .ok_or_else(|| Error::plan(code::WINDOW_ARGUMENT, format!("{what} is too long")))
        }
        Some(ScalarValue::IntervalDayTime(Some(interval))) => {
            Ok(i64::from(interval.days) * 86_400_000_000 + i64::from(interval.milliseconds) * 1_000)
        }
        Some(ScalarValue::IntervalYearMonth(Some(count))) => Err(months(what, i64::from(count))),
        Some(other) if other.is_null() => Err(no_interval("NULL")),
        Some(other) => {
            let name = crate::plan::sql_type_name(&other.data_type());
            Err(no_interval(&format!("{other} ({name})")))
        }
        None => Err(no_interval("an expression that depends on rows")),
    }
}

fn months(what: &str, count: i64) -> Error {
    let given = if count % 12 == 0 { format!("{} year(s)", count / 12) } else { format!("{count} month(s)") };
    Error::plan(code::WINDOW_MONTHS, format!("{what} is {given}, which has no fixed length"))
        .hint("Use days, such as INTERVAL '30' DAY.")
}

/// The arguments of a call in function form.
pub(super) fn of_function(args: FunctionArguments) -> Vec<FunctionArg> {
    match args {
        FunctionArguments::List(list) => list.args,
        FunctionArguments::None | FunctionArguments::Subquery(_) => Vec::new(),
    }
}
