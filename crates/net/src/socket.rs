//! Nonblocking stream sockets over TCP and unix-domain sockets, closed on exec.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    ipproto, sockopt,
};

/// A nonblocking stream socket that connects or was accepted.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
}

pub(crate) const SOCKET_FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

impl Socket {
    /// Starts to connect, without Nagle's delay. The attempt has ended when the socket is writable;
    /// [`take_error`](Self::take_error) returns its result. A [`send`](Self::send) before that would block.
    pub fn connect(addr: SocketAddr) -> io::Result<Self> {
        let fd = tcp_socket(addr)?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        match rustix::net::connect(&fd, &addr) {
            // A signal does not stop the attempt, which continues as after EINPROGRESS.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(Self { fd }),
            Err(error) => Err(error.into()),
        }
    }

    /// Connects to a unix-domain socket. The connection exists when this returns.
    ///
    /// # Errors
    ///
    /// No listener (`ConnectionRefused` or `NotFound`), its backlog is full (`WouldBlock`), or the path is longer
    /// than 107 bytes.
    pub fn connect_unix(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let fd = unix_socket()?;
        rustix::net::connect(&fd, &address)?;
        Ok(Self { fd })
    }

    /// Returns and clears the pending error of the socket; after a connect, its result.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(sockopt::socket_error(&self.fd)?.err().map(io::Error::from))
    }

    /// Receives up to `buffer.len()` bytes. Returns 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// Nothing to receive (`WouldBlock`), or the connection has failed.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (received, _) = rustix::net::recv(&self.fd, buffer, RecvFlags::empty())?;
        Ok(received)
    }

    /// As [`receive`](Self::receive), but the bytes are received again.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (received, _) = rustix::net::recv(&self.fd, buffer, RecvFlags::PEEK)?;
        Ok(received)
    }

    /// The address at which a connection over TCP was accepted, or from which it was made.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(rustix::net::getsockname(&self.fd)?.try_into()?)
    }

    /// Sends as many bytes as there is room for, and returns their number.
    ///
    /// # Errors
    ///
    /// No room (`WouldBlock`), also while connecting; or the connection has failed.
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL)?)
    }

    /// As [`send`](Self::send), but the kernel may hold back the last packet until the next send or
    /// [`shutdown_write`](Self::shutdown_write), so that both leave in one packet (`MSG_MORE`).
    #[inline]
    pub fn send_more(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL | SendFlags::MORE)?)
    }

    /// As [`send`](Self::send), for several slices in one system call.
    pub fn send_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut control = rustix::net::SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(&self.fd, slices, &mut control, SendFlags::NOSIGNAL)?)
    }

    /// Ends the outgoing stream. Receiving remains possible.
    pub fn shutdown_write(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Write)?)
    }

    /// Closes the connection with a reset, which frees its pair of ports at once instead of after a minute
    /// (`TIME_WAIT`).
    pub fn reset(self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO))?)
    }
}

/// The descriptor must be a nonblocking stream socket.
impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn tcp_socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    Ok(rustix::net::socket_with(family, SocketType::STREAM, SOCKET_FLAGS, Some(ipproto::TCP))?)
}

pub(crate) fn unix_socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::{Events, Interest, PollEvent, Poller};

    fn wait_for(source: &Socket, interest: Interest) -> PollEvent {
        let poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(1);
        poller.add(source, 0, interest).unwrap();
        poller.wait(&mut events, Some(Duration::from_secs(5))).unwrap();
        events.iter().next().unwrap()
    }

    fn exchange(client: &Socket, server: &mut (impl Read + Write)) {
        let mut buffer = [0; 8];
        assert_eq!(client.receive(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(client.send(b"pi").unwrap(), 2);
        assert_eq!(client.send_slices(&[IoSlice::new(b"n"), IoSlice::new(b"g")]).unwrap(), 2);
        server.read_exact(&mut buffer[..4]).unwrap();
        assert_eq!(&buffer[..4], b"ping");
        server.write_all(b"pong").unwrap();
        assert!(wait_for(client, Interest::Readable).is_readable());
        assert_eq!(client.receive(&mut buffer).unwrap(), 4);
        assert_eq!(&buffer[..4], b"pong");
    }

    #[test]
    fn exchanges_bytes_over_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Socket::connect(listener.local_addr().unwrap()).unwrap();
        assert!(wait_for(&client, Interest::Writable).is_writable());
        assert!(client.take_error().unwrap().is_none());
        assert!(sockopt::tcp_nodelay(&client).unwrap());
        let (mut server, _) = listener.accept().unwrap();
        exchange(&client, &mut server);
        drop(server);
        assert!(wait_for(&client, Interest::Readable).is_readable());
        assert_eq!(client.receive(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn exchanges_bytes_over_unix_socket() {
        let dir = std::env::temp_dir().join(format!("tollgate-socket-{}", std::process::id()));
        let listener = UnixListener::bind(&dir).unwrap();
        let client = Socket::connect_unix(&dir).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        exchange(&client, &mut server);
        std::fs::remove_file(&dir).unwrap();
        assert_eq!(Socket::connect_unix(&dir).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn held_back_bytes_arrive_before_the_end_with_unread_input() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Socket::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"unread").unwrap();
        assert_eq!(client.send_more(b"end").unwrap(), 3);
        client.shutdown_write().unwrap();
        drop(client);
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        assert_eq!(received, b"end");
    }

    #[test]
    fn refused_connect_is_reported() {
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = match Socket::connect(addr) {
            Err(error) => error,
            Ok(client) => {
                assert!(wait_for(&client, Interest::Writable).is_closed());
                client.take_error().unwrap().unwrap()
            }
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn reset_is_seen_by_the_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Socket::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.reset().unwrap();
        let error = server.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}
