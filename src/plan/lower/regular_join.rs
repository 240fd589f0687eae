//! Joins whose condition says nothing about time.

use std::sync::Arc;

use datafusion_common::NullEquality;
use datafusion_expr::{Expr, Join};

use super::late::Carried;
use super::{Above, Lowered, Lowering, Role, Stream, unsupported};
use crate::error::Error;
use crate::plan::{JoinKind, Operation, WindowJoinNode};
use crate::stream::TimeUnit;

impl Lowering<'_> {
    /// Joins all rows of bounded inputs at their end.
    pub(super) fn regular_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        mut inputs: [Lowered; 2],
        above: Above,
    ) -> Result<Lowered, Error> {
        if !self.both(&inputs).0 {
            return Err(match kind.gives_pairs() {
                true => unsupported("a join without time on input that never ends").at(self.places.join),
                false => unsupported("a subquery without time on input that never ends").at(self.places.subquery),
            }
            .hint("Bound how far the times are apart, such as r.ts BETWEEN l.ts AND l.ts + INTERVAL '1' HOUR, or join equal windows."));
        }
        let pairs: Vec<&(Expr, Expr)> = join.on.iter().collect();
        let keys = self.join_keys(join, &pairs, &mut inputs)?;
        self.exchange_sides(&keys, &mut inputs, above);
        let pair = self.pair_schema(&inputs, [false, false]);
        let condition = match &join.filter {
            Some(filter) => Some(self.over_pairs(join, filter, &inputs, &pair)?),
            None => None,
        };
        let (schema, slots) = self.joined_columns(kind, &inputs);
        let operation = Operation::WindowJoin(Box::new(WindowJoinNode {
            kind,
            windows: None,
            unit: TimeUnit::Millisecond,
            zone: None,
            keys,
            null_is_equal: join.null_equality == NullEquality::NullEqualsNull,
            condition,
            pair,
            first_width: self.schema(inputs[0].node).fields().len(),
        }));
        let role = |role: &Role| match role {
            role if role.time_unit().is_some() => {
                Role::Lost("a join without time gives its rows at the end of the inputs".to_owned())
            }
            Role::Bound(..) => Role::Plain,
            other => other.clone(),
        };
        let sides = if kind.gives_pairs() { 2 } else { 1 };
        let roles =
            inputs[..sides].iter().flat_map(|input| self.roles[input.node].iter().map(role)).collect();
        let nodes = inputs.each_ref().map(|input| input.node).to_vec();
        let stream = Stream { bounded: true, watermark: false, key: None };
        let node = self.push(operation, nodes, Arc::clone(&schema), roles, stream);
        Ok(Lowered { node, slots, pending: None, carried: Carried::default() })
    }
}
