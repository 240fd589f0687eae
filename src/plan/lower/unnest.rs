//! UNNEST: the items of an array as rows.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::NullHandling;
use datafusion_expr::Unnest;

use super::{Above, Lowered, Lowering, Role, Slot, unsupported};
use crate::error::Error;
use crate::plan::{Operation, UnnestNode};

impl Lowering<'_> {
    pub(super) fn unnest(&mut self, unnest: &Unnest, above: Above) -> Result<Lowered, Error> {
        let input = self.lower(&unnest.input, Above { order: above.order, ..Above::default() })?;
        let mut input = self.materialize(input);
        let refuse = |what: &str| Err(unsupported(what).at(self.places.unnest));
        let (list, depth) = match (unnest.list_type_columns.as_slice(), unnest.struct_type_columns.as_slice())
        {
            ([(index, list)], []) => (*index, list.depth),
            ([], _) => return refuse("UNNEST of a ROW"),
            _ => return refuse("UNNEST of several arrays"),
        };
        if depth != 1 {
            return refuse("UNNEST of arrays in arrays");
        }
        let Slot::Column(column) = input.slots[list] else {
            return Err(Error::internal("the planner", "an array is not computed"));
        };
        let given = Arc::clone(self.schema(input.node));
        let item = match given.field(column).data_type() {
            DataType::List(item) => Arc::clone(item),
            _ => return refuse("UNNEST of anything but an ARRAY"),
        };
        let mut fields = given.fields().to_vec();
        let mut roles = self.roles[input.node].clone();
        let name = given.field(column).name();
        let name = name
            .strip_prefix("__unnest_placeholder(")
            .and_then(|name| name.strip_suffix(')'))
            .unwrap_or(name);
        fields.push(Arc::new(Field::new(format!("unnest({name})"), item.data_type().clone(), true)));
        roles.push(Role::Plain);
        let mut stream = self.stream(input.node);
        stream.key = None;
        let keeps_empty = unnest.options.null_handling == NullHandling::PreserveAndExpandEmpty;
        let operation = Operation::Unnest(UnnestNode { column, keeps_empty });
        let width = given.fields().len();
        input.node = self.push(operation, vec![input.node], Arc::new(Schema::new(fields)), roles, stream);
        let slot = |index: &usize| if *index == list { Slot::Column(width) } else { input.slots[*index] };
        let slots = unnest.dependency_indices.iter().map(slot).collect();
        Ok(Lowered { slots, ..input })
    }
}
