//! HTTP/2: opening streams, and the responses on them.

use std::time::Instant;

use tollgate_http1::Response;
use tollgate_http2::{ErrorCode, Event, Fields, ResetCause};

use super::Worker;
use super::receive::Parsed;
use crate::connection::{Connection, InFlight, State, Stream};
use crate::http2::Exchange;
use crate::summary::Failure;

/// Failure reason of a server without HTTP/2 in the clear.
const HTTP1_RESPONSE: &str =
    "the server responds in HTTP/1.1; it has to accept HTTP/2 with prior knowledge";

impl Worker {
    /// Opens streams for the requests that wait, as far as the server allows.
    pub(super) fn open_streams(&mut self, index: usize) {
        let Connection { state: State::Open(stream), in_flight, .. } = &mut self.connections[index]
        else {
            return;
        };
        let Some(http2) = stream.http2.as_mut().filter(|_| !stream.is_shut) else { return };
        let requests = self.plan.workload.http2_requests();
        while http2.can_open()
            && let Some(mut request) = in_flight.pop_front()
        {
            if !request.was_sent {
                request.sent = self.now;
                if self.pacer.is_none() {
                    request.scheduled = self.now;
                }
            }
            http2.open(request, &requests[request.request]);
        }
    }

    /// Reads the frames in a piece of a connection and sends the requests that they make room for. All frames in one
    /// piece have arrived with it, so one reading of the clock serves all.
    pub(super) fn parse_frames(&mut self, index: usize, mut bytes: &[u8]) -> Parsed {
        self.now = Instant::now();
        let is_http1 = bytes.starts_with(b"HTTP/1.");
        loop {
            let connection = &mut self.connections[index];
            let State::Open(Stream { http2: Some(http2), .. }) = &mut connection.state else {
                return Parsed::Open;
            };
            let received =
                http2.framing.receive(&mut bytes, &mut self.fields, &mut http2.out, self.now);
            match received {
                Ok(Some(event)) => self.on_event(index, event),
                Ok(None) => break,
                Err(_) if is_http1 && !http2.is_ready => {
                    return Parsed::Failed(Failure::Malformed(HTTP1_RESPONSE.to_owned()));
                }
                Err(error) => return Parsed::Failed(Failure::malformed(&error)),
            }
        }
        let connection = &self.connections[index];
        let State::Open(Stream { http2: Some(http2), is_shut, .. }) = &connection.state else {
            return Parsed::Open;
        };
        if http2.framing.is_spent() && http2.len() == 0 {
            return match connection.is_unanswered() {
                true => Parsed::Failed(Failure::ClosedEarly),
                false => Parsed::Ended,
            };
        }
        // A server that has shut its side accepts nothing more; the end of the stream is read next.
        if !is_shut {
            self.use_streams(index);
        }
        Parsed::Open
    }

    /// Opens streams in the free room, and sends waiting frames.
    fn use_streams(&mut self, index: usize) {
        if self.pacer.is_some() {
            self.free(index);
        } else {
            self.take_requests(index);
        }
        self.send(index);
    }

    fn on_event(&mut self, index: usize, event: Event<'_>) {
        let connection = &mut self.connections[index];
        let State::Open(Stream { http2: Some(http2), .. }) = &mut connection.state else {
            return;
        };
        let workload = &self.plan.workload;
        match event {
            Event::Settings => {
                http2.is_ready = true;
                self.metrics.stream_limit(http2.framing.peer_streams());
                http2.resume_bodies(workload.http2_requests());
            }
            Event::Writable | Event::StreamWritable { .. } => {
                http2.resume_bodies(workload.http2_requests());
            }
            Event::Response { token, status, end_stream, .. } => {
                let Some(exchange) = http2.exchange(token) else { return };
                if self.plan.first_byte {
                    exchange.in_flight.first_byte.get_or_insert(self.now);
                }
                // Interim responses (1xx) precede the final one.
                exchange.status = status;
                if self.metrics.needs_first_head() {
                    self.metrics.set_first_head(&head(status, &self.fields));
                }
                if end_stream {
                    self.complete_stream(index, token);
                }
            }
            Event::Data { stream, token, data, end_stream } => {
                let Some(exchange) = http2.exchange(token) else { return };
                exchange.body_bytes += data.len() as u64;
                if let Some(pattern) = &workload.patterns[exchange.in_flight.request] {
                    exchange.search.feed(pattern, data);
                }
                http2.framing.credit(stream, data.len(), &mut http2.out);
                if end_stream {
                    self.complete_stream(index, token);
                }
            }
            Event::Trailers { token, .. } => self.complete_stream(index, token),
            Event::HeadTooLarge { token, .. } => {
                let failure = Failure::Malformed("the header fields exceed 64 KiB".to_owned());
                self.fail_stream(index, token, failure);
            }
            Event::Reset { token, cause, .. } => self.on_reset(index, token, cause),
            Event::GoAway { last_stream, .. } => {
                let resent = connection.resend_where(|stream| stream > last_stream);
                self.metrics.resent(resent);
            }
            // Of a server, or replies to a PING.
            Event::Request { .. } | Event::Refused { .. } | Event::Pong(_) => {}
        }
    }

    fn on_reset(&mut self, index: usize, token: usize, cause: ResetCause) {
        match cause {
            // The server has processed nothing of it (RFC 9113, section 8.7).
            ResetCause::Peer(ErrorCode::REFUSED_STREAM) => {
                let connection = &mut self.connections[index];
                if let Some(exchange) = connection.http2().and_then(|http2| http2.take(token)) {
                    let again = InFlight { was_sent: true, ..exchange.in_flight };
                    connection.in_flight.push_back(again);
                    self.metrics.resent(1);
                }
            }
            ResetCause::Peer(_) => self.fail_stream(index, token, Failure::Reset),
            ResetCause::Error(error) => {
                self.fail_stream(index, token, Failure::malformed(&error));
            }
        }
    }

    fn complete_stream(&mut self, index: usize, token: usize) {
        let State::Open(stream) = &mut self.connections[index].state else { return };
        stream.is_reused = true;
        let Some(http2) = &mut stream.http2 else { return };
        let Some(Exchange { in_flight, status, body_bytes, search, .. }) = http2.take(token) else {
            return;
        };
        let workload = &self.plan.workload;
        let has_pattern = workload.patterns[in_flight.request].is_none() || search.found();
        let response = Response { status, body_bytes, keep_alive: !http2.framing.is_spent() };
        let request = &workload.requests[in_flight.request];
        self.in_flight -= 1;
        self.metrics.response(&in_flight, request, response, has_pattern, self.now);
    }

    fn fail_stream(&mut self, index: usize, token: usize, failure: Failure) {
        let http2 = self.connections[index].http2();
        if let Some(exchange) = http2.and_then(|http2| http2.take(token)) {
            self.fail_in_flight(&exchange.in_flight, failure);
        }
    }

    /// Fails all requests with a stream. Returns their number.
    pub(super) fn fail_streams(&mut self, index: usize, failure: &Failure) -> usize {
        let mut count = 0;
        while let Some(http2) = self.connections[index].http2()
            && let Some(exchange) = http2.take_one(|_| true)
        {
            self.fail_in_flight(&exchange.in_flight, failure.clone());
            count += 1;
        }
        count
    }

    /// Cancels the streams whose requests have timed out, and fails those that waited for a stream too long. The
    /// connection continues.
    pub(super) fn time_out_streams(&mut self, index: usize) {
        let timeout = self.plan.response_timeout;
        let now = self.now;
        let is_late = |request: &InFlight| request.sent + timeout <= now;
        while let Some(http2) = self.connections[index].http2()
            && let Some(exchange) = http2.take_one(|exchange| is_late(&exchange.in_flight))
        {
            self.fail_in_flight(&exchange.in_flight, Failure::ResponseTimeout);
        }
        while self.connections[index].in_flight.front().is_some_and(is_late) {
            self.fail_front(index, Failure::ResponseTimeout);
        }
        self.use_streams(index);
    }
}

/// Renders the head of a response as HTTP/1 would.
fn head(status: u16, fields: &Fields) -> Vec<u8> {
    let mut text = format!("HTTP/2 {status}\r\n").into_bytes();
    for field in fields.headers() {
        text.extend([field.name, b": ", field.value, b"\r\n"].concat());
    }
    text.extend(b"\r\n");
    text
}
