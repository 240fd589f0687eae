//! Rows of a join without time that nothing to come can join: its condition bounds how far they are from the
//! windows of the other input.

use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{BinaryExpr, Expr, Join, Operator};

use super::interval_join::{Moved, bounds, moved};
use super::{Lowered, Lowering, Part, Role, Slot};
use crate::plan::{EmitMode, Horizon, NodeId, Operation};
use crate::stream::TimeUnit;

impl Lowering<'_> {
    /// Of each input when the other has no row any more that may join one of its rows. Both have rows that only
    /// come.
    pub(super) fn horizons(&self, join: &Join, inputs: &[Lowered; 2]) -> [Option<Horizon>; 2] {
        [0, 1].map(|input| {
            let other = 1 - input;
            if !self.comes_in_time(inputs[other].node) {
                return None;
            }
            self.horizon(join, inputs, input)
        })
    }

    /// What the condition says of one input's rows and the windows of the other's.
    fn horizon(&self, join: &Join, inputs: &[Lowered; 2], input: usize) -> Option<Horizon> {
        let schemas = [join.left.schema().as_ref(), join.right.schema().as_ref()];
        let is_read = |of: usize, column: usize| match self.role(&inputs[of], column) {
            // No window to come ends at or before the watermark.
            Role::Bound(Part::End | Part::Time, window) if of != input => window.spec.zone.is_none(),
            _ => of == input && TimeUnit::of(schemas[of].field(column).data_type()).is_some(),
        };
        let mut found: Option<Horizon> = None;
        let mut add = |one: &Expr, op: Operator, other: &Expr| {
            let (Some(one), Some(other)) = (moved(one, schemas, &is_read), moved(other, schemas, &is_read))
            else {
                return;
            };
            if let Some((column, behind_us)) = behind(input, one, op, other)
                && let Slot::Column(time) = inputs[input].slots[column]
            {
                let new = Horizon { time, behind_us };
                let known = found.get_or_insert(new);
                if known.time == time {
                    known.behind_us = known.behind_us.min(behind_us);
                }
            }
        };
        for (first, second) in &join.on {
            add(first, Operator::Eq, second);
        }
        for term in join.filter.as_ref().map(split_conjunction).unwrap_or_default() {
            if let Expr::BinaryExpr(BinaryExpr { left, op, right }) = term {
                add(left, *op, right);
            }
        }
        found
    }

    /// Whether the rows of a node are results of windows that come before the watermark passes the window, also
    /// where other inputs move it on.
    fn comes_in_time(&self, node: NodeId) -> bool {
        let node = &self.plan.nodes[node];
        match &node.operation {
            Operation::Calc(_) | Operation::Exchange(_) => {
                node.inputs.iter().all(|of| self.comes_in_time(*of))
            }
            Operation::WindowAggregate(aggregate) => {
                aggregate.emit == EmitMode::OnWindowClose
                    && aggregate.allowed_lateness_us == 0
                    && node.inputs.iter().all(|of| !self.may_be_idle(*of))
            }
            _ => false,
        }
    }

    /// Whether the watermark may go on without the rows of a node.
    fn may_be_idle(&self, node: NodeId) -> bool {
        let node = &self.plan.nodes[node];
        let idles = match &node.operation {
            Operation::Source(source) => source
                .watermark
                .as_ref()
                .is_none_or(|watermark| watermark.idle_after_us.is_some() || watermark.processing),
            _ => false,
        };
        idles || node.inputs.iter().any(|of| self.may_be_idle(*of))
    }
}

/// How far the watermark is behind the time of a row of `input` when no row of the other with a greater time than
/// the watermark meets `one op other`: the logical column of the row's time, microseconds. `None`: there is no such
/// bound.
fn behind(input: usize, one: Moved, op: Operator, other: Moved) -> Option<(usize, i64)> {
    let (columns, lower, upper) = bounds(one, op, other)?;
    let behind_us = if input == 0 { upper? } else { lower?.checked_neg()? };
    Some((columns[input], behind_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_over_when_the_greatest_time_that_it_may_meet_is() {
        let row = |input, by_us| Moved { input, column: 3, by_us };
        // row <= window AND row >= window - 10: the window ends 10 after the row at the latest.
        for input in [0, 1] {
            let window = |by_us| Moved { input: 1 - input, column: 5, by_us };
            assert_eq!(behind(input, row(input, 0), Operator::LtEq, window(0)), None);
            assert_eq!(behind(input, row(input, 0), Operator::GtEq, window(-10)), Some((3, 10)));
            assert_eq!(behind(input, window(0), Operator::LtEq, row(input, 10)), Some((3, 10)));
            assert_eq!(behind(input, window(0), Operator::Lt, row(input, 10)), Some((3, 9)));
            assert_eq!(behind(input, window(0), Operator::Eq, row(input, -5)), Some((3, -5)));
        }
    }
}
