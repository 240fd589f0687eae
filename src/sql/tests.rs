//! What text cases can't show: trees, places, stacks.

use proptest::prelude::*;
use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, SetExpr, TableFactor};

use super::*;
use crate::error::Place;

/// Runs on a stack as small as those of worker threads.
fn on_small_stack(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run);
    thread.expect("a thread can start").join().expect("no panic on the small stack");
}

/// Parses, prints, parses again, clones, compares and drops; or gives the error's code.
fn survives(sql: String) -> Result<(), &'static str> {
    let statements = parse(&sql).map_err(|error| error.code())?;
    let copy = statements.clone();
    let printed: Vec<String> = copy.iter().map(|statement| statement.statement.to_string()).collect();
    let again = parse(&printed.join(";")).expect("what is printed parses");
    for (a, b) in statements.iter().zip(&again) {
        assert_eq!(a.statement.to_string(), b.statement.to_string());
    }
    assert!(!format!("{copy:?}").is_empty());
    Ok(())
}

#[test]
fn long_and_deep_statements_parse() {
    on_small_stack(|| {
        let sum = format!("SELECT 1{} AS x", "+1".repeat(2_999));
        let or: String = (1..2_000).map(|i| format!(" OR v = {i}")).collect();
        let and: String = (1..2_000).map(|i| format!(" AND v <> {i}")).collect();
        for sql in [
            sum,
            format!("SELECT v FROM t WHERE v = 0{or}"),
            format!("SELECT v FROM t WHERE v <> 0{and} EMIT CHANGES"),
            format!("SELECT {}1{}", "(".repeat(400), ")".repeat(400)),
            format!("SELECT v{} FROM t", " + v".repeat(390)),
            format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(999)),
            format!("SELECT 1{}", " EXCEPT SELECT 1".repeat(64)),
            format!("{}SELECT 1 AS a{}", "SELECT * FROM (".repeat(48), ")".repeat(48)),
            format!("SELECT {}1{}", "f(".repeat(98), ")".repeat(98)),
            format!("SELECT {}1{}", "CASE WHEN a THEN ".repeat(98), " END".repeat(98)),
            format!("SELECT 1 FROM {}t{}", "(".repeat(300), ")".repeat(300)),
            format!("SELECT * FROM a{}", " JOIN b ON a.k = b.k".repeat(1_000)),
        ] {
            let shown: String = sql.chars().take(60).collect();
            assert_eq!(survives(sql), Ok(()), "{shown}");
        }
    });
}

#[test]
fn what_is_too_deep_is_an_ordinary_error() {
    on_small_stack(|| {
        for (open, close) in [
            ("(", ")"),
            ("f(", ")"),
            ("- ", ""),
            ("NOT ", ""),
            ("[", "]"),
            ("CASE WHEN a THEN ", " END"),
            ("CAST(", " AS INT)"),
            ("a IN (", ")"),
            ("EXISTS (SELECT ", ")"),
            ("", " + v"),
            ("", "::INT"),
            ("", " IS NULL"),
            ("", " OR v"),
        ] {
            let sql = format!("SELECT {}v{}", open.repeat(20_000), close.repeat(20_000));
            assert_eq!(survives(sql), Err("S003"), "{open} {close}");
        }
        let types = format!("CREATE TABLE t (a {}INT{})", "ARRAY<".repeat(20_000), ">".repeat(20_000));
        assert_eq!(survives(types), Err("S003"));
        assert_eq!(survives(format!("SELECT {}", "(".repeat(100_000))), Err("S003"));
        assert_eq!(survives(format!("SELECT 1{}", " UNION SELECT 1".repeat(20_000))), Err("S003"));
        assert_eq!(survives(format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(20_000))), Err("S003"));
        assert_eq!(survives("SELECT 1".to_owned()), Ok(()));
    });
}

#[test]
fn a_fault_at_the_bottom_is_found_in_time() {
    // sqlparser reads some texts twice at each level; with 40 levels it must not.
    for (open, close) in [
        ("CAST(", " AS INT)"),
        ("f(a => ", ")"),
        ("CASE WHEN a THEN ", " END"),
        ("(SELECT ", ")"),
        ("EXTRACT(DAY FROM ", ")"),
        ("f(", ")"),
    ] {
        let sql = format!("SELECT {}1 + * {}", open.repeat(40), close.repeat(40));
        let error = parse(&sql).expect_err("the operand is missing");
        let place = error.span().map(|span| span.start.column);
        assert_eq!(place, Some(8 + 40 * open.len() as u64 + 4), "{open}: {error}");
    }
}

#[test]
fn places_are_those_of_the_script() {
    let script = "SELECT 1;\n\n-- é\nSELECT 'é', b\nFROM t;";
    let statements = parse(script).expect("it parses");
    let span = statements[1].span;
    assert_eq!((span.start, span.end), (Place { line: 4, column: 1 }, Place { line: 5, column: 7 }));
    assert_eq!(statements[1].text, "SELECT 'é', b\nFROM t");
    let Statement::Query(query) = &statements[1].statement else { panic!("a query") };
    let SetExpr::Select(select) = query.query.body.as_ref() else { panic!("a select") };
    let sqlparser::ast::SelectItem::UnnamedExpr(Expr::Identifier(column)) = &select.projection[1] else {
        panic!("a column")
    };
    assert_eq!((column.span.start.line, column.span.start.column), (4, 13));
}

#[test]
fn texts_are_as_written() {
    let script = "CREATE TABLE t (a INT, é AS  'é' || a , WATERMARK FOR a AS a -  INTERVAL '1' SECOND);
                  CREATE VIEW v AS SELECT  a FROM t  EMIT  CHANGES ;";
    let statements = parse(script).expect("it parses");
    let Statement::CreateTable(table) = &statements[0].statement else { panic!("a table") };
    let ColumnDefKind::Computed { text, .. } = &table.columns[1].kind else { panic!("a computed column") };
    assert_eq!(text, "'é' || a");
    assert_eq!(table.watermark.as_ref().map(|w| w.text.as_str()), Some("a -  INTERVAL '1' SECOND"));
    let Statement::CreateView(view) = &statements[1].statement else { panic!("a view") };
    assert_eq!(view.query_text, "SELECT  a FROM t  EMIT  CHANGES");
    assert_eq!(parse_query(&view.query_text).expect("it parses").to_string(), view.query.to_string());
}

#[test]
fn blocks_with_clauses_are_wrapped_and_numbered() {
    let query =
        parse_query("SELECT * FROM (SELECT k FROM t LATE ROWS INTO l) AS s EMIT CHANGES").expect("it parses");
    assert_eq!(
        query.query.to_string(),
        "SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT k FROM t) AS \"__block_0\") AS s) AS \"__block_1\""
    );
    assert_eq!(query.blocks.len(), 2);
    assert_eq!(query.blocks[0].to_string(), "LATE ROWS INTO l");
    assert_eq!(query.blocks[1].to_string(), "EMIT CHANGES");
    let span = query.blocks[1].emit.as_ref().map(|(_, span)| *span);
    assert_eq!(span.map(|span| (span.start.column, span.end.column)), Some((55, 67)));
}

fn arguments(sql: &str) -> Vec<Expr> {
    let query = parse_query(sql).expect("it parses");
    let SetExpr::Select(select) = query.query.body.as_ref() else { panic!("a select") };
    let TableFactor::Table { args: Some(args), .. } = &select.from[0].relation else { panic!("a function") };
    let exprs = args.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
        | FunctionArg::Named { arg: FunctionArgExpr::Expr(expr), .. } => expr.clone(),
        other => panic!("{other}"),
    });
    exprs.collect()
}

#[test]
fn table_arguments_come_apart() {
    for (argument, input, keys) in [
        ("t", "t", ""),
        ("TABLE a.t", "a.t", ""),
        ("DATA => TABLE t", "t", ""),
        ("TABLE t PARTITION BY k", "t", "k"),
        ("TABLE t PARTITION BY k, j + 1", "t", "k, j + 1"),
        ("TABLE t PARTITION BY (k, j)", "t", "k, j"),
        ("(SELECT 1)", "SELECT 1", ""),
        ("TABLE (SELECT 1)", "SELECT 1", ""),
        ("(SELECT 1) PARTITION BY k", "SELECT 1", "k"),
    ] {
        let args =
            arguments(&format!("SELECT * FROM SESSION({argument}, DESCRIPTOR(ts), GAP => INTERVAL '1' DAY)"));
        assert_eq!(args.len(), 3, "{argument}");
        let table = table_argument(&args[0]).unwrap_or_else(|| panic!("{argument} is a table argument"));
        let actual = match table.input {
            TableInput::Name(parts) => parts.iter().map(ToString::to_string).collect::<Vec<_>>().join("."),
            TableInput::Query(query) => query.to_string(),
        };
        let actual_keys: Vec<String> = table.partition_by.iter().map(ToString::to_string).collect();
        assert_eq!((actual.as_str(), actual_keys.join(", ").as_str()), (input, keys), "{argument}");
        assert_eq!(table_argument(&args[1]), None);
    }
}

#[test]
fn one_query_and_one_expression() {
    assert!(parse_query("SELECT 1; ").is_ok());
    for text in ["", "-- nothing", "SELECT 1; SELECT 2", "DROP TABLE t", "SELECT 1 FROM"] {
        assert!(parse_query(text).is_err(), "{text}");
    }
    assert_eq!(parse_expr("a + 1").map(|expr| expr.to_string()), Ok("a + 1".to_owned()));
    for text in ["", "a +", "a b", "a; b", "1 EMIT CHANGES"] {
        assert!(parse_expr(text).is_err(), "{text}");
    }
}

#[test]
fn a_shell_knows_when_to_read_on() {
    for text in [
        "SELECT 1;",
        "SELECT 'a;b'; -- end",
        "SELECT 1; SELECT 2;",
        ";",
        "BEGIN STATEMENT SET;\nINSERT INTO a SELECT 1;\nEND;",
        "EXPLAIN EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END;",
    ] {
        assert!(is_complete(text), "{text}");
    }
    for text in [
        "",
        "SELECT 1",
        "SELECT 'a;",
        "SELECT 1; /* ;",
        "SELECT 1 -- ;",
        "BEGIN STATEMENT SET;",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;",
        "EXPLAIN STATEMENT SET BEGIN INSERT INTO a SELECT 1;",
    ] {
        assert!(!is_complete(text), "{text}");
    }
}

/// Pieces of SQL that are put together at random, and by shapes that are often accepted.
fn soup() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "SELECT",
        "a",
        "b",
        "`end`",
        "FROM",
        "t",
        "WHERE",
        "(",
        ")",
        ",",
        "=",
        "+",
        "-",
        "*",
        "1",
        "'x'",
        "AND",
        "OR",
        "NOT",
        "INTERVAL",
        "'5'",
        "SECOND",
        "DAY TO SECOND",
        "'1 02:03:04'",
        "EMIT",
        "CHANGES",
        "ALLOW LATENESS",
        "LATE ROWS INTO l",
        "EMIT ON WINDOW CLOSE",
        "TABLE",
        "TABLE t",
        "DESCRIPTOR(ts)",
        "PARTITION BY",
        "TUMBLE(",
        "=>",
        "CASE",
        "WHEN",
        "THEN",
        "END",
        "CAST(",
        "AS",
        "INT",
        "MAP<",
        ">",
        ">>",
        "ARRAY<",
        "ROW<",
        "UNION ALL",
        "JOIN",
        "ON",
        "GROUP BY",
        "ORDER BY",
        "LIMIT 3",
        "WITH",
        "VALUES",
        "IN",
        "EXISTS",
        "BETWEEN",
        "IS NULL",
        ";",
        "CREATE TABLE",
        "CREATE VIEW v AS",
        "INSERT INTO",
        "WATERMARK FOR",
        "IDLE AFTER",
        "METADATA",
        "PRIMARY KEY",
        "NOT ENFORCED",
        "'k' = 'v'",
        "SET",
        "RESET",
        "EXPLAIN",
        "SHOW",
        "BEGIN STATEMENT SET;",
        "user",
        "timestamp",
        "value",
        "[",
        "]",
        "{",
        "}",
        ".",
        "::",
        "'",
        "/*",
        "--\n",
        "\u{e9}",
        "__block_0",
        "FORMAT",
        "MATCH_RECOGNIZE (",
        "FOR SYSTEM_TIME AS OF",
        "UNNEST(",
        "OVER (",
        "EXTRACT(",
        "FLOOR(a TO DAY)",
        "?",
        "$1",
        ":x",
    ];
    let any = prop::collection::vec(prop::sample::select(WORDS), 0..40).prop_map(|words| words.join(" "));
    let query = prop::collection::vec(prop::sample::select(WORDS), 0..6).prop_map(|words| {
        format!("SELECT a FROM (SELECT {} FROM t EMIT CHANGES) x WHERE b", words.join(" "))
    });
    let table = prop::collection::vec(prop::sample::select(WORDS), 0..6).prop_map(|words| {
        format!("CREATE TABLE t (a INT, b {}, c STRING) WITH ('k' = 'v')", words.join(" "))
    });
    prop_oneof![any, query, table]
}

proptest! {
    #[test]
    fn any_text_is_refused_or_prints_back(text in soup()) {
        match parse(&text) {
            Err(error) => prop_assert!(error.span().is_some(), "no place: {error}"),
            Ok(statements) => {
                let ended = format!("{text}\n;");
                prop_assert!(parse(&ended).is_ok() && is_complete(&ended));
                let printed: Vec<String> = statements.iter().map(|s| s.statement.to_string()).collect();
                let again = parse(&printed.join(";\n"));
                prop_assert!(again.is_ok(), "{printed:?}: {again:?}");
                let reprinted: Vec<String> =
                    again.iter().flatten().map(|s| s.statement.to_string()).collect();
                prop_assert_eq!(printed, reprinted);
            }
        }
    }
}
