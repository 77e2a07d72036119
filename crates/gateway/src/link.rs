//! One end of a connection, to a client or a backend: the only place that knows what carries the bytes.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

use tollgate_eventloop::{Event, Interest, Poller, Socket};

use crate::tls::{Identity, Session};

/// No packet of TCP has more: a loopback interface's have nearly as many.
const PACKET_BYTES_MAX: usize = 1 << 16;

/// A connection, and what the poller has told of it.
#[derive(Debug)]
pub(crate) struct Link {
    socket: Socket,
    /// What is between the socket and the bytes. None: they are sent in the clear.
    session: Option<Box<Session>>,
    /// There may be something to read. The poller tells once, and a read that leaves room in its
    /// buffer has taken all that there was.
    is_readable: bool,
    /// The peer has sent its last byte, of which a read that leaves room says nothing.
    is_shut: bool,
    /// Both directions are shut, or it has failed.
    is_closed: bool,
    /// Nothing more is sent once what TLS has still to say has gone out.
    is_finishing: bool,
    /// Whether the poller tells of room to write; `None` while it does not know the socket.
    watches_room: Option<bool>,
    /// What it has moved since that was asked last.
    received_bytes: Cell<u64>,
    sent_bytes: Cell<u64>,
}

/// What came of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Bytes(usize),
    /// There is nothing, until the poller tells of something.
    Nothing,
    /// The peer has sent its last byte.
    End,
}

impl Link {
    /// Of a socket on which something may have arrived already.
    pub(crate) fn new(socket: Socket) -> Self {
        Self {
            socket,
            session: None,
            is_readable: true,
            is_shut: false,
            is_closed: false,
            is_finishing: false,
            watches_room: None,
            received_bytes: Cell::new(0),
            sent_bytes: Cell::new(0),
        }
    }

    /// Of a client's socket. With an identity, the client speaks TLS.
    ///
    /// # Errors
    ///
    /// There is no memory for TLS.
    pub(crate) fn of_client(socket: Socket, identity: Option<&Identity>) -> io::Result<Self> {
        let session = identity.map(|identity| Session::new(identity).map(Box::new)).transpose()?;
        Ok(Self { session, ..Self::new(socket) })
    }

    /// Whether TLS carries the bytes.
    pub(crate) fn is_tls(&self) -> bool {
        self.session.is_some()
    }

    /// Of a socket that connects, on which nothing has arrived.
    pub(crate) fn connecting(socket: Socket) -> Self {
        Self { is_readable: false, ..Self::new(socket) }
    }

    /// Has the poller tell of what arrives and, if asked for, of room to write. Asked for again, it
    /// costs nothing; one who has waited for room goes on being told of it, which costs nothing either.
    pub(crate) fn watch(&mut self, poller: &Poller, token: u64, room: bool) -> io::Result<()> {
        let room = room || self.session.as_ref().is_some_and(|session| session.wants_room());
        let interest = if room { Interest::BothOnce } else { Interest::ReadableOnce };
        match self.watches_room {
            Some(watched) if watched || !room => return Ok(()),
            Some(_) => poller.modify(&self.socket, token, interest)?,
            None => poller.add(&self.socket, token, interest)?,
        }
        self.watches_room = Some(room);
        Ok(())
    }

    /// Whether the poller knows it.
    pub(crate) fn is_watched(&self) -> bool {
        self.watches_room.is_some()
    }

    /// Takes note of what the poller tells, which it will not tell again.
    pub(crate) fn notice(&mut self, event: Event) {
        let is_end = event.is_shut() || event.is_closed();
        self.is_readable |= event.is_readable() || is_end;
        self.is_shut |= is_end;
        self.is_closed |= event.is_closed();
        if event.is_writable() && self.flush().is_err() {
            self.is_closed = true;
            self.is_readable = true;
        }
    }

    /// Sends what TLS has still to say, and the end behind it if that is next.
    fn flush(&mut self) -> io::Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        if session.flush(&self.socket)? && self.is_finishing {
            self.finish()?;
        }
        Ok(())
    }

    /// Reads again, though the poller has told of nothing.
    pub(crate) fn look_again(&mut self) {
        self.is_readable = true;
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.is_readable
    }

    /// The peer takes nothing more, either.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Reads what there is, as far as the buffer has room.
    ///
    /// # Errors
    ///
    /// The connection has failed.
    #[inline]
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let received = match &mut self.session {
            None => self.socket.receive(buffer).map(|count| (count, count == buffer.len())),
            Some(session) => session.receive(&self.socket, buffer),
        };
        match received {
            Ok((0, _)) => Ok(Received::End),
            Ok((count, has_more)) => {
                self.is_readable = has_more || self.is_shut;
                self.received_bytes.update(|bytes| bytes + count as u64);
                Ok(Received::Bytes(count))
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                self.is_readable = error.kind() == ErrorKind::Interrupted;
                Ok(Received::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends what there is room for; fewer bytes than given means that there is no more room.
    ///
    /// # Errors
    ///
    /// The connection has failed.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send_part(bytes, false)
    }

    /// The same; where more `follows` at once, the kernel may hold back the last packet until it does, so that
    /// packets are full. Of fewer bytes than a packet may have, nothing would be out that brings an
    /// acknowledgement, with which the kernel sends what it holds back: it would wait for a fifth of a second.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    #[inline]
    pub(crate) fn send_part(&mut self, bytes: &[u8], follows: bool) -> io::Result<usize> {
        let sent = match &mut self.session {
            None if follows && bytes.len() >= PACKET_BYTES_MAX => self.socket.send_more(bytes),
            None => self.socket.send(bytes),
            Some(session) => session.send(&self.socket, bytes),
        };
        match sent {
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(0)
            }
            Ok(count) => {
                self.sent_bytes.update(|bytes| bytes + count as u64);
                Ok(count)
            }
            Err(error) => Err(error),
        }
    }

    /// The bytes that were received and sent since this was asked last.
    pub(crate) fn take_moved(&self) -> (u64, u64) {
        (self.received_bytes.take(), self.sent_bytes.take())
    }

    /// Says that nothing more is sent. Whether that has gone out: over TLS it takes bytes, for which there may
    /// be no room before the poller tells of some. A connection that is closed before looks broken off.
    ///
    /// # Errors
    ///
    /// The connection has failed.
    pub(crate) fn finish(&mut self) -> io::Result<bool> {
        if let Some(session) = &mut self.session
            && !session.finish(&self.socket)?
        {
            self.is_finishing = true;
            return Ok(false);
        }
        self.is_finishing = false;
        self.socket.shutdown_write()?;
        Ok(true)
    }

    /// Has the close be a reset, so that the peer does not take what it got for whole.
    pub(crate) fn break_off(self) {
        // One that has failed already is broken off.
        self.socket.reset().ok();
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Bytes that a peer had no room for.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
}

impl Unsent {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Keeps bytes that are to be sent after those that are kept already.
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Sends what there is room for, and says how many bytes that was. The memory is given back once
    /// nothing is left.
    ///
    /// # Errors
    ///
    /// The connection has failed.
    pub(crate) fn send(&mut self, link: &mut Link) -> io::Result<usize> {
        let count = link.send(&self.bytes[self.sent..])?;
        self.sent += count;
        if self.sent == self.bytes.len() {
            *self = Self::default();
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use tollgate_eventloop::Events;

    use super::*;

    /// A test fails rather than hangs after so long.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// The type of a record of TLS that is an alert (RFC 8446, section 5.1).
    const ALERT: u8 = 21;

    fn identity() -> Identity {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("pem"), folder.path().join("key"));
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
        openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-keyout"]);
        let output = openssl.arg(&key).arg("-out").arg(&certificate).output();
        let output = output.expect("openssl; to install it: apt-get install -y openssl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Identity::read(&certificate, &key).unwrap()
    }

    #[test]
    fn the_end_of_tls_waits_for_room_and_goes_out_once() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut link =
            Link::of_client(Socket::from(OwnedFd::from(near)), Some(&identity())).unwrap();
        let mut filled = 0;
        while let Ok(count) = link.socket.send(&[0; 4096]) {
            filled += count;
        }
        assert!(!link.finish().unwrap());

        far.read_exact(&mut vec![0; filled]).unwrap();
        let (poller, mut events) = (Poller::new().unwrap(), Events::with_capacity(1));
        link.watch(&poller, 0, false).unwrap();
        poller.wait(&mut events, Some(PATIENCE)).unwrap();
        link.notice(events.iter().next().unwrap());
        assert!(link.finish().unwrap());
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut end = Vec::new();
        far.read_to_end(&mut end).unwrap();
        assert_eq!((end.len(), end[0]), (7, ALERT));
    }

    #[test]
    fn where_what_follows_does_not_come_nothing_is_held_back() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut link = Link::new(Socket::connect(listener.local_addr().unwrap()).unwrap());
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        for size in [1, 1_000, PACKET_BYTES_MAX - 1, PACKET_BYTES_MAX, PACKET_BYTES_MAX + 1_000] {
            let mut took = || {
                let begun = Instant::now();
                assert_eq!(link.send_part(&vec![b'x'; size], true).unwrap(), size);
                far.read_exact(&mut vec![0; size]).unwrap();
                begun.elapsed()
            };
            // The kernel holds back what is no packet for 200 ms. A busy machine may take as long once.
            let shortest = (0..5).map(|_| took()).min().unwrap();
            assert!(shortest < Duration::from_millis(100), "{size} bytes took {shortest:?}");
        }
    }
}
