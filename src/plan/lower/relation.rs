//! UNION ALL and rows that stand in the query.

use std::sync::Arc;

use arrow::array::RecordBatchOptions;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion_common::ScalarValue;
use datafusion_expr::{EmptyRelation, Union, Values};

use super::late::{Carried, origin_columns};
use super::{Above, Lowered, Lowering, Role, Slot, Stream};
use crate::error::{Error, code};
use crate::plan::Operation;
use crate::plan::constant;
use crate::plan::diagnose::from_datafusion;

impl Lowering<'_> {
    pub(super) fn union(&mut self, union: &Union, above: Above) -> Result<Lowered, Error> {
        let schema: SchemaRef = Arc::clone(union.schema.inner());
        let lowered =
            union.inputs.iter().map(|input| self.lower(input, above)).collect::<Result<Vec<_>, _>>()?;
        let origins: Option<Vec<[usize; 2]>> = lowered.iter().map(|input| input.carried.origin()).collect();
        let mut inputs = Vec::with_capacity(lowered.len());
        for (index, lowered) in lowered.into_iter().enumerate() {
            let extra = origins.as_ref().map(|origins| origins[index]);
            inputs.push(self.layout_with(lowered, &schema, extra.as_ref().map_or(&[], |extra| extra))?);
        }
        let all = |promise: fn(&crate::plan::StreamProperties) -> bool| {
            inputs.iter().all(|input| promise(&self.plan.nodes[*input].properties))
        };
        let stream = Stream {
            bounded: all(|properties| properties.bounded),
            watermark: all(|properties| properties.watermark),
            key: None,
        };
        let mut roles: Vec<Role> =
            (0..schema.fields().len()).map(|column| self.united_role(&inputs, column)).collect();
        let slots = (0..schema.fields().len()).map(Slot::Column).collect();
        let nullable =
            |column: usize| inputs.iter().any(|input| self.schema(*input).field(column).is_nullable());
        let mut fields: Vec<_> = schema
            .fields()
            .iter()
            .enumerate()
            .map(|(index, field)| field.as_ref().clone().with_nullable(nullable(index)))
            .collect();
        let mut carried = Carried::default();
        if origins.is_some() {
            carried.source = Some(fields.len());
            carried.split = Some(fields.len() + 1);
            fields.extend(origin_columns());
            roles.extend([Role::Plain, Role::Plain]);
        }
        let node = self.push(Operation::Union, inputs, Arc::new(Schema::new(fields)), roles, stream);
        Ok(Lowered { node, slots, pending: None, carried })
    }

    /// A column is a time attribute if it is one in every input.
    fn united_role(&self, inputs: &[usize], column: usize) -> Role {
        let roles: Vec<&Role> = inputs.iter().map(|input| &self.roles[*input][column]).collect();
        let Some(first) = roles.first() else { return Role::Plain };
        let unit = first.time_unit();
        if unit.is_some() && roles.iter().all(|role| role.time_unit() == unit) {
            return Role::Time(unit.unwrap_or(crate::stream::TimeUnit::Millisecond));
        }
        if roles.iter().any(|role| role.time_unit().is_some()) {
            return Role::Lost("it is no time attribute in another part of the UNION ALL".to_owned());
        }
        match first {
            Role::OfTable(_) | Role::Lost(_) => (*first).clone(),
            _ => Role::Plain,
        }
    }

    pub(super) fn values(&mut self, values: &Values) -> Result<Lowered, Error> {
        let schema: SchemaRef = Arc::clone(values.schema.inner());
        let mut columns = Vec::with_capacity(schema.fields().len());
        for (index, field) in schema.fields().iter().enumerate() {
            let mut cells = Vec::with_capacity(values.values.len());
            for row in &values.values {
                let cell = constant::fold(&row[index])?.ok_or_else(|| {
                    Error::plan(
                        code::NOT_SUPPORTED,
                        format!("VALUES holds {}, which is no constant", row[index]),
                    )
                })?;
                cells.push(cell.cast_to(field.data_type()).map_err(from_datafusion)?);
            }
            columns.push(ScalarValue::iter_to_array(cells).map_err(from_datafusion)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(values.values.len()));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)
            .map_err(|error| Error::internal("the planner", error))?;
        Ok(self.rows(batch))
    }

    pub(super) fn empty(&mut self, empty: &EmptyRelation) -> Result<Lowered, Error> {
        let schema: SchemaRef = Arc::clone(empty.schema.inner());
        let count = usize::from(empty.produce_one_row);
        if !schema.fields().is_empty() && count == 0 {
            return Ok(self.rows(RecordBatch::new_empty(schema)));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)
            .map_err(|error| Error::internal("the planner", error))?;
        Ok(self.rows(batch))
    }

    fn rows(&mut self, batch: RecordBatch) -> Lowered {
        let schema = batch.schema();
        let width = schema.fields().len();
        let stream = Stream { bounded: true, watermark: false, key: None };
        let node = self.push(Operation::Values(batch), Vec::new(), schema, vec![Role::Plain; width], stream);
        let slots = (0..width).map(Slot::Column).collect();
        Lowered { node, slots, pending: None, carried: Carried::default() }
    }
}
