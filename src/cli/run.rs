//! Runs scripts: statements in order, rows to the output, the rest to the notes.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::args::{CommonArgs, Format};
use super::output::{Output, Stop};
use super::progress::Progress;
use super::script::Script;
use super::{interrupt, notes, summary};
use crate::error::{Error, code};
use crate::runtime::{JobSummary, Monitor};
use crate::session::{InsertHandle, Outcome, QueryHandle, Session};
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
    pub(super) is_quiet: bool,
    /// Says what statements without result have done.
    pub(super) is_shell: bool,
}

impl Runner {
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
            Outcome::Insert(insert) => self.insert(*insert)?,
        }
        Ok(())
    }

    fn query(&mut self, query: QueryHandle) -> Result<(), Stop> {
        self.warn(query.warnings());
        self.tell_addresses(&query.monitor());
        let is_folded = query.is_updating() && self.output.format() != Format::ChangelogJson;
        if is_folded && !query.is_bounded() {
            let message = "the rows of this query change later on, and it has no end at which they are final";
            return Err(Error::usage(code::UNFIT_FORMAT, message).hint("Use -f changelog-json.").into());
        }
        // Rows that change are shown when they are final: at the end.
        let mut fold = if is_folded { Some(Fold::try_new(query.schema())?) } else { None };
        let canceller = query.canceller();
        let _watch = interrupt::watch(canceller.clone());
        let mut progress = self.progress(query.is_bounded(), query.monitor());
        let mut writer = self.output.rows(&query.schema().clone())?;
        let messages = pump(query)?;
        let written = loop {
            match next(&messages) {
                Next::Rows(batch) if let Some(fold) = &mut fold => {
                    if let Err(error) = fold.apply(&batch) {
                        break Err(error.into());
                    }
                }
                Next::Rows(batch) => {
                    if let Err(stop) = hidden(progress.as_ref(), || writer.write(&batch)) {
                        break Err(stop);
                    }
                }
                Next::Pause => {
                    if let Some(progress) = &mut progress {
                        progress.tick();
                    }
                    if let Err(stop) = hidden(progress.as_ref(), || writer.pause()) {
                        break Err(stop);
                    }
                }
                Next::End(ended) => break Ok(ended),
            }
        };
        drop(progress);
        let summary = match written {
            Ok(Ok(summary)) => {
                if let Some(fold) = &fold {
                    for rows in fold.batches(FOLDED_ROWS)? {
                        writer.write(&StreamBatch::inserts(rows, Instant::now()))?;
                    }
                }
                writer.end()?;
                summary
            }
            Ok(Err(error)) => {
                // What was given before stays visible; that it is not all, the error says.
                writer.pause()?;
                return Err(error.into());
            }
            Err(stop) => {
                canceller.cancel();
                wait(&messages);
                return Err(stop);
            }
        };
        self.summarize(&summary);
        Ok(())
    }

    fn insert(&mut self, insert: InsertHandle) -> Result<(), Stop> {
        self.warn(insert.warnings());
        self.tell_addresses(&insert.monitor());
        let _watch = interrupt::watch(insert.canceller());
        let mut progress = self.progress(true, insert.monitor());
        let messages = spawn(move |messages| {
            let _ = messages.send(Message::End(Box::new(insert.finish())));
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
        let is_wanted = is_bounded && !self.is_quiet && io::stderr().is_terminal();
        is_wanted.then(|| Progress::new(monitor))
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
