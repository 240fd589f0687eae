//! The first rows of partitions that are never final: continuous Top-N and deduplication.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::logical_plan::Window as LogicalWindow;

use super::expression::plain_column;
use super::late::named_columns;
use super::window::is_by_clock;
use super::{Above, Lowered, Lowering, Slot, Stream, unsupported};
use crate::error::{Error, code};
use crate::plan::{
    Distribution, NodeId, Operation, OverTrigger, RankKind, RankLimit, SortKey, StateTtl, TopNNode, TtlClock,
};

/// What makes results change where no clause does.
pub(super) const FIRST_ROWS: &str = "ROW_NUMBER() <= N without a window";

impl Lowering<'_> {
    /// The first rows of partitions as they change; `None`: they are final, or it is not about them.
    pub(super) fn top_n(
        &mut self,
        window: &LogicalWindow,
        calls: &[&WindowFunction],
        input: &Lowered,
        above: Above,
    ) -> Result<Option<Lowered>, Error> {
        let Some(limit) = above.ranks else { return Ok(None) };
        let updating = self.plan.nodes[input.node].properties.updating;
        let asked = self.asks_for_changes(above)?;
        if !updating && !asked && self.is_final(window, calls, input, above)? {
            return Ok(None);
        }
        let [call] = calls else {
            return Err(unsupported("another call OVER beside a rank whose rows change").at(self.places.over));
        };
        let rank = match call.fun.name().to_lowercase().as_str() {
            "rank" => RankKind::Rank,
            "dense_rank" => RankKind::DenseRank,
            _ => RankKind::RowNumber,
        };
        self.first_rows_of(window, call, rank, limit, input.clone(), above).map(Some)
    }

    /// Whether the rows of an OVER over new rows are final once they are given.
    fn is_final(
        &self,
        window: &LogicalWindow,
        calls: &[&WindowFunction],
        input: &Lowered,
        above: Above,
    ) -> Result<bool, Error> {
        let Some(params) = calls.first().map(|call| &call.params) else { return Ok(true) };
        let schema = window.input.schema();
        // At the end of the input no window could close any more.
        if self.plan.nodes[input.node].properties.bounded && !above.keeps_time {
            return Ok(true);
        }
        if self.window_of(&params.partition_by, schema, input)?.is_some() {
            return Ok(true);
        }
        let by_time =
            matches!(self.trigger(&params.order_by, None, schema, input), Ok(OverTrigger::EventTime { .. }));
        Ok(by_time)
    }

    fn first_rows_of(
        &mut self,
        window: &LogicalWindow,
        call: &WindowFunction,
        rank: RankKind,
        limit: RankLimit,
        mut input: Lowered,
        above: Above,
    ) -> Result<Lowered, Error> {
        let schema = window.input.schema();
        let params = &call.params;
        let partition = self.columns_for(&params.partition_by, schema, &mut input)?;
        let first = params.order_by.first().and_then(|key| plain_column(&key.expr, schema));
        let by_arrival = params.order_by.len() == 1
            && rank == RankKind::RowNumber
            && first.is_some_and(|column| is_by_clock(&window.input, column));
        let time = first.filter(|column| !by_arrival && self.role(&input, *column).time_unit().is_some());
        let time = time.and_then(|column| match input.slots[column] {
            Slot::Column(index) => Some(index),
            Slot::Pending(_) => None,
        });
        let latest_first = match params.order_by.as_slice() {
            [only] => !only.asc && (by_arrival || time.is_some()),
            _ => false,
        };
        let mut order = Vec::new();
        for key in params.order_by.iter().filter(|_| !by_arrival) {
            let expr = self.physical(&key.expr, schema, &input)?;
            order.push(SortKey { expr, descending: !key.asc, nulls_first: key.nulls_first });
        }
        if order.is_empty() && rank != RankKind::RowNumber {
            return Err(Error::plan(code::INVALID_QUERY, "RANK and DENSE_RANK need ORDER BY")
                .at(self.places.over)
                .hint("Say in OVER what rows are ordered by, or use ROW_NUMBER()."));
        }
        let single = above.order || partition.is_empty();
        let distribution = if single { Distribution::Single } else { Distribution::Hash(partition.clone()) };
        input.node = self.add_exchange(input.node, distribution);
        let given = Arc::clone(self.schema(input.node));
        let properties = self.plan.nodes[input.node].properties.clone();
        let gives_rank = !above.drops_rank;
        let node = TopNNode {
            partition,
            order,
            latest_first,
            time,
            rank,
            most: limit.most.max(0).unsigned_abs(),
            gives_rank,
            updating: properties.updating,
            identity: properties.key.clone().filter(|_| properties.updating),
            ttl: self.ttl(input.node),
        };
        self.warn_of_rows(&node, properties.bounded);
        let width = given.fields().len();
        let mut fields: Vec<Arc<Field>> = given.fields().to_vec();
        let mut roles = self.roles[input.node].clone();
        let mut slots = input.slots.clone();
        // Nobody reads it where it is not given.
        slots.push(Slot::Column(width));
        if gives_rank {
            let field = window.schema.field(window.input.schema().fields().len());
            let name = call.fun.name().to_lowercase();
            fields.push(Arc::new(Field::new(format!("{name}()"), field.data_type().clone(), false)));
            roles.push(super::Role::Plain);
        }
        let key = match (node.is_deduplication(), gives_rank && rank == RankKind::RowNumber) {
            (true, _) => Some(node.partition.clone()),
            (false, true) => Some(node.partition.iter().copied().chain([width]).collect()),
            (false, false) => properties.key,
        };
        let stream = Stream { bounded: properties.bounded, watermark: properties.watermark, key };
        let changes = node.changes();
        let operation = Operation::TopN(Box::new(node));
        let id = self.push(operation, vec![input.node], Arc::new(Schema::new(fields)), roles, stream);
        if changes && !properties.updating {
            self.note_changes(id, FIRST_ROWS, self.places.over);
        }
        if let Some(time) = time.filter(|_| self.late.is_open()) {
            let data_type = given.field(time).data_type().clone();
            let columns = named_columns(schema, &input.slots);
            self.add_late_output(id, &input.carried, &columns, [&data_type, &data_type], true);
        }
        Ok(Lowered { node: id, slots, pending: None, carried: input.carried })
    }

    /// Says what grows as long as the query runs.
    fn warn_of_rows(&mut self, node: &TopNNode, bounded: bool) {
        let what = match (node.updating, node.is_deduplication()) {
            (true, _) => "all rows of a changelog",
            (false, _) if node.partition.is_empty() => return,
            (false, true) if node.changes() => "a row for each key",
            (false, true) => "each key",
            (false, false) => "the first rows of each key",
        };
        let name = if node.is_deduplication() { "Deduplicate" } else { "TopN" };
        if node.ttl.is_none() && !bounded {
            self.warn(format!("{name} keeps {what} as long as the query runs: SET 'state.ttl' bounds that"));
        }
    }

    /// How long state over a node's rows is kept.
    pub(super) fn ttl(&self, node: NodeId) -> Option<StateTtl> {
        let us = self.session.state_ttl_us?;
        let properties = &self.plan.nodes[node].properties;
        let time = properties.time_attributes.first().copied();
        Some(StateTtl {
            us,
            by: if properties.watermark { TtlClock::EventTime { time } } else { TtlClock::Clock },
        })
    }
}
