//! Runs scripts: statements in order, rows to the output, the rest to the notes.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::args::{CommonArgs, Format};
use super::keys::Keys;
use super::output::{LiveTable, Output, RowWriter, Stop};
use super::progress::Progress;
use super::script::Script;
use super::{interrupt, notes, summary};
use crate::error::{Error, Phase, code};
use crate::runtime::{JobSummary, Monitor};
use crate::session::{JobHandle, Outcome, QueryHandle, Session};
use crate::sql::SpannedStatement;
use crate::stream::{Fold, StreamBatch};

/// Rows that are older than this are shown, and progress and Ctrl-C are looked at.
const PAUSE: Duration = Duration::from_millis(40);
/// How long a stopped job may clean up.
const GRACE: Duration = Duration::from_secs(2);
/// Batches between the job and the output.
const AHEAD: usize = 4;
/// Rows that are written at a time where they came as changes.
const FOLDED_ROWS: usize = 8_192;
/// Rows of a result that a shell keeps.
const KEPT_ROWS: usize = 100_000;

/// A session with the settings of the command line.
///
/// # Errors
/// `U001` for a setting that does not exist or a value that does not fit.
pub(super) fn session(args: &CommonArgs) -> Result<Session, Error> {
    let mut session = Session::new();
    for (key, value) in &args.settings {
        session.set(key, value).map_err(|error| error.context("--set"))?;
    }
    if let Some(parallelism) = &args.parallelism {
        session.set("execution.parallelism", parallelism).map_err(|error| error.context("-p"))?;
    }
    Ok(session)
}

/// Runs statements and shows what they give.
pub(super) struct Runner {
    pub(super) session: Session,
    pub(super) output: Output,
    /// Errors only.
    is_quiet: bool,
    /// The rows that a shell's last query gave.
    last: Option<KeptRows>,
    /// Says what statements without result have done, and keeps rows.
    is_shell: bool,
}

impl Runner {
    pub(super) fn new(session: Session, output: Output, is_quiet: bool, is_shell: bool) -> Self {
        Self { session, output, is_quiet, last: None, is_shell }
    }

    /// The rows that a shell's last query gave, as far as they were kept.
    pub(super) fn last_result(&self) -> Option<(&SchemaRef, &[RecordBatch])> {
        self.last.as_ref().map(|last| (&last.schema, last.batches.as_slice()))
    }

    /// Runs all statements of a script; the first error ends it.
    pub(super) fn script(&mut self, script: &Script) -> Result<(), Stop> {
        for statement in self.session.parse(&script.name, &script.text)? {
            self.statement(&statement)?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &SpannedStatement) -> Result<(), Stop> {
        match self.session.execute(statement)? {
            Outcome::Done(done) if self.is_shell => notes::line(&done),
            Outcome::Done(_) => {}
            Outcome::Rows(rows) => self.output.batch(&rows)?,
            Outcome::Text(text) => self.output.text(&text)?,
            Outcome::Query(query) => self.query(*query)?,
            Outcome::Insert(insert) => self.insert(&insert)?,
        }
        Ok(())
    }

    fn query(&mut self, query: QueryHandle) -> Result<(), Stop> {
        self.warn(query.warnings());
        self.tell_addresses(query.job().monitor());
        let (is_endless, job) = (!query.is_bounded(), query.job().clone());
        let _watch = interrupt::watch(job.clone());
        let mut progress = self.progress(!is_endless, job.monitor().clone());
        let mut kept = self.is_shell.then(|| KeptRows::new(query.schema()));
        let mut view = View::open(&mut self.output, &query, self.is_shell)?;
        let keys = if self.is_shell && is_endless { Keys::watch() } else { None };
        let messages = pump(query)?;
        let mut is_stopped = false;
        let mut shown = Instant::now();
        let written = loop {
            if !is_stopped && keys.as_ref().is_some_and(Keys::is_pressed) {
                is_stopped = true;
                job.stop();
            }
            match next(&messages) {
                Next::Rows(_) if is_stopped => {}
                Next::Rows(batch) => {
                    if let Some(kept) = &mut kept {
                        kept.take(&batch);
                    }
                    if let Err(stop) = hidden(progress.as_ref(), || view.take(&batch)) {
                        break Err(stop);
                    }
                }
                Next::Pause => {}
                Next::End(ended) => break Ok(ended),
            }
            // Rows that never pause are shown all the same.
            if shown.elapsed() >= PAUSE {
                if let Some(progress) = &mut progress {
                    progress.tick();
                }
                if let Err(stop) = hidden(progress.as_ref(), || view.pause()) {
                    break Err(stop);
                }
                shown = Instant::now();
            }
        };
        drop(progress);
        drop(keys);
        is_stopped |= self.is_shell && is_endless && interrupt::is_interrupted();
        let summary = match written {
            Ok(Ok(summary)) => Some(summary),
            // Whoever stops what has no end wants to keep what it gave.
            Ok(Err(error)) if is_stopped && error.phase() == Phase::Interrupted => None,
            Ok(Err(error)) => {
                // What was given before stays visible; that it is not all, the error says.
                view.pause()?;
                return Err(error.into());
            }
            Err(stop) => {
                job.stop();
                wait(&messages);
                return Err(stop);
            }
        };
        let folded = view.end()?;
        if let Some(kept) = kept {
            self.last = Some(kept.with(folded));
        }
        match summary {
            Some(summary) => self.summarize(&summary),
            None if self.is_quiet => {}
            None => {
                let rows = summary::grouped(job.monitor().progress().rows_in);
                notes::line(&format!("stopped after {rows} rows in"));
            }
        }
        Ok(())
    }

    fn insert(&mut self, insert: &JobHandle) -> Result<(), Stop> {
        self.warn(insert.warnings());
        self.tell_addresses(insert.monitor());
        let _watch = interrupt::watch(insert.clone());
        let mut progress = self.progress(true, insert.monitor().clone());
        let job = insert.clone();
        let messages = spawn(move |messages| {
            let _ = messages.send(Message::End(Box::new(job.wait())));
        })?;
        let ended = loop {
            match next(&messages) {
                Next::Rows(_) => {}
                Next::Pause => {
                    if let Some(progress) = &mut progress {
                        progress.tick();
                    }
                }
                Next::End(ended) => break ended,
            }
        };
        drop(progress);
        self.summarize(&ended?);
        Ok(())
    }

    fn progress(&self, is_bounded: bool, monitor: Monitor) -> Option<Progress> {
        let is_wanted = (is_bounded || self.is_shell) && !self.is_quiet && io::stderr().is_terminal();
        is_wanted.then(|| Progress::new(monitor, is_bounded))
    }

    /// Where tables wait for connections: with `'port' = '0'` nobody else knows.
    fn tell_addresses(&self, monitor: &Monitor) {
        if !self.is_quiet {
            monitor.listening().iter().for_each(|(table, address)| {
                notes::line(&format!("{table} listens on {address}"));
            });
        }
    }

    fn warn(&self, warnings: &[String]) {
        if !self.is_quiet {
            warnings.iter().for_each(|warning| notes::warning(warning));
        }
    }

    fn summarize(&self, summary: &JobSummary) {
        if !self.is_quiet {
            summary::lines(summary).iter().for_each(|line| notes::line(line));
            self.warn(&summary::warnings(summary));
        }
    }
}

/// How the rows of a query are shown.
enum View<'a> {
    /// As they come.
    Scroll(RowWriter<'a>),
    /// Those that are final, at the end.
    Final(Fold, RowWriter<'a>),
    /// As they are now, in their place.
    Live { fold: Fold, table: LiveTable<'a>, is_dirty: bool },
}

impl<'a> View<'a> {
    fn open(output: &'a mut Output, query: &QueryHandle, is_shell: bool) -> Result<Self, Stop> {
        let schema = SchemaRef::clone(query.schema());
        if !query.is_updating() || output.format() == Format::ChangelogJson {
            return Ok(Self::Scroll(output.rows(&schema, query.is_bounded())?));
        }
        let fold = Fold::try_new(&schema)?;
        if is_shell && output.is_live() {
            return Ok(Self::Live { fold, table: output.live(&schema), is_dirty: true });
        }
        if !query.is_bounded() {
            let message = "the rows of this query change later on, and it has no end at which they are final";
            return Err(Error::usage(code::UNFIT_FORMAT, message).hint("Use -f changelog-json.").into());
        }
        Ok(Self::Final(fold, output.rows(&schema, true)?))
    }

    fn take(&mut self, batch: &StreamBatch) -> Result<(), Stop> {
        match self {
            Self::Scroll(writer) => writer.write(batch),
            Self::Final(fold, _) => Ok(fold.apply(batch)?),
            Self::Live { fold, is_dirty, .. } => {
                *is_dirty = true;
                Ok(fold.apply(batch)?)
            }
        }
    }

    /// No rows have come for a moment.
    fn pause(&mut self) -> Result<(), Stop> {
        match self {
            Self::Scroll(writer) | Self::Final(_, writer) => writer.pause(),
            Self::Live { fold, table, is_dirty } => {
                if std::mem::take(is_dirty) {
                    table.draw(&[fold.latest(LiveTable::room())?], fold.len())?;
                }
                Ok(())
            }
        }
    }

    /// The last row has come. Gives the final rows of a result that changed.
    fn end(mut self) -> Result<Option<Vec<RecordBatch>>, Stop> {
        self.pause()?;
        match self {
            Self::Scroll(writer) => {
                writer.end()?;
                Ok(None)
            }
            Self::Final(fold, mut writer) => {
                let rows = fold.batches(FOLDED_ROWS)?;
                for rows in &rows {
                    writer.write(&StreamBatch::inserts(rows.clone(), Instant::now()))?;
                }
                writer.end()?;
                Ok(Some(rows))
            }
            Self::Live { fold, .. } => Ok(Some(fold.batches(FOLDED_ROWS)?)),
        }
    }
}

/// Rows that a shell can draw later.
struct KeptRows {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    rows: usize,
}

impl KeptRows {
    fn new(schema: &SchemaRef) -> Self {
        Self { schema: SchemaRef::clone(schema), batches: Vec::new(), rows: 0 }
    }

    /// Keeps the rows, if there are not too many.
    fn take(&mut self, batch: &StreamBatch) {
        let room = KEPT_ROWS.saturating_sub(self.rows).min(batch.num_rows());
        if room > 0 && batch.kinds.is_none() {
            self.rows += room;
            self.batches.push(batch.rows.slice(0, room));
        }
    }

    /// With the final rows of a result that changed.
    fn with(mut self, folded: Option<Vec<RecordBatch>>) -> Self {
        if let Some(batches) = folded {
            self.batches = batches;
        }
        self
    }
}

fn hidden<T>(progress: Option<&Progress>, write: impl FnOnce() -> T) -> T {
    match progress {
        Some(progress) => progress.hidden(write),
        None => write(),
    }
}

/// What comes from the thread that waits for a job.
enum Message {
    Rows(StreamBatch),
    End(Box<Result<JobSummary, Error>>),
}

/// What the output does next.
enum Next {
    Rows(StreamBatch),
    Pause,
    End(Result<JobSummary, Error>),
}

/// Takes a query's rows on a thread of its own, so that the output notices when they pause.
fn pump(mut query: QueryHandle) -> Result<Receiver<Message>, Error> {
    spawn(move |messages| {
        let taken = loop {
            match query.next_batch() {
                Ok(Some(batch)) => {
                    if messages.send(Message::Rows(batch)).is_err() {
                        break Ok(());
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let finished = query.finish();
        let _ = messages.send(Message::End(Box::new(taken.and(finished))));
    })
}

fn spawn(work: impl FnOnce(SyncSender<Message>) + Send + 'static) -> Result<Receiver<Message>, Error> {
    let (sender, receiver) = sync_channel(AHEAD);
    thread::Builder::new()
        .name("rows".to_owned())
        .spawn(move || work(sender))
        .map_err(|error| Error::internal("command line", error))?;
    Ok(receiver)
}

fn next(messages: &Receiver<Message>) -> Next {
    match messages.recv_timeout(PAUSE) {
        Ok(Message::Rows(_)) if interrupt::is_interrupted() => Next::Pause,
        Ok(Message::Rows(batch)) => Next::Rows(batch),
        Ok(Message::End(_)) if interrupt::is_interrupted() => Next::End(Err(Error::interrupted())),
        Ok(Message::End(ended)) => Next::End(*ended),
        Err(RecvTimeoutError::Timeout) if interrupt::is_interrupted() => {
            wait(messages);
            Next::End(Err(Error::interrupted()))
        }
        Err(RecvTimeoutError::Timeout) => Next::Pause,
        Err(RecvTimeoutError::Disconnected) => {
            Next::End(Err(Error::internal("command line", "the thread of a job is gone")))
        }
    }
}

/// Gives a stopped job time to clean up. A reader that hangs in the system is not waited for.
fn wait(messages: &Receiver<Message>) {
    let until = Instant::now() + GRACE;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        match messages.recv_timeout(left) {
            Ok(Message::Rows(_)) => {}
            Ok(Message::End(_)) | Err(_) => return,
        }
    }
}
