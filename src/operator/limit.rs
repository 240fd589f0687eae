//! The first rows.

use super::{Operator, Output};
use crate::error::Error;
use crate::plan::LimitNode;
use crate::stream::StreamBatch;

/// Skips some rows, gives some, drops the rest.
///
/// Wakes on: batches. State: two numbers. Order: kept. Watermark: forwarded unchanged.
pub(super) struct Limit {
    to_skip: usize,
    to_give: Option<usize>,
}

impl Limit {
    pub(super) fn new(node: &LimitNode) -> Self {
        Self { to_skip: node.skip, to_give: node.fetch }
    }
}

impl Operator for Limit {
    fn name(&self) -> &'static str {
        "Limit"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        let rows = batch.num_rows();
        let skipped = self.to_skip.min(rows);
        self.to_skip -= skipped;
        let given = match &mut self.to_give {
            None => rows - skipped,
            Some(left) => {
                let given = (rows - skipped).min(*left);
                *left -= given;
                given
            }
        };
        out.counts.used += given as u64;
        out.counts.filtered += (rows - given) as u64;
        out.batch(if given == rows { batch } else { batch.slice(skipped, given) });
        Ok(())
    }

    fn is_satisfied(&self) -> bool {
        self.to_give == Some(0)
    }
}
