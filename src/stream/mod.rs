//! What travels between operators, and what time means there.
//!
//! Invariant: no SQL, no plan, no channel, no wall clock.

mod element;
mod time;
mod watermark;

pub use element::{LatencyMarker, RowKind, RowKinds, StreamBatch, StreamElement, StreamStatus};
pub use time::{EventTime, TimeUnit, event_times};
pub use watermark::{RunningWatermark, Watermark};
