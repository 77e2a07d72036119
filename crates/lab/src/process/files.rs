//! How many files this process may open: a connection is one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard one, which any process may, and tells it. Processes that are
/// started later inherit it.
///
/// # Errors
///
/// The operating system refuses.
pub fn raise_limit() -> nix::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}
