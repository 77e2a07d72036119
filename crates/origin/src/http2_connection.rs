//! Requests and responses of one HTTP/2 connection, on concurrent streams, without I/O.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use slab::Slab;
use tollgate_accesslog::{Entry, LoggedRequest, STATUS_NO_RESPONSE, ThreadLog};
use tollgate_http1::ParseError;
use tollgate_http2::{
    Connection, ErrorCode, Event, FieldLimits, Fields, Limits, ResetCause, Role, StreamClosed,
    StreamError,
};
use tollgate_net::Timers;

use crate::config::Timeouts;
use crate::endpoints::{Action, SourceKind, Wait, fetch_response, route};
use crate::protocol::{CloseMode, Context, MAX_HEADERS, Need, ServerState};
use crate::request::{Request, RequestError};
use crate::response::{Body, Response, error_response, with_fields};
use crate::state::{Metric, Shared};

/// Pseudo-fields that every request has.
const PSEUDO_FIELDS: usize = 4;

pub(crate) struct Http2Connection {
    connection: Connection,
    /// Requests without a complete response, by the token of their stream.
    transactions: Slab<Transaction>,
    /// Streams with a body to send and a window for it, in turn.
    sendable: VecDeque<usize>,
    /// Streams that fetch, in the order in which they began.
    fetching: VecDeque<usize>,
    waits: Timers<usize>,
    /// Set once no more streams are accepted.
    closing: Option<CloseMode>,
    /// The client broke the protocol: nothing more is read.
    has_failed: bool,
    /// Start, or end of the last transaction.
    idle_since: Instant,
    /// When a part of a body was last handed over to be sent.
    progress_at: Instant,
    /// Bytes sent on the connection so far.
    sent_bytes: u64,
    /// Finished transactions whose responses are not sent completely.
    unlogged: VecDeque<UnloggedResponse>,
}

/// A request without a complete response.
struct Transaction {
    started: Instant,
    step: Step,
    facts: Facts,
}

/// Request properties that the response depends on.
struct Facts {
    stream: u32,
    is_head: bool,
    /// For the access log.
    logged: Option<Box<LoggedRequest>>,
}

enum Step {
    ReceiveBody {
        action: Action<'static>,
        received_bytes: u64,
        bytes_max: u64,
    },
    Wait(Wait),
    Fetch {
        source: SourceKind,
        bytes: u64,
        remaining_bytes: u64,
    },
    Send {
        body: Body<'static>,
        sent_bytes: usize,
        status: u16,
        /// In the queue of those that can send.
        is_queued: bool,
    },
}

struct UnloggedResponse {
    request: Option<Box<LoggedRequest>>,
    status: u16,
    body_bytes: u64,
    /// Position of its end in the bytes sent on the connection.
    end: u64,
}

/// Result of sending a part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Complete,
    Partial,
    /// The window of the stream or of the connection is empty.
    Blocked,
}

impl Http2Connection {
    /// Starts a connection and sends its settings.
    pub(crate) fn new(context: &mut Context<'_>) -> Self {
        let fields = FieldLimits { fields: MAX_HEADERS + PSEUDO_FIELDS, ..FieldLimits::default() };
        let limits = Limits { fields, ..Limits::default() };
        let now = context.shared.now();
        Self {
            connection: Connection::new(Role::Server, limits, now, context.output.bytes_mut()),
            transactions: Slab::new(),
            sendable: VecDeque::new(),
            fetching: VecDeque::new(),
            waits: Timers::default(),
            closing: None,
            has_failed: false,
            idle_since: now,
            progress_at: now,
            sent_bytes: 0,
            unlogged: VecDeque::new(),
        }
    }

    /// Processes the frames in `input` and writes the responses to the output. Returns the number of bytes consumed,
    /// and the event to continue with. [`Need::Input`] also means the time of [`next_wait`](Self::next_wait).
    pub(crate) fn advance(&mut self, input: &[u8], context: &mut Context<'_>) -> (usize, Need) {
        let mut fields = std::mem::take(&mut context.shared.fields);
        let mut rest = input;
        let need = self.process(&mut rest, &mut fields, context);
        context.shared.fields = fields;
        (input.len() - rest.len(), need)
    }

    fn process(
        &mut self,
        rest: &mut &[u8],
        fields: &mut Fields,
        context: &mut Context<'_>,
    ) -> Need {
        if self.has_failed {
            *rest = &[];
            return Need::Close(CloseMode::Linger);
        }
        let now = context.shared.now();
        self.end_waits(now, context);
        self.end_fetches(now, context);
        loop {
            self.send_bodies(now, context);
            if context.output.is_full() {
                return Need::Flush;
            }
            if let Some(mode) = self.closing.filter(|_| self.transactions.is_empty()) {
                return Need::Close(mode);
            }
            match self.connection.receive(rest, fields, context.output.bytes_mut(), now) {
                Ok(Some(event)) => self.on_event(event, fields, now, context),
                Ok(None) => break,
                Err(_) => {
                    context.shared.counters.add(Metric::Malformed, 1);
                    context.shared.counters.add(Metric::Errors, 1);
                    *rest = &[];
                    self.has_failed = true;
                    return Need::Close(CloseMode::Linger);
                }
            }
        }
        self.send_bodies(now, context);
        if context.server == ServerState::Stopping && self.closing.is_none() {
            let is_idle = self.transactions.is_empty() && context.output.unsent_bytes() == 0;
            self.connection.go_away(ErrorCode::NO_ERROR, context.output.bytes_mut());
            // The client may send more before it has all responses, and lose them by a reset.
            self.closing = Some(if is_idle { CloseMode::Immediate } else { CloseMode::Linger });
        }
        if context.output.is_full() {
            return Need::Flush;
        }
        match (self.closing, self.next_fetch()) {
            (Some(mode), _) if self.transactions.is_empty() => Need::Close(mode),
            (_, Some((source, bytes))) => Need::Fetch(source, bytes),
            (_, None) => Need::Input,
        }
    }

    fn on_event(
        &mut self,
        event: Event<'_>,
        fields: &Fields,
        now: Instant,
        context: &mut Context<'_>,
    ) {
        match event {
            Event::Request { stream, end_stream } => {
                self.start_request(stream, end_stream, fields, now, context);
            }
            Event::HeadTooLarge { stream, .. } => {
                let error = RequestError::Malformed(if fields.iter().count() > MAX_HEADERS {
                    ParseError::TooManyHeaders
                } else {
                    ParseError::HeadTooLong
                });
                let facts = Facts { stream, is_head: false, logged: None };
                self.reject(facts, &error, now, context);
            }
            Event::Data { stream, token, data, end_stream } => {
                self.connection.credit(stream, data.len(), context.output.bytes_mut());
                self.receive_body(token, data, end_stream, now, context);
            }
            Event::Trailers { token, .. } => self.receive_body(token, &[], true, now, context),
            Event::Reset { stream, token, cause } => {
                if let ResetCause::Error(error) = cause {
                    count_error(error, context.shared);
                }
                if let Some(transaction) = self.remove(token, now) {
                    self.end_early(transaction, context);
                }
                self.connection.release(stream, context.output.bytes_mut());
            }
            Event::Refused { error, .. } => count_error(error, context.shared),
            Event::StreamWritable { token, .. } => self.queue_body(token),
            Event::Settings => {
                let tokens: Vec<usize> = self.transactions.iter().map(|(token, _)| token).collect();
                tokens.into_iter().for_each(|token| self.queue_body(token));
            }
            // Bodies that wait for the window of the connection are still queued.
            Event::Writable | Event::GoAway { .. } | Event::Pong(_) | Event::Response { .. } => {}
        }
    }

    fn start_request(
        &mut self,
        stream: u32,
        end_stream: bool,
        fields: &Fields,
        now: Instant,
        context: &mut Context<'_>,
    ) {
        let shared = &mut *context.shared;
        let request = Request::http2(fields);
        let is_head = request.method == "HEAD";
        let logged = shared.log.is_some().then(|| {
            let target = fields.path().unwrap_or_default();
            let header = |name| fields.all(name).next();
            Box::new(LoggedRequest::http2(request.method, target, request.host, header))
        });
        let facts = Facts { stream, is_head, logged };
        let (index, endpoint) = route(&request, shared);
        shared.counters.add_request(index);
        let action = endpoint
            .action(&request, shared)
            .unwrap_or_else(|error| Action::Respond(error_response(&error)));
        if end_stream {
            return self.start(action, facts, now, context);
        }
        let bytes_max = endpoint.body_bytes_max;
        if fields.content_length().is_some_and(|length| length > bytes_max) {
            return self.reject(facts, &RequestError::BodyTooLarge { bytes_max }, now, context);
        }
        let expectation = request.headers.first("expect");
        if expectation.is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue")) {
            if matches!(&action, Action::Respond(response) if response.is_error) {
                return self.start(action, facts, now, context);
            }
            let out = context.output.bytes_mut();
            if self.connection.send_response(stream, 100, [], false, out).is_ok() {
                context.shared.counters.add_response(100);
            }
        }
        let action = action.into_owned();
        self.insert(Step::ReceiveBody { action, received_bytes: 0, bytes_max }, facts, now);
    }

    /// Processes a piece of a request body. Ignores the rest of a body whose request has a response.
    fn receive_body(
        &mut self,
        token: usize,
        piece: &[u8],
        end_stream: bool,
        now: Instant,
        context: &mut Context<'_>,
    ) {
        let Some(Transaction {
            step: Step::ReceiveBody { action, received_bytes, bytes_max }, ..
        }) = self.transactions.get_mut(token)
        else {
            return;
        };
        *received_bytes += piece.len() as u64;
        let bytes_max = *bytes_max;
        let is_too_large = *received_bytes > bytes_max;
        if !is_too_large {
            action.receive(piece);
        }
        if (is_too_large || end_stream)
            && let Some(Transaction { step, facts, .. }) = self.remove(token, now)
        {
            match step {
                _ if is_too_large => {
                    self.reject(facts, &RequestError::BodyTooLarge { bytes_max }, now, context);
                }
                Step::ReceiveBody { action, .. } => self.start(action, facts, now, context),
                Step::Wait(_) | Step::Fetch { .. } | Step::Send { .. } => {}
            }
        }
    }

    /// Starts the action of a request whose body is complete.
    fn start(&mut self, action: Action<'_>, facts: Facts, now: Instant, context: &mut Context<'_>) {
        let response = match action {
            Action::Respond(response) => response,
            Action::Upload(upload) => upload.into_response(now),
            Action::Echo(echo) => echo.into_response(),
            Action::Wait(wait) => {
                let token = self.insert(Step::Wait(wait), facts, now);
                self.waits.insert(now + wait.duration, token);
                return;
            }
            Action::Fetch { source, bytes } => {
                let step = Step::Fetch { source, bytes, remaining_bytes: bytes };
                let token = self.insert(step, facts, now);
                self.fetching.push_back(token);
                return;
            }
        };
        self.respond(facts, response, now, context);
    }

    fn reject(
        &mut self,
        facts: Facts,
        error: &RequestError<'_>,
        now: Instant,
        context: &mut Context<'_>,
    ) {
        if matches!(error, RequestError::Malformed(_)) {
            context.shared.counters.add(Metric::Malformed, 1);
        }
        self.respond(facts, error_response(error), now, context);
    }

    /// Sends a response, or as much of it as the windows allow at once.
    fn respond(
        &mut self,
        facts: Facts,
        response: Response<'_>,
        now: Instant,
        context: &mut Context<'_>,
    ) {
        let Context { output, shared, .. } = context;
        let stream = facts.stream;
        let status = response.status;
        let out = output.bytes_mut();
        let is_empty = facts.is_head || response.body.len() == 0;
        let sent = with_fields(&response, |fields| {
            self.connection.send_response(stream, status, fields, is_empty, out)
        });
        // Streams that the client resets are removed at once.
        debug_assert_eq!(sent, Ok(()), "the stream is open");
        shared.counters.add_response(status);
        if response.is_error {
            shared.counters.add(Metric::Errors, 1);
        }
        let body = response.body.into_owned();
        if is_empty {
            return self.finish(facts, status, 0, now, context);
        }
        let mut sent_bytes = 0;
        let progress = send_part(&mut self.connection, stream, &body, &mut sent_bytes, out);
        match progress {
            Ok(Progress::Complete) => self.finish(facts, status, body.len(), now, context),
            Ok(Progress::Partial | Progress::Blocked) => {
                self.progress_at = now;
                // The queue finds out which window is empty.
                let step = Step::Send { body, sent_bytes, status, is_queued: true };
                let token = self.insert(step, facts, now);
                self.sendable.push_back(token);
            }
            Err(StreamClosed) => self.finish(facts, status, 0, now, context),
        }
    }

    /// Sends parts of bodies in turn, until the output is full or the windows are empty.
    fn send_bodies(&mut self, now: Instant, context: &mut Context<'_>) {
        while !context.output.is_full() && !self.connection.is_window_empty() {
            let Some(token) = self.sendable.pop_front() else { return };
            let Some(Transaction { step, facts, .. }) = self.transactions.get_mut(token) else {
                continue;
            };
            let Step::Send { body, sent_bytes, is_queued, .. } = step else { continue };
            let out = context.output.bytes_mut();
            match send_part(&mut self.connection, facts.stream, body, sent_bytes, out) {
                Ok(Progress::Partial) => {
                    self.progress_at = now;
                    self.sendable.push_back(token);
                }
                Ok(Progress::Blocked) => *is_queued = false,
                Ok(Progress::Complete) | Err(StreamClosed) => {
                    self.progress_at = now;
                    if let Some(Transaction { step, facts, .. }) = self.remove(token, now)
                        && let Step::Send { sent_bytes, status, .. } = step
                    {
                        self.finish(facts, status, sent_bytes as u64, now, context);
                    }
                }
            }
        }
    }

    /// Queues a body that waits for its window.
    fn queue_body(&mut self, token: usize) {
        if let Some(Transaction { step: Step::Send { is_queued, .. }, .. }) =
            self.transactions.get_mut(token)
            && !*is_queued
        {
            *is_queued = true;
            self.sendable.push_back(token);
        }
    }

    /// Responds to requests whose wait is over.
    fn end_waits(&mut self, now: Instant, context: &mut Context<'_>) {
        while !context.output.is_full()
            && let Some(token) = self.waits.pop_due(now)
        {
            if let Some(Transaction { step: Step::Wait(wait), started, facts }) =
                self.remove(token, now)
            {
                let response = (wait.respond)(wait.duration, now - started);
                self.respond(facts, response, now, context);
            }
        }
    }

    /// Responds to requests whose bytes are fetched.
    fn end_fetches(&mut self, now: Instant, context: &mut Context<'_>) {
        while let Some((_, 0)) = self.next_fetch()
            && !context.output.is_full()
            && let Some(token) = self.fetching.pop_front()
            && let Some(Transaction { step: Step::Fetch { bytes, .. }, started, facts }) =
                self.remove(token, now)
        {
            let response = fetch_response(bytes, now.saturating_duration_since(started));
            self.respond(facts, response, now, context);
        }
    }

    /// Returns the source and the bytes left of the fetch whose turn it is.
    fn next_fetch(&mut self) -> Option<(SourceKind, u64)> {
        loop {
            let token = *self.fetching.front()?;
            if let Some(Transaction { step: Step::Fetch { source, remaining_bytes, .. }, .. }) =
                self.transactions.get(token)
            {
                return Some((*source, *remaining_bytes));
            }
            // The client has reset the stream.
            self.fetching.pop_front();
        }
    }

    /// Reports bytes that were fetched from their source.
    pub(crate) fn fetched(&mut self, bytes: u64) {
        if let Some(token) = self.fetching.front()
            && let Some(Transaction { step: Step::Fetch { remaining_bytes, .. }, .. }) =
                self.transactions.get_mut(*token)
        {
            *remaining_bytes = remaining_bytes.saturating_sub(bytes);
        }
    }

    /// Adds a transaction of an open stream. Returns its token.
    fn insert(&mut self, step: Step, facts: Facts, now: Instant) -> usize {
        let stream = facts.stream;
        let token = self.transactions.insert(Transaction { started: now, step, facts });
        self.connection.set_token(stream, token);
        token
    }

    fn remove(&mut self, token: usize, now: Instant) -> Option<Transaction> {
        let transaction = self.transactions.try_remove(token)?;
        if let Step::Wait(wait) = &transaction.step {
            self.waits.remove(transaction.started + wait.duration, token);
        }
        self.idle_since = now;
        Some(transaction)
    }

    /// Releases the stream of a response of which all frames are in the output.
    fn finish(
        &mut self,
        facts: Facts,
        status: u16,
        body_bytes: u64,
        now: Instant,
        context: &mut Context<'_>,
    ) {
        self.idle_since = now;
        self.connection.release(facts.stream, context.output.bytes_mut());
        self.log_later(facts, status, body_bytes, context);
    }

    /// Ends a transaction whose stream the client has reset.
    fn end_early(&mut self, transaction: Transaction, context: &mut Context<'_>) {
        let (status, body_bytes) = transaction.outcome();
        self.log_later(transaction.facts, status, body_bytes, context);
    }

    fn log_later(&mut self, facts: Facts, status: u16, body_bytes: u64, context: &mut Context<'_>) {
        if context.shared.log.is_some() {
            let end = self.sent_bytes + context.output.unsent_bytes();
            let request = facts.logged;
            self.unlogged.push_back(UnloggedResponse { request, status, body_bytes, end });
        }
    }

    /// Reports bytes of the output that were sent. Logs the responses that are complete. `is_all`: the output is empty.
    pub(crate) fn sent(
        &mut self,
        bytes: u64,
        is_all: bool,
        log: &mut Option<ThreadLog>,
        peer: &str,
    ) {
        self.sent_bytes += bytes;
        if is_all {
            self.connection.flushed();
        }
        while self.unlogged.front().is_some_and(|response| response.end <= self.sent_bytes)
            && let Some(response) = self.unlogged.pop_front()
        {
            response.log(log, peer);
        }
    }

    /// Logs the responses that were not sent completely, with the body bytes that were handed over to be sent.
    pub(crate) fn closed(&mut self, log: &mut Option<ThreadLog>, peer: &str) {
        let unlogged = std::mem::take(&mut self.unlogged);
        let open = std::mem::take(&mut self.transactions).into_iter().map(|(_, transaction)| {
            let (status, body_bytes) = transaction.outcome();
            UnloggedResponse { request: transaction.facts.logged, status, body_bytes, end: 0 }
        });
        unlogged.into_iter().chain(open).for_each(|response| response.log(log, peer));
    }

    /// True if every request has its complete response.
    pub(crate) fn is_idle(&self) -> bool {
        self.transactions.is_empty()
    }

    /// True if there is work without further input.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !self.fetching.is_empty() || self.next_wait().is_some_and(|until| until <= now)
    }

    /// True until the client is told that the server is stopping.
    pub(crate) fn accepts_streams(&self) -> bool {
        self.closing.is_none() && !self.has_failed
    }

    /// Time of the next response that waits for its time.
    pub(crate) fn next_wait(&self) -> Option<Instant> {
        self.waits.first()
    }

    /// True if all responses that are left wait for their time.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waits.is_empty() && self.waits.len() == self.transactions.len()
    }

    /// Time at which the connection is closed unless something is received or sent.
    pub(crate) fn deadline(&self, now: Instant, timeouts: &Timeouts) -> Instant {
        if self.transactions.is_empty() {
            return self.idle_since + timeouts.idle;
        }
        let body_deadlines = self.transactions.iter().filter_map(|(_, transaction)| {
            let Step::ReceiveBody { received_bytes, .. } = transaction.step else { return None };
            let allowed_s = received_bytes / timeouts.body_bytes_per_second.max(1);
            Some(transaction.started + timeouts.body + Duration::from_secs(allowed_s))
        });
        let body_deadline = body_deadlines.min().map(|deadline| deadline.min(now + timeouts.body));
        let mut steps = self.transactions.iter().map(|(_, transaction)| &transaction.step);
        let is_sending = steps.any(|step| matches!(step, Step::Send { .. }));
        let send_deadline = is_sending.then(|| self.progress_at + timeouts.response);
        let last_wait = self.waits.last().unwrap_or(now);
        body_deadline.into_iter().chain(send_deadline).min().unwrap_or(last_wait + timeouts.idle)
    }

    /// Responds to requests whose body is incomplete with an error, and announces the end of the connection.
    pub(crate) fn time_out(&mut self, context: &mut Context<'_>) {
        let now = context.shared.now();
        let transactions = self.transactions.iter();
        let incomplete = transactions.filter_map(|(token, transaction)| {
            matches!(transaction.step, Step::ReceiveBody { .. }).then_some(token)
        });
        let tokens: Vec<usize> = incomplete.collect();
        for token in tokens {
            if let Some(Transaction { facts, .. }) = self.remove(token, now) {
                self.reject(facts, &RequestError::TimedOut, now, context);
            }
        }
        self.connection.go_away(ErrorCode::NO_ERROR, context.output.bytes_mut());
    }
}

impl Transaction {
    /// Status and body bytes to log if it ends now.
    fn outcome(&self) -> (u16, u64) {
        match &self.step {
            Step::Send { status, sent_bytes, .. } => (*status, *sent_bytes as u64),
            Step::ReceiveBody { .. } | Step::Wait(_) | Step::Fetch { .. } => {
                (STATUS_NO_RESPONSE, 0)
            }
        }
    }
}

impl UnloggedResponse {
    fn log(self, log: &mut Option<ThreadLog>, peer: &str) {
        let Self { request, status, body_bytes, .. } = self;
        if let Some(log) = log {
            let request = request.as_deref();
            log.add(&Entry::new(peer, request, status, body_bytes));
        }
    }
}

/// Sends one frame of a body, from `sent_bytes` on.
fn send_part(
    connection: &mut Connection,
    stream: u32,
    body: &Body<'static>,
    sent_bytes: &mut usize,
    out: &mut Vec<u8>,
) -> Result<Progress, StreamClosed> {
    let left = body.len() as usize - *sent_bytes;
    let Some(count) = connection.start_data(stream, left, true, out)? else {
        return Ok(Progress::Blocked);
    };
    body.append_part(*sent_bytes, count, out);
    *sent_bytes += count;
    Ok(if count == left { Progress::Complete } else { Progress::Partial })
}

/// Counts a request that breaks the protocol.
fn count_error(error: StreamError, shared: &Shared) {
    if error != StreamError::Refused {
        shared.counters.add(Metric::Malformed, 1);
        shared.counters.add(Metric::Errors, 1);
    }
}

#[cfg(test)]
mod tests;
