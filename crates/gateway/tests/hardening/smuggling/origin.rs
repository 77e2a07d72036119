//! An origin that writes down what it sees, byte for byte, and answers whatever looks finished.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use memchr::memmem;

/// What it answers to anything.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nseen";

/// How long it rests when nothing has come.
const REST: Duration = Duration::from_micros(200);

/// What an origin saw.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The requests that it took for whole, in the order in which they ended.
    pub(crate) requests: Vec<Vec<u8>>,
    /// What came behind the last of them on each connection, if anything did.
    pub(crate) begun: Vec<Vec<u8>>,
}

/// An origin that serves until dropped.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    desk: Arc<Mutex<Desk>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let desk = Arc::new(Mutex::new(Desk { listener, visitors: Vec::new(), seen: Vec::new() }));
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (desk, is_over) = (Arc::clone(&desk), Arc::clone(&is_over));
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    if !desk.lock().unwrap().serve() {
                        std::thread::sleep(REST);
                    }
                }
            }
        });
        Self { address, desk, is_over, thread: Some(thread) }
    }

    /// What it has seen since the last time. Whatever was sent before the call is among it.
    pub(crate) fn take(&self) -> Seen {
        let mut desk = self.desk.lock().unwrap();
        while desk.serve() {}
        let requests = std::mem::take(&mut desk.seen);
        // Who has left something unfinished would go on with it.
        let left = desk.visitors.extract_if(.., |visitor| !visitor.received.is_empty());
        let begun = left.map(|visitor| visitor.received).collect();
        Seen { requests, begun }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

struct Desk {
    listener: TcpListener,
    visitors: Vec<Visitor>,
    seen: Vec<Vec<u8>>,
}

struct Visitor {
    stream: TcpStream,
    /// What of a request that has not ended.
    received: Vec<u8>,
    is_gone: bool,
}

impl Desk {
    /// Takes and answers what is there; says whether anything was.
    fn serve(&mut self) -> bool {
        let mut was_busy = false;
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true).unwrap();
            stream.set_nodelay(true).unwrap();
            self.visitors.push(Visitor { stream, received: Vec::new(), is_gone: false });
            was_busy = true;
        }
        for visitor in self.visitors.iter_mut().filter(|visitor| !visitor.is_gone) {
            was_busy |= visitor.read();
            while let Some(bytes) = request_bytes(&visitor.received) {
                self.seen.push(visitor.received.drain(..bytes).collect());
                // A proxy that is gone cannot be answered, which is not what is looked at.
                visitor.is_gone |= visitor.stream.write_all(ANSWER).is_err();
            }
        }
        self.visitors.retain(|visitor| !visitor.is_gone || !visitor.received.is_empty());
        was_busy
    }
}

impl Visitor {
    fn read(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => self.is_gone = true,
            Ok(count) => {
                self.received.extend_from_slice(&piece[..count]);
                return true;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_reset_by_the_proxy) => self.is_gone = true,
        }
        false
    }
}

/// How many of the bytes are the first request, as a server sees it that takes everything: the coding
/// counts more than the length, and anything in odd shape is passed over. `None` while it has not ended.
fn request_bytes(bytes: &[u8]) -> Option<usize> {
    let head_bytes = memmem::find(bytes, b"\r\n\r\n")? + 4;
    let (head, body) = bytes.split_at(head_bytes);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let value = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    if value("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
        return Some(head_bytes + chunked_bytes(body)?);
    }
    let length = value("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    (body.len() >= length).then_some(head_bytes + length)
}

fn chunked_bytes(body: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let line_bytes = memmem::find(&body[at..], b"\r\n")?;
        let line = String::from_utf8_lossy(&body[at..at + line_bytes]).into_owned();
        let digits: String = line.trim().chars().take_while(char::is_ascii_hexdigit).collect();
        let size = usize::from_str_radix(&digits, 16).unwrap_or(0);
        at += line_bytes + 2;
        if size == 0 {
            // A trailer, if there is one, ends in an empty line as well.
            let rest = &body[at..];
            let end =
                if rest.starts_with(b"\r\n") { 2 } else { memmem::find(rest, b"\r\n\r\n")? + 4 };
            return Some(at + end);
        }
        at += size + 2;
        if at > body.len() {
            return None;
        }
    }
}
