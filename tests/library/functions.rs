//! Functions that a program brings along.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use arrow::record_batch::RecordBatch;
use datafusion_common::{Result as DfResult, ScalarValue, exec_err};
use datafusion_expr::{
    Accumulator, AggregateUDF, ColumnarValue, ScalarUDF, Volatility, create_udaf, create_udf,
};
use tidegate::Session;
use tidegate::connector::StreamTable;

use super::{all, batch, code, failure, rows, session_with, table};

/// A function of one BIGINT.
fn function(
    name: &str,
    result: DataType,
    volatility: Volatility,
    call: impl Fn(&[ColumnarValue]) -> DfResult<ColumnarValue> + Send + Sync + 'static,
) -> ScalarUDF {
    create_udf(name, vec![DataType::Int64], result, volatility, Arc::new(call))
}

fn numbers(args: &[ColumnarValue]) -> Int64Array {
    let array = ColumnarValue::values_to_arrays(args).expect("arrays").remove(0);
    array.as_primitive::<Int64Type>().clone()
}

fn twice() -> ScalarUDF {
    function("Twice", DataType::Int64, Volatility::Immutable, |args| {
        Ok(ColumnarValue::Array(Arc::new(numbers(args).unary::<_, Int64Type>(|value| value * 2))))
    })
}

#[test]
fn a_function_is_called_wherever_an_expression_stands() {
    let (mut session, input) = session_with(&table());
    session.register_udf(twice()).unwrap();
    input.push(&batch(&[(0, "a", 1), (1_000, "a", 2), (2_000, "a", 3)])).unwrap();
    input.end();
    let sql = "SELECT tWiCe(v), SUM(twice(v)) OVER (ORDER BY ts) FROM s WHERE TWICE(v) > 2";
    assert_eq!(rows(&mut session, sql), ["4|4", "6|10"]);
    // It is still there with other settings, in views, and over constants.
    session.set("session.time-zone", "Europe/Berlin").unwrap();
    session.run("CREATE VIEW w AS SELECT twice(21) AS answer").unwrap();
    assert_eq!(rows(&mut session, "SELECT answer FROM w"), ["42"]);
    assert!(session.function_names().contains(&"twice".to_owned()));
}

#[test]
fn names_of_functions_are_taken_once() {
    let mut session = Session::new();
    session.register_udf(twice()).unwrap();
    let same =
        |name: &str| function(name, DataType::Int64, Volatility::Immutable, |args| Ok(args[0].clone()));
    for name in ["twice", "TWICE", "abs", "count", "row_number", "tumble", "HOP_START", "proctime"] {
        assert_eq!(code(&session.register_udf(same(name)).unwrap_err()), "C005", "{name}");
        let aggregate = sum_of(name, |values| values.iter().sum());
        assert_eq!(code(&session.register_udaf(aggregate).unwrap_err()), "C005", "{name}");
    }
    let error = session.register_udf(same("thrice").with_aliases(["triple", "sum"])).unwrap_err();
    assert_eq!(code(&error), "C005");
    for name in ["", "__twice"] {
        assert_eq!(code(&session.register_udf(same(name)).unwrap_err()), "P003");
    }
    // Nothing of them is half there.
    assert_eq!(code(&failure(&mut session, "SELECT triple(1)")), "P001");
    session.register_udf(same("thrice").with_aliases(["triple"])).unwrap();
    assert_eq!(rows(&mut session, "SELECT thrice(1), triple(2), twice(3)"), ["1|2|6"]);
}

#[test]
fn a_function_that_fails_fails_its_query_and_nothing_else() {
    let mut session = Session::new();
    let mut add = |name: &str, call: fn(&[ColumnarValue]) -> DfResult<ColumnarValue>| {
        session.register_udf(function(name, DataType::Int64, Volatility::Volatile, call)).unwrap();
    };
    add("panics", |_| panic!("out of cheese"));
    add("refuses", |_| exec_err!("no such number"));
    add("cuts", |args| Ok(ColumnarValue::Array(Arc::new(numbers(args).slice(0, 1)))));
    add("speaks", |_| Ok(ColumnarValue::Scalar(ScalarValue::from("seven"))));
    for (name, what) in [
        ("panics", "the function \"panics\" panicked: out of cheese"),
        ("refuses", "no such number"),
        ("cuts", "the function \"cuts\" gave 1 values for 3 rows"),
        ("speaks", "the function \"speaks\" gave values of type STRING instead of BIGINT"),
    ] {
        let sql = format!("SELECT {name}(v) FROM (VALUES (1), (2), (3)) AS t (v)");
        let error = failure(&mut session, &sql);
        assert_eq!(error.code(), "R002", "{error}");
        assert!(error.message().ends_with(what), "{error}");
    }
    assert_eq!(rows(&mut session, "SELECT 1"), ["1"]);
    // One that is called while the query is planned.
    let early = function("early", DataType::Int64, Volatility::Immutable, |_| panic!("too soon"));
    session.register_udf(early).unwrap();
    let error = failure(&mut session, "SELECT early(1)");
    assert_eq!(code(&error), "R002");
    assert!(error.message().ends_with("the function \"early\" panicked: too soon"), "{error}");
    let error = failure(&mut session, "SELECT twize(1)");
    assert_eq!(code(&error), "P001");
    let error = failure(&mut session, "SELECT early('x', 1)");
    assert_eq!(code(&error), "P009");
}

/// Folds the values of each batch that it is given into one, and these from left to right: what comes
/// out depends on how rows are cut, unless somebody takes care.
#[derive(Debug)]
struct ByBatch {
    sum: f64,
    fold: fn(&[f64]) -> f64,
}

impl Accumulator for ByBatch {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.sum += (self.fold)(values[0].as_primitive::<Float64Type>().values());
        Ok(())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        Ok(ScalarValue::from(self.sum))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.sum += states[0].as_primitive::<Float64Type>().values().iter().sum::<f64>();
        Ok(())
    }
}

/// An aggregate of DOUBLE.
fn sum_of(name: &str, fold: fn(&[f64]) -> f64) -> AggregateUDF {
    create_udaf(
        name,
        vec![DataType::Float64],
        Arc::new(DataType::Float64),
        Volatility::Immutable,
        Arc::new(move |_| Ok(Box::new(ByBatch { sum: 0.0, fold }))),
        Arc::new(vec![DataType::Float64]),
    )
}

#[test]
fn an_aggregate_works_in_every_kind_of_window() {
    let windows = [
        ("TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '2' SECOND)", vec!["3.0", "3.0", "4.0"]),
        // [-1, 1): 1; [0, 2): 1 + 2; [1, 3): 2 + 3; [2, 4): 3; [8, 10): 4; [9, 11): 4.
        (
            "HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '2' SECOND)",
            vec!["1.0", "3.0", "5.0", "3.0", "4.0", "4.0"],
        ),
        ("CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)", vec!["6.0", "10.0"]),
        ("SESSION(TABLE s, DESCRIPTOR(ts), INTERVAL '3' SECOND)", vec!["6.0", "4.0"]),
    ];
    for (window, expected) in windows {
        for emit in ["EMIT ON WINDOW CLOSE", "EMIT CHANGES"] {
            let (mut session, input) = session_with(&table());
            session.register_udaf(sum_of("my_sum", |values| values.iter().sum())).unwrap();
            let query = format!(
                "SELECT my_sum(CAST(v AS DOUBLE)) FROM TABLE({window}) GROUP BY window_start, window_end {emit}"
            );
            let mut query = session.query(&query).unwrap_or_else(|error| panic!("{}", error.render()));
            input.push(&batch(&[(0, "a", 1), (1_000, "b", 2), (2_000, "a", 3), (9_000, "a", 4)])).unwrap();
            input.end();
            let mut fold = tidegate::stream::Fold::try_new(query.schema()).unwrap();
            while let Some(batch) = query.next_batch().unwrap() {
                fold.apply(&batch).unwrap();
            }
            let mut left: Vec<_> = fold.batches(100).unwrap().iter().flat_map(super::lines).collect();
            let mut expected = expected.clone();
            left.sort();
            expected.sort_unstable();
            assert_eq!(left, expected, "{window} {emit}");
        }
    }
}

#[test]
fn an_aggregate_works_in_over_and_without_windows() {
    let mut session = Session::new();
    session.register_udaf(sum_of("my_sum", |values| values.iter().sum())).unwrap();
    let values = "(VALUES ('a', 1.0E0), ('b', 2.0E0), ('a', 3.0E0)) AS t (k, v)";
    let sql = format!("SELECT k, my_sum(v) FILTER (WHERE v > 1) FROM {values} GROUP BY k ORDER BY k");
    assert_eq!(rows(&mut session, &sql), ["a|3.0", "b|2.0"]);

    let (mut session, input) = session_with(&table());
    session.register_udaf(sum_of("my_sum", |values| values.iter().sum())).unwrap();
    input.push(&batch(&[(0, "a", 1), (1_000, "a", 2), (2_000, "a", 3)])).unwrap();
    input.end();
    let sql = "SELECT my_sum(CAST(v AS DOUBLE)) OVER (
        PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM s";
    assert_eq!(rows(&mut session, sql), ["1.0", "3.0", "5.0"]);
}

#[test]
fn an_aggregate_sees_the_same_rows_at_a_time_however_they_are_cut() {
    // Large and small numbers: sums of them depend on the order in which they are added up.
    let values: Vec<f64> = (0..5_000).map(|n| f64::from(n % 7) * 10f64.powi(n % 17) + 0.1).collect();
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, false),
        Field::new("v", DataType::Float64, false),
    ]));
    let mut answers = Vec::new();
    for (cut, parallelism) in [(5_000, "1"), (1, "1"), (37, "2"), (1_023, "1")] {
        let mut session = Session::new();
        session.set("execution.parallelism", parallelism).unwrap();
        session.register_udaf(sum_of("by_batch", |values| values.iter().sum())).unwrap();
        let input = session.register_stream(&StreamTable::new("s", schema.clone()).bounded()).unwrap();
        for chunk in values.chunks(cut) {
            let keys: ArrayRef = Arc::new(StringArray::from(vec!["a"; chunk.len()]));
            let columns = vec![keys, Arc::new(Float64Array::from(chunk.to_vec())) as ArrayRef];
            input.push(&RecordBatch::try_new(schema.clone(), columns).unwrap()).unwrap();
        }
        input.end();
        let query = session.query("SELECT k, by_batch(v) FROM s GROUP BY k").unwrap();
        answers.push(all(query).unwrap());
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
}

#[test]
fn an_aggregate_that_fails_fails_its_query() {
    let mut session = Session::new();
    session.register_udaf(sum_of("panics", |_| panic!("out of cheese"))).unwrap();
    session.register_udaf(sum_of("my_sum", |values| values.iter().sum())).unwrap();
    let lying = create_udaf(
        "lies",
        vec![DataType::Float64],
        Arc::new(DataType::Int64),
        Volatility::Immutable,
        Arc::new(|_| Ok(Box::new(ByBatch { sum: 0.0, fold: |_| 1.0 }))),
        Arc::new(vec![DataType::Float64]),
    );
    session.register_udaf(lying).unwrap();
    let of = |call: &str| format!("SELECT {call} FROM (VALUES (1.0E0), (2.0E0)) AS t (v)");
    let error = failure(&mut session, &of("panics(v)"));
    assert_eq!(code(&error), "R002");
    assert!(error.message().ends_with("the function \"panics\" panicked: out of cheese"), "{error}");
    let error = failure(&mut session, &of("lies(v)"));
    let what = "the function \"lies\" gave a result of type DOUBLE instead of BIGINT";
    assert_eq!(code(&error), "R002");
    assert!(error.message().ends_with(what), "{error}");
    assert_eq!(code(&failure(&mut session, &of("my_sum(DISTINCT v)"))), "P002");
    assert_eq!(code(&failure(&mut session, &of("my_sum(v ORDER BY v)"))), "P002");
    assert_eq!(rows(&mut session, &of("my_sum(v)")), ["3.0"]);
}
