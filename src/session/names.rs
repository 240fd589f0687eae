//! Names of tables and views as statements write them.

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Spanned};

use crate::catalog::{Catalog, Relation};
use crate::error::{Error, Place, Span, code, did_you_mean};

/// A name that is declared here: lower case, unless it stands in quotes. So does the planner.
pub(super) fn declared(name: &ObjectName) -> Result<String, Error> {
    let ident = ident(name)?;
    Ok(if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() })
}

/// The relation that a name means: the one of exactly that name, or, for a name without quotes, the
/// only one that differs in case alone. So does the planner.
pub(super) fn find<'a>(name: &ObjectName, catalog: &'a Catalog) -> Result<Option<&'a Relation>, Error> {
    if let Some(system) = system(name, catalog) {
        return Ok(Some(system));
    }
    let ident = ident(name)?;
    if let Some(exact) = catalog.get(&ident.value) {
        return Ok(Some(exact));
    }
    if ident.quote_style.is_some() {
        return Ok(None);
    }
    let folded = ident.value.to_lowercase();
    let mut alike = catalog.relations().filter(|relation| relation.name().to_lowercase() == folded);
    match (alike.next(), alike.next()) {
        (Some(only), None) => Ok(Some(only)),
        _ => Ok(catalog.get(&folded)),
    }
}

/// The table that `system.x` means.
fn system<'a>(name: &ObjectName, catalog: &'a Catalog) -> Option<&'a Relation> {
    let [ObjectNamePart::Identifier(first), ObjectNamePart::Identifier(last)] = name.0.as_slice() else {
        return None;
    };
    let folded = format!("{}.{}", first.value.to_lowercase(), last.value.to_lowercase());
    let is_system = catalog.system_names().any(|known| known == folded);
    catalog.get(&folded).filter(|_| is_system)
}

fn ident(name: &ObjectName) -> Result<&Ident, Error> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => Ok(ident),
        _ => Err(Error::plan(code::NOT_SUPPORTED, format!("\"{name}\" has more than one part"))
            .at(span(name))
            .hint("Use the plain name: there is one catalog and one database.")),
    }
}

/// Where a name stands, if it stands anywhere.
pub(super) fn span(name: &ObjectName) -> Option<Span> {
    let span = name.span();
    let place = |at: sqlparser::tokenizer::Location| Place { line: at.line, column: at.column };
    (span.start.line > 0).then(|| Span { start: place(span.start), end: place(span.end) })
}

/// The error for a name that is in no catalog.
pub(super) fn unknown(name: &ObjectName, catalog: &Catalog) -> Error {
    let key = ident(name).map(|ident| ident.value.as_str()).unwrap_or_default();
    let error = Error::plan(code::UNKNOWN_NAME, format!("no table or view \"{key}\"")).at(span(name));
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
