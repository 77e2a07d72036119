//! The admin listener: `/metrics` and `/healthz`, for machines that look after this one.
//!
//! One client at a time, each for a second at most, on a thread of its own: nothing here can hold up
//! the data path, and there is no queue but the kernel's.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use tollgate_eventloop::{Events, Interest, Poller, Waker, listen};
use tollgate_wire::{RequestHead, parse_request_head};

use crate::date::http_date;
use crate::view::View;

/// How long a client may take in all.
const CLIENT_TIME: Duration = Duration::from_secs(1);
/// How long the head of its request may be.
const HEAD_BYTES_MAX: usize = 8 << 10;
const BACKLOG: i32 = 64;
/// For which nobody is accepted when there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const LISTENER: u64 = 0;
const WAKER: u64 = 1;

/// A thread that answers on the admin address, until this is dropped.
#[derive(Debug)]
pub(crate) struct Admin {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens there, and answers from what can be seen in `view`.
    ///
    /// # Errors
    ///
    /// The address is taken or not of this machine, or there are no descriptors or threads left.
    pub(crate) fn start(address: SocketAddr, view: Arc<View>) -> io::Result<Self> {
        let listener = listen(address, false, BACKLOG)?;
        let address = listener.local_addr()?;
        let (poller, waker) = (Poller::new()?, Arc::new(Waker::new()?));
        poller.add(&listener, LISTENER, Interest::Readable)?;
        poller.add(&*waker, WAKER, Interest::Readable)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let is_stopping = Arc::clone(&stopping);
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
            if let Err(error) = serve(&listener, &poller, &is_stopping, &view) {
                eprintln!("tollgate gateway: the admin listener ends here: {error}");
            }
        })?;
        Ok(Self { address, stopping, waker, thread: Some(thread) })
    }

    /// Where it listens; the port is the real one.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        if let Err(error) = self.waker.wake() {
            eprintln!("tollgate gateway: the admin listener goes on: {error}");
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("tollgate gateway: the admin listener had panicked");
        }
    }
}

fn serve(
    listener: &TcpListener,
    poller: &Poller,
    stopping: &AtomicBool,
    view: &View,
) -> io::Result<()> {
    let mut events = Events::with_capacity(2);
    while !stopping.load(Ordering::Acquire) {
        poller.wait(&mut events, None)?;
        match listener.accept() {
            // A client that goes away, or takes too long, has itself to blame.
            Ok((client, _)) => drop(answer(client, view)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => std::thread::sleep(ACCEPT_PAUSE),
        }
    }
    Ok(())
}

fn answer(mut client: TcpStream, view: &View) -> io::Result<()> {
    let late_at = Instant::now() + CLIENT_TIME;
    client.set_nonblocking(false)?;
    client.set_write_timeout(Some(CLIENT_TIME))?;
    let mut head = Vec::new();
    let response = loop {
        match parse_request_head(&head) {
            Ok(Some(head)) => break respond(&head, view),
            Ok(None) if head.len() < HEAD_BYTES_MAX => {}
            Ok(None) => {
                break text(431, "Request Header Fields Too Large", "the head is too long\n");
            }
            Err(error) => break text(400, "Bad Request", &format!("{error}\n")),
        }
        let left = late_at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break text(408, "Request Timeout", "the request did not come in time\n");
        }
        client.set_read_timeout(Some(left))?;
        let mut bytes = [0; 1024];
        match client.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => head.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    };
    client.write_all(response.as_bytes())?;
    client.shutdown(std::net::Shutdown::Write)
}

fn respond(head: &RequestHead<'_>, view: &View) -> String {
    if !matches!(head.method, "GET" | "HEAD") {
        return text(405, "Method Not Allowed", "only GET and HEAD are answered here\n");
    }
    let path = head.target.split('?').next().unwrap_or_default();
    let mut response = match path {
        "/metrics" => response(
            200,
            "OK",
            "text/plain; version=0.0.4; charset=utf-8",
            &view.metrics(Instant::now()),
        ),
        "/healthz" if view.is_draining() => text(503, "Service Unavailable", "draining\n"),
        "/healthz" => text(200, "OK", "ok\n"),
        _ => text(404, "Not Found", "here are /metrics and /healthz\n"),
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

fn response(status: u16, reason: &str, kind: &str, body: &str) -> String {
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    let date = http_date(SystemTime::now()).map_or(String::new(), |now| format!("Date: {now}\r\n"));
    format!(
        "HTTP/1.1 {status} {reason}\r\n{date}Content-Type: {kind}\r\nContent-Length: {}\r\n{allow}\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Address, Config};
    use crate::counters::Counters;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn metrics_and_health_are_told_to_one_client_after_the_other() {
        let any = Address::Tcp("127.0.0.1:1".parse().unwrap());
        let view = Arc::new(View::new(Arc::new(Counters::new(1))));
        view.set_pools(&Config::new(any.clone(), any), &[]);
        let admin = Admin::start("127.0.0.1:0".parse().unwrap(), Arc::clone(&view)).unwrap();
        let get =
            |path: &str| ask(admin.address(), &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        // One that says nothing is waited for, but not for long.
        let silent = TcpStream::connect(admin.address()).unwrap();
        let (dates, rest): (Vec<String>, Vec<String>) = get("/healthz")
            .split_inclusive("\r\n")
            .map(str::to_owned)
            .partition(|line| line.starts_with("Date: "));
        assert!(matches!(&dates[..], [date] if date.ends_with(" GMT\r\n")), "{dates:?}");
        assert_eq!(
            rest.concat(),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\nok\n"
        );
        drop(silent);
        let metrics = get("/metrics?x=1");
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\nDate: "), "{metrics}");
        assert!(metrics.contains("\r\nContent-Type: text/plain; version=0.0.4;"), "{metrics}");
        assert!(metrics.contains("\ntollgate_gateway_client_connections 0\n"), "{metrics}");
        assert!(get("/").starts_with("HTTP/1.1 404 "));
        let post = ask(admin.address(), "POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
        let head = ask(admin.address(), "HEAD /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(head.ends_with(
            "Content-Length: 3\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        ));
        assert!(ask(admin.address(), "GET\r\n\r\n").starts_with("HTTP/1.1 400 "));
        view.set_draining();
        assert!(get("/healthz").starts_with("HTTP/1.1 503 "));
        let address = admin.address();
        drop(admin);
        assert!(TcpStream::connect(address).is_err());
    }
}
