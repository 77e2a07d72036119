//! A client with its transaction: its stages, and its turns.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tollgate_accesslog::{Entry, LoggedRequest};
use tollgate_http1::{FieldList, Version};

use super::client::Client;
use super::http2::Stream;
use super::keys::{ExchangeId, Http2Key};
use super::link::Link;
use super::shared::Shared;
use super::spoe::{Agent, AgentFlow, AgentTurn};
use super::transaction::Transaction;
use super::turn::{After, Flow, Turn, send_local};
use crate::counters::Interruption;
use crate::firewall::{FirewallVerdict, TransactionId};
use crate::local_response::{LocalResponse, Reason, ResponseContext};
use tollgate_tls::Received;

/// Limits of reading from a client that still sends after the last response: in total and while silent, as in nginx
/// (`lingering_time`, `lingering_timeout`). Many clients read no response before they have sent their body, and closing
/// with unread bytes sends a reset, which discards the response.
const LINGER_TIME: Duration = Duration::from_secs(30);
const LINGER_SILENCE: Duration = Duration::from_secs(5);

/// A client and its transaction, with the connection to a backend that serves it (see `LIFECYCLE.md`).
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) id: ExchangeId,
    pub(super) client: Client,
    pub(super) stage: Stage,
    /// Listed among the clients that are registered with the poller only after a moment.
    pub(super) is_unwatched: bool,
}

/// Stage of a client.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a transaction per request in a box is an allocation"
)]
pub(super) enum Stage {
    /// The connection begins with a header of the PROXY protocol. `proxy`: its other end, `None` over a Unix domain socket.
    ProxyHeader {
        proxy: Option<SocketAddr>,
    },
    ReadHead,
    /// The head that was received is handled again once the credentials in it are checked. `late`: the error if that takes too long.
    AwaitCheck {
        late: Reason,
    },
    Transaction(Transaction),
    /// An HTTP/2 connection. Its streams are exchanges of their own.
    Http2(Http2Key),
    /// A connection of HAProxy's SPOE.
    Spoe(Box<Agent>),
    /// The last response is being sent. `lingers`: the client may still be sending, so its bytes are read before the
    /// connection is closed. `ends_at_close`: closing the connection ends the response.
    Finish {
        lingers: bool,
        ends_at_close: bool,
    },
    /// Everything is sent; the client's bytes are read and discarded.
    Linger {
        until: Instant,
    },
}

/// Continuation of a client's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// With another step.
    Continue,
    /// On the next event of the client or its backend, or at its deadline.
    Wait,
    /// With the end of the connection.
    Close,
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the methods are those of a turn with one lifetime, which is not general enough"
)]
impl Exchange {
    pub(super) fn new(id: ExchangeId, client: Client, stage: Stage) -> Self {
        Self { id, client, stage, is_unwatched: false }
    }

    pub(super) fn transaction(&self) -> Option<&Transaction> {
        match &self.stage {
            Stage::Transaction(transaction) => Some(transaction),
            _ => None,
        }
    }

    /// Moves what is available, once.
    pub(super) fn step(&mut self, shared: &mut Shared) -> Next {
        match self.stage {
            Stage::ProxyHeader { proxy } => self.read_proxy_header(shared, proxy),
            Stage::ReadHead => self.read_head(shared),
            Stage::Transaction(_) => self.in_transaction(shared, |turn| turn.forward()),
            // The worker handles its frames, since these concern other exchanges.
            Stage::Http2(_) | Stage::AwaitCheck { .. } => Next::Wait,
            Stage::Spoe(_) => {
                if self.client.is_handshaking {
                    self.count_handshake(shared);
                }
                self.in_spoe(shared, |turn| turn.serve())
            }
            Stage::Finish { lingers, .. } => self.finish(shared, lingers),
            Stage::Linger { until } => self.linger(shared, until),
        }
    }

    /// Lets the transaction act, and ends it if that is the result.
    pub(super) fn in_transaction(
        &mut self,
        shared: &mut Shared,
        act: impl FnOnce(&mut Turn<'_>) -> Flow,
    ) -> Next {
        let Self { id, client, stage: Stage::Transaction(transaction), .. } = self else {
            shared.report_bug("a client has no transaction when it is to act");
            return Next::Close;
        };
        let mut turn = Turn { id: *id, client, transaction, shared };
        let after = match act(&mut turn) {
            Flow::Continue => return Next::Continue,
            Flow::Wait => return Next::Wait,
            Flow::Close => return Next::Close,
            Flow::Respond(response) => turn.respond(&response),
            Flow::Finish => turn.finish(),
        };
        self.go_on(after);
        Next::Continue
    }

    /// Lets the agent of a connection of SPOE act.
    fn in_spoe(
        &mut self,
        shared: &mut Shared,
        act: impl FnOnce(&mut AgentTurn<'_>) -> AgentFlow,
    ) -> Next {
        let Self { id, client, stage: Stage::Spoe(agent), .. } = self else {
            shared.report_bug("a client has no agent when it is to act");
            return Next::Close;
        };
        match AgentTurn::new(id.key, agent, client, shared).act(act) {
            AgentFlow::Continue => Next::Continue,
            AgentFlow::Wait => Next::Wait,
            AgentFlow::Close => Next::Close,
            AgentFlow::Finish => {
                self.stage = Stage::Finish { lingers: true, ends_at_close: false };
                Next::Continue
            }
        }
    }

    fn go_on(&mut self, after: After) {
        self.stage = match after {
            After::NextHead => Stage::ReadHead,
            After::Finish { lingers, ends_at_close } => Stage::Finish { lingers, ends_at_close },
        };
    }

    /// Continues a parked transaction. Returns `None` if another one is in progress, or none.
    pub(super) fn resume(
        &mut self,
        shared: &mut Shared,
        id: TransactionId,
        verdict: FirewallVerdict,
    ) -> Option<Next> {
        if let Stage::Spoe(agent) = &self.stage {
            let awaits = agent.awaits(id);
            return awaits.then(|| self.in_spoe(shared, |turn| turn.resume(id, verdict)));
        }
        self.transaction().filter(|transaction| transaction.id == id && transaction.is_parked())?;
        Some(self.in_transaction(shared, |turn| turn.resume(verdict)))
    }

    /// Handles a client that has shut down its sending side.
    pub(super) fn check_departure(&mut self, shared: &mut Shared) -> Next {
        match self.stage {
            Stage::Transaction(_) => self.in_transaction(shared, |turn| turn.check_departure()),
            _ => Next::Continue,
        }
    }

    /// Answers bytes that are not a valid request, and closes the connection.
    pub(super) fn reject(
        &mut self,
        shared: &mut Shared,
        request: Option<&LoggedRequest>,
        response: &LocalResponse,
    ) {
        let context =
            ResponseContext { is_head: false, version: Version::Http11, keep_alive: false };
        self.respond_directly(shared, request, response, context);
    }

    /// Answers and logs a request without a transaction.
    pub(super) fn respond_directly(
        &mut self,
        shared: &mut Shared,
        request: Option<&LoggedRequest>,
        response: &LocalResponse,
        context: ResponseContext,
    ) {
        let pages = &shared.upstreams.current_config().config.error_pages;
        let response = &*response.with_page(pages);
        self.log_directly(shared, request, response, response.body_bytes(context));
        let after = send_local(&mut self.client, shared, response, context);
        self.go_on(after);
    }

    /// Logs a request without a transaction.
    pub(super) fn log_directly(
        &self,
        shared: &mut Shared,
        request: Option<&LoggedRequest>,
        response: &LocalResponse,
        body_bytes: u64,
    ) {
        let Shared { access_log: Some(log), http2, .. } = shared else { return };
        log.add(&Entry {
            peer: &self.client.logged_ip(),
            tls: self.client.logged_tls(http2),
            request,
            status: response.status(),
            body_bytes,
            reason: response.reason().map(Reason::word),
            interruption: None,
            transaction: None,
            upstream: None,
        });
    }

    /// Sends the rest of the last response, then closes.
    fn finish(&mut self, shared: &mut Shared, lingers: bool) -> Next {
        let client = &mut self.client;
        match client.flush_body(&mut shared.http2, &shared.timeouts, None, shared.now) {
            Ok(true) => {}
            Ok(false) => return Next::Wait,
            Err(_) => return Next::Close,
        }
        let transport = match &mut client.link {
            Link::Connection(transport) => transport,
            Link::Stream(stream) => {
                let trailers = client.end.as_deref().unwrap_or_default();
                shared.http2.finish(stream, FieldList::new(trailers));
                return Next::Close;
            }
        };
        // Bytes after the last request may have arrived unnoticed.
        let lingers = lingers || transport.has_unread_bytes();
        if !lingers && !transport.is_tls() {
            return Next::Close;
        }
        match transport.shutdown() {
            Ok(true) if lingers => {}
            Ok(false) => return Next::Wait,
            Ok(true) | Err(_) => return Next::Close,
        }
        self.stage = Stage::Linger { until: shared.now + LINGER_TIME };
        client.deadline = shared.now + LINGER_SILENCE;
        Next::Continue
    }

    /// Reads and discards what the client sends.
    fn linger(&mut self, shared: &mut Shared, until: Instant) -> Next {
        let Link::Connection(transport) = &mut self.client.link else {
            shared.report_bug("a stream lingers");
            return Next::Close;
        };
        if !transport.is_readable() {
            return Next::Wait;
        }
        match transport.receive(&mut shared.scratch.input) {
            Ok(Received::Bytes(_)) => {
                self.client.deadline = until.min(shared.now + LINGER_SILENCE);
                Next::Continue
            }
            Ok(Received::Nothing) => Next::Wait,
            Ok(Received::End) | Err(_) => Next::Close,
        }
    }

    /// Handles a deadline that has passed.
    pub(super) fn time_out(&mut self, shared: &mut Shared) -> Next {
        match self.stage {
            Stage::Transaction(_) => self.in_transaction(shared, |turn| turn.time_out()),
            Stage::ReadHead if !self.client.unread.is_empty() => {
                self.reject(shared, None, &LocalResponse::error(Reason::HeadTimeout));
                Next::Continue
            }
            Stage::AwaitCheck { late } => {
                let response = match late {
                    Reason::PasswordChecks => LocalResponse::many_passwords(),
                    reason => LocalResponse::bare_error(reason),
                };
                let log = shared.access_log.as_ref();
                let request = log.and_then(|_| self.client.logged_request(&self.client.unread));
                self.reject(shared, request.as_deref(), &response);
                Next::Continue
            }
            Stage::Spoe(_) => self.in_spoe(shared, |turn| turn.time_out()),
            Stage::ProxyHeader { proxy } => {
                let cause = "no header of the PROXY protocol arrives in time";
                shared.refuse_proxy(self.client.listener, proxy, cause);
                Next::Close
            }
            // The worker times connections of HTTP/2 out.
            Stage::ReadHead | Stage::Http2(_) | Stage::Finish { .. } | Stage::Linger { .. } => {
                Next::Close
            }
        }
    }

    /// True if a deadline has passed.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        let give_up_at = self.transaction().and_then(Transaction::give_up_at);
        self.client.deadline <= now || give_up_at.is_some_and(|at| at <= now)
    }

    /// True if the client has sent its only request and has room for the response, so that nothing more is read.
    pub(super) fn can_stay_unwatched(&self) -> bool {
        let Some(transaction) = self.transaction() else { return false };
        !transaction.summary.keep_alive
            && transaction.is_sent()
            && !transaction.is_tunnel()
            && self.client.unsent.is_empty()
            && matches!(&self.client.link, Link::Connection(transport) if !transport.is_watched() && !transport.is_tls())
    }

    /// Memory of its buffers.
    pub(super) fn held_bytes(&self) -> usize {
        let of_stage = match &self.stage {
            Stage::Transaction(transaction) => transaction.held_bytes(),
            Stage::Spoe(agent) => agent.held_bytes(),
            _ => 0,
        };
        self.client.held_bytes() + of_stage
    }

    /// True if the client has neither sent part of a request nor awaits a response.
    pub(super) fn is_idle(&self, shared: &Shared) -> bool {
        match self.stage {
            Stage::ReadHead => self.client.unread.is_empty() && self.client.unsent.is_empty(),
            Stage::Http2(connection) => shared.http2.is_idle(connection),
            Stage::ProxyHeader { .. }
            | Stage::AwaitCheck { .. }
            | Stage::Transaction(_)
            | Stage::Spoe(_)
            | Stage::Finish { .. }
            | Stage::Linger { .. } => false,
        }
    }

    /// Ends the transaction of a client that is removed, counts its bytes and, if the end of its connection would make a
    /// truncated response look complete, resets it. Returns its stream, if it is one, to be released.
    pub(super) fn close(mut self, shared: &mut Shared) -> Option<Box<Stream>> {
        let is_truncated = match &self.stage {
            Stage::Transaction(transaction) => transaction.response.ends_at_close(),
            Stage::Finish { ends_at_close, .. } => *ends_at_close && !self.client.unsent.is_empty(),
            Stage::ProxyHeader { .. }
            | Stage::ReadHead
            | Stage::AwaitCheck { .. }
            | Stage::Http2(_)
            | Stage::Spoe(_)
            | Stage::Linger { .. } => false,
        };
        if let Stage::Spoe(agent) = &mut self.stage {
            agent.abandon(shared);
        }
        if let Stage::Transaction(transaction) = &mut self.stage {
            let client = &mut self.client;
            if shared.stop_by.is_some_and(|by| by <= shared.now) {
                transaction.interruption = Some(Interruption::Stopped);
            }
            Turn { id: self.id, client, transaction, shared }.end();
        }
        shared.release_reserved(&mut self.client);
        self.count_bytes(shared);
        let transport = match self.client.link {
            Link::Connection(transport) => transport,
            Link::Stream(stream) => return Some(stream),
        };
        shared.client_counters().closed.add(1);
        if self.client.is_handshaking
            && transport.has_begun_tls()
            && let Some(handshakes) = &shared.listener(self.client.listener).handshakes
        {
            handshakes.failed.add(1);
        }
        if is_truncated {
            transport.reset();
        }
        None
    }

    /// Adds the connection's received and sent bytes to the counters.
    pub(super) fn count_bytes(&self, shared: &Shared) {
        let Link::Connection(transport) = &self.client.link else { return };
        let (received_bytes, sent_bytes) = transport.take_byte_counts();
        shared.client_counters().received_bytes.add(received_bytes);
        shared.client_counters().sent_bytes.add(sent_bytes);
    }
}
