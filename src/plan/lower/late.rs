//! `LATE ROWS INTO`: second outputs of time operators, and the sinks that take them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::Join;
use datafusion_physical_expr::expressions::lit;

use super::expression::Scope;
use super::not_null::NotNull;
use super::{Above, Lowered, Lowering, Role, Slot, Stream, Window};
use crate::catalog::{Column, ColumnKind, Options, Table};
use crate::error::{Error, code};
use crate::plan::bind::{is_assignable, is_writable};
use crate::plan::diagnose::from_datafusion;
use crate::plan::late::{LATE_COLUMNS, LateNode, LateTarget, late_columns};
use crate::plan::{
    CalcNode, ExprRef, LateOutput, LateRowsNode, NodeId, Operation, SecondLate, SinkNode, SinkTarget,
    WindowKind, sql_type_name,
};

/// Columns of a node that late rows need, whatever the query reads.
#[derive(Debug, Clone, Default)]
pub(super) struct Carried {
    /// The columns that the innermost window is over, with their names.
    pub(super) columns: Vec<(String, usize)>,
    /// The name of the row's table.
    pub(super) source: Option<usize>,
    /// The name of the row's split.
    pub(super) split: Option<usize>,
    /// Rows stand there once for each window of HOP or CUMULATE: the time column, and the window's id.
    pub(super) copies: Option<(usize, usize)>,
}

impl Carried {
    /// All of them, to be moved.
    pub(super) fn indexes(&mut self) -> impl Iterator<Item = &mut usize> {
        let origin = self.source.iter_mut().chain(self.split.iter_mut());
        let time = self.copies.iter_mut().map(|(time, _)| time);
        self.columns.iter_mut().map(|(_, index)| index).chain(origin).chain(time)
    }

    /// The names of table and split.
    pub(super) fn origin(&self) -> Option<[usize; 2]> {
        Some([self.source?, self.split?])
    }
}

/// The blocks with the clause that are being lowered, and what was found in them.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// The block that is being lowered is the last one.
    open: Vec<usize>,
    targets: Vec<Collected>,
}

/// What goes to one table.
#[derive(Debug)]
struct Collected {
    target: Arc<LateTarget>,
    /// Nodes with a second output.
    nodes: Vec<NodeId>,
    /// How many of them are time operators.
    operators: usize,
}

impl Late {
    /// Whether a block with the clause is being lowered.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }
}

/// The columns that the source adds in such a block: not copied, as long as nobody looks at them.
pub(super) fn origin_columns() -> [Field; 2] {
    ["__late_source", "__late_split"].map(|name| Field::new(name, DataType::Utf8View, false))
}

/// The columns of a logical plan that its node has, with their names.
pub(super) fn named_columns(schema: &DFSchema, slots: &[Slot]) -> Vec<(String, usize)> {
    let columns = schema.fields().iter().zip(slots);
    columns
        .filter_map(|(field, slot)| match slot {
            Slot::Column(index) => Some((field.name().clone(), *index)),
            Slot::Pending(_) => None,
        })
        .collect()
}

impl Lowering<'_> {
    /// A query block with the clause.
    pub(super) fn late_block(&mut self, block: &LateNode, above: Above) -> Result<Lowered, Error> {
        let same = |collected: &Collected| collected.target.name == block.target.name;
        let index = self.late.targets.iter().position(same).unwrap_or_else(|| {
            let target = Arc::clone(&block.target);
            self.late.targets.push(Collected { target, nodes: Vec::new(), operators: 0 });
            self.late.targets.len() - 1
        });
        let before = self.late.targets[index].operators;
        self.late.open.push(index);
        let lowered = self.lower(&block.input, above).map(|lowered| match &lowered.pending {
            // What finds rows of sessions late belongs to this block.
            Some(pending) if pending.window.is_session() => self.materialize(lowered),
            _ => lowered,
        });
        self.late.open.pop();
        let lowered = lowered?;
        if self.late.targets[index].operators > before {
            return Ok(lowered);
        }
        Err(Error::plan(
            code::INVALID_QUERY,
            "LATE ROWS INTO has no effect here: nothing in the query block can find a row late",
        )
        .at(block.target.span)
        .hint("Put it at the end of a query block that groups by a window, joins, sorts or computes OVER by a time attribute."))
    }

    /// Gives the node a second output with these columns of its input. `time` and `bound`: the types
    /// of the time attribute and of the bounds of windows.
    pub(super) fn add_late_output(
        &mut self,
        node: NodeId,
        carried: &Carried,
        columns: &[(String, usize)],
        [time, bound]: [&DataType; 2],
        is_time_operator: bool,
    ) {
        let Some(open) = self.late.open.last().copied() else { return };
        let input = Arc::clone(self.schema(self.plan.nodes[node].inputs[0]));
        let field =
            |(name, index): &(String, usize)| Field::new(name, input.field(*index).data_type().clone(), true);
        let mut fields: Vec<Field> = columns.iter().map(field).collect();
        let known = late_columns(time, bound);
        fields.extend(known.into_iter().filter(|field| field.name() != "late_text"));
        let output = LateOutput {
            table: String::new(),
            operator: self.plan.nodes[node].operation.name().to_owned(),
            columns: columns.iter().map(|(_, index)| *index).collect(),
            source: carried.source,
            split: carried.split,
            schema: Arc::new(Schema::new(fields)),
            second: None,
        };
        self.late_from(node, output, open, is_time_operator);
    }

    /// Gives a join a second output with the columns of both of its inputs, those of one name once.
    pub(super) fn add_join_late_output(
        &mut self,
        node: NodeId,
        join: &Join,
        inputs: &[Lowered; 2],
        [time, bound]: [&DataType; 2],
    ) -> Result<(), Error> {
        let Some(open) = self.late.open.last().copied() else { return Ok(()) };
        let sides = [(join.left.schema(), &inputs[0]), (join.right.schema(), &inputs[1])];
        let [first, second] = sides.map(|(schema, input)| match input.carried.columns.is_empty() {
            true => named_columns(schema, &input.slots),
            false => input.carried.columns.clone(),
        });
        let data_type = |input: usize, column: usize| {
            self.schema(self.plan.nodes[node].inputs[input]).field(column).data_type().clone()
        };
        let mut fields: Vec<Field> = Vec::new();
        for (name, column) in &first {
            fields.push(Field::new(name, data_type(0, *column), true));
        }
        let mut columns = vec![None; first.len()];
        for (name, column) in &second {
            let kind = data_type(1, *column);
            match first.iter().position(|(other, _)| other == name) {
                Some(place) if *fields[place].data_type() == kind => columns[place] = Some(*column),
                Some(place) => {
                    let message = format!(
                        "the late rows of the join have two columns \"{name}\", {} and {}",
                        sql_type_name(fields[place].data_type()),
                        sql_type_name(&kind)
                    );
                    return Err(Error::plan(code::AMBIGUOUS_COLUMN, message)
                        .at(self.late.targets[open].target.span)
                        .hint("Give one of them another name in a subquery that the join is over."));
                }
                None => {
                    fields.push(Field::new(name, kind, true));
                    columns.push(Some(*column));
                }
            }
        }
        let known = late_columns(time, bound);
        fields.extend(known.into_iter().filter(|field| field.name() != "late_text"));
        let [source, split] = [inputs[1].carried.source, inputs[1].carried.split];
        let output = LateOutput {
            table: String::new(),
            operator: self.plan.nodes[node].operation.name().to_owned(),
            columns: first.iter().map(|(_, column)| *column).collect(),
            source: inputs[0].carried.source,
            split: inputs[0].carried.split,
            schema: Arc::new(Schema::new(fields)),
            second: Some(SecondLate { columns, source, split }),
        };
        self.late_from(node, output, open, true);
        Ok(())
    }

    /// Gives a source a second output: rows that can't be read and, with these columns of its rows and a
    /// watermark of the type of its time attribute, those from the future.
    pub(super) fn add_source_output(
        &mut self,
        node: NodeId,
        future: Option<(Vec<(String, usize)>, DataType)>,
    ) {
        let Some(open) = self.late.open.last().copied() else { return };
        let own = Arc::clone(&self.plan.nodes[node].schema);
        let (columns, time) = future.map_or_else(Default::default, |(columns, time)| (columns, Some(time)));
        let field = |(name, index): &(String, usize)| own.field(*index).clone().with_name(name);
        let mut fields: Vec<Field> = columns.iter().map(|c| field(c).with_nullable(true)).collect();
        let known = ["late_reason", "late_operator", "late_source", "late_split", "late_text"];
        fields.extend(known.map(|name| Field::new(name, DataType::Utf8, true)));
        fields.extend(time.map(|time| Field::new("late_watermark", time, true)));
        let output = LateOutput {
            table: String::new(),
            operator: self.plan.nodes[node].operation.name().to_owned(),
            columns: columns.iter().map(|(_, index)| *index).collect(),
            source: None,
            split: None,
            schema: Arc::new(Schema::new(fields)),
            second: None,
        };
        self.late_from(node, output, open, false);
    }

    fn late_from(&mut self, node: NodeId, output: LateOutput, open: usize, is_time_operator: bool) {
        let collected = &mut self.late.targets[open];
        let table = collected.target.name.clone();
        collected.nodes.push(node);
        collected.operators += usize::from(is_time_operator);
        self.plan.nodes[node].late = Some(Arc::new(LateOutput { table, ..output }));
    }

    /// The target of the open LATE ROWS INTO, if rows of the input come once for each of their windows.
    fn target_of_copies(&self, input: &Lowered, window: Window) -> Option<&LateTarget> {
        let open = self.late.open.last().copied()?;
        let overlapping = matches!(window.spec.kind, WindowKind::Hop { .. } | WindowKind::Cumulate { .. });
        let are_copies = overlapping && input.pending.is_none() && !input.carried.columns.is_empty();
        are_copies.then(|| self.late.targets[open].target.as_ref())
    }

    /// Rows that carry one of several windows each can't be found late for all of them.
    pub(super) fn check_late_windows(&self, input: &Lowered, window: Window) -> Result<(), Error> {
        let Some(target) = self.target_of_copies(input, window) else { return Ok(()) };
        let is_known = input.carried.copies.is_some_and(|(_, id)| id == window.id);
        if is_known && !self.has_condition_over_windows(input.node) {
            return Ok(());
        }
        let message = "LATE ROWS INTO can't run where a condition below the aggregation of HOP or CUMULATE reads \
                       the bounds of the window: it takes rows out of some of their windows";
        Err(Error::plan(code::NOT_SUPPORTED, message)
            .at(target.span)
            .hint("Put the condition into HAVING, or into FILTER (WHERE …) of the aggregates."))
    }

    /// Joins and OVER can't tell the copies of a row in several windows from several rows.
    pub(super) fn refuse_late_copies(&self, input: &Lowered, window: Window) -> Result<(), Error> {
        let Some(target) = self.target_of_copies(input, window) else { return Ok(()) };
        let message = "LATE ROWS INTO can't run yet with a join or OVER over windows of HOP or CUMULATE";
        Err(Error::plan(code::NOT_SUPPORTED, message)
            .at(target.span)
            .hint("Leave the clause out, or use TUMBLE."))
    }

    /// Whether rows that have their windows are taken out by a condition before they come to a node.
    fn has_condition_over_windows(&self, node: NodeId) -> bool {
        let node = &self.plan.nodes[node];
        match &node.operation {
            Operation::Calc(calc) if calc.filter.is_some() => true,
            Operation::WindowRows(_) | Operation::WindowAggregate(_) => false,
            _ => node.inputs.iter().any(|input| self.has_condition_over_windows(*input)),
        }
    }

    /// The sinks of all second outputs.
    pub(super) fn late_sinks(&mut self) -> Result<(), Error> {
        for collected in std::mem::take(&mut self.late.targets) {
            self.late_sink(&collected).map_err(|error| error.at(collected.target.span))?;
        }
        Ok(())
    }

    fn late_sink(&mut self, collected: &Collected) -> Result<(), Error> {
        let name = &collected.target.name;
        let is_taken = self.plan.sinks.iter().any(|sink| match &self.plan.nodes[*sink].operation {
            Operation::Sink(SinkNode { target: SinkTarget::Table(table), .. }) => table.name == *name,
            _ => false,
        });
        if is_taken {
            let message = format!("\"{name}\" takes the rows of the INSERT already");
            return Err(
                Error::plan(code::SINK_MISMATCH, message).hint("Send the late rows to another table.")
            );
        }
        self.number_operators(&collected.nodes);
        let outputs = self.outputs(&collected.nodes)?;
        let table = match &collected.target.table {
            Some(table) => Arc::clone(table),
            None => {
                let table = Arc::new(self.side_table(name, &outputs)?);
                self.plan.side_tables.push(Arc::clone(&table));
                table
            }
        };
        let columns: Vec<Column> =
            table.columns.iter().filter(|column| is_writable(&column.kind)).cloned().collect();
        check_columns(&table, &columns, &outputs)?;
        let mut inputs = Vec::with_capacity(outputs.len());
        for (node, output) in collected.nodes.iter().zip(&outputs) {
            inputs.push(self.late_rows(*node, output, &columns, &table)?);
        }
        let fields: Vec<Field> = columns
            .iter()
            .map(|column| Field::new(&column.name, column.data_type.clone(), column.nullable))
            .collect();
        let roles = vec![Role::Plain; fields.len()];
        let stream = self.late_stream(collected.nodes[0]);
        let operation = Operation::Sink(SinkNode { target: SinkTarget::Table(table), upsert: false });
        let sink = self.push(operation, inputs, Arc::new(Schema::new(fields)), roles, stream);
        self.plan.late_sinks.push(sink);
        Ok(())
    }

    fn outputs(&self, nodes: &[NodeId]) -> Result<Vec<Arc<LateOutput>>, Error> {
        let output = |node: &NodeId| self.plan.nodes[*node].late.clone();
        nodes
            .iter()
            .map(output)
            .collect::<Option<_>>()
            .ok_or_else(|| Error::internal("the planner", "late rows of a node without them"))
    }

    /// Operators of one name are told apart by numbers.
    fn number_operators(&mut self, nodes: &[NodeId]) {
        let name = |lowering: &Self, node: NodeId| lowering.plan.nodes[node].operation.name();
        for (position, node) in nodes.iter().enumerate() {
            let same = |other: &&NodeId| name(self, **other) == name(self, *node);
            if nodes.iter().filter(same).count() == 1 {
                continue;
            }
            let number = nodes[..position].iter().filter(same).count() + 1;
            if let Some(late) = &mut self.plan.nodes[*node].late {
                let operator = format!("{} {number}", late.operator);
                *late = Arc::new(LateOutput { operator, ..late.as_ref().clone() });
            }
        }
    }

    /// One second output in the columns of its table.
    fn late_rows(
        &mut self,
        of: NodeId,
        output: &LateOutput,
        columns: &[Column],
        table: &Table,
    ) -> Result<NodeId, Error> {
        let stream = self.late_stream(of);
        let is_source = matches!(self.plan.nodes[of].operation, Operation::Source(_));
        let roles = vec![Role::Plain; output.schema.fields().len()];
        let operation = Operation::LateRows(LateRowsNode { of, operator: output.operator.clone() });
        let rows = self.push(operation, Vec::new(), Arc::clone(&output.schema), roles, stream.clone());
        let mut project: Vec<ExprRef> = Vec::with_capacity(columns.len());
        let mut fields = Vec::with_capacity(columns.len());
        for column in columns {
            let fits = |index: &usize| {
                // Another time attribute than that of the table: of its source nothing is said then.
                let given = output.schema.field(*index);
                !(is_source && given.name() == "late_watermark")
                    || given.data_type() == &column.data_type
                    || is_assignable(given.data_type(), &column.data_type)
            };
            let value = match place(&output.schema, &column.name).filter(fits) {
                Some(index) => self.late_value(rows, index, column, table)?,
                None => lit(ScalarValue::try_from(&column.data_type).map_err(from_datafusion)?),
            };
            project.push(match column.nullable {
                true => value,
                false => Arc::new(NotNull::new(value, &column.name, &table.name)),
            });
            fields.push(Field::new(&column.name, column.data_type.clone(), column.nullable));
        }
        let roles = vec![Role::Plain; fields.len()];
        let calc = Operation::Calc(CalcNode { filter: None, project });
        Ok(self.push(calc, vec![rows], Arc::new(Schema::new(fields)), roles, stream))
    }

    fn late_value(
        &self,
        rows: NodeId,
        index: usize,
        column: &Column,
        table: &Table,
    ) -> Result<ExprRef, Error> {
        let given = Arc::clone(self.schema(rows));
        let value = self.column(rows, index);
        let (from, to) = (given.field(index).data_type(), &column.data_type);
        if from == to {
            return Ok(value);
        }
        if is_assignable(from, to) {
            let scope = Scope::of(&given)?;
            let logical = self.session.functions.cast(scope.column(index), from, to);
            return scope.physical(&logical).map_err(from_datafusion);
        }
        let message = format!(
            "\"{}\" of the late rows is {}, the column of \"{}\" is {}",
            column.name,
            sql_type_name(from),
            table.name,
            sql_type_name(to)
        );
        Err(Error::plan(code::SINK_MISMATCH, message)
            .hint(format!("Declare the column as {}.", declarable(from))))
    }

    /// Late rows come in no order of event time.
    fn late_stream(&self, of: NodeId) -> Stream {
        Stream { bounded: self.plan.nodes[of].properties.bounded, watermark: false, key: None }
    }

    /// A table in memory with the columns of all outputs.
    fn side_table(&self, name: &str, outputs: &[Arc<LateOutput>]) -> Result<Table, Error> {
        let is_late = |name: &str| LATE_COLUMNS.contains(&name);
        let mut columns: Vec<Column> = Vec::new();
        let mut time = DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None);
        let mut bound = time.clone();
        for output in outputs {
            let (users, own) = output.schema.fields().split_at(output.width());
            for field in own {
                match field.name().as_str() {
                    "late_watermark" => time = field.data_type().clone(),
                    "late_window_end" => bound = field.data_type().clone(),
                    _ => {}
                }
            }
            for (position, field) in users.iter().enumerate() {
                let is_twice = users[..position].iter().any(|other| other.name() == field.name());
                if is_late(field.name()) || is_twice {
                    let message = format!("the late rows have two columns \"{}\"", field.name());
                    return Err(Error::plan(code::AMBIGUOUS_COLUMN, message)
                        .hint("Give the column another name in a subquery that the window is over."));
                }
                if !columns.iter().any(|column| column.name == *field.name()) {
                    columns.push(column_of(field));
                }
            }
        }
        columns.extend(late_columns(&time, &bound).iter().map(column_of));
        let rows = self.session.side_table_rows.to_string();
        let options = [("connector", "memory"), ("name", name), ("max-rows", rows.as_str())];
        Ok(Table {
            name: name.to_owned(),
            columns,
            watermark: None,
            primary_key: Vec::new(),
            options: options.into_iter().collect::<Options>(),
            connector: "memory".to_owned(),
            bounded: true,
            temporary: true,
        })
    }
}

fn column_of(field: &Field) -> Column {
    Column {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        nullable: true,
        kind: ColumnKind::Physical,
    }
}

/// The column of that name, or the only one that differs in case.
fn place(schema: &Schema, name: &str) -> Option<usize> {
    if let Ok(index) = schema.index_of(name) {
        return Some(index);
    }
    let similar = |field: &Arc<Field>| field.name().eq_ignore_ascii_case(name);
    let mut found = schema.fields().iter().enumerate().filter(|(_, field)| similar(field));
    match (found.next(), found.next()) {
        (Some((index, _)), None) => Some(index),
        _ => None,
    }
}

/// Each column of the table must be one of late rows.
fn check_columns(table: &Table, columns: &[Column], outputs: &[Arc<LateOutput>]) -> Result<(), Error> {
    let is_known = |column: &&Column| {
        outputs.iter().any(|output| place(&output.schema, &column.name).is_some())
            || LATE_COLUMNS.contains(&column.name.as_str())
    };
    let quoted = |name: &str| format!("\"{name}\"");
    let missing: Vec<String> =
        columns.iter().filter(|column| !is_known(column)).map(|column| quoted(&column.name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut known: Vec<&str> = Vec::new();
    for output in outputs {
        for field in &output.schema.fields()[..output.width()] {
            if !known.contains(&field.name().as_str()) {
                known.push(field.name());
            }
        }
    }
    known.extend(LATE_COLUMNS);
    let message = format!("the late rows lack {} of \"{}\"", missing.join(", "), table.name);
    Err(Error::plan(code::SINK_MISMATCH, message)
        .hint(format!("Use columns that late rows have: {}.", known.join(", "))))
}

/// A type that a column can be declared with.
fn declarable(data_type: &DataType) -> String {
    match data_type {
        DataType::Interval(_) => "STRING".to_owned(),
        other => sql_type_name(other),
    }
}
