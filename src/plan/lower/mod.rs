//! Logical plan to [`StreamPlan`]: operators over Arrow columns, exchanges, stream properties.
//!
//! A logical plan's window columns stay virtual until something needs their values: an aggregation
//! over them takes the window from the time column itself. Projections that only choose or rename
//! columns cost no operator.
//!
//! Invariant: no SQL text is looked at here but for the places of errors.

mod aggregate;
mod calc;
mod dependence;
mod emission;
mod expression;
mod first_rows;
mod group_changes;
mod grouping;
mod horizon;
mod interval_join;
mod join;
mod late;
mod lookup_join;
mod not_null;
mod order;
mod over;
mod pattern;
mod regular_join;
mod relation;
mod sink;
mod source;
mod temporal_join;
mod top_n;
mod unnest;
mod window;

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use chrono_tz::Tz;
use datafusion_expr::LogicalPlan;

use self::emission::Emissions;
use self::late::{Carried, Late};
use super::bind::Session;
use super::emit::EmitNode;
use super::guarantee::guarantee;
use super::late::LateNode;
use super::lint;
use super::pattern::PatternNode;
use super::places::Places;
use super::{
    NodeId, Operation, OverTrigger, PlanNode, RankLimit, StreamPlan, StreamProperties, WindowKind, WindowSpec,
};
use crate::catalog::Table;
use crate::error::{Error, code};
use crate::stream::TimeUnit;

pub(super) use expression::{checked_arithmetic, plain_column};
pub(super) use first_rows::{counts_rows, ranked, upper_bound};
pub(super) use sink::Target;

/// Lowers the queries of one statement, each into its sink.
///
/// # Errors
/// What can't run on a stream, with the reason and the way out.
pub(super) fn lower(
    session: &Arc<Session>,
    queries: Vec<(LogicalPlan, Target, Places)>,
) -> Result<StreamPlan, Error> {
    let mut lowering = Lowering {
        session,
        places: Places::default(),
        plan: StreamPlan::default(),
        roles: Vec::new(),
        late: Late::default(),
        emissions: Emissions::default(),
        by_clock: false,
    };
    for (plan, target, places) in queries {
        lowering.places = places;
        lowering.sink(&plan, target).map_err(|error| lowering.places.locate(error))?;
        lowering.lint();
    }
    lowering.late_sinks()?;
    if session.lints_tables {
        lowering.plan.guarantee = guarantee(&lowering.plan, session.connectors.as_ref());
    }
    Ok(lowering.plan)
}

/// What is being built.
struct Lowering<'a> {
    session: &'a Arc<Session>,
    /// Where the query's clauses stand.
    places: Places,
    plan: StreamPlan,
    /// For each node, what its columns mean for event time.
    roles: Vec<Vec<Role>>,
    /// What `LATE ROWS INTO` asks for.
    late: Late,
    /// What `EMIT` and `ALLOW LATENESS` ask for.
    emissions: Emissions,
    /// The window that is being lowered stands on a `PROCTIME()` column.
    by_clock: bool,
}

/// What a column means for event time.
#[derive(Debug, Clone)]
enum Role {
    /// Nothing, and it never did.
    Plain,
    /// A column of this table, which is not its time attribute.
    OfTable(Arc<Table>),
    /// It was a time attribute before what this says.
    Lost(String),
    /// A time attribute.
    Time(TimeUnit),
    /// A bound of a window.
    Bound(Part, Window),
}

/// A column of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Start,
    End,
    /// The only one that is still a time attribute.
    Time,
}

impl Part {
    const ALL: [Self; 3] = [Self::Start, Self::End, Self::Time];

    fn name(self) -> &'static str {
        match self {
            Self::Start => "window_start",
            Self::End => "window_end",
            Self::Time => "window_time",
        }
    }

    /// Its type, where `time` is that of the time attribute: bounds that a zone's wall clock cut are
    /// what that clock shows, so they have no zone.
    fn data_type(self, time: &DataType, zone: Option<Tz>) -> DataType {
        match (self, time) {
            (Self::Start | Self::End, DataType::Timestamp(unit, Some(_))) if zone.is_some() => {
                DataType::Timestamp(*unit, None)
            }
            _ => time.clone(),
        }
    }
}

/// A window function of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    /// No other window of the plan has it.
    id: usize,
    spec: WindowSpec,
}

impl Window {
    fn is_session(&self) -> bool {
        matches!(self.spec.kind, WindowKind::Session { .. })
    }
}

impl Role {
    /// The unit of a time attribute.
    fn time_unit(&self) -> Option<TimeUnit> {
        match self {
            Self::Time(unit) => Some(*unit),
            Self::Bound(Part::Time, window) => Some(window.spec.unit),
            _ => None,
        }
    }
}

/// Where a logical column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// A column of the node.
    Column(usize),
    /// A column of the window that is not computed yet.
    Pending(Part),
}

/// A window that the node's rows are in, though no operator has computed it yet.
#[derive(Debug, Clone)]
struct Pending {
    window: Window,
    /// The node's time column.
    time: usize,
    /// The type of the window's columns.
    data_type: DataType,
    /// SESSION: the node's columns of PARTITION BY.
    partition: Vec<usize>,
    /// SESSION: its rows must come in the same order at any parallelism.
    in_order: bool,
}

/// A logical plan that has been lowered.
#[derive(Debug, Clone)]
struct Lowered {
    node: NodeId,
    /// One for each column of the logical plan.
    slots: Vec<Slot>,
    pending: Option<Pending>,
    carried: Carried,
}

/// What stands above a plan, as far as it matters below.
#[derive(Debug, Clone, Copy, Default)]
struct Above {
    /// The result depends on the order in which rows come, so that order must be the same at any
    /// parallelism.
    order: bool,
    /// The block with EMIT or ALLOW LATENESS whose aggregation is looked for.
    emission: Option<usize>,
    /// Which rows of the OVER below come out; nothing but names stands between.
    ranks: Option<RankLimit>,
    /// Nobody above reads that rank.
    drops_rank: bool,
    /// A window stands above: rows must keep their time.
    keeps_time: bool,
    /// `FOR SYSTEM_TIME AS OF` stands above: each row of the OVER below is a version, the last one of its key or not.
    versions: bool,
}

impl Lowering<'_> {
    fn lower(&mut self, plan: &LogicalPlan, above: Above) -> Result<Lowered, Error> {
        match plan {
            LogicalPlan::TableScan(scan) => self.source(scan, above),
            LogicalPlan::SubqueryAlias(alias) => self.lower(&alias.input, above),
            LogicalPlan::Projection(projection) => self.projection(projection, above),
            LogicalPlan::Filter(filter) => self.filter(filter, above),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate, above),
            LogicalPlan::Union(union) => self.union(union, above),
            LogicalPlan::Values(values) => self.values(values),
            LogicalPlan::EmptyRelation(empty) => self.empty(empty),
            LogicalPlan::Sort(sort) => self.sort(sort, above),
            LogicalPlan::Limit(limit) => self.limit(limit, above),
            LogicalPlan::Extension(extension) => {
                let node = extension.node.as_any();
                if let Some(block) = node.downcast_ref::<LateNode>() {
                    self.late_block(block, above)
                } else if let Some(block) = node.downcast_ref::<EmitNode>() {
                    self.emit_block(block, above)
                } else if let Some(pattern) = node.downcast_ref::<PatternNode>() {
                    self.pattern(pattern, above)
                } else {
                    self.window(extension, above)
                }
            }
            LogicalPlan::Join(join) => self.join(join, above),
            LogicalPlan::Window(window) => self.over(window, above),
            LogicalPlan::Subquery(_) => Err(unsupported("a subquery").at(self.places.subquery)),
            LogicalPlan::Unnest(unnest) => self.unnest(unnest, above),
            LogicalPlan::RecursiveQuery(_) => Err(unsupported("WITH RECURSIVE")),
            LogicalPlan::Distinct(_) => Err(unsupported("DISTINCT ON").at(self.places.distinct)),
            LogicalPlan::Repartition(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::Statement(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::DescribeTable(_) => Err(unsupported("this statement")),
        }
    }

    /// Adds a node. `roles`: one for each column of `schema`.
    fn push(
        &mut self,
        operation: Operation,
        inputs: Vec<NodeId>,
        schema: SchemaRef,
        roles: Vec<Role>,
        stream: Stream,
    ) -> NodeId {
        debug_assert_eq!(schema.fields().len(), roles.len(), "a role for each column");
        let time_attributes = roles
            .iter()
            .enumerate()
            .filter(|(_, role)| stream.watermark && role.time_unit().is_some())
            .map(|(index, _)| index)
            .collect();
        let changes = match &operation {
            Operation::WindowAggregate(aggregate) => aggregate.is_updating(),
            // A row without partner may find one.
            Operation::RegularJoin(join) => join.kind.keeps_first() || join.kind.keeps_second(),
            Operation::TopN(top) => top.changes(),
            Operation::Over(over) => over.trigger == OverTrigger::Change,
            Operation::Source(source) => source.changelog,
            // A group without aggregates is given once.
            Operation::GroupChanges(group) => !group.aggregates.is_empty(),
            _ => false,
        };
        let updating = changes || inputs.iter().any(|input| self.plan.nodes[*input].properties.updating);
        let properties = StreamProperties {
            bounded: stream.bounded,
            updating,
            watermark: stream.watermark,
            time_attributes,
            key: stream.key,
        };
        self.plan.nodes.push(PlanNode { operation, inputs, schema, properties, late: None });
        self.roles.push(roles);
        self.plan.nodes.len() - 1
    }

    /// Notes what may not be meant in the query that was lowered last.
    fn lint(&mut self) {
        let Some(&sink) = self.plan.sinks.last() else { return };
        let lost = |node: NodeId, column: usize| match self.roles[node].get(column) {
            Some(Role::Lost(how)) => Some(how.clone()),
            _ => None,
        };
        let changes = self.changing_clause(sink);
        let mut lints = lint::of_time(&self.plan, sink, &self.places, &lost, changes);
        if self.session.lints_tables {
            let connectors = self.session.connectors.as_ref();
            lints.extend(lint::of_tables(&self.plan, sink, &self.places, connectors));
        }
        self.plan.lints.extend(lints);
    }

    fn schema(&self, node: NodeId) -> &SchemaRef {
        &self.plan.nodes[node].schema
    }

    /// What a node's stream promises, for a node over it that changes none of it.
    fn stream(&self, node: NodeId) -> Stream {
        let properties = &self.plan.nodes[node].properties;
        Stream { bounded: properties.bounded, watermark: properties.watermark, key: properties.key.clone() }
    }

    /// What a logical column means for event time.
    fn role(&self, lowered: &Lowered, column: usize) -> Role {
        match (lowered.slots[column], &lowered.pending) {
            (Slot::Column(index), _) => self.roles[lowered.node][index].clone(),
            (Slot::Pending(part), Some(pending)) => Role::Bound(part, pending.window),
            (Slot::Pending(_), None) => Role::Plain,
        }
    }
}

/// The parts of [`StreamProperties`] that do not follow from the columns.
#[derive(Debug, Clone, Default)]
struct Stream {
    bounded: bool,
    watermark: bool,
    key: Option<Vec<usize>>,
}

fn unsupported(what: &str) -> Error {
    Error::plan(code::NOT_SUPPORTED, format!("{what} can't run yet"))
}
