//! The page of each code: cause, example, way out. The manual and the program show the same text.

use super::Code;

/// The chapter of the manual. A page goes from its heading `### W004: …` to the next heading.
const CHAPTER: &str = include_str!("../../docs/errors.md");

impl Code {
    /// The page of this code in Markdown, from its heading on: what it means, an example that gives it, the
    /// way out.
    ///
    /// ```
    /// use tidegate::error::code;
    ///
    /// let page = code::WINDOW_NOT_MULTIPLE.page().expect("each code has one");
    /// assert!(page.starts_with("W002: "));
    /// ```
    pub fn page(self) -> Option<&'static str> {
        page(self.0)
    }
}

/// The page of a code, however it is written; `None` if there is no such code.
pub fn page(code: &str) -> Option<&'static str> {
    let code = code.trim().to_ascii_uppercase();
    let rest = CHAPTER.split("\n### ").skip(1).find(|part| part.split(':').next() == Some(code.as_str()))?;
    Some(rest.split("\n## ").next().unwrap_or(rest).trim_end())
}

/// All codes that have a page, in the order of the chapter.
pub fn codes() -> impl Iterator<Item = &'static str> {
    CHAPTER.split("\n### ").skip(1).filter_map(|part| part.split_once(':').map(|(code, _)| code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_end_where_the_next_begins() {
        for code in codes() {
            let page = page(code).expect("it was listed");
            assert!(page.starts_with(&format!("{code}: ")), "{page}");
            assert!(!page.contains("\n## ") && !page.contains("\n### "), "{page}");
        }
        assert_eq!(page("w004"), page(" W004 "));
        assert_eq!((page("W999"), page("")), (None, None));
    }
}
