//! Request heads: reading, parsing and checking them, and the start of their transactions.

use std::net::IpAddr;
use std::time::Duration;

use rand::RngExt as _;
use tollgate_http1::{BodyFraming, Headers, ParseError, RequestHead, reason_phrase};
use tollgate_http2::{FieldLimits, Limits};
use tollgate_tls::{HttpProtocol, is_plain_http};

use super::exchange::{Exchange, Next, Stage};
use super::http2::{Carrier, TlsFacts};
use super::keys::Key as _;
use super::link::Link;
use super::scratch::{CachedRequest, HEADROOM_BYTES, INPUT_BYTES, RequestKey};
use super::shared::Shared;
use super::transaction::{ResponseFields, Transaction, exceeds_limit};
use super::turn::Flow;
use crate::basic_auth::Credentials;
use crate::body::{Body, Taken};
use crate::checks::{CheckId, Standing};
use crate::cluster::HashKey;
use crate::config::{
    Balance, Config, HashBy, RouteId, Service, Variable, Variables, written_request_id,
};
use crate::described::{Described, InvalidDescription};
use crate::firewall::{Direction, FirewallVerdict, InspectedHead, RequestContext, TransactionId};
use crate::forwarder::Forwarder;
use crate::headers::{
    ClientInfo, HeadWriter, InvalidMaxForwards, MessageForm, RequestSummary, WEBSOCKET,
    max_forwards, render_request,
};
use crate::limiter::network;
use crate::local_response::{LocalResponse, Reason, ResponseContext};
use crate::readings::AmbiguousPath;
use crate::responder::{RequestUrl, Responder};
use tollgate_tls::Received;

/// Pseudo-fields of a request in HTTP/2, with `:protocol`.
const PSEUDO_FIELDS: usize = 5;
/// Fields for cookies beyond the limit of headers: browsers send one for each cookie, and keep up to 180 for a site.
const COOKIE_CRUMBS: usize = 180;
/// Size of a field besides name and value (RFC 9113, section 6.5.2).
const FIELD_OVERHEAD: usize = 32;

/// `Retry-After` of a client that has too many requests at once.
const CLIENT_LIMIT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Attempt at handling a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    /// After the check of its credentials.
    AfterCheck,
}

/// A request whose transaction begins.
struct NewRequest {
    head: CachedRequest,
    responder: Responder,
    id: TransactionId,
    /// Verdict on the head.
    verdict: FirewallVerdict,
    /// In a header that the route sets.
    request_id: Option<u128>,
    /// The user whose password was right.
    user: Option<Box<str>>,
    response_fields: Option<Box<ResponseFields>>,
}

/// Kind of the start of the input. The head to forward is in the scratch space.
enum ParsedRequest {
    Partial,
    Request(NewRequest),
    Invalid(LocalResponse),
    /// Its credentials are being checked.
    AwaitsCheck {
        check: CheckId,
        /// The error if that takes too long.
        late: Reason,
    },
    /// A valid head that needs a local response; another request may follow.
    Local {
        head_bytes: usize,
        context: ResponseContext,
        response: LocalResponse,
    },
}

impl Exchange {
    /// Sends the rest of the previous response, reads the next request head, and begins its transaction.
    pub(super) fn read_head(&mut self, shared: &mut Shared) -> Next {
        let client = &mut self.client;
        if !client.unsent.is_empty() {
            match client.flush_body(&mut shared.http2, &shared.timeouts, None, shared.now) {
                Ok(true) => client.deadline = shared.now + shared.timeouts.idle,
                Ok(false) => return Next::Wait,
                Err(_) => return Next::Close,
            }
        }
        let Link::Connection(transport) = &mut client.link else {
            shared.report_bug("a stream reads a second head");
            return Next::Close;
        };
        let start = HEADROOM_BYTES;
        let kept = client.unread.len();
        shared.scratch.input[start..start + kept].copy_from_slice(&client.unread);
        let mut end = start + kept;
        if kept == 0 || client.is_partial {
            if !transport.is_readable() {
                let is_idle_in_drain = kept == 0 && shared.stop_by.is_some();
                return if is_idle_in_drain { Next::Close } else { Next::Wait };
            }
            let received = transport.receive(&mut shared.scratch.input[end..start + INPUT_BYTES]);
            if client.is_handshaking {
                self.count_handshake(shared);
                if self.client.wants_proof() {
                    return Next::Close;
                }
            }
            let client = &mut self.client;
            match received {
                Ok(Received::Bytes(count)) => {
                    if kept == 0 {
                        client.deadline = shared.now + shared.timeouts.header;
                    }
                    let has_line_end = shared.scratch.input[end..end + count].contains(&b'\n');
                    end += count;
                    let limit = shared.upstreams.current_config().config.limits.header_bytes;
                    // A head ends with a line end: without a new one it is still incomplete.
                    if kept > 0 && !has_line_end && end - start < limit {
                        client.unread.extend_from_slice(&shared.scratch.input[start + kept..end]);
                        return Next::Continue;
                    }
                }
                Ok(Received::Nothing) => return Next::Continue,
                Err(error) if is_plain_http(&error) => {
                    if let Some(transport) = client.transport() {
                        transport.end_tls();
                    }
                    self.reject(shared, None, &LocalResponse::error(Reason::PlainOnTlsPort));
                    return Next::Continue;
                }
                Ok(Received::End) | Err(_) => return Next::Close,
            }
        } else {
            // The head was received with the previous request.
            client.deadline = shared.now + shared.timeouts.header;
        }
        if self.client.may_be_http2 {
            let input = &shared.scratch.input[start..end];
            match self.client.protocol(input) {
                None => {
                    self.client.keep_unread(input);
                    self.client.is_partial = true;
                    return Next::Continue;
                }
                Some(HttpProtocol::Http1) => self.client.may_be_http2 = false,
                Some(HttpProtocol::Http2) => {
                    self.begin_http2(shared, start, end);
                    return Next::Continue;
                }
            }
        }
        self.take_head(shared, start, end, Attempt::First)
    }

    /// Continues in HTTP/2, with the input from `start` to `end`.
    fn begin_http2(&mut self, shared: &mut Shared, start: usize, end: usize) {
        let client = &mut self.client;
        client.may_be_http2 = false;
        client.keep_unread(&shared.scratch.input[start..end]);
        client.is_partial = false;
        client.deadline = shared.now + shared.timeouts.idle;
        let config = &shared.upstreams.current_config().config;
        // The limits for heads in HTTP/1.1 apply to the checked head.
        let fields = config.limits.headers + PSEUDO_FIELDS + COOKIE_CRUMBS;
        let bytes = config.limits.header_bytes + fields * FIELD_OVERHEAD;
        let limits = Limits {
            fields: FieldLimits { bytes, fields },
            streams: config.limits.http2_streams,
            stream_window: config.limits.http2_stream_window,
            // Some uploads that stall leave room for others.
            stream_window_max: config.limits.http2_connection_window / 4,
            connection_window: config.limits.http2_connection_window,
            extended_connect: config.requests.allow_upgrade(WEBSOCKET),
            ..Limits::default()
        };
        let connection = shared.http2.insert(Carrier::Client(self.id.key), limits, shared.now);
        if let Some(transport) = client.transport() {
            shared.http2[connection].tls = TlsFacts::of(transport);
            shared.http2[connection].local = transport.local_address().ok();
        }
        self.stage = Stage::Http2(connection);
    }

    /// Counts the TLS handshake of a client once it is complete.
    pub(super) fn count_handshake(&mut self, shared: &Shared) {
        let Link::Connection(transport) = &self.client.link else { return };
        if transport.is_tls() && !transport.is_handshaking() {
            self.client.is_handshaking = false;
            if let Some(handshakes) = &shared.listener(self.client.listener).handshakes {
                handshakes.count(transport.is_resumed());
            }
        }
    }

    /// Handles the head at the start of the input, from `start` to `end`: begins a transaction, or responds.
    pub(super) fn take_head(
        &mut self,
        shared: &mut Shared,
        start: usize,
        end: usize,
        attempt: Attempt,
    ) -> Next {
        match self.parse_head(shared, start, end, attempt) {
            ParsedRequest::Request(request) => return self.begin(shared, request, start, end),
            ParsedRequest::Partial => {
                self.client.keep_unread(&shared.scratch.input[start..end]);
                self.client.is_partial = true;
            }
            ParsedRequest::AwaitsCheck { check, late } => {
                self.client.keep_unread(&shared.scratch.input[start..end]);
                self.client.is_partial = false;
                if attempt == Attempt::First {
                    self.client.deadline = shared.now + shared.timeouts.header;
                }
                shared.awaiting_checks.push((self.id, check));
                self.stage = Stage::AwaitCheck { late };
                return Next::Wait;
            }
            ParsedRequest::Invalid(response) => {
                let input = &shared.scratch.input[start..end];
                let request =
                    shared.access_log.as_ref().and_then(|_| self.client.logged_request(input));
                self.reject(shared, request.as_deref(), &response);
            }
            ParsedRequest::Local { head_bytes, context, response } => {
                let body_start = start + head_bytes;
                self.client.keep_unread(&shared.scratch.input[body_start..end]);
                self.client.is_partial = false;
                let head = &shared.scratch.input[start..body_start];
                let request =
                    shared.access_log.as_ref().and_then(|_| self.client.logged_request(head));
                self.respond_directly(shared, request.as_deref(), &response, context);
            }
        }
        Next::Continue
    }

    /// Handles a head again that waited for a check.
    pub(super) fn retry_head(&mut self, shared: &mut Shared) -> Next {
        let (start, kept) = (HEADROOM_BYTES, self.client.unread.len());
        shared.scratch.input[start..start + kept].copy_from_slice(&self.client.unread);
        self.stage = Stage::ReadHead;
        self.take_head(shared, start, start + kept, Attempt::AfterCheck)
    }

    /// Begins the transaction of a request: its head starts at `start` in the input, and the received bytes end at
    /// `end`.
    fn begin(
        &mut self,
        shared: &mut Shared,
        request: NewRequest,
        start: usize,
        end: usize,
    ) -> Next {
        let NewRequest { head, responder, id, verdict, request_id, user, response_fields } =
            request;
        let client = &mut self.client;
        let body_start = start + head.request.head_bytes;
        let bytes = &shared.scratch.input[start..body_start];
        let mut logged_request =
            shared.access_log.as_ref().and_then(|_| client.logged_request(bytes));
        if let (Some(logged), Some(id)) = (&mut logged_request, request_id) {
            logged.set_id(&written_request_id(id));
        }
        if let (Some(logged), Some(user)) = (&mut logged_request, user) {
            logged.set_user(user);
        }
        let form = message_form(&responder, &shared.upstreams.current_config().config);
        let is_chunked = form == MessageForm::Text;
        let mut body = Body::new(head.request.body, client.link.form(), is_chunked);
        let input = &mut shared.scratch.input[body_start..end];
        let shown_id = head.is_inspected.then_some(id);
        let taken =
            shared.inspector.take_body(Direction::Request, shown_id, &mut body, input, verdict);
        let generation = shared.upstreams.begin_transaction();
        let config = &shared.upstreams[generation].shared.config;
        let (taken, verdict, error) = match taken {
            Ok((taken, verdict)) => {
                let is_too_long =
                    exceeds_limit(&body, taken.payload_bytes, config.limits.body_bytes);
                (taken, verdict, is_too_long.then_some(Reason::BodyTooLarge))
            }
            Err(error) => {
                (Taken::default(), FirewallVerdict::Pass, Some(Reason::of_parse_error(&error)))
            }
        };
        client.keep_unread(&shared.scratch.input[body_start + taken.consumed..end]);
        client.is_partial = false;
        let mut request_buffer = std::mem::take(&mut client.request_buffer);
        let piece = body_start..body_start + taken.kept;
        let edits = &config.routes[head.route.0].request_headers;
        // Nothing of a request with an error is sent, or of one without a backend.
        if error.is_none() && responder.pool().is_some() {
            request_buffer.start(&shared.scratch.head);
            let piece = body.frame(&mut shared.scratch.input, piece, edits);
            request_buffer.push(&shared.scratch.input[piece], 0);
        }
        let transaction =
            Transaction::new(id, &head, responder, generation, request_buffer, body, shared.now);
        self.stage = Stage::Transaction(Transaction {
            request_body_bytes: taken.payload_bytes,
            logged_request,
            response_fields,
            ..transaction
        });
        self.in_transaction(shared, |turn| match error {
            Some(reason) => Flow::error(reason),
            None => turn.start(verdict, taken.consumed == 0),
        })
    }

    /// Parses the head at the start of the input, or finds it in the cache.
    fn parse_head(
        &mut self,
        shared: &mut Shared,
        start: usize,
        end: usize,
        attempt: Attempt,
    ) -> ParsedRequest {
        let client = &mut self.client;
        // Identifies the transaction that may begin here.
        let id = TransactionId { exchange: self.id.key.index(), serial: shared.next_serial() };
        let input = &shared.scratch.input[start..end];
        let (is_tls, is_http2) = (client.link.is_tls(), client.link.is_stream());
        let request_key = RequestKey {
            generation: shared.upstreams.current(),
            listener: client.listener,
            ip: client.peer.map(|peer| peer.ip()),
            is_tls,
            is_http2,
        };
        if let Some(cached) = shared.scratch.requests.find(input, &request_key) {
            shared.scratch.head.clear();
            shared.scratch.head.extend_from_slice(&cached.rendered);
            let (head, pool) = cached.value;
            client.ip = head.client;
            let (responder, verdict) = (Responder::Pool(pool), FirewallVerdict::Pass);
            return ParsedRequest::Request(NewRequest {
                head,
                responder,
                id,
                verdict,
                request_id: None,
                user: None,
                response_fields: None,
            });
        }
        self.check_request(shared, start, end, id, request_key, attempt)
    }

    /// Checks and renders the head at the start of the input. Out of line, as most heads are in the cache, and the code for
    /// these keeps its values in registers.
    #[inline(never)]
    fn check_request(
        &mut self,
        shared: &mut Shared,
        start: usize,
        end: usize,
        id: TransactionId,
        request_key: RequestKey,
        attempt: Attempt,
    ) -> ParsedRequest {
        let client = &mut self.client;
        let RequestKey { ip: peer, is_tls, is_http2, .. } = request_key;
        client.ip = peer;
        let input = &shared.scratch.input[start..end];
        let generation = shared.upstreams.current_config();
        let (config, limits) = (&generation.config, &generation.config.limits);
        let head = match client.check_head(input) {
            Ok(Some(head)) if head.text_len > limits.header_bytes && is_http2 => {
                return ParsedRequest::Invalid(LocalResponse::of_long_fields(
                    &head,
                    limits.header_bytes,
                ));
            }
            Ok(Some(head)) if head.text_len > limits.header_bytes => {
                return ParsedRequest::Invalid(LocalResponse::of_long_head(
                    input,
                    limits.header_bytes,
                ));
            }
            Ok(Some(head)) => head,
            Ok(None) | Err(ParseError::HeadTooLong) if input.len() >= limits.header_bytes => {
                return ParsedRequest::Invalid(LocalResponse::of_long_head(
                    input,
                    limits.header_bytes,
                ));
            }
            Ok(None) => return ParsedRequest::Partial,
            Err(error) => {
                return ParsedRequest::Invalid(LocalResponse::of_parse_error(&error, input));
            }
        };
        if head.header_count > limits.headers {
            return ParsedRequest::Invalid(LocalResponse::error(Reason::TooManyHeaders));
        }
        if head.method == "CONNECT" {
            return ParsedRequest::Invalid(LocalResponse::error(Reason::Connect));
        }
        // Fragments are never sent, and readers differ on bytes beyond ASCII.
        if !head.target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return ParsedRequest::Invalid(LocalResponse::error(Reason::Target));
        }
        let host = head.target_parts.authority.or(head.host);
        let path = match head.target_parts.path_and_query {
            path if path.starts_with('/') => path,
            // `*`, an empty path, or a query alone.
            _ => "/",
        };
        let listener = &shared.listeners[client.listener.index()];
        let default_host = &listener.default_host;
        let url = RequestUrl { is_tls, host: host.unwrap_or_default(), path_and_query: path };
        let local = |response| {
            let keep_alive = head.keep_alive && head.body == BodyFraming::Empty;
            let is_head = head.method == "HEAD";
            let context = ResponseContext { is_head, version: head.version, keep_alive };
            ParsedRequest::Local { head_bytes: head.len, context, response }
        };
        match &listener.service {
            Some(Service::Routes) => {}
            Some(Service::Verdicts(verdicts)) => {
                let list = &mut shared.scratch.head;
                let description = &verdicts.description;
                let standing = |key: &[u8]| match &generation.local_api {
                    Some(api) => api.standing(key, shared.now, shared.inspector.waker()),
                    None => Standing::Invalid,
                };
                let described = match Described::of(&head, client.ip, description, standing, list) {
                    Ok(described) => described,
                    Err(InvalidDescription::UnsettledKey(check)) => {
                        return ParsedRequest::AwaitsCheck { check, late: Reason::ApiKey };
                    }
                    Err(invalid) => return local(invalid.response(description)),
                };
                let verdict =
                    generation.firewalls[verdicts.route.0].as_ref().and_then(|firewall| {
                        let context = RequestContext {
                            head: described.head(list),
                            name: b"",
                            client: described.client,
                            client_port: 0,
                            server: default_host,
                            firewall,
                        };
                        shared.inspector.request_head(id, &context)
                    });
                let route = &config.routes[verdicts.route.0];
                let head = CachedRequest {
                    request: RequestSummary::of_plain(&head),
                    client: client.ip,
                    route: verdicts.route,
                    hash_key: HashKey::new(b""),
                    is_inspected: verdict.is_some(),
                };
                let responder = Responder::of(route, &url, config.requests.path, &[]);
                let verdict = verdict.unwrap_or(FirewallVerdict::Pass);
                return ParsedRequest::Request(NewRequest {
                    head,
                    responder,
                    id,
                    verdict,
                    request_id: None,
                    user: None,
                    response_fields: None,
                });
            }
            // Connections accepted for SPOE are served as such, whatever a reload has made of their listener.
            Some(Service::Spoe(_)) | None => {
                return ParsedRequest::Invalid(LocalResponse::error(Reason::NoListener));
            }
        }
        let proof = config.acme.as_ref().and_then(|acme| acme.proofs.http(path));
        if let (Some(proof), "GET") = (proof, head.method) {
            return local(LocalResponse::new(200, reason_phrase(200), Vec::new(), proof));
        }
        let proxies = config.forwarded.trust.proxies(peer);
        let forwarder = proxies.map(|proxies| Forwarder::of(head.headers, peer, proxies));
        let forwarder = forwarder.unwrap_or(Forwarder { client: peer, is_tls: None });
        client.ip = forwarder.client;
        let url = RequestUrl { is_tls: forwarder.is_tls.unwrap_or(is_tls), ..url };
        let route_id = match generation.router.route(host, path) {
            Ok(Some(route)) => route,
            Ok(None) => return local(LocalResponse::error(Reason::NoRoute)),
            Err(AmbiguousPath) => {
                return ParsedRequest::Invalid(LocalResponse::error(Reason::AmbiguousPath));
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
                return ParsedRequest::Invalid(LocalResponse::error(Reason::MaxForwards));
            }
        }
        let mut conditional = generation.router.conditional(route_id).iter().copied();
        let is_met =
            |at: &RouteId| config.routes[at.0].when.as_ref().is_some_and(|when| when.hold(&head));
        let route_id = conditional.find(is_met).unwrap_or(route_id);
        let guard = config.routes[route_id.0].guard.as_deref();
        if guard.is_some_and(|guard| !guard.allows(client.ip)) {
            return local(LocalResponse::error(Reason::ClientAddress));
        }
        let route = &config.routes[route_id.0];
        let credentials = match route.basic_auth() {
            Some(auth) => match Credentials::of(head.headers) {
                Some(credentials) => Some(credentials),
                None => return local(LocalResponse::unauthorized(auth)),
            },
            None => None,
        };
        let uses = |variable| {
            [&route.request_headers, &route.response_headers]
                .iter()
                .any(|edits| edits.uses_variable(variable))
        };
        let request_id = uses(Variable::RequestId).then(|| rand::rng().random());
        let uses_certificate = Variable::OF_CERTIFICATE.into_iter().any(uses);
        let certificate = if uses_certificate { client.certificate(&shared.http2) } else { None };
        let scheme = if url.is_tls { "https" } else { "http" };
        let host = host.unwrap_or(default_host);
        let variables = Variables {
            client: client.ip,
            host,
            scheme,
            request_id,
            user: credentials.as_ref().map(Credentials::user),
            certificate,
        };
        let client_info = ClientInfo { ip: peer, is_tls, default_host, variables };
        let mut response_fields = route.response_headers.rendered(&variables);
        let responder = Responder::of(route, &url, config.requests.path, &response_fields);
        let hash_key = match responder.pool().map(|pool| &config.pools[pool.0].balance) {
            Some(Balance::ConsistentHash { by }) => {
                hash_key(by, &head, client.ip).unwrap_or_else(|NewCookie { name }| {
                    let key = HashKey::drawn();
                    let secure = if url.is_tls { "; Secure" } else { "" };
                    let value = key.cookie();
                    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}");
                    response_fields.push(("Set-Cookie".to_owned(), cookie));
                    key
                })
            }
            _ => HashKey::new(b""),
        };
        shared.scratch.head.clear();
        let request = render_request(
            &head,
            route,
            &config.requests,
            &config.forwarded,
            &client_info,
            HeadWriter::new(message_form(&responder, config), &mut shared.scratch.head),
        );
        if client.link.websocket_key().is_some() && !request.wants_upgrade {
            return local(LocalResponse::error(Reason::Connect));
        }
        let limits = route.client_limits();
        if let (Some(limits), Some(ip)) = (limits, client.ip) {
            let limiter = &shared.counters.limiter;
            let entered = match attempt {
                Attempt::First => limiter.enter(limits, ip, config.limits.clients, shared.now),
                Attempt::AfterCheck => limiter.enter_again(limits, ip),
            };
            if let Err(exceeded) = entered {
                let wait = exceeded.retry_after.unwrap_or(CLIENT_LIMIT_RETRY_AFTER);
                return local(LocalResponse::unavailable(Reason::ClientLimit, wait));
            }
        }
        if let (Some(auth), Some(credentials)) = (route.basic_auth(), &credentials) {
            let Some(passwords) = &generation.passwords[route_id.0] else {
                let refused = local(LocalResponse::unauthorized(auth));
                shared.report_bug("a route with users checks no passwords");
                return refused;
            };
            let (ip, now, waker) = (client.ip.map(network), shared.now, shared.inspector.waker());
            let refusal = match passwords.checks.standing(credentials.text(), ip, now, waker) {
                Standing::Valid => None,
                Standing::Unsettled(check) => {
                    Some(ParsedRequest::AwaitsCheck { check, late: Reason::PasswordChecks })
                }
                Standing::Invalid => Some(local(LocalResponse::unauthorized(auth))),
                Standing::Refused => Some(local(LocalResponse::many_passwords())),
            };
            if let Some(refusal) = refusal {
                if let (Some(limits), Some(ip)) = (limits, client.ip) {
                    shared.counters.limiter.leave(limits, ip);
                }
                return refusal;
            }
        }
        let user = credentials.map(|credentials| Box::from(credentials.user()));
        let firewall = generation.firewalls[route_id.0].as_ref();
        let cached = CachedRequest {
            request,
            client: client.ip,
            route: route_id,
            hash_key,
            is_inspected: false,
        };
        let head_bytes = &input[..head.len];
        let verdict = if let Some(firewall) = firewall {
            let context = RequestContext {
                head: InspectedHead::of_request(&head, head_bytes),
                name: b"",
                client: client.ip,
                client_port: 0,
                server: default_host,
                firewall,
            };
            shared.inspector.request_head(id, &context)
        } else {
            // Each request of a client counts, has its own identifier or response, and needs its password or certificate.
            if limits.is_none()
                && request_id.is_none()
                && response_fields.is_empty()
                && user.is_none()
                && !uses_certificate
                && let Responder::Pool(pool) = responder
            {
                let value = (cached, pool);
                shared.scratch.requests.insert(
                    head_bytes,
                    request_key,
                    value,
                    &shared.scratch.head,
                );
            }
            None
        };
        let head = CachedRequest { is_inspected: verdict.is_some(), ..cached };
        let verdict = verdict.unwrap_or(FirewallVerdict::Pass);
        let response_fields =
            (!response_fields.is_empty()).then(|| Box::new(ResponseFields(response_fields)));
        ParsedRequest::Request(NewRequest {
            head,
            responder,
            id,
            verdict,
            request_id,
            user,
            response_fields,
        })
    }
}

/// Form of the request for a backend. That of a request for the gateway is not sent.
fn message_form(responder: &Responder, config: &Config) -> MessageForm {
    match responder {
        Responder::Pool(pool) => MessageForm::of_backend(config.pools[pool.0].protocol),
        Responder::Gateway(_) => MessageForm::Text,
    }
}

/// The request has no cookie of this name, and its response sets it.
struct NewCookie<'a> {
    name: &'a str,
}

/// Returns the hash of the request property that selects a backend.
fn hash_key<'a>(
    by: &'a HashBy,
    head: &RequestHead<'_>,
    ip: Option<IpAddr>,
) -> Result<HashKey, NewCookie<'a>> {
    let of_client = || match ip {
        Some(IpAddr::V4(ip)) => HashKey::new(&ip.octets()),
        Some(IpAddr::V6(ip)) => HashKey::new(&ip.octets()),
        None => HashKey::new(b""),
    };
    match by {
        HashBy::Client => Ok(of_client()),
        HashBy::Header(name) => Ok(head.headers.first(name).map_or_else(of_client, HashKey::new)),
        HashBy::Cookie(name) => {
            cookie(head.headers, name).map(HashKey::of_cookie).ok_or(NewCookie { name })
        }
    }
}

/// The value of the first cookie of this name.
fn cookie<'a>(headers: Headers<'a>, name: &str) -> Option<&'a [u8]> {
    let pairs = headers.all("cookie").flat_map(|value| value.split(|&byte| byte == b';'));
    let mut values = pairs.filter_map(|pair| {
        let (found, value) = pair.split_at_checked(pair.iter().position(|&byte| byte == b'=')?)?;
        (found.trim_ascii() == name.as_bytes()).then(|| value[1..].trim_ascii())
    });
    values.next()
}
