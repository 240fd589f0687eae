//! Where the rows of a query go.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion_expr::LogicalPlan;

use super::not_null::NotNull;
use super::regular_join::UNTIMED;
use super::source::CHANGES;
use super::top_n::FIRST_ROWS;
use super::{Above, Lowering};
use crate::catalog::Table;
use crate::error::{Error, Span, code};
use crate::plan::bind::is_writable;
use crate::plan::emit::UNWINDOWED;
use crate::plan::{ExprRef, NodeId, Operation, SinkNode, SinkTarget};

/// Where the rows of a query go.
#[derive(Debug, Clone)]
pub(in crate::plan) enum Target {
    /// To the caller.
    Result,
    /// To a table, named at this place.
    Table(Arc<Table>, Option<Span>),
}

impl Lowering<'_> {
    /// Lowers a query and ends it with its sink.
    pub(super) fn sink(&mut self, plan: &LogicalPlan, target: Target) -> Result<(), Error> {
        let lowered = self.lower(plan, Above::default())?;
        let schema: SchemaRef = Arc::clone(plan.schema().inner());
        let mut node = self.layout(lowered, &schema)?;
        if let Target::Table(table, _) = &target {
            node = self.enforce_not_null(node, table)?;
        }
        let mut upsert = false;
        let target = match target {
            Target::Result => SinkTarget::Result,
            Target::Table(table, span) => {
                if let Some((clause, place)) = self.changing_clause(node) {
                    let facts = self.session.connectors.check(&table)?;
                    if !facts.takes_changelog {
                        return Err(takes_no_changes(&table, clause).at(place.or(span)));
                    }
                    upsert = facts.upserts && self.is_told_apart(node, &table);
                }
                SinkTarget::Table(table)
            }
        };
        let stream = self.stream(node);
        let (schema, roles) = (Arc::clone(self.schema(node)), self.roles[node].clone());
        let sink = self.push(Operation::Sink(SinkNode { target, upsert }), vec![node], schema, roles, stream);
        self.plan.sinks.push(sink);
        Ok(())
    }

    /// Whether rows that change are told apart by the PRIMARY KEY of the table that they go to.
    fn is_told_apart(&mut self, node: NodeId, table: &Table) -> bool {
        if table.primary_key.is_empty() {
            return false;
        }
        let columns: Vec<&str> = table
            .columns
            .iter()
            .filter(|column| is_writable(&column.kind))
            .map(|column| column.name.as_str())
            .collect();
        let is_of_key = |index: &usize| {
            columns.get(*index).is_some_and(|name| table.primary_key.iter().any(|key| key == name))
        };
        let key = self.plan.nodes[node].properties.key.as_ref();
        if key.is_some_and(|key| key.iter().all(is_of_key)) {
            return true;
        }
        let names = |key: &Vec<usize>| {
            key.iter().filter_map(|index| columns.get(*index).copied()).collect::<Vec<_>>().join(", ")
        };
        let by = key
            .map_or_else(|| "by no columns that are known".to_owned(), |key| format!("by ({})", names(key)));
        self.warn(format!(
            "rows of the query are told apart {by}, those of \"{}\" by ({}): both forms of a row that changes are written",
            table.name,
            table.primary_key.join(", ")
        ));
        false
    }

    /// Checks the values of NOT NULL columns where the query does not promise them.
    fn enforce_not_null(&mut self, node: NodeId, table: &Table) -> Result<NodeId, Error> {
        let columns: Vec<_> = table.columns.iter().filter(|column| is_writable(&column.kind)).collect();
        let given = Arc::clone(self.schema(node));
        let unsafe_column = |index: usize| !columns[index].nullable && given.field(index).is_nullable();
        if !(0..columns.len()).any(unsafe_column) {
            return Ok(node);
        }
        let project = (0..columns.len())
            .map(|index| {
                let column = self.column(node, index);
                if unsafe_column(index) {
                    Arc::new(NotNull::new(column, &columns[index].name, &table.name)) as ExprRef
                } else {
                    column
                }
            })
            .collect();
        let field = |index: usize| -> Field {
            let field = given.field(index).clone();
            let nullable = field.is_nullable() && columns[index].nullable;
            field.with_nullable(nullable)
        };
        let schema = Arc::new(Schema::new((0..columns.len()).map(field).collect::<Vec<_>>()));
        let moved: Vec<Option<usize>> = (0..columns.len()).map(Some).collect();
        let roles = self.roles[node].clone();
        Ok(self.add_projection(node, project, schema, roles, &moved))
    }
}

/// A sink that takes only new rows is fed by a query that changes them.
fn takes_no_changes(table: &Table, clause: &str) -> Error {
    let message = format!(
        "{} changes rows that it has given, \"{}\" ({}) takes only new ones",
        if clause == CHANGES { clause.to_owned() } else { format!("the query block with {clause}") },
        table.name,
        table.connector
    );
    let error = Error::plan(code::SINK_CHANGELOG, message);
    if clause == UNWINDOWED {
        return error.hint(
            "Group by a window, whose results are final, or write changes: to 'format' = 'changelog-json'.",
        );
    }
    if clause == FIRST_ROWS {
        return error.hint(
            "Partition by window_start and window_end, whose first rows are final, or write changes: to 'format' = \
             'changelog-json'.",
        );
    }
    if clause == CHANGES {
        return error.hint(
            "Aggregate its rows in windows over its event time, or write changes: to 'format' = 'changelog-json'.",
        );
    }
    if clause == UNTIMED {
        return error
            .hint("Bound how far the times are apart, or write changes: to 'format' = 'changelog-json'.");
    }
    error.hint(format!(
        "Leave {clause} out, so that windows give final results only, or write changes: to 'format' = 'changelog-json'."
    ))
}
