//! A plan as text: one operator a line, under it the columns and what the stream promises.

use std::fmt::Write;

use arrow::datatypes::{Field, Schema};
use datafusion_physical_expr::expressions::Column;

use super::text::physical as expression;
use super::window_text::{duration, window};
use super::{
    AfterMatch, AggregateCall, AggregatePhase, CalcNode, Distribution, EmitMode, ExprRef, IntervalJoinNode,
    JoinKind, MatchRecognizeNode, NodeId, Operation, OverNode, OverTrigger, PlanNode, RankKind,
    RegularJoinNode, SinkTarget, SortKey, SourceNode, StateTtl, StreamPlan, TopNNode, TtlClock,
    WindowAggregateNode, WindowJoinNode, WindowSource, sql_type_name,
};

impl StreamPlan {
    /// The plan as a tree, sinks first: each operator with its columns, event time, and whether its
    /// rows end, change, or have a key. Then what is known of the whole: guarantee, warnings, lints.
    ///
    /// ```
    /// use tidegate::catalog::Catalog;
    /// use tidegate::plan::Planner;
    ///
    /// let plan = Planner::default().plan("VALUES (1)", &Catalog::new())?;
    /// assert_eq!(
    ///     plan.explain(),
    ///     "Sink: result\n\
    ///      | column1 BIGINT NOT NULL; bounded, append\n\
    ///      \x20 Values: 1 row\n\
    ///      \x20 | column1 BIGINT NOT NULL; bounded, append\n"
    /// );
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn explain(&self) -> String {
        self.explain_with(&|_| Vec::new())
    }

    /// The same with further lines under each node.
    pub(crate) fn explain_with(&self, notes: &dyn Fn(NodeId) -> Vec<String>) -> String {
        let mut out = String::new();
        super::on_large_stack(|| {
            for sink in self.sinks.iter().chain(&self.late_sinks) {
                self.explain_node(*sink, 0, notes, &mut out);
            }
        });
        if let Some(guarantee) = &self.guarantee {
            let _ = writeln!(out, "guarantee: {}", guarantee.text);
        }
        for warning in &self.warnings {
            let _ = writeln!(out, "warning: {warning}");
        }
        self.lints.iter().for_each(|lint| out.push_str(&lint.text()));
        out
    }

    fn explain_node(
        &self,
        id: NodeId,
        depth: usize,
        notes: &dyn Fn(NodeId) -> Vec<String>,
        out: &mut String,
    ) {
        let node = &self.nodes[id];
        let indent = "  ".repeat(depth);
        let input = node.inputs.first().map(|input| self.nodes[*input].schema.as_ref());
        let details = details(node, input);
        let separator = if details.is_empty() { "" } else { ": " };
        let late = late_rows(node);
        let _ = writeln!(out, "{indent}{}{separator}{details}{late}", node.operation.name());
        let _ = writeln!(out, "{indent}| {}; {}", columns(&node.schema), promises(node));
        for note in notes(id) {
            let _ = writeln!(out, "{indent}{note}");
        }
        for input in &node.inputs {
            self.explain_node(*input, depth + 1, notes, out);
        }
    }
}

/// Where the rows go that a node can't use.
fn late_rows(node: &PlanNode) -> String {
    match &node.late {
        None => String::new(),
        Some(late) if matches!(node.operation, Operation::Source(_)) => {
            format!("; malformed rows → {}", late.table)
        }
        Some(late) => format!("; late rows → {}", late.table),
    }
}

impl Operation {
    /// What EXPLAIN calls it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Source(_) => "Source",
            Self::Values(_) => "Values",
            Self::Calc(_) => "Calc",
            Self::WindowRows(_) => "WindowRows",
            Self::WindowAggregate(_) => "WindowAggregate",
            Self::Expand(_) => "Expand",
            Self::GroupChanges(_) => "GroupAggregate",
            Self::WindowChanges(_) => "WindowAggregate",
            Self::Normalize(_) => "Normalize",
            Self::WindowJoin(join) if join.windows.is_none() => "Join",
            Self::WindowJoin(_) => "WindowJoin",
            Self::TemporalJoin(_) => "TemporalJoin",
            Self::RegularJoin(_) => "Join",
            Self::LookupJoin(_) => "LookupJoin",
            Self::IntervalJoin(_) => "IntervalJoin",
            Self::Over(_) => "Over",
            Self::TopN(top) if top.is_deduplication() => "Deduplicate",
            Self::TopN(_) => "TopN",
            Self::MatchRecognize(_) => "MatchRecognize",
            Self::Unnest(_) => "Unnest",
            Self::Union => "Union",
            Self::Exchange(_) => "Exchange",
            Self::TemporalSort(_) => "TemporalSort",
            Self::Limit(_) => "Limit",
            Self::Sort(_) => "Sort",
            Self::LateRows(_) => "LateRows",
            Self::Sink(_) => "Sink",
        }
    }
}

/// What the operator does, without its name. `input`: the schema that it reads.
pub(super) fn details(node: &PlanNode, input: Option<&Schema>) -> String {
    match &node.operation {
        Operation::Source(source) => source_details(source),
        Operation::Values(rows) => match rows.num_rows() {
            1 => "1 row".to_owned(),
            rows => format!("{rows} rows"),
        },
        Operation::Calc(calc) => calc_details(calc, node),
        Operation::WindowRows(rows) => {
            let partition = column_names(input, &rows.partition);
            window(&rows.window, column_name(input, rows.time), &partition)
        }
        Operation::WindowAggregate(aggregate) => aggregate_details(aggregate, input),
        Operation::Expand(expand) => {
            let names = column_names(input, &expand.keys);
            let set = |nulls: &Vec<bool>| {
                let kept = names.iter().zip(nulls).filter(|(_, is_null)| !**is_null);
                let kept: Vec<&str> = kept.map(|(name, _)| name.as_ref()).collect();
                format!("({})", kept.join(", "))
            };
            let sets: Vec<String> = expand.sets.iter().map(set).collect();
            format!("grouping sets [{}]", sets.join(", "))
        }
        Operation::GroupChanges(group) => {
            let calls: Vec<String> = group.aggregates.iter().map(call).collect();
            let keys = column_names(input, &group.keys).join(", ");
            let text = match (keys.is_empty(), calls.is_empty()) {
                (true, _) => format!("compute [{}]", calls.join(", ")),
                (false, true) => format!("keys [{keys}]"),
                (false, false) => format!("keys [{keys}]; compute [{}]", calls.join(", ")),
            };
            format!("{text}{}", ttl(group.ttl))
        }
        Operation::WindowChanges(group) => {
            let bounds = group.bounds;
            let (start, end) = (column_name(input, bounds.start), column_name(input, bounds.end));
            let mut parts = vec![format!("window [{start}, {end})")];
            if !group.keys.is_empty() {
                parts.push(format!("keys [{}]", column_names(input, &group.keys).join(", ")));
            }
            let calls: Vec<String> = group.aggregates.iter().map(call).collect();
            if !calls.is_empty() {
                parts.push(format!("compute [{}]", calls.join(", ")));
            }
            parts.push("of rows that change".to_owned());
            parts.join("; ")
        }
        Operation::Normalize(normalize) => {
            format!("the last row of each key [{}]", column_names(input, &normalize.key).join(", "))
        }
        Operation::WindowJoin(join) => window_join_details(join),
        Operation::TemporalJoin(join) => {
            let name = |column: usize| column_name(Some(&join.pair), column);
            let version = format!(
                "version of {} as of {}",
                name(join.first_width + join.times[1]),
                name(join.times[0])
            );
            let what = (join.kind, version, &join.keys, join.condition.as_ref());
            join_details(what, &join.pair, join.first_width)
        }
        Operation::LookupJoin(join) => {
            let what = (join.kind, "table read once".to_owned(), &join.keys, join.condition.as_ref());
            join_details(what, &join.pair, join.first_width)
        }
        Operation::RegularJoin(join) => {
            let what = (join.kind, "whenever rows come".to_owned(), &join.keys, join.condition.as_ref());
            let details = join_details(what, &join.pair, join.first_width);
            format!("{details}{}{}", ttl(join.ttl.map(|ttl| ttl[0])), horizons(join))
        }
        Operation::IntervalJoin(join) => interval_join_details(join),
        Operation::Over(over) => over_details(over, input),
        Operation::TopN(top) => top_n_details(top, input),
        Operation::MatchRecognize(pattern) => pattern_details(pattern, input),
        Operation::Unnest(unnest) => {
            let empty = if unnest.keeps_empty { "; empty ones as NULL" } else { "" };
            format!("{}{empty}", column_name(input, unnest.column))
        }
        Operation::Union => String::new(),
        Operation::Exchange(Distribution::Single) => "single".to_owned(),
        Operation::Exchange(Distribution::Hash(keys)) => {
            format!("hash({})", column_names(input, keys).join(", "))
        }
        Operation::TemporalSort(sort) => {
            let keys = sort.rest.iter().map(sort_key);
            let all: Vec<_> = [column_name(input, sort.time).to_owned()].into_iter().chain(keys).collect();
            all.join(", ")
        }
        Operation::Limit(limit) => {
            let fetch = limit.fetch.map_or_else(|| "all".to_owned(), |fetch| fetch.to_string());
            if limit.skip == 0 { fetch } else { format!("{fetch} after {}", limit.skip) }
        }
        Operation::Sort(sort) => {
            let keys: Vec<_> = sort.keys.iter().map(sort_key).collect();
            let fetch = sort.fetch.map(|fetch| format!("; first {fetch}")).unwrap_or_default();
            format!("{}{fetch}", keys.join(", "))
        }
        Operation::LateRows(late) => format!("of {}", late.operator),
        Operation::Sink(sink) => match &sink.target {
            SinkTarget::Result => "result".to_owned(),
            SinkTarget::Table(table) => {
                let upsert = if sink.upsert { "; by key, without -U" } else { "" };
                format!("{} ({}){upsert}", table.name, table.connector)
            }
        },
    }
}

fn source_details(source: &SourceNode) -> String {
    let table = &source.table;
    let mut text = format!("{} ({})", table.name, table.connector);
    let read: Vec<_> = source.read_schema.fields().iter().map(|field| field.name().as_str()).collect();
    let _ = write!(text, "; read [{}]", read.join(", "));
    if let Some(watermark) = &source.watermark {
        let sql = table.watermark.as_ref().map(|spec| spec.sql.clone());
        let sql = match watermark.processing {
            true => "the clock of the source".to_owned(),
            false => sql.unwrap_or_else(|| expression(&watermark.watermark)),
        };
        let _ = write!(text, "; watermark for {} as {sql}", watermark.column);
        if let Some(idle) = watermark.idle_after_us {
            let advance = if watermark.then_advance { " then advance" } else { "" };
            let _ = write!(text, "; idle after {}{advance}", duration(idle));
        }
        if let Some(ahead) = watermark.max_ahead_us {
            let _ = write!(text, "; max ahead {}", duration(ahead));
        }
        if watermark.periodic {
            text.push_str("; on-periodic");
        }
    }
    text
}

fn calc_details(calc: &CalcNode, node: &PlanNode) -> String {
    let mut parts = Vec::new();
    if let Some(filter) = &calc.filter {
        parts.push(format!("filter {}", expression(filter)));
    }
    let computed: Vec<String> = calc
        .project
        .iter()
        .zip(node.schema.fields())
        .filter_map(|(expr, field)| {
            let text = expression(expr);
            let same = expr.downcast_ref::<Column>().is_some_and(|column| column.name() == field.name());
            (!same).then(|| format!("{} = {text}", field.name()))
        })
        .collect();
    if computed.is_empty() {
        if calc.filter.is_none() {
            parts.push("choose columns".to_owned());
        }
    } else {
        parts.push(format!("project {}", computed.join(", ")));
    }
    parts.join("; ")
}

fn aggregate_details(aggregate: &WindowAggregateNode, input: Option<&Schema>) -> String {
    let mut parts = vec![match &aggregate.window {
        WindowSource::Assign { time, window: spec } => window(spec, column_name(input, *time), &[]),
        WindowSource::Session { time, window: spec, partition } => {
            window(spec, column_name(input, *time), &column_names(input, partition))
        }
        WindowSource::Attached { start, end, .. } => {
            format!("window [{}, {})", column_name(input, *start), column_name(input, *end))
        }
    }];
    let keys: Vec<String> = aggregate.keys.iter().map(expression).collect();
    if !keys.is_empty() {
        parts.push(format!("keys [{}]", keys.join(", ")));
    }
    if let Some(sets) = &aggregate.grouping_sets {
        let set = |mask: &Vec<bool>| {
            let members: Vec<_> = mask
                .iter()
                .zip(&keys)
                .filter(|(is_null, _)| !**is_null)
                .map(|(_, key)| key.as_str())
                .collect();
            format!("({})", members.join(", "))
        };
        parts.push(format!("sets {}", sets.iter().map(set).collect::<Vec<_>>().join(" ")));
    }
    let calls: Vec<String> = aggregate.aggregates.iter().map(call).collect();
    if !calls.is_empty() {
        parts.push(format!("compute [{}]", calls.join(", ")));
    }
    if aggregate.emit != EmitMode::OnWindowClose {
        parts.push(aggregate.emit.text());
    }
    if aggregate.allowed_lateness_us > 0 {
        parts.push(format!("allow lateness {}", duration(aggregate.allowed_lateness_us)));
    }
    match aggregate.phase {
        AggregatePhase::Single => {}
        AggregatePhase::Local => parts.push("local".to_owned()),
        AggregatePhase::Final => parts.push("final".to_owned()),
    }
    parts.join("; ")
}

fn window_join_details(join: &WindowJoinNode) -> String {
    let name = |column: usize| column_name(Some(&join.pair), column);
    let window = match join.windows {
        Some([bounds, _]) => format!("window [{}, {})", name(bounds.start), name(bounds.end)),
        None => "at the end".to_owned(),
    };
    let what = (join.kind, window, &join.keys, join.condition.as_ref());
    join_details(what, &join.pair, join.first_width)
}

fn interval_join_details(join: &IntervalJoinNode) -> String {
    let name = |input: usize| {
        let first = if input == 0 { 0 } else { join.first_width };
        column_name(Some(&join.pair), first + join.times[input])
    };
    let (first, second) = (name(0), name(1));
    let at = |us: i64| match us {
        0 => first.to_owned(),
        us if us < 0 => format!("{first} - {}", duration(us.saturating_neg())),
        us => format!("{first} + {}", duration(us)),
    };
    let interval = match (join.lower_us, join.upper_us) {
        (Some(lower), Some(upper)) if lower == upper => format!("{second} = {}", at(lower)),
        (Some(lower), Some(upper)) => format!("{second} between {} and {}", at(lower), at(upper)),
        (Some(lower), None) => format!("{second} >= {}", at(lower)),
        (None, Some(upper)) => format!("{second} <= {}", at(upper)),
        (None, None) => String::new(),
    };
    let what = (join.kind, interval, &join.keys, join.condition.as_ref());
    join_details(what, &join.pair, join.first_width)
}

fn join_details(
    (kind, time, keys, condition): (JoinKind, String, &[Vec<usize>; 2], Option<&ExprRef>),
    pair: &Schema,
    first_width: usize,
) -> String {
    let mut parts = vec![format!("{kind:?}").to_uppercase(), time];
    let name = |column: usize| column_name(Some(pair), column);
    let keys = keys[0].iter().zip(&keys[1]);
    let keys: Vec<String> =
        keys.map(|(first, second)| format!("{} = {}", name(*first), name(first_width + *second))).collect();
    if !keys.is_empty() {
        parts.push(format!("keys [{}]", keys.join(", ")));
    }
    if let Some(condition) = condition {
        parts.push(format!("where {}", expression(condition)));
    }
    parts.join("; ")
}

fn over_details(over: &OverNode, input: Option<&Schema>) -> String {
    let mut parts = vec![match over.trigger {
        OverTrigger::EventTime { time, .. } => format!("by time {}", column_name(input, time)),
        OverTrigger::WindowClose { bounds, .. } => {
            format!("window [{}, {})", column_name(input, bounds.start), column_name(input, bounds.end))
        }
        OverTrigger::End => "at the end".to_owned(),
        OverTrigger::Change => "as rows change".to_owned(),
    }];
    if !over.partition.is_empty() {
        parts.push(format!("keys [{}]", column_names(input, &over.partition).join(", ")));
    }
    if !over.order.is_empty() {
        let keys: Vec<_> = over.order.iter().map(sort_key).collect();
        let latest = if over.latest_first { ", latest first" } else { "" };
        parts.push(format!("order [{}{latest}]", keys.join(", ")));
    }
    let calls: Vec<_> = over.calls.iter().map(|call| call.text.as_str()).collect();
    parts.push(format!("compute [{}]", calls.join(", ")));
    if let Some(limit) = over.limit {
        parts.push(format!("{} <= {}", over.calls[limit.call].text, limit.most));
    }
    parts.join("; ")
}

fn ttl(ttl: Option<StateTtl>) -> String {
    match ttl {
        None => String::new(),
        Some(StateTtl { us, by: TtlClock::EventTime { .. } }) => {
            format!("; kept {} of event time", duration(us))
        }
        Some(StateTtl { us, by: TtlClock::Clock }) => format!("; kept {} by the clock", duration(us)),
    }
}

/// How long a join without time keeps rows whose condition bounds their times.
fn horizons(join: &RegularJoinNode) -> String {
    let mut text = String::new();
    for (input, first_column, which) in [(0, 0, "first"), (1, join.first_width, "second")] {
        if let Some(horizon) = join.horizons[input] {
            let time = column_name(Some(&join.pair), first_column + horizon.time);
            let _ = write!(text, "; {which} kept until {} past {time}", duration(horizon.behind_us));
        }
    }
    text
}

fn top_n_details(top: &TopNNode, input: Option<&Schema>) -> String {
    let name = match top.rank {
        RankKind::RowNumber => "row_number()",
        RankKind::Rank => "rank()",
        RankKind::DenseRank => "dense_rank()",
    };
    let mut parts = vec![match (top.is_deduplication(), top.order.is_empty()) {
        (true, true) if top.latest_first => "keep last by arrival".to_owned(),
        (true, true) => "keep first by arrival".to_owned(),
        (true, false) => "keep first".to_owned(),
        (false, _) => format!("{name} <= {}", top.most),
    }];
    if !top.partition.is_empty() {
        parts.push(format!("keys [{}]", column_names(input, &top.partition).join(", ")));
    }
    if !top.order.is_empty() {
        let keys: Vec<_> = top.order.iter().map(sort_key).collect();
        let latest = if top.latest_first { ", latest first" } else { "" };
        parts.push(format!("order [{}{latest}]", keys.join(", ")));
    } else if !top.is_deduplication() {
        parts.push(format!("order of arrival{}", if top.latest_first { ", latest first" } else { "" }));
    }
    if top.updating {
        parts.push("all rows are kept".to_owned());
    }
    if !top.gives_rank {
        parts.push("without rank".to_owned());
    }
    format!("{}{}", parts.join("; "), ttl(top.ttl))
}

fn pattern_details(node: &MatchRecognizeNode, input: Option<&Schema>) -> String {
    let rest = node.order.iter().map(sort_key);
    let order: Vec<_> = [column_name(input, node.time).to_owned()].into_iter().chain(rest).collect();
    let mut parts = vec![format!("pattern ({})", node.text), format!("by time {}", order.join(", "))];
    if !node.partition.is_empty() {
        parts.push(format!("keys [{}]", column_names(input, &node.partition).join(", ")));
    }
    if let Some(within) = node.within_us {
        parts.push(format!("within {}", duration(within)));
    }
    let name = |variable: usize| node.variables[variable].name.as_str();
    parts.push(match node.skip {
        AfterMatch::PastLastRow => "skip past last row".to_owned(),
        AfterMatch::ToNextRow => "skip to next row".to_owned(),
        AfterMatch::ToFirst(variable) => format!("skip to first {}", name(variable)),
        AfterMatch::ToLast(variable) => format!("skip to last {}", name(variable)),
    });
    let conditions =
        node.variables.iter().filter_map(|one| Some(format!("{} as {}", one.name, one.text.as_ref()?)));
    let conditions: Vec<_> = conditions.collect();
    if !conditions.is_empty() {
        parts.push(format!("define [{}]", conditions.join(", ")));
    }
    parts.join("; ")
}

fn call(call: &AggregateCall) -> String {
    let text = call.function.human_display().unwrap_or_else(|| call.function.name()).to_owned();
    if call.order_sensitive { format!("{text} in order") } else { text }
}

fn sort_key(key: &SortKey) -> String {
    let direction = if key.descending { " DESC" } else { "" };
    let nulls = match (key.descending, key.nulls_first) {
        (false, false) => " NULLS LAST",
        (true, true) => " NULLS FIRST",
        _ => "",
    };
    format!("{}{direction}{nulls}", expression(&key.expr))
}

fn column_names<'a>(schema: Option<&'a Schema>, indexes: &[usize]) -> Vec<&'a str> {
    indexes.iter().map(|index| column_name(schema, *index)).collect()
}

fn column_name(schema: Option<&Schema>, index: usize) -> &str {
    schema.and_then(|schema| schema.fields().get(index)).map_or("?", |field| field.name())
}

pub(super) fn columns(schema: &Schema) -> String {
    let column = |field: &Field| {
        let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
        format!("{} {}{not_null}", field.name(), sql_type_name(field.data_type()))
    };
    if schema.fields().is_empty() {
        return "no columns".to_owned();
    }
    schema.fields().iter().map(|field| column(field)).collect::<Vec<_>>().join(", ")
}

fn promises(node: &PlanNode) -> String {
    let properties = &node.properties;
    let names = |indexes: &[usize]| {
        let names: Vec<_> = indexes.iter().map(|index| node.schema.field(*index).name().as_str()).collect();
        names.join(", ")
    };
    let mut parts = vec![
        if properties.bounded { "bounded" } else { "unbounded" }.to_owned(),
        if properties.updating { "changelog" } else { "append" }.to_owned(),
    ];
    if properties.watermark {
        parts.push("watermark".to_owned());
    }
    if !properties.time_attributes.is_empty() {
        parts.push(format!("time [{}]", names(&properties.time_attributes)));
    }
    if let Some(key) = properties.key.as_deref().filter(|key| !key.is_empty()) {
        parts.push(format!("key [{}]", names(key)));
    }
    parts.join(", ")
}
