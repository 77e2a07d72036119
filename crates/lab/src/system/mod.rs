//! A subject's system on this machine: whether it is installed, and what its config becomes.

mod bounded;
pub mod builds;
pub mod go;
mod in_use;
pub mod installed;
pub mod packages;
pub mod render;
pub mod results;
mod unfinished;
pub mod versions;

/// Whether something holds within ten seconds. A process that another test starts has what is open here until it
/// runs its program, and a lock with it.
#[cfg(test)]
fn soon(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !holds() {
        if std::time::Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    true
}
