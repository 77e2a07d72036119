//! Validates a configuration file into a [`Config`]. No later code checks it again.

mod acme;
mod appsec;
mod local_api;
mod pools;
mod requests;
mod resources;
mod routes;
mod scalars;
pub(super) mod serve;
mod tls;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;

use tollgate_accesslog::{LogField, LogFormat, LogPart};
use tollgate_config::gateway::{
    AccessLogFile, AuditLogFile, ConfigFile, IncludeFile, LimitsFile, ListenerFile, RequestsFile,
    ResolveFile, TimeoutsFile,
};
use tollgate_config::{InvalidValue, Located, suggestion};
use tollgate_firewall::config::{Page, RuleCache, number};
use tollgate_http1::{MAX_HEAD_BYTES, MAX_HEADERS};
use tollgate_net::Address;
use tollgate_waf::CollectionLimits;

use super::route::Forwarded;
use super::serve::Service;
use super::settings::{AccessLog, AuditLog, Config, Limits, Listener};
use super::template::{self, Part};
use super::timeouts::Timeouts;
use crate::resolve::{Addresses, Resolve, Resolver};
use acme::Orders;
use pools::pools;
use requests::{forwarded, requests};
use resources::Resources;
use routes::routes;
use scalars::{address, duplicate, duration, log_target, networks};
use tls::listener_tls;

const THREADS_MAX: u16 = 256;
/// The smallest limit that leaves room for an ordinary request.
const HEADER_BYTES_MIN: usize = 256;
const HTTP2_STREAMS_MAX: u32 = 1000;
const HTTP2_STREAM_WINDOW_MIN: u32 = 16 << 10;
const HTTP2_STREAM_WINDOW_MAX: u32 = 16 << 20;
/// The initial one (RFC 9113, section 6.9.2), which can only grow.
const HTTP2_CONNECTION_WINDOW_MIN: u32 = 65_535;
const HTTP2_CONNECTION_WINDOW_MAX: u32 = 256 << 20;

/// Names whose values are not logged by default.
const MASKED: [&str; 12] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "password",
    "passwd",
    "pass",
    "pwd",
    "secret",
    "token",
    "access_token",
    "api_key",
    "x-api-key",
];

/// A configuration and warnings, or the errors.
pub(super) type Validated = Result<(Config, Vec<InvalidValue>), Vec<InvalidValue>>;

/// Validates a file. Relative paths are resolved against `folder`.
pub(super) fn validate(file: &ConfigFile, folder: &Path, resolver: Resolver) -> Validated {
    let resolve = resolve(file.resolve.as_ref(), resolver).map_err(|error| vec![error])?;
    with_resources(resolve, folder, |resources| validate_values(file, resources))
}

fn with_resources(
    resolve: Resolve,
    folder: &Path,
    validate: impl FnOnce(&mut Resources<'_>) -> Result<Config, InvalidValue>,
) -> Validated {
    let addresses = Addresses::new();
    let (failures, warnings) = (Vec::new(), Vec::new());
    let mut resources = Resources { folder, resolve, addresses, failures, warnings };
    match validate(&mut resources) {
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
    let threads = threads(file.threads.as_ref())?;
    let mut orders = file.acme.as_ref().map(|acme| Orders::read(acme, resources)).transpose()?;
    let listeners = listeners(&file.listeners, orders.as_mut(), resources)?;
    let acme = orders.map(|orders| orders.finish(&listeners)).transpose()?;
    let pools = pools(file.pools.as_ref(), resources, threads)?;
    let mut rules = RuleCache::default();
    let timeouts = file.timeouts.as_ref().map_or(Ok(Timeouts::default()), timeouts)?;
    let mut routes = routes(file, &pools, &timeouts, folder)?;
    for (at, route) in routes.iter_mut().enumerate() {
        let route_file = file.routes.as_ref().and_then(|files| files.get(at));
        let waf = route_file.and_then(|file| file.waf.as_ref());
        let waf = rules.waf(&[waf, file.waf.as_ref()], "", folder);
        route.waf = resources.collect(waf).flatten();
    }
    resources.warnings.append(&mut rules.warnings);
    let admin = file.admin.as_ref().map(|text| admin(text, &listeners)).transpose()?;
    let forwarded = file.forwarded.as_ref().map_or(Ok(Forwarded::default()), forwarded)?;
    Ok(Config {
        listeners,
        routes,
        pools,
        local_api: None,
        resolve: resources.resolve.clone(),
        timeouts,
        limits: limits(file.limits.as_ref(), Limits::default(), threads)?,
        requests: requests(file.requests.as_ref().unwrap_or(&RequestsFile::default()))?,
        forwarded,
        error_pages: error_pages(file.error_pages.as_ref(), resources)?,
        access_log: file.access_log.as_ref().map(|log| access_log(log, folder)).transpose()?,
        audit_log: file.audit_log.as_ref().map(|log| audit_log(log, folder)).transpose()?,
        acme,
        admin,
        threads,
        warnings: Vec::new(),
    })
}

/// The pages of errors, by status.
fn error_pages(
    files: Option<&BTreeMap<u16, Located<String>>>,
    resources: &mut Resources<'_>,
) -> Result<BTreeMap<u16, Page>, InvalidValue> {
    let mut pages = BTreeMap::new();
    for (status, name) in files.into_iter().flatten() {
        if !(400..=599).contains(status) {
            let message = format!("{status} is not the status of an error: expected 400 to 599");
            return Err(InvalidValue::at(name, message));
        }
        if let Some(page) = resources.collect(Page::read(name, resources.folder)) {
            pages.insert(*status, page);
        }
    }
    Ok(pages)
}

fn threads(file: Option<&Located<u16>>) -> Result<NonZeroUsize, InvalidValue> {
    let threads = number(file, 1, Some(THREADS_MAX), 1)?;
    Ok(NonZeroUsize::new(threads.into()).unwrap_or(NonZeroUsize::MIN))
}

fn listeners(
    files: &Located<Vec<ListenerFile>>,
    mut orders: Option<&mut Orders<'_>>,
    resources: &mut Resources<'_>,
) -> Result<Vec<Listener>, InvalidValue> {
    if files.is_empty() {
        return Err(InvalidValue::at(files, "`listeners` is empty; add at least one address"));
    }
    let mut listeners: Vec<Listener> = Vec::with_capacity(files.len());
    for file in files.iter() {
        let address =
            listener_address(&file.address, &listeners, resources, |first| &files[first].address)?;
        if let (Some(defer), Address::Unix(_)) = (&file.defer_accept, &address)
            && **defer
        {
            let message = "`defer_accept` is not available on a unix socket; remove it";
            return Err(InvalidValue::at(defer, message));
        }
        let http2 = file.http2.unwrap_or(file.tls.is_some());
        let tls = match &file.tls {
            Some(tls) => listener_tls(tls, http2, orders.as_deref_mut(), resources)?,
            None => None,
        };
        listeners.push(Listener {
            address,
            backlog: number(&file.backlog, 1, Some(u16::MAX.into()), Listener::DEFAULT_BACKLOG)?,
            defer_accept: file.defer_accept.as_deref().is_some_and(|defer| *defer),
            tls,
            http2,
            proxy_protocol: file.proxy_protocol.as_deref().map(networks).transpose()?,
            service: Service::Routes,
        });
    }
    Ok(listeners)
}

/// The address of a listener, which is none of the others. `text_of` is an address of these in the file.
fn listener_address<'a>(
    text: &Located<String>,
    others: &[Listener],
    resources: &Resources<'_>,
    text_of: impl FnOnce(usize) -> &'a Located<String>,
) -> Result<Address, InvalidValue> {
    let address = address(text, resources.folder)?;
    let is_same = |other: &Listener| other.address == address && !is_ephemeral_port(&address);
    match others.iter().position(is_same) {
        Some(first) => Err(duplicate("listener", text, text_of(first), "remove one of them")),
        None => Ok(address),
    }
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
        body_slow: duration(&file.body_slow, default.body_slow)?,
        response: duration(&file.response, default.response)?,
        stream: duration(&file.stream, default.stream)?,
        abandoned: duration(&file.abandoned, default.abandoned)?,
        idle: duration(&file.idle, default.idle)?,
        tunnel: duration(&file.tunnel, default.tunnel)?,
        drain: duration(&file.drain, default.drain)?,
        drain_delay: duration(&file.drain_delay, default.drain_delay)?,
    })
}

fn limits(
    file: Option<&LimitsFile>,
    default: Limits,
    threads: NonZeroUsize,
) -> Result<Limits, InvalidValue> {
    let empty = LimitsFile::default();
    let file = file.unwrap_or(&empty);
    let connections = number(&file.connections, threads.get(), None, default.connections)?;
    let http2_stream_window = number(
        &file.http2_stream_window,
        HTTP2_STREAM_WINDOW_MIN,
        Some(HTTP2_STREAM_WINDOW_MAX),
        default.http2_stream_window,
    )?;
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
        clients: number(&file.clients, 1, None, default.clients)?,
        compressed_responses: file.compressed_responses.unwrap_or(default.compressed_responses),
        http2_streams: number(
            &file.http2_streams,
            1,
            Some(HTTP2_STREAMS_MAX),
            default.http2_streams,
        )?,
        http2_stream_window,
        http2_connection_window: number(
            &file.http2_connection_window,
            http2_stream_window.max(HTTP2_CONNECTION_WINDOW_MIN),
            Some(HTTP2_CONNECTION_WINDOW_MAX),
            default.http2_connection_window.max(http2_stream_window),
        )?,
        held_body_bytes: number(&file.held_body_bytes, 1, None, default.held_body_bytes)? / threads,
        collections: CollectionLimits {
            entries: number(&file.collections, 16, None, default.collections.entries)?,
            bytes: number(&file.collection_bytes, 1 << 20, None, default.collections.bytes)?,
        },
    })
}

fn access_log(file: &AccessLogFile, folder: &Path) -> Result<AccessLog, InvalidValue> {
    let to = log_target(&file.to, folder)?;
    let format = file.format.as_ref().map_or(Ok(LogFormat::Combined), log_format)?;
    Ok(AccessLog { to, format })
}

fn log_format(text: &Located<String>) -> Result<LogFormat, InvalidValue> {
    let invalid = |message: String| Err(InvalidValue::at(text, message));
    match &***text {
        "combined" => return Ok(LogFormat::Combined),
        "json" => return Ok(LogFormat::Json),
        other if other.chars().any(char::is_control) => {
            return invalid("a line of a log has no line breaks and control characters".to_owned());
        }
        _ => {}
    }
    match template::parts(text, LogField::named) {
        Ok(parts) if parts.len() > 1 => {
            let part = |part| match part {
                Part::Text(text) => LogPart::Text(text),
                Part::Variable(field) => LogPart::Field(field),
            };
            Ok(LogFormat::Template(parts.into_iter().map(part).collect()))
        }
        Ok(_) => invalid(format!(
            "`{}` is not a format: expected combined, json, or a text with keys of entries such as ${{time}} ${{client}} ${{status}}",
            **text
        )),
        Err(name) => {
            invalid(format!("an entry has no `{name}`{}", suggestion(name, LogField::names())))
        }
    }
}

fn audit_log(file: &AuditLogFile, folder: &Path) -> Result<AuditLog, InvalidValue> {
    let masked = match &file.masked {
        Some(names) => names.iter().map(|name| name.to_ascii_lowercase()).collect(),
        None => MASKED.map(str::to_owned).to_vec(),
    };
    let to = log_target(&file.to, folder)?;
    Ok(AuditLog { to, all: file.include == Some(IncludeFile::All), masked })
}
