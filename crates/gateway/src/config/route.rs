//! Routes, and what requests may contain and backends get.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use regex::bytes::Regex;
use tollgate_config::gateway::{ContentCoding, DEFAULT_VIA, ForwardedHeader, PathForm, Scheme};
use tollgate_firewall::{Block, BlockResponse, Waf};
use tollgate_http1::RequestHead;

use super::networks::Networks;
use super::pool::PoolId;
use super::template::{Template, Variable, Variables};
use super::timeouts::Timeouts;
use super::users::BasicAuth;
use crate::location::LocationRewrite;

/// Index of a route in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteId(pub(crate) usize);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub host: HostPattern,
    /// Whole path segments: `/shop` matches `/shop/cart` but not `/shopping`.
    pub path_prefix: String,
    /// The other requests are those of a route with the same host and path. `None`: all.
    pub when: Option<Box<Conditions>>,
    pub action: Action,
    /// Replaces the prefix in the request to the backend.
    pub rewrite: Option<String>,
    pub request_headers: HeaderEdits,
    pub response_headers: HeaderEdits,
    /// Clients and requests that pass. `None`: all.
    pub guard: Option<Box<Guard>>,
    /// `None`: `Location` of responses is forwarded as received.
    pub location: Option<Box<LocationRewrite>>,
    /// `None`: bodies of responses are forwarded as received.
    pub compression: Option<Box<Compression>>,
    /// The access log has its requests. It always has those that the gateway refuses before the route's action.
    pub is_logged: bool,
    /// `None`: those of the gateway.
    pub timeouts: Option<Timeouts>,
    /// `None`: nothing is inspected.
    pub waf: Option<Arc<Waf>>,
    /// `None`: its requests do not ask for verdicts.
    pub verdicts: Option<VerdictRules>,
}

/// Rules for requests that ask for verdicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictRules {
    /// Time for the body of a request, which is what has arrived when it ends. `None`: a request without all of its body is
    /// refused.
    pub(crate) body_time: Option<Duration>,
    /// Response if the inspection takes longer than `timeouts.response` of the route.
    pub(crate) late: FixedResponse,
    pub(crate) passes_late: bool,
    /// Rules that inspect each request again, after its answer.
    pub(crate) out_of_band: Option<Arc<Waf>>,
}

impl Route {
    /// Sends every request to this pool, unchanged.
    pub fn all_to(pool: PoolId) -> Self {
        Self {
            host: HostPattern::Any,
            path_prefix: "/".to_owned(),
            when: None,
            action: Action::Forward(pool),
            rewrite: None,
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
            guard: None,
            location: None,
            compression: None,
            is_logged: true,
            timeouts: None,
            waf: None,
            verdicts: None,
        }
    }

    /// The pool of requests that are forwarded.
    pub(crate) fn pool(&self) -> Option<PoolId> {
        match &self.action {
            Action::Forward(pool) => Some(*pool),
            Action::Redirect(_, pool) => *pool,
            Action::Respond(_) => None,
        }
    }

    pub(crate) fn client_limits(&self) -> Option<&ClientLimits> {
        self.guard.as_ref()?.per_client.as_ref()
    }

    pub(crate) fn basic_auth(&self) -> Option<&BasicAuth> {
        self.guard.as_ref()?.basic_auth.as_ref()
    }

    /// Its timeouts, or those of the gateway.
    pub(crate) fn timeouts<'a>(&'a self, of_gateway: &'a Timeouts) -> &'a Timeouts {
        self.timeouts.as_ref().unwrap_or(of_gateway)
    }
}

/// Conditions on a request, all of which must hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conditions {
    /// Empty: all.
    pub methods: Vec<String>,
    /// Names and what one of their values must be.
    pub headers: Vec<(String, ValueCondition)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ValueCondition {
    Any,
    Is(String),
    Matches(Pattern),
}

impl Conditions {
    pub(crate) fn hold(&self, head: &RequestHead<'_>) -> bool {
        let is_met = |(name, condition): &(String, ValueCondition)| {
            head.headers.all(name).any(|value| condition.holds(value))
        };
        (self.methods.is_empty() || self.methods.iter().any(|method| method == head.method))
            && self.headers.iter().all(is_met)
    }
}

impl ValueCondition {
    fn holds(&self, value: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Is(expected) => expected.as_bytes() == value,
            Self::Matches(pattern) => pattern.0.is_match(value),
        }
    }
}

/// A regular expression that is found somewhere in a value.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    pub(super) fn new(text: &str) -> Result<Self, regex::Error> {
        Regex::new(text).map(Self)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_str().hash(state);
    }
}

/// Clients and requests that pass to a route's action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// `None`: all addresses.
    pub allow: Option<Networks>,
    /// They precede `allow`.
    pub deny: Networks,
    pub per_client: Option<ClientLimits>,
    pub basic_auth: Option<BasicAuth>,
}

impl Guard {
    /// True if requests of this address pass. Clients of Unix sockets have none.
    pub(crate) fn allows(&self, client: Option<IpAddr>) -> bool {
        let is_in = |networks: &Networks| client.is_some_and(|client| networks.contain(client));
        self.allow.as_ref().is_none_or(is_in) && !is_in(&self.deny)
    }
}

/// Limits on the requests of one client: of an IPv4 address or an IPv6 network of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Hash of the host and path of the route, under which its clients are remembered across reloads.
    pub id: u64,
    pub rate: Option<Rate>,
    /// Requests at once.
    pub concurrent: Option<NonZeroU32>,
}

/// Rate of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub interval: Duration,
    /// Requests at once after a pause.
    pub burst: NonZeroU32,
}

/// Compression of the responses of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compression {
    /// By preference.
    pub codings: Vec<ContentCoding>,
    /// Types without parameters.
    pub types: Vec<String>,
    /// Of bodies with a length.
    pub bytes_min: u64,
}

impl Default for Compression {
    fn default() -> Self {
        let types = [
            "text/html",
            "text/css",
            "text/plain",
            "text/javascript",
            "text/xml",
            "text/csv",
            "application/javascript",
            "application/json",
            "application/manifest+json",
            "application/wasm",
            "application/xml",
            "image/svg+xml",
        ];
        Self {
            codings: ContentCoding::ALL.to_vec(),
            types: types.map(str::to_owned).to_vec(),
            bytes_min: 1024,
        }
    }
}

/// Action of a route on its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A backend of this pool serves them.
    Forward(PoolId),
    /// The gateway responds itself.
    Respond(FixedResponse),
    /// Requests for another URL than their own are redirected there. The pool serves the others; without one they get 404.
    Redirect(Redirect, Option<PoolId>),
}

/// The same response to every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedResponse {
    pub status: u16,
    /// None concerns framing or the connection.
    pub headers: Vec<(String, String)>,
    /// Shared by the responses.
    pub body: Arc<[u8]>,
}

impl FixedResponse {
    /// The response to a request that a rule blocks with `status`.
    pub(crate) fn to_blocked(block: &Block, status: u16) -> Self {
        let BlockResponse { status, content_type, body } = block.response(status);
        let headers = vec![("Content-Type".to_owned(), content_type)];
        Self { status, headers, body }
    }
}

/// A URL that a request is redirected to; `None` keeps a part of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    pub status: u16,
    pub scheme: Option<Scheme>,
    /// Without a port.
    pub host: Option<String>,
    /// With another scheme or host, `None` is the default port of the scheme.
    pub port: Option<u16>,
    /// Path, with or without a query.
    pub path: Option<String>,
}

impl Redirect {
    pub(crate) const DEFAULT_STATUS: u16 = 308;

    /// True if the URL has a scheme, host and port, and is not only a path.
    pub(crate) fn is_absolute(&self) -> bool {
        self.scheme.is_some() || self.host.is_some() || self.port.is_some()
    }
}

/// The hosts that a route matches, in lower case and without a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Every host, and requests without one.
    Any,
    Exact(String),
    /// Every subdomain of this host.
    Below(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Names and values to set; each replaces all headers of that name.
    pub set: Vec<(String, String)>,
    /// Names and values with variables.
    pub templates: Vec<(String, Template)>,
    /// Names to remove, in lower case.
    pub remove: Vec<String>,
}

impl HeaderEdits {
    /// True if a value has this variable.
    pub(crate) fn uses_variable(&self, variable: Variable) -> bool {
        self.templates.iter().any(|(_, template)| template.has(variable))
    }

    /// Names and values to set in a message of a request, of those with variables.
    pub(crate) fn rendered(&self, variables: &Variables<'_>) -> Vec<(String, String)> {
        let rendered =
            |(name, template): &(String, Template)| (name.clone(), template.render(variables));
        self.templates.iter().map(rendered).collect()
    }

    /// True if headers of this name are removed or replaced.
    pub(crate) fn affect(&self, name: &str) -> bool {
        self.remove.iter().any(|removed| removed.eq_ignore_ascii_case(name))
            || self.set.iter().any(|(set, _)| set.eq_ignore_ascii_case(name))
            || self.templates.iter().any(|(set, _)| set.eq_ignore_ascii_case(name))
    }
}

/// Rules for requests: accepted methods and headers, and the forwarded form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    pub path: PathForm,
    /// Forwards TRACE.
    pub trace: bool,
    /// Protocols of upgrades, in lower case.
    pub upgrades: Vec<String>,
    /// Serves clients that have ended their sending side like others.
    pub half_close: bool,
    /// Forwards headers with `_` in their names.
    pub underscores: bool,
    /// Names of headers that are not forwarded, in lower case.
    pub remove_headers: Vec<String>,
    /// Likewise of clients that are trusted to describe others.
    pub remove_headers_of_trusted: Vec<String>,
}

/// Headers by which a client could change the URL that a backend serves, or the proxy that it uses.
pub(crate) const REQUEST_OVERRIDES: [&str; 4] =
    ["proxy", "x-original-host", "x-original-url", "x-rewrite-url"];

/// Client descriptions that backends trust from a proxy. The gateway does not write them.
pub(crate) const CLIENT_DESCRIPTIONS: [&str; 9] = [
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-real-ip",
];

impl Default for Requests {
    fn default() -> Self {
        let removed = REQUEST_OVERRIDES.into_iter().chain(CLIENT_DESCRIPTIONS);
        Self {
            path: PathForm::default(),
            trace: false,
            upgrades: vec!["websocket".to_owned()],
            half_close: false,
            underscores: false,
            remove_headers: removed.map(str::to_owned).collect(),
            remove_headers_of_trusted: REQUEST_OVERRIDES.map(str::to_owned).to_vec(),
        }
    }
}

impl Requests {
    /// True if all protocols in the value of an `Upgrade` header are allowed.
    pub(crate) fn allow_upgrade(&self, protocols: &[u8]) -> bool {
        let is_allowed = |protocol: &[u8]| {
            let protocol = protocol.trim_ascii();
            self.upgrades.iter().any(|upgrade| upgrade.as_bytes().eq_ignore_ascii_case(protocol))
        };
        protocols.split(|&byte| byte == b',').all(is_allowed)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Name of this gateway in `Via`, in requests and responses. `None`: no `Via`.
    pub via: Option<String>,
    pub x_forwarded: bool,
    pub forwarded: bool,
    /// Clients whose headers of these names are kept and appended to. Those of others are dropped, spellings with underscores
    /// included, since any client can write anything there.
    pub trust: Trust,
}

/// Clients that describe others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    Nobody,
    /// Their own addresses still count as those of the clients.
    Everybody,
    Proxies(TrustedProxies),
}

/// Proxies that say whose requests they forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Beside peers of Unix sockets.
    pub networks: Networks,
    /// The header that all of them write.
    pub header: ForwardedHeader,
}

impl Trust {
    /// The proxies, if `peer` is one of them.
    pub(crate) fn proxies(&self, peer: Option<IpAddr>) -> Option<&TrustedProxies> {
        match self {
            Self::Proxies(proxies) if peer.is_none_or(|peer| proxies.networks.contain(peer)) => {
                Some(proxies)
            }
            _ => None,
        }
    }

    /// True if this peer describes clients in `header`. Proxies may hand on the other header as a client has sent it.
    pub(crate) fn includes_header(&self, peer: Option<IpAddr>, header: ForwardedHeader) -> bool {
        match self {
            Self::Proxies(proxies) => header == proxies.header && self.includes(peer),
            Self::Nobody | Self::Everybody => self.includes(peer),
        }
    }

    /// True if headers of this peer that describe clients are kept.
    pub(crate) fn includes(&self, peer: Option<IpAddr>) -> bool {
        *self == Self::Everybody || self.proxies(peer).is_some()
    }
}

impl Default for Forwarded {
    fn default() -> Self {
        Self {
            via: Some(DEFAULT_VIA.to_owned()),
            x_forwarded: true,
            forwarded: false,
            trust: Trust::Nobody,
        }
    }
}
