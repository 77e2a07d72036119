//! What is sent: request templates, each of a class, mixed by weight from a seed.
//!
//! This crate is pure. It knows what a request says and what answer it deserves, and opens no file or
//! socket. Everything is checked when a [`Mix`] is made, by the code of `tollgate-wire` that turns
//! requests to bytes later: what that code would refuse in the middle of a run is refused here.

mod body;
mod error;
mod message;
mod mix;
mod script;
mod template;
mod text;
mod variable;

pub use body::BodyRepeat;
pub use error::MixError;
pub use message::Message;
pub use mix::{IncludeFile, Mix, MixFile, MixTree};
pub use script::Step;
pub use template::{Class, Expect, MAX_CONTAINS_BYTES, Template, TemplateFile};
pub use variable::{VariableError, VariableFile};
