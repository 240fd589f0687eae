//! Types in Flink's spelling.

use sqlparser::ast::{
    ArrayElemTypeDef, DataType, ExactNumberInfo, Ident, ObjectName, StructBracketKind, StructField,
    TimezoneInfo,
};
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::ast::SqlType;
use super::errors;
use super::lexer::is_word;
use crate::error::{Error, code, did_you_mean};

/// The names of types, for hints.
const NAMES: &[&str] = &[
    "ARRAY",
    "BIGINT",
    "BINARY",
    "BOOLEAN",
    "BYTES",
    "CHAR",
    "DATE",
    "DECIMAL",
    "DOUBLE",
    "FLOAT",
    "INT",
    "INTEGER",
    "MAP",
    "NUMERIC",
    "REAL",
    "ROW",
    "SMALLINT",
    "STRING",
    "STRUCT",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP_LTZ",
    "TINYINT",
    "VARBINARY",
    "VARCHAR",
];
const MAX_PRECISION: u64 = 38;
const MAX_LENGTH: u64 = 2_147_483_647;

/// Reads a type.
pub(super) fn parse(parser: &mut Parser) -> Result<SqlType, Error> {
    let mut reader = TypeReader { parser, is_half_closed: false, depth: 0 };
    let sql_type = reader.read()?;
    if reader.is_half_closed {
        return Err(reader.error_here("\">\" closes nothing"));
    }
    Ok(sql_type)
}

/// Reads a type if it is one that sqlparser can't read: with MAP, ROW or the like.
pub(super) fn parse_nested(parser: &mut Parser) -> Option<Result<SqlType, Error>> {
    let word = &parser.peek_token_ref().token;
    let next = &parser.peek_nth_token_ref(1).token;
    let nested = ["ARRAY", "MAP", "ROW", "STRUCT"].iter().any(|name| is_word(word, name));
    let is_nested = (nested && matches!(next, Token::Lt | Token::LParen)) || is_word(word, "MULTISET");
    is_nested.then(|| parse(parser))
}

struct TypeReader<'p, 'a> {
    parser: &'p mut Parser<'a>,
    /// A `>>` is read, of which one `>` is not used yet.
    is_half_closed: bool,
    depth: usize,
}

impl TypeReader<'_, '_> {
    fn read(&mut self) -> Result<SqlType, Error> {
        self.depth += 1;
        if self.depth > 100 {
            return Err(Error::parse(code::TOO_COMPLEX, "type nested too deeply, allowed are 100 levels")
                .at(errors::span(self.parser.peek_token_ref().span)));
        }
        let mut sql_type = self.read_prefix()?;
        // `INT ARRAY`, `INT[]`.
        loop {
            if !self.is_half_closed && is_word(&self.parser.peek_token_ref().token, "ARRAY") {
                self.parser.advance_token();
            } else if !self.is_half_closed
                && self.parser.peek_token_ref().token == Token::LBracket
                && self.parser.peek_nth_token_ref(1).token == Token::RBracket
            {
                self.parser.advance_token();
                self.parser.advance_token();
            } else if is_word(&self.parser.peek_token_ref().token, "MULTISET") {
                return Err(self.multiset());
            } else {
                break;
            }
            sql_type = SqlType::Array(Box::new(sql_type));
        }
        self.depth -= 1;
        Ok(sql_type)
    }

    fn read_prefix(&mut self) -> Result<SqlType, Error> {
        let token = self.parser.peek_token();
        let Token::Word(word) = &token.token else {
            return Err(self.expected("a type"));
        };
        if word.quote_style.is_some() {
            return Err(self.expected("a type"));
        }
        self.parser.advance_token();
        Ok(match word.value.to_ascii_uppercase().as_str() {
            "BOOLEAN" | "BOOL" => SqlType::Boolean,
            "TINYINT" => SqlType::TinyInt,
            "SMALLINT" => SqlType::SmallInt,
            "INT" | "INTEGER" => SqlType::Int,
            "BIGINT" => SqlType::BigInt,
            "FLOAT" | "REAL" => SqlType::Float,
            "DOUBLE" => {
                let _ = self.parser.parse_keyword(Keyword::PRECISION);
                SqlType::Double
            }
            "DECIMAL" | "NUMERIC" | "DEC" => self.decimal(&token)?,
            "STRING" | "TEXT" => SqlType::String,
            "CHAR" | "CHARACTER" => {
                if self.parser.parse_keyword(Keyword::VARYING) {
                    SqlType::Varchar(self.length(1)?)
                } else {
                    SqlType::Char(self.length(1)?)
                }
            }
            // Without a length it is as long as it gets, as PostgreSQL has it and Flink's STRING.
            "VARCHAR" => SqlType::Varchar(self.length(MAX_LENGTH)?),
            "BYTES" | "BYTEA" => SqlType::Bytes,
            "BINARY" | "VARBINARY" => {
                self.length(1)?;
                SqlType::Bytes
            }
            "DATE" => SqlType::Date,
            "TIME" => {
                let precision = self.precision(0)?;
                self.without_time_zone()?;
                SqlType::Time(precision)
            }
            "TIMESTAMP" => self.timestamp()?,
            "TIMESTAMP_LTZ" | "TIMESTAMPTZ" => SqlType::TimestampLtz(self.precision(6)?),
            "ARRAY" => {
                let close = self.open(&token)?;
                let element = self.element()?;
                self.close(close)?;
                SqlType::Array(Box::new(element))
            }
            "MAP" => {
                let close = self.open(&token)?;
                let key = self.element()?;
                self.expect(&Token::Comma)?;
                let value = self.element()?;
                self.close(close)?;
                SqlType::Map(Box::new(key), Box::new(value))
            }
            "ROW" | "STRUCT" => self.row(&token)?,
            "MULTISET" => return Err(self.multiset_at(&token)),
            "RAW" | "VARIANT" | "UUID" | "JSON" | "JSONB" | "XML" | "INTERVAL" | "SERIAL" | "DATETIME" => {
                let hint = match word.keyword {
                    Keyword::DATETIME => "Use TIMESTAMP(3) or TIMESTAMP_LTZ(3).",
                    _ => "Use STRING, or BYTES for raw data.",
                };
                return Err(Error::parse(
                    code::NOT_SUPPORTED,
                    format!("type {} is not supported", word.value.to_ascii_uppercase()),
                )
                .at(errors::span(token.span))
                .hint(hint));
            }
            _ => return Err(unknown_type(&word.value, &token)),
        })
    }

    fn decimal(&mut self, token: &TokenWithSpan) -> Result<SqlType, Error> {
        if !self.parser.consume_token(&Token::LParen) {
            return Ok(SqlType::Decimal(10, 0));
        }
        let precision = self.number("the number of digits", 1, MAX_PRECISION)?;
        let scale = if self.parser.consume_token(&Token::Comma) {
            self.number("the number of digits after the point", 0, MAX_PRECISION)?
        } else {
            0
        };
        self.expect(&Token::RParen)?;
        if scale > precision {
            return Err(Error::parse(
                code::INVALID_TABLE,
                format!("DECIMAL({precision}, {scale}) has more digits after the point than digits"),
            )
            .at(errors::span(token.span))
            .hint("Give the number of all digits first, then of those after the point."));
        }
        let precision = u8::try_from(precision).expect("at most 38");
        let scale = i8::try_from(scale).expect("at most 38");
        Ok(SqlType::Decimal(precision, scale))
    }

    fn timestamp(&mut self) -> Result<SqlType, Error> {
        let precision = self.precision(6)?;
        if self.parser.parse_keyword(Keyword::WITH) {
            let _ = self.parser.parse_keyword(Keyword::LOCAL);
            self.keywords(&[Keyword::TIME, Keyword::ZONE])?;
            return Ok(SqlType::TimestampLtz(precision));
        }
        self.without_time_zone()?;
        Ok(SqlType::Timestamp(precision))
    }

    fn without_time_zone(&mut self) -> Result<(), Error> {
        if self.parser.parse_keyword(Keyword::WITHOUT) {
            self.keywords(&[Keyword::TIME, Keyword::ZONE])?;
        }
        Ok(())
    }

    fn keywords(&mut self, keywords: &[Keyword]) -> Result<(), Error> {
        for keyword in keywords {
            if !self.parser.parse_keyword(*keyword) {
                return Err(self.expected(&format!("{keyword:?}")));
            }
        }
        Ok(())
    }

    fn row(&mut self, token: &TokenWithSpan) -> Result<SqlType, Error> {
        let close = self.open(token)?;
        let mut fields: Vec<(String, SqlType)> = Vec::new();
        loop {
            let name = self.parser.peek_token();
            let Token::Word(word) = &name.token else {
                return Err(self.expected("the name of a field"));
            };
            self.parser.advance_token();
            if fields.iter().any(|(known, _)| *known == word.value) {
                return Err(Error::parse(
                    code::GIVEN_TWICE,
                    format!("field \"{}\" is given twice", word.value),
                )
                .at(errors::span(name.span)));
            }
            fields.push((word.value.clone(), self.element()?));
            if matches!(self.parser.peek_token_ref().token, Token::SingleQuotedString(_)) {
                return Err(self
                    .error_here("comments on fields are not supported")
                    .hint("Remove the comment, or write it as -- comment."));
            }
            if self.is_half_closed || !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        self.close(close)?;
        Ok(SqlType::Row(fields))
    }

    /// A type inside another one.
    fn element(&mut self) -> Result<SqlType, Error> {
        let element = self.read()?;
        if !self.is_half_closed && is_word(&self.parser.peek_token_ref().token, "NOT") {
            return Err(self
                .error_here("NOT NULL inside a type is not supported")
                .hint("Remove it: only whole columns can be NOT NULL."));
        }
        if !self.is_half_closed {
            let _ = self.parser.parse_keyword(Keyword::NULL);
        }
        Ok(element)
    }

    /// Opens with `<` or `(`; gives what closes it.
    fn open(&mut self, token: &TokenWithSpan) -> Result<Token, Error> {
        if self.parser.consume_token(&Token::Lt) {
            Ok(Token::Gt)
        } else if self.parser.consume_token(&Token::LParen) {
            Ok(Token::RParen)
        } else {
            let example = match &token.token {
                Token::Word(word) if word.keyword == Keyword::ARRAY => "ARRAY<INT>",
                Token::Word(word) if word.keyword == Keyword::MAP => "MAP<STRING, INT>",
                _ => "ROW<a INT, b STRING>",
            };
            Err(self.expected("\"<\"").hint(format!("Say of which type it is, such as {example}.")))
        }
    }

    fn close(&mut self, close: Token) -> Result<(), Error> {
        if close == Token::RParen {
            return self.expect(&close);
        }
        if std::mem::take(&mut self.is_half_closed) || self.parser.consume_token(&Token::Gt) {
            return Ok(());
        }
        if self.parser.consume_token(&Token::ShiftRight) {
            self.is_half_closed = true;
            return Ok(());
        }
        Err(self.expected("\">\" or \",\""))
    }

    fn expect(&mut self, token: &Token) -> Result<(), Error> {
        if self.is_half_closed {
            return Err(self.error_here("\">\" closes nothing"));
        }
        if self.parser.consume_token(token) { Ok(()) } else { Err(self.expected(&format!("\"{token}\""))) }
    }

    /// `(n)`, or the default.
    fn length(&mut self, default: u64) -> Result<u64, Error> {
        self.in_brackets("a length", 1, MAX_LENGTH).map(|length| length.unwrap_or(default))
    }

    fn precision(&mut self, default: u8) -> Result<u8, Error> {
        let precision = self.in_brackets("the number of digits of the seconds", 0, 9)?;
        Ok(precision.map_or(default, |precision| u8::try_from(precision).expect("at most 9")))
    }

    fn in_brackets(&mut self, what: &str, min: u64, max: u64) -> Result<Option<u64>, Error> {
        if !self.parser.consume_token(&Token::LParen) {
            return Ok(None);
        }
        let number = self.number(what, min, max)?;
        self.expect(&Token::RParen)?;
        Ok(Some(number))
    }

    fn number(&mut self, what: &str, min: u64, max: u64) -> Result<u64, Error> {
        let token = self.parser.peek_token();
        let Token::Number(text, _) = &token.token else {
            return Err(self.expected(what));
        };
        self.parser.advance_token();
        match text.parse::<u64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(Error::parse(
                code::INVALID_TABLE,
                format!("{what} is {text}, allowed are {min} to {max}"),
            )
            .at(errors::span(token.span))),
        }
    }

    fn expected(&self, what: &str) -> Error {
        errors::expected_next(what, self.parser)
    }

    fn error_here(&self, message: &str) -> Error {
        Error::parse(code::SYNTAX, message).at(errors::span(self.parser.peek_token_ref().span))
    }

    fn multiset(&self) -> Error {
        self.multiset_at(self.parser.peek_token_ref())
    }

    fn multiset_at(&self, token: &TokenWithSpan) -> Error {
        Error::parse(code::NOT_SUPPORTED, "type MULTISET is not supported")
            .at(errors::span(token.span))
            .hint("Use MAP<…, INT> or ARRAY<…>.")
    }
}

fn unknown_type(name: &str, token: &TokenWithSpan) -> Error {
    let error = Error::parse(code::SYNTAX, format!("\"{name}\" is not a type")).at(errors::span(token.span));
    match did_you_mean(name, NAMES.iter().copied()) {
        Some(known) => error.hint(format!("Write {known} instead of {name}.")),
        None => error.hint("Use a type such as STRING, BIGINT, DOUBLE, DECIMAL(10, 2) or TIMESTAMP(3)."),
    }
}

/// A type as sqlparser's, for CAST.
pub(super) fn to_data_type(sql_type: &SqlType) -> DataType {
    match sql_type {
        SqlType::Boolean => DataType::Boolean,
        SqlType::TinyInt => DataType::TinyInt(None),
        SqlType::SmallInt => DataType::SmallInt(None),
        SqlType::Int => DataType::Int(None),
        SqlType::BigInt => DataType::BigInt(None),
        SqlType::Float => DataType::Float(ExactNumberInfo::None),
        SqlType::Double => DataType::Double(ExactNumberInfo::None),
        SqlType::Decimal(precision, scale) => {
            DataType::Decimal(ExactNumberInfo::PrecisionAndScale(u64::from(*precision), i64::from(*scale)))
        }
        SqlType::String => DataType::String(None),
        SqlType::Char(length) => DataType::Char(Some(sqlparser::ast::CharacterLength::IntegerLength {
            length: *length,
            unit: None,
        })),
        SqlType::Varchar(length) => DataType::Varchar(Some(sqlparser::ast::CharacterLength::IntegerLength {
            length: *length,
            unit: None,
        })),
        SqlType::Bytes => DataType::Bytes(None),
        SqlType::Date => DataType::Date,
        SqlType::Time(precision) => DataType::Time(Some(u64::from(*precision)), TimezoneInfo::None),
        SqlType::Timestamp(precision) => DataType::Timestamp(Some(u64::from(*precision)), TimezoneInfo::None),
        SqlType::TimestampLtz(precision) => {
            DataType::Custom(ObjectName::from(vec![Ident::new("TIMESTAMP_LTZ")]), vec![precision.to_string()])
        }
        SqlType::Array(element) => {
            DataType::Array(ArrayElemTypeDef::AngleBracket(Box::new(to_data_type(element))))
        }
        SqlType::Map(key, value) => DataType::Map(Box::new(to_data_type(key)), Box::new(to_data_type(value))),
        SqlType::Row(fields) => DataType::Struct(
            fields
                .iter()
                .map(|(name, field_type)| StructField {
                    field_name: Some(Ident::with_quote('`', name)),
                    field_type: to_data_type(field_type),
                    options: None,
                })
                .collect(),
            StructBracketKind::AngleBrackets,
        ),
    }
}
