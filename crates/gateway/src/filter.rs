//! Inspection of requests and responses, as by a web application firewall.
//!
//! A filter sees, in this order: the request head, before a backend is chosen; the request body, piece by piece without
//! its transfer coding; the response head; the response body; and the outcome. Nothing is forwarded before its verdict.
//! Not shown are interim responses, tunnels, and requests without a route.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tollgate_http1::{ParseError, RequestHead, ResponseHead};

use crate::body::{Body, Taken};
use crate::command::Resumer;
use crate::firewall::{Firewall, Inspector};
use crate::generation::ConfigGeneration;
pub use crate::local_response::LocalResponse;

/// Inspects the traffic of one thread. Calls are made on the data path and block it: a filter that needs longer suspends
/// the transaction and resumes it from another thread.
///
/// [`finished`](Self::finished) is called once for each transaction whose head was shown.
#[expect(unused_variables, reason = "the default methods inspect nothing")]
pub trait Filter: Send {
    fn request_head(&mut self, id: TransactionId, request: &RequestContext<'_>) -> Verdict {
        Verdict::Pass
    }

    /// An empty piece is the end, also of a request without a body.
    fn request_body(&mut self, id: TransactionId, piece: &[u8]) -> Verdict {
        Verdict::Pass
    }

    fn response_head(&mut self, id: TransactionId, head: &ResponseHead<'_>) -> Verdict {
        Verdict::Pass
    }

    /// An empty piece is the end, also of a response without a body.
    fn response_body(&mut self, id: TransactionId, piece: &[u8]) -> Verdict {
        Verdict::Pass
    }

    fn finished(&mut self, id: TransactionId, outcome: &Outcome) {}
}

/// A request head and its circumstances.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    pub head: &'a RequestHead<'a>,
    /// The head as received.
    pub bytes: &'a [u8],
    /// `None` over a Unix domain socket.
    pub client: Option<IpAddr>,
    /// Address of the listener.
    pub server: &'a str,
    /// Firewall of the route.
    pub(crate) firewall: Option<&'a Arc<Firewall>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forwards this piece and all held ones.
    Pass,
    /// Forwards nothing in this direction until another verdict, but continues to receive. Invalid at the end of a
    /// message.
    Hold,
    /// Stops both directions until the transaction is resumed, at most for `timeouts.response`; then 504.
    Suspend,
    /// Sends this response instead. Aborts the connection if part of the backend's response is already sent.
    Respond(Box<LocalResponse>),
}

impl Verdict {
    /// Returns the verdict of two pieces: the more restrictive one, except that the second ends a hold.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Pass | Self::Hold, other) | (Self::Suspend, other @ Self::Respond(_)) => other,
            (this, _) => this,
        }
    }
}

/// Identifies a request and its response on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransactionId {
    pub(crate) client: usize,
    /// Distinguishes transactions of the same client slot.
    pub(crate) serial: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// `None`: no response.
    pub status: Option<u16>,
    pub request_body_bytes: u64,
    pub response_body_bytes: u64,
    /// From the request head to the end of the response.
    pub duration: Duration,
}

/// The filter of a thread.
pub(crate) struct FilterSlot {
    /// Inspects everything, in place of the firewall.
    custom: Option<Box<dyn Filter>>,
    /// Inspects the routes that have a firewall.
    inspector: Box<Inspector>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Request,
    Response,
}

impl FilterSlot {
    pub(crate) fn new(custom: Option<Box<dyn Filter>>, thread: usize, resumer: Resumer) -> Self {
        Self { custom, inspector: Box::new(Inspector::new(thread, resumer)) }
    }

    fn filter(&mut self) -> &mut dyn Filter {
        match &mut self.custom {
            Some(filter) => &mut **filter,
            None => &mut *self.inspector,
        }
    }

    /// True if the messages of a route are to be shown.
    #[inline]
    pub(crate) fn inspects(&self, generation: &ConfigGeneration, route: usize) -> bool {
        self.custom.is_some() || generation.firewalls[route].is_some()
    }

    /// Continues with another configuration.
    pub(crate) fn reload(&mut self, generation: &ConfigGeneration) {
        self.inspector.reload(generation.audit_log.as_ref());
    }

    /// Hands collected log lines to their writer. Returns the number of lines that it dropped.
    #[inline]
    pub(crate) fn flush(&mut self) -> u64 {
        self.inspector.flush()
    }

    /// Prepares for the resumption of transactions.
    pub(crate) fn take_back(&mut self) {
        self.inspector.take_back();
    }

    pub(crate) fn request_head(
        &mut self,
        id: TransactionId,
        request: &RequestContext<'_>,
    ) -> Verdict {
        self.filter().request_head(id, request)
    }

    /// `rendered` is the head for the client; headers may be added.
    pub(crate) fn response_head(
        &mut self,
        id: TransactionId,
        head: &ResponseHead<'_>,
        rendered: &mut Vec<u8>,
    ) -> Verdict {
        self.inspector.add_header(id, rendered);
        self.filter().response_head(id, head)
    }

    /// Shows the end of a response that ended with its connection.
    pub(crate) fn response_end(&mut self, id: TransactionId) -> Verdict {
        self.filter().response_body(id, b"")
    }

    /// Takes the part of `bytes` that belongs to a body and shows its payload. The result includes `verdict`, an
    /// earlier one of the same bytes. Shows nothing without an `id`.
    pub(crate) fn take_body(
        &mut self,
        direction: Direction,
        id: Option<TransactionId>,
        body: &mut Body,
        bytes: &mut [u8],
        mut verdict: Verdict,
    ) -> Result<(Taken, Verdict), ParseError> {
        let Some(id) = id else {
            return Ok((body.take(bytes, |_| {})?, verdict));
        };
        let filter = self.filter();
        let mut show = |piece: &[u8]| {
            let of_piece = match direction {
                Direction::Request => filter.request_body(id, piece),
                Direction::Response => filter.response_body(id, piece),
            };
            verdict = std::mem::replace(&mut verdict, Verdict::Pass).and(of_piece);
        };
        let taken = body.take(bytes, &mut show)?;
        if taken.done {
            show(b"");
            if direction == Direction::Request {
                // The filter does not see trailers, so none may pass.
                body.discard_trailers();
            }
        }
        Ok((taken, verdict))
    }

    pub(crate) fn finished(&mut self, id: TransactionId, outcome: &Outcome) {
        self.filter().finished(id, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_restrictive_verdict_wins() {
        let response = |status| {
            Verdict::Respond(Box::new(LocalResponse::new(status, "No", Vec::new(), Vec::new())))
        };
        assert_eq!(Verdict::Pass.and(Verdict::Suspend), Verdict::Suspend);
        assert_eq!(Verdict::Suspend.and(Verdict::Pass), Verdict::Suspend);
        assert_eq!(Verdict::Suspend.and(response(403)), response(403));
        assert_eq!(response(403).and(Verdict::Suspend), response(403));
        assert_eq!(response(403).and(response(500)), response(403));
        assert_eq!(Verdict::Pass.and(Verdict::Pass), Verdict::Pass);
        assert_eq!(Verdict::Hold.and(Verdict::Pass), Verdict::Pass);
        assert_eq!(Verdict::Pass.and(Verdict::Hold), Verdict::Hold);
        assert_eq!(Verdict::Suspend.and(Verdict::Hold), Verdict::Suspend);
    }
}
