//! The public API as text: `tests/api/listing.txt`. Whoever changes what a program can use sees it in the
//! diff. `UPDATE_EXPECT=1 cargo test --test api` writes it anew.
//!
//! What is marked `#[doc(hidden)]` is for the tests of this repository and not part of it. Trait methods that
//! an `impl` gives are not listed, only that it is there.

#[path = "api/crate_tree.rs"]
mod crate_tree;
#[path = "api/listing.rs"]
mod listing;

use std::fs;
use std::path::Path;

#[test]
fn the_public_api_is_what_its_listing_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = listing::of(&crate_tree::Tree::read(&root.join("src/lib.rs")));
    assert!(found.lines().count() > 300, "only this was found:\n{found}");
    let path = root.join("tests/api/listing.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &found).expect("the listing can be written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let (found, expected): (Vec<_>, Vec<_>) = (found.lines().collect(), expected.lines().collect());
    let more = found.iter().filter(|line| !expected.contains(line)).map(|line| format!("+ {line}"));
    let less = expected.iter().filter(|line| !found.contains(line)).map(|line| format!("- {line}"));
    let changes: Vec<_> = less.chain(more).collect();
    assert!(
        changes.is_empty() && found == expected,
        "the public API has changed; write it down with UPDATE_EXPECT=1, and say it in CHANGELOG.md:\n{}",
        changes.join("\n")
    );
}

#[test]
fn a_listing_has_what_a_program_can_use() {
    let text = r#"
        pub mod open {
            pub use self::inner::{Inner as Outer, Shape};
            pub use arrow::array::ArrayRef;
            mod inner {
                /// Kept.
                #[derive(Debug, Clone)]
                #[non_exhaustive]
                pub struct Inner<T> { pub field: Vec<T>, secret: u8 }
                impl<T> Inner<T> {
                    pub fn new(field: &mut [T], size: usize) -> Self { todo!() }
                    pub(crate) fn own(&self) {}
                    #[doc(hidden)] pub fn hidden(&self) {}
                }
                impl<T> std::fmt::Display for Inner<T> {}
                #[cfg(test)] pub fn of_tests() {}
                pub enum Shape { Point, Line(u8), Box { side: u8 } }
                pub struct Unused;
                impl Unused { pub fn nobody(&self) {} }
            }
        }
        #[cfg(feature = "more")]
        pub mod more { pub trait Work: Send { const N: u8; type T; fn work(&self) -> u8 { 1 } } }
        #[doc(hidden)] pub mod hidden { pub fn f() {} }
        mod closed { pub fn g() {} }
        pub use open::Shape;
        pub use closed::*;
    "#;
    let found = listing::of(&crate_tree::Tree::of_text(text));
    let expected = "\
mod more #[cfg(feature = \"more\")]
trait more::Work: Send
    const N: u8
    type T
    fn work(&self) -> u8 { … }
mod open
use open::ArrayRef = arrow::array::ArrayRef
#[derive(Debug, Clone)] #[non_exhaustive] struct open::Outer<T>
    field: Vec<T>
    fn new(field: &mut [T], size: usize) -> Self
    impl<T> std::fmt::Display for Inner<T>
enum open::Shape
    Point
    Line(u8)
    Box { side: u8 }
use Shape = open::Shape
fn g()
";
    assert_eq!(found, expected);
}
