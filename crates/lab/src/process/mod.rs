//! The processes of a trial: started in groups of their own, read from outside, stopped for good.

pub mod files;
pub mod group;
pub mod idle_poll;
pub mod memory;
pub mod ports;
pub mod tree;
pub mod usage;
