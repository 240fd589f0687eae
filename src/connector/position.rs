//! Places in splits where a later reader goes on.

use serde_json::{Value, json};

use super::{Lines, SplitBatch};
use crate::error::{Error, code};

/// Where the next row of a split stands, as its reader writes it: what goes into a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Position(pub Value);

impl Position {
    /// Of a split whose rows do not come again: a later reader reads what comes then.
    pub fn lost() -> Self {
        Self(json!({ "lost": true, "bytes": 0, "line": 1 }))
    }

    /// Whether it is of such a split.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.get("lost").is_some()
    }

    /// Whether its next row was not used: else rows up to the last line that was used come again, and are dropped.
    pub(crate) fn is_exact(&self) -> bool {
        self.0.get("before").is_none()
    }

    /// A number of it.
    ///
    /// # Errors
    /// `K002` if it has none of this name.
    pub fn number(&self, key: &str) -> Result<u64, Error> {
        self.0.get(key).and_then(Value::as_u64).ok_or_else(|| {
            Error::run(code::BAD_CHECKPOINT, format!("a position in a split without \"{key}\""))
                .hint("Use another checkpoint.")
        })
    }
}

impl SplitBatch {
    /// The rows behind line `last`, and the rejected ones; `None`: there are none.
    pub(crate) fn behind(mut self, last: u64) -> Option<Self> {
        let rows = self.rows.num_rows();
        let first = (0..rows).find(|row| self.lines.of(*row) > last).unwrap_or(rows);
        self.rejected.retain(|row| row.line > last);
        if first == rows && self.rejected.is_empty() {
            return None;
        }
        self.rows = self.rows.slice(first, rows - first);
        self.kinds = self.kinds.map(|kinds| kinds.slice(first, rows - first));
        self.lines = match self.lines {
            Lines::From(line) => Lines::From(line + first as u64),
            Lines::Each(lines) => Lines::Each(lines[first..].to_vec()),
        };
        Some(self)
    }

    /// The last line that it is of; 0: it is of none.
    pub(crate) fn last_line(&self) -> u64 {
        let row = self.rows.num_rows().checked_sub(1).map(|row| self.lines.of(row));
        let rejected = self.rejected.iter().map(|row| row.line);
        rejected.chain(row).max().unwrap_or(0)
    }
}
