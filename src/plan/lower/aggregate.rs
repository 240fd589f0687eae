//! Aggregations: over windows, over all of a bounded input, or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use chrono_tz::Tz;
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::{Aggregate, Expr, Filter, LogicalPlan};
use datafusion_physical_expr::expressions::{case, lit};

use super::dependence::{Dependence, dependence};
use super::expression::{columns_of, plain_column};
use super::first_rows::drops_rank;
use super::grouping::Grouping;
use super::late::{Carried, named_columns};
use super::window::session_distribution;
use super::{Above, Lowered, Lowering, Part, Pending, Role, Slot, Stream, Window};
use crate::error::{Error, code};
use crate::plan::diagnose::from_datafusion;
use crate::plan::emit::Emission;
use crate::plan::{
    AggregateCall, AggregatePhase, Distribution, EmitMode, ExprRef, NodeId, Operation, WindowAggregateNode,
    WindowKind, WindowSource, WindowSpec, grouping_id_type,
};
use crate::stream::TimeUnit;

/// The windows that an aggregation groups by.
pub(super) struct Grouped {
    pub(super) window: Window,
    /// For each expression of the grouping, the part of the window it names.
    pub(super) parts: Vec<Option<Part>>,
}

impl Lowering<'_> {
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate, above: Above) -> Result<Lowered, Error> {
        let grouping = Grouping::of(&aggregate.group_expr);
        let order = above.order
            || self.emits_in_order(above)
            || aggregate.aggr_expr.iter().any(|expr| {
                let dependence = dependence(expr, aggregate.input.schema());
                dependence.order_sensitive || dependence.inexact
            });
        if let LogicalPlan::Filter(filter) = aggregate.input.as_ref()
            && let Some(lowered) = self.filter_of_windows(aggregate, &grouping, filter, order, above)?
        {
            return Ok(lowered);
        }
        let drops_rank = drops_rank(&aggregate.input, &grouping.exprs)
            && drops_rank(&aggregate.input, &aggregate.aggr_expr);
        let input = self.lower(&aggregate.input, Above { order, drops_rank, ..Above::default() })?;
        self.aggregate_of(aggregate, &grouping, input, above)
    }

    fn aggregate_of(
        &mut self,
        aggregate: &Aggregate,
        grouping: &Grouping,
        input: Lowered,
        above: Above,
    ) -> Result<Lowered, Error> {
        match self.grouped_window(grouping, aggregate.input.schema(), &input)? {
            Some(grouped) => {
                if self.plan.nodes[input.node].properties.updating {
                    return self.window_changes(aggregate, grouping, &grouped, input, above);
                }
                self.windowed(aggregate, grouping, &grouped, input, above)
            }
            None if self.plan.nodes[input.node].properties.updating => {
                self.group_changes(aggregate, grouping, input, above, None, None)
            }
            None => self.unwindowed(aggregate, grouping, input, above),
        }
    }

    /// A condition on nothing but the window is put above the aggregation: it keeps or drops whole
    /// windows, and the aggregation can take the window from the time column. `None`: it is not so.
    fn filter_of_windows(
        &mut self,
        aggregate: &Aggregate,
        grouping: &Grouping,
        filter: &Filter,
        order: bool,
        above: Above,
    ) -> Result<Option<Lowered>, Error> {
        let schema = filter.input.schema();
        let read = columns_of([&filter.predicate], schema)?;
        let is_grouped = |column: &usize| {
            grouping
                .exprs
                .iter()
                .any(|expr| matches!(expr, Expr::Column(_)) && plain_column(expr, schema) == Some(*column))
        };
        if grouping.sets.is_some() || read.is_empty() || !read.iter().all(is_grouped) {
            return Ok(None);
        }
        let input = self.lower(&filter.input, Above { order, ..Above::default() })?;
        if !read.iter().all(|column| matches!(input.slots[*column], Slot::Pending(_))) {
            let input = self.filtered(filter, input)?;
            return self.aggregate_of(aggregate, grouping, input, above).map(Some);
        }
        let mut lowered = self.aggregate_of(aggregate, grouping, input, above)?;
        let predicate = self.physical(&filter.predicate, &aggregate.schema, &lowered)?;
        lowered.node = self.add_filter(lowered.node, predicate);
        Ok(Some(lowered))
    }

    /// The window that the grouping names: a pending one, else the innermost whose bounds are there.
    fn grouped_window(
        &self,
        grouping: &Grouping,
        schema: &DFSchema,
        input: &Lowered,
    ) -> Result<Option<Grouped>, Error> {
        let bounds: Vec<Option<(Part, Window)>> = grouping
            .exprs
            .iter()
            .map(|expr| match self.role(input, plain_column(expr, schema)?) {
                Role::Bound(part, window) => Some((part, window)),
                _ => None,
            })
            .collect();
        let pending = input.pending.as_ref().map(|pending| pending.window);
        let last = || bounds.iter().flatten().map(|(_, window)| *window).max_by_key(|window| window.id);
        let named = |window: &Window| bounds.iter().flatten().any(|(_, other)| other.id == window.id);
        let Some(window) = pending.filter(named).or_else(last) else { return Ok(None) };
        let part_of = |bound: Option<(Part, Window)>| {
            bound.filter(|(_, other)| other.id == window.id).map(|(part, _)| part)
        };
        let parts: Vec<Option<Part>> = bounds.into_iter().map(part_of).collect();
        check_parts(&parts, window).map_err(|error| error.at(self.places.aggregate))?;
        check_sets(grouping, &parts).map_err(|error| error.at(self.places.aggregate))?;
        Ok(Some(Grouped { window, parts }))
    }

    fn windowed(
        &mut self,
        aggregate: &Aggregate,
        grouping: &Grouping,
        grouped: &Grouped,
        mut input: Lowered,
        above: Above,
    ) -> Result<Lowered, Error> {
        let schema = aggregate.input.schema();
        let keys: Vec<usize> =
            (0..grouping.exprs.len()).filter(|index| grouped.parts[*index].is_none()).collect();
        let is_pending = input.pending.as_ref().is_some_and(|pending| pending.window.id == grouped.window.id);
        if is_pending {
            let read = keys.iter().map(|key| &grouping.exprs[*key]).chain(&aggregate.aggr_expr);
            input = self.materialize_for(read, schema, input)?;
        } else {
            input = self.materialize(input);
        }
        self.check_late_windows(&input, grouped.window)?;
        let emission = self.emission(above);
        if input.pending.is_none() && self.are_of_sessions(input.node) {
            self.refuse_late_sessions(emission.as_deref(), false)?;
        }
        let key_columns = self.key_columns(&keys, grouping, schema, &mut input)?;
        let sets = grouping.masks(&keys);
        if let Some(pending) = &input.pending
            && mixes_partitions(pending, &key_columns, sets.as_deref())
        {
            if pending.window.is_session() {
                self.refuse_late_sessions(emission.as_deref(), true)?;
            }
            input = self.materialize(input);
        }
        let (source, data_type, zone) = match input.pending.take() {
            Some(Pending { window, time, data_type, partition, .. }) if window.is_session() => {
                let in_order = above.order || is_whole(emission.as_deref());
                let distribution = session_distribution(&partition, in_order);
                input.node = self.add_exchange(input.node, distribution);
                let spec = window.spec;
                (WindowSource::Session { time, window: spec, partition }, data_type, spec.zone)
            }
            pending => {
                let source = match pending {
                    Some(Pending { window, time, data_type, .. }) => {
                        (WindowSource::Assign { time, window: window.spec }, data_type, window.spec.zone)
                    }
                    None => self.attached(input.node, grouped.window, &input.carried)?,
                };
                let single = above.order || is_whole(emission.as_deref());
                input.node = self.exchange(input.node, &key_columns, sets.as_deref(), single);
                source
            }
        };
        let mut fields: Vec<Field> = Part::ALL
            .iter()
            .map(|part| Field::new(part.name(), part.data_type(&data_type, zone), false))
            .collect();
        let mut roles: Vec<Role> = Part::ALL.iter().map(|part| Role::Bound(*part, grouped.window)).collect();
        let mut slots = vec![Slot::Column(0); grouping.exprs.len()];
        for (index, part) in grouped.parts.iter().enumerate() {
            if let Some(part) = part {
                slots[index] = Slot::Column(*part as usize);
            }
        }
        let node = self.group(
            aggregate,
            grouping,
            &keys,
            &key_columns,
            source,
            sets,
            input,
            Output { fields: &mut fields, roles: &mut roles, slots: &mut slots, emission },
        )?;
        Ok(Lowered { node, slots, pending: None, carried: Carried::default() })
    }

    fn unwindowed(
        &mut self,
        aggregate: &Aggregate,
        grouping: &Grouping,
        input: Lowered,
        above: Above,
    ) -> Result<Lowered, Error> {
        let bounded = self.plan.nodes[input.node].properties.bounded;
        let mut emission = self.emission(above);
        if !bounded && emission.is_none() {
            if input.pending.is_some() {
                return Err(without_bounds().at(self.places.aggregate));
            }
            emission = Some(Arc::new(Emission::implied(self.places.aggregate)));
        }
        if emission.is_some()
            && let Some(ttl) = self.ttl(input.node)
        {
            if emission
                .as_ref()
                .is_some_and(|emission| emission.mode() == EmitMode::Changes { every_us: None })
            {
                return self.group_changes(aggregate, grouping, input, above, emission.as_deref(), Some(ttl));
            }
            self.warn("'state.ttl' has no effect on EMIT with EVERY: its groups are kept".to_owned());
        }
        self.check_unwindowed_emission(emission.as_deref(), bounded)?;
        let mut input = self.materialize(input);
        let keys: Vec<usize> = (0..grouping.exprs.len()).collect();
        let key_columns = self.key_columns(&keys, grouping, aggregate.input.schema(), &mut input)?;
        let sets = grouping.masks(&keys);
        let single = is_whole(emission.as_deref());
        input.node = self.exchange(input.node, &key_columns, sets.as_deref(), single);
        let spec =
            WindowSpec { kind: WindowKind::Global, offset_us: 0, zone: None, unit: TimeUnit::Millisecond };
        let source = WindowSource::Assign { time: 0, window: spec };
        let (mut fields, mut roles) = (Vec::new(), Vec::new());
        let mut slots = vec![Slot::Column(0); grouping.exprs.len()];
        let node = self.group(
            aggregate,
            grouping,
            &keys,
            &key_columns,
            source,
            sets,
            input,
            Output { fields: &mut fields, roles: &mut roles, slots: &mut slots, emission },
        )?;
        Ok(Lowered { node, slots, pending: None, carried: Carried::default() })
    }

    /// The columns of the keys; expressions are computed below the aggregation.
    pub(super) fn key_columns(
        &mut self,
        keys: &[usize],
        grouping: &Grouping,
        schema: &DFSchema,
        input: &mut Lowered,
    ) -> Result<Vec<usize>, Error> {
        self.columns_for(keys.iter().map(|key| &grouping.exprs[*key]), schema, input)
    }

    /// The node's columns of expressions over a logical plan; what is no column is computed.
    pub(super) fn columns_for<'e>(
        &mut self,
        exprs: impl IntoIterator<Item = &'e Expr>,
        schema: &DFSchema,
        input: &mut Lowered,
    ) -> Result<Vec<usize>, Error> {
        let mut columns = Vec::new();
        let mut added: Vec<(ExprRef, Field, Role)> = Vec::new();
        let width = self.schema(input.node).fields().len();
        for expr in exprs {
            match plain_column(expr, schema).map(|column| input.slots[column]) {
                Some(Slot::Column(index)) => columns.push(index),
                Some(Slot::Pending(_)) => {
                    return Err(Error::internal("the planner", "a window column is no key"));
                }
                None => {
                    let physical = self.physical(expr, schema, input)?;
                    let node_schema = self.schema(input.node);
                    let data_type = physical.data_type(node_schema).map_err(from_datafusion)?;
                    let nullable = physical.nullable(node_schema).map_err(from_datafusion)?;
                    columns.push(width + added.len());
                    let name = display_name(expr);
                    let role = self.computed_role(expr, &name, schema, input)?;
                    added.push((physical, Field::new(name, data_type, nullable), role));
                }
            }
        }
        if added.is_empty() {
            return Ok(columns);
        }
        let mut project: Vec<ExprRef> = (0..width).map(|index| self.column(input.node, index)).collect();
        let mut fields: Vec<Arc<Field>> = self.schema(input.node).fields().to_vec();
        let mut roles = self.roles[input.node].clone();
        for (expr, field, role) in added {
            project.push(expr);
            fields.push(Arc::new(field));
            roles.push(role);
        }
        let moved: Vec<Option<usize>> = (0..width).map(Some).collect();
        input.node = self.add_projection(input.node, project, Arc::new(Schema::new(fields)), roles, &moved);
        Ok(columns)
    }

    /// The bounds that rows carry with them.
    pub(super) fn attached(
        &self,
        node: NodeId,
        window: Window,
        carried: &Carried,
    ) -> Result<(WindowSource, DataType, Option<Tz>), Error> {
        let find = |wanted: Part| {
            self.roles[node].iter().position(
                |role| matches!(role, Role::Bound(part, other) if *part == wanted && other.id == window.id),
            )
        };
        match (find(Part::Start), find(Part::End)) {
            (Some(start), Some(end)) => {
                let time = find(Part::Time).unwrap_or(start);
                let data_type = self.schema(node).field(time).data_type().clone();
                let (unit, zone) = (window.spec.unit, window.spec.zone);
                let copies = carried.copies.filter(|(_, id)| *id == window.id && self.late.is_open());
                let copies = copies.map(|(time, _)| (time, window.spec));
                Ok((WindowSource::Attached { start, end, unit, zone, copies }, data_type, zone))
            }
            (start, _) => {
                let missing = if start.is_some() { Part::End } else { Part::Start };
                let message =
                    format!("the inner query leaves out {}, which the outer one needs", missing.name());
                Err(Error::plan(code::WINDOW_GROUPING, message)
                    .at(self.places.aggregate)
                    .hint("Select window_start and window_end in the inner query and group by both."))
            }
        }
    }

    /// Brings rows of one group together. `single`: in the order in which they come.
    pub(super) fn exchange(
        &mut self,
        node: NodeId,
        keys: &[usize],
        sets: Option<&[Vec<bool>]>,
        single: bool,
    ) -> NodeId {
        let in_all_sets = |position: usize| sets.is_none_or(|sets| sets.iter().all(|set| !set[position]));
        let hash: Vec<usize> = keys
            .iter()
            .enumerate()
            .filter(|(position, _)| in_all_sets(*position))
            .map(|(_, key)| *key)
            .collect();
        let distribution =
            if single || hash.is_empty() { Distribution::Single } else { Distribution::Hash(hash) };
        self.add_exchange(node, distribution)
    }

    pub(super) fn add_exchange(&mut self, node: NodeId, distribution: Distribution) -> NodeId {
        let schema = Arc::clone(self.schema(node));
        let roles = self.roles[node].clone();
        let stream = self.stream(node);
        self.push(Operation::Exchange(distribution), vec![node], schema, roles, stream)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one node, used once each")]
    fn group(
        &mut self,
        aggregate: &Aggregate,
        grouping: &Grouping,
        keys: &[usize],
        key_columns: &[usize],
        window: WindowSource,
        sets: Option<Vec<Vec<bool>>>,
        input: Lowered,
        output: Output<'_>,
    ) -> Result<NodeId, Error> {
        let Output { fields, roles, slots, emission } = output;
        let bounds = fields.len();
        for (key, column) in keys.iter().zip(key_columns) {
            slots[*key] = Slot::Column(fields.len());
            let given = self.schema(input.node).field(*column);
            let nullable = given.is_nullable() || sets.is_some();
            fields.push(Field::new(given.name(), given.data_type().clone(), nullable));
            roles.push(match &self.roles[input.node][*column] {
                Role::Time(_) | Role::Bound(Part::Time, _) => {
                    Role::Lost(format!("\"{}\" is grouped by", given.name()))
                }
                Role::Bound(..) => Role::Plain,
                other => other.clone(),
            });
        }
        let first_call = grouping.exprs.len() + usize::from(sets.is_some());
        if sets.is_some() {
            slots.push(Slot::Column(fields.len()));
            let kind = grouping_id_type(keys.len(), sets.as_deref().unwrap_or_default());
            fields.push(Field::new(Aggregate::INTERNAL_GROUPING_ID, kind, false));
            roles.push(Role::Plain);
        }
        let mut aggregates = Vec::new();
        for (position, expr) in aggregate.aggr_expr.iter().enumerate() {
            let lowered = self.physical_aggregate(expr, aggregate.input.schema(), &input)?;
            let Dependence { order_sensitive, inexact } = dependence(expr, aggregate.input.schema());
            let field = aggregate.schema.field(first_call + position);
            slots.push(Slot::Column(fields.len()));
            fields.push(Field::new(display_name(expr), field.data_type().clone(), field.is_nullable()));
            roles.push(Role::Plain);
            aggregates.push(AggregateCall {
                function: lowered.aggregate,
                filter: lowered.filter,
                order_sensitive,
                inexact,
            });
        }
        self.check_emitted_calls(emission.as_deref(), &aggregates)?;
        // A group without aggregates is given once and never changes.
        let is_final = aggregates.is_empty()
            && bounds == 0
            && emission.as_ref().is_some_and(|emission| matches!(emission.mode(), EmitMode::Changes { .. }));
        let given = self.stream(input.node);
        let identified =
            sets.is_none().then(|| (0..bounds.min(2)).chain(bounds..bounds + keys.len()).collect());
        let stream =
            Stream { bounded: given.bounded, watermark: given.watermark && bounds > 0, key: identified };
        let wanted = sets.is_some().then(|| aggregate.schema.field(grouping.exprs.len()).data_type().clone());
        let id_column = bounds + keys.len();
        let node = WindowAggregateNode {
            window,
            keys: key_columns.iter().map(|column| self.column(input.node, *column)).collect(),
            grouping_sets: sets,
            aggregates,
            allowed_lateness_us: emission.as_ref().map_or(0, |emission| emission.lateness_us()),
            emit: emission.as_ref().map_or(EmitMode::OnWindowClose, |emission| emission.mode()),
            phase: AggregatePhase::Single,
        };
        let schema = Arc::new(Schema::new(std::mem::take(fields)));
        let node = self.push(
            Operation::WindowAggregate(Box::new(node)),
            vec![input.node],
            schema,
            std::mem::take(roles),
            stream,
        );
        if is_final {
            self.plan.nodes[node].properties.updating = false;
        } else if let Some(emission) = emission.filter(|emission| emission.is_updating()) {
            self.note_emission(node, &emission);
        }
        if bounds > 0 && self.late.is_open() {
            let bounds = Part::ALL.map(|part| self.schema(node).field(part as usize).data_type().clone());
            let columns = match input.carried.columns.is_empty() {
                true => named_columns(aggregate.input.schema(), &input.slots),
                false => input.carried.columns.clone(),
            };
            self.add_late_output(node, &input.carried, &columns, [&bounds[2], &bounds[1]], true);
        }
        match wanted {
            Some(wanted) => self.renumber(node, id_column, &grouping.ids(keys), &wanted),
            None => Ok(node),
        }
    }

    /// Replaces the ids of grouping sets by those that `GROUPING` was resolved to, where they differ:
    /// the window's columns count as expressions of a grouping, but are no keys.
    pub(super) fn renumber(
        &mut self,
        node: NodeId,
        column: usize,
        ids: &BTreeMap<u64, u64>,
        wanted: &DataType,
    ) -> Result<NodeId, Error> {
        let schema = Arc::clone(self.schema(node));
        let given = schema.field(column).data_type();
        if given == wanted && ids.iter().all(|(ours, theirs)| ours == theirs) {
            return Ok(node);
        }
        let literal = |id: u64, kind: &DataType| -> Result<ExprRef, Error> {
            Ok(lit(ScalarValue::UInt64(Some(id)).cast_to(kind).map_err(from_datafusion)?))
        };
        let cases = ids
            .iter()
            .map(|(ours, theirs)| Ok((literal(*ours, given)?, literal(*theirs, wanted)?)))
            .collect::<Result<Vec<_>, Error>>()?;
        let otherwise = Some(literal(0, wanted)?);
        let renumbered = case(Some(self.column(node, column)), cases, otherwise).map_err(from_datafusion)?;
        let width = schema.fields().len();
        let mut project: Vec<ExprRef> = (0..width).map(|index| self.column(node, index)).collect();
        project[column] = renumbered;
        let mut fields = schema.fields().to_vec();
        fields[column] = Arc::new(Field::new(Aggregate::INTERNAL_GROUPING_ID, wanted.clone(), false));
        let roles = self.roles[node].clone();
        let moved: Vec<Option<usize>> = (0..width).map(Some).collect();
        Ok(self.add_projection(node, project, Arc::new(Schema::new(fields)), roles, &moved))
    }
}

/// What a grouping adds its columns to.
struct Output<'a> {
    fields: &'a mut Vec<Field>,
    roles: &'a mut Vec<Role>,
    slots: &'a mut Vec<Slot>,
    emission: Option<Arc<Emission>>,
}

/// Whether rows of several partitions of a session window can be in one group: then sessions must be
/// known before rows are grouped.
fn mixes_partitions(pending: &Pending, keys: &[usize], sets: Option<&[Vec<bool>]>) -> bool {
    let in_all_sets = |position: usize| sets.is_none_or(|sets| sets.iter().all(|set| !set[position]));
    let is_key = |column: &usize| {
        keys.iter().enumerate().any(|(position, key)| key == column && in_all_sets(position))
    };
    !pending.partition.iter().all(is_key)
}

/// Whether each round gives the whole result, which one subtask must know then.
fn is_whole(emission: Option<&Emission>) -> bool {
    emission.is_some_and(|emission| matches!(emission.mode(), EmitMode::Complete { .. }))
}

/// The grouping must name one window.
fn check_parts(parts: &[Option<Part>], window: Window) -> Result<(), Error> {
    let has = |part: Part| parts.contains(&Some(part));
    let overlapping = matches!(window.spec.kind, WindowKind::Cumulate { .. } | WindowKind::Session { .. });
    if !overlapping || (has(Part::Start) && has(Part::End)) {
        return Ok(());
    }
    let missing = if has(Part::Start) { Part::End } else { Part::Start };
    let why = if window.is_session() {
        "sessions have no fixed length, so one bound does not tell the other"
    } else {
        "windows of this kind share their bounds"
    };
    let message = format!("GROUP BY lacks {}: {why}", missing.name());
    Err(Error::plan(code::WINDOW_GROUPING, message).hint("Group by window_start and window_end."))
}

/// Every grouping set must be one of the window.
fn check_sets(grouping: &Grouping, parts: &[Option<Part>]) -> Result<(), Error> {
    let whole = |set: &Vec<bool>| set.iter().zip(parts).all(|(member, part)| *member || part.is_none());
    if grouping.sets.iter().flatten().all(whole) {
        return Ok(());
    }
    Err(Error::plan(code::WINDOW_GROUPING, "a grouping set leaves out the window")
        .hint("Write GROUP BY window_start, window_end, GROUPING SETS (…)."))
}

fn without_bounds() -> Error {
    Error::plan(
        code::UNBOUNDED_AGGREGATE,
        "unbounded aggregate: rows have windows, but the groups are over all of them and never final",
    )
    .hint("Add window_start and window_end to GROUP BY.")
}

/// What EXPLAIN calls a computed column.
pub(super) fn display_name(expr: &Expr) -> String {
    crate::plan::text::logical(expr).replace("count(1)", "count(*)")
}
