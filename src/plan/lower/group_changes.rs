//! Aggregations of changelogs.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion_expr::Aggregate;

use super::aggregate::display_name;
use super::grouping::Grouping;
use super::late::Carried;
use super::{Above, Lowered, Lowering, Role, Slot, Stream, unsupported};
use crate::error::Error;
use crate::plan::emit::UNWINDOWED;
use crate::plan::{AggregateCall, Distribution, EmitMode, GroupChangesNode, Operation};

impl Lowering<'_> {
    /// An aggregation over rows that change: its results change with them.
    pub(super) fn group_changes(
        &mut self,
        aggregate: &Aggregate,
        grouping: &Grouping,
        input: Lowered,
        above: Above,
    ) -> Result<Lowered, Error> {
        if let Some(emission) = self.emission(above)
            && (emission.mode() != EmitMode::Changes { every_us: None } || emission.lateness.is_some())
        {
            let (clause, span) = emission.clause();
            return Err(unsupported(&format!("{clause} over a query block whose results change"))
                .at(span)
                .hint("Use EMIT CHANGES, or leave the clause out."));
        }
        if grouping.sets.is_some() {
            return Err(unsupported("GROUPING SETS over a query block whose results change")
                .at(self.places.aggregate)
                .hint("Use UNION ALL of an aggregation for each set."));
        }
        let schema = aggregate.input.schema();
        let mut input = self.materialize(input);
        let all: Vec<usize> = (0..grouping.exprs.len()).collect();
        let keys = self.key_columns(&all, grouping, schema, &mut input)?;
        let distribution = match keys.is_empty() {
            true => Distribution::Single,
            false => Distribution::Hash(keys.clone()),
        };
        input.node = self.add_exchange(input.node, distribution);
        let given = Arc::clone(self.schema(input.node));
        let mut fields: Vec<Field> = keys.iter().map(|key| given.field(*key).clone()).collect();
        let mut aggregates = Vec::with_capacity(aggregate.aggr_expr.len());
        for (position, expr) in aggregate.aggr_expr.iter().enumerate() {
            let lowered = self.physical_aggregate(expr, schema, &input)?;
            let field = aggregate.schema.field(keys.len() + position);
            fields.push(Field::new(display_name(expr), field.data_type().clone(), field.is_nullable()));
            aggregates.push(AggregateCall {
                function: lowered.aggregate,
                filter: lowered.filter,
                order_sensitive: false,
                inexact: false,
            });
        }
        let stream = self.stream(input.node);
        if !stream.bounded {
            self.warn(format!("{UNWINDOWED} keeps a group for each key as long as the query runs"));
        }
        let roles = vec![Role::Plain; fields.len()];
        let slots = (0..fields.len()).map(Slot::Column).collect();
        let stream =
            Stream { bounded: stream.bounded, watermark: false, key: Some((0..keys.len()).collect()) };
        let operation = Operation::GroupChanges(Box::new(GroupChangesNode { keys, aggregates }));
        let node = self.push(operation, vec![input.node], Arc::new(Schema::new(fields)), roles, stream);
        Ok(Lowered { node, slots, pending: None, carried: Carried::default() })
    }

    /// Says what a person should know, once.
    pub(super) fn warn(&mut self, warning: String) {
        if !self.plan.warnings.contains(&warning) {
            self.plan.warnings.push(warning);
        }
    }
}
