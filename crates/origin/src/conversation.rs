//! The requests of one connection and their answers, in order, without I/O.

mod exchange;
#[cfg(any(test, fuzzing))]
pub(crate) mod talk;

use std::time::Instant;

use tollgate_wire::{BodyFraming, parse_request_head};

use crate::access_log::Unwritten;
use crate::answer::Answer;
use crate::endpoints::route;
use crate::output::Output;
use crate::plan::{Fetch, Plan, Source, Wait, Work};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::request_body::RequestBody;
use crate::response::{CONTINUE, Persistence};
use crate::site::Site;
use exchange::Exchange;

/// Where one connection is in its requests.
#[derive(Default)]
pub(crate) struct Conversation {
    state: State,
    /// For the access log, if there is one.
    unwritten: Unwritten,
}

#[derive(Default)]
enum State {
    /// A request begins.
    #[default]
    Head,
    /// A body is read.
    Body(Box<PendingBody>),
    /// Time passes.
    Waiting(Box<Waiting>),
    /// Random bytes or zeros are taken.
    Fetching(Box<Fetching>),
    /// No more requests are answered.
    Ended(Ending),
}

struct PendingBody {
    started: Instant,
    body: RequestBody,
    plan: Plan<'static>,
    exchange: Exchange,
}

struct Waiting {
    wait: Wait,
    started: Instant,
    exchange: Exchange,
}

struct Fetching {
    fetch: Fetch,
    left_bytes: u64,
    started: Instant,
    exchange: Exchange,
}

/// What a conversation needs before it can go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// More bytes from the client, after those that were consumed.
    Input,
    /// The output to be sent.
    Room,
    /// This moment to come.
    Until(Instant),
    /// So many bytes to be taken and thrown away, or fewer; [`Conversation::fetched`] is told.
    Bytes(Source, u64),
    /// Nothing: once the output is sent, the connection is to be closed.
    Close(Ending),
}

/// How a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Everything that the client sent was read.
    Clean,
    /// The client may be sending still; closing at once would reset the connection, and the client
    /// might lose the answer (RFC 9112, section 9.6).
    Linger,
}

/// How it is with the origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// Each connection's next answer is its last.
    pub(crate) stopping: bool,
}

/// What a client is in the middle of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arriving {
    /// A head, or nothing at all.
    Head,
    /// A body, of which so many bytes have come since then.
    Body { since: Instant, bytes: u64 },
    /// Nothing that is waited for.
    Nothing,
}

impl Conversation {
    /// Answers the requests in `input` into `output`; no more than one when stopping. Returns how
    /// many bytes of `input` were consumed, and what is needed to go on.
    pub(crate) fn advance(
        &mut self,
        input: &[u8],
        output: &mut Output,
        site: &mut Site,
        circumstances: Circumstances,
    ) -> (usize, Need) {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            match &mut self.state {
                State::Ended(ending) if rest.is_empty() => return (consumed, Need::Close(*ending)),
                State::Ended(_) => return (consumed, Need::Close(Ending::Linger)),
                _ if output.is_full() => return (consumed, Need::Room),
                State::Waiting(waiting) => {
                    let until = waiting.started + waiting.wait.time;
                    let now = site.now();
                    if now < until {
                        return (consumed, Need::Until(until));
                    }
                    let answer = (waiting.wait.answer)(waiting.wait.time, now - waiting.started);
                    self.state =
                        waiting.exchange.finish(&answer, output, site, &mut self.unwritten);
                }
                State::Fetching(fetching) if fetching.left_bytes > 0 => {
                    return (consumed, Need::Bytes(fetching.fetch.source, fetching.left_bytes));
                }
                State::Fetching(fetching) => {
                    let took = site.now().saturating_duration_since(fetching.started);
                    let answer = crate::endpoints::bytes::answer(fetching.fetch.bytes, took);
                    self.state =
                        fetching.exchange.finish(&answer, output, site, &mut self.unwritten);
                }
                _ if rest.is_empty() => return (consumed, Need::Input),
                State::Head => {
                    let count = recall(rest, output, site, circumstances)
                        .or_else(|| self.begin(rest, output, site, circumstances));
                    match count {
                        Some(count) => consumed += count,
                        None => return (consumed, Need::Input),
                    }
                }
                State::Body(pending) => {
                    let PendingBody { body, plan, exchange, .. } = &mut **pending;
                    match body.read(rest, |piece| plan.take(piece)) {
                        Ok((count, false)) => consumed += count,
                        Ok((count, true)) => {
                            consumed += count;
                            self.end_of_body(output, site);
                        }
                        Err(refusal) => {
                            let answer = Answer::from(&refusal);
                            exchange.persistence = Persistence::Close;
                            exchange.finish(&answer, output, site, &mut self.unwritten);
                            count_malformed(&refusal, site);
                            self.state = State::Ended(Ending::Linger);
                        }
                    }
                }
            }
        }
    }

    /// Goes on after so many bytes were taken from their source.
    pub(crate) fn fetched(&mut self, bytes: u64) {
        if let State::Fetching(fetching) = &mut self.state {
            fetching.left_bytes = fetching.left_bytes.saturating_sub(bytes);
        }
    }

    /// So many bytes of the output were sent.
    pub(crate) fn sent(&mut self, bytes: u64, site: &mut Site, peer: &str) {
        self.unwritten.sent(bytes, &mut site.log, peer);
    }

    /// The connection is over, and so are the answers that were not sent.
    pub(crate) fn cut_off(&mut self, site: &mut Site, peer: &str) {
        let entry = match &self.state {
            State::Body(pending) => pending.exchange.entry.as_deref(),
            State::Waiting(waiting) => waiting.exchange.entry.as_deref(),
            State::Fetching(fetching) => fetching.exchange.entry.as_deref(),
            State::Head | State::Ended(_) => None,
        };
        self.unwritten.cut_off(entry, &mut site.log, peer);
    }

    /// No request is under way.
    pub(crate) fn is_between_requests(&self) -> bool {
        matches!(self.state, State::Head)
    }

    /// What the client is in the middle of sending.
    pub(crate) fn arriving(&self) -> Arriving {
        match &self.state {
            State::Head => Arriving::Head,
            State::Body(pending) => {
                Arriving::Body { since: pending.started, bytes: pending.body.read_bytes() }
            }
            State::Waiting(_) | State::Fetching(_) | State::Ended(_) => Arriving::Nothing,
        }
    }

    /// Tells the client of a request that took too long to arrive that it is not waited for.
    pub(crate) fn give_up(&mut self, output: &mut Output, site: &mut Site) {
        let answer = Answer::from(&Refusal::Late);
        let mut exchange = match std::mem::take(&mut self.state) {
            State::Body(pending) => pending.exchange,
            _ => Exchange::unknown(),
        };
        exchange.persistence = Persistence::Close;
        exchange.finish(&answer, output, site, &mut self.unwritten);
        self.state = State::Ended(Ending::Clean);
    }

    /// Reads a head and as much of its body as is there. Returns how many bytes that was, or nothing
    /// while the head is incomplete.
    fn begin(
        &mut self,
        input: &[u8],
        output: &mut Output,
        site: &mut Site,
        circumstances: Circumstances,
    ) -> Option<usize> {
        let head = match parse_request_head(input) {
            Ok(Some(head)) => head,
            Ok(None) => return None,
            Err(error) => {
                let refusal = Refusal::Malformed(error);
                count_malformed(&refusal, site);
                Exchange::unknown().finish(
                    &Answer::from(&refusal),
                    output,
                    site,
                    &mut self.unwritten,
                );
                self.state = State::Ended(Ending::Linger);
                return Some(0);
            }
        };
        let mut exchange = Exchange::of(&head, circumstances.stopping, site.log.is_some());
        let request = Request::new(&head);
        let (index, endpoint) = route(request.path);
        site.counters.tally().paths[index].add(1);
        let planned = if is_usual(request.method) {
            (endpoint.plan)(&request, site)
        } else {
            Err(Refusal::Method(request.method))
        };
        let mut plan = planned.unwrap_or_else(|refusal| Plan::Answer(Answer::from(&refusal)));
        if head.body == BodyFraming::Empty {
            let is_the_same_again = matches!(&plan, Plan::Answer(answer) if answer.follows_from_head())
                && exchange.persistence != Persistence::Close
                && site.log.is_none();
            let collected = output.collected_bytes();
            self.begin_work(plan, exchange, output, site);
            if is_the_same_again && let Some(answer) = output.collected_after(collected) {
                site.recall.remember(&input[..head.len], answer, index);
            }
            return Some(head.len);
        }

        let read = RequestBody::new(head.body, endpoint.body_bytes_max).and_then(|mut body| {
            let (count, done) = body.read(&input[head.len..], |piece| plan.take(piece))?;
            Ok((body, count, done))
        });
        match read {
            Ok((_, count, true)) => {
                self.begin_work(plan, exchange, output, site);
                Some(head.len + count)
            }
            Ok((body, count, false)) => {
                if count == 0 && head.expects_continue {
                    if let Plan::Answer(answer) = &plan
                        && answer.is_refusal
                    {
                        exchange.persistence = Persistence::Close;
                        self.state = exchange.finish(answer, output, site, &mut self.unwritten);
                        return Some(head.len);
                    }
                    output.push(CONTINUE);
                    site.counters.tally().answered(100);
                }
                let plan = plan.into_owned();
                let started = site.now();
                self.state = State::Body(Box::new(PendingBody { started, body, plan, exchange }));
                Some(head.len + count)
            }
            Err(refusal) => {
                count_malformed(&refusal, site);
                exchange.persistence = Persistence::Close;
                exchange.finish(&Answer::from(&refusal), output, site, &mut self.unwritten);
                self.state = State::Ended(Ending::Linger);
                Some(head.len)
            }
        }
    }

    fn end_of_body(&mut self, output: &mut Output, site: &mut Site) {
        if let State::Body(pending) = std::mem::take(&mut self.state) {
            self.begin_work(pending.plan, pending.exchange, output, site);
        }
    }

    /// Does what a request that is all there asks for, or begins to.
    fn begin_work(
        &mut self,
        plan: Plan<'_>,
        mut exchange: Exchange,
        output: &mut Output,
        site: &mut Site,
    ) {
        self.state = match plan.begin(site.clock) {
            Work::Done(answer) => exchange.finish(&answer, output, site, &mut self.unwritten),
            Work::Wait { wait, started } => {
                State::Waiting(Box::new(Waiting { wait, started, exchange }))
            }
            Work::Fetch { fetch, left_bytes, started } => {
                State::Fetching(Box::new(Fetching { fetch, left_bytes, started, exchange }))
            }
        };
    }
}

/// Answers the request at the start of `input` as it was answered before, if it is the same again, and
/// counts it. Returns how long it is.
fn recall(
    input: &[u8],
    output: &mut Output,
    site: &Site,
    circumstances: Circumstances,
) -> Option<usize> {
    // The last answer of a connection says so, and a line of the log says who asked.
    if circumstances.stopping || site.log.is_some() {
        return None;
    }
    let recalled = site.recall.find(input)?;
    output.push(recalled.answer);
    let tally = site.counters.tally();
    tally.paths[recalled.path].add(1);
    tally.answered(200);
    Some(recalled.head_bytes)
}

fn is_usual(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS")
}

fn count_malformed(refusal: &Refusal<'_>, site: &Site) {
    if matches!(refusal, Refusal::Malformed(_)) {
        site.counters.tally().malformed.add(1);
    }
}

#[cfg(test)]
mod tests;
