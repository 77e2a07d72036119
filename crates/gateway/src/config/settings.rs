//! The validated configuration of a gateway: listeners, timeouts and limits. Past this module nothing is checked again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tollgate_accesslog::{LogFormat, LogTarget};
use tollgate_acme::Proofs;
use tollgate_firewall::config::Page;
use tollgate_net::Address;
use tollgate_tls::{ManagedCertificate, TlsServer};
use tollgate_waf::CollectionLimits;

use super::networks::Networks;
use super::pool::{Backend, Pool, PoolId, Target, expand};
use super::route::{Forwarded, Requests, Route};
use super::serve::{LocalApi, Service};
use super::timeouts::Timeouts;
use crate::resolve::{Addresses, Resolve};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// At least one.
    pub listeners: Vec<Listener>,
    pub routes: Vec<Route>,
    /// [`PoolId`] is an index into this list.
    pub pools: Vec<Pool>,
    pub resolve: Resolve,
    pub timeouts: Timeouts,
    pub limits: Limits,
    pub requests: Requests,
    pub forwarded: Forwarded,
    /// Bodies of the gateway's own errors, by status.
    pub error_pages: BTreeMap<u16, Page>,
    pub access_log: Option<AccessLog>,
    pub audit_log: Option<AuditLog>,
    /// CrowdSec's local API, for listeners that give verdicts.
    pub local_api: Option<LocalApi>,
    /// Certificates that an authority issues. `None`: all are in files.
    pub acme: Option<Acme>,
    /// Address of the admin server: `/metrics` and `/healthz`.
    pub admin: Option<SocketAddr>,
    pub threads: NonZeroUsize,
    /// Problems of the file that do not prevent its use, such as an expired certificate, and the rule set that `crs` is.
    pub warnings: Vec<String>,
}

impl Config {
    /// One thread, one listener and one backend, with the default timeouts and limits and without an
    /// access log.
    pub fn new(listen: Address, backend: Address) -> Self {
        Self {
            listeners: vec![Listener::new(listen)],
            routes: vec![Route::all_to(PoolId(0))],
            pools: vec![Pool::new("default", vec![Backend::new(backend)])],
            resolve: Resolve::default(),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            requests: Requests::default(),
            forwarded: Forwarded::default(),
            error_pages: BTreeMap::new(),
            access_log: None,
            audit_log: None,
            local_api: None,
            acme: None,
            admin: None,
            threads: NonZeroUsize::MIN,
            warnings: Vec::new(),
        }
    }

    /// The names of backends with their addresses.
    pub(crate) fn names(&self) -> Addresses {
        let declared = self.pools.iter().flat_map(|pool| &pool.declared);
        declared
            .filter_map(|backend| match &backend.target {
                Target::Name(name, addresses) => Some((name.clone(), addresses.clone())),
                Target::Address(_) => None,
            })
            .collect()
    }

    /// Continues with the keys of the session tickets of an earlier configuration.
    pub(crate) fn inherit_tickets(&mut self, old: &Self) {
        for listener in &mut self.listeners {
            let same = old.listeners.iter().find(|other| other.address == listener.address);
            if let (Some(tls), Some(old)) =
                (&mut listener.tls, same.and_then(|old| old.tls.as_ref()))
            {
                tls.inherit_tickets(old);
            }
        }
    }

    /// Changes the addresses of names.
    pub(crate) fn set_addresses(&mut self, names: &Addresses) {
        for pool in self.pools.iter_mut().filter(|pool| !pool.declared.is_empty()) {
            for backend in &mut pool.declared {
                if let Target::Name(name, addresses) = &mut backend.target
                    && let Some(new) = names.get(name)
                {
                    addresses.clone_from(new);
                }
            }
            pool.backends = expand(&pool.declared);
        }
        for route in &mut self.routes {
            if let (Some(pool), Some(location)) = (route.pool(), &mut route.location) {
                location.authorities = self.pools[pool.0].authorities();
            }
        }
    }
}

/// The certificates that an authority issues.
#[derive(Clone, Debug)]
pub struct Acme {
    pub(crate) settings: tollgate_acme::Settings,
    /// Their places, in the TLS of listeners.
    pub(crate) certificates: Vec<Arc<ManagedCertificate>>,
    pub(crate) proofs: Arc<Proofs>,
}

impl PartialEq for Acme {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings && Arc::ptr_eq(&self.proofs, &other.proofs)
    }
}

impl Eq for Acme {}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub address: Address,
    pub backlog: u32,
    pub defer_accept: bool,
    /// `None`: plain HTTP.
    pub tls: Option<TlsServer>,
    /// HTTP/2 beside HTTP/1.1.
    pub http2: bool,
    /// Peers whose connections begin with a header of the PROXY protocol; those of others are closed. `None`: no
    /// connection does.
    pub proxy_protocol: Option<Networks>,
    pub service: Service,
}

/// A listener for HAProxy's SPOE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoeListener<'a> {
    pub address: &'a Address,
    /// Longest time until an answer.
    pub budget: Duration,
    /// Requests wait for the messages of their responses.
    pub inspects_responses: bool,
    /// Name of one of its applications, if it has any.
    pub application: Option<&'a str>,
}

impl Config {
    /// The listeners for HAProxy's SPOE, with the values that a configuration of HAProxy needs.
    pub fn spoe_listeners(&self) -> impl Iterator<Item = SpoeListener<'_>> {
        self.listeners.iter().filter_map(|listener| {
            let Service::Spoe(spoe) = &listener.service else { return None };
            Some(SpoeListener {
                address: &listener.address,
                // A deadline is noticed up to a quarter late.
                budget: self.routes[spoe.route.0].timeouts(&self.timeouts).response * 5 / 4,
                inspects_responses: spoe.responses.is_some(),
                application: spoe.applications.first().map(|(name, _)| &**name),
            })
        })
    }
}

impl Listener {
    pub(crate) const DEFAULT_BACKLOG: u32 = 4096;

    /// Plain HTTP/1.1 with the default backlog.
    pub fn new(address: Address) -> Self {
        Self {
            address,
            backlog: Self::DEFAULT_BACKLOG,
            defer_accept: false,
            tls: None,
            http2: false,
            proxy_protocol: None,
            service: Service::Routes,
        }
    }

    /// The backlog as `listen(2)` takes it.
    pub(crate) fn backlog(&self) -> i32 {
        self.backlog.try_into().unwrap_or(i32::MAX)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub header_bytes: usize,
    pub headers: usize,
    pub response_headers: usize,
    /// Size of a request body. `None`: unlimited.
    pub body_bytes: Option<u64>,
    /// Client connections per thread.
    pub connections: usize,
    /// Connections per client network and thread. `None`: unlimited.
    pub connections_per_client: Option<usize>,
    /// Clients that are remembered for the limits of routes, for all threads.
    pub clients: usize,
    /// Responses that are compressed at once, for all threads.
    pub compressed_responses: usize,
    /// Requests at once of a client's connection over HTTP/2.
    pub http2_streams: u32,
    /// Bytes of a request body that a client may send ahead of the backend, on a stream and on a connection of HTTP/2.
    pub http2_stream_window: u32,
    pub http2_connection_window: u32,
    /// Memory of bodies held for inspection, in bytes, per thread.
    pub held_body_bytes: usize,
    /// Persistent collections of the firewall's rules, for all threads.
    pub collections: CollectionLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 16 * 1024,
            headers: 100,
            response_headers: 100,
            body_bytes: None,
            connections: 16_384,
            connections_per_client: None,
            clients: 100_000,
            compressed_responses: 128,
            http2_streams: 100,
            http2_stream_window: 64 << 10,
            http2_connection_window: 1 << 20,
            held_body_bytes: 256 << 20,
            collections: CollectionLimits::default(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    pub to: LogTarget,
    pub format: LogFormat,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLog {
    pub to: LogTarget,
    /// Logs transactions without a match, too.
    pub all: bool,
    /// In lower case.
    pub masked: Vec<String>,
}
