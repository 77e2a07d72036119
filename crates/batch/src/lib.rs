//! Prices every revision of a component and finds the commits that changed the price.
//!
//! Each revision is built into a product. Products are measured in rounds; a round is an ordinary run whose baseline is a
//! pinned revision, the anchor. The state of a batch is read from its directory each time, so a killed batch continues.

mod batch;
mod build;
mod builds;
mod changes;
pub mod config;
mod division;
pub mod find;
pub mod findings;
mod inputs;
pub mod manifest;
pub mod measure;
pub mod nodes;
mod probes;
pub mod report;
pub mod repository;
pub mod request;
mod rounds;
pub mod run;
mod schedule;
pub mod series;
pub mod store;
