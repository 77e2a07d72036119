//! Parts of a transaction that the firewall inspects, and its decisions.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tollgate_http1::{BodyFraming, FieldList, Headers, RequestHead, ResponseHead, Version};
use tollgate_net::Serial;

use super::route::Firewall;
use crate::local_response::LocalResponse;

/// A request head as rules see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InspectedHead<'a> {
    pub(crate) method: &'a [u8],
    pub(crate) target: &'a [u8],
    /// Such as `HTTP/1.1`.
    pub(crate) protocol: &'a str,
    pub(crate) headers: Headers<'a>,
    pub(crate) body: BodyFraming,
    /// The head for the audit log.
    pub(crate) bytes: &'a [u8],
    /// The bytes are a [`FieldList`](tollgate_http1::FieldList), otherwise text.
    pub(crate) is_list: bool,
}

impl<'a> InspectedHead<'a> {
    /// `bytes` is the head as received.
    pub(crate) fn of_request(head: &RequestHead<'a>, bytes: &'a [u8]) -> Self {
        Self {
            method: head.method.as_bytes(),
            target: head.target.as_bytes(),
            protocol: protocol(head.version),
            headers: head.headers,
            body: head.body,
            bytes,
            is_list: head.version == Version::Http2,
        }
    }

    /// `list` is a [`FieldList`] that begins with method and target.
    pub(crate) fn of_list(list: &'a [u8], protocol: &'a str, body: BodyFraming) -> Self {
        let mut fields = FieldList::new(list);
        let mut start_line = || fields.next_field().map_or(&b""[..], |field| field.value);
        let (method, target) = (start_line(), start_line());
        let headers = Headers::of_fields(fields);
        Self { method, target, protocol, headers, body, bytes: list, is_list: true }
    }
}

/// A response head as rules see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InspectedResponse<'a> {
    pub(crate) protocol: &'a str,
    pub(crate) status: u16,
    pub(crate) headers: Headers<'a>,
    pub(crate) body: BodyFraming,
}

impl<'a> InspectedResponse<'a> {
    pub(crate) fn of_response(head: &ResponseHead<'a>) -> Self {
        Self {
            protocol: protocol(head.version),
            status: head.status,
            headers: head.headers,
            body: head.body,
        }
    }
}

/// The part of a body that the proxy has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeBody<'a> {
    pub(crate) bytes: &'a [u8],
    /// More follows, or may follow.
    pub(crate) is_truncated: bool,
}

impl WholeBody<'_> {
    pub(crate) fn framing(self) -> BodyFraming {
        match self {
            Self { is_truncated: true, .. } => BodyFraming::Chunked,
            Self { bytes: b"", .. } => BodyFraming::Empty,
            Self { bytes, .. } => BodyFraming::Length(bytes.len() as u64),
        }
    }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => "HTTP/2.0",
    }
}

/// A request head and its circumstances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestContext<'a> {
    pub(crate) head: InspectedHead<'a>,
    /// Identifier of the transaction that a proxy has chosen. Empty: the firewall chooses one.
    pub(crate) name: &'a [u8],
    /// `None` over a Unix domain socket.
    pub(crate) client: Option<IpAddr>,
    /// 0: unknown.
    pub(crate) client_port: u16,
    /// Address of the listener.
    pub(crate) server: &'a str,
    /// Firewall of the route.
    pub(crate) firewall: &'a Arc<Firewall>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FirewallVerdict {
    /// Forwards this piece and all held ones.
    Pass,
    /// Forwards nothing in this direction until another verdict, but continues to receive. Invalid at the end of a
    /// message.
    Hold,
    /// Stops both directions until the transaction is resumed, at most for `timeouts.response`; then 504.
    Suspend,
    /// Sends this response instead. Aborts the connection if part of the backend's response is already sent.
    Respond(Box<LocalResponse>),
    /// A state of the inspection that should be impossible: a bug, to be reported. Nothing is forwarded.
    Bug(&'static str),
}

impl FirewallVerdict {
    /// The verdict at the end of a message, where no later one can follow.
    pub(crate) fn at_end(self) -> Self {
        if self == Self::Hold { Self::Suspend } else { self }
    }

    /// Returns the verdict of two pieces: the more restrictive one, except that the second ends a hold.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Pass | Self::Hold, other)
            | (Self::Suspend, other @ (Self::Respond(_) | Self::Bug(_))) => other,
            (this, _) => this,
        }
    }
}

/// Identifies a request and its response on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TransactionId {
    /// The key of its exchange.
    pub(crate) exchange: usize,
    /// Distinguishes transactions of the same exchange.
    pub(crate) serial: Serial,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// `None`: no response.
    pub(crate) status: Option<u16>,
    pub(crate) request_body_bytes: u64,
    pub(crate) response_body_bytes: u64,
    /// From the request head to the end of the response.
    pub(crate) duration: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_restrictive_verdict_wins() {
        let response = |status| {
            FirewallVerdict::Respond(Box::new(LocalResponse::new(
                status,
                "No",
                Vec::new(),
                Arc::default(),
            )))
        };
        assert_eq!(FirewallVerdict::Pass.and(FirewallVerdict::Suspend), FirewallVerdict::Suspend);
        assert_eq!(FirewallVerdict::Suspend.and(FirewallVerdict::Pass), FirewallVerdict::Suspend);
        assert_eq!(FirewallVerdict::Suspend.and(response(403)), response(403));
        assert_eq!(response(403).and(FirewallVerdict::Suspend), response(403));
        assert_eq!(response(403).and(response(500)), response(403));
        assert_eq!(FirewallVerdict::Pass.and(FirewallVerdict::Pass), FirewallVerdict::Pass);
        assert_eq!(FirewallVerdict::Hold.and(FirewallVerdict::Pass), FirewallVerdict::Pass);
        assert_eq!(FirewallVerdict::Pass.and(FirewallVerdict::Hold), FirewallVerdict::Hold);
        assert_eq!(FirewallVerdict::Suspend.and(FirewallVerdict::Hold), FirewallVerdict::Suspend);
        let bug = FirewallVerdict::Bug("lost");
        assert_eq!(FirewallVerdict::Suspend.and(bug.clone()), bug);
        assert_eq!(bug.clone().and(FirewallVerdict::Pass), bug);
    }
}
