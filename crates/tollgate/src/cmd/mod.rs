//! One module a subcommand: its arguments, and what it does with them.

pub(crate) mod batch;
mod beginning;
pub(crate) mod catalog;
pub(crate) mod compare;
pub(crate) mod doctor;
mod gates;
pub(crate) mod gateway;
pub(crate) mod list;
pub(crate) mod load;
pub(crate) mod origin;
mod progress;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod systems;
