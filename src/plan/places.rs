//! Where the clauses of a query stand, for errors that are found long after the text is gone.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, GroupByExpr, Query, Select, Spanned, TableFactor, Visit, Visitor};

use super::diagnose::from_sql_span;
use crate::error::Span;

/// The first place of each clause; `None` where it stands in a view or nowhere.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Places {
    pub(super) join: Option<Span>,
    pub(super) over: Option<Span>,
    pub(super) subquery: Option<Span>,
    pub(super) unnest: Option<Span>,
    pub(super) distinct: Option<Span>,
    pub(super) aggregate: Option<Span>,
    pub(super) order_by: Option<Span>,
    pub(super) limit: Option<Span>,
}

impl Places {
    /// The places in a query.
    pub(super) fn of(query: &Query) -> Self {
        let mut places = Self::default();
        let _ = query.visit(&mut places);
        places
    }
}

impl Visitor for Places {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        if let Some(order_by) = &query.order_by {
            self.order_by = self.order_by.or_else(|| from_sql_span(order_by.span()));
        }
        if let Some(limit) = &query.limit_clause {
            self.limit = self.limit.or_else(|| from_sql_span(limit.span()));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let joined =
            select.from.iter().flat_map(|from| &from.joins).map(|join| from_sql_span(join.relation.span()));
        let listed = select.from.iter().skip(1).map(|from| from_sql_span(from.relation.span()));
        self.join = self.join.or_else(|| joined.chain(listed).flatten().next());
        let keys = match &select.group_by {
            GroupByExpr::Expressions(keys, _) => keys.first().and_then(|key| from_sql_span(key.span())),
            GroupByExpr::All(_) => None,
        };
        let items = || select.projection.first().and_then(|item| from_sql_span(item.span()));
        self.aggregate = self.aggregate.or(keys);
        if select.distinct.is_some() {
            self.distinct = self.distinct.or_else(items);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if matches!(factor, TableFactor::UNNEST { .. }) {
            self.unnest = self.unnest.or_else(|| from_sql_span(factor.span()));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
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
        ControlFlow::Continue(())
    }
}
