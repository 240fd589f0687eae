//! What the tables of a plan are like, as far as their connectors know without reading rows.

use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::utils::collect_columns;

use super::{Lint, Query};
use crate::catalog::{ConnectorCatalog, FrequentValue, TableStatistics};
use crate::error::code;
use crate::plan::places::Places;
use crate::plan::{Distribution, ExprRef, NodeId, Operation, PlanNode, SourceNode, StreamPlan};

/// One value in so many of the rows keeps one subtask busy while others wait, however many there are.
const SKEWED_SHARE: f64 = 0.5;
/// What sums of shares may be wrong by.
const ROUNDING: f64 = 1e-9;

/// Looks at the tables of the query that ends in `sink`.
pub(in crate::plan) fn of_tables(
    plan: &StreamPlan,
    sink: NodeId,
    places: &Places,
    connectors: &dyn ConnectorCatalog,
) -> Vec<Lint> {
    let query = Query::of(plan, sink, places);
    let known: Vec<_> =
        query.sources().map(|(node, source)| (node, source, connectors.statistics(&source.table))).collect();
    let mut lints: Vec<Lint> =
        known.iter().filter_map(|(_, source, known)| lacks_idleness(&query, source, known)).collect();
    for id in &query.nodes {
        let node = &plan.nodes[*id];
        if let Operation::Exchange(Distribution::Hash(keys)) = &node.operation {
            lints.extend(skewed(&query, node, keys, &known));
        }
    }
    lints
}

/// One quiet split would hold everybody's windows.
fn lacks_idleness(query: &Query<'_>, source: &SourceNode, known: &TableStatistics) -> Option<Lint> {
    let watermark = source.watermark.as_ref()?;
    let may_wait = !source.table.bounded && !watermark.processing && watermark.idle_after_us.is_none();
    (may_wait && known.has_several_splits).then(|| {
        let sql = source.table.watermark.as_ref().map_or("", |spec| spec.sql.as_str());
        Lint::new(
            code::LINT_NO_IDLENESS,
            format!(
                "\"{}\" has several splits and no IDLE AFTER: one split without rows holds event time of all",
                source.table.name
            ),
            query.place_of(source),
            format!(
                "Declare WATERMARK FOR {} AS {sql} IDLE AFTER INTERVAL '30' SECOND, or a longer time.",
                watermark.column
            ),
        )
    })
}

/// Most rows have the same key, as the statistics of their table say.
fn skewed(
    query: &Query<'_>,
    exchange: &PlanNode,
    keys: &[usize],
    known: &[(NodeId, &SourceNode, TableStatistics)],
) -> Option<Lint> {
    let input = *exchange.inputs.first()?;
    let frequent: Vec<&FrequentValue> =
        keys.iter().map(|key| frequent_value(query.plan, input, *key, known)).collect::<Option<_>>()?;
    // Rows that have all of the frequent values, at least.
    let share = 1.0 - frequent.iter().map(|one| 1.0 - one.share).sum::<f64>();
    if frequent.is_empty() || share < SKEWED_SHARE - ROUNDING {
        return None;
    }
    let named: Vec<String> =
        frequent.iter().map(|one| format!("\"{}\" = {}", one.column, one.value)).collect();
    Some(Lint::new(
        code::LINT_SKEWED_KEY,
        format!(
            "{} or more of 100 rows have {}: one subtask gets most of the work",
            ((share + ROUNDING) * 100.0).floor(),
            named.join(" and ")
        ),
        query.places.aggregate,
        "Filter that value if it is not wanted, or group in two steps: first by the key and a second column that \
         spreads the rows, then by the key over that result."
            .to_owned(),
    ))
}

/// What is known of a column of a node: the way back to the table, as long as nothing changes its values.
fn frequent_value<'k>(
    plan: &StreamPlan,
    mut node: NodeId,
    mut column: usize,
    known: &'k [(NodeId, &SourceNode, TableStatistics)],
) -> Option<&'k FrequentValue> {
    loop {
        let at = &plan.nodes[node];
        match &at.operation {
            Operation::Source(source) => {
                let name = plain(&source.output[column])?.name();
                let (_, _, known) = known.iter().find(|(known, ..)| *known == node)?;
                return known.frequent.iter().find(|one| one.column == name);
            }
            Operation::Calc(calc) => {
                let below = plain(&calc.project[column])?.index();
                let is_filtered =
                    |filter: &ExprRef| collect_columns(filter).iter().any(|column| column.index() == below);
                if calc.filter.as_ref().is_some_and(is_filtered) {
                    return None;
                }
                column = below;
            }
            // Columns of the input, then those of the window.
            Operation::WindowRows(_) => {
                let below = *at.inputs.first()?;
                if column >= plan.nodes[below].schema.fields().len() {
                    return None;
                }
            }
            Operation::Exchange(_) | Operation::TemporalSort(_) | Operation::Limit(_) => {}
            Operation::Values(_)
            | Operation::WindowAggregate(_)
            | Operation::Expand(_)
            | Operation::GroupChanges(_)
            | Operation::WindowChanges(_)
            | Operation::Normalize(_)
            | Operation::WindowJoin(_)
            | Operation::RegularJoin(_)
            | Operation::LookupJoin(_)
            | Operation::TemporalJoin(_)
            | Operation::Unnest(_)
            | Operation::IntervalJoin(_)
            | Operation::Over(_)
            | Operation::TopN(_)
            | Operation::MatchRecognize(_)
            | Operation::Union
            | Operation::Sort(_)
            | Operation::LateRows(_)
            | Operation::Sink(_) => return None,
        }
        node = *at.inputs.first()?;
    }
}

fn plain(expr: &ExprRef) -> Option<&Column> {
    expr.downcast_ref::<Column>()
}
