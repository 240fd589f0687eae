//! Names of tables and views as statements write them.

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Spanned};

use crate::catalog::{Catalog, Relation};
use crate::error::{Error, Place, Span, code, did_you_mean};

/// The catalog's key for a name: unquoted names in lower case, as the planner folds them.
pub(super) fn key(name: &ObjectName) -> Result<String, Error> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => Ok(fold(ident)),
        _ => Err(Error::plan(code::NOT_SUPPORTED, format!("\"{name}\" has more than one part"))
            .at(span(name))
            .hint("Use the plain name: there is one catalog and one database.")),
    }
}

fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// Where a name stands, if it stands anywhere.
pub(super) fn span(name: &ObjectName) -> Option<Span> {
    let span = name.span();
    let place = |at: sqlparser::tokenizer::Location| Place { line: at.line, column: at.column };
    (span.start.line > 0).then(|| Span { start: place(span.start), end: place(span.end) })
}

/// The error for a name that is in no catalog.
pub(super) fn unknown(key: &str, name: &ObjectName, catalog: &Catalog) -> Error {
    let error = Error::plan(code::UNKNOWN_NAME, format!("unknown table or view \"{key}\"")).at(span(name));
    match did_you_mean(key, catalog.relations().map(Relation::name)) {
        Some(near) => error.hint(format!("Use \"{near}\".")),
        None if catalog.relations().next().is_none() => {
            error.hint("Create the table first: there is none yet.")
        }
        None => error.hint("Run SHOW TABLES and SHOW VIEWS to see all names."),
    }
}

/// `table` or `view`.
pub(super) fn kind(relation: &Relation) -> &'static str {
    match relation {
        Relation::Table(_) => "table",
        Relation::View(_) => "view",
    }
}
