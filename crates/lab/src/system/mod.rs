//! A subject's system on this machine: whether it is installed, and what its config becomes.

mod bounded;
pub mod builds;
pub mod go;
pub mod installed;
pub mod packages;
pub mod render;
mod unfinished;
