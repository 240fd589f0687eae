//! Verdicts as JUnit XML, for machines that show tests.

use super::run::Verdict;

/// The report of some files: (file, its tests and their verdicts).
pub fn junit(files: &[(String, Vec<(String, Verdict)>)]) -> String {
    let all = || files.iter().flat_map(|(_, tests)| tests);
    let failures = all().filter(|(_, verdict)| verdict.failure.is_some()).count();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites tests=\"{}\" failures=\"{failures}\">\n",
        all().count()
    );
    for (file, tests) in files {
        let failures = tests.iter().filter(|(_, verdict)| verdict.failure.is_some()).count();
        out.push_str(&format!(
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\">\n",
            escaped(file),
            tests.len()
        ));
        for (test, verdict) in tests {
            let name = format!("    <testcase classname=\"{}\" name=\"{}\"", escaped(file), escaped(test));
            match &verdict.failure {
                None => out.push_str(&format!("{name}/>\n")),
                Some(failure) => {
                    let first = failure.message.lines().next().unwrap_or_default();
                    out.push_str(&format!(
                        "{name}>\n      <failure message=\"{}\">{}:{}: {}</failure>\n    </testcase>\n",
                        escaped(first),
                        escaped(file),
                        failure.line,
                        escaped(&failure.message)
                    ));
                }
            }
        }
        out.push_str("  </testsuite>\n");
    }
    out + "</testsuites>\n"
}

/// Text that stands in XML. Characters that XML does not have are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(character),
            control if control.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::run::Failure;
    use super::*;

    #[test]
    fn failures_are_counted_and_escaped() {
        let failed = Verdict {
            failure: Some(Failure { line: 7, message: "a < b\n\u{1}".to_owned() }),
            ..Verdict::default()
        };
        let tests = vec![("good".to_owned(), Verdict::default()), ("\"bad\"".to_owned(), failed)];
        let xml = junit(&[("x.test".to_owned(), tests)]);
        assert!(xml.contains("<testsuites tests=\"2\" failures=\"1\">"));
        assert!(xml.contains("<testcase classname=\"x.test\" name=\"good\"/>"));
        assert!(xml.contains("name=\"&quot;bad&quot;\">\n      <failure message=\"a &lt; b\">x.test:7: a &lt; b\n\u{fffd}</failure>"));
    }
}
