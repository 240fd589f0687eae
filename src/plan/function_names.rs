//! The names of all functions, for `SHOW FUNCTIONS`.

use super::Planner;

impl Planner {
    /// The names of all functions that a query can call, sorted, each once.
    ///
    /// ```
    /// let names = tidegate::plan::Planner::default().function_names();
    /// assert!(names.contains(&"count".to_owned()) && names.contains(&"upper".to_owned()));
    /// ```
    pub fn function_names(&self) -> Vec<String> {
        let functions = &self.functions;
        let names =
            functions.scalars.keys().chain(functions.aggregates.keys()).chain(functions.windows.keys());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with("__")).cloned().collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
