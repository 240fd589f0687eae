//! The command line: the only place that prints.
//!
//! Rows go to standard output, everything else to standard error. Nothing of the library is
//! computed here: what the command line can do, every program can.
//!
//! Invariant: no other module prints, reads flags or knows a terminal.

mod args;
mod background;
mod generate;
mod interrupt;
mod keys;
mod metrics;
mod new;
mod notes;
mod output;
mod plot;
mod progress;
mod report;
mod run;
mod script;
mod shell;
mod status;
mod summary;
mod test;
mod version;

use std::io::{self, IsTerminal};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};

use self::args::{Cli, Command, CommonArgs, RunArgs};
use self::output::{Output, Stop};
use self::report::Report;
use self::run::Runner;
use self::script::Script;
use crate::error::{Error, code};
use crate::runtime::CheckpointStart;
use crate::session::Session;
use crate::sql::{SpannedStatement, Statement, Variables};

/// How long a stopped job may clean up.
const GRACE: Duration = Duration::from_secs(2);

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            if let Some(file) = misplaced_file(&error) {
                notes::line(&format!("hint: Use tidegate run {file}"));
            }
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match caught(|| dispatch(cli)) {
        Ok(code) => code,
        Err(Stop::Closed) => ExitCode::SUCCESS,
        Err(Stop::Failed(error)) => {
            notes::error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// A script that stands where a command should.
fn misplaced_file(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) if Path::new(name).is_file() => Some(name),
        _ => None,
    }
}

fn dispatch(cli: Cli) -> Result<ExitCode, Stop> {
    match cli.command {
        Some(Command::Help { topic }) => help(topic.as_deref().unwrap_or_default())?,
        Some(Command::Test(args)) => return Ok(ExitCode::from(if test::run(&args)? { 0 } else { 1 })),
        Some(Command::Run { files, check: true, run }) => check(&files, &run)?,
        Some(Command::Run { files, check: false, run }) => run_files(&files, &run)?,
        Some(Command::New { dir }) => new::write(&dir)?,
        Some(Command::Completions { shell }) => generate::completions(shell)?,
        Some(Command::Man) => generate::manual()?,
        Some(Command::Explain { files, json, lint: true, common }) => {
            return Ok(ExitCode::from(if lint(&files, json, &common)? { 0 } else { 1 }));
        }
        Some(Command::Explain { files, json, lint: false, common }) => explain(&files, json, &common)?,
        None if !cli.sql.is_empty() => run_texts(&cli.sql, &cli.run)?,
        None if io::stdin().is_terminal() => {
            let given = [
                ("--timeout", cli.run.timeout.is_some()),
                ("--fail-on-late", cli.run.fail_on_late.is_some()),
            ];
            if let Some((flag, _)) = given.iter().find(|(_, is_given)| *is_given) {
                let message = format!("{flag} has no effect in a shell");
                return Err(Error::usage(code::INVALID_SETTING, message)
                    .hint("Use it with tidegate run, or with -c.")
                    .into());
            }
            shell::run(&mut runner(&cli.run, true)?, &cli.run.common.variables)?
        }
        None => run_files(&["-".to_owned()], &cli.run)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the help of a command, or what is known about a word or code.
fn help(topic: &str) -> Result<(), Stop> {
    let mut root = Cli::command();
    root.build();
    let mut output = Output::new(None);
    if topic.is_empty() {
        return output.text(&root.render_long_help().to_string());
    }
    if let Some(command) = root.find_subcommand_mut(topic) {
        return output.text(&command.render_long_help().to_string());
    }
    match shell::help::find(topic) {
        Some(text) => output.text(&text),
        None => {
            let hint = match shell::help::nearest(topic) {
                Some(near) => format!("Use tidegate help {near}."),
                None => "Use tidegate help help to see what there is.".to_owned(),
            };
            Err(Error::usage(code::INVALID_SETTING, format!("nothing is known about \"{topic}\""))
                .hint(hint)
                .into())
        }
    }
}

fn runner(args: &RunArgs, is_shell: bool) -> Result<Runner, Error> {
    let mut session = run::session(&args.common)?;
    if let Some(dir) = &args.checkpoint_dir {
        // A setting is text, and a folder of almost the same name is another one.
        let dir = dir.to_str().ok_or_else(|| {
            let message = format!("--checkpoint-dir: \"{}\" is not UTF-8", dir.display());
            Error::usage(code::INVALID_SETTING, message)
                .hint("Give the folder another name, or a link to it.")
        })?;
        session.set("execution.checkpoint.dir", dir)?;
        session.allow_dropped_state(args.allow_dropped_state);
        session.set_checkpoint_start(match &args.from {
            Some(from) => CheckpointStart::From(from.clone()),
            None if args.resume => CheckpointStart::Newest,
            None => CheckpointStart::Anew,
        });
    }
    if let Some(address) = &args.metrics {
        let address = metrics::serve(address, session.jobs().clone())?;
        if !args.quiet {
            notes::line(&format!("metrics are at http://{address}/metrics"));
        }
    }
    if let Some(longest) = args.timeout {
        interrupt::end_after(longest).map_err(|error| Error::internal("command line", error))?;
    }
    Ok(Runner::new(session, Output::new(args.format), Report::new(args), is_shell))
}

fn run_files(files: &[String], args: &RunArgs) -> Result<(), Stop> {
    let mut runner = runner(args, false)?;
    let scripts = scripts(files, &args.common)?;
    let ran = scripts.iter().try_for_each(|script| runner.script(script));
    finish(&mut runner, args, ran)
}

fn run_texts(texts: &[String], args: &RunArgs) -> Result<(), Stop> {
    let mut runner = runner(args, false)?;
    let variables = Variables::new(&args.common.variables);
    let ran = texts
        .iter()
        .try_for_each(|text| runner.script(&Script::from_text("<command line>", text, &variables)?));
    finish(&mut runner, args, ran)
}

/// Waits for the inserts that go on, and writes `--stats`, also of what has failed.
fn finish(runner: &mut Runner, args: &RunArgs, ran: Result<(), Stop>) -> Result<(), Stop> {
    // What was drained ends in good order, also where statements are left.
    let beside = match ran.is_ok() || interrupt::is_drained() {
        true => runner.wait_for_background(),
        false => Ok(()),
    };
    let ran = ran.and(beside);
    let written = match &args.stats {
        Some(path) => metrics::write_stats(path, runner.session.jobs()),
        None => Ok(()),
    };
    ran.and(written.map_err(Stop::from))
}

/// All scripts are read before the first one runs: a wrong name is found at once.
fn scripts(files: &[String], args: &CommonArgs) -> Result<Vec<Script>, Error> {
    let variables = Variables::new(&args.variables);
    files.iter().map(|file| script::read(file, &variables)).collect()
}

fn explain(files: &[String], json: bool, args: &CommonArgs) -> Result<(), Stop> {
    let mut session = run::session(args)?;
    let mut output = Output::new(None);
    for script in scripts(files, args)? {
        for statement in session.parse(&script.name, &script.text)? {
            match session.explain(&statement, json)? {
                Some(plan) => output.text(&plan)?,
                None => prepare(&mut session, &statement)?,
            }
        }
    }
    Ok(())
}

/// Parses and plans all statements of the scripts, and warns of what may not be meant.
fn check(files: &[String], args: &RunArgs) -> Result<(), Stop> {
    let mut session = run::session(&args.common)?;
    let (mut statements, mut lints) = (0, 0);
    for script in scripts(files, &args.common)? {
        for statement in session.parse(&script.name, &script.text)? {
            for lint in session.lint(&statement)? {
                lints += 1;
                if !args.quiet {
                    notes::line(&session.render_lint(&statement, &lint));
                }
            }
            if session.explain(&statement, false)?.is_none() {
                prepare(&mut session, &statement)?;
            }
            statements += 1;
        }
    }
    if !args.quiet {
        let plural = |count: i32, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let found = if lints == 0 { "no lints".to_owned() } else { plural(lints, "lint") };
        notes::line(&format!("{} checked, {found}", plural(statements, "statement")));
    }
    Ok(())
}

/// Shows what may not be meant in the scripts. Whether there was nothing.
fn lint(files: &[String], json: bool, args: &CommonArgs) -> Result<bool, Stop> {
    let mut session = run::session(args)?;
    let mut output = Output::new(None);
    let mut all = Vec::new();
    for script in scripts(files, args)? {
        for statement in session.parse(&script.name, &script.text)? {
            for lint in session.lint(&statement)? {
                if !json {
                    output.text(&format!("{}\n", session.render_lint(&statement, &lint)))?;
                }
                let mut found = lint.to_json();
                found["file"] = script.name.clone().into();
                all.push(found);
            }
            if session.explain(&statement, false)?.is_none() {
                prepare(&mut session, &statement)?;
            }
        }
    }
    let is_clean = all.is_empty();
    if json {
        output.text(&format!("{:#}\n", serde_json::Value::Array(all)))?;
    }
    Ok(is_clean)
}

/// Does a statement that is not explained: what later plans depend on is done, what only shows something
/// is not.
fn prepare(session: &mut Session, statement: &SpannedStatement) -> Result<(), Error> {
    match &statement.statement {
        Statement::Show(_)
        | Statement::ShowSettings
        | Statement::Describe(_)
        | Statement::DescribeJob(_)
        | Statement::StopJob(_)
        | Statement::Diagnose(_) => {}
        _ => drop(session.execute(statement)?),
    }
    Ok(())
}

/// A panic becomes an internal error: one message, the exit code of the contract.
fn caught<T>(work: impl FnOnce() -> Result<T, Stop>) -> Result<T, Stop> {
    static PLACE: Mutex<Option<String>> = Mutex::new(None);
    let lock = || PLACE.lock().unwrap_or_else(PoisonError::into_inner);
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map_or_else(|| "unknown".to_owned(), ToString::to_string);
        *lock() = Some(place);
    }));
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| {
        let message = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = message.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_default();
        let place = lock().take().unwrap_or_default();
        Err(Stop::Failed(Error::internal(&place, message)))
    })
}
