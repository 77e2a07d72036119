//! Sessions: a request and its response as a server handles them, whose bodies arrive in pieces.

use crate::body::content_coding::{ContentCoding, Decoded, decode};
use crate::limits::LimitsReached;
use crate::settings::LimitAction;
use crate::transaction::{Intervention, Transaction, Worker};

#[cfg(test)]
mod tests;

/// A request with its response, whose bodies arrive in pieces: it says what the server may forward and when rules run, decodes
/// content codings, and applies the limits. It opens no socket, reads no clock and waits for nothing.
///
/// For the request and then for the response: give it the head, line and headers first; then the body as it arrives; then its end.
/// Each call returns the [`Next`] step.
///
/// ```
/// use std::sync::Arc;
/// use tollgate_waf::{BodyLength, Next, RuleSet, Session, SessionOptions, Transaction, Worker};
///
/// let rules = "SecRuleEngine On
///     SecRequestBodyAccess On
///     SecRule ARGS \"@contains attack\" \"id:1,phase:2,deny,status:403\"";
/// let rules = Arc::new(RuleSet::builder().text("example.conf", rules).build()?);
/// let mut worker = Worker::new();
/// let mut session = Session::new(Transaction::new(rules), SessionOptions::default());
/// session.request_line(b"POST", b"/login", b"HTTP/1.1");
/// session.request_header(b"Content-Type", b"application/x-www-form-urlencoded");
/// let mut next = session.request_head(BodyLength::Known(8), &mut worker);
/// for piece in [b"q=at", b"tack"] {
///     assert_eq!(next, Next::Hold);
///     next = session.request_body(piece);
/// }
/// if let Next::Hold = next {
///     next = session.request_end();
/// }
/// // A server may run rules of long messages on another thread.
/// let Next::Run(_) = next else { panic!("{next:?}") };
/// let Next::Block(block) = session.run_request(&mut worker) else { panic!("not blocked") };
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
    /// Forward nothing, and call [`Session::run_request`] or [`Session::run_response`].
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Request,
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

    /// True if a part of a body passed without inspection.
    pub fn is_partial(&self) -> bool {
        self.is_partial
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

    /// Adds a header of the request.
    pub fn request_header(&mut self, name: &[u8], value: &[u8]) {
        self.head_bytes += name.len() + value.len();
        self.note_coding(Direction::Request, name, value);
        self.transaction.request_header(name, value);
    }

    fn note_coding(&mut self, direction: Direction, name: &[u8], value: &[u8]) {
        if name.eq_ignore_ascii_case(b"content-encoding") {
            let coding = &mut self.codings[direction as usize];
            *coding = ContentCoding::with_header(*coding, value);
        }
    }

    /// Ends the head of the request. Runs its rules, unless it is long.
    pub fn request_head(&mut self, body: BodyLength, worker: &mut Worker) -> Next {
        const DIRECTION: Direction = Direction::Request;
        *self.stage(DIRECTION) = MessageStage::WaitForEnd;
        if self.head_bytes <= self.options.short_bytes {
            self.run_head(worker);
            if let Some(block) = self.blocked(DIRECTION) {
                return block;
            }
        }
        if body == BodyLength::None {
            return Next::Pass;
        }
        let limit = self.transaction.request_body_limit();
        if self.has_run_head && limit == 0 {
            return self.run(0);
        }
        match self.inspects_coding(DIRECTION, 415) {
            Ok(true) => {}
            Ok(false) => return self.run(0),
            Err(block) => return block,
        }
        let rejects =
            self.transaction.rules().settings().request_body_limit_action == LimitAction::Reject;
        if let BodyLength::Known(length) = body
            && self.has_run_head
            && length > limit as u64
            && rejects
            && let Some(block) = self.refuse(DIRECTION, 413, "request body limit")
        {
            return block;
        }
        *self.stage(DIRECTION) = MessageStage::Collect(Collected::default());
        Next::Hold
    }

    /// True if a body of the message's content coding is inspected, false if it passes.
    fn inspects_coding(&mut self, direction: Direction, status: u16) -> Result<bool, Next> {
        let Some(coding) = self.codings[direction as usize] else { return Ok(true) };
        let refused = match self.compression(direction) {
            Compression::Pass => None,
            Compression::Inflate { .. } if coding != ContentCoding::Unknown => return Ok(true),
            _ => self.refuse(direction, status, "content coding"),
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

    /// Runs the rules of the request's head.
    fn run_head(&mut self, worker: &mut Worker) {
        self.transaction.process_request_headers(worker);
        self.has_run_head = true;
    }

    /// Takes a piece of the request's body, without its transfer coding.
    pub fn request_body(&mut self, piece: &[u8]) -> Next {
        self.body(Direction::Request, piece)
    }

    /// Ends the request.
    pub fn request_end(&mut self) -> Next {
        self.end(Direction::Request)
    }

    /// Sets the status line, as of [`Transaction::response_line`].
    pub fn response_line(&mut self, protocol: &[u8], status: u16) {
        self.transaction.response_line(protocol, status);
    }

    /// Adds a header of the response.
    pub fn response_header(&mut self, name: &[u8], value: &[u8]) {
        self.note_coding(Direction::Response, name, value);
        self.transaction.response_header(name, value);
    }

    /// Ends the head of the final response, and runs its rules.
    pub fn response_head(&mut self, body: BodyLength, worker: &mut Worker) -> Next {
        const DIRECTION: Direction = Direction::Response;
        *self.stage(DIRECTION) = MessageStage::WaitForEnd;
        self.transaction.process_response_headers(worker);
        if let Some(block) = self.blocked(DIRECTION) {
            return block;
        }
        if !self.transaction.inspects_response_body() {
            return self.run_response(worker);
        }
        if body == BodyLength::None {
            return Next::Pass;
        }
        match self.inspects_coding(DIRECTION, 403) {
            Ok(true) => {}
            Ok(false) => return self.run_response(worker),
            Err(block) => return block,
        }
        *self.stage(DIRECTION) = MessageStage::Collect(Collected::default());
        Next::Hold
    }

    /// Takes a piece of the response's body, without its transfer coding.
    pub fn response_body(&mut self, piece: &[u8]) -> Next {
        self.body(Direction::Response, piece)
    }

    /// Ends the response.
    pub fn response_end(&mut self) -> Next {
        self.end(Direction::Response)
    }

    fn stage(&mut self, direction: Direction) -> &mut MessageStage {
        &mut self.stages[direction as usize]
    }

    fn body(&mut self, direction: Direction, piece: &[u8]) -> Next {
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

    fn end(&mut self, direction: Direction) -> Next {
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
        match direction {
            Direction::Request => self.run(received),
            Direction::Response if received > self.options.short_bytes => Next::Run(Extent::Long),
            Direction::Response => Next::Run(Extent::Short),
        }
    }

    /// Runs the rules of the request, whose body has that many bytes.
    fn run(&mut self, received: usize) -> Next {
        let short = self.options.short_bytes;
        let is_short = self.has_run_head
            && (received == 0
                || self.head_bytes + received <= short
                    && self.transaction.prepare_request_body() <= 3 * short);
        Next::Run(if is_short { Extent::Short } else { Extent::Long })
    }

    /// Handles a body whose head is not complete: a bug of the server.
    fn before_head(&mut self, direction: Direction) -> Next {
        let block = self.refuse(direction, 500, "body before its head");
        self.is_partial |= block.is_none();
        block.unwrap_or(Next::Pass)
    }

    /// Runs the rules of the request. Returns [`Next::Pass`] or [`Next::Block`].
    pub fn run_request(&mut self, worker: &mut Worker) -> Next {
        let stage = std::mem::replace(self.stage(Direction::Request), MessageStage::Done);
        if !self.has_run_head && !matches!(stage, MessageStage::Done | MessageStage::Blocked(_)) {
            self.run_head(worker);
        }
        self.finish(stage, Direction::Request, worker)
    }

    /// Runs the rules of the response's body. Returns [`Next::Pass`] or [`Next::Block`].
    pub fn run_response(&mut self, worker: &mut Worker) -> Next {
        let stage = std::mem::replace(self.stage(Direction::Response), MessageStage::Done);
        self.finish(stage, Direction::Response, worker)
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
        let refused = |request: u16| if direction == Direction::Request { request } else { 403 };
        match decoded {
            Ok(Decoded::All) => None,
            Ok(Decoded::Cut) => {
                self.is_partial = true;
                None
            }
            Ok(Decoded::RatioExceeded) => Some((refused(413), "compression ratio")),
            Err(_) => Some((refused(400), "invalid content coding")),
        }
    }

    /// Runs the rules of the log, which do not block.
    pub fn run_logging(&mut self, worker: &mut Worker) {
        self.transaction.process_logging(worker);
    }

    /// Handles a server's lack of memory for a request: blocks it, or has the bytes so far inspected.
    pub fn cut_request(&mut self) -> Next {
        self.cut(Direction::Request)
    }

    /// Handles a server's lack of memory for a response: blocks it, or has the bytes so far inspected.
    pub fn cut_response(&mut self) -> Next {
        self.cut(Direction::Response)
    }

    fn cut(&mut self, direction: Direction) -> Next {
        if let Some(block) = self.refuse(direction, 503, "memory for held bodies") {
            return block;
        }
        self.is_partial = true;
        if let MessageStage::Collect(body) = self.stage(direction) {
            body.extent = BodyExtent::Cut;
        }
        Next::Run(Extent::Long)
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
