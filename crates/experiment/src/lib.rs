//! Inputs of runs: experiments, the catalog of systems and mixes, and the requests of their load.
//!
//! An experiment is loaded by a pipeline, each step a function from one type to the next: a [`toml_file::NamedText`] is parsed
//! into a [`file::ExperimentFile`], adjusted by the command line (`adjust`), expanded by its matrix (`matrix`), and resolved
//! by the catalog (`loading`) into an [`experiment::Experiment`]. Experiments without a file are made as the same type and
//! written as TOML. `manifest` describes an experiment for the records.

pub mod adjust;
pub mod catalog;
mod client;
pub mod corpus;
pub mod experiment;
pub mod external;
pub mod file;
pub mod load_file;
pub mod loading;
pub mod manifest;
pub mod matrix;
pub mod options;
pub mod recipe;
pub mod side_by_side;
pub mod toml_file;
mod validate;
pub mod workload;

#[cfg(test)]
#[path = "../../../tests/schemas.rs"]
mod schemas;
#[cfg(test)]
mod tests;
