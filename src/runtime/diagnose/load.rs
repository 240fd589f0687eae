//! How busy operators are, and the one that all others wait for.

use super::super::{JobSnapshot, OperatorSnapshot, SplitState, TaskSnapshot};
use super::holder::same;

/// Up to this share of its time an operator is not back-pressured.
const LOW: f64 = 0.10;
/// Above this share it is highly back-pressured.
const HIGH: f64 = 0.50;
/// A channel with this much of its rows is full enough to be looked at.
const FULL: f64 = 0.50;
/// A source that was quiet for less than this is not starved.
pub(super) const QUIET_US: u64 = 1_000_000;
/// One subtask with so many times the rows of the mean has more than its share.
const SKEW: f64 = 1.5;

/// How much an operator waits for those who take its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// At most 10 % of the time.
    Ok,
    /// At most 50 % of the time.
    Low,
    /// More.
    High,
}

impl Pressure {
    /// The word for a share of the time.
    pub fn of_share(share: f64) -> Self {
        if share <= LOW {
            Self::Ok
        } else if share <= HIGH {
            Self::Low
        } else {
            Self::High
        }
    }

    /// `OK`, `LOW` or `HIGH`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Low => "LOW",
            Self::High => "HIGH",
        }
    }
}

/// What the channels before and behind a task say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// Neither is full.
    Normal,
    /// The ones before it fill up: it may become a bottleneck.
    MayBecome,
    /// The ones behind it are full, those before it are not yet.
    Temporary,
    /// The ones before it are full and its senders wait: the problem is here.
    Here,
    /// Both are full: the problem is further down.
    Downstream,
}

impl Pool {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::MayBecome => "caution: may become a bottleneck",
            Self::Temporary => "caution: temporary",
            Self::Here => "problem: here",
            Self::Downstream => "problem: downstream",
        }
    }
}

/// What an operator did between two moments. Shares of the time; the first three add up to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct OperatorLoad {
    /// Index of the node in the plan.
    pub node: usize,
    /// The operator.
    pub operator: String,
    /// Which of its subtasks.
    pub subtask: usize,
    /// Worked.
    pub busy: f64,
    /// Had no rows.
    pub idle: f64,
    /// Could not give its rows.
    pub back_pressured: f64,
    /// The last as a word.
    pub pressure: Pressure,
    /// How full the channels before its task are.
    pub in_pool: Option<f64>,
    /// How full the channels behind its task are.
    pub out_pool: Option<f64>,
    /// What both say.
    pub pool: Pool,
    /// Rows that came in, a second.
    pub rows_in_per_second: f64,
    /// Rows that went out, a second.
    pub rows_out_per_second: f64,
    /// Bytes that came in, a second.
    pub bytes_in_per_second: f64,
    /// Rows of the subtask with most rows ÷ mean of the subtasks; 1 for one subtask.
    pub skew: f64,
}

/// Why a bottleneck is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BottleneckKind {
    /// An operator's own work.
    SlowCompute,
    /// The outside takes rows slowly.
    SlowSink,
    /// One subtask has more than its share of the rows.
    SkewedKey,
    /// Rows are read slowly.
    SlowSource,
    /// There is nothing to read.
    StarvedSource,
}

impl BottleneckKind {
    /// `slow_compute`, `slow_sink`, `skewed_key`, `slow_source` or `starved_source`.
    pub fn name(self) -> &'static str {
        match self {
            Self::SlowCompute => "slow_compute",
            Self::SlowSink => "slow_sink",
            Self::SkewedKey => "skewed_key",
            Self::SlowSource => "slow_source",
            Self::StarvedSource => "starved_source",
        }
    }
}

/// The operator that the others wait for.
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// Why.
    pub kind: BottleneckKind,
    /// Index of the node in the plan.
    pub node: usize,
    /// The operator.
    pub operator: String,
    /// Which of its subtasks.
    pub subtask: usize,
    /// What was measured.
    pub evidence: String,
}

pub(super) fn loads(before: Option<&JobSnapshot>, now: &JobSnapshot) -> Vec<OperatorLoad> {
    let mut loads: Vec<OperatorLoad> = Vec::new();
    for (number, task) in now.tasks.iter().enumerate() {
        let pool = |is_mine: &dyn Fn(&super::super::ChannelSnapshot) -> bool| {
            let mine = now.channels.iter().filter(|channel| !channel.is_late && is_mine(channel));
            mine.map(super::super::ChannelSnapshot::usage).reduce(f64::max)
        };
        let in_pool = pool(&|channel| channel.to == Some(number));
        let out_pool = pool(&|channel| channel.from == number);
        for operator in &task.operators {
            let earlier = before.and_then(|before| same(before, operator));
            loads.push(load(operator, earlier, in_pool, out_pool));
        }
    }
    let senders_wait: Vec<bool> = (0..now.tasks.len())
        .map(|task| predecessors(now, task, 0).iter().any(|(task, _)| waits(before, now, *task) > HIGH))
        .collect();
    let mut at = 0;
    for (number, task) in now.tasks.iter().enumerate() {
        for _ in &task.operators {
            loads[at].pool = evaluate(loads[at].in_pool, loads[at].out_pool, senders_wait[number]);
            at += 1;
        }
    }
    loads
        .iter()
        .map(|load| OperatorLoad { skew: skew(now, load.node, &load.operator), ..load.clone() })
        .collect()
}

fn evaluate(in_pool: Option<f64>, out_pool: Option<f64>, senders_wait: bool) -> Pool {
    let is_full = |pool: Option<f64>| pool.is_some_and(|usage| usage >= FULL);
    match (is_full(in_pool), is_full(out_pool)) {
        (false, false) => Pool::Normal,
        (false, true) => Pool::Temporary,
        (true, false) if senders_wait => Pool::Here,
        (true, false) => Pool::MayBecome,
        (true, true) => Pool::Downstream,
    }
}

fn load(
    now: &OperatorSnapshot,
    before: Option<&OperatorSnapshot>,
    in_pool: Option<f64>,
    out_pool: Option<f64>,
) -> OperatorLoad {
    let since = |read: fn(&OperatorSnapshot) -> u64| read(now).saturating_sub(before.map_or(0, read)) as f64;
    let (busy, idle) = (since(|one| one.busy_us), since(|one| one.idle_us));
    let back_pressured = since(|one| one.back_pressured_us);
    let total = busy + idle + back_pressured;
    let share = |part: f64| if total > 0.0 { part / total } else { 0.0 };
    let per_second = |count: f64| if total > 0.0 { count / total * 1e6 } else { 0.0 };
    OperatorLoad {
        node: now.node,
        operator: now.name.clone(),
        subtask: now.subtask,
        busy: share(busy),
        // Without time it had nothing to do.
        idle: if total > 0.0 { share(idle) } else { 1.0 },
        back_pressured: share(back_pressured),
        pressure: Pressure::of_share(share(back_pressured)),
        in_pool,
        out_pool,
        pool: Pool::Normal,
        rows_in_per_second: per_second(since(|one| one.rows_in)),
        rows_out_per_second: per_second(since(|one| one.rows_out)),
        bytes_in_per_second: per_second(since(|one| one.bytes_in)),
        skew: 1.0,
    }
}

/// Rows of the largest subtask ÷ mean.
pub(super) fn skew(now: &JobSnapshot, node: usize, name: &str) -> f64 {
    let rows: Vec<u64> = now
        .operators()
        .filter(|operator| operator.node == node && operator.name == name)
        .map(|operator| operator.rows_in)
        .collect();
    let sum: u64 = rows.iter().sum();
    match rows.iter().max() {
        Some(most) if sum > 0 => *most as f64 * rows.len() as f64 / sum as f64,
        _ => 1.0,
    }
}

/// The operators that give rows to this one: (task, place).
fn predecessors(now: &JobSnapshot, task: usize, place: usize) -> Vec<(usize, usize)> {
    if place > 0 {
        return vec![(task, place - 1)];
    }
    let inputs = now.channels.iter().filter(|channel| channel.to == Some(task) && !channel.is_late);
    inputs.map(|channel| (channel.from, now.tasks[channel.from].operators.len().saturating_sub(1))).collect()
}

/// How much of its time a task waited for those who take its rows.
fn waits(before: Option<&JobSnapshot>, now: &JobSnapshot, task: usize) -> f64 {
    let at = |read: fn(&TaskSnapshot) -> u64| {
        let earlier = before.and_then(|before| before.tasks.get(task)).map_or(0, read);
        read(&now.tasks[task]).saturating_sub(earlier) as f64
    };
    at(|task| task.back_pressured_us) / at(|task| task.total_us).max(1.0)
}

/// The last operator whose upstream waits and which itself does not wait on its downstream. Where
/// nobody waits for another, the source whose rows all wait for.
pub(super) fn bottleneck(
    before: Option<&JobSnapshot>,
    now: &JobSnapshot,
    loads: &[OperatorLoad],
) -> Option<Bottleneck> {
    let mut first = Vec::with_capacity(now.tasks.len());
    let mut count = 0;
    for task in &now.tasks {
        first.push(count);
        count += task.operators.len();
    }
    let load = |task: usize, place: usize| &loads[first[task] + place];
    let mut found: Option<(&OperatorLoad, f64)> = None;
    for (number, task) in now.tasks.iter().enumerate().filter(|(_, task)| !task.is_late) {
        for place in 0..task.operators.len() {
            let own = load(number, place);
            let upstream = predecessors(now, number, place);
            let waiting = upstream.iter().map(|(task, place)| load(*task, *place).back_pressured);
            let waiting = waiting.fold(0.0, f64::max);
            let is_last = place + 1 == task.operators.len();
            let is_caller = is_last
                && own.back_pressured > HIGH
                && now.channels.iter().any(|channel| channel.from == number && channel.to.is_none());
            if is_caller || (waiting > LOW && own.back_pressured <= HIGH && own.busy >= waiting.min(0.3)) {
                // Of subtasks side by side the one that works most.
                let is_better = found.is_none_or(|(best, _)| best.node != own.node || own.busy > best.busy);
                if is_better {
                    found = Some((own, waiting));
                }
            }
        }
    }
    match found {
        Some((own, waiting)) => Some(explain(own, waiting, now)),
        None => sources(before, now, loads),
    }
}

fn explain(own: &OperatorLoad, waiting: f64, now: &JobSnapshot) -> Bottleneck {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let subtasks: Vec<_> =
        now.operators().filter(|other| other.node == own.node && other.name == own.operator).collect();
    let most = subtasks.iter().max_by_key(|other| other.rows_in).map_or(0, |other| other.subtask);
    let is_skewed = subtasks.len() > 1 && own.skew >= SKEW && most == own.subtask;
    let is_sink = subtasks.iter().any(|one| one.is_sink());
    let mut evidence = format!("busy {}, upstream waits {} of the time", percent(own.busy), percent(waiting));
    let kind = if is_sink && own.back_pressured > HIGH {
        evidence = format!("waits {} of the time for the reader of its rows", percent(own.back_pressured));
        BottleneckKind::SlowSink
    } else if is_sink {
        BottleneckKind::SlowSink
    } else if is_skewed {
        evidence +=
            &format!("; it has {:.1} times the rows of the mean of {} subtasks", own.skew, subtasks.len());
        BottleneckKind::SkewedKey
    } else {
        BottleneckKind::SlowCompute
    };
    let compute = subtasks.iter().find(|other| other.subtask == own.subtask);
    if let Some(times) = compute.and_then(|operator| operator.times.compute) {
        evidence += &format!("; p99 of its work {}", super::length(times.p99_us));
    }
    Bottleneck { kind, node: own.node, operator: own.operator.clone(), subtask: own.subtask, evidence }
}

/// Where nobody waits for another: all wait for rows, because reading is slow or there are none.
fn sources(before: Option<&JobSnapshot>, now: &JobSnapshot, loads: &[OperatorLoad]) -> Option<Bottleneck> {
    if now.is_over || loads.iter().any(|load| load.busy > HIGH || load.back_pressured > HIGH) {
        return None;
    }
    let over_us = now.elapsed_us.saturating_sub(before.map_or(0, |before| before.elapsed_us));
    for source in &now.sources {
        let earlier = before.and_then(|before| before.sources.iter().find(|other| other.node == source.node));
        let rows = source.rows_read - earlier.map_or(0, |earlier| earlier.rows_read);
        let read_us = source.read_us - earlier.map_or(0, |earlier| earlier.read_us);
        let open: Vec<_> = source.splits.iter().filter(|split| split.state != SplitState::Finished).collect();
        let is_quiet = |state: SplitState| {
            matches!(state, SplitState::Empty | SplitState::NeverSpoke | SplitState::Disconnected)
        };
        let quiet = open.iter().filter(|split| is_quiet(split.state)).count();
        let found = |kind, evidence| Bottleneck {
            kind,
            node: source.node,
            operator: source.name.clone(),
            subtask: 0,
            evidence,
        };
        let since = open.iter().map(|split| split.since_us).min().unwrap_or_default();
        if quiet > 0 && quiet == open.len() && since >= QUIET_US {
            let states = open.first().map_or("", |split| split.state.name());
            return Some(found(
                BottleneckKind::StarvedSource,
                format!(
                    "{quiet} of {quiet} splits {states} for {}; {rows} rows in the time looked at",
                    super::length(since)
                ),
            ));
        }
        let readers = open.len().max(1) as f64;
        let share = read_us as f64 / over_us.max(1) as f64 / readers;
        if rows > 0 && share > HIGH {
            return Some(found(
                BottleneckKind::SlowSource,
                format!(
                    "its readers spend {:.0} % of the time reading; the operators are idle",
                    share * 100.0
                ),
            ));
        }
    }
    None
}
