//! `tidegate new`: a small project that runs, to start from.

use std::fs;
use std::path::Path;

use super::notes;
use crate::error::{Error, code};

/// Its files.
const FILES: &[(&str, &str)] = &[
    ("README.md", include_str!("project/README.md")),
    ("data/clicks.csv", include_str!("project/data/clicks.csv")),
    ("hourly.sql", include_str!("project/hourly.sql")),
    ("hourly.test", include_str!("project/hourly.test")),
];

/// Writes it into a folder that is not there yet, or empty.
///
/// # Errors
/// `U008` if there is something in the folder; `F003` if it can't be written.
pub(super) fn write(dir: &Path) -> Result<(), Error> {
    let shown = dir.display();
    let is_in_use = dir.is_file() || fs::read_dir(dir).is_ok_and(|mut files| files.next().is_some());
    if is_in_use {
        let message = match dir.is_file() {
            true => format!("\"{shown}\" is a file"),
            false => format!("the folder \"{shown}\" is not empty"),
        };
        return Err(Error::usage(code::FOLDER_IN_USE, message).hint("Name a folder that does not exist."));
    }
    for (name, text) in FILES {
        let path = dir.join(name);
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        folder.and_then(|()| fs::write(&path, text)).map_err(|error| {
            Error::run(code::UNWRITABLE, format!("can't write \"{}\": {error}", path.display()))
        })?;
    }
    for (name, _) in FILES {
        notes::line(&format!("wrote {}", dir.join(name).display()));
    }
    notes::line(&format!("try: cd {shown} && tidegate run hourly.sql && tidegate test hourly.test"));
    Ok(())
}
