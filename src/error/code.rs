//! The stable codes of errors. One constant a kind; a code is never used for another kind.
//!
//! Letters: `S` SQL text, `C` catalog and options, `P` planning, `W` windows and time, `F` files
//! and formats, `R` running, `U` usage of the command line and settings, `X` our own faults.

/// A stable code, such as `W004`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub &'static str);

/// A fault of Tidegate itself.
pub const INTERNAL: Code = Code("X001");
/// The user stopped the query.
pub const INTERRUPTED: Code = Code("R000");
/// The text is not SQL as we know it.
pub const SYNTAX: Code = Code("S001");
/// A table, view or function that does not exist.
pub const UNKNOWN_NAME: Code = Code("P001");
/// What is meant is clear, but can't run in this version.
pub const NOT_SUPPORTED: Code = Code("P002");
/// Any other reason for which a statement can't be planned.
pub const INVALID_QUERY: Code = Code("P003");
/// An option that the connector or format does not know.
pub const UNKNOWN_OPTION: Code = Code("C001");
/// An option whose value can't be used.
pub const INVALID_OPTION: Code = Code("C002");
/// An option that must be given and is not.
pub const MISSING_OPTION: Code = Code("C003");
/// A connector or format that does not exist.
pub const UNKNOWN_CONNECTOR: Code = Code("C004");
/// The name is taken.
pub const ALREADY_EXISTS: Code = Code("C005");
/// A column list, type or watermark declaration that can't be used.
pub const INVALID_TABLE: Code = Code("C006");
/// A file or folder that can't be read.
pub const UNREADABLE: Code = Code("F001");
/// A row that does not fit the format or the column types.
pub const MALFORMED: Code = Code("F002");
/// A file or folder that can't be written.
pub const UNWRITABLE: Code = Code("F003");
/// A row without event time, under the policy `fail`.
pub const NULL_TIME: Code = Code("R001");
/// An expression failed on a row: division by zero, overflow, a cast.
pub const EVALUATION: Code = Code("R002");
/// A setting or flag that can't be used.
pub const INVALID_SETTING: Code = Code("U001");
/// A script that can't be read.
pub const UNREADABLE_SCRIPT: Code = Code("U002");
/// A `${name}` without value.
pub const UNDEFINED_VARIABLE: Code = Code("U003");
/// A combination of flags and query that makes no sense.
pub const UNFIT_FORMAT: Code = Code("U004");
/// A quote or comment that is opened and not closed, or a character that SQL does not have.
pub const LEXICAL: Code = Code("S002");
/// Brackets nested too deeply, or an expression that is too long.
pub const TOO_COMPLEX: Code = Code("S003");
/// A literal, such as that of an interval, that does not fit its type.
pub const INVALID_LITERAL: Code = Code("S004");
/// A clause, option or column that is given twice.
pub const GIVEN_TWICE: Code = Code("S005");
/// The reader of a pipe has gone: a normal end for a command line.
pub const CLOSED_PIPE: Code = Code("F004");
