//! Runs scripts: statements in order, rows to the output, the rest to the notes.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::args::{CommonArgs, Format};
use super::background::{Background, called};
use super::keys::Keys;
use super::output::{LiveTable, Output, RowWriter, Stop};
use super::progress::{Progress, Shown};
use super::report::Report;
use super::script::Script;
use super::shell::Notices;
use super::{interrupt, notes, summary};
use crate::error::{Error, Phase, code};
use crate::runtime::{JobSummary, Monitor};
use crate::session::{JobHandle, Outcome, QueryHandle, Session};
use crate::sql::{SpannedStatement, Statement};
use crate::stream::{Fold, StreamBatch};

/// Rows that are older than this are shown, and progress and Ctrl-C are looked at.
const PAUSE: Duration = Duration::from_millis(40);
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
    report: Report,
    /// Inserts of scripts that go on beside the rest.
    background: Background,
    /// The rows that a shell's last query gave.
    last: Option<KeptRows>,
    /// Says what statements without result have done, and keeps rows.
    is_shell: bool,
    /// Where a shell hears of inserts that are over.
    notices: Option<Notices>,
}

impl Runner {
    pub(super) fn new(session: Session, output: Output, report: Report, is_shell: bool) -> Self {
        let background = Background::default();
        Self { session, output, report, background, last: None, is_shell, notices: None }
    }

    /// From now on a shell hears of inserts that are over.
    pub(super) fn tell(&mut self, notices: Notices) {
        self.notices = Some(notices);
    }

    /// The rows that a shell's last query gave, as far as they were kept.
    pub(super) fn last_result(&self) -> Option<(&SchemaRef, &[RecordBatch])> {
        self.last.as_ref().map(|last| (&last.schema, last.batches.as_slice()))
    }

    /// Runs all statements of a script; the first error ends it.
    pub(super) fn script(&mut self, script: &Script) -> Result<(), Stop> {
        for statement in self.session.parse(&script.name, &script.text)? {
            if interrupt::is_drained() {
                let line = statement.span.start.line;
                let left_out = format!("{}: what follows from line {line} on was not run", script.name);
                return Err(Error::interrupted().context(left_out).into());
            }
            self.statement(&statement)?;
            if self.report.has_suspended() {
                return Err(if interrupt::is_late() { interrupt::reason().into() } else { Stop::Closed });
            }
        }
        Ok(())
    }

    fn statement(&mut self, statement: &SpannedStatement) -> Result<(), Stop> {
        self.background.look(&mut self.report, None)?;
        // Who does not want to wait until it is drained presses Ctrl-C.
        let _watch = match &statement.statement {
            Statement::StopJob(stop) => self.session.jobs().get(&stop.job.name).map(interrupt::watch),
            _ => None,
        };
        match self.session.execute(statement)? {
            Outcome::Done(done) if self.is_shell => notes::line(&done),
            Outcome::Done(_) => {}
            Outcome::Rows(rows) => self.output.batch(&rows)?,
            Outcome::Text(text) => self.output.text(&text)?,
            Outcome::Query(query) => self.query(*query)?,
            Outcome::Insert(job) if job.is_bounded() => self.insert(&job)?,
            Outcome::Insert(job) => self.leave_running(job)?,
        }
        Ok(())
    }

    fn query(&mut self, query: QueryHandle) -> Result<(), Stop> {
        self.report.warn(query.warnings());
        self.tell_addresses(query.job().monitor());
        let (is_endless, job) = (!query.is_bounded(), query.job().clone());
        let _watch = interrupt::watch(job.clone());
        let mut progress = match (is_endless, self.is_shell) {
            (false, _) => self.progress(Shown::Bounded, job.monitor().clone()),
            (true, true) => self.progress(Shown::UntilKey, job.monitor().clone()),
            (true, false) => None,
        };
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
            match next(&messages, &job) {
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
            if let Err(error) = self.background.glance(&mut self.report, &job) {
                break Err(error.into());
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
            Ok(Err(_)) if job.is_suspended() => {
                view.pause()?;
                self.report.suspended(&job);
                return Ok(());
            }
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
            Some(summary) => self.report.summarize(&job, &summary)?,
            None => {
                let rows = summary::grouped(job.monitor().progress().rows_in);
                self.report.note(&format!("stopped after {rows} rows in"));
            }
        }
        Ok(())
    }

    /// An insert that does not end by itself goes on beside what follows.
    fn leave_running(&mut self, job: JobHandle) -> Result<(), Stop> {
        self.report.begun(&job);
        self.tell_addresses(job.monitor());
        let number = job.number();
        if let Some(notices) = &self.notices {
            self.report.note(&format!(
                "{} runs in the background; see SHOW JOBS and DESCRIBE JOB {number}, end it with \
                 STOP JOB {number} [WITH DRAIN]",
                called(&job)
            ));
            interrupt::keep(job.clone());
            return Ok(notices.watch(job)?);
        }
        self.report.note(&format!("{} runs beside what follows; its input does not end", called(&job)));
        self.background.add(job);
        Ok(())
    }

    /// Waits for the inserts of scripts that run beside.
    ///
    /// # Errors
    /// What made one of them fail; then the others are stopped.
    pub(super) fn wait_for_background(&mut self) -> Result<(), Stop> {
        let mut progress: Option<(u64, Option<Progress>)> = None;
        loop {
            self.background.look(&mut self.report, None)?;
            let Some(job) = self.background.first() else {
                let is_late = self.report.has_suspended() && interrupt::is_late();
                return if is_late { Err(interrupt::reason().into()) } else { Ok(()) };
            };
            if interrupt::is_interrupted() && job.checkpoints().is_none() {
                let _ = job.wait_for(super::GRACE);
                return Err(interrupt::reason().into());
            }
            if progress.as_ref().is_none_or(|(number, _)| *number != job.number()) {
                drop(progress.take());
                progress = Some((job.number(), self.progress(Shown::Endless, job.monitor().clone())));
            }
            let _ = job.wait_for(PAUSE);
            self.report.look_at_checkpoints(job);
            if let Some((_, Some(progress))) = &mut progress {
                progress.tick();
            }
        }
    }

    /// Waits for an insert that ends.
    fn insert(&mut self, insert: &JobHandle) -> Result<(), Stop> {
        self.report.begun(insert);
        self.tell_addresses(insert.monitor());
        let _watch = interrupt::watch(insert.clone());
        let mut progress = self.progress(Shown::Bounded, insert.monitor().clone());
        let job = insert.clone();
        let messages = spawn(move |messages| {
            let _ = messages.send(Message::End(Box::new(job.wait())));
        })?;
        let ended = loop {
            match next(&messages, insert) {
                Next::Rows(_) => {}
                Next::Pause => {
                    if let Some(progress) = &mut progress {
                        progress.tick();
                    }
                    hidden(progress.as_ref(), || self.report.look_at_checkpoints(insert));
                    if let Err(error) = self.background.glance(&mut self.report, insert) {
                        insert.stop();
                        wait(&messages);
                        return Err(error.into());
                    }
                }
                Next::End(ended) => break ended,
            }
        };
        drop(progress);
        match ended {
            Err(_) if insert.is_suspended() => self.report.suspended(insert),
            ended => self.report.summarize(insert, &ended?)?,
        }
        Ok(())
    }

    fn progress(&self, shown: Shown, monitor: Monitor) -> Option<Progress> {
        let is_wanted = !self.report.is_quiet() && io::stderr().is_terminal();
        is_wanted.then(|| Progress::new(monitor, shown))
    }

    /// Where tables wait for connections: with `'port' = '0'` nobody else knows.
    fn tell_addresses(&self, monitor: &Monitor) {
        monitor.listening().iter().for_each(|(table, address)| {
            self.report.note(&format!("{table} listens on {address}"));
        });
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

/// What a job gives next. Where it is to stop behind a checkpoint, that takes the time that it takes.
fn next(messages: &Receiver<Message>, job: &JobHandle) -> Next {
    match messages.recv_timeout(PAUSE) {
        Ok(Message::Rows(_)) if interrupt::is_interrupted() => Next::Pause,
        Ok(Message::Rows(batch)) => Next::Rows(batch),
        // An insert that was done before it could be stopped is done. Of a query rows were dropped since.
        Ok(Message::End(ended))
            if interrupt::is_interrupted() && (ended.is_err() || job.tables().is_empty()) =>
        {
            Next::End(Err(interrupt::reason()))
        }
        Ok(Message::End(ended)) => Next::End(*ended),
        Err(RecvTimeoutError::Timeout) if interrupt::is_interrupted() && job.checkpoints().is_none() => {
            wait(messages);
            Next::End(Err(interrupt::reason()))
        }
        Err(RecvTimeoutError::Timeout) => Next::Pause,
        Err(RecvTimeoutError::Disconnected) => {
            Next::End(Err(Error::internal("command line", "the thread of a job is gone")))
        }
    }
}

/// Gives a stopped job time to clean up. A reader that hangs in the system is not waited for.
fn wait(messages: &Receiver<Message>) {
    let until = Instant::now() + super::GRACE;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        match messages.recv_timeout(left) {
            Ok(Message::Rows(_)) => {}
            Ok(Message::End(_)) | Err(_) => return,
        }
    }
}
