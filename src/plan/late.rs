//! `LATE ROWS INTO`: the columns of late rows, and the node that marks a query block with the clause.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalUnit};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchemaRef, DataFusionError, Result as DfResult};
use datafusion_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};

use super::pattern::PatternNode;
use super::window::WindowNode;
use crate::catalog::Table;
use crate::error::Span;

/// The columns that late rows have behind those of the operator's input, in their order.
pub const LATE_COLUMNS: [&str; 9] = [
    "late_reason",
    "late_operator",
    "late_window_start",
    "late_window_end",
    "late_watermark",
    "late_by",
    "late_source",
    "late_split",
    "late_text",
];

/// Their types, for a time attribute of type `time` and windows with bounds of type `bound`. All may
/// be NULL.
pub(crate) fn late_columns(time: &DataType, bound: &DataType) -> Vec<Field> {
    let types = [
        DataType::Utf8,
        DataType::Utf8,
        bound.clone(),
        bound.clone(),
        time.clone(),
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Utf8,
        DataType::Utf8,
        DataType::Utf8,
    ];
    LATE_COLUMNS.iter().zip(types).map(|(name, data_type)| Field::new(*name, data_type, true)).collect()
}

/// Where the late rows of a query block go.
#[derive(Debug, Clone)]
pub(super) struct LateTarget {
    /// The table's name.
    pub(super) name: String,
    /// The table, if it exists; otherwise the plan makes a side table.
    pub(super) table: Option<Arc<Table>>,
    /// The clause; `None` inside views, whose text is another one.
    pub(super) span: Option<Span>,
}

/// A query block with `LATE ROWS INTO`: its rows, and its time operators' late rows to a table.
///
/// Nothing above it is moved below it, so that late rows are those of the block alone.
#[derive(Debug, Clone)]
pub(super) struct LateNode {
    pub(super) input: Arc<LogicalPlan>,
    pub(super) target: Arc<LateTarget>,
}

/// Marks the block's plan, and keeps all columns of the input of each of its windows.
pub(super) fn keep_late_rows(plan: LogicalPlan, target: LateTarget) -> DfResult<LogicalPlan> {
    let marked = plan.transform_down(|node| {
        let LogicalPlan::Extension(extension) = &node else { return Ok(Transformed::no(node)) };
        match extension.node.as_any().downcast_ref::<WindowNode>() {
            Some(window) if !window.keeps_all => {
                let node = Arc::new(window.keeping_all());
                Ok(Transformed::yes(LogicalPlan::Extension(Extension { node })))
            }
            _ => match extension.node.as_any().downcast_ref::<PatternNode>() {
                Some(pattern) if !pattern.keeps_all => {
                    let node = Arc::new(pattern.keeping_all());
                    Ok(Transformed::yes(LogicalPlan::Extension(Extension { node })))
                }
                _ => Ok(Transformed::no(node)),
            },
        }
    })?;
    let node = LateNode { input: Arc::new(marked.data), target: Arc::new(target) };
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

/// The plan of a view: its places are those of another text.
pub(super) fn without_places(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let moved = plan.transform_down(|node| {
        let LogicalPlan::Extension(extension) = &node else { return Ok(Transformed::no(node)) };
        let Some(block) = extension.node.as_any().downcast_ref::<LateNode>() else {
            return Ok(Transformed::no(node));
        };
        let target = Arc::new(LateTarget { span: None, ..block.target.as_ref().clone() });
        let node = Arc::new(LateNode { input: Arc::clone(&block.input), target });
        Ok(Transformed::yes(LogicalPlan::Extension(Extension { node })))
    })?;
    Ok(moved.data)
}

impl PartialEq for LateNode {
    fn eq(&self, other: &Self) -> bool {
        self.target.name == other.target.name && self.input == other.input
    }
}

impl Eq for LateNode {}

impl Hash for LateNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.target.name.hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for LateNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.target.name.cmp(&other.target.name) {
            Ordering::Equal => self.input.partial_cmp(&other.input),
            order => Some(order),
        }
    }
}

impl UserDefinedLogicalNodeCore for LateNode {
    fn name(&self) -> &str {
        "LateRows"
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
        write!(f, "LateRows: into {}", self.target.name)
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> DfResult<Self> {
        let Ok([input]) = <[LogicalPlan; 1]>::try_from(inputs) else {
            return Err(DataFusionError::Internal("a query block has one input".to_owned()));
        };
        Ok(Self { input: Arc::new(input), target: Arc::clone(&self.target) })
    }
}
