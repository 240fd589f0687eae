//! Watches an operator: what every one of them promises is checked here, not inside each.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::{
    KeyFilter, OpenWindow, Operator, OperatorState, Output, RowCounts, SpillStore, Spilled, SpilledRows,
    StateReader, StateSize, StateWriter, read_table, write_table,
};
use crate::error::{Error, code};
use crate::stream::{RowKind, StreamBatch, StreamElement, Watermark};

/// An operator under watch. In tests and debug builds each operator is wrapped in one.
///
/// Fails with an internal error that names the operator if a batch has another schema than the
/// plan says, if a watermark does not rise, if something comes after the end, if the running
/// watermarks fall inside a batch, if one half of an update comes without the other, or if the counts don't add up to the rows that came in.
///
/// Now and then the operator is replaced by a new one that takes up its state, by way of the bytes of a checkpoint: so
/// all tests of what operators do are tests of that, too. And now and then it has to put away what it can.
pub(super) struct Checked {
    operator: Box<dyn Operator>,
    again: Box<dyn Fn() -> Result<Box<dyn Operator>, Error> + Send>,
    opened_us: Option<i64>,
    /// Calls so far, and the number of the one after which the operator is replaced next.
    calls: u64,
    replaced_at: u64,
    turns: u64,
    schema: SchemaRef,
    rows_in: u64,
    counts: RowCounts,
    watermark: Option<Watermark>,
    /// The input has ended, and all was given.
    ended: bool,
    finished: bool,
}

impl Checked {
    /// `again` makes the operator anew.
    pub(super) fn new(
        operator: Box<dyn Operator>,
        schema: &SchemaRef,
        again: impl Fn() -> Result<Box<dyn Operator>, Error> + Send + 'static,
    ) -> Self {
        Self {
            operator,
            again: Box::new(again),
            opened_us: None,
            calls: 0,
            replaced_at: 1,
            turns: 0,
            schema: schema.clone(),
            rows_in: 0,
            counts: RowCounts::default(),
            watermark: None,
            ended: false,
            finished: false,
        }
    }

    fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::internal(self.operator.name(), what)
    }

    /// Runs `step` on the operator, then looks at what it gave and counted.
    fn watch(
        &mut self,
        out: &mut Output,
        step: impl FnOnce(&mut dyn Operator, &mut Output) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.finished {
            return Err(self.wrong("called after the end"));
        }
        let (seen, before) = (out.elements.len(), out.counts);
        step(self.operator.as_mut(), out)?;
        self.count(before, out.counts)?;
        for element in &out.elements[seen..] {
            match element {
                StreamElement::Batch(batch) => self.batch(batch)?,
                StreamElement::Watermark(watermark) => {
                    if self.watermark.is_some_and(|last| last >= *watermark) {
                        return Err(self.wrong(format_args!("watermark {} does not rise", watermark.0)));
                    }
                    self.watermark = Some(*watermark);
                }
                StreamElement::Status(_) | StreamElement::Latency(_) | StreamElement::End => {
                    return Err(self.wrong("gave an element that is not its to give"));
                }
            }
        }
        if self.operator.is_at_work() {
            return Ok(());
        }
        self.calls += 1;
        // Often at first, then ever more seldom, as the state grows.
        if self.calls >= self.replaced_at {
            self.replaced_at = self.calls + 1 + self.calls / 4;
            self.turns += 1;
            match self.turns % 4 {
                1 => self.replace(&mut out.counts)?,
                2 => self.put_away()?,
                3 => {
                    self.put_away()?;
                    self.replace(&mut out.counts)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Has the operator put away what it can.
    fn put_away(&mut self) -> Result<(), Error> {
        let before = self.operator.state();
        self.operator.spill(usize::MAX, &Put)?;
        let after = self.operator.state();
        match (before.windows, before.rows) == (after.windows, after.rows) {
            true => Ok(()),
            false => Err(self.wrong(format_args!("put away, its state was {before:?} and is {after:?}"))),
        }
    }

    /// Puts a new operator with the same state in the place of the operator.
    fn replace(&mut self, counts: &mut RowCounts) -> Result<(), Error> {
        let mut state = StateWriter::default();
        match self.operator.snapshot(&mut state) {
            Err(error) if error.code() == code::NOT_SUPPORTED.0 => return Ok(()),
            written => written?,
        }
        let mut bytes = Vec::new();
        state.finish().write(&mut bytes)?;
        let mut bytes = bytes.as_slice();
        let state = OperatorState::read(&mut bytes)?;
        let mut again = (self.again)()?;
        if let Some(now_us) = self.opened_us {
            again.open(now_us);
        }
        let (before, mut restored) = (*counts, RowCounts { held: 0, ..*counts });
        again.restore(&mut StateReader::same(state, 0), &mut restored)?;
        if restored != before || !bytes.is_empty() {
            return Err(self.wrong(format_args!("restored with {restored:?}, kept with {before:?}")));
        }
        let states = [self.operator.state(), again.state()].map(|state| (state.windows, state.rows));
        if states[0] != states[1] {
            return Err(self.wrong(format_args!("restored windows and rows are {states:?}")));
        }
        let timers = [self.operator.next_timer(), again.next_timer()];
        let watermarks = [self.operator.next_watermark(), again.next_watermark()];
        if timers[0] != timers[1] || watermarks[0] != watermarks[1] {
            return Err(self.wrong(format_args!("restored, it wakes at {timers:?}, {watermarks:?}")));
        }
        self.operator = again;
        Ok(())
    }

    fn batch(&self, batch: &StreamBatch) -> Result<(), Error> {
        let (given, planned) = (batch.rows.schema(), &self.schema);
        let types = |schema: &SchemaRef| {
            schema.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>()
        };
        if types(&given) != types(planned) {
            return Err(self.wrong(format_args!("gave {:?}, planned {:?}", types(&given), types(planned))));
        }
        if let Some(running) = &batch.running {
            let values = running.values();
            if values.len() != batch.num_rows() || values.windows(2).any(|pair| pair[0] > pair[1]) {
                return Err(self.wrong("gave running watermarks that fall or don't fit the rows"));
            }
        }
        match &batch.kinds {
            Some(kinds) if kinds.values().len() != batch.num_rows() => {
                Err(self.wrong("gave row kinds that don't fit the rows"))
            }
            Some(kinds) if !has_whole_pairs(kinds.values()) => Err(self.wrong("gave half an update")),
            _ => Ok(()),
        }
    }

    fn count(&mut self, before: RowCounts, after: RowCounts) -> Result<(), Error> {
        let counts = &mut self.counts;
        counts.used += after.used - before.used;
        counts.late += after.late - before.late;
        counts.null_time += after.null_time - before.null_time;
        counts.future += after.future - before.future;
        counts.filtered += after.filtered - before.filtered;
        counts.held = (counts.held + after.held) - before.held;
        counts.partly_late += after.partly_late - before.partly_late;
        let sum =
            counts.used + counts.late + counts.null_time + counts.future + counts.filtered + counts.held;
        if sum != self.rows_in {
            let rows_in = self.rows_in;
            return Err(self.wrong(format_args!("{rows_in} rows in, but {:?}", self.counts)));
        }
        Ok(())
    }
}

/// Rows that are put away as bytes.
#[derive(Debug)]
pub(super) struct Put;

#[derive(Debug)]
struct PutRows(Vec<u8>);

impl SpillStore for Put {
    fn put(&self, rows: &mut dyn Iterator<Item = RecordBatch>) -> Result<Arc<dyn Spilled>, Error> {
        let (rows, mut bytes): (Vec<_>, _) = (rows.collect(), Vec::new());
        let first = rows.first().ok_or_else(|| Error::internal("Checked", "nothing is put away"))?;
        write_table(&first.schema(), &[], &rows, &mut bytes)?;
        Ok(Arc::new(PutRows(bytes)))
    }

    fn share(&self) -> usize {
        // The order of rows is compared.
        usize::MAX
    }
}

impl Spilled for PutRows {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn rows(&self) -> Result<SpilledRows, Error> {
        Ok(Box::new(read_table(&mut self.0.as_slice())?.1.into_iter().map(Ok)))
    }
}

/// Whether each `-U` stands right before its `+U`.
fn has_whole_pairs(kinds: &[RowKind]) -> bool {
    let mut before = None;
    for kind in kinds {
        if (before == Some(RowKind::UpdateBefore)) != (*kind == RowKind::UpdateAfter) {
            return false;
        }
        before = Some(*kind);
    }
    before != Some(RowKind::UpdateBefore)
}

impl Operator for Checked {
    fn name(&self) -> &'static str {
        self.operator.name()
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.rows_in += batch.num_rows() as u64;
        self.watch(out, |operator, out| operator.process_batch(batch, out))
    }

    fn process_second(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.rows_in += batch.num_rows() as u64;
        self.watch(out, |operator, out| operator.process_second(batch, out))
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.watch(out, |operator, out| operator.process_watermark(watermark, out))
    }

    fn is_at_work(&self) -> bool {
        self.operator.is_at_work()
    }

    fn go_on(&mut self, out: &mut Output) -> Result<(), Error> {
        self.watch(out, |operator, out| operator.go_on(out))?;
        self.finished = self.ended && !self.operator.is_at_work();
        Ok(())
    }

    fn open(&mut self, now_us: i64) {
        self.opened_us = Some(now_us);
        self.operator.open(now_us);
    }

    fn next_timer(&self) -> Option<i64> {
        self.operator.next_timer()
    }

    fn process_timer(&mut self, now_us: i64, out: &mut Output) -> Result<(), Error> {
        self.watch(out, |operator, out| operator.process_timer(now_us, out))?;
        match self.operator.next_timer() {
            Some(next) if next <= now_us => Err(self.wrong("a timer stays where it was")),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, out: &mut Output) -> Result<(), Error> {
        self.ended = true;
        self.watch(out, |operator, out| operator.finish(out))?;
        self.finished = !self.operator.is_at_work();
        Ok(())
    }

    fn next_watermark(&self) -> Option<i64> {
        self.operator.next_watermark()
    }

    fn next_piece(&self) -> Option<i64> {
        self.operator.next_piece()
    }

    fn is_satisfied(&self) -> bool {
        self.operator.is_satisfied()
    }

    fn open_windows(&mut self, most: usize, of: Option<&KeyFilter>) -> Result<Vec<OpenWindow>, Error> {
        self.operator.open_windows(most, of)
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        self.operator.snapshot(state)
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        self.operator.restore(state, counts)?;
        self.counts = *counts;
        let RowCounts { used, late, null_time, future, filtered, held, partly_late: _ } = *counts;
        self.rows_in = used + late + null_time + future + filtered + held;
        Ok(())
    }

    fn spill(&mut self, wanted: usize, store: &dyn SpillStore) -> Result<usize, Error> {
        self.operator.spill(wanted, store)
    }

    fn spilled(&self) -> u64 {
        self.operator.spilled()
    }

    fn state(&self) -> StateSize {
        self.operator.state()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::testing::{Row, input, stream_batch};

    /// Does as it is told, wrongly.
    struct Wrong(fn(StreamBatch, &mut Output));

    impl Operator for Wrong {
        fn name(&self) -> &'static str {
            "Wrong"
        }

        fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
            (self.0)(batch, out);
            Ok(())
        }

        fn snapshot(&mut self, _state: &mut StateWriter) -> Result<(), Error> {
            Ok(())
        }

        fn restore(&mut self, _state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
            // Of rows that it holds it is wrong before it is asked.
            counts.held = 0;
            Ok(())
        }
    }

    fn message(does: fn(StreamBatch, &mut Output)) -> String {
        let rows: [Row; 2] = [(Some(1), None, None), (Some(2), None, None)];
        let mut checked = Checked::new(Box::new(Wrong(does)), &input(), move || Ok(Box::new(Wrong(does))));
        match checked.process_batch(stream_batch(&rows, &[0, 1]), &mut Output::default()) {
            Ok(()) => "fine".into(),
            Err(error) => error.message().into(),
        }
    }

    #[test]
    fn each_broken_promise_is_named() {
        let used = |batch: StreamBatch, out: &mut Output| {
            out.counts.used += 2;
            out.batch(batch);
        };
        assert_eq!(message(used), "fine");
        let lost = message(|_, out| out.counts.used += 1);
        assert!(lost.contains("Wrong: 2 rows in"), "{lost}");
        let schema = message(|batch, out| {
            out.counts.used += 2;
            out.batch(StreamBatch { rows: batch.rows.project(&[0]).unwrap(), ..batch });
        });
        assert!(schema.contains("planned"), "{schema}");
        let falls = message(|_, out| {
            out.counts.held += 2;
            out.watermark(Watermark(5));
            out.watermark(Watermark(5));
        });
        assert!(falls.contains("does not rise"), "{falls}");
        let end = message(|_, out| {
            out.counts.filtered += 2;
            out.elements.push(StreamElement::End);
        });
        assert!(end.contains("not its to give"), "{end}");
    }

    #[test]
    fn nothing_after_the_end() {
        let again = || -> Result<Box<dyn Operator>, Error> { Ok(Box::new(Wrong(|_, _| {}))) };
        let mut checked = Checked::new(again().unwrap(), &input(), again);
        let mut out = Output::default();
        checked.finish(&mut out).unwrap();
        assert!(checked.finish(&mut out).is_err());
        assert!(checked.process_watermark(Watermark(1), &mut out).is_err());
    }
}
