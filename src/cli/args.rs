//! The flags, parsed once into what the program needs.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::version;
use crate::session::parse_duration;

const EXAMPLES: &str = "\
Examples:
  tidegate run queries/flights/hourly.sql
  tidegate run report.sql -D day=2013-01-31 -p 2 -f csv > report.csv
  tidegate -c \"SELECT origin, COUNT(*) AS n FROM 'flights.csv' GROUP BY origin\"
  tidegate explain report.sql -D day=2013-01-31
  echo 'SELECT 1 AS one;' | tidegate

Rows go to stdout, everything else to stderr.
Exit codes: 0 done, 1 the query failed while it ran, 2 usage, parse or plan error, 130 interrupted.";

/// Streaming SQL by event time: exact windows, late rows kept, one binary
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    long_version = version::LONG,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    infer_long_args = true,
    styles = Styles::styled().header(AnsiColor::Green.on_default().bold()).usage(AnsiColor::Green.on_default().bold())
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Command>,

    /// Runs this SQL; may be given several times. Example: -c "SELECT 1 AS one"
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    pub(super) sql: Vec<String>,

    #[command(flatten)]
    pub(super) run: RunArgs,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Runs scripts, one after another, in one session
    #[command(after_help = "\
Examples:
  tidegate run queries/flights/hourly.sql
  tidegate run tables.sql report.sql -D day=2013-01-31
  tidegate run report.sql --check
  tidegate run live.sql --timeout 10min --fail-on-late 100 --summary json
  cat report.sql | tidegate run -
SIGTERM ends a run as if its input had ended: windows fire, sinks are finished. Ctrl-C stops it.")]
    Run {
        /// SQL files; `-` is standard input
        #[arg(required = true, value_name = "FILE.sql")]
        files: Vec<String>,

        /// Parses, plans and lints the scripts; runs and writes nothing. Example: --check
        #[arg(long, conflicts_with_all = ["stats", "metrics", "format", "summary", "fail_on_late", "timeout", "checkpoint_dir"])]
        check: bool,

        #[command(flatten)]
        run: RunArgs,
    },
    /// Shows the plans of a script's queries and inserts; runs none of them
    #[command(after_help = "\
Examples:
  tidegate explain queries/flights/hourly.sql
  tidegate explain report.sql -D day=2013-01-31 --json
  tidegate explain report.sql --lint
With --lint the exit code is 1 if something was found.")]
    Explain {
        /// SQL files; `-` is standard input
        #[arg(required = true, value_name = "FILE.sql")]
        files: Vec<String>,

        /// As JSON, one document a query. Example: --json
        #[arg(long)]
        json: bool,

        /// Only what may not be meant, with its place and a way out. Example: --lint
        #[arg(long)]
        lint: bool,

        #[command(flatten)]
        common: CommonArgs,
    },
    /// Runs tests of streaming SQL on a virtual clock; see docs/testing.md
    #[command(after_help = "\
Examples:
  tidegate test tests/*.test
  tidegate test hourly.test --shuffle 20
  tidegate test hourly.test --filter late --bless
Exit codes: 0 all passed, 1 a test failed, 2 usage or a file that can't be read.")]
    Test(TestArgs),
    /// Writes a small project to start from: SQL, data and a test
    #[command(after_help = "\
Examples:
  tidegate new clicks
  cd clicks && tidegate run hourly.sql && tidegate test hourly.test")]
    New {
        /// The folder; it is made, or must be empty
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Prints what makes a shell complete the flags and commands
    #[command(after_help = "\
Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh > ~/.zfunc/_tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish")]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: CompletedShell,
    },
    /// Prints the manual page
    #[command(after_help = "\
Examples:
  tidegate man | man -l -
  tidegate man > ~/.local/share/man/man1/tidegate.1")]
    Man,
    /// Explains a command, a word of streaming SQL or the code of an error
    #[command(after_help = "\
Examples:
  tidegate help run
  tidegate help tumble
  tidegate help W002
Words: cumulate, emit, hop, idle, late, session, tumble, watermark.")]
    Help {
        /// A command, a word or a code; without it, what all commands are
        #[arg(value_name = "TOPIC")]
        topic: Option<String>,
    },
}

/// A shell that completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

/// How summaries are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SummaryFormat {
    /// Two or three lines, for people
    Text,
    /// One object a line
    Json,
}

/// Flags of `tidegate test`.
#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// Test files
    #[arg(required = true, value_name = "FILE.test")]
    pub(super) files: Vec<String>,

    /// Only tests with this in their name. Example: --filter late
    #[arg(long, value_name = "TEXT")]
    pub(super) filter: Option<String>,

    /// Runs each test N times more, with other batches, splits, parallelism and order of work; all must
    /// agree. Example: --shuffle 20
    #[arg(long, value_name = "N")]
    pub(super) shuffle: Option<u32>,

    /// What the orders of --shuffle are drawn from. Example: --seed 7
    #[arg(long, value_name = "SEED", default_value_t = 1, requires = "shuffle")]
    pub(super) seed: u64,

    /// Rewrites what the files expect to what is; not where CI is set. Example: --bless
    #[arg(long, conflicts_with = "shuffle")]
    pub(super) bless: bool,

    /// Writes a report in JUnit's XML. Example: --junit report.xml
    #[arg(long, value_name = "FILE")]
    pub(super) junit: Option<String>,
}

/// Flags of everything that runs queries.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// How rows are written: by default a table on a terminal, JSON elsewhere. Example: -f csv
    #[arg(short = 'f', long, value_enum, value_name = "FORMAT")]
    pub(super) format: Option<Format>,

    /// No summary, no progress line, no notes on stderr; errors only. Example: -q
    #[arg(short = 'q', long)]
    pub(super) quiet: bool,

    /// Takes checkpoints there, from which a run that was stopped goes on: a folder, or a URL such as
    /// s3://bucket/state. Example: --checkpoint-dir state
    #[arg(long, value_name = "DIR")]
    pub(super) checkpoint_dir: Option<PathBuf>,

    /// Goes on from the newest checkpoint in the folder of --checkpoint-dir. Example: --resume
    #[arg(long, requires = "checkpoint_dir", conflicts_with = "from")]
    pub(super) resume: bool,

    /// Goes on with a changed query, without the state that it can't use. Example: --allow-dropped-state
    #[arg(long, requires = "checkpoint_dir")]
    pub(super) allow_dropped_state: bool,

    /// Goes on from this checkpoint. Example: --from state/job-1/chk-00000007
    #[arg(long, value_name = "DIR", requires = "checkpoint_dir")]
    pub(super) from: Option<PathBuf>,

    /// How the summaries on stderr are written. Example: --summary json
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text", conflicts_with = "quiet")]
    pub(super) summary: SummaryFormat,

    /// Fails when more rows than this are late. Example: --fail-on-late 0
    #[arg(long, value_name = "N")]
    pub(super) fail_on_late: Option<u64>,

    /// Stops a run that takes longer, and fails. Example: --timeout 30s
    #[arg(long, value_name = "TIME", value_parser = length)]
    pub(super) timeout: Option<Duration>,

    /// Writes what was measured of all queries and inserts to this file. Example: --stats stats.json
    #[arg(long, value_name = "FILE.json")]
    pub(super) stats: Option<PathBuf>,

    /// Serves metrics for Prometheus while it runs. Example: --metrics 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    pub(super) metrics: Option<String>,

    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// Flags of everything that reads scripts.
#[derive(Debug, Args)]
pub(super) struct CommonArgs {
    /// Subtasks of each operator: by default the number of cores. Example: -p 2
    #[arg(short = 'p', long, value_name = "N", allow_negative_numbers = true)]
    pub(super) parallelism: Option<String>,

    /// Sets a setting, as SET does; see docs/settings.md. Example: --set session.time-zone=Europe/Berlin
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = pair)]
    pub(super) settings: Vec<(String, String)>,

    /// Replaces ${NAME} in scripts. Example: -D day=2013-01-31
    #[arg(short = 'D', long = "define", value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) variables: Vec<(String, String)>,
}

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Columns with a frame, for people
    Table,
    /// One object a line
    Json,
    /// RFC 4180 with a header
    Csv,
    /// One object a line with what the row does: {"op":"+I","row":{…}}
    ChangelogJson,
}

fn length(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Some(length) if !length.is_zero() => Ok(length),
        _ => Err("expected a length of time such as 500ms, 30s or 10min".to_owned()),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_an_example() {
        let mut command = Cli::command();
        command.build();
        for command in std::iter::once(&command).chain(command.get_subcommands()) {
            for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
                let name = arg.get_id().as_str();
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(matches!(name, "help" | "version") || help.contains("Example: "), "{name}: {help}");
            }
        }
    }
}
