//! Makes static pages of the documents: those of `docs/SUMMARY.md`, and all that they link to. A link that leads nowhere is an
//! error.
//!
//! A page has the path of its document, with `.html`, and links to other files of the repository lead to copies of them.

mod page;
mod tree;

pub use tree::Tree;
