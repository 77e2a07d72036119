//! The highest rate at which each subject meets its goals, as an interval.
//!
//! Each step runs one trial of every subject whose search is not finished, in shuffled order, each at the rate that
//! its own search needs.

pub mod bracket;
pub mod goal;
pub mod parameters;
pub mod report;
pub mod run;

#[cfg(test)]
#[path = "../../../tests/schemas.rs"]
mod schemas;
