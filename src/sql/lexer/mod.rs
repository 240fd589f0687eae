//! A script as tokens: without spaces and comments, cut into statements, checked for brackets.

pub(super) mod blocks;
mod ending;

use std::ops::Range;

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace, Word};

pub(super) use ending::{Ending, ending};

use super::dialect::StreamDialect;
use super::errors;
use crate::error::{Error, Span, code};

/// Brackets and CASEs inside each other.
pub(super) const MAX_DEPTH: usize = 500;
/// Operators of one expression; a chain of them makes a tree as deep as the chain is long.
const MAX_OPERATORS: usize = 5_000;
/// UNION, EXCEPT and INTERSECT between queries.
const MAX_SET_OPERATIONS: usize = 1_000;
/// Starts of names that this module uses itself.
const OUR_NAMES: &[&str] = &["__block_", "__table", "__subquery"];

/// The tokens of a script.
pub(super) struct Lexed {
    /// Tokens without spaces and comments.
    pub(super) tokens: Vec<TokenWithSpan>,
    /// The bytes of the text that each token takes.
    pub(super) bytes: Vec<Range<usize>>,
}

impl Lexed {
    /// The text as tokens.
    pub(super) fn new(text: &str) -> Result<Self, Error> {
        let all = Tokenizer::new(&StreamDialect::new(), text)
            .tokenize_with_location()
            .map_err(|error| errors::lexical(&error, text))?;
        let mut walker = Walker { text, at: Location::new(1, 1), byte: 0 };
        let mut lexed = Self { tokens: Vec::with_capacity(all.len()), bytes: Vec::with_capacity(all.len()) };
        for token in all {
            match &token.token {
                Token::Whitespace(Whitespace::MultiLineComment(comment)) if comment.starts_with('+') => {
                    return Err(Error::parse(code::NOT_SUPPORTED, "hints in comments are not supported")
                        .at(errors::span(token.span))
                        .hint("Remove the plus sign if it is an ordinary comment."));
                }
                Token::Whitespace(_) => continue,
                Token::Word(word) => refuse_our_names(word, &token)?,
                _ => {}
            }
            let start = walker.byte_of(token.span.start);
            lexed.bytes.push(start..walker.byte_of(token.span.end));
            lexed.tokens.push(token);
        }
        Ok(lexed)
    }

    /// The tokens of each statement, without semicolons; empty statements are left out.
    pub(super) fn statements(&self) -> Vec<Range<usize>> {
        let mut statements = Vec::new();
        let mut start = 0;
        for index in 0..=self.tokens.len() {
            if self.tokens.get(index).is_none_or(|token| token.token == Token::SemiColon) {
                if index > start {
                    statements.push(start..index);
                }
                start = index + 1;
            }
        }
        statements
    }
}

fn refuse_our_names(word: &Word, token: &TokenWithSpan) -> Result<(), Error> {
    match OUR_NAMES.iter().find(|ours| word.value.starts_with(**ours)) {
        Some(ours) => Err(Error::parse(
            code::SYNTAX,
            format!("\"{}\" can't be used: names that start with \"{ours}\" are reserved", word.value),
        )
        .at(errors::span(token.span))
        .hint("Choose another name.")),
        None => Ok(()),
    }
}

/// Turns places into bytes, going forward only.
struct Walker<'a> {
    text: &'a str,
    at: Location,
    byte: usize,
}

impl Walker<'_> {
    fn byte_of(&mut self, place: Location) -> usize {
        let mut chars = self.text[self.byte..].chars();
        while self.at < place {
            let Some(c) = chars.next() else { break };
            self.byte += c.len_utf8();
            if c == '\n' {
                self.at = Location::new(self.at.line + 1, 1);
            } else {
                self.at.column += 1;
            }
        }
        self.byte
    }
}

/// Refuses brackets that don't match, and statements whose trees would be too deep to handle.
pub(super) fn check(tokens: &[TokenWithSpan]) -> Result<(), Error> {
    struct Open<'a> {
        token: Option<&'a TokenWithSpan>,
        operators: usize,
        set_operations: usize,
    }
    let mut open = vec![Open { token: None, operators: 0, set_operations: 0 }];
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                open.push(Open { token: Some(token), operators: 0, set_operations: 0 });
                if open.len() > MAX_DEPTH + 1 {
                    return Err(errors::too_deep(Some(errors::span(token.span))));
                }
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                let matching = open.last().and_then(|open| open.token).is_some_and(|open| {
                    matches!(
                        (&open.token, &token.token),
                        (Token::LParen, Token::RParen)
                            | (Token::LBracket, Token::RBracket)
                            | (Token::LBrace, Token::RBrace)
                    )
                });
                if !matching {
                    return Err(unmatched(open.last().and_then(|open| open.token), token));
                }
                open.pop();
            }
            other => {
                let Some(level) = open.last_mut() else { continue };
                match kind_of(other) {
                    Kind::Separator => level.operators = 0,
                    Kind::SetOperation => {
                        level.operators = 0;
                        level.set_operations += 1;
                    }
                    Kind::Operator => level.operators += 1,
                    Kind::Other => {}
                }
                if level.operators > MAX_OPERATORS || level.set_operations > MAX_SET_OPERATIONS {
                    return Err(too_long(token, level.operators > MAX_OPERATORS));
                }
            }
        }
    }
    match open.last().and_then(|open| open.token) {
        Some(token) => Err(Error::parse(code::SYNTAX, format!("\"{}\" is never closed", token.token))
            .at(errors::span(token.span))),
        None => Ok(()),
    }
}

enum Kind {
    Separator,
    SetOperation,
    Operator,
    Other,
}

fn kind_of(token: &Token) -> Kind {
    match token {
        Token::Comma => Kind::Separator,
        Token::Word(word) if word.quote_style.is_some() => Kind::Other,
        Token::Word(word) => match word.keyword {
            Keyword::SELECT
            | Keyword::FROM
            | Keyword::WHERE
            | Keyword::HAVING
            | Keyword::BY
            | Keyword::ON => Kind::Separator,
            Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS => Kind::SetOperation,
            Keyword::AND
            | Keyword::OR
            | Keyword::NOT
            | Keyword::IS
            | Keyword::IN
            | Keyword::BETWEEN
            | Keyword::LIKE
            | Keyword::COLLATE
            | Keyword::AT
            | Keyword::CASE => Kind::Operator,
            _ => Kind::Other,
        },
        Token::Number(..) | Token::SingleQuotedString(_) | Token::Period => Kind::Other,
        _ => Kind::Operator,
    }
}

fn unmatched(open: Option<&TokenWithSpan>, close: &TokenWithSpan) -> Error {
    let message = match open {
        Some(open) => format!("\"{}\" does not close \"{}\"", close.token, open.token),
        None => format!("\"{}\" closes nothing", close.token),
    };
    Error::parse(code::SYNTAX, message).at(errors::span(close.span))
}

fn too_long(token: &TokenWithSpan, is_expression: bool) -> Error {
    let message = if is_expression {
        format!("expression has more than {MAX_OPERATORS} operators")
    } else {
        format!("query has more than {MAX_SET_OPERATIONS} set operations")
    };
    Error::parse(code::TOO_COMPLEX, message)
        .at(errors::span(token.span))
        .hint("Split the query with WITH or CREATE VIEW, or use IN (…) for a list of values.")
}

/// The words that `tokens` start with are these, without quotes.
pub(super) fn starts_with_words(tokens: &[TokenWithSpan], words: &[&str]) -> bool {
    words.len() <= tokens.len() && words.iter().zip(tokens).all(|(word, token)| is_word(&token.token, word))
}

/// The token is this word, without quotes.
pub(super) fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
}

/// From the first to the last of some tokens.
pub(super) fn span_of(tokens: &[TokenWithSpan]) -> Option<Span> {
    let (first, last) = (tokens.first()?, tokens.last()?);
    Some(Span { start: errors::span(first.span).start, end: errors::span(last.span).end })
}
