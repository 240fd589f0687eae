//! When rounds of EVERY are due.

use crate::plan::EmitMode;

/// A grid of processing time that begins where the stream was opened.
pub(in crate::operator::window) struct Rounds {
    every_us: Option<i64>,
    /// When the next round is due; `None`: never.
    pub(in crate::operator::window) next_us: Option<i64>,
}

impl Rounds {
    pub(in crate::operator::window) fn new(mode: EmitMode) -> Self {
        Self { every_us: mode.every_us(), next_us: None }
    }

    /// The stream starts.
    pub(in crate::operator::window) fn open(&mut self, now_us: i64) {
        self.next_us = self.every_us.map(|every| now_us.saturating_add(every));
    }

    /// Whether a round is due. Rounds that were missed are not made up for.
    pub(in crate::operator::window) fn is_due(&mut self, now_us: i64) -> bool {
        let (Some(due), Some(every)) = (self.next_us, self.every_us) else { return false };
        if due > now_us {
            return false;
        }
        let rounds = (now_us - due) / every + 1;
        self.next_us = Some(due.saturating_add(rounds.saturating_mul(every)));
        true
    }
}
