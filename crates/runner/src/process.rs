//! Child processes: start, measure and stop them; interruption of waits; ports and file limits.

pub(crate) mod attach;
pub mod command;
pub mod group;
pub(crate) mod idle_poll;
pub mod machine_lock;
pub mod usage;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Raises the soft limit on open files to the hard limit and returns it. Child processes inherit it.
pub fn raise_file_limit() -> nix::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

/// Set by a signal handler or another thread.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("interrupted")]
pub struct Interrupted;

impl Interrupt {
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Interrupted);
        }
        Ok(())
    }

    /// Calls `poll` until it returns a value. Returns `None` after `limit`. The error may be [`Interrupted`].
    pub fn wait<T>(
        &self,
        limit: Duration,
        mut poll: impl FnMut() -> io::Result<Option<T>>,
    ) -> anyhow::Result<Option<T>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(value) = poll()? {
                return Ok(Some(value));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            self.sleep(POLL)?;
        }
    }

    /// Sleeps until `duration` is over or the flag is set. Returns the longest delay of a wake-up: the time in which
    /// this process was ready to run but did not get a CPU.
    pub fn sleep(&self, duration: Duration) -> Result<Duration, Interrupted> {
        let mut now = Instant::now();
        let deadline = now + duration;
        let mut latest = Duration::ZERO;
        loop {
            self.check()?;
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                return Ok(latest);
            }
            let step = left.min(CHECK_INTERVAL);
            std::thread::sleep(step);
            let woken = Instant::now();
            latest = latest.max((woken - now).saturating_sub(step));
            now = woken;
        }
    }
}

const POLL: Duration = Duration::from_millis(5);
const CHECK_INTERVAL: Duration = Duration::from_millis(25);

/// Ports reserved for one trial until this is dropped. A server may bind its port a second after the port was
/// chosen; another run that took the port in between would be measured instead.
#[derive(Debug)]
pub struct Ports {
    /// Address of the servers.
    ip: IpAddr,
    /// Abstract Unix sockets, one for each port: only one process can hold a name, and the kernel frees it when the
    /// process ends.
    claims: Vec<UnixListener>,
}

impl Default for Ports {
    /// On the loopback interface.
    fn default() -> Self {
        Self::on(Ipv4Addr::LOCALHOST.into())
    }
}

impl Ports {
    pub fn on(ip: IpAddr) -> Self {
        Self { ip, claims: Vec::new() }
    }

    /// Reserves an address without a listener.
    ///
    /// Ports lie below the kernel's range for outgoing connections, so that a connection of the load generator cannot
    /// take one before the server does.
    pub fn free(&mut self) -> io::Result<SocketAddr> {
        let span = LAST - FIRST;
        for _ in 0..span {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            // Runs that start at the same time begin far apart and try few ports in vain.
            let start = std::process::id().wrapping_mul(STRIDE) % u32::from(span);
            let offset = (start + u32::from(step)) % u32::from(span);
            let port = FIRST + u16::try_from(offset).unwrap_or(0);
            let address = SocketAddr::new(self.ip, port);
            let Some(claim) = claim(port)? else { continue };
            if TcpListener::bind(address).is_ok() {
                self.claims.push(claim);
                return Ok(address);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("no free port from {FIRST} to {LAST} on {}", self.ip),
        ))
    }
}

/// Returns `None` if another run holds the port.
fn claim(port: u16) -> io::Result<Option<UnixListener>> {
    let name = UnixAddr::from_abstract_name(format!("tollgate-port-{port}"))?;
    match UnixListener::bind_addr(&name) {
        Ok(claim) => Ok(Some(claim)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

const FIRST: u16 = 18_000;
/// By default Linux uses ports from 32768 for outgoing connections.
const LAST: u16 = 32_000;
/// Coprime to the number of ports; small multiples of it are far apart.
const STRIDE: u32 = 7_919;
static NEXT: AtomicU16 = AtomicU16::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_ends_sleep() {
        let interrupt = Interrupt::default();
        assert!(interrupt.sleep(Duration::from_millis(1)).is_ok());
        interrupt.flag().store(true, Ordering::Relaxed);
        let start = Instant::now();
        assert_eq!(interrupt.sleep(Duration::from_secs(60)), Err(Interrupted));
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn skips_port_in_use() {
        let first = Ports::default().free().unwrap();
        let _listener = TcpListener::bind(first).unwrap();
        for _ in 0..100 {
            assert_ne!(Ports::default().free().unwrap(), first);
        }
    }

    #[test]
    fn reserves_port_until_dropped() {
        let mut ports = Ports::default();
        let port = ports.free().unwrap().port();
        assert!(claim(port).unwrap().is_none());
        drop(ports);
        assert!(claim(port).unwrap().is_some());
    }
}
