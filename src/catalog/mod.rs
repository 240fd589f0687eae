//! Tables, views and their options, by name.
//!
//! Invariant: no SQL text is parsed here and nothing runs; a catalog is a value that can be cloned.

mod connectors;
mod options;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, code};

pub use connectors::{
    ConnectorCatalog, FrequentValue, ReadRecovery, TableFacts, TableRecovery, TableStatistics,
    UncheckedConnectors, WriteRecovery,
};
pub use options::{OptionEntry, Options};
pub use table::{Column, ColumnKind, NullTime, Table, View, WatermarkSpec};

/// What a name stands for.
#[derive(Debug, Clone)]
pub enum Relation {
    /// A table, source or sink or both.
    Table(Arc<Table>),
    /// A named query.
    View(Arc<View>),
}

impl Relation {
    /// The name it was created with.
    pub fn name(&self) -> &str {
        match self {
            Self::Table(table) => &table.name,
            Self::View(view) => &view.name,
        }
    }
}

/// The connector of the tables `system.…`, which a session has without creating them.
#[doc(hidden)]
pub const SYSTEM_CONNECTOR: &str = "system";

/// The option of a table `system.…` that is read as a stream: how often, microseconds.
#[doc(hidden)]
pub const SYSTEM_EVERY: &str = "every";

/// All tables and views of a session. Names are compared as they are: the binder has folded
/// unquoted ones to lower case.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    relations: BTreeMap<String, Relation>,
    /// The tables `system.…`, by that name.
    system: BTreeMap<String, Relation>,
}

impl Catalog {
    /// An empty catalog.
    pub fn new() -> Self {
        Self::default()
    }

    /// The relation of that name.
    pub fn get(&self, name: &str) -> Option<&Relation> {
        self.relations.get(name).or_else(|| self.system.get(name))
    }

    /// Sets the tables `system.…`.
    #[doc(hidden)]
    pub fn set_system(&mut self, tables: Vec<Table>) {
        let named = |table: Table| (table.name.clone(), Relation::Table(Arc::new(table)));
        self.system = tables.into_iter().map(named).collect();
    }

    /// The names of the tables `system.…`, in order.
    #[doc(hidden)]
    pub fn system_names(&self) -> impl Iterator<Item = &str> {
        self.system.keys().map(String::as_str)
    }

    /// All relations that were created, in the order of their names.
    pub fn relations(&self) -> impl Iterator<Item = &Relation> {
        self.relations.values()
    }

    /// Adds a relation. With `if_not_exists` a taken name is left as it is and `false` returned.
    ///
    /// # Errors
    /// `C005` if the name is taken.
    pub fn add(&mut self, relation: Relation, if_not_exists: bool) -> Result<bool, Error> {
        let name = relation.name().to_owned();
        if self.relations.contains_key(&name) {
            if if_not_exists {
                return Ok(false);
            }
            return Err(Error::plan(code::ALREADY_EXISTS, format!("\"{name}\" exists already"))
                .hint("Use DROP first, or CREATE … IF NOT EXISTS."));
        }
        self.relations.insert(name, relation);
        Ok(true)
    }

    /// Removes a relation and returns it.
    pub fn remove(&mut self, name: &str) -> Option<Relation> {
        self.relations.remove(name)
    }
}
