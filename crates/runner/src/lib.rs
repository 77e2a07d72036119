//! Effects of an experiment: processes, systems, one trial, a run of trials, ablation, doctor.

pub mod ablation;
pub mod doctor;
pub mod environment;
pub mod process;
pub mod run;
pub mod system;
pub mod trial;
