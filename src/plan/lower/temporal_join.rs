//! Joins with the version of a table that was valid at the time of a row.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::expr::WindowFunctionParams;
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Expr, Join, Operator};
use datafusion_physical_expr::expressions::{BinaryExpr, Column, lit};

use super::expression::plain_column;
use super::late::Carried;
use super::{Above, Lowered, Lowering, Role, Slot, Stream, unsupported};
use crate::catalog::Relation;
use crate::error::{Error, code};
use crate::plan::diagnose::from_datafusion;
use crate::plan::latest::latest;
use crate::plan::{Distribution, ExprRef, JoinKind, Operation, TemporalJoinNode, as_of};
use crate::stream::TimeUnit;

/// What a mark says.
#[derive(Debug, Clone)]
pub(super) struct Versioned {
    /// The columns of the times in the nodes of both inputs.
    times: [usize; 2],
    unit: TimeUnit,
    /// The table of the versions.
    table: String,
}

impl Lowering<'_> {
    /// Whether the second input of a join is a view whose rows are versions.
    ///
    /// # Errors
    /// `P002` for a view whose rows are none.
    pub(super) fn has_versions_of_view(&self, join: &Join) -> Result<bool, Error> {
        let terms = join.filter.as_ref().map(split_conjunction).unwrap_or_default();
        let Some([_, _, table]) = terms.into_iter().find_map(as_of::arguments) else { return Ok(false) };
        let Expr::Literal(ScalarValue::Utf8(Some(name)), _) = table else { return Ok(false) };
        if self.is_lookup(join) || !self.is_view(name) {
            return Ok(false);
        }
        if latest(&join.right).is_some_and(|latest| latest.time().is_some()) {
            return Ok(true);
        }
        let message = format!(
            "FOR SYSTEM_TIME AS OF over the view \"{name}\", which does not keep the last row of each key, can't run yet"
        );
        Err(Error::plan(code::NOT_SUPPORTED, message).at(self.places.join).hint(
            "Select the key, the time attribute ts and other columns where ROW_NUMBER() OVER (PARTITION BY key ORDER BY ts DESC) \
             = 1; or join a table with a PRIMARY KEY and a WATERMARK.",
        ))
    }

    /// The rows of a view that keeps the last row of each key, each a version. What the rows are numbered by is
    /// what versions are told apart by.
    pub(super) fn versions(
        &mut self,
        params: &WindowFunctionParams,
        schema: &DFSchema,
        mut input: Lowered,
        above: Above,
    ) -> Result<Lowered, Error> {
        let key = self.columns_for(&params.partition_by, schema, &mut input)?;
        let single = above.order || key.is_empty();
        let distribution = if single { Distribution::Single } else { Distribution::Hash(key) };
        // Conditions below say which rows are versions, those above what a version must be like: this keeps them
        // apart.
        input.node = self.add_exchange(input.node, distribution);
        let width = self.schema(input.node).fields().len();
        if !above.drops_rank {
            let mut project: Vec<ExprRef> = (0..width).map(|index| self.column(input.node, index)).collect();
            project.push(lit(1_i64));
            let mut fields = self.schema(input.node).fields().to_vec();
            fields.push(Arc::new(Field::new("row_number()", DataType::Int64, false)));
            let mut roles = self.roles[input.node].clone();
            roles.push(Role::Plain);
            let moved: Vec<Option<usize>> = (0..width).map(Some).collect();
            input.node =
                self.add_projection(input.node, project, Arc::new(Schema::new(fields)), roles, &moved);
        }
        input.slots.push(Slot::Column(width));
        Ok(input)
    }

    /// The mark in the condition of a join; `None`: it is no join with versions.
    pub(super) fn versioned(&self, join: &Join, inputs: &[Lowered; 2]) -> Result<Option<Versioned>, Error> {
        let terms = join.filter.as_ref().map(split_conjunction).unwrap_or_default();
        let Some([time, valid_from, table]) = terms.into_iter().find_map(as_of::arguments) else {
            return Ok(None);
        };
        self.check_versions(table, join)?;
        let attribute = |input: usize, expr: &Expr| {
            let schema = if input == 0 { join.left.schema() } else { join.right.schema() };
            let column = plain_column(expr, schema)?;
            let unit = self.role(&inputs[input], column).time_unit()?;
            match inputs[input].slots[column] {
                Slot::Column(index) => Some((index, unit)),
                Slot::Pending(_) => None,
            }
        };
        let refuse = |what: &str| {
            let message = format!("FOR SYSTEM_TIME AS OF needs {what}");
            Err(Error::plan(code::NOT_A_TIME_COLUMN, message)
                .at(self.places.join)
                .hint("Name the time attribute of the table before JOIN, such as o.ts."))
        };
        let Some((first, unit)) = attribute(0, time) else {
            return refuse("a time attribute of the rows before it");
        };
        let Some((second, _)) = attribute(1, valid_from) else {
            return refuse("a table that still has its time attribute");
        };
        let Expr::Literal(ScalarValue::Utf8(Some(table)), _) = table else {
            return Err(Error::internal("the planner", "a join with versions of no table"));
        };
        Ok(Some(Versioned { times: [first, second], unit, table: table.clone() }))
    }

    /// Rows are versions only with a key and a time.
    fn check_versions(&self, table: &Expr, join: &Join) -> Result<(), Error> {
        let Expr::Literal(ScalarValue::Utf8(Some(name)), _) = table else { return Ok(()) };
        let Some(Relation::Table(known)) = self.session.catalog.get(name) else { return Ok(()) };
        let lacks = match (known.primary_key.is_empty(), known.watermark.is_none()) {
            (true, _) => "a PRIMARY KEY",
            (_, true) => "a WATERMARK",
            (false, false) => return Ok(()),
        };
        debug_assert!(join.filter.is_some(), "the mark stands in the condition");
        let message = format!("FOR SYSTEM_TIME AS OF needs {lacks}, which \"{name}\" lacks");
        Err(Error::plan(code::INVALID_QUERY, message).at(self.places.join).hint(
            "Declare PRIMARY KEY (…) NOT ENFORCED and a WATERMARK, so that rows are versions; or, to look rows up as \
             they are, name a PROCTIME() column of the table before JOIN.",
        ))
    }

    pub(super) fn temporal_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        versioned: &Versioned,
        mut inputs: [Lowered; 2],
        above: Above,
    ) -> Result<Lowered, Error> {
        if !matches!(kind, JoinKind::Inner | JoinKind::Left) {
            return Err(unsupported("FOR SYSTEM_TIME AS OF of this kind of join").at(self.places.join));
        }
        self.check_key(join, &versioned.table)?;
        let mut versioned = versioned.clone();
        let chosen = self.lift_filter(&mut inputs[1], &mut versioned.times[1])?;
        let pairs: Vec<&(Expr, Expr)> = join.on.iter().collect();
        let keys = self.join_keys(join, &pairs, &mut inputs)?;
        self.exchange_sides(&keys, &mut inputs, above);
        let first_width = self.schema(inputs[0].node).fields().len();
        let pair = self.pair_schema(&inputs, [false, false]);
        let terms = join.filter.as_ref().map(split_conjunction).unwrap_or_default();
        let terms = terms.into_iter().filter(|term| as_of::arguments(term).is_none());
        let condition = match conjunction(terms.cloned()) {
            Some(filter) => Some(self.over_pairs(join, &filter, &inputs, &pair)?),
            None => None,
        };
        let condition = match (condition, chosen) {
            (Some(condition), Some(chosen)) => {
                let chosen = behind(&chosen, first_width)?;
                Some(Arc::new(BinaryExpr::new(condition, Operator::And, chosen)) as ExprRef)
            }
            (None, Some(chosen)) => Some(behind(&chosen, first_width)?),
            (condition, None) => condition,
        };
        let (schema, slots) = self.joined_columns(kind, &inputs);
        let mut roles = self.roles[inputs[0].node].clone();
        let lost = |role: &Role| match role {
            role if role.time_unit().is_some() => {
                Role::Lost("behind FOR SYSTEM_TIME AS OF time is that of the first table".to_owned())
            }
            Role::Bound(..) => Role::Plain,
            other => other.clone(),
        };
        for (index, role) in roles.iter_mut().enumerate().filter(|(index, _)| *index != versioned.times[0]) {
            debug_assert_ne!(index, versioned.times[0]);
            *role = lost(role);
        }
        roles.extend(self.roles[inputs[1].node].iter().map(lost));
        let (bounded, watermark) = self.both(&inputs);
        let nodes = inputs.each_ref().map(|input| input.node);
        let time_type = self.schema(nodes[0]).field(versioned.times[0]).data_type().clone();
        let operation = Operation::TemporalJoin(Box::new(TemporalJoinNode {
            kind,
            times: versioned.times,
            unit: versioned.unit,
            keys,
            condition,
            pair,
            first_width,
        }));
        let stream = Stream { bounded, watermark, key: None };
        let node = self.push(operation, nodes.to_vec(), schema, roles, stream);
        self.add_join_late_output(node, join, &inputs, [&time_type, &time_type])?;
        Ok(Lowered { node, slots, pending: None, carried: Carried::default() })
    }

    /// A condition on versions that was moved below the join: it must be above, for it does not choose which
    /// versions there are, but which rows have one. `time`: a column of the node, which moves with it.
    fn lift_filter(&mut self, input: &mut Lowered, time: &mut usize) -> Result<Option<ExprRef>, Error> {
        let node = &self.plan.nodes[input.node];
        let Operation::Calc(calc) = &node.operation else { return Ok(None) };
        let Some(filter) = calc.filter.clone() else { return Ok(None) };
        let below = node.inputs[0];
        let origin = |column: usize| {
            let column = calc.project.get(column)?.downcast_ref::<Column>()?;
            Some(column.index())
        };
        let origins: Option<Vec<usize>> = (0..calc.project.len()).map(origin).collect();
        let Some(origins) = origins else {
            return Err(unsupported("a condition on computed columns of versions")
                .at(self.places.join)
                .hint("Put the condition into an outer query: SELECT … FROM (SELECT … JOIN …) WHERE …."));
        };
        for slot in &mut input.slots {
            if let Slot::Column(index) = slot {
                *index = origins[*index];
            }
        }
        for index in input.carried.indexes() {
            *index = origins[*index];
        }
        *time = origins[*time];
        if input.node + 1 == self.plan.nodes.len() {
            self.plan.nodes.pop();
            self.roles.pop();
        }
        input.node = below;
        Ok(Some(filter))
    }

    fn is_view(&self, name: &str) -> bool {
        matches!(self.session.catalog.get(name), Some(Relation::View(_)))
    }

    /// A row must have one version: the condition sets the primary key equal, and nothing else.
    fn check_key(&self, join: &Join, table: &str) -> Result<(), Error> {
        let schema = join.right.schema();
        if let Some(latest) = latest(&join.right).filter(|_| self.is_view(table)) {
            let columns: Vec<_> = join.on.iter().map(|(_, second)| plain_column(second, schema)).collect();
            if latest.is_key(&columns) {
                return Ok(());
            }
            let message = format!("the condition must set the columns of PARTITION BY of \"{table}\" equal");
            return Err(Error::plan(code::INVALID_QUERY, message)
                .at(self.places.join)
                .hint("Set them all equal, and put further conditions on its columns into WHERE."));
        }
        let Some(Relation::Table(known)) = self.session.catalog.get(table) else {
            return Err(Error::internal("the planner", format!("no table \"{table}\"")));
        };
        let name = |expr: &Expr| Some(schema.field(plain_column(expr, schema)?).name().clone());
        let mut names: Vec<Option<String>> = join.on.iter().map(|(_, second)| name(second)).collect();
        names.sort();
        let mut key: Vec<Option<String>> = known.primary_key.iter().cloned().map(Some).collect();
        key.sort();
        if names == key {
            return Ok(());
        }
        let message = format!(
            "the condition must set the PRIMARY KEY of \"{table}\" equal: ({})",
            known.primary_key.join(", ")
        );
        Err(Error::plan(code::INVALID_QUERY, message)
            .at(self.places.join)
            .hint("Put further conditions on its columns into WHERE."))
    }
}

/// An expression over columns that stand behind so many others.
fn behind(expr: &ExprRef, width: usize) -> Result<ExprRef, Error> {
    let moved = Arc::clone(expr).transform(|part| match part.downcast_ref::<Column>() {
        Some(column) => {
            let moved = Column::new(column.name(), column.index() + width);
            Ok(Transformed::yes(Arc::new(moved) as ExprRef))
        }
        None => Ok(Transformed::no(part)),
    });
    Ok(moved.map_err(from_datafusion)?.data)
}
