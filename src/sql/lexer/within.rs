//! `WITHIN interval` of MATCH_RECOGNIZE, which sqlparser does not know.
//!
//! `PATTERN (…) WITHIN interval DEFINE a AS …` becomes `PATTERN (…) DEFINE __within AS interval, a AS …`.
//! `{- a -}` is refused here: behind a variable sqlparser takes it for a quantifier.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::super::WITHIN;
use super::super::errors;
use super::is_word;
use crate::error::{Error, code};

/// The tokens with WITHIN as the first definition.
///
/// # Errors
/// `P002` for an exclusion in a pattern.
pub(in crate::sql) fn as_definition(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>, Error> {
    let is_clause = |token: &TokenWithSpan| is_word(&token.token, "MATCH_RECOGNIZE");
    if !tokens.iter().any(is_clause) {
        return Ok(tokens);
    }
    let mut given: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 2);
    // For each open bracket, whether it is that of the clause.
    let mut open: Vec<bool> = Vec::new();
    // Words DEFINE that are a comma now.
    let mut commas: Vec<usize> = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::LParen => open.push(index > 0 && is_clause(&tokens[index - 1])),
            Token::RParen => {
                open.pop();
                if open.last() == Some(&true)
                    && tokens.get(index + 1).is_some_and(|next| is_word(&next.token, "WITHIN"))
                {
                    commas.extend(definitions(&tokens, index + 2));
                }
            }
            Token::LBrace
                if open.contains(&true)
                    && tokens.get(index + 1).is_some_and(|next| next.token == Token::Minus) =>
            {
                return Err(Error::parse(code::NOT_SUPPORTED, "an exclusion in PATTERN can't run yet")
                    .at(errors::span(token.span))
                    .hint("Leave the braces out: MEASURES says what is given of a match."));
            }
            word if is_word(word, "WITHIN") && commas.last().is_some_and(|comma| *comma > index) => {
                let words = [
                    Token::make_keyword("DEFINE"),
                    Token::make_word(WITHIN, None),
                    Token::make_keyword("AS"),
                ];
                given.extend(words.map(|word| TokenWithSpan { token: word, span: token.span }));
                continue;
            }
            _ if commas.contains(&index) => {
                given.push(TokenWithSpan { token: Token::Comma, span: token.span });
                continue;
            }
            _ => {}
        }
        given.push(token.clone());
    }
    Ok(given)
}

/// Where DEFINE of the same brackets stands, from `start` on.
fn definitions(tokens: &[TokenWithSpan], start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(start) {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            word if depth == 0 && is_word(word, "DEFINE") => return Some(index),
            _ => {}
        }
    }
    None
}
