//! Client connections: reading request heads, local responses, and closing.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use slab::Slab;
use tollgate_accesslog::{Entry, LoggedRequest, Tls as LoggedTls};
use tollgate_http1::{BodyFraming, ParseError, RequestHead, Version, parse_request_head};
use tollgate_net::SendBuffer;

use super::http2::{Connections, Detected};
use super::link::Link;
use super::transaction::{CachedRequest, RequestBuffer, ResponseState, Transaction};
use super::{HEADROOM_BYTES, INPUT_BYTES, Stage, Step, Worker};
use crate::cluster::HashKey;
use crate::config::{Balance, HashBy, Timeouts};
use crate::filter::{RequestContext, TransactionId, Verdict};
use crate::headers::{ClientInfo, InvalidMaxForwards, max_forwards, render_request};
use crate::local_response::{LocalResponse, Reason, ResponseContext};
use crate::readings::AmbiguousPath;
use crate::transport::{Received, Transport};
use tollgate_tls::{SessionFacts, is_plain_http};

/// Limits of reading from a client that still sends after the last response: in total and while silent, as in nginx
/// (`lingering_time`, `lingering_timeout`). Many clients read no response before they have sent their body, and closing
/// with unread bytes sends a reset, which discards the response.
const LINGER_TIME: Duration = Duration::from_secs(30);
const LINGER_SILENCE: Duration = Duration::from_secs(5);

/// A client: a connection, or one stream of an HTTP/2 connection, which acts like a connection with one request.
/// Between requests it uses no more memory than a short head needs.
#[derive(Debug)]
pub(super) struct Downstream {
    pub(super) link: Link,
    /// Distinguishes connections in the same slot.
    pub(super) serial: u32,
    /// `None` over a Unix domain socket.
    pub(super) ip: Option<IpAddr>,
    /// Index of the listener that accepted it.
    pub(super) listener: usize,
    pub(super) stage: Stage,
    /// Bytes received after the current request.
    pub(super) unread: Vec<u8>,
    /// `unread` is an incomplete head that was parsed before.
    pub(super) is_partial: bool,
    /// Response bytes that wait for room.
    pub(super) unsent: SendBuffer,
    /// Present while the stage is [`Stage::Transaction`].
    pub(super) transaction: Option<Transaction>,
    /// Memory of the last request, for the next one.
    pub(super) request_buffer: RequestBuffer,
    pub(super) deadline: Instant,
    /// Listed in [`Worker::unwatched`].
    pub(super) is_unwatched: bool,
    /// The TLS handshake is not counted yet.
    is_handshaking: bool,
    /// The first bytes of the connection may select HTTP/2.
    pub(super) may_be_http2: bool,
}

impl Downstream {
    pub(super) fn new(
        link: Link,
        serial: u32,
        ip: Option<IpAddr>,
        listener: usize,
        deadline: Instant,
    ) -> Self {
        Self {
            is_handshaking: link.is_tls(),
            link,
            serial,
            ip,
            listener,
            stage: Stage::ReadHead,
            unread: Vec::new(),
            is_partial: false,
            unsent: SendBuffer::default(),
            transaction: None,
            request_buffer: RequestBuffer::default(),
            deadline,
            is_unwatched: false,
            may_be_http2: false,
        }
    }

    /// Version of a message of the client; `parsed` is that of its head in HTTP/1.
    fn version(&self, parsed: Version) -> Version {
        if self.link.is_stream() { Version::Http2 } else { parsed }
    }

    /// True if the client has sent its only request and has room for the response, so that nothing more is read.
    pub(super) fn can_stay_unwatched(&self) -> bool {
        let Some(transaction) = &self.transaction else { return false };
        !transaction.request.keep_alive
            && transaction.is_sent()
            && self.unsent.is_empty()
            && matches!(&self.link, Link::Connection(it) if !it.is_watched() && !it.is_tls())
    }

    /// True if only the rest of a response body is missing: the client has received all that came of it, and has sent
    /// its request or as much as the backend takes.
    pub(super) fn waits_for_response_body(&self) -> bool {
        let Some(transaction) = &self.transaction else { return false };
        matches!(transaction.response, ResponseState::Body { .. })
            && transaction.suspended.is_none()
            && self.unsent.is_empty()
            && !matches!(&self.link, Link::Stream(stream) if stream.is_waiting)
            && (transaction.request_body.is_done() || !transaction.request_buffer.is_sent())
    }

    /// Keeps the bytes after the current request. Releases the memory if there are none.
    pub(super) fn keep_unread(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            if self.unread.capacity() > 0 {
                self.unread = Vec::new();
            }
        } else {
            self.unread.clear();
            self.unread.extend_from_slice(bytes);
        }
    }

    /// Sends waiting bytes. Returns their number.
    pub(super) fn flush(&mut self, http2: &mut Connections) -> io::Result<usize> {
        let Self { link, unsent, .. } = self;
        unsent.send(|bytes| link.send(http2, bytes, false))
    }

    /// Sends waiting bytes of a body and, on progress, moves the deadline. Returns true if none are left.
    pub(super) fn flush_body(
        &mut self,
        http2: &mut Connections,
        timeouts: &Timeouts,
        now: Instant,
    ) -> io::Result<bool> {
        let count = self.flush(http2)?;
        let is_empty = self.unsent.is_empty();
        if count > 0 && is_empty {
            self.deadline = now + timeouts.body;
        } else if count > 0 {
            self.deadline = timeouts.next_body_deadline(self.deadline, count, now);
        }
        Ok(is_empty)
    }

    /// The connection, unless the client is a stream.
    pub(super) fn transport(&mut self) -> Option<&mut Transport> {
        match &mut self.link {
            Link::Connection(transport) => Some(transport),
            Link::Stream(_) => None,
        }
    }

    /// True if the client has neither sent part of a request nor awaits a response.
    pub(super) fn is_idle(&self, http2: &Connections) -> bool {
        match self.stage {
            Stage::ReadHead => self.unread.is_empty() && self.unsent.is_empty(),
            Stage::Http2(connection) => http2.is_idle(connection),
            _ => false,
        }
    }

    /// True if a deadline has passed.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        let give_up_at = self.transaction.as_ref().and_then(Transaction::give_up_at);
        self.deadline <= now || give_up_at.is_some_and(|at| at <= now)
    }

    /// Sends bytes after the waiting ones, and keeps those that do not fit.
    pub(super) fn send(
        &mut self,
        http2: &mut Connections,
        bytes: &[u8],
        more_follows: bool,
    ) -> io::Result<()> {
        let mut sent = 0;
        if self.unsent.is_empty() && !bytes.is_empty() {
            sent = self.link.send(http2, bytes, more_follows)?;
        }
        if sent < bytes.len() {
            self.unsent.push(&bytes[sent..]);
        }
        Ok(())
    }
}

/// Context that determines the meaning of a request head, besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestKey {
    generation: usize,
    listener: usize,
    ip: Option<IpAddr>,
    /// A reload can switch TLS of a listener on or off.
    is_tls: bool,
    is_http2: bool,
}

/// Kind of the start of the input. The head to forward is in the scratch space.
enum Parsed {
    Partial,
    Request(CachedRequest, Verdict),
    Invalid(LocalResponse),
    /// A valid head that needs a local response; another request may follow.
    Local {
        head_bytes: usize,
        context: ResponseContext,
        response: LocalResponse,
    },
}

/// Result of reading a request head.
pub(super) enum HeadRead {
    Step(Step),
    /// A request, with the range of the input that holds its head and the bytes read after it.
    Request {
        cached: CachedRequest,
        verdict: Verdict,
        start: usize,
        end: usize,
    },
}

impl Worker {
    /// Sends the rest of the previous response and reads the next request head.
    pub(super) fn read_head(&mut self, key: usize) -> HeadRead {
        let client = &mut self.clients[key];
        if !client.unsent.is_empty() {
            match client.flush_body(&mut self.http2, &self.timeouts, self.now) {
                Ok(true) => client.deadline = self.now + self.timeouts.idle,
                Ok(false) => return HeadRead::Step(Step::Wait),
                Err(_) => return HeadRead::Step(Step::Close),
            }
        }
        let Link::Connection(transport) = &mut client.link else {
            return HeadRead::Step(Step::Close);
        };
        let start = HEADROOM_BYTES;
        let kept = client.unread.len();
        self.scratch.input[start..start + kept].copy_from_slice(&client.unread);
        let mut end = start + kept;
        if kept == 0 || client.is_partial {
            if !transport.is_readable() {
                let is_idle_in_drain = kept == 0 && self.stop_by.is_some();
                return HeadRead::Step(if is_idle_in_drain { Step::Close } else { Step::Wait });
            }
            let received = transport.receive(&mut self.scratch.input[end..start + INPUT_BYTES]);
            if client.is_handshaking {
                self.count_handshake(key);
            }
            let client = &mut self.clients[key];
            match received {
                Ok(Received::Bytes(count)) => {
                    if kept == 0 {
                        client.deadline = self.now + self.timeouts.header;
                    }
                    let has_line_end = self.scratch.input[end..end + count].contains(&b'\n');
                    end += count;
                    let config = &self.generations[self.current].shared.config;
                    // A head ends with a line end: without a new one it is still incomplete.
                    if kept > 0 && !has_line_end && end - start < config.limits.header_bytes {
                        client.unread.extend_from_slice(&self.scratch.input[start + kept..end]);
                        return HeadRead::Step(Step::Continue);
                    }
                }
                Ok(Received::Nothing) => return HeadRead::Step(Step::Continue),
                Err(error) if is_plain_http(&error) => {
                    if let Some(transport) = client.transport() {
                        transport.end_tls();
                    }
                    self.reject(key, None, &LocalResponse::error(Reason::PlainOnTlsPort));
                    return HeadRead::Step(Step::Continue);
                }
                Ok(Received::End) | Err(_) => return HeadRead::Step(Step::Close),
            }
        } else {
            // The head was received with the previous request.
            client.deadline = self.now + self.timeouts.header;
        }
        if self.clients[key].may_be_http2 {
            match self.detect_http2(key, start, end) {
                Detected::Http1 => {}
                Detected::Http2 => return HeadRead::Step(Step::Continue),
                Detected::Unknown => {
                    let client = &mut self.clients[key];
                    client.keep_unread(&self.scratch.input[start..end]);
                    client.is_partial = true;
                    return HeadRead::Step(Step::Continue);
                }
            }
        }
        self.take_head(key, start, end)
    }

    /// Handles the head at the start of the input: of a request, or of one that gets a local response.
    pub(super) fn take_head(&mut self, key: usize, start: usize, end: usize) -> HeadRead {
        match self.parse_head(key, start, end) {
            Parsed::Request(cached, verdict) => {
                return HeadRead::Request { cached, verdict, start, end };
            }
            Parsed::Partial => {
                let client = &mut self.clients[key];
                client.keep_unread(&self.scratch.input[start..end]);
                client.is_partial = true;
            }
            Parsed::Invalid(response) => {
                let request = self.logged_request(key, &self.scratch.input[start..end]);
                self.reject(key, request.as_deref(), &response);
            }
            Parsed::Local { head_bytes, context, response } => {
                let body_start = start + head_bytes;
                let client = &mut self.clients[key];
                client.keep_unread(&self.scratch.input[body_start..end]);
                client.is_partial = false;
                let request = self.logged_request(key, &self.scratch.input[start..body_start]);
                self.respond_directly(key, request.as_deref(), &response, context);
            }
        }
        HeadRead::Step(Step::Continue)
    }

    /// Counts the TLS handshake of a client once it is complete.
    fn count_handshake(&mut self, key: usize) {
        let client = &mut self.clients[key];
        let Link::Connection(transport) = &client.link else { return };
        if transport.is_tls() && !transport.is_handshaking() {
            client.is_handshaking = false;
            if let Some(handshakes) = &self.listeners[client.listener].handshakes {
                handshakes.count(transport.is_resumed());
            }
        }
    }

    /// Parses the head at the start of the input, or finds it in the cache.
    fn parse_head(&mut self, key: usize, start: usize, end: usize) -> Parsed {
        // Identifies the transaction that may begin here.
        let serial = self.next_serial();
        let client = &self.clients[key];
        let input = &self.scratch.input[start..end];
        let (is_tls, is_http2) = (client.link.is_tls(), client.link.is_stream());
        let request_key = RequestKey {
            generation: self.current,
            listener: client.listener,
            ip: client.ip,
            is_tls,
            is_http2,
        };
        if let Some(cached) = self.scratch.requests.find(input, &request_key) {
            self.scratch.head.clear();
            self.scratch.head.extend_from_slice(&cached.rendered);
            return Parsed::Request(cached.value, Verdict::Pass);
        }
        let generation = &self.generations[self.current].shared;
        let (config, limits) = (&generation.config, &generation.config.limits);
        let head = match parse_request_head(input) {
            Ok(Some(head)) if head.len > limits.header_bytes => {
                return Parsed::Invalid(LocalResponse::of_long_head(input, limits.header_bytes));
            }
            Ok(Some(head)) => head,
            Ok(None) | Err(ParseError::HeadTooLong) if input.len() >= limits.header_bytes => {
                return Parsed::Invalid(LocalResponse::of_long_head(input, limits.header_bytes));
            }
            Ok(None) => return Parsed::Partial,
            Err(error) => return Parsed::Invalid(LocalResponse::of_parse_error(&error, input)),
        };
        let head = RequestHead { version: client.version(head.version), ..head };
        if head.header_count > limits.headers {
            return Parsed::Invalid(LocalResponse::error(Reason::TooManyHeaders));
        }
        if head.method == "CONNECT" {
            return Parsed::Invalid(LocalResponse::error(Reason::Connect));
        }
        // Fragments are never sent, and readers differ on bytes beyond ASCII.
        if !head.target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Parsed::Invalid(LocalResponse::error(Reason::Target));
        }
        let host = head.target_parts.authority.or(head.host);
        let path = match head.target_parts.path_and_query {
            path if path.starts_with('/') => path,
            // `*`, an empty path, or a query alone.
            _ => "/",
        };
        let local = |response| {
            let keep_alive = head.keep_alive && head.body == BodyFraming::Empty;
            let is_head = head.method == "HEAD";
            let context = ResponseContext { is_head, version: head.version, keep_alive };
            Parsed::Local { head_bytes: head.len, context, response }
        };
        let route = match generation.router.route(host, path) {
            Ok(Some(route)) => route.0,
            Ok(None) => return local(LocalResponse::error(Reason::NoRoute)),
            Err(AmbiguousPath) => {
                return Parsed::Invalid(LocalResponse::error(Reason::AmbiguousPath));
            }
        };
        if head.method == "TRACE" && !config.requests.trace {
            return local(LocalResponse::error(Reason::Trace));
        }
        if head.has_other_expectation {
            return local(LocalResponse::error(Reason::Expectation));
        }
        match max_forwards(&head) {
            Ok(Some(0)) => return local(LocalResponse::of_last_hop(&head)),
            Ok(_) => {}
            Err(InvalidMaxForwards) => {
                return Parsed::Invalid(LocalResponse::error(Reason::MaxForwards));
            }
        }
        let default_host = &self.listeners[client.listener].default_host;
        let client_info = ClientInfo { ip: client.ip, is_tls, default_host };
        let pool = &config.pools[config.routes[route].pool.0];
        let hash_key = hash_key(&pool.balance, &head, client.ip);
        self.scratch.head.clear();
        let request = render_request(
            &head,
            &config.routes[route],
            &config.requests,
            &config.forwarded,
            &client_info,
            pool.protocol,
            &mut self.scratch.head,
        );
        if client.link.websocket_key().is_some() && !request.wants_upgrade {
            return local(LocalResponse::error(Reason::Connect));
        }
        let is_inspected = self.filter.inspects(generation, route);
        let cached = CachedRequest { request, route, hash_key, is_inspected };
        let head_bytes = &input[..head.len];
        let verdict = if is_inspected {
            let context = RequestContext {
                head: &head,
                bytes: head_bytes,
                client: client.ip,
                server: default_host,
                firewall: generation.firewalls[route].as_ref(),
            };
            self.filter.request_head(TransactionId { client: key, serial }, &context)
        } else {
            self.scratch.requests.insert(head_bytes, request_key, cached, &self.scratch.head);
            Verdict::Pass
        };
        Parsed::Request(cached, verdict)
    }

    /// Answers bytes that are not a valid request, and closes the connection.
    pub(super) fn reject(
        &mut self,
        key: usize,
        request: Option<&LoggedRequest>,
        response: &LocalResponse,
    ) {
        let context =
            ResponseContext { is_head: false, version: Version::Http11, keep_alive: false };
        self.respond_directly(key, request, response, context);
    }

    /// Answers and logs a request without a transaction.
    fn respond_directly(
        &mut self,
        key: usize,
        request: Option<&LoggedRequest>,
        response: &LocalResponse,
        context: ResponseContext,
    ) {
        self.log_directly(key, request, response, response.body_bytes(context));
        self.send_local(key, response, context);
    }

    /// Logs a request without a transaction.
    pub(super) fn log_directly(
        &mut self,
        key: usize,
        request: Option<&LoggedRequest>,
        response: &LocalResponse,
        body_bytes: u64,
    ) {
        if self.access_log.is_none() {
            return;
        }
        let peer = self.peer(key);
        let (status, reason) = (response.status(), response.reason().map(Reason::word));
        let tls = logged_tls(&self.clients, &self.http2, key);
        let upstream = None;
        let entry = Entry { peer: &peer, tls, request, status, body_bytes, reason, upstream };
        self.access_log.iter_mut().for_each(|log| log.add(&entry));
    }

    /// Queues a local response for a client and sets the stage that follows.
    pub(super) fn send_local(
        &mut self,
        key: usize,
        response: &LocalResponse,
        context: ResponseContext,
    ) {
        self.client_counters().count_local_response(response.status());
        let keep_alive = context.keep_alive && self.stop_by.is_none();
        let date = self.scratch.date.at(self.now, SystemTime::now);
        let mut bytes = Vec::new();
        response.render(ResponseContext { keep_alive, ..context }, date, &mut bytes);
        let client = &mut self.clients[key];
        client.unsent.push(&bytes);
        client.deadline = self.now + self.timeouts.body;
        if keep_alive && !client.link.is_stream() {
            client.stage = Stage::ReadHead;
        } else {
            client.stage = Stage::Finish { lingers: true, ends_at_close: false };
            client.keep_unread(&[]);
        }
    }

    /// Sends the rest of the last response, then closes.
    pub(super) fn finish_client(&mut self, key: usize, lingers: bool) -> Step {
        let client = &mut self.clients[key];
        match client.flush_body(&mut self.http2, &self.timeouts, self.now) {
            Ok(true) => {}
            Ok(false) => return Step::Wait,
            Err(_) => return Step::Close,
        }
        let transport = match &mut client.link {
            Link::Connection(transport) => transport,
            Link::Stream(stream) => {
                self.http2.finish(stream);
                return Step::Close;
            }
        };
        // Bytes after the last request may have arrived unnoticed.
        let lingers = lingers || transport.has_unread_bytes();
        if !lingers && !transport.is_tls() {
            return Step::Close;
        }
        match transport.shutdown() {
            Ok(true) if lingers => {}
            Ok(false) => return Step::Wait,
            Ok(true) | Err(_) => return Step::Close,
        }
        client.stage = Stage::Linger { until: self.now + LINGER_TIME };
        client.deadline = self.now + LINGER_SILENCE;
        Step::Continue
    }

    /// Reads and discards what the client sends.
    pub(super) fn linger(&mut self, key: usize, until: Instant) -> Step {
        let client = &mut self.clients[key];
        let Link::Connection(transport) = &mut client.link else { return Step::Close };
        if !transport.is_readable() {
            return Step::Wait;
        }
        match transport.receive(&mut self.scratch.input) {
            Ok(Received::Bytes(_)) => {
                client.deadline = until.min(self.now + LINGER_SILENCE);
                Step::Continue
            }
            Ok(Received::Nothing) => Step::Wait,
            Ok(Received::End) | Err(_) => Step::Close,
        }
    }

    /// Removes a client and its transaction. If the end of its connection would make a truncated response look complete,
    /// resets it.
    pub(super) fn remove_client(&mut self, key: usize) {
        if let Stage::Http2(connection) = self.clients[key].stage {
            self.abort_http2(key, connection);
        }
        let client = &self.clients[key];
        let is_truncated = match (&client.transaction, client.stage) {
            (Some(transaction), _) => transaction.response.ends_at_close(),
            (None, Stage::Finish { ends_at_close, .. }) => {
                ends_at_close && !client.unsent.is_empty()
            }
            (None, _) => false,
        };
        self.drop_upstream(key);
        self.end_transaction(key);
        self.count_bytes(key);
        let client = self.clients.remove(key);
        let transport = match client.link {
            Link::Connection(transport) => transport,
            Link::Stream(stream) => return self.release_stream(&stream),
        };
        self.client_counters().closed.add(1);
        self.discount_client(client.ip);
        if client.is_handshaking
            && transport.has_begun_tls()
            && let Some(handshakes) = &self.listeners[client.listener].handshakes
        {
            handshakes.failed.add(1);
        }
        if self.accept_again_at.is_some() {
            // There is room for another client.
            self.accept_again_at = Some(self.now);
        }
        if is_truncated {
            transport.reset();
        }
    }

    /// Adds the connection's received and sent bytes to the counters.
    pub(super) fn count_bytes(&self, key: usize) {
        let Link::Connection(transport) = &self.clients[key].link else { return };
        let (received_bytes, sent_bytes) = transport.take_byte_counts();
        self.client_counters().received_bytes.add(received_bytes);
        self.client_counters().sent_bytes.add(sent_bytes);
    }

    /// Returns the fields that the access log needs of a head, or of the first line of an invalid one. `None` without an
    /// access log.
    pub(super) fn logged_request(&self, key: usize, head: &[u8]) -> Option<Box<LoggedRequest>> {
        self.access_log.as_ref()?;
        let Ok(Some(head)) = parse_request_head(head) else {
            let is_stream = self.clients[key].link.is_stream();
            return LoggedRequest::of_first_line(head).filter(|_| !is_stream).map(Box::new);
        };
        let head = RequestHead { version: self.clients[key].version(head.version), ..head };
        Some(Box::new(LoggedRequest::new(&head)))
    }

    /// The client's address for the access log.
    pub(super) fn peer(&self, key: usize) -> String {
        self.clients[key].ip.map_or_else(|| "unix:".to_owned(), |ip| ip.to_string())
    }
}

/// Facts of a client's TLS session for the access log. Streams have that of their connection.
pub(super) fn logged_tls<'a>(
    clients: &'a Slab<Downstream>,
    http2: &Connections,
    key: usize,
) -> Option<LoggedTls<'a>> {
    let key = match &clients[key].link {
        Link::Connection(_) => key,
        Link::Stream(stream) => http2.client_of(stream)?,
    };
    let Link::Connection(transport) = &clients[key].link else { return None };
    let SessionFacts { version, cipher, server_name } = transport.tls_facts()?;
    Some(LoggedTls { version, cipher, server_name })
}

/// Returns the hash of the request property that selects a backend.
fn hash_key(balance: &Balance, head: &RequestHead<'_>, ip: Option<IpAddr>) -> HashKey {
    let of_client = || match ip {
        Some(IpAddr::V4(ip)) => HashKey::new(&ip.octets()),
        Some(IpAddr::V6(ip)) => HashKey::new(&ip.octets()),
        None => HashKey::new(b""),
    };
    match balance {
        Balance::ConsistentHash { by: HashBy::Header(name) } => {
            head.headers.first(name).map_or_else(of_client, HashKey::new)
        }
        Balance::ConsistentHash { by: HashBy::Client } => of_client(),
        Balance::RoundRobin | Balance::LeastConnections | Balance::RandomOfTwo => HashKey::new(b""),
    }
}
