//! The options of the formats, typed and checked.

use arrow::datatypes::{DataType, TimeUnit};

use super::column::TimeRules;
use super::csv_read::CsvOptions;
use super::csv_scan::CsvSyntax;
use super::rows::OnError;
use super::text::TextFormat;
use super::type_name::sql_type_name;
use crate::catalog::{ColumnKind, Table};
use crate::connector::options::OptionReader;
use crate::error::{Error, code};

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Json,
    Csv,
    Parquet,
    Raw,
    /// JSON with what each row does to the result. It can be written only.
    ChangelogJson,
    /// Changes of a database's table as Debezium writes them. They can be read only.
    DebeziumJson,
}

const KINDS: [(&str, Kind); 6] = [
    ("json", Kind::Json),
    ("csv", Kind::Csv),
    ("parquet", Kind::Parquet),
    ("raw", Kind::Raw),
    ("changelog-json", Kind::ChangelogJson),
    ("debezium-json", Kind::DebeziumJson),
];

/// Options of reading any text format.
pub(crate) const TEXT_KEYS: &[&str] = &["errors", "timestamp-format"];
/// Options of `json`.
pub(crate) const JSON_KEYS: &[&str] = &[
    "json.ignore-parse-errors",
    "json.fail-on-missing-field",
    "json.timestamp-format.standard",
    "json.timestamp-format",
];
/// Options of `debezium-json`.
pub(crate) const DEBEZIUM_KEYS: &[&str] = &[
    "debezium-json.schema-include",
    "debezium-json.ignore-parse-errors",
    "debezium-json.timestamp-format.standard",
    "debezium-json.timestamp-format",
];
/// Options of `csv`.
pub(crate) const CSV_KEYS: &[&str] = &[
    "csv.header",
    "csv.field-delimiter",
    "csv.quote-character",
    "csv.disable-quote-character",
    "csv.escape-character",
    "csv.null-literal",
    "csv.allow-comments",
    "csv.ignore-parse-errors",
    "csv.timestamp-format",
];

/// How timestamps are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeStyle {
    /// As text with this between date and time.
    Text(u8),
    /// As a number of these since 1970.
    Epoch(TimeUnit),
}

/// A format with its options.
#[derive(Debug, Clone)]
pub(crate) struct FormatOptions {
    pub(crate) kind: Kind,
    pub(crate) text: Option<TextFormat>,
    pub(crate) on_error: OnError,
    pub(crate) rules: TimeRules,
    pub(crate) time_style: TimeStyle,
}

/// The names of all formats.
pub(crate) fn names() -> [&'static str; KINDS.len()] {
    KINDS.map(|(name, _)| name)
}

impl Kind {
    /// The format of a file name, by its extension before `.gz` or `.zst`.
    pub(crate) fn of_path(path: &str) -> Option<(Self, bool)> {
        let lower = path.to_ascii_lowercase();
        let stem = lower.strip_suffix(".gz").or_else(|| lower.strip_suffix(".zst")).unwrap_or(&lower);
        let (_, extension) = stem.rsplit_once('.')?;
        match extension {
            "csv" => Some((Self::Csv, false)),
            "tsv" => Some((Self::Csv, true)),
            "json" | "ndjson" | "jsonl" => Some((Self::Json, false)),
            "parquet" => Some((Self::Parquet, false)),
            _ => None,
        }
    }

    /// The value of `'format'`; also the extension of files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Raw => "raw",
            Self::ChangelogJson => "changelog-json",
            Self::DebeziumJson => "debezium-json",
        }
    }

    /// The options that this format has.
    pub(crate) fn keys(self) -> [&'static [&'static str]; 2] {
        match self {
            Self::Json => [TEXT_KEYS, JSON_KEYS],
            Self::Csv => [TEXT_KEYS, CSV_KEYS],
            Self::Raw => [TEXT_KEYS, &[]],
            Self::Parquet => [&[], &[]],
            Self::ChangelogJson => [&["timestamp-format"], &[]],
            Self::DebeziumJson => [TEXT_KEYS, DEBEZIUM_KEYS],
        }
    }
}

/// The value of `'format'`, or the format of the path.
///
/// # Errors
/// `C004` for an unknown format, `C003` if nothing tells it.
pub(crate) fn kind_of(options: &crate::catalog::Options, path: Option<&str>) -> Result<(Kind, bool), Error> {
    if let Some(entry) = options.entry("format") {
        let value = entry.value.as_str();
        if let Some((_, kind)) = KINDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(value)) {
            return Ok((*kind, path.and_then(Kind::of_path) == Some((Kind::Csv, true))));
        }
        let names = names();
        let error =
            Error::plan(code::UNKNOWN_CONNECTOR, format!("unknown format \"{value}\"")).at(entry.value_span);
        return Err(match crate::error::did_you_mean(value, names) {
            Some(near) => error.hint(format!("Use '{near}'.")),
            None => error.hint(format!("Use one of {}.", names.join(", "))),
        });
    }
    path.and_then(Kind::of_path).ok_or_else(|| {
        Error::plan(code::MISSING_OPTION, "option \"format\" is missing")
            .at(options.entry("path").or_else(|| options.entry("connector")).and_then(|entry| entry.key_span))
            .hint("Add 'format' = 'json', 'csv', 'parquet' or 'raw'.")
    })
}

impl FormatOptions {
    /// Reads the options of a format. `is_tsv`: the default delimiter is a tab.
    ///
    /// # Errors
    /// `C002` for a value that can't be used.
    pub(crate) fn read(reader: OptionReader<'_>, kind: Kind, is_tsv: bool) -> Result<Self, Error> {
        let prefix = kind.name();
        let ignore_key = format!("{prefix}.ignore-parse-errors");
        let ignore = matches!(kind, Kind::Json | Kind::Csv | Kind::DebeziumJson)
            && reader.boolean(&ignore_key)? == Some(true);
        let errors = reader.choice("errors", &["fail", "side", "skip"])?;
        if ignore && errors.is_some() {
            return Err(reader
                .invalid("errors", format_args!("can't be combined with '{ignore_key}' = 'true'"))
                .hint("Keep one of the two."));
        }
        let on_error = match errors {
            _ if ignore => OnError::Null,
            Some(1) => OnError::Side,
            Some(2) => OnError::Skip,
            _ => OnError::Fail,
        };
        let default_style = if kind == Kind::Csv { b' ' } else { b'T' };
        let (rules, time_style) = time_rules(reader, prefix, default_style)?;
        let text = match kind {
            Kind::Json => Some(TextFormat::Json {
                fail_on_missing: reader.boolean("json.fail-on-missing-field")? == Some(true),
            }),
            Kind::Csv => Some(TextFormat::Csv(csv_options(reader, is_tsv)?)),
            Kind::Raw => Some(TextFormat::Raw),
            Kind::DebeziumJson => {
                Some(TextFormat::Debezium { is_wrapped: reader.boolean("debezium-json.schema-include")? })
            }
            Kind::Parquet | Kind::ChangelogJson => None,
        };
        Ok(Self { kind, text, on_error, rules, time_style })
    }

    /// Whether rows can be read in this format.
    pub(crate) fn is_readable(&self) -> bool {
        self.kind != Kind::ChangelogJson
    }

    /// Whether rows can be written in this format.
    pub(crate) fn is_writable(&self) -> bool {
        self.kind != Kind::DebeziumJson
    }

    /// Whether rows that are read change others.
    pub(crate) fn gives_changelog(&self) -> bool {
        self.kind == Kind::DebeziumJson
    }

    /// Whether rows can be written that change others.
    pub(crate) fn takes_changelog(&self) -> bool {
        self.kind == Kind::ChangelogJson
    }

    /// The CSV options, if this is CSV.
    pub(crate) fn csv(&self) -> Option<&CsvOptions> {
        match &self.text {
            Some(TextFormat::Csv(options)) => Some(options),
            _ => None,
        }
    }

    /// Checks that the format can hold the table's columns.
    ///
    /// # Errors
    /// `C006` for a column that it can't.
    pub(crate) fn check_columns(&self, table: &Table) -> Result<(), Error> {
        let physical = table.columns.iter().filter(|column| matches!(column.kind, ColumnKind::Physical));
        if self.kind == Kind::Raw {
            let columns: Vec<_> = physical.collect();
            let fits =
                matches!(&columns[..], [one] if matches!(one.data_type, DataType::Utf8 | DataType::Binary));
            if !fits {
                return Err(Error::plan(
                    code::INVALID_TABLE,
                    format!(
                        "table \"{}\": format \"raw\" has exactly one STRING or BYTES column",
                        table.name
                    ),
                )
                .hint("Declare one column, such as line STRING."));
            }
            return Ok(());
        }
        for column in physical {
            if let Some(wrong) = unreadable(&column.data_type) {
                return Err(Error::plan(
                    code::INVALID_TABLE,
                    format!(
                        "column \"{}\": format \"{}\" can't hold {}",
                        column.name,
                        self.kind.name(),
                        sql_type_name(wrong)
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// The part of a type that no format can hold.
fn unreadable(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(item) => unreadable(item.data_type()),
        DataType::Map(entries, _) => unreadable(entries.data_type()),
        DataType::Struct(fields) => fields.iter().find_map(|field| unreadable(field.data_type())),
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(..)
        | DataType::Utf8
        | DataType::Binary
        | DataType::Date32
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..) => None,
        other => Some(other),
    }
}

fn time_rules(reader: OptionReader<'_>, prefix: &str, style: u8) -> Result<(TimeRules, TimeStyle), Error> {
    let own = format!("{prefix}.timestamp-format");
    let standard = format!("{prefix}.timestamp-format.standard");
    let mut separator = None;
    let mut epoch = None;
    for key in ["timestamp-format", own.as_str(), standard.as_str()] {
        let words: &[&str] = if key == standard {
            &["SQL", "ISO-8601"]
        } else {
            &["SQL", "ISO-8601", "epoch-seconds", "epoch-millis", "epoch-micros"]
        };
        match reader.choice(key, words)? {
            None => {}
            Some(0) => separator = Some(b' '),
            Some(1) => separator = Some(b'T'),
            Some(2) => epoch = Some(TimeUnit::Second),
            Some(3) => epoch = Some(TimeUnit::Millisecond),
            Some(_) => epoch = Some(TimeUnit::Microsecond),
        }
    }
    let style = match epoch {
        Some(unit) => TimeStyle::Epoch(unit),
        None => TimeStyle::Text(separator.unwrap_or(style)),
    };
    Ok((TimeRules { separator, epoch }, style))
}

fn csv_options(reader: OptionReader<'_>, is_tsv: bool) -> Result<CsvOptions, Error> {
    let header = match reader.choice("csv.header", &["true", "false", "auto"])? {
        Some(0) => Some(true),
        Some(1) => Some(false),
        _ => None,
    };
    let delimiter = reader.character("csv.field-delimiter")?;
    let quote = match reader.boolean("csv.disable-quote-character")? {
        Some(true) => None,
        _ => Some(reader.character("csv.quote-character")?.unwrap_or(b'"')),
    };
    let syntax = CsvSyntax {
        delimiter: delimiter.unwrap_or(if is_tsv { b'\t' } else { b',' }),
        quote,
        escape: reader.character("csv.escape-character")?,
    };
    if Some(syntax.delimiter) == quote || syntax.escape == Some(syntax.delimiter) {
        let key = if delimiter.is_some() { "csv.field-delimiter" } else { "csv.quote-character" };
        return Err(reader.invalid(key, "can't be two things at once").hint("Use different characters."));
    }
    Ok(CsvOptions {
        syntax,
        header,
        null_literal: reader.text("csv.null-literal").map(str::to_owned),
        allow_comments: reader.boolean("csv.allow-comments")? == Some(true),
    })
}
