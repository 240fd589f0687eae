//! `FOR SYSTEM_TIME AS OF l.p`, by the clock: rows are looked up in a table that is read once.

use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Expr, Join, LogicalPlan};

use super::expression::plain_column;
use super::late::Carried;
use super::window::is_by_clock;
use super::{Above, Lowered, Lowering, Role, Stream, unsupported};
use crate::error::{Error, code};
use crate::plan::{JoinKind, LookupJoinNode, NodeId, Operation, as_of};

impl Lowering<'_> {
    /// Whether a join is marked, and its time is a `PROCTIME()` column.
    pub(super) fn is_lookup(&self, join: &Join) -> bool {
        let terms = join.filter.as_ref().map(split_conjunction).unwrap_or_default();
        let Some([time, ..]) = terms.into_iter().find_map(as_of::arguments) else { return false };
        plain_column(time, join.left.schema()).is_some_and(|column| is_of_clock(&join.left, column))
    }

    pub(super) fn lookup_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        mut inputs: [Lowered; 2],
        _above: Above,
    ) -> Result<Lowered, Error> {
        if !matches!(kind, JoinKind::Inner | JoinKind::Left) {
            return Err(unsupported("FOR SYSTEM_TIME AS OF of this kind of join").at(self.places.join));
        }
        if !self.plan.nodes[inputs[1].node].properties.bounded {
            return Err(unsupported("a lookup in a table that does not end").at(self.places.join).hint(
                "Give the table a PRIMARY KEY and a WATERMARK and join the version that was valid at an event time, or \
                 look up in a table that ends.",
            ));
        }
        if join.on.is_empty() {
            return Err(Error::plan(code::INVALID_QUERY, "a lookup needs a column that must be equal")
                .at(self.places.join)
                .hint("Set a column of the table equal to one of the rows: ON l.k = r.k."));
        }
        let pairs: Vec<&(Expr, Expr)> = join.on.iter().collect();
        let keys = self.join_keys(join, &pairs, &mut inputs)?;
        self.check_looked_up(inputs[1].node)?;
        let first_width = self.schema(inputs[0].node).fields().len();
        let pair = self.pair_schema(&inputs, [false, false]);
        let terms = join.filter.as_ref().map(split_conjunction).unwrap_or_default();
        let terms = terms.into_iter().filter(|term| as_of::arguments(term).is_none());
        let condition = match conjunction(terms.cloned()) {
            Some(filter) => Some(self.over_pairs(join, &filter, &inputs, &pair)?),
            None => None,
        };
        let (schema, slots) = self.joined_columns(kind, &inputs);
        let mut roles = self.roles[inputs[0].node].clone();
        let looked_up = |role: &Role| match role {
            role if role.time_unit().is_some() => {
                Role::Lost("rows that are looked up come when others do".to_owned())
            }
            Role::Bound(..) => Role::Plain,
            other => other.clone(),
        };
        roles.extend(self.roles[inputs[1].node].iter().map(looked_up));
        let stream = Stream { key: None, ..self.stream(inputs[0].node) };
        let nodes = inputs.each_ref().map(|input| input.node);
        let node = LookupJoinNode { kind, keys, condition, pair, first_width };
        let operation = Operation::LookupJoin(Box::new(node));
        let node = self.push(operation, nodes.to_vec(), schema, roles, stream);
        let [first, _] = inputs;
        let carried = Carried { columns: Vec::new(), ..first.carried };
        Ok(Lowered { node, slots, pending: None, carried })
    }

    /// What is read once is a table, with conditions and projections of its rows.
    fn check_looked_up(&self, node: NodeId) -> Result<(), Error> {
        let node = &self.plan.nodes[node];
        match &node.operation {
            Operation::Source(source) if !source.changelog => Ok(()),
            Operation::Calc(_) => node.inputs.iter().try_for_each(|input| self.check_looked_up(*input)),
            _ => Err(unsupported("a lookup in anything but a table whose rows do not change")
                .at(self.places.join)
                .hint("Write the rows to a file first, or join without FOR SYSTEM_TIME AS OF.")),
        }
    }
}

/// Whether a column shows the clock: a `PROCTIME()` column of a table, or of a query.
fn is_of_clock(plan: &LogicalPlan, column: usize) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            match plain_column(&projection.expr[column], projection.input.schema()) {
                Some(column) => is_of_clock(&projection.input, column),
                None => is_proctime(&projection.expr[column]),
            }
        }
        LogicalPlan::SubqueryAlias(alias) => is_of_clock(&alias.input, column),
        LogicalPlan::Filter(filter) => is_of_clock(&filter.input, column),
        LogicalPlan::Union(union) => union.inputs.iter().all(|input| is_of_clock(input, column)),
        LogicalPlan::Join(join) if column < join.left.schema().fields().len() => {
            is_of_clock(&join.left, column)
        }
        _ => is_by_clock(plan, column),
    }
}

fn is_proctime(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_proctime(&alias.expr),
        Expr::ScalarFunction(call) => call.args.is_empty() && call.func.name() == "proctime",
        _ => false,
    }
}
