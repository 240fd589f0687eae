//! The first rows.

use super::{Operator, Output, RowCounts, StateReader, StateWriter};
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

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("to_skip", self.to_skip as i64);
        state.optional("to_give", self.to_give.map(|left| left as i64));
        Ok(())
    }

    fn restore(&mut self, state: &mut StateReader, _counts: &mut RowCounts) -> Result<(), Error> {
        self.to_skip = state.lowest("to_skip").unwrap_or(0) as usize;
        self.to_give = state.lowest("to_give").map(|left| left as usize);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::create;
    use crate::operator::testing::{Row, drain, input, plan_node, stream_batch};
    use crate::plan::Operation;

    fn given(skip: usize, fetch: Option<usize>, rows: i64, cut: usize) -> (Vec<String>, bool, Output) {
        let node = plan_node(Operation::Limit(LimitNode { skip, fetch }), input());
        let mut limit = create(&node, &input()).unwrap();
        let (mut out, mut given) = (Output::default(), Vec::new());
        let rows: Vec<Row> = (0..rows).map(|value| (None, None, Some(value))).collect();
        for chunk in rows.chunks(cut) {
            limit.process_batch(stream_batch(chunk, &vec![0; chunk.len()]), &mut out).unwrap();
        }
        drain(&mut out, &mut given);
        let values = given.iter().map(|line| line.rsplit(',').next().unwrap_or_default().to_owned());
        (values.collect(), limit.is_satisfied(), out)
    }

    #[test]
    fn skips_then_gives_then_is_satisfied() {
        for cut in [1, 2, 3, 10] {
            let (values, satisfied, out) = given(2, Some(3), 6, cut);
            assert_eq!(values, ["2", "3", "4"]);
            assert!(satisfied);
            assert_eq!((out.counts.used, out.counts.filtered), (3, 3));
            let (values, satisfied, _) = given(2, Some(3), 4, cut);
            assert_eq!((values.len(), satisfied), (2, false), "one less than full");
            let (values, satisfied, _) = given(2, None, 4, cut);
            assert_eq!((values.len(), satisfied), (2, false));
            let (values, satisfied, _) = given(0, Some(0), 4, cut);
            assert_eq!((values.len(), satisfied), (0, true));
            assert_eq!(given(9, None, 4, cut).0.len(), 0);
        }
    }
}
