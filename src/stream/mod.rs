//! What travels between operators, and what time means there.
//!
//! Invariant: no SQL, no plan, no channel; the wall clock only behind [`Clock`], for those above.

mod clock;
mod element;
mod fold;
mod time;
mod watermark;

pub use clock::{Clock, SystemClock, VirtualClock};
#[cfg(feature = "runtime")]
pub(crate) use clock::{micros, now};
pub use element::{LatencyMarker, RowKind, RowKinds, StreamBatch, StreamElement, StreamStatus};
pub use fold::Fold;
pub use time::{EventTime, TimeUnit, event_times};
pub use watermark::{RunningWatermark, Watermark};
