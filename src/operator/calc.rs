//! Filter, then projection.

use arrow::array::{BooleanArray, UInt32Array};
use arrow::compute::{filter_record_batch, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::evaluate::{arrow_failure, evaluate, evaluate_condition};
use super::{Operator, Output, RowCounts, StateReader, StateWriter};
use crate::error::Error;
use crate::plan::{CalcNode, ExprRef};
use crate::stream::{RowKind, RowKinds, RunningWatermark, StreamBatch};

/// Keeps the rows for which the filter is true (NULL counts as false) and computes columns of them.
///
/// Wakes on: batches. State: none. Order: kept. Watermark: forwarded unchanged. An expression of
/// the projection sees only rows that passed the filter. Columns that are passed on are not copied.
/// Of an update whose one form alone passes the filter, a `-D` or a `+I` stays.
pub(super) struct Calc {
    filter: Option<ExprRef>,
    project: Vec<ExprRef>,
    schema: SchemaRef,
}

impl Calc {
    pub(super) fn new(node: &CalcNode, schema: &SchemaRef) -> Self {
        Self { filter: node.filter.clone(), project: node.project.clone(), schema: schema.clone() }
    }

    fn project(&self, rows: &RecordBatch) -> Result<RecordBatch, Error> {
        let columns = self.project.iter().map(|expr| evaluate(expr, rows)).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::internal("Calc", error))
    }
}

impl Operator for Calc {
    fn name(&self) -> &'static str {
        "Calc"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        let batch = match &self.filter {
            None => batch,
            Some(condition) => {
                let mask = evaluate_condition(condition, &batch.rows)?;
                let rows = batch.num_rows();
                let kept = keep(batch, &mask)?;
                out.counts.filtered += (rows - kept.num_rows()) as u64;
                kept
            }
        };
        if batch.num_rows() == 0 {
            return Ok(());
        }
        out.counts.used += batch.num_rows() as u64;
        let rows = self.project(&batch.rows)?;
        out.batch(StreamBatch { rows, ..batch });
        Ok(())
    }

    /// It keeps nothing.
    fn snapshot(&mut self, _state: &mut StateWriter) -> Result<(), Error> {
        Ok(())
    }

    fn restore(&mut self, _state: &mut StateReader, _counts: &mut RowCounts) -> Result<(), Error> {
        Ok(())
    }
}

/// The rows whose bit is set, with what stands beside them. `mask` has no NULL.
fn keep(batch: StreamBatch, mask: &BooleanArray) -> Result<StreamBatch, Error> {
    let kept = mask.true_count();
    if kept == mask.len() {
        return Ok(batch);
    }
    if kept == 0 {
        return Ok(batch.slice(0, 0));
    }
    let rows = filter_record_batch(&batch.rows, mask).map_err(|error| arrow_failure(&error))?;
    let positions = || mask.values().set_indices();
    let running = batch.running.as_ref().map(|running| {
        let values = running.values();
        RunningWatermark::new(positions().map(|row| values[row]).collect::<Vec<_>>())
    });
    let kinds = batch.kinds.as_ref().map(|kinds| {
        let kept_kind = |row| kind_alone(kinds.values(), row, mask);
        RowKinds::new(positions().map(kept_kind).collect::<Vec<_>>())
    });
    Ok(StreamBatch { rows, kinds, running, arrived: batch.arrived })
}

/// What a row that stays does: where the other half of its update goes, it deletes or inserts.
fn kind_alone(kinds: &[RowKind], row: usize, mask: &BooleanArray) -> RowKind {
    match kinds[row] {
        RowKind::UpdateBefore if row + 1 < kinds.len() && !mask.value(row + 1) => RowKind::Delete,
        RowKind::UpdateAfter if row > 0 && !mask.value(row - 1) => RowKind::Insert,
        kind => kind,
    }
}

/// The rows at `indices` in that order, with what stands beside them. The running watermark must
/// not fall: `indices` are ascending, repeats allowed.
pub(super) fn take_rows(batch: &StreamBatch, indices: &UInt32Array) -> Result<StreamBatch, Error> {
    let rows = take_record_batch(&batch.rows, indices).map_err(|error| arrow_failure(&error))?;
    let running = batch.running.as_ref().map(|running| {
        let values = running.values();
        RunningWatermark::new(indices.values().iter().map(|row| values[*row as usize]).collect::<Vec<_>>())
    });
    let kinds = batch.kinds.as_ref().map(|kinds| {
        let values = kinds.values();
        RowKinds::new(indices.values().iter().map(|row| values[*row as usize]).collect::<Vec<_>>())
    });
    Ok(StreamBatch { rows, kinds, running, arrived: batch.arrived })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, Schema};
    use datafusion_expr::Operator as Op;
    use datafusion_physical_expr::expressions::{BinaryExpr, lit};

    use super::*;
    use crate::operator::create;
    use crate::operator::testing::{Row, column, drain, input, plan_node, stream_batch};
    use crate::plan::Operation;
    use crate::stream::StreamElement;

    fn calc(filter: Option<ExprRef>, project: Vec<ExprRef>) -> Box<dyn Operator> {
        let fields: Vec<Field> =
            project.iter().map(|expr| Field::new("c", expr.data_type(&input()).unwrap(), true)).collect();
        let node = CalcNode { filter, project };
        create(&plan_node(Operation::Calc(node), Arc::new(Schema::new(fields))), &input()).unwrap()
    }

    fn binary(left: ExprRef, op: Op, right: ExprRef) -> ExprRef {
        Arc::new(BinaryExpr::new(left, op, right))
    }

    const ROWS: [Row; 4] = [
        (Some(1), Some("a"), Some(0)),
        (Some(2), Some("b"), Some(5)),
        (None, None, None),
        (Some(4), None, Some(2)),
    ];

    #[test]
    fn null_counts_as_false_and_what_stands_beside_a_row_stays() {
        let mut calc = calc(Some(binary(column(2), Op::Gt, lit(1i64))), vec![column(2), column(1)]);
        let mut out = Output::default();
        let kinds = [RowKind::Insert, RowKind::Delete, RowKind::Insert, RowKind::Insert];
        let batch = StreamBatch { kinds: Some(RowKinds::new(kinds)), ..stream_batch(&ROWS, &[1, 2, 3, 4]) };
        calc.process_batch(batch, &mut out).unwrap();
        assert_eq!((out.counts.used, out.counts.filtered), (2, 2));
        let Some(StreamElement::Batch(given)) = out.drain().next() else { panic!("no batch") };
        assert_eq!(given.kinds.unwrap().values(), [RowKind::Delete, RowKind::Insert]);
        assert_eq!(given.running.unwrap().values(), &[2, 4]);
        assert_eq!(crate::operator::testing::lines(&given.rows), ["5,b", "2,NULL"]);
    }

    #[test]
    fn half_an_update_becomes_a_delete_or_an_insert() {
        use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};
        let mut calc = calc(Some(binary(column(2), Op::Gt, lit(1i64))), vec![column(2)]);
        // -U 0 +U 1: neither passes. -U 1 +U 2: only the new form. -U 2 +U 3: both. -U 3 +U NULL: only
        // the old form.
        let values = [Some(0), Some(1), Some(1), Some(2), Some(2), Some(3), Some(3), None];
        let rows: Vec<Row> = values.map(|value| (None, None, value)).into();
        let kinds = RowKinds::new([UpdateBefore, UpdateAfter].repeat(4));
        let batch = StreamBatch { kinds: Some(kinds), ..stream_batch(&rows, &[0; 8]) };
        let mut out = Output::default();
        calc.process_batch(batch, &mut out).unwrap();
        let Some(StreamElement::Batch(given)) = out.drain().next() else { panic!("no batch") };
        assert_eq!(given.kinds.unwrap().values(), [Insert, UpdateBefore, UpdateAfter, Delete]);
        assert_eq!(crate::operator::testing::lines(&given.rows), ["2", "2", "3", "3"]);
    }

    #[test]
    fn a_row_that_is_removed_can_not_fail() {
        let quotient = binary(lit(10i64), Op::Divide, column(2));
        let mut guarded = calc(Some(binary(column(2), Op::NotEq, lit(0i64))), vec![quotient.clone()]);
        let (mut out, mut given) = (Output::default(), Vec::new());
        guarded.process_batch(stream_batch(&ROWS, &[0; 4]), &mut out).unwrap();
        drain(&mut out, &mut given);
        assert_eq!(given, ["2", "5"]);
        let error = calc(None, vec![quotient]).process_batch(stream_batch(&ROWS, &[0; 4]), &mut out);
        assert_eq!(error.unwrap_err().message(), "division by zero");
    }

    #[test]
    fn no_column_and_no_row_left() {
        let mut none = calc(Some(binary(column(2), Op::Gt, lit(100i64))), vec![column(0)]);
        let mut out = Output::default();
        none.process_batch(stream_batch(&ROWS, &[0; 4]), &mut out).unwrap();
        assert_eq!(out.drain().count(), 0);
        assert_eq!(out.counts.filtered, 4);
        let mut bare = calc(Some(binary(column(2), Op::Gt, lit(1i64))), vec![]);
        bare.process_batch(stream_batch(&ROWS, &[0; 4]), &mut out).unwrap();
        let Some(StreamElement::Batch(given)) = out.drain().next() else { panic!("no batch") };
        assert_eq!((given.num_rows(), given.rows.num_columns()), (2, 0));
    }

    #[test]
    fn columns_that_are_passed_on_are_not_copied() {
        let mut calc = calc(Some(binary(column(2), Op::GtEq, lit(0i64))), vec![column(1)]);
        let mut out = Output::default();
        let batch = stream_batch(&ROWS[..2], &[0; 2]);
        let before = Arc::clone(batch.rows.column(1));
        calc.process_batch(batch, &mut out).unwrap();
        let Some(StreamElement::Batch(given)) = out.drain().next() else { panic!("no batch") };
        assert!(Arc::ptr_eq(given.rows.column(0), &before));
    }
}
