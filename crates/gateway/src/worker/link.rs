//! The way to a client or a backend.

use std::io;

use tollgate_http1::FieldList;

use super::http2::{Connections, Following, Stream, StreamEnd};
use crate::headers::{MessageForm, WebSocketKey};
use tollgate_tls::{Received, Transport};

/// A connection, or a stream of an HTTP/2 connection, which acts like a connection with one request.
#[derive(Debug)]
pub(super) enum Link {
    Connection(Transport),
    Stream(Box<Stream>),
}

impl Link {
    pub(super) fn is_readable(&self) -> bool {
        match self {
            Self::Connection(transport) => transport.is_readable(),
            Self::Stream(stream) => stream.is_readable(),
        }
    }

    /// True if the peer is known to have shut down its sending side. A client's stream that is closed early is removed at
    /// once.
    pub(super) fn is_read_shut(&self) -> bool {
        match self {
            Self::Connection(transport) => transport.is_read_shut(),
            Self::Stream(_) => false,
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        match self {
            Self::Connection(transport) => transport.is_tls(),
            Self::Stream(stream) => stream.is_tls,
        }
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// The form of the messages that it carries.
    pub(super) fn form(&self) -> MessageForm {
        match self {
            Self::Connection(_) => MessageForm::Text,
            Self::Stream(_) => MessageForm::Fields,
        }
    }

    /// True if a stream waits for room on its connection.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Stream(stream) if stream.is_waiting)
    }

    /// The key of the WebSocket that a stream opens.
    pub(super) fn websocket_key(&self) -> Option<WebSocketKey> {
        match self {
            Self::Connection(_) => None,
            Self::Stream(stream) => stream.websocket,
        }
    }

    /// Makes the next read try, regardless of events. A stream that cannot be sent on knows why.
    pub(super) fn assume_readable(&mut self) {
        if let Self::Connection(transport) = self {
            transport.assume_readable();
        }
    }

    /// True if the end of the received bytes is not that of a message.
    pub(super) fn is_truncated(&self) -> bool {
        match self {
            Self::Connection(transport) => transport.is_truncated(),
            Self::Stream(_) => true,
        }
    }

    /// True if the peer neither sends nor receives any more. A client's stream that is closed early is removed at once.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Connection(transport) => transport.is_closed(),
            Self::Stream(stream) => stream.early_end().is_some(),
        }
    }

    /// True if the connection has failed. What was received before may be unread.
    pub(super) fn has_failed(&self) -> bool {
        match self {
            Self::Connection(transport) => transport.has_failed(),
            Self::Stream(_) => false,
        }
    }

    /// True if the end of the received bytes is that of the peer's direction of a tunnel.
    pub(super) fn has_ended_tunnel(&self) -> bool {
        match self {
            Self::Connection(_) => true,
            Self::Stream(stream) => stream.has_ended_tunnel(),
        }
    }

    /// Reason why a stream to a backend has ended early.
    pub(super) fn early_end(&self) -> Option<StreamEnd> {
        match self {
            Self::Connection(_) => None,
            Self::Stream(stream) => stream.early_end(),
        }
    }

    /// Receives bytes of a message; a stream may receive none with the [end](Self::take_end) of a body.
    pub(super) fn receive(
        &mut self,
        http2: &mut Connections,
        buffer: &mut [u8],
    ) -> io::Result<Received> {
        match self {
            Self::Connection(transport) => transport.receive(buffer),
            Self::Stream(stream) => Ok(http2.receive(stream, buffer)),
        }
    }

    /// Takes the end of a body that ends with its stream, and its trailers, once all of its payload is received.
    pub(super) fn take_end(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Connection(_) => None,
            Self::Stream(stream) => stream.take_end(),
        }
    }

    /// Sends bytes of a message, a head as a whole. Sends fewer bytes than given if the buffers are full. Where nothing
    /// follows, a stream ends with the last of them, also if there are none.
    pub(super) fn send(
        &mut self,
        http2: &mut Connections,
        bytes: &[u8],
        following: Following<'_>,
    ) -> io::Result<usize> {
        match self {
            Self::Connection(_) if bytes.is_empty() => Ok(0),
            Self::Connection(transport) => {
                transport.send_part(bytes, matches!(following, Following::More))
            }
            Self::Stream(stream) => http2.send(stream, bytes, following),
        }
    }

    /// Ends the sending direction of a tunnel, whose bytes are all sent.
    pub(super) fn finish(&mut self, http2: &mut Connections) -> io::Result<()> {
        match self {
            Self::Connection(transport) => transport.shutdown().map(|_| ()),
            Self::Stream(stream) => {
                http2.finish(stream, FieldList::default());
                Ok(())
            }
        }
    }
}
