//! A small HTTP/1.1 server on its own threads. The number of clients and the time per client are limited, new clients
//! replace the oldest, and nothing here delays other threads.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use tollgate_accesslog::stderr_log;
use tollgate_http1::{RequestHead, parse_request_head, reason_phrase};
use tollgate_net::{SendBuffer, try_io};

/// Concurrent clients; one more replaces the oldest.
const CLIENTS_MAX: usize = 64;
/// Time of a client from its connection to the last byte of its response.
const CLIENT_TIME: Duration = Duration::from_secs(5);
const REQUEST_HEAD_BYTES_MAX: usize = 8 << 10;
/// Pause before a new attempt after an error.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Returns the page at a path, without its query; `None` for an unknown path.
pub type Pages = Arc<dyn Fn(&str) -> Option<Reply> + Send + Sync>;

/// Response to GET and HEAD.
#[derive(Debug)]
pub struct Reply {
    status: u16,
    content_type: &'static str,
    body: String,
}

const TEXT: &str = "text/plain; charset=utf-8";

impl Reply {
    /// Metrics in Prometheus's text format.
    pub fn metrics(body: String) -> Self {
        let content_type = "text/plain; version=0.0.4; charset=utf-8";
        Self { status: 200, content_type, body }
    }

    /// The page of a health check.
    pub fn health(is_up: bool, body: &str) -> Self {
        Self::text(if is_up { 200 } else { 503 }, body)
    }

    fn text(status: u16, body: &str) -> Self {
        Self { status, content_type: TEXT, body: body.to_owned() }
    }
}

/// Serves until it is dropped.
#[derive(Debug)]
pub struct AdminServer {
    /// Name of the program in messages.
    program: &'static str,
    address: SocketAddr,
    listener: Arc<TcpListener>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AdminServer {
    /// `program`: its name in messages.
    pub fn start(program: &'static str, address: SocketAddr, pages: Pages) -> io::Result<Self> {
        Self::start_with(program, address, pages, CLIENT_TIME)
    }

    /// `client_time`: limit of the time of a client.
    pub fn start_with(
        program: &'static str,
        address: SocketAddr,
        pages: Pages,
        client_time: Duration,
    ) -> io::Result<Self> {
        let listener = Arc::new(TcpListener::bind(address)?);
        let address = listener.local_addr()?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (accepting, stopping) = (Arc::clone(&listener), Arc::clone(&is_stopping));
        let thread = thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || accept_clients(&accepting, &pages, &stopping, client_time))?;
        Ok(Self { program, address, listener, is_stopping, thread: Some(thread) })
    }

    /// The address with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        // Wakes `accept` (Linux).
        if let Err(error) = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Read) {
            let program = self.program;
            stderr_log::write(&format!("{program}: cannot stop the admin server: {error}"));
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            let program = self.program;
            stderr_log::write(&format!("{program}: the thread of the admin server panicked"));
        }
    }
}

fn accept_clients(
    listener: &TcpListener,
    pages: &Pages,
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
        let pages = Arc::clone(pages);
        let deadline = Instant::now() + client_time;
        let stream = Arc::new(stream);
        let weak = Arc::downgrade(&stream);
        let client = thread::Builder::new().name("admin-client".to_owned()).spawn(move || {
            // Client errors: it disconnected or is too slow.
            serve(&stream, &pages, deadline).ok();
        });
        clients.extend(client.map(|thread| (weak, thread)));
    }
}

fn serve(mut stream: &TcpStream, pages: &Pages, deadline: Instant) -> io::Result<()> {
    let mut request = Vec::new();
    let response = loop {
        let mut bytes = [0; 1024];
        match receive(stream, &mut bytes, deadline)? {
            Some(0) => return Ok(()),
            Some(count) => request.extend_from_slice(&bytes[..count]),
            None => {
                let late = Reply::text(408, "the request did not arrive in time\n");
                stream.set_nonblocking(true)?;
                return stream.write_all(late.render(false).as_bytes());
            }
        }
        if let Some(response) = respond(&request, pages) {
            break response;
        }
    };
    let mut unsent: SendBuffer = SendBuffer::new(response.into_bytes());
    while !unsent.is_empty() {
        let Some(timeout) = remaining(deadline) else { return Ok(()) };
        stream.set_write_timeout(Some(timeout))?;
        if unsent.send(|bytes| stream.write(bytes))? == 0 {
            return Ok(());
        }
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
fn respond(request: &[u8], pages: &Pages) -> Option<String> {
    let reply = match parse_request_head(request) {
        Ok(Some(head)) => return Some(reply_to(&head, pages).render(head.method == "HEAD")),
        Ok(None) if request.len() < REQUEST_HEAD_BYTES_MAX => return None,
        Ok(None) => Reply::text(400, "the request head is too long\n"),
        Err(error) => Reply::text(400, &format!("{error}\n")),
    };
    Some(reply.render(false))
}

fn reply_to(head: &RequestHead<'_>, pages: &Pages) -> Reply {
    if !matches!(head.method, "GET" | "HEAD") {
        return Reply::text(405, "use GET or HEAD\n");
    }
    let path = head.target.split('?').next().unwrap_or_default();
    pages(path).unwrap_or_else(|| Reply::text(404, "available: /metrics, /healthz\n"))
}

impl Reply {
    /// `is_to_head`: the request is a HEAD, whose response has no body.
    fn render(&self, is_to_head: bool) -> String {
        let Self { status, content_type, body } = self;
        let reason = reason_phrase(*status);
        let allow = if *status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let now = Timestamp::try_from(SystemTime::now());
        let date = now.and_then(|now| DateTimePrinter::new().timestamp_to_rfc9110_string(&now));
        let date = date.map_or(String::new(), |date| format!("Date: {date}\r\n"));
        let length = body.len();
        let body = if is_to_head { "" } else { body };
        format!(
            "HTTP/1.1 {status} {reason}\r\n{date}Content-Type: {content_type}\r\nContent-Length: {length}\r\n{allow}\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n{body}"
        )
    }
}
