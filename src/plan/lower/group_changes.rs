//! Aggregations of changelogs.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion_expr::Aggregate;

use super::aggregate::{Grouped, display_name};
use super::grouping::Grouping;
use super::late::{Carried, named_columns};
use super::{Above, Lowered, Lowering, Part, Role, Slot, Stream, unsupported};
use crate::error::Error;
use crate::plan::emit::{Emission, UNWINDOWED};
use crate::plan::{
    AggregateCall, Distribution, EmitMode, ExpandNode, GroupChangesNode, NodeId, Operation, StateTtl,
    WindowChangesNode, grouping_id, grouping_id_type,
};

impl Lowering<'_> {
    /// An aggregation over rows that change: its results change with them.
    pub(super) fn group_changes(
        &mut self,
        aggregate: &Aggregate,
        grouping: &Grouping,
        input: Lowered,
        above: Above,
        implied: Option<&Emission>,
        ttl: Option<StateTtl>,
    ) -> Result<Lowered, Error> {
        if implied.is_none()
            && let Some(emission) = self.emission(above)
            && (emission.mode() != EmitMode::Changes { every_us: None } || emission.lateness.is_some())
        {
            let (clause, span) = emission.clause();
            return Err(unsupported(&format!("{clause} over a query block whose results change"))
                .at(span)
                .hint("Use EMIT CHANGES, or leave the clause out."));
        }
        let schema = aggregate.input.schema();
        let mut input = self.materialize(input);
        let all: Vec<usize> = (0..grouping.exprs.len()).collect();
        let mut keys = self.key_columns(&all, grouping, schema, &mut input)?;
        let sets = grouping.masks(&all);
        if let Some(sets) = &sets {
            (input.node, keys) = self.expand(input.node, &keys, sets);
        }
        // Sets that are of all rows, and have a row without any.
        let is_whole = |sets: &[Vec<bool>], set: &usize| sets[*set].iter().all(|is_null| *is_null);
        let whole: Vec<u64> = sets.as_ref().map_or_else(Vec::new, |sets| {
            (0..sets.len()).filter(|set| is_whole(sets, set)).map(|set| grouping_id(sets, set)).collect()
        });
        let distribution = match keys.is_empty() || !whole.is_empty() {
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
        if !stream.bounded && !keys.is_empty() && implied.is_none() {
            self.warn(format!(
                "{UNWINDOWED} over rows that change keeps a group for each key as long as it has rows"
            ));
        }
        if implied.is_none() && self.session.state_ttl_us.is_some() {
            self.warn(
                "'state.ttl' has no effect on GroupAggregate over rows that change: groups go with their rows".to_owned(),
            );
        }
        let roles = vec![Role::Plain; fields.len()];
        let slots = (0..fields.len()).map(Slot::Column).collect();
        let stream =
            Stream { bounded: stream.bounded, watermark: false, key: Some((0..keys.len()).collect()) };
        let group = GroupChangesNode { keys, whole, aggregates, ttl };
        let operation = Operation::GroupChanges(Box::new(group));
        let node = self.push(operation, vec![input.node], Arc::new(Schema::new(fields)), roles, stream);
        if let Some(emission) = implied
            && self.plan.nodes[node].properties.updating
        {
            self.note_emission(node, emission);
        }
        let node = self.renumbered(node, aggregate, grouping, &all, all.len())?;
        Ok(Lowered { node, slots, pending: None, carried: Carried::default() })
    }

    /// Rows once for each grouping set; gives the node and the columns of its keys, the number of the set last.
    fn expand(&mut self, input: NodeId, keys: &[usize], sets: &[Vec<bool>]) -> (NodeId, Vec<usize>) {
        let given = Arc::clone(self.schema(input));
        let width = given.fields().len();
        let mut fields = given.fields().to_vec();
        fields.extend(keys.iter().map(|key| Arc::new(given.field(*key).clone().with_nullable(true))));
        let id = Field::new(Aggregate::INTERNAL_GROUPING_ID, grouping_id_type(keys.len(), sets), false);
        fields.push(Arc::new(id));
        let mut roles = self.roles[input].clone();
        roles.resize(fields.len(), Role::Plain);
        let stream = Stream { key: None, ..self.stream(input) };
        let expand = ExpandNode { keys: keys.to_vec(), sets: sets.to_vec() };
        let operation = Operation::Expand(Box::new(expand));
        let node = self.push(operation, vec![input], Arc::new(Schema::new(fields)), roles, stream);
        (node, (width..=width + keys.len()).collect())
    }

    /// The node with the numbers of grouping sets that `GROUPING` was resolved to, in that column.
    fn renumbered(
        &mut self,
        node: NodeId,
        aggregate: &Aggregate,
        grouping: &Grouping,
        keys: &[usize],
        column: usize,
    ) -> Result<NodeId, Error> {
        if grouping.sets.is_none() {
            return Ok(node);
        }
        let wanted = aggregate.schema.field(grouping.exprs.len()).data_type().clone();
        self.renumber(node, column, &grouping.ids(keys), &wanted)
    }

    /// An aggregation of rows that change in windows: what is true when a window closes is final.
    pub(super) fn window_changes(
        &mut self,
        aggregate: &Aggregate,
        grouping: &Grouping,
        grouped: &Grouped,
        input: Lowered,
        above: Above,
    ) -> Result<Lowered, Error> {
        if let Some(emission) = self.emission(above).filter(|emission| emission.is_updating()) {
            let (clause, span) = emission.clause();
            return Err(unsupported(&format!("{clause} of windows over rows that change")).at(span).hint(
                format!("Leave {clause} out: windows then give their final results when they close."),
            ));
        }
        if grouping.sets.is_some() && self.late.is_open() {
            return Err(unsupported("LATE ROWS INTO with GROUPING SETS of windows over rows that change")
                .at(self.places.aggregate)
                .hint("Leave the clause out: late changes are counted, once for each set."));
        }
        let schema = aggregate.input.schema();
        let mut input = self.materialize(input);
        self.refuse_late_copies(&input, grouped.window)?;
        let bounds = self.bounds_of(input.node, grouped.window, "GROUP BY of a window")?;
        let (_, data_type, zone) = self.attached(input.node, grouped.window, &input.carried)?;
        let keys: Vec<usize> =
            (0..grouping.exprs.len()).filter(|index| grouped.parts[*index].is_none()).collect();
        let mut columns = self.key_columns(&keys, grouping, schema, &mut input)?;
        let sets = grouping.masks(&keys);
        if let Some(sets) = &sets {
            (input.node, columns) = self.expand(input.node, &columns, sets);
        }
        input.node = self.exchange(input.node, &columns, None, above.order);
        let given = Arc::clone(self.schema(input.node));
        let part = |part: &Part| Field::new(part.name(), part.data_type(&data_type, zone), false);
        let mut fields: Vec<Field> = Part::ALL.iter().map(part).collect();
        let mut roles: Vec<Role> = Part::ALL.iter().map(|part| Role::Bound(*part, grouped.window)).collect();
        let mut slots = vec![Slot::Column(0); grouping.exprs.len()];
        for (index, part) in grouped.parts.iter().enumerate() {
            if let Some(part) = part {
                slots[index] = Slot::Column(*part as usize);
            }
        }
        for (key, column) in keys.iter().zip(&columns) {
            slots[*key] = Slot::Column(fields.len());
            fields.push(given.field(*column).clone());
            roles.push(Role::Plain);
        }
        let id_column = fields.len();
        if let Some(column) = columns.get(keys.len()) {
            slots.push(Slot::Column(id_column));
            fields.push(given.field(*column).clone());
            roles.push(Role::Plain);
        }
        let mut aggregates = Vec::with_capacity(aggregate.aggr_expr.len());
        for expr in &aggregate.aggr_expr {
            let lowered = self.physical_aggregate(expr, schema, &input)?;
            let field = aggregate.schema.field(slots.len());
            slots.push(Slot::Column(fields.len()));
            fields.push(Field::new(display_name(expr), field.data_type().clone(), field.is_nullable()));
            roles.push(Role::Plain);
            aggregates.push(AggregateCall {
                function: lowered.aggregate,
                filter: lowered.filter,
                order_sensitive: false,
                inexact: false,
            });
        }
        let stream = self.stream(input.node);
        let identified = [0, 1].into_iter().chain(3..3 + columns.len()).collect();
        let stream = Stream { key: Some(identified), ..stream };
        let spec = grouped.window.spec;
        let node = WindowChangesNode { bounds, unit: spec.unit, zone: spec.zone, keys: columns, aggregates };
        let operation = Operation::WindowChanges(Box::new(node));
        let node = self.push(operation, vec![input.node], Arc::new(Schema::new(fields)), roles, stream);
        self.plan.nodes[node].properties.updating = false;
        if self.late.is_open() {
            let types = Part::ALL.map(|part| self.schema(node).field(part as usize).data_type().clone());
            let columns = match input.carried.columns.is_empty() {
                true => named_columns(schema, &input.slots),
                false => input.carried.columns.clone(),
            };
            self.add_late_output(node, &input.carried, &columns, [&types[2], &types[1]], true);
        }
        let node = self.renumbered(node, aggregate, grouping, &keys, id_column)?;
        Ok(Lowered { node, slots, pending: None, carried: Carried::default() })
    }

    /// Says what a person should know, once.
    pub(super) fn warn(&mut self, warning: String) {
        if !self.plan.warnings.contains(&warning) {
            self.plan.warnings.push(warning);
        }
    }
}
