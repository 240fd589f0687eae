//! Window functions: the time column's right to be one, and windows that must be computed.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion_common::DFSchema;
use datafusion_expr::{Expr, Extension, LogicalPlan};

use super::expression::{columns_of, plain_column};
use super::late::Carried;
use super::{Above, Lowered, Lowering, Part, Pending, Role, Slot, Window, late};
use crate::catalog::{ColumnKind, Table};
use crate::error::{Error, code};
use crate::plan::bind::StreamTable;
use crate::plan::diagnose::from_datafusion;
use crate::plan::window::{WindowCall, WindowNode};
use crate::plan::{Distribution, Operation, WindowKind, WindowRowsNode};

impl Lowering<'_> {
    pub(super) fn window(&mut self, extension: &Extension, above: Above) -> Result<Lowered, Error> {
        let Some(node) = extension.node.as_any().downcast_ref::<WindowNode>() else {
            return Err(Error::internal("the planner", format!("unknown node {}", extension.node.name())));
        };
        let Expr::Column(column) = &node.time else {
            return Err(Error::internal("the planner", "the time of a window is no column"));
        };
        let column = node.input.schema().index_of_column(column).map_err(from_datafusion)?;
        let outer = std::mem::replace(&mut self.by_clock, is_by_clock(&node.input, column));
        let input = self.lower(&node.input, Above { keeps_time: true, ..above });
        self.by_clock = outer;
        let mut input = self.materialize(input?);
        let updating = self.plan.nodes[input.node].properties.updating;
        if matches!(node.spec.kind, WindowKind::Session { .. }) {
            self.refuse_changes(input.node, node.call.function.name())?;
        }
        let role = self.role(&input, column);
        if role.time_unit().is_none() || !self.plan.nodes[input.node].properties.watermark {
            return Err(no_time_attribute(&role, &node.call));
        }
        let Slot::Column(time) = input.slots[column] else {
            return Err(Error::internal("the planner", "the time of a window is not computed"));
        };
        let data_type = self.schema(input.node).field(time).data_type().clone();
        let window = Window { id: node.id, spec: node.spec };
        let partition = self.columns_for(&node.partition, node.input.schema(), &mut input)?;
        let mut carried = Carried { copies: None, ..input.carried.clone() };
        carried.columns = match node.keeps_all {
            true => late::named_columns(node.input.schema(), &input.slots),
            false => Vec::new(),
        };
        let mut slots = input.slots;
        slots.extend(Part::ALL.map(Slot::Pending));
        let pending = Pending { window, time, data_type, partition, in_order: above.order };
        let lowered = Lowered { node: input.node, slots, pending: Some(pending), carried };
        Ok(if updating { self.materialize(lowered) } else { lowered })
    }

    /// Computes a pending window, so that its columns have values.
    pub(super) fn materialize(&mut self, lowered: Lowered) -> Lowered {
        let Lowered { mut node, slots, pending: Some(pending), mut carried } = lowered else {
            return lowered;
        };
        let is_session = pending.window.is_session();
        if matches!(pending.window.spec.kind, WindowKind::Hop { .. } | WindowKind::Cumulate { .. }) {
            carried.copies = Some((pending.time, pending.window.id));
        }
        if is_session {
            node = self.add_exchange(node, session_distribution(&pending.partition, pending.in_order));
        }
        let given = Arc::clone(self.schema(node));
        let base = given.fields().len();
        let mut fields: Vec<Arc<Field>> = given.fields().to_vec();
        let mut roles = self.roles[node].clone();
        if is_session {
            for (role, field) in roles.iter_mut().zip(given.fields()) {
                if role.time_unit().is_some() {
                    *role = Role::Lost(format!(
                        "a row of SESSION comes when its session is over, which \"{}\" does not tell",
                        field.name()
                    ));
                }
            }
        }
        for part in Part::ALL {
            let data_type = part.data_type(&pending.data_type, pending.window.spec.zone);
            fields.push(Arc::new(Field::new(part.name(), data_type, false)));
            roles.push(Role::Bound(part, pending.window));
        }
        let operation = Operation::WindowRows(WindowRowsNode {
            time: pending.time,
            window: pending.window.spec,
            partition: pending.partition,
        });
        let mut stream = self.stream(node);
        stream.key = None;
        let node = self.push(operation, vec![node], Arc::new(Schema::new(fields)), roles, stream);
        if !carried.columns.is_empty() {
            let bound = Part::End.data_type(&pending.data_type, pending.window.spec.zone);
            let types = [&pending.data_type, &bound];
            self.add_late_output(node, &carried, &carried.columns, types, is_session);
        }
        let slots = slots
            .into_iter()
            .map(|slot| match slot {
                Slot::Pending(part) => Slot::Column(base + part as usize),
                column @ Slot::Column(_) => column,
            })
            .collect();
        Lowered { node, slots, pending: None, carried }
    }

    /// Computes a pending window if one of `exprs` reads its columns.
    pub(super) fn materialize_for<'e>(
        &mut self,
        exprs: impl IntoIterator<Item = &'e Expr>,
        schema: &DFSchema,
        lowered: Lowered,
    ) -> Result<Lowered, Error> {
        let reads = columns_of(exprs, schema)?;
        let pending = reads.iter().any(|column| matches!(lowered.slots[*column], Slot::Pending(_)));
        Ok(if pending { self.materialize(lowered) } else { lowered })
    }
}

/// Where the rows of a session meet.
pub(super) fn session_distribution(partition: &[usize], in_order: bool) -> Distribution {
    if in_order || partition.is_empty() {
        Distribution::Single
    } else {
        Distribution::Hash(partition.to_vec())
    }
}

/// Whether a column of a plan is a `PROCTIME()` column as it comes from its table.
pub(super) fn is_by_clock(plan: &LogicalPlan, column: usize) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let index = scan.projection.as_ref().map_or(Some(&column), |wanted| wanted.get(column));
            let table = scan.source.downcast_ref::<StreamTable>().map(|source| &source.table);
            let kind = table.zip(index).and_then(|(table, index)| Some(&table.columns.get(*index)?.kind));
            kind.is_some_and(ColumnKind::is_processing_time)
        }
        LogicalPlan::Projection(projection) => {
            let input = plain_column(&projection.expr[column], projection.input.schema());
            input.is_some_and(|column| is_by_clock(&projection.input, column))
        }
        LogicalPlan::SubqueryAlias(alias) => is_by_clock(&alias.input, column),
        LogicalPlan::Filter(filter) => is_by_clock(&filter.input, column),
        LogicalPlan::Union(union) => union.inputs.iter().all(|input| is_by_clock(input, column)),
        _ => false,
    }
}

fn is_processing(table: &Table, name: &str) -> bool {
    table.column_index(name).is_some_and(|index| table.columns[index].kind.is_processing_time())
}

/// Why a column can't give the time of a window.
fn no_time_attribute(role: &Role, call: &WindowCall) -> Error {
    let (name, function) = (&call.time, call.function.name());
    let error = match role {
        Role::Lost(how) => {
            Error::plan(code::LOST_TIME_ATTRIBUTE, format!("\"{name}\" is no longer a time attribute: {how}"))
                .hint(format!(
                    "Give {function} the column as it comes from the table, or the window_time of a window."
                ))
        }
        Role::Bound(part, _) if *part != Part::Time => Error::plan(
            code::LOST_TIME_ATTRIBUTE,
            format!("\"{name}\" is the {} of a window and no time attribute", part.name()),
        )
        .hint("Use window_time: add it to SELECT and GROUP BY of the inner query."),
        Role::OfTable(table) => match &table.watermark {
            Some(_) if is_processing(table, name) => Error::plan(
                code::NOT_SUPPORTED,
                format!(
                    "\"{name}\" can't be followed from \"{}\", which has event time, to this window by the clock",
                    table.name
                ),
            )
            .hint(format!("Put the window right over \"{}\", or over a query that keeps {name} as it is.", table.name)),
            Some(watermark) => Error::plan(
                code::NOT_A_TIME_COLUMN,
                format!(
                    "\"{name}\" is no time attribute: the watermark of \"{}\" is declared for \"{}\"",
                    table.name, watermark.column
                ),
            )
            .hint(format!("Use DESCRIPTOR({}).", watermark.column)),
            None => Error::plan(
                code::NO_WATERMARK,
                format!(
                    "\"{name}\" of \"{}\" has no watermark, so no window over it could close",
                    table.name
                ),
            )
            .hint(format!(
                "Add WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND to the columns of \"{}\".",
                table.name
            )),
        },
        Role::Plain | Role::Bound(..) | Role::Time(_) => {
            Error::plan(code::NO_WATERMARK, format!("\"{name}\" is no time attribute"))
                .hint("Use a column that a table declares a WATERMARK for, or the window_time of a window.")
        }
    };
    error.at(call.time_span)
}
