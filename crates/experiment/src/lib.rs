//! Data of experiments, from input to result: catalog, recipes, experiments, plan, records and run directory.

pub mod catalog;
pub mod error;
pub mod experiment;
pub mod files;
pub mod machine;
pub mod manifest;
pub mod metric;
pub mod options;
pub mod plan;
pub mod recipe;
pub mod record;
pub mod run_dir;
pub mod stop;
pub mod toml_file;
pub mod units;
pub mod validity;
pub mod workload;

#[cfg(test)]
#[path = "../../../tests/schemas.rs"]
mod schemas;
