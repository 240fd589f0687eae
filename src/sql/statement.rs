//! One statement: which one it is, and the short ones; CREATE TABLE is in [`super::create_table`].

use sqlparser::ast::{Ident, ObjectName};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Span as TokenSpan, Token, TokenWithSpan};

use super::ast::{
    CreateView, Diagnose, Drop, Insert, Key, KeyCondition, Query, Question, Setting, Show, Statement, StopJob,
};
use super::dialect::StreamDialect;
use super::errors::{self, STATEMENTS};
use super::lexer::blocks::{self, Extracted};
use super::lexer::within;
use super::lexer::{self, Lexed, is_word, span_of, starts_with_words};
use super::{MAX_RECURSION, query};
use crate::error::{Error, Span, code, did_you_mean};

/// sqlparser guards its stack, but in builds without optimisation its steps are larger than that
/// guard allows for.
const STACK_BYTES: usize = 2 << 20;
const STACK_BYTES_PER_BRACKET: usize = 256 << 10;
/// First words of statements that other systems have and we don't.
const NOT_OURS: &[&str] = &[
    "ADD",
    "ALTER",
    "ANALYZE",
    "ATTACH",
    "CALL",
    "COMMIT",
    "COMPILE",
    "COPY",
    "DEALLOCATE",
    "DECLARE",
    "DELETE",
    "DETACH",
    "EXPORT",
    "FLUSH",
    "GRANT",
    "INSTALL",
    "LOAD",
    "LOCK",
    "MERGE",
    "OPTIMIZE",
    "PREPARE",
    "REFRESH",
    "REMOVE",
    "RENAME",
    "REPLACE",
    "REVOKE",
    "ROLLBACK",
    "SAVEPOINT",
    "START",
    "TRUNCATE",
    "UNLOAD",
    "UPDATE",
    "UPSERT",
    "USE",
    "VACUUM",
];
const FIRST_WORDS: &[&str] = &[
    "BEGIN", "CREATE", "DESC", "DESCRIBE", "DIAGNOSE", "DROP", "EXECUTE", "EXPLAIN", "INSERT", "RESET",
    "SELECT", "SET", "SHOW", "STOP", "VALUES", "WITH",
];

/// Parses the tokens of one statement to their end.
pub(super) fn with_statement_parser<T>(
    text: &str,
    lexed: &Lexed,
    tokens: &[TokenWithSpan],
    read: impl FnOnce(&mut StatementParser) -> Result<T, Error>,
) -> Result<T, Error> {
    let depth = lexer::check(tokens)?;
    let stack = STACK_BYTES + depth * STACK_BYTES_PER_BRACKET;
    stacker::maybe_grow(stack, stack, || parse_tokens(text, lexed, tokens, read))
}

fn parse_tokens<T>(
    text: &str,
    lexed: &Lexed,
    tokens: &[TokenWithSpan],
    read: impl FnOnce(&mut StatementParser) -> Result<T, Error>,
) -> Result<T, Error> {
    let Extracted { tokens: kept, blocks, spans } = blocks::extract(tokens)?;
    let kept = within::as_definition(kept)?;
    let dialect = StreamDialect::for_tokens(kept.len());
    let mut parser = StatementParser {
        parser: Parser::new(&dialect)
            .with_recursion_limit(MAX_RECURSION)
            .with_tokens_with_locations(kept.clone()),
        dialect: &dialect,
        tokens: &kept,
        all_tokens: tokens,
        text,
        lexed,
        blocks: Some((blocks, spans)),
    };
    let value = read(&mut parser)?;
    parser.end()?;
    Ok(value)
}

/// One statement that is being read.
pub(super) struct StatementParser<'a> {
    pub(super) parser: Parser<'a>,
    dialect: &'a StreamDialect,
    /// What the parser reads.
    pub(super) tokens: &'a [TokenWithSpan],
    /// With the clauses of blocks.
    all_tokens: &'a [TokenWithSpan],
    text: &'a str,
    lexed: &'a Lexed,
    blocks: Option<(Vec<super::ast::BlockClauses>, Vec<Span>)>,
}

impl StatementParser<'_> {
    pub(super) fn statement(&mut self) -> Result<Statement, Error> {
        let Some(first) = self.tokens.first() else {
            return Err(self.expected("a statement"));
        };
        let Token::Word(word) = &first.token else {
            return match first.token {
                Token::LParen => Ok(Statement::Query(Box::new(self.query()?))),
                _ => Err(self.expected("a statement")),
            };
        };
        match word.keyword {
            _ if word.quote_style.is_some() => Err(self.expected("a statement")),
            Keyword::SELECT | Keyword::WITH | Keyword::VALUES => {
                Ok(Statement::Query(Box::new(self.query()?)))
            }
            Keyword::CREATE => self.create(),
            Keyword::DROP => self.drop(),
            Keyword::INSERT => Ok(Statement::Insert(Box::new(self.insert()?))),
            Keyword::SET => self.set(),
            Keyword::RESET => self.reset(),
            Keyword::SHOW => self.show(),
            Keyword::DESCRIBE | Keyword::DESC => {
                self.parser.advance_token();
                // A table may be called job.
                if self.peek_word("JOB") && self.has_second() {
                    self.parser.advance_token();
                    return Ok(Statement::DescribeJob(self.job()?));
                }
                let _ = self.take(&["TABLE"]);
                Ok(Statement::Describe(self.name("the name of a table or view")?))
            }
            _ if word.value.eq_ignore_ascii_case("STOP") => self.stop_job(),
            _ => Err(self.unknown_statement(&word.value)),
        }
    }

    fn unknown_statement(&self, word: &str) -> Error {
        let upper = word.to_ascii_uppercase();
        if NOT_OURS.contains(&upper.as_str()) {
            return self.not_supported(&upper, format!("Use one of {STATEMENTS}."));
        }
        let (error, span) =
            (Error::parse(code::SYNTAX, format!("\"{word}\" is not a statement")), self.span_here());
        if upper == "BEGIN" || upper == "EXECUTE" {
            return self
                .expected("a statement")
                .hint("Write BEGIN STATEMENT SET; INSERT INTO …; INSERT INTO …; END;.");
        }
        match did_you_mean(word, FIRST_WORDS.iter().copied()) {
            Some(known) => error.at(span).hint(format!("Write {known} instead of {word}.")),
            None => error.at(span).hint(format!("Use one of {STATEMENTS}.")),
        }
    }

    /// `what` is known elsewhere, and not here.
    pub(super) fn not_supported(&self, what: &str, hint: impl Into<String>) -> Error {
        Error::parse(code::NOT_SUPPORTED, format!("{what} is not supported")).at(self.span_here()).hint(hint)
    }

    fn create(&mut self) -> Result<Statement, Error> {
        self.parser.advance_token();
        let temporary = self.take(&["TEMPORARY"]) || self.take(&["TEMP"]);
        if self.take(&["TABLE"]) {
            Ok(Statement::CreateTable(Box::new(self.create_table(temporary)?)))
        } else if self.take(&["VIEW"]) {
            Ok(Statement::CreateView(Box::new(self.create_view(temporary)?)))
        } else {
            let known = ["TABLE", "VIEW", "TEMPORARY"];
            let error = self.expected("TABLE or VIEW");
            Err(match self.tokens.get(self.parser.index()).map(|token| &token.token) {
                Some(Token::Word(word)) => match did_you_mean(&word.value, known) {
                    Some(known) => error.hint(format!("Write {known} instead of {}.", word.value)),
                    None => {
                        let what = match word.value.to_ascii_uppercase().as_str() {
                            "OR" => "CREATE OR REPLACE".to_owned(),
                            other => format!("CREATE {other}"),
                        };
                        self.not_supported(&what, "Use CREATE TABLE or CREATE VIEW.")
                    }
                },
                _ => error,
            })
        }
    }

    fn create_view(&mut self, temporary: bool) -> Result<CreateView, Error> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.name("the name of the view")?;
        let columns = if self.peek(&Token::LParen) { self.column_list()? } else { Vec::new() };
        let comment = if self.take(&["COMMENT"]) { Some(self.string("a comment")?) } else { None };
        self.expect(&["AS"])?;
        let start = self.parser.index();
        let query = self.query()?;
        let query_text = self.slice_from(start);
        Ok(CreateView { name, columns, if_not_exists, temporary, comment, query, query_text })
    }

    fn drop(&mut self) -> Result<Statement, Error> {
        self.parser.advance_token();
        let _ = self.take(&["TEMPORARY"]);
        let is_view = self.take(&["VIEW"]);
        if !is_view && !self.take(&["TABLE"]) {
            return Err(self.expected("TABLE or VIEW"));
        }
        let if_exists = self.take(&["IF"]);
        if if_exists {
            self.expect(&["EXISTS"])?;
        }
        let name = self.name(if is_view { "the name of a view" } else { "the name of a table" })?;
        Ok(Statement::Drop(Drop { is_view, if_exists, name }))
    }

    /// `INSERT INTO name [(columns)] query`.
    pub(super) fn insert(&mut self) -> Result<Insert, Error> {
        self.parser.advance_token();
        if self.peek_word("OVERWRITE") {
            return Err(self.not_supported(
                "INSERT OVERWRITE",
                "Use INSERT INTO; a file is written as a whole when the query ends.",
            ));
        }
        self.expect(&["INTO"])?;
        let _ = self.take(&["TABLE"]);
        let table = self.name("the name of a table")?;
        if self.peek_word("PARTITION") {
            return Err(self.not_supported("PARTITION", "Select the partition's value as a column."));
        }
        let is_query = matches!(&self.parser.peek_nth_token_ref(1).token, Token::LParen)
            || ["SELECT", "WITH", "VALUES", "TABLE"]
                .iter()
                .any(|word| is_word(&self.parser.peek_nth_token_ref(1).token, word))
                && !matches!(self.parser.peek_nth_token_ref(2).token, Token::Comma | Token::RParen);
        let columns = if self.peek(&Token::LParen) && !is_query { self.column_list()? } else { Vec::new() };
        let query = self.query()?;
        Ok(Insert { table, columns, query })
    }

    fn set(&mut self) -> Result<Statement, Error> {
        self.parser.advance_token();
        if self.at_end() {
            return Ok(Statement::ShowSettings);
        }
        let key = self.key()?;
        if !self.parser.consume_token(&Token::Eq) {
            return Err(self.expected("\"=\"").hint("Write SET 'key' = 'value'."));
        }
        let start = self.parser.index();
        let (value, value_span) = match self.tokens.get(start) {
            None => return Err(self.expected("a value").hint("Write SET 'key' = 'value'.")),
            Some(TokenWithSpan { token: Token::SingleQuotedString(value), span }) => {
                self.parser.advance_token();
                (value.clone(), errors::span(*span))
            }
            Some(_) => {
                while !self.at_end() {
                    self.parser.advance_token();
                }
                (self.slice_from(start), span_of(&self.tokens[start..]).expect("not empty"))
            }
        };
        Ok(Statement::Set(Setting { key, value, value_span }))
    }

    fn reset(&mut self) -> Result<Statement, Error> {
        self.parser.advance_token();
        if self.at_end() {
            return Ok(Statement::Reset(None));
        }
        self.key().map(|key| Statement::Reset(Some(key)))
    }

    /// `'a.b'`, or `a.b-c` without quotes and spaces.
    fn key(&mut self) -> Result<Key, Error> {
        let start = self.parser.index();
        if let Some(TokenWithSpan { token: Token::SingleQuotedString(name), span }) = self.tokens.get(start) {
            self.parser.advance_token();
            return Ok(Key { name: name.clone(), span: errors::span(*span) });
        }
        while matches!(
            self.parser.peek_token_ref().token,
            Token::Word(_) | Token::Period | Token::Minus | Token::Number(..)
        ) {
            self.parser.advance_token();
        }
        let tokens = &self.tokens[start..self.parser.index()];
        let name = self.slice(start, self.parser.index());
        match span_of(tokens) {
            Some(span) if !name.contains(char::is_whitespace) && !name.contains(['"', '`']) => {
                Ok(Key { name, span })
            }
            Some(span) => Err(Error::parse(code::SYNTAX, "a key is one word or in single quotes")
                .at(span)
                .hint("Write SET 'key' = 'value'.")),
            None => Err(self.expected("a key").hint("Write SET 'key' = 'value'.")),
        }
    }

    /// `DIAGNOSE [JSON] [job]` and its like.
    pub(super) fn diagnose(&mut self, question: Question) -> Result<Statement, Error> {
        self.expect(question.words())?;
        let json = self.take(&["JSON"]);
        if ["SELECT", "WITH", "VALUES", "INSERT"].iter().any(|word| self.peek_word(word)) {
            return Err(self.expected("a job, not a query").hint(
                "Run the query first, then ask without it: of the job that ran last, or of one by its number or name.",
            ));
        }
        let is_job = !self.at_end() && !self.peek_word("WHERE") && !self.peek_word("FOR");
        let job = if is_job { Some(self.job()?) } else { None };
        let of_key = match question == Question::Window && self.take(&["WHERE"]) {
            true => Some(self.key_condition()?),
            false => None,
        };
        let over = match question == Question::Analyze && self.take(&["FOR"]) {
            true => Some(self.interval()?),
            false => None,
        };
        Ok(Statement::Diagnose(Box::new(Diagnose { question, json, job, of_key, over })))
    }

    /// Whether something stands behind the next token that is no period.
    fn has_second(&self) -> bool {
        let second = self.tokens.get(self.parser.index() + 1);
        second.is_some_and(|token| !matches!(token.token, Token::Period | Token::EOF | Token::SemiColon))
    }

    /// `STOP JOB job [WITH DRAIN]`.
    fn stop_job(&mut self) -> Result<Statement, Error> {
        self.parser.advance_token();
        self.expect(&["JOB"])?;
        let job = self.job()?;
        let drain = self.take(&["WITH"]);
        if drain {
            self.expect(&["DRAIN"])?;
        }
        Ok(Statement::StopJob(StopJob { job, drain }))
    }

    /// The number of a job, its name, or that of a table.
    fn job(&mut self) -> Result<Key, Error> {
        let Some(TokenWithSpan { token, span }) = self.tokens.get(self.parser.index()) else {
            return Err(self.expected("a job").hint("Use SHOW JOBS to see all of them."));
        };
        let name = match token {
            Token::SingleQuotedString(name) | Token::Number(name, _) => name.clone(),
            Token::Word(word) => word.value.clone(),
            _ => return Err(self.expected("the number or the name of a job, or a table that it writes")),
        };
        let key = Key { name, span: errors::span(*span) };
        self.parser.advance_token();
        Ok(key)
    }

    /// `key = value`.
    fn key_condition(&mut self) -> Result<KeyCondition, Error> {
        let key = self.ident("a key of the aggregation")?;
        self.expect_token(&Token::Eq)?;
        let is_negative = self.parser.consume_token(&Token::Minus);
        let value = match self.tokens.get(self.parser.index()).map(|token| &token.token) {
            Some(Token::Number(number, _)) if is_negative => format!("-{number}"),
            Some(Token::Number(number, _)) => number.clone(),
            Some(Token::SingleQuotedString(text)) if !is_negative => text.clone(),
            Some(Token::Word(word))
                if !is_negative && matches!(word.keyword, Keyword::TRUE | Keyword::FALSE) =>
            {
                word.value.to_lowercase()
            }
            _ => return Err(self.expected("a number or a text in single quotes")),
        };
        self.parser.advance_token();
        Ok(KeyCondition { key, value })
    }

    fn show(&mut self) -> Result<Statement, Error> {
        self.parser.advance_token();
        let show = if self.take(&["TABLES"]) {
            Show::Tables
        } else if self.take(&["VIEWS"]) {
            Show::Views
        } else if self.take(&["FUNCTIONS"]) {
            Show::Functions
        } else if self.take(&["JOBS"]) {
            Show::Jobs
        } else if self.take(&["CREATE"]) {
            if !self.take(&["TABLE"]) && !self.take(&["VIEW"]) {
                return Err(self.expected("TABLE or VIEW"));
            }
            Show::Create(self.name("the name of a table or view")?)
        } else {
            let what = "TABLES, VIEWS, FUNCTIONS, JOBS, CREATE TABLE or CREATE VIEW";
            return Err(self.expected(what).hint("Use SET without anything to see the settings."));
        };
        Ok(Statement::Show(show))
    }

    /// A query, with the clauses of its blocks.
    pub(super) fn query(&mut self) -> Result<Query, Error> {
        let start = self.parser.index();
        let query = match self.parser.parse_query() {
            Ok(query) if self.at_end() => query,
            Ok(_) => return Err(self.query_error(start, None)),
            Err(error) => return Err(self.query_error(start, Some(&error))),
        };
        let (blocks, spans) = self.blocks.take().unwrap_or_default();
        query::finish(query, blocks, &spans).map_err(|error| error.at(span_of(&self.tokens[start..])))
    }

    fn query_error(&self, start: usize, error: Option<&ParserError>) -> Error {
        if let Some(fault) = self.dialect.take_fault() {
            return fault;
        }
        let inner = query::error_of_subquery(&self.tokens[start..]);
        if let Some(inner) = inner.or_else(|| errors::missing_table(&self.tokens[start..])) {
            return inner;
        }
        match error {
            Some(error) => query::translate(error, self.tokens),
            None => self.end().expect_err("the query does not end with the statement"),
        }
    }

    /// The statement ends here.
    fn end(&self) -> Result<(), Error> {
        if !self.at_end() {
            return Err(self.expected(errors::END));
        }
        match &self.blocks {
            Some((_, spans)) if !spans.is_empty() => {
                Err(Error::parse(code::SYNTAX, "EMIT, ALLOW LATENESS and LATE ROWS INTO belong to queries")
                    .at(spans[0]))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn at_end(&self) -> bool {
        self.parser.index() >= self.tokens.len()
    }

    pub(super) fn if_not_exists(&mut self) -> Result<bool, Error> {
        let there = self.take(&["IF"]);
        if there {
            self.expect(&["NOT", "EXISTS"])?;
        }
        Ok(there)
    }

    /// A name that may be qualified.
    pub(super) fn name(&mut self, what: &str) -> Result<ObjectName, Error> {
        match &self.parser.peek_token_ref().token {
            token @ Token::Word(_) if !errors::is_reserved(token) => {
                self.read(|parser| parser.parse_object_name(false))
            }
            _ => Err(self.expected(what)),
        }
    }

    /// A name of one part.
    pub(super) fn ident(&mut self, what: &str) -> Result<Ident, Error> {
        match &self.parser.peek_token_ref().token {
            Token::Word(_) => self.read(|parser| parser.parse_identifier()),
            _ => Err(self.expected(what)),
        }
    }

    /// `(a, b)`.
    pub(super) fn column_list(&mut self) -> Result<Vec<Ident>, Error> {
        self.expect_token(&Token::LParen)?;
        let mut columns: Vec<Ident> = Vec::new();
        loop {
            let column = self.ident("the name of a column")?;
            if columns.iter().any(|known| is_same_name(known, &column)) {
                return Err(Error::parse(
                    code::GIVEN_TWICE,
                    format!("column \"{}\" is given twice", column.value),
                )
                .at(errors::span(column.span)));
            }
            columns.push(column);
            if self.parser.consume_token(&Token::RParen) {
                return Ok(columns);
            }
            if !self.parser.consume_token(&Token::Comma) {
                return Err(self.expected("\",\" or \")\""));
            }
        }
    }

    /// A string in single quotes.
    pub(super) fn string(&mut self, what: &str) -> Result<String, Error> {
        match &self.parser.peek_token_ref().token {
            Token::SingleQuotedString(text) => {
                let text = text.clone();
                self.parser.advance_token();
                Ok(text)
            }
            _ => Err(self.expected(&format!("{what} in single quotes"))),
        }
    }

    /// Reads with sqlparser.
    pub(super) fn read<T>(
        &mut self,
        read: impl FnOnce(&mut Parser) -> Result<T, ParserError>,
    ) -> Result<T, Error> {
        read(&mut self.parser).map_err(|error| {
            let fault = self.dialect.take_fault();
            fault
                .or_else(|| query::error_of_subquery(self.tokens))
                .unwrap_or_else(|| query::translate(&error, self.tokens))
        })
    }

    pub(super) fn peek(&self, token: &Token) -> bool {
        self.parser.peek_token_ref().token == *token
    }

    pub(super) fn peek_word(&self, word: &str) -> bool {
        is_word(&self.parser.peek_token_ref().token, word)
    }

    /// Goes behind these words if they come next.
    pub(super) fn take(&mut self, words: &[&str]) -> bool {
        let is_there =
            self.tokens.get(self.parser.index()..).is_some_and(|rest| starts_with_words(rest, words));
        if is_there {
            for _ in words {
                self.parser.advance_token();
            }
        }
        is_there
    }

    pub(super) fn expect(&mut self, words: &[&str]) -> Result<(), Error> {
        for word in words {
            if !self.take(&[word]) {
                return Err(self.expected(word));
            }
        }
        Ok(())
    }

    pub(super) fn expect_token(&mut self, token: &Token) -> Result<(), Error> {
        if self.parser.consume_token(token) { Ok(()) } else { Err(self.expected(&format!("\"{token}\""))) }
    }

    /// Something else is expected at the next token.
    pub(super) fn expected(&self, what: &str) -> Error {
        errors::expected(what, self.tokens, self.parser.index())
    }

    pub(super) fn span_here(&self) -> Option<Span> {
        errors::span_at(self.tokens, self.parser.index())
    }

    /// The text from one token to the one before another.
    pub(super) fn slice(&self, start: usize, end: usize) -> String {
        match (self.tokens.get(start), self.tokens.get(end.saturating_sub(1))) {
            (Some(first), Some(last)) if start < end => self.text_between(first.span, last.span),
            _ => String::new(),
        }
    }

    /// The text from a token to the end of the statement.
    fn slice_from(&self, start: usize) -> String {
        match (self.tokens.get(start), self.all_tokens.last()) {
            (Some(first), Some(last)) => self.text_between(first.span, last.span),
            _ => String::new(),
        }
    }

    fn text_between(&self, first: TokenSpan, last: TokenSpan) -> String {
        let index =
            |span: TokenSpan| self.lexed.tokens.partition_point(|token| token.span.start < span.start);
        let start = self.lexed.bytes[index(first)].start;
        let end = self.lexed.bytes[index(last)].end;
        self.text[start..end].to_owned()
    }
}

/// Two names that the planner takes for one: unquoted ones have no case.
pub(super) fn is_same_name(a: &Ident, b: &Ident) -> bool {
    normalized(a) == normalized(b)
}

fn normalized(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}
