//! The lab: experiment -> plan -> trials -> record -> analysis -> report.

pub mod ablation;
pub mod analysis;
pub mod batch;
mod blocks;
mod causes;
pub mod check;
pub mod compare;
pub mod doctor;
pub mod environment;
pub mod gate;
pub mod inputs;
pub mod interrupt;
pub mod layout;
pub mod manifest;
pub mod noise;
pub mod plan;
pub mod process;
pub mod record;
pub mod report;
pub mod run;
pub mod run_dir;
pub mod search;
pub mod system;
pub mod trial;
pub mod whole_file;
pub mod workload;
