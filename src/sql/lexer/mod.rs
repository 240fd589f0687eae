//! A script as tokens: without spaces and comments, cut into statements, checked for depth.

pub(super) mod blocks;
mod depth;
mod ending;
pub(super) mod within;

use std::ops::Range;

use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace, Word};

pub(super) use depth::{MAX_DEPTH, check};
pub(super) use ending::{Ending, ending};

use super::dialect::StreamDialect;
use super::errors;
use crate::error::{Error, Span, code};

/// Starts of names that this module uses itself.
const OUR_NAMES: &[&str] = &["__block_", "__table", "__subquery", "__value_", "__within"];

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
