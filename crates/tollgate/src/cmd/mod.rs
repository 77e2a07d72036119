//! One module per subcommand.

pub(crate) mod batch;
pub(crate) mod compare;
pub(crate) mod doctor;
pub(crate) mod gateway;
pub(crate) mod init;
pub(crate) mod list;
pub(crate) mod load;
pub(crate) mod mix;
pub(crate) mod origin;
pub(crate) mod packaging;
pub(crate) mod prepare;
mod progress;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod search;
pub(crate) mod systems;
mod threshold;
pub(crate) mod waf;
mod waf_replay;
