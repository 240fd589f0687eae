//! Connectors and formats that a program brings along.

use std::fs;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};
use tidegate::catalog::{Table, TableFacts};
use tidegate::connector::{
    Connector, DecodedLines, Format, LineDecoder, LineEncoder, Lines, OptionReader, Read, ReadRequest, Sink,
    Source, SplitReader,
};
use tidegate::stream::StreamBatch;
use tidegate::{Error, Outcome, Session};

use super::{code, failure, lines, rows};

/// Gives the numbers up to `'to'`, and takes rows.
#[derive(Clone, Default)]
struct Shelf {
    /// What was written, and how it ended.
    written: Arc<Mutex<Vec<String>>>,
}

fn highest(table: &Table) -> Result<i64, Error> {
    let options = OptionReader::new("connector \"shelf\"", &table.options, &[&["to"]])?;
    Ok(options.integer("to", 1..=100)?.unwrap_or(3))
}

impl Connector for Shelf {
    fn name(&self) -> &'static str {
        "shelf"
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        highest(table)?;
        Ok(TableFacts { is_sink: true, ..TableFacts::source(true) })
    }

    fn options(&self) -> Vec<&'static str> {
        vec!["to"]
    }

    fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Numbers { next: 1, last: highest(table)?, request: request.clone() }))
    }

    fn sink(&self, _table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Writer(self.clone())))
    }
}

#[derive(Clone)]
struct Numbers {
    next: i64,
    last: i64,
    request: ReadRequest,
}

impl Source for Numbers {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        Ok(vec![Box::new(self.clone())])
    }
}

impl SplitReader for Numbers {
    fn name(&self) -> &str {
        "numbers"
    }

    fn next(&mut self) -> Result<Read, Error> {
        if self.next > self.last {
            return Ok(Read::End);
        }
        let number: ArrayRef = Arc::new(Int64Array::from(vec![self.next]));
        let twice: ArrayRef = Arc::new(Int64Array::from(vec![self.next * 2]));
        self.next += 1;
        let rows = RecordBatch::try_from_iter([("n", number), ("twice", twice)]).expect("two columns");
        Ok(Read::Rows(self.request.select(&rows, Lines::From(self.next as u64 - 1))?))
    }
}

struct Writer(Shelf);

impl Writer {
    fn note(&self, what: impl IntoIterator<Item = String>) {
        self.0.written.lock().expect("nobody panicked").extend(what);
    }
}

impl Sink for Writer {
    fn write(&mut self, batch: &StreamBatch) -> Result<(), Error> {
        self.note(lines(&batch.rows));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.note(["finished".to_owned()]);
        Ok(())
    }

    fn abort(&mut self) {
        self.note(["aborted".to_owned()]);
    }
}

#[test]
fn a_connector_reads_writes_and_has_its_options_checked() {
    let (shelf, mut session) = (Shelf::default(), Session::new());
    session.register_connector(Arc::new(shelf.clone())).unwrap();
    session.run("CREATE TABLE t (n BIGINT, twice BIGINT) WITH ('connector' = 'shelf', 'to' = '2')").unwrap();
    // In any order of columns, and without any.
    assert_eq!(rows(&mut session, "SELECT twice, n FROM t"), ["2|1", "4|2"]);
    assert_eq!(rows(&mut session, "SELECT COUNT(*) FROM t"), ["2"]);
    assert_eq!(
        rows(&mut session, "SELECT n FROM t WHERE _ingested_at > TIMESTAMP '2000-01-01 00:00:00'"),
        ["1", "2"]
    );
    for outcome in session.run("INSERT INTO t SELECT n, n FROM t").unwrap() {
        let Outcome::Insert(job) = outcome else { panic!("no job") };
        assert_eq!(job.wait().unwrap().rows_out, 2);
    }
    assert_eq!(*shelf.written.lock().unwrap(), ["1|1", "2|2", "finished"]);
    shelf.written.lock().unwrap().clear();
    for outcome in session.run("INSERT INTO t SELECT 1 / (n - 2), n FROM t").unwrap() {
        let Outcome::Insert(job) = outcome else { panic!("no job") };
        assert_eq!(job.wait().unwrap_err().code(), "R002");
    }
    assert_eq!(shelf.written.lock().unwrap().last().unwrap(), "aborted");

    let wrong = |options: &str| format!("CREATE TABLE u (n BIGINT) WITH ('connector' = {options})");
    for (options, expected) in
        [("'shelf', 'too' = '2'", "C001"), ("'shelf', 'to' = '0'", "C002"), ("'shelv'", "C004")]
    {
        assert_eq!(code_of_run(&mut session, &wrong(options)), expected);
    }
    session.run("CREATE TABLE more (n BIGINT, other INT) WITH ('connector' = 'shelf')").unwrap();
    assert_eq!(code(&failure(&mut session, "SELECT other FROM more")), "C006");
    assert_eq!(code(&session.register_connector(Arc::new(shelf)).unwrap_err()), "C005");
}

fn code_of_run(session: &mut Session, sql: &str) -> &'static str {
    let error = session.run(sql).err().unwrap_or_else(|| panic!("{sql} works"));
    if error.hint_text().is_some() { code(&error) } else { error.code() }
}

#[test]
fn a_connector_that_only_reads_needs_no_more() {
    struct ReadOnly;
    impl Connector for ReadOnly {
        fn name(&self) -> &'static str {
            "readonly"
        }

        fn check(&self, _table: &Table) -> Result<TableFacts, Error> {
            Ok(TableFacts::source(true))
        }
    }
    let mut session = Session::new();
    session.register_connector(Arc::new(ReadOnly)).unwrap();
    session.run("CREATE TABLE t (n INT) WITH ('connector' = 'readonly')").unwrap();
    let error = session.run("INSERT INTO t VALUES (1)").err().unwrap();
    assert!(error.message().contains("\"t\""), "{error}");
    assert_eq!(code_of_run(&mut session, "CREATE TABLE u WITH ('connector' = 'readonly')"), "C006");
}

/// Numbers with a word before them: `n=7`. Its option is the word.
struct Labelled {
    fault: Option<&'static str>,
}

fn word(options: OptionReader<'_>) -> String {
    options.text("labelled.word").unwrap_or("n").to_owned()
}

impl Format for Labelled {
    fn name(&self) -> &'static str {
        "labelled"
    }

    fn options(&self) -> Vec<&'static str> {
        vec!["labelled.word"]
    }

    fn directions(&self) -> (bool, bool) {
        (true, true)
    }

    fn check(&self, options: OptionReader<'_>, table: &Table) -> Result<(), Error> {
        if word(options).is_empty() {
            return Err(options.invalid("labelled.word", "is empty").hint("Give a word."));
        }
        match table.columns.len() {
            0..=2 => Ok(()),
            _ => {
                Err(Error::plan(tidegate::error::code::INVALID_TABLE, "too many columns")
                    .hint("Declare one."))
            }
        }
    }

    fn decoder(&self, options: OptionReader<'_>, schema: &SchemaRef) -> Result<Box<dyn LineDecoder>, Error> {
        Ok(Box::new(Labels { word: word(options), schema: schema.clone(), fault: self.fault }))
    }

    fn encoder(&self, options: OptionReader<'_>, schema: &SchemaRef) -> Result<Box<dyn LineEncoder>, Error> {
        Ok(Box::new(Labels { word: word(options), schema: schema.clone(), fault: self.fault }))
    }
}

struct Labels {
    word: String,
    schema: SchemaRef,
    fault: Option<&'static str>,
}

impl LineDecoder for Labels {
    fn decode(&mut self, lines: &BinaryArray) -> Result<DecodedLines, Error> {
        let (mut numbers, mut rejected) = (Vec::new(), Vec::new());
        for (index, line) in lines.iter().flatten().enumerate() {
            let text = std::str::from_utf8(line).unwrap_or_default();
            let number = text.strip_prefix(&self.word).and_then(|rest| rest.strip_prefix('='));
            match number.and_then(|number| number.parse::<i64>().ok()) {
                Some(number) => numbers.push(number),
                None => rejected.push((index, format!("no {} in \"{text}\"", self.word))),
            }
        }
        match self.fault {
            Some("panics") => panic!("out of labels"),
            Some("loses") => drop(numbers.pop()),
            Some("twice") => rejected.push((0, "again".to_owned())),
            _ => {}
        }
        let count = numbers.len();
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
        let columns = self.schema.fields().iter().map(|_| numbers.clone()).collect();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(count));
        let rows = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .expect("the wanted columns");
        Ok(DecodedLines { rows, rejected })
    }
}

impl LineEncoder for Labels {
    fn encode(&mut self, batch: &StreamBatch) -> Result<BinaryArray, Error> {
        let numbers = batch.rows.column(0).as_primitive::<Int64Type>();
        let end = if self.fault == Some("ends") { "\n" } else { "" };
        let line = |number: &i64| format!("{}={number}{end}", self.word).into_bytes();
        Ok(BinaryArray::from_iter_values(numbers.values().iter().map(line)))
    }
}

fn table(path: &std::path::Path, options: &str) -> String {
    format!(
        "CREATE TABLE t (n BIGINT, line BIGINT METADATA FROM 'file.line' VIRTUAL) WITH ('connector' = 'filesystem', \
         'path' = '{}', 'format' = 'labelled'{options})",
        path.display()
    )
}

#[test]
fn a_format_reads_lines_of_any_connector() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.txt");
    fs::write(&path, "n=1\nfour\nn=3\nn=\nn=5").unwrap();
    for batch_rows in ["1", "2", "8192"] {
        let mut session = Session::new();
        session.set("execution.batch-rows", batch_rows).unwrap();
        session.register_format(Arc::new(Labelled { fault: None })).unwrap();
        session.run(&table(&path, ", 'errors' = 'side'")).unwrap();
        // The metadata goes on being that of the row.
        let sql = "SELECT n, line FROM t";
        let mut query = session.query(sql).unwrap();
        let mut got = Vec::new();
        while let Some(batch) = query.next_batch().unwrap() {
            got.extend(lines(&batch.rows));
        }
        assert_eq!(got, ["1|1", "3|3", "5|5"]);
        let summary = query.finish().unwrap();
        assert!(summary.reconciles());
        assert_eq!((summary.rows_in, summary.malformed), (5, 2));
        assert_eq!(rows(&mut session, "SELECT line FROM t WHERE n > 1"), ["3", "5"]);
        assert_eq!(rows(&mut session, "SELECT COUNT(*) FROM t"), ["3"]);
    }
    let mut session = Session::new();
    session.register_format(Arc::new(Labelled { fault: None })).unwrap();
    session.run(&table(&path, "")).unwrap();
    let error = failure(&mut session, "SELECT n FROM t");
    assert_eq!(code(&error), "F002");
    assert!(error.message().contains("line 2, no n in \"four\""), "{error}");
}

#[test]
fn what_a_format_writes_it_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let mut session = Session::new();
    session.register_format(Arc::new(Labelled { fault: None })).unwrap();
    session.run(&table(&path, ", 'labelled.word' = 'count'")).unwrap();
    for outcome in session.run("INSERT INTO t (n) VALUES (1), (-2)").unwrap() {
        let Outcome::Insert(job) = outcome else { panic!("no job") };
        job.wait().unwrap();
    }
    assert_eq!(rows(&mut session, "SELECT n FROM t"), ["1", "-2"]);
    let file = fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_to_string(file).unwrap(), "count=1\ncount=-2\n");
}

#[test]
fn options_of_a_format_are_checked() {
    let mut session = Session::new();
    session.register_format(Arc::new(Labelled { fault: None })).unwrap();
    let path = std::path::Path::new("numbers.txt");
    for (options, expected) in [
        (", 'labelled.wort' = 'x'", "C001"),
        (", 'labelled.word' = ''", "C002"),
        (", 'csv.header' = 'true'", "C001"),
        (", 'errors' = 'ignore'", "C002"),
    ] {
        assert_eq!(code_of_run(&mut session, &table(path, options)), expected, "{options}");
    }
    let near = table(path, "").replace("'labelled'", "'labeled'");
    let error = session.run(&near).err().unwrap();
    assert_eq!((code(&error), error.hint_text()), ("C004", Some("Use 'labelled'.")));
    let columns = table(path, "").replace("(n BIGINT,", "(n BIGINT, m BIGINT,");
    assert_eq!(code_of_run(&mut session, &columns), "C006");
    let none = table(path, "").replace("(n BIGINT, line BIGINT METADATA FROM 'file.line' VIRTUAL) ", "");
    assert_eq!(code_of_run(&mut session, &none), "C006");
    // Other formats are what they were.
    let csv = table(path, ", 'csv.header' = 'true'").replace("'labelled'", "'csv'");
    session.run(&csv).unwrap();

    assert_eq!(code(&session.register_format(Arc::new(Labelled { fault: None })).unwrap_err()), "C005");
    struct Named(&'static str, &'static str);
    impl Format for Named {
        fn name(&self) -> &'static str {
            self.0
        }
        fn options(&self) -> Vec<&'static str> {
            vec![self.1]
        }
        fn directions(&self) -> (bool, bool) {
            (true, false)
        }
    }
    for (name, option, expected) in [("JSON", "JSON.x", "C005"), ("mine", "path", "C002")] {
        assert_eq!(code(&session.register_format(Arc::new(Named(name, option))).unwrap_err()), expected);
    }
}

#[test]
fn a_format_that_breaks_its_word_fails_its_query() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.txt");
    fs::write(&path, "n=1\nn=2\n").unwrap();
    for (fault, expected) in [("panics", "R002"), ("loses", "F002"), ("twice", "F002")] {
        let mut session = Session::new();
        session.register_format(Arc::new(Labelled { fault: Some(fault) })).unwrap();
        session.run(&table(&path, ", 'errors' = 'skip'")).unwrap();
        let error = failure(&mut session, "SELECT n FROM t");
        assert_eq!(code(&error), expected, "{error}");
        assert!(error.message().contains("\"labelled\""), "{error}");
    }
    let mut session = Session::new();
    session.register_format(Arc::new(Labelled { fault: Some("ends") })).unwrap();
    session.run(&table(&folder.path().join("out"), "")).unwrap();
    for outcome in session.run("INSERT INTO t (n) VALUES (1)").unwrap() {
        let Outcome::Insert(job) = outcome else { panic!("no job") };
        assert_eq!(code(&job.wait().unwrap_err()), "F002");
    }
    assert!(
        !folder.path().join("out").exists()
            || fs::read_dir(folder.path().join("out")).unwrap().next().is_none()
    );
}
