//! One end of a connection: nonblocking, closed on exec, over TCP or a unix-domain socket.

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

/// A stream socket that connects, or was accepted.
#[derive(Debug)]
pub struct Socket {
    pub(crate) socket: OwnedFd,
}

pub(crate) const SOCKET_FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

impl Socket {
    /// Starts to connect to an address, without Nagle's delay. The attempt has ended when the socket
    /// is writable, and [`error`](Self::error) says how; a [`send`](Self::send) before that would
    /// block.
    ///
    /// # Errors
    ///
    /// The attempt has failed at once: no descriptor, no free local port, no route, or refused.
    pub fn connect(addr: SocketAddr) -> io::Result<Self> {
        let socket = tcp_socket(addr)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match rustix::net::connect(&socket, &addr) {
            // A signal does not stop the attempt, which goes on as after EINPROGRESS.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(Self { socket }),
            Err(error) => Err(error.into()),
        }
    }

    /// Connects to a unix-domain socket. This never takes time: it has happened when the call returns,
    /// or it will not.
    ///
    /// # Errors
    ///
    /// Nobody listens there, the path is longer than an address may be (107 bytes), or the backlog of
    /// the listener is full (`WouldBlock`).
    pub fn connect_unix(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
        rustix::net::connect(&socket, &address)?;
        Ok(Self { socket })
    }

    /// What has gone wrong on the socket since this was asked last; after a connect, how it ended.
    ///
    /// # Errors
    ///
    /// The kernel did not say.
    pub fn error(&self) -> io::Result<Option<io::Error>> {
        Ok(sockopt::socket_error(&self.socket)?.err().map(io::Error::from))
    }

    /// Receives what there is, up to the buffer's length; 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// There is nothing yet (`WouldBlock`), or the connection has failed.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (received, _) = rustix::net::recv(&self.socket, buffer, RecvFlags::empty())?;
        Ok(received)
    }

    /// Sends as many of the bytes as there is room for.
    ///
    /// # Errors
    ///
    /// There is no room (`WouldBlock`), as while connecting; or the connection has failed.
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL)?)
    }

    /// Sends as many of the bytes as there is room for, and leaves it to the kernel to hold back the last
    /// packet until more is sent or nothing more is to be ([`shutdown_write`](Self::shutdown_write)):
    /// the end then travels with the bytes, instead of in a packet of its own.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    #[inline]
    pub fn send_more(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::MORE)?)
    }

    /// Says that nothing more will be sent; what the peer sends can be received still.
    ///
    /// # Errors
    ///
    /// The connection has failed.
    pub fn shutdown_write(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.socket, Shutdown::Write)?)
    }

    /// Sends several slices, one after the other, as far as there is room for.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn send_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut control = rustix::net::SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(&self.socket, slices, &mut control, SendFlags::NOSIGNAL)?)
    }

    /// Closes with a reset. The pair of ports is free at once, where closing first would keep it for
    /// a minute (`TIME_WAIT`).
    ///
    /// # Errors
    ///
    /// None that is known of a stream socket.
    pub fn reset(self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO))?)
    }
}

/// A nonblocking stream socket.
impl From<OwnedFd> for Socket {
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub(crate) fn tcp_socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    Ok(rustix::net::socket_with(family, SocketType::STREAM, SOCKET_FLAGS, Some(ipproto::TCP))?)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::{Event, Events, Interest, Poller};

    fn wait_for(source: &Socket, interest: Interest) -> Event {
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
    fn over_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Socket::connect(listener.local_addr().unwrap()).unwrap();
        assert!(wait_for(&client, Interest::Writable).is_writable());
        assert!(client.error().unwrap().is_none());
        assert!(sockopt::tcp_nodelay(&client).unwrap());
        let (mut server, _) = listener.accept().unwrap();
        exchange(&client, &mut server);
        drop(server);
        assert!(wait_for(&client, Interest::Readable).is_readable());
        assert_eq!(client.receive(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn over_a_unix_socket() {
        let dir = std::env::temp_dir().join(format!("tollgate-socket-{}", std::process::id()));
        let listener = UnixListener::bind(&dir).unwrap();
        let client = Socket::connect_unix(&dir).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        exchange(&client, &mut server);
        std::fs::remove_file(&dir).unwrap();
        assert_eq!(Socket::connect_unix(&dir).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn what_is_sent_last_arrives_with_the_end_though_more_was_received_than_read() {
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
    fn a_refused_connect_says_so() {
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = match Socket::connect(addr) {
            Err(error) => error,
            Ok(client) => {
                assert!(wait_for(&client, Interest::Writable).is_closed());
                client.error().unwrap().unwrap()
            }
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_reset_is_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Socket::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.reset().unwrap();
        let error = server.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}
