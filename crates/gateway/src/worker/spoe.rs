//! Connections of HAProxy's SPOE: each NOTIFY asks for the verdict on a request or a response, and its ACK gives it, in any
//! order.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tollgate_spop as spop;
use tollgate_spop::{Action, Event, Interruption, Matches, NotifyId, Variables};
use tollgate_tls::Received;

use super::client::Client;
use super::keys::ExchangeKey;
use super::shared::Shared;
use super::spoe_message::{Asked, Kind, Notify, ask};
use crate::config::{ExpectedResponses, Route, Service, Spoe};
use crate::counters::SpoeAnswer;
use crate::firewall::{FirewallVerdict, Outcome, TransactionId};
use crate::local_response::LocalResponse;
use crate::log;

/// Silence of a connection that has nothing to be answered. HAProxy closes idle connections itself (`timeout idle`), and if the
/// agent did, a NOTIFY could be lost that is on its way.
const IDLE_TIME: Duration = Duration::from_secs(60 * 60);

/// Status of a message that is denied without a verdict.
const FAILURE_STATUS: u16 = 503;

/// The agent's side of a connection.
#[derive(Debug)]
pub(super) struct Agent {
    connection: spop::Connection,
    /// Messages that the helper thread inspects, the oldest first.
    suspended: VecDeque<Suspended>,
    /// When a handshake, a frame or output that is incomplete ends the connection.
    stalled_at: Option<Instant>,
}

#[derive(Debug)]
struct Suspended {
    transaction: TransactionId,
    notify: Notify,
    deadline: Instant,
}

impl Agent {
    pub(super) fn new(stalled_at: Instant) -> Self {
        let connection = spop::Connection::new(spop::Limits::default());
        Self { connection, suspended: VecDeque::new(), stalled_at: Some(stalled_at) }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.connection.held_bytes()
    }

    /// True if the message of an inspection has no answer.
    pub(super) fn awaits(&self, id: TransactionId) -> bool {
        self.position(id).is_some()
    }

    fn position(&self, id: TransactionId) -> Option<usize> {
        self.suspended.iter().position(|suspended| suspended.transaction == id)
    }

    /// Ends the inspections whose answers nobody awaits.
    pub(super) fn abandon(&mut self, shared: &mut Shared) {
        for Suspended { transaction, .. } in self.suspended.drain(..) {
            shared.inspector.finish(transaction, &Outcome::default());
        }
    }
}

/// An agent with what it acts on.
pub(super) struct AgentTurn<'a> {
    key: ExchangeKey,
    agent: &'a mut Agent,
    client: &'a mut Client,
    shared: &'a mut Shared,
    /// `None`: the listener was removed.
    spoe: Option<Spoe>,
}

/// Continuation of a connection.
pub(super) enum AgentFlow {
    Continue,
    Wait,
    /// The last frame is queued: it is sent, and then the connection closed.
    Finish,
    Close,
}

impl<'a> AgentTurn<'a> {
    pub(super) fn new(
        key: ExchangeKey,
        agent: &'a mut Agent,
        client: &'a mut Client,
        shared: &'a mut Shared,
    ) -> Self {
        let spoe = match &shared.listener(client.listener).service {
            Some(Service::Spoe(spoe)) => Some(spoe.clone()),
            _ => None,
        };
        Self { key, agent, client, shared, spoe }
    }

    /// Acts, and sets the time of the next [`time_out`](Self::time_out).
    pub(super) fn act(mut self, act: impl FnOnce(&mut Self) -> AgentFlow) -> AgentFlow {
        let flow = act(&mut self);
        match flow {
            AgentFlow::Finish => {
                self.agent.abandon(self.shared);
                self.client.keep_unread(b"");
                self.client.deadline = self.shared.now + self.shared.timeouts.body;
            }
            _ => self.set_deadline(),
        }
        flow
    }

    /// Sends, receives and answers what there is, once.
    pub(super) fn serve(&mut self) -> AgentFlow {
        if !self.client.unsent.is_empty() {
            match self.client.flush(&mut self.shared.http2) {
                Ok(0) => {}
                Ok(_) => self.agent.stalled_at = None,
                Err(_) => return AgentFlow::Close,
            }
        }
        // Nothing more is read from a peer that does not read, or has as many messages without answers as it may.
        if !self.client.unsent.is_empty() || self.agent.connection.is_full() {
            return AgentFlow::Wait;
        }
        let mut input = std::mem::take(&mut self.shared.scratch.input);
        let flow = self.receive(&mut input);
        self.shared.scratch.input = input;
        flow
    }

    fn receive(&mut self, input: &mut [u8]) -> AgentFlow {
        let kept = self.client.unread.len();
        let mut end = kept;
        if kept > 0 {
            input[..kept].copy_from_slice(&self.client.unread);
        } else {
            let Some(transport) = self.client.transport() else {
                self.shared.report_bug("a stream serves SPOE");
                return AgentFlow::Close;
            };
            if !transport.is_readable() {
                return self.rest();
            }
            match transport.receive(input) {
                Ok(Received::Bytes(count)) => end = count,
                Ok(Received::Nothing) => return AgentFlow::Continue,
                Ok(Received::End) | Err(_) => return AgentFlow::Close,
            }
        }
        self.take(&input[..end])
    }

    /// Waits for more, unless the agent stops.
    fn rest(&mut self) -> AgentFlow {
        let is_over = self.shared.stop_by.is_some() || self.spoe.is_none();
        if !is_over || !self.agent.suspended.is_empty() {
            return AgentFlow::Wait;
        }
        let out = self.client.unsent.tail();
        self.agent.connection.disconnect(spop::StatusCode::NORMAL, "the agent stops", out);
        AgentFlow::Finish
    }

    /// Takes received frames.
    fn take(&mut self, mut input: &[u8]) -> AgentFlow {
        loop {
            let received = self.agent.connection.receive(&mut input, self.client.unsent.tail());
            match received {
                Ok(Some(Event::Notify { id, message })) => {
                    self.agent.stalled_at = None;
                    match ask(self.shared, self.spoe.as_ref(), self.key, id, message) {
                        Asked::Verdict(notify, transaction, verdict) => {
                            self.settle(notify, transaction, verdict);
                        }
                        Asked::NotInspected => {
                            self.answer(id, &Variables::default(), SpoeAnswer::Passed);
                        }
                        Asked::Failed(answer) => self.fail(id, None, answer),
                    }
                }
                Ok(Some(Event::Hello { is_health_check: false } | Event::Skipped)) => {}
                Ok(Some(Event::Hello { is_health_check: true })) => return AgentFlow::Finish,
                Ok(Some(Event::Disconnect { code, message })) => {
                    if code != spop::StatusCode::NORMAL
                        && self.shared.spoe_log.allow(self.shared.now)
                    {
                        log(format_args!(
                            "HAProxy ends an SPOE connection with code {}: {} (logged once a minute)",
                            code.0,
                            message.escape_ascii()
                        ));
                    }
                    return AgentFlow::Finish;
                }
                Ok(None) => break,
                Err(error) => {
                    self.shared.client_counters().spoe_errors.add(1);
                    if self.shared.spoe_log.allow(self.shared.now) {
                        log(format_args!(
                            "an SPOE connection ends by an error of its peer: {error} (logged once a minute, counted in \
                             /metrics)"
                        ));
                    }
                    return AgentFlow::Finish;
                }
            }
        }
        self.client.keep_unread(input);
        AgentFlow::Continue
    }

    /// Answers the message of an inspection that the helper thread has finished.
    pub(super) fn resume(&mut self, id: TransactionId, verdict: FirewallVerdict) -> AgentFlow {
        let Some(at) = self.agent.position(id) else { return AgentFlow::Continue };
        if let Some(Suspended { notify, .. }) = self.agent.suspended.remove(at) {
            self.settle(notify, id, verdict);
        }
        AgentFlow::Continue
    }

    /// Answers by a verdict, or has the message wait for one.
    fn settle(&mut self, notify: Notify, transaction: TransactionId, verdict: FirewallVerdict) {
        match verdict.at_end() {
            FirewallVerdict::Pass => self.pass(&notify, transaction),
            FirewallVerdict::Respond(response) => self.block(&notify, transaction, &response),
            FirewallVerdict::Suspend | FirewallVerdict::Hold => {
                let budget =
                    self.route().map(|route| route.timeouts(&self.shared.timeouts).response);
                let deadline = self.shared.now + budget.unwrap_or_default();
                self.agent.suspended.push_back(Suspended { transaction, notify, deadline });
            }
            FirewallVerdict::Bug(state) => {
                self.shared.report_bug(state);
                self.fail(notify.id, Some(transaction), SpoeAnswer::Bug);
            }
        }
    }

    fn pass(&mut self, notify: &Notify, transaction: TransactionId) {
        let findings = self.shared.inspector.findings(transaction);
        let matches = Matches { rules: &findings.rules, score: findings.score };
        let variables = Variables {
            id: findings.name.as_bytes(),
            interruption: None,
            matches: notify.exports_rules.then_some(matches),
        };
        self.answer(notify.id, &variables, SpoeAnswer::Passed);
        let expected = self.spoe.as_ref().and_then(|spoe| spoe.responses);
        let Shared { inspector, counters, now, .. } = &mut *self.shared;
        match (notify.kind, expected) {
            (Kind::Request, Some(ExpectedResponses { timeout, max })) => {
                let name = findings.name.as_bytes();
                let outcome = notify.outcome(None);
                let (until, waiting) = (*now + timeout, &counters.waiting);
                inspector.keep_for_response(transaction, name, outcome, until, max, waiting);
            }
            _ => inspector.finish(transaction, &notify.outcome(None)),
        }
    }

    fn block(&mut self, notify: &Notify, transaction: TransactionId, response: &LocalResponse) {
        let findings = self.shared.inspector.findings(transaction);
        let matches = Matches { rules: &findings.rules, score: findings.score };
        let (action, answer) = match response.location() {
            _ if notify.kind == (Kind::Response { detects_only: true }) => {
                (None, SpoeAnswer::Detected)
            }
            Some(url) => (Some(Action::Redirect(url.as_bytes())), SpoeAnswer::Redirected),
            None if response.closes() => (Some(Action::Drop), SpoeAnswer::Dropped),
            None => (Some(Action::Deny), SpoeAnswer::Denied),
        };
        let (status, rule) = (response.status(), findings.rule.unwrap_or(0));
        let variables = Variables {
            id: findings.name.as_bytes(),
            interruption: action.map(|action| Interruption { action, status, rule }),
            matches: notify.exports_rules.then_some(matches),
        };
        self.answer(notify.id, &variables, answer);
        self.shared.inspector.finish(transaction, &notify.outcome(Some(status)));
    }

    /// Answers a message without a verdict.
    fn fail(&mut self, id: NotifyId, transaction: Option<TransactionId>, answer: SpoeAnswer) {
        let passes = self.passes_late();
        let deny = Interruption { action: Action::Deny, status: FAILURE_STATUS, rule: 0 };
        let interruption = (!passes).then_some(deny);
        self.answer(id, &Variables { interruption, ..Variables::default() }, answer);
        if let Some(transaction) = transaction {
            let status = interruption.map(|deny| deny.status);
            self.shared.inspector.finish(transaction, &Outcome { status, ..Outcome::default() });
        }
    }

    /// True if messages without a verdict pass.
    fn passes_late(&self) -> bool {
        let rules = self.route().and_then(|route| route.verdicts.as_ref());
        rules.is_some_and(|rules| rules.passes_late)
    }

    /// The route of the listener in the current configuration.
    fn route(&self) -> Option<&Route> {
        let config = &self.shared.upstreams.current_config().config;
        self.spoe.as_ref().map(|spoe| &config.routes[spoe.route.0])
    }

    fn answer(&mut self, id: NotifyId, variables: &Variables<'_>, answer: SpoeAnswer) {
        self.agent.connection.acknowledge(id, variables, self.client.unsent.tail());
        self.shared.client_counters().spoe_answers[answer as usize].add(1);
    }

    /// Handles a deadline: that of a message, of something incomplete, or of an idle connection.
    pub(super) fn time_out(&mut self) -> AgentFlow {
        let now = self.shared.now;
        let mut has_late = false;
        while self.agent.suspended.front().is_some_and(|first| first.deadline <= now) {
            let Some(late) = self.agent.suspended.pop_front() else { break };
            late.notify.firewall.count_late(self.shared.thread, self.passes_late());
            self.fail(late.notify.id, Some(late.transaction), SpoeAnswer::Late);
            has_late = true;
        }
        let is_stalled = self.agent.stalled_at.is_some_and(|at| at <= now);
        if has_late && !is_stalled {
            return AgentFlow::Continue;
        }
        if is_stalled && !self.client.unsent.is_empty() {
            return AgentFlow::Close;
        }
        // A handshake or a frame is incomplete, or the connection idle.
        let out = self.client.unsent.tail();
        self.agent.connection.disconnect(spop::StatusCode::TIMEOUT, "a timeout occurred", out);
        AgentFlow::Finish
    }

    fn set_deadline(&mut self) {
        let Self { agent, client, shared, .. } = self;
        let connection = &agent.connection;
        let stalls = |time| Some(shared.now + time);
        agent.stalled_at = if !client.unsent.is_empty() {
            agent.stalled_at.or_else(|| stalls(shared.timeouts.body))
        } else if !connection.is_open() || connection.has_partial_frame() {
            agent.stalled_at.or_else(|| stalls(shared.timeouts.header))
        } else {
            None
        };
        let first = agent.suspended.front().map(|suspended| suspended.deadline);
        let times = [agent.stalled_at, first].into_iter().flatten();
        client.deadline = times.min().unwrap_or(shared.now + IDLE_TIME);
    }
}
