//! A search: the highest rate at which each subject keeps a goal, as an interval.
//!
//! Every step runs one trial of every subject whose search is not over, in shuffled order, each at
//! the rate that its own search asks for.

pub mod bracket;
pub mod findings;
pub mod judge;
pub mod report;
pub mod run;
pub mod slo;
pub mod terms;
