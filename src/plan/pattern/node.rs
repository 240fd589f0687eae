//! The logical node of MATCH_RECOGNIZE.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion_common::{Column, DFSchemaRef, DataFusionError, Result as DfResult};
use datafusion_expr::{Expr, LogicalPlan, SortExpr, UserDefinedLogicalNodeCore};

use super::shape::Shape;
use crate::error::Span;
use crate::plan::AfterMatch;

/// What the clause says. Its expressions are over the input and have their types already: the rules
/// that move expressions do not look into them, because conditions read more than rows.
#[derive(Debug)]
pub(in crate::plan) struct PatternClause {
    /// The time column of ORDER BY.
    pub(in crate::plan) time: Column,
    pub(in crate::plan) time_span: Option<Span>,
    /// What ORDER BY has behind it.
    pub(in crate::plan) order: Vec<SortExpr>,
    pub(in crate::plan) partition: Vec<Expr>,
    pub(in crate::plan) variables: Vec<VariableDefinition>,
    pub(in crate::plan) within_us: Option<i64>,
    pub(in crate::plan) skip: AfterMatch,
    /// What measures read.
    pub(in crate::plan) values: Vec<Value>,
    /// Over the columns of `values`.
    pub(in crate::plan) measures: Vec<Expr>,
    /// The pattern as it was written.
    pub(in crate::plan) text: String,
}

/// A variable and its condition.
#[derive(Debug)]
pub(in crate::plan) struct VariableDefinition {
    pub(in crate::plan) shape: Shape,
    /// The part of the condition that reads only the row.
    pub(in crate::plan) row_condition: Option<Expr>,
    /// The rest, over the input's columns and those of `values`.
    pub(in crate::plan) match_condition: Option<Expr>,
    pub(in crate::plan) values: Vec<Value>,
    /// As it was written.
    pub(in crate::plan) text: Option<String>,
}

/// A value of the rows of a match.
#[derive(Debug)]
pub(in crate::plan) struct Value {
    /// `None`: of all rows.
    pub(in crate::plan) variable: Option<usize>,
    pub(in crate::plan) kind: ValueKind,
    /// Over the input: the value of a row, or the aggregate.
    pub(in crate::plan) expr: Expr,
    pub(in crate::plan) is_rowtime: bool,
}

/// What is computed of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::plan) enum ValueKind {
    /// The value of one of them, so far from the first or last one.
    Row { from_last: bool, offset: u32 },
    /// An aggregate.
    Aggregate,
}

/// The name under which conditions and measures have a value.
pub(in crate::plan) fn value_column(index: usize) -> String {
    format!("__value_{index}")
}

/// The columns of PARTITION BY, then the measures.
#[derive(Debug, Clone)]
pub(in crate::plan) struct PatternNode {
    /// No other window or pattern of the plan has it.
    pub(in crate::plan) id: usize,
    pub(in crate::plan) input: Arc<LogicalPlan>,
    pub(in crate::plan) clause: Arc<PatternClause>,
    /// All columns of the input are needed below: late rows have them.
    pub(in crate::plan) keeps_all: bool,
    pub(in crate::plan) schema: DFSchemaRef,
}

impl PatternNode {
    /// The same clause, below which no column of the input is left out.
    pub(in crate::plan) fn keeping_all(&self) -> Self {
        Self { keeps_all: true, ..self.clone() }
    }
}

impl PatternClause {
    fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let conditions = self.variables.iter().flat_map(|variable| {
            let values = variable.values.iter().map(|value| &value.expr);
            variable.row_condition.iter().chain(&variable.match_condition).chain(values)
        });
        let order = self.order.iter().map(|key| &key.expr);
        self.partition
            .iter()
            .chain(order)
            .chain(conditions)
            .chain(self.values.iter().map(|value| &value.expr))
    }
}

impl PartialEq for PatternNode {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.input == other.input
    }
}

impl Eq for PatternNode {}

impl Hash for PatternNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for PatternNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.id.cmp(&other.id) {
            Ordering::Equal => self.input.partial_cmp(&other.input),
            order => Some(order),
        }
    }
}

impl UserDefinedLogicalNodeCore for PatternNode {
    fn name(&self) -> &str {
        "MatchRecognize"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MatchRecognize: {}", self.clause.text)
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> DfResult<Self> {
        let Ok([input]) = <[LogicalPlan; 1]>::try_from(inputs) else {
            return Err(DataFusionError::Internal("MATCH_RECOGNIZE has one input".to_owned()));
        };
        Ok(Self { input: Arc::new(input), ..self.clone() })
    }

    /// The columns that the clause reads, whatever is read of its output.
    fn necessary_children_exprs(&self, _output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let schema = self.input.schema();
        if self.keeps_all {
            return Some(vec![(0..schema.fields().len()).collect()]);
        }
        let read = self.clause.exprs().flat_map(Expr::column_refs).chain([&self.clause.time]);
        // What is no column of the input is a value of the match.
        let mut wanted: Vec<usize> = read.filter_map(|column| schema.maybe_index_of_column(column)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        Some(vec![wanted])
    }
}
