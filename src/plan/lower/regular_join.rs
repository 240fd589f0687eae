//! Joins whose condition says nothing about time.

use std::sync::Arc;

use datafusion_common::NullEquality;
use datafusion_expr::{Expr, Join};

use super::late::Carried;
use super::{Above, Lowered, Lowering, Role, Stream};
use crate::error::Error;
use crate::plan::{JoinKind, Operation, RegularJoinNode, StateTtl, TtlClock, WindowJoinNode};
use crate::stream::TimeUnit;

/// What makes results change where no clause does.
pub(super) const UNTIMED: &str = "an outer join without time";

impl Lowering<'_> {
    /// Joins all rows: of bounded inputs at their end, of others whenever they come.
    pub(super) fn regular_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        mut inputs: [Lowered; 2],
        above: Above,
    ) -> Result<Lowered, Error> {
        let bounded = self.both(&inputs).0;
        let updating = inputs.each_ref().map(|input| self.plan.nodes[input.node].properties.updating);
        let horizons = match bounded || updating != [false, false] {
            true => [None; 2],
            false => self.horizons(join, &inputs),
        };
        let pairs: Vec<&(Expr, Expr)> = join.on.iter().collect();
        let keys = self.join_keys(join, &pairs, &mut inputs)?;
        self.exchange_sides(&keys, &mut inputs, above);
        let first_width = self.schema(inputs[0].node).fields().len();
        let pair = self.pair_schema(&inputs, [false, false]);
        let condition = match &join.filter {
            Some(filter) => Some(self.over_pairs(join, filter, &inputs, &pair)?),
            None => None,
        };
        let (schema, slots) = self.joined_columns(kind, &inputs);
        let null_is_equal = join.null_equality == NullEquality::NullEqualsNull;
        let at_end = bounded && updating == [false, false];
        let by = |input: &Lowered| self.ttl(input.node);
        let ttl = match (by(&inputs[0]), by(&inputs[1])) {
            (Some(first), Some(second)) if [first, second].iter().all(|ttl| ttl.by != TtlClock::Clock) => {
                Some([first, second])
            }
            (Some(ttl), _) => Some([StateTtl { by: TtlClock::Clock, ..ttl }; 2]),
            (None, _) => None,
        };
        let horizons = if ttl.is_none() { horizons } else { [None; 2] };
        let operation = match at_end {
            true => Operation::WindowJoin(Box::new(WindowJoinNode {
                kind,
                windows: None,
                unit: TimeUnit::Millisecond,
                zone: None,
                keys,
                null_is_equal,
                condition,
                pair,
                first_width,
            })),
            false => Operation::RegularJoin(Box::new(RegularJoinNode {
                kind,
                keys,
                null_is_equal,
                condition,
                pair,
                first_width,
                updating,
                ttl,
                horizons,
            })),
        };
        let keeps = match horizons {
            _ if bounded || ttl.is_some() => None,
            [None, None] => Some("both inputs"),
            [None, Some(_)] => Some("its first input"),
            [Some(_), None] => Some("its second input"),
            [Some(_), Some(_)] => None,
        };
        if let Some(keeps) = keeps {
            self.warn(format!(
                "a join without time keeps all rows of {keeps} as long as the query runs: bound how far their times are \
                 apart, or SET 'state.ttl'"
            ));
        }
        let role = |role: &Role| match role {
            role if role.time_unit().is_some() => {
                Role::Lost("a join without time gives its rows whatever their time".to_owned())
            }
            Role::Bound(..) => Role::Plain,
            other => other.clone(),
        };
        let sides = if kind.gives_pairs() { 2 } else { 1 };
        let roles =
            inputs[..sides].iter().flat_map(|input| self.roles[input.node].iter().map(role)).collect();
        let nodes = inputs.each_ref().map(|input| input.node).to_vec();
        let stream = Stream { bounded, watermark: false, key: None };
        let node = self.push(operation, nodes, Arc::clone(&schema), roles, stream);
        if !at_end && updating == [false, false] && self.plan.nodes[node].properties.updating {
            self.note_changes(node, UNTIMED, self.places.join.or(self.places.subquery));
        }
        Ok(Lowered { node, slots, pending: None, carried: Carried::default() })
    }
}
