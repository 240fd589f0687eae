//! When results come: the clauses of query blocks on their aggregations, and who can take changes.

use std::sync::Arc;

use super::over::OVER_CHANGES;
use super::regular_join::UNTIMED;
use super::source::CHANGES;
use super::top_n::FIRST_ROWS;
use super::{Above, Lowered, Lowering};
use crate::error::{Error, Span, code};
use crate::plan::emit::{Emission, EmitNode, UNWINDOWED};
use crate::plan::{AggregateCall, EmitMode, NodeId, Operation, WindowKind};

/// The clauses of all blocks, and the aggregations that they changed.
#[derive(Debug, Default)]
pub(super) struct Emissions {
    blocks: Vec<Block>,
    /// Aggregations whose results change, with the clause that says so.
    changing: Vec<(NodeId, &'static str, Option<Span>)>,
}

#[derive(Debug)]
struct Block {
    emission: Arc<Emission>,
    is_used: bool,
}

impl Lowering<'_> {
    /// A query block with EMIT or ALLOW LATENESS: they are those of its aggregation.
    pub(super) fn emit_block(&mut self, block: &EmitNode, above: Above) -> Result<Lowered, Error> {
        let index = self.emissions.blocks.len();
        let emission = Arc::clone(&block.emission);
        self.emissions.blocks.push(Block { emission, is_used: false });
        let lowered = self.lower(&block.input, Above { emission: Some(index), ..above })?;
        if self.emissions.blocks[index].is_used {
            return Ok(lowered);
        }
        let (what, span, over) = match (block.emission.emit, block.emission.lateness) {
            (Some((EmitMode::OnWindowClose, span)), _) => ("EMIT", span, "over no window"),
            (Some((_, span)), _) => ("EMIT", span, "nothing"),
            (None, lateness) => ("ALLOW LATENESS", lateness.and_then(|(_, span)| span), "over no window"),
        };
        let message = format!("{what} has no effect here: the query block aggregates {over}");
        Err(Error::plan(code::INVALID_QUERY, message)
            .at(span)
            .hint(format!("Leave {what} out, or group by window_start and window_end of a window function.")))
    }

    /// The clauses for an aggregation under `above`.
    pub(super) fn emission(&mut self, above: Above) -> Option<Arc<Emission>> {
        let block = self.emissions.blocks.get_mut(above.emission?)?;
        block.is_used = true;
        Some(Arc::clone(&block.emission))
    }

    /// Whether the block under `above` asks for each change, of something that is no aggregation.
    pub(super) fn asks_for_changes(&mut self, above: Above) -> Result<bool, Error> {
        let Some(block) = above.emission.and_then(|index| self.emissions.blocks.get_mut(index)) else {
            return Ok(false);
        };
        match (block.emission.emit, block.emission.lateness) {
            (Some((EmitMode::Changes { every_us: None }, _)), None) => {
                block.is_used = true;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether what stands below an aggregation under `above` must come in the same order always.
    pub(super) fn emits_in_order(&self, above: Above) -> bool {
        let block = above.emission.and_then(|index| self.emissions.blocks.get(index));
        block.is_some_and(|block| block.emission.follows_rows())
    }

    /// Sessions that are known before their rows are grouped are final: nothing changes any more there.
    /// `mixes`: rows of several partitions may be in one group.
    pub(super) fn refuse_late_sessions(&self, emission: Option<&Emission>, mixes: bool) -> Result<(), Error> {
        let Some(emission) = emission.filter(|emission| emission.is_updating()) else { return Ok(()) };
        let (clause, span) = emission.clause();
        let (why, hint) = match mixes {
            true => (
                "whose PARTITION BY has a key that GROUP BY has not: a group is of several sessions then",
                "Group by all columns of PARTITION BY",
            ),
            false => (
                "where a key, an argument or a condition below the aggregation reads the bounds of the window",
                "Use the bounds only in GROUP BY, and compute with them in the SELECT list or an outer query",
            ),
        };
        Err(Error::plan(code::NOT_SUPPORTED, format!("{clause} can't run with SESSION windows {why}"))
            .at(span)
            .hint(format!(
                "{hint}; or leave the clause out: sessions give their final results when they are over."
            )))
    }

    /// Whether the rows of a node are those of sessions that are over, not aggregated.
    pub(super) fn are_of_sessions(&self, node: NodeId) -> bool {
        let node = &self.plan.nodes[node];
        match &node.operation {
            Operation::WindowRows(rows) => matches!(rows.window.kind, WindowKind::Session { .. }),
            Operation::WindowAggregate(_) => false,
            _ => node.inputs.iter().any(|input| self.are_of_sessions(*input)),
        }
    }

    /// What an aggregation without a window can't do with its clauses. `bounded`: its input ends.
    pub(super) fn check_unwindowed_emission(
        &mut self,
        emission: Option<&Emission>,
        bounded: bool,
    ) -> Result<(), Error> {
        let Some(emission) = emission else { return Ok(()) };
        let no_window = |what: &str, span: Option<Span>| {
            let message = format!("{what} has no effect here: the query block aggregates over no window");
            Err(Error::plan(code::INVALID_QUERY, message).at(span).hint(format!(
                "Leave {what} out, or group by window_start and window_end of a window function."
            )))
        };
        if let Some((_, span)) = emission.lateness {
            return no_window("ALLOW LATENESS", span);
        }
        match emission.emit {
            Some((EmitMode::OnWindowClose, span)) => no_window("EMIT", span),
            Some((EmitMode::Early { .. }, span)) => no_window("EMIT EARLY", span),
            Some((EmitMode::Complete { every_us: None }, span)) if !bounded => Err(Error::plan(
                code::INVALID_QUERY,
                "EMIT COMPLETE gives nothing here: no window closes and the input never ends",
            )
            .at(span)
            .hint("Say how often: EMIT COMPLETE EVERY INTERVAL '10' SECOND.")),
            Some((mode, _)) if !bounded => {
                let clause = match emission.is_implied {
                    true => UNWINDOWED.to_owned(),
                    false => format!("{} without a window", mode.clause()),
                };
                self.warn(format!("{clause} keeps a group for each key as long as the query runs: group by a window, or SET 'state.ttl'"));
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Aggregates whose value can't be read while they take rows.
    pub(super) fn check_emitted_calls(
        &self,
        emission: Option<&Emission>,
        calls: &[AggregateCall],
    ) -> Result<(), Error> {
        let Some(emission) = emission.filter(|emission| emission.is_updating()) else { return Ok(()) };
        let is_sketch = |name: &str| name.starts_with("approx_percentile") || name == "approx_median";
        let Some(call) = calls.iter().find(|call| is_sketch(call.function.fun().name())) else {
            return Ok(());
        };
        let (clause, span) = emission.clause();
        let name = call.function.fun().name();
        let message = format!("{name} can't run with {clause}: what it estimates depends on when it is read");
        Err(Error::plan(code::NOT_SUPPORTED, message)
            .at(span)
            .hint("Use MEDIAN or PERCENTILE_CONT, which are exact."))
    }

    /// Notes that the results of an aggregation change.
    pub(super) fn note_emission(&mut self, node: NodeId, emission: &Emission) {
        let (clause, span) = emission.clause();
        self.emissions.changing.push((node, clause, span));
        let properties = &self.plan.nodes[node].properties;
        if matches!(emission.mode(), EmitMode::Complete { .. }) && !properties.bounded {
            let warning = "EMIT COMPLETE keeps the results of all windows as long as the query runs";
            if !self.plan.warnings.iter().any(|known| known.starts_with("EMIT COMPLETE")) {
                self.plan.warnings.push(warning.to_owned());
            }
        }
    }

    /// Notes that the rows of a node change, and what makes them.
    pub(super) fn note_changes(&mut self, node: NodeId, what: &'static str, span: Option<Span>) {
        self.emissions.changing.push((node, what, span));
    }

    /// The clause that makes the rows of a node change.
    pub(super) fn changing_clause(&self, node: NodeId) -> Option<(&'static str, Option<Span>)> {
        if !self.plan.nodes[node].properties.updating {
            return None;
        }
        if let Some((_, clause, span)) = self.emissions.changing.iter().find(|(known, ..)| *known == node) {
            return Some((clause, *span));
        }
        self.plan.nodes[node].inputs.iter().find_map(|input| self.changing_clause(*input))
    }

    /// Refuses to read a changelog. `what`: the clause that would read it.
    ///
    /// # Errors
    /// `P002` that names the block and the way out.
    pub(super) fn refuse_changes(&self, node: NodeId, what: &str) -> Result<(), Error> {
        let Some((clause, span)) = self.changing_clause(node) else { return Ok(()) };
        let message = match clause {
            CHANGES => format!("{what} can't run yet over {clause}"),
            _ => format!("{what} can't run yet over a query block with {clause}, whose results change"),
        };
        let error = Error::plan(code::NOT_SUPPORTED, message).at(span);
        Err(match clause {
            "ALLOW LATENESS" => error.hint(
                "Leave ALLOW LATENESS out, and give the watermark a longer delay: the block then gives final results only.",
            ),
            UNWINDOWED => error.hint("Group by a window: its results are final."),
            FIRST_ROWS => error.hint("Partition by window_start and window_end: the first rows of a window are final."),
            CHANGES => error.hint("Aggregate its rows first: in windows over its event time, or by key."),
            OVER_CHANGES => error.hint(
                "Order by the time attribute, ascending, or partition by window_start and window_end: values are final then.",
            ),
            UNTIMED => error.hint("Bound how far the times are apart: the results are final then."),
            _ => error.hint(format!(
                "Leave {clause} out: the block then gives final results only."
            )),
        })
    }
}
