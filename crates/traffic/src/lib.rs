//! What is sent: request templates, each of a class, mixed by weight from a seed.
//!
//! This crate is pure. It knows what a request says and what answer it deserves; it renders no
//! bytes and opens no file or socket.

mod mix;
mod template;

pub use mix::{Mix, MixError, MixFile};
pub use template::{Class, Expect, Template, TemplateFile};
