//! A session between a socket and plain bytes.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};

use rustls::{CipherSuite, Connection, HandshakeKind, ProtocolVersion};
use tollgate_net::{Socket, try_io};

use crate::client_certificate::ClientCertificate;
use crate::proofs::AlpnProofs;
use crate::protocol::{HttpProtocol, PlainHttp};

/// TLS state of one connection.
pub struct TlsSession {
    connection: Connection,
    /// First byte received, which distinguishes TLS from plain HTTP.
    first_byte: Option<u8>,
    /// The last byte of a send was encrypted but not reported as sent, since a part of its records is still
    /// unsent: the caller then waits for room and calls again, which sends the rest.
    is_byte_held: bool,
    /// Error to report after the bytes received before it.
    error: Option<io::Error>,
    end: Option<StreamEnd>,
    wire: WireBytes,
}

/// Bytes on the wire, with handshakes and the overhead of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireBytes {
    pub received: u64,
    pub sent: u64,
}

/// Facts of a handshake, by their names in the registries of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionFacts<'a> {
    pub version: &'static str,
    pub cipher: &'static str,
    /// Server name that the client has sent. `None` for clients.
    pub server_name: Option<&'a str>,
    /// For servers that ask for one.
    pub client_certificate: Option<ClientCertificate<'a>>,
}

/// Name in the registry of cipher suites, of those that rustls has.
fn cipher_name(suite: CipherSuite) -> &'static str {
    use CipherSuite as Suite;

    match suite {
        Suite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        Suite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        Suite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
        }
        Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
        }
        _ => "unknown",
    }
}

/// End of what the peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// By `close_notify`.
    Complete,
    /// The connection was closed without `close_notify`, perhaps by somebody else.
    Truncated,
}

/// Encrypted bytes that wait for the socket, at most. One call sends them. Fewer cost more CPU time, but the peer decrypts
/// one batch while the next is encrypted.
const BATCH_BYTES: usize = 80 << 10;

impl TlsSession {
    pub(crate) fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(BATCH_BYTES));
        Self {
            connection,
            first_byte: None,
            is_byte_held: false,
            error: None,
            end: None,
            wire: WireBytes::default(),
        }
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// True if the peer has sent something.
    pub fn has_begun(&self) -> bool {
        self.first_byte.is_some()
    }

    /// Returns the end of what the peer sends once all of it is received.
    pub fn end(&self) -> Option<StreamEnd> {
        self.end
    }

    pub fn wire_bytes(&self) -> WireBytes {
        self.wire
    }

    /// True if the handshake resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Number of session tickets received over TLS 1.3. Servers receive none, and TLS 1.2 has them in its handshake.
    pub fn tickets(&self) -> u32 {
        match &self.connection {
            Connection::Client(connection) => connection.tls13_tickets_received(),
            Connection::Server(_) => 0,
        }
    }

    /// Protocol chosen by ALPN. Without ALPN it is HTTP/1.1.
    pub fn protocol(&self) -> HttpProtocol {
        HttpProtocol::of_alpn(self.connection.alpn_protocol())
    }

    /// True after the handshake of a client that wanted a proof of the server's name, and sends nothing else.
    pub fn is_for_proof(&self) -> bool {
        !self.is_handshaking() && self.connection.alpn_protocol() == Some(AlpnProofs::PROTOCOL)
    }

    /// Returns `None` before the end of the handshake.
    pub fn facts(&self) -> Option<SessionFacts<'_>> {
        let version = match self.connection.protocol_version()? {
            ProtocolVersion::TLSv1_2 => "TLSv1.2",
            ProtocolVersion::TLSv1_3 => "TLSv1.3",
            _ => "unknown",
        };
        let cipher = cipher_name(self.connection.negotiated_cipher_suite()?.suite());
        let (server_name, client_certificate) = match &self.connection {
            Connection::Server(connection) => {
                let certificate = connection.peer_certificates().and_then(<[_]>::first);
                (connection.server_name(), certificate.map(|der| ClientCertificate(der)))
            }
            Connection::Client(_) => (None, None),
        };
        Some(SessionFacts { version, cipher, server_name, client_certificate })
    }

    /// Continues the handshake as far as possible without blocking. Returns true once it is complete; otherwise the
    /// socket has neither room for what is to be sent nor unread bytes.
    pub fn handshake(&mut self, socket: &Socket) -> io::Result<bool> {
        loop {
            // An unsent rest is sent with the next event.
            self.flush(socket)?;
            if !self.connection.is_handshaking() {
                return Ok(true);
            }
            let mut carrier = Carrier { socket, first_byte: None, was_short: false };
            match try_io(|| self.connection.read_tls(&mut carrier))? {
                None => return Ok(false),
                Some(0) => {
                    let message = "the connection was closed within the TLS handshake";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, message));
                }
                Some(count) => self.wire.received += count as u64,
            }
            if let Err(error) = self.connection.process_new_packets() {
                // Sends an alert. The error of the handshake is the one to report.
                self.flush(socket).ok();
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
    }

    /// Fills the buffer as far as possible. Returns the number of bytes, 0 at the end of the stream, and
    /// whether more may be available at once; `WouldBlock` if there is nothing. `is_shut`: the peer has shut down its
    /// sending side, which a read that leaves room does not show.
    pub fn receive(
        &mut self,
        socket: &Socket,
        buffer: &mut [u8],
        is_shut: bool,
    ) -> io::Result<(usize, bool)> {
        let (mut filled, mut is_emptied) = (0, false);
        loop {
            match self.connection.reader().read(&mut buffer[filled..]) {
                // The next call reports the end again, after the bytes returned now.
                Ok(0) => {
                    self.end = Some(StreamEnd::Complete);
                    return Ok((filled, true));
                }
                Ok(count) => {
                    filled += count;
                    if filled == buffer.len() {
                        return Ok((filled, true));
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    self.end = Some(StreamEnd::Truncated);
                    return Ok((filled, true));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if let Some(error) = self.error.take() {
                if filled == 0 {
                    return Err(error);
                }
                self.error = Some(error);
                return Ok((filled, true));
            }
            if is_emptied {
                return if filled > 0 {
                    Ok((filled, false))
                } else {
                    Err(ErrorKind::WouldBlock.into())
                };
            }
            let mut carrier = Carrier { socket, first_byte: None, was_short: false };
            let received = match try_io(|| self.connection.read_tls(&mut carrier)) {
                Ok(received) => received,
                Err(error) => {
                    self.error = Some(error);
                    continue;
                }
            };
            self.first_byte = self.first_byte.or(carrier.first_byte);
            if let Some(count) = received {
                self.wire.received += count as u64;
                // The end of the stream is read by another call.
                is_emptied = carrier.was_short && count > 0 && !is_shut;
                let is_handshaking = self.connection.is_handshaking();
                let processed = self.connection.process_new_packets();
                if processed.is_err() && is_handshaking && PlainHttp::starts_with(self.first_byte) {
                    return Err(io::Error::new(ErrorKind::InvalidData, PlainHttp));
                }
                // Sends handshake messages and alerts, even after an error.
                let flushed = self.flush(socket);
                let processed =
                    processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error));
                self.error = processed.and(flushed).err();
            } else if filled > 0 {
                return Ok((filled, false));
            } else {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }

    /// Sends what the socket has room for. If fewer bytes are reported as sent than given, the next call must
    /// continue with the bytes that follow. Sends none of them before the end of the handshake.
    pub fn send(&mut self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
        if self.connection.is_handshaking() {
            self.flush(socket)?;
            return Ok(0);
        }
        let mut taken = usize::from(self.is_byte_held && !bytes.is_empty());
        loop {
            if !self.flush(socket)? {
                self.is_byte_held = taken > 0;
                return Ok(taken.saturating_sub(1));
            }
            if taken == bytes.len() {
                self.is_byte_held = false;
                return Ok(taken);
            }
            taken += self.connection.writer().write(&bytes[taken..])?;
        }
    }

    /// Sends pending records. Returns true if none are left.
    pub fn flush(&mut self, socket: &Socket) -> io::Result<bool> {
        while self.connection.wants_write() {
            let mut carrier = Carrier { socket, first_byte: None, was_short: false };
            match try_io(|| self.connection.write_tls(&mut carrier))? {
                Some(count) => self.wire.sent += count as u64,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends `close_notify`, once. Returns true if it is sent.
    pub fn finish(&mut self, socket: &Socket) -> io::Result<bool> {
        self.connection.send_close_notify();
        self.flush(socket)
    }
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession").finish_non_exhaustive()
    }
}

/// Adapts the socket to rustls.
struct Carrier<'a> {
    socket: &'a Socket,
    /// First byte of the last read.
    first_byte: Option<u8>,
    /// The last read left room in its buffer.
    was_short: bool,
}

impl Read for Carrier<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.socket.receive(buffer)?;
        self.first_byte = buffer.first().copied().filter(|_| count > 0);
        self.was_short = count < buffer.len();
        Ok(count)
    }
}

impl Write for Carrier<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.send(bytes)
    }

    /// Sends several records by one system call.
    fn write_vectored(&mut self, records: &[IoSlice<'_>]) -> io::Result<usize> {
        match records {
            [record] => self.socket.send(record),
            _ => self.socket.send_slices(records),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
