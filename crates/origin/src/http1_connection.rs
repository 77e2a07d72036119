//! Requests and responses of one connection, in order, without I/O.

use std::collections::VecDeque;
use std::time::Instant;

use tollgate_accesslog::{Entry, LoggedRequest, STATUS_NO_RESPONSE, ThreadLog};
use tollgate_http1::{BodyFraming, ParseError, RequestHead, Version, parse_request_head};

use crate::endpoints::{Action, SourceKind, Wait, fetch_response, route};
use crate::protocol::{CloseMode, Context, MAX_HEADERS, Need, Receiving, ServerState};
use crate::request::{Request, RequestBody, RequestError};
use crate::response::{CONTINUE, Persistence, Response, error_response, render};
use crate::state::Metric;

#[derive(Default)]
pub(crate) struct Http1Connection {
    state: State,
    /// Bytes sent on the connection so far.
    sent_bytes: u64,
    /// Responses that are not sent completely. Each is logged afterwards, with the bytes sent.
    unlogged: VecDeque<UnloggedResponse>,
}

#[derive(Default)]
enum State {
    #[default]
    Head,
    Pending(Box<Pending>),
    Closing(CloseMode),
}

/// A request whose response is not ready.
struct Pending {
    started: Instant,
    step: Step,
    transaction: Transaction,
}

enum Step {
    ReceiveBody { body: RequestBody, action: Action<'static> },
    Wait(Wait),
    Fetch { source: SourceKind, bytes: u64, remaining_bytes: u64 },
}

impl Http1Connection {
    /// Processes the requests in `input` and writes the responses to the output; at most one if the
    /// server is stopping. Returns the number of bytes consumed, and the event to continue with.
    pub(crate) fn advance(&mut self, input: &[u8], context: &mut Context<'_>) -> (usize, Need) {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let need = match &mut self.state {
                State::Closing(mode) if rest.is_empty() => Need::Close(*mode),
                State::Closing(_) => Need::Close(CloseMode::Linger),
                _ if context.output.is_full() => Need::Flush,
                State::Pending(pending) => match &mut pending.step {
                    Step::ReceiveBody { .. } if rest.is_empty() => Need::Input,
                    Step::ReceiveBody { body, action } => {
                        match body.read(rest, |piece| action.receive(piece)) {
                            Ok((count, is_complete)) => {
                                consumed += count;
                                if is_complete {
                                    self.finish_body(context);
                                }
                            }
                            Err(error) => self.reject_pending(&error, context),
                        }
                        continue;
                    }
                    Step::Wait(wait) => {
                        let now = context.shared.now();
                        let until = pending.started + wait.duration;
                        if now >= until {
                            let response = (wait.respond)(wait.duration, now - pending.started);
                            self.respond_pending(&response, context);
                            continue;
                        }
                        Need::Until(until)
                    }
                    Step::Fetch { bytes, remaining_bytes: 0, .. } => {
                        let elapsed =
                            context.shared.now().saturating_duration_since(pending.started);
                        let response = fetch_response(*bytes, elapsed);
                        self.respond_pending(&response, context);
                        continue;
                    }
                    Step::Fetch { source, remaining_bytes, .. } => {
                        Need::Fetch(*source, *remaining_bytes)
                    }
                },
                State::Head if rest.is_empty() => Need::Input,
                State::Head => {
                    let count = respond_from_cache(rest, context)
                        .or_else(|| self.process_head(rest, context));
                    if let Some(count) = count {
                        consumed += count;
                        continue;
                    }
                    Need::Input
                }
            };
            return (consumed, need);
        }
    }

    /// Reports bytes that were fetched from their source.
    pub(crate) fn fetched(&mut self, bytes: u64) {
        if let State::Pending(pending) = &mut self.state
            && let Step::Fetch { remaining_bytes, .. } = &mut pending.step
        {
            *remaining_bytes = remaining_bytes.saturating_sub(bytes);
        }
    }

    /// Reports bytes of the output that were sent. Logs the responses that are complete.
    pub(crate) fn sent(&mut self, bytes: u64, log: &mut Option<ThreadLog>, peer: &str) {
        self.sent_bytes += bytes;
        while self.unlogged.front().is_some_and(|response| response.end <= self.sent_bytes) {
            self.log_first(log, peer);
        }
    }

    /// Logs the responses that were not sent completely, and the pending request.
    pub(crate) fn closed(&mut self, log: &mut Option<ThreadLog>, peer: &str) {
        while !self.unlogged.is_empty() {
            self.log_first(log, peer);
        }
        if let (State::Pending(pending), Some(log)) = (&self.state, log) {
            let request = pending.transaction.logged.as_deref();
            let status = STATUS_NO_RESPONSE;
            log.add(&Entry::new(peer, request, status, 0));
        }
    }

    fn log_first(&mut self, log: &mut Option<ThreadLog>, peer: &str) {
        if let (Some(response), Some(log)) = (self.unlogged.pop_front(), log) {
            let UnloggedResponse { request, status, body_start, end } = response;
            let body_bytes = end.min(self.sent_bytes).saturating_sub(body_start);
            let request = request.as_deref();
            log.add(&Entry::new(peer, request, status, body_bytes));
        }
    }

    pub(crate) fn is_between_requests(&self) -> bool {
        matches!(self.state, State::Head)
    }

    pub(crate) fn receiving(&self) -> Receiving {
        match &self.state {
            State::Head => Receiving::Head,
            State::Pending(pending) => match &pending.step {
                Step::ReceiveBody { body, .. } => {
                    Receiving::Body { since: pending.started, bytes: body.received_bytes() }
                }
                Step::Wait(_) | Step::Fetch { .. } => Receiving::Nothing,
            },
            State::Closing(_) => Receiving::Nothing,
        }
    }

    pub(crate) fn time_out(&mut self, context: &mut Context<'_>) {
        self.reject_pending(&RequestError::TimedOut, context);
    }

    /// Processes the request head at the start of `input`, and as much of its body as is there.
    /// Returns the number of bytes consumed, or `None` if the head is incomplete.
    fn process_head(&mut self, input: &[u8], context: &mut Context<'_>) -> Option<usize> {
        let head = match parse_request_head(input) {
            Ok(Some(head)) if head.headers.iter().count() > MAX_HEADERS => {
                let error = RequestError::Malformed(ParseError::TooManyHeaders);
                self.reject_pending(&error, context);
                return Some(0);
            }
            Ok(Some(head)) => head,
            Ok(None) => return None,
            Err(error) => {
                self.reject_pending(&RequestError::Malformed(error), context);
                return Some(0);
            }
        };
        let mut transaction = Transaction::new(&head, context.server, context.shared.log.is_some());
        let request = Request::new(&head);
        let (index, endpoint) = route(&request, context.shared);
        context.shared.counters.add_request(index);
        let mut action = endpoint
            .action(&request, context.shared)
            .unwrap_or_else(|error| Action::Respond(error_response(&error)));

        if head.body == BodyFraming::Empty {
            let is_cacheable = transaction.persistence != Persistence::Close
                && context.shared.log.is_none()
                && matches!(&action, Action::Respond(response) if response.is_cacheable());
            let start = context.output.held_bytes();
            self.start(action, transaction, context);
            if is_cacheable && let Some(response) = context.output.held_after(start) {
                context.shared.responses.insert(&input[..head.len], (), index, response);
            }
            return Some(head.len);
        }

        let read = RequestBody::new(head.body, endpoint.body_bytes_max).and_then(|mut body| {
            let (count, is_complete) =
                body.read(&input[head.len..], |piece| action.receive(piece))?;
            Ok((body, count, is_complete))
        });
        match read {
            Ok((_, count, true)) => {
                self.start(action, transaction, context);
                Some(head.len + count)
            }
            Ok((body, count, false)) => {
                if count == 0 && head.expects_continue {
                    if let Action::Respond(response) = &action
                        && response.is_error
                    {
                        transaction.persistence = Persistence::Close;
                        self.respond(transaction, response, context);
                        return Some(head.len);
                    }
                    context.output.push(CONTINUE);
                    context.shared.counters.add_response(100);
                }
                let step = Step::ReceiveBody { body, action: action.into_owned() };
                self.wait_for(step, transaction, context);
                Some(head.len + count)
            }
            Err(error) => {
                self.reject(transaction, &error, context);
                Some(head.len)
            }
        }
    }

    /// Starts the action of a request whose body is complete.
    fn start(&mut self, action: Action<'_>, transaction: Transaction, context: &mut Context<'_>) {
        let response = match action {
            Action::Respond(response) => response,
            Action::Upload(upload) => upload.into_response(context.shared.now()),
            Action::Echo(echo) => echo.into_response(),
            Action::Wait(wait) => return self.wait_for(Step::Wait(wait), transaction, context),
            Action::Fetch { source, bytes } => {
                let step = Step::Fetch { source, bytes, remaining_bytes: bytes };
                return self.wait_for(step, transaction, context);
            }
        };
        self.respond(transaction, &response, context);
    }

    fn wait_for(&mut self, step: Step, transaction: Transaction, context: &Context<'_>) {
        let started = context.shared.now();
        self.state = State::Pending(Box::new(Pending { started, step, transaction }));
    }

    fn finish_body(&mut self, context: &mut Context<'_>) {
        if let State::Pending(pending) = std::mem::take(&mut self.state)
            && let Step::ReceiveBody { action, .. } = pending.step
        {
            self.start(action, pending.transaction, context);
        }
    }

    fn respond_pending(&mut self, response: &Response<'_>, context: &mut Context<'_>) {
        if let State::Pending(pending) = std::mem::take(&mut self.state) {
            self.respond(pending.transaction, response, context);
        }
    }

    /// Rejects the pending request, or one that could not be parsed.
    pub(crate) fn reject_pending(&mut self, error: &RequestError<'_>, context: &mut Context<'_>) {
        let transaction = match std::mem::take(&mut self.state) {
            State::Pending(pending) => pending.transaction,
            State::Head | State::Closing(_) => Transaction::unparsed(),
        };
        self.reject(transaction, error, context);
    }

    /// Responds with an error and closes the connection.
    fn reject(
        &mut self,
        mut transaction: Transaction,
        error: &RequestError<'_>,
        context: &mut Context<'_>,
    ) {
        if matches!(error, RequestError::Malformed(_)) {
            context.shared.counters.add(Metric::Malformed, 1);
        }
        transaction.persistence = Persistence::Close;
        self.respond(transaction, &error_response(error), context);
    }

    fn respond(
        &mut self,
        transaction: Transaction,
        response: &Response<'_>,
        context: &mut Context<'_>,
    ) {
        let Context { output, shared, .. } = context;
        let Transaction { is_head, persistence, close_mode, logged: request } = transaction;
        render(response, is_head, persistence, output);
        shared.counters.add_response(response.status);
        if response.is_error {
            shared.counters.add(Metric::Errors, 1);
        }
        if shared.log.is_some() {
            let body_bytes = if is_head { 0 } else { response.body.len() };
            let end = self.sent_bytes + output.unsent_bytes();
            let body_start = end - body_bytes;
            let status = response.status;
            self.unlogged.push_back(UnloggedResponse { request, status, body_start, end });
        }
        self.state = match persistence {
            Persistence::Close => State::Closing(close_mode),
            Persistence::Implicit | Persistence::Explicit => State::Head,
        };
    }
}

/// Responds to a repeated request from the cache. Returns the length of the request.
fn respond_from_cache(input: &[u8], context: &mut Context<'_>) -> Option<usize> {
    let Context { output, shared, server } = context;
    // The last response of a connection differs, and log entries need the parsed request.
    if *server == ServerState::Stopping || shared.log.is_some() {
        return None;
    }
    let cached = shared.responses.find(input, &())?;
    output.push(&cached.rendered);
    shared.counters.add_request(cached.value);
    shared.counters.add_response(200);
    Some(cached.head().len())
}

/// Request properties that the response depends on.
struct Transaction {
    is_head: bool,
    persistence: Persistence,
    /// Way of closing the connection after the response, if it is the last one.
    close_mode: CloseMode,
    /// For the access log.
    logged: Option<Box<LoggedRequest>>,
}

impl Transaction {
    fn new(head: &RequestHead<'_>, server: ServerState, is_logged: bool) -> Self {
        let keep_alive = head.keep_alive && server == ServerState::Running;
        Self {
            is_head: head.method == "HEAD",
            persistence: match (keep_alive, head.version) {
                (false, _) => Persistence::Close,
                (true, Version::Http10) => Persistence::Explicit,
                (true, Version::Http11 | Version::Http2) => Persistence::Implicit,
            },
            close_mode: match head.body {
                BodyFraming::Empty => CloseMode::Immediate,
                // The client may send more than the body.
                _ => CloseMode::Linger,
            },
            logged: is_logged.then(|| Box::new(LoggedRequest::new(head))),
        }
    }

    fn unparsed() -> Self {
        Self {
            is_head: false,
            persistence: Persistence::Close,
            close_mode: CloseMode::Linger,
            logged: None,
        }
    }
}

struct UnloggedResponse {
    request: Option<Box<LoggedRequest>>,
    status: u16,
    /// Positions in the bytes sent on the connection.
    body_start: u64,
    end: u64,
}

#[cfg(test)]
mod tests;
