//! Completions and the manual page, made from the flags.

use clap::CommandFactory;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use super::args::{Cli, CompletedShell};
use super::output::{Output, Stop};
use crate::error::Error;

/// What makes a shell complete.
pub(super) fn completions(shell: CompletedShell) -> Result<(), Stop> {
    let shell = match shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Zsh => Shell::Zsh,
        CompletedShell::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    generate(shell, &mut Cli::command(), "tidegate", &mut text);
    Output::new(None).text(&String::from_utf8_lossy(&text))
}

/// The manual page: the command and one section for each of its commands.
pub(super) fn manual() -> Result<(), Stop> {
    let fault = |error: std::io::Error| Stop::Failed(Error::internal("command line", error));
    let mut command = Cli::command().name("tidegate");
    command.build();
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page).map_err(fault)?;
    for part in command.get_subcommands() {
        let name = part.get_name().to_uppercase();
        page.extend(format!(".SH \"TIDEGATE {name}\"\n").into_bytes());
        let man = Man::new(part.clone());
        man.render_synopsis_section(&mut page).map_err(fault)?;
        man.render_description_section(&mut page).map_err(fault)?;
        man.render_options_section(&mut page).map_err(fault)?;
        man.render_extra_section(&mut page).map_err(fault)?;
    }
    Output::new(None).text(&String::from_utf8_lossy(&page))
}
