//! Child processes: start, measure and stop them; ports and file limits for them.

pub mod command;
pub mod group;
pub mod idle_poll;
pub mod ports;
pub mod usage;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit on open files to the hard limit and returns it. Child processes inherit it.
pub fn raise_file_limit() -> nix::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}
