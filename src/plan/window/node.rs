//! The logical node of a window table function.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion_common::{Column, DFSchema, DFSchemaRef, DataFusionError, ExprSchema, Result as DfResult};
use datafusion_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

use super::WindowFunction;
use crate::error::Span;
use crate::plan::{WindowKind, WindowSpec};

/// The columns that a window adds, in their order.
pub(in crate::plan) const WINDOW_COLUMNS: [&str; 3] = ["window_start", "window_end", "window_time"];

/// What a person wrote, for errors.
#[derive(Debug)]
pub(in crate::plan) struct WindowCall {
    /// The function.
    pub(in crate::plan) function: WindowFunction,
    /// The time column's name as it stands in the call.
    pub(in crate::plan) time: String,
    /// Where the time column stands; `None` inside views.
    pub(in crate::plan) time_span: Option<Span>,
}

/// All columns of the input, then `window_start`, `window_end`, `window_time`.
#[derive(Debug, Clone)]
pub(in crate::plan) struct WindowNode {
    /// No other window of the plan has it.
    pub(in crate::plan) id: usize,
    pub(in crate::plan) input: Arc<LogicalPlan>,
    /// The time column; always an [`Expr::Column`].
    pub(in crate::plan) time: Expr,
    /// What sessions are kept apart by, over the input; empty for other windows.
    pub(in crate::plan) partition: Vec<Expr>,
    pub(in crate::plan) spec: WindowSpec,
    pub(in crate::plan) call: Arc<WindowCall>,
    /// All columns of the input are needed below, whatever is read above: late rows have them.
    pub(in crate::plan) keeps_all: bool,
    schema: DFSchemaRef,
}

impl WindowNode {
    /// A window over `input` that follows the column `time`.
    pub(in crate::plan) fn try_new(
        id: usize,
        input: Arc<LogicalPlan>,
        time: Column,
        partition: Vec<Expr>,
        spec: WindowSpec,
        call: Arc<WindowCall>,
    ) -> DfResult<Self> {
        Self::build(id, input, Expr::Column(time), partition, spec, call)
    }

    fn build(
        id: usize,
        input: Arc<LogicalPlan>,
        time: Expr,
        partition: Vec<Expr>,
        spec: WindowSpec,
        call: Arc<WindowCall>,
    ) -> DfResult<Self> {
        let Expr::Column(column) = &time else {
            return Err(DataFusionError::Internal(format!("the time of a window is no column: {time}")));
        };
        let data_type = input.schema().field_from_column(column)?.data_type().clone();
        let mut fields: Vec<_> =
            input.schema().iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field))).collect();
        for name in WINDOW_COLUMNS {
            // Bounds that a zone's wall clock cut are what that clock shows, so they have no zone.
            let data_type = match &data_type {
                DataType::Timestamp(unit, Some(_)) if spec.zone.is_some() && name != WINDOW_COLUMNS[2] => {
                    DataType::Timestamp(*unit, None)
                }
                other => other.clone(),
            };
            fields.push((None, Arc::new(Field::new(name, data_type, false))));
        }
        let schema = DFSchema::new_with_metadata(fields, input.schema().inner().metadata().clone())?;
        Ok(Self { id, input, time, partition, spec, call, keeps_all: false, schema: Arc::new(schema) })
    }

    /// The same window, below which no column of the input is left out.
    pub(in crate::plan) fn keeping_all(&self) -> Self {
        Self { keeps_all: true, ..self.clone() }
    }
}

impl PartialEq for WindowNode {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.time == other.time
            && self.partition == other.partition
            && self.input == other.input
    }
}

impl Eq for WindowNode {}

impl Hash for WindowNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
        self.time.hash(state);
        self.partition.hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for WindowNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.id.cmp(&other.id) {
            Ordering::Equal => self.input.partial_cmp(&other.input),
            order => Some(order),
        }
    }
}

impl UserDefinedLogicalNodeCore for WindowNode {
    fn name(&self) -> &str {
        self.call.function.name()
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        [&self.time].into_iter().chain(&self.partition).cloned().collect()
    }

    /// Only what tells windows apart must stay above: a row's other columns are those of the input.
    /// A session is made by all rows of its partition, so it may lose whole partitions only.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        let mut prevented: HashSet<String> = WINDOW_COLUMNS.iter().map(|name| (*name).to_owned()).collect();
        if matches!(self.spec.kind, WindowKind::Session { .. }) {
            let fields = self.input.schema().fields();
            let named = |name: &str| fields.iter().filter(|field| field.name() == name).count();
            let is_key = |name: &str| {
                named(name) == 1
                    && self
                        .partition
                        .iter()
                        .any(|key| matches!(key, Expr::Column(column) if column.name == name))
            };
            let others = fields.iter().map(|field| field.name()).filter(|name| !is_key(name));
            prevented.extend(others.cloned());
        }
        prevented
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: time={}", self.call.function.name(), self.time)
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> DfResult<Self> {
        let mut exprs = exprs.into_iter();
        let (Some(time), Ok([input])) = (exprs.next(), <[LogicalPlan; 1]>::try_from(inputs)) else {
            return Err(DataFusionError::Internal("a window has one time column and one input".to_owned()));
        };
        let call = Arc::clone(&self.call);
        let node = Self::build(self.id, Arc::new(input), time, exprs.collect(), self.spec, call)?;
        Ok(Self { keeps_all: self.keeps_all, ..node })
    }

    /// The wanted columns of the input and always the time column and those of PARTITION BY.
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.input.schema().fields().len();
        if self.keeps_all {
            return Some(vec![(0..width).collect()]);
        }
        let mut wanted: Vec<usize> = output_columns.iter().copied().filter(|index| *index < width).collect();
        for column in self.expressions().iter().flat_map(Expr::column_refs) {
            wanted.push(self.input.schema().index_of_column(column).ok()?);
        }
        wanted.sort_unstable();
        wanted.dedup();
        Some(vec![wanted])
    }
}
