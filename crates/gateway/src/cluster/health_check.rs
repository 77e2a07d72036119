//! Active health checks. One thread checks all backends, so that no slow backend delays another or a request.

use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{getpeername, sockopt::socket_error};
use tollgate_accesslog::RateLimit;
use tollgate_http1::{ParseError, parse_response_head};
use tollgate_http2::{self as http2, Event, Field, Fields};
use tollgate_net::{Events, Interest, Poller, SendBuffer, Waker};
use tollgate_tls::{HttpProtocol, Received, TlsClient, Transport, describe_failure};

use super::health::{CheckResults, HealthStatus, PoolHealth};
use crate::config::{Address, Backend, HealthCheck, HealthRequest, Pool, Protocol, ProxyVersion};
use crate::connect_error::{exhausted_resource, is_connect_error};
use crate::{LOG_INTERVAL, log, proxy_protocol};

/// The health checks of a configuration. Dropping it stops them.
#[derive(Debug)]
pub(crate) struct HealthChecks {
    control: Arc<Control>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

/// State that the thread reads when its waker wakes it.
#[derive(Debug, Default)]
struct Control {
    is_stopping: AtomicBool,
    /// Backends of a new configuration.
    backends: Mutex<Option<Vec<CheckedBackend>>>,
}

struct Checker {
    poller: Poller,
    waker: Arc<Waker>,
    control: Arc<Control>,
    backends: Vec<CheckedBackend>,
    /// Checks started so far; the token of the last one.
    checks: u64,
    exhaustion_log: RateLimit,
}

#[derive(Debug)]
struct CheckedBackend {
    /// For messages.
    name: String,
    address: Address,
    tls: Option<TlsClient>,
    protocol: Protocol,
    proxy_protocol: Option<ProxyVersion>,
    host: String,
    check: HealthCheck,
    results: CheckResults,
    health: Arc<PoolHealth>,
    /// Index of the backend in `health`.
    index: usize,
    next_at: Instant,
    active: Option<ActiveCheck>,
}

#[derive(Debug)]
struct ActiveCheck {
    probe: Probe,
    token: u64,
    deadline: Instant,
}

/// Other tokens are those of checks.
const WAKER: u64 = u64::MAX;
const EVENTS_MAX: usize = 64;

impl HealthChecks {
    /// Starts to check the backends of pools with health checks, and reports to `health`, one per pool. Returns `None`
    /// if no pool has health checks.
    pub(crate) fn start(pools: &[Pool], health: &[Arc<PoolHealth>]) -> io::Result<Option<Self>> {
        let backends = checked_backends(pools, health);
        if backends.is_empty() {
            return Ok(None);
        }
        let (poller, waker) = (Poller::new()?, Arc::new(Waker::new()?));
        poller.add(&*waker, WAKER, Interest::Readable)?;
        let control = Arc::new(Control::default());
        let checker = Checker {
            poller,
            waker: Arc::clone(&waker),
            control: Arc::clone(&control),
            backends,
            checks: 0,
            exhaustion_log: RateLimit::new(LOG_INTERVAL),
        };
        let thread =
            std::thread::Builder::new().name("health-checks".to_owned()).spawn(move || {
                if let Err(error) = checker.run() {
                    log(format_args!("health checks stopped: {error}"));
                }
            })?;
        Ok(Some(Self { control, waker, thread: Some(thread) }))
    }

    /// Replaces the pools. A backend that is checked as before keeps its results and its schedule.
    pub(crate) fn reload(&self, pools: &[Pool], health: &[Arc<PoolHealth>]) -> io::Result<()> {
        *self.control.backends() = Some(checked_backends(pools, health));
        self.waker.wake()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for HealthChecks {
    fn drop(&mut self) {
        self.control.is_stopping.store(true, Ordering::Release);
        if let Err(error) = self.waker.wake() {
            log(format_args!("cannot stop the health checks: {error}"));
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log("the thread of the health checks panicked");
        }
    }
}

impl Control {
    fn backends(&self) -> MutexGuard<'_, Option<Vec<CheckedBackend>>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn checked_backends(pools: &[Pool], health: &[Arc<PoolHealth>]) -> Vec<CheckedBackend> {
    let now = Instant::now();
    let mut checked = Vec::new();
    for (pool, health) in pools.iter().zip(health) {
        let Some(check) = &pool.health else { continue };
        for (index, backend) in pool.backends.iter().enumerate() {
            let is_up = health.status(index, now) != HealthStatus::Down;
            checked.push(CheckedBackend {
                name: format!("backend {} of pool {}", backend.address, pool.name),
                address: backend.address.clone(),
                tls: backend.tls.clone(),
                protocol: pool.protocol,
                proxy_protocol: pool.proxy_protocol,
                host: host(backend, check),
                check: check.clone(),
                results: CheckResults::new(check, is_up),
                health: Arc::clone(health),
                index,
                next_at: now,
                active: None,
            });
        }
    }
    checked
}

/// `Host` of the requests: a default port is left out, as browsers do.
fn host(backend: &Backend, check: &HealthCheck) -> String {
    if let Some(HealthRequest { host: Some(host), .. }) = &check.request {
        return host.clone();
    }
    let host = match (&backend.name, &backend.address) {
        (Some(name), _) => name.to_string(),
        (None, Address::Tcp(address)) => address.to_string(),
        (None, Address::Unix(_)) => return "localhost".to_owned(),
    };
    let default_port = if backend.tls.is_some() { ":443" } else { ":80" };
    host.strip_suffix(default_port).map(str::to_owned).unwrap_or(host)
}

const USER_AGENT: &str = "tollgate-gateway";

impl Checker {
    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.control.is_stopping.load(Ordering::Acquire) {
            let new_backends = self.control.backends().take();
            if let Some(backends) = new_backends {
                self.replace_backends(backends);
            }
            let now = Instant::now();
            for at in 0..self.backends.len() {
                self.check_timers(at, now)?;
            }
            let next = self.backends.iter().map(CheckedBackend::next_timer).min();
            let timeout = next.map(|at| at.saturating_duration_since(Instant::now()));
            self.poller.wait(&mut events, timeout)?;
            for event in events.iter() {
                if event.token == WAKER {
                    self.waker.drain()?;
                    continue;
                }
                for backend in &mut self.backends {
                    if let Some(active) = &mut backend.active
                        && active.token == event.token
                        && let Some(result) = active.probe.advance()
                    {
                        backend.finish(&result);
                    }
                }
            }
        }
        Ok(())
    }

    fn replace_backends(&mut self, mut backends: Vec<CheckedBackend>) {
        for backend in &mut backends {
            let is_same =
                |old: &CheckedBackend| old.name == backend.name && old.check == backend.check;
            if let Some(old) = self.backends.iter().position(is_same) {
                backend.inherit(self.backends.swap_remove(old));
            }
        }
        self.backends = backends;
    }

    /// Ends a check that has timed out and starts one that is due.
    fn check_timers(&mut self, at: usize, now: Instant) -> io::Result<()> {
        let backend = &mut self.backends[at];
        if backend.active.as_ref().is_some_and(|active| active.deadline <= now) {
            backend.finish(&Err(CheckError::Timeout));
        }
        if backend.active.is_some() || backend.next_at > now {
            return Ok(());
        }
        backend.next_at = now + backend.check.interval;
        match Transport::connect(&backend.address, backend.tls.as_ref()) {
            Ok(transport) => {
                self.checks += 1;
                self.poller.add(&transport, self.checks, Interest::BothEdge)?;
                backend.active = Some(ActiveCheck {
                    probe: Probe::new(transport, backend),
                    token: self.checks,
                    deadline: now + backend.check.timeout,
                });
            }
            Err(error) => match exhausted_resource(&error) {
                // A local failure: the status of the backend remains.
                Some(resource) if self.exhaustion_log.allow(now) => {
                    log(format_args!(
                        "cannot check {}: {}; {} (logged once a minute)",
                        backend.name, resource.error, resource.advice
                    ));
                }
                Some(_) => {}
                None => backend.finish(&Err(CheckError::Connect(error))),
            },
        }
        Ok(())
    }
}

impl CheckedBackend {
    fn next_timer(&self) -> Instant {
        self.active.as_ref().map_or(self.next_at, |active| active.deadline)
    }

    /// Continues with the results and the active check of the same backend in the earlier configuration.
    fn inherit(&mut self, old: Self) {
        self.results = old.results;
        self.next_at = old.next_at;
        self.active = old.active;
        let now = Instant::now();
        let is_down = self.health.status(self.index, now) == HealthStatus::Down;
        if is_down == self.results.is_up() {
            self.health.set_down(self.index, !self.results.is_up(), now);
        }
    }

    fn finish(&mut self, result: &Result<(), CheckError>) {
        // Closing the connection removes it from the poller.
        self.active = None;
        if result.is_err() {
            self.health.note_failure();
        }
        if !self.results.add(result.is_ok()) {
            return;
        }
        self.health.set_down(self.index, !self.results.is_up(), Instant::now());
        match result {
            Ok(()) => log(format_args!("{} is up", self.name)),
            Err(error) => log(format_args!("{} is down: {error}", self.name)),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("the TLS handshake failed: {}", describe_failure(.0))]
    Handshake(#[source] io::Error),
    #[error("the connection failed: {0}")]
    Connection(#[source] io::Error),
    #[error("the connection was closed without a response")]
    Closed,
    #[error("invalid response: {0}")]
    Response(#[source] ParseError),
    #[error("it does not offer HTTP/2 by ALPN")]
    Protocol,
    #[error("invalid frames of HTTP/2: {0}")]
    Frames(#[source] http2::ConnectionError),
    #[error("the request was reset")]
    Reset,
    #[error("status {0}")]
    Status(u16),
    #[error("no success in time")]
    Timeout,
}

/// One check: a connection, and, unless that is all, a request and the head of its response.
#[derive(Debug)]
struct Probe {
    transport: Transport,
    /// Bytes to send. They are retained, as a connection on which some were sent was established.
    out: SendBuffer,
    exchange: Exchange,
}

#[derive(Debug)]
enum Exchange {
    /// No request.
    Connection,
    Http1(Http1Exchange),
    Http2(Box<Http2Exchange>),
}

#[derive(Debug)]
struct Http1Exchange {
    received: Vec<u8>,
    statuses: Vec<RangeInclusive<u16>>,
}

#[derive(Debug)]
struct Http2Exchange {
    framing: http2::Connection,
    fields: Fields,
    scheme: &'static str,
    host: String,
    request: HealthRequest,
}

const READ_BYTES: usize = 4096;

impl Probe {
    fn new(mut transport: Transport, backend: &CheckedBackend) -> Self {
        let mut out = SendBuffer::default();
        let host = &backend.host;
        let exchange = match (&backend.check.request, backend.protocol) {
            (None, _) => Exchange::Connection,
            (Some(HealthRequest { path, statuses, .. }), Protocol::Http1) => {
                let head = format!(
                    "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {USER_AGENT}\r\nConnection: close\r\n\r\n"
                );
                out.push(head.as_bytes());
                let statuses = statuses.clone();
                Exchange::Http1(Http1Exchange { received: Vec::new(), statuses })
            }
            (Some(request), Protocol::Http2 { .. }) => {
                let (role, limits) = (http2::Role::Client, http2::Limits::default());
                let framing = http2::Connection::new(role, limits, Instant::now(), out.tail());
                let (host, request) = (host.clone(), request.clone());
                let fields = Fields::default();
                let scheme = if transport.is_tls() { "https" } else { "http" };
                Exchange::Http2(Box::new(Http2Exchange { framing, fields, scheme, host, request }))
            }
        };
        let header = |version| proxy_protocol::write(version, None, None);
        if let Some(header) = backend.proxy_protocol.map(header) {
            transport.send_first(header);
        }
        Self { transport, out, exchange }
    }

    /// Continues as far as possible without blocking. Returns the result once there is one.
    fn advance(&mut self) -> Option<Result<(), CheckError>> {
        match self.transport.handshake() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) if is_connect_error(&error) || !self.transport.is_tls() => {
                return Some(Err(CheckError::Connect(error)));
            }
            Err(error) => return Some(Err(CheckError::Handshake(error))),
        }
        if matches!(self.exchange, Exchange::Connection) {
            return self.connected();
        }
        if matches!(self.exchange, Exchange::Http2(_))
            && let Some(session) = self.transport.session()
            && session.protocol() != HttpProtocol::Http2
        {
            return Some(Err(CheckError::Protocol));
        }
        loop {
            if let Err(error) = self.flush() {
                return Some(Err(error));
            }
            if !self.out.is_empty() {
                return None;
            }
            let mut input = [0; READ_BYTES];
            let count = match self.transport.receive(&mut input) {
                Ok(Received::Bytes(count)) => count,
                Ok(Received::Nothing) => return None,
                Ok(Received::End) => return Some(Err(CheckError::Closed)),
                Err(error) => return Some(Err(CheckError::Connection(error))),
            };
            let result = match &mut self.exchange {
                // It has its result without a response.
                Exchange::Connection => None,
                Exchange::Http1(Http1Exchange { received, statuses }) => {
                    received.extend_from_slice(&input[..count]);
                    judge(received, statuses)
                }
                Exchange::Http2(exchange) => exchange.receive(&input[..count], self.out.tail()),
            };
            if result.is_some() {
                return result;
            }
        }
    }

    /// Returns the result of a connection once it is established or has failed.
    fn connected(&self) -> Option<Result<(), CheckError>> {
        match socket_error(&self.transport) {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => return Some(Err(CheckError::Connect(error.into()))),
        }
        match getpeername(&self.transport) {
            Ok(_) => Some(Ok(())),
            Err(Errno::NOTCONN) => None,
            Err(error) => Some(Err(CheckError::Connect(error.into()))),
        }
    }

    fn flush(&mut self) -> Result<(), CheckError> {
        while !self.out.is_empty() {
            match self.transport.send(self.out.unsent()) {
                Ok(0) => return Ok(()),
                Ok(count) => self.out.retain(count),
                Err(error) if self.out.retained() == 0 => return Err(CheckError::Connect(error)),
                Err(error) => return Err(CheckError::Connection(error)),
            }
        }
        Ok(())
    }
}

impl Http2Exchange {
    /// Handles received frames. The settings of the backend are answered by the request.
    fn receive(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Option<Result<(), CheckError>> {
        let Self { framing, fields, scheme, host, request: check } = self;
        loop {
            match framing.receive(&mut bytes, fields, out, Instant::now()) {
                Ok(Some(Event::Settings)) if framing.streams() == 0 => {
                    let request: [(&[u8], &str); 5] = [
                        (b":method", "GET"),
                        (b":scheme", scheme),
                        (b":authority", host),
                        (b":path", &check.path),
                        (b"user-agent", USER_AGENT),
                    ];
                    let request = request.map(|(name, value)| Field::new(name, value.as_bytes()));
                    framing.send_request(request, true, 0, out);
                }
                Ok(Some(Event::Response { status: 100..=199, .. })) => {}
                Ok(Some(Event::Response { status, .. })) => {
                    return Some(judge_status(status, &check.statuses));
                }
                Ok(Some(Event::Reset { .. } | Event::HeadTooLarge { .. })) => {
                    return Some(Err(CheckError::Reset));
                }
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some(Err(CheckError::Frames(error))),
            }
        }
    }
}

/// Judges the first final response once its head is complete. The parser limits the size of a head.
fn judge(
    response: &mut Vec<u8>,
    statuses: &[RangeInclusive<u16>],
) -> Option<Result<(), CheckError>> {
    loop {
        let (status, len) = match parse_response_head(response, false) {
            Ok(Some(head)) => (head.status, head.len),
            Ok(None) => return None,
            Err(error) => return Some(Err(CheckError::Response(error))),
        };
        match status {
            100..=199 => drop(response.drain(..len)),
            status => return Some(judge_status(status, statuses)),
        }
    }
}

fn judge_status(status: u16, expected: &[RangeInclusive<u16>]) -> Result<(), CheckError> {
    let is_expected = expected.iter().any(|range| range.contains(&status));
    if is_expected { Ok(()) } else { Err(CheckError::Status(status)) }
}

#[cfg(test)]
mod tests;
