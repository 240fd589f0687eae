//! The clauses at the end of query blocks: `EMIT …`, `ALLOW LATENESS …`, `LATE ROWS INTO …`.
//!
//! They are taken out of the tokens, and `FORMAT __block_N` is put there instead, which sqlparser
//! reads as the last clause of a query. [`super::super::query`] turns it into the wrapped form.

use sqlparser::ast::Expr;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Span as TokenSpan, Token, TokenWithSpan};

use super::super::ast::{BlockClauses, Emit, block_alias};
use super::super::dialect::StreamDialect;
use super::super::errors;
use super::{is_word, span_of, starts_with_words};
use crate::error::{Error, Span, code};

/// The tokens without block clauses, and the clauses in the order of the text.
pub(in crate::sql) struct Extracted {
    /// What sqlparser reads.
    pub(in crate::sql) tokens: Vec<TokenWithSpan>,
    /// What it does not know.
    pub(in crate::sql) blocks: Vec<BlockClauses>,
    /// Where the clauses of each block stand.
    pub(in crate::sql) spans: Vec<Span>,
}

/// Takes the block clauses out of the tokens of one statement.
pub(in crate::sql) fn extract(tokens: &[TokenWithSpan]) -> Result<Extracted, Error> {
    let mut extracted =
        Extracted { tokens: Vec::with_capacity(tokens.len()), blocks: Vec::new(), spans: Vec::new() };
    let mut open: Vec<usize> = Vec::new();
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        match token.token {
            Token::LParen | Token::LBracket | Token::LBrace => open.push(index),
            Token::RParen | Token::RBracket | Token::RBrace => {
                open.pop();
            }
            _ => {}
        }
        if !is_clause(tokens, index) {
            extracted.tokens.push(token.clone());
            index += 1;
            continue;
        }
        let group = open.last().map_or(tokens, |open| &tokens[open + 1..]);
        if !open.is_empty() && !starts_query(group) {
            return Err(errors::misplaced(Some(errors::span(token.span))));
        }
        let start = index;
        let clauses = read_clauses(tokens, &mut index)?;
        let span = span_of(&tokens[start..index]).expect("a clause has at least two tokens");
        push_marker(&mut extracted, token.span);
        extracted.blocks.push(clauses);
        extracted.spans.push(span);
    }
    Ok(extracted)
}

fn push_marker(extracted: &mut Extracted, span: TokenSpan) {
    let alias = block_alias(extracted.blocks.len());
    for token in [Token::make_keyword("FORMAT"), Token::make_word(&alias, None)] {
        extracted.tokens.push(TokenWithSpan { token, span });
    }
}

fn starts_query(group: &[TokenWithSpan]) -> bool {
    match group.first().map(|token| &token.token) {
        Some(Token::LParen) => true,
        Some(Token::Word(word)) => {
            matches!(word.keyword, Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE)
        }
        _ => false,
    }
}

/// A clause starts at `index`: its words stand after something that a query block can end with.
fn is_clause(tokens: &[TokenWithSpan], index: usize) -> bool {
    let rest = &tokens[index..];
    let words = match &rest[0].token {
        Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("emit") => {
            is_emit(&rest[1..])
        }
        Token::Word(word) if word.quote_style.is_none() => {
            starts_with_words(rest, &["ALLOW", "LATENESS"])
                || starts_with_words(rest, &["LATE", "ROWS", "INTO"])
        }
        _ => false,
    };
    words && index > 0 && can_end_block(&tokens[index - 1].token)
}

/// What follows EMIT is its clause, or an attempt at one.
fn is_emit(rest: &[TokenWithSpan]) -> bool {
    // `FROM t emit EMIT CHANGES`: the first one is an alias.
    let clauses: [&[&str]; 3] = [&["EMIT"], &["ALLOW", "LATENESS"], &["LATE", "ROWS"]];
    if clauses.iter().any(|words| starts_with_words(rest, words)) {
        return false;
    }
    match rest.first().map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => {
            let is_join = word.keyword == Keyword::ON && !starts_with_words(&rest[1..], &["WINDOW"]);
            let is_known =
                ["CHANGES", "COMPLETE", "EARLY", "ON"].iter().any(|w| word.value.eq_ignore_ascii_case(w));
            let is_attempt = matches!(word.keyword, Keyword::NoKeyword | Keyword::CHANGE | Keyword::FINAL);
            (is_known && !is_join) || is_attempt
        }
        _ => false,
    }
}

fn can_end_block(token: &Token) -> bool {
    match token {
        Token::RParen | Token::RBracket | Token::Mul | Token::Number(..) | Token::SingleQuotedString(_) => {
            true
        }
        Token::Word(word) if word.quote_style.is_some() => true,
        Token::Word(word) => !matches!(
            word.keyword,
            Keyword::ALL
                | Keyword::AND
                | Keyword::AS
                | Keyword::BETWEEN
                | Keyword::BY
                | Keyword::CASE
                | Keyword::CROSS
                | Keyword::DISTINCT
                | Keyword::ELSE
                | Keyword::EXCEPT
                | Keyword::EXISTS
                | Keyword::FOR
                | Keyword::FROM
                | Keyword::HAVING
                | Keyword::IN
                | Keyword::INNER
                | Keyword::INTERSECT
                | Keyword::INTERVAL
                | Keyword::INTO
                | Keyword::IS
                | Keyword::JOIN
                | Keyword::LIKE
                | Keyword::LIMIT
                | Keyword::NOT
                | Keyword::OFFSET
                | Keyword::ON
                | Keyword::OR
                | Keyword::SELECT
                | Keyword::SET
                | Keyword::TABLE
                | Keyword::THEN
                | Keyword::UNION
                | Keyword::USING
                | Keyword::VIEW
                | Keyword::WHEN
                | Keyword::WHERE
                | Keyword::WITH
        ),
        _ => false,
    }
}

/// Reads all clauses from `index` on, each at most once, and goes behind them.
fn read_clauses(tokens: &[TokenWithSpan], index: &mut usize) -> Result<BlockClauses, Error> {
    let mut clauses = BlockClauses { emit: None, allow_lateness: None, late_rows_into: None };
    loop {
        let first = *index;
        let word = &tokens[first];
        let mut reader = Reader::new(tokens, first);
        let taken = if reader.take(&["EMIT"]) {
            let emit = reader.emit()?;
            clauses.emit.replace((emit, reader.span())).is_some()
        } else if reader.take(&["ALLOW", "LATENESS"]) {
            let interval = reader.interval()?;
            clauses.allow_lateness.replace((interval, reader.span())).is_some()
        } else {
            reader.take(&["LATE", "ROWS", "INTO"]);
            let name = reader.name()?;
            clauses.late_rows_into.replace((name, reader.span())).is_some()
        };
        if taken {
            return Err(Error::parse(code::GIVEN_TWICE, format!("\"{}\" is given twice", word.token))
                .at(reader.span())
                .hint("Keep one of the two."));
        }
        *index = reader.index;
        match tokens.get(*index) {
            None => return Ok(clauses),
            Some(next) if next.token == Token::RParen || is_word(&next.token, "END") => return Ok(clauses),
            Some(_) if is_clause(tokens, *index) => {}
            Some(_) => {
                return Err(errors::expected("the end of the query block", tokens, *index)
                    .hint("Put EMIT, ALLOW LATENESS and LATE ROWS INTO at the very end of a query block."));
            }
        }
    }
}

struct Reader<'a> {
    tokens: &'a [TokenWithSpan],
    start: usize,
    index: usize,
}

impl<'a> Reader<'a> {
    fn new(tokens: &'a [TokenWithSpan], start: usize) -> Self {
        Self { tokens, start, index: start }
    }

    fn span(&self) -> Span {
        span_of(&self.tokens[self.start..self.index]).expect("the clause's first word is read")
    }

    fn take(&mut self, words: &[&str]) -> bool {
        let is_there = starts_with_words(&self.tokens[self.index..], words);
        if is_there {
            self.index += words.len();
        }
        is_there
    }

    fn emit(&mut self) -> Result<Emit, Error> {
        if self.take(&["ON", "WINDOW", "CLOSE"]) {
            return Ok(Emit::OnWindowClose);
        }
        if self.take(&["CHANGES"]) {
            return Ok(Emit::Changes(self.every()?));
        }
        if self.take(&["COMPLETE"]) {
            return Ok(Emit::Complete(self.every()?));
        }
        if self.take(&["EARLY"]) {
            return match self.every()? {
                Some(interval) => Ok(Emit::Early(interval)),
                None => Err(errors::expected("EVERY", self.tokens, self.index)
                    .hint("Say how often: EMIT EARLY EVERY INTERVAL '10' SECOND.")),
            };
        }
        let known = "ON WINDOW CLOSE, CHANGES, COMPLETE or EARLY";
        Err(errors::expected(&format!("{known} after EMIT"), self.tokens, self.index)
            .hint("Write EMIT ON WINDOW CLOSE, EMIT CHANGES, EMIT COMPLETE or EMIT EARLY EVERY INTERVAL '10' SECOND."))
    }

    fn every(&mut self) -> Result<Option<Expr>, Error> {
        if self.take(&["EVERY"]) { self.interval().map(Some) } else { Ok(None) }
    }

    fn interval(&mut self) -> Result<Expr, Error> {
        let start = self.index;
        let hint = "Write an interval such as INTERVAL '10' SECOND.";
        if self.index == self.tokens.len() {
            return Err(errors::expected("an interval", self.tokens, start).hint(hint));
        }
        let expr = self.read(|parser| parser.parse_prefix())?;
        match expr {
            Expr::Interval(_) => Ok(expr),
            _ => Err(errors::expected("an interval", self.tokens, start).hint(hint)),
        }
    }

    fn name(&mut self) -> Result<sqlparser::ast::ObjectName, Error> {
        self.read(|parser| parser.parse_object_name(false))
    }

    fn read<T>(
        &mut self,
        read: impl Fn(&mut Parser) -> Result<T, sqlparser::parser::ParserError>,
    ) -> Result<T, Error> {
        let rest = &self.tokens[self.index..];
        let dialect = StreamDialect::new();
        // A clause is short; the rest of a long statement need not be copied.
        let near = &rest[..rest.len().min(64)];
        let mut parser = Parser::new(&dialect).with_tokens_with_locations(near.to_vec());
        match read(&mut parser) {
            Ok(value) => {
                self.index += parser.index();
                Ok(value)
            }
            Err(error) => Err(dialect.take_fault().unwrap_or_else(|| errors::translate(&error, self.tokens))),
        }
    }
}
