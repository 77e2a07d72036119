//! Free ports on loopback.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// The ports of a trial, which no other run on this machine is given as long as this is there: a server
/// may take a second from the look at its port to its own bind, and whoever took that port in between
/// would be measured in its place.
#[derive(Debug, Default)]
pub struct Ports {
    /// A name that only one process can have, which the kernel frees with the process.
    claims: Vec<UnixListener>,
}

impl Ports {
    /// An address on loopback that nothing listens on at this moment.
    ///
    /// Ports below the range that the kernel gives to outgoing connections are tried in turn, so that
    /// the load's own connections cannot take the port before the server does.
    ///
    /// # Errors
    ///
    /// No port of the range is free, or the process may open no more files.
    pub fn free(&mut self) -> io::Result<SocketAddr> {
        let span = LAST - FIRST;
        for _ in 0..span {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            // Runs that start at the same time begin far apart, so that few ports are looked at in vain.
            let start = std::process::id().wrapping_mul(STRIDE) % u32::from(span);
            let offset = (start + u32::from(step)) % u32::from(span);
            let port = FIRST + u16::try_from(offset).unwrap_or(0);
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let Some(claim) = claim(port)? else { continue };
            if TcpListener::bind(address).is_ok() {
                self.claims.push(claim);
                return Ok(address);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("no port from {FIRST} to {LAST} is free on {}", Ipv4Addr::LOCALHOST),
        ))
    }
}

/// A claim on a port; none where another run has it.
fn claim(port: u16) -> io::Result<Option<UnixListener>> {
    let name = UnixAddr::from_abstract_name(format!("tollgate-port-{port}"))?;
    match UnixListener::bind_addr(&name) {
        Ok(claim) => Ok(Some(claim)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

const FIRST: u16 = 18_000;
/// Linux gives ports from 32768 on to outgoing connections unless it is told otherwise.
const LAST: u16 = 32_000;
/// Coprime to the number of ports, and with small multiples that are far apart in it.
const STRIDE: u32 = 7_919;
static NEXT: AtomicU16 = AtomicU16::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_not_given() {
        let first = Ports::default().free().unwrap();
        let _taken = TcpListener::bind(first).unwrap();
        for _ in 0..100 {
            assert_ne!(Ports::default().free().unwrap(), first);
        }
    }

    #[test]
    fn a_port_is_given_to_one_until_that_one_is_gone() {
        let mut ports = Ports::default();
        let port = ports.free().unwrap().port();
        assert!(claim(port).unwrap().is_none());
        drop(ports);
        assert!(claim(port).unwrap().is_some());
    }
}
