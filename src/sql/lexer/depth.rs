//! Refuses brackets that don't match, and statements whose trees would be too deep to handle.
//!
//! A tree is dropped, cloned, compared and evaluated by recursion, on threads with small stacks, so
//! its depth is bounded before there is a tree: from its tokens, rather too high than too low.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::super::errors;
use crate::error::{Error, code};

/// Levels of a tree: brackets and operators inside each other.
pub(in crate::sql) const MAX_DEPTH: usize = 400;
/// Levels that a subquery counts for.
const SUBQUERY_LEVELS: usize = 8;
/// Levels that a function call, a CASE or a list counts for.
const CALL_LEVELS: usize = 4;
/// Operators in a row, with those of AND and OR, whose trees are balanced later.
const MAX_OPERATORS: usize = 4_500;
/// UNION, EXCEPT and INTERSECT between queries.
const MAX_SET_OPERATIONS: usize = 64;
/// With UNION ALL, whose trees are balanced later.
const MAX_UNIONS: usize = 1_000;
/// Longer integers could overflow when they are added in another order.
const SHORT_INTEGER_DIGITS: usize = 14;

/// Checks the tokens of one statement; gives how many brackets are inside each other.
pub(in crate::sql) fn check(tokens: &[TokenWithSpan]) -> Result<usize, Error> {
    let mut levels = vec![Level::default()];
    let mut deepest = 0;
    for (index, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                levels.push(Level::open(token, weight(tokens, index)));
                deepest = deepest.max(levels.len());
            }
            Token::RParen | Token::RBracket | Token::RBrace => close(&mut levels, token)?,
            Token::Word(word) if word.quote_style.is_none() && word.keyword == Keyword::CASE => {
                levels.push(Level { is_case: true, ..Level::open(token, CALL_LEVELS) });
                deepest = deepest.max(levels.len());
            }
            Token::Word(word)
                if word.keyword == Keyword::END && levels.last().is_some_and(|level| level.is_case) =>
            {
                pop(&mut levels);
            }
            other => {
                if let Some(level) = levels.last_mut() {
                    level.read(other);
                }
            }
        }
        check_limits(&levels, token)?;
    }
    while levels.last().is_some_and(|level| level.is_case) {
        pop(&mut levels);
    }
    match levels.last().and_then(|level| level.opened_by) {
        Some(open) => Err(Error::parse(code::SYNTAX, format!("\"{}\" is never closed", open.token))
            .at(errors::span(open.span))),
        None => Ok(deepest),
    }
}

/// The levels that the bracket at `index` counts for.
fn weight(tokens: &[TokenWithSpan], index: usize) -> usize {
    let starts_query = |token: &TokenWithSpan| matches!(&token.token, Token::Word(w) if matches!(w.keyword, Keyword::SELECT | Keyword::WITH));
    let follows_word = || {
        let previous = index.checked_sub(1).and_then(|previous| tokens.get(previous));
        previous.is_some_and(|previous| match &previous.token {
            Token::Word(word) => !matches!(
                word.keyword,
                Keyword::SELECT | Keyword::WHERE | Keyword::AND | Keyword::OR | Keyword::NOT | Keyword::ON
            ),
            _ => false,
        })
    };
    if tokens.get(index + 1).is_some_and(starts_query) {
        SUBQUERY_LEVELS
    } else if tokens[index].token != Token::LParen || follows_word() {
        CALL_LEVELS
    } else {
        1
    }
}

/// What is known of one bracket, or of the statement outside of brackets.
#[derive(Default)]
struct Level<'a> {
    opened_by: Option<&'a TokenWithSpan>,
    is_case: bool,
    /// What the bracket itself adds to the depth.
    own: usize,
    /// Operators since the last comma or clause.
    operators: usize,
    /// Operators since the last comma, clause, AND or OR, and what is inside brackets there.
    chain: usize,
    inner: usize,
    is_sum_of_integers: bool,
    is_between: bool,
    is_union: bool,
    set_operations: usize,
    unions: usize,
    /// The deepest of what stands before.
    depth: usize,
}

impl<'a> Level<'a> {
    fn open(token: &'a TokenWithSpan, own: usize) -> Self {
        Self { opened_by: Some(token), own, is_sum_of_integers: true, ..Self::default() }
    }

    fn depth(&self) -> usize {
        let chain = if self.is_sum_of_integers { 0 } else { self.chain };
        self.own + self.depth.max(chain + self.inner)
    }

    fn end_chain(&mut self) {
        self.depth = self.depth() - self.own;
        self.chain = 0;
        self.inner = 0;
        self.is_sum_of_integers = true;
    }

    fn read(&mut self, token: &Token) {
        match token {
            Token::Comma => {
                self.end_chain();
                self.operators = 0;
            }
            Token::Plus => self.operator(),
            Token::Number(digits, _)
                if digits.len() <= SHORT_INTEGER_DIGITS && digits.bytes().all(|b| b.is_ascii_digit()) => {}
            Token::Word(word) if word.quote_style.is_none() => self.read_word(word.keyword),
            Token::Word(_) | Token::Number(..) | Token::SingleQuotedString(_) | Token::Period => {
                self.is_sum_of_integers = false;
            }
            _ => {
                self.operator();
                self.is_sum_of_integers = false;
            }
        }
    }

    fn read_word(&mut self, keyword: Keyword) {
        match keyword {
            Keyword::SELECT
            | Keyword::FROM
            | Keyword::WHERE
            | Keyword::HAVING
            | Keyword::BY
            | Keyword::ON
            | Keyword::AS
            | Keyword::WHEN
            | Keyword::THEN
            | Keyword::ELSE => {
                self.end_chain();
                self.operators = 0;
            }
            Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS => {
                self.end_chain();
                self.operators = 0;
                self.set_operations += 1;
                self.unions += 1;
                self.is_union = keyword == Keyword::UNION;
            }
            Keyword::ALL if std::mem::take(&mut self.is_union) => self.set_operations -= 1,
            Keyword::AND if std::mem::take(&mut self.is_between) => {}
            Keyword::AND | Keyword::OR => {
                self.end_chain();
                self.operators += 1;
            }
            _ => {
                self.is_sum_of_integers = false;
                self.is_between |= keyword == Keyword::BETWEEN;
                let is_operator = matches!(
                    keyword,
                    Keyword::NOT
                        | Keyword::IS
                        | Keyword::IN
                        | Keyword::BETWEEN
                        | Keyword::LIKE
                        | Keyword::ILIKE
                        | Keyword::SIMILAR
                        | Keyword::REGEXP
                        | Keyword::RLIKE
                        | Keyword::COLLATE
                        | Keyword::AT
                        | Keyword::DIV
                        | Keyword::XOR
                        | Keyword::OVERLAPS
                        | Keyword::OPERATOR
                        | Keyword::NOTNULL
                );
                if is_operator {
                    self.operator();
                }
            }
        }
    }

    fn operator(&mut self) {
        self.operators += 1;
        self.chain += 1;
    }
}

fn pop(levels: &mut Vec<Level>) {
    let depth = levels.pop().map_or(0, |level| level.depth());
    if let Some(outer) = levels.last_mut() {
        outer.inner = outer.inner.max(depth);
        outer.is_sum_of_integers = false;
    }
}

fn close(levels: &mut Vec<Level>, token: &TokenWithSpan) -> Result<(), Error> {
    while levels.last().is_some_and(|level| level.is_case) {
        pop(levels);
    }
    let open = levels.last().and_then(|level| level.opened_by);
    let message = match open {
        Some(open) if is_pair(&open.token, &token.token) => {
            pop(levels);
            return Ok(());
        }
        Some(open) => format!("\"{}\" does not close \"{}\"", token.token, open.token),
        None => format!("\"{}\" closes nothing", token.token),
    };
    Err(Error::parse(code::SYNTAX, message).at(errors::span(token.span)))
}

fn is_pair(open: &Token, close: &Token) -> bool {
    matches!(
        (open, close),
        (Token::LParen, Token::RParen) | (Token::LBracket, Token::RBracket) | (Token::LBrace, Token::RBrace)
    )
}

fn check_limits(levels: &[Level], token: &TokenWithSpan) -> Result<(), Error> {
    let Some(level) = levels.last() else { return Ok(()) };
    // The statement itself is the first level and no bracket.
    if levels.len() > MAX_DEPTH + 1 || level.depth() > MAX_DEPTH {
        return Err(errors::too_deep(Some(errors::span(token.span))));
    }
    let message = if level.operators > MAX_OPERATORS {
        format!("expression has more than {MAX_OPERATORS} operators in a row")
    } else if level.set_operations > MAX_SET_OPERATIONS {
        format!("query has more than {MAX_SET_OPERATIONS} set operations in a row")
    } else if level.unions > MAX_UNIONS {
        format!("query has more than {MAX_UNIONS} UNION ALL in a row")
    } else {
        return Ok(());
    };
    Err(Error::parse(code::TOO_COMPLEX, message)
        .at(errors::span(token.span))
        .hint("Split the query with WITH or CREATE VIEW, or use IN (…) for a list of values."))
}
