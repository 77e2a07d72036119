//! The inspection of one request and its response.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate_firewall::{Engine, Waf, inbound_score};
use tollgate_waf::{
    BodyLength, Connection, Direction, Match, Next, Session, SessionOptions, Worker,
};

use crate::config::COLLECTIONS;
use crate::message::Head;

/// Bytes of a message that are inspected on Envoy's thread. The most expensive text costs 0.4 ms per kilobyte, so that other
/// streams wait for at most 2 ms.
const SHORT_BYTES: usize = 4 << 10;

/// A request with what Envoy knows about its connection.
pub(crate) struct Request<'a> {
    pub(crate) head: &'a Head<'a>,
    pub(crate) body: BodyLength,
    pub(crate) protocol: &'a str,
    pub(crate) client: (String, u16),
    pub(crate) server: (String, u16),
    /// Keeps details of matches for Envoy's log.
    pub(crate) has_details: bool,
}

#[derive(Debug)]
pub(crate) struct Inspection {
    pub(crate) waf: Arc<Waf>,
    pub(crate) session: Session,
    /// Identifier of the transaction.
    pub(crate) name: String,
    pub(crate) engine_time: Duration,
    /// A part of the request, such as bytes of a tunnel, passed without inspection.
    pub(crate) is_passing: bool,
}

impl Inspection {
    /// Begins with a request head. `name` identifies the transaction.
    pub(crate) fn begin(
        waf: &Arc<Waf>,
        name: String,
        request: &Request<'_>,
        engine: &mut Engine,
    ) -> (Self, Next) {
        let mut transaction = engine.transaction(&waf.rules, &COLLECTIONS);
        transaction.engine_mode(waf.mode);
        transaction.record_details(request.has_details);
        transaction.connection(&Connection {
            client: &request.client.0,
            client_port: request.client.1,
            server: &request.server.0,
            server_port: request.server.1,
        });
        transaction.unique_id(&name);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        transaction.time(now.as_secs());
        let options = SessionOptions {
            request_compression: waf.request_compression,
            response_compression: waf.response_compression,
            short_bytes: SHORT_BYTES,
        };
        let mut session = Session::new(transaction, options);
        let head = request.head;
        let method = head.get(":method").unwrap_or_default();
        let target = head.get(":path").or_else(|| head.get(":authority")).unwrap_or_default();
        session.request_line(method, target, request.protocol.as_bytes());
        for (name, value) in head.headers() {
            session.header(Direction::Request, name, value);
        }
        if request.body == BodyLength::Unknown && request.protocol.starts_with("HTTP/1") {
            // Envoy has removed the header, without which rules take a POST for one without a length.
            session.header(Direction::Request, b"transfer-encoding", b"chunked");
        }
        let mut inspection = Self {
            waf: Arc::clone(waf),
            session,
            name,
            engine_time: Duration::ZERO,
            is_passing: false,
        };
        let next = inspection.timed(|session| {
            session.end_head(Direction::Request, request.body, &mut engine.worker)
        });
        (inspection, next)
    }

    pub(crate) fn response_head(
        &mut self,
        head: &Head<'_>,
        body: BodyLength,
        worker: &mut Worker,
    ) -> Next {
        self.session.response_line(b"HTTP/1.1", head.status().unwrap_or(0));
        for (name, value) in head.headers() {
            self.session.header(Direction::Response, name, value);
        }
        self.timed(|session| session.end_head(Direction::Response, body, worker))
    }

    /// Runs the rules of a message whose body is complete.
    pub(crate) fn run(&mut self, direction: Direction, worker: &mut Worker) -> Next {
        self.timed(|session| session.run(direction, worker))
    }

    /// Runs the rules of the log if they change what is kept across requests.
    pub(crate) fn run_logging(&mut self, worker: &mut Worker) {
        if self.waf.rules.set.keeps_state_when_logging() {
            self.timed(|session| session.run_logging(worker));
        }
    }

    /// Runs a step of the session, and counts its time.
    fn timed<T>(&mut self, run: impl FnOnce(&mut Session) -> T) -> T {
        let start = Instant::now();
        let result = run(&mut self.session);
        self.engine_time += start.elapsed();
        result
    }

    /// Bytes that a body may have to be inspected.
    pub(crate) fn body_limit(&self, direction: Direction) -> usize {
        let transaction = self.session.transaction();
        match direction {
            // The rules of a long head, which can lower it, run later.
            Direction::Request => {
                let of_rules = transaction.rules().settings().request_body_limit;
                of_rules.max(transaction.request_body_limit())
            }
            Direction::Response => transaction.response_body_limit(),
        }
    }

    pub(crate) fn score(&self) -> Option<i64> {
        inbound_score(self.session.transaction())
    }

    /// Matches that are to be logged.
    pub(crate) fn matches(&self) -> impl Iterator<Item = &Match> {
        self.session.transaction().matches().iter().filter(|found| found.logged)
    }

    /// Line of Envoy's log for a match, in the form of ModSecurity's.
    pub(crate) fn line(&self, found: &Match) -> String {
        let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let place = self.waf.rules.set.rule(found.rule).map(|rule| rule.place);
        let mut line = format!("tollgate: rule matched [id \"{}\"]", found.id);
        if let Some(place) = place {
            write!(line, " [file \"{}\"] [line \"{}\"]", place.file, place.line)
                .expect("writing to a string cannot fail");
        }
        write!(
            line,
            " [msg \"{}\"] [data \"{}\"] [variable \"{}\"] [unique_id \"{}\"]",
            String::from_utf8_lossy(&found.message).escape_debug(),
            String::from_utf8_lossy(&found.log_data).escape_debug(),
            shown(&found.variable),
            self.name
        )
        .expect("writing to a string cannot fail");
        line
    }
}
