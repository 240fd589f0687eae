//! Columns that the source stamps with its clock: `PROCTIME()` and the metadata `ingestion-time`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow::array::{ArrayRef, TimestampMicrosecondArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use arrow::record_batch::RecordBatch;

use crate::catalog::ColumnKind;
use crate::connector::INGESTION_TIME;
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::plan::SourceNode;

/// The step of processing time, microseconds.
pub(super) const STEP_US: i64 = 1_000;

/// The columns of what a source reads that it stamps.
#[derive(Debug)]
pub(super) struct Stamps {
    /// `METADATA FROM 'ingestion-time'`.
    ingested: Vec<usize>,
    /// `PROCTIME()`.
    processed: Vec<usize>,
    /// The latest processing time that was given to anybody: it never goes back, whatever is done to
    /// the clock.
    latest_us: AtomicI64,
}

impl Stamps {
    pub(super) fn of(node: &SourceNode) -> Self {
        let places = |wanted: fn(&ColumnKind) -> bool| {
            let kinds = node.read.iter().map(|column| &node.table.columns[*column].kind).enumerate();
            kinds.filter(|(_, kind)| wanted(kind)).map(|(place, _)| place).collect()
        };
        Self {
            ingested: places(
                |kind| matches!(kind, ColumnKind::Metadata { key, .. } if key == INGESTION_TIME),
            ),
            processed: places(|kind| matches!(kind, ColumnKind::ProcessingTime)),
            latest_us: AtomicI64::new(i64::MIN),
        }
    }

    /// Processing time, when the clock shows `wall_us`.
    pub(super) fn processing_us(&self, wall_us: i64) -> i64 {
        let now_us = wall_us.div_euclid(STEP_US) * STEP_US;
        self.latest_us.fetch_max(now_us, Ordering::AcqRel).max(now_us)
    }

    /// Rows that were read when the clock showed `wall_us`.
    pub(super) fn put(&self, rows: RecordBatch, wall_us: i64) -> Result<RecordBatch, Error> {
        if self.ingested.is_empty() && self.processed.is_empty() {
            return Ok(rows);
        }
        let (schema, mut columns, _) = rows.into_parts();
        let mut set = |places: &[usize], time_us: i64| -> Result<(), Error> {
            for place in places {
                let (rows, wanted) = (columns[*place].len(), schema.field(*place).data_type());
                let times: ArrayRef = match wanted {
                    DataType::Timestamp(TimeUnit::Microsecond, _) => {
                        Arc::new(TimestampMicrosecondArray::from(vec![time_us; rows]).with_timezone("UTC"))
                    }
                    _ => {
                        let times = TimestampMillisecondArray::from(vec![time_us.div_euclid(STEP_US); rows]);
                        Arc::new(times.with_timezone("UTC"))
                    }
                };
                columns[*place] =
                    arrow::compute::cast(&times, wanted).map_err(|error| arrow_failure(&error))?;
            }
            Ok(())
        };
        set(&self.ingested, wall_us)?;
        set(&self.processed, self.processing_us(wall_us))?;
        RecordBatch::try_new(schema, columns).map_err(|error| arrow_failure(&error))
    }
}
