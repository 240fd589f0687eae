//! What travels between operators, and what time means there.
//!
//! Invariant: no SQL, no plan, no channel; the wall clock only behind [`Clock`], for those above.

mod clock;
mod element;
mod fold;
#[cfg(feature = "runtime")]
mod size;
mod time;
mod watermark;

pub use clock::{Clock, SystemClock, VirtualClock};
#[cfg(feature = "runtime")]
pub(crate) use clock::{micros, now};
pub use element::{LatencyMarker, RowKind, RowKinds, StreamBatch, StreamElement, StreamStatus};
pub use fold::Fold;
#[cfg(feature = "runtime")]
pub(crate) use size::{BATCH_BYTES, bytes_of, rows_of_width};
pub use time::{EventTime, TimeUnit, event_times};
pub use watermark::{RunningWatermark, Watermark};
