//! A plan beside the one that a checkpoint is of: which of its parts go on with what, and what would be lost.
//!
//! Tables are known by their names. Operators that keep something are known by what they do and by the columns that
//! they take and give; the rest is where it is because of them.

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
    let mut changes = Changes::default();
    let mut taken = BTreeSet::new();
    // Alike in all that matters; of several of them in their order.
    for (node, part) in now.iter().enumerate() {
        let is_same = |(old, was): &(usize, &PlanPart)| {
            !taken.contains(old) && is_one_of(was, part, |was, part| are_alike(was, before, part, now))
        };
        if let Some((old, _)) = before.iter().enumerate().find(is_same) {
            taken.insert(old);
            changes.same.insert(old, node);
        }
    }
    let left = |parts: &[PlanPart], known: &dyn Fn(NodeId) -> bool| -> Vec<NodeId> {
        let counts = |(node, part): &(usize, &PlanPart)| part.role != Role::Passes && !known(*node);
        parts.iter().enumerate().filter(counts).map(|(node, _)| node).collect()
    };
    let mut gone = left(before, &|node| changes.same.contains_key(&node));
    let continued: BTreeSet<NodeId> = changes.same.values().copied().collect();
    for node in left(now, &|node| continued.contains(&node)) {
        let part = &now[node];
        let twin =
            gone.iter().position(|old| is_one_of(&before[*old], part, |was, part| was.name == part.name));
        let Some(twin) = twin else {
            changes.losses.push(format!("{} is new", told(part)));
            continue;
        };
        let was = &before[gone.remove(twin)];
        match &part.role {
            // The end of a query.
            Role::Writes(table) if table.is_empty() => {}
            Role::Writes(table) => changes.faults.push(format!(
                "table \"{table}\" was written with columns ({}), and is with ({}) now",
                was.columns, part.columns
            )),
            _ => changes.losses.push(difference(was, before, part, now)),
        }
    }
    changes.losses.extend(gone.into_iter().map(|old| format!("{} is gone", told(&before[old]))));
    follow_exchanges(&mut changes.same, before, now);
    let continued: BTreeSet<NodeId> = changes.same.values().copied().collect();
    changes.begins = (0..now.len()).filter(|node| !continued.contains(node)).collect();
    changes
}

/// Whether both read, or write, one table, or keep something and are alike.
fn is_one_of(was: &PlanPart, part: &PlanPart, alike: impl Fn(&PlanPart, &PlanPart) -> bool) -> bool {
    match (&was.role, &part.role) {
        (Role::Reads(then), Role::Reads(now)) => then == now,
        (Role::Writes(then), Role::Writes(now)) => then == now && alike(was, part),
        (Role::Keeps, Role::Keeps) | (Role::Passes, Role::Passes) => alike(was, part),
        _ => false,
    }
}

/// Whether two parts do the same with the same columns.
fn are_alike(was: &PlanPart, before: &[PlanPart], part: &PlanPart, now: &[PlanPart]) -> bool {
    let takes = |part: &PlanPart, all: &[PlanPart]| -> Vec<String> {
        part.inputs.iter().filter_map(|input| all.get(*input)).map(|input| input.columns.clone()).collect()
    };
    match part.role {
        Role::Writes(_) => was.columns == part.columns,
        _ => {
            (&was.name, &was.does, &was.columns) == (&part.name, &part.does, &part.columns)
                && takes(was, before) == takes(part, now)
        }
    }
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
    let takes = |part: &PlanPart, all: &[PlanPart]| -> Vec<String> {
        part.inputs.iter().filter_map(|input| all.get(*input)).map(|input| input.columns.clone()).collect()
    };
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
