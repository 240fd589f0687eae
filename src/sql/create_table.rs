//! CREATE TABLE: columns, watermark, primary key, options.

use sqlparser::ast::{Expr, Ident};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::ast::{ColumnDef, ColumnDefKind, CreateTable, Key, TableOption, WatermarkDef};
use super::errors;
use super::lexer::span_of;
use super::statement::{StatementParser, is_same_name};
use super::types;
use crate::error::{Error, Span, code};

const COMPUTED_HINT: &str = "Write a computed column as name AS expression.";

#[derive(Default)]
struct Body {
    columns: Vec<ColumnDef>,
    watermark: Option<WatermarkDef>,
    primary_key: Vec<Ident>,
}

impl StatementParser<'_> {
    /// Reads on after `CREATE [TEMPORARY] TABLE`.
    pub(super) fn create_table(&mut self, temporary: bool) -> Result<CreateTable, Error> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.name("the name of the table")?;
        let body = if self.peek(&Token::LParen) { self.body()? } else { Body::default() };
        let comment = if self.take(&["COMMENT"]) { Some(self.string("a comment")?) } else { None };
        self.refuse_table_clauses()?;
        let options = if self.take(&["WITH"]) { self.options()? } else { Vec::new() };
        self.refuse_table_clauses()?;
        let Body { columns, watermark, primary_key } = body;
        Ok(CreateTable { name, if_not_exists, temporary, columns, watermark, primary_key, comment, options })
    }

    /// Clauses of other systems, each with the way out.
    fn refuse_table_clauses(&self) -> Result<(), Error> {
        for (word, what, hint) in [
            ("PARTITIONED", "PARTITIONED BY", "Leave it out, and use a folder or a glob as the path."),
            ("DISTRIBUTED", "DISTRIBUTED BY", "Leave it out."),
            ("LIKE", "LIKE", "Write the columns and options of the other table again."),
            ("AS", "CREATE TABLE … AS", "Create the table with its columns, then use INSERT INTO."),
            ("PARTITION", "PARTITION BY", "Leave it out."),
        ] {
            if self.peek_word(word) {
                return Err(self.not_supported(what, hint));
            }
        }
        Ok(())
    }

    fn body(&mut self) -> Result<Body, Error> {
        self.expect_token(&Token::LParen)?;
        let mut body = Body::default();
        loop {
            self.element(&mut body)?;
            if self.parser.consume_token(&Token::RParen) {
                return Ok(body);
            }
            if !self.parser.consume_token(&Token::Comma) {
                return Err(self.expected("\",\" or \")\""));
            }
            if self.peek(&Token::RParen) {
                return Err(self.expected("a column").hint("Remove the comma before the bracket."));
            }
        }
    }

    fn element(&mut self, body: &mut Body) -> Result<(), Error> {
        let start = self.parser.index();
        if self.take(&["WATERMARK", "FOR"]) {
            let watermark = self.watermark(start)?;
            if body.watermark.is_some() {
                return Err(Error::parse(code::GIVEN_TWICE, "WATERMARK is given twice")
                    .at(watermark.span)
                    .hint("Keep one of the two: a table has one time column."));
            }
            body.watermark = Some(watermark);
            return Ok(());
        }
        if self.take(&["CONSTRAINT"]) {
            self.ident("the name of the constraint")?;
            if !self.peek_word("PRIMARY") {
                return Err(self.expected("PRIMARY KEY"));
            }
        }
        if self.take(&["PRIMARY", "KEY"]) {
            let columns = self.column_list()?;
            self.not_enforced(start)?;
            return self.set_primary_key(body, columns, start);
        }
        for word in ["UNIQUE", "CHECK", "FOREIGN", "INDEX"] {
            let next = &self.parser.peek_nth_token_ref(1).token;
            let is_key = matches!(next, Token::LParen) || super::lexer::is_word(next, "KEY");
            if self.peek_word(word) && is_key {
                return Err(
                    self.not_supported(word, "Use PRIMARY KEY (…) NOT ENFORCED for the key of a table.")
                );
            }
        }
        let column = self.column(body)?;
        if body.columns.iter().any(|known| is_same_name(&known.name, &column.name)) {
            return Err(Error::parse(
                code::GIVEN_TWICE,
                format!("column \"{}\" is given twice", column.name.value),
            )
            .at(errors::span(column.name.span)));
        }
        body.columns.push(column);
        Ok(())
    }

    fn set_primary_key(&self, body: &mut Body, columns: Vec<Ident>, start: usize) -> Result<(), Error> {
        if !body.primary_key.is_empty() {
            return Err(Error::parse(code::GIVEN_TWICE, "PRIMARY KEY is given twice")
                .at(self.span_since(start))
                .hint("Write one PRIMARY KEY (a, b) NOT ENFORCED with all of its columns."));
        }
        body.primary_key = columns;
        Ok(())
    }

    /// `NOT ENFORCED` after a primary key that starts at `start`.
    fn not_enforced(&mut self, start: usize) -> Result<(), Error> {
        if self.take(&["NOT", "ENFORCED"]) {
            return Ok(());
        }
        let message = if self.take(&["ENFORCED"]) {
            "a primary key can't be enforced: the rows come from outside"
        } else {
            "a primary key must be declared NOT ENFORCED"
        };
        Err(Error::parse(code::SYNTAX, message)
            .at(self.span_since(start))
            .hint("Write PRIMARY KEY (…) NOT ENFORCED; it is trusted, not checked."))
    }

    /// `WATERMARK FOR` is read.
    fn watermark(&mut self, start: usize) -> Result<WatermarkDef, Error> {
        let column = self.ident("the time column")?;
        self.expect(&["AS"])?;
        let (expr, text) = self.expression()?;
        let mut watermark = WatermarkDef {
            column,
            expr,
            text,
            idle_after: None,
            then_advance: false,
            max_ahead: None,
            span: self.span_since(start),
        };
        loop {
            let clause = self.parser.index();
            let is_twice = if self.take(&["IDLE", "AFTER"]) {
                let is_twice = watermark.idle_after.replace(self.interval()?).is_some();
                if self.take(&["THEN"]) {
                    self.expect(&["ADVANCE"])?;
                    watermark.then_advance = true;
                }
                is_twice
            } else if self.take(&["MAX", "AHEAD"]) {
                watermark.max_ahead.replace(self.interval()?).is_some()
            } else {
                break;
            };
            if is_twice {
                let word = &self.tokens[clause].token;
                return Err(Error::parse(code::GIVEN_TWICE, format!("\"{word}\" is given twice"))
                    .at(self.span_since(clause)));
            }
        }
        if !self.peek(&Token::Comma) && !self.peek(&Token::RParen) {
            return Err(self.expected("\",\", \")\", IDLE AFTER or MAX AHEAD"));
        }
        watermark.span = self.span_since(start);
        Ok(watermark)
    }

    /// `INTERVAL '5' SECOND`.
    pub(super) fn interval(&mut self) -> Result<Expr, Error> {
        let start = self.parser.index();
        match self.read(|parser| parser.parse_prefix())? {
            interval @ Expr::Interval(_) => Ok(interval),
            _ => Err(errors::expected("an interval", self.tokens, start)
                .hint("Write an interval such as INTERVAL '30' SECOND.")),
        }
    }

    /// An expression and its text.
    fn expression(&mut self) -> Result<(Expr, String), Error> {
        let start = self.parser.index();
        let expr = self.read(|parser| parser.parse_expr())?;
        let expr = super::query::finish_expr(expr);
        Ok((expr, self.slice(start, self.parser.index())))
    }

    fn column(&mut self, body: &mut Body) -> Result<ColumnDef, Error> {
        let start = self.parser.index();
        let name = self.ident("the name of a column")?;
        if self.take(&["AS"]) {
            let (expr, text) = self.expression()?;
            let comment = if self.take(&["COMMENT"]) { Some(self.string("a comment")?) } else { None };
            if !self.peek(&Token::Comma) && !self.peek(&Token::RParen) {
                return Err(self.expected("\",\" or \")\""));
            }
            let kind = ColumnDefKind::Computed { expr, text };
            return Ok(ColumnDef { name, kind, comment, span: self.span_since(start) });
        }
        if self.peek_word("FOR") {
            return Err(self.expected(&format!("the type of column \"{}\"", name.value)));
        }
        if self.peek(&Token::Comma) || self.peek(&Token::RParen) {
            return Err(self
                .expected(&format!("the type of column \"{}\"", name.value))
                .hint("Write the name, then the type: name STRING."));
        }
        let sql_type = types::parse(&mut self.parser)?;
        let mut not_null = false;
        let mut metadata: Option<(Option<String>, bool)> = None;
        let mut comment = None;
        loop {
            let clause = self.parser.index();
            if self.take(&["NOT"]) {
                self.expect(&["NULL"])?;
                not_null = true;
            } else if self.take(&["NULL"]) {
                // The default.
            } else if metadata.is_none() && self.take(&["METADATA"]) {
                let from =
                    if self.take(&["FROM"]) { Some(self.string("the metadata's name")?) } else { None };
                metadata = Some((from, self.take(&["VIRTUAL"])));
            } else if comment.is_none() && self.take(&["COMMENT"]) {
                comment = Some(self.string("a comment")?);
            } else if self.take(&["PRIMARY", "KEY"]) {
                self.not_enforced(clause)?;
                self.set_primary_key(body, vec![name.clone()], clause)?;
            } else if self.peek(&Token::Comma) || self.peek(&Token::RParen) {
                break;
            } else {
                return Err(self.column_clause_error());
            }
        }
        let kind = match metadata {
            Some((from, is_virtual)) => ColumnDefKind::Metadata { sql_type, not_null, from, is_virtual },
            None => ColumnDefKind::Physical { sql_type, not_null },
        };
        Ok(ColumnDef { name, kind, comment, span: self.span_since(start) })
    }

    fn column_clause_error(&self) -> Error {
        if self.peek_word("AS") || self.peek_word("GENERATED") {
            return self.not_supported("a type on a computed column", COMPUTED_HINT);
        }
        for word in ["DEFAULT", "UNIQUE", "CHECK", "REFERENCES", "COLLATE", "AUTO_INCREMENT", "CONSTRAINT"] {
            if self.peek_word(word) {
                return self.not_supported(&format!("{word} on a column"), "Leave it out.");
            }
        }
        self.expected("\",\", \")\", NOT NULL, METADATA, COMMENT or PRIMARY KEY")
    }

    /// `('key' = 'value', …)`.
    fn options(&mut self) -> Result<Vec<TableOption>, Error> {
        self.expect_token(&Token::LParen)?;
        let mut options: Vec<TableOption> = Vec::new();
        if self.parser.consume_token(&Token::RParen) {
            return Ok(options);
        }
        loop {
            let option = self.option()?;
            if options.iter().any(|known| known.key.name == option.key.name) {
                return Err(Error::parse(
                    code::GIVEN_TWICE,
                    format!("option \"{}\" is given twice", option.key.name),
                )
                .at(option.key.span)
                .hint("Keep one of the two."));
            }
            options.push(option);
            if self.parser.consume_token(&Token::RParen) {
                return Ok(options);
            }
            if !self.parser.consume_token(&Token::Comma) {
                return Err(self.expected("\",\" or \")\""));
            }
            if self.peek(&Token::RParen) {
                return Err(self.expected("an option").hint("Remove the comma before the bracket."));
            }
        }
    }

    fn option(&mut self) -> Result<TableOption, Error> {
        let (name, span) = self.quoted("the option's name", "'path' = 'x.csv'")?;
        let key = Key { name, span };
        self.expect_token(&Token::Eq)?;
        let example = match self.tokens.get(self.parser.index()).map(|token| &token.token) {
            Some(Token::Number(text, _)) => format!("'{}' = '{text}'", key.name),
            Some(Token::Word(word)) => format!("'{}' = '{}'", key.name, word.value),
            _ => format!("'{}' = '…'", key.name),
        };
        let (value, value_span) = self.quoted("the option's value", &example)?;
        Ok(TableOption { key, value, value_span })
    }

    fn quoted(&mut self, what: &str, example: &str) -> Result<(String, Span), Error> {
        match self.tokens.get(self.parser.index()) {
            Some(TokenWithSpan { token: Token::SingleQuotedString(text), span }) => {
                self.parser.advance_token();
                Ok((text.clone(), errors::span(*span)))
            }
            _ => Err(self
                .expected(&format!("{what} in single quotes"))
                .hint(format!("Put single quotes around it: {example}."))),
        }
    }

    fn span_since(&self, start: usize) -> Span {
        span_of(&self.tokens[start..self.parser.index()]).expect("something is read")
    }
}
