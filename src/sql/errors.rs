//! sqlparser's errors, which are strings, as ours: our words, the place of the token, a way out.

use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Span as TokenSpan, Token, TokenWithSpan, TokenizerError};

use super::lexer::{self, Ending};
use crate::error::{Error, Place, Span, code, did_you_mean};

/// What a statement may start with; what else starts one is not supported.
pub(super) const STATEMENTS: &str = "SELECT, WITH, INSERT INTO, CREATE TABLE, CREATE VIEW, DROP, EXPLAIN, \
     SET, RESET, SHOW, DESCRIBE, DIAGNOSE, STOP JOB, BEGIN STATEMENT SET";

/// What is expected after a statement, and found where one breaks off.
pub(super) const END: &str = "the end of the statement";

/// Words that people mistype in the middle of a statement.
const CLAUSE_WORDS: &[&str] = &[
    "ALLOW",
    "BETWEEN",
    "CHANGES",
    "COMMENT",
    "CROSS",
    "DISTINCT",
    "EMIT",
    "ENFORCED",
    "EXISTS",
    "FROM",
    "GROUP",
    "HAVING",
    "INNER",
    "INTERVAL",
    "INTO",
    "JOIN",
    "LATENESS",
    "LEFT",
    "LIMIT",
    "METADATA",
    "ORDER",
    "OUTER",
    "PARTITION",
    "PRIMARY",
    "RIGHT",
    "SELECT",
    "STATEMENT",
    "TABLE",
    "TEMPORARY",
    "UNION",
    "VALUES",
    "VIEW",
    "VIRTUAL",
    "WATERMARK",
    "WHERE",
    "WITH",
];

/// A span of sqlparser's as one of ours.
pub(super) fn span(span: TokenSpan) -> Span {
    Span { start: place(span.start), end: place(span.end) }
}

fn place(location: Location) -> Place {
    Place { line: location.line, column: location.column }
}

/// The place just after a span, one character wide.
pub(super) fn after(span: Span) -> Span {
    Span { start: span.end, end: Place { line: span.end.line, column: span.end.column + 1 } }
}

/// `expected …, found …` at a token; `index` may be the one past the last.
pub(super) fn expected(what: &str, tokens: &[TokenWithSpan], index: usize) -> Error {
    if tokens.iter().skip(index).take(2).any(is_block_mark) {
        return misplaced(span_at(tokens, index));
    }
    if let Some(error) = mistyped_before(tokens, index) {
        return error;
    }
    let error = Error::parse(code::SYNTAX, format!("expected {what}, found {}", found(tokens.get(index))))
        .at(span_at(tokens, index));
    if what == END && tokens.get(index).is_some_and(|token| starts_statement(&token.token)) {
        return error.hint("Put a semicolon between two statements.");
    }
    with_hint(error, tokens, index)
}

/// A mistyped keyword is read as an alias, and the fault shows at the next token.
fn mistyped_before(tokens: &[TokenWithSpan], index: usize) -> Option<Error> {
    let at = index.checked_sub(1)?;
    let word = tokens.get(at)?;
    let suggestion = mistyped_keyword(word)?;
    let before = &tokens.get(at.checked_sub(1)?)?.token;
    let is_alias = match before {
        Token::RParen | Token::RBracket | Token::Mul | Token::Number(..) | Token::SingleQuotedString(_) => {
            true
        }
        Token::Word(_) => !is_reserved(before) && !is_opener(before),
        // `WATERMRK FOR`.
        Token::Comma | Token::LParen => {
            tokens.get(index).is_some_and(|next| lexer::is_word(&next.token, "FOR"))
        }
        _ => false,
    };
    is_alias.then(|| {
        Error::parse(code::SYNTAX, format!("unexpected \"{}\"", word.token))
            .at(span_at(tokens, at))
            .hint(format!("Write {suggestion} instead of {}.", word.token))
    })
}

fn starts_statement(token: &Token) -> bool {
    ["SELECT", "INSERT", "CREATE", "DROP", "EXPLAIN"].iter().any(|word| lexer::is_word(token, word))
}

/// `expected …, found …` at the parser's next token.
pub(super) fn expected_next(what: &str, parser: &Parser) -> Error {
    let next = parser.peek_token_ref();
    if next.token == Token::EOF {
        return Error::parse(code::SYNTAX, format!("expected {what}, found {}", found(None)))
            .at(after(span(parser.get_current_token().span)));
    }
    Error::parse(code::SYNTAX, format!("expected {what}, found {}", found(Some(next)))).at(span(next.span))
}

/// The clauses of a block can't stand at `span`.
pub(super) fn misplaced(span: Option<Span>) -> Error {
    Error::parse(code::SYNTAX, "the clauses of a query block can't stand here")
        .at(span)
        .hint("Put EMIT, ALLOW LATENESS and LATE ROWS INTO at the very end of a query block.")
}

fn is_block_mark(token: &TokenWithSpan) -> bool {
    matches!(&token.token, Token::Word(word) if word.value.starts_with("__block_"))
}

/// The place of a token, or the one after the last.
pub(super) fn span_at(tokens: &[TokenWithSpan], index: usize) -> Option<Span> {
    match tokens.get(index) {
        Some(token) => Some(span(token.span)),
        None => tokens.last().map(|last| after(span(last.span))),
    }
}

fn found(token: Option<&TokenWithSpan>) -> String {
    match token.map(|token| &token.token) {
        None | Some(Token::EOF) => END.to_owned(),
        Some(Token::Word(word)) => format!("\"{}\"", word.value),
        Some(token @ Token::SingleQuotedString(_)) => token.to_string(),
        Some(token) => format!("\"{token}\""),
    }
}

/// An error of sqlparser's about `tokens`, which are those of one statement.
pub(super) fn translate(error: &ParserError, tokens: &[TokenWithSpan]) -> Error {
    let text = match error {
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => text.as_str(),
        ParserError::RecursionLimitExceeded => return too_deep(None),
    };
    let (message, location) = split_location(text);
    let index = location.map_or(tokens.len(), |location| {
        tokens.iter().position(|token| token.span.start >= location).unwrap_or(tokens.len())
    });
    match message.strip_prefix("Expected: ").and_then(|rest| rest.split_once(", found:")) {
        Some((what, _)) => expected(&in_our_words(what), tokens, index),
        None => {
            let error = Error::parse(code::SYNTAX, lower_first(message)).at(span_at(tokens, index));
            with_hint(error, tokens, index)
        }
    }
}

/// Brackets, operators or queries that are nested deeper than we go.
pub(super) fn too_deep(span: Option<Span>) -> Error {
    let message = format!("expression nested too deeply, allowed are {} levels", lexer::MAX_DEPTH);
    Error::parse(code::TOO_COMPLEX, message).at(span).hint(
        "Use fewer brackets and shorter chains of operators, or split the query with WITH or CREATE VIEW.",
    )
}

/// Splits ` at Line: 1, Column: 24` off.
fn split_location(text: &str) -> (&str, Option<Location>) {
    let Some((message, rest)) = text.rsplit_once(" at Line: ") else {
        return (text, None);
    };
    let location = rest.split_once(", Column: ").and_then(|(line, column)| {
        Some(Location::new(line.trim().parse().ok()?, column.trim().parse().ok()?))
    });
    (message, location)
}

fn in_our_words(what: &str) -> String {
    let what = what.trim();
    match what {
        "end of statement" => END.to_owned(),
        "identifier" => "a name".to_owned(),
        "literal string" => "a string in single quotes".to_owned(),
        "SELECT, VALUES, or a subquery in the query body" => "a query".to_owned(),
        _ if what.chars().all(|c| c.is_ascii_punctuation()) => format!("\"{what}\""),
        _ => what.to_owned(),
    }
}

fn lower_first(message: &str) -> String {
    let mut chars = message.trim().trim_end_matches('.').chars();
    match chars.next() {
        Some(first) if !chars.as_str().starts_with(|c: char| c.is_uppercase()) => {
            first.to_lowercase().chain(chars).collect()
        }
        Some(first) => std::iter::once(first).chain(chars).collect(),
        None => String::new(),
    }
}

/// Adds the way out that the tokens around the place suggest.
fn with_hint(error: Error, tokens: &[TokenWithSpan], index: usize) -> Error {
    if let Some(suggestion) = tokens.get(index).and_then(mistyped_keyword) {
        return error.hint(format!("Write {suggestion} instead of {}.", tokens[index].token));
    }
    for word in ["GROUP", "ORDER"] {
        let is_there = tokens.get(index).is_some_and(|token| lexer::is_word(&token.token, word));
        let is_by = tokens.get(index + 1).is_some_and(|token| lexer::is_word(&token.token, "BY"));
        if is_there && !is_by {
            return error.hint(format!(
                "Write {word} BY, or put back-ticks around a name that is a keyword: `{word}`."
            ));
        }
    }
    let previous = index.checked_sub(1).and_then(|at| tokens.get(at));
    if tokens.get(index).is_some_and(|token| lexer::is_word(&token.token, "MATCH_RECOGNIZE")) {
        return error.hint("Give the query a name, WITH q AS (…), and write q MATCH_RECOGNIZE (…).");
    }
    if let (Some(Token::Comma), Some(Token::Word(word))) =
        (previous.map(|t| &t.token), tokens.get(index).map(|t| &t.token))
        && matches!(word.keyword, Keyword::FROM | Keyword::WHERE | Keyword::GROUP | Keyword::ORDER)
    {
        return error.hint(format!("Remove the comma before {}.", word.value));
    }
    // After TABLE or SELECT something is missing; after another keyword it may be the keyword's fault.
    let suspect = previous.filter(|token| !is_opener(&token.token));
    for token in [tokens.get(index), suspect].into_iter().flatten() {
        if let Some(name) = keyword_as_name(token) {
            return error.hint(format!("Put back-ticks around a name that is a keyword: `{name}`."));
        }
    }
    error
}

fn mistyped_keyword(token: &TokenWithSpan) -> Option<&'static str> {
    match &token.token {
        Token::Word(word)
            if word.quote_style.is_none()
                && word.keyword == Keyword::NoKeyword
                && word.value.chars().count() >= 3 =>
        {
            did_you_mean(&word.value, CLAUSE_WORDS.iter().copied())
                .filter(|known| !known.eq_ignore_ascii_case(&word.value))
        }
        _ => None,
    }
}

/// A word that can't be the name of a table without quotes.
pub(super) fn is_reserved(token: &Token) -> bool {
    match token {
        Token::Word(word) if word.quote_style.is_none() => is_reserved_word(&word.value),
        _ => false,
    }
}

/// Words that start or join clauses.
pub(super) fn is_reserved_word(word: &str) -> bool {
    const RESERVED: &[&str] = &[
        "AND",
        "AS",
        "BY",
        "CREATE",
        "CROSS",
        "DROP",
        "EXCEPT",
        "FROM",
        "FULL",
        "GROUP",
        "HAVING",
        "INNER",
        "INSERT",
        "INTERSECT",
        "INTO",
        "JOIN",
        "LEFT",
        "LIMIT",
        "NATURAL",
        "NOT",
        "ON",
        "OR",
        "ORDER",
        "RIGHT",
        "SELECT",
        "SET",
        "UNION",
        "USING",
        "VALUES",
        "WHERE",
        "WITH",
    ];
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word))
}

/// A table whose name is missing: FROM or JOIN is followed by a word of the next clause.
pub(super) fn missing_table(tokens: &[TokenWithSpan]) -> Option<Error> {
    let before =
        |token: &Token| matches!(token, Token::Word(w) if matches!(w.keyword, Keyword::FROM | Keyword::JOIN));
    let at = tokens.windows(2).position(|pair| {
        before(&pair[0].token) && is_reserved(&pair[1].token) && !lexer::is_word(&pair[1].token, "NOT")
    })?;
    Some(expected("the name of a table", tokens, at + 1))
}

/// The word, if it is an unquoted keyword that people use as a name.
fn keyword_as_name(token: &TokenWithSpan) -> Option<&str> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() && is_tempting(word.keyword) => Some(&word.value),
        _ => None,
    }
}

fn is_opener(token: &Token) -> bool {
    let openers =
        ["CASE", "GROUP", "LIMIT", "OFFSET", "ORDER", "SELECT", "SET", "TABLE", "TO", "VALUES", "VIEW"];
    openers.iter().any(|word| lexer::is_word(token, word))
}

fn is_tempting(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::CASE
            | Keyword::CAST
            | Keyword::DATE
            | Keyword::END
            | Keyword::EXISTS
            | Keyword::INTERVAL
            | Keyword::LIMIT
            | Keyword::OFFSET
            | Keyword::ORDER
            | Keyword::PRIMARY
            | Keyword::SET
            | Keyword::TABLE
            | Keyword::TIME
            | Keyword::TIMESTAMP
            | Keyword::TO
            | Keyword::TRIM
            | Keyword::USER
            | Keyword::VALUE
            | Keyword::VALUES
            | Keyword::VIEW
            | Keyword::WINDOW
    )
}

/// An error of the tokenizer: an open quote is shown where it opens.
pub(super) fn lexical(error: &TokenizerError, text: &str) -> Error {
    let open = match lexer::ending(text) {
        Ending::OpenQuote { quote, at } => Some((format!("the quote {quote} is never closed"), at)),
        Ending::OpenComment { at } => Some(("the comment is never closed".to_owned(), at)),
        Ending::Complete | Ending::Incomplete => None,
    };
    let (message, at) = open.unwrap_or_else(|| (lower_first(&error.message), place(error.location)));
    let end = Place { line: at.line, column: at.column + 1 };
    Error::parse(code::LEXICAL, message).at(Span { start: at, end })
}
