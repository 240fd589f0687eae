//! The options of `WITH (…)`, with the places where they were written.

use crate::error::Span;

/// One `'key' = 'value'`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionEntry {
    /// The key, as written.
    pub key: String,
    /// The value, without quotes.
    pub value: String,
    /// Where the key stands in the script.
    pub key_span: Option<Span>,
    /// Where the value stands in the script.
    pub value_span: Option<Span>,
}

/// The options of a table, in the order in which they were written. Keys are unique.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options(Vec<OptionEntry>);

impl Options {
    /// Takes entries whose keys are unique.
    pub fn new(entries: Vec<OptionEntry>) -> Self {
        Self(entries)
    }

    /// The entry of that key.
    pub fn entry(&self, key: &str) -> Option<&OptionEntry> {
        self.0.iter().find(|entry| entry.key == key)
    }

    /// The value of that key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entry(key).map(|entry| entry.value.as_str())
    }

    /// All entries, as written.
    pub fn entries(&self) -> &[OptionEntry] {
        &self.0
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Options {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(iter: I) -> Self {
        Self(
            iter.into_iter()
                .map(|(key, value)| OptionEntry {
                    key: key.into(),
                    value: value.into(),
                    key_span: None,
                    value_span: None,
                })
                .collect(),
        )
    }
}
