//! Table scans: what to read, what to compute of it, and event time.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion_common::Column as DfColumn;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::{Expr, TableScan};

use super::expression::Scope;
use super::late::{Carried, origin_columns};
use super::{Above, Lowered, Lowering, Role, Slot, Stream};
use crate::catalog::{ColumnKind, NullTime, Table};
use crate::error::{Error, code};
use crate::plan::bind::{StreamTable, TimeOptions};
use crate::plan::diagnose::from_datafusion;
use crate::plan::{Distribution, NormalizeNode, Operation, SourceNode, SourceWatermark};
use crate::stream::TimeUnit;

impl Lowering<'_> {
    pub(super) fn source(&mut self, scan: &TableScan, above: Above) -> Result<Lowered, Error> {
        let Some(source) = scan.source.downcast_ref::<StreamTable>() else {
            return Err(Error::internal(
                "the planner",
                format!("\"{}\" is no table of ours", scan.table_name),
            ));
        };
        let table = Arc::clone(&source.table);
        let facts = self.session.connectors.check(&table)?;
        if !facts.is_source {
            let message = format!(
                "\"{}\" can't be read: the connector \"{}\" only writes",
                table.name, table.connector
            );
            return Err(Error::plan(code::INVALID_QUERY, message));
        }
        let wanted: Vec<usize> = match &scan.projection {
            Some(projection) => projection.clone(),
            None => (0..table.columns.len()).collect(),
        };
        let width = wanted.len();
        let mut wanted = at_least_one(&table, wanted);
        if let Some(watermark) = table.watermark.as_ref().filter(|_| self.session.state_ttl_us.is_some())
            && let Some(time) = table.column_index(&watermark.column)
            && !wanted.contains(&time)
        {
            // What is forgotten goes by the time of rows.
            wanted.push(time);
        }
        if facts.gives_changelog {
            check_changelog(&table)?;
            let key = table.primary_key.iter().filter_map(|name| table.column_index(name));
            let missing: Vec<usize> = key.filter(|column| !wanted.contains(column)).collect();
            wanted.extend(missing);
        }
        let by_clock =
            self.by_clock && wanted.iter().any(|index| table.columns[*index].kind.is_processing_time());
        let mut node = source_node(&table, &wanted, by_clock)?;
        if facts.gives_changelog {
            node.changelog = true;
            node.key = table.primary_key.clone();
        }
        if let Some(watermark) = node.watermark.as_ref().filter(|_| table.bounded) {
            let name = &table.name;
            let no_effect =
                || format!("IDLE AFTER of table \"{name}\" has no effect: the table ends by itself");
            let by_speed = || {
                format!(
                    "results over table \"{name}\" depend on how fast it is read: its watermark moves \
                     'on-periodic'; with 'on-event' they don't"
                )
            };
            let idle = watermark.idle_after_us.map(|_| no_effect());
            let warnings: Vec<String> = idle.into_iter().chain(watermark.periodic.then(by_speed)).collect();
            for warning in warnings {
                if !self.plan.warnings.contains(&warning) {
                    self.plan.warnings.push(warning);
                }
            }
        }
        let mut fields: Vec<Field> = wanted
            .iter()
            .map(|index| {
                let column = &table.columns[*index];
                Field::new(&column.name, column.data_type.clone(), column.nullable)
            })
            .collect();
        let mut roles: Vec<Role> = wanted.iter().map(|index| role(&table, *index, by_clock)).collect();
        let time = node.watermark.as_ref().and_then(|spec| spec.time.data_type(&node.read_schema).ok());
        let sees_future =
            !by_clock && table.watermark.as_ref().is_some_and(|spec| spec.max_ahead_us.is_some());
        let read = fields.iter().zip(0..).map(|(field, index)| (field.name().clone(), index)).collect();
        let mut carried = Carried::default();
        if self.late.is_open() {
            node.with_origin = true;
            carried.source = Some(fields.len());
            carried.split = Some(fields.len() + 1);
            fields.extend(origin_columns());
            roles.extend([Role::Plain, Role::Plain]);
        }
        let stream =
            Stream { bounded: table.bounded, watermark: node.watermark.is_some(), key: key(&table, &wanted) };
        let slots = (0..width).map(Slot::Column).collect();
        let schema = Arc::new(Schema::new(fields));
        let identity = stream.key.clone();
        let mut node = self.push(Operation::Source(node), Vec::new(), schema, roles, stream);
        if facts.gives_changelog {
            self.note_changes(node, CHANGES, None);
        }
        if keeps_malformed(&table) || sees_future {
            let future = time.filter(|_| sees_future).map(|time| (read, time));
            self.add_source_output(node, future);
        }
        if let Some(key) = identity.filter(|_| facts.gives_changelog) {
            let single = above.order;
            let distribution = if single { Distribution::Single } else { Distribution::Hash(key.clone()) };
            node = self.add_exchange(node, distribution);
            let (schema, roles) = (Arc::clone(self.schema(node)), self.roles[node].clone());
            let stream = self.stream(node);
            let operation = Operation::Normalize(NormalizeNode { key });
            node = self.push(operation, vec![node], schema, roles, stream);
            if !table.bounded {
                let what = format!("Normalize keeps the last row of each key of \"{}\"", table.name);
                self.warn(format!("{what} as long as the query runs"));
            }
        }
        Ok(Lowered { node, slots, pending: None, carried })
    }
}

/// What makes results change where no clause does.
pub(super) const CHANGES: &str = "a table whose rows change";

/// What can't be done with a table whose rows change.
fn check_changelog(table: &Table) -> Result<(), Error> {
    let refuse = |what: &str, hint: &str| {
        let message = format!("table \"{}\", whose rows change: {what} can't run yet", table.name);
        Err(Error::plan(code::NOT_SUPPORTED, message).hint(hint))
    };
    if let Some(watermark) = &table.watermark {
        if watermark.max_ahead_us.is_some() {
            return refuse("MAX AHEAD", "Leave MAX AHEAD out.");
        }
        if watermark.null_time == NullTime::Skip {
            return refuse(
                "'scan.watermark.null-time' = 'skip'",
                "Use 'side': rows without event time go to the late rows, and both forms of an update stay together.",
            );
        }
    }
    let is_stored = |name: &String| {
        let column = table.column_index(name).map(|index| &table.columns[index]);
        column.is_some_and(|column| matches!(column.kind, ColumnKind::Physical))
    };
    if !table.primary_key.iter().all(is_stored) {
        return refuse(
            "a PRIMARY KEY of computed columns",
            "Declare a PRIMARY KEY of columns that the table stores.",
        );
    }
    Ok(())
}

/// Whether rows that can't be read go to the side table: `'errors' = 'side'`.
fn keeps_malformed(table: &Table) -> bool {
    let mut entries = table.options.entries().iter();
    entries.any(|entry| (entry.key == "errors" || entry.key.ends_with(".errors")) && entry.value == "side")
}

/// A query that only counts rows reads one column of them: a batch without columns is easily lost.
fn at_least_one(table: &Table, mut wanted: Vec<usize>) -> Vec<usize> {
    if wanted.is_empty() {
        let time = table.watermark.as_ref().and_then(|watermark| table.column_index(&watermark.column));
        let stored = table.columns.iter().position(|column| matches!(column.kind, ColumnKind::Physical));
        wanted.extend(time.or(stored));
    }
    wanted
}

/// `by_clock`: time goes by the clock, though the table may have event time.
fn role(table: &Arc<Table>, index: usize, by_clock: bool) -> Role {
    match table.watermark.as_ref().filter(|_| !by_clock) {
        Some(watermark) if watermark.column == table.columns[index].name => Role::Time(watermark.unit),
        None if matches!(table.columns[index].kind, ColumnKind::ProcessingTime) => {
            Role::Time(TimeUnit::Millisecond)
        }
        _ => Role::OfTable(Arc::clone(table)),
    }
}

fn key(table: &Table, wanted: &[usize]) -> Option<Vec<usize>> {
    if table.primary_key.is_empty() {
        return None;
    }
    table
        .primary_key
        .iter()
        .map(|name| wanted.iter().position(|index| table.columns[*index].name == *name))
        .collect()
}

fn source_node(table: &Arc<Table>, wanted: &[usize], by_clock: bool) -> Result<SourceNode, Error> {
    let output: Vec<Expr> = wanted.iter().map(|index| column_expr(table, *index)).collect();
    let watermark = match table.watermark.as_ref().filter(|_| !by_clock) {
        Some(watermark) => {
            let time = table
                .column_index(&watermark.column)
                .ok_or_else(|| Error::internal("the planner", "the time column is gone"))?;
            Some((column_expr(table, time), inline(table, &watermark.expr)?, watermark))
        }
        None => None,
    };
    let mut exprs: Vec<&Expr> = output.iter().collect();
    if let Some((time, expr, _)) = &watermark {
        exprs.extend([time, expr]);
    }
    let read = read_columns(table, &exprs)?;
    let read_schema = Schema::new(
        read.iter()
            .map(|index| {
                let column = &table.columns[*index];
                Field::new(&column.name, column.data_type.clone(), column.nullable)
            })
            .collect::<Vec<_>>(),
    );
    let scope = Scope::of(&read_schema)?;
    let physical = |expr: &Expr| scope.physical(expr).map_err(from_datafusion);
    let options = TimeOptions::read(&table.options, table.watermark.is_some())?;
    let source_watermark = match &watermark {
        Some((time, expr, spec)) => Some(SourceWatermark {
            time: physical(time)?,
            column: spec.column.clone(),
            watermark: physical(expr)?,
            unit: spec.unit,
            null_time: spec.null_time,
            idle_after_us: spec.idle_after_us,
            then_advance: spec.then_advance,
            max_ahead_us: spec.max_ahead_us,
            periodic: options.periodic,
            alignment: options.alignment.clone(),
            processing: false,
        }),
        None => None,
    };
    let processing =
        wanted.iter().find(|index| matches!(table.columns[**index].kind, ColumnKind::ProcessingTime));
    let source_watermark = match processing {
        Some(index) if watermark.is_none() => Some(processing_time(table, *index, &scope)?),
        _ => source_watermark,
    };
    if let Some(watermark) = &source_watermark {
        check_advance(table, watermark, &read_schema)?;
    }
    Ok(SourceNode {
        table: Arc::clone(table),
        output: output.iter().map(physical).collect::<Result<_, _>>()?,
        watermark: source_watermark,
        read,
        read_schema: Arc::new(read_schema),
        with_origin: false,
        changelog: false,
        key: Vec::new(),
    })
}

/// Time goes by the clock of the source: a row has the time at which it is read.
fn processing_time(table: &Table, index: usize, scope: &Scope) -> Result<SourceWatermark, Error> {
    let time = scope.physical(&column_expr(table, index)).map_err(from_datafusion)?;
    Ok(SourceWatermark {
        watermark: Arc::clone(&time),
        time,
        column: table.columns[index].name.clone(),
        unit: TimeUnit::Millisecond,
        null_time: NullTime::default(),
        idle_after_us: None,
        then_advance: false,
        max_ahead_us: None,
        periodic: false,
        alignment: None,
        processing: true,
    })
}

/// A watermark goes on with the clock only where it is known how far it lies behind the rows.
fn check_advance(table: &Table, watermark: &SourceWatermark, read_schema: &Schema) -> Result<(), Error> {
    let time_type =
        watermark.time.data_type(read_schema).map_err(|error| Error::internal("the planner", error))?;
    if !watermark.then_advance || watermark.constant_delay_us(&time_type).is_some() {
        return Ok(());
    }
    let message = format!(
        "table \"{}\": THEN ADVANCE needs a watermark that lies a fixed time behind \"{}\"",
        table.name, watermark.column
    );
    Err(Error::plan(code::INVALID_WATERMARK, message)
        .hint(format!("Write it as WATERMARK FOR {0} AS {0} - INTERVAL '5' SECOND.", watermark.column)))
}

/// The column over what the connector delivers: itself or its expression.
fn column_expr(table: &Table, index: usize) -> Expr {
    let column = &table.columns[index];
    match &column.kind {
        ColumnKind::Computed { expr, .. } => expr.as_ref().clone(),
        ColumnKind::Physical | ColumnKind::Metadata { .. } | ColumnKind::ProcessingTime => {
            Expr::Column(DfColumn::new_unqualified(column.name.clone()))
        }
    }
}

/// The expression with computed columns replaced by what they are computed from.
fn inline(table: &Table, expr: &Expr) -> Result<Expr, Error> {
    let inlined = expr.clone().transform_up(|part| match &part {
        Expr::Column(column) => match table.column_index(&column.name) {
            Some(index) => Ok(Transformed::yes(column_expr(table, index))),
            None => Ok(Transformed::no(part)),
        },
        _ => Ok(Transformed::no(part)),
    });
    Ok(inlined.map_err(from_datafusion)?.data)
}

/// The stored columns that expressions read, in table order.
fn read_columns(table: &Table, exprs: &[&Expr]) -> Result<Vec<usize>, Error> {
    let mut read = Vec::new();
    for expr in exprs {
        for column in expr.column_refs() {
            let index = table
                .column_index(&column.name)
                .ok_or_else(|| Error::internal("the planner", format!("no column {column}")))?;
            if !read.contains(&index) {
                read.push(index);
            }
        }
    }
    let is_stored = |index: &usize| !matches!(table.columns[*index].kind, ColumnKind::ProcessingTime);
    if !read.iter().any(is_stored) {
        // Only the number of rows counts; formats count rows by reading something of them.
        read.extend(table.columns.iter().position(|column| matches!(column.kind, ColumnKind::Physical)));
    }
    read.sort_unstable();
    Ok(read)
}
