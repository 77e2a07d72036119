//! Receiving responses.

use std::io;
use std::time::Instant;

use thiserror::Error;
use tollgate_http1::{Response, Scan, parse_response_head_for_client};
use tollgate_tls::Received;

use super::Worker;
use crate::connection::{Connection, State};
use crate::failures::RequestFailure;

/// Limit of reads of a large response before other connections are served.
const READS_PER_TURN_MAX: usize = 16;

/// State of a connection after a piece of its stream.
#[derive(Debug)]
pub(super) enum Parsed {
    Open,
    /// The connection ends with its last response.
    Ended,
    Failed(RequestFailure),
}

/// The server sent more bytes than the framing of its response allows.
#[derive(Debug, Error)]
#[error("{bytes} bytes follow the end of the response")]
struct SurplusBytes {
    bytes: usize,
}

impl Worker {
    /// Reads a socket. A read that leaves room in the buffer has emptied it, so no second read follows.
    pub(super) fn receive(&mut self, index: usize, buffer: &mut [u8]) {
        for read in 0..READS_PER_TURN_MAX {
            if read > 0 {
                // Long responses take time, and this reading decides which requests are due.
                self.now = Instant::now();
            }
            let State::Open(stream) = &mut self.connections[index].state else {
                return;
            };
            let was_handshaking = stream.transport.is_handshaking();
            let received = stream.transport.receive(buffer);
            let has_more = stream.has_more();
            if was_handshaking && !stream.transport.is_handshaking() && !self.on_handshake(index) {
                return;
            }
            self.watch_room(index);
            let bytes = match received {
                Ok(Received::Bytes(bytes)) => bytes,
                Ok(Received::Nothing) => return,
                Ok(Received::End) => return self.on_end_of_stream(index),
                Err(error) => return self.on_receive_error(index, &error),
            };
            if self.metrics.interval_end().is_some() {
                // The last reading may be older than the wait of the poller.
                self.now = Instant::now();
                self.metrics.advance_series(self.now);
            }
            self.metrics.received(bytes);
            let parsed = match self.connections[index].http2() {
                None => self.parse(index, &buffer[..bytes]),
                Some(_) => self.parse_frames(index, &buffer[..bytes]),
            };
            match parsed {
                Parsed::Open if !has_more => return,
                Parsed::Open => {}
                Parsed::Ended => return self.close(index),
                Parsed::Failed(failure) => return self.fail(index, failure),
            }
        }
        self.read_again(index);
    }

    /// Waits for room for what a TLS session has to send.
    fn watch_room(&mut self, index: usize) {
        let token = self.token(index);
        if let State::Open(stream) = &mut self.connections[index].state
            && stream.transport.is_tls()
        {
            // A connection that cannot be watched fails at its time limit.
            stream.transport.watch(&self.poller, token, false).ok();
        }
    }

    /// Schedules another read at the end of this turn.
    pub(super) fn read_again(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if !connection.is_unread {
            connection.is_unread = true;
            self.unread.push(index);
        }
    }

    /// Finds the responses in a piece of a stream and sends the requests that they make room for. All
    /// responses in one piece have arrived with it, so one reading of the clock serves all.
    fn parse(&mut self, index: usize, mut bytes: &[u8]) -> Parsed {
        let mut arrived = None;
        while !bytes.is_empty() {
            let connection = &mut self.connections[index];
            if !connection.has_started_front() {
                // A response without a request, such as a 408 on an idle connection.
                return Parsed::Ended;
            }
            let is_pipelined = connection.has_started_second();
            let Connection { state: State::Open(stream), in_flight, .. } = connection else {
                return Parsed::Open;
            };
            let Some(front) = in_flight.front_mut() else {
                return Parsed::Ended;
            };
            if self.plan.first_byte && front.first_byte.is_none() {
                front.first_byte = Some(*arrived.get_or_insert_with(Instant::now));
            }
            let is_head = self.plan.workload.requests[front.request].message.is_head();
            if let Some(replayed) = &mut front.replayed {
                replayed.capture(bytes, is_head);
            }
            let pattern = &self.plan.workload.patterns[front.request];
            let scanned = match (pattern, &mut front.replayed) {
                (None, None) => stream.scanner.feed(bytes, is_head, &mut self.heads, |_| {}),
                (pattern, replayed) => {
                    let search = &mut stream.search;
                    stream.scanner.feed(bytes, is_head, &mut self.heads, |piece| {
                        if let Some(pattern) = pattern {
                            search.feed(pattern, piece);
                        }
                        if let Some(replayed) = replayed.as_mut() {
                            replayed.response.add_body(piece);
                        }
                    })
                }
            };
            match scanned {
                Ok(Scan::Complete { response, consumed }) => {
                    if consumed < bytes.len() && !is_pipelined {
                        let surplus = SurplusBytes { bytes: bytes.len() - consumed };
                        return Parsed::Failed(RequestFailure::malformed(&surplus));
                    }
                    bytes = &bytes[consumed..];
                    self.now = *arrived.get_or_insert_with(Instant::now);
                    if !self.complete(index, response) {
                        return Parsed::Ended;
                    }
                }
                Ok(Scan::Partial) => break,
                Err(error) => return Parsed::Failed(RequestFailure::malformed(&error)),
            }
        }
        // A server that has closed its side accepts no more requests; the end of the stream is read next.
        if matches!(&self.connections[index].state, State::Open(stream) if !stream.is_shut()) {
            self.send_next(index);
        }
        Parsed::Open
    }

    /// Completes the front request. Returns true if the connection continues.
    fn complete(&mut self, index: usize, response: Response) -> bool {
        let connection = &mut self.connections[index];
        // A server that responds before it has the whole request will not read another one after it.
        let is_whole = connection.has_sent_front();
        let (Some(in_flight), State::Open(stream)) = (connection.pop(), &mut connection.state)
        else {
            return false;
        };
        let workload = &self.plan.workload;
        let has_pattern = workload.patterns[in_flight.request].is_none() || stream.search.found();
        stream.search.reset();
        stream.is_reused = true;
        self.in_flight -= 1;
        let request = &workload.requests[in_flight.request];
        let request_closes = in_flight.message(workload).closes();
        self.metrics.response(&in_flight, request, response, has_pattern, self.now);
        if self.metrics.needs_first_headers()
            && let Some(cached) = self.heads.last()
            && let Ok(Some(head)) = parse_response_head_for_client(cached.head(), false)
        {
            let headers = head.headers.iter();
            self.metrics.set_first_headers(headers.map(|(name, value)| (name.as_bytes(), value)));
        }
        if in_flight.replayed.is_some() {
            self.end_replayed(&in_flight, true);
        }
        let keeps_alive = response.keep_alive && !request_closes;
        self.plan.clients.protocol.keeps_connections() && keeps_alive && is_whole
    }

    fn on_end_of_stream(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let is_idle = connection.is_idle();
        let State::Open(stream) = &mut connection.state else {
            return;
        };
        if is_idle {
            return self.reconnect(index);
        }
        match stream.scanner.close() {
            Ok(Some(_)) if stream.transport.is_truncated() => {
                let reason = "the connection was closed without close_notify";
                self.fail(index, RequestFailure::Malformed(reason.to_owned()));
            }
            Ok(Some(response)) => {
                self.now = Instant::now();
                self.complete(index, response);
                self.reconnect(index);
            }
            Ok(None) => match stream.send_error.take() {
                Some(error) => self.fail(index, RequestFailure::io("send", &error)),
                None => self.fail(index, RequestFailure::ClosedEarly),
            },
            Err(error) => self.fail(index, RequestFailure::malformed(&error)),
        }
    }

    fn on_receive_error(&mut self, index: usize, error: &io::Error) {
        if self.connections[index].is_idle() {
            self.reconnect(index);
        } else {
            self.fail(index, RequestFailure::io("receive", error));
        }
    }
}
