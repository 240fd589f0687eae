//! Filters and projections.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Expr, Filter, Operator, Projection};
use datafusion_physical_expr::expressions::{BinaryExpr, Column};

use super::expression::{columns_of, plain_column};
use super::first_rows::drops_rank;
use super::{Above, Lowered, Lowering, Role, Slot};
use crate::error::Error;
use crate::plan::diagnose::from_datafusion;
use crate::plan::{CalcNode, ExprRef, NodeId, Operation, as_of};

impl Lowering<'_> {
    pub(super) fn filter(&mut self, filter: &Filter, above: Above) -> Result<Lowered, Error> {
        let terms = split_conjunction(&filter.predicate);
        if terms.iter().any(|term| as_of::arguments(term).is_some()) {
            // A copy of a join's mark, moved below it: it is no condition.
            let rest = terms.into_iter().filter(|term| as_of::arguments(term).is_none());
            return match conjunction(rest.cloned()) {
                None => self.lower(&filter.input, above),
                Some(rest) => {
                    let filter = Filter::try_new(rest, Arc::clone(&filter.input)).map_err(from_datafusion)?;
                    self.filter(&filter, above)
                }
            };
        }
        if let Some(first_rows) = self.first_rows(filter, above)? {
            return Ok(first_rows);
        }
        let input = self.lower(&filter.input, above)?;
        self.filtered(filter, input)
    }

    /// The rows of `input` that the filter keeps.
    pub(super) fn filtered(&mut self, filter: &Filter, mut input: Lowered) -> Result<Lowered, Error> {
        if let Expr::Literal(ScalarValue::Boolean(Some(true)), _) = filter.predicate {
            return Ok(input);
        }
        let schema = filter.input.schema();
        // Rows that a filter takes away have made their sessions all the same.
        let is_session = input.pending.as_ref().is_some_and(|pending| pending.window.is_session());
        input = if is_session {
            self.materialize(input)
        } else {
            self.materialize_for([&filter.predicate], schema, input)?
        };
        let predicate = self.physical(&filter.predicate, schema, &input)?;
        input.node = self.add_filter(input.node, predicate);
        Ok(input)
    }

    pub(super) fn add_filter(&mut self, node: NodeId, predicate: ExprRef) -> NodeId {
        if let Operation::Calc(calc) = &self.plan.nodes[node].operation
            && is_identity(&calc.project, self.schema(self.plan.nodes[node].inputs[0]))
            && let Some(first) = calc.filter.clone()
        {
            let both: ExprRef = Arc::new(BinaryExpr::new(first, Operator::And, predicate));
            if let Operation::Calc(calc) = &mut self.plan.nodes[node].operation {
                calc.filter = Some(both);
            }
            return node;
        }
        let schema = Arc::clone(self.schema(node));
        let project = (0..schema.fields().len()).map(|index| self.column(node, index)).collect();
        let roles = self.roles[node].clone();
        let stream = self.stream(node);
        let calc = CalcNode { filter: Some(predicate), project };
        self.push(Operation::Calc(calc), vec![node], schema, roles, stream)
    }

    pub(super) fn projection(&mut self, projection: &Projection, above: Above) -> Result<Lowered, Error> {
        let drops_rank = above.drops_rank || drops_rank(&projection.input, &projection.expr);
        let mut input = self.lower(&projection.input, Above { drops_rank, ..above })?;
        let schema = projection.input.schema();
        let plain: Vec<Option<usize>> =
            projection.expr.iter().map(|expr| plain_column(expr, schema)).collect();
        let computed = projection.expr.iter().zip(&plain).filter(|(_, plain)| plain.is_none());
        let computed: Vec<&Expr> = computed.map(|(expr, _)| expr).collect();
        if computed.is_empty() {
            let slots = plain.iter().flatten().map(|index| input.slots[*index]).collect();
            return Ok(Lowered { slots, ..input });
        }
        input = self.materialize_for(computed, schema, input)?;
        self.compute(projection, &plain, input)
    }

    fn compute(
        &mut self,
        projection: &Projection,
        plain: &[Option<usize>],
        mut input: Lowered,
    ) -> Result<Lowered, Error> {
        let schema = projection.input.schema();
        let mut project: Vec<ExprRef> = Vec::new();
        let mut fields: Vec<Arc<Field>> = Vec::new();
        let mut roles = Vec::new();
        let mut slots = Vec::new();
        let mut moved = vec![None; self.schema(input.node).fields().len()];
        for (position, expr) in projection.expr.iter().enumerate() {
            let field = projection.schema.field(position);
            match plain[position].map(|index| input.slots[index]) {
                Some(pending @ Slot::Pending(_)) => {
                    slots.push(pending);
                    continue;
                }
                Some(Slot::Column(index)) => {
                    moved[index].get_or_insert(project.len());
                    project.push(self.column(input.node, index));
                    roles.push(self.roles[input.node][index].clone());
                    let name = field.name();
                    fields.push(Arc::new(self.schema(input.node).field(index).clone().with_name(name)));
                }
                None => {
                    project.push(self.physical(expr, schema, &input)?);
                    roles.push(self.computed_role(expr, field.name(), schema, &input)?);
                    fields.push(Arc::new(Field::new(
                        field.name(),
                        field.data_type().clone(),
                        field.is_nullable(),
                    )));
                }
            }
            slots.push(Slot::Column(project.len() - 1));
        }
        if let Some(pending) = &mut input.pending {
            let needed = [&mut pending.time].into_iter().chain(&mut pending.partition);
            for column in needed {
                let given = *column;
                *column = *moved[given].get_or_insert_with(|| {
                    project.push(self.column(input.node, given));
                    roles.push(self.roles[input.node][given].clone());
                    fields.push(Arc::clone(&self.schema(input.node).fields()[given]));
                    project.len() - 1
                });
            }
        }
        for index in input.carried.indexes() {
            let place = moved[*index].unwrap_or_else(|| {
                project.push(self.column(input.node, *index));
                roles.push(self.roles[input.node][*index].clone());
                fields.push(Arc::clone(&self.schema(input.node).fields()[*index]));
                project.len() - 1
            });
            moved[*index].get_or_insert(place);
            *index = place;
        }
        let schema = Arc::new(Schema::new(fields));
        let node = self.add_projection(input.node, project, schema, roles, &moved);
        Ok(Lowered { node, slots, pending: input.pending, carried: input.carried })
    }

    /// What an expression over time attributes is: no longer one.
    pub(super) fn computed_role(
        &self,
        expr: &Expr,
        name: &str,
        schema: &DFSchema,
        input: &Lowered,
    ) -> Result<Role, Error> {
        for column in columns_of([expr], schema)? {
            match self.role(input, column) {
                role @ (Role::Time(_) | Role::Bound(..)) => {
                    let was = schema.field(column).name();
                    let text = crate::plan::text::logical(expr);
                    return Ok(match role {
                        Role::Bound(part, _) if part != super::Part::Time => Role::Plain,
                        _ => Role::Lost(format!("\"{name}\" is computed from \"{was}\" as {text}")),
                    });
                }
                lost @ Role::Lost(_) => return Ok(lost),
                Role::Plain | Role::OfTable(_) => {}
            }
        }
        Ok(Role::Plain)
    }

    /// Adds a projection, into the filter right below if that projects nothing itself. `moved`: where
    /// each column of the input went.
    pub(super) fn add_projection(
        &mut self,
        input: NodeId,
        project: Vec<ExprRef>,
        schema: SchemaRef,
        roles: Vec<Role>,
        moved: &[Option<usize>],
    ) -> NodeId {
        let mut stream = self.stream(input);
        stream.key = stream.key.and_then(|key| key.iter().map(|index| moved[*index]).collect());
        let mut below = input;
        let mut filter = None;
        if let PlanNodeParts::FilterOnly(first, of) = self.parts(input) {
            below = of;
            filter = Some(first);
        }
        let operation = Operation::Calc(CalcNode { filter, project });
        if below == input {
            return self.push(operation, vec![input], schema, roles, stream);
        }
        // The filter was the last node added, and nothing else reads it.
        if input + 1 == self.plan.nodes.len() {
            self.plan.nodes.pop();
            self.roles.pop();
            return self.push(operation, vec![below], schema, roles, stream);
        }
        let Operation::Calc(CalcNode { project, .. }) = operation else { return input };
        self.push(Operation::Calc(CalcNode { filter: None, project }), vec![input], schema, roles, stream)
    }

    fn parts(&self, node: NodeId) -> PlanNodeParts {
        let plan_node = &self.plan.nodes[node];
        match &plan_node.operation {
            Operation::Calc(CalcNode { filter: Some(filter), project })
                if is_identity(project, self.schema(plan_node.inputs[0])) =>
            {
                PlanNodeParts::FilterOnly(Arc::clone(filter), plan_node.inputs[0])
            }
            _ => PlanNodeParts::Other,
        }
    }

    /// The node with exactly the columns that `schema` names, in its order and with its types.
    pub(super) fn layout(&mut self, lowered: Lowered, schema: &SchemaRef) -> Result<NodeId, Error> {
        self.layout_with(lowered, schema, &[])
    }

    /// The same, and behind these columns the `extra` ones of the node as they are.
    pub(super) fn layout_with(
        &mut self,
        lowered: Lowered,
        schema: &SchemaRef,
        extra: &[usize],
    ) -> Result<NodeId, Error> {
        let lowered = self.materialize(lowered);
        let given = Arc::clone(self.schema(lowered.node));
        let mut wanted_fields = schema.fields().to_vec();
        wanted_fields.extend(extra.iter().map(|index| Arc::clone(&given.fields()[*index])));
        let schema = &Arc::new(Schema::new(wanted_fields));
        let indexes: Vec<usize> = lowered
            .slots
            .iter()
            .filter_map(|slot| match slot {
                Slot::Column(index) => Some(*index),
                Slot::Pending(_) => None,
            })
            .chain(extra.iter().copied())
            .collect();
        debug_assert_eq!(indexes.len(), schema.fields().len(), "a slot for each column");
        let same = indexes.len() == given.fields().len()
            && indexes.iter().enumerate().all(|(position, index)| position == *index)
            && given.fields().iter().zip(schema.fields()).all(|(given, wanted)| {
                given.name() == wanted.name() && given.data_type() == wanted.data_type()
            });
        if same {
            return Ok(lowered.node);
        }
        let mut moved = vec![None; given.fields().len()];
        let mut project = Vec::new();
        let mut roles = Vec::new();
        let mut fields = Vec::new();
        for (position, index) in indexes.iter().enumerate() {
            let wanted = schema.field(position);
            let column = self.column(lowered.node, *index);
            let same_type = given.field(*index).data_type() == wanted.data_type();
            if same_type {
                moved[*index].get_or_insert(position);
            }
            roles.push(if same_type { self.roles[lowered.node][*index].clone() } else { Role::Plain });
            project.push(if same_type { column } else { cast(column, wanted, &given)? });
            fields.push(Field::new(
                wanted.name(),
                wanted.data_type().clone(),
                given.field(*index).is_nullable(),
            ));
        }
        Ok(self.add_projection(lowered.node, project, Arc::new(Schema::new(fields)), roles, &moved))
    }
}

enum PlanNodeParts {
    FilterOnly(ExprRef, NodeId),
    Other,
}

fn cast(column: ExprRef, wanted: &Field, schema: &SchemaRef) -> Result<ExprRef, Error> {
    datafusion_physical_expr::expressions::cast(column, schema, wanted.data_type().clone())
        .map_err(crate::plan::diagnose::from_datafusion)
}

fn is_identity(project: &[ExprRef], schema: &SchemaRef) -> bool {
    project.len() == schema.fields().len()
        && project.iter().enumerate().all(|(position, expr)| {
            expr.downcast_ref::<Column>().is_some_and(|column| column.index() == position)
        })
}
