//! Requests that are sent, until they are complete.

use std::time::Instant;

use tollgate_http1::{MAX_HEAD_BYTES, RequestMessage, parse_response_head_for_client};

use crate::http2_head::Http2Head;
use crate::replay::Captured;
use crate::workload::Workload;

/// A request without a complete response. It survives its connection.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Index in the workload.
    pub(crate) request: usize,
    /// Due time; in a closed loop, the same as `sent`.
    pub(crate) scheduled: Instant,
    /// Just before the first write; without keep-alive, the start of the connect.
    pub(crate) sent: Instant,
    /// True if any of it was sent on a connection that has ended since.
    pub(crate) was_sent: bool,
    /// Its bytes on the wire.
    pub(crate) sent_bytes: u64,
    /// Arrival of the first byte of its response, if the plan records it.
    pub(crate) first_byte: Option<Instant>,
    /// `None` without a replay.
    pub(crate) replayed: Option<Box<Replayed>>,
}

/// The part of a session in a request of a replay.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) session: u32,
    /// The request with cookies and values of the session.
    message: RequestMessage,
    /// `None` over HTTP/1.1.
    http2: Option<Http2Head>,
    /// HTTP/1.1: head of the response as received so far, without interim ones.
    head: Vec<u8>,
    has_head: bool,
    pub(crate) response: Captured,
}

impl Replayed {
    pub(crate) fn new(
        session: u32,
        message: RequestMessage,
        http2: Option<Http2Head>,
        needs_body: bool,
    ) -> Self {
        let response = Captured { body: needs_body.then(Vec::new), ..Captured::default() };
        Self { session, message, http2, head: Vec::new(), has_head: false, response }
    }

    /// Drops the part of a response that ended early.
    fn restart(&mut self) {
        let body = self.response.body.as_ref().map(|_| Vec::new());
        self.response = Captured { body, ..Captured::default() };
        self.head = Vec::new();
        self.has_head = false;
    }

    /// Takes the headers of an HTTP/1.1 response from its stream. Errors are those of the scanner, which reads the same
    /// bytes.
    pub(crate) fn capture(&mut self, bytes: &[u8], is_head: bool) {
        if self.has_head {
            return;
        }
        let room = MAX_HEAD_BYTES.saturating_sub(self.head.len());
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        while let Ok(Some(head)) = parse_response_head_for_client(&self.head, is_head) {
            if head.status < 200 {
                let len = head.len;
                self.head.drain(..len);
                continue;
            }
            self.has_head = true;
            let owned = |(name, value): (&str, &[u8])| (name.into(), value.into());
            self.response.headers = head.headers.iter().map(owned).collect();
            self.head = Vec::new();
            return;
        }
    }
}

impl InFlight {
    /// Prepares a request for another connection, after one has carried a part of it.
    pub(crate) fn restart(&mut self) {
        self.was_sent = true;
        if let Some(replayed) = &mut self.replayed {
            replayed.restart();
        }
    }

    pub(crate) fn message<'a>(&'a self, workload: &'a Workload) -> &'a RequestMessage {
        match &self.replayed {
            Some(replayed) => &replayed.message,
            None => &workload.requests[self.request].message,
        }
    }

    /// Returns the request as sent over HTTP/1.1.
    pub(crate) fn bytes<'a>(&'a self, workload: &'a Workload) -> &'a [u8] {
        self.message(workload).bytes()
    }

    pub(crate) fn http2_head<'a>(&'a self, workload: &'a Workload) -> &'a Http2Head {
        match self.replayed.as_ref().and_then(|replayed| replayed.http2.as_ref()) {
            Some(head) => head,
            None => &workload.http2_heads()[self.request],
        }
    }

    /// Sets the send time, unless a connection has carried the request before. In a closed loop it is the due time too.
    pub(crate) fn set_send_time(&mut self, now: Instant, is_closed_loop: bool) {
        if !self.was_sent {
            self.sent = now;
            if is_closed_loop {
                self.scheduled = now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Request;

    #[test]
    fn restarted_request_has_no_part_of_its_first_response() {
        let mut replayed = Replayed::new(0, Request::get("/").message, None, true);
        replayed.capture(b"HTTP/1.1 200 OK\r\nX: 1\r\nContent-Length: 9\r\n\r\n", false);
        replayed.response.add_body(b"half");
        replayed.restart();
        replayed.capture(b"HTTP/1.1 200 OK\r\nY: 2\r\nContent-Length: 3\r\n\r\n", false);
        replayed.response.add_body(b"all");
        let names: Vec<&str> = replayed.response.headers.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["Y", "Content-Length"]);
        assert_eq!(replayed.response.body.as_deref(), Some(&b"all"[..]));
    }
}
