//! Validates a configuration file into a [`Config`]. No later code checks it again.

mod pools;
mod requests;

use std::fmt::Display;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::time::Duration;

use tollgate_http1::{MAX_HEAD_BYTES, MAX_HEADERS};

use super::error::InvalidValue;
use super::file::{
    AccessLogFile, ConfigFile, HumanDuration, LimitsFile, ListenerFile, Located, LogFormatFile,
    RequestsFile, ResolveFile, TimeoutsFile,
};
use super::tls::listener_tls;
use super::waf::{RuleCache, audit_log};
use super::{
    AccessLog, Address, Config, Forwarded, Limits, Listener, LogFormat, LogTarget, Resolve,
    Timeouts,
};
use crate::resolve::{Addresses, HostName, Resolver};
use pools::pools;
pub(super) use requests::check_header_name;
use requests::{forwarded, requests, routes};

const THREADS_MAX: u16 = 256;
const DURATION_MIN: Duration = Duration::from_millis(1);
const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The smallest limit that leaves room for an ordinary request.
const HEADER_BYTES_MIN: usize = 256;
/// Longest path of a Unix domain socket, without the final NUL (`unix(7)`).
const SOCKET_PATH_BYTES_MAX: usize = 107;

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
    resources.warnings.append(&mut rules.warnings);
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

fn resolve(file: Option<&ResolveFile>, resolver: Resolver) -> Result<Resolve, InvalidValue> {
    let default = Resolve { resolver, ..Resolve::default() };
    let Some(file) = file else { return Ok(default) };
    Ok(Resolve {
        interval: duration(&file.interval, default.interval)?,
        family: file.family.unwrap_or_default(),
        ..default
    })
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
