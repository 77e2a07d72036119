//! Records of runs: manifest, trials and the directory that holds them; and the plan that they are replayed through.
//!
//! Everything here is read back from disk by reports. Nothing here sends load or starts a server.

pub mod case;
pub mod difference;
pub mod error;
pub mod files;
pub mod machine;
pub mod manifest;
pub mod metric;
pub mod replay;
pub mod run_dir;
pub mod schedule;
pub mod stop;
pub mod subject;
pub mod trial;
pub mod validity;
