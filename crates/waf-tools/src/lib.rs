//! Tools beside the WAF engine: recorded requests, regression tests of rule sets, mutations of requests, and requests with hidden
//! attacks. Like the engine they open no socket and read no clock.

pub mod kinds;
pub mod mutation;
pub mod regression;
pub mod replay;
