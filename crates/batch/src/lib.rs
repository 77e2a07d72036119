//! Prices every revision of a component and finds the commits that changed the price.
//!
//! Each revision is built into a product. Products are measured in rounds; a round is an ordinary run whose baseline is a
//! pinned revision, the anchor. The state of a batch is read from its directory each time, so a killed batch continues.

pub mod bisect_report;
mod build;
pub mod builder;
mod changes;
pub mod config;
pub mod find;
mod inputs;
pub mod manifest;
pub mod measure;
pub mod nodes;
pub mod report;
pub mod repository;
mod rounds;
pub mod run;
mod schedule;
pub mod series;
pub mod store;
