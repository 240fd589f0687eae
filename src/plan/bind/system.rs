//! The tables `system.…`: their names, and reading them again and again.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion_common::Result as DfResult;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::{LogicalPlan, TableScan};
use sqlparser::ast::{Expr, Ident, ObjectName, ObjectNamePart, TableAlias, TableFactor};

use super::names::is_table_argument;
use super::provider::StreamTable;
use crate::catalog::{Catalog, OptionEntry, Options, SYSTEM_CONNECTOR, SYSTEM_EVERY, Table};
use crate::plan::EmitMode;
use crate::plan::emit::Emission;
use crate::sql::{TreeRewriter, Walk};

/// How often a stream of such a table reads it, where the query does not say.
const DEFAULT_EVERY_US: i64 = 1_000_000;

/// Makes one name of `system.x`, where there is such a table; without an alias it is called `x`.
pub(super) struct SystemNames<'a>(pub(super) &'a Catalog);

impl SystemNames<'_> {
    /// The name of the table that two names mean.
    fn table(&self, parts: &[&Ident]) -> Option<Ident> {
        let [first, last] = parts else { return None };
        let name = format!("{}.{}", first.value.to_lowercase(), last.value.to_lowercase());
        let name = self.0.system_names().find(|known| *known == name)?;
        Some(Ident { value: name.to_owned(), quote_style: Some('`'), span: first.span.union(&last.span) })
    }

    fn of_object(&self, name: &ObjectName) -> Option<(Ident, Ident)> {
        match name.0.as_slice() {
            [ObjectNamePart::Identifier(first), ObjectNamePart::Identifier(last)] => {
                Some((self.table(&[first, last])?, last.clone()))
            }
            _ => None,
        }
    }
}

impl TreeRewriter for SystemNames<'_> {
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Walk {
        if let TableFactor::Table { name, alias, args: None, .. } = factor
            && let Some((table, last)) = self.of_object(name)
        {
            *name = ObjectName::from(vec![table]);
            alias.get_or_insert(TableAlias { explicit: true, name: last, columns: Vec::new(), at: None });
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Walk {
        if !is_table_argument(expr) {
            return ControlFlow::Continue(());
        }
        let Expr::Prefixed { value, .. } = expr else { return ControlFlow::Continue(()) };
        match value.as_mut() {
            Expr::CompoundIdentifier(parts) => {
                if let Some(table) = self.table(&parts.iter().collect::<Vec<_>>()) {
                    **value = Expr::Identifier(table);
                }
            }
            Expr::Function(function) => {
                if let Some((table, _)) = self.of_object(&function.name) {
                    function.name = ObjectName::from(vec![table]);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The plan of a block with `EMIT CHANGES` that reads tables `system.…`, which are read again and again
/// then. `None`: there are none. Besides, what is left of the clause: it is about the aggregation, if
/// there is one.
pub(super) fn followed(
    plan: &LogicalPlan,
    emission: &Emission,
) -> DfResult<Option<(LogicalPlan, Option<Emission>)>> {
    let Some((EmitMode::Changes { every_us }, _)) = emission.emit else { return Ok(None) };
    let every_us = every_us.unwrap_or(DEFAULT_EVERY_US);
    let read = plan.clone().transform_up(|node| {
        let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
        let table = scan.source.downcast_ref::<StreamTable>().map(|source| &source.table);
        let Some(table) = table.filter(|table| table.connector == SYSTEM_CONNECTOR) else {
            return Ok(Transformed::no(node));
        };
        let source = Arc::new(StreamTable::new(Arc::new(again_and_again(table, every_us))));
        Ok(Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan.clone() })))
    })?;
    if !read.transformed {
        return Ok(None);
    }
    let aggregates =
        plan.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_))))?;
    Ok(Some((read.data, aggregates.then(|| emission.clone()))))
}

fn again_and_again(table: &Table, every_us: i64) -> Table {
    let every = OptionEntry {
        key: SYSTEM_EVERY.to_owned(),
        value: every_us.to_string(),
        key_span: None,
        value_span: None,
    };
    Table { bounded: false, options: Options::new(vec![every]), ..table.clone() }
}
