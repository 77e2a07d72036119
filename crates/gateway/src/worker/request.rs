//! Forwarding of a request to its backend.

use std::ops::Range;

use tollgate_http1::FieldList;

use super::keys::UpstreamKey;
use super::scratch::{HEADROOM_BYTES, PIECE_BYTES};
use super::transaction::{RequestState, Transaction, exceeds_limit};
use super::turn::{Flow, Turn};
use crate::config::Transfer;
use crate::firewall::{Direction, FirewallVerdict};
use crate::local_response::Reason;
use tollgate_tls::Received;

impl Turn<'_> {
    /// Receives another piece of a request that is held or buffered.
    pub(super) fn receive_held_request(&mut self) -> Flow {
        if self.client.flush(&mut self.shared.http2).is_err() {
            return Flow::Close;
        }
        let (piece, verdict) = match self.receive_request_piece() {
            Ok(received) => received,
            Err(flow) => return flow,
        };
        if self.transaction.responder.pool().is_some() {
            self.transaction.request_buffer.push(&self.shared.scratch.input[piece], 0);
        }
        self.apply(verdict, None)
    }

    /// Sends the unsent part of the request, or reads and sends another piece.
    pub(super) fn forward_request(&mut self, at: UpstreamKey) -> Flow {
        if !self.send_request(at) {
            return Flow::Wait;
        }
        if self.transaction.request == RequestState::Aborted {
            return Flow::Wait;
        }
        let (piece, verdict) = match self.receive_request_piece() {
            Ok(received) => received,
            Err(flow) => return flow,
        };
        let Self { client, transaction, shared, .. } = self;
        let piece = &shared.scratch.input[piece];
        if verdict != FirewallVerdict::Pass {
            transaction.request_buffer.push(piece, 0);
            let held = transaction.hold.take();
            return self.apply(verdict, held);
        }
        let upstream = &mut shared.upstreams[at];
        if let Ok(sent) = upstream.link.send(&mut shared.http2, piece, transaction.following()) {
            transaction.request_buffer.push(piece, sent);
            transaction.note_sent();
            if transaction.is_sent() {
                let timeouts = shared.timeouts_of(transaction);
                client.deadline = shared.now + timeouts.until_response(transaction.is_streaming);
            }
        } else {
            transaction.request_buffer.push(piece, 0);
            transaction.request = RequestState::Aborted;
            upstream.link.assume_readable();
        }
        Flow::Continue
    }

    /// Receives and checks another piece of the request. Returns its place in the input, or what follows if there is
    /// none.
    fn receive_request_piece(&mut self) -> Result<(Range<usize>, FirewallVerdict), Flow> {
        let Self { client, transaction, shared, .. } = self;
        if transaction.request_body.is_done() || !client.link.is_readable() {
            return Err(Flow::Wait);
        }
        let can_respond = transaction.can_respond();
        let refuse = |reason| if can_respond { Flow::error(reason) } else { Flow::Close };
        let start = HEADROOM_BYTES;
        let room = &mut shared.scratch.input[start..start + PIECE_BYTES];
        let count = match client.link.receive(&mut shared.http2, room) {
            Ok(Received::Bytes(count)) => count,
            Ok(Received::Nothing) => return Err(Flow::Wait),
            // The backend must not take the truncated request for complete.
            Ok(Received::End) if can_respond => return Err(self.end_body(Reason::TruncatedBody)),
            Ok(Received::End) | Err(_) => return Err(Flow::Close),
        };
        if let Some(trailers) = client.link.take_end() {
            let ended = transaction.request_body.end(FieldList::new(&trailers));
            ended.map_err(|error| refuse(Reason::of_parse_error(&error)))?;
        }
        let taken = shared.inspector.take_body(
            Direction::Request,
            transaction.shown_id(),
            &mut transaction.request_body,
            &mut room[..count],
            FirewallVerdict::Pass,
        );
        let (taken, verdict) = taken.map_err(|error| refuse(Reason::of_parse_error(&error)))?;
        transaction.request_body_bytes += taken.payload_bytes;
        let config = &shared.upstreams[transaction.generation].shared.config;
        let (body, received) = (&transaction.request_body, transaction.request_body_bytes);
        if exceeds_limit(body, received, config.limits.body_bytes) {
            return Err(refuse(Reason::BodyTooLarge));
        }
        let Transaction { started_at, is_streaming, route, .. } = **transaction;
        let transfer = Transfer { since: started_at, bytes: received, is_streaming };
        let timeouts = config.routes[route.0].timeouts(&shared.timeouts);
        client.deadline = timeouts.next_body_deadline(client.deadline, count, transfer, shared.now);
        if let Some(rules) = &config.routes[route.0].verdicts
            && let Some(time) = rules.body_time
        {
            client.deadline = started_at + time;
        }
        let behind = start + taken.consumed..start + count;
        if !behind.is_empty() {
            client.unread.extend_from_slice(&shared.scratch.input[behind]);
        }
        let piece = start..start + taken.kept;
        let edits = &config.routes[transaction.route.0].request_headers;
        let piece = transaction.request_body.frame(&mut shared.scratch.input, piece, edits);
        Ok((piece, verdict))
    }

    /// Sends the unsent part of the request. Returns true if none is left or the backend takes no more.
    fn send_request(&mut self, at: UpstreamKey) -> bool {
        let Self { client, transaction, shared, .. } = self;
        // Otherwise, of a complete request, the end of its stream may be missing.
        if transaction.request_buffer.is_sent() && !transaction.request_body.is_done() {
            return true;
        }
        let upstream = &mut shared.upstreams[at];
        let unsent = transaction.request_buffer.unsent();
        match upstream.link.send(&mut shared.http2, unsent, transaction.following()) {
            Ok(0) if !unsent.is_empty() => false,
            Ok(count) => {
                upstream.is_connecting = false;
                transaction.request_buffer.advance(count);
                transaction.note_sent();
                let (timeouts, is_streaming) =
                    (shared.timeouts_of(transaction), transaction.is_streaming);
                let timeout = if transaction.is_sent() {
                    timeouts.until_response(is_streaming)
                } else {
                    timeouts.between_pieces(is_streaming)
                };
                client.deadline = shared.now + timeout;
                transaction.request_buffer.is_sent()
            }
            Err(_) => {
                // A response may have arrived before; otherwise reading shows the failure.
                transaction.request = RequestState::Aborted;
                upstream.link.assume_readable();
                true
            }
        }
    }
}
