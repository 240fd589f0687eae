//! From sqlparser's query to ours: blocks with clauses wrapped, long chains balanced, clauses that
//! nothing reads refused. And back, for printing.

use std::ops::ControlFlow;

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    self, BinaryOperator, Expr, Fetch, FormatClause, GroupByExpr, Ident, LimitClause, SelectFlavor,
    SelectItem, SetExpr, SetOperator, SetQuantifier, TableAlias, TableFactor, TableWithJoins,
    WildcardAdditionalOptions,
};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::MAX_RECURSION;
use super::ast::{BlockClauses, Query, block_alias, block_of_alias};
use super::dialect::StreamDialect;
use super::errors;
use super::lexer::is_word;
use super::unread;
use super::walk::{TreeRewriter, Walk, rewrite};
use crate::error::{Error, Span, code};

/// Chains of AND, OR or UNION ALL longer than this become balanced trees.
const LONG_CHAIN: usize = 32;

/// A query as sqlparser read it, with `FORMAT __block_N` where block N has its clauses.
pub(super) fn finish(
    mut query: Box<ast::Query>,
    blocks: Vec<BlockClauses>,
    spans: &[Span],
) -> Result<Query, Error> {
    let mut finisher = Finisher { seen: vec![false; blocks.len()] };
    if let ControlFlow::Break(error) = rewrite(&mut query, &mut finisher) {
        return Err(error);
    }
    match finisher.seen.iter().position(|seen| !seen) {
        Some(missing) => Err(errors::misplaced(spans.get(missing).copied())),
        None => Ok(Query { query, blocks }),
    }
}

/// An expression outside of a query.
pub(super) fn finish_expr(mut expr: Expr) -> Expr {
    let mut finisher = Finisher { seen: Vec::new() };
    let _ = rewrite(&mut expr, &mut finisher);
    expr
}

struct Finisher {
    seen: Vec<bool>,
}

impl TreeRewriter for Finisher {
    fn pre_visit_query(&mut self, query: &mut ast::Query) -> Walk {
        balance_unions(&mut query.body);
        fetch_as_limit(query);
        match unread::in_query(query) {
            Some(error) => ControlFlow::Break(error),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> Walk {
        match unread::in_select(select) {
            Some(error) => ControlFlow::Break(error),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Walk {
        match unread::in_table(factor) {
            Some(error) => ControlFlow::Break(error),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Walk {
        balance(expr);
        match expr {
            // `1 . a`, which prints as the number `1.` and a name.
            Expr::CompoundFieldAccess { root, .. } => match root.as_ref() {
                Expr::Value(literal) if matches!(literal.value, ast::Value::Number(..)) => {
                    ControlFlow::Break(
                        Error::parse(code::SYNTAX, "a number has no fields").at(errors::span(literal.span)),
                    )
                }
                _ => ControlFlow::Continue(()),
            },
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_relation(&mut self, name: &mut ast::ObjectName) -> Walk {
        match name.0.first().and_then(|part| part.as_ident()) {
            Some(ident) if ident.quote_style.is_none() && errors::is_reserved_word(&ident.value) => {
                let message = format!("expected the name of a table, found \"{}\"", ident.value);
                ControlFlow::Break(
                    Error::parse(code::SYNTAX, message)
                        .at(errors::span(ident.span))
                        .hint(format!("Put back-ticks around a name that is a keyword: `{}`.", ident.value)),
                )
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_query(&mut self, query: &mut ast::Query) -> Walk {
        match query.format_clause.take() {
            None => {}
            Some(FormatClause::Identifier(ident)) => match block_of_alias(&ident.value) {
                Some(index) if index < self.seen.len() => {
                    self.seen[index] = true;
                    wrap(query, index);
                }
                _ => return ControlFlow::Break(unread::clause("FORMAT", Some(errors::span(ident.span)))),
            },
            Some(FormatClause::Null) => return ControlFlow::Break(unread::clause("FORMAT", None)),
        }
        ControlFlow::Continue(())
    }
}

/// `FETCH FIRST n ROWS ONLY` is `LIMIT n`, which DataFusion plans.
fn fetch_as_limit(query: &mut ast::Query) {
    let Some(Fetch { with_ties: false, percent: false, quantity }) = &query.fetch else { return };
    let one = || Expr::value(ast::Value::Number("1".to_owned(), false));
    let limit = Some(quantity.clone().unwrap_or_else(one));
    query.limit_clause = match query.limit_clause.take() {
        None => Some(LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() }),
        Some(LimitClause::LimitOffset { limit: None, offset, limit_by }) => {
            Some(LimitClause::LimitOffset { limit, offset, limit_by })
        }
        other => {
            query.limit_clause = other;
            return;
        }
    };
    query.fetch = None;
}

/// `<block>` → `SELECT * FROM (<block>) AS "__block_N"`.
fn wrap(query: &mut ast::Query, index: usize) {
    let outer = empty_query(no_rows());
    let block = std::mem::replace(query, outer);
    let relation = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(block),
        alias: Some(TableAlias {
            explicit: true,
            name: Ident::with_quote('"', block_alias(index)),
            columns: Vec::new(),
            at: None,
        }),
        sample: None,
    };
    *query.body = SetExpr::Select(Box::new(select_all(relation)));
}

/// The block and its index, if the query is a wrapped block.
fn unwrap(query: &mut ast::Query) -> Option<(usize, ast::Query)> {
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let [TableWithJoins { relation: TableFactor::Derived { subquery, alias: Some(alias), .. }, .. }] =
        select.from.as_mut_slice()
    else {
        return None;
    };
    let index = block_of_alias(&alias.name.value)?;
    Some((index, std::mem::replace(subquery.as_mut(), empty_query(no_rows()))))
}

/// A body that stands in for one that is taken.
fn no_rows() -> SetExpr {
    SetExpr::Values(ast::Values { explicit_row: false, value_keyword: false, rows: Vec::new() })
}

fn empty_query(body: SetExpr) -> ast::Query {
    ast::Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

fn select_all(relation: TableFactor) -> ast::Select {
    ast::Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())],
        exclude: None,
        into: None,
        from: vec![TableWithJoins { relation, joins: Vec::new() }],
        lateral_views: Vec::new(),
        prewhere: None,
        selection: None,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        window_before_qualify: false,
        qualify: None,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    }
}

/// Puts `FORMAT <mark>` back in place of wrapped blocks.
pub(super) fn unwrap_blocks(query: &mut ast::Query, mark: impl Fn(usize) -> String) {
    struct Unwrapper<F>(F);
    impl<F: Fn(usize) -> String> TreeRewriter for Unwrapper<F> {
        fn post_visit_query(&mut self, query: &mut ast::Query) -> Walk {
            if let Some((index, block)) = unwrap(query) {
                *query = block;
                query.format_clause = Some(FormatClause::Identifier(Ident::new((self.0)(index))));
            }
            ControlFlow::Continue(())
        }
    }
    let _ = rewrite(query, &mut Unwrapper(mark));
}

/// Turns a long chain `a OR b OR c …`, a tree as deep as the chain is long, into a balanced tree.
///
/// A sum too, if it is one of integers and so the same in any order.
fn balance(expr: &mut Expr) {
    let Expr::BinaryOp { op, .. } = expr else { return };
    let op = op.clone();
    let is_associative = match op {
        BinaryOperator::And | BinaryOperator::Or => true,
        BinaryOperator::Plus => is_sum_of_integers(expr),
        _ => false,
    };
    if !is_associative || chain_length(expr, &op) <= LONG_CHAIN {
        return;
    }
    let mut operands = Vec::new();
    let mut rest = std::mem::replace(expr, Expr::value(ast::Value::Null));
    loop {
        match rest {
            Expr::BinaryOp { left, op: this, right } if this == op => {
                operands.push(*right);
                rest = *left;
            }
            first => {
                operands.push(first);
                break;
            }
        }
    }
    operands.reverse();
    *expr = join(operands, &op);
}

fn is_sum_of_integers(mut expr: &Expr) -> bool {
    let is_integer = |expr: &Expr| {
        matches!(expr, Expr::Value(value) if matches!(
            &value.value, ast::Value::Number(digits, _) if digits.bytes().all(|b| b.is_ascii_digit())))
    };
    while let Expr::BinaryOp { left, op: BinaryOperator::Plus, right } = expr {
        if !is_integer(right) {
            return false;
        }
        expr = left;
    }
    is_integer(expr)
}

fn chain_length(mut expr: &Expr, op: &BinaryOperator) -> usize {
    let mut length = 0;
    while let Expr::BinaryOp { left, op: this, .. } = expr
        && this == op
    {
        length += 1;
        expr = left;
    }
    length
}

/// Turns long chains of UNION ALL into balanced trees; what comes out is the same rows.
fn balance_unions(body: &mut SetExpr) {
    let mut length = 0;
    let mut rest: &SetExpr = body;
    while let SetExpr::SetOperation {
        left, op: SetOperator::Union, set_quantifier: SetQuantifier::All, ..
    } = rest
    {
        length += 1;
        rest = left;
    }
    if length > LONG_CHAIN {
        let mut operands = Vec::with_capacity(length + 1);
        let mut rest = std::mem::replace(body, no_rows());
        loop {
            match rest {
                SetExpr::SetOperation {
                    left,
                    op: SetOperator::Union,
                    set_quantifier: SetQuantifier::All,
                    right,
                } => {
                    operands.push(*right);
                    rest = *left;
                }
                first => {
                    operands.push(first);
                    break;
                }
            }
        }
        operands.reverse();
        operands.iter_mut().for_each(balance_unions);
        *body = join_unions(operands);
    } else if let SetExpr::SetOperation { left, right, .. } = body {
        balance_unions(left);
        balance_unions(right);
    }
}

fn join_unions(mut operands: Vec<SetExpr>) -> SetExpr {
    if operands.len() == 1 {
        return operands.remove(0);
    }
    let right = operands.split_off(operands.len() / 2);
    SetExpr::SetOperation {
        op: SetOperator::Union,
        set_quantifier: SetQuantifier::All,
        left: Box::new(join_unions(operands)),
        right: Box::new(join_unions(right)),
    }
}

fn join(mut operands: Vec<Expr>, op: &BinaryOperator) -> Expr {
    if operands.len() == 1 {
        return operands.remove(0);
    }
    let right = operands.split_off(operands.len() / 2);
    Expr::BinaryOp { left: Box::new(join(operands, op)), op: op.clone(), right: Box::new(join(right, op)) }
}

/// An error of sqlparser's as ours; where it gave up a named argument, the error in its value.
pub(super) fn translate(error: &ParserError, tokens: &[TokenWithSpan]) -> Error {
    let translated = errors::translate(error, tokens);
    let arrow = tokens.iter().position(|token| {
        token.token == Token::RArrow && translated.span() == Some(errors::span(token.span))
    });
    match arrow {
        Some(arrow) => error_of_argument(tokens, arrow + 1),
        None => translated,
    }
}

/// The error of the expression that starts at `start`, or of what follows it.
fn error_of_argument(tokens: &[TokenWithSpan], start: usize) -> Error {
    let rest = &tokens[start..];
    let dialect = StreamDialect::for_tokens(rest.len());
    let mut parser =
        Parser::new(&dialect).with_recursion_limit(MAX_RECURSION).with_tokens_with_locations(rest.to_vec());
    match parser.parse_expr() {
        Ok(_) => errors::expected("\",\" or \")\"", tokens, start + parser.index()),
        Err(error) => dialect.take_fault().unwrap_or_else(|| translate(&error, tokens)),
    }
}

/// The error of the innermost subquery that can't be parsed.
///
/// Where a subquery fails, sqlparser goes back and tries to read it as something else, and then
/// complains about that.
pub(super) fn error_of_subquery(tokens: &[TokenWithSpan]) -> Option<Error> {
    let mut open = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => open.push(index),
            Token::RParen => {
                let start = open.pop()? + 1;
                let first = &tokens.get(start)?.token;
                if is_word(first, "SELECT") || is_word(first, "WITH") {
                    let error = error_of(&tokens[start..=index]);
                    if error.is_some() {
                        return error;
                    }
                }
            }
            _ => {}
        }
    }
    None
}

/// The error of a query that ends before the last token.
fn error_of(tokens: &[TokenWithSpan]) -> Option<Error> {
    let dialect = StreamDialect::for_tokens(tokens.len());
    let mut parser =
        Parser::new(&dialect).with_recursion_limit(MAX_RECURSION).with_tokens_with_locations(tokens.to_vec());
    let error = match parser.parse_query() {
        Ok(_) if parser.index() + 1 == tokens.len() => return None,
        Ok(_) => errors::expected("\")\"", tokens, parser.index()),
        Err(error) => dialect
            .take_fault()
            .or_else(|| errors::missing_table(tokens))
            .unwrap_or_else(|| translate(&error, tokens)),
    };
    Some(error)
}
