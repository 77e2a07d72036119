//! The inspection of one request and its response.

use std::fmt;
use std::io::Read as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use tollgate_http1::{BodyFraming, Headers, ResponseHead, Version};
use tollgate_waf::{Connection, LimitAction, Transaction, Worker};

use super::counters::Inspected;
use super::route::Firewall;
use super::rules::Rules;
use super::verdict::{Direction, Outcome, RequestContext, Verdict};
use crate::config::Compression;
use crate::local_response::{LocalResponse, Reason};

/// Bytes of a message that are inspected on the thread of its client. The most expensive text costs 0.4 ms per kilobyte, so
/// that other clients wait for at most 2 ms.
const INLINE_BYTES_MAX: usize = 4 << 10;
/// The same for the names and values of a body, which can be far longer than it.
const INLINE_WORK_MAX: usize = 3 * INLINE_BYTES_MAX;
/// Below this size a compressed body is never rejected for its ratio.
const RATIO_FREE_BYTES: usize = 16 << 10;

/// Continuation of an inspection.
#[derive(Debug)]
pub(super) enum Next {
    Verdict(Verdict),
    /// Run [`Inspection::run`] at once.
    Run,
    /// Run [`Inspection::run`] on the helper.
    Lend,
}

impl From<Verdict> for Next {
    fn from(verdict: Verdict) -> Self {
        Self::Verdict(verdict)
    }
}

/// One direction of an inspection.
#[derive(Debug)]
enum Stage {
    /// The body, if there is one, is not inspected. Rules of bodies run at its end.
    WaitForEnd,
    Collect(Collected),
    /// Its rules have run, or it is blocked.
    Done,
}

#[derive(Debug, Default)]
struct Collected {
    coding: Option<Coding>,
    /// Bytes not yet given to the engine: compressed ones, or all while the rules of the head have not run.
    bytes: Vec<u8>,
    received: usize,
    /// The body is longer than its limit.
    is_cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Gzip,
    Deflate,
    Unknown,
}

/// Identifier of a transaction in logs and headers: time in seconds, and a number that is unique among threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransactionName {
    seconds: u64,
    number: (u32, u32),
}

impl fmt::Display for TransactionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}{:08x}{:08x}", self.seconds, self.number.0, self.number.1)
    }
}

#[derive(Debug)]
pub(super) struct Inspection {
    pub(super) firewall: Arc<Firewall>,
    pub(super) transaction: Box<Transaction>,
    pub(super) name: TransactionName,
    pub(super) client: Option<IpAddr>,
    /// Request line and headers as received, for the audit log.
    pub(super) head: Vec<u8>,
    pub(super) version: Version,
    head_bytes: usize,
    has_run_head: bool,
    request: Stage,
    response: Stage,
    /// Bytes of bodies, and what the engine made of them.
    pub(super) held_bytes: usize,
    /// The part of them that the thread has counted.
    pub(super) counted_bytes: usize,
    pub(super) engine_time: Duration,
    /// Part of a body passed without inspection.
    pub(super) is_partial: bool,
    /// Reason for a rejection that no rule caused.
    pub(super) refusal: Option<&'static str>,
    pub(super) is_blocked: bool,
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
        let name = TransactionName { seconds, number };
        let client = request.client.map_or_else(String::new, |ip| ip.to_string());
        let (server, port) = request.server.rsplit_once(':').unwrap_or((request.server, ""));
        transaction.engine_mode(firewall.waf.mode);
        transaction.record_details(firewall.audit.is_some());
        transaction.connection(&Connection {
            client: &client,
            client_port: 0,
            server,
            server_port: port.parse().unwrap_or(0),
        });
        transaction.unique_id(&name);
        transaction.time(seconds);
        transaction.request_line(
            head.method.as_bytes(),
            head.target.as_bytes(),
            protocol(head.version),
        );
        for (name, value) in head.headers.iter() {
            transaction.request_header(name.as_bytes(), value);
        }
        let mut inspection = Self {
            transaction,
            name,
            client: request.client,
            head: if firewall.audit.is_some() { request.bytes.to_vec() } else { Vec::new() },
            firewall: Arc::clone(firewall),
            version: head.version,
            head_bytes: head.len,
            has_run_head: false,
            request: Stage::WaitForEnd,
            response: Stage::WaitForEnd,
            held_bytes: 0,
            counted_bytes: 0,
            engine_time: Duration::ZERO,
            is_partial: false,
            refusal: None,
            is_blocked: false,
        };
        if head.len <= INLINE_BYTES_MAX {
            inspection.run_head(worker);
            if let Some(response) = inspection.blocked() {
                inspection.request = Stage::Done;
                return (inspection, response.into());
            }
        }
        let next = inspection.expect_body(head.body, head.headers);
        (inspection, next)
    }

    pub(super) fn rules(&self) -> &Arc<Rules> {
        &self.firewall.waf.rules
    }

    pub(super) fn is_collecting(&self) -> bool {
        matches!(self.request, Stage::Collect(_)) || matches!(self.response, Stage::Collect(_))
    }

    /// Decides how the body of the request is inspected.
    fn expect_body(&mut self, framing: BodyFraming, headers: Headers<'_>) -> Next {
        if framing == BodyFraming::Empty {
            return Verdict::Pass.into();
        }
        let limit = self.transaction.request_body_limit();
        let coding = coding(headers);
        let is_uninspected = self.has_run_head && limit == 0
            || coding.is_some() && self.firewall.waf.request_compression == Compression::Pass;
        if is_uninspected {
            self.is_partial |= limit > 0;
            return self.run_or_lend(self.head_bytes);
        }
        let is_refused = self.firewall.waf.request_compression == Compression::Reject
            || coding == Some(Coding::Unknown);
        if coding.is_some() && is_refused {
            return match self.refuse(Direction::Request, 415, "content coding") {
                Some(verdict) => verdict.into(),
                None => {
                    self.is_partial = true;
                    self.run_or_lend(self.head_bytes)
                }
            };
        }
        if let BodyFraming::Length(length) = framing
            && self.has_run_head
            && length > limit as u64
            && self.rejects_long_requests()
            && let Some(verdict) = self.refuse(Direction::Request, 413, "request body limit")
        {
            return verdict.into();
        }
        self.request = Stage::Collect(Collected { coding, ..Collected::default() });
        Verdict::Hold.into()
    }

    fn rejects_long_requests(&self) -> bool {
        self.rules().set.settings().request_body_limit_action == LimitAction::Reject
    }

    /// Takes a piece of the request body. An empty one is its end.
    pub(super) fn request_body(&mut self, piece: &[u8]) -> Next {
        let limit = if self.has_run_head {
            self.transaction.request_body_limit()
        } else {
            self.rules().set.settings().request_body_limit
        };
        let body = match &mut self.request {
            Stage::Done => return Verdict::Pass.into(),
            // The rules of an uninspected body have run.
            Stage::WaitForEnd if !piece.is_empty() => return Verdict::Pass.into(),
            Stage::WaitForEnd => return self.run_or_lend(self.head_bytes),
            Stage::Collect(body) => body,
        };
        body.received += piece.len();
        body.is_cut = body.received > limit;
        self.held_bytes += piece.len();
        if self.has_run_head && body.coding.is_none() {
            self.transaction.append_request_body(piece);
        } else {
            body.bytes.extend_from_slice(piece);
        }
        if !piece.is_empty() && !body.is_cut {
            return Verdict::Hold.into();
        }
        self.is_partial |= body.is_cut;
        let bytes = body.received;
        if body.coding.is_some() {
            return Next::Lend;
        }
        self.run_or_lend(self.head_bytes + bytes)
    }

    fn run_or_lend(&mut self, bytes: usize) -> Next {
        let is_short = if self.has_run_head && bytes > self.head_bytes {
            bytes <= INLINE_BYTES_MAX && self.transaction.prepare_request_body() <= INLINE_WORK_MAX
        } else {
            self.has_run_head || bytes <= INLINE_BYTES_MAX
        };
        if is_short { Next::Run } else { Next::Lend }
    }

    /// Takes the head of the final response.
    pub(super) fn response_head(&mut self, head: &ResponseHead<'_>, worker: &mut Worker) -> Next {
        self.transaction.response_line(protocol(head.version), head.status);
        for (name, value) in head.headers.iter() {
            self.transaction.response_header(name.as_bytes(), value);
        }
        let start = Instant::now();
        self.transaction.process_response_headers(worker);
        self.engine_time += start.elapsed();
        if let Some(verdict) = self.blocked() {
            self.response = Stage::Done;
            return verdict.into();
        }
        if !self.transaction.inspects_response_body() {
            return self.run_without_body(worker);
        }
        if head.body == BodyFraming::Empty {
            return Verdict::Pass.into();
        }
        let coding = coding(head.headers);
        let compression = self.firewall.waf.response_compression;
        if coding.is_some() && compression == Compression::Pass {
            self.is_partial = true;
            return self.run_without_body(worker);
        }
        let is_refused = compression == Compression::Reject || coding == Some(Coding::Unknown);
        if coding.is_some() && is_refused {
            self.is_partial = true;
            let verdict = self.refuse(Direction::Response, 403, "content coding");
            self.response = Stage::Done;
            return verdict.unwrap_or(Verdict::Pass).into();
        }
        self.response = Stage::Collect(Collected { coding, ..Collected::default() });
        Verdict::Hold.into()
    }

    /// Runs the rules of response bodies when none is inspected.
    fn run_without_body(&mut self, worker: &mut Worker) -> Next {
        self.response = Stage::Done;
        let start = Instant::now();
        self.transaction.process_response_body(worker);
        self.engine_time += start.elapsed();
        self.blocked().unwrap_or(Verdict::Pass).into()
    }

    /// Takes a piece of the response body. An empty one is its end.
    pub(super) fn response_body(&mut self, piece: &[u8]) -> Next {
        let limit = self.transaction.response_body_limit();
        let body = match &mut self.response {
            Stage::WaitForEnd if piece.is_empty() => return Next::Run,
            Stage::WaitForEnd | Stage::Done => return Verdict::Pass.into(),
            Stage::Collect(body) => body,
        };
        body.received += piece.len();
        body.is_cut = body.received > limit;
        self.held_bytes += piece.len();
        if body.coding.is_none() {
            self.transaction.append_response_body(piece);
        } else {
            body.bytes.extend_from_slice(piece);
        }
        if !piece.is_empty() && !body.is_cut {
            return Verdict::Hold.into();
        }
        self.is_partial |= body.is_cut;
        if body.coding.is_some() || body.received > INLINE_BYTES_MAX {
            Next::Lend
        } else {
            Next::Run
        }
    }

    /// Runs the rules of a request or of the body of a response.
    pub(super) fn run(&mut self, direction: Direction, worker: &mut Worker) -> Verdict {
        let stage = match direction {
            Direction::Request => &mut self.request,
            Direction::Response => &mut self.response,
        };
        let collected = match std::mem::replace(stage, Stage::Done) {
            Stage::Done => return Verdict::Pass,
            Stage::WaitForEnd => None,
            Stage::Collect(collected) => Some(collected),
        };
        if direction == Direction::Request && !self.has_run_head {
            self.run_head(worker);
        }
        let start = Instant::now();
        let has_body = collected.is_some();
        let refusal = collected.and_then(|body| self.take_collected(direction, &body));
        if let Some((status, reason)) = refusal
            && let Some(verdict) = self.refuse(direction, status, reason)
        {
            return verdict;
        }
        match direction {
            Direction::Request => self.transaction.process_request_body(worker),
            Direction::Response => self.transaction.process_response_body(worker),
        };
        self.engine_time += start.elapsed();
        if has_body {
            self.held_bytes = self.held_bytes.max(self.transaction.memory());
        }
        self.blocked().unwrap_or(Verdict::Pass)
    }

    /// Runs the rules of the log, which do not block.
    pub(super) fn run_logging(&mut self, worker: &mut Worker) {
        let start = Instant::now();
        self.transaction.process_logging(worker);
        self.engine_time += start.elapsed();
    }

    fn run_head(&mut self, worker: &mut Worker) {
        let start = Instant::now();
        self.transaction.process_request_headers(worker);
        self.engine_time += start.elapsed();
        self.has_run_head = true;
    }

    /// Gives the engine the bytes of a body that it does not have yet. Returns status and reason if the body cannot be
    /// inspected.
    fn take_collected(
        &mut self,
        direction: Direction,
        body: &Collected,
    ) -> Option<(u16, &'static str)> {
        let transaction = &mut self.transaction;
        let (limit, compression) = match direction {
            Direction::Request => {
                (transaction.request_body_limit(), self.firewall.waf.request_compression)
            }
            Direction::Response => {
                (transaction.response_body_limit(), self.firewall.waf.response_compression)
            }
        };
        let (Some(coding), Compression::Inflate { ratio_max }) = (body.coding, compression) else {
            match direction {
                Direction::Request => transaction.append_request_body(&body.bytes),
                Direction::Response => transaction.append_response_body(&body.bytes),
            }
            return None;
        };
        if direction == Direction::Response {
            transaction.response_body_is_decoded();
        }
        let append = |piece: &[u8]| match direction {
            Direction::Request => transaction.append_request_body(piece),
            Direction::Response => transaction.append_response_body(piece),
        };
        let refused = |request: u16| if direction == Direction::Request { request } else { 403 };
        match inflate(coding, body, limit, ratio_max, append) {
            Ok(Inflated::All) => None,
            Ok(Inflated::Cut) => {
                self.is_partial = true;
                None
            }
            Ok(Inflated::RatioExceeded) => Some((refused(413), "compression ratio")),
            Err(_) => Some((refused(400), "invalid content coding")),
        }
    }

    /// Blocks a message, or returns `None` if the mode is detection only.
    fn refuse(&mut self, direction: Direction, status: u16, why: &'static str) -> Option<Verdict> {
        self.refusal = Some(why);
        if !self.transaction.is_blocking() {
            return None;
        }
        *(match direction {
            Direction::Request => &mut self.request,
            Direction::Response => &mut self.response,
        }) = Stage::Done;
        self.is_blocked = true;
        let response = self.response_to_client(status, None).because(Reason::WafLimit);
        Some(Verdict::Respond(Box::new(response)))
    }

    /// Handles the memory limit of inspections: blocks, or inspects the bytes so far.
    pub(super) fn exceed_memory(&mut self, direction: Direction) -> Next {
        let verdict = self.refuse(direction, 503, "memory for held bodies");
        if let Some(verdict) = verdict {
            return verdict.into();
        }
        self.is_partial = true;
        if let Stage::Collect(body) = match direction {
            Direction::Request => &mut self.request,
            Direction::Response => &mut self.response,
        } {
            body.is_cut = true;
        }
        Next::Lend
    }

    /// The response to the client if a rule or a limit of the engine has blocked the transaction.
    fn blocked(&mut self) -> Option<Verdict> {
        let intervention = self.transaction.intervention()?;
        let (status, redirect, drop) =
            (intervention.status, intervention.redirect.clone(), intervention.drop);
        self.is_blocked = true;
        let mut response = self.response_to_client(status, redirect).because(Reason::WafRule);
        if drop {
            response.close();
        }
        Some(Verdict::Respond(Box::new(response)))
    }

    fn response_to_client(&self, status: u16, redirect: Option<String>) -> LocalResponse {
        let waf = &self.firewall.waf;
        // A rule can name any status, but an interim one ends no transaction.
        let status = if status < 200 { 403 } else { status };
        let mut headers = Vec::new();
        if let Some(name) = &waf.transaction_header {
            headers.push((name.clone(), self.name.to_string()));
        }
        if let Some(target) = redirect.filter(|it| it.bytes().all(|byte| byte.is_ascii_graphic())) {
            headers.push(("Location".to_owned(), target));
            return LocalResponse::new(status, reason(status), headers, Vec::new());
        }
        let status = waf.block.status.unwrap_or(status);
        let kind = if waf.block.is_html { "text/html" } else { "text/plain" };
        headers.push(("Content-Type".to_owned(), format!("{kind}; charset=utf-8")));
        let page = match &waf.block.page {
            Some(page) => page.to_vec(),
            None => format!("{}\n", reason(status)).into_bytes(),
        };
        LocalResponse::new(status, reason(status), headers, page)
    }

    /// Score of the rules that can block, of CRS 4 or 3.
    pub(super) fn score(&self) -> Option<i64> {
        let text = self
            .transaction
            .tx("blocking_inbound_anomaly_score")
            .or_else(|| self.transaction.tx("anomaly_score"))?;
        std::str::from_utf8(&text).ok()?.parse().ok()
    }

    /// True if a rule matched that is to be logged.
    pub(super) fn has_matched(&self) -> bool {
        self.transaction.matches().iter().any(|found| found.logged)
    }

    /// True if the transaction belongs in the audit log.
    pub(super) fn is_relevant(&self, outcome: &Outcome) -> bool {
        self.is_blocked
            || self.is_over_limit()
            || self.transaction.is_audit_relevant(outcome.status.unwrap_or(0))
    }

    /// True if a limit was reached, so that something was blocked or not inspected.
    pub(super) fn is_over_limit(&self) -> bool {
        let limits = self.transaction.limits_reached();
        self.refusal.is_some() || limits != tollgate_waf::LimitsReached::default()
    }

    pub(super) fn count(&self, thread: usize) {
        let inspected = Inspected {
            is_blocked: self.is_blocked,
            has_matched: self.has_matched(),
            is_partial: self.is_partial,
            is_over_limit: self.is_over_limit(),
            limits: self.transaction.limits_reached(),
            engine_time: self.engine_time,
            score: self.score(),
            matches: self.transaction.matches(),
        };
        self.firewall.counters.count(thread, &inspected);
    }
}

fn protocol(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"HTTP/1.0",
        Version::Http11 => b"HTTP/1.1",
        Version::Http2 => b"HTTP/2.0",
    }
}

/// Returns the content coding of a body. `None`: no coding.
fn coding(headers: Headers<'_>) -> Option<Coding> {
    let mut codings = headers
        .all("content-encoding")
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"));
    let first = codings.next()?;
    if codings.next().is_some() {
        return Some(Coding::Unknown);
    }
    Some(match first.to_ascii_lowercase().as_slice() {
        b"gzip" | b"x-gzip" => Coding::Gzip,
        b"deflate" => Coding::Deflate,
        _ => Coding::Unknown,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inflated {
    All,
    /// Beyond the limit.
    Cut,
    RatioExceeded,
}

/// Inflates a body. Stops after `limit`, so that the engine detects that the limit was reached.
fn inflate(
    coding: Coding,
    body: &Collected,
    limit: usize,
    ratio_max: u32,
    mut append: impl FnMut(&[u8]),
) -> std::io::Result<Inflated> {
    let compressed = body.bytes.as_slice();
    let mut decoder: Box<dyn std::io::Read> = match coding {
        Coding::Gzip => Box::new(MultiGzDecoder::new(compressed)),
        Coding::Deflate | Coding::Unknown => Box::new(ZlibDecoder::new(compressed)),
    };
    let allowed = compressed.len().saturating_mul(ratio_max as usize).max(RATIO_FREE_BYTES);
    let mut total = 0;
    let mut piece = [0; 8 << 10];
    loop {
        let count = match decoder.read(&mut piece) {
            Ok(count) => count,
            // A truncated body lacks its end.
            Err(_) if body.is_cut => return Ok(Inflated::Cut),
            Err(error) => return Err(error),
        };
        if count == 0 {
            return Ok(Inflated::All);
        }
        total += count;
        if total > allowed {
            return Ok(Inflated::RatioExceeded);
        }
        append(&piece[..count]);
        if total > limit {
            return Ok(Inflated::Cut);
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        418 => "I'm a teapot",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        300..=399 => "Redirect",
        _ => "Blocked",
    }
}
