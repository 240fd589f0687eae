//! `_ingested_at` and `_latency`: what is known of a row beyond the columns of its table.
//!
//! `_ingested_at` is one more column of each table that a query reads, if the query names it; `*` does
//! not mean it. `_latency` is how long ago that was when the expression is evaluated, microseconds.
//! A column of that name which a table declares is that column.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use sqlparser::ast::{
    ExceptSelectItem, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    GroupByExpr, Ident, ObjectName, Select, SelectItem, TableFactor, TableWithJoins, VisitMut,
};

use super::names::{is_table_argument, table_argument};
use super::{Session, find_relation};
use crate::catalog::{Column, ColumnKind, Relation, Table};
use crate::plan::function::LATENCY;
use crate::plan::window::WindowFunction;
use crate::sql::{TreeRewriter, Walk, rewrite};

const INGESTED_AT: &str = "_ingested_at";
const ROW_LATENCY: &str = "_latency";
/// The metadata that every source stamps its rows with.
const INGESTION_TIME: &str = "ingestion-time";

/// The table with `_ingested_at`, unless it has a column of that name.
pub(super) fn stamped(table: &Arc<Table>, zone: &str) -> Arc<Table> {
    if table.column_index(INGESTED_AT).is_some() {
        return Arc::clone(table);
    }
    let mut table = table.as_ref().clone();
    table.columns.push(Column {
        name: INGESTED_AT.to_owned(),
        data_type: DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into())),
        nullable: false,
        kind: ColumnKind::Metadata { key: INGESTION_TIME.to_owned(), is_virtual: true },
    });
    Arc::new(table)
}

/// Resolves the pseudo-columns of a query. Whether there were any: then its tables are to be
/// [`stamped`].
pub(super) fn resolve<T: VisitMut>(session: &Session, tree: &mut T) -> bool {
    let mut mentions = Mentions(false);
    let _ = rewrite(tree, &mut mentions);
    if mentions.0 {
        let _ = rewrite(tree, &mut Blocks(session));
    }
    mentions.0
}

fn is_named(ident: &Ident, name: &str) -> bool {
    match ident.quote_style {
        Some(_) => ident.value == name,
        None => ident.value.eq_ignore_ascii_case(name),
    }
}

/// The name of a column, and which pseudo-column it is.
fn pseudo(expr: &Expr) -> Option<&'static str> {
    let last = match expr {
        Expr::Identifier(ident) => ident,
        Expr::CompoundIdentifier(parts) => parts.last()?,
        _ => return None,
    };
    [INGESTED_AT, ROW_LATENCY].into_iter().find(|name| is_named(last, name))
}

struct Mentions(bool);

impl TreeRewriter for Mentions {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Walk {
        self.0 |= pseudo(expr).is_some();
        ControlFlow::Continue(())
    }
}

/// Query blocks that read tables.
struct Blocks<'a>(&'a Session);

impl TreeRewriter for Blocks<'_> {
    fn pre_visit_select(&mut self, select: &mut Select) -> Walk {
        let tables: Vec<&Arc<Table>> = select.from.iter().flat_map(|from| tables_of(self.0, from)).collect();
        let declares = |name: &str| tables.iter().any(|table| table.column_index(name).is_some());
        if tables.is_empty() {
            return ControlFlow::Continue(());
        }
        let (hides, computes) = (!declares(INGESTED_AT), !declares(ROW_LATENCY));
        for item in &mut select.projection {
            match item {
                SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) if hides => {
                    let hidden = Ident::with_quote('`', INGESTED_AT);
                    match &mut options.opt_except {
                        Some(except) => except.additional_elements.push(hidden),
                        none => {
                            *none = Some(ExceptSelectItem {
                                first_element: hidden,
                                additional_elements: Vec::new(),
                            });
                        }
                    }
                }
                SelectItem::UnnamedExpr(expr) if computes && pseudo(expr) == Some(ROW_LATENCY) => {
                    let alias = Ident::with_quote('`', ROW_LATENCY);
                    let mut expr = expr.clone();
                    let _ = rewrite(&mut expr, &mut Columns { computes });
                    *item = SelectItem::ExprWithAlias { expr, alias };
                }
                SelectItem::UnnamedExpr(expr)
                | SelectItem::ExprWithAlias { expr, .. }
                | SelectItem::ExprWithAliases { expr, .. } => {
                    let _ = rewrite(expr, &mut Columns { computes });
                }
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => {}
            }
        }
        let mut columns = Columns { computes };
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            keys.iter_mut().for_each(|key| {
                let _ = rewrite(key, &mut columns);
            });
        }
        for expr in select.selection.iter_mut().chain(&mut select.having) {
            let _ = rewrite(expr, &mut columns);
        }
        ControlFlow::Continue(())
    }
}

/// The tables that a block reads, also through window functions; not those of its subqueries and views.
fn tables_of<'a>(session: &'a Session, from: &TableWithJoins) -> Vec<&'a Arc<Table>> {
    let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation));
    let table = |ident: &Ident| match find_relation(session, ident) {
        Some(Relation::Table(table)) => Some(table),
        _ => None,
    };
    factors.filter_map(|factor| named_table(factor).and_then(table)).collect()
}

fn named_table(factor: &TableFactor) -> Option<&Ident> {
    let (name, args) = match factor {
        TableFactor::Table { name, args, .. } => (name, args.as_ref().map(|args| args.args.as_slice())),
        TableFactor::Function { name, args, .. } => (name, Some(args.as_slice())),
        TableFactor::TableFunction { expr: Expr::Function(function), .. } => match &function.args {
            FunctionArguments::List(list) => (&function.name, Some(list.args.as_slice())),
            FunctionArguments::None | FunctionArguments::Subquery(_) => return None,
        },
        _ => return None,
    };
    let Some(args) = args else {
        return match name.0.as_slice() {
            [sqlparser::ast::ObjectNamePart::Identifier(ident)] => Some(ident),
            _ => None,
        };
    };
    WindowFunction::of_name(name)?;
    let expr = |arg| match arg {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr))
        | &FunctionArg::Named { arg: FunctionArgExpr::Expr(ref expr), .. } => Some(expr),
        _ => None,
    };
    let data = args.iter().filter_map(expr).find(|expr| is_table_argument(expr));
    match data {
        Some(data) => table_argument(data),
        None => match args.first().and_then(expr) {
            Some(Expr::Identifier(ident)) => Some(ident),
            _ => None,
        },
    }
}

/// The expressions of a block.
struct Columns {
    /// `_latency` is not a column of the table.
    computes: bool,
}

impl TreeRewriter for Columns {
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Walk {
        let Some(name) = pseudo(expr) else { return ControlFlow::Continue(()) };
        if name == ROW_LATENCY && !self.computes {
            return ControlFlow::Continue(());
        }
        let last = match expr {
            Expr::Identifier(ident) => ident,
            Expr::CompoundIdentifier(parts) => match parts.last_mut() {
                Some(last) => last,
                None => return ControlFlow::Continue(()),
            },
            _ => return ControlFlow::Continue(()),
        };
        last.value = INGESTED_AT.to_owned();
        if name == ROW_LATENCY {
            *expr = latency_since(expr.clone());
        }
        ControlFlow::Continue(())
    }
}

fn latency_since(ingested: Expr) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(LATENCY)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(ingested))],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
