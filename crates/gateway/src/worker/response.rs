//! Forwarding of a response to its client.

use std::error::Error as _;
use std::num::NonZeroU32;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use tollgate_http1::{
    BodyFraming, FieldList, ParseError, ResponseHead, Version, parse_response_head,
};

use super::http2::{Room, StreamEnd};
use super::keys::UpstreamKey;
use super::link::Link;
use super::scratch::{
    CachedResponse, HEADROOM_BYTES, INPUT_BYTES, PIECE_BYTES, ResponseKey, STREAM_PIECE_BYTES,
    Scratch,
};
use super::transaction::{Hold, ResponseFields, ResponseState, Transaction};
use super::turn::{Flow, Turn};
use super::upstreams::BackendPlace;
use crate::body::{Body, TAIL_BYTES_MAX};
use crate::compression::{self, Encoder, ResponseCoding, response_coding};
use crate::config::{Protocol, Requests, Transfer};
use crate::counters::Interruption;
use crate::firewall::{Direction, FirewallVerdict};
use crate::headers::{
    HeadWriter, MessageForm, Persistence, ResponseForm, is_streaming, keep_alive_seconds,
    render_response,
};
use crate::local_response::Reason;
use crate::log;
use tollgate_tls::Received;

const INTERIM_RESPONSES_MAX: u32 = 64;

/// Kind of the start of the input. The head to forward is in the scratch space.
enum ParsedResponse {
    Partial,
    Interim {
        head_bytes: usize,
    },
    Upgrade {
        head_bytes: usize,
    },
    Final(CachedResponse, FirewallVerdict),
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

impl Turn<'_> {
    /// Reads a piece of the response and forwards it, if the client has room.
    pub(super) fn forward_response(&mut self, at: UpstreamKey) -> Flow {
        let Self { client, transaction, shared, .. } = self;
        let mut room_bytes_max = INPUT_BYTES;
        if !client.unsent.is_empty() {
            let timeouts = *shared.timeouts_of(transaction);
            let Transaction { started_at, response_body_bytes, is_streaming, .. } = **transaction;
            let transfer = Transfer { since: started_at, bytes: response_body_bytes, is_streaming };
            match client.flush_body(&mut shared.http2, &timeouts, Some(transfer), shared.now) {
                Ok(true) => {}
                Ok(false) => room_bytes_max = shared.response_room(client, transaction),
                Err(_) => return Flow::Close,
            }
        }
        let upstream = &shared.upstreams[at];
        if room_bytes_max == 0 || !upstream.link.is_readable() {
            return Flow::Wait;
        }
        let start = HEADROOM_BYTES;
        let kept = upstream.partial_head.len();
        let mut piece_bytes = PIECE_BYTES;
        if let Link::Stream(stream) = &mut client.link {
            piece_bytes = STREAM_PIECE_BYTES;
            if matches!(transaction.response, ResponseState::Body { .. })
                && matches!(transaction.hold, Hold::Nothing)
            {
                // Bytes that the client cannot take stay in the socket of the backend, unless they may wait here.
                match shared.http2.room(stream) {
                    Room::Window(bytes) => piece_bytes = bytes.max(STREAM_PIECE_BYTES),
                    Room::PastTurn => return Flow::Wait,
                    Room::Full => {
                        room_bytes_max = shared.response_room(client, transaction);
                        if room_bytes_max == 0 {
                            return Flow::Wait;
                        }
                    }
                }
            }
        }
        let may_encode = match &transaction.response {
            ResponseState::Body { encoder, .. } => encoder.is_some(),
            _ => transaction.summary.coding.is_some(),
        };
        if may_encode {
            piece_bytes = piece_bytes.min(compression::PIECE_BYTES);
        }
        let upstream = &mut shared.upstreams[at];
        let room_bytes = room_bytes_max.min(kept + piece_bytes);
        let room = &mut shared.scratch.input[start..start + room_bytes];
        room[..kept].copy_from_slice(&upstream.partial_head);
        match upstream.link.receive(&mut shared.http2, &mut room[kept..]) {
            Ok(Received::Bytes(count)) => {
                upstream.is_connecting = false;
                upstream.partial_head.clear();
                if let ResponseState::Head { has_begun, .. } = &mut transaction.response
                    && !std::mem::replace(has_begun, true)
                {
                    let us = shared.elapsed_us(transaction.started_at).max(1);
                    transaction.first_byte_us =
                        u32::try_from(us).ok().or(Some(u32::MAX)).and_then(NonZeroU32::new);
                }
                self.forward_response_piece(at, start, start + kept + count)
            }
            Ok(Received::Nothing) => {
                // The last piece filled its buffer, so that more seemed to follow, and the encoder was not flushed.
                let is_held_back = matches!(transaction.hold, Hold::Nothing)
                    && matches!(&transaction.response,
                        ResponseState::Body { encoder: Some(encoder), .. } if encoder.has_pending());
                if is_held_back {
                    self.forward_body_piece(at, start, start, false, FirewallVerdict::Pass)
                } else {
                    Flow::Wait
                }
            }
            Ok(Received::End) => {
                let is_truncated = upstream.link.is_truncated();
                self.on_upstream_end(at, !is_truncated)
            }
            Err(_) => self.on_upstream_end(at, false),
        }
    }

    /// The backend has closed its connection, `cleanly` or with an error.
    fn on_upstream_end(&mut self, at: UpstreamKey, cleanly: bool) -> Flow {
        let upstream = &self.shared.upstreams[at];
        let early_end = upstream.link.early_end();
        match &self.transaction.response {
            ResponseState::Head { .. } if early_end == Some(StreamEnd::NoWebSocket) => {
                self.log_no_websocket(at, "it has not announced ENABLE_CONNECT_PROTOCOL");
                self.try_another_unsent(at, Reason::NoWebSocket)
            }
            // A backend may refuse a stream after an interim response.
            ResponseState::Head { has_begun: true, .. }
                if early_end != Some(StreamEnd::Refused) =>
            {
                self.reject_response("it ended within its head")
            }
            ResponseState::Head { .. } if upstream.has_invalid_response() => {
                self.reject_response("it is invalid HTTP/2")
            }
            ResponseState::Head { .. } => {
                let reason = match early_end {
                    Some(StreamEnd::Failed(reason)) => reason,
                    None if upstream.is_connecting => Reason::ConnectFailed,
                    None | Some(StreamEnd::Refused | StreamEnd::NoWebSocket) => {
                        Reason::BackendClosed
                    }
                };
                self.retry(at, reason)
            }
            ResponseState::Body { body, .. } if body.ends_at_close() && cleanly => {
                let verdict = match self.transaction.shown_id() {
                    Some(id) => self.shared.inspector.end_body(Direction::Response, id),
                    None => FirewallVerdict::Pass,
                };
                let held = self.transaction.hold.take();
                match self.apply(verdict.at_end(), held) {
                    flow @ (Flow::Respond(_) | Flow::Close) => flow,
                    Flow::Continue | Flow::Wait | Flow::Finish => {
                        self.finish_response(at, false, false)
                    }
                }
            }
            ResponseState::Body { .. } if self.transaction.can_respond() => {
                self.reject_response("it ended within its body")
            }
            ResponseState::Body { .. } if upstream.has_invalid_response() => {
                self.abort_response(Interruption::Malformed)
            }
            ResponseState::Body { .. } => self.abort_response(Interruption::BrokenOff),
            // Nothing is read from the backend then.
            ResponseState::Done { .. } | ResponseState::Tunnel { .. } => {
                self.shared.report_bug("a response ended after its end");
                Flow::Close
            }
        }
    }

    /// Aborts a response within which the backend failed: the client sees its connection end.
    fn abort_response(&mut self, cause: Interruption) -> Flow {
        self.record_failure("a response broke off or is invalid");
        self.interrupt(cause)
    }

    /// The backend sent an invalid response, of which the client has nothing yet.
    fn reject_response(&mut self, cause: &str) -> Flow {
        self.record_failure(&format!("a response is invalid: {cause}"));
        Flow::error(Reason::InvalidResponse)
    }

    /// Logs that the backend takes no WebSocket, which is not a failure.
    fn log_no_websocket(&mut self, at: UpstreamKey, cause: &str) {
        let shared = &mut *self.shared;
        if shared.websocket_log.allow(shared.now) {
            let BackendPlace { generation, pool, backend } = shared.upstreams[at].place;
            let pool = shared.upstreams[generation].pool(pool);
            log(format_args!(
                "backend {} of pool {} does not take a WebSocket: {cause} (logged once a minute)",
                pool.backends[backend.0].address, pool.name
            ));
        }
    }

    /// Forwards the part of the input from `start` to `end` that belongs to the response.
    fn forward_response_piece(&mut self, at: UpstreamKey, mut start: usize, end: usize) -> Flow {
        let is_first_piece = self.transaction.is_head_missing();
        let mut verdict = FirewallVerdict::Pass;
        while let ResponseState::Head { interim_responses, .. } = self.transaction.response {
            match self.parse_response(at, start, end, interim_responses) {
                ParsedResponse::Partial => {
                    let shared = &mut *self.shared;
                    let received = &shared.scratch.input[start..end];
                    shared.upstreams[at].partial_head.extend_from_slice(received);
                    return Flow::Continue;
                }
                ParsedResponse::Interim { head_bytes } => {
                    start += head_bytes;
                    let interim_responses = interim_responses + 1;
                    self.transaction.response =
                        ResponseState::Head { has_begun: true, interim_responses };
                    // Empty for an HTTP/1.0 client.
                    let head = &self.shared.scratch.head;
                    if self.client.send(&mut self.shared.http2, head, false).is_err() {
                        return Flow::Close;
                    }
                    if start == end {
                        return Flow::Continue;
                    }
                }
                ParsedResponse::Upgrade { head_bytes } => {
                    return self.start_tunnel(at, start + head_bytes, end);
                }
                ParsedResponse::Final(response, _)
                    if matches!(response.status, 200..=299)
                        && self.client.link.websocket_key().is_some() =>
                {
                    // A client over HTTP/2 would take it for the opening.
                    let cause = format!("it responds with {} in place of 101", response.status);
                    self.log_no_websocket(at, &cause);
                    return Flow::error(Reason::NoWebSocket);
                }
                ParsedResponse::Final(response, of_head) => {
                    start += response.head_bytes;
                    verdict = of_head;
                    self.begin_response(at, &response);
                }
                ParsedResponse::Invalid(cause) => return self.reject_response(&cause),
            }
        }
        self.forward_body_piece(at, start, end, is_first_piece, verdict)
    }

    /// Forwards a piece of a response body; the first one with the head, on which there is a verdict.
    fn forward_body_piece(
        &mut self,
        at: UpstreamKey,
        start: usize,
        end: usize,
        is_first_piece: bool,
        verdict: FirewallVerdict,
    ) -> Flow {
        let Self { client, transaction, shared, .. } = self;
        let shown_id = transaction.shown_id();
        let is_unsent = is_first_piece || transaction.can_respond();
        let trailers = shared.upstreams[at].link.take_end();
        let ResponseState::Body { body, encoder, keep_alive, .. } = &mut transaction.response
        else {
            shared.report_bug("a response that has ended has a body");
            return Flow::Close;
        };
        let keep_alive = *keep_alive;
        let input = &mut shared.scratch.input[start..end];
        let ended = trailers.map_or(Ok(()), |trailers| body.end(FieldList::new(&trailers)));
        let inspector = &mut shared.inspector;
        let taken = ended.and_then(|()| {
            inspector.take_body(Direction::Response, shown_id, body, input, verdict)
        });
        let Ok((taken, verdict)) = taken else {
            return if is_unsent {
                self.reject_response("its body is malformed")
            } else {
                self.abort_response(Interruption::Malformed)
            };
        };
        let has_surplus = start + taken.consumed < end;
        let more_follows = !taken.done && shared.upstreams[at].link.is_readable();
        let config = &shared.upstreams[transaction.generation].shared.config;
        let edits = &config.routes[transaction.route.0].response_headers;
        let Scratch { input, compressed, head, .. } = &mut shared.scratch;
        let piece = start..start + taken.kept;
        let (buffer, piece) = if encoder.is_none() {
            transaction.response_body_bytes += taken.payload_bytes;
            (&mut **input, piece)
        } else {
            let piece = compress(encoder, &input[piece], taken.done, more_follows, compressed);
            transaction.response_body_bytes += piece.len() as u64;
            let counters = shared.counters.clients(shared.thread);
            counters.compression_received_bytes.add(taken.payload_bytes);
            counters.compression_sent_bytes.add(piece.len() as u64);
            (&mut **compressed, piece)
        };
        let mut piece = body.frame(buffer, piece, edits);
        let held = transaction.hold.take();
        if verdict != FirewallVerdict::Pass {
            let mut held = held.unwrap_or_default();
            if is_first_piece {
                held.bytes.extend_from_slice(head);
                held.has_head = true;
            }
            held.bytes.extend_from_slice(&buffer[piece]);
            if taken.done {
                client.end_response(body.trailers());
            }
            let verdict = if taken.done { verdict.at_end() } else { verdict };
            return match self.apply(verdict, Some(held)) {
                Flow::Wait if taken.done => self.finish_response(at, keep_alive, has_surplus),
                flow => flow,
            };
        }
        // Then its deadline moves only when it takes bytes (`flush_body`).
        let is_behind = !client.unsent.is_empty();
        if let Some(held) = held
            && client.send(&mut shared.http2, &held.bytes, true).is_err()
        {
            return Flow::Close;
        }
        if is_first_piece {
            // In front of the body, so that one call sends both.
            if head.len() <= piece.start {
                piece.start -= head.len();
                buffer[piece.start..piece.start + head.len()].copy_from_slice(head);
            } else if client.send(&mut shared.http2, head, false).is_err() {
                return Flow::Close;
            }
        }
        if taken.done {
            client.end_response(body.trailers());
        }
        if client.send(&mut shared.http2, &buffer[piece], more_follows).is_err() {
            return Flow::Close;
        }
        if !is_behind {
            let timeouts = shared.timeouts_of(transaction);
            client.deadline = shared.now + timeouts.between_pieces(transaction.is_streaming);
        }
        if taken.done {
            return self.finish_response(at, keep_alive, has_surplus);
        }
        Flow::Continue
    }

    /// Parses the head at the start of the input, or finds it in the cache.
    fn parse_response(
        &mut self,
        at: UpstreamKey,
        start: usize,
        end: usize,
        interim_responses: u32,
    ) -> ParsedResponse {
        let Self { transaction, shared, .. } = self;
        let request = transaction.summary;
        let input = &shared.scratch.input[start..end];
        // The client's connection is not kept while its request is incomplete, and not while draining.
        let keep_alive = request.keep_alive && transaction.is_sent() && shared.stop_by.is_none();
        let response_key = ResponseKey {
            generation: transaction.generation,
            route: transaction.route,
            is_head: request.is_head,
            version: request.version,
            coding: request.coding.filter(|_| shared.has_encoder(transaction)),
            keep_alive,
        };
        let shown_id = transaction.shown_id();
        if shown_id.is_none()
            && transaction.response_fields.is_none()
            && let Some(cached) = shared.scratch.responses.find(input, &response_key)
        {
            let response = cached.value;
            shared.scratch.head.clear();
            shared.scratch.head.extend_from_slice(&cached.rendered);
            if let Some(at) = response.date_at
                && let Some(date) = shared.scratch.date.at(shared.now, SystemTime::now)
            {
                shared.scratch.head[at..at + date.len()].copy_from_slice(date.as_bytes());
            }
            return ParsedResponse::Final(response, FirewallVerdict::Pass);
        }
        self.check_response(at, start, end, interim_responses, response_key)
    }

    /// Checks and renders the head at the start of the input. Out of line, as most heads are in the cache, and the code for
    /// these keeps its values in registers.
    #[inline(never)]
    fn check_response(
        &mut self,
        at: UpstreamKey,
        start: usize,
        end: usize,
        interim_responses: u32,
        response_key: ResponseKey,
    ) -> ParsedResponse {
        let Self { client, transaction, shared, .. } = self;
        let websocket = client.link.websocket_key();
        let request = transaction.summary;
        let (input, shown_id) = (&shared.scratch.input[start..end], transaction.shown_id());
        let config = &shared.upstreams[transaction.generation].shared.config;
        let pool = &config.pools[shared.upstreams[at].place.pool.0];
        let head = match pool.protocol {
            Protocol::Http1 => parse_response_head(input, request.is_head),
            Protocol::Http2 { .. } => ResponseHead::of_fields(input, request.is_head),
        };
        let head = match head {
            Ok(Some(head)) if head.header_count <= config.limits.response_headers => head,
            Ok(None) => return ParsedResponse::Partial,
            Ok(Some(head)) => {
                let (count, max) = (head.header_count, config.limits.response_headers);
                return ParsedResponse::Invalid(format!(
                    "it has {count} header lines, more than {max} (`limits.response_headers`)"
                ));
            }
            Err(error) => return ParsedResponse::Invalid(cause_of(&error)),
        };
        let via = config.forwarded.via.as_deref();
        let edits = &config.routes[transaction.route.0].response_headers;
        let location = config.routes[transaction.route.0].location.as_deref();
        let fields = transaction.response_fields.as_deref();
        let fields = fields.map_or(&[][..], |ResponseFields(fields)| fields);
        let out = &mut shared.scratch.head;
        out.clear();
        let form = client.link.form();
        let mut render = |persistence, framing, coding, date: Option<&str>| {
            let writer = HeadWriter::new(form, out);
            let form = ResponseForm { persistence, framing, coding, location, fields };
            render_response(&head, edits, via, date, form, writer)
        };
        let is_sent = transaction.is_sent();
        match head.status {
            101 if request.wants_upgrade
                && is_sent
                && names_allowed_protocol(&head, &config.requests)
                && websocket.is_none_or(|key| key.is_accepted(head.headers)) =>
            {
                render(Persistence::Upgrade, BodyFraming::Empty, ResponseCoding::Received, None);
                ParsedResponse::Upgrade { head_bytes: head.len }
            }
            101 => ParsedResponse::Invalid(
                "it switches protocols without being asked to (101)".to_owned(),
            ),
            100..=199 if interim_responses < INTERIM_RESPONSES_MAX => {
                if request.version != Version::Http10 {
                    render(
                        Persistence::Interim,
                        BodyFraming::Empty,
                        ResponseCoding::Received,
                        None,
                    );
                }
                ParsedResponse::Interim { head_bytes: head.len }
            }
            100..=199 => ParsedResponse::Invalid(format!(
                "more than {INTERIM_RESPONSES_MAX} interim responses"
            )),
            _ if head.has_other_coding => {
                ParsedResponse::Invalid("its Transfer-Encoding is not `chunked`".to_owned())
            }
            _ => {
                let strips_coding =
                    head.body == BodyFraming::Chunked && request.version == Version::Http10;
                let compression = config.routes[transaction.route.0].compression.as_deref();
                let coding = compression.map_or(ResponseCoding::Received, |compression| {
                    response_coding(&head, compression, edits, response_key.coding)
                });
                let framing = match coding {
                    ResponseCoding::Compressed(_) => BodyFraming::Chunked,
                    _ if strips_coding => BodyFraming::UntilClose,
                    _ => head.body,
                };
                let closes = !response_key.keep_alive || framing == BodyFraming::UntilClose;
                let persistence = Persistence::of(request.version, !closes);
                let date = shared.scratch.date.at(shared.now, SystemTime::now);
                let date_at = render(persistence, framing, coding, date);
                let response = CachedResponse {
                    status: head.status,
                    head_bytes: head.len,
                    framing: head.body,
                    keep_alive: head.keep_alive && !(request.is_head && pool.close_after_head),
                    keep_alive_s: keep_alive_seconds(head.headers),
                    is_streaming: is_streaming(head.headers),
                    closes,
                    strips_coding,
                    coding,
                    date_at,
                };
                let rendered = &mut shared.scratch.head;
                let verdict = match shown_id {
                    Some(id) => shared.inspector.response_head(id, &head, form, rendered),
                    None if !fields.is_empty() => FirewallVerdict::Pass,
                    None => {
                        let head_bytes = &input[..head.len];
                        shared.scratch.responses.insert(
                            head_bytes,
                            response_key,
                            response,
                            rendered,
                        );
                        FirewallVerdict::Pass
                    }
                };
                ParsedResponse::Final(response, verdict)
            }
        }
    }

    /// The head of the final response has arrived.
    fn begin_response(&mut self, at: UpstreamKey, response: &CachedResponse) {
        let Self { client, transaction, shared, .. } = self;
        let CachedResponse { framing, strips_coding, .. } = *response;
        let place = shared.upstreams[at].place;
        let from = MessageForm::of_backend(shared.upstreams.protocol(place));
        let is_chunked = client.link.form() == MessageForm::Text && !strips_coding;
        transaction.status = response.status;
        transaction.closes = response.closes;
        transaction.is_streaming |= response.is_streaming;
        if let Some(seconds) = response.keep_alive_s {
            shared.upstreams.learn_keep_alive(place, Duration::from_secs(seconds.into()));
        }
        let (body, encoder) = match response.coding {
            ResponseCoding::Compressed(coding) => {
                shared.client_counters().compressed_responses.add(1);
                let encoder = shared.counters.encoders.start(coding);
                (Body::recoded(framing, from, is_chunked), Some(encoder))
            }
            ResponseCoding::Identity | ResponseCoding::Bodiless | ResponseCoding::Received => {
                let is_accepted = transaction.summary.coding.is_some();
                let has_body = framing != BodyFraming::Empty;
                if response.coding == ResponseCoding::Identity && is_accepted && has_body {
                    shared.client_counters().compression_refused.add(1);
                }
                (Body::new(framing, from, is_chunked), None)
            }
        };
        transaction.response = ResponseState::Body {
            body,
            encoder,
            keep_alive: response.keep_alive,
            ends_at_close: strips_coding || framing == BodyFraming::UntilClose,
        };
        let us = shared.elapsed_us(transaction.sent_at);
        let counters = shared.pool_counters(place.generation, place.pool);
        counters.count_response(response.status);
        counters.upstream_durations.add_us(us);
    }

    /// Handles the end of the response. Finishes the transaction unless it is parked.
    fn finish_response(&mut self, at: UpstreamKey, keep_alive: bool, has_surplus: bool) -> Flow {
        let ends_at_close = self.transaction.response.ends_at_close();
        self.transaction.response = ResponseState::Done { ends_at_close };
        self.give_back(at, keep_alive, has_surplus);
        if self.transaction.is_parked() { Flow::Wait } else { Flow::Finish }
    }
}

/// Compresses a piece of a body into `out`, and returns its place there: there is space in front for the head and the size of a chunk,
/// and behind for the last chunk. Out of line, as most bodies are forwarded as received.
#[inline(never)]
fn compress(
    encoder: &mut Option<Box<Encoder>>,
    piece: &[u8],
    is_last: bool,
    more_follows: bool,
    out: &mut Vec<u8>,
) -> Range<usize> {
    out.clear();
    out.resize(HEADROOM_BYTES, 0);
    match encoder {
        Some(encoder) if !is_last => encoder.push(piece, !more_follows, out),
        _ => encoder.take().into_iter().for_each(|encoder| encoder.finish(piece, out)),
    }
    let end = out.len();
    out.resize(end + TAIL_BYTES_MAX, 0);
    HEADROOM_BYTES..end
}

/// True if a protocol switch names an allowed protocol. A switch that names none is invalid (RFC 9110, section 7.8).
fn names_allowed_protocol(head: &ResponseHead<'_>, requests: &Requests) -> bool {
    let mut protocols = head.headers.all("upgrade").peekable();
    protocols.peek().is_some() && protocols.all(|protocol| requests.allow_upgrade(protocol))
}
