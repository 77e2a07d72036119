//! Messages that two HTTP parsers might read differently (request smuggling and response splitting). The tables state
//! what is sent and the only acceptable outcome. Where RFC 9112 lets a proxy choose between rejection and repair, the
//! gateway rejects requests.

pub(crate) mod request_framing;
pub(crate) mod request_headers;
pub(crate) mod responses;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use memchr::memmem;
use tollgate_gateway::config::Address;

use crate::support::{DEADLINE, TestGateway, ThreadedBackend, config, connect};
use responses::{ResponseCase, ResponseOutcome};

/// A row of the tables of requests.
pub(crate) struct RequestCase {
    pub(crate) name: &'static str,
    /// The rule that the request violates, or that it tries to make a parser violate.
    pub(crate) rule: &'static str,
    /// Its bytes. [`NEXT`] follows them on the same connection.
    pub(crate) sent: &'static [u8],
    pub(crate) expected: RequestOutcome,
}

pub(crate) enum RequestOutcome {
    /// A response of this status and the end of the connection. The origin receives no complete request, and nothing
    /// of [`NEXT`].
    Rejected(u16),
    /// The same with status 400, after the origin has received a part of the request: bodies are not buffered.
    Incomplete,
    /// A response of this status by the gateway. The origin receives only [`NEXT`].
    Answered(u16),
    /// The origin receives exactly these requests, and then [`NEXT`].
    Forwarded(&'static [&'static [u8]]),
    /// The origin receives one request as it was sent, and then [`NEXT`].
    Unchanged,
}

/// A table of [`RequestCase`]s: name, rule, bytes, outcome.
macro_rules! request_cases {
    ($($name:literal, $rule:literal: $sent:expr => $expected:expr;)*) => {
        &[$(RequestCase { name: $name, rule: $rule, sent: $sent, expected: $expected }),*]
    };
}
pub(crate) use request_cases;

/// The valid request that follows each row on its connection.
pub(crate) const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
/// [`NEXT`] as the origin receives it.
const NEXT_RECEIVED: &[u8] = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
/// The response to [`NEXT`], as a backend sends it and as a client receives it.
const NEXT_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 4\r\n\r\nnext";
const NEXT_RESPONSE_RECEIVED: &[u8] =
    b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnext";

pub(crate) fn all_requests() -> impl Iterator<Item = &'static RequestCase> {
    request_framing::CASES.iter().chain(request_headers::CASES)
}

#[test]
fn every_request_is_rejected_or_forwarded_in_one_form() {
    let mut origin = Origin::start();
    let gateway = TestGateway::on_unix_socket(config(&[origin.addr()]));
    let failures: Vec<_> = all_requests()
        .filter_map(|case| {
            let exchange = origin.exchange(case, gateway.address(), DEADLINE);
            (!exchange.is_as_expected(case))
                .then(|| format!("{} ({}): {exchange:#?}", case.name, case.rule))
        })
        .collect();
    assert!(failures.is_empty(), "{} requests failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_response_is_rejected_or_forwarded_in_one_form() {
    let backend = response_backend();
    let gateway = TestGateway::on_unix_socket(config(&[backend.addr()]));
    let mut failures = Vec::new();
    for (row, case) in responses::CASES.iter().enumerate() {
        let received = request_row(row, gateway.address(), DEADLINE);
        if !response_is_as_expected(case, &received) {
            failures.push(format!("{} ({}): {}", case.name, case.rule, received.escape_ascii()));
        }
        // No other client receives any of it.
        let (received, _) = exchange(gateway.address(), NEXT, DEADLINE, || {});
        if received != NEXT_RESPONSE_RECEIVED {
            failures.push(format!("after {}: {}", case.name, received.escape_ascii()));
        }
    }
    assert!(failures.is_empty(), "{} responses failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn rows_have_unique_names_and_none_has_been_lost() {
    let requests: Vec<_> = all_requests().map(|case| case.name).collect();
    let responses: Vec<_> = responses::CASES.iter().map(|case| case.name).collect();
    for (names, count) in [(requests, 211), (responses, 77)] {
        assert_eq!(names.len(), count);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), count, "a name is used twice");
    }
}

/// A proxy that is silent for this long waits for more bytes. Then the client ends its side of the connection.
const SILENCE: Duration = Duration::from_millis(300);

/// Sends bytes and reads the response to the end of the connection, or until the proxy has been silent for `limit`.
/// Returns whether the connection ended.
fn exchange(
    proxy: &Address,
    sent: &[u8],
    limit: Duration,
    mut serve: impl FnMut(),
) -> (Vec<u8>, bool) {
    let mut client = connect(proxy).unwrap();
    client.write_all(sent).unwrap();
    client.set_nonblocking(true).unwrap();
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    let mut last_read = Instant::now();
    let mut is_finished = false;
    loop {
        serve();
        match client.read(&mut piece) {
            Ok(0) => return (received, true),
            Ok(count) => {
                received.extend_from_slice(&piece[..count]);
                last_read = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if last_read.elapsed() > SILENCE && !is_finished {
                    // The proxy may have closed the connection, which the next read reports.
                    let _already_closed = client.shutdown(Shutdown::Write);
                    is_finished = true;
                }
                if last_read.elapsed() > limit {
                    return (received, false);
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return (received, true),
            Err(error) => panic!("{error} after {}", received.escape_ascii()),
        }
    }
}

/// The outcome of one request.
pub(crate) struct RequestExchange {
    /// The status of the first response.
    pub(crate) status: Option<u16>,
    /// True if the proxy closed the connection of the client.
    is_closed: bool,
    /// The requests that the origin considered complete, in the order of their ends.
    complete: Vec<Vec<u8>>,
    /// The bytes after the last complete request on each connection to the origin.
    incomplete: Vec<Vec<u8>>,
}

impl std::fmt::Debug for RequestExchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |requests: &[Vec<u8>]| -> Vec<String> {
            requests.iter().map(|bytes| bytes.escape_ascii().to_string()).collect()
        };
        f.debug_struct("RequestExchange")
            .field("status", &self.status)
            .field("is_closed", &self.is_closed)
            .field("complete", &text(&self.complete))
            .field("incomplete", &text(&self.incomplete))
            .finish()
    }
}

impl RequestExchange {
    pub(crate) fn is_as_expected(&self, case: &RequestCase) -> bool {
        let is_forwarded_as = |requests: &[&[u8]]| {
            let expected = requests.iter().chain([&NEXT_RECEIVED]);
            self.status == Some(200)
                && self.incomplete.is_empty()
                && expected.eq(self.complete.iter().map(Vec::as_slice).collect::<Vec<_>>().iter())
        };
        self.is_closed
            && match case.expected {
                RequestOutcome::Rejected(status) => {
                    self.status == Some(status)
                        && self.complete.is_empty()
                        && self.incomplete.is_empty()
                }
                RequestOutcome::Answered(status) => {
                    self.status == Some(status)
                        && self.incomplete.is_empty()
                        && self.complete == [NEXT_RECEIVED]
                }
                RequestOutcome::Incomplete => {
                    self.status == Some(400)
                        && self.complete.is_empty()
                        && self.incomplete.len() == 1
                }
                RequestOutcome::Forwarded(requests) => is_forwarded_as(requests),
                RequestOutcome::Unchanged => is_forwarded_as(&[case.sent]),
            }
    }
}

/// An origin that records what it receives, byte for byte, and responds to whatever looks complete. It runs only
/// within [`exchange`](Self::exchange).
pub(crate) struct Origin {
    listener: TcpListener,
    connections: Vec<OriginConnection>,
    complete: Vec<Vec<u8>>,
}

struct OriginConnection {
    stream: TcpStream,
    /// The bytes of an incomplete request.
    received: Vec<u8>,
    is_closed: bool,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener, connections: Vec::new(), complete: Vec::new() }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Sends a row and [`NEXT`] through a proxy.
    pub(crate) fn exchange(
        &mut self,
        case: &RequestCase,
        proxy: &Address,
        limit: Duration,
    ) -> RequestExchange {
        let sent = [case.sent, NEXT].concat();
        let (responses, is_closed) = exchange(proxy, &sent, limit, || while self.serve() {});
        let status =
            responses.get(9..12).and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
        // The proxy has sent everything that belongs to this row.
        while self.serve() {}
        // It would continue with what it left incomplete, so those connections are closed.
        let incomplete =
            self.connections.extract_if(.., |connection| !connection.received.is_empty());
        let incomplete = incomplete.map(|connection| connection.received).collect();
        RequestExchange {
            status,
            is_closed,
            complete: std::mem::take(&mut self.complete),
            incomplete,
        }
    }

    /// Accepts, reads and responds without waiting. Returns whether there was anything to do.
    fn serve(&mut self) -> bool {
        let mut is_busy = false;
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true).unwrap();
            stream.set_nodelay(true).unwrap();
            self.connections.push(OriginConnection {
                stream,
                received: Vec::new(),
                is_closed: false,
            });
            is_busy = true;
        }
        for connection in self.connections.iter_mut().filter(|connection| !connection.is_closed) {
            is_busy |= connection.read();
            while let Some(length) = request_length(&connection.received) {
                self.complete.push(connection.received.drain(..length).collect());
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nseen";
                // A proxy may have closed the connection, which is not what is tested.
                connection.is_closed |= connection.stream.write_all(response).is_err();
            }
        }
        self.connections
            .retain(|connection| !connection.is_closed || !connection.received.is_empty());
        is_busy
    }
}

impl OriginConnection {
    /// Returns whether there was anything to read.
    fn read(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(count @ 1..) => {
                self.received.extend_from_slice(&piece[..count]);
                return true;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _end_or_reset => self.is_closed = true,
        }
        false
    }
}

/// The length of the first request, to a server that accepts everything: `Transfer-Encoding` overrides
/// `Content-Length`, and malformed parts are ignored. `None` while the request is incomplete.
fn request_length(bytes: &[u8]) -> Option<usize> {
    let head_length = memmem::find(bytes, b"\r\n\r\n")? + 4;
    let (head, body) = bytes.split_at(head_length);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let value = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    if value("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
        return Some(head_length + chunked_length(body)?);
    }
    let length = value("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    (body.len() >= length).then_some(head_length + length)
}

fn chunked_length(body: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let line_length = memmem::find(body.get(at..)?, b"\r\n")?;
        let line = String::from_utf8_lossy(&body[at..at + line_length]).into_owned();
        let digits: String = line.trim().chars().take_while(char::is_ascii_hexdigit).collect();
        let size = usize::from_str_radix(&digits, 16).unwrap_or(0);
        at += line_length + 2;
        if size == 0 {
            // The trailer section, if there is one, ends with an empty line.
            let rest = &body[at..];
            let end =
                if rest.starts_with(b"\r\n") { 2 } else { memmem::find(rest, b"\r\n\r\n")? + 4 };
            return Some(at + end);
        }
        at += size + 2;
    }
}

/// A backend that responds with the row whose number is the path.
pub(crate) fn response_backend() -> ThreadedBackend {
    ThreadedBackend::start(|mut peer| {
        // The end of the connection ends what a proxy takes for a body without a length.
        peer.stream().set_read_timeout(Some(Duration::from_millis(150))).unwrap();
        while let Ok(head) = peer.head() {
            let row = crate::support::path(&head)[1..].parse::<usize>().ok();
            let case = row.and_then(|row| responses::CASES.get(row));
            let (sent, closes) =
                case.map_or((NEXT_RESPONSE, false), |next| (next.sent, next.closes));
            if peer.try_send(sent).is_err() || closes {
                return;
            }
        }
    })
}

/// Everything that a client receives for a row and [`NEXT`] behind it.
pub(crate) fn request_row(row: usize, proxy: &Address, limit: Duration) -> Vec<u8> {
    let method = if responses::CASES[row].is_for_head { "HEAD" } else { "GET" };
    let request = format!("{method} /{row} HTTP/1.1\r\nHost: a\r\n\r\n");
    exchange(proxy, &[request.as_bytes(), NEXT].concat(), limit, || {}).0
}

fn response_is_as_expected(case: &ResponseCase, received: &[u8]) -> bool {
    // NEXT may be served behind it, as the gateway chooses.
    let is_rejected = received.starts_with(b"HTTP/1.1 502 ") && !contains(received, b"evil");
    let is_forwarded_as = |expected: &[u8]| without_date(received).as_deref() == Some(expected);
    match case.expected {
        ResponseOutcome::Rejected => is_rejected,
        ResponseOutcome::Interrupted => is_rejected || is_incomplete(received),
        ResponseOutcome::Forwarded(expected) => {
            is_forwarded_as(&[expected, NEXT_RESPONSE_RECEIVED].concat())
        }
        ResponseOutcome::Unchanged => {
            is_forwarded_as(&[case.sent, NEXT_RESPONSE_RECEIVED].concat())
        }
        ResponseOutcome::UntilClose(expected) => is_forwarded_as(expected),
    }
}

/// The same bytes without the one date that the gateway adds, as no row has one.
fn without_date(received: &[u8]) -> Option<Vec<u8>> {
    let is_date = |line: &&[u8]| line.starts_with(b"Date: ") && line.ends_with(b" GMT\r\n");
    let lines = received.split_inclusive(|&byte| byte == b'\n');
    let (dates, rest): (Vec<_>, Vec<_>) = lines.partition(is_date);
    (dates.len() == 1).then(|| rest.concat())
}

/// True if a client notices that the response is incomplete, and no other response follows it.
fn is_incomplete(received: &[u8]) -> bool {
    let Some(head_length) = memmem::find(received, b"\r\n\r\n").map(|at| at + 4) else {
        return false;
    };
    let head = String::from_utf8_lossy(&received[..head_length]);
    let length = head.split_once("\r\nContent-Length: ").and_then(|(_, rest)| rest.lines().next());
    let is_complete = match length {
        Some(length) => received.len() - head_length >= length.parse().unwrap(),
        None => received.ends_with(b"\r\n0\r\n\r\n"),
    };
    head.starts_with("HTTP/1.1 200 ") && !is_complete && !contains(received, b"next")
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    memmem::find(bytes, part).is_some()
}
