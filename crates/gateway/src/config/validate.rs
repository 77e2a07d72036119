//! Validates a configuration file into a [`Config`]. No later code checks it again.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::{Ipv6Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::time::Duration;

use tollgate_http1::{MAX_HEAD_BYTES, MAX_HEADERS};

use super::error::{InvalidValue, suggestion};
use super::file::{
    AccessLogFile, BackendFile, BalanceFile, ConfigFile, EjectionFile, ForwardedFile, HashByFile,
    HeaderEditsFile, HealthFile, HumanDuration, LimitsFile, ListenerFile, Located, LogFormatFile,
    PoolFile, ProtocolFile, RequestsFile, ResolveFile, RouteFile, TimeoutsFile,
};
use super::tls::{PoolTls, listener_tls};
use super::waf::{RuleCache, audit_log};
use super::{
    AccessLog, Address, Balance, Config, DeclaredBackend, Ejection, Forwarded, HashBy, HeaderEdits,
    HealthCheck, HostPattern, Limits, Listener, LogFormat, LogTarget, Pool, PoolId, Protocol,
    REQUEST_OVERRIDES, Requests, Resolve, Route, Target, Timeouts, expand,
};
use crate::path::readings;
use crate::resolve::{Addresses, HostName, Resolver};

const THREADS_MAX: u16 = 256;
const DURATION_MIN: Duration = Duration::from_millis(1);
const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The smallest limit that leaves room for an ordinary request.
const HEADER_BYTES_MIN: usize = 256;
/// Longest path of a Unix domain socket, without the final NUL (`unix(7)`).
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Each choice looks at all backends of a pool.
const BACKENDS_MAX: usize = 1024;
const WEIGHT_MAX: u32 = 1000;
const RETRIES_MAX: u32 = 10;
const STREAMS_MAX: u32 = 1000;
/// Longest series of successes or failures that a health check or an ejection may require.
const CONSECUTIVE_MAX: u32 = 1000;

const HEALTH_INTERVAL: Duration = Duration::from_secs(5);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
const HEALTH_RISE: u32 = 2;
const HEALTH_FALL: u32 = 3;
const EJECT_FAILURES: u32 = 5;
const EJECT_DURATION: Duration = Duration::from_secs(10);

/// Headers about one connection or about message framing, which the gateway itself writes.
const OWN_HEADERS: &str = "connection content-length expect keep-alive proxy-connection te trailer \
                           transfer-encoding upgrade via";

/// Files and names that a configuration needs. Those that cannot be read or resolved are collected, so that all are
/// reported at once.
pub(super) struct Resources<'a> {
    pub(super) folder: &'a Path,
    resolve: Resolve,
    addresses: Addresses,
    failures: Vec<InvalidValue>,
    /// Problems that do not prevent the use of the configuration.
    pub(super) warnings: Vec<InvalidValue>,
}

impl Resources<'_> {
    pub(super) fn collect<T>(&mut self, result: Result<T, InvalidValue>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(failure) => {
                // Routes can share a faulty rule file.
                if !self.failures.iter().any(|other| other.is_same(&failure)) {
                    self.failures.push(failure);
                }
                None
            }
        }
    }

    /// Returns no address if the name cannot be resolved.
    fn addresses(&mut self, name: &HostName, at: &Located<String>) -> Vec<SocketAddr> {
        if let Some(known) = self.addresses.get(name) {
            return known.clone();
        }
        let resolved = self.resolve.resolver.resolve(name, self.resolve.family).map_err(|source| {
            let message = format!(
                "cannot resolve `{name}`, the `address` of a backend; check the name, or write an IP address"
            );
            InvalidValue::at(at, message).with_source(source)
        });
        let addresses = self.collect(resolved).unwrap_or_default();
        self.addresses.insert(name.clone(), addresses.clone());
        addresses
    }
}

/// Validates a file. Relative paths are resolved against `folder`. Returns warnings, too.
pub(super) fn validate(
    file: &ConfigFile,
    folder: &Path,
    resolver: Resolver,
) -> Result<(Config, Vec<InvalidValue>), Vec<InvalidValue>> {
    let resolve = resolve(file.resolve.as_ref(), resolver).map_err(|error| vec![error])?;
    let addresses = Addresses::new();
    let (failures, warnings) = (Vec::new(), Vec::new());
    let mut resources = Resources { folder, resolve, addresses, failures, warnings };
    match validate_values(file, &mut resources) {
        Ok(config) if resources.failures.is_empty() => Ok((config, resources.warnings)),
        result => {
            resources.failures.extend(result.err());
            Err(resources.failures)
        }
    }
}

fn validate_values(
    file: &ConfigFile,
    resources: &mut Resources<'_>,
) -> Result<Config, InvalidValue> {
    let folder = resources.folder;
    let threads = number(&file.threads, 1, Some(THREADS_MAX), 1)?;
    let threads = NonZeroUsize::new(threads.into()).unwrap_or(NonZeroUsize::MIN);
    let listeners = listeners(&file.listeners, resources)?;
    let pools = pools(&file.pools, resources, threads)?;
    let mut rules = RuleCache::default();
    let mut routes = routes(file.routes.as_ref(), &file.pools, &pools)?;
    for (at, route) in routes.iter_mut().enumerate() {
        let route_file = file.routes.as_ref().and_then(|files| files.get(at));
        let waf = route_file.and_then(|file| file.waf.as_ref());
        let waf = rules.waf(waf, file.waf.as_ref(), folder);
        route.waf = resources.collect(waf).flatten();
    }
    let admin = file.admin.as_ref().map(|text| admin(text, &listeners)).transpose()?;
    let forwarded = file.forwarded.as_ref().map_or(Ok(Forwarded::default()), forwarded)?;
    Ok(Config {
        listeners,
        routes,
        pools,
        resolve: resources.resolve.clone(),
        timeouts: file.timeouts.as_ref().map_or(Ok(Timeouts::default()), timeouts)?,
        limits: limits(file.limits.as_ref().unwrap_or(&LimitsFile::default()), threads)?,
        requests: requests(file.requests.as_ref().unwrap_or(&RequestsFile::default()), &forwarded)?,
        forwarded,
        access_log: file.access_log.as_ref().map(|log| access_log(log, folder)).transpose()?,
        audit_log: file.audit_log.as_ref().map(|log| audit_log(log, folder)).transpose()?,
        admin,
        threads,
        warnings: Vec::new(),
    })
}

fn listeners(
    files: &Located<Vec<ListenerFile>>,
    resources: &mut Resources<'_>,
) -> Result<Vec<Listener>, InvalidValue> {
    if files.is_empty() {
        return Err(InvalidValue::at(files, "`listeners` is empty; add at least one address"));
    }
    let mut listeners: Vec<Listener> = Vec::with_capacity(files.len());
    for file in files.iter() {
        let address = address(&file.address, resources.folder)?;
        let is_same = |other: &Listener| other.address == address && !is_ephemeral_port(&address);
        if let Some(first) = listeners.iter().position(is_same) {
            let advice = "remove one of them";
            return Err(duplicate("listener", &file.address, &files[first].address, advice));
        }
        if let (Some(defer), Address::Unix(_)) = (&file.defer_accept, &address)
            && **defer
        {
            let message = "`defer_accept` is not available on a unix socket; remove it";
            return Err(InvalidValue::at(defer, message));
        }
        let http2 = file.http2.unwrap_or(file.tls.is_some());
        listeners.push(Listener {
            address,
            backlog: number(&file.backlog, 1, Some(u16::MAX.into()), Listener::DEFAULT_BACKLOG)?,
            defer_accept: file.defer_accept.as_deref().is_some_and(|defer| *defer),
            tls: file.tls.as_ref().and_then(|tls| listener_tls(tls, http2, resources)),
            http2,
        });
    }
    Ok(listeners)
}

/// Each listener on port 0 gets its own free port.
fn is_ephemeral_port(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.port() == 0)
}

fn admin(text: &Located<String>, listeners: &[Listener]) -> Result<SocketAddr, InvalidValue> {
    let Ok(address) = text.parse() else {
        let message = format!("`{}` is not an address and port such as 127.0.0.1:9900", **text);
        return Err(InvalidValue::at(text, message));
    };
    let same = Address::Tcp(address);
    if listeners.iter().any(|listener| listener.address == same && !is_ephemeral_port(&same)) {
        let message = format!("a listener already uses `{address}`; choose another port");
        return Err(InvalidValue::at(text, message));
    }
    Ok(address)
}

fn address(text: &Located<String>, folder: &Path) -> Result<Address, InvalidValue> {
    let address = text.parse().map_err(|error| {
        InvalidValue::at(text, format!("`{}` is not an address: {error}", **text))
    })?;
    let Address::Unix(path) = address else {
        return Ok(address);
    };
    let path = folder.join(path);
    let path_bytes = path.as_os_str().len();
    if path_bytes > SOCKET_PATH_BYTES_MAX {
        let message = format!(
            "the socket path `{}` has {path_bytes} bytes, more than {SOCKET_PATH_BYTES_MAX}; choose a shorter one",
            path.display(),
        );
        return Err(InvalidValue::at(text, message));
    }
    Ok(Address::Unix(path))
}

fn pools(
    files: &Located<Vec<PoolFile>>,
    resources: &mut Resources<'_>,
    threads: NonZeroUsize,
) -> Result<Vec<Pool>, InvalidValue> {
    if files.is_empty() {
        return Err(InvalidValue::at(files, "`pools` is empty; add at least one backend"));
    }
    let mut pools: Vec<Pool> = Vec::with_capacity(files.len());
    for file in files.iter() {
        if let Some(first) = pools.iter().position(|pool| pool.name == *file.name) {
            return Err(duplicate("pool", &file.name, &files[first].name, "rename one of them"));
        }
        pools.push(pool(file, resources, threads)?);
    }
    Ok(pools)
}

fn pool(
    file: &PoolFile,
    resources: &mut Resources<'_>,
    threads: NonZeroUsize,
) -> Result<Pool, InvalidValue> {
    if file.name.is_empty() || file.name.chars().any(char::is_control) {
        let message = "the name of a pool must not be empty or contain control characters";
        return Err(InvalidValue::at(&file.name, message));
    }
    let keepalive_max = file.keepalive_max.unwrap_or(Pool::DEFAULT_KEEPALIVE_MAX);
    let queue_max = file.queue_max.unwrap_or(Pool::DEFAULT_QUEUE_MAX);
    let protocol = protocol(file)?;
    let tls = file.tls.as_ref().and_then(|tls| PoolTls::read(tls, protocol, resources));
    let mut declared = backends(&file.backends, tls.as_ref(), resources)?;
    let backends = expand(&declared);
    if !declared.iter().any(|backend| matches!(backend.target, Target::Name(..))) {
        declared.clear();
    }
    Ok(Pool {
        name: (*file.name).clone(),
        balance: file.balance.as_ref().map_or(Ok(Balance::RoundRobin), balance)?,
        backends,
        protocol,
        declared,
        keepalive_max: keepalive_max.div_ceil(threads.get()),
        connections_max: file
            .connections_max
            .as_ref()
            .map(|count| connections_max(count, threads))
            .transpose()?,
        queue_max: queue_max.div_ceil(threads.get()),
        queue_timeout: duration(&file.queue_timeout, Pool::DEFAULT_QUEUE_TIMEOUT)?,
        close_after_head: file.close_after_head.as_deref().is_some_and(|closes| *closes),
        health: file.health.as_ref().map(health).transpose()?,
        eject: file.eject.as_ref().map(ejection).transpose()?,
        retries: number(&file.retries, 0, Some(RETRIES_MAX), Pool::DEFAULT_RETRIES)?,
    })
}

fn protocol(file: &PoolFile) -> Result<Protocol, InvalidValue> {
    let default = Pool::DEFAULT_STREAMS_MAX;
    let streams_max = number(&file.streams_max, 1, Some(STREAMS_MAX), default)?;
    match (file.protocol.unwrap_or(ProtocolFile::Http1), &file.streams_max, &file.close_after_head)
    {
        (ProtocolFile::Http1, Some(streams_max), _) => {
            let message = "`streams_max` has no effect without `protocol: h2`; remove it";
            Err(InvalidValue::at(streams_max, message))
        }
        (ProtocolFile::Http1, None, _) => Ok(Protocol::Http1),
        (ProtocolFile::Http2, _, Some(closes)) if **closes => {
            let message = "`close_after_head` has no effect with `protocol: h2`, where each response has its own \
                           stream; remove it";
            Err(InvalidValue::at(closes, message))
        }
        (ProtocolFile::Http2, ..) => Ok(Protocol::Http2 { streams_max }),
    }
}

fn balance(file: &BalanceFile) -> Result<Balance, InvalidValue> {
    Ok(match file {
        BalanceFile::RoundRobin => Balance::RoundRobin,
        BalanceFile::LeastConnections => Balance::LeastConnections,
        BalanceFile::RandomOfTwo => Balance::RandomOfTwo,
        BalanceFile::ConsistentHash(HashByFile::Client) => {
            Balance::ConsistentHash { by: HashBy::Client }
        }
        BalanceFile::ConsistentHash(HashByFile::Header(name)) => {
            check_header_name(name, name)?;
            Balance::ConsistentHash { by: HashBy::Header(name.to_ascii_lowercase()) }
        }
    })
}

/// Share of one thread, rounded down so that all threads together stay within the limit.
fn connections_max(
    count: &Located<u32>,
    threads: NonZeroUsize,
) -> Result<NonZeroU32, InvalidValue> {
    let total = number(count, 1, None, 0)?;
    let share = total / u32::try_from(threads.get()).unwrap_or(u32::MAX);
    NonZeroU32::new(share).ok_or_else(|| {
        let message = format!(
            "{total} connections cannot be divided among {threads} threads; allow at least one per thread"
        );
        InvalidValue::at(count, message)
    })
}

fn backends(
    files: &Located<Vec<BackendFile>>,
    tls: Option<&PoolTls<'_>>,
    resources: &mut Resources<'_>,
) -> Result<Vec<DeclaredBackend>, InvalidValue> {
    if !(1..=BACKENDS_MAX).contains(&files.len()) {
        let message = format!("expected 1 to {BACKENDS_MAX} backends, found {}", files.len());
        return Err(InvalidValue::at(files, message));
    }
    let mut backends: Vec<DeclaredBackend> = Vec::with_capacity(files.len());
    for file in files.iter() {
        let target = target(&file.address, resources)?;
        if let Some(first) = backends.iter().position(|backend| backend.target == target) {
            let advice = "remove one and raise the weight of the other";
            return Err(duplicate("backend", &file.address, &files[first].address, advice));
        }
        let weight = number(&file.weight, 0, Some(WEIGHT_MAX), 1)?;
        let tls = tls.map(|tls| tls.client(&target, &file.address)).transpose()?;
        backends.push(DeclaredBackend { target, weight, tls });
    }
    if backends.iter().all(|backend| backend.weight == 0) {
        let message = "all backends have weight 0; give at least one of them a weight";
        return Err(InvalidValue::at(files, message));
    }
    Ok(backends)
}

/// An address, or a name and its addresses.
fn target(text: &Located<String>, resources: &mut Resources<'_>) -> Result<Target, InvalidValue> {
    let error = match address(text, resources.folder) {
        Ok(address) => return Ok(Target::Address(address)),
        Err(error) => error,
    };
    if text.starts_with("unix:") {
        return Err(error);
    }
    let Some(name) = HostName::parse(text) else {
        let message = format!(
            "`{}` is not an address: expected ADDRESS:PORT, such as 127.0.0.1:8080, NAME:PORT, such as \
             backend.example:8080, or unix:/path/to/socket",
            **text
        );
        return Err(InvalidValue::at(text, message));
    };
    let addresses = resources.addresses(&name, text);
    Ok(Target::Name(name, addresses))
}

fn resolve(file: Option<&ResolveFile>, resolver: Resolver) -> Result<Resolve, InvalidValue> {
    let default = Resolve { resolver, ..Resolve::default() };
    let Some(file) = file else { return Ok(default) };
    Ok(Resolve {
        interval: duration(&file.interval, default.interval)?,
        family: file.family.unwrap_or_default(),
        ..default
    })
}

fn health(file: &HealthFile) -> Result<HealthCheck, InvalidValue> {
    let interval = duration(&file.interval, HEALTH_INTERVAL)?;
    if let Some(timeout) = &file.timeout
        && timeout.0.value.0 > interval
    {
        let message =
            "the timeout is longer than the interval; shorten the timeout or lengthen the interval";
        return Err(InvalidValue::at(timeout, message));
    }
    Ok(HealthCheck {
        path: path(&file.path, "#")?,
        interval,
        timeout: duration(&file.timeout, HEALTH_TIMEOUT.min(interval))?,
        rise: number(&file.rise, 1, Some(CONSECUTIVE_MAX), HEALTH_RISE)?,
        fall: number(&file.fall, 1, Some(CONSECUTIVE_MAX), HEALTH_FALL)?,
    })
}

fn ejection(file: &EjectionFile) -> Result<Ejection, InvalidValue> {
    Ok(Ejection {
        failures: number(&file.failures, 1, Some(CONSECUTIVE_MAX), EJECT_FAILURES)?,
        duration: duration(&file.duration, EJECT_DURATION)?,
    })
}

/// Without routes, the only pool receives all requests.
fn routes(
    files: Option<&Located<Vec<RouteFile>>>,
    pool_files: &Located<Vec<PoolFile>>,
    pools: &[Pool],
) -> Result<Vec<Route>, InvalidValue> {
    let Some(files) = files.filter(|files| !files.is_empty()) else {
        return match pools {
            [_] => Ok(vec![Route::all_to(PoolId(0))]),
            _ => Err(InvalidValue::at(
                pool_files,
                "several pools but no routes; add routes that name the pools",
            )),
        };
    };
    let mut routes: Vec<Route> = Vec::with_capacity(files.len());
    for file in files.iter() {
        let route = route(file, pools)?;
        let is_same =
            |other: &Route| (&other.host, &other.path_prefix) == (&route.host, &route.path_prefix);
        if let Some(first) = routes.iter().position(is_same) {
            return Err(InvalidValue::at(
                &file.pool,
                format!(
                    "duplicate route: the one in line {} has the same host and path; remove one of them",
                    files[first].pool.line()
                ),
            ));
        }
        routes.push(route);
    }
    Ok(routes)
}

fn route(file: &RouteFile, pools: &[Pool]) -> Result<Route, InvalidValue> {
    let Some(pool) = pools.iter().position(|pool| pool.name == *file.pool) else {
        let hint = suggestion(&file.pool, pools.iter().map(|pool| pool.name.as_str()));
        return Err(InvalidValue::at(&file.pool, format!("unknown pool `{}`{hint}", *file.pool)));
    };
    let edits = |file: &Option<_>| file.as_ref().map_or(Ok(HeaderEdits::default()), header_edits);
    Ok(Route {
        host: file.host.as_ref().map_or(Ok(HostPattern::Any), host)?,
        path_prefix: file.path.as_ref().map_or(Ok("/".to_owned()), path_prefix)?,
        pool: PoolId(pool),
        rewrite: file.rewrite.as_ref().map(|text| path(text, "?#")).transpose()?,
        request_headers: edits(&file.request_headers)?,
        response_headers: edits(&file.response_headers)?,
        waf: None,
    })
}

fn host(text: &Located<String>) -> Result<HostPattern, InvalidValue> {
    let lower = text.to_ascii_lowercase();
    if lower == "*" {
        return Ok(HostPattern::Any);
    }
    let (name, is_wildcard) = match lower.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (lower.as_str(), false),
    };
    let is_v6 = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
    let is_name = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    match (is_name, is_v6, is_wildcard) {
        (true, _, true) => Ok(HostPattern::Below(name.to_owned())),
        (true, _, false) | (_, true, false) => Ok(HostPattern::Exact(name.to_owned())),
        _ => Err(InvalidValue::at(
            text,
            format!(
                "`{}` is not a host: write example.org, *.example.org for its subdomains, or * for every host, \
                 without a port",
                **text
            ),
        )),
    }
}

fn path_prefix(text: &Located<String>) -> Result<String, InvalidValue> {
    let prefix = path(text, "?#")?;
    // Requests are matched by normalized path, so a prefix that is not normalized would match none.
    if let Some(other) = readings(&prefix).find(|reading| *reading != prefix) {
        let message = format!(
            "`{prefix}` can be read as `{other}`: write it without needless escapes, empty segments, . and .., and \
             without %2F, %5C, \\ and ;"
        );
        return Err(InvalidValue::at(text, message));
    }
    Ok(prefix)
}

/// A path that can be sent as a request target, without these characters.
fn path(text: &Located<String>, forbidden: &str) -> Result<String, InvalidValue> {
    let is_allowed = |c: char| c.is_ascii_graphic() && !forbidden.contains(c);
    if text.starts_with('/') && text.chars().all(is_allowed) {
        return Ok((**text).clone());
    }
    let forbidden: String = forbidden.chars().map(|c| format!("{c}, ")).collect();
    let message = format!(
        "`{}` is not a path: it must begin with / and contain no {forbidden}spaces or control characters",
        **text
    );
    Err(InvalidValue::at(text, message))
}

fn header_edits(file: &HeaderEditsFile) -> Result<HeaderEdits, InvalidValue> {
    let mut names = BTreeSet::new();
    let mut edits = HeaderEdits::default();
    for (name, value) in file.set.iter().flatten() {
        check_edited_name(name, value, &mut names)?;
        let is_value_byte = |byte: u8| byte == b'\t' || byte == b' ' || byte.is_ascii_graphic();
        if !value.bytes().all(is_value_byte) {
            let message =
                format!("the value of `{name}` must not contain line breaks or control characters");
            return Err(InvalidValue::at(value, message));
        }
        edits.set.push((name.clone(), value.trim().to_owned()));
    }
    edits.remove = removed_headers(file.remove.as_deref().unwrap_or_default(), &mut names)?;
    Ok(edits)
}

/// Names of headers to remove, in lower case.
fn removed_headers(
    files: &[Located<String>],
    names: &mut BTreeSet<String>,
) -> Result<Vec<String>, InvalidValue> {
    let name = |name: &Located<String>| {
        check_edited_name(name, name, names)?;
        if name.eq_ignore_ascii_case("host") {
            return Err(InvalidValue::at(name, "`Host` cannot be removed; set it instead"));
        }
        Ok(name.to_ascii_lowercase())
    };
    files.iter().map(name).collect()
}

fn check_edited_name<T>(
    name: &str,
    at: &Located<T>,
    names: &mut BTreeSet<String>,
) -> Result<(), InvalidValue> {
    check_header_name(name, at)?;
    let lower = name.to_ascii_lowercase();
    if OWN_HEADERS.split(' ').any(|own| own == lower) {
        let message = format!("`{name}` is written by the gateway itself; remove it");
        return Err(InvalidValue::at(at, message));
    }
    if !names.insert(lower) {
        return Err(InvalidValue::at(at, format!("duplicate header `{name}`; remove one of them")));
    }
    Ok(())
}

pub(super) fn check_header_name<T>(name: &str, at: &Located<T>) -> Result<(), InvalidValue> {
    if is_token(name) {
        return Ok(());
    }
    Err(InvalidValue::at(at, format!("`{name}` is not a header name such as X-Served-By")))
}

/// A token of RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    let is_token_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token_byte)
}

fn timeouts(file: &TimeoutsFile) -> Result<Timeouts, InvalidValue> {
    let default = Timeouts::default();
    Ok(Timeouts {
        connect: duration(&file.connect, default.connect)?,
        header: duration(&file.header, default.header)?,
        body: duration(&file.body, default.body)?,
        body_rate: file.body_rate.map_or(default.body_rate, NonZeroU32::new),
        response: duration(&file.response, default.response)?,
        abandoned: duration(&file.abandoned, default.abandoned)?,
        idle: duration(&file.idle, default.idle)?,
        tunnel: duration(&file.tunnel, default.tunnel)?,
        drain: duration(&file.drain, default.drain)?,
    })
}

fn limits(file: &LimitsFile, threads: NonZeroUsize) -> Result<Limits, InvalidValue> {
    let default = Limits::default();
    let connections = number(&file.connections, threads.get(), None, default.connections)?;
    Ok(Limits {
        header_bytes: number(
            &file.header_bytes,
            HEADER_BYTES_MIN,
            Some(MAX_HEAD_BYTES),
            default.header_bytes,
        )?,
        headers: number(&file.headers, 1, Some(MAX_HEADERS), default.headers)?,
        response_headers: number(
            &file.response_headers,
            1,
            Some(MAX_HEADERS),
            default.response_headers,
        )?,
        body_bytes: file.body_bytes,
        connections: connections / threads,
        connections_per_client: file
            .connections_per_client
            .as_ref()
            .map(|count| number(count, 1, None, 0))
            .transpose()?,
        held_body_bytes: number(&file.held_body_bytes, 1, None, default.held_body_bytes)? / threads,
    })
}

fn requests(file: &RequestsFile, forwarded: &Forwarded) -> Result<Requests, InvalidValue> {
    let default = Requests::default();
    let upgrades = file.upgrades.as_ref().map(|upgrades| upgrades.iter().map(upgrade).collect());
    let remove_headers = match &file.remove_headers {
        Some(names) => removed_headers(names, &mut BTreeSet::new())?,
        None if forwarded.trust_client => REQUEST_OVERRIDES.map(str::to_owned).to_vec(),
        None => default.remove_headers,
    };
    Ok(Requests {
        path: file.path.unwrap_or_default(),
        trace: file.trace.unwrap_or(default.trace),
        upgrades: upgrades.unwrap_or(Ok(default.upgrades))?,
        half_close: file.half_close.unwrap_or(default.half_close),
        underscores: file.underscores.unwrap_or(default.underscores),
        remove_headers,
    })
}

fn upgrade(protocol: &Located<String>) -> Result<String, InvalidValue> {
    let lower = protocol.to_ascii_lowercase();
    if lower.starts_with("h2") {
        let message = format!("`{}` would let requests bypass the gateway; remove it", **protocol);
        return Err(InvalidValue::at(protocol, message));
    }
    if !lower.split('/').all(is_token) {
        let message = format!("`{}` is not a protocol such as websocket", **protocol);
        return Err(InvalidValue::at(protocol, message));
    }
    Ok(lower)
}

fn forwarded(file: &ForwardedFile) -> Result<Forwarded, InvalidValue> {
    if let Some(via) = &file.via
        && !is_token(via)
    {
        let message = format!(
            "`{}` is not a name for `Via`: use letters, digits and -._~, or `null` to send no `Via`",
            **via
        );
        return Err(InvalidValue::at(via, message));
    }
    let default = Forwarded::default();
    Ok(Forwarded {
        via: file.via.as_ref().map(|via| (**via).clone()),
        x_forwarded: file.x_forwarded.unwrap_or(default.x_forwarded),
        forwarded: file.forwarded.unwrap_or(default.forwarded),
        trust_client: file.trust_client.unwrap_or(default.trust_client),
    })
}

fn access_log(file: &AccessLogFile, folder: &Path) -> Result<AccessLog, InvalidValue> {
    let to = log_target(&file.to, folder)?;
    let format = match file.format {
        None | Some(LogFormatFile::Combined) => LogFormat::Combined,
        Some(LogFormatFile::Json) => LogFormat::Json,
    };
    Ok(AccessLog { to, format })
}

pub(super) fn log_target(to: &Located<String>, folder: &Path) -> Result<LogTarget, InvalidValue> {
    match to.as_str() {
        "" => Err(InvalidValue::at(to, "`to` is empty; name a file or `stdout`")),
        "stdout" => Ok(LogTarget::Stdout),
        path => Ok(LogTarget::File(folder.join(path))),
    }
}

fn duplicate(
    kind: &str,
    value: &Located<String>,
    first: &Located<String>,
    advice: &str,
) -> InvalidValue {
    let (name, line) = (&**value, first.line());
    InvalidValue::at(value, format!("duplicate {kind} `{name}`, first in line {line}; {advice}"))
}

fn duration(
    value: &Option<Located<HumanDuration>>,
    default: Duration,
) -> Result<Duration, InvalidValue> {
    match value {
        Some(value) if !(DURATION_MIN..=DURATION_MAX).contains(&value.0.value.0) => {
            let message = format!("`{}` is out of range: expected 1ms to 24h", **value);
            Err(InvalidValue::at(value, message))
        }
        value => Ok(value.as_ref().map_or(default, |value| value.0.value.0)),
    }
}

pub(super) fn number<'a, N: Copy + Ord + Display + 'a>(
    value: impl Into<Option<&'a Located<N>>>,
    low: N,
    high: Option<N>,
    default: N,
) -> Result<N, InvalidValue> {
    let Some(value) = value.into() else { return Ok(default) };
    if **value >= low && high.is_none_or(|high| **value <= high) {
        return Ok(**value);
    }
    let expected = match high {
        Some(high) => format!("{low} to {high}"),
        None => format!("{low} or more"),
    };
    Err(InvalidValue::at(value, format!("{} is out of range: expected {expected}", **value)))
}
