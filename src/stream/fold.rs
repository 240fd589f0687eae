//! A changelog folded into the rows that it leaves.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use arrow::row::{RowConverter, SortField};
use foldhash::fast::RandomState;

use super::element::{RowKind, StreamBatch};
use crate::error::{Error, code};

/// The rows that a changelog leaves, in the order in which they were last inserted. `+I` and `+U`
/// add a row, `-U` and `-D` take away one that is equal in all columns.
pub struct Fold {
    schema: SchemaRef,
    converter: RowConverter,
    /// For each row the places that it has, ascending.
    places: HashMap<Arc<[u8]>, Vec<u64>, RandomState>,
    rows: BTreeMap<u64, Arc<[u8]>>,
    next_place: u64,
}

impl Fold {
    /// No rows yet.
    ///
    /// # Errors
    /// `P002` for columns of types whose values can't be compared.
    pub fn try_new(schema: &SchemaRef) -> Result<Self, Error> {
        let fields = schema.fields().iter().map(|field| SortField::new(field.data_type().clone()));
        let converter = RowConverter::new(fields.collect()).map_err(|error| {
            Error::plan(code::NOT_SUPPORTED, format!("rows that change can't be put together: {error}"))
                .hint("Use -f changelog-json, or leave out the columns of such types.")
        })?;
        let (places, rows) = (HashMap::default(), BTreeMap::new());
        Ok(Self { schema: Arc::clone(schema), converter, places, rows, next_place: 0 })
    }

    /// Takes changes in their order.
    ///
    /// # Errors
    /// An internal error if a row is taken away that is not there.
    pub fn apply(&mut self, batch: &StreamBatch) -> Result<(), Error> {
        let fault = |error| Error::internal("fold", error);
        let kinds = batch.kinds.as_ref().map(|kinds| kinds.values());
        if self.schema.fields().is_empty() {
            return self.apply_bare(batch.num_rows(), kinds);
        }
        let rows = self.converter.convert_columns(batch.rows.columns()).map_err(fault)?;
        for (index, row) in rows.iter().enumerate() {
            self.change(kinds.map_or(RowKind::Insert, |kinds| kinds[index]), row.as_ref())?;
        }
        Ok(())
    }

    /// Rows without columns are all equal.
    fn apply_bare(&mut self, rows: usize, kinds: Option<&[RowKind]>) -> Result<(), Error> {
        (0..rows).try_for_each(|row| self.change(kinds.map_or(RowKind::Insert, |kinds| kinds[row]), &[]))
    }

    fn change(&mut self, kind: RowKind, row: &[u8]) -> Result<(), Error> {
        match kind {
            RowKind::Insert | RowKind::UpdateAfter => {
                let row = match self.places.get_key_value(row) {
                    Some((known, _)) => Arc::clone(known),
                    None => Arc::from(row),
                };
                self.places.entry(Arc::clone(&row)).or_default().push(self.next_place);
                self.rows.insert(self.next_place, row);
                self.next_place += 1;
                Ok(())
            }
            RowKind::UpdateBefore | RowKind::Delete => {
                let place = self.places.get_mut(row).and_then(Vec::pop);
                let Some(place) = place else {
                    return Err(Error::internal("fold", "a change takes away a row that is not there"));
                };
                self.rows.remove(&place);
                if self.places.get(row).is_some_and(Vec::is_empty) {
                    self.places.remove(row);
                }
                Ok(())
            }
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The `most` rows that changed last, in their order.
    ///
    /// # Errors
    /// An internal error if the rows can't be read back.
    pub fn latest(&self, most: usize) -> Result<RecordBatch, Error> {
        let mut rows: Vec<&Arc<[u8]>> = self.rows.values().rev().take(most).collect();
        rows.reverse();
        self.batch(&rows)
    }

    /// The rows in batches of `batch_rows` at most, which is ≥ 1.
    ///
    /// # Errors
    /// An internal error if the rows can't be read back.
    pub fn batches(&self, batch_rows: usize) -> Result<Vec<RecordBatch>, Error> {
        let rows: Vec<&Arc<[u8]>> = self.rows.values().collect();
        rows.chunks(batch_rows.max(1)).map(|rows| self.batch(rows)).collect()
    }

    fn batch(&self, rows: &[&Arc<[u8]>]) -> Result<RecordBatch, Error> {
        let fault = |error| Error::internal("fold", error);
        let parser = self.converter.parser();
        let columns: Vec<ArrayRef> = match self.schema.fields().is_empty() {
            true => Vec::new(),
            false => {
                let rows = rows.iter().map(|row| parser.parse(row));
                self.converter.convert_rows(rows).map_err(fault)?
            }
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map_err(fault)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use arrow::array::{AsArray, Float64Array, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;
    use crate::stream::RowKinds;
    use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};

    fn batch(changes: &[(RowKind, &str, i64)]) -> StreamBatch {
        let keys = StringArray::from_iter_values(changes.iter().map(|change| change.1));
        let values = Int64Array::from_iter_values(changes.iter().map(|change| change.2));
        let columns: [(&str, ArrayRef); 2] = [("k", Arc::new(keys)), ("v", Arc::new(values))];
        let mut batch = StreamBatch::inserts(RecordBatch::try_from_iter(columns).unwrap(), Instant::now());
        let kinds: Vec<RowKind> = changes.iter().map(|change| change.0).collect();
        batch.kinds = Some(RowKinds::new(kinds));
        batch
    }

    fn rows(fold: &Fold) -> Vec<String> {
        let mut rows = Vec::new();
        for batch in fold.batches(2).unwrap() {
            assert!(batch.num_rows() <= 2);
            let (keys, values) =
                (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<Int64Type>());
            rows.extend((0..batch.num_rows()).map(|row| format!("{}{}", keys.value(row), values.value(row))));
        }
        rows
    }

    #[test]
    fn an_updated_row_goes_to_the_end_and_equal_rows_are_counted() {
        let first = batch(&[(Insert, "a", 1), (Insert, "b", 1), (Insert, "c", 1), (Insert, "b", 1)]);
        let mut fold = Fold::try_new(&first.rows.schema()).unwrap();
        assert!(fold.is_empty());
        fold.apply(&first).unwrap();
        fold.apply(&batch(&[(UpdateBefore, "a", 1), (UpdateAfter, "a", 2)])).unwrap();
        assert_eq!(rows(&fold), ["b1", "c1", "b1", "a2"]);
        let latest = fold.latest(2).unwrap();
        assert_eq!(latest.column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["b", "a"]);
        // Of equal rows the last one goes.
        fold.apply(&batch(&[(Delete, "b", 1)])).unwrap();
        assert_eq!(rows(&fold), ["b1", "c1", "a2"]);
        fold.apply(&batch(&[(Delete, "b", 1)])).unwrap();
        assert_eq!((rows(&fold), fold.len()), (vec!["c1".to_owned(), "a2".to_owned()], 2));
        assert!(fold.apply(&batch(&[(Delete, "b", 1)])).is_err());
    }

    #[test]
    fn nulls_and_nan_are_equal_to_themselves() {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![Some(f64::NAN), None, Some(1.5)]));
        let rows = RecordBatch::try_from_iter_with_nullable([("v", values, true)]).unwrap();
        let mut fold = Fold::try_new(&rows.schema()).unwrap();
        let mut batch = StreamBatch::inserts(rows, Instant::now());
        fold.apply(&batch).unwrap();
        batch.kinds = Some(RowKinds::new([Delete, Delete, Delete]));
        fold.apply(&batch).unwrap();
        assert!(fold.is_empty() && fold.batches(10).unwrap().is_empty());
    }

    #[test]
    fn rows_without_columns_are_counted() {
        let schema = Arc::new(Schema::new(Vec::<Field>::new()));
        let options = RecordBatchOptions::new().with_row_count(Some(3));
        let rows = RecordBatch::try_new_with_options(schema.clone(), vec![], &options).unwrap();
        let mut batch = StreamBatch::inserts(rows, Instant::now());
        batch.kinds = Some(RowKinds::new([Insert, Delete, Insert]));
        let mut fold = Fold::try_new(&schema).unwrap();
        fold.apply(&batch).unwrap();
        assert_eq!(fold.batches(10).unwrap()[0].num_rows(), 1);
    }

    #[test]
    fn types_of_results_can_be_folded() {
        let item = Arc::new(Field::new("item", DataType::Utf8, true));
        let interval = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
        for data_type in [DataType::List(item), interval, DataType::Decimal128(38, 2), DataType::Binary] {
            let schema = Arc::new(Schema::new(vec![Field::new("v", data_type, true)]));
            assert!(Fold::try_new(&schema).is_ok());
        }
    }
}
