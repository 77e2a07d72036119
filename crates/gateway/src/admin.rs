//! The admin server: `/metrics` and `/healthz`, on its own threads. The number of clients and the time per client are
//! limited, new clients replace the oldest, and nothing here delays the data path.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use tollgate_eventloop::try_io;
use tollgate_http1::{RequestHead, parse_request_head};

use crate::cluster::PoolHealth;
use crate::config::{Config, Pool};
use crate::counters::Counters;
use crate::headers::http_date;
use crate::log;
use crate::metrics::{Reloads, render};

/// Concurrent clients; one more replaces the oldest.
const CLIENTS_MAX: usize = 64;
/// Time of a client from its connection to the last byte of its response.
const CLIENT_TIME: Duration = Duration::from_secs(5);
const REQUEST_HEAD_BYTES_MAX: usize = 8 << 10;
/// Pause before a new attempt after an error.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Data of the admin server. Its locks are never taken on the data path.
#[derive(Debug)]
pub(crate) struct AdminState {
    counters: Arc<Counters>,
    /// Pools of the current configuration.
    pools: Mutex<Vec<(Pool, Arc<PoolHealth>)>>,
    reloads: Mutex<Reloads>,
    is_draining: AtomicBool,
    started_at: SystemTime,
}

impl AdminState {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            pools: Mutex::default(),
            reloads: Mutex::default(),
            is_draining: AtomicBool::new(false),
            started_at: SystemTime::now(),
        }
    }

    pub(crate) fn set_pools(&self, config: &Config, health: &[Arc<PoolHealth>]) {
        let pools = config.pools.iter().cloned().zip(health.iter().cloned()).collect();
        *self.pools.lock().unwrap_or_else(PoisonError::into_inner) = pools;
    }

    pub(crate) fn count_reload(&self, is_applied: bool) {
        let mut reloads = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        if is_applied {
            reloads.applied += 1;
        } else {
            reloads.rejected += 1;
        }
    }

    pub(crate) fn set_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    fn metrics(&self) -> String {
        let reloads = *self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let pools = pools.iter().map(|(pool, health)| (pool, &**health));
        let (totals, now) = (self.counters.totals(), Instant::now());
        render(&totals, &pools, reloads, &self.counters.firewall, now, self.started_at)
    }
}

/// Serves until it is dropped.
#[derive(Debug)]
pub(crate) struct AdminServer {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AdminServer {
    pub(crate) fn start(address: SocketAddr, state: Arc<AdminState>) -> io::Result<Self> {
        Self::start_with(address, state, CLIENT_TIME)
    }

    fn start_with(
        address: SocketAddr,
        state: Arc<AdminState>,
        client_time: Duration,
    ) -> io::Result<Self> {
        let listener = Arc::new(TcpListener::bind(address)?);
        let address = listener.local_addr()?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (accepting, stopping) = (Arc::clone(&listener), Arc::clone(&is_stopping));
        let thread = thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || accept_clients(&accepting, &state, &stopping, client_time))?;
        Ok(Self { address, listener, is_stopping, thread: Some(thread) })
    }

    /// The address with the actual port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        // Wakes `accept` (Linux).
        if let Err(error) = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Read) {
            log(format_args!("cannot stop the admin server: {error}"));
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log("the thread of the admin server panicked");
        }
    }
}

fn accept_clients(
    listener: &TcpListener,
    state: &Arc<AdminState>,
    is_stopping: &AtomicBool,
    client_time: Duration,
) {
    // The oldest first. The thread of a client closes its stream.
    let mut clients: VecDeque<(Weak<TcpStream>, JoinHandle<()>)> = VecDeque::new();
    loop {
        if is_stopping.load(Ordering::Acquire) {
            return;
        }
        // Out of descriptors or threads, most likely: the client waits, or its connection is closed.
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        clients.retain(|(_, thread)| !thread.is_finished());
        if clients.len() >= CLIENTS_MAX
            && let Some((stream, thread)) = clients.pop_front()
        {
            // Fails only if the client has disconnected.
            stream.upgrade().map(|stream| stream.shutdown(Shutdown::Both));
            thread.join().ok();
        }
        let state = Arc::clone(state);
        let deadline = Instant::now() + client_time;
        let stream = Arc::new(stream);
        let weak = Arc::downgrade(&stream);
        let client = thread::Builder::new().name("admin-client".to_owned()).spawn(move || {
            // Client errors: it disconnected or is too slow.
            serve(&stream, &state, deadline).ok();
        });
        clients.extend(client.map(|thread| (weak, thread)));
    }
}

fn serve(mut stream: &TcpStream, state: &AdminState, deadline: Instant) -> io::Result<()> {
    let mut request = Vec::new();
    let response = loop {
        let mut bytes = [0; 1024];
        match receive(stream, &mut bytes, deadline)? {
            Some(0) => return Ok(()),
            Some(count) => request.extend_from_slice(&bytes[..count]),
            None => {
                let late = text(408, "Request Timeout", "the request did not arrive in time\n");
                stream.set_nonblocking(true)?;
                return stream.write_all(late.as_bytes());
            }
        }
        if let Some(response) = respond(&request, state) {
            break response;
        }
    };
    let mut unsent = response.as_bytes();
    while !unsent.is_empty() {
        let Some(timeout) = remaining(deadline) else { return Ok(()) };
        stream.set_write_timeout(Some(timeout))?;
        let Some(count) = try_io(|| stream.write(unsent))? else { return Ok(()) };
        unsent = &unsent[count..];
    }
    stream.shutdown(Shutdown::Write)?;
    // Closing over unread bytes would be a reset, which can overtake the response.
    while receive(stream, &mut [0; 1024], deadline)?.is_some_and(|count| count > 0) {}
    Ok(())
}

/// Returns `None` at the deadline.
fn receive(
    mut stream: &TcpStream,
    bytes: &mut [u8],
    deadline: Instant,
) -> io::Result<Option<usize>> {
    let Some(timeout) = remaining(deadline) else { return Ok(None) };
    stream.set_read_timeout(Some(timeout))?;
    try_io(|| stream.read(bytes))
}

fn remaining(deadline: Instant) -> Option<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    (!remaining.is_zero()).then_some(remaining)
}

/// Returns `None` while the head of the request is incomplete.
fn respond(request: &[u8], state: &AdminState) -> Option<String> {
    match parse_request_head(request) {
        Ok(Some(head)) => Some(respond_to(&head, state)),
        Ok(None) if request.len() < REQUEST_HEAD_BYTES_MAX => None,
        Ok(None) => Some(text(400, "Bad Request", "the request head is too long\n")),
        Err(error) => Some(text(400, "Bad Request", &format!("{error}\n"))),
    }
}

fn respond_to(head: &RequestHead<'_>, state: &AdminState) -> String {
    if !matches!(head.method, "GET" | "HEAD") {
        return text(405, "Method Not Allowed", "use GET or HEAD\n");
    }
    let path = head.target.split('?').next().unwrap_or_default();
    let mut response = match path {
        "/metrics" => {
            response(200, "OK", "text/plain; version=0.0.4; charset=utf-8", &state.metrics())
        }
        "/healthz" if state.is_draining.load(Ordering::Relaxed) => {
            text(503, "Service Unavailable", "draining\n")
        }
        "/healthz" => text(200, "OK", "ok\n"),
        _ => text(404, "Not Found", "available: /metrics, /healthz\n"),
    };
    if head.method == "HEAD"
        && let Some(head_bytes) = response.find("\r\n\r\n")
    {
        response.truncate(head_bytes + 4);
    }
    response
}

fn text(status: u16, reason: &str, body: &str) -> String {
    response(status, reason, "text/plain; charset=utf-8", body)
}

fn response(status: u16, reason: &str, content_type: &str, body: &str) -> String {
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    let date = http_date(SystemTime::now()).map_or(String::new(), |now| format!("Date: {now}\r\n"));
    format!(
        "HTTP/1.1 {status} {reason}\r\n{date}Content-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests;
