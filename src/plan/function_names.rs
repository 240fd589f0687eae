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
        let mut names: Vec<_> = names.filter(|name| !is_hidden(name)).cloned().collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Names that plans are made of, and that nobody writes.
fn is_hidden(name: &str) -> bool {
    let is_cast = ["cast_timestamp", "try_cast_timestamp", "cast_text"].iter().any(|of| name.starts_with(of));
    let is_part = matches!(name, "ceil_to" | "floor_to") || name.ends_with("_respecting_nulls");
    name.starts_with("__") || is_cast || is_part
}
