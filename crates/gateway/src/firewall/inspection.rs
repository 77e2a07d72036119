//! The inspection of one request and its response.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate_firewall::{Rules, blocked_phrase, inbound_score};
use tollgate_http1::{BodyFraming, FieldList, Headers, parse_request_head};
use tollgate_waf::{
    BodyLength, Connection, Direction, Intervention, Next, Session, SessionOptions, Transaction,
    Worker,
};

use super::counters::Inspected;
use super::route::Firewall;
use super::verdict::{FirewallVerdict, InspectedResponse, Outcome, RequestContext};
use crate::config::FixedResponse;
use crate::local_response::{LocalResponse, Reason};

/// Bytes of a message that are inspected on the thread of its client. The most expensive text costs 0.4 ms per kilobyte, so
/// that other clients wait for at most 2 ms.
const INLINE_BYTES_MAX: usize = 4 << 10;

/// Identifier of a transaction in logs and headers.
#[derive(Clone, Debug)]
pub(super) enum TransactionName {
    /// Time in seconds, and a number that is unique among threads.
    Numbered { seconds: u64, number: (u32, u32) },
    /// Chosen by a proxy.
    Given(Box<str>),
}

impl fmt::Display for TransactionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbered { seconds, number } => {
                write!(f, "{seconds:08x}{:08x}{:08x}", number.0, number.1)
            }
            Self::Given(name) => f.write_str(name),
        }
    }
}

/// A request head for the audit log and alerts.
#[derive(Debug)]
pub(super) struct KeptHead {
    pub(super) protocol: String,
    pub(super) bytes: Vec<u8>,
    /// The bytes are a [`FieldList`](tollgate_http1::FieldList), otherwise text.
    pub(super) is_list: bool,
}

impl KeptHead {
    /// Method, target and headers.
    pub(super) fn parts(&self) -> Option<(&[u8], &[u8], Headers<'_>)> {
        if self.is_list {
            let mut fields = FieldList::new(&self.bytes);
            let (method, target) = (fields.next_field()?.value, fields.next_field()?.value);
            return Some((method, target, Headers::of_fields(fields)));
        }
        let head = parse_request_head(&self.bytes).ok()??;
        Some((head.method.as_bytes(), head.target.as_bytes(), head.headers))
    }
}

#[derive(Debug)]
pub(super) struct Inspection {
    pub(super) firewall: Arc<Firewall>,
    pub(super) session: Session,
    pub(super) name: TransactionName,
    pub(super) client: Option<IpAddr>,
    /// For the audit log and alerts, `None` without them.
    pub(super) head: Option<KeptHead>,
    /// Held bytes when the thread counted them the last time.
    pub(super) counted_bytes: usize,
    /// Bytes of bodies that wait for a verdict, of which the transaction has a copy to forward.
    waiting_bytes: usize,
    pub(super) engine_time: Duration,
}

impl Inspection {
    /// Begins with a request head. `number` is unique among transactions.
    pub(super) fn begin(
        firewall: &Arc<Firewall>,
        mut transaction: Box<Transaction>,
        worker: &mut Worker,
        request: &RequestContext<'_>,
        number: (u32, u32),
    ) -> (Self, Next) {
        let head = request.head;
        let seconds =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let name = match request.name {
            b"" => TransactionName::Numbered { seconds, number },
            name => TransactionName::Given(String::from_utf8_lossy(name).into()),
        };
        let client = request.client.map_or_else(String::new, |ip| ip.to_string());
        let (server, port) = request.server.rsplit_once(':').unwrap_or((request.server, ""));
        transaction.engine_mode(firewall.waf.mode);
        transaction.record_details(firewall.audit.is_some());
        transaction.connection(&Connection {
            client: &client,
            client_port: request.client_port,
            server,
            server_port: port.parse().unwrap_or(0),
        });
        transaction.unique_id(&name);
        transaction.time(seconds);
        let options = SessionOptions {
            request_compression: firewall.waf.request_compression,
            response_compression: firewall.waf.response_compression,
            short_bytes: INLINE_BYTES_MAX,
        };
        let mut session = Session::new(transaction, options);
        session.request_line(head.method, head.target, head.protocol.as_bytes());
        for (name, value) in head.headers.iter() {
            session.header(Direction::Request, name.as_bytes(), value);
        }
        let mut inspection = Self {
            session,
            name,
            client: request.client,
            head: (firewall.audit.is_some() || firewall.alerts.is_some()).then(|| KeptHead {
                protocol: head.protocol.to_owned(),
                bytes: head.bytes.to_vec(),
                is_list: head.is_list,
            }),
            firewall: Arc::clone(firewall),
            counted_bytes: 0,
            waiting_bytes: 0,
            engine_time: Duration::ZERO,
        };
        let length = body_length(head.body);
        let next = inspection.timed(|session| session.end_head(Direction::Request, length, worker));
        (inspection, next)
    }

    pub(super) fn rules(&self) -> &Arc<Rules> {
        &self.firewall.waf.rules
    }

    /// Runs a step of the session, and counts its time.
    fn timed<T>(&mut self, run: impl FnOnce(&mut Session) -> T) -> T {
        let start = Instant::now();
        let result = run(&mut self.session);
        self.engine_time += start.elapsed();
        result
    }

    /// Takes a piece of a body. An empty one is its end.
    pub(super) fn body(&mut self, direction: Direction, piece: &[u8]) -> Next {
        let next = match piece {
            b"" => self.session.end(direction),
            _ => self.session.body(direction, piece),
        };
        self.note_waiting(&next, piece.len());
        next
    }

    /// Notes a piece of a body that waits, or that those before it do not wait any more.
    fn note_waiting(&mut self, next: &Next, piece_bytes: usize) {
        match next {
            Next::Hold | Next::Run(_) => self.waiting_bytes += piece_bytes,
            Next::Pass | Next::Block(_) => self.waiting_bytes = 0,
        }
    }

    /// Bytes of memory that bodies take: as received, to be forwarded, and as values.
    pub(super) fn held_bytes(&self) -> usize {
        self.session.held_bytes() + self.waiting_bytes
    }

    /// Takes the head of the final response.
    pub(super) fn response_head(
        &mut self,
        head: &InspectedResponse<'_>,
        worker: &mut Worker,
    ) -> Next {
        self.session.response_line(head.protocol.as_bytes(), head.status);
        for (name, value) in head.headers.iter() {
            self.session.header(Direction::Response, name.as_bytes(), value);
        }
        let length = body_length(head.body);
        self.timed(|session| session.end_head(Direction::Response, length, worker))
    }

    /// Runs the rules of a request or of the body of a response.
    pub(super) fn run(&mut self, direction: Direction, worker: &mut Worker) -> Next {
        let next = self.timed(|session| session.run(direction, worker));
        self.note_waiting(&next, 0);
        next
    }

    /// Runs the rules of the log, which do not block.
    pub(super) fn run_logging(&mut self, worker: &mut Worker) {
        self.timed(|session| session.run_logging(worker));
    }

    /// The response to the client in place of a blocked message.
    pub(super) fn block(&self, block: Intervention) -> FirewallVerdict {
        let reason =
            if self.session.refusal().is_some() { Reason::WafLimit } else { Reason::WafRule };
        let mut response = self.response_to_client(block.status, block.redirect).because(reason);
        if block.drop {
            response.close();
        }
        FirewallVerdict::Respond(Box::new(response))
    }

    fn response_to_client(&self, status: u16, redirect: Option<String>) -> LocalResponse {
        let waf = &self.firewall.waf;
        // A rule can name any status, but an interim one ends no transaction.
        let status = if status < 200 { 403 } else { status };
        let mut headers = Vec::new();
        if let Some(name) = &waf.transaction_header {
            headers.push((name.clone(), self.name.to_string()));
        }
        if let Some(target) =
            redirect.filter(|target| target.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            headers.push(("Location".to_owned(), target));
            if !waf.block.is_fixed {
                return LocalResponse::new(status, blocked_phrase(status), headers, Arc::default());
            }
        }
        let fixed = FixedResponse::to_blocked(&waf.block, status);
        headers.extend(fixed.headers);
        LocalResponse::new(fixed.status, blocked_phrase(fixed.status), headers, fixed.body)
    }

    /// Score of the rules that can block, of CRS 4 or 3.
    pub(super) fn score(&self) -> Option<i64> {
        inbound_score(self.session.transaction())
    }

    /// True if a rule matched that is to be logged.
    pub(super) fn has_matched(&self) -> bool {
        self.session.transaction().matches().iter().any(|found| found.logged)
    }

    /// True if the transaction belongs in the audit log.
    pub(super) fn is_relevant(&self, outcome: &Outcome) -> bool {
        self.session.is_blocked()
            || self.session.is_over_limit()
            || self.session.transaction().is_audit_relevant(outcome.status.unwrap_or(0))
    }

    pub(super) fn count(&self, thread: usize) {
        let transaction = self.session.transaction();
        let inspected = Inspected {
            is_blocked: self.session.is_blocked(),
            has_matched: self.has_matched(),
            is_partial: self.session.is_partial(),
            is_over_limit: self.session.is_over_limit(),
            limits: transaction.limits_reached(),
            engine_time: self.engine_time,
            score: self.score(),
            matches: transaction.matches(),
        };
        self.firewall.counters.count(thread, &inspected);
    }
}

fn body_length(framing: BodyFraming) -> BodyLength {
    match framing {
        BodyFraming::Empty => BodyLength::None,
        BodyFraming::Length(length) => BodyLength::Known(length),
        BodyFraming::Chunked | BodyFraming::UntilClose => BodyLength::Unknown,
    }
}
