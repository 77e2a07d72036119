//! Listeners on which proxies ask for verdicts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use subtle::{Choice, ConstantTimeEq as _};

use tollgate_config::serve::AskingProxy;
use tollgate_net::Address;
use tollgate_tls::TlsClient;

use super::route::RouteId;
use crate::resolve::HostName;

#[cfg(test)]
mod tests;

/// Meaning of the requests of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// The routes serve them.
    Routes,
    /// They describe requests of others, and ask for the verdict on these.
    Verdicts(Verdicts),
    /// There are messages of HAProxy's SPOE in place of requests, which do the same.
    Spoe(Spoe),
}

impl Service {
    /// The route that has the firewall of a listener that gives verdicts.
    pub(crate) fn route(&self) -> Option<RouteId> {
        match self {
            Self::Routes => None,
            Self::Verdicts(verdicts) => Some(verdicts.route),
            Self::Spoe(spoe) => Some(spoe.route),
        }
    }
}

/// Messages of HAProxy's SPOE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoe {
    /// Has the time for an answer, and the treatment of messages without a verdict.
    pub(crate) route: RouteId,
    /// By name: the routes with the firewalls of applications.
    pub(crate) applications: Arc<[(String, RouteId)]>,
    /// For messages that name none of the applications. `None`: such a message is an error.
    pub(crate) default: Option<RouteId>,
    /// `None`: no messages with responses are expected.
    pub(crate) responses: Option<ExpectedResponses>,
}

impl Spoe {
    /// The route with the firewall for a message that names `application`.
    pub(crate) fn route_of(&self, application: &[u8]) -> Option<RouteId> {
        let mut named = self.applications.iter();
        let named = named.find(|(name, _)| name.as_bytes() == application);
        named.map(|(_, route)| *route).or(self.default)
    }
}

/// Responses whose messages requests wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedResponses {
    pub(crate) timeout: Duration,
    /// Requests that wait.
    pub(crate) max: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdicts {
    /// Has the firewall, and the response to requests that pass.
    pub(crate) route: RouteId,
    pub(crate) description: Arc<Description>,
}

/// The way in which a request describes another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Description {
    /// By its own head, but for some parts that are in headers.
    ForwardAuth(ForwardAuth),
    /// As bouncers of CrowdSec describe requests to its AppSec component.
    AppSec(ApiKeys),
}

/// CrowdSec's local API, which knows keys of bouncers, and takes alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalApi {
    pub(crate) address: ApiAddress,
    /// `Host` of requests.
    pub(crate) host: String,
    /// Path in front of those of requests, without a slash at its end.
    pub(crate) base_path: String,
    pub(crate) tls: Option<ApiTls>,
    /// `None`: no alerts are sent.
    pub(crate) machine: Option<Machine>,
    /// For the check of a key.
    pub(crate) timeout: Duration,
}

/// TLS with the local API, for the name in its address.
#[derive(Clone, Debug)]
pub(crate) struct ApiTls {
    pub(crate) client: TlsClient,
    /// Content of the file with the authorities. `None`: those of the system.
    pub(crate) ca: Option<Vec<u8>>,
}

/// Equal after a reload of the same files, unlike [`TlsClient`], so that the keys that were checked remain known.
impl PartialEq for ApiTls {
    fn eq(&self, other: &Self) -> bool {
        self.ca == other.ca
    }
}

impl Eq for ApiTls {}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiAddress {
    Known(Address),
    /// Resolved for each request.
    Name(HostName),
}

/// Account at the local API.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) login: String,
    pub(crate) password: String,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("login", &self.login).finish_non_exhaustive()
    }
}

/// Keys of bouncers.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ApiKeys(Vec<String>);

impl ApiKeys {
    pub(crate) fn new(keys: Vec<String>) -> Self {
        Self(keys)
    }

    /// Takes the same time for all keys of the same length.
    pub(crate) fn contain(&self, key: &[u8]) -> bool {
        let is_same = |known: &String| known.as_bytes().ct_eq(key);
        self.0.iter().map(is_same).fold(Choice::from(0), |any, same| any | same).into()
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

/// Headers that have parts of the described request, in lower case. `None`: the request itself has the part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForwardAuth {
    pub(crate) method: Option<String>,
    pub(crate) uri: Option<String>,
    pub(crate) host: Option<String>,
    /// The last address in it counts.
    pub(crate) client: Option<String>,
}

impl ForwardAuth {
    /// Returns the headers in which a proxy describes a request.
    pub(crate) fn of(proxy: AskingProxy) -> Self {
        let [method, uri, host, client] = match proxy {
            AskingProxy::Nginx => ["x-original-method", "x-original-uri", "", "x-real-ip"],
            AskingProxy::Traefik | AskingProxy::Caddy => {
                ["x-forwarded-method", "x-forwarded-uri", "x-forwarded-host", "x-forwarded-for"]
            }
            AskingProxy::Envoy => ["", "", "", "x-forwarded-for"],
        };
        let header = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        Self {
            method: header(method),
            uri: header(uri),
            host: header(host),
            client: header(client),
        }
    }
}
