//! What a user writes, and what is kept of a run: catalog, recipes, experiments, plan, records, run directory.

pub mod ablation;
pub mod atomic_write;
pub mod blocks;
pub mod build;
pub mod catalog;
pub mod cpu_layout;
pub mod duration;
pub mod environment;
pub mod error_chain;
pub mod experiment;
pub mod hash;
pub mod installed;
pub mod manifest;
pub mod metric;
pub mod options;
pub mod percent;
pub mod plan;
pub mod precision;
pub mod recipe;
pub mod record;
pub mod replay;
pub mod run_dir;
pub mod search_file;
pub mod toml_file;
pub mod validity;
pub mod workload;
