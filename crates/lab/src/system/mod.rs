//! A subject's system on this machine: whether it is installed, and what its config becomes.

pub mod installed;
pub mod render;
