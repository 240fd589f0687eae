//! Lines over TCP, on this machine only.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;

use tidegate::runtime::SplitState;

use crate::running::Running;

const NOWHERE: &str = "/";

fn start(options: &str, more: &str) -> Running {
    let script = format!(
        "CREATE TABLE t (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) \
         WITH ('connector' = 'socket', {options}); {more}"
    );
    Running::start(Path::new(NOWHERE), &script)
}

const LISTEN: &str = "'mode' = 'listen', 'port' = '0', 'format' = 'json'";

fn row(value: i32, time: &str) -> String {
    format!("{{\"v\":{value},\"ts\":\"2024-05-01 {time}\"}}\n")
}

#[test]
fn each_connection_is_a_split() {
    let query = start(
        LISTEN,
        "SELECT window_start, COUNT(*) AS c, SUM(v) AS s \
         FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;",
    );
    let mut first = TcpStream::connect(query.address()).unwrap();
    let mut second = TcpStream::connect(query.address()).unwrap();
    query.wait_for("two splits", |splits| {
        splits.len() == 2 && splits.iter().all(|split| split.state == SplitState::NeverSpoke)
    });
    first.write_all((row(1, "09:00:01") + &row(2, "09:05:00")).as_bytes()).unwrap();
    query.wait_for("the first has spoken", |splits| splits[0].state == SplitState::Empty);
    // The second one holds the watermark, and its rows are not late.
    second.write_all((row(4, "09:00:02") + &row(8, "09:01:00")).as_bytes()).unwrap();
    assert_eq!(query.row(), "2024-05-01T09:00:00,2,5");
    // One that has ended holds nothing.
    drop(second);
    assert_eq!(query.row(), "2024-05-01T09:01:00,1,8");
    query.wait_for("the second is finished", |splits| splits[1].state == SplitState::Finished);
    assert!(query.stop().is_empty());
}

#[test]
fn what_stands_behind_the_last_newline_is_malformed_unless_it_is_whole() {
    // The policy is `fail`, but a sender that is cut off does not fail the query.
    let query = start(LISTEN, "SELECT v FROM t LIMIT 3;");
    let address = query.address();
    for (text, last) in [(row(1, "09:00:00") + "{\"v\":9,\"ts\"", false), ("{\"v\":2}".to_owned(), true)] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(query.row(), if last { "2" } else { "1" });
        query.wait_for("the end of the connection", |splits| {
            splits.last().is_some_and(|split| split.state == SplitState::Finished)
        });
    }
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(row(3, "09:00:00").as_bytes()).unwrap();
    let (rows, summary) = query.end();
    assert_eq!((rows, summary.malformed), (vec!["3".to_owned()], 1));
    assert!(summary.rejected_samples[0].row.reason.contains("closed in the middle"), "{summary:?}");
}

#[test]
fn a_line_without_a_newline_is_no_csv_row() {
    let query = start("'mode' = 'listen', 'port' = '0', 'format' = 'csv'", "SELECT v FROM t LIMIT 2;");
    let mut stream = TcpStream::connect(query.address()).unwrap();
    stream.write_all(b"1,2024-05-01 09:00:00\n12,2024-05-01 09:00:0").unwrap();
    drop(stream);
    assert_eq!(query.row(), "1");
    let mut stream = TcpStream::connect(query.address()).unwrap();
    query.wait_for("the first is finished", |splits| splits[0].state == SplitState::Finished);
    stream.write_all(b"2,2024-05-01 09:00:00\n").unwrap();
    let (rows, summary) = query.end();
    assert_eq!((rows, summary.malformed), (vec!["2".to_owned()], 1));
}

#[test]
fn a_line_that_is_too_long_ends_its_connection() {
    let query = start(&format!("{LISTEN}, 'max-line-length' = '64'"), "SELECT v FROM t LIMIT 2;");
    let mut stream = TcpStream::connect(query.address()).unwrap();
    stream.write_all((row(1, "09:00:00") + "{\"v\":").as_bytes()).unwrap();
    assert_eq!(query.row(), "1");
    // The other side hangs up, perhaps before all of it is written.
    let _ = stream.write_all(&[b'1'; 300_000]);
    query.wait_for("it is finished", |splits| splits[0].state == SplitState::Finished);
    let mut stream = TcpStream::connect(query.address()).unwrap();
    stream.write_all(row(2, "09:00:00").as_bytes()).unwrap();
    let (rows, summary) = query.end();
    assert_eq!((rows, summary.malformed), (vec!["2".to_owned()], 1));
}

#[test]
fn a_client_connects_again() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let query = start(
        &format!(
            "'hostname' = '127.0.0.1', 'port' = '{port}', 'format' = 'json', 'reconnect-delay' = '1 ms'"
        ),
        "SELECT v FROM t LIMIT 3;",
    );
    let (mut stream, _) = server.accept().unwrap();
    query.wait_for("never spoke", |splits| splits[0].state == SplitState::NeverSpoke);
    stream.write_all((row(1, "09:00:00") + "{\"v\":").as_bytes()).unwrap();
    assert_eq!(query.row(), "1");
    drop((stream, server));
    query.wait_for("disconnected", |splits| splits[0].state == SplitState::Disconnected);
    let server = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let (mut stream, _) = server.accept().unwrap();
    stream.write_all((row(2, "09:00:00") + &row(3, "09:00:01")).as_bytes()).unwrap();
    let (rows, summary) = query.end();
    assert_eq!((rows, summary.malformed, summary.rows_in), (vec!["2".to_owned(), "3".to_owned()], 1, 4));
}

#[test]
fn what_can_t_be_reached_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut session = tidegate::session::Session::new();
    let script = format!(
        "CREATE TABLE t (v INT) WITH ('connector' = 'socket', 'mode' = 'listen', 'port' = '{port}', \
           'format' = 'json'); SELECT v FROM t;"
    );
    let error = crate::running::query(&mut session, Path::new(NOWHERE), &script).err().unwrap();
    assert!(error.code() == "F001" && error.message().contains(&port.to_string()), "{error}");
}
