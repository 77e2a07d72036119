//! A request and its response: begin, suspend, resume and finish.

use std::time::Instant;

use tollgate_accesslog::{Entry, LoggedRequest, STATUS_NO_RESPONSE, Upstream as LoggedUpstream};

use super::downstream::logged_tls;
use super::upstream::Place;
use super::{ClientId, Stage, Step, Worker};
use crate::body::{Body, Taken};
use crate::cluster::{Attempts, BackendId, HashKey, QueueId};
use crate::filter::{Direction, Outcome, TransactionId, Verdict};
use crate::headers::RequestSummary;
use crate::local_response::{LocalResponse, Reason, ResponseContext};

/// Longest request that is retained for a retry.
const RETAINED_BYTES_MAX: usize = 16 << 10;
/// A client keeps at most this much memory of a request for the next one.
const KEPT_CAPACITY_BYTES_MAX: usize = 2 << 10;

/// The meaning of a request head.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedRequest {
    pub(super) request: RequestSummary,
    pub(super) route: usize,
    pub(super) hash_key: HashKey,
    /// A filter sees the request and its response.
    pub(super) is_inspected: bool,
}

/// A request and its response.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) id: TransactionId,
    pub(super) is_inspected: bool,
    /// A filter has not let the request pass yet.
    pub(super) is_request_held: bool,
    /// The part of the response that a filter has not let pass yet.
    pub(super) held_response: Option<Box<HeldResponse>>,
    /// Present while a filter suspends the transaction: the bytes to send on resume.
    pub(super) suspended: Option<Box<HeldResponse>>,
    pub(super) request: RequestSummary,
    /// The configuration that it began under.
    pub(super) generation: usize,
    pub(super) route: usize,
    pub(super) pool: usize,
    pub(super) hash_key: HashKey,
    /// The connection that serves it. `None`: it waits for one.
    pub(super) upstream: Option<usize>,
    /// The queue that it waits in.
    pub(super) queue: Option<QueueId>,
    /// The backend reserved for it after a wait.
    pub(super) reserved: Option<BackendId>,
    pub(super) request_buffer: RequestBuffer,
    pub(super) request_body: Body,
    /// Received payload.
    pub(super) request_body_bytes: u64,
    /// The backend takes no more of the request.
    pub(super) is_send_aborted: bool,
    pub(super) response: ResponseState,
    /// A byte of a response was received.
    pub(super) has_response_bytes: bool,
    pub(super) interim_responses: u32,
    /// Of the final response; 0 before.
    pub(super) status: u16,
    /// Of a local response, or of the end of a malformed request.
    pub(super) reason: Option<Reason>,
    /// Received payload.
    pub(super) response_body_bytes: u64,
    /// The client's connection ends with the response.
    pub(super) closes: bool,
    /// End of the wait for a response whose client seems to have left.
    pub(super) abandoned_until: Option<Instant>,
    pub(super) attempts: Attempts,
    /// An idle connection turned out to be closed, as others may be.
    pub(super) needs_new_connection: bool,
    pub(super) started_at: Instant,
    /// When the last backend was chosen.
    pub(super) sent_at: Instant,
    /// The last backend.
    pub(super) backend: Option<usize>,
    /// Number of attempts to send the request.
    pub(super) sends: usize,
    /// `None` without an access log.
    pub(super) logged_request: Option<Box<LoggedRequest>>,
}

/// Bytes of a response that wait for a verdict.
#[derive(Debug, Default)]
pub(super) struct HeldResponse {
    pub(super) bytes: Vec<u8>,
    /// `bytes` begin with the response head.
    pub(super) has_head: bool,
}

#[derive(Debug)]
pub(super) enum ResponseState {
    /// The head has not arrived.
    Head,
    Body {
        body: Body,
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

impl ResponseState {
    /// True if closing the client's connection marks the end of the response.
    pub(super) fn ends_at_close(&self) -> bool {
        matches!(self, Self::Body { ends_at_close: true, .. } | Self::Done { ends_at_close: true })
    }
}

/// The bytes of a request for the backend. As long as they are few, they are retained after sending, for a retry.
#[derive(Debug, Default)]
pub(super) struct RequestBuffer {
    bytes: Vec<u8>,
    sent: usize,
    /// Sent bytes are no longer retained.
    is_incomplete: bool,
}

impl RequestBuffer {
    fn start(&mut self, head: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(head);
        self.sent = 0;
        self.is_incomplete = false;
    }

    /// Appends bytes, of which the first `sent` are already sent: 0 unless everything before them is.
    pub(super) fn push(&mut self, bytes: &[u8], sent: usize) {
        debug_assert!(sent == 0 || self.is_sent(), "bytes are sent in order");
        if self.is_incomplete || self.bytes.len() + bytes.len() > RETAINED_BYTES_MAX {
            self.bytes.drain(..self.sent);
            self.is_incomplete |= self.sent > 0 || sent > 0;
            self.sent = 0;
            self.bytes.extend_from_slice(&bytes[sent..]);
        } else {
            self.bytes.extend_from_slice(bytes);
            self.sent += sent;
        }
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.bytes.len()
    }

    pub(super) fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.is_sent() && self.bytes.len() > RETAINED_BYTES_MAX {
            self.bytes = Vec::new();
            self.sent = 0;
            self.is_incomplete = true;
        }
    }

    /// Empties the buffer, keeping little memory.
    fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_CAPACITY_BYTES_MAX {
            self.bytes = Vec::new();
        }
        self.start(b"");
    }
}

impl Transaction {
    /// True if the request may be sent to another backend: no response has started, the request is complete, and it was
    /// not sent, is idempotent, or was `refused` by the backend.
    pub(super) fn can_retry(&self, refused: bool) -> bool {
        let RequestBuffer { sent, is_incomplete, .. } = self.request_buffer;
        let is_safe = refused || self.request.is_idempotent || sent == 0;
        !self.has_response_bytes && !is_incomplete && is_safe
    }

    /// Prepares to send the request from its start.
    pub(super) fn rewind(&mut self) {
        self.request_buffer.sent = 0;
        self.is_send_aborted = false;
    }

    /// The identifier, if a filter sees the transaction.
    pub(super) fn shown_id(&self) -> Option<TransactionId> {
        self.is_inspected.then_some(self.id)
    }

    /// True if nothing of a final response is sent yet.
    pub(super) fn can_respond(&self) -> bool {
        let mut waiting = self.suspended.iter().chain(&self.held_response);
        matches!(self.response, ResponseState::Head) || waiting.any(|it| it.has_head)
    }

    /// When the transaction ends because its client seems to have left. A client that has left resets its connection once
    /// the response begins.
    pub(super) fn give_up_at(&self) -> Option<Instant> {
        self.abandoned_until.filter(|_| matches!(self.response, ResponseState::Head))
    }

    /// True once the connection was upgraded.
    pub(super) fn is_tunnel(&self) -> bool {
        matches!(self.response, ResponseState::Tunnel { .. })
    }

    /// True if the whole request is sent.
    pub(super) fn is_sent(&self) -> bool {
        !self.is_send_aborted && self.request_body.is_done() && self.request_buffer.is_sent()
    }
}

impl Worker {
    /// Begins the transaction of a request: its head starts at `start` in the input, and the received bytes end at
    /// `end`.
    pub(super) fn begin(
        &mut self,
        key: usize,
        cached: &CachedRequest,
        verdict: Verdict,
        start: usize,
        end: usize,
    ) -> Step {
        let CachedRequest { request, route, hash_key, is_inspected } = *cached;
        let body_start = start + request.head_bytes;
        let logged_request = self.logged_request(key, &self.scratch.input[start..body_start]);
        let generation = &mut self.generations[self.current];
        let config = &generation.shared.config;
        let client = &mut self.clients[key];
        let id = TransactionId { client: key, serial: self.last_serial };
        let mut body = Body::new(request.body, true);
        let input = &mut self.scratch.input[body_start..end];
        let shown_id = is_inspected.then_some(id);
        let taken = self.filter.take_body(Direction::Request, shown_id, &mut body, input, verdict);
        let (taken, verdict, error) = match taken {
            Ok((taken, verdict)) => {
                let is_too_long =
                    exceeds_limit(&body, taken.payload_bytes, config.limits.body_bytes);
                (taken, verdict, is_too_long.then_some(Reason::BodyTooLarge))
            }
            Err(error) => (Taken::default(), Verdict::Pass, Some(Reason::of_parse_error(&error))),
        };
        client.keep_unread(&self.scratch.input[body_start + taken.consumed..end]);
        client.is_partial = false;
        let mut request_buffer = std::mem::take(&mut client.request_buffer);
        request_buffer.start(&self.scratch.head);
        if taken.kept > 0 {
            request_buffer.push(&self.scratch.input[body_start..body_start + taken.kept], 0);
        }
        if taken.done {
            request_buffer.push(&body.tail(&config.routes[route].request_headers), 0);
        }
        client.stage = Stage::Transaction;
        client.transaction = Some(Transaction {
            id,
            is_inspected,
            is_request_held: false,
            held_response: None,
            suspended: None,
            request,
            generation: self.current,
            route,
            pool: config.routes[route].pool.0,
            hash_key,
            upstream: None,
            queue: None,
            reserved: None,
            request_buffer,
            request_body: body,
            request_body_bytes: taken.payload_bytes,
            is_send_aborted: false,
            response: ResponseState::Head,
            has_response_bytes: false,
            interim_responses: 0,
            status: 0,
            reason: None,
            response_body_bytes: 0,
            closes: !request.keep_alive,
            abandoned_until: None,
            attempts: Attempts::default(),
            needs_new_connection: false,
            started_at: self.now,
            sent_at: self.now,
            backend: None,
            sends: 0,
            logged_request,
        });
        generation.transactions += 1;
        if let Some(reason) = error {
            return self.respond(key, &LocalResponse::error(reason));
        }
        match verdict {
            Verdict::Pass => {
                let assigned = self.assign(key, None);
                self.or_respond(key, assigned)
            }
            Verdict::Hold => {
                self.hold_request(key, request.expects_continue && taken.consumed == 0)
            }
            Verdict::Suspend => self.suspend(key, HeldResponse::default()),
            Verdict::Respond(response) => self.respond(key, &response),
        }
    }

    /// Continues to receive a request that is forwarded only after another verdict. The client may wait for an interim
    /// response of the backend, which has not received the request.
    fn hold_request(&mut self, key: usize, waits: bool) -> Step {
        let client = &mut self.clients[key];
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
        if waits && client.send(&mut self.http2, interim, false).is_err() {
            return Step::Close;
        }
        if let Some(transaction) = &mut client.transaction {
            transaction.is_request_held = true;
            client.deadline = self.now + self.timeouts.body;
        }
        Step::Continue
    }

    /// Handles a client that has shut down its sending side, so it has probably left: closes it if its request is
    /// queued, and limits its wait for a response otherwise.
    pub(super) fn check_departure(&mut self, key: usize) -> Step {
        let client = &mut self.clients[key];
        let Some(transaction) = &mut client.transaction else { return Step::Continue };
        let requests = &self.generations[transaction.generation].shared.config.requests;
        if requests.half_close || !client.link.is_read_shut() {
            return Step::Continue;
        }
        if transaction.queue.is_some() {
            return Step::Close;
        }
        transaction.abandoned_until.get_or_insert(self.now + self.timeouts.abandoned);
        Step::Continue
    }

    /// Sends the response of a transaction that got no backend.
    pub(super) fn or_respond(&mut self, key: usize, assigned: Result<Step, LocalResponse>) -> Step {
        assigned.unwrap_or_else(|response| self.respond(key, &response))
    }

    /// Finishes a transaction with a local response instead of the backend's.
    pub(super) fn respond(&mut self, key: usize, response: &LocalResponse) -> Step {
        self.drop_upstream(key);
        let client = &mut self.clients[key];
        let refusal = client.link.websocket_key().map(|_| response.refusing_tunnel());
        let response = refusal.as_deref().unwrap_or(response);
        let Some(transaction) = &mut client.transaction else { return Step::Close };
        let RequestSummary { is_head, version, keep_alive, .. } = transaction.request;
        let keep_alive = keep_alive && transaction.request_body.is_done() && !response.closes();
        let context = ResponseContext { is_head, version, keep_alive };
        transaction.status = response.status();
        transaction.reason = response.reason();
        transaction.response_body_bytes = response.body_bytes(context);
        self.send_local(key, response, context);
        self.end_transaction(key);
        Step::Continue
    }

    /// Suspends a transaction with bytes for its client.
    pub(super) fn suspend(&mut self, key: usize, response: HeldResponse) -> Step {
        let client = &mut self.clients[key];
        if let Some(transaction) = &mut client.transaction {
            transaction.is_request_held = false;
            transaction.suspended = Some(Box::new(response));
            client.deadline = self.now + self.timeouts.response;
        }
        Step::Wait
    }

    /// Continues a suspended transaction. Returns `None` if it is not suspended.
    pub(super) fn resume(&mut self, id: TransactionId, verdict: Verdict) -> Option<Step> {
        if matches!(verdict, Verdict::Suspend | Verdict::Hold) {
            return None;
        }
        let key = id.client;
        let client = self.clients.get_mut(key)?;
        let transaction = client.transaction.as_mut().filter(|it| it.id == id)?;
        let suspended = transaction.suspended.take()?;
        if let Verdict::Respond(response) = verdict {
            let is_unsent =
                suspended.has_head || matches!(transaction.response, ResponseState::Head);
            return Some(if is_unsent { self.respond(key, &response) } else { Step::Close });
        }
        client.unsent.push(&suspended.bytes);
        Some(match (&transaction.response, transaction.upstream) {
            (ResponseState::Done { .. }, _) => self.finish(key),
            (_, None) => {
                let assigned = self.assign(key, None);
                self.or_respond(key, assigned)
            }
            (_, Some(_)) => Step::Continue,
        })
    }

    /// Finishes a transaction whose response was received and sent, or waits to be sent.
    pub(super) fn finish(&mut self, key: usize) -> Step {
        let client = &mut self.clients[key];
        let Some(transaction) = &client.transaction else { return Step::Close };
        // Bytes after the client's last request may be here or still in the kernel.
        let has_more = !client.unread.is_empty() || client.link.is_readable();
        let lingers = !transaction.is_sent() || has_more;
        client.stage = if transaction.closes || client.link.is_stream() {
            Stage::Finish { lingers, ends_at_close: transaction.response.ends_at_close() }
        } else {
            Stage::ReadHead
        };
        // The rest of a response has the time of a body.
        let timeout =
            if client.unsent.is_empty() { self.timeouts.idle } else { self.timeouts.body };
        client.deadline = self.now + timeout;
        self.end_transaction(key);
        Step::Continue
    }

    /// Removes and logs a client's transaction. Its upstream connection must have been given back or closed.
    pub(super) fn end_transaction(&mut self, key: usize) {
        let client = &mut self.clients[key];
        let Some(mut transaction) = client.transaction.take() else {
            return;
        };
        debug_assert!(transaction.upstream.is_none(), "a connection is given back before");
        let id = ClientId { key, serial: client.serial };
        transaction.request_buffer.clear();
        client.request_buffer = std::mem::take(&mut transaction.request_buffer);
        self.log_transaction(key, &transaction);
        if transaction.is_inspected {
            let outcome = Outcome {
                status: (transaction.status > 0).then_some(transaction.status),
                request_body_bytes: transaction.request_body_bytes,
                response_body_bytes: transaction.response_body_bytes,
                duration: self.now.saturating_duration_since(transaction.started_at),
            };
            self.filter.finished(transaction.id, &outcome);
        }
        let Transaction { generation: at, pool, .. } = transaction;
        // A tunnel's duration does not count as a response's.
        if transaction.status > 0 && !transaction.is_tunnel() {
            let us = self.elapsed_us(transaction.started_at);
            self.pool_counters(at, pool).request_durations.add_us(us);
        }
        if let Some(backend) = transaction.reserved {
            self.release(Place { generation: at, pool, backend: backend.0 });
        }
        let generation = &mut self.generations[at];
        if let Some(queue) = transaction.queue {
            generation.pools[pool].state.dequeue(queue, &id);
        }
        generation.transactions -= 1;
        if generation.transactions == 0 && at != self.current {
            self.generations.remove(at);
        }
    }

    fn log_transaction(&mut self, key: usize, transaction: &Transaction) {
        if self.access_log.is_none() {
            return;
        }
        let peer = self.peer(key);
        let pool = &self.generations[transaction.generation].shared.config.pools[transaction.pool];
        let backend = transaction.backend.map(|at| pool.backends[at].address.to_string());
        let entry = Entry {
            peer: &peer,
            tls: logged_tls(&self.clients, &self.http2, key),
            request: transaction.logged_request.as_deref(),
            status: if transaction.status == 0 { STATUS_NO_RESPONSE } else { transaction.status },
            body_bytes: transaction.response_body_bytes,
            reason: transaction.reason.map(Reason::word),
            upstream: Some(LoggedUpstream {
                pool: &pool.name,
                backend: backend.as_deref(),
                tries: transaction.sends,
                duration: self.now.saturating_duration_since(transaction.started_at),
            }),
        };
        if let Some(log) = &mut self.access_log {
            log.add(&entry);
        }
    }
}

/// True if a body is known to exceed the limit, by its announced length or the size of the current chunk.
pub(super) fn exceeds_limit(body: &Body, received: u64, limit: Option<u64>) -> bool {
    limit.is_some_and(|limit| received.saturating_add(body.remaining()) > limit)
}
