//! Configurations of nginx: directives with their blocks, and those of the files that `include` names.
//!
//! [`read`] takes a file, or the output of `nginx -T`, which contains the files; [`Directives`] writes them again.

mod directive;
mod files;
mod parse;

pub use directive::{Argument, Block, ConfigError, Directive, Directives, Place};
pub use parse::{Configuration, read};
