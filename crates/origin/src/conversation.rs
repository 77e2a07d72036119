//! The requests of one connection and their answers, in order, without I/O.

use std::time::Instant;

use tollgate_wire::{BodyFraming, RequestHead, Version, parse_request_head};

use crate::access_log::{Entry, Unwritten};
use crate::answer::Answer;
use crate::endpoints::route;
use crate::output::Output;
use crate::plan::{Fetch, Plan, Source, Wait, Work};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::request_body::RequestBody;
use crate::response::{CONTINUE, Persistence, render};
use crate::site::Site;

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

/// What of a request is needed once its answer is known.
struct Exchange {
    to_head: bool,
    persistence: Persistence,
    /// How the connection ends if this is its last request. A client that sends a body may have made
    /// it longer than it said.
    ending: Ending,
    /// For the access log, if there is one.
    entry: Option<Box<Entry>>,
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

impl Exchange {
    fn of(head: &RequestHead<'_>, stopping: bool, is_logged: bool) -> Self {
        Self {
            to_head: head.method == "HEAD",
            ending: match head.body {
                BodyFraming::Empty => Ending::Clean,
                _ => Ending::Linger,
            },
            persistence: match (head.keep_alive && !stopping, head.version) {
                (false, _) => Persistence::Close,
                (true, Version::Http10) => Persistence::Stated,
                (true, Version::Http11) => Persistence::Implied,
            },
            entry: is_logged.then(|| Box::new(Entry::new(head))),
        }
    }

    /// That of a request that could not be read.
    fn unknown() -> Self {
        Self { to_head: false, persistence: Persistence::Close, ending: Ending::Clean, entry: None }
    }

    /// Writes and counts the answer, sees to its line in the log, and says how the conversation goes on.
    fn finish(
        &mut self,
        answer: &Answer<'_>,
        output: &mut Output,
        site: &mut Site,
        unwritten: &mut Unwritten,
    ) -> State {
        render(answer, self.to_head, self.persistence, output);
        let tally = site.counters.tally();
        tally.answered(answer.status);
        if answer.is_refusal {
            tally.refused.add(1);
        }
        if site.log.is_some() {
            let body_bytes = if self.to_head { 0 } else { answer.body.bytes() };
            let left_bytes = output.left_bytes();
            unwritten.add(self.entry.take(), answer.status, body_bytes, left_bytes);
        }
        match self.persistence {
            Persistence::Close => State::Ended(self.ending),
            Persistence::Implied | Persistence::Stated => State::Head,
        }
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
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::output::Sent;
    use crate::site::tests::{made_up_clock, pass, site};

    const CALM: Circumstances = Circumstances { stopping: false };

    /// One of each framing, back to back.
    const REQUESTS: &[u8] = b"GET /?payload=3 HTTP/1.1\r\nHost: a\r\n\r\n\
        POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
        PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nT: v\r\n\r\n\
        HEAD /?payload=12345 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\
        GET /sleep?time=0 HTTP/1.1\r\nHost: a\r\n\r\n\
        GET /zero?size=70000 HTTP/1.1\r\nHost: a\r\n\r\n\
        GET /status/204 HTTP/1.1\r\nHost: a\r\n\r\n\
        BREW /method HTTP/1.1\r\nHost: a\r\n\r\n\
        GET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    const ANSWERS: &str = "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\n\
        Content-Type: text/plain\r\nContent-Length: 3\r\n\r\nxxx\
        HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
        X-Content-Type-Options: nosniff\r\nContent-Length: 20\r\n\r\ntollgate origin: /a\n\
        HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: application/octet-stream\r\n\
        X-Content-Type-Options: nosniff\r\nContent-Length: 6\r\n\r\nhello!\
        HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
        Connection: keep-alive\r\nContent-Length: 12345\r\n\r\n\
        HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: application/json\r\n\
        Content-Length: 17\r\n\r\n{\"time\":0.000000}\
        HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: application/json\r\n\
        Content-Length: 30\r\n\r\n{\"size\":70000,\"time\":0.000000}\
        HTTP/1.1 204 No Content\r\nServer: tollgate-origin\r\n\r\n\
        HTTP/1.1 501 Not Implemented\r\nServer: tollgate-origin\r\n\
        Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
        Content-Length: 88\r\n\r\n{\"error\":\"the method is BREW; \
        it may be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS\"}\
        HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
        X-Content-Type-Options: nosniff\r\nConnection: close\r\nContent-Length: 20\r\n\r\n\
        tollgate origin: /b\n";

    /// One connection, whose sources give at most a thousand bytes at a time.
    struct Talk {
        site: Site,
        conversation: Conversation,
        unread: Vec<u8>,
        answers: Vec<u8>,
    }

    impl Talk {
        fn new() -> Self {
            Self {
                site: site(),
                conversation: Conversation::default(),
                unread: Vec::new(),
                answers: Vec::new(),
            }
        }

        /// Feeds a piece as a connection does: what is not consumed comes again, before the next.
        fn hear(&mut self, piece: &[u8]) -> Need {
            self.unread.extend_from_slice(piece);
            loop {
                let mut output = Output::default();
                let (consumed, need) =
                    self.conversation.advance(&self.unread, &mut output, &mut self.site, CALM);
                self.unread.drain(..consumed);
                while output.send(&mut self.answers, &mut 1_000_000, false).unwrap() != Sent::All {}
                match need {
                    Need::Room => {}
                    Need::Bytes(_, bytes) => self.conversation.fetched(bytes.min(1000)),
                    other => return other,
                }
            }
        }

        fn answers(&mut self) -> String {
            String::from_utf8(std::mem::take(&mut self.answers)).unwrap()
        }
    }

    fn converse(pieces: &[&[u8]]) -> (String, Need) {
        let mut talk = Talk::new();
        let mut last = Need::Input;
        for piece in pieces {
            last = talk.hear(piece);
        }
        (talk.answers(), last)
    }

    #[test]
    fn answers_do_not_depend_on_where_requests_are_split() {
        let expected = (ANSWERS.to_owned(), Need::Close(Ending::Clean));
        for at in 0..=REQUESTS.len() {
            let (first, second) = REQUESTS.split_at(at);
            assert_eq!(converse(&[first, second]), expected, "split at {at}");
        }
        let single: Vec<&[u8]> = REQUESTS.chunks(1).collect();
        assert_eq!(converse(&single), expected);
    }

    #[test]
    fn a_large_payload_must_be_sent_before_the_next_answer() {
        let mut conversation = Conversation::default();
        let mut site = site();
        let mut output = Output::default();
        let request = b"GET /?payload=50000 HTTP/1.1\r\nHost: a\r\n\r\n";
        let advanced = conversation.advance(&request.repeat(2), &mut output, &mut site, CALM);
        assert_eq!(advanced, (request.len(), Need::Room));
        output.clear();
        let advanced = conversation.advance(request, &mut output, &mut site, CALM);
        assert_eq!(advanced, (request.len(), Need::Room));
        output.clear();
        let advanced = conversation.advance(&[], &mut output, &mut site, CALM);
        assert_eq!(advanced, (0, Need::Input));
        assert!(conversation.is_between_requests());
    }

    #[test]
    fn an_answer_that_waits_holds_up_those_behind_it() {
        let mut talk = Talk::new();
        let start = made_up_clock();
        let asked = b"GET /?payload=1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\
            PUT /sleep?time=1.5 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok\
            GET /?payload=2 HTTP/1.1\r\nHost: a\r\n\r\n";
        let until = start + Duration::from_millis(1_500);
        assert_eq!(talk.hear(asked), Need::Until(until));
        assert!(talk.answers().ends_with("\r\n\r\nx"));
        pass(Duration::from_millis(1_499));
        assert_eq!(talk.hear(b""), Need::Until(until));
        assert_eq!(talk.answers(), "");
        pass(Duration::from_micros(1_250));
        assert_eq!(talk.hear(b""), Need::Input);
        let answers = talk.answers();
        assert!(answers.contains("\r\n\r\n{\"time\":1.500250}HTTP/1.1 200 OK\r\n"), "{answers}");
        assert!(answers.ends_with("\r\n\r\nxx"), "{answers}");
    }

    #[test]
    fn the_time_of_reading_is_from_the_first_byte_to_the_last() {
        let mut talk = Talk::new();
        talk.unread = b"GET /urandom?size=7 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
        let mut output = Output::default();
        let mut advance = |talk: &mut Talk| {
            let Talk { site, conversation, unread, .. } = talk;
            let (consumed, need) = conversation.advance(unread, &mut output, site, CALM);
            unread.drain(..consumed);
            need
        };
        assert_eq!(advance(&mut talk), Need::Bytes(Source::Random, 7));
        talk.conversation.fetched(5);
        pass(Duration::from_micros(40));
        assert_eq!(advance(&mut talk), Need::Bytes(Source::Random, 2));
        talk.conversation.fetched(2);
        pass(Duration::from_micros(2));
        assert_eq!(advance(&mut talk), Need::Input);
        assert_eq!(output.send(&mut talk.answers, &mut 10_000, false).unwrap(), Sent::All);
        assert!(talk.answers().ends_with("\r\n\r\n{\"size\":7,\"time\":0.000042}"));
    }

    #[test]
    fn what_follows_the_last_request_makes_the_ending_linger() {
        let (_, need) = converse(&[b"GET / HTTP/1.0\r\n\r\nmore"]);
        assert_eq!(need, Need::Close(Ending::Linger));
        let (_, need) = converse(&[b"\0\r\n\r\n"]);
        assert_eq!(need, Need::Close(Ending::Linger));
    }

    #[test]
    fn a_body_before_the_end_makes_the_ending_linger() {
        for body in ["Content-Length: 2\r\n\r\nok", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"] {
            let request = format!("POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{body}");
            for at in [request.len(), request.len() - 1] {
                let (first, second) = request.as_bytes().split_at(at);
                let (_, need) = converse(&[first, second]);
                assert_eq!(need, Need::Close(Ending::Linger), "{request}");
            }
        }
    }

    #[test]
    fn only_a_body_of_which_nothing_came_is_invited() {
        const HEAD: &[u8] =
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
        const INVITATION: &str = "HTTP/1.1 100 Continue\r\n\r\n";
        assert_eq!(converse(&[HEAD]).0, INVITATION);
        assert!(
            converse(&[HEAD, b"ok"]).0.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")
        );
        let half = [HEAD, b"o"].concat();
        assert_eq!(converse(&[&half]).0, "");
        assert!(converse(&[&half, b"k"]).0.starts_with("HTTP/1.1 200 OK\r\n"));
        // A request that is refused anyhow is not.
        let (refused, need) = converse(&[b"GET /upload HTTP/1.1\r\nHost: a\r\n\
            Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"]);
        assert!(refused.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{refused}");
        assert!(refused.contains("\r\nConnection: close\r\n"), "{refused}");
        assert_eq!(need, Need::Close(Ending::Linger));
        // Nor is a body.
        let (refused, _) = converse(&[b"POST /echo HTTP/1.1\r\nHost: a\r\n\
            Expect: 100-continue\r\nContent-Length: 1048577\r\n\r\n"]);
        assert!(refused.starts_with("HTTP/1.1 413 Content Too Large\r\n"), "{refused}");
    }

    #[test]
    fn a_chunked_body_is_counted_against_the_limit() {
        let mut talk = Talk::new();
        let head =
            b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n80000000\r\n";
        assert_eq!(talk.hear(head), Need::Input);
        let piece = vec![0; 1 << 20];
        for _ in 0..64 {
            assert_eq!(talk.hear(&piece), Need::Input);
        }
        assert_eq!(talk.hear(&[0]), Need::Close(Ending::Linger));
        let answer = talk.answers();
        assert!(answer.starts_with("HTTP/1.1 413 Content Too Large\r\n"), "{answer}");
        assert!(answer.ends_with("it may have 67108864 bytes\"}"), "{answer}");
    }

    #[test]
    fn the_answer_of_a_stopping_origin_is_the_last() {
        let mut conversation = Conversation::default();
        let mut output = Output::default();
        let request = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        let stopping = Circumstances { stopping: true };
        let (_, need) = conversation.advance(request, &mut output, &mut site(), stopping);
        assert_eq!(need, Need::Close(Ending::Clean));
        let mut answer = Vec::new();
        assert_eq!(output.send(&mut answer, &mut 10_000, false).unwrap(), Sent::All);
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    }

    #[test]
    fn who_is_late_is_told() {
        for (arrived, arriving) in [
            (&b"GET /"[..], Arriving::Head),
            (
                b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbod",
                Arriving::Body { since: made_up_clock(), bytes: 3 },
            ),
        ] {
            let mut talk = Talk::new();
            assert_eq!(talk.hear(arrived), Need::Input);
            assert_eq!(talk.conversation.arriving(), arriving);
            let mut output = Output::default();
            talk.conversation.give_up(&mut output, &mut talk.site);
            assert_eq!(output.send(&mut talk.answers, &mut 10_000, false).unwrap(), Sent::All);
            assert_eq!(
                talk.answers(),
                "HTTP/1.1 408 Request Timeout\r\nServer: tollgate-origin\r\n\
                 Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
                 Connection: close\r\nContent-Length: 47\r\n\r\n\
                 {\"error\":\"the request took too long to arrive\"}"
            );
        }
    }

    #[test]
    fn a_request_that_comes_again_is_answered_and_counted_again() {
        let mut talk = Talk::new();
        let first = b"GET /?payload=3 HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(talk.hear(&first.repeat(3)), Need::Input);
        let three = talk.answers();
        assert_eq!(three, three[..three.len() / 3].repeat(3));
        // Neither one that only begins like it, nor one whose end is to come, nor the last of all.
        talk.hear(b"GET /?payload=3 HTTP/1.1\r\nHost: ab\r\n\r\n");
        assert_eq!(talk.answers(), three[..three.len() / 3]);
        for (piece, answers) in first.chunks(20).zip([0, 1]) {
            talk.hear(piece);
            assert_eq!(talk.answers(), three[..three.len() / 3].repeat(answers));
        }
        let told = talk.site.counters.to_json(&["/"], made_up_clock(), false);
        assert!(told.contains("\"requests\":5,") && told.contains("\"2xx\":5,"), "{told}");
        let mut output = Output::default();
        let stopping = Circumstances { stopping: true };
        talk.conversation.advance(first, &mut output, &mut talk.site, stopping);
        assert_eq!(output.send(&mut talk.answers, &mut 10_000, false).unwrap(), Sent::All);
        assert!(talk.answers().contains("\r\nConnection: close\r\n"));
    }

    #[test]
    fn requests_are_counted_where_they_belong() {
        let mut talk = Talk::new();
        talk.hear(REQUESTS);
        talk.conversation = Conversation::default();
        talk.unread.clear();
        talk.hear(b"GET / HTTP/1.1\r\n\r\n");
        let told = talk.site.counters.to_json(&["/"], made_up_clock(), false);
        for part in [
            "\"requests\":10,",
            "\"refused\":2,\"malformed\":1,\"timed_out\":0,",
            "\"classes\":{\"1xx\":0,\"2xx\":8,\"3xx\":0,\"4xx\":1,\"5xx\":1}",
            "\"paths\":{\"/\":2}",
        ] {
            assert!(told.contains(part), "{part} is not in {told}");
        }
    }
}
