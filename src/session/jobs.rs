//! The jobs of a session, running or done, and what is asked about them.

use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::analyze;
use super::job::{Facts, JobHandle, JobState, inserted_tables};
use crate::catalog::SYSTEM_CONNECTOR;
use crate::error::{Error, Phase, Place, Span, code};
use crate::operator::KeyFilter;
use crate::plan::{Guarantee, Operation, StreamPlan};
use crate::runtime::{
    CheckpointStatus, Diagnosis, JobSnapshot, RunningJob, delay_text, diagnose, interval_sql,
};
use crate::sql::{Diagnose, Key, KeyCondition, Question};
use crate::stream::{Clock, SystemClock};

/// Jobs that are remembered; the oldest go.
const MOST: usize = 64;
/// A snapshot that is older is not what loads are compared with.
const WINDOW_US: u64 = 10_000_000;
/// How long to look at a job where nobody says it, and to wait for its operators.
const LOOK: Duration = Duration::from_secs(1);
/// Over less than this no load is told.
const SHORTEST_US: u64 = 500_000;

/// How long jobs may clean up whose session is gone.
const GRACE: Duration = Duration::from_secs(2);

/// The jobs of a session. A clone is the same set of jobs.
#[derive(Clone, Default)]
pub struct Jobs(Arc<Mutex<Content>>);

#[derive(Default)]
struct Content {
    jobs: Vec<Job>,
    started: u64,
}

/// A job as the session knows it.
#[derive(Clone)]
struct Job {
    handle: JobHandle,
    /// It reads nothing but tables that tell of jobs.
    is_about_jobs: bool,
    /// What was seen of it before, the oldest first: two snapshots some seconds apart.
    seen: Vec<JobSnapshot>,
}

impl Job {
    fn is_meant_by(&self, key: Option<&Key>) -> bool {
        match key {
            None => !self.is_about_jobs,
            Some(key) => self.is_called(&key.name),
        }
    }

    fn is_called(&self, name: &str) -> bool {
        let job = &self.handle;
        job.number().to_string() == name
            || job.name() == name
            || job.tables().iter().any(|table| table == name)
    }

    /// The plan with what its operators did from now on for some time; of a job that is over from its
    /// start.
    fn analyze(&self, over: Duration, json: bool) -> String {
        let (before, now) = self.handle.monitor().observe(over);
        let before = Some(&before).filter(|before| !before.is_over);
        match json {
            true => format!("{:#}\n", analyze::to_json(self.handle.plan(), before, &now)),
            false => analyze::text(self.handle.plan(), before, &now),
        }
    }

    /// The open windows that have groups with this key.
    fn windows_of(&self, condition: &KeyCondition, json: bool) -> Result<String, Error> {
        let filter = KeyFilter { column: condition.key.value.clone(), value: condition.value.clone() };
        let keys = window_keys(self.handle.plan());
        if !keys.iter().any(|key| key.eq_ignore_ascii_case(&filter.column)) {
            let message = format!("no windows of the job are grouped by \"{}\"", filter.column);
            let known: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
            let error = Error::plan(code::UNKNOWN_COLUMN, message).at(place_of(&condition.key));
            return Err(match known.is_empty() {
                true => error.hint("Leave WHERE out: its windows have no keys."),
                false => error.hint(format!("Use one of {}.", known.join(", "))),
            });
        }
        let (snapshot, silent) = self.handle.monitor().snapshot_of_key(&filter, LOOK);
        let before = self.seen.last().filter(|seen| seen.elapsed_us < snapshot.elapsed_us);
        let diagnosis = diagnose(self.handle.plan(), before, &snapshot);
        if json {
            let (windows, silent) = (diagnosis.to_json()["windows"].clone(), json!(silent));
            return Ok(format!("{:#}\n", json!({ "windows": windows, "unanswered": silent })));
        }
        let mut text = diagnosis.windows_text();
        if !silent.is_empty() {
            let _ = writeln!(text, "too busy to answer: {}", silent.join(", "));
        }
        Ok(text)
    }

    /// What is known now, and a snapshot to compare it with.
    fn look(&mut self) -> (Option<JobSnapshot>, JobSnapshot) {
        let now = self.handle.metrics();
        let age = |seen: &JobSnapshot| now.elapsed_us.saturating_sub(seen.elapsed_us);
        let before = self.seen.iter().find(|seen| (SHORTEST_US..=WINDOW_US).contains(&age(seen)));
        let before = before.filter(|_| !now.is_over).cloned();
        if self.seen.last().is_none_or(|last| age(last) >= SHORTEST_US) {
            self.seen.retain(|seen| age(seen) <= WINDOW_US);
            self.seen.push(now.clone());
        }
        (before, now)
    }
}

/// The jobs of the session that owns them: with it they end.
#[derive(Default)]
pub(super) struct OwnJobs(pub(super) Jobs);

impl Drop for OwnJobs {
    fn drop(&mut self) {
        let jobs = self.0.handles();
        // Whoever holds the handle of a query goes on with it.
        let running: Vec<_> =
            jobs.iter().filter(|job| !job.tables().is_empty() && !job.state().is_over()).collect();
        running.iter().for_each(|job| job.suspend());
        let clock = SystemClock::default();
        for job in running {
            // A sink that hangs in the system is not waited for.
            let waited = Duration::from_micros(clock.elapsed_us().unsigned_abs());
            if job.wait_for(GRACE.saturating_sub(waited)).is_none() {
                job.stop();
            }
        }
    }
}

/// A job at one moment.
#[derive(Debug, Clone)]
pub struct JobStatus {
    /// Its number in the session, from 1.
    pub number: u64,
    /// Its name: see [`JobHandle::name`].
    pub name: String,
    /// How far it is.
    pub state: JobState,
    /// What was measured.
    pub snapshot: JobSnapshot,
    /// What was found out.
    pub diagnosis: Diagnosis,
    /// What is known of its checkpoints; `None`: it takes none.
    pub checkpoints: Option<CheckpointStatus>,
}

impl JobStatus {
    /// How old the last whole checkpoint is, microseconds; `None`: there is none of this run. Zero where the clock was
    /// set back since.
    pub(super) fn checkpoint_age_us(&self) -> Option<i64> {
        let status = self.checkpoints.as_ref().filter(|status| status.last.is_some())?;
        Some(self.snapshot.as_of_us.saturating_sub(status.last_taken_us).max(0))
    }
}

impl Jobs {
    /// How many were started.
    pub(super) fn started(&self) -> u64 {
        self.content().started
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a job in. `name`: by default the tables that it writes.
    pub(super) fn add(
        &self,
        running: &RunningJob,
        plan: StreamPlan,
        text: &str,
        name: Option<&str>,
        guarantee: Option<Guarantee>,
    ) -> JobHandle {
        let tables = inserted_tables(&plan);
        let name = match (name, tables.as_slice()) {
            (Some(name), _) => name.to_owned(),
            (None, []) => "query".to_owned(),
            (None, tables) => tables.join(", "),
        };
        let is_about_jobs = reads_system_only(&plan);
        let mut content = self.content();
        content.started += 1;
        let plan = Arc::new(plan);
        let (number, text) = (content.started, text.to_owned());
        let facts = Facts { number, name, tables, plan, text, guarantee };
        let handle = JobHandle::new(facts, running);
        content.jobs.push(Job { handle: handle.clone(), is_about_jobs, seen: Vec::new() });
        let mut more = content.jobs.len().saturating_sub(MOST);
        content.jobs.retain(|job| {
            let goes = more > 0 && job.handle.state().is_over();
            more -= usize::from(goes);
            !goes
        });
        handle
    }

    /// The handles of all jobs, the oldest first. Of those that are over only the last ones are known.
    pub fn handles(&self) -> Vec<JobHandle> {
        self.content().jobs.iter().map(|job| job.handle.clone()).collect()
    }

    /// All jobs now, the oldest first. No task waits for it.
    pub fn status(&self) -> Vec<JobStatus> {
        self.content().jobs.iter_mut().map(status).collect()
    }

    /// All jobs but those that only look at jobs.
    pub(super) fn observed(&self) -> Vec<JobStatus> {
        self.content().jobs.iter_mut().filter(|job| !job.is_about_jobs).map(status).collect()
    }

    /// All jobs now, for programs.
    pub fn to_json(&self) -> Value {
        let job = |status: JobStatus| {
            let mut all = json!({
                "job": status.number,
                "name": status.name,
                "state": status.state.name(),
                "snapshot": status.snapshot.to_json(),
                "diagnosis": status.diagnosis.to_json(),
            });
            if let Some(checkpoints) = &status.checkpoints {
                all["checkpoints"] = checkpoints.to_json();
                all["checkpoints"]["last_age_ms"] = status.checkpoint_age_us().map(|age| age / 1_000).into();
            }
            all
        };
        json!({ "jobs": self.status().into_iter().map(job).collect::<Vec<_>>() })
    }

    /// The job of that number, or the last one of that name or that writes that table; one that runs before
    /// those that are over.
    pub fn get(&self, job: &str) -> Option<JobHandle> {
        let content = self.content();
        let found = place(&content.jobs, |other| other.is_called(job))?;
        Some(content.jobs[found].handle.clone())
    }

    /// The job that a person names, and what is known of it now.
    pub(super) fn describe(&self, key: &Key) -> Result<(JobHandle, JobStatus), Error> {
        Ok((self.job(Some(key))?.handle, self.find(Some(key))?))
    }

    /// Ends a job, behind a checkpoint if it takes some, and waits for that; says what was done. Whoever takes the rows of a query waits for it himself.
    pub(super) fn stop(&self, key: &Key, drain: bool) -> Result<String, Error> {
        let job = self.job(Some(key))?.handle;
        let named = format!("job {} ({})", job.number(), job.name());
        if job.state().is_over() {
            return Ok(format!("{named} is {} already", job.state().name()));
        }
        if drain {
            job.drain()
        } else {
            job.suspend()
        }
        if job.tables().is_empty() {
            return Ok(format!("{named} is {}", job.state().name()));
        }
        // A checkpoint takes the time that it takes.
        let is_waited_for = drain || job.checkpoints().is_some();
        match if is_waited_for { Some(job.wait()) } else { job.wait_for(GRACE) } {
            Some(Ok(summary)) => {
                let done = if drain { "drained" } else { "finished" };
                Ok(format!("{done} {named}: {} rows in, {} rows out", summary.rows_in, summary.rows_out))
            }
            Some(Err(error)) if error.phase() != Phase::Interrupted => Err(error),
            Some(Err(_)) => match job.checkpoints().filter(|status| status.is_suspended) {
                Some(CheckpointStatus { last: Some(last), .. }) => {
                    Ok(format!("stopped {named} behind its checkpoint {last}"))
                }
                _ => Ok(format!("stopped {named}")),
            },
            None => Ok(format!("{named} was told to stop and still cleans up")),
        }
    }

    /// The job that is meant.
    fn job(&self, key: Option<&Key>) -> Result<Job, Error> {
        let content = self.content();
        let found = of_key(&content.jobs, key).map(|place| content.jobs[place].clone());
        found.ok_or_else(|| no_job(key))
    }

    /// The job of that number, or the last one that writes that table, one that runs first; without a key the last
    /// one that does not only look at jobs.
    fn find(&self, key: Option<&Key>) -> Result<JobStatus, Error> {
        let mut content = self.content();
        let found = of_key(&content.jobs, key);
        found.map(|place| status(&mut content.jobs[place])).ok_or_else(|| no_job(key))
    }

    /// What a statement asks about a job. `over`: how long to look at it.
    pub(super) fn answer(&self, asked: &Diagnose, over: Option<Duration>) -> Result<String, Error> {
        if asked.question == Question::Analyze {
            return Ok(self.job(asked.job.as_ref())?.analyze(over.unwrap_or(LOOK), asked.json));
        }
        if let Some(condition) = &asked.of_key {
            return self.job(asked.job.as_ref())?.windows_of(condition, asked.json);
        }
        let status = self.find(asked.job.as_ref())?;
        let diagnosis = &status.diagnosis;
        if asked.json {
            let all = diagnosis.to_json();
            let part = match asked.question {
                Question::Findings => all,
                Question::Watermark => all["watermarks"].clone(),
                Question::Window => all["windows"].clone(),
                Question::Lateness => status.snapshot.to_json()["sources"].clone(),
                Question::Analyze => return Err(Error::internal("session", "the job was not looked at")),
            };
            return Ok(format!("{part:#}\n"));
        }
        Ok(match asked.question {
            Question::Findings => diagnosis.text() + &diagnosis.loads_text(),
            Question::Watermark => diagnosis.watermarks_text(),
            Question::Window => diagnosis.windows_text(),
            Question::Lateness => lateness(self.job(asked.job.as_ref())?.handle.plan(), &status.snapshot),
            Question::Analyze => return Err(Error::internal("session", "the job was not looked at")),
        })
    }
}

/// The job that a person means; without a key the last one.
fn of_key(jobs: &[Job], key: Option<&Key>) -> Option<usize> {
    match key {
        Some(_) => place(jobs, |job| job.is_meant_by(key)),
        None => jobs.iter().rposition(|job| job.is_meant_by(key)),
    }
}

/// The last job that is meant and runs, else the last one: a name may have been given to later jobs, too.
fn place(jobs: &[Job], is_meant: impl Fn(&Job) -> bool) -> Option<usize> {
    let runs = jobs.iter().rposition(|job| is_meant(job) && !job.handle.state().is_over());
    runs.or_else(|| jobs.iter().rposition(is_meant))
}

fn no_job(key: Option<&Key>) -> Error {
    let message = match key {
        None => "no job was started".to_owned(),
        Some(key) => format!("no job \"{}\"", key.name),
    };
    Error::plan(code::UNKNOWN_NAME, message)
        .at(key.map(|key| key.span))
        .hint("Use SHOW JOBS to see all of them.")
}

fn place_of(ident: &sqlparser::ast::Ident) -> Option<Span> {
    let place = |at: sqlparser::tokenizer::Location| Place { line: at.line, column: at.column };
    (ident.span.start.line > 0).then(|| Span { start: place(ident.span.start), end: place(ident.span.end) })
}

/// The names of the keys of all windows of a plan.
fn window_keys(plan: &StreamPlan) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for node in &plan.nodes {
        let places = match &node.operation {
            Operation::WindowAggregate(aggregate) => {
                let bounds = node.schema.fields().iter().take(3);
                let has_bounds =
                    bounds.into_iter().next().is_some_and(|first| first.name() == "window_start");
                let first = if has_bounds { 3 } else { 0 };
                (first..first + aggregate.keys.len()).collect()
            }
            Operation::WindowRows(rows) => rows.partition.clone(),
            _ => Vec::new(),
        };
        keys.extend(places.iter().filter_map(|place| Some(node.schema.fields().get(*place)?.name().clone())));
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Whether all of a plan's tables are `system.…`.
fn reads_system_only(plan: &StreamPlan) -> bool {
    let mut tables = plan.nodes.iter().filter_map(|node| match &node.operation {
        Operation::Source(source) => Some(source.table.connector == SYSTEM_CONNECTOR),
        _ => None,
    });
    tables.next().is_some_and(|first| first && tables.all(|is_system| is_system))
}

fn status(job: &mut Job) -> JobStatus {
    let (before, snapshot) = job.look();
    let handle = &job.handle;
    let diagnosis = diagnose(handle.plan(), before.as_ref(), &snapshot);
    JobStatus {
        number: handle.number(),
        name: handle.name().to_owned(),
        state: handle.state(),
        snapshot,
        diagnosis,
        checkpoints: handle.checkpoints(),
    }
}

/// The curve of each source: what a delay costs and buys.
fn lateness(plan: &StreamPlan, snapshot: &JobSnapshot) -> String {
    let mut out = String::new();
    for source in &snapshot.sources {
        let disorder = &source.disorder;
        let watermark = plan.nodes.get(source.node).and_then(|node| match &node.operation {
            Operation::Source(read) => read.watermark.as_ref(),
            _ => None,
        });
        let declared = watermark.filter(|watermark| !watermark.processing);
        let Some(column) = declared.map(|watermark| watermark.column.as_str()) else {
            let _ = writeln!(out, "{}: without a WATERMARK no row is late", source.name);
            continue;
        };
        let _ = writeln!(
            out,
            "{}: {} of {} rows that were looked at are out of order",
            source.name, disorder.out_of_order, disorder.rows
        );
        for step in &disorder.steps {
            let _ = writeln!(
                out,
                "  delay {delay}: {:.4} % of the rows late at most, results {delay} later: \
                 WATERMARK FOR {column} AS {column} - {}",
                step.late_share * 100.0,
                interval_sql(step.delay_us),
                delay = delay_text(step.delay_us),
            );
        }
    }
    if out.is_empty() { "the job reads no table\n".to_owned() } else { out }
}
