//! What a run is made from: experiments, systems and mixes, read from files and checked once.

pub mod build;
pub mod catalog;
pub mod duration;
pub mod experiment;
pub mod options;
pub mod percent;
pub mod recipe;
pub mod toml_file;
