//! MATCH_RECOGNIZE: conditions over rows and over what they read of a match.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, DataFusionError};
use datafusion_expr::{Expr, ExprSchemable, SortExpr};

use super::expression::Scope;
use super::late::{Carried, named_columns};
use super::{Above, Lowered, Lowering, Role, Slot, Stream};
use crate::error::{Error, code};
use crate::plan::diagnose::from_datafusion;
use crate::plan::pattern::{PatternNode, Value, ValueKind, VariableDefinition, value_column};
use crate::plan::{
    AggregateCall, Distribution, ExprRef, MatchCondition, MatchRecognizeNode, MatchValue, MatchValueKind,
    Operation, PatternVariable, SortKey,
};

impl Lowering<'_> {
    pub(super) fn pattern(&mut self, node: &PatternNode, above: Above) -> Result<Lowered, Error> {
        let clause = &node.clause;
        let schema = node.input.schema();
        // Rows of one time are in the order of arrival, which must not depend on parallelism.
        let input = self.lower(&node.input, Above { order: true, ..Above::default() })?;
        let mut input = self.materialize(input);
        self.refuse_changes(input.node, "MATCH_RECOGNIZE")?;
        let column = schema.index_of_column(&clause.time).map_err(from_datafusion)?;
        let unit = match self.role(&input, column).time_unit() {
            Some(unit) if self.plan.nodes[input.node].properties.watermark => unit,
            _ => {
                let message = format!(
                    "\"{}\" is no time attribute, so MATCH_RECOGNIZE can't tell the order of rows by it",
                    clause.time.name
                );
                return Err(Error::plan(code::NOT_A_TIME_COLUMN, message).at(clause.time_span).hint(
                    "Order by a column that a table declares a WATERMARK for, as it comes from the table.",
                ));
            }
        };
        let Slot::Column(time) = input.slots[column] else {
            return Err(Error::internal("the planner", "the time of a pattern is not computed"));
        };
        let partition = self.columns_for(&clause.partition, schema, &mut input)?;
        let single = above.order || partition.is_empty();
        let distribution = if single { Distribution::Single } else { Distribution::Hash(partition.clone()) };
        input.node = self.add_exchange(input.node, distribution);
        let key = |key: &SortExpr| -> Result<SortKey, Error> {
            let expr = self.physical(&key.expr, schema, &input)?;
            Ok(SortKey { expr, descending: !key.asc, nulls_first: key.nulls_first })
        };
        let order = clause.order.iter().map(key).collect::<Result<Vec<_>, _>>()?;
        let variable = |variable| self.pattern_variable(variable, schema, &input);
        let variables = clause.variables.iter().map(variable).collect::<Result<Vec<_>, _>>()?;
        let (values, fields) = self.match_values(&clause.values, schema, &input)?;
        let values_schema: SchemaRef = Arc::new(Schema::new(fields));
        let scope = Scope::of(&values_schema)?;
        let measure = |expr: &Expr| {
            self.check_expression(expr)?;
            let value =
                |name: &str| clause.values.iter().enumerate().position(|(at, _)| value_column(at) == name);
            scoped(expr, &scope, |name, _| value(name))
        };
        let measures = clause.measures.iter().map(measure).collect::<Result<Vec<_>, _>>()?;
        let measured = clause.measures.iter().map(|expr| self.measured_role(node, expr, unit, &input));
        let measured: Vec<Role> = measured.collect();
        let gives_time = measured.iter().any(|role| role.time_unit().is_some());
        let given = Arc::clone(self.schema(input.node));
        let mut fields: Vec<Arc<Field>> =
            partition.iter().map(|key| Arc::clone(&given.fields()[*key])).collect();
        fields.extend(node.schema.fields()[partition.len()..].iter().cloned());
        let mut roles: Vec<Role> =
            partition.iter().map(|key| not_time(&self.roles[input.node][*key])).collect();
        roles.extend(measured);
        let stream = Stream { key: None, ..self.stream(input.node) };
        let grows = variables.iter().any(|variable| variable.max.is_none()) && clause.within_us.is_none();
        if grows && !stream.bounded {
            self.warn(
                "MATCH_RECOGNIZE without WITHIN keeps the rows of a match that has begun until it is decided"
                    .to_owned(),
            );
        }
        let operation = Operation::MatchRecognize(Box::new(MatchRecognizeNode {
            time,
            unit,
            partition,
            order,
            variables,
            within_us: clause.within_us,
            skip: clause.skip,
            values,
            values_schema,
            measures,
            gives_time,
            text: clause.text.clone(),
        }));
        let slots = (0..fields.len()).map(Slot::Column).collect();
        let output = self.push(operation, vec![input.node], Arc::new(Schema::new(fields)), roles, stream);
        if self.late.is_open() {
            let time_type = given.field(time).data_type();
            let columns = named_columns(schema, &input.slots);
            self.add_late_output(output, &input.carried, &columns, [time_type, time_type], true);
        }
        Ok(Lowered { node: output, slots, pending: None, carried: Carried::default() })
    }

    fn pattern_variable(
        &self,
        variable: &VariableDefinition,
        schema: &DFSchema,
        input: &Lowered,
    ) -> Result<PatternVariable, Error> {
        let row_condition =
            variable.row_condition.as_ref().map(|expr| self.physical(expr, schema, input)).transpose()?;
        let match_condition =
            variable.match_condition.as_ref().map(|expr| self.match_condition(expr, variable, schema, input));
        Ok(PatternVariable {
            name: variable.shape.name.value.clone(),
            min: variable.shape.min,
            max: variable.shape.max,
            is_greedy: variable.shape.is_greedy,
            row_condition,
            match_condition: match_condition.transpose()?,
            text: variable.text.clone(),
        })
    }

    fn match_condition(
        &self,
        expr: &Expr,
        variable: &VariableDefinition,
        schema: &DFSchema,
        input: &Lowered,
    ) -> Result<MatchCondition, Error> {
        self.check_expression(expr)?;
        let given = self.schema(input.node);
        let mut columns: Vec<usize> = Vec::new();
        for column in expr.column_refs() {
            if let Some(column) = schema.maybe_index_of_column(column)
                && let Slot::Column(index) = input.slots[column]
                && !columns.contains(&index)
            {
                columns.push(index);
            }
        }
        let (values, value_fields) = self.match_values(&variable.values, schema, input)?;
        let mut fields: Vec<Arc<Field>> =
            columns.iter().map(|column| Arc::clone(&given.fields()[*column])).collect();
        fields.extend(value_fields.into_iter().map(Arc::new));
        let own: SchemaRef = Arc::new(Schema::new(fields));
        let scope = Scope::of(&own)?;
        let condition = scoped(expr, &scope, |name, column| match schema.maybe_index_of_column(column) {
            Some(column) => match input.slots[column] {
                Slot::Column(index) => columns.iter().position(|known| *known == index),
                Slot::Pending(_) => None,
            },
            None => (0..values.len()).find(|at| value_column(*at) == name).map(|at| columns.len() + at),
        })?;
        Ok(MatchCondition { columns, values, schema: own, condition })
    }

    /// The values, and the columns that have them.
    fn match_values(
        &self,
        values: &[Value],
        schema: &DFSchema,
        input: &Lowered,
    ) -> Result<(Vec<MatchValue>, Vec<Field>), Error> {
        let (mut given, mut fields) = (Vec::with_capacity(values.len()), Vec::with_capacity(values.len()));
        for (index, value) in values.iter().enumerate() {
            let data_type: DataType = value.expr.get_type(schema).map_err(from_datafusion)?;
            let kind = match value.kind {
                ValueKind::Row { from_last, offset } => {
                    let value = self.physical(&value.expr, schema, input)?;
                    MatchValueKind::Row { from_last, offset, value }
                }
                ValueKind::Aggregate => {
                    let lowered = self.physical_aggregate(&value.expr, schema, input)?;
                    MatchValueKind::Aggregate(AggregateCall {
                        function: lowered.aggregate,
                        filter: lowered.filter,
                        order_sensitive: true,
                        inexact: true,
                    })
                }
            };
            given.push(MatchValue { variable: value.variable, kind });
            fields.push(Field::new(value_column(index), data_type, true));
        }
        Ok((given, fields))
    }

    /// What a measure means for event time.
    fn measured_role(
        &self,
        node: &PatternNode,
        measure: &Expr,
        unit: crate::stream::TimeUnit,
        input: &Lowered,
    ) -> Role {
        let Expr::Column(column) = measure else { return Role::Plain };
        let values = &node.clause.values;
        let value = (0..values.len()).find(|at| value_column(*at) == column.name).map(|at| &values[at]);
        let Some(value) = value else { return Role::Plain };
        if value.is_rowtime {
            return Role::Time(unit);
        }
        match &value.expr {
            Expr::Column(column) => {
                let index = node.input.schema().maybe_index_of_column(column);
                index.map_or(Role::Plain, |index| not_time(&self.role(input, index)))
            }
            _ => Role::Plain,
        }
    }
}

/// What a column of a row means in the row of a match.
fn not_time(role: &Role) -> Role {
    match role {
        role if role.time_unit().is_some() => {
            Role::Lost("the time of a match is that of its last row: MATCH_ROWTIME() in MEASURES".to_owned())
        }
        Role::Bound(..) => Role::Plain,
        other => other.clone(),
    }
}

/// The physical expression over the columns of a scope; `place`: which of them a column is.
fn scoped(
    expr: &Expr,
    scope: &Scope,
    place: impl Fn(&str, &datafusion_common::Column) -> Option<usize>,
) -> Result<ExprRef, Error> {
    let replaced = expr.clone().transform(|part| {
        let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
        match place(&column.name, column) {
            Some(index) => Ok(Transformed::yes(scope.column(index))),
            None => Err(DataFusionError::Internal(format!("{column} is no value of a match"))),
        }
    });
    scope.physical(&replaced.map_err(from_datafusion)?.data).map_err(from_datafusion)
}
