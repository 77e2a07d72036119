//! Connections to clients and backends, plain or TLS.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use tollgate_net::{Address, Interest, PollEvent, Poller, Socket, try_io};

use crate::client::TlsClient;
use crate::protocol::HttpProtocol;
use crate::server::TlsServer;
use crate::session::{SessionFacts, StreamEnd, TlsSession};

/// Upper bound of a TCP packet; loopback packets are nearly as large.
const PACKET_BYTES_MAX: usize = 1 << 16;

/// A nonblocking connection with its readiness.
#[derive(Debug)]
pub struct Transport {
    socket: Socket,
    /// Bytes that are sent before all others, those of TLS included.
    first: Vec<u8>,
    /// `None`: plain.
    session: Option<Box<TlsSession>>,
    /// A read may find something. The poller reports once, and a read that does not fill its buffer has taken
    /// everything.
    is_readable: bool,
    /// The peer has shut down its sending side, which a read that does not fill its buffer does not show.
    is_read_shut: bool,
    /// Both directions are shut down, or the connection has failed.
    is_closed: bool,
    has_failed: bool,
    /// The sending side is shut down once pending TLS records are sent.
    is_shutting_down: bool,
    /// True if the poller reports writability; `None` if not registered.
    watches_writable: Option<bool>,
    /// Since the last [`take_byte_counts`](Self::take_byte_counts).
    received_bytes: Cell<u64>,
    sent_bytes: Cell<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Bytes(usize),
    /// Nothing until the next event.
    Nothing,
    /// The peer has shut down its sending side.
    End,
}

impl Transport {
    /// Wraps a connected socket that may already have received bytes.
    pub fn new(socket: Socket) -> Self {
        Self {
            socket,
            first: Vec::new(),
            session: None,
            is_readable: true,
            is_read_shut: false,
            is_closed: false,
            has_failed: false,
            is_shutting_down: false,
            watches_writable: None,
            received_bytes: Cell::new(0),
            sent_bytes: Cell::new(0),
        }
    }

    /// Wraps a client's socket; with `tls`, TLS is expected on it.
    pub fn client(socket: Socket, tls: Option<&TlsServer>) -> io::Result<Self> {
        let session = tls.map(|tls| tls.accept().map(Box::new)).transpose()?;
        Ok(Self { session, ..Self::new(socket) })
    }

    /// Connects to a backend. With `tls`, [`handshake`](Self::handshake) must be called until it is complete.
    pub fn connect(address: &Address, tls: Option<&TlsClient>) -> io::Result<Self> {
        let session = tls.map(TlsClient::connect).transpose()?;
        Ok(Self::connecting(address.connect()?, session))
    }

    /// Wraps a socket that connects, for a caller that creates the session before: its keys take longer than the connect.
    pub fn connecting(socket: Socket, session: Option<TlsSession>) -> Self {
        let session = session.map(Box::new);
        Self { session, is_readable: false, ..Self::new(socket) }
    }

    /// Returns the result of the connect, once the socket is reported as writable.
    pub fn connect_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// Sends `bytes` before all others, by [`handshake`](Self::handshake), which must be called until it is complete.
    pub fn send_first(&mut self, bytes: Vec<u8>) {
        self.first = bytes;
    }

    /// Returns true if the first bytes are sent.
    fn flush_first(&mut self) -> io::Result<bool> {
        if !self.first.is_empty() {
            let count = self.count_sent(try_io(|| self.socket.send_more(&self.first)))?;
            self.first.drain(..count);
        }
        Ok(self.first.is_empty())
    }

    /// Continues a TLS handshake, after the first bytes. Returns true if neither is in progress.
    pub fn handshake(&mut self) -> io::Result<bool> {
        if !self.flush_first()? {
            return Ok(false);
        }
        let Some(session) = self.session.as_mut().filter(|session| session.is_handshaking()) else {
            return Ok(true);
        };
        let is_complete = session.handshake(&self.socket)?;
        // An incomplete handshake has emptied the socket.
        self.is_readable &= is_complete;
        Ok(is_complete)
    }

    #[inline]
    pub fn is_handshaking(&self) -> bool {
        !self.first.is_empty()
            || self.session.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// True if the TLS handshake resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_resumed())
    }

    /// False if TLS is expected and the peer has sent nothing.
    pub fn has_begun_tls(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.has_begun())
    }

    /// Facts of a complete TLS handshake.
    pub fn tls_facts(&self) -> Option<SessionFacts<'_>> {
        self.session.as_ref()?.facts()
    }

    /// True if the peer has closed its connection without ending the TLS session, so that bytes may be missing.
    pub fn is_truncated(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.end() == Some(StreamEnd::Truncated))
    }

    /// Continues without TLS, which must not have begun.
    pub fn end_tls(&mut self) {
        self.session = None;
    }

    pub fn is_tls(&self) -> bool {
        self.session.is_some()
    }

    /// Returns the protocol of a client whose first bytes are `input`, after its TLS handshake; `None` while more bytes are
    /// needed.
    pub fn client_protocol(&self, input: &[u8]) -> Option<HttpProtocol> {
        match &self.session {
            Some(session) => Some(session.protocol()),
            None => HttpProtocol::of_first_bytes(input),
        }
    }

    /// The TLS session, if there is one.
    pub fn session(&self) -> Option<&TlsSession> {
        self.session.as_deref()
    }

    /// Registers with the poller: for readability and, if `writable`, for room to write. Interest in room remains
    /// once set. Repeated calls cost nothing.
    #[inline]
    pub fn watch(&mut self, poller: &Poller, token: u64, writable: bool) -> io::Result<()> {
        let writable = writable
            || !self.first.is_empty()
            || self.session.as_ref().is_some_and(|session| session.wants_write());
        let interest = if writable { Interest::BothEdge } else { Interest::ReadableEdge };
        match self.watches_writable {
            Some(watched) if watched || !writable => return Ok(()),
            Some(_) => poller.modify(&self.socket, token, interest)?,
            None => poller.add(&self.socket, token, interest)?,
        }
        self.watches_writable = Some(writable);
        Ok(())
    }

    pub fn is_watched(&self) -> bool {
        self.watches_writable.is_some()
    }

    /// Records an event of the poller, which is not reported again.
    #[inline]
    pub fn on_event(&mut self, event: PollEvent) {
        let is_end = event.is_read_closed() || event.is_closed();
        self.is_readable |= event.is_readable() || is_end;
        self.is_read_shut |= is_end;
        self.is_closed |= event.is_closed();
        self.has_failed |= event.has_failed();
        // In the clear, nothing waits for room here.
        if event.is_writable() && self.session.is_some() && self.on_writable().is_err() {
            self.is_closed = true;
            self.has_failed = true;
            self.is_readable = true;
        }
    }

    /// Sends pending TLS records, then shuts down if requested.
    fn on_writable(&mut self) -> io::Result<()> {
        if self.flush()? && self.is_shutting_down {
            self.shutdown()?;
        }
        Ok(())
    }

    /// Sends pending TLS records, such as those of a handshake, after the first bytes. Returns true if none are left.
    pub fn flush(&mut self) -> io::Result<bool> {
        if !self.flush_first()? {
            return Ok(false);
        }
        self.session.as_mut().map_or(Ok(true), |session| session.flush(&self.socket))
    }

    /// Makes the next read try, regardless of events.
    pub fn assume_readable(&mut self) {
        self.is_readable = true;
    }

    pub fn is_readable(&self) -> bool {
        self.is_readable
    }

    /// True if the peer is known to have shut down its sending side. Bytes that it sent before may be unread.
    pub fn is_read_shut(&self) -> bool {
        self.is_read_shut
    }

    /// True if the kernel holds unread bytes of the peer. Cheaper than a read without result.
    pub fn has_unread_bytes(&self) -> bool {
        // Fails only if the connection has failed.
        rustix::io::ioctl_fionread(&self.socket).is_ok_and(|count| count > 0)
    }

    /// True if the peer neither sends nor receives any more.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// True if the connection is known to have failed, such as by a reset. Bytes that the peer sent before may be unread.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Reads as much as fits into the buffer.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let received = try_io(|| match &mut self.session {
            None => self.socket.receive(buffer).map(|count| (count, count == buffer.len())),
            Some(session) => session.receive(&self.socket, buffer, self.is_read_shut),
        })?;
        Ok(match received {
            Some((0, _)) => Received::End,
            Some((count, has_more)) => {
                self.is_readable = has_more || self.is_read_shut;
                self.received_bytes.update(|bytes| bytes + count as u64);
                Received::Bytes(count)
            }
            None => {
                self.is_readable = false;
                Received::Nothing
            }
        })
    }

    /// The address of this end of a connection over TCP.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_address()
    }

    /// Reads bytes in front of a TLS session, which are received again.
    pub fn peek(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        Ok(match try_io(|| self.socket.peek(buffer))? {
            Some(0) => Received::End,
            Some(count) => Received::Bytes(count),
            None => {
                self.is_readable = false;
                Received::Nothing
            }
        })
    }

    /// Discards bytes that [`peek`](Self::peek) has read.
    pub fn discard(&mut self, peeked: &mut [u8]) -> io::Result<()> {
        let count = self.socket.receive(peeked)?;
        self.received_bytes.update(|bytes| bytes + count as u64);
        Ok(())
    }

    /// Reads no more before the next event, though the socket has bytes that were peeked at.
    pub fn await_more(&mut self) {
        self.is_readable = false;
    }

    /// Sends what fits into the socket. If fewer bytes than given are sent, the socket is full.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send_part(bytes, false)
    }

    /// Sends like [`send`](Self::send). If more follows at once, the kernel may hold the last partial packet back for
    /// it. Used only for more bytes than one packet: otherwise nothing would be in flight whose acknowledgement
    /// releases the packet, and it would wait for 200 ms.
    #[inline]
    pub fn send_part(&mut self, bytes: &[u8], more_follows: bool) -> io::Result<usize> {
        let sent = try_io(|| match &mut self.session {
            None if more_follows && bytes.len() >= PACKET_BYTES_MAX => self.socket.send_more(bytes),
            None => self.socket.send(bytes),
            Some(session) => session.send(&self.socket, bytes),
        });
        self.count_sent(sent)
    }

    /// Sends like [`send`](Self::send) the last bytes before a [`shutdown`](Self::shutdown), which sends what the
    /// kernel holds back: both leave in one packet.
    #[inline]
    pub fn send_last(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.session {
            None => self.count_sent(try_io(|| self.socket.send_more(bytes))),
            Some(_) => self.send(bytes),
        }
    }

    /// Sends like [`send`](Self::send), in the clear by one system call.
    pub fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.session.is_none() {
            return self.count_sent(try_io(|| self.socket.send_slices(slices)));
        }
        let mut sent = 0;
        for slice in slices {
            let count = self.send(slice)?;
            sent += count;
            if count < slice.len() {
                break;
            }
        }
        Ok(sent)
    }

    #[inline]
    fn count_sent(&self, sent: io::Result<Option<usize>>) -> io::Result<usize> {
        let count = sent?.unwrap_or(0);
        self.sent_bytes.update(|bytes| bytes + count as u64);
        Ok(count)
    }

    /// Returns the received and sent bytes since the last call.
    pub fn take_byte_counts(&self) -> (u64, u64) {
        (self.received_bytes.take(), self.sent_bytes.take())
    }

    /// Shuts down the sending side. Returns true if that is done: over TLS it takes a `close_notify`, which may have to
    /// wait for room; closed without it, the stream looks truncated.
    pub fn shutdown(&mut self) -> io::Result<bool> {
        if let Some(session) = &mut self.session
            && !session.finish(&self.socket)?
        {
            self.is_shutting_down = true;
            return Ok(false);
        }
        self.is_shutting_down = false;
        self.socket.shutdown_write()?;
        Ok(true)
    }

    /// Sends `close_notify`, but leaves it to the peer to close the connection first. Returns true if it is sent.
    pub fn finish_session(&mut self) -> io::Result<bool> {
        self.session.as_mut().map_or(Ok(true), |session| session.finish(&self.socket))
    }

    /// Closes with a reset, so that the peer does not take a truncated response for a complete one.
    pub fn reset(self) {
        // Fails only if the connection has failed already.
        self.socket.reset().ok();
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::time::{Duration, Instant, SystemTime};

    use tollgate_net::Events;

    use super::*;
    use crate::{Certificate, CertificateFiles, ClientOptions, ServerOptions, TlsVersion, Trust};

    /// Deadline that turns a hang into a failure.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// Content type of a TLS alert record (RFC 8446, section 5.1).
    const ALERT: u8 = 21;

    fn tls_server() -> TlsServer {
        let file =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway/tests/gateway/certificates/site");
        let (certificate, key) =
            (Path::new(file).with_extension("pem"), Path::new(file).with_extension("key"));
        let files = CertificateFiles { certificate: &certificate, key: &key };
        let certificate = Certificate::read(&files, SystemTime::now()).unwrap();
        let options = ServerOptions {
            min_version: TlsVersion::Tls12,
            tickets: true,
            protocols: &[],
            client_authorities: None,
            proofs: None,
        };
        TlsServer::new(vec![certificate], &options).unwrap()
    }

    #[test]
    fn first_bytes_precede_the_handshake_whatever_is_called_first() {
        let options = ClientOptions {
            name: "a.example",
            trust: &Trust::All,
            identity: None,
            protocols: &[],
            version: None,
            resume: false,
        };
        let tls = TlsClient::new(&options).unwrap();
        for call in [Transport::flush, Transport::handshake] {
            let (near, mut far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let socket = Socket::from(OwnedFd::from(near));
            let mut transport = Transport::connecting(socket, Some(tls.connect().unwrap()));
            transport.send_first(b"first".to_vec());
            assert!(transport.is_handshaking());
            assert!(call(&mut transport).is_ok());
            transport.handshake().unwrap();
            // A record of the handshake.
            let mut received = [0; 7];
            far.read_exact(&mut received).unwrap();
            assert_eq!(&received, b"first\x16\x03");
        }
    }

    #[test]
    fn tls_close_notify_waits_for_room_and_is_sent_once() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut transport =
            Transport::client(Socket::from(OwnedFd::from(near)), Some(&tls_server())).unwrap();
        let mut filled = 0;
        while let Ok(count) = transport.socket.send(&[0; 4096]) {
            filled += count;
        }
        assert!(!transport.shutdown().unwrap());

        far.read_exact(&mut vec![0; filled]).unwrap();
        let (poller, mut events) = (Poller::new().unwrap(), Events::with_capacity(1));
        transport.watch(&poller, 0, false).unwrap();
        poller.wait(&mut events, Some(PATIENCE)).unwrap();
        transport.on_event(events.iter().next().unwrap());
        assert!(transport.shutdown().unwrap());
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut end = Vec::new();
        far.read_to_end(&mut end).unwrap();
        assert_eq!((end.len(), end[0]), (7, ALERT));
    }

    #[test]
    fn send_part_holds_nothing_back_if_no_more_follows() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut transport =
            Transport::new(Socket::connect(listener.local_addr().unwrap()).unwrap());
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        for size in [1, 1_000, PACKET_BYTES_MAX - 1, PACKET_BYTES_MAX, PACKET_BYTES_MAX + 1_000] {
            let mut took = || {
                let start = Instant::now();
                assert_eq!(transport.send_part(&vec![b'x'; size], true).unwrap(), size);
                far.read_exact(&mut vec![0; size]).unwrap();
                start.elapsed()
            };
            // The kernel would hold a partial packet back for 200 ms. A busy machine may take as long once.
            let shortest = (0..5).map(|_| took()).min().unwrap();
            assert!(shortest < Duration::from_millis(100), "{size} bytes took {shortest:?}");
        }
    }
}
