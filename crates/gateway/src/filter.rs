//! Inspection of requests and responses, as by a web application firewall.
//!
//! A filter sees, in this order: the request head, before a backend is chosen; the request body, piece by piece without
//! its transfer coding; the response head; the response body; and the outcome. Nothing is forwarded before its verdict.
//! Not shown are interim responses, tunnels, and requests without a route.

use std::net::IpAddr;
use std::time::Duration;

use tollgate_http1::{ParseError, RequestHead, ResponseHead};

use crate::body::{Body, Taken};
pub use crate::local_response::LocalResponse;

/// Inspects the traffic of one thread. Calls are made on the data path and block it: a filter that needs longer suspends
/// the transaction and resumes it from another thread.
///
/// [`finished`](Self::finished) is called once for each transaction whose head was shown.
#[expect(unused_variables, reason = "the default methods inspect nothing")]
pub trait Filter: Send {
    /// `client` is `None` over a Unix domain socket.
    fn request_head(
        &mut self,
        id: TransactionId,
        head: &RequestHead<'_>,
        client: Option<IpAddr>,
    ) -> Verdict {
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    /// Stops both directions until the transaction is resumed, at most for `timeouts.response`; then 504.
    Suspend,
    /// Sends this response instead. If a part of the backend's response is sent already, aborts the connection.
    Respond(Box<LocalResponse>),
}

impl Verdict {
    /// Returns the more restrictive of two verdicts.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Pass, other) | (Self::Suspend, other @ Self::Respond(_)) => other,
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

/// The filter of a thread, if it has one.
pub(crate) struct FilterSlot(pub(crate) Option<Box<dyn Filter>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Request,
    Response,
}

impl FilterSlot {
    /// True if heads must be parsed to be shown.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn request_head(
        &mut self,
        id: TransactionId,
        head: &RequestHead<'_>,
        client: Option<IpAddr>,
    ) -> Verdict {
        self.0.as_mut().map_or(Verdict::Pass, |filter| filter.request_head(id, head, client))
    }

    pub(crate) fn response_head(&mut self, id: TransactionId, head: &ResponseHead<'_>) -> Verdict {
        self.0.as_mut().map_or(Verdict::Pass, |filter| filter.response_head(id, head))
    }

    /// Shows the end of a response that ended with its connection.
    pub(crate) fn response_end(&mut self, id: TransactionId) -> Verdict {
        self.0.as_mut().map_or(Verdict::Pass, |filter| filter.response_body(id, b""))
    }

    /// Takes the part of `bytes` that belongs to a body and shows its payload. The result includes `verdict`, an
    /// earlier one of the same bytes.
    pub(crate) fn take_body(
        &mut self,
        direction: Direction,
        id: TransactionId,
        body: &mut Body,
        bytes: &mut [u8],
        mut verdict: Verdict,
    ) -> Result<(Taken, Verdict), ParseError> {
        let Some(filter) = &mut self.0 else {
            return Ok((body.take(bytes, |_| {})?, verdict));
        };
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
        }
        Ok((taken, verdict))
    }

    pub(crate) fn finished(&mut self, id: TransactionId, outcome: impl FnOnce() -> Outcome) {
        if let Some(filter) = &mut self.0 {
            filter.finished(id, &outcome());
        }
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
    }
}
