//! `help TOPIC`: what something is, with an example that runs as it stands; `help W002`: an error's page.

use crate::error::{self, did_you_mean};

/// Something that can be asked about.
pub(super) struct Topic {
    pub(super) name: &'static str,
    about: &'static str,
    /// Statements on [`CLICKS`].
    pub(super) example: &'static str,
}

/// The table that the examples read: it needs no file.
pub(super) const CLICKS: &str = "\
CREATE TEMPORARY TABLE IF NOT EXISTS clicks (
  page STRING, ms INT, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'datagen', 'number-of-rows' = '2000', 'seed' = '1',
  'fields.page.prefix' = '/p', 'fields.page.min' = '1', 'fields.page.max' = '3',
  'fields.ms.min' = '1', 'fields.ms.max' = '900',
  'fields.ts.start' = '2024-03-05 09:00:00', 'fields.ts.step' = '300 ms', 'fields.ts.max-disorder' = '8 s'
);";

/// All topics.
pub(super) const TOPICS: &[Topic] = &[
    Topic {
        name: "cumulate",
        about: "CUMULATE(TABLE t, DESCRIPTOR(ts), step, size): windows that begin together and end one step after\n\
                another, up to size: the sum of the day so far, every hour. The size is a multiple of the step.",
        example: "\
SELECT window_start, window_end, COUNT(*) AS clicks
FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE))
GROUP BY window_start, window_end;",
    },
    Topic {
        name: "emit",
        about: "EMIT at the end of a query block says when its results come: ON WINDOW CLOSE (the default of windows:\n\
                final results only), CHANGES [EVERY …] (each change), COMPLETE [EVERY …] (all results again),\n\
                EARLY EVERY … (results of open windows too).",
        example: "\
SELECT window_start, COUNT(*) AS clicks
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' MINUTE))
GROUP BY window_start, window_end
EMIT CHANGES;",
    },
    Topic {
        name: "hop",
        about: "HOP(TABLE t, DESCRIPTOR(ts), slide, size): windows of one size that overlap; a new one begins with each\n\
                slide, so a row is in size / slide of them. The size is a multiple of the slide.",
        example: "\
SELECT window_start, window_end, page, AVG(ms) AS ms
FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '3' MINUTE))
GROUP BY window_start, window_end, page;",
    },
    Topic {
        name: "idle",
        about: "A split without rows holds the watermark back, and with it every window. IDLE AFTER leaves out what was\n\
                empty for so long; THEN ADVANCE lets time go on when all of the table is quiet.",
        example: "\
CREATE TEMPORARY TABLE IF NOT EXISTS growing (
  page STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND IDLE AFTER INTERVAL '30' SECOND THEN ADVANCE
) WITH ('connector' = 'filesystem', 'path' = '.', 'format' = 'json', 'source.monitor-interval' = '1 s');",
    },
    Topic {
        name: "late",
        about: "A row is late if all of its windows have fired when it comes. Late rows are counted; LATE ROWS INTO\n\
                puts them, with the reason and how late they are, into a table of their own.",
        example: "\
SELECT window_start, COUNT(*) AS clicks
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end
LATE ROWS INTO late_clicks;
SELECT page, ts, late_reason, late_window_end, late_by FROM late_clicks LIMIT 5;
DROP TABLE late_clicks;",
    },
    Topic {
        name: "match_recognize",
        about: "t MATCH_RECOGNIZE (…): rows that follow each other as PATTERN says; DEFINE says which row a variable takes,\n\
                MEASURES what is given of a match, WITHIN how long it is at most.",
        example: "\
SELECT page, first_ms, last_ms, ended FROM clicks MATCH_RECOGNIZE (
  PARTITION BY page ORDER BY ts
  MEASURES A.ms AS first_ms, LAST(SLOWER.ms) AS last_ms, MATCH_ROWTIME() AS ended
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A SLOWER{3}) WITHIN INTERVAL '1' MINUTE
  DEFINE SLOWER AS ms > LAST(ms, 1));",
    },
    Topic {
        name: "session",
        about: "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), gap): windows that rows make: a session of a key is over\n\
                when no row of it has come for the gap.",
        example: "\
SELECT window_start, window_end, page, COUNT(*) AS clicks
FROM TABLE(SESSION(TABLE clicks PARTITION BY page, DESCRIPTOR(ts), INTERVAL '2' SECOND))
GROUP BY window_start, window_end, page
LIMIT 5;",
    },
    Topic {
        name: "tumble",
        about: "TUMBLE(TABLE t, DESCRIPTOR(ts), size): windows one after another; each row is in exactly one.\n\
                window_start and window_end say of which hour, day, … a result is.",
        example: "\
SELECT window_start, page, COUNT(*) AS clicks, AVG(ms) AS ms
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' MINUTE))
GROUP BY window_start, window_end, page;",
    },
    Topic {
        name: "watermark",
        about: "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND makes ts the time of a table's rows: no row is expected that\n\
                is more than 5 seconds older than the latest one. Windows fire when the watermark has passed them.",
        example: "\
DESCRIBE clicks;
SHOW CREATE TABLE clicks;",
    },
];

/// The topic that a line asks about: `help`, `help tumble`. The empty topic is the list.
pub(super) fn asked(line: &str) -> Option<&str> {
    let line = line.trim().trim_end_matches(';').trim_end();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    (word.eq_ignore_ascii_case("help") && !rest.contains(char::is_whitespace)).then_some(rest)
}

/// What is said about a topic or a code of an error; the empty topic is the list.
pub(super) fn text(topic: &str) -> String {
    let list = || TOPICS.iter().map(|topic| topic.name).collect::<Vec<_>>().join(", ");
    if topic.is_empty() {
        return format!(
            "help TOPIC, with one of {}, or the code of an error such as W002.\n\\? lists the commands of the shell.",
            list()
        );
    }
    match (find(topic), nearest(topic)) {
        (Some(text), _) => text,
        (None, Some(near)) => format!("nothing is known about \"{topic}\"; did you mean help {near}?"),
        (None, None) => format!("nothing is known about \"{topic}\"; there is {}", list()),
    }
}

/// What is known about a topic or a code of an error.
pub(in crate::cli) fn find(topic: &str) -> Option<String> {
    let name = topic.to_lowercase();
    match TOPICS.iter().find(|topic| topic.name == name) {
        Some(topic) => Some(format!("{}\n\n{CLICKS}\n{}", topic.about, topic.example)),
        None => error::page(topic).map(plain),
    }
}

/// The topic or code that may have been meant.
pub(in crate::cli) fn nearest(topic: &str) -> Option<&'static str> {
    let topics = TOPICS.iter().map(|topic| topic.name);
    // Codes have four characters: another one is another code, not a typing error.
    did_you_mean(topic, topics)
}

/// Markdown for a terminal: code stands out by its indentation, a link is its words.
fn plain(page: &str) -> String {
    let (mut is_code, mut lines) = (false, Vec::new());
    for line in page.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            lines.push(format!("    {line}").trim_end().to_owned());
        } else {
            lines.push(words(line));
        }
    }
    lines.join("\n")
}

/// A line of text without the marks of Markdown.
fn words(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, link)) = rest.split_once('[') {
        let target =
            link.split_once("](").and_then(|(words, behind)| Some((words, behind.split_once(')')?.1)));
        let (words, behind) = target.unwrap_or(("[", link));
        out += before;
        out += words;
        rest = behind;
    }
    out += rest;
    out.replace("**", "").replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Outcome, Session};

    #[test]
    fn lines_that_ask() {
        assert_eq!(asked("help tumble;"), Some("tumble"));
        assert_eq!(asked("HELP"), Some(""));
        assert_eq!(asked("help me please"), None);
        assert_eq!(asked("SELECT 1"), None);
        assert!(text("tumbel").contains("help tumble"));
        assert!(text("").contains("watermark"));
        assert!(text("w002").starts_with("W002: "));
    }

    #[test]
    fn pages_are_shown_without_marks() {
        let page = "W9: a\n\n**Why.** See [the page](sql.md#x) of `t[1]`.\n```sql\nSELECT `a`;\n\n```\nEnd.";
        assert_eq!(plain(page), "W9: a\n\nWhy. See the page of t[1].\n    SELECT `a`;\n\nEnd.");
    }

    #[test]
    fn examples_run_as_they_stand() {
        let mut session = Session::new();
        for topic in TOPICS {
            let script = format!("{CLICKS}\n{}", topic.example);
            let mut rows = 0;
            for statement in session.parse(topic.name, &script).expect("parses") {
                match session.execute(&statement).map_err(|error| error.render()) {
                    Ok(Outcome::Query(mut query)) => {
                        while let Some(batch) = query.next_batch().expect("runs") {
                            rows += batch.num_rows();
                        }
                    }
                    Ok(Outcome::Rows(batch)) => rows += batch.num_rows(),
                    Ok(Outcome::Done(_) | Outcome::Text(_) | Outcome::Insert(_)) => {}
                    Err(error) => panic!("help {}: {error}", topic.name),
                }
            }
            assert!(rows > 0 || topic.name == "idle", "help {} shows no rows", topic.name);
        }
    }
}
