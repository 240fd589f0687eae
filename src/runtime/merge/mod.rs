//! Several inputs to one stream, in an order that is a function of the rows alone.
//!
//! Each row has a key: the watermark of its own input just before it. Bounded inputs are merged by
//! (key, input): always next the row whose input is furthest behind in event time. The watermark of
//! the merged stream just before a row is then that row's key. Neither depends on how the inputs
//! were cut into batches or on which of them was faster. To know the smallest key the merge waits
//! for an input that has nothing to give yet.
//!
//! Where an input is unbounded that wait could last for ever; there rows are taken as they arrive,
//! and the watermark just before a row is the lowest of the inputs' at its arrival.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatchOptions};
use arrow::compute::{concat, interleave};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use crate::error::Error;
use crate::runtime::cut::{InputCut, MergeCut};
use crate::runtime::source::SplitMark;
use crate::stream::{
    LatencyMarker, RowKind, RowKinds, RunningWatermark, StreamBatch, StreamElement, StreamStatus, Watermark,
};

/// Where a merge takes its elements from.
pub(in crate::runtime) trait Inputs: Send {
    /// Number of inputs.
    fn len(&self) -> usize;

    /// The next element of an input.
    fn poll(&mut self, input: usize) -> Result<Polled, Error>;

    /// What was taken from an input and not given yet; what is on its way to it.
    fn pending(&self, _input: usize) -> Vec<StreamElement> {
        Vec::new()
    }

    /// How the splits are left that it reads, in the order of the inputs.
    fn marks(&self) -> Vec<SplitMark> {
        Vec::new()
    }

    /// What it would give was given, or is given by somebody else.
    fn give_up(&mut self) {}

    /// Takes note of inputs that have come; they stand behind those there were.
    fn refresh(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether more inputs may come.
    fn may_grow(&self) -> bool {
        false
    }

    /// Since when the element that was polled last had waited for that; `None`: since it was read.
    fn waited_since(&self) -> Option<Instant> {
        None
    }

    /// For some time nobody asked for elements.
    fn pause(&mut self) {}

    /// Whether there has been no unfinished input for so long that the stream is idle.
    fn is_deserted(&mut self) -> bool {
        false
    }

    /// When time alone changes something, microseconds of a clock that never goes back, or before that.
    fn next_due_us(&self) -> Option<i64> {
        None
    }

    /// How far the watermark lies behind the wall clock where it moves with it, microseconds.
    fn clock_lag_us(&self) -> Option<i64> {
        None
    }

    /// The watermark while all inputs are idle, where the clock moves it on.
    fn advanced(&mut self) -> Option<Watermark> {
        None
    }
}

/// What an input has to give.
#[derive(Debug)]
pub(in crate::runtime) enum Polled {
    Element(StreamElement),
    /// Nothing now.
    Pending,
}

/// What the merged stream has to give.
#[derive(Debug)]
pub(in crate::runtime) enum Merged {
    Element(StreamElement),
    /// Rows of the second of two streams that are kept apart.
    Second(StreamBatch),
    /// Nothing until an input has more.
    Pending,
    /// `End` has been given.
    Ended,
}

/// How rows of different inputs are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtime) enum MergeOrder {
    /// By (watermark before the row, input). For bounded inputs.
    Aligned,
    /// As they arrive.
    Arrival,
}

/// See the module.
pub(in crate::runtime) struct Merge<I> {
    inputs: I,
    states: Vec<InputState>,
    order: MergeOrder,
    /// The inputs are subtasks of one stage.
    in_step: bool,
    schema: SchemaRef,
    batch_rows: usize,
    /// The last watermark that was given.
    given: Watermark,
    ready: VecDeque<Merged>,
    /// Where two streams are kept apart: the second one.
    second: Option<Second>,
    /// Of each batch in `ready`, since when its oldest rows wait.
    waits: VecDeque<Option<Instant>>,
    waited_since: Option<Instant>,
    /// What the rows that come next are of, with its input, and the rows.
    sources: Vec<(usize, StreamBatch)>,
    segments: Vec<Segment>,
    /// The room that they take in a batch.
    segment_load: usize,
    segments_since: Option<Instant>,
    /// Inputs that are not finished, and whose turn it is among them.
    live: Vec<usize>,
    next_arrival: usize,
    /// The merged stream was told idle.
    idle: bool,
    ended: bool,
    /// For each input, what was on its way when an earlier run was cut: it comes before all else.
    replay: Vec<VecDeque<StreamElement>>,
    /// For each input, its place in `inputs`; `None`: nothing follows what was on its way.
    feeds: Vec<Option<usize>>,
    /// Inputs that nothing follows.
    left_over: usize,
}

/// The second of two streams that have one watermark but other columns.
#[derive(Debug, Clone)]
pub(in crate::runtime) struct Second {
    /// Its inputs stand behind this many of the first one's.
    pub(in crate::runtime) from: usize,
    pub(in crate::runtime) schema: SchemaRef,
}

/// Rows of a batch that follow each other.
#[derive(Debug, Clone, Copy)]
struct Segment {
    /// The place of the batch in `sources`.
    source: usize,
    from: usize,
    rows: usize,
}

#[derive(Debug)]
struct InputState {
    /// The batch whose rows come next, and how many of them have been taken.
    head: Option<(StreamBatch, usize)>,
    /// The room that a row of it takes in a batch: wide ones count as several.
    row_load: usize,
    /// The place of that batch in `sources`, if segments are of it.
    source: Option<usize>,
    /// Since when these rows wait to be taken.
    waits_since: Option<Instant>,
    /// No row that is still to come has a smaller key.
    bound: Watermark,
    finished: bool,
    idle: bool,
}

impl InputState {
    fn new() -> Self {
        Self {
            head: None,
            row_load: 1,
            source: None,
            waits_since: None,
            bound: Watermark::MIN,
            finished: false,
            idle: false,
        }
    }

    /// The key of the next row, or the bound of it.
    fn key(&self) -> Watermark {
        match &self.head {
            Some((batch, taken)) => match &batch.running {
                Some(running) => Watermark(running.values()[*taken]).max(self.bound),
                None => Watermark::MIN,
            },
            None if self.finished => Watermark::MAX,
            None => self.bound,
        }
    }
}

impl<I: Inputs> Merge<I> {
    /// Rows come out with `schema`; the inputs' columns are its columns, but for names.
    pub(in crate::runtime) fn new(
        inputs: I,
        order: MergeOrder,
        schema: SchemaRef,
        batch_rows: usize,
    ) -> Self {
        let states = (0..inputs.len()).map(|_| InputState::new()).collect();
        let live = (0..inputs.len()).collect();
        let feeds = (0..inputs.len()).map(Some).collect();
        Self {
            inputs,
            states,
            order,
            in_step: false,
            schema,
            batch_rows,
            given: Watermark::MIN,
            ready: VecDeque::new(),
            second: None,
            waits: VecDeque::new(),
            waited_since: None,
            sources: Vec::new(),
            segments: Vec::new(),
            segment_load: 0,
            segments_since: None,
            live,
            next_arrival: 0,
            idle: false,
            ended: false,
            replay: Vec::new(),
            feeds,
            left_over: 0,
        }
    }

    /// The next element of an input: first what was on its way.
    fn poll(&mut self, input: usize) -> Result<Polled, Error> {
        if let Some(element) = self.replay.get_mut(input).and_then(VecDeque::pop_front) {
            return Ok(Polled::Element(element));
        }
        match self.feeds[input] {
            Some(feed) => self.inputs.poll(feed),
            None => Ok(Polled::Element(StreamElement::End)),
        }
    }

    /// Whether nothing waits here that was merged.
    pub(in crate::runtime) fn is_settled(&self) -> bool {
        self.ready.is_empty()
    }

    /// What it keeps, while it is settled.
    pub(in crate::runtime) fn cut(&self) -> MergeCut {
        debug_assert!(self.ready.is_empty() && self.segments.is_empty(), "a merge that is cut holds nothing");
        let input = |(input, state): (usize, &InputState)| {
            let head =
                state.head.as_ref().map(|(batch, taken)| batch.slice(*taken, batch.num_rows() - taken));
            let head = head.map(StreamElement::Batch);
            let replay = self.replay.get(input).into_iter().flatten().cloned();
            let later = self.feeds[input].into_iter().flat_map(|feed| self.inputs.pending(feed));
            let is_kept = |element: &StreamElement| !matches!(element, StreamElement::Latency(_));
            InputCut {
                bound: state.bound.0,
                is_finished: state.finished,
                is_idle: state.idle,
                is_left_over: self.feeds[input].is_none(),
                pending: head.into_iter().chain(replay).chain(later).filter(is_kept).collect(),
            }
        };
        let mut second_from = self.second.as_ref().map(|second| second.from);
        let mut inputs = Vec::with_capacity(self.states.len());
        for cut in self.states.iter().enumerate().map(input).enumerate() {
            match cut {
                (_, cut) if !(cut.is_left_over && cut.is_finished) => inputs.push(cut),
                (place, _) => {
                    let is_before = self.second.as_ref().is_some_and(|second| place < second.from);
                    second_from = second_from.map(|from| from - usize::from(is_before));
                }
            }
        }
        MergeCut { given: self.given.0, is_idle: self.idle, is_ended: self.ended, inputs, second_from }
    }

    /// How many inputs it has, and of how many of them the second stream's follow.
    pub(in crate::runtime) fn width(&self) -> (usize, Option<usize>) {
        (self.inputs.len(), self.second.as_ref().map(|second| second.from))
    }

    /// How the splits are left that it merges.
    pub(in crate::runtime) fn marks(&self) -> Vec<SplitMark> {
        self.inputs.marks()
    }

    /// Goes on where a merge of as many inputs was cut, those aside that nothing follows.
    pub(in crate::runtime) fn restore(&mut self, cut: &MergeCut) {
        self.inputs.give_up();
        self.given = Watermark(cut.given);
        self.idle = cut.is_idle;
        self.ended = cut.is_ended;
        if let (Some(second), Some(from)) = (&mut self.second, cut.second_from) {
            second.from = from;
        }
        let mut next = 0..self.inputs.len();
        self.feeds = cut.inputs.iter().map(|cut| if cut.is_left_over { None } else { next.next() }).collect();
        self.feeds.extend(next.map(Some));
        self.left_over = self.feeds.iter().filter(|feed| feed.is_none()).count();
        self.states = self.feeds.iter().map(|_| InputState::new()).collect();
        for (state, cut) in self.states.iter_mut().zip(&cut.inputs) {
            state.bound = Watermark(cut.bound);
            state.finished = cut.is_finished;
            state.idle = cut.is_idle;
        }
        self.live = (0..self.states.len()).filter(|input| !self.states[*input].finished).collect();
        self.replay = cut.inputs.iter().map(|input| input.pending.iter().cloned().collect()).collect();
    }

    /// The merge of two streams whose rows are kept apart. Between two watermarks the rows of the
    /// first come before those of the second; each row's running watermark tells the true order.
    pub(in crate::runtime) fn of_two(self, second: Option<Second>) -> Self {
        Self { second, ..self }
    }

    fn is_second(&self, input: usize) -> bool {
        self.second.as_ref().is_some_and(|second| input >= second.from)
    }

    /// The columns of an input's rows.
    fn schema_of(&self, input: usize) -> &SchemaRef {
        match &self.second {
            Some(second) if input >= second.from => &second.schema,
            _ => &self.schema,
        }
    }

    /// Gives rows of an input. `since` when the oldest of them wait.
    fn give(&mut self, input: usize, batch: StreamBatch, since: Option<Instant>) {
        self.waits.push_back(since);
        let is_second = self.is_second(input);
        self.ready.push_back(match is_second {
            true => Merged::Second(batch),
            false => Merged::Element(StreamElement::Batch(batch)),
        });
    }

    /// The inputs of a stream are subtasks of one stage: they are idle together, and where one wakes the others
    /// are about to. What they have not said yet must not be taken for silence, or time goes on
    /// without them and their rows are late.
    pub(in crate::runtime) fn in_step(mut self, in_step: bool) -> Self {
        self.in_step = in_step;
        self
    }

    /// The next element of the merged stream.
    pub(in crate::runtime) fn next(&mut self) -> Result<Merged, Error> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                if let Merged::Element(StreamElement::Batch(batch)) | Merged::Second(batch) = &ready {
                    self.waited_since = self.waits.pop_front().flatten().or(Some(batch.arrived));
                }
                return Ok(ready);
            }
            if self.ended {
                return Ok(Merged::Ended);
            }
            let progress = match self.order {
                MergeOrder::Aligned if self.states.len() == 1 => self.pass()?,
                MergeOrder::Aligned if self.states.is_empty() => {
                    self.end();
                    true
                }
                MergeOrder::Aligned => self.align()?,
                MergeOrder::Arrival => self.take_arrived()?,
            };
            if !progress && self.ready.is_empty() {
                return Ok(Merged::Pending);
            }
        }
    }

    /// Since when the rows of the batch that was given last had waited: the oldest of them.
    pub(in crate::runtime) fn waited_since(&self) -> Option<Instant> {
        self.waited_since
    }

    /// For some time nobody asked for elements: it is not the inputs' fault that they gave none.
    pub(in crate::runtime) fn pause(&mut self) {
        self.inputs.pause();
    }

    /// See [`Inputs::next_due_us`].
    pub(in crate::runtime) fn next_due_us(&self) -> Option<i64> {
        self.inputs.next_due_us()
    }

    /// See [`Inputs::clock_lag_us`].
    pub(in crate::runtime) fn clock_lag_us(&self) -> Option<i64> {
        self.inputs.clock_lag_us()
    }

    /// One input: its elements as they are.
    fn pass(&mut self) -> Result<bool, Error> {
        let Polled::Element(element) = self.poll(0)? else { return Ok(false) };
        match element {
            StreamElement::Batch(batch) => {
                let batch = self.relabel(0, batch)?;
                self.give(0, batch, self.inputs.waited_since());
            }
            StreamElement::Watermark(watermark) => self.advance(watermark),
            StreamElement::Status(status) => {
                self.ready.push_back(Merged::Element(StreamElement::Status(status)))
            }
            StreamElement::Latency(marker) => {
                self.ready.push_back(Merged::Element(StreamElement::Latency(marker)))
            }
            StreamElement::End => self.end(),
        }
        Ok(true)
    }

    /// Takes rows in the order of their keys until a batch is full or an input must be waited for.
    fn align(&mut self) -> Result<bool, Error> {
        loop {
            let markers = self.fill_heads()?;
            if !markers.is_empty() {
                self.flush()?;
                let markers =
                    markers.into_iter().map(|marker| Merged::Element(StreamElement::Latency(marker)));
                self.ready.extend(markers);
            }
            let Some((input, limit)) = self.lowest_two() else {
                self.flush()?;
                self.end();
                return Ok(true);
            };
            if self.states[input].head.is_none() {
                // The input that is furthest behind has nothing to give yet.
                return self.flush();
            }
            self.take_run(input, limit);
            if self.segment_load >= self.batch_rows {
                return self.flush();
            }
        }
    }

    /// The input that is not finished whose row comes next, and the key and input of the row behind it, of all others.
    fn lowest_two(&self) -> Option<(usize, (Watermark, usize))> {
        let mut lowest: Option<(Watermark, usize)> = None;
        let mut limit = (Watermark::MAX, usize::MAX);
        for (input, state) in self.states.iter().enumerate() {
            let is_over = state.finished && state.head.is_none();
            let key = (state.key(), input);
            match &mut lowest {
                _ if is_over => limit = limit.min(key),
                Some(before) if key > *before => limit = limit.min(key),
                before => limit = before.replace(key).map_or(limit, |before| limit.min(before)),
            }
        }
        lowest.map(|(_, input)| (input, limit))
    }

    /// Moves the rows of `input` that come before those of all other inputs, `limit`, to the segments.
    fn take_run(&mut self, input: usize, limit: (Watermark, usize)) {
        let room = self.batch_rows.saturating_sub(self.segment_load);
        let state = &mut self.states[input];
        let Some((batch, taken)) = &mut state.head else { return };
        let left = (batch.num_rows() - *taken).min((room / state.row_load).max(1));
        let run = match &batch.running {
            Some(running) => running.values()[*taken..*taken + left]
                .partition_point(|key| (Watermark(*key), input) < limit),
            None => left,
        };
        // The first row was found to be the lowest; its key may have been raised to the bound.
        let mut run = run.max(1);
        if let Some(kinds) = &batch.kinds {
            // Both forms of an update stay together: they have one running watermark.
            run += usize::from(kinds.values()[*taken + run - 1] == RowKind::UpdateBefore);
        }
        self.segments_since = [self.segments_since, state.waits_since].into_iter().flatten().min();
        let source = *state.source.get_or_insert_with(|| {
            self.sources.push((input, batch.clone()));
            self.sources.len() - 1
        });
        self.segments.push(Segment { source, from: *taken, rows: run });
        self.segment_load += run * state.row_load;
        *taken += run;
        if *taken == batch.num_rows() {
            if let Some(last) = batch.running.as_ref().and_then(RunningWatermark::last) {
                state.bound = state.bound.max(last);
            }
            (state.head, state.source) = (None, None);
        }
    }

    /// Reads on in every input that has no rows at hand. Gives the markers that it met.
    fn fill_heads(&mut self) -> Result<Vec<LatencyMarker>, Error> {
        let mut markers = Vec::new();
        for input in 0..self.states.len() {
            while self.states[input].head.is_none() && !self.states[input].finished {
                let Polled::Element(element) = self.poll(input)? else { break };
                let state = &mut self.states[input];
                match element {
                    StreamElement::Batch(batch) if batch.num_rows() > 0 => {
                        state.waits_since = self.inputs.waited_since();
                        state.row_load = batch.load().div_ceil(batch.num_rows());
                        state.head = Some((batch, 0));
                    }
                    StreamElement::Batch(_) => {}
                    StreamElement::Watermark(watermark) => state.bound = state.bound.max(watermark),
                    StreamElement::Status(_) => {}
                    StreamElement::Latency(marker) => markers.push(marker),
                    StreamElement::End => state.finished = true,
                }
            }
        }
        Ok(markers)
    }

    /// Gives the rows taken so far as one batch, and the watermark after them.
    fn flush(&mut self) -> Result<bool, Error> {
        let had_rows = !self.segments.is_empty();
        if had_rows {
            let (sources, segments) = (std::mem::take(&mut self.sources), std::mem::take(&mut self.segments));
            self.segment_load = 0;
            self.states.iter_mut().for_each(|state| state.source = None);
            let (second, first): (Vec<_>, Vec<_>) =
                segments.into_iter().partition(|segment| self.is_second(sources[segment.source].0));
            let since = self.segments_since.take();
            for segments in [first, second] {
                let Some(input) = segments.first().map(|first| sources[first.source].0) else { continue };
                let batch = self.join(input, &sources, &segments)?;
                self.give(input, batch, since);
            }
        }
        let given = self.given;
        self.advance(self.lowest());
        Ok(had_rows || self.given > given)
    }

    fn lowest(&self) -> Watermark {
        self.states.iter().map(InputState::key).min().unwrap_or(Watermark::MAX)
    }

    /// Segments of one stream, that of `input`, as one batch.
    fn join(
        &self,
        input: usize,
        sources: &[(usize, StreamBatch)],
        segments: &[Segment],
    ) -> Result<StreamBatch, Error> {
        if let [Segment { source, from, rows }] = segments {
            return self.relabel(input, sources[*source].1.slice(*from, *rows));
        }
        let rows: usize = segments.iter().map(|segment| segment.rows).sum();
        let mut running = Some(Vec::with_capacity(rows));
        let mut kinds = Vec::new();
        let mut arrived = None;
        for segment in segments {
            let (batch, range) = (&sources[segment.source].1, segment.from..segment.from + segment.rows);
            match (&mut running, &batch.running) {
                (Some(all), Some(some)) => all.extend_from_slice(&some.values()[range.clone()]),
                (_, None) => running = None,
                (None, _) => {}
            }
            match &batch.kinds {
                Some(some) => kinds.extend_from_slice(&some.values()[range]),
                None => kinds.extend(std::iter::repeat_n(RowKind::Insert, segment.rows)),
            }
            arrived = Some(arrived.map_or(batch.arrived, |oldest| batch.arrived.min(oldest)));
        }
        let all_inserts = kinds.iter().all(|kind| *kind == RowKind::Insert);
        Ok(StreamBatch {
            rows: join_rows(self.schema_of(input), sources, segments, rows)?,
            kinds: (!all_inserts).then(|| RowKinds::new(kinds)),
            running: running.map(RunningWatermark::new),
            arrived: arrived.unwrap_or_else(std::time::Instant::now),
        })
    }

    /// The batch with the merged stream's schema.
    fn relabel(&self, input: usize, mut batch: StreamBatch) -> Result<StreamBatch, Error> {
        let schema = self.schema_of(input);
        if !Arc::ptr_eq(&batch.rows.schema(), schema) {
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let columns = batch.rows.columns().to_vec();
            batch.rows = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
                .map_err(|error| Error::internal("merge", error))?;
        }
        Ok(batch)
    }

    /// Takes one element from the next input that has one, in turn.
    fn take_arrived(&mut self) -> Result<bool, Error> {
        self.inputs.refresh()?;
        for place in self.feeds.len() - self.left_over..self.inputs.len() {
            self.live.push(self.states.len());
            self.states.push(InputState::new());
            self.feeds.push(Some(place));
        }
        let count = self.live.len();
        for step in 0..count {
            let place = (self.next_arrival + step) % count;
            let input = self.live[place];
            let Polled::Element(element) = self.poll(input)? else { continue };
            self.next_arrival = place + 1;
            match element {
                StreamElement::Batch(batch) => self.take_arrived_batch(input, batch)?,
                // Its end follows. That one input has ended says nothing of the time of idle ones.
                StreamElement::Watermark(Watermark::MAX) => {}
                StreamElement::Watermark(watermark) => {
                    let bound = &mut self.states[input].bound;
                    *bound = watermark.max(*bound);
                }
                StreamElement::Status(status) => match status {
                    StreamStatus::Idle => self.states[input].idle = true,
                    StreamStatus::Active => self.wake(input),
                },
                StreamElement::Latency(marker) => {
                    self.ready.push_back(Merged::Element(StreamElement::Latency(marker)));
                }
                StreamElement::End => {
                    self.states[input].finished = true;
                    self.live.remove(place);
                    self.next_arrival = place;
                }
            }
            self.advance_arrived();
            return Ok(true);
        }
        self.advance_arrived();
        Ok(!self.ready.is_empty())
    }

    fn take_arrived_batch(&mut self, input: usize, batch: StreamBatch) -> Result<(), Error> {
        self.wake(input);
        let mut batch = self.relabel(input, batch)?;
        if let Some(running) = &batch.running {
            let others = self.live.iter().filter(|other| **other != input).map(|other| &self.states[*other]);
            let others = others.filter(|state| !state.idle).map(|state| state.bound).min();
            let (low, high) = (self.given, others.unwrap_or(Watermark::MAX).max(self.given));
            let first = running.values().first().map_or(low, |first| Watermark(*first));
            let last = running.last().unwrap_or(Watermark::MIN);
            if first < low || last > high {
                let merged = running.values().iter().map(|own| (*own).clamp(low.0, high.0));
                batch.running = Some(RunningWatermark::new(merged.collect::<Vec<_>>()));
            }
            self.states[input].bound = self.states[input].bound.max(last);
        }
        self.give(input, batch, self.inputs.waited_since());
        Ok(())
    }

    /// Moves the watermark to the lowest of the inputs that count. Where none of them counts, to the
    /// highest, once, and then the stream is idle.
    fn advance_arrived(&mut self) {
        let live = self.live.iter().map(|input| &self.states[*input]);
        let are_idle = !self.in_step || live.clone().all(|state| state.idle);
        let counts = |state: &&InputState| !(state.idle && are_idle);
        let lowest = live.clone().filter(counts).map(|state| state.bound).min();
        if let Some(lowest) = lowest {
            self.advance(lowest);
            return;
        }
        let highest = live.map(|state| state.bound).max();
        if highest.is_none() && !self.inputs.may_grow() {
            self.end();
            return;
        }
        if self.idle || (highest.is_none() && !self.inputs.is_deserted()) {
            return;
        }
        if let Some(advanced) = self.inputs.advanced() {
            self.advance(advanced);
            return;
        }
        self.advance(highest.unwrap_or(self.given));
        self.ready.push_back(Merged::Element(StreamElement::Status(StreamStatus::Idle)));
        self.idle = true;
    }

    /// The input counts again, and so does the stream.
    fn wake(&mut self, input: usize) {
        match self.in_step {
            true => {
                let is_second = self.is_second(input);
                for other in 0..self.states.len() {
                    if self.is_second(other) == is_second {
                        self.states[other].idle = false;
                    }
                }
            }
            false => self.states[input].idle = false,
        }
        if self.idle {
            self.idle = false;
            self.ready.push_back(Merged::Element(StreamElement::Status(StreamStatus::Active)));
        }
    }

    fn advance(&mut self, watermark: Watermark) {
        if watermark > self.given {
            self.given = watermark;
            self.ready.push_back(Merged::Element(StreamElement::Watermark(watermark)));
        }
    }

    fn end(&mut self) {
        self.advance(Watermark::MAX);
        self.ready.push_back(Merged::Element(StreamElement::End));
        self.ended = true;
    }
}

/// From this many rows a segment on, whole ranges of rows are copied, and not row by row.
const LONG_SEGMENT: usize = 64;

fn join_rows(
    schema: &SchemaRef,
    sources: &[(usize, StreamBatch)],
    segments: &[Segment],
    rows: usize,
) -> Result<RecordBatch, Error> {
    let fault = |error| Error::internal("merge", error);
    let whole = |columns: Vec<ArrayRef>, rows| {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(fault)
    };
    if rows / segments.len() >= LONG_SEGMENT || schema.fields().is_empty() {
        let columns = (0..schema.fields().len()).map(|column| {
            let slice = |segment: &Segment| {
                sources[segment.source].1.rows.column(column).slice(segment.from, segment.rows)
            };
            let slices: Vec<ArrayRef> = segments.iter().map(slice).collect();
            concat(&slices.iter().map(AsRef::as_ref).collect::<Vec<_>>()).map_err(fault)
        });
        return whole(columns.collect::<Result<_, _>>()?, rows);
    }
    // Only those that are meant: others may have other columns.
    let mut places = vec![usize::MAX; sources.len()];
    let mut used: Vec<&RecordBatch> = Vec::new();
    let mut indices = Vec::with_capacity(rows);
    for Segment { source, from, rows } in segments {
        if places[*source] == usize::MAX {
            places[*source] = used.len();
            used.push(&sources[*source].1.rows);
        }
        let place = places[*source];
        indices.extend((*from..from + rows).map(|row| (place, row)));
    }
    let columns = (0..schema.fields().len()).map(|column| {
        let columns: Vec<_> = used.iter().map(|batch| batch.column(column).as_ref()).collect();
        interleave(&columns, &indices).map_err(fault)
    });
    whole(columns.collect::<Result<_, _>>()?, rows)
}
