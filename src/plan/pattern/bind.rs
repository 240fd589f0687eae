//! The clause to its node.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion_common::tree_node::TreeNode;
use datafusion_common::{Column, DFSchema};
use datafusion_expr::planner::RelationPlannerContext;
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Expr, ExprSchemable, Extension, LogicalPlan, SortExpr};
use datafusion_optimizer::analyzer::type_coercion::TypeCoercionRewriter;
use sqlparser::ast::{
    self, AfterMatchSkip, Ident, MatchRecognizePattern, Measure, OrderByExpr, RowsPerMatch, Spanned,
    SymbolDefinition,
};

use super::node::{PatternClause, PatternNode, Value, ValueKind, VariableDefinition, value_column};
use super::shape::{Shape, is_same, place, shapes, unsupported};
use super::values::{Extractor, WrittenValue, invalid};
use crate::error::{Error, Span, code};
use crate::plan::diagnose::{from_datafusion, from_sql_span, with_names};
use crate::plan::window::interval_us;
use crate::plan::window_text::duration;
use crate::plan::{AfterMatch, sql_type_name};
use crate::sql::WITHIN;

/// What stands in the brackets.
pub(in crate::plan) struct Clause {
    pub(in crate::plan) partition_by: Vec<ast::Expr>,
    pub(in crate::plan) order_by: Vec<OrderByExpr>,
    pub(in crate::plan) measures: Vec<Measure>,
    pub(in crate::plan) rows_per_match: Option<RowsPerMatch>,
    pub(in crate::plan) after_match_skip: Option<AfterMatchSkip>,
    pub(in crate::plan) pattern: MatchRecognizePattern,
    pub(in crate::plan) symbols: Vec<SymbolDefinition>,
    /// The table's place.
    pub(in crate::plan) span: Option<Span>,
}

/// The node for a clause over `input`. `id`: its number in the plan.
///
/// # Errors
/// What patterns can't have, unknown names, types that do not go together; each with its place.
pub(in crate::plan) fn bind_pattern(
    clause: Clause,
    input: LogicalPlan,
    id: usize,
    is_aggregate: &dyn Fn(&str) -> bool,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan, Error> {
    let Clause { partition_by, order_by, measures, rows_per_match, after_match_skip, pattern, symbols, span } =
        clause;
    if let Some(RowsPerMatch::AllRows(_)) = rows_per_match {
        return Err(unsupported("ALL ROWS PER MATCH")
            .at(span)
            .hint("Use ONE ROW PER MATCH: FIRST, LAST and aggregates give what the rows of a match have."));
    }
    let text = pattern.to_string();
    let shapes = shapes(&pattern, span)?;
    let skip = after_match(after_match_skip.as_ref(), &shapes, span)?;
    let mut binder = Binder { schema: Arc::clone(input.schema()), context };
    let partition = partition_by.into_iter().map(|key| binder.key(key)).collect::<Result<Vec<_>, _>>()?;
    let (time, time_tree, time_span, order) = binder.order(order_by, span)?;
    let (within_us, symbols) = binder.within(symbols)?;
    let schema = Arc::clone(input.schema());
    let extractor = |own| Extractor {
        shapes: &shapes,
        own,
        time: &time_tree,
        is_aggregate,
        schema: &schema,
        values: Vec::new(),
    };
    let mut definitions: Vec<Option<ast::Expr>> = vec![None; shapes.len()];
    for symbol in symbols {
        let name = &symbol.symbol;
        let Some(index) = shapes.iter().position(|shape| is_same(&shape.name, name)) else {
            let message = format!("DEFINE has \"{}\", which PATTERN has not", name.value);
            return Err(invalid(&message, place(name).or(span)).hint(format!(
                "Use one of {}.",
                shapes.iter().map(|shape| shape.name.value.as_str()).collect::<Vec<_>>().join(", ")
            )));
        };
        if definitions[index].replace(symbol.definition).is_some() {
            let message = format!("\"{}\" is defined twice", name.value);
            return Err(invalid(&message, place(name).or(span)).hint("Join the conditions with AND."));
        }
    }
    let mut variables = Vec::with_capacity(shapes.len());
    for (index, definition) in definitions.into_iter().enumerate() {
        let mut extractor = extractor(Some(index));
        variables.push(binder.variable(&shapes[index], definition, &mut extractor)?);
    }
    let mut fields = Vec::new();
    for key in &partition {
        let (_, field) = key.to_field(&binder.schema).map_err(from_datafusion)?;
        fields.push((None, field));
    }
    let mut extractor = extractor(None);
    let (values, bound) = binder.measures(&measures, &mut extractor, span)?;
    for (measure, (_, data_type)) in measures.iter().zip(&bound) {
        let name = &measure.alias.value;
        fields.push((None, Arc::new(Field::new(name, data_type.clone(), true))));
    }
    let output = DFSchema::new_with_metadata(fields, std::collections::HashMap::new())
        .map_err(|error| from_datafusion(error).at(span))?;
    let clause = PatternClause {
        time,
        time_span,
        order,
        partition,
        variables,
        within_us,
        skip,
        values,
        measures: bound.into_iter().map(|(expr, _)| expr).collect(),
        text,
    };
    let (input, clause) = (Arc::new(input), Arc::new(clause));
    let node = PatternNode { id, input, clause, keeps_all: false, schema: Arc::new(output) };
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

/// Where the next match is looked for: without the clause at the next row, as Flink does.
fn after_match(
    skip: Option<&AfterMatchSkip>,
    shapes: &[Shape],
    span: Option<Span>,
) -> Result<AfterMatch, Error> {
    let find = |name: &Ident| {
        shapes.iter().position(|shape| is_same(&shape.name, name)).ok_or_else(|| {
            let message = format!("AFTER MATCH SKIP names \"{}\", which PATTERN has not", name.value);
            invalid(&message, place(name).or(span)).hint("Name a variable of the pattern.")
        })
    };
    let again = |name: &Ident| {
        let message = format!("AFTER MATCH SKIP to \"{}\" would find the same match for ever", name.value);
        Err(invalid(&message, place(name).or(span)).hint("Use AFTER MATCH SKIP TO NEXT ROW."))
    };
    match skip {
        None | Some(AfterMatchSkip::ToNextRow) => Ok(AfterMatch::ToNextRow),
        Some(AfterMatchSkip::PastLastRow) => Ok(AfterMatch::PastLastRow),
        Some(AfterMatchSkip::ToFirst(name)) => match find(name)? {
            0 => again(name),
            index => Ok(AfterMatch::ToFirst(index)),
        },
        Some(AfterMatchSkip::ToLast(name)) => match find(name)? {
            0 if shapes[0].max == Some(1) => again(name),
            index => Ok(AfterMatch::ToLast(index)),
        },
    }
}

struct Binder<'a> {
    schema: Arc<DFSchema>,
    context: &'a mut dyn RelationPlannerContext,
}

impl Binder<'_> {
    /// An expression over `schema`, its types coerced, and its type.
    fn bind(&mut self, tree: ast::Expr, schema: &DFSchema) -> Result<(Expr, DataType), Error> {
        let span = from_sql_span(tree.span());
        let bound =
            self.context.sql_to_expr(tree, schema).map_err(|error| from_datafusion(error).at(span))?;
        if let Some(column) = bound.column_refs().into_iter().find(|column| !schema.has_column(column)) {
            return Err(self.unknown(column, span));
        }
        let coerced = bound
            .rewrite(&mut TypeCoercionRewriter::new(schema))
            .map_err(|error| from_datafusion(error).at(span))?
            .data;
        let data_type = coerced.get_type(schema).map_err(|error| from_datafusion(error).at(span))?;
        Ok((coerced, data_type))
    }

    fn unknown(&self, column: &Column, span: Option<Span>) -> Error {
        let fields = self.schema.fields();
        let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        let error = Error::plan(code::UNKNOWN_COLUMN, format!("no column \"{}\"", column.name)).at(span);
        with_names(error, &column.name, &names)
    }

    /// A column of PARTITION BY.
    fn key(&mut self, tree: ast::Expr) -> Result<Expr, Error> {
        let (span, text) = (from_sql_span(tree.span()), tree.to_string());
        let schema = Arc::clone(&self.schema);
        match self.bind(tree, &schema)? {
            (key @ Expr::Column(_), _) => Ok(key),
            _ => Err(invalid(&format!("PARTITION BY of MATCH_RECOGNIZE takes columns, not {text}"), span)
                .hint("Compute it in a subquery that the rows come from.")),
        }
    }

    /// The time column, and what ORDER BY has behind it.
    fn order(
        &mut self,
        order_by: Vec<OrderByExpr>,
        span: Option<Span>,
    ) -> Result<(Column, ast::Expr, Option<Span>, Vec<SortExpr>), Error> {
        let by_time = "Order by the time attribute first, ascending.";
        let schema = Arc::clone(&self.schema);
        let mut keys = order_by.into_iter();
        let Some(first) = keys.next() else {
            return Err(invalid("MATCH_RECOGNIZE has no ORDER BY", span).hint(by_time));
        };
        let at = from_sql_span(first.expr.span());
        let tree = first.expr.clone();
        let time = match self.bind(first.expr, &schema)? {
            (Expr::Column(column), _) if first.options.asc != Some(false) => column,
            _ => {
                let message = format!("MATCH_RECOGNIZE can't follow ORDER BY {tree} as rows come");
                return Err(Error::plan(code::UNSORTABLE, message).at(at).hint(by_time));
            }
        };
        let mut rest = Vec::new();
        for key in keys {
            let (expr, _) = self.bind(key.expr, &schema)?;
            let ascending = key.options.asc != Some(false);
            // NULL is the least value, as everywhere.
            rest.push(SortExpr::new(expr, ascending, key.options.nulls_first.unwrap_or(ascending)));
        }
        Ok((time, tree, at, rest))
    }

    /// WITHIN, which stands among the definitions, and the others.
    fn within(
        &mut self,
        mut symbols: Vec<SymbolDefinition>,
    ) -> Result<(Option<i64>, Vec<SymbolDefinition>), Error> {
        if symbols.first().is_none_or(|first| first.symbol.value != WITHIN) {
            return Ok((None, symbols));
        }
        let tree = symbols.remove(0).definition;
        let span = from_sql_span(tree.span());
        let us = interval_us(&tree, "WITHIN", |tree| {
            self.context.sql_to_expr(tree, &DFSchema::empty()).map_err(from_datafusion)
        })
        .map_err(|error| error.at(span))?;
        if us <= 0 {
            let message = format!("WITHIN must be positive, not {}", duration(us));
            return Err(Error::plan(code::WINDOW_NOT_POSITIVE, message)
                .at(span)
                .hint("Give an interval longer than zero, such as INTERVAL '10' SECOND."));
        }
        Ok((Some(us), symbols))
    }

    fn variable(
        &mut self,
        shape: &Shape,
        definition: Option<ast::Expr>,
        extractor: &mut Extractor<'_>,
    ) -> Result<VariableDefinition, Error> {
        let text = definition.as_ref().map(ToString::to_string);
        let shape = shape.clone();
        let Some(mut tree) = definition else {
            let (row_condition, match_condition, values) = (None, None, Vec::new());
            return Ok(VariableDefinition { shape, row_condition, match_condition, values, text });
        };
        let span = from_sql_span(tree.span());
        extractor.extract(&mut tree)?;
        let (values, schema) = self.values(std::mem::take(&mut extractor.values))?;
        let (condition, data_type) = self.bind(tree, &schema).map_err(|error| error.at(span))?;
        if data_type != DataType::Boolean {
            let message = format!(
                "the condition of \"{}\" is {}, not BOOLEAN",
                shape.name.value,
                sql_type_name(&data_type)
            );
            return Err(Error::plan(code::TYPE_MISMATCH, message)
                .at(span)
                .hint("Compare the value with another, such as A.x > 0."));
        }
        let reads_match = |term: &&Expr| {
            term.column_refs().iter().any(|column| self.schema.maybe_index_of_column(column).is_none())
        };
        let (of_match, of_row): (Vec<&Expr>, Vec<&Expr>) =
            split_conjunction(&condition).into_iter().partition(reads_match);
        Ok(VariableDefinition {
            shape,
            row_condition: conjunction(of_row.into_iter().cloned()),
            match_condition: conjunction(of_match.into_iter().cloned()),
            values,
            text,
        })
    }

    /// The values, and the input's columns with theirs behind them.
    fn values(&mut self, written: Vec<WrittenValue>) -> Result<(Vec<Value>, DFSchema), Error> {
        let schema = Arc::clone(&self.schema);
        let mut fields: Vec<_> =
            schema.iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field))).collect();
        let mut values = Vec::with_capacity(written.len());
        for (index, value) in written.into_iter().enumerate() {
            let (expr, data_type) = self.bind(value.expr, &schema)?;
            // `COUNT(*)` has its own name.
            let expr = expr.unalias();
            fields.push((None, Arc::new(Field::new(value_column(index), data_type, true))));
            let WrittenValue { variable, kind, is_rowtime, .. } = value;
            debug_assert_eq!(kind == ValueKind::Aggregate, matches!(expr, Expr::AggregateFunction(_)));
            values.push(Value { variable, kind, expr, is_rowtime });
        }
        let widened = DFSchema::new_with_metadata(fields, schema.inner().metadata().clone());
        Ok((values, widened.map_err(from_datafusion)?))
    }

    /// What the measures read, and the measures with their types.
    #[expect(clippy::type_complexity, reason = "two lists, the second of pairs")]
    fn measures(
        &mut self,
        measures: &[Measure],
        extractor: &mut Extractor<'_>,
        span: Option<Span>,
    ) -> Result<(Vec<Value>, Vec<(Expr, DataType)>), Error> {
        if measures.is_empty() {
            return Err(invalid("MATCH_RECOGNIZE has no MEASURES", span)
                .hint("Say what is given of a match, such as MEASURES LAST(A.x) AS x."));
        }
        let mut trees: Vec<ast::Expr> = measures.iter().map(|measure| measure.expr.clone()).collect();
        trees.iter_mut().try_for_each(|tree| extractor.extract(tree))?;
        let (values, schema) = self.values(std::mem::take(&mut extractor.values))?;
        let mut bound = Vec::with_capacity(trees.len());
        for (tree, measure) in trees.into_iter().zip(measures) {
            let span = from_sql_span(measure.expr.span());
            bound.push(self.bind(tree, &schema).map_err(|error| error.at(span))?);
        }
        Ok((values, bound))
    }
}
