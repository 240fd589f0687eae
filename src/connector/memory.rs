//! The connector `memory`: rows that a program hands over or wants to have.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use serde_json::{Value, json};

use super::assembly::{Assembly, SplitFacts, source_metadata};
use super::options::OptionReader;
use super::{
    CancelToken, Connector, Lines, Position, Read, ReadRequest, Sink, Source, SplitBatch, SplitReader,
};
use crate::catalog::{Options, ReadRecovery, Table, TableFacts, TableRecovery, WriteRecovery};
use crate::error::{Error, code};
use crate::stream::{Fold, StreamBatch};

/// Tables in memory, by name. A clone is the same set of tables.
///
/// A program puts rows under a name and reads them by
/// `CREATE TABLE t (…) WITH ('connector' = 'memory', 'name' = 'x')`; without `'name'` the table's own
/// name counts. What is inserted into such a table is collected, and [`Memory::take`] gives it out
/// once the insert is done.
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    inputs: BTreeMap<String, Input>,
    /// What was inserted, by name: of writers that are done in the order in which they were, then of the others.
    outputs: BTreeMap<String, Vec<Written>>,
    next_number: u64,
}

/// What a writer has written.
#[derive(Debug)]
struct Written {
    writer: u64,
    /// The sink that writes it: another one after a checkpoint was resumed.
    sink: u64,
    /// A temporary table can be read while it is written.
    is_live: bool,
    /// No row follows.
    is_done: bool,
    batches: Vec<StreamBatch>,
    /// Rows before these, which an earlier process has had or somebody has taken.
    rows_before: usize,
}

impl Written {
    /// Adds a batch, into the last ones as long as these are small: late rows come one by one.
    fn add(&mut self, batch: StreamBatch) -> Result<(), Error> {
        self.batches.push(batch);
        if !self.is_live {
            return Ok(());
        }
        while let [.., before, last] = self.batches.as_slice() {
            let (before_rows, last_rows) = (before.num_rows(), last.num_rows());
            let are_small = before_rows + last_rows <= SMALL_ROWS && before_rows <= 2 * last_rows;
            if !are_small || before.kinds.is_some() || last.kinds.is_some() {
                break;
            }
            let joined = concat_batches(&before.rows.schema(), [&before.rows, &last.rows])
                .map_err(|error| Error::internal("memory", error))?;
            let joined = StreamBatch::inserts(joined, before.arrived);
            self.batches.truncate(self.batches.len() - 2);
            self.batches.push(joined);
        }
        Ok(())
    }

    fn rows(&self) -> usize {
        self.rows_before + self.batches.iter().map(StreamBatch::num_rows).sum::<usize>()
    }

    /// Takes back all but the first rows.
    fn truncate(&mut self, rows: usize) {
        let mut left = rows.saturating_sub(self.rows_before);
        self.batches.retain_mut(|batch| {
            let kept = batch.num_rows().min(left);
            left -= kept;
            if kept < batch.num_rows() {
                *batch = batch.slice(0, kept);
            }
            kept > 0
        });
        self.rows_before = self.rows_before.min(rows);
    }
}

/// Batches of a side table are joined up to this many rows.
const SMALL_ROWS: usize = 8_192;

impl Content {
    /// What was inserted under a name, by side tables also what is not finished. `None`: nobody
    /// has written there.
    fn inserted(&self, name: &str) -> Option<Vec<&StreamBatch>> {
        let all = || self.outputs.get(name).into_iter().flatten();
        let written = || all().filter(|w| w.is_done).chain(all().filter(|w| w.is_live && !w.is_done));
        written().next()?;
        Some(written().flat_map(|written| &written.batches).collect())
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

#[derive(Debug)]
enum Input {
    /// Can be read again and again.
    Splits { schema: SchemaRef, splits: Vec<Vec<RecordBatch>> },
    /// Can be read once.
    Channel { schema: SchemaRef, receiver: Option<Receiver<RecordBatch>> },
}

impl Input {
    fn schema(&self) -> &SchemaRef {
        match self {
            Self::Splits { schema, .. } | Self::Channel { schema, .. } => schema,
        }
    }
}

impl Memory {
    /// No tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the rows of a name: one split, bounded, read again by each query.
    pub fn put(&self, name: impl Into<String>, schema: SchemaRef, batches: Vec<RecordBatch>) {
        self.put_splits(name, schema, vec![batches]);
    }

    /// The same with several splits, each with a watermark of its own.
    pub fn put_splits(&self, name: impl Into<String>, schema: SchemaRef, splits: Vec<Vec<RecordBatch>>) {
        self.content().inputs.insert(name.into(), Input::Splits { schema, splits });
    }

    /// Sets the receiver of a name: unbounded, read by one query, ends when all senders are gone.
    pub fn put_channel(&self, name: impl Into<String>, schema: SchemaRef, receiver: Receiver<RecordBatch>) {
        self.content().inputs.insert(name.into(), Input::Channel { schema, receiver: Some(receiver) });
    }

    /// Takes the rows that were inserted under a name, in order, and leaves none.
    pub fn take(&self, name: &str) -> Vec<StreamBatch> {
        let mut content = self.content();
        let Some(outputs) = content.outputs.get_mut(name) else { return Vec::new() };
        let done = outputs.extract_if(.., |written| written.is_done);
        done.flat_map(|written| written.batches).collect()
    }

    /// The rows that were inserted under a name, in order, and stay there.
    #[doc(hidden)]
    pub fn peek(&self, name: &str) -> Vec<StreamBatch> {
        self.content().inserted(name).unwrap_or_default().into_iter().cloned().collect()
    }

    /// No code that holds the lock can leave the content half changed.
    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const KEYS: &[&str] = &["name", "max-rows"];

fn read_options<'a>(options: &'a Options, table: &'a str) -> Result<&'a str, Error> {
    let reader = OptionReader::new("connector \"memory\"", options, &[KEYS])?;
    reader.integer("max-rows", 1..=i64::MAX)?;
    Ok(reader.text("name").unwrap_or(table))
}

/// `'max-rows'`: most rows that may be inserted.
fn most_rows(options: &Options) -> Result<Option<usize>, Error> {
    let reader = OptionReader::new("connector \"memory\"", options, &[&["name", "max-rows"]])?;
    let most = reader.integer("max-rows", 1..=i64::MAX)?;
    Ok(most.map(|most| usize::try_from(most).unwrap_or(usize::MAX)))
}

impl Connector for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let name = read_options(&table.options, &table.name)?;
        let bounded = !matches!(self.content().inputs.get(name), Some(Input::Channel { .. }));
        Ok(TableFacts {
            is_source: true,
            is_sink: true,
            bounded,
            takes_changelog: true,
            gives_changelog: false,
            upserts: false,
        })
    }

    fn infer_schema(&self, options: &Options) -> Result<SchemaRef, Error> {
        let name = read_options(options, "")?;
        self.content().inputs.get(name).map(|input| Arc::clone(input.schema())).ok_or_else(|| {
            Error::plan(code::INVALID_TABLE, format!("nothing was put into memory under the name \"{name}\""))
                .hint("List the columns in CREATE TABLE, or put the rows first.")
        })
    }

    fn options(&self) -> Vec<&'static str> {
        KEYS.to_vec()
    }

    fn metadata(&self) -> Vec<(&'static str, DataType)> {
        source_metadata()
    }

    /// What a program puts it can put again; what was inserted is there as long as the process.
    fn recovery(&self, table: &Table) -> TableRecovery {
        let name = read_options(&table.options, &table.name).unwrap_or(&table.name);
        let read = match self.content().inputs.get(name) {
            Some(Input::Splits { .. }) => ReadRecovery::Again,
            Some(Input::Channel { .. }) => ReadRecovery::Lost,
            None => ReadRecovery::Gone,
        };
        TableRecovery { read, written: WriteRecovery::Gone }
    }

    fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        let name = read_options(&table.options, &table.name)?;
        let assembly = Assembly::new(request);
        let mut content = self.content();
        // What was inserted can be read, too.
        let inserted = content.inserted(name).map(|batches| {
            let schema = batches.first().map_or_else(|| table.schema(), |batch| batch.rows.schema());
            left_rows(&schema, &batches, request.batch_rows).map(|rows| (schema, vec![rows]))
        });
        let inserted = inserted.transpose()?;
        let (schema, input) = match content.inputs.get_mut(name) {
            Some(Input::Splits { schema, splits }) => (Arc::clone(schema), Rows::Splits(splits.clone())),
            Some(Input::Channel { schema, receiver }) => {
                let receiver = receiver.take().ok_or_else(|| {
                    Error::run(
                        code::UNREADABLE,
                        format!("can't read \"{name}\": its channel is read already"),
                    )
                })?;
                (Arc::clone(schema), Rows::Channel(receiver))
            }
            None => match inserted {
                Some((schema, splits)) => (schema, Rows::Splits(splits)),
                None => {
                    return Err(Error::run(
                        code::UNREADABLE,
                        format!("can't read \"{name}\": nothing was put into memory under that name"),
                    ));
                }
            },
        };
        let places = assembly.physical().fields().iter().map(|field| {
            let place = schema.index_of(field.name()).ok();
            let place = place.filter(|place| schema.field(*place).data_type() == field.data_type());
            place.ok_or_else(|| {
                Error::run(
                    code::INVALID_TABLE,
                    format!(
                        "\"{name}\" in memory has no column \"{}\" of type {}",
                        field.name(),
                        field.data_type()
                    ),
                )
            })
        });
        let places = places.collect::<Result<Vec<_>, _>>()?;
        Ok(Box::new(MemorySource {
            name: name.to_owned(),
            rows: Some(input),
            places,
            assembly,
            batch_rows: request.batch_rows.max(1),
            cancel: request.cancel.clone(),
        }))
    }

    fn sink(&self, table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        let writer = self.content().number();
        self.writer(table, writer, 0)
    }

    fn resume_sink(
        &self,
        table: &Table,
        _schema: SchemaRef,
        prepared: &Value,
    ) -> Result<Box<dyn Sink>, Error> {
        let number = |key: &str| prepared.get(key).and_then(Value::as_u64);
        let (Some(writer), Some(rows)) = (number("writer"), number("rows")) else {
            return Err(Error::internal("memory", "a checkpoint tells no rows"));
        };
        self.writer(table, writer, usize::try_from(rows).unwrap_or(usize::MAX))
    }

    /// The rows of a temporary table go with it; what a program has put stays.
    fn dropped(&self, table: &Table) {
        if let (true, Ok(name)) = (table.temporary, read_options(&table.options, &table.name)) {
            self.content().outputs.remove(name);
        }
    }
}

/// What was inserted; of a changelog the rows that it leaves.
fn left_rows(
    schema: &SchemaRef,
    batches: &[&StreamBatch],
    batch_rows: usize,
) -> Result<Vec<RecordBatch>, Error> {
    if batches.iter().all(|batch| batch.kinds.is_none()) {
        return Ok(batches.iter().map(|batch| batch.rows.clone()).collect());
    }
    let mut fold = Fold::try_new(schema)?;
    batches.iter().try_for_each(|batch| fold.apply(batch))?;
    fold.batches(batch_rows)
}

enum Rows {
    Splits(Vec<Vec<RecordBatch>>),
    Channel(Receiver<RecordBatch>),
}

struct MemorySource {
    name: String,
    rows: Option<Rows>,
    places: Vec<usize>,
    assembly: Assembly,
    batch_rows: usize,
    cancel: CancelToken,
}

impl Source for MemorySource {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let split = |name: String, rows: Feed| {
            Box::new(MemorySplit {
                facts: SplitFacts { path: name, ..SplitFacts::default() },
                rows,
                places: self.places.clone(),
                assembly: self.assembly.clone(),
                batch_rows: self.batch_rows,
                cancel: self.cancel.clone(),
                pending: None,
                row: 0,
            }) as Box<dyn SplitReader>
        };
        Ok(match self.rows.take() {
            None => Vec::new(),
            Some(Rows::Channel(receiver)) => vec![split(self.name.clone(), Feed::Channel(receiver))],
            Some(Rows::Splits(splits)) => {
                let several = splits.len() > 1;
                let name = |index: usize| {
                    if several { format!("{}[{index}]", self.name) } else { self.name.clone() }
                };
                splits
                    .into_iter()
                    .enumerate()
                    .map(|(index, batches)| split(name(index), Feed::Batches(batches.into_iter())))
                    .collect()
            }
        })
    }
}

enum Feed {
    Batches(std::vec::IntoIter<RecordBatch>),
    Channel(Receiver<RecordBatch>),
}

struct MemorySplit {
    facts: SplitFacts,
    rows: Feed,
    places: Vec<usize>,
    assembly: Assembly,
    batch_rows: usize,
    cancel: CancelToken,
    /// What is left of a batch that was larger than wanted.
    pending: Option<RecordBatch>,
    row: u64,
}

enum Taken {
    Batch(RecordBatch),
    Nothing,
    End,
}

/// How long a reader waits before it says that there is nothing.
const WAIT: Duration = Duration::from_millis(50);

impl MemorySplit {
    fn next_input(&mut self) -> Result<Taken, Error> {
        loop {
            if self.cancel.is_cancelled() {
                return Err(Error::interrupted());
            }
            let batch = match (self.pending.take(), &mut self.rows) {
                (Some(batch), _) => batch,
                (None, Feed::Batches(batches)) => match batches.next() {
                    Some(batch) => batch,
                    None => return Ok(Taken::End),
                },
                (None, Feed::Channel(receiver)) => match receiver.recv_timeout(WAIT) {
                    Ok(batch) => batch,
                    Err(RecvTimeoutError::Timeout) => return Ok(Taken::Nothing),
                    Err(RecvTimeoutError::Disconnected) => return Ok(Taken::End),
                },
            };
            if batch.num_rows() == 0 {
                continue;
            }
            if batch.num_rows() > self.batch_rows {
                self.pending = Some(batch.slice(self.batch_rows, batch.num_rows() - self.batch_rows));
                return Ok(Taken::Batch(batch.slice(0, self.batch_rows)));
            }
            return Ok(Taken::Batch(batch));
        }
    }
}

impl SplitReader for MemorySplit {
    fn name(&self) -> &str {
        &self.facts.path
    }

    /// What a channel gave does not come again; other rows are read again.
    fn position(&self) -> Option<Position> {
        matches!(self.rows, Feed::Channel(_)).then(Position::lost)
    }

    fn seek(&mut self, _position: &Position) -> Result<(), Error> {
        Ok(())
    }

    fn next(&mut self) -> Result<Read, Error> {
        let batch = match self.next_input()? {
            Taken::Batch(batch) => batch,
            Taken::Nothing => return Ok(Read::Empty),
            Taken::End => return Ok(Read::End),
        };
        let lines = Lines::From(self.row + 1);
        self.row += batch.num_rows() as u64;
        let columns = self.places.iter().map(|place| Arc::clone(batch.column(*place))).collect();
        let rows = self.assembly.batch(columns, batch.num_rows(), &lines, &self.facts)?;
        Ok(Read::Rows(SplitBatch { rows, lines, rejected: Vec::new(), kinds: None }))
    }
}

struct MemorySink {
    memory: Memory,
    name: String,
    writer: u64,
    sink: u64,
    most_rows: Option<usize>,
    /// Rows that the table holds, as far as this writer knows.
    held: usize,
    /// Rows that a checkpoint has.
    prepared: usize,
}

impl Memory {
    /// The sink of a writer, which has written so many rows before.
    fn writer(&self, table: &Table, writer: u64, rows: usize) -> Result<Box<dyn Sink>, Error> {
        let name = read_options(&table.options, &table.name)?.to_owned();
        let most_rows = most_rows(&table.options)?;
        let mut content = self.content();
        let sink = content.number();
        let outputs = content.outputs.entry(name.clone()).or_default();
        let place = outputs.iter().position(|written| written.writer == writer);
        let mut written = place.map_or_else(
            || {
                let (is_live, batches) = (table.temporary, Vec::new());
                Written { writer, sink, is_live, is_done: false, batches, rows_before: rows }
            },
            |place| outputs.remove(place),
        );
        written.truncate(rows);
        (written.sink, written.is_done) = (sink, false);
        outputs.push(written);
        let held = content.inserted(&name).unwrap_or_default().iter().map(|batch| batch.num_rows()).sum();
        drop(content);
        Ok(Box::new(MemorySink { memory: self.clone(), name, writer, sink, most_rows, held, prepared: rows }))
    }
}

impl MemorySink {
    fn too_many(&self, most: usize) -> Error {
        Error::run(
            code::SIDE_TABLE_FULL,
            format!(
                "the table \"{}\" can't take another row: it holds {most} rows, its 'max-rows'",
                self.name
            ),
        )
        .hint(
            "Send late rows to a file with CREATE TABLE … ('connector' = 'filesystem', …), or allow more \
             with SET 'late-rows.max-rows'.",
        )
    }

    /// Where what it has written stands. `None`: the table was dropped meanwhile, or another sink goes on.
    fn place(&self, content: &Content) -> Option<usize> {
        let is_own = |written: &Written| written.writer == self.writer && written.sink == self.sink;
        content.outputs.get(&self.name)?.iter().position(is_own)
    }

    /// Does something with what it has written.
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Written>, usize) -> T) -> Option<T> {
        let mut content = self.memory.content();
        let place = self.place(&content)?;
        Some(change(content.outputs.get_mut(&self.name)?, place))
    }
}

impl Sink for MemorySink {
    fn write(&mut self, batch: &StreamBatch) -> Result<(), Error> {
        self.held += batch.num_rows();
        if let Some(most) = self.most_rows.filter(|most| self.held > *most) {
            return Err(self.too_many(most));
        }
        // A table that was dropped meanwhile takes no more rows.
        self.change(|all, place| all[place].add(batch.clone())).unwrap_or(Ok(()))
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.change(|all, place| {
            let written = all.remove(place);
            all.push(Written { is_done: true, ..written });
        });
        Ok(())
    }

    fn prepare(&mut self) -> Result<Option<Value>, Error> {
        let rows = self.change(|all, place| all[place].rows());
        self.prepared = rows.unwrap_or(self.prepared);
        Ok(Some(json!({ "writer": self.writer, "rows": self.prepared })))
    }

    /// What a checkpoint has stays: whoever goes on from there does not write it again.
    fn abort(&mut self) {
        let prepared = self.prepared;
        self.change(|all, place| {
            all[place].truncate(prepared);
            let is_alone = all.len() == 1;
            let written = &mut all[place];
            written.is_done = true;
            // A side table that nothing was written to is empty, not missing.
            if written.batches.is_empty() && !(written.is_live && is_alone) {
                all.remove(place);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use arrow::array::{AsArray, Int32Array};
    use arrow::datatypes::{Field, Int32Type, Schema};

    use super::*;
    use crate::connector::testing::{request, table};

    fn batch(values: &[i32]) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("v", DataType::Int32, true)]);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int32Array::from(values.to_vec()))]).unwrap()
    }

    fn read(memory: &Memory, table: &Table, batch_rows: usize) -> Vec<Vec<i32>> {
        let request = ReadRequest { batch_rows, ..request(table) };
        let mut splits = memory.source(table, &request).unwrap().splits().unwrap();
        let mut out = Vec::new();
        for split in &mut splits {
            while let Some(batch) = split.next().unwrap().rows() {
                out.push(batch.rows.column(0).as_primitive::<Int32Type>().values().to_vec());
            }
        }
        out
    }

    #[test]
    fn rows_that_were_put_are_read_again_and_again() {
        let memory = Memory::new();
        let rows = batch(&[1, 2, 3]);
        memory.put_splits("x", rows.schema(), vec![vec![rows.clone()], vec![rows.slice(2, 1)]]);
        let t = table(&[("v", DataType::Int32)], &[("connector", "memory"), ("name", "x")]);
        assert!(memory.check(&t).unwrap().bounded);
        assert_eq!(read(&memory, &t, 2), [vec![1, 2], vec![3], vec![3]]);
        assert_eq!(read(&memory, &t, 9), [vec![1, 2, 3], vec![3]]);
    }

    #[test]
    fn a_channel_ends_with_its_senders() {
        let memory = Memory::new();
        let (sender, receiver) = channel();
        memory.put_channel("t", batch(&[]).schema(), receiver);
        sender.send(batch(&[7])).unwrap();
        drop(sender);
        let t = table(&[("v", DataType::Int32)], &[("connector", "memory")]);
        assert!(!memory.check(&t).unwrap().bounded);
        assert_eq!(read(&memory, &t, 9), [vec![7]]);
        assert_eq!(memory.source(&t, &request(&t)).err().unwrap().code(), "F001");
    }

    #[test]
    fn inserts_show_when_they_are_finished() {
        let memory = Memory::new();
        let t = table(&[("v", DataType::Int32)], &[("connector", "memory")]);
        let mut sink = memory.sink(&t, batch(&[]).schema()).unwrap();
        sink.write(&StreamBatch::inserts(batch(&[1]), Instant::now())).unwrap();
        assert!(memory.take("t").is_empty());
        sink.finish().unwrap();
        assert_eq!(read(&memory, &t, 9), [vec![1]]);
        assert_eq!(memory.take("t").len(), 1);
        let mut sink = memory.sink(&t, batch(&[]).schema()).unwrap();
        sink.write(&StreamBatch::inserts(batch(&[1]), Instant::now())).unwrap();
        sink.abort();
        assert!(memory.take("t").is_empty());
    }

    #[test]
    fn a_sink_goes_on_where_a_checkpoint_has_it() {
        for (is_live, ends) in [(false, false), (false, true), (true, false), (true, true)] {
            let memory = Memory::new();
            let mut t = table(&[("v", DataType::Int32)], &[("connector", "memory")]);
            t.temporary = is_live;
            let rows = |values: &[i32]| StreamBatch::inserts(batch(values), Instant::now());
            let mut sink = memory.sink(&t, batch(&[]).schema()).unwrap();
            sink.write(&rows(&[1, 2])).unwrap();
            let first = sink.prepare().unwrap().unwrap();
            sink.write(&rows(&[3])).unwrap();
            let second = sink.prepare().unwrap().unwrap();
            sink.write(&rows(&[4])).unwrap();
            if ends {
                sink.finish().unwrap();
            }
            for told in [&second, &first, &second] {
                // The sink before it is still there, and has nothing to say any more.
                let mut resumed = memory.resume_sink(&t, batch(&[]).schema(), told).unwrap();
                sink.write(&rows(&[9])).unwrap();
                sink.abort();
                let missing: &[i32] = if *told == first { &[30, 40] } else { &[40] };
                resumed.write(&rows(missing)).unwrap();
                resumed.finish().unwrap();
                sink = resumed;
            }
            let given = read(&memory, &t, 9).concat();
            assert_eq!(given, [1, 2, 30, 40], "live: {is_live}, ends: {ends}");
        }
    }

    #[test]
    fn what_was_taken_does_not_come_again() {
        let memory = Memory::new();
        let t = table(&[("v", DataType::Int32)], &[("connector", "memory")]);
        let mut sink = memory.sink(&t, batch(&[]).schema()).unwrap();
        sink.write(&StreamBatch::inserts(batch(&[1, 2]), Instant::now())).unwrap();
        let told = sink.prepare().unwrap().unwrap();
        sink.abort();
        assert_eq!(memory.take("t").len(), 1);
        let mut sink = memory.resume_sink(&t, batch(&[]).schema(), &told).unwrap();
        sink.write(&StreamBatch::inserts(batch(&[3]), Instant::now())).unwrap();
        assert_eq!(sink.prepare().unwrap().unwrap()["rows"], 3);
        sink.finish().unwrap();
        assert_eq!(read(&memory, &t, 9), [vec![3]]);
    }
}
