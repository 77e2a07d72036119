//! Taking connections: nonblocking, closed on exec and, over TCP, without Nagle's delay.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::sys::socket::SetSockOpt;
use nix::{libc, setsockopt_impl, sockopt_impl};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketType, sockopt};

use crate::socket::{SOCKET_FLAGS, Socket, tcp_socket};

/// Listens on `addr`, where a port of 0 asks for any free one, with room for `backlog` connections
/// that wait to be accepted (the kernel caps it at `net.core.somaxconn`).
///
/// `reuse_port` lets every thread have a listener of its own on one port; the kernel spreads the
/// connections over them.
///
/// # Errors
///
/// The address is taken, not of this machine, or needs rights that the process has not.
pub fn listen(addr: SocketAddr, reuse_port: bool, backlog: i32) -> io::Result<TcpListener> {
    let socket = tcp_socket(addr)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if reuse_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    // On Linux an accepted socket inherits this, which saves a system call for each connection.
    sockopt::set_tcp_nodelay(&socket, true)?;
    rustix::net::bind(&socket, &addr)?;
    rustix::net::listen(&socket, backlog)?;
    // And this, once it listens. Else the first request is acknowledged in a packet of its own, which
    // the peer has to take in; so it is by the answer, or after 40 milliseconds.
    sockopt::set_tcp_quickack(&socket, false)?;
    Ok(TcpListener::from(socket))
}

sockopt_impl!(
    /// For how many seconds a listener is not told of a connection on which nothing was sent (tcp(7)).
    TcpDeferAccept,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_DEFER_ACCEPT,
    u32
);

/// How long a client is waited for that has connected and says nothing, before it is accepted all the same: until
/// the kernel has asked it once more.
const DEFER_S: u32 = 1;

/// Whether connections are left to the kernel until their first bytes are there, so that who accepts one can read
/// at once. Those on which nothing comes are accepted after a second or so.
///
/// # Errors
///
/// It does not listen for TCP.
pub fn defer_accept(listener: &impl AsFd, defers: bool) -> io::Result<()> {
    let seconds = if defers { DEFER_S } else { 0 };
    Ok(TcpDeferAccept.set(listener, &seconds)?)
}

/// Listens on a unix-domain socket that is made at `path`, with room for `backlog` connections that
/// wait to be accepted. Nobody removes it when the listener is closed.
///
/// # Errors
///
/// There is something at `path` already (`AddrInUse`), the path is longer than an address may be (107
/// bytes), or its folder is missing or may not be written to.
pub fn listen_unix(path: &Path, backlog: i32) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Lets nobody join those who wait to be accepted, who still can be. Over a unix-domain socket, whoever knocks now
/// is refused. Over TCP they are neither accepted nor turned away until the listener is closed; only when nobody
/// waits is there room for one.
///
/// # Errors
///
/// It is no listener.
pub fn close_backlog(listener: impl AsFd) -> io::Result<()> {
    let listener = listener.as_fd();
    if rustix::net::getsockname(listener)?.address_family() == AddressFamily::UNIX {
        return Ok(rustix::net::shutdown(listener, Shutdown::Read)?);
    }
    Ok(rustix::net::listen(listener, 0)?)
}

/// Lets this many connections wait to be accepted from now on; again, at a listener of TCP whose backlog was closed.
///
/// # Errors
///
/// It is no listener.
pub fn set_backlog(listener: impl AsFd, backlog: i32) -> io::Result<()> {
    Ok(rustix::net::listen(listener, backlog)?)
}

/// Takes the next waiting connection with the address and port of its peer, which over a unix-domain socket
/// has none; or `None` when no connection waits.
///
/// One that its peer gave up while it waited may be passed over.
///
/// # Errors
///
/// Descriptors or memory have run out. The connection goes on waiting, and the listener stays ready.
pub fn accept(listener: impl AsFd) -> io::Result<Option<(Socket, Option<SocketAddr>)>> {
    // Bounded by the backlog: each turn of the loop takes one connection out of it.
    loop {
        match rustix::net::acceptfrom_with(&listener, SOCKET_FLAGS) {
            Ok((socket, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                return Ok(Some((Socket::from(socket), peer)));
            }
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write};
    use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;
    use crate::{Events, Interest, Poller};

    const BACKLOG: i32 = 16;

    #[test]
    fn nobody_joins_a_backlog_that_was_closed_and_who_was_there_is_accepted() {
        let listener = listen(ANY_PORT, false, BACKLOG).unwrap();
        let addr = listener.local_addr().unwrap();
        let _waiting: Vec<_> = (0..3).map(|_| TcpStream::connect(addr).unwrap()).collect();
        close_backlog(&listener).unwrap();
        let error = TcpStream::connect_timeout(&addr, Duration::from_millis(100)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        for _ in 0..3 {
            assert!(accept(&listener).unwrap().is_some());
        }
        assert!(accept(&listener).unwrap().is_none());
        set_backlog(&listener, BACKLOG).unwrap();
        let _again: Vec<_> = (0..3).map(|_| TcpStream::connect(addr).unwrap()).collect();
        assert!(accept(&listener).unwrap().is_some());
    }

    #[test]
    fn who_knocks_at_a_unix_socket_whose_backlog_was_closed_is_refused_at_once() {
        let path = std::env::temp_dir().join(format!("tollgate-backlog-{}", std::process::id()));
        let listener = listen_unix(&path, BACKLOG).unwrap();
        let _waiting: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        close_backlog(&listener).unwrap();
        for _ in 0..3 {
            // One that would wait for room is told so.
            let error = Socket::connect_unix(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            assert!(accept(&listener).unwrap().is_some());
        }
        // There is room, and it is not for anybody.
        assert!(accept(&listener).unwrap().is_none());
        let error = Socket::connect_unix(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_deferred_connection_is_accepted_with_its_first_bytes_or_after_a_time() {
        let listener = listen(ANY_PORT, false, BACKLOG).unwrap();
        defer_accept(&listener, true).unwrap();
        let mut silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(accept(&listener).unwrap().is_none());
        silent.write_all(b"ping").unwrap();
        let (server, _) = accept(&listener).unwrap().unwrap();
        assert_eq!(server.receive(&mut [0; 8]).unwrap(), 4);

        let _silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(1);
        poller.add(&listener, 0, Interest::Readable).unwrap();
        poller.wait(&mut events, Some(Duration::from_secs(10))).unwrap();
        assert!(accept(&listener).unwrap().is_some());

        defer_accept(&listener, false).unwrap();
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(accept(&listener).unwrap().is_some());
    }

    const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    fn connect_accept_exchange(addr: SocketAddr) {
        let listener = listen(addr, false, BACKLOG).unwrap();
        assert!(accept(&listener).unwrap().is_none());

        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = accept(&listener).unwrap().unwrap();
        assert!(sockopt::tcp_nodelay(&server).unwrap());
        assert!(!sockopt::tcp_quickack(&server).unwrap());
        assert_eq!(peer, Some(client.local_addr().unwrap()));

        let blocked = server.receive(&mut [0; 8]).unwrap_err();
        assert_eq!(blocked.kind(), ErrorKind::WouldBlock);
        client.write_all(b"ping").unwrap();
        let poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(1);
        poller.add(&server, 0, Interest::Readable).unwrap();
        poller.wait(&mut events, Some(Duration::from_secs(5))).unwrap();
        assert!(events.iter().next().unwrap().is_readable());
        let mut received = [0; 8];
        assert_eq!(server.receive(&mut received).unwrap(), 4);
        assert_eq!(&received[..4], b"ping");
    }

    #[test]
    fn ipv4_both_ways() {
        connect_accept_exchange(ANY_PORT);
    }

    #[test]
    fn ipv6_both_ways() {
        let addr = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        match listen(addr, false, BACKLOG) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                eprintln!("this machine has no IPv6 loopback");
            }
            _ => connect_accept_exchange(addr),
        }
    }

    #[test]
    fn only_reuse_port_shares_a_port() {
        let alone = listen(ANY_PORT, false, BACKLOG).unwrap();
        let taken = listen(alone.local_addr().unwrap(), true, BACKLOG).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);

        let shared = listen(ANY_PORT, true, BACKLOG).unwrap();
        listen(shared.local_addr().unwrap(), true, BACKLOG).unwrap();
    }
}
