//! How often a row counts when a run goes on from a checkpoint: the guarantee of a whole statement, from what the
//! connectors know of its tables.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{NodeId, Operation, SinkTarget, StreamPlan};
use crate::catalog::{ConnectorCatalog, ReadRecovery, Table, TableRecovery, WriteRecovery};

/// What a person can rely on when a run of a statement is killed and goes on from its last checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guarantee {
    /// Of all that it reads and writes.
    pub level: GuaranteeLevel,
    /// The same in words, with the tables that set it.
    pub text: String,
    /// The tables that set it; none: all of them do.
    pub tables: Vec<String>,
}

/// How often a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GuaranteeLevel {
    /// As if nothing had happened.
    ExactlyOnce,
    /// What was written behind the checkpoint is there twice.
    AtLeastOnce,
    /// What was read behind the checkpoint, or all that was in memory, is missing.
    AtMostOnce,
    /// Both of these.
    Unknown,
    /// There are no checkpoints with one of its tables.
    Refused,
}

impl GuaranteeLevel {
    /// Its name, for programs: `exactly-once`, `at-least-once`, `at-most-once`, `unknown`, `refused`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExactlyOnce => "exactly-once",
            Self::AtLeastOnce => "at-least-once",
            Self::AtMostOnce => "at-most-once",
            Self::Unknown => "unknown",
            Self::Refused => "refused",
        }
    }
}

impl Guarantee {
    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({ "level": self.level.name(), "text": self.text, "tables": self.tables })
    }
}

/// The guarantee of an insert or a statement set. `None`: of a query, whose rows are for whoever looks, or where
/// connectors are not known.
pub(crate) fn guarantee(plan: &StreamPlan, connectors: &dyn ConnectorCatalog) -> Option<Guarantee> {
    let read = Part::read(plan, connectors)?;
    let of_rows = Verdict::of(read, Part::written(plan, &plan.sinks, connectors)?);
    let late = Verdict::of(Vec::new(), Part::written(plan, &plan.late_sinks, connectors)?);
    // Late rows are for whoever looks after the stream: they don't lessen what the result is worth.
    if late.level == GuaranteeLevel::Refused && of_rows.level != late.level {
        return Some(late.told());
    }
    let mut told = of_rows.told();
    if late.level != GuaranteeLevel::ExactlyOnce && late.level != told.level {
        let late = late.told();
        told.text = format!("{}; late rows {}", told.text, late.text);
        told.tables.extend(late.tables);
    }
    Some(told)
}

/// A table that sets the guarantee.
#[derive(Debug, Clone)]
struct Part {
    table: Arc<Table>,
    is: Flaw,
    /// Rows that come again replace themselves, by key.
    has_key: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    Lost,
    Gone,
    Repeated,
    Refused,
}

impl Part {
    /// The tables that can't be read again.
    fn read(plan: &StreamPlan, connectors: &dyn ConnectorCatalog) -> Option<Vec<Self>> {
        let mut parts: Vec<Self> = Vec::new();
        for node in below(plan, &plan.sinks) {
            let Operation::Source(source) = &plan.nodes[node].operation else { continue };
            let TableRecovery { read, .. } = connectors.recovery(&source.table)?;
            let is = match read {
                ReadRecovery::Again => continue,
                ReadRecovery::Lost => Flaw::Lost,
                ReadRecovery::Gone => Flaw::Gone,
            };
            parts.push(Self { table: Arc::clone(&source.table), is, has_key: false });
        }
        Some(parts)
    }

    /// The tables that can't take rows back.
    fn written(plan: &StreamPlan, sinks: &[NodeId], connectors: &dyn ConnectorCatalog) -> Option<Vec<Self>> {
        let mut parts: Vec<Self> = Vec::new();
        for node in sinks {
            let Operation::Sink(sink) = &plan.nodes[*node].operation else { continue };
            let SinkTarget::Table(table) = &sink.target else { return None };
            let TableRecovery { written, .. } = connectors.recovery(table)?;
            let is = match written {
                WriteRecovery::TakenBack => continue,
                WriteRecovery::Repeated => Flaw::Repeated,
                WriteRecovery::Gone => Flaw::Gone,
                WriteRecovery::Refused => Flaw::Refused,
            };
            parts.push(Self { table: Arc::clone(table), is, has_key: sink.upsert });
        }
        Some(parts)
    }

    fn told(&self) -> String {
        let name = format!("table \"{}\" ({})", self.table.name, self.table.connector);
        match self.is {
            Flaw::Lost => format!("{name} can't be read again"),
            Flaw::Gone => format!("{name} is gone with the process"),
            Flaw::Repeated if self.has_key => {
                format!("{name} can't take rows back, though its key tells those that come again")
            }
            Flaw::Repeated => format!("{name} can't take rows back"),
            Flaw::Refused => format!("{name} is one file, which is whole only at its end"),
        }
    }
}

/// A level and what sets it.
struct Verdict {
    level: GuaranteeLevel,
    parts: Vec<Part>,
}

impl Verdict {
    fn of(read: Vec<Part>, written: Vec<Part>) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        for part in read.into_iter().chain(written) {
            if !parts.iter().any(|other| (&other.table.name, other.is) == (&part.table.name, part.is)) {
                parts.push(part);
            }
        }
        let any = |flaws: &[Flaw]| parts.iter().any(|part| flaws.contains(&part.is));
        let level = match (any(&[Flaw::Refused]), any(&[Flaw::Lost, Flaw::Gone]), any(&[Flaw::Repeated])) {
            (true, ..) => GuaranteeLevel::Refused,
            (false, true, true) => GuaranteeLevel::Unknown,
            (false, true, false) => GuaranteeLevel::AtMostOnce,
            (false, false, true) => GuaranteeLevel::AtLeastOnce,
            (false, false, false) => GuaranteeLevel::ExactlyOnce,
        };
        if level == GuaranteeLevel::Refused {
            parts.retain(|part| part.is == Flaw::Refused);
        }
        Self { level, parts }
    }

    fn told(self) -> Guarantee {
        let level = match self.level {
            GuaranteeLevel::ExactlyOnce => "exactly once",
            GuaranteeLevel::AtLeastOnce => "at least once",
            GuaranteeLevel::AtMostOnce => "at most once behind a restart",
            GuaranteeLevel::Unknown => "rows may be missing or come twice behind a restart",
            GuaranteeLevel::Refused => "no checkpoints",
        };
        let why: Vec<String> = self.parts.iter().map(Part::told).collect();
        let text = match why.is_empty() {
            true => level.to_owned(),
            false => format!("{level}: {}", why.join(", ")),
        };
        let tables = self.parts.into_iter().map(|part| part.table.name.clone()).collect();
        Guarantee { level: self.level, text, tables }
    }
}

/// The nodes that these read from, in plan order.
fn below(plan: &StreamPlan, sinks: &[NodeId]) -> Vec<NodeId> {
    let mut is_read = vec![false; plan.nodes.len()];
    for sink in sinks {
        is_read[*sink] = true;
    }
    // Inputs have smaller ids than those who read them.
    for node in (0..plan.nodes.len()).rev() {
        if is_read[node] {
            plan.nodes[node].inputs.iter().for_each(|input| is_read[*input] = true);
        }
    }
    (0..plan.nodes.len()).filter(|node| is_read[*node]).collect()
}
