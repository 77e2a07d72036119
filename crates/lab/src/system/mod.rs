//! A subject's system on this machine: whether it is installed, and what its config becomes.

pub mod builds;
pub mod installed;
pub mod packages;
pub mod render;
