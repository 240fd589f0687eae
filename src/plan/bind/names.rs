//! Names as a person wrote them to names as they were declared.
//!
//! An unquoted name is found whatever its case, where that is unambiguous: `MYCOL` finds a column
//! declared `myCol`. A name that matches exactly wins. Output columns keep the declared spelling.
//! A quoted name is only itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, TableAlias, TableFactor,
};

use crate::plan::window::WindowFunction;
use crate::sql::{TreeRewriter, Walk};

/// The spellings that a query can mean, by their lower-case form.
#[derive(Debug, Default)]
pub(super) struct Names {
    spellings: BTreeMap<String, BTreeSet<String>>,
}

impl Names {
    /// Adds a declared name.
    pub(super) fn add(&mut self, name: &str) {
        self.spellings.entry(name.to_lowercase()).or_default().insert(name.to_owned());
    }

    /// The declared spelling of an unquoted name: itself, or the only one that differs in case.
    pub(super) fn spelling(&self, name: &str) -> Option<&str> {
        let known = self.spellings.get(&name.to_lowercase())?;
        if let Some(exact) = known.get(name) {
            return Some(exact);
        }
        match known.len() {
            1 => known.first().map(String::as_str),
            _ => known.get(&name.to_lowercase()).map(String::as_str),
        }
    }

    fn fix(&self, ident: &mut Ident) {
        if ident.quote_style.is_some() {
            return;
        }
        if let Some(spelling) = self.spelling(&ident.value)
            && spelling != ident.value
        {
            ident.value = spelling.to_owned();
        }
    }
}

/// The prefix under which the parser carries `TABLE name` as an argument.
const TABLE_PREFIX: &str = "__table";
/// The name under which it carries a subquery with PARTITION BY.
const SUBQUERY_PREFIX: &str = "__subquery";

/// Collects the relations that a query names and the names that it gives itself.
#[derive(Default)]
pub(super) struct Collector {
    pub(super) relations: Vec<Ident>,
    pub(super) given: Names,
    pub(super) ctes: Names,
}

impl TreeRewriter for Collector {
    fn pre_visit_query(&mut self, query: &mut Query) -> Walk {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.ctes.add(&cte.alias.name.value);
            self.alias(&cte.alias);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Walk {
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                self.given.add(&alias.value);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Walk {
        if let TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::TableFunction { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } = factor
        {
            self.alias(alias);
        }
        if let TableFactor::MatchRecognize { measures, alias, .. } = factor {
            measures.iter().for_each(|measure| self.given.add(&measure.alias.value));
            alias.iter().for_each(|alias| self.alias(alias));
        }
        self.relations.extend(bare_tables(factor).into_iter().map(|ident| ident.clone()));
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> Walk {
        if let [ObjectNamePart::Identifier(ident)] = relation.0.as_slice() {
            self.relations.push(ident.clone());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Walk {
        if let Some(ident) = table_argument(expr) {
            self.relations.push(ident.clone());
        }
        ControlFlow::Continue(())
    }
}

impl Collector {
    fn alias(&mut self, alias: &TableAlias) {
        self.given.add(&alias.name.value);
        for column in &alias.columns {
            self.given.add(&column.name.value);
        }
    }
}

/// The name in `TABLE name [PARTITION BY …]`, if the expression is that.
pub(in crate::plan) fn table_argument(expr: &Expr) -> Option<&Ident> {
    let Expr::Prefixed { prefix, value } = expr else { return None };
    if prefix.value != TABLE_PREFIX {
        return None;
    }
    match value.as_ref() {
        Expr::Identifier(ident) => Some(ident),
        Expr::CompoundIdentifier(parts) if parts.len() == 1 => parts.first(),
        Expr::Function(function) => match function.name.0.as_slice() {
            [ObjectNamePart::Identifier(ident)] if ident.value != SUBQUERY_PREFIX => Some(ident),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the expression is `TABLE …`, a relation as an argument.
pub(super) fn is_table_argument(expr: &Expr) -> bool {
    matches!(expr, Expr::Prefixed { prefix, .. } if prefix.value == TABLE_PREFIX)
}

/// The same, to be changed.
fn table_argument_mut(expr: &mut Expr) -> Option<&mut Ident> {
    let Expr::Prefixed { prefix, value } = expr else { return None };
    if prefix.value != TABLE_PREFIX {
        return None;
    }
    match value.as_mut() {
        Expr::Identifier(ident) => Some(ident),
        Expr::CompoundIdentifier(parts) if parts.len() == 1 => parts.first_mut(),
        Expr::Function(function) => match function.name.0.as_mut_slice() {
            [ObjectNamePart::Identifier(ident)] if ident.value != SUBQUERY_PREFIX => Some(ident),
            _ => None,
        },
        _ => None,
    }
}

/// The tables that a window function names without the word `TABLE`: `TUMBLE(t, ts, …)`.
fn bare_tables(factor: &mut TableFactor) -> Vec<&mut Ident> {
    let Some(args) = window_arguments(factor) else { return Vec::new() };
    let bare = |arg: &FunctionArgExpr| matches!(arg, FunctionArgExpr::Expr(Expr::Identifier(_)));
    args.iter_mut()
        .enumerate()
        .filter_map(|(index, arg)| match arg {
            FunctionArg::Unnamed(arg) if index == 0 && bare(arg) => Some(arg),
            FunctionArg::Named { name, arg, .. } if name.value.eq_ignore_ascii_case("data") && bare(arg) => {
                Some(arg)
            }
            _ => None,
        })
        .filter_map(|arg| match arg {
            FunctionArgExpr::Expr(Expr::Identifier(ident)) => Some(ident),
            _ => None,
        })
        .collect()
}

/// The arguments of a window table function, in whichever node it stands.
fn window_arguments(factor: &mut TableFactor) -> Option<&mut Vec<FunctionArg>> {
    let is_window = |name: &ObjectName| WindowFunction::of_name(name).is_some();
    match factor {
        TableFactor::Table { name, args: Some(args), .. } if is_window(name) => Some(&mut args.args),
        TableFactor::Function { name, args, .. } if is_window(name) => Some(args),
        TableFactor::TableFunction { expr: Expr::Function(function), .. } if is_window(&function.name) => {
            match &mut function.args {
                FunctionArguments::List(list) => Some(&mut list.args),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Replaces names by their declared spelling.
pub(super) struct Resolver<'a> {
    /// Columns, aliases, fields.
    pub(super) columns: &'a Names,
    /// Tables, views, CTEs.
    pub(super) relations: &'a Names,
}

impl Resolver<'_> {
    /// A table's name among expressions; quoted, so that the rule for columns leaves it alone.
    fn table(&self, ident: &mut Ident) {
        self.relations.fix(ident);
        ident.quote_style.get_or_insert('`');
    }
}

impl TreeRewriter for Resolver<'_> {
    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> Walk {
        if let [ObjectNamePart::Identifier(ident)] = relation.0.as_mut_slice() {
            self.relations.fix(ident);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Walk {
        bare_tables(factor).into_iter().for_each(|ident| self.table(ident));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Walk {
        if let Some(ident) = table_argument_mut(expr) {
            self.table(ident);
            return ControlFlow::Continue(());
        }
        match expr {
            Expr::Identifier(ident) => self.columns.fix(ident),
            Expr::CompoundIdentifier(parts) => parts.iter_mut().for_each(|part| self.columns.fix(part)),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Walk {
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item
                && let [ObjectNamePart::Identifier(ident)] = name.0.as_mut_slice()
            {
                self.columns.fix(ident);
            }
        }
        ControlFlow::Continue(())
    }
}
