//! A client's connection.

use std::net::IpAddr;
use std::time::Instant;

use crate::exchange::{Answer, Exchange, Outgoing};
use crate::link::{Link, Unsent};

/// A client's connection. Between two requests it holds no more than the memory of a short head.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) link: Link,
    /// Tells it from others that had its key before.
    pub(crate) serial: u32,
    /// None over a unix-domain socket.
    pub(crate) ip: Option<IpAddr>,
    /// The listener that it came in by.
    pub(crate) listener: usize,
    pub(crate) stage: Stage,
    /// What has come and belongs to no request that has begun.
    pub(crate) unread: Vec<u8>,
    /// That is a part of a head, and was looked at.
    pub(crate) is_partial: bool,
    /// What of its answers it had no room for.
    pub(crate) unsent: Unsent,
    /// The request under way; there while the stage says so.
    pub(crate) exchange: Option<Exchange>,
    /// The memory of its last request, for its next one.
    pub(crate) outgoing: Outgoing,
    /// When it has waited for too long.
    pub(crate) deadline: Instant,
    /// The poller is to know it from a moment on.
    pub(crate) is_to_be_watched: bool,
}

/// What a client's connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It waits for a request.
    Reading,
    /// A request is under way.
    Exchanging,
    /// The last answer is on its way. Whether the client may have more to send, which is then to be
    /// read, since closing over unread bytes is a reset that can overtake the answer; and whether the
    /// answer ends where the connection does.
    Ending { lingers: bool, ends_at_close: bool },
    /// Everything is sent; reads to the client's end, or up to a moment, and throws it away.
    Lingering { until: Instant },
}

impl Client {
    pub(crate) fn new(
        link: Link,
        serial: u32,
        ip: Option<IpAddr>,
        listener: usize,
        deadline: Instant,
    ) -> Self {
        Self {
            link,
            serial,
            ip,
            listener,
            stage: Stage::Reading,
            unread: Vec::new(),
            is_partial: false,
            unsent: Unsent::default(),
            exchange: None,
            outgoing: Outgoing::default(),
            deadline,
            is_to_be_watched: false,
        }
    }

    /// Whether nothing is to be read of it any more, as it has sent the one request that its connection is for, and
    /// takes what it is sent.
    pub(crate) fn may_go_unwatched(&self) -> bool {
        let Some(exchange) = &self.exchange else { return false };
        !exchange.asked.keep_alive
            && exchange.is_sent()
            && self.unsent.is_empty()
            && !self.link.is_watched()
            && !self.link.is_tls()
    }

    /// Whether the rest of an answer's body is all that is waited for: the client has taken what came of it, and
    /// has sent its request, or as much of that as the backend takes.
    pub(crate) fn waits_for_answer_body(&self) -> bool {
        let Some(exchange) = &self.exchange else { return false };
        matches!(exchange.answer, Answer::Body { .. })
            && exchange.hold.is_none()
            && self.unsent.is_empty()
            && (exchange.body.is_done() || !exchange.outgoing.is_sent())
    }

    /// Keeps what has come and cannot be dealt with yet; nothing gives the memory back.
    pub(crate) fn keep_unread(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            if self.unread.capacity() > 0 {
                self.unread = Vec::new();
            }
        } else {
            self.unread.clear();
            self.unread.extend_from_slice(bytes);
        }
    }
}
