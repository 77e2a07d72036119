//! From what is written to what can be served: each contradiction is found here, once.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::time::Duration;

use serde_saphyr::Spanned;
use tollgate_wire::{MAX_HEAD_BYTES, MAX_HEADERS};

use super::error::Fault;
use super::file::{
    AccessLogFile, ConfigFile, ForwardedFile, LimitsFile, ListenerFile, LogFormatFile,
    TimeoutsFile, TlsFile,
};
use super::text::{At, Span};
use super::{
    AccessLog, Address, Config, Forwarded, Limits, Listener, LogFormat, LogTarget, Timeouts, Tls,
    check_pools, check_routes,
};
use crate::tls::IdentityError;

/// The most threads there may be.
const THREADS_MAX: u16 = 256;
/// The longest time that anything may be waited for.
const TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest head that a request can be expected to have room in.
const HEADER_BYTES_MIN: usize = 256;
/// What the kernel takes as a path of a Unix domain socket (`unix(7)`), without the NUL at its end.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The configuration that `file` asks for. Relative paths are seen from `folder`.
pub(super) fn check(file: &ConfigFile, folder: &Path) -> Result<Config, Fault> {
    let threads = match &file.threads {
        Some(threads) => {
            NonZeroUsize::from(in_range(threads, 1, THREADS_MAX).and_then(|count| {
                std::num::NonZeroU16::new(count).ok_or_else(|| Fault::at(&threads.0, "it is 0"))
            })?)
        }
        None => NonZeroUsize::MIN,
    };
    let listeners = listeners(&file.listeners, folder)?;
    let pools = check_pools::pools(&file.pools, folder, threads)?;
    let routes = check_routes::routes(file.routes.as_ref(), &file.pools, &pools)?;
    let admin = file.admin.as_ref().map(|text| admin(text, &listeners)).transpose()?;
    Ok(Config {
        listeners,
        routes,
        pools,
        timeouts: timeouts(&file.timeouts)?,
        limits: limits(&file.limits, threads)?,
        forwarded: forwarded(&file.forwarded)?,
        access_log: file.access_log.as_ref().map(|log| access_log(log, folder)).transpose()?,
        admin,
        threads,
    })
}

fn listeners(files: &At<Vec<ListenerFile>>, folder: &Path) -> Result<Vec<Listener>, Fault> {
    if files.is_empty() {
        return Err(Fault::at(&files.0, "there is no listener; name at least one address"));
    }
    let mut listeners: Vec<Listener> = Vec::with_capacity(files.len());
    for file in files.iter() {
        let address = address(&file.address, folder)?;
        // Port 0 is a free one, another each time.
        let is_same = |other: &Listener| other.address == address && !takes_any_port(&address);
        if let Some(first) = listeners.iter().position(is_same) {
            return Err(Fault::at(
                &file.address.0,
                format!(
                    "there is a listener on `{}` already, in line {}; leave one of them",
                    *file.address,
                    line(&files[first].address.0)
                ),
            ));
        }
        let backlog = match &file.backlog {
            Some(backlog) => in_range(backlog, 1, u32::from(u16::MAX))?,
            None => Listener::BACKLOG,
        };
        let tls = file.tls.as_ref().map(|files| tls(files, folder)).transpose()?;
        let defer_accept = match (&file.defer_accept, &address) {
            (Some(defers), Address::Unix(_)) if **defers => {
                return Err(Fault::at(&defers.0, "a unix socket has no such thing; leave it out"));
            }
            (defers, _) => defers.as_deref().is_some_and(|defers| *defers),
        };
        listeners.push(Listener { address, backlog, defer_accept, tls });
    }
    Ok(listeners)
}

fn takes_any_port(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.port() == 0)
}

fn tls(file: &TlsFile, folder: &Path) -> Result<Tls, Fault> {
    Tls::read(folder.join(&*file.certificate), folder.join(&*file.key)).map_err(|error| {
        let place = match &error {
            IdentityError::Certificate(_) => &file.certificate.0,
            IdentityError::Key(_) | IdentityError::Pair(_) => &file.key.0,
        };
        let message = error.to_string();
        match error {
            IdentityError::Certificate(cause) | IdentityError::Key(cause) => {
                Fault::at(place, message).because(cause)
            }
            IdentityError::Pair(cause) => Fault::at(place, message).because(cause),
        }
    })
}

fn admin(text: &At<String>, listeners: &[Listener]) -> Result<std::net::SocketAddr, Fault> {
    let Ok(address) = text.parse() else {
        let message = format!(
            "`{}` is no address and port, such as 127.0.0.1:9900; the admin listener has no other kind",
            **text
        );
        return Err(Fault::at(&text.0, message));
    };
    let same = Address::Tcp(address);
    if listeners.iter().any(|listener| listener.address == same && !takes_any_port(&same)) {
        let message = format!("clients are listened for on `{address}`; choose another port");
        return Err(Fault::at(&text.0, message));
    }
    Ok(address)
}

/// The address that a text stands for.
pub(super) fn address(text: &At<String>, folder: &Path) -> Result<Address, Fault> {
    let address = text
        .parse()
        .map_err(|error| Fault::at(&text.0, format!("`{}` is no address: {error}", **text)))?;
    let Address::Unix(path) = address else {
        return Ok(address);
    };
    let path = folder.join(path);
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(Fault::at(
            &text.0,
            format!(
                "a socket's path has at most {SOCKET_PATH_BYTES_MAX} bytes, and {} has {}; choose a \
                 shorter one",
                path.display(),
                path.as_os_str().len()
            ),
        ));
    }
    Ok(Address::Unix(path))
}

fn timeouts(file: &TimeoutsFile) -> Result<Timeouts, Fault> {
    Ok(Timeouts {
        connect: time(&file.connect)?,
        header: time(&file.header)?,
        body: time(&file.body)?,
        answer: time(&file.answer)?,
        idle: time(&file.idle)?,
        tunnel: time(&file.tunnel)?,
        drain: time(&file.drain)?,
    })
}

fn limits(file: &LimitsFile, threads: NonZeroUsize) -> Result<Limits, Fault> {
    let connections = in_range(&file.connections, threads.get(), usize::MAX)?;
    Ok(Limits {
        header_bytes: in_range(&file.header_bytes, HEADER_BYTES_MIN, MAX_HEAD_BYTES)?,
        headers: in_range(&file.headers, 1, MAX_HEADERS)?,
        body_bytes: file.body_bytes,
        connections: connections / threads,
        connections_per_client: file
            .connections_per_client
            .as_ref()
            .map(|count| in_range(count, 1, usize::MAX))
            .transpose()?,
    })
}

fn forwarded(file: &ForwardedFile) -> Result<Forwarded, Fault> {
    if let Some(via) = &file.via
        && !check_routes::is_token(via)
    {
        let message = format!(
            "`{}` is no name for `Via`: letters, digits and -._~ can be in one; `null` sends no `Via`",
            **via
        );
        return Err(Fault::at(&via.0, message));
    }
    Ok(Forwarded {
        via: file.via.as_ref().map(|via| (**via).clone()),
        x_forwarded: file.x_forwarded,
        forwarded: file.forwarded,
        trust_client: file.trust_client,
    })
}

fn access_log(file: &AccessLogFile, folder: &Path) -> Result<AccessLog, Fault> {
    let to = match file.to.as_str() {
        "" => return Err(Fault::at(&file.to.0, "name a file, or `stdout`")),
        "stdout" => LogTarget::Stdout,
        path => LogTarget::File(folder.join(path)),
    };
    let format = match file.format {
        LogFormatFile::Combined => LogFormat::Combined,
        LogFormatFile::Json => LogFormat::Json,
    };
    Ok(AccessLog { to, format })
}

/// A time that something can be waited for.
pub(super) fn time(span: &At<Span>) -> Result<Duration, Fault> {
    let time = span.0.value.0;
    if time < Duration::from_millis(1) || time > TIME_MAX {
        let message = format!("`{}` is out of range: it has to be from 1ms to 24h", span.0.value);
        return Err(Fault::at(&span.0, message));
    }
    Ok(time)
}

/// A number that has to be in a range. The highest there is stands for no bound.
pub(super) fn in_range<N>(number: &At<N>, low: N, high: N) -> Result<N, Fault>
where
    N: Copy + Ord + std::fmt::Display + Bounded,
{
    let value = number.0.value;
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    let bounds =
        if high == N::HIGHEST { format!("from {low} on") } else { format!("from {low} to {high}") };
    Err(Fault::at(&number.0, format!("{value} is out of range: it has to be {bounds}")))
}

/// A number that has a highest.
pub(super) trait Bounded {
    /// The highest there is.
    const HIGHEST: Self;
}

impl Bounded for u16 {
    const HIGHEST: Self = Self::MAX;
}

impl Bounded for u32 {
    const HIGHEST: Self = Self::MAX;
}

impl Bounded for usize {
    const HIGHEST: Self = Self::MAX;
}

/// At least one.
pub(super) fn non_zero(number: &At<u32>, high: u32) -> Result<NonZeroU32, Fault> {
    let value = in_range(number, 1, high)?;
    NonZeroU32::new(value).ok_or_else(|| Fault::at(&number.0, "it has to be at least 1"))
}

/// The line that a value stands in.
pub(super) fn line<T>(place: &Spanned<T>) -> u64 {
    place.referenced.line()
}
