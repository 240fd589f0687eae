//! Where the clauses of a query stand, for errors that are found long after the text is gone.

use sqlparser::ast::{Expr, GroupByExpr, ObjectName, Query, Select, SelectItem, Spanned, TableFactor};

use super::bind::table_argument;
use super::diagnose::from_sql_span;
use crate::error::{Error, Span};
use crate::sql::{TreeRewriter, Walk, rewrite};

/// The first place of each clause; `None` where it stands in a view or nowhere.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    pub(super) join: Option<Span>,
    pub(super) over: Option<Span>,
    pub(super) subquery: Option<Span>,
    pub(super) unnest: Option<Span>,
    pub(super) distinct: Option<Span>,
    pub(super) aggregate: Option<Span>,
    pub(super) order_by: Option<Span>,
    pub(super) limit: Option<Span>,
    /// What the outermost block selects, by its names.
    items: Vec<(String, Span)>,
    /// Columns by their names as written.
    columns: Vec<(String, Span)>,
    aggregates: usize,
    orders: usize,
    /// Functions and tables by their names as written.
    names: Vec<(String, Span)>,
}

impl Places {
    /// The places in a query.
    pub(super) fn of(query: &Query) -> Self {
        let mut places = Self::default();
        // Of a copy, which stays as it is: the one walk that there is may change what it sees.
        let _ = rewrite(&mut query.clone(), &mut places);
        // Which of several is at fault is not known.
        if places.aggregates > 1 {
            places.aggregate = None;
        }
        if places.orders > 1 {
            places.order_by = None;
        }
        places
    }

    /// Where a function or table is named first.
    pub(super) fn of_name(&self, name: &str) -> Option<Span> {
        self.names.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, span)| *span)
    }

    /// Where the query selects the column of that name.
    pub(super) fn of_item(&self, name: &str) -> Option<Span> {
        let found = self.items.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.or(self.items.first()).map(|(_, span)| *span)
    }

    /// Where a column is named last.
    pub(super) fn of_column(&self, name: &str) -> Option<Span> {
        let found = self.columns.iter().rfind(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, span)| *span)
    }

    /// The error with the place of the function, table or subquery that it names, if it has none yet.
    pub(super) fn locate(&self, error: Error) -> Error {
        let name = error.message().split('"').nth(1).map(str::to_owned);
        let place = name.and_then(|name| self.of_name(&name));
        let place = place.or(self.subquery.filter(|_| error.message().contains("subquery")));
        error.at(place)
    }
}

impl Places {
    fn name(&mut self, name: &ObjectName) {
        if let Some(span) = from_sql_span(name.span()) {
            let text = name.to_string();
            self.names.push((text.trim_matches(['`', '"']).to_owned(), span));
        }
    }
}

/// The name of what is selected, and where it stands.
fn item(item: &SelectItem) -> Option<(String, Span)> {
    let name = match item {
        SelectItem::ExprWithAlias { alias, .. } => {
            return Some((alias.value.clone(), from_sql_span(alias.span)?));
        }
        SelectItem::UnnamedExpr(Expr::Identifier(ident)) => ident.value.clone(),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last()?.value.clone(),
        other => other.to_string(),
    };
    Some((name, from_sql_span(item.span())?))
}

impl TreeRewriter for Places {
    fn pre_visit_query(&mut self, query: &mut Query) -> Walk {
        if let Some(order_by) = &query.order_by {
            self.orders += 1;
            self.order_by = self.order_by.or_else(|| from_sql_span(order_by.span()));
        }
        if let Some(limit) = &query.limit_clause {
            self.limit = self.limit.or_else(|| from_sql_span(limit.span()));
        }
        Walk::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Walk {
        let joined =
            select.from.iter().flat_map(|from| &from.joins).map(|join| from_sql_span(join.relation.span()));
        let listed = select.from.iter().skip(1).map(|from| from_sql_span(from.relation.span()));
        self.join = self.join.or_else(|| joined.chain(listed).flatten().next());
        let keys = match &select.group_by {
            GroupByExpr::Expressions(keys, _) => keys.first().and_then(|key| from_sql_span(key.span())),
            GroupByExpr::All(_) => None,
        };
        let items = || select.projection.first().and_then(|item| from_sql_span(item.span()));
        if self.items.is_empty() {
            self.items = select.projection.iter().filter_map(item).collect();
        }
        self.aggregates += usize::from(keys.is_some());
        self.aggregate = self.aggregate.or(keys);
        if select.distinct.is_some() {
            self.distinct = self.distinct.or_else(items);
        }
        Walk::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Walk {
        if matches!(factor, TableFactor::UNNEST { .. }) {
            self.unnest = self.unnest.or_else(|| from_sql_span(factor.span()));
        }
        Walk::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> Walk {
        self.name(relation);
        Walk::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Walk {
        if let Expr::Function(call) = expr {
            self.name(&call.name);
        }
        let column = match &*expr {
            Expr::Identifier(ident) => Some(ident),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        self.columns.extend(column.and_then(|ident| Some((ident.value.clone(), from_sql_span(ident.span)?))));
        if let Some(table) = table_argument(expr)
            && let Some(span) = from_sql_span(table.span)
        {
            self.names.push((table.value.clone(), span));
        }
        match &*expr {
            Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => {
                self.subquery = self.subquery.or_else(|| from_sql_span(expr.span()));
            }
            Expr::Function(call) if call.over.is_some() => {
                self.over = self.over.or_else(|| from_sql_span(call.name.span()));
            }
            Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("unnest") => {
                self.unnest = self.unnest.or_else(|| from_sql_span(call.name.span()));
            }
            _ => {}
        }
        Walk::Continue(())
    }
}
