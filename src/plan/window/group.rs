//! The old group form: `GROUP BY TUMBLE(ts, size)` with `TUMBLE_START(ts, size)`, and Arroyo's
//! `GROUP BY tumble(size)`, to a window table function and its columns.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, ObjectName,
    ObjectNamePart, OrderByKind, Query, Select, SelectItem, SetExpr, Spanned, TableFactor, TableFunctionArgs,
    TableWithJoins, Value, ValueWithSpan, WindowSpec, WindowType,
};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Span as SqlSpan;

use super::arguments::of_function;
use super::{WINDOW_COLUMNS, WindowFunction};
use crate::error::{Error, code};
use crate::plan::diagnose::from_sql_span;
use crate::sql::{SUBQUERY, TABLE};
use crate::sql::{TreeRewriter, Walk, plain_table, rewrite};

/// Rewrites every select of `query` that groups by a window.
///
/// # Errors
/// `W004` for two group windows, or a `TUMBLE_START` whose arguments are not those of the `TUMBLE`.
pub(in crate::plan) fn rewrite_group_windows(query: &mut Query) -> Result<(), Error> {
    match rewrite(query, &mut Rewriter) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Rewriter;

impl TreeRewriter for Rewriter {
    fn pre_visit_query(&mut self, query: &mut Query) -> Walk {
        let SetExpr::Select(select) = query.body.as_ref() else { return ControlFlow::Continue(()) };
        let Some(order_by) = &mut query.order_by else { return ControlFlow::Continue(()) };
        let OrderByKind::Expressions(keys) = &mut order_by.kind else { return ControlFlow::Continue(()) };
        match GroupWindow::find(select) {
            Ok(None) => {}
            Ok(Some(window)) => {
                for key in keys {
                    rewrite(&mut key.expr, &mut Columns(&window))?;
                }
            }
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Walk {
        match GroupWindow::find(select) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(window)) => window.rewrite(select),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// The window that a select groups by.
struct GroupWindow {
    function: WindowFunction,
    call: Function,
    /// Its place among the expressions of GROUP BY.
    position: usize,
}

impl GroupWindow {
    fn find(select: &Select) -> Result<Option<Self>, Error> {
        let GroupByExpr::Expressions(keys, _) = &select.group_by else { return Ok(None) };
        let mut found: Option<Self> = None;
        for (position, key) in keys.iter().enumerate() {
            let Some((function, call)) = group_call(key, select) else { continue };
            if found.is_some() {
                return Err(Error::plan(code::WINDOW_ARGUMENT, "a query can group by one window only")
                    .at(from_sql_span(key.span()))
                    .hint("Put one of the windows into a query of its own in FROM."));
            }
            found = Some(Self { function, call: call.clone(), position });
        }
        Ok(found)
    }

    fn rewrite(&self, select: &mut Select) -> Walk {
        let partition = match self.partition(select) {
            Ok(partition) => partition,
            Err(error) => return ControlFlow::Break(error),
        };
        let span = self.call.name.span();
        for item in &mut select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                    rewrite(expr, &mut Columns(self))?;
                }
                _ => {}
            }
        }
        if let Some(having) = &mut select.having {
            rewrite(having, &mut Columns(self))?;
        }
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            let columns = WINDOW_COLUMNS.iter().map(|name| column(name, span));
            keys.splice(self.position..=self.position, columns);
        }
        // WHERE stands before the grouping: what it takes away is in no session.
        let selection = if partition.is_some() { select.selection.take() } else { None };
        match self.relation(std::mem::take(&mut select.from), selection, partition.unwrap_or_default()) {
            Ok(relation) => select.from = vec![TableWithJoins { relation, joins: Vec::new() }],
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }

    /// What sessions are kept apart by: the other keys of GROUP BY. `None` for other windows.
    fn partition(&self, select: &Select) -> Result<Option<Vec<Expr>>, Error> {
        let GroupByExpr::Expressions(keys, modifiers) = &select.group_by else { return Ok(None) };
        if self.function != WindowFunction::Session {
            return Ok(None);
        }
        let refuse = |expr: &Expr, why: String, hint: String| {
            Error::plan(code::WINDOW_ARGUMENT, why).at(from_sql_span(expr.span())).hint(hint)
        };
        let table_form = "Use SESSION(TABLE t PARTITION BY …, DESCRIPTOR(ts), …) in FROM instead.";
        let mut partition = Vec::new();
        for (position, key) in keys.iter().enumerate().filter(|(position, _)| *position != self.position) {
            let is_set =
                matches!(key, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_) | Expr::Tuple(_));
            if is_set || !modifiers.is_empty() {
                let why = "SESSION in GROUP BY stands beside plain keys only: they are what sessions are by";
                return Err(refuse(key, why.to_owned(), table_form.to_owned()));
            }
            let Some(item) = item_of(key, select) else {
                partition.push(key.clone());
                continue;
            };
            match (key, item) {
                // A place in SELECT can only mean that expression.
                (Expr::Value(_), Some(item)) => partition.push(item.clone()),
                (Expr::Value(_), None) => {
                    let why = format!("GROUP BY {key}: SELECT has no expression at that place");
                    return Err(refuse(key, why, "Write the column in GROUP BY.".to_owned()));
                }
                (Expr::Identifier(name), Some(item)) if is_column(item, name) => partition.push(item.clone()),
                (_, item) => {
                    let why = format!("sessions can't be by \"{key}\", a name that SELECT gives");
                    let item = item.map_or_else(|| "the expression".to_owned(), ToString::to_string);
                    return Err(refuse(&keys[position], why, format!("Write {item} in GROUP BY.")));
                }
            }
        }
        Ok(Some(partition))
    }

    /// `TUMBLE((SELECT * FROM <from>), ts, size)`; sessions with `WHERE` and `PARTITION BY`.
    fn relation(
        &self,
        from: Vec<TableWithJoins>,
        selection: Option<Expr>,
        partition: Vec<Expr>,
    ) -> Result<TableFactor, Error> {
        let mut args = vec![unnamed(table_argument(everything_of(from, selection)?, partition))];
        let given = of_function(self.call.args.clone());
        let intervals = self.function.intervals().iter().filter(|name| **name != "OFFSET").count();
        if given.len() == intervals {
            // Without a time column: Arroyo's form. The places after it need their names.
            for (name, arg) in self.function.intervals().iter().zip(given) {
                if let FunctionArg::Unnamed(arg) = arg {
                    args.push(FunctionArg::Named {
                        name: Ident::new(*name),
                        arg,
                        operator: sqlparser::ast::FunctionArgOperator::RightArrow,
                    });
                }
            }
        } else {
            args.extend(given);
        }
        let mut table = plain_table(self.call.name.clone());
        if let TableFactor::Table { args: called, .. } = &mut table {
            *called = Some(TableFunctionArgs { args, settings: None });
        }
        Ok(table)
    }
}

/// The item of SELECT that a key of GROUP BY means by its place or its name; `None`: the key is an
/// expression of its own. `Some(None)`: there is no such expression.
fn item_of<'a>(key: &Expr, select: &'a Select) -> Option<Option<&'a Expr>> {
    match key {
        Expr::Value(ValueWithSpan { value: Value::Number(place, _), .. }) => {
            let item =
                place.parse::<usize>().ok().and_then(|place| select.projection.get(place.checked_sub(1)?));
            Some(match item {
                Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => Some(expr),
                _ => None,
            })
        }
        Expr::Identifier(name) => select.projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if alias.value == name.value => Some(Some(expr)),
            _ => None,
        }),
        _ => None,
    }
}

/// Whether an expression is the column of that name, perhaps with its table.
fn is_column(expr: &Expr, name: &Ident) -> bool {
    match expr {
        Expr::Identifier(ident) => ident.value == name.value,
        Expr::CompoundIdentifier(parts) => parts.last().is_some_and(|last| last.value == name.value),
        _ => false,
    }
}

/// A query as the input of a window: `(SELECT …) PARTITION BY k`, as the parser gives it.
fn table_argument(query: Query, partition_by: Vec<Expr>) -> Expr {
    if partition_by.is_empty() {
        return Expr::Subquery(Box::new(query));
    }
    let spec = WindowSpec { window_name: None, partition_by, order_by: Vec::new(), window_frame: None };
    let input = Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(SUBQUERY))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::Subquery(Box::new(query)),
        filter: None,
        null_treatment: None,
        over: Some(WindowType::WindowSpec(spec)),
        within_group: Vec::new(),
    };
    Expr::Prefixed { prefix: Ident::new(TABLE), value: Box::new(Expr::Function(input)) }
}

/// The window function that a key of GROUP BY calls, itself or by the alias of a select item.
fn group_call<'a>(key: &'a Expr, select: &'a Select) -> Option<(WindowFunction, &'a Function)> {
    match key {
        Expr::Function(call) => {
            let function =
                WindowFunction::of_name(&call.name).filter(|it| *it != WindowFunction::Cumulate)?;
            Some((function, call))
        }
        Expr::Identifier(name) => select.projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr: expr @ Expr::Function(_), alias }
                if alias.value == name.value =>
            {
                group_call(expr, select)
            }
            _ => None,
        }),
        _ => None,
    }
}

/// Replaces `TUMBLE_START(…)` and its like by the columns of the window.
struct Columns<'a>(&'a GroupWindow);

impl TreeRewriter for Columns<'_> {
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Walk {
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        let window = self.0;
        let span = call.name.span();
        if WindowFunction::of_name(&call.name) == Some(window.function)
            && call.args.to_string() == window.call.args.to_string()
        {
            *expr = bounds(span);
            return ControlFlow::Continue(());
        }
        let name = call.name.to_string().to_ascii_uppercase();
        let Some((of, part)) = name.split_once('_') else { return ControlFlow::Continue(()) };
        let Some(of) = WindowFunction::of(of) else { return ControlFlow::Continue(()) };
        let replacement = match part {
            "START" => column(WINDOW_COLUMNS[0], span),
            "END" => column(WINDOW_COLUMNS[1], span),
            "ROWTIME" => column(WINDOW_COLUMNS[2], span),
            // What the clock shows when the result comes.
            "PROCTIME" => function("PROCTIME", Vec::new(), span),
            _ => return ControlFlow::Continue(()),
        };
        if of != window.function || call.args.to_string() != window.call.args.to_string() {
            let message = format!("{call} belongs to no window of GROUP BY");
            return ControlFlow::Break(
                Error::plan(code::WINDOW_ARGUMENT, message).at(from_sql_span(span)).hint(format!(
                    "Write {name}{}, the arguments of {}.",
                    window.call.args,
                    window.function.name()
                )),
            );
        }
        *expr = replacement;
        ControlFlow::Continue(())
    }
}

fn column(name: &str, span: SqlSpan) -> Expr {
    Expr::Identifier(Ident::with_span(span, name))
}

/// Arroyo's window value: a row of its start and end.
fn bounds(span: SqlSpan) -> Expr {
    let name =
        |text: &str| Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text.to_owned()), span });
    let args = vec![
        unnamed(name("start")),
        unnamed(column(WINDOW_COLUMNS[0], span)),
        unnamed(name("end")),
        unnamed(column(WINDOW_COLUMNS[1], span)),
    ];
    function("named_struct", args, span)
}

fn function(name: &str, args: Vec<FunctionArg>, span: SqlSpan) -> Expr {
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::with_span(span, name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(sqlparser::ast::FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn unnamed(expr: Expr) -> FunctionArg {
    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
}

/// `SELECT * FROM <from> WHERE <selection>`.
fn everything_of(from: Vec<TableWithJoins>, selection: Option<Expr>) -> Result<Query, Error> {
    let query = Parser::new(&GenericDialect {})
        .try_with_sql("SELECT *")
        .and_then(|mut parser| parser.parse_query())
        .map_err(|error| Error::internal("the planner", error))?;
    let mut query = *query;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from = from;
        select.selection = selection;
    }
    Ok(query)
}
