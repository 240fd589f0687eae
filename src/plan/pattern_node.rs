//! MATCH_RECOGNIZE as the plan that runs has it.

use arrow::datatypes::SchemaRef;

use super::{AggregateCall, ExprRef, SortKey};
use crate::stream::TimeUnit;

/// Finds rows that follow each other as a pattern says, and gives a row for each match. Output: the
/// columns of PARTITION BY, then the measures.
#[derive(Debug, Clone)]
pub struct MatchRecognizeNode {
    /// The time attribute's column in the input.
    pub time: usize,
    /// The time attribute's step.
    pub unit: TimeUnit,
    /// PARTITION BY.
    pub partition: Vec<usize>,
    /// What ORDER BY has behind the time. Ties are in the order of arrival.
    pub order: Vec<SortKey>,
    /// The pattern: its variables in their order, at least one, not all of them optional.
    pub variables: Vec<PatternVariable>,
    /// The last row of a match is less than this behind the first, microseconds, > 0.
    pub within_us: Option<i64>,
    /// Where the next match is looked for.
    pub skip: AfterMatch,
    /// What measures read of a match.
    pub values: Vec<MatchValue>,
    /// The columns that measures are over: one for each of `values`.
    pub values_schema: SchemaRef,
    /// What is given of a match, over `values_schema`.
    pub measures: Vec<ExprRef>,
    /// A measure is a time attribute: the watermark waits for matches that are not decided.
    pub gives_time: bool,
    /// The pattern as it was written.
    pub text: String,
}

/// A variable of a pattern, with its quantifier and its condition.
#[derive(Debug, Clone)]
pub struct PatternVariable {
    /// Its name.
    pub name: String,
    /// How many rows it takes at least.
    pub min: u32,
    /// How many rows it takes at most; `None`: any number. Not less than `min`, > 0.
    pub max: Option<u32>,
    /// It rather takes a row than to leave it to the next variable.
    pub is_greedy: bool,
    /// What a row must be like, over the input.
    pub row_condition: Option<ExprRef>,
    /// What it must be like beside the rows before it.
    pub match_condition: Option<MatchCondition>,
    /// The condition as it was written.
    pub text: Option<String>,
}

/// A condition on a row and the rows of the match before it.
#[derive(Debug, Clone)]
pub struct MatchCondition {
    /// Columns of the row that it reads.
    pub columns: Vec<usize>,
    /// What it reads of the match so far, the row included.
    pub values: Vec<MatchValue>,
    /// Its columns: `columns`, then one for each of `values`.
    pub schema: SchemaRef,
    /// The condition, over `schema`.
    pub condition: ExprRef,
}

/// A value of the rows of a match.
#[derive(Debug, Clone)]
pub struct MatchValue {
    /// The variable, as an index, whose rows count; `None`: all rows of the match.
    pub variable: Option<usize>,
    /// What is computed of them.
    pub kind: MatchValueKind,
}

/// What is computed of rows of a match.
#[derive(Debug, Clone)]
pub enum MatchValueKind {
    /// The value of one row; NULL where there is no such row: `FIRST`, `LAST`.
    Row {
        /// Counted from the last row on.
        from_last: bool,
        /// Rows between it and that end.
        offset: u32,
        /// Over the input.
        value: ExprRef,
    },
    /// An aggregate.
    Aggregate(AggregateCall),
}

/// `AFTER MATCH SKIP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterMatch {
    /// `PAST LAST ROW`.
    PastLastRow,
    /// `TO NEXT ROW`.
    ToNextRow,
    /// `TO FIRST` of a variable, as an index.
    ToFirst(usize),
    /// `TO LAST` of a variable, as an index.
    ToLast(usize),
}
