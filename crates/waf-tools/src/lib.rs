//! Tools beside the WAF engine: logs, recorded requests, differences between rule sets, exclusions and their proof, regression
//! tests, mutations of requests, and requests with hidden attacks. Like the engine they open no socket and read no clock.

pub mod difference;
pub mod kinds;
pub mod log;
pub mod mutation;
pub mod regression;
pub mod replay;
pub mod tuning;
