//! Statements through the front door.

use arrow::array::AsArray;

use super::*;

const TABLE: &str = "CREATE TABLE `Trips` (v INT NOT NULL, ts TIMESTAMP(3), twice AS v * 2,
    line BIGINT METADATA FROM 'file.line' VIRTUAL,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (v) NOT ENFORCED)
    WITH ('connector' = 'filesystem', 'path' = 'it''s.csv', 'format' = 'csv');";

fn session() -> Session {
    let mut session = Session::new();
    done(&mut session, TABLE);
    session
}

/// Runs a script; gives what its last statement gave.
fn run(session: &mut Session, text: &str) -> Result<Outcome, Error> {
    let mut last = Outcome::Done(String::new());
    for statement in session.parse("test.sql", text)? {
        last = session.execute(&statement)?;
    }
    Ok(last)
}

fn done(session: &mut Session, text: &str) -> String {
    match run(session, text) {
        Ok(Outcome::Done(done)) => done,
        Ok(_) => panic!("{text} gives more than a word"),
        Err(error) => panic!("{}", error.render()),
    }
}

fn failed(session: &mut Session, text: &str) -> Error {
    match run(session, text) {
        Ok(_) => panic!("{text} works"),
        Err(error) => error,
    }
}

fn text(session: &mut Session, text: &str) -> String {
    match run(session, text) {
        Ok(Outcome::Text(text)) => text,
        Ok(_) => panic!("{text} gives no text"),
        Err(error) => panic!("{}", error.render()),
    }
}

#[test]
fn names_without_quotes_are_found_whatever_their_case() {
    let mut session = session();
    let created = text(&mut session, "SHOW CREATE TABLE trips");
    assert_eq!(created, text(&mut session, "SHOW CREATE TABLE `Trips`"));
    assert_eq!(failed(&mut session, "SHOW CREATE TABLE `trips`").code(), "P001");
    // With a second spelling only the exact one is meant.
    done(&mut session, "CREATE VIEW trips AS SELECT 1 AS one");
    assert!(text(&mut session, "SHOW CREATE VIEW trips").starts_with("CREATE VIEW `trips`"));
    assert_eq!(created, text(&mut session, "SHOW CREATE TABLE Trips"));
}

#[test]
fn show_create_gives_sql_that_creates_the_same() {
    let mut session = session();
    let created = text(&mut session, "SHOW CREATE TABLE Trips");
    for part in [
        "`v` INT NOT NULL,\n",
        "`twice` AS v * 2,\n",
        "`line` BIGINT METADATA FROM 'file.line' VIRTUAL,\n",
        "WATERMARK FOR `ts` AS ts - INTERVAL '5' SECOND,\n",
        "PRIMARY KEY (`v`) NOT ENFORCED\n",
        "'path' = 'it''s.csv',\n",
    ] {
        assert!(created.contains(part), "no {part:?} in {created}");
    }
    let mut other = Session::new();
    done(&mut other, &created);
    assert_eq!(text(&mut other, "SHOW CREATE TABLE Trips"), created);
}

#[test]
fn a_watermark_with_all_its_clauses_is_shown() {
    let sql = "ts - INTERVAL '5' SECOND";
    let clauses = "IDLE AFTER INTERVAL '30' SECOND THEN ADVANCE MAX AHEAD INTERVAL '0.5' SECOND";
    let mut session = Session::new();
    let create = format!(
        "CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS {sql} {clauses})
        WITH ('connector' = 'stdin', 'format' = 'json')"
    );
    match run(&mut session, &create) {
        Ok(_) => assert!(text(&mut session, "SHOW CREATE TABLE t").contains(&format!("AS {sql} {clauses}"))),
        // What can't run yet is refused, not forgotten.
        Err(error) => assert_eq!(error.code(), "P002", "{error}"),
    }
}

#[test]
fn drop_wants_the_right_word() {
    let mut session = session();
    let error = failed(&mut session, "DROP VIEW Trips");
    assert_eq!(error.message(), "\"Trips\" is a table");
    assert_eq!(error.hint_text(), Some("Use DROP TABLE."));
    assert_eq!(done(&mut session, "DROP TABLE trips"), "dropped table \"Trips\"");
    assert_eq!(done(&mut session, "DROP TABLE IF EXISTS Trips"), "\"trips\" does not exist");
    assert_eq!(failed(&mut session, "DROP TABLE Trips").code(), "P001");
}

#[test]
fn a_name_is_taken_once() {
    let mut session = session();
    let error = failed(&mut session, "\n CREATE VIEW `Trips` AS SELECT 1 AS one");
    assert_eq!(error.code(), "C005");
    assert!(error.render().contains("test.sql:2:14"), "{}", error.render());
    let again = TABLE.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS");
    assert_eq!(done(&mut session, &again), "\"Trips\" exists already");
}

#[test]
fn unknown_names_get_the_nearest_one() {
    let error = failed(&mut session(), "DESCRIBE tripz");
    assert_eq!(error.hint_text(), Some("Use \"Trips\"."));
    assert!(error.render().contains("test.sql:1:10"), "{}", error.render());
}

#[test]
fn settings_are_set_by_statements() {
    let mut session = Session::new();
    done(&mut session, "SET 'table.local-time-zone' = 'Asia/Tokyo'; SET 'execution.parallelism' = '3'");
    assert_eq!(session.settings().time_zone(), chrono_tz::Asia::Tokyo);
    done(&mut session, "RESET 'execution.parallelism'");
    assert_eq!(session.settings().parallelism(), Settings::default().parallelism());
    done(&mut session, "RESET");
    assert_eq!(session.settings(), &Settings::default());
    let error = failed(&mut session, "SET 'execution.parallelism' = 'x'");
    assert!(error.render().contains("test.sql:1:31"), "{}", error.render());
    let error = failed(&mut session, "SET 'no.such' = 'x'");
    assert!(error.render().contains("test.sql:1:5"), "{}", error.render());
}

#[test]
fn the_place_of_another_text_is_not_shown() {
    let mut session = Session::new();
    let statements = session.parse("a.sql", "SELECT nothing").expect("parses");
    session.parse("b.sql", "SELECT 1").expect("parses");
    let Err(error) = session.execute(&statements[0]) else { panic!("there is no column") };
    assert!(!error.render().contains("b.sql"), "{}", error.render());
}

#[test]
fn only_what_has_a_plan_is_explained() {
    let mut session = session();
    assert!(text(&mut session, "EXPLAIN SELECT v FROM Trips").contains("Trips"));
    let [statement] = &session.parse("a.sql", TABLE).expect("parses")[..] else { panic!("one statement") };
    assert_eq!(session.explain(statement, false), Ok(None));
}

#[test]
fn a_view_is_described_by_the_columns_of_its_query() {
    let mut session = session();
    done(&mut session, "CREATE VIEW w (a, b) AS SELECT v, ts FROM Trips");
    let Ok(Outcome::Rows(rows)) = run(&mut session, "DESCRIBE w") else { panic!("rows") };
    let texts = |column: usize| {
        rows.column(column).as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(texts(0), ["a", "b"]);
    assert_eq!(texts(1), ["INT", "TIMESTAMP(3)"]);
}
