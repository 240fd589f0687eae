//! Window table functions: their calls, their node in a logical plan, and the old group form.
//!
//! Invariant: whether the time column is a time attribute is not decided here but in lowering,
//! where its whole way from the source is known.

mod arguments;
mod bind;
mod group;
mod node;

use sqlparser::ast::{ObjectName, ObjectNamePart};

pub(super) use arguments::interval_us;
pub(super) use bind::bind_window;
pub(super) use group::rewrite_group_windows;
pub(super) use node::{WINDOW_COLUMNS, WindowCall, WindowNode};

/// A window table function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum WindowFunction {
    /// Fixed length, no overlap.
    Tumble,
    /// Fixed length, starts every slide.
    Hop,
    /// Growing by a step up to a length.
    Cumulate,
    /// Ends after a gap.
    Session,
}

impl WindowFunction {
    /// The function of that name, whatever its case.
    pub(super) fn of_name(name: &ObjectName) -> Option<Self> {
        let [ObjectNamePart::Identifier(ident)] = name.0.as_slice() else { return None };
        Self::of(&ident.value)
    }

    fn of(name: &str) -> Option<Self> {
        [Self::Tumble, Self::Hop, Self::Cumulate, Self::Session]
            .into_iter()
            .find(|function| function.name().eq_ignore_ascii_case(name))
    }

    /// Its name in SQL.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tumble => "TUMBLE",
            Self::Hop => "HOP",
            Self::Cumulate => "CUMULATE",
            Self::Session => "SESSION",
        }
    }

    /// The names of its interval arguments, in the order of their places.
    fn intervals(self) -> &'static [&'static str] {
        match self {
            Self::Tumble => &["SIZE", "OFFSET"],
            Self::Hop => &["SLIDE", "SIZE", "OFFSET"],
            Self::Cumulate => &["STEP", "SIZE", "OFFSET"],
            Self::Session => &["GAP"],
        }
    }
}
