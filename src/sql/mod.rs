//! Text to statements.
//!
//! Invariant: no name is resolved here and no type is checked; spans survive.

mod ast;

pub use ast::*;
