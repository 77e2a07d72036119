//! Listening on TCP and unix-domain sockets, and accepting connections.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use nix::sys::socket::SetSockOpt;
use nix::{libc, setsockopt_impl, sockopt_impl};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, sockopt};

use crate::socket::{SOCKET_FLAGS, Socket, tcp_socket, unix_socket};

/// A deferred connection without bytes is accepted after this time: one retransmission.
const DEFER_S: u32 = 1;

/// Attempts to lock a folder, and the pause between them.
const LOCK_ATTEMPTS_MAX: usize = 1_000;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// An address to listen on or to connect to. As text: `127.0.0.1:8000`, `[::1]:8000` or `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected ADDRESS:PORT, such as 127.0.0.1:8080, or unix:/path/to/socket")]
pub struct AddressParseError;

impl Address {
    /// Starts to connect, see [`Socket::connect`] and [`Socket::connect_unix`].
    pub fn connect(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(address) => Socket::connect(*address),
            Self::Unix(path) => Socket::connect_unix(path),
        }
    }

    /// Returns the advice for an error of listening on this address.
    pub fn listen_advice(&self, error: &io::Error) -> &'static str {
        match (self, error.kind()) {
            (_, ErrorKind::AddrInUse) => "stop the program that uses it or choose another address",
            (Self::Tcp(_), ErrorKind::AddrNotAvailable) => "choose an address of this machine",
            (Self::Tcp(_), ErrorKind::PermissionDenied) => {
                "choose a port above 1023, or allow this one (CAP_NET_BIND_SERVICE)"
            }
            (Self::Tcp(_), _) => "choose another address",
            (Self::Unix(_), ErrorKind::AlreadyExists) => "not a socket; choose another path",
            (Self::Unix(_), ErrorKind::ResourceBusy) => {
                "another process locks the directory; stop it or choose another directory"
            }
            (Self::Unix(_), _) => {
                "choose a path of at most 107 bytes in a readable and writable directory"
            }
        }
    }
}

impl FromStr for Address {
    type Err = AddressParseError;

    fn from_str(text: &str) -> Result<Self, AddressParseError> {
        match text.strip_prefix("unix:") {
            Some("") => Err(AddressParseError),
            Some(path) => Ok(Self::Unix(PathBuf::from(path))),
            None => text.parse().map(Self::Tcp).or(Err(AddressParseError)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

/// Listens on `addr`; port 0 picks a free one. The kernel caps `backlog` at `net.core.somaxconn`.
///
/// With `reuse_port`, every thread can have its own listener on one port; the kernel distributes the connections.
pub fn listen(addr: SocketAddr, reuse_port: bool, backlog: i32) -> io::Result<TcpListener> {
    let socket = tcp_socket(addr)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if reuse_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    // Accepted sockets inherit this on Linux, which saves a system call for each connection.
    sockopt::set_tcp_nodelay(&socket, true)?;
    rustix::net::bind(&socket, &addr)?;
    rustix::net::listen(&socket, backlog)?;
    // Inherited if set after listen. The first request is then acknowledged by the response, or after 40 ms,
    // instead of by a packet of its own.
    sockopt::set_tcp_quickack(&socket, false)?;
    Ok(TcpListener::from(socket))
}

/// Opens a listener for each thread. Returns them with the actual address.
pub fn listen_per_thread(
    addr: SocketAddr,
    threads: usize,
    backlog: i32,
) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
    // Listeners that share a port would also share it with another program, which would then receive a part of the
    // requests. An exclusive listener detects that.
    let exclusive = listen(addr, false, backlog)?;
    let addr = exclusive.local_addr()?;
    if threads == 1 {
        return Ok((addr, vec![exclusive.into()]));
    }
    drop(exclusive);
    let listeners = (0..threads).map(|_| listen(addr, true, backlog).map(OwnedFd::from));
    Ok((addr, listeners.collect::<io::Result<_>>()?))
}

/// Listens on a new unix-domain socket at `path`, which must not exist (`AddrInUse`).
fn listen_unix(path: &Path, backlog: i32) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = unix_socket()?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

sockopt_impl!(
    /// Seconds that a connection may stay unreported without bytes (tcp(7)).
    TcpDeferAccept,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_DEFER_ACCEPT,
    u32
);

/// Defers the acceptance of connections until their first bytes arrive, for about a second at most, so that an
/// accepted connection can be read at once. False turns this off.
pub fn defer_accept(listener: &impl AsFd, defers: bool) -> io::Result<()> {
    let seconds = if defers { DEFER_S } else { 0 };
    Ok(TcpDeferAccept.set(listener, &seconds)?)
}

/// Stops queueing new connections; queued ones can still be accepted. A unix-domain socket refuses new connections. A
/// TCP listener leaves them unanswered until it is closed; an empty queue still accepts one.
pub fn close_backlog(listener: impl AsFd) -> io::Result<()> {
    let listener = listener.as_fd();
    if rustix::net::getsockname(listener)?.address_family() == AddressFamily::UNIX {
        return Ok(rustix::net::shutdown(listener, Shutdown::Read)?);
    }
    Ok(rustix::net::listen(listener, 0)?)
}

/// Changes the backlog. On a TCP listener, reverses [`close_backlog`].
pub fn set_backlog(listener: impl AsFd, backlog: i32) -> io::Result<()> {
    Ok(rustix::net::listen(listener, backlog)?)
}

/// Accepts the next queued connection. Returns `None` if none is queued. The address is `None` over a
/// unix-domain socket. Skips connections that the peer has already aborted.
///
/// # Errors
///
/// No file descriptors or memory left. The connection stays queued, and the listener stays ready.
pub fn accept(listener: impl AsFd) -> io::Result<Option<(Socket, Option<SocketAddr>)>> {
    // Bounded by the backlog: each iteration takes one connection out of it.
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

/// The file of a unix-domain socket. Removed on drop, unless another socket has taken its place.
#[derive(Debug)]
pub struct UnixSocket {
    /// Program name for the message about a failed removal.
    program: &'static str,
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl UnixSocket {
    /// Listens at `path`. Replaces a socket that has no listener any more. Returns a descriptor for each thread; all
    /// accept from the same socket.
    ///
    /// # Errors
    ///
    /// `AddrInUse`: the socket has a listener. `AlreadyExists`: `path` is not a socket. Otherwise `path` is longer
    /// than 107 bytes, or its folder is missing or not writable.
    pub fn listen(
        path: &Path,
        threads: usize,
        backlog: i32,
        program: &'static str,
    ) -> io::Result<(Vec<OwnedFd>, Self)> {
        let _lock = lock_folder(path)?;
        let listener = match listen_unix(path, backlog) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                remove_stale(path)?;
                listen_unix(path, backlog)?
            }
            result => result?,
        };
        let created = fs::symlink_metadata(path)?;
        let (device, inode) = (created.dev(), created.ino());
        let file = Self { program, path: path.to_owned(), device, inode };
        let mut listeners =
            (1..threads).map(|_| listener.try_clone()).collect::<Result<Vec<_>, _>>()?;
        listeners.push(listener);
        Ok((listeners, file))
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // Without the lock, another process could replace the socket between the check and the removal.
        let _lock = lock_folder(&self.path);
        let is_same = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if is_same && let Err(error) = fs::remove_file(&self.path) {
            eprintln!("{}: cannot remove socket {}: {error}", self.program, self.path.display());
        }
    }
}

/// Locks the folder of `path` against other Tollgate processes that create or remove sockets in it: a socket
/// that is bound but does not listen yet looks stale.
fn lock_folder(path: &Path) -> io::Result<File> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => File::open(folder)?,
        _ => File::open(".")?,
    };
    // Tollgate holds the lock for less than a millisecond; other programs may hold it for ever.
    for _ in 0..LOCK_ATTEMPTS_MAX {
        match folder.try_lock() {
            Ok(()) => return Ok(folder),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(ErrorKind::ResourceBusy, "folder is locked by another process"))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    match Socket::connect_unix(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(_) => Err(ErrorKind::AddrInUse.into()),
        // The backlog of the listener is full.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::AddrInUse.into()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::{Events, Interest, Poller};

    const BACKLOG: i32 = 16;

    #[test]
    fn closed_backlog_keeps_queued_tcp_connections_only() {
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
    fn closed_backlog_refuses_new_unix_connections() {
        let path = std::env::temp_dir().join(format!("tollgate-backlog-{}", std::process::id()));
        let listener = listen_unix(&path, BACKLOG).unwrap();
        let _waiting: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        close_backlog(&listener).unwrap();
        for _ in 0..3 {
            let error = Socket::connect_unix(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            assert!(accept(&listener).unwrap().is_some());
        }
        assert!(accept(&listener).unwrap().is_none());
        let error = Socket::connect_unix(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn deferred_connection_is_accepted_with_first_bytes_or_after_a_second() {
        let listener = listen(ANY_PORT, false, BACKLOG).unwrap();
        defer_accept(&listener, true).unwrap();
        let mut silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        thread::sleep(Duration::from_millis(50));
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

    const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

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
    fn accepts_and_exchanges_over_ipv4() {
        connect_accept_exchange(ANY_PORT);
    }

    #[test]
    fn accepts_and_exchanges_over_ipv6() {
        let addr = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        match TcpListener::bind(addr) {
            Ok(_) => connect_accept_exchange(addr),
            // Without an IPv6 loopback address.
            Err(expected) => {
                assert_eq!(listen(addr, false, BACKLOG).unwrap_err().kind(), expected.kind());
            }
        }
    }

    #[test]
    fn only_reuse_port_listeners_share_a_port() {
        let alone = listen(ANY_PORT, false, BACKLOG).unwrap();
        let taken = listen(alone.local_addr().unwrap(), true, BACKLOG).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);

        let shared = listen(ANY_PORT, true, BACKLOG).unwrap();
        listen(shared.local_addr().unwrap(), true, BACKLOG).unwrap();
    }
    #[test]
    fn replaces_stale_unix_socket_only() {
        let path = std::env::temp_dir().join(format!("tollgate-file-{}", std::process::id()));
        let stale = listen_unix(&path, 1).unwrap();
        drop(stale);
        let (_listener, file) = UnixSocket::listen(&path, 1, 1, "test").unwrap();
        let again = UnixSocket::listen(&path, 1, 1, "test").map(|_| ()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
        drop(file);
        assert!(!path.exists());
        fs::write(&path, "a file").unwrap();
        let other = UnixSocket::listen(&path, 1, 1, "test").map(|_| ()).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::AlreadyExists);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn listen_address_parses_as_displayed() {
        for text in ["127.0.0.1:8000", "[::1]:0", "unix:/run/a b.sock", "unix:here"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "8000", "localhost:8000", "127.0.0.1", "unix:", "UNIX:/a"] {
            assert_eq!(text.parse::<Address>(), Err(AddressParseError), "{text}");
        }
    }
}
