//! SecLang: the language of ModSecurity rules.

pub(crate) mod action;
pub(crate) mod directive;
pub(crate) mod lexer;
pub(crate) mod operator;
pub(crate) mod rule;
mod setting;
pub(crate) mod target;
