//! The watermark of a split: the running maximum of an expression over its rows.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;

use super::stamp::STEP_US;
use crate::error::Error;
use crate::operator::evaluate::evaluate;
use crate::plan::{ExprRef, SourceWatermark};
use crate::stream::event_times;

/// What rows ask the watermark to be, in microseconds.
#[derive(Debug, Clone)]
pub(super) enum WatermarkRule {
    /// The event time less a constant: no expression is evaluated.
    Delay(i64),
    /// Anything else.
    Expression(ExprRef),
}

impl WatermarkRule {
    /// The rule of a watermark declaration.
    pub(super) fn of(spec: &SourceWatermark, time_type: &DataType) -> Self {
        if spec.processing {
            return Self::Delay(STEP_US);
        }
        match spec.constant_delay_us(time_type) {
            Some(delay_us) => Self::Delay(delay_us),
            None => Self::Expression(Arc::clone(&spec.watermark)),
        }
    }

    /// One value a row; NULL asks for nothing.
    pub(super) fn wanted(
        &self,
        rows: &RecordBatch,
        times: &ScalarBuffer<i64>,
        time_nulls: Option<&NullBuffer>,
    ) -> Result<(ScalarBuffer<i64>, Option<NullBuffer>), Error> {
        match self {
            Self::Delay(0) => Ok((times.clone(), time_nulls.cloned())),
            Self::Delay(delay_us) => {
                let values: Vec<i64> = times.iter().map(|time| time.saturating_sub(*delay_us)).collect();
                Ok((values.into(), time_nulls.cloned()))
            }
            Self::Expression(expr) => {
                let array: ArrayRef = evaluate(expr, rows)?;
                event_times(array.as_ref())
            }
        }
    }
}

/// For each row the watermark just before it, and the one after the last. `current` is the one
/// before the first.
fn run(wanted: &ScalarBuffer<i64>, nulls: Option<&NullBuffer>, current: i64) -> (Vec<i64>, i64) {
    let mut highest = current;
    let mut before = Vec::with_capacity(wanted.len());
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        None => before.extend(wanted.iter().map(|value| {
            let just_before = highest;
            highest = highest.max(*value);
            just_before
        })),
        Some(nulls) => before.extend(wanted.iter().zip(nulls.iter()).map(|(value, is_valid)| {
            let just_before = highest;
            if is_valid {
                highest = highest.max(*value);
            }
            just_before
        })),
    }
    (before, highest)
}

/// How far the rows of a split have brought its watermark, and what has been said of it: with each row,
/// or from tick to tick.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    reached: i64,
    said: i64,
    /// Time between two ticks, and when the next is due.
    ticks_us: Option<(i64, i64)>,
}

impl Progress {
    /// `tick_us`: time between two ticks; `None`: with each row.
    pub(super) fn new(tick_us: Option<i64>, now_us: i64) -> Self {
        let ticks_us = tick_us.map(|tick_us| (tick_us, now_us.saturating_add(tick_us)));
        Self { reached: i64::MIN, said: i64::MIN, ticks_us }
    }

    /// Goes on where an earlier run has come to. `next_tick_us`: when its next tick was due.
    pub(super) fn restore(&mut self, reached: i64, said: i64, next_tick_us: Option<i64>) {
        (self.reached, self.said) = (reached, said);
        if let (Some((_, due_us)), Some(next_us)) = (&mut self.ticks_us, next_tick_us) {
            *due_us = next_us;
        }
    }

    /// When the next tick is due, where there are any.
    pub(super) fn next_tick_us(&self) -> Option<i64> {
        self.ticks_us.map(|(_, due_us)| due_us)
    }

    /// How far the rows have come.
    pub(super) fn reached(&self) -> i64 {
        self.reached
    }

    /// The watermark.
    pub(super) fn said(&self) -> i64 {
        self.said
    }

    /// The watermark before each row, and whether it has moved after the last.
    pub(super) fn take(
        &mut self,
        wanted: &ScalarBuffer<i64>,
        nulls: Option<&NullBuffer>,
    ) -> (Vec<i64>, bool) {
        let (before, after) = run(wanted, nulls, self.reached);
        self.reached = after;
        if self.ticks_us.is_some() {
            return (vec![self.said; wanted.len()], false);
        }
        (before, self.say())
    }

    /// Somebody says by himself how far time has come. Whether the watermark has moved.
    pub(super) fn told(&mut self, watermark: i64) -> bool {
        self.reached = self.reached.max(watermark);
        self.say()
    }

    /// Moves the watermark if a tick is due. Whether it has moved.
    pub(super) fn tick(&mut self, now_us: i64) -> bool {
        match &mut self.ticks_us {
            Some((tick_us, due_us)) if *due_us <= now_us => {
                // The grid stays, also where nobody looked for some time.
                let ticks = (now_us - *due_us) / *tick_us + 1;
                *due_us = due_us.saturating_add(ticks.saturating_mul(*tick_us));
                self.say()
            }
            _ => false,
        }
    }

    /// When the watermark moves by itself.
    pub(super) fn due_us(&self) -> Option<i64> {
        let (_, due_us) = self.ticks_us?;
        (self.reached > self.said).then_some(due_us)
    }

    fn say(&mut self) -> bool {
        let moved = self.reached > self.said;
        self.said = self.reached;
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_tick_to_tick_it_stands_still() {
        let mut progress = Progress::new(Some(200), 0);
        assert_eq!(progress.take(&vec![5, 9, 7].into(), None), (vec![i64::MIN; 3], false));
        assert!(!progress.tick(199) && progress.tick(200) && progress.said() == 9);
        // Nothing new: the next tick says nothing.
        assert!(!progress.tick(400));
        assert_eq!(progress.take(&vec![3, 11].into(), None), (vec![9, 9], false));
        assert_eq!(progress.due_us(), Some(600));
        assert!(!progress.tick(599) && progress.tick(600) && progress.said() == 11);
        assert_eq!(progress.due_us(), None);
        // Late ticks don't move the grid.
        progress.take(&vec![12].into(), None);
        assert!(progress.tick(1_350) && !progress.tick(1_399));
        progress.take(&vec![13].into(), None);
        assert_eq!(progress.due_us(), Some(1_400));
    }

    #[test]
    fn with_each_row_it_moves_at_once() {
        let mut progress = Progress::new(None, 0);
        assert_eq!(progress.take(&vec![5, 9, 7].into(), None), (vec![i64::MIN, 5, 9], true));
        assert!(!progress.tick(1_000) && !progress.told(8) && progress.told(10) && progress.said() == 10);
    }

    #[test]
    fn a_row_sees_the_watermark_of_the_rows_before_it() {
        let (before, after) = run(&vec![5, 3, 9, 9, 1].into(), None, 4);
        assert_eq!((before, after), (vec![4, 5, 5, 9, 9], 9));
    }

    #[test]
    fn null_asks_for_nothing() {
        let nulls = NullBuffer::from(vec![true, false, true]);
        let (before, after) = run(&vec![5, 100, 7].into(), Some(&nulls), i64::MIN);
        assert_eq!((before, after), (vec![i64::MIN, 5, 5], 7));
    }
}
