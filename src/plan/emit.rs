//! `EMIT` and `ALLOW LATENESS`: the node that marks a query block with one of these clauses.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchemaRef, DataFusionError, Result as DfResult};
use datafusion_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};

use super::EmitMode;
use super::window_text::duration;
use crate::error::Span;

/// What makes results change where no clause does.
pub(super) const UNWINDOWED: &str = "GROUP BY without a window";

/// How a query block gives its results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Emission {
    /// `EMIT …`, with its place; no place inside views, whose text is another one.
    pub(super) emit: Option<(EmitMode, Option<Span>)>,
    /// `ALLOW LATENESS …`, microseconds, with its place.
    pub(super) lateness: Option<(i64, Option<Span>)>,
    /// Nobody wrote it: results over input that never ends can't be final, so each change is given.
    pub(super) is_implied: bool,
}

impl Emission {
    /// That of an aggregation at `span` whose results are never final.
    pub(super) fn implied(span: Option<Span>) -> Self {
        let emit = Some((EmitMode::Changes { every_us: None }, span));
        Self { emit, lateness: None, is_implied: true }
    }

    /// When results come; without EMIT when windows close.
    pub(super) fn mode(&self) -> EmitMode {
        self.emit.map_or(EmitMode::OnWindowClose, |(mode, _)| mode)
    }

    /// How long closed windows take more rows, microseconds.
    pub(super) fn lateness_us(&self) -> i64 {
        self.lateness.map_or(0, |(us, _)| us)
    }

    /// Whether results change after they were given.
    pub(super) fn is_updating(&self) -> bool {
        self.mode() != EmitMode::OnWindowClose || self.lateness_us() > 0
    }

    /// Whether each row may change a result, so that what is given depends on the order of rows.
    pub(super) fn follows_rows(&self) -> bool {
        self.lateness_us() > 0 || self.mode() == EmitMode::Changes { every_us: None }
    }

    /// The clause that makes results change, and its place.
    pub(super) fn clause(&self) -> (&'static str, Option<Span>) {
        match (self.emit, self.lateness) {
            (Some((_, span)), _) if self.is_implied => (UNWINDOWED, span),
            (Some((mode, span)), _) if mode != EmitMode::OnWindowClose => (mode.clause(), span),
            (_, Some((_, span))) => ("ALLOW LATENESS", span),
            (Some((mode, span)), None) => (mode.clause(), span),
            (None, None) => ("EMIT", None),
        }
    }
}

impl EmitMode {
    /// The words of its clause.
    pub(super) fn clause(self) -> &'static str {
        match self {
            Self::OnWindowClose => "EMIT ON WINDOW CLOSE",
            Self::Changes { .. } => "EMIT CHANGES",
            Self::Complete { .. } => "EMIT COMPLETE",
            Self::Early { .. } => "EMIT EARLY",
        }
    }

    /// What EXPLAIN says of it.
    pub(super) fn text(self) -> String {
        let every = self.every_us().map(|us| format!(" every {}", duration(us))).unwrap_or_default();
        format!("{}{every}", self.clause().to_lowercase())
    }
}

/// A query block with EMIT or ALLOW LATENESS: its rows. Nothing above it is moved below it.
#[derive(Debug, Clone)]
pub(super) struct EmitNode {
    pub(super) input: Arc<LogicalPlan>,
    pub(super) emission: Arc<Emission>,
}

/// Marks the plan of a block.
pub(super) fn emit(plan: LogicalPlan, emission: Emission) -> LogicalPlan {
    let node = EmitNode { input: Arc::new(plan), emission: Arc::new(emission) };
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

/// The plan of a view: its places are those of another text.
pub(super) fn without_places(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let moved = plan.transform_down(|node| {
        let LogicalPlan::Extension(extension) = &node else { return Ok(Transformed::no(node)) };
        let Some(block) = extension.node.as_any().downcast_ref::<EmitNode>() else {
            return Ok(Transformed::no(node));
        };
        let emission = Arc::new(Emission {
            emit: block.emission.emit.map(|(mode, _)| (mode, None)),
            lateness: block.emission.lateness.map(|(us, _)| (us, None)),
            is_implied: block.emission.is_implied,
        });
        let node = Arc::new(EmitNode { input: Arc::clone(&block.input), emission });
        Ok(Transformed::yes(LogicalPlan::Extension(Extension { node })))
    })?;
    Ok(moved.data)
}

impl PartialEq for EmitNode {
    fn eq(&self, other: &Self) -> bool {
        self.emission == other.emission && self.input == other.input
    }
}

impl Eq for EmitNode {}

impl Hash for EmitNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.emission.mode().text().hash(state);
        self.emission.lateness_us().hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for EmitNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.emission.mode().text().cmp(&other.emission.mode().text()) {
            Ordering::Equal => self.input.partial_cmp(&other.input),
            order => Some(order),
        }
    }
}

impl UserDefinedLogicalNodeCore for EmitNode {
    fn name(&self) -> &str {
        "Emit"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Emit: {}", self.emission.mode().text())
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> DfResult<Self> {
        let Ok([input]) = <[LogicalPlan; 1]>::try_from(inputs) else {
            return Err(DataFusionError::Internal("a query block has one input".to_owned()));
        };
        Ok(Self { input: Arc::new(input), emission: Arc::clone(&self.emission) })
    }
}
