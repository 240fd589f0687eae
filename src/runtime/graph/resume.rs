//! Tasks that go on where those of an earlier run were cut: the same ones, or, with another parallelism, others that
//! take up what those left.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Error;
use crate::plan::{NodeId, Operation, StreamPlan};
use crate::runtime::cut::{InputCut, JobCut, LinkCut, MergeCut, SinkCut, TaskCut, foreign};
use crate::runtime::exchange::spread;
use crate::runtime::task::{Inherited, InheritedLink, Place, Task};
use crate::stream::StreamElement;

/// Gives each task what its predecessor kept. `shift_us`: how much later the job's clock shows a moment now. Gives what
/// was left of tasks that are over.
///
/// # Errors
/// `K003` if the cut is one of other tasks, `K002` if it does not fit together.
pub(super) fn restore(
    tasks: &mut [Task],
    cut: &JobCut,
    shift_us: i64,
) -> Result<BTreeMap<usize, TaskCut>, Error> {
    if tasks.len() != cut.tasks.len() {
        return Err(foreign(format!("it has {} tasks, and now there are {}", cut.tasks.len(), tasks.len())));
    }
    for (task, cut) in tasks.iter_mut().zip(&cut.tasks) {
        if task.name != cut.name {
            return Err(foreign(format!("it has a task \"{}\" where now is \"{}\"", cut.name, task.name)));
        }
        task.restore(cut, shift_us)?;
    }
    let left = cut.tasks.iter().enumerate().filter(|(_, task)| task.is_closed);
    Ok(left.map(|(number, task)| (number, task.clone())).collect())
}

/// Spreads what the tasks of another number of subtasks kept over these. Nothing was on its way between those but what had
/// to wait for other inputs, so all subtasks of a stage had come to the same watermark.
///
/// # Errors
/// `K003` if the cut is one of other operators, `K002` if it does not fit together.
pub(super) fn respread(
    tasks: &mut [Task],
    plan: &StreamPlan,
    cut: &JobCut,
    shift_us: i64,
) -> Result<BTreeMap<usize, TaskCut>, Error> {
    let mut subtasks: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut names = Names::default();
    for task in tasks.iter() {
        *subtasks.entry(task.place.stage).or_default() += 1;
        task.operators().for_each(|(node, name)| names.add(node, name));
    }
    let before = Before { plan, cut, names };
    let mut left = BTreeMap::new();
    for (number, task) in tasks.iter_mut().enumerate() {
        let count = subtasks.get(&task.place.stage).copied().unwrap_or(1);
        let inherited = before.inherited(task, count)?;
        task.take_up(&inherited, shift_us)?;
        if inherited.is_over() {
            left.insert(number, before.of_task_that_is_over(task, &inherited)?);
        }
    }
    Ok(left)
}

/// The names that a node's operators have, in the order in which rows pass them.
#[derive(Default)]
struct Names(BTreeMap<NodeId, Vec<String>>);

impl Names {
    fn add(&mut self, node: NodeId, name: &str) {
        let names = self.0.entry(node).or_default();
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
}

/// What tasks left.
struct Before<'a> {
    plan: &'a StreamPlan,
    cut: &'a JobCut,
    names: Names,
}

impl<'a> Before<'a> {
    /// What is a task's of what others left.
    fn inherited(&self, task: &Task, subtasks: usize) -> Result<Inherited<'a>, Error> {
        let place = &task.place;
        let nodes: BTreeSet<NodeId> = task.operators().map(|(node, _)| node).collect();
        let is_part = |cut: &&TaskCut| {
            let sink = cut.sink.as_ref().map(|sink| sink.node);
            cut.links.iter().any(|link| nodes.contains(&link.node))
                || (sink.is_some() && sink == task.sink_node())
        };
        let mut tasks: Vec<&TaskCut> = self.cut.tasks.iter().filter(|cut| cut.stage == place.stage).collect();
        let had_input = !tasks.is_empty();
        if !had_input {
            tasks = self.cut.tasks.iter().filter(is_part).collect();
        }
        let is_new = |node: NodeId| self.cut.begins.as_ref().is_some_and(|begins| begins.contains(&node));
        if tasks.is_empty() && !is_new(place.stage) {
            return Err(foreign(format!("it has no task \"{}\"", task.name)));
        }
        let is_read = matches!(
            self.plan.nodes.get(place.stage).map(|node| &node.operation),
            Some(Operation::Source(_) | Operation::Values(_))
        );
        let merge = match tasks.as_slice() {
            _ if !had_input => None,
            // Its splits, as they were; those that it did not know come behind them.
            [only] if is_read => Some(only.merge.clone()),
            several => Some(self.merge(several, task.input.width(), place, subtasks)?),
        };
        let links = task.operators().map(|(node, name)| self.link(node, name));
        Ok(Inherited {
            merge,
            links: links.collect::<Result<_, _>>()?,
            sink: task.sink_node().and_then(|node| self.sink(node)),
            subtasks,
            tasks,
        })
    }

    fn sink(&self, node: NodeId) -> Option<&'a SinkCut> {
        self.cut.tasks.iter().filter_map(|task| task.sink.as_ref()).find(|sink| sink.node == node)
    }

    /// What subtasks of an operator left; where there is one that is two now, or the other way round, all of the node.
    fn link(&self, node: NodeId, name: &str) -> Result<InheritedLink<'a>, Error> {
        let links = self.cut.tasks.iter().flat_map(|task| task.links.iter().map(|link| (link, task.is_over)));
        let of_node: Vec<(&LinkCut, bool)> = links.filter(|(link, _)| link.node == node).collect();
        if of_node.is_empty() && !self.cut.begins.as_ref().is_some_and(|begins| begins.contains(&node)) {
            return Err(foreign(format!("it has no operator \"{name}\"")));
        }
        let same: Vec<_> = of_node.iter().copied().filter(|(link, _)| link.name == name).collect();
        let names = self.names.0.get(&node).map_or(&[][..], Vec::as_slice);
        let were: BTreeSet<&str> = of_node.iter().map(|(link, _)| link.name.as_str()).collect();
        let (is_first, is_last) = match were.len() == names.len() {
            true => (true, true),
            false => (
                names.first().is_some_and(|first| first == name),
                names.last().is_some_and(|last| last == name),
            ),
        };
        let parts = if same.is_empty() { of_node } else { same };
        Ok(InheritedLink { parts, counts_in: is_first, counts_out: is_last })
    }

    /// The merge of a subtask: what waited at those that there were and is its own now, before its own inputs.
    fn merge(
        &self,
        tasks: &[&TaskCut],
        (width, second_from): (usize, Option<usize>),
        place: &Place,
        subtasks: usize,
    ) -> Result<MergeCut, Error> {
        let live = || tasks.iter().filter(|task| !task.is_over).map(|task| &task.merge);
        let mut left_over = [Vec::new(), Vec::new()];
        for merge in live() {
            for (number, input) in merge.inputs.iter().enumerate() {
                let side = usize::from(merge.second_from.is_some_and(|from| number >= from));
                let keys = place.keys.get(side).map(Vec::as_slice);
                left_over[side].extend(own_rows(input, keys, place.subtask, subtasks)?);
            }
        }
        let [mut inputs, second] = left_over;
        let own =
            |count: usize| std::iter::repeat_n(InputCut { bound: i64::MIN, ..InputCut::default() }, count);
        let first = second_from.unwrap_or(width);
        inputs.extend(own(first));
        let second_from = second_from.map(|_| inputs.len());
        inputs.extend(second);
        inputs.extend(own(width - first));
        Ok(MergeCut {
            given: live().map(|merge| merge.given).min().unwrap_or(i64::MIN),
            is_idle: live().count() > 0 && live().all(|merge| merge.is_idle),
            is_ended: live().count() > 0 && live().all(|merge| merge.is_ended),
            inputs,
            second_from,
        })
    }

    /// What there is of a task that has nothing to do any more.
    fn of_task_that_is_over(&self, task: &mut Task, inherited: &Inherited<'_>) -> Result<TaskCut, Error> {
        let reads =
            inherited.tasks.iter().find(|before| before.source.is_some() && before.source == task.source);
        Ok(TaskCut {
            sink: inherited.sink.cloned(),
            splits: reads.map_or_else(Vec::new, |task| task.splits.clone()),
            ..task.bare_cut()
        })
    }
}

/// The rows that waited at an input and are this subtask's, as an input of their own.
fn own_rows(
    input: &InputCut,
    keys: Option<&[usize]>,
    subtask: usize,
    subtasks: usize,
) -> Result<Option<InputCut>, Error> {
    let (mut pending, mut hashes, mut has_rows) = (Vec::new(), Vec::new(), false);
    for element in &input.pending {
        match (element, keys) {
            (StreamElement::Batch(batch), Some(keys)) if subtasks > 1 => {
                spread(batch, keys, subtasks, &mut hashes, |target, part| {
                    if target == subtask {
                        has_rows = true;
                        pending.push(StreamElement::Batch(part));
                    }
                })?;
            }
            (StreamElement::Batch(_), _) => {
                has_rows = true;
                pending.push(element.clone());
            }
            _ => pending.push(element.clone()),
        }
    }
    Ok(has_rows.then(|| InputCut { is_left_over: true, is_finished: false, pending, ..input.clone() }))
}
