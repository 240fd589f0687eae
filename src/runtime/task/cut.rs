//! What a task keeps between two pieces of work, and tasks that go on where others were cut.

use super::{End, Task, Worked};
use crate::connector::CancelToken;
use crate::error::Error;
use crate::operator::{OperatorState, RowCounts, StateReader, StateWriter};
use crate::plan::NodeId;
use crate::runtime::cut::{LinkCut, MergeCut, SinkCut, TaskCut, foreign};
use crate::stream::{StreamElement, StreamStatus, Watermark};

/// What a task goes on with where there were other tasks in its place.
pub(in crate::runtime) struct Inherited<'a> {
    /// Those that there were, or whose operators it has.
    pub(in crate::runtime) tasks: Vec<&'a TaskCut>,
    /// What its input goes on with; `None`: there was no such input.
    pub(in crate::runtime) merge: Option<MergeCut>,
    /// For each of its operators.
    pub(in crate::runtime) links: Vec<InheritedLink<'a>>,
    pub(in crate::runtime) sink: Option<&'a SinkCut>,
    /// How many tasks take up what those left.
    pub(in crate::runtime) subtasks: usize,
}

impl Inherited<'_> {
    /// Nothing is to be done any more.
    pub(in crate::runtime) fn is_over(&self) -> bool {
        !self.tasks.is_empty() && self.tasks.iter().all(|task| task.is_over)
    }
}

/// What an operator goes on with.
pub(in crate::runtime) struct InheritedLink<'a> {
    /// What subtasks of it left, and whether they were over.
    pub(in crate::runtime) parts: Vec<(&'a LinkCut, bool)>,
    /// It speaks for the rows that came in, and for those that went out.
    pub(in crate::runtime) counts_in: bool,
    pub(in crate::runtime) counts_out: bool,
}

impl Task {
    /// Finishes the piece of work that it is in the middle of, so that it can be cut: what it gives is handed on
    /// though those who take it may not keep up.
    pub(in crate::runtime) fn settle(&mut self, cancel: &CancelToken) -> Result<(), Error> {
        let is_settled =
            |task: &Self| task.progress.coming.is_none() && task.input.is_settled() && !task.is_at_work();
        while !self.progress.ended && !cancel.is_cancelled() && !is_settled(self) {
            self.work_on()?;
        }
        self.end.hand_on()
    }

    /// All that it keeps, while it is settled.
    pub(in crate::runtime) fn cut(&mut self) -> Result<TaskCut, Error> {
        debug_assert!(!self.end.holds_back(), "a task that is cut holds nothing back");
        let mut cut = self.bare_cut();
        if !cut.is_over {
            cut.merge = self.input.cut();
            for (link, cut) in self.chain.iter_mut().zip(&mut cut.links) {
                let mut state = StateWriter::default();
                link.operator.snapshot(&mut state)?;
                cut.state = state.finish();
            }
        }
        if let End::Sink(sink, report, _) = &mut self.end {
            cut.sink = Some(SinkCut {
                node: report.node,
                rows: report.rows_in,
                prepared: sink.prepare()?,
                pending: sink.waiting(),
            });
        }
        cut.splits = self.input.marks();
        Ok(cut)
    }

    /// The same of a task that is over: only its sink has something that counts.
    pub(in crate::runtime) fn last_cut(&mut self) -> Result<TaskCut, Error> {
        self.progress.ended = true;
        self.cut()
    }

    /// The names and numbers of a task that is over.
    pub(in crate::runtime) fn bare_cut(&self) -> TaskCut {
        let links = self.chain.iter().map(|link| LinkCut {
            node: link.report.node,
            name: link.report.name.clone(),
            rows_in: link.report.rows_in,
            rows_out: link.report.rows_out,
            counts: link.output.counts,
            said: link.said.map(|watermark| watermark.0),
            state: OperatorState::default(),
        });
        TaskCut {
            name: self.name.clone(),
            stage: self.place.stage,
            is_over: self.progress.ended,
            is_closed: self.progress.is_closed,
            watermark: self.progress.watermark.map(|watermark| watermark.0),
            merge: MergeCut::default(),
            links: links.collect(),
            sink: None,
            source: self.source,
            splits: Vec::new(),
        }
    }

    /// Goes on where another task like it was cut. `shift_us`: how much later the job's clock shows a moment now.
    pub(in crate::runtime) fn restore(&mut self, cut: &TaskCut, shift_us: i64) -> Result<(), Error> {
        if self.chain.len() != cut.links.len() {
            return Err(foreign(format!("task \"{}\" has other operators", self.name)));
        }
        let is_over = cut.is_over;
        for (link, cut) in self.chain.iter_mut().zip(&cut.links) {
            if (link.report.node, link.report.name.as_str()) != (cut.node, cut.name.as_str()) {
                let (now, before) = (&link.report.name, &cut.name);
                return Err(foreign(format!("operator \"{now}\" stands where \"{before}\" stood")));
            }
            (link.report.rows_in, link.report.rows_out) = (cut.rows_in, cut.rows_out);
            let mut counts = cut.counts;
            if !is_over {
                counts.held = 0;
                link.operator
                    .restore(&mut StateReader::same(cut.state.clone(), shift_us), &mut counts)
                    .map_err(|error| error.context(format_args!("operator \"{}\"", cut.name)))?;
            }
            link.said = cut.said.map(Watermark);
            link.output.counts = counts;
            link.meter.restore(cut.rows_in, cut.rows_out, &counts);
        }
        self.restore_sink(cut.sink.as_ref());
        self.progress.watermark = cut.watermark.map(Watermark);
        self.progress.ended = cut.is_over;
        self.progress.is_closed = cut.is_closed;
        if !is_over {
            self.input.restore(&cut.merge);
        }
        if cut.is_over || cut.merge.is_ended {
            self.timers = None;
        }
        Ok(())
    }

    /// Works until its input has no more, also where those who take its rows don't keep up; then nothing is on its way
    /// to it but what has to wait for other inputs. Whether there was anything to do.
    pub(in crate::runtime) fn exhaust(&mut self, cancel: &CancelToken) -> Result<bool, Error> {
        let mut worked = false;
        while !self.progress.ended && !cancel.is_cancelled() && self.work_on()? == Worked::Done {
            worked = true;
        }
        if self.end.holds_back() {
            self.end.hand_on()?;
            worked = true;
        }
        if self.progress.ended && !self.progress.is_closed {
            self.close(cancel);
            worked = true;
        }
        Ok(worked)
    }

    /// The node and name of each of its operators.
    pub(in crate::runtime) fn operators(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.chain.iter().map(|link| (link.report.node, link.report.name.as_str()))
    }

    /// The node of its sink.
    pub(in crate::runtime) fn sink_node(&self) -> Option<NodeId> {
        match &self.end {
            End::Sink(_, report, _) => Some(report.node),
            End::Outputs(_) => None,
        }
    }

    /// Makes visible what its sink was prepared with.
    pub(in crate::runtime) fn commit(&mut self) -> Result<(), Error> {
        match &mut self.end {
            End::Sink(sink, ..) => sink.commit(),
            End::Outputs(_) => Ok(()),
        }
    }

    /// Goes on where other tasks were cut, between which nothing was on its way. Tells those who take its rows what those
    /// of the other tasks knew.
    pub(in crate::runtime) fn take_up(
        &mut self,
        inherited: &Inherited<'_>,
        shift_us: i64,
    ) -> Result<(), Error> {
        let is_over = inherited.is_over();
        let is_first = self.place.subtask == 0;
        for (link, of_link) in self.chain.iter_mut().zip(&inherited.links) {
            let InheritedLink { parts, counts_in, counts_out } = of_link;
            let mut counts = RowCounts::default();
            for (part, _) in parts.iter().filter(|_| is_first) {
                if *counts_in {
                    // Rows that are held count where they are held.
                    link.report.rows_in += part.rows_in - part.counts.held;
                    counts.add(&part.counts);
                }
                if *counts_out {
                    link.report.rows_out += part.rows_out;
                }
            }
            counts.held = 0;
            let live = || parts.iter().filter(|(_, is_over)| !is_over).map(|(part, _)| part);
            if !is_over && live().count() > 0 {
                let states = live().map(|part| part.state.clone()).collect();
                let mut state = StateReader::spread(states, self.place.subtask, inherited.subtasks, shift_us);
                link.operator
                    .restore(&mut state, &mut counts)
                    .map_err(|error| error.context(format_args!("operator \"{}\"", link.report.name)))?;
            }
            link.report.rows_in += counts.held;
            link.said = live().filter_map(|part| part.said).min().map(Watermark);
            link.output.counts = counts;
            link.meter.restore(link.report.rows_in, link.report.rows_out, &counts);
        }
        self.restore_sink(inherited.sink);
        self.progress.watermark =
            inherited.tasks.iter().filter_map(|task| task.watermark).min().map(Watermark);
        self.progress.ended = is_over;
        if is_over || inherited.merge.as_ref().is_some_and(|merge| merge.is_ended) {
            self.timers = None;
        }
        if is_over {
            self.side_outputs().for_each(|sender| sender.send(StreamElement::End));
            self.progress.is_closed = true;
            return self.tell(StreamElement::End);
        }
        // What begins anew hands watermarks on.
        let known = self.chain.iter().zip(&inherited.links).rfind(|(_, link)| !link.parts.is_empty());
        let mut said = known.map(|(link, _)| link.said);
        if let Some(merge) = &inherited.merge {
            self.input.restore(merge);
            said.get_or_insert((merge.given > i64::MIN).then_some(Watermark(merge.given)));
            if merge.is_idle {
                self.tell(StreamElement::Status(StreamStatus::Idle))?;
            }
        }
        match said.flatten() {
            Some(watermark) => self.tell(StreamElement::Watermark(watermark)),
            None => Ok(()),
        }
    }

    /// Gives an element to those who take its rows. A sink knows already.
    fn tell(&mut self, element: StreamElement) -> Result<(), Error> {
        match &mut self.end {
            End::Outputs(outputs) => {
                outputs.send(element)?;
                outputs.hand_on()
            }
            End::Sink(..) => Ok(()),
        }
    }

    fn restore_sink(&mut self, cut: Option<&SinkCut>) {
        if let (End::Sink(sink, report, meter), Some(cut)) = (&mut self.end, cut) {
            (report.rows_in, report.rows_out, report.counts.used) = (cut.rows, cut.rows, cut.rows);
            meter.restore(cut.rows, cut.rows, &report.counts);
            sink.restore(cut);
        }
    }
}
