//! HTTP/2: opening streams, and the responses on them.

use std::collections::VecDeque;
use std::time::Instant;

use tollgate_http1::{HeadFaults, Response};
use tollgate_http2::{ErrorCode, Event, Field, ResetCause};

use super::Worker;
use super::receive::Parsed;
use crate::connection::{Connection, State, Stream};
use crate::failures::RequestFailure;
use crate::http2;
use crate::in_flight::InFlight;

/// Length of a read after whose processing the clock is read again.
const LONG_READ_BYTES: usize = 4096;

/// Failure reason if the server does not support HTTP/2 with prior knowledge.
const HTTP1_RESPONSE: &str =
    "the server responds in HTTP/1.1; it has to accept HTTP/2 with prior knowledge";

impl Worker {
    /// Opens streams for the requests that wait, as far as the server allows.
    #[inline]
    pub(super) fn open_streams(&mut self, index: usize) {
        let Connection { state: State::Open(stream), in_flight, .. } = &mut self.connections[index]
        else {
            return;
        };
        if stream.http2.is_none() || stream.is_shut() {
            return;
        }
        let Some(http2) = stream.http2.as_mut() else { return };
        while http2.can_open()
            && let Some(mut request) = in_flight.pop_front()
        {
            request.set_send_time(self.now, self.source.is_closed_loop());
            http2.open(request, &self.plan.workload);
        }
    }

    /// Processes received frames, then opens streams for further requests. One reading of the clock serves all frames of a
    /// read.
    pub(super) fn parse_frames(&mut self, index: usize, mut bytes: &[u8]) -> Parsed {
        self.now = Instant::now();
        let is_http1 = bytes.starts_with(b"HTTP/1.");
        let is_long = bytes.len() > LONG_READ_BYTES;
        loop {
            let connection = &mut self.connections[index];
            let State::Open(Stream { http2: Some(http2), .. }) = &mut connection.state else {
                return Parsed::Open;
            };
            http2.last_received = self.now;
            let received =
                http2.framing.receive(&mut bytes, &mut self.fields, http2.out.tail(), self.now);
            match received {
                Ok(Some(event)) => self.on_event(index, event),
                Ok(None) => break,
                Err(_) if is_http1 && !http2.is_ready => {
                    return Parsed::Failed(RequestFailure::Malformed(HTTP1_RESPONSE.to_owned()));
                }
                Err(error) => return Parsed::Failed(RequestFailure::malformed(&error)),
            }
        }
        if is_long {
            // Excludes the processing time from the latency of the next requests.
            self.now = Instant::now();
        }
        let connection = &self.connections[index];
        let State::Open(stream @ Stream { http2: Some(http2), .. }) = &connection.state else {
            return Parsed::Open;
        };
        if http2.is_over() {
            return if connection.is_unanswered() {
                Parsed::Failed(RequestFailure::ClosedEarly)
            } else {
                Parsed::Ended
            };
        }
        // A server that has closed its side accepts no more requests; the end of the stream is read next.
        if !stream.is_shut() {
            self.use_streams(index);
        }
        Parsed::Open
    }

    /// Takes the next requests if there is room, and sends queued frames.
    fn use_streams(&mut self, index: usize) {
        self.send_next(index);
        if !self.source.is_closed_loop() || !self.is_sending {
            self.send(index);
        }
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
                http2.resume_bodies(workload);
            }
            Event::Writable => http2.resume_bodies(workload),
            Event::StreamWritable { token, .. } => {
                http2.resume_body(token, workload);
            }
            Event::Response { token, status, end_stream, .. } => {
                let Some(stream) = http2.stream_mut(token) else { return };
                if self.plan.first_byte {
                    stream.in_flight.first_byte.get_or_insert(self.now);
                }
                if let Some(coalescing) = &mut self.coalescing {
                    coalescing.record(self.now - stream.in_flight.sent);
                }
                // Interim responses (1xx) precede the final one.
                stream.status = status;
                if let Some(replayed) =
                    stream.in_flight.replayed.as_deref_mut().filter(|_| status >= 200)
                {
                    let field = |field: Field<'_>| {
                        (String::from_utf8_lossy(field.name).into(), field.value.into())
                    };
                    replayed.response.headers = self.fields.headers().map(field).collect();
                }
                if status >= 200 && self.metrics.needs_first_headers() {
                    let headers = self.fields.headers();
                    self.metrics.set_first_headers(headers.map(|field| (field.name, field.value)));
                }
                if end_stream {
                    self.complete_stream(index, token);
                }
            }
            Event::Data { stream: id, token, data, end_stream } => {
                let Some(stream) = http2.stream_mut(token) else { return };
                stream.body_bytes += data.len() as u64;
                if let Some(pattern) = &workload.patterns[stream.in_flight.request] {
                    stream.search.feed(pattern, data);
                }
                if let Some(replayed) = &mut stream.in_flight.replayed {
                    replayed.response.add_body(data);
                }
                http2.framing.credit(id, data.len(), http2.out.tail());
                if end_stream {
                    self.complete_stream(index, token);
                }
            }
            Event::Trailers { token, .. } => self.complete_stream(index, token),
            Event::HeadTooLarge { token, .. } => {
                let failure = RequestFailure::Malformed(
                    "the header fields exceed 64 KiB or 256 fields".to_owned(),
                );
                self.fail_stream(index, token, failure);
            }
            Event::Reset { token, cause, .. } => self.on_reset(index, token, cause),
            Event::GoAway { last_stream, .. } => {
                let resent = connection.resend_where(|stream| stream.id > last_stream);
                self.metrics.resent(resent);
            }
            // Only a server receives requests, and no PING is sent.
            Event::Request { .. } | Event::Refused { .. } | Event::Pong(_) => {}
        }
    }

    fn on_reset(&mut self, index: usize, token: usize, cause: ResetCause) {
        let connection = &mut self.connections[index];
        let Some(stream) = connection.http2().and_then(|http2| http2.take(token)) else { return };
        let failure = match cause {
            // The server has not processed the request (RFC 9113, section 8.7). A second refusal is a failure, so that an
            // overloaded server is not flooded.
            ResetCause::Peer(ErrorCode::REFUSED_STREAM) if !stream.in_flight.was_sent => {
                connection.resend(stream.in_flight);
                return self.metrics.resent(1);
            }
            ResetCause::Peer(_) => RequestFailure::Reset,
            ResetCause::Error(error) => RequestFailure::malformed(&error),
        };
        self.fail_in_flight(&stream.in_flight, failure);
    }

    fn complete_stream(&mut self, index: usize, token: usize) {
        let State::Open(stream) = &mut self.connections[index].state else { return };
        stream.is_reused = true;
        let Some(http2) = &mut stream.http2 else { return };
        let Some(ended) = http2.take(token) else { return };
        let http2::Stream { in_flight, status, body_bytes, search, .. } = ended;
        let workload = &self.plan.workload;
        let has_pattern = workload.patterns[in_flight.request].is_none() || search.found();
        let keep_alive = !http2.framing.is_spent();
        let response = Response { status, body_bytes, keep_alive, faults: HeadFaults::default() };
        let request = &workload.requests[in_flight.request];
        self.in_flight -= 1;
        self.metrics.response(&in_flight, request, response, has_pattern, self.now);
        self.end_replayed(&in_flight, true);
    }

    fn fail_stream(&mut self, index: usize, token: usize, failure: RequestFailure) {
        let http2 = self.connections[index].http2();
        if let Some(stream) = http2.and_then(|http2| http2.take(token)) {
            self.fail_in_flight(&stream.in_flight, failure);
        }
    }

    /// Fails all requests with a stream. Returns their number.
    pub(super) fn fail_streams(&mut self, index: usize, failure: &RequestFailure) -> usize {
        let http2 = self.connections[index].http2();
        let streams = http2.map_or_else(Vec::new, |http2| http2.take_where(|_| true));
        for stream in &streams {
            self.fail_in_flight(&stream.in_flight, failure.clone());
        }
        streams.len()
    }

    /// Cancels the streams whose requests have timed out, and fails those that waited for a stream too long. The
    /// connection continues; if nothing has arrived on it since those requests were sent, the others are sent again on a
    /// new one.
    pub(super) fn time_out_streams(&mut self, index: usize) {
        let (now, timeout) = (self.now, self.plan.clients.response_timeout);
        let is_late = |request: &InFlight| request.sent + timeout <= now;
        let connection = &mut self.connections[index];
        let waiting = std::mem::take(&mut connection.in_flight);
        let (late, waiting): (VecDeque<_>, _) = waiting.into_iter().partition(is_late);
        connection.in_flight = waiting;
        let Some(http2) = connection.http2() else { return };
        let streams = http2.take_where(|stream| is_late(&stream.in_flight));
        http2.update_oldest_sent();
        let is_dead = streams.iter().any(|stream| http2.last_received < stream.in_flight.sent);
        let is_over = is_dead || http2.is_over();
        for request in streams.iter().map(|stream| &stream.in_flight).chain(&late) {
            self.fail_in_flight(request, RequestFailure::ResponseTimeout);
        }
        if is_over {
            self.reconnect(index);
        } else {
            self.use_streams(index);
        }
    }
}
