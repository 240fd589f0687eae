//! Our dialect of sqlparser: table arguments, intervals, casts to nested types, names that are
//! keywords elsewhere.

use std::cell::{Cell, RefCell};

use sqlparser::ast::{
    CastKind, Expr, Function, FunctionArguments, Ident, ObjectName, ObjectNamePart, WindowSpec, WindowType,
};
use sqlparser::dialect::{Dialect, GenericDialect};
use sqlparser::keywords::{self, Keyword};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, Word};

use super::{SUBQUERY, TABLE, interval, types};
use crate::error::{Error, code};

/// The dialect of one parse: it also keeps what the hooks must remember.
#[derive(Debug)]
pub(super) struct StreamDialect {
    /// The first fault that a hook is sure of; sqlparser may try other readings after it.
    fault: RefCell<Option<Error>>,
    /// Prefixes that may still be read: a bound on how often sqlparser may go back.
    fuel: Cell<usize>,
}

impl StreamDialect {
    pub(super) fn new() -> Self {
        Self::for_tokens(1_000)
    }

    /// For a text of so many tokens.
    pub(super) fn for_tokens(count: usize) -> Self {
        Self { fault: RefCell::new(None), fuel: Cell::new(10_000 + count.saturating_mul(100)) }
    }

    /// The fault that the hooks found, if any.
    pub(super) fn take_fault(&self) -> Option<Error> {
        self.fault.borrow_mut().take()
    }

    fn keep_fault(&self, error: Error) -> ParserError {
        self.fault.borrow_mut().get_or_insert(error);
        ParserError::ParserError("see the fault".to_owned())
    }

    fn burn(&self) -> Result<(), ParserError> {
        match self.fuel.get().checked_sub(1) {
            Some(left) => {
                self.fuel.set(left);
                Ok(())
            }
            None => {
                Err(self
                    .keep_fault(Error::parse(code::TOO_COMPLEX, "statement is too ambiguous to be parsed")))
            }
        }
    }
}

impl Dialect for StreamDialect {
    fn dialect(&self) -> std::any::TypeId {
        // The parser's own branches for the generic dialect are on.
        std::any::TypeId::of::<GenericDialect>()
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        ch.is_alphabetic() || ch == '_'
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        ch.is_alphanumeric() || ch == '_' || ch == '$'
    }

    fn supports_unicode_string_literal(&self) -> bool {
        true
    }

    fn supports_string_escape_constant(&self) -> bool {
        true
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_window_clause_named_window_reference(&self) -> bool {
        true
    }

    fn supports_window_function_null_treatment_arg(&self) -> bool {
        true
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    fn supports_match_recognize(&self) -> bool {
        true
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }

    fn supports_select_wildcard_except(&self) -> bool {
        true
    }

    fn supports_select_wildcard_exclude(&self) -> bool {
        true
    }

    fn supports_select_wildcard_replace(&self) -> bool {
        true
    }

    fn supports_dictionary_syntax(&self) -> bool {
        true
    }

    fn support_map_literal_syntax(&self) -> bool {
        true
    }

    fn supports_struct_literal(&self) -> bool {
        true
    }

    fn allow_extract_custom(&self) -> bool {
        true
    }

    fn allow_extract_single_quotes(&self) -> bool {
        true
    }

    fn supports_array_typedef_with_brackets(&self) -> bool {
        true
    }

    fn supports_parens_around_table_factor(&self) -> bool {
        true
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        true
    }

    /// `FORMAT __block_N` stands for the clauses of a block, see [`super::lexer::blocks`].
    fn supports_select_format(&self) -> bool {
        true
    }

    /// Words whose special form is the only one: the fault inside it is the one to report, and the
    /// text is not read a second time.
    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        keywords::RESERVED_FOR_IDENTIFIER.contains(&keyword)
            || matches!(
                keyword,
                Keyword::CASE | Keyword::CAST | Keyword::TRY_CAST | Keyword::EXTRACT | Keyword::NOT
            )
    }

    fn is_select_item_alias(&self, explicit: bool, keyword: &Keyword, parser: &mut Parser) -> bool {
        explicit || (self.is_column_alias(keyword, parser) && !is_block_marker(*keyword, parser))
    }

    fn is_table_factor_alias(&self, explicit: bool, keyword: &Keyword, parser: &mut Parser) -> bool {
        explicit
            || (!is_block_marker(*keyword, parser)
                && (*keyword == Keyword::FORMAT || self.is_table_alias(keyword, parser)))
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if let Err(error) = self.burn() {
            return Some(Err(error));
        }
        match &parser.peek_token_ref().token {
            Token::LParen if is_query_start(&parser.peek_nth_token_ref(1).token) => {
                let is_argument = is_argument(parser);
                Some(self.subquery(parser, is_argument))
            }
            Token::Minus if interval::is_negated(parser) => {
                Some(interval::parse_negated(parser).map_err(|error| self.keep_fault(error)))
            }
            Token::Word(word) if word.quote_style.is_none() => {
                let word = word.clone();
                self.word_prefix(&word, parser)
            }
            _ => None,
        }
    }
}

impl StreamDialect {
    fn word_prefix(&self, word: &Word, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let next = &parser.peek_nth_token_ref(1).token;
        match word.keyword {
            Keyword::TABLE if is_argument(parser) => match next {
                Token::Word(_) => Some(table_argument(parser)),
                Token::LParen if is_query_start(&parser.peek_nth_token_ref(2).token) => {
                    parser.advance_token();
                    Some(self.subquery(parser, true))
                }
                Token::Comma | Token::RParen => {
                    parser.advance_token();
                    Some(parser.expected("the name of a table", parser.peek_token()))
                }
                _ => None,
            },
            Keyword::INTERVAL if interval::is_literal(next) => {
                Some(interval::parse(parser).map_err(|error| self.keep_fault(error)))
            }
            // A column, not PostgreSQL's function without parentheses.
            Keyword::USER if *next != Token::LParen => {
                let token = parser.next_token();
                Some(Ok(Expr::Identifier(word.to_ident(token.span))))
            }
            Keyword::CAST if *next == Token::LParen => Some(self.cast(parser, CastKind::Cast)),
            Keyword::TRY_CAST if *next == Token::LParen => Some(self.cast(parser, CastKind::TryCast)),
            keyword if is_never_expression(keyword, next) => {
                Some(parser.expected("an expression", parser.peek_token()))
            }
            _ => None,
        }
    }

    /// `(SELECT …) [PARTITION BY …]`.
    fn subquery(&self, parser: &mut Parser, is_argument: bool) -> Result<Expr, ParserError> {
        parser.expect_token(&Token::LParen)?;
        let query = parser.parse_query()?;
        parser.expect_token(&Token::RParen)?;
        if !is_argument || !parser.peek_keyword(Keyword::PARTITION) {
            return Ok(Expr::Subquery(query));
        }
        let name = ObjectName::from(vec![Ident::new(SUBQUERY)]);
        partitioned(parser, name, FunctionArguments::Subquery(query))
    }

    fn cast(&self, parser: &mut Parser, kind: CastKind) -> Result<Expr, ParserError> {
        parser.advance_token();
        parser.expect_token(&Token::LParen)?;
        let expr = parser.parse_expr()?;
        parser.expect_keyword_is(Keyword::AS)?;
        let data_type = match types::parse_nested(parser) {
            Some(sql_type) => types::to_data_type(&sql_type.map_err(|error| self.keep_fault(error))?),
            None => parser.parse_data_type()?,
        };
        parser.expect_token(&Token::RParen)?;
        Ok(Expr::Cast { kind, expr: Box::new(expr), data_type, array: false, format: None })
    }
}

/// The last word read is FORMAT, and our mark of block clauses follows.
fn is_block_marker(keyword: Keyword, parser: &Parser) -> bool {
    keyword == Keyword::FORMAT
        && matches!(&parser.peek_token_ref().token, Token::Word(word) if word.value.starts_with("__block_"))
}

fn is_query_start(token: &Token) -> bool {
    matches!(token, Token::Word(Word { keyword: Keyword::SELECT | Keyword::WITH, quote_style: None, .. }))
}

/// What comes next is an argument of a function, as far as the token before it can tell.
fn is_argument(parser: &Parser) -> bool {
    matches!(parser.get_current_token().token, Token::LParen | Token::Comma | Token::RArrow)
}

/// Words that start a clause: where an expression must stand, the expression is missing.
fn is_never_expression(keyword: Keyword, next: &Token) -> bool {
    let is_by = matches!(next, Token::Word(Word { keyword: Keyword::BY, .. }));
    match keyword {
        Keyword::FROM
        | Keyword::WHERE
        | Keyword::HAVING
        | Keyword::SELECT
        | Keyword::UNION
        | Keyword::JOIN
        | Keyword::ON
        | Keyword::AS
        | Keyword::AND
        | Keyword::OR
        | Keyword::WHEN
        | Keyword::THEN
        | Keyword::ELSE
        | Keyword::IN
        | Keyword::BY
        | Keyword::INTO => true,
        Keyword::GROUP | Keyword::ORDER | Keyword::PARTITION => is_by,
        _ => false,
    }
}

/// `TABLE name [PARTITION BY …]`.
fn table_argument(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.advance_token();
    let name = parser.parse_object_name(false)?;
    if parser.peek_keyword(Keyword::PARTITION) {
        return partitioned(parser, name, FunctionArguments::None);
    }
    let mut idents: Vec<Ident> = name
        .0
        .into_iter()
        .filter_map(|part| match part {
            ObjectNamePart::Identifier(ident) => Some(ident),
            ObjectNamePart::Function(_) => None,
        })
        .collect();
    let value = match idents.len() {
        1 => Expr::Identifier(idents.remove(0)),
        _ => Expr::CompoundIdentifier(idents),
    };
    Ok(Expr::Prefixed { prefix: Ident::new(TABLE), value: Box::new(value) })
}

fn partitioned(parser: &mut Parser, name: ObjectName, args: FunctionArguments) -> Result<Expr, ParserError> {
    parser.expect_keywords(&[Keyword::PARTITION, Keyword::BY])?;
    let spec = WindowSpec {
        window_name: None,
        partition_by: partition_keys(parser)?,
        order_by: Vec::new(),
        window_frame: None,
    };
    let value = Expr::Function(Function {
        name,
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args,
        filter: None,
        null_treatment: None,
        over: Some(WindowType::WindowSpec(spec)),
        within_group: Vec::new(),
    });
    Ok(Expr::Prefixed { prefix: Ident::new(TABLE), value: Box::new(value) })
}

/// One key, several in parentheses, or several without if DESCRIPTOR or a named argument follows.
fn partition_keys(parser: &mut Parser) -> Result<Vec<Expr>, ParserError> {
    let mut keys = match parser.parse_expr()? {
        Expr::Tuple(keys) => keys,
        Expr::Nested(key) => vec![*key],
        key => vec![key],
    };
    while parser.peek_token_ref().token == Token::Comma && another_key_follows(parser) {
        parser.advance_token();
        keys.push(parser.parse_expr()?);
    }
    Ok(keys)
}

/// After the comma comes a key: something else than DESCRIPTOR or a named argument, and before
/// DESCRIPTOR or a named argument.
fn another_key_follows(parser: &Parser) -> bool {
    let mut depth = 0_usize;
    let mut is_first = true;
    for n in 1..1_000 {
        let token = &parser.peek_nth_token_ref(n).token;
        let next = &parser.peek_nth_token_ref(n + 1).token;
        match token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return false,
            Token::RParen => depth -= 1,
            Token::EOF => return false,
            Token::Comma if depth == 0 => is_first = false,
            Token::Word(word) if depth == 0 => {
                let is_descriptor = word.value.eq_ignore_ascii_case("descriptor") && *next == Token::LParen;
                if is_descriptor || *next == Token::RArrow {
                    return !is_first;
                }
            }
            _ => {}
        }
    }
    false
}
