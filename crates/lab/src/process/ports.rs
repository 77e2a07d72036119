//! Free ports on loopback.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// An address on loopback that nothing listens on at this moment.
///
/// Ports below the range that the kernel gives to outgoing connections are tried in turn, so that
/// the load's own connections cannot take the port before the server does.
///
/// # Errors
///
/// No port of the range is free.
pub fn free() -> io::Result<SocketAddr> {
    let span = LAST - FIRST;
    for _ in 0..span {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        // Runs that start at the same time have process ids that follow each other, and begin far apart:
        // between the look at a port and the server's, another run must not come to the same one.
        let start = std::process::id().wrapping_mul(STRIDE) % u32::from(span);
        let offset = (start + u32::from(step)) % u32::from(span);
        let port = FIRST + u16::try_from(offset).unwrap_or(0);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("no port from {FIRST} to {LAST} is free on {}", Ipv4Addr::LOCALHOST),
    ))
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
        let first = free().unwrap();
        let _taken = TcpListener::bind(first).unwrap();
        for _ in 0..100 {
            assert_ne!(free().unwrap(), first);
        }
    }
}
