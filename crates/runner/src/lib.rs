//! Effects of an experiment: processes, systems, servers by role, benches, one trial, a run of trials, ablation, doctor.

pub mod ablation;
pub mod bench;
mod client;
pub mod doctor;
pub mod environment;
pub mod measurement;
pub mod probe;
pub mod process;
pub mod role;
pub mod run;
pub mod system;
pub mod trial;
