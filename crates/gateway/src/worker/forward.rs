//! Forwarding: the request to the backend, and the response to the client.

use std::error::Error as _;
use std::ops::Range;
use std::time::SystemTime;

use tollgate_http1::{BodyFraming, ParseError, ResponseHead, Version, parse_response_head};

use super::http2::StreamEnd;
use super::link::Link;
use super::transaction::{HeldResponse, ResponseState, Transaction, exceeds_limit};
use super::upstream::{Place, Upstream};
use super::{HEADROOM_BYTES, INPUT_BYTES, PIECE_BYTES, STREAM_PIECE_BYTES, Stage, Step, Worker};
use crate::body::Body;
use crate::config::{Protocol, Requests};
use crate::filter::{Direction, Verdict};
use crate::headers::{Persistence, render_response};
use crate::local_response::{LocalResponse, Reason};
use crate::log;
use crate::transport::Received;

const INTERIM_RESPONSES_MAX: u32 = 64;

/// Context that determines the meaning of a response head, besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResponseKey {
    generation: usize,
    route: usize,
    is_head: bool,
    version: Version,
    /// The client's connection can be kept.
    keep_alive: bool,
}

/// The meaning of a final response head.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedResponse {
    status: u16,
    head_bytes: usize,
    framing: BodyFraming,
    /// The backend keeps its connection open.
    keep_alive: bool,
    /// The client's connection ends with the response.
    closes: bool,
    /// The body is forwarded without its chunked coding.
    strips_coding: bool,
    /// Position of the gateway's date in the head to forward. `None`: the response has a date.
    date_at: Option<usize>,
}

/// Kind of the start of the input. The head to forward is in the scratch space.
enum Parsed {
    Partial,
    Interim {
        head_bytes: usize,
    },
    Upgrade {
        head_bytes: usize,
    },
    Final(CachedResponse, Verdict),
    /// The cause, for the log.
    Invalid(String),
}

/// The error with its source.
fn cause_of(error: &ParseError) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl Worker {
    /// Moves what is available, in both directions.
    pub(super) fn forward(&mut self, key: usize) -> Step {
        let Some(transaction) = &mut self.clients[key].transaction else {
            return Step::Close;
        };
        if transaction.suspended.is_some() {
            return Step::Wait;
        }
        if transaction.is_request_held {
            return self.receive_held_request(key);
        }
        let Some(at) = transaction.upstream else {
            let Some(backend) = transaction.reserved.take() else { return Step::Wait };
            let assigned = self.connect_transaction(key, backend);
            return self.or_respond(key, assigned);
        };
        if let Some(step) = self.continue_handshake(key, at) {
            return step;
        }
        let Some(transaction) = &self.clients[key].transaction else { return Step::Close };
        if transaction.is_tunnel() {
            return self.forward_tunnel(key);
        }
        let step = if transaction.is_sent() || transaction.is_send_aborted {
            Step::Wait
        } else {
            self.forward_request(key)
        };
        // The transaction may have ended.
        if step == Step::Close || self.clients[key].stage != Stage::Transaction {
            return step;
        }
        match (step, self.forward_response(key)) {
            (Step::Continue, Step::Wait) => Step::Continue,
            (_, step) => step,
        }
    }

    /// Receives another piece of a request that a filter holds.
    fn receive_held_request(&mut self, key: usize) -> Step {
        let client = &mut self.clients[key];
        if client.flush(&mut self.http2).is_err() {
            return Step::Close;
        }
        let (piece, verdict) = match self.receive_request_piece(key) {
            Ok(received) => received,
            Err(step) => return step,
        };
        let Some(transaction) = &mut self.clients[key].transaction else { return Step::Close };
        transaction.request_buffer.push(&self.scratch.input[piece], 0);
        match verdict {
            Verdict::Hold => Step::Continue,
            Verdict::Pass => {
                transaction.is_request_held = false;
                let assigned = self.assign(key, None);
                self.or_respond(key, assigned)
            }
            Verdict::Suspend => self.suspend(key, HeldResponse::default()),
            Verdict::Respond(response) => self.respond(key, &response),
        }
    }

    /// Sends the unsent part of the request, or reads and sends another piece.
    fn forward_request(&mut self, key: usize) -> Step {
        if !self.send_request(key) {
            return Step::Wait;
        }
        let (piece, verdict) = match self.receive_request_piece(key) {
            Ok(received) => received,
            Err(step) => return step,
        };
        let client = &mut self.clients[key];
        let Some(transaction) = &mut client.transaction else { return Step::Close };
        let Some(at) = transaction.upstream else { return Step::Continue };
        let piece = &self.scratch.input[piece];
        match verdict {
            Verdict::Pass => {}
            // After a filter has passed the head, it can hold back a later part only briefly.
            Verdict::Hold | Verdict::Suspend => {
                transaction.request_buffer.push(piece, 0);
                return self.suspend(key, HeldResponse::default());
            }
            Verdict::Respond(response) if transaction.can_respond() => {
                return self.respond(key, &response);
            }
            Verdict::Respond(_) => return Step::Close,
        }
        let upstream = &mut self.upstreams[at];
        match upstream.link.send(&mut self.http2, piece, false) {
            Ok(sent) => {
                transaction.request_buffer.push(piece, sent);
                if transaction.is_sent() {
                    client.deadline = self.now + self.timeouts.response;
                }
            }
            Err(_) => {
                transaction.request_buffer.push(piece, 0);
                transaction.is_send_aborted = true;
                upstream.link.assume_readable();
            }
        }
        Step::Continue
    }

    /// Receives and checks another piece of the request. Returns its place in the input, or the step that follows if
    /// there is none.
    fn receive_request_piece(&mut self, key: usize) -> Result<(Range<usize>, Verdict), Step> {
        let client = &mut self.clients[key];
        let Some(transaction) = &mut client.transaction else { return Err(Step::Close) };
        if transaction.request_body.is_done()
            || !client.link.is_readable()
            || transaction.is_send_aborted
        {
            return Err(Step::Wait);
        }
        let can_respond = transaction.can_respond();
        let start = HEADROOM_BYTES;
        let room = &mut self.scratch.input[start..start + PIECE_BYTES];
        let count = match client.link.receive(&mut self.http2, room) {
            Ok(Received::Bytes(count)) => count,
            Ok(Received::Nothing) => return Err(Step::Wait),
            // The backend must not take the truncated request for complete.
            Ok(Received::End) if can_respond => {
                return Err(self.respond(key, &LocalResponse::error(Reason::TruncatedBody)));
            }
            Ok(Received::End) | Err(_) => return Err(Step::Close),
        };
        let taken = self.filter.take_body(
            Direction::Request,
            transaction.shown_id(),
            &mut transaction.request_body,
            &mut room[..count],
            Verdict::Pass,
        );
        let config = &self.generations[transaction.generation].shared.config;
        let (taken, verdict) = match taken {
            Ok(taken) => taken,
            Err(error) if can_respond => {
                let reason = Reason::of_parse_error(&error);
                return Err(self.respond(key, &LocalResponse::error(reason)));
            }
            Err(_) => return Err(Step::Close),
        };
        transaction.request_body_bytes += taken.payload_bytes;
        let (body, received) = (&transaction.request_body, transaction.request_body_bytes);
        if exceeds_limit(body, received, config.limits.body_bytes) {
            if can_respond {
                return Err(self.respond(key, &LocalResponse::error(Reason::BodyTooLarge)));
            }
            return Err(Step::Close);
        }
        client.deadline = self.timeouts.next_body_deadline(client.deadline, count, self.now);
        let behind = start + taken.consumed..start + count;
        if !behind.is_empty() {
            client.unread.extend_from_slice(&self.scratch.input[behind]);
        }
        let mut end = start + taken.kept;
        if taken.done {
            let edits = &config.routes[transaction.route].request_headers;
            let tail = transaction.request_body.tail(edits);
            self.scratch.input[end..end + tail.len()].copy_from_slice(&tail);
            end += tail.len();
        }
        Ok((start..end, verdict))
    }

    /// Sends the unsent part of the request. Returns true if none is left or the backend takes no more.
    fn send_request(&mut self, key: usize) -> bool {
        let client = &mut self.clients[key];
        let Some(transaction) = &mut client.transaction else { return false };
        let Some(at) = transaction.upstream else { return false };
        if transaction.request_buffer.is_sent() {
            return true;
        }
        let upstream = &mut self.upstreams[at];
        let unsent = transaction.request_buffer.unsent();
        match upstream.link.send(&mut self.http2, unsent, false) {
            Ok(0) => false,
            Ok(count) => {
                upstream.is_connecting = false;
                transaction.request_buffer.advance(count);
                let timeout =
                    if transaction.is_sent() { self.timeouts.response } else { self.timeouts.body };
                client.deadline = self.now + timeout;
                transaction.request_buffer.is_sent()
            }
            Err(_) => {
                // A response may have arrived before; otherwise reading shows the failure.
                transaction.is_send_aborted = true;
                upstream.link.assume_readable();
                true
            }
        }
    }

    /// Reads a piece of the response and forwards it, if the client has room.
    fn forward_response(&mut self, key: usize) -> Step {
        let client = &mut self.clients[key];
        match client.flush_body(&mut self.http2, &self.timeouts, self.now) {
            Ok(true) => {}
            Ok(false) => return Step::Wait,
            Err(_) => return Step::Close,
        }
        let Some(transaction) = &mut client.transaction else { return Step::Close };
        let Some(at) = transaction.upstream else { return Step::Wait };
        let upstream = &mut self.upstreams[at];
        if !upstream.link.is_readable() {
            return Step::Wait;
        }
        let start = HEADROOM_BYTES;
        let kept = upstream.partial_head.len();
        let mut piece_bytes = PIECE_BYTES;
        if let Link::Stream(stream) = &mut client.link {
            piece_bytes = STREAM_PIECE_BYTES;
            if matches!(transaction.response, ResponseState::Body { .. })
                && transaction.held_response.is_none()
            {
                // Bytes that the client cannot take stay in the socket of the backend.
                let Some(window) = self.http2.room(stream) else { return Step::Wait };
                piece_bytes = window.max(STREAM_PIECE_BYTES);
            }
        }
        let room_bytes = INPUT_BYTES.min(kept + piece_bytes);
        let room = &mut self.scratch.input[start..start + room_bytes];
        room[..kept].copy_from_slice(&upstream.partial_head);
        match upstream.link.receive(&mut self.http2, &mut room[kept..]) {
            Ok(Received::Bytes(count)) => {
                upstream.is_connecting = false;
                upstream.partial_head.clear();
                transaction.has_response_bytes = true;
                self.forward_response_piece(key, at, start, start + kept + count)
            }
            Ok(Received::Nothing) => Step::Wait,
            Ok(Received::End) => {
                let is_truncated = upstream.link.is_truncated();
                self.on_upstream_end(key, !is_truncated)
            }
            Err(_) => self.on_upstream_end(key, false),
        }
    }

    /// The backend has closed its connection, `cleanly` or with an error.
    fn on_upstream_end(&mut self, key: usize, cleanly: bool) -> Step {
        let Some(transaction) = &mut self.clients[key].transaction else { return Step::Close };
        let upstream = transaction.upstream.map(|at| &self.upstreams[at]);
        let early_end = upstream.and_then(|upstream| upstream.link.early_end());
        // A backend may refuse a stream after an interim response.
        let is_broken_off = transaction.has_response_bytes && early_end != Some(StreamEnd::Refused);
        match &transaction.response {
            ResponseState::Head if early_end == Some(StreamEnd::NoWebSocket) => {
                self.log_no_websocket(key, "it has not announced ENABLE_CONNECT_PROTOCOL");
                let assigned = self.try_another_unsent(key, Reason::NoWebSocket);
                self.or_respond(key, assigned)
            }
            ResponseState::Head
                if is_broken_off || upstream.is_some_and(Upstream::has_invalid_response) =>
            {
                let cause =
                    if is_broken_off { "it ended within its head" } else { "it is invalid HTTP/2" };
                self.reject_response(key, cause)
            }
            ResponseState::Head => {
                let reason = match early_end {
                    Some(StreamEnd::Failed(reason)) => reason,
                    None if upstream.is_some_and(|it| it.is_connecting) => Reason::ConnectFailed,
                    None | Some(StreamEnd::Refused | StreamEnd::NoWebSocket) => {
                        Reason::BackendClosed
                    }
                };
                let assigned = self.retry(key, reason);
                self.or_respond(key, assigned)
            }
            ResponseState::Body { body, .. } if body.ends_at_close() && cleanly => {
                let verdict = match transaction.shown_id() {
                    Some(id) => self.filter.response_end(id),
                    None => Verdict::Pass,
                };
                let can_respond = transaction.can_respond();
                let held = transaction.held_response.take().unwrap_or_default();
                match verdict {
                    Verdict::Pass => {
                        if self.clients[key].send(&mut self.http2, &held.bytes, false).is_err() {
                            return Step::Close;
                        }
                    }
                    Verdict::Hold | Verdict::Suspend => {
                        self.suspend(key, *held);
                    }
                    Verdict::Respond(response) if can_respond => {
                        return self.respond(key, &response);
                    }
                    // The response is already sent.
                    Verdict::Respond(_) => return Step::Close,
                }
                self.finish_response(key, false, false)
            }
            ResponseState::Body { .. } if transaction.can_respond() => {
                self.reject_response(key, "it ended within its body")
            }
            ResponseState::Body { .. } => self.abort_response(key),
            ResponseState::Done { .. } | ResponseState::Tunnel { .. } => Step::Close,
        }
    }

    /// Aborts a response within which the backend failed: the client sees its connection end.
    fn abort_response(&mut self, key: usize) -> Step {
        self.record_upstream_failure(key, "a response broke off or is invalid");
        Step::Close
    }

    /// The backend sent an invalid response, of which the client has nothing yet.
    fn reject_response(&mut self, key: usize, cause: &str) -> Step {
        self.record_upstream_failure(key, &format!("a response is invalid: {cause}"));
        self.respond(key, &LocalResponse::error(Reason::InvalidResponse))
    }

    /// Logs that the backend takes no WebSocket, which is not a failure.
    fn log_no_websocket(&mut self, key: usize, cause: &str) {
        if let Some(transaction) = &self.clients[key].transaction
            && let Some(at) = transaction.upstream
            && self.websocket_log.allow(self.now)
        {
            let Place { generation, pool, backend } = self.upstreams[at].place;
            let pool = &self.generations[generation].shared.config.pools[pool];
            log(format_args!(
                "backend {} of pool {} does not take a WebSocket: {cause} (logged once a minute)",
                pool.backends[backend].address, pool.name
            ));
        }
    }

    /// Forwards the part of the input from `start` to `end` that belongs to the response.
    fn forward_response_piece(
        &mut self,
        key: usize,
        at: usize,
        mut start: usize,
        end: usize,
    ) -> Step {
        let Some(transaction) = &self.clients[key].transaction else { return Step::Close };
        let is_first_piece = matches!(transaction.response, ResponseState::Head);
        let mut verdict = Verdict::Pass;
        while matches!(
            self.clients[key].transaction,
            Some(Transaction { response: ResponseState::Head, .. })
        ) {
            match self.parse_response(key, start, end) {
                Parsed::Partial => {
                    let received = &self.scratch.input[start..end];
                    self.upstreams[at].partial_head.extend_from_slice(received);
                    return Step::Continue;
                }
                Parsed::Interim { head_bytes } => {
                    start += head_bytes;
                    // Empty for an HTTP/1.0 client.
                    let head = &self.scratch.head;
                    if self.clients[key].send(&mut self.http2, head, false).is_err() {
                        return Step::Close;
                    }
                    if start == end {
                        return Step::Continue;
                    }
                }
                Parsed::Upgrade { head_bytes } => {
                    return self.start_tunnel(key, start + head_bytes, end);
                }
                Parsed::Final(response, _)
                    if matches!(response.status, 200..=299)
                        && self.clients[key].link.websocket_key().is_some() =>
                {
                    // A client over HTTP/2 would take it for the opening.
                    let cause = format!("it responds with {} in place of 101", response.status);
                    self.log_no_websocket(key, &cause);
                    return self.respond(key, &LocalResponse::error(Reason::NoWebSocket));
                }
                Parsed::Final(response, of_head) => {
                    start += response.head_bytes;
                    verdict = of_head;
                    self.begin_response(key, &response);
                }
                Parsed::Invalid(cause) => return self.reject_response(key, &cause),
            }
        }
        let client = &mut self.clients[key];
        let Some(transaction) = &mut client.transaction else { return Step::Close };
        let shown_id = transaction.shown_id();
        let is_unsent = is_first_piece || transaction.held_response.is_some();
        let ResponseState::Body { body, keep_alive, .. } = &mut transaction.response else {
            return Step::Close;
        };
        let keep_alive = *keep_alive;
        let input = &mut self.scratch.input[start..end];
        let taken = self.filter.take_body(Direction::Response, shown_id, body, input, verdict);
        let Ok((taken, verdict)) = taken else {
            return match is_unsent {
                true => self.reject_response(key, "its body is malformed"),
                false => self.abort_response(key),
            };
        };
        transaction.response_body_bytes += taken.payload_bytes;
        let has_surplus = start + taken.consumed < end;
        let mut piece = start..start + taken.kept;
        if taken.done {
            let config = &self.generations[transaction.generation].shared.config;
            let tail = body.tail(&config.routes[transaction.route].response_headers);
            self.scratch.input[piece.end..piece.end + tail.len()].copy_from_slice(&tail);
            piece.end += tail.len();
        }
        match verdict {
            Verdict::Pass => {}
            Verdict::Respond(response) if is_unsent => return self.respond(key, &response),
            // Part of the backend's response is already sent.
            Verdict::Respond(_) => return Step::Close,
            Verdict::Hold | Verdict::Suspend => {
                let mut held = transaction.held_response.take().unwrap_or_default();
                if is_first_piece {
                    held.bytes.extend_from_slice(&self.scratch.head);
                    held.has_head = true;
                }
                held.bytes.extend_from_slice(&self.scratch.input[piece]);
                if verdict == Verdict::Hold && !taken.done {
                    transaction.held_response = Some(held);
                    client.deadline = self.now + self.timeouts.body;
                    return Step::Continue;
                }
                let step = self.suspend(key, *held);
                if taken.done {
                    return self.finish_response(key, keep_alive, has_surplus);
                }
                return step;
            }
        }
        if let Some(held) = transaction.held_response.take()
            && client.send(&mut self.http2, &held.bytes, true).is_err()
        {
            return Step::Close;
        }
        if is_first_piece {
            // In front of the body, so that one call sends both.
            let head = &self.scratch.head;
            if head.len() <= piece.start {
                piece.start -= head.len();
                self.scratch.input[piece.start..piece.start + head.len()].copy_from_slice(head);
            } else if client.send(&mut self.http2, head, false).is_err() {
                return Step::Close;
            }
        }
        let more_follows = !taken.done && self.upstreams[at].link.is_readable();
        let piece = &self.scratch.input[piece];
        if client.send(&mut self.http2, piece, more_follows).is_err() {
            return Step::Close;
        }
        client.deadline = self.now + self.timeouts.body;
        if taken.done {
            return self.finish_response(key, keep_alive, has_surplus);
        }
        self.flush_if_full(key);
        Step::Continue
    }

    /// Parses the head at the start of the input, or finds it in the cache.
    fn parse_response(&mut self, key: usize, start: usize, end: usize) -> Parsed {
        let client = &mut self.clients[key];
        let websocket = client.link.websocket_key();
        let Some(transaction) = &mut client.transaction else {
            return Parsed::Invalid("no request is in progress".to_owned());
        };
        let request = transaction.request;
        let input = &self.scratch.input[start..end];
        // The client's connection is not kept while its request is incomplete, and not while draining.
        let keep_alive = request.keep_alive && transaction.is_sent() && self.stop_by.is_none();
        let response_key = ResponseKey {
            generation: transaction.generation,
            route: transaction.route,
            is_head: request.is_head,
            version: request.version,
            keep_alive,
        };
        let shown_id = transaction.shown_id();
        if shown_id.is_none()
            && let Some(cached) = self.scratch.responses.find(input, &response_key)
        {
            let response = cached.value;
            self.scratch.head.clear();
            self.scratch.head.extend_from_slice(&cached.rendered);
            if let Some(at) = response.date_at
                && let Some(date) = self.scratch.date.at(self.now, SystemTime::now)
            {
                self.scratch.head[at..at + date.len()].copy_from_slice(date.as_bytes());
            }
            return Parsed::Final(response, Verdict::Pass);
        }
        let config = &self.generations[transaction.generation].shared.config;
        let head = match parse_response_head(input, request.is_head) {
            Ok(Some(head)) if head.header_count <= config.limits.response_headers => head,
            Ok(None) => return Parsed::Partial,
            Ok(Some(head)) => {
                let (count, max) = (head.header_count, config.limits.response_headers);
                return Parsed::Invalid(format!(
                    "it has {count} header lines, more than {max} (`limits.response_headers`)"
                ));
            }
            Err(error) => return Parsed::Invalid(cause_of(&error)),
        };
        let is_http2 = config.pools[transaction.pool].protocol != Protocol::Http1;
        let version = if is_http2 { Version::Http2 } else { head.version };
        let head = ResponseHead { version, ..head };
        let via = config.forwarded.via.as_deref();
        let edits = &config.routes[transaction.route].response_headers;
        let out = &mut self.scratch.head;
        out.clear();
        let mut render = |persistence, framing, date: Option<&str>| {
            render_response(&head, edits, via, date, persistence, framing, out)
        };
        match head.status {
            101 if request.wants_upgrade
                && transaction.is_sent()
                && names_allowed_protocol(&head, &config.requests)
                && websocket.is_none_or(|key| key.is_accepted(head.headers)) =>
            {
                render(Persistence::Upgrade, BodyFraming::Empty, None);
                Parsed::Upgrade { head_bytes: head.len }
            }
            101 => Parsed::Invalid("it switches protocols without being asked to (101)".to_owned()),
            100..=199 if transaction.interim_responses < INTERIM_RESPONSES_MAX => {
                transaction.interim_responses += 1;
                if request.version != Version::Http10 {
                    render(Persistence::Interim, BodyFraming::Empty, None);
                }
                Parsed::Interim { head_bytes: head.len }
            }
            100..=199 => {
                Parsed::Invalid(format!("more than {INTERIM_RESPONSES_MAX} interim responses"))
            }
            _ if head.has_other_coding => {
                Parsed::Invalid("its Transfer-Encoding is not `chunked`".to_owned())
            }
            _ => {
                let strips_coding =
                    head.body == BodyFraming::Chunked && request.version == Version::Http10;
                let framing = if strips_coding { BodyFraming::UntilClose } else { head.body };
                let closes = !keep_alive || framing == BodyFraming::UntilClose;
                let persistence = Persistence::of(request.version, !closes);
                let date = self.scratch.date.at(self.now, SystemTime::now);
                let date_at = render(persistence, framing, date);
                let response = CachedResponse {
                    status: head.status,
                    head_bytes: head.len,
                    framing: head.body,
                    keep_alive: head.keep_alive
                        && !(request.is_head && config.pools[transaction.pool].close_after_head),
                    closes,
                    strips_coding,
                    date_at,
                };
                let rendered = &mut self.scratch.head;
                let verdict = match shown_id {
                    Some(id) => self.filter.response_head(id, &head, rendered),
                    None => {
                        let head_bytes = &input[..head.len];
                        self.scratch.responses.insert(head_bytes, response_key, response, rendered);
                        Verdict::Pass
                    }
                };
                Parsed::Final(response, verdict)
            }
        }
    }

    /// The head of the final response has arrived.
    fn begin_response(&mut self, key: usize, response: &CachedResponse) {
        let Some(transaction) = &mut self.clients[key].transaction else { return };
        let CachedResponse { framing, strips_coding, .. } = *response;
        transaction.status = response.status;
        transaction.closes = response.closes;
        transaction.response = ResponseState::Body {
            body: Body::new(framing, !strips_coding),
            keep_alive: response.keep_alive,
            ends_at_close: strips_coding || framing == BodyFraming::UntilClose,
        };
        let sent_at = transaction.sent_at;
        let (generation, pool) = (transaction.generation, transaction.pool);
        let us = self.elapsed_us(sent_at);
        let counters = self.pool_counters(generation, pool);
        counters.count_response(response.status);
        counters.upstream_durations.add_us(us);
    }

    /// Handles the end of the response. Finishes the transaction unless it is suspended.
    fn finish_response(&mut self, key: usize, keep_alive: bool, has_surplus: bool) -> Step {
        let Some(transaction) = &mut self.clients[key].transaction else { return Step::Close };
        let ends_at_close = transaction.response.ends_at_close();
        transaction.response = ResponseState::Done { ends_at_close };
        let is_suspended = transaction.suspended.is_some();
        self.give_back_upstream(key, keep_alive, has_surplus);
        if is_suspended { Step::Wait } else { self.finish(key) }
    }
}

/// True if a protocol switch names an allowed protocol. A switch that names none is invalid (RFC 9110, section 7.8).
fn names_allowed_protocol(head: &ResponseHead<'_>, requests: &Requests) -> bool {
    let mut protocols = head.headers.all("upgrade").peekable();
    protocols.peek().is_some() && protocols.all(|protocol| requests.allow_upgrade(protocol))
}
