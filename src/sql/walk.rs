//! One walk over sqlparser's tree for everybody who changes something in it.
//!
//! A `VisitorMut` of one's own would be compiled into code for every kind of node again, hundreds of
//! thousands of lines for each; here that is done once, for a visitor that asks an object.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, ObjectName, Query, Select, TableFactor, ValueWithSpan, VisitMut, VisitorMut};

use crate::error::Error;

/// Whether the walk goes on.
pub(crate) type Walk = ControlFlow<Error>;

/// What is done before (`pre`) or after (`post`) the parts of a node were walked.
pub(crate) trait TreeRewriter {
    fn pre_visit_query(&mut self, _: &mut Query) -> Walk {
        Walk::Continue(())
    }
    fn post_visit_query(&mut self, _: &mut Query) -> Walk {
        Walk::Continue(())
    }
    fn pre_visit_select(&mut self, _: &mut Select) -> Walk {
        Walk::Continue(())
    }
    fn pre_visit_relation(&mut self, _: &mut ObjectName) -> Walk {
        Walk::Continue(())
    }
    fn pre_visit_table_factor(&mut self, _: &mut TableFactor) -> Walk {
        Walk::Continue(())
    }
    fn post_visit_table_factor(&mut self, _: &mut TableFactor) -> Walk {
        Walk::Continue(())
    }
    fn pre_visit_expr(&mut self, _: &mut Expr) -> Walk {
        Walk::Continue(())
    }
    fn post_visit_expr(&mut self, _: &mut Expr) -> Walk {
        Walk::Continue(())
    }
    fn post_visit_value(&mut self, _: &mut ValueWithSpan) -> Walk {
        Walk::Continue(())
    }
}

/// Walks over `tree`, until `rewriter` breaks off.
pub(crate) fn rewrite(tree: &mut impl VisitMut, rewriter: &mut dyn TreeRewriter) -> Walk {
    tree.visit(&mut Asking(rewriter))
}

struct Asking<'a>(&'a mut dyn TreeRewriter);

impl VisitorMut for Asking<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> Walk {
        self.0.pre_visit_query(query)
    }
    fn post_visit_query(&mut self, query: &mut Query) -> Walk {
        self.0.post_visit_query(query)
    }
    fn pre_visit_select(&mut self, select: &mut Select) -> Walk {
        self.0.pre_visit_select(select)
    }
    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> Walk {
        self.0.pre_visit_relation(relation)
    }
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Walk {
        self.0.pre_visit_table_factor(factor)
    }
    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> Walk {
        self.0.post_visit_table_factor(factor)
    }
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Walk {
        self.0.pre_visit_expr(expr)
    }
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Walk {
        self.0.post_visit_expr(expr)
    }
    fn post_visit_value(&mut self, value: &mut ValueWithSpan) -> Walk {
        self.0.post_visit_value(value)
    }
}
