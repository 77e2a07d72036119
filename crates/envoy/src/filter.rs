//! One stream: what of it is inspected, held, forwarded and answered.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate_firewall::{BlockResponse, Engine, Engines, OnFault, Rules, Sampler};
use tollgate_waf::{Direction, Extent, Intervention, Next};

use crate::abi::{Attribute, Fields, Level, Received, has_one_continue};
use crate::config::{FilterConfig, RouteConfig};
use crate::helper::{self, Lent, Refused};
use crate::host::{Stream, log, logs};
use crate::inspection::{Inspection, Request};
use crate::message::{Head, Tunnel, address, protocol};

/// Bytes that Envoy may keep of a message beyond those that are inspected: those that arrive together.
const BEYOND_LIMIT_BYTES: u64 = 1 << 20;
/// Longest identifier of a request that becomes that of its transaction.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// Statuses of gRPC.
const GRPC_INVALID_ARGUMENT: u8 = 3;
const GRPC_PERMISSION_DENIED: u8 = 7;
const GRPC_RESOURCE_EXHAUSTED: u8 = 8;
const GRPC_INTERNAL: u8 = 13;
const GRPC_UNAVAILABLE: u8 = 14;

/// State of one of Envoy's workers.
#[derive(Default)]
struct Thread {
    engines: Engines,
    sampler: Sampler,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

impl Thread {
    /// The identifier that Envoy gave the request, or a new one.
    fn name(&mut self, request_id: Option<&[u8]>) -> String {
        let is_short = |id: &&[u8]| (1..=REQUEST_ID_BYTES_MAX).contains(&id.len());
        let is_plain = |id: &&[u8]| id.iter().all(u8::is_ascii_graphic);
        if let Some(id) = request_id.filter(is_short).filter(is_plain) {
            return String::from_utf8_lossy(id).into_owned();
        }
        let (series, number) = self.sampler.number();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{:08x}{:08x}{:08x}", now.as_secs(), series, number)
    }
}

fn with_engine<T>(rules: &Arc<Rules>, run: impl FnOnce(&mut Engine) -> T) -> T {
    THREAD.with_borrow_mut(|thread| run(thread.engines.of(rules)))
}

/// Answer to a part of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Forwards it, and all that was held.
    Forward,
    /// Holds it until there is more of the message.
    Hold,
    /// Holds it until the helper is done.
    Wait,
    /// Sends a response in place of the message.
    Respond(Box<Response>),
}

/// A response in place of a message. Envoy may end the stream while it is sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// For a client of gRPC, to which Envoy sends it with status 200.
    pub(crate) grpc_status: u8,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Arc<[u8]>,
    /// For the access log.
    pub(crate) details: String,
}

/// A stream in Envoy.
#[derive(Debug)]
pub(crate) struct Filter {
    config: Arc<FilterConfig>,
    state: State,
    has_request_ended: bool,
    /// A tunnel for which the request asks, until a response opens it.
    asked: Option<Tunnel>,
    /// Bytes for the tunnel wait for its opening.
    holds_tunnel: bool,
}

#[derive(Debug)]
enum State {
    /// Envoy has not passed a request head yet.
    New,
    Inspected(Box<Inspection>),
    /// The helper has the inspection, for a message that waits.
    Lent(Direction, Lent),
    /// The request is not inspected, or not any more.
    Ignored,
}

impl Filter {
    pub(crate) fn new(config: Arc<FilterConfig>) -> Self {
        Self {
            config,
            state: State::New,
            has_request_ended: false,
            asked: None,
            holds_tunnel: false,
        }
    }

    /// Takes the head of a request. `is_end`: it has neither body nor trailers.
    pub(crate) fn request_head(
        &mut self,
        stream: Stream<'_>,
        route: Option<&RouteConfig>,
        is_end: bool,
    ) -> Answer {
        self.state = State::Ignored;
        self.has_request_ended = is_end;
        let Some(waf) = route.map_or(&self.config.waf, |route| &route.waf).clone() else {
            return Answer::Forward;
        };
        if !THREAD.with_borrow_mut(|thread| thread.sampler.is_drawn(waf.sample)) {
            return Answer::Forward;
        }
        let head = Head(stream.fields(Fields::RequestHeaders));
        let name = THREAD.with_borrow_mut(|thread| thread.name(head.get("x-request-id")));
        self.asked = head.tunnel();
        let is_end = is_end || self.asked.is_some();
        let request = Request {
            body: head.body_length(is_end),
            head: &head,
            protocol: protocol(stream.attribute(Attribute::RequestProtocol)),
            client: address(stream.attribute(Attribute::SourceAddress)),
            server: address(stream.attribute(Attribute::DestinationAddress)),
            has_details: logs(Level::Debug),
        };
        stream.count(self.config.counters.inspected, 1);
        let (inspection, next) =
            with_engine(&waf.rules, |engine| Inspection::begin(&waf, name, &request, engine));
        self.continue_with(stream, Box::new(inspection), Direction::Request, next, is_end)
    }

    /// Takes the head of a response.
    pub(crate) fn response_head(&mut self, stream: Stream<'_>, is_end: bool) -> Answer {
        // One of Envoy itself, for a request that is not inspected to its end.
        let State::Inspected(mut inspection) = std::mem::replace(&mut self.state, State::Ignored)
        else {
            return Answer::Forward;
        };
        if let Some(header) = &inspection.waf.transaction_header {
            stream.set_field(Fields::ResponseHeaders, header, &inspection.name);
        }
        let head = Head(stream.fields(Fields::ResponseHeaders));
        let opens = self.asked.is_some_and(|tunnel| tunnel.is_opened_by(head.status()));
        if opens {
            self.asked = None;
        }
        let is_end = is_end || opens;
        let body = head.body_length(is_end);
        let rules = Arc::clone(&inspection.waf.rules);
        let next =
            with_engine(&rules, |engine| inspection.response_head(&head, body, &mut engine.worker));
        self.continue_with(stream, inspection, Direction::Response, next, is_end)
    }

    /// True once, if bytes of the request wait for a tunnel that is open now.
    pub(crate) fn takes_held_tunnel(&mut self) -> bool {
        self.asked.is_none() && std::mem::take(&mut self.holds_tunnel)
    }

    /// Message that waits for the helper.
    pub(crate) fn waiting(&self) -> Option<Direction> {
        match &self.state {
            State::Lent(direction, _) => Some(*direction),
            State::New | State::Inspected(_) | State::Ignored => None,
        }
    }

    /// Takes the pieces of a body that came together.
    pub(crate) fn body(
        &mut self,
        stream: Stream<'_>,
        direction: Direction,
        is_end: bool,
    ) -> Answer {
        self.has_request_ended |= is_end && direction == Direction::Request;
        let mut inspection = match self.take(direction) {
            Ok(inspection) => inspection,
            Err(answer) => return answer,
        };
        let pieces = stream.received(match direction {
            Direction::Request => Received::Request,
            Direction::Response => Received::Response,
        });
        if direction == Direction::Request {
            // A backend that ignores the upgrade would read these bytes as another request.
            if self.asked == Some(Tunnel::Upgrade) {
                self.state = State::Inspected(inspection);
                self.holds_tunnel = true;
                return Answer::Wait;
            }
            let is_empty = pieces.iter().all(|piece| piece.is_empty());
            inspection.is_passing |= !is_empty && !inspection.session.is_collecting();
        }
        // An empty piece, such as a frame without bytes, releases nothing.
        let mut next = inspection.session.body(direction, b"");
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            next = inspection.session.body(direction, piece);
            // The rest is beyond what is inspected.
            if matches!(next, Next::Run(_) | Next::Block(_)) {
                break;
            }
        }
        self.continue_with(stream, inspection, direction, next, is_end)
    }

    /// Takes the end of a message with trailers. Those of a request are dropped, as rules do not see them.
    pub(crate) fn trailers(&mut self, stream: Stream<'_>, direction: Direction) -> Answer {
        self.has_request_ended |= direction == Direction::Request;
        let is_inspected = matches!(self.state, State::Inspected(_) | State::Lent(..));
        if is_inspected && direction == Direction::Request {
            stream.remove_fields(Fields::RequestTrailers);
            if self.asked == Some(Tunnel::Upgrade) {
                self.holds_tunnel = true;
                return Answer::Wait;
            }
        }
        match self.take(direction) {
            Ok(inspection) => self.continue_with(stream, inspection, direction, Next::Pass, true),
            Err(answer) => answer,
        }
    }

    /// Takes out the inspection, for the next part of a message. Otherwise returns the answer to this part.
    fn take(&mut self, direction: Direction) -> Result<Box<Inspection>, Answer> {
        match std::mem::replace(&mut self.state, State::Ignored) {
            State::Inspected(inspection) => Ok(inspection),
            State::Lent(of, lent) => {
                self.state = State::Lent(of, lent);
                Err(if of == direction { Answer::Wait } else { Answer::Forward })
            }
            State::New | State::Ignored => Err(Answer::Forward),
        }
    }

    /// Takes the inspection back from the helper. Returns the answer to the message that waits; `None`: none does.
    pub(crate) fn resume(&mut self, stream: Stream<'_>) -> Option<Answer> {
        let State::Lent(direction, lent) = &self.state else { return None };
        let direction = *direction;
        Some(match lent.take()? {
            Some((inspection, next)) => {
                self.continue_with(stream, inspection, direction, next, true)
            }
            None => self.fault(stream),
        })
    }

    /// Does the next step of an inspection: nothing, at once, or on the helper. `is_end`: nothing of the message follows.
    fn continue_with(
        &mut self,
        stream: Stream<'_>,
        mut inspection: Box<Inspection>,
        direction: Direction,
        mut next: Next,
        is_end: bool,
    ) -> Answer {
        if is_end && matches!(next, Next::Pass | Next::Hold) {
            next = inspection.session.end(direction);
        }
        if let Next::Run(Extent::Short) = next {
            let rules = Arc::clone(&inspection.waf.rules);
            next = with_engine(&rules, |engine| inspection.run(direction, &mut engine.worker));
        }
        // Envoy would not let the response continue.
        let must_not_wait =
            direction == Direction::Response && !self.has_request_ended && has_one_continue();
        if let Next::Run(_) = next
            && !must_not_wait
        {
            let wake = || {
                let scheduler = stream.scheduler();
                Box::new(move || scheduler.commit()) as Box<_>
            };
            match helper::lend(inspection, direction, wake) {
                Ok(lent) => {
                    stream.count(self.config.counters.lent, 1);
                    self.state = State::Lent(direction, lent);
                    return Answer::Wait;
                }
                Err(Refused::NoHelper(here)) => inspection = here,
                Err(Refused::Full(mut here)) => {
                    next = here.session.cut(direction);
                    if !matches!(next, Next::Block(_)) {
                        // In detection mode: the stream goes on without inspection.
                        self.end_inspection(stream, *here);
                        self.state = State::Ignored;
                        return Answer::Forward;
                    }
                    inspection = here;
                }
            }
        }
        if let Next::Run(_) = next {
            let rules = Arc::clone(&inspection.waf.rules);
            next = with_engine(&rules, |engine| inspection.run(direction, &mut engine.worker));
        }
        let answer = match next {
            Next::Block(block) => Answer::Respond(Box::new(response(&inspection, block))),
            Next::Hold => {
                let limit = inspection.body_limit(direction) as u64;
                stream.keep_at_least(limit.saturating_add(BEYOND_LIMIT_BYTES));
                Answer::Hold
            }
            Next::Pass | Next::Run(_) => Answer::Forward,
        };
        self.state = State::Inspected(inspection);
        answer
    }

    /// Reacts to a bug of the firewall.
    pub(crate) fn fault(&mut self, stream: Stream<'_>) -> Answer {
        self.state = State::Ignored;
        self.asked = None;
        // The panic may have left anything there.
        THREAD.take();
        stream.count(self.config.counters.faults, 1);
        log(Level::Error, &format!("tollgate: {}", OnFault::advice()));
        self.answer_to_fault()
    }

    pub(crate) fn answer_to_fault(&self) -> Answer {
        if self.config.on_fault == OnFault::Pass {
            return Answer::Forward;
        }
        Answer::Respond(Box::new(Response {
            status: 500,
            grpc_status: GRPC_INTERNAL,
            headers: Vec::new(),
            body: Arc::default(),
            details: "waf_fault".to_owned(),
        }))
    }

    /// Ends the stream, before its access log is written.
    pub(crate) fn end(&mut self, stream: Stream<'_>) {
        // One that the helper has is cancelled: the stream was reset meanwhile.
        if let State::Inspected(inspection) = std::mem::replace(&mut self.state, State::Ignored) {
            self.end_inspection(stream, *inspection);
        }
    }

    fn end_inspection(&self, stream: Stream<'_>, mut inspection: Inspection) {
        let rules = Arc::clone(&inspection.waf.rules);
        with_engine(&rules, |engine| {
            inspection.run_logging(&mut engine.worker);
            self.describe(stream, &inspection);
            engine.recycle(inspection.session.into_transaction());
        });
    }

    /// Counts an inspection, and describes it for the access log.
    fn describe(&self, stream: Stream<'_>, inspection: &Inspection) {
        let (session, counters) = (&inspection.session, &self.config.counters);
        let rules: Vec<String> = inspection.matches().map(|found| found.id.to_string()).collect();
        let action = if session.is_blocked() {
            stream.count(counters.blocked, 1);
            "blocked"
        } else if rules.is_empty() {
            "passed"
        } else {
            stream.count(counters.detected, 1);
            "detected"
        };
        if session.is_partial() || inspection.is_passing {
            stream.count(counters.partial, 1);
        }
        if session.is_over_limit() {
            stream.count(counters.over_limit, 1);
        }
        let engine_us = inspection.engine_time.as_nanos().div_ceil(1000);
        stream.count(counters.engine_us, u64::try_from(engine_us).unwrap_or(u64::MAX));
        stream.describe("action", action);
        stream.describe("id", &inspection.name);
        if let Some(score) = inspection.score() {
            stream.describe_number("score", score);
        }
        if let Some(refusal) = session.refusal() {
            stream.describe("refused", refusal);
        }
        if let Some(rule) = session.transaction().intervention().and_then(|found| found.rule) {
            stream.describe("rule", &rule.to_string());
        }
        if rules.is_empty() {
            return;
        }
        stream.describe("rules", &rules.join(","));
        if let Some(first) = inspection.matches().find(|found| !found.message.is_empty()) {
            stream.describe("message", &String::from_utf8_lossy(&first.message));
        }
        if logs(Level::Debug) {
            for found in inspection.matches() {
                log(Level::Debug, &inspection.line(found));
            }
        }
    }
}

/// The response in place of a blocked message.
fn response(inspection: &Inspection, block: Intervention) -> Response {
    let (details, grpc_status) = match (block.rule, block.status) {
        (Some(rule), _) => (format!("waf_rule_{rule}"), GRPC_PERMISSION_DENIED),
        (None, 400 | 415) => ("waf_limit".to_owned(), GRPC_INVALID_ARGUMENT),
        // Clients repeat what was unavailable.
        (None, 503) => ("waf_limit".to_owned(), GRPC_UNAVAILABLE),
        (None, _) => ("waf_limit".to_owned(), GRPC_RESOURCE_EXHAUSTED),
    };
    let mut headers = Vec::new();
    if let Some(header) = &inspection.waf.transaction_header {
        headers.push((header.clone(), inspection.name.clone()));
    }
    // A rule can name any status, but an interim one ends no transaction.
    let status = if block.status < 200 { 403 } else { block.status };
    let is_target = |target: &String| target.bytes().all(|byte| byte.is_ascii_graphic());
    if let Some(target) = block.redirect.filter(is_target) {
        headers.push(("location".to_owned(), target));
        return Response { status, grpc_status, headers, body: Arc::default(), details };
    }
    let BlockResponse { status, content_type, body } = inspection.waf.block.response(status);
    headers.push(("content-type".to_owned(), content_type));
    Response { status, grpc_status, headers, body, details }
}
