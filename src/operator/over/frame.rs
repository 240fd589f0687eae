//! The rows of frames, as steps for an aggregate.

use super::compute::{Part, Work};
use crate::operator::aggregate::Step;
use crate::plan::{FrameBound, FrameUnit, OverFrame};

/// The rows of a group that are in an aggregate's state, by their number in the partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Whether rows leave the frame as it moves.
pub(super) fn removes(frame: &OverFrame) -> bool {
    frame.start != FrameBound::Unbounded
}

/// Moves a span over the new rows of a part. `base`: the number of the part's first row.
pub(super) fn steps(
    frame: &OverFrame,
    work: &Work<'_>,
    part: &Part,
    base: u64,
    span: &mut Span,
    steps: &mut Vec<Step>,
) {
    let group = part.group;
    let total = base + (part.to - part.from) as u64;
    let place = |number: u64| part.from + (number - base) as usize;
    let number = |place: usize| base + (place - part.from) as u64;
    let shifted = |number: u64, by: i64| {
        let moved = i128::from(number) + i128::from(by);
        u64::try_from(moved.max(0)).unwrap_or(u64::MAX).min(total)
    };
    for index in part.new..part.to {
        let at = number(index);
        let start = match (frame.start, frame.unit) {
            (FrameBound::Unbounded, _) => span.start,
            (FrameBound::Offset(by), FrameUnit::Rows) => shifted(at, by),
            (FrameBound::Offset(0), FrameUnit::Range) => number(work.peer_start(index)),
            (FrameBound::Offset(by), FrameUnit::Range) => {
                let from = work.time(index).saturating_add(by);
                let mut start = span.start;
                while start < total && work.time(place(start)) < from {
                    start += 1;
                }
                start
            }
        };
        let end = match (frame.end, frame.unit) {
            (FrameBound::Unbounded, _) => total,
            (FrameBound::Offset(by), FrameUnit::Rows) => shifted(at, by.saturating_add(1)),
            (FrameBound::Offset(0), FrameUnit::Range) => number(work.peer_end(index)),
            (FrameBound::Offset(by), FrameUnit::Range) => {
                let to = work.time(index).saturating_add(by);
                let mut end = span.end;
                while end < total && work.time(place(end)) <= to {
                    end += 1;
                }
                end
            }
        };
        for number in span.start..start.min(span.end) {
            steps.push(Step::Remove { group, row: place(number) as u32 });
        }
        span.start = span.start.max(start);
        span.end = span.end.max(span.start);
        for number in span.end..end {
            steps.push(Step::Add { group, row: place(number) as u32 });
        }
        span.end = span.end.max(end);
        steps.push(Step::Give { group });
    }
}
