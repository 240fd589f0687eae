//! A column of a table: a field of its events, or a `ROW` of the fields of one kind.

use std::sync::Arc;

use arrow::array::{ArrayRef, StructArray, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, Field as ArrowField, Fields, Schema, SchemaRef};

use super::field::{Field, Named, Shape, Texts, columns};
use super::layout::{Event, Kind};
use super::model::Model;
use crate::catalog::{Column as TableColumn, ColumnKind, Table};
use crate::connector::format::sql_type_name;
use crate::error::{Error, code, did_you_mean};

/// A column that is read.
#[derive(Debug, Clone)]
pub(super) enum Column {
    /// A field of each row.
    Plain(Field, DataType),
    /// The fields of a kind; NULL in rows of other kinds.
    Row(Kind, Vec<Field>, Fields),
}

const ROWS: [(&str, Kind); 3] = [("person", Kind::Person), ("auction", Kind::Auction), ("bid", Kind::Bid)];

/// In every table; not among the columns of one without column list.
const EVENT_NUMBER: Named = ("event_number", Field::EventNumber, Shape::BigInt);
const EVENT_TYPE: Named = ("event_type", Field::EventType, Shape::Int);
const DATE_TIME: Named = ("dateTime", Field::DateTime, Shape::Time);

/// The columns that the connector fills.
pub(super) fn physical(table: &Table) -> impl Iterator<Item = &TableColumn> {
    table.columns.iter().filter(|column| matches!(column.kind, ColumnKind::Physical))
}

/// The columns of a table that lists none.
pub(super) fn schema(kind: Option<Kind>) -> SchemaRef {
    let field = |(name, _, shape): &Named| ArrowField::new(*name, shape.data_type(), true);
    let fields = |named: &[Named]| named.iter().map(field).collect::<Fields>();
    Arc::new(Schema::new(match kind {
        Some(kind) => fields(columns(kind)),
        None => {
            let row = |(name, kind): (&str, Kind)| {
                ArrowField::new(name, DataType::Struct(fields(columns(kind))), true)
            };
            let [person, auction, bid] = ROWS.map(row);
            Fields::from(vec![field(&EVENT_TYPE), person, auction, bid, field(&DATE_TIME)])
        }
    }))
}

impl Column {
    /// The column of a table of one kind of event, or of all.
    ///
    /// # Errors
    /// `C006` if there is none of that name, or it has another type.
    pub(super) fn new(kind: Option<Kind>, name: &str, data_type: &DataType) -> Result<Self, Error> {
        let is_row = ROWS.iter().find(|(row, _)| kind.is_none() && row.eq_ignore_ascii_case(name));
        if let Some((row, kind)) = is_row {
            let DataType::Struct(fields) = data_type else {
                return Err(wrong_type(name, data_type, "ROW<…>"));
            };
            let part = |field: &Arc<ArrowField>| {
                let whole = format!("{row}.{}", field.name());
                find(columns(*kind).iter(), field.name(), &whole, field.data_type())
            };
            let parts = fields.iter().map(part).collect::<Result<Vec<_>, _>>()?;
            return Ok(Self::Row(*kind, parts, fields.clone()));
        }
        let own: &[Named] = match kind {
            Some(kind) => columns(kind),
            None => &[EVENT_TYPE, DATE_TIME],
        };
        let field = find(own.iter().chain([&EVENT_NUMBER]), name, name, data_type)?;
        Ok(Self::Plain(field, data_type.clone()))
    }

    /// The fields that it is made of.
    pub(super) fn fields(&self) -> Vec<Field> {
        match self {
            Self::Plain(field, _) => vec![*field],
            Self::Row(_, fields, _) => fields.clone(),
        }
    }

    /// Its values for these events.
    ///
    /// # Errors
    /// None but internal ones.
    pub(super) fn array(&self, model: &Model, texts: &Texts, events: &[Event]) -> Result<ArrayRef, Error> {
        let (kind, parts, fields) = match self {
            Self::Plain(field, data_type) => return field.column(model, texts, events, data_type),
            Self::Row(kind, parts, fields) => (*kind, parts, fields),
        };
        // Only the events of the kind are made, and put where they belong.
        let layout = model.parameters.layout;
        let mut own = Vec::new();
        let places = events.iter().map(|event| {
            (layout.kind(*event) == kind).then(|| {
                own.push(*event);
                own.len() as u32 - 1
            })
        });
        let places: UInt32Array = places.collect();
        let values = parts.iter().zip(fields).map(|(part, field)| {
            let made = part.column(model, texts, &own, field.data_type())?;
            take(&made, &places, None).map_err(|error| Error::internal("nexmark", error))
        });
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let nulls = places.iter().map(|place| place.is_some()).collect::<NullBuffer>();
        let rows = StructArray::try_new_with_length(fields.clone(), values, Some(nulls), events.len());
        Ok(Arc::new(rows.map_err(|error| Error::internal("nexmark", error))?))
    }
}

/// The field of a name, whatever its case. `whole`: the name for errors.
fn find<'a>(
    known: impl Iterator<Item = &'a Named> + Clone,
    name: &str,
    whole: &str,
    data_type: &DataType,
) -> Result<Field, Error> {
    let found = known.clone().find(|(known, _, _)| known.eq_ignore_ascii_case(name));
    let Some((_, field, shape)) = found else {
        let error = Error::plan(
            code::INVALID_TABLE,
            format!("column \"{whole}\": connector \"nexmark\" has no such column"),
        );
        let names: Vec<_> = known.map(|(known, _, _)| *known).collect();
        return Err(match did_you_mean(name, names.iter().copied()) {
            Some(near) => error
                .hint(format!("Did you mean {near}? Use that, or compute the column: name AS expression.")),
            None => error.hint(format!("Use one of {}; or set 'table'.", names.join(", "))),
        });
    };
    match shape.fits(data_type) {
        true => Ok(*field),
        false => Err(wrong_type(whole, data_type, shape.sql())),
    }
}

fn wrong_type(name: &str, data_type: &DataType, wanted: &str) -> Error {
    Error::plan(
        code::INVALID_TABLE,
        format!(
            "column \"{name}\": {} can't be generated by connector \"nexmark\"",
            sql_type_name(data_type)
        ),
    )
    .hint(format!("Declare it as {wanted}."))
}
