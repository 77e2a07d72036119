//! A transaction's turn: its start, the verdicts of the firewall, and its end.

use std::io;
use std::time::{Duration, SystemTime};

use tollgate_accesslog::{Entry, STATUS_NO_RESPONSE, Upstream as LoggedUpstream};
use tollgate_http1::{FieldList, reason_phrase};

use super::client::Client;
use super::keys::ExchangeId;
use super::shared::Shared;
use super::transaction::{
    BackendState, HeldResponse, Hold, RequestState, ResponseState, Transaction,
};
use super::upstreams::BackendPlace;
use crate::config::{FixedResponse, PoolId, Route, Timeouts};
use crate::counters::Interruption;
use crate::firewall::{Direction, FirewallVerdict, Outcome};
use crate::headers::{HeadWriter, RequestSummary};
use crate::local_response::{LocalResponse, Reason, ResponseContext};
use crate::responder::Responder;

/// A transaction with its client, and what it may change besides.
pub(super) struct Turn<'a> {
    pub(super) id: ExchangeId,
    pub(super) client: &'a mut Client,
    pub(super) transaction: &'a mut Transaction,
    pub(super) shared: &'a mut Shared,
}

/// Continuation of a transaction.
#[derive(Debug)]
pub(super) enum Flow {
    /// With another step.
    Continue,
    /// On the next event of the client or its backend, or at its deadline.
    Wait,
    /// It ends, as the response was received, and is sent or waits to be sent.
    Finish,
    /// It ends with this response in place of the backend's.
    Respond(Box<LocalResponse>),
    /// It ends with its client, for the cause that the transaction has.
    Close,
}

impl Flow {
    /// Ends with an error response.
    pub(super) fn error(reason: Reason) -> Self {
        Self::Respond(Box::new(LocalResponse::error(reason)))
    }
}

/// Stage of a client after its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    NextHead,
    Finish { lingers: bool, ends_at_close: bool },
}

impl Turn<'_> {
    /// Timeouts of the route.
    pub(super) fn timeouts(&self) -> &Timeouts {
        self.shared.timeouts_of(self.transaction)
    }

    /// Applies a verdict on received bytes, of the request or of the response. The bytes of a request are in its buffer;
    /// those of a response are in `held` with what was kept before, and are forwarded, kept, parked, or replaced by a
    /// response; if a part is sent already, the client is closed.
    pub(super) fn apply(
        &mut self,
        verdict: FirewallVerdict,
        held: Option<Box<HeldResponse>>,
    ) -> Flow {
        match verdict {
            FirewallVerdict::Pass => {
                if let Some(held) = held
                    && self.client.send(&mut self.shared.http2, &held.bytes, false).is_err()
                {
                    return Flow::Close;
                }
                self.proceed()
            }
            FirewallVerdict::Hold => {
                if let Some(held) = held {
                    self.transaction.hold = Hold::Kept(held);
                    self.client.deadline = self.shared.now + self.timeouts().body;
                }
                Flow::Continue
            }
            FirewallVerdict::Suspend => {
                self.transaction.hold = Hold::Parked(held.unwrap_or_default());
                self.client.deadline = self.shared.now + self.timeouts().response;
                Flow::Wait
            }
            FirewallVerdict::Respond(response) => {
                let can_respond =
                    self.transaction.is_head_missing() || held.is_some_and(|held| held.has_head);
                if can_respond {
                    Flow::Respond(response)
                } else {
                    self.interrupt(Interruption::Blocked)
                }
            }
            FirewallVerdict::Bug(state) => {
                self.shared.report_bug(state);
                Flow::Close
            }
        }
    }

    /// Continues with what the last verdict has let pass.
    fn proceed(&mut self) -> Flow {
        match (&self.transaction.response, self.transaction.request) {
            (ResponseState::Done { .. }, _) => Flow::Finish,
            (_, RequestState::Held | RequestState::Buffered) => match &self.transaction.responder {
                Responder::Pool(pool) => {
                    let pool = *pool;
                    if self.buffers_request(pool) {
                        return Flow::Continue;
                    }
                    self.transaction.request = RequestState::Sending;
                    self.assign(pool, None)
                }
                Responder::Gateway(response) => Flow::Respond(response.clone()),
            },
            _ => Flow::Continue,
        }
    }

    /// True while a short request is received before a backend is chosen, so that a slow client occupies none. Reserves
    /// memory for all of its body; without room it is streamed.
    fn buffers_request(&mut self, pool: PoolId) -> bool {
        let Self { transaction, shared, .. } = self;
        let Some(bytes) = transaction.announced_bytes() else { return false };
        let is_done = transaction.request_body.is_done();
        if transaction.request == RequestState::Buffered {
            if is_done {
                shared.buffered_bytes -= bytes;
            }
            return !is_done;
        }
        let generation = &shared.upstreams[transaction.generation];
        let room = generation.shared.config.limits.held_body_bytes as u64;
        if is_done
            || transaction.is_streaming
            || bytes > generation.pool(pool).buffer_request
            || shared.buffered_bytes + bytes > room
        {
            return false;
        }
        shared.buffered_bytes += bytes;
        shared.pool_counters(transaction.generation, pool).buffered.add(1);
        transaction.request = RequestState::Buffered;
        true
    }

    /// Starts with the received part of a request, and the verdict on it. A client that waits for an interim response of
    /// the backend, which has not received the request, gets one if the request is held or buffered.
    pub(super) fn start(&mut self, verdict: FirewallVerdict, is_body_unread: bool) -> Flow {
        let flow = self.apply(verdict, None);
        if matches!(flow, Flow::Continue) && self.transaction.is_held() {
            let waits = self.transaction.summary.expects_continue && is_body_unread;
            if waits && self.send_continue().is_err() {
                return Flow::Close;
            }
            self.client.deadline = self.shared.now + self.timeouts().body;
            self.limit_body_time();
        }
        flow
    }

    /// Moves the deadline of a held request up to the end of the time for its body, if the route has one.
    pub(super) fn limit_body_time(&mut self) {
        if let Some(time) = self.route().verdicts.as_ref().and_then(|rules| rules.body_time) {
            self.client.deadline = self.transaction.started_at + time;
        }
    }

    pub(super) fn route(&self) -> &Route {
        let Transaction { generation, route, .. } = *self.transaction;
        &self.shared.upstreams[generation].shared.config.routes[route.0]
    }

    fn send_continue(&mut self) -> io::Result<()> {
        let mut head = Vec::new();
        let mut writer = HeadWriter::new(self.client.link.form(), &mut head);
        writer.start_response(100, "Continue");
        writer.end();
        self.client.send(&mut self.shared.http2, &head, false)
    }

    /// Continues a parked transaction.
    pub(super) fn resume(&mut self, verdict: FirewallVerdict) -> Flow {
        let held = self.transaction.hold.take();
        self.apply(verdict, held)
    }

    /// Moves what is available, in both directions.
    pub(super) fn forward(&mut self) -> Flow {
        if self.transaction.is_parked() {
            return Flow::Wait;
        }
        if self.transaction.is_held() {
            return self.receive_held_request();
        }
        let at = match self.transaction.backend {
            BackendState::Assigned(at) => at,
            BackendState::Reserved { pool, backend } => return self.connect(pool, backend),
            BackendState::Queued { .. }
            | BackendState::Paused { .. }
            | BackendState::Unassigned => return Flow::Wait,
        };
        if let Some(flow) = self.continue_handshake(at) {
            return flow;
        }
        if let ResponseState::Tunnel { client_ended, backend_ended } = self.transaction.response {
            return self.forward_tunnel(at, client_ended, backend_ended);
        }
        let flow = match self.transaction.request {
            RequestState::Sending => self.forward_request(at),
            RequestState::Held
            | RequestState::Buffered
            | RequestState::Sent
            | RequestState::Aborted => Flow::Wait,
        };
        match flow {
            Flow::Continue => match self.forward_response(at) {
                Flow::Wait => Flow::Continue,
                flow => flow,
            },
            Flow::Wait if !self.transaction.is_parked() => self.forward_response(at),
            flow => flow,
        }
    }

    /// Handles a client that has shut down its sending side, so it has probably left: closes it if its request
    /// waits for a backend, and limits its wait for a response otherwise.
    pub(super) fn check_departure(&mut self) -> Flow {
        let config = &self.shared.upstreams[self.transaction.generation].shared.config;
        if config.requests.half_close || !self.client.link.is_read_shut() {
            return Flow::Continue;
        }
        if matches!(
            self.transaction.backend,
            BackendState::Queued { .. } | BackendState::Paused { .. }
        ) {
            return Flow::Close;
        }
        let until = self.shared.now + self.timeouts().abandoned;
        self.transaction.abandoned_until.get_or_insert(until);
        Flow::Continue
    }

    /// Ends with the client, which has a part of the response.
    pub(super) fn interrupt(&mut self, cause: Interruption) -> Flow {
        self.transaction.interruption = Some(cause);
        Flow::Close
    }

    /// Handles a deadline that has passed: that of the client, or of an abandoned request.
    pub(super) fn time_out(&mut self) -> Flow {
        let is_parked = self.transaction.is_parked();
        if self.client.deadline > self.shared.now {
            // The time of an abandoned request starts with its end.
            if self.transaction.is_sent() || is_parked {
                return Flow::Close;
            }
            self.transaction.abandoned_until = Some(self.shared.now + self.timeouts().abandoned);
            return Flow::Wait;
        }
        let is_head_missing = self.transaction.is_head_missing();
        if is_parked && self.transaction.can_respond() {
            return self.respond_late();
        }
        if self.transaction.is_held() {
            return self.end_body(Reason::BodyTimeout);
        }
        if !is_head_missing && self.transaction.can_respond() {
            self.record_failure("a response stalled");
            return Flow::error(Reason::ResponseTimeout);
        }
        if !is_head_missing {
            // Nothing shows who has ended a tunnel that is silent.
            if self.transaction.is_tunnel() {
                return self.interrupt(Interruption::Stalled);
            }
            if self.waits_for_response_body() {
                self.record_failure("a response stalled");
                return self.interrupt(Interruption::Stalled);
            }
            return self.interrupt(Interruption::ClientStalled);
        }
        let at = match self.transaction.backend {
            BackendState::Assigned(at) => at,
            BackendState::Queued { pool, .. } | BackendState::Reserved { pool, .. } => {
                let generation = &self.shared.upstreams[self.transaction.generation];
                let queue_timeout = generation.pool(pool).queue_timeout;
                let response = LocalResponse::unavailable(Reason::QueueTimeout, queue_timeout);
                return Flow::Respond(Box::new(response));
            }
            BackendState::Paused { pool, failed } => return self.try_again(pool, failed),
            BackendState::Unassigned => {
                self.shared.report_bug("a request without a backend waits for one");
                return Flow::Close;
            }
        };
        if self.shared.upstreams[at].is_connecting {
            return self.retry(at, Reason::ConnectTimeout);
        }
        // The backend does not respond, or takes no more of the request.
        if self.transaction.request_body.is_done() || !self.transaction.request_buffer.is_sent() {
            self.record_failure("no response in time");
            return Flow::error(Reason::ResponseTimeout);
        }
        Flow::error(Reason::BodyTimeout)
    }

    /// Responds in place of an inspection that takes too long.
    fn respond_late(&mut self) -> Flow {
        let rules = self.route().verdicts.as_ref();
        let Transaction { generation, route, .. } = *self.transaction;
        if let Some(firewall) = &self.shared.upstreams[generation].shared.firewalls[route.0] {
            firewall.count_late(self.shared.thread, rules.is_some_and(|rules| rules.passes_late));
        }
        let Some(rules) = rules else { return Flow::error(Reason::FilterTimeout) };
        let FixedResponse { status, headers, body } = rules.late.clone();
        let response = LocalResponse::new(status, reason_phrase(status), headers, body);
        Flow::Respond(Box::new(response.because(Reason::FilterTimeout)))
    }

    /// Ends a body of which no more arrives. Responds with an error unless the part that has arrived counts as the body.
    pub(super) fn end_body(&mut self, reason: Reason) -> Flow {
        if self.route().verdicts.as_ref().is_none_or(|rules| rules.body_time.is_none()) {
            return Flow::error(reason);
        }
        let verdict = match self.transaction.shown_id() {
            Some(id) => self.shared.inspector.end_body(Direction::Request, id).at_end(),
            None => FirewallVerdict::Pass,
        };
        self.apply(verdict, None)
    }

    /// True if only the rest of a response body is missing: the client has received all that came of it, and has sent
    /// its request or as much as the backend takes.
    pub(super) fn waits_for_response_body(&self) -> bool {
        let Self { client, transaction, .. } = self;
        matches!(transaction.response, ResponseState::Body { .. })
            && !transaction.is_parked()
            && client.unsent.is_empty()
            && !client.link.is_waiting()
            && (transaction.request_body.is_done() || !transaction.request_buffer.is_sent())
    }

    /// Ends with a local response.
    pub(super) fn respond(&mut self, response: &LocalResponse) -> After {
        self.drop_upstream();
        let refusal = self.client.link.websocket_key().map(|_| response.refusing_tunnel());
        let response = refusal.as_deref().unwrap_or(response);
        let config = &self.shared.upstreams[self.transaction.generation].shared.config;
        let response = &*response.with_page(&config.error_pages);
        let RequestSummary { is_head, version, keep_alive, .. } = self.transaction.summary;
        let is_received = self.transaction.request_body.is_done();
        let keep_alive = keep_alive && is_received && !response.closes();
        let context = ResponseContext { is_head, version, keep_alive };
        self.transaction.status = response.status();
        self.transaction.reason = response.reason();
        self.transaction.interruption = None;
        self.transaction.response_body_bytes = response.body_bytes(context);
        let after = send_local(self.client, self.shared, response, context);
        self.end();
        after
    }

    /// Ends with a response that was received, and sent or waits to be sent.
    pub(super) fn finish(&mut self) -> After {
        let Self { client, transaction, shared, .. } = self;
        transaction.interruption = None;
        // Bytes after the client's last request may be here or still in the kernel.
        let has_more = !client.unread.is_empty() || client.link.is_readable();
        let after = if transaction.closes || client.link.is_stream() {
            let lingers = !transaction.is_sent() || has_more;
            After::Finish { lingers, ends_at_close: transaction.response.ends_at_close() }
        } else {
            After::NextHead
        };
        // The rest of a response has the time of a body.
        let timeout = if client.unsent.is_empty() {
            shared.timeouts.idle
        } else {
            shared.timeouts_of(transaction).body
        };
        client.deadline = shared.now + timeout;
        self.end();
        after
    }

    /// Leaves the backend, logs and counts.
    pub(super) fn end(&mut self) {
        self.leave_backend();
        self.log();
        let Self { client, transaction, shared, .. } = self;
        if transaction.request == RequestState::Buffered {
            shared.buffered_bytes -= transaction.announced_bytes().unwrap_or_default();
            transaction.request = RequestState::Aborted;
        }
        transaction.request_buffer.clear();
        client.request_buffer = std::mem::take(&mut transaction.request_buffer);
        if transaction.is_inspected {
            let outcome = Outcome {
                status: (transaction.status > 0).then_some(transaction.status),
                request_body_bytes: transaction.request_body_bytes,
                response_body_bytes: transaction.response_body_bytes,
                duration: shared.now.saturating_duration_since(transaction.started_at),
            };
            shared.inspector.finish(transaction.id, &outcome);
        }
        if let Some(pool) = transaction.responder.pool() {
            if let Some(interruption) = transaction.interruption {
                let counters = shared.pool_counters(transaction.generation, pool);
                counters.interruptions[interruption as usize].add(1);
            }
            // A tunnel's duration does not count as a response's.
            if transaction.status > 0 && !transaction.is_tunnel() {
                let us = shared.elapsed_us(transaction.started_at);
                shared.pool_counters(transaction.generation, pool).request_durations.add_us(us);
            }
        }
        let config = &shared.upstreams[transaction.generation].shared.config;
        let limits = config.routes[transaction.route.0].client_limits();
        if let (Some(limits), Some(ip)) = (limits, client.ip) {
            shared.counters.limiter.leave(limits, ip);
        }
        shared.upstreams.end_transaction(transaction.generation);
    }

    /// Gives up the connection to a backend, the room on one, or the place in a queue.
    fn leave_backend(&mut self) {
        let generation = self.transaction.generation;
        let shared = &mut *self.shared;
        match std::mem::replace(&mut self.transaction.backend, BackendState::Unassigned) {
            BackendState::Unassigned | BackendState::Paused { .. } => {}
            BackendState::Queued { pool, queue } => {
                let is_waiting =
                    shared.upstreams.pool_state(generation, pool).dequeue(queue, &self.id);
                if !is_waiting && let Some(place) = shared.upstreams.withdraw_grant(self.id) {
                    shared.release(place);
                }
            }
            BackendState::Reserved { pool, backend } => {
                shared.release(BackendPlace { generation, pool, backend });
            }
            BackendState::Assigned(at) => {
                let place = shared.close_upstream(at);
                shared.release(place);
            }
        }
    }

    fn log(&mut self) {
        let Self { client, transaction, shared, .. } = self;
        let Shared { access_log: Some(log), http2, upstreams, inspector, now, .. } = &mut **shared
        else {
            return;
        };
        let generation = &upstreams[transaction.generation];
        if !generation.shared.config.routes[transaction.route.0].is_logged {
            return;
        }
        let name = transaction.is_inspected.then(|| inspector.name(transaction.id)).flatten();
        let pool = transaction.responder.pool();
        let pool = pool.map(|pool| generation.pool(pool));
        let backend = transaction.last_backend.zip(pool);
        let backend = backend.map(|(at, pool)| pool.backends[at.0].address.to_string());
        log.add(&Entry {
            peer: &client.logged_ip(),
            tls: client.logged_tls(http2),
            request: transaction.logged_request.as_deref(),
            status: if transaction.status == 0 { STATUS_NO_RESPONSE } else { transaction.status },
            body_bytes: transaction.response_body_bytes,
            reason: transaction.reason.map(Reason::word),
            interruption: transaction.interruption.map(Interruption::word),
            transaction: name.as_deref(),
            upstream: pool.map(|pool| LoggedUpstream {
                pool: &pool.name,
                backend: backend.as_deref(),
                tries: transaction.sends,
                first_byte: transaction
                    .first_byte_us
                    .map(|us| Duration::from_micros(us.get().into())),
                duration: now.saturating_duration_since(transaction.started_at),
            }),
        });
    }
}

/// Queues a local response for a client. Returns the stage that follows.
pub(super) fn send_local(
    client: &mut Client,
    shared: &mut Shared,
    response: &LocalResponse,
    context: ResponseContext,
) -> After {
    shared.client_counters().count_local_response(response.status());
    let keep_alive = context.keep_alive && shared.stop_by.is_none();
    let date = shared.scratch.date.at(shared.now, SystemTime::now);
    let mut bytes = Vec::new();
    let context = ResponseContext { keep_alive, ..context };
    response.render(context, date, client.link.form(), &mut bytes);
    client.unsent.push(&bytes);
    client.end_response(FieldList::default());
    client.deadline = shared.now + shared.timeouts.body;
    if keep_alive && !client.link.is_stream() {
        return After::NextHead;
    }
    client.keep_unread(&[]);
    After::Finish { lingers: true, ends_at_close: false }
}
