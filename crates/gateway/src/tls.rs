//! TLS on client connections, by rustls: a session sits between the socket and the plain bytes.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use tollgate_eventloop::{Socket, try_io};

/// A certificate chain and its private key.
#[derive(Clone)]
pub struct TlsIdentity(Arc<ServerConfig>);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(
        "cannot read the certificate; expected a PEM file with the certificate, followed by its chain"
    )]
    Certificate(#[source] pem::Error),
    #[error("cannot read the key; expected a PEM file with a private key without passphrase")]
    Key(#[source] pem::Error),
    #[error(
        "cannot use the certificate with this key; check that they belong together and have a supported type"
    )]
    Pair(#[source] rustls::Error),
}

impl TlsIdentity {
    /// Reads the certificate chain and the key from PEM files.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .and_then(
                |chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) },
            )
            .map_err(TlsError::Certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(TlsError::Key)?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let mut config = builder
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(TlsError::Pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsIdentity").finish_non_exhaustive()
    }
}

impl PartialEq for TlsIdentity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TlsIdentity {}

/// TLS state of one client connection.
pub(crate) struct TlsSession {
    connection: ServerConnection,
    /// First byte received, which tells TLS from plain HTTP.
    first_byte: Option<u8>,
    /// The last byte of a send was encrypted but not reported as sent, since a part of its record is still
    /// unsent: the caller then waits for room and calls again, which sends the rest.
    is_byte_held: bool,
}

/// Plain bytes per TLS record.
const RECORD_BYTES: usize = 16 << 10;

impl TlsSession {
    pub(crate) fn new(identity: &TlsIdentity) -> io::Result<Self> {
        let connection =
            ServerConnection::new(Arc::clone(&identity.0)).map_err(io::Error::other)?;
        Ok(Self { connection, first_byte: None, is_byte_held: false })
    }

    /// Fills the buffer as far as possible. Returns the number of bytes (0 at the end of the stream) and true if more
    /// may be available at once; `WouldBlock` if nothing is available.
    pub(crate) fn receive(
        &mut self,
        socket: &Socket,
        buffer: &mut [u8],
    ) -> io::Result<(usize, bool)> {
        let mut filled = 0;
        loop {
            match self.connection.reader().read(&mut buffer[filled..]) {
                // The next call reports the end again, after the bytes returned now.
                Ok(0) => return Ok((filled, true)),
                Ok(count) => {
                    filled += count;
                    if filled == buffer.len() {
                        return Ok((filled, true));
                    }
                    continue;
                }
                // Closed without close_notify: HTTP framing detects a truncated message.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok((filled, true));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let mut carrier = Carrier { socket, first_byte: None };
            let received = try_io(|| self.connection.read_tls(&mut carrier))?;
            self.first_byte = self.first_byte.or(carrier.first_byte);
            if received.is_some() {
                let is_handshaking = self.connection.is_handshaking();
                let processed = self.connection.process_new_packets();
                // The first byte of a TLS record is below 32.
                if processed.is_err()
                    && is_handshaking
                    && self.first_byte.is_some_and(|byte| byte.is_ascii_alphabetic())
                {
                    return Err(io::Error::new(ErrorKind::InvalidData, PlainHttp));
                }
                // Sends handshake messages and alerts, even after an error.
                let flushed = self.flush(socket);
                processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                flushed?;
            } else if filled > 0 {
                return Ok((filled, false));
            } else {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }

    /// Sends what the socket has room for. If fewer bytes are reported as sent than given, the next call must
    /// continue with the bytes that follow.
    pub(crate) fn send(&mut self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
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
            let end = bytes.len().min(taken + RECORD_BYTES);
            taken += self.connection.writer().write(&bytes[taken..end])?;
        }
    }

    /// Sends pending records. Returns true if none are left.
    pub(crate) fn flush(&mut self, socket: &Socket) -> io::Result<bool> {
        while self.connection.wants_write() {
            let mut carrier = Carrier { socket, first_byte: None };
            if try_io(|| self.connection.write_tls(&mut carrier))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends `close_notify`, once. Returns true if it is out.
    pub(crate) fn finish(&mut self, socket: &Socket) -> io::Result<bool> {
        self.connection.send_close_notify();
        self.flush(socket)
    }
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession").finish_non_exhaustive()
    }
}

/// A client has sent plain HTTP to a TLS listener.
#[derive(Debug, thiserror::Error)]
#[error("plain HTTP on a port for TLS")]
struct PlainHttp;

/// True if a client has sent plain HTTP to a TLS listener. Nothing was sent to it.
pub(crate) fn is_plain_http(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<PlainHttp>)
}

/// Adapts the socket to rustls.
struct Carrier<'a> {
    socket: &'a Socket,
    /// Of the last read.
    first_byte: Option<u8>,
}

impl Read for Carrier<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.socket.receive(buffer)?;
        self.first_byte = buffer.first().copied().filter(|_| count > 0);
        Ok(count)
    }
}

impl Write for Carrier<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
