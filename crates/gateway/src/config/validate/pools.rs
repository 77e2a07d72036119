//! Pools and their backends.

use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::time::Duration;

use tollgate_config::gateway::{
    BackendFile, BalanceFile, EjectionFile, HashByFile, HealthFile, PoolFile, ProtocolFile,
    StatusesFile,
};
use tollgate_config::{HumanDuration, InvalidValue, Located};
use tollgate_firewall::config::{check_header_name, number};
use tollgate_http1::is_token;

use super::resources::Resources;
use super::scalars::{address, duplicate, duration, path};
use super::tls::PoolTls;
use crate::config::pool::{
    Balance, DeclaredBackend, Ejection, HashBy, HealthCheck, HealthRequest, Pool, Protocol, Target,
    expand,
};
use crate::resolve::HostName;

/// Each choice looks at all backends of a pool.
const BACKENDS_MAX: usize = 1024;
const WEIGHT_MAX: u32 = 1000;
const RETRIES_MAX: u32 = 10;
const STREAMS_MAX: u32 = 1000;
/// Bounds of `stream_window_max`.
const STREAM_WINDOW_MIN: u32 = 64 << 10;
const STREAM_WINDOW_MAX: u32 = 16 << 20;
/// Twice as much is the largest window of a connection in which no stream can take that of another one.
const CONNECTION_BYTES_MAX: u32 = (1 << 30) - 1;
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);
const BUFFER_BYTES_MAX: u64 = 1 << 20;
/// Longest series of successes or failures that a health check or an ejection may require.
const CONSECUTIVE_MAX: u32 = 1000;

const HEALTH_INTERVAL: Duration = Duration::from_secs(5);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
const HEALTH_RISE: u32 = 2;
const HEALTH_FALL: u32 = 3;
const EJECT_FAILURES: u32 = 5;
const EJECT_DURATION: Duration = Duration::from_secs(10);

pub(super) fn pools(
    files: Option<&Located<Vec<PoolFile>>>,
    resources: &mut Resources<'_>,
    threads: NonZeroUsize,
) -> Result<Vec<Pool>, InvalidValue> {
    let Some(files) = files else { return Ok(Vec::new()) };
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
    let keepalive_max = keepalive_max(file)?;
    let retries = number(&file.retries, 0, Some(RETRIES_MAX), Pool::DEFAULT_RETRIES)?;
    if let Some(pause) = file.retry_pause.as_ref().filter(|_| retries == 0) {
        let message = "`retry_pause` has no effect with `retries: 0`; remove it, or allow retries";
        return Err(InvalidValue::at(pause, message));
    }
    let retry_pause = given(&file.retry_pause)?;
    if let (Some(pause), Some(time)) = (&file.retry_pause, retry_pause)
        && time > RETRY_PAUSE_MAX
    {
        let message = format!("`{}` is out of range: expected 1ms to 1m", **pause);
        return Err(InvalidValue::at(pause, message));
    }
    let queue_max = file.queue_max.unwrap_or(Pool::DEFAULT_QUEUE_MAX);
    let protocol = protocol(file)?;
    let stream_window_max = number(
        &file.stream_window_max,
        STREAM_WINDOW_MIN,
        Some(STREAM_WINDOW_MAX),
        Pool::DEFAULT_STREAM_WINDOW_MAX,
    )?;
    if let Protocol::Http2 { streams_max } = protocol
        && streams_max.saturating_mul(stream_window_max) > CONNECTION_BYTES_MAX
    {
        let message = format!(
            "{streams_max} streams with a window of {stream_window_max} bytes are more than 1 GiB for a connection; lower \
             `streams_max` or `stream_window_max`"
        );
        return Err(InvalidValue::at(&file.name, message));
    }
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
        stream_window_max,
        declared,
        keepalive_max: keepalive_max.div_ceil(threads.get()),
        keepalive_timeout: given(&file.keepalive_timeout)?,
        proxy_protocol: file.proxy_protocol.as_deref().copied(),
        connections_max: file
            .connections_max
            .as_ref()
            .map(|count| connections_max(count, threads))
            .transpose()?,
        buffer_request: number(
            file.buffer.as_ref().and_then(|buffer| buffer.request.as_ref()),
            0,
            Some(BUFFER_BYTES_MAX),
            Pool::DEFAULT_BUFFER_REQUEST,
        )?,
        buffer_response: number(
            file.buffer.as_ref().and_then(|buffer| buffer.response.as_ref()),
            0,
            Some(BUFFER_BYTES_MAX),
            Pool::DEFAULT_BUFFER_RESPONSE,
        )?,
        queue_max: queue_max.div_ceil(threads.get()),
        queue_timeout: duration(&file.queue_timeout, Pool::DEFAULT_QUEUE_TIMEOUT)?,
        close_after_head: file.close_after_head.as_deref().is_some_and(|closes| *closes),
        health: file.health.as_ref().map(health).transpose()?,
        eject: file.eject.as_ref().map(ejection).transpose()?,
        slow_start: given(&file.slow_start)?,
        retries,
        retry_pause,
    })
}

/// A duration without a default.
fn given(value: &Option<Located<HumanDuration>>) -> Result<Option<Duration>, InvalidValue> {
    value.is_some().then(|| duration(value, Duration::ZERO)).transpose()
}

/// With the PROXY protocol, a connection belongs to one client, and is not kept.
fn keepalive_max(file: &PoolFile) -> Result<usize, InvalidValue> {
    let Some(version) = &file.proxy_protocol else {
        return Ok(file.keepalive_max.as_deref().copied().unwrap_or(Pool::DEFAULT_KEEPALIVE_MAX));
    };
    if file.protocol.is_some_and(|protocol| matches!(protocol, ProtocolFile::Http2)) {
        let message = "connections with `protocol: h2` serve several clients, and a header of the PROXY protocol has one; \
                       remove one of the keys";
        return Err(InvalidValue::at(version, message));
    }
    if let Some(kept) = file.keepalive_max.as_ref().filter(|kept| ***kept > 0) {
        let message =
            "connections with `proxy_protocol` serve one request, and none is kept; remove it";
        return Err(InvalidValue::at(kept, message));
    }
    Ok(0)
}

fn protocol(file: &PoolFile) -> Result<Protocol, InvalidValue> {
    let default = Pool::DEFAULT_STREAMS_MAX;
    let streams_max = number(&file.streams_max, 1, Some(STREAMS_MAX), default)?;
    match (file.protocol.unwrap_or(ProtocolFile::Http1), &file.close_after_head) {
        (ProtocolFile::Http1, _) => {
            let of_streams = [
                ("streams_max", &file.streams_max),
                ("stream_window_max", &file.stream_window_max),
            ];
            match of_streams.into_iter().find_map(|(key, value)| Some((key, value.as_ref()?))) {
                Some((key, value)) => {
                    let message =
                        format!("`{key}` has no effect without `protocol: h2`; remove it");
                    Err(InvalidValue::at(value, message))
                }
                None => Ok(Protocol::Http1),
            }
        }
        (ProtocolFile::Http2, Some(closes)) if **closes => {
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
        BalanceFile::ConsistentHash(HashByFile::Cookie(name)) => {
            if !is_token(name.as_bytes()) {
                let message = format!("`{}` is not a name of a cookie such as backend", **name);
                return Err(InvalidValue::at(name, message));
            }
            Balance::ConsistentHash { by: HashBy::Cookie((**name).clone()) }
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

fn health(file: &Located<HealthFile>) -> Result<HealthCheck, InvalidValue> {
    let interval = duration(&file.interval, HEALTH_INTERVAL)?;
    if let Some(timeout) = &file.timeout
        && timeout.0.value.0 > interval
    {
        let message =
            "the timeout is longer than the interval; shorten the timeout or lengthen the interval";
        return Err(InvalidValue::at(timeout, message));
    }
    Ok(HealthCheck {
        request: health_request(file)?,
        interval,
        timeout: duration(&file.timeout, HEALTH_TIMEOUT.min(interval))?,
        rise: number(&file.rise, 1, Some(CONSECUTIVE_MAX), HEALTH_RISE)?,
        fall: number(&file.fall, 1, Some(CONSECUTIVE_MAX), HEALTH_FALL)?,
    })
}

fn health_request(file: &Located<HealthFile>) -> Result<Option<HealthRequest>, InvalidValue> {
    if let Some(tcp) = file.tcp.as_ref().filter(|tcp| ***tcp) {
        if file.path.is_some() || file.host.is_some() || file.status.is_some() {
            let message = "`tcp: true` sends no request; remove it, or `path`, `host` and `status`";
            return Err(InvalidValue::at(tcp, message));
        }
        return Ok(None);
    }
    let Some(text) = &file.path else {
        let message = "missing key `path`, or `tcp: true` for a check that only connects";
        return Err(InvalidValue::at(file, message));
    };
    let default = HealthRequest::get(&path(text, "#")?);
    let statuses = file.status.as_ref().map(statuses).transpose()?;
    let host = file.host.as_ref().map(|host| {
        let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host_byte) {
            let message = format!("`{}` is not a host such as example.org or [::1]:8080", **host);
            return Err(InvalidValue::at(host, message));
        }
        Ok((**host).clone())
    });
    Ok(Some(HealthRequest {
        host: host.transpose()?,
        statuses: statuses.unwrap_or(default.statuses),
        path: default.path,
    }))
}

fn statuses(file: &Located<StatusesFile>) -> Result<Vec<RangeInclusive<u16>>, InvalidValue> {
    let text = file.to_string();
    let range = |text: &str| -> Option<RangeInclusive<u16>> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (200 <= first && first <= last && last <= 599).then_some(first..=last)
    };
    text.split(',').map(range).collect::<Option<_>>().ok_or_else(|| {
        let message = format!(
            "`{text}` is not 200 to 599: write 200, 200-299, or several as in \"200, 404\""
        );
        InvalidValue::at(file, message)
    })
}

fn ejection(file: &EjectionFile) -> Result<Ejection, InvalidValue> {
    Ok(Ejection {
        failures: number(&file.failures, 1, Some(CONSECUTIVE_MAX), EJECT_FAILURES)?,
        duration: duration(&file.duration, EJECT_DURATION)?,
    })
}
