//! Commands of the shell: lines that start with a backslash.

use crate::error::{Error, code, did_you_mean};

/// A command as `\?` shows it.
pub(super) struct CommandInfo {
    pub(super) name: &'static str,
    pub(super) arguments: &'static str,
    pub(super) about: &'static str,
}

/// All commands.
pub(super) const ALL: &[CommandInfo] = &[
    info("\\?", "", "shows these commands"),
    info("\\d", "[NAME]", "lists tables and views, or the columns of one"),
    info("\\dt", "", "lists tables"),
    info("\\dv", "", "lists views"),
    info("\\df", "", "lists functions"),
    info("\\f", "FORMAT", "how rows are shown: table, json, csv, changelog-json"),
    info("\\h", "[TOPIC]", "explains something, with an example that runs; as help TOPIC"),
    info("\\i", "FILE", "runs a script"),
    info("\\o", "[FILE]", "writes rows to a file; without FILE to the terminal again"),
    info("\\plot", "[FILE.svg]", "draws the last result; into a file as a picture"),
    info("\\q", "", "leaves; as Ctrl-D"),
    info("\\rows", "N", "shows so many rows of a result that ends, 0: all"),
    info("\\timing", "[on|off]", "shows how long statements take"),
    info("\\watch", "[SECONDS]", "runs the last query again and again, until a key is pressed"),
    info("\\x", "[on|off]", "shows each row as a block, a line for each column"),
];

const fn info(name: &'static str, arguments: &'static str, about: &'static str) -> CommandInfo {
    CommandInfo { name, arguments, about }
}

/// A command with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Describe(Option<String>),
    Tables,
    Views,
    Functions,
    Format(String),
    Explain(Option<String>),
    Include(String),
    OutputTo(Option<String>),
    Plot(Option<String>),
    Quit,
    Rows(usize),
    Timing(Option<bool>),
    Watch(u64),
    Expanded(Option<bool>),
}

/// Whether its argument is a file.
pub(super) fn takes_file(name: &str) -> bool {
    matches!(name, "\\i" | "\\o" | "\\plot")
}

/// Reads a line that starts with a backslash.
///
/// # Errors
/// `U006` for an unknown command, with the nearest one, and for arguments that do not fit.
pub(super) fn parse(line: &str) -> Result<Command, Error> {
    let line = line.trim().trim_end_matches(';').trim_end();
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = rest.trim().trim_matches('\'');
    let optional = || (!argument.is_empty()).then(|| argument.to_owned());
    let command = match name {
        "\\?" => Command::Help,
        "\\d" => Command::Describe(optional()),
        "\\dt" => Command::Tables,
        "\\dv" => Command::Views,
        "\\df" => Command::Functions,
        "\\f" => Command::Format(required(name, argument)?),
        "\\h" => Command::Explain(optional()),
        "\\i" => Command::Include(required(name, argument)?),
        "\\o" => Command::OutputTo(optional()),
        "\\plot" => Command::Plot(optional()),
        "\\q" => Command::Quit,
        "\\rows" => Command::Rows(number(name, argument)?),
        "\\timing" => Command::Timing(on_off(name, argument)?),
        "\\watch" if argument.is_empty() => Command::Watch(2),
        "\\watch" => Command::Watch(number(name, argument)?.max(1) as u64),
        "\\x" => Command::Expanded(on_off(name, argument)?),
        _ => {
            let near = did_you_mean(name, ALL.iter().map(|command| command.name));
            return Err(unfit(format!("unknown command {name}")).hint(match near {
                Some(near) => format!("Did you mean {near}? Use \\? to see all commands."),
                None => "Use \\? to see all commands.".to_owned(),
            }));
        }
    };
    let takes_none = ALL.iter().any(|command| command.name == name && command.arguments.is_empty());
    if takes_none && !argument.is_empty() {
        return Err(unfit(format!("{name} takes no argument")).hint(format!("Use {name} alone.")));
    }
    Ok(command)
}

fn unfit(message: String) -> Error {
    Error::usage(code::SHELL_COMMAND, message)
}

fn required(name: &str, argument: &str) -> Result<String, Error> {
    if argument.is_empty() {
        let usage = ALL.iter().find(|command| command.name == name).map_or("", |command| command.arguments);
        return Err(unfit(format!("{name} lacks its argument")).hint(format!("Use {name} {usage}.")));
    }
    Ok(argument.to_owned())
}

fn number(name: &str, argument: &str) -> Result<usize, Error> {
    argument.parse().map_err(|_| {
        unfit(format!("{name} wants a whole number, not \"{argument}\"")).hint(format!("Use {name} 10."))
    })
}

fn on_off(name: &str, argument: &str) -> Result<Option<bool>, Error> {
    match argument {
        "" => Ok(None),
        "on" => Ok(Some(true)),
        "off" => Ok(Some(false)),
        other => Err(unfit(format!("{name} is on or off, not \"{other}\"")).hint(format!("Use {name} on."))),
    }
}

/// What `\?` says.
pub(super) fn overview() -> String {
    let mut text = String::from("Statements end with a semicolon and may take several lines.\n");
    for command in ALL {
        let usage = format!("{} {}", command.name, command.arguments);
        text += &format!("  {usage:<20} {}\n", command.about);
    }
    text += "  … | PLOT             at the end of a query: draws its result\n";
    text += "Ctrl-C stops a query, any key one that does not end; Ctrl-D leaves; Tab completes.";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_arguments() -> Result<(), Error> {
        for (line, command) in [
            ("\\d", Command::Describe(None)),
            ("\\d flights;", Command::Describe(Some("flights".to_owned()))),
            ("\\i 'a b.sql'", Command::Include("a b.sql".to_owned())),
            ("\\o", Command::OutputTo(None)),
            ("\\timing off", Command::Timing(Some(false))),
            ("\\watch", Command::Watch(2)),
            ("\\watch 5", Command::Watch(5)),
            ("\\rows 0", Command::Rows(0)),
            ("\\q", Command::Quit),
        ] {
            assert_eq!(parse(line)?, command, "{line}");
        }
        Ok(())
    }

    #[test]
    fn what_does_not_fit_is_told() {
        for (line, message) in [
            ("\\timin", "unknown command \\timin"),
            ("\\q now", "\\q takes no argument"),
            ("\\i", "\\i lacks its argument"),
            ("\\rows many", "\\rows wants a whole number, not \"many\""),
            ("\\x maybe", "\\x is on or off, not \"maybe\""),
        ] {
            let error = parse(line).expect_err("does not fit");
            assert_eq!((error.code(), error.message()), ("U006", message));
            assert!(error.hint_text().is_some());
        }
        assert!(parse("\\timin").expect_err("unknown").hint_text().expect("a hint").contains("\\timing"));
    }

    #[test]
    fn every_command_is_read() {
        for command in ALL {
            let argument = match command.name {
                "\\rows" => " 1",
                _ if command.arguments.starts_with('[') || command.arguments.is_empty() => "",
                _ => " x",
            };
            assert!(parse(&format!("{}{argument}", command.name)).is_ok(), "{}", command.name);
        }
    }
}
