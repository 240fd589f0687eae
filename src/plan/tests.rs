//! The planner from outside: what no text case can say.

use std::sync::Arc;

use crate::catalog::{Catalog, Relation};
use crate::error::Error;
use crate::plan::{Operation, Planner, StreamPlan};
use crate::sql::{self, Statement};

/// A catalog with the table `t (v BIGINT)`.
fn catalog(planner: &Planner) -> Catalog {
    let mut catalog = Catalog::new();
    let script = "CREATE TABLE t (v BIGINT) WITH ('connector' = 'x')";
    for spanned in sql::parse(script).expect("valid SQL") {
        let Statement::CreateTable(statement) = &spanned.statement else { panic!("no table") };
        let table = planner.create_table(statement, &catalog).expect("a valid table");
        catalog.add(Relation::Table(Arc::new(table)), false).expect("a free name");
    }
    catalog
}

/// Plans and explains on a thread with a small stack, and drops the plan there.
fn on_small_stack(sql: String) -> Result<(String, usize), Error> {
    let plan = move || {
        let planner = Planner::default();
        let plan = planner.plan(&sql, &catalog(&planner))?;
        let explained = plan.explain();
        let nodes = plan.to_json()["nodes"].as_array().map_or(0, Vec::len);
        Ok((explained, nodes))
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(plan).expect("a thread");
    thread.join().expect("planning does not overflow the stack")
}

#[test]
fn a_long_sum_of_constants_is_one_constant() {
    let sql = format!("SELECT {} AS x", vec!["1"; 3000].join("+"));
    match on_small_stack(sql) {
        Ok((explained, nodes)) => {
            assert!(explained.contains("x = 3000"), "{explained}");
            assert_eq!(nodes, 3);
        }
        Err(error) => assert_eq!(error.code(), "S003", "{error}"),
    }
}

#[test]
fn deep_brackets_are_no_danger() {
    let sql = format!("SELECT {}1{} AS x", "(".repeat(400), ")".repeat(400));
    match on_small_stack(sql) {
        Ok((explained, _)) => assert!(explained.contains("x = 1"), "{explained}"),
        Err(error) => assert_eq!(error.code(), "S003", "{error}"),
    }
}

#[test]
fn a_long_chain_of_or_plans() {
    let terms: Vec<String> = (0..2000).map(|term| format!("v = {term}")).collect();
    let (explained, _) =
        on_small_stack(format!("SELECT v FROM t WHERE {}", terms.join(" OR "))).expect("it plans");
    assert!(explained.contains("filter "), "{explained}");
    assert!(explained.len() < 2000, "what is long is cut");
}

#[test]
fn a_long_sum_of_columns_plans_or_is_refused() {
    let sql = format!("SELECT {} AS x FROM t", vec!["v"; 3000].join("+"));
    let error = on_small_stack(sql).expect_err("too deep to be evaluated safely");
    assert!(matches!(error.code(), "P011" | "S003"), "{error}");
    let sql = format!("SELECT {} AS x FROM t", vec!["v"; 100].join("+"));
    on_small_stack(sql).expect("a hundred terms are fine");
}

fn plan(sql: &str) -> StreamPlan {
    let planner = Planner::default();
    planner.plan(sql, &catalog(&planner)).expect("it plans")
}

#[test]
fn integer_arithmetic_fails_where_it_would_wrap() {
    use arrow::array::Int64Array;
    use arrow::record_batch::RecordBatch;

    let plan = plan("SELECT v + 1 AS w FROM t");
    let calc = plan.nodes.iter().find_map(|node| match &node.operation {
        Operation::Calc(calc) => Some((calc, node.inputs[0])),
        _ => None,
    });
    let (calc, input) = calc.expect("the sum is computed");
    let batch = |value: i64| {
        let schema = Arc::clone(&plan.nodes[input].schema);
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![value]))]).expect("a row")
    };
    assert!(calc.project[0].evaluate(&batch(i64::MAX - 1)).is_ok());
    assert!(calc.project[0].evaluate(&batch(i64::MAX)).is_err());
}

#[test]
fn inputs_stand_before_their_readers() {
    let plan = plan("SELECT v FROM t WHERE v > 1 UNION ALL SELECT v + 1 FROM t LIMIT 3");
    for (id, node) in plan.nodes.iter().enumerate() {
        assert!(node.inputs.iter().all(|input| *input < id), "node {id} reads a later one");
    }
    assert_eq!(plan.sinks, vec![plan.nodes.len() - 1]);
}

#[test]
fn only_one_statement_is_planned() {
    let planner = Planner::default();
    let error = planner.plan("SELECT 1; SELECT 2", &Catalog::new()).expect_err("two statements");
    assert_eq!(error.message(), "one statement is expected here, not 2");
    let error = planner.plan("SHOW TABLES", &Catalog::new()).expect_err("nothing to plan");
    assert_eq!(error.code(), "P003");
}
