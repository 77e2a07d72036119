//! The side of a client: its link, and the bytes that wait in both directions.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use tollgate_accesslog::{LoggedRequest, Tls as LoggedTls};
use tollgate_http1::{FieldList, ParseError, RequestHead, parse_request_head};
use tollgate_net::SendBuffer;
use tollgate_tls::{ClientCertificate, HttpProtocol, TlsSession, Transport};

use super::http2::{Connections, Following};
use super::keys::ListenerKey;
use super::link::Link;
use super::transaction::RequestBuffer;
use crate::config::{Timeouts, Transfer};

/// A client: a connection, or one stream of an HTTP/2 connection, which acts like a connection with one request.
/// Between requests it uses no more memory than a short head needs.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) link: Link,
    /// The other end of its connection, or of that to the proxy which says so (PROXY protocol). `None` over a Unix domain
    /// socket, and before such a header.
    pub(super) peer: Option<SocketAddr>,
    /// Client of the current request.
    pub(super) ip: Option<IpAddr>,
    /// The listener that accepted it.
    pub(super) listener: ListenerKey,
    /// Bytes received after the current request.
    pub(super) unread: Vec<u8>,
    /// `unread` is an incomplete head that was parsed before.
    pub(super) is_partial: bool,
    /// Response bytes that wait for room.
    pub(super) unsent: SendBuffer,
    /// Part of `Shared::buffered_bytes` that is reserved for `unsent`.
    pub(super) reserved_bytes: u64,
    /// The trailers of a response on a stream, once the rest of it is sent or waits for room.
    pub(super) end: Option<Vec<u8>>,
    /// Memory of the last request, for the next one.
    pub(super) request_buffer: RequestBuffer,
    pub(super) deadline: Instant,
    /// The TLS handshake is not counted yet.
    pub(super) is_handshaking: bool,
    /// The first bytes of the connection may select HTTP/2.
    pub(super) may_be_http2: bool,
}

impl Client {
    pub(super) fn new(
        link: Link,
        peer: Option<SocketAddr>,
        listener: ListenerKey,
        deadline: Instant,
    ) -> Self {
        Self {
            is_handshaking: link.is_tls(),
            link,
            peer,
            ip: peer.map(|peer| peer.ip()),
            listener,
            unread: Vec::new(),
            is_partial: false,
            unsent: SendBuffer::default(),
            reserved_bytes: 0,
            end: None,
            request_buffer: RequestBuffer::default(),
            deadline,
            may_be_http2: false,
        }
    }

    /// Checks the request head at the start of `bytes`. Returns `None` if more bytes are needed.
    pub(super) fn check_head<'a>(
        &self,
        bytes: &'a [u8],
    ) -> Result<Option<RequestHead<'a>>, ParseError> {
        match &self.link {
            Link::Connection(_) => parse_request_head(bytes),
            Link::Stream(_) => RequestHead::of_fields(bytes).map(Some),
        }
    }

    /// The protocol of a new connection, which has sent `input`: by ALPN or, without TLS, by the preface of HTTP/2. `None`:
    /// more bytes are needed.
    pub(super) fn protocol(&self, input: &[u8]) -> Option<HttpProtocol> {
        match &self.link {
            Link::Connection(transport) => transport.client_protocol(input),
            Link::Stream(_) => Some(HttpProtocol::Http1),
        }
    }

    /// True if the client wants a proof that this server answers for its name, and has its answer in the TLS handshake.
    pub(super) fn wants_proof(&self) -> bool {
        match &self.link {
            Link::Connection(transport) => {
                transport.session().is_some_and(TlsSession::is_for_proof)
            }
            Link::Stream(_) => false,
        }
    }

    /// The connection, unless the client is a stream.
    pub(super) fn transport(&mut self) -> Option<&mut Transport> {
        match &mut self.link {
            Link::Connection(transport) => Some(transport),
            Link::Stream(_) => None,
        }
    }

    /// Memory of its buffers.
    pub(super) fn held_bytes(&self) -> usize {
        let received = match &self.link {
            Link::Connection(_) => 0,
            Link::Stream(stream) => stream.held_bytes(),
        };
        received + self.unread.capacity() + self.unsent.capacity()
    }

    /// Keeps the bytes after the current request. Releases the memory if there are none.
    pub(super) fn keep_unread(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            if self.unread.capacity() > 0 {
                self.unread = Vec::new();
            }
        } else {
            self.unread.clear();
            self.unread.extend_from_slice(bytes);
        }
    }

    /// Sends waiting bytes. Returns their number.
    pub(super) fn flush(&mut self, http2: &mut Connections) -> io::Result<usize> {
        let Self { link, unsent, end, .. } = self;
        unsent.send(|bytes| link.send(http2, bytes, following(end.as_deref(), false)))
    }

    /// Sends waiting bytes of a body and, on progress, moves the deadline. Returns true if none are left. `transfer`: of a
    /// body of which more may follow.
    pub(super) fn flush_body(
        &mut self,
        http2: &mut Connections,
        timeouts: &Timeouts,
        transfer: Option<Transfer>,
        now: Instant,
    ) -> io::Result<bool> {
        let count = self.flush(http2)?;
        let is_empty = self.unsent.is_empty();
        let last = Transfer { since: now, bytes: 0, is_streaming: false };
        let transfer = transfer.unwrap_or(last);
        if count > 0 && is_empty {
            self.deadline = now + timeouts.between_pieces(transfer.is_streaming);
        } else if count > 0 {
            // A stream must be read, however seldom it is sent.
            let transfer = Transfer { is_streaming: false, ..transfer };
            self.deadline = timeouts.next_body_deadline(self.deadline, count, transfer, now);
        }
        Ok(is_empty)
    }

    /// The rest of the response is about to be sent: `trailers` end it on a stream.
    pub(super) fn end_response(&mut self, trailers: FieldList<'_>) {
        if self.link.is_stream() {
            self.end = Some(trailers.as_bytes().to_vec());
        }
    }

    /// Sends bytes after the waiting ones, and keeps those that do not fit.
    pub(super) fn send(
        &mut self,
        http2: &mut Connections,
        bytes: &[u8],
        more_follows: bool,
    ) -> io::Result<()> {
        let Self { link, unsent, end, .. } = self;
        let mut sent = 0;
        if unsent.is_empty() && (!bytes.is_empty() || end.is_some()) {
            sent = link.send(http2, bytes, following(end.as_deref(), more_follows))?;
        }
        if sent < bytes.len() {
            unsent.discard_sent();
            unsent.push(&bytes[sent..]);
        }
        Ok(())
    }

    /// The fields that the access log needs of a head, or of the first line of an invalid one.
    pub(super) fn logged_request(&self, head: &[u8]) -> Option<Box<LoggedRequest>> {
        let Ok(Some(head)) = self.check_head(head) else {
            let is_stream = self.link.is_stream();
            return LoggedRequest::of_first_line(head).filter(|_| !is_stream).map(Box::new);
        };
        Some(Box::new(LoggedRequest::new(&head)))
    }

    /// The client of the current request, with port 0 if only a header has its address.
    pub(super) fn source(&self) -> Option<SocketAddr> {
        let ip = self.ip?;
        Some(self.peer.filter(|peer| peer.ip() == ip).unwrap_or(SocketAddr::new(ip, 0)))
    }

    /// The address at which its connection over TCP was accepted.
    pub(super) fn destination(&self, http2: &Connections) -> Option<SocketAddr> {
        let address = match &self.link {
            Link::Connection(transport) => transport.local_address().ok(),
            Link::Stream(stream) => http2[stream.connection].local,
        };
        address.map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()))
    }

    /// Its address for the access log.
    pub(super) fn logged_ip(&self) -> String {
        self.ip.map_or_else(|| "unix:".to_owned(), |ip| ip.to_string())
    }

    /// The certificate that it has presented. Streams have that of their connection.
    pub(super) fn certificate<'a>(
        &'a self,
        http2: &'a Connections,
    ) -> Option<ClientCertificate<'a>> {
        match &self.link {
            Link::Connection(transport) => transport.tls_facts()?.client_certificate,
            Link::Stream(stream) => http2[stream.connection].tls.as_ref()?.client_certificate(),
        }
    }

    /// Facts of its TLS session for the access log. Streams have that of their connection.
    pub(super) fn logged_tls<'a>(&'a self, http2: &'a Connections) -> Option<LoggedTls<'a>> {
        match &self.link {
            Link::Connection(transport) => {
                let facts = transport.tls_facts()?;
                Some(LoggedTls {
                    version: facts.version,
                    cipher: facts.cipher,
                    server_name: facts.server_name,
                })
            }
            Link::Stream(stream) => {
                http2[stream.connection].tls.as_ref().map(|facts| facts.logged())
            }
        }
    }
}

/// Continuation behind bytes of a response, which may have its `end`.
fn following(end: Option<&[u8]>, more_follows: bool) -> Following<'_> {
    match end {
        Some(trailers) => Following::End(FieldList::new(trailers)),
        None if more_follows => Following::More,
        None => Following::Unknown,
    }
}
