//! Tasks that go on where those of an earlier run were cut.

use crate::error::Error;
use crate::runtime::cut::{JobCut, foreign};
use crate::runtime::task::Task;

/// Gives each task what its predecessor kept. `shift_us`: how much later the job's clock shows a moment now.
///
/// # Errors
/// `K003` if the cut is one of other tasks, `K002` if it does not fit together.
pub(super) fn restore(tasks: &mut [Task], cut: &JobCut, shift_us: i64) -> Result<(), Error> {
    if tasks.len() != cut.tasks.len() {
        return Err(foreign(format!("it has {} tasks, and now there are {}", cut.tasks.len(), tasks.len())));
    }
    for (task, cut) in tasks.iter_mut().zip(&cut.tasks) {
        if task.name != cut.name {
            return Err(foreign(format!("it has a task \"{}\" where now is \"{}\"", cut.name, task.name)));
        }
        task.restore(cut, shift_us)?;
    }
    Ok(())
}
