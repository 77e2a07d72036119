//! Tools beside the WAF engine: recorded requests, regression tests of rule sets, and mutations of requests. Like the engine
//! they open no socket and read no clock.

pub mod mutation;
pub mod regression;
pub mod replay;
