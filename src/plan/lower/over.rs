//! OVER: when a row's values are known, and how they are computed.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::expr::{AggregateFunction, NullTreatment, WindowFunction};
use datafusion_expr::logical_plan::Window as LogicalWindow;
use datafusion_expr::{Expr, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition};

use super::expression::plain_column;
use super::join::is_whole_window;
use super::late::named_columns;
use super::{Above, Lowered, Lowering, Part, Role, Slot, Stream, Window, unsupported};
use crate::error::{Error, code};
use crate::plan::diagnose::from_datafusion;
use crate::plan::window_text::duration;
use crate::plan::{
    AggregateCall, Distribution, FrameBound, FrameUnit, Operation, OverCall, OverFrame, OverFunction,
    OverNode, OverTrigger, SortKey,
};

impl Lowering<'_> {
    pub(super) fn over(&mut self, window: &LogicalWindow, above: Above) -> Result<Lowered, Error> {
        let calls = window.window_expr.iter().map(call_of).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = calls.first() else {
            return Err(Error::internal("the planner", "OVER computes nothing"));
        };
        let params = &first.params;
        let is_same = |call: &&WindowFunction| {
            call.params.partition_by == params.partition_by && call.params.order_by == params.order_by
        };
        if !calls.iter().all(is_same) {
            return Err(unsupported("OVER of several orders at once").at(self.places.over));
        }
        let schema = window.input.schema();
        // Ties go by the order of arrival, which must not depend on parallelism.
        let order = above.order || has_ties(params, schema);
        let input = self.lower(&window.input, Above { order, ..Above::default() })?;
        let mut input = self.materialize(input);
        if above.versions {
            return self.versions(params, schema, input, above);
        }
        if let Some(top_n) = self.top_n(window, &calls, &input, above)? {
            return Ok(top_n);
        }
        self.refuse_changes(input.node, "OVER")?;
        let common = self.window_of(&params.partition_by, schema, &input)?;
        let is_key = |expr: &&Expr| {
            let bound = plain_column(expr, schema).map(|column| self.role(&input, column));
            !matches!((bound, common), (Some(Role::Bound(_, window)), Some(common)) if window.id == common.id)
        };
        let keys: Vec<&Expr> = params.partition_by.iter().filter(is_key).collect();
        let partition = self.columns_for(keys, schema, &mut input)?;
        let trigger = match self.trigger(params.order_by.as_slice(), common, schema, &input)? {
            // All rows are there at the end.
            OverTrigger::EventTime { .. }
                if self.plan.nodes[input.node].properties.bounded && calls.iter().any(looks_ahead) =>
            {
                OverTrigger::End
            }
            trigger => trigger,
        };
        if let (OverTrigger::WindowClose { .. }, Some(common)) = (trigger, common) {
            self.refuse_late_copies(&input, common)?;
        }
        let mut order = Vec::with_capacity(params.order_by.len());
        if !matches!(trigger, OverTrigger::EventTime { .. }) {
            for key in &params.order_by {
                let expr = self.physical(&key.expr, schema, &input)?;
                order.push(SortKey { expr, descending: !key.asc, nulls_first: key.nulls_first });
            }
        }
        let latest_first = match params.order_by.as_slice() {
            [only] if !only.asc => plain_column(&only.expr, schema)
                .is_some_and(|column| self.role(&input, column).time_unit().is_some()),
            _ => false,
        };
        let mut over = Vec::with_capacity(calls.len());
        for call in &calls {
            over.push(self.over_call(call, trigger, schema, &input)?);
        }
        let single = above.order || partition.is_empty();
        let distribution = if single { Distribution::Single } else { Distribution::Hash(partition.clone()) };
        input.node = self.add_exchange(input.node, distribution);
        let node = OverNode { trigger, partition, order, latest_first, calls: over, limit: above.ranks };
        self.warn_of_keys(&node, input.node);
        Ok(self.push_over(window, node, common, input))
    }

    /// Says what grows as long as the query runs: keys are forgotten where all frames are of a bounded time.
    fn warn_of_keys(&mut self, node: &OverNode, input: crate::plan::NodeId) {
        let bounded = self.plan.nodes[input].properties.bounded;
        let by_time = matches!(node.trigger, OverTrigger::EventTime { .. });
        let forgets = |call: &OverCall| {
            call.frame.unit == FrameUnit::Range && call.frame.start != FrameBound::Unbounded
        };
        if bounded || !by_time || node.partition.is_empty() || node.calls.iter().all(forgets) {
            return;
        }
        self.warn("Over keeps a state for each key as long as the query runs: frames of RANGE of a bounded time forget keys".to_owned());
    }

    fn push_over(
        &mut self,
        window: &LogicalWindow,
        node: OverNode,
        common: Option<Window>,
        input: Lowered,
    ) -> Lowered {
        let given = Arc::clone(self.schema(input.node));
        let width = given.fields().len();
        let mut fields: Vec<Arc<Field>> = given.fields().to_vec();
        let mut roles = match node.trigger {
            OverTrigger::EventTime { .. } => self.roles[input.node].clone(),
            OverTrigger::WindowClose { .. } => self.closed_roles(input.node, common),
            OverTrigger::End => vec![Role::Plain; width],
        };
        let mut slots = input.slots.clone();
        let first = window.input.schema().fields().len();
        for (index, call) in node.calls.iter().enumerate() {
            let field = window.schema.field(first + index);
            slots.push(Slot::Column(fields.len()));
            fields.push(Arc::new(Field::new(&call.text, field.data_type().clone(), field.is_nullable())));
            roles.push(Role::Plain);
        }
        let stream = self.stream(input.node);
        let is_first = node.limit.is_some_and(|limit| {
            limit.most == 1 && matches!(node.calls[limit.call].function, OverFunction::RowNumber)
        });
        let stream = Stream {
            watermark: stream.watermark && node.trigger != OverTrigger::End,
            key: if is_first && common.is_none() { Some(node.partition.clone()) } else { stream.key },
            ..stream
        };
        let trigger = node.trigger;
        let operation = Operation::Over(Box::new(node));
        let node = self.push(operation, vec![input.node], Arc::new(Schema::new(fields)), roles, stream);
        if self.late.is_open() {
            let data_type = |column: usize| given.field(column).data_type().clone();
            let own = named_columns(window.input.schema(), &input.slots);
            let (columns, types) = match trigger {
                OverTrigger::EventTime { time, .. } => (own, Some([data_type(time), data_type(time)])),
                OverTrigger::WindowClose { bounds, .. } => {
                    let is_time = |role: &Role| matches!(role, Role::Bound(Part::Time, _));
                    let time = self.roles[input.node].iter().position(is_time).unwrap_or(bounds.end);
                    let carried = &input.carried.columns;
                    let columns = if carried.is_empty() { own } else { carried.clone() };
                    (columns, Some([data_type(time), data_type(bounds.end)]))
                }
                OverTrigger::End => (own, None),
            };
            if let Some([time, bound]) = types {
                self.add_late_output(node, &input.carried, &columns, [&time, &bound], true);
            }
        }
        Lowered { node, slots, pending: None, carried: input.carried }
    }

    /// The window whose bounds are among the keys: the innermost one.
    pub(super) fn window_of(
        &self,
        keys: &[Expr],
        schema: &DFSchema,
        input: &Lowered,
    ) -> Result<Option<Window>, Error> {
        let bound = |key: &Expr| match self.role(input, plain_column(key, schema)?) {
            Role::Bound(part, window) => Some((part, window)),
            _ => None,
        };
        let bounds: Vec<(Part, Window)> = keys.iter().filter_map(bound).collect();
        let Some(window) = bounds.iter().map(|(_, window)| *window).max_by_key(|window| window.id) else {
            return Ok(None);
        };
        let own = bounds.iter().filter(|(_, other)| other.id == window.id);
        let parts: Vec<Part> = own.map(|(part, _)| *part).collect();
        if is_whole_window(window, &parts) {
            return Ok(Some(window));
        }
        Err(Error::plan(
            code::WINDOW_GROUPING,
            "PARTITION BY lacks a bound: windows of this kind share theirs",
        )
        .at(self.places.over)
        .hint("Partition by window_start and window_end."))
    }

    /// When the values of a row are known.
    pub(super) fn trigger(
        &self,
        order: &[datafusion_expr::SortExpr],
        common: Option<Window>,
        schema: &DFSchema,
        input: &Lowered,
    ) -> Result<OverTrigger, Error> {
        if let Some(window) = common {
            let bounds = self.bounds_of(input.node, window, "OVER")?;
            return Ok(OverTrigger::WindowClose { bounds, unit: window.spec.unit, zone: window.spec.zone });
        }
        let properties = &self.plan.nodes[input.node].properties;
        let time = order.first().filter(|key| key.asc && properties.watermark).and_then(|key| {
            let column = plain_column(&key.expr, schema)?;
            let unit = self.role(input, column).time_unit()?;
            match input.slots[column] {
                Slot::Column(index) => Some((index, unit)),
                Slot::Pending(_) => None,
            }
        });
        match time {
            Some((time, unit)) if order.len() == 1 => Ok(OverTrigger::EventTime { time, unit }),
            _ if properties.bounded => Ok(OverTrigger::End),
            Some(_) => Err(unsupported("OVER ordered by more than the time attribute")
                .at(self.places.over)
                .hint("Order by the time attribute alone: rows of one time are in the order of arrival.")),
            None => {
                let message =
                    "OVER is not ordered by a time attribute, so on input that never ends no value is final";
                Err(Error::plan(code::NOT_SUPPORTED, message).at(self.places.over).hint(
                    "Order by the time attribute, ascending, or partition by window_start and window_end; or \
                     keep the first rows alone: ROW_NUMBER() OVER (…) <= 10 gives them as they change.",
                ))
            }
        }
    }

    fn over_call(
        &self,
        call: &WindowFunction,
        trigger: OverTrigger,
        schema: &DFSchema,
        input: &Lowered,
    ) -> Result<OverCall, Error> {
        let params = &call.params;
        let name = call.fun.name().to_lowercase();
        let refuse = |what: String| Err(unsupported(&what).at(self.places.over));
        let arg = |index: usize| -> Result<crate::plan::ExprRef, Error> {
            match params.args.get(index) {
                Some(arg) => self.physical(arg, schema, input),
                None => Err(Error::internal("the planner", format!("{name} lacks an argument"))),
            }
        };
        let args = params.args.iter().map(crate::plan::text::logical).collect::<Vec<_>>().join(", ");
        let mut text = format!("{name}({args})");
        let mut has_frame = false;
        let function = match (&call.fun, name.as_str()) {
            (WindowFunctionDefinition::WindowUDF(_), "row_number") => OverFunction::RowNumber,
            (WindowFunctionDefinition::WindowUDF(_), "rank") => OverFunction::Rank,
            (WindowFunctionDefinition::WindowUDF(_), "dense_rank") => OverFunction::DenseRank,
            (WindowFunctionDefinition::WindowUDF(_), "lag" | "lead") => {
                let by = match params.args.get(1) {
                    None => 1,
                    Some(offset) => integer(offset).ok_or_else(|| {
                        unsupported(&format!("an offset of {} that is no number", name.to_uppercase()))
                            .at(self.places.over)
                    })?,
                };
                let by = if name == "lag" { by } else { -by };
                if by < 0 && matches!(trigger, OverTrigger::EventTime { .. }) {
                    return refuse("LEAD over rows that are still to come".to_owned()).map_err(|error| {
                        error.hint("Use LAG, or partition by window_start and window_end.")
                    });
                }
                let value = arg(0)?;
                let data_type = value.data_type(self.schema(input.node)).map_err(from_datafusion)?;
                let default = match params.args.get(2) {
                    None => ScalarValue::try_from(&data_type).map_err(from_datafusion)?,
                    Some(default) => crate::plan::constant::fold(default)?
                        .ok_or_else(|| unsupported("a default that is no constant").at(self.places.over))?
                        .cast_to(&data_type)
                        .map_err(from_datafusion)?,
                };
                let ignores_nulls = params.null_treatment == Some(NullTreatment::IgnoreNulls);
                OverFunction::Shift { value, by, default, ignores_nulls }
            }
            (WindowFunctionDefinition::WindowUDF(_), "percent_rank" | "cume_dist" | "ntile") => {
                if matches!(trigger, OverTrigger::EventTime { .. }) {
                    return refuse(format!("{} over rows that are still to come", name.to_uppercase())).map_err(
                        |error| {
                            error.hint(
                                "Partition by window_start and window_end: all rows of a window are there when it closes.",
                            )
                        },
                    );
                }
                match name.as_str() {
                    "percent_rank" => OverFunction::PercentRank,
                    "cume_dist" => OverFunction::CumeDist,
                    _ => OverFunction::Ntile {
                        buckets: self.positive(params.args.first(), "NTILE", "buckets")?,
                    },
                }
            }
            (WindowFunctionDefinition::WindowUDF(_), "nth_value") => {
                has_frame = true;
                let n = self.positive(params.args.get(1), "NTH_VALUE", "rows")?;
                let n = usize::try_from(n).unwrap_or(usize::MAX);
                let ignores_nulls = params.null_treatment == Some(NullTreatment::IgnoreNulls);
                OverFunction::Nth { value: arg(0)?, n, ignores_nulls }
            }
            (WindowFunctionDefinition::WindowUDF(_), "first_value" | "last_value") => {
                has_frame = true;
                OverFunction::End {
                    value: arg(0)?,
                    is_last: name == "last_value",
                    ignores_nulls: params.null_treatment != Some(NullTreatment::RespectNulls),
                }
            }
            (WindowFunctionDefinition::WindowUDF(_), _) => {
                return refuse(format!("{} OVER", name.to_uppercase()));
            }
            (WindowFunctionDefinition::AggregateUDF(function), _) => {
                has_frame = true;
                let aggregate = Expr::AggregateFunction(AggregateFunction::new_udf(
                    Arc::clone(function),
                    params.args.clone(),
                    params.distinct,
                    params.filter.clone(),
                    Vec::new(),
                    params.null_treatment,
                ));
                text = crate::plan::text::logical(&aggregate).replace("count(1)", "count(*)");
                let lowered = self.physical_aggregate(&aggregate, schema, input)?;
                OverFunction::Aggregate(AggregateCall {
                    function: lowered.aggregate,
                    filter: lowered.filter,
                    order_sensitive: true,
                    inexact: true,
                })
            }
        };
        let whole =
            OverFrame { unit: FrameUnit::Rows, start: FrameBound::Unbounded, end: FrameBound::Offset(0) };
        let frame = match has_frame {
            true => self.frame(&params.window_frame, trigger, params.order_by.len())?,
            false => whole,
        };
        match &function {
            OverFunction::Shift { ignores_nulls: true, .. }
            | OverFunction::Nth { ignores_nulls: true, .. } => {
                text.push_str(" IGNORE NULLS");
            }
            OverFunction::End { ignores_nulls: false, .. } => text.push_str(" RESPECT NULLS"),
            _ => {}
        }
        if has_frame {
            text.push_str(&frame_text(&frame));
        }
        Ok(OverCall { function, frame, text })
    }

    /// A number of at least one that an argument must be.
    fn positive(&self, arg: Option<&Expr>, function: &str, what: &str) -> Result<u64, Error> {
        let number = arg.and_then(integer).filter(|number| *number > 0);
        number.map(i64::unsigned_abs).ok_or_else(|| {
            Error::plan(code::INVALID_QUERY, format!("{function} needs a number of {what} of at least 1"))
                .at(self.places.over)
                .hint(format!("Give {function} a number, such as 4."))
        })
    }

    fn frame(
        &self,
        frame: &WindowFrame,
        trigger: OverTrigger,
        order_keys: usize,
    ) -> Result<OverFrame, Error> {
        let refuse = |what: &str| unsupported(what).at(self.places.over);
        let unit = match frame.units {
            WindowFrameUnits::Rows => FrameUnit::Rows,
            WindowFrameUnits::Range => FrameUnit::Range,
            WindowFrameUnits::Groups => return Err(refuse("GROUPS in OVER")),
        };
        let offset = |value: &ScalarValue| -> Result<i64, Error> {
            match (unit, value) {
                (FrameUnit::Range, ScalarValue::IntervalMonthDayNano(Some(interval)))
                    if interval.months == 0 && order_keys == 1 =>
                {
                    let us =
                        i128::from(interval.days) * 86_400_000_000 + i128::from(interval.nanoseconds) / 1_000;
                    i64::try_from(us).map_err(|_| refuse("RANGE of that length"))
                }
                (FrameUnit::Range, _) => Err(refuse("RANGE of anything but time")
                    .hint("Use an interval of days or less, such as INTERVAL '10' MINUTE PRECEDING.")),
                (FrameUnit::Rows, value) => {
                    scalar_integer(value).ok_or_else(|| refuse("ROWS of anything but a number"))
                }
            }
        };
        let bound = |bound: &WindowFrameBound| -> Result<FrameBound, Error> {
            Ok(match bound {
                WindowFrameBound::CurrentRow => FrameBound::Offset(0),
                bound if bound.is_unbounded() => FrameBound::Unbounded,
                WindowFrameBound::Preceding(value) => FrameBound::Offset(offset(value)?.saturating_neg()),
                WindowFrameBound::Following(value) => FrameBound::Offset(offset(value)?),
            })
        };
        let (start, end) = (bound(&frame.start_bound)?, bound(&frame.end_bound)?);
        let looks_ahead = match end {
            FrameBound::Unbounded => true,
            FrameBound::Offset(by) => by > 0,
        };
        if looks_ahead && matches!(trigger, OverTrigger::EventTime { .. }) {
            return Err(refuse("a frame with rows that are still to come")
                .hint("End it at CURRENT ROW, or partition by window_start and window_end."));
        }
        Ok(OverFrame { unit, start, end })
    }

    /// What columns mean when a window's rows come at its close.
    fn closed_roles(&self, node: crate::plan::NodeId, common: Option<Window>) -> Vec<Role> {
        let role = |(role, field): (&Role, &Arc<Field>)| match role {
            Role::Bound(_, window) if common.is_some_and(|common| common.id == window.id) => role.clone(),
            other if other.time_unit().is_some() => Role::Lost(format!(
                "a row of a window comes when the window closes, which \"{}\" does not tell",
                field.name()
            )),
            Role::Bound(..) => Role::Plain,
            other => other.clone(),
        };
        self.roles[node].iter().zip(self.schema(node).fields()).map(role).collect()
    }
}

fn call_of(expr: &Expr) -> Result<&WindowFunction, Error> {
    match expr {
        Expr::WindowFunction(call) => Ok(call),
        Expr::Alias(alias) => call_of(&alias.expr),
        other => Err(Error::internal("the planner", format!("{other} is no call OVER"))),
    }
}

/// Whether the value of a row depends on rows behind it.
fn looks_ahead(call: &&WindowFunction) -> bool {
    let params = &call.params;
    let offset = || params.args.get(1).map_or(Some(1), integer).unwrap_or(0);
    match (&call.fun, call.fun.name().to_lowercase().as_str()) {
        (WindowFunctionDefinition::WindowUDF(_), "row_number" | "rank" | "dense_rank") => false,
        (WindowFunctionDefinition::WindowUDF(_), "percent_rank" | "cume_dist" | "ntile") => true,
        (WindowFunctionDefinition::WindowUDF(_), "lead") => offset() > 0,
        (WindowFunctionDefinition::WindowUDF(_), "lag") => offset() < 0,
        _ => match &params.window_frame.end_bound {
            WindowFrameBound::Following(value) => scalar_integer(value) != Some(0),
            WindowFrameBound::Preceding(_) | WindowFrameBound::CurrentRow => false,
        },
    }
}

/// Whether rows may be equal in PARTITION BY and ORDER BY.
fn has_ties(params: &datafusion_expr::expr::WindowFunctionParams, schema: &DFSchema) -> bool {
    let order = params.order_by.iter().map(|key| &key.expr);
    let known: Vec<usize> =
        params.partition_by.iter().chain(order).filter_map(|expr| plain_column(expr, schema)).collect();
    let is_single = |key: &datafusion_common::FunctionalDependence| {
        key.mode == datafusion_common::Dependency::Single
            && key.source_indices.iter().all(|column| known.contains(column))
    };
    !schema.functional_dependencies().iter().any(is_single)
}

fn integer(expr: &Expr) -> Option<i64> {
    match crate::plan::constant::fold(expr) {
        Ok(Some(value)) => scalar_integer(&value),
        _ => None,
    }
}

fn scalar_integer(value: &ScalarValue) -> Option<i64> {
    match value.cast_to(&arrow::datatypes::DataType::Int64) {
        Ok(ScalarValue::Int64(value)) => value,
        _ => None,
    }
}

fn frame_text(frame: &OverFrame) -> String {
    let length = |by: i64| match frame.unit {
        FrameUnit::Rows => by.to_string(),
        FrameUnit::Range => duration(by),
    };
    let bound = |bound: FrameBound, unbounded: &str| match bound {
        FrameBound::Unbounded => format!("UNBOUNDED {unbounded}"),
        FrameBound::Offset(0) => "CURRENT ROW".to_owned(),
        FrameBound::Offset(by) if by < 0 => format!("{} PRECEDING", length(by.saturating_neg())),
        FrameBound::Offset(by) => format!("{} FOLLOWING", length(by)),
    };
    let unit = match frame.unit {
        FrameUnit::Rows => "ROWS",
        FrameUnit::Range => "RANGE",
    };
    format!(" {unit} BETWEEN {} AND {}", bound(frame.start, "PRECEDING"), bound(frame.end, "FOLLOWING"))
}
