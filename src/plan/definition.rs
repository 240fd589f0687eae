//! Tables and views from a script.

use std::sync::Arc;

use super::Planner;
use crate::catalog::{Catalog, Relation};
use crate::error::{Error, SourceText, code};
use crate::sql::{self, SpannedStatement, Statement};

impl Planner {
    /// Adds the tables and views that a script creates to a catalog, in their order.
    ///
    /// ```
    /// use tidegate::Planner;
    /// use tidegate::catalog::Catalog;
    ///
    /// let mut catalog = Catalog::new();
    /// Planner::default().define(
    ///     "CREATE TABLE bids (price INT) WITH ('connector' = 'kafka');
    ///      CREATE VIEW high AS SELECT price FROM bids WHERE price > 100;",
    ///     &mut catalog,
    /// )?;
    /// assert_eq!(catalog.relations().map(|relation| relation.name()).collect::<Vec<_>>(), ["bids", "high"]);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Planner::create_table`] and [`Planner::create_view`]; `C005` for a name that is taken, `P003`
    /// for other statements. What comes before the one that fails is there.
    pub fn define(&self, script: &str, catalog: &mut Catalog) -> Result<(), Error> {
        let source = Arc::new(SourceText { name: "<sql>".to_owned(), text: script.to_owned() });
        let statements = sql::parse(script).map_err(|error| error.in_source(&source))?;
        for statement in &statements {
            let defined = self.define_one(statement, catalog);
            defined.map_err(|error| error.at(statement.span).in_source(&source))?;
        }
        Ok(())
    }

    fn define_one(&self, statement: &SpannedStatement, catalog: &mut Catalog) -> Result<(), Error> {
        let (relation, if_not_exists) = match &statement.statement {
            Statement::CreateTable(create) => {
                (Relation::Table(Arc::new(self.create_table(create, catalog)?)), create.if_not_exists)
            }
            Statement::CreateView(create) => {
                (Relation::View(Arc::new(self.create_view(create, catalog)?)), create.if_not_exists)
            }
            _ => {
                return Err(Error::plan(code::INVALID_QUERY, "this statement defines no table or view")
                    .hint("Use Planner::plan for queries and inserts."));
            }
        };
        catalog.add(relation, if_not_exists).map(drop)
    }
}
