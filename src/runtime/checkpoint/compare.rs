//! A plan beside the one that a checkpoint is of: which of its parts go on with what, and what would be lost.
//!
//! Both are gone through from the tables that they write, known by their names, down to those that they read, operator by
//! operator: so what is kept goes to where it came from, in whatever order a script has its inserts. Operators that
//! keep something are alike if they do the same and take and give the same columns; the rest is where it is because
//! of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::plan::{NodeId, PlanPart, Role};
use crate::runtime::cut::{JobCut, TaskCut};
use crate::stream::StreamElement;

/// What is different.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// The nodes that go on, then and now.
    same: BTreeMap<NodeId, NodeId>,
    /// Nodes that begin anew.
    begins: BTreeSet<NodeId>,
    /// Each part whose state would be dropped, or that begins without: in a few words.
    pub(super) losses: Vec<String>,
    /// What can't be, whatever is dropped.
    pub(super) faults: Vec<String>,
}

/// Compares two plans.
pub(super) fn compare(before: &[PlanPart], now: &[PlanPart]) -> Changes {
    let mut pairing = Pairing { before, now, paired: BTreeSet::new(), changes: Changes::default() };
    pairing.sinks();
    let Pairing { paired, mut changes, .. } = pairing;
    let continued = |changes: &Changes| changes.same.values().copied().collect::<BTreeSet<NodeId>>();
    let left = |parts: &[PlanPart], known: &dyn Fn(NodeId) -> bool, what: &str| -> Vec<String> {
        let counts = |(node, part): &(usize, &PlanPart)| part.role != Role::Passes && !known(*node);
        parts.iter().enumerate().filter(counts).map(|(_, part)| format!("{} is {what}", told(part))).collect()
    };
    let then = |node: NodeId| changes.same.contains_key(&node) || paired.contains(&(Side::Before, node));
    let gone = left(before, &then, "gone");
    let known = continued(&changes);
    let new = left(now, &|node| known.contains(&node) || paired.contains(&(Side::Now, node)), "new");
    changes.losses.extend(new.into_iter().chain(gone));
    follow_exchanges(&mut changes.same, before, now);
    let known = continued(&changes);
    changes.begins = (0..now.len()).filter(|node| !known.contains(node)).collect();
    changes
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Before,
    Now,
}

/// Two plans that are gone through together.
struct Pairing<'a> {
    before: &'a [PlanPart],
    now: &'a [PlanPart],
    /// What was told as a change of one into another.
    paired: BTreeSet<(Side, NodeId)>,
    changes: Changes,
}

impl Pairing<'_> {
    /// Those that write one table; where there are several, first those that are alike down to the tables that they read.
    fn sinks(&mut self) {
        let sinks = |parts: &[PlanPart]| -> Vec<NodeId> {
            let is_sink = |node: &NodeId| matches!(parts[*node].role, Role::Writes(_));
            (0..parts.len()).filter(is_sink).collect()
        };
        let (mut olds, mut news) = (sinks(self.before), sinks(self.now));
        for is_strict in [true, false] {
            news.retain(|new| {
                let is_twin = |old: &NodeId| {
                    self.before[*old].role == self.now[*new].role
                        && (!is_strict || whole(self.before, *old) == whole(self.now, *new))
                };
                let Some(place) = olds.iter().position(is_twin) else { return true };
                let old = olds.remove(place);
                self.sink(old, *new);
                false
            });
        }
    }

    fn sink(&mut self, old: NodeId, new: NodeId) {
        let (was, part) = (&self.before[old], &self.now[new]);
        if was.columns == part.columns {
            self.changes.same.insert(old, new);
        } else {
            self.pair(old, new);
        }
        match &part.role {
            // Of a query nobody has the rows any more that wait to be taken.
            Role::Writes(table) if was.columns != part.columns && !table.is_empty() => {
                self.changes.faults.push(format!(
                    "table \"{table}\" was written with columns ({}), and is with ({}) now",
                    was.columns, part.columns
                ));
            }
            Role::Reads(_) | Role::Writes(_) | Role::Keeps | Role::Passes => {}
        }
        self.below(old, new);
    }

    /// Takes note that one was changed into the other.
    fn pair(&mut self, old: NodeId, new: NodeId) {
        self.paired.insert((Side::Before, old));
        self.paired.insert((Side::Now, new));
    }

    /// What two nodes read that stand for each other.
    fn below(&mut self, old: NodeId, new: NodeId) {
        for (from, to) in self.before[old].inputs.iter().zip(&self.now[new].inputs) {
            self.chain(*from, *to);
        }
        let (mut olds, news) = (next(self.before, old), next(self.now, new));
        if olds.len() == news.len() {
            olds.into_iter().zip(news).for_each(|(old, new)| self.step(old, new));
            return;
        }
        for new in news {
            if let Some(place) = olds.iter().position(|old| self.fits(*old, new)) {
                self.step(olds.remove(place), new);
            }
        }
    }

    /// What each row passes alone, as long as it is the same.
    fn chain(&mut self, old: NodeId, new: NodeId) {
        let (mut old, mut new) = (old, new);
        loop {
            let (was, part) = (&self.before[old], &self.now[new]);
            let is_same = (&was.name, &was.does, &was.columns) == (&part.name, &part.does, &part.columns);
            let is_free = !self.changes.same.contains_key(&old);
            if was.role != Role::Passes || part.role != Role::Passes || !is_same || !is_free {
                return;
            }
            self.changes.same.insert(old, new);
            match (was.inputs.as_slice(), part.inputs.as_slice()) {
                ([from], [to]) => (old, new) = (*from, *to),
                _ => return,
            }
        }
    }

    fn step(&mut self, old: NodeId, new: NodeId) {
        let is_taken = self.changes.same.contains_key(&old) || self.paired.contains(&(Side::Before, old));
        if is_taken || self.changes.same.values().any(|known| *known == new) {
            return;
        }
        if self.fits(old, new) {
            self.changes.same.insert(old, new);
            return self.below(old, new);
        }
        // One operator more, or one less.
        if let Some(deeper) = next(self.now, new).into_iter().find(|deeper| self.fits(old, *deeper)) {
            return self.step(old, deeper);
        }
        if let Some(deeper) = next(self.before, old).into_iter().find(|deeper| self.fits(*deeper, new)) {
            return self.step(deeper, new);
        }
        if (&self.before[old].role, &self.now[new].role) == (&Role::Keeps, &Role::Keeps) {
            let change = difference(&self.before[old], self.before, &self.now[new], self.now);
            self.changes.losses.push(change);
            self.pair(old, new);
            self.below(old, new);
        }
    }

    /// Whether one goes on with what the other has.
    fn fits(&self, old: NodeId, new: NodeId) -> bool {
        let (was, part) = (&self.before[old], &self.now[new]);
        match (&was.role, &part.role) {
            (Role::Reads(then), Role::Reads(now)) => then == now,
            (Role::Keeps, Role::Keeps) => are_alike(was, self.before, part, self.now),
            _ => false,
        }
    }
}

/// The next nodes below one that do not just pass rows on, in the order of the inputs.
fn next(parts: &[PlanPart], node: NodeId) -> Vec<NodeId> {
    let mut found = Vec::new();
    let mut open: Vec<NodeId> = parts[node].inputs.iter().rev().copied().collect();
    while let Some(node) = open.pop() {
        match parts[node].role {
            Role::Passes => open.extend(parts[node].inputs.iter().rev()),
            Role::Reads(_) | Role::Writes(_) | Role::Keeps => found.push(node),
        }
    }
    found
}

/// A node and all that is below it, in words.
fn whole(parts: &[PlanPart], node: NodeId) -> Vec<String> {
    let (mut text, mut open) = (Vec::new(), vec![node]);
    while let Some(node) = open.pop() {
        let part = &parts[node];
        text.push(format!("{} {} ({})", part.name, part.does, part.columns));
        open.extend(part.inputs.iter().rev());
    }
    text
}

/// Whether two parts do the same with the same columns.
fn are_alike(was: &PlanPart, before: &[PlanPart], part: &PlanPart, now: &[PlanPart]) -> bool {
    (&was.name, &was.does, &was.columns) == (&part.name, &part.does, &part.columns)
        && takes(was, before) == takes(part, now)
}

/// The columns of what a part reads.
fn takes(part: &PlanPart, all: &[PlanPart]) -> Vec<String> {
    part.inputs.iter().filter_map(|input| all.get(*input)).map(|input| input.columns.clone()).collect()
}

/// Rows come together in front of operators: an exchange is that of whoever reads it.
fn follow_exchanges(same: &mut BTreeMap<NodeId, NodeId>, before: &[PlanPart], now: &[PlanPart]) {
    let is_exchange = |part: Option<&PlanPart>| part.is_some_and(|part| part.name == "Exchange");
    for part in before.iter().enumerate().filter(|(_, part)| part.name == "Exchange") {
        same.remove(&part.0);
    }
    let readers: Vec<(NodeId, NodeId)> = same.iter().map(|(old, new)| (*old, *new)).collect();
    for (old, new) in readers {
        for (from, to) in before[old].inputs.iter().zip(&now[new].inputs) {
            if is_exchange(before.get(*from)) && is_exchange(now.get(*to)) {
                same.insert(*from, *to);
            }
        }
    }
}

fn told(part: &PlanPart) -> String {
    match part.does.is_empty() {
        true => format!("\"{}\"", part.name),
        false => format!("\"{}: {}\"", part.name, part.does),
    }
}

/// What is different about an operator.
fn difference(was: &PlanPart, before: &[PlanPart], part: &PlanPart, now: &[PlanPart]) -> String {
    if was.does != part.does {
        return format!("then {}, now {}", told(was), told(part));
    }
    let (then, now) = match was.columns == part.columns {
        true => (takes(was, before).join(" and "), takes(part, now).join(" and ")),
        false => (was.columns.clone(), part.columns.clone()),
    };
    format!("{} had columns ({then}), and has ({now}) now", told(part))
}

impl Changes {
    /// Whether the two plans are made of the same.
    pub(super) fn are_none(&self, before: &[PlanPart], now: &[PlanPart]) -> bool {
        before.len() == now.len()
            && self.begins.is_empty()
            && self.losses.is_empty()
            && self.same.iter().all(|(old, new)| old == new)
    }

    /// The cut as one of the plan that goes on. `Err`: the table whose rows wait in it, with other columns.
    pub(super) fn translate(
        &self,
        cut: JobCut,
        before: &[PlanPart],
        now: &[PlanPart],
    ) -> Result<JobCut, String> {
        let place = |node: NodeId| self.same.get(&node).copied();
        let mut tasks = Vec::with_capacity(cut.tasks.len());
        for task in cut.tasks {
            if let Some((old, new)) = task.source.and_then(|node| Some((node, place(node)?)))
                && before[old].columns != now[new].columns
                && waits(&task)
            {
                return Err(before[old].name.clone() + " " + &before[old].does);
            }
            let links = task.links.into_iter().filter_map(|mut link| {
                link.node = place(link.node)?;
                Some(link)
            });
            tasks.push(TaskCut {
                links: links.collect(),
                // No node has that number.
                stage: place(task.stage).unwrap_or(NodeId::MAX),
                source: task.source.and_then(place),
                sink: task.sink.and_then(|mut sink| {
                    sink.node = place(sink.node)?;
                    Some(sink)
                }),
                ..task
            });
        }
        Ok(JobCut { tasks, begins: Some(self.begins.clone()), ..cut })
    }
}

/// Whether rows of a table wait for those of its other splits.
fn waits(task: &TaskCut) -> bool {
    let mut pending = task.merge.inputs.iter().flat_map(|input| &input.pending);
    pending.any(|element| matches!(element, StreamElement::Batch(_)))
}

/// The parts of a plan as a manifest has them.
pub(super) fn to_json(parts: &[PlanPart]) -> Value {
    let part = |part: &PlanPart| {
        let (role, table) = match &part.role {
            Role::Reads(table) => ("reads", Some(table)),
            Role::Writes(table) => ("writes", Some(table)),
            Role::Keeps => ("keeps", None),
            Role::Passes => ("passes", None),
        };
        json!({
            "name": part.name,
            "does": part.does,
            "columns": part.columns,
            "inputs": part.inputs,
            "role": role,
            "table": table,
        })
    };
    parts.iter().map(part).collect()
}

/// The parts that a manifest tells; `None` if it tells none.
pub(super) fn from_json(parts: &Value) -> Option<Vec<PlanPart>> {
    let part = |part: &Value| {
        let text = |key: &str| part.get(key)?.as_str().map(str::to_owned);
        let input = |input: &Value| NodeId::try_from(input.as_u64()?).ok();
        Some(PlanPart {
            name: text("name")?,
            does: text("does")?,
            columns: text("columns")?,
            inputs: part.get("inputs")?.as_array()?.iter().map(input).collect::<Option<_>>()?,
            role: match text("role")?.as_str() {
                "reads" => Role::Reads(text("table")?),
                "writes" => Role::Writes(text("table")?),
                "keeps" => Role::Keeps,
                "passes" => Role::Passes,
                _ => return None,
            },
        })
    };
    parts.as_array()?.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, does: &str, columns: &str, inputs: &[NodeId]) -> PlanPart {
        let role = match name {
            "Source" => Role::Reads(does.to_owned()),
            "Sink" => Role::Writes(does.to_owned()),
            "Calc" | "Exchange" => Role::Passes,
            _ => Role::Keeps,
        };
        let text = |text: &str| text.to_owned();
        PlanPart { name: text(name), does: text(does), columns: text(columns), inputs: inputs.to_vec(), role }
    }

    /// A table, a condition, an exchange, a window, a sink.
    fn window(condition: &str, does: &str, columns: &str) -> Vec<PlanPart> {
        vec![
            part("Source", "t", "k, v", &[]),
            part("Calc", condition, "k, v", &[0]),
            part("Exchange", "hash(k)", "k, v", &[1]),
            part("WindowAggregate", does, columns, &[2]),
            part("Sink", "r", "k, n", &[3]),
        ]
    }

    fn pairs(changes: &Changes) -> Vec<(NodeId, NodeId)> {
        changes.same.iter().map(|(old, new)| (*old, *new)).collect()
    }

    #[test]
    fn a_condition_may_be_another_and_a_node_may_be_elsewhere() {
        let before = window("v > 1", "count", "k, n");
        let changes = compare(&before, &before);
        assert!(changes.are_none(&before, &before), "{changes:?}");
        let changes = compare(&before, &window("v > 2", "count", "k, n"));
        assert_eq!(pairs(&changes), [(0, 0), (2, 2), (3, 3), (4, 4)]);
        assert_eq!((changes.losses.len(), changes.begins), (0, BTreeSet::from([1])));
        // Without the condition all that follows has another number.
        let now = vec![
            part("Source", "t", "k, v", &[]),
            part("Exchange", "hash(k)", "k, v", &[0]),
            part("WindowAggregate", "count", "k, n", &[1]),
            part("Sink", "r", "k, n", &[2]),
        ];
        let changes = compare(&before, &now);
        assert_eq!(pairs(&changes), [(0, 0), (2, 1), (3, 2), (4, 3)]);
        assert!(changes.losses.is_empty() && changes.begins.is_empty());
        assert!(!changes.are_none(&before, &now));
    }

    #[test]
    fn what_would_be_lost_is_told() {
        let before = window("v > 1", "count", "k, n");
        let changes = compare(&before, &window("v > 1", "sum", "k, n"));
        assert_eq!(changes.losses, ["then \"WindowAggregate: count\", now \"WindowAggregate: sum\""]);
        // The rows that come together in front of it are not those of before.
        assert_eq!(pairs(&changes), [(0, 0), (1, 1), (4, 4)]);
        let changes = compare(&before, &window("v > 1", "count", "k, n, m"));
        assert!(changes.losses[0].contains("had columns (k, n), and has (k, n, m) now"), "{changes:?}");
        let mut more = before.clone();
        more.extend([part("TopN", "first 3", "k, n", &[3]), part("Sink", "s", "k, n", &[5])]);
        let changes = compare(&before, &more);
        assert_eq!(changes.losses, ["\"TopN: first 3\" is new", "\"Sink: s\" is new"]);
        // One operator more between two that go on.
        let mut between = before.clone();
        between[4] = part("TopN", "first 3", "k, n", &[3]);
        between.push(part("Sink", "r", "k, n", &[4]));
        let changes = compare(&before, &between);
        assert_eq!(pairs(&changes), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 5)]);
        assert_eq!(changes.losses, ["\"TopN: first 3\" is new"]);
        assert_eq!(compare(&between, &before).losses, ["\"TopN: first 3\" is gone"]);
        let changes = compare(&more, &before);
        assert_eq!(changes.losses, ["\"TopN: first 3\" is gone", "\"Sink: s\" is gone"]);
        let mut other = before.clone();
        other[4].columns = "k, n, m".to_owned();
        let changes = compare(&before, &other);
        assert!(changes.losses.is_empty() && changes.faults[0].contains("\"r\""), "{changes:?}");
    }

    #[test]
    fn of_several_that_are_alike_each_goes_to_its_table() {
        let insert = |from: NodeId, condition: &str, table: &str| {
            vec![
                part("Source", "t", "k, v", &[]),
                part("Calc", condition, "k, v", &[from]),
                part("WindowAggregate", "count", "k, n", &[from + 1]),
                part("Sink", table, "k, n", &[from + 2]),
            ]
        };
        let before = [insert(0, "v > 1", "small"), insert(4, "v > 9", "large")].concat();
        let now = [insert(0, "v > 9", "large"), insert(4, "v > 1", "small")].concat();
        let changes = compare(&before, &now);
        let turned = (0..8).map(|node| (node, (node + 4) % 8)).collect::<Vec<_>>();
        assert_eq!((pairs(&changes), changes.losses.len()), (turned, 0));
        // Two inserts into one table: by what they do.
        let before = [insert(0, "v > 1", "r"), insert(4, "v > 9", "r")].concat();
        let now = [insert(0, "v > 9", "r"), insert(4, "v > 1", "r")].concat();
        assert_eq!(compare(&before, &now), Changes { faults: Vec::new(), ..changes });
    }

    #[test]
    fn a_manifest_tells_the_same_parts() {
        let parts = window("v > 1", "count", "k, n");
        assert_eq!(from_json(&to_json(&parts)), Some(parts));
        assert_eq!(from_json(&json!([{ "name": "Calc" }])), None);
        assert_eq!(from_json(&json!(7)), None);
    }
}
