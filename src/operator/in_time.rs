//! The rows of a batch that come in time, for operators that keep rows until the watermark passes them.

use arrow::array::UInt32Array;
use arrow::compute::take_record_batch;
use arrow::record_batch::RecordBatch;

use super::Output;
use super::evaluate::arrow_failure;
use super::late::{LateRows, Missed, Rejected};
use crate::error::Error;
use crate::stream::{StreamBatch, event_times};

/// The rows in time, which count as held, with what `place` says of each by its row and time: `None` leaves it
/// out, as filtered. A row at or behind the watermark just before it is late; it is counted, as one
/// without event time is, and given to `late`. `None`: no row is left.
///
/// # Errors
/// An internal error for a time column that is none.
pub(super) fn in_time<P>(
    batch: &StreamBatch,
    time: usize,
    watermark: i64,
    late: Option<&LateRows>,
    out: &mut Output,
    mut place: impl FnMut(usize, i64) -> Option<P>,
) -> Result<Option<(RecordBatch, Vec<P>)>, Error> {
    let (times, nulls) = event_times(batch.rows.column(time))?;
    let (mut kept, mut places, mut rejected) = (Vec::new(), Vec::new(), Vec::new());
    for (row, time) in times.iter().copied().enumerate() {
        let running = batch.running.as_ref().map_or(i64::MIN, |running| running.values()[row]);
        let watermark = running.max(watermark);
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            out.counts.null_time += 1;
            rejected.push(Rejected::without_time(row, watermark));
        } else if time <= watermark {
            out.counts.late += 1;
            let late = Missed { window: None, by_us: watermark.saturating_sub(time) };
            rejected.push(Rejected { row: row as u32, watermark, late: Some(late) });
        } else if let Some(place) = place(row, time) {
            kept.push(row as u32);
            places.push(place);
        } else {
            out.counts.filtered += 1;
        }
    }
    if let Some(late) = late {
        late.give(batch, &rejected, out)?;
    }
    if kept.is_empty() {
        return Ok(None);
    }
    out.counts.held += kept.len() as u64;
    let rows = match kept.len() == batch.num_rows() {
        true => batch.rows.clone(),
        false => {
            take_record_batch(&batch.rows, &UInt32Array::from(kept)).map_err(|error| arrow_failure(&error))?
        }
    };
    Ok(Some((rows, places)))
}
