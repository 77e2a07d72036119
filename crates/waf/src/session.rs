//! Sessions: a request and its response as a server handles them, whose bodies arrive in pieces.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::body::content_coding::{ContentCoding, Decoded, decode};
use crate::limits::LimitsReached;
use crate::settings::LimitAction;
use crate::transaction::{Intervention, Transaction, Worker};

#[cfg(test)]
mod tests;

/// A request with its response, whose bodies arrive in pieces: it says what the server may forward and when rules run, decodes
/// content codings, and applies the limits. It opens no socket, reads no clock and waits for nothing.
///
/// For the request and then for the response: give it the line and the headers, end the head, give it the body as it arrives, and
/// end the message. From the end of the head on, each call returns the [`Next`] step.
///
/// ```
/// use std::sync::Arc;
/// use tollgate_waf::{
///     BodyLength, Direction, Next, RuleSet, Session, SessionOptions, Transaction, Worker,
/// };
///
/// let rules = "SecRuleEngine On
///     SecRequestBodyAccess On
///     SecRule ARGS \"@contains attack\" \"id:1,phase:2,deny,status:403\"";
/// let rules = Arc::new(RuleSet::builder().text("example.conf", rules).build()?);
/// let mut worker = Worker::new();
/// let mut session = Session::new(Transaction::new(rules), SessionOptions::default());
/// session.request_line(b"POST", b"/login", b"HTTP/1.1");
/// session.header(Direction::Request, b"Content-Type", b"application/x-www-form-urlencoded");
/// let mut next = session.end_head(Direction::Request, BodyLength::Known(8), &mut worker);
/// for piece in [b"q=at", b"tack"] {
///     assert_eq!(next, Next::Hold);
///     next = session.body(Direction::Request, piece);
/// }
/// if let Next::Hold = next {
///     next = session.end(Direction::Request);
/// }
/// // A server may run rules of long messages on another thread.
/// let Next::Run(_) = next else { panic!("{next:?}") };
/// let Next::Block(block) = session.run(Direction::Request, &mut worker) else { panic!("not blocked") };
/// assert_eq!((block.status, block.rule), (403, Some(1)));
/// # Ok::<(), tollgate_waf::LoadError>(())
/// ```
#[derive(Debug)]
pub struct Session {
    transaction: Box<Transaction>,
    options: SessionOptions,
    /// Of the request and of the response.
    stages: [MessageStage; 2],
    codings: [Option<ContentCoding>; 2],
    /// Bytes of the request's head.
    head_bytes: usize,
    has_run_head: bool,
    held_bytes: usize,
    is_partial: bool,
    refusal: Option<&'static str>,
}

/// Options of a [`Session`] beside those of its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// Requests with a content coding.
    pub request_compression: Compression,
    /// Responses with a content coding.
    pub response_compression: Compression,
    /// Bytes up to which the inspection of a message is short. Names and values of a body may have three times as many.
    pub short_bytes: usize,
}

impl Default for SessionOptions {
    /// Requests with a content coding are blocked, since few servers decode them. Responses are decoded up to a hundred times
    /// their bytes. 4 KiB are short.
    fn default() -> Self {
        Self {
            request_compression: Compression::Reject,
            response_compression: Compression::Inflate { ratio_max: 100 },
            short_bytes: 4 << 10,
        }
    }
}

/// Treatment of bodies with a content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Blocks the message.
    Reject,
    /// Passes the body without inspection.
    Pass,
    /// Inspects the decoded body, not the encoded bytes, which a receiver that does not decode would read. Codings other than gzip
    /// and deflate, and several at once, block the message.
    Inflate {
        /// Decoded bytes for each byte of the body.
        ratio_max: u32,
    },
}

/// Length of a body as the head of its message announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// The message has no body.
    None,
    /// Bytes of the body.
    Known(u64),
    /// The body ends with a last chunk, a frame or its connection.
    Unknown,
}

/// Next step of a server after a call of a [`Session`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Forward this part of the message and what was held.
    Pass,
    /// Forward nothing of the message yet, and give the session more of it.
    Hold,
    /// Forward nothing, and call [`Session::run`].
    Run(Extent),
    /// Send this in place of the message. A limit that is not one of the rules is in [`Session::refusal`].
    Block(Intervention),
}

/// Extent of an inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// At most [`SessionOptions::short_bytes`].
    Short,
    /// More, which may take milliseconds.
    Long,
}

/// Message of a transaction, by the way that it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Response,
}

/// One direction of an inspection.
#[derive(Debug)]
enum MessageStage {
    /// The head is not complete.
    Head,
    /// The body, if there is one, is not inspected. Rules of bodies run at its end.
    WaitForEnd,
    Collect(Collected),
    /// Its rules have run.
    Done,
    Blocked(Intervention),
}

#[derive(Debug, Default)]
struct Collected {
    /// Bytes not yet given to the transaction: encoded ones, or all while the rules of the head have not run.
    bytes: Vec<u8>,
    received: usize,
    extent: BodyExtent,
}

/// Part of a body that a session has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BodyExtent {
    /// More may follow.
    #[default]
    Open,
    Whole,
    /// It is longer than its limit.
    Cut,
}

impl Session {
    /// Starts with an empty transaction, or one whose connection, time and identifier are set.
    pub fn new(transaction: impl Into<Box<Transaction>>, options: SessionOptions) -> Self {
        Self {
            transaction: transaction.into(),
            options,
            stages: [MessageStage::Head, MessageStage::Head],
            codings: [None; 2],
            head_bytes: 0,
            has_run_head: false,
            held_bytes: 0,
            is_partial: false,
            refusal: None,
        }
    }

    /// The transaction, with its matches and limits.
    pub fn transaction(&self) -> &Transaction {
        &self.transaction
    }

    /// Runs no further rule once `flag` is true, as of [`Transaction::cancel_by`].
    pub fn cancel_by(&mut self, flag: Arc<AtomicBool>) {
        self.transaction.cancel_by(flag);
    }

    /// Ends the session. The transaction can be reset for another one.
    pub fn into_transaction(self) -> Box<Transaction> {
        self.transaction
    }

    /// Bytes of memory that the bodies take, and what the transaction made of them.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// True while a body is held.
    pub fn is_collecting(&self) -> bool {
        self.stages.iter().any(|stage| matches!(stage, MessageStage::Collect(_)))
    }

    /// True if a part of a body, or arguments beyond their limit, passed without inspection, or rules did not run.
    pub fn is_partial(&self) -> bool {
        let limits = self.transaction.limits_reached();
        let request = &self.stages[Direction::Request as usize];
        let has_dropped = limits.values > 0 && !matches!(request, MessageStage::Blocked(_));
        let has_skipped = (limits.inspection || limits.cancelled) && !self.is_blocked();
        self.is_partial || has_dropped || has_skipped
    }

    /// True if the request or the response was blocked.
    pub fn is_blocked(&self) -> bool {
        self.stages.iter().any(|stage| matches!(stage, MessageStage::Blocked(_)))
    }

    /// Reason of a block that no rule and no limit of the rules has caused. In detection mode nothing is blocked.
    pub fn refusal(&self) -> Option<&'static str> {
        self.refusal
    }

    /// True if a limit was reached, so that something was blocked or not inspected.
    pub fn is_over_limit(&self) -> bool {
        self.refusal.is_some() || self.transaction.limits_reached() != LimitsReached::default()
    }

    /// Sets the request line, as of [`Transaction::request_line`].
    pub fn request_line(&mut self, method: &[u8], target: &[u8], protocol: &[u8]) {
        self.head_bytes += method.len() + target.len() + protocol.len();
        self.transaction.request_line(method, target, protocol);
    }

    /// Sets the status line, as of [`Transaction::response_line`].
    pub fn response_line(&mut self, protocol: &[u8], status: u16) {
        self.transaction.response_line(protocol, status);
    }

    /// Adds a header.
    pub fn header(&mut self, direction: Direction, name: &[u8], value: &[u8]) {
        if name.eq_ignore_ascii_case(b"content-encoding") {
            let coding = &mut self.codings[direction as usize];
            *coding = ContentCoding::with_header(*coding, value);
        }
        match direction {
            Direction::Request => {
                self.head_bytes += name.len() + value.len();
                self.transaction.request_header(name, value);
            }
            Direction::Response => self.transaction.response_header(name, value),
        }
    }

    /// Ends the head of the request, or of the final response. Runs its rules, unless it is the head of a long request.
    pub fn end_head(
        &mut self,
        direction: Direction,
        body: BodyLength,
        worker: &mut Worker,
    ) -> Next {
        *self.stage(direction) = MessageStage::WaitForEnd;
        let runs_now = match direction {
            Direction::Request => self.head_bytes <= self.options.short_bytes,
            Direction::Response => true,
        };
        if runs_now {
            self.run_head(direction, worker);
            if let Some(block) = self.blocked(direction) {
                return block;
            }
        }
        let inspects_body = match direction {
            Direction::Request => !self.has_run_head || self.transaction.request_body_limit() > 0,
            Direction::Response => self.transaction.inspects_response_body(),
        };
        if body == BodyLength::None && (inspects_body || direction == Direction::Request) {
            return Next::Pass;
        }
        match if inspects_body { self.inspects_coding(direction) } else { Ok(false) } {
            Ok(true) => {}
            Ok(false) => return self.run_without_body(direction, worker),
            Err(block) => return block,
        }
        if let BodyLength::Known(length) = body
            && self.rejects_length(direction, length)
            && let Some(block) = self.refuse(direction, 413, "request body limit")
        {
            return block;
        }
        *self.stage(direction) = MessageStage::Collect(Collected::default());
        Next::Hold
    }

    /// Runs the rules of a head.
    fn run_head(&mut self, direction: Direction, worker: &mut Worker) {
        match direction {
            Direction::Request => {
                self.transaction.process_request_headers(worker);
                self.has_run_head = true;
            }
            Direction::Response => {
                self.transaction.process_response_headers(worker);
            }
        }
    }

    /// Has the rules of a body run without it: those of a response at once, as its head is not sent yet.
    fn run_without_body(&mut self, direction: Direction, worker: &mut Worker) -> Next {
        match direction {
            Direction::Request => self.extent(direction, 0),
            Direction::Response => self.run(direction, worker),
        }
    }

    /// True if a body of this length is refused before it arrives.
    fn rejects_length(&self, direction: Direction, length: u64) -> bool {
        direction == Direction::Request
            && self.has_run_head
            && length > self.transaction.request_body_limit() as u64
            && self.transaction.rules().settings().request_body_limit_action == LimitAction::Reject
    }

    /// True if a body of the message's content coding is inspected, false if it passes.
    fn inspects_coding(&mut self, direction: Direction) -> Result<bool, Next> {
        let Some(coding) = self.codings[direction as usize] else { return Ok(true) };
        let refused = match self.compression(direction) {
            Compression::Pass => None,
            Compression::Inflate { .. } if coding != ContentCoding::Unknown => return Ok(true),
            _ => self.refuse(direction, refusal_status(direction, 415), "content coding"),
        };
        self.is_partial |= refused.is_none();
        refused.map_or(Ok(false), Err)
    }

    fn compression(&self, direction: Direction) -> Compression {
        match direction {
            Direction::Request => self.options.request_compression,
            Direction::Response => self.options.response_compression,
        }
    }

    fn stage(&mut self, direction: Direction) -> &mut MessageStage {
        &mut self.stages[direction as usize]
    }

    /// Takes a piece of a body, without its transfer coding.
    pub fn body(&mut self, direction: Direction, piece: &[u8]) -> Next {
        let limit = self.body_limit(direction);
        let is_given = self.codings[direction as usize].is_none()
            && (direction == Direction::Response || self.has_run_head);
        let collected = match &mut self.stages[direction as usize] {
            MessageStage::Head => return self.before_head(direction),
            MessageStage::WaitForEnd | MessageStage::Done => return Next::Pass,
            MessageStage::Blocked(block) => return Next::Block(block.clone()),
            MessageStage::Collect(collected) => collected,
        };
        collected.received += piece.len();
        let is_cut = collected.received > limit;
        if is_cut {
            collected.extent = BodyExtent::Cut;
        }
        self.held_bytes += piece.len();
        if !is_given {
            collected.bytes.extend_from_slice(piece);
        }
        if is_given {
            self.append(direction, piece);
        }
        if is_cut { self.end(direction) } else { Next::Hold }
    }

    fn body_limit(&self, direction: Direction) -> usize {
        match direction {
            Direction::Response => self.transaction.response_body_limit(),
            Direction::Request if self.has_run_head => self.transaction.request_body_limit(),
            Direction::Request => self.transaction.rules().settings().request_body_limit,
        }
    }

    fn append(&mut self, direction: Direction, piece: &[u8]) {
        match direction {
            Direction::Request => self.transaction.append_request_body(piece),
            Direction::Response => self.transaction.append_response_body(piece),
        }
    }

    /// Ends a message.
    pub fn end(&mut self, direction: Direction) -> Next {
        let received = match &mut self.stages[direction as usize] {
            MessageStage::Head => return self.before_head(direction),
            MessageStage::Done => return Next::Pass,
            MessageStage::Blocked(block) => return Next::Block(block.clone()),
            MessageStage::WaitForEnd => 0,
            MessageStage::Collect(collected) => {
                if collected.extent == BodyExtent::Open {
                    collected.extent = BodyExtent::Whole;
                }
                collected.received
            }
        };
        if received > 0 && self.codings[direction as usize].is_some() {
            return Next::Run(Extent::Long);
        }
        self.extent(direction, received)
    }

    /// The inspection of a message whose body has that many bytes.
    fn extent(&mut self, direction: Direction, received: usize) -> Next {
        let short = self.options.short_bytes;
        let is_short = match direction {
            Direction::Request => {
                self.has_run_head
                    && (received == 0
                        || self.head_bytes + received <= short
                            && self.transaction.prepare_request_body() <= 3 * short)
            }
            Direction::Response => received <= short,
        };
        Next::Run(if is_short { Extent::Short } else { Extent::Long })
    }

    /// Handles a body whose head is not complete: a bug of the server.
    fn before_head(&mut self, direction: Direction) -> Next {
        let block = self.refuse(direction, 500, "body before its head");
        self.is_partial |= block.is_none();
        block.unwrap_or(Next::Pass)
    }

    /// Runs the rules of the request, or of the body of the response. Returns [`Next::Pass`] or [`Next::Block`].
    pub fn run(&mut self, direction: Direction, worker: &mut Worker) -> Next {
        let stage = std::mem::replace(self.stage(direction), MessageStage::Done);
        let is_over = matches!(stage, MessageStage::Done | MessageStage::Blocked(_));
        if direction == Direction::Request && !self.has_run_head && !is_over {
            self.run_head(direction, worker);
        }
        self.finish(stage, direction, worker)
    }

    fn finish(&mut self, stage: MessageStage, direction: Direction, worker: &mut Worker) -> Next {
        let collected = match stage {
            MessageStage::Done => return Next::Pass,
            MessageStage::Blocked(block) => {
                *self.stage(direction) = MessageStage::Blocked(block.clone());
                return Next::Block(block);
            }
            MessageStage::Head | MessageStage::WaitForEnd => None,
            MessageStage::Collect(collected) => Some(collected),
        };
        // A body whose rules run before its end goes on without inspection.
        self.is_partial |=
            collected.as_ref().is_some_and(|collected| collected.extent != BodyExtent::Whole);
        if let Some(collected) = &collected
            && let Some((status, reason)) = self.take_collected(direction, collected)
        {
            match self.refuse(direction, status, reason) {
                Some(block) => return block,
                None => self.is_partial = true,
            }
        }
        match direction {
            Direction::Request => self.transaction.process_request_body(worker),
            Direction::Response => self.transaction.process_response_body(worker),
        };
        if collected.is_some() {
            self.held_bytes = self.held_bytes.max(self.transaction.memory());
        }
        self.blocked(direction).unwrap_or(Next::Pass)
    }

    /// Gives the transaction the bytes of a body that it does not have yet. Returns status and reason if the body cannot be
    /// inspected.
    fn take_collected(
        &mut self,
        direction: Direction,
        body: &Collected,
    ) -> Option<(u16, &'static str)> {
        let refused = self.take_decoded(direction, body);
        // The decoded bytes, and the limit of the transaction, may be below the limit that cut the body.
        if body.extent == BodyExtent::Cut {
            match direction {
                Direction::Request => self.transaction.limit_request_body(),
                Direction::Response => self.transaction.limit_response_body(),
            }
        }
        refused
    }

    fn take_decoded(
        &mut self,
        direction: Direction,
        body: &Collected,
    ) -> Option<(u16, &'static str)> {
        let coding = self.codings[direction as usize];
        let (Some(coding), Compression::Inflate { ratio_max }) =
            (coding, self.compression(direction))
        else {
            self.append(direction, &body.bytes);
            return None;
        };
        // A coding without a body, which some servers send, codes nothing.
        if body.bytes.is_empty() {
            return None;
        }
        if direction == Direction::Response {
            self.transaction.response_body_is_decoded();
        }
        let limit = self.body_limit(direction);
        let append = |piece: &[u8]| self.append(direction, piece);
        let decoded =
            decode(coding, &body.bytes, body.extent != BodyExtent::Whole, limit, ratio_max, append);
        match decoded {
            Ok(Decoded::All) => None,
            Ok(Decoded::Cut) => {
                self.is_partial = true;
                None
            }
            Ok(Decoded::RatioExceeded) => {
                Some((refusal_status(direction, 413), "compression ratio"))
            }
            Err(_) => Some((refusal_status(direction, 400), "invalid content coding")),
        }
    }

    /// Runs the rules of the log, which do not block.
    pub fn run_logging(&mut self, worker: &mut Worker) {
        self.transaction.process_logging(worker);
    }

    /// Handles a server's lack of memory for a message: blocks it, or has the bytes so far inspected.
    pub fn cut(&mut self, direction: Direction) -> Next {
        if let Some(block) = self.refuse(direction, 503, "memory for held bodies") {
            return block;
        }
        self.is_partial = true;
        self.end_truncated(direction)
    }

    /// Ends a message whose body goes on where the server cannot read it. A body that is inspected is treated as one above its
    /// limit, by the setting for these.
    pub fn end_truncated(&mut self, direction: Direction) -> Next {
        if let MessageStage::Collect(body) = self.stage(direction) {
            body.extent = BodyExtent::Cut;
            return Next::Run(Extent::Long);
        }
        self.end(direction)
    }

    /// Blocks a message, or returns `None` if the mode is detection only.
    fn refuse(&mut self, direction: Direction, status: u16, why: &'static str) -> Option<Next> {
        self.refusal = Some(why);
        if !self.transaction.is_blocking() {
            return None;
        }
        Some(
            self.block(direction, Intervention { status, redirect: None, drop: false, rule: None }),
        )
    }

    /// The decision to end the transaction, if rules or their limits have made one.
    fn blocked(&mut self, direction: Direction) -> Option<Next> {
        let block = self.transaction.intervention()?.clone();
        Some(self.block(direction, block))
    }

    fn block(&mut self, direction: Direction, block: Intervention) -> Next {
        *self.stage(direction) = MessageStage::Blocked(block.clone());
        Next::Block(block)
    }
}

/// Status in place of a message that cannot be inspected: `request`, or that of a block for a response.
fn refusal_status(direction: Direction, request: u16) -> u16 {
    match direction {
        Direction::Request => request,
        Direction::Response => 403,
    }
}
