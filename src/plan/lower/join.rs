//! Joins.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion_common::{JoinType, NullEquality};
use datafusion_expr::{Expr, Join};

use super::expression::{Scope, plain_column, substitute};
use super::late::Carried;
use super::{Above, Lowered, Lowering, Part, Role, Slot, Stream, Window, unsupported};
use crate::error::{Error, code};
use crate::plan::diagnose::from_datafusion;
use crate::plan::{
    Distribution, JoinKind, NodeId, Operation, StreamProperties, WindowBounds, WindowJoinNode, WindowKind,
};

/// The windows that the rows of a join have in common.
struct Common {
    windows: [Window; 2],
    /// The pairs of the condition that say so.
    pairs: Vec<usize>,
}

impl Lowering<'_> {
    pub(super) fn join(&mut self, join: &Join, above: Above) -> Result<Lowered, Error> {
        let kind = match join.join_type {
            JoinType::Inner => JoinKind::Inner,
            JoinType::Left => JoinKind::Left,
            JoinType::Right => JoinKind::Right,
            JoinType::Full => JoinKind::Full,
            JoinType::LeftSemi => JoinKind::Semi,
            // Of NULLs a condition above the join takes care.
            JoinType::LeftAnti => JoinKind::Anti,
            _ => return Err(unsupported("a subquery of this kind").at(self.places.subquery)),
        };
        let below = Above { order: above.order, ..Above::default() };
        let first = self.lower(&join.left, below)?;
        let versions = self.has_versions_of_view(join)?;
        let second = self.lower(&join.right, Above { versions, ..below })?;
        let inputs = [self.materialize(first), self.materialize(second)];
        if self.is_lookup(join) {
            return self.lookup_join(join, kind, inputs, above);
        }
        if let Some(versioned) = self.versioned(join, &inputs)? {
            for input in &inputs {
                self.refuse_changes(input.node, "FOR SYSTEM_TIME AS OF")?;
            }
            return self.temporal_join(join, kind, &versioned, inputs, above);
        }
        if inputs.iter().any(|input| self.plan.nodes[input.node].properties.updating) {
            return self.regular_join(join, kind, inputs, above);
        }
        if let Some(common) = self.common_windows(join, &inputs)? {
            return self.window_join(join, kind, &common, inputs, above);
        }
        let has_time = self.both(&inputs).1;
        if let Some(interval) = self.interval(join, &inputs).filter(|_| has_time) {
            return self.interval_join(join, kind, &interval, inputs, above);
        }
        self.regular_join(join, kind, inputs, above)
    }

    /// Whether both inputs end, and whether both have watermarks.
    pub(super) fn both(&self, inputs: &[Lowered; 2]) -> (bool, bool) {
        let properties = |input: &Lowered| &self.plan.nodes[input.node].properties;
        let all =
            |promise: fn(&StreamProperties) -> bool| inputs.iter().all(|input| promise(properties(input)));
        (all(|of| of.bounded), all(|of| of.watermark))
    }

    /// The columns of both inputs that must be equal.
    pub(super) fn join_keys(
        &mut self,
        join: &Join,
        pairs: &[&(Expr, Expr)],
        inputs: &mut [Lowered; 2],
    ) -> Result<[Vec<usize>; 2], Error> {
        let keys = [
            self.columns_for(pairs.iter().map(|pair| &pair.0), join.left.schema(), &mut inputs[0])?,
            self.columns_for(pairs.iter().map(|pair| &pair.1), join.right.schema(), &mut inputs[1])?,
        ];
        self.check_key_types(&keys, inputs)?;
        Ok(keys)
    }

    /// Brings rows of equal keys together.
    pub(super) fn exchange_sides(&mut self, keys: &[Vec<usize>; 2], inputs: &mut [Lowered; 2], above: Above) {
        for (input, keys) in inputs.iter_mut().zip(keys) {
            let single = above.order || keys.is_empty();
            let distribution = if single { Distribution::Single } else { Distribution::Hash(keys.clone()) };
            input.node = self.add_exchange(input.node, distribution);
        }
    }

    /// The columns of a join's result, and where the logical ones are.
    pub(super) fn joined_columns(&self, kind: JoinKind, inputs: &[Lowered; 2]) -> (SchemaRef, Vec<Slot>) {
        if !kind.gives_pairs() {
            return (Arc::clone(self.schema(inputs[0].node)), inputs[0].slots.clone());
        }
        let width = self.schema(inputs[0].node).fields().len();
        let mut slots = inputs[0].slots.clone();
        slots.extend(moved(&inputs[1].slots, width));
        (self.pair_schema(inputs, [kind.keeps_second(), kind.keeps_first()]), slots)
    }

    /// The windows that the condition sets equal; `None`: it sets none equal.
    fn common_windows(&self, join: &Join, inputs: &[Lowered; 2]) -> Result<Option<Common>, Error> {
        let schemas = [join.left.schema(), join.right.schema()];
        let bound = |input: usize, expr: &Expr| {
            let column = plain_column(expr, schemas[input])?;
            match self.role(&inputs[input], column) {
                Role::Bound(part, window) => Some((part, window)),
                _ => None,
            }
        };
        let mut common: Option<Common> = None;
        let mut parts = Vec::new();
        for (place, (first, second)) in join.on.iter().enumerate() {
            let (Some((part, window)), Some((other_part, other))) = (bound(0, first), bound(1, second))
            else {
                continue;
            };
            if part != other_part {
                continue;
            }
            let known = common.get_or_insert_with(|| Common { windows: [window, other], pairs: Vec::new() });
            if known.windows == [window, other] {
                known.pairs.push(place);
                parts.push(part);
            }
        }
        let Some(common) = common else { return Ok(None) };
        let [window, other] = common.windows;
        // Sessions of different gaps may have the same bounds, too; which ones is told by their rows alone.
        let are_sessions = window.is_session() && other.is_session();
        let comparable = (window.spec.unit, window.spec.zone) == (other.spec.unit, other.spec.zone);
        if window.spec != other.spec && !(are_sessions && comparable) {
            let message = "the two sides of the join have windows of other sizes, so they are never the same";
            return Err(Error::plan(code::INVALID_QUERY, message)
                .at(self.places.join)
                .hint("Use the same window function with the same arguments on both sides."));
        }
        if !is_whole_window(window, &parts) {
            let kind = if are_sessions { "SESSION" } else { "CUMULATE" };
            let message = format!("the condition of the join lacks a bound: windows of {kind} share theirs");
            return Err(Error::plan(code::WINDOW_GROUPING, message)
                .at(self.places.join)
                .hint("Set window_start and window_end of both sides equal."));
        }
        Ok(Some(common))
    }

    fn window_join(
        &mut self,
        join: &Join,
        kind: JoinKind,
        common: &Common,
        mut inputs: [Lowered; 2],
        above: Above,
    ) -> Result<Lowered, Error> {
        let rest = join.on.iter().enumerate().filter(|(place, _)| !common.pairs.contains(place));
        let rest: Vec<&(Expr, Expr)> = rest.map(|(_, pair)| pair).collect();
        let keys = self.join_keys(join, &rest, &mut inputs)?;
        for (input, window) in inputs.iter().zip(common.windows) {
            self.refuse_late_copies(input, window)?;
        }
        let windows = [
            self.bounds_of(inputs[0].node, common.windows[0], "the join")?,
            self.bounds_of(inputs[1].node, common.windows[1], "the join")?,
        ];
        self.exchange_sides(&keys, &mut inputs, above);
        let first_width = self.schema(inputs[0].node).fields().len();
        let pair = self.pair_schema(&inputs, [false, false]);
        let condition = match &join.filter {
            Some(filter) => Some(self.over_pairs(join, filter, &inputs, &pair)?),
            None => None,
        };
        let (schema, slots) = self.joined_columns(kind, &inputs);
        let mut roles = self.joined_roles(inputs[0].node, common, kind.keeps_second());
        if kind.gives_pairs() {
            roles.extend(self.joined_roles(inputs[1].node, common, kind.keeps_first()));
        }
        let spec = common.windows[0].spec;
        let operation = Operation::WindowJoin(Box::new(WindowJoinNode {
            kind,
            windows: Some(windows),
            unit: spec.unit,
            zone: spec.zone,
            keys,
            null_is_equal: join.null_equality == NullEquality::NullEqualsNull,
            condition,
            pair,
            first_width,
        }));
        let nodes = [inputs[0].node, inputs[1].node];
        let (bounded, watermark) = self.both(&inputs);
        let bound = self.schema(nodes[0]).field(windows[0].end).data_type().clone();
        let time = self.roles[nodes[0]].iter().position(|role| matches!(role, Role::Bound(Part::Time, _)));
        let time = time.map_or(bound.clone(), |time| self.schema(nodes[0]).field(time).data_type().clone());
        let stream = Stream { bounded, watermark, key: None };
        let node = self.push(operation, nodes.to_vec(), schema, roles, stream);
        self.add_join_late_output(node, join, &inputs, [&time, &bound])?;
        Ok(Lowered { node, slots, pending: None, carried: Carried::default() })
    }

    /// Equal values must have one hash, so they must be of one type.
    fn check_key_types(&self, keys: &[Vec<usize>; 2], inputs: &[Lowered; 2]) -> Result<(), Error> {
        for (first, second) in keys[0].iter().zip(&keys[1]) {
            let first = self.schema(inputs[0].node).field(*first);
            let second = self.schema(inputs[1].node).field(*second);
            if first.data_type() != second.data_type() {
                let message = format!(
                    "the join compares {} with {}",
                    crate::plan::sql_type_name(first.data_type()),
                    crate::plan::sql_type_name(second.data_type())
                );
                return Err(Error::plan(code::NOT_SUPPORTED, message)
                    .at(self.places.join)
                    .hint("Use CAST, so that both sides are of one type."));
            }
        }
        Ok(())
    }

    /// The columns with the bounds of a window.
    ///
    /// # Errors
    /// `W011` if one is not there; `reader`: who needs it.
    pub(super) fn bounds_of(
        &self,
        node: NodeId,
        window: Window,
        reader: &str,
    ) -> Result<WindowBounds, Error> {
        let find = |wanted: Part| {
            self.roles[node].iter().position(
                |role| matches!(role, Role::Bound(part, other) if *part == wanted && other.id == window.id),
            )
        };
        match (find(Part::Start), find(Part::End)) {
            (Some(start), Some(end)) => Ok(WindowBounds { start, end }),
            (start, _) => {
                let missing = if start.is_some() { Part::End } else { Part::Start };
                let message = format!("{reader} needs {}, which the query below leaves out", missing.name());
                Err(Error::plan(code::WINDOW_GROUPING, message)
                    .at(if reader == "OVER" { self.places.over } else { self.places.join })
                    .hint("Select window_start and window_end there."))
            }
        }
    }

    /// The columns of both inputs. `padded`: whether an input's may be NULL for want of a pair.
    pub(super) fn pair_schema(&self, inputs: &[Lowered; 2], padded: [bool; 2]) -> SchemaRef {
        let mut fields: Vec<Arc<Field>> = Vec::new();
        for (input, padded) in inputs.iter().zip(padded) {
            for field in self.schema(input.node).fields() {
                let nullable = field.is_nullable() || padded;
                fields.push(Arc::new(field.as_ref().clone().with_nullable(nullable)));
            }
        }
        Arc::new(Schema::new(fields))
    }

    /// An expression over the columns of both inputs.
    pub(super) fn over_pairs(
        &self,
        join: &Join,
        expr: &Expr,
        inputs: &[Lowered; 2],
        pair: &SchemaRef,
    ) -> Result<crate::plan::ExprRef, Error> {
        self.check_expression(expr)?;
        let schema = join.left.schema().join(join.right.schema()).map_err(from_datafusion)?;
        let width = self.schema(inputs[0].node).fields().len();
        let mut slots = inputs[0].slots.clone();
        slots.extend(moved(&inputs[1].slots, width));
        let both = Lowered { node: inputs[0].node, slots, pending: None, carried: Carried::default() };
        let scope = Scope::of(pair)?;
        scope.physical(&substitute(expr, &schema, &both, &scope)?).map_err(from_datafusion)
    }

    /// What an input's columns mean behind the join. The windows of both sides are one.
    fn joined_roles(&self, node: NodeId, common: &Common, padded: bool) -> Vec<Role> {
        let role = |(role, field): (&Role, &Arc<Field>)| match role {
            Role::Bound(part, window) if common.windows.iter().any(|common| common.id == window.id) => {
                match padded {
                    true if *part == Part::Time => {
                        Role::Lost(format!("\"{}\" is NULL where the join finds no row", field.name()))
                    }
                    true => Role::Plain,
                    false => Role::Bound(*part, common.windows[0]),
                }
            }
            other if other.time_unit().is_some() => Role::Lost(format!(
                "a row of a window join comes when its window closes, which \"{}\" does not tell",
                field.name()
            )),
            Role::Bound(..) => Role::Plain,
            other => other.clone(),
        };
        self.roles[node].iter().zip(self.schema(node).fields()).map(role).collect()
    }
}

/// Whether these parts of a window tell which one it is.
pub(super) fn is_whole_window(window: Window, parts: &[Part]) -> bool {
    let has = |part: Part| parts.contains(&part);
    match window.spec.kind {
        WindowKind::Cumulate { .. } | WindowKind::Session { .. } => {
            has(Part::Start) && (has(Part::End) || has(Part::Time))
        }
        _ => !parts.is_empty(),
    }
}

fn moved(slots: &[Slot], by: usize) -> impl Iterator<Item = Slot> + '_ {
    slots.iter().map(move |slot| match slot {
        Slot::Column(index) => Slot::Column(index + by),
        pending @ Slot::Pending(_) => *pending,
    })
}
