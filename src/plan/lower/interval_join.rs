//! Joins whose condition bounds how far the times of two rows are apart.

use arrow::datatypes::DataType;
use datafusion_common::{DFSchema, NullEquality, ScalarValue};
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{BinaryExpr, Expr, Join, Operator};

use super::late::Carried;
use super::{Above, Lowered, Lowering, Role, Slot, Stream};
use crate::error::Error;
use crate::plan::{IntervalJoinNode, JoinKind, Operation};
use crate::stream::TimeUnit;

/// How far the second row's time may be behind the first row's.
pub(super) struct Interval {
    /// The logical columns of the times.
    columns: [usize; 2],
    lower_us: Option<i64>,
    upper_us: Option<i64>,
    /// The equalities and the terms of the filter that say so.
    pairs: Vec<usize>,
    terms: Vec<usize>,
}

/// A time attribute and what is added to it, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) input: usize,
    pub(super) column: usize,
    pub(super) by_us: i64,
}

impl Lowering<'_> {
    /// The bounds that the condition sets; `None`: it sets none.
    pub(super) fn interval(&self, join: &Join, inputs: &[Lowered; 2]) -> Option<Interval> {
        let schemas = [join.left.schema().as_ref(), join.right.schema().as_ref()];
        let is_time = |input: usize, column: usize| self.role(&inputs[input], column).time_unit().is_some();
        let moved = |expr: &Expr| moved(expr, schemas, &is_time);
        let mut found: Option<Interval> = None;
        let mut add = |one: Moved, op: Operator, other: Moved, pair: Option<usize>, term: Option<usize>| {
            let Some((columns, lower, upper)) = bounds(one, op, other) else { return };
            let new =
                || Interval { columns, lower_us: None, upper_us: None, pairs: Vec::new(), terms: Vec::new() };
            let known = found.get_or_insert_with(new);
            if known.columns != columns {
                return;
            }
            known.lower_us = known.lower_us.max(lower);
            known.upper_us = match (known.upper_us, upper) {
                (Some(known), Some(upper)) => Some(known.min(upper)),
                (known, upper) => known.or(upper),
            };
            known.pairs.extend(pair);
            known.terms.extend(term);
        };
        for (place, (first, second)) in join.on.iter().enumerate() {
            if let (Some(first), Some(second)) = (moved(first), moved(second)) {
                add(first, Operator::Eq, second, Some(place), None);
            }
        }
        let terms = join.filter.as_ref().map(split_conjunction).unwrap_or_default();
        for (place, term) in terms.into_iter().enumerate() {
            if let Expr::BinaryExpr(BinaryExpr { left, op, right }) = term
                && let (Some(one), Some(other)) = (moved(left), moved(right))
            {
                add(one, *op, other, None, Some(place));
            }
        }
        found
    }

    pub(super) fn interval_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        interval: &Interval,
        mut inputs: [Lowered; 2],
        above: Above,
    ) -> Result<Lowered, Error> {
        let rest = join.on.iter().enumerate().filter(|(place, _)| !interval.pairs.contains(place));
        let rest: Vec<&(Expr, Expr)> = rest.map(|(_, pair)| pair).collect();
        let keys = self.join_keys(join, &rest, &mut inputs)?;
        let times = [0, 1].map(|input| match inputs[input].slots[interval.columns[input]] {
            Slot::Column(index) => Ok(index),
            Slot::Pending(_) => Err(Error::internal("the planner", "the time of a join is not computed")),
        });
        let [first, second] = times;
        let times = [first?, second?];
        self.exchange_sides(&keys, &mut inputs, above);
        let first_width = self.schema(inputs[0].node).fields().len();
        let pair = self.pair_schema(&inputs, [false, false]);
        let terms = join.filter.as_ref().map(split_conjunction).unwrap_or_default();
        let terms = terms.into_iter().enumerate().filter(|(place, _)| !interval.terms.contains(place));
        let condition = match conjunction(terms.map(|(_, term)| term.clone())) {
            Some(filter) => Some(self.over_pairs(join, &filter, &inputs, &pair)?),
            None => None,
        };
        let (schema, slots) = self.joined_columns(kind, &inputs);
        // How far a pair's times are behind the watermark that gave it.
        let behind = [interval.upper_us, interval.lower_us.map(i64::saturating_neg)];
        let mut roles = Vec::new();
        let mut delay_us = 0;
        let sides = if kind.gives_pairs() { 2 } else { 1 };
        for input in 0..sides {
            let padded =
                if input == 0 { kind.keeps_second() } else { kind.keeps_first() && kind.gives_pairs() };
            let own = self.interval_roles(&inputs[input], times[input], behind[input], padded);
            if own[times[input]].time_unit().is_some() {
                delay_us = delay_us.max(behind[input].unwrap_or(0));
            }
            roles.extend(own);
        }
        let operation = Operation::IntervalJoin(Box::new(IntervalJoinNode {
            kind,
            times,
            lower_us: interval.lower_us,
            upper_us: interval.upper_us,
            keys,
            null_is_equal: join.null_equality == NullEquality::NullEqualsNull,
            condition,
            pair,
            first_width,
            delay_us,
        }));
        let (bounded, watermark) = self.both(&inputs);
        if !bounded && (interval.lower_us.is_none() || interval.upper_us.is_none()) {
            self.warn(
                "a join that bounds its times on one side only keeps rows of one input as long as the query runs"
                    .to_owned(),
            );
        }
        let stream = Stream { bounded, watermark, key: None };
        let nodes = inputs.each_ref().map(|input| input.node);
        let time_type = self.schema(nodes[0]).field(times[0]).data_type().clone();
        let node = self.push(operation, nodes.to_vec(), schema, roles, stream);
        self.add_join_late_output(node, join, &inputs, [&time_type, &time_type])?;
        Ok(Lowered { node, slots, pending: None, carried: Carried::default() })
    }

    /// What an input's columns mean behind the join. `behind`: how far its time may be behind.
    fn interval_roles(&self, input: &Lowered, time: usize, behind: Option<i64>, padded: bool) -> Vec<Role> {
        let schema = self.schema(input.node);
        let role = |(index, role): (usize, &Role)| {
            let name = schema.field(index).name();
            match role {
                role if role.time_unit().is_none() => match role {
                    Role::Bound(..) => Role::Plain,
                    other => other.clone(),
                },
                _ if padded => Role::Lost(format!("\"{name}\" is NULL where the join finds no row")),
                _ if index != time => Role::Lost(format!("the join goes by another time than \"{name}\"")),
                _ if behind.is_none() => Role::Lost(format!(
                    "the join does not bound how far \"{name}\" may be behind the other time"
                )),
                Role::Bound(_, window) => Role::Time(window.spec.unit),
                other => other.clone(),
            }
        };
        self.roles[input.node].iter().enumerate().map(role).collect()
    }
}

/// A column of an input that is a time, as `is_time` says of input and column, plus or minus a constant interval.
pub(super) fn moved(
    expr: &Expr,
    schemas: [&DFSchema; 2],
    is_time: &dyn Fn(usize, usize) -> bool,
) -> Option<Moved> {
    let again = |expr: &Expr| moved(expr, schemas, is_time);
    match expr {
        Expr::Alias(alias) => again(&alias.expr),
        Expr::Column(column) => {
            let (input, index) =
                (0..2).find_map(|input| Some((input, schemas[input].maybe_index_of_column(column)?)))?;
            is_time(input, index).then_some(Moved { input, column: index, by_us: 0 })
        }
        // The same instant in smaller steps.
        Expr::Cast(cast) => {
            let moved = again(&cast.expr)?;
            let from = schemas[moved.input].field(moved.column).data_type();
            let to = cast.field.data_type();
            let same_zone = matches!((from, to), (DataType::Timestamp(_, one), DataType::Timestamp(_, other)) if one.is_some() == other.is_some());
            let is_exact =
                TimeUnit::of(to).is_none_or(|to| TimeUnit::of(from).is_some_and(|from| to.us() <= from.us()));
            (same_zone && is_exact).then_some(moved)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus, right }) => {
            match (again(left), again(right)) {
                (Some(moved), None) => moved.plus(interval_us(right)?),
                (None, Some(moved)) => moved.plus(interval_us(left)?),
                _ => None,
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right }) => {
            again(left)?.plus(interval_us(right)?.checked_neg()?)
        }
        _ => None,
    }
}

impl Moved {
    fn plus(self, us: i64) -> Option<Self> {
        Some(Self { by_us: self.by_us.checked_add(us)?, ..self })
    }
}

/// What `one op other` says of the second input's time minus the first one's: the columns, the least
/// and the greatest difference.
pub(super) fn bounds(
    one: Moved,
    op: Operator,
    other: Moved,
) -> Option<([usize; 2], Option<i64>, Option<i64>)> {
    let (first, op, second) = match (one.input, other.input) {
        (0, 1) => (one, op.swap()?, other),
        (1, 0) => (other, op, one),
        _ => return None,
    };
    // second + its interval op first + its interval
    let limit = first.by_us.checked_sub(second.by_us)?;
    let columns = [first.column, second.column];
    Some(match op {
        Operator::Eq => (columns, Some(limit), Some(limit)),
        Operator::GtEq => (columns, Some(limit), None),
        Operator::Gt => (columns, Some(limit.checked_add(1)?), None),
        Operator::LtEq => (columns, None, Some(limit)),
        Operator::Lt => (columns, None, Some(limit.checked_sub(1)?)),
        _ => return None,
    })
}

/// A constant interval without months, microseconds.
fn interval_us(expr: &Expr) -> Option<i64> {
    match crate::plan::constant::fold(expr).ok()?? {
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months == 0 => {
            let us = i128::from(interval.days) * 86_400_000_000 + i128::from(interval.nanoseconds) / 1_000;
            i64::try_from(us).ok().filter(|_| interval.nanoseconds % 1_000 == 0)
        }
        ScalarValue::IntervalDayTime(Some(interval)) => {
            Some(i64::from(interval.days) * 86_400_000_000 + i64::from(interval.milliseconds) * 1_000)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_side_may_stand_first() {
        let first = |by_us| Moved { input: 0, column: 3, by_us };
        let second = |by_us| Moved { input: 1, column: 5, by_us };
        // second >= first - 10
        let lower = Some(([3, 5], Some(-10), None));
        assert_eq!(bounds(second(0), Operator::GtEq, first(-10)), lower);
        assert_eq!(bounds(first(-10), Operator::LtEq, second(0)), lower);
        assert_eq!(bounds(second(10), Operator::GtEq, first(0)), lower);
        assert_eq!(bounds(first(0), Operator::Lt, second(10)), Some(([3, 5], Some(-9), None)));
        assert_eq!(bounds(first(0), Operator::Eq, second(5)), Some(([3, 5], Some(-5), Some(-5))));
        assert_eq!(bounds(first(0), Operator::Lt, first(10)), None);
        assert_eq!(bounds(first(0), Operator::NotEq, second(10)), None);
    }
}
