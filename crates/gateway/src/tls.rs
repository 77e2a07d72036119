//! TLS of clients, by rustls: what carries the bytes in the place of a plain socket.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use tollgate_eventloop::Socket;

/// A certificate and its key, read and found to belong together.
#[derive(Clone)]
pub(crate) struct Identity(Arc<ServerConfig>);

/// Why a certificate and its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file of the certificate cannot be read, or has none.
    #[error(
        "the certificate cannot be read; name a file of PEM with the certificate, then what it is signed by"
    )]
    Certificate(#[source] pem::Error),
    /// The file of the key cannot be read, or has none.
    #[error(
        "the key cannot be read; name a file of PEM with the private key, without a passphrase"
    )]
    Key(#[source] pem::Error),
    /// They cannot be used, or not together.
    #[error(
        "the key is not that of the certificate, or one of them is of a kind that is not known here"
    )]
    Pair(#[source] rustls::Error),
}

impl Identity {
    /// Reads both from files of PEM.
    ///
    /// # Errors
    ///
    /// [`IdentityError`]: which of them cannot be used.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, IdentityError> {
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .and_then(
                |chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) },
            )
            .map_err(IdentityError::Certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(IdentityError::Key)?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let mut config = builder
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(IdentityError::Pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").finish_non_exhaustive()
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Identity {}

/// One client's connection, above the socket that carries it.
pub(crate) struct Session {
    connection: ServerConnection,
    /// The last byte of a send was taken, but is not said to be sent before all that was made of it is:
    /// whoever has bytes left to send is told of room, and so is what is left of these.
    is_byte_held: bool,
}

/// How much becomes one record of TLS.
const RECORD_BYTES: usize = 16 << 10;

impl Session {
    pub(crate) fn new(identity: &Identity) -> io::Result<Self> {
        let connection =
            ServerConnection::new(Arc::clone(&identity.0)).map_err(io::Error::other)?;
        Ok(Self { connection, is_byte_held: false })
    }

    /// Reads what there is, as far as the buffer has room, and says whether there may be more at once;
    /// 0 bytes at the end, and `WouldBlock` when there is nothing yet.
    pub(crate) fn receive(
        &mut self,
        socket: &Socket,
        buffer: &mut [u8],
    ) -> io::Result<(usize, bool)> {
        let mut filled = 0;
        loop {
            match self.connection.reader().read(&mut buffer[filled..]) {
                // The end comes again, behind what there is.
                Ok(0) => return Ok((filled, true)),
                Ok(count) => {
                    filled += count;
                    if filled == buffer.len() {
                        return Ok((filled, true));
                    }
                    continue;
                }
                // It ended without saying so, which the end of a request shows as well.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok((filled, true));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match self.connection.read_tls(&mut Carrier(socket)) {
                Ok(_) => {
                    let understood = self.connection.process_new_packets();
                    // What there is to be said, an alert included; the peer may be gone.
                    let flushed = self.flush(socket);
                    understood.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                    flushed?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && filled > 0 => {
                    return Ok((filled, false));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends what there is room for. Whoever is told that not all was sent has to go on with the bytes
    /// that follow those.
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

    /// Sends what was made of earlier bytes. Whether all of it is sent.
    pub(crate) fn flush(&mut self, socket: &Socket) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Carrier(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether it waits for room to send.
    pub(crate) fn wants_room(&self) -> bool {
        self.connection.wants_write()
    }

    /// Says that nothing more is sent. Whether that has gone out; said again, it goes out once.
    pub(crate) fn finish(&mut self, socket: &Socket) -> io::Result<bool> {
        self.connection.send_close_notify();
        self.flush(socket)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("is_byte_held", &self.is_byte_held).finish_non_exhaustive()
    }
}

/// The socket, as rustls reads and writes it.
struct Carrier<'a>(&'a Socket);

impl Read for Carrier<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.receive(buffer)
    }
}

impl Write for Carrier<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
