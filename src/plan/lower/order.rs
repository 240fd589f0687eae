//! ORDER BY and LIMIT.

use datafusion_expr::logical_plan::{FetchType, SkipType};
use datafusion_expr::{Limit, LogicalPlan, Sort, SortExpr};

use super::expression::plain_column;
use super::late::named_columns;
use super::{Above, Lowered, Lowering, Slot, unsupported};
use crate::error::{Error, code};
use crate::plan::diagnose::from_datafusion;
use crate::plan::{Distribution, LimitNode, Operation, SortKey, SortNode, TemporalSortNode};

impl Lowering<'_> {
    pub(super) fn sort(&mut self, sort: &Sort, above: Above) -> Result<Lowered, Error> {
        let input = self.lower(&sort.input, above)?;
        let mut input = self.materialize(input);
        self.refuse_changes(input.node, "ORDER BY")?;
        let schema = sort.input.schema();
        let time = sort.expr.first().filter(|key| key.asc).and_then(|key| {
            let column = plain_column(&key.expr, schema)?;
            let unit = self.role(&input, column).time_unit()?;
            match input.slots[column] {
                Slot::Column(index) => Some((index, unit)),
                Slot::Pending(_) => None,
            }
        });
        let node = &self.plan.nodes[input.node].properties;
        let time = time.filter(|_| node.watermark);
        let bounded = node.bounded;
        if time.is_none() && !bounded {
            return Err(unsortable(&sort.expr).at(self.places.order_by));
        }
        let key = |lowering: &Self, key: &SortExpr| -> Result<SortKey, Error> {
            Ok(SortKey {
                expr: lowering.physical(&key.expr, schema, &input)?,
                descending: !key.asc,
                nulls_first: key.nulls_first,
            })
        };
        let keys = sort.expr.iter().map(|expr| key(self, expr)).collect::<Result<Vec<_>, _>>()?;
        let operation = match time {
            Some((time, unit)) => {
                let rest = keys.into_iter().skip(1).collect();
                Operation::TemporalSort(TemporalSortNode { time, unit, rest })
            }
            None => Operation::Sort(SortNode { keys, fetch: sort.fetch }),
        };
        let below = self.add_exchange(input.node, Distribution::Single);
        let mut stream = self.stream(below);
        let late = match (&operation, self.late.is_open()) {
            (Operation::TemporalSort(sort), true) => {
                Some(self.schema(below).field(sort.time).data_type().clone())
            }
            _ => None,
        };
        // A full sort gives its rows at the end: no watermark passes before them.
        stream.watermark &= matches!(operation, Operation::TemporalSort(_));
        let (schema, roles) = (self.schema(below).clone(), self.roles[below].clone());
        input.node = self.push(operation, vec![below], schema, roles, stream);
        if let Some(time_type) = late {
            let columns = named_columns(sort.input.schema(), &input.slots);
            self.add_late_output(input.node, &input.carried, &columns, [&time_type, &time_type], true);
        }
        Ok(input)
    }

    pub(super) fn limit(&mut self, limit: &Limit, above: Above) -> Result<Lowered, Error> {
        let constant = || unsupported("a LIMIT that is no number").at(self.places.limit);
        let SkipType::Literal(skip) = limit.get_skip_type().map_err(from_datafusion)? else {
            return Err(constant());
        };
        let FetchType::Literal(fetch) = limit.get_fetch_type().map_err(from_datafusion)? else {
            return Err(constant());
        };
        let mut input = self.lower(&limit.input, Above { order: true, ..above })?;
        input = self.materialize(input);
        self.refuse_changes(input.node, "LIMIT")?;
        if let Operation::Sort(sort) = &mut self.plan.nodes[input.node].operation
            && matches!(limit.input.as_ref(), LogicalPlan::Sort(_))
        {
            sort.fetch = fetch.map(|fetch| fetch.saturating_add(skip));
        }
        let is_single = matches!(
            self.plan.nodes[input.node].operation,
            Operation::Sort(_) | Operation::TemporalSort(_) | Operation::Exchange(Distribution::Single)
        );
        let below = if is_single { input.node } else { self.add_exchange(input.node, Distribution::Single) };
        let (schema, roles) = (self.schema(below).clone(), self.roles[below].clone());
        let stream = self.stream(below);
        input.node =
            self.push(Operation::Limit(LimitNode { skip, fetch }), vec![below], schema, roles, stream);
        Ok(input)
    }
}

fn unsortable(keys: &[SortExpr]) -> Error {
    let what = keys.first().map(|key| crate::plan::text::logical(&key.expr)).unwrap_or_default();
    let is_window = matches!(what.as_str(), "window_start" | "window_end");
    let message = format!("ORDER BY {what}: the input never ends, so its rows can't be sorted by that");
    let error = Error::plan(code::UNSORTABLE, message);
    if is_window {
        return error.hint("Sort by window_time: it is the window's column that time passes with.");
    }
    error.hint("Sort by the time attribute first, ascending: rows come as the watermark passes them.")
}
