//! What operators keep, as tables and numbers: a checkpoint's part of them.
//!
//! A table of rows tells the columns by which the stream was spread over subtasks, so that the state of some
//! subtasks can be taken up by any other number of them: each finds its own rows.
//!
//! Invariant: nothing here knows files, or when a checkpoint is taken. Columns are shared, not copied.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatchOptions, StringArray, UInt32Array,
};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt32Type};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;

use super::Spilled;
use super::spread::{hash_keys, subtask_of};
use crate::error::{Error, code};
use crate::stream::now;

/// Keys of the metadata of a table's schema where it is written.
const NAME: &str = "tidegate.name";
const OWNER: &str = "tidegate.owner";
/// What stands behind a table: streams of Arrow IPC that were cut short may look whole.
const END: &[u8; 4] = b"\nend";
/// Rows that are written at once.
const PIECE_ROWS: usize = 65_536;

/// Takes what an operator keeps.
#[derive(Debug, Default)]
pub struct StateWriter {
    state: OperatorState,
    /// Before each name.
    scope: String,
}

/// What one subtask of an operator keeps.
#[derive(Debug, Clone, Default)]
pub struct OperatorState {
    numbers: BTreeMap<String, i64>,
    tables: BTreeMap<String, StateTable>,
}

/// Rows of state.
#[derive(Debug, Clone)]
struct StateTable {
    rows: Vec<RecordBatch>,
    /// More rows behind them, which were put away.
    spilled: Vec<Arc<dyn Spilled>>,
    owner: Owner,
}

impl StateTable {
    /// All rows, batch by batch.
    fn batches(&self) -> impl Iterator<Item = Result<RecordBatch, Error>> {
        // Opened one after another: there may be many.
        let spilled = self.spilled.iter().flat_map(|spilled| match spilled.rows() {
            Ok(rows) => rows,
            Err(error) => Box::new(std::iter::once(Err(error))),
        });
        self.rows.iter().cloned().map(Ok).chain(spilled)
    }
}

/// Who has the rows of a table when there is another number of subtasks.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    /// The one that these columns' hash says.
    Keys(Vec<usize>),
    /// The one that has the row of this table whose place is in the first column.
    Table(String),
    /// The first one.
    First,
}

impl StateWriter {
    /// Keeps a number.
    pub fn number(&mut self, name: &str, value: i64) {
        let name = self.name(name);
        let before = self.state.numbers.insert(name, value);
        debug_assert!(before.is_none(), "a number of state has one name");
    }

    /// Keeps a number that may be missing.
    pub fn optional(&mut self, name: &str, value: Option<i64>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    /// Keeps rows, all of one schema. `keys`: the places of the columns by which the operator's input is spread over
    /// subtasks, in the exchange's order and types; none: there is one subtask.
    pub fn table(&mut self, name: &str, rows: Vec<RecordBatch>, keys: &[usize]) {
        self.add(name, rows, Owner::of_keys(keys));
    }

    /// Keeps rows that were put away, as [`StateWriter::table`] does others. They are read when the state is written.
    pub fn spilled(&mut self, name: &str, rows: Arc<dyn Spilled>, keys: &[usize]) {
        self.table_and_spilled(name, Vec::new(), vec![rows], keys);
    }

    /// Keeps rows, and behind them some that were put away.
    pub fn table_and_spilled(
        &mut self,
        name: &str,
        rows: Vec<RecordBatch>,
        spilled: Vec<Arc<dyn Spilled>>,
        keys: &[usize],
    ) {
        self.put(name, StateTable { rows, spilled, owner: Owner::of_keys(keys) });
    }

    /// Keeps columns as [`StateWriter::table`] does rows.
    ///
    /// # Errors
    /// An internal error for columns of different lengths.
    pub fn columns(&mut self, name: &str, columns: Vec<ArrayRef>, keys: &[usize]) -> Result<(), Error> {
        let rows = batch(columns)?;
        self.table(name, vec![rows], keys);
        Ok(())
    }

    /// Keeps rows that belong to those of another table, `parent`, which was kept before, in this scope or around
    /// it: the first column tells the place there, from 0, as `UInt32`.
    ///
    /// # Errors
    /// An internal error for columns of different lengths, and without such a table.
    pub fn columns_of(&mut self, parent: &str, name: &str, columns: Vec<ArrayRef>) -> Result<(), Error> {
        let mut scope = self.scope.as_str();
        let parent = loop {
            let full = format!("{scope}{parent}");
            if self.state.tables.contains_key(&full) {
                break full;
            }
            let Some(outer) = scope.strip_suffix('.') else {
                return Err(Error::internal(
                    "state",
                    format!("rows of a table \"{parent}\" that was not kept"),
                ));
            };
            scope = &scope[..outer.rfind('.').map_or(0, |dot| dot + 1)];
        };
        let rows = batch(columns)?;
        self.add(name, vec![rows], Owner::Table(parent));
        Ok(())
    }

    /// Runs `write` with names of their own: `scope` before each.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn scoped(
        &mut self,
        scope: &str,
        write: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let length = self.scope.len();
        self.scope.push_str(scope);
        self.scope.push('.');
        let written = write(self);
        self.scope.truncate(length);
        written
    }

    /// What was kept.
    pub fn finish(self) -> OperatorState {
        self.state
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.scope)
    }

    fn add(&mut self, name: &str, rows: Vec<RecordBatch>, owner: Owner) {
        self.put(name, StateTable { rows, spilled: Vec::new(), owner });
    }

    fn put(&mut self, name: &str, table: StateTable) {
        let name = self.name(name);
        let before = self.state.tables.insert(name, table);
        debug_assert!(before.is_none(), "a table of state has one name");
    }
}

/// Columns as a batch, by place.
pub(super) fn batch(columns: Vec<ArrayRef>) -> Result<RecordBatch, Error> {
    let rows = columns.first().map_or(0, |column| column.len());
    batch_of(columns, rows)
}

/// So many rows of columns, by place; also of none.
pub(super) fn batch_of(columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, Error> {
    let field =
        |(place, column): (usize, &ArrayRef)| Field::new(place.to_string(), column.data_type().clone(), true);
    let schema = Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>());
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)
        .map_err(|error| Error::internal("state", error))
}

/// Gives an operator what it, or what other subtasks of it, kept.
#[derive(Debug)]
pub struct StateReader {
    /// Of each subtask that there was.
    parts: Vec<OperatorState>,
    /// Which of how many subtasks reads; `None`: the one that wrote.
    place: Option<(usize, usize)>,
    /// Before each name.
    scope: String,
    /// How much later the job's clock shows now the moment at which the state was kept, microseconds.
    clock_shift_us: i64,
    /// When it is read.
    now: Instant,
}

impl StateReader {
    /// For the subtask that wrote it.
    pub fn same(state: OperatorState, clock_shift_us: i64) -> Self {
        Self::new(vec![state], None, clock_shift_us)
    }

    /// For one of another number of subtasks.
    pub fn spread(parts: Vec<OperatorState>, subtask: usize, subtasks: usize, clock_shift_us: i64) -> Self {
        Self::new(parts, Some((subtask, subtasks)), clock_shift_us)
    }

    fn new(parts: Vec<OperatorState>, place: Option<(usize, usize)>, clock_shift_us: i64) -> Self {
        Self { parts, place, scope: String::new(), clock_shift_us, now: now() }
    }

    /// When rows that were kept count as arrived: now. How long the job lay still is no latency.
    pub fn arrived(&self) -> Instant {
        self.now
    }

    /// The lowest that a subtask kept.
    pub fn lowest(&self, name: &str) -> Option<i64> {
        self.numbers(name).min()
    }

    /// The highest that a subtask kept.
    pub fn highest(&self, name: &str) -> Option<i64> {
        self.numbers(name).max()
    }

    /// The sum of what subtasks kept, for the first one; 0 for others.
    pub fn sum(&self, name: &str) -> i64 {
        match self.place {
            Some((1.., _)) => 0,
            _ => self.numbers(name).sum(),
        }
    }

    /// A moment of the job's clock: what was kept as [`StateWriter::number`], as the clock shows it now; the earliest
    /// of all subtasks.
    pub fn moment(&self, name: &str) -> Option<i64> {
        self.lowest(name).map(|moment| match moment {
            i64::MIN | i64::MAX => moment,
            _ => moment.saturating_add(self.clock_shift_us),
        })
    }

    /// How much later the job's clock shows now the moment at which the state was kept, microseconds.
    pub fn clock_shift_us(&self) -> i64 {
        self.clock_shift_us
    }

    fn numbers(&self, name: &str) -> impl Iterator<Item = i64> {
        let name = format!("{}{name}", self.scope);
        self.parts.iter().filter_map(move |part| part.numbers.get(&name).copied())
    }

    /// Runs `read` with names of their own.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn scoped<T>(
        &mut self,
        scope: &str,
        read: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let length = self.scope.len();
        self.scope.push_str(scope);
        self.scope.push('.');
        let result = read(self);
        self.scope.truncate(length);
        result
    }

    /// What follows `prefix` in the names of the tables that begin with it, each once, in order.
    pub fn names(&self, prefix: &str) -> BTreeSet<String> {
        let prefix = format!("{}{prefix}", self.scope);
        let names = self.parts.iter().flat_map(|part| part.tables.keys());
        names.filter_map(|name| name.strip_prefix(&prefix)).map(str::to_owned).collect()
    }

    /// The rows of a table that are this subtask's, in the order in which they were kept, as one batch; `None`: nobody
    /// kept such a table.
    ///
    /// # Errors
    /// `K002` if the state does not fit together, or is too large for one batch.
    pub fn table(&self, name: &str) -> Result<Option<RecordBatch>, Error> {
        let name = format!("{}{name}", self.scope);
        let parent = self.parent(&name);
        let (mut all, mut before) = (Vec::new(), 0);
        for part in &self.parts {
            if let Some(table) = part.tables.get(&name) {
                for rows in self.own(part, table)? {
                    all.push(if before > 0 { shifted(&rows, before)? } else { rows });
                }
            }
            // Its rows of the other table count where nothing belongs to them, too.
            if let Some(parent) = parent.as_ref().filter(|parent| part.tables.contains_key(*parent)) {
                let places = self.own_places(part, parent)?;
                before += places.iter().filter(|place| place.is_some()).count() as u32;
            }
        }
        let Some(first) = all.first() else { return Ok(None) };
        // A second piece, so that columns are copied: those that were read are slices of one buffer, which would be
        // kept with the smallest of them.
        let (schema, nothing) = (first.schema(), first.slice(0, 0));
        all.push(nothing);
        concat_batches(&schema, &all).map(Some).map_err(|error| match error {
            ArrowError::OffsetOverflowError(_) => too_large(),
            error => Error::internal("state", error),
        })
    }

    fn parent(&self, name: &str) -> Option<String> {
        self.parts.iter().find_map(|part| match &part.tables.get(name)?.owner {
            Owner::Table(parent) => Some(parent.clone()),
            Owner::Keys(_) | Owner::First => None,
        })
    }

    /// The columns of a table; see [`StateReader::table`].
    ///
    /// # Errors
    /// `K002` if the state does not fit together.
    pub fn columns(&self, name: &str) -> Result<Option<Vec<ArrayRef>>, Error> {
        Ok(self.table(name)?.map(|rows| rows.columns().to_vec()))
    }

    /// Batch by batch: all of them may be too much for one.
    fn own(&self, part: &OperatorState, table: &StateTable) -> Result<Vec<RecordBatch>, Error> {
        let mut places = None;
        if let (Some(_), Owner::Table(parent)) = (self.place, &table.owner) {
            places = Some(self.own_places(part, parent)?);
        }
        let own = |rows: RecordBatch| {
            let Some((subtask, subtasks)) = self.place else { return Ok(rows) };
            let (rows, kept) = match (&table.owner, &places) {
                (Owner::First, _) if subtask == 0 => return Ok(rows),
                (Owner::First, _) => return Ok(rows.slice(0, 0)),
                (Owner::Keys(keys), _) => {
                    let kept = kept_by_keys(&rows, keys, subtask, subtasks)?;
                    (rows, kept)
                }
                (Owner::Table(_), places) => moved(&rows, places.as_deref().unwrap_or_default())?,
            };
            filter_record_batch(&rows, &kept).map_err(|error| Error::internal("state", error))
        };
        let own: Vec<RecordBatch> = table.batches().map(|rows| own(rows?)).collect::<Result<_, Error>>()?;
        if own.is_empty() { Err(misfit("a table without a schema")) } else { Ok(own) }
    }

    /// For each row of a table its place among those that are this subtask's; `None`: it is another's.
    fn own_places(&self, part: &OperatorState, name: &str) -> Result<Vec<Option<u32>>, Error> {
        let table = part.tables.get(name).ok_or_else(|| misfit(format_args!("no table \"{name}\"")))?;
        let mut places = None;
        if let (Some(_), Owner::Table(parent)) = (self.place, &table.owner) {
            places = Some(self.own_places(part, parent)?);
        }
        let own = |rows: &RecordBatch| -> Result<BooleanArray, Error> {
            Ok(match (self.place, &table.owner) {
                (None, _) | (Some((0, _)), Owner::First) => BooleanArray::from(vec![true; rows.num_rows()]),
                (Some(_), Owner::First) => BooleanArray::from(vec![false; rows.num_rows()]),
                (Some((subtask, subtasks)), Owner::Keys(keys)) => {
                    kept_by_keys(rows, keys, subtask, subtasks)?
                }
                (Some(_), Owner::Table(_)) => moved(rows, places.as_deref().unwrap_or_default())?.1,
            })
        };
        let mut is_own: Vec<bool> = Vec::new();
        for rows in table.batches() {
            is_own.extend(own(&rows?)?.values());
        }
        let mut next = 0;
        let place = |is_own: bool| {
            is_own.then(|| {
                next += 1;
                next - 1
            })
        };
        Ok(is_own.into_iter().map(place).collect())
    }
}

/// Rows that belong to those of another table with the places that these have now, and which of them still do.
fn moved(rows: &RecordBatch, places: &[Option<u32>]) -> Result<(RecordBatch, BooleanArray), Error> {
    let (first, rest) = rows.columns().split_first().ok_or_else(|| misfit("a table without places"))?;
    let moved = places_of(first)?.iter().map(|place| places.get(place? as usize).copied().flatten());
    let moved: UInt32Array = moved.collect();
    let kept = (0..moved.len()).map(|row| Some(moved.is_valid(row))).collect();
    let mut columns: Vec<ArrayRef> = vec![Arc::new(moved)];
    columns.extend_from_slice(rest);
    let rows =
        RecordBatch::try_new(rows.schema(), columns).map_err(|error| Error::internal("state", error))?;
    Ok((rows, kept))
}

fn kept_by_keys(
    rows: &RecordBatch,
    keys: &[usize],
    subtask: usize,
    subtasks: usize,
) -> Result<BooleanArray, Error> {
    let columns =
        keys.iter().map(|key| rows.columns().get(*key).cloned().ok_or_else(|| misfit("a key is missing")));
    if subtasks == 1 {
        return Ok(BooleanArray::from(vec![true; rows.num_rows()]));
    }
    let mut hashes = Vec::new();
    hash_keys(&columns.collect::<Result<Vec<_>, _>>()?, rows.num_rows(), &mut hashes)?;
    Ok(hashes.into_iter().map(|hash| Some(subtask_of(hash, subtasks) == subtask)).collect())
}

fn places_of(column: &ArrayRef) -> Result<&UInt32Array, Error> {
    column.as_primitive_opt::<UInt32Type>().ok_or_else(|| misfit("places that are no numbers"))
}

/// The places in the first column, so much later.
fn shifted(rows: &RecordBatch, by: u32) -> Result<RecordBatch, Error> {
    let mut columns = rows.columns().to_vec();
    if let Some(first) = columns.first_mut() {
        *first = Arc::new(places_of(first)?.unary::<_, UInt32Type>(|place| place + by));
    }
    RecordBatch::try_new(rows.schema(), columns).map_err(|error| Error::internal("state", error))
}

/// Offsets of text have 32 bits.
fn too_large() -> Error {
    let message = "the state of an operator has more than 2 GB of text or bytes in one column, which is more than one \
                   subtask can take up";
    Error::run(code::BAD_CHECKPOINT, message)
        .hint("Go on with more subtasks, each of which has a part of it: -p 8.")
}

/// Rows of state with the schema of those that were kept, which may name columns otherwise.
pub(super) fn with_schema(schema: &SchemaRef, rows: RecordBatch) -> Result<RecordBatch, Error> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), rows.columns().to_vec(), &options).map_err(misfit)
}

pub(super) fn misfit(what: impl std::fmt::Display) -> Error {
    Error::run(code::BAD_CHECKPOINT, format!("the state of an operator does not fit together: {what}"))
        .hint("Use another checkpoint.")
}

impl Owner {
    /// By the columns over whose hash the stream is spread; none: there is one subtask.
    fn of_keys(keys: &[usize]) -> Self {
        if keys.is_empty() { Self::First } else { Self::Keys(keys.to_vec()) }
    }

    fn to_text(&self) -> String {
        match self {
            Self::Keys(keys) => {
                let keys: Vec<String> = keys.iter().map(usize::to_string).collect();
                format!("keys:{}", keys.join(","))
            }
            Self::Table(name) => format!("table:{name}"),
            Self::First => "first".to_owned(),
        }
    }

    fn of_text(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None => (text == "first").then_some(Self::First),
            Some(("table", name)) => Some(Self::Table(name.to_owned())),
            Some(("keys", keys)) => {
                keys.split(',').map(|key| key.parse().ok()).collect::<Option<_>>().map(Self::Keys)
            }
            Some(_) => None,
        }
    }
}

impl OperatorState {
    /// Memory of what is kept, in bytes, estimated.
    pub fn size(&self) -> usize {
        let rows = self.tables.values().flat_map(|table| &table.rows);
        rows.map(RecordBatch::get_array_memory_size).sum()
    }

    /// Writes it: each table as a stream of Arrow IPC, the numbers at last, as a table without a name.
    ///
    /// # Errors
    /// An internal error for columns that can't be written, and where `into` takes no more.
    pub fn write(&self, into: &mut dyn Write) -> Result<(), Error> {
        for (name, table) in &self.tables {
            let mut rows = table.batches().peekable();
            let first = match rows.peek() {
                None => continue,
                Some(Ok(first)) => first.schema(),
                Some(Err(error)) => return Err(error.clone()),
            };
            let about = [(NAME, name.clone()), (OWNER, table.owner.to_text())];
            let rows = rows.flat_map(|rows| match rows {
                Ok(rows) => pieces(rows).map(Ok).collect(),
                Err(error) => vec![Err(error)],
            });
            write_batches(&first, &about, rows, into)?;
        }
        let names = StringArray::from_iter_values(self.numbers.keys());
        let values = Int64Array::from_iter_values(self.numbers.values().copied());
        let numbers = batch(vec![Arc::new(names), Arc::new(values)])?;
        write_table(&numbers.schema(), &[(NAME, String::new())], std::slice::from_ref(&numbers), into)
    }

    /// Reads what [`OperatorState::write`] wrote, and takes it off `from`.
    ///
    /// # Errors
    /// `K002` for anything else.
    pub fn read(from: &mut dyn Read) -> Result<Self, Error> {
        let mut state = Self::default();
        loop {
            let (schema, rows) = read_table(from)?;
            let about = |key: &str| schema.metadata().get(key).map(String::as_str);
            let name = about(NAME).ok_or_else(|| misfit("a table without a name"))?;
            if name.is_empty() {
                for rows in rows {
                    let [names, values] = rows.columns() else { return Err(misfit("numbers without names")) };
                    let names =
                        names.as_string_opt::<i32>().ok_or_else(|| misfit("names that are no text"))?;
                    let values =
                        values.as_primitive_opt::<Int64Type>().ok_or_else(|| misfit("no numbers"))?;
                    let named =
                        names.iter().zip(values).filter_map(|(name, value)| Some((name?.to_owned(), value?)));
                    state.numbers.extend(named);
                }
                return Ok(state);
            }
            let owner =
                about(OWNER).and_then(Owner::of_text).ok_or_else(|| misfit("rows that are nobody's"))?;
            let plain = Arc::new(Schema::new(schema.fields().clone()));
            let plain_rows = |rows: RecordBatch| {
                let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
                RecordBatch::try_new_with_options(Arc::clone(&plain), rows.columns().to_vec(), &options)
            };
            let mut rows = rows.into_iter().map(plain_rows).collect::<Result<Vec<_>, _>>().map_err(misfit)?;
            if rows.is_empty() {
                rows.push(RecordBatch::new_empty(plain));
            }
            state.tables.insert(name.to_owned(), StateTable { rows, spilled: Vec::new(), owner });
        }
    }
}

pub(crate) fn write_table(
    schema: &SchemaRef,
    about: &[(&str, String)],
    rows: &[RecordBatch],
    into: &mut dyn Write,
) -> Result<(), Error> {
    write_batches(schema, about, rows.iter().cloned().map(Ok), into)
}

fn write_batches(
    schema: &SchemaRef,
    about: &[(&str, String)],
    rows: impl Iterator<Item = Result<RecordBatch, Error>>,
    into: &mut dyn Write,
) -> Result<(), Error> {
    let fault = |error: ArrowError| Error::internal("state", error);
    let about: HashMap<String, String> =
        about.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let schema = Schema::new_with_metadata(schema.fields().clone(), about);
    let mut writer = StreamWriter::try_new(&mut *into, &schema).map_err(fault)?;
    for rows in rows {
        writer.write(&rows?).map_err(fault)?;
    }
    writer.finish().map_err(fault)?;
    drop(writer);
    into.write_all(END).map_err(|error| Error::internal("state", error))
}

/// The rows in pieces: each is copied when it is written.
fn pieces(rows: RecordBatch) -> impl Iterator<Item = RecordBatch> {
    // A piece of these is written with all that the whole refers to.
    let is_whole = |column: &ArrayRef| {
        let kind = column.data_type();
        kind.is_nested()
            || matches!(kind, DataType::Utf8View | DataType::BinaryView | DataType::Dictionary(..))
    };
    let count = rows.num_rows().max(1);
    let step = if rows.columns().iter().any(is_whole) { count } else { PIECE_ROWS };
    (0..count).step_by(step).map(move |from| rows.slice(from, step.min(rows.num_rows() - from)))
}

pub(crate) fn read_table(from: &mut dyn Read) -> Result<(SchemaRef, Vec<RecordBatch>), Error> {
    let mut reader = StreamReader::try_new(&mut *from, None).map_err(misfit)?;
    let schema = reader.schema();
    let rows = reader.by_ref().collect::<Result<_, _>>().map_err(misfit)?;
    drop(reader);
    let mut end = [0; END.len()];
    from.read_exact(&mut end).map_err(|_| misfit("it ends early"))?;
    if end != *END {
        return Err(misfit("a table has no end"));
    }
    Ok((schema, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(values))
    }

    fn places(values: impl IntoIterator<Item = u32>) -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(values))
    }

    /// Keys, each with its own value twice in another table.
    fn state(keys: std::ops::Range<i64>) -> OperatorState {
        let mut writer = StateWriter::default();
        writer.number("watermark", keys.start);
        let count = (keys.end - keys.start) as u32;
        writer.columns("groups", vec![numbers(keys.clone())], &[0]).unwrap();
        let twice = keys.flat_map(|key| [key * 10, key * 10 + 1]);
        writer
            .scoped("sum", |writer| {
                let of = (0..count).flat_map(|place| [place, place]);
                writer.columns("alone", vec![numbers([7])], &[])?;
                writer.columns_of("groups", "values", vec![places(of), numbers(twice)])
            })
            .unwrap();
        let mut bytes = vec![1];
        writer.finish().write(&mut bytes).unwrap();
        bytes.push(2);
        let mut rest = &bytes[1..];
        let state = OperatorState::read(&mut rest).unwrap();
        assert_eq!(rest, [2]);
        state
    }

    fn values(column: &ArrayRef) -> Vec<i64> {
        column.as_primitive::<Int64Type>().values().to_vec()
    }

    /// The keys of a reader; each has its own values.
    fn keys(reader: &mut StateReader) -> Vec<i64> {
        let keys = values(&reader.columns("groups").unwrap().unwrap()[0]);
        let owned = reader.scoped("sum", |reader| reader.columns("values")).unwrap().unwrap();
        let of = owned[0].as_primitive::<UInt32Type>().values();
        let found: Vec<i64> = of.iter().map(|place| keys[*place as usize]).collect();
        assert_eq!(found, values(&owned[1]).iter().map(|value| value / 10).collect::<Vec<_>>());
        assert_eq!(found.len(), keys.len() * 2);
        keys
    }

    #[test]
    fn what_was_written_is_read() {
        let mut reader = StateReader::same(state(3..8), 5);
        assert_eq!(keys(&mut reader), [3, 4, 5, 6, 7]);
        assert_eq!((reader.lowest("watermark"), reader.lowest("other")), (Some(3), None));
        assert_eq!((reader.moment("watermark"), reader.sum("watermark")), (Some(8), 3));
        assert!(reader.table("other").unwrap().is_none());
    }

    #[test]
    fn each_subtask_finds_its_own_rows() {
        for subtasks in [1, 2, 5] {
            let mut all = Vec::new();
            for subtask in 0..subtasks {
                let parts = vec![state(0..40), state(50..60), state(70..70)];
                let mut reader = StateReader::spread(parts, subtask, subtasks, 0);
                all.extend(keys(&mut reader));
                assert_eq!((reader.lowest("watermark"), reader.highest("watermark")), (Some(0), Some(70)));
                assert_eq!(reader.sum("watermark"), if subtask == 0 { 120 } else { 0 });
                let alone = reader.scoped("sum", |reader| reader.table("alone")).unwrap().unwrap();
                assert_eq!(alone.num_rows(), if subtask == 0 { 3 } else { 0 });
            }
            all.sort_unstable();
            assert_eq!(all, (0..40).chain(50..60).collect::<Vec<_>>());
        }
    }

    #[test]
    fn rows_that_nothing_belongs_to_count_as_places() {
        let part = |key: i64, has_values: bool| {
            let mut writer = StateWriter::default();
            writer.columns("groups", vec![numbers([key])], &[0]).unwrap();
            if has_values {
                writer.columns_of("groups", "values", vec![places([0]), numbers([key * 10])]).unwrap();
            }
            writer.finish()
        };
        let reader = StateReader::spread(vec![part(1, false), part(2, true)], 0, 1, 0);
        let columns = reader.columns("values").unwrap().unwrap();
        assert_eq!(columns[0].as_primitive::<UInt32Type>().values(), &[1]);
        assert_eq!(values(&columns[1]), [20]);
        assert_eq!(values(&reader.columns("groups").unwrap().unwrap()[0]), [1, 2]);
    }

    #[test]
    fn what_is_torn_is_no_state() {
        let mut bytes = Vec::new();
        state(0..3).write(&mut bytes).unwrap();
        for length in 0..bytes.len() {
            let read = OperatorState::read(&mut &bytes[..length]);
            assert_eq!(read.unwrap_err().code(), "K002", "{length} of {}", bytes.len());
        }
    }
}
