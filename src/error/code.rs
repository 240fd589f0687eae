//! The stable codes of errors. One constant a kind; a code is never used for another kind.
//!
//! Letters: `S` SQL text, `C` catalog and options, `P` planning, `W` windows and time, `F` files
//! and formats, `R` running, `U` usage of the command line and settings, `X` our own faults, `L` what
//! is allowed and may not be meant, `K` checkpoints.

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
/// A test file that can't be read as one.
pub const TEST_FILE: Code = Code("U005");
/// A command of the shell that does not exist, or an argument of one that does not fit.
pub const SHELL_COMMAND: Code = Code("U006");
/// A result that can't be drawn.
pub const NO_CHART: Code = Code("U007");
/// A folder for a new project that holds something already.
pub const FOLDER_IN_USE: Code = Code("U008");
/// The size, slide, step or gap of a window is zero or negative.
pub const WINDOW_NOT_POSITIVE: Code = Code("W001");
/// A window's size is no multiple of its slide or step.
pub const WINDOW_NOT_MULTIPLE: Code = Code("W002");
/// The offset of a window is not smaller than its size.
pub const WINDOW_OFFSET: Code = Code("W003");
/// An argument of a window function is missing, unknown or of the wrong kind.
pub const WINDOW_ARGUMENT: Code = Code("W004");
/// The column that a window is to follow is no time column.
pub const NOT_A_TIME_COLUMN: Code = Code("W005");
/// The table has no watermark, so no window over it can close.
pub const NO_WATERMARK: Code = Code("W006");
/// The column was a time attribute once, but is computed now.
pub const LOST_TIME_ATTRIBUTE: Code = Code("W007");
/// A window of months or years, which have no fixed length.
pub const WINDOW_MONTHS: Code = Code("W008");
/// A watermark declaration that can't be used.
pub const INVALID_WATERMARK: Code = Code("W009");
/// An aggregation whose state grows without bound.
pub const UNBOUNDED_AGGREGATE: Code = Code("W010");
/// The bounds of a window are grouped by in a way that does not name one window.
pub const WINDOW_GROUPING: Code = Code("W011");
/// A column that does not exist.
pub const UNKNOWN_COLUMN: Code = Code("P004");
/// A name that could mean several columns.
pub const AMBIGUOUS_COLUMN: Code = Code("P005");
/// A column of an aggregating query that is neither grouped by nor aggregated.
pub const NOT_GROUPED: Code = Code("P006");
/// A query's rows do not fit the table that they are inserted into.
pub const SINK_MISMATCH: Code = Code("P007");
/// A sink that takes only new rows is fed by a query that changes them.
pub const SINK_CHANGELOG: Code = Code("P008");
/// Types that do not go together.
pub const TYPE_MISMATCH: Code = Code("P009");
/// An ORDER BY that can't be kept on a stream.
pub const UNSORTABLE: Code = Code("P010");
/// An expression too deep to be evaluated.
pub const TOO_DEEP: Code = Code("P011");
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
/// A side table that holds as many rows as it may.
pub const SIDE_TABLE_FULL: Code = Code("R007");
/// More rows were late than the user allows.
pub const TOO_MANY_LATE: Code = Code("R008");
/// A run took longer than the user allows.
pub const TIMED_OUT: Code = Code("R009");
/// Something was pushed into a stream that it can't take: after its end, a watermark that goes back, rows that
/// nobody reads.
pub const STREAM_MISUSE: Code = Code("R011");
/// The state of the jobs has come to the limit on its memory.
pub const STATE_LIMIT: Code = Code("R012");
/// A checkpoint that is missing where one was asked for.
pub const NO_CHECKPOINT: Code = Code("K001");
/// A checkpoint that is torn, or written by something else.
pub const BAD_CHECKPOINT: Code = Code("K002");
/// A checkpoint that is of another query, or that this query can't take up.
pub const FOREIGN_CHECKPOINT: Code = Code("K003");
/// A checkpoint that could not be written.
pub const UNWRITTEN_CHECKPOINT: Code = Code("K004");
/// Event time is lost where windows could still use it.
pub const LINT_LOST_TIME: Code = Code("L001");
/// A watermark is further behind its rows than a window is long.
pub const LINT_LONG_DELAY: Code = Code("L002");
/// A time without zone is used where an instant is meant.
pub const LINT_WALL_CLOCK: Code = Code("L003");
/// A table of several splits without `IDLE AFTER`.
pub const LINT_NO_IDLENESS: Code = Code("L004");
/// Rows that change for ever, and nobody who can take them.
pub const LINT_UNTAKEN_CHANGES: Code = Code("L005");
/// A key that most rows have in common.
pub const LINT_SKEWED_KEY: Code = Code("L006");
