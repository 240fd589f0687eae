//! Files and folders that are read while they are written to.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use tidegate::runtime::SplitState;

use crate::running::Running;

fn follow(dir: &Path, path: &str, format: &str, more: &str) -> Running {
    let script = format!(
        "CREATE TABLE t (v INT, s STRING, p STRING METADATA FROM 'file.name' VIRTUAL, \
           l BIGINT METADATA FROM 'file.line' VIRTUAL) \
         WITH ('connector' = 'filesystem', 'path' = '{{dir}}/{path}', 'format' = '{format}', \
           'source.monitor-interval' = '5 ms'{more}); \
         SELECT v, s, l FROM t;"
    );
    Running::start(dir, &script)
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_growing_file_gives_its_complete_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    append(&path, "1,one\n2,tw");
    let query = follow(dir.path(), "a.csv", "csv", "");
    assert_eq!(query.row(), "1,one,1");
    // The rest of the file is there and is no row.
    query.wait_for_state("a.csv", SplitState::Empty);
    assert!(query.rows_at_hand().is_empty());
    append(&path, "o\n3,three\n");
    assert_eq!(query.rows(2), ["2,two,2", "3,three,3"]);
    assert!(query.stop().is_empty());
}

#[test]
fn new_files_of_a_folder_are_found_once_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    append(&dir.path().join("b.json"), "{\"v\":1}\n");
    append(&dir.path().join("a.json"), "");
    append(&dir.path().join(".hidden.json"), "{\"v\":-1}\n");
    append(&dir.path().join("half.json.tmp"), "{\"v\":5");
    let query = follow(dir.path(), "", "json", "");
    assert_eq!(query.row(), "1,NULL,1");
    let splits = query.wait_for("both files", |splits| splits.len() == 2);
    assert!(splits[0].split.ends_with("a.json") && splits[1].split.ends_with("b.json"), "{splits:?}");
    query.wait_for_state("a.json", SplitState::NeverSpoke);
    append(&dir.path().join("c.json"), "{\"v\":2}\n");
    assert_eq!(query.row(), "2,NULL,1");
    append(&dir.path().join("a.json"), "{\"v\":3}\n");
    assert_eq!(query.row(), "3,NULL,1");
    append(&dir.path().join("half.json.tmp"), "}\n");
    fs::rename(dir.path().join("half.json.tmp"), dir.path().join("half.json")).unwrap();
    assert_eq!(query.row(), "5,NULL,1");
    // Under another name it is the same file.
    fs::rename(dir.path().join("c.json"), dir.path().join("d.json")).unwrap();
    append(&dir.path().join("e.json"), "{\"v\":6}\n");
    assert_eq!(query.row(), "6,NULL,1");
    assert!(query.stop().is_empty());
}

#[test]
fn a_file_may_come_after_the_query() {
    let dir = tempfile::tempdir().unwrap();
    let query = follow(dir.path(), "later-*.json", "json", "");
    assert!(query.splits().is_empty());
    append(&dir.path().join("later-1.json"), "{\"v\":1}\n");
    assert_eq!(query.row(), "1,NULL,1");
    query.stop();
    // But a folder that is not there is a typing error.
    let mut session = tidegate::session::Session::new();
    let script = "CREATE TABLE t (v INT) WITH ('connector' = 'filesystem', 'format' = 'json', \
                    'path' = '{dir}/nowhere/a.json', 'source.monitor-interval' = '1 s'); SELECT v FROM t;";
    let error = crate::running::query(&mut session, dir.path(), script).err().unwrap();
    assert!(error.code() == "F001" && error.message().contains("nowhere"), "{error}");
}

#[test]
fn a_rotated_file_is_read_to_its_end_before_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.log");
    // The rotated file matches the pattern, too.
    let mut old = OpenOptions::new().create(true).append(true).open(&path).unwrap();
    old.write_all(b"v,s\n1,a\n").unwrap();
    let query = follow(dir.path(), "app.log*", "csv", ", 'csv.header' = 'true'");
    assert_eq!(query.row(), "1,a,2");
    fs::rename(&path, dir.path().join("app.log.1")).unwrap();
    let mut new = File::create(&path).unwrap();
    // The writer still holds the old file, and leaves its last line without an end.
    old.write_all(b"2,b\n").unwrap();
    assert_eq!(query.row(), "2,b,3");
    old.write_all(b"3,c").unwrap();
    new.write_all(b"s,v\nd,4\n").unwrap();
    // The new file has a header and line numbers of its own.
    assert_eq!(query.rows(2), ["3,c,4", "4,d,2"]);
    assert_eq!(query.splits().len(), 1);
    assert!(query.stop().is_empty());
}

#[test]
fn a_truncated_file_is_read_from_its_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    append(&path, "{\"v\":1}\n{\"v\":2}\n{\"v\":");
    let query = follow(dir.path(), "a.json", "json", ", 'errors' = 'side'");
    assert_eq!(query.rows(2), ["1,NULL,1", "2,NULL,2"]);
    query.wait_for_state("a.json", SplitState::Empty);
    File::create(&path).unwrap();
    append(&path, "{\"v\":3}\n");
    assert_eq!(query.row(), "3,NULL,1");
    assert!(query.stop().is_empty());
}

#[test]
fn compressed_files_are_read_whole_when_they_are_complete() {
    let dir = tempfile::tempdir().unwrap();
    let query = follow(dir.path(), "*.gz", "json", "");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"{\"v\":1}\n{\"v\":2}\n").unwrap();
    fs::write(dir.path().join("part.tmp"), gzip.finish().unwrap()).unwrap();
    fs::rename(dir.path().join("part.tmp"), dir.path().join("a.json.gz")).unwrap();
    assert_eq!(query.rows(2), ["1,NULL,1", "2,NULL,2"]);
    query.wait_for_state("a.json.gz", SplitState::Finished);
    assert!(query.stop().is_empty());
}

#[test]
fn many_files_are_followed_with_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..600 {
        append(&dir.path().join(format!("{number:03}.json")), &format!("{{\"v\":{number}}}\n"));
    }
    let query = follow(dir.path(), "", "json", "");
    let mut values: Vec<_> = query.rows(600);
    values.sort();
    values.dedup();
    assert_eq!(values.len(), 600);
    query.wait_for("all quiet", |splits| splits.iter().all(|split| split.state == SplitState::Empty));
    append(&dir.path().join("017.json"), "{\"v\":1017}\n");
    assert_eq!(query.row(), "1017,NULL,2");
    query.stop();
}

#[test]
fn the_writer_is_restarted() {
    // A file that goes and comes again under the same name.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    append(&path, "{\"v\":1}\n");
    let query = follow(dir.path(), "a.json", "json", "");
    assert_eq!(query.row(), "1,NULL,1");
    fs::remove_file(&path).unwrap();
    append(&path, "{\"v\":2}\n");
    assert_eq!(query.row(), "2,NULL,1");
    query.stop();
}
