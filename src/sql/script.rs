//! A script: its statements one after the other, and those that hold others: EXPLAIN and statement sets.

use std::ops::Range;

use sqlparser::tokenizer::TokenWithSpan;

use super::ast::{Explain, Question, SpannedInsert, SpannedStatement, Statement};
use super::errors;
use super::lexer::{Lexed, span_of, starts_with_words};
use super::statement::with_statement_parser;
use crate::error::{Error, code};

/// How a statement set starts.
const SET_HEADS: &[&[&str]] = &[
    &["BEGIN", "STATEMENT", "SET"],
    &["EXECUTE", "STATEMENT", "SET", "BEGIN"],
    &["STATEMENT", "SET", "BEGIN"],
];

/// The statements of a script.
pub(super) fn parse_script(text: &str) -> Result<Vec<SpannedStatement>, Error> {
    let lexed = Lexed::new(text)?;
    let segments = lexed.statements();
    let mut script = Script { text, lexed: &lexed, segments, next: 0 };
    let mut statements = Vec::new();
    while let Some(segment) = script.next_segment() {
        statements.push(script.statement(segment)?);
    }
    Ok(statements)
}

/// A statement set in `text` has no END yet.
pub(super) fn has_open_set(text: &str) -> bool {
    Lexed::new(text).is_ok_and(|lexed| {
        let segments = lexed.statements();
        Script { text, lexed: &lexed, segments, next: 0 }.has_open_set()
    })
}

/// How many words come before what EXPLAIN explains; none without EXPLAIN.
fn explain_words(tokens: &[TokenWithSpan]) -> usize {
    let forms: [&[&str]; 5] = [
        &["EXPLAIN", "PLAN", "FOR"],
        &["EXPLAIN", "JSON"],
        &["EXPLAIN", "ANALYZE", "JSON"],
        &["EXPLAIN", "ANALYZE"],
        &["EXPLAIN"],
    ];
    let words = forms.iter().find(|words| starts_with_words(tokens, words)).map_or(0, |words| words.len());
    words + time_limit(&tokens[words..]).map_or(0, <[_]>::len)
}

/// `FOR INTERVAL '5' SECOND`.
fn time_limit(tokens: &[TokenWithSpan]) -> Option<&[TokenWithSpan]> {
    tokens.get(..4).filter(|tokens| starts_with_words(tokens, &["FOR", "INTERVAL"]))
}

/// What is asked about a job, if that is what the statement does.
fn question(tokens: &[TokenWithSpan]) -> Option<Question> {
    use Question::{Analyze, Findings, Lateness, Watermark, Window};
    [Findings, Watermark, Window, Lateness, Analyze]
        .into_iter()
        .find(|question| starts_with_words(tokens, question.words()))
}

/// A script that is being read.
struct Script<'a> {
    text: &'a str,
    lexed: &'a Lexed,
    segments: Vec<Range<usize>>,
    next: usize,
}

impl<'a> Script<'a> {
    fn next_segment(&mut self) -> Option<Range<usize>> {
        let segment = self.segments.get(self.next).cloned();
        self.next += 1;
        segment
    }

    /// Whether the last statement set is open.
    fn has_open_set(&self) -> bool {
        let mut is_open = false;
        for segment in &self.segments {
            let tokens = self.tokens(segment);
            let set = &tokens[explain_words(tokens)..];
            if SET_HEADS.iter().any(|head| starts_with_words(set, head)) {
                is_open = true;
            } else if starts_with_words(tokens, &["END"]) {
                is_open = false;
            }
        }
        is_open
    }

    /// Reads the statement that starts at `segment`; one with BEGIN takes the segments up to END.
    fn statement(&mut self, segment: Range<usize>) -> Result<SpannedStatement, Error> {
        let tokens = self.tokens(&segment);
        let head = SET_HEADS.iter().find(|head| starts_with_words(tokens, head));
        let (statement, end) = if let Some(head) = head {
            self.statement_set(segment.clone(), head.len())?
        } else if let Some(question) = question(tokens) {
            let read =
                with_statement_parser(self.text, self.lexed, tokens, |parser| parser.diagnose(question));
            (read?, segment.end)
        } else if starts_with_words(tokens, &["EXPLAIN"]) {
            self.explain(segment.clone())?
        } else {
            (with_statement_parser(self.text, self.lexed, tokens, |parser| parser.statement())?, segment.end)
        };
        Ok(self.spanned(statement, segment.start..end))
    }

    fn tokens(&self, range: &Range<usize>) -> &'a [TokenWithSpan] {
        &self.lexed.tokens[range.clone()]
    }

    fn spanned(&self, statement: Statement, range: Range<usize>) -> SpannedStatement {
        let span = span_of(self.tokens(&range)).expect("a statement has tokens");
        let bytes = self.lexed.bytes[range.start].start..self.lexed.bytes[range.end - 1].end;
        SpannedStatement { statement, span, text: self.text[bytes].to_owned() }
    }

    /// `EXPLAIN [PLAN FOR | JSON | ANALYZE [JSON] [FOR interval]] statement`.
    fn explain(&mut self, segment: Range<usize>) -> Result<(Statement, usize), Error> {
        let tokens = self.tokens(&segment);
        let analyze = starts_with_words(tokens, &["EXPLAIN", "ANALYZE"]);
        let words = explain_words(tokens);
        let json = starts_with_words(tokens, &["EXPLAIN", "JSON"])
            || starts_with_words(tokens, &["EXPLAIN", "ANALYZE", "JSON"]);
        let limit = words.checked_sub(4).and_then(|from| time_limit(&tokens[from..]));
        let over = match limit {
            Some(limit) if analyze => {
                Some(with_statement_parser(self.text, self.lexed, &limit[1..], |parser| parser.interval())?)
            }
            Some(limit) => return Err(errors::expected("a statement to explain", limit, 0)),
            None => None,
        };
        let inner = segment.start + words..segment.end;
        if inner.is_empty() {
            return Err(errors::expected("a statement to explain", self.tokens(&segment), segment.len()));
        }
        if starts_with_words(self.tokens(&inner), &["EXPLAIN"]) {
            return Err(errors::expected("a query, INSERT INTO or a statement set", self.tokens(&inner), 0));
        }
        let statement = self.statement(inner.clone())?;
        match &statement.statement {
            Statement::Query(_) | Statement::Insert(_) | Statement::StatementSet(_) => {}
            Statement::CreateTable(_)
            | Statement::CreateView(_)
            | Statement::Drop(_)
            | Statement::Explain(_)
            | Statement::Diagnose(_)
            | Statement::Set(_)
            | Statement::Reset(_)
            | Statement::ShowSettings
            | Statement::Show(_)
            | Statement::Describe(_)
            | Statement::DescribeJob(_)
            | Statement::StopJob(_) => {
                return Err(Error::parse(code::SYNTAX, "this statement can't be explained")
                    .at(statement.span)
                    .hint("Explain a query, INSERT INTO or a statement set."));
            }
        }
        // The inner statement may have taken more segments.
        let end = self.segments[self.next - 1].end;
        Ok((Statement::Explain(Box::new(Explain { json, analyze, over, statement })), end))
    }

    /// The inserts from `skip` tokens on up to END.
    fn statement_set(&mut self, segment: Range<usize>, skip: usize) -> Result<(Statement, usize), Error> {
        let head = self.tokens(&segment)[..skip].to_vec();
        let mut inserts = Vec::new();
        let mut current = segment.start + skip..segment.end;
        loop {
            if !current.is_empty() {
                let tokens = self.tokens(&current);
                if starts_with_words(tokens, &["END"]) {
                    if current.len() > 1 && !starts_with_words(&tokens[1..], &["STATEMENT", "SET"]) {
                        return Err(errors::expected("\";\"", tokens, 1));
                    }
                    break;
                }
                if !starts_with_words(tokens, &["INSERT"]) {
                    return Err(errors::expected("INSERT INTO or END", tokens, 0)
                        .hint("Put only INSERT INTO statements between BEGIN and END."));
                }
                let insert = with_statement_parser(self.text, self.lexed, tokens, |parser| parser.insert())?;
                let span = span_of(tokens).expect("not empty");
                inserts.push(SpannedInsert { insert, span });
            }
            current = self.next_segment().ok_or_else(|| {
                Error::parse(code::SYNTAX, "the statement set has no END")
                    .at(span_of(&head))
                    .hint("Close the statement set with END;.")
            })?;
        }
        if inserts.is_empty() {
            return Err(Error::parse(code::SYNTAX, "the statement set is empty")
                .at(span_of(&head))
                .hint("Put INSERT INTO statements between BEGIN and END."));
        }
        Ok((Statement::StatementSet(inserts), current.end))
    }
}
