//! The state of a request and its response.

use std::num::NonZeroU32;
use std::time::Instant;

use tollgate_accesslog::LoggedRequest;
use tollgate_http1::BodyFraming;
use tollgate_net::SendBuffer;

use super::http2::Following;
use super::keys::{GenerationKey, UpstreamKey};
use super::scratch::CachedRequest;
use crate::body::Body;
use crate::cluster::{Attempts, BackendId, HashKey, QueueId};
use crate::compression::Encoder;
use crate::config::{PoolId, RouteId};
use crate::counters::Interruption;
use crate::firewall::TransactionId;
use crate::headers::RequestSummary;
use crate::local_response::Reason;
use crate::responder::Responder;

/// Longest request that is retained for a retry.
const RETAINED_BYTES_MAX: usize = 16 << 10;
/// A client keeps at most this much memory of a request for the next one.
const KEPT_CAPACITY_BYTES_MAX: usize = 2 << 10;

/// A request and its response.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) id: TransactionId,
    pub(super) is_inspected: bool,
    pub(super) summary: RequestSummary,
    /// The configuration that it began under.
    pub(super) generation: GenerationKey,
    pub(super) route: RouteId,
    pub(super) responder: Responder,
    pub(super) hash_key: HashKey,
    pub(super) request: RequestState,
    pub(super) request_buffer: RequestBuffer,
    pub(super) request_body: Body,
    /// Received payload.
    pub(super) request_body_bytes: u64,
    pub(super) backend: BackendState,
    pub(super) response: ResponseState,
    pub(super) hold: Hold,
    /// Of the final response; 0 before.
    pub(super) status: u16,
    /// Of a local response, or of the end of a malformed request.
    pub(super) reason: Option<Reason>,
    /// Cause of an end before that of the response, which removing the client is. `None` once the response is complete.
    pub(super) interruption: Option<Interruption>,
    /// Received payload, or what it was compressed to.
    pub(super) response_body_bytes: u64,
    /// Bodies may pause for `timeouts.stream`.
    pub(super) is_streaming: bool,
    /// A part of the response has waited for the client; counted once.
    pub(super) has_waited: bool,
    /// The client's connection ends with the response.
    pub(super) closes: bool,
    /// End of the wait for a response whose client seems to have left.
    pub(super) abandoned_until: Option<Instant>,
    pub(super) attempts: Attempts,
    /// An idle connection turned out to be closed, as others may be.
    pub(super) needs_new_connection: bool,
    pub(super) started_at: Instant,
    /// Microseconds from the start until the last backend began to respond, at least one; `u32::MAX` after more than 71 minutes.
    pub(super) first_byte_us: Option<NonZeroU32>,
    /// When the last backend was chosen.
    pub(super) sent_at: Instant,
    pub(super) last_backend: Option<BackendId>,
    /// Number of attempts to send the request.
    pub(super) sends: u32,
    /// `None` without an access log.
    pub(super) logged_request: Option<Box<LoggedRequest>>,
    /// `None`: the response gets none.
    pub(super) response_fields: Option<Box<ResponseFields>>,
}

/// Header fields of a backend's response that depend on the request: those with variables, and the cookie of its pool.
#[derive(Debug)]
pub(super) struct ResponseFields(pub(super) Vec<(String, String)>);

/// The way of the request to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    /// The firewall has not let it pass yet: it is received, and no backend is chosen.
    Held,
    /// It is short, and received in full before a backend is chosen. Its length counts in `Shared::buffered_bytes`.
    Buffered,
    /// It is sent as it arrives.
    Sending,
    /// The backend has all of it.
    Sent,
    /// The backend takes no more of it.
    Aborted,
}

/// The way to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackendState {
    /// None is chosen, or the last one has failed.
    Unassigned,
    /// All that may serve the request are busy.
    Queued { pool: PoolId, queue: QueueId },
    /// There is room on this one after a wait.
    Reserved { pool: PoolId, backend: BackendId },
    /// The request has failed on all that are up, and is tried again after a pause.
    Paused { pool: PoolId, failed: Reason },
    /// This connection serves the request.
    Assigned(UpstreamKey),
}

/// The way of the response to the client.
#[derive(Debug)]
pub(super) enum ResponseState {
    /// The final head has not arrived.
    Head {
        /// A byte of a response was received.
        has_begun: bool,
        interim_responses: u32,
    },
    Body {
        body: Body,
        /// Compresses it. `None` also once all of it was received.
        encoder: Option<Box<Encoder>>,
        /// The backend keeps its connection open.
        keep_alive: bool,
        /// Closing the client's connection ends the response.
        ends_at_close: bool,
    },
    /// All of it was received.
    Done { ends_at_close: bool },
    /// The connection was upgraded.
    Tunnel { client_ended: bool, backend_ended: bool },
}

/// The part of the response that the firewall has not let pass yet.
#[derive(Debug)]
pub(super) enum Hold {
    /// None: bytes of both messages pass with the verdict on them.
    Nothing,
    /// These bytes wait for a later verdict, which needs more of the response.
    Kept(Box<HeldResponse>),
    /// The firewall inspects on its helper thread. Nothing moves in either direction; these bytes are sent on a pass.
    Parked(Box<HeldResponse>),
}

/// Bytes of a response that wait for a verdict.
#[derive(Debug, Default)]
pub(super) struct HeldResponse {
    pub(super) bytes: Vec<u8>,
    /// `bytes` begin with the response head.
    pub(super) has_head: bool,
}

/// The bytes of a request for the backend. As long as they are few, they are retained after sending, for a retry.
#[derive(Debug, Default)]
pub(super) struct RequestBuffer {
    bytes: SendBuffer<KEPT_CAPACITY_BYTES_MAX>,
    /// Sent bytes are no longer retained.
    is_incomplete: bool,
}

/// Clients that wait for a response have one each.
const _: () = assert!(size_of::<Transaction>() <= TRANSACTION_BYTES_MAX);
const TRANSACTION_BYTES_MAX: usize = 512;

impl RequestBuffer {
    pub(super) fn start(&mut self, head: &[u8]) {
        self.clear();
        self.bytes.push(head);
    }

    /// Appends bytes, of which the first `sent` are already sent: 0 unless everything before them is.
    pub(super) fn push(&mut self, bytes: &[u8], sent: usize) {
        debug_assert!(sent == 0 || self.is_sent(), "bytes are sent in order");
        let held = self.bytes.retained() + self.bytes.unsent().len();
        if self.is_incomplete || held + bytes.len() > RETAINED_BYTES_MAX {
            self.is_incomplete |= self.bytes.retained() > 0 || sent > 0;
            self.bytes.discard_sent();
            self.bytes.push(&bytes[sent..]);
        } else {
            self.bytes.push(bytes);
            self.bytes.retain(sent);
        }
    }

    pub(super) fn unsent(&self) -> &[u8] {
        self.bytes.unsent()
    }

    pub(super) fn is_sent(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn advance(&mut self, count: usize) {
        self.bytes.retain(count);
        if self.is_sent() && self.bytes.retained() > RETAINED_BYTES_MAX {
            self.bytes.clear();
            self.is_incomplete = true;
        }
    }

    /// Empties the buffer, keeping little memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.is_incomplete = false;
    }
}

impl Transaction {
    /// Begins with a head, and the received part of the body in `request_buffer`.
    pub(super) fn new(
        id: TransactionId,
        head: &CachedRequest,
        responder: Responder,
        generation: GenerationKey,
        request_buffer: RequestBuffer,
        request_body: Body,
        now: Instant,
    ) -> Self {
        let CachedRequest { request: summary, route, hash_key, is_inspected, .. } = *head;
        Self {
            id,
            is_inspected,
            summary,
            generation,
            route,
            responder,
            hash_key,
            request: RequestState::Held,
            request_buffer,
            request_body,
            request_body_bytes: 0,
            backend: BackendState::Unassigned,
            response: ResponseState::Head { has_begun: false, interim_responses: 0 },
            hold: Hold::Nothing,
            status: 0,
            reason: None,
            interruption: Some(Interruption::ClientClosed),
            response_body_bytes: 0,
            is_streaming: summary.is_streaming,
            has_waited: false,
            closes: !summary.keep_alive,
            abandoned_until: None,
            attempts: Attempts::default(),
            needs_new_connection: false,
            started_at: now,
            first_byte_us: None,
            sent_at: now,
            last_backend: None,
            sends: 0,
            logged_request: None,
            response_fields: None,
        }
    }

    /// Memory of its buffers.
    pub(super) fn held_bytes(&self) -> usize {
        let held = match &self.hold {
            Hold::Nothing => 0,
            Hold::Kept(held) | Hold::Parked(held) => held.bytes.capacity(),
        };
        held + self.request_buffer.bytes.capacity()
    }

    /// The identifier, if the firewall sees the transaction.
    pub(super) fn shown_id(&self) -> Option<TransactionId> {
        self.is_inspected.then_some(self.id)
    }

    /// True if the request may be sent to another backend: no response has started, the request is complete, and it was
    /// not sent, is idempotent, or was `refused` by the backend.
    pub(super) fn can_retry(&self, refused: bool) -> bool {
        let RequestBuffer { bytes, is_incomplete } = &self.request_buffer;
        let is_safe = refused || self.summary.is_idempotent || bytes.retained() == 0;
        matches!(self.response, ResponseState::Head { has_begun: false, .. })
            && !is_incomplete
            && is_safe
    }

    /// Prepares to send the request from its start.
    pub(super) fn rewind(&mut self) {
        self.request_buffer.bytes.rewind();
        self.request = RequestState::Sending;
    }

    /// The request has made progress: it may be complete.
    pub(super) fn note_sent(&mut self) {
        let is_complete = self.request_body.is_done() && self.request_buffer.is_sent();
        if self.request == RequestState::Sending && is_complete {
            self.request = RequestState::Sent;
        }
    }

    /// Continuation behind the bytes of the request so far.
    pub(super) fn following(&self) -> Following<'_> {
        if self.request_body.is_done() && !self.summary.wants_upgrade {
            Following::End(self.request_body.trailers())
        } else {
            Following::Unknown
        }
    }

    /// True while it is received without a backend.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.request, RequestState::Held | RequestState::Buffered)
    }

    /// Length of the request body, if the head has it.
    pub(super) fn announced_bytes(&self) -> Option<u64> {
        match self.summary.body {
            BodyFraming::Length(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// True if the backend has the whole request.
    pub(super) fn is_sent(&self) -> bool {
        self.request == RequestState::Sent
    }

    /// True before the head of the final response.
    pub(super) fn is_head_missing(&self) -> bool {
        matches!(self.response, ResponseState::Head { .. })
    }

    /// True if nothing of a final response is sent yet.
    pub(super) fn can_respond(&self) -> bool {
        self.is_head_missing() || self.hold.has_head()
    }

    pub(super) fn is_parked(&self) -> bool {
        matches!(self.hold, Hold::Parked(_))
    }

    /// When the transaction ends because its client seems to have left. A client that has left resets its connection once
    /// the response begins.
    pub(super) fn give_up_at(&self) -> Option<Instant> {
        self.abandoned_until.filter(|_| self.is_head_missing())
    }

    /// True once the connection was upgraded.
    pub(super) fn is_tunnel(&self) -> bool {
        matches!(self.response, ResponseState::Tunnel { .. })
    }
}

impl ResponseState {
    /// True if closing the client's connection marks the end of the response.
    pub(super) fn ends_at_close(&self) -> bool {
        matches!(self, Self::Body { ends_at_close: true, .. } | Self::Done { ends_at_close: true })
    }
}

impl Hold {
    pub(super) fn take(&mut self) -> Option<Box<HeldResponse>> {
        match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => None,
            Self::Kept(held) | Self::Parked(held) => Some(held),
        }
    }

    fn has_head(&self) -> bool {
        matches!(self, Self::Kept(held) | Self::Parked(held) if held.has_head)
    }
}

/// True if a body is known to exceed the limit, by its announced length or the size of the current chunk.
pub(super) fn exceeds_limit(body: &Body, received: u64, limit: Option<u64>) -> bool {
    limit.is_some_and(|limit| received.saturating_add(body.remaining()) > limit)
}
