//! What a person should know, and what to do about it.

use super::super::{JobSnapshot, SourceSnapshot, SplitState, SplitStatus};
use super::holder::of_source;
use super::load::{Bottleneck, BottleneckKind, QUIET_US};
use super::text::{delay, interval, length, moment};
use super::{Holder, WindowAt};
use crate::plan::{Operation, SourceNode, StreamPlan};
use crate::stream::Watermark;

/// More findings help nobody.
const MOST: usize = 10;
/// A share of late rows that is worth a word, and one that is an alarm.
const SOME_LATE: f64 = 0.001;
const MANY_LATE: f64 = 0.10;
/// A row that is this far ahead of the one after it, or of the clock, comes from a wrong clock.
const FAR_AHEAD_US: i64 = 60_000_000;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// An operator, a sink or a source is the bottleneck.
    Bottleneck(BottleneckKind),
    /// A split without rows holds event time back.
    IdleSplit,
    /// A row from the future has moved event time ahead of all others.
    FutureRow,
    /// Many rows are late.
    LateRows,
    /// Windows wait for event time that only a next row can bring.
    QuietSource,
    /// Rows can't be read.
    MalformedRows,
}

impl FindingKind {
    /// `slow_sink`, `idle_split`, `future_row`, ….
    pub fn name(self) -> &'static str {
        match self {
            Self::Bottleneck(kind) => kind.name(),
            Self::IdleSplit => "idle_split",
            Self::FutureRow => "future_row",
            Self::LateRows => "late_rows",
            Self::QuietSource => "quiet_source",
            Self::MalformedRows => "malformed_rows",
        }
    }

    /// The higher, the more it matters.
    fn weight(self) -> u8 {
        match self {
            Self::FutureRow => 9,
            Self::IdleSplit => 8,
            Self::Bottleneck(BottleneckKind::SlowSink | BottleneckKind::SlowCompute) => 7,
            Self::Bottleneck(BottleneckKind::SkewedKey) => 7,
            Self::LateRows => 5,
            Self::Bottleneck(BottleneckKind::SlowSource) => 4,
            Self::Bottleneck(BottleneckKind::StarvedSource) => 3,
            Self::QuietSource => 2,
            Self::MalformedRows => 1,
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// In one sentence, with the name of the culprit.
    pub sentence: String,
    /// What was measured.
    pub evidence: String,
    /// What to do, in SQL where SQL can.
    pub cure: String,
}

pub(super) fn find(
    plan: &StreamPlan,
    before: Option<&JobSnapshot>,
    now: &JobSnapshot,
    bottleneck: Option<&Bottleneck>,
    windows: &[WindowAt],
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = bottleneck.map(|found| of_bottleneck(plan, found)).into_iter().collect();
    for source in &now.sources {
        let Some(node) = source_node(plan, source.node) else { continue };
        let missed = late_since(plan, source.node, before, now);
        let future = future_row(node, source, now, &missed);
        let late = late_rows(node, source, &missed).filter(|_| future.is_none());
        findings.extend(future);
        findings.extend(late);
        findings.extend(idle_split(node, source).or_else(|| quiet_source(node, source, windows)));
        findings.extend(malformed(source));
    }
    // Among equals the order of the sources.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.kind.weight()));
    findings.truncate(MOST);
    findings
}

fn source_node(plan: &StreamPlan, node: usize) -> Option<&SourceNode> {
    match &plan.nodes.get(node)?.operation {
        Operation::Source(source) => Some(source),
        _ => None,
    }
}

fn of_bottleneck(plan: &StreamPlan, found: &Bottleneck) -> Finding {
    let name = &found.operator;
    let subtask = found.subtask;
    let (sentence, cure) = match found.kind {
        BottleneckKind::SlowSink => (
            format!("the sink {name} takes rows more slowly than they come: all before it wait"),
            "Write less: aggregate before the INSERT, or filter with WHERE; or give the sink a faster medium."
                .to_owned(),
        ),
        BottleneckKind::SlowCompute => (
            format!("the work of {name} is what all before it wait for"),
            "Run it on more cores with SET 'execution.parallelism' = '…', filter before it with WHERE, or use \
             a cheaper expression."
                .to_owned(),
        ),
        BottleneckKind::SkewedKey => {
            let keys = keys_of(plan, found.node);
            (
                format!("subtask {subtask} of {name} has most of the rows: few values of {keys} are in most rows"),
                format!(
                    "Group in two steps: first by {keys} and a second column that spreads the rows, then by \
                     {keys} over the result; or filter the value that is too frequent."
                ),
            )
        }
        BottleneckKind::SlowSource => (
            format!("rows of {name} are read more slowly than they are used"),
            "Read fewer columns, use 'format' = 'parquet', or split the file so that several readers work; see \
             SET 'execution.parallelism'."
                .to_owned(),
        ),
        BottleneckKind::StarvedSource => (
            format!("{name} has nothing to read: the job waits for rows"),
            "Look at what writes the table; the job itself is not slow.".to_owned(),
        ),
    };
    Finding { kind: FindingKind::Bottleneck(found.kind), sentence, evidence: found.evidence.clone(), cure }
}

/// The columns that spread rows over the subtasks of a node.
fn keys_of(plan: &StreamPlan, node: usize) -> String {
    let mut at = node;
    while let Some(one) = plan.nodes.get(at) {
        if let Operation::Exchange(crate::plan::Distribution::Hash(keys)) = &one.operation {
            let names: Vec<_> = keys.iter().filter_map(|key| one.schema.fields().get(*key)).collect();
            return names.iter().map(|field| format!("\"{}\"", field.name())).collect::<Vec<_>>().join(", ");
        }
        match one.inputs.first() {
            Some(input) => at = *input,
            None => break,
        }
    }
    "the key".to_owned()
}

/// The clause of the table's watermark, with another delay or more behind it.
fn clause(node: &SourceNode, sql: Option<String>, more: &str) -> String {
    let spec = node.table.watermark.as_ref();
    let column = node.watermark.as_ref().map_or("ts", |watermark| watermark.column.as_str());
    let sql = sql.or_else(|| spec.map(|spec| spec.sql.clone())).unwrap_or_else(|| column.to_owned());
    format!("WATERMARK FOR {column} AS {sql}{more}")
}

/// A split without rows behind which others are further.
fn idle_split(node: &SourceNode, source: &SourceSnapshot) -> Option<Finding> {
    let holder = of_source(source)?;
    let is_quiet =
        matches!(holder.state, SplitState::Empty | SplitState::NeverSpoke | SplitState::Disconnected);
    let furthest = source.splits.iter().filter_map(|split| split.watermark).max()?;
    let own = holder.watermark.unwrap_or(Watermark::MIN);
    if !is_quiet || node.watermark.is_none() || own >= furthest || holder.since_us < QUIET_US {
        return None;
    }
    let behind = match holder.watermark {
        Some(own) => {
            format!("{} behind the furthest split", length(furthest.0.saturating_sub(own.0).unsigned_abs()))
        }
        None => "it never gave a row".to_owned(),
    };
    let cure = match node.watermark.as_ref().and_then(|watermark| watermark.idle_after_us) {
        None => format!("{} IDLE AFTER INTERVAL '30' SECOND", clause(node, None, "")),
        Some(idle) => format!(
            "Wait: it is left out after {} without rows (IDLE AFTER), or make that shorter.",
            length(idle.unsigned_abs())
        ),
    };
    Some(Finding {
        kind: FindingKind::IdleSplit,
        sentence: format!(
            "event time of {} stands still: its split \"{}\" is {} and holds it",
            source.name,
            holder.split,
            holder.state.name()
        ),
        evidence: format!("{}; {behind}", holder.text()),
        cure,
    })
}

/// Windows wait, and all splits are quiet at the same event time.
fn quiet_source(node: &SourceNode, source: &SourceSnapshot, windows: &[WindowAt]) -> Option<Finding> {
    // One that has fired waits for nothing.
    let is_held = |window: &&WindowAt| {
        !window.is_fired && window.holder.as_ref().is_some_and(|holder| holder.source == source.name)
    };
    let window = windows.iter().find(is_held)?;
    let holder: &Holder = window.holder.as_ref()?;
    if !matches!(holder.state, SplitState::Empty | SplitState::Disconnected) || holder.since_us < QUIET_US {
        return None;
    }
    let advances = node.watermark.as_ref().is_some_and(|watermark| watermark.then_advance);
    let cure = match advances {
        true => "Wait: event time goes on with the clock (THEN ADVANCE).".to_owned(),
        false => clause(node, None, " IDLE AFTER INTERVAL '30' SECOND THEN ADVANCE"),
    };
    Some(Finding {
        kind: FindingKind::QuietSource,
        sentence: format!(
            "the window that ends at {} waits for a later row of {}, and none comes",
            moment(window.end),
            source.name
        ),
        evidence: holder.text(),
        cure,
    })
}

/// Rows of a source that were late since the earlier snapshot.
struct Late {
    /// Of the operators that read the source.
    late: u64,
    /// That the sources of these operators read.
    rows: u64,
    /// These operators read other sources, too.
    is_shared: bool,
}

fn late_since(plan: &StreamPlan, source: usize, before: Option<&JobSnapshot>, now: &JobSnapshot) -> Late {
    let late_at = |node: usize| {
        let count = |snapshot: &JobSnapshot| {
            snapshot.operators().filter(|one| one.node == node).map(|one| one.counts.late).sum::<u64>()
        };
        count(now).saturating_sub(before.map_or(0, count))
    };
    let mut nodes: Vec<usize> = now.operators().map(|one| one.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let (mut late, mut sources) = (0, vec![source]);
    for node in nodes {
        let below = sources_below(plan, node);
        if below.contains(&source) && late_at(node) > 0 {
            late += late_at(node);
            sources.extend(below);
        }
    }
    let of_them = |one: &&SourceSnapshot| sources.contains(&one.node);
    let read = |snapshot: &JobSnapshot| {
        snapshot.sources.iter().filter(of_them).map(|one| one.rows_read).sum::<u64>()
    };
    let rows = read(now).saturating_sub(before.map_or(0, read));
    Late { late, rows, is_shared: sources.iter().any(|other| *other != source) }
}

/// The sources that a node reads, itself apart.
fn sources_below(plan: &StreamPlan, node: usize) -> Vec<usize> {
    let (mut found, mut open) = (Vec::new(), vec![node]);
    while let Some(id) = open.pop() {
        let Some(at) = plan.nodes.get(id) else { continue };
        if matches!(at.operation, Operation::Source(_)) && id != node {
            found.push(id);
        }
        open.extend(&at.inputs);
    }
    found
}

fn future_row(
    node: &SourceNode,
    source: &SourceSnapshot,
    now: &JobSnapshot,
    missed: &Late,
) -> Option<Finding> {
    let watermark = node.watermark.as_ref()?;
    let Late { late, rows, .. } = *missed;
    let is_late = late as f64 >= MANY_LATE * rows as f64 && late > 0;
    let gap = |split: &SplitStatus| Some(split.latest_time?.saturating_sub(split.last_time?));
    let split = source.splits.iter().max_by_key(|split| gap(split))?;
    let (latest, last) = (split.latest_time?, split.last_time?);
    let ahead_of_clock = latest.saturating_sub(now.as_of_us);
    let is_ahead = !node.table.bounded && ahead_of_clock >= FAR_AHEAD_US;
    if latest.saturating_sub(last) < FAR_AHEAD_US || !(is_late || is_ahead) {
        return None;
    }
    let mut evidence =
        format!("rows are now at {}, {} before it", moment(last), length(latest.abs_diff(last)));
    if is_ahead {
        evidence += &format!("; {} ahead of the clock", length(ahead_of_clock.unsigned_abs()));
    }
    if late > 0 {
        evidence += &format!("; {late} of {rows} rows were late in the time looked at");
    }
    let cure = match watermark.max_ahead_us {
        _ if node.table.bounded => format!(
            "Leave such rows out: WHERE {} < TIMESTAMP '…' in a view cannot help after the watermark; correct the \
             file, or use {}.",
            watermark.column,
            clause(node, Some(format!("CASE WHEN {0} < TIMESTAMP '…' THEN {0} END", watermark.column)), "")
        ),
        None => clause(node, None, " MAX AHEAD INTERVAL '5' MINUTE"),
        Some(_) => "Make MAX AHEAD shorter.".to_owned(),
    };
    Some(Finding {
        kind: FindingKind::FutureRow,
        sentence: format!(
            "a row of \"{}\" in {} from the future, {}, has moved event time ahead of all other rows",
            split.split,
            source.name,
            moment(latest)
        ),
        evidence,
        cure,
    })
}

fn late_rows(node: &SourceNode, source: &SourceSnapshot, missed: &Late) -> Option<Finding> {
    let watermark = node.watermark.as_ref()?;
    let Late { late, rows, is_shared } = *missed;
    // One that is in order is not the cause where another is not.
    if late == 0 || (late as f64) < SOME_LATE * rows as f64 || is_shared && source.disorder.out_of_order == 0
    {
        return None;
    }
    let enough = source.disorder.steps.iter().find(|step| step.late_share < SOME_LATE)?;
    let sql = format!("{} - {}", watermark.column, interval(enough.delay_us));
    Some(Finding {
        kind: FindingKind::LateRows,
        sentence: match is_shared {
            false => format!("{late} of {rows} rows of {} were late", source.name),
            true => format!("{late} of {rows} rows of {} and others were late", source.name),
        },
        evidence: format!(
            "{} of {} rows that were looked at are out of order; {:.2} % are more than {} behind",
            source.disorder.out_of_order,
            source.disorder.rows,
            enough.late_share * 100.0,
            delay(enough.delay_us)
        ),
        cure: format!(
            "{} (adds {} of latency), or keep them with LATE ROWS INTO",
            clause(node, Some(sql), ""),
            delay(enough.delay_us)
        ),
    })
}

fn malformed(source: &SourceSnapshot) -> Option<Finding> {
    let malformed = source.dropped.malformed;
    (malformed > 0).then(|| Finding {
        kind: FindingKind::MalformedRows,
        sentence: format!("{malformed} rows of {} could not be read", source.name),
        evidence: format!("{malformed} of {} rows", source.rows_read),
        cure: "Keep them with LATE ROWS INTO and look at their text.".to_owned(),
    })
}
